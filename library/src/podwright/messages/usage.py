"""What a run used, and what it may use: `Usage` and `RunLimits`."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any

from podwright.errors import ConfigurationError

_PICO = 1_000_000_000_000
"""Amounts are rounded to 1e-12 USD, so that a sum does not depend on its order."""


_MOST = 1e15
"""A larger number is of no run; sums of it would not be exact."""


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens, calls and cost of a model call, a run, or a sum of runs (spec §2.6).

    Raises:
        ValueError: A number is negative, or too large.
    """

    input_tokens: int = 0
    """Tokens sent to models, cached ones included."""
    output_tokens: int = 0
    """Tokens that models produced, reasoning included. Input and output together are billed."""
    cached_input_tokens: int = 0
    """Part of `input_tokens`: read from the provider's cache."""
    reasoning_tokens: int = 0
    """Part of `output_tokens`: spent on reasoning."""
    model_calls: int = 0
    """Model calls that succeeded."""
    tool_calls: int = 0
    """Tool calls that began."""
    cost: float | None = 0.0
    """USD, exact to 1e-12; None when the price of at least one call is unknown."""
    unpriced_model_calls: int = 0
    """Model calls, failed attempts included, of which the cost is unknown, for whatever reason."""
    by_model: Mapping[str, Usage] = field(default_factory=dict[str, "Usage"])
    """The same by model name; empty inside the entries."""
    cache_write_tokens: int = 0
    """Part of `input_tokens`: written to the provider's cache."""
    cache_write_1h_tokens: int = 0
    """Part of `cache_write_tokens`: kept there for an hour, which costs more."""
    known_cost: float = 0.0
    """USD, exact to 1e-12: what is known of the cost, which is all of it unless `cost` is None."""
    uncounted_model_calls: int = 0
    """Those of `unpriced_model_calls` of which the provider gave no count: their tokens are estimates."""
    incomplete_model_calls: int = 0
    """Those of `unpriced_model_calls` of which only a part has a known price, which is in `known_cost`."""
    cost_source: str = ""
    """Where the cost comes from: `override` (the operator's file), `genai-prices`, `litellm`, `provider` (its response)
    or `offline`; `mixed` if several calls differ, and empty if nothing says it."""
    input_audio_tokens: int = 0
    """Part of `input_tokens`: audio, which has a price of its own."""
    output_audio_tokens: int = 0
    """Part of `output_tokens`: audio."""

    def __post_init__(self) -> None:
        if self.cost is not None and self.cost != self.known_cost:
            object.__setattr__(self, "known_cost", self.cost)
        numbers = (
            self.input_tokens,
            self.output_tokens,
            self.cached_input_tokens,
            self.reasoning_tokens,
            self.model_calls,
            self.tool_calls,
            self.unpriced_model_calls,
            self.cache_write_tokens,
            self.cache_write_1h_tokens,
            self.known_cost,
            self.uncounted_model_calls,
            self.incomplete_model_calls,
            self.input_audio_tokens,
            self.output_audio_tokens,
        )
        # NaN is neither 0 or more nor less than that
        if not (min(numbers) >= 0 and max(numbers) <= _MOST):
            raise ValueError(
                f"A number of a usage is negative, or too large: {numbers}."
            )

    @property
    def total_tokens(self) -> int:
        """Input and output tokens together."""
        return self.input_tokens + self.output_tokens

    def __add__(self, other: Usage) -> Usage:
        if self is NO_USAGE:
            return other
        if other is NO_USAGE:
            return self
        unpriced = self.unpriced_model_calls + other.unpriced_model_calls
        uncounted = self.uncounted_model_calls + other.uncounted_model_calls
        incomplete = self.incomplete_model_calls + other.incomplete_model_calls
        written_1h = self.cache_write_1h_tokens + other.cache_write_1h_tokens
        return Usage(
            input_tokens=self.input_tokens + other.input_tokens,
            output_tokens=self.output_tokens + other.output_tokens,
            cached_input_tokens=self.cached_input_tokens
            + other.cached_input_tokens,
            reasoning_tokens=self.reasoning_tokens + other.reasoning_tokens,
            model_calls=self.model_calls + other.model_calls,
            tool_calls=self.tool_calls + other.tool_calls,
            cost=add_cost(self.cost, other.cost),
            unpriced_model_calls=unpriced,
            by_model=_add_by_model(self.by_model, other.by_model),
            cache_write_tokens=self.cache_write_tokens
            + other.cache_write_tokens,
            cache_write_1h_tokens=written_1h,
            known_cost=add_cost(self.known_cost, other.known_cost) or 0.0,
            uncounted_model_calls=uncounted,
            incomplete_model_calls=incomplete,
            cost_source=_common_source(self.cost_source, other.cost_source),
            input_audio_tokens=self.input_audio_tokens
            + other.input_audio_tokens,
            output_audio_tokens=self.output_audio_tokens
            + other.output_audio_tokens,
        )

    def as_call(self, model: str) -> Usage:
        """The usage as that of one successful call to `model`, to be added to the usage of a run."""
        return self._as_attempt(model, calls=1)

    def as_failed_call(self, model: str) -> Usage:
        """The usage as that of an attempt to call `model` that failed after an answer had begun."""
        return self._as_attempt(model, calls=0)

    def _as_attempt(self, model: str, calls: int) -> Usage:
        cost = self.cost
        unpriced = 0
        if cost is None:
            unpriced = max(1, self.unpriced_model_calls)
        else:
            cost = _rounded(cost)
        call = replace(
            self,
            model_calls=calls,
            tool_calls=0,
            cost=cost,
            known_cost=_rounded(self.known_cost),
            unpriced_model_calls=unpriced,
            by_model={},
        )
        return replace(call, by_model={model: call})

    def to_dict(self) -> dict[str, Any]:
        """The usage as JSON-compatible data with all fields."""
        names = [item.name for item in fields(self)]
        data: dict[str, Any] = {name: getattr(self, name) for name in names}
        del data["by_model"]
        if self.by_model:
            by_model = self.by_model.items()
            data["by_model"] = {
                name: usage.to_dict() for name, usage in by_model
            }
        return data


