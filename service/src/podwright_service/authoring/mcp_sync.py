"""Updates the lock of a component folder with the definitions that MCP servers have now."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from podwright import blueprints
from podwright.blueprints.diff import Change, blueprint_changes, lock_changes
from podwright.blueprints.mcp_tools import (
    MCPToolName,
    all_mcp_tools,
    mcp_servers,
    mcp_tools,
)
from podwright.blueprints.schema import keys_of
from podwright.blueprints.validation import Blueprint
from podwright.data.json_data import JsonObject
from podwright.data.text import did_you_mean
from podwright.errors import ConfigurationError, Problem
from podwright.folders.folder import Folder
from podwright.mcp.definitions import ToolDefinition
from podwright.mcp.lock import LOCK_FILE, MCPLock
from podwright.mcp.server import MCPServer, ToolListing
from podwright_service.authoring.sync import HOW_TO_NAME_AN_AGENT, SyncedFile
from podwright_service.mcp_servers import servers_of_options
from podwright_service.settings import Settings

ALL = "all"
"""Stands for all tools of a server."""


@dataclass(frozen=True, slots=True)
class SyncedLock:
    """The lock of one folder after the update, and its changes."""

    path: Path
    lock: MCPLock
    """The lock with the new definitions of the servers that were asked, without tools that no blueprint names."""
    changes: Sequence[Change]
    missing: Sequence[MCPToolName]
    """The tools that it has no definition of, because their server was not asked."""


def list_tools(servers: Mapping[str, MCPServer]) -> dict[str, ToolListing]:
    """Ask MCP servers for their tools.

    Raises:
        MCPServerError: A server is not reachable, or its answer is refused.
    """

    async def ask() -> dict[str, ToolListing]:
        listings: dict[str, ToolListing] = {}
        for name, server in servers.items():
            try:
                listings[name] = await server.list_tools()
            finally:
                await server.close()
        return listings

    return asyncio.run(ask())


def check_named(servers: Iterable[str], files: Sequence[SyncedFile]) -> None:
    """Check that blueprints name each of these MCP servers, because else there is nothing to compare.

    Raises:
        ConfigurationError: None names one of them.
    """
    known = {name for file in files for name in mcp_servers(file.blueprint)}
    for server in servers:
        if server not in known:
            raise ConfigurationError(
                f"The blueprint names no tool of the MCP server '{server}'.",
                suggestion=did_you_mean(server, known)
                or f"Add one with --add TOOL, or all with --add {ALL}.",
            )


def add_tools(
    file: SyncedFile, server: str, names: Sequence[str], listing: ToolListing
) -> None:
    """Add tools of an MCP server to the agent or the conductor of a blueprint file.

    Args:
        file: The file, whose blueprint and changes are brought up to date.
        server: The server's name.
        names: Names of its tools; `all` for all of them.
        listing: The tools that the server has.

    Raises:
        ConfigurationError: The component has no tools of its own, or the server does not have one of them.
        BlueprintValidationError: Providers refuse a name, or two tools have one name.
    """
    blueprint = file.blueprint
    if "mcp" not in keys_of(blueprints.kind_of(blueprint)):
        raise ConfigurationError(
            "Only the blueprint of an agent or a conductor has tools of its own.",
            suggestion=HOW_TO_NAME_AN_AGENT,
        )
    if list(names) == [ALL]:
        names = list(listing.tools)
    for name in names:
        if name not in listing.tools:
            message, hint = listing.missing_tool(server, name)
            raise ConfigurationError(message, suggestion=hint)
    known = [
        tool.tool for tool in mcp_tools(blueprint) if tool.server == server
    ]
    added = [name for name in names if name not in known]
    if not added:
        return
    _get_or_add_entry(blueprint, server)["tools"] += added
    problems = [
        problem
        for problem in blueprints.problems(blueprint)
        if problem.pointer.startswith("/mcp")
    ]
    if problems:
        raise blueprints.invalid(problems, f"The blueprint '{file.path.name}'")
    file.changes = blueprint_changes(
        blueprints.read_source(file.path), blueprint
    )


def _get_or_add_entry(blueprint: Blueprint, server: str) -> JsonObject:
    entries: list[JsonObject] = blueprint.setdefault("mcp", [])
    for entry in entries:
        if entry.get("server") == server:
            return entry
    entry: JsonObject = {"server": server, "tools": []}
    entries.append(entry)
    return entry


def synced_locks(
    folder: Folder,
    files: Sequence[SyncedFile],
    listings: Mapping[str, ToolListing],
) -> list[SyncedLock]:
    """Return the updated locks of a folder, and of the agents in it that are folders themselves.

    Args:
        folder: The component folder.
        files: Its blueprint files, and those of its agents.
        listings: The tools of the servers that were asked; the definitions of other servers stay.

    Raises:
        ConfigurationError: A lock cannot be read.
        BlueprintValidationError: A server that was asked does not have a tool that a blueprint names.
    """
    by_path = {file.path: file.blueprint for file in files}
    locks = [_synced_lock(folder, by_path, listings)]
    for agent in folder.agent_folders():
        locks += synced_locks(agent, files, listings)
    return locks


def _synced_lock(
    folder: Folder,
    blueprint_by_path: Mapping[Path, Blueprint],
    listings: Mapping[str, ToolListing],
) -> SyncedLock:
    old = folder.mcp_lock()
    servers: dict[str, dict[str, ToolDefinition]] = {}
    missing: list[MCPToolName] = []
    for path in (folder.blueprint_file(), *folder.agent_files()):
        problems: list[Problem] = []
        for name in all_mcp_tools(blueprint_by_path[path]):
            listing = listings.get(name.server)
            definition = old.definition(name.server, name.tool)
            if listing is not None:
                definition = listing.tools.get(name.tool)
            if definition is not None:
                servers.setdefault(name.server, {})[name.tool] = definition
            elif listing is None:
                missing.append(name)
            else:
                message, hint = listing.missing_tool(name.server, name.tool)
                problems.append(Problem(name.pointer, message, hint))
        if problems:
            raise blueprints.invalid(problems, f"The blueprint '{path.name}'")
    lock = MCPLock(servers)
    changes = lock_changes(old.to_data(), lock.to_data())
    return SyncedLock(folder.path / LOCK_FILE, lock, changes, missing)


def named_servers(
    options: Sequence[str], settings: Settings
) -> dict[str, MCPServer]:
    """Return the servers of command-line options, by name.

    Args:
        options: Names of servers that the settings have, or `NAME=URL` and `NAME=COMMAND ARGUMENT…`.
        settings: The settings.

    Raises:
        PodwrightError: A name is unknown, or an option is invalid.
    """
    defined = [option for option in options if "=" in option]
    known = servers_of_options(defined, settings)
    servers: dict[str, MCPServer] = {}
    for option in options:
        name, _, _ = option.partition("=")
        name = name.strip()
        if name not in known:
            raise ConfigurationError(
                f"The address of the MCP server '{name}' is not known.",
                suggestion=did_you_mean(name, known)
                or f"Write --mcp {name}=URL, or set PODWRIGHT_MCP_SERVERS.",
            )
        servers[name] = known[name]
    return servers
