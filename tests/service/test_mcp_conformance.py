"""The conformance suite of MCP, against `MCPServer` as a client and against `POST /mcp` as a server.

`mcp_conformance.yaml` has each scenario of each revision, with the checks that fail and why. A check that fails and is
not there fails the test, and so does one that is there and passes.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.helpers import environment
from tests.service.support import NodeProgram

FOLDER = Path(__file__).parent
EXPECTED: dict[str, Any] = yaml.safe_load(
    (FOLDER / "mcp_conformance.yaml").read_text()
)
"""By leg and revision: the scenarios, each with its failing checks by reason."""
EXTENSIONS = "extensions"
"""Stands for a revision in scenarios of extensions."""
TIMEOUT = 60_000
"""Milliseconds that a scenario may take on a busy machine."""


def scenarios(leg: str) -> list[Any]:
    """The scenarios of a leg with their revision and the checks that fail in them."""
    return [
        pytest.param(revision, name, checks or {}, id=f"{revision}-{name}")
        for revision, of_revision in EXPECTED[leg].items()
        for name, checks in of_revision.items()
    ]


def failed_checks(
    command: list[str], revision: str, scenario: str, folder: Path
) -> dict[str, str]:
    """Run a scenario, and return the checks that failed, with what the suite says of them."""
    command += ["--scenario", scenario, "--output-dir", str(folder)]
    if revision != EXTENSIONS:  # which belong to no revision
        command += ["--spec-version", revision]
    done = subprocess.run(
        command, capture_output=True, text=True, env=environment()
    )
    output = done.stdout + done.stderr
    assert "timed out" not in output, output
    found = list(folder.rglob("checks.json"))
    assert len(found) == 1, output
    checks = json.loads(found[0].read_text())
    assert checks, output
    return {
        check["id"]: f"{check.get('errorMessage') or check['description']}"
        for check in checks
        if check["status"] in {"FAILURE", "WARNING"}
    }


def assert_as_expected(
    failed: dict[str, str], expected: dict[str, list[str]]
) -> None:
    """Check that the failed checks are those that are expected to fail."""
    listed = [check for checks in expected.values() for check in checks]
    assert set(expected) <= set(EXPECTED["reasons"])
    assert failed.keys() == set(listed), failed


@pytest.mark.parametrize("leg", ["client"])
def test_every_scenario_is_listed(node_program: NodeProgram, leg: str) -> None:
    """The suite says itself which scenarios a revision has, those that are not scored too."""
    suite = node_program.package("@modelcontextprotocol/conformance")
    for revision in EXPECTED[leg].keys() - {EXTENSIONS}:
        text = (suite / "requirements" / f"{revision}.yaml").read_text()
        required = yaml.safe_load(text)
        names = set(required[leg])
        extensions: set[str] = set()
        for entry in required["not_scored"]:
            if entry["leg"] == leg:
                is_extension = entry["reason"] == "extension"
                (extensions if is_extension else names).add(entry["scenario"])
        assert EXPECTED[leg][revision].keys() == names
        assert EXPECTED[leg][EXTENSIONS].keys() == extensions


@pytest.mark.parametrize(
    ("revision", "scenario", "expected"), scenarios("client")
)
def test_the_client(
    node_program: NodeProgram,
    tmp_path: Path,
    revision: str,
    scenario: str,
    expected: dict[str, list[str]],
) -> None:
    client = f"{sys.executable} {FOLDER / 'mcp_conformance_client.py'}"
    options = ["--command", client, "--timeout", str(TIMEOUT)]
    failed = failed_checks(
        [*node_program("conformance"), "client", *options],
        revision,
        scenario,
        tmp_path,
    )
    assert_as_expected(failed, expected)
