"""Conversations as JSON data: the messages of earlier turns that a run is given, and those that it returns.

The shape is that of the Chat Completions protocol, which most clients and providers share. There are no system
messages, because those are the blueprint's. An assistant's message and its tool calls have the provider's further
fields beside their own, as the provider wrote them. A conversation that a run returns is one that a run takes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any, Literal, NotRequired, cast

from annotated_types import MaxLen, MinLen
from pydantic import (
    ConfigDict,
    Discriminator,
    JsonValue,
    Strict,
    Tag,
    TypeAdapter,
    ValidationError,
    ValidatorFunctionWrapHandler,
    WrapValidator,
    with_config,
)
from pydantic_core import InitErrorDetails, PydanticCustomError
from typing_extensions import TypedDict

from podwright.errors import MessagesError
from podwright.json_data import as_array, as_object, copy_json, is_set, nested_deeper
from podwright.messages import CLOSED, ContentPart, Message, Text, TextPart, ToolCall
from podwright.text import short_repr
from podwright.validation_errors import to_problems

MAX_MESSAGES = 10_000
"""Messages of the longest conversation."""
MAX_PARTS = 100
"""Texts and images of one message."""
PROVIDER = "podwright_provider"
"""The key of the provider that the further fields of an assistant's message came from."""

_OPEN = CLOSED | ConfigDict(extra="allow")
"""The pydantic configuration of what providers may give further fields."""
_MAX_DEPTH = 100
"""Levels of a further field."""
_NOT_SENT_BACK = ("refusal", "audio", "function_call", "index")
"""Keys that clients send back as they got them, and that say the same as others."""

_Name = Annotated[str, MinLen(1)]  # providers make names and ids of any length
ContentParts = Annotated[list[ContentPart], MinLen(1), MaxLen(MAX_PARTS)]
"""Texts and images of one message."""


@with_config(_OPEN)
class FunctionCallData(TypedDict):
    """The function of a tool call. It may have further keys of its provider."""

    name: _Name
    arguments: str
    """The arguments as JSON text, as the model wrote them."""


@with_config(_OPEN)
class ToolCallData(TypedDict):
    """A tool call of an assistant. It may have further keys of its provider, such as a signature."""

    id: _Name
    type: NotRequired[Literal["function"]]
    function: FunctionCallData


@with_config(CLOSED)
class UserMessage(TypedDict):
    """What a user said."""

    role: Literal["user"]
    content: Text | ContentParts


def _kind_of_part(part: object) -> str:
    return "text" if as_object(part).get("type") == "text" else "other"


@with_config(_OPEN)
class AnswerText(TypedDict):
    """A text of an answer. It may have further keys of its provider."""

    type: Literal["text"]
    text: str


AnswerPart = Annotated[
    Annotated[AnswerText, Tag("text")] | Annotated[dict[str, JsonValue], Tag("other")],
    Discriminator(_kind_of_part),
]
"""A text of the answer, or another part that its provider has put there, such as a thought."""


@with_config(_OPEN)
class AssistantMessage(TypedDict):
    """What the model answered: a text, tool calls, or both.

    It may have further keys of its provider, such as thoughts; they go back to that provider as they are. One without
    text and tool calls is left out.
    """

    role: Literal["assistant"]
    content: NotRequired[str | list[AnswerPart] | None]
    tool_calls: NotRequired[list[ToolCallData] | None]
    podwright_provider: NotRequired[str]
    """The provider that the further keys came from; by default that of the component's model."""


@with_config(CLOSED)
class ToolMessage(TypedDict):
    """The result of a tool call."""

    role: Literal["tool"]
    tool_call_id: _Name
    content: str | list[TextPart]


ConversationMessage = Annotated[
    UserMessage | AssistantMessage | ToolMessage, Discriminator("role")
]


