"""The command `dev`: serves a component, and each change of its files as a new version.

All versions share one socket: the old one serves until the new one has started, and a version that cannot start
replaces none.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import sys
import time
from collections.abc import Callable, Generator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from podwright.settings import forget_settings
from podwright_service.cli.console import print_note
from podwright_service.cli.developing.served_version import (
    STOP_SECONDS,
    Version,
    missing_variables,
)
from podwright_service.cli.developing.watched_files import WatchedFiles
from podwright_service.cli.running.run import served_source
from podwright_service.serving.listening import BACKLOG, bind, urls
from podwright_service.settings import Settings, read_settings
from podwright_service.source import check_source


def develop(
    env_file: str | None, mcp: Sequence[str] = (), **options: Any
) -> None:
    """Serve a component, and what becomes of it, until a signal.

    Args:
        env_file: A file with variables that are set unless the environment has them; it is read for each version.
        mcp: Further MCP servers; see `servers_of_options`.
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
    with contextlib.ExitStack() as opened:
        sockets = bind(settings.host, settings.port)
        for listening in sockets:
            opened.enter_context(listening)
        start = partial(Version, options, env_file, sockets, mcp)
        developer = _Developer(files, start, sockets)
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
    added = missing_variables(env_file)
    os.environ.update(added)
    try:
        yield
    finally:
        for name in added:
            del os.environ[name]
        forget_settings()


class _Developer:
    """Starts a version for each change, and stops the one before.

    Args:
        files: The files of the component.
        start: Starts a version of what the files are now.
        sockets: The sockets on which all versions serve.
    """

    def __init__(
        self,
        files: WatchedFiles,
        start: Callable[[], Version],
        sockets: Sequence[socket.socket],
    ) -> None:
        self._files = files
        self._start = start
        self._sockets = sockets
        self._serving: Version | None = None
        self._versions: list[Version] = []

    def serve(self) -> None:
        """Serve one version after the other, without end."""
        while True:
            self._files.begin()
            version = self._start()
            alive = [each for each in self._versions if each.is_alive()]
            self._versions = [*alive, version]
            self._replace_with(version)
            self._wait_for_changes()

    def _replace_with(self, version: Version) -> None:
        """Let a version take the place of the one that serves, once it has started."""
        started = time.perf_counter()
        is_ready = version.is_ready(self._files)
        for path in self._files.newly_left_out():
            print_note(
                f"Not watched, because the component writes it: {_short_path(path)}."
            )
        if not is_ready:
            self._print_what_serves(version)
            return
        seconds = time.perf_counter() - started
        if self._serving is None:
            # from now on clients wait instead of being refused
            for listening in self._sockets:
                listening.listen(BACKLOG)
            addresses = " and ".join(urls(self._sockets))
            print_note(
                f"Serving on {addresses}, with the API page at /docs. Ctrl-C ends.",
                "bold",
            )
        else:
            self._serving.stop()
            print_note(f"Reloaded in {seconds:.1f} s.", "green")
        self._serving = version

    def _print_what_serves(self, failed: Version) -> None:
        if self._files.changes():
            # the next version starts at once
            return
        code = failed.silent_exit_code()
        if code is not None:
            print_note(f"The process ended with exit code {code}.", "red")
        if self._serving is not None:
            print_note("The last good version is still served.", "yellow")
        else:
            print_note("Nothing is served until this is fixed.", "yellow")

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
            deadline = time.monotonic() + STOP_SECONDS
            for version in self._versions:
                version.wait(deadline - time.monotonic())
        finally:
            for version in self._versions:
                version.kill()


def _short_path(path: Path) -> str:
    with contextlib.suppress(ValueError):
        return str(path.relative_to(Path.cwd()))
    return str(path)
