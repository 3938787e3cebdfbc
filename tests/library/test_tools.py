"""Functions as tools: the schema from the signature, the call, and functions that no longer fit (spec §2.1)."""

import asyncio
import dataclasses
import enum
import functools
import inspect
import sys
import threading
import typing
from collections.abc import Callable
from typing import Annotated, Any, Literal

import pytest
from pydantic import BaseModel, Field
from tests.library.shapes import Json, events, problems_of

from podwright import Agent, FunctionStep, ScriptedModel, Workflow
from podwright.chats.tool_calls import PARALLEL_CALLS
from podwright.errors import (
    ModelResponseError,
    ToolArgumentsError,
    ToolDefinitionError,
)
from podwright.testing import ToolCall
from podwright.tools.changes import schema_differences
from podwright.tools.function_tool import to_tool


class Unit(enum.Enum):
    """A unit of temperature."""

    celsius = "C"
    fahrenheit = "F"


class Place(BaseModel):
    """Somewhere."""

    city: str
    country: str = "FR"


def plain(city: str, days: int = 1) -> str:
    """Say what the weather will be.

    It is always fine.

    Args:
        city: Where.
        days: For how many days.
    """
    return f"{city} {days}"


def choice(size: Literal["s", "m"], unit: Unit = Unit.celsius) -> str:
    return f"{size} {unit.name}"


def nested(place: Place, more: list[Place], note: str | None = None) -> str:
    return f"{place.city} {place.country} {len(more)}"


def annotated(
    count: Annotated[int, Field(ge=1, le=5, description="How many.")],
    word: Annotated[str, Field(alias="Word", min_length=1)] = "x",
) -> str:
    """Count.

    Args:
        count: Not used, because the annotation has a description.
        word: What.
    """
    return word * count


def untyped(anything, *, flag=len):  # pyright: ignore[reportMissingParameterType]
    return f"{anything} {flag}"


def clashes(
    self: str,
    schema: str,
    model_config: str,
    copy: str,
    field_x: str,
    naïve: str = "f",  # noqa: PLC2401 - a name that a user may give
) -> str:
    return "".join((self, schema, model_config, copy, field_x, naïve))


async def later(city: str) -> str:
    """Take its time."""
    return city


NULLABLE = {"anyOf": [{"type": "string"}, {"type": "null"}], "default": None}
PLACE = {"$ref": "#/$defs/Place"}
SCHEMAS: list[tuple[Callable[..., Any], Json, list[str], str | None]] = [
    # function, properties, required, description
    (
        plain,
        {
            "city": {"type": "string", "description": "Where."},
            "days": {
                "type": "integer",
                "default": 1,
                "description": "For how many days.",
            },
        },
        ["city"],
        "Say what the weather will be.\n\nIt is always fine.",
    ),
    (
        choice,
        {
            "size": {"type": "string", "enum": ["s", "m"]},
            "unit": {"$ref": "#/$defs/Unit", "default": "C"},
        },
        ["size"],
        None,
    ),
    (
        nested,
        {
            "place": PLACE,
            "more": {"type": "array", "items": PLACE},
            "note": NULLABLE,
        },
        ["place", "more"],
        None,
    ),
    (
        annotated,
        {
            "count": {
                "type": "integer",
                "minimum": 1,
                "maximum": 5,
                "description": "How many.",
            },
            "word": {
                "type": "string",
                "minLength": 1,
                "default": "x",
                "description": "What.",
            },
        },
        ["count"],
        "Count.",
    ),
    (untyped, {"anything": {}, "flag": {}}, ["anything"], None),
    (later, {"city": {"type": "string"}}, ["city"], "Take its time."),
]


@pytest.mark.parametrize(
    ("function", "properties", "required", "description"),
    SCHEMAS,
    ids=[row[0].__name__ for row in SCHEMAS],
)
def test_a_signature_becomes_a_schema(
    function: Callable[..., Any],
    properties: Json,
    required: list[str],
    description: str | None,
) -> None:
    """Names, types, defaults, bounds and docstrings of a function are shown to the model."""
    schema = to_tool(function).schema
    assert schema["type"] == "function"
    shown = schema["function"]
    assert (shown["name"], shown.get("description")) == (
        function.__name__,
        description,
    )
    parameters = shown["parameters"]
    assert parameters["properties"] == properties
    assert parameters.get("required", []) == required
    assert (
        parameters["type"],
        parameters["additionalProperties"],
        "title" in parameters,
    ) == (
        "object",
        False,
        False,
    )


