"""Limits that hold while model calls run in parallel: reserve the worst case, call, settle.

A run in another container cannot ask before each of its calls, so it borrows a share of what is left and settles at
its end. Whoever asks first is served first.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TypeVar

from podwright.errors import LimitExceededError
from podwright.location import location
from podwright.usage import RunLimits, Usage, add_cost

ASSUMED_OUTPUT_TOKENS = 4096
"""Output tokens reserved for a call without `max_tokens`."""

CostOf = Callable[[Usage], float | None]
"""Returns the cost of a usage in USD; None if it is unknown."""

_Amount = TypeVar("_Amount", int, float)


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


@dataclass(frozen=True, slots=True)
class _CallEstimate:
    """The worst case of a model call."""

    input_tokens: int
    output_tokens: int
    """Most output tokens that the call asks for."""
    cost_of: CostOf

    def highest_cost(self, output_tokens: int) -> float | None:
        """The most that the call may cost in USD with so many output tokens; None if it is unknown.

        The provider may write the input to a cache, and the output may be thoughts.
        """
        highest = 0.0
        for usage in _possible_usages(self.input_tokens, output_tokens):
            cost = self.cost_of(usage)
            if cost is None:
                return None
            highest = max(highest, cost)
        return highest


class Budget:
    """A run's limits, what is used of them and what is reserved; shared with all runs nested in the run."""

    def __init__(self, limits: RunLimits) -> None:
        self.limits = limits
        self.used_calls = 0
        """Model calls, failed ones included."""
        self.used_tokens = 0
        """Input and output tokens."""
        self.used_cost: float = 0.0
        """USD; a call of unknown cost counts as its reservation."""
        self._reservations: list[Reservation] = []
        self._queue_lock = asyncio.Lock()
        self._released = asyncio.Event()
        self._parallel_tasks = location.get().parallel_tasks

    async def reserve(
        self,
        input_tokens: int,
        output_tokens: int,
        cost_of: CostOf,
        *,
        calls: int = 1,
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
        estimate = _CallEstimate(input_tokens, output_tokens, cost_of)
        attempt = partial(self._try_reserve, estimate, calls)
        return await self._in_queue_order(attempt)

    async def lend(self) -> Reservation:
        """Set aside a share of what is left for a run in another container; waits while nothing is left.

        Returns:
            The share, which must be settled.

        Raises:
            LimitExceededError: Nothing is left, and nothing is reserved that could come back.
        """
        return await self._in_queue_order(self._try_lend)

    def settle(
        self, reservation: Reservation, usage: Usage | None, calls: int
    ) -> None:
        """Release a reservation and count what was used.

        Args:
            reservation: What was set aside.
            usage: Tokens and cost; None if no call was made.
            calls: How many model calls were begun; ignored if no call was made.
        """
        self._reservations.remove(reservation)
        if usage is not None:
            self._count_settled(reservation, usage, calls)
        self._released.set()

    def _count_settled(
        self, reservation: Reservation, usage: Usage, calls: int
    ) -> None:
        """Count what was used; what is not known counts as reserved."""
        least_tokens = 0
        if usage.uncounted_model_calls > 0 and not reservation.lent:
            least_tokens = reservation.tokens
        cost = usage.cost
        if cost is None:
            cost = max(reservation.cost, usage.known_cost)
        self.used_calls += calls
        self.used_tokens += max(usage.total_tokens, least_tokens)
        self.used_cost = add_cost(self.used_cost, cost) or 0.0

    def count(self, usage: Usage) -> None:
        """Count what an earlier attempt of the run has used."""
        self.used_calls += usage.model_calls
        self.used_tokens += usage.total_tokens
        self.used_cost = add_cost(self.used_cost, usage.known_cost) or 0.0

    def check(self, last: Usage) -> None:
        """Check the limits after a model call that nothing was reserved for.

        Args:
            last: What it used, which is counted.

        Raises:
            LimitExceededError: More is used than the limits allow, or the cost is limited and that of the call unknown.
        """
        limits = self.limits
        if limits.cost is not None and last.cost is None:
            raise self._unpriced_error()
        used: list[tuple[str, float, float | None]] = [
            ("model_calls", self.used_calls, limits.model_calls),
            ("tokens", self.used_tokens, limits.tokens),
            ("cost", self.used_cost, limits.cost),
        ]
        for limit, amount, allowed in used:
            if allowed is not None and amount > allowed:
                raise LimitExceededError(
                    f"{amount:.6g} of {allowed:.6g} are used of the run's limit '{limit}'.",
                    limit=limit,
                    source=self,
                )

    def check_left(self) -> None:
        """Check the limits before model calls that nothing is reserved for.

        Raises:
            LimitExceededError: Nothing is left of one of them.
        """
        left = self._left(reserved=())
        exhausted = self._exhausted_limit(left)
        if exhausted:
            raise self._nothing_left_error(exhausted)

    def reduce(self, reservation: Reservation, limits: RunLimits) -> None:
        """Release the part of a loan that another budget does not allow to be used."""
        reservation.tokens = min(reservation.tokens, limits.tokens or 0)
        reservation.calls = min(reservation.calls, limits.model_calls or 0)
        reservation.cost = min(reservation.cost, limits.cost or 0.0)
        self._released.set()

    async def _in_queue_order(
        self, attempt: Callable[[], Reservation | None]
    ) -> Reservation:
        # asyncio.Lock is fair: the first who asks is served first
        async with self._queue_lock:
            while (reservation := attempt()) is None:
                self._released.clear()
                await self._released.wait()
            self._reservations.append(reservation)
            return reservation

    def _left(self, reserved: Collection[Reservation]) -> RunLimits:
        """What is neither used nor among the reservations."""
        limits = self.limits
        calls = sum(reservation.calls for reservation in reserved)
        tokens = sum(reservation.tokens for reservation in reserved)
        cost = sum(reservation.cost for reservation in reserved)
        return RunLimits(
            model_calls=_left_of(limits.model_calls, self.used_calls + calls),
            tokens=_left_of(limits.tokens, self.used_tokens + tokens),
            cost=_left_of(limits.cost, self.used_cost + cost),
        )

    def _try_reserve(
        self, estimate: _CallEstimate, calls: int
    ) -> Reservation | None:
        """The reservation of a model call; None if it has to wait for others to be settled."""
        left = self._left(self._reservations)
        if left.model_calls == 0 and calls:
            # a remote run may return calls that it did not make; a reserved call of this process will be made
            if any(reservation.lent for reservation in self._reservations):
                return None
            message = (
                f"The run has made its {self.limits.model_calls} model calls."
            )
            raise LimitExceededError(message, limit="model_calls", source=self)
        allowed, limit = self._allowed(left, estimate)
        if allowed < estimate.output_tokens and self._reservations:
            return None
        if allowed < 1:
            raise self._exhausted_error(limit, estimate.input_tokens)
        cost = 0.0
        if left.cost is not None:
            cost = estimate.highest_cost(allowed) or 0.0
        return Reservation(
            tokens=estimate.input_tokens + allowed,
            cost=cost,
            calls=calls,
            output_tokens=allowed,
            limit=limit,
        )

    def _allowed(
        self, left: RunLimits, estimate: _CallEstimate
    ) -> tuple[int, str]:
        """The output tokens that a call may have, at most those that it asks for, and the limit that allows no more."""
        allowed = estimate.output_tokens
        limit = ""
        if left.tokens is not None:
            available = left.tokens - estimate.input_tokens
            if available < allowed:
                allowed = available
                limit = "tokens"
        if left.cost is not None:
            affordable = self._affordable(left.cost, estimate)
            if affordable < allowed:
                allowed = affordable
                limit = "cost"
        return allowed, limit

    def _affordable(self, left: float, estimate: _CallEstimate) -> int:
        """How many output tokens a call may have for what is left, at most those that it asks for."""
        whole = estimate.highest_cost(estimate.output_tokens)
        base = estimate.highest_cost(0)
        if whole is None or base is None:
            raise self._unpriced_error()
        # with a cost limit of 0, free models are allowed; a limit that is used up ends the run, even for free models
        if left <= 0 < self.used_cost:
            return 0
        if whole <= left:
            return estimate.output_tokens
        # the input alone costs more than is left
        if whole <= base:
            return 0
        return int(estimate.output_tokens * (left - base) / (whole - base))

    def _unpriced_error(self) -> LimitExceededError:
        return LimitExceededError(
            "The model's price is unknown, and the run has a cost limit.",
            limit="cost",
            suggestion="Use a model of known price, or remove the cost limit.",
            source=self,
        )

    def _nothing_left_error(self, limit: str) -> LimitExceededError:
        return LimitExceededError(
            f"Nothing is left of the run's limit '{limit}'.",
            limit=limit,
            source=self,
        )

    def _exhausted_error(
        self, limit: str, input_tokens: int
    ) -> LimitExceededError:
        if limit == "cost":
            used = (
                f"{self.used_cost:.6g} of {self.limits.cost:.6g} USD are used"
            )
        else:
            used = f"{self.used_tokens} of {self.limits.tokens} tokens are used"
        message = f"The next model call ({input_tokens} input tokens) exceeds the run's limit: {used}."
        return LimitExceededError(message, limit=limit, source=self)

    def _try_lend(self) -> Reservation | None:
        """The share of a remote run; None if it has to wait for reservations to be settled."""
        left = self._left(self._reservations)
        exhausted = self._exhausted_limit(left)
        if exhausted and self._reservations:
            return None
        if exhausted:
            raise self._nothing_left_error(exhausted)
        # the number of parallel tasks is a product: divided by that around this run, it is the number inside the run
        parts = max(1, location.get().parallel_tasks // self._parallel_tasks)
        lent = [
            reservation
            for reservation in self._reservations
            if reservation.lent
        ]
        tokens = _share(left.tokens, [loan.tokens for loan in lent], parts)
        cost = _share(left.cost, [loan.cost for loan in lent], parts)
        calls = _share(left.model_calls, [loan.calls for loan in lent], parts)
        # rounded down to 0, a share would let the remote run fail although something is left
        return Reservation(
            tokens=max(1, int(tokens)),
            cost=cost,
            calls=max(1, int(calls)),
            lent=True,
        )

    def _exhausted_limit(self, left: RunLimits) -> str:
        """The limit that leaves nothing to lend; empty if none does."""
        if left.model_calls == 0:
            return "model_calls"
        if left.tokens == 0:
            return "tokens"
        # with a cost limit of 0, free models are still allowed
        if left.cost == 0 and (self.used_cost > 0 or self._reservations):
            return "cost"
        return ""


def _left_of(limit: _Amount | None, used: _Amount) -> _Amount | None:
    """What is left of a limit, 0 or more; None without a limit."""
    if limit is None:
        return None
    return limit - min(used, limit)


def _possible_usages(input_tokens: int, output_tokens: int) -> Iterator[Usage]:
    plain = Usage(input_tokens, output_tokens)
    cached = replace(plain, cache_write_tokens=input_tokens)
    cached_for_an_hour = replace(cached, cache_write_1h_tokens=input_tokens)
    for usage in (plain, cached, cached_for_an_hour):
        yield usage
        yield replace(usage, reasoning_tokens=output_tokens)


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

    def settle(self, usage: Usage | None, calls: int) -> None:
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
            share = await budget.lend()
            loan.reservations.append((budget, share))
    except BaseException:
        loan.settle(None, calls=0)
        raise
    loan.limits = _tightest(loan.reservations)
    for budget, reservation in loan.reservations:
        budget.reduce(reservation, loan.limits)
    return loan


def _tightest(reservations: Iterable[tuple[Budget, Reservation]]) -> RunLimits:
    """The smallest share of each amount that a budget limits."""
    calls: list[int] = []
    tokens: list[int] = []
    costs: list[float] = []
    for budget, share in reservations:
        if budget.limits.model_calls is not None:
            calls.append(share.calls)
        if budget.limits.tokens is not None:
            tokens.append(share.tokens)
        if budget.limits.cost is not None:
            costs.append(share.cost)
    return RunLimits(
        model_calls=min(calls, default=None),
        tokens=min(tokens, default=None),
        cost=min(costs, default=None),
    )
