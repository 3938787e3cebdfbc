"""Runs: identity, events, limits and usage of one execution of a component.

A component only does its work, in `perform`. Everything that is the same for all kinds happens here: ids, start and
end events, limits, what an error tells about its run, and the usage of nested runs.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import logging
import math
import os
from collections import Counter
from collections.abc import Awaitable, Callable, Generator, Iterable, Mapping
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import partial
from hashlib import blake2b
from itertools import count
from time import perf_counter, time
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar, cast

from podwright import events
from podwright.approvals import ApprovalId, Decision, Question
from podwright.budget import Budget, parallel_tasks
from podwright.errors import (
    ApprovalRejectedError,
    ApprovalRequired,
    LimitExceededError,
    PodwrightError,
    RunCancelledError,
)
from podwright.events import Event, Kind, Outcome, Subscriber
from podwright.function_context import make_context
from podwright.journal import CaughtError, Journal
from podwright.json_data import to_json_data
from podwright.messages import Message, ModelSettings
from podwright.result import ExecutionResult
from podwright.run_context import (
    RunAttributes,
    RunContext,
    context_source,
    current_attributes,
)
from podwright.saved_run import SAVED_RUN, SavedRun, record
from podwright.usage import NO_USAGE, RunLimits, Usage

if TYPE_CHECKING:
    from podwright.components.base import Component

T = TypeVar("T")

MAX_STEPS_PER_RUN = 100_000
"""Steps that one run may do, nested runs included: loops and maps inside each other multiply."""

MAX_TEXT_PER_RUN = 100_000_000
"""Characters of templates that one run may fill, nested runs included: a map may fill a long text for each item."""

MAX_HOPS = 3
"""Default number of further containers that a run may pass through."""

logger = logging.getLogger("podwright")
_current: ContextVar[Run | None] = ContextVar("podwright_run", default=None)


class ToolCallId(NamedTuple):
    """What tells a tool call from the others of its run."""

    path: tuple[int, ...]
    """Its position: that of the run, or of a function step of a workflow."""
    number: int


current_tool_call: ContextVar[ToolCallId | None] = ContextVar(
    "podwright_tool_call", default=None
)
"""The tool call of the current run that this code is part of; None outside of tools."""


@dataclass(frozen=True, slots=True)
class Task:
    """What a component is to do."""

    input: Any
    """A string, an object of named inputs, or a list of texts and images."""
    response_model: Any = None
    """The type that the answer must have; None is text."""
    messages: tuple[Message, ...] = ()
    """Earlier turns of the conversation."""
    instructions: str = ""
    """Instructions of the caller, which an agent's or a conductor's model is given after its own as a user's message.
    They are not a turn of the conversation, which does not contain them."""
    settings: ModelSettings = field(default_factory=ModelSettings)
    """Settings of an agent's or a conductor's model calls for this run only, in place of its own; `max_tokens` can only
    be lowered, and an answer that is cut off there is an answer."""
    given: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """What the task was made from, as JSON data: the arguments of the component's method `task`."""
    saved: SavedRun | None = None
    """The paused run that goes on; None for a new one."""
    values: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """Values that only templates read, in addition to the named inputs; an input of the same name comes first."""


@dataclass(slots=True)
class Checkpoint:
    """Where a stopped workflow can resume: the caller keeps it, and gives it to the run that goes on."""

    context: dict[str, Any]
    resume_path: list[int]


@dataclass(slots=True)
class StepResult:
    """The outcome of a step that did not raise."""

    outcome: Outcome = "ok"


@dataclass(slots=True)
class _RunTree:
    """What a run shares with all runs nested in it."""

    loop: asyncio.AbstractEventLoop
    hops: int = MAX_HOPS
    """Further containers that the run may pass through."""
    idempotency_key: str | None = None
    """Seed of the `Idempotency-Key` of requests to remote components; None takes the id of the outermost run."""
    journal: Journal = field(default_factory=Journal)
    """What earlier attempts did; empty if there were none."""
    recorded: list[Event] | None = None
    """The events so far of a run that may have to be saved, because a person is asked; None with a journal."""
    decisions: Mapping[ApprovalId, Decision] = field(
        default_factory=dict[ApprovalId, Decision]
    )
    """What people have decided in earlier attempts of such a run."""
    sequence: count[int] = field(default_factory=count)
    failed_subscribers: set[int] = field(default_factory=set[int])
    """By identity: a callable need not be hashable."""
    steps: int = 0
    text: int = 0
    """Characters of filled templates."""


