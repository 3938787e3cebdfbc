"""Headers between containers, as dictionaries of structured fields (RFC 9651): what a run may use, and what it used."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping

Value = int | float | str | bool

_KEY = r"[a-z*][a-z0-9_\-.*]*"
_BARE = r'-?\d{1,12}\.\d{1,3}|-?\d{1,15}|"(?:[\x20\x21\x23-\x5b\x5d-\x7e]|\\["\\])*"|\?[01]'
_MEMBER = re.compile(rf"({_KEY})(?:=({_BARE}))?(?:;[ ]*{_KEY}(?:=(?:{_BARE}))?)*", re.ASCII)
_COMMA = re.compile(r"[ \t]*,[ \t]*(?=[a-z*])")
DICTIONARY = rf"^[ \t]*({_MEMBER.pattern}([ \t]*,[ \t]*{_MEMBER.pattern})*)?[ \t]*$"
"""What a dictionary looks like, as a JSON Schema's `pattern`."""

_LARGEST = 10**15 - 1
_LARGEST_DECIMAL = 10**12 - 1


def read(text: str) -> dict[str, Value]:
    """The members of a dictionary, without their parameters.

    Raises:
        ValueError: It is no dictionary, or has members that are neither numbers, strings nor booleans.
    """
    members: dict[str, Value] = {}
    text, at = text.strip(" "), 0
    while at < len(text):
        found = _MEMBER.match(text, at)
        comma = _COMMA.match(text, found.end()) if found else None
        if not found or (found.end() < len(text) and not comma):
            raise ValueError
        members[found[1]] = _value(found[2] or "?1")
        at = comma.end() if comma else found.end()
    return members


def _value(text: str) -> Value:
    match text[0]:
        case '"':
            return re.sub(r"\\(.)", r"\1", text[1:-1])
        case "?":
            return text == "?1"
        case _:
            return float(text) if "." in text else int(text)


def write(members: Mapping[str, int | float | str | None]) -> str:
    """A dictionary of those members that are not None. A decimal is rounded down to the three digits that it has."""
    return ", ".join(f"{name}={_written(value)}" for name, value in members.items() if value is not None)


def _written(value: float | str) -> str:
    if isinstance(value, str):
        return f'"{value}"'
    if isinstance(value, int):
        return str(min(value, _LARGEST))
    return f"{math.floor(min(value, _LARGEST_DECIMAL) * 1000) / 1000:.3f}"


def money(usd: float | None) -> str | None:
    """An amount as a string, for one call may cost less than the thousandth that a decimal has."""
    return None if usd is None else f"{usd:.12f}".rstrip("0").rstrip(".")
