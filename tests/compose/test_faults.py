"""A composed fleet without one of its agents, and the stop of the whole fleet."""

from __future__ import annotations

import threading
from contextlib import suppress

import httpx
import pytest
from tests.compose.composed import COMPONENTS, Fleet
from tests.compose.conftest import MakeFleet
from tests.helpers import until

REQUEST = {"input": "the moon"}


@pytest.fixture(scope="module")
def newsroom(make_fleet: MakeFleet) -> Fleet:
    fleet = make_fleet()
    fleet.up()
    return fleet


def test_a_killed_agent(newsroom: Fleet) -> None:
    """Without the writer, a run fails with a problem that names it; with the writer, it resumes where it stopped."""
    newsroom("kill", "writer")
    with newsroom.client("newsroom") as client:
        failed = client.post("/run", json=REQUEST)
        problem = failed.json()
        assert (failed.status_code, problem["code"]) == (502, "remote_unreachable"), problem
        assert failed.headers["content-type"].startswith("application/problem+json")
        assert "writer" in problem["detail"]
        assert client.get("/ready").status_code == 200
        newsroom.up("writer")
        resumed = client.post("/run", json={"inputs": problem["context"], "resume_path": problem["resume_path"]})
    assert resumed.status_code == 200, resumed.text
    assert resumed.json()["researcher_output"] == problem["context"]["researcher_output"]
    assert resumed.json()["writer_output"]


def test_the_fleet_stops_gracefully(newsroom: Fleet) -> None:
    """`docker compose stop` under load: each run that started succeeds, and every component exits with 0."""
    responses: list[httpx.Response] = []

    def call() -> None:
        with newsroom.client("newsroom") as client, suppress(httpx.TransportError):
            while True:
                responses.append(client.post("/run", json=REQUEST))

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
        assert (state["Status"], state["ExitCode"], state["OOMKilled"]) == ("exited", 0, False), name
