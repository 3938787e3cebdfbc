"""The folders in which several processes share their metrics, as prometheus_client documents its multiprocess mode."""

from __future__ import annotations

import contextlib
import os
import tempfile
from pathlib import Path

from podwright.errors import ConfigurationError
from podwright_service.settings import Settings
from podwright_service.shared_folders import (
    MEMORY_DIR,
    make_shared_folder,
    remove_abandoned_folders,
)

_PREFIX = "podwright-worker-metrics-"


def share_metrics(settings: Settings) -> None:
    """Have several processes share their metrics in an empty folder; one process keeps them in memory.

    Call this before `prometheus_client` is imported, and so before a component is loaded, which may import it.

    Raises:
        ConfigurationError: The folder cannot be made or emptied.
    """
    # slow to import, and needed by several processes only
    from podwright_service.observability.metrics.files import VARIABLE

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
        return make_shared_folder(_PREFIX, tempfile.gettempdir())
    return folder


def _make_folder() -> Path:
    from podwright_service.observability.metrics.files import has_room

    if MEMORY_DIR is not None:
        remove_abandoned_folders(_PREFIX, MEMORY_DIR)
        if has_room(MEMORY_DIR):
            return make_shared_folder(_PREFIX)
    return make_shared_folder(_PREFIX, tempfile.gettempdir())
