"""Our encoder of spans against the exporter's own."""

from __future__ import annotations

from typing import Any

import pytest
from google.protobuf.json_format import MessageToDict
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import (
    Link,
    NonRecordingSpan,
    SpanContext,
    SpanKind,
    Status,
    StatusCode,
    TraceFlags,
    TraceState,
    set_span_in_context,
)

from podwright_service.otlp import encode

REMOTE = SpanContext(7, 9, True, TraceFlags(1))
STATED = SpanContext(7, 9, True, TraceFlags(1), TraceState([("vendor", "x")]))
LOCAL = SpanContext(7, 9, False, TraceFlags(1))

texts = st.text(max_size=300)
plain = texts | st.booleans() | st.integers(-(2**70), 2**70) | st.floats(allow_nan=False)
values = plain | st.none() | st.binary() | st.lists(texts) | st.lists(st.booleans() | st.integers(0, 1))
values |= st.dictionaries(texts, plain, max_size=2)
attributes = st.dictionaries(st.sampled_from(["a", "b", "gen_ai.x"]) | texts, values)


def made(draw: Any) -> list[ReadableSpan]:
    exporter, provider = InMemorySpanExporter(), TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    for number in range(draw(st.integers(1, 4))):
        parent = draw(st.sampled_from([None, REMOTE, STATED, LOCAL]))
        span = provider.get_tracer(f"scope {number % 2}", "1").start_span(
            draw(texts),
            set_span_in_context(NonRecordingSpan(parent)) if parent else None,
            draw(st.sampled_from(SpanKind)),
            draw(attributes),
            [Link(REMOTE, {"k": 1})] if draw(st.booleans()) else (),
        )
        if draw(st.booleans()):
            span.add_event("retry", {"wait": 1.5})
        status = draw(st.sampled_from(StatusCode))
        span.set_status(Status(status, "why" if status is StatusCode.ERROR else None))
        span.end()
    return list(exporter.get_finished_spans())


def flat(request: Any) -> list[Any]:
    """Each span with its resource and scope."""
    return sorted(
        (
            (MessageToDict(span), MessageToDict(scope.scope), scope.schema_url, MessageToDict(one.resource))
            for one in request.resource_spans
            for scope in one.scope_spans
            for span in scope.spans
        ),
        key=lambda one: one[0]["spanId"],
    )


@pytest.mark.filterwarnings("ignore::UserWarning")
@given(st.data())
def test_it_says_what_the_exporter_says(data: Any) -> None:
    """Spans of all kinds, with all values that attributes may have, are the same messages."""
    spans = made(data.draw)
    request = encode(spans)
    assert flat(type(request).FromString(request.SerializeToString())) == flat(encode_spans(spans))
