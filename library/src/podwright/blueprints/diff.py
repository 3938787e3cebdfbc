"""The changes between two blueprints, and which of them are breaking."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, cast

from podwright.approvals import DEFAULT_OPTIONS
from podwright.blueprints.steps import SEQUENCES
from podwright.blueprints.validation import kind_of, migrate
from podwright.json_data import as_array, as_object, json_pointer
from podwright.text import short_repr

Operation = Literal["added", "removed", "changed"]


@dataclass(frozen=True, slots=True)
class Change:
    """One difference between an old and a new blueprint."""

    pointer: str
    """JSON pointer; an entry of a list of named entries is addressed by its name."""
    op: Operation
    old: Any
    """The value before; None if it was added."""
    new: Any
    """The value after; None if it was removed."""
    breaking: bool
    """Whether those who call or deploy the old component may fail with the new one."""

    def __str__(self) -> str:
        mark = "compatible"
        if self.breaking:
            mark = "breaking"
        return f"{mark}: {self.pointer} {self.op}"


def describe_change(change: Change) -> str:
    """A change with its values, on one line."""
    return f"{change}: {describe_values(change)}"


def describe_values(change: Change) -> str:
    """The values of a change."""
    old = short_repr(change.old)
    new = short_repr(change.new)
    match change.op:
        case "added":
            return new
        case "removed":
            return old
        case "changed":
            return f"{old} -> {new}"


_ANY_CHANGE: Sequence[Operation] = ("added", "changed", "removed")
_SEQUENCE = "|".join(SEQUENCES)
_PART = rf"(?:/(?:skills|{_SEQUENCE}|branches/\d+)/[^/]+|/workflow)*"
"""The JSON pointer of a component or a step in a blueprint."""
_PARAMETERS = r".*/function/parameters"
"""The JSON pointer of the parameters of a tool."""
_BREAKING: list[tuple[str, Sequence[Operation]]] = [
    (r"/name", ["changed"]),
    # callers give inputs, and leave out those that have a default; see also `_is_breaking`
    (rf"{_PART}/inputs/[^/]+/default", ["removed"]),
    (rf"{_PART}/inputs/[^/]+/default/.*", []),
    (rf"{_PART}/inputs(/.*)?", _ANY_CHANGE),
    # callers and later steps read what is answered
    (
        rf"(/steps/[^/]+/config|/config|{_PART})/response_schema(/.*)?",
        _ANY_CHANGE,
    ),
    (rf"{_PART}/limits/[^/]+", ["added"]),
    # each tool, function, agent and condition must be supplied to rebuild the component
    (r"(/(skills|steps)/[^/]+)?/tools/[^/]+", ["added"]),
    # a model may leave optional parameters out
    (rf"{_PARAMETERS}/properties/[^/]+", ["removed"]),
    (rf"{_PARAMETERS}/properties/[^/]+/default(/.*)?", []),
    (rf"{_PARAMETERS}/required/[^/]+", ["added"]),
    (rf"{_PARAMETERS}(/.*)?", _ANY_CHANGE),
    (
        r"(/(skills|steps)/[^/]+)?/tools/[^/]+/(on_error|approval)",
        ["added", "changed"],
    ),
    (rf"{_PART}/function", ["changed"]),
    (rf"{_PART}/arguments/[^/]+", ["added", "removed"]),
    (rf"{_PART}/(arguments|input)(/.*)?", []),
    # outputs and resume paths depend on the steps, and a new step may need an agent
    (
        rf"{_PART}/({_SEQUENCE}|branches|branches/\d+)(/[^/]+)?",
        _ANY_CHANGE,
    ),
    (
        rf"{_PART}/(agent|output|collect|over|as|on|condition|until|on_exhausted|workflow)(/.*)?",
        _ANY_CHANGE,
    ),
    # people and programs send one of the options, and values for what may be edited
    (rf"{_PART}/options/[^/]+", ["changed", "removed"]),
    (rf"{_PART}/edit/[^/]+", ["removed"]),
    (rf"{_PART}/edit/[^/]+/.*", _ANY_CHANGE),
    (rf"{_PART}/type", ["changed"]),
    (r"/(skills|steps)/[^/]+", ["added", "removed"]),
]
"""Patterns of JSON pointers and the operations that are breaking there. The first one that fits decides; what fits none
is compatible."""

_INPUT = re.compile(rf"{_PART}/inputs/[^/]+")
_LIMIT = re.compile(rf"{_PART}/limits/[^/]+")
_REQUIRED = re.compile(rf"{_PARAMETERS}/required")
"""A set of names, of which neither order nor absence means anything."""

_MAY_BE_ABSENT: Mapping[str, Any] = {
    "tools": [],
    "else": [],
    "catch": [],
    "collect": False,
    "options": list(DEFAULT_OPTIONS),
    "edit": {},
    "arguments": {},
    "config": {},
    "limits": {},
    "required": [],
}
"""Keys without which a blueprint means the same as with an empty value, at the places of `_OPTIONAL`."""
_SCHEMA = rf"(?:{_PARAMETERS}|{_PART}(?:/config)?/response_schema|{_PART}/(?:inputs|edit)/[^/]+)"
"""The JSON pointer of a schema in a blueprint."""
_OPTIONAL = re.compile(
    rf"{_PART}/(?:tools|else|catch|collect|options|edit|arguments|config|limits)"
    rf"|{_SCHEMA}(?:/(?:(?:properties|\$defs)/[^/]+|items|anyOf/[^/]+))*/required"
)
"""The JSON pointers of these keys; in data, such as an argument that is called `options`, absence means absence."""

_WITH_NAMES = (
    *(
        "tools",
        "skills",
        "edit",
        "inputs",
        "arguments",
        "properties",
        r"\$defs",
    ),
    *SEQUENCES,
)
"""Keys below which names stand."""
_NOT_A_NAME = "".join(rf"(?<!/{key})" for key in _WITH_NAMES)
_HARMLESS = re.compile(
    rf".*{_NOT_A_NAME}/(description|title|examples(/.*)?)"
    rf"|{_PART}/metadata(/.*)?|/skills/[^/]+/config(/.*)?|{_PART}/config(?!/response_schema)(/.*)?"
)
"""Descriptive texts; but not entries with such a name, for example a parameter called `title`. Notes and settings: only
the conductor reads what its skills answer."""


def blueprint_changes(
    old: Mapping[str, Any], new: Mapping[str, Any]
) -> list[Change]:
    """The changes from one blueprint to another, in document order.

    Both are migrated to the current schema version first. Tools, skills and steps are matched by name, so that one
    inserted before the others is one change.
    """
    before = migrate(old)
    after = migrate(new)
    old_kind = kind_of(before)
    new_kind = kind_of(after)
    if old_kind != new_kind:
        return [_change("/type", "changed", old=old_kind, new=new_kind)]
    for side in (before, after):
        side.pop("type", None)
        side.pop("version", None)
    return list(_compare(before, after, ""))


def _compare(old: Any, new: Any, at: str) -> Iterator[Change]:
    """The changes of a value and of what is in it.

    Args:
        old: The value before.
        new: The value after.
        at: JSON pointer to the value.
    """
    if _REQUIRED.fullmatch(at):
        before = _names(old)
        after = _names(new)
    else:
        before = _entries(old)
        after = _entries(new)
    # the entries of a list may have the names of those of an object
    is_other_kind = isinstance(old, list) != isinstance(new, list)
    if before is None or after is None or is_other_kind:
        # True equals 1
        if old != new or isinstance(old, bool) != isinstance(new, bool):
            yield _change(at, "changed", old=old, new=new)
        return
    for key in dict.fromkeys([*before, *after]):
        here = at + json_pointer(key)
        yield from _compare_entry(before, after, key, here)
    order_before = [key for key in before if key in after]
    order_after = [key for key in after if key in before]
    if isinstance(old, list) and order_before != order_after:
        yield _change(at, "changed", old=order_before, new=order_after)


def _compare_entry(
    before: Mapping[Any, Any], after: Mapping[Any, Any], key: Any, at: str
) -> Iterator[Change]:
    empty = None
    if _OPTIONAL.fullmatch(at):
        empty = _MAY_BE_ABSENT[key]
    was = before.get(key, empty)
    now = after.get(key, empty)
    is_in_both = key in before and key in after
    may_be_absent = empty is not None and type(was) is type(now)
    if is_in_both or may_be_absent:
        yield from _compare(was, now, at)
    elif key in before:
        yield _change(at, "removed", old=was)
    else:
        yield _change(at, "added", new=now)


def _entries(value: Any) -> dict[Any, Any] | None:
    """The parts of an object or an array; those of an array by name if each has its own name, else by index."""
    if isinstance(value, dict):
        return cast("dict[str, Any]", value)
    if not isinstance(value, list):
        return None
    items = cast("list[Any]", value)
    by_name: dict[Any, Any] = {}
    for item in items:
        name = as_object(item).get("name")
        if isinstance(name, str) and name:
            by_name[name] = item
    if len(by_name) == len(items):
        return by_name
    return dict(enumerate(items))


def _names(value: Any) -> dict[Any, Any]:
    """The names in an array, in the order of the alphabet."""
    names = [name for name in as_array(value) if isinstance(name, str)]
    return {name: name for name in sorted(names)}


def _change(
    at: str, op: Operation, *, old: Any = None, new: Any = None
) -> Change:
    breaking = _is_breaking(at, op, old=old, new=new)
    return Change(at, op, old=old, new=new, breaking=breaking)


def _is_breaking(at: str, op: Operation, *, old: Any, new: Any) -> bool:
    if _HARMLESS.fullmatch(at):
        return False
    if op == "added" and _INPUT.fullmatch(at):
        return "default" not in as_object(new)
    if op == "changed" and _LIMIT.fullmatch(at):
        return new < old
    for pattern, operations in _BREAKING:
        if re.fullmatch(pattern, at):
            return op in operations
    return False
