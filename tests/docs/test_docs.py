"""The pages are correct: their Python runs, their commands work, their requests succeed, their links resolve."""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.forked import complete
from tests.helpers import NEWSROOM, NO_PLUGINS, ROOT, environment, plain_http
from tests.ports import free_port

from podwright_service.cli.developing.new import create_component
from podwright_service.testing import ComponentProcess

SERVICE = "http://localhost:8000"
"""Where the examples call a service."""
PAGES = [
    *sorted(ROOT.glob("*.md")),
    *sorted((ROOT / "docs").rglob("*.md")),
    ROOT / "library" / "README.md",
    ROOT / "service" / "README.md",
]


def blocks(page: Path, language: str) -> list[str]:
    return re.findall(
        rf"^```{language}\n(.*?)^```",
        page.read_text(),
        re.MULTILINE | re.DOTALL,
    )


def commands(page: Path) -> list[str]:
    return [
        line
        for block in blocks(page, "sh")
        for line in block.replace("\\\n", " ").splitlines()
        if line.strip()
    ]


def anchors(page: Path) -> set[str]:
    """The anchors of a page's headings, as GitHub creates them."""
    text = re.sub(
        r"^```.*?^```", "", page.read_text(), flags=re.MULTILINE | re.DOTALL
    )
    headings = re.findall(r"^#+ (.*)", text, re.MULTILINE)
    return {
        re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")
        for heading in headings
    }


def page_id(page: Path) -> str:
    return str(page.relative_to(ROOT))


def address_in(output: Iterator[str]) -> str | None:
    """The address that a server prints when it is ready."""
    line = next((line for line in output if "running on" in line), "")
    match = re.search(r"http://[\d.]+:(\d+)", line)
    return f"http://127.0.0.1:{match[1]}" if match else None


