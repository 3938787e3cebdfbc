"""The container engine, the images of this source, and a browser, for the tests of all folders."""

from __future__ import annotations

import gc
import os
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect, sync_playwright
from tests import image_support
from tests.helpers import tool
from tests.image_support import Docker

FIRST = (
    "cluster/test_alerts.py", "image/", "cluster/test_install.py", "cluster/",
    "service/test_background", "compose/", "service/test_schemathesis.py",
    "service/test_processes.py", "service/test_rolling_restart.py",
)  # fmt: skip
"""What the workers begin with: the cluster starts while images are built, and the longest ones follow.

The first file takes so long that another worker comes to the cluster before it ends, which keeps the cluster.
"""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put the files of FIRST first, and mix the others evenly, because some folders compute and some wait.

    One process alone keeps the order of the folders, because each folder's fixtures end with it.
    """
    if not os.environ.get("PYTEST_XDIST_WORKER"):
        return
    tests, folders = Path(__file__).parent, defaultdict[Path, list[Path]](list)
    for path in dict.fromkeys(item.path for item in items):
        folders[path.parent].append(path)

    def place(path: Path) -> float:
        name, files = path.relative_to(tests).as_posix(), folders[path.parent]
        first = (rank for rank, prefix in enumerate(FIRST) if name.startswith(prefix))
        return next(first, len(FIRST) + files.index(path) / len(files))

    places = {path: place(path) for files in folders.values() for path in files}
    items.sort(key=lambda item: places[item.path])


def pytest_collection_finish() -> None:
    """Leave the tests themselves out of each garbage collection: they are most of what it would visit."""
    gc.freeze()


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


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """Debian's Chromium, without a window. Its event loop runs until the module ends: no test there is asynchronous."""
    path = tool("chromium")
    expect.set_options(timeout=30_000)
    with sync_playwright() as playwright, playwright.chromium.launch(executable_path=path) as chromium:
        yield chromium


@pytest.fixture
def page(browser: Browser) -> Iterator[Page]:
    """A page of which the test fails if it requests something from another machine, or if its scripts fail."""
    found: list[str] = []
    with browser.new_page() as opened:
        opened.on("request", lambda request: found.append(request.url))
        opened.on("pageerror", lambda error: found.append(str(error)))
        yield opened
    assert [text for text in found if not text.startswith(("http://127.0.0.1:", "data:"))] == []
