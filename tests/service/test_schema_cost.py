"""Data that takes long to check against a JSON Schema: the caller is told, and others are served meanwhile."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from tests.helpers import until
from tests.service.background_support import begin, wait
from tests.service.openai_support import user
from tests.service.support import Serve, check_problem, connect, pointers

from podwright import (
    Agent,
    AgentStep,
    ApprovalStep,
    EchoModel,
    FunctionModel,
    Pipeline,
    Workflow,
)
from podwright.blueprints import inputs
from podwright.components import Component
from podwright.messages import approvals
from podwright.messages.headers import BUDGET
from podwright.schemas import keywords as schema_keywords
from podwright.testing import ModelRequest
from podwright.threads import COMPUTING_THREADS

CONSTANTS = [{"const": -number} for number in range(1, 200)]
HEAVY = {"type": "array", "items": {"anyOf": [*CONSTANTS, {"type": "integer"}]}}
"""Of which each item is compared with two hundred constants."""
ITEMS = [1] * 3000
MANY = {"input": "x", "items": ITEMS}
FEW = {"input": "x", "items": [1]}
SOME = {"input": "x" * 10_000, "items": [1]}
"""As few items in a larger request."""


def agent() -> Agent:
    return Agent("a", "{items}", EchoModel(), inputs={"items": HEAVY})


def flow() -> Workflow:
    step = AgentStep(Agent("echo", "x", EchoModel()), input="{items}")
    return Workflow("w", [step], inputs={"items": HEAVY})


KINDS: dict[str, Component] = {
    "agent": agent(),
    "workflow": flow(),
    "pipeline": Pipeline(
        "p", [Agent("echo", "x", EchoModel())], inputs={"items": HEAVY}
    ),
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("route", ["/run", "/run/stream", "/runs"])
def test_inputs_that_take_too_long_are_refused(
    serve: Serve, sqlite_database: str, route: str, kind: str
) -> None:
    """As a mistake of the caller, at their place; fewer of them are taken."""
    client = serve(KINDS[kind], runs_database=sqlite_database)
    response = client.post(route, json={"inputs": MANY})
    problem = check_problem(response, 422, "inputs_invalid")
    assert pointers(problem) == ["/inputs/items"]
    assert client.post(route, json={"inputs": FEW}).is_success


def test_inputs_of_an_inline_blueprint_are_refused(serve: Serve) -> None:
    """So are those of its members, and what a person may change in it."""
    client = serve(Agent("a", "", EchoModel()), model="offline/echo")
    blueprint = {
        "name": "i",
        "instructions": "{items}",
        "config": {"model": "offline/echo"},
        "inputs": {"items": HEAVY},
    }
    body = {"type": "agent", "blueprint": blueprint, "inputs": MANY}
    problem = check_problem(
        client.post("/run-blueprint", json=body), 422, "inputs_invalid"
    )
    assert pointers(problem) == ["/inputs/items"]
    inner = {
        "type": "workflow",
        "blueprint": {
            "name": "w",
            "steps": [{"type": "agent_step", "name": "s", "agent": "i"}],
        },
        "agents": {"i": blueprint},
        "inputs": MANY,
    }
    response = client.post("/run-blueprint", json=inner)
    check_problem(response, 422, "inputs_invalid")
    assert client.post(
        "/run-blueprint", json={**inner, "inputs": FEW}
    ).is_success


def test_a_default_that_takes_too_long_is_a_problem_of_the_blueprint(
    serve: Serve,
) -> None:
    """At its schema."""
    client = serve(Agent("a", "", EchoModel()), model="offline/echo")
    schema = {"items": {"anyOf": [*CONSTANTS[:20], {}]}, "default": [1] * 4000}
    blueprint = {
        "name": "i",
        "instructions": "x",
        "config": {"model": "offline/echo"},
        "inputs": {"items": schema},
    }
    body = {"type": "agent", "blueprint": blueprint}
    answer = client.post("/validate-blueprint", json=body).json()
    assert [error["pointer"] for error in answer["errors"]] == [
        "/blueprint/inputs/items"
    ]


@pytest.mark.parametrize("kind", KINDS)
def test_metadata_that_takes_too_long_is_a_bad_request(
    serve: Serve, kind: str
) -> None:
    """On the routes of OpenAI's protocols, where inputs are metadata."""
    component = KINDS[kind]
    client = serve(component)
    body = {"model": component.name, "messages": [user("x")]}
    for items in (ITEMS, json.dumps(ITEMS)):
        response = client.post(
            "/v1/chat/completions", json={**body, "metadata": {"items": items}}
        )
        assert response.status_code == 400
        error = response.json()["error"]
        assert error["code"] == "inputs_invalid"
        assert error["param"] == "metadata.items"
    assert client.post(
        "/v1/chat/completions", json={**body, "metadata": {"items": "[1]"}}
    ).is_success


def test_a_decision_that_takes_too_long_is_refused(
    serve: Serve, sqlite_database: str
) -> None:
    """The question stays open, and is answered by another one."""
    ask = ApprovalStep("Go?", "ask", edit={"input": HEAVY})
    client = serve(Workflow("w", [ask]), runs_database=sqlite_database)
    url = begin(client)
    wait(client, url, "waiting_for_approval")
    response = client.post(f"{url}/approve", json={"values": {"input": ITEMS}})
    problem = check_problem(response, 422, "inputs_invalid")
    assert pointers(problem) == ["/values/input"]
    assert client.get(url).json()["status"] == "waiting_for_approval"
    decided = client.post(f"{url}/approve", json={"values": {"input": [1]}})
    assert decided.status_code == 202
    assert wait(client, url)["status"] == "succeeded"


