"""The script of a model stub: responses in order, or those of a recorded run matched by their requests."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, cast

from podwright.data.json_data import to_json_data
from podwright.data.text import os_error_reason
from podwright.errors import TraceError
from podwright.events import (
    Event,
    ModelCallFailed,
    ModelCallFinished,
    ModelCallKey,
    ModelCallStarted,
    model_call_key,
)
from podwright.messages.messages import ModelRequest as ModelRequest
from podwright.messages.messages import ModelResponse as ModelResponse
from podwright.messages.messages import ToolCall as ToolCall
from podwright.models.offline.scripted import Condition, is_met, take_first
from podwright.models.protocols.chat_completions import request_body
from podwright.models.providers import ANY
from podwright.models.replay import differences
from podwright.run.result import ExecutionResult
from podwright_service.testing.chat_completions import read_request


@dataclass(frozen=True, slots=True)
class Fault:
    """A failure that the stub produces instead of a response.

    `Fault(503)` is an error response with that HTTP status. `Fault("cut", "Half an")` ends a response before it is
    complete; `Fault("reset", "Half an")` does so by resetting the connection. `Fault("malformed")` is a body that is
    not JSON, and `Fault("silence")` sends nothing until the client disconnects.
    """

    kind: int | Literal["cut", "reset", "malformed", "silence"]
    """An HTTP status, or what goes wrong."""
    text: str = ""
    """The message and code of an error response, or what is sent before a response breaks off."""
    retry_after: float | None = None
    """Seconds in the `Retry-After` header of an error response."""


@dataclass(frozen=True, slots=True)
class Structured:
    """A structured answer."""

    value: Any
    """JSON data."""


StubResponse = (
    str
    | ToolCall
    | list[ToolCall]
    | ModelResponse
    | Fault
    | Structured
    | Callable[[ModelRequest], Any]
)
"""A text, one or several tool calls, a complete response, a fault, or a function of the request that returns one of
these. A function may be async. It is not used up: it responds to all further requests. Other values, such as
dictionaries and pydantic models, are structured answers.
"""


def to_response(value: Any) -> StubResponse:
    """A response of a script; data becomes a structured answer."""
    if callable(value) or isinstance(
        value, str | ToolCall | ModelResponse | Fault | Structured
    ):
        return value
    if isinstance(value, list):
        items = cast("list[Any]", value)
        if items and all(isinstance(item, ToolCall) for item in items):
            return items
    return Structured(to_json_data(value))


class NoResponseError(Exception):
    """The script has no response for a request."""


@dataclass(slots=True)
class RecordedCall:
    """A model call of a trace."""

    request: ModelRequest
    """The request as the stub receives it, which has neither the component nor its path."""
    component: str
    response: ModelResponse | Fault
    required: bool = True
    """Whether a run that repeats the trace makes this call; false for calls of remote components."""
    used: bool = False


@dataclass(slots=True)
class Script:
    """The responses of a stub. If there are recorded calls, the stub uses only those."""

    responses: list[StubResponse] = field(default_factory=list[StubResponse])
    when: list[tuple[Condition, list[StubResponse]]] = field(
        default_factory=list[tuple[Condition, list[StubResponse]]]
    )
    """Responses for requests that meet a condition."""
    recorded: list[RecordedCall] = field(default_factory=list[RecordedCall])
    latency: float = 0.0
    pace: float = 0.0

    def choose(self, request: ModelRequest) -> StubResponse:
        """The response for a request; responses are used once, functions as often as needed.

        Raises:
            NoResponseError: There is none; the message says why.
        """
        if self.recorded:
            return self._choose_recorded(request)
        for condition, responses in self.when:
            if responses and is_met(condition, request):
                return take_first(responses)
        if self.responses:
            return take_first(self.responses)
        texts = [message.text for message in request.messages]
        last_text = next((text for text in reversed(texts) if text), "")
        end = last_text[-200:]
        raise NoResponseError(
            f"The model stub has no response left for a request that ends with {end!r}."
        )

    def _choose_recorded(self, request: ModelRequest) -> ModelResponse | Fault:
        matches = [
            call
            for call in self.recorded
            if not differences(call.request, request)
        ]
        for call in matches:
            if not call.used:
                call.used = True
                return call.response
        if not matches:

            def similarity(call: RecordedCall) -> tuple[int, bool]:
                return _common_messages(call.request, request), not call.used

            nearest = max(self.recorded, key=similarity)
            raise NoResponseError(
                f"A request is not in the trace. Difference from the most similar request, of "
                f"'{nearest.component}': {differences(nearest.request, request)}."
            )
        # a call that failed did so at every attempt
        if isinstance(matches[-1].response, Fault):
            return matches[-1].response
        raise NoResponseError(
            f"A request of '{matches[0].component}' was made more often than in the trace."
        )


def read_events(
    trace: str | Path | ExecutionResult | Iterable[Event],
) -> Iterable[Event]:
    """The events of a trace, or of the file that holds one.

    Raises:
        TraceError: It is not a trace.
    """
    if isinstance(trace, str | Path):
        try:
            data: Any = json.loads(Path(trace).read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise TraceError(
                f"Cannot read the trace '{trace}': {os_error_reason(error)}."
            ) from error
        trace = ExecutionResult.from_dict(data)
    if isinstance(trace, ExecutionResult):
        return trace.events
    return trace


def recorded_calls(events: Iterable[Event]) -> list[RecordedCall]:
    """The completed model calls of a run, in the order in which they started."""
    started: dict[ModelCallKey, ModelCallStarted] = {}
    responses: dict[ModelCallKey, ModelResponse | Fault] = {}
    for event in events:
        match event:
            case ModelCallStarted():
                started[model_call_key(event)] = event
            case ModelCallFinished():
                responses[model_call_key(event)] = event.response
            case ModelCallFailed():
                code = str(event.error.get("code"))
                fault = _FAULTS.get(code, Fault(400))
                responses[model_call_key(event)] = fault
            case _:
                pass
    return list(_pair(started, responses))


def _pair(
    started: Mapping[ModelCallKey, ModelCallStarted],
    responses: Mapping[ModelCallKey, ModelResponse | Fault],
) -> Iterator[RecordedCall]:
    for call, event in started.items():
        # what a function has reported has no request
        if call not in responses or event.is_reported:
            continue
        model = event.request.model
        provider, _, _ = model.partition("/")
        body = request_body(
            event.request, model, ANY, provider=provider, stream=False
        )
        body = json.loads(json.dumps(body))
        yield RecordedCall(
            read_request(body),
            event.component,
            responses[call],
            required=event.remote is None,
        )


_FAULTS: Mapping[str, Fault] = {
    "model_authentication": Fault(401),
    "model_rate_limited": Fault(429),
    "model_timeout": Fault(408),
    "model_unreachable": Fault("reset"),
    "model_unavailable": Fault(503),
    "context_window_exceeded": Fault(400, "context_length_exceeded"),
    "content_filtered": Fault(400, "content_filter"),
    "model_response_invalid": Fault("malformed"),
}
"""The fault that makes a model call fail with each error code."""


def _common_messages(first: ModelRequest, second: ModelRequest) -> int:
    pairs = zip(first.messages, second.messages, strict=False)
    return sum(one == other for one, other in pairs)
