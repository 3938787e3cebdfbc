"""The newsroom in containers with its observers: one run, one trace, one usage."""

from __future__ import annotations

import base64
import time
from collections import Counter
from typing import Any

import httpx
import pytest
from tests.compose.composed import COMPONENTS, STAFF, Fleet
from tests.compose.conftest import MakeFleet
from tests.image_support import eventually

from podwright_service.testing import Span, SpanCollector

SERVER, CLIENT = 2, 3
"""Kinds of spans in OTLP."""


@pytest.fixture(scope="module")
def newsroom(make_fleet: MakeFleet, observers: dict[str, Any]) -> Fleet:
    fleet = make_fleet(observers, COMPOSE_PROFILES="observability")
    fleet.up(*COMPONENTS, *observers)
    return fleet


@pytest.fixture(scope="module")
def response(newsroom: Fleet) -> httpx.Response:
    """The response of the workflow, with its trace."""
    with newsroom.client("newsroom") as client:
        response = client.post("/run?trace=true", json={"input": "the moon"})
    assert response.status_code == 200, response.text
    return response


@pytest.fixture(scope="module")
def trace(newsroom: Fleet, response: httpx.Response) -> list[Span]:
    """The spans of that run in Jaeger, once both sides of every remote run have arrived."""
    trace_id = response.headers["traceresponse"].split("-")[1]

    def complete() -> list[Span]:
        spans = [span for span in spans_in_jaeger(newsroom) if span.trace == trace_id]
        remote = {span.id for span in spans if span.kind == CLIENT and span.name.startswith("invoke_agent")}
        parents, ids = {span.parent for span in spans}, {span.id for span in spans}
        served = {span.parent for span in spans if span.kind == SERVER}
        return spans if "" in parents and remote <= served and parents - {""} <= ids else []

    return eventually(complete, report=lambda: [span.name for span in spans_in_jaeger(newsroom)])


def spans_in_jaeger(newsroom: Fleet) -> list[Span]:
    collector = SpanCollector()
    for body in httpx.get(newsroom.url("jaeger", 16686), timeout=30).json():
        collector.add(base64.b64decode(body))
    return collector.spans


def test_the_start_is_ordered(newsroom: Fleet) -> None:
    """The workflow and the conductor start when their agents are healthy, and all components become healthy."""
    events = newsroom.events("start", "health_status")
    for caller in ("newsroom", "desk"):
        before = events[: events.index((caller, "start"))]
        assert {(agent, "health_status: healthy") for agent in STAFF} <= set(before)
    for name in COMPONENTS:
        assert newsroom.container(name)["State"]["Health"]["Status"] == "healthy"


