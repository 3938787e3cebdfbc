"""The tests in docs/testing.md pass."""

from __future__ import annotations

import re
import shlex
import subprocess
from pathlib import Path

from tests.helpers import ROOT, environment


def test_the_tests_of_the_page(tmp_path: Path, slim: str) -> None:
    """The page's commands and tests work as they are, in processes and in containers, without a warning."""
    page = (ROOT / "docs" / "testing.md").read_text()
    code = "\n".join(
        re.findall(r"^```python\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    )
    (tmp_path / "test_page.py").write_text(code)
    (tmp_path / "pytest.ini").write_text(
        f"[pytest]\npodwright_image = {slim}\nasyncio_default_fixture_loop_scope = function\nfilterwarnings = error\n"
    )
    commands = [
        "podwright new calculator",
        *re.findall(r"^podwright .*", page, re.MULTILINE),
    ]
    output = ""
    for command in [*commands, "pytest -q -p no:cacheprovider test_page.py"]:
        done = subprocess.run(
            shlex.split(command),
            cwd=tmp_path,
            env=environment(),
            capture_output=True,
            text=True,
        )
        output = done.stdout + done.stderr
        assert done.returncode == 0, f"{command}\n{output}"
    tests = len(re.findall(r"^def test_", code, re.MULTILINE))
    # which run in a process and in a container
    tests += len(
        re.findall(r"^def test_.*\(serve_component\b", code, re.MULTILINE)
    )
    assert f"{tests} passed" in output
