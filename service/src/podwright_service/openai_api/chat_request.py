"""The body of a Chat Completions request."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Literal

from pydantic import Discriminator, Field

from podwright.conversation import MAX_CALLS, MAX_MESSAGES, MAX_PARTS, ContentParts
from podwright.messages import Text, TextPart
from podwright_service.openai_api.requests import (
    Conversation,
    Effort,
    JSONSchemaFormat,
    Lenient,
    NoTools,
    NotSupported,
    OpenAIRequest,
    Placed,
    Setting,
)
from podwright_service.schemas import Object, RequestModel

TextParts = Annotated[list[TextPart], Field(max_length=MAX_PARTS)]


class InstructionMessage(Lenient):
    """Instructions of the client, which are given to the model after the component's own."""

    role: Literal["system", "developer"]
    content: Text | TextParts


class UserMessage(Lenient):
    """What a user said."""

    role: Literal["user"]
    content: Text | ContentParts


class RefusalPart(Lenient):
    """A text by which a model refused to answer."""

    type: Literal["refusal"]
    refusal: Text


AnswerPart = Annotated[TextPart | RefusalPart, Discriminator("type")]


class CalledFunction(Lenient):
    """The function of a tool call."""

    name: str
    arguments: Text
    """The arguments as JSON text."""


class CalledTool(Lenient):
    """A tool call of an assistant."""

    id: str
    function: CalledFunction


class AssistantMessage(Lenient):
    """What the component answered."""

    role: Literal["assistant"]
    content: Text | Annotated[list[AnswerPart], Field(max_length=MAX_PARTS)] | None = None
    tool_calls: Annotated[list[CalledTool], Field(max_length=MAX_CALLS)] | None = None


class ToolMessage(Lenient):
    """The result of a tool call."""

    role: Literal["tool"]
    tool_call_id: str
    content: Text | TextParts


class ResponseFormat(RequestModel):
    """The form of the answer."""

    type: Literal["text", "json_object", "json_schema"]
    json_schema: JSONSchemaFormat | None = None


class StreamOptions(RequestModel):
    """What a stream has besides the answer."""

    include_usage: bool = False
    include_obfuscation: bool = False
    """Has no effect."""


ChatMessage = Annotated[InstructionMessage | UserMessage | AssistantMessage | ToolMessage, Discriminator("role")]


class ChatRequest(OpenAIRequest):
    """A request of Chat Completions."""

    format_pointer = "/response_format"

    messages: Annotated[list[ChatMessage], Field(min_length=1, max_length=MAX_MESSAGES)]
    """The conversation, of which the last message is the user's."""
    stream_options: StreamOptions | None = None
    max_completion_tokens: Annotated[int, Field(ge=1)] | None = None
    max_tokens: Annotated[int, Field(ge=1)] | None = None
    """Most output tokens of a model call; it can only lower the component's own."""
    seed: int | None = None
    stop: str | Annotated[list[str], Field(max_length=100)] | None = None
    reasoning_effort: Effort | None = None
    response_format: ResponseFormat | None = None
    n: Literal[1] | None = None
    modalities: list[Literal["text"]] | None = None
    logprobs: NotSupported = None
    logit_bias: NotSupported = None
    functions: NoTools = None
    function_call: NoTools = None

    def own_settings(self) -> Sequence[Setting]:
        """See `OpenAIRequest.own_settings`."""
        own = ("seed", "stop", "reasoning_effort", "max_tokens")
        newer = Setting("/max_completion_tokens", "max_tokens", self.max_completion_tokens)
        return [*(Setting(f"/{name}", name, getattr(self, name)) for name in own), newer]

    def response_model(self) -> Any:
        """See `OpenAIRequest.response_model`."""
        form = self.response_format
        return self.type_of_answer(form.type, form.json_schema) if form else None

    def conversation(self) -> Conversation:
        """See `OpenAIRequest.conversation`."""
        conversation = Conversation([], [])
        for index, message in enumerate(self.messages):
            pointer = f"/messages/{index}"
            if isinstance(message, InstructionMessage):
                texts = message.content
                text = texts if isinstance(texts, str) else "\n".join(part["text"] for part in texts)
                conversation.instructions.append(Placed(pointer, text))
            else:
                conversation.messages.append(Placed(pointer, _translated(message)))
        return conversation


def _translated(message: UserMessage | AssistantMessage | ToolMessage) -> Object:
    """A message in the shape of the library, which has no refusals."""
    data = message.model_dump(exclude_none=True)
    if isinstance(message, AssistantMessage) and isinstance(message.content, list):
        data["content"] = [
            {"type": "text", "text": part.refusal} if isinstance(part, RefusalPart) else part
            for part in message.content
        ]
    return data
