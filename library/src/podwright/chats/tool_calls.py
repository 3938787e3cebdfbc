"""Calling a tool as a model asked: arguments, events and errors."""

from __future__ import annotations

import asyncio
import contextlib
import json
from asyncio import CancelledError
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from podwright.chats.call_approvals import (
    changed_content,
    check_decision,
    question_about,
    refusal_text,
)
from podwright.chats.recorded_call import RecordedCall
from podwright.chats.tool_answers import (
    Content,
    content_data,
    cut_content,
    failure_text,
    must_end_run,
    recorded_content,
    result_content,
)
from podwright.data.model_json import UnreadableJsonError, read_arguments
from podwright.data.text import did_you_mean
from podwright.errors import (
    ApprovalRejectedError,
    ApprovalRequired,
    PodwrightError,
    ToolArgumentsError,
    ToolError,
    error_from,
)
from podwright.events import (
    ToolCallFailed,
    ToolCallFinished,
)
from podwright.journal.call_record import is_wrong_call
from podwright.location import ToolCallId, change_location
from podwright.messages.approvals import ApprovalId, Decision
from podwright.messages.messages import Message, ToolCall
from podwright.messages.usage import Usage
from podwright.run.run import Run
from podwright.run.tasks import gather_or_cancel
from podwright.threads import compute
from podwright.tools.tool import Tool

PARALLEL_CALLS = 32
"""Tool calls of one answer that are executed at once; the others wait."""


