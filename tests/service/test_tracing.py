"""Spans as a real collector receives them from a real service."""

from __future__ import annotations

import contextlib
import importlib.util
import json
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as read_openmetrics

HERE = Path(__file__).parent


def _collector_module() -> Any:
    # tests are imported by file, so one module finds another beside it by its path
    spec = importlib.util.spec_from_file_location("podwright_test_collector", HERE / "collector.py")
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules.setdefault(spec.name, importlib.util.module_from_spec(spec))
    spec.loader.exec_module(module)
    return module


collecting = _collector_module()
Command = Callable[..., subprocess.Popen[str]]
Address = Callable[[subprocess.Popen[str]], str]

COMPONENTS = '''
from opentelemetry import trace
from podwright import Agent, AgentStep, ApprovalStep, Conductor, ParallelStep, ScriptedModel, Workflow
from podwright.errors import ModelUnavailableError
from podwright.testing import ToolCall
from podwright.models.retries import Retries


def look(place: str) -> str:
    """Look somewhere."""
    with trace.get_tracer("mine").start_as_current_span("my own"):
        return f"nothing in {place}"


def scripted(*answers):
    model = ScriptedModel(*answers)
    model.retries = Retries(first_wait=0.0)
    return model


looker = Agent("looker", "Look.", scripted(ToolCall.of("look", place="secret cellar"), "done"), tools=[look])
retrying = Agent("retrying", "Try.", scripted(ModelUnavailableError("down"), "up"))


def consult(topic: str) -> str:
    """Ask another agent, from the thread that a tool runs in."""
    return Agent("consulted", "Help.", model="offline/echo").run(topic)


asking = Agent("asking", "Ask.", scripted(ToolCall.of("consult", topic="x"), "done"), tools=[consult])
left, right = Agent("left", "Go.", model="offline/echo"), Agent("right", "Go.", model="offline/echo")
forked = Workflow("forked", steps=[ParallelStep([[AgentStep(left, "l")], [AgentStep(right, "r")]], "both")])
halting = Workflow("halting", steps=[AgentStep(left, "l"), ApprovalStep("Go on?", "ok"), AgentStep(right, "r")])
'''


@contextlib.contextmanager
def serving(command: Command, address: Address, tmp_path: Path, name: str, **variables: str) -> Any:
    (tmp_path / "traced.py").write_text(COMPONENTS)
    process = command(
        "serve", f"traced:{name}", "--host", "127.0.0.1", "--port", "0",
        cwd=tmp_path, PYTHONPATH=str(tmp_path), OTEL_BSP_SCHEDULE_DELAY="50", **variables,
    )  # fmt: skip
    with httpx.Client(base_url=address(process), timeout=30) as client:
        yield client, process


def ended(process: subprocess.Popen[str]) -> tuple[str, float]:
    start = time.monotonic()
    process.send_signal(signal.SIGTERM)
    said, _ = process.communicate(timeout=60)
    return said, time.monotonic() - start


def run(client: httpx.Client, **more: Any) -> httpx.Response:
    return client.post("/run", json={"input": "the moon"}, **more)


def test_a_run_is_one_trace_from_the_caller_to_the_tools_own_span(
    command: Command, address: Address, tmp_path: Path
) -> None:
    """The caller's trace goes on through request, run, model calls and tool call to a span that the tool makes."""
    caller = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    with collecting.collector() as got, serving(
        command, address, tmp_path, "looker", OTEL_EXPORTER_OTLP_ENDPOINT=got.url
    ) as (client, process):  # fmt: skip
        answer = run(client, headers={"traceparent": caller})
        assert answer.status_code == 200, answer.text
        client.get("/health")
        client.get("/metrics")
        ended(process)
        spans = got.wait(lambda spans: any(span.name == "POST /run" for span in spans))
    parent = {span.name: span.parent for span in spans}
    identity = {span.name: span.id for span in spans}
    assert {span.trace for span in spans} == {"0af7651916cd43dd8448eb211c80319c"}
    assert parent["POST /run"] == "b7ad6b7169203331"
    assert parent["invoke_agent looker"] == identity["POST /run"]
    assert parent["execute_tool look"] == identity["invoke_agent looker"]
    assert parent["my own"] == identity["execute_tool look"]
    chats = [span for span in spans if span.attributes.get("gen_ai.operation.name") == "chat"]
    assert [span.parent for span in chats] == [identity["invoke_agent looker"]] * 2
    assert {span.kind for span in chats} == {3}
    assert len(spans) == 6
    assert answer.headers["traceresponse"] == f"00-{spans[0].trace}-{identity['POST /run']}-01"
    usage = answer.headers["podwright-usage"]
    sums = [sum(span.attributes[f"gen_ai.usage.{kind}_tokens"] for span in chats) for kind in ("input", "output")]
    assert usage.startswith(f"input_tokens={sums[0]}, output_tokens={sums[1]}")
    assert not any("secret cellar" in str(span.attributes) for span in spans)
    resource = spans[0].resource
    assert resource["service.name"] == "looker"
    assert resource["podwright.component.kind"] == "agent"
    assert len(resource["podwright.blueprint.digest"]) >= 64


