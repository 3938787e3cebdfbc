"""Callables as tools: the schema from the signature, the check of arguments, the call, and drift (spec §2.1)."""

import asyncio
import dataclasses
import enum
import functools
import gc
import json
import threading
import weakref
from collections.abc import Callable
from typing import Annotated, Any, Literal, Optional

import pytest
from pydantic import BaseModel, Field
from tests.library.shapes import Json

from podwright import Agent, BlueprintValidationError, ScriptedModel
from podwright.errors import Problem, ToolArgumentsError, ToolDefinitionError
from podwright.testing import ToolCall, events_of
from podwright.tools import schema_differences, to_tool


class Unit(enum.Enum):
    """A unit of temperature."""

    celsius = "C"
    fahrenheit = "F"


class Place(BaseModel):
    """Somewhere."""

    city: str
    country: str = "FR"


@dataclasses.dataclass
class Period:
    """Some time."""

    days: int
    start: str | None = None


def plain(city: str, days: int = 1) -> str:
    """Say what the weather will be.

    It is always fine.

    Args:
        city: Where.
        days: For how many days.
    """
    return f"{city} {days}"


def optional(city: Optional[str], note: str | None = None) -> str:  # noqa: UP045 - both notations are tested
    return f"{city} {note}"


def choice(size: Literal["s", "m"], unit: Unit = Unit.celsius) -> str:
    return f"{size} {unit.name}"


def nested(place: Place, period: Period, more: list[Place]) -> str:
    return f"{place.city} {place.country} {period.days} {len(more)}"


def annotated(
    count: Annotated[int, Field(ge=1, le=5, description="How many.")],
    word: Annotated[str, Field(alias="Word", min_length=1)] = "x",
) -> str:
    """Count.

    Args:
        count: This is not used.
        word: But this is.
    """
    return word * count


def untyped(anything, *, flag=False):  # pyright: ignore[reportMissingParameterType]
    return f"{anything} {flag}"


def nothing() -> None:
    """Do nothing."""


async def slow(city: str) -> str:
    """Take its time."""
    await asyncio.sleep(0)
    return city


def silent(value: Any = object()) -> str:  # noqa: B008 - a default that is no JSON
    return str(value)


STRING = {"type": "string"}
SIGNATURES: list[tuple[Callable[..., Any], Json, list[str], str | None]] = [
    (
        plain,
        {
            "city": {"type": "string", "description": "Where."},
            "days": {"type": "integer", "default": 1, "description": "For how many days."},
        },
        ["city"],
        "Say what the weather will be.\n\nIt is always fine.",
    ),
    (
        optional,
        {
            "city": {"anyOf": [{"type": "string"}, {"type": "null"}]},
            "note": {"anyOf": [{"type": "string"}, {"type": "null"}], "default": None},
        },
        ["city"],
        None,
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
        annotated,
        {
            "count": {"type": "integer", "minimum": 1, "maximum": 5, "description": "How many."},
            "word": {"type": "string", "minLength": 1, "default": "x", "description": "But this is."},
        },
        ["count"],
        "Count.",
    ),
    (untyped, {"anything": {}, "flag": {"default": False}}, ["anything"], None),
    (nothing, {}, [], "Do nothing."),
    (slow, {"city": STRING}, ["city"], "Take its time."),
    (silent, {"value": {}}, [], None),
]


@pytest.mark.parametrize(
    ("function", "properties", "required", "description"), SIGNATURES, ids=[row[0].__name__ for row in SIGNATURES]
)
def test_a_signature_becomes_a_schema(
    function: Callable[..., Any], properties: Json, required: list[str], description: str | None
) -> None:
    """Names, types, defaults, choices, bounds and docstrings of a function are what the model is shown."""
    schema = to_tool(function).schema
    assert schema["type"] == "function"
    shown = schema["function"]
    assert shown["name"] == function.__name__
    assert shown.get("description") == description
    assert shown["parameters"]["properties"] == properties
    assert shown["parameters"].get("required", []) == required
    assert shown["parameters"]["additionalProperties"] is False
    assert shown["parameters"]["type"] == "object"


def test_models_and_dataclasses_are_parameters() -> None:
    """Pydantic models, dataclasses and lists of them become definitions of the schema, without needless titles."""
    parameters = to_tool(nested).schema["function"]["parameters"]
    assert parameters["properties"] == {
        "place": {"$ref": "#/$defs/Place"},
        "period": {"$ref": "#/$defs/Period"},
        "more": {"type": "array", "items": {"$ref": "#/$defs/Place"}},
    }
    assert parameters["$defs"]["Place"]["required"] == ["city"]
    assert parameters["$defs"]["Period"]["properties"]["days"] == {"type": "integer"}
    assert "title" not in parameters
    assert "title" not in parameters["properties"]["place"]


