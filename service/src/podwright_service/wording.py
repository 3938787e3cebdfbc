"""What pydantic finds wrong in a body, in words for who sent it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from podwright.errors import Problem
from podwright.json_data import json_pointer
from podwright.text import did_you_mean

_NAMES: dict[type, str] = {dict: "an object", list: "an array", str: "a text", int: "a number", float: "a number"}
_WANTED = {
    "string_type": "a text",
    "dict_type": "an object",
    "model_type": "an object",
    "list_type": "an array",
    "int_type": "a whole number",
}


def named(value: object) -> str:
    """What a value is in JSON."""
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    return _NAMES[type(value)]


def worded(error: Any, known: Iterable[str]) -> Problem:
    """One of pydantic's errors.

    Args:
        error: With its input and its context.
        known: The keys that the body may have.
    """
    loc, value, context = error["loc"], error["input"], error.get("ctx", {})
    at, key, name = json_pointer(*loc), str(loc[-1]) if loc else "", "/".join(str(part) for part in loc)
    subject = f"'{name}'" if name else "the body"
    match error["type"]:
        case "extra_forbidden":
            names = list(known)
            hint = did_you_mean(key, names)
            if hint.startswith("Known") and "input" in names:
                hint = f'Named inputs are sent as {{"inputs": {{…}}}}. {hint}'
            return Problem(at, f"unknown key '{key}'.", hint)
        case "missing":
            return Problem(at, f"the key '{key}' is missing.")
        case "literal_error":
            what = repr(value) if isinstance(value, str) and len(value) <= 60 else named(value)
            hint = did_you_mean(str(value), _options(context)) if isinstance(value, str) else ""
            return Problem(at, f"{subject} is {what}, not {context['expected']}.", hint)
        case "too_short":
            return Problem(at, f"{subject} is empty.", "Put something into it.")
        case "too_long":
            return Problem(at, f"{subject} has more than {context['max_length']} entries.")
        case "string_too_long":
            return Problem(at, f"a name has more than {context['max_length']} characters.")
        case "greater_than_equal":
            return Problem(at, f"{subject} is less than {context['ge']}.")
        case kind if kind in _WANTED:
            return Problem(at, f"{subject} is {named(value)}, not {_WANTED[kind]}.")
        case _:
            return Problem(at, f"{subject}: {error['msg'][:1].lower()}{error['msg'][1:]}.")


def misspelt(keys: Iterable[str], known: Iterable[str]) -> str:
    """What was probably meant by the first of some keys that is not known; empty if all are."""
    options = list(known)
    return next((did_you_mean(key, options) for key in keys if key not in options), "")


def _options(context: dict[str, Any]) -> list[str]:
    return [part.strip("'") for part in str(context["expected"]).replace(" or ", ", ").split(", ")]
