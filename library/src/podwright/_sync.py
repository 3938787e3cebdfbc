"""Synchronous calls: one event loop in a background thread serves the whole process.

With one loop, pooled connections stay usable from call to call; with a thread of its own, `run()` also works where an
event loop is running already, as in a notebook.
"""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import threading
from collections.abc import AsyncGenerator, Coroutine, Iterator
from concurrent.futures import CancelledError, Future, wait
from typing import Any, TypeVar, cast

from podwright.errors import BlockingCallError

T = TypeVar("T")

_loop: asyncio.AbstractEventLoop | None = None
_thread: threading.Thread | None = None
_lock = threading.Lock()


def _background_loop() -> asyncio.AbstractEventLoop:
    global _loop, _thread  # noqa: PLW0603 - one loop for the whole process
    with _lock:
        # a forked child has no such thread
        if _loop is None or _thread is None or not _thread.is_alive():
            _loop = asyncio.new_event_loop()
            _thread = threading.Thread(
                target=_loop.run_forever, daemon=True, name="podwright-loop"
            )
            _thread.start()
        return _loop


def _shut_down_loop() -> None:
    # closes what belongs to the loop, such as its HTTP session
    if _loop is None or not _loop.is_running():
        return
    with contextlib.suppress(Exception):
        shutdown = asyncio.run_coroutine_threadsafe(_loop.shutdown_asyncgens(), _loop)
        shutdown.result(timeout=1)


atexit.register(_shut_down_loop)


def run_sync(
    coroutine: Coroutine[Any, Any, T], loop: asyncio.AbstractEventLoop | None = None
) -> T:
    """Run a coroutine to its end from synchronous code; an interrupt cancels it and waits until it has ended.

    Args:
        coroutine: What to run.
        loop: The running loop of another thread that it belongs to; by default the background loop.

    Raises:
        BlockingCallError: The calling thread is the one that would have to run it.
    """
    target = loop or _background_loop()
    if _runs_here(target):
        coroutine.close()
        raise BlockingCallError(
            "run() was called on the event loop's own thread, where it would wait for itself."
        )
    causes: list[BaseException] = []
    tasks: list[asyncio.Task[Any]] = []

    async def with_cause() -> T:
        tasks.append(cast("asyncio.Task[Any]", asyncio.current_task()))
        try:
            return await coroutine
        except asyncio.CancelledError as cancellation:
            # the future keeps no cause of a cancellation
            if cancellation.__cause__ is not None:
                causes.append(cancellation.__cause__)
            raise

    try:
        return _result(asyncio.run_coroutine_threadsafe(with_cause(), target))
    except CancelledError:
        if causes:
            raise causes[0] from None
        raise
    except BaseException:
        # an interrupt of the waiting thread must not leave the coroutine running
        if not tasks or not tasks[0].done():
            _result(asyncio.run_coroutine_threadsafe(_cancel(tasks), target))
        raise


def _runs_here(loop: asyncio.AbstractEventLoop) -> bool:
    """Whether this code runs on the thread of the loop."""
    try:
        return asyncio.get_running_loop() is loop
    except RuntimeError:  # no loop runs on this thread
        return False


def _result(future: Future[T]) -> T:
    """The result of a future; an interrupt that comes just before a wait is noticed when it ends."""
    while not wait([future], timeout=1).done:
        pass
    return future.result()


async def _cancel(tasks: list[asyncio.Task[Any]]) -> None:
    for task in tasks:
        task.cancel()
        await asyncio.wait([task])


def iterate_sync(
    items: AsyncGenerator[T], loop: asyncio.AbstractEventLoop | None = None
) -> Iterator[T]:
    """Iterate over an asynchronous generator from synchronous code; leaving early closes it."""

    async def next_item() -> tuple[T] | None:
        try:
            return (await anext(items),)
        except StopAsyncIteration:
            return None

    async def close() -> None:
        await items.aclose()

    try:
        while (item := run_sync(next_item(), loop)) is not None:
            yield item[0]
    finally:
        run_sync(close(), loop)
