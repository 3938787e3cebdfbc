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
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from podwright.errors import ModelError, ReplayMismatchError, TraceError
from podwright.events import (
    ModelCallFailed,
    ModelCallFinished,
    ModelCallKey,
    ModelCallStarted,
    model_call_key,
)
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
    size = len(text.encode("utf-8", "replace"))
    return (size + 3) // 4


def estimate_message(message: Message) -> int:
    """An estimate of the tokens of one message."""
    tokens = 4 + estimate_tokens(message.text)
    if not isinstance(message.content, str):
        for part in message.content:
            if part["type"] == "image_url":
                tokens += IMAGE_TOKENS
    tokens += _estimate_fields(message.provider_fields)
    for call in message.tool_calls:
        tokens += _estimate_call(call)
        tokens += _estimate_fields(call.provider_fields)
    return tokens


def _estimate_call(call: ToolCall) -> int:
    return estimate_tokens(call.name + call.arguments)


def _estimate_fields(fields: Mapping[str, Any]) -> int:
    tokens = 0
    for name, value in fields.items():
        # a content in parts has the text once more
        if name != "content":
            tokens += estimate_tokens(json.dumps(value))
    return tokens


def estimate_input(request: ModelRequest) -> int:
    """An estimate of a request's input tokens, tools and schemas included."""
    tokens = 3
    for message in request.messages:
        tokens += estimate_message(message)
    for tool in request.tools:
        tokens += estimate_tokens(json.dumps(tool))
    if request.output:
        tokens += estimate_tokens(json.dumps(request.output.schema))
    return tokens


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
        for call in response.tool_calls:
            output += _estimate_call(call)
        usage = Usage(
            input_tokens=estimate_input(request),
            output_tokens=output,
            cost=response.usage.cost or 0.0,
            cost_source="offline",
        )
        model = response.model or self.name
        return replace(response, usage=usage, model=model)


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
        ]
        messages = messages[request.history :]
        questions = _texts(messages, role="user", limit=160)
        question = next(questions, "")
        if request.output:
            data = example(request.output.schema, question)
            return ModelResponse(json.dumps(data))
        calls = _example_calls(request, messages, question)
        if calls:
            return ModelResponse(tool_calls=calls, finish_reason="tool_calls")
        text = f"Echo: {question}"
        outputs = list(_texts(messages, role="tool", limit=80))
        if outputs:
            text += f" (found: {'; '.join(outputs)})"
        return ModelResponse(text)


def _texts(messages: Sequence[Message], role: str, limit: int) -> Iterator[str]:
    """The texts of the messages with this role, each on one line."""
    for message in messages:
        if message.role == role:
            yield _one_line(message.text, limit)


def _example_calls(
    request: ModelRequest,
    messages: Sequence[Message],
    question: str,
) -> tuple[ToolCall, ...]:
    """Calls of the tool that the request chooses, else of the tools that were not called before; eight at most."""
    called: set[str] = set()
    for message in messages:
        called.update(call.name for call in message.tool_calls)
    functions = [tool["function"] for tool in request.tools]
    if request.tool_choice:
        wanted = {request.tool_choice}
    else:
        wanted = {function["name"] for function in functions} - called
    functions = [
        function for function in functions if function["name"] in wanted
    ]
    calls: list[ToolCall] = []
    for number, function in enumerate(functions[:8], len(called)):
        arguments = example(function["parameters"], question)
        call = ToolCall(
            id=f"call_{number}",
            name=function["name"],
            arguments=json.dumps(arguments),
        )
        calls.append(call)
    return tuple(calls)


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
        case ToolCall():
            return ModelResponse(
                tool_calls=(answer,), finish_reason="tool_calls"
            )
        case _:
            return ModelResponse(
                tool_calls=tuple(answer), finish_reason="tool_calls"
            )


class ScriptedModel(OfflineModel):
    """Gives the answers of a script, one per call, and keeps the requests in `requests`.

    Args:
        *answers: Texts, responses, tool calls (one, or a list for one turn), or exceptions to raise.
        name: Its name in requests, events and usage.
    """

    def __init__(
        self, *answers: Answer, name: str = "offline/scripted"
    ) -> None:
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
        response = _as_response(self._answers.popleft())
        return self._finish(request, response, on_token)


class FunctionModel(OfflineModel):
    """Answers with what a function returns.

    Args:
        function: Called with the `ModelRequest`; returns a text, a response or tool calls. It may be async.
        name: Its name in requests, events and usage.
    """

    def __init__(
        self,
        function: Callable[[ModelRequest], Any],
        name: str = "offline/function",
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
        self._recorded: defaultdict[_Place, deque[_Call]] = defaultdict(deque)
        calls: dict[ModelCallKey, _Call] = {}
        for event in trace.events:
            # a remote component made that call, and makes it again
            if event.remote is not None:
                continue
            if isinstance(event, ModelCallStarted):
                call = _Call(len(calls), event.request)
                calls[model_call_key(event)] = call
                # a function made it by itself, and makes it again
                if event.is_reported:
                    continue
                self._recorded[event.component, event.path].append(call)
            elif isinstance(event, ModelCallFinished | ModelCallFailed):
                call = calls.get(model_call_key(event))
                if call is None:
                    raise TraceError(
                        f"Invalid trace: model call {event.call} ended before it started."
                    )
                call.end = event

    @property
    def left(self) -> list[ModelRequest]:
        """Recorded requests that were not made again; empty after a complete replay."""
        requests: list[ModelRequest] = []
        for queue in self._recorded.values():
            requests += [call.request for call in queue]
        return requests

    async def complete(
        self, request: ModelRequest, on_token: TokenCallback | None = None
    ) -> ModelResponse:
        """Give the recorded answer.

        Raises:
            ReplayMismatchError: The trace has no such request at this place.
            ModelError: The recorded call failed.
        """
        queue = self._recorded.get((request.component, request.path))
        place = f"'{request.component}'"
        if request.path:
            place += f" at {list(request.path)}"
        if not queue:
            raise ReplayMismatchError(
                f"{place} made a model call that is not in the trace."
            )
        call = queue.popleft()
        difference = differences(call.request, request)
        if difference:
            raise ReplayMismatchError(
                f"Model call {call.number} of the trace, by {place}, differs: {difference}."
            )
        if isinstance(call.end, ModelCallFinished):
            return self._finish(request, call.end.response, on_token)
        if call.end is None:
            raise ModelError("Recorded: the call did not finish.")
        reason = call.end.error.get("message")
        raise ModelError(f"Recorded: {reason}")


_Place = tuple[str, tuple[int, ...]]
"""The component that makes a call, and its path in the run."""


@dataclass(slots=True)
class _Call:
    number: int
    request: ModelRequest
    end: ModelCallFinished | ModelCallFailed | None = None


def differences(recorded: ModelRequest, request: ModelRequest) -> str:
    """The lines that differ between two requests as JSON, apart from the model's name; empty if there are none."""
    before = _lines(recorded)
    after = _lines(request)
    lines = list(difflib.unified_diff(before, after, lineterm="", n=0))
    first = lines[3:7]  # after the headers of the files and of the first change
    return "; ".join(truncate(line, 200) for line in first)


def _lines(request: ModelRequest) -> list[str]:
    """The request as JSON, without the names of the model and of those that have answered before."""
    messages = tuple(
        replace(message, provider="") for message in request.messages
    )
    nameless = replace(request, model="", messages=messages)
    # the order of keys is another one after the trace was saved and read
    text = json.dumps(
        to_json_data(nameless), indent=0, ensure_ascii=False, sort_keys=True
    )
    return text.splitlines()
