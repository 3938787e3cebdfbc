"""Calling a tool as a model asked: arguments, events and errors."""

from __future__ import annotations

import json
from asyncio import CancelledError
from collections.abc import Mapping
from time import perf_counter
from typing import Any, cast

from podwright.errors import PodwrightError, ToolArgumentsError, ToolError, error_from
from podwright.events import ToolCallFailed, ToolCallFinished, ToolCallStarted
from podwright.json_data import nested_deeper, to_text
from podwright.messages import Message, ToolCall
from podwright.run import Run, milliseconds_since
from podwright.text import did_you_mean
from podwright.tools import Tool
from podwright.usage import Usage

CANCELLED = {"code": "run_cancelled", "message": "The run was cancelled."}
"""The `error` of an event whose work was cancelled."""


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

    def reported(self) -> frozenset[str]:
        """Names of the tools whose wrong calls have been reported to the model."""
        return frozenset(self._reported)

    async def call(self, call: ToolCall, reported: frozenset[str]) -> Message:
        """Call a tool.

        Args:
            call: What the model asked for.
            reported: `reported()` at the beginning of the turn: calls of one turn do not count against each other.

        Returns:
            The message for the model: the result, or what was wrong with the call.

        Raises:
            ToolError: The tool raised an error, or was called wrongly again.
            PodwrightError: A run nested in the tool failed.
        """
        started = perf_counter()
        self._run.add_usage(Usage(tool_calls=1))
        try:
            text = await self._call(call)
        except CancelledError:
            self._emit_failed(call, CANCELLED, started)
            raise
        except ToolArgumentsError as error:
            self._emit_failed(call, error.to_dict(), started)
            if call.name in reported or error.run_id is not None:  # with a run_id it comes from a nested run
                raise
            self._reported.add(call.name)
            return Message("tool", f"Error: {error.message}", tool_call_id=call.id)
        except PodwrightError as error:
            self._emit_failed(call, error.to_dict(), started)
            raise
        duration = milliseconds_since(started)
        finished = ToolCallFinished(
            **self._run.stamp(), tool=call.name, call_id=call.id, output=text, duration_ms=duration
        )
        self._run.emit(finished)
        return Message("tool", text, tool_call_id=call.id)

    async def _call(self, call: ToolCall) -> str:
        arguments: Any = call.arguments
        try:
            arguments = _parse_arguments(call)
        finally:
            self._run.emit(ToolCallStarted(**self._run.stamp(), tool=call.name, call_id=call.id, arguments=arguments))
        tool = self._tools.get(call.name)
        if tool is None:
            hint = did_you_mean(call.name, self._tools) or "It has no tools."
            raise ToolArgumentsError(f"Unknown tool '{call.name}' in '{self._run.component}'. {hint}")
        try:
            return to_text(await tool.call(arguments))
        except PodwrightError:
            raise
        except Exception as error:
            raise error_from(ToolError, f"Tool '{call.name}'", error) from error

    def _emit_failed(self, call: ToolCall, error: Mapping[str, Any], started: float) -> None:
        duration = milliseconds_since(started)
        self._run.emit(
            ToolCallFailed(**self._run.stamp(), tool=call.name, call_id=call.id, error=error, duration_ms=duration)
        )


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
