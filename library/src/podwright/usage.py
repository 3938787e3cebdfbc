"""What a run used, and what it may use: `Usage` and `RunLimits`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from podwright.errors import ConfigurationError

_STEP = 1_000_000_000_000
"""Money is summed in whole steps of 1e-12 USD, so a sum is the same in every order."""

_NONE: Mapping[str, Usage] = {}


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens, calls and cost of a model call, a run, or a sum of runs (spec §2.6)."""

    input_tokens: int = 0
    """Tokens sent to models, cached ones included."""
    output_tokens: int = 0
    """Tokens that models produced, reasoning included. Input + output is the bill."""
    cached_input_tokens: int = 0
    """The part of `input_tokens` that the provider read from its cache."""
    reasoning_tokens: int = 0
    """The part of `output_tokens` that was spent on reasoning."""
    model_calls: int = 0
    """Model calls that were answered."""
    tool_calls: int = 0
    """Tool calls that were started."""
    cost: float | None = 0.0
    """USD, exact to 1e-12; None when the price of at least one call is unknown."""
    unpriced_model_calls: int = 0
    """How many model calls had an unknown price."""
    by_model: Mapping[str, Usage] = field(default_factory=lambda: _NONE)
    """The same, for each model by name; empty inside those."""

    @property
    def total_tokens(self) -> int:
        """Input and output tokens together."""
        return self.input_tokens + self.output_tokens

    def __add__(self, other: Usage) -> Usage:
        if other.by_model:
            by_model = dict(self.by_model)
            for name, usage in other.by_model.items():
                by_model[name] = by_model[name] + usage if name in by_model else usage
        else:
            by_model = self.by_model
        return Usage(
            self.input_tokens + other.input_tokens,
            self.output_tokens + other.output_tokens,
            self.cached_input_tokens + other.cached_input_tokens,
            self.reasoning_tokens + other.reasoning_tokens,
            self.model_calls + other.model_calls,
            self.tool_calls + other.tool_calls,
            add_cost(self.cost, other.cost),
            self.unpriced_model_calls + other.unpriced_model_calls,
            by_model,
        )

    def at(self, cost: float) -> Usage:
        """The usage of one call, at a cost in USD."""
        return Usage(self.input_tokens, self.output_tokens, self.cached_input_tokens, self.reasoning_tokens, cost=cost)

    def of_call(self, model: str) -> Usage:
        """This usage as that of one answered call to `model`, ready to be added to a run's."""
        unpriced, cost = (1, None) if self.cost is None else (0, round(self.cost * _STEP) / _STEP)
        counts = (self.input_tokens, self.output_tokens, self.cached_input_tokens, self.reasoning_tokens)
        one = Usage(*counts, 1, 0, cost, unpriced)
        return Usage(*counts, 1, 0, cost, unpriced, {model: one})

    def to_dict(self) -> dict[str, Any]:
        """The usage as a JSON-compatible dictionary with all fields."""
        plain: dict[str, Any] = {name: getattr(self, name) for name in _COUNTS}
        plain["cost"] = self.cost
        if self.by_model:
            plain["by_model"] = {name: usage.to_dict() for name, usage in self.by_model.items()}
        return plain


NOTHING = Usage()
"""What a run has used when it begins."""

_COUNTS = (
    "input_tokens",
    "output_tokens",
    "cached_input_tokens",
    "reasoning_tokens",
    "model_calls",
    "tool_calls",
    "unpriced_model_calls",
)


def add_cost(one: float | None, other: float | None) -> float | None:
    """The sum of two amounts in USD, exact to 1e-12; unknown if either is unknown."""
    if one is None or other is None:
        return None
    return (round(one * _STEP) + round(other * _STEP)) / _STEP


@dataclass(frozen=True, slots=True)
class RunLimits:
    """What a run and all its nested runs may use together; None is no limit.

    Raises:
        ConfigurationError: A limit is no number of the right kind, or below 0.
    """

    wall_time: float | None = None
    """Seconds from start to end."""
    model_calls: int | None = None
    """Model calls, failed ones included."""
    tokens: int | None = None
    """Input and output tokens. A call's worst case is set aside before it starts."""
    cost: float | None = None
    """USD. With this limit, a model of unknown price is refused."""

    def __post_init__(self) -> None:
        for name in ("wall_time", "model_calls", "tokens", "cost"):
            value = getattr(self, name)
            whole = name in ("model_calls", "tokens")
            kinds = int if whole else (int, float)
            if value is not None and (not isinstance(value, kinds) or isinstance(value, bool) or not value >= 0):
                wanted = "a whole number" if whole else "a number"
                raise ConfigurationError(f"RunLimits.{name} is {wanted}, 0 or more, not {value!r}.")
