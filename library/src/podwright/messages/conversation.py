"""Conversations as JSON data: the messages of earlier turns that a run is given, and those that it returns.

The shape is that of the Chat Completions protocol, which most clients and providers share. It has no system
messages, because those are the blueprint's. An assistant's message and its tool calls have the provider's further
fields beside their own, as the provider wrote them. A conversation that a run returns is one that a run takes.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any, Literal, NotRequired, cast

from pydantic import (
    ConfigDict,
    Discriminator,
    Field,
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

from podwright.data.json_data import (
    JsonMapping,
    JsonObject,
    as_array,
    as_object,
    copy_json,
    is_set,
    nested_deeper,
    to_text,
)
from podwright.data.json_forms import to_utf8_data
from podwright.data.text import short_repr
from podwright.errors import MessagesError
from podwright.messages.messages import (
    CLOSED,
    ContentPart,
    Message,
    Text,
    ToolCall,
)
from podwright.schemas.validation_errors import to_problems

MAX_MESSAGES = 10_000
"""Messages of the longest conversation."""
MAX_PARTS = 100
"""Texts, images and files of one message."""
PROVIDER = "podwright_provider"
"""The key of the provider that the further fields of an assistant's message came from."""

_OPEN = CLOSED | ConfigDict(extra="allow")
"""The pydantic configuration of what providers may give further fields."""
_MAX_DEPTH = 100
"""Levels of a further field."""
_NOT_SENT_BACK = frozenset({"refusal", "audio", "function_call", "index"})
"""Keys that clients send back as they got them, and that say the same as others."""

_Name = Annotated[
    str, Field(min_length=1)
]  # providers make names and ids of any length
ContentParts = Annotated[
    list[ContentPart], Field(min_length=1, max_length=MAX_PARTS)
]
"""Texts, images and files of one message."""


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
    if as_object(part).get("type") == "text":
        return "text"
    return "other"


@with_config(_OPEN)
class AnswerText(TypedDict):
    """A text of an answer. It may have further keys of its provider."""

    type: Literal["text"]
    text: str


_TaggedText = Annotated[AnswerText, Tag("text")]
_TaggedOther = Annotated[dict[str, JsonValue], Tag("other")]
AnswerPart = Annotated[_TaggedText | _TaggedOther, Discriminator(_kind_of_part)]
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
    podwright_provider: NotRequired[str | None]
    """The provider that the further keys came from; by default that of the component's model."""


@with_config(CLOSED)
class ToolMessage(TypedDict):
    """The result of a tool call."""

    role: Literal["tool"]
    tool_call_id: _Name
    content: str | list[ContentPart]
    """A text; or texts, images and files, of which a protocol without images in results makes a message of its own."""


ConversationMessage = Annotated[
    UserMessage | AssistantMessage | ToolMessage, Discriminator("role")
]


def _check(data: Any, check_shape: ValidatorFunctionWrapHandler) -> Any:
    """Check each message, and that calls and results belong together; all problems are raised at once.

    Null means that a key is not set.
    """
    if isinstance(data, list):
        data = [_without_nulls(message) for message in cast("list[Any]", data)]
    checked: Any = None
    errors: list[InitErrorDetails] = []
    try:
        checked = check_shape(data)
    except ValidationError as error:
        errors += _shape_errors(error)
    errors += _relation_errors(as_array(data))
    if errors:
        raise ValidationError.from_exception_data("messages", errors)
    return checked


def _without_nulls(message: Any) -> Any:
    """A message without the keys that are null, of its parts and tool calls as well."""
    if not isinstance(message, dict):
        return message
    fields = _set_fields(message)
    key = "content"
    # the parts of its content are its provider's
    if fields.get("role") == "assistant":
        key = "tool_calls"
    if isinstance(fields.get(key), list):
        fields[key] = [_set_fields(item) for item in fields[key]]
    return fields


def _set_fields(value: Any) -> Any:
    if not isinstance(value, dict):
        return value
    fields = cast("dict[Any, Any]", value)
    return {key: item for key, item in fields.items() if item is not None}


def _shape_errors(error: ValidationError) -> Iterator[InitErrorDetails]:
    for detail in error.errors(include_url=False):
        code = cast("Any", detail["type"])
        message = cast("Any", detail["msg"])
        kind = PydanticCustomError(code, message, detail.get("ctx"))
        # without the role, which names the shape
        location = detail["loc"][:1] + detail["loc"][2:]
        yield {"type": kind, "loc": location, "input": detail["input"]}


