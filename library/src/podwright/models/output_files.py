"""Files that are written."""

from __future__ import annotations

import os
from pathlib import Path

from podwright.data.text import truncate
from podwright.errors import ConfigurationError


def check_writable(path: str | os.PathLike[str]) -> None:
    """Check that a file can be written, before the work for it is done.

    Raises:
        ConfigurationError: It cannot.
    """
    file = Path(path)
    changed = file
    if not file.exists():
        changed = file.parent
    if file.is_dir() or not os.access(changed, os.W_OK):
        raise ConfigurationError(
            f"Cannot write '{truncate(str(path), 200)}'.",
            suggestion="Name a writable file.",
        )
