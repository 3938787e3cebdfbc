"""Real images and containers: both flavours are built once, from the unmodified Dockerfile."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.image.containers import Container, Engine

ROOT = Path(__file__).parents[2]
COMMAND = Path(sys.executable).with_name("podwright")
BASE = "python:3.13-slim-trixie"

Shell = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture(scope="session")
def engine() -> Engine:
    """The engine of this machine, with the base image."""
    found = subprocess.run([ROOT / "deploy" / "engine.sh", "docker"], capture_output=True, text=True)
    client = found.stdout.strip()
    if found.returncode or subprocess.run([client, "image", "inspect", BASE], capture_output=True).returncode:
        missing = f"NO CONTAINER ENGINE ANSWERS, or it lacks {BASE}: the image is not tested; `make engine` brings both"
        (pytest.fail if os.environ.get("CI") else pytest.skip)(missing)
    return Engine(client)


@pytest.fixture(scope="session")
def images(engine: Engine) -> Iterator[Callable[[str], str]]:
    """The image of a flavour, by a name that nobody else has; built when it is first asked for."""
    mark = uuid.uuid4().hex[:12]
    built: dict[str, str] = {}

    def image(flavour: str) -> str:
        if flavour not in built:
            name = f"podwright-test-{mark}:{flavour}"
            engine("build", "--quiet", f"--tag={name}", f"--build-arg=FLAVOUR={flavour}", "--build-arg=VERSION=0", ROOT)
            built[flavour] = name
        return built[flavour]

    yield image
    for name in built.values():
        engine("image", "rm", "--force", name)


@pytest.fixture(scope="session", params=["direct", "full"])
def image(request: pytest.FixtureRequest, images: Callable[[str], str]) -> str:
    """Each flavour in turn."""
    return images(request.param)


@pytest.fixture(scope="session")
def direct(images: Callable[[str], str]) -> str:
    """The small flavour."""
    return images("direct")


@pytest.fixture
def start(engine: Engine) -> Iterator[Callable[..., Container]]:
    """Starts a container: `start(image, "--read-only", command=("serve",), NAME=value)`."""
    with contextlib.ExitStack() as stack:

        def begin(image: str, *options: str, command: tuple[str, ...] = (), **variables: str) -> Container:
            given = [f"--env={key}={value}" for key, value in variables.items()]
            container = Container(engine, engine("run", "--detach", *options, *given, image, *command).strip())
            stack.callback(lambda: engine("rm", "--force", "--volumes", container.id))
            return container

        yield begin


@pytest.fixture
def tag(engine: Engine) -> Iterator[str]:
    """A name for an image that a test builds."""
    name = f"podwright-test-{uuid.uuid4().hex[:12]}"
    yield name
    engine.says("image", "rm", "--force", name)


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    """Runs `podwright` with arguments to its end, as a shell does."""

    def run(*arguments: str, program: tuple[str, ...] = (str(COMMAND),), **variables: str):
        kept = {name: value for name, value in os.environ.items() if not name.startswith("PODWRIGHT_")}
        return subprocess.run(
            [*program, *arguments],
            capture_output=True,
            text=True,
            cwd=tmp_path,
            env={**kept, **variables},
            timeout=900,
        )

    return run
