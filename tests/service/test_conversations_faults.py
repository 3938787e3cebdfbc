"""Kept conversations while clients leave, processes are silent, the database is away, and many ask at once."""

from __future__ import annotations

import asyncio
import contextlib
import json
import threading
from collections.abc import AsyncGenerator, Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest
from tests.helpers import until
from tests.service.background_support import opened_stores
from tests.service.support import Gate, Serve, check_problem, connect
from tests.service.test_conversations import (
    Breaking,
    clerk,
    going_on,
    post,
    repeater,
    send,
)
from tests.service.test_conversations_deletion import dump

from podwright import Agent, AgentStep, FunctionModel, Workflow
from podwright.messages.headers import REPLAYED
from podwright.testing import ModelRequest
from podwright_service.background.kept import queue
from podwright_service.background.kept.queue import TurnQueue
from podwright_service.background.storage.database import (
    Database,
    DatabaseUnavailableError,
    Transaction,
)
from podwright_service.conversations.values import (
    EndedTurn,
    NewTurn,
    Place,
)
from podwright_service.http.errors.problems import RequestError

TURN = {"input": "x", "session": "s"}


def leave_when(
    client: httpx.Client, path: str, is_time: Callable[[], object]
) -> None:
    """Send a turn, and leave once something is the case."""
    connection = connect(client, path, json.dumps(TURN).encode())
    until(is_time)
    connection.close()


@pytest.mark.parametrize("path", ["/run", "/run/stream"])
def test_a_client_that_leaves_its_turn(
    serve: Serve, database: str, path: str
) -> None:
    """The next turn begins without it."""
    gate = Gate()
    client = serve(gate.agent(), runs_database=database, conversations=True)
    leave_when(client, path, gate.called.is_set)
    assert gate.cancelled.wait(30)
    gate.opened.set()
    send(client, "y")
    assert gate.inputs == ["x", "y"]


def note_joins(
    monkeypatch: pytest.MonkeyPatch, then: Callable[[], Any]
) -> list[Place]:
    """Return the places of the turns that join from now on; something is done after each."""
    join = TurnQueue.join
    places: list[Place] = []

    async def join_and(self: TurnQueue, turn: NewTurn) -> Place:
        place = await join(self, turn)
        places.append(place)
        await then()
        return place

    monkeypatch.setattr(TurnQueue, "join", join_and)
    return places


async def do_nothing() -> None:
    """For turns that are noted only."""


