"""A run: identity, events, limits and usage of one execution, and the boundary that every execution passes.

A component only does its work, in `perform`. What is the same for all kinds happens here, once: ids, the
start and end events, limits, what an error is told about its run, and the way nested runs add up.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import os
from collections.abc import Awaitable, Generator, Iterable
from contextvars import ContextVar
from dataclasses import dataclass, field
from itertools import count
from time import perf_counter, time
from typing import Any, ClassVar, Protocol, TypeVar, cast

from podwright.budget import Budget
from podwright.errors import ApprovalRequired, LimitExceededError, PodwrightError, RunCancelledError
from podwright.events import (
    Event,
    Kind,
    Outcome,
    RunCancelled,
    RunFailed,
    RunFinished,
    RunPaused,
    RunStarted,
    StepFinished,
    StepStarted,
    Subscriber,
)
from podwright.json_data import to_json_data
from podwright.result import ExecutionResult
from podwright.usage import NOTHING, RunLimits, Usage

T = TypeVar("T")

MOST_STEPS = 100_000
"""No run does more steps, nested runs included: loops and maps inside each other multiply."""

MOST_HOPS = 3
"""Containers that a run passes through after the first one, if nobody says otherwise."""

_log = logging.getLogger("podwright")
_current: ContextVar[Run | None] = ContextVar("podwright_run", default=None)


@dataclass(frozen=True, slots=True)
class Task:
    """What a component is to do."""

    input: Any
    """A string or an object of named inputs; a workflow is given its walk."""
    response_model: Any = None
    """The type that the answer must have; None is text."""


@dataclass(slots=True)
class Checkpoint:
    """Where a stopped workflow stands."""

    context: dict[str, Any]
    resume_path: list[int]


class Component(Protocol):
    """What a run needs of a component."""

    kind: ClassVar[Kind]
    last_usage: Usage

    @property
    def name(self) -> str:
        """Its name."""
        ...

    @property
    def subscribers(self) -> tuple[Subscriber, ...]:
        """Who always listens to it."""
        ...

    @property
    def limits(self) -> RunLimits | None:
        """What each of its runs may use."""
        ...

    async def perform(self, run: Run, task: Task) -> Any:
        """Do the work."""
        ...


@dataclass(slots=True)
class _Tree:
    """What a run shares with all runs nested in it."""

    loop: asyncio.AbstractEventLoop
    numbers: count[int] = field(default_factory=count)
    dropped: set[int] = field(default_factory=set[int])
    """Subscribers that raised, by identity: a callable need not be hashable."""
    steps: int = 0
    """How many have begun."""
    hops: int = MOST_HOPS
    """Containers that may follow."""


class Run:
    """One execution of one component."""

    __slots__ = (
        "_tree", "budgets", "calls", "checkpoint", "component", "id", "kind", "nested", "over", "parent", "path",
        "started", "streaming", "subscribers", "usage", "wall_time",
    )  # fmt: skip

    def __init__(
        self,
        component: Component,
        tree: _Tree,
        parent: Run | None = None,
        path: tuple[int, ...] = (),
        subscribers: tuple[Subscriber, ...] = (),
        limits: Iterable[RunLimits] = (),
        streaming: bool = False,
    ) -> None:
        self.id: str = os.urandom(16).hex()
        """32 hexadecimal digits."""
        self.component: str = component.name
        """Name of the component that runs."""
        self.kind: Kind = component.kind
        self.parent = parent
        """The run that this one is nested in."""
        self.path = path
        """Where in the outermost workflow it runs."""
        self.subscribers = subscribers
        """Who hears its events, and those of the runs nested in it."""
        self.budgets: tuple[Budget, ...] = parent.budgets if parent else ()
        """The limits that it stays within, outermost first."""
        self.wall_time: float | None = None
        """Seconds that it may take; None is no limit of its own."""
        for one in limits:
            self.budgets = (*self.budgets, Budget(one))
            if one.wall_time is not None:
                self.wall_time = one.wall_time if self.wall_time is None else min(one.wall_time, self.wall_time)
        self.usage = NOTHING
        """What it has used so far, nested runs included."""
        self.calls = 0
        """How many model calls it has begun."""
        self.checkpoint: Checkpoint | None = None
        """Set by a workflow that is stopped."""
        self.streaming: bool = streaming or (parent is not None and parent.streaming)
        """Whether models are asked for their tokens one by one."""
        self.nested: set[asyncio.Task[Any]] = set()
        """Tasks of the runs that its tools started and that are under way."""
        self.over = False
        """Whether it has ended, or is about to."""
        self.started = perf_counter()
        self._tree = tree

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        """The event loop that the run lives on."""
        return self._tree.loop

    @property
    def duration_ms(self) -> float:
        """Milliseconds since it started."""
        return round((perf_counter() - self.started) * 1000, 3)

    @property
    def time_left(self) -> float:
        """Seconds until its own wall time, or that of a run around it, is over; infinite without a limit."""
        own = math.inf if self.wall_time is None else self.started + self.wall_time - perf_counter()
        return own if self.parent is None else min(own, self.parent.time_left)

    @property
    def hops(self) -> int:
        """Containers that the run may still pass through."""
        return self._tree.hops

    def emit(self, event: Event, path: tuple[int, ...] | None = None) -> None:
        """Stamp an event with the common fields and hand it to every subscriber.

        Args:
            event: A new event; only its own fields need to be set.
            path: Where it happened; by default where this run stands.
        """
        stamp = object.__setattr__  # the event is new and nobody has it yet, so stamping it is still making it
        stamp(event, "seq", next(self._tree.numbers))
        stamp(event, "at", time())
        stamp(event, "run_id", self.id)
        stamp(event, "parent_id", self.parent.id if self.parent else None)
        stamp(event, "component", self.component)
        stamp(event, "kind", self.kind)
        stamp(event, "path", self.path if path is None else path)
        self._deliver(event)

    def relay(self, event: Event, remote: str) -> None:
        """Hand on what a remote component tells, in its place within this run.

        Args:
            event: A new event, as the remote stamped it.
            remote: Name of the remote component.
        """
        stamp = object.__setattr__  # as in `emit`
        stamp(event, "seq", next(self._tree.numbers))
        stamp(event, "parent_id", event.parent_id or self.id)
        stamp(event, "path", (*self.path, *event.path))
        stamp(event, "remote", remote)
        self._deliver(event)

    def _deliver(self, event: Event) -> None:
        for subscriber in self.subscribers:
            if self._tree.dropped and id(subscriber) in self._tree.dropped:
                continue
            try:
                subscriber(event)
            except KeyboardInterrupt:  # of a person, who wants the program to end
                raise
            except BaseException:  # noqa: BLE001 - whatever it raises, it must not break the run
                self._tree.dropped.add(id(subscriber))
                _log.exception("A subscriber of run %s raised; it hears no more of this run.", self.id)

    def add_usage(self, usage: Usage) -> None:
        """Count usage to this run and to all that it is nested in."""
        run: Run | None = self
        while run is not None:
            run.usage += usage
            run = run.parent

    def child(
        self,
        component: Component,
        path: tuple[int, ...] | None = None,
        subscribers: tuple[Subscriber, ...] = (),
        limits: RunLimits | None = None,
        streaming: bool = False,
    ) -> Run:
        """A run nested in this one: the same trace, subscribers and limits; its usage counts here too."""
        heard = self.subscribers
        extra = tuple(one for one in (*subscribers, *component.subscribers) if one not in heard)
        own = [one for one in (limits, component.limits) if one is not None]
        here = self.path if path is None else path
        return Run(component, self._tree, self, here, heard + extra, own, streaming)

    @contextlib.contextmanager
    def step(self, name: str, step_type: str, path: tuple[int, ...]) -> Generator[None]:
        """Tell of a step's start and end, however it ends.

        Raises:
            LimitExceededError: The outermost run has done all the steps that any may do.
        """
        if self._tree.steps >= MOST_STEPS:
            raise LimitExceededError(
                f"The run has done {MOST_STEPS} steps, the most that one run may do.",
                limit="steps",
                suggestion="Lower max_iterations, or have maps go over fewer items.",
            )
        self._tree.steps += 1
        self.emit(StepStarted(step=name, step_type=step_type), path)
        started = perf_counter()
        outcome: Outcome = "failed"
        try:
            yield
            outcome = "ok"
        except asyncio.CancelledError:
            outcome = "cancelled"
            raise
        except ApprovalRequired:
            outcome = "paused"
            raise
        finally:
            took = round((perf_counter() - started) * 1000, 3)
            self.emit(StepFinished(step=name, step_type=step_type, outcome=outcome, duration_ms=took), path)

    async def execute(self, component: Component, task: Task) -> Any:
        """Perform the task within this run; every execution of every kind goes through here.

        Raises:
            PodwrightError: With the facts of this run attached.
            asyncio.CancelledError: The caller cancelled; its cause is a `RunCancelledError` with the facts.
        """
        token = _current.set(self)
        self.emit(RunStarted(input=_shown(getattr(task.input, "shown_input", task.input))))
        try:
            if self.streaming and self.parent is None:
                await asyncio.sleep(0)  # who reads the events can tell of the start before a model is asked
            value = await self._within_wall_time(component, task)
        except asyncio.CancelledError as stop:
            await self._stop_nested()
            self._cancelled(stop)
        except BaseException as error:
            await self._stop_nested()
            self._failed(error)
            raise
        else:
            self.emit(RunFinished(value=_shown(value), usage=self.usage, duration_ms=self.duration_ms))
            return value
        finally:
            self.over = True
            component.last_usage = self.usage
            _current.reset(token)

    @contextlib.contextmanager
    def holding(self) -> Generator[None]:
        """Within this context, the current task works on a run nested in this one, and is stopped with it."""
        task = cast("asyncio.Task[Any]", asyncio.current_task())
        self.nested.add(task)
        try:
            yield
        finally:
            self.nested.discard(task)

    async def _stop_nested(self) -> None:
        """Cancel the runs that tools in threads still wait for: the thread cannot be cancelled, so nobody else does."""
        self.over = True
        for task in self.nested:
            task.cancel()
        if self.nested:
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.wait(self.nested)

    async def _within_wall_time(self, component: Component, task: Task) -> Any:
        if self.wall_time is None:
            return await component.perform(self, task)
        deadline = asyncio.timeout(self.wall_time)
        try:
            async with deadline:
                return await component.perform(self, task)
        except TimeoutError as error:
            if not deadline.expired():
                raise
            raise LimitExceededError(
                f"'{self.component}' ran for longer than {self.wall_time:g} s.", limit="wall_time"
            ) from error

    def _cancelled(self, stop: asyncio.CancelledError) -> None:
        error = RunCancelledError(f"The run of '{self.component}' was cancelled.")
        self._attach(error)
        self.emit(
            RunCancelled(
                context=error.context,
                resume_path=tuple(error.resume_path) if error.resume_path is not None else None,
                usage=self.usage,
                duration_ms=self.duration_ms,
            )
        )
        # a plain CancelledError, for asyncio tells a cancellation by its exact type; the facts ride as its cause
        raise asyncio.CancelledError(*stop.args) from error

    def _failed(self, error: BaseException) -> None:
        if not isinstance(error, PodwrightError):
            facts = {"code": "internal_error", "message": type(error).__name__}
            self.emit(RunFailed(error=facts, usage=self.usage, duration_ms=self.duration_ms))
            return
        self._attach(error)
        if isinstance(error, ApprovalRequired):
            path = tuple(error.resume_path or ())
            self.emit(
                RunPaused(
                    message=error.message,
                    context=error.context,
                    resume_path=path,
                    usage=self.usage,
                    duration_ms=self.duration_ms,
                )
            )
        else:
            self.emit(RunFailed(error=to_json_data(error.to_dict()), usage=self.usage, duration_ms=self.duration_ms))

    def _attach(self, error: PodwrightError) -> None:
        """Tell an error about its run: the innermost component raised it, the outermost run is the caller's."""
        error.component = error.component or self.component
        error.run_id = self.id
        error.usage = self.usage
        # only what the outermost run can itself go on from is of use to the caller
        error.context = self.checkpoint.context if self.checkpoint else None
        error.resume_path = self.checkpoint.resume_path if self.checkpoint else None


