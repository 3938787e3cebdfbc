"""Arguments of tool calls that models write in another shape: which are taken, and which are refused."""

from __future__ import annotations

import copy
import enum
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import date
from decimal import Decimal
from typing import Annotated, Any, Literal
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    StrictInt,
    TypeAdapter,
    ValidationError,
)
from tests.library.shapes import Json
from tests.library.strategies import any_json

from podwright import Agent, ScriptedModel
from podwright.errors import ToolArgumentsError
from podwright.testing import ToolCall
from podwright.tools.arguments import validate_arguments
from podwright.tools.function_schema import function_schema
from podwright.tools.function_tool import to_tool


class Line(BaseModel):
    sku: str
    count: int = 1


class Level(enum.IntEnum):
    LOW = 1
    HIGH = 2


class Unit(enum.Enum):
    celsius = "C"
    fahrenheit = "F"


class Node(BaseModel):
    value: int
    children: list[Node] = []
    next: Node | None = None


class Circle(BaseModel):
    kind: Literal["circle"]
    sizes: list[int]


class Label(BaseModel):
    kind: Literal["label"]
    sizes: str


class Closed(BaseModel):
    model_config = ConfigDict(extra="forbid")

    lines: list[Line]


class Exact(BaseModel):
    model_config = ConfigDict(strict=True)

    id: UUID
    day: date


@dataclass
class Folder:
    name: str
    inside: list[Folder] = field(default_factory=list["Folder"])


def by_commas(value: Any) -> Any:
    return value.split(",") if isinstance(value, str) else value


def order(lines: list[Line], express: bool = False) -> Any:
    return [lines, express]


def sums(numbers: list[int], scale: float | None = None) -> Any:
    return [numbers, scale]


def texts(words: list[str], note: str = "") -> Any:
    return [words, note]


def choose(
    minutes: Literal[60, 1440] = 60,
    size: Literal["s", "2"] = "s",
    flag: Literal[True, "auto"] = "auto",
) -> Any:
    return [minutes, size, flag]


def enums(
    level: Level = Level.LOW,
    unit: Unit = Unit.celsius,
    levels: Sequence[Level] = (),
) -> Any:
    return [level, unit, levels]


def dates(day: date | None = None, price: Decimal | None = None) -> Any:
    return [day, price]


def strict(number: StrictInt = 0, exact: Sequence[Exact] = ()) -> Any:
    return [number, exact]


def tree(root: Node) -> Any:
    return root


def shape(shape: Annotated[Circle | Label, Field(discriminator="kind")]) -> Any:
    return shape


def either(
    value: Circle | int | None = None, matrix: Sequence[list[int]] = ()
) -> Any:
    return [value, matrix]


def wide(
    table: dict[str, Line] | None = None,
    pair: tuple[int, str] = (0, ""),
    tags: frozenset[str] = frozenset(),
    closed: Closed | None = None,
    folder: Folder | None = None,
    anything: Any = None,
    items: Sequence[Any] = (),
) -> Any:
    return [table, pair, tags, closed, folder, anything, items]


def own_rule(
    cities: Annotated[list[str], BeforeValidator(by_commas)], limit: int = 1
) -> Any:
    return [cities, limit]


def named(arguments: dict[str, int], input: str = "") -> Any:
    return [arguments, input]


def switch(on: bool = True) -> Any:
    return on


TWO = [Line(sku="a", count=2)]
LINE = {"sku": "a", "count": 2}
LINE_TEXT = json.dumps(LINE)
AN_ID = "00000000-0000-4000-8000-000000000000"

PI = "https://github.com/earendil-works/pi/issues/9931"
OPENCODE = "https://github.com/anomalyco/opencode/issues/8249"
AGNO = "https://github.com/agno-agi/agno/issues/9633"
VLLM = "https://github.com/vllm-project/vllm/issues/21046"
SONETTO = "https://github.com/Miso2233/SonettoHere/issues/319"
SANITY = "https://github.com/sanity-io/agent-toolkit/issues/44"
OPENCLAW = "https://github.com/openclaw/openclaw/pull/96922"
ZENROWS = "https://github.com/ZenRows/zenrows-mcp/pull/23"
SUROGATE = "https://github.com/invergent-ai/surogate/issues/142"

