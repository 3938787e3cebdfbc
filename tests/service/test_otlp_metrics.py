"""Metrics over OTLP, as a collector receives them."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
)
from prometheus_client.parser import text_string_to_metric_families
from tests.helpers import ROOT
from tests.service.exported_metrics import counted
from tests.service.support import Serve

from podwright import (
    Agent,
    FunctionModel,
    RunLimits,
    Usage,
    Workflow,
    events,
)
from podwright.errors import ConfigurationError, ModelError
from podwright.messages.messages import Message
from podwright.testing import ModelRequest, ModelResponse, ToolCall
from podwright_service.observability.metrics.otlp import OTLPMetrics
from podwright_service.observability.metrics.subscriber import Metrics, Part
from podwright_service.observability.metrics.table import TABLE
from podwright_service.otel_variables import exporter_names

Values = dict[frozenset[tuple[str, str]], float]
"""Values of series by their labels."""


class Collector:
    """Keeps the last value of each series, and the resources."""

    def __init__(self) -> None:
        self.points: dict[str, list[tuple[dict[str, str], Any]]] = {}
        self.resources: list[dict[str, str]] = []

    def add(self, body: bytes) -> None:
        message: Any = ExportMetricsServiceRequest.FromString(body)
        for group in message.resource_metrics:
            self.resources.append(texts(group.resource.attributes))
            for scope in group.scope_metrics:
                for metric in scope.metrics:
                    data = getattr(metric, metric.WhichOneof("data"))
                    self.points[metric.name] = [
                        (texts(point.attributes), point)
                        for point in data.data_points
                    ]

    def sum(self, name: str, **labels: str) -> float:
        """The sum over the series of a counter or a histogram that have these labels."""
        return sum(
            value
            for own, value in self.values(name).items()
            if labels.items() <= dict(own).items()
        )

    def values(self, name: str) -> Values:
        """The value of each series, of a histogram its sum."""
        return {
            frozenset(labels.items()): value_of(point)
            for labels, point in self.points[name]
        }


def value_of(point: Any) -> float:
    if hasattr(point, "bucket_counts"):
        return point.sum
    return getattr(point, point.WhichOneof("value"))


def texts(attributes: Any) -> dict[str, str]:
    return {
        attribute.key: attribute.value.string_value for attribute in attributes
    }


@pytest.fixture
def collector(monkeypatch: pytest.MonkeyPatch) -> Iterator[Collector]:
    """A collector to which services export their metrics at their end."""
    received = Collector()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            received.add(self.rfile.read(int(self.headers["content-length"])))
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_: Any) -> None:
            """Say nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        monkeypatch.setenv("OTEL_METRICS_EXPORTER", "otlp")
        monkeypatch.setenv(
            "OTEL_EXPORTER_OTLP_METRICS_ENDPOINT",
            f"http://127.0.0.1:{server.server_port}/v1/metrics",
        )
        yield received
        server.shutdown()


def look() -> str:
    """Look."""
    return "seen"


def model(request: ModelRequest) -> ModelResponse:
    if request.messages[-1].text == "fail":
        raise ModelError("no")
    usage = Usage(10, 5, cost=0.5)
    if request.tools and request.messages[-1].role == "user":
        return ModelResponse(
            tool_calls=(ToolCall.of("look"),),
            usage=usage,
            finish_reason="tool_calls",
        )
    return ModelResponse("done", usage=usage)


