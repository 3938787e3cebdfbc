"""Work whose caller leaves, in the moments that no client can be timed to hit."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from starlette.requests import ClientDisconnect, Request

from podwright_service.runs import ActiveRuns

Tell = Callable[[], None]


def request(tell: Callable[[Tell | None], None] | None = None, left: asyncio.Event | None = None) -> Request:
    """A request to our server, which tells who wants to know, or to another one, where `left` ends the connection."""

    async def receive() -> dict[str, Any]:
        if left:
            await left.wait()
        return {"type": "http.disconnect"}

    return Request({"type": "http", "extensions": {"podwright.gone": {"tell": tell}} if tell else {}}, receive)


async def test_who_leaves_as_the_answer_comes_disturbs_nothing() -> None:
    """Under another server, a client that leaves when the work is done cancels nothing that comes after it."""
    left = asyncio.Event()

    async def work() -> str:
        await asyncio.sleep(0)
        left.set()
        await asyncio.sleep(0)
        return "done"

    assert await ActiveRuns().unless_gone(request(left=left), work()) == "done"
    await asyncio.sleep(0.01)
    task = asyncio.current_task()
    assert task is not None
    assert not task.cancelling()


async def test_who_leaves_under_another_server_cancels_the_work() -> None:
    """Where no server tells it, a task that waits for the client's end does."""
    left = asyncio.Event()

    async def work() -> None:
        left.set()
        await asyncio.sleep(60)

    with pytest.raises(ClientDisconnect):
        await ActiveRuns().unless_gone(request(left=left), work())


async def test_leaving_is_told_once() -> None:
    """A connection that is refused and then lost cancels once: what a run does to end is not cancelled too."""
    told: list[Tell | None] = []
    ended = asyncio.Event()

    def again() -> None:
        for tell in told:
            if tell:
                tell()

    async def work() -> None:
        asyncio.get_running_loop().call_soon(again)
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            again()
            await asyncio.sleep(0)
            ended.set()
            raise

    with pytest.raises(ClientDisconnect):
        await ActiveRuns().unless_gone(request(told.append), work())
    assert ended.is_set()
    assert told[-1] is None
