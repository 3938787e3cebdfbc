"""A model's conversation: tools, wrong calls, structured output, and the input that it begins with."""

import asyncio
import json
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
from pydantic import BaseModel, Field

from podwright import (
    Agent,
    Event,
    FunctionModel,
    ScriptedModel,
)
from podwright.errors import (
    ContextError,
    InputError,
    LoopLimitError,
    ModelError,
    OutputError,
    ToolArgumentsError,
    ToolError,
)
from podwright.testing import ModelResponse, ToolCall, assert_events, events_of


def picked(trace: Any, *types: str) -> list[Any]:
    """The events of these types; a type checker cannot know which they are."""
    return events_of(trace, *types)


Sound = Callable[[list[Event]], None]


def says(text: str) -> FunctionModel:
    return FunctionModel(lambda _: text)


# --- tools ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("style", ["sync", "async"])
def test_a_tool_that_raises(style: str, heard: Any, assert_sound: Sound) -> None:
    """An exception in a tool is a ToolError whose cause it is."""

    def broken() -> str:
        """Break."""
        raise LookupError("nothing there")

    async def broken_async() -> str:
        """Break."""
        raise LookupError("nothing there")

    tool: Any = broken if style == "sync" else broken_async
    model = ScriptedModel(ToolCall.of(tool.__name__), "end")
    agent = Agent("a", "Help.", model, tools=[tool], event_manager=heard.manager)
    with pytest.raises(ToolError) as caught:
        agent.run("?")
    assert isinstance(caught.value.__cause__, LookupError)
    assert "nothing there" in caught.value.message
    assert_sound(heard.events)
    assert [event.error["code"] for event in heard.of("tool_call_failed")] == ["tool_failed"]
    assert heard.events[-1].usage.tool_calls == 1


def test_a_tool_whose_answer_is_no_json() -> None:
    """A tool's answer that cannot be written down is the tool's failure."""
    circle: list[Any] = []
    circle.append(circle)

    def turn() -> list[Any]:
        """Turn."""
        return circle

    with pytest.raises(ToolError, match="Circular"):
        Agent("a", "Help.", ScriptedModel(ToolCall.of("turn"), "end"), tools=[turn]).run("?")


def count_to(number: int) -> int:
    """Count."""
    return number


WRONG = {
    "a wrong type": ToolCall.of("count_to", number="many"),
    "a missing argument": ToolCall.of("count_to"),
    "an unknown argument": ToolCall.of("count_to", number=1, speed=2),
    "no JSON": ToolCall("call_1", "count_to", '{"number": '),
    "no object": ToolCall("call_1", "count_to", "[1]"),
    "an unknown tool": ToolCall.of("count_two", number=1),
}


@pytest.mark.parametrize("wrong", WRONG)
def test_a_wrong_call_goes_back_once(wrong: str, assert_sound: Sound) -> None:
    """The model is told what is wrong with its call, and may do better; the second time the run fails."""
    call = WRONG[wrong]
    model = ScriptedModel(call, ToolCall.of("count_to", number=3), "three")
    result = Agent("a", "Help.", model, tools=[count_to]).run("?", trace=True)
    assert result.value == "three"
    told = model.requests[1].messages[-1]
    assert (told.role, told.tool_call_id) == ("tool", "call_1")
    assert told.content.startswith("Error: ")
    assert call.name in told.content
    assert_sound(result.events)
    assert_events(result, "tool_call_started", "tool_call_failed", "tool_call_finished output=3", "run_finished")

    model = ScriptedModel(call, call, "three")
    with pytest.raises(ToolArgumentsError) as caught:
        Agent("a", "Help.", model, tools=[count_to]).run("?")
    assert len(model.requests) == 2
    assert caught.value.code == "tool_arguments_invalid"


def test_an_unknown_tool_is_answered_with_a_suggestion() -> None:
    """A call of an unknown tool is answered with the name that is nearest."""
    model = ScriptedModel(ToolCall.of("count_two"), "end")
    Agent("a", "Help.", model, tools=[count_to]).run("?")
    assert model.requests[1].messages[-1].content == (
        "Error: Unknown tool 'count_two' in 'a'. Did you mean 'count_to'?"
    )


def test_two_wrong_calls_in_one_turn_are_told_together() -> None:
    """A model that errs twice in one turn was not told yet: both errors go back."""
    wrong = [ToolCall.of("count_to", id="1", number="x"), ToolCall.of("count_to", id="2", number="y")]
    model = ScriptedModel(wrong, "I give up.")
    assert Agent("a", "Help.", model, tools=[count_to]).run("?") == "I give up."
    assert [message.tool_call_id for message in model.requests[1].messages[-2:]] == ["1", "2"]


