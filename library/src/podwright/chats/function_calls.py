"""Calling a function of a step, an agent or a hook: events, journal and errors are those of a tool call."""

from __future__ import annotations

from asyncio import CancelledError
from typing import Any

from podwright.chats.recorded_call import RecordedCall
from podwright.data.json_data import JsonObject, copy_json, to_exact_json_data
from podwright.errors import (
    ApprovalRequired,
    ModelRetry,
    PodwrightError,
    ToolArgumentsError,
    ToolError,
    error_from,
)
from podwright.events import ToolCallFailed, ToolCallFinished
from podwright.location import ToolCallId, change_location, location
from podwright.messages.usage import Usage
from podwright.run.run import Run
from podwright.tools.tool import Tool


async def call_recorded(
    run: Run,
    function: Tool,
    arguments: JsonObject,
    call_id: ToolCallId,
    *,
    may_retry: bool = False,
) -> Any:
    """What a function returns, as JSON data; of an earlier attempt of the run if it has returned there.

    Args:
        run: The run of the workflow, or of the agent that is a function.
        function: The function.
        arguments: Its arguments, which are validated as those of a tool.
        call_id: The position of the step, or of the run, and a number of its own there.
        may_retry: Whether the function may ask a model for another answer.

    Raises:
        ModelRetry: The function asks for another answer, now or in an earlier attempt.
        ToolError: The function raised an error or took too long, does not take the arguments, or its result is not
            JSON data.
        PodwrightError: A run nested in the function failed.
    """
    run.add_usage(Usage(tool_calls=1))
    recorded = run.recorded.tool_call(call_id)
    if isinstance(recorded, ToolCallFinished):
        run.count_usage(run.recorded.usage_of(call_id))
        return copy_json(recorded.output)
    if isinstance(recorded, ToolCallFailed) and recorded.report and may_retry:
        run.count_usage(run.recorded.usage_of(call_id))
        raise ModelRetry(recorded.report)
    token = change_location(tool_call=call_id)
    try:
        async with run.journal.call(in_tool=run.in_tool):
            return await _call(run, function, arguments, call_id, may_retry)
    except ApprovalRequired as pause:
        pause.needs_replay = True
        raise
    finally:
        location.reset(token)


async def _call(
    run: Run,
    function: Tool,
    arguments: JsonObject,
    call_id: ToolCallId,
    may_retry: bool,
) -> Any:
    """Call a function, and emit the events of the call."""
    record = RecordedCall(
        run, call_id, function.name, server=function.mcp_server
    )
    record.start(arguments, idempotent=function.idempotent)
    try:
        await run.journal.before_effect()
        function = await function.for_run()
        value = await record.perform(function, arguments, what="Function")
        result = _to_data(function, value)
    except (CancelledError, PodwrightError) as error:
        # not of a run inside the function
        if isinstance(error, ToolArgumentsError) and error.run_id is None:
            error.suggestion = "Correct the arguments of the step, or what they are filled with."
        report = ""
        if may_retry and isinstance(error, ModelRetry) and not error.run_id:
            report = error.message
        record.fail(error, report)
        raise
    record.finish(result)
    return result


def _to_data(function: Tool, value: Any) -> Any:
    try:
        return to_exact_json_data(value)
    except Exception as error:
        subject = (
            f"The result of the function '{function.name}' is not JSON data: it"
        )
        raise error_from(ToolError, subject, error) from error
