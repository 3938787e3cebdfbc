"""What a run did in earlier attempts, so that a new attempt goes on where they stood.

A run is repeatable except for what it calls. So a new attempt performs the whole run again: a model call, a tool call,
a condition or a remote run that has ended gives its recorded result, and what is finished emits no events a second
time. Nested runs have the same ids in each attempt, so the events themselves are the record.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable
from contextlib import AbstractAsyncContextManager, nullcontext
from dataclasses import dataclass

from podwright import events
from podwright.errors import (
    LimitExceededError,
    RemoteInterruptedError,
    RunCancelledError,
    ToolArgumentsError,
)
from podwright.headers import UnfinishedCalls
from podwright.usage import NO_USAGE, Usage

Path = tuple[int, ...]
_ToolCall = events.ToolCallStarted | events.ToolCallFinished | events.ToolCallFailed
_Repeated = events.HistoryCut | events.PlanMade | events.LoopExhausted
"""Events that a new attempt emits again, because it performs the run again."""
_Call = tuple[str, int]
"""Id of the run, and number of the call in it."""


@dataclass(slots=True)
class _LastAnswer:
    """The last answer of the model in one run."""

    call: int
    tool_calls: int
    """How many tool calls there were before."""
    is_cause: bool = True
    """Whether it is why the run fails, if it fails now: no call has failed since."""


class Journal:
    """The recorded events of a run's earlier attempts, by what they tell. Subclasses store those of the new attempt.

    Without events it is the journal of a first attempt, or of a run that has only one: it knows of nothing.

    Args:
        recorded: The events, in order. Tokens, the starts of model calls and contexts are not needed.
        approved: The approval steps that a person has approved: ids of their runs, and positions.
        seconds: How long the earlier attempts ran, as far as that is known; counts against `wall_time`.
    """

    def __init__(
        self,
        recorded: Iterable[events.Event] = (),
        approved: Collection[tuple[str, Path]] = (),
        seconds: float = 0.0,
    ) -> None:
        self.approved = frozenset(approved)
        self.seconds = seconds
        self.discarded = NO_USAGE
        """What the answers used that are asked for again, and the calls and remote runs that failed."""
        self.failed_calls = 0
        """Model calls that failed."""
        self._answers: dict[_Call, events.ModelCallFinished] = {}
        self._last: dict[str, _LastAnswer] = {}
        self._tool_calls: defaultdict[str, dict[int, _ToolCall]] = defaultdict(dict)
        self._started: dict[_Call, events.ToolCallStarted] = {}
        """Tool calls of this process that have not ended, or were cancelled, which does not stop a tool in a thread."""
        self._usage: defaultdict[_Call, dict[str, Usage]] = defaultdict(dict)
        self._conditions: defaultdict[tuple[str, Path], list[bool]] = defaultdict(list)
        self._steps: set[tuple[str, Path, str]] = set()
        self._emitted: set[tuple[str, str, Path, int]] = set()
        self._runs: dict[str, events.RunFinished] = {}
        self._callers: dict[str, str] = {}
        """Of each run in another container the run here that it is part of."""
        self._remote_runs: dict[str, events.RunFinished] = {}
        """The ends of those that answered, by that run."""
        self._remote_tool_calls: defaultdict[
            str, dict[_Call, events.ToolCallStarted]
        ] = defaultdict(dict)
        """The tool calls of those that did not, whether they ended or not, by that run: they would be repeated."""
        self._failures: Counter[str] = Counter()
        """How often each run has failed."""
        self._relayed: Counter[tuple[str, str]] = Counter()
        """Events of remote runs, by run and type, that have not been seen again."""
        for event in recorded:
            self.add(event)

    def add(self, event: events.Event) -> None:
        """Add an event of an earlier attempt; in order, and before the new attempt begins."""
        match event:
            case events.ModelCallFinished():
                self._answers[event.run_id, event.call] = event
                self._last[event.run_id] = _LastAnswer(
                    event.call, len(self._tool_calls[event.run_id])
                )
            case events.ModelCallFailed():
                self._call_failed(event.run_id)
                self._discard_failed_call(event)
            case (
                events.ToolCallStarted()
                | events.ToolCallFinished()
                | events.ToolCallFailed()
            ):
                self._add_tool_call(event)
            case events.ConditionChecked():
                self._conditions[event.run_id, event.path].append(event.result)
            case events.StepFinished(outcome="ok" | "exhausted"):
                self._steps.add((event.run_id, event.path, event.step))
            case events.HistoryCut() | events.PlanMade() | events.LoopExhausted():
                self._emitted.add(_key_of(event))
            case events.RunFinished():
                self._runs[event.run_id] = event
            case events.RunFailed():
                self._failures[event.run_id] += 1
                # who lets the run go on has been told
                if event.error.get("code") == RemoteInterruptedError.code:
                    self._remote_tool_calls.pop(event.run_id, None)
                self._discard_failing_response(event)
            case _:
                pass
        if event.remote is not None:
            self._add_remote(event)
        if (
            isinstance(event, events.RunEnded)
            and event.parent_id
            and event.tool_call is not None
        ):
            self._usage[event.parent_id, event.tool_call][event.run_id] = event.usage

    def _add_remote(self, event: events.Event) -> None:
        self._relayed[event.run_id, event.type] += 1
        parent = event.parent_id or ""
        caller = self._callers.get(event.run_id, "")
        match event:
            case events.RunStarted():
                self._callers[event.run_id] = self._callers.get(parent, parent)
            case events.ToolCallStarted():
                self._remote_tool_calls[caller][event.run_id, event.call] = event
            case events.ToolCallFailed() if _has_invalid_arguments(event):
                self._remote_tool_calls[caller].pop((event.run_id, event.call), None)
            case events.RunFinished() if parent == caller:
                self._remote_runs[caller] = event
                self._remote_tool_calls.pop(caller, None)
            case events.RunFailed() | events.RunCancelled() if parent == caller:
                self.discarded += event.usage
            case _:
                pass

    def _add_tool_call(self, event: _ToolCall) -> None:
        self._tool_calls[event.run_id][event.call] = event
        if event.remote is not None:
            return
        if isinstance(event, events.ToolCallStarted):
            self._started[event.run_id, event.call] = event
        elif not _is_cancelled(event):
            self._started.pop((event.run_id, event.call), None)
        if isinstance(event, events.ToolCallFailed) and not _has_invalid_arguments(
            event
        ):
            self._call_failed(event.run_id)

    def _call_failed(self, run_id: str) -> None:
        if last := self._last.get(run_id):
            last.is_cause = False

    def _discard_failed_call(self, event: events.ModelCallFailed) -> None:
        if event.remote is None:  # the end of a remote run has its usage
            self.discarded += event.usage
            self.failed_calls += 1

    def _discard_failing_response(self, event: events.RunFailed) -> None:
        """Have the model asked again if its last answer is why a run failed: it would fail again."""
        last = self._last.pop(event.run_id, None)
        if (
            last
            and last.is_cause
            and event.error.get("code") != LimitExceededError.code
        ):
            answer = self._answers.pop((event.run_id, last.call))
            self.discarded += answer.response.usage.as_call(answer.model)
            tool_calls = self._tool_calls[event.run_id]
            self._tool_calls[event.run_id] = {
                call: tool_calls[call] for call in tool_calls if call < last.tool_calls
            }

    def answer(self, run_id: str, call: int) -> events.ModelCallFinished | None:
        """The end of a model call with its answer; None if the call has to be made."""
        return self._answers.get((run_id, call))

    def tool_call(
        self, run_id: str, call: int
    ) -> events.ToolCallFinished | events.ToolCallFailed | None:
        """How a tool call ended, if its result went to the model; None if it has to be made."""
        event = self._tool_calls.get(run_id, {}).get(call)
        if isinstance(event, events.ToolCallFinished) or (
            isinstance(event, events.ToolCallFailed) and _has_invalid_arguments(event)
        ):
            return event
        return None

    def usage_of(self, run_id: str, call: int) -> Usage:
        """What the runs nested in a tool call used."""
        return sum(self._usage.get((run_id, call), {}).values(), NO_USAGE)

    def condition(self, run_id: str, path: Path, number: int) -> bool | None:
        """The result of the condition of a step, from 0 for its first check; None if it has to be evaluated."""
        results = self._conditions.get((run_id, path), [])
        return results[number] if number < len(results) else None

    def is_step_finished(self, run_id: str, path: Path, step: str) -> bool:
        """Whether a step has ended, and the run went on."""
        return (run_id, path, step) in self._steps

    def was_emitted(self, event: events.Event) -> bool:
        """Whether an earlier attempt emitted this event; asked only of those that tell no call and no end."""
        return isinstance(event, _Repeated) and _key_of(event) in self._emitted

    def take_relayed(self, event: events.Event) -> bool:
        """Whether an earlier attempt relayed this event of a remote run; asked once for each, in their order.

        A remote that has kept its response sends the same events again.
        """
        key = (event.run_id, event.type)
        if self._relayed[key] == 0:
            return False
        self._relayed[key] -= 1
        return True

    def finished_run(self, run_id: str) -> events.RunFinished | None:
        """The end of a run that has succeeded."""
        return self._runs.get(run_id)

    def finished_remote_run(self, run_id: str) -> events.RunFinished | None:
        """The end of the remote run that a run called, if that has answered."""
        return self._remote_runs.get(run_id)

    def failures(self, run_id: str) -> int:
        """How often a run has failed."""
        return self._failures[run_id]

    def unfinished_tool_calls(self) -> list[events.ToolCallStarted]:
        """The calls of tools that are not idempotent that were not seen to end: nobody knows what they did."""
        return [event for event in self._started.values() if not event.idempotent]

    def unfinished_remote_calls(self, run_id: str) -> UnfinishedCalls | None:
        """What a remote is to do if it does not know how the run ended that an earlier attempt of this one called.

        Returns:
            `interrupt` if that run called tools that are not idempotent; None if the run may be repeated.
        """
        calls = self._remote_tool_calls.get(run_id, {}).values()
        return "interrupt" if any(not call.idempotent for call in calls) else None

    def call(self, *, in_tool: bool) -> AbstractAsyncContextManager[None]:
        """The context of a call whose result would be lost if the attempt ended now.

        That is a model call, a condition of the caller, a remote run, or a tool call that is no nested run. A subclass
        first stores all results so far, and does not begin the call if the attempt is to end.

        Args:
            in_tool: Whether it is part of a tool call of a run around it, which has started and must go on.
        """
        return nullcontext()

    async def before_effect(self) -> None:
        """Hook between the event of a tool call's start and the tool: a subclass stores that event."""


def _key_of(event: _Repeated) -> tuple[str, str, Path, int]:
    match event:
        case events.HistoryCut():
            number = event.messages
        case events.PlanMade():
            number = event.revision
        case events.LoopExhausted():
            number = event.iterations
    return event.run_id, event.type, event.path, number


def _has_invalid_arguments(event: events.ToolCallFailed) -> bool:
    """Whether a tool call was wrong in itself, so that the tool was not called."""
    return event.error.get("code") == ToolArgumentsError.code and not event.error.get(
        "run_id"
    )


def _is_cancelled(event: events.ToolCallFinished | events.ToolCallFailed) -> bool:
    return (
        isinstance(event, events.ToolCallFailed)
        and event.error.get("code") == RunCancelledError.code
    )
