"""The served component as a tool: its definition, and its calls as bodies of `POST /run`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import mcp_types as types
from pydantic import ValidationError

from podwright.blueprints import walk_steps
from podwright.components import Component
from podwright.data.json_data import (
    JsonMapping,
    JsonObject,
    describe_value,
    json_pointer,
    to_text,
)
from podwright.data.text import did_you_mean, short_repr
from podwright.data.tool_names import to_tool_name
from podwright.errors import InputsError, Problem
from podwright.folders.walks import walk
from podwright.schemas.validation_errors import to_problems
from podwright.steps.approval_step import ApprovalStep
from podwright_service.execution import below
from podwright_service.http.schemas import RunRequest

MAX_NAME = 64
"""Characters of the longest name of a tool that all model providers accept."""

_TEXT_INPUT: JsonObject = {
    "type": "object",
    "properties": {"input": {"type": "string", "description": "The task."}},
    "required": ["input"],
    "additionalProperties": False,
}


def tool_name(component: Component) -> str:
    """Return the name of a component as a tool's name, which clients and model providers accept."""
    return to_tool_name(component.name)[:MAX_NAME] or component.kind


def tool_of(component: Component) -> types.Tool:
    """Return the definition of a component as a tool.

    Its parameters are the inputs that the component declares, else one text, `input`. The component's response schema,
    if it is that of an object, is the output schema.
    """
    return types.Tool(
        name=tool_name(component),
        title=component.name,
        description=component.description or None,
        input_schema=_input_schema(component),
        output_schema=_output_schema(component),
    )


def _input_schema(component: Component) -> JsonObject:
    if not component.inputs:
        return _TEXT_INPUT
    return component.inputs.parameters()


def _output_schema(component: Component) -> JsonObject | None:
    schema = component.response_schema
    if schema is None or schema.get("type") != "object":
        return None
    return schema


def body_of(component: Component, arguments: JsonMapping) -> RunRequest:
    """Return the arguments of a call as the body of `/run`.

    Raises:
        InputsError: They do not fit the parameters; with everything that is wrong, and pointers into the body.
    """
    problems = list(_problems(component, arguments))
    if problems:
        error = _invalid_arguments(problems)
        raise below(error, "/inputs") if component.inputs else error
    fields: JsonObject = dict(arguments)
    if component.inputs:
        # the run checks the values
        fields = {"inputs": arguments} if arguments else {}
    try:
        return RunRequest.model_validate(fields)
    except ValidationError as error:
        raise _invalid_arguments(
            to_problems(error.errors(include_url=False), fields)
        ) from None


def _problems(
    component: Component, arguments: JsonMapping
) -> Iterator[Problem]:
    """Yield the arguments that are no parameters, and those that are missing, or are no text."""
    names = list(component.inputs.schemas) or ["input"]
    for name in arguments:
        if name not in names:
            yield Problem(
                json_pointer(name),
                f"Unknown argument {short_repr(name)}.",
                did_you_mean(name, names),
            )
    if component.inputs and not arguments:
        for name in component.inputs.required:
            yield Problem(json_pointer(name), "Missing argument.")
    text: object = arguments.get("input")
    if not component.inputs and not isinstance(text, str):
        suggestion = ""
        if isinstance(text, list):
            suggestion = "Send a list of texts and images to POST /run."
        yield Problem(
            "/input",
            f"Expected a text, got {describe_value(arguments.get('input'))}.",
            suggestion,
        )


def _invalid_arguments(problems: Sequence[Problem]) -> InputsError:
    reasons = "; ".join(map(str, problems))
    return InputsError(f"Invalid arguments: {reasons}", problems=problems)


def result_of(
    component: Component, content: JsonMapping, run_id: str
) -> types.CallToolResult:
    """Return the content of a run as the result of a call: a text, and data if there is an output schema.

    The content of a workflow is its context, as JSON.

    Args:
        component: The component.
        content: What `Component.content_of` returns as data.
        run_id: The run.
    """
    output: Any = content
    if content.keys() <= {"output", "data"}:
        output = content["output"]
    structured = None
    if _output_schema(component) is not None:
        structured = content.get("data")
    return types.CallToolResult(
        content=[types.TextContent(type="text", text=to_text(output))],
        structured_content=structured,
        _meta={"podwright/run-id": run_id},
    )


def may_ask(component: Component) -> bool:
    """Return whether runs of a component may wait for a person: at an approval step, or before a call of a tool."""
    for part in walk(component):
        if any(tool.may_need_approval for tool in part.own_tools().values()):
            return True
        for _, step in walk_steps(part.to_blueprint().get("steps")):
            if step.get("type") == ApprovalStep.step_type:
                return True
    return False
