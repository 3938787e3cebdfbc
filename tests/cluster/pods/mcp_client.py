"""Calls the tool of a component by MCP, `python mcp_client.py URL KEY TOOL`, and prints its text for the moon."""

import asyncio
import sys

from podwright import MCPServer


async def main(url: str, key: str, tool: str) -> None:
    """Call the tool as another component does."""
    server = MCPServer(url, api_key=key)
    listing = await server.list_tools()
    locked = listing.tools[tool]
    result = await server.call(tool, {"input": "moon"}, locked=locked)
    print(*(part["text"] for part in result.content))
    await server.close()


asyncio.run(main(*sys.argv[1:]))
