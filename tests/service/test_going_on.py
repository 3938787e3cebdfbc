"""Runs that go on after a stop: what fails then, what is lost on the way, and what a caller sends beside the state."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Callable
from typing import Any

import httpx
import pytest
from tests.service.background_support import wait
from tests.service.support import Serve, check_problem

from podwright import (
    Agent,
    AgentStep,
    ApprovalStep,
    FunctionModel,
    FunctionStep,
    Workflow,
    tool,
)
from podwright.client import Client, ProblemError
from podwright.errors import ModelError, ModelRateLimitError
from podwright.testing import ModelRequest, ToolCall
from podwright_service.saved_states import STATE

STATE_KEY = "k" * 32
PAID: list[int] = []
ASKED: list[list[str]] = []
"""The texts of each request to a model."""
FAULTS: list[Exception] = []
"""Errors of the next model calls after a person has decided."""


@pytest.fixture(autouse=True)
def _nothing_happened() -> None:
    PAID.clear()
    ASKED.clear()
    FAULTS.clear()


@pytest.fixture(params=["sealed", "kept"])
def database(request: pytest.FixtureRequest) -> str | None:
    """The database that keeps states; None if they are sealed."""
    if request.param == "sealed":
        return None
    return request.getfixturevalue("sqlite_database")


@tool(approval=True, idempotent=False)
def pay(amount: int) -> str:
    """Pay."""
    PAID.append(amount)
    return f"paid {amount}"


def give(amount: int) -> str:
    PAID.append(amount)
    return "given"


async def say(request: ModelRequest) -> Any:
    ASKED.append([message.text for message in request.messages])
    if FAULTS:
        fault = FAULTS.pop()
        if isinstance(fault, TimeoutError):
            await asyncio.sleep(60)
        raise fault
    return "done"


async def work(request: ModelRequest) -> Any:
    if request.messages[-1].role == "tool":
        return await say(request)
    ASKED.append([message.text for message in request.messages])
    (amount,) = re.findall(r"\d+", request.messages[-1].text) or ["5"]
    return [ToolCall.of("pay", amount=int(amount))]


def clerk() -> Agent:
    """A chat that pauses inside a tool call."""
    return Agent("clerk", "Work.", FunctionModel(work), tools=[pay])


def gate() -> Workflow:
    """A workflow that pauses between its steps."""
    return Workflow(
        "gate",
        [
            ApprovalStep("Pay {amount}?", "ask"),
            FunctionStep(give, {"amount": "{amount}"}, output="given"),
            Agent("last", "Say {input}.", FunctionModel(say)),
        ],
        inputs={"amount": {"type": "integer", "default": 5}},
    )


def desk() -> Workflow:
    """A workflow that pauses inside the chat of a step."""
    return Workflow("desk", [AgentStep(clerk())])


COMPONENTS: dict[str, Callable[[], Any]] = {
    "clerk": clerk,
    "gate": gate,
    "desk": desk,
}
made = pytest.mark.parametrize("make", COMPONENTS.values(), ids=COMPONENTS)


def stopped(client: httpx.Client, **body: Any) -> dict[str, Any]:
    response = client.post("/run", json={"input": "x", **body})
    return check_problem(response, 409, "approval_required")


def going_on(problem: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {
        "inputs": problem["context"],
        "resume_path": problem.get("resume_path"),
        **more,
    }


@pytest.mark.parametrize(
    ("make", "decision"),
    [
        (clerk, "approve"),
        (clerk, "reject"),
        (desk, "approve"),
        (desk, "reject"),
        (gate, "approve"),
    ],
)
def test_what_fails_after_a_decision_goes_on(
    serve: Serve, database: str | None, make: Callable[[], Any], decision: str
) -> None:
    """Neither is a person asked again, nor is done again what was done; a chat goes on like a workflow."""
    client = serve(make(), runs_database=database)
    problem = stopped(client)
    body = going_on(problem, decision={"decision": decision})
    for _ in range(2):
        FAULTS.append(ModelError("The model fails."))
        response = client.post("/run", json=body)
        problem = check_problem(response, 502, "model_failed")
        body = going_on(problem)
    late = client.post(
        "/run", json={**body, "decision": {"decision": "reject"}}
    )
    assert (
        "nothing to decide"
        in check_problem(late, 422, "input_invalid")["detail"]
    )
    done = client.post("/run", json=body)
    assert "done" in done.text, done.text
    assert ([5] if decision == "approve" else []) == PAID


@made
def test_a_repeated_request_finds_where_the_run_stopped(
    serve: Serve, database: str | None, make: Callable[[], Any]
) -> None:
    """With its key, a failed request that went on from a state is given the state to go on from now."""
    client = serve(make(), runs_database=database)
    body = going_on(stopped(client))
    FAULTS.append(ModelError("The model fails."))
    headers = {"idempotency-key": "once"}
    first, again = (
        client.post("/run", json=body, headers=headers) for _ in range(2)
    )
    assert first.status_code == again.status_code == 502
    assert again.headers["idempotency-replayed"] == "true"
    assert again.content == first.content
    done = client.post("/run", json=going_on(again.json()))
    assert done.status_code == 200
    assert PAID == [5]


@made
@pytest.mark.parametrize("route", ["/run", "/run/stream"])
def test_a_lost_response(
    serve: Serve, database: str | None, make: Callable[[], Any], route: str
) -> None:
    """A client that left sends its request with the key again, and goes on from what it is told."""
    client = serve(make(), runs_database=database)
    body = going_on(stopped(client))
    FAULTS.append(TimeoutError())
    headers = {"idempotency-key": "once"}
    with (
        pytest.raises(httpx.ReadTimeout),
        client.stream(
            "POST", route, json=body, headers=headers, timeout=1
        ) as response,
    ):
        response.read()
    while True:
        again = client.post(route, json=body, headers=headers)
        if again.json()["code"] != "idempotency_in_progress":
            break
    problem = check_problem(again, 503, "run_cancelled")
    done = client.post("/run", json=going_on(problem))
    assert done.status_code == 200, done.text
    assert PAID == [5]


@made
def test_the_client_keeps_the_state(
    serve: Serve, make: Callable[[], Any]
) -> None:
    """It repeats what is refused, and raises where the run stopped, so that its caller can go on."""
    client = Client(str(serve(make()).base_url))
    with pytest.raises(ProblemError) as pause:
        client.run("x")
    FAULTS.extend(ModelRateLimitError("Too fast.") for _ in range(9))
    with pytest.raises(ProblemError) as failure:
        client.run(
            pause.value.context or {}, resume_path=pause.value.resume_path
        )
    assert failure.value.code == "model_rate_limited"
    FAULTS.clear()
    client.run(
        failure.value.context or {}, resume_path=failure.value.resume_path
    )
    assert PAID == [5]


def test_a_background_run_uses_a_sealed_state(
    serve: Serve, sqlite_database: str
) -> None:
    """With the run, and not with a request that is refused; a repeated one finds that run."""
    keys = (STATE_KEY,)
    body = going_on(stopped(serve(gate(), state_keys=keys)))
    client = serve(gate(), state_keys=keys, runs_database=sqlite_database)
    refused = client.post("/runs", json=body, headers={"idempotency-key": ""})
    check_problem(refused, 400, "idempotency_key_invalid")
    headers = {"podwright-budget": "model_calls=-1"}
    assert client.post("/runs", json=body, headers=headers).is_client_error
    headers = {"idempotency-key": "once"}
    first, again = (
        client.post("/runs", json=body, headers=headers) for _ in range(2)
    )
    assert first.status_code == again.status_code == 202
    assert first.headers["location"] == again.headers["location"]
    wait(client, first.headers["location"], "succeeded")
    for route in ("/run", "/runs"):
        check_problem(client.post(route, json=body), 409, "state_used")
    assert PAID == [5]


def test_earlier_turns_are_a_part_of_the_state(
    serve: Serve, database: str | None
) -> None:
    """A caller neither changes them nor has to send them again."""
    turns = [
        {"role": "user", "content": "first question"},
        {"role": "assistant", "content": "first answer"},
    ]
    others = [{"role": "user", "content": "pay 999"}, turns[1]]
    client = serve(clerk(), runs_database=database)
    for more in ({}, {"messages": others}, {"messages": turns}):
        problem = stopped(client, messages=turns)
        ASKED.clear()
        response = client.post("/run", json=going_on(problem, **more))
        assert response.status_code == 200
        (asked,) = ASKED
        assert asked[1:4] == ["first question", "first answer", "x"]


@pytest.mark.parametrize("amount", [2**53 + 1, 2**64, 10**30 + 1])
def test_large_numbers_are_what_they_are(
    serve: Serve, sqlite_database: str, amount: int
) -> None:
    """What is sent back as it was shown is no change, and what a person writes is what is called."""
    client = serve(clerk(), runs_database=sqlite_database)
    for changed in (amount, amount + 1):
        problem = stopped(client, input=str(amount))
        shown = problem["question"]["edit"]["amount"]["value"]
        assert shown == amount
        decision = {"values": {"amount": changed}}
        # no float on the way
        body = json.dumps(going_on(problem, decision=decision))
        done = client.post(
            "/run", content=body, headers={"content-type": "application/json"}
        )
        assert done.status_code == 200, done.text
        assert PAID.pop() == changed
        was_changed = any("changed the arguments" in text for text in ASKED[-1])
        assert was_changed is (changed != amount)


@made
def test_a_rejection_is_final(
    serve: Serve, database: str | None, make: Callable[[], Any]
) -> None:
    """What a person has rejected does not go on, by no state."""
    client = serve(make(), runs_database=database)
    problem = stopped(client)
    body = going_on(problem, decision={"decision": "reject"})
    response = client.post("/run", json=body)
    if make is gate:
        rejected = check_problem(response, 403, "approval_rejected")
        assert not {"context", "resume_path"} & rejected.keys()
    again = client.post("/run", json=going_on(problem))
    check_problem(again, 409, "state_used")
    assert not PAID


def test_a_state_alone_is_enough(serve: Serve, database: str | None) -> None:
    """What it shows need not be sent back, and an empty path is none."""
    client = serve(clerk(), runs_database=database)
    token = stopped(client)["context"][STATE]
    body = {"inputs": {STATE: token}, "resume_path": []}
    assert client.post("/run", json=body).json() == {"output": "done"}
