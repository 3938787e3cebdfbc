"""The need of runs: numbers of one bound, at least, usually or at most. Infinity stands for an unknown number."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial, reduce
from operator import add
from typing import Any, Self

from podwright.messages.usage import RunLimits
from podwright.run.budget import CostOf, highest_cost

UNKNOWN = math.inf
INPUT = "the instructions and the input"
ANSWERS = "answers"
RESULTS = "results of tools"
"""The purposes of the tokens of a chat."""
FIGURES = (
    "calls",
    "input_tokens",
    "output_tokens",
    "tokens",
    "cost",
    "seconds",
)
"""The figures of a need that are sums."""


@dataclass(frozen=True, slots=True)
class Price:
    """How the tokens of a model are priced; the dearest of them bounds the cost of a number of tokens."""

    cost_of: CostOf
    has_audio: bool = False
    """Whether some of its input is audio."""

    def most_for(self, tokens: int) -> float:
        """Return the most that so many tokens cost in USD, however they are divided into input and output."""
        audio = tokens if self.has_audio else 0
        only_input = highest_cost(self.cost_of, tokens, 0, audio)
        both = highest_cost(self.cost_of, tokens, tokens, audio)
        only_output = highest_cost(self.cost_of, 0, tokens)
        if only_input is None or both is None or only_output is None:
            return UNKNOWN
        # output may have another price after a long input
        return max(only_input, only_output, both - only_input)


@dataclass(frozen=True, slots=True)
class Share:
    """The need of one component of a run, without its members."""

    calls: float = 0
    tokens: float = 0
    cost: float = 0
    """USD."""
    causes: Mapping[str, float] = field(default_factory=dict[str, float])
    """Tokens by what they are needed for."""

    def __add__(self, other: Share) -> Share:
        causes = dict(self.causes)
        for cause, tokens in other.causes.items():
            causes[cause] = causes.get(cause, 0) + tokens
        return Share(
            self.calls + other.calls,
            self.tokens + other.tokens,
            self.cost + other.cost,
            causes,
        )

    def times(self, number: float) -> Share:
        """Return the same so many times."""
        causes = {
            cause: _product(tokens, number)
            for cause, tokens in self.causes.items()
        }
        return Share(
            _product(self.calls, number),
            _product(self.tokens, number),
            _product(self.cost, number),
            causes,
        )


@dataclass(frozen=True, slots=True)
class Need:
    """The need of a part of a run. `+` is for parts that run one after the other."""

    calls: float = 0
    """Model calls."""
    input_tokens: float = 0
    output_tokens: float = 0
    tokens: float = 0
    """Input and output together, which a limit may make fewer than their sum."""
    cost: float = 0
    """USD."""
    seconds: float = 0
    call_input: float = 0
    """Input tokens of the largest model call; so the next two."""
    call_output: float = 0
    call_cost: float = 0
    chat_calls: float = 0
    """Model calls of the chat that has most of them."""
    prices: frozenset[Price] = frozenset()
    """The prices of the models that are called."""
    shares: Mapping[str, Share] = field(default_factory=dict[str, Share])
    """The need of each component without its members, by its name, before limits."""

    @classmethod
    def of_call(
        cls,
        input_tokens: float,
        output_tokens: float,
        cost: float,
        *,
        seconds: float = 0,
        prices: Iterable[Price] = (),
    ) -> Self:
        """Return what one model call needs."""
        return cls(
            1,
            input_tokens,
            output_tokens,
            input_tokens + output_tokens,
            cost,
            seconds,
            call_input=input_tokens,
            call_output=output_tokens,
            call_cost=cost,
            chat_calls=1,
            prices=frozenset(prices),
        )

    @classmethod
    def unknown(cls) -> Self:
        """Return what a part needs of which nothing is known."""
        return cls(*[UNKNOWN] * _NUMBER, prices=frozenset([_UNPRICED]))

    def __add__(self, other: Need) -> Need:
        return _combined(self, other, add)

    def times(self, number: float) -> Need:
        """Return what the same part needs so many times, one after the other."""
        if not number:
            return Need()
        figures = {
            name: _product(getattr(self, name), number) for name in FIGURES
        }
        shares = {
            name: share.times(number) for name, share in self.shares.items()
        }
        return replace(self, **figures, shares=shares)

    def at_once(self, other: Need) -> Need:
        """Return what both need if they run at once."""
        seconds = max(self.seconds, other.seconds)
        return replace(self + other, seconds=seconds)

    def of_chat(self, component: str, causes: Mapping[str, float]) -> Need:
        """Return the same as that of one chat.

        Args:
            component: The component that chats.
            causes: Tokens by what they are needed for.
        """
        share = Share(self.calls, self.tokens, self.cost, causes)
        return replace(self, chat_calls=self.calls, shares={component: share})

    @classmethod
    def lowest(cls, needs: Sequence[Need]) -> Need:
        """Return what each of several ways needs at least."""
        return reduce(partial(_combined, choose=min), needs)

    @classmethod
    def highest(cls, needs: Sequence[Need]) -> Need:
        """Return what none of several ways exceeds; the shares are those of the dearest one."""
        highest = reduce(partial(_combined, choose=max), needs)
        return replace(highest, shares=cls.dearest(needs).shares)

    @classmethod
    def dearest(cls, needs: Sequence[Need]) -> Need:
        """Return that of the dearest way."""
        return max(needs, key=lambda need: (need.cost, need.tokens))

    def within(self, limits: RunLimits) -> Need:
        """Return what a run needs at most that ends where one of its limits is reached."""
        need = self
        calls = limits.model_calls
        if calls is not None and need.calls > calls:
            most_input = _product(need.call_input, calls)
            most_output = _product(need.call_output, calls)
            need = replace(
                need,
                calls=calls,
                input_tokens=min(need.input_tokens, most_input),
                output_tokens=min(need.output_tokens, most_output),
                tokens=min(need.tokens, most_input + most_output),
                cost=min(need.cost, _product(need.call_cost, calls)),
            )
        tokens = limits.tokens
        if tokens is not None and need.tokens > tokens:
            most = max(
                (each.most_for(tokens) for each in need.prices), default=0
            )
            need = replace(
                need,
                input_tokens=min(need.input_tokens, tokens),
                output_tokens=min(need.output_tokens, tokens),
                tokens=tokens,
                cost=min(need.cost, most),
            )
        if limits.cost is not None:
            need = replace(need, cost=min(need.cost, limits.cost))
        if limits.wall_time is not None:
            need = replace(need, seconds=min(need.seconds, limits.wall_time))
        return need


def _combined(
    one: Need, other: Need, choose: Callable[[float, float], float]
) -> Need:
    """Return each figure of two needs as it is chosen, with the shares of both."""
    figures: dict[str, Any] = {
        name: choose(getattr(one, name), getattr(other, name))
        for name in FIGURES
    }
    for name in _LARGEST:
        figures[name] = max(getattr(one, name), getattr(other, name))
    shares = dict(one.shares)
    for name, share in other.shares.items():
        shares[name] = shares.get(name, Share()) + share
    return Need(**figures, prices=one.prices | other.prices, shares=shares)


_UNPRICED = Price(lambda _: None)
_LARGEST = ("call_input", "call_output", "call_cost", "chat_calls")
_NUMBER = len(FIGURES) + len(_LARGEST)


def _product(amount: float, number: float) -> float:
    """Return the product; nothing, so often as nobody knows, is nothing."""
    if not amount or not number:
        return 0
    return amount * number