class Counter:
    """Counts its calls."""

    def __init__(self) -> None:
        self.calls = 0

    def __call__(self, number: int) -> int:
        self.calls += 1
        return self.calls

    def method(self, number: int = 1) -> int:
        return number

    @classmethod
    def of_class(cls, number: int) -> str:
        return f"{cls.__name__} {number}"

    async def later(self, number: int) -> int:
        return number + 1


class AsyncCounter:
    async def __call__(self, number: int) -> int:
        return number + 2


def wrapped(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def inner(*args: Any, **kwargs: Any) -> Any:
        return function(*args, **kwargs)

    return inner


CLASHES = ("self", "schema", "model_config", "copy", "field_x")
CALLABLES: dict[str, tuple[Callable[..., Any], str, Json, str]] = {
    # the callable, its name, arguments, result
    "function": (plain, "plain", {"city": "Rome"}, "Rome 1"),
    "async function": (later, "later", {"city": "Rome"}, "Rome"),
    "method": (Counter().method, "method", {}, "1"),
    "async method": (Counter().later, "later", {"number": 1}, "2"),
    "class method": (Counter.of_class, "of_class", {"number": 3}, "Counter 3"),
    "object": (Counter(), "Counter", {"number": 7}, "1"),
    "async object": (AsyncCounter(), "AsyncCounter", {"number": 7}, "9"),
    "partial": (
        functools.partial(plain, days=3),
        "plain",
        {"city": "Rome"},
        "Rome 3",
    ),
    "nested partial": (
        functools.partial(functools.partial(plain, "Oslo")),
        "plain",
        {},
        "Oslo 1",
    ),
    "async partial": (
        functools.partial(later, city="Bonn"),
        "later",
        {},
        "Bonn",
    ),
    "decorated": (wrapped(plain), "plain", {"city": "Rome"}, "Rome 1"),
    "enum": (choice, "choice", {"size": "m", "unit": "F"}, "m fahrenheit"),
    "models": (
        nested,
        "nested",
        {"place": {"city": "Rome"}, "more": [{"city": "Oslo"}]},
        "Rome FR 1",
    ),
    "names of pydantic": (
        clashes,
        "clashes",
        dict(zip(CLASHES, "abcde", strict=True)),
        "abcdef",
    ),
    "alias": (annotated, "annotated", {"count": 2, "word": "ab"}, "abab"),
}


@pytest.mark.parametrize(
    ("function", "name", "arguments", "result"),
    CALLABLES.values(),
    ids=list(CALLABLES),
)
def test_any_named_callable_is_a_tool(
    function: Callable[..., Any], name: str, arguments: Json, result: str
) -> None:
    """Functions, methods, objects and partials, async or not, are called with the types of their hints."""
    model = ScriptedModel(ToolCall.of(name, **arguments), "done")
    trace = Agent("guide", "", model, tools=[function]).run("go", trace=True)
    assert [event.output for event in events(trace, "tool_call_finished")] == [
        result
    ]


def many(*cities: str) -> str:
    return ""


def hidden(_city: str) -> str:
    return ""


def strange(thing: threading.Thread) -> str:
    return ""


def größe(ort: str) -> str:  # noqa: PLC2401
    return ""


def look_up_the_current_exchange_rate_of_a_currency_pair_at_the_central_bank(
    pair: str,
) -> str:
    return ""


def unresolved(thing: "Nowhere") -> str:  # noqa: F821  # pyright: ignore[reportUndefinedVariable]
    return ""


def value_as_hint(word: str) -> str:
    """Read a word."""
    return word


value_as_hint.__annotations__["word"] = 7


NOT_TOOLS: dict[str, tuple[Any, str]] = {
    "lambda": ([lambda city: city], "name"),
    "*args": ([many], "cities"),
    "underscore": ([hidden], "'_city'"),
    "letters outside ASCII": ([größe], "'größe'"),
    "72 characters": (
        [
            look_up_the_current_exchange_rate_of_a_currency_pair_at_the_central_bank
        ],
        "central_bank'",
    ),
    "without a schema": ([strange], "'strange'"),
    "unknown type": ([unresolved], "'unresolved'"),
    "hint that is a value": ([value_as_hint], "'word'"),
    "without a signature": ([iter], "'iter'"),
    "number": ([5], "5"),
    "single function": (plain, "list"),
    "two of one name": ([plain, wrapped(plain)], "'plain'"),
}


@pytest.mark.parametrize(
    ("tools", "word"), NOT_TOOLS.values(), ids=list(NOT_TOOLS)
)
def test_a_callable_that_a_model_cannot_call_is_refused(
    tools: Any, word: str
) -> None:
    """What cannot be called by name with JSON arguments is a ToolDefinitionError that names it."""
    with pytest.raises(ToolDefinitionError) as caught:
        Agent("guide", "", "offline/echo", tools=tools)
    assert word in caught.value.message
    assert "\n" not in caught.value.message


def test_a_repeated_function_is_one_tool() -> None:
    """A repeated function is not a second tool, and its schema is cached; what cannot be cached is a tool too."""
    assert list(
        Agent("guide", "", "offline/echo", tools=[plain, plain]).tools
    ) == ["plain"]
    assert to_tool(plain).schema is to_tool(plain).schema

    @dataclasses.dataclass
    class Unhashable:
        factor: int

        def __call__(self, number: int) -> int:
            return number * self.factor

    assert to_tool(Unhashable(2)).name == "Unhashable"


async def call(tool: Any, arguments: Json) -> Any:
    return await to_tool(tool).call(arguments)


@pytest.mark.parametrize(
    ("tool", "arguments", "words"),
    [
        (plain, {}, ["'city'", "Missing"]),
        (
            plain,
            {"city": 5, "days": "many"},
            ["/city", "string", "/days", "integer"],
        ),
        (plain, {"city": "x", "when": 1}, ["/when", "Unknown"]),
        (
            choice,
            {"size": "xl", "unit": "K"},
            ["/size", "'s' or 'm'", "/unit", "'C' or 'F'"],
        ),
        (annotated, {"count": 6}, ["/count", "5"]),
        (nested, {"place": {}, "more": [{}]}, ["/place", "/more/0", "'city'"]),
    ],
)
async def test_wrong_arguments_are_all_reported(
    tool: Callable[..., Any], arguments: Json, words: list[str]
) -> None:
    """Arguments that do not fit are a ToolArgumentsError with each place and what was expected."""
    with pytest.raises(ToolArgumentsError) as caught:
        await call(tool, arguments)
    assert [
        word
        for word in [f"'{tool.__name__}'", *words]
        if word not in caught.value.message
    ] == []


async def test_arguments_have_the_types_of_the_hints() -> None:
    """A function gets converted values, and its own default objects."""
    default = object()
    received: list[Any] = []

    def look(
        place: Place, unit: Unit, days: float = 1, extra: Any = default
    ) -> None:
        received.extend([place, unit, days, extra])

    await call(look, {"place": {"city": "Rome"}, "unit": "F", "days": "2.5"})
    assert received[:3] == [Place(city="Rome"), Unit.fahrenheit, 2.5]
    assert received[3] is default


async def test_a_blocking_function_runs_in_a_thread() -> None:
    """A blocking function does not run on the event loop's thread, an async one does; generators give a list."""

    def blocking() -> int:
        return threading.get_ident()

    async def not_blocking() -> int:
        return threading.get_ident()

    def generator() -> Any:
        yield threading.get_ident()

    async def async_generator() -> Any:
        yield threading.get_ident()

    assert await call(blocking, {}) != threading.get_ident()
    assert await call(not_blocking, {}) == threading.get_ident()
    assert await call(generator, {}) != [threading.get_ident()]
    assert await call(async_generator, {}) == [threading.get_ident()]


async def test_null_is_allowed_where_it_is_the_default() -> None:
    """A parameter whose default is None accepts null, whatever its type hint; for others, null is their default."""
    none: Any = None

    def look(
        word: str = none,
        count: Annotated[int, Field(ge=1)] = none,
        days: int = 1,
    ) -> Any:
        return [word, count, days]

    assert to_tool(look).schema["function"]["parameters"]["properties"][
        "word"
    ] == {
        "type": "string",
        "default": None,
    }
    assert await call(look, {"word": None, "count": None}) == [None, None, 1]
    assert await call(look, {"days": None}) == [None, None, 1]
    for wrong in ({"word": 1}, {"count": 0}):
        with pytest.raises(ToolArgumentsError):
            await call(look, wrong)


async def test_a_tool_that_cancels_itself_has_failed() -> None:
    """A CancelledError that a tool raises itself does not look like a cancelled run."""

    async def cancels_itself() -> None:
        raise asyncio.CancelledError

    with pytest.raises(RuntimeError):
        await call(cancels_itself, {})


def schema(properties: Json, *required: str, **more: Any) -> Json:
    return {
        "type": "object",
        "properties": properties,
        "required": list(required),
        **more,
    }


STRING = {"type": "string"}
INTEGER = {"type": "integer"}
TREE = {"type": "object", "properties": {"inner": {"$ref": "#/$defs/T"}}}
REFERENCE = {"a": {"$ref": "#/$defs/T"}}
DIFFERENCES: dict[str, tuple[Json, Json, list[str]]] = {
    # the stored schema, that of the function, the parameters that differ
    "description": (schema({"a": {**STRING, "description": "x"}}), schema({"a": {**STRING, "description": "y"}}), []),
    "new optional": (schema({"a": STRING}), schema({"a": STRING, "b": STRING}), []),
    "required to optional": (schema({"a": STRING}, "a"), schema({"a": STRING}), []),
    "optional to required": (schema({"a": STRING}), schema({"a": STRING}, "a"), ["a"]),
    "removed": (schema({"a": STRING, "b": STRING}), schema({"a": STRING}), ["b"]),
    "new required": (schema({}), schema({"b": STRING}, "b"), ["b"]),
    "type": (schema({"a": STRING}), schema({"a": INTEGER}), ["a"]),
    "bound": (schema({"a": INTEGER}), schema({"a": {**INTEGER, "minimum": 1}}), ["a"]),
    "a property called title": (
        schema({"a": {"properties": {"title": STRING}}}), schema({"a": {"properties": {"title": INTEGER}}}),
        ["a.title"],
    ),
    "nested": (
        schema({"a": {"items": {"properties": {"b": STRING}}}}),
        schema({"a": {"items": {"properties": {"b": INTEGER}}}}),
        ["a[].b"],
    ),
    "nested in a definition": (
        schema(REFERENCE, **{"$defs": {"T": {"properties": {"b": STRING, "c": TREE}}}}),
        schema(REFERENCE, **{"$defs": {"T": {"properties": {"b": INTEGER, "c": STRING}}}}), ["T.b", "T.c"],
    ),
    "new optional, nested": (
        schema({"a": {"properties": {"b": STRING}}}), schema({"a": {"properties": {"b": STRING, "c": STRING}}}), [],
    ),
    "required to optional, nested": (
        schema({"a": {"properties": {"b": STRING}, "required": ["b"]}}),
        schema({"a": {"properties": {"b": STRING}}}), [],
    ),
    "optional to required, nested": (
        schema({"a": {"properties": {"b": STRING}}}), schema({"a": {"properties": {"b": STRING}, "required": ["b"]}}),
        ["a.b"],
    ),
    "removed, nested": (
        schema({"a": {"properties": {"b": STRING, "c": STRING}}}),
        schema({"a": {"properties": {"b": STRING}}}), ["a.c"],
    ),
    "another type too": (schema({"a": INTEGER}), schema({"a": {"anyOf": [INTEGER, STRING]}}), []),
    "one type less": (schema({"a": {"anyOf": [INTEGER, STRING]}}), schema({"a": {"anyOf": [INTEGER]}}), ["a"]),
    "another value too": (schema({"a": {"enum": [1, 2]}}), schema({"a": {"enum": [1, 2, 3]}}), []),
    "one value less": (schema({"a": {"enum": [1, 2]}}), schema({"a": {"enum": [1]}}), ["a"]),
    "items become objects": (schema({"a": {"items": STRING}}), schema({"a": {"items": {"properties": {}}}}), ["a[]"]),
    "no items": (schema({"a": {"items": STRING}}), schema({"a": {}}), ["a"]),
    "the text of a parameter called properties": (
        schema({"properties": {**STRING, "description": "x"}}),
        schema({"properties": {**STRING, "description": "y"}}), [],
    ),
    "a bound of an object": (
        schema({"a": {"properties": {"b": STRING}}}),
        schema({"a": {"properties": {"b": INTEGER}, "minProperties": 1}}), ["a"],
    ),
    "renamed": (schema({"a": STRING}, "a"), schema({"b": STRING}, "b"), ["a", "b"]),
    "recursive": (schema(REFERENCE, **{"$defs": {"T": TREE}}), schema(REFERENCE, **{"$defs": {"T": TREE}}), []),
}  # fmt: skip


@pytest.mark.parametrize(
    ("stored", "actual", "parameters"),
    DIFFERENCES.values(),
    ids=list(DIFFERENCES),
)
def test_a_function_must_accept_what_the_stored_schema_allows(
    stored: Json, actual: Json, parameters: list[str]
) -> None:
    """A function may accept more than the stored schema and describe it differently, but not accept less."""
    differences = schema_differences(stored, actual)
    assert len(differences) == len(parameters)
    for difference, parameter in zip(differences, parameters, strict=True):
        assert f"'{parameter}'" in difference.detail


def test_a_function_that_no_longer_fits_is_reported() -> None:
    """A function that does not fit its stored schema is a problem at the stored parameters."""
    blueprint = Agent("guide", "", "offline/echo", tools=[plain]).to_blueprint()

    def changed(city: int, country: str, days: int = 1) -> str:
        return ""

    changed.__name__ = "plain"
    found = problems_of(lambda: Agent.from_blueprint(blueprint, [changed]))
    parameters = "/tools/0/schema/function/parameters"
    pointers = [problem.pointer for problem in found]
    assert pointers == [f"{parameters}/properties/city", parameters]
    assert ["'city'" in found[0].detail, "'country'" in found[1].detail] == [
        True,
        True,
    ]
    assert list(
        Agent.from_blueprint(blueprint, [changed], validate=False).tools
    ) == ["plain"]


def test_the_model_sees_the_descriptions_of_the_blueprint() -> None:
    """A description edited in the blueprint is shown to the model; functions that it does not name are ignored."""
    blueprint = Agent("guide", "", "offline/echo", tools=[plain]).to_blueprint()
    blueprint["tools"][0]["schema"]["function"]["description"] = (
        "Edited by hand."
    )
    model = ScriptedModel(ToolCall.of("plain", city="Rome"), "done")
    agent = Agent.from_blueprint(blueprint, [plain, later], model=model)
    assert agent.run("go") == "done"
    (offered,) = model.requests[0].tools
    assert offered["function"].get("description") == "Edited by hand."
    assert list(agent.tools) == ["plain"]
    assert agent.to_blueprint() == blueprint
    assert (
        to_tool(plain).schema["function"].get("description")
        != "Edited by hand."
    )


PARAMETERS = {
    "type": "object",
    "properties": {"city": {"type": "string"}},
    "required": ["city"],
}
STORED: dict[str, tuple[Json, Json | None]] = {
    # the stored parameters, and those that a model is shown; None if they are a problem
    "an object": (PARAMETERS, PARAMETERS),
    "without a type": ({"properties": PARAMETERS["properties"], "required": ["city"]}, PARAMETERS),
    "a reference": (
        {"$ref": "#/$defs/P", "$defs": {"P": PARAMETERS}}, {**PARAMETERS, "$defs": {"P": PARAMETERS}},
    ),
    "a list": ({"type": "array", "items": PARAMETERS}, None),
    "a union": ({"anyOf": [PARAMETERS]}, None),
    "a reference to a list": ({"$ref": "#/$defs/P", "$defs": {"P": {"type": "array"}}}, None),
}  # fmt: skip


@pytest.mark.parametrize("name", STORED)
def test_stored_parameters_are_shown_as_providers_take_them(name: str) -> None:
    """The root of parameters is an object without a reference; where it cannot be, that is a problem."""
    stored, shown = STORED[name]
    function = {"name": "later", "parameters": stored}
    entry = {
        "name": "later",
        "schema": {"type": "function", "function": function},
    }
    blueprint = {
        "name": "guide",
        "instructions": "",
        "config": {"model": "offline/echo"},
        "tools": [entry],
    }
    if shown is None:
        found = problems_of(lambda: Agent.from_blueprint(blueprint, [later]))
        assert [problem.pointer for problem in found] == [
            "/tools/0/schema/function/parameters"
        ]
        return
    model = ScriptedModel("done")
    agent = Agent.from_blueprint(blueprint, [later], model=model)
    assert agent.run("go") == "done"
    assert model.requests[0].tools[0]["function"]["parameters"] == shown
    assert agent.to_blueprint()["tools"] == [entry]


WRONG = ToolCall.of("plain", city=5)
RIGHT = ToolCall.of("plain", city="Rome")
OTHER = ToolCall.of("later", city=5)
UNKNOWN = ToolCall.of("nowhere")
RETRIES: dict[str, tuple[Json, list[Any], int | None]] = {
    # the settings, the answers of the model, and at which of them the run fails; None if it does not
    "three by default": ({}, [WRONG, WRONG, WRONG, "done"], None),
    "the fourth": ({}, [WRONG, WRONG, WRONG, WRONG, "done"], 4),
    "none": ({"max_tool_retries": 0}, [WRONG, "done"], 1),
    "a right call is no mistake": (
        {"max_tool_retries": 0},
        [RIGHT, RIGHT, "done"],
        None,
    ),
    "one": ({"max_tool_retries": 1}, [WRONG, WRONG, "done"], 2),
    "in a row": (
        {"max_tool_retries": 1},
        [WRONG, RIGHT, WRONG, RIGHT, WRONG, "done"],
        None,
    ),
    "calls of other tools do not count": (
        {"max_tool_retries": 1},
        [WRONG, OTHER, UNKNOWN, "done"],
        None,
    ),
    "calls of other tools do not begin anew": (
        {"max_tool_retries": 1},
        [WRONG, OTHER, WRONG, "done"],
        3,
    ),
    "calls of one turn": (
        {"max_tool_retries": 1},
        [[WRONG, WRONG, WRONG], "done"],
        None,
    ),
    "calls of two turns": (
        {"max_tool_retries": 1},
        [[WRONG, WRONG], [WRONG], "done"],
        2,
    ),
    "a right call in the same turn": (
        {"max_tool_retries": 1},
        [[WRONG, RIGHT], [RIGHT, WRONG], WRONG, "done"],
        None,
    ),
    "an unknown tool": ({"max_tool_retries": 1}, [UNKNOWN, UNKNOWN, "done"], 2),
    "malformed arguments": (
        {"max_tool_retries": 1},
        [ToolCall("c", "plain", "{"), WRONG, "done"],
        2,
    ),
}


@pytest.mark.parametrize("name", RETRIES)
def test_mistakes_of_the_model_are_reported_to_it(name: str) -> None:
    """Wrong calls of one tool in a row are reported `max_tool_retries` times; the next one fails the run."""
    settings, answers, failing = RETRIES[name]
    model = ScriptedModel(*answers)
    agent = Agent(
        "guide", "", model, tools=[plain, later], max_loops=100, **settings
    )
    again = Agent.from_blueprint(
        agent.to_blueprint(), [plain, later], model=ScriptedModel(*answers)
    )
    for each in (agent, again):
        if failing is None:
            assert each.run("go") == "done"
        else:
            with pytest.raises(ToolArgumentsError):
                each.run("go")
    assert len(model.requests) == (failing or len(answers))
    assert again.max_tool_retries == settings.get("max_tool_retries", 3)


async def test_tool_calls_of_one_answer_have_a_limit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """More than `PODWRIGHT_MAX_TOOL_CALLS` end the run before any is executed, without another model call."""
    monkeypatch.setenv("PODWRIGHT_MAX_TOOL_CALLS", "3")
    called: list[int] = []

    def note(number: int) -> str:
        """Note a number."""
        called.append(number)
        return "noted"

    def calls(count: int) -> list[ToolCall]:
        return [
            ToolCall.of("note", f"c{number}", number=number)
            for number in range(count)
        ]

    model = ScriptedModel(calls(3), "done", calls(4), "never")
    agent = Agent("a", "Note.", model, tools=[note])
    assert await agent.arun("?") == "done"
    assert sorted(called) == [0, 1, 2]
    with pytest.raises(ModelResponseError, match="more than 3 tool calls"):
        await agent.arun("?")
    assert len(called) == 3
    assert len(model.requests) == 3


async def test_tool_calls_wait_for_each_other() -> None:
    """Only some calls of one answer are executed at once; all are, in the end."""
    active = most = 0

    async def work(number: int) -> str:
        """Work."""
        nonlocal active, most
        active += 1
        most = max(most, active)
        await asyncio.sleep(0)
        active -= 1
        return str(number)

    asked = [
        ToolCall.of("work", f"c{number}", number=number)
        for number in range(100)
    ]
    model = ScriptedModel(asked, "done")
    assert await Agent("a", "Work.", model, tools=[work]).arun("?") == "done"
    assert most == PARALLEL_CALLS
    results = [
        message.text
        for message in model.requests[1].messages
        if message.role == "tool"
    ]
    assert results == [str(number) for number in range(100)]


class Shop:
    """A class with methods that are tools."""

    def find(self, word: str) -> str:
        """Find a word."""
        return word

    @classmethod
    def name(cls, word: str) -> str:
        """Name the class."""
        return f"{cls.__name__} {word}"


@pytest.mark.parametrize(
    "make",
    [
        lambda function: Agent("a", "", "offline/echo", tools=[function]),
        lambda function: Workflow("w", [FunctionStep(function, {"word": "x"})]),
        to_tool,
    ],
    ids=["agent", "function step", "tool"],
)
def test_a_method_needs_an_object(make: Callable[[Any], Any]) -> None:
    """A method of a class alone is an error that says so; with an object, and as a class method, it is a tool."""
    with pytest.raises(ToolDefinitionError) as caught:
        make(Shop.find)
    assert "'Shop'" in caught.value.message
    assert "Shop().find" in caught.value.suggestion
    make(Shop().find)
    make(Shop.name)


def test_a_function_may_have_a_parameter_self() -> None:
    """Only a method needs an object."""

    def find(self: str) -> str:
        """Find."""
        return self

    for function in (find, functools.partial(Shop.find, Shop())):
        assert to_tool(function).name == "find"


class Point(typing.TypedDict):
    """A point."""

    x: int


def at(point: Point) -> int:
    """Take a point."""
    return point["x"]


def through(points: list[Point]) -> int:
    """Take points."""
    return len(points)


@pytest.mark.parametrize("function", [at, through])
def test_a_typed_dict_of_the_standard_library(
    function: Callable[..., Any],
) -> None:
    """It is a type from Python 3.12 on; before that the error names the one to use."""
    name = function.__name__
    parameter = next(iter(inspect.signature(function).parameters))
    step = FunctionStep(function, {parameter: "{x}"})
    for make in (
        lambda: Agent(name, "", "offline/echo", tools=[function]),
        lambda: Workflow(name, [step]),
    ):
        if sys.version_info >= (3, 12):
            make()
            continue
        with pytest.raises(ToolDefinitionError) as caught:
            make()
        assert "typing_extensions.TypedDict" in caught.value.message
