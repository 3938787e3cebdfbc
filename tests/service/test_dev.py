"""`podwright dev`: a component is served while it changes."""

from __future__ import annotations

import contextlib
import os
import pty
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.helpers import environment, plain_http, until
from tests.service.support import (
    AGENT,
    Command,
    Process,
    check_end,
    write,
)

from podwright import blueprints
from podwright_service.cli.developing import watched_files
from podwright_service.cli.developing.new import create_component
from podwright_service.cli.developing.watched_files import WatchedFiles

CODE = "from podwright_service.cli import main; main()"
"""The command in a Python of its own, with the fork server of a user's."""
ADDRESS = re.compile(r"Serving on (http://[^,]+),")


class Development:
    """A process `podwright dev`."""

    def __init__(self, process: Process) -> None:
        self.process = process
        self.url = ""
        self.lines: list[str] = []

    def wait_for(self, text: str) -> list[str]:
        """Read the output up to a line with a text, and return it."""
        assert self.process.stdout is not None
        read: list[str] = []
        for line in self.process.stdout:
            read.append(line)
            if text in line:
                return read
        raise AssertionError("".join(read))

    def wait_for_start(self) -> None:
        """Wait until the first version serves."""
        line = self.wait_for("Serving on")[-1]
        match = ADDRESS.search(line)
        assert match is not None
        self.url = match[1]

    def answer(self, text: str = "x") -> str:
        done = plain_http.post(f"{self.url}/run", json={"input": text})
        assert done.status_code == 200, done.text
        return done.json()["output"]

    def answers(self, text: str) -> bool:
        """Whether the answer has a text; while a version replaces another one, either may answer."""
        return text in self.answer()


@pytest.fixture
def develop(command: Command, tmp_path: Path) -> Any:
    """Starts `podwright dev` with arguments, in the folder of the test."""

    def start(*arguments: str, **variables: str) -> Development:
        process = command(
            "dev", *arguments, "--port", "0", code=CODE, cwd=tmp_path, **variables
        )  # fmt: skip
        return Development(process)

    return start


def function(value: str) -> str:
    return f'def add_numbers(numbers: list[float]) -> str:\n    """Add."""\n    return "{value}"\n'


def test_what_is_saved_is_served(develop: Any, tmp_path: Path) -> None:
    """Each save is served, however soon it follows the last one; databases and byte code that are written are none."""
    create_component(str(tmp_path / "calculator"), "offline/echo")
    tools = write(tmp_path / "calculator" / "tools.py", function("sum-0"))
    dev = develop("calculator")
    dev.wait_for_start()
    assert "sum-0" in dev.answer()
    for number in range(1, 4):
        # of the same size, and most of them in the same second
        write(tools, function(f"sum-{number}"))
        dev.wait_for("Reloaded")
        until(partial(dev.answers, f"sum-{number}"))
    for name in ("desk.db", "desk.db-wal", "x.log", ".hidden", "y.py~"):
        (tools.parent / name).write_text("x")
    (tools.parent / "__pycache__").mkdir(exist_ok=True)
    (tools.parent / "__pycache__" / "tools.pyc").write_text("x")
    write(tools, function("last"))
    changed = dev.wait_for("Reloaded")
    assert "Changed: calculator/tools.py.\n" in changed
    until(lambda: dev.answers("last"))


def test_a_broken_version_replaces_none(develop: Any, tmp_path: Path) -> None:
    """All problems are printed, and the last good version is still served until they are fixed."""
    file = write(tmp_path / "blueprint.json", {**AGENT, "nme": 1, "tools": 5})
    dev = develop("blueprint.json")
    read = "".join(dev.wait_for("Nothing is served"))
    assert "/nme" in read
    assert "/tools" in read
    write(file, AGENT)
    dev.wait_for_start()
    assert dev.answer() == "Echo: x"
    write(file, "{")
    read = "".join(dev.wait_for("The last good version is still served."))
    assert "Invalid JSON" in read
    assert dev.answer() == "Echo: x"
    write(file, {**AGENT, "description": "Fixed."})
    dev.wait_for("Reloaded")
    until(
        lambda: (
            plain_http.get(f"{dev.url}/info").json()["description"] == "Fixed."
        )
    )


WRITES = """
import os, pathlib
folder = pathlib.Path(__file__).parent
(folder / "cache.json").write_text(str(os.getpid()))
(folder / "new.json").write_text("x" * os.getpid())
(folder / "part").write_text(str(os.getpid()))
(folder / "part").replace(folder / "table.csv")
"""


