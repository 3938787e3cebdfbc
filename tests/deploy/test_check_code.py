"""The check of library and service finds what it forbids, and nothing else."""

import subprocess
import sys
from pathlib import Path

import pytest
from tests.helpers import ROOT

CODE = "import aiohttp\nimport sys\n"


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("a, b = 1, 2", "assigns several values in one line"),
        ("a, b = b, a", ""),
        ("a, b = aiohttp.parts()", ""),
        ("aiohttp.hdrs = 1", "assigns aiohttp.hdrs"),
        ("from aiohttp import _websocket", "imports aiohttp._websocket"),
        ("from podwright import _sync", ""),
        ("sys.modules['x'] = 1", "assigns sys.modules"),
        ("x = aiohttp._x  # noqa: SLF" + "001", "suppresses SLF" + "001"),
    ],
)
def test_findings(tmp_path: Path, line: str, found: str) -> None:
    """Each forbidden line is named with its place, and the exit code is 1."""
    (tmp_path / "deploy").mkdir()
    (tmp_path / "library/src").mkdir(parents=True)
    script = tmp_path / "deploy/check_code.py"
    script.write_text((ROOT / "deploy/check_code.py").read_text())
    (tmp_path / "library/src/module.py").write_text(f"{CODE}{line}\n")
    done = subprocess.run(
        [sys.executable, script], capture_output=True, text=True
    )
    expected = f"library/src/module.py:3: {found}\n" if found else ""
    assert (done.returncode, done.stdout) == (int(bool(found)), expected)
