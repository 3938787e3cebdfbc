"""Fleets of containers, and images in place of those that need a registry."""

from __future__ import annotations

import subprocess
import uuid
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from tests.compose.composed import Fleet
from tests.helpers import ROOT
from tests.image_support import Docker

MakeFleet = Callable[..., Fleet]

PROMETHEUS = """
FROM python:3.13-slim-trixie
RUN cd /tmp && apt-get update -qq && apt-get download -qq prometheus && dpkg-deb -x prometheus_*.deb files \\
    && mv files/usr/bin/prometheus /bin/prometheus && rm -rf /tmp/* /var/lib/apt/lists/* \\
    && install -d -o 65534 -g 65534 /prometheus
ENTRYPOINT ["/bin/prometheus"]
"""
"""Prometheus from Debian, with the paths of its own image."""


@pytest.fixture(scope="session")
def observers(docker: Docker, slim: str) -> Iterator[dict[str, Any]]:
    """The services that observe the fleet, with images of this machine, and without Grafana."""

    def stand_in(role: str) -> dict[str, Any]:
        return {
            "image": slim,
            "entrypoint": ["tini", "--", "python", "/stand_in.py", role],
            "volumes": [f"{ROOT}/tests/compose/stand_in.py:/stand_in.py:ro"],
            "healthcheck": {"test": ["CMD", "true"], "interval": "1s"},
        }

    tag = f"podwright-test-prometheus:{uuid.uuid4().hex[:12]}"
    command = [docker.client, "build", "--quiet", "--tag", tag, "-"]
    subprocess.run(command, input=PROMETHEUS, check=True, capture_output=True, text=True, timeout=600)
    yield {"prometheus": {"image": tag}, "collector": stand_in("collector"), "jaeger": stand_in("jaeger")}
    docker("image", "rm", tag)


@pytest.fixture(scope="module")
def make_fleet(docker: Docker, slim: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[MakeFleet]:
    """Makes a fleet, which is removed after the module's tests."""
    fleets: list[Fleet] = []

    def make(services: dict[str, Any] | None = None, **variables: str) -> Fleet:
        fleets.append(Fleet(docker, tmp_path_factory.mktemp("fleet"), slim, services, **variables))
        return fleets[-1]

    try:
        yield make
    finally:
        for fleet in fleets:
            fleet.down()
