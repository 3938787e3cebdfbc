"""`podwright serve` and the class `Service`, in processes of their own."""

from __future__ import annotations

import json
import os
import signal
import socket
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from tests.helpers import plain_http
from tests.service.support import Address, Command, Process

from podwright import Agent, Pipeline
from podwright.errors import ConfigurationError
from podwright_service.app import create_app
from podwright_service.remotes import remotes_of
from podwright_service.settings import read_settings

AGENT = {"name": "a", "instructions": "Do.", "config": {"model": "offline/echo"}}


@pytest.mark.parametrize("workers", ["1", "2"])
def test_a_folder_is_served_until_a_signal(command: Command, address: Address, newsroom: Path, workers: str) -> None:
    """`podwright serve` serves a folder with the model of the environment, and ends on SIGTERM with exit code 0."""
    arguments = ("serve", str(newsroom / "newsroom"), "--port", "0", "--title", "News")
    code = "from podwright_service.cli import main; main()"  # with Python's own start and exit
    process = command(*arguments, code=code, PODWRIGHT_MODEL="offline/echo", PODWRIGHT_WORKERS=workers)
    url = address(process)
    assert plain_http.get(f"{url}/info", timeout=30).json()["title"] == "News"
    assert plain_http.post(f"{url}/run", json={"input": "the moon"}, timeout=20).json()["input"] == "the moon"
    process.send_signal(signal.SIGTERM)
    output, _ = process.communicate(timeout=20)
    assert (process.returncode, "Traceback" in output) == (0, False), output


def test_an_active_run_finishes(command: Command, address: Address, tmp_path: Path) -> None:
    """A run that is active at SIGTERM is completed, and the exit code is 0."""
    (tmp_path / "made.py").write_text(
        "import time\n"
        "from podwright import Agent, FunctionModel\n"
        "def respond(request):\n    print('called', flush=True)\n    time.sleep(0.5)\n    return 'done'\n"
        "slow = Agent('slow', 'Wait.', FunctionModel(respond))\n"
    )
    process = command("serve", "made:slow", "--port", "0", "--host", "127.0.0.1", cwd=tmp_path)
    url = address(process)
    with ThreadPoolExecutor() as pool:
        response = pool.submit(plain_http.post, f"{url}/run", json={"input": "x"}, timeout=20)
        wait_for(process, "called")
        process.send_signal(signal.SIGTERM)
        assert response.result().json() == {"output": "done"}
    assert process.wait(timeout=20) == 0


def test_a_run_beyond_the_shutdown_timeout(command: Command, address: Address, tmp_path: Path) -> None:
    """A run that exceeds the shutdown time-out gets 503 and the context to resume its workflow."""
    (tmp_path / "made.py").write_text(
        "import asyncio\n"
        "from podwright import Agent, FunctionModel, ScriptedModel, Workflow\n"
        "async def respond(request):\n    print('called', flush=True)\n    await asyncio.sleep(60)\n"
        "first, slow = Agent('first', 'Do.', ScriptedModel('one')), Agent('slow', 'Wait.', FunctionModel(respond))\n"
        "flow = Workflow('flow', [first, slow])\n"
    )
    process = command("serve", "made:flow", "--port", "0", cwd=tmp_path, PODWRIGHT_SHUTDOWN_TIMEOUT="1")
    url = address(process)
    with ThreadPoolExecutor() as pool:
        response = pool.submit(plain_http.post, f"{url}/run", json={"input": "x"}, timeout=20)
        wait_for(process, "called")
        process.send_signal(signal.SIGTERM)
        problem = response.result().json()
    assert (problem["status"], problem["code"]) == (503, "run_cancelled"), problem
    assert problem["run_id"] == response.result().headers["podwright-run-id"]
    assert (problem["context"]["first_output"], problem["resume_path"]) == ("one", [1])
    output, _ = process.communicate(timeout=20)
    assert (process.returncode, "Traceback" in output) == (0, False), output


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
    assert plain_http.get(f"{url}/info", timeout=30).json()["title"] == "T"
    assert plain_http.post(f"{url}/run", json={"input": "x"}).json() == {"output": "Echo: x"}
    process.send_signal(number)
    output, _ = process.communicate(timeout=20)
    assert output.endswith("returned\n")
    assert process.returncode == 0


def test_the_environment_is_enough(command: Command, address: Address, tmp_path: Path) -> None:
    """With PODWRIGHT_COMPONENT and PODWRIGHT_PORT, `podwright serve` needs no arguments."""
    (tmp_path / "a.json").write_text(json.dumps(AGENT))
    process = command("serve", PODWRIGHT_COMPONENT=str(tmp_path / "a.json"), PODWRIGHT_PORT="0", PODWRIGHT_TITLE="")
    info = plain_http.get(f"{address(process)}/info", timeout=30).json()
    assert (info["name"], info["title"]) == ("a", "a")


