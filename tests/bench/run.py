"""Measures what the library costs, as ratios taken side by side in one run, and writes docs/benchmarks.md.

Every figure stands against something well known that is measured in the same minute on the same machine, so that
it means the same on another. Run it with `make bench`.
"""

from __future__ import annotations

import asyncio
import gc
import os
import statistics
import subprocess
import sys
import textwrap
import time
import tracemalloc
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from aiohttp import ClientSession
from pydantic import BaseModel

from podwright import Agent
from podwright.testing import Model, ModelRequest, ModelResponse

PAGE = Path(__file__).parents[2] / "docs" / "benchmarks.md"
ROUNDS = 9


@dataclass(frozen=True)
class Figure:
    """A measured value, what it may be at most, and how it came about."""

    title: str
    value: float
    limit: float | None
    unit: str
    detail: str

    @property
    def ok(self) -> bool:
        return self.limit is None or self.value <= self.limit


class Five(BaseModel):
    """The pydantic model that agents are compared with."""

    a: int
    b: str
    c: float
    d: list[str]
    e: bool


def get_weather(city: str, days: int = 1) -> str:
    """Say what the weather will be."""
    return f"{city}: sun for {days} days"


def new_agent() -> Agent:
    return Agent("guide", "You are a guide.", "openai/gpt-4o-mini", [get_weather], 5)


def new_five() -> Five:
    return Five(a=1, b="x", c=1.5, d=["y"], e=True)


def paired(one: Callable[[], float], other: Callable[[], float]) -> tuple[float, float, float]:
    """The median ratio of two measurements taken in turns, and the median of each."""
    pairs = [(one(), other()) for _ in range(ROUNDS)]
    ratio = statistics.median(a / b for a, b in pairs)
    return ratio, statistics.median(a for a, _ in pairs), statistics.median(b for _, b in pairs)


def seconds_each(function: Callable[[], object], count: int = 20_000) -> float:
    gc.collect()
    start = time.perf_counter()
    for _ in range(count):
        function()
    return (time.perf_counter() - start) / count


def creation_time() -> Figure:
    new_agent()
    ratio, agent, five = paired(lambda: seconds_each(new_agent), lambda: seconds_each(new_five))
    detail = f"an agent with one tool {agent * 1e6:.1f} µs, a pydantic model of five fields {five * 1e6:.2f} µs"
    return Figure("creating an agent", ratio, 10, "×", detail)


def creation_memory() -> Figure:
    new_agent()
    gc.collect()
    tracemalloc.start()
    kept = [new_agent() for _ in range(1_000)]
    size, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return Figure("memory of an agent", size / len(kept) / 1024, 8, "KiB", "mean of 1 000 agents with one tool")


class Silent(Model):
    """A model that answers at once and costs nothing to ask."""

    name = "offline/silent"

    async def complete(self, request: ModelRequest, on_token: object = None) -> ModelResponse:
        return ANSWER


ANSWER = ModelResponse("yes")

PLAIN_APP = """
from aiohttp import ClientSession
from contextlib import asynccontextmanager
from fastapi import FastAPI
from pydantic import BaseModel

class Body(BaseModel):
    input: str

@asynccontextmanager
async def lifespan(app):
    async with ClientSession() as app.state.session:
        yield

app = FastAPI(lifespan=lifespan)

@app.post("/run")
async def run(body: Body) -> dict[str, str]:
    async with app.state.session.post("http://127.0.0.1:%d/", json={"input": body.input}) as answer:
        return {"output": (await answer.json())["text"]}
"""

UPSTREAM = """
import asyncio, sys
REPLY = b'HTTP/1.1 200 OK\\r\\ncontent-type: application/json\\r\\ncontent-length: 15\\r\\n\\r\\n{"text": "yes"}'

class Upstream(asyncio.Protocol):
    def connection_made(self, transport):
        self.transport, self.seen = transport, b""
    def data_received(self, data):
        self.seen += data
        head, found, body = self.seen.partition(b"\\r\\n\\r\\n")
        if found:
            length = int(head.lower().partition(b"content-length:")[2].split(b"\\r\\n")[0])
            if len(body) >= length:
                self.seen = b""
                self.transport.write(REPLY)

async def main():
    server = await asyncio.get_running_loop().create_server(Upstream, "127.0.0.1", int(sys.argv[1]))
    await server.serve_forever()

asyncio.run(main())
"""


def free_port() -> int:
    import socket

    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


async def answering(session: ClientSession, url: str) -> None:
    for _ in range(200):
        try:
            async with session.post(url, json={"input": "x"}) as answer:
                await answer.read()
                return
        except OSError:
            await asyncio.sleep(0.05)
    raise SystemExit(f"nothing answers at {url}")


