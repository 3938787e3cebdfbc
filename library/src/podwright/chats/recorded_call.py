"""One call of a tool or of a step's function: its events, and the call itself."""

from __future__ import annotations

from asyncio import CancelledError
from collections.abc import Callable
from time import perf_counter
from typing import Any

from podwright.chats.tool_answers import verdict_in
from podwright.data.json_data import JsonObject
from podwright.errors import (
    ApprovalRejectedError,
    PodwrightError,
    ToolError,
    error_from,
)
from podwright.events import (
    Event,
    ToolCallFailed,
    ToolCallFinished,
    ToolCallStarted,
)
from podwright.location import ToolCallId
from podwright.run.accounts import milliseconds_since
from podwright.run.run import Run
from podwright.tools.tool import Tool


class RecordedCall:
    """One call: the events by which a new attempt of the run knows it, and what is done between them.

    Args:
        run: The run that the call is part of.
        call_id: Its position in the run.
        name: The name of the tool, in events and errors.
        request_id: The id that a model gave to the call; empty if no model asked for it.
        server: The MCP server that the tool is of; empty for others.
    """

    def __init__(
        self,
        run: Run,
        call_id: ToolCallId,
        name: str,
        request_id: str = "",
        server: str = "",
    ) -> None:
        self._run = run
        self._id = call_id
        self._name = name
        self._request_id = request_id
        self._server = server
        self._began = perf_counter()

    def start(self, arguments: Any, *, idempotent: bool) -> None:
        """Emit the start.

        Args:
            arguments: The arguments; those that cannot be parsed as the model wrote them.
            idempotent: Whether a new attempt may make the call again.
        """
        self._emit(ToolCallStarted, arguments=arguments, idempotent=idempotent)

    async def perform(
        self, tool: Tool, arguments: JsonObject, *, what: str = "Tool"
    ) -> Any:
        """Call the tool, and return its result. If it fails, the runs that it leaves behind are cancelled.

        Args:
            tool: The tool.
            arguments: Its arguments, which are validated.
            what: What the tool is called in an error.

        Raises:
            ToolError: The tool raised an error, took too long, does not take the arguments, or has left what is no JSON
                data in the state of the run.
            LimitExceededError: The tool has reported more than the run may use, whatever it did with that error.
            PodwrightError: A run nested in the tool failed.
        """
        run = self._run
        # an earlier attempt of the run was cut off in this call
        run.count_usage(run.recorded.reported_usage(self._id))
        try:
            value = await tool.call(arguments)
            if run.exceeded is not None:
                raise run.exceeded
            if problem := run.state.settle():
                raise ToolError(f"{what} '{tool.name}': {problem}.")
            return value
        except PodwrightError:
            await run.nested_tasks.cancel_call(self._id)
            raise
        except Exception as error:
            await run.nested_tasks.cancel_call(self._id)
            if verdict := verdict_in(error):
                raise verdict from error
            raise error_from(
                ToolError, f"{what} '{tool.name}'", error
            ) from error

    def finish(self, output: Any) -> None:
        """Emit the end with a result."""
        self._emit(
            ToolCallFinished,
            output=output,
            duration_ms=milliseconds_since(self._began),
            state=self._run.state.take_change(),
        )

    def fail(self, error: CancelledError | PodwrightError, report: str) -> None:
        """Emit the end with an error.

        Args:
            error: The error.
            report: What the model is told; empty if the error is raised.
        """
        self._emit(
            ToolCallFailed,
            error=error_details(error),
            duration_ms=milliseconds_since(self._began),
            state=self._run.state.take_change(),
            report=report,
        )

    def reject(self, error: ApprovalRejectedError, report: str) -> None:
        """Emit the end of a call that a person rejected: the tool was not called, so it took no time."""
        self._emit(ToolCallFailed, error=error.to_dict(), report=report)

    def _emit(self, event_class: Callable[..., Event], **fields: Any) -> None:
        event = event_class(
            **self._run.stamp(self._id.path),
            call=self._id.number,
            tool=self._name,
            server=self._server,
            call_id=self._request_id,
            **fields,
        )
        self._run.emit(event)


def error_details(error: BaseException) -> dict[str, Any]:
    """Return the `error` of an event: the details of an error, or those of a cancellation."""
    if isinstance(error, PodwrightError):
        return error.to_dict()
    return {"code": "run_cancelled", "message": "The run was cancelled."}
