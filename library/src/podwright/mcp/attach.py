"""The MCP tools of a blueprint, for components: nothing of MCP is imported for one that names none."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from podwright.blueprints.mcp_tools import MCPToolName
from podwright.errors import Problem
from podwright.tools.tool import Tool

if TYPE_CHECKING:
    from podwright.mcp.entries import MCPSource
    from podwright.mcp.server import MCPServer


def attach_mcp(
    names: Iterable[MCPToolName],
    mcp: Mapping[str, MCPServer] | MCPSource | None,
    *,
    returns_data: bool = False,
) -> tuple[dict[str, Tool], list[Problem]]:
    """Make the MCP tools that a blueprint names; see `podwright.mcp.entries.attach_mcp_tools`.

    Raises:
        ConfigurationError: The servers are not a map of servers.
    """
    named = list(names)
    # a caller without servers gives an empty map
    if not named and not mcp:
        return {}, []
    from podwright.mcp.entries import attach_mcp_tools, to_source

    source = to_source(mcp)
    tools, problems = attach_mcp_tools(named, source, returns_data=returns_data)
    return dict(tools), problems
