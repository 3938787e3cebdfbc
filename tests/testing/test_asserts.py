"""The assertions of the kit, and what it makes of metrics and spans."""

from __future__ import annotations

import gzip
from collections.abc import Iterator
from typing import Any

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
)
from tests.helpers import plain_http

from podwright.messages.usage import Usage
from podwright.run.result import ExecutionResult
from podwright_service.testing import (
    Metrics,
    RunLimits,
    SpanCollector,
    assert_counted,
    assert_spans,
    assert_usage,
    assert_within,
)

USAGE = Usage(600, 400, model_calls=2, tool_calls=1, cost=0.00125)
RESULT = ExecutionResult("x", [], 1500.0, USAGE)

SCRAPE = """\
# HELP podwright_tokens_total Tokens.
# TYPE podwright_tokens_total counter
podwright_tokens_total{component="c",kind="agent",model="a",type="input"} 500.0
podwright_tokens_total{component="c",kind="agent",model="b",type="input"} 100.0
podwright_tokens_total{component="c",kind="agent",model="b",type="output"} 400.0
# TYPE podwright_model_calls_total counter
podwright_model_calls_total{component="c",kind="agent",model="b",provider="x",status="ok"} 2.0
podwright_model_calls_total{component="c",kind="agent",model="b",provider="x",status="failed"} 7.0
# TYPE podwright_tool_calls_total counter
podwright_tool_calls_total{component="c",kind="agent",tool="add",status="ok"} 1.0
# TYPE podwright_unpriced_model_calls_total counter
# TYPE podwright_cost_usd_total counter
podwright_cost_usd_total{component="c",kind="agent",model="b"} 0.00125
# TYPE podwright_run_duration_seconds histogram
podwright_run_duration_seconds_bucket{le="0.1"} 1.0
podwright_run_duration_seconds_bucket{le="+Inf"} 3.0
podwright_run_duration_seconds_count 3.0
podwright_run_duration_seconds_sum 1.5
"""


def test_metrics() -> None:
    """A metric is the sum of the samples with the labels; one without samples is 0, an unknown name an error."""
    metrics = Metrics(SCRAPE)
    assert metrics.get("podwright_tokens_total", type="input") == 600
    assert metrics.get("podwright_tokens_total", type="input", model="a") == 500
    assert metrics.get("podwright_tokens_total", model="c") == 0
    assert metrics.get("podwright_unpriced_model_calls_total") == 0
    assert metrics.get("podwright_run_duration_seconds_count") == 3
    assert len(metrics.samples) == 11
    with pytest.raises(AssertionError, match="podwright_tokens_total"):
        metrics.get("podwright_token_total")


def test_usage() -> None:
    """Usage is compared by field, money to a billionth of a dollar, and every difference is reported."""
    assert_usage(
        RESULT, input_tokens=600, output_tokens=400, cost=0.0012500000001
    )
    assert_usage(Usage(cost=None), cost=None)
    with pytest.raises(AssertionError, match=r"model_calls.*cost"):
        assert_usage(RESULT, input_tokens=600, model_calls=3, cost=0.00126)
    with pytest.raises(AssertionError, match="cost"):
        assert_usage(Usage(cost=None), cost=0.0)
    with pytest.raises(AttributeError):
        assert_usage(RESULT, tokens=3)


def test_limits() -> None:
    """A run may reach its limits; every limit beyond is reported, as is a cost that is unknown."""
    assert_within(
        RESULT,
        RunLimits(wall_time=1.5, model_calls=2, tokens=1000, cost=0.00125),
    )
    with pytest.raises(AssertionError, match=r"wall_time.*tokens"):
        assert_within(RESULT, RunLimits(wall_time=1, tokens=999, cost=1))
    unpriced = ExecutionResult(
        "x", [], 0.0, Usage(cost=None, unpriced_model_calls=2)
    )
    assert_within(unpriced, RunLimits(tokens=1))
    with pytest.raises(AssertionError, match="cost"):
        assert_within(unpriced, RunLimits(cost=1))


