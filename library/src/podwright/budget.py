"""Limits that hold while many model calls are under way: reserve the worst case, call, settle.

A run in another container cannot ask here before each call. It is lent a share of what is left, which is settled
when it ends. Whatever begins in the same moment shares evenly; what is lent is waited for as any call is.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import TypeVar

from podwright.errors import LimitExceededError
from podwright.usage import RunLimits, Usage, add_cost

ASSUMED_OUTPUT = 4096
"""Output tokens that a call without `max_tokens` is taken to need at worst."""

_MOMENT = 3
"""Turns of the event loop that what begins together takes to arrive here."""
_COST_STEPS = 10**12
"""A share of money is rounded down, so that shares never add up to more than there is."""

T = TypeVar("T", int, float)

Price = Callable[[Usage], float | None]


@dataclass(slots=True)
class Hold:
    """What is set aside for one call, or lent to one remote run; a limit that is not set has 0."""

    tokens: int
    cost: float
    limit: str = ""
    """The limit that left the call less output than it asked for; empty if none did."""
    calls: int = 1
    lent: bool = False


class Budget:
    """What is left of one run's limits, shared by everything nested in the run."""

    __slots__ = ("_changed", "_holds", "_wishes", "calls", "cost", "limits", "tokens")

    def __init__(self, limits: RunLimits) -> None:
        self.limits = limits
        self.calls = 0
        self.tokens = 0
        self.cost: float = 0.0
        self._holds: list[Hold] = []
        self._changed: list[asyncio.Future[None]] = []
        self._wishes: list[asyncio.Future[Hold]] = []

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
                if not any(hold.lent for hold in self._holds):
                    raise LimitExceededError(f"The run has made its {calls} model calls.", limit="model_calls")
                await self._change()
                continue
            allowed, limit = self._allowed(input_tokens, output_tokens, price)
            if allowed >= output_tokens or (allowed > 0 and not self._holds):
                hold = self._hold(input_tokens, allowed, price)
                hold.limit = limit if allowed < output_tokens else ""
                self._take(hold)
                return hold, allowed
            if not self._holds:
                raise self._exhausted(limit, input_tokens)
            await self._change()

    def settle(self, hold: Hold, usage: Usage | None, calls: int = 1) -> None:
        """Give back what was not needed, and count what was used.

        Args:
            hold: What was set aside.
            usage: Tokens and cost; None is a call that was not made.
            calls: How many model calls were begun.
        """
        self._holds = [one for one in self._holds if one is not hold]
        self.calls += (0 if usage is None else calls) - hold.calls
        if usage is not None:
            self.tokens += usage.total_tokens
            self.cost = add_cost(self.cost, usage.cost or 0.0) or 0.0
        self._wake()

    async def lend(self) -> Hold:
        """Set a fair share of what is left aside for a run in another container.

        Those that ask in the same moment share evenly, with the model calls that are under way here. One that
        nothing is left for waits until something is given back.

        Returns:
            The share, to be settled in any case.

        Raises:
            LimitExceededError: Nothing is left, and nobody holds anything.
        """
        wish: asyncio.Future[Hold] = asyncio.get_running_loop().create_future()
        self._wishes.append(wish)
        try:
            for _ in range(_MOMENT):
                await asyncio.sleep(0)
            while not wish.done():
                self._share_out()
                if not wish.done():
                    await self._change()
        except BaseException:
            if wish.done() and not wish.cancelled():
                self.settle(wish.result(), None)
            raise
        finally:
            self._wishes = [one for one in self._wishes if one is not wish]
        return wish.result()

    def _share_out(self) -> None:
        """Lend to all who wish, evenly."""
        wishes = [wish for wish in self._wishes if not wish.done()]
        limits, held = self.limits, self._holds
        tokens = _left(limits.tokens, self.tokens + sum(hold.tokens for hold in held))
        calls = _left(limits.model_calls, self.calls)
        cost = _left(limits.cost, self.cost + sum(hold.cost for hold in held))
        # a budget of no money is for models that cost nothing, so it can still be shared
        spent = "cost" if cost is not None and cost <= 0 and (self.cost > 0 or held) else ""
        spent = "model_calls" if calls is not None and calls < 1 else spent
        spent = "tokens" if tokens is not None and tokens < 1 else spent
        if spent and not held:
            raise LimitExceededError(f"Nothing is left of the run's limit of {spent} for a remote run.", limit=spent)
        if spent:
            return
        parts = len(wishes) + sum(not hold.lent for hold in held)
        for number, wish in enumerate(wishes[: calls if calls is not None else None]):
            share = Hold(
                max(1, tokens // parts) if tokens is not None else 0,
                max(0.0, math.floor(cost / parts * _COST_STEPS) / _COST_STEPS) if cost is not None else 0.0,
                calls=max(1, calls // parts + (number < calls % parts)) if calls is not None else 0,
                lent=True,
            )
            if tokens is not None and tokens - number * share.tokens < share.tokens:
                break
            self._take(share)
            wish.set_result(share)

    def shrink(self, hold: Hold, limits: RunLimits) -> None:
        """Give back what another budget does not let the borrower use."""
        calls = min(hold.calls, limits.model_calls or 0)
        self.calls -= hold.calls - calls
        hold.tokens, hold.calls = min(hold.tokens, limits.tokens or 0), calls
        hold.cost = min(hold.cost, limits.cost or 0.0)
        self._wake()

    def _take(self, hold: Hold) -> None:
        self._holds.append(hold)
        self.calls += hold.calls

    async def _change(self) -> None:
        """Wait until something is given back."""
        changed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._changed.append(changed)
        await changed

    def _wake(self) -> None:
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


def _left(limit: T | None, used: T) -> T | None:
    return None if limit is None else limit - used


@dataclass(slots=True)
class Loan:
    """What a run in another container may use."""

    limits: RunLimits = field(default_factory=RunLimits)
    holds: list[tuple[Budget, Hold]] = field(default_factory=list[tuple[Budget, Hold]])

    def settle(self, usage: Usage | None, calls: int = 0) -> None:
        """As `Budget.settle`, for all budgets."""
        for budget, hold in self.holds:
            budget.settle(hold, usage, calls)

    def keep(self, usage: Usage, calls: int) -> None:
        """Count all that was lent as used: nobody knows what else the borrower used, or still uses."""
        for budget, hold in self.holds:
            more = Usage(max(0, hold.tokens - usage.total_tokens), cost=max(0.0, hold.cost - (usage.cost or 0.0)))
            budget.settle(hold, usage + more, max(calls, hold.calls))


async def borrow(budgets: Iterable[Budget]) -> Loan:
    """A fair share of what is left of some budgets; what the tightest of them gives.

    Args:
        budgets: Outermost first.

    Raises:
        LimitExceededError: One of them has nothing left.
    """
    loan = Loan()
    holds = loan.holds
    try:
        for budget in budgets:
            holds.append((budget, await budget.lend()))
    except BaseException:
        loan.settle(None)
        raise
    tokens = [hold.tokens for budget, hold in holds if budget.limits.tokens is not None]
    calls = [hold.calls for budget, hold in holds if budget.limits.model_calls is not None]
    cost = [hold.cost for budget, hold in holds if budget.limits.cost is not None]
    loan.limits = RunLimits(None, min(calls, default=None), min(tokens, default=None), min(cost, default=None))
    for budget, hold in holds:
        budget.shrink(hold, loan.limits)
    return loan
