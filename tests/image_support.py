"""The Docker client, and the image of this source that the tests of several folders share."""

from __future__ import annotations

import contextlib
import fcntl
import functools
import json
import os
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NoReturn, TypeVar

import pytest

ROOT = Path(__file__).parents[1]
BASE = "python:3.13-slim-trixie"
INHERITED = ("PATH", "HOME", "DOCKER_HOST", "DOCKER_CONFIG", "DOCKER_CONTEXT", "XDG_RUNTIME_DIR")
"""The environment variables that a Docker client gets."""

Value = TypeVar("Value")


def skip(reason: str) -> NoReturn:
    """Skip a test whose tool this machine lacks; fail it where the variable CI is set."""
    (pytest.fail if os.environ.get("CI") else pytest.skip)(reason)
    raise AssertionError


def eventually(
    condition: Callable[[], Value], within: float = 60, report: Callable[[], object] = lambda: "nothing to report"
) -> Value:
    """The first true value of a condition, which is polled.

    Args:
        condition: A function that returns a false value as long as it does not hold.
        within: Seconds to wait.
        report: Called for the message of the failure.
    """
    deadline = time.monotonic() + within
    while not (value := condition()):
        assert time.monotonic() < deadline, f"not within {within:g} seconds: {report()}"
        time.sleep(0.1)
    return value


class Docker:
    """A Docker client: `docker("run", "--rm", image)` returns the standard output."""

    def __init__(self, client: str) -> None:
        self.client = client

    def run(self, *arguments: str | Path, **variables: str) -> subprocess.CompletedProcess[str]:
        """Run a command to its end, with further environment variables."""
        environment = {name: os.environ[name] for name in INHERITED if name in os.environ}
        command = [self.client, *arguments]
        return subprocess.run(
            command, cwd=ROOT, env={**environment, **variables}, capture_output=True, text=True, timeout=1800
        )

    def __call__(self, *arguments: str | Path, **variables: str) -> str:
        done = self.run(*arguments, **variables)
        assert done.returncode == 0, f"docker {arguments}\n{done.stdout}{done.stderr}"
        return done.stdout

    def inspect(self, name: str) -> dict[str, Any]:
        """An image or a container."""
        return json.loads(self("inspect", name))[0]


@functools.cache
def docker() -> Docker:
    """The client of a running engine with the base image."""
    found = subprocess.run([ROOT / "deploy" / "engine.sh", "docker"], capture_output=True, text=True)
    client = Docker(found.stdout.strip())
    if found.returncode or client.run("image", "inspect", BASE).returncode:
        skip(f"there is no container engine, or it lacks {BASE}; `make engine` provides both")
    return client


@contextlib.contextmanager
def built_image(folders: pytest.TempPathFactory, session: str, flavour: str = "slim") -> Iterator[str]:
    """The tag of an image of this source: the first worker that needs it builds it, the last one removes it.

    Args:
        folders: Gives a folder that all workers of the session share.
        session: The id of the test session, `testrun_uid`.
        flavour: `slim` or `full`.
    """
    client, tag = docker(), f"podwright-test-{flavour}:{session[:12]}"
    base = folders.getbasetemp()
    users = (base.parent if os.environ.get("PYTEST_XDIST_WORKER") else base) / f"users-of-{flavour}"
    with _locked(users):
        if not users.exists():
            client("build", "--quiet", f"--build-arg=FLAVOUR={flavour}", "--build-arg=VERSION=0", f"--tag={tag}", ".")
        users.write_text(users.read_text() + "." if users.exists() else ".")
    try:
        yield tag
    finally:
        with _locked(users):
            remaining = users.read_text()[1:]
            users.write_text(remaining)
            if not remaining:
                client.run("image", "rm", "--force", tag)
                users.unlink()


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[None]:
    with path.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
