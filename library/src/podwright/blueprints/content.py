"""The content of a file."""

from __future__ import annotations

from pathlib import Path

MAX_FILE_BYTES = 16 * 2**20
"""Largest file of a blueprint, of a text in it, or of settings."""


def read_bytes(path: str | Path) -> bytes:
    """The content of a regular file of at most 16 MiB.

    Raises:
        OSError: The file cannot be read.
        ValueError: It is larger, or not a regular file (reading a pipe may never end).
    """
    file = Path(path)
    if file.exists() and not file.is_file():
        raise ValueError("not a regular file")
    with file.open("rb") as opened:
        content = opened.read(MAX_FILE_BYTES + 1)
    if len(content) > MAX_FILE_BYTES:
        mebibytes = MAX_FILE_BYTES // 2**20
        raise ValueError(f"larger than {mebibytes} MiB")
    return content
