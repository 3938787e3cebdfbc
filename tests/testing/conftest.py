"""A component folder for the tests of the testing kit."""

from __future__ import annotations

from pathlib import Path

import pytest

from podwright_service.cli.developing.new import create_component


@pytest.fixture(scope="session")
def calculator(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder that `podwright new calculator` creates."""
    folder = tmp_path_factory.mktemp("scaffold") / "calculator"
    create_component(str(folder), "offline/echo")
    return folder
