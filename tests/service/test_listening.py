"""The addresses that a service listens on, and URLs with IPv6 addresses."""

from __future__ import annotations

import errno
import json
import re
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.helpers import NO_AUTHORITIES, needs_ipv6, until
from tests.service.support import AGENT, Address, Command, Shell, write

from podwright import Agent, Remote
from podwright.client import Client
from podwright.errors import ConfigurationError
from podwright_service.serving.listening import bind, urls
from podwright_service.testing import ModelStub, SpanCollector

BOTH = ("127.0.0.1", "[::1]")


@pytest.fixture
def opened() -> Iterator[list[socket.socket]]:
    """Sockets that are closed after the test."""
    sockets: list[socket.socket] = []
    yield sockets
    for each in sockets:
        each.close()


def reached(port: int) -> tuple[str, ...]:
    """The loopback addresses at which a service is ready."""
    found: list[str] = []
    with httpx.Client(verify=NO_AUTHORITIES, trust_env=False) as client:
        for host in BOTH:
            try:
                response = client.get(f"http://{host}:{port}/ready")
            except httpx.ConnectError:
                continue
            assert response.status_code == 200
            found.append(host)
    return tuple(found)


@needs_ipv6
@pytest.mark.parametrize("workers", ["1", "2"])
@pytest.mark.parametrize(
    ("host", "expected"),
    [
        ("", BOTH),
        ("*", BOTH),
        ("::", BOTH),
        ("[::]", BOTH),
        ("0.0.0.0", BOTH[:1]),  # noqa: S104 - the address under test
        ("::1", BOTH[1:]),
        ("[::1]", BOTH[1:]),
        ("127.0.0.1", BOTH[:1]),
    ],
)
def test_the_address_families(
    command: Command,
    shell: Shell,
    tmp_path: Path,
    *,
    host: str,
    workers: str,
    expected: tuple[str, ...],
) -> None:
    """By default a service listens on IPv4 and IPv6, also with several processes, and the check finds it."""
    write(tmp_path / "blueprint.json", AGENT)
    variables = {"PODWRIGHT_HOST": host, "PODWRIGHT_WORKERS": workers}
    process = command("serve", str(tmp_path), "--port", "0", **variables)
    assert process.stdout is not None
    line = next(line for line in process.stdout if "running on" in line)
    (port,) = set(re.findall(r'http://[^\s,"]*:(\d+)', line))
    assert reached(int(port)) == expected
    done = shell("check", PODWRIGHT_HOST=host, PODWRIGHT_PORT=port)
    assert done.returncode == 0, done.stderr


@needs_ipv6
def test_a_free_port_is_the_same_for_all_addresses(
    opened: list[socket.socket],
) -> None:
    """Each family has a socket of its own, so that IPv4 clients keep their addresses, with the same free port."""
    opened += bind("*", 0)
    assert [each.family for each in opened] == [
        socket.AF_INET,
        socket.AF_INET6,
    ]
    port = opened[0].getsockname()[1]
    assert urls(opened) == [f"http://0.0.0.0:{port}", f"http://[::]:{port}"]
    opened[0].listen()
    with socket.create_connection(("127.0.0.1", port)):
        accepted, address = opened[0].accept()
        opened.append(accepted)
    assert address[0] == "127.0.0.1"


