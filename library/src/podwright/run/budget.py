"""Limits that hold while model calls run in parallel: reserve the worst case, call, settle.

A `CallReservation` does that for one model call, with all its attempts, in the budgets of a run and of those around it.

A run in another container cannot ask before each of its calls, so it borrows a share of what is left and settles at
its end. Whoever asks first is served first.
"""

from __future__ import annotations

import asyncio
from collections.abc import (
    AsyncGenerator,
    Callable,
    Collection,
    Iterable,
    Iterator,
    Sequence,
)
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import NamedTuple, TypeVar

from podwright.errors import LimitExceededError
from podwright.location import location
from podwright.messages.messages import ModelRequest, ModelSettings
from podwright.messages.usage import NO_USAGE, RunLimits, Usage, add_cost
from podwright.models import Model
from podwright.models.offline.offline import (
    estimate_input,
    estimate_input_audio,
)

ASSUMED_OUTPUT_TOKENS = 4096
"""Output tokens reserved for a call without `max_tokens`."""

CostOf = Callable[[Usage], float | None]
"""Returns the cost of a usage in USD; None if it is unknown."""

_Amount = TypeVar("_Amount", int, float)


@dataclass(slots=True, eq=False)
class Reservation:
    """An amount that each budget of a run sets aside, for one model call or one remote run."""

    tokens: int = 0
    """Input and output tokens."""
    cost: float = 0.0
    """USD; 0 if it is not limited."""
    calls: int = 0
    holders: list[Budget] = field(default_factory=list["Budget"])
    """The budgets that have set it aside."""

    def settle(self, usage: Usage | None, calls: int) -> None:
        """Give back what is set aside, and count what was used; see `Budget.settle`."""
        for budget in self.holders:
            budget.settle(self, usage, calls)
        self.holders.clear()

    def notify_holders(self) -> None:
        """Let those who wait for a part of it try again, because the amount has become smaller."""
        for budget in self.holders:
            budget.notify()


