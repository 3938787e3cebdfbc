"""Schemas that providers enforce while a model writes its answer, if they are asked to with `strict`.

Source: https://platform.openai.com/docs/guides/structured-outputs#supported-schemas, and for Azure, which takes less,
https://learn.microsoft.com/azure/ai-foundry/openai/how-to/structured-outputs
"""

from __future__ import annotations

from podwright.data.json_data import (
    JsonMapping,
    as_array,
    as_object,
    to_json_bytes,
)

_KEYS = frozenset({
    "$defs", "additionalProperties", "anyOf", "description", "enum", "items", "properties", "required", "title", "type",
})  # fmt: skip
"""The keywords that each of these providers takes."""
_MAX_BYTES = 15_000
_MAX_PROPERTIES = 100
_MAX_LEVELS = 5


def is_strict(schema: JsonMapping) -> bool:
    """Whether a schema may be sent with `strict`, and means the same then.

    Each object has to require all its properties and allow no others, and no keyword may be one that is not enforced.
    """
    if schema.get("type") != "object" or "anyOf" in schema:
        return False
    if len(to_json_bytes(dict(schema))) > _MAX_BYTES:
        return False
    number = 0
    waiting = [(schema, 1)]
    while waiting:
        part, level = waiting.pop()
        if level > _MAX_LEVELS or not _is_strict_part(part):
            return False
        properties = as_object(part.get("properties"))
        number += len(properties)
        waiting += [
            (as_object(each), level + 1) for each in properties.values()
        ]
        waiting += [
            (as_object(each), level) for each in as_array(part.get("anyOf"))
        ]
        definitions = as_object(part.get("$defs"))
        waiting += [(as_object(each), 1) for each in definitions.values()]
        if "items" in part:
            waiting.append((as_object(part["items"]), level + 1))
    return number <= _MAX_PROPERTIES


def _is_strict_part(schema: JsonMapping) -> bool:
    """Whether one subschema is, without those inside it."""
    if "$ref" in schema:
        return len(schema) == 1
    if not schema.keys() <= _KEYS:
        return False
    if "anyOf" in schema:
        return bool(schema["anyOf"]) and "type" not in schema
    kinds = schema.get("type")
    if isinstance(kinds, str):
        kinds = [kinds]
    if not as_array(kinds):
        return False
    if "array" in as_array(kinds) and "items" not in schema:
        return False
    if "object" not in as_array(kinds):
        return "properties" not in schema
    names = as_object(schema.get("properties")).keys()
    is_closed = schema.get("additionalProperties") is False
    return is_closed and names == set(as_array(schema.get("required")))
