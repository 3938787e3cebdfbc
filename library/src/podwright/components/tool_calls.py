"""Calling a tool as a model asked: arguments, events and errors."""

from __future__ import annotations

import asyncio
import json
from asyncio import CancelledError
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from time import perf_counter
from typing import Any, cast

from podwright.errors import (
    PodwrightError,
    ToolArgumentsError,
    ToolError,
    error_from,
)
from podwright.events import (
    Event,
    ToolCallFailed,
    ToolCallFinished,
    ToolCallStarted,
)
from podwright.journal import is_wrong_call
from podwright.json_data import as_array, nested_deeper, to_text
from podwright.messages import Message, ToolCall
from podwright.run import (
    Run,
    current_tool_call,
    gather_or_cancel,
    milliseconds_since,
)
from podwright.text import did_you_mean
from podwright.tools import Tool
from podwright.usage import Usage

PARALLEL_CALLS = 32
"""Tool calls of one answer that are executed at once; the others wait."""


def error_details(error: BaseException) -> dict[str, Any]:
    """The `error` of an event: the details of an error, or those of a cancellation."""
    if isinstance(error, PodwrightError):
        return error.to_dict()
    return {"code": "run_cancelled", "message": "The run was cancelled."}


class ToolCaller:
    """Calls the tools of one chat.

    A call that is wrong in itself (unknown tool, invalid arguments) is reported back to the model. After
    `max_retries` turns in a row with nothing but wrong calls of a tool, the next wrong call of it fails the run.

    Args:
        run: The run that the model works in.
        tools: The tools by name.
        max_retries: Wrong calls of one tool in a row that are reported; calls of one turn count once.
    """

    def __init__(
        self, run: Run, tools: Mapping[str, Tool], max_retries: int
    ) -> None:
        self._run = run
        self._tools = tools
        self._max_retries = max_retries
        self._wrong_turns: Counter[str] = Counter()
        """By tool, the last turns in a row in which all its calls were wrong."""

    async def call_all(self, calls: Sequence[ToolCall]) -> list[Message]:
        """Call the tools that the model asked for in one turn, up to `PARALLEL_CALLS` at once.

        Returns:
            The messages for the model: a result each, or what was wrong with the call.

        Raises:
            ToolError: A tool raised an error, or was called wrongly too often.
            PodwrightError: A run nested in a tool failed.
        """
        # decided before the calls, so that those of one turn do not count against each other
        retryable = self._tools_with_retries_left(calls)
        slots = asyncio.Semaphore(PARALLEL_CALLS)

        async def call_in_slot(call: _Call) -> _ToolAnswer:
            async with slots:
                return await self._replay_or_call(call)

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
        answers = await gather_or_cancel(map(call_in_slot, numbered))
        self._count_wrong_turns(calls, answers)
        return [answer.message for answer in answers]

    def _tools_with_retries_left(self, calls: Sequence[ToolCall]) -> set[str]:
        """The tools of which a wrong call is reported to the model; a wrong call of another one fails the run."""
        retryable: set[str] = set()
        for call in calls:
            if self._wrong_turns[call.name] < self._max_retries:
                retryable.add(call.name)
        return retryable

    def _count_wrong_turns(
        self, calls: Sequence[ToolCall], answers: Sequence[_ToolAnswer]
    ) -> None:
        right: set[str] = set()
        for call, answer in zip(calls, answers, strict=True):
            if not answer.is_error:
                right.add(call.name)
        for name in {call.name for call in calls}:
            if name in right:
                self._wrong_turns[name] = 0
            else:
                self._wrong_turns[name] += 1

    async def _replay_or_call(self, call: _Call) -> _ToolAnswer:
        """Answer with the result of an earlier attempt of the run, or call the tool."""
        self._run.add_usage(Usage(tool_calls=1))
        # never reset: each call has a task of its own, and so a context of its own
        current_tool_call.set(call.number)
        journal = self._run.journal
        match journal.tool_call(self._run.id, call.number):
            case ToolCallFailed() as recorded:
                return call.error_answer(recorded.error["message"])
            case ToolCallFinished() if call.is_performed_again:
                # its nested run replays itself; later runs get their ids by its number
                arguments = _parse_arguments(call.request)
                return call.result_answer(
                    await self._call_tool(call, arguments)
                )
            case ToolCallFinished() as recorded:
                usage = journal.usage_of(self._run.id, call.number)
                self._run.count_recorded_usage(usage)
                return call.result_answer(recorded.output)
            case None if call.is_performed_again:
                return await self._call_with_events(call)
            case None:
                async with journal.call(in_tool=self._run.in_tool):
                    return await self._call_with_events(call)

    async def _call_with_events(self, call: _Call) -> _ToolAnswer:
        """Call a tool, emit the events of the call, and report to the model what is wrong with it."""
        started = perf_counter()
        try:
            arguments = self._begin(call)
            # a nested run has no effects but those of its own calls
            if not call.is_performed_again:
                await self._run.journal.before_effect()
            text = await self._call_tool(call, arguments)
        except (CancelledError, PodwrightError) as error:
            details = error_details(error)
            self._emit(
                ToolCallFailed,
                call,
                error=details,
                duration_ms=milliseconds_since(started),
            )
            if call.may_report_error and is_wrong_call(details):
                return call.error_answer(details["message"])
            raise
        self._emit(
            ToolCallFinished,
            call,
            output=text,
            duration_ms=milliseconds_since(started),
        )
        return call.result_answer(text)

    def _begin(self, call: _Call) -> dict[str, Any]:
        """Emit the start of a call, and return its arguments; a call with invalid arguments has a start as well."""
        arguments: Any = call.request.arguments
        try:
            arguments = _parse_arguments(call.request)
        finally:
            self._emit(
                ToolCallStarted,
                call,
                arguments=arguments,
                idempotent=call.is_repeatable,
            )
        return arguments

    async def _call_tool(self, call: _Call, arguments: dict[str, Any]) -> str:
        name = call.request.name
        if call.tool is None:
            hint = did_you_mean(name, self._tools) or "It has no tools."
            raise ToolArgumentsError(
                f"Unknown tool '{name}' in '{self._run.component_name}'. {hint}"
            )
        try:
            return to_text(await call.tool.call(arguments))
        except PodwrightError:
            raise
        except Exception as error:
            raise error_from(ToolError, f"Tool '{name}'", error) from error

    def _emit(
        self, event_class: Callable[..., Event], call: _Call, **fields: Any
    ) -> None:
        event = event_class(
            **self._run.stamp(),
            call=call.number,
            tool=call.request.name,
            call_id=call.request.id,
            **fields,
        )
        self._run.emit(event)


