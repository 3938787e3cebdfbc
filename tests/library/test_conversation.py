"""The conversation of an agent with its model: tools, wrong calls, structured output, input."""

import asyncio
import json
import threading
from dataclasses import dataclass
from typing import Any

import pytest
from pydantic import BaseModel, Field
from tests.library.shapes import KINDS

from podwright import Agent, tool
from podwright.errors import (
    ContentFilterError,
    ContextError,
    InputError,
    MessagesError,
    ModelError,
    OutputError,
    ToolArgumentsError,
    ToolError,
)
from podwright.testing import (
    ModelResponse,
    ScriptedModel,
    ToolCall,
    assert_events,
)


def count_to(number: int) -> int:
    """Count."""
    return number


class TextlessError(Exception):
    """Its message cannot be read."""

    def __str__(self) -> str:
        raise RuntimeError("no text")


@pytest.mark.parametrize(
    "error",
    [LookupError("no word"), TextlessError(), SystemExit(3), StopIteration()],
    ids=repr,
)
@pytest.mark.parametrize("way", ["sync", "async"])
def test_a_tool_can_fail_the_run(
    error: BaseException, way: str, recorder: Any, assert_sound: Any
) -> None:
    """Whatever such a tool raises is the cause of a ToolError; later runs are not affected."""

    @tool(on_error="fail")
    def fail() -> str:
        """Fail."""
        raise error

    @tool(on_error="fail")
    async def fail_async() -> str:
        """Fail."""
        raise error

    failing = fail if way == "sync" else fail_async
    model = ScriptedModel(*[ToolCall.of(failing.__name__)] * 2)
    agent = Agent(
        "a", "Help.", model, tools=[failing], event_manager=recorder.manager
    )
    for _ in range(2):
        recorder.events.clear()
        with pytest.raises(ToolError, match=type(error).__name__) as caught:
            agent.run("?")
        assert caught.value.__cause__ is not None
        assert_sound(recorder.events)
        assert [
            event.error["code"] for event in recorder.of("tool_call_failed")
        ] == ["tool_failed"]


def test_a_result_without_a_json_form_fails_the_tool() -> None:
    """A result that cannot be written as text is a ToolError."""
    circle: list[Any] = []
    circle.append(circle)

    @tool(on_error="fail")
    def turn() -> list[Any]:
        """Turn."""
        return circle

    with pytest.raises(ToolError, match="Circular"):
        Agent(
            "a", "Help.", ScriptedModel(ToolCall.of("turn")), tools=[turn]
        ).run("?")


WRONG_CALLS = {
    "wrong type": ToolCall.of("count_to", number="many"),
    "missing argument": ToolCall.of("count_to"),
    "unknown argument": ToolCall.of("count_to", number=1, speed=2),
    "not JSON": ToolCall("call_1", "count_to", '{"number": '),
    "not an object": ToolCall("call_1", "count_to", "[1]"),
    "too deep": ToolCall(
        "call_1", "count_to", '{"number": ' + "[" * 500 + "]" * 500 + "}"
    ),
    "unknown tool": ToolCall.of("count_two", number=1),
}


@pytest.mark.parametrize("call", WRONG_CALLS.values(), ids=list(WRONG_CALLS))
def test_a_wrong_call_goes_back_to_the_model(
    call: ToolCall, assert_sound: Any
) -> None:
    """The model is told what is wrong with its call, `max_tool_retries` times; the next one fails the run."""
    model = ScriptedModel(call, ToolCall.of("count_to", number=3), "three")
    result = Agent("a", "Help.", model, tools=[count_to]).run("?", trace=True)
    assert result.value == "three"
    answer = model.requests[1].messages[-1]
    assert (answer.role, answer.tool_call_id) == ("tool", "call_1")
    assert call.name in answer.text
    assert ("Did you mean 'count_to'?" in answer.text) == (
        call.name == "count_two"
    )
    assert_sound(result.events)
    json.dumps([event.to_dict() for event in result.events])
    assert_events(
        result,
        "tool_call_started",
        "tool_call_failed",
        "tool_call_finished output=3",
        "run_finished",
    )
    model = ScriptedModel(call, call, call, "three")
    with pytest.raises(ToolArgumentsError):
        Agent("a", "Help.", model, tools=[count_to], max_tool_retries=2).run(
            "?"
        )
    assert len(model.requests) == 3


