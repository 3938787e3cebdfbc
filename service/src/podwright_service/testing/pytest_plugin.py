"""Fixtures for pytest, which finds them by itself where `podwright-service` is installed.

A test that needs a container is skipped where none can be had, which the end of the report says in so many words; where
`CI` is set, it fails.
"""

from __future__ import annotations

import contextlib
import functools
import importlib.util
import os
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from podwright_service.testing import ComponentContainer, ModelStub, Served, SpanCollector

_NONE = "not tested in a container: "


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the setting `podwright_image`."""
    parser.addini("podwright_image", "The image that component folders are tested in.", default="")


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Say what was not tested, even where nobody asked for the reasons of skips."""
    skipped: list[str] = [str(report.longrepr[2]) for report in terminalreporter.stats.get("skipped", ())]
    if reasons := [reason.partition(_NONE)[2] for reason in skipped if _NONE in reason]:
        count = f"{len(reasons)} test{'s' if len(reasons) > 1 else ''}"
        terminalreporter.section("podwright")
        terminalreporter.line(f"{count} {_NONE}{reasons[0]}", yellow=True)


@pytest.fixture
def model_stub() -> Iterator[ModelStub]:
    """A started `ModelStub` that stands for openai/gpt-4o-mini; `answers` says what it says."""
    from podwright_service.testing import ModelStub

    with ModelStub(name="openai/gpt-4o-mini") as stub:
        yield stub


@pytest.fixture
def span_collector() -> Iterator[SpanCollector]:
    """A started `SpanCollector`."""
    from podwright_service.testing import SpanCollector

    with SpanCollector() as collector:
        yield collector


@pytest.fixture(scope="session")
def component_images(request: pytest.FixtureRequest) -> Iterator[Callable[[str | os.PathLike[str]], str]]:
    """The tags of images of component folders, each built once: `component_images(folder)`."""
    with contextlib.ExitStack() as stack:

        @functools.cache
        def built(folder: str | os.PathLike[str]) -> str:
            base = _base(request.config)
            from podwright_service.testing import component_image

            return stack.enter_context(component_image(folder, base))

        yield built


@pytest.fixture
def component_container(request: pytest.FixtureRequest) -> Iterator[Callable[..., ComponentContainer]]:
    """Starts a `ComponentContainer` for one test: `component_container(image_or_folder, model=model_stub)`."""
    with contextlib.ExitStack() as stack:

        def start(component: str | os.PathLike[str], **options: Any) -> ComponentContainer:
            base = _base(request.config, needed=os.path.isdir(component))  # noqa: PTH112 - it may be a tag
            from podwright_service.testing import ComponentContainer

            options.setdefault("image", base)
            return stack.enter_context(ComponentContainer(component, **options))

        yield start


@pytest.fixture(params=["process", "container"])
def serve_component(
    request: pytest.FixtureRequest,
    component_images: Callable[[str | os.PathLike[str]], str],
    component_container: Callable[..., ComponentContainer],
) -> Iterator[Callable[..., Served]]:
    """Serves a component folder for a test, which so runs twice: in a process, and in a container of its own image."""
    with contextlib.ExitStack() as stack:

        def serve(folder: str | os.PathLike[str], **options: Any) -> Served:
            if request.param == "container":
                return component_container(component_images(folder), **options)
            _needs("httpx")
            from podwright_service.testing import ComponentProcess

            return stack.enter_context(ComponentProcess(folder, **options))

        yield serve


def _needs(package: str) -> None:
    if importlib.util.find_spec(package) is None:
        _give_up(f"{package} is missing; install podwright-service[testing]")


def _base(config: pytest.Config, *, needed: bool = True) -> str:
    """The image that folders are tested in, and made from."""
    _needs("testcontainers")
    from podwright_service.testing.containers import IMAGE

    image = config.getini("podwright_image") or IMAGE
    if reason := _missing(image if needed else ""):
        _give_up(reason)
    return image


@functools.cache
def _missing(image: str) -> str:
    """Why there are no containers of this image, or of any; empty if there are."""
    import docker
    from docker.errors import DockerException, ImageNotFound

    try:
        client = docker.from_env()
    except DockerException:
        return "no container engine answers"
    try:
        if image:
            client.images.get(image)
    except ImageNotFound:
        return f"there is no image '{image}'; build it, or name another one with podwright_image"
    finally:
        client.close()
    return ""


def _give_up(reason: str) -> None:
    (pytest.fail if os.environ.get("CI") else pytest.skip)(f"{_NONE}{reason}")
