"""The container engine, the images of this source, and a browser, for the tests of all folders."""

from __future__ import annotations

import gc
import os
import shutil
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect, sync_playwright
from tests import image_support
from tests.helpers import skip, tool
from tests.image_support import Docker

TIERS = {
    "fast": set[str](),
    "servers": {"browser", "checkov", "command", "helm3", "lasting_command", "nginx", "node", "postgresql", "promtool"},
    "image": {"container", "docker", "full", "slim"},
    "cluster": {"cluster"},
    "proof": set[str](),
}
"""The fixtures that put a test into a tier, the last of those that apply, or strings among its parameters."""
LEFT_OUT = pytest.StashKey[Counter[str]]()


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Give each test the mark of its tier before `-m` selects tests."""
    for item in items:
        tier = _tier(item)
        item.own_markers[:] = [mark for mark in item.own_markers if mark.name not in TIERS]
        item.add_marker(tier)


def _tier(item: pytest.Item) -> str:
    """The last tier among the marks of a test and of its parameters, or else among what its fixtures say."""
    assert isinstance(item, pytest.Function)
    marked = {mark.name for mark in item.own_markers}
    if TIERS.keys() & marked:
        return [tier for tier in TIERS if tier in marked][-1]
    parameters = item.callspec.params.values() if hasattr(item, "callspec") else ()
    used = {*item.fixturenames, *(value for value in parameters if isinstance(value, str))}
    return ["fast", *(tier for tier, fixtures in TIERS.items() if fixtures & used)][-1]


def pytest_configure(config: pytest.Config) -> None:
    """Hide the cluster of this user, because no test may change it."""
    os.environ["KUBECONFIG"] = os.devnull
    config.stash[LEFT_OUT] = Counter()


def pytest_deselected(items: list[pytest.Item]) -> None:
    """Count the tests that were left out."""
    for item in items:
        item.config.stash[LEFT_OUT].update(tier for tier in TIERS if item.get_closest_marker(tier))


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """A worker of pytest-xdist sends what it has left out to the process that reports."""
    if isinstance(output := getattr(session.config, "workeroutput", None), dict):
        output["left_out"] = dict(session.config.stash[LEFT_OUT])


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """Take over what a worker has left out; each of them has collected all tests."""
    node.config.stash[LEFT_OUT] |= getattr(node, "workeroutput", {}).get("left_out", {})


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Say in one line for each tier what was left out, and which command runs it."""
    for tier, count in config.stash[LEFT_OUT].items():
        command = {"fast": "make test", "proof": "make proof"}.get(tier, f"make test-{tier}")
        terminalreporter.write_line(f"left out: {count} tests of the tier {tier}; run them with `{command}`")


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


@pytest.fixture(scope="session")
def checkov() -> str:
    """The path of checkov, which finds risky settings in Dockerfiles and manifests."""
    return tool("checkov")


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """Debian's Chromium, without a window. Its event loop runs until the module ends: no test there is asynchronous."""
    path = shutil.which("chromium") or skip("Chromium is missing; `make tools` installs it on Debian.")
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
