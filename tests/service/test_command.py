"""`podwright serve` and the class `Service`, in processes of their own."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.helpers import plain_http
from tests.service.support import Address, Command, check_end

from podwright import Agent, Pipeline
from podwright.errors import ConfigurationError
from podwright_service.app import create_app
from podwright_service.remotes import remotes_of
from podwright_service.settings import read_settings

AGENT = {
    "name": "a",
    "instructions": "Do.",
    "config": {"model": "offline/echo"},
}


@pytest.mark.parametrize("workers", ["1", "2"])
def test_a_folder_is_served_until_a_signal(
    command: Command, address: Address, newsroom: Path, workers: str
) -> None:
    """`podwright serve` serves a folder with the model of the environment, and ends on SIGTERM with exit code 0."""
    arguments = (
        "serve",
        str(newsroom / "newsroom"),
        "--port",
        "0",
        "--title",
        "News",
    )
    # with Python's own start and exit
    code = "from podwright_service.cli import main; main()"
    process = command(
        *arguments,
        code=code,
        PODWRIGHT_MODEL="offline/echo",
        PODWRIGHT_WORKERS=workers,
    )
    url = address(process)
    assert plain_http.get(f"{url}/info").json()["title"] == "News"
    assert (
        plain_http.post(f"{url}/run", json={"input": "the moon"}).json()[
            "input"
        ]
        == "the moon"
    )
    process.send_signal(signal.SIGTERM)
    check_end(process)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_the_class_serves_and_blocks(
    command: Command, address: Address, number: signal.Signals
) -> None:
    """`Service(component, title).run(host, port)` serves until a signal, then the call returns."""
    code = (
        "from podwright import Agent\nfrom podwright_service import Service\n"
        "Service(Agent('a', 'Do.', 'offline/echo'), title='T').run(host='127.0.0.1', port=0)\n"
        "print('returned')\n"
    )
    process = command(code=code)
    url = address(process)
    assert plain_http.get(f"{url}/info").json()["title"] == "T"
    assert plain_http.post(f"{url}/run", json={"input": "x"}).json() == {
        "output": "Echo: x"
    }
    process.send_signal(number)
    assert check_end(process).endswith("returned\n")


def folder(at: Path, blueprint: object, **files: str) -> str:
    at.mkdir()
    (at / "blueprint.json").write_text(
        blueprint if isinstance(blueprint, str) else json.dumps(blueprint)
    )
    for name, text in files.items():
        (at / f"{name}.py").write_text(text)
    return str(at)


def fifo(at: Path) -> str:
    os.mkfifo(at)
    return str(at)


def module(at: Path, code: str) -> str:
    (at / "made.py").write_text(code)
    return "made:agent"


TOOL = {
    "name": "t",
    "schema": {
        "type": "function",
        "function": {"name": "t", "parameters": {"type": "object"}},
    },
}

WRONG: dict[
    str, tuple[Callable[[Path], list[str]], dict[str, str], list[str]]
] = {
    "nothing": (lambda at: [], {}, ["PODWRIGHT_COMPONENT"]),
    "a missing file": (lambda at: [str(at / "a.json")], {}, ["a.json"]),
    "a misspelt folder": (
        lambda at: [folder(at / "writer", AGENT).replace("writer", "writter")],
        {},
        ["writter", "'writer'"],
    ),
    "an empty folder": (lambda at: [str(at)], {}, []),
    "invalid tools": (
        lambda at: [
            folder(at / "a", {**AGENT, "tools": [TOOL]}, tools="def t(:")
        ],
        {},
        ["tools.py", "SyntaxError"],
    ),
    "missing tools": (
        lambda at: [folder(at / "a", {**AGENT, "tools": [TOOL]})],
        {},
        ["/tools/0", "'t'"],
    ),
    "invalid JSON": (
        lambda at: [folder(at / "a", "{")],
        {},
        ["blueprint.json'"],
    ),
    "an invalid blueprint": (
        lambda at: [folder(at / "a", {"name": "a", "instruction": 1})],
        {},
        ["/instruction", "'instructions'", "'config'"],
    ),
    "a missing module": (lambda at: ["nowhere:agent"], {}, ["'nowhere'"]),
    "a misspelt attribute": (
        lambda at: [
            module(
                at,
                "from podwright import Agent\nagents = Agent('a', 'Do.', 'offline/echo')\n",
            )
        ],
        {},
        ["'made'", "'agent'", "'agents'"],
    ),
    "not a component": (
        lambda at: ["json:loads"],
        {},
        ["json:loads", "function"],
    ),
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
    "a module that exits": (
        lambda at: [module(at, "import sys; sys.exit(3)")],
        {},
        ["'made'", "SystemExit: 3"],
    ),
    "an invalid price": (
        lambda at: [
            folder(at / "a", {**AGENT, "config": {"model": "openai/gpt-4o"}})
        ],
        {"PODWRIGHT_PRICES": __file__, "OPENAI_API_KEY": "x"},
        ["PODWRIGHT_PRICES", "test_command.py"],
    ),
    "an invalid base URL": (
        lambda at: [
            folder(at / "a", {**AGENT, "config": {"model": "openai/gpt-4o"}})
        ],
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


@pytest.mark.parametrize(
    ("arguments", "variables", "texts"), WRONG.values(), ids=WRONG
)
def test_errors_at_the_start(
    command: Command,
    tmp_path: Path,
    arguments: Callable[[Path], list[str]],
    variables: dict[str, str],
    texts: list[str],
) -> None:
    """What cannot be served is one error with a suggestion, and exit code 1."""
    process = command("serve", *arguments(tmp_path), cwd=tmp_path, **variables)
    output = check_end(process, 1)
    assert output.count("Suggestion:") == 1
    for text in texts:
        assert text in output, output


def test_what_models_lack_is_logged(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The service of models without an API key, or without a price, starts with a warning for each of them."""
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    models = ("openai/m", "groq/m", "openai/m", "offline/echo")
    line = Pipeline(
        "p", [Agent(f"a{n}", "Do.", name) for n, name in enumerate(models)]
    )
    create_app(read_settings(), line)
    expected = [
        f"{what} '{name}'"
        for what in ("Missing API key for", "The price of")
        for name in ("openai/m", "groq/m")
    ]
    logged = [record.getMessage() for record in caplog.records]
    assert [
        text.startswith(begin)
        for text, begin in zip(logged, expected, strict=True)
    ] == [True] * 4
    create_app(read_settings(model="offline/echo"), line)
    assert len(caplog.records) == 4