def test_parallel_branches_have_their_own_parents(command: Command, address: Address, tmp_path: Path) -> None:
    """Each branch's run is a child of its own step, and its model call of that run."""
    with collecting.collector() as got, serving(
        command, address, tmp_path, "forked", OTEL_EXPORTER_OTLP_ENDPOINT=got.url, OTEL_SERVICE_NAME="chosen"
    ) as (client, process):  # fmt: skip
        assert run(client).status_code == 200
        ended(process)
        spans = got.wait(lambda spans: any(span.name == "POST /run" for span in spans))
    by_id = {span.id: span for span in spans}
    assert by_id[got.named("invoke_agent left").parent].name == "step l"
    assert by_id[got.named("invoke_agent right").parent].name == "step r"
    assert {by_id[span.parent].name for span in spans if span.name == "chat echo"} == {
        "invoke_agent left",
        "invoke_agent right",
    }
    assert by_id[got.named("step l").parent].name == "step both"
    assert by_id[got.named("step both").parent].name == "invoke_workflow forked"
    assert spans[0].resource["service.name"] == "chosen"


def test_one_span_covers_a_model_call_with_its_tries(command: Command, address: Address, tmp_path: Path) -> None:
    """A call that succeeds in its second try is one span with one event, and content is there when asked for."""
    with collecting.collector() as got, serving(
        command, address, tmp_path, "retrying",
        OTEL_EXPORTER_OTLP_ENDPOINT=got.url, OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT="SPAN_ONLY",
    ) as (client, process):  # fmt: skip
        assert run(client).json() == {"output": "up"}
        ended(process)
        spans = got.wait(lambda spans: any(span.name == "POST /run" for span in spans))
    chats = [span for span in spans if span.attributes.get("gen_ai.operation.name") == "chat"]
    assert [span.events for span in chats] == [["podwright.model_call.retry"]]
    said = json.loads(chats[0].attributes["gen_ai.output.messages"])
    assert said == [{"role": "assistant", "parts": [{"type": "text", "content": "up"}], "finish_reason": "stop"}]
    assert "the moon" in chats[0].attributes["gen_ai.input.messages"]


def test_a_run_that_goes_on_is_linked_to_the_stopped_one(command: Command, address: Address, tmp_path: Path) -> None:
    """The `traceresponse` of the stopped run, sent back as `Podwright-Resumes`, becomes a link."""
    with collecting.collector() as got, serving(
        command, address, tmp_path, "halting", OTEL_EXPORTER_OTLP_ENDPOINT=got.url
    ) as (client, process):  # fmt: skip
        stopped = run(client)
        assert stopped.status_code == 409
        problem, told = stopped.json(), stopped.headers["traceresponse"]
        body = {"inputs": problem["context"], "resume_path": problem["resume_path"]}
        went_on = client.post("/run", json=body, headers={"podwright-resumes": told})
        assert went_on.status_code == 200
        ended(process)
        runs = got.wait(lambda spans: len([one for one in spans if one.name == "POST /run"]) == 2)
    first, second = sorted((one for one in runs if one.name == "invoke_workflow halting"), key=lambda one: one.links)
    assert first.attributes["podwright.run.status"] == "paused"
    assert second.links == [(first.trace, first.parent)]
    assert second.trace != first.trace


