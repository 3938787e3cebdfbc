"""What the pages say of the files of a folder, done in a folder."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.docs.test_docs import blocks
from tests.forked import complete
from tests.helpers import ROOT, environment, write_files

from podwright import blueprints, load
from podwright.testing import ScriptedModel

FOLDERS = ROOT / "docs" / "folders.md"
WORKFLOWS = ROOT / "docs" / "workflows.md"


def test_types_write_schemas(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """The type of the page writes the schema that its blueprint names, with the lines that the page shows."""
    types, function = blocks(FOLDERS, "python")
    [blueprint] = [
        block
        for block in blocks(FOLDERS, "json")
        if '"title": "Ticket"' in block
    ]
    [shown] = [
        block
        for block in blocks(FOLDERS, "text")
        if block.startswith("$ podwright sync intake")
    ]
    flow = {
        "name": "desk",
        "steps": [
            {"agent": "intake"},
            {"function": "route", "arguments": {"ticket": "{intake_output}"}},
        ],
    }
    files = {
        "intake/blueprint.json": json.loads(blueprint),
        "intake/schemas.py": types,
        "desk/blueprint.json": flow,
        "desk/functions.py": f"from ticket_types import Ticket\n\n{function}",
        "desk/ticket_types.py": types,
    }
    write_files(tmp_path, files)
    streams = tmp_path_factory.mktemp("streams")
    sync = ("sync", "intake")
    done = complete(sync, tmp_path, environment(), streams)
    assert (done.returncode, done.stderr) == (0, "")
    command, *lines = shown.splitlines()
    assert command == "$ podwright sync intake"
    assert done.stdout.splitlines() == lines
    done = complete((*sync, "--check"), tmp_path, environment(), streams)
    assert (done.returncode, done.stdout) == (0, "Up to date.\n")
    model = ScriptedModel('{"category": "refund"}')
    result = load(tmp_path / "desk", model=model).run("My money, please.")
    assert result["route_output"] == "refund team"


def test_a_workflow_without_types() -> None:
    """The short workflow of the page is valid, and means what the page says."""
    [short] = [
        json.loads(block)
        for block in blocks(WORKFLOWS, "json")
        if '"name": "letters"' in block
    ]
    assert blueprints.problems(short) == []
    [write, loop] = blueprints.check(short)["steps"]
    assert write == {
        "type": "agent_step",
        "name": "writer",
        "agent": "writer",
    }
    assert (loop["type"], loop["name"]) == ("loop_step", "loop")
