"""docs/first-hour.md, as a reader follows it: each command in its order, with `dev` in a terminal of its own."""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.docs.test_docs import blocks
from tests.helpers import (
    COMMAND,
    NO_PLUGINS,
    ROOT,
    environment,
    plain_http,
    until,
)

SERVING = re.compile(r"Serving on (http://[^,]+),")
PAGE = ROOT / "docs" / "first-hour.md"


def run(command: str, folder: Path) -> str:
    """Run the lines of a block, and return what they print."""
    path = f"{COMMAND.parent}:{os.environ['PATH']}"
    options = f"{NO_PLUGINS} -k 'not container'"
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", command],
        cwd=folder,
        env=environment(PATH=path, PYTEST_ADDOPTS=options),
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"
    return done.stdout


@contextlib.contextmanager
def developing(command: str, folder: Path) -> Iterator[str]:
    """Run `dev` as in a terminal, with Ctrl-C at the end, and yield its address."""
    words = [*shlex.split(command), "--port", "0"]
    server = subprocess.Popen(
        [str(COMMAND.with_name(words[0])), *words[1:]],
        cwd=folder,
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    assert server.stdout is not None
    try:
        lines = iter(server.stdout)
        found = next(filter(None, map(SERVING.search, lines)), None)
        assert found, "dev has ended"
        yield found[1]
    finally:
        os.killpg(server.pid, signal.SIGINT)
        output, _ = server.communicate(timeout=60)
    assert "Traceback" not in output, output


def ask(address: str, command: str) -> str:
    """The answer to the request of a `curl` command."""
    words = shlex.split(command)
    response = plain_http.post(
        f"{address}/run",
        content=words[words.index("-d") + 1],
        headers={"content-type": "application/json"},
    )
    assert response.status_code == 200, response.text
    return response.json()["output"]


@pytest.mark.servers
def test_the_first_hour(tmp_path: Path) -> None:
    """All commands of the page but those of the image, and a change that is served after it was saved."""
    create, dev, curl, change, sync, deploy = blocks(PAGE, "sh")
    answers = run(create, tmp_path)
    assert "Echo: What is 2 + 3?" in answers
    assert "2 passed" in answers
    with developing(dev.strip(), tmp_path) as address:
        before = ask(address, curl)
        assert "found: 1.0" in before
        run(change, tmp_path)
        until(lambda: ask(address, curl) != before)
        assert "found: 10.0" in ask(address, curl)
    assert "multiply added" in run(sync, tmp_path)
    build, render = deploy.strip().splitlines()
    assert build.startswith("podwright build")  # as in docs/image.md
    run(render, tmp_path)
    assert "def multiply" in (tmp_path / "fleet.yaml").read_text()
