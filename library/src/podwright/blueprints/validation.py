"""Checking blueprints: everything that is wrong at once, and the step up from older versions."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, cast

from pydantic import ValidationError

from podwright.blueprints.schema import SHAPES, VERSION, adapter
from podwright.blueprints.steps import walk_steps
from podwright.blueprints.wording import shown, worded
from podwright.errors import BlueprintValidationError, Problem
from podwright.events import Kind
from podwright.json_data import as_array, as_object, copy_json, json_pointer
from podwright.text import did_you_mean, short_repr

MAX_DEPTH = 64
"""Deepest nesting of a blueprint's JSON."""

Blueprint = dict[str, Any]

_MOST = 100
"""How many values that are no JSON are told of."""
_Place = tuple["_Place", str | int] | None


def kind_of(blueprint: Mapping[str, Any]) -> Kind:
    """The kind that a blueprint describes, by its `type`, else by what it holds.

    Raises:
        BlueprintValidationError: `type` is no kind.
    """
    given = blueprint.get("type")
    if given is None:
        return "workflow" if "steps" in blueprint else "agent"
    for kind, shape in SHAPES.items():
        if given == shape.__name__.removesuffix("Blueprint"):
            return kind
    names = [shape.__name__.removesuffix("Blueprint") for shape in SHAPES.values()]
    problem = Problem(
        "/type",
        f"no kind of component is called {short_repr(given)}.",
        did_you_mean(short_repr(given).strip("'"), names),
    )
    raise BlueprintValidationError("The blueprint is invalid: 1 problem.", problems=[problem])


def problems(blueprint: object, kind: Kind | None = None) -> list[Problem]:
    """Everything that is wrong with the blueprint as data; an empty list if nothing is.

    Args:
        blueprint: What was given, whatever it is.
        kind: The kind that it must be of; by default the one that it says.
    """
    if found := unreadable(blueprint):
        return found
    given = cast("Mapping[str, Any]", blueprint)
    try:
        said = kind_of(given)
    except BlueprintValidationError as error:
        return list(error.problems)
    if kind is not None and said != kind and "type" in given:
        return [
            Problem(
                "/type", f"this is of the kind {said} where {kind} was expected.", f"Use {said.capitalize()} for it."
            )
        ]
    try:
        current = migrate(given)
    except BlueprintValidationError as error:
        return list(error.problems)
    found = _shape_problems(current, kind or said)
    return [*found, *_meaning_problems(current)]


def unreadable(blueprint: object) -> list[Problem]:
    """Why something cannot be looked into as a blueprint: it is no object of JSON data, or nested too deep."""
    found = _not_json(blueprint)
    if not found and not isinstance(blueprint, Mapping):
        return [Problem("", f"a blueprint is an object, not {shown(blueprint)}.")]
    return found


def check(blueprint: object, kind: Kind | None = None, validate: bool = True) -> Blueprint:
    """The blueprint as a component may hold it: migrated, and a copy of its own.

    Args:
        blueprint: A dictionary, as `to_blueprint` gives it.
        kind: The kind that it must be of; by default the one that it says.
        validate: If false, what is merely unknown or doubtful is let through; a blueprint that
            cannot be built from at all is still refused.

    Raises:
        BlueprintValidationError: With every problem found.
    """
    found = problems(blueprint, kind)
    if found and not validate:
        blueprint = _without_unknown(blueprint, found)
        found = [problem for problem in problems(blueprint, kind) if not problem.detail.startswith("duplicate")]
    if found:
        raise invalid(found)
    return copy_json(migrate(cast("Mapping[str, Any]", blueprint)))


def invalid(found: list[Problem], what: str = "The blueprint") -> BlueprintValidationError:
    """The error that carries these problems."""
    count = f"{len(found)} problem{'s' if len(found) > 1 else ''}"
    return BlueprintValidationError(f"{what} is invalid: {count}.", problems=found)


def _from_0(old: Blueprint) -> Blueprint:
    # spec §9: conductors knew no planning before `config.planning` came
    new = {**old, "version": "1"}
    if old.get("type") == "Conductor" and isinstance(old.get("config"), dict):
        new["config"] = {"planning": False, **old["config"]}
    return new


MIGRATIONS: dict[str, Callable[[Blueprint], Blueprint]] = {"0": _from_0}
"""From each older schema version, the step to the next."""


def migrate(blueprint: Mapping[str, Any]) -> Blueprint:
    """The blueprint in today's schema version; one of today's is given back as it is.

    Raises:
        BlueprintValidationError: The version is newer than this release, or none at all.
    """
    current = dict(blueprint)
    while (version := current.get("version", VERSION)) != VERSION:
        step = MIGRATIONS.get(version) if isinstance(version, str) else None
        if step is None:
            # by its length first: Python refuses to read a number of thousands of digits
            digits = (
                version.lstrip("0") if isinstance(version, str) and version.isascii() and version.isdecimal() else ""
            )
            newer = (len(digits), digits) > (len(VERSION), VERSION)
            detail = f"schema version {short_repr(version)} is " + (
                f"newer than {VERSION!r}, the newest that this release reads." if newer else "unknown."
            )
            known = [*MIGRATIONS, VERSION]
            hint = "Upgrade podwright." if newer else f"Known names: {', '.join(map(repr, known))}."
            hint = f"Write it in quotes: {str(version)!r}." if short_repr(version) in known else hint
            raise invalid([Problem("/version", detail, hint)])
        current = step(current)
    return current


