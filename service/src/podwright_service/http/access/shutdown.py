"""Graceful shutdown: `/ready` fails at once, requests are served for a while, active runs finish, spans are flushed.

Where a server runs the lifespan of the application, its signal handlers are replaced for that time, so that this works
alike in one process under uvicorn and in the worker processes of gunicorn. An application that is mounted in another
one leaves the signals to the program: its runs end, and its spans are flushed, with the lifespan that the program ends.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
import threading
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator
from contextlib import AbstractAsyncContextManager
from types import FrameType
from typing import Literal, Protocol

import anyio.lowlevel
from fastapi import FastAPI
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from podwright_service.http.access.active_runs import ActiveRuns
from podwright_service.http.errors.problems import RequestError
from podwright_service.http.paths import MONITORING_PATHS, path_in
from podwright_service.http.scrapes import Scrapes
from podwright_service.settings import Settings

_ON_THEIR_WAY = 0.5
"""Seconds in which requests are served that are on their way when no more are accepted."""
RESPONSE_SECONDS = 2
"""Seconds that cancelled runs have to send their responses."""


class BackgroundWork(Protocol):
    """What is performed besides requests while the application lives."""

    def working(self) -> AbstractAsyncContextManager[object]:
        """The context in which it works."""
        ...

    def drain(self) -> None:
        """Begin nothing new: the process stops soon."""
        ...


class Lifecycle:
    """The life of the application: starting, ready, draining.

    Args:
        settings: How long each phase of the shutdown may take.
        active_runs: Cancelled after the shutdown time-out.
        begin: Begins to export telemetry; called in each process.
        flush: Sends what telemetry has buffered; called in a thread at the end.
        scrapes: Of the metrics, of which the last is waited for.
        background: Performs background runs while the application lives.
    """

    def __init__(
        self,
        settings: Settings,
        active_runs: ActiveRuns,
        begin: Callable[[], object],
        flush: Callable[[], object],
        scrapes: Scrapes,
        background: BackgroundWork | None = None,
        close: Callable[[], Awaitable[object]] | None = None,
    ) -> None:
        self._settings = settings
        self._active_runs = active_runs
        self._begin = begin
        self._flush = flush
        self._scrapes = scrapes
        self._last_scrape: asyncio.Task[None] | None = None
        self.refuses_requests = False
        """Whether only metrics and health are served, because the process stops when its runs have ended."""
        self._background = background
        self._close = close
        self._leaves_signals = False
        self.state: Literal["starting", "ready", "draining"] = "starting"

    @contextlib.contextmanager
    def signals_left(self) -> Generator[None]:
        """Leave the signals to the program around the application in a lifespan that begins in this context."""
        self._leaves_signals = True
        try:
            yield
        finally:
            self._leaves_signals = False

    @contextlib.asynccontextmanager
    async def lifespan(self, app: FastAPI) -> AsyncGenerator[None]:
        """The lifespan of the application."""
        with self._handle_signals():
            self._begin()
            # streams use anyio, which imports a part of itself when it is used first
            await anyio.lowlevel.checkpoint()
            try:
                async with self._background_work():
                    self.state = "ready"
                    try:
                        yield
                    finally:
                        self.state = "draining"
            finally:
                if self._close is not None:
                    await self._close()
                await asyncio.to_thread(self._flush)

    def _background_work(self) -> AbstractAsyncContextManager[object]:
        if self._background is None:
            return contextlib.nullcontext()
        return self._background.working()

    @contextlib.contextmanager
    def _handle_signals(self) -> Generator[None]:
        """Drain at the first signal, before the server's own handler runs; a second signal ends the delay."""
        is_main = threading.current_thread() is threading.main_thread()
        if self._leaves_signals or not is_main:
            yield
            return
        loop = asyncio.get_running_loop()
        handlers = {
            number: signal.getsignal(number)
            for number in (signal.SIGTERM, signal.SIGINT)
        }

        def handle(number: int, frame: FrameType | None) -> None:
            delay = self._settings.drain_delay
            if self.state == "draining":
                delay = 0.0
            self.state = "draining"
            if self._background:
                loop.call_soon_threadsafe(self._background.drain)
            loop.call_soon_threadsafe(
                loop.call_later,
                delay,
                self._stop,
                number,
                handlers[signal.Signals(number)],
            )

        for number in handlers:
            signal.signal(number, handle)
        try:
            yield
        finally:
            for number, handler in handlers.items():
                signal.signal(number, handler)

    def _stop(self, number: int, server_handler: object) -> None:
        """Have the server accept no more requests, and give the active runs their time.

        If the metrics are scraped, the server still listens for that, until they have been scraped for the last time.
        """
        loop = asyncio.get_running_loop()
        loop.call_later(
            self._settings.shutdown_timeout, self._active_runs.cancel_all
        )

        def stop_server(_: object = None) -> None:
            if callable(server_handler):
                server_handler(number, None)

        is_first = self._last_scrape is None
        is_scraped = self._scrapes.seconds_to_next > 0
        if number == signal.SIGTERM and is_first and is_scraped:
            self._last_scrape = loop.create_task(self._wait_for_last_scrape())
            self._last_scrape.add_done_callback(stop_server)
        elif self._last_scrape is not None and not self._last_scrape.done():
            # a second signal
            self._last_scrape.cancel()
        else:
            stop_server()

    async def _wait_for_last_scrape(self) -> None:
        """Wait until the active runs have ended and were scraped, within their time."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._settings.shutdown_timeout):
                await asyncio.sleep(_ON_THEIR_WAY)
                self.refuses_requests = True
                await self._active_runs.wait()
                await self._scrapes.wait_for_last()


class LifecycleMiddleware:
    """ASGI middleware that refuses requests before the lifespan of the application has begun, and at its end.

    Servers run the lifespan of the application that they serve, but no application runs that of one mounted in it.
    """

    def __init__(
        self, app: ASGIApp, lifecycle: Lifecycle, component: str
    ) -> None:
        self._app = app
        self._lifecycle = lifecycle
        self._component = component

    async def __call__(
        self, scope: Scope, receive: Receive, send: Send
    ) -> None:
        """Serve the request, or raise a 503."""
        if scope["type"] == "http" and self._lifecycle.state == "starting":
            raise RequestError(
                503,
                "not_started",
                f"The application of '{self._component}' has not started, because its lifespan was not entered.",
                "If it is mounted in another application, enter `async with podwright_service.lifespan(app):` in the "
                "lifespan of that one; otherwise let the server run lifespans.",
            )
        if (
            scope["type"] == "http"
            and self._lifecycle.refuses_requests
            and path_in(scope) not in MONITORING_PATHS
        ):
            raise RequestError(
                503,
                "run_cancelled",
                "The service is stopping.",
                "Try again later.",
                headers={"retry-after": "1"},
            )
        await self._app(scope, receive, send)


class DrainMiddleware:
    """ASGI middleware that asks clients to close their connections while the service drains."""

    def __init__(self, app: ASGIApp, lifecycle: Lifecycle) -> None:
        self._app = app
        self._lifecycle = lifecycle

    async def __call__(
        self, scope: Scope, receive: Receive, send: Send
    ) -> None:
        """Serve the request; its response closes the connection if the service drains by then."""

        async def send_closing(message: Message) -> None:
            if (
                message["type"] == "http.response.start"
                and self._lifecycle.state == "draining"
            ):
                message["headers"] = [
                    *message.get("headers", ()),
                    (b"connection", b"close"),
                ]
            await send(message)

        await self._app(scope, receive, send_closing)
