"""pydantic's validation errors as problems: the one translator for blueprints, request bodies, tools and files."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import zip_longest
from typing import Any, cast

from podwright.data.json_data import (
    JsonMapping,
    JsonObject,
    as_array,
    as_object,
    describe_value,
    json_pointer,
)
from podwright.data.text import did_you_mean, most_similar, short_repr
from podwright.errors import Problem

MAX_PROBLEMS = 100
"""Problems listed for one document: suggestions for thousands of unknown keys would take seconds."""

Location = Sequence[str | int]
AllowedKeys = Callable[[Location], Iterable[str]]
"""Returns the keys that the object at a location may have, for suggestions."""

PATTERNS: dict[str, str] = {}
"""Descriptions of regular expressions for error messages; `blueprints.schema` registers its own."""


_EXPECTED = "Expected "
"""The start of a message about the type of a value, or about its limits."""
_QUOTED = re.compile(r"'([^']*)'")
"""A text in the list of the values that are allowed."""
_KEY = "[key]"
"""The last part of a location whose key is wrong, not its value."""

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


def _no_keys(location: Location) -> Iterable[str]:
    return ()


def to_problems(
    errors: Iterable[JsonMapping],
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
    found: list[Problem] = []
    for pointer, group in grouped.items():
        problems = _merge_alternatives(group)
        # if one member of a union fails inside the value, the type errors of the other members mislead
        if any(other.startswith(f"{pointer}/") for other in grouped):
            problems = [
                problem for problem in problems if not _is_about_type(problem)
            ]
        found += problems
    more = len(details) - MAX_PROBLEMS
    if more > 0:
        found.append(Problem("", f"{more} more problems."))
    return found


def _merge_alternatives(group: list[Problem]) -> list[Problem]:
    """Errors of several members of a union about one value, as one problem."""
    expected = [problem for problem in group if _is_about_type(problem)]
    others = [problem for problem in group if problem not in expected]
    # if the value has the type of another member, the type error misleads
    if len(expected) < 2:
        return others or group
    wanted: dict[str, None] = {}
    suggestion = ""
    for problem in expected:
        suggestion = suggestion or problem.suggestion
        text, _, _ = problem.detail.removeprefix(_EXPECTED).partition(", got ")
        wanted[text] = None
    _, _, got = expected[0].detail.partition(", got ")
    detail = f"{_EXPECTED}{' or '.join(wanted)}, got {got}"
    return [Problem(expected[0].pointer, detail, suggestion), *others]


def _is_about_type(problem: Problem) -> bool:
    """Whether a problem says that a value has the wrong type."""
    return problem.detail.startswith(_EXPECTED)


def _to_problem(
    error: JsonMapping, data: object, allowed_keys: AllowedKeys
) -> Problem:
    location, value = resolve(data, error["loc"])
    pointer = json_pointer(*location)
    name = ""
    if error["loc"]:
        name = str(error["loc"][-1])
    if name == _KEY and location[-1:] != [_KEY]:
        value = location[-1]
    context = cast("JsonObject", error.get("ctx", {}))
    match error["type"]:
        case "missing":
            return Problem(pointer, f"Missing key '{name}'.")
        case "extra_forbidden":
            keys = [key for key in allowed_keys(location[:-1]) if key != name]
            hint = did_you_mean(name, keys)
            return Problem(pointer, f"Unknown key {short_repr(name)}.", hint)
        case "union_tag_invalid":
            return _unknown_tag_problem(pointer, context)
        case "union_tag_not_found":
            return Problem(pointer, f"Missing key '{_discriminator(context)}'.")
        case "json_invalid":
            reason = context.get("error", error["msg"])
            hint = "Check quotes, commas and brackets."
            return Problem("", f"Invalid JSON: {reason}.", hint)
        case "string_pattern_mismatch" if context["pattern"] in PATTERNS:
            expected = PATTERNS[context["pattern"]]
            got = describe_value(value)
            return Problem(pointer, f"{_EXPECTED}{expected}, got {got}.")
        case "literal_error":
            detail = _reworded(str(error["msg"]), value)
            return Problem(pointer, detail, _similar_value(value, context))
        case _:
            return Problem(pointer, _reworded(str(error["msg"]), value))


def _similar_value(value: object, context: JsonMapping) -> str:
    """A sentence that suggests the value that a text misspells; empty if it resembles none.

    The message of the error lists all of them.
    """
    known = _QUOTED.findall(str(context["expected"]))
    similar = most_similar(str(value), known)
    if similar is None:
        return ""
    return f"Did you mean '{similar}'?"


def _unknown_tag_problem(pointer: str, context: JsonMapping) -> Problem:
    key = _discriminator(context)
    tag = context["tag"]
    known = [
        name.strip(" '") for name in str(context["expected_tags"]).split(",")
    ]
    hint = did_you_mean(str(tag), known)
    return Problem(
        f"{pointer}/{key}", f"Unknown {key} {short_repr(tag)}.", hint
    )


def _discriminator(context: JsonMapping) -> str:
    """The key that tells the members of a union apart."""
    return str(context["discriminator"]).strip("'")


def _reworded(message: str, value: object) -> str:
    for theirs, ours in _REWORDED.items():
        message = message.replace(theirs, ours)
    if message.startswith(_EXPECTED):
        return f"{message}, got {describe_value(value)}."
    return f"{message.removeprefix('Value error, ')}."


def resolve(data: object, loc: Location) -> tuple[list[str | int], Any]:
    """The parts of an error's location that exist in the data, and the value there; the rest name types."""
    location: list[str | int] = []
    here: Any = data
    previous: str | int | None = None
    for part, following in zip_longest(loc, loc[1:]):
        # between the index of an item and its key, a location has the tag of the item's type
        is_item = isinstance(previous, int)
        previous = part
        if is_item and _is_tag(part, following, as_object(here)):
            continue
        if _has(here, part):
            location.append(part)
            here = here[part]
    return location, here


def _is_tag(
    part: str | int, following: object, members: Mapping[Any, Any]
) -> bool:
    """Whether a part of a location names the member of a tagged union, not a key of the object there."""
    if part != members.get("type"):
        return False
    if part in members:  # a key has the name of the tag
        return following in members
    return True


def _has(value: object, part: str | int) -> bool:
    items = as_array(value)
    if isinstance(part, int) and part < len(items):
        return True
    return part in as_object(value)