def test_own_metrics_and_those_of_the_conventions(
    collector: Collector, served: Any
) -> None:
    """Both have the same sums as a scrape, and series with 0 are there as well."""
    guide = Agent("guide", "Help.", FunctionModel(model), tools=[look])
    with served(Workflow("flow", [guide])) as client:
        assert client.post("/run", json={"input": "x"}).status_code == 200
        assert client.post("/run", json={"input": "fail"}).status_code == 502
    assert (
        collector.sum("podwright.cost.usd", root="flow", component="guide")
        == 1.0
    )
    assert collector.sum("podwright.tokens", type="input") == 20
    assert collector.sum("podwright.runs", status="ok") == 1
    assert collector.sum("podwright.runs", status="cancelled") == 0
    assert collector.sum("podwright.runs.in.progress", component="flow") == 0
    assert collector.sum("podwright.run.cost.usd") == 1.0
    usage = "gen_ai.client.inference.usage"
    assert collector.sum(f"{usage}.input_tokens") == 20
    assert collector.sum(f"{usage}.output_tokens") == 10
    assert collector.sum("gen_ai.invoke_agent.inference_calls") == 2
    assert collector.sum("gen_ai.invoke_agent.tool_calls") == 1
    labels = {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "offline",
        "gen_ai.request.model": "function",
    }
    durations = [
        own for own, _ in collector.points["gen_ai.client.inference.duration"]
    ]
    assert labels in durations
    assert {**labels, "error.type": "model_failed"} in durations
    assert {
        "gen_ai.invoke_agent.duration",
        "gen_ai.execute_tool.duration",
    } <= collector.points.keys()
    resource = collector.resources[0]
    assert (resource["service.name"], resource["podwright.component.kind"]) == (
        "flow",
        "workflow",
    )
    assert len(resource["service.instance.id"]) == 36


