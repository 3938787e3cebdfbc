"""The command line: `podwright`.

This module imports next to nothing: `podwright check` is run every few seconds, and each command imports what it
needs when it is called.
"""

from __future__ import annotations

import gc
import io
import os
import signal
import sys

_IMPORTED = 200_000
"""New objects after which a start looks for cycles: more than all imports make, for these stay, and looking through
them again and again takes a tenth of it. A component that makes many more as it is loaded is still looked through."""


def main() -> None:
    """Run the command line."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _leave)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # what a terminal cannot show is still told
    arguments = sys.argv[1:]
    if arguments[:1] == ["serve"]:
        gc.set_threshold(_IMPORTED)
    try:
        if arguments[:1] == ["check"] and len(arguments) <= 2 and not any(one.startswith("-") for one in arguments):
            from podwright_service.cli.probe import check

            code = check(arguments[1] if len(arguments) > 1 else None)
        elif arguments == ["serve"]:  # as containers start; the parser of options would be a tenth of it
            from podwright_service.cli.running import serve_as_set

            code = serve_as_set()
        else:
            from podwright_service.cli.commands import call

            code = call()
        sys.stdout.flush()
    except BrokenPipeError:  # who read has seen enough; the interpreter would complain once more as it ends
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = 128 + signal.SIGPIPE
    sys.exit(code)


def _leave(number: int, frame: object) -> None:
    """End at once, where nothing is under way that has to be ended in good order.

    An exception could come up anywhere, in the middle of an import say; and without a handler, the first process of a
    container does not hear the signal at all.
    """
    os._exit(128 + number)