def test_two_wrong_calls_in_one_turn_go_back_together() -> None:
    """Calls of one turn do not count against each other."""
    calls = [
        ToolCall.of("count_to", id="1", number="x"),
        ToolCall.of("count_to", id="2", number="y"),
    ]
    model = ScriptedModel(calls, "I give up.")
    assert Agent("a", "Help.", model, tools=[count_to]).run("?") == "I give up."
    assert [
        message.tool_call_id for message in model.requests[1].messages[-2:]
    ] == [
        "1",
        "2",
    ]


def test_wrong_calls_inside_a_nested_run_fail_its_tool() -> None:
    """A nested run that fails by its own model's wrong calls is not a wrong call of the outer model."""
    wrong = ToolCall.of("count_to", number="x")
    helper = Agent(
        "helper",
        "Help.",
        ScriptedModel(wrong),
        tools=[count_to],
        max_tool_retries=0,
    )

    @tool(on_error="fail")
    async def ask() -> str:
        """Ask the helper."""
        return await helper.arun("?")

    model = ScriptedModel(ToolCall.of("ask"), "end")
    with pytest.raises(ToolArgumentsError) as caught:
        Agent("asker", "Ask.", model, tools=[ask]).run("?")
    assert caught.value.component == "helper"
    assert len(model.requests) == 1


async def test_tool_calls_of_one_turn_run_concurrently() -> None:
    """The calls of one turn run at the same time, and are answered in their order."""
    gate = asyncio.Barrier(3)

    async def meet(name: str) -> str:
        """Wait for the others."""
        async with asyncio.timeout(60), gate:
            return name

    model = ScriptedModel(
        [ToolCall.of("meet", id=name, name=name) for name in "abc"], "met"
    )
    assert await Agent("a", "Help.", model, tools=[meet]).arun("?") == "met"
    answers = [
        (message.tool_call_id, message.content)
        for message in model.requests[1].messages[-3:]
    ]
    assert answers == [("a", "a"), ("b", "b"), ("c", "c")]


async def test_a_failing_tool_cancels_the_others(
    recorder: Any, assert_sound: Any
) -> None:
    """When one of several tools fails the run, the others are cancelled, and have ended when the run ends."""
    waiting = asyncio.Event()
    ended = list[str]()

    async def wait() -> None:
        """Wait."""
        waiting.set()
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)
            ended.append("wait")

    @tool(on_error="fail")
    async def fail() -> str:
        """Fail."""
        await waiting.wait()
        raise ValueError("no")

    model = ScriptedModel(
        [ToolCall.of("wait", id="1"), ToolCall.of("fail", id="2")]
    )
    with pytest.raises(ToolError, match="no"):
        await Agent(
            "a",
            "Help.",
            model,
            tools=[wait, fail],
            event_manager=recorder.manager,
        ).arun("?")
    assert ended == ["wait"]
    assert_sound(recorder.events)
    failed = {
        event.tool: event.error["code"]
        for event in recorder.of("tool_call_failed")
    }
    assert failed == {"fail": "tool_failed", "wait": "run_cancelled"}


@pytest.mark.parametrize(
    ("reason", "error"),
    [("length", ModelError), ("content_filter", ContentFilterError)],
)
def test_an_incomplete_answer_is_a_failure(
    reason: str, error: type[ModelError]
) -> None:
    """An answer that was cut off or filtered is never returned, but is paid for."""
    model = ScriptedModel(
        ModelResponse("It was a dark and", finish_reason=reason)
    )
    with pytest.raises(error) as caught:
        Agent("a", "Help.", model, max_tokens=4).run("?")
    assert caught.value.usage is not None
    assert caught.value.usage.model_calls == 1


