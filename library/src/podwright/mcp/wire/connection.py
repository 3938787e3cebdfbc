"""A connection to a server, by HTTP or to a process."""

from __future__ import annotations

from abc import ABC, abstractmethod

from podwright.data.json_data import JsonObject
from podwright.mcp.definitions import ToolDefinition
from podwright.mcp.results import LiveListing, MCPResult, Outgoing


class Connection(ABC):
    """A connection to a server."""

    name: str
    """Its name, for messages."""
    protocol_version: str = ""
    """The version that was agreed on last; empty before."""

    @abstractmethod
    async def list_tools(self, outgoing: Outgoing) -> LiveListing:
        """Return the tools of the server.

        Raises:
            MCPServerError: It is not reachable, or its list is invalid or too large.
        """

    @abstractmethod
    async def call_tool(
        self,
        definition: ToolDefinition,
        arguments: JsonObject,
        outgoing: Outgoing,
    ) -> MCPResult:
        """Call a tool.

        Args:
            definition: The tool, as the server has it now.
            arguments: Its arguments.
            outgoing: What goes with the call.

        Raises:
            MCPServerError: The call failed.
            StaleDefinitionError: The server did not perform it, because its definition has changed.
        """

    @abstractmethod
    async def close(self) -> None:
        """Close what the connection holds on the running event loop."""
