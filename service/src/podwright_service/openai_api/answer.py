"""The text of a run's answer, piece by piece from its events, and its usage in OpenAI's shapes."""

from __future__ import annotations

import json
from typing import Any, Literal, NamedTuple

from podwright.chats.transfers import Speaker
from podwright.components import Component
from podwright.data.json_data import to_json_data, to_text
from podwright.errors import ModelRefusedError
from podwright.events import (
    Event,
    ModelCallFinished,
    Reasoning,
    RunStarted,
    StepFinished,
    StepStarted,
    Token,
)
from podwright.messages.messages import ModelResponse
from podwright.messages.usage import Usage
from podwright.run.component import ModelComponent, Position
from podwright.run.result import ExecutionResult
from podwright.run.run import Task
from podwright_service.openai_api.forced_tool import ForcedTool

PieceKind = Literal["text", "reasoning", "refusal"]


class Piece(NamedTuple):
    """A piece of an answer, of the thoughts before it, or of the words by which the model refused."""

    text: str
    kind: PieceKind = "text"
    call: int = -1
    """Number of the model call that it is from."""


class Answer:
    """What a client is sent of a run.

    Args:
        component: The component that runs.
        task: What it does.
        run_id: Id of the run.
        tool: The client's function whose arguments are the answer.
        show_reasoning: Whether the client is also sent what the component's model thought.
    """

    def __init__(
        self,
        component: Component,
        task: Task,
        *,
        run_id: str,
        tool: ForcedTool | None = None,
        show_reasoning: bool = False,
    ) -> None:
        self.run_id = run_id
        self.tool = tool
        """The client's function whose arguments are the answer; None if the answer is a message."""
        self.finish_reason = "stop"
        """How the answer ended; see `ExecutionResult.finish_reason`."""
        self.refusal: str | None = None
        """The words by which the model refused to answer."""
        self.reasoning: list[str] = []
        """What the model thought in each of its calls, if that is shown."""
        self.last_response = ModelResponse()
        """The response of the model to the last call."""
        self._component = component
        self._shows_reasoning = show_reasoning and component.chats
        self._is_json = _has_response_model(component, task)
        self._streaming = self._streaming_positions(task)
        """The positions of the runs whose tokens are the answer."""
        self._speaker = Speaker(run_id)
        """The run that answers, as far as it is known."""
        self._streams = () in self._streaming
        """Whether its tokens are the answer."""
        self._around: dict[str, Position] = {run_id: ()}
        """The positions of the runs around those that may answer, by id."""
        self._calls_before = 0
        """Model calls of those who spoke before."""
        self._last_call = -1
        self._call = -1
        self._text = ""
        self._sent = False
        self._planning = False

    @property
    def call_id(self) -> str:
        """The id of the call of the client's function."""
        return f"call_{self.run_id}"

    def read(self, event: Event) -> Piece | None:
        """Read an event of the run, and return the piece of the answer in it."""
        if isinstance(event, RunStarted):
            self._follow(event)
        if self._speaker.follow(event):
            self._calls_before = self._last_call + 1
        if event.run_id == self._speaker.run_id:
            return self._read_answering(event)
        return None

    def _streaming_positions(self, task: Task) -> frozenset[Position]:
        if self._is_json:
            # a structured answer may be corrected
            return frozenset()
        return frozenset(
            position
            for position, part in self._component.answering_parts()
            if part.streams_answer and not _has_response_model(part, task)
        )

    def _follow(self, event: RunStarted) -> None:
        """Go on to the part of a pipeline or a workflow that gives its answer."""
        around = self._around.get(event.parent_id or "")
        # a run that a function of a step makes has no position of its own
        if around is None or len(event.path) <= len(around):
            return
        if event.path in self._streaming:
            self._speaker = Speaker(event.run_id)
            self._calls_before = self._last_call + 1
            self._streams = True
        elif any(
            position[: len(event.path)] == event.path
            for position in self._streaming
        ):
            self._around[event.run_id] = event.path

    def _read_answering(self, event: Event) -> Piece | None:
        match event:
            case StepStarted(step_type="plan") | StepFinished(step_type="plan"):
                self._planning = isinstance(event, StepStarted)
            case ModelCallFinished():
                self._finish_call(event.response)
            case Token() if self._streams and not self._planning:
                return self._piece(event)
            case Reasoning() if self._shows_reasoning and not self._planning:
                return Piece(event.text, "reasoning", self._number(event))
            case _:
                pass
        return None

    def _finish_call(self, response: ModelResponse) -> None:
        if self._shows_reasoning and not self._planning:
            self.last_response = response
            if response.reasoning:
                self.reasoning.append(response.reasoning)

    def _piece(self, token: Token) -> Piece:
        separator = ""
        # what the model wrote before it called a tool is a paragraph of its own
        number = self._number(token)
        if number != self._call:
            self._call = number
            self._text = ""
            separator = self._separator()
        self._text += token.text
        self._sent = True
        return Piece(separator + token.text, call=number)

    def _number(self, event: Token | Reasoning) -> int:
        """The number of the model call of an event, counted over all who speak."""
        self._last_call = self._calls_before + event.call
        return self._last_call

    def _separator(self) -> str:
        """What is between a new paragraph and what has been sent."""
        if self._sent:
            return "\n\n"
        return ""

    def end(self, outcome: ExecutionResult | ModelRefusedError) -> list[Piece]:
        """Note how the answer ended, and return what is left to send of it.

        A refusal in words is also the text of the answer, unless that had to fit a schema.
        """
        if isinstance(outcome, ModelRefusedError):
            self.finish_reason = "refusal"
            self.refusal = outcome.refusal or outcome.message
            return [Piece(self.refusal, "refusal")]
        pieces = [self._rest(outcome)]
        self.finish_reason = outcome.finish_reason
        if outcome.finish_reason == "refusal":
            self.refusal = self.text(outcome)
            pieces.append(Piece(self.refusal, "refusal"))
        return [piece for piece in pieces if piece.text]

    def text(self, result: ExecutionResult) -> str:
        """The whole answer; a structured one is JSON."""
        if self._is_json:
            return json.dumps(to_json_data(result.value), ensure_ascii=False)
        return to_text(self._component.output(result.value, result.data))

    def _rest(self, result: ExecutionResult) -> Piece:
        """What is left to send of the whole text; it may be empty."""
        answer = self.text(result)
        if answer.startswith(self._text):
            rest = answer.removeprefix(self._text)
            return Piece(rest)
        return Piece(self._separator() + answer)


