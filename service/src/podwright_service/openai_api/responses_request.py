"""The body of a Responses request."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Annotated, Any, Literal

from fastapi.exceptions import RequestValidationError
from pydantic import Discriminator, Field, JsonValue, Tag

from podwright.connection.schemas import Object
from podwright.data.json_data import as_object
from podwright.data.text import short_repr
from podwright.errors import Problem
from podwright.messages.conversation import MAX_MESSAGES
from podwright_service.http.errors.problems import RequestError
from podwright_service.openai_api.chat_request import (
    InstructionMessage,
    StreamOptions,
    UserMessage,
)
from podwright_service.openai_api.content import (
    MAX_ANSWER_PARTS,
    Arguments,
    RefusalPart,
    TextPart,
    TextParts,
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
from podwright_service.openai_api.thoughts import unseal
from podwright_service.openai_api.values import (
    NOT_STORED,
    Effort,
    Lenient,
    NoEffect,
    NotStored,
    NotSupported,
    Options,
    TokenLimit,
    only_empty,
)

_RESPONSE_ID = re.compile("resp_([0-9a-f]{32})")


class ResponsesFormat(JSONSchemaFormat):
    """The form of the answer."""

    type: Literal["text", "json_object", "json_schema"]


class TextOptions(Options):
    """The form of the answer."""

    format: ResponsesFormat | None = None
    verbosity: NoEffect = None


class Reasoning(Options):
    """How a reasoning model thinks."""

    effort: Effort | None = None
    summary: NoEffect = None
    """Has no effect: the operator decides whether thoughts are shown."""
    generate_summary: NoEffect = None


NotInBackground = Annotated[
    JsonValue,
    only_empty("Answers are not made in the background here: see POST /runs"),
]
AnswerParts = Annotated[
    list[Annotated[TextPart | RefusalPart, Discriminator("type")]],
    Field(max_length=MAX_ANSWER_PARTS),
]


class InstructionItem(InstructionMessage):
    """Instructions of the client, which are given to the model after the component's own."""


class UserItem(UserMessage):
    """What a user said."""


class AssistantItem(Lenient):
    """What the component answered."""

    role: Literal["assistant"]
    content: str | AnswerParts = ""


class FunctionCall(Lenient):
    """A tool call of the component."""

    type: Literal["function_call"]
    call_id: str
    name: str
    arguments: Arguments = ""


class FunctionCallOutput(Lenient):
    """The result of a tool call."""

    type: Literal["function_call_output"]
    call_id: str
    output: str | TextParts = ""


class ReasoningItem(Lenient):
    """Thoughts before an answer, which are kept if they are from here."""

    type: Literal["reasoning"]
    encrypted_content: Any = None


class ItemReference(Lenient):
    """An item that the client believes to be stored."""

    type: Literal["item_reference"] = "item_reference"


def _kind_of_item(item: object) -> Any:
    data = as_object(item)
    kind = data.get("type")
    if not kind and data.keys() == {"id"}:
        return "item_reference"
    if not kind or kind == "message":
        return data.get("role")
    return kind


InputItem = Annotated[
    Annotated[InstructionItem, Tag("system")]
    | Annotated[InstructionItem, Tag("developer")]
    | Annotated[UserItem, Tag("user")]
    | Annotated[AssistantItem, Tag("assistant")]
    | Annotated[FunctionCall, Tag("function_call")]
    | Annotated[FunctionCallOutput, Tag("function_call_output")]
    | Annotated[ReasoningItem, Tag("reasoning")]
    | Annotated[ItemReference, Tag("item_reference")],
    Discriminator(
        _kind_of_item,
        custom_error_type="item_invalid",
        custom_error_message=(
            "An item must be a message with a role, a function_call, a function_call_output, or reasoning"
        ),
    ),
]