def _relation_errors(messages: list[Any]) -> Iterator[InitErrorDetails]:
    if len(messages) > MAX_MESSAGES:
        return
    for location, message in _problems_between_messages(messages):
        kind = PydanticCustomError("value_error", cast("Any", message))
        yield {"type": kind, "loc": location, "input": messages}


def _problems_between_messages(
    messages: Sequence[Any],
) -> Iterator[tuple[tuple[int, str], str]]:
    """Tool results without their call, tool calls without their result, and what is not JSON data."""
    waiting: dict[str, int] = {}
    for index, message in enumerate(map(as_object, messages)):
        if message.get("role") == "tool":
            id_ = message.get("tool_call_id")
            if isinstance(id_, str) and waiting.pop(id_, None) is None:
                reason = f"No tool call {short_repr(id_)} right before waits for this result"
                yield (index, "tool_call_id"), reason
            continue
        yield from _without_result(waiting)
        ids = _call_ids(message)
        waiting = dict.fromkeys(ids, index)
        if len(waiting) < len(ids):
            yield (index, "tool_calls"), "Two tool calls have the same id"
        if message.get("role") == "assistant":
            key = _unreadable_field(message)
            if key is not None:
                yield (
                    (index, key),
                    "Further fields of a message must be JSON data",
                )
    yield from _without_result(waiting)


def _without_result(
    waiting: Mapping[str, int],
) -> Iterator[tuple[tuple[int, str], str]]:
    for id_, caller in waiting.items():
        reason = f"The tool call {short_repr(id_)} has no result right after it"
        yield (caller, "tool_calls"), reason


def _call_ids(message: JsonMapping) -> list[str]:
    calls = as_array(message.get("tool_calls"))
    ids = [as_object(call).get("id") for call in calls]
    return [id_ for id_ in ids if isinstance(id_, str)]


def _unreadable_field(message: JsonMapping) -> str | None:
    """The key of a further field that is not JSON data; None if there is none."""
    fields = _further(message, _ASSISTANT_KEYS)
    in_calls: list[JsonObject] = []
    for call in map(as_object, as_array(message.get("tool_calls"))):
        in_calls.append(_further(call, _CALL_KEYS))
        in_calls.append(
            _further(as_object(call.get("function")), _FUNCTION_KEYS)
        )
    fields["tool_calls"] = in_calls
    for key, value in fields.items():
        if not _is_json(value):
            return key
    return None


def _is_json(value: object) -> bool:
    # first, because pydantic cannot look into data that is much deeper
    if nested_deeper(value, _MAX_DEPTH):
        return False
    try:
        _json.validate_python(value)
    except ValidationError:
        return False
    return True


def _keys_not_further(shape: Any) -> frozenset[str]:
    """The keys that are not further fields: those of a TypedDict, and those that are not sent back."""
    return shape.__required_keys__ | shape.__optional_keys__ | _NOT_SENT_BACK


_ASSISTANT_KEYS = _keys_not_further(AssistantMessage)
_CALL_KEYS = _keys_not_further(ToolCallData)
_FUNCTION_KEYS = _keys_not_further(FunctionCallData)

