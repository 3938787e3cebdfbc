"""HTTP/1.1 as the client of a model or of a remote component needs it: a request, and its answer piece by piece.

The parser is that of Node (llhttp, by httptools); names, sockets and TLS are the event loop's. A general client makes
some ten objects more for a call, and takes longer for it than all the rest of a run. No redirect is followed, no
cookie is kept, and proxies that the environment names are not used: the URL says where to go, and nothing else does.
"""

from __future__ import annotations

import asyncio
import select
import zlib
from collections.abc import Callable
from typing import Any, Literal, cast

import httptools

LONGEST_HEAD = 64 * 2**10
"""Bytes that the head of an answer may have."""

_ENOUGH = 256 * 2**10
"""Bytes that wait for their reader until no more are taken, and the most that are decompressed at once."""


class HttpError(Exception):
    """What goes wrong between a request and its answer."""


class NotConnectedError(HttpError):
    """There was no connection, so nothing was sent.

    Args:
        reason: What failed: the look-up of the host's `name`, `tls`, the `time`, or the connection itself.
    """

    def __init__(self, reason: Literal["name", "tls", "time", "connection"]) -> None:
        super().__init__(reason)
        self.reason = reason


class LostError(HttpError):
    """The connection ended before the answer began."""


class BrokenError(HttpError):
    """What came is no HTTP, or ended in its middle."""


class Reply:
    """An answer, as it comes. Whoever has it closes it."""

    __slots__ = (
        "_chunks", "_connection", "_error", "_head", "_held", "_parser", "_paused", "_rest", "_sized", "_waiter",
        "_zipped", "ended", "headers", "reusable", "status",
    )  # fmt: skip

    def __init__(self, connection: Connection) -> None:
        self.status = 0
        """The HTTP status; 0 until the head has come."""
        self.headers: dict[str, str] = {}
        """By name in lower case; of several lines of one name, the first."""
        self.ended = False
        """Whether all of it has come."""
        self.reusable = False
        """Whether the connection can carry a next request then."""
        self._connection = connection
        self._parser: Any = httptools.HttpResponseParser(self)
        self._chunks: list[bytes] = []
        self._held = self._head = 0
        self._paused = self._sized = False
        self._waiter: asyncio.Future[None] | None = None
        self._error: HttpError | None = None
        self._zipped: Any = None
        self._rest = b""

    @property
    def content_type(self) -> str:
        """The media type, without its parameters."""
        return self.headers.get("content-type", "").partition(";")[0].strip().lower()

    @property
    def at_end(self) -> bool:
        """Whether all of it has been read."""
        return self.ended and not self._chunks and not self._rest

    async def begun(self) -> None:
        """Wait for the head.

        Raises:
            HttpError: There is none.
        """
        while not self.status:
            await self._more()

    async def more(self) -> bytes:
        """What of the body has come since, decompressed; empty at its end.

        Raises:
            BrokenError: There will be no whole one.
        """
        if self._rest:  # nothing is waited for, so the others and the time-outs get their turn here
            await asyncio.sleep(0)
        while True:
            while not (self._chunks or self._rest or self.ended):
                await self._more()
            data = self._rest + (self._chunks[0] if len(self._chunks) == 1 else b"".join(self._chunks))
            self._chunks, self._held, self._rest = [], 0, b""
            if self._paused:
                self._paused = False
                self._connection.resume()
            if self._zipped is not None:
                data = self._unzipped(data)
            if data or self.at_end:
                return data

    def close(self) -> None:
        """Give the connection back if it can carry another request, and else end it."""
        self._parser = self._error = None  # which hold this one, too
        if self._paused:  # the next one has to hear something
            self._paused = False
            self._connection.resume()
        self._connection.release(self)

    async def _more(self) -> None:
        if self._error is not None:
            raise self._error
        self._waiter = asyncio.get_running_loop().create_future()
        await self._waiter

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def _unzipped(self, data: bytes) -> bytes:
        """The next piece of a compressed body: not more than some, for a little may be very much of it."""
        try:
            if not data:
                if not self._zipped.eof:
                    raise BrokenError
                return b""
            if self._zipped.eof:  # of gzip, several may stand one after the other
                self._zipped = zlib.decompressobj(wbits=_WBITS)
            found = self._zipped.decompress(data, _ENOUGH)
        except zlib.error as error:
            raise BrokenError from error
        self._rest = self._zipped.unconsumed_tail or self._zipped.unused_data
        if self.at_end and not self._zipped.eof:
            raise BrokenError
        return found

    # what the connection tells

    def feed(self, data: bytes) -> None:
        """Take what has come from the network."""
        if self.ended or self._error is not None:  # nothing was asked that this would answer
            self.reusable = False
            return
        self._head += len(data)
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as error:
            if self.ended:
                self.reusable = False
            else:
                self.fail(BrokenError(), error)
        if self._head > LONGEST_HEAD and not self.ended:  # also the head of a chunk, and trailers
            self.fail(BrokenError())
        self._wake()

    def lost(self, in_order: bool, cause: Exception | None = None) -> None:
        """The connection has ended, in order or not."""
        self.reusable = False
        by_end = self.status and not self._sized  # whether the end of the connection is that of the body
        if by_end and in_order and self._error is None:
            self.ended = True
            self._wake()
        elif not self.ended:
            self.fail(BrokenError() if self.status else LostError(), cause)

    def fail(self, error: HttpError, cause: BaseException | None = None) -> None:
        """There will be no whole answer."""
        if self._error is None:
            error.__cause__ = cause
            self._error = error
        self._wake()

    # what the parser tells

    def on_header(self, name: bytes, value: bytes) -> None:
        """A line of the head."""
        if self.status:  # trailers, or one answer more
            return
        key, text = name.decode("latin-1").lower(), value.decode("latin-1")
        if key in _LISTS and key in self.headers:
            text = f"{self.headers[key]}, {text}"
        elif key in self.headers:
            return
        self.headers[key] = text

    def on_headers_complete(self) -> None:
        """The end of the head."""
        status = self._parser.get_status_code()
        if self.ended:
            return
        if status < 200:  # there will be another head
            self.headers = {}
            return
        self.reusable = self._parser.should_keep_alive()
        self._sized = "content-length" in self.headers or "transfer-encoding" in self.headers or status in (204, 304)
        coding = self.headers.get("content-encoding", "identity").strip().lower()
        if coding in _ZIPPED:
            self._zipped = zlib.decompressobj(wbits=_WBITS)
        elif coding not in ("", "identity"):
            self.fail(BrokenError())
        self.status = status

    def on_body(self, data: bytes) -> None:
        """A piece of the body."""
        if self.ended or self._error is not None:
            return
        if not self.status:  # an interim answer has none
            self.fail(BrokenError())
            return
        self._head = 0
        self._chunks.append(data)
        self._held += len(data)
        if self._held > _ENOUGH and not self._paused:
            self._paused = True
            self._connection.pause()

    def on_message_complete(self) -> None:
        """The end of the body."""
        self.ended = bool(self.status) and self._error is None

    def on_message_begin(self) -> None:
        """The start of an answer: the one that was asked for, or one more."""
        if self.ended:
            self.reusable = False


