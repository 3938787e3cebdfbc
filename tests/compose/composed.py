"""A fleet of containers from the repository's compose file."""

from __future__ import annotations

import json
import uuid
from pathlib import Path
from typing import Any

import httpx
from tests.helpers import NO_AUTHORITIES, ROOT, plain_http
from tests.image_support import Docker

STAFF = ["researcher", "reviewer", "writer"]
COMPONENTS = ["desk", "newsroom", *STAFF]
PUBLISHED = {
    "PORT": "0",
    "DESK_PORT": "0",
    "BACKGROUND_PORT": "0",
    "PROMETHEUS_PORT": "0",
    "JAEGER_PORT": "0",
    "GRAFANA_PORT": "0",
}
"""The engine chooses the ports, because several fleets run at once."""


class Fleet:
    """One fleet.

    Args:
        docker: The Docker client.
        folder: Where to write a further compose file.
        image: The image of the components.
        services: Changes and additions to the services of the compose file.
        **variables: Variables of the compose file.
    """

    def __init__(
        self,
        docker: Docker,
        folder: Path,
        image: str,
        services: dict[str, Any] | None = None,
        **variables: str,
    ) -> None:
        self._docker = docker
        self.project = f"podwright-test-{uuid.uuid4().hex[:12]}"
        self._variables = {**PUBLISHED, **variables, "IMAGE": image}
        self._files = ["--file", str(ROOT / "compose.yaml")]
        if services:
            (folder / "services.yaml").write_text(
                json.dumps({"services": services})
            )
            self._files += ["--file", str(folder / "services.yaml")]

    def __call__(self, *arguments: str) -> str:
        """Run a compose command, and return its standard output."""
        options = (
            "--project-directory",
            str(ROOT),
            "--project-name",
            self.project,
            *self._files,
        )
        return self._docker("compose", *options, *arguments, **self._variables)

    def up(self, *services: str) -> None:
        """Start services, and wait until they are healthy."""
        try:
            self(
                "up",
                "--detach",
                "--no-build",
                "--wait",
                "--wait-timeout",
                "120",
                *services,
            )
        except AssertionError as error:
            raise AssertionError(
                f"{error}\n{self('logs', '--tail', '40')}"
            ) from error

    def down(self) -> None:
        self(
            "--profile",
            "*",
            "down",
            "--volumes",
            "--remove-orphans",
            "--timeout",
            "10",
        )

    def url(self, service: str, port: int) -> str:
        return f"http://{self('port', service, str(port)).strip()}"

    def client(self, service: str, **options: Any) -> httpx.Client:
        return httpx.Client(
            verify=NO_AUTHORITIES,
            base_url=self.url(service, 8000),
            timeout=60,
            **options,
        )

    def container(self, service: str) -> dict[str, Any]:
        """A service's container, whether it runs or not, as `docker inspect` returns it."""
        return self._docker.inspect(
            self("ps", "--all", "--quiet", service).strip()
        )

    def inside(self, service: str, *command: str) -> str:
        """Run a command in a service's container."""
        return self("exec", "--no-TTY", service, *command)

    def events(self, *kinds: str) -> list[tuple[str, str]]:
        """The events of the fleet's containers in order, each with its service."""
        filters = [
            word for kind in kinds for word in ("--filter", f"event={kind}")
        ]
        label = f"label=com.docker.compose.project={self.project}"
        options = (
            "--since",
            "30m",
            "--until",
            "0s",
            "--format",
            "{{json .}}",
            "--filter",
            label,
        )
        events = [
            json.loads(line)
            for line in self._docker("events", *options, *filters).splitlines()
        ]
        return [
            (
                event["Actor"]["Attributes"]["com.docker.compose.service"],
                event["Action"],
            )
            for event in events
        ]

    def prometheus(self, path: str, **parameters: str) -> Any:
        """The data of a response of Prometheus' HTTP API."""
        url = f"{self.url('prometheus', 9090)}/api/v1/{path}"
        response = plain_http.get(url, params=parameters).json()
        assert response["status"] == "success", (parameters, response)
        return response["data"]
