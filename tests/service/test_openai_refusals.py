"""What the OpenAI-compatible routes refuse."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from tests.service.openai_support import post, user
from tests.service.support import Served

from podwright import Agent


@pytest.fixture(scope="module")
def service(served: Served) -> Iterator[httpx.Client]:
    with served(Agent("helper", "Help.", "offline/echo")) as client:
        yield client


def json_schema(schema: dict[str, Any]) -> dict[str, Any]:
    return {
        "type": "json_schema",
        "json_schema": {
            "name": "answer",
            "schema": {"type": "object", **schema},
        },
    }


REFUSED: dict[str, tuple[str, dict[str, Any], int, str, str | None]] = {
    "tools": ("chat", {"tools": [{"type": "function", "function": {"name": "f"}}]}, 400, "request_invalid", "tools"),
    "functions": ("chat", {"functions": [{"name": "f"}]}, 400, "request_invalid", "functions"),
    "choices": ("chat", {"n": 2}, 400, "request_invalid", "n"),
    "range": ("chat", {"temperature": 3}, 400, "request_invalid", "temperature"),
    "unknown": ("chat", {"chat_template_kwargs": {"enable_thinking": False}}, 400, "request_invalid",
                "chat_template_kwargs"),
    "a number as text": ("chat", {"temperature": "0.7"}, 400, "request_invalid", "temperature"),
    "no tokens": ("chat", {"max_tokens": 0}, 400, "request_invalid", "max_tokens"),
    "effort": ("chat", {"reasoning_effort": "max"}, 400, "request_invalid", "reasoning_effort"),
    "log probabilities": ("chat", {"logprobs": True}, 400, "request_invalid", "logprobs"),
    "model": ("chat", {"model": "gpt-4o"}, 404, "model_not_found", None),
    "no message": ("chat", {"messages": []}, 400, "request_invalid", "messages"),
    "last message": ("chat", {"messages": [{"role": "assistant", "content": "x"}]}, 400, "request_invalid",
                     "messages[0]"),
    "video": ("chat", {"messages": [{"role": "user", "content": [{"type": "video_url"}]}]}, 400, "request_invalid",
              "messages[0].content[0].type"),
    "audio": ("chat", {"messages": [{"role": "user", "content": [{"type": "input_audio"}]}]}, 400, "request_invalid",
              "messages[0].content[0]"),
    "an uploaded file": ("chat", {"messages": [{"role": "user", "content": [
        {"type": "file", "file": {"file_id": "file-1"}}]}]}, 400, "request_invalid",
        "messages[0].content[0].file.file_id"),
    "a file of Responses": ("responses", {"input": [{"role": "user", "content": [
        {"type": "input_file", "filename": "a.pdf"}]}]}, 400, "request_invalid", "input[0].content[0]"),
    "a file that is none": ("chat", {"messages": [{"role": "user", "content": [
        {"type": "file", "file": {"file_data": "JVBERi0="}}]}]}, 400, "request_invalid",
        "messages[0].content[0].file.file_data"),
    "tool result": ("chat", {"messages": [{"role": "tool", "tool_call_id": "c", "content": "x"}, user("x")]}, 400,
                    "request_invalid", "messages[0]"),
    "call without id": ("chat", {"messages": [user("x"), {"role": "assistant", "tool_calls": [
        {"type": "function", "function": {"name": "f", "arguments": "{}"}}]}, user("x")]}, 400,
        "request_invalid", "messages[1].tool_calls[0]"),
    "role of old clients": ("chat", {"messages": [{"role": "function", "name": "f", "content": "1"}, user("x")]}, 400,
                            "request_invalid", "messages[0].role"),
    "many results": ("chat", {"messages": [
        *({"role": "tool", "tool_call_id": f"c{number}", "content": "x"} for number in range(150)), user("x")]}, 400,
        "request_invalid", "messages[0]"),
    "many parts": ("chat", {"messages": [{"role": "assistant", "content": [0] * 40_000}, user("x")]}, 400,
                   "request_invalid", "messages[0].content"),
    "a choice that is none": ("chat", {"tool_choice": "always"}, 400, "request_invalid", "tool_choice"),
    "a choice without a name": ("responses", {"tool_choice": {"type": "function"}}, 400, "request_invalid",
                                "tool_choice"),
    "a choice of another kind": ("responses", {"tool_choice": {"type": "web_search"}}, 400, "request_invalid",
                                 "tool_choice"),
    "part without type": ("chat", {"messages": [{"role": "assistant", "content": [{"text": "x"}]}, user("x")]}, 400,
                          "request_invalid", "messages[0].content[0]"),
    "no content": ("chat", {"messages": [{"role": "user", "content": None}]}, 400, "request_invalid",
                   "messages[0].content"),
    "only empty answers": ("chat", {"messages": [{"role": "assistant", "content": ""}]}, 400, "request_invalid",
                           "messages[0]"),
    "schema": ("chat", {"response_format": {"type": "json_schema"}}, 400, "request_invalid", "response_format"),
    "a pattern that is no text": ("chat", {"response_format": json_schema({"properties": {"a": {"pattern": 1}}})}, 400,
                                  "input_invalid", None),
    "endless schema": ("chat", {"response_format": json_schema({"$ref": "#"})}, 400, "input_invalid", None),
    "image of a tool": ("responses", {"input": [
        {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "c", "output": [{"type": "input_image", "image_url": "https://x"}]},
        user("x"),
    ]}, 400, "request_invalid", "input[1].output[0].type"),
    "after instructions": ("responses", {"instructions": "i", "input": [user("x"), {"role": "user"}]}, 400,
                           "request_invalid", "input[1]"),
    "instructions only": ("responses", {"input": [{"role": "system", "content": "i"}]}, 400, "request_invalid", None),
    "call alone": ("responses", {"instructions": "i", "input": [user("x"), {
        "type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"}, user("x")]}, 400, "request_invalid",
        "input[1]"),
    "too many": ("responses", {"input": [user("x")] * 10_001}, 400, "request_invalid", "input"),
    "schema of Responses": ("responses", {"text": {"format": {"type": "json_schema"}}}, 400, "request_invalid",
                            "text.format"),
    "previous response": ("responses", {"previous_response_id": "r"}, 400, "request_invalid", "previous_response_id"),
    "store": ("chat", {"store": True}, 400, "request_invalid", "store"),
    "reference": ("responses", {"input": [user("x"), {"type": "item_reference", "id": "msg_1"}, user("x")]}, 400,
                  "request_invalid", "input[1]"),
    "reference without type": ("responses", {"input": [{"id": "msg_1"}, user("x")]}, 400, "request_invalid",
                               "input[0]"),
    "background": ("responses", {"background": True}, 400, "request_invalid", "background"),
    "stored conversation": ("responses", {"conversation": "c"}, 400, "request_invalid", "conversation"),
    "hosted tool": ("responses", {"tools": [{"type": "web_search"}]}, 400, "request_invalid", "tools"),
    "item": ("responses", {"input": [{"type": "web_search_call", "id": "ws_1"}]}, 400, "request_invalid", "input[0]"),
    "image": ("responses", {"input": [{"role": "user", "content": [{"type": "input_image", "image_url": "http://x"}]}]},
              400, "request_invalid", "input[0].content[0].image_url"),
}  # fmt: skip


@pytest.mark.parametrize(
    ("protocol", "change", "status", "code", "parameter"),
    REFUSED.values(),
    ids=REFUSED,
)
def test_what_cannot_be_done_is_refused_by_name(
    service: httpx.Client,
    protocol: str,
    change: dict[str, Any],
    status: int,
    code: str,
    parameter: str | None,
) -> None:
    """Nothing that would change the answer is ignored: the error names the parameter, and no model is called."""
    response = post(service, protocol, change)
    error = response.json()["error"]
    assert (response.status_code, error["code"], error["param"]) == (
        status,
        code,
        parameter,
    ), error
    assert error["message"]
    assert error["suggestion"]
    assert ("podwright-run-id" in response.headers) == (code == "input_invalid")
