"""Budgets: reservations in order of arrival, and loans to runs in other containers."""

import asyncio
from collections.abc import Iterable

import pytest

from podwright import LimitExceededError, RunLimits, Usage
from podwright.run.budget import Budget, CallReservation, CostOf, Loan, borrow
from podwright.run.tasks import gather_or_cancel


def free(_: Usage) -> float:
    return 0.0


async def reserve(
    budget: Budget, input_tokens: int, output_tokens: int, cost_of: CostOf
) -> CallReservation:
    """Set aside the worst case of a model call."""
    reservation = CallReservation([budget])
    await reservation.reserve(input_tokens, output_tokens, cost_of)
    return reservation


async def idle() -> None:
    """Give every task that can go on its turns, so that only waiting ones are left."""
    for _ in range(10):
        await asyncio.sleep(0)


async def test_reservations_are_served_in_order_of_arrival() -> None:
    """A small reservation that would fit does not overtake a large one that waits."""
    budget = Budget(RunLimits(tokens=100))
    first = await reserve(budget, 0, 50, free)
    second = await reserve(budget, 0, 50, free)
    served: list[int] = []

    async def serve(tokens: int) -> None:
        reservation = await reserve(budget, 0, tokens, free)
        served.append(tokens)
        budget.settle(reservation, Usage(0, 5), 1)

    tasks = [asyncio.create_task(serve(tokens)) for tokens in (80, 10, 20)]
    await idle()
    budget.settle(first, Usage(0, 5), 1)
    await idle()
    assert served == [], "10 tokens are free, but the first in line needs 80"
    budget.settle(second, Usage(0, 5), 1)
    await asyncio.gather(*tasks)
    assert served == [80, 10, 20]
    assert budget.used_tokens == 25


async def test_a_reservation_has_the_price_of_a_cache_write() -> None:
    """The provider may write the whole input to its cache, for which some take more than for input."""
    budget = Budget(RunLimits(cost=100))
    reservation = await reserve(
        budget,
        10,
        5,
        lambda usage: (
            usage.input_tokens
            + usage.output_tokens
            + 0.25 * usage.cache_write_tokens
        ),
    )
    assert reservation.cost == 17.5


async def test_a_cancelled_waiter_leaves_nothing_behind() -> None:
    """A reservation that is cancelled while it waits reserves nothing, and the next in line is served."""
    budget = Budget(RunLimits(model_calls=3, tokens=100))
    first = await reserve(budget, 10, 80, free)
    cancelled = asyncio.create_task(reserve(budget, 10, 80, free))
    following = asyncio.create_task(reserve(budget, 0, 10, free))
    await idle()
    cancelled.cancel()
    second = await following
    assert second.output_tokens == 10
    budget.settle(first, Usage(10, 5), 1)
    budget.settle(second, None, 0)
    last = await reserve(budget, 10, 75, free)
    assert (last.output_tokens, budget.used_calls) == (75, 1)


async def test_a_waiting_call_is_refused_when_the_last_call_is_taken() -> None:
    """A call that waits for tokens does not wait for model calls that will not come back."""
    budget = Budget(RunLimits(model_calls=2, tokens=100))
    first = await reserve(budget, 0, 100, free)
    waiting = [
        asyncio.create_task(reserve(budget, 0, 50, free)) for _ in range(2)
    ]
    await idle()
    budget.settle(first, Usage(0, 10), 1)
    assert (await waiting[0]).output_tokens == 50
    with pytest.raises(LimitExceededError) as caught:
        await waiting[1]
    assert caught.value.limit == "model_calls"


async def test_each_budget_sets_aside_what_the_tightest_allows() -> None:
    """An outer budget does not keep from others what an inner one does not let the call use."""
    outer = Budget(RunLimits(tokens=1000))
    inner = Budget(RunLimits(tokens=100))
    first = await reserve(inner, 0, 50, free)
    call = CallReservation([outer, inner])
    calling = asyncio.create_task(call.reserve(0, 1000, free))
    await idle()
    waiting = asyncio.create_task(reserve(outer, 0, 900, free))
    await idle()
    assert not calling.done()
    assert not waiting.done()
    inner.settle(first, None, 0)
    await calling
    assert (call.output_tokens, call.limit) == (100, "tokens")
    assert (await waiting).output_tokens == 900


