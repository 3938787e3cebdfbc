"""The location of the running code: the run and the call that it is part of, and what runs beside it."""

from __future__ import annotations

import os
from contextvars import ContextVar, Token
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from podwright.run.run import Run


class ToolCallId(NamedTuple):
    """The identity of a tool call within its run."""

    path: tuple[int, ...]
    """Its position: that of the run, or of a function step of a workflow."""
    number: int


class Location(NamedTuple):
    """The surroundings of the running code; each task and each thread of a function has its own."""

    run: Run | None = None
    """The innermost run; None outside of runs."""
    tool_call: ToolCallId | None = None
    """The tool call of that run; None outside of tools."""
    parallel_tasks: int = 1
    """Number of parallel tasks, this one included; a loan to another container is what is left divided by it."""
    thread_level: int = 0
    """How many blocking functions this code is nested in: all of them wait until it returns."""


OUTSIDE = Location()
"""The location of code that is part of no run."""
location: ContextVar[Location] = ContextVar(
    "podwright_location", default=OUTSIDE
)


def change_location(**changes: Any) -> Token[Location]:
    """Change fields of the location; `location.reset` with the returned token restores them."""
    return location.set(location.get()._replace(**changes))


def current() -> Run | None:
    """Return the run that the calling code is part of, for example the run of the agent whose tool calls this."""
    return location.get().run


def call_key() -> str | None:
    """A key of the tool call, or of the call of a step's function, that the calling code is part of.

    It is the same in each attempt of a background run, and another one for each other call: a function that passes it
    on as an idempotency key, or stores it with what it does, does it once, though it may be called again. None outside
    of such calls.
    """
    here = location.get()
    if here.run is None or here.tool_call is None:
        return None
    path, number = here.tool_call
    source = f"{here.run.id} {list(path)} {number}".encode()
    return blake2b(source, digest_size=16).hexdigest()


def _leave_run() -> None:
    location.set(OUTSIDE)


if hasattr(os, "register_at_fork"):
    # the event loop of a run does not run in a forked child
    os.register_at_fork(after_in_child=_leave_run)
