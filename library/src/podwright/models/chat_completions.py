"""Request and response bodies of the Chat Completions protocol.

Providers differ in what they omit and what they add. Missing fields count as absent and unknown fields are ignored; a
response is invalid only if it has no choice, a tool call without a name, or neither text nor tool calls.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from podwright.conversation import message_data
from podwright.json_data import as_array, as_object, to_text
from podwright.messages import ModelRequest, ModelResponse, ToolCall, ToolSchema
from podwright.models.base import check_tool_calls
from podwright.models.offline import estimate_input, estimate_tokens
from podwright.models.providers import Endpoint
from podwright.models.refusals import RefusedError
from podwright.usage import Usage

ANSWER_TOOL = "final_answer"
"""Name of the tool through which models without a JSON Schema mode give structured answers."""

_REASONING_MODEL = re.compile(r"o\d|gpt-([5-9]|\d\d)")
"""Names of OpenAI's reasoning models, which refuse `max_tokens`."""

_MAX_TOKENS = 10**12
"""A larger count is an error of the provider; sums of it would not fit the 64 bits that telemetry has."""
_FAILURES = ("error", "insufficient_system_resource")
"""Finish reasons of a response that failed within."""
_FINISH_REASONS = {
    "length": "length", "max_tokens": "length", "model_length": "length", "content_filter": "content_filter",
    "tool_calls": "tool_calls", "function_call": "tool_calls",
}  # fmt: skip


class InvalidResponseError(Exception):
    """The data is not a chat completion, or one without an answer."""

    def __init__(self, reason: str = "the response is not a chat completion") -> None:
        super().__init__(reason)


def request_body(request: ModelRequest, model: str, endpoint: Endpoint, stream: bool) -> dict[str, Any]:
    """The body of a request.

    Args:
        request: The request.
        model: The model's name as the provider knows it.
        endpoint: How the provider differs from others.
        stream: Whether the response is to be streamed.
    """
    body: dict[str, Any] = {"model": model, "messages": [message_data(message) for message in request.messages]}
    body.update((key, value) for key, value in request.settings.items() if key != "timeout")
    if "max_tokens" in body and _REASONING_MODEL.match(model):
        body["max_completion_tokens"] = body.pop("max_tokens")
    if "seed" in body:
        body[endpoint.seed] = body.pop("seed")
    if request.tools:
        body["tools"] = request.tools
        if request.tool_choice is not None:
            body["tool_choice"] = {"type": "function", "function": {"name": request.tool_choice}}
    else:
        body.pop("parallel_tool_calls", None)
    if request.output is not None:
        schema = {"name": request.output.name, "schema": request.output.schema}
        body["response_format"] = {"type": "json_schema", "json_schema": schema}
    if stream:
        body["stream"] = True
        if endpoint.stream_options:
            body["stream_options"] = {"include_usage": True}
    return body


def with_answer_tool(request: ModelRequest) -> ModelRequest:
    """The request with its output schema as a tool, for models without a JSON Schema mode."""
    if request.output is None:
        return request
    parameters = dict(request.output.schema)
    tool: ToolSchema = {"type": "function", "function": {"name": ANSWER_TOOL, "parameters": parameters}}
    tool["function"]["description"] = "Give the final answer."
    return replace(request, tools=(*request.tools, tool), output=None)


def from_answer_tool(response: ModelResponse) -> ModelResponse:
    """The response to a request `with_answer_tool`: the arguments of that tool are its text."""
    answer = next((call for call in response.tool_calls if call.name == ANSWER_TOOL), None)
    return response if answer is None else replace(response, text=answer.arguments, tool_calls=(), finish_reason="stop")


@dataclass(slots=True)
class _PartialCall:
    index: Any = None
    id: str = ""
    name: str = ""
    arguments: str = ""


