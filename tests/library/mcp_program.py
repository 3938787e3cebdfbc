"""A server of MCP as a program: `python mcp_program.py [mode]`. It speaks 2025-11-25, a message a line."""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

TOOLS = ("echo", "environment", "place", "process", "large", "die", "wait")


def main(mode: str) -> None:
    """Answer the messages of standard input."""
    if mode == "silent":
        time.sleep(60)
    for line in sys.stdin:
        message = json.loads(line)
        if "id" in message:
            answer = {"jsonrpc": "2.0", "id": message["id"]}
            print(json.dumps({**answer, **_answer(message)}), flush=True)


def _answer(message: Any) -> Any:
    params = message.get("params", {})
    match message["method"]:
        case "initialize":
            info = {"name": "program", "version": "1"}
            result: Any = {
                "protocolVersion": "2025-11-25",
                "capabilities": {"tools": {}},
                "serverInfo": info,
            }
        case "tools/list":
            schema = {"type": "object"}
            tools = [{"name": name, "inputSchema": schema} for name in TOOLS]
            result = {"tools": tools}
        case "tools/call":
            text = _call(params["name"], params.get("arguments", {}))
            result = {"content": [{"type": "text", "text": text}]}
        case _:
            return {"error": {"code": -32601, "message": "Method not found"}}
    return {"result": result}


def _call(name: str, arguments: Any) -> str:
    match name:
        case "environment":
            return json.dumps(dict(os.environ))
        case "place":
            return str(Path.cwd())
        case "process":
            return str(os.getpid())
        case "large":
            return "x" * arguments["bytes"]
        case "die":
            os._exit(3)
        case "wait":
            time.sleep(60)
    return json.dumps(arguments)


if __name__ == "__main__":
    main(*sys.argv[1:2] or [""])
