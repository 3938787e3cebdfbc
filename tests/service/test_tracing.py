"""The traces of a service, as a collector receives them."""

from __future__ import annotations

import contextlib
import json
import signal
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Literal

import httpx
import pytest
from prometheus_client.openmetrics.parser import (
    text_string_to_metric_families as read_openmetrics,
)
from tests.helpers import NO_AUTHORITIES
from tests.mcp_stub import MCPStub
from tests.service.support import Address, Command, Process, check_end

from podwright_service.testing import Span, SpanCollector

TRACE = "0af7651916cd43dd8448eb211c80319c"
CALLER = f"00-{TRACE}-b7ad6b7169203331-01"
UNSAMPLED_CALLER = f"00-{TRACE}-b7ad6b7169203331-00"
SERVER = 2
"""The kind of server spans in OTLP."""

COMPONENTS = '''
import os

from opentelemetry import trace
from podwright import Agent, MCPServer, ScriptedModel
from podwright.testing import ToolCall


def look(place: str) -> str:
    """Look somewhere."""
    with trace.get_tracer("tool").start_as_current_span("own span of the tool"):
        return f"nothing in {place}"


looker = Agent("looker", "Look.", ScriptedModel(ToolCall.of("look", place="secret cellar"), "done"), tools=[look])
echo = Agent("echo", "Go.", model="offline/echo")
reader = Agent.from_blueprint(
    {
        "name": "reader", "instructions": "Read.", "config": {"model": "offline/echo"},
        "mcp": [{"server": "files", "tools": ["read_file"]}],
    },
    mcp={"files": MCPServer(os.environ.get("FILES_URL", "http://127.0.0.1:9/mcp"))},
    model=ScriptedModel(ToolCall.of("read_file"), "done"),
)
'''


@pytest.fixture
def collector() -> Iterator[SpanCollector]:
    with SpanCollector() as collector:
        yield collector


class Serving:
    """A component of `COMPONENTS`, served by the command in a process of its own."""

    def __init__(self, process: Process, client: httpx.Client) -> None:
        self.process = process
        self.client = client

    def run(self, **options: Any) -> httpx.Response:
        return self.client.post("/run", json={"input": "the moon"}, **options)

    def stop(self) -> list[str]:
        """Stop the service with a signal, and return its log lines."""
        self.process.send_signal(signal.SIGTERM)
        return check_end(self.process).splitlines()


@pytest.fixture
def serving(
    command: Command, address: Address, tmp_path: Path
) -> Iterator[Callable[..., Serving]]:
    """Serves a component by name, with environment variables."""
    (tmp_path / "traced.py").write_text(COMPONENTS)
    with contextlib.ExitStack() as stack:

        def serve(name: str, **variables: str) -> Serving:
            process = command(
                "serve", f"traced:{name}", "--host", "127.0.0.1", "--port", "0",
                cwd=tmp_path, PYTHONPATH=str(tmp_path), **variables,
            )  # fmt: skip
            client = httpx.Client(
                verify=NO_AUTHORITIES, base_url=address(process), timeout=60
            )
            return Serving(process, stack.enter_context(client))

        yield serve


def requests_in(spans: list[Span]) -> list[Span]:
    return [span for span in spans if span.kind == SERVER]


def test_a_run_is_one_trace_from_the_caller_to_the_tools_own_span(
    serving: Callable[..., Serving], collector: SpanCollector
) -> None:
    """The caller's trace continues through request, run and tool call; probes and scrapes have no span."""
    service = serving("looker", **collector.variables(collector.url))
    response = service.run(headers={"traceparent": CALLER})
    assert response.status_code == 200, response.text
    for path in ("/health", "/ready", "/metrics"):
        assert service.client.get(path).status_code == 200
    service.stop()
    spans = {span.name: span for span in collector.spans}
    request = spans["POST /run"]
    assert {span.trace for span in collector.spans} == {TRACE}
    assert (request.parent, request.kind) == (CALLER.split("-")[2], SERVER)
    assert request.attributes["http.route"] == "/run"
    assert request.attributes["http.response.status_code"] == 200
    assert spans["invoke_agent looker"].parent == request.id
    assert spans["execute_tool look"].parent == spans["invoke_agent looker"].id
    assert spans["own span of the tool"].parent == spans["execute_tool look"].id
    assert len(collector.spans) == 6
    assert response.headers["traceresponse"] == f"00-{TRACE}-{request.id}-01"
    assert not [
        span.name
        for span in collector.spans
        if "secret cellar" in str(span.attributes)
    ]


@pytest.mark.parametrize("era", ["modern", "legacy"])
def test_a_call_of_an_mcp_server_is_one_span(
    serving: Callable[..., Serving],
    collector: SpanCollector,
    era: Literal["modern", "legacy"],
) -> None:
    """The package `mcp` adds no spans of its own, and the server is told of none that is not exported."""
    with MCPStub(tools=["read_file"], era=era) as stub:
        service = serving(
            "reader", **collector.variables(collector.url), FILES_URL=stub.url
        )
        response = service.run(headers={"traceparent": CALLER})
        assert response.status_code == 200, response.text
        service.stop()
    exported = {span.id: span.name for span in collector.spans}
    assert sorted(exported.values()) == [
        "POST /run",
        "chat scripted",
        "chat scripted",
        "execute_tool read_file",
        "invoke_agent reader",
    ]
    parents = [exported.get(each.split("-")[2]) for each in stub.parents]
    assert set(parents) == {"invoke_agent reader", "execute_tool read_file"}


