"""The command and the `Service` class, as processes of their own."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest

from podwright import Agent, Pipeline
from podwright.errors import ConfigurationError
from podwright_service.app import create_app
from podwright_service.remotes import remotes_of
from podwright_service.settings import read_settings

Command = Callable[..., subprocess.Popen[str]]
Address = Callable[[subprocess.Popen[str]], str]

AGENT = {"name": "a", "instructions": "Do.", "config": {"model": "offline/echo"}}


def test_a_folder_is_served_until_a_signal(command: Command, address: Address, newsroom: Path) -> None:
    """`podwright serve` serves a folder on the model of the environment, and ends on SIGTERM with exit code 0."""
    process = command(
        "serve", str(newsroom / "newsroom"), "--port", "0", "--title", "News", PODWRIGHT_MODEL="offline/echo"
    )
    url = address(process)
    assert httpx.get(f"{url}/info", timeout=30).json()["title"] == "News"
    assert httpx.post(f"{url}/run", json={"input": "the moon"}, timeout=20).json()["input"] == "the moon"
    process.send_signal(signal.SIGTERM)
    output, _ = process.communicate(timeout=20)
    assert process.returncode == 0, output
    assert "Traceback" not in output


def test_a_run_is_finished_before_the_end(command: Command, address: Address, tmp_path: Path) -> None:
    """A run that is under way when SIGTERM comes is answered, and the exit code is 0."""
    (tmp_path / "made.py").write_text(
        "import time\n"
        "from podwright import Agent, FunctionModel\n"
        "def answer(request):\n    print('asked', flush=True)\n    time.sleep(0.5)\n    return 'done'\n"
        "slow = Agent('slow', 'Wait.', FunctionModel(answer))\n"
    )
    process = command("serve", "made:slow", "--port", "0", "--host", "127.0.0.1", cwd=tmp_path)
    host, port = address(process).removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), timeout=20) as connection:
        body = b'{"input": "x"}'
        head = f"POST /run HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n"
        connection.sendall(head.encode() + body)
        assert process.stdout is not None
        assert "asked" in process.stdout.readline()
        process.send_signal(signal.SIGTERM)
        answer = b""
        while piece := connection.recv(65536):
            answer += piece
    assert answer.endswith(b'{"output":"done"}')
    assert process.wait(timeout=20) == 0


def test_a_run_that_takes_too_long_is_told_how_to_go_on(command: Command, address: Address, tmp_path: Path) -> None:
    """A run that is not done within the shutdown time-out is answered with 503 and where its workflow goes on."""
    (tmp_path / "made.py").write_text(
        "import asyncio\n"
        "from podwright import Agent, FunctionModel, ScriptedModel, Workflow\n"
        "async def answer(request):\n    print('asked', flush=True)\n    await asyncio.sleep(60)\n"
        "first, slow = Agent('first', 'Do.', ScriptedModel('one')), Agent('slow', 'Wait.', FunctionModel(answer))\n"
        "flow = Workflow('flow', [first, slow])\n"
    )
    process = command("serve", "made:flow", "--port", "0", cwd=tmp_path, PODWRIGHT_SHUTDOWN_TIMEOUT="1")
    url = address(process)
    with ThreadPoolExecutor() as pool:
        asking = pool.submit(httpx.post, f"{url}/run", json={"input": "x"}, timeout=20)
        assert process.stdout is not None
        assert "asked" in process.stdout.readline()
        process.send_signal(signal.SIGTERM)
        response = asking.result()
    problem = response.json()
    assert (response.status_code, problem["code"]) == (503, "run_cancelled"), problem
    assert problem["run_id"] == response.headers["podwright-run-id"]
    assert (problem["context"]["first_output"], problem["resume_path"]) == ("one", [1])
    output, _ = process.communicate(timeout=20)
    assert "Traceback" not in output
    assert process.returncode == 0


def test_an_interrupted_start_ends_quietly(command: Command, tmp_path: Path) -> None:
    """SIGINT while the component is loaded ends the command without a traceback."""
    (tmp_path / "made.py").write_text("import time\nprint('loading', flush=True)\ntime.sleep(30)\n")
    process = command("serve", "made:agent", cwd=tmp_path)
    assert process.stdout is not None
    assert "loading" in process.stdout.readline()
    process.send_signal(signal.SIGINT)
    output, _ = process.communicate(timeout=20)
    assert "Traceback" not in output, output
    assert process.returncode in (1, 130)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_the_class_serves_and_blocks(command: Command, address: Address, number: signal.Signals) -> None:
    """`Service(component, title).run(host, port)` serves until a signal, then the call returns."""
    code = (
        "from podwright import Agent\nfrom podwright_service import Service\n"
        "Service(Agent('a', 'Do.', 'offline/echo'), title='T').run(host='127.0.0.1', port=0)\n"
        "print('returned')\n"
    )
    process = command(code=code)
    url = address(process)
    assert httpx.get(f"{url}/info", timeout=30).json()["title"] == "T"
    assert httpx.post(f"{url}/run", json={"input": "x"}).json() == {"output": "Echo: x"}
    process.send_signal(number)
    output, _ = process.communicate(timeout=20)
    assert output.endswith("returned\n")
    assert process.returncode == 0


def test_the_environment_alone_is_enough(command: Command, address: Address, tmp_path: Path) -> None:
    """With PODWRIGHT_COMPONENT and PODWRIGHT_PORT, `podwright serve` needs no arguments; a file will do."""
    (tmp_path / "a.json").write_text(json.dumps(AGENT))
    process = command("serve", PODWRIGHT_COMPONENT=str(tmp_path / "a.json"), PODWRIGHT_PORT="0", PODWRIGHT_TITLE="")
    info = httpx.get(f"{address(process)}/info", timeout=30).json()
    assert (info["name"], info["title"]) == ("a", "a")


def folder(at: Path, blueprint: object, **files: str) -> str:
    at.mkdir()
    (at / "blueprint.json").write_text(blueprint if isinstance(blueprint, str) else json.dumps(blueprint))
    for name, text in files.items():
        (at / f"{name}.py").write_text(text)
    return str(at)


def fifo(at: Path) -> str:
    os.mkfifo(at)
    return str(at)


def module(at: Path, code: str) -> str:
    (at / "made.py").write_text(code)
    return "made:agent"


TOOL = {"name": "t", "schema": {"type": "function", "function": {"name": "t", "parameters": {"type": "object"}}}}

WRONG: dict[str, tuple[Callable[[Path], list[str]], dict[str, str], list[str]]] = {
    "nothing": (lambda at: [], {}, ["nothing to serve", "PODWRIGHT_COMPONENT"]),
    "a missing file": (lambda at: [str(at / "a.json")], {}, ["no component at"]),
    "a misspelt folder": (
        lambda at: [folder(at / "writer", AGENT).replace("writer", "writter")],
        {},
        ["no component at", "Did you mean 'writer'?"],
    ),
    "an empty folder": (lambda at: [str(at)], {}, ["no blueprint"]),
    "broken tools": (
        lambda at: [folder(at / "a", {**AGENT, "tools": [TOOL]}, tools="def t(:")],
        {},
        ["tools.py", "SyntaxError"],
    ),
    "missing tools": (
        lambda at: [folder(at / "a", {**AGENT, "tools": [TOOL]})],
        {},
        ["/tools/0", "'t'", "the folder's tools.py"],
    ),
    "no JSON": (lambda at: [folder(at / "a", "{")], {}, ["blueprint.json'", "not JSON"]),
    "an invalid blueprint": (
        lambda at: [folder(at / "a", {"name": "a", "instruction": 1})],
        {},
        ["/instruction", "`podwright schema`", "Did you mean 'instructions'?", "'config' is missing"],
    ),
    "a missing module": (lambda at: ["nowhere:agent"], {}, ["No module named 'nowhere'"]),
    "a misspelt attribute": (
        lambda at: [module(at, "from podwright import Agent\nagents = Agent('a', 'Do.', 'offline/echo')\n")],
        {},
        ["The module 'made' has no 'agent'", "Did you mean 'agents'?"],
    ),
    "no component": (lambda at: ["json:loads"], {}, ["'json:loads' is a function"]),
    "an unknown model": (
        lambda at: [folder(at / "a", AGENT)],
        {"PODWRIGHT_MODEL": "offline/ecco"},
        ["offline/ecco", "offline/echo"],
    ),
    "a wrong setting": (
        lambda at: [folder(at / "a", AGENT)],
        {"PODWRIGHT_PORT": "eighty"},
        ["PODWRIGHT_PORT", "'eighty'"],
    ),
    "an infinite setting": (
        lambda at: [folder(at / "a", AGENT)],
        {"PODWRIGHT_RUN_COST": "inf"},
        ["PODWRIGHT_RUN_COST", "finite"],
    ),
    "a long path": (lambda at: ["x" * 5000], {}, ["no component at", "x…"]),
    "a long name in a path": (lambda at: [str(at / ("x" * 300) / "a.json")], {}, ["no component at"]),
    "a pipe": (lambda at: [fifo(at / "a.json")], {}, ["no regular file"]),
    "a module that exits": (
        lambda at: [module(at, "import sys; sys.exit(3)")],
        {},
        ["'made' cannot be imported", "SystemExit: 3"],
    ),
    "tools that exit": (
        lambda at: [folder(at / "a", {**AGENT, "tools": [TOOL]}, tools="raise SystemExit(3)")],
        {},
        ["tools.py", "SystemExit: 3"],
    ),
    "a wrong price": (
        lambda at: [folder(at / "a", {**AGENT, "config": {"model": "openai/gpt-4o"}})],
        {"PODWRIGHT_PRICES": __file__, "OPENAI_API_KEY": "x"},
        ["PODWRIGHT_PRICES", "test_command.py"],
    ),
    "an unknown tool": (
        lambda at: [folder(at / "a", AGENT)],
        {"PODWRIGHT_ALLOWED_TOOLS": "shell"},
        ["PODWRIGHT_ALLOWED_TOOLS", "'shell'"],
    ),
    "an allowed model that is none": (
        lambda at: [folder(at / "a", AGENT)],
        {"PODWRIGHT_ALLOWED_MODELS": "offline/echo,gpt-4o"},
        ["PODWRIGHT_ALLOWED_MODELS", "'gpt-4o'"],
    ),
}


@pytest.mark.parametrize(("arguments", "variables", "texts"), WRONG.values(), ids=WRONG)
def test_what_cannot_be_served_stops_the_start(
    command: Command,
    tmp_path: Path,
    arguments: Callable[[Path], list[str]],
    variables: dict[str, str],
    texts: list[str],
) -> None:
    """One readable message with what to do about it, and exit code 1."""
    process = command("serve", *arguments(tmp_path), cwd=tmp_path, **variables)
    output, _ = process.communicate(timeout=20)
    assert process.returncode == 1, output
    assert "Traceback" not in output
    assert output.count("Suggestion:") == 1
    for text in texts:
        assert text in output, output


NO_FILES: dict[str, tuple[Callable[[Path], object], str]] = {
    "a pipe": (os.mkfifo, "no regular file"),
    "a device": (lambda at: at.symlink_to("/dev/zero"), "no regular file"),
    "a folder": (Path.mkdir, "Is a directory"),
    "too large a file": (lambda at: (at.touch(), os.truncate(at, 1 << 40)), "16 MiB"),
    "no text": (lambda at: at.write_bytes(b"\xb6\xfe\0" * 9), ""),
    "what is no number": (lambda at: at.write_text('{"openai/gpt-4o": {"input": NaN}}'), ""),
    "a key twice": (lambda at: at.write_text('{"a": "http://a", "a": "http://b"}'), ""),
}


@pytest.mark.parametrize("variable", ["PODWRIGHT_AGENTS_FILE", "PODWRIGHT_API_KEYS_FILE", "PODWRIGHT_PRICES"])
@pytest.mark.parametrize(("make", "text"), NO_FILES.values(), ids=NO_FILES)
def test_a_file_of_settings_that_is_none_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, variable: str, make: Callable[[Path], object], text: str
) -> None:
    """Whatever a setting names in place of a file, it is told in words, and nothing is read for ever."""
    make(at := tmp_path / "given.json")
    monkeypatch.setenv(variable, str(at))
    settings = read_settings()
    with pytest.raises(ConfigurationError, match=f"given.json'.*{text}" if text else "given.json'"):
        create_app(settings, Pipeline("p", [Agent("a", "Do.", "openai/gpt-4o"), *remotes_of(settings).values()]))


def test_a_port_in_use_is_told(command: Command, newsroom: Path) -> None:
    """A taken port ends the start with exit code 1, and says what to do."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        process = command("serve", str(newsroom / "writer"), "--host", "127.0.0.1", "--port", port)
        output, _ = process.communicate(timeout=20)
    assert process.returncode == 1
    assert output.count("address already in use") == 1
    assert output.count(f"Cannot listen on 127.0.0.1:{port}: address already in use.") == 1
    assert "--port" in output
    assert "Traceback" not in output


def test_help_and_version(command: Command) -> None:
    """`--version` prints the version, `--help` a whole line for each command, and `serve --help` the options."""
    import podwright

    output, _ = command("--version").communicate(timeout=20)
    assert output.strip() == podwright.__version__
    output, _ = command("--help", COLUMNS="80").communicate(timeout=20)
    assert "Commands:" in output
    assert "..." not in output.partition("Commands:")[2]  # no summary is cut off
    output, _ = command("serve", "--help").communicate(timeout=20)
    assert all(option in output for option in ("--host", "--port", "--title", "PATH"))
