"""A fleet of containers, brought up by the compose file of the repository as it stands."""

from __future__ import annotations

import json
import os
import subprocess
import time
import uuid
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import httpx

ROOT = Path(__file__).parents[2]
HERE = Path(__file__).parent
STAFF = ["researcher", "reviewer", "writer"]
COMPONENTS = ["desk", "newsroom", *STAFF]
PUBLISHED = {"PORT": "0", "DESK_PORT": "0", "PROMETHEUS_PORT": "0", "JAEGER_PORT": "0", "GRAFANA_PORT": "0"}
"""The host's ports are chosen by the engine: many fleets are up at once."""
NEEDED = ("PATH", "HOME", "DOCKER_HOST", "DOCKER_CONFIG", "DOCKER_CONTEXT", "XDG_RUNTIME_DIR")

Found = TypeVar("Found")


def eventually(look: Callable[[], Found], within: float = 60, told: Callable[[], object] = lambda: "") -> Found:
    """What `look` finds, once that is something."""
    deadline = time.monotonic() + within
    while not (found := look()):
        assert time.monotonic() < deadline, f"not within {within} seconds: {told()}"
        time.sleep(0.2)
    return found


class Engine:
    """The Docker client."""

    def __init__(self, client: str) -> None:
        self.client = client

    def __call__(self, *arguments: str, check: bool = True, **variables: str) -> str:
        """What a command prints; nothing but a few variables of the machine reach it, and those given."""
        kept = {name: os.environ[name] for name in NEEDED if name in os.environ}
        done = subprocess.run(
            [self.client, *arguments], cwd=ROOT, env={**kept, **variables}, capture_output=True, text=True, timeout=300
        )
        assert not check or done.returncode == 0, f"docker {' '.join(arguments)}\n{done.stdout}{done.stderr}"
        return done.stdout

    def inspect(self, container: str) -> dict[str, Any]:
        return json.loads(self("inspect", container))[0]


class Composed:
    """One fleet.

    Args:
        engine: Who runs it.
        images: The image of each service that is not to be the one that the file names, and of the components.
        extra: Another compose file, which adds to the repository's.
        **variables: As a user sets them.
    """

    def __init__(self, engine: Engine, images: dict[str, str], folder: Path, extra: str = "", **variables: str) -> None:
        self._engine, self.project = engine, f"podwright-test-{uuid.uuid4().hex[:12]}"
        self._variables = {**PUBLISHED, **variables, "IMAGE": images["podwright"]}
        files = [ROOT / "compose.yaml"]
        if others := {name: {"image": image} for name, image in images.items() if name != "podwright"}:
            files.append(folder / "images.yaml")
            files[-1].write_text(json.dumps({"services": others}))
        if extra:
            files.append(folder / "extra.yaml")
            files[-1].write_text(extra)
        self._files = [word for file in files for word in ("--file", str(file))]

    def __call__(self, *arguments: str, check: bool = True) -> str:
        """What a compose command prints."""
        place = ("--project-directory", str(ROOT), "--project-name", self.project)
        return self._engine("compose", *place, *self._files, *arguments, check=check, **self._variables)

    def up(self, *services: str) -> None:
        try:
            self("up", "--detach", "--no-build", "--wait", "--wait-timeout", "120", *services)
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self('logs', '--tail', '40', check=False)}") from error

    def down(self) -> None:
        self("--profile", "*", "down", "--volumes", "--remove-orphans", "--timeout", "10")

    def url(self, service: str, port: int) -> str:
        return f"http://{self('port', service, str(port)).strip()}"

    def client(self, service: str, **options: Any) -> httpx.Client:
        return httpx.Client(base_url=self.url(service, 8000), timeout=60, **options)

    def container(self, service: str) -> dict[str, Any]:
        """What the engine says of a service's container, whether it runs or not."""
        return self._engine.inspect(self("ps", "--all", "--quiet", service).strip())

    def inside(self, service: str, *command: str) -> str:
        return self("exec", "--no-TTY", service, *command)

    def events(self, *kinds: str) -> list[tuple[str, str]]:
        """What has happened to the fleet's containers, in order: service and event."""
        filters: Sequence[str] = [word for kind in kinds for word in ("--filter", f"event={kind}")]
        label = f"label=com.docker.compose.project={self.project}"
        since = ("events", "--since", "30m", "--until", "0s", "--format", "{{json .}}", "--filter", label)
        told = [json.loads(line) for line in self._engine(*since, *filters).splitlines()]
        return [(one["Actor"]["Attributes"]["com.docker.compose.service"], one["Action"]) for one in told]
