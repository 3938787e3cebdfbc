"""`podwright sync` and `diff` with MCP tools: what is locked, what differs, and what needs a connection."""

from __future__ import annotations

import json
import shlex
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.helpers import write_files
from tests.library import mcp_program
from tests.library.mcp_server import definition, lock_of
from tests.service.support import Shell

import podwright
from podwright.errors import BlueprintValidationError, ConfigurationError
from podwright.folders.folder import Folder
from podwright.mcp.definitions import ToolDefinition
from podwright.mcp.lock import LOCK_FILE, MCPLock
from podwright.mcp.server import ToolListing
from podwright_service.authoring.mcp_sync import (
    add_tools,
    named_servers,
    synced_locks,
)
from podwright_service.authoring.sync import synced_files
from podwright_service.settings import read_settings

READ = definition("read_file")


def blueprint(*tools: Any, name: str = "reader") -> dict[str, Any]:
    """The blueprint of an agent with tools of the server `files`."""
    data: dict[str, Any] = {
        "name": name,
        "instructions": "Read.",
        "config": {"model": "offline/echo"},
    }
    if tools:
        data["mcp"] = [{"server": "files", "tools": list(tools)}]
    return data


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A component folder with a tool and its definition."""
    path = tmp_path / "reader"
    write_files(path, {"blueprint.json": blueprint("read_file")})
    lock_of("files", READ).write_file(path / LOCK_FILE)
    return path


def listing(*definitions: ToolDefinition, **refused: str) -> ToolListing:
    """What a server answers."""
    return ToolListing({each.name: each for each in definitions}, refused)


def differences(path: Path, *definitions: ToolDefinition) -> dict[str, str]:
    """The changes of the lock of a folder by a server with these tools."""
    component = Folder(path)
    files = synced_files(component, [])
    [lock] = synced_locks(component, files, {"files": listing(*definitions)})
    return {change.pointer: change.op for change in lock.changes}


def test_a_change_of_the_server_is_a_difference(folder: Path) -> None:
    """Its description, schema and annotations are compared; a further tool of the server is none of the component's."""
    assert differences(folder, READ, definition("new")) == {}
    changed = definition(
        "read_file",
        description="Obey.",
        annotations={"destructiveHint": True},
        inputSchema={"type": "object", "properties": {"path": {}}},
    )
    found = differences(folder, changed)
    at = "/mcp.lock/files/read_file"
    assert found[f"{at}/description"] == "changed"
    assert found[f"{at}/annotations"] == "added"
    assert found[f"{at}/inputSchema/properties/path/type"] == "removed"


def test_a_server_that_is_a_program(shell: Shell, folder: Path) -> None:
    """A command in place of a URL starts the server for the time of the question."""
    (folder / "blueprint.json").write_text(json.dumps(blueprint("echo")))
    command = shlex.join([sys.executable, mcp_program.__file__])
    sync = ("sync", str(folder), "--mcp", f"files={command}")
    done = shell(*sync)
    assert done.returncode == 0, done.stderr
    lock = MCPLock.read_file(folder / LOCK_FILE)
    assert list(lock.servers["files"]) == ["echo"]
    done = shell(*sync, "--check")
    assert (done.returncode, done.stdout) == (0, "Up to date.\n"), done.stderr


def test_a_tool_that_the_server_dropped_is_a_problem(folder: Path) -> None:
    """The lock keeps what it has; a definition that breaks a limit is as good as none."""
    with pytest.raises(BlueprintValidationError) as caught:
        differences(folder, definition("read_files"))
    [problem] = caught.value.problems
    assert problem.pointer == "/mcp/0/tools/0"
    assert "read_files" in problem.suggestion
    component = Folder(folder)
    files = synced_files(component, [])
    with pytest.raises(BlueprintValidationError) as refused:
        synced_locks(
            component, files, {"files": listing(read_file="It is too large.")}
        )
    assert "too large" in refused.value.problems[0].detail