def _has_response_model(component: Component, task: Task) -> bool:
    """Whether the answer is structured, by the request or by the component itself."""
    if task.response_model is not None:
        return True
    if isinstance(component, ModelComponent):
        return component.response_model is not None
    return False


def usage_data(usage: Usage, sent: str, produced: str) -> dict[str, Any]:
    """Tokens as a protocol has them, and the cost in USD if it is known.

    Args:
        usage: The usage of the run.
        sent: What the protocol calls input tokens: "input" or "prompt".
        produced: What it calls output tokens: "output" or "completion".
    """
    sent_details = {
        "cached_tokens": usage.cached_input_tokens,
        "cache_write_tokens": usage.cache_write_tokens,
    }
    produced_details = {"reasoning_tokens": usage.reasoning_tokens}
    if usage.input_audio_tokens:
        sent_details["audio_tokens"] = usage.input_audio_tokens
    if usage.output_audio_tokens:
        produced_details["audio_tokens"] = usage.output_audio_tokens
    data: dict[str, Any] = {
        f"{sent}_tokens": usage.input_tokens,
        f"{produced}_tokens": usage.output_tokens,
        "total_tokens": usage.total_tokens,
        f"{sent}_tokens_details": sent_details,
        f"{produced}_tokens_details": produced_details,
    }
    if usage.cost is not None:
        data["cost"] = usage.cost
    return data
