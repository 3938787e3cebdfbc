"""Chat Completions as bytes: a request to its body, and the bytes of an answer to a `ModelResponse`.

Vendors differ in what they leave out and what they add. What is missing is taken to be absent, what is added is
ignored; only an answer that has no choice at all, or whose calls have no name, is malformed.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, cast

import orjson

from podwright.messages import Message, ModelRequest, ModelResponse, ToolCall
from podwright.models.offline import estimate_input, estimate_tokens
from podwright.models.providers import Endpoint
from podwright.usage import Usage

_REASONS = re.compile(r"o\d|gpt-([5-9]|\d\d)")
"""Models of OpenAI that think before they answer, by their names."""


def request_body(request: ModelRequest, model: str, endpoint: Endpoint, stream: bool) -> bytes:
    """The body of a request.

    Args:
        request: What to ask.
        model: The model's name as the provider knows it.
        endpoint: What the provider differs in.
        stream: Whether the answer shall come in pieces.
    """
    body: dict[str, Any] = {"model": model, "messages": [_message(one) for one in request.messages]}
    if request.settings:
        body.update(request.settings)
        body.pop("timeout", None)
        if "max_tokens" in body and _REASONS.match(model):  # they refuse the older name
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
    try:
        return orjson.dumps(body)
    except TypeError:  # half of a surrogate pair, an integer beyond 64 bits: JSON all the same
        return json.dumps(body).encode()


def _message(message: Message) -> dict[str, Any]:
    if message.tool_calls:
        calls = [
            {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments or "{}"}}
            for call in message.tool_calls
        ]
        return {"role": message.role, "content": message.content or None, "tool_calls": calls}
    if message.tool_call_id is not None:
        return {"role": message.role, "content": message.content, "tool_call_id": message.tool_call_id}
    return {"role": message.role, "content": message.content}


class Events:
    """Cuts a stream of server-sent events into them, however its bytes are split (HTML standard, 9.2.6)."""

    __slots__ = ("_data", "_name", "_parts", "_rest", "_started")

    def __init__(self) -> None:
        self._rest = b""
        self._parts: list[bytes] = []
        self._data: list[bytes] = []
        self._name = b""
        self._started = False

    def feed(self, chunk: bytes) -> list[bytes]:
        """The data of the events that end in these bytes; no bytes mean the end of the stream."""
        return [data for _, data in self.named(chunk)]

    def named(self, chunk: bytes) -> list[tuple[bytes, bytes]]:
        """As `feed`, with the name of each event; empty where it has none."""
        ended = not chunk
        breaks = ended or b"\n" in chunk or b"\r" in chunk or self._rest.endswith(b"\r")
        if self._started and not breaks:
            self._parts.append(chunk)  # a long line in many pieces is put together once
            return []
        rest = b"".join((self._rest, *self._parts, chunk))
        self._parts.clear()
        if not self._started and (len(rest) >= 3 or ended):
            self._started, rest = True, rest.removeprefix(b"\xef\xbb\xbf")
        lines = rest.splitlines(keepends=True)
        self._rest = b""
        if lines and not ended and not lines[-1].endswith(b"\n"):  # a last CR may be the first half of CRLF
            self._rest = lines.pop()
        found: list[tuple[bytes, bytes]] = []
        for line in lines:
            content = line.rstrip(b"\r\n")
            if content.startswith(b"data:"):
                self._data.append(content[5:].removeprefix(b" "))
            elif content.startswith(b"event:"):
                self._name = content[6:].removeprefix(b" ")
            elif not content:
                self._end(found)
        if ended:  # some servers close without the empty line; half an event is no JSON anyway
            self._end(found)
        return found

    def _end(self, found: list[tuple[bytes, bytes]]) -> None:
        if self._data:
            found.append((self._name, b"\n".join(self._data)))
            self._data = []
        self._name = b""


class MalformedError(Exception):
    """The data are JSON, but no Chat Completions."""


class RefusedError(Exception):
    """There is an error where the answer should be.

    Args:
        status: The HTTP status that it amounts to.
        said: Its code, type and message.
    """

    def __init__(self, status: int, said: str) -> None:
        super().__init__(status)
        self.status = status
        self.said = said


_STATUS = {
    "invalid_api_key": 401, "authentication_error": 401, "insufficient_quota": 429, "rate_limit_exceeded": 429,
    "rate_limit_error": 429, "context_length_exceeded": 400, "invalid_request_error": 400, "content_filter": 400,
}  # fmt: skip


def said_in(error: Any) -> str:
    """Code, type and message of an error object, for a search; never to be shown."""
    facts = _object(error)
    return " ".join(str(facts[key]) for key in ("code", "type", "message") if facts.get(key)) or str(error)


def _refused(error: Any) -> RefusedError:
    """What an error object amounts to where HTTP said 200: by its code, else that the provider cannot serve."""
    facts = _object(error)
    for key in ("code", "status", "type"):
        value = facts.get(key)
        if str(value).isdecimal() and 400 <= int(str(value)) < 600:
            return RefusedError(int(str(value)), said_in(error))
        if value in _STATUS:
            return RefusedError(_STATUS[value], said_in(error))
    return RefusedError(500, said_in(error))


@dataclass(slots=True)
class _Call:
    index: Any = None
    id: str = ""
    name: str = ""
    arguments: list[str] = field(default_factory=list[str])


class Answer:
    """Gathers an answer, whole or in pieces."""

    __slots__ = ("_calls", "_id", "_model", "_text", "_usage", "begun", "reason")

    def __init__(self) -> None:
        self.begun = False
        """Whether there was a choice."""
        self.reason = ""
        """Why the model stopped, in the provider's words; empty until it did, and where the provider is silent."""
        self._text: list[str] = []
        self._calls: list[_Call] = []
        self._usage: dict[str, Any] = {}
        self._id = ""
        self._model = ""

    def add(self, data: Any) -> str:
        """Take in a whole completion, or a piece of one.

        Returns:
            The text that it adds; may be empty.

        Raises:
            MalformedError: It is neither.
            RefusedError: It is an error object.
        """
        try:
            return self._add(data)
        except (AttributeError, TypeError, KeyError, IndexError) as error:
            raise MalformedError from error

    def _add(self, data: Any) -> str:
        if data.get("error"):
            raise _refused(data["error"])
        self._id = self._id or data.get("id") or ""
        self._model = self._model or data.get("model") or ""
        self._usage = _object(data.get("usage") or _object(data.get("x_groq")).get("usage")) or self._usage
        choices = data.get("choices")
        if not choices:  # a piece with usage alone, or with what a filter thinks of the question
            return ""
        self.begun = True
        choice = choices[0]
        if choice.get("error") or choice.get("finish_reason") in _FAILURES:
            raise _refused(choice.get("error") or "")
        self.reason = choice.get("finish_reason") or self.reason
        part: Any = choice.get("delta") or choice.get("message") or _NOTHING
        for call in part.get("tool_calls") or ():
            self._add_call(call)
        text = _text(part.get("content") or part.get("refusal"))
        self._text.append(text)
        return text

    def _add_call(self, piece: Any) -> None:
        function = _object(piece.get("function"))
        name, arguments = function.get("name") or "", function.get("arguments")
        call = self._call(piece.get("index"), piece.get("id") or "", name)
        call.id = call.id or piece.get("id") or ""
        if name != call.name:  # some repeat the name in each piece
            call.name += name
        if arguments:
            call.arguments.append(arguments if isinstance(arguments, str) else orjson.dumps(arguments).decode())

    def _call(self, index: Any, id_: str, name: str) -> _Call:
        """The call that a piece belongs to: by its id, else by its index, else the last one; or a new one."""
        for call in reversed(self._calls):
            if id_ and call.id == id_:
                return call
            if index is not None and call.index == index and not (id_ and call.id):
                return call
            if index is None and not id_ and not name:
                return call
        new = _Call(index)
        self._calls.append(new)
        return new

    def response(self, request: ModelRequest, endpoint: Endpoint) -> ModelResponse:
        """What was gathered.

        The usage has the provider's counts, and its cost where it reports one. Without counts they are estimated from
        the texts, and the call is one of unknown price: an estimate must not pass for a bill.

        Raises:
            MalformedError: It is no answer.
        """
        if not self.begun or any(not call.name for call in self._calls):
            raise MalformedError
        calls = tuple(
            ToolCall(str(call.id) or f"call_{os.urandom(8).hex()}", call.name, "".join(call.arguments) or "{}")
            for call in self._calls
        )
        text = "".join(self._text)
        reason = _REASON.get(self.reason, "stop")
        if calls and reason == "stop":
            reason = "tool_calls"
        try:
            usage = _usage(self._usage, endpoint) or _estimate(request, text, calls)
        except (TypeError, ValueError, OverflowError):
            usage = _estimate(request, text, calls)
        return ModelResponse(text, calls, usage, reason, str(self._model), str(self._id))


