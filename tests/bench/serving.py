"""What the service costs: `POST /run` on the direct lane, against what one would write without it."""

from __future__ import annotations

import asyncio
import contextlib
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Generator
from pathlib import Path

from figures import Figure, environment, free_port
from load import KEY, Load, load, post

HERE = Path(__file__).parent
BODY = b'{"input": "Why does the moon not fall?"}'
CPUS = sorted(os.sched_getaffinity(0))
ROUNDS = 11


@contextlib.contextmanager
def running(*command: str, cpu: int, **variables: str) -> Generator[subprocess.Popen[bytes]]:
    """A process on a CPU of its own, so that what is measured is one core's worth; nobody reads what it logs."""
    given = {**environment(), "BENCH_KEY": KEY, **variables}
    process = subprocess.Popen([sys.executable, *command], env=given, stdout=subprocess.DEVNULL)
    os.sched_setaffinity(process.pid, {cpu})
    try:
        yield process
    finally:
        process.terminate()
        process.wait(10)


@contextlib.contextmanager
def provider(delay_ms: int = 0) -> Generator[int]:
    port = free_port()
    with running(str(HERE / "upstream.py"), str(port), str(delay_ms), cpu=CPUS[-1]):
        yield port


@contextlib.contextmanager
def app(name: str, upstream: int, **variables: str) -> Generator[tuple[int, int]]:
    """One of apps.py: its port, and its process's id."""
    port = free_port()
    with running(str(HERE / "apps.py"), name, str(port), str(upstream), cpu=CPUS[0], **variables) as process:
        yield port, process.pid


async def first_answer(port: int, path: str = "/run") -> None:
    deadline = time.monotonic() + 60
    while True:
        try:
            await load(port, path, BODY, 1, 1)
        except OSError:
            if time.monotonic() > deadline:
                raise
            await asyncio.sleep(0.002)
        else:
            return


