"""What a caller carries of a stopped run, and what the service believes of it: nothing that it has not made itself."""

from __future__ import annotations

import base64
import copy
import json
import random
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import httpx
import pytest
from tests.service.background_support import wait
from tests.service.support import Serve, check_problem, pointers

from podwright import (
    Agent,
    ApprovalStep,
    Conductor,
    FunctionModel,
    FunctionStep,
    Workflow,
    tool,
)
from podwright.testing import ModelRequest, ToolCall
from podwright_service.background.storage.database import database_url, migrate
from podwright_service.background.store import RunStore
from podwright_service.saved_states import STATE, columns_of, new_state

KEYS = {"ann": "run+blueprint@ann:" + "a" * 20, "bob": "run@bob:" + "b" * 20}
STATE_KEY = "k" * 32
PAID: list[int] = []


@pytest.fixture(autouse=True)
def _nothing_paid() -> None:
    PAID.clear()


@tool(approval=True)
def pay(amount: int) -> str:
    """Pay."""
    PAID.append(amount)
    return f"paid {amount}"


def give(amount: int) -> str:
    PAID.append(amount)
    return "given"


def answer(request: ModelRequest) -> Any:
    if request.messages[-1].role == "tool":
        return "done"
    return [ToolCall.of("pay", amount=5)]


def clerk(name: str = "clerk") -> Agent:
    return Agent(name, "Work.", FunctionModel(answer), tools=[pay])


def gate(name: str = "gate") -> Workflow:
    """A workflow whose effect is behind an approval step."""
    steps = [
        ApprovalStep("Pay {amount}?", "ask"),
        FunctionStep(give, {"amount": "{amount}"}, output="given"),
    ]
    inputs = {"amount": {"type": "integer", "maximum": 10, "default": 5}}
    return Workflow(name, steps, inputs=inputs)


COMPONENTS: dict[str, Callable[[], Any]] = {"clerk": clerk, "gate": gate}


def headers(caller: str) -> dict[str, str]:
    _, _, key = KEYS[caller].rpartition(":")
    return {"authorization": f"Bearer {key}"}


def stopped(client: httpx.Client, **request_headers: str) -> dict[str, Any]:
    """The problem of a run that waits for a person."""
    response = client.post("/run", json={"input": "x"}, headers=request_headers)
    return check_problem(response, 409, "approval_required")


def going_on(problem: dict[str, Any], **more: Any) -> dict[str, Any]:
    body = {"inputs": problem["context"], **more}
    if "resume_path" in problem:
        body["resume_path"] = problem["resume_path"]
    return body


@pytest.fixture(params=["sealed", "kept"])
def database(request: pytest.FixtureRequest) -> str | None:
    """The database that keeps states; None if they are sealed."""
    if request.param == "sealed":
        return None
    return request.getfixturevalue("sqlite_database")


@pytest.mark.parametrize("make", COMPONENTS.values(), ids=COMPONENTS)
def test_a_run_goes_on_once(
    serve: Serve, database: str | None, make: Callable[[], Any]
) -> None:
    """With the context unchanged, or with its state alone; a second time is a conflict."""
    client = serve(make(), runs_database=database)
    for count, names in enumerate((None, [STATE]), 1):
        problem = stopped(client)
        body = going_on(problem)
        if names:
            body = {
                "inputs": {name: problem["context"][name] for name in names}
            }
        assert client.post("/run", json=body).status_code == 200
        assert len(PAID) == count
        for route in ("/run", "/run/stream"):
            again = client.post(route, json=body)
            check_problem(again, 409, "state_used")
        assert len(PAID) == count


def test_what_is_refused_uses_no_state(
    serve: Serve, database: str | None
) -> None:
    """A decision that does not fit, a changed context and a full service leave the question open."""
    client = serve(clerk(), runs_database=database)
    problem = stopped(client)
    for wrong, code, places in (
        (
            {"decision": {"decision": "maybe"}},
            "inputs_invalid",
            ["/decision/decision"],
        ),
        (
            {"decision": {"values": {"amount": "much"}}},
            "inputs_invalid",
            ["/decision/values/amount"],
        ),
        ({"resume_path": [3]}, "inputs_invalid", ["/resume_path"]),
        ({"start_step": 1}, "inputs_invalid", ["/start_step"]),
    ):
        response = client.post("/run", json=going_on(problem, **wrong))
        refused = check_problem(response, 422, code)
        assert pointers(refused) == places
    added = {**problem["context"], "amount": 9}
    response = client.post("/run", json={"inputs": added})
    assert pointers(check_problem(response, 422, "inputs_invalid")) == [
        "/inputs/amount"
    ]
    assert not PAID
    decision = {"decision": "approve", "values": {"amount": 7}}
    done = client.post("/run", json=going_on(problem, decision=decision))
    assert done.status_code == 200
    assert PAID == [7]


