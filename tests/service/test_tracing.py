"""Traces of a real service, as a collector receives them."""

from __future__ import annotations

import contextlib
import json
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as read_openmetrics

from podwright_service.testing import Span, SpanCollector

Command = Callable[..., subprocess.Popen[str]]
Address = Callable[[subprocess.Popen[str]], str]

TRACE = "0af7651916cd43dd8448eb211c80319c"
CALLER = f"00-{TRACE}-b7ad6b7169203331-01"
UNSAMPLED_CALLER = f"00-{TRACE}-b7ad6b7169203331-00"
SERVER, CLIENT = 2, 3
"""Kinds of spans, as OTLP numbers them."""

COMPONENTS = '''
from opentelemetry import trace
from podwright import Agent, AgentStep, ApprovalStep, ScriptedModel, Workflow
from podwright.testing import ToolCall


def look(place: str) -> str:
    """Look somewhere."""
    with trace.get_tracer("tool").start_as_current_span("own span of the tool"):
        return f"nothing in {place}"


looker = Agent("looker", "Look.", ScriptedModel(ToolCall.of("look", place="secret cellar"), "done"), tools=[look])
echo = Agent("echo", "Go.", model="offline/echo")
halting = Workflow("halting", steps=[AgentStep(echo, "l"), ApprovalStep("Go on?", "ok"), AgentStep(echo, "r")])
'''


@pytest.fixture
def collector() -> Iterator[SpanCollector]:
    with SpanCollector() as collector:
        yield collector


class Serving:
    """A component of `COMPONENTS`, served by the command in a process of its own."""

    def __init__(self, process: subprocess.Popen[str], client: httpx.Client) -> None:
        self.process, self.client = process, client

    def run(self, **options: Any) -> httpx.Response:
        return self.client.post("/run", json={"input": "the moon"}, **options)

    def stop(self) -> list[str]:
        """Stop the service in good order; its log lines."""
        self.process.send_signal(signal.SIGTERM)
        output, _ = self.process.communicate(timeout=60)
        assert self.process.returncode == 0, output
        return output.splitlines()


@pytest.fixture
def serving(command: Command, address: Address, tmp_path: Path) -> Iterator[Callable[..., Serving]]:
    """Serves a component by name, with environment variables."""
    (tmp_path / "traced.py").write_text(COMPONENTS)
    with contextlib.ExitStack() as stack:

        def serve(name: str, **variables: str) -> Serving:
            process = command(
                "serve", f"traced:{name}", "--host", "127.0.0.1", "--port", "0",
                cwd=tmp_path, PYTHONPATH=str(tmp_path), **variables,
            )  # fmt: skip
            client = httpx.Client(base_url=address(process), timeout=30)
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
    assert not [span.name for span in collector.spans if "secret cellar" in str(span.attributes)]


@pytest.mark.parametrize("workers", ["1", "2"])
def test_the_resource_names_the_component(
    serving: Callable[..., Serving], collector: SpanCollector, workers: str
) -> None:
    """In one process and in several, the environment takes precedence over the component's own attributes."""
    service = serving(
        "echo", **collector.variables(collector.url), PODWRIGHT_WORKERS=workers,
        OTEL_SERVICE_NAME="chosen", OTEL_RESOURCE_ATTRIBUTES="service.version=7,team=news",
    )  # fmt: skip
    assert service.run().status_code == 200
    service.stop()
    (request,) = requests_in(collector.wait(requests_in))
    resource = request.resource
    assert (resource["service.name"], resource["service.version"], resource["team"]) == ("chosen", "7", "news")
    assert resource["podwright.component.kind"] == "agent"
    assert len(resource["podwright.blueprint.digest"]) >= 64


def test_a_resumed_run_is_linked_to_the_stopped_one(serving: Callable[..., Serving], collector: SpanCollector) -> None:
    """The `traceresponse` of the stopped run, sent as `Podwright-Resumes`, becomes a link."""
    service = serving("halting", **collector.variables(collector.url))
    stopped = service.run()
    assert stopped.status_code == 409
    problem, traceresponse = stopped.json(), stopped.headers["traceresponse"]
    body = {"inputs": problem["context"], "resume_path": problem["resume_path"]}
    for header in (traceresponse, "invalid"):
        response = service.client.post("/run", json=body, headers={"podwright-resumes": header})
        assert response.status_code == 200, response.text
    service.stop()
    runs = [span for span in collector.spans if span.name == "invoke_workflow halting"]
    (first,) = [span for span in runs if span.attributes["podwright.run.status"] == "paused"]
    assert sorted(span.links for span in runs) == [[], [], [(first.trace, first.parent)]]
    assert traceresponse.split("-")[1:3] == [first.trace, first.parent]
    assert len({span.trace for span in runs}) == 3


def test_the_sampler_of_the_environment_decides(serving: Callable[..., Serving], collector: SpanCollector) -> None:
    """By default a caller's decision is kept; `traceresponse` says which it was."""
    service = serving("echo", **collector.variables(collector.url))
    unsampled, sampled = (service.run(headers={"traceparent": caller}) for caller in (UNSAMPLED_CALLER, CALLER))
    service.stop()
    assert [response.headers["traceresponse"][-2:] for response in (unsampled, sampled)] == ["00", "01"]
    assert len(requests_in(collector.spans)) == 1
    assert len(collector.spans) == 3