def test_wrong_arguments_inside_a_nested_run_are_its_failure() -> None:
    """A nested run that fails for its model's wrong calls fails the outer run, and is not told to its model."""
    wrong = ToolCall.of("count_to", number="x")
    helper = Agent("helper", "Help.", ScriptedModel(wrong, wrong), tools=[count_to])

    async def ask() -> str:
        """Ask the helper."""
        return await helper.arun("?")

    model = ScriptedModel(ToolCall.of("ask"), "end")
    with pytest.raises(ToolArgumentsError) as caught:
        Agent("asker", "Ask.", model, tools=[ask]).run("?")
    assert caught.value.component == "helper"
    assert len(model.requests) == 1


async def test_tool_calls_of_one_turn_run_together() -> None:
    """Tool calls of one turn run concurrently, and are answered in the order of the calls."""
    gate = asyncio.Barrier(3)

    async def meet(name: str) -> str:
        """Wait for the others."""
        async with asyncio.timeout(10), gate:
            return name

    calls = [ToolCall.of("meet", id=name, name=name) for name in "abc"]
    model = ScriptedModel(calls, "met")
    assert await Agent("a", "Help.", model, tools=[meet]).arun("?") == "met"
    assert [(message.tool_call_id, message.content) for message in model.requests[1].messages[-3:]] == [
        ("a", "a"), ("b", "b"), ("c", "c"),
    ]  # fmt: skip


async def test_a_failing_tool_cancels_the_others(heard: Any, assert_sound: Sound) -> None:
    """When one of several tool calls fails, the others are cancelled, and the run waits until they have ended."""
    waiting, ended = asyncio.Event(), list[str]()

    async def wait() -> str:
        """Wait."""
        waiting.set()
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)
            ended.append("wait")
        raise AssertionError

    async def fail() -> str:
        """Fail."""
        await waiting.wait()
        raise ValueError("no")

    model = ScriptedModel([ToolCall.of("wait", id="1"), ToolCall.of("fail", id="2")])
    with pytest.raises(ToolError, match="no"):
        await Agent("a", "Help.", model, tools=[wait, fail], event_manager=heard.manager).arun("?")
    assert ended == ["wait"]
    assert_sound(heard.events)
    failed = {event.tool: event.error["code"] for event in heard.of("tool_call_failed")}
    assert failed == {"fail": "tool_failed", "wait": "run_cancelled"}


def test_max_loops() -> None:
    """A model that never stops calling tools is stopped after `max_loops` calls."""
    model = FunctionModel(lambda _: ToolCall.of("count_to", number=1))
    agent = Agent("a", "Help.", model, tools=[count_to], max_loops=3)
    with pytest.raises(LoopLimitError) as caught:
        agent.run("?")
    assert caught.value.usage is not None
    assert caught.value.usage.model_calls == 3


def test_an_answer_that_was_cut_off() -> None:
    """An answer cut off at `max_tokens` is a failure, never a success."""
    model = ScriptedModel(ModelResponse("It was a dark and", finish_reason="length"))
    with pytest.raises(ModelError, match="cut off at 4 output tokens") as caught:
        Agent("a", "Help.", model, max_tokens=4).run("?")
    assert caught.value.usage is not None
    assert caught.value.usage.model_calls == 1


# --- structured output ---------------------------------------------------------------------------------


class Place(BaseModel):
    """A place."""

    name: str
    population: int = Field(ge=0)


@dataclass
class Point:
    x: int
    y: int


class ToolOnly(ScriptedModel):
    """A scripted model whose provider has no JSON mode."""

    json_output = False


STRUCTURED: dict[str, tuple[Any, Any, Any]] = {
    "model": (Place, {"name": "Paris", "population": 2}, Place(name="Paris", population=2)),
    "list": (list[int], {"answer": [1, 2]}, [1, 2]),
    "dataclass": (Point, {"x": 1, "y": 2}, Point(1, 2)),
    "union": (Place | int, {"answer": 3}, 3),
    "object": (dict[str, int], {"a": 1}, {"a": 1}),
}


@pytest.mark.parametrize("by_tool", [False, True], ids=["json", "tool"])
@pytest.mark.parametrize("which", STRUCTURED)
def test_structured_output(which: str, by_tool: bool, assert_sound: Sound) -> None:
    """`response_model` gives a validated value, whether the model has a JSON mode or not."""
    response_model, data, value = STRUCTURED[which]
    good: Any = ToolCall.of("final_answer", **data) if by_tool else json.dumps(data)
    bad: Any = ToolCall.of("final_answer", wrong="x", name=1) if by_tool else '{"wrong": "x", "name": 1}'
    model = (ToolOnly if by_tool else ScriptedModel)(bad, good)
    result = Agent("a", "Help.", model).run("?", response_model=response_model, trace=True)
    assert result.value == value
    assert type(result.value) is type(value)
    assert_sound(result.events)
    first, second = model.requests
    assert (first.output is None) is by_tool
    assert [tool["function"]["name"] for tool in first.tools] == (["final_answer"] if by_tool else [])
    complaint = second.messages[-1]
    assert complaint.role == ("tool" if by_tool else "user")
    assert "does not fit" in complaint.content


