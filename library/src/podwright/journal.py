"""What a run did in earlier attempts, so that a new attempt goes on where they stood.

A run is repeatable except for what it calls. So a new attempt performs the whole run again: a model call, a tool call,
a condition or a remote run that has ended gives its recorded result, and what is finished emits no events a second
time. Nested runs have the same ids in each attempt, so the events themselves are the journal, which the service keeps.
What the caller of a stopped workflow keeps is a `Checkpoint`; see `podwright.run`.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import AbstractAsyncContextManager, nullcontext
from dataclasses import dataclass, replace
from typing import Any, ClassVar, TypeGuard, cast

from podwright.approvals import ApprovalId, Decision, Question
from podwright.errors import (
    InputsError,
    LimitExceededError,
    LoopLimitError,
    RemoteInterruptedError,
    RunCancelledError,
    ToolArgumentsError,
)
from podwright.events import (
    ConditionChecked,
    ErrorCaught,
    Event,
    HistoryCut,
    LoopExhausted,
    ModelCallFailed,
    ModelCallFinished,
    PlanMade,
    RunCancelled,
    RunEnded,
    RunFailed,
    RunFinished,
    RunStarted,
    StepFinished,
    ToolCallFailed,
    ToolCallFinished,
    ToolCallStarted,
)
from podwright.headers import UnfinishedCalls
from podwright.usage import NO_USAGE, Usage

Path = tuple[int, ...]
_ToolCall = ToolCallStarted | ToolCallFinished | ToolCallFailed
_Repeated = HistoryCut | PlanMade | LoopExhausted
"""Events that a new attempt emits again, because it performs the run again."""
_CallKey = tuple[Path, int]
"""Position and number of a tool call in its run. Only the calls of a workflow's function steps differ in the position.
"""


class Journal:
    """The recorded events of a run's earlier attempts, by what they tell. Subclasses store those of the new attempt.

    Without events it is the journal of a first attempt, or of a run that has only one: it knows of nothing.

    Args:
        recorded: The events, in order. Tokens, the starts of model calls and contexts are not needed.
        decisions: What people have decided.
        seconds: How long the earlier attempts ran, as far as that is known; counts against `wall_time`.
        attempt: Number of the new attempt, from 1.
    """

    asks_again: ClassVar[bool] = False
    """Whether a decision that does not fit has the question asked again: the attempt is not run by who decided."""

    def __init__(
        self,
        recorded: Iterable[Event] = (),
        decisions: Mapping[ApprovalId, Decision] | None = None,
        seconds: float = 0.0,
        attempt: int = 1,
    ) -> None:
        self.decisions: Mapping[ApprovalId, Decision] = decisions or {}
        self.seconds = seconds
        self.attempt = attempt
        self._runs: defaultdict[str, _RunEntries] = defaultdict(_RunEntries)
        """By id of the run, those in other containers included."""
        for event in recorded:
            self.add(event)

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
            if self.asks_again:
                return None
            raise

    def add(self, event: Event) -> None:
        """Add an event of an earlier attempt; in order, and before the new attempt begins."""
        run = self._runs[event.run_id]
        match event:
            case ModelCallFinished(tool_call=int()):
                run.calls.add_report(event)
            case ModelCallFinished():
                run.calls.add_answer(event)
            case ModelCallFailed():
                run.calls.excuse_last_answer()
                self._discard_failed_call(run, event)
            case ToolCallStarted() | ToolCallFinished() | ToolCallFailed():
                run.calls.add_tool_call(event)
                if isinstance(event, ToolCallFailed) and is_reported_to_model(
                    event
                ):
                    self._settle_reported(run, event)
            case RunFailed():
                self._add_failure(run, event)
            case ErrorCaught():
                self._settle_caught(run, event)
            case _:
                run.add(event)
        if event.remote is not None:
            self._add_remote(run, event)
        if isinstance(event, RunStarted) and event.parent_id:
            run.path = event.path
            outer = self._runs[event.parent_id]
            outer.inner[event.run_id] = run
        if isinstance(event, RunEnded):
            run.usage = event.usage
            self._add_nested_usage(event)

    @property
    def discarded(self) -> Usage:
        """The usage of answers that the model is asked for again, of failed model calls and of failed remote runs."""
        usages = (run.discarded for run in self._runs.values())
        return sum(usages, NO_USAGE)

    @property
    def failed_calls(self) -> int:
        """Model calls that failed."""
        return sum(run.failed_calls for run in self._runs.values())

    def _discard_failed_call(
        self, run: _RunEntries, event: ModelCallFailed
    ) -> None:
        # the end of a remote run has the usage of its calls
        if event.remote is None:
            run.discarded += event.usage
            run.failed_calls += 1

    def _settle_reported(self, run: _RunEntries, event: ToolCallFailed) -> None:
        """Take the runs nested in a failed tool call for finished, because the model was told: none is repeated."""
        for run_id in run.calls.nested_usage[event.path, event.call]:
            run.failed_calls += self._runs[run_id].settle()

    def _settle_caught(self, run: _RunEntries, event: ErrorCaught) -> None:
        """Take the runs inside a failed attempt of a try step for finished: a new attempt does not perform them."""
        usage = NO_USAGE
        failed_calls = 0
        depth = len(event.path)
        for inner in run.inner.values():
            if inner.path[:depth] == event.path:
                usage += inner.usage
                failed_calls += inner.settle()
        usage += run.calls.settle_below(event.path)
        run.caught[event.path] = CaughtError(event.error, usage, failed_calls)

    def _add_failure(self, run: _RunEntries, event: RunFailed) -> None:
        run.failures += 1
        code = event.error.get("code")
        if code == RemoteInterruptedError.code:
            # the caller that lets the run go on knows of these calls
            run.remote_call.tool_calls.clear()
        # taken also after a limit: the new attempt replays this answer, so its next failure has another reason
        last = run.calls.take_last_answer()
        # a limit is the reason: the answer is as good as before, and is not paid for a second time
        is_due_to_limit = code in (LimitExceededError.code, LoopLimitError.code)
        if last is None or not last.is_cause or is_due_to_limit:
            return
        if run.calls.report_wrong_calls(last):
            # what its other calls did stays done, and so do the decisions on them
            return
        # the new attempt asks the model again; the usage still counts
        answer = run.calls.answers.pop(last.call_number)
        run.discarded += answer.response.usage.as_call(answer.model)

    def _add_remote(self, run: _RunEntries, event: Event) -> None:
        """Add an event of a run in another container to the entries of the run here that called it."""
        run.relayed[event.type] += 1
        parent = self._runs[event.parent_id or ""]
        if isinstance(event, RunStarted):
            run.caller = parent.caller or parent
        if run.caller is None:
            return
        match event:
            case ToolCallStarted():
                run.caller.remote_call.add_tool_call(event)
            case ToolCallFailed() if is_wrong_call(event.error):
                run.caller.remote_call.remove_tool_call(event)
            case RunFinished() if run.caller is parent:
                run.caller.remote_call.finish(event)
            case RunFailed() | RunCancelled() if run.caller is parent:
                run.discarded += event.usage
            case _:
                pass

    def _add_nested_usage(self, event: RunEnded) -> None:
        """Add the usage of a run to that of the tool call which it is nested in."""
        if not event.parent_id or event.tool_call is None:
            return
        parent = self._runs[event.parent_id]
        usages = parent.calls.nested_usage[event.path, event.tool_call]
        usages[event.run_id] = event.usage

    def _entries_of(self, run_id: str) -> _RunEntries:
        return self._runs.get(run_id, _NO_ENTRIES)

    def answer(self, run_id: str, call: int) -> ModelCallFinished | None:
        """The end of a model call with its answer; None if the call has to be made."""
        run = self._entries_of(run_id)
        return run.calls.answers.get(call)

    def tool_call(
        self, run_id: str, path: Path, call: int
    ) -> ToolCallFinished | ToolCallFailed | None:
        """How a tool call ended, if its result went to the model; None if it has to be made.

        Args:
            run_id: Its run.
            path: Its position: that of its run, or of a function step.
            call: Its number.
        """
        run = self._entries_of(run_id)
        event = run.calls.tool_calls.get((path, call))
        match event:
            case ToolCallFinished():
                return event
            case ToolCallFailed() if is_reported_to_model(event):
                return event
            case _:
                return None

    def caught(self, run_id: str, path: Path) -> CaughtError | None:
        """The error of an attempt of a try step, after which the run went on; None if there was none."""
        return self._entries_of(run_id).caught.get(path)

    def usage_of(self, run_id: str, path: Path, call: int) -> Usage:
        """What a tool call used: the runs nested in it, and its function; its arguments are those of `tool_call`."""
        run = self._entries_of(run_id)
        usages = run.calls.nested_usage.get((path, call), {})
        reported = self.reported_usage(run_id, path, call)
        return sum(usages.values(), reported)

    def reported_usage(self, run_id: str, path: Path, call: int) -> Usage:
        """What the function of a tool call has reported; its arguments are those of `tool_call`."""
        run = self._entries_of(run_id)
        return run.calls.reported_usage.get((path, call), NO_USAGE)

    def condition(self, run_id: str, path: Path, number: int) -> bool | None:
        """The result of the condition of a step, from 0 for its first check; None if it has to be evaluated."""
        run = self._entries_of(run_id)
        results = run.conditions.get(path, [])
        if number < len(results):
            return results[number]
        return None

    def is_step_finished(self, run_id: str, path: Path, step: str) -> bool:
        """Whether a step has ended, and the run went on."""
        run = self._entries_of(run_id)
        return (path, step) in run.steps

    def was_emitted(self, event: Event) -> bool:
        """Whether an earlier attempt emitted this event.

        False for all but those in `_Repeated`; what has a recorded result emits no events a second time.
        """
        if not isinstance(event, _Repeated):
            return False
        run = self._entries_of(event.run_id)
        return _key_of(event) in run.emitted

    def take_relayed(self, event: Event) -> bool:
        """Take one event from those of a remote run that an earlier attempt relayed; false if none is left.

        A remote that has kept its response sends the same events again, in the same order.
        """
        relayed = self._entries_of(event.run_id).relayed
        if relayed[event.type] == 0:
            return False
        relayed[event.type] -= 1
        return True

    def finished_run(self, run_id: str) -> RunFinished | None:
        """The end of a run that has succeeded."""
        return self._entries_of(run_id).end

    def finished_remote_run(self, run_id: str) -> RunFinished | None:
        """The end of the remote run that a run called, if that has answered."""
        return self._entries_of(run_id).remote_call.end

    def failures(self, run_id: str) -> int:
        """How often a run has failed."""
        return self._entries_of(run_id).failures

    def unfinished_tool_calls(self) -> list[ToolCallStarted]:
        """The unfinished calls of tools that are not idempotent; what these calls did is unknown."""
        unfinished: list[ToolCallStarted] = []
        for run in self._runs.values():
            unfinished += run.calls.unfinished_tool_calls.values()
        return [call for call in unfinished if not call.idempotent]

    def unfinished_remote_calls(self, run_id: str) -> UnfinishedCalls | None:
        """What a remote is to do if it does not know the end of the remote run that an earlier attempt called.

        Returns:
            `interrupt` if the remote run called tools that are not idempotent; None if it may be repeated.
        """
        run = self._entries_of(run_id)
        for call in run.remote_call.tool_calls.values():
            if not call.idempotent:
                return "interrupt"
        return None

    def call(self, *, in_tool: bool) -> AbstractAsyncContextManager[None]:
        """The context of a call whose result would be lost if the attempt ended now.

        That is a model call, a condition of the caller, a remote run, or a tool call that is not a nested run. A
        subclass first stores all results so far, and does not begin the call if the attempt is to end.

        Args:
            in_tool: Whether it is part of a tool call of a run around it, which has started and must go on.
        """
        return nullcontext()

    async def before_effect(self) -> None:
        """Hook between the event of a tool call's start and the tool: a subclass stores that event."""


