"""The messages of a chat: instructions, earlier turns, and the turn of this run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Any

from podwright.data.json_data import JsonMapping, JsonObject
from podwright.data.names import INPUT
from podwright.events import HistoryCut
from podwright.messages.conversation import to_data, turns
from podwright.messages.messages import HistorySettings, Message, ModelRequest
from podwright.messages.templates import fill
from podwright.models.offline.offline import estimate_input, estimate_message
from podwright.run.component import Component, ModelComponent
from podwright.run.run import Run, Task


@dataclass(slots=True)
class ChatMessages:
    """The messages of one chat."""

    system: tuple[Message, ...]
    """The instructions, if there are any."""
    instructions: tuple[Message, ...]
    """The instructions of the caller, if there are any."""
    earlier: tuple[Message, ...]
    """The messages of earlier turns, given by the caller."""
    turn: list[Message]
    """The messages of this run; it is extended."""
    limits: HistorySettings = field(default_factory=HistorySettings)
    """How much of the earlier turns the model is given."""
    cut: int = 0
    """How many messages of earlier turns the last request left out."""
    asides: list[Message] = field(default_factory=list[Message])
    """Messages of the turn that later turns do not need."""

    @classmethod
    def begin(
        cls,
        instructions: str,
        task: Task,
        limits: HistorySettings,
        where: str = "The instructions",
    ) -> ChatMessages:
        """The messages at the start: the instructions filled from the input, and the inputs that they do not use.

        Args:
            instructions: A template; empty for none.
            task: The input, and the values that templates read besides.
            limits: How much of the earlier turns the model is given.
            where: The subject of an error about a name in the instructions.

        Raises:
            ContextError: The instructions use a name without a value, or the input is neither text, nor named inputs,
                nor texts, images and files.
            MessagesError: A part of the input is not one of a message.
        """
        given = task.parsed_input
        system: tuple[Message, ...] = ()
        if instructions:
            values = {**task.values, **given.named}
            text = fill(instructions, values, where)
            system = (Message("system", text),)
        callers: tuple[Message, ...] = ()
        if task.instructions:
            callers = (Message("user", task.instructions),)
        turn: list[Message] = []
        if task.handover is not None:
            turn += task.handover.turn
        return cls(
            system=system,
            instructions=callers,
            earlier=task.messages,
            turn=turn or [given.message(instructions)],
            limits=limits,
        )

    def with_question(self, text: str) -> ChatMessages:
        """A copy in which the user asks one thing more."""
        question = Message("user", text)
        return replace(self, turn=[*self.turn, question], asides=[])

    def add_asides(self, answer: Message, instruction: str) -> None:
        """Add messages that later turns do not need: an answer of the model, and the next instruction to it."""
        messages = (answer, Message("user", instruction))
        self.turn += messages
        self.asides += messages

    def to_data(self) -> list[JsonObject]:
        """The conversation as JSON data."""
        conversation = (*self.earlier, *self.lasting_turn())
        return to_data(conversation)

    def lasting_turn(self) -> list[Message]:
        """The messages of this run that later turns need."""
        asides = {id(message) for message in self.asides}
        return [message for message in self.turn if id(message) not in asides]

    def request(self, run: Run, model: str, **fields: Any) -> ModelRequest:
        """The next request to the model. A history that is too long is cut by whole turns, which emits `HistoryCut`.

        Args:
            run: The run of the chat.
            model: The model's name.
            **fields: Further fields of the request.
        """
        before = (*self.system, *self.instructions)
        fields = {**fields, "component": run.component_name, "path": run.path}
        request = ModelRequest(
            model,
            messages=(*before, *self.turn),
            history=len(self.instructions),
            **fields,
        )
        if not self.earlier:
            return request
        kept = self._fitting_messages(request)
        self._note_cut(len(self.earlier) - len(kept), run)
        return replace(
            request,
            messages=(*before, *kept, *self.turn),
            history=request.history + len(kept),
        )

    def _note_cut(self, cut: int, run: Run) -> None:
        """Emit an event if another number of earlier messages is left out than before."""
        if cut == self.cut:
            return
        self.cut = cut
        cut_turns = turns(self.earlier[:cut])
        event = HistoryCut(
            **run.stamp(),
            messages=cut,
            turns=len(cut_turns),
        )
        run.emit(event)

    def _fitting_messages(self, request: ModelRequest) -> Sequence[Message]:
        """The earlier messages that the model is given with the request."""
        kept = turns(self.earlier)
        most_turns = self.limits.get("max_history")
        if most_turns is not None:
            surplus = max(0, len(kept) - most_turns)
            kept = kept[surplus:]
        most_tokens = self.limits.get("max_input_tokens")
        if most_tokens is not None:
            left = most_tokens - estimate_input(request)
            kept = _latest_turns(kept, left)
        return list(chain.from_iterable(kept))


def _latest_turns(
    earlier: Sequence[Sequence[Message]], tokens: float
) -> Sequence[Sequence[Message]]:
    """The last turns that take no more than so many tokens together."""
    fitting = 0
    for turn in reversed(earlier):
        tokens -= sum(map(estimate_message, turn))
        if tokens < 0:
            break
        fitting += 1
    first = len(earlier) - fitting
    return earlier[first:]


def one_turn(
    earlier: Sequence[Message], question: Message, answer: str
) -> list[JsonObject]:
    """Return the conversation after a turn of one question and one answer, as JSON data."""
    return to_data((*earlier, question, Message("assistant", answer)))


def inputs_of(task: Task) -> JsonMapping:
    """The values that the members of a team may use in their instructions: the named inputs of its run.

    Raises:
        ContextError: The input is neither text, nor named inputs, nor texts, images and files.
    """
    if isinstance(task.input, list):
        return task.values
    return {**task.values, **task.parsed_input.named}


def filled_instructions(member: Component, values: JsonMapping) -> str:
    """The instructions of a member of a team as far as they are known before it gets its task and its inputs.

    Args:
        member: Any component; one without a model of its own has no instructions.
        values: The named inputs of the team's run.

    Raises:
        ContextError: They use a name that has no value.
    """
    if not isinstance(member, ModelComponent):
        return ""
    is_given_later = any(name not in values for name in member.inputs.required)
    # by its model with the task, or by its functions before the work
    if is_given_later or member.hooks("before"):
        return member.instructions
    where = f"The instructions of '{member.name}'"
    known = {INPUT: "", **member.inputs.defaults, **values}
    return fill(member.instructions, known, where)
