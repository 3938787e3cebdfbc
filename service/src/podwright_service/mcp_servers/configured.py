"""The MCP servers of settings and components."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING

from pydantic import TypeAdapter

from podwright.components import Component
from podwright.data.text import describe_error
from podwright.errors import ConfigurationError
from podwright.folders.walks import mcp_tools_of
from podwright_service.remotes import check_names, read_by_name, reveal
from podwright_service.settings import (
    MCPServerEntry,
    MCPServersByName,
    Settings,
)
from podwright_service.variables import failure

if TYPE_CHECKING:
    from podwright.mcp.server import MCPServer

_SERVERS: TypeAdapter[dict[str, MCPServerEntry]] = TypeAdapter(MCPServersByName)
_AUTHORIZATION = "authorization"
_NO_ENTRIES: Mapping[str, MCPServerEntry] = {}
_log = logging.getLogger("podwright.service")


def servers_of(
    settings: Settings, entries: Mapping[str, MCPServerEntry] = _NO_ENTRIES
) -> dict[str, MCPServer]:
    """Return the configured MCP servers by name; none of them is called here.

    Args:
        settings: The settings.
        entries: Further servers, which take precedence.

    Raises:
        ConfigurationError: The file cannot be read or has invalid entries, a key has no server, or servers are
            invalid, with all their mistakes: no key in a file, headers of callers that would go over plain HTTP, …
    """
    entries = {**_entries(settings), **entries}
    keys = reveal(settings.mcp_keys)
    files = settings.mcp_key_files
    for names, entry in (
        (keys, "PODWRIGHT_MCP_KEYS has a key"),
        (files, "PODWRIGHT_MCP_KEY_FILES has a key"),
    ):
        check_names(names, entries, entry, "PODWRIGHT_MCP_SERVERS")
    if not entries:
        return {}
    from podwright.mcp.server import MCPServer

    servers: dict[str, MCPServer] = {}
    mistakes: list[str] = []
    for name, entry in entries.items():
        has_key = name in keys or name in files
        mistakes += _authorization_mistakes(name, entry, settings, has_key)
        try:
            server = MCPServer(
                **entry, api_key=keys.get(name), api_key_file=files.get(name)
            )
        except ConfigurationError as error:
            mistakes.append(
                f"MCP server '{name}': {error.message} {error.suggestion}"
            )
        else:
            server.name = name
            servers[name] = server
    if mistakes:
        raise failure(mistakes)
    return servers


def _authorization_mistakes(
    name: str, entry: MCPServerEntry, settings: Settings, has_key: bool
) -> Iterator[str]:
    """Yield why a server may not be sent the header `authorization` of callers, if it lists that."""
    if _AUTHORIZATION not in entry.get("headers_from_request", ()):
        return
    if has_key:
        yield (
            f"MCP server '{name}': It has an API key, with which callers who send no 'authorization' would be served. "
            "Remove the key, or 'authorization' from its headers_from_request."
        )
    if settings.api_keys or settings.api_keys_file:
        yield (
            f"MCP server '{name}': Its headers_from_request have 'authorization', and in that header callers send the "
            "API keys of this service. Let them send another header."
        )


def _entries(settings: Settings) -> dict[str, MCPServerEntry]:
    in_file: dict[str, MCPServerEntry] = {}
    if settings.mcp_servers_file is not None:
        in_file = read_by_name(
            settings.mcp_servers_file,
            _SERVERS,
            "PODWRIGHT_MCP_SERVERS_FILE",
            'an object of servers by name: {"files": "https://files.example.com/mcp"}',
        )
    return {**in_file, **settings.mcp_servers}


def servers_of_service(
    component: Component, settings: Settings
) -> dict[str, MCPServer]:
    """Return the MCP servers that the runs of a service may call: those of its component, and those of the settings.

    For a server that both have, it is the object of the component, so that there is one record of whether it answers.

    Raises:
        ConfigurationError: See `servers_of`.
    """
    return {**servers_of(settings), **_servers_of_tools(component)}


def _servers_of_tools(component: Component) -> dict[str, MCPServer]:
    tools = mcp_tools_of(component)
    if not tools:
        return {}
    from podwright.mcp.mcp_tool import MCPTool

    servers: dict[str, MCPServer] = {}
    for tool in tools:
        if isinstance(tool, MCPTool) and tool.mcp_server in tool.servers:
            servers.setdefault(tool.mcp_server, tool.servers[tool.mcp_server])
    return servers


async def close_servers(servers: Iterable[MCPServer]) -> None:
    """Close MCP servers; the error of one that cannot be closed is logged."""
    closing = [server.close() for server in servers]
    for error in await asyncio.gather(*closing, return_exceptions=True):
        if isinstance(error, Exception):
            _log.warning(
                "An MCP server was not closed: %s", describe_error(error)
            )
