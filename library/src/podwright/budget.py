"""Limits that hold while model calls run in parallel: reserve the worst case, call, settle.

A run in another container cannot ask before each of its calls, so it borrows a share of what is left and settles at
its end. Whoever asks first is served first.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from contextvars import ContextVar
from dataclasses import dataclass, field, replace

from podwright.errors import LimitExceededError
from podwright.usage import RunLimits, Usage, add_cost

ASSUMED_OUTPUT_TOKENS = 4096
"""Output tokens reserved for a call without `max_tokens`."""

parallel_tasks: ContextVar[int] = ContextVar("podwright_parallel_tasks", default=1)
"""Number of parallel tasks, this one included; a loan to another container is what is left divided by it."""

CostOf = Callable[[Usage], float | None]
"""Returns the cost of a usage in USD; None if it is unknown."""


@dataclass(slots=True, eq=False)
class Reservation:
    """A part of a budget that is set aside for one model call, or lent to one remote run."""

    tokens: int = 0
    """Input and output tokens; 0 if they are not limited."""
    cost: float = 0.0
    """USD; 0 if it is not limited."""
    calls: int = 1
    output_tokens: int = 0
    """Output tokens that the call may use."""
    limit: str = ""
    """The limit that left the call fewer output tokens than it asked for; empty if none did."""
    lent: bool = False


class Budget:
    """What is left of one run's limits, shared with all runs nested in it."""

    def __init__(self, limits: RunLimits) -> None:
        self.limits = limits
        self.calls = 0
        self.tokens = 0
        self.cost: float = 0.0
        self._reservations: list[Reservation] = []
        self._queue_lock = asyncio.Lock()
        self._released = asyncio.Event()
        self._parallel_tasks = parallel_tasks.get()

    async def reserve(
        self, input_tokens: int, output_tokens: int, cost_of: CostOf, *, calls: int = 1
    ) -> Reservation:
        """Set aside the worst case of a model call.

        While other calls hold what this one needs, it waits. If no other call does, it may use as many output tokens
        as are left.

        Args:
            input_tokens: Estimated input tokens.
            output_tokens: Most output tokens that the call asks for.
            cost_of: The cost of a usage with the model.
            calls: 0 for a further attempt of a call that is counted.

        Returns:
            The reservation, which must be settled.

        Raises:
            LimitExceededError: Not even one output token is left.
        """
        return await self._in_turn(
            lambda: self._try_reserve(input_tokens, output_tokens, cost_of, calls)
        )

    async def lend(self) -> Reservation:
        """Set aside a share of what is left for a run in another container; waits while nothing is left.

        Returns:
            The share, which must be settled.

        Raises:
            LimitExceededError: Nothing is left, and nothing is reserved that could come back.
        """
        return await self._in_turn(self._try_lend)

    def settle(
        self, reservation: Reservation, usage: Usage | None, calls: int = 1
    ) -> None:
        """Release a reservation and count what was used.

        Args:
            reservation: What was set aside.
            usage: Tokens and cost; None if no call was made.
            calls: How many model calls were begun.
        """
        self._reservations.remove(reservation)
        if usage is not None:
            self.calls += calls
            # what is not known counts as reserved
            is_estimate = usage.uncounted_model_calls > 0 and not reservation.lent
            self.tokens += max(
                usage.total_tokens, reservation.tokens if is_estimate else 0
            )
            cost = (
                max(reservation.cost, usage.known_cost)
                if usage.cost is None
                else usage.cost
            )
            self.cost = add_cost(self.cost, cost) or 0.0
        self._released.set()

    def count(self, usage: Usage) -> None:
        """Count what an earlier attempt of the run has used."""
        self.calls += usage.model_calls
        self.tokens += usage.total_tokens
        self.cost = add_cost(self.cost, usage.known_cost) or 0.0

    def reduce(self, reservation: Reservation, limits: RunLimits) -> None:
        """Release the part of a loan that another budget does not allow to be used."""
        reservation.tokens = min(reservation.tokens, limits.tokens or 0)
        reservation.calls = min(reservation.calls, limits.model_calls or 0)
        reservation.cost = min(reservation.cost, limits.cost or 0.0)
        self._released.set()

    async def _in_turn(self, attempt: Callable[[], Reservation | None]) -> Reservation:
        # asyncio.Lock is fair: the first who asks is served first
        async with self._queue_lock:
            while (reservation := attempt()) is None:
                self._released.clear()
                await self._released.wait()
            self._reservations.append(reservation)
            return reservation

    def _left(self) -> RunLimits:
        """What is neither used nor reserved."""
        limits = self.limits
        reserved = self._reservations
        calls = sum(reservation.calls for reservation in reserved) + self.calls
        tokens = sum(reservation.tokens for reservation in reserved) + self.tokens
        cost = sum(reservation.cost for reservation in reserved) + self.cost
        return RunLimits(
            model_calls=None
            if limits.model_calls is None
            else max(0, limits.model_calls - calls),
            tokens=None if limits.tokens is None else max(0, limits.tokens - tokens),
            cost=None if limits.cost is None else max(0.0, limits.cost - cost),
        )

    def _try_reserve(
        self, input_tokens: int, output_tokens: int, cost_of: CostOf, calls: int
    ) -> Reservation | None:
        left = self._left()
        if left.model_calls == 0 and calls:
            if any(reservation.lent for reservation in self._reservations):
                return None
            message = f"The run has made its {self.limits.model_calls} model calls."
            raise LimitExceededError(message, limit="model_calls")
        allowed = output_tokens
        limit = ""
        if left.tokens is not None and left.tokens - input_tokens < allowed:
            allowed = left.tokens - input_tokens
            limit = "tokens"
        if left.cost is not None:
            affordable = self._affordable(
                left.cost, input_tokens, output_tokens, cost_of
            )
            if affordable < allowed:
                allowed = affordable
                limit = "cost"
        if allowed < output_tokens and self._reservations:
            return None
        if allowed < 1:
            raise self._exhausted(limit, input_tokens)
        cost = (
            0.0
            if left.cost is None
            else _highest_cost(cost_of, input_tokens, allowed) or 0.0
        )
        return Reservation(
            input_tokens + allowed,
            cost,
            calls=calls,
            output_tokens=allowed,
            limit=limit,
        )

    def _affordable(
        self, left: float, input_tokens: int, output_tokens: int, cost_of: CostOf
    ) -> int:
        """How many output tokens a call may have for what is left, at most those that it asks for."""
        whole = _highest_cost(cost_of, input_tokens, output_tokens)
        base = _highest_cost(cost_of, input_tokens, 0)
        if whole is None or base is None:
            raise LimitExceededError(
                "The model's price is unknown, and the run has a cost limit.",
                limit="cost",
                suggestion="Use a model of known price, or remove the cost limit.",
            )
        if left <= 0 < self.cost:
            return 0
        if whole <= left:
            return output_tokens
        return (
            int(output_tokens * (left - base) / (whole - base)) if whole > base else 0
        )

    def _exhausted(self, limit: str, input_tokens: int) -> LimitExceededError:
        if limit == "cost":
            used = f"{self.cost:.6g} of {self.limits.cost:.6g} USD are used"
        else:
            used = f"{self.tokens} of {self.limits.tokens} tokens are used"
        message = f"The next model call ({input_tokens} input tokens) exceeds the run's limit: {used}."
        return LimitExceededError(message, limit=limit)

    def _try_lend(self) -> Reservation | None:
        left = self._left()
        # with a cost limit of 0, free models are still allowed
        cost_exhausted = left.cost == 0 and bool(self.cost > 0 or self._reservations)
        exhausted = (
            "model_calls"
            if left.model_calls == 0
            else "tokens"
            if left.tokens == 0
            else ""
        )
        exhausted = exhausted or ("cost" if cost_exhausted else "")
        if exhausted and self._reservations:
            return None
        if exhausted:
            raise LimitExceededError(
                f"Nothing is left of the run's limit '{exhausted}'.", limit=exhausted
            )
        parts = max(1, parallel_tasks.get() // self._parallel_tasks)
        lent = [reservation for reservation in self._reservations if reservation.lent]
        return Reservation(
            tokens=max(
                1, int(_share(left.tokens, [loan.tokens for loan in lent], parts))
            ),
            cost=_share(left.cost, [loan.cost for loan in lent], parts),
            calls=max(
                1, int(_share(left.model_calls, [loan.calls for loan in lent], parts))
            ),
            lent=True,
        )


def _highest_cost(
    cost_of: CostOf, input_tokens: int, output_tokens: int
) -> float | None:
    """The most that a call may cost: the provider may write its input to a cache, and its output may be thoughts.

    None if it is unknown.
    """
    plain = Usage(input_tokens, output_tokens)
    written = replace(plain, cache_write_tokens=input_tokens)
    dearest = (plain, written, replace(written, cache_write_1h_tokens=input_tokens))
    costs = [cost_of(usage) for usage in dearest]
    costs += [
        cost_of(replace(usage, reasoning_tokens=output_tokens)) for usage in dearest
    ]
    known = [cost for cost in costs if cost is not None]
    return max(known) if len(known) == len(costs) else None


def _share(left: float | None, lent: Iterable[float], parts: int) -> float:
    """An even part of what is left and what is lent, so that the last borrower gets as much as the first."""
    available = left or 0.0
    return min(available, (available + sum(lent)) / parts)


@dataclass(slots=True)
class Loan:
    """What a run in another container may use."""

    limits: RunLimits = field(default_factory=RunLimits)
    reservations: list[tuple[Budget, Reservation]] = field(
        default_factory=list[tuple[Budget, Reservation]]
    )

    def settle(self, usage: Usage | None, calls: int = 0) -> None:
        """As `Budget.settle`, for each of the budgets."""
        for budget, reservation in self.reservations:
            budget.settle(reservation, usage, calls)


async def borrow(budgets: Iterable[Budget]) -> Loan:
    """Borrow a share of what is left of each budget; the loan's limits are those of the tightest.

    Args:
        budgets: Outermost first.

    Raises:
        LimitExceededError: One of them has nothing left.
    """
    loan = Loan()
    try:
        for budget in budgets:
            loan.reservations.append((budget, await budget.lend()))
    except BaseException:
        loan.settle(None)
        raise
    shares = [(budget.limits, share) for budget, share in loan.reservations]
    loan.limits = RunLimits(
        model_calls=min(
            (share.calls for limits, share in shares if limits.model_calls is not None),
            default=None,
        ),
        tokens=min(
            (share.tokens for limits, share in shares if limits.tokens is not None),
            default=None,
        ),
        cost=min(
            (share.cost for limits, share in shares if limits.cost is not None),
            default=None,
        ),
    )
    for budget, reservation in loan.reservations:
        budget.reduce(reservation, loan.limits)
    return loan
