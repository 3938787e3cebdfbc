"""Steps that may fail: retries, what is caught, and what is not."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from tests.helpers import write_files
from tests.library.shapes import Json, events

from podwright import (
    Agent,
    AgentStep,
    ApprovalRequired,
    ApprovalStep,
    BlueprintValidationError,
    FunctionAgent,
    FunctionModel,
    FunctionStep,
    LoopStep,
    ParallelStep,
    RunLimits,
    ScriptedModel,
    TryStep,
    Workflow,
    blueprints,
    tool,
)
from podwright.blueprints.diff import blueprint_changes
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
    RunError,
    ToolError,
)
from podwright.folders.error_codes import misspelt_codes
from podwright.folders.folder import Folder
from podwright.messages.messages import ToolCall
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


# --- Errors by their codes ------------------------------------------------------------------------------------------

RAISED: list[tuple[BaseException, str]] = [
    (OSError("a"), "tool_failed"),
    (ToolError("a"), "tool_failed"),
    (ModelError("a"), "model_failed"),
    (ModelAuthenticationError("a"), "model_authentication"),
    (RemoteError("a"), "remote_failed"),
    (OutputError("a"), "output_invalid"),
    (ConditionError("a"), "condition_failed"),
    (RunError("Number 42 is out of stock.", code="out_of_stock"), "out_of_stock"),
    (RunError("a", code="http_404"), "http_404"),
]  # fmt: skip
"""What a function raises, and the code of the error."""


@pytest.mark.parametrize(("error", "code"), RAISED, ids=repr)
@pytest.mark.parametrize("retries", [0, 2])
def test_only_the_named_errors_are_caught(
    error: BaseException, code: str, retries: int
) -> None:
    """Every error with every code: it is caught and retried if its code is named, and fails the workflow if not."""
    for _, named in RAISED:
        failing = Failing(*[error] * (retries + 1))
        step = TryStep(
            [failing.step],
            catch=[shown("{error.code}")],
            retries=retries,
            on=[named, "replay_failed"],
        )
        flow = Workflow("flow", [step])
        if named == code:
            assert flow.run("hi")["shown"] == code
            assert failing.calls == retries + 1
        else:
            with pytest.raises(PodwrightError) as raised:
                flow.run("hi")
            assert raised.value.code == code
            assert failing.calls == 1


def test_an_error_of_a_tool_and_of_a_function_agent_has_its_own_code() -> None:
    """The code goes through agents; the one who catches it is told code and message."""

    def buy(number: int) -> str:
        """Buy something."""
        raise RunError(f"Number {number} is out of stock.", code="out_of_stock")

    def answer(task: str) -> str:
        """Answer."""
        return buy(7)

    model = ScriptedModel([ToolCall.of("buy", "1", number=7)])
    for agent in (
        Agent("buyer", "", model, tools=[tool(on_error="fail")(buy)]),
        FunctionAgent("buyer", answer),
    ):
        step = TryStep(
            [agent],
            catch=[shown("{error.code}: {error.message}")],
            on=("out_of_stock",),
        )
        flow = Workflow("flow", [step])
        result = flow.run("hi", trace=True)
        assert result.value["shown"] == (
            "out_of_stock: Number 7 is out of stock."
        )
        [caught] = events(result, "error_caught")
        assert caught.error["code"] == "out_of_stock"
        [failed] = events(result, "run_failed")
        assert failed.error["code"] == "out_of_stock"


@pytest.mark.parametrize(
    ("on", "pointer", "reason"),
    [
        (["model_unavaliable"], "/on/0", "'model_unavailable'"),
        (["tool_failed", "timeout"], "/on/1", "'model_timeout'"),
        (["model_overloaded"], "/on/0", "'model_overloaded'"),
        (["run_cancelled"], "/on/0", "'run_cancelled'"),
        (["approval_rejected"], "/on/0", "'approval_rejected'"),
        (["Out of stock"], "/on/0", "Out of stock"),
        (["_x"], "/on/0", "_x"),
        (["x" * 65], "/on/0", "64"),
        ([7], "/on/0", "7"),
        ([], "/on", "1"),
        ("tool_failed", "/on", "array"),
    ],
)
def test_codes_that_no_step_can_catch(
    on: Any, pointer: str, reason: str
) -> None:
    """A misspelled code, one that is never caught and one of the wrong form are problems of the blueprint."""
    blueprint = Workflow(
        "flow", [TryStep([shown("x")], retries=1, on=["tool_failed"])]
    ).to_blueprint()
    blueprint["steps"][0]["on"] = on
    with pytest.raises(BlueprintValidationError) as refused:
        Workflow.from_blueprint(blueprint, functions={"show": show})
    [problem] = refused.value.problems
    assert problem.pointer == f"/steps/0{pointer}"
    assert reason in problem.detail + problem.suggestion
    if isinstance(on, str):
        with pytest.raises(BlueprintValidationError):
            Workflow("flow", [TryStep([shown("x")], retries=1, on=on)])


def test_codes_make_a_round_trip() -> None:
    """The blueprint has the codes, also as YAML, where the key would be a boolean."""
    flow = Workflow(
        "flow", [TryStep([shown("x")], retries=1, on=("out_of_stock",))]
    )
    blueprint = flow.to_blueprint()
    assert blueprint["steps"][0]["on"] == ["out_of_stock"]
    assert blueprints.from_yaml(blueprints.to_yaml(blueprint)) == blueprint
    written = "on: [tool_failed]\nno: {yes: on}\n"
    assert blueprints.from_yaml(written) == {
        "on": ["tool_failed"],
        "no": {"yes": True},
    }
    again = Workflow.from_blueprint(blueprint, functions={"show": show})
    assert again.to_blueprint() == blueprint
    plain = Workflow("flow", [TryStep([shown("x")], retries=1)]).to_blueprint()
    assert "on" not in plain["steps"][0]
    [change] = blueprint_changes(plain, blueprint)
    assert change.breaking


CODES_OF_A_FOLDER = """
from podwright.errors import RunError
from shared.stock import Empty

