"""The rows of earlier starts: what is known need not be run again."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from pathlib import Path

from podwright.data.files import replace_file
from podwright.data.json_data import JsonObject, to_json_bytes
from podwright.data.text import os_error_reason
from podwright.errors import ConfigurationError
from podwright.evaluation.reports.row import Row
from podwright.models.output_files import check_writable

_FILE = "rows.jsonl"
_RUNS = "runs"
_MADE = "made_at"


def prepare_folder(folder: Path) -> None:
    """Make the folder of what is recorded, for this user alone, and leave it out of the repository.

    What models have answered is in it, and what they were asked.
    """
    folder.mkdir(parents=True, exist_ok=True)
    folder.chmod(0o700)
    ignored = folder / ".gitignore"
    if not ignored.exists():
        ignored.write_text("*\n", encoding="utf-8")


class StoredRows:
    """The rows in a folder, one in a line of a file; each is written as soon as it is known.

    Args:
        folder: The folder, which is made if it does not exist, for this user alone.
        max_age: Seconds after which a row is not known any more, nor one of older answers; None keeps all.

    Raises:
        ConfigurationError: It cannot be written.
    """

    def __init__(self, folder: Path, max_age: float | None = None) -> None:
        self._folder = folder
        self._oldest = 0.0 if max_age is None else time.time() - max_age
        self._file = folder / _FILE
        try:
            prepare_folder(folder)
            (folder / _RUNS).mkdir(exist_ok=True)
            self._drop_cut_line()
        except OSError as error:
            raise _unwritable(folder, error) from error
        check_writable(self._file)

    def _drop_cut_line(self) -> None:
        """Remove the line that the end of a process has cut off."""
        if not self._file.exists():
            return
        data = self._file.read_bytes()
        whole = data.rpartition(b"\n")[0]
        if not data.endswith(b"\n") and data:
            os.truncate(self._file, len(whole) + bool(whole))

    def read(self) -> dict[str, Row]:
        """Return the rows that are known, by key; only those that say something about the component.

        Raises:
            ConfigurationError: The file is not what `add` has written.
        """
        if not self._file.exists():
            return {}
        rows = [row for row in self._rows() if row.is_scored]
        return {row.key: row for row in rows}

    def _rows(self) -> Iterator[Row]:
        lines = self._file.read_bytes().splitlines()
        for number, line in enumerate(lines, start=1):
            try:
                data = json.loads(line)
                row = Row.from_dict(data)
                made = data[_MADE]
                if min(made, row.oldest_answer or made) >= self._oldest:
                    yield row
            except (ValueError, TypeError, KeyError, RecursionError) as error:
                raise ConfigurationError(
                    f"Line {number} of '{self._file}' is no row of an evaluation.",
                    suggestion="Delete the file: what it has is run again, with the answers that are recorded.",
                ) from error

    def add(self, row: Row) -> None:
        """Write a row.

        Raises:
            ConfigurationError: It cannot be written.
        """
        line = to_json_bytes({_MADE: time.time(), **row.to_dict()}) + b"\n"
        try:
            # one call, so that lines of two processes do not mix
            with self._file.open("ab", buffering=0) as file:
                file.write(line)
        except OSError as error:
            raise _unwritable(self._file, error) from error

    def add_trace(self, key: str, trace: JsonObject) -> str:
        """Write the trace of a run, and return the name of its file.

        Raises:
            ConfigurationError: It cannot be written.
        """
        file = self.trace_file(key)
        try:
            replace_file(file, to_json_bytes(trace).decode())
        except OSError as error:
            raise _unwritable(file, error) from error
        return file.name

    def trace_file(self, key: str) -> Path:
        """Return where the trace of a run is kept."""
        return self._folder / _RUNS / f"{key}.json"


def _unwritable(path: Path, error: OSError) -> ConfigurationError:
    return ConfigurationError(
        f"Cannot write '{path}', where evaluations keep what they have: {os_error_reason(error)}."
    )
