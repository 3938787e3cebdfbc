"""Structured output of models without a JSON Schema mode: a tool whose arguments are the answer."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import count
from typing import Any

from podwright.json_data import as_array, as_object
from podwright.messages import ModelRequest, ModelResponse, ToolCall, ToolSchema

ANSWER_TOOL = "final_answer"
"""Name of the tool."""


def with_answer_tool(request: ModelRequest) -> tuple[ModelRequest, str]:
    """The request with its output schema as a tool, for models without a JSON Schema mode, and the tool's name.

    The name is empty if the request has no output schema, and so does not change.
    """
    if request.output is None:
        return request, ""
    taken = {tool["function"]["name"] for tool in request.tools}
    name = next(name for name in _answer_names() if name not in taken)
    parameters = dict(request.output.schema)
    tool: ToolSchema = {
        "type": "function",
        "function": {"name": name, "parameters": parameters},
    }
    tool["function"]["description"] = "Give the final answer."
    return replace(request, tools=(*request.tools, tool), output=None), name


def _answer_names() -> Iterator[str]:
    yield ANSWER_TOOL
    yield from (f"{ANSWER_TOOL}_{number}" for number in count(2))


def from_answer_tool(response: ModelResponse, name: str) -> ModelResponse:
    """The response to a request `with_answer_tool`: the arguments of that tool are its text.

    Tools that are called beside it come first, so that the model can answer with what they find.
    """
    answer = next((call for call in response.tool_calls if call.name == name), None)
    if not name or answer is None:
        return response
    others = tuple(call for call in response.tool_calls if call.name != name)
    if others:
        return replace(response, tool_calls=others)
    reason = (
        "stop" if response.finish_reason == "tool_calls" else response.finish_reason
    )
    fields = _with_text_of(response.provider_fields, answer)
    return replace(
        response,
        text=answer.arguments,
        tool_calls=(),
        finish_reason=reason,
        provider_fields=fields,
    )


def _with_text_of(fields: Mapping[str, Any], answer: ToolCall) -> Mapping[str, Any]:
    """The further fields with the answer as a text in the place of its tool call, where they have the whole content."""
    if "content" not in fields:
        return fields
    blocks = [as_object(block) for block in as_array(fields["content"])]
    text = {"type": "text", "text": answer.arguments}
    return {
        **fields,
        "content": [
            text if block.get("id") == answer.id else block for block in blocks
        ],
    }
