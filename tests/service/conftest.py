"""Real services on real sockets: uvicorn in a thread of the test's process, or the command in its own."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

import httpx
import pytest
import structlog
import uvicorn
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import (
    InMemorySpanExporter,
)
from tests.forked import PIPE_SIZE, ForkedCommand, complete
from tests.helpers import (
    NEWSROOM,
    NO_AUTHORITIES,
    environment,
    tool,
    until,
)
from tests.pgbouncer import PgBouncer, serve_pgbouncer
from tests.postgresql import PostgreSQL, serve_postgresql
from tests.service.support import (
    LISTENING,
    Address,
    Command,
    Example,
    NodeProgram,
    Process,
    Serve,
    Served,
    Shell,
)

import podwright
from podwright.components import Component
from podwright_service.app import create_app
from podwright_service.background.storage.database import database_url, migrate
from podwright_service.observability import exporters
from podwright_service.serving.uvicorn_options import uvicorn_options
from podwright_service.settings import Settings


@pytest.fixture(autouse=True, scope="session")
def usual_signals() -> None:
    """Restore the signals that a shell in the background ignores, because the services would inherit that."""
    for number in (signal.SIGHUP, signal.SIGQUIT):
        signal.signal(number, signal.SIG_DFL)


@contextlib.contextmanager
def _served(component: Component, /, **settings: Any) -> Iterator[httpx.Client]:
    options = Settings(**settings)
    config = uvicorn.Config(
        create_app(options, component),
        **{**uvicorn_options(options), "log_level": "error"},
    )
    server = uvicorn.Server(config)
    with socket.create_server(("127.0.0.1", 0)) as listening:
        thread = threading.Thread(
            target=server.run, kwargs={"sockets": [listening]}
        )
        thread.start()
        port = listening.getsockname()[1]
        until(lambda: server.started)
        with httpx.Client(
            verify=NO_AUTHORITIES,
            base_url=f"http://127.0.0.1:{port}",
            timeout=60,
        ) as client:
            yield client
        server.should_exit = True
        thread.join()


@pytest.fixture
def spans(monkeypatch: pytest.MonkeyPatch) -> Iterator[InMemorySpanExporter]:
    """The spans of services that begin from now on."""
    exporter = InMemorySpanExporter()
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    monkeypatch.setattr(
        exporters, "create_tracer_provider", lambda *_: provider
    )
    yield exporter
    provider.shutdown()


@pytest.fixture
def plain_logging() -> None:
    """No logging of a service in this process, as in a program that configures none; a test before may have."""
    structlog.reset_defaults()


@pytest.fixture(scope="session")
def served() -> Served:
    """Serves a component for as long as a `with` block: `with served(component, model=…) as client`."""
    return _served


@pytest.fixture
def serve() -> Iterator[Serve]:
    """Serves a component for one test: `serve(component, model=…)` returns a client."""
    with contextlib.ExitStack() as stack:
        yield lambda component, /, **settings: stack.enter_context(
            _served(component, **settings)
        )


@pytest.fixture(scope="session")
def example() -> Iterator[Example]:
    """A client of an example, by name, served on the echo model for the whole session."""
    clients: dict[str, httpx.Client] = {}
    with contextlib.ExitStack() as stack:

        def client(name: str) -> httpx.Client:
            if name not in clients:
                component = podwright.load(NEWSROOM / name)
                clients[name] = stack.enter_context(
                    _served(
                        component, model="offline/echo", title=f"The {name}"
                    )
                )
            return clients[name]

        yield client


@pytest.fixture(scope="session")
def newsroom() -> Path:
    """The folder of the examples."""
    return NEWSROOM


@contextlib.contextmanager
def _commands() -> Iterator[Command]:
    processes: list[Process] = []

    def start(
        *arguments: str,
        code: str | None = None,
        cwd: Path | None = None,
        **variables: str,
    ) -> Process:
        variables = environment(
            COLUMNS="200", PYTHONUNBUFFERED="1", **variables
        )
        if code is None:
            processes.append(
                ForkedCommand(arguments, cwd or Path.cwd(), variables)
            )
        else:
            program = [sys.executable, "-c", code, *arguments]
            options = {
                "stdout": subprocess.PIPE,
                "stderr": subprocess.STDOUT,
                "text": True,
                "start_new_session": True,
            }
            processes.append(
                subprocess.Popen(
                    program,
                    cwd=cwd,
                    env=variables,
                    pipesize=PIPE_SIZE,
                    **options,
                )
            )
        return processes[-1]

    yield start
    for process in processes:
        if _is_open(process.stdout):
            # a fork that has no group yet
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
        process.kill()
        process.wait()
        if process.stdout:
            process.stdout.close()


def _is_open(pipe: IO[str] | None) -> bool:
    """Whether a process still holds the other end; when none does, the number of their group may be another's."""
    if pipe is None or pipe.closed:
        return False
    poll = select.poll()
    poll.register(pipe, 0)  # only the end of the pipe is reported
    return not poll.poll(0)


