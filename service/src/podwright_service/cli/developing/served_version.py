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
from collections.abc import Collection, Iterator, Sequence
from functools import partial
from multiprocessing.connection import Connection
from multiprocessing.context import ForkServerContext, SpawnContext
from pathlib import Path
from typing import Any, Literal, NamedTuple

from dotenv import dotenv_values

from podwright.data.text import os_error_reason, truncate
from podwright.errors import ConfigurationError
from podwright_service.authoring.local_code import is_in_project
from podwright_service.cli import set_error_handlers
from podwright_service.cli.console import run_and_report
from podwright_service.cli.developing.watched_files import (
    INTERVAL,
    WatchedFiles,
)
from podwright_service.cli.running.run import load_served
from podwright_service.settings import read_settings

STOP_SECONDS = 3
"""Seconds that all versions have to end after Ctrl-C; active runs are cut off then."""
_PRELOADED = [
    "podwright_service.app",
    "podwright_service.cli.developing.served_version",
    "podwright_service.serving.server",
    "podwright.models.prices.pricing",
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


class _Report(NamedTuple):
    """What a version says while it starts."""

    what: Literal["imported", "writes", "ready", "failed"]
    files: list[str]


class Version:
    """A process that serves the component as its files are now.

    Args:
        options: Settings by name.
        env_file: A file with variables.
        sockets: The sockets to serve on.
        mcp: Further MCP servers; see `servers_of_options`.
    """

    def __init__(
        self,
        options: dict[str, Any],
        env_file: str | None,
        sockets: Sequence[socket.socket],
        mcp: Sequence[str] = (),
    ) -> None:
        processes = _processes()
        receiver, sender = processes.Pipe(duplex=False)
        self._reports = receiver
        self._has_reported_error = False
        with sender:
            self._process = processes.Process(
                target=_serve, args=(options, env_file, sockets, sender, mcp)
            )
            self._process.start()

    def is_ready(self, files: WatchedFiles) -> bool:
        """Wait until it serves; false if it cannot, or if files have changed in the meantime.

        Args:
            files: The files of the component, to which it adds the modules that it imports, and from which it takes
                those that it writes.
        """
        has_changed = False
        try:
            while True:
                if self._reports.poll(INTERVAL * (not has_changed)):
                    report: _Report = self._reports.recv()
                    match report.what:
                        case "ready":
                            return True
                        case "failed":
                            self._has_reported_error = True
                        case "imported":
                            files.add(report.files)
                        case "writes":
                            files.leave_out(report.files)
                    has_changed = False
                elif has_changed:
                    self.kill()
                    return False
                else:
                    # what it writes itself has been reported before
                    has_changed = bool(files.changes())
        except (EOFError, OSError):
            # the process has ended
            return False

    def silent_exit_code(self) -> int | None:
        """The exit code of a process that has ended without an error message; negative for a signal."""
        if self._has_reported_error:
            return None
        self._process.join(STOP_SECONDS)
        return self._process.exitcode

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
    sockets: Sequence[socket.socket],
    reports: Connection,
    mcp: Sequence[str],
) -> None:
    """Serve one version: the target of a process, whose exit code is 1 if it cannot be served.

    Args:
        options: Settings by name.
        env_file: A file with variables.
        sockets: The sockets to serve on.
        reports: Is sent each `_Report`.
        mcp: Further MCP servers; see `servers_of_options`.
    """
    # Ctrl-C is for the process that stops this one; uvicorn would drop what it does at a second signal
    os.setsid()
    threading.Thread(target=_stop_with_parent, daemon=True).start()
    set_error_handlers()
    writes = _Writes(reports)
    sys.addaudithook(writes.handle)
    command = partial(
        _serve_version,
        options,
        env_file,
        sockets=sockets,
        mcp=mcp,
        writes=writes,
    )
    code = run_and_report(command)
    if code == 1:
        writes.report(_Report("failed", []))
    reports.close()
    sys.exit(code)


class _Writes:
    """Reports each file before code of this process first writes, replaces or removes it, until the version serves.

    Args:
        reports: Where to.
    """

    def __init__(self, reports: Connection) -> None:
        self._reports = reports
        self._known: set[str] = set()
        self._has_ended = False
        self._lock = threading.RLock()

    def handle(self, event: str, arguments: tuple[Any, ...]) -> None:
        """Handle an audit event: see the audit events table of Python's documentation."""
        if self._has_ended:
            return
        match event, arguments:
            case "open", (path, _, int(flags)):
                if flags & (os.O_WRONLY | os.O_RDWR):
                    self._add(path)
            case "os.rename", (source, target, *_):
                self._add(source)
                self._add(target)
            case "os.remove" | "os.truncate", (path, *_):
                self._add(path)
            case _:
                pass

    def _add(self, path: object) -> None:
        if not isinstance(path, str | bytes | Path):
            return
        # as the path of a watched file
        file = os.path.realpath(os.fsdecode(path))
        with self._lock:
            if file not in self._known:
                self._known.add(file)
                self.report(_Report("writes", [file]))

    def report(self, report: _Report) -> None:
        """Send a report; after that of a version that serves, no further one."""
        with self._lock:
            if self._has_ended:
                return
            self._has_ended = report.what in ("ready", "failed")
            self._reports.send(report)


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
    *,
    sockets: Sequence[socket.socket],
    mcp: Sequence[str],
    writes: _Writes,
) -> None:
    os.environ.update(missing_variables(env_file))
    known = set(sys.modules)
    settings = read_settings(**options)
    # slow to import; errors so far are reported first
    from podwright_service.observability.output import separate_log

    with separate_log():
        try:
            component = load_served(settings, mcp)
        finally:
            files = list(_imported_files(known))
            writes.report(_Report("imported", files))
        from podwright_service.serving.server import serve

        serve(
            component,
            settings,
            sockets=sockets,
            when_ready=partial(writes.report, _Report("ready", [])),
        )


def _imported_files(known: Collection[str]) -> Iterator[str]:
    """The files of modules that were imported besides the known ones, without those of installed packages."""
    for name, module in list(sys.modules.items()):
        file = getattr(module, "__file__", None)
        if name not in known and file and is_in_project(Path(file)):
            yield file
