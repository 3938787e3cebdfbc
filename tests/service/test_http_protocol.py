"""Requests that offer to switch protocols, and those that are on their way when the server stops."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import threading
from collections.abc import Iterator
from http.client import HTTPConnection
from typing import Any

import pytest
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.routing import Route
from tests.helpers import until

from podwright_service.serving import http_protocol
from podwright_service.serving.uvicorn_options import uvicorn_options
from podwright_service.settings import Settings

RELEASED = threading.Event()
OFFER = {
    "connection": "Upgrade, HTTP2-Settings",
    "upgrade": "h2c",
    "http2-settings": "AAEAAEAAAAIAAAABAAMAAABkAAQBAAAAAAUAAEAA",
}
"""The offer of Java's HTTP client."""


async def echo(request: Request) -> PlainTextResponse:
    """The path, the body and the header `x-said`; `/held` waits until it is released."""
    body = await request.body()
    if request.url.path == "/held":
        # Starlette copies the headers here
        assert request.headers["host"]
        await asyncio.to_thread(RELEASED.wait)
    said = request.headers.get("x-said", "")
    return PlainTextResponse(f"{request.url.path}{body.decode()}{said}")


class Served:
    """A server in a thread, and new connections to it."""

    def __init__(self, stack: contextlib.ExitStack) -> None:
        app = Starlette(
            routes=[Route("/{name}", echo, methods=["GET", "HEAD", "POST"])]
        )
        options = {**uvicorn_options(Settings()), "log_level": "warning"}
        self._server = uvicorn.Server(uvicorn.Config(app, **options))
        self._stack = stack
        listening = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
        self._port = listening.getsockname()[1]
        self.thread = threading.Thread(
            target=self._server.run, kwargs={"sockets": [listening]}
        )
        self.thread.start()
        stack.callback(self.thread.join)
        stack.callback(setattr, self._server, "should_exit", True)
        until(lambda: self._server.started)

    def connection(self) -> HTTPConnection:
        connection = HTTPConnection("127.0.0.1", self._port, timeout=60)
        self._stack.callback(connection.close)
        connection.connect()
        return connection

    def is_answering(self) -> bool:
        return bool(self._server.server_state.tasks)

    def stop(self) -> None:
        """Have it accept nothing more."""
        self._server.should_exit = True
        until(self._refuses)

    def _refuses(self) -> bool:
        try:
            socket.create_connection(("127.0.0.1", self._port)).close()
        except ConnectionError:
            return True
        return False


@pytest.fixture
def server() -> Iterator[Served]:
    with contextlib.ExitStack() as stack:
        yield Served(stack)


def answer(connection: HTTPConnection) -> tuple[str, str | None]:
    """The answer, and what it says of the connection."""
    response = connection.getresponse()
    return response.read().decode(), response.headers["connection"]


def ask(connection: HTTPConnection, path: str) -> tuple[str, str | None]:
    connection.request("GET", path)
    return answer(connection)


def test_requests_on_their_way(
    monkeypatch: pytest.MonkeyPatch, server: Served
) -> None:
    """A new connection and an idle one have one more request after the stop."""
    monkeypatch.setattr(http_protocol, "STOP_DELAY", 600)
    new = server.connection()
    idle = server.connection()
    assert ask(idle, "/before") == ("/before", None)
    server.stop()
    assert ask(new, "/new") == ("/new", "close")
    assert ask(idle, "/idle") == ("/idle", "close")
    server.thread.join()


def test_a_request_in_progress(server: Served) -> None:
    """Its answer tells the client not to send another one on the connection."""
    RELEASED.clear()
    connection = server.connection()
    connection.request("POST", "/held", "!")
    until(server.is_answering)
    server.stop()
    RELEASED.set()
    assert answer(connection) == ("/held!", "close")


@pytest.mark.parametrize("is_chunked", [False, True])
def test_a_request_that_offers_to_switch(
    monkeypatch: pytest.MonkeyPatch,
    server: Served,
    caplog: pytest.LogCaptureFixture,
    *,
    is_chunked: bool,
) -> None:
    """As Java's client offers HTTP/2; each is answered, with its body, and is not worth a line of the log.

    Source: https://github.com/Kludex/uvicorn/issues/2722
    """
    # another test may have configured it
    logger = logging.getLogger("uvicorn.error")
    monkeypatch.setattr(logger, "handlers", [caplog.handler])
    connection = server.connection()
    for _ in range(2):
        body: Any = "a body"
        if is_chunked:
            body = iter([b"a ", b"body"])
        connection.request(
            "POST", "/run", body, OFFER, encode_chunked=is_chunked
        )
        assert answer(connection) == ("/runa body", None)
    assert caplog.records == []


