"""Starts the processes that are measured, and puts the same load on several of them in turns."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import subprocess
import sys
from collections.abc import Generator, Iterable
from dataclasses import dataclass, field
from pathlib import Path

from load import Load, load

HERE = Path(__file__).parent
BODY = b'{"input": "Why does the moon not fall?"}'
CPUS = sorted(os.sched_getaffinity(0))
"""The measured application has the first one; the provider, the collector and the load have the last one."""


@dataclass(frozen=True)
class App:
    """An application of apps.py, with the environment variables that configure it."""

    name: str
    variables: dict[str, str] = field(default_factory=dict[str, str])
    share: float = 1.0
    """The part of the requests that it gets; a slow one needs fewer."""
    settle: float = 0.0
    """Seconds that it works on after its last response."""
    path: str = ""
    """Where its requests go, if not where those of the others go."""
    body: bytes = BODY
    checkout: Path | None = None
    """The folder of another commit that has the application; by default it is that of this one."""


@dataclass
class Loads:
    """The results of one application, one for each round."""

    loads: list[Load] = field(default_factory=list[Load])
    cpu: list[float] = field(default_factory=list[float])
    """CPU seconds of the process per request, all threads included."""
    requests: int = 0
    """All requests, warm-up included."""

    @property
    def rates(self) -> list[float]:
        return [load.rate for load in self.loads]

    @property
    def p99_ms(self) -> list[float]:
        return [load.percentile(0.99) * 1e3 for load in self.loads]


@dataclass(frozen=True)
class Server:
    """A running application."""

    port: int
    pid: int

    @property
    def cpu_seconds(self) -> float:
        """CPU time of the process and its children so far."""
        return cpu_seconds(self.pid)

    @property
    def resident(self) -> float:
        """Resident memory in MiB."""
        status = Path(f"/proc/{self.pid}/status").read_text()
        return int(status.partition("VmRSS:")[2].split()[0]) / 1024


def cpu_seconds(pid: int) -> float:
    """CPU time of a process and its children so far, those that have ended included."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    own = sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")
    return own + sum(map(cpu_seconds, map(int, children)))


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def environment() -> dict[str, str]:
    """This environment without settings of Podwright and OpenTelemetry; byte code is written, as for any package."""
    ignored = ("PODWRIGHT_", "OTEL_", "PYTHONDONTWRITEBYTECODE")
    return {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(ignored)
    }


@contextlib.contextmanager
def process(
    script: str,
    *arguments: object,
    cpus: Iterable[int],
    checkout: Path | None = None,
    **variables: str,
) -> Generator[int]:
    """Run a script of this folder, or of that of another checkout, on some CPUs; yields its process id."""
    python = sys.executable
    folder = HERE
    if checkout is not None:
        python = str(checkout / ".venv" / "bin" / "python")
        folder = checkout / "tests" / "bench"
    command = [python, str(folder / script), *map(str, arguments)]
    child = subprocess.Popen(
        command, env={**environment(), **variables}, stdout=subprocess.DEVNULL
    )
    os.sched_setaffinity(child.pid, cpus)
    try:
        yield child.pid
    finally:
        child.terminate()
        child.wait(30)


@contextlib.contextmanager
def provider(delay_ms: int = 0) -> Generator[int]:
    """A model provider; yields its port."""
    port = free_port()
    with process("upstream.py", port, delay_ms, cpus=CPUS[-1:]):
        yield port


@contextlib.contextmanager
def serve(
    app: App, provider_port: int = 0, cpus: Iterable[int] = CPUS[:1]
) -> Generator[Server]:
    port = free_port()
    with process(
        "apps.py",
        app.name,
        port,
        provider_port,
        cpus=cpus,
        checkout=app.checkout,
        **app.variables,
    ) as pid:
        yield Server(port, pid)


async def wait_for_response(
    port: int, path: str = "/run", body: bytes = BODY
) -> None:
    """Repeat a request until the server accepts it."""
    async with asyncio.timeout(60):
        while True:
            try:
                await load(port, path, body, 1, 1)
            except OSError:
                await asyncio.sleep(0.002)
            else:
                return


async def compare(
    apps: dict[str, App],
    path: str,
    requests: int,
    connections: int,
    rounds: int,
    delay_ms: int = 0,
) -> dict[str, Loads]:
    """Put the same load on each application in turns, one at a time."""
    results = {name: Loads() for name in apps}
    with contextlib.ExitStack() as stack:
        provider_port = stack.enter_context(provider(delay_ms))
        servers = {
            name: stack.enter_context(serve(app, provider_port))
            for name, app in apps.items()
        }
        for name, server in servers.items():
            app = apps[name]
            await wait_for_response(server.port, app.path or path, app.body)
            warm_up = int(500 * app.share) + connections
            await load(
                server.port, app.path or path, app.body, warm_up, connections
            )
            results[name].requests += warm_up + 1
        for _ in range(rounds):
            for name, server in servers.items():
                await measure(
                    server,
                    apps[name],
                    path,
                    requests,
                    connections,
                    results[name],
                )
    return results


async def measure(
    server: Server,
    app: App,
    path: str,
    requests: int,
    connections: int,
    result: Loads,
) -> None:
    before = server.cpu_seconds
    done = await load(
        server.port,
        app.path or path,
        app.body,
        int(requests * app.share),
        connections,
    )
    await asyncio.sleep(app.settle)
    result.loads.append(done)
    result.requests += len(done.latencies)
    result.cpu.append((server.cpu_seconds - before) / len(done.latencies))
