"""The context of the run that a call of an MCP server is a part of: headers of the caller, and the trace context."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextvars import ContextVar
from typing import TYPE_CHECKING

from podwright.errors import MCPServerError

if TYPE_CHECKING:
    from podwright.mcp.server import MCPServer

TRACE_CONTEXTS: list[Callable[[], str | None]] = []
"""Functions that return the `traceparent` of the current span (W3C Trace Context); None outside of a span."""

_NO_HEADERS: Mapping[str, str] = {}
caller_headers: ContextVar[Mapping[str, str] | None] = ContextVar(
    "podwright_mcp_caller_headers", default=_NO_HEADERS
)
"""The headers of the caller's request, by names in lower case, of which a server is sent those of its list only.

None in a run that is not a part of its caller's request any more: headers are not stored with it.
"""


def headers_for(server: MCPServer) -> Mapping[str, str]:
    """Return the headers of the caller's request that a server may be sent.

    Raises:
        ToolError: The server lists headers, and the run has no request.
    """
    headers = caller_headers.get()
    names = server.headers_from_request
    if headers is None and names:
        raise MCPServerError(
            f"The MCP server '{server.name}' needs headers of the caller's request ({', '.join(names)}), which are not "
            "stored with a background run.",
            "refused",
            suggestion="Send the input to POST /run, or have the server take an API key instead of these headers.",
        )
    return headers or {}


def traceparent() -> str | None:
    """Return the `traceparent` of the current span; None if nothing traces it."""
    for trace_context in TRACE_CONTEXTS:
        value = trace_context()
        if value is not None:
            return value
    return None
