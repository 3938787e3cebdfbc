"""The folders in which several processes share their metrics, as prometheus_client documents its multiprocess mode."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from pathlib import Path

from podwright.errors import ConfigurationError
from podwright_service.settings import Settings

MEMORY_DIR = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None  # noqa: S108 - mkdtemp makes the names below it
"""A folder in memory for files that are written all the time, if there is one."""
_PREFIX = "podwright-worker-metrics-"
_IN_USE = "in-use"
"""A file in each folder that is locked for as long as a process of its service runs."""


def share_metrics(settings: Settings) -> None:
    """Have several processes share their metrics in an empty folder; one process keeps them in memory.

    Call this before `prometheus_client` is imported, and so before a component is loaded, which may import it.

    Raises:
        ConfigurationError: The folder cannot be made or emptied.
    """
    # slow to import, and needed by several processes only
    from podwright_service.observability.metric_files import VARIABLE

    path = os.environ.get(VARIABLE)
    if settings.workers == 1 and not path:
        return
    try:
        folder = Path(path or _make_folder())
        folder.mkdir(parents=True, exist_ok=True)
        for file in folder.glob("*.db"):
            file.unlink()
    except OSError as error:
        raise ConfigurationError(
            f"The folder for the metrics of several processes cannot be used: {error}.",
            suggestion=f"Set {VARIABLE} to an empty folder that this user can write.",
        ) from error
    os.environ[VARIABLE] = str(folder)


def make_spare_folder(folder: Path) -> Path:
    """A folder for the metrics of processes for which another one has no room; the other one, if none can be made."""
    with contextlib.suppress(OSError):
        return _make_held_folder(tempfile.gettempdir())
    return folder


def remove_folders(*folders: Path) -> None:
    """Remove folders, except that which the operator named."""
    for folder in folders:
        if folder.name.startswith(_PREFIX):
            shutil.rmtree(folder, ignore_errors=True)


def _make_folder() -> Path:
    from podwright_service.observability.metric_files import has_room

    if MEMORY_DIR is not None:
        _remove_abandoned_folders(MEMORY_DIR)
        if has_room(MEMORY_DIR):
            return _make_held_folder(MEMORY_DIR)
    return _make_held_folder(tempfile.gettempdir())


def _make_held_folder(parent: str) -> Path:
    """A new folder that counts as in use until this process and its children have ended."""
    import fcntl  # not on Windows, where one process serves

    _remove_abandoned_folders(parent)
    folder = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=parent))
    begun = folder / "begun"
    # stays open: its end releases the lock
    descriptor = os.open(begun, os.O_RDONLY | os.O_CREAT, 0o600)
    fcntl.flock(descriptor, fcntl.LOCK_SH)
    # under this name it is never seen without the lock
    begun.rename(folder / _IN_USE)
    return folder


def _remove_abandoned_folders(parent: str) -> None:
    """Remove the folders of services that were killed; in a pod, that in memory outlasts its containers."""
    import fcntl

    for folder in Path(parent).glob(f"{_PREFIX}*"):
        # the folder is in use, or belongs to another user
        with contextlib.suppress(OSError), (folder / _IN_USE).open() as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(folder, ignore_errors=True)
