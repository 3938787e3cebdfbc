"""The engine, the image, and local images in the places of those that no registry may be there for."""

from __future__ import annotations

import os
import subprocess
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import pytest
from tests import image_support
from tests.compose.composed import HERE, Composed, Engine

Fleet = Callable[..., Composed]

PROMETHEUS = """
FROM python:3.13-slim-trixie
RUN cd /tmp && apt-get update -qq && apt-get download -qq prometheus && dpkg-deb -x prometheus_*.deb got \\
    && mv got/usr/bin/prometheus /bin/prometheus && rm -rf /tmp/* /var/lib/apt/lists/* \\
    && install -d -o 65534 -g 65534 /prometheus
ENTRYPOINT ["/bin/prometheus"]
"""
"""A real Prometheus, from Debian; its flags and its folder are those of the vendor's image."""

TAKER = """
FROM python:3.13-slim-trixie
COPY --from={image} /opt/podwright /opt/podwright
COPY taker.py /taker.py
ENTRYPOINT ["/opt/podwright/bin/python", "/taker.py", "{role}"]
"""
"""Neither the Collector nor Jaeger is to be had without a registry: something that takes spans stands for each."""


@pytest.fixture(scope="session")
def engine() -> Engine:
    """The engine; where there is none, its tests are skipped, and fail in CI."""
    return Engine(image_support.engine())


@contextmanager
def _built(engine: Engine, dockerfile: str) -> Iterator[str]:
    tag = f"podwright-test-observer:{uuid.uuid4().hex[:12]}"
    command = [engine.client, "build", "--quiet", "--tag", tag, "--file", "-", HERE]
    done = subprocess.run(command, input=dockerfile, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    try:
        yield tag
    finally:
        engine("image", "rm", tag)


@pytest.fixture(scope="session")
def image(tmp_path_factory: pytest.TempPathFactory, testrun_uid: str) -> Iterator[str]:
    """The image that the Dockerfile makes, without LiteLLM."""
    base = tmp_path_factory.getbasetemp()
    shared = base.parent if os.environ.get("PYTEST_XDIST_WORKER") else base
    with image_support.built_image(testrun_uid[:12], shared) as tag:
        yield tag


@pytest.fixture(scope="session")
def observers(engine: Engine, image: str) -> Iterator[dict[str, str]]:
    """Images for the services that watch the fleet, but for Grafana."""
    with ExitStack() as stack:

        def built(dockerfile: str) -> str:
            return stack.enter_context(_built(engine, dockerfile))

        takers = {role: built(TAKER.format(image=image, role=role)) for role in ("collector", "jaeger")}
        yield {"prometheus": built(PROMETHEUS), **takers}


@pytest.fixture(scope="module")
def fleet(engine: Engine, image: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    """Makes a fleet, which is taken down when the module's tests are done."""
    made: list[Composed] = []

    def make(images: dict[str, str] | None = None, **given: Any) -> Composed:
        folder = tmp_path_factory.mktemp("fleet")
        made.append(Composed(engine, {"podwright": image, **(images or {})}, folder, **given))
        return made[-1]

    try:
        yield make
    finally:
        for one in made:
            one.down()
