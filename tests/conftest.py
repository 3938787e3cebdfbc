"""The container engine, the images of this source, and a browser, for the tests of all folders."""

from __future__ import annotations

import gc
import os
import shutil
import subprocess
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect, sync_playwright
from tests import image_support
from tests.helpers import ROOT, skip, tool
from tests.image_support import Docker

TIERS = {
    "fast": set[str](),
    "servers": {
        "browser",
        "checkov",
        "command",
        "helm3",
        "lasting_command",
        "nginx",
        "node",
        "node_program",
        "pgbouncer",
        "postgresql",
        "prometheus",
        "promtool",
        "registry",
    },
    "frameworks": {"frameworks"},
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
        item.own_markers[:] = [
            mark for mark in item.own_markers if mark.name not in TIERS
        ]
        item.add_marker(tier)


def _tier(item: pytest.Item) -> str:
    """The last tier among the marks of a test and of its parameters, or else among what its fixtures say."""
    marks = {mark.name for mark in item.own_markers}
    parameters = getattr(item, "callspec", None)
    values = parameters.params.values() if parameters else ()
    used = {
        *getattr(item, "fixturenames", ()),
        *(value for value in values if isinstance(value, str)),
    }
    is_marked = bool(TIERS.keys() & marks)
    for tier, fixtures in reversed(TIERS.items()):
        if tier in marks or (not is_marked and fixtures & used):
            return tier
    return "fast"


def pytest_configure(config: pytest.Config) -> None:
    """Select the tier `fast` without the option `-m`, and hide settings, proxies and the cluster of this user."""
    if not any(
        argument.startswith("-m") for argument in config.invocation_params.args
    ):
        config.option.markexpr = "fast"
    for name in list(os.environ):
        if name.startswith("PODWRIGHT_") and not name.startswith(
            "PODWRIGHT_TEST_"
        ):
            del os.environ[name]
    os.environ["KUBECONFIG"] = os.devnull
    for name in ("NO_PROXY", "no_proxy"):
        os.environ[name] = ",".join(
            filter(None, [os.environ.get(name), "127.0.0.1,localhost"])
        )
    config.stash[LEFT_OUT] = Counter()


def pytest_deselected(items: list[pytest.Item]) -> None:
    """Count the tests that were left out."""
    for item in items:
        item.config.stash[LEFT_OUT].update(
            tier for tier in TIERS if item.get_closest_marker(tier)
        )


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """A worker of pytest-xdist sends what it has left out to the process that reports."""
    if isinstance(
        output := getattr(session.config, "workeroutput", None), dict
    ):
        output["left_out"] = dict(session.config.stash[LEFT_OUT])


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """Take over what a worker has left out; each of them has collected all tests."""
    node.config.stash[LEFT_OUT] |= getattr(node, "workeroutput", {}).get(
        "left_out", {}
    )


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    """Say in one line for each tier what was left out, and which command runs it."""
    for tier, count in config.stash[LEFT_OUT].items():
        command = {"fast": "make test", "proof": "make proof"}.get(
            tier, f"make test-{tier}"
        )
        terminalreporter.write_line(
            f"left out: {count} tests of the tier {tier}; run them with `{command}`"
        )


def pytest_collection_finish() -> None:
    """Leave the tests themselves out of each garbage collection: they are most of what it would visit."""
    gc.freeze()


@pytest.fixture(scope="session")
def docker() -> Docker:
    """The client of this machine's container engine."""
    return image_support.docker()


@pytest.fixture(scope="session")
def slim(
    tmp_path_factory: pytest.TempPathFactory, testrun_uid: str
) -> Iterator[str]:
    """The image of the flavour `slim`."""
    with image_support.built_image(tmp_path_factory, testrun_uid) as tag:
        yield tag


@pytest.fixture(scope="session")
def full(
    tmp_path_factory: pytest.TempPathFactory, testrun_uid: str
) -> Iterator[str]:
    """The image of the flavour `full`."""
    with image_support.built_image(
        tmp_path_factory, testrun_uid, "full"
    ) as tag:
        yield tag


Checkov = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def checkov(tmp_path_factory: pytest.TempPathFactory) -> Checkov:
    """Runs checkov, which finds risky settings in Dockerfiles and manifests, with a home folder of its own."""
    program = tool("checkov")
    variables = {**os.environ, "HOME": str(tmp_path_factory.mktemp("home"))}

    def run(*options: str | Path) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [program, *options],
            capture_output=True,
            text=True,
            cwd=ROOT,
            env=variables,
        )

    return run


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    """Debian's Chromium, without a window. Its event loop runs until the module ends: no test there is asynchronous."""
    path = shutil.which("chromium") or skip(
        "Chromium is missing; `make tools` installs it on Debian."
    )
    expect.set_options(timeout=30_000)
    home: dict[str, str | float | bool] = {
        "HOME": str(tmp_path_factory.mktemp("home"))
    }
    with (
        sync_playwright() as playwright,
        playwright.chromium.launch(
            executable_path=path, env={**os.environ, **home}
        ) as chromium,
    ):
        yield chromium


@pytest.fixture
def page(browser: Browser) -> Iterator[Page]:
    """A page of which the test fails if it requests something from another machine, or if its scripts fail."""
    found: list[str] = []
    with browser.new_page() as opened:
        opened.on("request", lambda request: found.append(request.url))
        opened.on("pageerror", lambda error: found.append(str(error)))
        yield opened
    assert [
        text
        for text in found
        if not text.startswith(("http://127.0.0.1:", "data:"))
    ] == []