@pytest.fixture
def command() -> Iterator[Command]:
    """Starts `podwright` in a fork, with arguments and variables; `code=` starts Python with that code instead."""
    with _commands() as start:
        yield start


@pytest.fixture(scope="module")
def lasting_command() -> Iterator[Command]:
    """As `command`, for all tests of a module."""
    with _commands() as start:
        yield start


@pytest.fixture(scope="session")
def address() -> Address:
    """Waits until a process listens, and returns its URL."""

    def read(process: Process) -> str:
        assert process.stdout is not None
        output = ""
        for line in process.stdout:
            output += line
            if match := LISTENING.search(line):
                return match[1].replace("0.0.0.0", "127.0.0.1")  # noqa: S104 - all interfaces include this one
        raise AssertionError(f"the process ended: {output}")

    return read


@pytest.fixture
def sqlite_database(tmp_path: Path) -> str:
    """The URL of a database file that does not exist yet."""
    return f"sqlite:///{tmp_path}/runs.db"


@pytest.fixture(scope="session")
def postgresql() -> Iterator[PostgreSQL]:
    """A PostgreSQL server."""
    with serve_postgresql() as server:
        yield server


@pytest.fixture
def postgresql_database(postgresql: PostgreSQL) -> str:
    """The URL of a database with the tables."""
    url = postgresql.database()
    migrate(database_url(url))
    return url


@pytest.fixture(scope="session")
def pgbouncer(postgresql: PostgreSQL) -> Iterator[PgBouncer]:
    """PgBouncer in front of the PostgreSQL server."""
    with serve_pgbouncer(postgresql) as pooler:
        yield pooler


@pytest.fixture
def pooled_database(postgresql: PostgreSQL, pgbouncer: PgBouncer) -> str:
    """The URL of a database with the tables, behind PgBouncer."""
    url = pgbouncer.pooled(postgresql.database())
    migrate(database_url(url))
    return url


@pytest.fixture(params=["sqlite", "postgresql"])
def database(request: pytest.FixtureRequest) -> str:
    """The URL of a database without runs."""
    return request.getfixturevalue(f"{request.param}_database")


@pytest.fixture
def shell(tmp_path: Path, tmp_path_factory: pytest.TempPathFactory) -> Shell:
    """Runs `podwright` with arguments to its end, as a shell does; `stdin=` is its standard input."""
    streams = tmp_path_factory.mktemp("streams")

    def run(
        *arguments: str, stdin: str = "", **variables: str
    ) -> subprocess.CompletedProcess[str]:
        return complete(
            arguments, tmp_path, environment(**variables), streams, stdin
        )

    return run


@pytest.fixture(scope="session")
def node_program() -> NodeProgram:
    """Starts programs of the packages for Node."""
    return NodeProgram(Path(tool("node-client")) / "node_modules")