class ResponseBuilder:
    """Builds a `ModelResponse` from a whole completion, or from the chunks of a streamed one."""

    def __init__(self) -> None:
        self.finish_reason = ""
        """Why the model stopped, in the provider's words; empty before the end, and if the provider does not say."""
        self._has_choice = False
        self._text: list[str] = []
        self._calls: list[_PartialCall] = []
        self._usage: Mapping[str, Any] = {}
        self._id = ""
        self._model = ""

    def add(self, data: Any) -> str:
        """Add a completion or a chunk, and return the text in it, which may be empty.

        Raises:
            InvalidResponseError: The data is neither.
            RefusedError: The data has an error object.
        """
        try:
            return self._add(data)
        except (AttributeError, TypeError, KeyError, IndexError) as error:
            raise InvalidResponseError from error

    def _add(self, data: Any) -> str:
        if data.get("error"):
            raise RefusedError(data["error"])
        self._id = self._id or data.get("id") or ""
        self._model = self._model or data.get("model") or ""
        self._usage = as_object(data.get("usage") or as_object(data.get("x_groq")).get("usage")) or self._usage
        choices = data.get("choices")
        if not choices:  # a chunk with usage only, or with a content filter's result for the prompt
            return ""
        self._has_choice = True
        choice = choices[0]
        if choice.get("error") or choice.get("finish_reason") in _FAILURES:
            raise RefusedError(choice.get("error") or "")
        self.finish_reason = choice.get("finish_reason") or self.finish_reason
        part: Any = choice.get("delta") or choice.get("message") or {}
        legacy = part.get("function_call")
        calls = part.get("tool_calls") or ([{"index": 0, "function": legacy}] if legacy else ())
        if not choice.get("delta"):
            check_tool_calls(self._model, len(calls))
        for call in calls:
            self._add_call(call, whole=not choice.get("delta"))
        text = _content_text(part.get("content") or part.get("refusal"))
        self._text.append(text)
        return text

    def _add_call(self, piece: Any, *, whole: bool) -> None:
        function = as_object(piece.get("function"))
        id_, name, arguments = (
            piece.get("id") or "",
            function.get("name") or "",
            to_text(function.get("arguments") or ""),
        )
        call = None if whole else self._find_call(piece.get("index"), id_, name)
        if call is None or (name and call.arguments.endswith("}") and arguments.startswith("{")):  # with the same id
            call = _PartialCall(piece.get("index"))
            self._calls.append(call)
            check_tool_calls(self._model, len(self._calls))
        call.id = call.id or id_
        if name != call.name:  # some providers repeat the whole name in each piece
            call.name += name
        call.arguments += arguments

    def _find_call(self, index: Any, id_: str, name: str) -> _PartialCall | None:
        """The call that a piece of a stream belongs to: by id, else by index, else the last one."""
        for call in reversed(self._calls):
            same_id = id_ and call.id == id_ and (None in (index, call.index) or index == call.index)
            same_index = index is not None and call.index == index and not (id_ and call.id)
            continued = index is None and not id_ and not name
            if same_id or same_index or continued:
                return call
        return None

    def build(self, request: ModelRequest, endpoint: Endpoint) -> ModelResponse:
        """The response.

        Its usage has the provider's token counts, and the provider's cost if `endpoint` reports one. Without counts
        they are estimated from the texts, and the price is unknown, because a bill must not rest on an estimate.

        Raises:
            InvalidResponseError: There was no choice, a tool call without a name, or neither text nor tool calls.
        """
        if not self._has_choice or any(not call.name for call in self._calls):
            raise InvalidResponseError
        calls = tuple(self._tool_calls())
        text = "".join(self._text)
        reason = _FINISH_REASONS.get(self.finish_reason, "stop")
        if not (text or calls or reason in ("length", "content_filter")):
            raise InvalidResponseError("the answer has neither text nor tool calls")
        if calls and reason == "stop":
            reason = "tool_calls"
        usage = _reported_usage(self._usage, endpoint) or _estimated_usage(request, text, calls)
        return ModelResponse(text, calls, usage, reason, str(self._model), str(self._id))

    def _tool_calls(self) -> Iterator[ToolCall]:
        """The tool calls, each with an id of its own, so that each result belongs to one call."""
        ids = {""}
        for call in self._calls:
            id_ = f"call_{os.urandom(8).hex()}" if str(call.id) in ids else str(call.id)
            ids.add(id_)
            yield ToolCall(id_, call.name, call.arguments or "{}")


def _content_text(content: Any) -> str:
    """The text of a content, which may be null, a string, or parts of which some are text."""
    if not content or isinstance(content, str):
        return content or ""
    return "".join(part["text"] for part in as_array(content) if part.get("type") == "text")


def _reported_usage(fields: Mapping[str, Any], endpoint: Endpoint) -> Usage | None:
    """The provider's counts; None if there are none, or impossible ones."""
    try:
        sent, produced = int(fields.get("prompt_tokens") or 0), int(fields.get("completion_tokens") or 0)
        details = as_object(fields.get("prompt_tokens_details"))
        cached = int(details.get("cached_tokens") or fields.get("prompt_cache_hit_tokens") or 0)
        # OpenRouter, LiteLLM, Anthropic
        names = (
            (details, "cache_write_tokens"),
            (details, "cache_creation_tokens"),
            (fields, "cache_creation_input_tokens"),
        )
        written = int(next((count for place, name in names if (count := place.get(name))), 0))
        reasoning = int(as_object(fields.get("completion_tokens_details")).get("reasoning_tokens") or 0)
    except (TypeError, ValueError, OverflowError):
        return None
    if not (sent or produced) or not (0 <= sent <= _MAX_TOKENS and 0 <= produced <= _MAX_TOKENS):
        return None
    if reasoning > 0 and fields.get("total_tokens") == sent + produced + reasoning:  # xAI counts them separately
        produced += reasoning
    cost = fields.get("cost") if endpoint.reports_cost else None
    cost = as_object(cost).get("total_cost", cost)
    usd = float(cost) if isinstance(cost, int | float) and cost >= 0 else None
    cached = max(0, min(cached, sent))
    written = max(0, min(written, sent - cached))
    reasoning = max(0, min(reasoning, produced))
    return Usage(sent, produced, cached, reasoning, cost=usd, cache_write_tokens=written)


def _estimated_usage(request: ModelRequest, text: str, calls: tuple[ToolCall, ...]) -> Usage:
    produced = estimate_tokens(text) + sum(estimate_tokens(call.name + call.arguments) for call in calls)
    return Usage(estimate_input(request), produced, cost=None, unpriced_model_calls=1)
