"""The headers of a caller that MCP servers are sent."""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Generator
from typing import TYPE_CHECKING

from starlette.datastructures import Headers

from podwright.mcp.request_context import caller_headers

if TYPE_CHECKING:
    from podwright.mcp.server import MCPServer


def headers_sent_on(
    headers: Headers, servers: Collection[MCPServer]
) -> dict[str, str]:
    """Return those headers of a request that MCP servers list, which are sent on to them."""
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
    """Let the MCP servers of runs that begin within this context have those headers of a request that they list.

    They are in the memory of the run alone: no event, journal or log has them.

    Args:
        headers: The headers of the request; None for a run that is not a part of its caller's request any more, whose
            tools of servers that list headers fail.
        servers: The servers that it may call.
    """
    sent: dict[str, str] | None = None
    if headers is not None:
        sent = headers_sent_on(headers, servers)
    token = caller_headers.set(sent)
    try:
        yield
    finally:
        caller_headers.reset(token)
