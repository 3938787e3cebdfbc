"""A load of HTTP requests over kept connections, light enough to measure a server from one core."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass


@dataclass(frozen=True)
class Load:
    """What a load came to."""

    seconds: float
    latencies: list[float]
    """Seconds, sorted, one for each request."""

    @property
    def rate(self) -> float:
        """Requests answered in a second."""
        return len(self.latencies) / self.seconds

    def percentile(self, share: float) -> float:
        """The latency in seconds that this share of the requests did not exceed."""
        return self.latencies[min(len(self.latencies) - 1, int(len(self.latencies) * share))]


class _Client(asyncio.Protocol):
    """Sends the same request again and again over one connection."""

    def __init__(self, request: bytes, budget: list[int], latencies: list[float]) -> None:
        self.request, self.budget, self.latencies = request, budget, latencies
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.seen = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport
        self.next()

    def next(self) -> None:
        if self.budget[0] <= 0:
            self.transport.close()
            if not self.done.done():
                self.done.set_result(None)
            return
        self.budget[0] -= 1
        self.start = time.perf_counter()
        self.transport.write(self.request)  # type: ignore[attr-defined]

    def data_received(self, data: bytes) -> None:
        self.seen += data
        head, found, body = self.seen.partition(b"\r\n\r\n")
        if not found:
            return
        lower = head.lower()
        if b"transfer-encoding: chunked" in lower:
            if not body.endswith(b"0\r\n\r\n"):
                return
        elif len(body) < int(lower.partition(b"content-length:")[2].partition(b"\r\n")[0]):
            return
        if not head.startswith(b"HTTP/1.1 200"):
            self.done.set_exception(RuntimeError(self.seen[:500].decode(errors="replace")))
            self.transport.close()
            return
        self.seen = b""
        self.latencies.append(time.perf_counter() - self.start)
        self.next()

    def connection_lost(self, exc: Exception | None) -> None:
        if not self.done.done():
            self.done.set_exception(exc or ConnectionError("the server closed the connection"))


KEY = "bench-0123456789abcdef"
"""Sent by all requests, and asked for by those services that have keys."""


def post(path: str, body: bytes) -> bytes:
    """The bytes of a request."""
    head = f"POST {path} HTTP/1.1\r\nhost: 127.0.0.1\r\nauthorization: Bearer {KEY}\r\n"
    return f"{head}content-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n".encode() + body


async def load(port: int, path: str, body: bytes, requests: int, connections: int) -> Load:
    """Send `requests` in all over `connections`, each as soon as the one before is answered.

    Raises:
        RuntimeError: An answer was not 200.
    """
    request = post(path, body)
    budget, latencies = [requests], list[float]()
    loop = asyncio.get_running_loop()
    start = time.perf_counter()
    made = await asyncio.gather(
        *(
            loop.create_connection(lambda: _Client(request, budget, latencies), "127.0.0.1", port)
            for _ in range(connections)
        )
    )
    async with asyncio.timeout(120):
        await asyncio.gather(*(client.done for _, client in made))
    return Load(time.perf_counter() - start, sorted(latencies))
