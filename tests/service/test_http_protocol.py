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

from podwright_service.observability.logging import WithoutOffers
from podwright_service.serving import http_protocol
from podwright_service.serving.uvicorn_options import uvicorn_options
from podwright_service.settings import Settings

RELEASED = threading.Event()


async def echo(request: Request) -> PlainTextResponse:
    """The path and the body; `/held` waits until it is released."""
    body = await request.body()
    if request.url.path == "/held":
        # Starlette copies the headers here
        assert request.headers["host"]
        await asyncio.to_thread(RELEASED.wait)
    return PlainTextResponse(f"{request.url.path}{body.decode()}")


class Served:
    """A server in a thread, and new connections to it."""

    def __init__(self, stack: contextlib.ExitStack) -> None:
        app = Starlette(
            routes=[Route("/{name}", echo, methods=["GET", "POST"])]
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
    monkeypatch.setattr(logger, "filters", [])
    monkeypatch.setattr(logger, "handlers", [caplog.handler])
    offer = {
        "connection": "Upgrade, HTTP2-Settings",
        "upgrade": "h2c",
        "http2-settings": "AAEAAEAAAAIAAAABAAMAAABkAAQBAAAAAAUAAEAA",
    }
    connection = server.connection()
    for _ in range(2):
        body: Any = "a body"
        if is_chunked:
            body = iter([b"a ", b"body"])
        connection.request(
            "POST", "/run", body, offer, encode_chunked=is_chunked
        )
        assert answer(connection) == ("/runa body", None)
    lines = [each for each in caplog.records if each.name == logger.name]
    assert lines
    assert list(filter(WithoutOffers().filter, lines)) == []


def test_connections_without_requests(server: Served) -> None:
    """Connections on which nothing comes do not keep the server."""
    new = server.connection()
    idle = server.connection()
    ask(idle, "/before")
    server.stop()
    server.thread.join()
    for connection in (new, idle):
        assert connection.sock.recv(1) == b""
