"""Limits that hold while many model calls are under way: reserve the worst case, call, settle."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from podwright.errors import LimitExceededError
from podwright.usage import RunLimits, Usage, add_cost

ASSUMED_OUTPUT = 4096
"""Output tokens that a call without `max_tokens` is taken to need at worst."""

Price = Callable[[Usage], float | None]


@dataclass(slots=True)
class Hold:
    """What is set aside for one call."""

    tokens: int
    cost: float
    limit: str = ""
    """The limit that left the call less output than it asked for; empty if none did."""


class Budget:
    """What is left of one run's limits, shared by everything nested in the run."""

    __slots__ = ("_changed", "_holds", "calls", "cost", "limits", "tokens")

    def __init__(self, limits: RunLimits) -> None:
        self.limits = limits
        self.calls = 0
        self.tokens = 0
        self.cost: float = 0.0
        self._holds: list[Hold] = []
        self._changed: list[asyncio.Future[None]] = []

    async def reserve(self, input_tokens: int, output_tokens: int, price: Price) -> tuple[Hold, int]:
        """Set aside what a call needs at worst.

        Where that is more than is left while other calls hold a part of it, this waits for them; where
        nobody does, the call is allowed just as much output as is left.

        Args:
            input_tokens: What the request has, about.
            output_tokens: The most that the answer may have.
            price: The model's price for a usage, in USD; None if unknown.

        Returns:
            The hold, to be settled in any case, and the output tokens that the answer may have.

        Raises:
            LimitExceededError: Not even one output token is left.
        """
        calls = self.limits.model_calls
        while True:
            if calls is not None and self.calls >= calls:
                raise LimitExceededError(f"The run has made its {calls} model calls.", limit="model_calls")
            allowed, limit = self._allowed(input_tokens, output_tokens, price)
            if allowed >= output_tokens or (allowed > 0 and not self._holds):
                hold = self._hold(input_tokens, allowed, price)
                hold.limit = limit if allowed < output_tokens else ""
                self._holds.append(hold)
                self.calls += 1
                return hold, allowed
            if not self._holds:
                raise self._exhausted(limit, input_tokens)
            changed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._changed.append(changed)
            await changed

    def settle(self, hold: Hold, usage: Usage | None) -> None:
        """Give back what a call did not need, and count what it used; None is a call that was not made."""
        self._holds = [one for one in self._holds if one is not hold]
        if usage is None:
            self.calls -= 1
        else:
            self.tokens += usage.total_tokens
            self.cost = add_cost(self.cost, usage.cost or 0.0) or 0.0
        waiting, self._changed = self._changed, []
        for changed in waiting:
            if not changed.done():
                changed.set_result(None)

    def _hold(self, input_tokens: int, output_tokens: int, price: Price) -> Hold:
        cost = 0.0
        if self.limits.cost is not None:
            cost = price(Usage(input_tokens=input_tokens, output_tokens=output_tokens)) or 0.0
        return Hold(input_tokens + output_tokens, cost)

    def _allowed(self, input_tokens: int, output_tokens: int, price: Price) -> tuple[int, str]:
        """How many output tokens the call may have, and the limit that is nearest."""
        allowed, limit = output_tokens, "tokens"
        if self.limits.tokens is not None:
            held = sum(hold.tokens for hold in self._holds)
            allowed = min(allowed, self.limits.tokens - self.tokens - held - input_tokens)
        if self.limits.cost is not None:
            whole = price(Usage(input_tokens=input_tokens, output_tokens=output_tokens))
            base = price(Usage(input_tokens=input_tokens))
            if whole is None or base is None:
                raise LimitExceededError(
                    "The model's price is unknown, and the run has a cost limit.",
                    limit="cost",
                    suggestion="Use a model of known price, or lift the cost limit.",
                )
            left = self.limits.cost - self.cost - sum(hold.cost for hold in self._holds)
            if whole > left:
                affordable = int(output_tokens * (left - base) / (whole - base)) if whole > base else 0
                if affordable < allowed:
                    allowed, limit = affordable, "cost"
            if left <= 0 < self.cost:
                allowed, limit = 0, "cost"
        return allowed, limit

    def _exhausted(self, limit: str, input_tokens: int) -> LimitExceededError:
        if limit == "cost":
            used = f"{self.cost:.6g} of {self.limits.cost:.6g} USD are used"
        else:
            used = f"{self.tokens} of {self.limits.tokens} tokens are used"
        return LimitExceededError(
            f"The next model call ({input_tokens} input tokens) does not fit: {used}.", limit=limit
        )
