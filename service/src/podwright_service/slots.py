"""Metrics that several processes count together, in files: prometheus_client's way, with files that do not pile up."""

from __future__ import annotations

import contextlib
import fcntl
import itertools
import os
import shutil
import tempfile
from collections.abc import Generator, Iterable
from pathlib import Path
from typing import TextIO

from prometheus_client import multiprocess, values

from podwright.errors import ConfigurationError

MEMORY = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None  # noqa: S108 - names below it are made by mkdtemp
"""A folder in memory for what is written all the time, where there is one."""

_VARIABLE = "PROMETHEUS_MULTIPROC_DIR"

_ROOM = 2 * 1024 * 1024
"""Bytes that must be free to begin with; each process has some files of 64 KiB."""

_slot = "master"


def take(slot: str) -> None:
    """Count as this one from now on, as whoever had it before did."""
    global _slot  # noqa: PLW0603 - there is one for the process
    _slot = slot


def free(taken: Iterable[str]) -> str:
    """The first slot that is not taken."""
    held = set(taken)
    return next(slot for number in itertools.count() if (slot := str(number)) not in held)


def leave(slot: str) -> None:
    """Forget what somebody had under way who is gone; what it had counted remains."""
    multiprocess.mark_process_dead(slot)  # pyright: ignore[reportUnknownMemberType] - has no types


@contextlib.contextmanager
def shared_metrics() -> Generator[None]:
    """Let the metrics made from now on count over all processes; they begin at nothing, also in a folder used before.

    A process' files are named after its slot, and the process that replaces it goes on in them. So nothing is lost
    with a process, and there are never more files than processes at once.

    Raises:
        ConfigurationError: The folder cannot be made or emptied, or has no room.
    """
    with contextlib.ExitStack() as stack:
        try:
            if not os.environ.get(_VARIABLE):
                os.environ[_VARIABLE] = str(stack.enter_context(_folder()))
                stack.callback(os.environ.pop, _VARIABLE)
            _prepare(Path(os.environ[_VARIABLE]))
        except OSError as error:
            where = os.environ.get(_VARIABLE) or MEMORY or tempfile.gettempdir()
            raise ConfigurationError(
                f"The metrics of several processes cannot be kept in '{where}': {error.strerror}.",
                suggestion=f"Set {_VARIABLE} to a folder of their own, which can be written and has room.",
            ) from error
        # the class is chosen when the package is imported, which the component may have done long ago
        values.ValueClass = values.MultiProcessValue(lambda: _slot)  # pyright: ignore[reportUnknownMemberType]
        yield


def _prepare(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for left in folder.glob("*.db"):
        left.unlink()
    with tempfile.TemporaryFile(dir=folder) as probe:  # the files are mapped: writing without room would kill
        os.posix_fallocate(probe.fileno(), 0, _ROOM)


@contextlib.contextmanager
def _folder() -> Generator[Path]:
    """A fresh folder, removed in the end, or, after a process that was killed, by the next one that starts."""
    home = Path(MEMORY or tempfile.gettempdir())
    for lock in home.glob("podwright-metrics-*/lock"):
        with contextlib.suppress(OSError), lock.open() as held:
            _hold(held)
            shutil.rmtree(lock.parent)
    folder, owner = Path(tempfile.mkdtemp(prefix="podwright-metrics-", dir=home)), os.getpid()
    with (folder / "new").open("w") as held:  # workers hold it too, for as long as one lives
        _hold(held)
        (folder / "new").rename(folder / "lock")
        try:
            yield folder
        finally:
            if os.getpid() == owner:
                shutil.rmtree(folder, ignore_errors=True)


def _hold(file: TextIO) -> None:
    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