class Late(RunError):
    code = "too_late"

ALSO = ["no_such_day"]

def look_up(number: str) -> str:
    if not number:
        raise errors.Refusal("no_number", "Which one?")
    raise RunError("None left.", code="out_of_stock")
"""


@pytest.mark.parametrize(
    ("code", "meant"),
    [
        ("out_of_stock", None),
        ("out_of_stok", "out_of_stock"),
        ("to_late", "too_late"),
        ("no_numbr", "no_number"),
        ("shelf_emty", "shelf_empty"),
        # it is somewhere in the code, or may be of another component
        ("no_such_day", None),
        ("of_a_remote", None),
        ("tool_failed", None),
    ],
)
def test_codes_that_functions_give_to_errors(
    tmp_path: Path, code: str, meant: str | None
) -> None:
    """A code that resembles one that the folder raises, and that nothing in the folder has, is a warning."""
    step = {
        "steps": [{"function": "look_up", "arguments": {"number": "{input}"}}],
        "retries": 1,
        "on": [code],
    }
    blueprint = {"name": "w", "steps": [{"branches": [[step]]}]}
    files = {
        "w/blueprint.json": blueprint,
        "w/functions.py": CODES_OF_A_FOLDER,
        "w/broken.py": "def (",
        "w/.venv/other.py": f"code = '{code}'",
        "shared/stock.py": "class Empty(Exception):\n    code = 'shelf_empty'\n",
    }
    folder = Folder(write_files(tmp_path, files) / "w")
    found = misspelt_codes(folder, folder.blueprint())
    if meant is None:
        assert found == []
        return
    [problem] = found
    assert problem.pointer == "/steps/0/branches/0/0/on/0"
    assert f"'{code}'" in problem.detail
    assert problem.suggestion == f"Did you mean '{meant}'?"
