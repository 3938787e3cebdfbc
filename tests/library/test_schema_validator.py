"""The check of data against a JSON Schema: what it finds, and that it ends soon, whatever the schema and the data."""

from __future__ import annotations

import asyncio
import json
import threading
import tracemalloc
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import jsonschema
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from jsonschema import validators

from podwright import (
    Agent,
    AgentStep,
    ApprovalRequired,
    ApprovalStep,
    Conductor,
    EchoModel,
    MapStep,
    Pipeline,
    ScriptedModel,
    Workflow,
    WorkflowStep,
    tool,
)
from podwright.errors import InputError, InputsError
from podwright.messages.approvals import Decision, Question
from podwright.schemas import keywords as schema_keywords
from podwright.schemas.json_schema import SchemaTooComplexError
from podwright.schemas.keywords import MAX_OPERATIONS, CheckBudget
from podwright.schemas.validator import InvalidSchemaError, SchemaValidator
from podwright.testing import ToolCall
from podwright.threads import compute

Json = Any

# --- Schema times data ------------------------------------------------------------------------------------------------

CONSTANTS = [{"const": -number} for number in range(1, 200)]
UNION = {"anyOf": [*CONSTANTS, {"type": "integer"}]}
"""What an integer fits in the end."""
TWICE = {
    "anyOf": [
        {"type": "object", "properties": {"a": {"$ref": "#"}}},
        {"type": "object", "properties": {"a": {"$ref": "#"}}},
        {"type": "integer"},
    ]
}
"""Contains itself twice in the same place."""
NAMES = [f"p{number}" for number in range(300)]


def of_names(value: Json) -> dict[str, Json]:
    return dict.fromkeys(NAMES, value)


def chain(levels: int) -> Json:
    value: Json = "x"
    for _ in range(levels):
        value = {"a": value}
    return value


def inside(schema: dict[str, Any]) -> dict[str, Any]:
    """A schema whose errors are all collected, because others could be better."""
    return {"anyOf": [schema]}