class _NestedTasks:
    """The tasks of nested runs that the tools of one run started, which end with the run or with their tool call."""

    def __init__(self) -> None:
        self._calls: dict[asyncio.Task[Any], ToolCallId | None] = {}
        """The tool call that each task is part of."""
        self._failed_calls: set[ToolCallId] = set()

    @contextlib.contextmanager
    def bind_current(self) -> Generator[None]:
        """While the context is open, the current task is one of these.

        Raises:
            RunCancelledError: Its tool call has failed.
        """
        call = current_tool_call.get()
        if call in self._failed_calls:
            raise RunCancelledError(
                "The tool call that this run is part of has failed already."
            )
        task = cast("asyncio.Task[Any]", asyncio.current_task())
        self._calls[task] = call
        try:
            yield
        finally:
            self._calls.pop(task, None)

    async def cancel_call(self, call: ToolCallId) -> None:
        """Cancel the tasks of a failed tool call, and wait for their end; it gets no more of them."""
        self._failed_calls.add(call)
        await _cancel(
            [task for task, other in self._calls.items() if other == call]
        )

    async def cancel_all(self) -> None:
        """Cancel all tasks, and wait for their end."""
        await _cancel(list(self._calls))


async def _cancel(tasks: list[asyncio.Task[Any]]) -> None:
    for task in tasks:
        task.cancel()
    if tasks:
        await asyncio.wait(tasks)


