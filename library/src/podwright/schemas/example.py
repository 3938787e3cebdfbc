"""Example data for a JSON Schema: enough for the parameters of functions and for response models."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from podwright.data.json_data import (
    JsonMapping,
    JsonObject,
    as_array,
    as_object,
)
from podwright.schemas.json_schema import subschema

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


def example(schema: JsonMapping, text: str) -> Any:
    """Data that fits a JSON Schema, with `text` for its strings; None where a schema refers to itself without end."""
    return _Example(schema, text).of(schema, 0)


class _Example:
    def __init__(self, root: JsonMapping, text: str) -> None:
        self._root = root
        self._text = text
        self._made = 0
        self._open = [id(root)]
        """The parts that the present one is inside of, and that references name."""

    def of(self, value: object, depth: int) -> Any:
        schema = as_object(value)
        self._made += 1
        if depth > _MAX_DEPTH:
            return None
        if self._made > _MAX_VALUES:
            return None
        if "$ref" in schema:
            target = self._target(schema)
            return self._of_target(target, depth + 1)
        fixed = _fixed_values(schema)
        if fixed:
            return fixed[0]
        for key in ("anyOf", "oneOf", "allOf"):
            options = as_array(schema.get(key))
            if options:
                option = self._ending_option(options)
                return self.of(option, depth + 1)
        return self._of_type(schema, depth)

    def _ending_option(self, options: list[Any]) -> Any:
        """The first option whose example has an end; the first one if none has."""
        for option in options:
            if not self._leads_back(option):
                return option
        return options[0]

    def _of_type(self, schema: JsonMapping, depth: int) -> Any:
        match _first_type(schema):
            case "object":
                return self._object(schema, depth + 1)
            case "array":
                return self._items(schema, depth + 1)
            case "integer":
                return _number(schema, whole=True)
            case "number":
                return _number(schema, whole=False)
            case "boolean":
                return True
            case "null":
                return None
            case _:
                return self._string(schema)

    def _object(self, schema: JsonMapping, depth: int) -> JsonObject:
        properties = as_object(schema.get("properties"))
        made: JsonObject = {}
        for name in as_array(schema.get("required")):
            if name in properties:
                made[name] = self.of(properties[name], depth)
        return made

    def _string(self, schema: JsonMapping) -> str:
        form = str(schema.get("format"))
        text = _FORMATS.get(form, self._text)
        longest = schema.get("maxLength", len(text))
        shortest = schema.get("minLength", 0)
        shortest = min(shortest, _MAX_TEXT)
        return text[:longest].ljust(shortest, ".")

    def _target(self, schema: JsonMapping) -> JsonObject:
        reference = str(schema["$ref"])
        return as_object(subschema(self._root, reference))

    def _of_target(self, target: JsonObject, depth: int) -> Any:
        self._open.append(id(target))
        try:
            return self.of(target, depth)
        finally:
            self._open.pop()

    def _leads_back(
        self, value: object, known: dict[int, bool] | None = None
    ) -> bool:
        """Whether an example of a subschema must contain one of a part that it is inside of.

        Args:
            value: The subschema.
            known: The answers for parts that references name; True for those that are being looked at.
        """
        if known is None:
            known = dict.fromkeys(self._open, True)
        schema = as_object(value)
        if "$ref" in schema:
            target = self._target(schema)
            key = id(target)
            if key not in known:
                known[key] = True
                known[key] = self._leads_back(target, known)
            return known[key]
        if schema.keys() & {"const", "default", "enum"}:
            return False
        any_of = as_array(schema.get("anyOf"))
        one_of = as_array(schema.get("oneOf"))
        options = any_of + one_of
        if options:
            return all(self._leads_back(option, known) for option in options)
        for part in _needed_parts(schema):
            if self._leads_back(part, known):
                return True
        return False

    def _items(self, schema: JsonMapping, depth: int) -> list[Any]:
        """One item for each choice of an item's first `enum`, so that a plan names each skill; else the fewest."""
        item = as_object(schema.get("items"))
        is_needed = bool(schema.get("minItems"))
        if not is_needed and self._leads_back(item):
            return []
        name, choices = self._first_choice(item)
        if choices:
            most = schema.get("maxItems", _MAX_ITEMS)
            most = min(most, _MAX_ITEMS)
            return [
                as_object(self.of(item, depth)) | {name: choice}
                for choice in choices[:most]
            ]
        prefix = as_array(schema.get("prefixItems"))
        if prefix:
            return [self.of(entry, depth) for entry in prefix]
        count = schema.get("minItems", 1)
        count = max(1, count)
        count = min(count, _MAX_VALUES)
        most = schema.get("maxItems", count)
        count = min(count, most)
        return [self.of(item, depth) for _ in range(count)]

    def _first_choice(self, item: JsonObject) -> tuple[str, list[Any]]:
        """The first property of an item that has an `enum`, with its values; empty if there is none."""
        if "$ref" in item:
            item = self._target(item)
        properties = as_object(item.get("properties"))
        for name, inner in properties.items():
            inner_schema = as_object(inner)
            choices = as_array(inner_schema.get("enum"))
            if choices:
                return name, choices
        return "", []


def _fixed_values(schema: JsonMapping) -> list[Any]:
    """The values that a schema names."""
    if "const" in schema:
        return [schema["const"]]
    if "default" in schema:
        return [schema["default"]]
    return as_array(schema.get("enum"))


def _first_type(schema: JsonMapping) -> Any:
    types = as_array(schema.get("type"))
    if types:
        return types[0]
    return schema.get("type")


def _needed_parts(schema: JsonMapping) -> Iterator[Any]:
    """The subschemas of what data must have."""
    properties = as_object(schema.get("properties"))
    for name in as_array(schema.get("required")):
        yield properties.get(name)
    yield from as_array(schema.get("prefixItems"))
    if schema.get("minItems"):
        yield schema.get("items")


def _number(schema: JsonMapping, *, whole: bool) -> int | float:
    """The first of some likely numbers that a schema allows; 1 if none fits."""
    least = schema.get("minimum", -math.inf)
    above = schema.get("exclusiveMinimum", -math.inf)
    most = schema.get("maximum", math.inf)
    below = schema.get("exclusiveMaximum", math.inf)
    step = schema.get("multipleOf", 1)
    low = max(least, above)
    high = min(most, below)
    needs_step = whole or "multipleOf" in schema
    for number in _likely_numbers(low, high, step):
        if needs_step and number % step != 0:
            continue
        if not math.isfinite(number):
            continue
        if not least <= number <= most:
            continue
        if not above < number < below:
            continue
        if whole:
            return int(number)
        return float(number)
    return 1


def _likely_numbers(low: float, high: float, step: float) -> Iterator[float]:
    yield 1
    yield step
    yield low
    yield high
    yield low + step
    yield high - step
    middle = (low + high) / 2
    yield middle
    steps = -(-low // step)
    yield steps * step
