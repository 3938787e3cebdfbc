"""The script of `helm test`, in the chart's files, against a service."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from typing import Any

import httpx
import pytest
from tests.helpers import ROOT, until
from tests.ports import free_port
from tests.service.background_support import ECHO, FLOW
from tests.service.support import Gate, Serve

from podwright import Agent, EchoModel
from podwright_service.testing import Metrics

SCRIPT = ROOT / "helm" / "podwright" / "files" / "run.py"
KEY = "a-key-of-the-chart"


def start(url: str, **variables: str) -> subprocess.Popen[str]:
    """Start the script with the variables that the chart sets."""
    environment = {
        "URL": f"{url}/run",
        "BODY": json.dumps({"input": "Say hello."}),
        "TIMEOUT": "60",
        **variables,
    }
    pipe = subprocess.PIPE
    return subprocess.Popen(
        [sys.executable, SCRIPT],
        stdout=pipe,
        stderr=pipe,
        text=True,
        env=environment,
    )


def run(url: str, **variables: str) -> tuple[int, str, str]:
    """The exit code and the output of the script, and its errors."""
    with start(url, **variables) as process:
        output, errors = process.communicate(timeout=90)
    return process.returncode, output, errors


def address(client: httpx.Client) -> str:
    return str(client.base_url).rstrip("/")


def test_a_component_that_answers(serve: Serve, tmp_path: Any) -> None:
    """The response is printed with the id of its run; the key is sent."""
    client = serve(ECHO, api_keys=(KEY,))
    file = tmp_path / "admin"
    file.write_text(KEY)
    code, output, _ = run(address(client), KEY_FILE=str(file))
    assert code == 0
    assert "completed run" in output
    assert "Say hello." in output


def test_a_component_that_waits_for_a_person(serve: Serve) -> None:
    """A run up to an approval shows that the component runs, and its question is printed."""
    code, output, _ = run(address(serve(FLOW)))
    assert code == 0
    assert "approval" in output
    assert "Publish" in output


def test_declared_inputs(serve: Serve) -> None:
    """The values by name of the chart are the inputs of the run."""
    agent = Agent(
        "helper",
        "Help with {topic}.",
        EchoModel(),
        inputs={"topic": {"type": "string"}},
    )
    url = address(serve(agent))
    code, _, errors = run(url)
    assert code == 1
    assert "topic" in errors
    code, _, errors = run(url, BODY=json.dumps({"inputs": {"topic": "rain"}}))
    assert (code, errors) == (0, "")


def test_a_component_at_capacity(serve: Serve) -> None:
    """A rejected request is sent again after the seconds that the service names."""
    gate = Gate()
    client = serve(gate.agent(), max_runs=1, max_waiting=0)
    occupant = threading.Thread(
        target=lambda: client.post("/run", json={"input": "x"})
    )
    occupant.start()
    until(gate.called.is_set)
    with start(address(client)) as process:
        try:
            until(
                lambda: Metrics(client.get("/metrics").text).get(
                    "podwright_runs_rejected_total", reason="full"
                )
            )
        finally:
            gate.opened.set()
            output, _ = process.communicate(timeout=90)
            occupant.join()
    assert process.returncode == 0
    assert "completed run" in output


@pytest.mark.parametrize("reached", [True, False])
def test_a_component_that_fails(serve: Serve, reached: bool) -> None:
    """A refusal is printed with its status, and a connection that fails with its address."""
    if reached:
        url = address(serve(ECHO, api_keys=(KEY,)))
        expected = "answered 401"
    else:
        url = f"http://127.0.0.1:{free_port()}"
        expected = "cannot be reached"
    code, _, errors = run(url, TIMEOUT="1")
    assert code == 1
    assert f"{url}/run {expected}" in errors
