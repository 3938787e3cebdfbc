"""Running blocking functions in threads, so that the event loop stays free.

Each call gets a daemon thread, which keeps its slot until the function returns. An executor would join its threads at
exit, so that a blocked function kept the process alive; anyio would release the slot when the caller is cancelled.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import threading
from collections.abc import Callable
from contextvars import ContextVar, copy_context
from functools import partial
from typing import Any, TypeVar, cast
from weakref import WeakKeyDictionary

from podwright.data.text import describe_error
from podwright.location import change_location, location

T = TypeVar("T")

_computing: WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Semaphore] = (
    WeakKeyDictionary()
)
"""Free threads of each event loop for computations."""
COMPUTING_THREADS = 2
"""More of them would keep the event loop from its turn."""
_caller_left: ContextVar[threading.Event | None] = ContextVar(
    "podwright_caller_left", default=None
)
"""Set as soon as nobody awaits the present computation; None outside of computations."""


async def compute(function: Callable[..., T], /, *args: Any) -> T:
    """Call a function of our own that may take long in one of few threads, so that the event loop stays free.

    A thread cannot be cancelled: the function calls `check_cancelled` now and then, and its end frees the thread.
    """
    loop = asyncio.get_running_loop()
    slots = _computing.setdefault(loop, asyncio.Semaphore(COMPUTING_THREADS))
    caller_left = threading.Event()

    def work() -> T:
        # the thread has a copy of the context
        _caller_left.set(caller_left)
        return function(*args)

    try:
        return await run_in_thread(work, slots)
    finally:
        caller_left.set()


def check_cancelled() -> None:
    """End a computation that nobody awaits any more; without effect outside of `compute`.

    Raises:
        asyncio.CancelledError: The task that awaited it was cancelled.
    """
    caller_left = _caller_left.get()
    if caller_left is not None and caller_left.is_set():
        raise asyncio.CancelledError


def is_async(function: Callable[..., Any]) -> bool:
    """Whether a call has to be awaited or iterated; true for objects with an async `__call__` as well."""
    call = getattr(function, "__call__", None)  # noqa: B004 - not whether it is callable, but whether its call is async
    return _is_async_function(function) or _is_async_function(call)


def _is_async_function(function: object) -> bool:
    return inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(
        function
    )


def error_instead_of_exit(error: BaseException) -> RuntimeError:
    """An error in place of an exception that would end the process or the calling task."""
    return RuntimeError(f"the function raised {describe_error(error)}")


def _raisable_error(error: BaseException) -> Exception:
    """The error itself, or another one in its place.

    A future cannot hold a `StopIteration`. A `SystemExit` would end the event loop, and a `CancelledError` would cancel
    the awaiting task.
    """
    if isinstance(error, Exception) and not isinstance(error, StopIteration):
        return error
    return error_instead_of_exit(error)


async def run_in_thread(
    function: Callable[[], Any], slots: asyncio.Semaphore
) -> Any:
    """Run a blocking function in a daemon thread, with the context variables of this task; wait for a free one."""
    loop = asyncio.get_running_loop()
    context = copy_context()
    level = location.get().thread_level + 1
    context.run(change_location, thread_level=level)
    future: asyncio.Future[Any] = loop.create_future()

    def work() -> None:
        try:
            outcome = partial(future.set_result, context.run(_call, function))
        except BaseException as error:  # noqa: BLE001 - it is raised in the awaiting task
            outcome = partial(future.set_exception, _raisable_error(error))
        with contextlib.suppress(RuntimeError):  # the loop is closed
            loop.call_soon_threadsafe(finish, outcome)

    def finish(outcome: Callable[[], None]) -> None:
        slots.release()
        if not future.done():
            outcome()

    await slots.acquire()
    try:
        threading.Thread(
            target=work, daemon=True, name="podwright-tool"
        ).start()
    except BaseException:
        slots.release()
        raise
    return await future


def _call(function: Callable[[], Any]) -> Any:
    result = function()
    if inspect.isgenerator(result):
        return list(cast("Any", result))
    return result