@pytest.mark.parametrize("answer", ["no JSON", "[1]", '{"name": "Paris", "population": -1}', '{"name": 1, "name": 2}'])
def test_output_that_never_fits(answer: str) -> None:
    """An answer that never fits the response model within `max_loops` is an OutputError that says why."""
    model = ScriptedModel(answer, answer, answer)
    with pytest.raises(OutputError) as caught:
        Agent("a", "Help.", model, max_loops=2).run("?", response_model=Place)
    assert len(model.requests) == 2
    assert "2 tries" in caught.value.message


def test_structured_output_after_tools() -> None:
    """Tools come first, then the structured answer; text is one of the types."""
    model = ScriptedModel(ToolCall.of("count_to", number=3), '{"x": 3, "y": 4}')
    assert Agent("a", "Help.", model, tools=[count_to]).run("?", response_model=Point) == Point(3, 4)
    assert Agent("a", "Help.", says("text")).run("?", response_model=str) == "text"


def test_a_type_that_cannot_be_a_response_model() -> None:
    """A response model without a schema is refused before any model call."""
    model = ScriptedModel("never")
    with pytest.raises(InputError):
        Agent("a", "Help.", model).run("?", response_model=threading.Lock)
    assert model.requests == []


# --- input ---------------------------------------------------------------------------------------------


def circular() -> list[Any]:
    circle: list[Any] = []
    circle.append(circle)
    return circle


@pytest.mark.parametrize(
    "given",
    [5, None, [1], b"bytes", {}, {1: "x"}, {"a": "\ud800"}, {"a": circular()}, {"a": b"\xff"}, {"a": 10**5000}],
    ids=["int", "none", "list", "bytes", "empty", "key", "surrogate", "circle", "binary", "huge"],
)
@pytest.mark.parametrize("kind", ["agent", "workflow", "conductor", "pipeline"])
def test_wrong_input(kind: str, given: Any, stage: Callable[..., Any]) -> None:
    """Whatever is no text and no object of JSON values is one ContextError, before any model call."""
    staged = stage(kind)
    if kind == "workflow" and given is None:
        staged.component.run(given)
        return
    with pytest.raises(ContextError):
        staged.component.run(given)
    assert staged.model.begun == []
    if staged.heard.events:
        assert staged.heard.types()[0] == "run_started"
        assert staged.heard.types()[-1] == "run_failed"


def test_named_inputs_fill_the_instructions() -> None:
    """Named inputs fill `{name}` in the instructions; the others are given as labelled sections."""
    model = ScriptedModel("ok", "ok", "ok")
    agent = Agent("a", "Answer in {language}, {unknown}.", model)
    agent.run({"language": "French", "query": "moon?", "style": {"tone": "dry"}})
    system, user = model.requests[0].messages
    assert system.content == "Answer in French, {unknown}."
    assert user.content == '## query\nmoon?\n\n## style\n{"tone": "dry"}'
    agent.run({"language": "{query}", "query": "moon?"})
    system, user = model.requests[1].messages
    assert system.content == "Answer in {query}, {unknown}."
    assert user.content == "moon?"
    agent.run("text")
    assert [message.content for message in model.requests[2].messages] == ["Answer in {language}, {unknown}.", "text"]


@pytest.mark.parametrize("asynchronous", [False, True], ids=["in a thread", "on the loop"])
def test_a_tool_that_exits_fails_its_run_only(asynchronous: bool) -> None:
    """A tool that calls `sys.exit()` is a tool that failed; the process lives on."""

    def leave() -> str:
        """Leave."""
        sys.exit(3)

    async def leave_at_once() -> str:
        """Leave."""
        sys.exit(3)

    tool = leave_at_once if asynchronous else leave
    with pytest.raises(ToolError, match=tool.__name__):
        Agent("guide", "", ScriptedModel(ToolCall.of(tool.__name__)), tools=[tool]).run("hello")


class SpeechlessError(Exception):
    """Its text cannot be had."""

    def __str__(self) -> str:
        raise RuntimeError("no text")


ANY = [
    SpeechlessError(),
    SystemExit(3),
    KeyboardInterrupt(),
    GeneratorExit(),
    asyncio.CancelledError(),
    StopIteration(),
]


@pytest.mark.parametrize("error", ANY, ids=lambda error: type(error).__name__)
@pytest.mark.parametrize("way", ["sync", "async"])
def test_whatever_a_tool_raises_is_one_error(error: BaseException, way: str) -> None:
    """An exception of any class in a tool is a ToolError, and later runs go on."""

    def ends() -> str:
        raise error

    async def ends_too() -> str:
        raise error

    tool = ends if way == "sync" else ends_too
    for _ in range(2):
        with pytest.raises(ToolError, match=type(error).__name__):
            Agent("a", "", ScriptedModel(ToolCall.of(tool.__name__)), tools=[tool]).run("?")


def test_a_model_whose_error_has_no_text() -> None:
    """An exception of a model that cannot say what it is, or is a sys.exit(), is a ModelError."""
    for error in (SpeechlessError(), SystemExit(3)):
        with pytest.raises(ModelError, match=type(error).__name__):
            Agent("a", "", ScriptedModel(error)).run("?")
