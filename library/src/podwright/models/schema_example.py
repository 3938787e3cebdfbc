"""Example data for a JSON Schema: enough for the parameters of functions and for response models."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from podwright.json_data import as_array

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
"""The definitions that are being expanded, and `#` for each level, against endless recursion."""


def example(schema: Mapping[str, Any], text: str) -> Any:
    """Data that fits a JSON Schema, with `text` for its strings; None if it is not a valid schema.

    Its size is bounded: a schema that asks for more is followed only in part.
    """
    try:
        return _Example(schema.get("$defs", {}), text).of(schema, ())
    except (TypeError, ValueError, ArithmeticError, AttributeError, LookupError):
        return None


class _Example:
    def __init__(self, definitions: dict[str, Any], text: str) -> None:
        self._definitions = definitions
        self._text = text
        self._values = 0

    def of(self, schema: Any, names: _Names) -> Any:
        self._values += 1
        if self._values > _MAX_VALUES or len(names) > _MAX_DEPTH or schema in (None, True, False):
            return None
        if name := _reference(schema):
            return self.of(self._definitions[name], (*names, name))
        for value in [*(schema[key] for key in ("const", "default") if key in schema), *schema.get("enum", ())]:
            self._values += len(str(value)) // _MAX_LENGTH  # a long value counts as many
            return value
        for key in ("anyOf", "oneOf", "allOf"):
            if options := schema.get(key):
                return self.of(next((option for option in options if _reference(option) not in names), None), names)
        return self._of_type(schema, (*names, "#"))

    def _of_type(self, schema: Any, names: _Names) -> Any:
        kind: Any = (as_array(schema.get("type")) or [schema.get("type")])[0]
        match kind:
            case "object":
                properties = schema.get("properties", {})
                required = [name for name in schema.get("required", ()) if name in properties]
                return {name: self.of(properties[name], names) for name in required[:_MAX_VALUES]}
            case "array":
                return self._items(schema, names)
            case "integer" | "number":
                return _number(schema, whole=kind == "integer")
            case "boolean":
                return True
            case "null":
                return None
            case _:
                text = _FORMATS.get(schema.get("format", ""), self._text)[: schema.get("maxLength", _MAX_LENGTH)]
                return text.ljust(min(schema.get("minLength", 0), _MAX_LENGTH), ".")

    def _items(self, schema: Any, names: _Names) -> list[Any]:
        """One item for each choice of its first `enum`, so that a plan names each skill; else as few as allowed."""
        if prefix := schema.get("prefixItems"):
            return [self.of(item, names) for item in prefix[:_MAX_ITEMS]]
        item = schema.get("items", {})
        if _reference(item) in names:
            return []
        most = min(schema.get("maxItems", _MAX_ITEMS), _MAX_ITEMS)
        for name, inner in self._definitions.get(_reference(item), item).get("properties", {}).items():
            if choices := inner.get("enum"):
                return [{**self.of(item, names), name: choice} for choice in choices[: min(most, 8)]]
        return [self.of(item, names) for _ in range(min(max(1, schema.get("minItems", 1)), most))]


def _reference(schema: Any) -> str:
    """Name of the definition that a schema refers to; empty if it does not."""
    return schema.get("$ref", "").rpartition("/")[2]


def _number(schema: Any, *, whole: bool) -> int | float:
    """A number between the bounds, and a multiple of `multipleOf`; 1 if there are none."""
    step = 1 if whole else 0
    low = schema.get("minimum", schema["exclusiveMinimum"] + step if "exclusiveMinimum" in schema else None)
    high = schema.get("maximum", schema["exclusiveMaximum"] - step if "exclusiveMaximum" in schema else None)
    if low is not None and high is not None:
        value = (low + high) / 2
    else:
        value = low + 1 if low is not None else high - 1 if high is not None else 1
    if multiple := schema.get("multipleOf"):
        value = math.ceil(value / multiple) * multiple
    return math.floor(value) if whole else float(value)
