"""The newsroom in containers with its observers, without one of its agents, and its end."""

from __future__ import annotations

import threading
import time
from contextlib import suppress
from typing import Any

import httpx
import pytest
from tests.compose.composed import COMPONENTS, STAFF, Fleet
from tests.compose.conftest import MakeFleet
from tests.helpers import plain_http, until

KEY = "0123456789abcdef-of-the-fleet"
HEADERS = {"Authorization": f"Bearer {KEY}"}
REQUEST = {"input": "the moon"}


class Trace:
    """A trace, in the form of Jaeger's HTTP API."""

    def __init__(self, data: dict[str, Any]) -> None:
        self._spans: list[dict[str, Any]] = data["spans"]
        self._processes: dict[str, Any] = data["processes"]

    def services(self, operation: str) -> set[str]:
        """The services that have a span of that name."""
        return {
            self._service(span)
            for span in self._spans
            if span["operationName"] == operation
        }

    def roots(self) -> list[str]:
        """The services whose spans have no parent."""
        return [
            self._service(span)
            for span in self._spans
            if not span["references"]
        ]

    def is_complete(self) -> bool:
        """Whether all parents have arrived, and both sides of every remote run."""
        remote = {
            span["spanID"]
            for span in self._of_kind("client")
            if "invoke_agent" in span["operationName"]
        }
        all_parents = parents(self._spans)
        ids = {span["spanID"] for span in self._spans}
        return (
            bool(self.roots())
            and remote <= parents(self._of_kind("server"))
            and all_parents <= ids
        )

    def _of_kind(self, kind: str) -> list[dict[str, Any]]:
        return [
            span
            for span in self._spans
            if {"key": "span.kind", "type": "string", "value": kind}
            in span["tags"]
        ]

    def _service(self, span: dict[str, Any]) -> str:
        return self._processes[span["processID"]]["serviceName"]


def parents(spans: list[dict[str, Any]]) -> set[str]:
    return {
        reference["spanID"]
        for span in spans
        for reference in span["references"]
    }


@pytest.fixture(scope="module")
def newsroom(make_fleet: MakeFleet, observers: dict[str, Any]) -> Fleet:
    fleet = make_fleet(
        observers, COMPOSE_PROFILES="observability", FLEET_KEY=KEY
    )
    fleet.up(*COMPONENTS, *observers)
    return fleet


@pytest.fixture(scope="module")
def response(newsroom: Fleet) -> httpx.Response:
    """The response of the workflow, with its trace."""
    with newsroom.client("newsroom", headers=HEADERS) as client:
        response = client.post("/run?trace=true", json=REQUEST)
    assert response.status_code == 200, response.text
    return response


@pytest.fixture(scope="module")
def trace(newsroom: Fleet, response: httpx.Response) -> Trace:
    """The trace of that run in Jaeger, once it is complete."""
    url = f"{newsroom.url('jaeger', 16686)}/api/traces/{response.headers['traceresponse'].split('-')[1]}"

    def traces() -> list[Trace]:
        answer = plain_http.get(url)
        found = map(
            Trace, answer.json()["data"] if answer.status_code == 200 else []
        )
        return [trace for trace in found if trace.is_complete()]

    return until(traces, report=lambda: plain_http.get(url).text)[0]


def test_the_start_is_ordered(newsroom: Fleet) -> None:
    """The workflow and the conductor start when their agents are healthy, and all components become healthy."""
    events = newsroom.events("start", "health_status")
    for caller in ("newsroom", "desk"):
        before = events[: events.index((caller, "start"))]
        assert {(agent, "health_status: healthy") for agent in STAFF} <= set(
            before
        )
    for name in COMPONENTS:
        assert (
            newsroom.container(name)["State"]["Health"]["Status"] == "healthy"
        )


