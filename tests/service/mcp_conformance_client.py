"""The client of the conformance suite: `python mcp_conformance_client.py URL` does what a scenario asks for.

The suite names the scenario in MCP_CONFORMANCE_SCENARIO, and gives its data in MCP_CONFORMANCE_CONTEXT.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import sys
from collections.abc import Iterable
from typing import Any

from podwright.errors import MCPServerError
from podwright.mcp.definitions import ToolDefinition
from podwright.mcp.server import (
    MCPServer,
)


def calls_of(
    scenario: str, tools: dict[str, ToolDefinition]
) -> Iterable[tuple[str, dict[str, Any]]]:
    """The calls that a scenario asks for: tools and their arguments."""
    context = json.loads(os.environ.get("MCP_CONFORMANCE_CONTEXT") or "{}")
    if scenario in {"initialize", "json-schema-ref-no-deref"}:
        return
    if scenario == "json-schema-2020-12-preservation":
        schema = tools["json_schema_2020_12_tool"].input_schema
        yield "json_schema_echo", {"schema": schema}
    elif "toolCalls" in context:
        for call in context["toolCalls"]:
            yield call["name"], call["arguments"]
    elif scenario == "http-invalid-tool-headers":
        yield "valid_tool", {"region": "us-west1"}
    elif scenario.startswith("sep-2322"):
        for name in tools:
            yield name, {}
    else:
        yield next(iter(tools)), {"a": 2, "b": 3}


async def main(url: str) -> None:
    """List the tools of a server, and call those of the scenario, each with its locked definition."""
    scenario = os.environ["MCP_CONFORMANCE_SCENARIO"]
    server = MCPServer(url, timeout=20)
    tools = (await server.list_tools()).tools
    for name, arguments in calls_of(scenario, tools):
        # the other calls are judged too
        with contextlib.suppress(MCPServerError):
            await server.call(name, arguments, locked=tools[name])
    await server.close()


asyncio.run(main(sys.argv[1]))
