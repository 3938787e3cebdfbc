"""The page on testing is true: its tests pass, in the order of the page."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

from tests.image_support import ROOT


def test_the_tests_of_the_page(tmp_path: Path, image: str) -> None:
    """What the page on testing shows runs as it stands there, in processes and in containers, without a warning."""
    page = (ROOT / "docs" / "testing.md").read_text()
    code = re.findall(r"^```python\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    (tmp_path / "test_page.py").write_text("\n".join(code))
    (tmp_path / "pytest.ini").write_text(
        f"[pytest]\npodwright_image = {image}\nasyncio_default_fixture_loop_scope = function\nfilterwarnings = error\n"
    )
    commands = ["podwright new calculator", *re.findall(r"^podwright .*", page, re.MULTILINE)]
    kept = {key: value for key, value in os.environ.items() if not key.startswith(("PODWRIGHT_", "PYTEST_"))}
    environment = {**kept, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    for command in [*commands, "pytest -q -p no:cacheprovider test_page.py"]:
        done = subprocess.run(
            shlex.split(command), cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=900
        )
        assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"
    tests = len(re.findall(r"^def test_", "\n".join(code), re.MULTILINE)) + 1  # one of them runs twice
    assert f"{tests} passed" in done.stdout
