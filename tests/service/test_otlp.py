"""Our spans and their encoder against OpenTelemetry's own."""

from __future__ import annotations

from typing import Any, cast

import pytest
from google.protobuf.json_format import MessageToDict
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.context import Context
from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
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

from podwright_service.observability import otlp
from podwright_service.observability.otlp import Encoded, encode
from podwright_service.observability.spans import Recorder, Span

REMOTE = SpanContext(7, 9, True, TraceFlags(1))
STATED = SpanContext(7, 9, True, TraceFlags(1), TraceState([("vendor", "x")]))
LOCAL = SpanContext(7, 9, False, TraceFlags(1))
DROPPED = SpanContext(7, 9, True, TraceFlags(0))

texts = st.text(max_size=300)
plain = texts | st.booleans() | st.integers(-(2**70), 2**70) | st.floats(allow_nan=False)
values = plain | st.none() | st.binary() | st.lists(texts).map(tuple) | st.lists(texts)
values |= st.lists(st.booleans() | st.integers(0, 1)) | st.dictionaries(texts, plain, max_size=2)
attributes = st.dictionaries(st.sampled_from(["a", "b", "gen_ai.x"]) | texts, values)


def recorder(ended: list[Span], **environment: str) -> Recorder:
    with pytest.MonkeyPatch.context() as patch:
        for name, value in environment.items():
            patch.setenv(name, value)
        scope = InstrumentationScope("ours", "1")
        return Recorder(TracerProvider(shutdown_on_exit=False), scope, [ended.append])


def inside(parent: SpanContext | None) -> Context:
    return set_span_in_context(NonRecordingSpan(parent), Context()) if parent else Context()


def of_ours(draw: Any) -> list[Span]:
    ended: list[Span] = []
    ours = recorder(ended, **draw(st.sampled_from([{}, {"OTEL_SPAN_ATTRIBUTE_COUNT_LIMIT": "2"}])))
    for _ in range(draw(st.integers(1, 3))):
        links = (Link(REMOTE, {"k": 1}),) if draw(st.booleans()) else ()
        parent = draw(st.sampled_from([None, REMOTE, STATED, LOCAL]))
        span = ours.start(draw(texts), inside(parent), draw(st.sampled_from(SpanKind)), draw(attributes), links)
        span.set_attributes(draw(attributes))
        if draw(st.booleans()):
            span.add_event("retry", {"wait": 1.5})
        status = draw(st.sampled_from(StatusCode))
        span.set_status(Status(status, "why" if status is StatusCode.ERROR else None))
        span.end()
    return ended


def of_others() -> ReadableSpan:
    exporter, provider = InMemorySpanExporter(), TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    provider.get_tracer("a tool's").start_span("its own", attributes={"k": [1, 2]}).end()
    return exporter.get_finished_spans()[0]


def flat(data: bytes) -> list[Any]:
    """Each span with its resource and scope."""
    return sorted(
        (
            (MessageToDict(span), MessageToDict(scope.scope), scope.schema_url, MessageToDict(one.resource))
            for one in ExportTraceServiceRequest.FromString(data).resource_spans
            for scope in one.scope_spans
            for span in scope.spans
        ),
        key=lambda one: one[0]["spanId"],
    )


@pytest.mark.filterwarnings("ignore::UserWarning")
@given(st.data())
def test_it_says_what_the_exporter_says(data: Any) -> None:
    """Spans of all kinds, with all values that attributes may have, are the same messages, and so are tools' own."""
    spans = of_ours(data.draw)
    other = [of_others()] if data.draw(st.booleans()) else []
    theirs = encode_spans([*other, *(span.readable() for span in spans)]).SerializeToString()
    ours = encode([*other, *map(Encoded, spans)]).SerializePartialToString()
    assert flat(ours) == flat(theirs)


def test_half_a_character_in_one_span_loses_none() -> None:
    """What cannot be encoded is replaced where it stands, whether the span is common or rare."""
    ended: list[Span] = []
    ours = recorder(ended)
    for rare in (False, True):
        span = ours.start("name \ud800", Context(), attributes={"said \udfff": "\ud800 of a vendor"})
        if rare:
            span.set_status(Status(StatusCode.ERROR, "why"))
        span.end()
    for span, *_ in flat(encode([Encoded(one) for one in ended]).SerializePartialToString()):
        assert span["name"] == "name ?"
        assert span["attributes"] == [{"key": "said ?", "value": {"stringValue": "? of a vendor"}}]