def test_what_the_component_writes_is_not_watched(
    develop: Any, tmp_path: Path
) -> None:
    """Files that the code writes while it is imported are named, and change nothing; those saved meanwhile do."""
    create_component(str(tmp_path / "calculator"), "offline/echo")
    folder = tmp_path / "calculator"
    write(folder / "cache.json", "old")
    write(folder / "table.csv", "old")
    # the import ends once it has been looked at the files again
    wait = f"import time\nwhile not pathlib.Path({str(tmp_path / 'go')!r}).exists():\n    time.sleep(0.01)\n"
    write(folder / "tools.py", WRITES + wait + function("one"))
    dev = develop("calculator")
    until(lambda: (folder / "table.csv").read_text().isdecimal())
    first = (folder / "table.csv").read_text()
    write(folder / "tools.py", WRITES + wait + function("two"))
    read = "".join(dev.wait_for("Changed:"))
    assert "Changed: calculator/tools.py.\n" in read
    until(lambda: (folder / "table.csv").read_text() != first)
    second = (folder / "table.csv").read_text()
    (tmp_path / "go").touch()
    dev.wait_for_start()
    assert "two" in dev.answer()
    assert (folder / "table.csv").read_text() == second
    for name in ("cache.json", "new.json", "table.csv"):
        assert (
            f"Not watched, because the component writes it: calculator/{name}.\n"
            in read
        )
    write(folder / "tools.py", function("three"))
    changed = dev.wait_for("Reloaded")
    assert "Changed: calculator/tools.py.\n" in changed


@pytest.mark.parametrize(
    ("code", "text"),
    [
        ("import os; os._exit(3)", "exit code 3"),
        ("raise KeyboardInterrupt", "exit code 130"),
        ("import os; os.kill(os.getpid(), 9)", "exit code -9"),
    ],
)
def test_a_version_that_ends_by_itself(
    develop: Any, tmp_path: Path, code: str, text: str
) -> None:
    """The exit code says why nothing is served if no error does."""
    create_component(str(tmp_path / "calculator"), "offline/echo")
    write(tmp_path / "calculator" / "tools.py", code)
    dev = develop("calculator")
    read = "".join(dev.wait_for("Nothing is served"))
    assert f"The process ended with {text}.\n" in read


def test_paths_that_no_file_can_have(develop: Any, tmp_path: Path) -> None:
    """A path with a null character is a problem that can be fixed."""
    bad = {**AGENT, "instructions": {"file": "x\0.md"}}
    file = write(tmp_path / "a" / "blueprint.json", bad)
    write(
        tmp_path / "a" / "pyproject.toml",
        '[tool.podwright]\nshared = ["../a\\u0000b"]\n',
    )
    dev = develop("a")
    assert "/instructions" in "".join(dev.wait_for("Nothing is served"))
    write(file, AGENT)
    assert "shared" in "".join(dev.wait_for("Nothing is served"))
    (tmp_path / "a" / "pyproject.toml").unlink()
    dev.wait_for_start()


def test_everything_that_belongs_to_it(develop: Any, tmp_path: Path) -> None:
    """Agents beside the folder, shared packages, prompts and the file of variables are watched too."""
    step = {"type": "agent_step", "name": "s", "agent": "helper"}
    flow = {"type": "Workflow", "name": "flow", "steps": [step]}
    folder = tmp_path / "flow"
    write(folder / "blueprint.json", flow)
    env = write(
        tmp_path / ".env", "PODWRIGHT_TITLE=One\nPODWRIGHT_MODEL=offline/echo\n"
    )
    dev = develop("flow", "--env-file", ".env", PODWRIGHT_MODEL="offline/echo")
    dev.wait_for("Nothing is served")
    helper = {
        **AGENT,
        "name": "helper",
        "instructions": {"file": "prompt.md"},
    }
    # the folder that was missing is watched as well
    write(tmp_path / "helper" / "prompt.md", "Help.")
    write(tmp_path / "helper" / "blueprint.json", helper)
    dev.wait_for_start()
    for path, text in (
        (tmp_path / "helper" / "prompt.md", "Help more."),
        (tmp_path / "shared" / "words.py", "WORD = 1\n"),
        (env, "PODWRIGHT_TITLE=Two\n"),
    ):
        write(path, text)
        changed = dev.wait_for("Reloaded")
        assert f"Changed: {path.relative_to(tmp_path)}.\n" in changed
    until(lambda: plain_http.get(f"{dev.url}/info").json()["title"] == "Two")