class ToolCaller:
    """Calls the tools of one chat.

    A call that is wrong in itself (unknown tool, invalid arguments) is reported back to the model, and so is a failure
    of the tool unless its errors are to fail the run. After `max_retries` turns in a row with nothing but failed calls
    of a tool, the next failure of it fails the run.

    Args:
        run: The run that the model works in.
        tools: The tools by name.
        max_retries: Failed calls of one tool in a row that are reported; calls of one turn count once.
    """

    def __init__(
        self, run: Run, tools: Mapping[str, Tool], max_retries: int
    ) -> None:
        self._run = run
        self._tools = tools
        self._max_retries = max_retries
        self._failed_turns: Counter[str] = Counter()
        """By tool, the last turns in a row in which all its calls failed."""

    async def call_all(self, calls: Sequence[ToolCall]) -> list[ToolAnswer]:
        """Call the tools that the model asked for in one turn, up to `PARALLEL_CALLS` at once.

        Returns:
            A result for each call, or why it failed.

        Raises:
            ToolError: A tool raised an error or was called wrongly, too often or where that fails the run.
            PodwrightError: A run nested in a tool failed, with the same exceptions.
        """
        # decided before the calls, so that those of one turn do not count against each other
        retryable = self._tools_with_retries_left(calls)
        slots = asyncio.Semaphore(PARALLEL_CALLS)

        async def call_in_slot(call: _Call) -> ToolAnswer | ApprovalRequired:
            async with slots:
                try:
                    return await self._replay_or_call(call)
                except ApprovalRequired as pause:
                    return pause

        numbered: list[_Call] = []
        for call in calls:
            numbered_call = _Call(
                call,
                number=self._run.tool_calls,
                tool=self._tools.get(call.name),
                may_report_error=call.name in retryable,
            )
            numbered.append(numbered_call)
            self._run.tool_calls += 1
        outcomes = await gather_or_cancel(map(call_in_slot, numbered))
        answers: list[ToolAnswer] = []
        for outcome in outcomes:
            # the other calls of the turn have gone on to their end
            if isinstance(outcome, ApprovalRequired):
                raise outcome
            answers.append(outcome)
        self._count_failed_turns(calls, answers)
        return answers

    def _tools_with_retries_left(self, calls: Sequence[ToolCall]) -> set[str]:
        """The tools of which a failure is reported to the model; a failure of another one fails the run."""
        retryable: set[str] = set()
        for call in calls:
            if self._failed_turns[call.name] < self._max_retries:
                retryable.add(call.name)
        return retryable

    def _count_failed_turns(
        self, calls: Sequence[ToolCall], answers: Sequence[ToolAnswer]
    ) -> None:
        right: set[str] = set()
        for call, answer in zip(calls, answers, strict=True):
            if not answer.is_error:
                right.add(call.name)
        for name in {call.name for call in calls}:
            if name in right:
                self._failed_turns[name] = 0
            else:
                self._failed_turns[name] += 1

    async def _replay_or_call(self, call: _Call) -> ToolAnswer:
        """Answer with the result of an earlier attempt of the run, or call the tool."""
        self._run.add_usage(Usage(tool_calls=1))
        # never reset: each call has a task of its own, and so a context of its own
        call_id = self._id_of(call)
        change_location(tool_call=call_id)
        earlier = self._run.recorded
        match earlier.tool_call(call_id):
            case ToolCallFailed() as recorded:
                usage = earlier.usage_of(call_id)
                self._run.count_usage(usage)
                text = _recorded_text(recorded)
                if recorded.is_rejection:
                    return call.rejection_answer(text)
                return call.error_answer(text)
            case ToolCallFinished() if call.is_performed_again:
                # its nested run replays itself; later runs get their ids by its number
                arguments = _parse_arguments(call.request)
                record = self._record_of(call)
                content = await self._call_tool(record, call, arguments)
                return call.result_answer(content)
            case ToolCallFinished() as recorded:
                usage = earlier.usage_of(call_id)
                self._run.count_usage(usage)
                return call.result_answer(recorded_content(recorded.output))
            case None if call.is_performed_again:
                return await self._call_with_events(call)
            case None:
                return await self._call_if_approved(call)

    async def _call_if_approved(self, call: _Call) -> ToolAnswer:
        """Call a tool as a person has decided, if one has to approve the call.

        Raises:
            ApprovalRequired: Nobody has decided yet.
        """
        record = self._record_of(call)
        try:
            decision = await self._decision_on(call)
        except ToolError as error:
            # nothing that a person may have to approve happens without an answer of the rule
            with contextlib.suppress(ToolArgumentsError):
                _start(record, call)
            return self._fail(record, call, error)
        if decision is not None and decision.is_rejection:
            return _refuse(record, call, decision)
        async with self._run.journal.call(in_tool=self._run.in_tool):
            return await self._call_with_events(call.with_changes(decision))

    async def _decision_on(self, call: _Call) -> Decision | None:
        """What a person has decided on a call; None if nobody has to.

        Raises:
            ApprovalRequired: Nobody has decided yet.
            ToolError: The arguments do not fit, or the rule of the tool failed.
        """
        tool = call.tool
        if tool is None or not tool.may_need_approval:
            return None
        name = self._run.component_name
        arguments = _parse_arguments(call.request)
        try:
            question = await tool.run_validation(
                question_about, tool, arguments, name
            )
        except PodwrightError:
            raise
        except Exception as error:
            raise error_from(ToolError, f"Tool '{tool.name}'", error) from error
        is_asked = await tool.needs_approval(arguments)
        asked = ApprovalId(self._run.id, *self._id_of(call))
        decision = await self._run.journal.decision_on(
            asked,
            question,
            lambda decision: compute(check_decision, question, decision, tool),
        )
        if decision is None and is_asked:
            raise ApprovalRequired(
                question.message, question=question, asked=asked
            )
        return decision

    def _id_of(self, call: _Call) -> ToolCallId:
        return ToolCallId(self._run.path, call.number)

    def _record_of(self, call: _Call) -> RecordedCall:
        request = call.request
        server = "" if call.tool is None else call.tool.mcp_server
        return RecordedCall(
            self._run, self._id_of(call), request.name, request.id, server
        )

    async def _call_with_events(self, call: _Call) -> ToolAnswer:
        """Call a tool, and emit the events of the call; its failure is reported to the model or raised."""
        record = self._record_of(call)
        try:
            arguments = _start(record, call)
            # a nested run has no effects but those of its own calls
            if not call.is_performed_again:
                await self._run.journal.before_effect()
            content = await self._call_tool(record, call, arguments)
        except (CancelledError, PodwrightError) as error:
            return self._fail(record, call, error)
        record.finish(content_data(content))
        return call.result_answer(content)

    def _fail(
        self,
        record: RecordedCall,
        call: _Call,
        error: CancelledError | PodwrightError,
    ) -> ToolAnswer:
        """Emit the failure of a call; the model is told, or the error is raised."""
        report = _report_of(call, error)
        record.fail(error, report)
        if not report:
            raise error
        return call.error_answer(report)

    async def _call_tool(
        self, record: RecordedCall, call: _Call, arguments: dict[str, Any]
    ) -> Content:
        name = call.request.name
        if call.tool is None:
            hint = did_you_mean(name, self._tools) or "It has no tools."
            raise ToolArgumentsError(
                f"Unknown tool '{name}' in '{self._run.component_name}'. {hint}"
            )
        value = await record.perform(call.tool, arguments)
        content = _result_content(call.tool, value)
        content = cut_content(content, call.tool.max_result_tokens)
        if call.is_changed:
            return changed_content(call.request.arguments, content)
        return content


