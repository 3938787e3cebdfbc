"""Exceptions of the package `mcp` as errors of Podwright."""

from __future__ import annotations

import asyncio
from typing import cast

from mcp import MCPError
from mcp_types import (
    CONNECTION_CLOSED,
    INTERNAL_ERROR,
    METHOD_NOT_FOUND,
    PARSE_ERROR,
    REQUEST_TIMEOUT,
)

from podwright.errors import MCPServerError
from podwright.mcp.wire.attempt import Attempt
from podwright.models.http.client import TransportError


def first_leaf(error: BaseException) -> BaseException:
    """Return the first exception of a group, and of the groups in it, that is more than a cancellation."""
    if not isinstance(error, BaseExceptionGroup):
        return error
    group = cast("BaseExceptionGroup[BaseException]", error)
    leaves = list(map(first_leaf, group.exceptions))
    for leaf in leaves:
        if not isinstance(leaf, asyncio.CancelledError):
            return leaf
    return leaves[0]


def to_error(attempt: Attempt, error: BaseException) -> MCPServerError:
    """Return the error of an attempt that ended with an exception.

    Args:
        attempt: The attempt.
        error: What the client raised.
    """
    if attempt.fault is not None:
        return attempt.fault
    cause = first_leaf(error)
    if isinstance(cause, MCPServerError):
        return cause
    if attempt.was_asked:
        return input_refused_error(attempt)
    if isinstance(cause, MCPError):
        return _to_response_error(attempt, cause)
    if isinstance(cause, asyncio.CancelledError):
        return attempt.unreachable_error("the connection was lost")
    if isinstance(cause, TransportError):
        return attempt.unreachable_error(str(cause), cause.suggestion)
    if isinstance(cause, OSError):
        return attempt.unreachable_error("no connection")
    return attempt.error(
        f"sent an answer that is not valid MCP ({type(cause).__name__}).",
        "protocol",
    )


def input_refused_error(attempt: Attempt) -> MCPServerError:
    """Return the error of a server that asks for input."""
    return attempt.error(
        "asked for input of a person or a model, which a tool call here does not give.",
        "input_refused",
        "Give the tool all that it needs in its arguments.",
    )


def timeout_error(attempt: Attempt) -> MCPServerError:
    """Return the error of a server that is too slow."""
    # what is left of the time-out, of which the list may have taken some
    seconds = max(0.0, round(attempt.outgoing.seconds, 1))
    return attempt.error(
        f"gave no answer within {seconds:g} s.",
        "timeout",
        "Raise its timeout, or that of the tool.",
    )


def _to_response_error(attempt: Attempt, error: MCPError) -> MCPServerError:
    code = error.code
    attempt.error_code = code
    status = attempt.status or 0
    # servers have a meaning of their own for this code
    if code == REQUEST_TIMEOUT and not attempt.is_answered:
        return timeout_error(attempt)
    if code == CONNECTION_CLOSED and not attempt.is_answered:
        return attempt.unreachable_error("it closed the connection")
    if status >= 400 and code in (INTERNAL_ERROR, METHOD_NOT_FOUND):
        if status >= 500:
            return attempt.unreachable_error(f"HTTP {status}")
        return attempt.error(
            f"refused the request (HTTP {status}).",
            "protocol",
            "Check that its URL is that of an MCP server.",
        )
    if code == PARSE_ERROR:
        return attempt.error(
            "sent an answer that is not valid JSON-RPC.", "protocol"
        )
    refusal = attempt.error(
        f"refused the call: {attempt.quote(error.message)} (code {code}).",
        "protocol",
    )
    refusal.public_message = attempt.error(
        f"refused the call (code {code}).", "protocol"
    ).message
    return refusal
