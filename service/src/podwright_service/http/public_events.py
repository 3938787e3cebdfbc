"""The events of runs as callers see them.

The scope `read` shows what a component consists of. A caller without it sees outputs, tokens, steps and the names of
tools, and of the outermost chat, which is the caller's own conversation, also its tool calls; but no instructions, no
requests to models, no schemas of tools, no thoughts, and nothing of what nested components are told.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from starlette.requests import Request

from podwright import events
from podwright.data.json_data import JsonObject
from podwright.events import Event, adapter
from podwright.kinds import TRAITS
from podwright.messages.messages import ModelRequest, ModelResponse, ToolCall
from podwright.run.result import ExecutionResult
from podwright_service.http.access.auth import has_scope

HIDDEN = "(hidden)"
"""Stands for a text that only callers with the scope `read` see."""
_OF_ERRORS = ("code", "component", "run_id")
"""What everybody sees of an error inside a run."""

EventFilter = Callable[[Event], Event | None]
"""Returns an event as a caller sees it; None if it is not seen."""


def filter_of(request: Request) -> EventFilter:
    """Return what shows events as the caller of a request sees them."""
    if has_scope(request, "read"):
        return without_context
    return public_event


def without_context(event: Event) -> Event:
    """Return an event without the context of a stopped workflow, in whose place callers are given a state."""
    match event:
        case events.RunCancelled() | events.RunPaused():
            return replace(event, context=None, resume_path=None)
        case events.RunFailed():
            error = dict(event.error)
            error.pop("context", None)
            error.pop("resume_path", None)
            return replace(event, error=error)
        case _:
            return event


def public_event(event: Event) -> Event | None:
    """Return an event as a caller without the scope `read` sees it."""
    is_outermost = event.parent_id is None
    is_own_chat = is_outermost and TRAITS[event.kind].chats
    match event:
        case events.Reasoning():
            return None
        case events.ModelCallStarted():
            request = ModelRequest(event.request.model, ())
            return replace(event, request=request)
        case events.ModelCallFinished():
            response = _public_response(event.response, is_own=is_own_chat)
            return replace(event, response=response)
        case events.RunStarted() if not is_outermost:
            return replace(event, input=None)
        case events.RunFailed() if not is_outermost:
            return replace(event, error=_public_error(event.error))
        case (
            events.ModelCallFailed()
            | events.ModelCallRetried()
            | events.ModelCallFellBack()
            | events.ErrorCaught()
        ):
            return replace(event, error=_public_error(event.error))
        case (
            events.ToolCallStarted()
            | events.ToolCallFinished()
            | events.ToolCallFailed()
        ):
            return _public_tool_call(event, is_own=is_own_chat)
        case events.ConditionChecked():
            return replace(event, state=None)
        case events.PlanMade():
            steps = tuple(replace(step, task=HIDDEN) for step in event.steps)
            return replace(event, steps=steps)
        case _:
            return without_context(event)


def _public_tool_call(
    event: events.ToolCallStarted
    | events.ToolCallFinished
    | events.ToolCallFailed,
    *,
    is_own: bool,
) -> Event:
    if isinstance(event, events.ToolCallEnded):
        event = replace(event, state=None)
    match event:
        case _ if is_own:
            return event
        case events.ToolCallStarted():
            return replace(event, arguments=None)
        case events.ToolCallFinished():
            return replace(event, output=HIDDEN)
        case events.ToolCallFailed():
            report = event.report
            if report:
                report = HIDDEN
            error = _public_error(event.error)
            return replace(event, error=error, report=report)


def _public_response(response: ModelResponse, *, is_own: bool) -> ModelResponse:
    calls = response.tool_calls
    if not is_own:
        calls = tuple(ToolCall(call.id, call.name, HIDDEN) for call in calls)
    return replace(response, tool_calls=calls, reasoning="", provider_fields={})


def _public_error(error: Mapping[str, Any]) -> dict[str, Any]:
    return {name: error[name] for name in _OF_ERRORS if name in error}


def public_data(data: JsonObject, show: EventFilter) -> JsonObject | None:
    """Return a stored event as a caller sees it; None if it is not seen.

    Args:
        data: The event as JSON data.
        show: The filter for the caller.
    """
    if show is without_context:
        # stored events have no context
        return data
    event = show(adapter().validate_python(data))
    if event is None:
        return None
    # fields that are not stored have no default in the stream either
    shown = event.to_dict()
    return {name: value for name, value in shown.items() if name in data}


def public_result(
    result: ExecutionResult, show: EventFilter
) -> ExecutionResult:
    """Return a traced result as a caller sees it."""
    seen = [show(event) for event in result.events]
    return replace(result, events=[each for each in seen if each is not None])