async def compared(
    names: list[str],
    path: str,
    requests: int,
    connections: int,
    delay_ms: int = 0,
    rounds: int = ROUNDS,
    collector: str = "",
) -> list[list[Load]]:
    """The same load on each app in turns, one app at a time; a column of loads for each."""
    with contextlib.ExitStack() as stack:
        upstream = stack.enter_context(provider(delay_ms))
        given = {"full-spans": {"OTEL_EXPORTER_OTLP_ENDPOINT": collector}}
        ports = [stack.enter_context(app(name, upstream, **given.get(name, {})))[0] for name in names]
        for port in ports:
            await first_answer(port, path)
            await load(port, path, BODY, min(requests, 600), connections)
        columns: list[list[Load]] = [[] for _ in names]
        for _ in range(rounds):
            for column, name, port in zip(columns, names, ports, strict=True):
                share = 8 if name == "wide" else 1  # it answers so few that a smaller load tells as much
                column.append(await load(port, path, BODY, requests // share, connections))
        return columns


def ratio(one: list[Load], other: list[Load]) -> float:
    return statistics.median(a.rate / b.rate for a, b in zip(one, other, strict=True))


def rate(loads: list[Load]) -> str:
    return f"{statistics.median(one.rate for one in loads):.0f}/s"


async def throughput() -> list[Figure]:
    names = ["plain", "ours", "ours-tools", "wide"]
    plain, ours, tools, wide = await compared(names, "/run", 4000, 64, rounds=7)
    of_plain = f"plain FastAPI + aiohttp {rate(plain)}"
    return [
        Figure("one call", ratio(ours, plain), "×", f"ours {rate(ours)}, {of_plain}", 0.6, "at least"),
        Figure("one call", ratio(ours, wide), "×", f"ours {rate(ours)}, FastAPI + LiteLLM {rate(wide)}", 5, "at least"),
        Figure(
            "a tool loop of two calls", ratio(tools, plain), "×", f"ours {rate(tools)}, {of_plain}", 0.33, "at least"
        ),
    ]


async def full_service() -> list[Figure]:
    port = free_port()
    with running(str(HERE / "collector.py"), str(port), cpu=CPUS[-1]):
        # only "full-spans" is told where spans go
        names = ["plain", "full", "full-spans"]
        plain, full, spans = await compared(names, "/run", 2000, 64, collector=f"http://127.0.0.1:{port}")
    of_plain = f"plain FastAPI + aiohttp {rate(plain)}"
    return [
        Figure(
            "keys, limits, metrics and logs", ratio(full, plain), "×", f"ours {rate(full)}, {of_plain}", 0.5, "at least"
        ),
        Figure("and every span exported", ratio(spans, plain), "×", f"ours {rate(spans)}, {of_plain}", 0.5, "at least"),
    ]


STREAMS = 1000


async def streams() -> list[Figure]:
    """What the service grows by for each stream that is open, while the model is at work."""
    open_: list[asyncio.StreamWriter] = []

    async def opened(port: int, count: int) -> None:
        for _ in range(count):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            open_.append(writer)
            writer.write(post("/run/stream", BODY))
            await reader.readuntil(b"event: model_call_started")

    with provider(600_000) as upstream, app("full-streams", upstream) as (port, process):
        await listening(port)
        await opened(port, 50)
        before = resident(process)
        await opened(port, STREAMS)
        grown = (resident(process) - before) * 1024 / STREAMS
        for writer in open_:
            writer.close()
        await asyncio.gather(*(writer.wait_closed() for writer in open_))
    detail = f"{STREAMS} of them, each with a connection to the model"
    return [Figure("memory of an open stream", grown, "KiB", detail, 60)]


async def listening(port: int) -> None:
    deadline = time.monotonic() + 60
    while True:
        try:
            (await asyncio.open_connection("127.0.0.1", port))[1].close()
        except OSError:
            if time.monotonic() > deadline:
                raise
            await asyncio.sleep(0.01)
        else:
            return


async def slow_provider() -> list[Figure]:
    plain, ours = await compared(["plain", "ours"], "/run", 5000, 500, delay_ms=200, rounds=3)
    tails = [a.percentile(0.99) / b.percentile(0.99) for a, b in zip(ours, plain, strict=True)]
    shown = [statistics.median(one.percentile(0.99) for one in column) * 1000 for column in (ours, plain)]
    detail = f"ours {rate(ours)}, plain {rate(plain)}"
    p99 = f"ours {shown[0]:.0f} ms, plain {shown[1]:.0f} ms"
    return [
        Figure("200 ms provider, 500 connections", ratio(ours, plain), "×", detail, 0.75, "at least"),
        Figure("its p99", statistics.median(tails), "×", p99, 1.3),
    ]


async def streaming() -> list[Figure]:
    plain, ours = await compared(["plain", "ours"], "/stream", 2000, 64)
    return [Figure("streaming", ratio(ours, plain), "×", f"ours {rate(ours)}, plain {rate(plain)}")]


def resident(pid: int) -> float:
    """Resident memory of a process in MiB."""
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.partition("VmRSS:")[2].split()[0]) / 1024


async def start(name: str, upstream: int) -> tuple[float, float]:
    """Seconds from the start of a process to its first answer, and its memory then in MiB."""
    port = free_port()
    begin = time.perf_counter()
    with running(str(HERE / "apps.py"), name, str(port), str(upstream), cpu=CPUS[0]) as process:
        await first_answer(port)
        return time.perf_counter() - begin, resident(process.pid)


async def starting() -> list[Figure]:
    with provider() as upstream:
        await start("full", upstream)
        await start("plain", upstream)
        pairs = [(await start("full", upstream), await start("plain", upstream)) for _ in range(ROUNDS)]
    times = [(a[0], b[0]) for a, b in pairs]
    sizes = [(a[1], b[1]) for a, b in pairs]
    time_of, size_of = ([statistics.median(column) for column in zip(*rows, strict=True)] for rows in (times, sizes))
    took = f"ours {time_of[0] * 1000:.0f} ms, plain {time_of[1] * 1000:.0f} ms"
    used = f"ours {size_of[0]:.0f} MiB, plain {size_of[1]:.0f} MiB"
    return [
        Figure("start to first answer", statistics.median(a / b for a, b in times), "×", took, 2),
        Figure("resident memory", statistics.median(a / b for a, b in sizes), "×", used, 1.4),
    ]


async def measured() -> list[Figure]:
    """All figures of the service."""
    os.sched_setaffinity(0, {CPUS[-1]})
    try:
        parts = (throughput, full_service, slow_provider, streaming, streams, starting)
        return [figure for part in parts for figure in await part()]
    finally:
        os.sched_setaffinity(0, set(CPUS))


if __name__ == "__main__":
    from figures import table

    print(table(asyncio.run(measured())))
