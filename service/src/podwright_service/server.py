"""The server: it listens, serves in one process or in several, and ends in good order when it is told to."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from pathlib import Path

import uvicorn

from podwright.components import Component
from podwright_service.auth import warn_if_open
from podwright_service.draining import TO_ANSWER, DrainingServer, log, told_by_signals
from podwright_service.init import become_init
from podwright_service.listening import BACKLOG, listen, url
from podwright_service.protocol import protocol_for
from podwright_service.settings import Settings, read_settings

_KEEP_ALIVE = 75
"""Seconds that an idle connection is kept: longer than balancers keep theirs (nginx and most clouds' 60), so that
theirs is the end that closes. One that the service closes may just carry a request, and nobody repeats a POST."""


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
        become_init()
        serve(self.component, read_settings(title=self.title, host=host, port=port))


def serve(component: Component, settings: Settings) -> None:
    """Serve a component until a signal ends it, then return.

    Raises:
        PodwrightError: The settings do not fit the component, or the address cannot be listened on.
    """
    with contextlib.ExitStack() as stack:
        if settings.workers > 1 or os.environ.get("PROMETHEUS_MULTIPROC_DIR"):
            _prepare_multiprocess_directory(stack)
        # prometheus_client reads PROMETHEUS_MULTIPROC_DIR at its import
        from podwright_service.app import create_app
        from podwright_service.observability import configure_logging

        configure_logging(settings)
        app = create_app(settings, component)
        listening = listen(settings.host, settings.port)
        warn_if_open(settings)
        for one in listening:
            stack.enter_context(one)
        config = uvicorn.Config(
            app,
            lifespan="on",
            ws="none",
            http=protocol_for(settings),
            server_header=False,
            log_config=None,
            access_log=False,
            backlog=BACKLOG,
            timeout_keep_alive=_KEEP_ALIVE,
            timeout_graceful_shutdown=settings.shutdown_timeout + TO_ANSWER,
        )
        where = url(listening)

        def started() -> None:
            log.info("Podwright running on %s", where)

        if settings.workers > 1:
            from podwright_service import processes

            processes.serve(config, settings, listening, started)
        else:
            server = DrainingServer(config, settings, started=started)
            with told_by_signals(server.drain):
                server.run(listening)


def _prepare_multiprocess_directory(stack: contextlib.ExitStack) -> None:
    if not os.environ.get("PROMETHEUS_MULTIPROC_DIR"):
        directory, owner = tempfile.mkdtemp(prefix="podwright-metrics-"), os.getpid()
        os.environ["PROMETHEUS_MULTIPROC_DIR"] = directory
        stack.callback(os.environ.pop, "PROMETHEUS_MULTIPROC_DIR")
        stack.callback(lambda: os.getpid() == owner and shutil.rmtree(directory, ignore_errors=True))
    for file in Path(os.environ["PROMETHEUS_MULTIPROC_DIR"]).glob("*.db"):
        file.unlink()
