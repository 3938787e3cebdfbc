"""The container engine and the image that tests of several folders share."""

from __future__ import annotations

import contextlib
import fcntl
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import NoReturn

import pytest

ROOT = Path(__file__).parents[1]


def give_up(reason: str) -> NoReturn:
    """Skip a test whose tool this machine lacks; fail it where everything has to be there."""
    (pytest.fail if os.environ.get("CI") else pytest.skip)(reason)
    raise AssertionError


def engine() -> str:
    """The client of an engine that answers."""
    found = subprocess.run([ROOT / "deploy" / "engine.sh", "docker"], capture_output=True, text=True)
    client = found.stdout.strip()
    if found.returncode or subprocess.run([client, "info"], capture_output=True).returncode:
        give_up("no container engine answers here; `make engine` brings one up")
    return client


@contextlib.contextmanager
def built_image(session: str, shared: Path, flavour: str = "direct") -> Iterator[str]:
    """The tag of an image of this source, built by the first worker that asks and removed by the last one.

    Args:
        session: What tells this run of the tests from others.
        shared: A folder that all of its workers see.
        flavour: Of the Dockerfile.
    """
    client, tag = engine(), f"podwright-test-{flavour}:{session}"
    users = shared / f"image-{flavour}"
    with _locked(users):
        if not users.exists():
            command = [client, "build", "--quiet", "--build-arg", f"FLAVOUR={flavour}", "--tag", tag, "."]
            done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=1800)
            assert done.returncode == 0, done.stderr
        users.write_text(users.read_text() + "." if users.exists() else ".")
    try:
        yield tag
    finally:
        with _locked(users):
            left = users.read_text()[1:]
            users.write_text(left)
            if not left:
                subprocess.run([client, "rmi", "--force", tag], capture_output=True)
                users.unlink()


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[None]:
    with path.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
