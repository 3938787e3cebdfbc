"""The conformance suite of MCP, against `MCPServer` as a client and against `POST /mcp` as a server.

The service of `mcp_conformance_service.py` has the tools that its scenarios call. `mcp_conformance.yaml` has each
scenario of each revision, with the checks that fail and why. A check that fails and is not there fails the test, and so
does one that is there and passes.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.helpers import environment
from tests.service.mcp_support import ToolServer
from tests.service.support import NodeProgram

FOLDER = Path(__file__).parent
SERVICE = FOLDER / "mcp_conformance_service.py"
EXPECTED: dict[str, Any] = yaml.safe_load(
    (FOLDER / "mcp_conformance.yaml").read_text()
)
"""By leg and revision: the scenarios, each with its failing checks by reason."""
EXTENSIONS = "extensions"
"""Stands for a revision in scenarios of extensions."""
TIMEOUT = 60_000
"""Milliseconds that a scenario may take on a busy machine."""
_TIME = re.compile(r"-\d{4}-\d\d-\d\dT[\d-]+Z$")
"""What the suite adds to the name of a scenario for the name of its folder."""


def scenarios() -> list[Any]:
    """The scenarios of clients with their revision and the checks that fail in them."""
    return [
        pytest.param(revision, name, checks or {}, id=f"{revision}-{name}")
        for revision, of_revision in EXPECTED["client"].items()
        for name, checks in of_revision.items()
    ]


def failed_checks(
    command: list[str], folder: Path
) -> dict[str, dict[str, str]]:
    """Run the suite, and return by scenario the checks that failed, with what the suite says of them."""
    command += ["--timeout", str(TIMEOUT), "--output-dir", str(folder)]
    done = subprocess.run(
        command, capture_output=True, text=True, env=environment()
    )
    output = done.stdout + done.stderr
    assert "timed out" not in output, output
    failed: dict[str, dict[str, str]] = {}
    for path in folder.rglob("checks.json"):
        checks = json.loads(path.read_text())
        assert checks, output
        name = path.parent.relative_to(folder).as_posix()
        failed[_TIME.sub("", name).removeprefix("server-")] = {
            check["id"]: f"{check.get('errorMessage') or check['description']}"
            for check in checks
            if check["status"] in {"FAILURE", "WARNING"}
        }
    assert failed, output
    return failed


def expected_checks(by_reason: dict[str, list[str]] | None) -> set[str]:
    """The checks that are expected to fail in a scenario."""
    by_reason = by_reason or {}
    assert by_reason.keys() <= EXPECTED["reasons"].keys()
    return {check for checks in by_reason.values() for check in checks}


def test_every_scenario_of_clients_is_listed(
    node_program: NodeProgram,
) -> None:
    """The suite says itself which scenarios a revision has, those that are not scored too."""
    suite = node_program.package("@modelcontextprotocol/conformance")
    listed = EXPECTED["client"]
    for revision in listed.keys() - {EXTENSIONS}:
        text = (suite / "requirements" / f"{revision}.yaml").read_text()
        required = yaml.safe_load(text)
        names = set(required["client"])
        extensions: set[str] = set()
        for entry in required["not_scored"]:
            if entry["leg"] == "client":
                is_extension = entry["reason"] == "extension"
                (extensions if is_extension else names).add(entry["scenario"])
        assert listed[revision].keys() == names
        assert listed[EXTENSIONS].keys() == extensions


@pytest.mark.parametrize(("revision", "scenario", "expected"), scenarios())
def test_the_client(
    node_program: NodeProgram,
    tmp_path: Path,
    revision: str,
    scenario: str,
    expected: dict[str, list[str]],
) -> None:
    client = f"{sys.executable} {FOLDER / 'mcp_conformance_client.py'}"
    command = [*node_program("conformance"), "client", "--command", client]
    command += ["--scenario", scenario]
    if revision != EXTENSIONS:  # which belong to no revision
        command += ["--spec-version", revision]
    (failed,) = failed_checks(command, tmp_path).values()
    assert failed.keys() == expected_checks(expected), failed


@pytest.fixture
def url(tmp_path: Path) -> Iterator[str]:
    """The service of the scenarios."""
    database = str(tmp_path / "runs.db")
    service = ToolServer([sys.executable, str(SERVICE), database])
    try:
        yield service.start().url
    finally:
        service.kill()


@pytest.mark.parametrize("revision", list(EXPECTED["server"]))
def test_the_server(
    node_program: NodeProgram, url: str, tmp_path: Path, revision: str
) -> None:
    """All scenarios of a revision, those that are not scored and those of extensions too."""
    command = [*node_program("conformance"), "server", "--url", url]
    command += ["--requirements", revision]
    failed = failed_checks(command, tmp_path / "results")
    listed = EXPECTED["server"][revision]
    assert failed.keys() == listed.keys()
    unexpected = {
        scenario: checks
        for scenario, checks in failed.items()
        if checks.keys() != expected_checks(listed[scenario])
    }
    assert not unexpected
