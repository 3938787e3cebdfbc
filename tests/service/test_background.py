"""Background runs: their routes, in SQLite and in PostgreSQL."""

from __future__ import annotations

import asyncio
import json
import re
import signal
import threading
import time
from pathlib import Path
from typing import Any

import httpx
import pytest
from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext
from sqlalchemy import create_engine, update
from sqlalchemy.ext.asyncio import create_async_engine
from tests.helpers import NEWSROOM, NO_AUTHORITIES, plain_http, until
from tests.postgresql import PostgreSQL
from tests.service.support import Address, Command, Gate, Serve, Served, Shell, check_problem, pointers, sse_events

from podwright import (
    Agent,
    AgentStep,
    ApprovalStep,
    EchoModel,
    FunctionModel,
    LoopStep,
    ParallelStep,
    Pipeline,
    Workflow,
)
from podwright.components import Component
from podwright.errors import ModelError
from podwright.testing import ModelRequest, ToolCall
from podwright.usage import Usage
from podwright_service.background.database import DatabaseUnavailableError, database_url, migrate
from podwright_service.background.gate import Gate as CallGate
from podwright_service.background.store import AttemptUpdate, RunStore
from podwright_service.background.tables import metadata, runs
from podwright_service.testing import ComponentProcess, ProblemError, SpanCollector

ECHO = Agent("helper", "Help.", EchoModel())
FLOW = Workflow("flow", steps=[ECHO, ApprovalStep("Publish {helper_output}?"), AgentStep(ECHO, "last")])
ENDED = ("succeeded", "failed", "cancelled", "interrupted")


@pytest.fixture(params=["sqlite", "postgresql"])
def database(request: pytest.FixtureRequest) -> str:
    """The URL of an empty database."""
    return request.getfixturevalue(f"{request.param}_database")


def wait(client: httpx.Client, url: str, *statuses: str) -> dict[str, Any]:
    """The run, once it has one of the statuses; by default once it has ended."""
    run: dict[str, Any] = {}

    def has_status() -> bool:
        nonlocal run
        run = client.get(url).json()
        return run["status"] in (statuses or ENDED)

    until(has_status, 30)
    return run


def begin(client: httpx.Client, text: str = "x", **headers: str) -> str:
    """Start a run, and return its URL."""
    response = client.post("/runs", json={"input": text}, headers=headers)
    assert response.status_code == 202, response.text
    assert response.headers["location"] == f"/runs/{response.json()['id']}"
    return response.headers["location"]


def test_a_run(serve: Serve, database: str) -> None:
    """It is accepted, performed, and has the result, the usage and the events that `/run` would have had."""
    client = serve(ECHO, runs_database=database)
    response = client.post("/runs", json={"input": "hello"})
    assert response.status_code == 202
    assert response.json() | {"status": "running", "attempt": 1, "decisions": []} == response.json()
    url = response.headers["location"]
    run = wait(client, url)
    assert (run["status"], run["attempt"], run["result"]) == ("succeeded", 1, {"output": "Echo: hello"})
    assert run["usage"]["model_calls"] == 1
    assert run["created_at"] <= run["started_at"] <= run["ended_at"]
    with client.stream("GET", f"{url}/events") as stream:
        seen = list(sse_events(stream.iter_lines()))
    assert [name for _, name, _ in seen] == ["run_started", "model_call_finished", "run_finished", "result"]
    assert [number for number, _, _ in seen] == ["0", "1", "2", ""]
    assert [data.get("seq") for _, _, data in seen] == [0, 1, 2, None]
    assert seen[-1][2] == {"output": "Echo: hello"}
    assert {data["run_id"] for _, _, data in seen[:-1]} == {run["id"]}


def test_a_conversation(serve: Serve, database: str) -> None:
    """The body is that of `/run`: texts and images, earlier turns, characters that databases do not like."""
    requests: list[ModelRequest] = []

    def answer(request: ModelRequest) -> str:
        requests.append(request)
        return "odd \x00 \ud800 text"

    client = serve(Agent("helper", "Help.", FunctionModel(answer)), runs_database=database)
    earlier = [{"role": "user", "content": "Hi \x00"}, {"role": "assistant", "content": "Hello"}]
    image = {"type": "image_url", "image_url": {"url": "https://example.com/a.png"}}
    body = {"input": [{"type": "text", "text": "Look"}, image], "messages": earlier}
    run = wait(client, client.post("/runs", json=body).headers["location"])
    assert run["status"] == "succeeded", run["problem"]
    assert run["result"]["output"].startswith("odd \x00 ")
    assert [message.text for message in requests[0].messages] == ["Help.", "Hi \x00", "Hello", "Look"]


def test_an_idempotency_key_lasts_as_long_as_the_run(serve: Serve, database: str) -> None:
    """The same request with the same key is the same run, in another process too; another request is refused."""
    first, second = serve(ECHO, runs_database=database), serve(ECHO, runs_database=database)
    one, key = begin(first, "x", **{"idempotency-key": "k1"}), {"idempotency-key": "k1"}
    again = second.post("/runs", json={"input": "x"}, headers=key)
    assert (again.status_code, again.headers["location"]) == (202, one)
    assert again.headers["idempotency-replayed"] == "true"
    check_problem(second.post("/runs", json={"input": "y"}, headers=key), 422, "idempotency_key_reused")
    assert wait(second, one)["status"] == "succeeded"
    assert second.post("/runs", json={"input": "x"}, headers=key).json()["status"] == "succeeded"
    assert len(first.get("/runs").json()["runs"]) == 1
    begin(serve(FLOW, runs_database=database), "x", **key)  # another component has keys of its own
    assert len(first.get("/runs").json()["runs"]) == 2


def test_pages_of_runs(serve: Serve, database: str) -> None:
    """Newest first, by status and component, with a cursor from page to page."""
    client = serve(ECHO, runs_database=database)
    urls = [begin(client, str(number)) for number in range(5)]
    for url in urls:
        wait(client, url)
    seen, query = list[str](), {"limit": "2"}
    while True:
        page = client.get("/runs", params=query).json()
        seen += [f"/runs/{run['id']}" for run in page["runs"]]
        if page["next"] is None:
            break
        query["cursor"] = page["next"]
    assert seen == urls[::-1]
    counts = {
        query: len(client.get(f"/runs?{query}").json()["runs"])
        for query in ("status=succeeded", "status=failed", "status=failed&status=succeeded", "component=x",
                      "component=helper")
    }  # fmt: skip
    assert list(counts.values()) == [5, 0, 5, 0, 5]
    infinite = f"cursor=inf-{'0' * 32}"
    for query in ("cursor=x", "cursor=nan-x", infinite, "status=gone", "limit=0"):
        named = query.partition("=")[0]
        problem = check_problem(client.get(f"/runs?{query}"), 422, "request_invalid")
        assert f"uery parameter '{named}'" in problem["detail"]