def test_whose_state_it_is(serve: Serve, database: str | None) -> None:
    """It is of a caller, a component and a blueprint, and has an age."""
    options: dict[str, Any] = {
        "runs_database": database,
        "api_keys": tuple(KEYS.values()),
        "state_keys": (STATE_KEY,),
    }
    client = serve(clerk(), **options)
    body = going_on(stopped(client, **headers("ann")))
    others = client.post("/run", json=body, headers=headers("bob"))
    check_problem(others, 422, "state_invalid")
    changed = Agent("clerk", "Work well.", FunctionModel(answer), tools=[pay])
    for other in (clerk("another"), changed):
        service = serve(other, **options)
        refused = service.post("/run", json=body, headers=headers("ann"))
        check_problem(refused, 422, "state_invalid")
    assert not PAID
    again = serve(clerk(), **options)
    done = again.post("/run", json=body, headers=headers("ann"))
    assert done.status_code == 200, "another pod has the same keys or database"
    assert PAID == [5]


def test_a_state_that_is_too_old(serve: Serve, database: str | None) -> None:
    """It goes on no more."""
    options: dict[str, Any] = {
        "runs_database": database,
        "state_keys": (STATE_KEY,),
    }
    hurried = serve(clerk(), **options, state_ttl=1e-6)
    refused = hurried.post("/run", json=going_on(stopped(hurried)))
    check_problem(refused, 422, "state_invalid")
    assert not PAID


async def test_the_database_forgets_states(sqlite_database: str) -> None:
    """Those that have expired, of whatever component, kept or used."""
    migrate(database_url(sqlite_database))
    store = RunStore(database_url(sqlite_database))
    kept: dict[str, bool] = {}
    for component in ("served", "inline"):
        for ttl in (-1.0, 60.0):
            for is_kept in (True, False):
                state = new_state(
                    clerk(component), "", {"input": "x"}, None, None, ttl=ttl
                )
                state = replace(state, is_kept=is_kept)
                if is_kept:
                    await store.states.add(columns_of(state))
                await store.states.use(state)
                kept[state.id] = ttl > 0
    assert not await store.states.remove_expired()
    for state_id, is_there in kept.items():
        assert (await store.states.get(state_id) is not None) is is_there
    await store.close()


def test_keys_are_replaced(serve: Serve) -> None:
    """The first key seals, and each opens; a service without keys has one of its own, until it restarts."""
    old = serve(clerk(), state_keys=("o" * 32,))
    both = serve(clerk(), state_keys=("n" * 32, "o" * 32))
    new = serve(clerk(), state_keys=("n" * 32,))
    by_old, by_both = going_on(stopped(old)), going_on(stopped(both))
    check_problem(new.post("/run", json=by_old), 422, "state_invalid")
    assert both.post("/run", json=by_old).status_code == 200
    check_problem(old.post("/run", json=by_both), 422, "state_invalid")
    assert new.post("/run", json=by_both).status_code == 200
    without = serve(clerk())
    own = going_on(stopped(without))
    refused = check_problem(
        serve(clerk()).post("/run", json=own), 422, "state_invalid"
    )
    assert "PODWRIGHT_STATE_KEYS" in refused["suggestion"]
    assert without.post("/run", json=own).status_code == 200


def test_a_stopped_workflow_goes_on_as_a_background_run(
    serve: Serve, sqlite_database: str
) -> None:
    """What was answered by `/run` is used together with the run that is stored; a repeated request is the same run."""
    client = serve(gate(), runs_database=sqlite_database)
    body = going_on(stopped(client), decision={"comment": "Well."})
    key = {"idempotency-key": "k1"}
    urls = [
        client.post("/runs", json=body, headers=key).headers["location"]
        for _ in range(2)
    ]
    assert urls[0] == urls[1]
    run = wait(client, urls[0])
    assert run["result"]["given"] == "given"
    assert PAID == [5]
    check_problem(client.post("/runs", json=body), 409, "state_used")
    check_problem(client.post("/run", json=body), 409, "state_used")
    agent = serve(clerk(), runs_database=sqlite_database)
    refused = agent.post("/runs", json=going_on(stopped(agent)))
    assert (
        "POST /run" in check_problem(refused, 422, "request_invalid")["detail"]
    )


