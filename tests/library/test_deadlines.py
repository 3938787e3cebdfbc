"""Deadlines do what `asyncio.timeout` does, and cost the loop one timer."""

from __future__ import annotations

import asyncio
import gc
import math
import random
import time
import weakref

import pytest

from podwright.deadlines import Deadline

LONG = 60.0


def timers(loop: asyncio.AbstractEventLoop) -> int:
    """How many timers a loop has in its heap, cancelled ones included."""
    return len(loop._scheduled)  # type: ignore[attr-defined] # pyright: ignore[reportUnknownMemberType, reportUnknownArgumentType, reportAttributeAccessIssue] - there is no other way to count them


async def test_what_takes_too_long_is_cancelled() -> None:
    """The work is cancelled when the time is over, and the context ends with a TimeoutError."""
    ends: list[str] = []

    async def work() -> None:
        try:
            await asyncio.sleep(LONG)
        except asyncio.CancelledError:
            ends.append("cancelled")
            raise

    began, deadline = time.monotonic(), Deadline(0.05)
    with pytest.raises(TimeoutError) as caught, deadline:
        await work()
    assert isinstance(caught.value.__cause__, asyncio.CancelledError)
    assert (ends, deadline.expired) == (["cancelled"], True)
    assert 0.05 <= time.monotonic() - began < LONG
    task = asyncio.current_task()
    assert task is not None
    assert task.cancelling() == 0


@pytest.mark.parametrize("seconds", [LONG, math.inf, None])
async def test_what_is_done_in_time_goes_on(seconds: float | None) -> None:
    """Nothing happens where the time is not over, or has no end."""
    with Deadline(seconds) as deadline:
        await asyncio.sleep(0.01)
    assert not deadline.expired


@pytest.mark.parametrize("seconds", [0.0, -1.0])
async def test_no_time_is_over_at_once(seconds: float) -> None:
    """Work that has no time is cancelled where it first waits."""
    with pytest.raises(TimeoutError), Deadline(seconds):
        await asyncio.sleep(LONG)


async def test_an_error_of_the_work_is_its_own() -> None:
    """What the work raises passes through, a time-out of its own included."""
    for error in (KeyError(), TimeoutError()):
        deadline = Deadline(LONG)
        with pytest.raises(type(error)) as caught, deadline:
            raise error
        assert caught.value is error
        assert not deadline.expired


async def test_who_cancels_from_outside_is_heard() -> None:
    """A cancellation that came from elsewhere stays one, also where the time is over in the same moment."""
    inside = asyncio.Event()

    async def work(seconds: float) -> None:
        with Deadline(seconds):
            inside.set()
            await asyncio.sleep(LONG)

    for seconds in (LONG, 0.02):
        inside.clear()
        task = asyncio.create_task(work(seconds))
        await inside.wait()
        if seconds < LONG:
            time.sleep(0.05)  # now both are due
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task


async def test_the_inner_one_and_the_outer_one() -> None:
    """Of two contexts the one whose time is over raises, and the other goes on."""
    with Deadline(LONG) as outer:
        with pytest.raises(TimeoutError), Deadline(0.02):
            await asyncio.sleep(LONG)
        await asyncio.sleep(0)
    assert not outer.expired
    inner = Deadline(LONG)
    with pytest.raises(TimeoutError), Deadline(0.02), inner:
        await asyncio.sleep(LONG)
    assert not inner.expired


async def test_a_time_begins_anew() -> None:
    """A deadline that is renewed counts from then on, with its new length."""

    async def work() -> None:
        for _ in range(5):
            deadline.renew(0.05)
            await asyncio.sleep(0.02)
        deadline.renew(0.03)
        await asyncio.sleep(LONG)

    began, deadline = time.monotonic(), Deadline(LONG)
    with pytest.raises(TimeoutError), deadline:
        await work()
    assert 0.13 <= time.monotonic() - began < LONG


async def test_many_cost_one_timer() -> None:
    """However many contexts begin and end, the loop has but a few timers for them."""
    before = timers(asyncio.get_running_loop())

    async def work(seconds: float) -> None:
        with Deadline(seconds), Deadline(seconds * 2):
            await asyncio.sleep(0)

    for _ in range(20):
        await asyncio.gather(*(work(LONG + number) for number in range(50)))
    assert timers(asyncio.get_running_loop()) - before < 5


async def test_short_ones_beside_a_long_one_leave_no_timers() -> None:
    """However many short contexts come and go within a long one, the loop's heap stays small."""
    before = timers(asyncio.get_running_loop())
    with Deadline(LONG):
        for _ in range(50):
            with Deadline(0.001):
                pass
            await asyncio.sleep(0.002)
    assert timers(asyncio.get_running_loop()) - before < 5


def test_a_time_is_a_number() -> None:
    """What is no number would be a limit that never ends, for all others too."""
    with pytest.raises(ValueError, match="number"):
        Deadline(math.nan)


async def test_each_of_many_at_its_time() -> None:
    """Contexts of all lengths, ended early, renewed or not, end when they are due and not before."""
    chance = random.Random(3)
    loop = asyncio.get_running_loop()
    ends = {"early": 0, "late": 0}

    async def work() -> None:
        await asyncio.sleep(chance.random() / 20)
        due = loop.time() + (seconds := chance.choice((0.01, 0.02, chance.random() / 10)))
        try:
            with Deadline(seconds) as deadline:
                if chance.random() < 0.3:
                    seconds = chance.random() / 10
                    deadline.renew(seconds)
                    due = loop.time() + seconds
                await asyncio.sleep(chance.choice((seconds / 2, LONG)))
                ends["early"] += 1
        except TimeoutError:
            ends["late"] += 1
            assert loop.time() >= due - 0.001
            assert loop.time() < due + LONG / 2

    await asyncio.gather(*(work() for _ in range(500)))
    assert ends["early"] > 50
    assert ends["late"] > 50


def test_a_loop_that_is_gone_is_kept_by_nobody() -> None:
    """Loops come and go in a thread, each with its own deadlines."""

    async def work() -> weakref.ref[asyncio.AbstractEventLoop]:
        with pytest.raises(TimeoutError), Deadline(0.01):
            await asyncio.sleep(LONG)
        with Deadline(LONG):
            return weakref.ref(asyncio.get_running_loop())

    loops = [asyncio.run(work()) for _ in range(3)]
    gc.collect()
    assert [one() for one in loops] == [None] * 3
