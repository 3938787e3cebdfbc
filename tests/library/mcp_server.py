"""An MCP server without a wire, for tests of what stands above it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from typing_extensions import override

from podwright.data.json_data import JsonObject
from podwright.mcp.definitions import ToolDefinition
from podwright.mcp.lock import MCPLock
from podwright.mcp.server import MCPResult, MCPServer, ToolListing

PIXEL = "data:image/png;base64,iVBORw0KGgo="
IMAGE: JsonObject = {"type": "image_url", "image_url": {"url": PIXEL}}


def text(value: str) -> JsonObject:
    """A text in a result."""
    return {"type": "text", "text": value}


def definition(name: str, **changes: Any) -> ToolDefinition:
    """The definition of a tool with one parameter, `path`."""
    data: JsonObject = {
        "name": name,
        "description": f"Does {name}.",
        "inputSchema": {
            "type": "object",
            "properties": {"path": {"type": "string"}},
            "required": ["path"],
            "additionalProperties": False,
        },
    }
    return ToolDefinition.read({**data, **changes})


class ServerDouble(MCPServer):
    """A server whose tools and results a test sets.

    Args:
        *definitions: Its tools.
        headers_from_request: As of `MCPServer`.
    """

    def __init__(
        self,
        *definitions: ToolDefinition,
        headers_from_request: Sequence[str] = (),
    ) -> None:
        super().__init__(
            "http://127.0.0.1:1/mcp", headers_from_request=headers_from_request
        )
        self.tools = {each.name: each for each in definitions}
        self.results: dict[str, MCPResult | Exception] = {}
        """What its tools answer, by name; by default a text with the path."""
        self.calls: list[tuple[str, JsonObject]] = []
        self.options: list[dict[str, Any]] = []
        """The options of the calls."""
        self.lists = 0
        """How often its tools were listed."""

    @override
    async def list_tools(
        self,
        headers: Mapping[str, str] | None = None,
        traceparent: str | None = None,
        *,
        cached: bool = False,
    ) -> ToolListing:
        self.lists += 1
        return ToolListing(dict(self.tools), {})

    @override
    async def call(
        self, name: str, arguments: JsonObject, **options: Any
    ) -> MCPResult:
        self.calls.append((name, arguments))
        self.options.append(options)
        result = self.results.get(name)
        if isinstance(result, Exception):
            raise result
        if result is None:
            return MCPResult(
                [text(f"content of {arguments['path']}")], None, False
            )
        return result


def lock_of(server: str, *definitions: ToolDefinition) -> MCPLock:
    """The lock of one server's tools."""
    return MCPLock({server: {each.name: each for each in definitions}})
