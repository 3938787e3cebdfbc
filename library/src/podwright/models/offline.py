"""Models that need no network: for demonstrations, tests and replays.

Examples run on `offline/echo`, users test with `ScriptedModel` and `FunctionModel`, and a recorded trace answers
through `ReplayModel`.
"""

from __future__ import annotations

import difflib
import inspect
import json
import math
import re
from collections import defaultdict, deque
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from podwright.errors import ModelError, ReplayMismatchError, TraceError
from podwright.events import ModelCallFailed, ModelCallFinished, ModelCallStarted
from podwright.json_data import to_json_data
from podwright.messages import Message, ModelRequest, ModelResponse, ToolCall
from podwright.models.base import Model, TokenCallback
from podwright.models.retries import Timeouts
from podwright.models.schema_example import example
from podwright.text import truncate
from podwright.usage import Usage

if TYPE_CHECKING:
    from podwright.result import ExecutionResult

IMAGE_TOKENS = 1_600
"""Assumed for an image, whose tokens depend on its size and on the provider; most providers scale larger ones down."""

_WORDS = re.compile(r"\s*\S+|\s+")


def estimate_tokens(text: str) -> int:
    """An estimate of a text's tokens: a quarter of its bytes, rounded up."""
    return (len(text.encode("utf-8", "replace")) + 3) // 4


def estimate_message(message: Message) -> int:
    """An estimate of the tokens of one message."""
    images = (
        0
        if isinstance(message.content, str)
        else sum(part["type"] == "image_url" for part in message.content)
    )
    calls = sum(
        estimate_tokens(call.name + call.arguments) for call in message.tool_calls
    )
    fields = [
        message.provider_fields,
        *(call.provider_fields for call in message.tool_calls),
    ]
    # a content in parts has the text once more
    others = [
        value for each in fields for key, value in each.items() if key != "content"
    ]
    further = sum(estimate_tokens(json.dumps(value)) for value in others)
    return 4 + estimate_tokens(message.text) + images * IMAGE_TOKENS + calls + further


def estimate_input(request: ModelRequest) -> int:
    """An estimate of a request's input tokens, tools and schemas included."""
    schemas: list[Any] = [
        *request.tools,
        *([request.output.schema] if request.output else []),
    ]
    return (
        3
        + sum(map(estimate_message, request.messages))
        + sum(estimate_tokens(json.dumps(s)) for s in schemas)
    )


class OfflineModel(Model):
    """Base of the offline models: they cost nothing, have no time-out, and stream word by word."""

    timeouts = Timeouts(total=math.inf)

    def cost(self, usage: Usage) -> float | None:
        """Always 0."""
        return 0.0

    async def stream(
        self,
        request: ModelRequest,
        on_token: TokenCallback,
        on_reasoning: TokenCallback,
    ) -> ModelResponse:
        """See `Model.stream`."""
        response = await self.complete(request)
        _hand_out(response.reasoning, on_reasoning)
        _hand_out(response.text, on_token)
        return response

    def _finish(
        self,
        request: ModelRequest,
        response: ModelResponse,
        on_token: TokenCallback | None,
    ) -> ModelResponse:
        """The response with its usage estimated if it has none; its text is handed to `on_token`."""
        if on_token is not None:
            _hand_out(response.text, on_token)
        if response.usage.total_tokens:
            return response
        output = estimate_tokens(response.text)
        output += sum(
            estimate_tokens(call.name + call.arguments) for call in response.tool_calls
        )
        usage = Usage(
            input_tokens=estimate_input(request),
            output_tokens=output,
            cost=response.usage.cost or 0.0,
            cost_source="offline",
        )
        return replace(response, usage=usage, model=response.model or self.name)


def _hand_out(text: str, callback: TokenCallback) -> None:
    for word in _WORDS.findall(text):
        callback(word)


class EchoModel(OfflineModel):
    """`offline/echo`: repeats the user's last message, the same each time.

    It first calls each tool once, with example arguments that fit the tool's schema. With an output schema it answers
    with example data that fits the schema.
    """

    name = "offline/echo"

    async def complete(
        self, request: ModelRequest, on_token: TokenCallback | None = None
    ) -> ModelResponse:
        """Answer with an echo."""
        return self._finish(request, self._echo(request), on_token)

    def _echo(self, request: ModelRequest) -> ModelResponse:
        messages = [
            message for message in request.messages if message.role != "system"
        ][request.history :]
        question = _one_line(
            next((message.text for message in messages if message.role == "user"), ""),
            160,
        )
        if request.output:
            return ModelResponse(json.dumps(example(request.output.schema, question)))
        called = {call.name for message in messages for call in message.tool_calls}
        functions = [tool["function"] for tool in request.tools]
        if request.tool_choice:
            functions = [
                function
                for function in functions
                if function["name"] == request.tool_choice
            ]
        else:
            functions = [
                function for function in functions if function["name"] not in called
            ]
        if functions:
            calls = tuple(
                ToolCall(
                    f"call_{number}",
                    function["name"],
                    json.dumps(example(function["parameters"], question)),
                )
                for number, function in enumerate(functions[:8], len(called))
            )
            return ModelResponse(tool_calls=calls, finish_reason="tool_calls")
        outputs = [
            _one_line(message.text, 80)
            for message in messages
            if message.role == "tool"
        ]
        return ModelResponse(
            f"Echo: {question}" + (f" (found: {'; '.join(outputs)})" if outputs else "")
        )


def _one_line(text: str, limit: int) -> str:
    """The text on one line, shortened: echoes of echoes must not grow."""
    return truncate(" ".join(text.split()), limit)


