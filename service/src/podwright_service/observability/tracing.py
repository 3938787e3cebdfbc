"""The events of runs as spans: a subscriber that opens one where work starts and closes it where it ends.

The events of a piece of work come from the task that does it. So the open spans lie in that task's context variables:
parents are right in parallel branches and nested runs, a tool's own spans are children of its call, and nothing is
left behind.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from opentelemetry.context import Context, attach, get_current, get_value
from opentelemetry.trace import Link, Span, SpanKind, Status, StatusCode, set_span_in_context

from podwright.errors import ConfigurationError
from podwright.events import (
    RUN_ENDS,
    Event,
    ModelCallFailed,
    ModelCallFinished,
    ModelCallRetried,
    ModelCallStarted,
    RunCancelled,
    RunFailed,
    RunFinished,
    RunPaused,
    RunStarted,
    StepFinished,
    StepStarted,
    ToolCallFailed,
    ToolCallFinished,
    ToolCallStarted,
)
from podwright.messages import Message
from podwright.models import pricing
from podwright.usage import Usage
from podwright_service.observability import semconv

try:
    from opentelemetry import propagate
except ValueError as wrong:  # it reads its variable as it is imported
    raise ConfigurationError(
        f"OTEL_PROPAGATORS: {wrong}", suggestion="Use some of: tracecontext, baggage, none."
    ) from wrong

if TYPE_CHECKING:
    from podwright_service.observability.spans import Recorder

RESUMED = "podwright-resumes"
"""Where the middleware puts the link of a run that goes on from a stopped one, in the OpenTelemetry context."""

_LONGEST_NAME = 100

Attributes = dict[str, Any]
RunEnd = RunFinished | RunFailed | RunCancelled | RunPaused


def propagated(run: object = None) -> dict[str, str]:
    """The headers that carry the current trace to another container; called within the run that calls it."""
    headers: dict[str, str] = {}
    propagate.inject(headers)
    return headers


@dataclass(slots=True)
class _Open:
    """A span that is open in this task."""

    key: tuple[str, str, object]
    span: Span
    before: Context
    """The context to return to."""
    outer: _Open | None


_open: ContextVar[_Open | None] = ContextVar("podwright_span", default=None)


class Spans:
    """Makes spans of events.

    Args:
        recorder: Starts them.
        content: Whether they carry what was said to models and tools, and by them.
        remotes: Names of the components that run in other containers.
        servers: Host and port of models by name, where they are known.
    """

    def __init__(
        self,
        recorder: Recorder,
        content: bool = False,
        remotes: Collection[str] = (),
        servers: Mapping[str, tuple[str, int]] = MappingProxyType({}),
    ) -> None:
        self._recorder, self._content, self._remotes = recorder, content, frozenset(remotes)
        self._servers = {
            model: {semconv.SERVER_ADDRESS: host, semconv.SERVER_PORT: port} for model, (host, port) in servers.items()
        }
        self._by_type: dict[type[Any], Callable[[Any], None]] = {
            RunStarted: self._run_started,
            StepStarted: self._step_started,
            StepFinished: self._step_finished,
            ModelCallStarted: self._call_started,
            ModelCallRetried: self._call_retried,
            ModelCallFinished: self._call_finished,
            ModelCallFailed: self._call_failed,
            ToolCallStarted: self._tool_started,
            ToolCallFinished: self._tool_finished,
            ToolCallFailed: self._tool_failed,
            **dict.fromkeys(RUN_ENDS, self._run_ended),
        }

    def __call__(self, event: Event) -> None:
        """Hear one event; what another container did is in its own spans."""
        if event.remote is None and (hear := self._by_type.get(type(event))):
            hear(event)

    def _begin(
        self,
        key: tuple[str, str, object],
        name: str,
        attributes: Attributes,
        kind: SpanKind = SpanKind.INTERNAL,
        links: tuple[Link, ...] = (),
    ) -> None:
        before = get_current()
        span = self._recorder.start(name, before, kind, attributes, links)
        _open.set(_Open(key, span, before, _open.get()))
        attach(set_span_in_context(span, before))

    def _end(
        self, key: tuple[str, str, object], attributes: Attributes, error: Mapping[str, Any] | None = None
    ) -> None:
        found = one = _open.get()
        while found is not None and found.key != key:
            found = found.outer
        while one is not None and found is not None:  # what was left open inside ends with it
            if one is found:
                if error is not None:
                    attributes[semconv.ERROR] = code = str(error.get("code", "internal_error"))
                    said = str(error.get("message", "")) if self._content else code
                    one.span.set_status(Status(StatusCode.ERROR, said))
                one.span.set_attributes(attributes)
            one.span.end()
            _open.set(one.outer)
            attach(one.before)
            one = one.outer if one is not found else None

    def _run_started(self, event: RunStarted) -> None:
        workflow = event.kind in ("workflow", "pipeline")
        operation = semconv.INVOKE_WORKFLOW if workflow else semconv.INVOKE_AGENT
        remote = event.component in self._remotes
        if remote:
            operation = semconv.INVOKE_AGENT
        attributes: Attributes = {
            semconv.OPERATION: operation,
            semconv.WORKFLOW_NAME if workflow else semconv.AGENT_NAME: event.component,
            semconv.COMPONENT_KIND: event.kind,
            semconv.RUN_ID: event.run_id,
        }
        links: tuple[Link, ...] = ()
        if event.parent_id is None and (link := get_value(RESUMED)):
            links = (link,)  # pyright: ignore[reportAssignmentType] - the middleware puts nothing else there
        kind = SpanKind.CLIENT if remote else SpanKind.INTERNAL
        self._begin((event.run_id, "run", 0), f"{operation} {event.component[:_LONGEST_NAME]}", attributes, kind, links)

    def _run_ended(self, event: RunEnd) -> None:
        usage = event.usage
        attributes: Attributes = {
            **_tokens(usage),
            semconv.RUN_STATUS: STATUS[type(event)],
            semconv.MODEL_CALLS: usage.model_calls,
            semconv.TOOL_CALLS: usage.tool_calls,
        }
        if usage.cost is not None:
            attributes[semconv.RUN_COST] = usage.cost
        if isinstance(event, RunCancelled):
            attributes[semconv.ERROR] = "run_cancelled"
        self._end((event.run_id, "run", 0), attributes, event.error if isinstance(event, RunFailed) else None)

    def _step_started(self, event: StepStarted) -> None:
        attributes: Attributes = {
            semconv.STEP_NAME: event.step,
            semconv.STEP_TYPE: event.step_type,
            semconv.STEP_PATH: event.path,
        }
        if event.step_type == "plan":
            name = f"{semconv.PLAN} {event.component[:_LONGEST_NAME]}"
            attributes |= {semconv.OPERATION: semconv.PLAN, semconv.AGENT_NAME: event.component}
        else:
            name = f"step {event.step[:_LONGEST_NAME]}"
        self._begin((event.run_id, "step", (event.path, event.step)), name, attributes)

    def _step_finished(self, event: StepFinished) -> None:
        error = {"code": "step_failed"} if event.outcome == "failed" else None
        self._end((event.run_id, "step", (event.path, event.step)), {semconv.STEP_OUTCOME: event.outcome}, error)

    def _call_started(self, event: ModelCallStarted) -> None:
        request = event.request
        provider, _, model = request.model.partition("/")
        attributes: Attributes = {
            semconv.OPERATION: semconv.CHAT,
            semconv.PROVIDER: semconv.PROVIDERS.get(provider, provider),
            semconv.REQUEST_MODEL: model,
            semconv.AGENT_NAME: event.component,
            **self._servers.get(request.model, {}),
        }
        for name, value in request.settings.items():
            if name in semconv.REQUEST_SETTINGS:
                attributes[semconv.REQUEST_SETTINGS[name]] = [value] if isinstance(value, str) else value
        if self._content:
            attributes[semconv.INPUT_MESSAGES] = _messages(request.messages)
        key = (event.run_id, "chat", event.call)
        self._begin(key, f"{semconv.CHAT} {model}", attributes, SpanKind.CLIENT)

    def _call_retried(self, event: ModelCallRetried) -> None:
        one = _open.get()
        if one is not None and one.span.is_recording():
            facts = {
                semconv.RETRY_TRIES: event.tries,
                semconv.RETRY_WAIT: event.wait_ms / 1000,
                semconv.ERROR: str(event.error.get("code", "")),
            }
            one.span.add_event(semconv.RETRY, facts)

    def _call_finished(self, event: ModelCallFinished) -> None:
        response, usage = event.response, event.response.usage
        attributes: Attributes = {**_tokens(usage), semconv.FINISH_REASONS: (response.finish_reason,)}
        if response.model:
            attributes[semconv.RESPONSE_MODEL] = response.model
        if response.id:
            attributes[semconv.RESPONSE_ID] = response.id
        if event.first_token_ms is not None:
            attributes[semconv.REQUEST_STREAM] = True
            attributes[semconv.FIRST_CHUNK] = event.first_token_ms / 1000
        if usage.cost is not None:
            attributes[semconv.COST] = usage.cost
            attributes[semconv.COST_CURRENCY] = "USD"
            attributes[semconv.COST_SOURCE] = _source(event.model, usage)
        if self._content:
            said = Message("assistant", response.text, response.tool_calls)
            attributes[semconv.OUTPUT_MESSAGES] = _messages((said,), response.finish_reason)
        self._end((event.run_id, "chat", event.call), attributes)

    def _call_failed(self, event: ModelCallFailed) -> None:
        self._end((event.run_id, "chat", event.call), {}, event.error)

    def _tool_started(self, event: ToolCallStarted) -> None:
        attributes: Attributes = {
            semconv.OPERATION: semconv.EXECUTE_TOOL,
            semconv.TOOL_NAME: event.tool,
            semconv.TOOL_TYPE: "function",
            semconv.TOOL_CALL_ID: event.call_id,
            semconv.AGENT_NAME: event.component,
        }
        if self._content:
            attributes[semconv.TOOL_ARGUMENTS] = json.dumps(event.arguments, ensure_ascii=False)
        name = f"{semconv.EXECUTE_TOOL} {event.tool[:_LONGEST_NAME]}"
        self._begin((event.run_id, "tool", event.call_id), name, attributes)

    def _tool_finished(self, event: ToolCallFinished) -> None:
        attributes: Attributes = {semconv.TOOL_RESULT: event.output} if self._content else {}
        self._end((event.run_id, "tool", event.call_id), attributes)

    def _tool_failed(self, event: ToolCallFailed) -> None:
        self._end((event.run_id, "tool", event.call_id), {}, event.error)


STATUS: dict[type[Any], str] = {
    RunFinished: "ok",
    RunFailed: "failed",
    RunCancelled: "cancelled",
    RunPaused: "paused",
}
"""What spans, counters and logs call the end of a run."""


def _tokens(usage: Usage) -> Attributes:
    attributes: Attributes = {
        semconv.INPUT_TOKENS: usage.input_tokens,
        semconv.OUTPUT_TOKENS: usage.output_tokens,
    }
    if usage.cached_input_tokens:
        attributes[semconv.CACHED_TOKENS] = usage.cached_input_tokens
    if usage.reasoning_tokens:
        attributes[semconv.REASONING_TOKENS] = usage.reasoning_tokens
    return attributes


def _source(model: str, usage: Usage) -> str:
    """Who says what a call cost: the tables, if they say just that, else the provider."""
    if model.startswith("offline/"):
        return "offline"
    known = pricing.lookup(model, usage)
    return known.source if known and known.amount == usage.cost else "provider"


def _messages(messages: Sequence[Message], finish_reason: str | None = None) -> str:
    """Messages as the conventions write them, as JSON."""
    shown: list[dict[str, Any]] = []
    for one in messages:
        parts: list[dict[str, Any]] = []
        if one.tool_call_id is not None:
            parts.append({"type": "tool_call_response", "id": one.tool_call_id, "response": one.content})
        elif one.content:
            parts.append({"type": "text", "content": one.content})
        parts += [
            {"type": "tool_call", "id": call.id, "name": call.name, "arguments": call.arguments}
            for call in one.tool_calls
        ]
        shown.append({"role": one.role, "parts": parts})
        if finish_reason:
            shown[-1]["finish_reason"] = finish_reason
    return json.dumps(shown, ensure_ascii=False)