def test_a_module_and_what_it_imports(develop: Any, tmp_path: Path) -> None:
    """A component in Python is served anew if its module changes, or one that it imports from elsewhere."""
    elsewhere = tmp_path / "elsewhere"
    words = write(elsewhere / "words.py", "WORD = 'one'\n")
    work = tmp_path / "work"
    write(
        work / "app.py",
        "import words\nfrom podwright import Agent, FunctionModel\n"
        "agent = Agent('a', 'Do.', FunctionModel(lambda request: words.WORD))\n",
    )
    dev = develop("app:agent", PYTHONPATH=str(elsewhere), PODWRIGHT_TITLE="T")
    # not in this folder, and so a first version that cannot start
    assert "app" in "".join(dev.wait_for("Nothing is served"))
    write(tmp_path / "app.py", (work / "app.py").read_text())
    dev.wait_for_start()
    assert dev.answer() == "one"
    write(words, "WORD = 'two'\n")
    dev.wait_for("Reloaded")
    until(lambda: dev.answers("two"))


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_everything(
    develop: Any, tmp_path: Path, number: signal.Signals
) -> None:
    """After Ctrl-C, also during a run, no process is left, and the exit code is 0."""
    create_component(str(tmp_path / "calculator"), "offline/echo")
    started = tmp_path / "started"
    write(
        tmp_path / "calculator" / "tools.py",
        "import pathlib, time\n"
        "def add_numbers(numbers: list[float]) -> float:\n"
        '    """Add."""\n'
        f"    pathlib.Path({str(started)!r}).touch()\n"
        "    time.sleep(600)\n"
        "    return 1.0\n",
    )
    dev = develop("calculator")
    dev.wait_for_start()
    runs = threading.Thread(target=_run_until_cut_off, args=(dev,))
    runs.start()
    until(started.exists)
    # of the whole group, as a terminal does
    os.killpg(dev.process.pid, number)
    check_end(dev.process)
    runs.join()
    until(lambda: not _exists(dev.process.pid))


def _run_until_cut_off(dev: Development) -> None:
    with contextlib.suppress(httpx.HTTPError, AssertionError):
        dev.answer()


def _exists(group: int) -> bool:
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    return True


def test_a_killed_process_leaves_none(develop: Any, tmp_path: Path) -> None:
    """If the command is killed, the process that serves ends too."""
    write(tmp_path / "blueprint.json", AGENT)
    dev = develop("blueprint.json")
    dev.wait_for_start()
    os.kill(dev.process.pid, signal.SIGKILL)
    dev.process.wait()
    until(lambda: not _exists(dev.process.pid))


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["missing"], "There is no component at 'missing'"),
        ([], "There is no component to serve"),
        (["blueprint.json", "--env-file", "missing"], "missing"),
        (["blueprint.json", "--host", "256.1.1.1"], "Could not listen"),
    ],
)
def test_what_cannot_be_fixed_by_a_save(
    develop: Any, tmp_path: Path, arguments: list[str], text: str
) -> None:
    """A wrong command ends with exit code 1, and does not wait for a change."""
    write(tmp_path / "blueprint.json", AGENT)
    dev = develop(*arguments)
    assert text in check_end(dev.process, 1)


def test_a_terminal_has_short_lines(tmp_path: Path, command: Command) -> None:
    """On a terminal the log is for people."""
    write(tmp_path / "blueprint.json", AGENT)
    master, slave = pty.openpty()
    program = [sys.executable, "-c", CODE, "dev", "blueprint.json"]
    process = subprocess.Popen(
        [*program, "--port", "0"],
        cwd=tmp_path,
        env=environment(TERM="dumb", COLUMNS="200"),
        stdin=subprocess.DEVNULL,
        stdout=slave,
        stderr=slave,
        start_new_session=True,
    )
    os.close(slave)
    try:
        lines = _lines(master)
        address = next(filter(None, map(ADDRESS.search, lines)))
        plain_http.post(f"{address[1]}/run", json={"input": "x"})
        line = next(line for line in lines if "writer:" in line)
        assert re.fullmatch(r"\d\d:\d\d:\d\d writer: ok, .*", line.strip())
    finally:
        os.killpg(process.pid, signal.SIGINT)
        assert process.wait() == 0
        os.close(master)


def _lines(terminal: int) -> Iterator[str]:
    with os.fdopen(os.dup(terminal), encoding="utf-8") as output:
        yield from output


@pytest.fixture
def component(tmp_path: Path) -> Path:
    """A component folder with a file of each sort."""
    folder = tmp_path / "component"
    write(folder / "blueprint.json", AGENT)
    write(folder / "tools.py", "")
    write(folder / "agents" / "critic.json", {**AGENT, "name": "critic"})
    return folder


def changes_by(files: WatchedFiles, path: Path, text: str) -> list[Path]:
    files.begin()
    write(path, text)
    return files.changes()


