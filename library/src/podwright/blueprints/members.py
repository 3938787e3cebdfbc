"""The parts of a blueprint: the component itself, the members that it defines or names, and whom it hands off to."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from podwright.data.json_data import (
    JsonMapping,
    JsonObject,
    as_array,
    as_object,
    json_pointer,
)
from podwright.kinds import TRAITS

_MEMBER_KEYS = sorted({each.member_key for each in TRAITS.values()} - {""})


def members_of(blueprint: JsonMapping) -> Iterator[tuple[str, JsonObject]]:
    """Yield the JSON pointer and the entry of each member of a conductor or a pipeline, and of each step of a workflow.

    Args:
        blueprint: A blueprint of any kind, valid or not.
    """
    for key in _MEMBER_KEYS:
        for number, entry in enumerate(as_array(blueprint.get(key))):
            yield json_pointer(key, number), as_object(entry)


def parts_of(blueprint: JsonMapping) -> Mapping[str, JsonMapping]:
    """Return the blueprint itself and its members, by JSON pointer; see `members_of`."""
    return {"": blueprint, **dict(members_of(blueprint))}


def handoffs_of(part: JsonMapping) -> dict[str, str]:
    """Return the agents that an agent may hand its conversation over to by name, each with when; malformed ones not.

    Args:
        part: The blueprint of a component or a member, valid or not.
    """
    handoffs: dict[str, str] = {}
    for item in as_array(part.get("handoffs")):
        entry = as_object(item)
        name = entry.get("agent", item)
        if isinstance(name, str):
            handoffs[name] = str(entry.get("when", ""))
    return handoffs