class ResponsesRequest(OpenAIRequest):
    """A request of Responses."""

    format_pointer = "/text/format"

    input: (
        str
        | Annotated[
            list[InputItem], Field(min_length=1, max_length=MAX_MESSAGES)
        ]
    )
    """The user's message, or the conversation, of which the last item is the user's message."""
    instructions: str | None = None
    """Given to the model after the component's own."""
    max_output_tokens: TokenLimit = None
    """Most output tokens of a model call; it can only lower the component's own."""
    reasoning: Reasoning | None = None
    text: TextOptions | None = None
    truncation: Literal["auto", "disabled"] | None = None
    """Has no effect: the component decides how much of a long conversation its model is given."""
    include: list[str] | None = None
    """`reasoning.encrypted_content` adds thoughts to be sent back, if they are shown; others have no effect."""
    store: bool | None = None
    """Whether a response can be gone on from, if the service keeps conversations; otherwise nothing is stored. The
    response says so."""
    stream_options: StreamOptions | None = None
    max_tool_calls: NotSupported = None
    previous_response_id: JsonValue = None
    """The response that this one goes on from, if the service keeps conversations."""
    conversation_: NotStored = Field(default=None, alias="conversation")
    background: NotInBackground = None
    prompt: NotSupported = None

    def previous_run(self) -> str | None:
        """The run of the response that this one goes on from; None if it goes on from none.

        Raises:
            RequestError: 400: it is not the id of a response here.
        """
        given = self.previous_response_id
        if not given:
            return None
        match = _RESPONSE_ID.fullmatch(str(given))
        if match is None:
            raise previous_not_found(given)
        return match[1]

    def check_not_stored(self) -> None:
        """Check that the request goes on from no response, because none is stored.

        Raises:
            RequestValidationError: It does.
        """
        if self.previous_response_id:
            name = "previous_response_id"
            details = {
                "type": "value_error",
                "loc": ("body", name),
                "msg": NOT_STORED,
                "input": self.previous_response_id,
            }
            body = {name: self.previous_response_id}
            raise RequestValidationError([details], body=body)

    def own_settings(self) -> Sequence[Setting]:
        """See `OpenAIRequest.own_settings`."""
        effort = None
        if self.reasoning:
            effort = self.reasoning.effort
        return [
            Setting("/max_output_tokens", "max_tokens", self.max_output_tokens),
            Setting("/reasoning/effort", "reasoning_effort", effort),
        ]

    def response_model(self) -> Any:
        """See `OpenAIRequest.response_model`."""
        if self.text is None or self.text.format is None:
            return None
        return self.type_of_answer(self.text.format.type, self.text.format)

    def conversation(self) -> Conversation:
        """See `OpenAIRequest.conversation`."""
        conversation = Conversation([], [])
        conversation.add_instructions("/instructions", self.instructions or "")
        if isinstance(self.input, str):
            message = {"role": "user", "content": self.input}
            conversation.messages.append(Placed("/input", message))
            return conversation
        thoughts: Object = {}
        messages = conversation.messages
        for index, item in enumerate(self.input):
            pointer = f"/input/{index}"
            if isinstance(item, InstructionItem):
                conversation.add_instructions(pointer, text_of(item.content))
            elif isinstance(item, ItemReference):
                raise _not_stored_error(pointer)
            elif isinstance(item, ReasoningItem):
                thoughts = unseal(item.encrypted_content)
            elif isinstance(item, FunctionCall) and _ends_with_answer(messages):
                answer = messages[-1].message
                answer.setdefault("tool_calls", []).append(_call(item))
            else:
                message = _translated(item)
                # whose thoughts come right before
                if message["role"] == "assistant":
                    message = _with_thoughts(message, thoughts)
                messages.append(Placed(pointer, message))
                thoughts = {}
        return conversation


def previous_not_found(given: object) -> RequestError:
    """Return the error about a response that cannot be gone on from, in OpenAI's words.

    Args:
        given: What the client takes for its id.
    """
    problem = Problem(
        "/previous_response_id",
        f"Previous response with id {short_repr(given)} not found.",
    )
    return RequestError(
        400,
        "previous_response_not_found",
        problem.detail,
        "Send the whole conversation, or the id of a response that was stored and not deleted, with the same API key.",
        problems=[problem],
    )


def _not_stored_error(pointer: str) -> RequestError:
    problem = Problem(pointer, f"{NOT_STORED}.")
    suggestion = "Clients then send whole items. In Vercel's AI SDK: providerOptions: { openai: { store: false } }."
    return RequestError(
        422,
        "request_invalid",
        problem.detail,
        suggestion=suggestion,
        problems=[problem],
    )


def _ends_with_answer(messages: Sequence[Placed]) -> bool:
    """Whether the last message is an answer, which a tool call after it is a part of."""
    if not messages:
        return False
    role: str = messages[-1].message["role"]
    return role == "assistant"


def _with_thoughts(message: Object, thoughts: Object) -> Object:
    # a content in parts has the thoughts in it
    content = thoughts.get("content", message.get("content"))
    return {**thoughts, **message, "content": content}


def _translated(
    item: UserItem | AssistantItem | FunctionCall | FunctionCallOutput,
) -> Object:
    """A message in the shape of the library."""
    match item:
        case FunctionCall():
            return {
                "role": "assistant",
                "content": None,
                "tool_calls": [_call(item)],
            }
        case FunctionCallOutput():
            return {
                "role": "tool",
                "tool_call_id": item.call_id,
                "content": content_data(item.output),
            }
        case UserItem() | AssistantItem():
            return {"role": item.role, "content": content_data(item.content)}


def _call(item: FunctionCall) -> Object:
    return {
        "id": item.call_id,
        "function": {"name": item.name, "arguments": item.arguments},
    }