@pytest.mark.parametrize(
    ("name", "is_part"),
    [
        ("tools.py", True),
        ("new.md", True),
        ("data/prices.csv", True),
        ("agents/critic.json", True),
        ("../shared/words.py", True),
        ("../other/tools.py", False),
        ("test_tools.py", False),
        (".git/index", False),
        ("node_modules/x.js", False),
        ("desk.sqlite3-journal", False),
        ("venv/lib/x.py", False),
        ("prod.env", False),
        ("server.pem", False),
        ("private.key", False),
        ("id_rsa.pub", False),
        ("id_ed25519", False),
        ("keys.py", True),
    ],
)
def test_the_files_of_a_folder(
    component: Path, name: str, is_part: bool
) -> None:
    """Files of the component are watched; what programs write, tests and environments are not."""
    write(component / "venv" / "pyvenv.cfg", "")
    files = WatchedFiles(str(component))
    path = component / name
    found = changes_by(files, path, "changed")
    assert found == [path.resolve()] * is_part


def test_a_file_that_is_removed(component: Path) -> None:
    """A removed file is a change, and so is one that is added to those that are watched."""
    files = WatchedFiles(str(component))
    files.begin()
    (component / "tools.py").unlink()
    assert files.changes() == [component / "tools.py"]
    files.begin()
    module = write(component.parent / "module.py", "1")
    files.add([str(module)])
    assert files.changes() == []
    write(module, "2 of another size")
    assert files.changes() == [module]


def test_the_texts_of_a_file(tmp_path: Path) -> None:
    """Of a blueprint file, the file and the files of its texts are watched, and nothing else."""
    prompt = write(tmp_path / "prompt.md", "1")
    blueprint = {**AGENT, "instructions": {"file": "prompt.md"}}
    file = write(tmp_path / "blueprint.yaml", blueprints.to_yaml(blueprint))
    files = WatchedFiles(str(file))
    assert changes_by(files, prompt, "12") == [prompt]
    assert changes_by(files, file, "{") == [file]
    assert changes_by(files, tmp_path / "other.md", "1") == []


@pytest.mark.parametrize("name", ["prompt.log", ".prompts/test_it.py"])
def test_the_texts_of_a_folder(component: Path, name: str) -> None:
    """A file with a text of an agent is watched whatever its name, also before it exists."""
    files = WatchedFiles(str(component))
    critic = {**AGENT, "name": "critic", "instructions": {"file": name}}
    write(component / "agents" / "critic.json", critic)
    prompt = component / "agents" / name
    assert changes_by(files, prompt, "1") == [prompt]
    write(component / "agents" / "critic.json", "{")
    assert changes_by(files, prompt, "12") == [prompt]


def test_a_broken_agent_beside(tmp_path: Path) -> None:
    """An agent beside the component is watched although its blueprint, or that of another agent, is broken."""
    steps = [
        {"type": "agent_step", "agent": name, "name": name}
        for name in ("helper", "other", "missing")
    ]
    workflow = {"type": "Workflow", "name": "flow", "steps": steps}
    write(tmp_path / "flow" / "blueprint.json", workflow)
    broken = [
        write(tmp_path / name / "blueprint.json", "{")
        for name in ("helper", "other")
    ]
    files = WatchedFiles(str(tmp_path / "flow"))
    for file in (*broken, tmp_path / "missing" / "blueprint.json"):
        assert changes_by(files, file, "{}") == [file]


def test_a_link_to_a_folder(component: Path, tmp_path: Path) -> None:
    """What is written into a folder that is linked is no change of the component."""
    (tmp_path / "data").mkdir()
    (component / "data").symlink_to(tmp_path / "data")
    files = WatchedFiles(str(component))
    assert changes_by(files, tmp_path / "data" / "table.csv", "1") == []


def test_the_wait_for_changes_ends(component: Path) -> None:
    """Waiting ends once something has changed."""
    files = WatchedFiles(str(component))
    files.begin()
    looks = files.wait()
    next(looks)
    write(component / "tools.py", "changed")
    assert list(looks) == []
    assert files.changes() == [component / "tools.py"]


def test_a_file_that_is_emptied_before_it_is_written(
    component: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Some editors empty a file, and write it then: the wait ends with the content."""
    monkeypatch.setattr(watched_files, "_HALF_SAVED", 600.0)
    blueprint = component / "blueprint.json"
    files = WatchedFiles(str(component))
    files.begin()
    blueprint.write_text("")
    looks = files.wait()
    next(looks)
    blueprint.write_text("{}")
    assert list(looks) == []
    assert files.changes() == [blueprint]


def test_a_file_that_stays_empty(
    component: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file without content is a change too."""
    monkeypatch.setattr(watched_files, "_HALF_SAVED", 0.0)
    files = WatchedFiles(str(component))
    files.begin()
    (component / "blueprint.json").write_text("")
    assert list(files.wait()) == []