@dataclass(frozen=True, slots=True)
class CaughtError:
    """Why an attempt of a try step failed, and what it used."""

    error: Mapping[str, Any]
    """What the steps that catch it are told."""
    usage: Usage
    failed_calls: int
    """Model calls that failed, which are no part of the usage."""


class _RunEntries:
    """What the events of one run tell."""

    def __init__(self) -> None:
        self.calls = _Calls()
        self.conditions: defaultdict[Path, list[bool]] = defaultdict(list)
        """The results of the conditions of its steps, in order."""
        self.steps: set[tuple[Path, str]] = set()
        """Those after which it went on."""
        self.emitted: set[tuple[str, Path, int]] = set()
        """The keys of events that a new attempt emits again."""
        self.end: RunFinished | None = None
        """Its end, if it has succeeded."""
        self.failures = 0
        self.inner: dict[str, _RunEntries] = {}
        """The runs nested in it, by id."""
        self.path: Path = ()
        self.usage = NO_USAGE
        """What it had used when it ended last."""
        self.discarded = NO_USAGE
        """What it used in vain; see `Journal.discarded`."""
        self.failed_calls = 0
        self.caught: dict[Path, CaughtError] = {}
        """By the path of the attempt."""
        self.remote_call = _RemoteCall()
        self.caller: _RunEntries | None = None
        """Of a run in another container: the run here that it is part of."""
        self.relayed: Counter[str] = Counter()
        """Of a run in another container: its events, by type, that the new attempt has not seen again."""

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

    def add(self, event: Event) -> None:
        """Add an event that tells of no call."""
        match event:
            case ConditionChecked():
                results = self.conditions[event.path]
                results.append(event.result)
            case StepFinished(outcome="ok" | "exhausted" | "caught"):
                self.steps.add((event.path, event.step))
            case HistoryCut() | PlanMade() | LoopExhausted():
                self.emitted.add(_key_of(event))
            case RunFinished():
                self.end = event
            case _:
                pass


