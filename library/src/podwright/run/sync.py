"""Synchronous calls: one event loop in a background thread serves the whole process.

With one loop, pooled connections stay usable from call to call; with a thread of its own, `run()` also works where an
event loop is running already, as in a notebook.
"""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import os
import selectors
import threading
from collections.abc import AsyncGenerator, Coroutine, Iterator
from concurrent.futures import CancelledError, Future, wait
from typing import Any, TypeVar, cast

from podwright.errors import BlockingCallError

T = TypeVar("T")

_loop: asyncio.AbstractEventLoop | None = None
_thread: threading.Thread | None = None
_selector: selectors.BaseSelector | None = None
"""What the loop waits with."""
_lock = threading.Lock()
_is_exiting = False
_inherited: list[asyncio.AbstractEventLoop] = []
"""Loops of the processes that this one was forked from: kept, because their destructors would close sockets."""


def _background_loop() -> asyncio.AbstractEventLoop:
    global _loop, _thread, _selector  # noqa: PLW0603 - one loop for the whole process
    with _lock:
        if _is_exiting:
            raise BlockingCallError(
                "The process is ending, and runs nothing more."
            )
        if _loop is None or _thread is None or not _thread.is_alive():
            if hasattr(os, "fork"):
                _selector = selectors.DefaultSelector()
                _loop = asyncio.SelectorEventLoop(_selector)
            else:
                _loop = asyncio.new_event_loop()
            _thread = threading.Thread(
                target=_loop.run_forever, daemon=True, name="podwright-loop"
            )
            _thread.start()
        return _loop


def _shut_down_loop() -> None:
    """End what runs on the loop, and close what belongs to it, such as its HTTP session."""
    global _is_exiting  # noqa: PLW0603 - as above
    _is_exiting = True
    if _loop is None or not _loop.is_running():
        return
    with contextlib.suppress(Exception):
        asyncio.run_coroutine_threadsafe(_end_all(), _loop).result(timeout=1)


async def _end_all() -> None:
    loop = asyncio.get_running_loop()
    tasks = asyncio.all_tasks() - {asyncio.current_task()}
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    await loop.shutdown_asyncgens()


atexit.register(_shut_down_loop)


def _forget_loop_of_parent() -> None:
    """In a forked child: leave the parent's loop alone, whose sockets and selector both processes share."""
    global _loop, _thread, _lock  # noqa: PLW0603 - as above
    _lock = threading.Lock()
    if _loop is None or _selector is None:
        return
    # a selector of its own in its place: else the parent would not watch a socket any more that the child closes
    with selectors.DefaultSelector() as own:
        os.dup2(_fileno(own), _fileno(_selector))
    _loop.set_exception_handler(_ignore)
    _inherited.append(_loop)
    _loop = None
    _thread = None


def _fileno(selector: selectors.BaseSelector) -> int:
    return cast("Any", selector).fileno()  # epoll and kqueue have it


def _ignore(_loop: asyncio.AbstractEventLoop, _context: dict[str, Any]) -> None:
    """Report nothing: what the parent has open is not lost with the child."""


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_loop_of_parent)


def run_sync(
    coroutine: Coroutine[Any, Any, T],
    loop: asyncio.AbstractEventLoop | None = None,
) -> T:
    """Run a coroutine to its end from synchronous code; an interrupt cancels it and waits until it has ended.

    Args:
        coroutine: What to run.
        loop: The running loop of another thread that it belongs to; by default the background loop.

    Raises:
        BlockingCallError: The calling thread is the one that would have to run it, or the process is ending.
    """
    try:
        target = loop or _background_loop()
    except BlockingCallError:
        coroutine.close()
        raise
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
        # at the end of the process, the loop has closed them
        if not _is_exiting:
            run_sync(close(), loop)
