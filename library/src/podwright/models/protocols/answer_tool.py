"""Structured output of models without a JSON Schema mode: a tool whose arguments are the answer."""

from __future__ import annotations

from dataclasses import replace

from podwright.data.json_data import (
    JsonMapping,
    JsonObject,
    as_array,
    as_object,
)
from podwright.data.tool_names import free_name
from podwright.messages.messages import (
    ModelRequest,
    ModelResponse,
    ToolCall,
    ToolSchema,
)

ANSWER_TOOL = "final_answer"
"""Name of the tool."""


def with_answer_tool(request: ModelRequest) -> tuple[ModelRequest, str]:
    """The request with its output schema as a tool, for models without a JSON Schema mode, and the tool's name.

    The name is empty if the tool is not offered: the request has no output schema, or the model must call another tool.
    """
    output = request.output
    if output is None:
        return request, ""
    if request.tool_choice == "none":
        request = replace(request, tools=(), tool_choice=None)
    elif request.tool_choice not in (None, "auto"):
        return replace(request, output=None), ""
    taken = {tool["function"]["name"] for tool in request.tools}
    name = free_name(ANSWER_TOOL, taken)
    tool: ToolSchema = {
        "type": "function",
        "function": {
            "name": name,
            "parameters": dict(output.schema),
            "description": "Give the final answer.",
        },
    }
    tools = (*request.tools, tool)
    return replace(request, tools=tools, output=None), name


def from_answer_tool(response: ModelResponse, name: str) -> ModelResponse:
    """The response to a request `with_answer_tool`: the arguments of that tool are its text.

    Tools that are called beside it come first, so that the model can answer with what they find.
    """
    answers: list[ToolCall] = []
    others: list[ToolCall] = []
    for call in response.tool_calls:
        if call.name == name:
            answers.append(call)
        else:
            others.append(call)
    if not answers or not name:
        return response
    if others:
        return replace(response, tool_calls=tuple(others))
    answer = answers[0]
    reason = response.finish_reason
    if reason == "tool_calls":
        reason = "stop"
    return replace(
        response,
        text=answer.arguments,
        tool_calls=(),
        finish_reason=reason,
        provider_fields=_with_text_of(response.provider_fields, answer),
    )


def _with_text_of(fields: JsonMapping, answer: ToolCall) -> JsonMapping:
    """The further fields with the answer as a text in the place of its tool call, where they have the whole content."""
    if "content" not in fields:
        return fields
    blocks: list[JsonObject] = []
    for block in map(as_object, as_array(fields["content"])):
        if block.get("id") == answer.id:
            blocks.append({"type": "text", "text": answer.arguments})
        else:
            blocks.append(block)
    return {**fields, "content": blocks}
