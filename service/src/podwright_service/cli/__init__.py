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
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    try:
        if sys.argv[1:] == ["check"]:  # the health check of the image, without the imports of the other commands
            from podwright_service.cli.check import check

            code = check()
        else:
            from podwright_service.cli.commands import run_command

            code = run_command()
        sys.stdout.flush()
    except BrokenPipeError:  # of `podwright … | head`; the interpreter would report it again at exit
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = 1
    sys.exit(code)


def _exit(number: int, frame: FrameType | None) -> None:
    """Exit without a traceback, also as the first process of a container, which has no default handlers."""
    os._exit(128 + number)