class Place(BaseModel):
    """A place."""

    name: str
    population: int = Field(ge=0)


@dataclass
class Point:
    x: int
    y: int


NAME = {"name": {"type": "string", "minLength": 2}}
DRAFT_7 = {
    "$schema": "http://json-schema.org/draft-07/schema#",
    "definitions": NAME,
}
STRUCTURED: dict[str, tuple[Any, Any, Any]] = {
    "model": (
        Place,
        {"name": "Paris", "population": 2},
        Place(name="Paris", population=2),
    ),
    "list": (list[int], {"answer": [1, 2]}, [1, 2]),
    "dataclass": (Point, {"x": 1, "y": 2}, Point(1, 2)),
    "union": (Place | int, {"answer": 3}, 3),
    "object": (dict[str, int], {"a": 1}, {"a": 1}),
    "JSON Schema": (
        {"type": "object", "properties": NAME},
        {"name": "Rome"},
        {"name": "Rome"},
    ),
    "JSON Schema of a list": (
        {**DRAFT_7, "type": "array", "items": {"$ref": "#/definitions/name"}},
        {"answer": ["Rome"]},
        ["Rome"],
    ),
}


@pytest.mark.parametrize("name", STRUCTURED)
def test_a_response_model_gives_a_typed_answer(
    name: str, assert_sound: Any
) -> None:
    """The answer is validated; one that does not fit is corrected."""
    response_model, data, value = STRUCTURED[name]
    model = ScriptedModel(
        json.dumps({"wrong": "x", "name": 1}), json.dumps(data)
    )
    result = Agent("a", "Help.", model).run(
        "?", response_model=response_model, trace=True
    )
    assert (result.value, type(result.value)) == (value, type(value))
    assert_sound(result.events)
    first, second = model.requests
    assert first.output is not None
    assert second.messages[-1].role == "user"
    assert "does not fit" in second.messages[-1].text


@pytest.mark.parametrize(
    "answer",
    [
        "```json\n{}\n```",
        "```\n{}\n```",
        "Here it is:\n\n```json\n{}\n```\nAnything else?",
        "```{}```",
        "\n {}",
    ],
)
def test_json_in_a_code_fence_is_read(answer: str) -> None:
    """JSON inside a Markdown code fence needs no correction, even if it has a fence in a text itself."""
    model = ScriptedModel(
        answer.replace(
            "{}", json.dumps({"name": "```Paris```", "population": 2})
        )
    )
    place = Agent("a", "Help.", model).run("?", response_model=Place)
    assert (place.name, len(model.requests)) == ("```Paris```", 1)


@pytest.mark.parametrize(
    "answer", ["not JSON", "[1]", '{"name": "Paris", "population": -1}']
)
def test_an_answer_that_never_fits_is_an_error(answer: str) -> None:
    """Without a valid answer in `max_loops` calls the run fails with an OutputError."""
    model = ScriptedModel(answer, answer, answer)
    with pytest.raises(OutputError):
        Agent("a", "Help.", model, max_loops=2).run("?", response_model=Place)
    assert len(model.requests) == 2


UNUSABLE: dict[str, Any] = {
    "no schema": threading.Lock,
    "wrong": {"type": "no"},
    "remote": {"$ref": "http://127.0.0.1:9/a"},
    "missing": {
        "type": "object",
        "properties": {"a": {"$ref": "#/$defs/missing"}},
    },
    "endless": {"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/a"}}},
    "large": {"x" * 10_000: [0] * 10_000},
    "no pointer": {"$ref": "#/allOf/x", "allOf": [{}]},
    "no schema there": {"title": "t", "properties": {"a": {"$ref": "#/title"}}},
    "an identifier": {"$id": "http://127.0.0.1:9/a"},
    "a wrong identifier": {"$id": 5},
    "an anchor": {"$defs": {"a": {"$anchor": "a"}}, "$ref": "#a"},
    "a dynamic reference": {
        "properties": {"a": {"$dynamicRef": "#/$defs/a"}},
        "$defs": {"a": {}},
    },
}