@dataclass(frozen=True, slots=True)
class _ToolAnswer:
    """The answer to a tool call."""

    message: Message
    is_error: bool
    """Whether it says what was wrong with the call; if not, it is the result."""


@dataclass(frozen=True, slots=True)
class _Call:
    """A tool call that the model asked for."""

    request: ToolCall
    number: int
    """Its number in the run."""
    tool: Tool | None
    """The tool; None if there is none of this name."""
    may_report_error: bool
    """Whether the model is told what is wrong with the call; if not, a wrong call fails the run."""

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

    def result_answer(self, text: str) -> _ToolAnswer:
        """The answer with what the tool returned."""
        message = Message("tool", text, tool_call_id=self.request.id)
        return _ToolAnswer(message, is_error=False)

    def error_answer(self, reason: str) -> _ToolAnswer:
        """The answer with what is wrong with the call."""
        message = Message(
            "tool", f"Error: {reason}", tool_call_id=self.request.id
        )
        return _ToolAnswer(message, is_error=True)


def _parse_arguments(call: ToolCall) -> dict[str, Any]:
    try:
        arguments: object = json.loads(call.arguments or "{}")
    except (ValueError, RecursionError) as error:
        raise ToolArgumentsError(
            f"The arguments of tool '{call.name}' are not valid JSON: {error}."
        ) from error
    items = as_array(arguments)
    # some models put the object into a list
    if len(items) == 1 and isinstance(items[0], dict):
        arguments = cast("dict[str, Any]", items[0])
    if not isinstance(arguments, dict):
        raise ToolArgumentsError(
            f"The arguments of tool '{call.name}' must be an object, not {type(arguments).__name__}."
        )
    if nested_deeper(cast("object", arguments)):
        raise ToolArgumentsError(
            f"The arguments of tool '{call.name}' are nested too deeply."
        )
    return cast("dict[str, Any]", arguments)