def _check(data: Any, check_shape: ValidatorFunctionWrapHandler) -> Any:
    """Check each message, and that calls and results belong together; all problems are raised at once.

    Null means that a key is not set.
    """
    data = (
        [_without_nulls(message) for message in cast("list[Any]", data)]
        if isinstance(data, list)
        else data
    )
    errors: list[InitErrorDetails] = []
    checked: Any = None
    try:
        checked = check_shape(data)
    except ValidationError as error:
        for detail in error.errors(include_url=False):
            kind = PydanticCustomError(
                cast("Any", detail["type"]),
                cast("Any", detail["msg"]),
                detail.get("ctx"),
            )
            # without the role, which names the shape
            location = (*detail["loc"][:1], *detail["loc"][2:])
            errors.append({"type": kind, "loc": location, "input": detail["input"]})
    messages = as_array(data)
    for location, message in _misplaced(
        messages if len(messages) <= MAX_MESSAGES else ()
    ):
        kind = PydanticCustomError("value_error", cast("Any", message))
        errors.append({"type": kind, "loc": location, "input": data})
    if errors:
        raise ValidationError.from_exception_data("messages", errors)
    return checked


def _without_nulls(message: Any) -> Any:
    """A message without the keys that are null, of its parts and tool calls as well."""
    if not isinstance(message, dict):
        return message
    fields = _set_fields(message)
    # the parts of an answer are its provider's
    for key in ("tool_calls",) if fields.get("role") == "assistant" else ("content",):
        if isinstance(fields.get(key), list):
            fields[key] = [_set_fields(item) for item in fields[key]]
    return fields


def _set_fields(value: Any) -> Any:
    if not isinstance(value, dict):
        return value
    return {
        key: item
        for key, item in cast("dict[Any, Any]", value).items()
        if item is not None
    }


def _misplaced(messages: Sequence[Any]) -> Iterator[tuple[tuple[int | str, ...], str]]:
    """Tool results without their call, and tool calls without their result."""
    waiting: dict[str, int] = {}
    end: dict[str, Any] = {}
    for index, message in enumerate([*map(as_object, messages), end]):
        if message.get("role") == "tool":
            id_ = message.get("tool_call_id")
            if isinstance(id_, str) and waiting.pop(id_, None) is None:
                yield (
                    (index, "tool_call_id"),
                    f"No tool call {short_repr(id_)} right before waits for this result",
                )
            continue
        for id_, caller in waiting.items():
            yield (
                (caller, "tool_calls"),
                f"The tool call {short_repr(id_)} has no result right after it",
            )
        calls = as_array(message.get("tool_calls"))
        ids = [
            id_ for call in calls if isinstance(id_ := as_object(call).get("id"), str)
        ]
        waiting = dict.fromkeys(ids, index)
        if len(waiting) < len(ids):
            yield (index, "tool_calls"), "Two tool calls have the same id"
        if message.get("role") == "assistant" and (key := _unreadable_field(message)):
            yield (index, key), "Further fields of a message must be JSON data"


def _unreadable_field(message: Mapping[str, Any]) -> str | None:
    """The key of a further field that is not JSON data; None if there is none."""
    fields = _further(message, AssistantMessage)
    calls = list(map(as_object, as_array(message.get("tool_calls"))))
    functions = [as_object(call.get("function")) for call in calls]
    fields["tool_calls"] = [
        *(_further(call, ToolCallData) for call in calls),
        *(_further(function, FunctionCallData) for function in functions),
    ]
    for key, value in fields.items():
        try:
            # the first line finds data that is deeper than the second one can look
            if nested_deeper(value, _MAX_DEPTH):
                return key
            _json.validate_python(value)
        except ValidationError:
            return key
    return None


Conversation = Annotated[
    Annotated[list[ConversationMessage], Strict(), MaxLen(MAX_MESSAGES)],
    WrapValidator(_check),
]
"""Messages of earlier turns, oldest first; each tool call is followed by its result."""

_json: TypeAdapter[Any] = TypeAdapter(JsonValue)
_conversation: TypeAdapter[Any] = TypeAdapter(Conversation)
_parts: TypeAdapter[Any] = TypeAdapter(ContentParts)


