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

from podwright.errors import PodwrightError, ToolArgumentsError, ToolError, error_from
from podwright.events import Event, ToolCallFailed, ToolCallFinished, ToolCallStarted
from podwright.json_data import as_array, nested_deeper, to_text
from podwright.messages import Message, ToolCall
from podwright.run import Run, current_tool_call, gather_or_cancel, milliseconds_since
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

    def __init__(self, run: Run, tools: Mapping[str, Tool], max_retries: int) -> None:
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
        reported = {
            call.name
            for call in calls
            if self._wrong_turns[call.name] < self._max_retries
        }
        first = self._run.tool_calls
        self._run.tool_calls += len(calls)
        slots = asyncio.Semaphore(PARALLEL_CALLS)

        async def call_in_turn(call: ToolCall, number: int) -> _Answer:
            async with slots:
                return await self._call_once(call, number, call.name in reported)

        answers = await gather_or_cancel(
            call_in_turn(call, number) for number, call in enumerate(calls, first)
        )
        self._count_wrong_turns(calls, answers)
        return [answer.message for answer in answers]

    def _count_wrong_turns(
        self, calls: Sequence[ToolCall], answers: Sequence[_Answer]
    ) -> None:
        right = {
            call.name
            for call, answer in zip(calls, answers, strict=True)
            if not answer.is_report
        }
        for name in {call.name for call in calls}:
            self._wrong_turns[name] = (
                0 if name in right else self._wrong_turns[name] + 1
            )

    async def _call_once(
        self, call: ToolCall, number: int, is_reported: bool
    ) -> _Answer:
        """Call a tool, unless an earlier attempt of the run has its result."""
        self._run.add_usage(Usage(tool_calls=1))
        current_tool_call.set(number)
        tool = self._tools.get(call.name)
        is_nested_run = tool is not None and tool.is_nested_run
        journal = self._run.journal
        match journal.tool_call(self._run.id, number):
            case ToolCallFailed() as recorded:
                return _report(call, recorded.error["message"])
            case ToolCallFinished() if is_nested_run:
                # what it runs is recorded itself, and must be performed for the runs after it
                return _answer(
                    call, await self._result(call, tool, _parse_arguments(call))
                )
            case ToolCallFinished() as recorded:
                self._run.count_recorded_usage(journal.usage_of(self._run.id, number))
                return _answer(call, recorded.output)
            case None if is_nested_run:
                return await self._call_and_report(call, tool, number, is_reported)
            case None:
                async with journal.call(in_tool=self._run.in_tool):
                    return await self._call_and_report(call, tool, number, is_reported)

    async def _call_and_report(
        self, call: ToolCall, tool: Tool | None, number: int, is_reported: bool
    ) -> _Answer:
        started = perf_counter()
        try:
            text = await self._started(call, tool, number)
        except (CancelledError, PodwrightError) as error:
            details = error_details(error)
            duration = milliseconds_since(started)
            self._emit(
                ToolCallFailed, call, number, error=details, duration_ms=duration
            )
            # with a run_id the error comes from a nested run
            if (
                not isinstance(error, ToolArgumentsError)
                or error.run_id is not None
                or not is_reported
            ):
                raise
            return _report(call, error.message)
        self._emit(
            ToolCallFinished,
            call,
            number,
            output=text,
            duration_ms=milliseconds_since(started),
        )
        return _answer(call, text)

    async def _started(self, call: ToolCall, tool: Tool | None, number: int) -> str:
        arguments: Any = call.arguments
        try:
            arguments = _parse_arguments(call)
        finally:
            repeatable = tool is not None and (tool.idempotent or tool.is_nested_run)
            self._emit(
                ToolCallStarted,
                call,
                number,
                arguments=arguments,
                idempotent=repeatable,
            )
        if not (tool and tool.is_nested_run):
            await self._run.journal.before_effect()
        return await self._result(call, tool, arguments)

    async def _result(
        self, call: ToolCall, tool: Tool | None, arguments: dict[str, Any]
    ) -> str:
        if tool is None:
            hint = did_you_mean(call.name, self._tools) or "It has no tools."
            raise ToolArgumentsError(
                f"Unknown tool '{call.name}' in '{self._run.component}'. {hint}"
            )
        try:
            return to_text(await tool.call(arguments))
        except PodwrightError:
            raise
        except Exception as error:
            raise error_from(ToolError, f"Tool '{call.name}'", error) from error

    def _emit(
        self, event: Callable[..., Event], call: ToolCall, number: int, **fields: Any
    ) -> None:
        self._run.emit(
            event(
                **self._run.stamp(),
                call=number,
                tool=call.name,
                call_id=call.id,
                **fields,
            )
        )


@dataclass(frozen=True, slots=True)
class _Answer:
    """The answer to a tool call."""

    message: Message
    is_report: bool
    """Whether it says what was wrong with the call, instead of giving its result."""


def _report(call: ToolCall, reason: str) -> _Answer:
    return _Answer(
        Message("tool", f"Error: {reason}", tool_call_id=call.id), is_report=True
    )


def _answer(call: ToolCall, text: str) -> _Answer:
    return _Answer(Message("tool", text, tool_call_id=call.id), is_report=False)


def _parse_arguments(call: ToolCall) -> dict[str, Any]:
    try:
        arguments: object = json.loads(call.arguments or "{}")
    except (ValueError, RecursionError) as error:
        raise ToolArgumentsError(
            f"The arguments of tool '{call.name}' are not valid JSON: {error}."
        ) from error
    items = as_array(arguments)
    # arguments are one object, so that a list with one holds them
    if len(items) == 1 and isinstance(items[0], dict):
        arguments = cast("dict[str, Any]", items[0])
    if not isinstance(arguments, dict):
        message = f"The arguments of tool '{call.name}' must be an object, not {type(arguments).__name__}."
        raise ToolArgumentsError(message)
    if nested_deeper(cast("object", arguments)):
        raise ToolArgumentsError(
            f"The arguments of tool '{call.name}' are nested too deeply."
        )
    return cast("dict[str, Any]", arguments)
