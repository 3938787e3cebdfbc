"""Runs: one execution of a component, from its task to its value or its error.

A component only does its work, in `perform`. Everything that is the same for all kinds happens here and in the parts
of a run: its accounts (`accounts`), its events (`run_events`), its nested tasks (`tasks`) and its end (`end`).
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, Protocol, Self

from podwright import events
from podwright.data.json_data import JsonMapping
from podwright.errors import (
    ContextError,
    LimitExceededError,
    RunCancelledError,
)
from podwright.events import Event, Subscriber
from podwright.functions.run_context import (
    RunAttributes,
    RunContext,
    current_attributes,
    use_attributes,
)
from podwright.functions.run_start import RunStart, template_values
from podwright.journal.journal import Journal
from podwright.journal.kept import Kept
from podwright.journal.saved_run import ContextStore, SavedRun
from podwright.location import change_location, current, location
from podwright.messages.conversation import parse_messages, to_data
from podwright.messages.messages import Message, ModelSettings
from podwright.messages.shared_state import SharedState
from podwright.messages.task_input import TaskInput
from podwright.messages.usage import RunLimits
from podwright.run.end import Checkpoint, end_with_error
from podwright.run.function_context import make_context
from podwright.run.result import ExecutionResult
from podwright.run.run_events import RunEvents
from podwright.run.tasks import NestedTasks
from podwright.run.tree import MAX_HOPS, RunTree

if TYPE_CHECKING:
    from podwright.run.component import Component


class Finish(Protocol):
    """Calls functions after the work; see `podwright.chats.hooks.Hooks.finish`."""

    async def __call__(
        self,
        output: Any,
        messages: Sequence[Message] = (),
        *,
        may_retry: bool = False,
    ) -> Mapping[str, Any]:
        """Return what they change."""
        ...


@dataclass(frozen=True, slots=True)
class Handover:
    """A conversation with which one of several agents goes on; see `podwright.components.handoffs`."""

    team: Mapping[str, Component]
    """The agents that may answer, by name: the one that the run began with, and those that it reaches by handoffs."""
    most: int
    """Handoffs that the run may have."""
    done: int = 0
    """Handoffs so far."""
    turn: tuple[Message, ...] = ()
    """The messages of the turn so far; none if the turn begins with the input."""
    finish: Finish | None = None
    """What calls the functions after the work of the agent that the run began with; None if it has none."""


@dataclass(frozen=True)
class Task:
    """What a component is to do."""

    input: Any
    """A string, an object of named inputs, or a list of texts, images and files."""
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
    handover: Handover | None = None
    """The conversation that an agent goes on with in place of another one; None if it is the first of its run."""
    kept: Kept | None = None
    """What the stopped workflow has kept that goes on; None for a new run."""
    state: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """The state with which a new run begins: that of the conversation that it is a turn of."""

    def in_conversation(
        self, messages: Sequence[JsonMapping], state: JsonMapping
    ) -> Self:
        """The same as a turn of a conversation that was kept.

        Args:
            messages: Its earlier messages as JSON data, before those that the task has.
            state: The state that its earlier turns have left.

        Raises:
            MessagesError: The messages are invalid.
        """
        whole = [*messages, *to_data(self.messages)]
        return replace(
            self,
            messages=parse_messages(whole),
            given={**self.given, "messages": whole},
            state=state,
        )

    @cached_property
    def parsed_input(self) -> TaskInput:
        """The input as a value, parsed when it is first read: an error of it is one of the run.

        Raises:
            ContextError, MessagesError: See `TaskInput.parse`.
        """
        return TaskInput.parse(self.input)


class Run(RunEvents):
    """One execution of one component."""

    checkpoint: Checkpoint | None = None
    """Set by a workflow that is stopped."""

    def __init__(
        self,
        component: Component,
        tree: RunTree,
        parent: Run | None = None,
        path: tuple[int, ...] = (),
        subscribers: tuple[Subscriber, ...] = (),
        limits: RunLimits | None = None,
        streaming: bool = False,
        sibling_key: str = "",
        run_id: str | None = None,
        in_tool: bool = False,
    ) -> None:
        own_limits = list(component.all_limits)
        if limits is not None:
            own_limits.insert(0, limits)
        tool_call = location.get().tool_call
        parent_id: str | None = None
        if parent is not None:
            parent_id = parent.id
            run_id = _id_below(parent.id, sibling_key)
        super().__init__(
            tree,
            parent,
            own_limits,
            run_id=run_id or os.urandom(16).hex(),
            parent_id=parent_id,
            component_name=component.name,
            kind=component.kind,
            path=path,
            tool_call=tool_call,
            subscribers=_without_repeats(subscribers),
        )
        self._component = component
        self.loop = tree.loop
        """The event loop of the run."""
        self.hops = tree.hops
        """Further containers that the run may pass through."""
        self.parent = parent
        """The run that it is nested in."""
        self.attributes: RunAttributes = current_attributes()
        """What its caller says of it."""
        self.messages: list[dict[str, Any]] = []
        """The conversation after the run as JSON data."""
        self.traced_events: list[Event] = []
        """Its events so far, if it is traced; see `execute`."""
        self.streaming = streaming
        """Whether models stream their responses."""
        self.in_tool = in_tool
        """Whether it is nested in a call of a tool; a conductor's skills are runs, not tools."""
        self.is_closed = False
        """Whether it has ended or is being stopped."""
        self.context_fields: Mapping[str, Any] = {}
        """Further fields of the context that its functions are given now."""
        self.nested_tasks = NestedTasks()
        """Tasks of nested runs that its tools started."""
        self._sibling_key = sibling_key
        """Tells it from the other runs nested in the run around it; the same in each attempt."""
        self._children: Counter[str] = Counter()
        """How many runs are nested in this one so far, by the first part of their sibling keys."""
        if parent is not None:
            self.streaming = streaming or parent.streaming
            self.in_tool = in_tool or parent.in_tool

    @property
    def start(self) -> RunStart:
        """The start of the outermost run, in its first attempt."""
        return self._tree.start

    @property
    def template_values(self) -> dict[str, Any]:
        """What templates read of it, as `run.date` and the like."""
        return template_values(self.start.began, self.attributes)

    @property
    def state(self) -> SharedState:
        """What the functions of the outermost run and of all that are nested in it share."""
        return self._tree.state

    def kept(self) -> Kept:
        """What it keeps if it is stopped between its steps."""
        return Kept(self.start, self.state.to_data())

    # --- The tree -----------------------------------------------------------------------------------------------------

    @property
    def outermost(self) -> Run:
        """The run that no other run of this process is around."""
        run = self
        while run.parent is not None:
            run = run.parent
        return run

    @property
    def idempotency_key(self) -> str:
        """Seed of the `Idempotency-Key` of its requests to remote components.

        It is the same in each attempt of the run, and in each run that a caller requests with the same key.
        """
        if self.parent is None:
            return self._tree.idempotency_key or self.id
        return _id_below(self.parent.idempotency_key, self._sibling_key)

    def child(
        self,
        component: Component,
        path: tuple[int, ...] | None = None,
        subscribers: tuple[Subscriber, ...] = (),
        limits: RunLimits | None = None,
        streaming: bool = False,
    ) -> Run:
        """A run nested in this one, with the same trace, subscribers and limits, and further ones of its own."""
        call = location.get().tool_call
        number: int | None = None
        position = self.path
        if call is not None:
            position, number = call
        if path is not None:
            position = path
        origin = f"{position} {number} {component.name}"
        run = Run(
            component,
            self._tree,
            parent=self,
            path=position,
            subscribers=(
                *self.subscribers,
                *subscribers,
                *component.subscribers,
            ),
            limits=limits,
            streaming=streaming,
            sibling_key=f"{origin} {self._children[origin]}",
            # a member has a place, and the run of a tool's code only the call
            in_tool=call is not None and path is None,
        )
        self._children[origin] += 1
        if run.recorded.end is not None:
            # it is performed again for its value, but an earlier attempt has delivered its events
            run.subscribers = ()
        return run

    # --- The boundary -------------------------------------------------------------------------------------------------

    async def execute(self, task: Task) -> Any:
        """Perform the task: the boundary that every execution of every kind passes.

        Raises:
            PodwrightError: With the id, the usage, the traced events and the checkpoint of this run.
            asyncio.CancelledError: The caller cancelled; its cause is a `RunCancelledError` with the same.
        """
        token = change_location(run=self, tool_call=None)
        self.emit_start(task.input)
        try:
            value = await self._perform_in_time(task)
        except asyncio.CancelledError as cancellation:
            await self._cancel_nested()
            cancelled = RunCancelledError(
                f"The run of '{self.component_name}' was cancelled."
            )
            end_with_error(self, cancelled, task)
            # asyncio recognises only this exact exception type, so the error with the checkpoint is its cause
            raise asyncio.CancelledError(*cancellation.args) from cancelled
        except BaseException as error:
            await self._cancel_nested()
            end_with_error(self, error, task)
            raise
        else:
            self.emit_value(value)
            return value
        finally:
            self.is_closed = True
            self._component.last_usage = self.usage
            location.reset(token)

    async def _perform_in_time(self, task: Task) -> Any:
        timeout = asyncio.timeout(self.own_time_left)
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

    async def _cancel_nested(self) -> None:
        """Cancel the nested runs that tools in threads wait for, because threads cannot be cancelled."""
        self.is_closed = True
        with contextlib.suppress(asyncio.CancelledError):
            await self.nested_tasks.cancel_all()

    async def make_context(self, is_over: Callable[[], bool]) -> RunContext:
        """The context for a call of a function in this run.

        Args:
            is_over: Tells whether nobody waits for the function any more.
        """
        return await make_context(self, is_over)


