"""The server: one process that listens, serves, and ends in good order when it is told to."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import socket
import threading
from collections.abc import Generator

import uvicorn

from podwright.components import Component
from podwright_service import logs
from podwright_service.app import create_app
from podwright_service.health import Health
from podwright_service.keys import warn_if_open
from podwright_service.listening import told_why
from podwright_service.protocol import protocol_for
from podwright_service.runs import UnderWay
from podwright_service.settings import Settings, read_settings

_TO_ANSWER = 2
"""Seconds for the answers of the runs that were stopped."""


class Service:
    """A component as a REST service (spec §4.1).

    Args:
        component: What is served.
        title: Title of the service and of its API page; by default the component's name.
    """

    def __init__(self, component: Component, title: str | None = None) -> None:
        self.component = component
        self.title = title

    def run(self, host: str = "0.0.0.0", port: int = 8000) -> None:  # noqa: S104 - as in the spec
        """Serve until the process is told to stop; the call blocks.

        Args:
            host: Address to listen on.
            port: Port to listen on.

        Raises:
            ConfigurationError: A `PODWRIGHT_` variable has a wrong value, or the address cannot be listened on.
        """
        serve(self.component, read_settings(title=self.title, host=host, port=port))


def serve(component: Component, settings: Settings) -> None:
    """Serve a component until a signal ends it, then return.

    Raises:
        PodwrightError: The settings do not fit the component, or the address cannot be listened on.
    """
    writer = logs.configure(settings)
    app = create_app(settings, component)
    warn_if_open(settings)
    config = uvicorn.Config(
        app,
        host=settings.host,
        port=settings.port,
        lifespan="on",
        ws="none",
        http=protocol_for(settings),
        server_header=False,
        log_config=None,
        access_log=False,
        timeout_graceful_shutdown=settings.shutdown_timeout + _TO_ANSWER,
    )
    server = _Server(config, app.state.health, app.state.under_way, settings.shutdown_timeout)
    try:
        with _stopped_by_signals(server):
            server.run()
    finally:
        writer.flush()  # what comes after is written by others, and stands below


class _Server(uvicorn.Server):
    """Tells readiness of the end as soon as it is asked for, and of a port that it cannot have in our words."""

    def __init__(self, config: uvicorn.Config, health: Health, under_way: UnderWay, shutdown_timeout: float) -> None:
        super().__init__(config)
        self._health, self._under_way, self._shutdown_timeout = health, under_way, shutdown_timeout

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        with told_why(self.config.host, self.config.port):
            await super().startup(sockets)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        # the runs are stopped here, with time left for their answers; uvicorn only cuts them off
        last = asyncio.get_running_loop().call_later(self._shutdown_timeout, self._under_way.stop)
        await super().shutdown(sockets)
        last.cancel()

    def handle_exit(self, sig: int, frame: object) -> None:
        self._health.drain()
        super().handle_exit(sig, frame)  # pyright: ignore[reportArgumentType] - a frame, which signal types so


@contextlib.contextmanager
def _stopped_by_signals(server: _Server) -> Generator[None]:
    """Make a signal a request to stop, also before and after the server listens to signals itself.

    When it has stopped, uvicorn raises the signal again for whoever listened before it. That would end the
    process by the signal, where an orderly end has exit code 0.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def stop(sig: int, frame: object) -> None:
        server.should_exit = True

    before = {one: signal.signal(one, stop) for one in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for one, handler in before.items():
            signal.signal(one, handler)
