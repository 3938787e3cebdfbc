"""Real services on real sockets: uvicorn in a thread of the test's process, or the command in its own."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import uvicorn
from tests.service.support import LISTENING

import podwright
from podwright.components import Component
from podwright_service.app import create_app
from podwright_service.server import server_options
from podwright_service.settings import Settings

ROOT = Path(__file__).parents[2]
NEWSROOM = ROOT / "deploy" / "examples" / "newsroom"
COMMAND = Path(sys.executable).with_name("podwright")

Serve = Callable[..., httpx.Client]


@pytest.fixture(autouse=True, scope="session")
def no_outer_settings() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        for name in [name for name in os.environ if name.startswith("PODWRIGHT_")]:
            patch.delenv(name)
        yield


@pytest.fixture(autouse=True, scope="session")
def usual_signals() -> None:
    """A shell in the background has its children ignore some, and they would hand that on to the services."""
    for number in (signal.SIGHUP, signal.SIGQUIT):
        signal.signal(number, signal.SIG_DFL)


@contextlib.contextmanager
def _served(component: Component, **settings: Any) -> Iterator[httpx.Client]:
    given = Settings(**settings)
    config = uvicorn.Config(create_app(given, component), **{**server_options(given), "log_level": "error"})
    server = uvicorn.Server(config)
    with socket.create_server(("127.0.0.1", 0)) as listening:
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
        thread.start()
        port = listening.getsockname()[1]
        while not server.started:
            time.sleep(0.005)
        with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=20) as client:
            yield client
        server.should_exit = True
        thread.join()


@pytest.fixture(scope="session")
def served() -> Callable[..., contextlib.AbstractContextManager[httpx.Client]]:
    """Serves a component for as long as a `with` block: `with served(component, model=…) as client`."""
    return _served


@pytest.fixture
def serve() -> Iterator[Serve]:
    """Serves a component for one test: `serve(component, model=…)` gives a client of it."""
    with contextlib.ExitStack() as stack:
        yield lambda component, **settings: stack.enter_context(_served(component, **settings))


@pytest.fixture(scope="session")
def example() -> Iterator[Callable[[str], httpx.Client]]:
    """A client of an example, by name, served on the echo model for the whole session."""
    clients: dict[str, httpx.Client] = {}
    with contextlib.ExitStack() as stack:

        def client(name: str) -> httpx.Client:
            if name not in clients:
                component = podwright.load(NEWSROOM / name)
                clients[name] = stack.enter_context(_served(component, model="offline/echo", title=f"The {name}"))
            return clients[name]

        yield client


@pytest.fixture(scope="session")
def newsroom() -> Path:
    """The folder of the examples."""
    return NEWSROOM


@contextlib.contextmanager
def _commands() -> Iterator[Callable[..., subprocess.Popen[str]]]:
    started: list[subprocess.Popen[str]] = []

    def start(
        *arguments: str,
        code: str | None = None,
        under: tuple[str, ...] = (),
        cwd: Path | None = None,
        **variables: str,
    ) -> subprocess.Popen[str]:
        program = [sys.executable, "-c", code] if code is not None else [str(COMMAND)]
        kept = {name: value for name, value in os.environ.items() if not name.startswith("PODWRIGHT_")}
        process = subprocess.Popen(
            [*under, *program, *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            cwd=cwd,
            env={**kept, "COLUMNS": "200", "PYTHONUNBUFFERED": "1", **variables},
            start_new_session=True,
        )
        started.append(process)
        return process

    yield start
    for process in started:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)  # the worker processes too
        process.communicate()


@pytest.fixture
def command() -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Starts `podwright` with arguments, `under` another program; `code=` starts Python with it in its place."""
    with _commands() as start:
        yield start


@pytest.fixture(scope="module")
def lasting_command() -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """As `command`, for all tests of a module."""
    with _commands() as start:
        yield start


@pytest.fixture(scope="session")
def address() -> Callable[[subprocess.Popen[str]], str]:
    """The address that a started process says it listens on."""

    def read(process: subprocess.Popen[str]) -> str:
        assert process.stdout is not None
        said = ""
        for line in process.stdout:
            said += line
            if match := LISTENING.search(line):
                return match[1].replace("0.0.0.0", "127.0.0.1")  # noqa: S104 - all interfaces include this one
        raise AssertionError(f"the process ended: {said}")

    return read


@pytest.fixture
def shell(tmp_path: Path) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Runs `podwright` with arguments to its end, as a shell does; `given=` is its standard input."""

    def run(*arguments: str, given: str = "", **variables: str) -> subprocess.CompletedProcess[str]:
        kept = {name: value for name, value in os.environ.items() if not name.startswith("PODWRIGHT_")}
        return subprocess.run(
            [str(COMMAND), *arguments],
            input=given,
            capture_output=True,
            text=True,
            cwd=tmp_path,
            env={**kept, **variables},
            timeout=60,
        )

    return run
