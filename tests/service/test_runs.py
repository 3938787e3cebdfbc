"""How a run ends, and what the answer tells of it."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import httpx
import pytest
from tests.service.support import Gate, Serve, check_problem, connect, until

from podwright import (
    Agent,
    AgentStep,
    ApprovalStep,
    Component,
    ConditionStep,
    FunctionModel,
    RunLimits,
    ScriptedModel,
    Workflow,
)
from podwright.errors import ModelError
from podwright.testing import ModelRequest, ModelResponse, ToolCall, Usage

SECRET = "sk-canary-1234567890"


def agent(*answers: Any, name: str = "helper", **options: Any) -> Agent:
    return Agent(name, "Help.", ScriptedModel(*answers), **options)


def broken() -> str:
    """Fail."""
    raise ValueError(f"the key is {SECRET}")


def never(context: dict[str, Any]) -> bool:
    """Fail."""
    raise KeyError(SECRET)


async def slow(request: ModelRequest) -> str:
    await asyncio.sleep(30)
    return "late"


def check(response: httpx.Response, status: int, code: str) -> dict[str, Any]:
    """Check that a run failed with this problem, which has its id and usage."""
    problem = check_problem(response, status, code)
    assert problem["run_id"] == response.headers["podwright-run-id"]
    tokens = f"input_tokens={problem['usage']['input_tokens']}, output_tokens={problem['usage']['output_tokens']}"
    assert response.headers["podwright-usage"].startswith(tokens)
    assert SECRET not in response.text
    return problem


CALL = ToolCall.of("broken")
FAILURES: dict[str, tuple[Callable[[], Component], dict[str, Any], int, str]] = {
    "a model error": (lambda: agent(ModelError("The vendor is down.")), {}, 502, "model_failed"),
    "a vendor's exception": (lambda: agent(OSError(f"body: {SECRET}")), {}, 502, "model_failed"),
    "a tool's exception": (lambda: agent(CALL, tools=[broken]), {}, 502, "tool_failed"),
    "wrong arguments, twice": (
        lambda: agent(ToolCall.of("broken", a=1), ToolCall.of("broken", a=1), tools=[broken]),
        {},
        502,
        "tool_arguments_invalid",
    ),
    "too many loops": (
        lambda: agent(ToolCall.of("nothing"), tools=[broken], max_loops=1),
        {},
        422,
        "loop_limit_reached",
    ),
    "a condition's exception": (
        lambda: Workflow("flow", [ConditionStep(never, [AgentStep(agent("a"))])]),
        {},
        502,
        "condition_failed",
    ),
    "a condition that cannot compare": (
        lambda: Workflow(
            "flow",
            [ConditionStep({"name": "greater_than", "args": {"value": "x", "than": 1}}, [AgentStep(agent("a"))])],
        ),
        {},
        422,
        "condition_failed",
    ),
    "a name that is missing": (
        lambda: Workflow("flow", [AgentStep(agent("a"), input="{topic}")]),
        {},
        422,
        "context_invalid",
    ),
    "model calls": (lambda: agent(CALL, tools=[broken]), {"run_model_calls": 0}, 422, "limit_exceeded"),
    "tokens": (lambda: agent("a"), {"run_tokens": 5}, 422, "limit_exceeded"),
    "wall time": (
        lambda: Agent("helper", "Help.", FunctionModel(slow)),
        {"run_wall_time": 0.05},
        504,
        "limit_exceeded",
    ),
    "the component's own limit": (lambda: agent("a", limits=RunLimits(model_calls=0)), {}, 422, "limit_exceeded"),
    "an unknown model": (lambda: Agent("helper", "Help.", "nobody/knows"), {}, 500, "model_unknown"),
}


@pytest.mark.parametrize(("make", "settings", "status", "code"), FAILURES.values(), ids=FAILURES)
def test_a_failed_run_is_a_problem(
    serve: Serve, make: Callable[[], Component], settings: dict[str, Any], status: int, code: str
) -> None:
    """Each way to fail has its status and code, tells run and usage, and shows nothing of a foreign exception."""
    check(serve(make(), **settings).post("/run", json={"input": "x"}), status, code)


def test_an_unexpected_error_is_answered_without_its_text(serve: Serve) -> None:
    """An exception that no one foresaw is a 500 without its text."""

    class Faulty(Agent):
        async def perform(self, run: Any, task: Any) -> Any:
            raise RuntimeError(SECRET)

    response = serve(Faulty("helper", "Help.", "offline/echo")).post("/run", json={"input": "x"})
    check_problem(response, 500, "internal_error")
    assert SECRET not in response.text


def test_a_failed_run_reports_its_usage(serve: Serve) -> None:
    """A failed run has cost money: its usage is in the problem and in the header."""
    usage = Usage(input_tokens=10, output_tokens=5, cost=0.0000084)
    first = ModelResponse("a", usage=usage)
    flow = Workflow("flow", [agent(first, name="one"), agent(ModelError("down"), name="two")])
    response = serve(flow).post("/run", json={"input": "x"})
    problem = check(response, 502, "model_failed")
    assert problem["component"] == "two"
    assert (problem["usage"]["input_tokens"], problem["usage"]["cost"]) == (10, 0.0000084)
    assert response.headers["podwright-usage"] == 'input_tokens=10, output_tokens=5, cost="0.0000084"'


def test_an_unknown_cost_is_left_out(serve: Serve) -> None:
    """Where the price of a call is unknown, the header has no cost."""

    class Unpriced(ScriptedModel):
        def price(self, usage: Usage) -> float | None:
            return None

    answer = ModelResponse("a", usage=Usage(input_tokens=1, output_tokens=2, cost=None))
    response = serve(Agent("helper", "Help.", Unpriced(answer))).post("/run", json={"input": "x"})
    assert response.headers["podwright-usage"] == "input_tokens=1, output_tokens=2"


def test_a_lone_surrogate_from_a_model_is_valid_json(serve: Serve) -> None:
    """A model's answer that is no Unicode text reaches the caller as JSON writes it."""
    response = serve(agent("a\ud83d")).post("/run", json={"input": "x"})
    assert response.content == b'{"output":"a\\ud83d"}'


