"""Request and response bodies of the Chat Completions protocol.

Providers differ in what they omit and what they add. Missing fields count as absent. Further fields of a message and
of its tool calls are kept, and go back to their provider with the message. A response is invalid only if it has no
choice, a tool call without a name, or neither text nor tool calls.
"""

from __future__ import annotations

import re
from typing import Any, cast

from podwright.data.finish_reasons import (
    MAY_BE_EMPTY,
    ending_of,
    is_end,
    is_failure,
)
from podwright.data.json_data import (
    JsonMapping,
    JsonObject,
    as_array,
    as_object,
)
from podwright.data.json_forms import to_utf8_text
from podwright.messages.conversation import chat_message
from podwright.messages.messages import (
    TOOL_CHOICES,
    Message,
    ModelRequest,
    ModelResponse,
    ToolSchema,
)
from podwright.messages.usage import Usage
from podwright.models.base import check_tool_calls
from podwright.models.http.error_body import ErrorBody, is_object, read_error
from podwright.models.http.refusals import RefusedError
from podwright.models.offline.offline import estimate_input, estimate_tokens
from podwright.models.prices.pricing import Terms
from podwright.models.protocols.answer import (
    MAX_NAME,
    InvalidResponseError,
    Piece,
)
from podwright.models.protocols.foreign_fields import without_foreign_fields
from podwright.models.protocols.media import (
    check_content,
    to_chat_part,
    with_media_after_results,
)
from podwright.models.protocols.pieces import (
    ToolCallPieces,
    merge_fields,
    merge_items,
    set_fields,
)
from podwright.models.protocols.reasoning import reasoning_text
from podwright.models.protocols.strict_schemas import is_strict
from podwright.models.providers import Endpoint, MediaForms
from podwright.models.token_counts import TokenCounts, as_uncounted

_REASONING_MODEL = re.compile(r"o\d|gpt-([5-9]|\d\d)")
"""Names of OpenAI's reasoning models, which refuse `max_tokens`."""

_OWN_KEYS = ("role", "content", "tool_calls", "function_call", "refusal")
"""Keys of a message that are read here."""


def request_body(
    request: ModelRequest,
    model: str,
    endpoint: Endpoint,
    *,
    provider: str,
    stream: bool,
) -> JsonObject:
    """The body of a request.

    Args:
        request: The request.
        model: The model's name as the provider knows it.
        endpoint: How the provider differs from others.
        provider: The provider's name; what other providers have added to messages is left out.
        stream: Whether the response is to be streamed.

    Raises:
        ContentUnsupportedError: The provider does not take a file, or audio.
    """
    forms = endpoint.media.of_model(model)
    own = with_media_after_results(
        without_foreign_fields(request.messages, provider), forms
    )
    messages: list[JsonObject] = []
    for message in own:
        check_content(message, request.model, forms)
        messages.append(_message_data(message, forms))
    body: JsonObject = {"model": model, "messages": messages}
    body.update(request.settings)
    body.pop("timeout", None)
    body.update(body.pop("parameters", {}))
    if "max_tokens" in body and _has_completion_tokens(model, endpoint):
        body["max_completion_tokens"] = body.pop("max_tokens")
    if endpoint.unsigned_call:
        _sign_calls(body["messages"], endpoint.unsigned_call)
    if "seed" in body:
        body[endpoint.seed] = body.pop("seed")
    if request.tools and endpoint.strict:
        body["tools"] = [_strict_tool(tool) for tool in request.tools]
    elif request.tools:
        body["tools"] = request.tools
    else:
        body.pop("parallel_tool_calls", None)
    if request.tools and request.tool_choice is not None:
        body["tool_choice"] = _tool_choice(request.tool_choice)
    if request.output is not None:
        schema: JsonObject = {
            "name": request.output.name,
            "schema": request.output.schema,
        }
        if endpoint.strict and is_strict(request.output.schema):
            schema["strict"] = True
        body["response_format"] = {"type": "json_schema", "json_schema": schema}
    if stream:
        body["stream"] = True
        if endpoint.stream_options:
            body["stream_options"] = {"include_usage": True}
    return body


def _strict_tool(tool: ToolSchema) -> ToolSchema:
    """Return the tool with `strict`, unless it says otherwise or would mean something else with it."""
    function = tool["function"]
    if "strict" in function or not is_strict(function["parameters"]):
        return tool
    return {"type": "function", "function": {**function, "strict": True}}


def _tool_choice(choice: str) -> str | JsonObject:
    if choice in TOOL_CHOICES:
        return choice
    return {"type": "function", "function": {"name": choice}}


def _message_data(message: Message, forms: MediaForms) -> JsonObject:
    data = chat_message(message)
    if not isinstance(message.content, str):
        data["content"] = [
            to_chat_part(part, forms) for part in message.content
        ]
    return data


