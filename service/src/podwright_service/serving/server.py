"""The server: uvicorn in one process, or gunicorn with several worker processes."""

from __future__ import annotations

import contextlib
import gc
import signal
import socket
import threading
from collections.abc import Callable, Generator, Sequence
from functools import partial

import uvicorn
from starlette.types import ASGIApp

from podwright.components import Component
from podwright.errors import ConfigurationError
from podwright_service.otel_variables import check_import
from podwright_service.serving.announced_app import AnnouncedApp
from podwright_service.serving.listening import (
    BACKLOG,
    bind,
    log_addresses,
    urls,
)
from podwright_service.serving.shared_metrics import share_metrics
from podwright_service.settings import Settings, read_settings

GC_THRESHOLD = 50_000
"""New objects between two garbage collections: Python's default of 700 or 2000 is less than some concurrent runs
hold with the spans that wait for their export, so that each collection would visit all of them."""


class Service:
    """A component as a REST service (spec §4.1).

    Args:
        component: The component to serve.
        title: Title of the service and of its API page; by default the component's name.
    """

    def __init__(self, component: Component, title: str | None = None) -> None:
        self.component = component
        self.title = title

    def run(self, host: str = "0.0.0.0", port: int = 8000) -> None:  # noqa: S104 - as in the spec
        """Serve until the process receives a stop signal; the call blocks.

        Args:
            host: Address to listen on; "*" is all addresses, of IPv4 and of IPv6 where the kernel has it.
            port: Port to listen on; 0 selects a free one.

        Raises:
            ConfigurationError: A `PODWRIGHT_` variable is wrong or unknown, or the address cannot be listened on.
        """
        serve(
            self.component,
            read_settings(title=self.title, host=host, port=port),
        )


def serve(
    component: Component,
    settings: Settings,
    sockets: Sequence[socket.socket] = (),
    when_ready: Callable[[], object] | None = None,
) -> None:
    """Serve a component until the process receives a stop signal.

    Args:
        component: The component to serve.
        settings: How it is served.
        sockets: Bound sockets to serve on, with one process; by default those for host and port of the settings.
        when_ready: Called once the application has started, in place of listening and of the log line that says where.

    Raises:
        PodwrightError: The settings do not fit the component, or the server cannot start.
    """
    share_metrics(settings)
    check_import()
    # imported now, because prometheus_client chooses at its import where it keeps values
    from podwright_service.observability.output import separate_log

    with separate_log():
        _serve(component, settings, sockets, when_ready)


def _serve(
    component: Component,
    settings: Settings,
    sockets: Sequence[socket.socket],
    when_ready: Callable[[], object] | None,
) -> None:
    from podwright_service.app import create_app
    from podwright_service.http.access.auth import warn_if_open
    from podwright_service.observability import configure_logging
    from podwright_service.serving.uvicorn_options import uvicorn_options

    configure_logging(settings)
    app = create_app(settings, component)
    warn_if_open(settings)
    relax_garbage_collection()
    if settings.workers > 1:
        # gunicorn does not run on Windows
        from podwright_service.serving.workers import serve_with_workers

        sockets = bind(settings.host, settings.port)
        serve_with_workers(app, settings, sockets)
    else:
        if not sockets:
            sockets = bind(settings.host, settings.port)
        if when_ready is None:
            when_ready = partial(_listen, sockets)
        served: ASGIApp = AnnouncedApp(app, when_ready)
        config = uvicorn.Config(served, **uvicorn_options(settings))
        with _return_on_signal():
            try:
                uvicorn.Server(config).run(list(sockets))
            except SystemExit as error:
                raise ConfigurationError(
                    "The service could not start.",
                    suggestion="The log says why.",
                ) from error


def _listen(sockets: Sequence[socket.socket]) -> None:
    """Listen before uvicorn does so: from now on clients wait instead of being refused."""
    for listening in sockets:
        listening.listen(BACKLOG)
    log_addresses(urls(sockets))


def relax_garbage_collection() -> None:
    """Collect less often, and only what requests create: what is loaded by now stays as long as the process."""
    gc.freeze()
    gc.set_threshold(GC_THRESHOLD)


@contextlib.contextmanager
def _return_on_signal() -> Generator[None]:
    """Return normally when uvicorn, after its shutdown, raises the signal again that it has received."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    handlers = {
        number: signal.getsignal(number)
        for number in (signal.SIGTERM, signal.SIGINT)
    }
    for number in handlers:
        # raises KeyboardInterrupt, for SIGTERM too
        signal.signal(number, signal.default_int_handler)
    try:
        with contextlib.suppress(KeyboardInterrupt):
            yield
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
