"""Models that need no network: what they have in common, estimates of tokens, and `offline/echo`.

Users test with those of `podwright.models.offline.scripted` and `podwright.models.replay`.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from podwright.data.text import truncate
from podwright.messages.messages import (
    TOOL_CHOICES,
    Message,
    ModelRequest,
    ModelResponse,
    ToolCall,
)
from podwright.messages.usage import Usage
from podwright.models.base import Model, TokenCallback
from podwright.models.offline.media_tokens import audio_tokens, estimate_media
from podwright.models.retries import Timeouts
from podwright.schemas.example import example

if TYPE_CHECKING:
    pass

_WORDS = re.compile(r"\s*\S+|\s+")

BYTES_PER_TOKEN = 4
"""Bytes of a text that estimates count as one token."""
MESSAGE_TOKENS = 4
"""Tokens of a message besides its content, in estimates."""


def estimate_tokens(text: str) -> int:
    """An estimate of a text's tokens: a quarter of its bytes, rounded up."""
    return tokens_of_bytes(len(text.encode("utf-8", "replace")))


def tokens_of_bytes(size: int) -> int:
    """An estimate of the tokens of a text, given its bytes."""
    return -(-size // BYTES_PER_TOKEN)


def estimate_message(message: Message) -> int:
    """An estimate of the tokens of one message."""
    tokens = MESSAGE_TOKENS + estimate_tokens(message.text)
    if not isinstance(message.content, str):
        tokens += sum(map(estimate_media, message.content))
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


def estimate_input_audio(request: ModelRequest) -> int:
    """An estimate of the input tokens of a request that are audio."""
    return sum(
        audio_tokens(message.content)
        for message in request.messages
        if not isinstance(message.content, str)
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

    def finish(
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
        return self.finish(request, self._echo(request), on_token)

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
    choice = request.tool_choice or "auto"
    if choice == "none":
        wanted = set[str]()
    elif choice not in TOOL_CHOICES:
        wanted = {choice}
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
