"""The image, built once for all tests of this folder, and folders of components."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.image_support import built_image


@pytest.fixture(scope="session")
def image(tmp_path_factory: pytest.TempPathFactory, testrun_uid: str) -> Iterator[str]:
    base = tmp_path_factory.getbasetemp()
    shared = base.parent if os.environ.get("PYTEST_XDIST_WORKER") else base
    with built_image(testrun_uid[:12], shared) as tag:
        yield tag


@pytest.fixture(scope="session")
def calculator(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What `podwright new calculator` makes."""
    from podwright_service.cli.scaffold import make

    folder = tmp_path_factory.mktemp("made", numbered=True) / "calculator"
    make(str(folder), "offline/echo")
    return folder
