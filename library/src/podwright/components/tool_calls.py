"""Calling a tool as a model asked: arguments, events and errors."""

from __future__ import annotations

import asyncio
import json
from asyncio import CancelledError
from collections.abc import Callable, Mapping, Sequence
from time import perf_counter
from typing import Any, cast

from podwright.errors import PodwrightError, ToolArgumentsError, ToolError, error_from
from podwright.events import Event, ToolCallFailed, ToolCallFinished, ToolCallStarted
from podwright.json_data import nested_deeper, to_text
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

    A call that is wrong in itself (unknown tool, invalid arguments) is reported back to the model once per tool; the
    next wrong call of that tool fails the run.

    Args:
        run: The run that the model works in.
        tools: The tools by name.
    """

    def __init__(self, run: Run, tools: Mapping[str, Tool]) -> None:
        self._run = run
        self._tools = tools
        self._reported: set[str] = set()

    async def call_all(self, calls: Sequence[ToolCall]) -> list[Message]:
        """Call the tools that the model asked for in one turn, up to `PARALLEL_CALLS` at once.

        Returns:
            The messages for the model: a result each, or what was wrong with the call.

        Raises:
            ToolError: A tool raised an error, or was called wrongly again.
            PodwrightError: A run nested in a tool failed.
        """
        reported = frozenset(self._reported)  # calls of one turn do not count against each other
        first = self._run.tool_calls
        self._run.tool_calls += len(calls)
        slots = asyncio.Semaphore(PARALLEL_CALLS)

        async def call_in_turn(call: ToolCall, number: int) -> Message:
            async with slots:
                return await self._call_once(call, number, reported)

        return await gather_or_cancel(call_in_turn(call, number) for number, call in enumerate(calls, first))

    async def _call_once(self, call: ToolCall, number: int, reported: frozenset[str]) -> Message:
        """Call a tool, unless an earlier attempt of the run has its result."""
        self._run.add_usage(Usage(tool_calls=1))
        current_tool_call.set(number)
        tool = self._tools.get(call.name)
        is_nested_run = tool is not None and tool.is_nested_run
        journal = self._run.journal
        match journal.tool_call(self._run.id, number):
            case ToolCallFailed() as recorded:
                self._reported.add(call.name)
                return _report(call, recorded.error["message"])
            case ToolCallFinished() if is_nested_run:
                # what it runs is recorded itself, and must be performed for the runs after it
                return Message("tool", await self._result(call, tool, _parse_arguments(call)), tool_call_id=call.id)
            case ToolCallFinished() as recorded:
                self._run.count_recorded_usage(journal.usage_of(self._run.id, number))
                return Message("tool", recorded.output, tool_call_id=call.id)
            case None if is_nested_run:
                return await self._call_and_report(call, tool, number, reported)
            case None:
                async with journal.call(in_tool=self._run.in_tool):
                    return await self._call_and_report(call, tool, number, reported)

    async def _call_and_report(
        self, call: ToolCall, tool: Tool | None, number: int, reported: frozenset[str]
    ) -> Message:
        started = perf_counter()
        try:
            text = await self._started(call, tool, number)
        except (CancelledError, PodwrightError) as error:
            details, duration = error_details(error), milliseconds_since(started)
            self._emit(ToolCallFailed, call, number, error=details, duration_ms=duration)
            # with a run_id the error comes from a nested run
            if not isinstance(error, ToolArgumentsError) or error.run_id is not None or call.name in reported:
                raise
            self._reported.add(call.name)
            return _report(call, error.message)
        self._emit(ToolCallFinished, call, number, output=text, duration_ms=milliseconds_since(started))
        return Message("tool", text, tool_call_id=call.id)

    async def _started(self, call: ToolCall, tool: Tool | None, number: int) -> str:
        arguments: Any = call.arguments
        try:
            arguments = _parse_arguments(call)
        finally:
            repeatable = tool is not None and (tool.idempotent or tool.is_nested_run)
            self._emit(ToolCallStarted, call, number, arguments=arguments, idempotent=repeatable)
        if not (tool and tool.is_nested_run):
            await self._run.journal.before_effect()
        return await self._result(call, tool, arguments)

    async def _result(self, call: ToolCall, tool: Tool | None, arguments: dict[str, Any]) -> str:
        if tool is None:
            hint = did_you_mean(call.name, self._tools) or "It has no tools."
            raise ToolArgumentsError(f"Unknown tool '{call.name}' in '{self._run.component}'. {hint}")
        try:
            return to_text(await tool.call(arguments))
        except PodwrightError:
            raise
        except Exception as error:
            raise error_from(ToolError, f"Tool '{call.name}'", error) from error

    def _emit(self, event: Callable[..., Event], call: ToolCall, number: int, **fields: Any) -> None:
        self._run.emit(event(**self._run.stamp(), call=number, tool=call.name, call_id=call.id, **fields))


def _report(call: ToolCall, reason: str) -> Message:
    """The message for the model about a call that is wrong."""
    return Message("tool", f"Error: {reason}", tool_call_id=call.id)


def _parse_arguments(call: ToolCall) -> dict[str, Any]:
    try:
        arguments: object = json.loads(call.arguments or "{}")
    except (ValueError, RecursionError) as error:
        raise ToolArgumentsError(f"The arguments of tool '{call.name}' are not valid JSON: {error}.") from error
    if not isinstance(arguments, dict):
        message = f"The arguments of tool '{call.name}' must be an object, not {type(arguments).__name__}."
        raise ToolArgumentsError(message)
    if nested_deeper(cast("object", arguments)):
        raise ToolArgumentsError(f"The arguments of tool '{call.name}' are nested too deeply.")
    return cast("dict[str, Any]", arguments)
