"""What is known of runs and requests from outside: spans, metrics and log lines, put together for one service."""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections.abc import Collection
from typing import Any

from opentelemetry import propagate
from opentelemetry.context import Context, attach, get_current, set_value
from opentelemetry.trace import Link, Span, SpanKind, Status, StatusCode, get_current_span, set_span_in_context
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from podwright import __version__, blueprints
from podwright.components import Agent, Component, Conductor
from podwright.components.remote import PROPAGATORS
from podwright.errors import ConfigurationError
from podwright.events import Subscriber
from podwright.models import Model
from podwright_service.inline_blueprints import InlinePolicy
from podwright_service.observability import logging as logs
from podwright_service.observability import semconv
from podwright_service.observability.metrics import UNKNOWN, Metrics
from podwright_service.observability.plain_structlog import structlog
from podwright_service.observability.tracing import RESUMED, Spans, propagated
from podwright_service.paths import PATHS
from podwright_service.remotes import everything_in
from podwright_service.settings import Settings

_UNTRACED = ("/health", "/ready", "/metrics")
_LEFT = 499
_LONGEST_PATH = 500
_PARENT, _BAGGAGE, _RESUMES = b"traceparent", b"baggage", b"podwright-resumes"
_TAKEN = (_PARENT, b"tracestate", _BAGGAGE)


class Observability:
    """The telemetry of one service.

    Args:
        component: What is served.
        settings: What is logged, and how.
        policy: What inline blueprints may name.
        models: The models that answer.
        remotes: Names of the components inside it that run in other containers.

    Raises:
        ConfigurationError: An `OTEL_` variable asks for what there is not.
    """

    def __init__(
        self,
        component: Component,
        settings: Settings,
        policy: InlinePolicy,
        models: Collection[Model],
        remotes: Collection[str] = (),
    ) -> None:
        parts = list(everything_in(component))
        digest = blueprints.digest(component.to_blueprint())
        self.metrics = Metrics(
            component.name,
            component.kind,
            {part.name for part in parts},
            {*(model.name for model in models), *policy.models, *component.models()},
            {*policy.tools, *(name for part in parts for name in _tool_names(part))},
            PATHS,
        )
        self.metrics.serves(__version__, digest)
        # it writes out headers that are too long, and they hold whatever a caller sends
        logging.getLogger("opentelemetry.baggage").setLevel(logging.ERROR)
        common: list[Subscriber] = []
        if structlog.is_configured():
            common.append(logs.run_lines(settings))
        self._log = structlog.get_logger("podwright.request").bind() if structlog.is_configured() else None
        self._delivery: Any = None
        self.recorder: Any = None
        self.tracer_provider = None
        if tracing_wanted():
            try:  # the SDK takes a while to import, and without a collector nobody needs it
                from podwright_service.observability import export
            except ValueError as error:  # it reads its limits as it is imported
                raise ConfigurationError(f"{error}.", suggestion="Correct that variable, or leave it out.") from error

            if export.exporters():
                who = {
                    "service.name": component.name,
                    "service.version": __version__,
                    semconv.COMPONENT_KIND: component.kind,
                    semconv.BLUEPRINT_DIGEST: digest,
                }
                self._delivery = export.Delivery(who, "podwright", __version__)
                self.recorder = self._delivery.recorder
                servers = {model.name: address for model in models if (address := model.address())}
                common.append(Spans(self.recorder, content_wanted(), remotes, servers))
                if propagated not in PROPAGATORS:
                    PROPAGATORS.append(propagated)
        # spans last: what ends is counted and logged while its span is still the current one
        self.subscribers: tuple[Subscriber, ...] = (self.metrics.subscriber(posted=False), *common)
        """Who hears the runs of the served component."""
        self.inline_subscribers: tuple[Subscriber, ...] = (self.metrics.subscriber(posted=True), *common)
        """Who hears the runs of posted blueprints."""

    def shutdown(self) -> None:
        """Flush and stop the exporters."""
        if self._delivery is not None:
            asyncio.run(self._delivery.finish())

    def answered(self, method: str, path: str, status: int, seconds: float) -> None:
        """Count a request that was answered, and log it on `debug`."""
        self.metrics.observe_request(method, path, status, seconds)
        if self._log is not None:
            self._log.debug("request", method=method, path=path, status=status, duration_ms=round(seconds * 1e3, 3))


