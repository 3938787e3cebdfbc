"""JSON Schemas of clients: their regular expressions are not evaluated, and never make an answer wrong."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from podwright import Agent
from podwright.chats.response_format import ClientSchema
from podwright.errors import InputError
from podwright.schemas.validator import SchemaValidator
from podwright.testing import ScriptedModel

Json = Any

ENDLESS = {"type": "string", "pattern": "^(a+)+$"}
TEXT = "a" * 100 + "b"
"""For which Python's time would have no end."""
NEVER: dict[str, Any] = {"type": "string", "pattern": "^never$"}


def fits(schema: dict[str, Any], data: Json) -> bool:
    """Whether data fits a schema of a client."""
    return SchemaValidator(schema, patterns=False).problem(data) is None


# --- Where a regular expression may be -----------------------------------------------------------

PLACES: dict[str, tuple[dict[str, Any], Json, Json]] = {
    # a schema, data that might fit, and data that cannot fit
    "a text": (ENDLESS, TEXT, 1),
    "a property": ({"properties": {"a": ENDLESS}, "required": ["a"]}, {"a": TEXT}, {}),
    "a property called pattern": ({"properties": {"pattern": ENDLESS}}, {"pattern": TEXT}, {"pattern": 1}),
    "items": ({"items": ENDLESS}, [TEXT], [1]),
    "first items": ({"prefixItems": [ENDLESS, {"type": "integer"}]}, [TEXT, 1], [TEXT, "x"]),
    "a definition": ({"$defs": {"a": ENDLESS}, "items": {"$ref": "#/$defs/a"}}, [TEXT], [1]),
    "an old definition": ({"definitions": {"a": ENDLESS}, "items": {"$ref": "#/definitions/a"}}, [TEXT], [1]),
    "a part that refers to itself": (
        {"properties": {"a": {"$ref": "#"}, "b": ENDLESS}, "additionalProperties": False},
        {"a": {"a": {"b": TEXT}}}, {"a": {"c": 1}},
    ),
    "a part by its place": (
        {"prefixItems": [{"oneOf": [NEVER, {"type": "null"}]}, {"$ref": "#/prefixItems/0/oneOf/0"}]},
        ["x", "y"], ["x", None],
    ),
    "a part under a keyword of another dialect": (
        {"dependencies": {"a": ENDLESS}, "items": {"$ref": "#/dependencies/a"}}, [TEXT], [1],
    ),
    "an alternative": ({"anyOf": [ENDLESS, {"type": "integer"}]}, TEXT, None),
    "one of two": ({"oneOf": [NEVER, {"type": "string", "maxLength": 2}]}, "ab", 1),
    "one of two by reference": (
        {"$defs": {"a": NEVER, "b": {"$ref": "#/$defs/a"}}, "oneOf": [{"$ref": "#/$defs/b"}, {"const": "x"}]}, "x", 1,
    ),
    "one of two inside": (
        {"oneOf": [{"properties": {"a": NEVER}, "type": "object"}, {"required": ["a"], "type": "object"}]},
        {"a": "x"}, 1,
    ),
    "all of them": ({"allOf": [ENDLESS, {"maxLength": 200}]}, TEXT, "a" * 201),
    "not": ({"type": "string", "not": {"pattern": "b"}}, "ab", 1),
    "not not": ({"type": "string", "not": {"not": ENDLESS}}, TEXT, 1),
    "if": ({"if": NEVER, "then": {"const": "never"}, "else": {"type": "string"}}, "x", 1),
    "if without else": ({"type": "string", "if": NEVER, "then": False}, "x", 1),
    "if without then": ({"if": NEVER, "else": {"type": "string"}}, "never", 1),
    "then": ({"if": {"type": "string"}, "then": ENDLESS, "else": {"type": "null"}}, TEXT, 1),
    "contains": ({"contains": ENDLESS}, [TEXT], [1]),
    "contains at most": ({"contains": NEVER, "minContains": 0, "maxContains": 1}, ["x", "y"], None),
    "names": ({"propertyNames": {**ENDLESS, "maxLength": 200}}, {TEXT: 1}, {"a" * 201: 1}),
    "properties by name": ({"type": "object", "patternProperties": {"^(a+)+$": {"type": "null"}}}, {TEXT: 1}, 1),
    "no other properties": (
        {"properties": {"n": {"type": "integer"}}, "patternProperties": {"^x": {}}, "additionalProperties": False},
        {"x1": 1}, {"n": "x"},
    ),
    "no unevaluated properties": (
        {"allOf": [{"patternProperties": {"^x": {}}}], "properties": {"n": {"type": "integer"}},
         "unevaluatedProperties": False},
        {"x1": 1}, {"n": "x"},
    ),
    "no unevaluated properties besides a condition": (
        {"if": {"properties": {"kind": NEVER}}, "then": {"required": ["z"]},
         "else": {"properties": {"b": {"type": "integer"}}}, "properties": {"kind": {}},
         "unevaluatedProperties": False},
        {"kind": "x", "b": 1}, {"c": 1},
    ),
    "a dependent schema": (
        {"dependentSchemas": {"a": {"properties": {"b": NEVER}}}}, {"a": 1, "b": "x"}, {"a": 1, "b": 2},
    ),
}  # fmt: skip


