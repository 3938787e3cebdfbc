"""What a model stub says to whom: answers in their order, or those of a recorded run to the requests that it made."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from podwright.errors import TraceError
from podwright.events import Event, ModelCallFailed, ModelCallFinished, ModelCallStarted
from podwright.messages import ModelRequest, ModelResponse, OutputSchema
from podwright.models.base import ANSWER_TOOL
from podwright.models.chat_completions import request_body
from podwright.models.offline import differences
from podwright.models.providers import ANY
from podwright.result import ExecutionResult
from podwright.text import os_error_reason
from podwright_service.testing.answers import Fault, Said, read_request

Turn = Said | Callable[[ModelRequest], Any]


class NoAnswerError(Exception):
    """The script has nothing to say to a request."""


@dataclass(slots=True)
class Recorded:
    """A model call of a trace."""

    request: ModelRequest
    said: Said
    needed: bool = True
    """Whether a faithful run asks for it: a remote component, which has its own model, made the others."""
    asked: bool = False


@dataclass(slots=True)
class Script:
    """All that a stub may say; recorded calls, where there are any, and nothing else."""

    answers: list[Turn] = field(default_factory=list[Turn])
    when: list[tuple[str, list[Turn]]] = field(default_factory=list[tuple[str, list[Turn]]])
    """Answers to requests that have a text in one of their messages."""
    recorded: list[Recorded] = field(default_factory=list[Recorded])
    latency: float = 0.0
    pace: float = 0.0

    def choose(self, request: ModelRequest) -> Turn:
        """What is said to this request.

        Raises:
            NoAnswerError: Nothing is; with the reason.
        """
        if self.recorded:
            return self._remember(request)
        texts = [message.content for message in request.messages]
        for wanted, answers in self.when:
            if answers and any(wanted in text for text in texts):
                return _next(answers)
        if not self.answers:
            said = next((text for text in reversed(texts) if text), "")
            raise NoAnswerError(f"The model stub has no answer left for a request that ends with {said[-200:]!r}.")
        return _next(self.answers)

    def _remember(self, request: ModelRequest) -> Said:
        found = [(one, _differences(one.request, request)) for one in self.recorded]
        same = [one for one, difference in found if not difference]
        if chosen := next((one for one in same if not one.asked), None):
            chosen.asked = True
            return chosen.said
        if same and isinstance(same[-1].said, Fault):  # a call that failed did so at each of its tries
            return same[-1].said
        if same:
            raise NoAnswerError(f"A request of '{same[0].request.component}' was made more often than in the trace.")
        nearest, difference = max(found, key=lambda one: (_in_common(one[0].request, request), not one[0].asked))
        who = nearest.request.component
        raise NoAnswerError(
            f"A request is not in the trace; from the nearest one, of '{who}', it differs: {difference}."
        )


def read_events(trace: str | Path | ExecutionResult | Iterable[Event]) -> Iterable[Event]:
    """The events of a trace, or of the file that holds one.

    Raises:
        TraceError: It is no trace.
    """
    if isinstance(trace, str | Path):
        try:
            data: Any = json.loads(Path(trace).read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise TraceError(f"The trace '{trace}' cannot be read: {os_error_reason(error)}.") from error
        trace = ExecutionResult.from_dict(data)
    return trace.events if isinstance(trace, ExecutionResult) else trace


def recorded_calls(events: Iterable[Event]) -> list[Recorded]:
    """The model calls of a run that came to their end, in the order in which they began."""
    begun: dict[tuple[str, int], ModelCallStarted] = {}
    ended: dict[tuple[str, int], Said] = {}
    for event in events:
        match event:
            case ModelCallStarted():
                begun[event.run_id, event.call] = event
            case ModelCallFinished():
                ended[event.run_id, event.call] = event.response
            case ModelCallFailed():
                ended[event.run_id, event.call] = _fault(event.error)
            case _:
                pass
    return list(_paired(begun, ended))


def _paired(
    begun: Mapping[tuple[str, int], ModelCallStarted], ended: Mapping[tuple[str, int], Said]
) -> Iterator[Recorded]:
    for call, event in begun.items():
        if call in ended:
            request, said = _with_output(event.request, ended[call])
            sent = json.loads(json.dumps(request_body(request, request.model, ANY, stream=False)))
            known = dataclasses.replace(read_request(sent), component=request.component)
            yield Recorded(known, said, needed=event.remote is None)


def _with_output(request: ModelRequest, said: Said) -> tuple[ModelRequest, Said]:
    """A call to a model that gives data through a tool, as one to a model that gives them by itself, as the stub is."""
    tool = next((one["function"] for one in request.tools if one["function"]["name"] == ANSWER_TOOL), None)
    if tool is None:
        return request, said
    others = tuple(one for one in request.tools if one["function"] is not tool)
    request = dataclasses.replace(request, tools=others, output=OutputSchema(ANSWER_TOOL, tool["parameters"]))
    final = [one for one in said.tool_calls if one.name == ANSWER_TOOL] if isinstance(said, ModelResponse) else []
    if isinstance(said, ModelResponse) and final:
        said = dataclasses.replace(said, text=final[0].arguments, tool_calls=(), finish_reason="stop")
    return request, said


def _differences(recorded: ModelRequest, asked: ModelRequest) -> str:
    if recorded.output and recorded.output.name == ANSWER_TOOL and asked.output:
        asked = dataclasses.replace(asked, output=OutputSchema(ANSWER_TOOL, asked.output.schema))
    return differences(recorded, asked)


_FAULTS: Mapping[str, Fault] = {
    "model_authentication": Fault(401),
    "model_rate_limited": Fault(429),
    "model_timeout": Fault(408),
    "model_unreachable": Fault("reset"),
    "model_unavailable": Fault(503),
    "context_window_exceeded": Fault(400, "context_length_exceeded"),
    "content_filtered": Fault(400, "content_filter"),
    "model_answer_invalid": Fault("malformed"),
}
"""What has a model call fail with an error of this code."""


def _fault(error: Mapping[str, Any]) -> Fault:
    return _FAULTS.get(str(error.get("code")), Fault(400))


def _next(answers: list[Turn]) -> Turn:
    return answers[0] if callable(answers[0]) else answers.pop(0)


def _in_common(one: ModelRequest, other: ModelRequest) -> int:
    return sum(a == b for a, b in zip(one.messages, other.messages, strict=False))
