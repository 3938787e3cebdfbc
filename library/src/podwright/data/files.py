"""Files that are replaced as a whole."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path


def replace_file(path: Path, text: str) -> None:
    """Write a file that readers see whole at any time: with the text before, or with this one.

    Args:
        path: The file. It keeps its permissions; a new one can be read by everyone. Of a link, its target is replaced.
        text: What is to be in it.

    Raises:
        OSError: It cannot be written; it is as it was.
    """
    path = path.resolve()
    handle, temporary = tempfile.mkstemp(
        dir=path.parent, prefix=f".{path.name}-"
    )
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
        new = Path(temporary)
        # temporary files are for their user only
        mode = path.stat().st_mode if path.exists() else 0o644
        new.chmod(mode & 0o777)
        new.replace(path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
