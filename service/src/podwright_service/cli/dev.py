"""The command `dev`: serves a component, and each change of its files as a new version.

Each version is a process of its own, so that nothing of an old one remains. A fork server has imported what all of them
need. They share one socket: the old version serves until the new one has started, and a version that cannot start
replaces none.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import socket
import sys
import sysconfig
import threading
import time
from collections.abc import Callable, Collection, Generator, Iterator
from functools import partial
from multiprocessing.connection import Connection
from multiprocessing.context import ForkServerContext, SpawnContext
from pathlib import Path
from typing import Any

from dotenv import dotenv_values

from podwright.errors import ConfigurationError
from podwright.text import os_error_reason, truncate
from podwright_service.cli import set_error_handlers
from podwright_service.cli.console import print_note, run_and_report
from podwright_service.cli.run import load_served, served_source
from podwright_service.cli.watched_files import INTERVAL, WatchedFiles
from podwright_service.settings import Settings, read_settings
from podwright_service.source import check_source

_STOP_SECONDS = 3
"""Seconds that all versions have to end after Ctrl-C; active runs are cut off then."""
_BACKLOG = 128
_PRELOADED = [
    "podwright_service.app",
    "podwright_service.cli.dev",
    "podwright_service.serving.server",
    "podwright.models.pricing",
    "uvicorn.protocols.http.auto",
]
"""What takes the time of a start, and is the same for all versions."""


def develop(env_file: str | None, **options: Any) -> None:
    """Serve a component, and what becomes of it, until a signal.

    Args:
        env_file: A file with variables that are set unless the environment has them; it is read for each version.
        **options: Settings by name, which override the environment; None is not set.

    Raises:
        ConfigurationError: The settings are invalid, there is no component, or the address cannot be listened on.
    """
    with _variables_of(env_file):
        settings = read_settings(**options)
    source = served_source(settings)
    check_source(source)
    options |= {"workers": 1, "drain_delay": 0.0, **_log_options(settings)}
    further: list[Path] = []
    if env_file is not None:
        further.append(Path(env_file))
    files = WatchedFiles(source, further)
    # byte code is thought to be up to date if its source was saved in the same second with the same size
    os.environ["PYTHONDONTWRITEBYTECODE"] = "1"
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.default_int_handler)
    with _bind(settings.host, settings.port) as listening:
        start = partial(_Version, options, env_file, listening)
        developer = _Developer(files, start, listening)
        try:
            developer.serve()
        except KeyboardInterrupt:
            print_note("Stopping.")
        finally:
            developer.stop()


def _log_options(settings: Settings) -> dict[str, str]:
    """Short lines on a terminal, unless the settings say otherwise."""
    if settings.log_format == "auto" and sys.stdout.isatty():
        return {"log_format": "short"}
    return {}


@contextlib.contextmanager
def _variables_of(env_file: str | None) -> Generator[None]:
    """The variables of a file, in the environment for a moment."""
    added = _missing_variables(env_file)
    os.environ.update(added)
    try:
        yield
    finally:
        for name in added:
            del os.environ[name]


def _missing_variables(env_file: str | None) -> dict[str, str]:
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


@contextlib.contextmanager
def _bind(host: str, port: int) -> Generator[socket.socket]:
    """A socket on an address; it refuses connections until it listens.

    Raises:
        ConfigurationError: The address cannot be used.
    """
    try:
        family, *_, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM
        )[0]
        listening = socket.socket(family)
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(address)
    except OSError as error:
        raise ConfigurationError(
            f"Could not listen on {host}:{port}: {os_error_reason(error)}.",
            suggestion="Use another host or port; --port 0 is any free one.",
        ) from error
    with listening:
        yield listening


class _Developer:
    """Starts a version for each change, and stops the one before.

    Args:
        files: The files of the component.
        start: Starts a version of what the files are now.
        listening: The socket on which all versions serve.
    """

    def __init__(
        self,
        files: WatchedFiles,
        start: Callable[[], _Version],
        listening: socket.socket,
    ) -> None:
        self._files = files
        self._start = start
        self._listening = listening
        self._serving: _Version | None = None
        self._versions: list[_Version] = []

    def serve(self) -> None:
        """Serve one version after the other, without end."""
        while True:
            self._files.begin()
            version = self._start()
            alive = [each for each in self._versions if each.is_alive()]
            self._versions = [*alive, version]
            self._replace_with(version)
            self._wait_for_changes()

    def _replace_with(self, version: _Version) -> None:
        """Let a version take the place of the one that serves, once it has started."""
        started = time.perf_counter()
        if not version.is_ready(self._files):
            self._print_what_serves()
            return
        seconds = time.perf_counter() - started
        if self._serving is None:
            # from now on clients wait instead of being refused
            self._listening.listen(_BACKLOG)
            host, port, *_ = self._listening.getsockname()
            print_note(
                f"Serving on http://{_in_url(host)}:{port}, with the API page at /docs. Ctrl-C ends.",
                "bold",
            )
        else:
            self._serving.stop()
            print_note(f"Reloaded in {seconds:.1f} s.", "green")
        self._serving = version

    def _print_what_serves(self) -> None:
        if self._files.changes():
            # the next version starts at once
            return
        if self._serving is not None:
            print_note("The version before goes on answering.", "yellow")
        else:
            print_note("Nothing is served until this is mended.", "yellow")

    def _wait_for_changes(self) -> None:
        serving = self._serving
        for _ in self._files.wait():
            if serving is not None and not serving.is_alive():
                print_note(
                    "The process has ended; save a file to start it again.",
                    "red",
                )
                serving = None
        names = map(_short_path, self._files.changes())
        print_note(f"Changed: {', '.join(names)}.")

    def stop(self) -> None:
        """Stop all versions, also those before that still finish runs."""
        try:
            for version in self._versions:
                version.stop()
            deadline = time.monotonic() + _STOP_SECONDS
            for version in self._versions:
                version.wait(deadline - time.monotonic())
        finally:
            for version in self._versions:
                version.kill()


class _Version:
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
        time.sleep(_STOP_SECONDS)
        os._exit(1)


def _serve_version(
    options: dict[str, Any],
    env_file: str | None,
    listening: socket.socket,
    reports: Connection,
) -> None:
    os.environ.update(_missing_variables(env_file))
    known = set(sys.modules)
    settings = read_settings(**options)
    try:
        component = load_served(settings)
    finally:
        reports.send(list(_module_files(known)))
    # slow to import; errors so far are reported first
    from podwright_service.serving.server import serve

    serve(
        component,
        settings,
        listening=listening,
        when_ready=partial(reports.send, None),
    )


def _module_files(known: Collection[str]) -> Iterator[str]:
    """The files of modules that were imported besides the known ones, without those of installed packages."""
    names = ("stdlib", "platstdlib", "purelib", "platlib")
    installed = [sysconfig.get_path(name) for name in names]
    for name, module in list(sys.modules.items()):
        file = getattr(module, "__file__", None)
        if name in known or not file:
            continue
        if not any(Path(file).is_relative_to(folder) for folder in installed):
            yield file


def _short_path(path: Path) -> str:
    with contextlib.suppress(ValueError):
        return str(path.relative_to(Path.cwd()))
    return str(path)


def _in_url(host: str) -> str:
    if ":" in host:
        return f"[{host}]"
    return host
