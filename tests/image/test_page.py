"""The commands in docs/image.md work."""

from __future__ import annotations

import os
import re
import subprocess
import uuid
from pathlib import Path

from tests.helpers import COMMAND, ROOT, environment
from tests.image_support import Docker


def test_commands(docker: Docker, slim: str, tag: str, tmp_path: Path) -> None:
    """Each `podwright`, `docker` and `curl` command works in the order of the page, with other names."""
    (tmp_path / "deploy").symlink_to(ROOT / "deploy")
    (tmp_path / "docker").symlink_to(docker.client)
    page = (ROOT / "docs" / "image.md").read_text()
    blocks = re.findall(r"^```sh\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    lines = [
        line
        for block in blocks
        for line in block.replace("\\\n", " ").splitlines()
        if line.strip()
    ]
    commands = [line for line in lines if not line.startswith("make ")]
    assert {" ".join(line.split()[:2]) for line in commands} == {
        "podwright new", "podwright build", "podwright inspect",
        "docker run", "docker stop", "docker inspect", "docker rm", "curl -s",
    }  # fmt: skip
    names = {
        name: f"podwright-test-{uuid.uuid4().hex[:12]}"
        for name in ("writer", "calculator")
    }
    path = f"{tmp_path}:{COMMAND.parent}:{os.environ['PATH']}"
    try:
        for line in commands:
            command = line.replace("team/calculator:1.0", tag).replace(
                "podwright:slim", slim
            )
            command = command.replace("127.0.0.1:8000:", "127.0.0.1::").replace(
                "build ", f"build --base {slim} "
            )
            for name, replacement in names.items():
                command = re.sub(
                    rf"(--name|stop|rm|ExitCode}}}}') {name}(?= |$)",
                    rf"\1 {replacement}",
                    command,
                )
            if line.startswith("curl"):
                port = docker("port", names["calculator"], "8000").strip()
                command = (
                    command.replace("localhost:8000", port)
                    + " --retry 20 --retry-delay 1 --retry-all-errors"
                )
            done = subprocess.run(
                ["bash", "-c", command],
                cwd=tmp_path,
                env=environment(PATH=path),
                capture_output=True,
                text=True,
            )
            assert done.returncode == 0, (
                f"{command}\n{done.stdout}{done.stderr}"
            )
            assert done.stdout, command
            assert "ExitCode" not in line or done.stdout == "0\n"
    finally:
        docker.run("rm", "--force", *names.values())