@dataclass(slots=True)
class _LastAnswer:
    """The last answer of the model in one run."""

    call_number: int
    first_tool_call: int
    """Number of the first tool call after it."""
    is_cause: bool = True
    """Whether it is why the run fails, if it fails now: no call has failed since."""


class _Calls:
    """The model calls and tool calls of one run, by their numbers."""

    def __init__(self) -> None:
        self.answers: dict[int, ModelCallFinished] = {}
        self.tool_calls: dict[_CallKey, _ToolCall] = {}
        self.unfinished_tool_calls: dict[_CallKey, ToolCallStarted] = {}
        """Those of this process that have not ended, or were cancelled, which does not stop a tool in a thread."""
        self.nested_usage: defaultdict[_CallKey, dict[str, Usage]] = (
            defaultdict(dict)
        )
        """What the runs nested in a tool call used, by the id of the run."""
        self.reported_usage: defaultdict[_CallKey, Usage] = defaultdict(Usage)
        """What the functions of tool calls have reported."""
        self._last_answer: _LastAnswer | None = None

    def add_answer(self, event: ModelCallFinished) -> None:
        """Add the answer to a model call."""
        self.answers[event.call] = event
        self._last_answer = _LastAnswer(
            call_number=event.call, first_tool_call=len(self.tool_calls)
        )

    def add_report(self, event: ModelCallFinished) -> None:
        """Add a model call that the function of a tool call made by itself."""
        usage = event.response.usage.as_call(event.model)
        self.reported_usage[event.path, cast("int", event.tool_call)] += usage

    def excuse_last_answer(self) -> None:
        """After a call that failed the last answer is not why the run fails."""
        if self._last_answer is not None:
            self._last_answer.is_cause = False

    def take_last_answer(self) -> _LastAnswer | None:
        """Return the last answer, and forget that it is the last."""
        last = self._last_answer
        self._last_answer = None
        return last

    def report_wrong_calls(self, last: _LastAnswer) -> bool:
        """Have the model be told of the calls of an answer that were wrong, and failed the run for that.

        Args:
            last: The answer.

        Returns:
            Whether the answer has such a call.
        """
        is_reported = False
        for key, event in self.tool_calls.items():
            _, number = key
            if number < last.first_tool_call or not _is_fatal_mistake(event):
                continue
            report = f"Error: {event.error['message']}"
            self.tool_calls[key] = replace(event, report=report)
            is_reported = True
        return is_reported

    def add_tool_call(self, event: _ToolCall) -> None:
        """Add the start or the end of a tool call."""
        key = event.path, event.call
        self.tool_calls[key] = event
        if event.remote is not None:
            return
        match event:
            case ToolCallStarted():
                self.unfinished_tool_calls[key] = event
                return
            case ToolCallFailed() if not (
                is_wrong_call(event.error) or is_reported_to_model(event)
            ):
                self.excuse_last_answer()
            case _:
                pass
        if not _is_cancelled(event):
            self.unfinished_tool_calls.pop(key, None)

    def settle_below(self, path: Path) -> Usage:
        """Take the tool calls below a position for finished, and return how many they are and what they reported."""
        depth = len(path)
        for place, number in list(self.unfinished_tool_calls):
            if place[:depth] == path:
                del self.unfinished_tool_calls[place, number]
        below = [key for key in self.tool_calls if key[0][:depth] == path]
        usage = Usage(tool_calls=len(below))
        for key in below:
            usage += self.reported_usage.get(key, NO_USAGE)
        return usage