def test_tools_are_added(folder: Path) -> None:
    """Each is added once, to the entry of its server; `all` are those that the server has."""
    component = Folder(folder)
    [file] = synced_files(component, [])
    server = listing(READ, definition("list"), definition("search"))
    add_tools(file, "files", ["list", "read_file"], server)
    assert file.blueprint["mcp"][0]["tools"] == ["read_file", "list"]
    assert [change.pointer for change in file.changes] == [
        "/mcp/files/tools/list"
    ]
    add_tools(file, "files", ["all"], server)
    assert file.blueprint["mcp"][0]["tools"] == ["read_file", "list", "search"]
    [lock] = synced_locks(component, [file], {"files": server})
    assert list(lock.lock.servers["files"]) == ["read_file", "list", "search"]


def test_a_first_tool_is_added(tmp_path: Path) -> None:
    """An agent without MCP tools is given an entry of the server."""
    write_files(tmp_path, {"blueprint.json": blueprint()})
    [file] = synced_files(Folder(tmp_path), [])
    add_tools(file, "files", ["read_file"], listing(READ))
    assert file.blueprint["mcp"] == [
        {"server": "files", "tools": ["read_file"]}
    ]


def test_an_unknown_tool_is_not_added(folder: Path) -> None:
    [file] = synced_files(Folder(folder), [])
    with pytest.raises(ConfigurationError) as caught:
        add_tools(file, "files", ["lst"], listing(READ, definition("list")))
    assert "list" in (caught.value.suggestion or "")
    assert file.changes == []


def test_a_server_that_no_blueprint_names(shell: Shell, folder: Path) -> None:
    """A misspelled server is an error, also for a check in CI, and is not called; one may be asked to add its tools."""
    server = "fils=http://127.0.0.1:9/mcp"
    done = shell("sync", str(folder), "--mcp", server, "--check")
    assert (done.returncode, done.stdout) == (1, "")
    assert "Did you mean 'files'?" in done.stderr
    added = shell("sync", str(folder), "--mcp", server, "--add", "read_file")
    assert "mcp_server_failed" in added.stderr


def test_a_name_that_models_cannot_call_is_not_added(folder: Path) -> None:
    [file] = synced_files(Folder(folder), [])
    with pytest.raises(BlueprintValidationError):
        add_tools(file, "files", ["all"], listing(READ, definition("a.b")))


def test_a_workflow_has_no_tools_of_its_own(tmp_path: Path) -> None:
    step = {"type": "agent_step", "name": "a", "agent": "reader"}
    flow = {"name": "flow", "steps": [step]}
    write_files(tmp_path, {"blueprint.json": flow})
    [file] = synced_files(Folder(tmp_path), [])
    with pytest.raises(ConfigurationError):
        add_tools(file, "files", ["read_file"], listing(READ))


def test_agents_of_the_folder(folder: Path) -> None:
    """A file in `agents/` shares the lock of its folder, a folder there has its own; steps and members count."""
    step = {
        "type": "function_step",
        "name": "list",
        "mcp": {"server": "files", "tool": "list"},
    }
    team = {
        "type": "Pipeline",
        "name": "team",
        "steps": [{"type": "Agent", **blueprint("search", name="one")}],
    }
    write_files(
        folder,
        {
            "agents/flow.json": {"name": "flow", "steps": [step]},
            "agents/team/blueprint.json": team,
        },
    )
    component = Folder(folder)
    files = synced_files(component, [])
    server = listing(READ, definition("list"), definition("search"))
    locks = synced_locks(component, files, {"files": server})
    locked = {
        str(lock.path.relative_to(folder)): sorted(lock.lock.servers["files"])
        for lock in locks
    }
    assert locked == {
        LOCK_FILE: ["list", "read_file"],
        f"agents/team/{LOCK_FILE}": ["search"],
    }


def test_without_a_server_the_lock_is_compared_with_the_blueprint(
    folder: Path, shell: Shell
) -> None:
    """Nothing is called; a tool without a definition differs, and so does a definition without a tool."""
    fine = shell("sync", str(folder), "--check")
    assert fine.returncode == 0, fine.stderr
    write_files(folder, {"blueprint.json": blueprint("search")})
    before = (folder / LOCK_FILE).read_text(encoding="utf-8")
    check = shell("sync", str(folder), "--check")
    assert check.returncode == 1
    assert "/mcp.lock/files" in check.stdout
    assert "'search'" in check.stdout
    assert (folder / LOCK_FILE).read_text(encoding="utf-8") == before
    assert shell("sync", str(folder)).returncode == 0
    assert not (folder / LOCK_FILE).exists()


