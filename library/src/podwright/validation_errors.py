"""pydantic's validation errors as problems: the one translator for blueprints, request bodies, tools and files."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import zip_longest
from typing import Any, cast

from podwright.errors import Problem
from podwright.json_data import as_array, as_object, json_pointer
from podwright.text import did_you_mean, short_repr

MAX_PROBLEMS = 100
"""Problems listed for one document: suggestions for thousands of unknown keys would take seconds."""

Location = Sequence[str | int]
AllowedKeys = Callable[[Location], Iterable[str]]
"""Returns the keys that the object at a location may have, for suggestions."""

PATTERNS: dict[str, str] = {}
"""Descriptions of regular expressions for error messages; `blueprints.schema` registers its own."""

_JSON_TYPES: dict[type, str] = {
    dict: "object", list: "array", str: "string", bool: "boolean", int: "integer", float: "number", type(None): "null"
}  # fmt: skip
_REWORDED = {  # in this order: the first ones contain the later ones
    "Input should be greater": "Expected a number greater",
    "Input should be less": "Expected a number less",
    "Input should be ": "Expected ",
    "Decimal input should be an integer, float, string or Decimal object": "Expected a number",
    "a valid integer": "an integer",
    "a valid dictionary or object to extract fields from": "an object",
    "a valid dictionary": "an object",
    "a valid list": "an array",
    "a valid ": "a ",
}


def describe_value(value: object) -> str:
    """The JSON type of a value, with the value itself if it is a scalar: "the integer 5", "null", "array"."""
    name = _JSON_TYPES.get(type(value), type(value).__name__)
    return (
        name
        if value is None or isinstance(value, dict | list)
        else f"the {name} {short_repr(value)}"
    )


def _no_keys(location: Location) -> Iterable[str]:
    return ()


def to_problems(
    errors: Iterable[Mapping[str, Any]],
    data: object,
    allowed_keys: AllowedKeys = _no_keys,
) -> list[Problem]:
    """The problems behind validation errors, in the order of their locations; alternatives of a union are merged.

    Args:
        errors: `ValidationError.errors()`, or those of a `RequestValidationError`.
        data: The data that was validated; locations are resolved in it.
        allowed_keys: Returns the keys allowed at a location, for "Did you mean …?".
    """
    details = list(errors)
    grouped: dict[str, list[Problem]] = {}
    for error in details[:MAX_PROBLEMS]:
        problem = _to_problem(error, data, allowed_keys)
        grouped.setdefault(problem.pointer, []).append(problem)
    # if one member of a union fails inside the value, the type errors of the other members mislead
    outer = {
        pointer
        for pointer in grouped
        if any(other.startswith(f"{pointer}/") for other in grouped)
    }
    found = [
        problem
        for pointer, group in grouped.items()
        for problem in _merge_alternatives(group)
        if pointer not in outer or not problem.detail.startswith("Expected ")
    ]
    if len(details) > MAX_PROBLEMS:
        found.append(Problem("", f"{len(details) - MAX_PROBLEMS} more problems."))
    return found


def _merge_alternatives(group: list[Problem]) -> list[Problem]:
    """Errors of several members of a union about one value, as one problem."""
    expected = [problem for problem in group if problem.detail.startswith("Expected ")]
    # if the value has the type of another member, the type error misleads
    if len(expected) < 2:
        return [problem for problem in group if problem not in expected] or group
    wanted = [
        problem.detail.removeprefix("Expected ").partition(", got ")[0]
        for problem in expected
    ]
    got = expected[0].detail.partition(", got ")[2]
    merged = Problem(
        expected[0].pointer, f"Expected {' or '.join(dict.fromkeys(wanted))}, got {got}"
    )
    return [merged, *(problem for problem in group if problem not in expected)]


def _to_problem(
    error: Mapping[str, Any], data: object, allowed_keys: AllowedKeys
) -> Problem:
    location, value = resolve(data, error["loc"])
    pointer = json_pointer(*location)
    name = str(error["loc"][-1]) if error["loc"] else ""
    context = cast("dict[str, Any]", error.get("ctx", {}))
    match error["type"]:
        case "missing":
            return Problem(pointer, f"Missing key '{name}'.")
        case "extra_forbidden":
            keys = [key for key in allowed_keys(location[:-1]) if key != name]
            return Problem(
                pointer, f"Unknown key {short_repr(name)}.", did_you_mean(name, keys)
            )
        case "union_tag_invalid":
            tags = [tag.strip(" '") for tag in str(context["expected_tags"]).split(",")]
            tag = short_repr(context["tag"])
            key = _discriminator(context)
            return Problem(
                f"{pointer}/{key}",
                f"Unknown {key} {tag}.",
                did_you_mean(str(context["tag"]), tags),
            )
        case "union_tag_not_found":
            return Problem(pointer, f"Missing key '{_discriminator(context)}'.")
        case "json_invalid":
            reason = context.get("error", error["msg"])
            return Problem(
                "", f"Invalid JSON: {reason}.", "Check quotes, commas and brackets."
            )
        case "string_pattern_mismatch" if expected := PATTERNS.get(context["pattern"]):
            return Problem(
                pointer, f"Expected {expected}, got {describe_value(value)}."
            )
        case _:
            return Problem(pointer, _reworded(str(error["msg"]), value))


def _discriminator(context: Mapping[str, Any]) -> str:
    """The key that tells the members of a union apart."""
    return str(context["discriminator"]).strip("'")


def _reworded(message: str, value: object) -> str:
    for theirs, ours in _REWORDED.items():
        message = message.replace(theirs, ours)
    if message.startswith("Expected "):
        return f"{message}, got {describe_value(value)}."
    return f"{message.removeprefix('Value error, ')}."


def resolve(data: object, loc: Location) -> tuple[list[str | int], Any]:
    """The parts of an error's location that exist in the data, and the value there; the rest name types."""
    location: list[str | int] = []
    here: Any = data
    previous: str | int | None = None
    for part, following in zip_longest(loc, loc[1:]):
        members = as_object(here)
        is_tag = isinstance(previous, int) and part == members.get("type")
        if is_tag and part in members:  # a key has the name of the tag
            is_tag = following in members
        previous = part
        if is_tag:  # the member of a tagged union, not a key
            continue
        if part in as_object(here) or (
            isinstance(part, int) and part < len(as_array(here))
        ):
            location.append(part)
            here = here[part]
    return location, here
