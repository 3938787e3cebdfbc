"""Synchronous calls: one event loop in one background thread, for the whole process.

One loop means that pooled connections stay usable from call to call; a thread of its own means that `run()`
works where a loop is already running, as in a notebook.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import os
import threading
from collections.abc import AsyncIterator, Coroutine, Iterator
from concurrent.futures import Future, wait
from typing import Any, TypeVar

from podwright.errors import BlockingCallError, RunError

T = TypeVar("T")

_loop: asyncio.AbstractEventLoop | None = None
_lock = threading.Lock()


def _background() -> asyncio.AbstractEventLoop:
    global _loop  # noqa: PLW0603 - one loop for the process is the point
    with _lock:
        if _loop is None or _loop.is_closed():
            loop = _loop = asyncio.new_event_loop()
            threading.Thread(target=_drive, args=(loop,), daemon=True, name="podwright-loop").start()
        return _loop


def _drive(loop: asyncio.AbstractEventLoop) -> None:
    # one task's sys.exit() goes through the loop to here; it is that task's end, not that of all others
    while not loop.is_closed():
        with contextlib.suppress(SystemExit, KeyboardInterrupt):
            loop.run_forever()


def _forget_loop() -> None:
    # a forked child has the loop's data, but not its thread, and perhaps a lock that nobody will release
    global _loop, _lock
    _loop, _lock = None, threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_loop)


def run_sync(work: Coroutine[Any, Any, T], loop: asyncio.AbstractEventLoop | None = None) -> T:
    """Drive a coroutine to its end from synchronous code.

    Args:
        work: The coroutine.
        loop: The running loop of another thread that it belongs to; by default the background loop.

    Raises:
        BlockingCallError: The calling thread is the one that would have to do the work.
        RunError: The loop was closed before the work had ended.
    """
    target = loop or _background()
    if asyncio._get_running_loop() is target:  # noqa: SLF001  # pyright: ignore[reportPrivateUsage] - the public one raises
        work.close()
        raise BlockingCallError("run() was called on the event loop's own thread, where it would wait for itself.")
    future: Future[T] = Future()
    tasks: list[asyncio.Task[T]] = []

    def start() -> None:
        task = target.create_task(work)
        tasks.append(task)
        task.add_done_callback(finish)

    def finish(task: asyncio.Task[T]) -> None:
        if task.cancelled():
            try:
                task.result()
            except asyncio.CancelledError as error:
                future.set_exception(error.__cause__ or error)
        elif error := task.exception():
            future.set_exception(error)
        else:
            future.set_result(task.result())

    def stop() -> None:
        for task in tasks:
            task.cancel()
        if not tasks:  # an interrupt came before the start
            work.close()
            future.cancel()

    try:
        target.call_soon_threadsafe(start, context=contextvars.copy_context())
        _wait(future, target)
        return future.result()
    except BaseException:
        # an interrupt of the waiting thread must not leave the work running
        if not target.is_closed():
            target.call_soon_threadsafe(stop)
            _wait(future, target)
        raise


def _wait(future: Future[Any], loop: asyncio.AbstractEventLoop) -> None:
    """Wait until the future is done: that of a loop that somebody closed never is."""
    while not wait([future], timeout=1).done:
        if loop.is_closed():
            raise RunError("The event loop of the run was closed.", suggestion="Await runs before you close a loop.")


def iterate_sync(items: AsyncIterator[T], loop: asyncio.AbstractEventLoop | None = None) -> Iterator[T]:
    """Go through an asynchronous iterator from synchronous code; leaving early closes it."""

    async def step() -> tuple[bool, Any]:
        try:
            return True, await anext(items)
        except StopAsyncIteration:
            return False, None

    async def close() -> None:
        aclose = getattr(items, "aclose", None)
        if aclose is not None:
            await aclose()

    try:
        while True:
            more, item = run_sync(step(), loop)
            if not more:
                return
            yield item
    finally:
        run_sync(close(), loop)
