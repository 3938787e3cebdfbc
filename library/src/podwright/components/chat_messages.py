"""The messages of a chat: instructions, earlier turns, and the turn of this run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, cast

from podwright import errors
from podwright.conversation import parse_content, to_data, turns
from podwright.events import HistoryCut
from podwright.json_data import to_text
from podwright.messages import HistorySettings, Message, ModelRequest
from podwright.models.offline import estimate_input, estimate_message
from podwright.run import Run, Task
from podwright.templates import fill, names, sections


@dataclass(slots=True)
class ChatMessages:
    """The messages of one chat."""

    system: tuple[Message, ...]
    """The instructions, if there are any."""
    instructions: tuple[Message, ...]
    """Those of the caller, if there are any."""
    earlier: tuple[Message, ...]
    """Those of earlier turns, given by the caller."""
    turn: list[Message]
    """Those of this run; it is extended."""
    limits: HistorySettings = field(default_factory=HistorySettings)
    """How much of the earlier turns the model is given."""
    cut: int = 0
    """How many messages of earlier turns the last request left out."""
    asides: list[Message] = field(default_factory=list[Message])
    """Messages of the turn that later turns do not need."""

    @classmethod
    def begin(
        cls, instructions: str, task: Task, limits: HistorySettings
    ) -> ChatMessages:
        """The messages at the start: the instructions filled from the input, and the inputs that they do not use.

        Raises:
            ContextError: The input is neither text, nor named inputs, nor texts and images.
            MessagesError: A part of the input is neither a text nor an image.
        """
        data = task.input
        if isinstance(data, list):
            message = Message("user", parse_content(cast("object", data)))
            context: Mapping[str, Any] = {"input": message.text}
        else:
            context = to_context(data)
            used = [name for name in names(instructions) if name in context]
            # a chat needs a user message
            message = Message(
                "user", sections(context, leave_out=used) or sections(context)
            )
        values = {**task.values, **context}
        system = (
            (Message("system", fill(instructions, values)),) if instructions else ()
        )
        callers = (Message("user", task.instructions),) if task.instructions else ()
        return cls(system, callers, task.messages, [message], limits)

    def with_question(self, text: str) -> ChatMessages:
        """A copy in which the user asks one thing more."""
        return replace(self, turn=[*self.turn, Message("user", text)], asides=[])

    def add_asides(self, answer: Message, order: str) -> None:
        """Add an answer of the model and what it is told then, which later turns do not need."""
        messages = (answer, Message("user", order))
        self.turn += messages
        self.asides += messages

    def to_data(self) -> list[dict[str, Any]]:
        """The conversation as JSON data."""
        turn = [
            message
            for message in self.turn
            if not any(message is aside for aside in self.asides)
        ]
        return to_data((*self.earlier, *turn))

    def request(self, run: Run, model: str, **fields: Any) -> ModelRequest:
        """The next request to the model; a history that is too long is cut, whole turns at a time.

        Args:
            run: The run of the chat.
            model: The model's name.
            **fields: Further fields of the request.
        """
        before = (*self.system, *self.instructions)
        fields = {**fields, "component": run.component, "path": run.path}
        request = ModelRequest(
            model, (*before, *self.turn), **fields, history=len(self.instructions)
        )
        if not self.earlier:
            return request
        kept = self._kept(request)
        cut = len(self.earlier) - len(kept)
        if cut != self.cut:
            self.cut = cut
            run.emit(
                HistoryCut(
                    **run.stamp(), messages=cut, turns=len(turns(self.earlier[:cut]))
                )
            )
        return replace(
            request,
            messages=(*before, *kept, *self.turn),
            history=request.history + len(kept),
        )

    def _kept(self, request: ModelRequest) -> Sequence[Message]:
        """The earlier messages that the model is given with the request."""
        kept = turns(self.earlier)
        if (most := self.limits.get("max_history")) is not None:
            kept = kept[max(0, len(kept) - most) :]
        if (allowed := self.limits.get("max_input_tokens")) is not None:
            left = allowed - estimate_input(request)
            fitting = 0
            for turn in reversed(kept):
                left -= sum(map(estimate_message, turn))
                if left < 0:
                    break
                fitting += 1
            kept = kept[len(kept) - fitting :]
        return [message for turn in kept for message in turn]


def to_context(data: object) -> Mapping[str, Any]:
    """An input as named values; a text is named `input`.

    Raises:
        ContextError: The input is neither text nor named inputs.
    """
    if isinstance(data, str):
        context: Mapping[str, Any] = {"input": data}
    elif isinstance(data, Mapping):
        context = cast("Mapping[str, Any]", data)
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
    for key, value in context.items():
        if not isinstance(key, str):  # pyright: ignore[reportUnnecessaryIsInstance] - it comes from a caller
            raise errors.ContextError(
                f"The name of an input must be a string, not {key!r}."
            )
        try:
            to_text(value).encode()
        except (ValueError, RecursionError, TypeError) as error:
            hint = "Pass JSON data, with texts that can be encoded as UTF-8."
            raise errors.ContextError(
                f"The input '{key}' is not JSON: {error}.", suggestion=hint
            ) from error
    return context
