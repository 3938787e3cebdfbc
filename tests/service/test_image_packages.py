"""The packages that the image of a component needs besides those of its base image and of its own lists."""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
from tests.helpers import ROOT
from tests.mcp_pod import searcher, tools_lock

from podwright.folders.folder import Folder
from podwright.mcp.lock import LOCK_FILE
from podwright_service.images import context as image_context
from podwright_service.images.context import stage, stage_mcp

IMAGES = Path(image_context.__file__).parent
READER = {
    "name": "reader",
    "instructions": "Read.",
    "config": {"model": "offline/echo"},
}
ENTRY = {"server": "tools", "tools": ["search"]}
LINE = {
    "name": "line",
    "steps": [{"type": "agent_step", "agent": "reader", "name": "read"}],
}


def pins(file: Path) -> dict[str, str]:
    """The releases in a lock."""
    return dict(
        re.findall(r"^([a-z0-9-]+)==(\S+)", file.read_text(), re.MULTILINE)
    )


@pytest.mark.parametrize(
    ("blueprints", "is_needed"),
    [
        ({"blueprint.json": READER}, False),
        ({"blueprint.json": {**READER, "mcp": [ENTRY]}}, True),
        ({"blueprint.json": searcher("line")}, True),
        ({"blueprint.json": LINE, "agents/reader.json": READER}, False),
        (
            {
                "blueprint.json": LINE,
                "agents/reader.json": {**READER, "mcp": [ENTRY]},
            },
            True,
        ),
        (
            {
                "blueprint.json": LINE,
                "../reader/blueprint.json": {**READER, "mcp": [ENTRY]},
            },
            True,
        ),
    ],
    ids=["none", "agent", "step", "plain part", "part", "agent beside"],
)
def test_the_package_for_mcp(
    tmp_path: Path, blueprints: dict[str, Any], is_needed: bool
) -> None:
    """The context has a locked `mcp` only if a blueprint in it names MCP tools; the lock of these is in it as well."""
    folder = tmp_path / "line"
    context = tmp_path / "context"
    context.mkdir()
    for name, blueprint in blueprints.items():
        file = folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps(blueprint))
        if file.stem == "blueprint":
            tools_lock().write_file(file.with_name(LOCK_FILE))
    files = stage(Folder(folder), context, ())
    assert stage_mcp(context) is is_needed
    assert (context / "wanted").exists() is is_needed
    assert LOCK_FILE in files
    if "../reader/blueprint.json" in blueprints:
        assert f"agents/reader/{LOCK_FILE}" in files
    if is_needed:
        wanted = context / "wanted" / "mcp"
        assert "mcp" in pins(wanted / "requirements.lock")
        text = (wanted / "requirements.txt").read_text()
        project = tomllib.loads((ROOT / "library/pyproject.toml").read_text())
        assert [text.strip()] == project["project"]["optional-dependencies"][
            "mcp"
        ]


def test_the_lock_of_mcp_agrees_with_the_images() -> None:
    """A release in the lock is the one in the flavour `full`, so that the two bases run the same packages."""
    locked = pins(IMAGES / "requirements-mcp.lock")
    full = pins(ROOT / "deploy" / "image" / "requirements-full.lock")
    assert locked.items() <= full.items()
    slim = pins(ROOT / "deploy" / "image" / "requirements-slim.lock")
    assert {"mcp", "sse-starlette"} <= locked.keys() - slim.keys()
