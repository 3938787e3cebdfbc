"""Validating blueprints: all problems at once, and migration from older schema versions."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from difflib import get_close_matches
from itertools import chain, islice
from typing import NamedTuple, cast

from pydantic import ValidationError

from podwright.blueprints.chat_settings import chat_problems
from podwright.blueprints.mcp_tools import mcp_problems
from podwright.blueprints.members import members_of
from podwright.blueprints.schema import (
    CONFIG_KEYS,
    adapter,
    allowed_keys,
)
from podwright.blueprints.unsafe_keys import (
    unsafe_key_in,
    unsafe_key_problem,
)
from podwright.data.json_data import (
    JsonMapping,
    JsonObject,
    as_object,
    copy_json,
    describe_value,
    json_pointer,
    walk_json,
)
from podwright.data.text import did_you_mean, short_repr
from podwright.errors import BlueprintValidationError, Problem
from podwright.kinds import TRAITS, Kind
from podwright.schemas.validation_errors import (
    MAX_PROBLEMS,
    Location,
    resolve,
    to_problems,
)
from podwright.steps.registry import (
    fill_type_in,
    missing_type_problem,
    step_problems,
    walk_steps,
)

MAX_DEPTH = 64
"""Deepest nesting of a blueprint's JSON."""
MAX_KEYS = 1000
"""Most keys of one object in a blueprint."""

Blueprint = JsonObject


class Parsed(NamedTuple):
    """A blueprint as a component may hold it, migrated and a copy, and what was found in it."""

    data: Blueprint
    """Not usable with problems."""
    problems: Sequence[Problem]
    warnings: Sequence[Problem] = ()
    """See `warnings`."""


_JSON_TYPES = (str, bool, int, float, list, dict, type(None))

_TYPES: dict[str, Kind] = {kind.capitalize(): kind for kind in TRAITS}


def kind_of(blueprint: JsonMapping) -> Kind:
    """The kind that a blueprint describes: by its `type`, else by its keys.

    Raises:
        BlueprintValidationError: `type` is unknown.
    """
    name = blueprint.get("type")
    if name is None:
        if "steps" in blueprint:
            return "workflow"
        return "agent"
    if isinstance(name, str) and name in _TYPES:
        return _TYPES[name]
    problem = Problem(
        "/type",
        detail=f"Unknown type {short_repr(name)} of component.",
        suggestion=did_you_mean(str(name)[:100], _TYPES),
    )
    raise invalid([problem])


def invalid(
    problems: Sequence[Problem], what: str = "The blueprint"
) -> BlueprintValidationError:
    """The error that carries these problems."""
    count = f"{len(problems)} problems"
    if len(problems) == 1:
        count = "1 problem"
    return BlueprintValidationError(
        f"{what} is invalid: {count}.", problems=problems
    )


def problems(blueprint: object, kind: Kind | None = None) -> list[Problem]:
    """All problems of a blueprint as data; empty if it is valid.

    Args:
        blueprint: Data of any type.
        kind: The kind that it must have; by default the one that it names.
    """
    return list(parse(blueprint, kind).problems)


def warnings(blueprint: object, kind: Kind | None = None) -> list[Problem]:
    """The keys of `config` that this release does not know, at most 100: they are kept and exported, but not used.

    Args:
        blueprint: Data of any type, valid or not.
        kind: As in `problems`.
    """
    return list(parse(blueprint, kind).warnings)


def check(
    blueprint: object, kind: Kind | None = None, validate: bool = True
) -> Blueprint:
    """The blueprint as a component may hold it: migrated, and a copy.

    Args:
        blueprint: A dictionary, as `to_blueprint` returns it.
        kind: The kind that it must have; by default the one that it names.
        validate: False drops unknown keys, except those of `config` that `warnings` lists; the rest is checked all the
            same.

    Raises:
        BlueprintValidationError: With all problems.
    """
    parsed = parse(blueprint, kind, validate)
    if parsed.problems:
        raise invalid(parsed.problems)
    return parsed.data


def parse(
    blueprint: object, kind: Kind | None = None, validate: bool = True
) -> Parsed:
    """As `check`, but returns the problems, so that a caller can add its own."""
    if not isinstance(blueprint, Mapping):
        actual = describe_value(blueprint)
        problem = Problem("", f"A blueprint must be an object, not {actual}.")
        return Parsed({}, [problem])
    data = dict(cast("JsonMapping", blueprint))
    not_json = list(json_problems(data))
    if not_json:
        return Parsed({}, not_json[:MAX_PROBLEMS])
    try:
        own_kind = kind_of(data)
    except BlueprintValidationError as error:
        return Parsed({}, error.problems)
    if kind is not None and own_kind != kind and "type" in data:
        problem = Problem(
            "/type",
            detail=f"Expected a blueprint of kind {kind}, not {own_kind}.",
            suggestion=f"Use {own_kind.capitalize()} for it.",
        )
        return Parsed({}, [problem])
    current = migrate(data)
    found, unused = _check_shape(current, kind or own_kind, validate)
    if not found and (kind or own_kind) == "workflow":
        found = list(step_problems(current["steps"]))[:MAX_PROBLEMS]
    if not found:
        others = chain(mcp_problems(current), chat_problems(current))
        found = list(islice(others, MAX_PROBLEMS))
    return Parsed(current, found, unused[:MAX_PROBLEMS])


