"""Validating blueprints: all problems at once, and migration from older schema versions."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from difflib import get_close_matches
from typing import Any, cast

from pydantic import ValidationError

from podwright.blueprints.schema import CONFIG_KEYS, SHAPES, adapter, allowed_keys
from podwright.errors import BlueprintValidationError, Problem
from podwright.events import Kind
from podwright.json_data import as_object, copy_json, json_pointer, walk_json
from podwright.text import did_you_mean, short_repr
from podwright.validation_errors import (
    MAX_PROBLEMS,
    Location,
    describe_value,
    resolve,
    to_problems,
)

MAX_DEPTH = 64
"""Deepest nesting of a blueprint's JSON."""
MAX_KEYS = 1000
"""Most keys of one object in a blueprint."""

Blueprint = dict[str, Any]

_UNSAFE = re.compile(
    # words are separated by other characters, or by a capital letter
    r"(?:^|[^A-Za-z]|(?<=[a-z])(?=[A-Z]))(?i:"
    r"[a-z]*_?ur[il]s?|(?:api|base)_?base|endpoints?|hosts?|hostname|servers?|address(?:es)?|prox(?:y|ies)"
    r"|headers?|cookies?|extra_?(?:body|query)|api_?keys?|(?<!cache_)keys?|token$|secrets?|passw(?:or)?ds?|passphrase"
    r"|pwd|(?:access|client|private|secret)_?(?:keys?|secrets?|tokens?)|creds?|credentials?|o?auth(?:orization|entication)?"
    r"|bearer|jwt|certificates?|limits|callbacks?|(?:web)?hooks?|handlers?"
    r"|(?<!_)code|scripts?|modules?|imports?|functions?|commands?|exec|eval)(?:$|[^a-z])"
)
"""Names of addresses, credentials, limits and code, which `config` may not contain at any depth."""
_HINT = "Addresses, credentials and limits belong in the environment, code in Python, and notes in metadata."

_TYPES: dict[str, Kind] = {
    shape.__name__.removesuffix("Blueprint"): kind for kind, shape in SHAPES.items()
}


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
    raise invalid(
        [Problem("/type", f"Unknown type {short_repr(name)} of component.", hint)]
    )


def invalid(
    problems: Sequence[Problem], what: str = "The blueprint"
) -> BlueprintValidationError:
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


def warnings(blueprint: object, kind: Kind | None = None) -> list[Problem]:
    """The keys of `config` that this release does not know, at most 100: they are kept and exported, but not used.

    Args:
        blueprint: Data of any type, valid or not.
        kind: As in `problems`.
    """
    data, _ = parse(blueprint, kind)
    return _check_shape(data, kind or kind_of(data))[1][:MAX_PROBLEMS] if data else []


def check(
    blueprint: object, kind: Kind | None = None, validate: bool = True
) -> Blueprint:
    """The blueprint as a component may hold it: migrated, and a copy.

    Args:
        blueprint: A dictionary, as `to_blueprint` returns it.
        kind: The kind that it must have; by default the one that it names.
        validate: If false, unknown keys are dropped, except those of `config` that `warnings` lists.

    Raises:
        BlueprintValidationError: With all problems.
    """
    parsed, found = parse(blueprint, kind, validate)
    if found:
        raise invalid(found)
    return parsed


def parse(
    blueprint: object, kind: Kind | None = None, validate: bool = True
) -> tuple[Blueprint, list[Problem]]:
    """As `check`, but returns the problems, so that a caller can add its own; with problems, the data is not usable."""
    if not isinstance(blueprint, Mapping):
        return {}, [
            Problem(
                "", f"A blueprint must be an object, not {describe_value(blueprint)}."
            )
        ]
    data = dict(cast("Mapping[str, Any]", blueprint))
    if found := list(_json_problems(data)):
        return {}, found[:MAX_PROBLEMS]
    try:
        own_kind = kind_of(data)
    except BlueprintValidationError as error:
        return {}, list(error.problems)
    if kind is not None and own_kind != kind and "type" in data:
        hint = f"Use {own_kind.capitalize()} for it."
        return {}, [
            Problem(
                "/type", f"Expected a blueprint of kind {kind}, not {own_kind}.", hint
            )
        ]
    current = copy_json(migrate(data))
    return current, _check_shape(current, kind or own_kind, validate)[0]