def _has_completion_tokens(model: str, endpoint: Endpoint) -> bool:
    """Whether a limit of tokens is called `max_completion_tokens`."""
    if endpoint.completion_tokens:
        return True
    return _REASONING_MODEL.match(model) is not None


def _sign_calls(messages: list[JsonObject], fields: JsonMapping) -> None:
    """Add fields to the first tool call of each message, where it has none of its provider."""
    for message in messages:
        for call in message.get("tool_calls", [])[:1]:
            for key, value in fields.items():
                call.setdefault(key, value)


class CompletionAnswer:
    """Builds a `ModelResponse` from a whole completion, or from the chunks of a streamed one.

    Args:
        name: The model that answers, "<provider>/<model_name>".
    """

    def __init__(self, name: str = "") -> None:
        self._name = name
        self.finish_reason = ""
        """Why the model stopped, in the provider's words; empty before the end, and if the provider does not say."""
        self.is_over = False
        """Whether the answer itself has said that it is over; a stream of this protocol says it, not an answer."""
        self.is_streamed = False
        """Whether the answer comes in chunks."""
        self.has_begun = False
        """Whether a part of an answer, or its counts, have arrived."""
        self.has_choice = False
        """Whether a part of an answer has arrived."""
        self._provider = name.partition("/")[0]
        self._text: list[str] = []
        self._refusal: list[str] = []
        """The words of a refusal, which are in the text too."""
        self._parts: list[Any] = []
        """The content in parts, if it has others than texts."""
        self._reasoning: list[str] = []
        self._calls = ToolCallPieces()
        self._fields: JsonObject = {}
        self._field_pieces: list[JsonObject] = []
        self._counts = TokenCounts()
        self._counts_grow = False
        """Whether the last counts came with a piece of the answer."""
        self._id = ""
        self._model = ""

    def add(self, data: Any) -> Piece:
        """Add a completion or a chunk, and return what it adds to the answer.

        Raises:
            InvalidResponseError: The data is neither.
            RefusedError: The data is an error.
        """
        if not _is_completion(data):
            self._counts.add(as_object(data))
            if self._counts.counts:
                self.has_begun = True
            error = read_error(data)
            if error == ErrorBody() or not is_object(data):
                raise InvalidResponseError
            raise RefusedError(error)
        try:
            return self._add(data)
        except (AttributeError, TypeError, KeyError, IndexError) as error:
            raise InvalidResponseError from error

    def _add(self, data: Any) -> Piece:
        self._id = self._id or _name(data.get("id"))
        self._model = self._model or _name(data.get("model"))
        self._counts.add(data)
        self.has_begun = True
        choices = data.get("choices")
        if data.get("usage"):
            self._counts_grow = bool(choices)
        # a chunk with usage only, or with a content filter's result for the prompt
        if not choices:
            return Piece()
        self.has_choice = True
        return self._add_choice(choices[0])

    def _add_choice(self, choice: Any) -> Piece:
        self._counts.add(choice)
        reason = str(choice.get("finish_reason") or "")
        if choice.get("error"):
            raise RefusedError(read_error(choice["error"]))
        if is_failure(reason):
            raise RefusedError(read_error({"code": reason}))
        if is_end(reason):
            self.finish_reason = reason
        delta = choice.get("delta")
        message = choice.get("message")
        if delta or (delta is not None and not message):
            self.is_streamed = True
            return self._add_part(delta, whole=False)
        # some streams end with the whole message once more
        if message and self.is_streamed:
            return Piece()
        return self._add_part(message or {}, whole=True)

    def _add_part(self, part: Any, *, whole: bool) -> Piece:
        calls = _calls_of(part)
        if whole:
            check_tool_calls(self._name, len(calls))
        for call in calls:
            self._calls.add(call, whole=whole)
            check_tool_calls(self._name, len(self._calls))
        fields = {
            key: value for key, value in part.items() if key not in _OWN_KEYS
        }
        if whole:
            self.add_fields(fields)
        elif fields:
            self._field_pieces.append(fields)
        content = part.get("content")
        refusal = _refusal_text(part)
        if refusal:
            self._refusal.append(refusal)
        text = _content_text(content) or refusal
        is_list = isinstance(content, list)
        if is_list or self._parts:
            self._add_parts(content, text)
        self._text.append(text)
        reasoning = ""
        if fields or is_list:
            reasoning = reasoning_text(part)
        if reasoning:
            self._reasoning.append(reasoning)
        return Piece(text, reasoning)

    def _add_parts(self, content: Any, text: str) -> None:
        """Keep a content in parts, because some parts are not text, and must go back as they came."""
        if not self._parts:
            self._add_text_part("".join(self._text))
        parts = as_array(content)
        if not parts:
            self._add_text_part(text)
        self._parts += parts

    def _add_text_part(self, text: str) -> None:
        if text:
            self._parts.append({"type": "text", "text": text})

    def add_fields(self, fields: JsonMapping) -> None:
        """Add whole further fields of the message."""
        self._fields.update(fields)

    def build(self, request: ModelRequest) -> ModelResponse:
        """The response.

        Its usage has the provider's token counts. Without them they are estimated from the texts.

        Raises:
            InvalidResponseError: There was no choice, a tool call without a name, or neither text nor tool calls.
        """
        if not self.has_choice or self._calls.has_nameless():
            raise InvalidResponseError
        calls = tuple(self._calls.tool_calls())
        text = to_utf8_text("".join(self._text))
        refusal = to_utf8_text("".join(self._refusal))
        ending = ending_of(
            self.finish_reason,
            has_calls=bool(calls),
            is_refused=bool(refusal.strip()),
        )
        is_empty = not text and not calls
        if is_empty and ending.reason not in MAY_BE_EMPTY:
            raise InvalidResponseError(
                "the answer has neither text nor tool calls"
            )
        return ModelResponse(
            text=text,
            tool_calls=calls,
            usage=self._usage(request),
            finish_reason=ending.reason,
            model=self._model,
            id=self._id,
            reasoning=to_utf8_text("".join(self._reasoning)),
            provider_fields=self._provider_fields(),
            provider=self._provider,
            provider_finish_reason=ending.word,
            refusal=refusal,
        )

    def _provider_fields(self) -> JsonObject:
        fields = merge_fields(self._field_pieces)
        fields.update(self._fields)
        fields = set_fields(fields)
        if all(part.get("type") == "text" for part in self._parts):
            return fields
        fields["content"] = self._parts
        if self.is_streamed:
            fields["content"] = merge_items(self._parts)
        return fields

    def usage_so_far(self, request: ModelRequest) -> Usage | None:
        """The usage of an answer that has failed; None if it had not begun."""
        if not self.has_begun:
            return None
        usage = self._usage(request)
        if self._is_partly_counted:
            return as_uncounted(usage)
        return usage

    @property
    def _is_partly_counted(self) -> bool:
        """Whether counts that grow with the answer were cut off with it."""
        return self._counts_grow and not self.finish_reason

    def _usage(self, request: ModelRequest) -> Usage:
        def estimate() -> Usage:
            written = "".join((*self._text, *self._reasoning))
            tokens = estimate_tokens(written) + self._calls.estimate()
            return Usage(estimate_input(request), tokens)

        return self._counts.usage(estimate)

    @property
    def reported_cost(self) -> float | None:
        """The cost in USD that the response reports; None if it is that of a part of the answer."""
        if self._is_partly_counted:
            return None
        return self._counts.cost

    def terms(self) -> Terms:
        """What the price depends on besides the tokens."""
        return self._counts.terms(self._model)


