"""Answers of Anthropic's Messages protocol, whole or from the events of a stream.

Source: https://platform.claude.com/docs/en/build-with-claude/streaming
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from podwright.json_data import as_array, as_object, to_text
from podwright.messages import ModelRequest, ModelResponse, ToolCall
from podwright.models.answer import MAX_NAME, InvalidResponseError, Piece
from podwright.models.base import check_tool_calls
from podwright.models.error_body import ErrorBody, read_error
from podwright.models.offline import estimate_input, estimate_tokens
from podwright.models.pieces import clean_arguments
from podwright.models.pricing import Terms
from podwright.models.refusals import RefusedError
from podwright.models.token_counts import TokenCounts, as_uncounted, read_count
from podwright.usage import Usage

PAUSED = "pause_turn"
"""The stop reason of an answer that goes on in the next response, if it is sent back."""

_FINISH_REASONS = {
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "refusal": "content_filter",
    "tool_use": "tool_calls",
    PAUSED: PAUSED,
}
"""The others are `stop`."""
_DELTAS = {
    "text_delta": "text",
    "thinking_delta": "thinking",
    "signature_delta": "signature",
}
"""Pieces of a block, and the keys of the texts that they continue."""
_PLAIN = {
    "text": ("type", "text", "citations"),
    "tool_use": ("type", "id", "name", "input", "caller"),
}
"""Blocks that are a text or a tool call and nothing else, with their keys."""


@dataclass(slots=True)
class _Block:
    """A part of an answer, as it has arrived so far."""

    fields: dict[str, Any]
    pieces: dict[str, list[str]] = field(default_factory=dict[str, list[str]])
    """The pieces of its texts, by key."""
    arguments: list[str] = field(default_factory=list[str])
    """The pieces of the arguments of a tool call."""
    citations: list[Any] = field(default_factory=list[Any])
    """The citations that came for themselves."""

    def add(self, delta: Mapping[str, Any]) -> Piece:
        kind = str(delta.get("type"))
        if kind == "input_json_delta":
            self.arguments.append(to_text(delta.get("partial_json") or ""))
        elif kind == "citations_delta":
            self.citations.append(delta.get("citation"))
        elif key := _DELTAS.get(kind):
            text = to_text(delta.get(key) or "")
            self.pieces.setdefault(key, []).append(text)
            return (
                Piece(text)
                if key == "text"
                else Piece(reasoning=text if key == "thinking" else "")
            )
        return Piece()

    @property
    def data(self) -> dict[str, Any]:
        """The block as it would be in a whole answer."""
        texts = {
            key: to_text(self.fields.get(key) or "") + "".join(pieces)
            for key, pieces in self.pieces.items()
        }
        data = {**self.fields, **texts}
        if self.citations:
            data["citations"] = [
                *as_array(self.fields.get("citations")),
                *self.citations,
            ]
        if self.arguments:
            data["input"] = _json(self.arguments_text)
        return data

    @property
    def arguments_text(self) -> str:
        """The arguments of a tool call as JSON text."""
        text = "".join(self.arguments)
        return (
            text
            if text.strip()
            else json.dumps(self.fields.get("input") or {}, ensure_ascii=False)
        )

    @property
    def is_plain(self) -> bool:
        """Whether the text or the tool call of the answer is all that it has."""
        data = self.data
        keys = _PLAIN.get(str(data.get("type")), ())
        is_direct = as_object(data.get("caller")).get("type", "direct") == "direct"
        return (
            is_direct and not data.get("citations") and all(key in keys for key in data)
        )


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
        self._blocks: dict[int, _Block] = {}
        self._counts: dict[str, Any] = {}
        """The counts so far; those of the last event that has them are those of the whole answer."""

    def add(self, data: Any) -> Piece:
        """Add a message or an event, and return what it adds to the answer.

        Raises:
            InvalidResponseError: The data is neither.
            RefusedError: The data is an error.
        """
        fields = as_object(data)
        try:
            return self._add(str(fields.get("type") or ""), fields)
        except (AttributeError, TypeError, KeyError, ValueError) as error:
            raise InvalidResponseError from error

    def _add(self, kind: str, fields: Mapping[str, Any]) -> Piece:
        match kind:
            case "message":
                return self._add_message(fields)
            case "message_start":
                self.is_streamed = True
                return self._add_message(fields["message"])
            case "content_block_start":
                return self._add_block(int(fields["index"]), fields["content_block"])
            case "content_block_delta":
                return self._blocks[int(fields["index"])].add(
                    as_object(fields["delta"])
                )
            case "message_delta":
                self._end(
                    as_object(fields.get("delta")), as_object(fields.get("usage"))
                )
            case "message_stop":
                self.is_over = True
            case "error" | "":
                error = read_error(fields)
                raise (
                    InvalidResponseError
                    if error == ErrorBody()
                    else RefusedError(error)
                )
            # the end of a block, and events to come, which the documentation asks to ignore
            case _:
                pass
        return Piece()

    def _add_message(self, message: Mapping[str, Any]) -> Piece:
        self.has_choice = True
        self._id = str(message.get("id") or "")[:MAX_NAME]
        self._model = str(message.get("model") or "")[:MAX_NAME]
        pieces = [
            self._add_block(index, block)
            for index, block in enumerate(message["content"])
        ]
        usage = dict(as_object(message.get("usage")))
        if self.is_streamed:  # the answer has not begun: the last event has its count
            usage.pop("output_tokens", None)
        self._end(message, usage)
        return Piece(
            "".join(piece.text for piece in pieces),
            "".join(piece.reasoning for piece in pieces),
        )

    def _add_block(self, index: int, block: Mapping[str, Any]) -> Piece:
        fields = dict(block)
        if fields["type"] == "tool_use":
            if not (fields.get("id") and fields.get("name")):
                raise InvalidResponseError
            if any(
                other.fields.get("id") == fields["id"]
                for other in self._blocks.values()
            ):
                # each result belongs to one call
                fields["id"] = f"toolu_{os.urandom(8).hex()}"
        self._blocks[index] = _Block(fields)
        if fields["type"] == "tool_use":
            check_tool_calls(
                self._name,
                sum(
                    block.fields["type"] == "tool_use"
                    for block in self._blocks.values()
                ),
            )
        if fields["type"] == "text":
            return Piece(to_text(fields.get("text") or ""))
        return Piece(reasoning=to_text(fields.get("thinking") or ""))

    def _end(self, end: Mapping[str, Any], usage: Mapping[str, Any]) -> None:
        self.finish_reason = str(end.get("stop_reason") or self.finish_reason)
        for key, value in usage.items():
            if isinstance(value, dict | str):
                self._counts[key] = value
            elif value is not None:
                self._counts[key] = max(
                    read_count(self._counts.get(key)), read_count(value)
                )

    @property
    def content(self) -> list[dict[str, Any]]:
        """The blocks of the answer."""
        return [self._blocks[index].data for index in sorted(self._blocks)]

    def build(self, request: ModelRequest) -> ModelResponse:
        """The response. Its further fields are the content as it came, if it is more than a text and tool calls.

        Raises:
            InvalidResponseError: There was no message, or neither text nor tool calls.
        """
        if not self.has_choice:
            raise InvalidResponseError
        blocks = [self._blocks[index] for index in sorted(self._blocks)]
        text = "".join(
            str(block.data.get("text") or "")
            for block in blocks
            if block.fields["type"] == "text"
        )
        calls = tuple(
            _tool_call(block) for block in blocks if block.fields["type"] == "tool_use"
        )
        reason = _FINISH_REASONS.get(self.finish_reason, "stop")
        if not (text or calls or reason in ("length", "content_filter", PAUSED)):
            raise InvalidResponseError("the answer has neither text nor tool calls")
        if calls and reason == "stop":
            reason = "tool_calls"
        is_plain = all(block.is_plain for block in blocks)
        return ModelResponse(
            text,
            calls,
            self._usage(request),
            finish_reason=reason,
            model=self._model,
            id=self._id,
            reasoning=self._reasoning(),
            provider_fields={} if is_plain else {"content": self.content},
            # signatures of thoughts are valid for the model that wrote them only
            provider=self._name,
        )

    def _reasoning(self) -> str:
        return "\n\n".join(
            thought
            for block in self.content
            if (thought := to_text(block.get("thinking") or ""))
        )

    def usage_so_far(self, request: ModelRequest) -> Usage | None:
        """The usage of an answer that has failed; None if it had not begun."""
        return self._usage(request) if self.has_choice else None

    def _usage(self, request: ModelRequest) -> Usage:
        def estimate() -> Usage:
            written = "".join(
                json.dumps(block, ensure_ascii=False) for block in self.content
            )
            return Usage(estimate_input(request), estimate_tokens(written))

        usage = self._token_counts().usage(estimate)
        return usage if "output_tokens" in self._counts else as_uncounted(usage)

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


def _tool_call(block: _Block) -> ToolCall:
    return ToolCall(
        str(block.fields["id"]),
        str(block.fields["name"]),
        clean_arguments(block.arguments_text),
    )


def _usual_counts(counts: Mapping[str, Any]) -> dict[str, Any]:
    """The counts as other protocols have them, whose input tokens include those of the cache."""
    read = read_count(counts.get("cache_read_input_tokens"))
    written = read_count(counts.get("cache_creation_input_tokens"))
    details = as_object(counts.get("output_tokens_details"))
    return {
        "input_tokens": read_count(counts.get("input_tokens")) + read + written,
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
