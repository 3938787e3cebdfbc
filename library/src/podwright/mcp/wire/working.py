"""Makes an attempt in a task of its own, so that what the client does to its task is not done to its caller's."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from contextvars import copy_context
from typing import Any, TypeVar

from podwright.mcp.wire.attempt import Attempt, current_attempt
from podwright.mcp.wire.faults import error_of, timed_out

T = TypeVar("T")

_GRACE = 5.0
"""Seconds that a client may take to tell the server that the call is cancelled, and to close."""
_unfinished: set[asyncio.Task[Any]] = set()
"""Tasks that take longer; the loop keeps weak references only."""


async def make(
    attempt: Attempt, work: Callable[[], Coroutine[Any, Any, T]]
) -> T:
    """Make an attempt, within its time.

    Args:
        attempt: The attempt.
        work: What it does; cancelled when the time has passed, and when the attempt has failed.

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
        raise timed_out(attempt)
    if not task.done() or task.cancelled():
        raise attempt.unreachable("the connection was lost")
    error = task.exception()
    if error is not None:
        raise error_of(attempt, error) from error
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
