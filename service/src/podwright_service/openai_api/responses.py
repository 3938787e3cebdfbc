"""The answers of Responses: whole, or as the events of the Open Responses specification."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from pydantic import TypeAdapter

from podwright.messages.usage import Usage
from podwright_service.http.errors.problems import ProblemDetails
from podwright_service.openai_api.answer import (
    Answer,
    Piece,
    PieceKind,
    usage_data,
)
from podwright_service.openai_api.responses_request import (
    ResponsesFormat,
    ResponsesRequest,
)
from podwright_service.openai_api.thoughts import seal

ENCRYPTED_CONTENT = "reasoning.encrypted_content"
"""The value of `include` of clients that send thoughts back."""

_INCOMPLETE = {"length": "max_output_tokens", "unknown": "unknown"}
"""Reasons of incomplete responses, by finish reason."""

_usage = TypeAdapter(Usage)


class ResponseObject:
    """The response object in its states.

    Args:
        answer: The answer.
        request: The request, which the response repeats.
        is_stored: Whether another request can go on from it.
    """

    def __init__(
        self,
        answer: Answer,
        request: ResponsesRequest,
        *,
        is_stored: bool = False,
    ) -> None:
        self._answer = answer
        self._is_stored = is_stored
        self._request = request
        self._created = int(time.time())

    def whole(self, text: str | None, usage: Usage) -> dict[str, Any]:
        """The response at its end, with a message, and before it the thoughts that led to it.

        Args:
            text: The text of the message; None if the model refused instead.
            usage: What the run used.
        """
        parts: list[dict[str, Any]] = []
        if text is not None:
            parts.append(text_part(text))
        if self._answer.refusal is not None:
            parts.append(refusal_part(self._answer.refusal))
        output: list[dict[str, Any]] = []
        if self._answer.reasoning:
            output.append(self.reasoning(len(output), self._answer.reasoning))
        output.append(self.answer(len(output), self.end_status, parts))
        return self.finished(output, usage)

    def finished(
        self, output: list[dict[str, Any]], usage: Usage
    ) -> dict[str, Any]:
        """The response at its end."""
        details = None
        if self._incomplete_reason:
            details = {"reason": self._incomplete_reason}
        return self.response(
            status=self.end_status,
            completed_at=int(time.time()),
            incomplete_details=details,
            output=self._with_sealed_thoughts(output),
            usage=usage_data(usage, "input", "output"),
        )

    def failed(self, problem: ProblemDetails) -> dict[str, Any]:
        """The response of a run that failed."""
        usage = None
        if problem.usage:
            used = _usage.validate_python(problem.usage)
            usage = usage_data(used, "input", "output")
        return self.response(
            status="failed",
            error={"code": problem.code, "message": problem.detail},
            usage=usage,
        )

    def _tools(self) -> list[dict[str, Any]]:
        tool = self._answer.tool
        if tool is None:
            return []
        return [
            {
                "type": "function",
                "name": tool.name,
                "description": tool.description or None,
                "parameters": tool.parameters,
                "strict": False,
            }
        ]

    def _tool_choice(self) -> Any:
        tool = self._answer.tool
        if tool is not None and tool.is_named:
            return {"type": "function", "name": tool.name}
        choice = self._request.tool_choice
        if choice == "any":
            return "required"
        return choice or "auto"

    @property
    def tool_name(self) -> str:
        """The client's function whose arguments are the answer; empty for a message, as every refusal is."""
        tool = self._answer.tool
        if tool is None or self._answer.refusal is not None:
            return ""
        return tool.name

    @property
    def end_status(self) -> str:
        """The status of a response that did not fail."""
        if self._incomplete_reason:
            return "incomplete"
        return "completed"

    @property
    def _incomplete_reason(self) -> str:
        """Why the answer is not known to be whole; empty if it is."""
        return _INCOMPLETE.get(self._answer.finish_reason, "")

    def answer(
        self, index: int, status: str, parts: Sequence[dict[str, Any]] = ()
    ) -> dict[str, Any]:
        """The answer in the output: a message, or a call of the client's function."""
        name = self.tool_name
        if not name:
            return self.message(index, status, parts)
        return {
            "type": "function_call",
            "id": self.item_id("fc", index),
            "call_id": self._answer.call_id,
            "name": name,
            "arguments": "".join(part["text"] for part in parts),
            "status": status,
        }

    def message(
        self, index: int, status: str, parts: Sequence[dict[str, Any]] = ()
    ) -> dict[str, Any]:
        """A message in the output; it has no parts before its text has begun."""
        return {
            "type": "message",
            "id": self.item_id("msg", index),
            "status": status,
            "role": "assistant",
            "content": list(parts),
        }

    def reasoning(self, index: int, texts: Sequence[str]) -> dict[str, Any]:
        """Thoughts in the output."""
        summary = [summary_part(text) for text in texts]
        return {
            "type": "reasoning",
            "id": self.item_id("rs", index),
            "summary": summary,
        }

    def _with_sealed_thoughts(
        self, output: Sequence[dict[str, Any]]
    ) -> list[dict[str, Any]]:
        """The output with what the client may send back for the provider, in the last item with thoughts."""
        items = list(output)
        if ENCRYPTED_CONTENT not in (self._request.include or ()):
            return items
        for index, item in reversed(list(enumerate(items))):
            if item["type"] == "reasoning":
                response = self._answer.last_response
                sealed = seal(response.provider_fields, response.provider)
                items[index] = {**item, "encrypted_content": sealed}
                break
        return items

    def item_id(self, kind: str, index: int) -> str:
        """The id of an item of the output: of a message ("msg"), a call ("fc"), or of thoughts ("rs")."""
        item_id = f"{kind}_{self._answer.run_id}"
        if index:
            item_id += f"_{index}"
        return item_id

    def response(self, **changes: Any) -> dict[str, Any]:
        """The response in progress, with changes."""
        request = self._request
        form = None
        if request.text:
            form = request.text.format
        effort = None
        if request.reasoning:
            effort = request.reasoning.effort
        response: dict[str, Any] = {
            "id": f"resp_{self._answer.run_id}",
            "object": "response",
            "created_at": self._created,
            "completed_at": None,
            "status": "in_progress",
            "incomplete_details": None,
            "model": request.model,
            "previous_response_id": _text(request.previous_response_id) or None,
            "instructions": request.instructions,
            "output": [],
            "error": None,
            "tools": self._tools(),
            "tool_choice": self._tool_choice(),
            "truncation": "disabled",
            "parallel_tool_calls": request.parallel_tool_calls is not False,
            "text": {"format": _format(form)},
            "top_p": _or_one(request.top_p),
            "presence_penalty": request.presence_penalty or 0,
            "frequency_penalty": request.frequency_penalty or 0,
            "top_logprobs": 0,
            "temperature": _or_one(request.temperature),
            "reasoning": {"effort": effort, "summary": None},
            "usage": None,
            "max_output_tokens": request.max_output_tokens,
            "max_tool_calls": None,
            "store": self._is_stored,
            "background": False,
            "service_tier": "default",
            "metadata": request.metadata or {},
            "safety_identifier": _text(request.safety_identifier),
            "prompt_cache_key": _text(request.prompt_cache_key),
            "user": _text(request.user),
        }
        return response | changes