def _refusing() -> Any:
    with socket.create_server(("127.0.0.1", 0)) as one:
        return contextlib.nullcontext(f"http://127.0.0.1:{one.getsockname()[1]}")


def _failing(status: int) -> Any:
    @contextlib.contextmanager
    def made() -> Any:
        with collecting.collector(status) as got:
            yield got.url

    return made()


@pytest.mark.parametrize(
    "collector",
    [collecting.silent, _refusing, lambda: _failing(500), lambda: _failing(503)],
    ids=["never answers", "refuses", "500", "503"],
)
def test_a_collector_that_does_not_work_costs_nothing(
    command: Command, address: Address, tmp_path: Path, collector: Any
) -> None:
    """Runs are answered, one line says that spans are lost, and the end waits only some seconds."""
    with collector() as url, serving(
        command, address, tmp_path, "left", OTEL_EXPORTER_OTLP_ENDPOINT=url, OTEL_BSP_MAX_QUEUE_SIZE="64",
        OTEL_BSP_MAX_EXPORT_BATCH_SIZE="32",
    ) as (client, process):  # fmt: skip
        assert all(run(client).status_code == 200 for _ in range(100))
        said, seconds = ended(process)
    assert process.returncode == 0
    assert seconds < 15
    lines = [json.loads(line) for line in said.splitlines()]
    assert len([line for line in lines if line["level"] in ("warning", "error")]) == 1
    assert len([line for line in lines if line["event"] == "run"]) == 100


def told(said: str) -> list[str]:
    lines = [json.loads(line) for line in said.splitlines()]
    return [line["event"] for line in lines if line["level"] != "info" or "Spans" in line["event"]]


class Held(collecting.Collector):
    """A collector that answers when it is let go."""

    def __init__(self) -> None:
        super().__init__()
        self.free = threading.Event()

    def respond(self, request: Any, connection: socket.socket) -> bool:
        self.free.wait()
        return super().respond(request, connection)

    def stop(self) -> None:
        self.free.set()
        super().stop()


def test_spans_that_end_faster_than_they_are_taken_are_told(command: Command, address: Address, tmp_path: Path) -> None:
    """One line says that they are lost, and one that they no longer are."""
    with Held() as got, serving(
        command, address, tmp_path, "left", OTEL_EXPORTER_OTLP_ENDPOINT=got.url, OTEL_EXPORTER_OTLP_TIMEOUT="60",
        OTEL_BSP_MAX_QUEUE_SIZE="64", OTEL_BSP_MAX_EXPORT_BATCH_SIZE="32",
    ) as (client, process):  # fmt: skip
        assert all(run(client).status_code == 200 for _ in range(100))
        got.free.set()
        got.wait(lambda spans: len(spans) >= 64 + 1)
        said, _ = ended(process)
    assert told(said) == [
        "Spans end faster than the collector takes them; beyond 64 that wait they are lost.",
        "Spans are delivered to the collector again.",
    ]


def test_spans_that_are_given_up_at_the_end_are_told(command: Command, address: Address, tmp_path: Path) -> None:
    """The service ends after some seconds, and says that its last spans are lost."""
    with collecting.silent() as url, serving(
        command, address, tmp_path, "left", OTEL_EXPORTER_OTLP_ENDPOINT=url, OTEL_EXPORTER_OTLP_TIMEOUT="60"
    ) as (client, process):  # fmt: skip
        assert run(client).status_code == 200
        said, _ = ended(process)
    assert told(said) == ["The collector did not take the last spans within 3 seconds; they are lost."]


def test_nothing_is_exported_where_nobody_asks(command: Command, address: Address, tmp_path: Path) -> None:
    """Without an `OTEL_` variable, or with the SDK disabled, no span is made and no header tells of one."""
    with collecting.collector() as got, serving(
        command, address, tmp_path, "left", OTEL_EXPORTER_OTLP_ENDPOINT=got.url, OTEL_SDK_DISABLED="true"
    ) as (client, process):  # fmt: skip
        assert "traceresponse" not in run(client).headers
        ended(process)
        assert got.requests == 0


