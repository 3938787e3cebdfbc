"""What calls of MCP servers are told of the run that they are part of."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextvars import ContextVar

TRACE_CONTEXTS: list[Callable[[], str | None]] = []
"""Functions that return the `traceparent` of the present span (W3C Trace Context); None outside of a span."""

_NO_HEADERS: Mapping[str, str] = {}
caller_headers: ContextVar[Mapping[str, str]] = ContextVar(
    "podwright_mcp_caller_headers", default=_NO_HEADERS
)
"""The headers of the caller's request, by names in lower case.

A server is sent those of its list only. A run that goes on in another process has none.
"""


def traceparent() -> str | None:
    """The `traceparent` of the present span; None if nothing traces it."""
    for trace_context in TRACE_CONTEXTS:
        value = trace_context()
        if value is not None:
            return value
    return None
