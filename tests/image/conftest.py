"""Images and containers for the tests of this folder."""

from __future__ import annotations

import contextlib
import subprocess
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.forked import complete
from tests.helpers import environment
from tests.image.containers import Container
from tests.image_support import Docker

Shell = Callable[..., subprocess.CompletedProcess[str]]
Start = Callable[..., Container]


@pytest.fixture(scope="session", params=["slim", "full"])
def image(request: pytest.FixtureRequest) -> str:
    """Each flavour in turn."""
    return request.getfixturevalue(request.param)


@pytest.fixture
def start(docker: Docker) -> Iterator[Start]:
    """Starts a container: `start(image, "--read-only", command=("serve",), NAME=value)`."""
    with contextlib.ExitStack() as stack:

        def run(
            image: str,
            *options: str,
            command: tuple[str, ...] = (),
            **variables: str,
        ) -> Container:
            environment = [
                f"--env={key}={value}" for key, value in variables.items()
            ]
            id = docker(
                "run", "--detach", *options, *environment, image, *command
            ).strip()
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
def shell(tmp_path: Path, tmp_path_factory: pytest.TempPathFactory) -> Shell:
    """Runs `podwright` with arguments to its end, as a shell does; `program=` runs another program."""
    streams = tmp_path_factory.mktemp("streams")

    def run(
        *arguments: str, program: tuple[str, ...] = (), **variables: str
    ) -> subprocess.CompletedProcess[str]:
        if not program:
            return complete(
                arguments, tmp_path, environment(**variables), streams
            )
        command = [*program, *arguments]
        return subprocess.run(
            command,
            capture_output=True,
            text=True,
            cwd=tmp_path,
            env=environment(**variables),
            timeout=900,
        )

    return run