def test_by_default_metrics_are_only_scraped(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An endpoint for traces alone sends no metrics."""
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:9")
    assert exporter_names("METRICS") == []
    for value in ("none", "prometheus", " "):
        monkeypatch.setenv("OTEL_METRICS_EXPORTER", value)
        assert exporter_names("METRICS") == []
    monkeypatch.setenv("OTEL_METRICS_EXPORTER", "otlp, console")
    assert exporter_names("METRICS") == ["otlp", "console"]
    monkeypatch.setenv("OTEL_SDK_DISABLED", "true")
    assert exporter_names("METRICS") == []


def test_an_unknown_exporter(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A misspelt exporter stops the start, and is not ignored."""
    monkeypatch.setenv("OTEL_METRICS_EXPORTER", "oltp")
    with pytest.raises(ConfigurationError, match="OTEL_METRICS_EXPORTER"):
        serve(Agent("a", "Do.", "offline/echo"))


def test_every_metric_of_the_table_is_documented_scraped_and_exported(
    collector: Collector,
) -> None:
    """A row is in `docs/telemetry.md` with its labels; its values in a scrape are those that a collector receives."""
    export = OTLPMetrics(["otlp"], {})
    metrics = counted(export)
    export.start()
    export.shutdown()
    scraped = scraped_values(metrics)
    documented = documented_metrics()
    assert documented.keys() == {metric.name for metric in TABLE}
    for metric in TABLE:
        common = {"component", "kind"}
        if metric.is_convention:
            common = {"gen_ai.operation.name"}
        assert documented[metric.name] == set(metric.labels) - common
        assert collector.points[metric.instrument]
        if metric.is_convention:
            continue
        values = collector.values(metric.instrument)
        if metric.kind != "histogram":
            assert values == scraped[metric.name]
            continue
        # a histogram without values has series in a scrape only
        counts = scraped[f"{metric.name}_count"]
        sums = scraped[f"{metric.name}_sum"]
        assert values == {key: sums[key] for key in counts if counts[key]}
    assert not [name for name in scraped if name.startswith(("gen_ai", "mcp"))]


def documented_metrics() -> dict[str, set[str]]:
    """The metrics in `docs/telemetry.md` with their further labels."""
    rows = [
        line.split("|")
        for line in (ROOT / "docs" / "telemetry.md").read_text().splitlines()
        if line.startswith(("| `podwright_", "| `gen_ai.", "| `mcp."))
    ]
    return {
        name.strip(" `"): set(re.findall(r"[\w.]+", labels))
        for _, name, labels, *_ in rows
    }


def scraped_values(metrics: Metrics) -> dict[str, Values]:
    """The value of each series in a scrape."""
    values: dict[str, Values] = {}
    text = metrics.render("")[0].decode()
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            labels = frozenset(sample.labels.items())
            values.setdefault(sample.name, {})[labels] = sample.value
    return values


def test_workflows_and_streams_over_otlp(
    collector: Collector, served: Any
) -> None:
    """A workflow is an operation of its own; a streamed answer has its first chunk and the time between chunks."""
    guide = Agent("guide", "Help.", "offline/echo")
    with served(Workflow("flow", [guide])) as client:
        body = {"input": "one two three four five six"}
        assert client.post("/run/stream", json=body).status_code == 200
    operations = {
        (labels["gen_ai.operation.name"], labels["gen_ai.agent.name"])
        for labels, _ in collector.points["gen_ai.invoke_agent.duration"]
    }
    assert operations == {
        ("invoke_workflow", "flow"),
        ("invoke_agent", "guide"),
    }
    agents = {
        labels["gen_ai.agent.name"]
        for labels, _ in collector.points["gen_ai.invoke_agent.inference_calls"]
    }
    assert agents == {"guide"}
    model = {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "offline",
        "gen_ai.request.model": "echo",
    }
    name = "gen_ai.client.inference"
    ((labels, first),) = collector.points[f"{name}.time_to_first_chunk"]
    assert (labels, first.count) == (model, 1)
    ((labels, further),) = collector.points[f"{name}.time_per_output_chunk"]
    assert labels == model
    assert further.count > 1


def test_a_limit_that_is_infinite_is_not_exported(
    collector: Collector, caplog: pytest.LogCaptureFixture
) -> None:
    """OTLP has no infinite values; leaving them out needs no warning."""
    export = OTLPMetrics(["otlp"], {})
    Metrics("a", "agent", limits=RunLimits(tokens=1000), export=export)
    export.start()
    export.shutdown()
    ((labels, point),) = collector.points["podwright.runs.limit"]
    assert (labels["limit"], value_of(point)) == ("tokens", 1000)
    assert not caplog.records


def test_times_of_chunks_over_otlp(collector: Collector) -> None:
    """They are the times between the pieces of one call, also of calls at the same time, and are those of its model."""
    export = OTLPMetrics(["otlp"], {})
    metrics = Metrics(
        "guide",
        "agent",
        components=[Part("guide", "agent")],
        models={"openai/a"},
        export=export,
    )
    count = metrics.subscriber()
    request = ModelRequest("openai/a", (Message("user", "Hi"),))
    for run_id in ("x", "y"):
        count(
            events.ModelCallStarted(
                component="guide", run_id=run_id, request=request
            )
        )
    for run_id, at in (("x", 1.0), ("y", 1.5), ("x", 3.0), ("y", 1.25)):
        count(events.Token(component="guide", run_id=run_id, at=at))
    for run_id in ("x", "y", "y"):
        count(
            events.ModelCallFinished(
                component="guide", run_id=run_id, model="openai/a"
            )
        )
    export.start()
    export.shutdown()
    name = "gen_ai.client.inference.time_per_output_chunk"
    ((labels, point),) = collector.points[name]
    assert (point.count, point.sum) == (2, 2.0)
    assert labels["gen_ai.request.model"] == "a"


def test_pieces_of_a_function_are_no_chunks(collector: Collector) -> None:
    """A function that yields its answer reports a model call of its own: the times between its pieces are not those."""
    export = OTLPMetrics(["otlp"], {})
    metrics = Metrics("guide", "agent", models={"openai/a"}, export=export)
    count = metrics.subscriber()
    for at in (1.0, 2.0):
        count(events.Token(component="guide", run_id="x", at=at))
    count(events.ModelCallStarted(component="guide", run_id="x"))
    count(events.Token(component="guide", run_id="x", at=3.0))
    count(
        events.ModelCallFinished(
            component="guide", run_id="x", model="openai/a"
        )
    )
    export.start()
    export.shutdown()
    assert not collector.points.get(
        "gen_ai.client.inference.time_per_output_chunk"
    )


def test_times_of_chunks_end_with_their_run(collector: Collector) -> None:
    """A call that did not end leaves nothing behind."""
    export = OTLPMetrics(["otlp"], {})
    metrics = Metrics("guide", "agent", models={"openai/a"}, export=export)
    count = metrics.subscriber()
    request = ModelRequest("openai/a", (Message("user", "Hi"),))
    count(
        events.ModelCallStarted(component="guide", run_id="x", request=request)
    )
    for at in (1.0, 2.0):
        count(events.Token(component="guide", run_id="x", at=at))
    count(events.RunFailed(component="guide", kind="agent", run_id="x"))
    count(
        events.ModelCallFinished(
            component="guide", run_id="x", model="openai/a"
        )
    )
    export.start()
    export.shutdown()
    assert not collector.points.get(
        "gen_ai.client.inference.time_per_output_chunk"
    )