def test_an_inline_blueprint_goes_on(serve: Serve) -> None:
    """With the same blueprints of the workflow and of its agents only."""
    client = serve(Agent("echo", "Repeat.", "offline/echo"))
    agent = {
        "name": "a",
        "instructions": "Do.",
        "config": {"model": "offline/echo"},
        "tools": [],
    }
    steps: list[dict[str, Any]] = [
        {"type": "approval_step", "name": "ask", "message": "Go on?"},
        {"type": "agent_step", "name": "do", "agent": "a"},
    ]
    body = {
        "type": "workflow",
        "blueprint": {"name": "w", "steps": steps},
        "agents": {"a": agent},
    }
    first = client.post("/run-blueprint", json={**body, "input": "x"})
    problem = check_problem(first, 409, "approval_required")
    other = copy.deepcopy({**body, **going_on(problem)})
    other["agents"]["a"]["instructions"] = "Do another thing."
    refused = client.post("/run-blueprint", json=other)
    check_problem(refused, 422, "state_invalid")
    done = client.post("/run-blueprint", json={**body, **going_on(problem)})
    assert done.status_code == 200


# --- Forged -------------------------------------------------------------------------------------------------------


def mutations(token: str, count: int) -> Iterator[Any]:
    """A state that was changed: characters, order, length, type, and bytes of what is sealed."""
    chance = random.Random(1)
    letters = "ABCDabcd0123-_=.\x00é😀 "
    yield from ("", "kept.", "kept." + "0" * 32, None, 5, [], {}, token[:-4])
    yield from (
        token + "A",
        token[::-1],
        token.swapcase(),
        [token],
        {"": token},
    )
    for _ in range(count):
        place = chance.randrange(len(token))
        letter = chance.choice(letters)
        if token[place] == letter:
            letter = "~"
        end = place + chance.choice([0, 1, 1, 1, 8])
        yield token[:place] + letter + token[end:]


def test_a_changed_state_is_not_believed(
    serve: Serve, database: str | None
) -> None:
    """300 mutations: none goes on, and none is an error of the service."""
    client = serve(clerk(), runs_database=database)
    problem = stopped(client)
    token = problem["context"][STATE]
    tried = 0
    for changed in mutations(token, 300):
        if changed == token:
            continue
        body = {"inputs": {STATE: changed}}
        response = client.post("/run", json=body)
        check_problem(response, 422, "state_invalid")
        tried += 1
    assert tried >= 300
    assert not PAID
    assert client.post("/run", json=going_on(problem)).status_code == 200


def test_a_state_says_nothing(serve: Serve) -> None:
    """Not even what is in it can be read."""
    client = serve(clerk())
    token = stopped(client)["context"][STATE]
    data = base64.urlsafe_b64decode(token)
    for word in (b"pay", b"clerk", b"run_id", b"amount"):
        assert word not in data


RUN_ID = "0" * 32


