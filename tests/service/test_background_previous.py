"""Background runs that began with an earlier blueprint: performed with it, shown, and moved to the present one."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.service.background_support import begin, wait
from tests.service.support import Served

import podwright
from podwright.blueprints import digest

TOOLS = """
def look_up(order):
    "Look an order up."
    return f"order {order}"
"""
BLUEPRINT: dict[str, Any] = {
    "type": "Workflow",
    "name": "desk",
    "steps": [
        {"type": "function_step", "name": "find", "function": "look_up", "arguments": {"order": "{input}"}},
        {"type": "approval_step", "name": "ask", "message": "Answer about {look_up_output}?"},
        {"type": "function_step", "name": "answer", "function": "look_up", "arguments": {"order": "first"}},
    ],
}  # fmt: skip
"""A workflow that waits for approval between its two function calls."""


def changed(answer: str, question: str = "Answer?") -> dict[str, Any]:
    """The blueprint of a later release: with another question, and another last call."""
    blueprint = json.loads(json.dumps(BLUEPRINT))
    blueprint["steps"][1]["message"] = question
    blueprint["steps"][2]["arguments"]["order"] = answer
    return blueprint


class Releases:
    """The releases of one component folder on one database, of which one runs at a time."""

    def __init__(self, served: Served, root: Path, database: str) -> None:
        self._served = served
        self._root = root
        self._database = database
        self._count = 0
        self._running = contextlib.ExitStack()

    def upgrade(
        self,
        blueprint: dict[str, Any],
        *previous: dict[str, Any],
        tools: str = TOOLS,
        **settings: Any,
    ) -> httpx.Client:
        """Stop the service, and serve a blueprint with earlier ones; each release has a folder, as in an image."""
        self.stop()
        self._count += 1
        folder = self._root / str(self._count) / "desk"
        folder.mkdir(parents=True)
        (folder / "blueprint.json").write_text(json.dumps(blueprint))
        (folder / "tools.py").write_text(tools)
        earlier = folder.parent / "previous"
        earlier.mkdir()
        for each in previous:
            name = digest(each).removeprefix("sha256:")[:12]
            (earlier / f"{name}.json").write_text(json.dumps(each))
        options = {"previous": str(earlier), **settings}
        service = self._served(
            podwright.load(folder),
            runs_database=self._database,
            component=str(folder),
            **options,
        )
        return self._running.enter_context(service)

    def stop(self) -> None:
        """Stop the service."""
        self._running.close()


@pytest.fixture
def releases(
    served: Served, tmp_path: Path, database: str
) -> Iterator[Releases]:
    """The releases of a component folder on a database."""
    with contextlib.ExitStack() as stack:
        releases = Releases(served, tmp_path, database)
        stack.callback(releases.stop)
        yield releases


def test_a_wait_lasts_through_two_upgrades(releases: Releases) -> None:
    """A run that waits is approved after two upgrades, and ends with the blueprint that it began with."""
    url = begin(releases.upgrade(BLUEPRINT), "7")
    second = changed("second")
    wait(releases.upgrade(second, BLUEPRINT), url, "waiting_for_approval")
    third = changed("third", "Answer now?")
    client = releases.upgrade(third, BLUEPRINT, second)
    assert wait(client, url, "waiting_for_approval")["notice"] is None
    client.post(f"{url}/approve", json={}).raise_for_status()
    run = wait(client, url)
    assert run["status"] == "succeeded"
    assert run["digest"] == digest(BLUEPRINT)
    assert run["result"]["look_up_output"] == "order first"
    # new runs have the present blueprint
    new = begin(client, "8")
    wait(client, new, "waiting_for_approval")
    client.post(f"{new}/approve", json={}).raise_for_status()
    run = wait(client, new)
    assert run["digest"] == digest(third)
    assert run["result"]["look_up_output"] == "order third"