def test_an_unknown_server(folder: Path, shell: Shell) -> None:
    """The address of a server is the operator's; of one that is not reachable nothing is written."""
    process = shell("sync", str(folder), "--mcp", "files")
    assert process.returncode != 0
    assert "PODWRIGHT_MCP_SERVERS" in process.stderr
    lock = MCPLock.read_file(folder / LOCK_FILE)
    assert lock == lock_of("files", READ)


def test_tools_of_several_servers_are_not_added_at_once(
    folder: Path, shell: Shell
) -> None:
    process = shell(
        *("sync", str(folder), "--add", "x"),
        *(
            "--mcp",
            "a=http://127.0.0.1:9/mcp",
            "--mcp",
            "b=http://127.0.0.1:9/mcp",
        ),
    )
    assert process.returncode != 0
    assert "--add" in process.stderr


def test_addresses() -> None:
    """An option may have the address; a name alone is one of the settings."""
    url = "http://127.0.0.1:9/mcp"
    settings = read_settings(mcp_servers={"files": {"url": url}})
    servers = named_servers(["files", f"web={url}"], settings)
    assert list(servers) == ["files", "web"]
    assert [server.name for server in servers.values()] == ["files", "web"]
    with pytest.raises(ConfigurationError):
        named_servers(["fils"], settings)


def test_validate_needs_no_server(folder: Path, shell: Shell) -> None:
    """A folder with a lock is valid anywhere; without one it is a problem that names the command."""
    fine = shell("validate", str(folder), "--json")
    [report] = json.loads(fine.stdout)
    assert report["valid"], report
    (folder / LOCK_FILE).unlink()
    [report] = json.loads(shell("validate", str(folder), "--json").stdout)
    [problem] = report["problems"]
    assert problem["pointer"] == "/mcp/0/tools/0"
    assert "podwright sync" in problem["suggestion"]


def test_diff_compares_locks(
    folder: Path, tmp_path: Path, shell: Shell
) -> None:
    """Two folders with the same blueprint differ in what the model is shown."""
    other = tmp_path / "other"
    write_files(other, {"blueprint.json": blueprint("read_file")})
    lock = lock_of("files", definition("read_file", description="New."))
    lock.write_file(other / LOCK_FILE)
    process = shell("diff", str(folder), str(other), "--json")
    [change] = json.loads(process.stdout)
    assert change["pointer"] == "/mcp.lock/files/read_file/description"
    assert not change["breaking"]


def test_export_keeps_the_lock(
    folder: Path, tmp_path: Path, shell: Shell
) -> None:
    """A copy of a folder has the same definitions."""
    target = tmp_path / "copy"
    process = shell("export", str(folder), "--output", str(target))
    assert process.returncode == 0, process.stderr
    assert MCPLock.read_file(target / LOCK_FILE) == lock_of("files", READ)
    assert podwright.load(target).to_blueprint() == blueprint("read_file")


def test_export_of_a_component_in_python(
    folder: Path, tmp_path: Path, shell: Shell
) -> None:
    """Its locked definitions go into the lock of the new folder; those that are not locked cannot be exported."""
    url = "http://127.0.0.1:9/mcp"
    app = f"""
import podwright

locked = podwright.load({str(folder)!r})
trusting = podwright.Agent.from_blueprint(
    locked.to_blueprint(), mcp={{"files": podwright.MCPServer({url!r})}}
)
"""
    (tmp_path / "app.py").write_text(app)
    process = shell("export", "app:locked", "--output", "exported")
    assert process.returncode == 0, process.stderr
    lock = MCPLock.read_file(tmp_path / "exported" / LOCK_FILE)
    assert lock == lock_of("files", READ)
    refused = shell("export", "app:trusting", "--output", "other")
    assert refused.returncode != 0
    assert "podwright sync" in refused.stderr
    assert not (tmp_path / "other").exists()
