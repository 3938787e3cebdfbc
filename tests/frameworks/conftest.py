"""The Python with the packages of other frameworks."""

from pathlib import Path

import pytest
from tests.helpers import tool


@pytest.fixture(scope="session")
def frameworks() -> Path:
    """The Python of the environment that `deploy/tools.sh build frameworks` makes."""
    return Path(tool("frameworks"))
