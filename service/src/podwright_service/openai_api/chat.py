"""The answers of Chat Completions: whole, or as chunks."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

from podwright.data.finish_reasons import to_openai
from podwright.messages.usage import Usage
from podwright_service.http.errors.openai_errors import error_body
from podwright_service.http.errors.problems import ProblemDetails
from podwright_service.openai_api.answer import Answer, Piece, usage_data
from podwright_service.openai_api.forced_tool import ForcedTool


def completion(
    answer: Answer, model: str, text: str | None, usage: Usage
) -> dict[str, Any]:
    """A whole answer; its text is None if the model refused instead."""
    message: dict[str, Any] = {
        "role": "assistant",
        "content": text,
        "refusal": answer.refusal,
    }
    if answer.tool is not None and text is not None:
        message["content"] = None
        message["tool_calls"] = [_call(answer, answer.tool, text)]
    if answer.reasoning:
        message["reasoning_content"] = "\n\n".join(answer.reasoning)
    choice = {
        "index": 0,
        "message": message,
        "logprobs": None,
        "finish_reason": _finish_reason(answer),
    }
    return {
        "id": f"chatcmpl-{answer.run_id}",
        "object": "chat.completion",
        "created": int(time.time()),
        "model": model,
        "choices": [choice],
        "usage": usage_data(usage, "prompt", "completion"),
    }


class Chunks:
    """The chunks of a streamed answer.

    Args:
        answer: The answer.
        model: Name of the model.
        with_usage: Whether the last chunk has the usage.
    """

    end = b"data: [DONE]\n\n"

    def __init__(self, answer: Answer, model: str, *, with_usage: bool) -> None:
        self._answer = answer
        self._with_usage = with_usage
        self._reasoning_call: int | None = None
        self._has_call = False
        """Whether the call of the client's function has begun."""
        self._common = {
            "object": "chat.completion.chunk",
            "created": int(time.time()),
            "model": model,
        }

    def first(self) -> Iterator[dict[str, Any]]:
        """The chunk that begins the answer."""
        content: str | None = ""
        if self._answer.tool is not None:
            content = None
        yield self._chunk(
            {"role": "assistant", "content": content, "refusal": None}
        )

    def piece(self, piece: Piece) -> Iterator[dict[str, Any]]:
        """The chunks with a piece of the answer, or of the thoughts before it."""
        tool = self._answer.tool
        match piece.kind:
            case "reasoning":
                yield self._chunk(self._reasoning(piece))
            case "refusal":
                yield self._chunk({"refusal": piece.text})
            case "text" if tool is not None:
                yield from self._call(tool, piece.text)
            case "text":
                yield self._chunk({"content": piece.text})

    def _call(
        self, tool: ForcedTool, arguments: str
    ) -> Iterator[dict[str, Any]]:
        """The chunks with the arguments of the client's function, at first also with its name."""
        if not self._has_call:
            self._has_call = True
            call = {"index": 0, **_call(self._answer, tool, "")}
            yield self._chunk({"tool_calls": [call]})
        delta = {"index": 0, "function": {"arguments": arguments}}
        yield self._chunk({"tool_calls": [delta]})

    def _reasoning(self, piece: Piece) -> dict[str, Any]:
        """A delta with thoughts, which no version of the protocol has; providers and clients agree on this name."""
        text = piece.text
        is_next_call = self._reasoning_call not in (None, piece.call)
        if is_next_call:
            text = "\n\n" + text
        self._reasoning_call = piece.call
        return {"reasoning_content": text}

    def last(self, usage: Usage) -> Iterator[dict[str, Any]]:
        """The chunks that end the answer."""
        yield self._chunk({}, _finish_reason(self._answer))
        if self._with_usage:
            tokens = usage_data(usage, "prompt", "completion")
            yield self._completed({"choices": [], "usage": tokens})

    def failed(self, problem: ProblemDetails) -> dict[str, Any]:
        """The error that ends the answer of a run that failed."""
        return error_body(problem)

    def _chunk(
        self, delta: dict[str, Any], finish_reason: str | None = None
    ) -> dict[str, Any]:
        choice = {
            "index": 0,
            "delta": delta,
            "logprobs": None,
            "finish_reason": finish_reason,
        }
        fields: dict[str, Any] = {"choices": [choice]}
        if self._with_usage:
            fields["usage"] = None
        return self._completed(fields)

    def _completed(self, fields: dict[str, Any]) -> dict[str, Any]:
        return {
            "id": f"chatcmpl-{self._answer.run_id}",
            **self._common,
            **fields,
        }


def _call(answer: Answer, tool: ForcedTool, arguments: str) -> dict[str, Any]:
    """The answer as a call of the client's function."""
    return {
        "id": answer.call_id,
        "type": "function",
        "function": {"name": tool.name, "arguments": arguments},
    }


def _finish_reason(answer: Answer) -> str:
    # the answer of a function that is forced by its name ends like a text
    is_call = answer.tool is not None and not answer.tool.is_named
    if is_call and answer.finish_reason == "stop":
        return "tool_calls"
    return to_openai(answer.finish_reason)
