"""`podwright validate`, `diff`, `schema`, `graph`, `new` and `settings`, as a shell sees them."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest

import podwright
from podwright.errors import ConfigurationError
from podwright_service.source import load_component
from podwright_service.variables import LIBRARY

Shell = Callable[..., subprocess.CompletedProcess[str]]

AGENT = {"name": "a", "instructions": "Do.", "config": {"model": "offline/echo"}}
TOOL = {"name": "t", "schema": {"type": "function", "function": {"name": "t", "parameters": {"type": "object"}}}}


def write(path: Path, blueprint: object) -> str:
    path.parent.mkdir(exist_ok=True)
    path.write_text(blueprint if isinstance(blueprint, str) else json.dumps(blueprint))
    return str(path)


def test_valid_blueprints(shell: Shell, newsroom: Path) -> None:
    """Files and folders of all kinds are told to be valid, with kind, name and digest, and exit code 0."""
    paths = [str(newsroom / name) for name in ("newsroom", "desk", "press", "researcher/blueprint.json")]
    done = shell("validate", *paths)
    assert (done.returncode, done.stderr) == (0, "")
    lines = done.stdout.splitlines()
    for path, line, kind in zip(paths, lines, ("workflow", "conductor", "pipeline", "agent"), strict=True):
        assert line.startswith(f"{path}: valid {kind} '")
        assert "sha256:" in line
    assert json.loads(shell("validate", "--json", paths[0]).stdout)[0]["kind"] == "workflow"


def test_every_problem_of_every_blueprint(shell: Shell, tmp_path: Path) -> None:
    """All problems of all paths are told, a line each with its pointer, and with what helps in a shell."""
    wrong = write(tmp_path / "wrong.json", {"name": "a", "instruction": 1})
    broken = write(tmp_path / "broken.json", "{")
    write(tmp_path / "bare" / "blueprint.json", {**AGENT, "tools": [TOOL]})
    until = {"name": "all", "args": {"conditions": [{"name": "equals", "args": {"value": "a"}}, {"name": "ours"}]}}
    step = {"type": "agent_step", "agent": "nobody", "name": "s"}
    loop = {"type": "loop_step", "name": "l", "steps": [step], "until": until, "max_iterations": 2}
    flow = write(tmp_path / "flow.json", {"type": "Workflow", "name": "f", "steps": [loop]})
    done = shell("validate", wrong, broken, "bare", flow, "nowhere.json", str(tmp_path))
    assert done.returncode == 1
    assert "Traceback" not in done.stderr
    lines = done.stdout.splitlines()
    assert f"{wrong}:/instruction: unknown key 'instruction'. Did you mean 'instructions'?" in lines
    assert any(line.startswith(f"{wrong}:/: the key 'config' is missing") for line in lines)
    assert any(line.startswith(f"{broken}:/: not JSON") for line in lines)
    told = "no callable was given for the tool 't'. Define it in the folder's tools.py: `def t(…)`."
    assert f"bare:/tools/0: {told}" in lines
    named = [line for line in lines if line.startswith(flow)]
    place = "/steps/0/until/args/conditions/0/args"
    assert named == [f"{flow}:{place}: the condition 'equals' needs the argument 'to'."]
    assert any(line.startswith("nowhere.json:/: Cannot read 'nowhere.json'") for line in lines)
    assert any(line.startswith(f"{tmp_path}:/: The folder") for line in lines)


def test_wrong_settings_are_no_fault_of_a_blueprint(shell: Shell, tmp_path: Path) -> None:
    """A folder is loaded as the settings say: where those are wrong, nothing is said of it."""
    write(tmp_path / "good" / "blueprint.json", AGENT)
    done = shell("validate", "--json", "good", PODWRIGHT_PRT="1")
    assert (done.returncode, done.stdout) == (1, "")
    assert "There is no setting PODWRIGHT_PRT" in done.stderr
    assert shell("validate", "good/blueprint.json", PODWRIGHT_PRT="1").returncode == 0


def test_differences(shell: Shell, tmp_path: Path) -> None:
    """Each change is a line that says whether it breaks; `--exit-code` makes that an exit code."""
    old = write(tmp_path / "old.json", AGENT)
    text = write(tmp_path / "text.json", {**AGENT, "instructions": "Do well."})
    tool = write(tmp_path / "tool.json", {**AGENT, "tools": [TOOL]})
    done = shell("diff", old, text, "--exit-code")
    assert (done.returncode, done.stdout) == (0, "compatible: /instructions changed: 'Do.' -> 'Do well.'\n")
    done = shell("diff", old, tool)
    assert (done.returncode, done.stdout.startswith("breaking: /tools/t added: ")) == (0, True)
    assert shell("diff", old, tool, "--exit-code").returncode == 1
    assert json.loads(shell("diff", old, tool, "--json").stdout)[0]["breaking"] is True
    assert shell("diff", old, old, "--exit-code").stdout == ""


def test_an_error_names_the_file(shell: Shell, tmp_path: Path) -> None:
    """What cannot be read of two files says which of them."""
    old, broken = write(tmp_path / "old.json", AGENT), write(tmp_path / "broken.json", "{")
    done = shell("diff", old, broken)
    assert done.returncode == 1
    assert f"'{broken}'" in done.stderr
    assert "`podwright schema` prints the whole schema" in done.stderr


def test_schemas(shell: Shell) -> None:
    """`schema` prints one kind's JSON Schema, or all; a misspelt kind has a suggestion."""
    assert json.loads(shell("schema", "Agent").stdout) == podwright.blueprints.json_schema()["agent"]
    assert json.loads(shell("schema").stdout) == podwright.blueprints.json_schema()
    done = shell("schema", "agnet")
    assert (done.returncode, "Did you mean 'agent'?" in done.stderr) == (1, True)


