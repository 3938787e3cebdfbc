"""Time limits that cost little: what `asyncio.timeout` does, with one timer of the event loop for all of them.

Of its timers nearly all are cancelled long before they are due, and until then they lie in the loop's heap: a run with
one for itself, one for its model call and one for the answer's first byte takes a good part of its time for them.
"""

from __future__ import annotations

import asyncio
import math
import threading
import weakref
from collections import OrderedDict
from itertools import takewhile
from types import TracebackType
from typing import cast


class Deadline:
    """A context within which the current task is cancelled when a time is over; TimeoutError is raised at its end.

    Args:
        seconds: How long; None or infinite is no limit.

    Raises:
        ValueError: It is no number.
    """

    __slots__ = ("_before", "_clock", "_task", "expired", "seconds", "when")

    def __init__(self, seconds: float | None) -> None:
        self.seconds = math.inf if seconds is None else seconds
        if math.isnan(self.seconds):
            raise ValueError("a time limit is a number of seconds")
        self.when = math.inf
        """When it is over, in the loop's time."""
        self.expired = False
        """Whether it was over before its context ended."""

    def __enter__(self) -> Deadline:
        """Let the time begin."""
        self._task = cast("asyncio.Task[object]", asyncio.current_task())
        self._before = self._task.cancelling()
        self._clock = _clock()
        self._clock.add(self)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Let it end.

        Raises:
            TimeoutError: In place of the cancellation, where nobody else cancelled the task.
        """
        self._clock.drop(self)
        if self.expired and self._task.uncancel() <= self._before and isinstance(error, asyncio.CancelledError):
            raise TimeoutError from error

    def renew(self, seconds: float) -> None:
        """Let a time begin anew, from now on."""
        if not self.expired:
            self._clock.drop(self)
            self.seconds = seconds
            self._clock.add(self)

    def end(self) -> None:
        """The time is over."""
        self.expired = True
        self._task.cancel()


class _Clock:
    """The deadlines of one loop: in a line for each length, so that the first one of a line is due first."""

    def __init__(self) -> None:
        self._lines: dict[float, OrderedDict[Deadline, None]] = {}
        self._due = math.inf
        self._looks: set[float] = set()

    def add(self, one: Deadline) -> None:
        if one.seconds == math.inf:
            return
        loop = asyncio.get_running_loop()
        one.when = loop.time() + one.seconds
        line = self._lines.get(one.seconds)
        if line is None:
            line = self._lines[one.seconds] = OrderedDict()
        line[one] = None
        if one.when < self._due:
            self._look_at(one.when)

    def drop(self, one: Deadline) -> None:
        line = self._lines.get(one.seconds)
        if line is not None:
            line.pop(one, None)
            if not line:
                del self._lines[one.seconds]

    def _look_at(self, when: float) -> None:
        self._due = when
        if when < math.inf and when not in self._looks:
            self._looks.add(when)
            asyncio.get_running_loop().call_at(when, self._look, when)

    def _look(self, when: float) -> None:
        self._looks.discard(when)
        if when != self._due:  # another look was due before, and has seen to the rest
            return
        now = asyncio.get_running_loop().time()
        for one in [one for line in self._lines.values() for one in takewhile(lambda one: one.when <= now, line)]:
            self.drop(one)
            one.end()
        self._look_at(min((next(iter(line)).when for line in self._lines.values()), default=math.inf))


_here = threading.local()


def _clock() -> _Clock:
    """The clock of the running loop."""
    loop = asyncio.get_running_loop()
    known: tuple[weakref.ref[asyncio.AbstractEventLoop], _Clock] | None = getattr(_here, "clock", None)
    if known is None or known[0]() is not loop:
        known = _here.clock = weakref.ref(loop), _Clock()
    return known[1]
