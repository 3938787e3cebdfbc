"""The page of the image is true: its commands work, in its order."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import uuid
from pathlib import Path

from tests.image.conftest import ROOT
from tests.image.containers import Engine


def test_commands(engine: Engine, direct: str, tag: str, tmp_path: Path) -> None:
    """Every `podwright`, `docker` and `curl` command of the page works, on images and containers of other names."""
    (tmp_path / "deploy").symlink_to(ROOT / "deploy")
    (tmp_path / "docker").symlink_to(engine.client)
    page = (ROOT / "docs" / "image.md").read_text()
    blocks = re.findall(r"^```sh\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    lines = [line for block in blocks for line in block.replace("\\\n", " ").splitlines() if line.strip()]
    run = [line for line in lines if not line.startswith("make ")]
    assert {" ".join(line.split()[:2]) for line in run} == {
        "podwright new", "podwright build", "podwright inspect",
        "docker run", "docker stop", "docker inspect", "docker rm", "curl -s",
    }  # fmt: skip
    names = {name: f"podwright-test-{uuid.uuid4().hex[:12]}" for name in ("writer", "calculator")}
    kept = {key: value for key, value in os.environ.items() if not key.startswith("PODWRIGHT_")}
    path = f"{tmp_path}:{Path(sys.executable).parent}:{os.environ['PATH']}"
    try:
        for line in run:
            command = line.replace("team/calculator:1.0", tag).replace("podwright:direct", direct)
            command = command.replace("127.0.0.1:8000:", "127.0.0.1::").replace("build ", f"build --base {direct} ")
            for name, other in names.items():
                command = re.sub(rf"(--name|stop|rm|ExitCode}}}}') {name}(?= |$)", rf"\1 {other}", command)
            if line.startswith("curl"):
                port = engine("port", names["calculator"], "8000").strip()
                command = command.replace("localhost:8000", port) + " --retry 20 --retry-delay 1 --retry-all-errors"
            done = subprocess.run(
                ["bash", "-c", command], cwd=tmp_path, env={**kept, "PATH": path}, capture_output=True, text=True
            )
            assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"
            assert done.stdout, command
            assert "ExitCode" not in line or done.stdout == "0\n"
    finally:
        engine.says("rm", "--force", *names.values())
