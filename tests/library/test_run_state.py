"""The state that the functions of a run share: it is recorded with each call, and there when the run goes on."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Any

import pytest
from tests.library.shapes import events

from podwright import (
    Agent,
    ApprovalRequired,
    ApprovalStep,
    ConditionStep,
    FunctionAgent,
    FunctionModel,
    FunctionStep,
    ParallelStep,
    RunContext,
    ScriptedModel,
    TryStep,
    Workflow,
    tool,
)
from podwright.data.json_data import to_exact_json_data
from podwright.errors import ConditionError, RunError, ToolError
from podwright.events import Event, adapter
from podwright.journal.journal import Journal
from podwright.messages import shared_state
from podwright.messages.shared_state import (
    MAX_NAMES,
    MAX_STATE,
    SharedState,
    StateChange,
)
from podwright.run.run import execute
from podwright.testing import ModelRequest, ToolCall

RUN = "0" * 32


def count(context: RunContext) -> int:
    """Count one more."""
    context.state["count"] = context.state.get("count", 0) + 1
    return context.state["count"]


def read(context: RunContext) -> dict[str, Any]:
    """Read all of it."""
    return dict(context.state)


def step(function: Callable[..., Any], name: str) -> FunctionStep:
    return FunctionStep(function, name=name, output=name)


def caller(*functions: Callable[..., Any]) -> Agent:
    """An agent whose model calls each tool once, one after the other."""
    calls = [ToolCall.of(function.__name__) for function in functions]
    model = ScriptedModel(*calls, "done")
    return Agent("caller", "Do.", model, tools=list(functions))


def counter_flow() -> Workflow:
    """Functions of steps, of nested workflows, of agents and of their tools, in a tree of runs."""

    async def call(request: ModelRequest) -> Any:
        if request.messages[-1].role == "tool":
            return request.messages[-1].text
        return [ToolCall.of("count")]

    async def answer(task: str, context: RunContext) -> str:
        return str(count(context))

    return Workflow(
        "flow",
        [
            step(count, "one"),
            Agent("two", "Count.", FunctionModel(call), tools=[count]),
            Workflow("inner", [step(count, "three")]),
            FunctionAgent("four", answer),
            step(read, "all"),
        ],
    )


async def attempt(
    component: Any, recorded: Sequence[Event] = (), number: int = 1
) -> tuple[Any, list[Event]]:
    """The result of an attempt, and its events; what is recorded comes from JSON."""
    stored = [
        adapter().validate_python(json.loads(json.dumps(event.to_dict())))
        for event in recorded
    ]
    new: list[Event] = []
    result = await execute(
        component,
        component.task("x"),
        subscribers=(new.append,),
        run_id=RUN,
        journal=Journal(stored, attempt=number),
    )
    return result, new


def test_all_runs_of_a_tree_share_it() -> None:
    """And no other run has any of it."""
    flow = counter_flow()
    for _ in range(2):
        result = flow.run("x", trace=True).data
        assert (result["one"], result["two_output"]) == (1, "2")
        assert result["four_output"] == "4"
        assert result["all"] == {"count": 4}


def test_a_change_is_in_the_event_of_the_call() -> None:
    """What is new and what is gone; a call that changes nothing has none."""

    def replace(context: RunContext) -> str:
        del context.state["count"]
        context.state["items"] = [{"id": 7}]
        return "replaced"

    def append(context: RunContext) -> str:
        context.state["items"].append({"id": 8})
        return "appended"

    trace = caller(count, replace, append, read).run("x", trace=True)
    changes = [event.state for event in events(trace, "tool_call_finished")]
    assert changes == [
        StateChange({"count": 1}),
        StateChange({"items": [{"id": 7}]}, ("count",)),
        StateChange({"items": [{"id": 7}, {"id": 8}]}),
        None,
    ]
    data = [event.to_dict() for event in events(trace, "tool_call_finished")]
    assert data[0]["state"] == {"written": {"count": 1}, "removed": []}
    assert "state" not in data[3]


async def test_a_new_attempt_finds_what_calls_have_left() -> None:
    """After a stop at any event: the state after the last call that is recorded, and no change is made twice."""
    first, recorded = await attempt(counter_flow())
    assert first.data["all"] == {"count": 4}
    for number in range(1, len(recorded)):
        again, _ = await attempt(counter_flow(), recorded[:number], 2)
        assert again.data == first.data


async def test_attempts_after_attempts() -> None:
    """Each attempt is cut off at its fifth event, and the next one knows what all of them have recorded."""
    recorded: list[Event] = []
    for number in range(1, 20):
        result, new = await attempt(counter_flow(), recorded, number)
        assert result.data["all"] == {"count": 4}
        recorded += new[:5]


async def test_failed_calls_are_recorded_too() -> None:
    """What a call has changed before it failed stays, in this attempt and in the next one."""

    def fail(context: RunContext) -> None:
        count(context)
        raise RunError("out of stock", code="out_of_stock")

    flow = Workflow(
        "flow",
        [TryStep([step(fail, "fail")], catch=[step(count, "caught")])],
    )
    result, recorded = await attempt(flow)
    assert result.data["caught"] == 2
    (cut,) = [
        number
        for number, event in enumerate(recorded)
        if event.type == "error_caught"
    ]
    again, _ = await attempt(flow, recorded[: cut + 1], 2)
    assert again.data["caught"] == 2


async def test_conditions_share_it() -> None:
    """What one changes is recorded with its result, which a new attempt does not ask for again."""

    def is_second(context: dict[str, Any], run: RunContext) -> bool:
        return count(run) == 2

    flow = Workflow(
        "flow",
        [
            step(count, "one"),
            ConditionStep("is_second", [step(count, "then")]),
        ],
        conditions={"is_second": is_second},
    )
    result, recorded = await attempt(flow)
    assert result.data["then"] == 3
    (checked,) = [each for each in recorded if each.type == "condition_checked"]
    assert checked.state == StateChange({"count": 2})
    for number in range(1, len(recorded)):
        again, _ = await attempt(flow, recorded[:number], 2)
        assert again.data["then"] == 3


def test_a_condition_that_leaves_what_cannot_be_kept() -> None:
    """It fails itself, and not the next call."""

    def spoil(context: dict[str, Any], run: RunContext) -> bool:
        run.state["count"] = b"x"
        return True

    step_after = ConditionStep("spoil", [step(count, "then")])
    flow = Workflow("flow", [step_after], conditions={"spoil": spoil})
    with pytest.raises(ConditionError, match="'spoil': the value of 'count'"):
        flow.run("x")


def test_a_pause_in_a_chat_keeps_what_a_condition_has_changed() -> None:
    """The condition before it is not asked again."""

    def is_first(context: dict[str, Any], run: RunContext) -> bool:
        return count(run) == 1

    model = ScriptedModel(ToolCall.of("pay"), "done", "done")
    clerk = Agent("clerk", "Do.", model, tools=[pay])
    flow = Workflow(
        "flow",
        [ConditionStep("is_first", [clerk]), step(read, "all")],
        conditions={"is_first": is_first},
    )
    with pytest.raises(ApprovalRequired) as pause:
        flow.run("x")
    context = json.loads(json.dumps(pause.value.context))
    assert flow.run(context, trace=True).data["all"] == {"count": 2}


async def test_calls_at_once_change_the_same_state() -> None:
    """Each sees what the others have changed so far; every change is recorded once."""

    def mark(name: str) -> Callable[..., Any]:
        async def run(context: RunContext) -> str:
            context.state[name] = True
            return name

        run.__name__ = name
        return run

    names = ["a", "b", "c", "d"]
    branches = [[step(mark(name), name)] for name in names]
    flow = Workflow("flow", [ParallelStep(branches), step(read, "all")])
    result, recorded = await attempt(flow)
    assert result.data["all"] == dict.fromkeys(names, True)
    again, _ = await attempt(flow, recorded[:-4], 2)
    assert again.data["all"] == dict.fromkeys(names, True)


def circle() -> list[Any]:
    values: list[Any] = []
    values.append(values)
    return values


WRONG: list[tuple[str, Callable[[], Any]]] = [
    ("a moment", lambda: datetime(2026, 1, 1, tzinfo=UTC)),
    ("a tuple", lambda: (1, 2)),
    ("a set", lambda: {1}),
    ("bytes", lambda: b"x"),
    ("an object", object),
    ("an infinite number", lambda: float("inf")),
    ("no number", lambda: float("nan")),
    ("numbers as keys", lambda: {1: "x"}),
    ("a circle", circle),
    ("half a character", lambda: "\ud83d"),
    ("more than it may hold", lambda: "x" * MAX_STATE),
]


@pytest.mark.parametrize(
    "make", [make for _, make in WRONG], ids=[name for name, _ in WRONG]
)
def test_a_value_that_cannot_be_kept(make: Callable[[], Any]) -> None:
    """It fails the call that leaves it, with its name; the value before is there again for later calls."""

    def spoil(context: RunContext) -> str:
        context.state["new"] = make()
        context.state["count"] = make()
        context.state["fine"] = 1
        return "spoilt"

    flow = Workflow(
        "flow",
        [
            step(count, "one"),
            TryStep([step(spoil, "spoil")], catch=[step(read, "all")]),
        ],
    )
    trace = flow.run("x", trace=True)
    assert trace.data["all"] == {"count": 1, "fine": 1}
    with pytest.raises(ToolError) as caught:
        Workflow("flow", [step(spoil, "spoil")]).run("x")
    assert "the value of 'count' in the state" in caught.value.message


def test_names_are_texts() -> None:
    """Another one is refused as a value is."""
    state = SharedState()
    names: dict[Any, Any] = state.values
    names[7] = "x"
    assert "the value of 7 in the state" in state.settle()
    names["\ud83d"] = "half a character"
    assert "surrogates not allowed" in state.settle()
    assert state.take_change() is None
    assert not names


def test_the_size_of_a_state() -> None:
    """Names count as well, and what is removed or becomes shorter makes room."""
    half = "x" * (MAX_STATE // 2)
    state = SharedState({"a": half})
    state.values["b" * MAX_STATE] = 1
    assert "more than" in state.settle()
    state.values["b"] = half
    assert "'b' in the state" in state.settle()
    state.values["a"] = 1
    state.values["b"] = half
    assert not state.settle()
    del state.values["b"]
    state.values["c"] = half
    assert not state.settle()


def test_how_many_names_a_state_has() -> None:
    """What is removed makes room for another one."""
    full = {str(number): number for number in range(MAX_NAMES)}
    state = SharedState(full)
    state.values["one more"] = 1
    assert f"more than {MAX_NAMES} names" in state.settle()
    assert state.values == full
    del state.values["0"]
    state.values["another"] = 1
    state.values["1"] = "changed"
    assert not state.settle()


def test_a_change_that_looks_equal_is_one() -> None:
    """`1`, `1.0` and `true` are different JSON."""
    state = SharedState({"n": 1})
    state.values["n"] = True
    assert state.take_change() == StateChange({"n": True})
    state.values["n"] = 1.0
    change = state.take_change()
    assert change is not None
    assert type(change.written["n"]) is float


def test_what_is_recorded_does_not_change() -> None:
    """Later changes of a value inside are further ones."""
    state = SharedState()
    state.values["list"] = [1]
    first = state.take_change()
    state.values["list"].append(2)
    assert first == StateChange({"list": [1]})
    assert state.take_change() == StateChange({"list": [1, 2]})
    assert SharedState({}, [StateChange({"a": 1}), StateChange({}, ("a",))]).values == {}  # fmt: skip


def test_a_thread_may_change_a_value_while_it_is_recorded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """No other call fails for that, and the value is not put back under the hands of the thread."""
    state = SharedState()
    cart = state.values["cart"] = [1]

    def change_and_convert(value: Any) -> Any:
        data = to_exact_json_data(value)
        cart.append(2)
        return data

    monkeypatch.setattr(shared_state, "to_exact_json_data", change_and_convert)
    assert not state.settle()
    monkeypatch.undo()
    assert state.values["cart"] is cart
    assert state.take_change() == StateChange({"cart": [1, 2, 2]})


def test_a_workflow_that_goes_on_has_it() -> None:
    """Between two steps, its context keeps the state; a state that was changed there is the new one."""
    flow = Workflow(
        "flow",
        [
            step(count, "one"),
            ApprovalStep("Go on?", "ask"),
            step(count, "two"),
            step(read, "all"),
        ],
    )
    with pytest.raises(ApprovalRequired) as pause:
        flow.run("x")
    context = json.loads(json.dumps(pause.value.context))
    result = flow.run(context, resume_path=pause.value.resume_path, trace=True)
    assert result.data["all"] == {"count": 2}


@tool(approval=True)
def pay(context: RunContext) -> str:
    """Pay."""
    return f"paid {count(context)}"


def test_a_chat_that_goes_on_has_it() -> None:
    """Inside a chat, its calls are replayed with what they have changed; before that, what a checkpoint has kept."""

    async def call(request: ModelRequest) -> Any:
        done = sum(message.role == "tool" for message in request.messages)
        if done == 2:
            return request.messages[-1].text
        return [ToolCall.of(("count", "pay")[done])]

    clerk = Agent("clerk", "Do.", FunctionModel(call), tools=[count, pay])
    with pytest.raises(ApprovalRequired) as pause:
        clerk.run("x")
    context = json.loads(json.dumps(pause.value.context))
    assert clerk.run(context) == "paid 2"
    flow = Workflow(
        "flow", [step(count, "one"), ApprovalStep("Go on?", "ask"), clerk]
    )
    with pytest.raises(ApprovalRequired) as pause:
        flow.run("x")
    first = pause.value
    with pytest.raises(ApprovalRequired) as pause:
        flow.run(first.context, resume_path=first.resume_path)
    context = json.loads(json.dumps(pause.value.context))
    result = flow.run(context, resume_path=pause.value.resume_path)
    assert result["clerk_output"] == "paid 3"


def test_a_function_can_be_called_alone() -> None:
    """A test gives the state, and sees what the function makes of it."""
    context = RunContext(state={"count": 2})
    assert count(context) == 3
    assert context.state == {"count": 3}
    assert count(RunContext()) == 1
