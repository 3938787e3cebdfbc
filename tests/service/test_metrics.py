"""The metrics as Prometheus's own parsers read them, and the ledger that they keep."""

from __future__ import annotations

import asyncio
import os
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import httpx
import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import NonRecordingSpan, SpanContext, TraceFlags
from prometheus_client.openmetrics.parser import text_string_to_metric_families as read_openmetrics
from prometheus_client.parser import text_string_to_metric_families as read_text

import podwright
from podwright import Agent, Conductor, FunctionModel, Pipeline, ScriptedModel
from podwright.errors import ModelError, PodwrightError
from podwright.run import Task, execute
from podwright.testing import ModelRequest, ModelResponse, ToolCall, Usage
from podwright_service.admission import Admission
from podwright_service.observability import metrics as counting
from podwright_service.observability.metrics import POSTED, UNKNOWN, Metrics
from podwright_service.observability.spans import Recorder, Span
from podwright_service.observability.tracing import Spans
from podwright_service.settings import Settings

Serve = Callable[..., httpx.Client]


def samples(client: httpx.Client) -> dict[tuple[str, frozenset[tuple[str, str]]], float]:
    answer = client.get("/metrics")
    assert answer.status_code == 200
    assert answer.headers["content-type"].startswith("text/plain")
    return {
        (one.name, frozenset(one.labels.items())): one.value
        for family in read_text(answer.text)
        for one in family.samples
    }


def total(found: dict[Any, float], name: str, **labels: str) -> float:
    return sum(value for (other, given), value in found.items() if other == name and set(labels.items()) <= set(given))


def look(place: str) -> str:
    """Look somewhere."""
    return f"nothing in {place}"


def test_a_run_its_calls_and_its_request_are_counted(serve: Serve) -> None:
    """The counters say what the answer's headers say."""
    model = ScriptedModel(ToolCall.of("look", place="cellar"), "done")
    client = serve(Agent("looker", "Look.", model, tools=[look]))
    answer = client.post("/run", json={"input": "where?"})
    sent, made = (int(part.split("=")[1]) for part in answer.headers["podwright-usage"].split(", ")[:2])
    found = samples(client)
    who = {"component": "looker", "kind": "agent"}
    assert total(found, "podwright_runs_total", **who, status="ok") == 1
    assert total(found, "podwright_runs_in_progress", **who) == 0
    assert total(found, "podwright_tokens_total", **who, type="input") == sent
    assert total(found, "podwright_tokens_total", **who, type="output") == made
    assert total(found, "podwright_model_calls_total", **who, status="ok") == 2
    assert total(found, "podwright_tool_calls_total", **who, tool="look", status="ok") == 1
    assert total(found, "podwright_http_requests_total", method="POST", route="/run", status="200") == 1
    assert total(found, "podwright_run_duration_seconds_count", **who) == 1
    assert total(found, "podwright_component_info", **who, version=podwright.__version__) == 1


NAMES = {
    "podwright_runs_total": {"status"},
    "podwright_run_duration_seconds": set(),
    "podwright_runs_in_progress": set(),
    "podwright_runs_waiting": set(),
    "podwright_runs_rejected_total": {"reason"},
    "podwright_budget_stops_total": {"limit"},
    "podwright_tokens_total": {"model", "type"},
    "podwright_cost_usd_total": {"model"},
    "podwright_unpriced_model_calls_total": {"model"},
    "podwright_model_calls_total": {"model", "provider", "status"},
    "podwright_model_call_duration_seconds": {"model"},
    "podwright_time_to_first_token_seconds": {"model"},
    "podwright_tool_calls_total": {"tool", "status"},
    "podwright_tool_call_duration_seconds": {"tool"},
    "podwright_http_requests_total": {"method", "route", "status"},
    "podwright_http_request_duration_seconds": {"route"},
    "podwright_component_info": {"version", "blueprint_digest"},
}
"""What dashboards and alerts are written for: a name or a label that goes is a breaking change."""


