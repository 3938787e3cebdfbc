"""The server in one process, which takes its leave in good order: unready, then deaf, then empty, then gone."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import socket
import threading
import time
from collections.abc import Callable, Generator
from typing import cast

import uvicorn
from fastapi import FastAPI
from starlette.datastructures import State
from uvicorn.protocols.http.httptools_impl import RequestResponseCycle

from podwright.errors import ConfigurationError
from podwright_service.health import Health
from podwright_service.protocol import CLOSE
from podwright_service.runs import ActiveRuns
from podwright_service.settings import Settings

TO_ANSWER = 2
"""Seconds for the answers of the runs that were stopped."""

ENDING = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
"""What asks for the end. A terminal that closes says SIGHUP, and nothing here is to be read again."""

_TO_LEAVE = 5.0
"""Seconds in which the connections of a worker that is replaced are told to close; what is silent then is closed."""

_ECHO = 0.5
"""Seconds in which a signal is the same one again: a terminal tells a group, and its shell or `timeout` repeats it."""

log = logging.getLogger("uvicorn.error")


class Told:
    """Counts the signals of someone who wants the end: the first asks for it, a second one does not wait for it."""

    def __init__(self) -> None:
        self._first: float | None = None

    def again(self) -> bool:
        """Whether this signal, which came now, is a second one."""
        now = time.monotonic()
        self._first = self._first or now
        return now - self._first > _ECHO


class DrainingServer(uvicorn.Server):
    """uvicorn's server; told to stop, it is unready at once, serves for `drain_delay`, and then closes.

    Args:
        config: Its application is one of `create_app`.
        settings: How long each part of the end may take.
        most_requests: After so many it leaves: others accept on the same sockets; 0 is never.
        started: Called once it serves.
        leaving: Called when it begins to leave.
    """

    def __init__(
        self,
        config: uvicorn.Config,
        settings: Settings,
        most_requests: int = 0,
        started: Callable[[], None] | None = None,
        leaving: Callable[[], None] | None = None,
    ) -> None:
        super().__init__(config)
        state: State = cast("FastAPI", config.app).state
        self._health: Health = state.health
        self._under_way: ActiveRuns = state.under_way
        self._settings, self._most, self._on_start, self._on_leave = settings, most_requests, started, leaving
        self._ends_at: float | None = None
        self._told_early = self._leaves = self._out_of_files = False
        self._loop: asyncio.AbstractEventLoop

    def drain(self) -> None:
        """Unready from now on, and deaf after `drain_delay`; a second call changes nothing."""
        self._health.drain()
        if not self.started:  # connections may be taken by then: they are not dropped either
            self._told_early = True
        elif self._leaves:
            with contextlib.suppress(RuntimeError):  # the worker had left already, and its loop with it
                self._loop.call_soon_threadsafe(self._stop_runs_in_time)
        elif self._ends_at is None:
            self._part(self._settings.drain_delay)

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None]:
        """None: `told_by_signals` listens longer than the server runs, and the process ends by itself."""
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start the application, and accept connections."""
        try:
            self._loop = asyncio.get_running_loop()
            await super().startup(sockets)
        except SystemExit as error:
            raise ConfigurationError("The service cannot start; the lines above say why.") from error
        if self._on_start:
            self._on_start()
        if self._told_early:
            self.drain()

    async def on_tick(self, counter: int) -> bool:
        """Whether it is time to close."""
        if self._most and self._ends_at is None and self.server_state.total_requests >= self._most:
            self._leave()
        if counter % 10 == 0:
            self._look_for_room()
        empty = self._leaves and not self.server_state.connections
        if empty or (self._ends_at is not None and time.monotonic() >= self._ends_at):
            self.should_exit = True
        return await super().on_tick(counter)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Accept no more, finish what is under way, and end the application."""
        if not self._leaves:
            self._stop_runs_in_time()
        await super().shutdown(sockets)

    def _stop_runs_in_time(self) -> None:
        # with time left for their answers; uvicorn would only cut them off
        self._loop.call_later(self._settings.shutdown_timeout, self._under_way.stop)

    def _look_for_room(self) -> None:
        """Say it when no file can be opened: the loop drops connections then, and tells nobody."""
        try:
            os.close(os.open(os.devnull, os.O_RDONLY))
        except OSError as error:
            if not self._out_of_files:
                log.error("Connections are dropped: %s. Allow more (ulimit -n), or fewer callers.", error.strerror)
            self._out_of_files = True
        else:
            self._out_of_files = False

    def _leave(self) -> None:
        self._leaves = True
        for server in self.servers:
            server.close()
        self.config.timeout_graceful_shutdown = None  # another worker serves by now: runs take the time they need
        self._part(_TO_LEAVE)
        if self._on_leave:
            self._on_leave()

    def _part(self, seconds: float) -> None:
        """Tell each connection to close with its next answer, so that callers open new ones elsewhere."""
        self._ends_at = time.monotonic() + seconds
        self.config.encoded_headers.append(CLOSE)
        self.server_state.default_headers = [*self.server_state.default_headers, CLOSE]
        for connection in list(self.server_state.connections):
            cycle: RequestResponseCycle | None = getattr(connection, "cycle", None)
            # one that has told its head cannot say so any more, and would close while a next request is on its way
            if cycle and not cycle.response_started:
                cycle.keep_alive = False


@contextlib.contextmanager
def told_by_signals(drain: Callable[[], None]) -> Generator[None]:
    """Make a signal a request to drain, and a second one the end; in another thread than the main one, nothing."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    told = Told()

    def tell(number: int, frame: object) -> None:
        if told.again():
            os._exit(128 + number)  # whatever is still under way, in the loop or in threads, is not waited for
        drain()

    before = {
        one: signal.signal(one, tell)
        for one in ENDING
        if one != signal.SIGHUP or signal.getsignal(one) != signal.SIG_IGN  # `nohup` ignores it, and means it
    }
    try:
        yield
    finally:
        for one, handler in before.items():
            signal.signal(one, handler)