INVALID_FILES: dict[str, Callable[[Path], object]] = {
    "nothing": lambda at: None,
    "a pipe": os.mkfifo,
    "a device": lambda at: at.symlink_to("/dev/zero"),
    "a folder": Path.mkdir,
    "too large a file": lambda at: (at.touch(), os.truncate(at, 1 << 40)),
    "binary data": lambda at: at.write_bytes(b"\xb6\xfe\0" * 9),
    "NaN": lambda at: at.write_text('{"openai/gpt-4o": {"input": NaN}}'),
}


@pytest.mark.parametrize(
    "variable",
    ["PODWRIGHT_AGENTS_FILE", "PODWRIGHT_API_KEYS_FILE", "PODWRIGHT_PRICES"],
)
@pytest.mark.parametrize("make", INVALID_FILES.values(), ids=INVALID_FILES)
def test_invalid_files_of_settings(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    variable: str,
    make: Callable[[Path], object],
) -> None:
    """A setting that names an invalid file, or something else, is an error that names it."""
    make(path := tmp_path / "given.json")
    monkeypatch.setenv(variable, str(path))
    settings = read_settings()
    with pytest.raises(ConfigurationError, match=r"given\.json"):
        create_app(
            settings,
            Pipeline(
                "p",
                [
                    Agent("a", "Do.", "openai/gpt-4o"),
                    *remotes_of(settings).values(),
                ],
            ),
        )
