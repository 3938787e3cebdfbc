"""The image, built once for all tests of this folder, and a component folder."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.image_support import built_image

from podwright_service.cli.new import create_component


@pytest.fixture(scope="session")
def image(tmp_path_factory: pytest.TempPathFactory, testrun_uid: str) -> Iterator[str]:
    with built_image(tmp_path_factory, testrun_uid) as tag:
        yield tag


@pytest.fixture(scope="session")
def calculator(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder that `podwright new calculator` creates."""
    folder = tmp_path_factory.mktemp("scaffold") / "calculator"
    create_component(str(folder), "offline/echo")
    return folder
