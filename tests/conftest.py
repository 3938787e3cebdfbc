"""The container engine, and the images of this source, for the tests of all folders."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests import image_support
from tests.image_support import Docker


@pytest.fixture(scope="session")
def docker() -> Docker:
    """The client of this machine's container engine."""
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