def _without_repeats(
    subscribers: tuple[Subscriber, ...],
) -> tuple[Subscriber, ...]:
    known: list[Subscriber] = []
    for subscriber in subscribers:
        # they need not be hashable
        if subscriber not in known:
            known.append(subscriber)
    return tuple(known)


def _id_below(above: str, sibling_key: str) -> str:
    """An id that follows from one of the run around a run and from its sibling key."""
    source = f"{above} {sibling_key}".encode()
    return blake2b(source, digest_size=16).hexdigest()


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
        trace: Whether the result, or the error of a run that fails, keeps the events.
        hops: Further containers that the run may pass through; ignored for a nested run.
        run_id: The id of the run, 32 hexadecimal digits; by default a new one. Ignored for a nested run.
        journal: What earlier attempts of the run did, which have the same `run_id`; ignored for a nested run.
        idempotency_key: Seed of the `Idempotency-Key` of requests to remote components: a repeated request repeats
            theirs; by default the `run_id`. Ignored for a nested run.

    Raises:
        ContextError: The run would go on from a saved one, but is nested in another.
        PodwrightError: The run failed.
    """
    trace_events: list[Event] = []
    own_subscribers = tuple(subscribers)
    if trace:
        own_subscribers += (trace_events.append,)
    parent = _enclosing_run()
    if parent is not None:
        if task.saved is not None:
            raise ContextError(
                f"The saved run of '{component.name}' cannot go on within the run of '{parent.component_name}'.",
                suggestion="Let it go on outside of a tool or a function: by itself.",
            )
        run = parent.child(
            component,
            subscribers=own_subscribers,
            limits=limits,
            streaming=stream,
        )
        run.traced_events = trace_events
        with parent.nested_tasks.bind_current():
            value = await run.execute(task)
    else:
        if task.saved is not None and journal is None:
            journal = task.saved.journal()
            run_id = task.saved.run_id
        elif journal is None:
            journal = Journal(store=ContextStore())
        tree = _new_tree(component, task, journal, hops, idempotency_key)
        with use_attributes(tree.start.attributes):
            run = Run(
                component,
                tree,
                subscribers=(
                    *own_subscribers,
                    journal.store.add,
                    *component.subscribers,
                    *events.subscribers_of_all_runs(),
                ),
                limits=limits,
                streaming=stream,
                run_id=run_id,
            )
            run.traced_events = trace_events
            if not journal.is_empty:
                run.count_usage(journal.discarded, journal.failed_calls)
            value = await run.execute(task)
    return _result_of(run, value)


def _result_of(run: Run, value: Any) -> ExecutionResult:
    """Return the result of a run that has succeeded."""
    return ExecutionResult(
        value,
        run.traced_events,
        run.duration_ms,
        usage=run.usage,
        messages=run.messages,
        data=run.data,
        finish_reason=run.finish_reason,
        state=run.state.to_data(),
    )


def _new_tree(
    component: Component,
    task: Task,
    journal: Journal,
    hops: int,
    idempotency_key: str | None,
) -> RunTree:
    """Make the tree that an outermost run shares with its nested runs; see `execute`."""
    return RunTree(
        asyncio.get_running_loop(),
        journal,
        hops,
        idempotency_key,
        start=_start_of(component, task, journal),
        state=_state_of(task, journal),
    )


def _start_of(component: Component, task: Task, journal: Journal) -> RunStart:
    """The start of an outermost run: of its first attempt, or of the recorded run that its models repeat."""
    now = RunStart.now()
    if task.kept is not None:
        return task.kept.start.or_else(now)
    if journal.start is not None:
        return journal.start.or_else(now)
    recorded = component.recorded_start(component.name)
    if recorded is not None:
        return replace(now, began=recorded.began).or_else(recorded)
    return now


def _state_of(task: Task, journal: Journal) -> SharedState:
    """The state of an outermost run after its earlier attempts."""
    state = task.state
    if task.kept is not None:
        state = task.kept.state
    return SharedState(state, journal.state_changes)


def _enclosing_run() -> Run | None:
    """The run that a new one is nested in.

    That is only an active run of this event loop: subscribers and budgets are not thread-safe.
    """
    run = current()
    if (
        run is None
        or run.is_closed
        or run.loop is not asyncio.get_running_loop()
    ):
        return None
    return run
