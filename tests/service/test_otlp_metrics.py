"""Metrics over OTLP, as a collector receives them."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
)
from tests.service.support import Serve

from podwright import Agent, FunctionModel, Usage, Workflow
from podwright.errors import ConfigurationError, ModelError
from podwright.testing import ModelRequest, ModelResponse, ToolCall
from podwright_service.otel_variables import exporter_names


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
        found = [
            point
            for own, point in self.points[name]
            if labels.items() <= own.items()
        ]
        return sum(
            point.sum
            if hasattr(point, "bucket_counts")
            else getattr(point, point.WhichOneof("value"))
            for point in found
        )


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
    assert (
        collector.sum(
            "gen_ai.client.token.usage", **{"gen_ai.token.type": "input"}
        )
        == 20
    )
    assert (
        collector.sum(
            "gen_ai.client.token.usage", **{"gen_ai.token.type": "output"}
        )
        == 10
    )
    assert collector.sum("gen_ai.invoke_agent.inference_calls") == 2
    assert collector.sum("gen_ai.invoke_agent.tool_calls") == 1
    labels = {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "offline",
        "gen_ai.request.model": "function",
    }
    durations = [
        own for own, _ in collector.points["gen_ai.client.operation.duration"]
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
