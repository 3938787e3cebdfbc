"""`podwright check`, help, and exit codes of wrong usage."""

from __future__ import annotations

import socket
import subprocess
import sys

import pytest
from tests.service.support import Serve, Shell

from podwright import Agent, __version__
from podwright_service.cli.check import default_url


def test_a_service_that_is_ready(shell: Shell, serve: Serve) -> None:
    """The check asks /ready unless the address has a path; its exit code is 0 for status 200 only."""
    url = str(serve(Agent("a", "Do.", "offline/echo")).base_url).rstrip("/")
    done = shell("check", url)
    assert (done.returncode, done.stdout, done.stderr) == (
        0,
        f'{url}: 200 {{"status":"ready"}}\n',
        "",
    )
    assert (
        shell(
            "check", f"{url.removeprefix('http://')}/health", "--timeout", "20"
        ).returncode
        == 0
    )
    missing = shell("check", f"{url}/nowhere")
    assert (missing.returncode, missing.stdout) == (1, "")
    assert "404" in missing.stderr
    assert shell("check", PODWRIGHT_PORT=url.rpartition(":")[2]).returncode == 0


@pytest.mark.parametrize(
    ("variables", "url"),
    [
        ({}, "http://127.0.0.1:8000/ready"),
        (
            {"PODWRIGHT_PORT": "9000", "PODWRIGHT_HOST": "::"},
            "http://127.0.0.1:9000/ready",
        ),
        ({"PODWRIGHT_HOST": "*"}, "http://127.0.0.1:8000/ready"),
        ({"PODWRIGHT_HOST": "[::]"}, "http://127.0.0.1:8000/ready"),
        ({"PODWRIGHT_HOST": "[::1]"}, "http://[::1]:8000/ready"),
        (
            {"PODWRIGHT_PORT": "tcp://10.0.0.7:80", "PODWRIGHT_HOST": "::1"},
            "http://[::1]:8000/ready",
        ),
    ],
)
def test_the_address_of_this_machine(
    monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], url: str
) -> None:
    """Without an address, the check asks the address in the settings of the service."""
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert default_url() == url


@pytest.mark.parametrize(
    "url", ["127.0.0.1:1", "ftp://x", "http://x:port", "http://a\nb"]
)
def test_no_response(shell: Shell, url: str) -> None:
    """No service, or an invalid address, is exit code 1 and one line."""
    done = shell("check", url)
    assert (done.returncode, done.stdout, len(done.stderr.splitlines())) == (
        1,
        "",
        1,
    )


def test_a_service_that_hangs(shell: Shell) -> None:
    """The check ends with the time-out."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        done = shell(
            "check",
            f"127.0.0.1:{listening.getsockname()[1]}",
            "--timeout",
            "0.2",
        )
    assert (done.returncode, "0.2 s" in done.stderr) == (1, True), done


def imported_by(*arguments: str) -> set[str]:
    code = (
        f"import sys\nfrom podwright_service.cli import main\nsys.argv = ['podwright', *{arguments!r}]\n"
        "try:\n    main()\nexcept SystemExit:\n    pass\n"
        "print('imported:', *sys.modules)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True
    )
    return set(done.stdout.rpartition("imported:")[2].split())


def test_commands_import_what_they_need() -> None:
    """The health check needs only the standard library, a service no parser, help neither settings nor framework."""
    assert "http.client" in (imported := imported_by("check"))
    assert not {"typer", "pydantic", "rich", "yaml", "asyncio"} & imported
    assert "typer" not in imported_by("serve")
    assert "typer" in (imported := imported_by("serve", "--help"))
    assert not {"pydantic_settings", "fastapi", "uvicorn", "aiohttp"} & imported


def test_help_and_version(shell: Shell) -> None:
    """`--version` prints the version, `--help` a complete line for each command, and `serve --help` its options."""
    assert shell("--version").stdout.strip() == __version__
    commands = shell("--help", COLUMNS="80").stdout.partition("Commands:")[2]
    assert "serve" in commands
    assert "..." not in commands  # no summary is cut off
    options = shell("serve", "--help").stdout
    assert all(
        option in options
        for option in ("--host", "--port", "--title", "--model", "PATH")
    )
