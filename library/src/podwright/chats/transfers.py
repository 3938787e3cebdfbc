"""The tools by which a model hands its chat over to other agents, and who answers after earlier turns."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import ClassVar

from podwright.chats.tool_calls import ToolAnswer, ToolCaller
from podwright.data.json_data import JsonObject, as_object
from podwright.data.tool_names import TRANSFER_PREFIX
from podwright.events import Event, RunStarted, StepStarted
from podwright.messages.messages import Message, ToolCall
from podwright.tools.tool import Tool

_TARGET = "transferred_to"
"""The key of the result of a transfer that has the name of the agent."""


class Transfers:
    """The transfers of one chat.

    Args:
        agents: The agents by the names of the tools, each with what it is for.
    """

    def __init__(self, agents: Mapping[str, tuple[str, str]]) -> None:
        self._agents = {tool: agent for tool, (agent, _) in agents.items()}
        self.tools: Mapping[str, Tool] = {
            tool: _Transfer(tool, description, self)
            for tool, (_, description) in agents.items()
        }
        """The tools by name."""
        self.target: str | None = None
        """The agent that goes on with the chat; None if none does."""
        self._chosen = ""

    async def call_all(
        self, tool_caller: ToolCaller, calls: Sequence[ToolCall]
    ) -> list[ToolAnswer]:
        """Call the tools of one response; see `ToolCaller.call_all`. The first transfer among them is the only one.

        Raises:
            PodwrightError: As `ToolCaller.call_all`.
        """
        transfers = [call.name for call in calls if call.name in self._agents]
        self._chosen = next(iter(transfers), "")
        answers = await tool_caller.call_all(calls)
        for call, answer in zip(calls, answers, strict=True):
            if call.name == self._chosen and answer.is_result:
                self.target = self._agents[call.name]
        return answers

    def result(self, tool: str) -> str:
        """Return the result of a transfer, which names the agent if it counts."""
        if tool != self._chosen:
            return _not_transferred(self._chosen)
        return _transferred(self._agents[tool])

    def possible_results(self) -> Iterator[str]:
        """Yield the results that its transfers may have."""
        for tool, agent in self._agents.items():
            yield _transferred(agent)
            yield _not_transferred(tool)


def _transferred(agent: str) -> str:
    return json.dumps({_TARGET: agent}, ensure_ascii=False)


def _not_transferred(chosen: str) -> str:
    return f"Not transferred: another transfer of this response counts, '{chosen}'."


class _Transfer(Tool):
    """The tool of one agent. What a model adds to the call has no meaning."""

    is_performed_again: ClassVar[bool] = True

    def __init__(
        self, name: str, description: str, transfers: Transfers
    ) -> None:
        super().__init__(
            {
                "type": "function",
                "function": {
                    "name": name,
                    "description": description,
                    "parameters": {
                        "type": "object",
                        "properties": {},
                        "additionalProperties": False,
                    },
                },
            }
        )
        self._transfers = transfers

    def validate(self, arguments: JsonObject) -> JsonObject:
        """Return no values, whatever the arguments are."""
        del arguments
        return {}

    async def perform(self, values: JsonObject, seconds: float | None) -> str:
        """Return the result of the transfer."""
        del values, seconds
        return self._transfers.result(self.name)


def active_agent(
    messages: Sequence[Message], other_tools: Collection[str]
) -> str | None:
    """Return the agent that the last transfer in a conversation has named; None if there was none.

    The conversation may be one that a caller has written.

    Args:
        messages: The conversation.
        other_tools: The names of tools of the agents' own, which may look like those of transfers.
    """
    active: str | None = None
    waiting: set[str] = set()
    for message in messages:
        if message.role == "assistant":
            waiting = {
                call.id
                for call in message.tool_calls
                if call.name.startswith(TRANSFER_PREFIX)
                and call.name not in other_tools
            }
        elif message.role == "tool" and message.tool_call_id in waiting:
            active = _target_in(message) or active
    return active


def _target_in(message: Message) -> str | None:
    """The agent in the result of a transfer; None if it was not the one that counts, or failed."""
    try:
        result = as_object(json.loads(message.text))
    except (ValueError, RecursionError):
        return None
    name = result.get(_TARGET)
    return name if isinstance(name, str) else None


class Speaker:
    """Follows from event to event which run speaks: one, or the one of the agent that goes on in its place.

    Args:
        run_id: The run that speaks first.
    """

    def __init__(self, run_id: str) -> None:
        self.run_id = run_id
        """The run that speaks now."""
        self._is_leaving = False

    def follow(self, event: Event) -> bool:
        """Return whether another run speaks from this event on."""
        match event:
            case StepStarted(step_type="handoff_step"):
                if event.run_id == self.run_id:
                    self._is_leaving = True
            case RunStarted():
                if self._is_leaving and event.parent_id == self.run_id:
                    self._is_leaving = False
                    self.run_id = event.run_id
                    return True
            case _:
                pass
        return False
