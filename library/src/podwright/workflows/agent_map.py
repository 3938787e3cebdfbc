"""The agents that a blueprint may refer to by name, and the problem of a reference to one that is missing."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from podwright.data.text import did_you_mean
from podwright.errors import Problem
from podwright.run.component import Component
from podwright.run.options import named_map


class AgentMap(dict[str, Component]):
    """Agents by name, with what is known about others that a blueprint names.

    Args:
        agents: The agents by name.
        lookups: Suggestions about agents that are missing, by name, such as where they were looked up.
        awaited: The names of agents that another one supplies, and which are not missing.
    """

    def __init__(
        self,
        agents: Mapping[str, Component] = {},
        lookups: Mapping[str, str] | None = None,
        awaited: Collection[str] = (),
    ) -> None:
        super().__init__(agents)
        self.lookups = lookups or {}
        self.awaited = awaited

    def missing(self, name: str, pointer: str) -> list[Problem]:
        """The problem of a reference to an agent, if there is no such agent.

        Args:
            name: The agent.
            pointer: JSON pointer to the reference.
        """
        if name in self or name in self.awaited:
            return []
        hint = "Define it, pass it in agents={…}, or name its service in PODWRIGHT_AGENTS."
        known = self.lookups.get(name) or did_you_mean(name, self)
        if known:
            hint = f"{known} {hint}"
        return [Problem(pointer, f"Missing agent '{name}'.", hint)]


def agent_map(value: object) -> AgentMap:
    """Copy a caller's map of agents; an `AgentMap` is returned as it is.

    Raises:
        ConfigurationError: It is not a map.
    """
    if isinstance(value, AgentMap):
        return value
    return AgentMap(named_map(value, "agents"))
