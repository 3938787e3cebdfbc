"""The tools of MCP servers that a blueprint names."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import cast

from podwright.blueprints.members import parts_of
from podwright.blueprints.schema import ToolOptions
from podwright.data.json_data import (
    JsonMapping,
    as_array,
    as_object,
)
from podwright.data.text import short_repr
from podwright.data.tool_names import REVISE_PLAN, TOOL_NAME, skill_tool_names
from podwright.errors import Problem
from podwright.steps.registry import walk_steps


@dataclass(frozen=True, slots=True)
class MCPToolName:
    """A tool of an MCP server, as a blueprint names it."""

    server: str
    """The operator's name of the server."""
    tool: str
    """The tool as the server calls it."""
    name: str
    """The name by which the model calls it: the server's, after the prefix of the entry."""
    options: ToolOptions
    """The options of its calls, by the entry."""
    pointer: str
    """JSON pointer of the entry."""

    @property
    def server_pointer(self) -> str:
        """JSON pointer of the name of the server."""
        above = re.sub(r"/tools/\d+$", "", self.pointer)
        return f"{above}/server"


def mcp_tools(blueprint: JsonMapping, at: str = "") -> Iterator[MCPToolName]:
    """Yield the tools of MCP servers that the model of a component has; malformed entries are skipped.

    Args:
        blueprint: The blueprint of an agent, a member or a conductor, valid or not.
        at: Its JSON pointer.
    """
    for number, entry in enumerate(as_array(blueprint.get("mcp"))):
        fields = as_object(entry)
        server = fields.get("server")
        if not isinstance(server, str):
            continue
        prefix = fields.get("prefix", "")
        tools = as_array(fields.get("tools"))
        for index, item in enumerate(tools):
            options = dict(as_object(item))
            tool = options.pop("name", item)
            if not isinstance(tool, str):
                continue
            yield MCPToolName(
                server,
                tool,
                name=f"{prefix}{tool}",
                options=cast("ToolOptions", options),
                pointer=f"{at}/mcp/{number}/tools/{index}",
            )


def mcp_functions(
    blueprint: JsonMapping, at: str = ""
) -> Iterator[MCPToolName]:
    """Yield the tools of MCP servers that the steps of a workflow call as functions; malformed ones are skipped.

    Args:
        blueprint: The blueprint of any kind, valid or not.
        at: Its JSON pointer.
    """
    for pointer, step in walk_steps(blueprint.get("steps"), f"{at}/steps"):
        function = mcp_function(step, pointer)
        if function is not None:
            yield function


def mcp_function(step: JsonMapping, at: str) -> MCPToolName | None:
    """Return the tool of an MCP server that a step calls as a function; None if it calls none.

    Args:
        step: The step, valid or not.
        at: Its JSON pointer.
    """
    match step.get("mcp"):
        case {"server": str(server), "tool": str(tool), **options}:
            return MCPToolName(
                server,
                tool,
                name=tool,
                options=cast("ToolOptions", options),
                pointer=f"{at}/mcp",
            )
        case _:
            return None


def all_mcp_tools(blueprint: JsonMapping) -> Iterator[MCPToolName]:
    """Yield the tools of MCP servers that a blueprint names, for its model, its members and its steps."""
    for at, part in parts_of(blueprint).items():
        yield from mcp_tools(part, at)
    yield from mcp_functions(blueprint)


def mcp_servers(blueprint: JsonMapping) -> list[str]:
    """Return the MCP servers that a blueprint and its members name, each once."""
    return list(dict.fromkeys(tool.server for tool in all_mcp_tools(blueprint)))


def mcp_problems(blueprint: JsonMapping) -> Iterator[Problem]:
    """Yield what is wrong with the names of tools in a blueprint whose shape is valid."""
    for at, part in parts_of(blueprint).items():
        yield from _skill_problems(part, at)
        yield from _name_problems(part, at)


def _skill_problems(part: JsonMapping, at: str) -> Iterator[Problem]:
    """Yield the tools of a conductor that are called like its skills."""
    skills = _skill_names(part)
    for number, entry in enumerate(as_array(part.get("tools"))):
        if entry["name"] in skills:
            yield Problem(
                f"{at}/tools/{number}/name",
                detail=f"Two tools are called '{entry['name']}': this one, and a tool of the conductor itself.",
                suggestion="Rename the function, or the skill.",
            )


def _skill_names(part: JsonMapping) -> list[str]:
    """Return the names by which a conductor's model calls its skills and revises its plan; none for other kinds."""
    skills = [entry["name"] for entry in as_array(part.get("skills"))]
    if not skills:
        return []
    return [*skill_tool_names(skills), REVISE_PLAN]


def tools_besides_mcp(part: JsonMapping) -> dict[str, str]:
    """Return the names by which a model calls its tools that are not from MCP servers, each with what it stands for.

    Args:
        part: The blueprint of a component or a member, of a valid shape.
    """
    tools = [entry["name"] for entry in as_array(part.get("tools"))]
    names = dict.fromkeys(tools, "an entry of 'tools'")
    own = _skill_names(part)
    return names | dict.fromkeys(own, "a tool of the conductor itself")


def _name_problems(part: JsonMapping, at: str) -> Iterator[Problem]:
    """Yield the names that providers refuse, and those that stand for two tools.

    Args:
        part: The component or member.
        at: Its JSON pointer.
    """
    others = tools_besides_mcp(part)
    taken: dict[str, MCPToolName] = {}
    for tool in mcp_tools(part, at):
        if not TOOL_NAME.fullmatch(tool.name):
            yield Problem(
                tool.pointer,
                detail=f"Models cannot call a tool {short_repr(tool.name)}: expected letters a to z and A to Z, "
                "digits, '_' and '-', at most 64 characters.",
                suggestion="Shorten the prefix, or name another tool.",
            )
            continue
        earlier = taken.setdefault(tool.name, tool)
        if tool.name in others:
            yield _same_name_problem(tool, others[tool.name])
        elif earlier is not tool:
            other = f"the tool '{earlier.tool}' of server '{earlier.server}'"
            yield _same_name_problem(tool, other)


def _same_name_problem(tool: MCPToolName, other: str) -> Problem:
    return Problem(
        tool.pointer,
        detail=f"Two tools are called '{tool.name}': this one, and {other}.",
        suggestion="Give the entry of the server another 'prefix'.",
    )
