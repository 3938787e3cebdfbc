"""uvicorn's HTTP protocol over httptools, with what a service needs besides.

It answers requests that are on their way when the server stops, ignores offers to switch protocols, and limits what
arrives without being a request or a part of a body.
"""

from __future__ import annotations

from array import array
from typing import Any

from httptools import HttpParserUpgrade, HttpRequestParser
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from podwright_service.http.access.admission import MAX_HEAD

STOP_DELAY = 0.5
"""Seconds for which connections without a request stay open when the server stops.

A client that has just connected, or goes on with an idle connection, cannot know of the stop, and repeats no POST.
Source: https://github.com/Kludex/uvicorn/discussions/2315
"""
_MAX_UNPARSED = 2 * MAX_HEAD
"""Bytes without a complete head, a part of a body or an end of a body.

They are more than `AdmissionMiddleware` allows, so that it can say what is wrong with a head that is a bit too large.
"""


class ServiceHttpProtocol(HttpToolsProtocol):
    """Loses no request when the server stops, and no body when a client offers another protocol."""

    _is_stopping = False
    _unparsed = 0

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.parser = _HTTP1Parser(self)

    def data_received(self, data: bytes) -> None:
        """Parse what has arrived; refuse what is too long for a head, a line of a chunk or trailers."""
        self._unparsed += len(data)
        super().data_received(data)
        if self._unparsed > _MAX_UNPARSED and not self.transport.is_closing():
            message = "Invalid HTTP request received."
            self.logger.warning(message)
            self.send_400_response(message)

    def on_header(self, name: bytes, value: bytes) -> None:
        """Take a header; the whitespace after its value is no part of it (RFC 9110, section 5.5)."""
        super().on_header(name, value.rstrip(b" \t"))

    def on_headers_complete(self) -> None:
        """Begin to answer the request; it is the last one of its connection if the server stops."""
        self._unparsed = 0
        if self._has_offer():
            return
        super().on_headers_complete()
        if self._is_stopping:
            self.cycle.keep_alive = False

    def on_body(self, body: bytes) -> None:
        """Take a part of the body."""
        self._unparsed = 0
        super().on_body(body)

    def on_message_complete(self) -> None:
        """Take the end of the body."""
        self._unparsed = 0
        if not self._has_offer():
            super().on_message_complete()

    def send_400_response(self, msg: str) -> None:
        """Refuse what has arrived, or only end the connection after the answer to a complete request before it."""
        cycle = self.cycle
        if cycle and not cycle.response_complete and not cycle.more_body:
            cycle.keep_alive = False
            self.flow.pause_reading()
        else:
            super().send_400_response(msg)

    def shutdown(self) -> None:
        """Close the connection after its request, or if none comes soon."""
        is_answering = self.cycle and not self.cycle.response_complete
        if is_answering or self._is_stopping:
            super().shutdown()
        else:
            self.loop.call_later(STOP_DELAY, self.shutdown)
        self._is_stopping = True

    def head_without_offer(self) -> bytes:
        """Return the head of the request that was parsed last, without its offer to switch protocols."""
        method = self.parser.get_method()
        version = self.parser.get_http_version().encode()
        lines = [b"%b %b HTTP/%b" % (method, self.url, version)]
        for name, value in self.headers:
            if name != b"upgrade":
                lines.append(b"%b: %b" % (name, value))
        return b"\r\n".join([*lines, b"", b""])

    def _has_offer(self) -> bool:
        """Whether the head is parsed again without its offer."""
        return self.parser.should_upgrade() and not _is_connect(self.parser)


class _HTTP1Parser(HttpRequestParser):
    """A parser that ignores offers to switch protocols, as a server may (RFC 9110, section 7.8).

    httptools ends a request with its head if that has an offer, as Java's HTTP client makes one in each first request
    of a connection. The head is parsed again without the offer, so that the body follows.
    Source: https://github.com/Kludex/uvicorn/issues/2722
    """

    def __init__(self, protocol: ServiceHttpProtocol) -> None:
        self._protocol = protocol
        self._begin()

    def _begin(self) -> None:
        """Forget what was parsed, also that a request was the last one of its connection."""
        super().__init__(self._protocol)
        # as uvicorn sets it, so that a request is answered although more follows its `Connection: close`
        self.set_dangerous_leniencies(lenient_data_after_close=True)

    def feed_data(
        self, data: bytes | bytearray | memoryview | array[int]
    ) -> None:
        """Parse what has arrived."""
        rest = data
        while True:
            try:
                super().feed_data(rest)
            except HttpParserUpgrade as offer:
                if _is_connect(self):
                    raise
                end_of_head = offer.args[0]
                rest = memoryview(rest).cast("B")[end_of_head:]
            else:
                return
            head = self._protocol.head_without_offer()
            self._begin()
            super().feed_data(head)


def _is_connect(parser: HttpRequestParser) -> bool:
    """Whether a request asks for a tunnel, to which parsers switch without an offer."""
    return parser.get_method() == b"CONNECT"
