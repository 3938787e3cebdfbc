"""uvicorn's HTTP protocol with a moment for requests that are on their way when the server stops.

It is the one of h11: that of httptools loses the body of a request that offers to switch to HTTP/2, as Java's HTTP
client does at its first request: https://github.com/Kludex/uvicorn/issues/2722
"""

from __future__ import annotations

from uvicorn.protocols.http.flow_control import CLOSE_HEADER
from uvicorn.protocols.http.h11_impl import H11Protocol

STOP_DELAY = 0.5
"""Seconds for which connections without a request stay open when the server stops.

A client that has just connected, or goes on with an idle connection, cannot know of the stop, and repeats no POST.
Source: https://github.com/Kludex/uvicorn/discussions/2315
"""


class ServiceHttpProtocol(H11Protocol):
    """Loses no request when the server stops."""

    _is_stopping = False

    def handle_events(self) -> None:
        """Handle what has arrived; a request is the last one of its connection if the server stops."""
        super().handle_events()
        if self._is_stopping and self._is_answering():
            self._close_after_response()

    def shutdown(self) -> None:
        """Close the connection after its request, or if none comes soon."""
        if self._is_answering():
            self._close_after_response()
        elif not self._is_stopping:
            self.loop.call_later(STOP_DELAY, self.shutdown)
        elif not self.transport.is_closing():
            super().shutdown()
        self._is_stopping = True

    def _is_answering(self) -> bool:
        return bool(self.cycle) and not self.cycle.response_complete

    def _close_after_response(self) -> None:
        self.cycle.keep_alive = False
        # as if the client had asked for it, so that the response says so, once
        headers = list(self.cycle.scope["headers"])
        if CLOSE_HEADER not in headers:
            self.cycle.scope["headers"] = [*headers, CLOSE_HEADER]
