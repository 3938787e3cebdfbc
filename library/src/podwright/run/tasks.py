"""Tasks of a run: nested runs that its tools start, and parallel work."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Generator, Iterable
from typing import Any, TypeVar, cast

from podwright.errors import RunCancelledError
from podwright.location import ToolCallId, change_location, location

T = TypeVar("T")


class NestedTasks:
    """The tasks of nested runs that the tools of one run started, which end with the run or with their tool call."""

    def __init__(self) -> None:
        self._calls: dict[asyncio.Task[Any], ToolCallId | None] = {}
        """The tool call that each task is part of."""
        self._failed_calls: set[ToolCallId] = set()

    @contextlib.contextmanager
    def bind_current(self) -> Generator[None]:
        """While the context is open, the current task is cancelled together with the run, or with its tool call.

        Raises:
            RunCancelledError: It is part of a tool call that has failed, for example by a time-out.
        """
        call = location.get().tool_call
        if call in self._failed_calls:
            raise RunCancelledError(
                "The tool call that this run is part of has failed already."
            )
        task = cast("asyncio.Task[Any]", asyncio.current_task())
        self._calls[task] = call
        try:
            yield
        finally:
            self._calls.pop(task, None)

    async def cancel_call(self, call: ToolCallId) -> None:
        """Cancel the runs that a failed tool call has left behind, and wait for their end; it can start no more."""
        self._failed_calls.add(call)
        await _cancel(
            [task for task, other in self._calls.items() if other == call]
        )

    async def cancel_all(self) -> None:
        """Cancel all tasks, and wait for their end."""
        await _cancel(list(self._calls))


async def _cancel(tasks: list[asyncio.Task[Any]]) -> None:
    for task in tasks:
        task.cancel()
    if tasks:
        await asyncio.wait(tasks)


async def gather_or_cancel(coroutines: Iterable[Awaitable[T]]) -> list[T]:
    """Await all at once; the first failure cancels the others, waits for them, and is raised.

    Each task counts as one of `Location.parallel_tasks`, so that it borrows only its share of a budget.
    """
    awaitables = list(coroutines)
    parallel = location.get().parallel_tasks * max(1, len(awaitables))
    token = change_location(parallel_tasks=parallel)
    try:
        tasks = [asyncio.ensure_future(awaitable) for awaitable in awaitables]
    finally:
        # each task has its own copy of the context by now; the calling task is not one of them
        location.reset(token)
    try:
        return await asyncio.gather(*tasks)
    except BaseException:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        raise
