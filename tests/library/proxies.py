"""Proxies for tests."""

import asyncio

import pytest
from tests.library.upstream import Upstream


class Proxy(Upstream):
    """A proxy that keeps the requests, and connects CONNECT requests to their targets."""

    async def serve(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        line = (await reader.readuntil(b"\r\n\r\n")).split(b"\r\n")[0].decode()
        self.headers.append({":line": line})
        host, _, port = (
            line.split(" ")[1]
            .removeprefix("http://")
            .split("/")[0]
            .partition(":")
        )
        inside, outside = await asyncio.open_connection(host, int(port))
        writer.write(b"HTTP/1.1 200 Connected\r\n\r\n")
        try:
            await asyncio.gather(
                self._pump(reader, outside), self._pump(inside, writer)
            )
        finally:
            outside.transport.abort()

    async def _pump(
        self, source: asyncio.StreamReader, target: asyncio.StreamWriter
    ) -> None:
        while data := await source.read(65536):
            target.write(data)
        target.close()


def set_proxy(monkeypatch: pytest.MonkeyPatch, url: str) -> None:
    """Let the environment name a proxy for https, and no exceptions."""
    for name in ("HTTPS_PROXY", "https_proxy"):
        monkeypatch.setenv(name, url)
    for name in ("NO_PROXY", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