def test_long_texts_are_not_kept() -> None:
    """What is kept of spans to write the next ones faster is bounded: whole conversations are not part of it."""
    ended: list[Span] = []
    ours = recorder(ended)
    kept = otlp._attribute.cache_info().currsize
    for number in range(20):
        ours.start("chat", Context(), attributes={"said": f"{number} " + "x" * 1000}).end()
    spans = [span for span, *_ in flat(encode([Encoded(one) for one in ended]).SerializePartialToString())]
    assert {span["attributes"][0]["value"]["stringValue"] for span in spans} == {
        one.attributes["said"] for one in ended
    }
    assert otlp._attribute.cache_info().currsize == kept


@pytest.mark.parametrize("most", [0, 1, 9])
def test_events_and_links_are_as_many_as_the_environment_allows(most: int) -> None:
    """The last ones are kept."""
    ended: list[Span] = []
    ours = recorder(ended, OTEL_SPAN_EVENT_COUNT_LIMIT=str(most), OTEL_SPAN_LINK_COUNT_LIMIT=str(most))
    span = ours.start("whole", Context())
    for number in range(3):
        span.add_event(f"event {number}")
        span.add_link(SpanContext(7, 9 + number, True, TraceFlags(1)))
    span.end()
    told = ended[0].readable()
    assert [event.name for event in told.events] == ["event 0", "event 1", "event 2"][max(0, 3 - most) :]
    assert [link.context.span_id for link in told.links] == [9, 10, 11][max(0, 3 - most) :]


def test_a_span_goes_on_with_the_trace_that_it_is_in() -> None:
    """Children have the trace of their parent and its decision; the sampler is asked where a trace comes in."""
    ended: list[Span] = []
    ours = recorder(ended)
    root = ours.start("root", Context())
    child = ours.start("child", set_span_in_context(root, Context()))
    assert child.get_span_context().trace_id == root.get_span_context().trace_id
    assert cast("Span", child).parent == root.get_span_context()
    assert ours.start("from afar", inside(STATED)).get_span_context().trace_state == STATED.trace_state
    left_out = ours.start("left out", inside(DROPPED))
    below = ours.start("below", set_span_in_context(left_out, Context()))
    for span in (left_out, below):
        assert not span.is_recording()
        assert span.get_span_context().trace_id == DROPPED.trace_id
        span.end()
    never = recorder(ended, OTEL_TRACES_SAMPLER="always_off")
    assert not never.start("never", Context()).is_recording()
    assert ended == []


def test_what_ended_is_said() -> None:
    """After its end a span takes no more, and a second end is none."""
    ended: list[Span] = []
    span = recorder(ended).start("whole", Context(), attributes={"a": 1})
    span.set_status(StatusCode.OK)
    span.set_status(StatusCode.ERROR, "late")
    span.end(5)
    span.end(9)
    span.set_attribute("b", 2)
    span.set_attributes({"c": 3})
    span.add_event("late")
    span.add_link(REMOTE)
    span.update_name("other")
    assert len(ended) == 1
    one = ended[0]
    assert (one.name, one.attributes, one.events, one.links, one.ended) == ("whole", {"a": 1}, (), (), 5)
    assert one.status.status_code is StatusCode.OK


def test_an_exception_is_told_as_opentelemetry_tells_it() -> None:
    """A tool that records an exception on the current span finds it there, as on any other."""
    ended: list[Span] = []
    exporter, provider = InMemorySpanExporter(), TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    for span in (recorder(ended).start("ours", Context()), provider.get_tracer("x").start_span("theirs")):
        try:
            raise LookupError("gone")
        except LookupError as error:
            span.record_exception(error, {"more": 1}, timestamp=7)
        span.end()
    ours, theirs = ended[0].readable().events[0], exporter.get_finished_spans()[0].events[0]
    assert (ours.name, ours.timestamp, dict(ours.attributes or {})) == (
        theirs.name,
        theirs.timestamp,
        dict(theirs.attributes or {}),
    )
