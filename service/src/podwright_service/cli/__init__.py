"""The command line: `podwright`.

Modules are imported by the command that needs them, so that `--help` and the health check are quick.
"""

from __future__ import annotations

import contextlib
import io
import os
import signal
import sys
from types import FrameType
from typing import TextIO


def main() -> None:
    """Run the command line."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _exit)
    _open_closed_streams()
    for stream, errors in ((sys.stdin, "strict"), (sys.stdout, "backslashreplace"), (sys.stderr, "backslashreplace")):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors=errors)
    try:
        code = _run()
        sys.stdout.flush()
    except BrokenPipeError:  # of `podwright … | head`
        code = 1
    except OSError as error:
        code = 1
        with contextlib.suppress(OSError):
            _print_failure(error)
    for stream in (sys.stdout, sys.stderr):
        _drop_unwritten(stream)
    sys.exit(code)


def _run() -> int:
    if sys.argv[1:] == ["check"]:  # the health check of the image, without the imports of the other commands
        from podwright_service.cli.check import check

        return check()
    from podwright_service.cli.commands import run_command

    return run_command()


def _open_closed_streams() -> None:
    """Open the standard streams that the caller has closed, so that no other file gets their numbers.

    Reading the input and writing the output then fail as on a closed file; messages to standard error are dropped.
    """
    modes = {"stdin": os.O_WRONLY, "stdout": os.O_RDONLY, "stderr": os.O_WRONLY}
    for number, (name, flags) in enumerate(modes.items()):
        if getattr(sys, name) is None:
            os.open(os.devnull, flags)  # gets the lowest free number, which is this one
            setattr(sys, name, os.fdopen(number, "w" if number else "r", encoding="utf-8"))


def _print_failure(error: OSError) -> None:
    """Print the error of an output that cannot be written; the commands report all others."""
    from podwright.errors import ConfigurationError
    from podwright_service.cli.console import print_error

    suggestion = "Write it to an open file on a disk with free space."
    print_error(ConfigurationError(f"Cannot write the output: {error.strerror or error}.", suggestion=suggestion))


def _drop_unwritten(stream: TextIO) -> None:
    """Drop what a stream cannot write, which the interpreter would report again at exit."""
    try:
        stream.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def _exit(number: int, frame: FrameType | None) -> None:
    """Exit without a traceback, also as the first process of a container, which has no default handlers."""
    os._exit(128 + number)
