"""What is on its way when the server stops is answered."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator
from http.client import HTTPConnection

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


def echo(request: Request) -> PlainTextResponse:
    return PlainTextResponse(request.url.path)


class Served:
    """A server in a thread, and new connections to it."""

    def __init__(self, stack: contextlib.ExitStack) -> None:
        app = Starlette(routes=[Route("/{name}", echo)])
        options = {**uvicorn_options(Settings()), "log_level": "error"}
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


def ask(connection: HTTPConnection, path: str) -> tuple[str, str | None]:
    """The answer, and what it says of the connection."""
    connection.request("GET", path)
    response = connection.getresponse()
    return response.read().decode(), response.headers["connection"]


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


def test_connections_without_requests(server: Served) -> None:
    """Connections on which nothing comes do not keep the server."""
    new = server.connection()
    idle = server.connection()
    ask(idle, "/before")
    server.stop()
    server.thread.join()
    for connection in (new, idle):
        assert connection.sock.recv(1) == b""
