"""The MCP tools of a blueprint: its entries, with the servers that a caller supplies and the lock."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import cast

from podwright.blueprints.mcp_tools import MCPToolName
from podwright.blueprints.schema import ToolOptions
from podwright.data.text import did_you_mean, most_similar, short_repr
from podwright.errors import (
    ConfigurationError,
    Problem,
    ToolDefinitionError,
    ToolError,
)
from podwright.mcp.definitions import ToolDefinition
from podwright.mcp.lock import LOCK_FILE, MCPLock
from podwright.mcp.mcp_tool import MCPTool
from podwright.mcp.request_context import headers_for, traceparent
from podwright.mcp.server import MCPServer

Servers = Mapping[str, MCPServer]
"""MCP servers by the names that blueprints use."""


@dataclass(frozen=True, slots=True)
class MCPSource:
    """Where the MCP tools of a component come from."""

    servers: Servers | None = None
    """The servers; None if they are not known, because nothing is called."""
    lock: MCPLock | None = None
    """The locked definitions; None to trust each definition as the server gives it first."""
    learned: dict[tuple[str, str], ToolDefinition] = field(
        default_factory=dict[tuple[str, str], ToolDefinition]
    )
    """The definitions that servers gave first, by server and tool."""
    options: Mapping[tuple[str, str], ToolOptions] = field(
        default_factory=dict[tuple[str, str], ToolOptions]
    )
    """The default options of tools, by server and tool; those of an entry take precedence."""

    async def learn(
        self, server: MCPServer, name: MCPToolName
    ) -> ToolDefinition:
        """Return the definition of a tool that the server gave first.

        One that may differ by caller, because the server is sent headers of theirs, is the one that the server gave
        this caller last, for as long as it holds.

        Raises:
            ToolError: The server is not reachable, or does not have the tool.
        """
        key = (name.server, name.tool)
        if key in self.learned:
            return self.learned[key]
        listing = await server.list_tools(
            headers_for(server), traceparent(), cached=True
        )
        definition = listing.tools.get(name.tool)
        if definition is None:
            message, hint = listing.missing_tool(name.server, name.tool)
            raise ToolError(message, suggestion=hint)
        if server.headers_from_request:
            return definition
        for tool, first in listing.tools.items():
            # another run may have asked at the same time
            self.learned.setdefault((name.server, tool), first)
        return self.learned[key]


def to_source(mcp: object) -> MCPSource:
    """Return a caller's MCP servers as a source without a lock; a source is returned as it is.

    Raises:
        ConfigurationError: It is not a map of servers.
    """
    if isinstance(mcp, MCPSource):
        return mcp
    return MCPSource(server_map(mcp))


def server_map(servers: object) -> Servers | None:
    """Return a copy of a caller's MCP servers by name, and give each server its name.

    Raises:
        ConfigurationError: It is not a map of servers.
    """
    if servers is None:
        return None
    if not isinstance(servers, Mapping):
        raise ConfigurationError(
            f"'mcp' must map names to MCP servers, not {short_repr(servers)}.",
            suggestion="Write mcp={'files': MCPServer('https://…/mcp')}.",
        )
    named: dict[str, MCPServer] = {}
    for name, server in cast("Mapping[str, object]", servers).items():
        if not isinstance(server, MCPServer):
            raise ConfigurationError(
                f"The MCP server '{name}' must be an MCPServer, not {short_repr(server)}."
            )
        server.name = name
        named[name] = server
    return named


def attach_mcp_tools(
    names: Iterable[MCPToolName],
    source: MCPSource,
    *,
    returns_data: bool = False,
) -> tuple[dict[str, MCPTool], list[Problem]]:
    """Make the MCP tools that a blueprint names.

    Args:
        names: The tools, as the blueprint names them.
        source: The servers and the lock.
        returns_data: See `MCPTool`.

    Returns:
        The tools by the names that the model uses, and the problems: servers that were not given, and tools without a
        definition.
    """
    attached: dict[str, MCPTool] = {}
    problems: dict[str, Problem] = {}
    for name in names:
        missing = _problem(name, source)
        if missing is not None:
            # once for all tools of a server
            problems.setdefault(missing.pointer, missing)
            continue
        locked = None
        if source.lock is not None:
            locked = source.lock.definition(name.server, name.tool)
        options = source.options.get((name.server, name.tool), ToolOptions())
        named = replace(name, options={**options, **name.options})
        try:
            tool = MCPTool(named, source, locked, returns_data=returns_data)
            tool.check_schemas()
        except ToolDefinitionError as error:
            problem = Problem(name.pointer, error.message, error.suggestion)
            problems[name.pointer] = problem
        else:
            attached[name.name] = tool
    return attached, list(problems.values())


def _problem(name: MCPToolName, source: MCPSource) -> Problem | None:
    servers = source.servers
    is_known = servers is not None and name.server in servers
    if not is_known and (servers is not None or source.lock is None):
        return _unknown_server_problem(name, servers or {})
    lock = source.lock
    if lock is None or lock.definition(name.server, name.tool) is not None:
        return None
    hint = f"Run `podwright sync FOLDER --mcp {name.server}`."
    if not lock.servers:
        detail = f"There is no {LOCK_FILE} with the definition of the tool '{name.tool}'."
    else:
        detail = f"{LOCK_FILE} has no definition of the tool '{name.tool}' of the MCP server '{name.server}'."
        similar = most_similar(name.tool, lock.servers.get(name.server, {}))
        if similar is not None:
            hint = f"Did you mean '{similar}'? If not: {hint}"
    return Problem(name.pointer, detail, hint)


def _unknown_server_problem(name: MCPToolName, servers: Servers) -> Problem:
    hint = did_you_mean(
        name.server,
        servers,
        otherwise=f"Pass it in mcp={{'{name.server}': MCPServer(…)}}, or in PODWRIGHT_MCP_SERVERS or --mcp.",
    )
    return Problem(
        name.server_pointer,
        detail=f"Missing MCP server '{name.server}'.",
        suggestion=hint,
    )
