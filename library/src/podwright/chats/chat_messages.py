"""The messages of a chat: instructions, earlier turns, and the turn of this run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Any, cast

from podwright import errors
from podwright.data.images import images_in, parts_with_images
from podwright.data.json_data import JsonMapping, JsonObject, to_text
from podwright.data.json_forms import described, refused, to_json_form
from podwright.data.names import INPUT, find_name
from podwright.events import HistoryCut
from podwright.messages.conversation import parse_content, to_data, turns
from podwright.messages.messages import HistorySettings, Message, ModelRequest
from podwright.messages.templates import fill, names, sections, visible
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
                nor texts and images.
            MessagesError: A part of the input is neither a text nor an image.
        """
        data = task.input
        if isinstance(data, list):
            content = parse_content(cast("object", data))
            message = Message("user", content)
            context: JsonMapping = {"input": message.text}
        else:
            context = to_context(data)
            message = _input_message(context, instructions)
        system: tuple[Message, ...] = ()
        if instructions:
            values = {**task.values, **context}
            text = fill(instructions, values, where)
            system = (Message("system", text),)
        callers: tuple[Message, ...] = ()
        if task.instructions:
            callers = (Message("user", task.instructions),)
        return cls(
            system=system,
            instructions=callers,
            earlier=task.messages,
            turn=[message],
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
        asides = {id(message) for message in self.asides}
        turn = [message for message in self.turn if id(message) not in asides]
        conversation = (*self.earlier, *turn)
        return to_data(conversation)

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


def _input_message(context: JsonMapping, instructions: str) -> Message:
    """The named inputs as a message of the user, without those that the instructions use; images always reach it."""
    found = [find_name(name, context) for name in names(instructions)]
    used = [
        name
        for name in found
        if name is not None and not images_in(context[name])
    ]
    shown = visible(context, leave_out=used)
    text = sections(shown)
    if not text:
        # a chat needs a user message
        shown = visible(context)
        text = sections(shown)
    images = [image for value in shown.values() for image in images_in(value)]
    if not images:
        return Message("user", text)
    parts: list[Any] = [{"type": "text", "text": text}, *images]
    if len(shown) == 1:
        parts = parts_with_images(next(iter(shown.values())))
    return Message("user", parse_content(parts))


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
    earlier: tuple[Message, ...], given: Any, answer: str
) -> list[JsonObject]:
    """A conversation after a turn of which only the input and the answer are known, as JSON data.

    Args:
        earlier: The turns before.
        given: The input: a text, named inputs, or texts and images.
        answer: The answer.
    """
    messages = ChatMessages.begin("", Task(given, messages=earlier), {})
    messages.turn.append(Message("assistant", answer))
    return messages.to_data()


def as_content(given: Any) -> Any:
    """An input that may be any JSON data as the content of a message: texts and images as they are, else its text."""
    try:
        parse_content(given)
    except errors.MessagesError:
        return to_text(given)
    return given


def inputs_of(task: Task) -> JsonMapping:
    """The values that the members of a team may use in their instructions: the named inputs of its run.

    Raises:
        ContextError: The input is neither text, nor named inputs, nor texts and images.
    """
    if isinstance(task.input, list):
        return task.values
    return {**task.values, **to_context(task.input)}


def filled_instructions(member: Component, values: JsonMapping) -> str:
    """The instructions of a member of a team as far as they are known before it gets its task.

    Args:
        member: Any component; one without a model of its own has no instructions.
        values: The named inputs of the team's run.

    Raises:
        ContextError: They use a name that has no value.
    """
    if not isinstance(member, ModelComponent):
        return ""
    where = f"The instructions of '{member.name}'"
    known = {INPUT: "", **member.inputs.defaults, **values}
    return fill(member.instructions, known, where)


def to_context(data: object) -> JsonMapping:
    """An input as named values; a text is named `input`.

    Raises:
        ContextError: The input is neither text nor named inputs.
    """
    if isinstance(data, str):
        context: JsonMapping = {"input": data}
    elif isinstance(data, Mapping):
        context = cast("JsonMapping", data)
    else:
        raise errors.ContextError(
            f"The input must be a string or an object of named inputs, not {type(data).__name__}.",
            suggestion="Pass a string, or named inputs such as {'input': …}.",
        )
    if not context:
        raise errors.ContextError(
            "The object of named inputs is empty.",
            suggestion="Name at least one input.",
        )
    for name, value in context.items():
        _check_input(name, value)
    return context


def _describe_input(value: object) -> str:
    """What stands for a part of an input without a JSON form; data that is binary is a mistake.

    Raises:
        NoJsonFormError: It is binary.
    """
    if isinstance(value, bytes | bytearray):
        return refused(value)
    return described(value)


def _check_input(name: object, value: object) -> None:
    if not isinstance(name, str):
        raise errors.ContextError(
            f"The name of an input must be a string, not {name!r}."
        )
    try:
        to_text(to_json_form(value, _describe_input)).encode()
    except (ValueError, RecursionError, TypeError) as error:
        raise errors.ContextError(
            f"The input '{name}' is not JSON: {error}.",
            suggestion="Pass JSON data, with texts that can be encoded as UTF-8.",
        ) from error
