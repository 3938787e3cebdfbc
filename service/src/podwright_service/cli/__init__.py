"""The command line: `podwright`.

Modules are imported by the command that needs them, so that `--help` and the health check are quick.
"""

from __future__ import annotations

import io
import os
import signal
import sys
from types import FrameType


def main() -> None:
    """Run the command line."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _exit)
    _open_closed_streams()
    set_error_handlers()
    try:
        code = _run(sys.argv[1:])
        # the code of a component may have closed it
        if not sys.stdout.closed:
            sys.stdout.flush()
    except OSError as error:
        # of the output, because the commands report all others
        if not isinstance(error, BrokenPipeError):  # of `podwright … | head`
            print(
                f"Error: Cannot write the output: {error}. Write it where there is space.",
                file=sys.stderr,
            )
        # because at its exit the interpreter would report the unwritten text again
        os._exit(1)
    sys.exit(code)


def _run(arguments: list[str]) -> int:
    """Run a command and return its exit code.

    `check` and `serve` without arguments, which the image runs, skip the import of typer: a sixth of a service's start.
    """
    if arguments == ["check"]:
        from podwright_service.cli.check import check

        return check()
    from podwright_service.cli.console import run_and_report

    if arguments == ["serve"]:
        return run_and_report(_serve)
    from podwright_service.cli.commands import app

    return run_and_report(app)


def _serve() -> None:
    from podwright_service.otel_variables import prepare_otel_variables

    prepare_otel_variables()
    from podwright_service.cli.running.run import serve_component

    serve_component()


def set_error_handlers() -> None:
    """Have the standard output and error escape what they cannot encode, and the input refuse what it cannot decode."""
    for stream, errors in (
        (sys.stdin, "strict"),
        (sys.stdout, "backslashreplace"),
        (sys.stderr, "backslashreplace"),
    ):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors=errors)


def _open_closed_streams() -> None:
    """Open the standard streams that the caller has closed, so that no other file gets their numbers.

    Reading the input and writing the output then fail as on a closed file; messages to standard error are dropped.
    """
    for number, name, flags, mode in (
        (0, "stdin", os.O_WRONLY, "r"),
        (1, "stdout", os.O_RDONLY, "w"),
        (2, "stderr", os.O_WRONLY, "w"),
    ):
        if getattr(sys, name) is None:
            # gets the lowest free number, which is this one
            os.open(os.devnull, flags)
            setattr(sys, name, os.fdopen(number, mode))


def _exit(number: int, frame: FrameType | None) -> None:
    """Exit without a traceback, also as the first process of a container, which has no default handlers."""
    os._exit(128 + number)
