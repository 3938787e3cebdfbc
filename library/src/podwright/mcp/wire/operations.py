"""The two operations on a server, with a connected client: to list its tools, and to call one."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from mcp.client import CacheEntry, CacheKey, Client
from mcp_types import (
    CallToolResult,
    InputRequiredResult,
    ListToolsResult,
    PaginatedRequestParams,
    TextContent,
    Tool,
)

from podwright.data.json_data import JsonMapping, JsonObject
from podwright.errors import ToolDefinitionError
from podwright.mcp.definitions import ToolDefinition
from podwright.mcp.results import LiveListing, MCPResult, ToolListing
from podwright.mcp.wire.attempt import MAX_TOOLS, Attempt
from podwright.mcp.wire.contents import to_result
from podwright.mcp.wire.faults import input_refused_error

MAX_PAGES = 10
"""Pages of a list."""
_ROUNDS = 3
"""How often a server may ask for a call to be sent again, without asking for input."""
_COMPLETE = "complete"
"""The kind of a result that is whole; older protocols have no other."""
_DAY = 86_400.0


class ToolCache:
    """The cache of a client, with the definitions of the tools that it calls.

    Without a cached list, a client asks for it before a call, because it says which arguments go into headers. Output
    schemas are left out: the client would check results by them on the event loop, for as long as that takes.
    """

    def __init__(self, *definitions: ToolDefinition) -> None:
        self._tools: dict[str, Tool] = {}
        for definition in definitions:
            self.add(definition)

    def add(self, definition: ToolDefinition) -> None:
        """Add a tool, or change it."""
        self._tools[definition.name] = Tool(
            name=definition.name, input_schema=definition.input_schema
        )

    async def get(self, key: CacheKey) -> CacheEntry | None:
        """Return the list of these tools."""
        if key.method != "tools/list":
            return None
        listing = ListToolsResult(tools=list(self._tools.values()))
        return CacheEntry(listing, "private", time.time() + _DAY)

    async def set(self, key: CacheKey, entry: CacheEntry) -> None:
        """Keep nothing."""

    async def delete(self, key: CacheKey) -> None:
        """Keep nothing."""

    async def clear(self) -> None:
        """Keep nothing."""


async def list_tools(client: Client, attempt: Attempt) -> LiveListing:
    """Return the tools of a server: all pages.

    Raises:
        MCPServerError: There are too many.
    """
    tools: dict[str, ToolDefinition] = {}
    refused: dict[str, str] = {}
    ttl: float | None = None
    cursor: str | None = None
    for _ in range(MAX_PAGES):
        before = len(attempt.pages)
        params = None
        if cursor is not None:
            params = PaginatedRequestParams(cursor=cursor)
        page = await client.session.list_tools(params=params)
        if len(attempt.pages) > MAX_TOOLS:
            raise attempt.error(
                f"lists more than {MAX_TOOLS} tools.", "too_large"
            )
        kept = {tool.name for tool in page.tools}
        for data in attempt.pages[before:]:
            _add(data, kept, attempt.invalid_tools, tools, refused)
        if "ttl_ms" in page.model_fields_set:
            ttl = min(page.ttl_ms / 1000, ttl or page.ttl_ms / 1000)
        cursor = page.next_cursor
        if cursor is None:
            return LiveListing(ToolListing(tools, refused), ttl)
    raise attempt.error(
        f"lists its tools on more than {MAX_PAGES} pages.", "too_large"
    )


def _add(
    data: JsonMapping,
    kept: set[str],
    invalid: Mapping[str, str],
    tools: dict[str, ToolDefinition],
    refused: dict[str, str],
) -> None:
    """Add a definition, or the reason why it is refused."""
    name = str(data.get("name"))
    if name in tools:
        refused[name] = "The server lists two tools of this name."
        del tools[name]
    if name in refused:
        return
    try:
        definition = ToolDefinition.read(data)
    except ToolDefinitionError as error:
        refused[name] = error.message
        return
    if name in kept:
        tools[name] = definition
    else:
        refused[name] = invalid.get(name, "Its 'x-mcp-header' is invalid.")


async def call_tool(
    client: Client,
    attempt: Attempt,
    name: str,
    arguments: JsonObject,
) -> MCPResult:
    """Call a tool that the client's cache knows.

    Raises:
        MCPServerError: The server asks for input.
        MCPError: It refused the call.
    """
    await client.list_tools()  # from the cache
    state: dict[str, Any] = {}
    for _ in range(_ROUNDS):
        result = await client.session.call_tool(
            name,
            arguments,
            allow_input_required=True,
            **state,
        )
        if isinstance(result, CallToolResult):
            if result.is_error and attempt.was_asked:
                raise input_refused_error(attempt)
            if result.result_type != _COMPLETE:
                raise attempt.error(
                    "gave a result of an unknown kind.", "protocol"
                )
            if result.is_error:
                for part in result.content:
                    if isinstance(part, TextContent):
                        part.text = attempt.without_secrets(part.text)
            return to_result(result)
        if (
            isinstance(result, InputRequiredResult)
            and not result.input_requests
        ):
            state = {"request_state": result.request_state}
            continue
        break
    raise input_refused_error(attempt)
