"""When the attempt of a run ends before the run does: at a shutdown between two calls, otherwise at once."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator
from typing import Any, Literal

StopReason = Literal["moved", "cancelled", "lost"]
"""The process shuts down, so that another one is to go on; a caller cancelled the run; another process has it."""


FAILURE_SECONDS = 0.1
"""How long the failure of a call may take to end the run, whose other calls wait: a cancellation would hide it."""


class Gate:
    """Lets the calls of an attempt begin, and cancels its task when it is to stop.

    After `drain`, calls in progress go on to their end, and the run goes on to its next call, which does not begin. A
    run that ends without another call just ends. The task is cancelled when a call waits and none is in progress: then
    nothing that has finished is lost, because all that it did is recorded.
    """

    def __init__(self) -> None:
        self.reason: StopReason | None = None
        """Why the attempt is to stop; None while it may go on."""
        self.has_cancelled = False
        """Whether its task was cancelled."""
        self._task: asyncio.Task[Any] | None = None
        self._calls = 0
        """Calls in progress."""
        self._waiting = 0
        """Calls that do not begin."""
        self._failures = 0
        """Failures of calls that may still be on their way to the end of the run."""

    def guard(self, task: asyncio.Task[Any]) -> None:
        """Cancel this task when the attempt is to stop."""
        self._task = task
        if self.has_cancelled:
            task.cancel()

    @contextlib.asynccontextmanager
    async def call(self, *, in_tool: bool) -> AsyncGenerator[None]:
        """The context of a call that must not be cut off.

        Args:
            in_tool: Whether it is part of a call that has begun, which it must not hold up.
        """
        if self.has_cancelled or (self.reason is not None and not in_tool):
            await self._wait_for_cancellation()
        self._calls += 1
        try:
            yield
        except Exception:
            self._failures += 1
            asyncio.get_running_loop().call_later(
                FAILURE_SECONDS, self._forget_failure
            )
            raise
        finally:
            self._calls -= 1
            self._check_soon()

    def drain(self) -> None:
        """Let no further call begin, and stop when none is in progress."""
        self.reason = self.reason or "moved"
        self._check_soon()

    def stop(self, reason: StopReason) -> None:
        """Stop at once; calls in progress are cut off."""
        # a lost run counts more than any other reason
        if reason == "lost" or not self.has_cancelled:
            self.reason = reason
        self._cancel()

    async def _wait_for_cancellation(self) -> None:
        if self.has_cancelled:  # a tool has caught the cancellation
            raise asyncio.CancelledError
        self._waiting += 1
        self._check_soon()
        try:
            await asyncio.get_running_loop().create_future()
        finally:
            self._waiting -= 1

    def _forget_failure(self) -> None:
        self._failures -= 1
        self._check_soon()

    def _check_soon(self) -> None:
        # not now: a task that is cancelled by code of its own, and ends before its next `await`, loses its result
        if self.reason is not None:
            asyncio.get_running_loop().call_soon(self._stop_if_idle)

    def _stop_if_idle(self) -> None:
        if self._waiting and not self._calls and not self._failures:
            self._cancel()

    def _cancel(self) -> None:
        if not self.has_cancelled:
            self.has_cancelled = True
            if self._task is not None:
                self._task.cancel()
