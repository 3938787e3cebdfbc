"""A server of tools in the network of a company: behind its proxy, and with a certificate of its own authority."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator, Iterator
from pathlib import Path

import pytest
from tests.library.proxies import Proxy, set_proxy
from tests.library.upstream import server_context, upstream
from tests.service.mcp_support import (
    Caller,
    ToolServer,
    python_server,
    with_tools,
)

import podwright
from podwright.errors import MCPServerError
from podwright.mcp.server import (
    MCPServer,
)
from podwright.testing import ToolCall


@pytest.fixture
def tools(tmp_path: Path) -> Iterator[ToolServer]:
    """A server with a certificate that no system trusts."""
    server_context(tmp_path)
    server = python_server(
        CERTIFICATE=str(tmp_path / "server.pem"),
        CERTIFICATE_KEY=str(tmp_path / "key.pem"),
    )
    yield server.start()
    server.kill()


@contextlib.asynccontextmanager
async def proxy() -> AsyncGenerator[tuple[Proxy, str]]:
    """A proxy, and its URL."""
    async with upstream(serving=Proxy()) as between:
        assert isinstance(between, Proxy)
        yield between, f"http://127.0.0.1:{between.port}"


async def add(server: MCPServer) -> str:
    """What an agent says that adds with a tool of the server."""
    caller = Caller([ToolCall.of("add", a=2, b=40)])
    agent = podwright.load(
        with_tools("add"), mcp={"it": server}, model=caller.model()
    )
    try:
        return str(await agent.arun("Go."))
    finally:
        await server.close()


@pytest.mark.servers
@pytest.mark.parametrize("trusted", ["true", "false"])
async def test_the_proxy_of_the_environment(
    tools: ToolServer,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    trusted: str,
) -> None:
    """Each connection goes through it if the environment is trusted, except to hosts of NO_PROXY; else none does."""
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "server.pem"))
    monkeypatch.setenv("PODWRIGHT_TRUST_ENV", trusted)
    async with proxy() as (between, url):
        set_proxy(monkeypatch, url)
        assert "42" in await add(MCPServer(tools.url))
        lines = {headers[":line"] for headers in between.headers}
        target = f"CONNECT {tools.url.split('/')[2]} HTTP/1.1"
        assert lines == ({target} if trusted == "true" else set())
        between.headers.clear()
        monkeypatch.setenv("NO_PROXY", "127.0.0.1")
        assert "42" in await add(MCPServer(tools.url))
        assert between.headers == []


@pytest.mark.servers
async def test_the_proxy_of_a_server(
    tools: ToolServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A proxy that a server names is used for it alone; one that refuses is named, without its password."""
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "server.pem"))
    async with proxy() as (between, url):
        assert "42" in await add(MCPServer(tools.url, proxy=url))
        assert between.headers
        between.headers.clear()
        assert "42" in await add(MCPServer(tools.url))
        assert between.headers == []
        address = url.removeprefix("http://")
    server = MCPServer(tools.url, proxy=f"http://ann:secret@{address}")
    with pytest.raises(MCPServerError) as caught:
        await server.list_tools()
    await server.close()
    assert caught.value.reason == "unreachable"
    assert address in str(caught.value)
    assert "secret" not in repr(caught.value) + str(caught.value)


@pytest.mark.servers
async def test_a_certificate_that_is_not_trusted(
    tools: ToolServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No request is sent to the server, and the error says which setting names the authority."""
    monkeypatch.setenv("SSL_CERT_FILE", "")
    server = MCPServer(tools.url)
    with pytest.raises(MCPServerError) as caught:
        await server.list_tools()
    await server.close()
    assert caught.value.reason == "unreachable"
    assert "SSL_CERT_FILE" in caught.value.suggestion
