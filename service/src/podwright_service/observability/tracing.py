"""The trace context of requests and runs, and what of it goes to models and remote components."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Generator, Mapping
from contextvars import ContextVar
from typing import TYPE_CHECKING
from urllib.parse import quote

from opentelemetry import baggage, propagate, trace
from opentelemetry.context import Context, attach, detach, get_current
from opentelemetry.propagators.textmap import (
    CarrierT,
    Getter,
    Setter,
    TextMapPropagator,
    default_getter,
    default_setter,
)
from opentelemetry.trace import Link
from opentelemetry.trace.propagation.tracecontext import (
    TraceContextTextMapPropagator,
)
from typing_extensions import override

from podwright.mcp.request_context import TRACE_CONTEXTS
from podwright.messages.headers import CALLER, ROOT
from podwright.models.http import client as model_http
from podwright.remote.remote import PROPAGATORS
from podwright_service.observability import semconv
from podwright_service.origin import NOWHERE, SESSION, USER, current_origin
from podwright_service.otel_variables import has_no_propagators

if TYPE_CHECKING:
    from podwright.run.run import Run

resumed_run: ContextVar[Link | None] = ContextVar(
    "podwright_resumed_run", default=None
)
"""The link from the current request's run to the stopped run that it resumes."""

_traceparent = TraceContextTextMapPropagator()


_continued_for: set[object] = set()
"""For whom the current trace goes on."""


def continue_traces(owner: object) -> None:
    """Have the current trace go on at all servers that are called, until it ends for each owner."""
    _continued_for.add(owner)
    if inject_context not in PROPAGATORS:
        PROPAGATORS.append(inject_context)
        model_http.PROPAGATORS.append(trace_headers)
        TRACE_CONTEXTS.append(current_traceparent)


def end_traces(owner: object) -> None:
    """End what `continue_traces` has begun for an owner."""
    _continued_for.discard(owner)
    if not _continued_for and inject_context in PROPAGATORS:
        PROPAGATORS.remove(inject_context)
        model_http.PROPAGATORS.remove(trace_headers)
        TRACE_CONTEXTS.remove(current_traceparent)


class _NoPropagation(TextMapPropagator):
    """Reads and sends no trace context."""

    @override
    def extract(
        self,
        carrier: CarrierT,
        context: Context | None = None,
        getter: Getter[CarrierT] = default_getter,
    ) -> Context:
        return context or Context()

    @override
    def inject(
        self,
        carrier: CarrierT,
        context: Context | None = None,
        setter: Setter[CarrierT] = default_setter,
    ) -> None:
        pass

    @property
    @override
    def fields(self) -> set[str]:
        return set()


def adopt_propagators() -> None:
    """Have `OTEL_PROPAGATORS=none` work.

    The propagator that OpenTelemetry makes of it extracts None, with which every request would fail.
    """
    if has_no_propagators():
        propagate.set_global_textmap(_NoPropagation())


def capture_content() -> bool:
    """Whether spans carry messages, tool arguments and tool results (GenAI conventions); off by default."""
    mode = os.environ.get(
        "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT", ""
    )
    return mode.strip().upper() in ("SPAN_ONLY", "SPAN_AND_EVENT")


def trace_headers() -> dict[str, str]:
    """Headers that continue the current trace at a model's server; see `podwright.models.http.client.PROPAGATORS`."""
    traceparent = current_traceparent()
    if traceparent is None:
        return {}
    return {"traceparent": traceparent}


def inject_context(run: Run) -> dict[str, str]:
    """Headers that continue the current trace in a remote component, and say where its run comes from.

    See `podwright.remote.remote.PROPAGATORS`.
    """
    origin = current_origin.get()
    context = get_current()
    # those that are trusted here are in the body of the request; a caller's own may be trusted elsewhere
    for name in (USER, SESSION):
        context = baggage.remove_baggage(name, context)
    for name, value in origin.members.items():
        context = baggage.set_baggage(name, value, context)
    headers: dict[str, str] = {}
    propagate.inject(headers, context)
    if origin.root:
        headers[ROOT] = quote(origin.root)
    if origin is not NOWHERE:
        # an empty one too: a caller without a name is not the component that calls for it
        headers[CALLER] = origin.caller
    return headers


def current_traceparent() -> str | None:
    """The current span as the value of a `traceparent` header (W3C Trace Context); None outside of a span."""
    span = trace.get_current_span().get_span_context()
    if not span.is_valid:
        return None
    return f"00-{span.trace_id:032x}-{span.span_id:016x}-{span.trace_flags:02x}"


def note_blueprint(digest: str) -> None:
    """Put the digest of the blueprint that is performed on the current span; the resource has that of the service."""
    span = trace.get_current_span()
    span.set_attribute(semconv.BLUEPRINT_DIGEST, digest)


def link_to(traceparent: str | None) -> Link | None:
    """A link to the span that a `traceparent` value names; None if the value is missing or invalid."""
    if not traceparent:
        return None
    context = _traceparent.extract({"traceparent": traceparent}, Context())
    span_context = trace.get_current_span(context).get_span_context()
    if not span_context.is_valid:
        return None
    return Link(span_context, {semconv.RESUMES: True})


@contextlib.contextmanager
def trace_of_caller(headers: Mapping[str, str]) -> Generator[None]:
    """Make what begins within this context a part of the trace that the headers of a request name."""
    extracted = propagate.extract(headers, Context())
    span = trace.get_current_span(extracted)
    # without the caller's baggage
    token = attach(trace.set_span_in_context(span, Context()))
    try:
        yield
    finally:
        detach(token)


@contextlib.contextmanager
def trace_of(traceparent: str | None) -> Generator[None]:
    """Make what begins within this context a part of the trace that a `traceparent` value names."""
    token = attach(
        _traceparent.extract({"traceparent": traceparent or ""}, Context())
    )
    try:
        yield
    finally:
        detach(token)
