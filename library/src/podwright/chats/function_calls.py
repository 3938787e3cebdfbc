"""Calling the function of a workflow's step or of an agent: events, journal and errors are those of a tool call."""

from __future__ import annotations

from asyncio import CancelledError
from collections.abc import Callable
from time import perf_counter
from typing import Any

from podwright.chats.tool_calls import call_tool, error_details
from podwright.data.json_data import JsonObject, copy_json, to_exact_json_data
from podwright.errors import (
    ApprovalRequired,
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
from podwright.location import ToolCallId, change_location, location
from podwright.messages.usage import Usage
from podwright.run.accounts import milliseconds_since
from podwright.run.run import Run
from podwright.tools.tool import Tool


async def call_recorded(
    run: Run, function: Tool, arguments: JsonObject, path: tuple[int, ...]
) -> Any:
    """What a function returns, as JSON data; of an earlier attempt of the run if it has returned there.

    Args:
        run: The run of the workflow, or of the agent that is a function.
        function: The function.
        arguments: Its arguments, which are validated as those of a tool.
        path: The position of the step, or of the agent.

    Raises:
        ToolError: The function raised an error or took too long, does not take the arguments, or its result is not
            JSON data.
        PodwrightError: A run nested in the function failed.
    """
    call = _FunctionCall(run, function, ToolCallId(path, number=0))
    run.add_usage(Usage(tool_calls=1))
    recorded = run.recorded.tool_call(call.id)
    if isinstance(recorded, ToolCallFinished):
        run.count_usage(run.recorded.usage_of(call.id))
        return copy_json(recorded.output)
    token = change_location(tool_call=call.id)
    try:
        async with run.journal.call(in_tool=run.in_tool):
            return await call.make(arguments)
    except ApprovalRequired as pause:
        pause.needs_replay = True
        raise
    finally:
        location.reset(token)


class _FunctionCall:
    """One call of a function."""

    def __init__(self, run: Run, function: Tool, call_id: ToolCallId) -> None:
        self._run = run
        self._function = function
        self.id = call_id

    async def make(self, arguments: JsonObject) -> Any:
        """Call the function, and emit the events of the call."""
        started = perf_counter()
        self._emit(
            ToolCallStarted,
            arguments=arguments,
            idempotent=self._function.idempotent,
        )
        try:
            await self._run.journal.before_effect()
            value = await call_tool(
                self._run,
                self._function,
                arguments,
                call_id=self.id,
                what="Function",
            )
            result = self._to_data(value)
        except (CancelledError, PodwrightError) as error:
            # not of a run inside the function
            if isinstance(error, ToolArgumentsError) and error.run_id is None:
                error.suggestion = "Correct the arguments of the step, or what they are filled with."
            self._emit(
                ToolCallFailed,
                error=error_details(error),
                duration_ms=milliseconds_since(started),
                report="",
            )
            raise
        self._emit(
            ToolCallFinished,
            output=result,
            duration_ms=milliseconds_since(started),
        )
        return result

    def _to_data(self, value: Any) -> Any:
        try:
            return to_exact_json_data(value)
        except Exception as error:
            subject = f"The result of the function '{self._function.name}' is not JSON data: it"
            raise error_from(ToolError, subject, error) from error

    def _emit(self, event_class: Callable[..., Event], **fields: Any) -> None:
        event = event_class(
            **self._run.stamp(self.id.path),
            call=self.id.number,
            tool=self._function.name,
            **fields,
        )
        self._run.emit(event)
