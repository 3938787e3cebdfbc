"""`podwright check`, the probe, and what the command itself is like."""

from __future__ import annotations

import os
import pty
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from podwright import Agent
from podwright_service.cli import probe

Shell = Callable[..., subprocess.CompletedProcess[str]]


def test_a_service_that_is_ready(shell: Shell, serve: Callable[..., object]) -> None:
    """The probe asks /ready unless the address has a path, and its exit code is 0 for 200 alone."""
    url = str(serve(Agent("a", "Do.", "offline/echo")).base_url).rstrip("/")  # pyright: ignore[reportAttributeAccessIssue]
    done = shell("check", url)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == f'{url}: 200 {{"status":"ready"}}\n'
    assert shell("check", url.removeprefix("http://")).returncode == 0
    assert shell("check", f"{url}/health", "--timeout", "20").returncode == 0
    missing = shell("check", f"{url}/nowhere")
    assert (missing.returncode, missing.stdout) == (1, "")
    assert ": 404 " in missing.stderr
    here = shell("check", PODWRIGHT_PORT=url.rpartition(":")[2])
    assert (here.returncode, here.stderr) == (0, "")


@pytest.mark.parametrize(
    ("variables", "address"),
    [
        ({}, "http://127.0.0.1:8000/ready"),
        ({"PODWRIGHT_PORT": "9000", "PODWRIGHT_HOST": "::"}, "http://127.0.0.1:9000/ready"),
        ({"PODWRIGHT_PORT": "tcp://10.0.0.7:80", "PODWRIGHT_HOST": "::1"}, "http://[::1]:8000/ready"),
    ],
)
def test_the_address_of_this_machine(monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], address: str) -> None:
    """Without an address, the probe asks where the settings say that the service listens."""
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert probe._here() == address


@pytest.mark.parametrize("url", ["127.0.0.1:1", "ftp://x", "http://", "http://x:port", "http://[", "\x00"])
def test_what_does_not_answer(shell: Shell, url: str) -> None:
    """No service, or no address, is exit code 1 and one line."""
    if url == "\x00":
        url = "http://a\nb"
    done = shell("check", url)
    assert (done.returncode, done.stdout) == (1, "")
    assert "Traceback" not in done.stderr


def test_an_answer_that_does_not_end(shell: Shell) -> None:
    """A server that sends a byte now and then keeps the probe for no longer than its time."""
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def drip() -> None:
            connection, _ = listening.accept()
            with connection:
                try:
                    for _ in range(600):
                        connection.sendall(b"x")
                        time.sleep(0.1)
                except OSError:
                    return

        thread = threading.Thread(target=drip)
        thread.start()
        began = time.monotonic()
        done = shell("check", f"127.0.0.1:{listening.getsockname()[1]}", "--timeout", "0.5")
        thread.join(timeout=30)
    assert (done.returncode, "no answer within 0.5 s" in done.stderr) == (1, True), done
    assert time.monotonic() - began < 20


def test_the_probe_imports_next_to_nothing() -> None:
    """Neither the command line, nor pydantic, nor rich is imported for a probe."""
    code = (
        "import sys\nfrom podwright_service.cli import main\nsys.argv = ['podwright', 'check', '127.0.0.1:1']\n"
        "try:\n    main()\nexcept SystemExit as end:\n    code = end.code\n"
        "heavy = {'typer', 'pydantic', 'rich', 'fastapi', 'aiohttp', 'yaml', 'asyncio'} & set(sys.modules)\n"
        "print(code, sorted(heavy))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout == "1 []\n", done.stderr


@pytest.mark.parametrize("arguments", [["--help"], ["serve", "--help"], ["run", "--help"]])
def test_help_imports_no_framework(arguments: list[str]) -> None:
    """Help is quick: it needs neither the settings nor the web framework."""
    code = (
        f"import sys\nfrom podwright_service.cli import main\nsys.argv = ['podwright', *{arguments!r}]\n"
        "try:\n    main()\nexcept SystemExit as end:\n    assert not end.code\n"
        "print('heavy:', sorted({'pydantic_settings', 'fastapi', 'uvicorn', 'aiohttp'} & set(sys.modules)))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout.endswith("heavy: []\n"), done


def test_a_misspelt_command(shell: Shell) -> None:
    """It is exit code 2, and the nearest command is suggested."""
    done = shell("srve")
    assert (done.returncode, "Did you mean 'serve'?" in done.stderr) == (2, True)


def test_control_characters_do_not_steer_a_terminal(tmp_path: Path) -> None:
    """On a terminal, an answer's escape sequences are replaced."""
    (tmp_path / "made.py").write_text(
        "from podwright import Agent, ScriptedModel\na = Agent('a', 'Do.', ScriptedModel('\\x1b[2Jhello\\x07'))\n"
    )
    master, slave = pty.openpty()
    command = str(Path(sys.executable).with_name("podwright"))
    process = subprocess.Popen(
        [command, "run", "made:a", "x", "-q"], cwd=tmp_path, stdin=subprocess.DEVNULL, stdout=slave, stderr=slave
    )
    os.close(slave)
    told = b""
    try:
        while piece := os.read(master, 1024):
            told += piece
    except OSError:  # how Linux says that the other end is closed
        pass
    os.close(master)
    assert process.wait(timeout=30) == 0
    assert b"hello" in told
    assert b"\x1b[2J" not in told
    assert b"\x07" not in told