def test_what_is_wrong_is_said_at_once(serve: Serve, database: str) -> None:
    """A wrong request stores no run; an unknown run is a 404."""
    client = serve(FLOW, runs_database=database)
    check_problem(client.post("/runs", json={}), 422, "request_invalid")
    check_problem(client.post("/runs", json={"input": "x", "start_step": 9}), 422, "resume_path_invalid")
    check_problem(client.post("/runs", json={"input": "x"}, headers={"podwright-budget": "?"}), 400, "header_invalid")
    assert client.get("/runs").json() == {"runs": [], "next": None}
    for method, path in (("GET", ""), ("GET", "/events"), ("POST", "/cancel"), ("POST", "/resume")):
        check_problem(client.request(method, f"/runs/{'0' * 32}{path}"), 404, "run_not_found")
    check_problem(client.post("/runs/x/approve", json={}), 404, "run_not_found")
    for path in ("?component=%00", "/%00"):
        assert client.get(f"/runs{path}").status_code in (200, 404, 422)
    url = begin(client)
    for number in ("-2", "x", str(2**80)):
        refused = client.get(f"{url}/events", headers={"last-event-id": number})
        problem = check_problem(refused, 422, "request_invalid")
        assert f"Header 'last-event-id' is '{number}'" in problem["detail"]
    wrong_method = check_problem(client.delete("/runs"), 405, "method_not_allowed")
    assert wrong_method["suggestion"] == f"Use {client.delete('/runs').headers['allow']} here."
    wrong_path = check_problem(client.post(f"{url}/aprove", json={}), 404, "not_found")
    assert wrong_path["suggestion"] == "Did you mean '/runs/{run_id}/approve'?"


def test_without_a_database_there_are_no_routes(serve: Serve) -> None:
    """The problem says which setting is missing."""
    problem = check_problem(serve(ECHO).post("/runs", json={"input": "x"}), 404, "not_found")
    assert "PODWRIGHT_RUNS_DATABASE" in problem["suggestion"]


def test_a_failed_run_is_resumed(serve: Serve, database: str) -> None:
    """It has the problem of `/run`; resumed, it goes on after what had finished."""
    calls: list[str] = []

    def fail_once(request: ModelRequest) -> str:
        calls.append(request.component)
        if calls == ["first", "second"]:
            raise ModelError("The provider is down.")
        return "fine"

    model = FunctionModel(fail_once)
    flow = Workflow("flow", steps=[Agent("first", "Do.", model), Agent("second", "Do.", model)])
    client = serve(flow, runs_database=database)
    url = begin(client)
    run = wait(client, url)
    assert (run["status"], run["problem"]["code"], run["problem"]["component"]) == ("failed", "model_failed", "second")
    assert run["problem"]["instance"] == url
    assert "context" not in run["problem"]
    resumed = client.post(f"{url}/resume")
    assert (resumed.status_code, resumed.json()["problem"]) == (202, None)
    run = wait(client, url)
    assert (run["status"], run["attempt"]) == ("succeeded", 2)
    assert run["result"]["second_output"] == "fine"
    assert run["usage"]["model_calls"] == 2
    assert calls == ["first", "second", "second"]
    check_problem(client.post(f"{url}/resume"), 409, "run_state_conflict")


def test_an_approval(serve: Serve, database: str) -> None:
    """The run waits with the question; approved, it goes on; the state is the stored one."""
    client = serve(FLOW, runs_database=database)
    url = begin(client)
    run = wait(client, url, "waiting_for_approval")
    assert run["approval"] == {"message": "Publish Echo: x?", "run_id": run["id"], "path": [1]}
    problem = check_problem(
        client.post(f"{url}/approve", json={"context": {"helper_output": "!"}}), 422, "request_invalid"
    )
    assert pointers(problem) == ["/context"]
    check_problem(client.post(f"{url}/approve", json={"attempt": 7}), 409, "run_state_conflict")
    approved = client.post(f"{url}/approve", json={"comment": "Good.", "attempt": run["attempt"]})
    assert approved.status_code == 202
    run = wait(client, url)
    assert (run["status"], run["attempt"], run["usage"]["model_calls"]) == ("succeeded", 2, 2)
    assert [decision | {"at": ""} for decision in run["decisions"]] == [
        {
            "message": "Publish Echo: x?",
            "run_id": run["id"],
            "path": [1],
            "approved": True,
            "comment": "Good.",
            "attempt": 1,
            "at": "",
        }
    ]
    check_problem(client.post(f"{url}/approve", json={}), 409, "run_state_conflict")


@pytest.mark.parametrize("named", [True, False], ids=["with the attempt", "without"])
@pytest.mark.parametrize("action", ["approve", "reject"])
def test_a_decision_whose_answer_was_lost(serve: Serve, database: str, action: str, named: bool) -> None:
    """The same decision of the same key is the same answer; another one, or that of another key, is a conflict."""
    client = serve(FLOW, runs_database=database, api_keys=("a" * 20, "b" * 20))
    first, second = ({"authorization": f"Bearer {letter * 20}"} for letter in "ab")
    client.headers.update(first)
    url = begin(client)
    decision = {"comment": "So be it."}
    attempt = wait(client, url, "waiting_for_approval")["attempt"]
    decision |= {"attempt": attempt} if named else {}
    assert client.post(f"{url}/{action}", json=decision).status_code == 202
    again = client.post(f"{url}/{action}", json=decision)
    assert again.status_code == 202
    assert len(again.json()["decisions"]) == 1
    ended = wait(client, url)
    assert client.post(f"{url}/{action}", json=decision).json()["status"] == ended["status"]
    check_problem(client.post(f"{url}/{action}", json={**decision, "comment": "?"}), 409, "run_state_conflict")
    check_problem(client.post(f"{url}/{action}", json=decision, headers=second), 409, "run_state_conflict")
    other = {"approve": "reject", "reject": "approve"}[action]
    check_problem(client.post(f"{url}/{other}", json=decision), 409, "run_state_conflict")