async def borrow_in_parallel(
    budgets: Iterable[Budget], count: int
) -> list[Loan]:
    budgets = list(budgets)
    return await gather_or_cancel(borrow(budgets) for _ in range(count))


@pytest.mark.parametrize("count", [1, 3, 8])
async def test_parallel_tasks_borrow_equal_shares(count: int) -> None:
    """Each of n parallel tasks borrows one n-th of what is left; a single one borrows everything."""
    budget = Budget(RunLimits(model_calls=24, tokens=1000, cost=2.4))
    budget.settle(await reserve(budget, 0, 40, free), Usage(0, 40, cost=0.0), 0)
    loans = await borrow_in_parallel([budget], count)
    assert [loan.limits.tokens for loan in loans] == [960 // count] * count
    assert [loan.limits.model_calls for loan in loans] == [24 // count] * count
    assert [loan.limits.cost for loan in loans] == [
        pytest.approx(2.4 / count)
    ] * count


async def test_shares_of_nested_parallel_tasks_multiply() -> None:
    """Two tasks inside each of two parallel tasks borrow a quarter each; a budget made inside knows only its own."""
    budget = Budget(RunLimits(tokens=1000))
    groups = await gather_or_cancel(
        borrow_in_parallel([budget], 2) for _ in range(2)
    )
    assert [loan.limits.tokens for group in groups for loan in group] == [
        250
    ] * 4

    async def own() -> list[Loan]:
        return await borrow_in_parallel([Budget(RunLimits(tokens=1000))], 2)

    groups = await gather_or_cancel(own() for _ in range(2))
    assert [loan.limits.tokens for group in groups for loan in group] == [
        500
    ] * 4


async def test_a_loan_is_what_the_tightest_budget_gives() -> None:
    """Of several budgets the tightest decides, and the others lend no more than that."""
    outer = Budget(RunLimits(tokens=1000, cost=1.0))
    inner = Budget(RunLimits(tokens=100))
    loan = await borrow([outer, inner])
    assert (loan.limits.tokens, loan.limits.cost, loan.limits.model_calls) == (
        100,
        1.0,
        None,
    )
    assert (await reserve(outer, 0, 900, free)).output_tokens == 900
    loan.settle(Usage(20, 30), 2)
    assert (outer.used_tokens, outer.used_calls, inner.used_tokens) == (
        50,
        2,
        50,
    )


async def test_borrowing_waits_until_something_comes_back() -> None:
    """While everything is lent the next borrower waits, and borrows what comes back."""
    budget = Budget(RunLimits(tokens=100))
    loan = await borrow([budget])
    waiting = asyncio.create_task(borrow([budget]))
    await idle()
    assert not waiting.done()
    loan.settle(Usage(10, 30), 1)
    assert (await waiting).limits.tokens == 60


@pytest.mark.parametrize(
    ("limit", "used"), [("model_calls", 3), ("tokens", 300), ("cost", 3)]
)
async def test_borrowing_is_refused_when_nothing_is_left(
    limit: str, used: int
) -> None:
    """A borrower that used too much uses up the limit: those that wait, and later ones, are refused at once."""
    budget = Budget(RunLimits(**{limit: 2}))
    loan = await borrow([budget])
    waiting = asyncio.create_task(borrow([budget]))
    await idle()
    loan.settle(Usage(used, cost=float(used)), used)
    for attempt in (waiting, borrow([budget])):
        with pytest.raises(LimitExceededError) as caught:
            await attempt
        assert caught.value.limit == limit


async def test_a_failed_loan_is_given_back() -> None:
    """If one budget has nothing to lend, the others get back what they had lent."""
    outer = Budget(RunLimits(tokens=100))
    inner = Budget(RunLimits(tokens=0))
    with pytest.raises(LimitExceededError):
        await borrow([outer, inner])
    reservation = await reserve(outer, 0, 100, free)
    assert reservation.output_tokens == 100


async def test_an_unknown_cost_counts_as_reserved() -> None:
    """A call whose provider reports no usage is charged with its worst case, so that a cost limit is reached."""
    budget = Budget(RunLimits(cost=1.0))
    reservation = await reserve(
        budget, 0, 10, lambda usage: usage.output_tokens * 0.05
    )
    budget.settle(reservation, Usage(0, 10, cost=None), 1)
    assert budget.used_cost == pytest.approx(0.5)