def wait_for(process: Process, word: str) -> None:
    """Wait until the process prints a word."""
    assert process.stdout is not None
    assert any(word in line for line in process.stdout)


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
    "nothing": (lambda at: [], {}, ["PODWRIGHT_COMPONENT"]),
    "a missing file": (lambda at: [str(at / "a.json")], {}, ["a.json"]),
    "a misspelt folder": (
        lambda at: [folder(at / "writer", AGENT).replace("writer", "writter")],
        {},
        ["writter", "'writer'"],
    ),
    "an empty folder": (lambda at: [str(at)], {}, []),
    "invalid tools": (
        lambda at: [folder(at / "a", {**AGENT, "tools": [TOOL]}, tools="def t(:")],
        {},
        ["tools.py", "SyntaxError"],
    ),
    "missing tools": (lambda at: [folder(at / "a", {**AGENT, "tools": [TOOL]})], {}, ["/tools/0", "'t'"]),
    "invalid JSON": (lambda at: [folder(at / "a", "{")], {}, ["blueprint.json'"]),
    "an invalid blueprint": (
        lambda at: [folder(at / "a", {"name": "a", "instruction": 1})],
        {},
        ["/instruction", "'instructions'", "'config'"],
    ),
    "a missing module": (lambda at: ["nowhere:agent"], {}, ["'nowhere'"]),
    "a misspelt attribute": (
        lambda at: [module(at, "from podwright import Agent\nagents = Agent('a', 'Do.', 'offline/echo')\n")],
        {},
        ["'made'", "'agent'", "'agents'"],
    ),
    "not a component": (lambda at: ["json:loads"], {}, ["json:loads", "function"]),
    "an unknown model": (
        lambda at: [folder(at / "a", AGENT)],
        {"PODWRIGHT_MODEL": "offline/ecco"},
        ["offline/ecco", "offline/echo"],
    ),
    "an invalid setting": (
        lambda at: [folder(at / "a", AGENT)],
        {"PODWRIGHT_PORT": "eighty"},
        ["PODWRIGHT_PORT", "'eighty'"],
    ),
    "a long path": (lambda at: ["x" * 5000], {}, ["x…"]),
    "a pipe": (lambda at: [fifo(at / "a.json")], {}, ["a.json"]),
    "a module that exits": (lambda at: [module(at, "import sys; sys.exit(3)")], {}, ["'made'", "SystemExit: 3"]),
    "an invalid price": (
        lambda at: [folder(at / "a", {**AGENT, "config": {"model": "openai/gpt-4o"}})],
        {"PODWRIGHT_PRICES": __file__, "OPENAI_API_KEY": "x"},
        ["PODWRIGHT_PRICES", "test_command.py"],
    ),
    "an invalid base URL": (
        lambda at: [folder(at / "a", {**AGENT, "config": {"model": "openai/gpt-4o"}})],
        {"OPENAI_BASE_URL": "localhost:80", "OPENAI_API_KEY": "x"},
        ["base URL", "openai/gpt-4o"],
    ),
    "an unknown allowed tool": (
        lambda at: [folder(at / "a", AGENT)],
        {"PODWRIGHT_ALLOWED_TOOLS": "shell"},
        ["PODWRIGHT_ALLOWED_TOOLS", "'shell'"],
    ),
    "an invalid allowed model": (
        lambda at: [folder(at / "a", AGENT)],
        {"PODWRIGHT_ALLOWED_MODELS": "offline/echo,gpt-4o"},
        ["PODWRIGHT_ALLOWED_MODELS", "'gpt-4o'"],
    ),
}


@pytest.mark.parametrize(("arguments", "variables", "texts"), WRONG.values(), ids=WRONG)
def test_errors_at_the_start(
    command: Command,
    tmp_path: Path,
    arguments: Callable[[Path], list[str]],
    variables: dict[str, str],
    texts: list[str],
) -> None:
    """What cannot be served is one error with a suggestion, and exit code 1."""
    process = command("serve", *arguments(tmp_path), cwd=tmp_path, **variables)
    output, _ = process.communicate(timeout=20)
    assert process.returncode == 1, output
    assert "Traceback" not in output
    assert output.count("Suggestion:") == 1
    for text in texts:
        assert text in output, output


def test_a_missing_key_is_logged(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    """The service of a model without its API key starts with a warning for each such model."""
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    models = ("openai/m", "groq/m", "openai/m", "offline/echo")
    line = Pipeline("p", [Agent(f"a{n}", "Do.", name) for n, name in enumerate(models)])
    create_app(read_settings(), line)
    assert [name in record.getMessage() for name, record in zip(models, caplog.records, strict=False)] == [True, True]
    create_app(read_settings(model="offline/echo"), line)
    assert len(caplog.records) == 2


INVALID_FILES: dict[str, Callable[[Path], object]] = {
    "a pipe": os.mkfifo,
    "a device": lambda at: at.symlink_to("/dev/zero"),
    "a folder": Path.mkdir,
    "too large a file": lambda at: (at.touch(), os.truncate(at, 1 << 40)),
    "binary data": lambda at: at.write_bytes(b"\xb6\xfe\0" * 9),
    "NaN": lambda at: at.write_text('{"openai/gpt-4o": {"input": NaN}}'),
}


@pytest.mark.parametrize("variable", ["PODWRIGHT_AGENTS_FILE", "PODWRIGHT_API_KEYS_FILE", "PODWRIGHT_PRICES"])
@pytest.mark.parametrize("make", INVALID_FILES.values(), ids=INVALID_FILES)
def test_invalid_files_of_settings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, variable: str, make: Callable[[Path], object]
) -> None:
    """A setting that names an invalid file, or something else, is an error that names it."""
    make(path := tmp_path / "given.json")
    monkeypatch.setenv(variable, str(path))
    settings = read_settings()
    with pytest.raises(ConfigurationError, match=r"given\.json"):
        create_app(settings, Pipeline("p", [Agent("a", "Do.", "openai/gpt-4o"), *remotes_of(settings).values()]))


def test_a_port_in_use(command: Command, newsroom: Path) -> None:
    """A port in use is an error that names it, once, and exit code 1."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        process = command("serve", str(newsroom / "writer"), "--host", "127.0.0.1", "--port", port)
        output, _ = process.communicate(timeout=20)
    assert (process.returncode, "Traceback" in output) == (1, False)
    assert output.count("address already in use") == 1
    assert f"127.0.0.1:{port}" in output