def test_a_service_without_sampled_spans_exports_nothing(
    serving: Callable[..., Serving], collector: SpanCollector
) -> None:
    """`OTEL_TRACES_SAMPLER` is read by the SDK."""
    service = serving("echo", **collector.variables(collector.url), OTEL_TRACES_SAMPLER="always_off")
    assert service.run(headers={"traceparent": CALLER}).headers["traceresponse"].endswith("-00")
    service.stop()
    assert collector.requests == 0


@contextlib.contextmanager
def silent() -> Iterator[str]:
    """The address of a server that accepts connections and never responds."""
    with socket.create_server(("127.0.0.1", 0), backlog=128) as listening:
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"


@contextlib.contextmanager
def refusing() -> Iterator[str]:
    """An address at which nothing listens."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        url = f"http://127.0.0.1:{listening.getsockname()[1]}"
    yield url


@contextlib.contextmanager
def failing() -> Iterator[str]:
    """The address of a collector that answers every request with 503."""
    with SpanCollector(503) as collector:
        yield collector.url


@pytest.mark.parametrize("broken", [silent, refusing, failing])
def test_a_broken_collector_costs_no_run_anything(
    serving: Callable[..., Serving], broken: Callable[[], contextlib.AbstractContextManager[str]]
) -> None:
    """Runs are answered, spans beyond the queue are dropped, and the service stops within seconds."""
    with broken() as url:
        service = serving(
            "echo", OTEL_EXPORTER_OTLP_ENDPOINT=url, OTEL_BSP_MAX_QUEUE_SIZE="64", OTEL_BSP_MAX_EXPORT_BATCH_SIZE="32"
        )
        assert all(service.run().status_code == 200 for _ in range(100))
        started = time.monotonic()
        lines = [json.loads(line) for line in service.stop()]
        assert time.monotonic() - started < 15
    assert len([line for line in lines if line["event"] == "run"]) == 100
    assert "the moon" not in json.dumps(lines)


@pytest.mark.parametrize(
    "variables",
    [{}, {"OTEL_SDK_DISABLED": "true"}, {"OTEL_TRACES_EXPORTER": "none"}],
    ids=["unset", "disabled", "none"],
)
def test_no_spans_are_made_unless_the_environment_asks(
    serving: Callable[..., Serving], collector: SpanCollector, variables: dict[str, str]
) -> None:
    """Without an exporter, or with the SDK disabled, no span is exported and no header names one."""
    endpoint = {"OTEL_EXPORTER_OTLP_ENDPOINT": collector.url} if variables else {}
    service = serving("echo", **endpoint, **variables)
    assert "traceresponse" not in service.run(headers={"traceparent": CALLER}).headers
    service.stop()
    assert collector.requests == 0


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("OTEL_TRACES_EXPORTER", "zipkin"),
        ("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc"),
        ("OTEL_BSP_MAX_QUEUE_SIZE", "8"),  # less than the batch size
    ],
)
def test_an_unsupported_variable_stops_the_start(command: Command, tmp_path: Path, variable: str, value: str) -> None:
    """The service ends with a configuration error instead of a traceback."""
    (tmp_path / "traced.py").write_text(COMPONENTS)
    variables = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:4317", variable: value}
    process = command("serve", "traced:echo", "--port", "0", cwd=tmp_path, PYTHONPATH=str(tmp_path), **variables)
    output, _ = process.communicate(timeout=60)
    assert process.returncode == 1
    assert "configuration_invalid" in output
    assert "Traceback" not in output


def test_exemplars_name_the_trace(serving: Callable[..., Serving], collector: SpanCollector) -> None:
    """In OpenMetrics, durations of runs, calls and requests have the id of the trace that they were observed in."""
    service = serving("looker", **collector.variables(collector.url))
    trace = service.run().headers["traceresponse"].split("-")[1]
    text = service.client.get("/metrics", headers={"accept": "application/openmetrics-text;version=1.0.0"}).text
    exemplars = {
        sample.name.removesuffix("_bucket"): sample.exemplar.labels
        for family in read_openmetrics(text)
        for sample in family.samples
        if sample.exemplar
    }
    names = [f"podwright_{part}_duration_seconds" for part in ("run", "model_call", "tool_call", "http_request")]
    assert exemplars == {name: {"trace_id": trace} for name in names}


def test_every_worker_exports_its_spans(serving: Callable[..., Serving], collector: SpanCollector) -> None:
    """With several processes, each run is exported once, whichever worker served it."""
    service = serving("echo", **collector.variables(collector.url), PODWRIGHT_WORKERS="2")
    url = str(service.client.base_url)
    traces = [httpx.post(f"{url}/run", json={"input": "x"}).headers["traceresponse"] for _ in range(20)]
    service.stop()
    collector.wait(lambda spans: len(requests_in(spans)) == len(traces))
    assert sorted(span.trace for span in requests_in(collector.spans)) == sorted(t.split("-")[1] for t in traces)
