"""The server of tools in `cluster/pods/mcp_server.py`: its script, its lock, and a component that uses it."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from tests.cluster.pods.mcp_server import server

from podwright.mcp.definitions import ToolDefinition
from podwright.mcp.lock import MCPLock

SCRIPT = Path(__file__).parent / "cluster" / "pods" / "mcp_server.py"


def tools_lock() -> MCPLock:
    """The lock of the server `tools`, with the definitions that its official package makes of it."""
    definitions: dict[str, ToolDefinition] = {}
    for tool in asyncio.run(server.list_tools()):
        data = tool.model_dump(by_alias=True, mode="json", exclude_none=True)
        definitions[tool.name] = ToolDefinition.read(data)
    return MCPLock({"tools": definitions})


def searcher(name: str) -> dict[str, Any]:
    """The blueprint of a workflow that calls the tool `search` without a model, and stores its answer as `found`."""
    step = {
        "type": "function_step",
        "name": "search",
        "mcp": {"server": "tools", "tool": "search"},
        "arguments": {"query": "{input}"},
        "output": "found",
    }
    return {"type": "Workflow", "name": name, "steps": [step]}