def test_a_graph(shell: Shell, newsroom: Path) -> None:
    """`graph` prints the library's flowchart of a folder's blueprint."""
    blueprint = podwright.load(newsroom / "newsroom").to_blueprint()
    assert shell("graph", str(newsroom / "newsroom")).stdout == podwright.blueprints.mermaid(blueprint)


def test_a_new_component_works(shell: Shell, tmp_path: Path) -> None:
    """What `new` makes is valid, runs, and passes its test; a second `new` leaves it as it is."""
    done = shell("new", "some/my sums")
    assert (done.returncode, done.stderr) == (0, "")
    assert "podwright run 'some/my sums'" in done.stdout
    folder = tmp_path / "some" / "my sums"
    assert sorted(one.name for one in folder.iterdir()) == [
        "README.md", "blueprint.json", "test_my_sums.py", "tools.py"
    ]  # fmt: skip
    assert not any(word in (folder / "README.md").read_text() for word in ("NAME", "MODEL", "TEST"))
    assert shell("validate", str(folder)).returncode == 0
    ran = shell("run", str(folder), "2 + 3?")
    assert (ran.returncode, ran.stdout.startswith("Echo: 2 + 3?")) == (0, True)
    assert "calls add_numbers" in ran.stderr
    tested = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-k", "not container", str(folder)],
        capture_output=True, text=True, cwd=tmp_path,
    )  # fmt: skip
    assert "2 passed, 1 deselected" in tested.stdout, tested.stdout
    told = re.findall("^python (-c '.*')$", (folder / "README.md").read_text(), re.MULTILINE)
    tools = subprocess.run([sys.executable, *shlex.split(told[0])], cwd=folder, capture_output=True, check=True).stdout
    assert json.loads(tools) == json.loads((folder / "blueprint.json").read_text())["tools"]
    (folder / "tools.py").write_text("mine")
    again = shell("new", "some/my sums")
    assert (again.returncode, "is not empty; nothing was written" in again.stderr) == (1, True)
    assert (folder / "tools.py").read_text() == "mine"


@pytest.mark.parametrize("name", ["", "{name}", "x" * 101, "x" * 300, "file/inside", "a\nb"])
def test_folders_that_cannot_be_made(shell: Shell, tmp_path: Path, name: str) -> None:
    """A name that no component may have, or no folder, is one readable error, and nothing is written."""
    (tmp_path / "file").write_text("")
    done = shell("new", name)
    assert (done.returncode, done.stdout) == (1, "")
    assert "Traceback" not in done.stderr
    assert [one.name for one in tmp_path.iterdir()] == ["file"]


def test_the_settings_that_count(shell: Shell, tmp_path: Path) -> None:
    """`settings` prints name, value, source and description of each, a line each in a pipe, and no secret."""
    (tmp_path / "podwright_agent_keys").write_text('{"writer": "sk-writer"}')
    variables = {
        "PODWRIGHT_API_KEYS": "sk-one,sk-two",
        "PODWRIGHT_SECRETS_DIR": str(tmp_path),
        "PODWRIGHT_MODEL_API_KEY": "sk-model",
        "PODWRIGHT_AGENTS": '{"writer": "http://user:sk-url@writer:8000"}',
    }
    done = shell("settings", "--port", "9000", **variables)
    assert (done.returncode, done.stderr) == (0, "")
    rows = {line.split()[0]: " ".join(line.split()) for line in done.stdout.splitlines()}
    assert "sk-" not in done.stdout
    assert rows["PODWRIGHT_PORT"] == "PODWRIGHT_PORT 9000 option --port Port to listen on; 0 takes a free one."
    assert rows["PODWRIGHT_HOST"] == "PODWRIGHT_HOST 0.0.0.0 default Address to listen on."
    assert rows["PODWRIGHT_API_KEYS"].startswith('PODWRIGHT_API_KEYS ["**********", "**********"] environment Keys')
    assert f"file {tmp_path / 'podwright_agent_keys'}" in rows["PODWRIGHT_AGENT_KEYS"]
    assert set(LIBRARY) <= set(rows)

    listed = shell("settings", "--json", **variables)
    assert "sk-" not in listed.stdout
    row = next(row for row in json.loads(listed.stdout) if row["variable"] == "PODWRIGHT_AGENTS")
    assert row["value"] == {"writer": "http://**********@writer:8000"}
    assert row["source"] == "environment"
    assert row["description"]


@pytest.mark.parametrize("command", ["serve", "settings", "run"])
def test_misspelt_settings_stop_a_command(shell: Shell, newsroom: Path, command: str) -> None:
    """A misspelt variable is told before anything is loaded or listened on."""
    arguments = [] if command == "settings" else [str(newsroom / "writer")]
    done = shell(command, *arguments, PODWRIGHT_API_KEY="k", PODWRIGHT_PRT="1")
    assert (done.returncode, done.stdout) == (1, "")
    assert "Did you mean 'PODWRIGHT_API_KEYS'?" in done.stderr
    assert "Did you mean 'PODWRIGHT_PORT'?" in done.stderr


def test_a_folder_that_may_not_be_read() -> None:
    """It is an error that names the folder, not a traceback."""
    with tempfile.TemporaryDirectory() as top:
        closed = Path(top) / "closed"
        write(closed / "blueprint.json", AGENT)
        Path(top).chmod(0o755)
        closed.chmod(0)
        root = os.geteuid() == 0  # who may read everything
        try:
            if root:
                os.seteuid(65534)
            with pytest.raises(ConfigurationError, match=r"'closed' cannot be read: Permission denied"):
                load_component(str(closed))
        finally:
            if root:
                os.seteuid(0)
            closed.chmod(0o755)