def _not_json(value: object) -> list[Problem]:
    found: list[Problem] = []
    # a place is a chain of keys, written out only where something is wrong: there may be a million values
    stack: list[tuple[_Place, object, int]] = [(None, value, 0)]
    while stack and len(found) < _MOST:
        place, item, depth = stack.pop()
        if depth > MAX_DEPTH:
            return [Problem(_written(place), f"nested deeper than {MAX_DEPTH} levels.", "Flatten it.")]
        if isinstance(item, Mapping):
            for key, inner in cast("Mapping[object, object]", item).items():
                if fault := _key_fault(key):
                    found.append(Problem(_written(place), *fault))
                else:
                    stack.append(((place, cast("str", key)), inner, depth + 1))
        elif isinstance(item, list):
            stack.extend(((place, index), one, depth + 1) for index, one in enumerate(cast("list[object]", item)))
        elif fault := _value_fault(item):
            found.append(Problem(_written(place), *fault))
    return found[:_MOST]


def _written(place: _Place) -> str:
    parts: list[str | int] = []
    while place is not None:
        place, key = place
        parts.append(key)
    return json_pointer(*reversed(parts))


def _key_fault(key: object) -> tuple[str, ...] | None:
    if not isinstance(key, str):
        return (f"the key {short_repr(key)} is not a string.", "Put it in quotes.")
    return None if _encodable(key) else ("a key holds half of a surrogate pair, which is no Unicode text.",)


def _value_fault(value: object) -> tuple[str, ...] | None:
    if isinstance(value, str):
        return None if _encodable(value) else ("the text holds half of a surrogate pair, which is no Unicode text.",)
    if isinstance(value, float) and not math.isfinite(value):
        return (f"{value} is not a JSON number.",)
    if value is None or isinstance(value, bool | int | float):
        return None
    return (f"{shown(value)} is not JSON.", "Write it as a string or a number.")


def _encodable(text: str) -> bool:
    if text.isascii():
        return True
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _shape_problems(blueprint: Blueprint, kind: Kind) -> list[Problem]:
    try:
        adapter(kind).validate_python(blueprint)
    except ValidationError as error:
        return worded(blueprint, kind, error)
    return []


def _meaning_problems(blueprint: Blueprint) -> list[Problem]:
    """What the shapes cannot say: names that clash or do not agree, and references out of the document."""
    found = _tool_problems(blueprint, "") + _duplicates(blueprint.get("skills"), "/skills", "skill")
    for key in ("skills", "steps"):
        for number, member in enumerate(as_array(blueprint.get(key))):
            found += _tool_problems(as_object(member), f"/{key}/{number}")
            found += _version_problems(as_object(member), f"/{key}/{number}")
    for at, step in walk_steps(blueprint.get("steps")):
        found += _version_problems(as_object(step.get("workflow")), f"{at}/workflow")
    return found


def _version_problems(nested: Mapping[str, Any], at: str) -> list[Problem]:
    if not isinstance(nested.get("version", VERSION), str):
        return []  # the shape has said so
    try:
        migrate(nested)
    except BlueprintValidationError as error:
        return [Problem(at + one.pointer, one.detail, one.suggestion) for one in error.problems]
    return []


def _duplicates(entries: object, at: str, what: str) -> list[Problem]:
    seen: set[str] = set()
    found: list[Problem] = []
    for number, entry in enumerate(as_array(entries)):
        name = as_object(entry).get("name")
        if isinstance(name, str):
            if name in seen:
                detail = f"duplicate {what} name '{name}'."
                found.append(Problem(f"{at}/{number}/name", detail, "Give each its own name."))
            seen.add(name)
    return found


def _tool_problems(agent: Mapping[str, Any], at: str) -> list[Problem]:
    found = _duplicates(agent.get("tools"), f"{at}/tools", "tool")
    for number, entry in enumerate(as_array(agent.get("tools"))):
        here = f"{at}/tools/{number}"
        match entry:
            case {"name": str(name), "schema": {"function": {"name": str(inner)}}} if name != inner:
                detail = f"the tool is called '{name}', but its schema '{inner}'."
                found.append(Problem(f"{here}/schema/function/name", detail, "Use one name in both places."))
            case _:
                pass
        found += _remote_refs(entry, here)
    return found


def _remote_refs(value: object, at: str) -> list[Problem]:
    found: list[Problem] = []
    for number, item in enumerate(as_array(value)):
        found += _remote_refs(item, f"{at}/{number}")
    for key, item in as_object(value).items():
        if key == "$ref" and isinstance(item, str) and not item.startswith("#"):
            found.append(
                Problem(f"{at}/$ref", f"a schema may refer only to itself ('#/…'), not to {short_repr(item)}.")
            )
        else:
            found += _remote_refs(item, at + json_pointer(key))
    return found


def _without_unknown(blueprint: object, found: list[Problem]) -> object:
    """A copy without the keys that the problems call unknown."""
    slim: Any = copy_json(blueprint)
    for problem in found:
        if problem.detail.startswith("unknown key"):
            *parents, last = [part.replace("~1", "/").replace("~0", "~") for part in problem.pointer.split("/")[1:]]
            here = slim
            for part in parents:
                here = as_array(here)[int(part)] if part.isdecimal() and as_array(here) else here[part]
            as_object(here).pop(last, None)
    return slim