_WBITS = 32 + zlib.MAX_WBITS  # of gzip or zlib, whichever it is
_ZIPPED = ("gzip", "x-gzip", "deflate")
_LISTS = ("content-encoding", "transfer-encoding")


class Connection(asyncio.Protocol):
    """One connection, which carries one request after the other.

    Args:
        released: Takes it back when it can carry another request.
    """

    _transport: asyncio.Transport

    def __init__(self, released: Callable[[Connection], None]) -> None:
        self.since = 0.0
        """When it was given back."""
        self._released = released
        self._reply: Reply | None = None
        self._said_so = False

    @property
    def alive(self) -> bool:
        """Whether it can carry a request."""
        return not self._transport.is_closing()

    def quiet(self) -> bool:
        """Whether nothing has come that the loop has not seen yet: its end, or what would pass for the next answer."""
        if not hasattr(select, "poll"):
            return True
        now = select.poll()
        now.register(self._transport.get_extra_info("socket").fileno(), select.POLLIN)
        return not now.poll(0)

    def send(self, request: bytes) -> Reply:
        """Send a request; it must carry no other."""
        reply = self._reply = Reply(self)
        if self.alive:
            self._transport.write(request)
        else:  # it ended as soon as it had come about
            reply.lost(in_order=False)
        return reply

    def release(self, reply: Reply) -> None:
        """An answer is needed no more."""
        if reply is self._reply:
            self._reply = None
            if reply.ended and reply.reusable and self.alive and not self._transport.get_write_buffer_size():
                self._released(self)
            else:
                self.end()

    def end(self) -> None:
        """End it at once."""
        self._transport.abort()

    def pause(self) -> None:
        """Take no more from the network for now."""
        self._transport.pause_reading()

    def resume(self) -> None:
        """Take more again."""
        self._transport.resume_reading()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """As in asyncio."""
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        """As in asyncio."""
        if self._reply is not None:
            self._reply.feed(data)
        else:  # nobody asked
            self.end()

    def eof_received(self) -> None:
        """As in asyncio."""
        self._said_so = True

    def connection_lost(self, exc: Exception | None) -> None:
        """As in asyncio."""
        if self._reply is not None:
            self._reply.lost(self._said_so and exc is None, exc)
