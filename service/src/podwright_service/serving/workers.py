"""Several worker processes: gunicorn with uvicorn's worker class, each configured as documented.

The application is created once, before the processes are forked: a mistake stops the start with one message, and the
workers share its memory.
"""

from __future__ import annotations

import logging
import math
import os
import signal
import socket
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from fastapi import FastAPI
from gunicorn.app.base import BaseApplication
from prometheus_client import multiprocess
from uvicorn_worker import UvicornWorker  # pyright: ignore[reportMissingTypeStubs] - the package has no types

from podwright_service.http.access.shutdown import RESPONSE_SECONDS
from podwright_service.observability import logging_config, output
from podwright_service.observability.metrics import files as metric_files
from podwright_service.serving.listening import log_addresses
from podwright_service.serving.shared_metrics import make_spare_folder
from podwright_service.serving.uvicorn_options import uvicorn_options
from podwright_service.settings import Settings
from podwright_service.shared_folders import MEMORY_DIR, remove_shared_folders

HANG_TIMEOUT = 30
"""Seconds without a heartbeat after which a worker counts as hung, and is replaced."""
FLUSH_SECONDS = 5
"""Seconds that a worker has to flush its telemetry."""
EACH_SECOND = -math.inf
"""Seconds between two heartbeats: uvicorn compares them with its clock each second, which may be set back."""

_log = logging.getLogger("podwright.service")


def serve_with_workers(
    app: FastAPI, settings: Settings, sockets: Iterable[socket.socket]
) -> None:
    """Serve an application with `settings.workers` processes; ends the process with gunicorn's exit code.

    Args:
        app: The application.
        settings: How it is served.
        sockets: Bound sockets to serve on, which are closed.
    """
    # so that the processes are forked from one without threads
    output.end_reading()
    _Application(app, settings, sockets).run()


class _Worker(UvicornWorker):
    """A worker that stops when the first process has ended, which may have been killed."""

    _is_orphan = False

    async def callback_notify(self) -> None:
        """Send the heartbeat, and look for the first process; uvicorn calls this about each second."""
        await super().callback_notify()
        if os.getppid() == self.ppid:
            return
        if not self._is_orphan:
            _log.warning("The first process has ended, so this one stops.")
        self._is_orphan = True
        # as gunicorn does; the second signal ends the drain delay, for which another service could not have the port
        os.kill(os.getpid(), signal.SIGTERM)


class _Application(BaseApplication):
    """A custom gunicorn application; it reads neither a command line nor a configuration file."""

    def __init__(
        self, app: FastAPI, settings: Settings, sockets: Iterable[socket.socket]
    ) -> None:
        self._app = app
        self._settings = settings
        self._metrics = Path(os.environ[metric_files.VARIABLE])
        self._spare = make_spare_folder(self._metrics)
        # gunicorn closes the descriptors
        self._bind = [f"fd://{each.detach()}" for each in sockets]
        super().__init__()

    def load_config(self) -> None:
        settings = self._settings

        worker_options = uvicorn_options(settings)
        worker_options["timeout_notify"] = EACH_SECOND

        class Worker(_Worker):
            CONFIG_KWARGS = worker_options

        finish = settings.shutdown_timeout + RESPONSE_SECONDS + FLUSH_SECONDS
        options = {
            "bind": self._bind,
            "workers": settings.workers,
            "worker_class": Worker,
            "worker_tmp_dir": MEMORY_DIR,
            "logconfig_dict": logging_config(settings),
            # a worker that is replaced sends no heartbeat while its runs finish
            "timeout": max(HANG_TIMEOUT, finish),
            "graceful_timeout": int(settings.drain_delay) + 1 + finish,
            "max_requests": settings.worker_max_requests,
            "max_requests_jitter": settings.worker_max_requests // 10,
            "control_socket_disable": True,
            "when_ready": _log_address,
            "post_fork": self._begin_metrics,
            "child_exit": _forget_worker,
            "on_exit": _remove_folders,
        }
        for name, value in options.items():
            self.cfg.set(name, value)

    def load(self) -> FastAPI:
        return self._app

    def _begin_metrics(self, server: Any, worker: Any) -> None:
        metric_files.begin_process(self._metrics, self._spare)


def _remove_folders(server: Any) -> None:
    remove_shared_folders()


def _log_address(server: Any) -> None:
    log_addresses(map(str, server.LISTENERS))


def _forget_worker(server: Any, worker: Any) -> None:
    """Drop the gauges of a worker that has exited; its counters remain."""
    multiprocess.mark_process_dead(worker.pid)  # pyright: ignore[reportUnknownMemberType] - it has no types
