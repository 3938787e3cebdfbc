"""Answers of Anthropic's Messages protocol, whole or from the events of a stream.

Source: https://platform.claude.com/docs/en/build-with-claude/streaming
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from podwright.data.finish_reasons import (
    MAY_BE_EMPTY,
    ending_of,
    is_end,
    is_failure,
    is_pause,
)
from podwright.data.json_data import (
    JsonMapping,
    JsonObject,
    as_array,
    as_object,
)
from podwright.data.model_json import clean_arguments
from podwright.messages.messages import ModelRequest, ModelResponse, ToolCall
from podwright.messages.usage import Usage
from podwright.models.base import check_tool_calls
from podwright.models.http.error_body import ErrorBody, read_error
from podwright.models.http.refusals import RefusedError
from podwright.models.offline.offline import estimate_input, estimate_tokens
from podwright.models.prices.pricing import Terms
from podwright.models.protocols.answer import (
    MAX_NAME,
    InvalidResponseError,
    Piece,
)
from podwright.models.protocols.pieces import text_field
from podwright.models.token_counts import TokenCounts, as_uncounted, read_count

PAUSED = "pause_turn"
"""The stop reason of an answer that goes on in the next response, if it is sent back."""

_DELTAS = {
    "text_delta": "text",
    "thinking_delta": "thinking",
    "signature_delta": "signature",
}
"""Pieces of a block, and the keys of the texts that they continue."""
_PLAIN = {
    "text": {"type", "text", "citations"},
    "tool_use": {"type", "id", "name", "input", "caller"},
}
"""Blocks that are a text or a tool call and nothing else, with their keys."""


@dataclass(slots=True)
class _Block:
    """A part of an answer, as it has arrived so far."""

    fields: JsonObject
    pieces: dict[str, list[str]] = field(default_factory=dict[str, list[str]])
    """The pieces of its texts, by key."""
    arguments: list[str] = field(default_factory=list[str])
    """The pieces of the arguments of a tool call."""
    citations: list[Any] = field(default_factory=list[Any])
    """The citations that came for themselves."""

    def add(self, delta: JsonMapping) -> Piece:
        kind = str(delta.get("type"))
        if kind in _DELTAS:
            return self._add_text(_DELTAS[kind], delta)
        if kind == "input_json_delta":
            self.arguments.append(text_field(delta, "partial_json"))
        elif kind == "citations_delta":
            self.citations.append(delta.get("citation"))
        return Piece()

    def _add_text(self, key: str, delta: JsonMapping) -> Piece:
        text = text_field(delta, key)
        self.pieces.setdefault(key, []).append(text)
        if key == "text":
            return Piece(text)
        if key == "thinking":
            return Piece(reasoning=text)
        return Piece()

    @property
    def data(self) -> JsonObject:
        """The block as it would be in a whole answer."""
        data = dict(self.fields)
        for key, pieces in self.pieces.items():
            begun = text_field(data, key)
            data[key] = begun + "".join(pieces)
        if self.citations:
            begun = as_array(data.get("citations"))
            data["citations"] = begun + self.citations
        if self.arguments:
            data["input"] = _json(self.arguments_text)
        return data

    @property
    def is_tool_call(self) -> bool:
        return self.fields["type"] == "tool_use"

    @property
    def arguments_text(self) -> str:
        """The arguments of a tool call as JSON text."""
        text = "".join(self.arguments)
        if text.strip():
            return text
        whole = self.fields.get("input")
        if not whole:
            return "{}"
        return json.dumps(whole, ensure_ascii=False)

    @property
    def is_plain(self) -> bool:
        """Whether the text or the tool call of the answer is all that it has."""
        data = self.data
        if data.get("citations"):
            return False
        caller = as_object(data.get("caller"))
        if caller.get("type", "direct") != "direct":
            return False
        kind = str(data.get("type"))
        return data.keys() <= _PLAIN.get(kind, set())


def _json(text: str) -> Any:
    try:
        return json.loads(text or "{}")
    except (ValueError, RecursionError):
        return text


class MessageAnswer:
    """Builds a `ModelResponse` from a whole message, or from the events of a streamed one.

    Args:
        name: The model that answers, "<provider>/<model_name>".
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self.finish_reason = ""
        """Why the model stopped, in the provider's words; empty before the end."""
        self.is_streamed = False
        """Whether the answer comes in pieces."""
        self.is_over = False
        """Whether the last event has arrived."""
        self.has_choice = False
        """Whether a part of an answer has arrived."""
        self._id = ""
        self._model = ""
        self._explanation = ""
        """Why the model refused, in the provider's words; the text is what it had written until then."""
        self._blocks: dict[int, _Block] = {}
        self._counts: JsonObject = {}
        """The counts so far; those of the last event that has them are those of the whole answer."""

    def add(self, data: Any) -> Piece:
        """Add a message or an event, and return what it adds to the answer.

        Raises:
            InvalidResponseError: The data is neither.
            RefusedError: The data is an error.
        """
        fields = as_object(data)
        kind = str(fields.get("type") or "")
        try:
            return self._add(kind, fields)
        except (AttributeError, TypeError, KeyError, ValueError) as error:
            raise InvalidResponseError from error

    def _add(self, kind: str, fields: JsonMapping) -> Piece:
        match kind:
            case "message":
                return self._add_message(fields)
            case "message_start":
                self.is_streamed = True
                return self._add_message(fields["message"])
            case "content_block_start":
                index = int(fields["index"])
                return self._add_block(index, fields["content_block"])
            case "content_block_delta":
                index = int(fields["index"])
                block = self._blocks[index]
                return block.add(as_object(fields["delta"]))
            case "message_delta":
                end = as_object(fields.get("delta"))
                usage = as_object(fields.get("usage"))
                self._end(end, usage)
            case "message_stop":
                self.is_over = True
            case "error" | "":
                raise _refused_error(fields)
            # the end of a block, and events to come, which the documentation asks to ignore
            case _:
                pass
        return Piece()

    def _add_message(self, message: JsonMapping) -> Piece:
        self.has_choice = True
        self._id = _name(message, "id")
        self._model = _name(message, "model")
        text = ""
        reasoning = ""
        for index, block in enumerate(message["content"]):
            piece = self._add_block(index, block)
            text += piece.text
            reasoning += piece.reasoning
        usage = dict(as_object(message.get("usage")))
        # the answer has not begun: the last event has its count
        if self.is_streamed:
            usage.pop("output_tokens", None)
        self._end(message, usage)
        return Piece(text, reasoning)

    def _add_block(self, index: int, data: JsonMapping) -> Piece:
        fields = dict(data)
        block = _Block(fields)
        if block.is_tool_call:
            fields["id"] = self._call_id(fields)
        self._blocks[index] = block
        if block.is_tool_call:
            check_tool_calls(self._name, self._count_calls())
        if fields["type"] == "text":
            return Piece(text_field(fields, "text"))
        return Piece(reasoning=text_field(fields, "thinking"))

    def _count_calls(self) -> int:
        count = 0
        for block in self._blocks.values():
            if block.is_tool_call:
                count += 1
        return count

    def _call_id(self, call: JsonMapping) -> Any:
        """The id of a tool call; one of its own if another block has it, because each result belongs to one call."""
        if not call.get("id"):
            raise InvalidResponseError
        if not call.get("name"):
            raise InvalidResponseError
        id_ = call["id"]
        for block in self._blocks.values():
            if block.fields.get("id") == id_:
                return f"toolu_{os.urandom(8).hex()}"
        return id_

    def _end(self, end: JsonMapping, usage: JsonMapping) -> None:
        reason = str(end.get("stop_reason") or "")
        if is_failure(reason):
            raise RefusedError(read_error({"code": reason}))
        if is_end(reason):
            self.finish_reason = reason
        details = as_object(end.get("stop_details"))
        explanation = details.get("explanation")
        if details.get("type") == "refusal" and explanation:
            self._explanation = str(explanation)
        for key, value in usage.items():
            if value is None:
                continue
            if isinstance(value, dict | str):
                self._counts[key] = value
                continue
            before = read_count(self._counts.get(key))
            count = read_count(value)
            self._counts[key] = max(before, count)

    @property
    def is_paused(self) -> bool:
        """Whether the answer goes on in the next response."""
        return is_pause(self.finish_reason)

    @property
    def content(self) -> list[JsonObject]:
        """The blocks of the answer."""
        return [block.data for block in self._sorted_blocks()]

    def _sorted_blocks(self) -> list[_Block]:
        return [self._blocks[index] for index in sorted(self._blocks)]

    def build(self, request: ModelRequest) -> ModelResponse:
        """The response. Its further fields are the content as it came, if it is more than a text and tool calls.

        Raises:
            InvalidResponseError: There was no message, or neither text nor tool calls.
        """
        if not self.has_choice:
            raise InvalidResponseError
        blocks = self._sorted_blocks()
        text = _text_of(blocks)
        calls = [_tool_call(block) for block in blocks if block.is_tool_call]
        ending = ending_of(self.finish_reason, has_calls=bool(calls))
        may_be_empty = ending.reason in MAY_BE_EMPTY or self.is_paused
        is_empty = not text and not calls
        if is_empty and not may_be_empty:
            raise InvalidResponseError(
                "the answer has neither text nor tool calls"
            )
        provider_fields: JsonObject = {}
        if not all(block.is_plain for block in blocks):
            provider_fields["content"] = self.content
        return ModelResponse(
            text=text,
            tool_calls=tuple(calls),
            usage=self._usage(request),
            finish_reason=PAUSED if self.is_paused else ending.reason,
            model=self._model,
            id=self._id,
            reasoning=self._reasoning(),
            provider_fields=provider_fields,
            # signatures of thoughts are valid for the model that wrote them only
            provider=self._name,
            provider_finish_reason=ending.word,
            refusal=self._explanation,
        )

    def _reasoning(self) -> str:
        thoughts = [text_field(block, "thinking") for block in self.content]
        return "\n\n".join(filter(None, thoughts))

    def usage_so_far(self, request: ModelRequest) -> Usage | None:
        """The usage of an answer that has failed; None if it had not begun."""
        if not self.has_choice:
            return None
        return self._usage(request)

    def _usage(self, request: ModelRequest) -> Usage:
        def estimate() -> Usage:
            written = ""
            for block in self.content:
                written += json.dumps(block, ensure_ascii=False)
            return Usage(estimate_input(request), estimate_tokens(written))

        usage = self._token_counts().usage(estimate)
        if "output_tokens" not in self._counts:
            return as_uncounted(usage)
        return usage

    @property
    def reported_cost(self) -> float | None:
        """The cost in USD that the response reports."""
        return self._token_counts().cost

    def terms(self) -> Terms:
        """What the price depends on besides the tokens."""
        return self._token_counts().terms(self._model)

    def _token_counts(self) -> TokenCounts:
        counts = TokenCounts()
        counts.add({"usage": _usual_counts(self._counts)})
        return counts


