"""The container engine, and the image of this source that the tests of several folders share."""

from __future__ import annotations

import contextlib
import fcntl
import functools
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import NoReturn

import pytest

ROOT = Path(__file__).parents[1]
BASE = "python:3.13-slim-trixie"


def skip(reason: str) -> NoReturn:
    """Skip a test whose tool this machine lacks; fail it where the variable CI is set."""
    (pytest.fail if os.environ.get("CI") else pytest.skip)(reason)
    raise AssertionError


@functools.cache
def engine() -> str:
    """The Docker client of a running engine."""
    found = subprocess.run([ROOT / "deploy" / "engine.sh", "docker"], capture_output=True, text=True)
    client = found.stdout.strip()
    if found.returncode or subprocess.run([client, "info"], capture_output=True).returncode:
        skip("no container engine responds; `make engine` starts one")
    return client


@contextlib.contextmanager
def built_image(folders: pytest.TempPathFactory, session: str, flavour: str = "slim") -> Iterator[str]:
    """The tag of an image of this source: the first worker that needs it builds it, the last one removes it.

    Args:
        folders: Gives a folder that all workers of the session share.
        session: The id of the test session, `testrun_uid`.
        flavour: `slim` or `full`.
    """
    client, tag = engine(), f"podwright-test-{flavour}:{session[:12]}"
    base = folders.getbasetemp()
    users = (base.parent if os.environ.get("PYTEST_XDIST_WORKER") else base) / f"users-of-{flavour}"
    with _locked(users):
        if not users.exists():
            options = ["--quiet", f"--build-arg=FLAVOUR={flavour}", "--build-arg=VERSION=0", f"--tag={tag}"]
            build = subprocess.run([client, "build", *options, ROOT], capture_output=True, text=True, timeout=1800)
            assert build.returncode == 0, build.stderr
        users.write_text(users.read_text() + "." if users.exists() else ".")
    try:
        yield tag
    finally:
        with _locked(users):
            remaining = users.read_text()[1:]
            users.write_text(remaining)
            if not remaining:
                subprocess.run([client, "rmi", "--force", tag], capture_output=True)
                users.unlink()


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[None]:
    with path.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
