"""The first screen of the README: its blueprint, served by its command, answers its request."""

from __future__ import annotations

import json
import shlex
import signal
import subprocess
from pathlib import Path

from tests.docs.test_docs import address_in, blocks
from tests.helpers import ROOT, environment, plain_http

README = ROOT / "README.md"


def test_the_first_screen(tmp_path: Path) -> None:
    """The command serves the blueprint, and the request gets the answer beside it."""
    blueprint, answer = blocks(README, "json")
    serve, request = blocks(README, "sh")[:2]
    (tmp_path / "poet.json").write_text(blueprint)
    words = shlex.split(request)
    assert words[:3] == ["curl", "-s", "localhost:8000/run"]
    body = json.loads(words[words.index("-d") + 1])
    command = [*shlex.split(serve), "--port", "0"]
    with subprocess.Popen(
        command,
        cwd=tmp_path,
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as server:
        assert server.stdout is not None
        try:
            address = address_in(server.stdout)
            response = plain_http.post(f"{address}/run", json=body)
        finally:
            server.send_signal(signal.SIGTERM)
            server.stdout.read()
    assert server.returncode == 0
    assert response.text == answer.strip()
    assert len(blueprint.splitlines()) == 10