def test_hardened(newsroom: Fleet) -> None:
    """A component runs as an unprivileged user, without capabilities, and cannot write."""
    code = "import os; print(os.getuid(), open('/proc/self/status').read())"
    user, status = newsroom.inside("writer", "python", "-c", code).split(" ", 1)
    fields = dict(line.split(":\t", 1) for line in status.splitlines() if ":\t" in line)
    assert user == "65532"
    assert {fields[name] for name in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb")} == {"0" * 16}
    assert fields["NoNewPrivs"] == "1"
    code = "import errno\ntry: open('/opt/podwright/new', 'w')\nexcept OSError as e: print(errno.errorcode[e.errno])"
    assert newsroom.inside("writer", "python", "-c", code).strip() == "EROFS"


def test_a_run_uses_all_containers(newsroom: Fleet, response: httpx.Response) -> None:
    """The workflow's response has the output of each agent, and the conductor calls the same containers."""
    value: dict[str, Any] = response.json()["value"]
    assert {"researcher_output", "writer_output", "reviewer_output"} <= set(value)
    assert all(text.startswith("Echo: ") for name, text in value.items() if name.endswith("_output"))
    with newsroom.client("desk") as client:
        events = client.post("/run?trace=true", json={"input": "the moon"}).json()["events"]
    assert {event["component"] for event in events if event.get("remote")} == set(STAFF)


def test_one_trace(trace: list[Span]) -> None:
    """The run has one trace: the spans of each agent are below the workflow's span of the call."""
    spans = {span.id: span for span in trace}

    def path(span: Span) -> list[tuple[str, str]]:
        above = path(spans[span.parent]) if span.parent else []
        if span.name.startswith(("step ", "execute_tool ")):
            return above
        return [*above, (span.resource["service.name"], span.name)]

    calls = [span for span in trace if span.name == "chat echo"]
    assert {span.resource["service.name"] for span in calls} == set(STAFF)
    for call in calls:
        agent = call.resource["service.name"]
        assert path(call) == [
            ("newsroom", "POST /run"),
            ("newsroom", "invoke_workflow newsroom"),
            ("newsroom", f"invoke_agent {agent}"),
            (agent, "POST /run/stream"),
            (agent, f"invoke_agent {agent}"),
            (agent, "chat echo"),
        ]


def test_one_usage(response: httpx.Response, trace: list[Span]) -> None:
    """The usage of the response is the sum of the model calls' spans in all containers."""
    calls = [span for span in trace if span.name == "chat echo"]
    usage = response.json()["usage"]
    assert usage["model_calls"] == len(calls) > len(STAFF)
    for kind in ("input_tokens", "output_tokens"):
        assert usage[kind] == sum(span.attributes[f"gen_ai.usage.{kind}"] for span in calls) > 0


def test_prometheus_scrapes_every_component(newsroom: Fleet) -> None:
    """Prometheus finds the components by the names of their services, and scrapes a second container too."""
    newsroom("up", "--detach", "--no-build", "--wait", "--scale", "writer=2", "writer")

    def targets() -> list[dict[str, Any]]:
        return newsroom.prometheus("targets", state="active")["activeTargets"]

    def jobs() -> list[str]:
        return sorted(target["labels"]["job"] for target in targets() if target["health"] == "up")

    eventually(lambda: jobs() == sorted([*COMPONENTS, "writer"]), report=targets)


def test_prometheus_has_the_counters(newsroom: Fleet, trace: list[Span]) -> None:
    """The counters in Prometheus are the tokens of the model calls in Jaeger, by container and kind."""

    def traced() -> Counter[tuple[str, str]]:
        tokens = Counter[tuple[str, str]]()
        for span in spans_in_jaeger(newsroom):
            if span.name == "chat echo":
                for kind in ("input", "output"):
                    tokens[span.resource["service.name"], kind] += span.attributes[f"gen_ai.usage.{kind}_tokens"]
        return tokens

    def counted() -> dict[tuple[str, str], int]:
        query = 'sum by (job, type) (podwright_tokens_total{namespace="newsroom"})'
        samples = newsroom.prometheus("query", query=query)["result"]
        return {(sample["metric"]["job"], sample["metric"]["type"]): int(sample["value"][1]) for sample in samples}

    assert trace
    eventually(lambda: traced() == counted(), report=lambda: (traced(), counted()))


def test_an_exemplar_has_the_trace(newsroom: Fleet, response: httpx.Response) -> None:
    """Prometheus keeps the trace id of the run with its duration."""
    trace_id = response.headers["traceresponse"].split("-")[1]

    def trace_ids() -> set[str]:
        now = time.time()
        series = newsroom.prometheus(
            "query_exemplars", query='podwright_run_duration_seconds_bucket{job="newsroom"}',
            start=str(now - 1800), end=str(now + 60),
        )  # fmt: skip
        return {exemplar["labels"]["trace_id"] for one in series for exemplar in one["exemplars"]}

    eventually(lambda: trace_id in trace_ids(), report=trace_ids)


def test_prometheus_evaluates_the_rules(newsroom: Fleet) -> None:
    """All rules of the file are evaluated without an error, and no alert is active."""

    def rules() -> list[dict[str, Any]]:
        return [rule for group in newsroom.prometheus("rules")["groups"] for rule in group["rules"]]

    eventually(lambda: {rule["health"] for rule in rules()} == {"ok"}, report=rules)
    alerts = [rule for rule in rules() if rule["type"] == "alerting"]
    assert {alert["name"] for alert in alerts} >= {
        "PodwrightFailingFast", "PodwrightCostPerHour", "PodwrightUnpricedModelCalls", "PodwrightBudgetStops",
        "PodwrightWaiting",
    }  # fmt: skip
    assert {alert["state"] for alert in alerts} == {"inactive"}
    assert {rule["type"] for rule in rules()} == {"recording", "alerting"}


def test_runs_do_not_need_the_collector(newsroom: Fleet) -> None:
    """A run succeeds without the collector; when the collector is back, spans arrive again."""
    with newsroom.client("newsroom") as client:
        newsroom("kill", "collector")
        assert client.post("/run", json={"input": "the moon"}).status_code == 200
        newsroom.up("collector")
        after = client.post("/run", json={"input": "the moon"})
    trace_id = after.headers["traceresponse"].split("-")[1]
    eventually(lambda: trace_id in {span.trace for span in spans_in_jaeger(newsroom)})