class _Left(NamedTuple):
    """What is left of each limit of a budget; None without the limit."""

    model_calls: int | None
    tokens: int | None
    cost: float | None


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

    @property
    def limits_tokens(self) -> bool:
        """Whether it depends on the tokens of a call how many are left: they, or their cost, are limited."""
        return self.limits.tokens is not None or self.limits.cost is not None

    async def reserve(self, call: CallReservation) -> None:
        """Set aside the worst case of a model call.

        While other calls hold what this one needs, it waits. If no other call does, it may use as many output tokens
        as are left.

        Raises:
            LimitExceededError: Not even one output token is left, or no call.
        """
        await self._hold(call, partial(self._try_reserve, call))

    async def lend(self, loan: Loan) -> None:
        """Set aside a share of what is left for a run in another container; waits while nothing is left.

        Raises:
            LimitExceededError: Nothing is left, and nothing is reserved that could come back.
        """
        await self._hold(loan, partial(self._try_lend, loan))

    async def _hold(
        self, reservation: Reservation, attempt: Callable[[], bool]
    ) -> None:
        """Set an amount aside as soon as an attempt finds that it is left."""
        # asyncio.Lock is fair: the first who asks is served first
        async with self._queue_lock:
            while not attempt():
                self._released.clear()
                await self._released.wait()
            self._reservations.append(reservation)
            reservation.holders.append(self)

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
        self.notify()

    def notify(self) -> None:
        """Let the next in line try again, because something was released."""
        self._released.set()

    def _count_settled(
        self, reservation: Reservation, usage: Usage, calls: int
    ) -> None:
        """Count what was used; what is not known counts as reserved."""
        least_tokens = 0
        if usage.uncounted_model_calls > 0 and not isinstance(
            reservation, Loan
        ):
            least_tokens = reservation.tokens
        cost = usage.cost
        if cost is None:
            cost = max(reservation.cost, usage.known_cost)
        self.used_calls += calls
        self.used_tokens += max(usage.total_tokens, least_tokens)
        self.used_cost = add_cost(self.used_cost, cost) or 0.0

    def count(self, usage: Usage, failed_calls: int = 0) -> None:
        """Count what an earlier attempt of the run has used; `failed_calls` are no part of its model calls."""
        self.used_calls += usage.model_calls + failed_calls
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

    def _left(self, reserved: Collection[Reservation]) -> _Left:
        """What is neither used nor among the reservations."""
        limits = self.limits
        calls = tokens = 0
        cost = 0.0
        for reservation in reserved:
            calls += reservation.calls
            tokens += reservation.tokens
            cost += reservation.cost
        return _Left(
            model_calls=_left_of(limits.model_calls, self.used_calls + calls),
            tokens=_left_of(limits.tokens, self.used_tokens + tokens),
            cost=_left_of(limits.cost, self.used_cost + cost),
        )

    def _loans(self) -> list[Loan]:
        return [
            reservation
            for reservation in self._reservations
            if isinstance(reservation, Loan)
        ]

    def _try_reserve(self, call: CallReservation) -> bool:
        """Lower a model call to what is left; false if it has to wait for others to be settled."""
        left = self._left(self._reservations)
        if left.model_calls == 0 and call.calls:
            # a remote run may return calls that it did not make; a reserved call of this process will be made
            if self._loans():
                return False
            message = (
                f"The run has made its {self.limits.model_calls} model calls."
            )
            raise LimitExceededError(message, limit="model_calls", source=self)
        allowed, limit = self._allowed(left, call)
        if allowed < call.output_tokens and self._reservations:
            return False
        if allowed < 1:
            raise self._exhausted_error(limit, call.input_tokens)
        call.tokens = call.input_tokens + allowed
        call.output_tokens = allowed
        call.limit = limit or call.limit
        if left.cost is not None:
            call.cost = call.highest_cost(allowed) or 0.0
        return True

    def _allowed(self, left: _Left, call: CallReservation) -> tuple[int, str]:
        """The output tokens that a call may have, at most those that it asks for, and the limit that allows no more."""
        allowed = call.output_tokens
        limit = ""
        if left.tokens is not None:
            available = left.tokens - call.input_tokens
            if available < allowed:
                allowed = available
                limit = "tokens"
        if left.cost is not None:
            affordable = self._affordable(left.cost, call)
            if affordable < allowed:
                allowed = affordable
                limit = "cost"
        return allowed, limit

    def _affordable(self, left: float, call: CallReservation) -> int:
        """How many output tokens a call may have for what is left, at most those that it asks for."""
        whole = call.highest_cost(call.output_tokens)
        base = call.highest_cost(0)
        if whole is None or base is None:
            raise self._unpriced_error()
        # with a cost limit of 0, free models are allowed; a limit that is used up ends the run, even for free models
        if left <= 0 < self.used_cost:
            return 0
        if whole <= left:
            return call.output_tokens
        # the input alone costs more than is left
        if whole <= base:
            return 0
        return int(call.output_tokens * (left - base) / (whole - base))

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

    def _try_lend(self, loan: Loan) -> bool:
        """Lower a loan to a share of what is left; false if it has to wait for reservations to be settled."""
        left = self._left(self._reservations)
        exhausted = self._exhausted_limit(left)
        if exhausted and self._reservations:
            return False
        if exhausted:
            raise self._nothing_left_error(exhausted)
        # the number of parallel tasks is a product: divided by that around this run, it is the number inside the run
        parts = max(1, location.get().parallel_tasks // self._parallel_tasks)
        loans = self._loans()
        calls = _share(
            left.model_calls, [other.calls for other in loans], parts
        )
        tokens = _share(left.tokens, [other.tokens for other in loans], parts)
        cost = _share(left.cost, [other.cost for other in loans], parts)
        # rounded down to 0, a share would let the remote run fail although something is left
        if calls is not None:
            calls = max(1, int(calls))
        if tokens is not None:
            tokens = max(1, int(tokens))
        loan.lower(calls, tokens, cost)
        return True

    def _exhausted_limit(self, left: _Left) -> str:
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


def highest_cost(
    cost_of: CostOf,
    input_tokens: int,
    output_tokens: int,
    input_audio_tokens: int = 0,
) -> float | None:
    """Return the most that a model call may cost in USD; None if it is unknown.

    The provider may write the input to a cache, and the output may be thoughts.

    Args:
        cost_of: The cost of a usage with the model.
        input_tokens: Its input tokens.
        output_tokens: Its output tokens.
        input_audio_tokens: The input tokens that are audio.
    """
    highest = 0.0
    for usage in _possible_usages(
        input_tokens, output_tokens, input_audio_tokens
    ):
        cost = cost_of(usage)
        if cost is None:
            return None
        highest = max(highest, cost)
    return highest


def lowest_cost(
    cost_of: CostOf, input_tokens: int, output_tokens: int
) -> float | None:
    """Return the least that a model call costs in USD: the provider may have all of its input in a cache.

    Args:
        cost_of: The cost of a usage with the model.
        input_tokens: Its input tokens.
        output_tokens: Its output tokens.

    Returns:
        The cost; None if it is unknown.
    """
    plain = Usage(input_tokens, output_tokens)
    cached = replace(plain, cached_input_tokens=input_tokens)
    costs = [cost_of(plain), cost_of(cached)]
    return min((cost for cost in costs if cost is not None), default=None)


def _possible_usages(
    input_tokens: int, output_tokens: int, input_audio_tokens: int
) -> Iterator[Usage]:
    plain = Usage(
        input_tokens, output_tokens, input_audio_tokens=input_audio_tokens
    )
    cached = replace(plain, cache_write_tokens=input_tokens)
    cached_for_an_hour = replace(cached, cache_write_1h_tokens=input_tokens)
    for usage in (plain, cached, cached_for_an_hour):
        yield usage
        yield replace(usage, reasoning_tokens=output_tokens)


def _share(
    left: float | None, lent: Iterable[float], parts: int
) -> float | None:
    """An even part of what is left and what is lent, so that the last borrower gets as much as the first."""
    if left is None:
        return None
    return min(left, (left + sum(lent)) / parts)


class CallReservation(Reservation):
    """The worst case of one model call, which is set aside until the call is answered.

    One reservation serves all attempts of a call with all its models, so that the call counts once:

        async with reservation.hold(model, request) as request:
            response = await model.complete(request)
            reservation.use(response.usage)

    Args:
        budgets: The budgets of the run, outermost first.
    """

    def __init__(self, budgets: Sequence[Budget]) -> None:
        super().__init__()
        self._budgets = budgets
        self.input_tokens = 0
        """Estimated input tokens."""
        self.input_audio_tokens = 0
        """Those of them that are audio."""
        self.output_tokens = 0
        """Output tokens that the call may use."""
        self.limit = ""
        """The limit that left it fewer output tokens than it asked for; empty if none did."""
        self._cost_of: CostOf = lambda _: None
        self._wanted = 0
        """Output tokens that the first attempt with the model asked for; 0 before it was reserved."""
        self._used: Usage | None = None
        """Usage since the last reservation; None while nothing is reserved."""
        self._is_billed = False
        """Whether an attempt has used something since the last reservation."""
        self._has_answer = False
        self._is_counted = False
        """Whether the limits have counted the call, and it has no answer yet: its next attempt needs no further one."""

    @asynccontextmanager
    async def hold(
        self, model: Model, request: ModelRequest
    ) -> AsyncGenerator[ModelRequest]:
        """Prepare a model, and set aside the worst case of a request to it while the context is open.

        Yields:
            The request with the output tokens that the tightest budget allows.

        Raises:
            LimitExceededError: Not even one output token is left, or no call.
        """
        self._wanted = 0
        try:
            yield await self._reserve_request(model, request)
        finally:
            self._settle_call()

    async def renew(self, model: Model, request: ModelRequest) -> ModelRequest:
        """Return the request for the next attempt. What an attempt before it was billed is counted first.

        Raises:
            LimitExceededError: The attempts before have used what the run may use.
        """
        if not self._is_billed:
            return request
        self._settle_call()
        return await self._reserve_request(model, request)

    async def _reserve_request(
        self, model: Model, request: ModelRequest
    ) -> ModelRequest:
        await model.prepare()
        asked = request.settings.get("max_tokens")
        input_tokens = 0
        if any(budget.limits_tokens for budget in self._budgets):
            input_tokens = estimate_input(request)
            self.input_audio_tokens = estimate_input_audio(request)
            self._wanted = self._wanted or asked or most_output_tokens(model)
        wanted = self._wanted or asked or ASSUMED_OUTPUT_TOKENS
        await self.reserve(input_tokens, wanted, model.cost)
        if self.output_tokens == (asked or wanted):
            return request
        settings: ModelSettings = {
            **request.settings,
            "max_tokens": self.output_tokens,
        }
        return replace(request, settings=settings)

    async def reserve(
        self, input_tokens: int, output_tokens: int, cost_of: CostOf
    ) -> None:
        """Set aside the worst case in each budget; each is asked for what the ones before it allow.

        Args:
            input_tokens: Estimated input tokens.
            output_tokens: Most output tokens that the call asks for.
            cost_of: The cost of a usage with the model.

        Raises:
            LimitExceededError: Not even one output token is left, or no call.
        """
        self.input_tokens = input_tokens
        self.output_tokens = output_tokens
        self._cost_of = cost_of
        self.limit = ""
        self.cost = 0.0
        self.calls = 0 if self._is_counted else 1
        for budget in self._budgets:
            await budget.reserve(self)
            if self.output_tokens < output_tokens:
                self.notify_holders()
        self._used = NO_USAGE

    def highest_cost(self, output_tokens: int) -> float | None:
        """The most that the call may cost in USD with so many output tokens; None if it is unknown."""
        return highest_cost(
            self._cost_of,
            self.input_tokens,
            output_tokens,
            self.input_audio_tokens,
        )

    def use(self, usage: Usage) -> None:
        """Add the usage of an attempt that is over; one of which nothing has arrived does not count as an answer."""
        self._used = (self._used or NO_USAGE) + usage
        self._is_billed = True
        if not usage.uncounted_model_calls or usage.output_tokens > 0:
            self._has_answer = True

    def _settle_call(self) -> None:
        """Release what is set aside, and count what was used: a call for each answer, and one if there is none."""
        # if a budget refused, the ones before it have set something aside for a call that was not made
        self.settle(self._used, self.calls)
        if self._used is not None:
            self._is_counted = not self._has_answer
        self._used = None
        self._is_billed = False
        self._has_answer = False


def most_output_tokens(model: Model) -> int:
    """Return the output tokens to expect of a request without `max_tokens`."""
    return model.max_output_tokens() or ASSUMED_OUTPUT_TOKENS


@dataclass(slots=True, eq=False)
class Loan(Reservation):
    """What a run in another container may use."""

    limits: RunLimits = field(default_factory=RunLimits)
    """The tightest of the shares that the budgets lend."""

    def lower(
        self,
        calls: int | None,
        tokens: int | None,
        cost: float | None,
    ) -> None:
        """Lower the loan to the share of one more budget; None is not limited there."""
        self.limits = RunLimits(
            model_calls=_tighter(self.limits.model_calls, calls),
            tokens=_tighter(self.limits.tokens, tokens),
            cost=_tighter(self.limits.cost, cost),
        )
        self.calls = self.limits.model_calls or 0
        self.tokens = self.limits.tokens or 0
        self.cost = self.limits.cost or 0.0


def _tighter(one: _Amount | None, other: _Amount | None) -> _Amount | None:
    """The smaller of two limits; None is no limit."""
    if one is None or other is None:
        return one if other is None else other
    return min(one, other)


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
            await budget.lend(loan)
    except BaseException:
        loan.settle(None, calls=0)
        raise
    loan.notify_holders()
    return loan