def _text(value: object) -> str | None:
    """A parameter that the protocol knows as a text only."""
    if isinstance(value, str):
        return value
    return None


def _or_one(value: float | None) -> float:
    """A setting, of which 1 is the default."""
    if value is None:
        return 1
    return value


def _format(form: ResponsesFormat | None) -> dict[str, Any]:
    if form is None:
        return {"type": "text"}
    if form.type != "json_schema":
        return {"type": form.type}
    # the specification has no schema here
    return {
        "type": "json_schema",
        "name": form.name,
        "description": form.description,
        "schema": None,
        "strict": bool(form.strict),
    }


def text_part(text: str) -> dict[str, Any]:
    """A text of the output."""
    return {
        "type": "output_text",
        "text": text,
        "annotations": [],
        "logprobs": [],
    }


def refusal_part(refusal: str) -> dict[str, Any]:
    """The words of a refusal in the output."""
    return {"type": "refusal", "refusal": refusal}


def summary_part(text: str) -> dict[str, Any]:
    """A text of thoughts."""
    return {"type": "summary_text", "text": text}


@dataclass
class _Part:
    """A part of an item."""

    kind: PieceKind
    text: str = ""

    def data(self) -> dict[str, Any]:
        """The part in the protocol."""
        match self.kind:
            case "text":
                return text_part(self.text)
            case "refusal":
                return refusal_part(self.text)
            case "reasoning":
                return summary_part(self.text)


@dataclass
class _OpenItem:
    """An item of the output that is being sent."""

    index: int
    is_reasoning: bool
    call: int = -1
    """The model call whose thoughts are being sent."""
    parts: list[_Part] = field(default_factory=list[_Part])
    """Its parts, of which the last one is being sent."""

    def continues(self, piece: Piece) -> bool:
        """Whether a piece belongs to the part that is being sent."""
        if not self.parts or self.parts[-1].kind != piece.kind:
            return False
        return not self.is_reasoning or self.call == piece.call


