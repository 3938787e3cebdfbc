"""The service of an earlier commit, installed apart, so that what many small changes cost is seen."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

ROOT = Path(__file__).parents[2]
COMMIT = "b99f51b586608ba36fd6e5685487d729f2ccaf2b"
"""The commit of the last release, or a later one that was faster."""


def reference_checkout() -> Path:
    """Return the folder of that commit, with its own locked dependencies in .venv; the first time this takes minutes.

    Its `tests/bench/apps.py` starts its service with the arguments that those of this checkout have.
    """
    folder = ROOT / ".cache" / "bench" / COMMIT
    if not (folder / ".venv" / ".installed").exists():
        shutil.rmtree(folder, ignore_errors=True)
        clone = ["git", "clone", "--quiet", "--no-checkout", ROOT, folder]
        subprocess.run(clone, check=True)
        subprocess.run(
            ["git", "checkout", "--quiet", COMMIT], cwd=folder, check=True
        )
        subprocess.run(["make", "--silent", "install"], cwd=folder, check=True)
    return folder
