"""The body of a Chat Completions request."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Discriminator, Field

from podwright.connection.schemas import Object
from podwright.messages.conversation import MAX_MESSAGES
from podwright_service.openai_api.content import (
    MAX_ANSWER_PARTS,
    Arguments,
    TextParts,
    UserParts,
    content_data,
    text_of,
)
from podwright_service.openai_api.requests import (
    Conversation,
    JSONSchemaFormat,
    OpenAIRequest,
    Placed,
    Setting,
)
from podwright_service.openai_api.values import (
    Effort,
    Lenient,
    NoEffect,
    NoTools,
    NotStored,
    NotSupported,
    One,
    Options,
    Stops,
    TokenLimit,
    Whole,
)

_NO_THOUGHTS = (
    "refusal",
    "audio",
    "function_call",
    "annotations",
    "parsed",
    "name",
    "id",
    "cache_control",
)
"""Keys of OpenAI's own messages, and of its clients: no provider needs them back."""


class InstructionMessage(Lenient):
    """Instructions of the client, which are given to the model after the component's own."""

    role: Literal["system", "developer"]
    content: str | TextParts = ""


class UserMessage(Lenient):
    """What a user said."""

    role: Literal["user"]
    content: str | UserParts


class CalledFunction(Lenient):
    """The function of a tool call."""

    model_config = ConfigDict(extra="allow")

    name: str
    arguments: Arguments = ""


class CalledTool(Lenient):
    """A tool call of an assistant, with what its provider has added."""

    model_config = ConfigDict(extra="allow")

    id: str
    function: CalledFunction


class AnswerPart(Lenient):
    """A part of an answer: a text, or what its provider has put there, such as a thought."""

    model_config = ConfigDict(extra="allow")

    type: str


class AssistantMessage(Lenient):
    """What the component answered, with what its provider has added, such as thoughts."""

    model_config = ConfigDict(extra="allow")

    role: Literal["assistant"]
    content: (
        str | Annotated[list[AnswerPart], Field(max_length=MAX_ANSWER_PARTS)]
    ) = ""
    tool_calls: list[CalledTool] = Field(default_factory=list[CalledTool])


class ToolMessage(Lenient):
    """The result of a tool call."""

    role: Literal["tool"]
    tool_call_id: str
    content: str | TextParts = ""


class ResponseFormat(Options):
    """The form of the answer."""

    type: Literal["text", "json_object", "json_schema"]
    json_schema: JSONSchemaFormat | None = None


class StreamOptions(Lenient):
    """What a stream has besides the answer; other options have no effect."""

    include_usage: bool = False


ChatMessage = Annotated[
    InstructionMessage | UserMessage | AssistantMessage | ToolMessage,
    Discriminator("role"),
]


class ChatRequest(OpenAIRequest):
    """A request of Chat Completions."""

    format_pointer = "/response_format"

    messages: Annotated[
        list[ChatMessage], Field(min_length=1, max_length=MAX_MESSAGES)
    ]
    """The conversation, of which the last message is the user's."""
    stream_options: StreamOptions | None = None
    max_completion_tokens: TokenLimit = None
    max_tokens: TokenLimit = None
    """Most output tokens of a model call; it can only lower the component's own."""
    seed: Whole | None = None
    stop: Stops = None
    reasoning_effort: Effort | None = None
    response_format: ResponseFormat | None = None
    n: One | None = None
    modalities: list[Literal["text"]] | None = None
    store: NotStored = None
    verbosity: NoEffect = None
    """Has no effect, like `prediction`."""
    prediction: NoEffect = None
    logprobs: NotSupported = None
    logit_bias: NotSupported = None
    functions: NoTools = None
    function_call: Literal["auto", "none"] | None = None

    def own_settings(self) -> Sequence[Setting]:
        """See `OpenAIRequest.own_settings`."""
        return [
            Setting("/seed", "seed", self.seed),
            Setting("/stop", "stop", self.stop),
            Setting(
                "/reasoning_effort", "reasoning_effort", self.reasoning_effort
            ),
            Setting("/max_tokens", "max_tokens", self.max_tokens),
            Setting(
                "/max_completion_tokens",
                "max_tokens",
                self.max_completion_tokens,
            ),
        ]

    def response_model(self) -> Any:
        """See `OpenAIRequest.response_model`."""
        form = self.response_format
        if form is None:
            return None
        return self.type_of_answer(form.type, form.json_schema)

    def conversation(self) -> Conversation:
        """See `OpenAIRequest.conversation`."""
        conversation = Conversation([], [])
        for index, message in enumerate(self.messages):
            pointer = f"/messages/{index}"
            if isinstance(message, InstructionMessage):
                conversation.add_instructions(pointer, text_of(message.content))
            else:
                conversation.messages.append(
                    Placed(pointer, _translated(message))
                )
        return conversation


def _translated(
    message: UserMessage | AssistantMessage | ToolMessage,
) -> Object:
    """A message in the shape of the library."""
    match message:
        case UserMessage():
            return {"role": "user", "content": content_data(message.content)}
        case ToolMessage():
            return {
                "role": "tool",
                "tool_call_id": message.tool_call_id,
                "content": content_data(message.content),
            }
        case AssistantMessage():
            return {
                **_thoughts(message),
                "role": "assistant",
                "content": _answer(message.content or _refusal(message)),
                "tool_calls": [
                    call.model_dump() for call in message.tool_calls
                ],
            }


def _thoughts(message: AssistantMessage) -> Object:
    """What the provider has added; numbers and booleans are bookkeeping of the client."""
    further = message.model_extra or {}
    return {
        key: value
        for key, value in further.items()
        if key not in _NO_THOUGHTS and not isinstance(value, bool | int | float)
    }


def _refusal(message: AssistantMessage) -> str:
    """The words of a refusal, which the component answered in place of a content."""
    refusal = (message.model_extra or {}).get("refusal")
    return refusal if isinstance(refusal, str) else ""


def _answer(content: str | list[AnswerPart]) -> Any:
    if isinstance(content, str):
        return content
    return [_answer_part(part.model_dump()) for part in content]


def _answer_part(part: Object) -> Object:
    """A part in the shape of the library, which has one type of texts and no refusals."""
    match part:
        case {"type": "text" | "output_text" | "input_text", "text": str(text)}:
            return {"type": "text", "text": text}
        case {"type": "refusal", "refusal": str(text)}:
            return {"type": "text", "text": text}
        case _:
            return part
