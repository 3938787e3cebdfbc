"""What a run did in earlier attempts, so that a new attempt goes on where they stood.

A run is repeatable except for what it calls. So a new attempt performs the whole run again: a model call, a tool call,
a condition or a remote run that has ended gives its recorded result, and what is finished emits no events a second
time. Nested runs have the same ids in each attempt, so the events themselves are the journal. A store keeps them: the
database of a service, or the context that the caller of a stopped run carries; see `saved_run`. What the caller of a
stopped workflow keeps besides is a `Checkpoint`, which it may edit.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from functools import partial
from typing import ClassVar

from podwright.errors import InputsError
from podwright.events import (
    ConditionChecked,
    Event,
    RunEnded,
    RunStarted,
    ToolCallEnded,
    ToolCallStarted,
)
from podwright.functions.run_start import RunStart
from podwright.journal.run_record import RunRecord
from podwright.messages.approvals import ApprovalId, Decision, Question
from podwright.messages.shared_state import StateChange
from podwright.messages.usage import NO_USAGE, Usage


class JournalStore:
    """Keeps the events of an attempt for the next one; this one keeps none, because there will be no other."""

    asks_again: ClassVar[bool] = False
    """Whether a decision that does not fit has the question asked again: the attempt is not run by who decided."""
    may_repeat: bool = False
    """Whether tool calls may be repeated whose end is unknown."""

    @property
    def carried_events(self) -> Sequence[Event] | None:
        """The events that the caller of a stopped run has to carry; None if it carries none."""
        return None

    def add(self, event: Event) -> None:
        """Keep an event of the attempt, in order; this is a subscriber."""

    def call(self, *, in_tool: bool) -> AbstractAsyncContextManager[None]:
        """Return the context of a call whose result would be lost if the attempt ended now.

        That is a model call, a condition of the caller, a remote run, or a tool call that is not a nested run. A store
        first stores all results so far, and does not begin the call if the attempt is to end.

        Args:
            in_tool: Whether it is part of a tool call of a run around it, which has started and must go on.
        """
        return nullcontext()

    async def before_effect(self) -> None:
        """Store the start of a tool call, whose event is added, before the tool is called."""


class Journal:
    """The recorded events of a run's earlier attempts, and the store of those of the new one.

    Without events it is the journal of a first attempt, or of a run that has only one: it knows of nothing.

    Args:
        recorded: The events, in order. Tokens, the starts of model calls and contexts are not needed.
        decisions: What people have decided.
        seconds: How long the earlier attempts ran, as far as that is known; counts against `wall_time`.
        attempt: Number of the new attempt, from 1.
        store: Keeps the events of the new attempt; by default they are not kept.
    """

    def __init__(
        self,
        recorded: Iterable[Event] = (),
        decisions: Mapping[ApprovalId, Decision] | None = None,
        seconds: float = 0.0,
        attempt: int = 1,
        store: JournalStore | None = None,
    ) -> None:
        self.decisions: Mapping[ApprovalId, Decision] = decisions or {}
        self.seconds = seconds
        self.attempt = attempt
        self.store = store or JournalStore()
        self.call = self.store.call
        """Returns the context of a call; see `JournalStore.call`."""
        self.before_effect = self.store.before_effect
        """Stores the start of a tool call; see `JournalStore.before_effect`."""
        new_record = partial(RunRecord, may_repeat=self.store.may_repeat)
        self._unknown_run = new_record()
        self._runs = defaultdict[str, RunRecord](new_record)
        """By id of the run, those in other containers included."""
        self.start: RunStart | None = None
        """The start of the outermost run, in its first attempt; None if no earlier attempt is recorded."""
        self.state_changes: list[StateChange] = []
        """What its calls have changed in the state of the run, in order."""
        for event in recorded:
            self._add(event)

    def _add(self, event: Event) -> None:
        run = self._runs[event.run_id]
        run.add(event)
        match event:
            case RunStarted(parent_id=None) if self.start is None:
                self.start = RunStart.of(event)
            # a run in another container has a state of its own
            case (
                ToolCallEnded(remote=None, state=StateChange() as change)
                | ConditionChecked(remote=None, state=StateChange() as change)
            ):
                self.state_changes.append(change)
            case _:
                pass
        if not event.parent_id:
            return
        parent = self._runs[event.parent_id]
        match event:
            case RunStarted():
                run.path = event.path
                parent.inner[event.run_id] = run
                if event.remote is not None:
                    run.caller = parent.caller or parent
            case RunEnded(tool_call=int(tool_call)):
                parent.add_nested_end(event, tool_call)
            case _:
                pass
        if event.remote is not None:
            run.add_relayed(event, parent)

    def of(self, run_id: str) -> RunRecord:
        """Return the record of one run, which is empty if no earlier attempt began it."""
        return self._runs.get(run_id, self._unknown_run)

    @property
    def is_empty(self) -> bool:
        """Whether no earlier attempt is recorded."""
        return not self._runs

    @property
    def discarded(self) -> Usage:
        """The usage of answers that the model is asked for again, of failed model calls and of failed remote runs."""
        usages = (run.discarded for run in self._runs.values())
        return sum(usages, NO_USAGE)

    @property
    def failed_calls(self) -> int:
        """Model calls that failed."""
        return sum(run.failed_calls for run in self._runs.values())

    def unfinished_tool_calls(self) -> list[ToolCallStarted]:
        """Return the unfinished calls of tools that are not idempotent; what these calls did is unknown."""
        unfinished: list[ToolCallStarted] = []
        for run in self._runs.values():
            unfinished += run.unfinished_tool_calls()
        return unfinished

    async def decision_on(
        self,
        asked: ApprovalId,
        question: Question,
        check: Callable[[Decision], Awaitable[Decision]],
    ) -> Decision | None:
        """Return the decision on a question, checked; None if there is none, or only one on another question.

        Args:
            asked: The place of the question.
            question: What is asked there in this attempt; the message does not matter.
            check: Returns the decision as it is applied.

        Raises:
            InputsError: The decision does not fit, and whoever runs this has made it.
        """
        decision = self.decisions.get(asked)
        if decision is None or not question.is_answered_by(decision):
            return None
        try:
            return await check(decision)
        except InputsError:
            if self.store.asks_again:
                return None
            raise