class _RemoteCall:
    """The run in another container that a run has called."""

    def __init__(self) -> None:
        self.end: RunFinished | None = None
        """Its end, if it has answered."""
        self.tool_calls: dict[tuple[str, Path, int], ToolCallStarted] = {}
        """Those that would be repeated, whether they ended or not; none if it has answered."""

    def add_tool_call(self, event: ToolCallStarted) -> None:
        """Add the start of a tool call, in the called run or one nested in it."""
        key = event.run_id, event.path, event.call
        self.tool_calls[key] = event

    def remove_tool_call(self, event: ToolCallFailed) -> None:
        """Remove a tool call whose tool was not called."""
        key = event.run_id, event.path, event.call
        self.tool_calls.pop(key, None)

    def finish(self, event: RunFinished) -> None:
        """The called run has answered."""
        self.end = event
        self.tool_calls.clear()


_NO_ENTRIES = _RunEntries()
"""Those of a run that the journal does not know."""


def _key_of(event: _Repeated) -> tuple[str, Path, int]:
    """What tells an event from others of its run."""
    match event:
        case HistoryCut():
            number = event.messages
        case PlanMade():
            number = event.revision
        case LoopExhausted():
            number = event.iterations
    return event.type, event.path, number


def is_wrong_call(error: Mapping[str, Any]) -> bool:
    """Whether a tool call was wrong in itself, so that the tool was not called.

    Args:
        error: The `error` of the event `tool_call_failed`.
    """
    if error.get("run_id"):
        # the error of a run nested in the tool
        return False
    return error.get("code") == ToolArgumentsError.code


def is_reported_to_model(event: ToolCallFailed) -> bool:
    """Whether the model was told of the failure, and the run went on."""
    if event.report is None:
        # older releases told the model of wrong calls only
        return is_wrong_call(event.error)
    return event.report != ""


def _is_fatal_mistake(event: _ToolCall) -> TypeGuard[ToolCallFailed]:
    """Whether a tool call was wrong in itself, and failed the run."""
    if not isinstance(event, ToolCallFailed) or is_reported_to_model(event):
        return False
    return is_wrong_call(event.error)


def _is_cancelled(event: _ToolCall) -> bool:
    if not isinstance(event, ToolCallFailed):
        return False
    return event.error.get("code") == RunCancelledError.code
