"""What the kit tells where spans, metrics and usage are not what was expected."""

from __future__ import annotations

import gzip
import re
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from podwright.result import ExecutionResult
from podwright.usage import Usage
from podwright_service.testing import (
    Metrics,
    RunLimits,
    SpanCollector,
    assert_counted,
    assert_spans,
    assert_usage,
    assert_within,
)

USED = Usage(600, 400, model_calls=2, tool_calls=1, cost=0.00125)
RAN = ExecutionResult("x", [], 1500.0, USED)

SCRAPED = """\
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
    """A metric is the sum of the samples that have the labels; nothing counted is 0, and a wrong name is told."""
    metrics = Metrics(SCRAPED)
    assert metrics.get("podwright_tokens_total", type="input") == 600
    assert metrics.get("podwright_tokens_total", type="input", model="a") == 500
    assert metrics.get("podwright_tokens_total", model="c") == 0
    assert metrics.get("podwright_unpriced_model_calls_total") == 0
    assert metrics.get("podwright_run_duration_seconds_count") == 3
    assert len(metrics.samples) == 11
    with pytest.raises(AssertionError, match=r"no metric 'podwright_token_total'. Did you mean 'podwright_tokens_tot"):
        metrics.get("podwright_token_total")


def test_usage() -> None:
    """Usage is compared field by field, money to a billionth of a dollar, and all that differs is told at once."""
    assert_usage(RAN, input_tokens=600, output_tokens=400, cost=0.0012500000001)
    assert_usage(Usage(cost=None), cost=None)
    with pytest.raises(AssertionError, match=r"model_calls is 2, not 3; cost is 0.00125, not 0.00126"):
        assert_usage(RAN, input_tokens=600, model_calls=3, cost=0.00126)
    with pytest.raises(AssertionError, match="cost is None, not 0"):
        assert_usage(Usage(cost=None), cost=0.0)
    with pytest.raises(AttributeError):
        assert_usage(RAN, tokens=3)


def test_limits() -> None:
    """A run is within limits that it reaches; beyond, or where a price is unknown, it is told which it broke."""
    assert_within(RAN, RunLimits(wall_time=1.5, model_calls=2, tokens=1000, cost=0.00125))
    with pytest.raises(AssertionError, match=r"wall_time is 1.5, more than 1; tokens is 1000, more than 999"):
        assert_within(RAN, RunLimits(wall_time=1, tokens=999, cost=1))
    unpriced = ExecutionResult("x", [], 0.0, Usage(cost=None, unpriced_model_calls=2))
    assert_within(unpriced, RunLimits(tokens=1))
    with pytest.raises(AssertionError, match="cost is unknown, for 2 model calls"):
        assert_within(unpriced, RunLimits(cost=1))


def test_counted() -> None:
    """Counters are compared by how far they grew."""
    assert_counted(RAN, Metrics(SCRAPED))
    assert_counted(Usage(), Metrics(SCRAPED), Metrics(SCRAPED))
    grown = Metrics(SCRAPED.replace(" 500.0", " 600.0").replace("0.00125", "0.00135"))
    assert_counted(Usage(100, cost=0.0001), grown, Metrics(SCRAPED))
    with pytest.raises(
        AssertionError, match=r"'input'} grew by 700, not 600; podwright_cost_usd_total grew by 0.00135"
    ):
        assert_counted(RAN, grown)


@pytest.fixture
def collector() -> Iterator[SpanCollector]:
    with SpanCollector() as started:
        yield started


def exported(*spans: tuple[str, str, str], **attributes: str) -> bytes:
    """An export request of spans: name, id and parent."""
    request: Any = ExportTraceServiceRequest()
    resource = request.resource_spans.add()
    resource.resource.attributes.add(key="service.name").value.string_value = "shop"
    scope = resource.scope_spans.add()
    for name, id_, parent in spans:
        span = scope.spans.add(name=name, span_id=bytes([int(id_)] * 8), trace_id=bytes([int(id_) // 10] * 16), kind=1)
        if parent:
            span.parent_span_id = bytes([int(parent)] * 8)
        for key, value in attributes.items():
            span.attributes.add(key=key.replace("__", ".")).value.string_value = value
        span.attributes.add(key="list").value.array_value.values.add().int_value = 7
    return request.SerializeToString()


def send(collector: SpanCollector, body: bytes, **headers: str) -> int:
    return httpx.post(f"{collector.url}/v1/traces", content=body, headers=headers).status_code


def test_spans_are_read(collector: SpanCollector) -> None:
    """Spans arrive with names, ids, attributes and their process, zipped or not."""
    send(collector, exported(("run", "10", "")))
    send(
        collector,
        gzip.compress(exported(("tool", "11", "10"), gen_ai__tool__name="add")),
        **{"content-encoding": "gzip"},
    )
    [run, tool] = collector.spans
    assert (tool.parent, tool.trace, run.parent) == (run.id, run.trace, "")
    assert tool.attributes == {"gen_ai.tool.name": "add", "list": [7]}
    assert tool.resource == {"service.name": "shop"}
    assert [span.name for span in collector.path(tool)] == ["run", "tool"]
    assert collector.named("tool") is tool
    assert assert_spans(collector, "run > tool", gen_ai__tool__name="add") == [tool]


def test_the_tree(collector: SpanCollector) -> None:
    """The tree has a line for each span, indented, whatever the order in which they came."""
    send(collector, exported(("inner", "12", "11"), ("outer", "11", "10"), ("run", "10", ""), ("other", "20", "")))
    assert collector.tree().splitlines() == ["  run", "    outer", "      inner", "  other"]
    assert collector.tree(collector.named("other").trace) == "  other"


def test_whole_traces(collector: SpanCollector) -> None:
    """A span is waited for until all that it is in has come."""
    send(collector, exported(("tool", "11", "10")))
    with pytest.raises(AssertionError, match=r"Waited 0.1 s for spans. What arrived:\n  tool"):
        collector.wait_for("tool", within=0.1)
    send(collector, exported(("run", "10", "")))
    assert collector.wait_for("tool").name == "tool"


def test_missing_spans(collector: SpanCollector) -> None:
    """Spans that did not come, or stand elsewhere, or have other attributes, are told with all that came."""
    send(collector, exported(("run", "10", ""), ("tool", "11", "10"), a__b="1"))
    for path, attributes in (("tool > run", {}), ("run > tool > x", {}), ("run > tool", {"a__b": "2"})):
        with pytest.raises(AssertionError, match=rf"There are no spans '{re.escape(path)}'(.|\n)*    tool"):
            assert_spans(collector, path, within=0.05, **attributes)
    with pytest.raises(AssertionError, match="There is no span 'x'"):
        collector.named("x")


def test_a_collector_that_refuses() -> None:
    """A collector can refuse, and counts what it was sent."""
    with SpanCollector(503) as collector:
        assert send(collector, exported(("run", "10", ""))) == 503
    assert (collector.requests, collector.spans) == (1, [])
