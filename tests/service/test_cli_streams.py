"""Each command with closed, full and broken standard streams."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import httpx
import pytest
from tests.helpers import COMMAND, NEWSROOM, environment, until
from tests.ports import free_port
from tests.service.support import AGENT

from podwright_service.cli.commands import app, deploy_commands

COMMANDS = [
    "--help", "--version", "serve nowhere.json", "run a.json x --trace t.json", "run a.json", "replay t.json",
    "validate a.json", "diff a.json b.json", "schema", "graph a.json", "check", "check 127.0.0.1:1", "new {folder}",
    "build a --tag t --docker /nowhere", "inspect t --docker /nowhere", "settings", f"deploy render {NEWSROOM}/writer",
    f"deploy diff v.json {NEWSROOM}/writer", "run loud:agent x -q",
]  # fmt: skip
STREAMS = ["open", "stdin closed", "stdout closed", "stdout full", "stdout broken", "stderr closed"]

FORKS = """
import gc, json, os, sys
from podwright_service.cli import blueprints, commands, console, deploy, images, main, new, run, settings

def change(stream):
    name, _, state = stream.partition(" ")
    number = ["stdin", "stdout", "stderr"].index(name)
    if state == "closed":
        os.close(number)
        setattr(sys, name, None)  # as the interpreter does at its start
    elif state == "full":
        os.dup2(os.open("/dev/full", os.O_WRONLY), number)
    else:
        reading, writing = os.pipe()
        os.close(reading)
        os.dup2(writing, number)

def start(command, stream, file):
    for number in (1, 2):
        os.dup2(os.open(file, os.O_CREAT | os.O_APPEND | os.O_WRONLY), number)
    sys.argv = ["podwright", *command.format(folder=file + ".d").split()]
    if stream != "open":
        change(stream)
    main()

gc.freeze()
results = {}
for command in json.loads(sys.argv[1]):
    for stream in json.loads(sys.argv[2]):
        file = f"output{len(results)}"
        if not (child := os.fork()):
            start(command, stream, file)
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        results[f"{command}, {stream}"] = code, open(file).read()
print(json.dumps(results))
"""


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[int, str]]:
    """Exit code and output of each command with each state of a stream, from forks of one process that is warm."""
    folder = tmp_path_factory.mktemp("streams")
    for name, blueprint in (("a", AGENT), ("b", {**AGENT, "name": "other"}), ("v", {"components": {}})):
        (folder / f"{name}.json").write_text(json.dumps(blueprint))
    (folder / "loud.py").write_text(
        "from podwright import Agent\nagent = Agent('loud', 'Do.', 'offline/echo', verbose=True)\n"
    )
    arguments = [sys.executable, "-c", FORKS, json.dumps(COMMANDS), json.dumps(STREAMS)]
    variables = environment(PODWRIGHT_PORT="1", PYTHONUNBUFFERED="")
    done = subprocess.run(
        arguments, cwd=folder, env=variables, capture_output=True, text=True, stdin=subprocess.DEVNULL
    )
    return json.loads(done.stdout)


@pytest.mark.parametrize("command", COMMANDS)
def test_no_command_shows_a_traceback(results: dict[str, tuple[int, str]], command: str) -> None:
    """An output that cannot be written is one line and exit code 1, and other streams only matter if they are read."""
    expected, _ = results[f"{command}, open"]
    for stream in STREAMS:
        code, output = results[f"{command}, {stream}"]
        assert "Traceback" not in output, output
        if expected == 0 and stream.startswith("stdout"):
            assert (code, output.count("Cannot write the output")) == (1, stream != "stdout broken"), (stream, output)
        else:
            reads = command == "run a.json" and stream == "stdin closed"
            assert code == (1 if reads else expected), (stream, output)


def test_every_command_is_tested() -> None:
    """The table has every command of the command line."""
    names = {info.name or getattr(info.callback, "__name__", "") for info in app.registered_commands}
    assert names | {f"deploy {info.name}" for info in deploy_commands.registered_commands} <= {
        " ".join(command.split()[: 1 + command.startswith("deploy")]) for command in COMMANDS
    }


@pytest.mark.parametrize("redirection", [">&-", ">/dev/full", "<&- 2>&-"])
def test_a_service_without_a_stream_serves(tmp_path: Path, redirection: str) -> None:
    """A service whose log cannot be written serves, and shows no traceback."""
    (tmp_path / "a.json").write_text(json.dumps(AGENT))
    url = f"http://127.0.0.1:{(port := free_port())}"
    process = subprocess.Popen(
        ["sh", "-c", f"exec {COMMAND} serve a.json --host 127.0.0.1 --port {port} {redirection}"],
        cwd=tmp_path, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        until(lambda: _answers(lambda: httpx.get(f"{url}/ready")))
        assert httpx.post(f"{url}/run", json={"input": "x"}).json() == {"output": "Echo: x"}
        process.send_signal(signal.SIGTERM)
        output = "".join(process.communicate(timeout=30))
    finally:
        process.kill()
        process.wait()
    assert "Traceback" not in output
    assert process.returncode == (1 if redirection == ">&-" else 0)


def _answers(request: Callable[[], httpx.Response]) -> bool:
    try:
        return request().status_code == 200
    except httpx.TransportError:
        return False


@pytest.mark.parametrize("locale", ["C", "C.UTF-8"])
@pytest.mark.parametrize(
    "arguments", [["run", "a.json"], ["run", "a.json", b"\xff"], ["run", "a.json", "--inputs", "@i"]]
)
def test_input_that_is_not_utf_8(tmp_path: Path, arguments: list[str | bytes], locale: str) -> None:
    """The error of an input that is not UTF-8 names the encoding, and suggests to use it."""
    (tmp_path / "a.json").write_text(json.dumps(AGENT))
    (tmp_path / "i").write_bytes(b"\xff")
    done = subprocess.run(
        [COMMAND, *arguments], input=b"\xff\xfe", capture_output=True, cwd=tmp_path, env=environment(LC_ALL=locale)
    )
    message = done.stderr.decode()
    assert (done.returncode, "utf-8" in message, "Traceback" in message) == (1, True, False), message
    assert "UTF-8" in message.partition("Suggestion: ")[2].splitlines()[0]
