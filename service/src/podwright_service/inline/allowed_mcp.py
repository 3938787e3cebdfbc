"""The MCP tools that inline blueprints may name."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, cast

from podwright.blueprints.mcp_tools import MCPToolName
from podwright.blueprints.schema import ToolOptions
from podwright.components import Component
from podwright.data.text import did_you_mean
from podwright.errors import ConfigurationError
from podwright.folders.walks import mcp_tools_of
from podwright.tools.tool import Tool

if TYPE_CHECKING:
    from podwright.mcp.definitions import ToolDefinition
    from podwright.mcp.entries import MCPSource
    from podwright.mcp.server import MCPServer

ANY = "*"
"""Stands for all tools of a server."""
MCPToolKey = tuple[str, str]
"""A server, and a tool as the server calls it."""


@dataclass(frozen=True, slots=True)
class AllowedMCP:
    """The MCP tools that inline blueprints may name."""

    servers: Mapping[str, MCPServer] = field(
        default_factory=dict[str, "MCPServer"]
    )
    """The servers that have such tools, by name."""
    tools: frozenset[MCPToolKey] = frozenset()
    """The tools; of the name `*`, all tools of a server."""
    served: Mapping[MCPToolKey, Sequence[Tool]] = field(
        default_factory=dict[MCPToolKey, "Sequence[Tool]"]
    )
    """The tools of the served component, of which two may be the same tool with other options."""

    def allows(self, server: str, tool: str) -> bool:
        """Whether an inline blueprint may name a tool."""
        return (server, tool) in self.tools or (server, ANY) in self.tools

    def of(self, server: str, tool: str) -> Sequence[Tool]:
        """The tools than which a tool of an inline blueprint may be no less strict.

        One that the served component does not name has the strictest options: its calls are not repeated.
        """
        if (server, tool) in self.served:
            return self.served[server, tool]
        from podwright.mcp.entries import MCPSource
        from podwright.mcp.mcp_tool import MCPTool

        name = MCPToolName(server, tool, tool, ToolOptions(), "")
        return [MCPTool(name, MCPSource(), None)]

    def tools_of(self, server: str) -> list[str]:
        """The names of the tools of a server that are known, and that an inline blueprint may name."""
        names = {
            tool
            for name, tool in (*self.tools, *self.served)
            if name == server and self.allows(server, tool)
        }
        return sorted(names - {ANY})

    def names(self) -> list[str]:
        """The tools as `server/tool`, and as `server` where all its tools are allowed."""
        return sorted(
            f"{server}/{tool}".removesuffix(f"/{ANY}")
            for server, tool in self.tools
        )

    def source(self) -> MCPSource | None:
        """Return the servers for one inline blueprint; None if there are none.

        A blueprint of a request has no lock. What the lock of the served component has is shown to the model as it is
        there; other definitions come from their server, within the limits of definitions, when the run begins.
        """
        if not self.servers:
            return None
        from podwright.mcp.entries import MCPSource

        return MCPSource(
            self.servers, learned=self._locked(), options=self._options()
        )

    def _locked(self) -> dict[MCPToolKey, ToolDefinition]:
        from podwright.mcp.mcp_tool import MCPTool

        return {
            key: tool.locked
            for key, tools in self.served.items()
            for tool in tools
            if isinstance(tool, MCPTool) and tool.locked is not None
        }

    def _options(self) -> dict[MCPToolKey, ToolOptions]:
        return {
            key: _strictest([tool.options for tool in tools])
            for key, tools in self.served.items()
        }


NO_MCP = AllowedMCP()


def _strictest(options: Sequence[ToolOptions]) -> ToolOptions:
    """Return the strictest value of each option, for a tool that is named several times."""
    strictest: ToolOptions = {}
    if all(each.get("idempotent", False) for each in options):
        strictest["idempotent"] = True
    if any(each.get("on_error") == "fail" for each in options):
        strictest["on_error"] = "fail"
    if any(each.get("approval", False) for each in options):
        strictest["approval"] = True
    timeouts = [each["timeout"] for each in options if "timeout" in each]
    if timeouts:
        strictest["timeout"] = min(timeouts)
    sizes = [
        each["max_result_tokens"]
        for each in options
        if "max_result_tokens" in each
    ]
    if sizes:
        strictest["max_result_tokens"] = min(sizes)
    return strictest


def allowed_mcp(
    component: Component,
    servers: Mapping[str, MCPServer],
    allowed: Collection[str] | None,
) -> AllowedMCP:
    """Return the MCP tools that inline blueprints may name.

    Args:
        component: The served component.
        servers: The servers of the service.
        allowed: Names `server` or `server/tool`; by default the tools of the component.

    Raises:
        ConfigurationError: A name is that of no server.
    """
    served: dict[MCPToolKey, list[Tool]] = {}
    for tool in mcp_tools_of(component):
        served.setdefault((tool.mcp_server, tool.mcp_tool), []).append(tool)
    keys = {*served}
    if allowed is not None:
        keys = {_key(name, servers) for name in allowed}
    named = {server for server, _ in keys}
    return AllowedMCP(
        servers={
            name: server for name, server in servers.items() if name in named
        },
        tools=frozenset(keys),
        served=cast("Mapping[MCPToolKey, Sequence[Tool]]", served),
    )


def _key(name: str, servers: Mapping[str, MCPServer]) -> MCPToolKey:
    server, _, tool = name.partition("/")
    if server not in servers:
        hint = did_you_mean(server, servers)
        raise ConfigurationError(
            f"PODWRIGHT_ALLOWED_MCP names '{name}', and there is no MCP server '{server}'.",
            suggestion=hint
            or "Name it in PODWRIGHT_MCP_SERVERS, or unset PODWRIGHT_ALLOWED_MCP.",
        )
    return server, tool or ANY