def _shown(value: Any) -> Any:
    """A value as the trace has it: what is no JSON is only named there."""
    try:
        return to_json_data(value)
    except (ValueError, RecursionError):
        return f"({type(value).__name__}, no JSON)"


def current() -> Run | None:
    """The run that the calling code is part of, such as that of the agent whose tool it is."""
    return _current.get()


if hasattr(os, "register_at_fork"):
    # the loop of a run that a tool was forked from does not run in the child
    os.register_at_fork(after_in_child=lambda: _current.set(None))


async def execute(
    component: Component,
    task: Task,
    *,
    subscribers: Iterable[Subscriber] = (),
    limits: RunLimits | None = None,
    stream: bool = False,
    trace: bool = False,
    hops: int = MOST_HOPS,
) -> ExecutionResult:
    """Run a component; what all ways to run one come down to.

    Called from within a run, by a tool say, the new run is nested in that one.

    Args:
        component: What to run.
        task: What it is to do.
        subscribers: Who hears this run's events, besides the component's own subscribers.
        limits: What this run may use, besides the component's own limits.
        stream: Whether models are asked for their tokens one by one.
        trace: Whether the result keeps the events.
        hops: Containers that it may pass through after this one; a nested run has those of the run around it.
    """
    loop = asyncio.get_running_loop()
    parent = _current.get()
    if parent is not None and (parent.over or parent.loop is not loop):
        # a trace ends with its run, and lives on one loop: its subscribers and budgets are not made for two threads
        parent = None
    events: list[Event] = []
    extra = (*subscribers, events.append) if trace else tuple(subscribers)
    if parent is None:
        own = [one for one in (limits, component.limits) if one is not None]
        run = Run(
            component, _Tree(loop, hops=hops), subscribers=extra + component.subscribers, limits=own, streaming=stream
        )
        value = await run.execute(component, task)
    else:
        run = parent.child(component, subscribers=extra, limits=limits, streaming=stream)
        with parent.holding():
            value = await run.execute(component, task)
    return ExecutionResult(value, events, run.duration_ms, run.usage)


async def gather_or_cancel(work: Iterable[Awaitable[T]]) -> list[T]:
    """Await all at once; the first failure cancels the others, waits for them, and is raised."""
    tasks = [asyncio.ensure_future(one) for one in work]
    try:
        return await asyncio.gather(*tasks)
    except BaseException:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        raise
