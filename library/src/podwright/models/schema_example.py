"""Example data for a JSON Schema: enough for the parameters of functions and for response models."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from podwright.json_data import as_array, as_object

_MAX_DEPTH = 16
_MAX_ITEMS = 8
_MAX_VALUES = 500
"""JSON values of an example, and items of each list; a schema that wants more gets data that does not fit it."""
_MAX_TEXT = 10_000
"""Characters of a text, likewise."""

_FORMATS = {
    "date": "2000-01-01",
    "date-time": "2000-01-01T12:00:00Z",
    "time": "12:00:00Z",
    "duration": "PT1H",
    "email": "someone@example.com",
    "uri": "https://example.com/",
    "uuid": "00000000-0000-4000-8000-000000000000",
}


def example(schema: Mapping[str, Any], text: str) -> Any:
    """Data that fits a JSON Schema, with `text` for its strings; None where a schema refers to itself too deeply."""
    return _Example(as_object(schema.get("$defs")), text).of(schema, 0)


class _Example:
    def __init__(self, definitions: Mapping[str, Any], text: str) -> None:
        self._definitions = definitions
        self._text = text
        self._made = 0

    def of(self, value: object, depth: int) -> Any:
        schema = as_object(value)
        self._made += 1
        if depth > _MAX_DEPTH or self._made > _MAX_VALUES:
            return None
        if "$ref" in schema:
            return self.of(self._definitions.get(str(schema["$ref"]).rpartition("/")[2]), depth + 1)
        for choice in [*(schema[key] for key in ("const", "default") if key in schema), *as_array(schema.get("enum"))]:
            return choice
        for key in ("anyOf", "oneOf", "allOf"):
            # the last alternative of a recursive type is the one that ends it, such as null
            for option in reversed(as_array(schema.get(key))) if depth > 1 else as_array(schema.get(key)):
                return self.of(option, depth + 1)
        match (as_array(schema.get("type")) or [schema.get("type")])[0]:
            case "object":
                properties = as_object(schema.get("properties"))
                required = [name for name in as_array(schema.get("required")) if name in properties]
                return {name: self.of(properties[name], depth + 1) for name in required}
            case "array":
                return self._items(schema, depth + 1)
            case "integer" | "number" as kind:
                return _number(schema, whole=kind == "integer")
            case "boolean":
                return True
            case "null":
                return None
            case _:
                text = _FORMATS.get(str(schema.get("format")), self._text)
                return text[: schema.get("maxLength", len(text))].ljust(min(schema.get("minLength", 0), _MAX_TEXT), ".")

    def _items(self, schema: Mapping[str, Any], depth: int) -> list[Any]:
        """One item for each choice of an item's first `enum`, so that a plan names each skill; else the fewest."""
        item = as_object(schema.get("items"))
        if depth > _MAX_DEPTH // 2 and not schema.get("minItems"):
            return []  # ends a type that contains a list of itself
        target = as_object(self._definitions.get(str(item.get("$ref")).rpartition("/")[2], item))
        for name, inner in as_object(target.get("properties")).items():
            if choices := as_array(as_object(inner).get("enum")):
                most = min(schema.get("maxItems", _MAX_ITEMS), _MAX_ITEMS)
                return [{**as_object(self.of(item, depth)), name: choice} for choice in choices[:most]]
        if prefix := as_array(schema.get("prefixItems")):
            return [self.of(entry, depth) for entry in prefix]
        count = min(max(1, schema.get("minItems", 1)), _MAX_VALUES)
        return [self.of(item, depth) for _ in range(min(count, schema.get("maxItems", count)))]


def _number(schema: Mapping[str, Any], *, whole: bool) -> int | float:
    """The first of some likely numbers that a schema allows; 1 if none fits."""
    least, above = schema.get("minimum", -math.inf), schema.get("exclusiveMinimum", -math.inf)
    most, below = schema.get("maximum", math.inf), schema.get("exclusiveMaximum", math.inf)
    step, low, high = schema.get("multipleOf", 1), max(least, above), min(most, below)
    for number in (1, step, low, high, low + step, high - step, (low + high) / 2, -(-low // step) * step):
        multiple = number % step == 0 if whole or "multipleOf" in schema else math.isfinite(number)
        if multiple and least <= number <= most and above < number < below:
            return int(number) if whole else float(number)
    return 1
