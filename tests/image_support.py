"""The Docker client, images, and what the workers of a test session share."""

from __future__ import annotations

import contextlib
import fcntl
import functools
import json
import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.helpers import ROOT, skip

BASE = "python:3.13-slim-trixie"
INHERITED = (
    "PATH",
    "HOME",
    "DOCKER_HOST",
    "DOCKER_CONFIG",
    "DOCKER_CONTEXT",
    "XDG_RUNTIME_DIR",
)
"""The environment variables that a Docker client gets."""


class Docker:
    """A Docker client: `docker("history", image)` returns the standard output."""

    def __init__(self, client: str) -> None:
        self.client = client

    def run(
        self, *arguments: str | Path, **variables: str
    ) -> subprocess.CompletedProcess[str]:
        """Run a command to its end, with further environment variables."""
        environment = {
            name: os.environ[name] for name in INHERITED if name in os.environ
        }
        command = [self.client, *arguments]
        return subprocess.run(
            command,
            cwd=ROOT,
            env={**environment, **variables},
            capture_output=True,
            text=True,
            timeout=1800,
        )

    def __call__(self, *arguments: str | Path, **variables: str) -> str:
        done = self.run(*arguments, **variables)
        assert done.returncode == 0, (
            f"docker {arguments}\n{done.stdout}{done.stderr}"
        )
        return done.stdout

    def shell(self, image: str, script: str, *options: str) -> str:
        """The standard output of a shell script in a new container.

        The container ends a second later, because the engine may lose the output of one that ends before it is read.
        """
        return self(
            "run",
            "--rm",
            *options,
            "--entrypoint=sh",
            image,
            "-c",
            f"trap 'sleep 1' EXIT\n{script}",
        )

    def inspect(self, name: str) -> dict[str, Any]:
        """An image or a container."""
        return json.loads(self("inspect", name))[0]


@functools.cache
def docker() -> Docker:
    """The client of a running engine with the base image."""
    located = subprocess.run(
        [ROOT / "deploy" / "engine.sh", "docker"],
        capture_output=True,
        text=True,
    )
    client = Docker(located.stdout.strip())
    if located.returncode or client.run("image", "inspect", BASE).returncode:
        skip(
            f"A container engine with {BASE} is missing; `make engine` provides both."
        )
    return client


@contextlib.contextmanager
def built_image(
    folders: pytest.TempPathFactory, session: str, flavour: str = "slim"
) -> Iterator[str]:
    """The tag of an image of this source, which the workers of a test session share.

    Args:
        folders: Gives a folder that all workers of the session share.
        session: The id of the test session, `testrun_uid`.
        flavour: `slim` or `full`.
    """
    client = docker()
    tag = f"podwright-test-{flavour}:{session[:12]}"
    label = f"podwright.test={session}-{flavour}"

    def build() -> None:
        client(
            "build",
            "--quiet",
            f"--build-arg=FLAVOUR={flavour}",
            "--build-arg=VERSION=0",
            f"--label={label}",
            f"--tag={tag}",
            ".",
        )

    def delete() -> None:
        # images based on it that lost their tag to a later build have its label too
        client.run("image", "rm", "--force", tag)
        client.run("image", "prune", "--force", f"--filter=label={label}")

    with shared(
        folders,
        f"image-{flavour}",
        build,
        delete,
    ):
        yield tag


def build_program(
    program: Path, tag: str, base: str = "scratch", *lines: str
) -> None:
    """Build an image with a program, as which it runs.

    Args:
        program: The path of the program; it is `/bin/NAME` in the image.
        tag: The image's tag.
        base: The image that it is based on.
        *lines: Further lines of the Dockerfile.
    """
    dockerfile = "\n".join(
        [
            f"FROM {base}",
            *lines,
            f"COPY --from=programs {program.name} /bin/",
            f'ENTRYPOINT ["/bin/{program.name}"]',
        ]
    )
    command = [
        "build",
        "--quiet",
        f"--tag={tag}",
        f"--build-context=programs={program.parent}",
        "-",
    ]
    done = subprocess.run(
        [docker().client, *command],
        input=dockerfile,
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, done.stderr


def build_postgresql() -> str:
    """Build an image of PostgreSQL, and return its tag."""
    tag = "podwright/postgresql:test"
    docker()(
        "build",
        "--quiet",
        f"--build-arg=BASE_IMAGE={BASE}",
        f"--tag={tag}",
        "tests/database",
    )
    return tag


@contextlib.contextmanager
def shared(
    folders: pytest.TempPathFactory,
    name: str,
    start: Callable[[], bool | None],
    stop: Callable[[], object],
) -> Iterator[None]:
    """Something that the workers of a test session share: the first one starts it, the last one stops it.

    Args:
        folders: Gives a folder that all workers of the session share.
        name: Its name in the session.
        start: Starts it. If that fails, the next worker tries it again. False if it was there before the session.
        stop: Stops it, unless it was there before.
    """
    base = folders.getbasetemp()
    users = (
        base.parent if os.environ.get("PYTEST_XDIST_WORKER") else base
    ) / f"users-of-{name}"
    found = users.with_suffix(".found")
    with _locked(users):
        if not users.exists():
            found.unlink(missing_ok=True)
            if start() is False:
                found.touch()
        users.write_text(users.read_text() + "." if users.exists() else ".")
    try:
        yield
    finally:
        with _locked(users):
            remaining = users.read_text()[1:]
            users.write_text(remaining)
            if not remaining:
                users.unlink()
                if not found.exists():
                    stop()


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[None]:
    with path.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
