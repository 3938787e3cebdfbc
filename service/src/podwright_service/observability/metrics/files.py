"""The files in which several processes share their metrics.

With `PROMETHEUS_MULTIPROC_DIR`, prometheus_client keeps the values of each process in files of its own, such as
`counter_PID.db`, and shows the sum over all files. Those of a process that has ended stay, because counters must not
decrease: https://github.com/prometheus/client_python/issues/568
"""

from __future__ import annotations

import contextlib
import logging
import os
import shutil
import sys
from collections import defaultdict
from collections.abc import Generator
from pathlib import Path

VARIABLE = "PROMETHEUS_MULTIPROC_DIR"
ROOM = 1 << 20
"""Bytes that have to be free for new values. Files are mapped into memory, so that a process that writes to them where
there is no room is ended by SIGBUS."""

_log = logging.getLogger("podwright.service")


def begin_process(folder: Path, spare: Path) -> None:
    """Prepare the files of a new process, before it counts anything.

    Args:
        folder: The folder of all processes.
        spare: A folder that nobody reads, for processes that begin while the other one is full.
    """
    if _prepare(folder):
        return
    _log.error(
        "The folder of metrics, %s, is full or cannot be used: the metrics of process %d are lost.",
        folder,
        os.getpid(),
    )
    os.environ[VARIABLE] = str(spare)
    _prepare(spare)


def _prepare(folder: Path) -> bool:
    """Take files over; returns whether new values have room as well."""
    try:
        _take_over_files(folder)
    except OSError:
        return False
    return has_room(folder)


def has_room(folder: str | Path) -> bool:
    """Whether new values have room in a folder; there is none in one that is gone."""
    try:
        return shutil.disk_usage(folder).free >= ROOM
    except OSError:
        return False


@contextlib.contextmanager
def reading(folder: Path) -> Generator[list[str]]:
    """The paths of all files that can be read, kept for as long as this context.

    So none is read twice or not at all. A file that a process makes at this moment, or was making when it was killed,
    is empty, which `MultiProcessCollector` takes for an error: https://github.com/prometheus/client_python/issues/1199
    """
    with _locked(folder, is_shared=True):
        yield [str(file) for file in folder.glob("*.db") if _has_size(file)]


def _has_size(file: Path) -> bool:
    try:
        return file.stat().st_size > 0
    except FileNotFoundError:  # the gauges of a process that has just ended
        return False


def _take_over_files(folder: Path) -> None:
    """Continue the files of a process that has ended, if there is one, so that their number is bounded.

    They are as many as processes have run at once.
    """
    files: dict[int, list[Path]] = defaultdict(list)
    own_pid = os.getpid()
    with _locked(folder, is_shared=False):
        for file in folder.glob("*_[0-9]*.db"):
            _, _, pid = file.stem.rpartition("_")
            files[int(pid)].append(file)
        # the system may use the number of a process that has ended again
        if own_pid in files:
            return
        for pid, left_behind in files.items():
            if _is_running(pid):
                continue
            for file in left_behind:
                # they tell of what goes on in a process, and it has ended
                if file.name.startswith("gauge_live"):
                    file.unlink()
                    continue
                kind = file.stem.removesuffix(str(pid))
                file.rename(folder / f"{kind}{own_pid}.db")
            return


def _is_running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


@contextlib.contextmanager
def _locked(folder: Path, *, is_shared: bool) -> Generator[None]:
    """Hold the lock of a folder, which the system releases when the process ends."""
    if sys.platform == "win32":  # where one process serves
        yield
        return
    import fcntl

    operation = fcntl.LOCK_EX
    if is_shared:
        operation = fcntl.LOCK_SH
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, operation)
        yield
    finally:
        os.close(descriptor)
