"""The command in a fork of a process that has imported it, because its imports take a second of CPU."""

from __future__ import annotations

import multiprocessing
import os
import subprocess
import sys
from pathlib import Path

from podwright_service.cli import main

_PROCESSES = multiprocessing.get_context("forkserver")
_MODULES = ["blueprints", "check", "commands", "deploy", "flowchart", "images", "new", "run", "settings"]
_PROCESSES.set_forkserver_preload(
    ["__main__", *(f"podwright_service.cli.{name}" for name in _MODULES), "podwright.models.pricing", "rich.table"]
)


Files = tuple[str | None, str | None, str | None]
"""The files of standard input, output and error; None is a closed stream."""


def run_forked(arguments: tuple[str, ...], folder: Path, variables: dict[str, str], files: Files) -> int:
    """Run `podwright` to its end in a process of its own, and return the exit code.

    Args:
        arguments: The arguments.
        folder: The working directory.
        variables: All environment variables.
        files: The standard streams.
    """
    process = _PROCESSES.Process(target=_run, args=(arguments, folder, variables, files))
    process.start()
    process.join(600)
    if process.exitcode is None:
        process.kill()
    assert process.exitcode is not None, f"podwright {arguments} did not end"
    return process.exitcode


def complete(
    arguments: tuple[str, ...], folder: Path, variables: dict[str, str], streams: Path, stdin: str = ""
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
    code = run_forked(arguments, folder, variables, (str(files[0]), str(files[1]), str(files[2])))
    return subprocess.CompletedProcess(arguments, code, files[1].read_text(), files[2].read_text())


def _run(arguments: tuple[str, ...], folder: Path, variables: dict[str, str], files: Files) -> None:
    """Make of this process what a shell and the start of Python make of it, and run the command."""
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(variables)
    sys.argv = ["podwright", *arguments]
    sys.path[:] = [path for path in sys.path if path]  # the command adds the working directory if it needs it
    opened = [None if file is None else os.open(file, os.O_RDWR) for file in files]
    for number, (name, descriptor) in enumerate(zip(("stdin", "stdout", "stderr"), opened, strict=True)):
        if descriptor is None:
            os.close(number)
            setattr(sys, name, None)
        else:
            os.dup2(descriptor, number)
            # with the handler of undecodable bytes that Python has in the locale of a container
            stream = os.fdopen(number, "w" if number else "r", encoding="utf-8", errors="surrogateescape")
            stream.reconfigure(line_buffering=name == "stderr" or stream.isatty())
            setattr(sys, name, stream)
    main()
