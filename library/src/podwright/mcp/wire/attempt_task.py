"""Runs an attempt in a task of its own, because the client cancels the task that it runs in when it loses a server."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from contextvars import copy_context
from typing import Any, TypeVar

from podwright.mcp.wire.attempt import Attempt, current_attempt
from podwright.mcp.wire.faults import timeout_error, to_error

T = TypeVar("T")

_GRACE = 5.0
"""Seconds that a client may take to tell the server that the call is cancelled, and to close."""
_unfinished: set[asyncio.Task[Any]] = set()
"""Tasks that take longer; the loop keeps weak references only."""


async def run_attempt(
    attempt: Attempt, work: Callable[[], Coroutine[Any, Any, T]]
) -> T:
    """Run an attempt, for at most `attempt.outgoing.seconds`.

    Args:
        attempt: The attempt.
        work: The operation; it is cancelled when the time has passed, or the attempt has failed.

    Raises:
        MCPServerError: The attempt failed.
    """
    context = copy_context()
    context.run(current_attempt.set, attempt)
    task = asyncio.create_task(work(), context=context)
    failing = asyncio.create_task(attempt.failed.wait())
    is_late = False
    try:
        await asyncio.wait(
            {task, failing},
            timeout=attempt.outgoing.seconds,
            return_when=asyncio.FIRST_COMPLETED,
        )
        is_late = not task.done() and attempt.fault is None
    finally:
        failing.cancel()
        await _end(task)
    if attempt.fault is not None:
        raise attempt.fault
    if is_late:
        raise timeout_error(attempt)
    if not task.done() or task.cancelled():
        raise attempt.unreachable_error("the connection was lost")
    error = task.exception()
    if error is not None:
        raise to_error(attempt, error) from error
    return task.result()


async def _end(task: asyncio.Task[Any]) -> None:
    """End a task, and wait a moment until it has."""
    if task.done():
        return
    task.cancel()
    _unfinished.add(task)
    task.add_done_callback(_forget)
    await asyncio.wait({task}, timeout=_GRACE)


def _forget(task: asyncio.Task[Any]) -> None:
    """Let a task go; its error, which the loop would log, is taken."""
    _unfinished.discard(task)
    if not task.cancelled():
        task.exception()
