"""The folder in which several processes share their metrics, as prometheus_client documents its multiprocess mode."""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path

from podwright.errors import ConfigurationError
from podwright_service.settings import Settings

VARIABLE = "PROMETHEUS_MULTIPROC_DIR"
MEMORY_DIR = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None  # noqa: S108 - mkdtemp makes the names below it
"""A folder in memory for files that are written all the time, if there is one."""
_PREFIX = "podwright-metrics-"


def share_metrics(settings: Settings) -> None:
    """Have several processes share their metrics in an empty folder; one process keeps them in memory.

    Call this before `prometheus_client` is imported, and so before a component is loaded, which may import it.

    Raises:
        ConfigurationError: The folder cannot be made or emptied.
    """
    path = os.environ.get(VARIABLE)
    if settings.workers == 1 and not path:
        return
    try:
        folder = Path(path or tempfile.mkdtemp(prefix=_PREFIX, dir=MEMORY_DIR))
        folder.mkdir(parents=True, exist_ok=True)
        for file in folder.glob("*.db"):
            file.unlink()
    except OSError as error:
        raise ConfigurationError(
            f"The folder for the metrics of several processes cannot be used: {error}.",
            suggestion=f"Set {VARIABLE} to an empty folder that this user can write.",
        ) from error
    os.environ[VARIABLE] = str(folder)


def remove_shared_metrics() -> None:
    """Remove the folder, unless the operator named it."""
    folder = Path(os.environ.get(VARIABLE, ""))
    if folder.name.startswith(_PREFIX):
        shutil.rmtree(folder, ignore_errors=True)