def test_an_exporter_that_there_is_not_stops_the_start(command: Command, tmp_path: Path) -> None:
    """The error names the variable and what it may be."""
    (tmp_path / "traced.py").write_text(COMPONENTS)
    process = command(
        "serve", "traced:left", cwd=tmp_path, PYTHONPATH=str(tmp_path), OTEL_TRACES_EXPORTER="zipkin"
    )  # fmt: skip
    said, _ = process.communicate(timeout=60)
    assert process.returncode == 1
    assert "OTEL_TRACES_EXPORTER names 'zipkin'" in said


def test_a_run_that_a_tool_starts_in_its_thread_is_its_child(
    command: Command, address: Address, tmp_path: Path
) -> None:
    """A tool in a thread that runs another component has that run below its call, in the same trace."""
    with collecting.collector() as got, serving(
        command, address, tmp_path, "asking", OTEL_EXPORTER_OTLP_ENDPOINT=got.url
    ) as (client, process):  # fmt: skip
        answer = run(client)
        assert answer.status_code == 200, answer.text
        ended(process)
        spans = got.wait(lambda spans: any(span.name == "POST /run" for span in spans))
    parent = {span.name: span.parent for span in spans}
    identity = {span.name: span.id for span in spans}
    assert len({span.trace for span in spans}) == 1
    assert parent["invoke_agent consulted"] == identity["execute_tool consult"]
    assert parent["chat echo"] == identity["invoke_agent consulted"]


def test_openmetrics_has_the_trace_of_a_run(command: Command, address: Address, tmp_path: Path) -> None:
    """Exemplars of runs, model calls, tool calls and requests name the trace in which they were observed."""
    with collecting.collector() as got, serving(
        command, address, tmp_path, "looker", OTEL_EXPORTER_OTLP_ENDPOINT=got.url
    ) as (client, process):  # fmt: skip
        trace = run(client).headers["traceresponse"].split("-")[1]
        page = client.get("/metrics", headers={"accept": "application/openmetrics-text;version=1.0.0"}).text
        ended(process)
    found = {
        one.name.removesuffix("_bucket"): one.exemplar.labels
        for family in read_openmetrics(page)
        for one in family.samples
        if one.exemplar
    }
    kinds = ("run", "model_call", "tool_call", "http_request")
    assert found == {f"podwright_{kind}_duration_seconds": {"trace_id": trace} for kind in kinds}


def test_baggage_that_is_too_long_is_left_and_not_told(command: Command, address: Address, tmp_path: Path) -> None:
    """More baggage than its standard allows harms nothing, and none of it is logged."""
    with serving(command, address, tmp_path, "left") as (client, process):
        for baggage in ("canary=" + "x" * 9000, "canary", ",".join(f"canary{n}=1" for n in range(500))):
            assert run(client, headers={"baggage": baggage}).status_code == 200
        assert "canary" not in ended(process)[0]


def test_a_protocol_that_there_is_not_stops_the_start(command: Command, tmp_path: Path) -> None:
    """Spans that nobody would receive are an error at once, in words."""
    (tmp_path / "traced.py").write_text(COMPONENTS)
    process = command(
        "serve", "traced:left", cwd=tmp_path, PYTHONPATH=str(tmp_path),
        OTEL_EXPORTER_OTLP_ENDPOINT="http://127.0.0.1:4317", OTEL_EXPORTER_OTLP_PROTOCOL="grpc",
    )  # fmt: skip
    said, _ = process.communicate(timeout=60)
    assert process.returncode != 0
    assert "OTEL_EXPORTER_OTLP_PROTOCOL is 'grpc'" in said
    assert "Traceback" not in said


def test_workers_deliver_spans_and_nobody_is_warned(command: Command, tmp_path: Path) -> None:
    """The exporter's thread starts anew in each worker, so that it is none that the workers lack."""
    before: list[str] = []

    def address(process: Any) -> str:
        for line in process.stdout:
            before.append(line)
            if found := re.search(r"running on (http://[\d.]+:\d+)", line):
                return found[1]
        raise AssertionError(before)

    with collecting.collector() as got, serving(
        command, address, tmp_path, "left", OTEL_EXPORTER_OTLP_ENDPOINT=got.url, PODWRIGHT_WORKERS="2"
    ) as (client, process):  # fmt: skip
        assert run(client).status_code == 200
        said, _ = ended(process)
        got.wait(lambda spans: any(span.name == "POST /run" for span in spans))
    assert told("".join(before) + said) == []
