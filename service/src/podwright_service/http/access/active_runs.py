"""The runs that requests wait for: cancelled when the client leaves, and when the shutdown time-out has passed."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import Any, TypeVar, cast

from starlette.requests import ClientDisconnect, Request

from podwright_service.http.errors.problems import RequestError

T = TypeVar("T")

_WATCH_AFTER = 0.05
"""Seconds after which a disconnect is watched for; a run that ends before has no use for that."""


class ActiveRuns:
    """The tasks of the active runs; each is cancelled at most once, so that its cleanup is not interrupted."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[Any]] = set()

    def add(self, task: asyncio.Task[Any]) -> None:
        """Cancel a task with all others at shutdown."""
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def wait(self) -> None:
        """Wait until there are none."""
        while self._tasks:
            await asyncio.wait(self._tasks)

    def cancel_all(self) -> None:
        """Cancel every active run: the shutdown time-out has passed."""
        for task in list(self._tasks):
            self.cancel(task)

    def cancel(self, task: asyncio.Task[Any]) -> None:
        """Cancel a task that was added, unless that was done before."""
        if task in self._tasks:
            self._tasks.discard(task)
            task.cancel()

    async def run_until_disconnect(
        self, request: Request, work: Awaitable[T]
    ) -> T:
        """Await the work of a request whose body has been read; cancel it if the client leaves.

        Raises:
            starlette.requests.ClientDisconnect: The client left.
            RequestError: 503: the service stopped before a run began.
        """
        task = cast("asyncio.Task[Any]", asyncio.current_task())
        client_left = False
        watcher = None

        async def cancel_on_disconnect() -> None:
            nonlocal client_left
            while (await request.receive())["type"] != "http.disconnect":
                pass
            client_left = True
            self.cancel(task)

        def watch() -> None:
            nonlocal watcher
            watcher = asyncio.create_task(cancel_on_disconnect())

        self._tasks.add(task)
        timer = asyncio.get_running_loop().call_later(_WATCH_AFTER, watch)
        try:
            return await work
        except BaseException as error:
            # `cancel` removes what it cancels
            cancelled_here = task not in self._tasks
            if cancelled_here:
                task.uncancel()
            if client_left:
                raise ClientDisconnect from None
            if cancelled_here and isinstance(error, asyncio.CancelledError):
                raise RequestError(
                    503,
                    "run_cancelled",
                    "The service is stopping.",
                    "Try again later.",
                ) from None
            raise
        finally:
            timer.cancel()
            if watcher is not None:
                watcher.cancel()
            self._tasks.discard(task)