def tracing_wanted() -> bool:
    """Whether the environment says that spans go anywhere."""
    if os.environ.get("OTEL_SDK_DISABLED", "").strip().lower() == "true":
        return False
    asked = ("OTEL_TRACES_EXPORTER", "OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")
    return any(os.environ.get(name, "").strip() for name in asked)


def content_wanted() -> bool:
    """Whether spans carry what was said; the operator must ask for it."""
    asked = os.environ.get("OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT", "")
    return asked.strip().upper() in ("SPAN_ONLY", "SPAN_AND_EVENT")


def _tool_names(part: Component) -> Collection[str]:
    if isinstance(part, Agent):
        return part.tools
    return part.tool_names if isinstance(part, Conductor) else ()


class RequestTelemetryMiddleware:
    """ASGI middleware that counts each request, logs it on `debug`, and makes its span."""

    def __init__(self, app: ASGIApp, observability: Observability) -> None:
        self._app, self._telemetry = app, observability

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve, and tell of it."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        started, method, path = time.perf_counter(), scope["method"], scope["path"]
        before = get_current()
        span = self._begin(scope, method, path)
        back = _traceresponse(span)
        status = _LEFT

        async def told(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                if back:
                    message["headers"] = [*message.get("headers", ()), (b"traceresponse", back)]
            await send(message)

        try:
            await self._app(scope, receive, told)
        except BaseException as error:
            if isinstance(error, Exception) and status == _LEFT:
                status = 500
            raise
        finally:
            self._telemetry.answered(method, path, status, time.perf_counter() - started)
            if span is not None:
                span.set_attribute(semconv.STATUS_CODE, status)
                if status >= 500:
                    span.set_attribute(semconv.ERROR, str(status))
                    span.set_status(Status(StatusCode.ERROR))
                span.end()
            attach(before)

    def _begin(self, scope: Scope, method: str, path: str) -> Span | None:
        """Go on with the caller's trace, and open the request's span in it."""
        given: dict[str, str] = {}
        resumes = ""
        for name, value in scope["headers"]:
            if name in _TAKEN:
                key, text = name.decode(), value.decode("latin-1")
                # a repeated traceparent is none (Trace Context, 2.2); of the others, the values belong together
                given[key] = (
                    "" if key in given and name == _PARENT else f"{given[key]},{text}" if key in given else text
                )
            elif name == _RESUMES:
                resumes = value.decode("latin-1")
        context = propagate.extract(given) if given else Context()
        recorder = self._telemetry.recorder
        if recorder is None or path in _UNTRACED:
            attach(context)
            return None
        route = self._telemetry.metrics.route(path)
        attributes = {
            semconv.METHOD: method,
            semconv.URL_PATH: path[:_LONGEST_PATH],
            semconv.URL_SCHEME: scope.get("scheme", "http"),
        }
        if route != UNKNOWN:
            attributes[semconv.ROUTE] = route
        name = method if route == UNKNOWN else f"{method} {route}"
        span: Span = recorder.start(name, context, SpanKind.SERVER, attributes)
        if resumes:
            link = get_current_span(_PROPAGATOR.extract({"traceparent": resumes}, Context())).get_span_context()
            if link.is_valid:
                context = set_value(RESUMED, Link(link, {semconv.RESUMES: True}), context)
        attach(set_span_in_context(span, context))
        return span


_PROPAGATOR = TraceContextTextMapPropagator()


def _traceresponse(span: Span | None) -> bytes | None:
    """The header that tells a caller which trace its request became part of (Trace Context Level 2)."""
    if span is None:
        return None
    context = span.get_span_context()
    return f"00-{context.trace_id:032x}-{context.span_id:016x}-{context.trace_flags & 3:02x}".encode()
