"""`POST /estimate` and `POST /estimate-blueprint`: what a run needs, without running it."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from threading import Event
from typing import Any

import httpx
import pytest
from tests.service.support import INLINE, Serve, check_problem
from typing_extensions import override

from podwright import Agent, FunctionModel, Model, Workflow
from podwright.testing import ModelRequest, ModelResponse

MODEL = "openai/gpt-4o-mini"
BODY = {"input": "the moon"}


class Unpriced(Model):
    name = "own/unpriced"

    @override
    async def complete(
        self, request: ModelRequest, on_token: object = None
    ) -> ModelResponse:
        raise AssertionError("An estimate calls no model.")


def writer(**options: Any) -> Agent:
    return Agent("writer", "Write {input}.", MODEL, max_tokens=100, **options)


def estimated(
    client: httpx.Client, body: Any, path: str = "/estimate", **options: Any
) -> Any:
    response = client.post(path, json=body, **options)
    assert response.status_code == 200, response.text
    return response.json()


def test_an_estimate(serve: Serve) -> None:
    """Numbers of all three bounds, in what units, and what is assumed."""
    client = serve(writer())
    found = estimated(client, BODY)
    assert found["component"] == "writer"
    assert found["at_least"]["model_calls"] == 1
    assert found["at_least"]["input_tokens"] == 17
    assert found["at_least"]["input_tokens"] == found["at_most"]["input_tokens"]
    assert found["at_most"]["output_tokens"] == 100
    assert found["at_least"]["cost"] < found["usually"]["cost"]
    assert found["usually"]["cost"] <= found["at_most"]["cost"] < 0.001
    assert found["portions"][0]["component"] == "writer"
    assert (found["unknown"], found["assumed"]) == ([], [])
    assert estimated(client, {})["assumed"] == ["the input"]
    ten = estimated(client, {**BODY, "runs": 10})
    assert ten["at_most"]["tokens"] == 10 * found["at_most"]["tokens"]


def test_nothing_is_called(serve: Serve) -> None:
    calls: list[object] = []
    client = serve(Agent("a", "Do.", FunctionModel(calls.append)))
    estimated(client, BODY)
    assert calls == []


def test_the_body_of_a_run_is_taken(serve: Serve) -> None:
    """Earlier turns count, and what says for whom a run is does not disturb."""
    client = serve(writer())
    alone = estimated(client, BODY)["at_least"]["input_tokens"]
    messages = [
        {"role": "user", "content": "Hello."},
        {"role": "assistant", "content": "Hello!"},
    ]
    said = {"user": "ann", "session": "s", "metadata": {"a": "b"}}
    body = {**BODY, **said, "messages": messages}
    assert estimated(client, body)["at_least"]["input_tokens"] == alone + 12


def test_limits_of_operator_and_caller(serve: Serve) -> None:
    """A caller can only lower the limits of the service."""
    client = serve(Workflow("w", [writer()]), run_tokens=90, run_cost=1.0)
    found = estimated(client, BODY)
    assert found["at_most"]["tokens"] == 90
    assert found["limits"]["tokens"] == 90
    headers = {"podwright-budget": "tokens=50, wall_time=5"}
    lower = estimated(client, BODY, headers=headers)
    assert lower["at_most"]["tokens"] == 50
    assert lower["at_most"]["seconds"] == 5
    headers = {"podwright-budget": "tokens=5000"}
    higher = estimated(client, BODY, headers=headers)
    assert higher["at_most"]["tokens"] == 90


def test_models_of_the_operator(serve: Serve) -> None:
    """The price is that of the model which answers."""
    free = serve(writer(), model="offline/echo")
    assert estimated(free, BODY)["at_most"]["cost"] == 0
    unpriced = serve(Agent("a", "Do.", Unpriced()))
    found = estimated(unpriced, BODY)
    assert found["at_least"]["cost"] is None
    assert found["at_most"]["cost"] is None
    assert found["unknown"] == ["the price of 'own/unpriced'"]


@pytest.mark.parametrize(
    ("change", "pointer"),
    [
        ({"start_step": 1}, "/start_step"),
        ({"resume_path": [0]}, "/resume_path"),
        ({"decision": {"decision": "approve"}}, "/decision"),
    ],
)
def test_a_run_that_goes_on_is_not_estimated(
    serve: Serve, change: dict[str, Any], pointer: str
) -> None:
    client = serve(Workflow("w", [writer()]))
    response = client.post("/estimate", json={**BODY, **change})
    problem = check_problem(response, 422, "request_invalid")
    assert [each["pointer"] for each in problem["errors"]] == [pointer]


@pytest.mark.parametrize("trusted", [False, True])
@pytest.mark.parametrize("name", ["_state", "_progress", "_kept", "_decision"])
def test_the_state_of_a_run_is_not_estimated(
    serve: Serve, name: str, trusted: bool
) -> None:
    client = serve(Workflow("w", [writer()]), trust_contexts=trusted)
    body = {"inputs": {"input": "x", name: "forged"}}
    problem = check_problem(
        client.post("/estimate", json=body), 422, "request_invalid"
    )
    assert problem["errors"][0]["pointer"] == f"/inputs/{name}"


@pytest.mark.parametrize(
    ("body", "code"),
    [
        ({**BODY, "runs": 0}, "request_invalid"),
        ({**BODY, "inputs": {"a": 1}}, "request_invalid"),
        ({**BODY, "run": 3}, "request_invalid"),
        ({"inputs": {"language": 3}}, "inputs_invalid"),
        ({"inputs": {"languge": "French"}}, "inputs_invalid"),
    ],
)
def test_wrong_bodies(serve: Serve, body: Any, code: str) -> None:
    """The inputs are checked as those of a run."""
    inputs = {"language": {"type": "string", "default": "French"}}
    client = serve(writer(inputs=inputs))
    check_problem(client.post("/estimate", json=body), 422, code)


def test_inline_blueprints(serve: Serve) -> None:
    """They may name what the operator allows, within the limits of size, and nothing else."""
    client = serve(writer())
    config = {"model": MODEL, "max_loops": 1, "max_tokens": 10}
    poet = {"name": "poet", "instructions": "Write.", "config": config}
    body = {"type": "agent", "blueprint": poet}
    found = estimated(client, {**body, **BODY}, "/estimate-blueprint")
    assert found["component"] == "poet"
    assert found["at_most"]["output_tokens"] == 10
    assert estimated(client, body, "/estimate-blueprint")["assumed"]
    other = {**poet, "config": {**config, "model": "openai/gpt-5"}}
    refused = {"type": "agent", "blueprint": other}
    problem = check_problem(
        client.post("/estimate-blueprint", json=refused),
        422,
        "blueprint_invalid",
    )
    [error] = problem["errors"]
    assert error["pointer"] == "/blueprint/config/model"


def test_loops_in_loops_end_at_the_limits(serve: Serve) -> None:
    """What a blueprint could do many times over is bounded by the limits of the service."""
    client = serve(Workflow("w", [Agent("a", "Do.", "offline/echo")]))
    step: dict[str, Any] = {"type": "agent_step", "agent": "a", "name": "s"}
    for number in range(3):
        step = {
            "type": "loop_step",
            "name": f"loop{number}",
            "steps": [step],
            "until": {"name": "is_empty", "args": {"value": "{a_output}"}},
            "max_iterations": 10,
        }
    blueprint = {"name": "deep", "steps": [step]}
    body = {"type": "workflow", "blueprint": blueprint, "input": "x"}
    found = estimated(client, body, "/estimate-blueprint")
    assert found["portions"][0]["model_calls"] == 1000
    assert found["limits"]["model_calls"] == found["at_most"]["model_calls"]


def test_an_estimate_needs_no_run_slot(serve: Serve) -> None:
    """While all runs are in progress, estimates are answered."""
    begun = Event()
    opened = Event()

    def wait(_: object) -> str:
        begun.set()
        opened.wait(30)
        return "done"

    client = serve(Agent("a", "Do.", FunctionModel(wait)), max_runs=1)
    with ThreadPoolExecutor(1) as pool:
        run = pool.submit(client.post, "/run", json=BODY)
        assert begun.wait(30)
        assert estimated(client, BODY)["at_least"]["model_calls"] == 1
        opened.set()
        assert run.result().status_code == 200


def test_requests_are_counted_by_route(serve: Serve) -> None:
    client = serve(writer())
    estimated(client, BODY)
    estimated(client, {**INLINE, "blueprint": {
        "name": "a", "instructions": "Do.", "config": {"model": MODEL},
    }}, "/estimate-blueprint")  # fmt: skip
    metrics = client.get("/metrics").text
    for route in ("/estimate", "/estimate-blueprint"):
        assert f'"{route}"' in metrics