def migrate(blueprint: Mapping[str, Any]) -> Blueprint:
    """The blueprint in the current schema version; an unknown version stays, and fails validation."""
    current = dict(blueprint)
    if current.get("version") == "0":
        current["version"] = "1"
        if current.get("type") == "Conductor" and isinstance(
            current.get("config"), dict
        ):
            # spec §9: added later
            current["config"] = {"planning": False, **current["config"]}
    return current


def _json_problems(data: object) -> Iterator[Problem]:
    """Why data is not JSON, or is nested too deeply."""
    for pointer, value, depth in walk_json(data):
        if depth > MAX_DEPTH:
            yield Problem(pointer, f"Nested deeper than {MAX_DEPTH} levels.")
            return
        if isinstance(value, dict):
            keys = cast("dict[object, object]", value)
            if len(keys) > MAX_KEYS:
                yield Problem(
                    pointer, f"Expected at most {MAX_KEYS} keys, got {len(keys)}."
                )
            for key in keys:
                if not isinstance(key, str):
                    yield Problem(
                        pointer,
                        f"The key {short_repr(key)} is not a string.",
                        "Put it in quotes.",
                    )
        elif isinstance(value, float) and not math.isfinite(value):
            yield Problem(pointer, f"{value} is not a JSON number.")
        elif not (value is None or isinstance(value, str | bool | int | float | list)):
            yield Problem(pointer, f"Expected JSON data, got {describe_value(value)}.")


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
    unknown = [error["loc"] for error in errors if error["type"] == "extra_forbidden"]
    dropped = (
        []
        if validate
        else [location for location in unknown if further.get(location) != ""]
    )
    for *parents, key in dropped:
        resolve(blueprint, parents)[1].pop(key, None)
    if dropped:
        return _check_shape(blueprint, kind)

    others = [error for error in errors if error["loc"] not in further]
    problems = to_problems(
        others,
        blueprint,
        lambda at: allowed_keys(kind, at, as_object(resolve(blueprint, at)[1])),
    )
    problems += [
        Problem(
            pointer,
            "Unsafe key: like an address, a credential, a limit or code.",
            _HINT,
        )
        for pointer in further.values()
        if pointer
    ]
    return problems, [
        Problem(json_pointer(*at), "Unknown key, kept but not used.")
        for at in further
        if not further[at]
    ]


def _further_keys(errors: Sequence[Mapping[str, Any]]) -> dict[Location, str]:
    """Unknown keys of `config` that resemble no setting, by location: the pointer of an unsafe key, "" if harmless."""
    further = [
        error
        for error in errors
        if error["type"] == "extra_forbidden" and error["loc"][-2:-1] == ("config",)
    ]
    return {
        error["loc"]: _unsafe_key(error)
        for error in further
        if not resembles_setting(str(error["loc"][-1]))
    }


def _unsafe_key(error: Mapping[str, Any]) -> str:
    *parents, key = error["loc"]
    pointers = (
        json_pointer(*parents) + inner
        for inner, _, _ in walk_json({key: error["input"]})
    )
    return next(
        (pointer for pointer in pointers if _UNSAFE.search(pointer.rpartition("/")[2])),
        "",
    )


def resembles_setting(key: str) -> bool:
    """Whether a key is a setting in `config` of some kind of component, or nearly so."""
    word = key[:50].lower().replace("-", "_")
    # swapped letters count, but "opts" and "post" are words of their own
    return bool(get_close_matches(word, CONFIG_KEYS, 1, 0.81)) or sorted(word) in map(
        sorted, CONFIG_KEYS - {"stop"}
    )
