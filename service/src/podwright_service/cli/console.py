"""Input and output of the commands: results on standard output, everything else on standard error."""

from __future__ import annotations

import functools
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from podwright.data.json_data import to_json_data
from podwright.data.redaction import without_url_secrets
from podwright.data.text import os_error_reason, printable, truncate
from podwright.errors import ConfigurationError, PodwrightError, help_page
from podwright.models.retries import Retries

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

AT_TERMINAL = Retries(connect_time=0.0)
"""Retries for a person at a terminal, who is told at once that a service does not run."""


def print_text(text: str, file: TextIO | None = None) -> None:
    """Print a line; on a terminal, without control characters."""
    stream = file or sys.stdout
    if stream.isatty():
        text = printable(text)
    stream.write(text + "\n")


def print_progress(line: str) -> None:
    """Print a line about the work of a command to standard error."""
    print_text(line, sys.stderr)


def print_note(text: str, style: str = "dim") -> None:
    """Print a line about a conversation to standard error; on a terminal in a style."""
    _notes().out(printable(text), style=style, highlight=False)


@functools.cache
def _notes() -> Console:
    from rich.console import Console  # slow to import

    return Console(stderr=True, force_terminal=sys.stderr.isatty())


def print_json(data: Any) -> None:
    """Print data as JSON."""
    print_text(json.dumps(to_json_data(data), ensure_ascii=False, indent=2))


def table_of(*columns: str) -> Table:
    """Return an empty table with these columns; on a terminal with lines."""
    from rich.table import Table  # slow to import

    table = Table(*columns)
    if not sys.stdout.isatty():
        table.box = None
    return table


def print_table(table: Table) -> None:
    """Print a table; off a terminal, in lines as long as they need to be."""
    from rich.console import Console

    width = None
    if not sys.stdout.isatty():
        width = 2000
    console = Console(width=width, highlight=False, markup=False, emoji=False)
    console.print(table)


def print_error(error: PodwrightError) -> None:
    """Print an error: formatted on a terminal, else as plain lines; without what may be secret in URLs."""
    if sys.stderr.isatty():
        error.rich_print()
        return
    text = f"{type(error).__name__} [{error.code}]: {error}"
    print_text(without_url_secrets(text, keep=help_page("")), sys.stderr)


def run_and_report(command: Callable[[], object]) -> int:
    """Run a command, print its error if it fails, and return its exit code."""
    try:
        command()
    except PodwrightError as error:
        print_error(error)
        return 1
    except SystemExit as end:
        if isinstance(end.code, int):
            return end.code
        return 0
    except KeyboardInterrupt:
        return 130
    return 0


def read_text(path: str) -> str:
    """Read the text of a file, or of standard input if the path is `-`.

    Raises:
        ConfigurationError: It cannot be read.
    """
    try:
        if path == "-":
            return sys.stdin.read()
        return Path(path).read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        raise ConfigurationError(
            f"Cannot read '{truncate(path, 200)}': {os_error_reason(error)}.",
            suggestion="Name a readable UTF-8 file.",
        ) from error


def read_bytes(path: str) -> bytes:
    """Read the bytes of a file.

    Raises:
        ConfigurationError: It cannot be read.
    """
    try:
        return Path(path).read_bytes()
    except (OSError, ValueError) as error:
        raise ConfigurationError(
            f"Cannot read '{truncate(path, 200)}': {os_error_reason(error)}.",
            suggestion="Name a readable file.",
        ) from error


def read_key(text: str) -> str:
    """Return an API key of the command line, which is the key itself or `@FILE`."""
    if text.startswith("@"):
        return read_text(text[1:]).strip()
    return text


def write_text(path: str, text: str) -> None:
    """Write a file.

    Raises:
        ConfigurationError: It cannot be written.
    """
    try:
        Path(path).write_text(text, encoding="utf-8", errors="backslashreplace")
    except (OSError, ValueError) as error:
        raise ConfigurationError(
            f"Cannot write '{truncate(path, 200)}': {os_error_reason(error)}.",
            suggestion="Name a writable file.",
        ) from error
