"""The changes between two blueprints, and which of them are breaking."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal, cast

from podwright.blueprints.validation import kind_of, migrate
from podwright.json_data import json_pointer


@dataclass(frozen=True, slots=True)
class Change:
    """One difference between an old and a new blueprint."""

    pointer: str
    """JSON pointer; an entry of a list of named entries is addressed by its name."""
    op: Literal["added", "removed", "changed"]
    old: Any
    """The value before; None if it was added."""
    new: Any
    """The value after; None if it was removed."""
    breaking: bool
    """Whether those who call or deploy the old component may fail with the new one."""

    def __str__(self) -> str:
        mark = "breaking" if self.breaking else "compatible"
        return f"{mark}: {self.pointer} {self.op}"


_BREAKING = [
    (r"/name", "changed"),
    (r"/type", "changed"),
    # each tool, agent and condition must be supplied to rebuild the component
    (r"(/(skills|steps)/[^/]+)?/tools/[^/]+", "added"),
    (r".*/function/parameters(/.*)?", "added changed removed"),
    # outputs and resume paths depend on the steps, and a new step may need an agent
    (r"(/.*)?/(steps|branches|branches/\d+|then|else)(/[^/]+)?", "added changed removed"),
    (r".*/(agent|output|over|as|condition|until|workflow)(/.*)?", "added changed removed"),
    (r"(/.*)?/type", "changed"),
    (r"/(skills|steps)/[^/]+", "added removed"),
]
"""Patterns of JSON pointers and the operations that are breaking there; all others are compatible."""

_MAY_BE_ABSENT = ("tools", "else")
"""Lists that may be omitted if they are empty."""

_HARMLESS = re.compile(
    r".*(?<!/tools)(?<!/skills)(?<!/steps)(?<!/then)(?<!/else)(?<!/properties)(?<!/\$defs)/(description|title|examples(/.*)?)"
)
"""Descriptive texts; but not entries with such a name, for example a parameter called `title`."""


def diff(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[Change]:
    """The changes from one blueprint to another, in document order.

    Both are migrated to the current schema version first. Tools, skills and steps are matched by name, so that one
    inserted before the others is one change.
    """
    before, after = migrate(old), migrate(new)
    if kind_of(before) != kind_of(after):
        return [Change("/type", "changed", kind_of(before), kind_of(after), True)]
    for side in (before, after):
        side.pop("type", None)
        side.pop("version", None)
    return [Change(at, op, was, now, _breaks(at, op)) for at, op, was, now in _compare(before, after, "")]


_Row = tuple[str, Literal["added", "removed", "changed"], Any, Any]


def _compare(old: Any, new: Any, at: str) -> Iterator[_Row]:
    if isinstance(old, dict) and isinstance(new, dict):
        yield from _compare_keys(cast("dict[str, Any]", old), cast("dict[str, Any]", new), at)
    elif isinstance(old, list) and isinstance(new, list):
        listed_old, listed_new = cast("list[Any]", old), cast("list[Any]", new)
        if _named(listed_old) and _named(listed_new):
            yield from _compare_keys(_by_name(listed_old), _by_name(listed_new), at)
            order = [[entry["name"] for entry in side if entry["name"] in _by_name(other)]
                     for side, other in ((listed_old, listed_new), (listed_new, listed_old))]  # fmt: skip
            if order[0] != order[1]:
                yield at, "changed", order[0], order[1]
        elif listed_old != listed_new:
            yield from _compare_keys(dict(enumerate(listed_old)), dict(enumerate(listed_new)), at)
    elif old != new or isinstance(old, bool) != isinstance(new, bool):
        yield at, "changed", old, new


def _compare_keys(old: Mapping[Any, Any], new: Mapping[Any, Any], at: str) -> Iterator[_Row]:
    for key in [*old, *(key for key in new if key not in old)]:
        here = at + json_pointer(key)
        was, now = old.get(key, []), new.get(key, [])
        if key in _MAY_BE_ABSENT and isinstance(was, list) and isinstance(now, list):
            yield from _compare(was, now, here)
        elif key not in new:
            yield here, "removed", old[key], None
        elif key not in old:
            yield here, "added", None, new[key]
        else:
            yield from _compare(old[key], new[key], here)


def _named(entries: list[Any]) -> bool:
    names = [cast("dict[str, Any]", entry).get("name") for entry in entries if isinstance(entry, dict)]
    return len(names) == len(entries) and all(isinstance(name, str) for name in names) and len(set(names)) == len(names)


def _by_name(entries: list[Any]) -> dict[str, Any]:
    return {entry["name"]: entry for entry in entries}


def _breaks(at: str, op: str) -> bool:
    if _HARMLESS.fullmatch(at):
        return False
    return any(op in ops.split() and re.fullmatch(pattern, at) for pattern, ops in _BREAKING)
