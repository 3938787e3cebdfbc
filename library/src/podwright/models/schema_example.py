"""Example data for a JSON Schema: enough for the parameters of functions and for response models."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from podwright.json_data import as_array, as_object

_MAX_DEPTH = 32
_MAX_VALUES = 1_000
_MAX_LENGTH = 1_000
"""Characters of a string."""
_MAX_ITEMS = 64

_FORMATS = {
    "date": "2000-01-01",
    "date-time": "2000-01-01T12:00:00Z",
    "time": "12:00:00Z",
    "duration": "PT1H",
    "email": "someone@example.com",
    "uri": "https://example.com/",
    "uuid": "00000000-0000-4000-8000-000000000000",
}

_Names = tuple[str, ...]
"""The definitions that are being expanded, against endless recursion."""


def example(schema: Mapping[str, Any], text: str) -> Any:
    """Data that fits a JSON Schema, with `text` for its strings.

    Its size is bounded: a schema that asks for more, or makes no sense, is followed only in part.
    """
    return _Example(as_object(schema.get("$defs")), text).of(schema, ())


class _Example:
    def __init__(self, definitions: Mapping[str, Any], text: str) -> None:
        self._definitions = definitions
        self._text = text
        self._values = 0

    def of(self, schema: object, names: _Names) -> Any:
        schema = as_object(schema)
        self._values += 1
        if self._values > _MAX_VALUES or len(names) > _MAX_DEPTH:
            return None
        if "$ref" in schema:
            name = _reference(schema)
            return self.of(self._definitions.get(name), (*names, name))
        for value in [*(schema[key] for key in ("const", "default") if key in schema), *as_array(schema.get("enum"))]:
            self._values += len(str(value)) // _MAX_LENGTH  # a long value counts as many
            return value
        for key in ("anyOf", "oneOf", "allOf"):
            if options := as_array(schema.get(key)):
                return self.of(next((option for option in options if not _repeats(option, names)), None), names)
        return self._of_type(schema, (*names, ""))

    def _of_type(self, schema: dict[str, Any], names: _Names) -> Any:
        kind = (as_array(schema.get("type")) or [schema.get("type")])[0]
        match kind:
            case "object":
                properties = as_object(schema.get("properties"))
                required = [name for name in as_array(schema.get("required")) if str(name) in properties]
                return {str(name): self.of(properties[name], names) for name in required[:_MAX_VALUES]}
            case "array":
                return self._items(schema, names)
            case "integer" | "number":
                return _number(schema, whole=kind == "integer")
            case "boolean" | "null":
                return True if kind == "boolean" else None
            case _:
                text = _FORMATS.get(str(schema.get("format")), self._text)
                longest, shortest = _bound(schema, "maxLength", _MAX_LENGTH), _bound(schema, "minLength", 0)
                return text[:longest].ljust(min(shortest, _MAX_LENGTH), ".")

    def _items(self, schema: dict[str, Any], names: _Names) -> list[Any]:
        """One item for each choice of its first `enum`, so that a plan names each skill; else as few as allowed."""
        if prefix := as_array(schema.get("prefixItems")):
            return [self.of(item, names) for item in prefix[:_MAX_ITEMS]]
        item = as_object(schema.get("items"))
        if _repeats(item, names):
            return []
        most = min(_bound(schema, "maxItems", _MAX_ITEMS), _MAX_ITEMS)
        target = as_object(self._definitions.get(_reference(item), item))
        for name, inner in as_object(target.get("properties")).items():
            if choices := as_array(as_object(inner).get("enum")):
                return [{**as_object(self.of(item, names)), name: choice} for choice in choices[: min(most, 8)]]
        return [self.of(item, names) for _ in range(min(max(1, _bound(schema, "minItems", 1)), most))]


def _reference(schema: dict[str, Any]) -> str:
    return str(schema.get("$ref", "")).rpartition("/")[2]


def _repeats(schema: object, names: _Names) -> bool:
    return "$ref" in as_object(schema) and _reference(as_object(schema)) in names


def _bound(schema: dict[str, Any], key: str, default: int) -> int:
    value = schema.get(key)
    return max(0, value) if isinstance(value, int) else default


def _number(schema: dict[str, Any], *, whole: bool) -> int | float:
    """A number between the bounds, and a multiple of `multipleOf`; 1 if there are none."""

    def limit(inclusive: str, exclusive: str, step: int) -> Any:
        value = schema.get(exclusive)
        return schema.get(inclusive) if value is None else value + step * whole

    try:
        low, high = limit("minimum", "exclusiveMinimum", 1), limit("maximum", "exclusiveMaximum", -1)
        if low is not None and high is not None:
            value = (low + high) / 2
        else:
            value = low + 1 if low is not None else high - 1 if high is not None else 1
        if step := schema.get("multipleOf"):
            value = math.ceil(value / step) * step
        return math.floor(value) if whole else float(value)
    except (ArithmeticError, TypeError, ValueError):
        return 1
