"""Real images and containers."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests import image_support
from tests.image.containers import Container
from tests.image_support import Docker

COMMAND = Path(sys.executable).with_name("podwright")

Shell = Callable[..., subprocess.CompletedProcess[str]]
Start = Callable[..., Container]


@pytest.fixture(scope="session")
def docker() -> Docker:
    """The client of this machine's engine."""
    return image_support.docker()


@pytest.fixture(scope="session")
def slim(tmp_path_factory: pytest.TempPathFactory, testrun_uid: str) -> Iterator[str]:
    """The image of the flavour `slim`."""
    with image_support.built_image(tmp_path_factory, testrun_uid) as tag:
        yield tag


@pytest.fixture(scope="session")
def full(tmp_path_factory: pytest.TempPathFactory, testrun_uid: str) -> Iterator[str]:
    """The image of the flavour `full`."""
    with image_support.built_image(tmp_path_factory, testrun_uid, "full") as tag:
        yield tag


@pytest.fixture(scope="session", params=["slim", "full"])
def image(request: pytest.FixtureRequest) -> str:
    """Each flavour in turn."""
    return request.getfixturevalue(request.param)


@pytest.fixture
def start(docker: Docker) -> Iterator[Start]:
    """Starts a container: `start(image, "--read-only", command=("serve",), NAME=value)`."""
    with contextlib.ExitStack() as stack:

        def run(image: str, *options: str, command: tuple[str, ...] = (), **variables: str) -> Container:
            environment = [f"--env={key}={value}" for key, value in variables.items()]
            id = docker("run", "--detach", *options, *environment, image, *command).strip()
            stack.callback(docker, "rm", "--force", "--volumes", id)
            return Container(docker, id)

        yield run


@pytest.fixture
def tag(docker: Docker) -> Iterator[str]:
    """The name of an image that a test builds."""
    name = f"podwright-test-{uuid.uuid4().hex[:12]}"
    yield name
    docker.run("image", "rm", "--force", name)


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    """Runs `podwright` with arguments to its end, as a shell does."""

    def run(*arguments: str, program: tuple[str, ...] = (str(COMMAND),), **variables: str):
        inherited = {name: value for name, value in os.environ.items() if not name.startswith("PODWRIGHT_")}
        return subprocess.run(
            [*program, *arguments],
            capture_output=True,
            text=True,
            cwd=tmp_path,
            env={**inherited, **variables},
            timeout=900,
        )

    return run