@pytest.mark.parametrize("accept", ["text/plain", "application/openmetrics-text;version=1.0.0"])
def test_the_page_has_these_names_and_labels(serve: Serve, accept: str) -> None:
    """After runs of all sorts the page has each metric with its labels, and no other, not even `_created`."""
    calls = ToolCall.of("look", place="cellar")
    model = Priceless(lambda request: "done" if request.messages[-1].role == "tool" else calls)
    with_limit = {"run_tokens": 5000, "max_runs": 1, "max_waiting": 0, "max_wait": 0.0}
    client = serve(Agent("looker", "Look.", model, tools=[look]), **with_limit)
    assert client.post("/run", json={"input": "where?"}).status_code == 200
    assert client.post("/run", json={"input": "x" * 50_000}).json()["code"] == "limit_exceeded"
    blueprint = {"name": "a", "instructions": "x", "config": {"model": "offline/function"}}
    client.post("/run-blueprint", json={"type": "agent", "input": "x", "blueprint": blueprint})
    client.post("/run/stream", json={"input": "where?"})
    read = read_openmetrics if "openmetrics" in accept else read_text
    families = list(read(client.get("/metrics", headers={"accept": accept}).text))
    found: dict[str, set[str]] = {}
    for family in families:
        for sample in family.samples if family.name.startswith("podwright_") else ():
            name = re.sub("_(bucket|count|sum)$", "", sample.name)
            found.setdefault(name, set()).update(set(sample.labels) - {"component", "kind", "le"})
            assert {"component", "kind"} <= set(sample.labels)
    assert not [name for name in found if name.endswith("_created")]
    assert {name: labels for name, labels in NAMES.items() if name in found} == found
    declared = {family.name.removesuffix("_total") for family in families}
    assert {name.removesuffix("_total") for name in NAMES} <= declared


def test_what_comes_from_outside_makes_no_labels(serve: Serve) -> None:
    """Paths, methods, names in posted blueprints and a model's invented tools are counted under one name."""
    client = serve(Agent("looker", "Look.", ScriptedModel(ToolCall.of("invented"), "done"), tools=[look]))
    assert client.post("/run", json={"input": "where?"}).status_code == 200
    client.get("/canary")
    client.request("PROPFIND", "/run")
    blueprint = {"name": "canary", "instructions": "x", "config": {"model": "offline/echo", "max_loops": 1}}
    posted = serve(Agent("open", "Help.", model="offline/echo"))
    answer = posted.post(
        "/run-blueprint", json={"type": "agent", "input": "x", "blueprint": {**blueprint, "tools": []}}
    )
    assert answer.status_code == 200, answer.text
    assert total(samples(client), "podwright_tool_calls_total", tool=UNKNOWN, status="failed") == 1
    assert total(samples(client), "podwright_http_requests_total", route=UNKNOWN) == 1
    assert total(samples(client), "podwright_http_requests_total", method=UNKNOWN) == 1
    assert total(samples(posted), "podwright_runs_total", component=POSTED, kind="agent") == 1
    assert total(samples(posted), "podwright_tokens_total", component=POSTED) > 0
    for one in (client, posted):
        text = one.get("/metrics").text
        assert "canary" not in text.lower()
        assert "invented" not in text
        assert "PROPFIND" not in text


def test_a_limit_that_ends_a_run_is_named(serve: Serve) -> None:
    """`budget_stops_total` says which."""
    client = serve(Agent("looker", "Look.", ScriptedModel(ToolCall.of("look", place="x")), tools=[look]), run_tokens=1)
    assert client.post("/run", json={"input": "where?"}).status_code == 422
    assert total(samples(client), "podwright_budget_stops_total", limit="tokens") == 1
    assert total(samples(client), "podwright_runs_total", status="failed") == 1


def test_openmetrics_is_given_to_who_asks_for_it(serve: Serve) -> None:
    """The document is one that the format's own parser takes."""
    client = serve(Agent("open", "Help.", model="offline/echo"))
    client.post("/run", json={"input": "x"})
    answer = client.get("/metrics", headers={"accept": "application/openmetrics-text;version=1.0.0"})
    assert answer.headers["content-type"].startswith("application/openmetrics-text")
    assert "podwright_runs" in {family.name for family in read_openmetrics(answer.text)}


SHARED = """
import asyncio, os, sys
from podwright import Agent
from podwright.run import Task, execute
from podwright_service.observability.metrics import Metrics
agent = Agent("a", "x", model="offline/echo")
metrics = Metrics("a", "agent", {"a"}, {"offline/echo"}, (), ())
metrics.serves("1", "d")
def run():
    asyncio.run(execute(agent, Task("x"), subscribers=(metrics.subscriber(False),)))
children = []
for _ in range(2):
    if (child := os.fork()) == 0:
        run()
        os._exit(0)
    os.waitpid(child, 0)
run()
sys.stdout.buffer.write(metrics.page("")[0])
"""


