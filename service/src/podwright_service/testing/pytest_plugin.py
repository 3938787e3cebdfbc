"""Fixtures for pytest, which finds them where `podwright-service` is installed.

A test that needs a container is skipped without a container engine or image, with the reason at the end of the
report; if the variable `CI` is set, it fails.
"""

from __future__ import annotations

import contextlib
import functools
import importlib.util
import os
import sys
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from podwright_service.testing import (
        ComponentContainer,
        ModelStub,
        Served,
        SpanCollector,
    )

_NOT_TESTED = "not tested in a container: "


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the setting `podwright_image`."""
    parser.addini(
        "podwright_image",
        "The image in which component folders are tested.",
        default="",
    )


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Report the tests without a container, even if pytest does not list the reasons of skips."""
    reports = [
        str(report.longrepr[2])
        for report in terminalreporter.stats.get("skipped", ())
    ]
    if reasons := [
        report.partition(_NOT_TESTED)[2]
        for report in reports
        if _NOT_TESTED in report
    ]:
        terminalreporter.section("podwright")
        terminalreporter.line(
            f"{len(reasons)} test(s) {_NOT_TESTED}{reasons[0]}", yellow=True
        )


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup() -> None:
    """Have the library read its variables again: a test may set them."""
    settings = sys.modules.get("podwright.settings")
    if settings is not None:
        settings.forget_settings()


@pytest.fixture
def model_stub() -> Iterator[ModelStub]:
    """A started `ModelStub` in place of openai/gpt-4o-mini; give it its responses with `respond_with`."""
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
def component_images(
    request: pytest.FixtureRequest,
) -> Iterator[Callable[[str | os.PathLike[str]], str]]:
    """Builds the image of a component folder once and returns its tag: `component_images(folder)`."""
    with contextlib.ExitStack() as stack:

        @functools.cache
        def build(folder: str | os.PathLike[str]) -> str:
            base = _base_image(request.config)
            from podwright_service.testing import component_image

            return stack.enter_context(component_image(folder, base))

        yield build


@pytest.fixture
def component_container(
    request: pytest.FixtureRequest,
) -> Iterator[Callable[..., ComponentContainer]]:
    """Starts a `ComponentContainer` for one test: `component_container(image_or_folder, model=model_stub)`."""
    with contextlib.ExitStack() as stack:

        def start(
            component: str | os.PathLike[str], **options: Any
        ) -> ComponentContainer:
            is_folder = os.path.isdir(component)  # noqa: PTH112 - a tag need not be a valid path
            options.setdefault(
                "image", _base_image(request.config, required=is_folder)
            )
            from podwright_service.testing import ComponentContainer

            return stack.enter_context(ComponentContainer(component, **options))

        yield start


@pytest.fixture(params=["process", "container"])
def serve_component(
    request: pytest.FixtureRequest,
    component_images: Callable[[str | os.PathLike[str]], str],
    component_container: Callable[..., ComponentContainer],
) -> Iterator[Callable[..., Served]]:
    """Serves a component folder: `serve_component(folder, model=model_stub, env={…}, volumes=[…])`.

    The test runs twice: with a process, and with a container of the folder's image.
    """
    with contextlib.ExitStack() as stack:

        def serve(folder: str | os.PathLike[str], **options: Any) -> Served:
            if request.param == "container":
                return component_container(component_images(folder), **options)
            _require("httpx")
            from podwright_service.testing import ComponentProcess

            return stack.enter_context(ComponentProcess(folder, **options))

        yield serve


def _require(package: str) -> None:
    if importlib.util.find_spec(package) is None:
        _skip(f"{package} is missing; install podwright-service[testing]")


def _base_image(config: pytest.Config, *, required: bool = True) -> str:
    """The image in which folders are tested, and from which their images are built."""
    _require("testcontainers")
    from podwright_service.testing.containers import IMAGE

    image = config.getini("podwright_image") or IMAGE
    if required:
        reason = _missing(image)
    else:
        reason = _missing("")
    if reason:
        _skip(reason)
    return image


@functools.cache
def _missing(image: str) -> str:
    """The reason why there can be no container of this image; empty if there can."""
    import docker
    from docker.errors import DockerException, ImageNotFound

    try:
        with contextlib.closing(docker.from_env()) as client:
            if image:
                client.images.get(image)
    except ImageNotFound:
        return f"there is no image '{image}'; build it, or set podwright_image"
    except DockerException:
        return "no container engine responds"
    return ""


def _skip(reason: str) -> None:
    message = f"{_NOT_TESTED}{reason}"
    if os.environ.get("CI"):
        pytest.fail(message)
    pytest.skip(message)
