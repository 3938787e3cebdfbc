"""How many calls an evaluation sends a provider at once."""

from __future__ import annotations

import asyncio

import pytest

from podwright.errors import ModelRateLimitError
from podwright.evaluation.runs.answers import Pace


async def refused(pace: Pace) -> None:
    """A call that the provider refuses."""
    async with pace.call():
        raise ModelRateLimitError("429")


async def test_it_halves_and_grows_again() -> None:
    """A refusal halves what is sent at once, and one more is sent after as many answers."""
    pace = Pace(8)
    running = 0
    most = 0

    async def call() -> None:
        nonlocal running, most
        async with pace.call():
            running += 1
            most = max(most, running)
            await asyncio.sleep(0)
            running -= 1

    await asyncio.gather(*(call() for _ in range(20)))
    assert most == 8

    async def refused_beside(entered: asyncio.Barrier) -> None:
        async with pace.call():
            await entered.wait()
            raise ModelRateLimitError("429")

    entered = asyncio.Barrier(8)
    ends = [refused_beside(entered) for _ in range(8)]
    await asyncio.gather(*ends, return_exceptions=True)
    assert pace.allowed < 8
    after = pace.allowed
    most = 0
    await asyncio.gather(*(call() for _ in range(after)))
    assert most == after
    await asyncio.gather(*(call() for _ in range(100)))
    assert pace.allowed == 8


async def test_one_call_is_always_allowed() -> None:
    """However often a provider refuses, the next call is sent."""
    pace = Pace(4)
    for _ in range(10):
        with pytest.raises(ModelRateLimitError):
            await refused(pace)
    assert pace.allowed == 1
