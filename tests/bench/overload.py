"""What a service does with more than it can: the load is offered at a steady pace, whatever becomes of it.

python overload.py [SECONDS] prints, as JSON, what a service with eight places makes of five times its capacity.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys
import time
from collections import Counter
from dataclasses import dataclass, field

from figures import Figure
from load import load, post
from serving import BODY, app, first_answer

PLACES, LATENCY = 8, 0.2
"""As in apps.py: eight runs at once, of 200 ms each."""
MOST = 1000
"""Connections: more than can be inside the service, with its defaults."""


@dataclass
class Offered:
    """What became of requests that were offered."""

    seconds: float
    answers: Counter[int] = field(default_factory=Counter[int])
    """Answers by status, 0 for none."""
    refusals: list[float] = field(default_factory=list[float])
    """Seconds until each 503."""
    lags: list[float] = field(default_factory=list[float])
    """Seconds that each request was sent after it was due: so late the machine is by itself."""
    with_retry_after: int = 0
    unsent: int = 0
    """Requests for which no connection was left."""

    @property
    def goodput(self) -> float:
        """Runs done in a second."""
        return self.answers[200] / self.seconds

    @property
    def p99(self) -> float:
        """Milliseconds within which 99 of 100 refusals came."""
        return _p99(self.refusals)


def _p99(seconds: list[float]) -> float:
    return sorted(seconds)[int(len(seconds) * 0.99)] * 1000 if seconds else 0.0


class _Connection(asyncio.Protocol):
    """Sends a request when it is told to, and is free again once it is answered."""

    def __init__(self, request: bytes, offered: Offered, free: list[_Connection]) -> None:
        self.request, self.offered, self.free = request, offered, free
        self.seen, self.busy = b"", False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport

    def ask(self, due: float) -> None:
        self.due, self.busy = due, True
        self.offered.lags.append(time.perf_counter() - due)
        self.transport.write(self.request)  # type: ignore[attr-defined]

    def data_received(self, data: bytes) -> None:
        self.seen += data
        head, found, body = self.seen.partition(b"\r\n\r\n")
        if not found or len(body) < int(head.lower().partition(b"content-length:")[2].partition(b"\r\n")[0]):
            return
        status = int(head[9:12])
        self.offered.answers[status] += 1
        if status == 503:
            self.offered.refusals.append(time.perf_counter() - self.due)
            self.offered.with_retry_after += b"\r\nretry-after: " in head
        self.seen, self.busy = b"", False
        self.free.append(self)

    def connection_lost(self, exc: Exception | None) -> None:
        if self.busy:
            self.offered.answers[0] += 1
            self.busy = False
        with contextlib.suppress(ValueError):
            self.free.remove(self)


async def offer(port: int, rate: float, seconds: float) -> Offered:
    """Send `/run` so many times a second, each when it is due, over as many connections as it takes and may."""
    loop, free, all_ = asyncio.get_running_loop(), list[_Connection](), list[_Connection]()
    offered = Offered(seconds)

    async def connect(due: float) -> None:
        _, made = await loop.create_connection(lambda: _Connection(request, offered, free), "127.0.0.1", port)
        all_.append(made)
        made.ask(due)

    request, opening = post("/run", BODY), set[asyncio.Task[None]]()
    begin = time.perf_counter()
    for number in range(int(rate * seconds)):
        due = begin + number / rate
        if (left := due - time.perf_counter()) > 0:
            await asyncio.sleep(left)
        elif number % 16 == 0:
            await asyncio.sleep(0)
        if free:
            free.pop().ask(due)
        elif len(opening) < MOST:
            opening.add(asyncio.create_task(connect(due)))
        else:
            offered.unsent += 1
    await asyncio.gather(*opening)
    offered.seconds = time.perf_counter() - begin
    served = offered.answers[200]
    deadline = time.perf_counter() + 30
    while any(one.busy for one in all_) and time.perf_counter() < deadline:  # noqa: ASYNC110 - an event would be one more thing to do for each answer
        await asyncio.sleep(0.01)
    # what was answered after the last was sent is not of these seconds
    offered.answers[299], offered.answers[200] = offered.answers[200] - served, served
    for one in all_:
        one.transport.close()
    return offered


async def slow_model(seconds: float) -> tuple[Offered, Offered]:
    """A model that takes its time: once and five times as much as there are places for."""
    with app("slow", 0) as (port, _):
        await first_answer(port)
        rate = PLACES / LATENCY
        await offer(port, rate, 1)
        return await offer(port, rate, seconds), await offer(port, 5 * rate, seconds)


async def instant_model(seconds: float) -> tuple[Offered, Offered, float]:
    """A model that takes none: once and five times as much as the processor can do, and how much that is."""
    with app("instant", 0) as (port, _):
        await first_answer(port)
        await load(port, "/run", BODY, 2000, 32)
        rate = (await load(port, "/run", BODY, 4000, 32)).rate
        return await offer(port, rate, seconds), await offer(port, 5 * rate, seconds), rate


async def figures(seconds: float = 5) -> list[Figure]:
    """What is left of the goodput at five times the load, and how soon the rest are told."""
    once, five = await slow_model(seconds)
    busy_once, busy_five, rate = await instant_model(seconds)
    slow = f"{five.goodput:.0f}/s of {once.goodput:.0f}/s, model of 200 ms"
    sent = (5 * rate * seconds - busy_five.unsent) / busy_five.seconds
    fast = f"{busy_five.goodput:.0f}/s of {busy_once.goodput:.0f}/s, instant model, {sent:.0f}/s sent"
    return [
        Figure("goodput at 5 × capacity", five.goodput / once.goodput, "×", slow, 0.9, "at least"),
        Figure("p99 of its refusals", five.p99, "ms", f"{len(five.refusals)} of them", 50),
        Figure("goodput at 5 × capacity of the processor", busy_five.goodput / busy_once.goodput, "×", fast),
        Figure("p99 of its refusals", busy_five.p99, "ms", f"{len(busy_five.refusals)} of them"),
    ]


if __name__ == "__main__":
    once, five = asyncio.run(slow_model(float(sys.argv[1]) if len(sys.argv) > 1 else 5))
    known = five.answers[200] + five.answers[299] + five.answers[503]
    told = {
        "goodput": five.goodput / once.goodput,
        "peak": once.goodput,
        "refused_p99_ms": five.p99,
        "lag_p99_ms": _p99(five.lags),
    }
    counts = {"refused": five.answers[503], "retry_after": five.with_retry_after, "other": five.answers.total() - known}
    print(json.dumps({**told, **counts}))
