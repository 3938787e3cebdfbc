"""Example data for a JSON Schema: enough for the parameters of functions and for response models."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from podwright.json_data import as_array, as_object
from podwright.json_schema import subschema

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
    """Data that fits a JSON Schema, with `text` for its strings; None where a schema refers to itself without end."""
    return _Example(schema, text).of(schema, 0)


class _Example:
    def __init__(self, root: Mapping[str, Any], text: str) -> None:
        self._root = root
        self._text = text
        self._made = 0
        self._open = [id(root)]
        """The parts that the present one is inside of, and that references name."""

    def of(self, value: object, depth: int) -> Any:
        schema = as_object(value)
        self._made += 1
        if depth > _MAX_DEPTH or self._made > _MAX_VALUES:
            return None
        if "$ref" in schema:
            return self._of_target(self._target(schema), depth + 1)
        for choice in [
            *(schema[key] for key in ("const", "default") if key in schema),
            *as_array(schema.get("enum")),
        ]:
            return choice
        for key in ("anyOf", "oneOf", "allOf"):
            if options := as_array(schema.get(key)):
                ending = (option for option in options if not self._leads_back(option))
                return self.of(next(ending, options[0]), depth + 1)
        match (as_array(schema.get("type")) or [schema.get("type")])[0]:
            case "object":
                properties = as_object(schema.get("properties"))
                required = [
                    name
                    for name in as_array(schema.get("required"))
                    if name in properties
                ]
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
                return text[: schema.get("maxLength", len(text))].ljust(
                    min(schema.get("minLength", 0), _MAX_TEXT), "."
                )

    def _target(self, schema: Mapping[str, Any]) -> dict[str, Any]:
        return as_object(subschema(self._root, str(schema["$ref"])))

    def _of_target(self, target: dict[str, Any], depth: int) -> Any:
        self._open.append(id(target))
        try:
            return self.of(target, depth)
        finally:
            self._open.pop()

    def _leads_back(self, value: object, known: dict[int, bool] | None = None) -> bool:
        """Whether an example of a subschema must contain one of a part that it is inside of.

        Args:
            value: The subschema.
            known: The answers for parts that references name; True for those that are being looked at.
        """
        known = dict.fromkeys(self._open, True) if known is None else known
        schema = as_object(value)
        if "$ref" in schema:
            target = self._target(schema)
            if id(target) not in known:
                known[id(target)] = True
                known[id(target)] = self._leads_back(target, known)
            return known[id(target)]
        if schema.keys() & {"const", "default", "enum"}:
            return False
        if options := [*as_array(schema.get("anyOf")), *as_array(schema.get("oneOf"))]:
            return all(self._leads_back(option, known) for option in options)
        properties = as_object(schema.get("properties"))
        needed = [properties.get(name) for name in as_array(schema.get("required"))]
        needed += as_array(schema.get("prefixItems"))
        if schema.get("minItems"):
            needed.append(schema.get("items"))
        return any(self._leads_back(part, known) for part in needed)

    def _items(self, schema: Mapping[str, Any], depth: int) -> list[Any]:
        """One item for each choice of an item's first `enum`, so that a plan names each skill; else the fewest."""
        item = as_object(schema.get("items"))
        if self._leads_back(item) and not schema.get("minItems"):
            return []
        target = self._target(item) if "$ref" in item else item
        for name, inner in as_object(target.get("properties")).items():
            if choices := as_array(as_object(inner).get("enum")):
                most = min(schema.get("maxItems", _MAX_ITEMS), _MAX_ITEMS)
                return [
                    {**as_object(self.of(item, depth)), name: choice}
                    for choice in choices[:most]
                ]
        if prefix := as_array(schema.get("prefixItems")):
            return [self.of(entry, depth) for entry in prefix]
        count = min(max(1, schema.get("minItems", 1)), _MAX_VALUES)
        return [
            self.of(item, depth)
            for _ in range(min(count, schema.get("maxItems", count)))
        ]


def _number(schema: Mapping[str, Any], *, whole: bool) -> int | float:
    """The first of some likely numbers that a schema allows; 1 if none fits."""
    least = schema.get("minimum", -math.inf)
    above = schema.get("exclusiveMinimum", -math.inf)
    most = schema.get("maximum", math.inf)
    below = schema.get("exclusiveMaximum", math.inf)
    step = schema.get("multipleOf", 1)
    low = max(least, above)
    high = min(most, below)
    for number in (
        1,
        step,
        low,
        high,
        low + step,
        high - step,
        (low + high) / 2,
        -(-low // step) * step,
    ):
        multiple = (
            number % step == 0
            if whole or "multipleOf" in schema
            else math.isfinite(number)
        )
        if multiple and least <= number <= most and above < number < below:
            return int(number) if whole else float(number)
    return 1
