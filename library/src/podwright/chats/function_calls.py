"""Calling the function of a workflow's step or of an agent: events, journal and errors are those of a tool call."""

from __future__ import annotations

from asyncio import CancelledError
from typing import Any

from podwright.chats.recorded_call import RecordedCall
from podwright.data.json_data import JsonObject, copy_json, to_exact_json_data
from podwright.errors import (
    ApprovalRequired,
    PodwrightError,
    ToolArgumentsError,
    ToolError,
    error_from,
)
from podwright.events import (
    ToolCallFinished,
)
from podwright.location import ToolCallId, change_location, location
from podwright.messages.usage import Usage
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
    call_id = ToolCallId(path, number=0)
    run.add_usage(Usage(tool_calls=1))
    recorded = run.recorded.tool_call(call_id)
    if isinstance(recorded, ToolCallFinished):
        run.count_usage(run.recorded.usage_of(call_id))
        return copy_json(recorded.output)
    token = change_location(tool_call=call_id)
    try:
        async with run.journal.call(in_tool=run.in_tool):
            return await _call(run, function, arguments, call_id)
    except ApprovalRequired as pause:
        pause.needs_replay = True
        raise
    finally:
        location.reset(token)


async def _call(
    run: Run, function: Tool, arguments: JsonObject, call_id: ToolCallId
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
        record.fail(error, report="")
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