class Run:
    """One execution of one component."""

    finish_reason: str = "stop"
    """How the answer ended; see `ExecutionResult.finish_reason`."""
    data: Any = None
    """The result as JSON data if it is more than texts: a structured answer, or the context of a workflow."""
    checkpoint: Checkpoint | None = None
    """Set by a workflow that is stopped."""
    exceeded: LimitExceededError | None = None
    """The limit that a function of it has exceeded by what it reported."""

    def __init__(
        self,
        component: Component,
        tree: _RunTree,
        parent: Run | None = None,
        path: tuple[int, ...] = (),
        subscribers: tuple[Subscriber, ...] = (),
        limits: Iterable[RunLimits] = (),
        streaming: bool = False,
        sibling_key: str = "",
        run_id: str | None = None,
    ) -> None:
        self._component = component
        self._tree = tree
        self._sibling_key = sibling_key
        """Tells it from the other runs nested in the run around it; the same in each attempt."""
        self.parent = parent
        """The run that it is nested in."""
        self.id: str = self._make_id(run_id)
        """32 hexadecimal digits; those of a nested run follow from the id of the run around it and the sibling key."""
        self.component_name: str = component.name
        self.kind: Kind = component.kind
        self.path = path
        """Its position in the outermost workflow."""
        self.attributes: RunAttributes = current_attributes()
        """What its caller says of it."""
        self.subscribers = subscribers
        own_limits = tuple(limits)
        self.budgets: tuple[Budget, ...] = tuple(map(Budget, own_limits))
        """The limits that apply to it, outermost first."""
        self.wall_time = _shortest_wall_time(own_limits)
        """Its own time limit in seconds."""
        self.usage = NO_USAGE
        """What it has used so far, nested runs included."""
        self.model_calls = 0
        """Model calls begun by this run itself."""
        self.tool_calls = 0
        """Tool calls of this run itself."""
        self.messages: list[dict[str, Any]] = []
        """The conversation after the run as JSON data; of agents and conductors."""
        self.streaming = streaming
        """Whether models stream their responses."""
        self.in_tool = False
        """Whether it is nested in a call of a tool; a conductor's skills are runs, not tools."""
        self.is_closed = False
        """Whether it has ended or is being stopped."""
        self._parent_id: str | None = None
        self._tool_call = current_tool_call.get()
        self._children: Counter[str] = Counter()
        """How many runs are nested in this one so far, by the first part of their sibling keys."""
        self._nested_tasks = _NestedTasks()
        """Tasks of nested runs that tools started."""
        self.started = perf_counter()
        self._deadline = self._make_deadline()
        """When its own time is over, that of earlier attempts included; infinite without a limit."""
        if parent is not None:
            self._inherit(parent)

    def _make_id(self, given: str | None) -> str:
        if self.parent is not None:
            return self._id_below(self.parent.id)
        return given or os.urandom(16).hex()

    def _make_deadline(self) -> float:
        if self.wall_time is None:
            return math.inf
        seconds = self.wall_time
        if self.parent is None:
            seconds -= self.journal.seconds
        return self.started + max(0.0, seconds)

    def _inherit(self, parent: Run) -> None:
        """Take over what also applies to the runs nested in a run."""
        self._parent_id = parent.id
        self.budgets = parent.budgets + self.budgets
        self.streaming = self.streaming or parent.streaming
        is_in_tool = self._tool_call is not None and parent.kind != "conductor"
        self.in_tool = is_in_tool or parent.in_tool

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        """The event loop of the run."""
        return self._tree.loop

    @property
    def outermost(self) -> Run:
        """The run that no other run of this process is around."""
        run = self
        while run.parent is not None:
            run = run.parent
        return run

    @property
    def hops(self) -> int:
        """Further containers that the run may pass through."""
        return self._tree.hops

    @property
    def journal(self) -> Journal:
        """What earlier attempts of the outermost run did; empty if there were none."""
        return self._tree.journal

    @property
    def duration_ms(self) -> float:
        """Milliseconds since the start."""
        return milliseconds_since(self.started)

    @property
    def time_left(self) -> float:
        """Seconds until the tightest time limit of this run and the runs around it; infinite without one."""
        own_time_left = self._deadline - perf_counter()
        if self.parent is None:
            return own_time_left
        return min(own_time_left, self.parent.time_left)

    def stamp(self, path: tuple[int, ...] | None = None) -> dict[str, Any]:
        """The common fields for an event that is emitted now; takes the next sequence number.

        Args:
            path: Where it happens; by default the run's own position.
        """
        if path is None:
            path = self.path
        return {
            "seq": next(self._tree.sequence),
            "at": time(),
            "run_id": self.id,
            "parent_id": self._parent_id,
            "component": self.component_name,
            "kind": self.kind,
            "path": path,
        }

    def emit(self, event: Event) -> None:
        """Deliver an event to every subscriber; one that raises is logged and gets no more events of this run."""
        if self.journal.was_emitted(event):
            return
        failed = self._tree.failed_subscribers
        for subscriber in self.subscribers:
            if id(subscriber) in failed:
                continue
            try:
                subscriber(event)
            except Exception as error:
                failed.add(id(subscriber))
                # only a bug needs a traceback; a full disk or a closed pipe does not
                is_bug = not isinstance(error, OSError)
                logger.error(
                    "A subscriber of run %s gets no more events: %r",
                    self.id,
                    error,
                    exc_info=is_bug,
                )

    def relay(self, event: Event, remote: str) -> None:
        """Deliver an event of a remote component as part of this run, unless an earlier attempt did.

        Args:
            event: The event as the remote emitted it.
            remote: Name of the remote component.
        """
        if self.journal.take_relayed(event):
            return
        relayed = dataclasses.replace(
            event,
            seq=next(self._tree.sequence),
            parent_id=event.parent_id or self.id,
            path=self.path + event.path,
            remote=remote,
        )
        self.emit(relayed)

    def count_model_call(self) -> int:
        """Count a model call of this run itself, and return its number, from 0."""
        number = self.model_calls
        self.model_calls += 1
        return number

    def add_usage(self, usage: Usage) -> None:
        """Add usage to this run and to all runs around it."""
        run: Run | None = self
        while run is not None:
            run.usage += usage
            run = run.parent

    def count_usage(self, usage: Usage) -> None:
        """Count usage in this run, in those around it, and against their limits.

        It is that of an earlier attempt, or of a call that a function reports.
        """
        self.add_usage(usage)
        for budget in self.budgets:
            budget.count(usage)

    def count_discarded_work(self) -> None:
        """Count what earlier attempts used in vain: it is part of no result that is replayed."""
        self.count_usage(self.journal.discarded)
        # limits count failed calls, but the reported usage has only those that succeeded
        failed_calls = Usage(model_calls=self.journal.failed_calls)
        for budget in self.budgets:
            budget.count(failed_calls)

    def count_caught_work(self, caught: CaughtError) -> None:
        """Count what an attempt of a try step used that is not performed again."""
        self.count_usage(caught.usage)
        failed_calls = Usage(model_calls=caught.failed_calls)
        for budget in self.budgets:
            budget.count(failed_calls)

    def is_ended_by(self, error: PodwrightError) -> bool:
        """Whether an error of a run nested in this one also ends this one."""
        if isinstance(error, LimitExceededError):
            return not self._is_limit_of_inner_run(error)
        return error.ends_run

    def _is_limit_of_inner_run(self, error: LimitExceededError) -> bool:
        """Whether the limit applies to nested runs only, such as that of one step."""
        if error.source is None or error.source in self.budgets:
            return False
        run: Run | None = self
        while run is not None:
            if error.source is run:
                return False
            run = run.parent
        return True

    def child(
        self,
        component: Component,
        path: tuple[int, ...] | None = None,
        subscribers: tuple[Subscriber, ...] = (),
        limits: RunLimits | None = None,
        streaming: bool = False,
    ) -> Run:
        """A run nested in this one, with the same trace, subscribers and limits, and further ones of its own."""
        own_path = path
        if own_path is None:
            own_path = self.path
            call = current_tool_call.get()
            if call is not None:
                own_path = call.path
        run = Run(
            component,
            self._tree,
            parent=self,
            path=own_path,
            subscribers=self._with_further(
                (*subscribers, *component.subscribers)
            ),
            limits=_limits_of(component, limits),
            streaming=streaming,
            sibling_key=self._next_sibling_key(component, own_path),
        )
        if self.journal.finished_run(run.id):
            # it is performed again for its value, but an earlier attempt has delivered its events
            run.subscribers = ()
        return run

    def _with_further(
        self, subscribers: tuple[Subscriber, ...]
    ) -> tuple[Subscriber, ...]:
        """This run's subscribers, then the given ones that are not among them."""
        known = self.subscribers
        further = [
            subscriber for subscriber in subscribers if subscriber not in known
        ]
        return (*known, *further)

    def _next_sibling_key(
        self, component: Component, path: tuple[int, ...]
    ) -> str:
        """Count the next nested run, and return its sibling key."""
        call = current_tool_call.get()
        number: int | None = None
        if call is not None:
            number = call.number
        origin = f"{path} {number} {component.name}"
        number = self._children[origin]
        self._children[origin] += 1
        return f"{origin} {number}"

    def _id_below(self, above: str) -> str:
        """An id that follows from one of the run around this one and from the sibling key."""
        source = f"{above} {self._sibling_key}".encode()
        return blake2b(source, digest_size=16).hexdigest()

    @property
    def idempotency_key(self) -> str:
        """Seed of the `Idempotency-Key` of its requests to remote components.

        It is the same in each attempt of the run, and in each run that a caller requests with the same key.
        """
        if self.parent is None:
            return self._tree.idempotency_key or self.id
        return self._id_below(self.parent.idempotency_key)

    def count_text(self, length: int) -> None:
        """Count the characters of a filled template.

        Raises:
            LimitExceededError: The outermost run has filled `MAX_TEXT_PER_RUN` of them.
        """
        self._tree.text += length
        if self._tree.text > MAX_TEXT_PER_RUN:
            raise LimitExceededError(
                f"The run has filled templates with {MAX_TEXT_PER_RUN} characters, the maximum of one run.",
                limit="text",
                suggestion="Map over fewer items, or let a step before shorten the text.",
            )

    @contextlib.contextmanager
    def step(
        self, name: str, step_type: str, path: tuple[int, ...]
    ) -> Generator[StepResult]:
        """Emit the start and the end of a step. The body may set `StepResult.outcome`, for `StepFinished`.

        Raises:
            LimitExceededError: The outermost run has done `MAX_STEPS_PER_RUN` steps.
        """
        self._count_step()
        result = StepResult()
        if self.journal.is_step_finished(self.id, path, name):
            yield result
            return
        self.emit(
            events.StepStarted(
                **self.stamp(path), step=name, step_type=step_type
            )
        )
        outcome: Outcome = "failed"
        started = perf_counter()
        try:
            yield result
            outcome = result.outcome
        except asyncio.CancelledError:
            outcome = "cancelled"
            raise
        except ApprovalRequired:
            outcome = "paused"
            raise
        except ApprovalRejectedError:
            outcome = "rejected"
            raise
        finally:
            finished = events.StepFinished(
                **self.stamp(path),
                step=name,
                step_type=step_type,
                outcome=outcome,
                duration_ms=milliseconds_since(started),
            )
            self.emit(finished)

    def _count_step(self) -> None:
        if self._tree.steps >= MAX_STEPS_PER_RUN:
            raise LimitExceededError(
                f"The run has done {MAX_STEPS_PER_RUN} steps, the maximum of one run.",
                limit="steps",
                suggestion="Lower max_iterations, or map over fewer items.",
            )
        self._tree.steps += 1

    async def execute(self, task: Task) -> Any:
        """Perform the task: the boundary that every execution of every kind passes.

        Raises:
            PodwrightError: With the id, the usage and the checkpoint of this run.
            asyncio.CancelledError: The caller cancelled; its cause is a `RunCancelledError` with the same.
        """
        token = _current.set(self)
        call_token = current_tool_call.set(None)
        source_token = context_source.set(self._make_context)
        self.emit(events.RunStarted(**self.stamp(), input=_traced(task.input)))
        try:
            value = await self._perform_in_time(task)
        except asyncio.CancelledError as cancellation:
            await self._cancel_nested()
            cancelled = RunCancelledError(
                f"The run of '{self.component_name}' was cancelled."
            )
            self._save_chat(cancelled, task)
            self._end_with(cancelled)
            # asyncio recognises only this exact exception type, so the error with the checkpoint is its cause
            raise asyncio.CancelledError(*cancellation.args) from cancelled
        except BaseException as error:
            await self._cancel_nested()
            self._save_chat(error, task)
            self._end_with(error)
            raise
        else:
            finished = events.RunFinished(
                **self._end_stamp(),
                value=_traced(value),
                data=self.data,
                finish_reason=self.finish_reason,
            )
            self.emit(finished)
            return value
        finally:
            self.is_closed = True
            self._component.last_usage = self.usage
            _current.reset(token)
            current_tool_call.reset(call_token)
            context_source.reset(source_token)

    async def _make_context(self, is_over: Callable[[], bool]) -> RunContext:
        """The context for a call of a function in this run; see `ContextSource`."""
        call = current_tool_call.get()
        return await make_context(self, call, call_key(), is_over)

    @contextlib.contextmanager
    def bound_to_current_task(self) -> Generator[None]:
        """While the context is open, the current task is cancelled together with this run, or with its tool call.

        Raises:
            RunCancelledError: It is part of a tool call that has failed, for example by a time-out.
        """
        with self._nested_tasks.bind_current():
            yield

    async def cancel_tool_call(self, call: ToolCallId) -> None:
        """Cancel the runs that a failed tool call has left behind, and wait for their end; it can start no more."""
        await self._nested_tasks.cancel_call(call)

    async def _cancel_nested(self) -> None:
        """Cancel the nested runs that tools in threads wait for, because threads cannot be cancelled."""
        self.is_closed = True
        with contextlib.suppress(asyncio.CancelledError):
            await self._nested_tasks.cancel_all()

    async def _perform_in_time(self, task: Task) -> Any:
        seconds: float | None = None
        if self.wall_time is not None:
            seconds = self._deadline - perf_counter()
        timeout = asyncio.timeout(seconds)
        try:
            async with timeout:
                return await self._component.perform(self, task)
        except TimeoutError as error:
            if not timeout.expired():
                raise
            message = f"'{self.component_name}' ran for longer than {self.wall_time:g} s."
            raise LimitExceededError(
                message, limit="wall_time", source=self
            ) from error

    def _save_chat(self, error: BaseException, task: Task) -> None:
        """Save an outermost run that stops where no step can resume, so that its caller can let it go on.

        It pauses inside a chat, or has gone on from there, and what a person has approved must not be done again.
        """
        asked: ApprovalId | None = None
        question: Question | None = None
        needs_replay = task.saved is not None
        if isinstance(error, ApprovalRequired):
            error.needs_replay |= self.kind != "workflow"
            needs_replay = error.needs_replay and error.asked is not None
            asked = error.asked
            question = error.question
        recorded = self._tree.recorded
        if self.parent is not None or recorded is None or not needs_replay:
            return
        saved = SavedRun(
            self.id,
            given=task.given,
            asked=asked,
            about=_digest_of(question),
            events=tuple(recorded),
            decisions=self._tree.decisions,
        )
        path: list[int] = []
        if self.checkpoint is not None:
            path = self.checkpoint.resume_path
        self.checkpoint = Checkpoint({SAVED_RUN: saved.to_dict()}, path)

    def _end_with(self, error: BaseException) -> None:
        """Add the run's id, usage and checkpoint to the error that ends it, and emit the event."""
        if not isinstance(error, PodwrightError):
            details = {
                "code": "internal_error",
                "message": type(error).__name__,
            }
            self.emit(events.RunFailed(**self._end_stamp(), error=details))
            return
        # the innermost component has raised it
        error.component = error.component or self.component_name
        # run and checkpoint are those of the outermost run, which the caller knows
        error.run_id = self.id
        error.usage = self.usage
        error.context = None
        error.resume_path = None
        if self.checkpoint is not None:
            error.context = self.checkpoint.context
            # a component that is no workflow has no path
            error.resume_path = self.checkpoint.resume_path or None
        self._emit_end(error)

    def _emit_end(self, error: PodwrightError) -> None:
        resume_path: tuple[int, ...] | None = None
        if error.resume_path is not None:
            resume_path = tuple(error.resume_path)
        stamp = self._end_stamp()
        match error:
            case RunCancelledError():
                event = events.RunCancelled(
                    **stamp, context=error.context, resume_path=resume_path
                )
            case ApprovalRequired(message=message):
                question: dict[str, Any] = {}
                if error.question is not None:
                    question = to_json_data(error.question.to_dict())
                event = events.RunPaused(
                    **stamp,
                    message=message,
                    question=question,
                    context=error.context,
                    resume_path=resume_path,
                )
            case _:
                event = events.RunFailed(**stamp, error=error.to_dict())
        self.emit(event)

    def _end_stamp(self) -> dict[str, Any]:
        """The common fields of the event that ends this run."""
        tool_call: int | None = None
        if self._tool_call is not None:
            tool_call = self._tool_call.number
        return {
            **self.stamp(),
            "usage": self.usage,
            "duration_ms": self.duration_ms,
            "tool_call": tool_call,
        }