class Counter:
    """Counts what it is asked."""

    def __init__(self) -> None:
        self.asked: list[int] = []

    def __call__(self, number: int) -> int:
        self.asked.append(number)
        return len(self.asked)

    def method(self, number: int = 1) -> int:
        """Count by a method."""
        self.asked.append(number)
        return number

    @classmethod
    def of_class(cls, number: int) -> str:
        """Count by a class."""
        return f"{cls.__name__} {number}"

    @staticmethod
    def static(number: int) -> int:
        """Count by nothing."""
        return number

    async def later(self, number: int) -> int:
        """Count later."""
        return number + 1


class AsyncCounter:
    async def __call__(self, number: int) -> int:
        return number + 2


def wrapped(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def inner(*args: Any, **kwargs: Any) -> Any:
        return function(*args, **kwargs)

    return inner


counter = Counter()
CALLABLES: list[tuple[str, Callable[..., Any], Json, str, list[str]]] = [
    ("function", plain, {"city": "Rome"}, "Rome 1", ["city", "days"]),
    ("all", plain, {"city": "Rome", "days": 2}, "Rome 2", ["city", "days"]),
    ("async", slow, {"city": "Rome"}, "Rome", ["city"]),
    ("method", counter.method, {}, "1", ["number"]),
    ("async method", counter.later, {"number": 1}, "2", ["number"]),
    ("class method", Counter.of_class, {"number": 3}, "Counter 3", ["number"]),
    ("static method", Counter.static, {"number": 3}, "3", ["number"]),
    ("object", Counter(), {"number": 7}, "1", ["number"]),
    ("async object", AsyncCounter(), {"number": 7}, "9", ["number"]),
    ("partial", functools.partial(plain, days=3), {"city": "Rome"}, "Rome 3", ["city", "days"]),
    ("partial of a partial", functools.partial(functools.partial(plain, "Oslo")), {}, "Oslo 1", ["days"]),
    ("async partial", functools.partial(slow, city="Bonn"), {}, "Bonn", ["city"]),
    ("decorated", wrapped(plain), {"city": "Rome"}, "Rome 1", ["city", "days"]),
    ("enum", choice, {"size": "m", "unit": "F"}, "m fahrenheit", ["size", "unit"]),
    ("model", nested, {"place": {"city": "Rome"}, "period": {"days": 2}, "more": []}, "Rome FR 2 0",
     ["place", "period", "more"]),
    ("alias", annotated, {"count": 2, "word": "ab"}, "abab", ["count", "word"]),
]  # fmt: skip


@pytest.mark.parametrize(
    ("label", "function", "arguments", "answer", "parameters"), CALLABLES, ids=[row[0] for row in CALLABLES]
)
def test_any_named_callable_is_a_tool(
    label: str, function: Callable[..., Any], arguments: Json, answer: str, parameters: list[str]
) -> None:
    """Functions, methods, callable objects and partials, blocking or not, are offered and called by name."""
    tool = to_tool(function)
    assert list(tool.schema["function"]["parameters"]["properties"]) == parameters
    model = ScriptedModel(ToolCall.of(tool.name, **arguments), "done")
    result = Agent("guide", "", model, tools=[function]).run("go", trace=True)
    assert [event.output for event in events_of(result, "tool_call_finished")] == [answer]  # pyright: ignore[reportAttributeAccessIssue]


def test_a_partial_is_known_by_what_it_wraps() -> None:
    """A partial's name and description are the function's, unless it is given a name of its own."""
    part = functools.partial(plain, days=3)
    shown = to_tool(part).schema["function"]
    assert (shown["name"], shown.get("description", "")[:3]) == ("plain", "Say")
    assert shown["parameters"]["properties"]["days"]["default"] == 3
    named = functools.partial(plain, days=3)
    named.__name__ = "three_days"  # pyright: ignore[reportAttributeAccessIssue]
    assert to_tool(named).name == "three_days"


def test_an_object_is_known_by_its_class() -> None:
    """A callable object is offered under its class's name, with its class's docstring."""
    shown = to_tool(Counter()).schema["function"]
    assert (shown["name"], shown.get("description")) == ("Counter", "Counts what it is asked.")
    assert "description" not in to_tool(AsyncCounter()).schema["function"]


CLASHES = [
    "schema", "model_config", "self", "cls", "copy", "json", "dict", "validate", "model_fields_set", "model_dump",
    "name", "args", "run", "field", "field_field", "naïve", "return_",
]  # fmt: skip


@pytest.mark.parametrize("name", CLASHES)
def test_a_parameter_may_have_any_name(name: str) -> None:
    """What a parameter is called clashes with nothing, and its value arrives under that name."""
    scope: Json = {}
    exec(f"def tool({name}: str, other: int = 0): return [{name}, other]", scope)  # noqa: S102 - our own text
    function = scope["tool"]
    assert list(to_tool(function).schema["function"]["parameters"]["properties"]) == [name, "other"]
    model = ScriptedModel(ToolCall("1", "tool", f'{{"{name}": "x"}}'), "done")
    result = Agent("guide", "", model, tools=[function]).run("go", trace=True)
    assert [event.output for event in events_of(result, "tool_call_finished")] == ['["x", 0]']  # pyright: ignore[reportAttributeAccessIssue]


def many(*cities: str) -> str:
    return ""


def anything(**options: str) -> str:
    return ""


def positional(city: str, /) -> str:
    return ""


def hidden(_city: str) -> str:
    return ""


def strange(thing: threading.Thread) -> str:
    return ""


def unresolved(thing: "Nowhere") -> str:  # noqa: F821  # pyright: ignore[reportUndefinedVariable]
    return ""


REFUSED: list[tuple[str, Any, str]] = [
    ("lambda", lambda city: city, "A tool needs a name; <function"),
    ("*args", many, "Parameter '*cities: str' of tool 'many' cannot be given by name."),
    ("**kwargs", anything, "Parameter '**options: str' of tool 'anything' cannot be given by name."),
    ("positional", positional, "Parameter 'city: str' of tool 'positional' cannot be given by name."),
    ("underscore", hidden, "Parameter '_city' of tool 'hidden' begins with an underscore."),
    ("no schema", strange, "The parameters of tool 'strange' have no JSON Schema: "),
    ("no such type", unresolved, "The parameters of tool 'unresolved' cannot be read: name 'Nowhere' is not"),
    ("built-in", iter, "The parameters of tool 'iter' cannot be read: "),
    ("no callable", "plain", "A tool is a callable, not 'p'."),
    ("number", [5], "A tool is a callable, not 5."),
    ("no list", plain, "Tools are a list of callables, not <function plain"),
    ("not even that", 5, "Tools are a list of callables, not 5."),
    ("two names", [plain, wrapped(plain)], "Two tools are called 'plain'."),
]  # fmt: skip


@pytest.mark.parametrize(("label", "tools", "message"), REFUSED, ids=[row[0] for row in REFUSED])
def test_what_cannot_be_a_tool_is_refused(label: str, tools: Any, message: str) -> None:
    """A callable that a model cannot call by name, and anything that is none, is one clear error."""
    given: Any = [tools] if callable(tools) and not message.startswith("Tools are") else tools
    with pytest.raises(ToolDefinitionError) as caught:
        Agent("guide", "", "offline/echo", tools=given)
    assert caught.value.message.startswith(message)
    assert "\n" not in caught.value.message
    assert caught.value.suggestion


def test_the_same_tool_twice_is_one() -> None:
    """The same function given twice is one tool."""
    agent = Agent("guide", "", "offline/echo", tools=[plain, plain])
    assert list(agent.tools) == ["plain"]
    assert len(agent.to_blueprint()["tools"]) == 1


def test_a_schema_is_made_once() -> None:
    """The schema of a function is made once; it is forgotten with the function, which it does not keep alive."""
    assert to_tool(plain).schema is to_tool(plain).schema

    def local(number: int) -> int:
        return number

    assert to_tool(local).schema is to_tool(local).schema
    gone = weakref.ref(local)
    del local
    gc.collect()
    assert gone() is None


def test_unhashable_callables_are_tools_too() -> None:
    """A callable object that cannot be remembered is made anew each time."""

    @dataclasses.dataclass
    class Scale:
        factor: int

        def __call__(self, number: int) -> int:
            return number * self.factor

    assert to_tool(Scale(2)).name == "Scale"
    assert to_tool(Scale(2)).function is not to_tool(Scale(2)).function


async def call(tool: Any, arguments: Json) -> Any:
    return await to_tool(tool).call(None, arguments)  # pyright: ignore[reportArgumentType] - functions need no run


@pytest.mark.parametrize(
    ("tool", "arguments", "reason"),
    [
        (plain, {}, "city: field required"),
        (plain, {"city": 5}, "city: input should be a valid string"),
        (plain, {"city": "x", "days": "many"}, "days: input should be a valid integer"),
        (plain, {"city": "x", "when": 1}, "when: extra inputs are not permitted"),
        (plain, {"city": None}, "city: input should be a valid string"),
        (choice, {"size": "xl"}, "size: input should be 's' or 'm'"),
        (choice, {"size": "s", "unit": "K"}, "unit: input should be 'c' or 'f'"),
        (annotated, {"count": 6}, "count: input should be less than or equal to 5"),
        (annotated, {"count": 1, "Word": "x"}, "Word: extra inputs are not permitted"),
        (nested, {"place": {}, "period": {"days": 1}, "more": [{}]}, "place.city: field required; more.0.city: field"),
        (nothing, {"x": 1}, "x: extra inputs are not permitted"),
    ],
)
async def test_wrong_arguments_are_told(tool: Callable[..., Any], arguments: Json, reason: str) -> None:
    """Arguments that do not fit are refused before the call, each with its place and the reason."""
    with pytest.raises(ToolArgumentsError) as caught:
        await call(tool, arguments)
    assert caught.value.message.startswith(f"Tool '{tool.__name__}' was called with wrong arguments: {reason}")


async def test_arguments_nested_too_deep_are_told(heard: Any) -> None:
    """A model that nests its arguments without end is told so, and the trace can be written."""

    def keep(value: list[Any]) -> str:
        """Keep a value."""
        raise AssertionError

    model = ScriptedModel(ToolCall("1", "keep", '{"value": ' + "[" * 500 + "]" * 500 + "}"), "sorry")
    assert await Agent("a", "Do.", model, tools=[keep], event_manager=heard.manager).arun("x") == "sorry"
    assert "nested too deep" in json.dumps([event.to_dict() for event in heard.events])


async def test_arguments_arrive_as_their_types() -> None:
    """A function is given what its hints say, and its own defaults where nothing was given."""
    seen: list[Any] = []
    default: list[int] = []

    def look(place: Place, unit: Unit, days: float = 1, extra: list[int] = default) -> None:
        seen.extend([place, unit, days, extra])

    await call(look, {"place": {"city": "Rome"}, "unit": "F", "days": "2.5"})
    assert seen[:3] == [Place(city="Rome"), Unit.fahrenheit, 2.5]
    assert seen[3] is default


async def test_a_blocking_function_runs_in_a_thread() -> None:
    """A function that blocks is called elsewhere than on the loop's thread; an async one on it."""

    def where() -> int:
        return threading.get_ident()

    async def here() -> int:
        return threading.get_ident()

    assert await call(where, {}) != threading.get_ident()
    assert await call(here, {}) == threading.get_ident()


def schema(properties: Json, *required: str, **more: Any) -> Json:
    return {"type": "object", "properties": properties, "required": list(required), **more}


INTEGER = {"type": "integer"}
DEFS = {"$defs": {"P": {"type": "object", "properties": {"x": INTEGER}, "description": "d"}}}
TITLED = '{"properties":{"title":{"type":"string"}}}'
DRIFT: list[tuple[str, Json, Json, list[str]]] = [
    ("same", schema({"a": STRING}, "a"), schema({"a": STRING}, "a"), []),
    ("description", schema({"a": {**STRING, "description": "x"}}), schema({"a": {**STRING, "description": "y"}}), []),
    ("title", schema({"a": {**STRING, "title": "A"}}, title="T"), schema({"a": STRING}), []),
    ("examples", schema({"a": {**STRING, "examples": ["x"]}}), schema({"a": STRING}), []),
    ("default", schema({"a": {**INTEGER, "default": 1}}), schema({"a": {**INTEGER, "default": 2}}), []),
    ("new optional", schema({"a": STRING}), schema({"a": STRING, "b": STRING}), []),
    ("required to optional", schema({"a": STRING}, "a"), schema({"a": STRING}), []),
    ("reference", schema({"a": {"$ref": "#/$defs/P"}}, **DEFS), schema({"a": DEFS["$defs"]["P"]}), []),
    ("missing", schema({"a": STRING, "b": STRING}), schema({"a": STRING}),
     ["the blueprint has the parameter 'b', the function has not"]),
    ("extra", schema({}), schema({"b": STRING}, "b"),
     ["the function requires 'b', which the blueprint does not have"]),
    ("changed", schema({"a": STRING}), schema({"a": INTEGER}),
     ['the parameter \'a\' was {"type":"string"}, and is {"type":"integer"}']),
    ("optional to required", schema({"a": STRING}), schema({"a": STRING}, "a"),
     ["the function requires 'a', which is optional in the blueprint"]),
    ("bound", schema({"a": INTEGER}), schema({"a": {**INTEGER, "minimum": 1}}),
     ['the parameter \'a\' was {"type":"integer"}, and is {"type":"integer","minimum":1}']),
    ("choice", schema({"a": {"enum": ["x", "y"]}}), schema({"a": {"enum": ["x"]}}),
     ['the parameter \'a\' was {"enum":["x","y"]}, and is {"enum":["x"]}']),
    ("a property called title", schema({"a": {"properties": {"title": STRING}}}),
     schema({"a": {"properties": {"title": INTEGER}}}),
     [f"the parameter 'a' was {TITLED}, and is {TITLED.replace('string', 'integer')}"]),
    ("renamed", schema({"a": STRING}, "a"), schema({"b": STRING}, "b"),
     ["the blueprint has the parameter 'a', the function has not",
      "the function requires 'b', which the blueprint does not have"]),
    ("nonsense", {"properties": 5, "required": 7, "$defs": 9}, schema({}), []),
]  # fmt: skip


@pytest.mark.parametrize(("label", "stored", "actual", "expected"), DRIFT, ids=[row[0] for row in DRIFT])
def test_drift_is_what_a_stored_schema_allows_and_a_function_does_not(
    label: str, stored: Json, actual: Json, expected: list[str]
) -> None:
    """A function may take more than the stored schema says, and explain it otherwise, but it may not take less."""
    assert schema_differences(stored, actual) == expected


def test_a_type_that_holds_itself_can_be_compared() -> None:
    """Schemas that refer to themselves are compared without end or error."""
    tree = {"type": "object", "properties": {"inner": {"$ref": "#/$defs/T"}}}
    stored = schema({"a": {"$ref": "#/$defs/T"}}, **{"$defs": {"T": tree}})
    assert schema_differences(stored, stored) == []
    other = schema({"a": {"$ref": "#/$defs/T"}}, **{"$defs": {"T": {**tree, "maxProperties": 1}}})
    assert len(schema_differences(stored, other)) == 1


def problems_of(blueprint: Json, *tools: Callable[..., Any]) -> list[Problem]:
    with pytest.raises(BlueprintValidationError) as caught:
        Agent.from_blueprint(blueprint, list(tools))
    return list(caught.value.problems)


def test_a_missing_callable_is_asked_for() -> None:
    """A tool without a callable is a problem at its entry that names the nearest callable, or says how to give it."""
    made = Agent("guide", "", "offline/echo", tools=[plain, slow]).to_blueprint()
    missing = "no callable was given for the tool '{}'."
    assert problems_of(made) == [
        Problem("/tools/0", missing.format("plain"), "Give it in tools=[plain]."),
        Problem("/tools/1", missing.format("slow"), "Give it in tools=[slow]."),
    ]

    def plane(city: str) -> str:
        return city

    assert problems_of(made, plane, slow) == [Problem("/tools/0", missing.format("plain"), "Did you mean 'plane'?")]
    assert problems_of(made, slow, nothing)[0].suggestion == "Known names: slow, nothing. Give it in tools=[plain]."


def test_drift_is_a_problem_of_the_blueprint() -> None:
    """A callable that no longer fits its stored schema is refused on reconstruction, with what differs."""
    made = Agent("guide", "", "offline/echo", tools=[plain]).to_blueprint()

    def changed(city: int, country: str, days: int = 1) -> str:
        return ""

    changed.__name__ = "plain"
    at = "/tools/0/schema/function/parameters"
    hint = "Export the blueprint anew, or change the function back."
    assert problems_of(made, changed) == [
        Problem(at, 'tool \'plain\': the parameter \'city\' was {"type":"string"}, and is {"type":"integer"}.', hint),
        Problem(at, "tool 'plain': the function requires 'country', which the blueprint does not have.", hint),
    ]
    assert list(Agent.from_blueprint(made, [changed], validate=False).tools) == ["plain"]


def test_descriptions_of_the_blueprint_are_what_the_model_sees() -> None:
    """An edited description is no drift: the model is shown the blueprint's words, and the function is called."""
    made = Agent("guide", "", "offline/echo", tools=[plain]).to_blueprint()
    made["tools"][0]["schema"]["function"]["description"] = "Edited by hand."
    model = ScriptedModel(ToolCall.of("plain", city="Rome"), "done")
    agent = Agent.from_blueprint(made, [plain, slow], model=model)
    assert agent.run("go") == "done"
    (offered,) = model.requests[0].tools
    assert offered["function"].get("description") == "Edited by hand."
    assert list(agent.tools) == ["plain"], "a callable that the blueprint does not name is left out"
    assert agent.to_blueprint() == made
    assert to_tool(plain).schema["function"].get("description") != "Edited by hand."