@pytest.mark.parametrize("code", [errno.EAFNOSUPPORT, errno.EADDRNOTAVAIL])
def test_a_kernel_without_ipv6(
    opened: list[socket.socket], monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    """Where the kernel has no IPv6, the service listens on IPv4; an IPv6 address alone cannot be used."""

    class Socket(socket.socket):
        def bind(self, address: object) -> None:
            if self.family == socket.AF_INET6:
                raise OSError(code, "no IPv6")
            super().bind(address)  # pyright: ignore[reportArgumentType] - as it was given

    monkeypatch.setattr(socket, "socket", Socket)
    opened += bind("*", 0)
    assert [each.family for each in opened] == [socket.AF_INET]
    with pytest.raises(ConfigurationError, match="Could not listen on ::1:0"):
        bind("::1", 0)


def test_a_name_with_an_address_of_another_machine(
    opened: list[socket.socket], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is an error: else clients would find nobody at one of the addresses."""

    def resolve(*arguments: Any, **options: Any) -> Any:
        return [
            (socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, 0))
            for address in ("127.0.0.1", "192.0.2.1")
        ]

    monkeypatch.setattr(socket, "getaddrinfo", resolve)
    with pytest.raises(ConfigurationError, match="Could not listen on both"):
        opened += bind("both", 0)


def test_a_link_local_address(
    opened: list[socket.socket], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its link, which is behind the '%' of `fe80::1%eth0`, is a part of what the socket takes."""
    bound: list[Any] = []

    class Socket(socket.socket):
        def bind(self, address: Any) -> None:
            bound.append(address)

    def resolve(*arguments: Any, **options: Any) -> Any:
        address = ("fe80::1", 8000, 0, 7)
        return [(socket.AF_INET6, socket.SOCK_STREAM, 6, "", address)] * 2

    monkeypatch.setattr(socket, "socket", Socket)
    monkeypatch.setattr(socket, "getaddrinfo", resolve)
    opened += bind("fe80::1%eth0", 8000)
    assert bound == [("fe80::1", 8000, 0, 7)]


@pytest.mark.parametrize("host", ["a..b", f"{'a' * 64}.example"])
def test_an_invalid_name(host: str) -> None:
    """A name that no resolver takes is an error that names it."""
    with pytest.raises(ConfigurationError, match=f"Could not listen on {host}"):
        bind(host, 0)


def test_a_free_port_that_ipv6_has_not_free(
    opened: list[socket.socket], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another one is looked for, some times; a named port is tried once."""
    refusals = [3]
    tried: list[Any] = []

    class Socket(socket.socket):
        def bind(self, address: Any) -> None:
            if self.family == socket.AF_INET6:
                tried.append(address[1])
                if len(tried) <= refusals[0]:
                    raise OSError(errno.EADDRINUSE, "in use")
                return
            super().bind(address)

    monkeypatch.setattr(socket, "socket", Socket)
    opened += bind("*", 0)
    assert len(tried) == 4
    assert opened[0].getsockname()[1] == tried[-1]
    opened.pop(0).close()
    refusals[0] = 1 << 62
    port = tried[-1]
    tried.clear()
    with pytest.raises(ConfigurationError):
        bind("*", port)
    assert tried == [port]
    with pytest.raises(ConfigurationError):
        bind("*", 0)


def test_an_address_in_use(opened: list[socket.socket]) -> None:
    """An address that another process has is an error that names it, and nothing stays open."""
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        with pytest.raises(ConfigurationError) as caught:
            bind("127.0.0.1", port)
        assert f"127.0.0.1:{port}" in caught.value.message
        assert caught.value.suggestion
    opened += bind("127.0.0.1", port)


@needs_ipv6
def test_dev_on_ipv6(command: Command, tmp_path: Path) -> None:
    """`dev` says each address that it serves on."""
    write(tmp_path / "blueprint.json", AGENT)
    process = command("dev", str(tmp_path), "--host", "::", "--port", "0")
    assert process.stdout is not None
    line = next(line for line in process.stdout if "Serving on" in line)
    first, second = line.split("http://")[1:]
    port = first.split(":")[1].split()[0]
    assert second.startswith(f"[::]:{port}")
    assert reached(int(port)) == BOTH


@needs_ipv6
def test_urls_with_ipv6_addresses(
    command: Command, address: Address, shell: Shell, tmp_path: Path
) -> None:
    """Clients, remotes, commands, models and the collector have URLs with IPv6 addresses."""
    write(tmp_path / "blueprint.json", AGENT)
    key = "a-key-of-sixteen-characters"
    collector = SpanCollector()
    collector.start("::1")
    process = command(
        "serve",
        str(tmp_path),
        "--port",
        "0",
        PODWRIGHT_API_KEYS=key,
        **collector.variables(collector.url),
    )
    url = f"http://[::1]:{address(process).rpartition(':')[2]}"
    assert "moon" in Client(url, api_key=key).run("the moon").value
    assert "moon" in Remote("far", url, api_key=key).run("the moon")
    assert shell("check", url).returncode == 0
    for name in ("::1", "writer"):
        variables = {"PODWRIGHT_AGENT_KEYS": json.dumps({name: key})}
        if name == "writer":
            variables["PODWRIGHT_AGENTS"] = json.dumps({name: url})
        done = shell("chat", url, stdin="the moon\n", **variables)
        assert "the moon" in done.stdout, done.stderr
    with collector:
        until(lambda: collector.spans)
    stub = ModelStub("Hello.")
    stub.start("::1")
    with stub:
        assert stub.url.startswith("http://[::1]:")
        agent = Agent(
            "a", "Help.", "openai/x", base_url=f"{stub.url}/v1", api_key="k"
        )
        assert agent.run("Hello?") == "Hello."