def _limits_of(
    component: Component, limits: RunLimits | None
) -> list[RunLimits]:
    """The limits of a run itself: the caller's, and those of its component."""
    own_limits = list(component.all_limits)
    if limits is not None:
        own_limits.insert(0, limits)
    return own_limits


def _shortest_wall_time(limits: Iterable[RunLimits]) -> float | None:
    seconds = [own.wall_time for own in limits if own.wall_time is not None]
    return min(seconds, default=None)


def _digest_of(question: Question | None) -> str | None:
    if question is None:
        return None
    return question.digest


def milliseconds_since(started: float) -> float:
    """Milliseconds since a value of `time.perf_counter()`."""
    return round((perf_counter() - started) * 1000, 3)


def _traced(value: Any) -> Any:
    """A value as the trace shows it; one that has no JSON form is named by its type."""
    try:
        return to_json_data(value)
    except (ValueError, RecursionError):
        return f"({type(value).__name__}, not JSON)"


def current() -> Run | None:
    """The run that the calling code is part of, for example the run of the agent whose tool calls this."""
    return _current.get()


def call_key() -> str | None:
    """A key of the tool call, or of the call of a step's function, that the calling code is part of.

    It is the same in each attempt of a background run, and another one for each other call: a function that passes it
    on as an idempotency key, or stores it with what it does, does it once, though it may be called again. None outside
    of such calls.
    """
    run = _current.get()
    call = current_tool_call.get()
    if run is None or call is None:
        return None
    source = f"{run.id} {list(call.path)} {call.number}".encode()
    return blake2b(source, digest_size=16).hexdigest()


