"""A server of tools, by the official package for Python, which speaks all revisions: `python mcp_python_server.py`.

It listens on 127.0.0.1, at the port LOOPBACK_PORT or one that the system chooses, and prints its address. Calls of
`pay` are written to the file BOOK. With the files CERTIFICATE and CERTIFICATE_KEY, it speaks TLS.
"""

from __future__ import annotations

import base64
import os
from enum import StrEnum
from pathlib import Path

import uvicorn
from mcp.server.mcpserver import Image, MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from pydantic import BaseModel, Field

PIXEL = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNkYPhfDwAChwGA60e6kgAAAABJRU5ErkJggg=="
)
"""An image of one pixel."""
server = MCPServer("notes", instructions="Keeps notes.")


class Unit(StrEnum):
    """A unit of length."""

    METRE = "m"
    FOOT = "ft"


class Length(BaseModel):
    """A length."""

    value: float = Field(description="How many of the unit.", ge=0)
    unit: Unit


@server.tool()
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@server.tool()
def convert(length: Length, to: Unit) -> Length:
    """Convert a length to another unit."""
    metres = length.value * (0.3048 if length.unit is Unit.FOOT else 1)
    return Length(value=metres / (0.3048 if to is Unit.FOOT else 1), unit=to)


@server.tool()
def picture() -> Image:
    """Draw a pixel."""
    return Image(data=PIXEL, format="png")


@server.tool()
def refuse(reason: str) -> str:
    """Fail."""
    raise ToolError(reason)


@server.tool()
def pay(text: str) -> str:
    """Pay."""
    with Path(os.environ["BOOK"]).open("a") as book:
        book.write(f"{text}\n")
    return f"paid {text}"


if __name__ == "__main__":
    uvicorn.run(
        server.streamable_http_app(),
        host="127.0.0.1",
        port=int(os.environ.get("LOOPBACK_PORT", "0")),
        ssl_certfile=os.environ.get("CERTIFICATE"),
        ssl_keyfile=os.environ.get("CERTIFICATE_KEY"),
    )
