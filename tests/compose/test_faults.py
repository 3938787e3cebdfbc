"""What goes wrong in a composed fleet: a component that is killed, restarted or ends, and the end of all."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import httpx
import pytest
from tests.compose.composed import COMPONENTS, Composed, eventually
from tests.compose.conftest import Fleet

ASKED = {"input": "the moon"}


@pytest.fixture(scope="module")
def newsroom(fleet: Fleet) -> Composed:
    made = fleet()
    made.up()
    return made


@contextmanager
def load(newsroom: Composed) -> Iterator[list[httpx.Response]]:
    """What the workflow answers to two callers who ask again and again, until it answers no more or the block ends."""
    answers: list[httpx.Response] = []
    done = threading.Event()

    def ask() -> None:
        with newsroom.client("newsroom") as client:
            while not done.is_set():
                try:
                    answers.append(client.post("/run", json=ASKED))
                except httpx.TransportError:
                    return

    callers = [threading.Thread(target=ask) for _ in range(2)]
    for caller in callers:
        caller.start()
    try:
        eventually(lambda: len(answers) > 2)
        yield answers
    finally:
        done.set()
        for caller in callers:
            caller.join()


def test_a_killed_agent(newsroom: Composed) -> None:
    """Without the writer, a run ends with a problem that names it; with it, the run goes on where it stopped."""
    newsroom("kill", "writer")
    with newsroom.client("newsroom") as client:
        stopped = client.post("/run", json=ASKED)
        problem = stopped.json()
        assert (stopped.status_code, problem["code"]) == (502, "remote_unreachable"), problem
        assert stopped.headers["content-type"].startswith("application/problem+json")
        assert "writer" in problem["detail"]
        assert client.get("/ready").status_code == 200
        newsroom.up("writer")
        again = {"inputs": problem["context"], "resume_path": problem["resume_path"]}
        went_on = client.post("/run", json=again)
    assert went_on.status_code == 200, went_on.text
    assert went_on.json()["researcher_output"] == problem["context"]["researcher_output"]
    assert went_on.json()["writer_output"]


def test_a_restarted_agent(newsroom: Composed) -> None:
    """While an agent restarts, each run is answered or ends with a problem of that agent; then all are answered."""
    with load(newsroom) as answers:
        newsroom("restart", "reviewer")
        newsroom.up("reviewer")
        seen = len(answers)
        eventually(lambda: len(answers) > seen + 4)
    for answer in answers:
        if answer.status_code != 200:
            assert answer.json()["code"].startswith("remote_"), answer.text
            assert "reviewer" in answer.json()["detail"]
    assert {answer.status_code for answer in answers[seen + 2 :]} == {200}


def test_an_agent_that_ends_comes_back(newsroom: Composed) -> None:
    """A component whose process ends is started again by the engine, and the fleet answers."""
    newsroom.inside("researcher", "python", "-c", "import os, signal; os.kill(1, signal.SIGTERM)")
    eventually(lambda: newsroom.container("researcher")["RestartCount"] == 1)
    newsroom.up("researcher")
    with newsroom.client("newsroom") as client:
        assert client.post("/run", json=ASKED).status_code == 200


def test_the_end(newsroom: Composed) -> None:
    """`docker compose stop` under load: each run that began is answered, and every component exits with 0."""
    with load(newsroom) as answers:
        newsroom("stop")
    assert {answer.status_code for answer in answers} == {200}
    for name in COMPONENTS:
        state = newsroom.container(name)["State"]
        assert (state["Status"], state["ExitCode"], state["OOMKilled"]) == ("exited", 0, False), name
