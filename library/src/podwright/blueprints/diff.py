"""The changes between two blueprints, and which of them are breaking."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from podwright.blueprints.members import handoffs_of
from podwright.blueprints.validation import kind_of, migrate
from podwright.data.json_data import as_array, as_object, json_pointer
from podwright.data.text import short_repr
from podwright.steps.base import ANY_CHANGE, Operation, Rules
from podwright.steps.registry import (
    Kinds,
    collect,
    kinds,
    sequence_places,
    step_keys,
)


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


_PARAMETERS = r".*/function/parameters"
"""The JSON pointer of the parameters of a tool."""
_REQUIRED = re.compile(rf"{_PARAMETERS}/required")
"""A set of names, of which neither order nor absence means anything."""
_MEMBER = "(?:/(?:skills|steps)/[^/]+)?"
"""The JSON pointer of a component or a member in a blueprint."""
_SERVERS = re.compile(rf"{_MEMBER}/mcp")
"""The entries of MCP servers."""
_HOOKS = re.compile(rf"{_MEMBER}/(?:before|after)")
"""The functions before or after the work: a name, or a list of names."""
_SERVER_TOOLS = re.compile(rf"{_MEMBER}/mcp/[^/]+/tools")
"""The tools of an MCP server: names, or objects with a name."""


_HANDOFFS = re.compile(rf"{_MEMBER}/handoffs")
"""The agents that one hands off to: names, or objects with a name."""


@dataclass(frozen=True, slots=True)
class _Comparison:
    """The rules by which blueprints are compared, with those of all kinds of steps."""

    breaking: Rules
    """Patterns of JSON pointers and the operations that are breaking there. The first one that fits decides; what fits
    none is compatible."""
    new_input: re.Pattern[str]
    limit: re.Pattern[str]
    may_be_absent: Mapping[str, Any]
    """Keys without which a blueprint means the same as with a value, at the places of `optional`."""
    optional: re.Pattern[str]
    """The JSON pointers of these keys; in data, such as an argument that is called `options`, absence means absence."""
    harmless: re.Pattern[str]
    """Descriptive texts; but not entries with such a name, for example a parameter called `title`. Notes and settings:
    only the conductor reads what its skills answer."""


def _comparison() -> _Comparison:
    return _comparison_of(kinds())


@functools.lru_cache(maxsize=4)
def _comparison_of(of: Kinds) -> _Comparison:
    sequences = [place.replace("*", r"\d+") for place in sequence_places()]
    # the component that has a sequence, if that is not the step itself
    nested = [place.rpartition("/")[0] for place in sequence_places()]
    components = [place for place in nested if place and "*" not in place]
    entries = "|".join(["/skills", *sequences])
    part = "|".join([f"(?:{entries})/[^/]+", *components])
    # the JSON pointer of a component or a step in a blueprint
    part = f"(?:{part})*"
    may_be_absent: dict[str, Any] = {
        "tools": [],
        "mcp": [],
        "handoffs": [],
        "before": [],
        "after": [],
        "config": {},
        "limits": {},
    }
    for kind in of:
        may_be_absent.update(kind.same_as_absent)
    keys = "|".join(may_be_absent)
    schemas_of_steps = [
        place.replace("*", "[^/]+")
        for place in collect(lambda kind: kind.schemas)
    ]
    schemas = "|".join(
        ["/config/response_schema", "/inputs/[^/]+", *schemas_of_steps]
    )
    schema = rf"(?:{_PARAMETERS}|{part}(?:{schemas}))"
    with_names = [
        *("tools", "skills", "inputs", "properties", r"\$defs"),
        *step_keys(),
        *collect(lambda kind: kind.keys_with_names),
    ]
    not_a_name = "".join(rf"(?<!/{key})" for key in with_names)
    return _Comparison(
        breaking=_breaking_changes(part, of),
        new_input=re.compile(rf"{part}/inputs/[^/]+"),
        limit=re.compile(rf"{part}/limits/[^/]+"),
        may_be_absent={**may_be_absent, "required": []},
        optional=re.compile(
            rf"{part}/(?:{keys})"
            rf"|{schema}(?:/(?:(?:properties|\$defs)/[^/]+|items|anyOf/[^/]+))*/required"
        ),
        harmless=re.compile(
            rf".*{not_a_name}/(description|title|examples(/.*)?)"
            rf"|{part}/metadata(/.*)?|/skills/[^/]+/config(/.*)?|{part}/config(?!/response_schema)(/.*)?"
        ),
    )


def _breaking_changes(part: str, of: Kinds) -> Rules:
    """Return the patterns of breaking changes.

    Args:
        part: The pattern of the JSON pointer of a component or a step.
        of: The kinds of steps.
    """
    rules: list[tuple[str, Sequence[Operation]]] = [
        ("/name", ["changed"]),
        # callers give inputs, and leave out those that have a default; see also `_is_breaking`
        (rf"{part}/inputs/[^/]+/default", ["removed"]),
        (rf"{part}/inputs/[^/]+/default/.*", []),
        (rf"{part}/inputs(/.*)?", ANY_CHANGE),
        # callers and later steps read what is answered
        (
            rf"(/steps/[^/]+/config|/config|{part})/response_schema(/.*)?",
            ANY_CHANGE,
        ),
        (rf"{part}/limits/[^/]+", ["added"]),
        # each tool, function, agent and condition must be supplied to rebuild the component
        (r"(/(skills|steps)/[^/]+)?/tools/[^/]+", ["added"]),
        (rf"{_MEMBER}/(before|after)/[^/]+", ["added"]),
        # the operator has to name each server; tools of a server come with the lock
        (rf"{_MEMBER}/mcp/[^/]+", ["added"]),
        (
            rf"{_MEMBER}/mcp/[^/]+/tools/[^/]+/(on_error|approval)",
            ["added", "changed"],
        ),
        # each agent must be supplied
        (rf"{_MEMBER}/handoffs/[^/]+", ["added"]),
        # a model may leave optional parameters out
        (rf"{_PARAMETERS}/properties/[^/]+", ["removed"]),
        (rf"{_PARAMETERS}/properties/[^/]+/default(/.*)?", []),
        (rf"{_PARAMETERS}/required/[^/]+", ["added"]),
        (rf"{_PARAMETERS}(/.*)?", ANY_CHANGE),
        (
            r"(/(skills|steps)/[^/]+)?/tools/[^/]+/(on_error|approval)",
            ["added", "changed"],
        ),
    ]
    # outputs and resume paths depend on the steps, and a new step may need an agent
    for place in sequence_places():
        sequence = place.replace("*", r"\d+")
        rules.append((rf"{part}{sequence}(/[^/]+)?", ANY_CHANGE))
        if place.endswith("/*"):
            rules.append((rf"{part}{place[:-2]}(/[^/]+)?", ANY_CHANGE))
    for kind in of:
        for pattern, operations in kind.breaking:
            rules.append((part + pattern, operations))
    rules.append((rf"{part}/type", ["changed"]))
    rules.append(("/skills/[^/]+", ["added", "removed"]))
    return rules


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


def lock_changes(
    old: Mapping[str, Any], new: Mapping[str, Any]
) -> list[Change]:
    """The changes from one lock of MCP tools to another, with pointers such as `/mcp.lock/files/read_file/description`.

    None of them is breaking: the model is shown other texts or parameters.

    Args:
        old: The lock as JSON data.
        new: The other one.
    """
    before = _locked(old)
    after = _locked(new)
    return list(_compare(before, after, "/mcp.lock"))


def _locked(lock: Mapping[str, Any]) -> dict[str, Any]:
    """The definitions of a lock by server and tool, without their digests."""
    return {
        server: {
            tool: entry["definition"] for tool, entry in each["tools"].items()
        }
        for server, each in lock["servers"].items()
    }


def _compare(old: Any, new: Any, at: str) -> Iterator[Change]:
    """The changes of a value and of what is in it.

    Args:
        old: The value before.
        new: The value after.
        at: JSON pointer to the value.
    """
    if _HOOKS.fullmatch(at):
        old = _as_list(old)
        new = _as_list(new)
        before = {name: name for name in old}
        after = {name: name for name in new}
    elif _REQUIRED.fullmatch(at):
        before = _names(old)
        after = _names(new)
    elif _SERVER_TOOLS.fullmatch(at):
        before = _server_tools(old)
        after = _server_tools(new)
    elif _HANDOFFS.fullmatch(at):
        before = _handoffs(old)
        after = _handoffs(new)
    else:
        key = "server" if _SERVERS.fullmatch(at) else "name"
        before = _entries(old, key)
        after = _entries(new, key)
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
    comparison = _comparison()
    if comparison.optional.fullmatch(at):
        empty = comparison.may_be_absent[key]
    was = before.get(key, empty)
    now = after.get(key, empty)
    is_in_both = key in before and key in after
    may_be_absent = empty is not None and type(was) is type(now)
    if _HOOKS.fullmatch(at):
        may_be_absent = True
    if is_in_both or may_be_absent:
        yield from _compare(was, now, at)
    elif key in before:
        yield _change(at, "removed", old=was)
    else:
        yield _change(at, "added", new=now)


def _entries(value: Any, key: str = "name") -> dict[Any, Any] | None:
    """The parts of an object or an array; those of an array by name if each has its own name, else by index.

    Args:
        value: The object or array.
        key: The key of a part's name.
    """
    if isinstance(value, dict):
        return cast("dict[str, Any]", value)
    if not isinstance(value, list):
        return None
    items = cast("list[Any]", value)
    by_name: dict[Any, Any] = {}
    for item in items:
        name = as_object(item).get(key)
        if isinstance(name, str) and name:
            by_name[name] = item
    if len(by_name) == len(items):
        return by_name
    return dict(enumerate(items))


def _server_tools(value: Any) -> dict[Any, Any]:
    """The tools of an MCP server by name; one that is only a name has no options."""
    tools: dict[Any, Any] = {}
    for item in as_array(value):
        options = dict(as_object(item))
        tools[options.pop("name", item)] = options
    return tools


def _handoffs(value: Any) -> dict[Any, Any]:
    """The agents that one hands off to by name; one that is only a name has nothing besides."""
    handoffs = handoffs_of({"handoffs": value})
    return {
        name: {"when": when} if when else {} for name, when in handoffs.items()
    }


def _as_list(value: Any) -> list[Any]:
    """The items of a list; a single value is one."""
    if isinstance(value, list):
        return cast("list[Any]", value)
    return [value]


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
    comparison = _comparison()
    if comparison.harmless.fullmatch(at):
        return False
    if op == "added" and comparison.new_input.fullmatch(at):
        return "default" not in as_object(new)
    if op == "changed" and comparison.limit.fullmatch(at):
        return new < old
    for pattern, operations in comparison.breaking:
        if re.fullmatch(pattern, at):
            return op in operations
    return False
