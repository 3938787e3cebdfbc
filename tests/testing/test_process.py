"""A component process that does not become ready is reported in time."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import httpx
import pytest
from tests.helpers import plain_http, until

from podwright.client import RunOptions
from podwright.events import RunFinished
from podwright_service.testing import (
    ComponentProcess,
    ModelStub,
    SpanCollector,
    StartError,
    ToolCall,
)

FOLDER = """
import os
from pathlib import Path


def add_numbers(numbers: list[float]) -> float:
    \"""Add numbers.\"""
    place = Path(os.environ["NOTES"])
    place.write_text(os.environ["OTHER"])
    return sum(numbers)
"""


@pytest.mark.parametrize("place", ["/notes", "/notes/", "/notes/deep"])
def test_a_path_of_a_volume_is_one_of_this_machine(
    calculator: Path, tmp_path: Path, place: str
) -> None:
    """In the variables of a process, the path of a volume stands for the path on this machine; other paths stay."""
    folder = tmp_path / "calculator"
    shutil.copytree(calculator, folder)
    (folder / "tools.py").write_text(FOLDER)
    target = tmp_path / "target"
    (target / "deep").mkdir(parents=True)
    variables = {
        "NOTES": f"{place.rstrip('/')}/a.txt",
        "OTHER": "/var/notes:/notes2:/notes.d:url:////notes/x:/more",
    }
    volumes = [(target, "/notes/", "rw"), (tmp_path, "/more")]
    with (
        ModelStub(
            ToolCall.of("add_numbers", numbers=[2, 3]),
            "5",
            name="openai/gpt-4o-mini",
        ) as stub,
        ComponentProcess(
            folder, model=stub, env=variables, volumes=volumes
        ) as process,
    ):
        assert process.run("?") == "5"
    written = target / place.removeprefix("/notes").strip("/") / "a.txt"
    assert written.read_text() == (
        f"/var/notes:/notes2:/notes.d:url:///{target}/x:{tmp_path}"
    )


def test_a_process_that_is_never_ready(
    tmp_path: Path,
) -> None:
    """A service that listens and is not ready is reported after `startup` seconds, with its log."""
    program = tmp_path / "python"
    with SpanCollector(status=503) as not_ready:
        program.write_text(
            f"#!/bin/sh\necho running on {not_ready.url}; exec sleep 600\n"
        )
        program.chmod(0o755)
        with pytest.raises(StartError, match="running on"):
            ComponentProcess("calculator", startup=2, python=program).start()
        assert not_ready.requests


LEFT = """
import signal, sys
from podwright_service.testing import ComponentProcess

process = ComponentProcess(sys.argv[1], model="offline/echo").start()
print(process.url, flush=True)
signal.pause()
"""


def test_a_killed_test_leaves_no_process(calculator: Path) -> None:
    """If the process of a test is killed, the component that it serves ends too."""
    with subprocess.Popen(
        [sys.executable, "-c", LEFT, str(calculator)],
        stdout=subprocess.PIPE,
        text=True,
    ) as test:
        assert test.stdout is not None
        url = test.stdout.readline().strip()
        assert plain_http.get(f"{url}/ready").status_code == 200
        test.kill()

    def is_refused() -> bool:
        try:
            plain_http.get(f"{url}/health")
        except httpx.TransportError:
            return True
        return False

    until(is_refused)


TELL = """
from podwright import RunContext


def tell(context: RunContext) -> dict:
    return {"user": context.user, "session": context.session, **context.metadata}
"""


def test_a_run_for_a_user(tmp_path: Path) -> None:
    """`run` and `stream` say for whom the run is, as the client does."""
    step = {"type": "function_step", "name": "tell", "function": "tell"}
    blueprint = {
        "type": "Workflow",
        "version": "1",
        "name": "flow",
        "steps": [{**step, "output": "told"}],
    }
    (tmp_path / "blueprint.json").write_text(json.dumps(blueprint))
    (tmp_path / "functions.py").write_text(TELL)
    attributes = RunOptions(
        user="ann", session="s1", metadata={"tenant": "acme"}
    )
    told = {"user": "ann", "session": "s1", "tenant": "acme"}
    with ComponentProcess(tmp_path, model="offline/echo") as process:
        result = process.run("x", trace=True, **attributes)
        assert result.data["told"] == told
        *_, last = process.stream("x", **attributes)
    assert isinstance(last, RunFinished)
    assert json.loads(last.value["told"]) == told
