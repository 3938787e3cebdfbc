"""Folders that the processes of one service share, and that nobody else uses."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from pathlib import Path

MEMORY_DIR = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None  # noqa: S108 - mkdtemp makes the names below it
"""A folder in memory for files that are written all the time, if there is one."""
_IN_USE = "in-use"
"""A file in each folder that is locked for as long as a process of its service runs."""
_made: list[Path] = []
"""The folders that this process has made."""


def make_shared_folder(prefix: str, parent: str | None = None) -> Path:
    """Make a folder that counts as in use until this process and its children have ended.

    The folders with the same prefix that are not in use any more are removed: those of services that were killed; in a
    pod, a folder in memory outlasts its containers.

    Args:
        prefix: Begins the names of folders for the same purpose.
        parent: Where it is made; in memory if possible, and else among temporary files, if None.

    Raises:
        OSError: It cannot be made.
    """
    import fcntl  # not on Windows, where one process serves

    parent = parent or MEMORY_DIR or tempfile.gettempdir()
    remove_abandoned_folders(prefix, parent)
    folder = Path(tempfile.mkdtemp(prefix=prefix, dir=parent))
    begun = folder / "begun"
    # stays open: its end releases the lock
    descriptor = os.open(begun, os.O_RDONLY | os.O_CREAT, 0o600)
    fcntl.flock(descriptor, fcntl.LOCK_SH)
    # under this name it is never seen without the lock
    begun.rename(folder / _IN_USE)
    _made.append(folder)
    return folder


def remove_shared_folders() -> None:
    """Remove the folders that this process has made, when its children have ended."""
    while _made:
        shutil.rmtree(_made.pop(), ignore_errors=True)


def remove_abandoned_folders(prefix: str, parent: str) -> None:
    """Remove the folders in a parent that begin with a prefix and are not in use any more."""
    import fcntl

    for folder in Path(parent).glob(f"{prefix}*"):
        # the folder is in use, or belongs to another user
        with contextlib.suppress(OSError), (folder / _IN_USE).open() as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(folder, ignore_errors=True)
