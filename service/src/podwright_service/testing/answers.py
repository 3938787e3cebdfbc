"""What a model stub says, as data and as the bytes of Chat Completions."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal, cast

from podwright.json_data import as_array, as_object
from podwright.messages import Message, ModelRequest, ModelResponse, ModelSettings, OutputSchema, ToolCall
from podwright.models.offline import estimate_input, estimate_tokens


@dataclass(frozen=True, slots=True)
class Fault:
    """Something that goes wrong in place of an answer.

    `Fault(503)` is a refusal with that status. `Fault("cut", "Half an")` ends a stream in its middle, and a plain
    answer before its end; `Fault("reset", "Half an")` ends it as a crash does. `Fault("malformed")` is no JSON, and
    `Fault("silence")` is nothing at all, until the caller leaves.
    """

    what: int | Literal["cut", "reset", "malformed", "silence"]
    """An HTTP status, or what happens."""
    text: str = ""
    """What a refusal says, or what is sent before a stream breaks off."""
    retry_after: float | None = None
    """Seconds that a refusal asks to wait."""


Said = ModelResponse | Fault
Answer = str | ToolCall | list[ToolCall] | Said | Callable[[ModelRequest], Any]
"""A text, one or several tool calls, a whole response, a fault, or a function of the request that gives one of these.

A function stays where it is, and gives all answers from its turn on.
"""


def as_said(answer: Any) -> Said:
    """An answer in its full form.

    Raises:
        TypeError: It is none.
    """
    match answer:
        case ModelResponse() | Fault():
            return answer
        case str():
            return ModelResponse(answer)
        case ToolCall():
            return ModelResponse(tool_calls=(answer,), finish_reason="tool_calls")
        case list():
            return ModelResponse(tool_calls=tuple(cast("list[ToolCall]", answer)), finish_reason="tool_calls")
        case _:
            raise TypeError(f"A model stub cannot answer {answer!r}.")


def read_request(body: Mapping[str, Any]) -> ModelRequest:
    """The request that a Chat Completions body amounts to; the model as it was named there."""
    renamed = {"max_completion_tokens": "max_tokens", "random_seed": "seed"}
    named = {renamed.get(key, key): value for key, value in body.items()}
    settings = cast("ModelSettings", {key: named[key] for key in ModelSettings.__annotations__ if key in named})
    schema = as_object(as_object(body.get("response_format")).get("json_schema"))
    return ModelRequest(
        str(body.get("model", "")),
        tuple(_message(as_object(one)) for one in as_array(body.get("messages"))),
        tuple(as_array(body.get("tools"))),
        settings,
        OutputSchema(str(schema.get("name")), as_object(schema.get("schema"))) if schema else None,
        as_object(as_object(body.get("tool_choice")).get("function")).get("name"),
    )


def _message(data: Mapping[str, Any]) -> Message:
    calls = tuple(
        ToolCall(one["id"], one["function"]["name"], one["function"]["arguments"])
        for one in as_array(data.get("tool_calls"))
    )
    content = data.get("content") or ""
    text = content if isinstance(content, str) else "".join(str(part.get("text", "")) for part in as_array(content))
    return Message(data["role"], text, calls, data.get("tool_call_id"))


def completion(request: ModelRequest, response: ModelResponse) -> dict[str, Any]:
    """A whole chat completion."""
    message: dict[str, Any] = {"role": "assistant", "content": response.text or None}
    if response.tool_calls:
        message["tool_calls"] = _calls(response)
    choice = {"index": 0, "message": message, "finish_reason": _reason(response)}
    return {**_head(request, response), "object": "chat.completion", "choices": [choice],
            "usage": _usage(request, response)}  # fmt: skip


def pieces(request: ModelRequest, response: ModelResponse, with_usage: bool) -> Iterator[dict[str, Any]]:
    """The same as the chunks of a stream: a word or a tool call each."""
    head = {**_head(request, response), "object": "chat.completion.chunk"}

    def piece(delta: Mapping[str, Any], reason: str | None = None) -> dict[str, Any]:
        return {**head, "choices": [{"index": 0, "delta": delta, "finish_reason": reason}]}

    yield piece({"role": "assistant", "content": ""})
    for word in re.findall(r"\s*\S+|\s+", response.text):
        yield piece({"content": word})
    for call in _calls(response):
        begin, function = {**call, "function": {**call["function"], "arguments": ""}}, call["function"]
        yield piece({"tool_calls": [begin]})
        yield piece({"tool_calls": [{"index": call["index"], "function": {"arguments": function["arguments"]}}]})
    yield piece({}, _reason(response))
    if with_usage:
        yield {**head, "choices": [], "usage": _usage(request, response)}


def refusal(fault: Fault) -> dict[str, Any]:
    """The body of an answer that is a refusal."""
    return {
        "error": {"message": fault.text or "The model stub was told to refuse.", "type": "stub", "code": fault.text}
    }


def as_json(data: object) -> bytes:
    """JSON as it is sent."""
    return json.dumps(data, ensure_ascii=False).encode("utf-8", "surrogatepass")


def _head(request: ModelRequest, response: ModelResponse) -> dict[str, Any]:
    return {"id": response.id or "chatcmpl-stub", "created": 1, "model": response.model or request.model}


def _reason(response: ModelResponse) -> str:
    return "tool_calls" if response.tool_calls and response.finish_reason == "stop" else response.finish_reason


def _calls(response: ModelResponse) -> list[dict[str, Any]]:
    return [
        {
            "index": number,
            "id": call.id,
            "type": "function",
            "function": {"name": call.name, "arguments": call.arguments},
        }
        for number, call in enumerate(response.tool_calls)
    ]


def _usage(request: ModelRequest, response: ModelResponse) -> dict[str, Any]:
    """The tokens that the response names; where it names none, an estimate from the texts."""
    used = response.usage
    sent, made = used.input_tokens, used.output_tokens
    if not used.total_tokens:
        sent, made = estimate_input(request), estimate_tokens(response.text)
        made += sum(estimate_tokens(call.name + call.arguments) for call in response.tool_calls)
    return {
        "prompt_tokens": sent,
        "completion_tokens": made,
        "total_tokens": sent + made,
        "prompt_tokens_details": {"cached_tokens": used.cached_input_tokens},
        "completion_tokens_details": {"reasoning_tokens": used.reasoning_tokens},
    }
