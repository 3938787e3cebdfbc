"""The record of one run: its calls, conditions, steps and end in earlier attempts, from their events."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from podwright.errors import (
    LimitExceededError,
    LoopLimitError,
    RemoteInterruptedError,
)
from podwright.events import (
    ConditionChecked,
    ErrorCaught,
    Event,
    HandoffEvent,
    HistoryCut,
    LoopExhausted,
    ModelCallFailed,
    ModelCallFinished,
    PlanMade,
    RunCancelled,
    RunEnded,
    RunFailed,
    RunFinished,
    StepFinished,
    ToolCallFailed,
    ToolCallFinished,
    ToolCallStarted,
)
from podwright.journal.call_record import (
    CallRecord,
    RemoteCallRecord,
    call_id_of,
    is_reported_to_model,
    is_wrong_call,
)
from podwright.location import ToolCallId
from podwright.messages.headers import UnfinishedCalls
from podwright.messages.usage import NO_USAGE, Usage

Path = tuple[int, ...]
_Repeated = HistoryCut | HandoffEvent | PlanMade | LoopExhausted
"""Events that a new attempt emits again, because it performs the run again."""


@dataclass(frozen=True, slots=True)
class CaughtError:
    """Why an attempt of a try step failed, and what it used."""

    error: Mapping[str, Any]
    """What the steps that catch it are told."""
    usage: Usage
    failed_calls: int
    """Model calls that failed, which are no part of the usage."""


class RunRecord:
    """What earlier attempts of one run did; empty if there were none.

    Args:
        may_repeat: Whether tool calls may be repeated whose end is unknown.
    """

    def __init__(self, *, may_repeat: bool = False) -> None:
        self._may_repeat = may_repeat
        self.calls = CallRecord()
        self._conditions: defaultdict[Path, list[bool]] = defaultdict(list)
        """The results of the conditions of its steps, in order."""
        self._steps: set[tuple[Path, str]] = set()
        """The steps after which it went on."""
        self._emitted: set[tuple[str, Path, int]] = set()
        """The keys of events that a new attempt emits again."""
        self._caught: dict[Path, CaughtError] = {}
        """By the path of the attempt."""
        self.usage = NO_USAGE
        """What it had used when it ended last."""
        self.remote_call = RemoteCallRecord()
        """The run in another container that it has called."""
        self._relayed: Counter[str] = Counter()
        """Of a run in another container: its events, by type, that the new attempt has not seen again."""
        self.end: RunFinished | None = None
        """Its end, if it has succeeded."""
        self.failures = 0
        """How often it has failed."""
        self.discarded = NO_USAGE
        """The usage of answers that the model is asked for again, of failed model calls and of failed remote runs."""
        self.failed_calls = 0
        """Model calls that failed."""
        self.inner: dict[str, RunRecord] = {}
        """The runs nested in it, by id."""
        self.path: Path = ()
        self.caller: RunRecord | None = None
        """Of a run in another container: the run here that it is part of."""

    # --- Recording ----------------------------------------------------------------------------------------------------

    def add(self, event: Event) -> None:
        """Add an event of the run."""
        match event:
            case ModelCallFinished():
                self.calls.add_answer(event)
            case ModelCallFailed():
                self._add_failed_call(event)
            case ToolCallStarted() | ToolCallFinished() | ToolCallFailed():
                self.calls.add_tool_call(event)
                if isinstance(event, ToolCallFailed) and is_reported_to_model(
                    event
                ):
                    self._settle_reported(event)
            case RunFailed():
                self._add_failure(event)
            case ErrorCaught():
                self._settle_caught(event)
            case ConditionChecked():
                self._conditions[event.path].append(event.result)
            case StepFinished(outcome="ok" | "exhausted" | "caught"):
                self._steps.add((event.path, event.step))
            case HistoryCut() | HandoffEvent() | PlanMade() | LoopExhausted():
                self._emitted.add(_key_of(event))
            case RunFinished():
                self.end = event
            case _:
                pass
        if isinstance(event, RunEnded):
            self.usage = event.usage

    def add_nested_end(self, event: RunEnded, tool_call: int) -> None:
        """Add the usage of a run to that of the tool call which it is nested in."""
        call_id = ToolCallId(event.path, tool_call)
        self.calls.nested_usage[call_id][event.run_id] = event.usage

    def add_relayed(self, event: Event, parent: RunRecord) -> None:
        """Add an event of this run, which is in another container, to the record of the run here that called it."""
        self._relayed[event.type] += 1
        if self.caller is None:
            return
        remote_call = self.caller.remote_call
        match event:
            case ToolCallStarted():
                remote_call.add_tool_call(event)
            case ToolCallFailed() if is_wrong_call(event.error):
                remote_call.remove_tool_call(event)
            case RunFinished() if self.caller is parent:
                remote_call.finish(event)
            case RunFailed() | RunCancelled() if self.caller is parent:
                self.discarded += event.usage
            case _:
                pass

    def _add_failed_call(self, event: ModelCallFailed) -> None:
        self.calls.excuse_last_answer()
        # the end of a remote run has the usage of its calls
        if event.remote is None:
            self.discarded += event.usage
            self.failed_calls += 1

    def _add_failure(self, event: RunFailed) -> None:
        self.failures += 1
        code = event.error.get("code")
        if code == RemoteInterruptedError.code:
            # the caller that lets the run go on knows of these calls
            self.remote_call.tool_calls.clear()
        # taken also after a limit: the new attempt replays this answer, so its next failure has another reason
        last = self.calls.take_last_answer()
        # a limit is the reason: the answer is as good as before, and is not paid for a second time
        is_due_to_limit = code in (LimitExceededError.code, LoopLimitError.code)
        if last is None or not last.is_cause or is_due_to_limit:
            return
        if self.calls.report_wrong_calls(last):
            # what its other calls did stays done, and so do the decisions on them
            return
        # the new attempt asks the model again; the usage still counts
        self.calls.drop_hooks(last)
        answer = self.calls.answers.pop(last.call_number)
        self.discarded += answer.response.usage.as_call(answer.model)

    def _settle_reported(self, event: ToolCallFailed) -> None:
        """Take the runs nested in a failed tool call for finished, because the model was told: none is repeated."""
        for run_id in self.calls.nested_usage[call_id_of(event)]:
            if run_id in self.inner:
                self.failed_calls += self.inner[run_id].settle()

    def _settle_caught(self, event: ErrorCaught) -> None:
        """Take the runs inside a failed attempt of a try step for finished: a new attempt does not perform them."""
        usage = NO_USAGE
        failed_calls = 0
        depth = len(event.path)
        for inner in self.inner.values():
            if inner.path[:depth] == event.path:
                usage += inner.usage
                failed_calls += inner.settle()
        usage += self.calls.settle_below(event.path)
        self._caught[event.path] = CaughtError(event.error, usage, failed_calls)

    def settle(self) -> int:
        """Take its work for done, though it has failed: nothing of it is repeated. Returns the failed model calls."""
        failed_calls = 0
        known = {id(self)}
        waiting = [self]
        while waiting:
            run = waiting.pop()
            failed_calls += run.failed_calls
            run.discarded = NO_USAGE
            run.failed_calls = 0
            run.calls.unfinished_tool_calls.clear()
            # in events that were made up, a run may be inside itself
            new = [each for each in run.inner.values() if id(each) not in known]
            known.update(map(id, new))
            waiting += new
        return failed_calls

    # --- Replay -------------------------------------------------------------------------------------------------------

    def answer(self, call: int) -> ModelCallFinished | None:
        """Return the end of a model call with its answer; None if the call has to be made."""
        return self.calls.answers.get(call)

    def tool_call(
        self, call_id: ToolCallId
    ) -> ToolCallFinished | ToolCallFailed | None:
        """Return the end of a tool call, if its result went to the model; None if it has to be made."""
        event = self.calls.tool_calls.get(call_id)
        match event:
            case ToolCallFinished():
                return event
            case ToolCallFailed() if is_reported_to_model(event):
                return event
            case _:
                return None

    def usage_of(self, call_id: ToolCallId) -> Usage:
        """Return the usage of a tool call: that of the runs nested in it, and what its function reported."""
        usages = self.calls.nested_usage.get(call_id, {})
        return sum(usages.values(), self.reported_usage(call_id))

    def reported_usage(self, call_id: ToolCallId) -> Usage:
        """Return the usage that the function of a tool call has reported."""
        return self.calls.reported_usage.get(call_id, NO_USAGE)

    def condition(self, path: Path, number: int) -> bool | None:
        """Return the result of the condition of a step; None if it has to be evaluated.

        Args:
            path: The position of the step.
            number: 0 for the first check of the condition.
        """
        results = self._conditions.get(path, [])
        if number < len(results):
            return results[number]
        return None

    def caught(self, path: Path) -> CaughtError | None:
        """Return the error of an attempt of a try step, after which the run went on; None if there was none."""
        return self._caught.get(path)

    def is_step_finished(self, path: Path, step: str) -> bool:
        """Whether a step has ended, and the run went on."""
        return (path, step) in self._steps

    def was_emitted(self, event: Event) -> bool:
        """Whether an earlier attempt emitted this event.

        False for all but those in `_Repeated`; what has a recorded result emits no events a second time.
        """
        return isinstance(event, _Repeated) and _key_of(event) in self._emitted

    def take_relayed(self, event: Event) -> bool:
        """Take one event from those that an earlier attempt relayed from this run; false if none is left.

        A remote that has kept its response sends the same events again, in the same order.
        """
        if self._relayed[event.type] == 0:
            return False
        self._relayed[event.type] -= 1
        return True

    def unfinished_tool_calls(self) -> list[ToolCallStarted]:
        """Return the unfinished calls of tools that are not idempotent; what these calls did is unknown."""
        unfinished = self.calls.unfinished_tool_calls.values()
        return [call for call in unfinished if not call.idempotent]

    def unfinished_remote_calls(self) -> UnfinishedCalls | None:
        """Return what a remote is to do if it does not know the end of the run that an earlier attempt called.

        Returns:
            `repeat` if calls may be repeated; `interrupt` if the remote run called tools that are not idempotent; None
            if it called no others.
        """
        if self._may_repeat:
            return "repeat"
        for call in self.remote_call.tool_calls.values():
            if not call.idempotent:
                return "interrupt"
        return None


def _key_of(event: _Repeated) -> tuple[str, Path, int]:
    """What tells an event from others of its run."""
    match event:
        case HistoryCut():
            number = event.messages
        case HandoffEvent():
            # a run has no other
            number = 0
        case PlanMade():
            number = event.revision
        case LoopExhausted():
            number = event.iterations
    return event.type, event.path, number
