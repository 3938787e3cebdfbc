"""The fixtures in a project of a user's own, which pytest runs in a process of its own."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

OWN = """
def test_a_stub(model_stub, span_collector, component_container):
    assert model_stub.url.startswith("http://127.0.0.1")
    assert span_collector.spans == []


def test_both_ways(serve_component, model_stub):
    model_stub.answers("It is 5.")
    assert serve_component("calculator", model=model_stub).run("2 + 3") == "It is 5."


def test_a_container(component_container, model_stub):
    model_stub.answers("It is 5.")
    assert component_container("calculator", model=model_stub).run("2 + 3") == "It is 5."
"""


def run_pytest(folder: Path, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    kept = {key: value for key, value in os.environ.items() if not key.startswith(("PYTEST_", "CI", "PODWRIGHT_"))}
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-o", "asyncio_mode=auto", *arguments]
    return subprocess.run(command, cwd=folder, env={**kept, **variables}, capture_output=True, text=True)


@pytest.fixture
def project(tmp_path: Path, calculator: Path) -> Path:
    (tmp_path / "test_own.py").write_text(OWN)
    (tmp_path / "calculator").symlink_to(calculator)
    (tmp_path / "pytest.ini").write_text("[pytest]\naddopts = -q\nasyncio_default_fixture_loop_scope = function\n")
    return tmp_path


def test_fixtures_are_found(project: Path, image: str) -> None:
    """Stub, collector, containers and both ways of serving are there without any set-up."""
    done = run_pytest(project, "test_own.py", "-o", f"podwright_image={image}", "-W", "error")
    assert "4 passed" in done.stdout, done.stdout + done.stderr


@pytest.mark.parametrize("where", ["unix:///nowhere.sock", "image"])
def test_skips_are_loud(project: Path, where: str, request: pytest.FixtureRequest) -> None:
    """Without an engine, or without the image, what needs a container is skipped, and the end of the report says so."""
    if where == "image":
        request.getfixturevalue("image")  # where there is an engine, that is
        done = run_pytest(project, "test_own.py", "-o", "podwright_image=podwright:nowhere")
        reason = "there is no image 'podwright:nowhere'; build it, or name another one with podwright_image"
    else:
        done = run_pytest(project, "test_own.py", DOCKER_HOST=where)
        reason = "no container engine answers"
    assert "2 passed, 2 skipped" in done.stdout, done.stdout + done.stderr
    assert re.search(rf"= podwright =+\n2 tests not tested in a container: {re.escape(reason)}\n", done.stdout)


def test_in_ci_a_missing_engine_is_a_failure(project: Path) -> None:
    """Where everything has to be there, what cannot be tested fails."""
    done = run_pytest(project, "test_own.py", DOCKER_HOST="unix:///nowhere.sock", CI="true")
    assert "2 failed, 2 passed" in done.stdout, done.stdout + done.stderr
    assert "not tested in a container: no container engine answers" in done.stdout


def test_what_the_extra_brings(project: Path) -> None:
    """Without the extra, what needs it says where it comes from, and a stub works all the same."""
    without = (
        "import sys\nsys.modules.update(dict.fromkeys(('testcontainers', 'docker', 'httpx', 'pytest')))\n"
        "import podwright_service.testing as kit\nwith kit.ModelStub('x') as stub: print(stub.url)\n"
        "try: kit.ComponentContainer\nexcept ImportError as error: print(error.__notes__)"
    )
    done = subprocess.run([sys.executable, "-c", without], capture_output=True, text=True)
    assert re.match(r"http://127.*\n\['It comes with podwright-service\[testing\]", done.stdout), (
        done.stdout + done.stderr
    )
