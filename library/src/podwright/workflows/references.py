"""The live objects that the steps of a workflow refer to by name."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, cast

from podwright.blueprints.mcp_tools import mcp_function
from podwright.blueprints.schema import ToolOptions
from podwright.data.json_data import (
    JsonMapping,
    as_array,
    as_object,
    json_pointer,
)
from podwright.data.text import did_you_mean
from podwright.errors import ConfigurationError, Problem
from podwright.mcp.attach import attach_mcp
from podwright.run.component import Component
from podwright.steps import AgentStep, Step
from podwright.steps.condition_step import ConditionLike
from podwright.steps.registry import walk_steps
from podwright.tools.function_tool import to_tool
from podwright.tools.tool import Tool
from podwright.workflows.agent_map import AgentMap

if TYPE_CHECKING:
    from podwright.mcp.entries import MCPSource
    from podwright.mcp.server import MCPServer


@dataclass(slots=True)
class References:
    """The live objects that the steps of a workflow refer to by name."""

    agents: AgentMap = field(default_factory=AgentMap)
    conditions: dict[str, Callable[..., Any]] = field(
        default_factory=dict[str, Callable[..., Any]]
    )
    functions: dict[str, Tool] = field(default_factory=dict[str, Tool])
    mcp: Mapping[str, MCPServer] | MCPSource | None = None
    """The MCP servers, and the lock of their tools."""
    mcp_functions: dict[tuple[str, str], Tool] = field(
        default_factory=dict[tuple[str, str], Tool]
    )
    """The tools of MCP servers that steps call, by server and tool, without what the steps say of the calls."""

    def add_agent(self, name: str, agent: object) -> None:
        """Add an agent under a name.

        Raises:
            ConfigurationError: It is not a component, or another one has that name.
        """
        if not isinstance(agent, Component):
            raise ConfigurationError(
                f"The agent '{name}' must be a component, not {agent!r}."
            )
        if self.agents.setdefault(name, agent) is not agent:
            raise ConfigurationError(
                f"Two agents are called '{name}'.",
                suggestion="Give each its own name.",
            )

    def add_condition(self, name: str, condition: Callable[..., Any]) -> None:
        """Add a condition under a name.

        Raises:
            ConfigurationError: Another one has that name.
        """
        if self.conditions.setdefault(name, condition) is not condition:
            raise ConfigurationError(
                f"Two conditions are called '{name}'.",
                suggestion="Rename one of them.",
            )

    def add_function(self, function: Callable[..., Any], name: str = "") -> str:
        """Add a function under a name, by default its own, and return the name.

        Raises:
            ConfigurationError: Another one has that name, or it cannot be called with JSON data.
        """
        tool = to_tool(function)
        name = name or tool.name
        known = self.functions.setdefault(name, tool.renamed(name))
        if not known.is_same_as(tool):
            raise ConfigurationError(
                f"Two functions are called '{name}'.",
                suggestion="Rename one of them.",
            )
        return name

    def replace_function(self, name: str, original: Tool, tool: Tool) -> None:
        """Call another tool in place of a function, or of a tool of an MCP server.

        Args:
            name: The name of the function.
            original: The tool as it was.
            tool: The other tool.
        """
        if self.functions.get(name) is original:
            self.functions[name] = tool
        for key, known in self.mcp_functions.items():
            if known is original:
                self.mcp_functions[key] = tool

    def add_mcp_function(self, tool: Tool) -> None:
        """Add a tool of an MCP server that a step of a nested workflow calls.

        Raises:
            ConfigurationError: Another server has its name, or another definition of it is locked.
        """
        key = (tool.mcp_server, tool.mcp_tool)
        if not self.mcp_functions.setdefault(key, tool).is_same_as(tool):
            raise ConfigurationError(
                f"Two MCP servers are called '{tool.mcp_server}'.",
                suggestion="Rename one of them.",
            )

    def add_mcp_functions(self, blueprint: JsonMapping) -> list[Problem]:
        """Add the tools of MCP servers that the steps of a blueprint call, nested ones included.

        Returns:
            The servers that were not given, tools without a definition, and arguments that tools do not take.
        """
        problems: list[Problem] = []
        for pointer, step in walk_steps(blueprint.get("steps")):
            name = mcp_function(step, pointer)
            if name is None:
                continue
            key = (name.server, name.tool)
            if key not in self.mcp_functions:
                plain = replace(name, options=ToolOptions())
                tools, found = attach_mcp([plain], self.mcp, returns_data=True)
                problems += found
                for tool in tools.values():
                    self.mcp_functions[key] = tool
            if key in self.mcp_functions:
                known = self.mcp_functions[key]
                problems += argument_problems(known, step, pointer)
        return problems

    def name_of_agent(self, agent: object) -> str:
        """Return the name of an agent, which is added if it is not a name itself.

        Raises:
            ConfigurationError: It is not an agent, or another one has that name.
        """
        if isinstance(agent, Component):
            self.add_agent(agent.name, agent)
            return agent.name
        if not isinstance(agent, str):
            raise ConfigurationError(
                f"AgentStep takes an agent or its name, not {agent!r}."
            )
        return agent

    def resolve(self, steps: object) -> tuple[Step, ...]:
        """Return steps as a caller gives them, with names and defaults filled in; they refer to agents by name.

        Raises:
            ConfigurationError: Something is not a step, or one name means two objects.
        """
        if isinstance(steps, str) or not isinstance(steps, Sequence):
            raise ConfigurationError(f"Steps must be a list, not {steps!r}.")
        entries = cast("Sequence[object]", steps)
        return tuple(map(self._resolve_step, entries))

    def _resolve_step(self, step: object) -> Step:
        if isinstance(step, Component):
            step = AgentStep(step)
        if not isinstance(step, Step):
            raise ConfigurationError(
                f"Expected a step such as AgentStep or LoopStep, not {step!r}."
            )
        return step.resolve(self)

    def resolve_condition(self, condition: ConditionLike) -> JsonMapping:
        """Return a reference to a condition by name.

        Raises:
            ConfigurationError: It is not a condition, or another one has that name.
        """
        if isinstance(condition, str):
            return {"name": condition}
        if isinstance(condition, Mapping):
            return dict(cast("JsonMapping", condition))
        name = getattr(condition, "__name__", "")
        if not callable(condition) or not name.isidentifier():
            raise ConfigurationError(
                f"A condition must be a named function, a name, or an object with a name, not {condition!r}.",
                suggestion="Write it as a `def` function; a blueprint refers to it by name.",
            )
        self.add_condition(name, condition)
        return {"name": name}


def argument_problems(
    tool: Tool, step: JsonMapping, pointer: str
) -> Iterator[Problem]:
    """Yield the arguments of a function step that its function does not take, and those that it lacks.

    Args:
        tool: The function.
        step: The step.
        pointer: Its JSON pointer.
    """
    parameters = tool.schema["function"]["parameters"]
    known = as_object(parameters.get("properties"))
    given = as_object(step.get("arguments"))
    for name in given:
        if name not in known and not tool.takes_any_argument:
            yield Problem(
                f"{pointer}/arguments{json_pointer(name)}",
                detail=f"The function '{tool.name}' has no parameter '{name}'.",
                suggestion=did_you_mean(name, known),
            )
    for name in as_array(parameters.get("required")):
        if name not in given:
            yield Problem(
                f"{pointer}/arguments",
                detail=f"The function '{tool.name}' needs the argument '{name}'.",
            )
