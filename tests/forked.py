"""The command in a fork of a process that has imported it, because its imports take a second of CPU."""

from __future__ import annotations

import fcntl
import multiprocessing
import os
import subprocess
import sys
import threading
from multiprocessing.connection import Connection
from pathlib import Path

from podwright_service.cli import main

_PROCESSES = multiprocessing.get_context("forkserver")
_COMMANDS = [
    "blueprints",
    "check",
    "commands",
    "deploy",
    "flowchart",
    "images",
    "new",
    "run",
    "settings",
]
_LIBRARIES = [
    "podwright.models.prices.pricing",
    "rich.table",
    "uvicorn.protocols.http.auto",
    "uvicorn_worker",
]
_PROCESSES.set_forkserver_preload(
    # what these modules read of the environment at their import is that of the tests, and not of the command: so
    # without prometheus_client, which then chooses where it keeps values
    [
        "__main__",
        *(f"podwright_service.cli.{name}" for name in _COMMANDS),
        "podwright_service.app",
        *_LIBRARIES,
    ]
)
PIPE_SIZE = 1 << 20
"""Bytes; for the tests that read the output only at the end."""

Files = tuple[
    str | Connection | None, str | Connection | None, str | Connection | None
]
"""The paths or pipes of standard input, output and error; None is a closed stream."""


class ForkedCommand:
    """Runs `podwright` in a new session, with the part of `subprocess.Popen`'s interface that the tests use.

    What is registered with `atexit` does not run at the end, and all processes have the same hash seed.

    Args:
        arguments: The arguments.
        folder: The working directory.
        variables: All environment variables.
    """

    def __init__(
        self,
        arguments: tuple[str, ...],
        folder: Path,
        variables: dict[str, str],
    ) -> None:
        reader, writer = _PROCESSES.Pipe(duplex=False)
        with reader, writer:
            fcntl.fcntl(writer.fileno(), fcntl.F_SETPIPE_SZ, PIPE_SIZE)
            files = (os.devnull, writer, writer)
            options = {"start_new_session": True}
            self._process = _PROCESSES.Process(
                target=_run,
                args=(arguments, folder, variables, files),
                kwargs=options,
            )
            self._process.start()
            self.stdout = os.fdopen(os.dup(reader.fileno()), encoding="utf-8")
            """Output and errors."""

    @property
    def pid(self) -> int:
        """The number of the process, and of its session and group."""
        assert self._process.pid is not None
        return self._process.pid

    @property
    def returncode(self) -> int | None:
        """The exit code, or minus the number of the signal that ended the process; None while it runs."""
        return self._process.exitcode

    def wait(self, timeout: float | None = None) -> int:
        """Wait some seconds for the end, and return the exit code."""
        self._process.join(timeout)
        if self.returncode is None:
            raise subprocess.TimeoutExpired("podwright", timeout or 0)
        return self.returncode

    def communicate(self, timeout: float | None = None) -> tuple[str, None]:
        """Wait some seconds for the end, also of processes that share the output, and return the rest of that."""
        rest: list[str] = []
        reader = threading.Thread(
            target=lambda: rest.append(self.stdout.read()), daemon=True
        )
        reader.start()
        self.wait(timeout)
        reader.join(timeout)
        if not rest:
            raise subprocess.TimeoutExpired("podwright", timeout or 0)
        return rest[0], None

    def send_signal(self, number: int) -> None:
        """Send a signal, unless the process has ended."""
        if self.returncode is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        """Kill the process."""
        self._process.kill()


def run_forked(
    arguments: tuple[str, ...],
    folder: Path,
    variables: dict[str, str],
    files: Files,
) -> int:
    """Run `podwright` to its end in a process of its own, and return the exit code.

    Args:
        arguments: The arguments.
        folder: The working directory.
        variables: All environment variables.
        files: The standard streams.
    """
    process = _PROCESSES.Process(
        target=_run, args=(arguments, folder, variables, files)
    )
    process.start()
    process.join(600)
    if process.exitcode is None:
        process.kill()
    assert process.exitcode is not None, f"podwright {arguments} did not end"
    return process.exitcode


def complete(
    arguments: tuple[str, ...],
    folder: Path,
    variables: dict[str, str],
    streams: Path,
    stdin: str = "",
) -> subprocess.CompletedProcess[str]:
    """The same, with an input; the result has the exit code and the output.

    Args:
        arguments: The arguments.
        folder: The working directory.
        variables: All environment variables.
        streams: A folder for the files of the standard streams.
        stdin: The standard input.
    """
    files = (streams / "stdin", streams / "stdout", streams / "stderr")
    for file, text in zip(files, (stdin, "", ""), strict=True):
        file.write_text(text)
    code = run_forked(
        arguments,
        folder,
        variables,
        (str(files[0]), str(files[1]), str(files[2])),
    )
    return subprocess.CompletedProcess(
        arguments, code, files[1].read_text(), files[2].read_text()
    )


def _run(
    arguments: tuple[str, ...],
    folder: Path,
    variables: dict[str, str],
    files: Files,
    start_new_session: bool = False,
) -> None:
    """Make of this process what a shell and the start of Python make of it, and run the command."""
    if start_new_session:
        os.setsid()
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(variables)
    sys.argv = ["podwright", *arguments]
    sys.path[:0] = [
        path
        for path in variables.get("PYTHONPATH", "").split(os.pathsep)
        if path
    ]
    # the command adds the working directory if it needs it
    sys.path[:] = [path for path in sys.path if path]
    opened = [None if file is None else _open(file) for file in files]
    for number, (name, descriptor) in enumerate(
        zip(("stdin", "stdout", "stderr"), opened, strict=True)
    ):
        if descriptor is None:
            os.close(number)
            setattr(sys, name, None)
        else:
            os.dup2(descriptor, number)
            # with the handler of undecodable bytes that Python has in the locale of a container
            stream = os.fdopen(
                number,
                "w" if number else "r",
                encoding="utf-8",
                errors="surrogateescape",
            )
            is_line_buffered = (
                name == "stderr"
                or stream.isatty()
                or "PYTHONUNBUFFERED" in variables
            )
            stream.reconfigure(line_buffering=is_line_buffered)
            setattr(sys, name, stream)
    main()


def _open(file: str | Connection) -> int:
    return os.open(file, os.O_RDWR) if isinstance(file, str) else file.fileno()
