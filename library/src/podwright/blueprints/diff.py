"""The changes between two blueprints, and which of them are breaking."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal, cast

from podwright.blueprints.validation import kind_of, migrate
from podwright.json_data import as_object, json_pointer


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
    (
        r"(/.*)?/(steps|branches|branches/\d+|then|else)(/[^/]+)?",
        "added changed removed",
    ),
    (
        r".*/(agent|output|over|as|condition|until|on_exhausted|workflow)(/.*)?",
        "added changed removed",
    ),
    (r"(/.*)?/type", "changed"),
    (r"/(skills|steps)/[^/]+", "added removed"),
]
"""Patterns of JSON pointers and the operations that are breaking there; all others are compatible."""

_MAY_BE_ABSENT = ("tools", "else")
"""Arrays that mean the same absent and empty."""

_HARMLESS = re.compile(
    r".*(?<!/tools)(?<!/skills)(?<!/steps)(?<!/then)(?<!/else)(?<!/properties)(?<!/\$defs)/(description|title|examples(/.*)?)"
    r"|(.*/workflow|/(skills|steps)/[^/]+)?/(config|metadata)(/.*)?"
)
"""Descriptive texts; but not entries with such a name, for example a parameter called `title`. Settings and notes."""


def blueprint_changes(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[Change]:
    """The changes from one blueprint to another, in document order.

    Both are migrated to the current schema version first. Tools, skills and steps are matched by name, so that one
    inserted before the others is one change.
    """
    before = migrate(old)
    after = migrate(new)
    if kind_of(before) != kind_of(after):
        return [Change("/type", "changed", kind_of(before), kind_of(after), True)]
    for side in (before, after):
        side.pop("type", None)
        side.pop("version", None)
    return [
        Change(at, op, was, now, _breaks(at, op))
        for at, op, was, now in _compare(before, after, "")
    ]


_Difference = tuple[str, Literal["added", "removed", "changed"], Any, Any]


def _compare(old: Any, new: Any, at: str) -> Iterator[_Difference]:
    before = _entries(old)
    after = _entries(new)
    if before is None or after is None:
        if old != new or isinstance(old, bool) != isinstance(new, bool):
            yield at, "changed", old, new
        return
    for key in dict.fromkeys([*before, *after]):
        here = at + json_pointer(key)
        was = before.get(key, [])
        now = after.get(key, [])
        absent_is_empty = (
            key in _MAY_BE_ABSENT and isinstance(was, list) and isinstance(now, list)
        )
        if absent_is_empty or (key in before and key in after):
            yield from _compare(was, now, here)
        elif key in before:
            yield here, "removed", was, None
        else:
            yield here, "added", None, now
    order = (
        [key for key in before if key in after],
        [key for key in after if key in before],
    )
    if isinstance(old, list) and order[0] != order[1]:
        yield at, "changed", *order


def _entries(value: Any) -> dict[Any, Any] | None:
    """The parts of an object or an array; those of an array by name if each has its own name, else by index."""
    if isinstance(value, dict):
        return cast("dict[str, Any]", value)
    if not isinstance(value, list):
        return None
    items = cast("list[Any]", value)
    by_name = {as_object(item).get("name", ""): item for item in items}
    return (
        by_name
        if len(by_name) == len(items) and all(by_name)
        else dict(enumerate(items))
    )


def _breaks(at: str, op: str) -> bool:
    if _HARMLESS.fullmatch(at):
        return False
    return any(
        op in ops.split() and re.fullmatch(pattern, at) for pattern, ops in _BREAKING
    )