@pytest.mark.parametrize("unusable", UNUSABLE.values(), ids=UNUSABLE)
def test_a_type_without_a_schema_cannot_be_a_response_model(
    unusable: Any,
) -> None:
    """A response model without a JSON Schema, or with one that is invalid or remote, is refused before a model call."""
    model = ScriptedModel("never")
    with pytest.raises(InputError):
        Agent("a", "Help.", model).run("?", response_model=unusable)
    assert model.requests == []


def test_a_number_that_is_not_json_is_corrected() -> None:
    """NaN and numbers that are too large are no JSON."""
    schema = {"type": "object", "properties": {"a": {"type": "number"}}}
    model = ScriptedModel('{"a": NaN}', '{"a": 1e999}', '{"a": 1}')
    assert Agent("a", "Help.", model).run("?", response_model=schema) == {
        "a": 1
    }


def test_a_schema_of_another_draft_is_read_as_the_newest() -> None:
    """Libraries of clients name the draft that they write; its name is not sent on."""
    old = {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "definitions": {"a": {"type": "integer"}},
    }
    schema = {
        **old,
        "title": "my-answer",
        "type": "object",
        "properties": {"a": {"$ref": "#/definitions/a"}},
    }
    model = ScriptedModel('{"a": 1}')
    assert Agent("a", "Help.", model).run("?", response_model=schema) == {
        "a": 1
    }
    output = model.requests[0].output
    assert output is not None
    assert (output.name, "$schema" in output.schema) == ("my-answer", False)


def test_an_array_of_arrays() -> None:
    """A schema that is no object is sent inside one, and its references to itself still name it."""
    schema = {"type": "array", "items": {"$ref": "#"}}
    model = ScriptedModel('{"answer": [[], [[]]]}')
    assert Agent("a", "Help.", model).run("?", response_model=schema) == [
        [],
        [[]],
    ]
    output = model.requests[0].output
    assert output is not None
    assert output.schema["properties"] == {
        "answer": {"type": "array", "items": {"$ref": "#/properties/answer"}}
    }


CIRCLE: list[Any] = []
CIRCLE.append(CIRCLE)


@pytest.mark.parametrize(
    "data",
    [
        5,
        None,
        [1],
        {},
        {1: "x"},
        {"a": "\ud800"},
        {"a": CIRCLE},
        {"a": b"\xff"},
        {"a": 10**5000},
    ],
    ids=[
        "number",
        "none",
        "list",
        "empty",
        "key",
        "surrogate",
        "circle",
        "binary",
        "huge",
    ],
)
@pytest.mark.parametrize("kind", KINDS)
def test_input_without_a_json_form_is_refused(
    kind: str, data: Any, make_example: Any
) -> None:
    """Input that is neither text nor named JSON values is a ContextError, before any model call."""
    example = make_example(kind)
    if kind == "workflow" and data is None:
        assert example.component.run(data)
        return
    with pytest.raises(
        MessagesError if isinstance(data, list) else ContextError
    ):
        example.component.run(data)
    assert example.model.begun == []
    assert example.recorder.types()[-1:] in ([], ["run_failed"])


def test_named_inputs_fill_the_instructions() -> None:
    """Inputs fill `{name}` in the instructions; the others are shown to the model with headings."""
    model = ScriptedModel("ok", "ok")
    agent = Agent("a", "Answer in {language}, {{unknown}}.", model)
    agent.run(
        {"language": "French", "query": "moon?", "style": {"tone": "dry"}}
    )
    agent.run({"language": "{query}", "query": "moon?"})
    with pytest.raises(ContextError, match="language"):
        agent.run("text")
    prompts = [
        [message.content for message in request.messages]
        for request in model.requests
    ]
    assert prompts == [
        [
            "Answer in French, {unknown}.",
            '## query\nmoon?\n\n## style\n{"tone": "dry"}',
        ],
        ["Answer in {query}, {unknown}.", "moon?"],
    ]