def test_a_run_uses_all_containers(
    newsroom: Fleet, response: httpx.Response
) -> None:
    """The workflow's response has the output of each agent, and the conductor calls the same containers."""
    value: dict[str, Any] = response.json()["value"]
    assert {"researcher_output", "writer_output", "reviewer_output"} <= set(
        value
    )
    assert all(
        text.startswith("Echo: ")
        for name, text in value.items()
        if name.endswith("_output")
    )
    with newsroom.client("desk", headers=HEADERS) as client:
        events = client.post("/run?trace=true", json=REQUEST).json()["events"]
    assert {
        event["component"] for event in events if event.get("remote")
    } == set(STAFF)


def test_one_trace(trace: Trace) -> None:
    """The run has one trace, which begins at the workflow and has the requests to all agents and their model calls."""
    assert trace.roots() == ["newsroom"]
    assert (
        trace.services("POST /run/stream")
        == trace.services("chat echo")
        == set(STAFF)
    )


def test_prometheus_scrapes_every_component(newsroom: Fleet) -> None:
    """Prometheus finds the components by the names of their services, and scrapes a second container too."""
    newsroom(
        "up",
        "--detach",
        "--no-build",
        "--wait",
        "--scale",
        "writer=2",
        "writer",
    )

    def targets() -> list[dict[str, Any]]:
        return newsroom.prometheus("targets", state="active")["activeTargets"]

    def jobs() -> list[str]:
        return sorted(
            target["labels"]["job"]
            for target in targets()
            if target["health"] == "up"
        )

    until(lambda: jobs() == sorted([*COMPONENTS, "writer"]), report=targets)


def test_an_exemplar_has_the_trace(
    newsroom: Fleet, response: httpx.Response
) -> None:
    """Prometheus keeps the trace id of the run with its duration."""
    trace_id = response.headers["traceresponse"].split("-")[1]

    def trace_ids() -> set[str]:
        now = time.time()
        series = newsroom.prometheus(
            "query_exemplars", query='podwright_run_duration_seconds_bucket{job="newsroom"}',
            start=str(now - 1800), end=str(now + 60),
        )  # fmt: skip
        return {
            exemplar["labels"]["trace_id"]
            for each in series
            for exemplar in each["exemplars"]
        }

    until(lambda: trace_id in trace_ids(), report=trace_ids)


def test_a_killed_agent(newsroom: Fleet) -> None:
    """Without the writer, a run fails with a problem that names it; with the writer, it resumes where it stopped."""
    newsroom("kill", "writer")
    with newsroom.client("newsroom", headers=HEADERS) as client:
        failed = client.post("/run", json=REQUEST)
        problem = failed.json()
        assert (failed.status_code, problem["code"]) == (
            502,
            "remote_unreachable",
        ), problem
        assert failed.headers["content-type"].startswith(
            "application/problem+json"
        )
        assert "writer" in problem["detail"]
        assert client.get("/ready").status_code == 200
        newsroom.up("writer")
        resumed = client.post(
            "/run",
            json={
                "inputs": problem["context"],
                "resume_path": problem["resume_path"],
            },
        )
    assert resumed.status_code == 200, resumed.text
    assert (
        resumed.json()["researcher_output"]
        == problem["context"]["researcher_output"]
    )
    assert resumed.json()["writer_output"]


def test_the_fleet_stops_gracefully(newsroom: Fleet) -> None:
    """`docker compose stop` under load: each run that started succeeds, and every component exits with 0.

    No run starts while a component waits to be scraped for the last time. The last test, because it stops the fleet.
    """
    responses: list[httpx.Response] = []

    def call() -> None:
        with (
            newsroom.client("newsroom", headers=HEADERS) as client,
            suppress(httpx.TransportError),
        ):
            while True:
                response = client.post("/run", json=REQUEST)
                if "service is stopping" in response.text:
                    return
                responses.append(response)

    callers = [threading.Thread(target=call) for _ in range(2)]
    for caller in callers:
        caller.start()
    until(lambda: len(responses) > 2)
    newsroom("stop")
    for caller in callers:
        caller.join()
    assert {response.status_code for response in responses} == {200}
    for name in COMPONENTS:
        state = newsroom.container(name)["State"]
        assert (state["Status"], state["ExitCode"], state["OOMKilled"]) == (
            "exited",
            0,
            False,
        ), name