def test_counted() -> None:
    """Counters are compared by their increase."""
    assert_counted(RESULT, Metrics(SCRAPE))
    assert_counted(Usage(), Metrics(SCRAPE), Metrics(SCRAPE))
    later = Metrics(
        SCRAPE.replace(" 500.0", " 600.0").replace("0.00125", "0.00135")
    )
    assert_counted(Usage(100, cost=0.0001), later, Metrics(SCRAPE))
    with pytest.raises(
        AssertionError, match=r"input.*700.*podwright_cost_usd_total"
    ):
        assert_counted(RESULT, later)


@pytest.fixture
def collector() -> Iterator[SpanCollector]:
    with SpanCollector() as started:
        yield started


def export(*spans: tuple[str, str, str], **attributes: str) -> bytes:
    """An export request with spans given by name, id and parent id."""
    request: Any = ExportTraceServiceRequest()
    resource = request.resource_spans.add()
    resource.resource.attributes.add(
        key="service.name"
    ).value.string_value = "shop"
    scope = resource.scope_spans.add()
    for name, id_, parent in spans:
        span = scope.spans.add(
            name=name,
            span_id=bytes([int(id_)] * 8),
            trace_id=bytes([int(id_) // 10] * 16),
            kind=1,
        )
        if parent:
            span.parent_span_id = bytes([int(parent)] * 8)
        for key, value in attributes.items():
            span.attributes.add(
                key=key.replace("__", ".")
            ).value.string_value = value
        span.attributes.add(
            key="list"
        ).value.array_value.values.add().int_value = 7
    return request.SerializeToString()


def send(collector: SpanCollector, body: bytes, **headers: str) -> int:
    return plain_http.post(
        f"{collector.url}/v1/traces", content=body, headers=headers
    ).status_code


def test_spans_are_read(collector: SpanCollector) -> None:
    """Spans arrive with names, ids, attributes and resource, compressed or not."""
    send(collector, export(("run", "10", "")))
    body = gzip.compress(export(("tool", "11", "10"), gen_ai__tool__name="add"))
    send(collector, body, **{"content-encoding": "gzip"})
    [run, tool] = collector.spans
    assert (tool.parent, tool.trace, run.parent) == (run.id, run.trace, "")
    assert tool.attributes == {"gen_ai.tool.name": "add", "list": [7]}
    assert tool.resource == {"service.name": "shop"}
    assert [span.name for span in collector.path(tool)] == ["run", "tool"]
    assert collector.named("tool") is tool
    assert assert_spans(collector, "run > tool", gen_ai__tool__name="add") == [
        tool
    ]


def test_the_tree(collector: SpanCollector) -> None:
    """The tree has a line for each span, indented, whatever the order of arrival."""
    send(
        collector,
        export(
            ("inner", "12", "11"),
            ("outer", "11", "10"),
            ("run", "10", ""),
            ("other", "20", ""),
        ),
    )
    assert collector.tree().splitlines() == [
        "  run",
        "    outer",
        "      inner",
        "  other",
    ]
    assert collector.tree(collector.named("other").trace) == "  other"


def test_a_span_is_awaited_with_its_whole_trace(
    collector: SpanCollector,
) -> None:
    """A span counts once all its ancestors have arrived."""
    send(collector, export(("tool", "11", "10")))
    with pytest.raises(AssertionError, match="tool"):
        collector.wait_for("tool", within=0.1)
    send(collector, export(("run", "10", "")))
    assert collector.wait_for("tool").name == "tool"


@pytest.mark.parametrize(
    ("path", "attributes"),
    [("tool > run", {}), ("run > tool > x", {}), ("run > tool", {"a__b": "2"})],
)
def test_missing_spans(
    collector: SpanCollector, path: str, attributes: dict[str, str]
) -> None:
    """Spans that are missing, nested otherwise, or have other attributes are reported with the received ones."""
    send(collector, export(("run", "10", ""), ("tool", "11", "10"), a__b="1"))
    with pytest.raises(AssertionError, match=rf"'{path}'(.|\n)*    tool"):
        assert_spans(collector, path, within=0.05, **attributes)
    with pytest.raises(AssertionError, match="'x'"):
        collector.named("x")


def test_a_collector_that_rejects() -> None:
    """A collector can reject spans, and counts the requests."""
    with SpanCollector(503) as collector:
        assert send(collector, export(("run", "10", ""))) == 503
    assert (collector.requests, collector.spans) == (1, [])