@pytest.mark.parametrize("place", PLACES)
def test_a_regular_expression_is_not_evaluated(place: str) -> None:
    """What might fit does, at once; the rest of the schema is checked."""
    schema, possible, impossible = PLACES[place]
    assert fits(schema, possible)
    if impossible is not None:
        assert not fits(schema, impossible)


FOREIGN = {
    "properties of Unicode": r"^(\p{Extended_Pictographic}|\p{Emoji_Component})+$",
    "a group by name": r"(?<year>\d{4})",
    "any character": "[^]",
    "a class in a class": "[a-z&&[^b]]",
    "not closed": "(",
    "very deep": "(" * 5000,
    "a number of times": "a{99999999999}",
}


@pytest.mark.parametrize("pattern", FOREIGN.values(), ids=FOREIGN)
@pytest.mark.parametrize("keyword", ["pattern", "patternProperties"])
def test_it_need_not_be_one_of_python(keyword: str, pattern: str) -> None:
    """A client's language may have others; what is wrong with it is said by the model's provider."""
    value: Any = pattern
    if keyword == "patternProperties":
        value = {pattern: {}}
    assert fits({"properties": {"a": {keyword: value}}}, {"a": "x"})


async def test_the_model_is_given_the_whole_schema() -> None:
    """And its answer is taken as it is, which that of a component's own schema is not."""
    schema = {
        "type": "object",
        "properties": {
            "code": {"type": "string", "pattern": "^[A-Z]{3}$"},
            "tags": {"type": "object", "patternProperties": {"^x": {}}},
        },
        "required": ["code"],
    }
    model = ScriptedModel({"code": "abc"})
    agent = Agent("a", "Answer.", model)
    value = await agent.arun("x", response_model=ClientSchema(schema))
    assert value == {"code": "abc"}
    output = model.requests[0].output
    assert output is not None
    assert output.schema == schema
    own = ScriptedModel({"code": "abc"}, {"code": "ABC"})
    corrected = Agent("a", "Answer.", own, response_model=schema)
    assert (await corrected.arun("x")) == {"code": "ABC"}


@pytest.mark.parametrize(
    "schema",
    [
        {"pattern": 5},
        {"patternProperties": []},
        {"patternProperties": {"a": {"type": "texts"}}},
        {"pattern": "a", "allOf": 5},
        {"pattern": "a", "$ref": "#/$defs/a"},
        {"allOf": [{"$ref": "#"}], "pattern": "a"},
    ],
)
async def test_a_wrong_schema_is_refused(schema: dict[str, Any]) -> None:
    """Also if it has a regular expression."""
    agent = Agent("a", "Answer.", ScriptedModel({}))
    with pytest.raises(InputError):
        await agent.arun("x", response_model=ClientSchema(schema))


# --- Any schema ----------------------------------------------------------------------------------

VALUES = st.recursive(
    st.sampled_from(["a", "b", "ab", 1, 2, None]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["a", "b", "ab"]), inner, max_size=3)
    ),
    max_leaves=6,
)
LEAVES = st.sampled_from(
    [
        {}, {"pattern": "a"}, {"pattern": "^b"}, {"type": "string", "pattern": "^a$"}, {"type": "string"},
        {"type": "integer"}, {"const": "a"}, {"maxLength": 1}, {"required": ["a"]}, {"$ref": "#/$defs/one"}, True,
        False,
    ]
)  # fmt: skip


def _branches(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    some = st.lists(inner, min_size=1, max_size=3)
    named = st.dictionaries(
        st.sampled_from(["a", "b", "ab"]), inner, min_size=1, max_size=2
    )
    return st.fixed_dictionaries(
        {},
        optional={
            "not": inner,
            "if": inner,
            "then": inner,
            "else": inner,
            "anyOf": some,
            "oneOf": some,
            "allOf": some,
            "items": inner,
            "prefixItems": some,
            "contains": inner,
            "maxContains": st.just(1),
            "properties": named,
            "patternProperties": named,
            "additionalProperties": inner,
            "propertyNames": inner,
            "dependentSchemas": named,
            "unevaluatedProperties": inner,
            "unevaluatedItems": inner,
        },
    )


PARTS = st.recursive(LEAVES, _branches, max_leaves=8)


@given(
    st.fixed_dictionaries({"allOf": st.lists(PARTS, min_size=1, max_size=2)}),
    st.sampled_from([{"type": "string"}, NEVER, {"pattern": "a"}]),
    VALUES,
)
def test_what_fits_a_schema_fits_without_its_regular_expressions(
    schema: dict[str, Any], definition: dict[str, Any], data: Json
) -> None:
    """Whatever keywords are around them; without any, the check is the usual one."""
    schema = {**schema, "$defs": {"one": definition}}
    expected = Draft202012Validator(schema).is_valid(data)
    checked = fits(schema, data)
    assert checked or not expected
    if "pattern" not in json.dumps(schema):
        assert checked == expected