_MOST_TOKENS = 10**12
"""More than any call has; what is beyond is a fault, and would be one in sums of 64 bits."""
_NOTHING: dict[str, Any] = {}
_FAILURES = ("error", "insufficient_system_resource")
_REASON = {
    "length": "length", "max_tokens": "length", "model_length": "length", "content_filter": "content_filter",
    "tool_calls": "tool_calls", "function_call": "tool_calls",
}  # fmt: skip


def _object(value: Any) -> dict[str, Any]:
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}


def _text(content: Any) -> str:
    """The text of a content, which may be null, a text, or parts of which some are text."""
    if not content:
        return ""
    if isinstance(content, str):
        return content
    return "".join(part["text"] for part in content if part.get("type") == "text")


def _usage(counts: Mapping[str, Any], endpoint: Endpoint) -> Usage | None:
    sent, made = int(counts.get("prompt_tokens") or 0), int(counts.get("completion_tokens") or 0)
    if not sent and not made:
        return None
    if not (0 <= sent <= _MOST_TOKENS and 0 <= made <= _MOST_TOKENS):
        raise ValueError("no number of tokens")
    details = _object(counts.get("prompt_tokens_details"))
    cached = int(details.get("cached_tokens") or counts.get("prompt_cache_hit_tokens") or 0)
    reasoning = int(_object(counts.get("completion_tokens_details")).get("reasoning_tokens") or 0)
    if reasoning > 0 and counts.get("total_tokens") == sent + made + reasoning:  # xAI counts them apart
        made += reasoning
    cost = counts.get("cost") if endpoint.reports_cost else None
    if isinstance(cost, dict):
        cost = _object(cost).get("total_cost")
    paid = float(cost) if isinstance(cost, int | float) and cost >= 0 else None
    return Usage(sent, made, max(0, min(cached, sent)), max(0, min(reasoning, made)), cost=paid)


def _estimate(request: ModelRequest, text: str, calls: tuple[ToolCall, ...]) -> Usage:
    made = estimate_tokens(text) + sum(estimate_tokens(call.name + call.arguments) for call in calls)
    return Usage(estimate_input(request), made, cost=None, unpriced_model_calls=1)