def _leave_current_run() -> None:
    _current.set(None)


if hasattr(os, "register_at_fork"):
    # the event loop of a run does not run in a forked child
    os.register_at_fork(after_in_child=_leave_current_run)


async def execute(
    component: Component,
    task: Task,
    *,
    subscribers: Iterable[Subscriber] = (),
    limits: RunLimits | None = None,
    stream: bool = False,
    trace: bool = False,
    hops: int = MAX_HOPS,
    run_id: str | None = None,
    journal: Journal | None = None,
    idempotency_key: str | None = None,
) -> ExecutionResult:
    """Run a component: every public way to run one calls this.

    Called within another run, for example by a tool, the new run is nested in it.

    Args:
        component: What to run.
        task: What it is to do.
        subscribers: Subscribers of this run, besides the component's own.
        limits: Limits of this run, besides the component's own.
        stream: Whether models stream their responses.
        trace: Whether the result keeps the events.
        hops: Further containers that the run may pass through; ignored for a nested run.
        run_id: The id of the run, 32 hexadecimal digits; by default a new one. Ignored for a nested run.
        journal: What earlier attempts of the run did, which have the same `run_id`; ignored for a nested run.
        idempotency_key: Seed of the `Idempotency-Key` of requests to remote components: a repeated request repeats
            theirs; by default the `run_id`. Ignored for a nested run.
    """
    trace_events: list[Event] = []
    own_subscribers = tuple(subscribers)
    if trace:
        own_subscribers += (trace_events.append,)
    parent = _enclosing_run()
    if parent is not None:
        run = parent.child(
            component,
            subscribers=own_subscribers,
            limits=limits,
            streaming=stream,
        )
        with parent.bound_to_current_task():
            value = await run.execute(task)
    else:
        tree = _RunTree(asyncio.get_running_loop(), hops, idempotency_key)
        if journal is not None:
            tree.journal = journal
        elif task.saved is not None:
            tree.journal = task.saved.journal()
            tree.decisions = task.saved.decisions
            run_id = task.saved.run_id
        if journal is None:
            tree.recorded = []
            if task.saved is not None:
                tree.recorded += task.saved.events
            own_subscribers += (partial(record, tree.recorded),)
        run = Run(
            component,
            tree,
            subscribers=(
                *own_subscribers,
                *component.subscribers,
                *events.subscribers_of_all_runs(),
            ),
            limits=_limits_of(component, limits),
            streaming=stream,
            run_id=run_id,
        )
        run.count_discarded_work()
        value = await run.execute(task)
    return ExecutionResult(
        value,
        trace_events,
        run.duration_ms,
        usage=run.usage,
        messages=run.messages,
        data=run.data,
        finish_reason=run.finish_reason,
    )


def _enclosing_run() -> Run | None:
    """The run that a new one is nested in.

    That is only an active run of this event loop: subscribers and budgets are not thread-safe.
    """
    run = _current.get()
    if (
        run is None
        or run.is_closed
        or run.loop is not asyncio.get_running_loop()
    ):
        return None
    return run


async def gather_or_cancel(coroutines: Iterable[Awaitable[T]]) -> list[T]:
    """Await all at once; the first failure cancels the others, waits for them, and is raised.

    Each task counts as one of `parallel_tasks`, so that it borrows only its share of a budget.
    """
    awaitables = list(coroutines)
    parallel = parallel_tasks.get() * max(1, len(awaitables))
    token = parallel_tasks.set(parallel)
    try:
        tasks = [asyncio.ensure_future(awaitable) for awaitable in awaitables]
    finally:
        # each task has its own copy of the context by now; the calling task is not one of them
        parallel_tasks.reset(token)
    try:
        return await asyncio.gather(*tasks)
    except BaseException:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        raise
