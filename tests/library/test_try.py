"""Steps that may fail: retries, what is caught, and what is not."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tests.library.shapes import Json, events

from podwright import (
    Agent,
    AgentStep,
    ApprovalRequired,
    ApprovalStep,
    BlueprintValidationError,
    FunctionModel,
    FunctionStep,
    LoopStep,
    ParallelStep,
    RunLimits,
    ScriptedModel,
    TryStep,
    Workflow,
)
from podwright.errors import (
    ConditionError,
    ConfigurationError,
    LimitExceededError,
    LoopExhaustedError,
    ModelAuthenticationError,
    ModelError,
    OutputError,
    PodwrightError,
    RemoteError,
    RemoteInterruptedError,
    RemotePausedError,
    ReplayMismatchError,
    ToolError,
)
from podwright.models.retries import Retries

NEVER: Json = {"name": "is_empty", "args": {"value": "x"}}


@pytest.fixture(autouse=True)
def _no_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Workflow, "retries", Retries(first_wait=0))


class Failing:
    """A function that fails with the given errors, then returns how often it was called."""

    def __init__(self, *errors: BaseException) -> None:
        self._errors = list(errors)
        self.calls = 0

    @property
    def step(self) -> FunctionStep:
        def work() -> int:
            """Work."""
            self.calls += 1
            if self._errors:
                raise self._errors.pop(0)
            return self.calls

        return FunctionStep(work, output="work")


def show(text: str) -> str:
    """Return the text."""
    return text


def shown(text: str) -> FunctionStep:
    """A step that writes a text."""
    return FunctionStep(show, {"text": text}, output="shown")


def test_steps_that_fail_are_retried_then_caught() -> None:
    """After the retries the steps in `catch` run, with the error; events and the outcome show it."""
    failing = Failing(OSError("a"), OSError("b"), OSError("c"))
    step = TryStep(
        [failing.step],
        catch=[shown("{error.code}: {error.message} {error.component}")],
        retries=2,
        name="careful",
    )
    result = Workflow("flow", [step]).run("hi", trace=True)
    assert failing.calls == 3
    assert result.value == {
        "input": "hi",
        "shown": "tool_failed: Function 'work' raised OSError: c flow",
    }
    caught = events(result, "error_caught")
    assert [event.attempt for event in caught] == [0, 1, 2]
    assert [event.path for event in caught] == [(0, 0), (0, 1), (0, 2)]
    assert {event.error["code"] for event in caught} == {"tool_failed"}
    finished = events(result, "step_finished")
    assert [
        (event.step, event.path, event.outcome) for event in finished[-2:]
    ] == [("show", (0, 3, 0), "ok"), ("careful", (0,), "caught")]


def test_an_attempt_that_succeeds_ends_the_step() -> None:
    """Nothing is caught then, and what failed attempts wrote is dropped."""
    failing = Failing(OSError("a"))
    step = TryStep(
        [shown("{input}"), failing.step], catch=[shown("never")], retries=3
    )
    result = Workflow("flow", [step]).run("hi", trace=True)
    assert result.value == {"input": "hi", "shown": "hi", "work": "2"}
    failing = Failing(OSError("a"))
    step = TryStep(
        [shown("first"), failing.step], catch=[ApprovalStep("{error.code}")]
    )
    with pytest.raises(ApprovalRequired) as caught:
        Workflow("flow", [step]).run("hi")
    context = caught.value.context
    assert context is not None
    assert "shown" not in context


def test_retries_without_a_catch_end_with_the_error() -> None:
    """The last error fails the workflow, which can be resumed."""
    failing = Failing(*[OSError("x")] * 3)
    flow = Workflow("flow", [TryStep([failing.step], retries=1)])
    with pytest.raises(ToolError) as caught:
        flow.run("hi")
    assert failing.calls == 2
    stop = caught.value
    with pytest.raises(ToolError) as caught:
        flow.run(stop.context, resume_path=stop.resume_path)
    assert failing.calls == 3
    stop = caught.value
    result = flow.run(stop.context, resume_path=stop.resume_path)
    assert result["work"] == "4"


def raising(error: Exception) -> Agent:
    async def fail(request: Any) -> str:
        raise error

    return Agent("a", "", FunctionModel(fail))


@pytest.mark.parametrize(
    "error",
    [
        ModelAuthenticationError("x"),
        ModelError("x"),
        ToolError("x"),
        RemoteError("x"),
        OutputError("x"),
        ConditionError("x"),
        LoopExhaustedError("x"),
    ],
)
def test_failures_of_the_work_are_caught(error: PodwrightError) -> None:
    """Models, tools, remotes and conditions may fail."""
    step = TryStep([raising(error)], catch=[shown("{error.code}")])
    assert Workflow("flow", [step]).run("hi")["shown"] == error.code


@pytest.mark.parametrize(
    "error",
    [
        ApprovalRequired("x"),
        ConfigurationError("x"),
        LimitExceededError("x"),
        RemoteInterruptedError("x"),
        RemotePausedError("x"),
        ReplayMismatchError("x"),
    ],
)
def test_what_ends_a_run_is_not_caught(error: PodwrightError) -> None:
    """Pauses, limits, unknown effects and wrong configurations end the run, also inside the error of a tool."""
    failing = Failing(error)
    for tried in (raising(error), failing.step):
        flow = Workflow("flow", [TryStep([tried], catch=[shown("no")])])
        with pytest.raises(type(error)):
            flow.run("hi")


def test_a_limit_of_a_step_is_caught_and_one_of_the_run_is_not() -> None:
    """A step that used up its own part may have a fallback; what is used up for the whole run ends it."""
    agent = Agent("a", "", ScriptedModel(*"abc"))
    tried = AgentStep(agent, limits={"tokens": 1})
    flow = Workflow("flow", [TryStep([tried], catch=[shown("{error.code}")])])
    assert flow.run("hi")["shown"] == "limit_exceeded"
    flow = Workflow(
        "flow",
        [TryStep([agent, agent], catch=[shown("no")])],
        limits=RunLimits(model_calls=1),
    )
    with pytest.raises(LimitExceededError):
        flow.run("hi")


async def test_a_cancellation_is_not_caught() -> None:
    """A cancelled run runs no other steps."""
    begun = asyncio.Event()

    async def hang() -> None:
        """Hang."""
        begun.set()
        await asyncio.Event().wait()

    flow = Workflow("flow", [TryStep([FunctionStep(hang)], catch=[shown("x")])])
    task = asyncio.create_task(flow.arun("hi"))
    await begun.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


def test_an_error_is_known_inside_the_catch_only() -> None:
    """Agents, conditions and nested steps in `catch` are given the error; the context does not keep it."""
    model = ScriptedModel("sorry")
    agent = Agent("a", "Answer.", model)
    is_tool = {
        "name": "equals",
        "args": {"value": "{error.code}", "to": "tool_failed"},
    }
    catch = [
        LoopStep(
            [ParallelStep([[AgentStep(agent)], [shown("{error.code}")]])],
            until=is_tool,
        )
    ]
    flow = Workflow("flow", [TryStep([Failing(OSError()).step], catch=catch)])
    result = flow.run("hi")
    assert result == {
        "input": "hi",
        "a_output": "sorry",
        "shown": "tool_failed",
    }
    error = (
        '{"code": "tool_failed", "message": "Function \'work\' raised OSError'
    )
    assert f"## error\n{error}" in model.requests[0].messages[-1].text


def test_an_approval_inside_a_try_resumes_there() -> None:
    """A pause in an attempt, and one in `catch`, go on with what was written before, and the error."""
    failing = Failing(OSError("a"), OSError("b"))
    step = TryStep(
        [shown("{input}"), ApprovalStep("{shown}?"), failing.step],
        catch=[ApprovalStep("{error.code}?"), shown("{error.code}!")],
        retries=1,
    )
    flow = Workflow("flow", [step])
    questions: list[str] = []
    paths: list[Any] = []
    context: Any = "hi"
    path: Any = None
    for _ in range(3):
        with pytest.raises(ApprovalRequired) as caught:
            flow.run(context, resume_path=path)
        questions.append(caught.value.message)
        context, path = caught.value.context, caught.value.resume_path
        paths.append(path)
    assert questions == ["hi?", "hi?", "tool_failed?"]
    assert paths == [[0, 0, 1], [0, 1, 1], [0, 2, 0]]
    result = flow.run(context, resume_path=path)
    assert result["shown"] == "tool_failed!"
    assert failing.calls == 2


def test_a_try_step_needs_something_to_do() -> None:
    """A try step without `catch` and retries, and with wrong keys, is a problem."""
    for keys in ({}, {"retries": 0}, {"retries": 11}, {"catch": []}):
        step = {
            "type": "try_step",
            "name": "t",
            "steps": [{"type": "approval_step", "name": "a", "message": "?"}],
        } | keys
        with pytest.raises(BlueprintValidationError):
            Workflow.from_blueprint({"name": "flow", "steps": [step]})