def _calls_of(part: Any) -> list[Any]:
    """The tool calls in a message or a piece of one, of which some providers give one without a list."""
    calls: Any = part.get("tool_calls")
    if not calls:
        return _legacy_calls(part)
    if isinstance(calls, list):
        return [call for call in cast("list[Any]", calls) if call]
    return [calls]


def _legacy_calls(part: Any) -> list[Any]:
    function = part.get("function_call")
    if not function:
        return []
    return [{"index": 0, "function": function}]


def _is_completion(data: Any) -> bool:
    """Whether data is a completion or a chunk of one, and no error."""
    if not isinstance(data, dict):
        return False
    fields = cast("JsonObject", data)
    if fields.get("error"):
        return False
    if fields.get("choices"):
        return True
    if as_object(fields.get("usage")):
        return True
    if read_error(fields).status:
        return False
    if read_error(fields.get("base_resp")).code:
        return False
    if "choices" in fields:
        return True
    return "chunk" in str(fields.get("object"))


def _name(value: Any) -> str:
    """A name that a provider gives, which telemetry shows."""
    name = to_utf8_text(str(value or ""))
    return name[:MAX_NAME]


def _content_text(content: Any) -> str:
    """The text of a content, which may be null, a string, or parts of which some are text."""
    if not content:
        return ""
    if isinstance(content, str):
        return content
    text = ""
    for part in as_array(content):
        if part.get("type") == "text":
            text += part["text"]
    return text


def _refusal_words(value: object) -> str:
    """Return the words of a refusal; empty if there are none.

    Raises:
        InvalidResponseError: It is not a text.
    """
    if value is None:
        return ""
    if not isinstance(value, str):
        raise InvalidResponseError("the refusal is not a text")
    return value


def _refusal_text(part: Any) -> str:
    """The words of a refusal in a message or a piece of one: beside its content, or as parts of it."""
    refusal = _refusal_words(part.get("refusal"))
    if refusal:
        return refusal
    content = part.get("content")
    if not isinstance(content, list):
        return ""
    text = ""
    for item in as_array(cast("object", content)):
        if item.get("type") == "refusal":
            text += _refusal_words(item.get("refusal"))
    return text