def _name(message: JsonMapping, key: str) -> str:
    name = str(message.get(key) or "")
    return name[:MAX_NAME]


def _refused_error(fields: JsonMapping) -> RefusedError | InvalidResponseError:
    error = read_error(fields)
    if error == ErrorBody():
        return InvalidResponseError()
    return RefusedError(error)


def _text_of(blocks: Iterable[_Block]) -> str:
    text = ""
    for block in blocks:
        if block.fields["type"] == "text":
            written = block.data.get("text")
            text += str(written or "")
    return text


def _tool_call(block: _Block) -> ToolCall:
    return ToolCall(
        id=str(block.fields["id"]),
        name=str(block.fields["name"]),
        arguments=clean_arguments(block.arguments_text),
    )


def _usual_counts(counts: JsonMapping) -> JsonObject:
    """The counts as other protocols have them, whose input tokens include those of the cache."""
    read = read_count(counts.get("cache_read_input_tokens"))
    written = read_count(counts.get("cache_creation_input_tokens"))
    details = as_object(counts.get("output_tokens_details"))
    uncached = read_count(counts.get("input_tokens"))
    return {
        "input_tokens": uncached + read + written,
        "output_tokens": counts.get("output_tokens"),
        "cache_read_input_tokens": read,
        "cache_creation_input_tokens": written,
        "cache_creation": counts.get("cache_creation"),
        "reasoning_tokens": details.get("thinking_tokens"),
        "server_tool_use": counts.get("server_tool_use"),
        "service_tier": counts.get("service_tier"),
        "speed": counts.get("speed"),
        "inference_geo": counts.get("inference_geo"),
    }