NO_USAGE = Usage()
"""The usage of a run at its start."""


def _rounded(amount: float) -> float:
    return round(amount * _PICO) / _PICO


def _add_by_model(
    one: Mapping[str, Usage], other: Mapping[str, Usage]
) -> dict[str, Usage]:
    total = dict(one)
    for name, usage in other.items():
        if name in total:
            total[name] += usage
        else:
            total[name] = usage
    return total


def _common_source(one: str, other: str) -> str:
    """The source of a sum of two costs; empty is the source of no cost."""
    if not one or one == other:
        return other
    if not other:
        return one
    return "mixed"


def add_cost(cost: float | None, other: float | None) -> float | None:
    """The sum of two amounts in USD, exact to 1e-12; unknown if either is unknown."""
    if cost is None or other is None:
        return None
    total = round(cost * _PICO) + round(other * _PICO)
    return total / _PICO


@dataclass(frozen=True, slots=True)
class RunLimits:
    """What a run and all its nested runs may use together; None, or infinity, for no limit.

    Raises:
        ConfigurationError: A limit is not a number of the right type, or is negative.
    """

    wall_time: float | None = None
    """Seconds from start to end."""
    model_calls: int | None = None
    """Model calls, failed ones included."""
    tokens: int | None = None
    """Input and output tokens; the worst case of a call is reserved before it starts."""
    cost: float | None = None
    """USD. With this limit, models of unknown price are refused."""

    def to_dict(self) -> dict[str, float | None]:
        """The limits by name."""
        return {name: getattr(self, name) for name in self.__slots__}

    def __post_init__(self) -> None:
        for name in self.__slots__:
            value = getattr(self, name)
            _check_limit(name, value)
            if value == math.inf:
                object.__setattr__(self, name, None)


def limits_of_blueprint(data: Mapping[str, Any] | None) -> RunLimits | None:
    """The `limits` of a valid blueprint, or of one of its steps; None if it has none."""
    if not data:
        return None
    return RunLimits(
        wall_time=data.get("seconds"),
        model_calls=data.get("model_calls"),
        tokens=data.get("tokens"),
        cost=data.get("cost"),
    )


def _check_limit(name: str, value: Any) -> None:
    if value is None:
        return
    if name in ("model_calls", "tokens"):
        expected = "an integer"
        has_type = isinstance(value, int)
    else:
        expected = "a number"
        has_type = isinstance(value, int | float)
    # NaN is neither negative nor 0 or more
    if not has_type or isinstance(value, bool) or not value >= 0:
        raise ConfigurationError(
            f"RunLimits.{name} must be {expected}, 0 or more, not {value!r}."
        )
