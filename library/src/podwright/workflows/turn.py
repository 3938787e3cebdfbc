"""What the agent that gave the last output of a workflow has said and done, if it takes part in the conversation."""

from __future__ import annotations

from typing import Any, NamedTuple

from typing_extensions import TypedDict

from podwright.data.finish_reasons import FINISH_REASONS
from podwright.data.json_data import JsonMapping, JsonObject, as_object
from podwright.errors import MessagesError
from podwright.messages.conversation import parse_messages, to_data
from podwright.messages.messages import Message

TURN = "_turn"
"""Name in the context, and in what a part has written, under which the turn of the last output is kept."""


class Turn(TypedDict):
    """The turn of an output, as JSON data."""

    output: str
    """The name of the output."""
    text: str
    """The output as it was written, as text: a person may change it later."""
    messages: list[JsonObject]
    """Tool calls, their results, and the answer; empty if the agent was not given the conversation."""
    finish_reason: str
    """See `ExecutionResult.finish_reason`."""


class AgentAnswer(NamedTuple):
    """The answer of an agent in a step."""

    value: Any
    """Its output."""
    messages: list[JsonObject]
    """See `Turn.messages`."""
    finish_reason: str = "stop"
    """See `ExecutionResult.finish_reason`."""


def check_turn(context: JsonMapping) -> None:
    """Check the turn in the context of a stopped workflow, if it has one: its caller may have changed it.

    Raises:
        MessagesError: It is invalid.
    """
    if TURN not in context:
        return
    turn = as_object(context[TURN])
    parse_messages(turn.get("messages"))
    texts = (turn.get("output"), turn.get("text"))
    are_texts = all(isinstance(text, str) for text in texts)
    if not are_texts or turn.get("finish_reason") not in FINISH_REASONS:
        raise MessagesError(f"The context has an invalid '{TURN}'.")


def answer_of(context: JsonMapping, name: str, text: str) -> AgentAnswer:
    """Return the messages that follow the input in the conversation of a workflow, and how the answer ended.

    Args:
        context: The context at the end.
        name: The name of the last output.
        text: The last output as text.
    """
    turn = as_object(context.get(TURN))
    answer = to_data([Message("assistant", text)])
    if turn.get("output") != name:
        return AgentAnswer(text, answer)
    messages: list[JsonObject] = turn["messages"]
    if turn["text"] != text:
        return AgentAnswer(text, [*_without_answer(messages), *answer])
    return AgentAnswer(text, messages or answer, turn["finish_reason"])


def _without_answer(messages: list[JsonObject]) -> list[JsonObject]:
    """Return the tool calls of a turn and their results."""
    if messages and not _is_tool_use(messages[-1]):
        return messages[:-1]
    return messages


def _is_tool_use(message: JsonMapping) -> bool:
    return message["role"] == "tool" or bool(message.get("tool_calls"))
