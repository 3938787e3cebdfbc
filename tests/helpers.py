"""Helpers that the tests of several folders share."""

from __future__ import annotations

import os
import socket
import ssl
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NoReturn, TypeVar

import httpx
import pytest

from podwright import blueprints

ROOT = Path(__file__).parents[1]
NEWSROOM = ROOT / "deploy" / "examples" / "newsroom"
SCAFFOLD = ROOT / "service" / "src" / "podwright_service" / "scaffold"
DESK = SCAFFOLD / "examples" / "desk"
COMMAND = Path(sys.executable).with_name("podwright")
NO_AUTHORITIES = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
"""Trusts no certificate: as `verify` of httpx, it saves loading all authorities, which costs more than a request."""
plain_http = httpx.Client(
    verify=NO_AUTHORITIES,
    limits=httpx.Limits(max_keepalive_connections=0),
    timeout=60,
)
"""Sends each request on a new connection. For URLs without TLS, and not for cookies."""

Value = TypeVar("Value")


def skip(reason: str) -> NoReturn:
    """Skip a test whose tool is missing on this machine; fail it if the variable CI is set."""
    (pytest.fail if os.environ.get("CI") else pytest.skip)(reason)
    raise AssertionError


def _has_ipv6() -> bool:
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError:
        return False
    return True


needs_ipv6 = pytest.mark.skipif(
    not _has_ipv6(), reason="The kernel has no IPv6, or it is turned off."
)
"""For tests whose processes listen on IPv6."""


def until(
    condition: Callable[[], Value],
    seconds: float = 60,
    report: Callable[[], object] = lambda: "nothing to report",
    pause: float | None = None,
) -> Value:
    """Poll a condition, and return its first true value.

    Args:
        condition: Returns a false value until it holds.
        seconds: Seconds to wait before the test fails.
        report: Called for the message of the failure.
        pause: Seconds between two attempts; by default 0.02 at first, and up to 0.3 later, because attempts cost CPU.
    """
    deadline, wait = time.monotonic() + seconds, pause or 0.02
    while not (value := condition()):
        assert time.monotonic() < deadline, (
            f"The condition did not hold within {seconds:g} seconds: {report()}"
        )
        time.sleep(wait)
        wait = pause or min(2 * wait, 0.3)
    return value


def write_files(folder: Path, files: Mapping[str, Any]) -> Path:
    """Write files below a folder, and return the folder: texts as they are, data as JSON or YAML."""
    for name, content in files.items():
        file = folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        text = content
        if not isinstance(content, str):
            to_text = blueprints.to_yaml
            if file.suffix == ".json":
                to_text = blueprints.to_json
            text = to_text(content)
        file.write_text(text, encoding="utf-8")
    return folder


NO_PLUGINS = "-p no:schemathesis -p no:langsmith_plugin -p no:hypothesispytest"
"""Options of pytest in other projects: without plugins that only this repository uses, and that are slow to import."""


def environment(**variables: str) -> dict[str, str]:
    """The environment of this process without the settings of Podwright and pytest, and with further variables.

    The commands that are installed beside Python are found first.
    """
    variables = {"PYTEST_ADDOPTS": NO_PLUGINS, **variables}
    inherited = {
        key: value
        for key, value in os.environ.items()
        if not key.startswith(("PODWRIGHT_", "PYTEST_"))
    }
    return {
        **inherited,
        "PATH": f"{COMMAND.parent}:{os.environ['PATH']}",
        **variables,
    }


def tool(name: str) -> str:
    """The path of a program that `make programs` has built."""
    done = subprocess.run(
        [ROOT / "deploy" / "tools.sh", "path", name],
        capture_output=True,
        text=True,
    )
    if done.returncode:
        skip(f"{name} is missing: {done.stderr.strip()}")
    return done.stdout.strip()