Row = tuple[Callable[..., Any], Json, Any, str]
TAKEN: dict[str, Row] = {
    # the tool, the arguments, what it is called with, a report of it
    "a list of objects as text": (order, {"lines": f"[{LINE_TEXT}]"}, [TWO, False], PI),
    "objects in a list as text": (order, {"lines": [LINE_TEXT]}, [TWO, False], PI),
    "the same, spread over lines": (order, {"lines": f"[\n{LINE_TEXT}\n]\n"}, [TWO, False], PI),
    "one object instead of a list": (order, {"lines": LINE}, [TWO, False], SONETTO),
    "one object as text instead of a list": (order, {"lines": LINE_TEXT}, [TWO, False], SONETTO),
    "a list as text, of objects as text": (order, {"lines": json.dumps([LINE_TEXT])}, [TWO, False], OPENCODE),
    "a list that was encoded twice": (order, {"lines": json.dumps([json.dumps(LINE_TEXT)])}, [TWO, False], ""),
    "a list of numbers as text": (sums, {"numbers": "[1, 2]"}, [[1, 2], None], OPENCODE),
    "numbers in a list as text": (sums, {"numbers": ["1", "2"]}, [[1, 2], None], OPENCODE),
    "one number instead of a list": (sums, {"numbers": 5}, [[5], None], SONETTO),
    "one number as text instead of a list": (sums, {"numbers": "5"}, [[5], None], SONETTO),
    "null for an optional number": (sums, {"numbers": [], "scale": None}, [[], None], ZENROWS),
    "null as text for it": (sums, {"numbers": [], "scale": "null"}, [[], None], ZENROWS),
    "Python's None as text for it": (sums, {"numbers": [], "scale": "None"}, [[], None], ZENROWS),
    "a number as text for it": (sums, {"numbers": [], "scale": " 2.5 "}, [[], 2.5], AGNO),
    "a list of texts as text": (texts, {"words": '["a", "b"]'}, [["a", "b"], ""], OPENCLAW),
    "a Python list as text": (texts, {"words": "['a', 'b']"}, [["a", "b"], ""], SONETTO),
    "one text instead of a list": (texts, {"words": "urgent"}, [["urgent"], ""], SONETTO),
    "one text that is a number": (texts, {"words": "5"}, [["5"], ""], SONETTO),
    "null for a text with a default": (texts, {"words": [], "note": None}, [[], ""], ZENROWS),
    "a boolean as text": (order, {"lines": [], "express": "true"}, [[], True], AGNO),
    "null for a boolean with a default": (order, {"lines": [], "express": None}, [[], False], ZENROWS),
    "null as text for a boolean": (order, {"lines": [], "express": "null"}, [[], False], ZENROWS),
    "a number of a literal as text": (choose, {"minutes": "60"}, [60, "s", "auto"], AGNO),
    "a decimal number of a literal": (choose, {"minutes": 1440.0}, [1440, "s", "auto"], AGNO),
    "a decimal number of a literal as text": (choose, {"minutes": "1440.0"}, [1440, "s", "auto"], AGNO),
    "a number for a text of a literal": (choose, {"size": 2}, [60, "2", "auto"], AGNO),
    "a boolean of a literal as text": (choose, {"flag": "true"}, [60, "s", True], AGNO),
    "the same as in Python": (choose, {"flag": "True"}, [60, "s", True], AGNO),
    "a number of an enum as text": (enums, {"level": "2"}, [Level.HIGH, Unit.celsius, ()], AGNO),
    "a member by its name": (enums, {"level": "HIGH"}, [Level.HIGH, Unit.celsius, ()], AGNO),
    "a member by its name in lower case": (enums, {"level": "high"}, [Level.HIGH, Unit.celsius, ()], AGNO),
    "a member of texts by its name": (enums, {"unit": "fahrenheit"}, [Level.LOW, Unit.fahrenheit, ()], AGNO),
    "members in a list": (enums, {"levels": ["LOW", "2"]}, [Level.LOW, Unit.celsius, [1, 2]], AGNO),
    "one member instead of a list": (enums, {"levels": "HIGH"}, [Level.LOW, Unit.celsius, [2]], AGNO),
    "a date with the time midnight": (dates, {"day": "2026-11-25T00:00:00Z"}, [date(2026, 11, 25), None], ""),
    "null as text for an optional date": (dates, {"day": "null"}, [None, None], ZENROWS),
    "null as text for an optional price": (dates, {"price": "null"}, [None, None], ZENROWS),
    "a number as text for a strict type": (strict, {"number": "5"}, [5, ()], AGNO),
    "a whole number for a strict type": (strict, {"number": 5.0}, [5, ()], AGNO),
    "texts for strict types": (
        strict, {"exact": {"id": AN_ID, "day": "2026-11-25"}}, [0, [Exact(id=UUID(AN_ID), day=date(2026, 11, 25))]], "",
    ),
    "an object as text": (tree, {"root": '{"value": 1}'}, Node(value=1), SANITY),
    "deep inside": (
        tree, {"root": {"value": 1, "children": [{"value": 2, "next": '{"value": "3", "children": "[]"}'}]}},
        Node(value=1, children=[Node(value=2, next=Node(value=3))]), SANITY,
    ),
    "one child instead of a list, deep inside": (
        tree, {"root": {"value": 1, "children": {"value": 2, "children": {"value": 3}}}},
        Node(value=1, children=[Node(value=2, children=[Node(value=3)])]), SONETTO,
    ),
    "null for a list with a default, inside": (tree, {"root": {"value": 1, "children": None}}, Node(value=1), ZENROWS),
    "in a union with a tag": (
        shape, {"shape": {"kind": "circle", "sizes": "[1]"}}, Circle(kind="circle", sizes=[1]), OPENCODE,
    ),
    "a union with a tag as text": (
        shape, {"shape": '{"kind": "circle", "sizes": [1]}'}, Circle(kind="circle", sizes=[1]), OPENCODE,
    ),
    "a union as text": (
        either, {"value": '{"kind": "circle", "sizes": "[1]"}'}, [Circle(kind="circle", sizes=[1]), ()], OPENCODE,
    ),
    "null as text for a union": (either, {"value": "null"}, [None, ()], ZENROWS),
    "rows as text": (either, {"matrix": ["[1, 2]", [3]]}, [None, [[1, 2], [3]]], OPENCODE),
    "values of a map as text": (
        wide, {"table": {"x": LINE_TEXT}}, [{"x": TWO[0]}, (0, ""), frozenset(), None, None, None, ()], OPENCODE,
    ),
    "a pair as text": (wide, {"pair": '[1, "a"]'}, [None, (1, "a"), frozenset(), None, None, None, ()], OPENCODE),
    "a set as text": (wide, {"tags": '["a"]'}, [None, (0, ""), {"a"}, None, None, None, ()], OPENCLAW),
    "a data class as text": (
        wide, {"folder": '{"name": "x", "inside": {"name": "y"}}'},
        [None, (0, ""), frozenset(), None, Folder("x", [Folder("y")]), None, ()], SANITY,
    ),
    "one value for a list of anything": (
        wide, {"items": {"a": 1}}, [None, (0, ""), frozenset(), None, None, None, [{"a": 1}]], SONETTO,
    ),
    "a remark inside": (
        wide, {"closed": {"lines": [], "explanation": "because"}},
        [None, (0, ""), frozenset(), Closed(lines=[]), None, None, ()], "",
    ),
    "all in `arguments`": (sums, {"arguments": {"numbers": [1]}}, [[1], None], VLLM),
    "all in `parameters` as text": (sums, {"parameters": '{"numbers": "[1]"}'}, [[1], None], SUROGATE),
    "the whole call": (sums, {"name": "sums", "arguments": {"numbers": [1]}}, [[1], None], VLLM),
    "all under the name of the tool": (sums, {"sums": {"numbers": [1]}}, [[1], None], VLLM),
    "a remark": (sums, {"numbers": [1], "reason": "the user asked"}, [[1], None], ""),
    "an unknown key that is unset": (sums, {"numbers": [1], "limit": None}, [[1], None], ZENROWS),
    "no arguments in `input`": (switch, {"input": {}}, True, SUROGATE),
    "several at once": (sums, {"numbers": "[1]", "scale": "null", "reason": "x"}, [[1], None], PI),
}  # fmt: skip
REFUSED: dict[str, tuple[Callable[..., Any], Json, list[str]]] = {
    # the tool, the arguments, what the model is told
    "a number for a text": (texts, {"words": [], "note": 5}, ["/note"]),
    "an object for a text": (texts, {"words": [], "note": {"a": 1}}, ["/note"]),
    "a list for a text": (texts, {"words": [], "note": ["a"]}, ["/note"]),
    "null for a required list": (texts, {"words": None}, ["/words"]),
    "null as text for a required list": (texts, {"words": "null"}, ["/words"]),
    "a text of several elements": (
        texts,
        {"words": "a, b"},
        ["/words", "'a, b'"],
    ),
    "an empty text for a list": (texts, {"words": ""}, ["/words"]),
    "JSON that was cut off": (texts, {"words": '["a", '}, ["/words"]),
    "a text that is an object for a list of texts": (
        texts,
        {"words": '{"a": 1}'},
        ["/words"],
    ),
    "half a number": (sums, {"numbers": [1.5]}, ["/numbers/0"]),
    "not a number": (sums, {"numbers": ["many"]}, ["/numbers/0", "'many'"]),
    "several numbers": (sums, {"numbers": "1, 2"}, ["/numbers"]),
    "null in a list": (sums, {"numbers": [None]}, ["/numbers/0"]),
    "numbers for a list of lists": (either, {"matrix": [1, 2]}, ["/matrix/0"]),
    "a value that is not a member": (
        choose,
        {"minutes": "61"},
        ["/minutes", "'61'"],
    ),
    "a boolean for a number": (choose, {"minutes": True}, ["/minutes"]),
    "a name that is not a member": (
        enums,
        {"level": "MEDIUM"},
        ["/level", "'MEDIUM'"],
    ),
    "a date with a time": (dates, {"day": "2026-11-25T10:00:00Z"}, ["/day"]),
    "a key that restricts a call": (
        order,
        {"lines": [], "dry_run": True},
        ["/dry_run"],
    ),
    "a key that is misspelt": (
        sums,
        {"numbers": [], "scael": 2},
        ["/scael", "Did you mean 'scale'?"],
    ),
    "a remark that is data": (
        sums,
        {"numbers": [], "reason": {"code": 5}},
        ["/reason"],
    ),
    "all in another key": (sums, {"query": {"numbers": [1]}}, ["/query"]),
    "two objects": (
        sums,
        {"arguments": {"numbers": [1]}, "parameters": {}},
        ["/arguments", "/parameters"],
    ),
    "the call of another tool": (
        sums,
        {"name": "order", "arguments": {"numbers": [1]}},
        ["/name"],
    ),
    "all in one object that does not fit": (
        sums,
        {"arguments": {"numbers": "x"}},
        ["/arguments", "'numbers'"],
    ),
    "a parameter that is called `arguments`": (
        named,
        {"arguments": {"x": "many"}},
        ["/arguments/x"],
    ),
    "one of two that can be repaired": (
        sums,
        {"numbers": "[1]", "scale": "big"},
        ["/numbers", "/scale"],
    ),
}


