"""A run ends when its client disconnects, with real sockets on both sides of the service."""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from collections.abc import AsyncGenerator
from dataclasses import dataclass, field
from pathlib import Path

import httpx
import pytest
from tests.service.support import Address, Command, Serve, discard_output

from podwright import Agent

DEADLINE = 60
"""Seconds until a test fails whose event does not happen."""
CONCURRENT = 4

FIRST = json.dumps(
    {"choices": [{"index": 0, "delta": {"role": "assistant", "content": "Hi"}}]}
)
STREAM = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"


@dataclass
class Provider:
    """A model provider that starts a response and never completes it; it records when each connection ends."""

    url: str = ""
    called: dict[str, asyncio.Event] = field(
        default_factory=dict[str, asyncio.Event]
    )
    closed: dict[str, asyncio.Future[float]] = field(
        default_factory=dict[str, "asyncio.Future[float]"]
    )

    async def serve(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
        length = int(head.partition("content-length: ")[2].partition("\r\n")[0])
        request = json.loads(await reader.readexactly(length))
        name = request["messages"][-1]["content"]
        if request.get("stream"):
            data = f"data: {FIRST}\n\n".encode()
            writer.write(STREAM + b"%x\r\n%s\r\n" % (len(data), data))
        self.called[name].set()
        with contextlib.suppress(ConnectionError):
            await reader.read()
        self.closed[name].set_result(time.perf_counter())
        writer.close()


@contextlib.asynccontextmanager
async def serve_provider() -> AsyncGenerator[Provider]:
    provider = Provider()
    server = await asyncio.start_server(provider.serve, "127.0.0.1", 0)
    provider.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1"
    try:
        yield provider
    finally:
        server.close()


async def disconnect(
    url: httpx.URL, path: str, name: str, provider: Provider
) -> float:
    """Send a request, disconnect during its model call, and return the seconds until the provider is disconnected."""
    provider.called[name] = asyncio.Event()
    provider.closed[name] = asyncio.get_running_loop().create_future()
    body = json.dumps({"input": name}).encode()
    reader, writer = await asyncio.open_connection(url.host, url.port)
    head = f"POST {path} HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n"
    writer.write(head.encode() + body)
    await asyncio.wait_for(provider.called[name].wait(), DEADLINE)
    if path.endswith("/stream"):
        await asyncio.wait_for(reader.readuntil(b"event: token\n"), DEADLINE)
    start = time.perf_counter()
    writer.close()
    return await asyncio.wait_for(provider.closed[name], DEADLINE) - start


async def disconnect_often(
    url: httpx.URL, path: str, provider: Provider, count: int
) -> list[float]:
    """The times of many disconnects, of which a few are concurrent, in ascending order."""
    limit = asyncio.Semaphore(CONCURRENT)

    async def disconnect_once(number: int) -> float:
        async with limit:
            return await disconnect(url, path, str(number), provider)

    return sorted(
        await asyncio.gather(
            *(disconnect_once(number) for number in range(count))
        )
    )


@pytest.mark.parametrize("path", ["/run", "/run/stream"])
async def test_a_disconnect_closes_the_upstream_connection(
    serve: Serve, path: str
) -> None:
    """Each disconnect of a client closes the connection to the provider."""
    async with serve_provider() as provider:
        client = serve(
            Agent(
                "helper",
                "Help.",
                "openai/m",
                api_key="k",
                base_url=provider.url,
            )
        )
        await disconnect_often(client.base_url, path, provider, 20)


@pytest.mark.parametrize("path", ["/run", "/run/stream"])
@pytest.mark.parametrize("workers", ["1", "2"])
@pytest.mark.proof
async def test_disconnects_close_upstream_connections_in_time(
    command: Command, address: Address, tmp_path: Path, path: str, workers: str
) -> None:
    """Of 1000 disconnects, 99 of 100 close the connection to the provider within 0.1 seconds."""
    async with serve_provider() as provider:
        (tmp_path / "component.py").write_text(
            "from podwright import Agent\n"
            f"helper = Agent('helper', 'Help.', 'openai/m', api_key='k', base_url={provider.url!r})\n"
        )
        arguments = (
            "serve",
            "component:helper",
            "--host",
            "127.0.0.1",
            "--port",
            "0",
        )
        process = command(*arguments, cwd=tmp_path, PODWRIGHT_WORKERS=workers)
        url = httpx.URL(await asyncio.to_thread(address, process))
        discard_output(process)
        times = await disconnect_often(url, path, provider, 1000)
    p99 = times[int(len(times) * 0.99) - 1]
    print(f"p99: {p99 * 1000:.0f} ms")
    assert p99 <= 0.1
