"""JSON Schemas of callers: what is refused before a library reads it."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import jsonschema
import pytest
from pydantic import BaseModel
from typing_extensions import TypeAliasType, TypedDict

from podwright import Agent
from podwright.errors import InputError
from podwright.schemas.json_schema import (
    MAX_DEPTH,
    MAX_VALUES,
    SchemaTooComplexError,
    measure,
)
from podwright.testing import ScriptedModel

AnyJson = TypeAliasType(
    "AnyJson",
    "dict[str, AnyJson] | list[AnyJson] | str | int | float | bool | None",
)


class Node(BaseModel):
    value: int
    children: list[Node] = []


class Plan(TypedDict):
    after: list[Plan]


@dataclass
class Folder:
    inside: list[Folder] = field(default_factory=list["Folder"])


Make = Callable[[dict[str, str]], Any]


def obj(**properties: Any) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
    }


def fan_out(make: Make, levels: int = 40) -> dict[str, Any]:
    """A schema of which each part is made of references to the one before."""
    parts: dict[str, Any] = {"d0": {"type": "string"}}
    for number in range(1, levels):
        parts[f"d{number}"] = make({"$ref": f"#/$defs/d{number - 1}"})
    return {"$defs": parts, "$ref": f"#/$defs/d{levels - 1}"}


FAN_OUTS: dict[str, Make] = {
    "anyOf": lambda ref: {"anyOf": [ref, ref]},
    "allOf": lambda ref: {"allOf": [ref, ref]},
    "oneOf": lambda ref: {"oneOf": [ref, ref]},
    "if and else": lambda ref: {"if": ref, "then": ref, "else": ref},
    "not": lambda ref: {"not": ref, "allOf": [ref]},
    "dependentSchemas": lambda ref: {"dependentSchemas": {"a": ref, "b": ref}},
    "properties": lambda ref: obj(a=ref, b=ref),
    "optional properties": lambda ref: {"anyOf": [obj(a=ref), obj(a=ref)]},
    "items": lambda ref: {"type": "array", "items": ref, "contains": ref},
    "prefixItems": lambda ref: {"type": "array", "prefixItems": [ref, ref]},
    "other properties": lambda ref: {
        "type": "object",
        "additionalProperties": ref,
        "propertyNames": ref,
    },
    "unevaluated properties": lambda ref: {
        "properties": {"a": ref},
        "unevaluatedProperties": ref,
    },
}


@pytest.mark.parametrize("keyword", FAN_OUTS)
def test_references_that_fan_out_are_refused(keyword: str) -> None:
    """Two kilobytes that would be visited 2^39 times are refused at once; a few levels are not."""
    with pytest.raises(SchemaTooComplexError):
        measure(fan_out(FAN_OUTS[keyword]))
    assert measure(fan_out(FAN_OUTS[keyword], levels=5)) < 500


@pytest.mark.parametrize(
    "keyword", ["unevaluatedProperties", "unevaluatedItems"]
)
def test_what_is_not_evaluated_is_refused_in_itself(keyword: str) -> None:
    """To find it, a check visits all parts again, at each level; a few levels are taken."""

    def nested(levels: int) -> dict[str, Any]:
        return {"allOf": [nested(levels - 1)], keyword: True} if levels else {}

    with pytest.raises(SchemaTooComplexError):
        measure(nested(45))
    assert measure(nested(5)) < 500


ENDLESS: dict[str, dict[str, Any]] = {
    "itself": {"$ref": "#"},
    "a part of itself": {"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/a"}}},
    "through two": {"$ref": "#/$defs/a", "$defs": {"a": {"not": {"$ref": "#/$defs/b"}}, "b": {"$ref": "#/$defs/a"}}},
    "after an object": {
        "$defs": {"a": {"properties": {"x": {"$ref": "#/$defs/b"}}, "anyOf": [{"$ref": "#/$defs/b"}]},
                  "b": {"allOf": [{"$ref": "#/$defs/a"}]}},
        "$ref": "#/$defs/a",
    },
    "too many values": {"enum": list(range(MAX_VALUES + 1))},
    "too deep": {"const": eval("[" * (MAX_DEPTH + 1) + "]" * (MAX_DEPTH + 1))},  # noqa: S307 - our own text
}  # fmt: skip


@pytest.mark.parametrize("name", ENDLESS)
def test_a_schema_without_an_end_is_refused(name: str) -> None:
    """A part that applies itself to the same value, and what is too large."""
    with pytest.raises(SchemaTooComplexError):
        measure(ENDLESS[name])


NAMED = {"type": "string", "minLength": 1}
USABLE: dict[str, tuple[dict[str, Any], int]] = {
    "a recursive type": (obj(value=NAMED, children={"type": "array", "items": {"$ref": "#"}}), 5),
    "a part that is used often": (
        {"$defs": {"n": NAMED}, **obj(**{f"p{number}": {"$ref": "#/$defs/n"} for number in range(50)})}, 101,
    ),
    "a long chain": (fan_out(lambda ref: obj(a=ref), levels=600), 1200),
    "a property named like a keyword": (obj(anyOf=NAMED, items=NAMED), 3),
    "an encoded pointer": ({"$defs": {"a/b c": NAMED}, "$ref": "#/$defs/a~1b%20c"}, 2),
    "an index": ({"allOf": [NAMED, {"$ref": "#/allOf/0"}]}, 4),
    "two types that name each other": (
        {"$defs": {"a": obj(b={"$ref": "#/$defs/b"}), "b": obj(a={"$ref": "#/$defs/a"})}, "$ref": "#/$defs/a"}, 6,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", USABLE)
def test_what_people_write_is_taken(name: str) -> None:
    """Recursive and shared types are measured, each part once for each place where it is applied."""
    schema, visits = USABLE[name]
    assert measure(schema) == visits


TWICE = {
    "anyOf": [obj(a={"$ref": "#"}), obj(a={"$ref": "#"}), {"type": "integer"}]
}
"""Contains itself twice in the same place, so that its check doubles with each level of the answer."""
CONDITIONAL = {
    "$defs": {"a": {"dependentSchemas": {"x": {"$ref": "#/$defs/a"}}}}, "$ref": "#/$defs/a", "type": "object",
}  # fmt: skip
"""Leads back to itself for objects with `x` only."""
NODE = obj(
    value={"type": "integer"},
    children={"type": "array", "items": {"$ref": "#/$defs/Node"}},
)
HERE = obj(
    value={"type": "integer"},
    children={"type": "array", "items": {"$ref": "#"}},
)
TREE = {"value": 1, "children": [{"value": 2, "children": []}]}
TAGGED = {
    "$defs": {"Node": {**NODE, "title": "Node", "description": "A node."}}
}
ROOTS: dict[str, tuple[Any, Any, Any, str]] = {
    # the response model, the answer of the model, its value, and the name of the schema
    "a reference": ({**TAGGED, "$ref": "#/$defs/Node"}, TREE, TREE, "Node"),
    "a reference in `definitions`": (
        {"definitions": {"Node": HERE}, "$ref": "#/definitions/Node"}, {"value": 1, "children": []},
        {"value": 1, "children": []}, "answer",
    ),
    "a reference with texts": ({**TAGGED, "$ref": "#/$defs/Node", "title": "Mine"}, TREE, TREE, "Mine"),
    "a reference to a reference": (
        {"$defs": {"Node": NODE, "Same": {"$ref": "#/$defs/Node"}}, "$ref": "#/$defs/Same"}, TREE, TREE, "answer",
    ),
    "a reference to itself inside": (HERE, TREE, TREE, "answer"),
    "a reference with a further rule": (
        {**TAGGED, "$ref": "#/$defs/Node", "minProperties": 1}, TREE, TREE, "Node",
    ),
    "a reference with a rule of its target": (
        {**TAGGED, "$ref": "#/$defs/Node", "required": ["value"]}, {"answer": TREE}, TREE, "answer",
    ),
    "a reference to a list": (
        {"$defs": {"List": {"type": "array", "items": {"$ref": "#"}}}, "$ref": "#/$defs/List"}, {"answer": [[]]}, [[]],
        "answer",
    ),
    "a union": ({"anyOf": [HERE, {"type": "null"}]}, {"answer": None}, None, "answer"),
    "a union beside a type": (
        {"type": "object", "oneOf": [obj(a={}), obj(b={})]}, {"answer": {"a": 1}}, {"a": 1}, "answer",
    ),
    "parts of a whole": ({**TAGGED, "allOf": [{"$ref": "#/$defs/Node"}]}, {"answer": TREE}, TREE, "answer"),
    "a type of several": ({"type": ["object", "null"]}, {"answer": {}}, {}, "answer"),
    "constants": ({"enum": ["a", "b"]}, {"answer": "a"}, "a", "answer"),
    "no type": ({}, {"answer": 5}, 5, "answer"),
    "a recursive model": (Node, TREE, Node(value=1, children=[Node(value=2)]), "Node"),
    "a recursive typed dictionary": (Plan, {"after": [{"after": []}]}, {"after": [{"after": []}]}, "Plan"),
    "a recursive data class": (Folder, {"inside": [{}]}, Folder([Folder()]), "Folder"),
    "a union of recursive models": (Node | Folder, {"answer": TREE}, Node(value=1, children=[Node(value=2)]), "answer"),
    "a list of recursive models": (list[Node], {"answer": [TREE]}, [Node(value=1, children=[Node(value=2)])], "answer"),
    "any JSON": (AnyJson, {"answer": {"a": [1]}}, {"a": [1]}, "answer"),
}  # fmt: skip


@pytest.mark.parametrize("name", ROOTS)
def test_the_root_of_a_schema_is_one_that_providers_take(name: str) -> None:
    """The root is an object without a reference or a union; the value has the response model's own type."""
    response_model, answer, value, schema_name = ROOTS[name]
    model = ScriptedModel(
        '{"value": "no number", "after": 5, "inside": 5}', json.dumps(answer)
    )
    result = Agent("a", "Help.", model).run("?", response_model=response_model)
    assert (result, type(result)) == (value, type(value))
    for request in model.requests:
        assert request.output is not None
        assert request.output.name == schema_name
        assert request.output.schema["type"] == "object"
        assert not request.output.schema.keys() & {
            "$ref",
            "anyOf",
            "oneOf",
            "allOf",
            "not",
            "enum",
            "const",
        }
        jsonschema.Draft202012Validator(request.output.schema).validate(answer)
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.Draft202012Validator(request.output.schema).validate(
                {"value": "no number", "after": 5, "inside": 5}
            )


@pytest.mark.parametrize("name", ROOTS)
def test_an_echo_fits_such_a_schema(name: str) -> None:
    """The example of `offline/echo` fits at the first attempt, and ends."""
    agent = Agent("a", "Help.", "offline/echo", max_loops=1)
    assert (
        agent.run(
            "?", response_model=ROOTS[name][0], trace=True
        ).usage.model_calls
        == 1
    )


DEEP = '{"a":' * 30 + '"x"' + "}" * 30


@pytest.mark.parametrize(
    ("schema", "answer"),
    [(TWICE, f'{{"answer": {DEEP}}}'), (CONDITIONAL, '{"x": 1}')],
    ids=["a type twice in itself", "a type that is endless for some answers"],
)
def test_an_answer_that_leads_to_endless_work_is_an_error(
    schema: dict[str, Any], answer: str
) -> None:
    """A schema whose check does not end for an answer is an error of the input."""
    with pytest.raises(InputError, match="too complex"):
        Agent("a", "Help.", ScriptedModel(answer)).run(
            "?", response_model=schema
        )