def saved(*events: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {
        "run_id": RUN_ID,
        "given": {"data": "x"},
        "asked": {"run_id": RUN_ID, "path": [], "tool_call": 0},
        "events": list(events),
        "decisions": [],
        **more,
    }


def event(kind: str, **fields: Any) -> dict[str, Any]:
    return {
        "type": kind,
        "run_id": RUN_ID,
        "component": "clerk",
        "kind": "agent",
        **fields,
    }


CALL = {"id": "c", "name": "pay", "arguments": '{"amount": 999}'}
ANSWERED = event(
    "model_call_finished",
    call=0,
    model="m",
    response={"text": "", "tool_calls": [CALL], "usage": {}},
)
USAGES: list[dict[str, Any]] = [
    {"cost": -1.0},
    {"input_tokens": -(10**9)},
    {"model_calls": -5},
    {"cost": 1e308},
    {"known_cost": 1e308},
    {"output_tokens": 10**30},
]
CHAIN = [
    event("run_started", run_id=f"{n + 1:032x}", parent_id=f"{n:032x}")
    for n in range(3000)
]


def contexts() -> Iterator[dict[str, Any]]:
    """Contexts of a caller's own making: saved runs, progress, decisions, and any other reserved name."""
    started = event("run_started", input="x")
    runs = [
        saved(started, ANSWERED),
        saved(started, event("run_started", run_id="1" * 32, parent_id="1" * 32),
              event("error_caught", path=[0], error={})),
        saved(*CHAIN, event("error_caught", path=[0], error={})),
        saved(run_id="../../etc"),
        saved(run_id="x" * 20_000),
        saved(run_id=RUN_ID + "\n"),
        saved(run_id=None),
        saved(events={"a": 1}),
        saved(asked=[]),
        saved(decisions=[{"decision": 5}]),
        {},
    ]  # fmt: skip
    for usage in USAGES:
        failed = event(
            "model_call_failed", call=5, model="m", error={}, usage=usage
        )
        runs += [
            saved(started, failed),
            saved(started, failed, {**failed, "call": 6}),
        ]
    for run in runs:
        yield {"_run": run}
        yield {"_run": run, "_decision": {"decision": "approve"}}
    for progress in (
        {},
        1,
        "x",
        {"step": 1},
        {"step": 2},
        {"step": 1, "in": {"at": 0}},
        None,
        [],
    ):
        yield {"input": "x", "amount": 99, "_resume": progress}
        yield {
            "input": "x",
            "_resume": progress,
            "_decision": {"decision": "approve"},
        }
    for name in (
        "_decision",
        "_decisions",
        "_edits",
        "_messages",
        "_turn",
        "_state",
        "_x",
        "_",
    ):
        for value in ({"ask": {"decision": "approve"}}, [], "approve", None, 1):
            yield {"input": "x", name: value}


STARTS: list[dict[str, Any]] = [
    {},
    {"resume_path": [0]},
    {"resume_path": [1]},
    {"start_step": 1},
]


@pytest.mark.parametrize("made", COMPONENTS)
def test_a_context_of_a_callers_own_is_not_believed(
    serve: Serve, sqlite_database: str, made: str
) -> None:
    """More than 100 of them on every route that runs something: 422, nothing is done, and no model is called."""
    client = serve(COMPONENTS[made](), runs_database=sqlite_database)
    blueprint = gate("w").to_blueprint()
    blueprint["steps"] = blueprint["steps"][:1]
    inline = {"type": "workflow", "blueprint": blueprint}
    tried = 0
    for context in contexts():
        for start in STARTS:
            body = {"inputs": context, **start}
            for route in ("/run", "/run/stream", "/runs"):
                response = client.post(route, json=body)
                assert response.status_code == 422, (route, body, response.text)
                tried += 1
        response = client.post(
            "/run-blueprint", json={**inline, "inputs": context}
        )
        assert response.status_code == 422, response.text
    for start in ({"resume_path": [1]}, {"start_step": 1}):
        for extra in ({}, {"decision": {"decision": "approve"}}):
            body = {"inputs": {"input": "x", "amount": 5}, **start, **extra}
            for route in ("/run", "/run/stream", "/runs"):
                assert client.post(route, json=body).status_code == 422
    assert tried > 1000
    assert not PAID
    assert client.get("/runs").json()["runs"] == []


@pytest.mark.parametrize("made", COMPONENTS)
def test_a_trusted_context_is_no_error_of_the_service(
    serve: Serve, made: str
) -> None:
    """Where the operator trusts the contexts of callers, a broken one is theirs, and declared inputs are checked."""
    client = serve(COMPONENTS[made](), trust_contexts=True)
    for context in contexts():
        for start in STARTS:
            body = {"inputs": context, **start}
            response = client.post("/run", json=body)
            assert response.status_code < 500, (
                json.dumps(body)[:500],
                response.text,
            )
            usage = response.headers.get("podwright-usage", "")
            assert "=-" not in usage
            assert '"-' not in usage
    wrong = {"input": "x", "amount": 99, "_resume": {"step": 1}}
    response = client.post("/run", json={"inputs": wrong, "resume_path": [1]})
    if made == "gate":
        assert pointers(check_problem(response, 422, "inputs_invalid")) == [
            "/inputs/amount"
        ]


def test_members_of_a_conductor_go_on(serve: Serve) -> None:
    """A question of a skill is part of the state of the whole."""

    def lead(request: ModelRequest) -> Any:
        if request.messages[-1].role == "tool":
            return "all done"
        return [ToolCall.of("clerk", task="Pay.")]

    chief = Conductor("chief", "Lead.", FunctionModel(lead), skills=[clerk()])
    client = serve(chief)
    problem = stopped(client)
    assert problem["question"]["component"] == "clerk"
    wrong = {"decision": {"values": {"amount": "x"}}}
    refused = client.post("/run", json=going_on(problem, **wrong))
    check_problem(refused, 422, "inputs_invalid")
    done = client.post("/run", json=going_on(problem))
    assert done.json() == {"output": "all done"}
    assert PAID == [5]
