"""The one reader of JSON that models write: structured answers, arguments of tool calls, lists of map steps."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel

from podwright import Agent, PodwrightError
from podwright.data.model_json import (
    UnreadableJsonError,
    clean_arguments,
    read_arguments,
    read_json,
)
from podwright.errors import OutputError, ToolArgumentsError
from podwright.steps.map_items import UnreadableItemsError, read_items
from podwright.testing import ScriptedModel, ToolCall

CITIES = ["Paris", "Rome"]
JSON = '{"cities": ["Paris", "Rome"]}'
SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {"cities": {"type": "array", "items": {"type": "string"}}},
    "required": ["cities"],
    "additionalProperties": False,
}


class Cities(BaseModel):
    cities: list[str]


def _answer(response_model: Any) -> Callable[[str], Any]:
    """The cities in the only answer of a model."""

    def read(text: str) -> Any:
        model = ScriptedModel(text)
        agent = Agent("guide", "", model, max_corrections=0)
        answer = agent.run("?", response_model=response_model)
        return getattr(answer, "cities", answer)

    return read


def _called_with(text: str) -> list[str]:
    """The cities in the arguments of a tool call."""
    calls: list[list[str]] = []

    def visit(cities: list[str]) -> None:
        """Visit cities."""
        calls.append(cities)

    model = ScriptedModel([ToolCall("c", "visit", text)], "done")
    Agent("guide", "", model, tools=[visit], max_tool_retries=0).run("?")
    return calls[0]


READERS: dict[str, Callable[[str], Any]] = {
    "an answer for a schema": lambda text: _answer(SCHEMA)(text)["cities"],
    "an answer for a model": _answer(Cities),
    "an answer for a list": _answer(list[str]),
    "arguments": _called_with,
    "arguments of a client": lambda text: json.loads(clean_arguments(text))[
        "cities"
    ],
    "a map": read_items,
}
ACCEPTED = {
    "alone": JSON,
    "words before": f"Sure! {JSON}",
    "words after": f"{JSON}\nHope this helps!",
    "words around": f"Here you are: {JSON} [1], and see [docs](http://x).",
    "a fence": f"```json\n{JSON}\n```",
    "a fence without a language": f"```\n{JSON}\n```",
    "a fence of tildes": f"~~~JSON\r\n{JSON}\r\n~~~",
    "a fence between words": f"As asked:\n```json\n{JSON}\n```\nBye.",
    "a fence on one line": f"```json {JSON} ```",
    "a fence without an end": f"```json\n{JSON}",
    "a fence after an example that is cut off": f'As {{"cities": …}}:\n```json\n{JSON}\n```',
    "a byte order mark": "\ufeff" + JSON,
    "a no-break space": f"\u00a0{JSON}\u00a0",
    "a zero-width space": f"\u200b{JSON}\u200b",
    "thoughts": f"<think>Hm, {{}} or {{'a': 1}}?</think>{JSON}",
    "thoughts without a start": f"Perhaps {{}}?</think>\n{JSON}",
    "thoughts of another name": f"[THINK]{{[/THINK] {JSON}",
    "channels": f"<|channel|>analysis<|message|>{{}}<|end|><|channel|>final<|message|>{JSON}<|return|>",
    "<|im_end|>": f"{JSON}<|im_end|>",
    "</s>": f"<s> {JSON} </s>\n",
    "<|eot_id|>": f"{JSON}\n<|eot_id|><|eot_id|>",
    "XML": f"<answer>{JSON}</answer>",
    "written twice": JSON + JSON,
    "written twice, in other forms": f'{JSON}\n\n{{"cities":["Paris","Rome"]}}',
    "written twice, with a fence": f"{JSON}\n```json\n{JSON}\n```",
    "encoded twice": json.dumps(JSON),
    "encoded three times": json.dumps(json.dumps(JSON)),
    "encoded twice, with a mark": f"{json.dumps(JSON)}<|im_end|>",
    "encoded twice, between words": f"The answer is {json.dumps(JSON)}.",
    "encoded twice, in a fence": f"```json\n{json.dumps(JSON)}\n```",
    "words, encoded": json.dumps(f"Sure! {JSON}"),
    "a key that is written twice": '{"cities": [], "cities": []}'.replace(
        "[]", json.dumps(CITIES)
    ),
    "several at once": f"\ufeff<think>{{</think>\nSure:\n```json\n{JSON}\n```<|im_end|>",
}
REFUSED = {
    "two values": f'{JSON} or {{"cities": ["Bonn"]}}',
    "two values in a row": f'{JSON}{{"cities": ["Bonn"]}}',
    "two values that Python takes as equal": '{"cities": [1]} {"cities": [true]}',
    "two fences": f'```json\n{JSON}\n```\n```json\n{{"cities": ["Bonn"]}}\n```',
    "a key with two values": '{"cities": ["Paris"], "cities": ["Rome"]}',
    "cut off": JSON[:-8],
    "cut off after words": f"Sure! {JSON[:-2]}",
    "cut off in a fence": f"```json\n{JSON[:-1]}\n```",
    "encoded twice and cut off": json.dumps(JSON[:-2]),
    "a bracket too many": f"{JSON}}}",
    "within thoughts": f"<think>Perhaps {JSON}",
    "single quotes": "{'cities': ['Paris', 'Rome']}",
    "no quotes": "{cities: [Paris, Rome]}",
    "a trailing comma": '{"cities": ["Paris", "Rome",]}',
    "NaN": '{"cities": [NaN]}',
    "infinity": '{"cities": [1e999]}',
    "depth": '{"cities": ' + "[" * 10_000 + "]" * 10_000 + "}",
    "brackets": "[" * 1_000_000,
    "braces": '{"' * 1_000_000,
    "another type": '{"cities": 5}',
}
LESS = {
    # text that has no JSON is lines for a map
    "no JSON": "Paris and Rome",
    "braces of prose": "{" * 1_000_000,
}


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("text", ACCEPTED.values(), ids=ACCEPTED)
def test_what_is_certain_is_taken(text: str, reader: str) -> None:
    """Each reader takes the value out of each wrapping, at the first attempt."""
    assert READERS[reader](text) == CITIES


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("text", [*REFUSED.values(), *LESS.values()])
def test_what_is_not_certain_is_refused(text: str, reader: str) -> None:
    """No reader chooses between values, or completes one; the time is not quadratic in the length."""
    if reader == "a map" and text in LESS.values():
        assert read_items(text) == [text]
    elif reader == "arguments of a client":
        # the check of the arguments refuses them
        with pytest.raises((UnreadableJsonError, AssertionError)):
            assert read_arguments(clean_arguments(text))["cities"] == CITIES
    else:
        with pytest.raises((PodwrightError, UnreadableItemsError)):
            READERS[reader](text)


NUMBERS: dict[str, Any] = {
    "type": "object",
    "properties": {
        "n": {"type": "integer"},
        "x": {"anyOf": [{"type": "number"}, {"type": "null"}]},
        "text": {"type": "string"},
        "any": {},
        "both": {"type": ["string", "integer"]},
        "list": {"type": "array", "items": {"$ref": "#/$defs/count"}},
    },
    "$defs": {"count": {"type": "integer"}},
    "required": ["n"],
    "additionalProperties": False,
}
ANSWERS: dict[str, tuple[Any, Any, Any]] = {
    # response model, answer, value
    "an integer": (NUMBERS, {"n": "3"}, {"n": 3}),
    "a negative integer": (NUMBERS, {"n": "-3"}, {"n": -3}),
    "a number": (NUMBERS, {"n": 1, "x": "0.5"}, {"n": 1, "x": 0.5}),
    "a list": (NUMBERS, {"n": 1, "list": ["1", 2]}, {"n": 1, "list": [1, 2]}),
    "texts": (
        NUMBERS,
        {"n": "1", "text": "2", "any": "3", "both": "4"},
        {"n": 1, "text": "2", "any": "3", "both": "4"},
    ),
    "a fraction": (NUMBERS, {"n": "3.5"}, None),
    "words": (NUMBERS, {"n": "3 items"}, None),
    "an empty text": (NUMBERS, {"n": ""}, None),
    "a leading zero": (NUMBERS, {"n": "03"}, None),
    "a wrapper": (NUMBERS, {"answer": {"n": "3"}}, {"n": 3}),
    "wrappers": (NUMBERS, {"data": {"result": {"n": 3}}}, {"n": 3}),
    "a wrapper of JSON text": (NUMBERS, {"answer": '{"n": 3}'}, {"n": 3}),
    "a list around it": (NUMBERS, [{"n": 3}], {"n": 3}),
    "two in a list": (NUMBERS, [{"n": 3}, {"n": 3}], None),
    "two keys": (NUMBERS, {"answer": {"n": 3}, "more": 1}, None),
    "a known key": (NUMBERS, {"any": {"n": 3}}, None),
    "a list without its wrapper": (list[int], [1, 2], [1, 2]),
    "a list in another wrapper": (list[int], {"numbers": [1]}, [1]),
    "an empty list in another wrapper": (list[int], {"errors": []}, None),
    "an integer without its wrapper": (int, 3, 3),
    "a text": ({"type": "string"}, {"answer": JSON}, JSON),
    "a text in quotes": ({"type": "string"}, {"answer": '"a"'}, '"a"'),
    "a text that is encoded": ({"type": "string"}, JSON, JSON),
    "a text in another wrapper": ({"type": "string"}, {"text": "a"}, None),
    "an object instead of a text": ({"type": "string"}, {"a": [1]}, None),
    "a text that is JSON, in an object": (
        NUMBERS,
        {"n": 1, "text": '{"n": 2}'},
        {"n": 1, "text": '{"n": 2}'},
    ),
}


@pytest.mark.parametrize("name", ANSWERS)
def test_the_schema_says_what_is_certain(name: str) -> None:
    """Wrappers and texts of numbers are taken only where the schema takes nothing of that kind."""
    response_model, answer, value = ANSWERS[name]
    model = ScriptedModel(json.dumps(answer))
    agent = Agent("guide", "", model, max_corrections=0)
    if value is None:
        with pytest.raises(OutputError):
            agent.run("?", response_model=response_model)
        return
    result = agent.run("?", response_model=response_model)
    assert json.dumps(result) == json.dumps(value)


ARGUMENTS = {
    "": {},
    " \n": {},
    "null": {},
    "[]": {},
    '""': {},
    '"null"': {},
    "{}{}": {},
    '{}{"a": 1}': {"a": 1},
    'null {"a": 1}': {"a": 1},
    '{"a": 1}{"a": 1}': {"a": 1},
    '{"a": 1}{}': {"a": 1},
    '[{"a": 1}]': {"a": 1},
    '{}"{\\"a\\": 1}"': {"a": 1},
    '{"a": "{\\"b\\": 1}"}': {"a": '{"b": 1}'},
    '{"a": 1}{"a": 2}': None,
    '{"a": 1}{"a": 1.0}': None,
    '{"a": 1}{"a": tr': None,
    '[{"a": 1}, {"a": 1}]': None,
    "5": None,
    "false": None,
    '"a"': None,
}


@pytest.mark.parametrize(("text", "arguments"), ARGUMENTS.items())
def test_arguments_are_one_object(
    text: str, arguments: dict[str, Any] | None
) -> None:
    """No arguments are an empty object, gateways put one before others, and clients hand on what is not certain."""
    if arguments is None:
        assert clean_arguments(text) == text
        with pytest.raises(UnreadableJsonError):
            read_arguments(text)
        return
    assert read_arguments(text) == arguments
    assert json.loads(clean_arguments(text)) == arguments


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.text(), inner, max_size=3)
    ),
    max_leaves=5,
)
WRAPPINGS: dict[str, Callable[[str], str]] = {
    "nothing": str,
    "words": lambda text: f"Sure, here it is: {text}\nBye.",
    "a fence": lambda text: f"Sure!\n```json\n{text}\n```\nSee [1].",
    "thoughts": lambda text: f'<think>\n{{["</think>{text}',
    "marks": lambda text: f"\ufeff<s>{text}\u200b<|im_end|></s>",
    "twice": lambda text: f"{text}\n{text}",
}


@given(
    st.dictionaries(st.text(), json_values, min_size=1),
    st.lists(st.sampled_from([*WRAPPINGS]), max_size=2, unique=True),
    st.sampled_from([None, 2]),
    st.booleans(),
)
def test_any_object_arrives_unchanged(
    data: dict[str, Any],
    wrappings: list[str],
    indent: int | None,
    is_encoded: bool,
) -> None:
    """Whatever it holds, an object is read out of two wrappings, also as JSON text once more."""
    text = json.dumps(data, indent=indent)
    if is_encoded:
        text = json.dumps(text)
    for name in sorted(wrappings, key=[*WRAPPINGS].index):
        text = WRAPPINGS[name](text)
    if wrappings in (["twice"], []) and is_encoded:
        assert read_arguments(text) == data
    elif is_encoded and not wrappings:
        assert json.loads(read_json(text).data) == data
    elif not is_encoded:
        assert read_json(text).data == data


CORRECTIONS = {
    # answer, words of the correction
    "a value": ('{"cities": 5}', "/cities", "got 5"),
    "a key": ('{"cities": [], "town": 1}', "additionalProperties", "town"),
    "no JSON": ("Rome, I think", "no JSON", "'Rome, I think'"),
    "cut off": ('{"cities": ["Pa', "column 13", "'\"Pa'"),
    "invalid": ('{"cities": [Paris]}', "column 13", "'Paris]}'"),
    "two": (
        '{"cities": []} {"cities": [1]}',
        "2 JSON values",
        '{"cities": []}',
    ),
    "a key with two values": ('{"a": 1, "a": 2}', "two values", "'a'"),
}


@pytest.mark.parametrize("name", CORRECTIONS)
def test_a_correction_says_what_was_wrong(name: str) -> None:
    """The model is told the place and what was found there, for answers and for arguments."""
    text, place, found = CORRECTIONS[name]
    model = ScriptedModel(text, JSON)
    Agent("guide", "", model).run("?", response_model=SCHEMA)
    correction = model.requests[1].messages[-1].text
    assert place in correction
    assert found in correction
    if name in ("a value", "a key"):
        return

    def visit(cities: list[str]) -> None:
        """Visit cities."""

    model = ScriptedModel([ToolCall("c", "visit", text)], "done")
    Agent("guide", "", model, tools=[visit]).run("?")
    correction = model.requests[1].messages[-1].text
    assert place in correction
    assert found in correction


@pytest.mark.parametrize(
    ("settings", "calls", "named"),
    [
        ({}, 3, "max_corrections=2"),
        ({"max_corrections": 0}, 1, "max_corrections=0"),
        ({"max_corrections": 5, "max_loops": 20}, 6, "max_corrections=5"),
        ({"max_loops": 2}, 2, "max_loops=2"),
        ({"max_loops": 3}, 3, "max_corrections=2"),
    ],
)
def test_corrections_have_a_limit_of_their_own(
    settings: dict[str, Any], calls: int, named: str
) -> None:
    """Answers that do not fit end the run after `max_corrections` corrections; `max_loops` limits all calls."""
    model = ScriptedModel(lambda _: "no")
    agent = Agent("guide", "", model, **settings)
    with pytest.raises(OutputError) as ended:
        agent.run("?", response_model=SCHEMA)
    assert len(model.requests) == calls
    assert named in ended.value.message


def test_corrections_are_counted_over_a_run() -> None:
    """Tool calls in between do not begin the count again, and their own mistakes are not part of it."""

    def visit(cities: list[str]) -> None:
        """Visit cities."""

    wrong = [ToolCall("c", "visit", '{"cities": 5}')]
    model = ScriptedModel("no", wrong, wrong, "no", wrong, JSON)
    agent = Agent("guide", "", model, tools=[visit])
    assert agent.run("?", response_model=SCHEMA) == {"cities": CITIES}
    model = ScriptedModel("no", wrong, "no", wrong, "no", JSON)
    agent = Agent("guide", "", model, tools=[visit])
    with pytest.raises(OutputError):
        agent.run("?", response_model=SCHEMA)
    assert len(model.requests) == 5


def test_wrong_arguments_still_have_their_own_limit() -> None:
    """`max_tool_retries` says how often a wrong call is corrected."""

    def visit(cities: list[str]) -> None:
        """Visit cities."""

    model = ScriptedModel(lambda _: [ToolCall("c", "visit", "Rome")])
    agent = Agent(
        "guide", "", model, tools=[visit], max_tool_retries=1, max_corrections=9
    )
    with pytest.raises(ToolArgumentsError):
        agent.run("?")
    assert len(model.requests) == 2