def request_bytes(method: str, path: str, body: str, **headers: str) -> bytes:
    headers |= {"host": "localhost", "content-length": str(len(body))}
    lines = [f"{name}: {value}\r\n" for name, value in headers.items()]
    return f"{method} {path} HTTP/1.1\r\n{''.join(lines)}\r\n{body}".encode()


def answers(connection: HTTPConnection, count: int) -> list[str]:
    """The bodies of some responses on a connection, each of which is a path and what was sent there."""
    reader = connection.sock.makefile("rb")
    bodies: list[str] = []
    for _ in range(count):
        assert reader.readline().startswith(b"HTTP/1.1 200 ")
        length = 0
        while line := reader.readline().strip():
            if line.startswith(b"content-length:"):
                length = int(line.partition(b":")[2])
        bodies.append(reader.read(length).decode())
    return bodies


@pytest.mark.parametrize("size", [1, 7, 10_000])
def test_requests_in_pieces_and_at_once(server: Served, size: int) -> None:
    """Requests are read alike however their bytes arrive, those with an offer between the others."""
    several = [
        request_bytes("POST", "/first", "one", **OFFER),
        request_bytes("GET", "/second", ""),
        request_bytes("GET", "/third", "", **OFFER),
    ]
    data = b"".join(several)
    connection = server.connection()
    for start in range(0, len(data), size):
        connection.sock.sendall(data[start : start + size])
    assert answers(connection, 3) == ["/firstone", "/second", "/third"]


@pytest.mark.parametrize("size", [1, 10_000])
@pytest.mark.parametrize(
    ("version", "connection"),
    [
        ("1.1", "Upgrade, HTTP2-Settings, close"),
        ("1.0", "upgrade"),
        ("1.0", "upgrade, keep-alive"),
    ],
)
def test_an_offer_in_the_last_request(
    server: Served, version: str, connection: str, size: int
) -> None:
    """A request that offers another protocol and ends its connection is answered, with its body."""
    offer = {**OFFER, "connection": connection}
    data = request_bytes("POST", "/run", "a body", **offer)
    data = data.replace(b"HTTP/1.1", f"HTTP/{version}".encode())
    client = server.connection()
    for start in range(0, len(data), size):
        client.sock.sendall(data[start : start + size])
    assert answers(client, 1) == ["/runa body"]
    assert client.sock.recv(1) == b""


def test_a_request_before_an_invalid_one(server: Served) -> None:
    """It is answered, and the connection ends."""
    connection = server.connection()
    request = request_bytes("POST", "/run", "a body")
    connection.sock.sendall(request + b"\0garbage\r\n\r\n")
    assert answers(connection, 1) == ["/runa body"]
    assert connection.sock.recv(1) == b""


def test_an_expectation(server: Served) -> None:
    """A client that waits before it sends the body of a request with an offer is told to go on."""
    connection = server.connection()
    request = request_bytes(
        "POST", "/run", "a body", **OFFER, expect="100-continue"
    )
    head, end, body = request.partition(b"\r\n\r\n")
    connection.sock.sendall(head + end)
    assert connection.sock.recv(4096).startswith(b"HTTP/1.1 100 ")
    connection.sock.sendall(body)
    assert answers(connection, 1) == ["/runa body"]


def test_a_head_without_a_body(server: Served) -> None:
    """The answer to HEAD has the length of the body that GET has, and the connection goes on."""
    connection = server.connection()
    connection.request("HEAD", "/run", headers=OFFER)
    response = connection.getresponse()
    assert (response.read(), response.headers["content-length"]) == (b"", "4")
    assert ask(connection, "/again") == ("/again", None)


def test_whitespace_around_the_value_of_a_header(server: Served) -> None:
    """It is no part of the value, with an offer too."""
    for offer in ({}, OFFER):
        connection = server.connection()
        headers = {**offer, "x-said": " \t a b \t "}
        connection.sock.sendall(request_bytes("POST", "/run", "!", **headers))
        assert answers(connection, 1) == ["/run!a b"]


@pytest.mark.parametrize(
    "request_line", ["CONNECT host:443", "CONNECT http://host/run", "FOO /run"]
)
def test_requests_that_are_not_served(
    server: Served, request_line: str
) -> None:
    """A tunnel and an unknown method are refused, with an offer too, and the server goes on."""
    for offer in ({}, OFFER):
        method, path = request_line.split()
        connection = server.connection()
        connection.sock.sendall(request_bytes(method, path, "", **offer))
        assert connection.sock.recv(4096).startswith(b"HTTP/1.1 4")
    assert ask(server.connection(), "/run") == ("/run", None)


def test_connections_without_requests(server: Served) -> None:
    """Connections on which nothing comes do not keep the server."""
    new = server.connection()
    idle = server.connection()
    ask(idle, "/before")
    server.stop()
    server.thread.join()
    for connection in (new, idle):
        assert connection.sock.recv(1) == b""
