"""A closed load of HTTP requests: a number of connections, each of which sends its next request after a response."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from dataclasses import dataclass

KEY = "bench-0123456789abcdef"
"""The API key that all requests send."""


@dataclass(frozen=True)
class Load:
    """The result of a load."""

    seconds: float
    latencies: list[float]
    """Seconds of each request, sorted."""

    @property
    def rate(self) -> float:
        """Responses per second."""
        return len(self.latencies) / self.seconds

    def percentile(self, share: float) -> float:
        """The latency in seconds that this share of the requests does not exceed."""
        return self.latencies[
            min(len(self.latencies) - 1, int(len(self.latencies) * share))
        ]


def post(path: str, body: bytes) -> bytes:
    """The bytes of a request."""
    head = f"POST {path} HTTP/1.1\r\nhost: 127.0.0.1\r\nauthorization: Bearer {KEY}\r\n"
    return (
        f"{head}content-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n".encode()
        + body
    )


def complete_head(received: bytes) -> bytes | None:
    """The head of the response if all of the response has been received."""
    head, end_of_head, body = received.partition(b"\r\n\r\n")
    if not end_of_head:
        return None
    lower = head.lower()
    if b"transfer-encoding: chunked" in lower:
        complete = body.endswith(b"0\r\n\r\n")
    else:
        complete = len(body) >= int(
            lower.partition(b"content-length:")[2].partition(b"\r\n")[0]
        )
    return head if complete else None


class _Client(asyncio.Protocol):
    """Repeats a request on one connection as long as requests are left."""

    def __init__(
        self, request: bytes, requests: Iterator[int], latencies: list[float]
    ) -> None:
        self.request, self.requests, self.latencies = (
            request,
            requests,
            latencies,
        )
        self.done: asyncio.Future[None] = (
            asyncio.get_running_loop().create_future()
        )
        self.received = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport
        self.send()

    def send(self) -> None:
        if next(self.requests, None) is None:
            self.transport.close()
            self.done.set_result(None)
            return
        self.start = time.perf_counter()
        self.transport.write(self.request)  # type: ignore[attr-defined]

    def data_received(self, data: bytes) -> None:
        self.received += data
        if (head := complete_head(self.received)) is None:
            return
        if not head.startswith((b"HTTP/1.1 200", b"HTTP/1.1 202")):
            self.done.set_exception(
                RuntimeError(self.received[:500].decode(errors="replace"))
            )
            self.transport.close()
            return
        self.received = b""
        self.latencies.append(time.perf_counter() - self.start)
        self.send()

    def connection_lost(self, exc: Exception | None) -> None:
        if not self.done.done():
            self.done.set_exception(
                exc or ConnectionError("The server closed the connection.")
            )


async def load(
    port: int, path: str, body: bytes, requests: int, connections: int
) -> Load:
    """Send a number of requests over a number of connections.

    Raises:
        RuntimeError: A response is neither 200 nor 202.
    """
    left, latencies = iter(range(requests)), list[float]()
    request, loop = post(path, body), asyncio.get_running_loop()
    start = time.perf_counter()
    opened = [
        loop.create_connection(
            lambda: _Client(request, left, latencies), "127.0.0.1", port
        )
        for _ in range(connections)
    ]
    clients = [client for _, client in await asyncio.gather(*opened)]
    async with asyncio.timeout(120):
        await asyncio.gather(*(client.done for client in clients))
    return Load(time.perf_counter() - start, sorted(latencies))
