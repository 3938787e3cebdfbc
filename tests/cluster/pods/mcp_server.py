"""A server of tools, by the official package: `python mcp_server.py [PORT [KEY]]`, by default at 8000 without a key."""

import sys

import uvicorn
from mcp.server.mcpserver import MCPServer
from starlette.middleware import Middleware
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

server = MCPServer("tools")


@server.tool(structured_output=False)
def search(query: str) -> str:
    """Search the archive."""
    return f"Nothing about the {query}."


class KeyRequired:
    """Refuses requests without the key."""

    def __init__(self, app: ASGIApp, key: str) -> None:
        self._app = app
        self._expected = (b"authorization", f"Bearer {key}".encode())

    async def __call__(
        self, scope: Scope, receive: Receive, send: Send
    ) -> None:
        if scope["type"] != "http" or self._expected in scope["headers"]:
            await self._app(scope, receive, send)
        else:
            await Response(status_code=401)(scope, receive, send)


def main(port: str = "8000", key: str = "") -> None:
    """Serve the tools on all addresses."""
    app = server.streamable_http_app(host="")
    if key:
        app.user_middleware.append(Middleware(KeyRequired, key=key))
    uvicorn.run(app, host="", port=int(port))


if __name__ == "__main__":
    main(*sys.argv[1:])