Answer = str | ModelResponse | ToolCall | list[ToolCall] | BaseException
"""An answer of a scripted model: a text, a response, tool calls, or an error to raise."""


def _as_response(answer: Answer) -> ModelResponse:
    match answer:
        case ModelResponse():
            return answer
        case str():
            return ModelResponse(answer)
        case BaseException():
            raise answer
        case _:
            calls = (answer,) if isinstance(answer, ToolCall) else tuple(answer)
            return ModelResponse(tool_calls=calls, finish_reason="tool_calls")


class ScriptedModel(OfflineModel):
    """Gives the answers of a script, one per call, and keeps the requests in `requests`.

    Args:
        *answers: Texts, responses, tool calls (one, or a list for one turn), or exceptions to raise.
        name: Its name in requests, events and usage.
    """

    def __init__(self, *answers: Answer, name: str = "offline/scripted") -> None:
        self.name = name
        self.requests: list[ModelRequest] = []
        self._answers = deque(answers)

    async def complete(
        self, request: ModelRequest, on_token: TokenCallback | None = None
    ) -> ModelResponse:
        """Give the next answer of the script.

        Raises:
            ModelError: The script has ended.
        """
        self.requests.append(request)
        if not self._answers:
            raise ModelError(
                f"The script of '{self.name}' has no answer for call {len(self.requests)}.",
                suggestion="Add an answer to the script, or find out why the component makes so many calls.",
            )
        return self._finish(request, _as_response(self._answers.popleft()), on_token)


class FunctionModel(OfflineModel):
    """Answers with what a function returns.

    Args:
        function: Called with the `ModelRequest`; returns a text, a response or tool calls. It may be async.
        name: Its name in requests, events and usage.
    """

    def __init__(
        self, function: Callable[[ModelRequest], Any], name: str = "offline/function"
    ) -> None:
        self.name = name
        self._function = function

    async def complete(
        self, request: ModelRequest, on_token: TokenCallback | None = None
    ) -> ModelResponse:
        """Answer with the function's result."""
        answer = self._function(request)
        if inspect.isawaitable(answer):
            answer = await answer
        return self._finish(request, _as_response(answer), on_token)


class ReplayModel(OfflineModel):
    """Gives the answers that a trace recorded, so that a component runs again without a model.

    Give it to every component of the run, for example by `podwright.load(path, model=ReplayModel(result))`. A
    request is compared with the recorded ones of the same component at the same place, in their order. One that
    differs is an error, so a trace from production is a regression test.

    Args:
        trace: The `ExecutionResult` of the recorded run.

    Raises:
        TraceError: The trace has the end of a model call without its start.
    """

    name = "offline/replay"

    def __init__(self, trace: ExecutionResult) -> None:
        self._recorded: defaultdict[tuple[str, tuple[int, ...]], deque[_Call]] = (
            defaultdict(deque)
        )
        calls: dict[tuple[str, int], _Call] = {}
        for event in trace.events:
            # a remote component made that call, and makes it again
            if event.remote is not None:
                continue
            if isinstance(event, ModelCallStarted):
                call = calls[event.run_id, event.call] = _Call(
                    len(calls), event.request
                )
                self._recorded[event.component, event.path].append(call)
            elif isinstance(event, ModelCallFinished | ModelCallFailed):
                if (event.run_id, event.call) not in calls:
                    raise TraceError(
                        f"Invalid trace: model call {event.call} ended before it started."
                    )
                calls[event.run_id, event.call].end = event

    @property
    def left(self) -> list[ModelRequest]:
        """Recorded requests that were not made again; empty after a complete replay."""
        return [call.request for queue in self._recorded.values() for call in queue]

    async def complete(
        self, request: ModelRequest, on_token: TokenCallback | None = None
    ) -> ModelResponse:
        """Give the recorded answer.

        Raises:
            ReplayMismatchError: The trace has no such request at this place.
            ModelError: The recorded call failed.
        """
        queue = self._recorded.get((request.component, request.path))
        place = f"'{request.component}'" + (
            f" at {list(request.path)}" if request.path else ""
        )
        if not queue:
            raise ReplayMismatchError(
                f"{place} made a model call that is not in the trace."
            )
        call = queue.popleft()
        if difference := differences(call.request, request):
            raise ReplayMismatchError(
                f"Model call {call.number} of the trace, by {place}, differs: {difference}."
            )
        if isinstance(call.end, ModelCallFinished):
            return self._finish(request, call.end.response, on_token)
        reason = (
            call.end.error.get("message") if call.end else "the call did not finish."
        )
        raise ModelError(f"Recorded: {reason}")


@dataclass(slots=True)
class _Call:
    number: int
    request: ModelRequest
    end: ModelCallFinished | ModelCallFailed | None = None


def differences(recorded: ModelRequest, request: ModelRequest) -> str:
    """The lines that differ between two requests as JSON, apart from the model's name; empty if there are none."""
    before, after = (_lines(_without_names(side)) for side in (recorded, request))
    lines = list(difflib.unified_diff(before, after, lineterm="", n=0))[3:]
    return "; ".join(truncate(line, 200) for line in lines[:4])


def _without_names(request: ModelRequest) -> ModelRequest:
    """The request without the names of the model and of those that have answered before."""
    messages = tuple(replace(message, provider="") for message in request.messages)
    return replace(request, model="", messages=messages)


def _lines(request: ModelRequest) -> list[str]:
    # the order of keys is another one after the trace was saved and read
    return json.dumps(
        to_json_data(request), indent=0, ensure_ascii=False, sort_keys=True
    ).splitlines()
