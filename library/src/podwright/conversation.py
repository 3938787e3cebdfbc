"""Conversations as JSON data: the messages of earlier turns that a run is given, and those that it returns.

The shape is that of the Chat Completions protocol, which most clients and providers share. There are no system
messages, because those are the blueprint's.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Annotated, Any, Literal, NotRequired, cast

from annotated_types import MaxLen, MinLen
from pydantic import (
    Discriminator,
    Strict,
    TypeAdapter,
    ValidationError,
    ValidatorFunctionWrapHandler,
    WrapValidator,
    with_config,
)
from pydantic_core import InitErrorDetails, PydanticCustomError
from typing_extensions import TypedDict

from podwright.errors import MessagesError
from podwright.json_data import as_array, as_object
from podwright.messages import CLOSED, ContentPart, Message, Text, TextPart, ToolCall
from podwright.text import short_repr
from podwright.validation_errors import to_problems

MAX_MESSAGES = 2000
"""Messages of the longest conversation."""
MAX_PARTS, MAX_CALLS = 100, 1000
"""Texts and images, and tool calls, of one message."""

_Id = Annotated[str, MinLen(1), MaxLen(200)]
ContentParts = Annotated[list[ContentPart], MinLen(1), MaxLen(MAX_PARTS)]
"""Texts and images of one message."""


@with_config(CLOSED)
class FunctionCallData(TypedDict):
    """The function of a tool call."""

    name: _Id
    arguments: Text
    """The arguments as JSON text, as the model wrote them."""


@with_config(CLOSED)
class ToolCallData(TypedDict):
    """A tool call of an assistant."""

    id: _Id
    type: NotRequired[Literal["function"]]
    function: FunctionCallData


@with_config(CLOSED)
class UserMessage(TypedDict):
    """What a user said."""

    role: Literal["user"]
    content: Text | ContentParts


@with_config(CLOSED)
class AssistantMessage(TypedDict):
    """What the model answered: a text, tool calls, or both."""

    role: Literal["assistant"]
    content: NotRequired[Text | Annotated[list[TextPart], MaxLen(MAX_PARTS)] | None]
    tool_calls: NotRequired[Annotated[list[ToolCallData], MaxLen(MAX_CALLS)]]


@with_config(CLOSED)
class ToolMessage(TypedDict):
    """The result of a tool call."""

    role: Literal["tool"]
    tool_call_id: _Id
    content: Text | Annotated[list[TextPart], MaxLen(MAX_PARTS)]


ConversationMessage = Annotated[UserMessage | AssistantMessage | ToolMessage, Discriminator("role")]


def _check(data: Any, check_shape: ValidatorFunctionWrapHandler) -> Any:
    """Check each message, and that calls and results belong together; all problems are raised at once."""
    errors: list[InitErrorDetails] = []
    checked: Any = None
    try:
        checked = check_shape(data)
    except ValidationError as error:
        for detail in error.errors(include_url=False):
            kind = PydanticCustomError(cast("Any", detail["type"]), cast("Any", detail["msg"]), detail.get("ctx"))
            location = (*detail["loc"][:1], *detail["loc"][2:])  # without the role, which names the shape
            errors.append({"type": kind, "loc": location, "input": detail["input"]})
    messages = as_array(data)
    for location, message in _misplaced(messages if len(messages) <= MAX_MESSAGES else ()):
        kind = PydanticCustomError("value_error", cast("Any", message))
        errors.append({"type": kind, "loc": location, "input": data})
    if errors:
        raise ValidationError.from_exception_data("messages", errors)
    return checked


def _misplaced(messages: Sequence[Any]) -> Iterator[tuple[tuple[int | str, ...], str]]:
    """Tool results without their call, and tool calls without their result."""
    waiting: dict[str, int] = {}
    end: dict[str, Any] = {}
    for index, message in enumerate([*map(as_object, messages), end]):
        if message.get("role") == "tool":
            id_ = message.get("tool_call_id")
            if isinstance(id_, str) and waiting.pop(id_, None) is None:
                yield (index, "tool_call_id"), f"No tool call {short_repr(id_)} right before waits for this result"
            continue
        for id_, caller in waiting.items():
            yield (caller, "tool_calls"), f"The tool call {short_repr(id_)} has no result right after it"
        calls = as_array(message.get("tool_calls"))
        ids = [id_ for call in calls if isinstance(id_ := as_object(call).get("id"), str)]
        waiting = dict.fromkeys(ids, index)
        if len(waiting) < len(ids):
            yield (index, "tool_calls"), "Two tool calls have the same id"
        if message.get("role") == "assistant" and not calls and message.get("content") is None:
            yield (index,), "An assistant's message needs a content or tool calls"


Conversation = Annotated[Annotated[list[ConversationMessage], Strict(), MaxLen(MAX_MESSAGES)], WrapValidator(_check)]
"""Messages of earlier turns, oldest first; each tool call is followed by its result."""

_conversation: TypeAdapter[Any] = TypeAdapter(Conversation)
_parts: TypeAdapter[Any] = TypeAdapter(ContentParts)


def parse_messages(data: object) -> tuple[Message, ...]:
    """Messages from JSON data.

    Args:
        data: A list of `{"role": "user" | "assistant" | "tool", "content": …, "tool_calls"?, "tool_call_id"?}`.

    Raises:
        MessagesError: With everything that is wrong.
    """
    if isinstance(data, tuple):
        data = list(cast("tuple[object, ...]", data))
    try:
        checked = _conversation.validate_python(data)
    except ValidationError as error:
        problems = to_problems(error.errors(include_url=False), data)
        raise MessagesError("The messages are invalid.", problems=problems) from None
    return tuple(map(_message, checked))


def parse_content(parts: object) -> str | tuple[ContentPart, ...]:
    """The content of a user's message from JSON data.

    Raises:
        MessagesError: With everything that is wrong.
    """
    try:
        return _content(_parts.validate_python(parts))
    except ValidationError as error:
        problems = to_problems(error.errors(include_url=False), parts)
        raise MessagesError("The input is invalid.", problems=problems) from None


def to_data(messages: Sequence[Message]) -> list[dict[str, Any]]:
    """Messages as JSON data, without system messages."""
    return [message_data(message) for message in messages if message.role != "system"]


def _message(data: Any) -> Message:
    calls = tuple(
        ToolCall(call["id"], call["function"]["name"], call["function"]["arguments"])
        for call in data.get("tool_calls", ())
    )
    return Message(data["role"], _content(data.get("content") or ""), calls, data.get("tool_call_id"))


def _content(data: Any) -> str | tuple[ContentPart, ...]:
    """Texts without an image are one text, so that a message is the same in its own turn and in later ones."""
    if isinstance(data, str):
        return data
    return tuple(data) if any(part["type"] != "text" for part in data) else "\n".join(part["text"] for part in data)


def message_data(message: Message) -> dict[str, Any]:
    """A message in the shape of Chat Completions."""
    content = message.content if isinstance(message.content, str) else list(message.content)
    data: dict[str, Any] = {"role": message.role, "content": content}
    if message.tool_calls:
        data["content"] = content or None
        data["tool_calls"] = [
            {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments or "{}"}}
            for call in message.tool_calls
        ]
    if message.tool_call_id is not None:
        data["tool_call_id"] = message.tool_call_id
    return data


def turns(messages: Sequence[Message]) -> list[Sequence[Message]]:
    """The messages by turn: each begins with a user message, except perhaps the first."""
    starts = [index for index, message in enumerate(messages) if message.role == "user" and index > 0]
    return [
        messages[start:end] for start, end in zip([0, *starts], [*starts, len(messages)], strict=True) if end > start
    ]