FORMS: dict[str, tuple[dict[str, Any], Callable[[int], Json]]] = {
    # a schema, and data of a size
    "anyOf": ({"items": UNION}, lambda size: [1] * size),
    "anyOf that does not fit": (inside({"items": {"anyOf": CONSTANTS}}), lambda size: [1] * size),
    "anyOf, all of them false": (inside({"items": {"anyOf": [False] * 500}}), lambda size: [1] * size),
    "oneOf": ({"items": {"oneOf": [{}, *CONSTANTS]}}, lambda size: [1] * size),
    "oneOf, all others false": ({"items": {"oneOf": [{}, *[False] * 500]}}, lambda size: [1] * size),
    "allOf, all of them empty": ({"items": {"allOf": [{}] * 500}}, lambda size: [1] * size),
    "not": ({"items": {"not": {"anyOf": CONSTANTS}}}, lambda size: [1] * size),
    "if": ({"items": {"if": {"anyOf": CONSTANTS}, "then": False}}, lambda size: [1] * size),
    "contains": ({"items": {"contains": UNION}}, lambda size: [[1] * size] * size),
    "minContains": (
        {"items": {"contains": {"const": 1}, "minContains": 0, "maxContains": 10**9}},
        lambda size: [[1] * size] * size,
    ),
    "items in items": ({"items": {"items": {}}}, lambda size: [[1] * size] * size),
    "references": (
        {
            "$defs": {"a": {"allOf": [{"$ref": "#/$defs/b"}] * 100}, "b": {"type": "integer"}},
            "items": {"$ref": "#/$defs/a"},
        },
        lambda size: [1] * size,
    ),
    "a part twice in itself": (TWICE, lambda size: chain(min(size, 40))),
    "deep and wide": (
        {"items": {"$ref": "#"}, "type": "array"}, lambda size: [[[[[[[[]]]]]]]] * (4 * size),
    ),
    "properties": ({"items": {"properties": of_names({})}}, lambda size: [of_names(1)] * size),
    "properties that are missing": ({"items": {"properties": of_names({})}}, lambda size: [{}] * (9 * size)),
    "required": ({"items": {"required": NAMES}}, lambda size: [of_names(1)] * size),
    "propertyNames": ({"items": {"propertyNames": {}}}, lambda size: [of_names(1)] * size),
    "additionalProperties": (
        inside({"items": {"additionalProperties": False}}), lambda size: [of_names(1)] * size,
    ),
    "dependentSchemas": ({"items": {"dependentSchemas": of_names({})}}, lambda size: [of_names(1)] * size),
    "dependentRequired": ({"items": {"dependentRequired": of_names(["p0"])}}, lambda size: [of_names(1)] * size),
    "unevaluatedProperties": (
        {"allOf": [{"additionalProperties": {"type": "integer"}}] * 50, "unevaluatedProperties": False},
        lambda size: {f"p{number}": 1 for number in range(size)},
    ),
    "unevaluatedItems": (
        {"allOf": [{"contains": {"type": "integer"}}] * 50, "unevaluatedItems": {}},
        lambda size: [*range(size // 2), *["x"] * (size // 2)],
    ),
    "patternProperties": (
        {"items": {"patternProperties": {name: {} for name in NAMES[:20]}}}, lambda size: [of_names(1)] * size,
    ),
    "uniqueItems": (
        {"items": {"allOf": [{"uniqueItems": True}] * 100}},
        lambda size: [[*range(size), "x", [1]] for _ in range(size)],
    ),
    "enum": (
        {"items": {"anyOf": [*({"enum": [{"a": -number}]} for number in range(1, 300)), {}]}},
        lambda size: [{"a": 1}] * size,
    ),
    "multipleOf": (
        {"items": {"allOf": [{"multipleOf": 2.0**-900}] * 100}}, lambda size: [1e308] * size,
    ),
    "pattern": (
        {"items": {"allOf": [{"pattern": "x"}] * 100}}, lambda size: ["x" * 10_000] * size,
    ),
}  # fmt: skip


@pytest.mark.parametrize("form", FORMS)
def test_a_check_that_takes_too_long_is_an_error(form: str) -> None:
    """However the cost of schema and data comes about."""
    schema, data = FORMS[form]
    with pytest.raises(SchemaTooComplexError):
        SchemaValidator(schema).problem(data(1000))


@pytest.mark.parametrize("form", FORMS)
def test_the_same_schemas_with_little_data_are_checked(form: str) -> None:
    """They find what jsonschema finds."""
    schema, make = FORMS[form]
    data = make(3)
    fits = jsonschema.Draft202012Validator(schema).is_valid(data)
    assert (SchemaValidator(schema).problem(data) is None) == fits


RECORD = {
    "type": "object",
    "properties": {
        name: {"type": "string", "maxLength": 100} for name in "abcde"
    },
    "required": list("abcde"),
    "additionalProperties": False,
}
KINDS = [
    {
        "type": "object",
        "properties": {"kind": {"const": number}, "text": {"type": "string"}},
        "required": ["kind", "text"],
    }
    for number in range(10)
]
LARGE: dict[str, tuple[dict[str, Any], Json]] = {
    "numbers": ({"items": {"type": "number"}}, list(range(20_000))),
    "records": ({"items": RECORD}, [dict.fromkeys("abcde", "x")] * 1_500),
    "records by reference": (
        {"$defs": {"record": RECORD}, "items": {"$ref": "#/$defs/record"}},
        [dict.fromkeys("abcde", "x")] * 1_500,
    ),
    "a union of ten types": (
        {"items": {"anyOf": KINDS}},
        [{"kind": number % 10, "text": "x"} for number in range(800)],
    ),
    "a long enumeration": (
        {"items": {"enum": [str(number) for number in range(4_000)]}},
        ["3999"] * 20_000,
    ),
    "unique texts": (
        {"uniqueItems": True, "items": {"type": "string"}},
        [str(number) for number in range(15_000)],
    ),
    "unique objects": (
        {"uniqueItems": True},
        [{"a": number, "b": [number, "x"]} for number in range(10_000)],
    ),
    "unique values of many types": (
        {"uniqueItems": True},
        [*range(20_000), *map(str, range(20_000)), [1], {"a": 1}, None, True],
    ),
    "unique integers that share a hash": (
        {"uniqueItems": True},
        [number * (2**61 - 1) for number in range(30_000)],
    ),
    "an array of arrays": ({"items": {"items": True}}, [[1] * 100] * 300),
}


@pytest.mark.parametrize("kind", LARGE)
def test_large_data_of_a_usual_schema_fits(kind: str) -> None:
    """A megabyte of it, where jsonschema compares no value with each other value."""
    schema, data = LARGE[kind]
    assert SchemaValidator(schema).problem(data) is None


def test_the_errors_of_large_data_are_few() -> None:
    """Data that does not fit at any place is answered with one of the places."""
    problem = SchemaValidator({"items": {"type": "string"}}).problem(
        list(range(30_000))
    )
    assert problem is not None
    assert problem.detail == "does not fit type 'string'"


@pytest.mark.parametrize(
    "data",
    ["x" * 1_000_000, ["x"] * 300_000, {"k" * 1_000_000: 1}],
    ids=["a text", "an array", "a long name"],
)
@pytest.mark.parametrize(
    "part",
    [
        {"type": "number"},
        False,
        {"additionalProperties": False, "type": "null"},
    ],
    ids=["a type", "false", "no properties"],
)
def test_errors_do_not_hold_the_data(part: Json, data: Json) -> None:
    """Hundreds of alternatives that a megabyte does not fit take no hundreds of megabytes."""
    validator = SchemaValidator({"anyOf": [part] * 300})
    tracemalloc.start()
    try:
        assert validator.problem(data) is not None
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 60_000_000


def test_a_long_enumeration_is_no_part_of_each_error() -> None:
    """Neither is a long constant."""
    text = "x" * 100_000
    schema = inside({"items": {"enum": [text], "const": text}})
    tracemalloc.start()
    try:
        problem = SchemaValidator(schema).problem(["y"] * 5_000)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert problem is not None
    assert len(problem.detail) < 100
    assert peak < 60_000_000


def test_integers_of_any_length_are_compared() -> None:
    """Also those that Python does not write as decimal digits, and those that are larger than any float."""
    long = 10**5_000
    validator = SchemaValidator(
        {"items": {"type": "integer", "multipleOf": 0.5}, "uniqueItems": True}
    )
    assert validator.problem([long, long + 1, 1]) is None
    assert validator.problem([long, 1, long]) is not None
    assert SchemaValidator({"maximum": 5}).problem(long) is not None
    assert SchemaValidator({"multipleOf": 0.3}).problem(long) is not None
    assert SchemaValidator({"multipleOf": 0.5}).problem(1e999) is not None


def test_texts_with_halves_of_characters_are_compared() -> None:
    """As JSON has them, which UTF-8 has not."""
    validator = SchemaValidator(
        {"uniqueItems": True, "contains": {"const": "\ud83d"}}
    )
    assert validator.problem(["\ud83d", "\ude00", {"\ud83d": 1}]) is None
    assert validator.problem(["\ud83d", "\ud83d"]) is not None


def test_data_that_is_nested_too_deeply_is_an_error() -> None:
    """It is neither a crash nor valid."""
    validator = SchemaValidator({"items": {"$ref": "#"}})
    with pytest.raises(SchemaTooComplexError):
        validator.problem(json.loads("[" * 500 + "]" * 500))


@pytest.mark.parametrize(
    "dialect",
    [
        "https://json-schema.org/draft/2020-12/schema",
        "http://json-schema.org/draft-07/schema#",
    ],
)
def test_a_dialect_inside_a_schema_changes_nothing(dialect: str) -> None:
    """A part that names one is counted, too; as data it is kept."""
    part = {"$schema": dialect, **UNION}
    for schema in (
        {"items": part},
        {"items": {"$ref": "#/x"}, "x": part},
        {"items": {"properties": {"const": part}}},
    ):
        data = [{"const": 1}] * 3000
        if "properties" not in schema["items"]:
            data = [1] * 3000
        with pytest.raises(SchemaTooComplexError):
            SchemaValidator(schema).problem(data)
    data = {"$schema": dialect}
    validator = SchemaValidator({"enum": [data], "properties": {"$schema": {}}})
    assert validator.problem(data) is None
    assert validator.problem({}) is not None


def test_seconds_end_a_check_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """Should its operations take longer than usual."""
    validator = SchemaValidator({"items": {"type": "number"}})
    assert validator.problem([1] * 5_000) is None
    monkeypatch.setattr(schema_keywords, "MAX_SECONDS", 0.0)
    with pytest.raises(SchemaTooComplexError):
        validator.problem([1] * 5_000)


def test_checks_share_a_budget() -> None:
    """Each of them alone is within it."""
    validator = SchemaValidator({"items": {"type": "number"}})
    data = [1] * (MAX_OPERATIONS // 5)
    assert validator.problem(data) is None
    budget = CheckBudget()
    for _ in range(2):
        assert validator.problem(data, budget) is None
    with pytest.raises(SchemaTooComplexError):
        validator.problem(data, budget)
    assert budget.is_spent


def test_threads_share_a_validator() -> None:
    """What one of them checks is not counted for the others."""
    validator = SchemaValidator({"items": {"type": "number"}})
    both = threading.Barrier(2)
    lengths = [MAX_OPERATIONS * 2, MAX_OPERATIONS // 5]

    def check(length: int) -> str:
        both.wait(60)
        try:
            return str(validator.problem([1] * length))
        except SchemaTooComplexError:
            return "too complex"

    with ThreadPoolExecutor(2) as threads:
        for _ in range(5):
            assert list(threads.map(check, lengths)) == ["too complex", "None"]


async def test_a_caller_who_leaves_ends_the_check(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """So its thread is free for others."""
    monkeypatch.setattr(schema_keywords, "MAX_OPERATIONS", 10**12)
    monkeypatch.setattr(schema_keywords, "MAX_SECONDS", 10**6)
    validator = SchemaValidator({"items": UNION})
    begun = asyncio.Semaphore(0)
    loop = asyncio.get_running_loop()
    data = [1] * 1_000_000

    def check() -> object:
        loop.call_soon_threadsafe(begun.release)
        return validator.problem(data)

    checks = [asyncio.create_task(compute(check)) for _ in range(4)]
    for _ in range(2):
        await begun.acquire()
    for task in checks:
        task.cancel()
    await asyncio.wait(checks)
    async with asyncio.timeout(60):
        assert await compute(lambda: "done") == "done"


# --- What is found ----------------------------------------------------------------------------------------------------

_scalars = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-3, 3),
    st.sampled_from([0.0, -0.0, 1.0, 2.5, 1e300, 2.0**70, 2**70, 2**70 + 1]),
    st.sampled_from(["", "a", "b", "1", "true", "\ud800", "ä" * 150]),
)
_names = st.sampled_from(["a", "b", "const", "items", "ä" * 150])
_data = st.recursive(
    _scalars,
    lambda inner: st.one_of(
        st.lists(inner, max_size=5),
        st.dictionaries(_names, inner, max_size=4),
    ),
    max_leaves=8,
)
_types = st.sampled_from(
    ["null", "boolean", "integer", "number", "string", "array", "object"]
)
_count = st.integers(0, 3)


def _rules(inner: st.SearchStrategy[Json]) -> st.SearchStrategy[Json]:
    """A schema with some keywords, whose subschemas are from another strategy."""
    several = st.lists(inner, min_size=1, max_size=3)
    by_name = st.dictionaries(_names, inner, max_size=3)
    names = st.lists(_names, max_size=3, unique=True)
    return st.fixed_dictionaries(
        {},
        optional={
            "type": st.one_of(_types, st.lists(_types, min_size=1, max_size=3, unique=True)),
            "const": _data,
            "enum": st.lists(_data, max_size=4),
            "uniqueItems": st.booleans(),
            "multipleOf": st.sampled_from([1, 2, 0.5, 0.1, 1e-300, 3.0]),
            "minimum": st.integers(-2, 2),
            "exclusiveMaximum": st.integers(-2, 2),
            "minItems": _count, "maxItems": _count, "minLength": _count, "maxLength": _count,
            "minProperties": _count, "maxProperties": _count,
            "required": names,
            "dependentRequired": st.dictionaries(_names, names, max_size=2),
            "items": inner, "prefixItems": several, "contains": inner, "minContains": _count, "maxContains": _count,
            "unevaluatedItems": inner,
            "properties": by_name, "additionalProperties": inner, "propertyNames": inner, "dependentSchemas": by_name,
            "unevaluatedProperties": inner,
            "anyOf": several, "oneOf": several, "allOf": several, "not": inner,
            "if": inner, "then": inner, "else": inner,
            "$ref": st.just("#/$defs/other"),
        },
    )  # fmt: skip


_schemas = st.recursive(
    st.one_of(st.booleans(), _rules(st.booleans())), _rules, max_leaves=6
)


def are_equal(one: Json, other: Json) -> bool:
    """Whether two values are equal in JSON Schema, compared in the plain way."""
    if isinstance(one, bool) or isinstance(other, bool):
        return one is other
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(are_equal, one, other))
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(
            are_equal(one[name], other[name]) for name in one
        )
    return one == other


def each_with_each(
    validator: Any, value: bool, instance: Any, schema: Any
) -> Any:
    """The keyword `uniqueItems`; jsonschema's own overlooks the equal items of `[[1], [true], [1]]`."""
    if not value or not isinstance(instance, list):
        return
    for index, item in enumerate(instance):
        if any(are_equal(item, other) for other in instance[:index]):
            yield jsonschema.ValidationError("has equal items")


_Plain: Any = validators.extend(
    jsonschema.Draft202012Validator, {"uniqueItems": each_with_each}
)


@given(_schemas, _schemas, _data)
@example({"uniqueItems": True}, {}, [[1], [True], [1.0]])
@example(
    {"uniqueItems": True}, {}, [{"a": 1, "b": [0]}, {"b": [False], "a": 1}]
)
@example({"uniqueItems": True}, {}, [2**70, 2.0**70])
@example({"const": {"a": [1]}}, {}, {"a": [1.0]})
@example({"enum": [True]}, {}, 1)
def test_a_validator_agrees_with_jsonschema(
    schema: Json, other: Json, data: Json
) -> None:
    """On whether data fits, unless it is too much work."""
    whole = {"allOf": [schema], "$defs": {"other": other}}
    try:
        found = SchemaValidator(whole).problem(data)
    except (InvalidSchemaError, SchemaTooComplexError):
        # such as a part that refers to itself
        return
    assert (found is None) == _Plain(whole).is_valid(data)


@given(st.lists(_data, max_size=6))
def test_unique_items_are_those_of_json_schema(items: list[Json]) -> None:
    """1 and 1.0 are equal, 1 and true are not, and objects are in any order."""
    pairs = [
        are_equal(item, other)
        for index, item in enumerate(items)
        for other in items[:index]
    ]
    problem = SchemaValidator({"uniqueItems": True}).problem(items)
    assert (problem is not None) == any(pairs)


def test_a_problem_names_the_place() -> None:
    """With the keyword and its value, shortened."""
    validator = SchemaValidator(
        {"properties": {"a/b": {"items": {"enum": ["x" * 200, "y"]}}}}
    )
    problem = validator.problem({"a/b": ["y", "z"]})
    assert problem is not None
    assert problem.pointer == "/a~1b/1"
    assert problem.detail.startswith("does not fit enum ['xxx")
    assert len(problem.detail) < 100


INVALID: dict[str, dict[str, Any]] = {
    "a type that is a number": {"$ref": "#/x", "x": {"type": 5}},
    "an unknown type": {"$ref": "#/x/y", "x": {"y": {"type": "text"}}},
    "a length that is a text": {"properties": {"a": {"$ref": "#/x/0"}}, "x": [{"minLength": "a"}]},
    "a part of an example": {"$ref": "#/examples/0", "examples": [{"items": 5}]},
    "a part inside such a part": {"$ref": "#/x", "x": {"not": {"$ref": "#/x/y"}, "y": {"enum": 5}}},
    "thousands of types": {"type": [*([number] for number in range(2000)), "a"]},
    "thousands of types that are not used": {"$defs": {"a": {"type": [*([number] for number in range(2000)), "a"]}}},
}  # fmt: skip


@pytest.mark.parametrize("case", INVALID)
def test_a_schema_is_checked_where_references_lead(case: str) -> None:
    """Also below keywords that JSON Schema does not know, and before data is checked against it."""
    with pytest.raises(InvalidSchemaError):
        SchemaValidator(INVALID[case])


def test_a_reference_may_lead_anywhere() -> None:
    """What it leads to is a schema."""
    validator = SchemaValidator(
        {"items": {"$ref": "#/x"}, "x": {"type": "null"}}
    )
    assert validator.problem([None]) is None
    assert validator.problem([1]) is not None


# --- Who is told ------------------------------------------------------------------------------------------------------

HEAVY = {"type": "array", "items": UNION}


def test_an_input_that_takes_too_long_is_a_problem_of_it() -> None:
    """The others are checked."""
    inputs = {"count": {"type": "integer"}, "items": HEAVY, "last": {}}
    agent = Agent("a", "{count} {items} {last}", "offline/echo", inputs=inputs)
    with pytest.raises(InputsError) as refused:
        agent.run({"count": "x", "items": [1] * 3000, "last": 1})
    places = [problem.pointer for problem in refused.value.problems]
    assert places == ["/count", "/items"]


def test_many_inputs_take_no_longer_than_one() -> None:
    """Sixty inputs of which each could be checked alone."""
    inputs = {
        f"n{number}": {"items": {"type": "number"}} for number in range(60)
    }
    agent = Agent("a", "x", "offline/echo", inputs=inputs)
    with pytest.raises(InputsError) as refused:
        agent.run({name: [1] * 5000 for name in inputs})
    assert [problem.pointer for problem in refused.value.problems] == ["/n4"]


def test_a_decision_that_takes_too_long_is_a_problem_of_its_value() -> None:
    """It is invalid, and not a crash."""
    question = Question(
        "?", edit={"draft": {"schema": HEAVY}, "other": {"schema": {}}}
    )
    values = {"draft": [1] * 3000, "other": 1}
    with pytest.raises(InputsError) as refused:
        question.check(Decision(values=values))
    places = [problem.pointer for problem in refused.value.problems]
    assert places == ["/values/draft"]


def test_an_answer_that_takes_too_long_is_an_error_of_the_input() -> None:
    """The model is not asked again."""
    model = ScriptedModel(json.dumps({"answer": [1] * 3000}))
    with pytest.raises(InputError, match="too complex"):
        Agent("a", "Help.", model).run("?", response_model=HEAVY)
    assert len(model.requests) == 1


# --- Where the check is done ------------------------------------------------------------------------------------------

NUMBERS = {"items": {"type": "number"}}


@tool(approval=True)
def add(numbers: list[int]) -> int:
    """Add numbers."""
    return sum(numbers)


def reader() -> Agent:
    """An agent with a declared input."""
    inputs = {"numbers": NUMBERS, "note": {"type": "string", "default": "-"}}
    return Agent("reader", "{numbers}", EchoModel(), inputs=inputs)


async def decide(component: Any, values: dict[str, Json]) -> None:
    """Run a component to its question, and answer it."""
    try:
        await component.arun("x")
    except ApprovalRequired as pause:
        decided = pause.decide(values=values)
        if pause.resume_path is None:
            await component.arun(decided)
        else:
            await component.arun(decided, resume_path=pause.resume_path)
    else:
        pytest.fail("it did not ask")


async def read_all(component: Any, given: Json) -> None:
    """Read the events of a run."""
    async for _ in component.astream(given):
        pass


def asking() -> Workflow:
    step = ApprovalStep(message="?", name="ask", edit={"input": NUMBERS})
    return Workflow("w", [step, AgentStep(Agent("a", "x", EchoModel()))])


def nested() -> Workflow:
    return Workflow("inner", [AgentStep(reader())], inputs={"numbers": NUMBERS})


CHECKS: dict[str, Callable[[], Any]] = {
    "inputs of an agent": lambda: reader().arun({"numbers": [1]}),
    "inputs of a stream": lambda: read_all(reader(), {"numbers": [1]}),
    "inputs of a workflow": lambda: nested().arun({"numbers": [1]}),
    "inputs of the stream of a workflow": lambda: read_all(nested(), {"numbers": [1]}),
    "inputs of a step": lambda: Workflow("w", [AgentStep(reader())]).arun({"numbers": [1]}),
    "inputs of a workflow as a step": lambda: Workflow("w", [WorkflowStep(nested())]).arun({"numbers": [1]}),
    "inputs of a workflow as an agent": lambda: Workflow("w", [AgentStep(nested())]).arun({"numbers": [1]}),
    "inputs in a map": lambda: Workflow(
        "w", [MapStep(over="rows", as_="numbers", steps=[AgentStep(reader())], name="m")]
    ).arun({"rows": [[1], [2]]}),
    "inputs of a member of a pipeline": lambda: Pipeline("p", [reader()], inputs={"numbers": NUMBERS}).arun(
        {"numbers": [1]}
    ),
    "inputs of a skill": lambda: Conductor(
        "c", "x", ScriptedModel(ToolCall.of("reader", task="x"), "done"), [reader()], inputs={"numbers": NUMBERS}
    ).arun({"numbers": [1]}),
    "a decision": lambda: decide(asking(), {"input": [1]}),
    "a decision on a tool call": lambda: decide(
        Agent("a", "x", ScriptedModel(ToolCall.of("add", numbers=[1]), "done"), tools=[add]), {"numbers": [2]}
    ),
    "a structured answer": lambda: Agent("a", "x", ScriptedModel('{"answer": [1]}')).arun("x", response_model=NUMBERS),
}  # fmt: skip


@pytest.mark.parametrize("check", CHECKS)
async def test_no_data_is_checked_on_the_event_loop(
    check: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Data of callers, people and models takes no turn from other runs."""
    on_loop = list[bool]()
    problem = SchemaValidator.problem

    def noting(
        self: SchemaValidator, data: object, budget: CheckBudget | None = None
    ) -> object:
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            on_loop.append(False)
        else:
            on_loop.append(True)
        return problem(self, data, budget)

    # made before, because that checks the defaults in a blueprint
    run = CHECKS[check]()
    monkeypatch.setattr(SchemaValidator, "problem", noting)
    await run
    assert on_loop
    assert not any(on_loop)
