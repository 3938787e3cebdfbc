"""HTTP/1.1 for clients who are slow, or send what is no HTTP: none of them holds a connection or memory for long.

uvicorn bounds neither how long a request takes to arrive nor how long its headers are.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Literal, cast

from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol, RequestResponseCycle

from podwright_service.problems import MEDIA_TYPE, as_bytes, document
from podwright_service.settings import Settings

if TYPE_CHECKING:
    from collections.abc import Callable

    from starlette.types import Scope
    from uvicorn._types import ASGI3Application

    from podwright_service.doors import Doors

MAX_HEAD_BYTES = 64 * 1024
"""Largest head of a request: its first line and its headers."""
MAX_HEADERS = 256
"""Most headers of a request, and most trailers."""

CLOSE = (b"connection", b"close")
"""The header of an answer after which the connection closes."""

_TO_READ = 2.0
"""Seconds that a client has to read why its connection is closed."""
_LEAST_RATE = 1024
"""Bytes a second that a client must take of an answer which is complete here."""

REFUSALS: dict[int, tuple[str, str, str]] = {
    400: ("request_malformed", "What was sent cannot be read as a request.", "Send HTTP/1.1, and no Upgrade."),
    408: ("request_too_slow", "The request did not come in time.", "Send it without a break."),
    413: ("body_too_large", "The body is far larger than what is taken here.", "Send less."),
    431: ("headers_too_large", "The request has too many headers, or too large ones.", "Send fewer."),
}
"""What a client is told that is cut off, by status: code, detail and suggestion."""


class _Joined:
    """The transport of one answer: what is written first leaves with what follows at once, for each send costs.

    Args:
        transport: The connection's.
        end: Closes it.
    """

    __slots__ = ("_begun", "_end", "_held", "_transport")

    def __init__(self, transport: asyncio.Transport, end: Callable[[], None]) -> None:
        self._transport, self._end, self._held, self._begun = transport, end, b"", False

    def write(self, data: bytes) -> None:
        if self._held:
            held, self._held = self._held, b""
            self._transport.write(held + data)
        elif self._begun:
            self._transport.write(data)
        else:
            self._begun, self._held = True, data
            asyncio.get_running_loop().call_soon(self._flush)

    def close(self) -> None:
        self._flush()
        self._end()

    def is_closing(self) -> bool:
        return self._transport.is_closing()

    def _flush(self) -> None:
        if self._held:
            self.write(b"")


class Protocol(HttpToolsProtocol):
    """One connection. What it overrides does as in uvicorn, and keeps the time.

    A request's scope has two extensions that ASGI lacks: `scope["extensions"]["podwright.abort"]["connection"]()` ends
    the connection at once, with all that the client has not taken, and `["podwright.gone"]["tell"](call)` has something
    called as soon as the client has left, without a task that waits for it; with None it is no longer called.

    Instead of a timer for each request, each connection looks now and then whether it is late: a request costs
    no more than a few assignments.
    """

    header_timeout = 10.0
    body_timeout = 30.0
    max_message_bytes = 10 * 1024 * 1024

    _state: Literal["idle", "head", "body"] = "idle"
    """What of a request the client owes."""
    _due: float | None = None
    """When it must be there."""
    _size = 0
    """Bytes of this message, without those of the piece in which it began: that may hold others too."""
    _piece = 0
    _refusal = 400
    _refused = False
    _unread: tuple[float, int] | None = None
    """Since when, and how much of an answer the client had not taken then."""
    _timer: asyncio.TimerHandle | None = None
    _first: RequestResponseCycle | None = None
    """What the application has begun with; `cycle` is the newest, which may still wait for it."""
    _left: Callable[[], None] | None = None
    """What to call when the client leaves."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Expect a first request."""
        super().connection_made(transport)  # pyright: ignore[reportArgumentType] - as in uvicorn
        self._extensions: dict[str, dict[object, object]] = {
            "podwright.abort": {"connection": self.transport.abort},
            "podwright.gone": {"tell": self._tell_when_gone},
        }
        state = getattr(self.config.app, "state", None)
        self._doors: Doors | None = getattr(state, "doors", None)
        self._due = self.loop.time() + self.header_timeout
        self._look()

    def connection_lost(self, exc: Exception | None) -> None:
        """Look no more, and tell the application, also where the client had sent a next request already."""
        if self._timer:
            self._timer.cancel()
        self.pipeline.clear()
        if self._first:
            self._disconnect(self._first)
        super().connection_lost(exc)

    def _disconnect(self, cycle: RequestResponseCycle) -> None:
        cycle.disconnected = True
        cycle.message_event.set()
        if self._left and cycle is self._first:
            self._left()

    def _tell_when_gone(self, left: Callable[[], None] | None) -> None:
        self._left = left
        if left and self._first and self._first.disconnected:
            left()

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: ASGI3Application) -> None:
        self._first = cycle
        if not self._refused_at_the_door(cycle):
            if cycle.scope["method"] != "HEAD":  # to which nothing follows, but the next answer
                cycle.transport = cast("asyncio.Transport", _Joined(self.transport, self._end))
            super()._start_asgi_task(cycle, app)

    def _refused_at_the_door(self, cycle: RequestResponseCycle) -> bool:
        """Whether the request was answered here: one of many that are refused, which cost the others little so."""
        upgrade = bool(self.parser and self.parser.should_upgrade())
        stays = cycle.keep_alive and CLOSE not in cycle.default_headers
        usual = stays and not (upgrade or self.pipeline or self.flow.write_paused)
        if self._doors is None or not usual or cycle.scope["method"] == "HEAD":
            return False
        if (refusal := self._doors.refusal(cast("Scope", cycle.scope))) is None:
            return False
        status, rest = refusal
        headers = [part for name, value in cycle.default_headers for part in (name, b": ", value, b"\r\n")]
        self.transport.write(b"".join((status, *headers, rest)))
        cycle.response_started = cycle.response_complete = True
        cycle.on_response()
        return True

    def data_received(self, data: bytes) -> None:
        """Read, as long as it is not too much."""
        if self._refused:
            return
        self._piece = len(data)
        self._size += self._piece
        if self._state == "idle" and self._due is None and not self._busy():
            self._due = self.loop.time() + self.header_timeout  # line breaks before a request are no request
        super().data_received(data)
        if self._state == "head" and (self._size > MAX_HEAD_BYTES or len(self.headers) > MAX_HEADERS):
            self._refuse(431)
        elif self._state == "body" and (self._size > self.max_message_bytes or len(self.headers) > MAX_HEADERS):
            self._refuse(413)

    def on_message_begin(self) -> None:
        """Expect the head."""
        super().on_message_begin()
        self.scope["extensions"] = self._extensions
        self._state, self._size, self._due = "head", 0, self.loop.time() + self.header_timeout

    def on_headers_complete(self) -> None:
        """Expect the body."""
        if self._size + self._piece > MAX_HEAD_BYTES or len(self.headers) > MAX_HEADERS:
            size = len(self.url) + sum(len(name) + len(value) + 4 for name, value in self.headers)
            if size > MAX_HEAD_BYTES or len(self.headers) > MAX_HEADERS:
                self._refusal = 431
                raise ValueError  # the parser stops, and asks for the answer to what it could not read
        upgrade = bool(self.parser and self.parser.should_upgrade())
        if upgrade and any(name in (b"content-length", b"transfer-encoding") for name, _ in self.headers):
            raise ValueError  # the parser would take the body for what comes after the upgrade, or for a request
        super().on_headers_complete()
        self.cycle.keep_alive = self.cycle.keep_alive and not upgrade
        self.headers = []  # of trailers, which must not become headers after these were looked at
        self._state, self._due = "body", self.loop.time() + self.body_timeout

    def on_message_complete(self) -> None:
        """Expect nothing."""
        self._state, self._due = "idle", None
        super().on_message_complete()

    def send_400_response(self, msg: str) -> None:
        """Answer what could not be read."""
        self._refuse(self._refusal)

    def _busy(self) -> bool:
        """Whether the application owes an answer."""
        return bool(self.cycle) and not self.cycle.response_complete

    def _look(self) -> None:
        """See whether the client is late, and when to look again."""
        now, every = self.loop.time(), min(self.header_timeout, self.body_timeout)
        if self._due is not None and self._due <= now:
            if self.flow.read_paused and not self._refused:
                self._due = now + every  # it is not the client's fault
            else:
                self._due = None
                self._late()
        if self._stuck(now):
            self.transport.abort()
        else:
            self._look_at(min(now + every, self._due or now + every))

    def _look_at(self, when: float) -> None:
        if self._timer:
            self._timer.cancel()
        self._timer = self.loop.call_at(when, self._look)

    def _late(self) -> None:
        if self._refused:
            self.transport.abort()
        elif self._state == "idle":  # it has sent nothing: there is nothing to answer
            self.transport.close()
        else:
            self._refuse(408)

    def _stuck(self, now: float) -> bool:
        """Whether the client does not take an answer, of which nothing more will come."""
        size = self.transport.get_write_buffer_size()
        more = self._busy() and self.cycle.response_started and not self.transport.is_closing()
        if not size or more:
            self._unread = None
        elif self._unread is None:
            self._unread = (now, size)
        elif (passed := now - self._unread[0]) >= self.body_timeout:
            if self._unread[1] - size < _LEAST_RATE * passed:
                return True
            self._unread = (now, size)
        return False

    def _refuse(self, status: int) -> None:
        """Say why, and close; where another answer is expected first, only close."""
        if self._refused:
            return
        self._refused = True
        busy, own = self._busy(), self._state == "body"  # whether the application has begun with this very request
        if busy:
            self._disconnect(self.cycle)
        if self.transport.is_closing():
            return
        if busy != own or (own and (self.cycle.response_started or self.pipeline)):
            self.transport.close()
            return
        self.transport.write(self._answer(status))
        self._close_once_read()

    def _end(self) -> None:
        """Close behind an answer; what came after the request's own body is nobody's."""
        if self._state == "body" and not self._refused:
            self._refused = True
            self._close_once_read()
        else:
            self.transport.close()

    def _close_once_read(self) -> None:
        """Close, but not at once: who is told of a reset connection while sending may not read the answer."""
        if self.transport.can_write_eof() and not self.transport.is_closing():
            self.transport.write_eof()
            self.flow.resume_reading()
            self._due = self.loop.time() + _TO_READ
            self._look_at(self._due)
        else:
            self.transport.close()

    def _answer(self, status: int) -> bytes:
        code, detail, suggestion = REFUSALS[status]
        path = self.url.partition(b"?")[0].decode("ascii", "replace")[:200] if self._state == "body" else "*"
        facts = {"detail": detail, "code": code, "suggestion": suggestion}
        body = as_bytes(document(path, status, facts))
        head = f"content-type: {MEDIA_TYPE}\r\ncontent-length: {len(body)}\r\nconnection: close\r\n\r\n"
        return STATUS_LINE[status] + head.encode() + body


def protocol_for(settings: Settings) -> type[Protocol]:
    """The protocol with an operator's settings, as uvicorn wants it: `Config(http=protocol_for(settings))`."""

    class Bounded(Protocol):
        header_timeout, body_timeout = settings.header_timeout, settings.body_timeout
        # a chunk of one byte comes with five of its framing
        max_message_bytes = MAX_HEAD_BYTES + 8 * settings.max_body_bytes

    return Bounded