def test_the_resource_names_the_component(
    serving: Callable[..., Serving], collector: SpanCollector
) -> None:
    """The attributes of the environment take precedence over those of the component, in a worker too."""
    service = serving(
        "echo", **collector.variables(collector.url), PODWRIGHT_WORKERS="2",
        OTEL_SERVICE_NAME="chosen", OTEL_RESOURCE_ATTRIBUTES="service.version=7,team=news",
    )  # fmt: skip
    assert service.run().status_code == 200
    # before the stop, which a worker that is starting may miss
    (request,) = requests_in(collector.wait(requests_in))
    service.stop()
    resource = request.resource
    assert (
        resource["service.name"],
        resource["service.version"],
        resource["team"],
    ) == (
        "chosen",
        "7",
        "news",
    )
    assert resource["podwright.component.kind"] == "agent"
    assert len(resource["podwright.blueprint.digest"]) >= 64


def test_the_sampling_decision_of_the_caller(
    serving: Callable[..., Serving], collector: SpanCollector
) -> None:
    """By default the caller's decision is kept, and `traceresponse` has it."""
    service = serving("echo", **collector.variables(collector.url))
    unsampled, sampled = (
        service.run(headers={"traceparent": caller})
        for caller in (UNSAMPLED_CALLER, CALLER)
    )
    service.stop()
    assert [
        response.headers["traceresponse"][-2:]
        for response in (unsampled, sampled)
    ] == [
        "00",
        "01",
    ]
    assert len(requests_in(collector.spans)) == 1
    assert len(collector.spans) == 3


@pytest.mark.parametrize("listens", [True, False], ids=["silent", "refusing"])
def test_a_broken_collector_does_not_affect_runs(
    serving: Callable[..., Serving], listens: bool
) -> None:
    """Runs succeed, spans beyond the queue are dropped, and the service stops."""
    with socket.create_server(("127.0.0.1", 0), backlog=128) as collector:
        url = f"http://127.0.0.1:{collector.getsockname()[1]}"
        if not listens:
            collector.close()
        queue = {
            "OTEL_BSP_MAX_QUEUE_SIZE": "64",
            "OTEL_BSP_MAX_EXPORT_BATCH_SIZE": "32",
        }
        service = serving("echo", OTEL_EXPORTER_OTLP_ENDPOINT=url, **queue)
        assert all(service.run().status_code == 200 for _ in range(100))
        lines = [json.loads(line) for line in service.stop()]
    assert len([line for line in lines if line["event"] == "run"]) == 100
    assert "the moon" not in json.dumps(lines)


@pytest.mark.parametrize(
    "variables",
    [{}, {"OTEL_SDK_DISABLED": "true"}],
    ids=["unset", "disabled"],
)
def test_without_tracing_there_are_no_spans(
    serving: Callable[..., Serving],
    collector: SpanCollector,
    variables: dict[str, str],
) -> None:
    """Without an endpoint, or with the SDK disabled, nothing is exported, and responses have no `traceresponse`."""
    endpoint = (
        {"OTEL_EXPORTER_OTLP_ENDPOINT": collector.url} if variables else {}
    )
    service = serving("echo", **endpoint, **variables)
    assert (
        "traceresponse"
        not in service.run(headers={"traceparent": CALLER}).headers
    )
    service.stop()
    assert collector.requests == 0


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc"),
        ("OTEL_BSP_MAX_QUEUE_SIZE", "8"),  # less than the batch size
    ],
)
def test_an_unsupported_variable_stops_the_start(
    command: Command, tmp_path: Path, variable: str, value: str
) -> None:
    """The service ends with a configuration error instead of a traceback."""
    (tmp_path / "traced.py").write_text(COMPONENTS)
    variables = {
        "OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:4317",
        variable: value,
    }
    process = command(
        "serve",
        "traced:echo",
        "--port",
        "0",
        cwd=tmp_path,
        PYTHONPATH=str(tmp_path),
        **variables,
    )
    assert "configuration_invalid" in check_end(process, 1)


def test_exemplars_name_the_trace(
    serving: Callable[..., Serving], collector: SpanCollector
) -> None:
    """In OpenMetrics, durations of runs, calls and requests have the id of the trace that they were observed in."""
    service = serving("looker", **collector.variables(collector.url))
    trace = service.run().headers["traceresponse"].split("-")[1]
    text = service.client.get(
        "/metrics",
        headers={"accept": "application/openmetrics-text;version=1.0.0"},
    ).text
    exemplars = {
        sample.name.removesuffix("_bucket"): sample.exemplar.labels
        for family in read_openmetrics(text)
        for sample in family.samples
        if sample.exemplar
    }
    names = [
        f"podwright_{part}_duration_seconds"
        for part in ("run", "model_call", "tool_call", "http_request")
    ]
    assert exemplars == {name: {"trace_id": trace} for name in names}
