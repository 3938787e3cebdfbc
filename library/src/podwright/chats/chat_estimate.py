"""The need of a chat: its model calls, each with all that came before it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from podwright.chats.hooks import after_work
from podwright.chats.response_format import output_schema
from podwright.chats.tool_answers import MAX_REASON
from podwright.chats.tool_calls import PARALLEL_CALLS
from podwright.chats.transfers import Transfers
from podwright.estimates.need import (
    ANSWERS,
    INPUT,
    RESULTS,
    UNKNOWN,
    Need,
    Price,
)
from podwright.estimates.sizes import LARGEST, Size
from podwright.estimates.walk import ASSUMED_RESULT, Forecast, Given, Walk
from podwright.messages.conversation import turns
from podwright.messages.messages import ModelRequest, ToolSchema
from podwright.messages.usage import Usage
from podwright.models import Model
from podwright.models.offline.offline import (
    BYTES_PER_TOKEN,
    MESSAGE_TOKENS,
    estimate_input,
    estimate_message,
    estimate_tokens,
    tokens_of_bytes,
)
from podwright.run.budget import (
    ASSUMED_OUTPUT_TOKENS,
    highest_cost,
    lowest_cost,
    most_output_tokens,
)
from podwright.run.component import Component, ModelComponent
from podwright.settings import current_settings
from podwright.tools.tool import Tool

_USUAL_ANSWER = 250
"""Tokens."""
_USUAL_TASK = 200
"""Bytes of a text that a model gives to a tool."""
_USUAL_RESULT = 300
"""Tokens of the result of a tool."""
_USUAL_SPEED = 50
"""Tokens of an answer in a second, after a second of waiting."""
_CORRECTION = 1_000
"""Tokens of a sentence about an answer that does not fit."""
_CUT = 30
"""Tokens of the sentence at the end of a result that is cut."""
_GROUPS = 32
"""The calls of a long chat are priced in so many groups, each as its last call."""


@dataclass(frozen=True, slots=True)
class Turn:
    """A turn with calls of tools, without the answer that asks for them."""

    calls: int = 0
    result_tokens: int = 0
    """Tokens of the result of a call."""
    need: Need = field(default_factory=Need)
    """The need of the calls themselves."""

    @property
    def tokens(self) -> int:
        """The tokens that the next request has more."""
        return self.calls * (MESSAGE_TOKENS + self.result_tokens)


class ChatEstimate:
    """The calls of one chat, for one bound.

    Args:
        walk: The walk.
        component: The agent or the conductor.
        given: What its run is given.
        tools: What its model is shown of its tools.
    """

    def __init__(
        self,
        walk: Walk,
        component: ModelComponent,
        given: Given,
        tools: Sequence[ToolSchema],
    ) -> None:
        self._walk = walk
        self._component = component
        self._given = given
        self._tools = tools
        self._models = component.chat_models.all()
        for model in self._models:
            model.load_prices()
        if walk.bound == "usual":
            self._models = self._models[:1]
        self._answer = self._answer_tokens()
        self._judges = self._all_judges()
        self._correction = self._correction_tokens()
        self._turn = given.turn_tokens(component.instructions)
        self._base = self._base_tokens()
        self._causes: dict[str, float] = {INPUT: 0, ANSWERS: 0, RESULTS: 0}
        self._own = Need()
        """The need of its own calls so far."""
        self._inner = Need()
        """The need of the calls of its tools so far."""

    @property
    def need(self) -> Need:
        """The need of all calls so far."""
        own = self._own.of_chat(self._component.name, self._causes)
        return own + self._inner

    @property
    def turn_tokens(self) -> int:
        """The tokens of the turn with the calls so far, with which another agent goes on."""
        return self._turn

    def add_aside(self, tokens: int) -> None:
        """Add tokens to all further requests."""
        self._base += tokens

    def ask(self, question: int, response_model: Any) -> int:
        """Add the calls of a question besides the chat, without tools, and return the tokens of the answer.

        Args:
            question: The tokens of the question.
            response_model: The type of the answer.
        """
        schema = _schema_tokens(response_model)
        self._add_calls(self._corrections(), question + schema, Turn())
        return self._answer

    def answer(self, turn: Turn, usual_turns: int = 1) -> Size:
        """Add the calls until the answer of the run, and return its size.

        Args:
            turn: What a turn with calls of tools adds; without calls if it has no tools.
            usual_turns: How many of them there usually are.
        """
        component = self._component
        response_model = self._given.response_model
        if response_model is None:
            response_model = component.response_model
        has_schema = response_model not in (None, str)
        may_repeat = has_schema or bool(self._judges)
        answers = self._corrections() if may_repeat else 1
        calls = answers
        if turn.calls and component.tool_choice != "none":
            usual = min(component.max_loops, 1 + usual_turns)
            calls = self._walk.choose(1, usual, component.max_loops)
        tools = sum(map(_tool_tokens, self._tools))
        schema = _schema_tokens(response_model)
        self._add_calls(calls, tools + schema, turn)
        self._turn += calls * (self._answer_message(turn) + turn.tokens)
        size = self._size_of_answer(turn, has_schema=has_schema)
        for judge in self._judges:
            need, size = after_work(self._walk, judge, size)
            self._inner += need.times(answers)
        return size

    def _all_judges(self) -> list[Component]:
        """The components whose functions after the work are called with its answers."""
        judges: list[Component] = [self._component]
        if self._given.handed is not None:
            judges.append(self._given.handed.first)
        return [judge for judge in judges if judge.changes_answer]

    @property
    def written(self) -> Size:
        """The size of a text that the model writes into the arguments of a call."""
        most = self._answer * BYTES_PER_TOKEN
        return Size(self._walk.choose(1, min(_USUAL_TASK, most), most))

    def turn_of_runs(self, runs: Sequence[Forecast], turn: Turn) -> Turn:
        """Return what a turn adds in which the model has other components run.

        Args:
            runs: What a run of each of them needs, of which it may call any in any number.
            turn: What a turn adds in which it calls its other tools.
        """
        walk = self._walk
        most = current_settings().max_tool_calls
        calls = walk.choose(0, 1, most)
        answers = [tokens_of_bytes(run.answer.bytes) for run in runs]
        need = walk.one_of_needs([run.need for run in runs])
        every = walk.at_once(need, calls, PARALLEL_CALLS)
        return Turn(
            calls,
            max([turn.result_tokens, walk.choose(0, 0, MAX_REASON), *answers]),
            every + turn.need,
        )

    def _corrections(self) -> int:
        """The calls until an answer fits a schema and is accepted, without tools."""
        component = self._component
        most = min(component.max_loops, component.max_corrections + 1)
        return self._walk.choose(1, 1, most)

    def _size_of_answer(self, turn: Turn, *, has_schema: bool) -> Size:
        size = self._answer * BYTES_PER_TOKEN
        if self._walk.bound == "least":
            size = 1
        elif self._walk.bound == "most":
            if has_schema:
                # the JSON of data has spaces that the model need not write
                size *= 2
            if self._component.stop_at:
                size = max(size, turn.result_tokens * BYTES_PER_TOKEN)
        return Size(min(size, LARGEST))

    def _answer_tokens(self) -> int:
        """The output tokens of one answer."""
        most = self._component.settings.get("max_tokens")
        if most is None:
            most = max(map(most_output_tokens, self._models))
            if not any(each.max_output_tokens() for each in self._models):
                self._walk.notes.assumed[
                    f"at most {ASSUMED_OUTPUT_TOKENS} tokens in an answer of '{self._component.name}', which has no "
                    "max_tokens"
                ] = None
        return self._walk.choose(1, min(_USUAL_ANSWER, most), most)

    def _base_tokens(self) -> int:
        """The input tokens of each request without tools and schema: instructions, earlier turns and input."""
        component = self._component
        tokens = estimate_input(ModelRequest("", ()))
        instructions = component.instructions
        if instructions:
            values = self._given.every_value
            tokens += self._walk.text(instructions, values).tokens
        tokens += self._turn
        return tokens + self._earlier_tokens(tokens)

    def _earlier_tokens(self, rest: int) -> int:
        """The tokens of the earlier turns that the model is given."""
        limits = self._component.history_settings
        kept = turns(self._given.earlier.messages)
        most_turns = limits.get("max_history")
        if most_turns is not None:
            kept = kept[max(0, len(kept) - most_turns) :]
        tokens = sum(
            estimate_message(message) for turn in kept for message in turn
        )
        tokens += self._given.earlier.further_tokens
        most = limits.get("max_input_tokens")
        if most is None:
            return tokens
        fitting = max(0, min(tokens, most - rest))
        return self._walk.choose(0, fitting, fitting)

    def _add_calls(self, calls: int, own: int, turn: Turn) -> None:
        """Add model calls, each of which has the answers and results before it.

        Args:
            calls: How many there are.
            own: Input tokens of each besides those of the chat: tools, schema, question.
            turn: What each turn with calls of tools adds.
        """
        walk = self._walk
        answers = self._answer_message(turn)
        # after an answer that does not fit, there is a sentence instead
        answers += walk.choose(0, 0, MESSAGE_TOKENS + self._correction)
        size = -(-calls // _GROUPS)
        for first in range(0, calls, size):
            number = min(size, calls - first)
            before = first + number - 1
            parts = {
                INPUT: self._base + own,
                ANSWERS: before * answers,
                RESULTS: before * turn.tokens,
            }
            sent = sum(parts.values())
            entered = self._fitting(sent)
            self._own += self._call(entered).times(number)
            for cause, tokens in parts.items():
                self._causes[cause] += number * tokens * entered / sent
            self._causes[ANSWERS] += number * self._answer
        turns_with_calls = walk.choose(0, calls - 1, calls)
        if turn.calls:
            self._inner += turn.need.times(turns_with_calls)

    def _answer_message(self, turn: Turn) -> int:
        """The tokens of an answer in later requests."""
        # each call of a tool in an answer is rounded up for itself
        return MESSAGE_TOKENS + self._answer + turn.calls

    def _correction_tokens(self) -> int:
        """The tokens of the sentence after an answer that is to be given again."""
        if not self._judges:
            return _CORRECTION
        sentence = self._walk.assume(
            ASSUMED_RESULT,
            f"what functions say of an answer of '{self._component.name}' that is to be given again",
        )
        return max(_CORRECTION, tokens_of_bytes(sentence.bytes))

    def _fitting(self, tokens: int) -> int:
        """The input tokens of a request that is no longer than the model takes."""
        windows = [model.context_window() for model in self._models]
        longest = max((each or LARGEST for each in windows), default=LARGEST)
        return self._walk.choose(tokens, tokens, min(tokens, longest))

    def _call(self, entered: int) -> Need:
        """Return the need of one call."""
        walk = self._walk
        audio = min(entered, self._given.audio)
        costs = [self._cost(model, entered, audio) for model in self._models]
        cost = walk.choose(min, max, max)(costs)
        seconds = walk.choose(
            0.0, 1 + self._answer / _USUAL_SPEED, self._longest()
        )
        prices = [Price(model.cost, audio > 0) for model in self._models]
        return Need.of_call(
            entered, self._answer, cost, seconds=seconds, prices=prices
        )

    def _cost(self, model: Model, entered: int, audio: int) -> float:
        match self._walk.bound:
            case "least":
                cost = lowest_cost(model.cost, entered, self._answer)
            case "usual":
                usage = Usage(entered, self._answer, input_audio_tokens=audio)
                cost = model.cost(usage)
            case "most":
                cost = highest_cost(model.cost, entered, self._answer, audio)
        if cost is None:
            self._walk.note_unknown(f"the price of '{model.name}'")
            return UNKNOWN
        return cost

    def _longest(self) -> float:
        """The most seconds of a call, with its retries and fallback models."""
        settings = self._component.settings
        return max(
            settings.get("timeout", model.timeouts.total)
            for model in self._models
        )


def tool_turn(walk: Walk, tools: Sequence[Tool]) -> Turn:
    """Return what a turn adds in which a model calls tools."""
    if not tools:
        return Turn()
    for tool in tools:
        walk.note_unknown(f"what the tool '{tool.name}' runs or reports")
    settings = current_settings()
    limits = [tool.max_result_tokens for tool in tools]
    longest = max(
        UNKNOWN if tool.timeout is None else tool.timeout for tool in tools
    )
    most = max(LARGEST if each is None else each for each in limits)
    calls = walk.choose(0, 1, settings.max_tool_calls)
    rounds = -(-calls // PARALLEL_CALLS)
    return Turn(
        calls,
        walk.choose(0, min(_USUAL_RESULT, most), max(most, MAX_REASON) + _CUT),
        Need(seconds=walk.choose(0, 0, longest)).times(rounds),
    )


def transfer_turn(walk: Walk, turn: Turn, transfers: Transfers) -> Turn:
    """Return what a turn adds in which a model may hand its chat over, too; usually it does not."""
    calls = walk.choose(0, turn.calls, current_settings().max_tool_calls)
    longest = max(map(estimate_tokens, transfers.possible_results()))
    result = max(turn.result_tokens, walk.choose(0, 0, longest))
    return Turn(calls, max(result, walk.choose(0, 0, MAX_REASON)), turn.need)


def _tool_tokens(schema: ToolSchema) -> int:
    with_tool = estimate_input(ModelRequest("", (), tools=(schema,)))
    return with_tool - estimate_input(ModelRequest("", ()))


def _schema_tokens(response_model: Any) -> int:
    schema = output_schema(response_model)
    with_schema = estimate_input(ModelRequest("", (), output=schema))
    return with_schema - estimate_input(ModelRequest("", ()))
