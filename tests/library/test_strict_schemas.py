"""Schemas that providers enforce: which are sent with `strict`, and to whom."""

from __future__ import annotations

from typing import Any

import pytest

from podwright.messages.messages import Message, ModelRequest, OutputSchema
from podwright.models.protocols.chat_completions import request_body
from podwright.models.protocols.strict_schemas import is_strict
from podwright.models.providers import ENDPOINTS

TEXT = {"type": "string"}
CLOSED = {
    "type": "object",
    "properties": {"a": TEXT},
    "required": ["a"],
    "additionalProperties": False,
}


def closed(part: Any, **further: Any) -> dict[str, Any]:
    return {**CLOSED, "properties": {"a": part}, **further}


def nested(levels: int) -> dict[str, Any]:
    schema: dict[str, Any] = TEXT
    for _ in range(levels):
        schema = closed(schema)
    return schema


SCHEMAS: dict[str, tuple[dict[str, Any], bool]] = {
    "an object": (CLOSED, True),
    "an enumeration": (closed({"type": "string", "enum": ["x"]}), True),
    "a nullable text": (closed({"type": ["string", "null"]}), True),
    "a union": (closed({"anyOf": [TEXT, {"type": "null"}]}), True),
    "a list of objects": (closed({"type": "array", "items": CLOSED}), True),
    "a reference": (
        closed({"$ref": "#/$defs/x"}, **{"$defs": {"x": CLOSED}}),
        True,
    ),
    "an open object": ({**CLOSED, "additionalProperties": True}, False),
    "no word of other keys": ({"type": "object", "properties": {}}, False),
    "an optional key": ({**CLOSED, "required": []}, False),
    "an open object inside": (closed({"type": "object"}), False),
    "an open definition": (
        closed({"$ref": "#/$defs/x"}, **{"$defs": {"x": {"type": "object"}}}),
        False,
    ),
    "a map": (
        closed({"type": "object", "additionalProperties": TEXT}),
        False,
    ),
    "a pattern": (closed({"type": "string", "pattern": "(?=a)"}), False),
    "a default": (closed({"type": "string", "default": "x"}), False),
    "a format": (closed({"type": "string", "format": "color"}), False),
    "all of": (closed({"allOf": [TEXT]}), False),
    "one of": (closed({"oneOf": [TEXT]}), False),
    "any value": (closed({}), False),
    "a list of anything": (closed({"type": "array"}), False),
    "a union at the top": ({"anyOf": [CLOSED]}, False),
    "a list at the top": ({"type": "array", "items": TEXT}, False),
    "five levels": (nested(4), True),
    "too many levels": (nested(5), False),
    "too many keys": (
        {
            **CLOSED,
            "properties": {str(number): TEXT for number in range(101)},
            "required": [str(number) for number in range(101)],
        },
        False,
    ),
    "too long": ({**CLOSED, "description": "x" * 15_000}, False),
}


@pytest.mark.parametrize("name", SCHEMAS)
def test_a_schema_is_strict_if_all_of_it_is_enforced(name: str) -> None:
    """Each object requires its keys and no others, and no keyword is lost; the schema is sent as it is."""
    schema, strict = SCHEMAS[name]
    assert is_strict(schema) is strict
    request = ModelRequest(
        "openai/x",
        (Message("user", "?"),),
        output=OutputSchema("answer", schema),
    )
    for provider in ("openai", "azure", "groq"):
        body = request_body(
            request, "x", ENDPOINTS[provider], provider=provider, stream=False
        )
        sent = body["response_format"]["json_schema"]
        assert sent["schema"] == schema
        assert sent.get("strict", False) is (strict and provider != "groq")
