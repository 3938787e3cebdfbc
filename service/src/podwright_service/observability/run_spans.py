"""A subscriber that turns the events of runs into OpenTelemetry spans.

The first and the last event of a run, a step, a model call or a tool call come from the same task. So each task keeps
its open spans in a context variable: parents are right in parallel branches and nested runs, and spans that a tool
makes are children of its call.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from contextvars import ContextVar, Token
from types import MappingProxyType
from typing import Any

from opentelemetry.context import Context, attach, detach
from opentelemetry.trace import (
    Link,
    Span,
    SpanKind,
    StatusCode,
    Tracer,
    get_current_span,
    set_span_in_context,
)

from podwright import events
from podwright.data.data_urls import parse_data_url
from podwright.data.json_data import as_object, to_text
from podwright.data.media import (
    media_in,
    shown_inputs,
    shown_output,
    to_shown_text,
)
from podwright.functions.run_context import current_attributes
from podwright.messages.conversation import as_content
from podwright.messages.messages import ContentPart, Message
from podwright.messages.usage import NO_USAGE, Usage
from podwright_service.observability import semconv, span_content
from podwright_service.observability.tracebacks import (
    error_of_own_code,
    traceback_of,
    without_secrets,
)
from podwright_service.observability.tracing import resumed_run
from podwright_service.origin import current_origin

Attributes = dict[str, Any]
SpanStart = tuple[str, SpanKind, Attributes]
"""Name, kind and attributes of a new span: all that a sampler may decide on."""
CallEnd = (
    events.ModelCallFinished
    | events.ModelCallFailed
    | events.ToolCallFinished
    | events.ToolCallFailed
)
End = events.RunEnded | CallEnd | events.StepFinished
Moment = (
    events.ModelCallRetried
    | events.HistoryCut
    | events.HandoffEvent
    | events.ModelCallFellBack
    | events.ErrorCaught
    | events.Progress
)
"""Events that happen inside an open span."""

_MAX_NAME_LENGTH = 100

_open_spans: ContextVar[tuple[tuple[Span, Token[Context]], ...]] = ContextVar(
    "podwright_open_spans", default=()
)
"""The open spans of the current task, outermost first, each with the token that restores the context before it."""


_recorder: ContextVar[RunSpans | None] = ContextVar(
    "podwright_span_recorder", default=None
)
"""The subscriber that makes the spans of the current run: the first of several."""


class RunSpans:
    """Makes spans from events; of several such subscribers of a run, the first one does.

    Args:
        tracer: Starts the spans.
        capture_content: Whether spans carry inputs, outputs, messages, tool arguments and tool results.
        remotes: Names of the components that run in other containers.
        servers: Host and port of the models' servers, by model name.
    """

    def __init__(
        self,
        tracer: Tracer,
        *,
        capture_content: bool = False,
        remotes: Collection[str] = (),
        servers: Mapping[str, tuple[str, int]] = MappingProxyType({}),
    ) -> None:
        self._tracer = tracer
        self._capture_content = capture_content
        self._remotes = frozenset(remotes)
        self._servers = servers

    def __call__(self, event: events.Event) -> None:
        """Handle one event. Events of remote runs are skipped: the remote service makes their spans."""
        if event.remote is not None:
            return
        recorder = _recorder.get()
        if recorder is None and isinstance(event, events.RunStarted):
            _recorder.set(self)
        elif recorder is not self:
            return
        match event:
            case events.RunStarted():
                self._start(
                    event, _run(event, event.component in self._remotes)
                )
            case events.StepStarted():
                self._start(event, _step(event))
            case events.ModelCallStarted():
                server = self._servers.get(event.request.model)
                self._start(event, _model_call(event, server))
            case events.ToolCallStarted():
                self._start(event, _tool_call(event))
            case (
                events.ModelCallRetried()
                | events.HistoryCut()
                | events.HandoffEvent()
                | events.ModelCallFellBack()
                | events.ErrorCaught()
                | events.Progress()
            ):
                span, _ = _open_spans.get()[-1]
                span.add_event(
                    *_span_event(event, with_text=self._capture_content)
                )
            case events.Token() | events.Reasoning() | events.PlanMade():
                pass
            case events.ConditionChecked() | events.LoopExhausted():
                pass
            case (
                events.RunEnded()
                | events.StepFinished()
                | events.ModelCallFinished()
                | events.ModelCallFailed()
                | events.ToolCallFinished()
                | events.ToolCallFailed()
            ):
                self._end(event)

    def _start(self, event: events.Event, start: SpanStart) -> None:
        name, kind, attributes = start
        links: list[Link] = []
        if isinstance(event, events.RunStarted) and event.parent_id is None:
            self._describe_request(event)
            link = resumed_run.get()
            if link is not None:
                links.append(link)
        span = self._tracer.start_span(
            name,
            kind=kind,
            attributes=attributes,
            links=links,
            start_time=_start_time(event),
        )
        if self._capture_content and span.is_recording():
            span.set_attributes(_content(event))
        token = attach(set_span_in_context(span))
        _open_spans.set((*_open_spans.get(), (span, token)))

    def _describe_request(
        self, event: events.RunStarted | events.RunFinished
    ) -> None:
        """Put what lists of traces show on the span around the outermost run, which is that of the request."""
        span = get_current_span()
        if not span.is_recording():
            return
        span.set_attributes({semconv.SPAN_KIND: "CHAIN", **_origin()})
        if self._capture_content:
            span.set_attributes(_value(event))

    def _end(self, event: End) -> None:
        *outer, (span, token) = _open_spans.get()
        _open_spans.set(tuple(outer))
        if not outer:
            _recorder.set(None)
        if span.is_recording():
            self._describe_end(event, span)
        span.end()
        detach(token)
        if isinstance(event, events.RunFinished) and event.parent_id is None:
            self._describe_request(event)

    def _describe_end(self, event: End, span: Span) -> None:
        span.set_attributes(_result(event))
        if self._capture_content:
            span.set_attributes(_content(event))
        code = _error_code(event)
        if code:
            span.set_attribute(semconv.ERROR, code)
            if not isinstance(event, events.RunCancelled):
                span.set_status(StatusCode.ERROR, code)
        error = error_of_own_code(event)
        if error is not None:
            texts = {
                semconv.EXCEPTION_MESSAGE: without_secrets(str(error)),
                semconv.EXCEPTION_TRACEBACK: traceback_of(error),
            }
            span.record_exception(error, attributes=texts)


def _start_time(event: events.Event) -> int | None:
    """When a span begins that is made after its end, in nanoseconds; None for now."""
    if isinstance(event, events.ModelCallStarted) and event.is_reported:
        return int(event.at * 1e9)
    return None


def _run(event: events.RunStarted, remote: bool) -> SpanStart:
    kind = SpanKind.INTERNAL
    operation = semconv.operation_of(event.kind)
    if remote:
        kind = SpanKind.CLIENT
        operation = semconv.INVOKE_AGENT
    attributes: Attributes = {
        semconv.OPERATION: operation,
        semconv.AGENT_NAME: event.component,
        semconv.COMPONENT_KIND: event.kind,
        semconv.RUN_ID: event.run_id,
        semconv.SPAN_KIND: semconv.span_kind(event.kind),
        **_origin(),
    }
    return f"{operation} {event.component}", kind, attributes


def _origin() -> Attributes:
    """Where the run comes from, and for whom it is."""
    origin = current_origin.get()
    said = current_attributes()
    named = {
        semconv.ROOT: origin.root,
        semconv.CALLER: origin.caller,
        semconv.VIA: origin.via,
        semconv.USER: said.user,
        semconv.SESSION: said.session,
    }
    attributes: Attributes = dict(origin.members)
    for name, value in named.items():
        if value:
            attributes[name] = value
    if said.metadata:
        attributes[semconv.METADATA] = span_content.to_json(dict(said.metadata))
    return attributes


def _step(event: events.StepStarted) -> SpanStart:
    name = f"step {event.step}"
    attributes: Attributes = {
        semconv.SPAN_KIND: "CHAIN",
        semconv.STEP_NAME: event.step,
        semconv.STEP_TYPE: event.step_type,
        semconv.STEP_PATH: event.path,
    }
    if event.step_type == "plan":
        name = f"{semconv.PLAN} {event.component}"
        attributes |= {
            semconv.OPERATION: semconv.PLAN,
            semconv.AGENT_NAME: event.component,
        }
    return name, SpanKind.INTERNAL, attributes


def _model_call(
    event: events.ModelCallStarted, server: tuple[str, int] | None
) -> SpanStart:
    provider, _, model = event.request.model.partition("/")
    attributes: Attributes = {
        semconv.OPERATION: semconv.CHAT,
        semconv.PROVIDER: semconv.PROVIDERS.get(provider, provider),
        semconv.REQUEST_MODEL: model,
        semconv.AGENT_NAME: event.component,
        **_origin(),
    }
    if server:
        attributes[semconv.SERVER_ADDRESS], attributes[semconv.SERVER_PORT] = (
            server
        )
    for name, value in event.request.settings.items():
        if name not in semconv.REQUEST_SETTINGS:
            continue
        attribute = semconv.REQUEST_SETTINGS[name]
        if isinstance(value, str):
            attributes[attribute] = [value]
        else:
            attributes[attribute] = value
    return f"{semconv.CHAT} {model}", SpanKind.CLIENT, attributes


def _tool_call(event: events.ToolCallStarted) -> SpanStart:
    attributes: Attributes = {
        semconv.OPERATION: semconv.EXECUTE_TOOL,
        semconv.TOOL_NAME: event.tool,
        semconv.TOOL_TYPE: "function",
        semconv.AGENT_NAME: event.component,
    }
    if event.server:
        attributes[semconv.MCP_METHOD] = semconv.MCP_CALL
        attributes[semconv.MCP_SERVER] = event.server
    # the call of a function step has none
    if event.call_id:
        attributes[semconv.TOOL_CALL_ID] = event.call_id
    # A model may invent a tool name of any length.
    tool = event.tool[:_MAX_NAME_LENGTH]
    return f"{semconv.EXECUTE_TOOL} {tool}", SpanKind.INTERNAL, attributes


def _span_event(event: Moment, *, with_text: bool) -> tuple[str, Attributes]:
    """Name and attributes of an event of the open span, perhaps with the text of what a function reports."""
    match event:
        case events.Progress(text=text):
            return semconv.PROGRESS, (
                {semconv.PROGRESS_TEXT: text} if with_text else {}
            )
        case events.HistoryCut():
            return semconv.HISTORY_CUT, {
                semconv.HISTORY_MESSAGES: event.messages,
                semconv.HISTORY_TURNS: event.turns,
            }
        case events.HandoffEvent():
            return semconv.HANDOFF, {
                semconv.HANDOFF_FROM: event.from_agent,
                semconv.HANDOFF_TO: event.to_agent,
            }
        case events.ModelCallRetried():
            name = semconv.RETRY
            attributes: Attributes = {
                semconv.RETRY_TRIES: event.tries,
                semconv.RETRY_WAIT: event.wait_ms / 1000,
            }
        case events.ModelCallFellBack():
            name = semconv.FALLBACK
            attributes = {semconv.FALLBACK_MODEL: event.model}
        case events.ErrorCaught():
            name = semconv.CAUGHT
            attributes = {
                semconv.CAUGHT_ATTEMPT: event.attempt,
                semconv.CAUGHT_WAIT: event.wait_ms / 1000,
            }
    attributes[semconv.ERROR] = str(event.error.get("code", ""))
    return name, attributes


def _result(event: End) -> Attributes:
    match event:
        case events.RunEnded():
            return _run_result(event)
        case events.StepFinished():
            return {semconv.STEP_OUTCOME: event.outcome}
        case events.ModelCallFinished():
            return _model_call_result(event)
        case events.ModelCallFailed() if event.usage.total_tokens:
            return {**_tokens(event.usage), **_cost(event.usage)}
        case events.ToolCallFailed(is_refusal=True):
            return {semconv.REFUSAL: str(event.error.get("code", ""))}
        case _:
            return {}


def _run_result(event: events.RunEnded) -> Attributes:
    usage = event.usage
    attributes: Attributes = {
        # not the conventions' names: backends add these up over all spans
        semconv.RUN_INPUT_TOKENS: usage.input_tokens,
        semconv.RUN_OUTPUT_TOKENS: usage.output_tokens,
        semconv.RUN_STATUS: semconv.run_status(event),
        semconv.MODEL_CALLS: usage.model_calls,
        semconv.TOOL_CALLS: usage.tool_calls,
    }
    if usage.cost is not None:
        attributes[semconv.RUN_COST] = usage.cost
    else:
        attributes[semconv.RUN_KNOWN_COST] = usage.known_cost
        attributes[semconv.UNPRICED_CALLS] = usage.unpriced_model_calls
    if isinstance(event, events.RunFailed) and event.is_refusal:
        attributes[semconv.REFUSAL] = str(event.error.get("code", ""))
    return attributes


def _model_call_result(event: events.ModelCallFinished) -> Attributes:
    response = event.response
    usage = response.usage
    if event.failed_usage != NO_USAGE:
        usage += event.failed_usage
    attributes: Attributes = {
        **_tokens(usage),
        semconv.FINISH_REASONS: (response.finish_reason,),
    }
    if response.provider_finish_reason:
        word = response.provider_finish_reason
        attributes[semconv.PROVIDER_FINISH_REASON] = word
    if response.model:
        attributes[semconv.RESPONSE_MODEL] = response.model
    if response.id:
        attributes[semconv.RESPONSE_ID] = response.id
    if event.first_token_ms is not None:
        attributes[semconv.REQUEST_STREAM] = True
        attributes[semconv.FIRST_CHUNK] = event.first_token_ms / 1000
    return {**attributes, **_cost(usage)}


def _cost(usage: Usage) -> Attributes:
    """The cost of a call in USD, and where its price comes from; or why it is not known."""
    if usage.cost is None:
        return {
            semconv.UNPRICED: _missing(usage),
            semconv.KNOWN_COST: usage.known_cost,
        }
    attributes: Attributes = {
        semconv.COST: usage.cost,
        semconv.COST_CURRENCY: "USD",
    }
    if usage.cost_source not in ("", "mixed"):
        attributes[semconv.COST_SOURCE] = "local"
        if usage.cost_source == "provider":
            attributes[semconv.COST_SOURCE] = "provider"
        attributes[semconv.PRICE_LIST] = usage.cost_source
    return attributes


def _missing(usage: Usage) -> str:
    """Why the cost of a call is not known."""
    if usage.uncounted_model_calls:
        return "count"
    if usage.incomplete_model_calls:
        return "incomplete"
    return "price"


def _tokens(usage: Usage) -> Attributes:
    attributes: Attributes = {
        semconv.INPUT_TOKENS: usage.input_tokens,
        semconv.OUTPUT_TOKENS: usage.output_tokens,
    }
    if usage.cached_input_tokens:
        attributes[semconv.CACHED_TOKENS] = usage.cached_input_tokens
    if usage.cache_write_tokens:
        attributes[semconv.CACHE_WRITE_TOKENS] = usage.cache_write_tokens
    if usage.reasoning_tokens:
        attributes[semconv.REASONING_TOKENS] = usage.reasoning_tokens
    return attributes


def _error_code(event: End) -> str | None:
    match event:
        case (
            events.RunFailed(is_rejection=True)
            | events.RunFailed(is_refusal=True)
        ):
            return None
        case (
            events.ToolCallFailed(is_rejection=True)
            | events.ToolCallFailed(is_refusal=True)
            | events.ToolCallFailed(is_pause=True)
        ):
            return None
        case (
            events.RunFailed()
            | events.ModelCallFailed()
            | events.ToolCallFailed()
        ):
            return str(event.error.get("code", "internal_error"))
        case events.StepFinished(outcome="failed"):
            return "step_failed"
        case events.RunCancelled():
            return "run_cancelled"
        case _:
            return None


def _content(event: events.RunEvent) -> Attributes:
    """Inputs, outputs, messages, tool arguments and tool results, which are recorded only on request."""
    match event:
        case events.RunStarted():
            content = as_content(shown_inputs(event.input))
            question = Message("user", content)
            return {
                semconv.INPUT_MESSAGES: _messages([question]),
                **_value(event),
            }
        case events.RunFinished():
            answer = Message("assistant", _output_text(event))
            return {
                semconv.OUTPUT_MESSAGES: _messages(
                    [answer], event.finish_reason
                ),
                **_value(event),
            }
        case events.ModelCallStarted():
            return {semconv.INPUT_MESSAGES: _messages(event.request.messages)}
        case events.ModelCallFinished(response=response):
            answer = response.message()
            reason = response.finish_reason
            return {semconv.OUTPUT_MESSAGES: _messages([answer], reason)}
        case events.ToolCallStarted():
            return {
                semconv.TOOL_ARGUMENTS: span_content.to_json(event.arguments)
            }
        case events.ToolCallFinished():
            return {semconv.TOOL_RESULT: _tool_result(event.output)}
        case _:
            return {}


def _tool_result(output: object) -> str:
    if media_in(output):
        output = to_shown_text(output)
    if isinstance(output, str):
        return span_content.cut(output)
    return span_content.to_json(output)


def _value(event: events.RunStarted | events.RunFinished) -> Attributes:
    """The input or the output of a run as a text."""
    if isinstance(event, events.RunFinished):
        return {semconv.OUTPUT_VALUE: span_content.cut(_output_text(event))}
    data = event.input
    named = as_object(data)
    if named.keys() == {"input"}:  # a text is the named input of a workflow
        data = named["input"]
    text = Message("user", as_content(shown_inputs(data))).text
    return {semconv.INPUT_VALUE: span_content.cut(text)}


def _output_text(event: events.RunFinished) -> str:
    return to_text(shown_output(event.value, event.data))


def _messages(
    messages: Sequence[Message], finish_reason: str | None = None
) -> str:
    """Messages as JSON in the schema of the GenAI conventions."""
    entries: list[dict[str, Any]] = []
    for message in messages:
        entry: dict[str, Any] = {
            "role": message.role,
            "parts": _message_parts(message),
        }
        if finish_reason:
            entry["finish_reason"] = finish_reason
        entries.append(entry)
    return span_content.to_json(entries)


def _message_parts(message: Message) -> list[dict[str, Any]]:
    if message.tool_call_id is None:
        parts = _parts(message.content)
    else:
        response = {
            "type": "tool_call_response",
            "id": message.tool_call_id,
            "response": message.text,
        }
        parts = [response]
    for call in message.tool_calls:
        part = {
            "type": "tool_call",
            "id": call.id,
            "name": call.name,
            "arguments": call.arguments,
        }
        parts.append(part)
    return parts


def _parts(content: str | tuple[ContentPart, ...]) -> list[dict[str, Any]]:
    """Parts in the schema of the GenAI conventions; of data only the type is kept."""
    if isinstance(content, str):
        if not content:
            return []
        return [{"type": "text", "content": content}]
    parts: list[dict[str, Any]] = []
    for part in content:
        match part["type"]:
            case "text":
                parts.append({"type": "text", "content": part["text"]})
            case "image_url":
                parts.append(_linked("image", part["image_url"]["url"]))
            case "file":
                parts.append(_linked("document", part["file"]["file_data"]))
            case "input_audio":
                media_type = f"audio/{part['input_audio']['format']}"
                parts.append(_blob("audio", media_type))
    return parts


def _linked(modality: str, url: str) -> dict[str, Any]:
    parsed = parse_data_url(url)
    if parsed is None:
        return {"type": "uri", "modality": modality, "uri": url}
    return _blob(modality, parsed.media_type)


def _blob(modality: str, media_type: str) -> dict[str, Any]:
    return {
        "type": "blob",
        "modality": modality,
        "mime_type": media_type,
        "content": "",
    }