@pytest.mark.parametrize("path", ["/run", "/run/stream"])
def test_a_client_that_leaves_while_its_turn_waits(
    serve: Serve,
    database: str,
    path: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It is never performed, and holds up nobody."""
    places = note_joins(monkeypatch, do_nothing)
    left: list[str] = []
    leave = TurnQueue.leave

    async def leave_and_note(
        self: TurnQueue, run_id: str, place: Place | None, *, may_go_on: bool
    ) -> None:
        await leave(self, run_id, place, may_go_on=may_go_on)
        left.append(run_id)

    monkeypatch.setattr(TurnQueue, "leave", leave_and_note)
    gate = Gate()
    client = serve(gate.agent(), runs_database=database, conversations=True)
    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(post, client, "one")
        assert gate.called.wait(30)
        leave_when(client, path, lambda: len(places) == 2)
        # else the first turn could end before the service knows that the client has left
        until(lambda: left)
        second = pool.submit(post, client, "two")
        gate.opened.set()
        assert first.result().status_code == 200
        assert second.result().status_code == 200
    assert gate.inputs == ["one", "two"]


def test_a_client_that_leaves_while_its_turn_is_stored(
    serve: Serve, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The place that nobody knows of is given up."""

    async def wait() -> None:
        await asyncio.sleep(60)

    with monkeypatch.context() as patch:
        places = note_joins(patch, wait)
        client = serve(repeater(), runs_database=database, conversations=True)
        leave_when(client, "/run", lambda: places)
    assert send(client, "y") == "y"


def test_a_place_that_was_stored_without_a_response(
    serve: Serve, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is given up: the database has stored it, and could not say so."""

    async def fail() -> None:
        raise DatabaseUnavailableError("away", "wait")

    client = serve(repeater(), runs_database=database, conversations=True)
    with monkeypatch.context() as patch:
        places = note_joins(patch, fail)
        check_problem(post(client, "x"), 503, "runs_unavailable")
    assert len(places) == 1
    assert send(client, "y") == "y"


def test_a_turn_that_fails_while_the_database_is_away(
    serve: Serve, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its place is given up when the database is back."""
    away = threading.Event()
    transaction = Database.transaction

    @contextlib.asynccontextmanager
    async def transaction_or_none(
        self: Database,
    ) -> AsyncGenerator[Transaction]:
        if away.is_set():
            raise DatabaseUnavailableError("away", "wait")
        async with transaction(self) as opened:
            yield opened

    monkeypatch.setattr(Database, "transaction", transaction_or_none)

    def fail_once(request: ModelRequest) -> str:
        if request.messages[-1].text == "bad":
            away.set()
            raise RuntimeError("bad")
        return "good"

    component = Agent("repeater", "Repeat.", FunctionModel(fail_once))
    client = serve(component, runs_database=database, conversations=True)
    assert post(client, "bad").status_code >= 500
    away.clear()
    assert send(client, "x") == "good"


async def test_a_process_whose_lease_has_run_out(database: str) -> None:
    """The next turn begins without its own, which is refused at its end."""
    turn = NewTurn("c", "", "s", "1" * 32, worker="a")
    other = NewTurn("c", "", "s", "2" * 32, worker="b")
    message = {"role": "user", "content": "x"}
    async with opened_stores(database, 2) as (first, second):
        await first.renew("a", "c")
        await second.join("b", "c")
        lost = await first.turns.join(turn)
        place = await second.turns.join(other)

        async def begin() -> Any:
            return await second.turns.begin(
                place, None, waits_for_persons=False
            )

        assert await begin() is None
        await first.release_lease("a")
        # it removes the other one, and looks again
        assert await begin() is None
        assert (await begin()).messages == []
        with pytest.raises(RequestError) as error:
            await first.turns.end(EndedTurn(lost, [message], {}))
        assert error.value.code == "conversation_changed"
        await second.turns.end(EndedTurn(place, [message], {}))
        kept = await first.conversations.get("c", "", "s")
        assert kept is not None
        assert kept.messages == [message]


def test_many_turns_at_once(
    serve: Serve, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those behind too many are refused, of that session only."""
    monkeypatch.setattr(queue, "MAX_WAITING", 1)
    places = note_joins(monkeypatch, do_nothing)
    gate = Gate()
    client = serve(gate.agent(), runs_database=database, conversations=True)
    with ThreadPoolExecutor(3) as pool:
        first = pool.submit(post, client, "one")
        assert gate.called.wait(30)
        second = pool.submit(post, client, "two")
        until(lambda: len(places) == 2)
        for path in ("/run", "/runs"):
            late = client.post(path, json=TURN)
            check_problem(late, 503, "conversation_busy")
            assert int(late.headers["retry-after"]) > 0
        other = pool.submit(post, client, "other", session="t")
        until(lambda: "other" in gate.inputs)
        gate.opened.set()
        for each in (first, second, other):
            assert each.result().status_code == 200
    assert post(client, "three").status_code == 200


def test_a_repeated_request_whose_run_waits_for_a_person(
    serve: Serve, database: str
) -> None:
    """Another process says which run waits, instead of that the request goes on."""
    clients = [
        serve(clerk(), runs_database=database, conversations=True)
        for _ in range(2)
    ]
    key = {"idempotency-key": "k"}
    first = post(clients[0], "pay", headers=key)
    problem = check_problem(first, 409, "approval_required")
    again = post(clients[0], "pay", headers=key)
    assert again.headers[REPLAYED] == "true"
    elsewhere = post(clients[1], "pay", headers=key)
    waiting = check_problem(elsewhere, 409, "conversation_waiting")
    assert problem["run_id"] in waiting["detail"]


def test_a_name_with_a_nul_holds_up_no_deletion(
    serve: Serve, database: str
) -> None:
    """PostgreSQL cannot read it, in whatever run it is."""
    client = serve(repeater(), runs_database=database, conversations=True)
    body = {"input": "x", "user": "a\0b"}
    assert client.post("/runs", json=body).status_code == 202
    send(client, "x", user="ann")
    for path in ("/conversations/s", "/conversations?user=ann"):
        send(client, "x", user="ann")
        response = client.delete(path)
        assert response.status_code == 200, response.text
        assert response.json()["conversations"] == 1


def test_a_first_turn_that_fails_leaves_nothing(
    serve: Serve, database: str
) -> None:
    """Not even the name of its session; turns behind it begin the conversation."""
    gate = Gate()

    async def fail_first(request: ModelRequest) -> str:
        await gate(request)
        if request.messages[-1].text == "bad":
            raise RuntimeError("bad")
        return "good"

    component = Agent("repeater", "Repeat.", FunctionModel(fail_first))
    client = serve(component, runs_database=database, conversations=True)
    gate.opened.set()
    assert post(client, "bad", "MARKER").status_code >= 500
    assert "MARKER" not in dump(database)
    gate.opened.clear()
    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(post, client, "bad")
        until(lambda: len(gate.inputs) == 2)
        second = pool.submit(post, client, "x")
        gate.opened.set()
        assert first.result().status_code >= 500
        assert second.result().json()["output"] == "good"
    kept = client.get("/conversations/s").json()
    assert [each["content"] for each in kept["messages"]] == ["x", "good"]


def test_a_first_turn_that_fails_goes_on(serve: Serve, database: str) -> None:
    """That of a workflow, whose conversation is kept until then; a deletion takes what it has left, too."""
    model = Breaking()
    agent = Agent("repeater", "Repeat.", FunctionModel(model))
    component = Workflow("flow", [AgentStep(agent, conversation=True)])
    client = serve(component, runs_database=database, conversations=True)
    first = post(client, "MARKER", "s").json()
    post(client, "MARKER", "t")
    assert "MARKER" in dump(database)
    assert client.delete("/conversations/t").status_code == 200
    model.mended.set()
    response = client.post("/run", json=going_on(first))
    assert response.json()["repeater_output"] == "MARKER"
    response = post(client, "two", "s")
    assert response.json()["repeater_output"] == "MARKER two"
    assert client.delete("/conversations/s").status_code == 200
    assert "MARKER" not in dump(database)
