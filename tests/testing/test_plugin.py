"""The fixtures in a user's project, in a pytest of its own; the tests in docs/testing.md use all of them."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from tests.helpers import environment
from tests.image_support import Docker

TESTS = """
def test_a_stub(model_stub, span_collector, component_container):
    assert model_stub.url.startswith("http://127.0.0.1")
    assert span_collector.spans == []


def test_both_ways(serve_component, model_stub):
    model_stub.respond_with("It is 5.")
    assert serve_component("calculator", model=model_stub).run("2 + 3") == "It is 5."


def test_a_container(component_container, model_stub):
    model_stub.respond_with("It is 5.")
    assert component_container("calculator", model=model_stub).run("2 + 3") == "It is 5."
"""


def run_pytest(folder: Path, *arguments: str, **variables: str) -> str:
    options = [
        "-p",
        "no:cacheprovider",
        "-o",
        "asyncio_mode=auto",
        "test_own.py",
        *arguments,
    ]
    command = [sys.executable, "-m", "pytest", *options]
    done = subprocess.run(
        command,
        cwd=folder,
        env=environment(**{"CI": "", **variables}),
        capture_output=True,
        text=True,
    )
    return done.stdout + done.stderr


@pytest.fixture
def project(tmp_path: Path, calculator: Path) -> Path:
    (tmp_path / "test_own.py").write_text(TESTS)
    (tmp_path / "calculator").symlink_to(calculator)
    (tmp_path / "pytest.ini").write_text(
        "[pytest]\naddopts = -q\nasyncio_default_fixture_loop_scope = function\n"
    )
    return tmp_path


NO_ENGINE = {"DOCKER_HOST": "unix:///nowhere.sock"}


@pytest.mark.parametrize(
    ("image", "variables"),
    [("podwright:nowhere", {}), ("", NO_ENGINE)],
    ids=["no image", "no engine"],
)
def test_skips_are_reported(
    docker: Docker, project: Path, image: str, variables: dict[str, str]
) -> None:
    """Without an engine or an image, tests in containers are skipped, and the report says so at its end."""
    output = run_pytest(
        project,
        *(["-o", f"podwright_image={image}"] if image else []),
        **variables,
    )
    assert "2 passed, 2 skipped" in output, output
    assert re.search(
        r"= podwright =+\n2 test.*not tested in a container: ", output
    ), output


def test_in_ci_a_missing_engine_is_a_failure(project: Path) -> None:
    """If the variable CI is set, nothing is skipped."""
    output = run_pytest(project, **NO_ENGINE, CI="true")
    assert "2 failed, 2 passed" in output, output


def test_without_the_extra(project: Path) -> None:
    """Without the extra a stub works; only what needs the extra cannot be imported."""
    code = (
        "import sys\nsys.modules.update(dict.fromkeys(('testcontainers', 'docker', 'httpx', 'pytest')))\n"
        "import podwright_service.testing as kit\nwith kit.ModelStub('x') as stub: print(stub.url)\n"
        "try: kit.ComponentContainer\nexcept ImportError: print('no container')"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True
    )
    assert re.match(r"http://127.*\nno container\n", done.stdout), (
        done.stdout + done.stderr
    )
