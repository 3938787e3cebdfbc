"""Commands whose standard streams are closed, full, or not UTF-8."""

from __future__ import annotations

import json
import shlex
import signal
import subprocess
from pathlib import Path

import pytest
from tests.forked import run_forked
from tests.helpers import COMMAND, NEWSROOM, environment, plain_http, until
from tests.ports import free_port
from tests.service.support import AGENT, Command

from podwright import load
from podwright_service.cli.check import check
from podwright_service.cli.commands import app, deploy_commands
from podwright_service.cli.evaluating.commands import eval_commands

MODULE = "from podwright import Agent\nloud = Agent('loud', 'Do.', 'offline/echo', verbose=True)\n"
SUITE = "cases:\n- {name: a, inputs: x}\n"
COMMANDS = {
    "--help": 0, "serve nowhere.json": 1, "run a.json x": 0, "run a.json": 1, "run made:loud x": 0, "chat a.json": 1,
    "replay t.json": 0, "validate a.json": 0, "diff a.json b.json": 0, "schema": 0, "graph a.json": 0, "check": 1,
    "new made": 0, "build a --tag t": 1, "inspect t --docker /nowhere": 1, "settings": 0,
    "prices openai/gpt-4o": 0, "inputs i.json": 0, "export a.json --output exported": 0, "sync whole": 0,
    "dev nowhere.json": 1, "connect": 1, "estimate a.json x": 0,
    "eval run whole": 0, "eval whole": 0, "eval bless whole": 1, "eval add whole --trace t.json": 0,
    "eval judge kind whole --labels l.jsonl": 1,
    f"deploy render {NEWSROOM}/writer": 0, f"deploy diff v.json {NEWSROOM}/writer": 0,
}  # fmt: skip
"""Commands, with their exit codes without standard input."""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name, data in (
        ("a", AGENT),
        ("b", {**AGENT, "name": "other"}),
        ("i", {**AGENT, "inputs": {"word": {"type": "string"}}}),
        ("v", {"components": {}}),
    ):
        (tmp_path / f"{name}.json").write_text(json.dumps(data))
    (tmp_path / "t.json").write_text(
        json.dumps(load(tmp_path / "a.json").run("x", trace=True).to_dict())
    )
    (tmp_path / "made.py").write_text(MODULE)
    (tmp_path / "whole").mkdir()
    (tmp_path / "whole" / "blueprint.json").write_text(json.dumps(AGENT))
    (tmp_path / "whole" / "evals").mkdir()
    (tmp_path / "whole" / "evals" / "evals.yaml").write_text(SUITE)
    (tmp_path / "output").touch()
    return tmp_path


def redirected(command: str, redirection: str, folder: Path) -> tuple[int, str]:
    """The exit code of a command, and what it prints on the streams that are left."""
    line = f"exec </dev/null 2>&1; set -o pipefail; {COMMAND} {command} {redirection}"
    variables = environment(PODWRIGHT_PORT="1", LC_ALL="C")
    done = subprocess.run(
        ["bash", "-c", line],
        cwd=folder,
        env=variables,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert "Traceback" not in done.stdout
    return done.returncode, done.stdout


def forked(command: str, folder: Path, *files: str | None) -> tuple[int, str]:
    """The same of a fork, with the files of its standard streams; None is a closed one."""
    variables = environment(PODWRIGHT_PORT="1", LC_ALL="C")
    stdin, stdout, stderr = files
    code = run_forked(
        tuple(shlex.split(command)), folder, variables, (stdin, stdout, stderr)
    )
    output = (folder / "output").read_text()
    assert "Traceback" not in output
    return code, output


@pytest.mark.parametrize("command", COMMANDS)
def test_closed_streams(folder: Path, command: str) -> None:
    """With a closed input the exit code is the usual one, and 1 if the output cannot be written either."""
    output_file = str(folder / "output")
    assert (
        forked(command, folder, None, output_file, None)[0] == COMMANDS[command]
    )
    code, output = forked(
        command.replace("new made", "new other").replace("exported", "again"),
        folder,
        None,
        None,
        output_file,
    )
    assert (code, "Cannot write the output" in output) == (
        1,
        COMMANDS[command] == 0,
    ), output


@pytest.mark.parametrize(
    "command", ["--version", "schema", "run made:loud x", "replay t.json"]
)
def test_a_full_disk(folder: Path, command: str) -> None:
    """An output that cannot be written is an error."""
    code, output = forked(
        command, folder, "/dev/null", "/dev/full", str(folder / "output")
    )
    assert (code, "Cannot write the output" in output) == (1, True), output


@pytest.mark.parametrize(
    ("command", "redirection", "code"),
    [
        ("run made:loud x", "<&- 2>&-", 0),
        ("run made:loud x", "<&- >&-", 1),
        ("run made:loud x", "| head -0", 1),
        ("schema", "| head -0", 1),  # which does not fit into a buffer
    ],
)
def test_redirections_of_a_shell(
    folder: Path, command: str, redirection: str, code: int
) -> None:
    """A command that starts with a closed stream fails like above; a pipe whose reader has left is no error."""
    exit_code, output = redirected(command, redirection, folder)
    assert (exit_code, "Cannot write the output" in output) == (
        code,
        redirection == "<&- >&-",
    ), output


def test_every_command_is_tested() -> None:
    """The table has all commands."""
    names = [
        info.name or getattr(info.callback, "__name__", "")
        for info in app.registered_commands
    ]
    names += [
        f"deploy {info.name}" for info in deploy_commands.registered_commands
    ]
    names += [f"eval {info.name}" for info in eval_commands.registered_commands]
    assert [
        name
        for name in names
        if not any(command.startswith(name) for command in COMMANDS)
    ] == []


@pytest.mark.parametrize("redirection", [">&-", ">/dev/full", "<&- 2>&-"])
def test_a_service_that_cannot_log(
    command: Command, folder: Path, redirection: str
) -> None:
    """A service serves although its log cannot be written."""
    address = f"127.0.0.1:{(port := free_port())}"
    script = f"exec {COMMAND} serve a.json --port {port} {redirection}"
    process = command(
        code=f"import os; os.execlp('sh', 'sh', '-c', {script!r})", cwd=folder
    )
    until(lambda: check(address, 2.0) == 0, pause=0.1)
    assert plain_http.post(
        f"http://{address}/run", json={"input": "x"}
    ).json() == {"output": "Echo: x"}
    process.send_signal(signal.SIGTERM)
    assert "Traceback" not in process.communicate(timeout=60)[0]


@pytest.mark.parametrize(
    "command", ["run a.json", "run a.json \udcff", "run a.json --inputs @i"]
)
def test_input_that_is_not_utf_8(folder: Path, command: str) -> None:
    """The error of an input that is not UTF-8 names the encoding, also in its suggestion."""
    (folder / "i").write_bytes(b"\xff")
    code, output = forked(
        command, folder, str(folder / "i"), "/dev/null", str(folder / "output")
    )
    assert (
        code,
        "utf-8" in output,
        "UTF-8" in output.partition("Suggestion: ")[2],
    ) == (
        1,
        True,
        True,
    ), output
