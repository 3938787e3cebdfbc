"""What has changed in a function since a blueprint stored the schema of its tool."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, cast

from podwright.data.json_data import as_array, as_object, json_pointer
from podwright.data.text import short_repr

_DESCRIPTIVE = ("description", "title", "examples", "default")
"""Keywords of a schema that only describe."""
_WITH_NAMES = ("properties", "$defs")
"""Keywords of a schema whose keys are names."""


@dataclass(frozen=True, slots=True)
class Difference:
    """One difference between a stored schema and that of the function."""

    pointer: str
    """Where it is, relative to the schema."""
    detail: str


def schema_differences(
    stored: Mapping[str, Any], actual: Mapping[str, Any]
) -> list[Difference]:
    """Why a function no longer accepts every call that the stored schema of its parameters allows.

    It may accept more, and describe it differently.
    """
    before = _without_texts(stored)
    now = _without_texts(actual)
    found = list(_object_changes("", "", before, now))
    if "$ref" in json.dumps(before.get("properties")):
        found += _definition_changes(before, now)
    return found


def _object_changes(
    name: str, pointer: str, before: Mapping[str, Any], now: Mapping[str, Any]
) -> Iterator[Difference]:
    """The differences between the properties of two objects; without a name, those are the parameters."""
    prefix = ""
    if name:
        prefix = f"{name}."
    properties = as_object(before.get("properties"))
    new_properties = as_object(now.get("properties"))
    for key, schema in properties.items():
        inner = f"{prefix}{key}"
        inside = pointer + json_pointer("properties", key)
        if key in new_properties:
            yield from _changes(inner, inside, schema, new_properties[key])
        else:
            detail = f"the blueprint has the parameter '{inner}', the function does not"
            yield Difference(inside, detail)
    required_before = as_array(before.get("required"))
    for key in as_array(now.get("required")):
        inner = f"{prefix}{key}"
        if key not in properties:
            detail = f"the function requires '{inner}', which the blueprint does not have"
            yield Difference(pointer, detail)
        elif key not in required_before:
            detail = f"the function requires '{inner}', which is optional in the blueprint"
            yield Difference(pointer, detail)


def _definition_changes(
    before: Mapping[str, Any], now: Mapping[str, Any]
) -> Iterator[Difference]:
    definitions = as_object(before.get("$defs"))
    new_definitions = as_object(now.get("$defs"))
    for name, schema in definitions.items():
        # a reference to one that is missing differs itself
        if name in new_definitions:
            pointer = json_pointer("$defs", name)
            yield from _changes(name, pointer, schema, new_definitions[name])


def _changes(
    name: str, pointer: str, before: Any, now: Any
) -> Iterator[Difference]:
    """The innermost schemas that differ, each with its name as `outer.inner`."""
    old = as_object(before)
    new = as_object(now)
    if before == now or _is_wider(old, new):
        return
    if _without_inner(old) != _without_inner(new) or not (old and new):
        detail = f"the parameter '{name}' was {short_repr(before)}, and is {short_repr(now)}"
        yield Difference(pointer, detail)
        return
    yield from _object_changes(name, pointer, old, new)
    items = old.get("items")
    yield from _changes(
        f"{name}[]", f"{pointer}/items", items, new.get("items")
    )


def _is_wider(before: Mapping[str, Any], now: Mapping[str, Any]) -> bool:
    """Whether a schema has all alternatives or values of the one before."""
    alternatives = as_array(before.get("anyOf")) or [before]
    new_alternatives = as_array(now.get("anyOf"))
    if all(each in new_alternatives for each in alternatives):
        return True
    values = as_array(before.get("enum"))
    new_values = as_array(now.get("enum"))
    if not values or {**before, "enum": None} != {**now, "enum": None}:
        return False
    return all(value in new_values for value in values)


def _without_inner(schema: Mapping[str, Any]) -> dict[str, Any]:
    inner = ("properties", "required", "items")
    return {key: value for key, value in schema.items() if key not in inner}


def text_differences(
    stored: Mapping[str, Any], actual: Mapping[str, Any]
) -> list[Difference]:
    """What a stored tool, whose function accepts its calls, does not say as the function does.

    These are descriptions, defaults, and parameters that the function has besides.

    Args:
        stored: The `function` of the tool's schema in a blueprint.
        actual: That of the function.
    """
    found: list[Difference] = []
    for key in ("description", "parameters"):
        found += _text_changes(
            json_pointer(key), stored.get(key), actual.get(key)
        )
    return found


def _text_changes(pointer: str, before: Any, now: Any) -> Iterator[Difference]:
    old = as_object(before)
    new = as_object(now)
    if old and new:
        for key in {**old, **new}:
            inside = pointer + json_pointer(key)
            yield from _text_changes(inside, old.get(key), new.get(key))
        return
    # what a blueprint has besides, or leaves to its default, is not wrong
    if before == now or now is None:
        return
    if before is None and _is_implied(pointer, now):
        return
    had = f"has {short_repr(before)}"
    if before is None:
        had = "has nothing"
    detail = f"the blueprint {had}, the function has {short_repr(now)}"
    yield Difference(pointer, detail)


def _is_implied(pointer: str, value: object) -> bool:
    """Whether a value means the same as none."""
    return value in ([], False) and not pointer.endswith("/default")


def _without_texts(schema: Any, names: bool = False) -> Any:
    """A schema without what only describes; with `names`, the keys are names of parameters or definitions."""
    if isinstance(schema, list):
        return [_without_texts(item) for item in cast("list[Any]", schema)]
    if not isinstance(schema, Mapping):
        return schema
    skipped = _DESCRIPTIVE
    if names:
        skipped = ()
    items = cast("Mapping[str, Any]", schema).items()
    return {
        key: _without_texts(item, not names and key in _WITH_NAMES)
        for key, item in items
        if key not in skipped
    }
