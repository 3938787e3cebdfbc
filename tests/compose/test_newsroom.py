"""The newsroom in containers with its observers."""

from __future__ import annotations

import base64
import time
from typing import Any

import httpx
import pytest
from tests.compose.composed import COMPONENTS, STAFF, Fleet
from tests.compose.conftest import MakeFleet
from tests.helpers import until

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

    return until(complete, report=lambda: [span.name for span in spans_in_jaeger(newsroom)])


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


def test_a_run_uses_all_containers(newsroom: Fleet, response: httpx.Response) -> None:
    """The workflow's response has the output of each agent, and the conductor calls the same containers."""
    value: dict[str, Any] = response.json()["value"]
    assert {"researcher_output", "writer_output", "reviewer_output"} <= set(value)
    assert all(text.startswith("Echo: ") for name, text in value.items() if name.endswith("_output"))
    with newsroom.client("desk") as client:
        events = client.post("/run?trace=true", json={"input": "the moon"}).json()["events"]
    assert {event["component"] for event in events if event.get("remote")} == set(STAFF)


def test_one_trace(trace: list[Span]) -> None:
    """The run has one trace, which begins at the workflow and has the requests to all agents and their model calls."""
    assert [span.resource["service.name"] for span in trace if not span.parent] == ["newsroom"]
    served = {span.resource["service.name"] for span in trace if span.name == "POST /run/stream"}
    called = {span.resource["service.name"] for span in trace if span.name == "chat echo"}
    assert served == called == set(STAFF)


def test_prometheus_scrapes_every_component(newsroom: Fleet) -> None:
    """Prometheus finds the components by the names of their services, and scrapes a second container too."""
    newsroom("up", "--detach", "--no-build", "--wait", "--scale", "writer=2", "writer")

    def targets() -> list[dict[str, Any]]:
        return newsroom.prometheus("targets", state="active")["activeTargets"]

    def jobs() -> list[str]:
        return sorted(target["labels"]["job"] for target in targets() if target["health"] == "up")

    until(lambda: jobs() == sorted([*COMPONENTS, "writer"]), report=targets)


def test_an_exemplar_has_the_trace(newsroom: Fleet, response: httpx.Response) -> None:
    """Prometheus keeps the trace id of the run with its duration."""
    trace_id = response.headers["traceresponse"].split("-")[1]

    def trace_ids() -> set[str]:
        now = time.time()
        series = newsroom.prometheus(
            "query_exemplars", query='podwright_run_duration_seconds_bucket{job="newsroom"}',
            start=str(now - 1800), end=str(now + 60),
        )  # fmt: skip
        return {exemplar["labels"]["trace_id"] for each in series for exemplar in each["exemplars"]}

    until(lambda: trace_id in trace_ids(), report=trace_ids)
