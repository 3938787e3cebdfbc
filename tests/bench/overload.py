"""What a service does with more load than it can serve: requests are sent at a fixed rate, answered or not.

python overload.py [SECONDS] prints, as JSON, the results of a service with eight run slots at five times its capacity.
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
from load import complete_head, post
from servers import BODY, App, serve, wait_for_response

SLOTS, SECONDS = 8, 0.2
"""Run slots, and the seconds that the model of the application `slow` takes."""
SERVICE = App(
    "slow", {"PODWRIGHT_MAX_RUNS": str(SLOTS), "PODWRIGHT_MAX_WAITING": "16"}
)


@dataclass
class Results:
    """The responses to requests that were sent at a fixed rate."""

    seconds: float = 0.0
    """From the first request to the last response."""
    statuses: Counter[int] = field(default_factory=Counter[int])
    """Responses by status; 0 counts lost connections."""
    refusals: list[float] = field(default_factory=list[float])
    """Seconds until each 503."""
    with_retry_after: int = 0

    @property
    def goodput(self) -> float:
        """Runs per second."""
        return self.statuses[200] / self.seconds


def p99_ms(seconds: list[float]) -> float:
    return sorted(seconds)[int(len(seconds) * 0.99)] * 1000 if seconds else 0.0


class _Connection(asyncio.Protocol):
    """Sends one request at a time, and is idle after its response."""

    def __init__(self, results: Results, idle: list[_Connection]) -> None:
        self.results, self.idle = results, idle
        self.received, self.busy, self.request = b"", False, post("/run", BODY)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport

    def send(self, due: float) -> None:
        self.due, self.busy = due, True
        self.transport.write(self.request)  # type: ignore[attr-defined]

    def data_received(self, data: bytes) -> None:
        self.received += data
        if (head := complete_head(self.received)) is None:
            return
        status = int(head[9:12])
        self.results.statuses[status] += 1
        if status == 503:
            self.results.refusals.append(time.perf_counter() - self.due)
            self.results.with_retry_after += b"\r\nretry-after: " in head
        self.received, self.busy = b"", False
        self.idle.append(self)

    def connection_lost(self, exc: Exception | None) -> None:
        if self.busy:
            self.results.statuses[0] += 1
            self.busy = False
        with contextlib.suppress(ValueError):
            self.idle.remove(self)


async def send_at_rate(port: int, rate: float, seconds: float) -> Results:
    """Send requests at a fixed rate, over as many connections as they need."""
    idle, connections = list[_Connection](), list[_Connection]()
    results = Results()

    async def connect(due: float) -> None:
        loop = asyncio.get_running_loop()
        _, connection = await loop.create_connection(
            lambda: _Connection(results, idle), "127.0.0.1", port
        )
        connections.append(connection)
        connection.send(due)

    begin = time.perf_counter()
    async with asyncio.TaskGroup() as opening:
        for number in range(int(rate * seconds)):
            due = begin + number / rate
            await asyncio.sleep(max(0.0, due - time.perf_counter()))
            if idle:
                idle.pop().send(due)
            else:
                opening.create_task(connect(due))
    async with asyncio.timeout(30):
        while any(connection.busy for connection in connections):  # noqa: ASYNC110 - an event would cost time per response
            await asyncio.sleep(0.01)
    results.seconds = time.perf_counter() - begin
    for connection in connections:
        connection.transport.close()
    return results


async def measure(seconds: float) -> tuple[Results, Results]:
    """As many requests as there is capacity for, then five times as many."""
    with serve(SERVICE) as server:
        await wait_for_response(server.port)
        capacity = SLOTS / SECONDS
        await send_at_rate(server.port, capacity, 1)
        return await send_at_rate(
            server.port, capacity, seconds
        ), await send_at_rate(server.port, 5 * capacity, seconds)


async def figures(seconds: float = 5) -> list[Figure]:
    normal, overloaded = await measure(seconds)
    detail = f"{overloaded.goodput:.0f}/s against {normal.goodput:.0f}/s, a model that takes 200 ms"
    refusals = overloaded.refusals
    return [
        Figure(
            "runs at five times the capacity",
            overloaded.goodput / normal.goodput,
            "×",
            detail,
            0.9,
            "≥",
        ),
        Figure(
            "p99 of the refusals",
            p99_ms(refusals),
            "ms",
            f"{len(refusals)} responses with status 503",
            50,
        ),
    ]


if __name__ == "__main__":
    normal, overloaded = asyncio.run(
        measure(float(sys.argv[1]) if len(sys.argv) > 1 else 5)
    )
    statuses = overloaded.statuses
    summary = {
        "goodput": overloaded.goodput / normal.goodput,
        "refused_p99_ms": p99_ms(overloaded.refusals),
        "refused": statuses[503],
        "retry_after": overloaded.with_retry_after,
        "other": statuses.total() - statuses[200] - statuses[503],
    }
    print(json.dumps(summary))