def with_types(blueprint: JsonMapping) -> Blueprint:
    """Return a blueprint with the types and names of its steps and members that a shorter one leaves to their keys.

    Args:
        blueprint: A blueprint of any kind, valid or not, as JSON data.
    """
    current = copy_json(dict(blueprint))
    teams = [kind.capitalize() for kind in TRAITS if TRAITS[kind].member_key]
    if current.get("type") not in teams:
        for _, step in walk_steps(current.get("steps")):
            fill_type_in(step)
        return current
    for _, member in members_of(current):
        if member and "type" not in member:
            whole = {"type": "Agent", **member}
            member.clear()
            member.update(whole)
    return current


def migrate(blueprint: JsonMapping) -> Blueprint:
    """The blueprint in the current schema version, with types, and without `$schema`, which is for editors.

    An unknown version stays, and fails validation.
    """
    current = with_types(blueprint)
    current.pop("$schema", None)
    if current.get("version") != "0":
        return current
    current["version"] = "1"
    config = current.get("config")
    if current.get("type") == "Conductor" and isinstance(config, dict):
        # spec §9: added later
        current["config"] = {"planning": False, **cast("JsonObject", config)}
    return current


def json_problems(data: object) -> Iterator[Problem]:
    """Why data is not JSON, or is nested too deeply."""
    for pointer, value, depth in walk_json(data):
        if depth > MAX_DEPTH:
            yield Problem(pointer, f"Nested deeper than {MAX_DEPTH} levels.")
            return
        if isinstance(value, dict):
            yield from _key_problems(
                cast("dict[object, object]", value), pointer
            )
        elif isinstance(value, float) and not math.isfinite(value):
            yield Problem(pointer, f"{value} is not a JSON number.")
        elif not isinstance(value, _JSON_TYPES):
            yield Problem(
                pointer, f"Expected JSON data, got {describe_value(value)}."
            )


def _key_problems(keys: Collection[object], pointer: str) -> Iterator[Problem]:
    if len(keys) > MAX_KEYS:
        detail = f"Expected at most {MAX_KEYS} keys, got {len(keys)}."
        yield Problem(pointer, detail)
    for key in keys:
        if not isinstance(key, str):
            yield Problem(
                pointer,
                detail=f"The key {short_repr(key)} is not a string.",
                suggestion="Put it in quotes.",
            )


def _check_shape(
    blueprint: Blueprint, kind: Kind, validate: bool = True
) -> tuple[list[Problem], list[Problem]]:
    """Its problems and its warnings; without `validate`, unknown keys are dropped first."""
    try:
        adapter(kind).validate_python(blueprint)
        return [], []
    except ValidationError as error:
        errors = error.errors(include_url=False)
    further = _further_keys(errors)
    if not validate and _drop_unknown_keys(blueprint, errors, further):
        return _check_shape(blueprint, kind)

    def allowed(location: Location) -> list[str]:
        _, value = resolve(blueprint, location)
        return allowed_keys(kind, location, as_object(value))

    untyped: list[Problem] = []
    others: list[JsonMapping] = []
    for error in errors:
        if error["type"] == "union_tag_not_found":
            location, step = resolve(blueprint, error["loc"])
            pointer = json_pointer(*location)
            untyped.append(missing_type_problem(as_object(step), pointer))
        elif error["loc"] not in further:
            others.append(error)
    problems = to_problems(others, blueprint, allowed) + untyped
    warnings: list[Problem] = []
    for location, unsafe_pointer in further.items():
        if unsafe_pointer:
            problems.append(unsafe_key_problem(unsafe_pointer))
        else:
            pointer = json_pointer(*location)
            warnings.append(Problem(pointer, "Unknown key, kept but not used."))
    return problems, warnings


def _drop_unknown_keys(
    blueprint: Blueprint,
    errors: Sequence[JsonMapping],
    further: Mapping[Location, str],
) -> bool:
    """Drop the unknown keys of a blueprint, except the harmless ones of `config`; true if there were any."""
    dropped = False
    for error in errors:
        location = error["loc"]
        if error["type"] != "extra_forbidden" or further.get(location) == "":
            continue
        *parents, key = location
        _, above = resolve(blueprint, parents)
        above.pop(key, None)
        dropped = True
    return dropped


def _further_keys(errors: Sequence[JsonMapping]) -> dict[Location, str]:
    """Unknown keys of `config` that resemble no setting, by location: the pointer of an unsafe key, "" if harmless."""
    further: dict[Location, str] = {}
    for error in errors:
        if error["type"] != "extra_forbidden":
            continue
        location = error["loc"]
        *parents, key = location
        if parents[-1:] != ["config"] or resembles_setting(str(key)):
            continue
        above = json_pointer(*parents)
        unsafe = unsafe_key_in({key: error["input"]})
        further[location] = above + unsafe if unsafe else ""
    return further


def resembles_setting(key: str) -> bool:
    """Whether a key is a setting in `config` of some kind of component, or nearly so."""
    start = key[:50].lower()
    word = start.replace("-", "_")
    if get_close_matches(word, CONFIG_KEYS, n=1, cutoff=0.81):
        return True
    # swapped letters count, but "opts" and "post" are words of their own
    settings = CONFIG_KEYS - {"stop"}
    return sorted(word) in map(sorted, settings)
