"""The file of a SQLite database, which may be deleted, replaced or overwritten while it is open."""

from __future__ import annotations

import os
from pathlib import Path
from urllib.parse import unquote, urlsplit

from sqlalchemy.engine import URL

_HEADER = b"SQLite format 3\0"
"""How each file begins. Source: https://www.sqlite.org/fileformat.html#the_database_header"""


class DatabaseFileError(OSError):
    """The file of the database was deleted, replaced or overwritten, as the message says."""


class SQLiteFile:
    """The file that the connections of this process have open.

    SQLite itself goes on with a file that was deleted or replaced, and with its copies in memory of one that was
    overwritten.

    Args:
        url: The URL of the database.
    """

    def __init__(self, url: URL) -> None:
        self._path = _path_of(url)
        self._descriptor: int | None = None
        self._was_overwritten = False

    def check(self) -> None:
        """Check that the file is the one that the first check found. Takes microseconds.

        A file that was overwritten stays unusable, because SQLite would mix its old content with the new one.

        Raises:
            DatabaseFileError: It is gone, was replaced, or was overwritten.
            OSError: The folder or the file cannot be read.
        """
        try:
            found = self._path.stat()
        except FileNotFoundError:
            raise self._error("is gone") from None
        if self._descriptor is None:
            # never closed, because that would end the locks of all connections that this process has:
            # https://www.sqlite.org/howtocorrupt.html#_posix_advisory_locks_canceled_by_a_separate_thread_doing_close_
            self._descriptor = os.open(self._path, os.O_RDONLY)
        if not os.path.samestat(found, os.fstat(self._descriptor)):
            raise self._error("was replaced by another one")
        os.lseek(self._descriptor, 0, os.SEEK_SET)
        if os.read(self._descriptor, len(_HEADER)) != _HEADER:
            self._was_overwritten = True
        if self._was_overwritten:
            raise self._error("was overwritten")

    def _error(self, event: str) -> DatabaseFileError:
        return DatabaseFileError(f"the file '{self._path}' {event}")


def _path_of(url: URL) -> Path:
    """The path of the file, which a URL may give as a URI of SQLite."""
    path = url.database or ""
    if "uri" in url.query:
        path = unquote(urlsplit(path).path)
    return Path(path).absolute()