def test_an_answer_that_takes_too_long_is_no_fault_of_the_service(
    serve: Serve,
) -> None:
    """The caller has chosen the schema that it must fit."""

    def respond(request: ModelRequest) -> str:
        return json.dumps({"answer": ITEMS})

    client = serve(Agent("a", "x", FunctionModel(respond)))
    form = {"name": "x", "schema": HEAVY}
    body = {
        "model": "a",
        "messages": [user("x")],
        "response_format": {"type": "json_schema", "json_schema": form},
    }
    response = client.post("/v1/chat/completions", json=body)
    assert response.status_code == 400
    assert response.json()["error"]["code"] == "input_invalid"


# --- Others are served ------------------------------------------------------------------------------------------------


SEVERAL = {
    "$defs": {"item": HEAVY["items"]},
    "items": {"allOf": [{"$ref": "#/$defs/item"}] * 60},
}
ENDLESS = {"input": "x", "items": [1] * 40_000}
"""Without a bound, its check takes an hour."""


class Checks:
    """The checks of inputs that have begun; none has a bound but its caller."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(schema_keywords, "MAX_OPERATIONS", 10**12)
        monkeypatch.setattr(schema_keywords, "MAX_SECONDS", 10**6)
        for module in (inputs, approvals):
            monkeypatch.setattr(module, "CheckBudget", self.begin)
        self.begun = 0

    def begin(self) -> schema_keywords.CheckBudget:
        self.begun += 1
        return schema_keywords.CheckBudget()


@pytest.fixture
def checks(monkeypatch: pytest.MonkeyPatch) -> Checks:
    """Checks that end with little data, or when nobody waits for them."""
    return Checks(monkeypatch)


def patient() -> Agent:
    return Agent("a", "{items}", EchoModel(), inputs={"items": SEVERAL})


@contextlib.contextmanager
def callers_wait(
    client: httpx.Client, checks: Checks, route: str, body: dict[str, Any]
) -> Iterator[None]:
    """Within the context, a caller waits for a check, and others for their turn."""
    before = checks.begun
    data = json.dumps(body).encode()
    with contextlib.ExitStack() as stack:
        for _ in range(COMPUTING_THREADS + 2):
            stack.enter_context(connect(client, route, data))
        until(lambda: checks.begun > before)
        yield


@pytest.mark.parametrize("route", ["/run", "/run/stream", "/runs"])
def test_callers_who_leave_make_room(
    serve: Serve, sqlite_database: str, checks: Checks, route: str
) -> None:
    """Others are served, and meanwhile those whose inputs need no check."""
    client = serve(patient(), runs_database=sqlite_database)
    for _ in range(2):
        with callers_wait(client, checks, route, {"inputs": ENDLESS}):
            assert client.get("/health").is_success
        assert client.post(route, json={"inputs": SOME}).is_success


def test_a_check_takes_no_longer_than_its_run_may(
    serve: Serve, checks: Checks
) -> None:
    """Its end is that of the run, and its thread is free."""
    client = serve(patient())
    for _ in range(COMPUTING_THREADS + 1):
        response = client.post(
            "/run", json={"inputs": ENDLESS}, headers={BUDGET: "wall_time=0.3"}
        )
        problem = check_problem(response, 504, "limit_exceeded")
        assert problem["limit"] == "wall_time"
    assert client.post("/run", json={"inputs": FEW}).is_success


def test_who_waits_too_long_for_a_check_is_rejected(
    serve: Serve, checks: Checks
) -> None:
    """With the time after which to try again, as without a run slot."""
    client = serve(patient(), max_wait=0.2)
    with callers_wait(client, checks, "/run", {"inputs": ENDLESS}):
        response = client.post("/run", json={"inputs": SOME})
        check_problem(response, 503, "overloaded")
        assert int(response.headers["retry-after"]) >= 1
    assert client.post("/run", json={"inputs": SOME}).is_success


def test_small_requests_do_not_wait_for_large_ones(
    serve: Serve, checks: Checks
) -> None:
    """Their inputs are checked while those of others are."""
    client = serve(patient())
    with callers_wait(client, checks, "/run", {"inputs": ENDLESS}):
        for _ in range(3):
            assert client.post("/run", json={"inputs": FEW}).is_success


def test_a_run_that_is_cancelled_ends_its_check(
    serve: Serve, checks: Checks
) -> None:
    """That of a step, whose inputs are of the step before it."""
    step = AgentStep(patient(), input={"items": "{rows}"})
    client = serve(Workflow("w", [step]))
    long = {"inputs": {"input": "x", "rows": ENDLESS["items"]}}
    for _ in range(2):
        with callers_wait(client, checks, "/run", long):
            assert client.get("/health").is_success
        short = {"inputs": {"input": "x", "rows": [1]}}
        assert client.post("/run", json=short).is_success


def test_a_decision_whose_sender_leaves_makes_room(
    serve: Serve, sqlite_database: str, checks: Checks
) -> None:
    """The next one is checked, and taken."""
    ask = ApprovalStep("Go?", "ask", edit={"input": SEVERAL})
    client = serve(Workflow("w", [ask]), runs_database=sqlite_database)
    url = begin(client)
    wait(client, url, "waiting_for_approval")
    long = {"values": {"input": ENDLESS["items"]}}
    with callers_wait(client, checks, f"{url}/approve", long):
        assert client.get("/health").is_success
    decided = client.post(f"{url}/approve", json={"values": {"input": [1]}})
    assert decided.status_code == 202
    assert wait(client, url)["status"] == "succeeded"
