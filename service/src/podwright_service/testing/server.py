"""An aiohttp application in a background thread, which this machine and its containers can reach."""

from __future__ import annotations

import contextlib
import functools
import socket
import sys
from abc import ABC, abstractmethod
from typing import Any, Self

from aiohttp import web
from anyio.from_thread import start_blocking_portal

from podwright.errors import ConfigurationError
from podwright_service.serving.listening import bind, urls

LOOP_OPTIONS = {"use_uvloop": sys.platform != "win32"}
"""Options of the event loop. asyncio's own drops a connection that a client opens just when the server stops: the
client waits for its time-out. Source: https://github.com/python/cpython/issues/109564"""


class BackgroundServer(ABC):
    """Serves an aiohttp application from `start` to `stop`, or within a `with` block."""

    def __init__(self) -> None:
        self._running = contextlib.ExitStack()
        self._urls: dict[str, str] = {}

    @abstractmethod
    def application(self) -> web.Application:
        """The application to serve."""

    @property
    def url(self) -> str:
        """The address on this machine, such as "http://127.0.0.1:40123".

        Raises:
            ConfigurationError: The server is not started.
        """
        if not self._urls:
            raise ConfigurationError(
                "The server is not started.",
                suggestion="Use it in a `with` block, or call start().",
            )
        return next(iter(self._urls.values()))

    @property
    def url_for_containers(self) -> str:
        """The address for containers of this machine's engine; the server listens on it from the first access.

        Raises:
            ConfigurationError: The server is not started.
        """
        address, host = _route_from_containers()
        if self.url and address not in self._urls:
            self._listen(address)
        return f"http://{host}:{self._urls[address].rpartition(':')[2]}"

    def start(self, address: str = "127.0.0.1", port: int = 0) -> Self:
        """Listen; on a free port by default."""
        self._portal = self._running.enter_context(
            start_blocking_portal(backend_options=LOOP_OPTIONS)
        )
        self._runner = web.AppRunner(
            self.application(),
            access_log=None,
            handler_cancellation=True,
            shutdown_timeout=0.01,
        )
        self._portal.call(self._runner.setup)
        self._running.callback(self._portal.call, self._runner.cleanup)
        self._listen(address, port)
        return self

    def stop(self) -> None:
        """Cancel the requests in progress and close every connection."""
        self._urls.clear()
        self._running.close()

    def __enter__(self) -> Self:
        if not self._urls:
            self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _listen(self, address: str, port: int = 0) -> None:
        listeners = bind(address, port)
        for listener in listeners:
            self._portal.call(
                web.SockSite(self._runner, listener, backlog=512).start
            )
        self._urls[address] = urls(listeners)[0]


def shares_network() -> bool:
    """Whether the container engine publishes ports on this machine."""
    return _route_from_containers()[0] != "127.0.0.1"


@functools.cache
def _route_from_containers() -> tuple[str, str]:
    """The address to listen on for requests of containers, and the host name by which they reach it."""
    import docker  # a dependency of the extra `testing`

    with contextlib.closing(docker.from_env()) as client:
        bridge: Any = client.networks.get("bridge").attrs
    configs = bridge["IPAM"]["Config"] or ()
    gateways = [
        str(config["Gateway"]) for config in configs if "Gateway" in config
    ]
    gateway = ""
    if gateways:
        gateway = gateways[0]
    try:
        socket.create_server((gateway or "unknown", 0)).close()
    except OSError:
        # the engine runs in a virtual machine, which forwards this name
        return "127.0.0.1", "host.docker.internal"
    return gateway, gateway
