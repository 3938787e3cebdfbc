"""Faults in a composed fleet: a component that is killed, restarted or exits, and the stop of the whole fleet."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

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


@contextmanager
def load(newsroom: Fleet) -> Iterator[list[httpx.Response]]:
    """The responses to two callers who send requests until the workflow cannot be reached, or the block ends."""
    responses: list[httpx.Response] = []
    done = threading.Event()

    def call() -> None:
        with newsroom.client("newsroom") as client:
            while not done.is_set():
                try:
                    responses.append(client.post("/run", json=REQUEST))
                except httpx.TransportError:
                    return

    callers = [threading.Thread(target=call) for _ in range(2)]
    for caller in callers:
        caller.start()
    try:
        until(lambda: len(responses) > 2)
        yield responses
    finally:
        done.set()
        for caller in callers:
            caller.join()


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


def test_a_restarted_agent(newsroom: Fleet) -> None:
    """While an agent restarts, each run succeeds or fails with a problem of that agent; then all succeed."""
    with load(newsroom) as responses:
        newsroom("restart", "reviewer")
        newsroom.up("reviewer")
        count = len(responses)
        until(lambda: len(responses) > count + 4)
    for response in responses:
        if response.status_code != 200:
            assert response.json()["code"].startswith("remote_"), response.text
            assert "reviewer" in response.json()["detail"]
    assert {response.status_code for response in responses[count + 2 :]} == {200}


def test_an_agent_that_exits_is_restarted(newsroom: Fleet) -> None:
    """The engine restarts a component whose process exits, and the fleet works again."""
    newsroom.inside("researcher", "python", "-c", "import os, signal; os.kill(1, signal.SIGTERM)")
    until(lambda: newsroom.container("researcher")["RestartCount"] == 1)
    newsroom.up("researcher")
    with newsroom.client("newsroom") as client:
        assert client.post("/run", json=REQUEST).status_code == 200


def test_the_fleet_stops_gracefully(newsroom: Fleet) -> None:
    """`docker compose stop` under load: each run that started succeeds, and every component exits with 0."""
    with load(newsroom) as responses:
        newsroom("stop")
    assert {response.status_code for response in responses} == {200}
    for name in COMPONENTS:
        state = newsroom.container(name)["State"]
        assert (state["Status"], state["ExitCode"], state["OOMKilled"]) == ("exited", 0, False), name
