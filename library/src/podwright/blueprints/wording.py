"""Putting what pydantic finds into words: where, what was expected, and what was probably meant."""

from __future__ import annotations

from typing import Any, cast

from pydantic import ValidationError

from podwright.blueprints.schema import (
    PLACES,
    SHAPES,
    STEP_SHAPES,
    AgentConfig,
    LineConfig,
    MemberBlueprint,
    MemberConfig,
    TeamConfig,
)
from podwright.errors import Problem
from podwright.events import Kind
from podwright.json_data import as_array, as_object, json_pointer
from podwright.text import did_you_mean, short_repr

_JSON_NAMES: dict[object, str] = {
    dict: "object", list: "array", str: "string", bool: "boolean", int: "integer", float: "number", type(None): "null"
}  # fmt: skip
_CONFIGS: dict[Kind, Any] = {"agent": AgentConfig, "conductor": TeamConfig, "pipeline": LineConfig}
_MODEL = "a model named '<provider>/<model_name>', for example 'openai/gpt-4o-mini'"
_NAME = "a name without control characters, braces and slashes"
_MOST = 200
"""How many problems are put into words: to guess what was meant by thousands of keys would take a minute."""
_PLAIN = {"Input should be ": "expected ", "a valid integer": "an integer", "a valid dictionary": "an object",
          " or object to extract fields from": "", "a valid list": "an array", "a valid ": "a "}  # fmt: skip


def shown(value: object) -> str:
    """A value in a message: what it is in JSON, and its beginning."""
    name = _JSON_NAMES.get(type(value), type(value).__name__)
    if value is None or isinstance(value, dict | list):
        return name
    return f"the {name} {short_repr(value)}"


def worded(blueprint: dict[str, Any], kind: Kind, error: ValidationError) -> list[Problem]:
    """The problems that a validation error of this blueprint tells of, in the order of the places."""
    merged: dict[str, list[Problem]] = {}
    items = error.errors(include_url=False)
    for item in items[:_MOST]:
        problem = _problem(blueprint, kind, cast("dict[str, Any]", item))
        merged.setdefault(problem.pointer, []).append(problem)
    # where a union's member went into a value and complains there, the others' complaints of its type only mislead
    inside = {at for at in merged if any(other.startswith(f"{at}/") for other in merged)}
    found = [
        problem
        for at, group in merged.items()
        for problem in _joined(group)
        if at not in inside or not problem.detail.startswith("expected ")
    ]
    return [*found, Problem("", f"{len(items) - _MOST} more problems.")] if len(items) > _MOST else found


def _joined(group: list[Problem]) -> list[Problem]:
    """The members of a union each complain of the same value; that is one problem."""
    expectations = [problem for problem in group if problem.detail.startswith("expected ")]
    if len(expectations) < 2:
        return group
    wants = [one.detail.removeprefix("expected ").partition(", not ")[0] for one in expectations]
    first = expectations[0]
    detail = f"expected {' or '.join(wants)}, not {first.detail.partition(', not ')[2]}"
    rest = [problem for problem in group if problem not in expectations]
    return [Problem(first.pointer, detail, first.suggestion), *rest]


def _problem(blueprint: dict[str, Any], kind: Kind, error: dict[str, Any]) -> Problem:
    place, here = _place(blueprint, error["loc"])
    at, name = json_pointer(*place), str(error["loc"][-1]) if error["loc"] else ""
    match error["type"]:
        case "missing":
            return Problem(at, f"the key '{name}' is missing.")
        case "extra_forbidden":
            allowed = [key for key in _allowed(blueprint, kind, place[:-1]) if key != name]
            known = AgentConfig.__required_keys__ | TeamConfig.__optional_keys__
            misplaced = f"'{name}' belongs under 'config'." if "config" in allowed and name in known else ""
            return Problem(at, f"unknown key '{name}'.", misplaced or did_you_mean(name, allowed))
        case "union_tag_invalid":
            tag = str(error["ctx"]["tag"])
            return Problem(f"{at}/type", f"no type of step is called {tag!r}.", did_you_mean(tag, STEP_SHAPES))
        case "union_tag_not_found":
            return Problem(at, "the key 'type' is missing.", f"Known names: {', '.join(STEP_SHAPES)}.")
        case "string_pattern_mismatch":
            wanted = _MODEL if at.endswith("/model") else _NAME if here else "a name that is not empty"
            bare = str(here).strip("{}")
            hint = (
                f"Write '{bare}', without braces." if at.endswith(("/over", "/as", "/output")) and bare != here else ""
            )
            return Problem(at, f"expected {wanted}, not {shown(here)}.", hint)
        case "too_short" | "string_too_short":
            return Problem(at, f"expected at least {_counted(error['ctx']['min_length'], here)}, not {len(here)}.")
        case "too_long" | "string_too_long":
            return Problem(at, f"expected at most {_counted(error['ctx']['max_length'], here)}, not {len(here)}.")
        case _:
            said = str(error["msg"])
            for theirs, ours in _PLAIN.items():
                said = said.replace(theirs, ours)
            if said.startswith("expected "):
                return Problem(at, f"{said}, not {shown(here)}.")
            return Problem(at, f"{said[0].lower()}{said[1:]}.")


def _counted(number: int, value: object) -> str:
    return f"{number} {'character' if isinstance(value, str) else 'item'}{'' if number == 1 else 's'}"


def _place(blueprint: dict[str, Any], loc: tuple[str | int, ...]) -> tuple[list[str | int], Any]:
    """The part of an error's location that stands in the data, and what is there; the rest are names of types."""
    place: list[str | int] = []
    here: Any = blueprint
    for number, part in enumerate(loc):
        tag = part in STEP_SHAPES and number and isinstance(loc[number - 1], int)
        inside = part in as_object(here) or (isinstance(part, int) and part < len(as_array(here)))
        if inside and not tag:
            place.append(part)
            here = here[part]
    return place, here


def _allowed(blueprint: dict[str, Any], kind: Kind, place: list[str | int]) -> list[str]:
    """The keys that the object at a place may have."""
    keys = [part for part in place if isinstance(part, str)]
    here = as_object(_place(blueprint, tuple(place))[1])
    shape: Any
    if not keys:
        shape = SHAPES[kind]
    elif keys[-1] == "config":
        shape = _CONFIGS.get(kind, AgentConfig) if len(keys) == 1 else MemberConfig
    elif kind == "workflow" and isinstance(here.get("type"), str) and here["type"] in STEP_SHAPES:
        shape = STEP_SHAPES[here["type"]]
    else:
        shape = PLACES.get(keys[-1], MemberBlueprint)
    return sorted(shape.__required_keys__ | shape.__optional_keys__)
