"""The Chat Completions format: requests to a model stub, and its responses."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, cast

from podwright.data.finish_reasons import to_openai
from podwright.data.json_data import as_array, as_object
from podwright.messages.conversation import chat_message, read_message
from podwright.messages.messages import (
    Message,
    ModelRequest,
    ModelResponse,
    ModelSettings,
    OutputSchema,
)
from podwright.messages.usage import Usage


def read_request(body: Mapping[str, Any]) -> ModelRequest:
    """The model request in the body of a Chat Completions request."""
    aliases = {"max_completion_tokens": "max_tokens", "random_seed": "seed"}
    options = {aliases.get(key, key): value for key, value in body.items()}
    known = [key for key in ModelSettings.__annotations__ if key in options]
    settings = cast("ModelSettings", {key: options[key] for key in known})
    messages = [
        as_object(message) for message in as_array(body.get("messages"))
    ]
    response_format = as_object(body.get("response_format"))
    tool_choice = as_object(body.get("tool_choice"))
    return ModelRequest(
        str(body.get("model", "")),
        tuple(_read_message(message) for message in messages),
        tuple(as_array(body.get("tools"))),
        settings=settings,
        output=_read_schema(as_object(response_format.get("json_schema"))),
        tool_choice=as_object(tool_choice.get("function")).get("name"),
    )


def _read_schema(data: Mapping[str, Any]) -> OutputSchema | None:
    if not data:
        return None
    return OutputSchema(str(data.get("name")), as_object(data.get("schema")))


def _read_message(data: Mapping[str, Any]) -> Message:
    if data["role"] == "assistant":
        return read_message(data)
    return Message(
        data["role"],
        _read_content(data.get("content") or ""),
        tool_call_id=data.get("tool_call_id"),
    )


def _read_content(content: Any) -> Any:
    """A text, which may come in parts, or texts, images and files."""
    if isinstance(content, str):
        return content
    parts = as_array(content)
    if all(part.get("type") == "text" for part in parts):
        return "".join(str(part.get("text", "")) for part in parts)
    return tuple(parts)


def completion(
    request: ModelRequest, response: ModelResponse
) -> dict[str, Any]:
    """The response as a chat completion."""
    message = {
        **chat_message(response.message()),
        "content": _content(response),
        "refusal": response.refusal or None,
        **response.provider_fields,
    }
    choice = {
        "index": 0,
        "message": message,
        "finish_reason": _finish_reason(response),
    }
    return {
        **_head(request, response),
        "object": "chat.completion",
        "choices": [choice],
        "usage": _usage(response.usage),
    }


def completion_chunks(
    request: ModelRequest, response: ModelResponse, with_usage: bool
) -> Iterator[dict[str, Any]]:
    """The response as the chunks of a stream, one word or tool call each."""
    head = {**_head(request, response), "object": "chat.completion.chunk"}

    def chunk(
        delta: Mapping[str, Any], finish_reason: str | None = None
    ) -> dict[str, Any]:
        choice = {"index": 0, "delta": delta, "finish_reason": finish_reason}
        return {**head, "choices": [choice]}

    yield chunk(
        {"role": "assistant", "content": "", **response.provider_fields}
    )
    # a content in parts has the text
    if "content" not in response.provider_fields:
        for word in re.findall(r"\s*\S+|\s+", _content(response) or ""):
            yield chunk({"content": word})
    for word in re.findall(r"\s*\S+|\s+", response.refusal):
        yield chunk({"refusal": word})
    for call in _tool_calls(response):
        function = call["function"]
        begun = {**call, "function": {**function, "arguments": ""}}
        yield chunk({"tool_calls": [begun]})
        rest = {
            "index": call["index"],
            "function": {"arguments": function["arguments"]},
        }
        yield chunk({"tool_calls": [rest]})
    yield chunk({}, _finish_reason(response))
    if with_usage:
        yield {**head, "choices": [], "usage": _usage(response.usage)}


def error_body(code: str) -> dict[str, Any]:
    """The body of an error response."""
    return {
        "error": {
            "message": code or "Error of the model stub",
            "type": "stub",
            "code": code,
        }
    }


def _head(request: ModelRequest, response: ModelResponse) -> dict[str, Any]:
    return {
        "id": response.id or "chatcmpl-stub",
        "created": 1,
        "model": response.model or request.model,
    }


def _content(response: ModelResponse) -> str | None:
    """The text; None if it is the words of a refusal, which have a place of their own."""
    if response.text == response.refusal:
        return None
    return response.text or None


def _finish_reason(response: ModelResponse) -> str:
    if response.tool_calls and response.finish_reason == "stop":
        return "tool_calls"
    return response.provider_finish_reason or to_openai(response.finish_reason)


def _tool_calls(response: ModelResponse) -> list[dict[str, Any]]:
    calls = chat_message(response.message()).get("tool_calls", [])
    return [{"index": index, **call} for index, call in enumerate(calls)]


def _usage(usage: Usage) -> dict[str, Any]:
    return {
        "prompt_tokens": usage.input_tokens,
        "completion_tokens": usage.output_tokens,
        "total_tokens": usage.total_tokens,
        "prompt_tokens_details": {
            "cached_tokens": usage.cached_input_tokens,
            "cache_write_tokens": usage.cache_write_tokens,
            "audio_tokens": usage.input_audio_tokens,
        },
        "completion_tokens_details": {
            "reasoning_tokens": usage.reasoning_tokens,
            "audio_tokens": usage.output_audio_tokens,
        },
    }
