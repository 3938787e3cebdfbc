"""The command `podwright serve`, as a process of its own."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Callable
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

MISTAKES: dict[str, tuple[Callable[[Path], list[str]], dict[str, str], list[str]]] = {
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
        ["The module 'made' has no attribute 'agent'", "Did you mean 'agents'?"],
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


@pytest.mark.parametrize(("arguments", "variables", "texts"), MISTAKES.values(), ids=MISTAKES)
def test_a_mistake_stops_the_start(
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