async def call(function: Callable[..., Any], arguments: Json) -> Any:
    before = copy.deepcopy(arguments)
    try:
        return await to_tool(function).call(arguments)
    finally:
        assert arguments == before


@pytest.mark.parametrize("name", TAKEN)
async def test_arguments_whose_meaning_is_certain_are_taken(name: str) -> None:
    """A tool is called with what the model meant."""
    function, arguments, expected, _ = TAKEN[name]
    assert await call(function, arguments) == expected


@pytest.mark.parametrize("name", REFUSED)
async def test_arguments_that_may_mean_something_else_are_refused(
    name: str,
) -> None:
    """What is not certain is an error about the arguments as they came."""
    function, arguments, words = REFUSED[name]
    with pytest.raises(ToolArgumentsError) as caught:
        await call(function, arguments)
    assert [word for word in words if word not in caught.value.message] == []


async def test_only_wrong_values_are_changed() -> None:
    """What a validator of the tool takes is left to it, also if other arguments are repaired."""
    assert await call(own_rule, {"cities": "a,b", "limit": None}) == [
        ["a", "b"],
        1,
    ]
    assert await call(texts, {"words": "urgent", "note": "null"}) == [
        ["urgent"],
        "null",
    ]
    taken = await call(wide, {"pair": '[1, "a"]', "anything": "[1]"})
    assert [taken[1], taken[5]] == [(1, "a"), "[1]"]


