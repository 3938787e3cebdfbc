"""The body of a Responses request."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Literal

from pydantic import Discriminator, Field, Tag

from podwright.conversation import MAX_MESSAGES, MAX_PARTS
from podwright.json_data import as_object
from podwright.messages import ImageLink, Text
from podwright_service.openai_api.chat_request import RefusalPart, StreamOptions
from podwright_service.openai_api.requests import (
    Conversation,
    Effort,
    JSONSchemaFormat,
    Lenient,
    NotStored,
    NotSupported,
    OpenAIRequest,
    Placed,
    Setting,
)
from podwright_service.schemas import Object, RequestModel


class ResponsesFormat(JSONSchemaFormat):
    """The form of the answer."""

    type: Literal["text", "json_object", "json_schema"]


class TextOptions(RequestModel):
    """The form of the answer."""

    format: ResponsesFormat | None = None


class Reasoning(RequestModel):
    """How a reasoning model thinks."""

    effort: Effort | None = None
    summary: NotSupported = None


class InputText(Lenient):
    """A text of a user, or in the output of a function."""

    type: Literal["input_text"]
    text: Text


class InputImage(Lenient):
    """An image of a user."""

    type: Literal["input_image"]
    image_url: ImageLink
    detail: Literal["auto", "low", "high"] | None = None


class OutputText(Lenient):
    """A text that the component answered."""

    type: Literal["output_text"]
    text: Text


_Parts = Field(min_length=1, max_length=MAX_PARTS)
UserParts = Annotated[list[Annotated[InputText | InputImage, Discriminator("type")]], _Parts]
TextParts = Annotated[list[InputText], _Parts]
AnswerParts = Annotated[list[Annotated[OutputText | RefusalPart, Discriminator("type")]], Field(max_length=MAX_PARTS)]


class InstructionItem(Lenient):
    """Instructions of the client, which are given to the model after the component's own."""

    role: Literal["system", "developer"]
    content: Text | TextParts


class UserItem(Lenient):
    """What a user said."""

    role: Literal["user"]
    content: Text | UserParts


class AssistantItem(Lenient):
    """What the component answered."""

    role: Literal["assistant"]
    content: Text | AnswerParts


class FunctionCall(Lenient):
    """A tool call of the component."""

    type: Literal["function_call"]
    call_id: str
    name: str
    arguments: Text
    """The arguments as JSON text."""


class FunctionCallOutput(Lenient):
    """The result of a tool call."""

    type: Literal["function_call_output"]
    call_id: str
    output: Text | TextParts


def _kind_of_item(item: object) -> Any:
    data = as_object(item)
    kind = data.get("type", "message")
    return data.get("role") if kind == "message" else kind


InputItem = Annotated[
    Annotated[InstructionItem, Tag("system")]
    | Annotated[InstructionItem, Tag("developer")]
    | Annotated[UserItem, Tag("user")]
    | Annotated[AssistantItem, Tag("assistant")]
    | Annotated[FunctionCall, Tag("function_call")]
    | Annotated[FunctionCallOutput, Tag("function_call_output")],
    Discriminator(
        _kind_of_item,
        custom_error_type="item_invalid",
        custom_error_message="An item must be a message with a role, a function_call, or a function_call_output",
    ),
]


class ResponsesRequest(OpenAIRequest):
    """A request of Responses, of which nothing is stored."""

    format_pointer = "/text/format"

    input: str | Annotated[list[InputItem], Field(min_length=1, max_length=MAX_MESSAGES)]
    """The user's message, or the conversation, of which the last item is the user's message."""
    instructions: str | None = None
    """Given to the model after the component's own."""
    max_output_tokens: Annotated[int, Field(ge=1)] | None = None
    """Most output tokens of a model call; it can only lower the component's own."""
    reasoning: Reasoning | None = None
    text: TextOptions | None = None
    truncation: Literal["disabled"] | None = None
    include: Annotated[list[Literal["reasoning.encrypted_content"]], Field(max_length=1)] | None = None
    """Has no effect: no reasoning is returned."""
    stream_options: StreamOptions | None = None
    max_tool_calls: NotSupported = None
    previous_response_id: NotStored = None
    conversation_: NotStored = Field(default=None, alias="conversation")
    background: NotSupported = None
    prompt: NotSupported = None

    def own_settings(self) -> Sequence[Setting]:
        """See `OpenAIRequest.own_settings`."""
        effort = self.reasoning.effort if self.reasoning else None
        return [
            Setting("/max_output_tokens", "max_tokens", self.max_output_tokens),
            Setting("/reasoning/effort", "reasoning_effort", effort),
        ]

    def response_model(self) -> Any:
        """See `OpenAIRequest.response_model`."""
        form = self.text.format if self.text else None
        return self.type_of_answer(form.type, form) if form else None

    def conversation(self) -> Conversation:
        """See `OpenAIRequest.conversation`."""
        instructions = [Placed("/instructions", self.instructions)] if self.instructions else []
        if isinstance(self.input, str):
            return Conversation(instructions, [Placed("/input", {"role": "user", "content": self.input})])
        messages: list[Placed] = []
        for index, item in enumerate(self.input):
            pointer = f"/input/{index}"
            if isinstance(item, InstructionItem):
                texts = item.content
                text = texts if isinstance(texts, str) else "\n".join(part.text for part in texts)
                instructions.append(Placed(pointer, text))
            elif isinstance(item, FunctionCall) and messages and messages[-1].message["role"] == "assistant":
                messages[-1].message.setdefault("tool_calls", []).append(_call(item))  # of the same answer
            else:
                messages.append(Placed(pointer, _translated(item)))
        return Conversation(instructions, messages)


def _translated(item: UserItem | AssistantItem | FunctionCall | FunctionCallOutput) -> Object:
    """A message in the shape of the library."""
    match item:
        case FunctionCall():
            return {"role": "assistant", "content": None, "tool_calls": [_call(item)]}
        case FunctionCallOutput():
            return {"role": "tool", "tool_call_id": item.call_id, "content": _content(item.output)}
        case UserItem() | AssistantItem():
            return {"role": item.role, "content": _content(item.content)}


def _call(item: FunctionCall) -> Object:
    return {"id": item.call_id, "function": {"name": item.name, "arguments": item.arguments}}


def _content(content: str | Sequence[InputText | InputImage | OutputText | RefusalPart]) -> Any:
    return content if isinstance(content, str) else [_part(part) for part in content]


def _part(part: InputText | InputImage | OutputText | RefusalPart) -> Object:
    match part:
        case InputImage():
            image = {"url": part.image_url, **({"detail": part.detail} if part.detail else {})}
            return {"type": "image_url", "image_url": image}
        case RefusalPart():
            return {"type": "text", "text": part.refusal}
        case InputText() | OutputText():
            return {"type": "text", "text": part.text}
