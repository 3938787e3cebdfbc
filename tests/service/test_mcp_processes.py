"""Calls of MCP clients in services of several processes, and in one that stops."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest
from tests.helpers import NO_AUTHORITIES, until
from tests.service.support import Address, Command, Process
from tests.service.test_mcp_api import ERAS, call_once
from tests.service.test_mcp_tasks import KEY, Caller

COMPONENT = """
import asyncio
from pathlib import Path
from podwright import Agent, AgentStep, ApprovalStep, FunctionModel, Workflow

async def answer(request):
    Path("called").touch()
    while not Path("opened").exists():
        await asyncio.sleep(0.01)
    return "done"

helper = Agent("helper", "Work.", FunctionModel(answer))
flow = Workflow("flow", [ApprovalStep("Go on?", name="ask"), AgentStep(helper)])
"""
"""An agent whose calls end once there is a file `opened`, and a workflow that asks before it calls the agent."""


Connect = Callable[[Process], httpx.Client]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with the component."""
    (tmp_path / "component.py").write_text(COMPONENT)
    return tmp_path


def arguments(component: str) -> list[str]:
    """The command that serves a component of the folder."""
    place = ["--host", "127.0.0.1", "--port", "0"]
    return ["serve", f"component:{component}", *place]


@pytest.fixture
def connect(address: Address) -> Iterator[Connect]:
    """Connects to a process, once it listens."""
    with contextlib.ExitStack() as stack:
        yield lambda process: stack.enter_context(
            httpx.Client(
                base_url=address(process), verify=NO_AUTHORITIES, timeout=60
            )
        )


def test_a_task_of_two_processes(
    command: Command, connect: Connect, folder: Path, database: str
) -> None:
    """Each of them finds a task, takes decisions about it, cancels it, and knows the key of its call."""
    variables = {"PODWRIGHT_MCP": "true", "PODWRIGHT_RUNS_DATABASE": database}
    first, second = (
        Caller(connect(command(*arguments("flow"), cwd=folder, **variables)))
        for _ in range(2)
    )
    task = first.call("flow", meta={KEY: "k"})
    assert second.call("flow", meta={KEY: "k"})["taskId"] == task["taskId"]
    shown = second.wait(task["taskId"], "input_required")
    assert "result" in second.decide(shown, "approve")
    assert "result" in first.decide(shown, "approve")
    until((folder / "called").exists)
    assert {each.get(task["taskId"])["status"] for each in (first, second)} == {
        "working"
    }
    for each in (first, second):
        other = first.call("flow")["taskId"]
        first.decide(first.wait(other, "input_required"), "approve")
        each.result("tasks/cancel", taskId=other)
        for reader in (first, second):
            assert reader.wait(other, "cancelled")
    (folder / "opened").touch()
    results = [
        each.wait(task["taskId"], "completed")["result"]
        for each in (first, second)
    ]
    assert results[0] == results[1]
    assert "done" in results[0]["content"][0]["text"]


def test_a_call_that_waits_while_its_service_stops(
    command: Command, connect: Connect, folder: Path, sqlite_database: str
) -> None:
    """It is answered with its task at once, whose run ends in the next process."""
    variables = {
        "PODWRIGHT_MCP": "true",
        "PODWRIGHT_MCP_TASK_AFTER": "600",
        "PODWRIGHT_RUNS_DATABASE": sqlite_database,
    }
    service = command(*arguments("helper"), cwd=folder, **variables)
    with ThreadPoolExecutor() as pool:
        call = pool.submit(Caller(connect(service)).call, "helper")
        until((folder / "called").exists)
        service.send_signal(signal.SIGTERM)
        task = call.result()
    assert (task["resultType"], task["status"]) == ("task", "working")
    (folder / "opened").touch()
    assert service.wait(60) == 0
    service = command(*arguments("helper"), cwd=folder, **variables)
    done = Caller(connect(service)).wait(task["taskId"], "completed")
    assert done["result"]["content"][0]["text"] == "done"


@pytest.mark.parametrize("era", ERAS)
def test_a_run_beyond_the_shutdown_timeout(
    command: Command, connect: Connect, folder: Path, era: str
) -> None:
    """A run of a request is cancelled then, and its call refused for a moment with the status of `/run`."""
    service = command(
        *arguments("helper"),
        cwd=folder,
        PODWRIGHT_MCP="true",
        PODWRIGHT_SHUTDOWN_TIMEOUT="1",
    )
    with ThreadPoolExecutor() as pool:
        call = pool.submit(call_once, connect(service), era)
        until((folder / "called").exists)
        service.send_signal(signal.SIGTERM)
        response = call.result()
    assert response.status_code == 503
    error = response.json()["error"]
    assert (error["code"], error["data"]["code"]) == (-32000, "run_cancelled")
    assert error["data"]["run_id"]