def test_the_events_show_what_the_model_wrote() -> None:
    """A repair is no mistake of the model, and the trace keeps its arguments."""
    model = ScriptedModel(ToolCall.of("sums", numbers="[1, 2]"), "done")
    trace = Agent("guide", "", model, tools=[sums], max_tool_retries=0).run(
        "go", trace=True
    )
    assert [
        event.arguments
        for event in trace.events
        if event.type == "tool_call_started"
    ] == [{"numbers": "[1, 2]"}]
    assert model.requests[1].messages[-1].text == "[[1, 2], null]"


@pytest.mark.parametrize(
    "arguments",
    ['[{"numbers": [1]}]', ' [ {"arguments": {"numbers": "[1]"}} ]'],
)
def test_one_object_in_a_list_is_the_arguments(arguments: str) -> None:
    """Arguments are one object, so that a list with one holds them (NousResearch/hermes-agent#58057)."""
    model = ScriptedModel(ToolCall("c", "sums", arguments), "done")
    assert (
        Agent("guide", "", model, tools=[sums], max_tool_retries=0).run("go")
        == "done"
    )
    assert model.requests[1].messages[-1].text == "[[1], null]"


def test_json_text_in_json_text_has_an_end() -> None:
    """Text that is nested too often, and an object that is nested too deeply, are refused in a short time."""
    adapter = TypeAdapter[Any](dict[str, dict[str, dict[str, int]]])
    for data in (
        "[" * 5000,
        "[" * 90 + "]" * 90,
        json.dumps(json.dumps("[1]")),
        "-" * 10_000,
        "[" + "-" * 9000 + "1]",
    ):
        with pytest.raises(ValidationError):
            validate_arguments(adapter, {"a": data}, "tool")