async def request_seconds(session: ClientSession, url: str, count: int, width: int) -> float:
    """Seconds of server time for one request: `width` at once keep the one server process busy."""

    async def client() -> None:
        for _ in range(count // width):
            async with session.post(url, json={"input": "x"}) as answer:
                await answer.read()

    start = time.perf_counter()
    await asyncio.gather(*(client() for _ in range(width)))
    return (time.perf_counter() - start) / count


async def run_seconds(agent: Agent, count: int) -> float:
    gc.collect()
    start = time.perf_counter()
    for _ in range(count):
        await agent.arun("hello", trace=True)
    return (time.perf_counter() - start) / count


async def run_cost() -> Figure:
    upstream, front = free_port(), free_port()
    app = PAGE.parents[1] / ".venv" / "bench_plain_app.py"
    app.write_text(PLAIN_APP % upstream)
    serve = [
        "-m",
        "uvicorn",
        f"--app-dir={app.parent}",
        "bench_plain_app:app",
        f"--port={front}",
        "--log-level=warning",
    ]
    servers = [
        subprocess.Popen([sys.executable, "-c", UPSTREAM, str(upstream)]),
        subprocess.Popen([sys.executable, *serve, "--no-access-log"]),
    ]
    url = f"http://127.0.0.1:{front}/run"
    agent = Agent("guide", "You are a guide.", Silent())
    try:
        async with ClientSession() as session:
            await answering(session, url)
            await request_seconds(session, url, 2_000, 32)
            await run_seconds(agent, 500)
            pairs = [
                (await run_seconds(agent, 4_000), await request_seconds(session, url, 4_000, 32)) for _ in range(ROUNDS)
            ]
    finally:
        for server in servers:
            server.terminate()
            server.wait(10)
        app.unlink()
    ratio = statistics.median(a / b for a, b in pairs)
    run, request = (statistics.median(column) for column in zip(*pairs, strict=True))
    plain = f"one request to a plain FastAPI + aiohttp app {request * 1e6:.0f} µs"
    detail = f"a traced run with a no-op model {run * 1e6:.0f} µs, {plain}"
    return Figure("the core's share of a request", ratio * 100, 15, "%", detail)


def import_seconds(code: str) -> float:
    # with byte code, as an installed package has it, whatever the environment says
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONDONTWRITEBYTECODE"}
    start = time.perf_counter()
    subprocess.run([sys.executable, "-c", code], check=True, env=environment)
    return time.perf_counter() - start


def import_time(title: str, ours: str, theirs: str, limit: float | None = None) -> Figure:
    import_seconds(ours)
    import_seconds(theirs)
    ratio, one, other = paired(lambda: import_seconds(ours), lambda: import_seconds(theirs))
    return Figure(title, ratio, limit, "×", f"`{ours}` {one * 1000:.0f} ms, `{theirs}` {other * 1000:.0f} ms")


def heavy_imports() -> Figure:
    code = "import sys, podwright, podwright.components; print(*{m.partition('.')[0] for m in sys.modules})"
    loaded = set(
        subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout.split()
    )
    heavy = sorted(loaded & {"litellm", "fastapi", "aiohttp", "opentelemetry", "openai", "starlette"})
    return Figure(
        "heavy packages imported",
        len(heavy),
        0,
        "",
        ", ".join(heavy) or "none of litellm, fastapi, aiohttp, opentelemetry",
    )


def _limit(figure: Figure) -> str:
    return "" if figure.limit is None else f"≤ {figure.limit:g} {figure.unit}"


def table(figures: list[Figure]) -> str:
    rows = [f"| {f.title} | {f.value:.3g} {f.unit} | {_limit(f)} | {f.detail} |" for f in figures]
    return "\n".join(["| figure | measured | limit | of what |", "|---|--:|--:|---|", *rows])


INTRODUCTION = """
    # Benchmarks

    What the library costs, measured by `make bench`. Each ratio is the median of pairs taken in turns in one run, so
    that noise of the machine falls on both sides.
"""


def main() -> int:
    figures = [
        creation_time(),
        creation_memory(),
        asyncio.run(run_cost()),
        import_time("importing podwright", "import podwright", "import pydantic", 1.5),
        import_time(
            "importing all kinds",
            "from podwright import Agent, Workflow",
            "from pydantic import BaseModel, Field, TypeAdapter",
        ),
        heavy_imports(),
    ]
    print(table(figures))
    python = f"CPython {sys.version.split()[0]}"
    PAGE.parent.mkdir(exist_ok=True)
    PAGE.write_text(
        f"{textwrap.dedent(INTRODUCTION).strip()}\n\n{table(figures)}\n\nMeasured with {python} on two shared cores.\n"
    )
    short = [figure.title for figure in figures if not figure.ok]
    if short:
        print(f"over the limit: {', '.join(short)}", file=sys.stderr)
    return 1 if short else 0


if __name__ == "__main__":
    sys.exit(main())
