"""What has changed in a function since a blueprint stored the schema of its tool."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, cast

from podwright.json_data import as_array, as_object, json_pointer
from podwright.text import short_repr

_DESCRIPTIVE = ("description", "title", "examples", "default")
"""Keywords of a schema that only describe."""


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
    return list(_schema_differences(stored, actual))


def _schema_differences(
    stored: Mapping[str, Any], actual: Mapping[str, Any]
) -> Iterator[Difference]:
    before = _without_texts(stored)
    now = _without_texts(actual)
    properties = as_object(before.get("properties"))
    new_properties = as_object(now.get("properties"))
    for name, schema in properties.items():
        pointer = json_pointer("properties", name)
        if name in new_properties:
            yield from _changes(name, pointer, schema, new_properties[name])
        else:
            detail = f"the blueprint has the parameter '{name}', the function does not"
            yield Difference(pointer, detail)
    if "$ref" in json.dumps(properties):
        yield from _definition_changes(before, now)
    required_before = as_array(before.get("required"))
    for name in as_array(now.get("required")):
        if name not in properties:
            detail = f"the function requires '{name}', which the blueprint does not have"
            yield Difference("", detail)
        elif name not in required_before:
            detail = f"the function requires '{name}', which is optional in the blueprint"
            yield Difference("", detail)


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
    if before == now:
        return
    inner = _inner_changes(name, pointer, before, now)
    if inner is not None:
        yield from inner
        return
    detail = f"the parameter '{name}' was {short_repr(before)}, and is {short_repr(now)}"
    yield Difference(pointer, detail)


def _inner_changes(
    name: str, pointer: str, before: Any, now: Any
) -> list[Difference] | None:
    """The differences inside of two schemas; None if something else in them differs too."""
    old = as_object(before)
    new = as_object(now)
    if old != before or new != now:
        return None  # they are not both objects
    if _without_inner(old) != _without_inner(new):
        return None
    found: list[Difference] = []
    properties = as_object(old.get("properties"))
    new_properties = as_object(new.get("properties"))
    if list(properties) != list(new_properties):
        return None
    for key, schema in properties.items():
        inside = pointer + json_pointer("properties", key)
        found += _changes(f"{name}.{key}", inside, schema, new_properties[key])
    items = old.get("items")
    found += _changes(f"{name}[]", f"{pointer}/items", items, new.get("items"))
    return found


def _without_inner(schema: Mapping[str, Any]) -> dict[str, Any]:
    rest = dict(schema)
    rest.pop("properties", None)
    rest.pop("items", None)
    return rest


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
        key: _without_texts(item, names=key in ("properties", "$defs"))
        for key, item in items
        if key not in skipped
    }
