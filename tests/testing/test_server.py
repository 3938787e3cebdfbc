"""The event loop in a thread that the stub and the collector share."""

from __future__ import annotations

import gc
import socket
import threading
from concurrent.futures import ThreadPoolExecutor

from aiohttp import web
from tests.helpers import plain_http, until

from podwright_service.testing.server import BackgroundServer


class Busy(BackgroundServer):
    """A server whose event loop stands still while it handles a request."""

    def __init__(self) -> None:
        super().__init__()
        self.called = threading.Event()
        self.released = threading.Event()

    def application(self) -> web.Application:
        application = web.Application()
        application.router.add_get("/", self._stand_still)
        return application

    async def _stand_still(self, request: web.Request) -> web.Response:
        self.called.set()
        self.released.wait()
        return web.Response()

    @property
    def is_stopping(self) -> bool:
        return not self._urls


def test_a_stop_while_a_client_connects() -> None:
    """The connection is closed, although the server sees it and the stop in the same moment."""
    with Busy() as server, ThreadPoolExecutor() as threads:
        url = server.url
        threads.submit(plain_http.get, url)
        until(server.called.is_set)
        address = ("127.0.0.1", int(url.rpartition(":")[2]))
        with socket.create_connection(address, timeout=60) as client:
            stop = threads.submit(server.stop)
            until(lambda: server.is_stopping)
            server.released.set()
            stop.result(60)
            gc.collect()
            assert client.recv(1) == b""