def test_a_cancel_that_came_too_late(serve: Serve, database: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run that had ended when it was cancelled, but for its end being stored, succeeds and says so."""
    write, ending, cancelled = RunStore.write, threading.Event(), threading.Event()

    async def slow(store: RunStore, updates: Any) -> Any:
        written = list(updates)
        if any(update.values.get("status") == "succeeded" for update in written):
            ending.set()
            await asyncio.to_thread(cancelled.wait, 30)
        return await write(store, written)

    monkeypatch.setattr(RunStore, "write", slow)
    client = serve(ECHO, runs_database=database)
    url = begin(client)
    assert ending.wait(30)
    assert client.post(f"{url}/cancel").status_code == 202
    cancelled.set()
    run = wait(client, url)
    assert (run["status"], run["result"]) == ("succeeded", {"output": "Echo: x"})
    assert "too late" in run["notice"]


INSIDE = Workflow("inside", steps=[ECHO, ApprovalStep("Sure?"), AgentStep(ECHO, "last")])


async def run_inside(text: str) -> str:
    """Run the workflow."""
    return str(await INSIDE.arun({"input": text}))


def ask_inside(request: ModelRequest) -> Any:
    """Call the tool once."""
    return "done" if request.messages[-1].role == "tool" else ToolCall.of("run_inside", "c1", text="x")


@pytest.mark.parametrize(
    "component",
    [
        Pipeline("line", steps=[ECHO, INSIDE]),
        Workflow("outer", steps=[AgentStep(Pipeline("line", steps=[ECHO, INSIDE]), "line")]),
        Agent("caller", "Call.", FunctionModel(ask_inside), tools=[run_inside]),
    ],
    ids=["pipeline", "pipeline in a workflow", "tool"],
)
def test_an_approval_inside_other_components(serve: Serve, sqlite_database: str, component: Component) -> None:
    """It is asked for once, wherever the workflow with the step is, and the process goes on with other runs."""
    client = serve(component, runs_database=sqlite_database, unfinished_tool_calls="repeat")
    url, other = begin(client), begin(client)
    for each in (url, other):
        wait(client, each, "waiting_for_approval")
    assert client.post(f"{url}/approve", json={}).status_code == 202
    assert wait(client, url, *ENDED, "waiting_for_approval")["status"] == "succeeded"
    assert client.post(f"{other}/cancel").json()["status"] == "cancelled"


def test_a_cancelled_run_does_not_wait_for_approval(serve: Serve, database: str) -> None:
    """If it pauses before its process sees that another one was asked to cancel it, it ends all the same."""
    gate = Gate()
    flow = Workflow("flow", steps=[gate.agent(), ApprovalStep("Sure?")])
    performer = serve(flow, runs_database=database)
    other = serve(flow, runs_database=database)
    url = begin(performer)
    gate.called.wait(30)
    other.post(f"{url}/cancel")
    gate.opened.set()
    assert wait(other, url, *ENDED)["status"] == "cancelled"


def test_a_tool_that_went_on_after_a_failure(serve: Serve, sqlite_database: str) -> None:
    """A failed branch cancels the other, whose tool goes on in its thread: resuming asks a person first."""
    calls, called, done, broken = list[str](), threading.Event(), threading.Event(), [True]

    def charge(amount: str) -> str:
        """Charge."""
        calls.append(amount)
        called.set()
        done.wait(30)
        return "charged"

    def pay(request: ModelRequest) -> Any:
        return "paid" if request.messages[-1].role == "tool" else ToolCall.of("charge", "c1", amount="5")

    async def fail(request: ModelRequest) -> str:
        if broken:
            await asyncio.to_thread(called.wait, 30)
            raise ModelError("The provider is down.")
        return "fine"

    branches = [
        [Agent("payer", "Pay.", FunctionModel(pay), tools=[charge])],
        [Agent("failing", "Fail.", FunctionModel(fail))],
    ]
    client = serve(Workflow("flow", steps=[ParallelStep(branches)]), runs_database=sqlite_database)
    url = begin(client)
    assert wait(client, url)["status"] == "failed"
    done.set()
    broken.clear()
    client.post(f"{url}/resume")
    run = wait(client, url)
    assert (run["status"], run["problem"]["code"]) == ("interrupted", "run_interrupted")
    assert "'charge' of 'payer'" in run["problem"]["detail"]
    assert calls == ["5"]
    client.post(f"{url}/resume")
    assert wait(client, url)["status"] == "succeeded"
    assert calls == ["5", "5"]


def test_a_process_does_not_take_its_own_runs_over(
    serve: Serve, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Although it could not renew its lease for a while, for example because its machine slept."""
    gate = Gate()
    client = serve(gate.agent(), runs_database=database)
    monkeypatch.setattr("podwright_service.background.store.LEASE_SECONDS", -1.0)
    url = begin(client)
    gate.called.wait(30)
    time.sleep(4)  # longer than it takes to look for runs and to renew
    gate.opened.set()
    run = wait(client, url)
    assert (run["status"], run["attempt"]) == ("succeeded", 1)


def test_a_run_that_is_added_while_the_process_looks_for_others(
    serve: Serve, sqlite_database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It begins at once, and is performed once."""
    claim, looking = RunStore.claim, threading.Event()

    async def slow(store: RunStore, *arguments: Any) -> Any:
        looking.set()
        await asyncio.sleep(0.5)
        return await claim(store, *arguments)

    gate = Gate()
    monkeypatch.setattr(RunStore, "claim", slow)
    client = serve(gate.agent(), runs_database=sqlite_database)
    assert looking.wait(30)
    url = begin(client)
    assert client.get(url).json()["status"] == "running"
    assert gate.called.wait(30)
    gate.opened.set()
    assert wait(client, url)["attempt"] == 1
    assert len(gate.inputs) == 1


def test_a_rejection(serve: Serve, database: str) -> None:
    """The run ends, with the comment as its problem, and is not resumed."""
    client = serve(FLOW, runs_database=database)
    url = begin(client)
    wait(client, url, "waiting_for_approval")
    run = client.post(f"{url}/reject", json={"comment": "Too dull."}).json()
    assert (run["status"], run["problem"]["code"]) == ("cancelled", "approval_rejected")
    assert "Too dull." in run["problem"]["detail"]
    check_problem(client.post(f"{url}/resume"), 409, "run_state_conflict")


@pytest.mark.parametrize(("action", "status"), [("approve", "succeeded"), ("reject", "cancelled")])
def test_the_examples_of_the_document_work(serve: Serve, sqlite_database: str, action: str, status: str) -> None:
    """A run is started and decided as the API page shows it."""
    client = serve(FLOW, runs_database=sqlite_database)
    document = client.get("/openapi.json").json()

    def examples(path: str) -> list[Any]:
        content = document["paths"][path]["post"]["requestBody"]["content"]["application/json"]
        return [named["value"] for named in content["examples"].values()]

    (decision,) = examples(f"/runs/{{run_id}}/{action}")
    for body in examples("/runs"):
        url = client.post("/runs", json=body).headers["location"]
        wait(client, url, "waiting_for_approval")
        assert client.post(f"{url}/{action}", json=decision).status_code == 202
        assert wait(client, url)["status"] == status


def test_approval_has_a_scope_of_its_own(serve: Serve, database: str) -> None:
    """A key that may run may not approve; one that may approve reads what it decides about, and nothing else."""
    keys = ("run:" + "r" * 20, "approve:" + "a" * 20)
    client = serve(FLOW, runs_database=database, api_keys=keys)
    runner, approver = ({"authorization": f"Bearer {letter * 20}"} for letter in "ra")
    url, ended = (client.post("/runs", json={"input": "x"}, headers=runner).headers["location"] for _ in range(2))
    for each in (url, ended):
        until(lambda each=each: client.get(each, headers=runner).json()["status"] == "waiting_for_approval")
    client.post(f"{ended}/cancel", headers=runner)
    for path in ("approve", "reject"):
        assert check_problem(client.post(f"{url}/{path}", json={}, headers=runner), 403, "scope_missing")
    whole = client.get(url, headers=runner).json()
    shown = client.get(url, headers=approver).json()
    assert shown == {name: whole[name] for name in ("id", "component", "status", "attempt", "created_at", "approval")}
    assert client.get("/runs", headers=approver).json() == {"runs": [shown], "next": None}
    assert client.get("/runs?status=waiting_for_approval", headers=approver).json()["runs"] == [shown]
    for path in (f"{url}/events", ended, "/runs?status=cancelled", "/runs?status=waiting_for_approval&status=failed"):
        check_problem(client.get(path, headers=approver), 403, "scope_missing")
    for path in ("/runs", f"{url}/cancel", f"{url}/resume"):
        check_problem(client.post(path, json={"input": "x"}, headers=approver), 403, "scope_missing")
    check_problem(client.get(url), 401, "key_required")
    decided = client.post(f"{url}/approve", json={}, headers=approver)
    assert decided.status_code == 202
    assert decided.json() == shown | {"status": "queued", "approval": None}


def test_cancelling(serve: Serve, database: str) -> None:
    """A run is cancelled wherever it is performed, its model call included; a waiting one at once."""
    gate = Gate()
    performer = serve(gate.agent(), runs_database=database, background_runs=1)
    other = serve(gate.agent(), runs_database=database, background_runs=1)
    url = begin(performer)
    gate.called.wait(30)
    wait(performer, url, "running")
    other.post(f"{url}/cancel")
    gate.cancelled.wait(30)
    run = wait(other, url)
    assert (run["status"], run["problem"]["code"]) == ("cancelled", "run_cancelled")
    check_problem(other.post(f"{url}/cancel"), 409, "run_state_conflict")
    gate.opened.set()


def test_a_waiting_run_is_cancelled_at_once(serve: Serve, database: str) -> None:
    """Nothing of it is performed."""
    client = serve(FLOW, runs_database=database)
    url = begin(client)
    wait(client, url, "waiting_for_approval")
    assert client.post(f"{url}/cancel").json()["status"] == "cancelled"


def test_no_more_runs_than_allowed(serve: Serve, database: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not even if one begins while the process looks for others."""
    gate, claim, looking, looked = Gate(), RunStore.claim, threading.Event(), threading.Event()

    async def slow(store: RunStore, *arguments: Any) -> Any:
        looking.set()
        await asyncio.sleep(0.5)
        runs = await claim(store, *arguments)
        looked.set()
        return runs

    monkeypatch.setattr(RunStore, "claim", slow)
    client = serve(gate.agent(), runs_database=database, background_runs=1)
    assert looking.wait(30)
    urls = [begin(client) for _ in range(3)]
    assert looked.wait(30)
    assert sorted(client.get(url).json()["status"] for url in urls) == ["queued", "queued", "running"]
    gate.opened.set()
    assert [wait(client, url)["status"] for url in urls] == ["succeeded"] * 3


def test_a_run_waits_for_its_blueprint(serve: Serve, database: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A service with another blueprint does not perform it, and says what it waits for."""
    gate = Gate()
    old = serve(gate.agent(), runs_database=database, background_runs=1)
    blocking, url = begin(old), begin(old)
    gate.called.wait(30)
    claims, claim = list[str](), RunStore.claim

    async def count(store: RunStore, worker: str, component: str, digest: str, most: int) -> Any:
        claims.append(digest)
        return await claim(store, worker, component, digest, most)

    monkeypatch.setattr(RunStore, "claim", count)
    other = serve(ECHO, runs_database=database)
    until(lambda: claims.count(other.get("/info").json()["digest"]) == 2)
    run = other.get(url).json()
    assert run["status"] == "queued"
    assert (
        run["notice"]
        == f"It waits for a service with the blueprint {old.get('/info').json()['digest']}; this one has another."
    )
    gate.opened.set()
    assert wait(other, url)["status"] == wait(other, blocking)["status"] == "succeeded"


def test_a_reader_that_connects_again_misses_nothing(serve: Serve, database: str) -> None:
    """Fifty readers after each other, on two services, see each event once while the run goes on."""
    pause = threading.Event()

    def answer(request: ModelRequest) -> Any:
        pause.wait(0.01)
        turn = sum(message.role == "tool" for message in request.messages)
        return ToolCall.of("look", f"c{turn}", place=f"p{turn}") if turn < 30 else "done"

    def look(place: str) -> str:
        """Look."""
        return f"nothing in {place}"

    agent = Agent("looker", "Look.", FunctionModel(answer), tools=[look], max_loops=40)
    clients = [serve(agent, runs_database=database) for _ in range(2)]
    url, seen, connections = begin(clients[0]), list[int](), 0
    while not seen or seen[-1] != -1:
        last = {"last-event-id": str(seen[-1])} if seen else {}
        with clients[connections % 2].stream("GET", f"{url}/events", headers=last) as stream:
            for number, (_, name, data) in enumerate(sse_events(stream.iter_lines())):
                seen.append(-1 if name == "result" else data["seq"])
                if number == 1:
                    break
        connections += 1
    assert connections >= 47
    assert seen[:-1] == list(range(len(seen) - 1))
    run = wait(clients[0], url)
    assert len(seen) - 1 == 2 + 31 + 60
    assert run["usage"]["tool_calls"] == 30


def test_a_reader_that_leaves_is_not_an_error(
    serve: Serve, sqlite_database: str, caplog: pytest.LogCaptureFixture
) -> None:
    """A client that closes its connection during the events leaves no error in the log."""
    gate = Gate()
    never = {"name": "is_empty", "args": {"value": "x"}}
    loop = LoopStep([Agent("echo", "Help.", EchoModel())], until=never, max_iterations=40, name="loop")
    flow = Workflow("flow", steps=[loop, AgentStep(gate.agent(), "wait")])
    client = serve(flow, runs_database=sqlite_database, run_model_calls=100)
    url = begin(client)
    assert gate.called.wait(30)
    for length in (1, 3000, 20_000) * 5:
        with client.stream("GET", f"{url}/events") as stream:
            read = 0
            for chunk in stream.iter_raw():
                read += len(chunk)
                if read >= length:
                    break
    gate.opened.set()
    assert wait(client, url)["status"] == "succeeded"
    assert [record.getMessage() for record in caplog.records if record.levelname == "ERROR"] == []


def test_limits_are_those_of_the_request(serve: Serve, database: str) -> None:
    """`Podwright-Budget` of `POST /runs` holds for the run."""
    client = serve(FLOW, runs_database=database)
    url = begin(client, **{"podwright-budget": "model_calls=1"})
    wait(client, url, "waiting_for_approval")
    client.post(f"{url}/approve", json={})
    two_lines = [("podwright-budget", "tokens=1000"), ("podwright-budget", "model_calls=1")]
    other = client.post("/runs", json={"input": "x"}, headers=two_lines).headers["location"]
    wait(client, other, "waiting_for_approval")
    client.post(f"{other}/approve", json={})
    assert wait(client, other)["problem"]["limit"] == "model_calls"
    run = wait(client, url)
    assert (run["status"], run["problem"]["code"], run["problem"]["limit"]) == (
        "failed",
        "limit_exceeded",
        "model_calls",
    )


def test_ended_runs_are_deleted(serve: Serve, database: str) -> None:
    """After the retention time, neither run nor events are left."""
    client = serve(ECHO, runs_database=database)
    url = begin(client)
    wait(client, url)
    flow = serve(FLOW, runs_database=database)
    other = begin(flow)
    wait(flow, other, "waiting_for_approval")
    assert flow.post(f"{other}/cancel").status_code == 202
    serve(FLOW, runs_database=database, runs_retention=0)
    until(lambda: flow.get(other).status_code == 404)
    assert client.get(url).status_code == 200  # the retention time is that of the component
    cleaner = serve(ECHO, runs_database=database, runs_retention=0)
    until(lambda: cleaner.get(url).status_code == 404)
    check_problem(client.get(f"{url}/events"), 404, "run_not_found")
    assert client.get("/runs").json()["runs"] == []


def test_metrics(serve: Serve, database: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Background runs are counted as runs, and by their status."""
    monkeypatch.setattr("podwright_service.background.worker.METRICS_INTERVAL", 0.1)
    client = serve(FLOW, runs_database=database)
    wait(client, begin(client), "waiting_for_approval")
    labels = 'component="flow",kind="workflow"'
    waiting = f'podwright_background_runs{{{labels},status="waiting_for_approval"}} 1.0'
    until(lambda: waiting in client.get("/metrics").text)
    text = client.get("/metrics").text
    assert f'podwright_background_attempts_total{{{labels},outcome="waiting_for_approval"}} 1.0' in text
    assert f'podwright_runs_total{{{labels},status="paused"}} 1.0' in text
    assert f"podwright_background_database_up{{{labels}}} 1.0" in text


def test_metrics_without_the_database(serve: Serve, sqlite_database: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The age of the queue grows while no process is free; a metric says whether the database is reached."""
    monkeypatch.setattr("podwright_service.background.worker.METRICS_INTERVAL", 0.1)
    gate, labels = Gate(), 'component="helper",kind="agent"'
    client = serve(gate.agent(), runs_database=sqlite_database, background_runs=1)
    for _ in range(2):
        begin(client)

    def queue_age() -> float:
        found = re.search(rf"podwright_background_queue_age_seconds{{{labels}}} (.*)", client.get("/metrics").text)
        return float(found[1]) if found else 0.0

    until(lambda: queue_age() > 0.5)

    async def fail(store: RunStore, component: str) -> Any:
        raise DatabaseUnavailableError("Away.", "Wait.")

    with monkeypatch.context() as patch:
        patch.setattr(RunStore, "counts", fail)
        until(lambda: f"podwright_background_database_up{{{labels}}} 0.0" in client.get("/metrics").text)
    until(lambda: f"podwright_background_database_up{{{labels}}} 1.0" in client.get("/metrics").text)
    gate.opened.set()


# --- Clients ------------------------------------------------------------------------------------------------------


def test_the_command_line(serve: Serve, shell: Shell, sqlite_database: str) -> None:
    """`podwright runs` starts, lists, shows, follows, approves, rejects, cancels and resumes."""
    client = serve(FLOW, runs_database=sqlite_database, api_keys=("k" * 20,))
    client.headers["authorization"] = f"Bearer {'k' * 20}"
    access = ("--url", str(client.base_url), "--api-key", "k" * 20)

    def runs(*arguments: str) -> str:
        done = shell("runs", *arguments, *access)
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    first, second, third = runs("start", "hello"), runs("start", "--inputs", '{"topic": "x"}'), runs("start", "z")
    for run_id in (first, second, third):
        wait(client, f"/runs/{run_id}", "waiting_for_approval")
    assert json.loads(runs("show", first))["approval"]["message"] == "Publish Echo: hello?"
    assert [line.split()[0] for line in runs("list", "--status", "waiting_for_approval").splitlines()] == [
        third, second, first,
    ]  # fmt: skip
    later = shell("runs", "approve", first, "--attempt", "2", *access)
    assert (later.returncode, "in attempt 1" in later.stderr) == (1, True)
    assert runs("approve", first, "--comment", "Good.", "--attempt", "1") == "queued"
    assert runs("reject", second) == "cancelled"
    assert runs("cancel", third) == "cancelled"
    followed = shell("runs", "follow", first, *access)
    assert followed.returncode == 0
    assert json.loads(followed.stdout)["helper_output"] == json.loads(runs("show", first))["result"]["helper_output"]
    assert "waiting for approval: Publish Echo: hello?" in followed.stderr
    assert "null" not in followed.stderr  # inputs are not stored
    rejected = shell("runs", "follow", second, *access)
    assert (rejected.returncode, "rejected" in rejected.stderr) == (1, True)
    refused = shell("runs", "resume", second, *access)
    assert (refused.returncode, "failed or was interrupted" in refused.stderr) == (1, True)
    assert len(json.loads(runs("list", "--json"))) == 3
    wrong_key = shell("runs", "list", "--url", str(client.base_url), "--api-key", "wrong")
    assert (wrong_key.returncode, "Unknown API key" in wrong_key.stderr) == (1, True)
    away = shell("runs", "list", "--url", "http://127.0.0.1:1")
    assert (away.returncode, "cannot be reached" in away.stderr) == (1, True)


def test_following_goes_on_when_the_connection_is_lost(
    command: Command, address: Address, shell: Shell, tmp_path: Path, sqlite_database: str
) -> None:
    """`podwright runs follow` connects to the restarted service, and shows each step once."""
    (tmp_path / "component.py").write_text(SLOW_COMPONENT)
    variables = {"PODWRIGHT_RUNS_DATABASE": sqlite_database}
    arguments = ("serve", "component:flow", "--host", "127.0.0.1", "--port")
    service = command(*arguments, "0", cwd=tmp_path, **variables)
    url = address(service)
    run_id = shell("runs", "start", "x", "--url", url).stdout.strip()
    follower = command("runs", "follow", run_id, "--url", url)
    until(lambda: plain_http.get(f"{url}/runs/{run_id}").json()["status"] == "running")
    service.send_signal(signal.SIGTERM)
    assert service.wait(30) == 0
    address(command(*arguments, url.rpartition(":")[2], cwd=tmp_path, **variables))
    output, _ = follower.communicate(timeout=60)
    assert follower.returncode == 0
    assert [output.count(f"[a{number}] final answer") for number in range(6)] == [1] * 6
    assert json.loads(output[output.index("\n{") :])["a5_output"].startswith("Echo")
    assert plain_http.get(f"{url}/runs/{run_id}").json()["attempt"] == 2


SLOW_COMPONENT = """
import asyncio
from podwright import Agent, FunctionModel, Workflow

async def answer(request):
    await asyncio.sleep(0.5)
    return "Echo"

flow = Workflow("flow", steps=[Agent(f"a{number}", "Do.", FunctionModel(answer)) for number in range(6)])
"""


def test_migrating_by_command(shell: Shell, postgresql: PostgreSQL, command: Command, address: Address) -> None:
    """Without its tables a service says what to do; `podwright runs migrate` creates them, and may be repeated."""
    url = postgresql.database()
    process = command("serve", str(NEWSROOM / "writer"), "--host", "127.0.0.1", "--port", "0",
                      PODWRIGHT_RUNS_DATABASE=url, PODWRIGHT_MODEL="offline/echo")  # fmt: skip
    with httpx.Client(verify=NO_AUTHORITIES, base_url=address(process)) as client:
        problem = check_problem(client.post("/runs", json={"input": "x"}), 503, "runs_unavailable")
        assert "podwright runs migrate" in problem["suggestion"]
        for _ in range(2):
            done = shell("runs", "migrate", PODWRIGHT_RUNS_DATABASE=url)
            assert (done.returncode, done.stdout) == (0, "The tables are up to date.\n")
        run_url = begin(client)
        assert wait(client, run_url)["status"] == "succeeded"
    assert shell("runs", "migrate").returncode == 1
    assert "PODWRIGHT_RUNS_DATABASE" in shell("runs", "migrate", PODWRIGHT_RUNS_DATABASE="mysql://x/y").stderr
    away = shell("runs", "migrate", PODWRIGHT_RUNS_DATABASE="postgresql://user:secret@127.0.0.1:1/x")
    assert away.returncode == 1
    assert "secret" not in away.stderr


def test_the_testing_kit(tmp_path: Path) -> None:
    """`component.runs` of the testing kit has the same operations."""
    (tmp_path / "component.py").write_text(SLOW_COMPONENT.replace("0.5", "0"))
    env = {"PODWRIGHT_RUNS_DATABASE": f"sqlite:///{tmp_path}/runs.db", "PYTHONPATH": str(tmp_path)}
    with ComponentProcess("component:flow", env=env) as component:
        run = component.runs.start("x", headers={"idempotency-key": "k"})
        assert component.runs.start("x", headers={"idempotency-key": "k"})["id"] == run["id"]
        ended = component.runs.wait(run["id"])
        assert ended["result"]["a5_output"] == "Echo"
        assert [found["id"] for found in component.runs.list("succeeded")] == [run["id"]]
        seen = list(component.runs.events(run["id"]))
        assert (seen[0].type, seen[-1].type) == ("run_started", "run_finished")
        assert [event.seq for event in component.runs.events(run["id"], 3)] == list(range(4, len(seen)))
        for action in (component.runs.cancel, component.runs.resume, component.runs.approve, component.runs.reject):
            with pytest.raises(ProblemError, match="run_state_conflict"):
                action(run["id"])
        with pytest.raises(ProblemError, match="run_not_found"):
            list(component.runs.events("x"))
        with pytest.raises(TimeoutError):
            component.runs.wait(run["id"], "failed", within=0.1)


def test_the_spans_of_attempts(tmp_path: Path) -> None:
    """All attempts are in the trace of the request; each links to the one before, and has only its own calls."""
    (tmp_path / "component.py").write_text(APPROVED_COMPONENT)
    env = {"PODWRIGHT_RUNS_DATABASE": f"sqlite:///{tmp_path}/runs.db", "PYTHONPATH": str(tmp_path)}
    with SpanCollector() as spans, ComponentProcess("component:flow", env=env, spans=spans) as component:
        run = component.runs.start("x")
        component.runs.wait(run["id"], "waiting_for_approval")
        component.runs.approve(run["id"])
        component.runs.wait(run["id"], "succeeded")
        component.stop()
        attempts = [span for span in spans.spans if span.name == "invoke_workflow flow"]
        request = next(span for span in spans.spans if span.name == "POST /runs")
        assert [span.parent for span in attempts] == [request.id, request.id]
        assert [[link for _, link in span.links] for span in attempts] == [[], [attempts[0].id]]
        assert {span.attributes["podwright.run.id"] for span in attempts} == {run["id"]}
        assert sum(span.name.startswith("chat") for span in spans.spans) == 2
        assert sum(span.name.startswith("step first") for span in spans.spans) == 1


APPROVED_COMPONENT = """
from podwright import Agent, ApprovalStep, Workflow

first, last = (Agent(name, "Do.", "offline/echo") for name in ("first", "last"))
flow = Workflow("flow", steps=[first, ApprovalStep("Sure?"), last])
"""


def test_a_run_that_ends_its_processes_waits_for_a_person(
    serve: Serve, sqlite_database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After ten processes that ended during a run, it is interrupted; resumed, it has another ten."""
    gate = Gate()
    client = serve(gate.agent(), runs_database=sqlite_database)
    url = begin(client)
    gate.called.wait(30)
    monkeypatch.setattr("podwright_service.background.store.LEASE_SECONDS", -1.0)
    monkeypatch.setattr("podwright_service.background.attempt.MAX_TAKEOVERS", 2)
    others = [serve(gate.agent(), runs_database=sqlite_database) for _ in range(2)]
    run = wait(client, url, "interrupted")
    assert run["problem"]["code"] == "run_interrupted"
    assert "2 processes ended" in run["problem"]["detail"]
    monkeypatch.undo()
    gate.opened.set()
    others[0].post(f"{url}/resume")
    assert wait(client, url)["status"] == "succeeded"


def test_a_run_whose_events_cannot_be_stored_is_taken_again(
    serve: Serve, sqlite_database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An error that nobody expected ends the attempt, not the run, and the process goes on."""
    write, errors = RunStore.write, [RuntimeError("unexpected")]

    async def fail_once(store: RunStore, updates: Any) -> set[str]:
        if errors:
            raise errors.pop()
        return await write(store, updates)

    monkeypatch.setattr(RunStore, "write", fail_once)
    client = serve(ECHO, runs_database=sqlite_database)
    run = wait(client, begin(client))
    assert (run["status"], run["attempt"]) == ("succeeded", 2)


def test_a_shutdown_while_the_end_is_stored(
    served: Served, sqlite_database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run that is at its end ends, instead of moving to a process that makes its calls again."""
    write, ending = RunStore.write, threading.Event()

    async def write_slowly(store: RunStore, updates: Any) -> set[str]:
        updates = list(updates)
        if any(each.values.get("status") == "succeeded" for each in updates):
            ending.set()
            await asyncio.sleep(0.5)
        return await write(store, updates)

    monkeypatch.setattr(RunStore, "write", write_slowly)
    with served(ECHO, runs_database=sqlite_database) as client:
        url = begin(client)
        ending.wait(30)
    with served(ECHO, runs_database=sqlite_database) as client:
        run = client.get(url).json()
        assert (run["status"], run["attempt"]) == ("succeeded", 1)


def test_a_shutdown_while_a_run_is_taken_up(
    served: Served, sqlite_database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process that has not begun a run yet does not wait for it."""
    read, reading = RunStore.events, threading.Event()

    async def read_slowly(store: RunStore, run_id: str, *arguments: Any) -> Any:
        reading.set()
        await asyncio.sleep(0.5)
        return await read(store, run_id, *arguments)

    with served(FLOW, runs_database=sqlite_database, shutdown_timeout=60) as client:
        url = begin(client)
        wait(client, url, "waiting_for_approval")
        monkeypatch.setattr(RunStore, "events", read_slowly)
        client.post(f"{url}/approve", json={})
        reading.wait(30)
        stopped = time.monotonic()
    assert time.monotonic() - stopped < 30
    with served(FLOW, runs_database=sqlite_database) as client:
        assert wait(client, url)["status"] == "succeeded"


def test_a_model_that_cancels_itself(serve: Serve, sqlite_database: str) -> None:
    """The run fails, as with any unexpected error: it would end each attempt in this way."""

    async def cancel(request: ModelRequest) -> str:
        raise asyncio.CancelledError

    client = serve(Agent("helper", "Help.", FunctionModel(cancel)), runs_database=sqlite_database)
    run = wait(client, begin(client))
    assert (run["status"], run["attempt"], run["problem"]["code"]) == ("failed", 1, "internal_error")


def test_an_interrupted_run_is_cancelled(serve: Serve, sqlite_database: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """So a person who does not want it to go on ends the alert."""
    monkeypatch.setattr("podwright_service.background.attempt.MAX_TAKEOVERS", 0)
    client = serve(ECHO, runs_database=sqlite_database)
    url = begin(client)
    wait(client, url, "interrupted")
    assert client.post(f"{url}/cancel").json()["status"] == "cancelled"
    check_problem(client.post(f"{url}/cancel"), 409, "run_state_conflict")


async def test_cancelling_a_run_that_moves(postgresql_database: str) -> None:
    """A run that goes back to the queue while it is cancelled is cancelled."""
    url = database_url(postgresql_database)
    migrate(url)
    store, engine = RunStore(url), create_async_engine(url)
    await store.add({"id": "r", "component": "c", "digest": "d", "request": {}}, "worker")
    async with engine.begin() as connection:
        await connection.execute(update(runs).values(status="queued"))
        cancelling = asyncio.create_task(store.cancel("r"))
        await asyncio.sleep(0.3)
    changed = await cancelling
    assert changed is not None
    assert changed["status"] == "cancelled"
    await asyncio.gather(store.close(), engine.dispose())


async def test_a_new_process_does_not_take_runs_over_at_once(database: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The database may just be back, and the process that performs a run may not have renewed its lease yet."""
    url = database_url(database)
    migrate(url)
    held, new = RunStore(url), RunStore(url)
    monkeypatch.setattr("podwright_service.background.store.LEASE_SECONDS", 0.5)
    await held.add({"id": "r", "component": "c", "digest": "d", "request": {}}, "worker")
    assert await new.claim_orphans("other", "c", "d", 9, ()) == []
    await asyncio.sleep(0.6)
    (claimed,) = await new.claim_orphans("other", "c", "d", 9, ())
    assert (claimed["attempt"], claimed["worker"]) == (2, "other")
    assert await held.write([AttemptUpdate("r", 1, [(0, {"type": "late"})], {"status": "succeeded"})]) == {"r"}
    assert await held.events("r") == []
    third = RunStore(url)
    await new.renew("other", "c")
    await asyncio.sleep(0.6)
    await third.join("third", "c")  # the database was reached a moment ago, so that the other one is dead
    assert len(await third.claim_orphans("third", "c", "d", 9, ())) == 1
    await asyncio.gather(held.close(), new.close(), third.close())


def change(database: str, url: str, **values: Any) -> None:
    """Change the row of a run, as a process does that has since died."""
    driver = database_url(database)
    engine = create_engine(driver.set(drivername=driver.drivername.replace("+aiosqlite", "")))
    with engine.begin() as connection:
        connection.execute(update(runs).where(runs.c.id == url.rpartition("/")[2]).values(**values))
    engine.dispose()


def test_runs_of_dead_processes_come_before_those_that_wait(
    serve: Serve, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While more runs wait than a process can perform, those of a dead process are taken over all the same."""
    monkeypatch.setattr("podwright_service.background.store.LEASE_SECONDS", 0.5)
    performed = list[str]()

    async def respond(request: ModelRequest) -> str:
        await asyncio.sleep(0.2)
        performed.append(request.messages[-1].text)
        return "done"

    client = serve(Agent("helper", "Help.", FunctionModel(respond)), runs_database=database, background_runs=1)
    urls = [begin(client, str(number)) for number in range(20)]
    change(database, urls[-1], status="running", attempt=1, worker="dead")
    for url in urls:
        assert wait(client, url)["status"] == "succeeded"
    assert performed.index("19") < performed.index("18")


def test_a_cancelled_run_keeps_the_usage_of_the_attempts_before(
    serve: Serve, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An attempt that is cancelled before it has read what was used does not say that nothing was."""
    reads = threading.Event()

    async def never(store: RunStore, *arguments: Any) -> Any:
        reads.set()
        await asyncio.Event().wait()

    gate = Gate()
    client = serve(gate.agent(), runs_database=database, background_runs=1)
    begin(client)
    assert gate.called.wait(30)
    url = begin(client)
    monkeypatch.setattr(RunStore, "events", never)
    change(database, url, attempt=1, usage=Usage(7, 1).to_dict() | {"model_calls": 3})
    gate.opened.set()
    assert reads.wait(30)
    assert client.post(f"{url}/cancel").status_code == 202
    assert wait(client, url, "cancelled")["usage"]["model_calls"] == 3


async def test_a_failure_ends_the_run_although_another_call_waits() -> None:
    """While a process drains, a call that fails is not taken for one that was stopped."""

    async def run(*, is_caught: bool) -> Any:
        gate, begun, opened = CallGate(), asyncio.Event(), asyncio.Event()

        async def fail() -> None:
            async with gate.call(in_tool=False):
                begun.set()
                await opened.wait()
                raise ValueError("failed")

        async def fail_in_a_group() -> None:
            await asyncio.gather(fail(), return_exceptions=is_caught)

        async def wait_for_it() -> None:
            await begun.wait()
            async with gate.call(in_tool=False):
                pytest.fail("it began")

        async def both() -> None:
            await asyncio.gather(fail_in_a_group(), wait_for_it())

        task = asyncio.create_task(both())
        gate.guard(task)
        await begun.wait()
        gate.drain()
        await asyncio.sleep(0.01)
        opened.set()
        async with asyncio.timeout(10):
            await task

    with pytest.raises(ValueError, match="failed"):
        await run(is_caught=False)
    with pytest.raises(asyncio.CancelledError):
        await run(is_caught=True)


@pytest.mark.parametrize("error", [DatabaseUnavailableError("Away.", "Wait."), RuntimeError("unexpected")])
def test_work_that_fails_is_repeated_at_intervals(
    serve: Serve, sqlite_database: str, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    """A process that cannot look for runs tries it again, without taking the CPU, and goes on when it can."""
    claim, tries, broken = RunStore.claim, list[float](), [True]

    async def fail(store: RunStore, *arguments: Any) -> Any:
        tries.append(time.monotonic())
        if broken:
            raise error
        return await claim(store, *arguments)

    monkeypatch.setattr(RunStore, "claim", fail)
    gate = Gate()
    client = serve(gate.agent(), runs_database=sqlite_database, background_runs=1)
    until(lambda: len(tries) >= 3, 30)
    assert tries[2] - tries[0] >= 1.9
    begin(client)
    waiting = begin(client)  # there is no room for it, so that it must be looked for
    broken.clear()
    gate.opened.set()
    assert wait(client, waiting)["status"] == "succeeded"


def test_the_migrations_make_the_tables(database: str) -> None:
    """The tables that the migrations create are those that the code uses."""
    url = database_url(database)
    migrate(url)
    engine = create_engine(url.set(drivername=url.drivername.replace("+aiosqlite", "")))
    with engine.connect() as connection:
        context = MigrationContext.configure(connection, opts={"version_table": "podwright_migrations"})
        changes = compare_metadata(context, metadata)
    engine.dispose()
    changes = [change for group in changes for change in (group if isinstance(group, list) else [group])]
    assert [change for change in changes if change[0] != "modify_comment"] == []  # comments are for readers of the code
