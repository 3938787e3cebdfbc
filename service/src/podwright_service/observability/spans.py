"""Spans that cost little, for the tracer that the service calls a few times in each request.

OpenTelemetry's own do the same: they check and copy each value that they are given, since anybody may give it. Here,
what is common is written down as it comes and encoded when it ends; what is rare becomes one of OpenTelemetry's own.
The sampler is asked where a trace enters the process: the standard ones decide alike for all of its spans.
"""

from __future__ import annotations

import random
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from opentelemetry.attributes import BoundedAttributes
from opentelemetry.context import Context
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import Event, ReadableSpan, SpanLimits, TracerProvider
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import (
    Link,
    NonRecordingSpan,
    SpanContext,
    SpanKind,
    Status,
    StatusCode,
    TraceFlags,
    get_current_span,
)
from opentelemetry.trace import Span as AnySpan

T = TypeVar("T")
Attributes = Mapping[str, Any]

_SAMPLED = TraceFlags(TraceFlags.SAMPLED)
_SAMPLED_ROOT = TraceFlags(TraceFlags.SAMPLED | TraceFlags.RANDOM_TRACE_ID)
_UNSET = Status()


class Recorder:
    """Starts spans.

    Args:
        provider: Says what makes them, and which traces are kept.
        scope: Which part of it makes them.
        deliver: Take those that have ended.
    """

    def __init__(
        self,
        provider: TracerProvider,
        scope: InstrumentationScope,
        deliver: Sequence[Callable[[Span], None]],
    ) -> None:
        self.scope, self.limits, self.deliver = scope, SpanLimits(), tuple(deliver)
        self._provider, self._sampler = provider, provider.sampler

    @property
    def resource(self) -> Resource:
        """What makes them; in a process that was forked it is another."""
        return self._provider.resource

    def start(
        self,
        name: str,
        within: Context,
        kind: SpanKind = SpanKind.INTERNAL,
        attributes: dict[str, Any] | None = None,
        links: tuple[Link, ...] = (),
    ) -> AnySpan:
        """Start a span, as a child of the one in a context. The attributes are its own from then on."""
        above = get_current_span(within).get_span_context()
        said = attributes or {}
        if above.is_valid and not above.is_remote:
            trace, parent, flags, state = above.trace_id, above, above.trace_flags, above.trace_state
        else:
            parent = above if above.is_valid else None
            trace = above.trace_id if parent else random.getrandbits(128) or 1
            decided: Any = self._sampler.should_sample(within, trace, name, kind, attributes, links)
            state, said = decided.trace_state, dict[str, Any](decided.attributes or ())
            sampled = _SAMPLED_ROOT if parent is None or parent.trace_flags.random_trace_id else _SAMPLED
            flags = sampled if decided.decision.is_sampled() else TraceFlags(sampled & ~TraceFlags.SAMPLED)
        context = SpanContext(trace, random.getrandbits(64) or 1, False, flags, state)
        if not flags & TraceFlags.SAMPLED:
            return NonRecordingSpan(context)
        return Span(self, name, context, parent, kind, said, links)


class Span(AnySpan):
    """A span that is kept."""

    __slots__ = (
        "attributes",
        "context",
        "ended",
        "events",
        "kind",
        "links",
        "name",
        "parent",
        "recorder",
        "started",
        "status",
    )

    def __init__(
        self,
        recorder: Recorder,
        name: str,
        context: SpanContext,
        parent: SpanContext | None,
        kind: SpanKind,
        attributes: dict[str, Any],
        links: tuple[Link, ...],
    ) -> None:
        self.recorder, self.name, self.context, self.parent, self.kind = recorder, name, context, parent, kind
        self.attributes, self.links, self.events, self.status = attributes, links, (), _UNSET
        self.started, self.ended = time.time_ns(), 0

    def get_span_context(self) -> SpanContext:
        """Which span this is."""
        return self.context

    def is_recording(self) -> bool:
        """Whether what is said of it is kept."""
        return not self.ended

    def set_attribute(self, key: str, value: Any) -> None:
        """Say something of it."""
        if not self.ended:
            self.attributes[key] = value

    def set_attributes(self, attributes: Attributes) -> None:
        """Say more of it."""
        if not self.ended:
            self.attributes.update(attributes)

    def update_name(self, name: str) -> None:
        """Call it something else."""
        if not self.ended:
            self.name = name

    def add_link(self, context: SpanContext, attributes: Attributes | None = None) -> None:
        """Point to another span."""
        if not self.ended:
            self.links = (*self.links, Link(context, attributes))

    def add_event(self, name: str, attributes: Attributes | None = None, timestamp: int | None = None) -> None:
        """Say that something happened, now or at a time in nanoseconds since 1970."""
        if not self.ended:
            kept = self._bounded(attributes, self.recorder.limits.max_event_attributes)
            self.events = (*self.events, Event(name, kept, timestamp))

    def record_exception(
        self,
        exception: BaseException,
        attributes: Attributes | None = None,
        timestamp: int | None = None,
        escaped: bool = False,
    ) -> None:
        """Say that an exception was raised, as the conventions write it."""
        facts = {
            "exception.type": f"{type(exception).__module__}.{type(exception).__qualname__}".removeprefix("builtins."),
            "exception.message": str(exception),
            "exception.stacktrace": "".join(traceback.format_exception(exception)),
            "exception.escaped": str(escaped),
        }
        self.add_event("exception", {**facts, **(attributes or {})}, timestamp)

    def set_status(self, status: Status | StatusCode, description: str | None = None) -> None:
        """Say how it went; that it went well is final."""
        new = status if isinstance(status, Status) else Status(status, description)
        if not (self.ended or new.is_unset or self.status.status_code is StatusCode.OK):
            self.status = new

    def end(self, end_time: int | None = None) -> None:
        """End it, now or at a time in nanoseconds since 1970, and hand it on."""
        if not self.ended:
            self.ended = end_time or time.time_ns()
            for deliver in self.recorder.deliver:
                deliver(self)

    def readable(self) -> ReadableSpan:
        """The span as one of OpenTelemetry's own, within the limits that the environment sets."""
        limits = self.recorder.limits
        return ReadableSpan(
            _sound(self.name),
            self.context,
            self.parent,
            self.recorder.resource,
            self._bounded(self.attributes, limits.max_span_attributes),
            _last(self.events, limits.max_events),
            _last(self.links, limits.max_links),
            self.kind,
            status=self.status,
            start_time=self.started,
            end_time=self.ended,
            instrumentation_scope=self.recorder.scope,
        )

    def _bounded(self, attributes: Attributes | None, most: int | None) -> BoundedAttributes:
        sound = {_sound(key): _sound(value) for key, value in (attributes or {}).items()}
        return BoundedAttributes(most, sound, max_value_len=self.recorder.limits.max_span_attribute_length)


def _last(said: tuple[T, ...], most: int | None) -> tuple[T, ...]:
    return said if most is None else said[max(0, len(said) - most) :]


def _sound(value: Any) -> Any:
    """A text that can be encoded: a vendor's may hold half of a surrogate pair, which fails a whole batch."""
    return value.encode(errors="replace").decode() if type(value) is str else value
