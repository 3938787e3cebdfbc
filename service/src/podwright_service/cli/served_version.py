"""One version of a component that is being developed: a process that serves what its files are now.

A process of its own, so that nothing of an old version remains. A fork server has imported what all versions need.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Collection, Iterator
from functools import partial
from multiprocessing.connection import Connection
from multiprocessing.context import ForkServerContext, SpawnContext
from pathlib import Path
from typing import Any

from dotenv import dotenv_values

from podwright.errors import ConfigurationError
from podwright.text import os_error_reason, truncate
from podwright_service.authoring.local_code import is_in_project
from podwright_service.cli import set_error_handlers
from podwright_service.cli.console import run_and_report
from podwright_service.cli.run import load_served
from podwright_service.cli.watched_files import INTERVAL, WatchedFiles
from podwright_service.settings import read_settings

STOP_SECONDS = 3
"""Seconds that all versions have to end after Ctrl-C; active runs are cut off then."""
_PRELOADED = [
    "podwright_service.app",
    "podwright_service.cli.served_version",
    "podwright_service.serving.server",
    "podwright.models.pricing",
    "uvicorn.protocols.http.auto",
]
"""What takes the time of a start, and is the same for all versions."""


def missing_variables(env_file: str | None) -> dict[str, str]:
    """The variables of a file that the environment does not have.

    Raises:
        ConfigurationError: The file cannot be read.
    """
    if env_file is None:
        return {}
    try:
        with Path(env_file).open(encoding="utf-8") as stream:
            values = dotenv_values(stream=stream)
    except (OSError, ValueError) as error:
        raise ConfigurationError(
            f"Cannot read '{truncate(env_file, 200)}': {os_error_reason(error)}.",
            suggestion="Name a file with lines NAME=VALUE.",
        ) from error
    missing: dict[str, str] = {}
    for name, value in values.items():
        if value is not None and name not in os.environ:
            missing[name] = value
    return missing


class Version:
    """A process that serves the component as its files are now.

    Args:
        options: Settings by name.
        env_file: A file with variables.
        listening: The socket to serve on.
    """

    def __init__(
        self,
        options: dict[str, Any],
        env_file: str | None,
        listening: socket.socket,
    ) -> None:
        processes = _processes()
        receiver, sender = processes.Pipe(duplex=False)
        self._reports = receiver
        with sender:
            self._process = processes.Process(
                target=_serve, args=(options, env_file, listening, sender)
            )
            self._process.start()

    def is_ready(self, files: WatchedFiles) -> bool:
        """Wait until it serves; false if it cannot, or if files have changed in the meantime.

        Args:
            files: The files of the component, to which it adds the modules that it imports.
        """
        try:
            while True:
                if self._reports.poll(INTERVAL):
                    modules = self._reports.recv()
                    if modules is None:
                        return True
                    files.add(modules)
                elif files.changes():
                    self.kill()
                    return False
        except (EOFError, OSError):
            # the process has ended
            return False

    def is_alive(self) -> bool:
        """Whether its process has not ended."""
        return self._process.is_alive()

    def stop(self) -> None:
        """Have it finish its active runs and end."""
        self._process.terminate()

    def wait(self, seconds: float) -> None:
        """Wait some seconds for its end."""
        self._process.join(max(0.0, seconds))

    def kill(self) -> None:
        """End it at once."""
        self._process.kill()
        self._process.join()


def _processes() -> ForkServerContext | SpawnContext:
    """Creates processes that share no state with this one."""
    if "forkserver" not in multiprocessing.get_all_start_methods():
        return multiprocessing.get_context("spawn")
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(_PRELOADED)
    return context


def _serve(
    options: dict[str, Any],
    env_file: str | None,
    listening: socket.socket,
    reports: Connection,
) -> None:
    """Serve one version: the target of a process, whose exit code is 1 if it cannot be served.

    Args:
        options: Settings by name.
        env_file: A file with variables.
        listening: The socket to serve on.
        reports: Is sent the files of imported modules, and None once the version serves.
    """
    # a terminal sends it to all processes, and the first one stops the others
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_stop_with_parent, daemon=True).start()
    set_error_handlers()
    command = partial(_serve_version, options, env_file, listening, reports)
    code = run_and_report(command)
    reports.close()
    sys.exit(code)


def _stop_with_parent() -> None:
    """End this process soon after the one that has started it, also if that was killed."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(STOP_SECONDS)
        os._exit(1)


def _serve_version(
    options: dict[str, Any],
    env_file: str | None,
    listening: socket.socket,
    reports: Connection,
) -> None:
    os.environ.update(missing_variables(env_file))
    known = set(sys.modules)
    settings = read_settings(**options)
    try:
        component = load_served(settings)
    finally:
        reports.send(list(_imported_files(known)))
    # slow to import; errors so far are reported first
    from podwright_service.serving.server import serve

    serve(
        component,
        settings,
        listening=listening,
        when_ready=partial(reports.send, None),
    )


def _imported_files(known: Collection[str]) -> Iterator[str]:
    """The files of modules that were imported besides the known ones, without those of installed packages."""
    for name, module in list(sys.modules.items()):
        file = getattr(module, "__file__", None)
        if name not in known and file and is_in_project(Path(file)):
            yield file