FITTING: dict[Callable[..., Any], st.SearchStrategy[Json]] = {
    order: st.fixed_dictionaries(
        {
            "lines": st.lists(
                st.fixed_dictionaries(
                    {"sku": st.text(), "count": st.integers()}
                )
            )
        },
        optional={
            "express": st.booleans() | st.sampled_from(["true", "no", 1])
        },
    ),
    sums: st.fixed_dictionaries(
        {
            "numbers": st.lists(
                st.integers()
                | st.integers().map(str)
                | st.integers(0, 9).map(float)
            )
        },
        optional={
            "scale": st.none() | st.floats(allow_nan=False) | st.integers()
        },
    ),
    texts: st.fixed_dictionaries(
        {"words": st.lists(st.text())}, optional={"note": st.text()}
    ),
    wide: st.fixed_dictionaries(
        {"anything": any_json, "items": st.lists(any_json)}
    ),
}


@pytest.mark.parametrize("function", FITTING)
@given(data=st.data())
def test_what_fits_is_unchanged(
    function: Callable[..., Any], data: st.DataObject
) -> None:
    """Arguments that pydantic takes are taken as it takes them; with a wrong one beside them as well."""
    adapter = function_schema(function).arguments
    arguments = data.draw(FITTING[function])
    expected = adapter.validate_python(copy.deepcopy(arguments))
    assert validate_arguments(adapter, arguments, function.__name__) == expected
    assert (
        validate_arguments(
            adapter, {**arguments, "reason": "asked"}, function.__name__
        )
        == expected
    )


@given(text=st.text() | any_json.map(json.dumps))
def test_a_text_is_never_converted(text: str) -> None:
    """The tool gets the text of a text parameter, whatever it looks like, also if other arguments are repaired."""
    adapter = function_schema(texts).arguments
    assert validate_arguments(
        adapter, {"words": "x", "note": text}, "texts"
    ) == {
        "words": ["x"],
        "note": text,
    }


@given(
    arguments=st.dictionaries(
        st.sampled_from(["root", "arguments", "reason"]), any_json
    )
)
def test_any_json_is_taken_or_refused(arguments: Json) -> None:
    """Whatever a model writes, the tool gets what its type allows, or the model is told what was wrong."""
    adapter = function_schema(tree).arguments
    try:
        values = validate_arguments(adapter, arguments, "tree")
    except ValidationError:
        return
    assert isinstance(values["root"], Node)
