"""uvicorn's HTTP protocol with two things that it does not have.

A limit on request headers: they are parsed before the API key is checked, and pods of a fleet call each other without
an ingress. And a moment for requests that are on their way when the server stops.
"""

from __future__ import annotations

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from podwright.errors import help_page
from podwright.json_data import to_json_bytes

MAX_HEAD = 64 * 1024
"""Bytes of the request line, the headers and the trailers of one request."""

STOP_DELAY = 0.5
"""Seconds for which connections without a request stay open when the server stops.

A client that has just connected, or goes on with an idle connection, cannot know of the stop, and repeats no POST.
Source: https://github.com/Kludex/uvicorn/discussions/2315
"""

_SEPARATORS = len(": \r\n")
_DETAIL = to_json_bytes(
    {
        "type": help_page("headers_too_large"),
        "title": "Headers too large",
        "status": 431,
        "detail": f"The headers are larger than {MAX_HEAD} bytes.",
        "code": "headers_too_large",
        "suggestion": "Send fewer or shorter headers.",
    }
)
_REFUSAL = (
    b"HTTP/1.1 431 Request Header Fields Too Large\r\ncontent-type: application/problem+json\r\n"
    b"content-length: %d\r\nconnection: close\r\n\r\n%b"
    % (len(_DETAIL), _DETAIL)
)


class HeadersTooLargeError(Exception):
    """A request has more than `MAX_HEAD` bytes of headers.

    It is raised in a callback of httptools, which stops and wraps it in an error of its own. uvicorn answers each error
    of httptools with `send_400_response`.
    """


class ServiceHttpProtocol(HttpToolsProtocol):
    """Refuses a request whose headers are too large, with 431, and closes its connection; loses none when it stops.

    Complete headers are counted when the parser delivers them. An incomplete one grows inside the parser, so the bytes
    that come without anything being delivered are counted too.
    """

    _head = 0
    """Bytes of the request line and the headers so far."""
    _undelivered = 0
    """Bytes since the parser last delivered something."""
    _is_stopping = False

    def shutdown(self) -> None:
        """Close the connection after its request, or if none comes soon."""
        is_answering = self.cycle and not self.cycle.response_complete
        if is_answering or self._is_stopping:
            super().shutdown()
        else:
            self.loop.call_later(STOP_DELAY, self.shutdown)
        self._is_stopping = True

    def on_headers_complete(self) -> None:
        """The headers are complete; the request is the last one of its connection if the server stops."""
        super().on_headers_complete()
        if self._is_stopping:
            self.cycle.keep_alive = False

    def data_received(self, data: bytes) -> None:
        """Parse what has arrived."""
        self._undelivered += len(data)
        super().data_received(data)
        if self._undelivered > MAX_HEAD and not self.transport.is_closing():
            self._refuse()

    def on_message_begin(self) -> None:
        """A request begins."""
        self._head = 0
        self._undelivered = 0
        super().on_message_begin()

    def on_url(self, url: bytes) -> None:
        """A piece of the target arrived."""
        self._count(len(url))
        super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        """A header or a trailer is complete."""
        self._count(len(name) + len(value) + _SEPARATORS)
        super().on_header(name, value)

    def on_body(self, body: bytes) -> None:
        """A piece of the body arrived."""
        self._undelivered = 0
        super().on_body(body)

    def on_message_complete(self) -> None:
        """The request is complete."""
        self._undelivered = 0
        super().on_message_complete()

    def send_400_response(self, msg: str) -> None:
        """Answer a request that the parser has rejected, or at which `_count` has stopped it."""
        if self._head > MAX_HEAD:
            self._refuse()
        else:
            super().send_400_response(msg)

    def _count(self, size: int) -> None:
        self._undelivered = 0
        self._head += size
        if self._head > MAX_HEAD:
            raise HeadersTooLargeError

    def _refuse(self) -> None:
        self.transport.write(_REFUSAL)
        self.transport.close()
