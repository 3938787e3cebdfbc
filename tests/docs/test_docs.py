"""The pages are true: their Python runs, their commands exist, their requests are answered, their links lead on."""

from __future__ import annotations

import os
import re
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from tests.ports import free_port

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").glob("*.md"))]


def blocks(page: Path, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", page.read_text(), re.MULTILINE | re.DOTALL)


def commands(page: Path) -> list[str]:
    return [line for block in blocks(page, "sh") for line in block.replace("\\\n", " ").splitlines() if line.strip()]


def places(page: Path) -> set[str]:
    """The anchors of a page's headings, as GitHub makes them."""
    headings = re.findall(
        r"^#+ (.*)", re.sub(r"^```.*?^```", "", page.read_text(), flags=re.MULTILINE | re.DOTALL), re.MULTILINE
    )
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def named(page: Path) -> str:
    return str(page.relative_to(ROOT))


@pytest.fixture(scope="module")
def newsroom() -> Iterator[str]:
    """The address of what `make run` serves."""
    port = free_port()
    environment = {key: value for key, value in os.environ.items() if not key.startswith("PODWRIGHT_")}
    server = subprocess.Popen(
        ["make", "run", f"PORT={port}"],
        cwd=ROOT, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True,
    )  # fmt: skip
    address = f"http://127.0.0.1:{port}"
    try:
        for _ in range(300):
            try:
                if httpx.get(f"{address}/ready", timeout=30).status_code == 200:
                    break
            except httpx.TransportError:
                time.sleep(0.1)
        else:
            pytest.fail("`make run` does not become ready")
        yield address
    finally:
        os.killpg(server.pid, signal.SIGTERM)
        output, _ = server.communicate(timeout=30)
    assert "curl -s localhost" in output, "`make run` prints the requests to try"


@pytest.mark.parametrize("page", [page for page in PAGES if blocks(page, "python")], ids=named)
def test_python(page: Path, tmp_path: Path) -> None:
    """The Python of a page runs from top to bottom, without a warning."""
    script = tmp_path / "page.py"
    script.write_text("\n".join(blocks(page, "python")))
    done = subprocess.run([sys.executable, "-W", "error", script], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("page", [page for page in PAGES if page.name == "cli.md"], ids=named)
def test_commands(page: Path, tmp_path: Path) -> None:
    """Every `podwright` command of the page of the command line works, in the order of the page."""
    (tmp_path / "deploy").symlink_to(ROOT / "deploy")
    kept = {key: value for key, value in os.environ.items() if not key.startswith("PODWRIGHT_")}
    environment = {
        **kept,
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "PYTEST_ADDOPTS": "-k 'not container'",  # tests/testing does that half of a new component's test
    }
    ran = [command for command in commands(page) if "podwright " in command or command.startswith("pytest ")]
    assert {"new", "run", "replay", "validate", "diff", "schema", "graph", "settings"} <= {
        word for command in ran for word in re.findall(r"podwright (\w+)", command)
    }
    for command in ran:
        done = subprocess.run(
            ["bash", "-o", "pipefail", "-c", command], cwd=tmp_path, env=environment, capture_output=True, text=True
        )
        assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"
        assert done.stdout, command


@pytest.mark.parametrize(
    "command",
    [command for page in PAGES for command in commands(page) if "podwright serve " in command],
)
def test_services(command: str) -> None:
    """Every `podwright serve` of a page serves, and ends when it is told."""
    kept = {key: value for key, value in os.environ.items() if not key.startswith(("PODWRIGHT_", "OTEL_"))}
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    variables = {"PATH": path, "PODWRIGHT_MODEL": "offline/echo", "PODWRIGHT_HOST": "127.0.0.1"}
    server = subprocess.Popen(
        ["bash", "-c", f"{re.sub(r' --port [0-9]+', '', command)} --port 0"],
        cwd=ROOT, env={**kept, **variables}, stdout=subprocess.PIPE, text=True, start_new_session=True,
    )  # fmt: skip
    assert server.stdout is not None
    try:
        said = next((line for line in server.stdout if "running on" in line), "")
        found = re.search(r"http://127\.0\.0\.1:\d+", said)
        assert found, command
        assert httpx.get(f"{found[0]}/ready", timeout=30).status_code == 200
    finally:
        os.killpg(server.pid, signal.SIGTERM)
        server.communicate(timeout=60)
    assert server.returncode == 0


@pytest.mark.parametrize("page", PAGES, ids=named)
def test_make_targets(page: Path) -> None:
    """Every `make` command that a page names is a target."""
    listed = subprocess.run(["make", "help"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    targets = {line.split()[0] for line in listed.splitlines() if line.strip()}
    used = set(re.findall(r"(?:^|`)make ([a-z]+)", page.read_text(), re.MULTILINE))
    assert used <= targets


@pytest.mark.parametrize(
    ("page", "command"),
    [
        pytest.param(page, command, id=f"{named(page)}-{number}")
        for page in PAGES
        for number, command in enumerate(commands(page))
        if command.startswith("curl ")
    ],
)
def test_requests(page: Path, command: str, newsroom: str) -> None:
    """Every request of a page is answered by what `make run` serves."""
    words = shlex.split(command, comments=True)
    url = next(word for word in words if word.startswith("localhost:8000"))
    headers = [words[place + 1].split(": ", 1) for place, word in enumerate(words) if word == "-H"]
    data = next((words[place + 1] for place, word in enumerate(words) if word == "-d"), None)
    method = next((words[place + 1] for place, word in enumerate(words) if word == "-X"), "POST" if data else "GET")
    answer = httpx.request(
        method,
        url.replace("localhost:8000", newsroom),
        headers=dict(headers),
        content=data,
        timeout=30,
    )
    assert answer.status_code == 200, answer.text


def test_first_request(newsroom: str) -> None:
    """The README's request answers the workflow's context, with an output for each agent."""
    context = httpx.post(f"{newsroom}/run", json={"input": "the moon"}, timeout=30).json()
    assert context["input"] == "the moon"
    assert {"researcher_output", "writer_output", "reviewer_output"} <= set(context)
    assert all(isinstance(value, str) for value in context.values())


@pytest.mark.parametrize("page", PAGES, ids=named)
def test_links(page: Path) -> None:
    """Every link of a page to another file, or to a heading, leads to one."""
    broken: list[str] = []
    for target, place in re.findall(r"\]\(([^)#:]*)(?:#([^)]*))?\)", page.read_text()):
        other = page.parent / target if target else page
        if not other.exists() or (place and place not in places(other)):
            broken.append(f"{target}#{place}")
    assert broken == []


def test_locks_hold_no_addresses() -> None:
    """The locks pin by hash, and name no place to download from."""
    locks = list(ROOT.glob("requirements*.lock"))
    assert locks
    for lock in locks:
        text = lock.read_text()
        assert "sha256:" in text
        assert not re.search(r"https?://|file:|^-", text, re.MULTILINE), lock.name
