"""ASGI middleware that measures requests and tells the client which trace its request is part of."""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING, Any

from opentelemetry.trace import Span, StatusCode, get_current_span
from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from podwright.data.text import printable
from podwright_service.http.paths import path_in
from podwright_service.observability import semconv
from podwright_service.observability.tracing import (
    current_traceparent,
    link_to,
    resumed_run,
    trace_of_caller,
)

if TYPE_CHECKING:
    from podwright_service.observability import Observability

_log = logging.getLogger("podwright.request")
CLIENT_CLOSED_REQUEST = 499
"""The status of a request whose client disconnected before the response; the number is nginx's."""


class RequestTelemetryMiddleware:
    """Counts each request, logs it at `debug`, and adds the header `traceresponse` (W3C Trace Context Level 2).

    The header `Podwright-Resumes`, with the `traceresponse` of a stopped run, links the new run to that run.

    Args:
        app: The application.
        observability: Where requests are counted.
    """

    def __init__(self, app: ASGIApp, observability: Observability) -> None:
        self.app = app
        self._metrics = observability.metrics
        self._traces = observability.tracer_provider is not None

    async def __call__(
        self, scope: Scope, receive: Receive, send: Send
    ) -> None:
        """Handle one connection."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        if self._traces:
            await self._serve(scope, receive, send)
            return
        # a trace of the caller goes on behind this service, although it exports no spans of its own
        with trace_of_caller(Headers(scope=scope)):
            await self._serve(scope, receive, send)

    async def _serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        started = time.perf_counter()
        # now, because a mounted part of the application changes the scope
        route_path = path_in(scope)
        path = scope["path"]
        method = scope["method"]
        status = CLIENT_CLOSED_REQUEST
        traceresponse = None
        resumed = None
        if self._traces:
            traceresponse = current_traceparent()
        if traceresponse:
            resumed = link_to(Headers(scope=scope).get("podwright-resumes"))
        span = get_current_span()
        state: dict[str, Any] = scope.setdefault("state", {})

        async def send_with_trace(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                if traceresponse:
                    message["headers"] = [
                        *message.get("headers", ()),
                        (b"traceresponse", traceresponse.encode()),
                    ]
            elif not message.get("more_body") and "final_status" in state:
                # before the last piece, with which the span ends: a stream answers 200 when its run begins
                status = state["final_status"]
                mark_as_failed(span, state.get("final_code", "internal_error"))
            await send(message)

        token = resumed_run.set(resumed)
        try:
            await self.app(scope, receive, send_with_trace)
        except Exception as error:
            if status == CLIENT_CLOSED_REQUEST:
                status = 500
            # in the log line of the server, which knows nothing of the request
            note = f"The request was {method} {printable(path)}"
            if traceresponse:
                note += f", {traceresponse}"
            error.add_note(f"{note}.")
            raise
        finally:
            seconds = time.perf_counter() - started
            self._metrics.observe_request(method, route_path, status, seconds)
            if _log.isEnabledFor(logging.DEBUG):
                fields = {
                    "method": method,
                    "path": path,
                    "status": status,
                    "duration_ms": round(seconds * 1000, 3),
                }
                if state.get("caller"):
                    fields["caller"] = state["caller"]
                _log.debug("request", extra=fields)
            resumed_run.reset(token)


def mark_as_failed(span: Span, code: str) -> None:
    """Make the span of a request one of a failure."""
    span.set_attribute(semconv.ERROR, code)
    span.set_status(StatusCode.ERROR, code)
