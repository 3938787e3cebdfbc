"""The headers of callers that are forwarded to MCP servers."""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Generator
from typing import TYPE_CHECKING

from starlette.datastructures import Headers

from podwright.mcp.request_context import caller_headers

if TYPE_CHECKING:
    from podwright.mcp.server import MCPServer


def forwarded_headers(
    headers: Headers, servers: Collection[MCPServer]
) -> dict[str, str]:
    """Return the headers of a request that are forwarded to MCP servers: those that the servers list."""
    names = {name for server in servers for name in server.headers_from_request}
    return {
        name: ", ".join(headers.getlist(name))
        for name in names
        if name in headers
    }


@contextlib.contextmanager
def use_caller_headers(
    headers: Headers | None, servers: Collection[MCPServer]
) -> Generator[None]:
    """Forward headers of a request to the MCP servers that runs call, if the runs begin within this context.

    The headers are kept in memory only: no event, journal or log has them.

    Args:
        headers: The headers of the request; None for a run that is not a part of its caller's request any more, whose
            tools of servers that list headers fail.
        servers: The servers that it may call.
    """
    forwarded: dict[str, str] | None = None
    if headers is not None:
        forwarded = forwarded_headers(headers, servers)
    token = caller_headers.set(forwarded)
    try:
        yield
    finally:
        caller_headers.reset(token)
