"""Calling the functions of a caller: async ones are awaited, blocking ones run in threads."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
from collections.abc import Callable, Generator
from functools import partial
from typing import Any, cast
from weakref import WeakKeyDictionary

from podwright.location import location
from podwright.settings import current_settings
from podwright.threads import error_instead_of_exit, is_async, run_in_thread

_slots: WeakKeyDictionary[
    asyncio.AbstractEventLoop, dict[int, asyncio.Semaphore]
] = WeakKeyDictionary()
"""Free threads of each event loop by level. If all levels shared threads, functions could hold all of them while each
waits for a thread of the next level."""


async def call_function(
    function: Callable[..., Any], /, *args: Any, **kwargs: Any
) -> Any:
    """Call a caller's function: await it if it is async, else run it in a thread. A generator gives a list.

    An awaitable that a function returns is awaited.

    Raises:
        Exception: What it raises. A `SystemExit`, or a cancellation of its own, becomes a `RuntimeError`.
        asyncio.CancelledError: The calling task is cancelled.
    """
    with exits_as_errors():
        if is_async(function):
            result = function(*args, **kwargs)
        else:
            slots = _slots_of(
                asyncio.get_running_loop(), location.get().thread_level
            )
            call = partial(function, *args, **kwargs)
            result = await run_in_thread(call, slots)
        if inspect.isasyncgen(result):
            return [item async for item in result]
        if inspect.isawaitable(result):
            return await result
        return result


@contextlib.contextmanager
def exits_as_errors() -> Generator[None]:
    """Keep a caller's code from ending the process, or the run around it.

    Raises:
        RuntimeError: It raised `SystemExit`, or a cancellation although the calling task is not cancelled.
    """
    task = cast("asyncio.Task[Any]", asyncio.current_task())
    try:
        yield
    except asyncio.CancelledError as error:
        if task.cancelling():
            raise
        raise error_instead_of_exit(error) from error
    except SystemExit as error:
        raise error_instead_of_exit(error) from error


def _slots_of(loop: asyncio.AbstractEventLoop, level: int) -> asyncio.Semaphore:
    """The free threads of an event loop for functions of a level."""
    by_level = _slots.setdefault(loop, {})
    if level not in by_level:
        by_level[level] = asyncio.Semaphore(current_settings().tool_threads)
    return by_level[level]