@pytest.fixture(scope="module")
def newsroom(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of the service that `make run` starts, with a database of background runs."""
    database = f"sqlite:///{tmp_path_factory.mktemp('runs')}/runs.db"
    server = subprocess.Popen(
        ["make", "--assume-old=install", "run", f"PORT={free_port()}"],
        cwd=ROOT, env=environment(PODWRIGHT_RUNS_DATABASE=database), stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT, text=True, start_new_session=True,
    )  # fmt: skip
    assert server.stdout is not None
    printed: list[str] = []

    def output() -> Iterator[str]:
        for line in server.stdout or ():
            printed.append(line)
            yield line

    try:
        address = address_in(output())
        assert address, printed
        yield address
    finally:
        os.killpg(server.pid, signal.SIGTERM)
        server.communicate(timeout=60)
    assert any("curl -s localhost" in line for line in printed), (
        "`make run` prints the requests to try"
    )


@pytest.mark.parametrize(
    "page", [page for page in PAGES if blocks(page, "python")], ids=page_id
)
def test_python(page: Path, tmp_path: Path) -> None:
    """The Python of a page runs from top to bottom without a warning; services that it calls are there."""
    text = "\n".join(blocks(page, "python"))
    script = tmp_path / "page.py"
    database = f"sqlite:///{tmp_path}/runs.db"
    with contextlib.ExitStack() as services:
        if SERVICE in text:
            writer = ComponentProcess(
                NEWSROOM / "writer",
                model="offline/echo",
                env={"PODWRIGHT_RUNS_DATABASE": database},
            )
            text = text.replace(SERVICE, services.enter_context(writer).url)
        script.write_text(text)
        process = subprocess.run(
            [sys.executable, "-W", "error", script],
            cwd=tmp_path,
            capture_output=True,
            text=True,
        )
    assert process.returncode == 0, process.stderr


COMMANDS = {
    "cli.md": {
        "new",
        "run",
        "chat",
        "replay",
        "validate",
        "diff",
        "schema",
        "graph",
        "settings",
    },
    "desk.md": {"new", "validate", "graph"},
}
"""Commands that a page shows."""


@pytest.mark.parametrize("page", COMMANDS)
def test_commands(
    page: str, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Every command of the pages about the command line and the desk works, in the order of the page."""
    (tmp_path / "deploy").symlink_to(ROOT / "deploy")
    variables = environment(
        PYTEST_ADDOPTS=f"{NO_PLUGINS} -k 'not container'"
    )  # tests/testing has the other half of this test
    tested = [
        command
        for command in commands(ROOT / "docs" / page)
        if "podwright " in command or command.startswith("pytest ")
    ]
    used = {
        word
        for command in tested
        for word in re.findall(r"podwright (\w+)", command)
    }
    assert COMMANDS[page] <= used
    streams = tmp_path_factory.mktemp("streams")
    for command in tested:
        if (words := shlex.split(command))[0] == "podwright" and not {
            "|",
            ">",
        } & set(words):
            process = complete(tuple(words[1:]), tmp_path, variables, streams)
        else:
            process = subprocess.run(
                ["bash", "-o", "pipefail", "-c", command],
                cwd=tmp_path,
                env=variables,
                capture_output=True,
                text=True,
            )
        assert process.returncode == 0, (
            f"{command}\n{process.stdout}{process.stderr}"
        )
        assert process.stdout, command


@pytest.mark.parametrize(
    "command",
    # the command of the README's first screen is in test_first_screen.py
    [
        command
        for page in PAGES
        for command in commands(page)
        if re.search(r"podwright serve (?!poet)", command)
    ],
)
def test_services(command: str, tmp_path: Path) -> None:
    """Every `podwright serve` of a page serves, and exits with 0 on SIGTERM."""
    (tmp_path / "deploy").symlink_to(ROOT / "deploy")
    variables = environment(
        PODWRIGHT_MODEL="offline/echo", PODWRIGHT_HOST="127.0.0.1"
    )
    create_component(str(tmp_path / "calculator"), "offline/echo")
    server = subprocess.Popen(
        ["bash", "-c", f"{re.sub(r' --port [0-9]+', '', command)} --port 0"],
        cwd=tmp_path, env=variables, stdout=subprocess.PIPE, text=True, start_new_session=True,
    )  # fmt: skip
    assert server.stdout is not None
    try:
        address = address_in(server.stdout)
        assert address, command
        assert plain_http.get(f"{address}/ready").status_code == 200
    finally:
        os.killpg(server.pid, signal.SIGTERM)
        server.communicate(timeout=60)
    assert server.returncode == 0


@pytest.mark.parametrize("page", PAGES, ids=page_id)
def test_make_targets(page: Path) -> None:
    """Every `make` command of a page is a target."""
    output = subprocess.run(
        ["make", "help"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout
    targets = {line.split()[0] for line in output.splitlines() if line.strip()}
    assert (
        set(re.findall(r"(?:^|`)make ([a-z]+)", page.read_text(), re.MULTILINE))
        <= targets
    )


@pytest.mark.parametrize(
    "command",
    [
        pytest.param(command, id=f"{page_id(page)}-{number}")
        for page in PAGES
        for number, command in enumerate(commands(page))
        if command.startswith("curl ")
    ],
)
def test_requests(command: str, newsroom: str) -> None:
    """Every request of a page succeeds with the service of `make run`."""
    words = shlex.split(command, comments=True)
    # both are the newsroom
    url = next(
        word
        for word in words
        if word.startswith(("localhost:8000", "localhost:8002"))
    )
    headers = [
        words[index + 1].split(": ", 1)
        for index, word in enumerate(words)
        if word == "-H"
    ]
    data = next(
        (words[index + 1] for index, word in enumerate(words) if word == "-d"),
        None,
    )
    response = plain_http.request(
        "POST" if data else "GET",
        f"{newsroom}{url[len('localhost:8000') :]}",
        headers=dict(headers),
        content=data,
        timeout=60,
    )
    assert response.status_code == (
        202 if url.endswith("/runs") and data else 200
    ), response.text


@pytest.mark.parametrize("page", PAGES, ids=page_id)
def test_links(page: Path) -> None:
    """Every link of a page to another file or to a heading resolves."""
    broken: list[str] = []
    for path, anchor in re.findall(
        r"\]\(([^)#:]*)(?:#([^)]*))?\)", page.read_text()
    ):
        target = page.parent / path if path else page
        if not target.exists() or (anchor and anchor not in anchors(target)):
            broken.append(f"{path}#{anchor}")
    assert broken == []


def test_the_tests_of_promises_exist() -> None:
    """Each test that CONTRIBUTING names as a proof of a promise is there."""
    named = re.findall(
        r"`([\w/]+\.py)::(test_\w+)`", (ROOT / "CONTRIBUTING.md").read_text()
    )
    assert len(named) > 50
    missing = [
        (file, test)
        for file, test in named
        if f"def {test}(" not in (ROOT / "tests" / file).read_text()
    ]
    assert missing == []


def test_the_recipes_are_the_examples() -> None:
    """The code of each recipe is that of its folder, which `make test-frameworks` serves."""
    examples = ROOT / "deploy" / "examples"
    shown = re.findall(
        r'^```python title="([^"]*)"\n(.*?)^```',
        (ROOT / "docs" / "frameworks.md").read_text(),
        re.MULTILINE | re.DOTALL,
    )
    assert dict(shown) == {
        str(path.relative_to(examples)): path.read_text()
        for path in examples.glob("frameworks/*/agents.py")
    }


def test_locks_have_hashes_and_no_addresses() -> None:
    """The locks pin packages by hash, and name no index to download from."""
    locks = [
        *ROOT.glob("requirements*.lock"),
        *ROOT.glob("tests/*/requirements.lock"),
    ]
    assert len(locks) > 3
    for lock in locks:
        text = lock.read_text()
        assert "sha256:" in text
        assert not re.search(r"https?://|file:|^-", text, re.MULTILINE), (
            lock.name
        )