Conversation = Annotated[
    Annotated[
        list[ConversationMessage], Strict(), Field(max_length=MAX_MESSAGES)
    ],
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
    if data in ((), []):
        return ()
    if isinstance(data, tuple):
        data = list(cast("tuple[object, ...]", data))
    try:
        checked = _validate(_conversation, data)
    except ValidationError as error:
        problems = to_problems(error.errors(include_url=False), data)
        raise MessagesError(
            "The messages are invalid.", problems=problems
        ) from None
    messages = map(read_message, checked)
    return tuple(message for message in messages if not _is_empty(message))


def _validate(adapter: TypeAdapter[Any], data: object) -> Any:
    """Validate data of a conversation; its texts may have halves of surrogate pairs, as earlier inputs may.

    Raises:
        ValidationError: It is invalid.
    """
    try:
        return adapter.validate_python(data)
    except ValidationError:
        with contextlib.suppress(TypeError, ValueError, RecursionError):
            whole = to_utf8_data(data)
            if whole is not data:
                return adapter.validate_python(whole)
        raise


def parse_content(parts: object) -> str | tuple[ContentPart, ...]:
    """The content of a user's message from JSON data.

    Raises:
        MessagesError: With everything that is wrong.
    """
    try:
        return _content(_validate(_parts, parts))
    except ValidationError as error:
        problems = to_problems(error.errors(include_url=False), parts)
        raise MessagesError(
            "The input is invalid.", problems=problems
        ) from None


def as_content(data: object) -> str | tuple[ContentPart, ...]:
    """Return any JSON data as the content of a user's message: texts, images and files as they are, else its text."""
    if isinstance(data, list):
        with contextlib.suppress(MessagesError):
            return parse_content(cast("object", data))
    return to_text(data)


def to_data(messages: Sequence[Message]) -> list[JsonObject]:
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
    if message.tool_calls or message.text.strip():
        return False
    return "content" not in message.provider_fields


def read_message(data: JsonMapping) -> Message:
    """A message from valid data of it; what an assistant's message has besides are fields of its provider."""
    if data["role"] == "assistant":
        return _read_answer(data)
    content = _content(data["content"])
    return Message(data["role"], content, tool_call_id=data.get("tool_call_id"))


def _read_answer(data: JsonMapping) -> Message:
    fields = copy_json(_further(data, _ASSISTANT_KEYS))
    content = data.get("content") or ""
    if not isinstance(content, str):
        separator = "\n"
        if any(part.keys() != {"type", "text"} for part in content):
            # a provider's parts are pieces of one text, those of a client are paragraphs
            separator = ""
            fields["content"] = copy_json(content)
        texts = [part["text"] for part in content if part.get("type") == "text"]
        content = separator.join(texts)
    calls = data.get("tool_calls") or ()
    return Message(
        role="assistant",
        content=content,
        tool_calls=tuple(map(_tool_call, calls)),
        provider_fields=fields,
        provider=data.get(PROVIDER) or "",
    )


def _tool_call(data: Any) -> ToolCall:
    function = data["function"]
    fields = copy_json(_further(data, _CALL_KEYS))
    in_function = _further(function, _FUNCTION_KEYS)
    if in_function:
        fields["function"] = copy_json(in_function)
    return ToolCall(
        id=data["id"],
        name=function["name"],
        arguments=function["arguments"],
        provider_fields=fields,
    )


def _further(data: JsonMapping, own: frozenset[str]) -> JsonObject:
    """The fields beside the own ones, as far as they are set."""
    return {
        key: value
        for key, value in data.items()
        if key not in own and is_set(value)
    }


def _content(data: Any) -> str | tuple[ContentPart, ...]:
    """Texts without an image are one text, so that a message is the same in its own turn and in later ones."""
    if isinstance(data, str):
        return data
    if any(part["type"] != "text" for part in data):
        return tuple(data)
    return "\n".join(part["text"] for part in data)


def message_data(message: Message) -> JsonObject:
    """A message in the shape of Chat Completions, with the further fields of its provider, and that provider."""
    data = chat_message(message)
    if not _has_provider_fields(message):
        return data
    data = copy_json(data)
    if message.provider:
        data[PROVIDER] = message.provider
    return data


def _has_provider_fields(message: Message) -> bool:
    if message.provider_fields:
        return True
    return any(call.provider_fields for call in message.tool_calls)


def chat_message(message: Message) -> JsonObject:
    """A message as Chat Completions has it, with the further fields of its provider."""
    content = message.content
    if not isinstance(content, str):
        content = list(content)
    data: JsonObject = {"role": message.role, "content": content}
    if message.tool_calls:
        data["content"] = content or None
        data["tool_calls"] = [_call_data(call) for call in message.tool_calls]
    if message.tool_call_id is not None:
        data["tool_call_id"] = message.tool_call_id
    data.update(message.provider_fields)
    return data


def _call_data(call: ToolCall) -> JsonObject:
    function = {"name": call.name, "arguments": call.arguments or "{}"}
    data: JsonObject = {"id": call.id, "type": "function", "function": function}
    if call.provider_fields:
        data.update(call.provider_fields)
        further = as_object(call.provider_fields.get("function"))
        data["function"] = further | function
    return data


def turns(messages: Sequence[Message]) -> list[Sequence[Message]]:
    """The messages by turn: each begins with a user message, except perhaps the first."""
    found: list[Sequence[Message]] = []
    start = 0
    for index, message in enumerate(messages):
        if message.role == "user" and index > start:
            found.append(messages[start:index])
            start = index
    if messages:
        found.append(messages[start:])
    return found
