"""What the commands print: answers to standard output, all else to standard error; plain where nobody watches."""

from __future__ import annotations

import contextlib
import json
import os
import re
import sys
from pathlib import Path
from typing import Any, TextIO

from podwright.errors import BlueprintValidationError, ConfigurationError, PodwrightError, Problem
from podwright.json_data import to_json_data
from podwright.text import os_error_reason, printable, truncate

_MOST = 256 * 1024 * 1024
"""Characters; a longer trace is none, and a device such as /dev/zero never ends."""

_IN_A_FOLDER = (
    (r"Give it in tools=\[(.+)\]\.", r"Define it in the folder's tools.py: `def \1(…)`."),
    (r"Give it in agents=\{'(.+)': …\}\.", r"Put it beside the blueprint: `agents/\1.json`, or a folder `\1`."),
    (r"Give it in agents=\{…\}, or add its instructions\.", "Put it into `agents/`, or add its instructions."),
)
"""What the library suggests to a programmer, and what helps in a shell."""


def say(text: str, file: TextIO | None = None) -> None:
    """Print a line, as it is; on a terminal, without control characters, for a model's words must not steer it."""
    to = file or sys.stdout
    to.write((printable(text) if to.isatty() else text) + "\n")


def say_json(data: Any) -> None:
    """Print data as JSON."""
    say(json.dumps(to_json_data(data), ensure_ascii=False, indent=2))


def hint(problem: Problem) -> Problem:
    """A problem of a blueprint, with a suggestion that fits the command line."""
    suggestion = problem.suggestion
    for theirs, ours in _IN_A_FOLDER:
        suggestion = re.sub(theirs, ours, suggestion)
    return Problem(problem.pointer, problem.detail, suggestion)


def complain(error: PodwrightError) -> None:
    """Print an error: in colour on a terminal, else in plain lines, which nothing wraps."""
    if isinstance(error, BlueprintValidationError):
        error.problems = tuple(hint(problem) for problem in error.problems)
        if error.suggestion == BlueprintValidationError.default_suggestion:
            error.suggestion = "Correct the places named above; `podwright schema` prints the whole schema."
    if sys.stderr.isatty():
        error.rich_print()
    else:
        say(f"{type(error).__name__} [{error.code}]: {error}", sys.stderr)


def read_text(path: str) -> str:
    """The text of a file, or of standard input for `-`.

    Raises:
        ConfigurationError: It cannot be read.
    """
    try:
        with contextlib.nullcontext(sys.stdin) if path == "-" else Path(path).open(encoding="utf-8") as file:
            text = file.read(_MOST + 1)
        if len(text) > _MOST:
            raise ValueError(f"it has more than {_MOST // 1024 // 1024} Mi characters")
        return text
    except (OSError, ValueError) as error:
        words = f"Cannot read '{truncate(path, 200)}': {os_error_reason(error)}."
        raise ConfigurationError(words, suggestion="Name a readable UTF-8 file.") from error


def try_to_write(path: str) -> None:
    """See whether a file can be written, and leave all as it is.

    Raises:
        ConfigurationError: It cannot.
    """
    try:
        file, there = Path(path), os.path.lexists(path)
        if not file.is_fifo():  # whose reader may not be there yet
            file.open("a").close()
        if not there:
            file.unlink()
    except (OSError, ValueError) as error:
        raise _unwritable(path, error) from error


def write_text(path: str, text: str) -> None:
    """Write a file anew.

    Raises:
        ConfigurationError: It cannot be written.
    """
    try:
        Path(path).write_text(text, encoding="utf-8", errors="backslashreplace")
    except (OSError, ValueError) as error:
        raise _unwritable(path, error) from error


def _unwritable(path: str, error: Exception) -> ConfigurationError:
    words = f"Cannot write '{truncate(path, 200)}': {os_error_reason(error)}."
    return ConfigurationError(words, suggestion="Name another file.")
