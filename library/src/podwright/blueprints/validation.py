"""Validating blueprints: all problems at once, and migration from older schema versions."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, cast

from pydantic import ValidationError

from podwright.blueprints.schema import SHAPES, adapter, allowed_keys
from podwright.errors import BlueprintValidationError, Problem
from podwright.events import Kind
from podwright.json_data import as_object, copy_json, walk_json
from podwright.text import did_you_mean, short_repr
from podwright.validation_errors import MAX_PROBLEMS, describe_value, resolve, to_problems

MAX_DEPTH = 64
"""Deepest nesting of a blueprint's JSON."""

Blueprint = dict[str, Any]

_TYPES: dict[str, Kind] = {shape.__name__.removesuffix("Blueprint"): kind for kind, shape in SHAPES.items()}


def kind_of(blueprint: Mapping[str, Any]) -> Kind:
    """The kind that a blueprint describes: by its `type`, else by its keys.

    Raises:
        BlueprintValidationError: `type` is unknown.
    """
    name = blueprint.get("type")
    if name is None:
        return "workflow" if "steps" in blueprint else "agent"
    if isinstance(name, str) and name in _TYPES:
        return _TYPES[name]
    hint = did_you_mean(str(name)[:100], _TYPES)
    raise invalid([Problem("/type", f"Unknown type {short_repr(name)} of component.", hint)])


def invalid(problems: Sequence[Problem], what: str = "The blueprint") -> BlueprintValidationError:
    """The error that carries these problems."""
    count = f"{len(problems)} problem{'s' if len(problems) > 1 else ''}"
    return BlueprintValidationError(f"{what} is invalid: {count}.", problems=problems)


def problems(blueprint: object, kind: Kind | None = None) -> list[Problem]:
    """All problems of a blueprint as data; empty if it is valid.

    Args:
        blueprint: Data of any type.
        kind: The kind that it must have; by default the one that it names.
    """
    return parse(blueprint, kind)[1]


def check(blueprint: object, kind: Kind | None = None, validate: bool = True) -> Blueprint:
    """The blueprint as a component may hold it: migrated, and a copy.

    Args:
        blueprint: A dictionary, as `to_blueprint` returns it.
        kind: The kind that it must have; by default the one that it names.
        validate: If false, unknown keys are dropped.

    Raises:
        BlueprintValidationError: With all problems.
    """
    parsed, found = parse(blueprint, kind, validate)
    if found:
        raise invalid(found)
    return parsed


def parse(blueprint: object, kind: Kind | None = None, validate: bool = True) -> tuple[Blueprint, list[Problem]]:
    """As `check`, but returns the problems, so that a caller can add its own; with problems, the data is not usable."""
    if not isinstance(blueprint, Mapping):
        return {}, [Problem("", f"A blueprint must be an object, not {describe_value(blueprint)}.")]
    data = dict(cast("Mapping[str, Any]", blueprint))
    if found := list(_json_problems(data)):
        return {}, found[:MAX_PROBLEMS]
    try:
        own_kind = kind_of(data)
    except BlueprintValidationError as error:
        return {}, list(error.problems)
    if kind is not None and own_kind != kind and "type" in data:
        hint = f"Use {own_kind.capitalize()} for it."
        return {}, [Problem("/type", f"Expected a blueprint of kind {kind}, not {own_kind}.", hint)]
    kind, current = kind or own_kind, copy_json(migrate(data))
    if not validate:
        _drop_unknown_keys(current, kind)
    return current, _shape_problems(current, kind)


def migrate(blueprint: Mapping[str, Any]) -> Blueprint:
    """The blueprint in the current schema version; an unknown version stays, and fails validation."""
    current = dict(blueprint)
    if current.get("version") == "0":
        current["version"] = "1"
        if current.get("type") == "Conductor" and isinstance(current.get("config"), dict):
            current["config"] = {"planning": False, **current["config"]}  # spec §9: added later
    return current


def _json_problems(data: object) -> Iterator[Problem]:
    """Why data is not JSON, or is nested too deeply."""
    for pointer, value, depth in walk_json(data):
        if depth > MAX_DEPTH:
            yield Problem(pointer, f"Nested deeper than {MAX_DEPTH} levels.")
            return
        if isinstance(value, dict):
            for key in cast("dict[object, object]", value):
                if not isinstance(key, str):
                    yield Problem(pointer, f"The key {short_repr(key)} is not a string.", "Put it in quotes.")
        elif isinstance(value, float) and not math.isfinite(value):
            yield Problem(pointer, f"{value} is not a JSON number.")
        elif not (value is None or isinstance(value, str | bool | int | float | list)):
            yield Problem(pointer, f"Expected JSON data, got {describe_value(value)}.")


def _shape_problems(blueprint: Blueprint, kind: Kind) -> list[Problem]:
    try:
        adapter(kind).validate_python(blueprint)
    except ValidationError as error:

        def keys(location: Sequence[str | int]) -> list[str]:
            return allowed_keys(kind, location, as_object(resolve(blueprint, location)[1]))

        return to_problems(error.errors(include_url=False), blueprint, keys)
    return []


def _drop_unknown_keys(blueprint: Blueprint, kind: Kind) -> None:
    try:
        adapter(kind).validate_python(blueprint)
    except ValidationError as error:
        for detail in error.errors(include_url=False):
            if detail["type"] == "extra_forbidden":
                _, parent = resolve(blueprint, detail["loc"][:-1])
                parent.pop(detail["loc"][-1], None)
