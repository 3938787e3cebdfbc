"""The calls of one run in earlier attempts: of models, of tools, and of a run in another container."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, TypeGuard

from podwright.errors import RunCancelledError, ToolArgumentsError
from podwright.events import (
    ModelCallFinished,
    RunFinished,
    ToolCallFailed,
    ToolCallFinished,
    ToolCallStarted,
)
from podwright.location import ToolCallId
from podwright.messages.usage import NO_USAGE, Usage

_ToolCall = ToolCallStarted | ToolCallFinished | ToolCallFailed


@dataclass(slots=True)
class LastAnswer:
    """The last answer of the model in one run."""

    call_number: int
    first_tool_call: int
    """Number of the first tool call after it."""
    is_cause: bool = True
    """Whether it is why the run fails, if it fails now: no call has failed since."""


class CallRecord:
    """The model calls and tool calls of one run, by their numbers."""

    def __init__(self) -> None:
        self.answers: dict[int, ModelCallFinished] = {}
        self.tool_calls: dict[ToolCallId, _ToolCall] = {}
        self.unfinished_tool_calls: dict[ToolCallId, ToolCallStarted] = {}
        """Calls of this process that have not ended, or were cancelled, which does not stop a tool in a thread."""
        self.nested_usage: defaultdict[ToolCallId, dict[str, Usage]] = (
            defaultdict(dict)
        )
        """What the runs nested in a tool call used, by the id of the run."""
        self.reported_usage: defaultdict[ToolCallId, Usage] = defaultdict(Usage)
        """What the functions of tool calls have reported."""
        self._last_answer: LastAnswer | None = None

    def add_answer(self, event: ModelCallFinished) -> None:
        """Add the answer to a model call, of the run itself or of the function of a tool call."""
        if event.tool_call is not None:
            call_id = ToolCallId(event.path, event.tool_call)
            usage = event.response.usage.as_call(event.model)
            self.reported_usage[call_id] += usage
            return
        self.answers[event.call] = event
        self._last_answer = LastAnswer(
            call_number=event.call, first_tool_call=len(self.tool_calls)
        )

    def excuse_last_answer(self) -> None:
        """Note that a call has failed since the last answer, which is then not the cause if the run fails."""
        if self._last_answer is not None:
            self._last_answer.is_cause = False

    def take_last_answer(self) -> LastAnswer | None:
        """Return the last answer, and forget that it is the last."""
        last = self._last_answer
        self._last_answer = None
        return last

    def drop_hooks(self, last: LastAnswer) -> None:
        """Forget what functions after the work said of an answer that the model is asked for again."""
        for call_id, event in list(self.tool_calls.items()):
            is_later = call_id.number >= last.first_tool_call
            if is_later and not event.call_id:
                del self.tool_calls[call_id]

    def report_wrong_calls(self, last: LastAnswer) -> bool:
        """Report to the model the wrong calls of an answer, for which the run failed.

        Args:
            last: The answer.

        Returns:
            Whether the answer has such a call.
        """
        is_reported = False
        for call_id, event in self.tool_calls.items():
            is_earlier = call_id.number < last.first_tool_call
            if is_earlier or not _is_fatal_mistake(event):
                continue
            report = f"Error: {event.error['message']}"
            self.tool_calls[call_id] = replace(event, report=report)
            is_reported = True
        return is_reported

    def add_tool_call(self, event: _ToolCall) -> None:
        """Add the start or the end of a tool call."""
        call_id = call_id_of(event)
        self.tool_calls[call_id] = event
        if event.remote is not None:
            return
        match event:
            case ToolCallStarted():
                self.unfinished_tool_calls[call_id] = event
                return
            case ToolCallFailed() if not (
                is_wrong_call(event.error) or is_reported_to_model(event)
            ):
                self.excuse_last_answer()
            case _:
                pass
        if not _is_cancelled(event):
            self.unfinished_tool_calls.pop(call_id, None)

    def settle_below(self, path: tuple[int, ...]) -> Usage:
        """Take the tool calls below a position for finished, and return how many they are and what they reported."""
        depth = len(path)
        for call_id in list(self.unfinished_tool_calls):
            if call_id.path[:depth] == path:
                del self.unfinished_tool_calls[call_id]
        below = [
            call_id
            for call_id in self.tool_calls
            if call_id.path[:depth] == path
        ]
        usage = Usage(tool_calls=len(below))
        for call_id in below:
            usage += self.reported_usage.get(call_id, NO_USAGE)
        return usage


class RemoteCallRecord:
    """The run in another container that a run has called, and its tool calls."""

    def __init__(self) -> None:
        self.end: RunFinished | None = None
        """Its end, if it has answered."""
        self.tool_calls: dict[tuple[str, ToolCallId], ToolCallStarted] = {}
        """The calls that would be repeated, whether they ended or not; none if it has answered."""

    def add_tool_call(self, event: ToolCallStarted) -> None:
        """Add the start of a tool call, in the called run or one nested in it."""
        self.tool_calls[event.run_id, call_id_of(event)] = event

    def remove_tool_call(self, event: ToolCallFailed) -> None:
        """Remove a tool call whose tool was not called."""
        self.tool_calls.pop((event.run_id, call_id_of(event)), None)

    def finish(self, event: RunFinished) -> None:
        """Note that the called run has answered."""
        self.end = event
        self.tool_calls.clear()


def call_id_of(event: _ToolCall) -> ToolCallId:
    """Return the tool call that an event is about."""
    return ToolCallId(event.path, event.call)


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