@pytest.mark.parametrize(
    "accept", ["application/openmetrics-text; version=abc", "text/plain; version=1..0", ",;" * 9000]
)
def test_an_accept_that_is_none_is_answered(serve: Serve, accept: str) -> None:
    """Who asks for a version that there is not is given the plain text."""
    answer = serve(Agent("a", "Do.", "offline/echo")).get("/metrics", headers={"accept": accept})
    assert (answer.status_code, answer.headers["content-type"][:10]) == (200, "text/plain")
    assert list(read_text(answer.text))


def test_several_processes_count_together(tmp_path: Any) -> None:
    """With a directory for it, one process's page has the sums of all."""
    process = subprocess.run(
        [sys.executable, "-c", SHARED],
        env={**os.environ, "PROMETHEUS_MULTIPROC_DIR": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert process.returncode == 0, process.stderr
    found = {
        (one.name, frozenset(one.labels.items())): one.value
        for family in read_text(process.stdout)
        for one in family.samples
    }
    assert total(found, "podwright_runs_total", status="ok") == 3
    assert total(found, "podwright_component_info") == 1
    assert total(found, "podwright_runs_in_progress") == 0
    assert not [name for name, _ in found if name.endswith("_created")]


class Priceless(FunctionModel):
    def price(self, usage: Usage) -> float | None:
        return None


def _components() -> list[Any]:
    def answer(request: ModelRequest) -> Any:
        number = numbers["calls"] = numbers["calls"] + 1
        if number % 11 == 0:
            raise ModelError("The vendor is down.")
        if request.tools and request.messages[-1].role == "user" and number % 3 == 0:
            name = request.tools[0]["function"]["name"]
            given = {"place": "x"} if name == "look" else {"task": "look"}
            return ModelResponse(tool_calls=(ToolCall.of(name, **given),), usage=Usage(number, 1, cost=0.001))
        return ModelResponse("done", usage=Usage(number, 2, cost=None if number % 7 == 0 else 0.002))

    numbers = Counter[str]()
    model = Priceless(answer)
    looker = Agent("looker", "Look.", model, tools=[look])
    other = Agent("other", "Help.", model)
    return [
        looker,
        Pipeline("line", steps=[looker, other]),
        Conductor("boss", "Lead.", model=model, skills=[looker, other]),
    ]


async def test_answers_counters_and_spans_tell_the_same_tokens() -> None:
    """Over hundreds of runs that succeed, fail and are limited, the three sums are equal to the token."""
    ended: list[Span] = []
    recorder = Recorder(TracerProvider(shutdown_on_exit=False), InstrumentationScope("test"), [ended.append])
    metrics = Metrics("looker", "agent", {"looker", "line", "boss", "other"}, {"offline/function"}, {"look"}, ())
    subscribers = (metrics.subscriber(False), Spans(recorder))
    usage, ends = Usage(cost=0.0), Counter[str]()
    for component in _components():
        for number in range(100):
            limits = podwright.RunLimits(model_calls=1) if number % 10 == 9 else None
            try:
                result = await execute(component, Task(f"go {number}"), subscribers=subscribers, limits=limits)
                usage, ends["ok"] = usage + result.usage, ends["ok"] + 1
            except PodwrightError as error:
                usage, ends["failed"] = usage + (error.usage or Usage()), ends["failed"] + 1
    chats = [span for span in ended if span.name.startswith("chat ")]
    found = {
        (one.name, frozenset(one.labels.items())): one.value
        for family in metrics.registry.collect()
        for one in family.samples
    }
    assert min(ends.values()) > 10
    for type_, amount in (("input", usage.input_tokens), ("output", usage.output_tokens)):
        spans: list[Any] = [span.attributes.get(f"gen_ai.usage.{type_}_tokens", 0) for span in chats]
        assert sum(spans) == total(found, "podwright_tokens_total", type=type_) == amount
    assert total(found, "podwright_model_calls_total", status="ok") == usage.model_calls
    assert total(found, "podwright_unpriced_model_calls_total") == usage.unpriced_model_calls > 0
    assert {status: total(found, "podwright_runs_total", status=status) for status in ends} == ends
    costs: list[Any] = [span.attributes.get("gen_ai.usage.cost.amount", 0) for span in chats]
    assert sum(costs) == pytest.approx(total(found, "podwright_cost_usd_total"), abs=1e-9)


def test_what_is_counted_seldom_is_there_from_the_start(serve: Serve) -> None:
    """A rate is one of two readings: a count that appeared with the first refusal would have none."""
    found = samples(serve(Agent("a", "Do.", "offline/echo")))
    for reason in ("full", "waited"):
        assert (
            found[
                "podwright_runs_rejected_total",
                frozenset({"component": "a", "kind": "agent", "reason": reason}.items()),
            ]
            == 0
        )
    assert total(found, "podwright_runs_waiting") == 0


async def test_the_line_is_told_as_it_moves() -> None:
    """Who waits, who is let in and who is refused is on the page at once, whatever else happens."""
    metrics, admission = (
        Metrics("a", "agent", (), (), (), ()),
        Admission(Settings(max_runs=1, max_waiting=1, max_wait=30)),
    )
    metrics.watch(admission)

    def told(name: str) -> float:
        return sum(one.value for family in metrics.registry.collect() for one in family.samples if one.name == name)

    gates = [asyncio.Event() for _ in range(2)]
    runs = [asyncio.create_task(admission.admitted(gate.wait)) for gate in gates]
    await asyncio.sleep(0)
    assert (told("podwright_runs_waiting"), told("podwright_runs_rejected_total")) == (1, 0)
    admission.refusal("full")
    assert told("podwright_runs_rejected_total") == 1
    gates[0].set()
    await runs[0]
    assert told("podwright_runs_waiting") == 0
    gates[1].set()
    await runs[1]
    assert admission.running == 0


async def test_who_counts_the_line_cannot_stop_it() -> None:
    """A place is handed on also where telling of it fails."""
    admission = Admission(Settings(max_runs=1, max_waiting=1, max_wait=30))
    gate = asyncio.Event()
    first = asyncio.create_task(admission.admitted(gate.wait))
    second = asyncio.create_task(admission.admitted(gate.wait))
    await asyncio.sleep(0)
    admission.changed = lambda: 1 / 0
    gate.set()
    await asyncio.wait([first, second], timeout=20)
    assert second.result() is True
    assert (admission.running, admission.waiting) == (0, 0)


def test_a_bucket_gets_a_new_exemplar_now_and_then(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each bucket names a trace that was observed in it, renews it after a while, and names none that is not kept."""
    now, given = 100.0, list[tuple[float, Any]]()

    class Child:
        def observe(self, seconds: float, exemplar: Any = None) -> None:
            given.append((seconds, exemplar and int(exemplar["trace_id"], 16)))

    def seen(trace: int, seconds: float, sampled: bool = True) -> None:
        context = SpanContext(trace, 1, False, TraceFlags(sampled))
        monkeypatch.setattr(counting, "get_current_span", lambda: NonRecordingSpan(context))
        timed.observe(seconds)

    monkeypatch.setattr("podwright_service.observability.metrics.time.monotonic", lambda: now)
    timed = counting._Timed(cast("Any", Child()), [0.1, 0.2])
    seen(1, 0.05)
    seen(2, 0.1)  # in the same bucket, whose bound belongs to it
    seen(3, 0.15)
    seen(4, 9.0)
    now += 0.9
    seen(5, 0.05)
    now += 0.2
    seen(6, 0.05, sampled=False)
    seen(7, 0.05)
    assert given == [(0.05, 1), (0.1, None), (0.15, 3), (9.0, 4), (0.05, None), (0.05, None), (0.05, 7)]


def test_the_table_in_the_documents_is_the_registry() -> None:
    """Names and labels of `docs/telemetry.md` are those of the code."""
    table = (Path(__file__).parents[2] / "docs" / "telemetry.md").read_text()
    rows = [line.split("|") for line in table.splitlines() if line.startswith("| `podwright_")]
    told = {row[1].strip(" `"): frozenset(re.findall(r"\w+", row[2])) for row in rows}
    metrics = Metrics("a", "agent", (), (), (), ())
    collectors = [one for one in metrics.registry._collector_to_names if hasattr(one, "_labelnames")]
    made: dict[str, frozenset[str]] = {}
    for one in collectors:
        metric: Any = one
        name = f"{metric._name}_total" if metric._type == "counter" else metric._name
        made[name] = frozenset(metric._labelnames) - {"component", "kind"}
    assert told == made