def _start(record: RecordedCall, call: _Call) -> dict[str, Any]:
    """Emit the start of a call, and return its arguments; a call with invalid arguments has a start as well."""
    arguments: Any = call.request.arguments
    try:
        arguments = _parse_arguments(call.request)
    finally:
        record.start(arguments, idempotent=call.is_repeatable)
    return arguments


def _refuse(
    record: RecordedCall, call: _Call, decision: Decision
) -> ToolAnswer:
    """Tell the model that a person has rejected the call, and emit its events."""
    text = refusal_text(decision.comment)
    _start(record, call)
    error = ApprovalRejectedError(
        f"A person rejected the call of the tool '{call.request.name}'."
    )
    record.reject(error, text)
    return call.rejection_answer(text)


def _result_content(tool: Tool, value: Any) -> Content:
    """A result as the model gets it."""
    try:
        return result_content(value)
    except Exception as error:
        raise error_from(ToolError, f"Tool '{tool.name}'", error) from error


def _report_of(call: _Call, error: CancelledError | PodwrightError) -> str:
    """What the model is told of a failed call; empty if the failure ends the run."""
    if isinstance(error, CancelledError) or not call.may_report_error:
        return ""
    if is_wrong_call(error.to_dict()):
        return f"Error: {error.message}"
    if not call.reports_errors or must_end_run(error):
        return ""
    return failure_text(call.request.name, error)


def _recorded_text(event: ToolCallFailed) -> str:
    """What the model was told of a failed call in an earlier attempt."""
    if event.report is None:
        return f"Error: {event.error['message']}"
    return event.report


@dataclass(frozen=True, slots=True)
class ToolAnswer:
    """The answer to a tool call."""

    message: Message
    is_error: bool = False
    """Whether it says why the call failed."""
    is_rejection: bool = False
    """Whether it says that a person has rejected the call."""

    @property
    def is_result(self) -> bool:
        """Whether it is what the tool returned."""
        return not (self.is_error or self.is_rejection)


@dataclass(frozen=True, slots=True)
class _Call:
    """A tool call that the model asked for."""

    request: ToolCall
    number: int
    """Its number in the run."""
    tool: Tool | None
    """The tool; None if there is none of this name."""
    may_report_error: bool
    """Whether the model may be told why the call failed; if not, a failure fails the run."""
    is_changed: bool = False
    """Whether a person has changed its arguments."""

    @property
    def is_performed_again(self) -> bool:
        """Whether the tool is a run nested in this one."""
        return self.tool is not None and self.tool.is_performed_again

    @property
    def is_repeatable(self) -> bool:
        """Whether a new attempt may make the call again."""
        if self.tool is None:
            return False
        return self.tool.idempotent or self.tool.is_performed_again

    @property
    def reports_errors(self) -> bool:
        """Whether the model is told of an error of the tool."""
        return self.tool is not None and self.tool.reports_errors

    def with_changes(self, decision: Decision | None) -> _Call:
        """The call with the arguments that a person has changed."""
        if decision is None or not decision.values:
            return self
        arguments = {**_parse_arguments(self.request), **decision.values}
        request = replace(self.request, arguments=json.dumps(arguments))
        return replace(self, request=request, is_changed=True)

    def result_answer(self, content: Content) -> ToolAnswer:
        """The answer with what the tool returned."""
        message = Message("tool", content, tool_call_id=self.request.id)
        return ToolAnswer(message)

    def rejection_answer(self, text: str) -> ToolAnswer:
        """The answer that a person has rejected the call."""
        message = Message("tool", text, tool_call_id=self.request.id)
        return ToolAnswer(message, is_rejection=True)

    def error_answer(self, text: str) -> ToolAnswer:
        """The answer with why the call failed."""
        message = Message("tool", text, tool_call_id=self.request.id)
        return ToolAnswer(message, is_error=True)


def _parse_arguments(call: ToolCall) -> dict[str, Any]:
    try:
        return read_arguments(call.arguments)
    except UnreadableJsonError as error:
        raise ToolArgumentsError(
            f"The arguments of tool '{call.name}' are not valid: {error}."
        ) from error
