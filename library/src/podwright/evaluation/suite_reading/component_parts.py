"""What a suite may name of a component: its blueprints, members, tools and functions, without loading it."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from podwright import blueprints
from podwright.blueprints.mcp_tools import all_mcp_tools
from podwright.blueprints.members import handoffs_of, parts_of
from podwright.blueprints.named_parts import function_names, tool_names
from podwright.blueprints.validation import Blueprint
from podwright.data.json_data import as_array
from podwright.data.tool_names import skill_tool_names, transfer_tool_names
from podwright.evaluation.overrides import Members
from podwright.folders.folder import Folder
from podwright.steps.registry import walk_steps


@dataclass(frozen=True, slots=True)
class ComponentParts:
    """The blueprints of a component folder and of the agents that they name."""

    blueprint: Blueprint
    agents: Mapping[str, Blueprint]
    """The blueprints of its agents and of theirs, by name."""
    python_agents: Sequence[str]
    """The agents in Python, and those that other containers run."""
    members: Members

    @classmethod
    def of(cls, folder: Folder) -> ComponentParts:
        """Read the blueprints of a folder.

        Raises:
            BlueprintValidationError: One of them is invalid.
            ConfigurationError: One of them cannot be read, or an `agents.py` cannot be imported.
        """
        folder.use_code()
        own = _read(folder.blueprint_file())
        agents: dict[str, Blueprint] = {}
        sources = [own]
        others: list[str] = []
        seen: set[Path] = {folder.path}
        pending: list[tuple[Folder, Blueprint]] = [(folder, own)]
        while pending:
            owner, blueprint = pending.pop()
            for source in owner.agents(blueprint):
                value = source.value
                if source.place == "missing" or not isinstance(
                    value, Path | Folder
                ):
                    others.append(source.name)
                    continue
                inside = value if isinstance(value, Folder) else source.owner
                path = value if isinstance(value, Path) else value.path
                if path in seen:
                    continue
                seen.add(path)
                file = path if path.is_file() else inside.blueprint_file()
                agent = _read(file)
                agents.setdefault(source.name, agent)
                sources.append(agent)
                pending.append((inside, agent))
        return cls(own, agents, others, Members(sources, others))

    @property
    def callable_names(self) -> Collection[str] | None:
        """The names of the tools and functions that a run may call; None if agents in Python may call others."""
        if self.python_agents:
            return None
        names: set[str] = set()
        for blueprint in self.members.sources:
            names |= tool_names(blueprint) | function_names(blueprint)
            names |= {tool.name for tool in all_mcp_tools(blueprint)}
            skills = as_array(blueprint.get("skills"))
            names |= {*skill_tool_names([each["name"] for each in skills])}
            for part in parts_of(blueprint).values():
                names |= {*transfer_tool_names(handoffs_of(part), ())}
        return names

    @property
    def approval_options(self) -> Collection[str]:
        """What persons may decide at the approval steps, as far as the steps say it."""
        return {
            option
            for blueprint in self.members.sources
            for _, step in walk_steps(blueprint.get("steps"))
            for option in as_array(step.get("options"))
        }

    @property
    def is_closed(self) -> bool:
        """Whether a run has no other names than those that its blueprint says."""
        return "before" not in self.blueprint


def _read(file: Path) -> Blueprint:
    blueprint = blueprints.read_file(file)
    found = blueprints.problems(blueprint)
    if found:
        raise blueprints.invalid(found, f"The blueprint '{file}'")
    return blueprint