def test_an_approved_workflow_resumes(serve: Serve) -> None:
    """A paused workflow is a 409; its context and resume path, sent back, go on without repeating a step."""
    one, two = agent("first", name="one"), agent("second", name="two")
    client = serve(Workflow("flow", [one, ApprovalStep("Print {one_output}?"), two]))
    problem = check(client.post("/run", json={"input": "x"}), 409, "approval_required")
    assert problem["detail"] == "Print first?"
    assert problem["context"]["one_output"] == "first"
    body = {"inputs": problem["context"], "resume_path": problem["resume_path"]}
    answer = client.post("/run", json=body)
    assert answer.json() == {"input": "x", "one_output": "first", "two_output": "second"}


def test_an_inline_workflow_resumes_after_a_failure(serve: Serve) -> None:
    """The same holds for a workflow in the request, after a failure."""
    helper = agent("first", ModelError("down"), "second")
    client = serve(helper)
    steps = [{"type": "agent_step", "agent": "helper", "name": name, "output": name} for name in ("a", "b")]
    body = {"type": "workflow", "blueprint": {"name": "flow", "steps": steps}}
    problem = check(client.post("/run-blueprint", json={**body, "input": "x"}), 502, "model_failed")
    again = {**body, "inputs": problem["context"], "resume_path": problem["resume_path"]}
    assert client.post("/run-blueprint", json=again).json() == {"input": "x", "a": "first", "b": "second"}


def test_a_start_step_skips_what_came_before(serve: Serve) -> None:
    """A workflow starts at the step that the request names."""
    client = serve(Workflow("flow", [agent(name="one"), agent("second", name="two")]))
    answer = client.post("/run", json={"inputs": {"input": "x", "one_output": "given"}, "start_step": 1})
    assert answer.json() == {"input": "x", "one_output": "given", "two_output": "second"}


def test_a_client_that_leaves_cancels_the_run(serve: Serve, caplog: pytest.LogCaptureFixture) -> None:
    """When the connection closes, the model call is cancelled, and no error is logged."""
    gate = Gate()
    client = serve(gate.agent())
    with connect(client, "/run", b'{"input": "x"}'):
        assert gate.called.wait(30)
    assert gate.cancelled.wait(30)
    assert client.get("/health").status_code == 200
    assert not caplog.records


def test_a_client_that_leaves_before_its_body_is_complete_is_no_error(
    serve: Serve, caplog: pytest.LogCaptureFixture
) -> None:
    """A connection that closes within the body of a request is counted as 499, and no error is logged."""
    client = serve(agent("a"))
    connect(client, "/run", b"{", "content-length: 99").close()
    until(lambda: 'status="499"' in client.get("/metrics").text)
    assert client.post("/run", json={"input": "x"}).json() == {"output": "a"}
    assert not caplog.records


def test_runs_are_served_at_once(serve: Serve) -> None:
    """Ten callers of a model that waits for all of them are all answered, each with a run of its own."""
    together = asyncio.Barrier(10)

    async def meet(request: ModelRequest) -> str:
        await asyncio.wait_for(together.wait(), 10)
        return request.messages[-1].content

    client = serve(Agent("helper", "Help.", FunctionModel(meet)))
    answers: list[httpx.Response] = []
    threads = [
        threading.Thread(target=lambda n=n: answers.append(client.post("/run", json={"input": str(n)})))
        for n in range(10)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(answer.json()["output"] for answer in answers) == [str(n) for n in range(10)]
    assert len({answer.headers["podwright-run-id"] for answer in answers}) == 10
