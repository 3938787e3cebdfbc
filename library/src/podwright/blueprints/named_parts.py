"""The agents, functions, conditions and tools that a blueprint names."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Literal

from podwright.blueprints.members import handoffs_of, members_of, parts_of
from podwright.data.json_data import JsonMapping, as_array, as_object, walk_json
from podwright.data.tool_names import TOOL_NAME
from podwright.steps.registry import collect, walk_steps

Hook = Literal["before", "after"]
HOOKS: tuple[Hook, ...] = ("before", "after")
"""The keys of the functions before and after the work of a component."""
_REFERENCE_KEYS = {"type", "name", "version", "description", "conversation"}
"""The keys of a member that is nothing but a reference to an agent."""
_OF_SERVER = re.compile(r"/mcp/\d+/tools$")
"""The JSON pointer of tools that are not functions, but an MCP server's."""


def tool_names(blueprint: JsonMapping) -> set[str]:
    """The tools that a blueprint and its members name; a name that no tool can have is a problem of the blueprint."""
    return set(_tool_names(blueprint))


def _tool_names(blueprint: JsonMapping) -> Iterator[str]:
    for pointer, value, _ in walk_json(dict(blueprint)):
        if not pointer.endswith("/tools") or _OF_SERVER.search(pointer):
            continue
        for entry in as_array(value):
            name = as_object(entry).get("name")
            if isinstance(name, str) and TOOL_NAME.fullmatch(name):
                yield name


def condition_names(blueprint: JsonMapping) -> set[str]:
    """The conditions that a workflow's blueprint names, those in arguments of other conditions included."""
    return set(_condition_names(blueprint))


def _condition_names(blueprint: JsonMapping) -> Iterator[str]:
    keys = collect(lambda kind: kind.condition_keys)
    for _, step in walk_steps(blueprint.get("steps")):
        for key in keys:
            yield from names_in_condition(step.get(key))


def names_in_condition(condition: object) -> Iterator[str]:
    """The name of a condition, and those of the conditions in its arguments."""
    for _, value, _ in walk_json(condition):
        name = as_object(value).get("name")
        if isinstance(name, str):
            yield name


def function_names(blueprint: JsonMapping) -> set[str]:
    """The functions that a blueprint names: those of a workflow's steps, and those before and after the work."""
    return {*step_function_names(blueprint), *_hook_names(blueprint)}


def step_function_names(blueprint: JsonMapping) -> set[str]:
    """The functions that the steps of a workflow's blueprint call."""
    keys = collect(lambda kind: kind.function_keys)
    return {
        step[key]
        for _, step in walk_steps(blueprint.get("steps"))
        for key in keys
        if isinstance(step.get(key), str)
    }


def _hook_names(blueprint: JsonMapping) -> Iterator[str]:
    for part in parts_of(blueprint).values():
        for _, name in hook_names(part):
            yield name


def hook_names(
    part: JsonMapping, keys: Iterable[Hook] = HOOKS
) -> Iterator[tuple[str, str]]:
    """Yield the functions before and after the work of one component, each with its JSON pointer.

    Args:
        part: The blueprint of an agent, a conductor or a pipeline, or a member, valid or not.
        keys: Which of the two lists.
    """
    for key in keys:
        names = part.get(key)
        if isinstance(names, str):
            yield f"/{key}", names
        for number, name in enumerate(as_array(names)):
            if isinstance(name, str):
                yield f"/{key}/{number}", name


def agent_names(blueprint: JsonMapping) -> list[str]:
    """The agents that a blueprint refers to by name only, each once."""
    return list(
        dict.fromkeys([*member_names(blueprint), *handoff_names(blueprint)])
    )


def member_names(blueprint: JsonMapping) -> list[str]:
    """The agents that the steps of a blueprint, or its members, refer to by name only, each once."""
    names: dict[str, None] = {}
    for name in _member_names(blueprint):
        if isinstance(name, str):
            names[name] = None
    return list(names)


def _member_names(blueprint: JsonMapping) -> Iterator[object]:
    """As `member_names`, but a name may come more than once, and of an invalid blueprint have any type."""
    keys = collect(lambda kind: kind.agent_keys)
    for _, step in walk_steps(blueprint.get("steps")):
        yield from map(step.get, keys)
    for _, member in members_of(blueprint):
        if _is_reference(member):
            yield member.get("name")


def handoff_names(blueprint: JsonMapping) -> list[str]:
    """The agents that a blueprint and its members hand off to, each once, apart from those that hand off."""
    names: dict[str, str] = {}
    for part in parts_of(blueprint).values():
        names |= handoffs_of(part)
    own = handing_over(blueprint)
    return [name for name in names if name not in own]


def handing_over(blueprint: JsonMapping) -> set[str]:
    """The names of the agents that a blueprint is or defines and that hand off to others."""
    return {
        str(part.get("name"))
        for part in parts_of(blueprint).values()
        if handoffs_of(part)
    }


def _is_reference(member: JsonMapping) -> bool:
    """Whether an entry refers to an agent without defining it."""
    if member.get("type", "Agent") != "Agent":
        return False
    return member.keys() <= _REFERENCE_KEYS
