"""Approvals of tool calls: the question, the check of the decision, and what the model is told of it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from podwright.chats.tool_answers import MAX_REASON, Content
from podwright.data.json_data import JsonMapping, JsonObject, as_object, to_text
from podwright.data.text import truncate
from podwright.messages.approvals import Decision, Question, invalid_decision
from podwright.schemas.json_schema import DEFINITIONS
from podwright.schemas.patterns import without_patterns
from podwright.tools.tool import Tool

_CHANGED = "[A person changed the arguments to "


def question_about(
    tool: Tool, arguments: JsonObject, component: str
) -> Question:
    """Return the question whether a tool may be called: a person may also change its arguments.

    It shows the arguments that the function will be called with, and those of the model if they are others.

    Args:
        tool: The tool.
        arguments: The arguments as the model wrote them.
        component: Name of the component whose model calls the tool.

    Raises:
        ToolArgumentsError: The arguments do not fit the parameters.
    """
    final = tool.final_arguments(arguments)
    shown = truncate(to_text(final), MAX_REASON)
    message = f"Call the tool '{tool.name}' with {shown}?"
    model_arguments: JsonObject | None = None
    if final != arguments:
        model_arguments = arguments
        written = truncate(to_text(arguments), MAX_REASON)
        message = f"{message} The model wrote {written}."
    return Question(
        message,
        edit=dict(_editable(tool, final)),
        ends_on_reject=False,
        tool=tool.name,
        component=component,
        model_arguments=model_arguments,
    )


def _editable(
    tool: Tool, values: JsonObject
) -> Iterator[tuple[str, JsonMapping]]:
    """The arguments that a person may change."""
    parameters = tool.schema["function"]["parameters"]
    definitions = {
        key: parameters[key] for key in DEFINITIONS if key in parameters
    }
    for name, parameter in as_object(parameters.get("properties")).items():
        # a schema may be true or false
        schema: JsonObject = dict(as_object(parameter))
        if "$ref" in to_text(schema):
            schema.update(definitions)
        if not tool.trusts_patterns:
            schema = without_patterns(schema)
        yield name, {"schema": schema, "value": values.get(name)}


def check_decision(
    question: Question, decision: Decision, tool: Tool
) -> Decision:
    """Check a decision on a tool call, also by the validation of the tool, and return it with what it changes.

    Raises:
        InputsError: It does not fit the question, or the tool would not be called as it says.
    """
    question.check(decision)
    changes = question.changes(decision)
    if changes and not decision.is_rejection:
        problems = [
            replace(problem, pointer=f"/values{problem.pointer}")
            for problem in tool.problems_of_changes(
                question.written_arguments, changes
            )
        ]
        if problems:
            raise invalid_decision(question, decision, problems)
    return replace(decision, values=changes)


def refusal_text(comment: str) -> str:
    """What the model is told when a person rejects a call."""
    text = "A person rejected this call; the tool was not called."
    if comment:
        text += f" The person says: {comment}"
    return text


def changed_content(arguments: str, result: Content) -> Content:
    """A result with a sentence that says that a person has changed the arguments of the call.

    Args:
        arguments: The arguments as JSON text.
        result: The result.
    """
    sentence = f"{_CHANGED}{arguments}]"
    if isinstance(result, str):
        return f"{sentence}\n{result}"
    return ({"type": "text", "text": sentence}, *result)


def result_in(content: Content) -> Content:
    """What the tool returned, of a content that may begin with the sentence of `changed_content`."""
    if isinstance(content, str):
        first, _, rest = content.partition("\n")
        return rest if first.startswith(_CHANGED) else content
    first_part = content[0]
    if first_part["type"] == "text" and first_part["text"].startswith(_CHANGED):
        return content[1:]
    return content