def parse_messages(data: object) -> tuple[Message, ...]:
    """Messages from JSON data.

    Args:
        data: A list of `{"role": "user" | "assistant" | "tool", "content": …, "tool_calls"?, "tool_call_id"?}`. An
            assistant's message without text and tool calls, as clients keep it of an answer that was stopped before
            it began, is left out.

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
    return tuple(
        message for message in map(read_message, checked) if not _is_empty(message)
    )


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
    """Messages as JSON data, without system messages and empty answers."""
    return [
        message_data(message)
        for message in messages
        if message.role != "system" and not _is_empty(message)
    ]


def _is_empty(message: Message) -> bool:
    """Whether a message is an answer without text and tool calls, which many providers refuse."""
    if message.role != "assistant":
        return False
    return (
        not message.tool_calls
        and not message.text.strip()
        and "content" not in message.provider_fields
    )


def read_message(data: Mapping[str, Any]) -> Message:
    """A message from valid data of it; what an assistant's message has besides are fields of its provider."""
    if data["role"] != "assistant":
        return Message(
            data["role"],
            _content(data["content"]),
            tool_call_id=data.get("tool_call_id"),
        )
    fields = copy_json(_further(data, AssistantMessage))
    content = data.get("content") or ""
    if not isinstance(content, str):
        texts = [part["text"] for part in content if part.get("type") == "text"]
        has_others = any(part.keys() != {"type", "text"} for part in content)
        if has_others:
            fields["content"] = copy_json(content)
        # a provider's parts are pieces of one text, those of a client are paragraphs
        content = ("" if has_others else "\n").join(texts)
    calls = tuple(map(_tool_call, data.get("tool_calls") or ()))
    return Message(
        "assistant",
        content,
        calls,
        provider_fields=fields,
        provider=data.get(PROVIDER, ""),
    )


def _tool_call(data: Any) -> ToolCall:
    fields = copy_json(_further(data, ToolCallData))
    if in_function := _further(data["function"], FunctionCallData):
        fields["function"] = copy_json(in_function)
    return ToolCall(
        data["id"], data["function"]["name"], data["function"]["arguments"], fields
    )


def _further(data: Mapping[str, Any], shape: Any) -> dict[str, Any]:
    """The fields that the shape does not have, as far as they are set."""
    own = (*shape.__required_keys__, *shape.__optional_keys__, *_NOT_SENT_BACK)
    return {
        key: value for key, value in data.items() if key not in own and is_set(value)
    }


def _content(data: Any) -> str | tuple[ContentPart, ...]:
    """Texts without an image are one text, so that a message is the same in its own turn and in later ones."""
    if isinstance(data, str):
        return data
    return (
        tuple(data)
        if any(part["type"] != "text" for part in data)
        else "\n".join(part["text"] for part in data)
    )


def message_data(message: Message) -> dict[str, Any]:
    """A message in the shape of Chat Completions, with the further fields of its provider, and that provider."""
    data = chat_message(message)
    if message.provider_fields or any(
        call.provider_fields for call in message.tool_calls
    ):
        data = copy_json(data)
        if message.provider:
            data[PROVIDER] = message.provider
    return data


def chat_message(message: Message) -> dict[str, Any]:
    """A message as Chat Completions has it, with the further fields of its provider."""
    content = (
        message.content if isinstance(message.content, str) else list(message.content)
    )
    data: dict[str, Any] = {"role": message.role, "content": content}
    if message.tool_calls:
        data["content"] = content or None
        data["tool_calls"] = [_call_data(call) for call in message.tool_calls]
    if message.tool_call_id is not None:
        data["tool_call_id"] = message.tool_call_id
    data.update(message.provider_fields)
    return data


def _call_data(call: ToolCall) -> dict[str, Any]:
    function = {"name": call.name, "arguments": call.arguments or "{}"}
    data: dict[str, Any] = {"id": call.id, "type": "function", "function": function}
    if call.provider_fields:
        data.update(call.provider_fields)
        data["function"] = {
            **as_object(call.provider_fields.get("function")),
            **function,
        }
    return data


def turns(messages: Sequence[Message]) -> list[Sequence[Message]]:
    """The messages by turn: each begins with a user message, except perhaps the first."""
    starts = [
        index
        for index, message in enumerate(messages)
        if message.role == "user" and index > 0
    ]
    return [
        messages[start:end]
        for start, end in zip([0, *starts], [*starts, len(messages)], strict=True)
        if end > start
    ]