class ResponseEvents:
    """The events of a streamed response, numbered from 0: items in turn, of thoughts and of the answer."""

    end = b"data: [DONE]\n\n"

    def __init__(self, state: ResponseObject) -> None:
        self._state = state
        self._number = 0
        self._output: list[dict[str, Any]] = []
        self._open: _OpenItem | None = None

    def first(self) -> Iterator[dict[str, Any]]:
        """The events that begin the response."""
        for name in ("response.created", "response.in_progress"):
            yield self._event(name, response=self._state.response())

    def piece(self, piece: Piece) -> Iterator[dict[str, Any]]:
        """The events of a piece of the answer, or of thoughts."""
        is_reasoning = piece.kind == "reasoning"
        item = self._open
        if item is not None and item.is_reasoning != is_reasoning:
            yield from self._close("completed")
            item = None
        if item is None:
            item = _OpenItem(len(self._output), is_reasoning)
            self._open = item
            begun = self._item(item, "in_progress")
            yield self._event(
                "response.output_item.added",
                output_index=item.index,
                item=begun,
            )
        if self._is_call(item):
            if not item.parts:
                item.parts.append(_Part("text"))
            item.parts[-1].text += piece.text
            yield self._event(
                "response.function_call_arguments.delta",
                **self._call_at(item),
                delta=piece.text,
            )
            return
        if not item.continues(piece):
            yield from self._begin_part(item, piece)
        item.parts[-1].text += piece.text
        at = self._at(item)
        match piece.kind:
            case "reasoning":
                yield self._event(
                    "response.reasoning_summary_text.delta",
                    **at,
                    delta=piece.text,
                )
            case "refusal":
                yield self._event(
                    "response.refusal.delta", **at, delta=piece.text
                )
            case "text":
                yield self._event(
                    "response.output_text.delta",
                    **at,
                    delta=piece.text,
                    logprobs=[],
                )

    def last(self, usage: Usage) -> Iterator[dict[str, Any]]:
        """The events that end the response."""
        if self._open is None or self._open.is_reasoning:  # the answer is empty
            yield from self.piece(Piece(""))
        yield from self._close(self._state.end_status)
        response = self._state.finished(self._output, usage)
        yield self._event(f"response.{response['status']}", response=response)

    def failed(self, problem: ProblemDetails) -> dict[str, Any]:
        """The event that ends the response of a run that failed."""
        return self._event(
            "response.failed", response=self._state.failed(problem)
        )

    def _begin_part(
        self, item: _OpenItem, piece: Piece
    ) -> Iterator[dict[str, Any]]:
        if item.parts:
            yield from self._end_part(item)
        part = _Part(piece.kind)
        item.parts.append(part)
        item.call = piece.call
        name = "response.content_part.added"
        if item.is_reasoning:
            name = "response.reasoning_summary_part.added"
        yield self._event(name, **self._at(item), part=part.data())

    def _end_part(self, item: _OpenItem) -> Iterator[dict[str, Any]]:
        part = item.parts[-1]
        if self._is_call(item):
            yield self._event(
                "response.function_call_arguments.done",
                **self._call_at(item),
                name=self._state.tool_name,
                arguments=part.text,
            )
            return
        at = self._at(item)
        name = "response.content_part.done"
        match part.kind:
            case "reasoning":
                yield self._event(
                    "response.reasoning_summary_text.done", **at, text=part.text
                )
                name = "response.reasoning_summary_part.done"
            case "refusal":
                yield self._event(
                    "response.refusal.done", **at, refusal=part.text
                )
            case "text":
                yield self._event(
                    "response.output_text.done",
                    **at,
                    text=part.text,
                    logprobs=[],
                )
        yield self._event(name, **at, part=part.data())

    def _close(self, status: str) -> Iterator[dict[str, Any]]:
        """The events that end the item that is being sent."""
        item = self._open
        if item is None:
            return
        yield from self._end_part(item)
        self._open = None
        ended = self._item(item, status)
        self._output.append(ended)
        yield self._event(
            "response.output_item.done", output_index=item.index, item=ended
        )

    def _item(self, item: _OpenItem, status: str) -> dict[str, Any]:
        if item.is_reasoning:
            texts = [part.text for part in item.parts]
            return self._state.reasoning(item.index, texts)
        parts = [part.data() for part in item.parts]
        return self._state.answer(item.index, status, parts)

    def _is_call(self, item: _OpenItem) -> bool:
        """Whether an item is a call of the client's function."""
        return not item.is_reasoning and bool(self._state.tool_name)

    def _call_at(self, item: _OpenItem) -> dict[str, Any]:
        """Where the call is that is being sent."""
        return {
            "item_id": self._state.item_id("fc", item.index),
            "output_index": item.index,
        }

    def _at(self, item: _OpenItem) -> dict[str, Any]:
        """Where the part is that is being sent."""
        part_index = len(item.parts) - 1
        if item.is_reasoning:
            return {
                "item_id": self._state.item_id("rs", item.index),
                "output_index": item.index,
                "summary_index": part_index,
            }
        return {
            "item_id": self._state.item_id("msg", item.index),
            "output_index": item.index,
            "content_index": part_index,
        }

    def _event(self, name: str, /, **fields: Any) -> dict[str, Any]:
        number = self._number
        self._number += 1
        return {"type": name, "sequence_number": number, **fields}
