"""Fleets of containers, and images in place of those that need a registry."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.compose.composed import Fleet
from tests.helpers import tool
from tests.image_support import BASE, Docker, build_program

MakeFleet = Callable[..., Fleet]


@pytest.fixture(scope="session")
def observers(docker: Docker) -> dict[str, Any]:
    """The services that observe the fleet, with images of programs built of Go modules, and without Grafana."""
    images = {
        "collector": ("scratch",),
        "jaeger": ("scratch", "ENV JAEGER_LISTEN_HOST=0.0.0.0"),
        # the compose file starts it with a shell
        "prometheus": (
            BASE,
            "RUN install --directory --owner 65534 --group 65534 /prometheus",
        ),
    }
    for program, lines in images.items():
        build_program(
            Path(tool(program)), f"podwright/{program}:compose", *lines
        )
    return {
        program: {"image": f"podwright/{program}:compose"} for program in images
    }


@pytest.fixture(scope="module")
def make_fleet(
    docker: Docker, slim: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[MakeFleet]:
    """Makes a fleet, which is removed after the module's tests."""
    fleets: list[Fleet] = []

    def make(services: dict[str, Any] | None = None, **variables: str) -> Fleet:
        fleets.append(
            Fleet(
                docker,
                tmp_path_factory.mktemp("fleet"),
                slim,
                services,
                **variables,
            )
        )
        return fleets[-1]

    try:
        yield make
    finally:
        for fleet in fleets:
            fleet.down()
