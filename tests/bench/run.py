"""Measures what the library and the service cost, as ratios taken in one run, and writes docs/benchmarks.md.

Every figure stands against something well known that is measured in the same minute on the same machine, so that
it means the same on another. Run it with `make bench`.
"""

from __future__ import annotations

import asyncio
import gc
import statistics
import subprocess
import sys
import time
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import images
import overload
import serving
from figures import Figure, environment, paired, table
from load import load
from pydantic import BaseModel

from podwright import Agent
from podwright.models.offline import OfflineModel
from podwright.testing import ModelRequest, ModelResponse

PAGE = Path(__file__).parents[2] / "docs" / "benchmarks.md"


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
    return Figure("creating an agent", ratio, "×", detail, 10)


def creation_memory() -> Figure:
    new_agent()
    gc.collect()
    tracemalloc.start()
    kept = [new_agent() for _ in range(1_000)]
    size, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return Figure("memory of an agent", size / len(kept) / 1024, "KiB", "mean of 1 000 agents with one tool", 8)


class Silent(OfflineModel):
    """A model that answers at once and costs nothing to ask."""

    name = "offline/silent"

    async def complete(self, request: ModelRequest, on_token: object = None) -> ModelResponse:
        return ANSWER


ROUNDS = 9
ANSWER = ModelResponse("yes")


async def run_seconds(agent: Agent, count: int) -> float:
    gc.collect()
    start = time.perf_counter()
    for _ in range(count):
        await agent.arun("hello", trace=True)
    return (time.perf_counter() - start) / count


async def run_cost() -> Figure:
    agent = Agent("guide", "You are a guide.", Silent())
    with serving.provider() as upstream, serving.app("plain", upstream) as (port, _):
        await serving.first_answer(port)
        await load(port, "/run", serving.BODY, 2_000, 32)
        await run_seconds(agent, 500)
        pairs = [
            (await run_seconds(agent, 4_000), 1 / (await load(port, "/run", serving.BODY, 4_000, 32)).rate)
            for _ in range(ROUNDS)
        ]
    ratio = statistics.median(a / b for a, b in pairs)
    run, request = (statistics.median(column) for column in zip(*pairs, strict=True))
    plain = f"one request to a plain FastAPI + aiohttp app {request * 1e6:.0f} µs"
    detail = f"a traced run with a no-op model {run * 1e6:.0f} µs, {plain}"
    return Figure("the core's share of a request", ratio * 100, "%", detail, 15)


def import_seconds(code: str) -> float:
    start = time.perf_counter()
    subprocess.run([sys.executable, "-c", code], check=True, env=environment())
    return time.perf_counter() - start


def import_time(title: str, ours: str, theirs: str, limit: float | None = None) -> Figure:
    import_seconds(ours)
    import_seconds(theirs)
    ratio, one, other = paired(lambda: import_seconds(ours), lambda: import_seconds(theirs))
    return Figure(title, ratio, "×", f"`{ours}` {one * 1000:.0f} ms, `{theirs}` {other * 1000:.0f} ms", limit)


def heavy_imports() -> Figure:
    code = "import sys, podwright, podwright.components; print(*{m.partition('.')[0] for m in sys.modules})"
    loaded = set(
        subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout.split()
    )
    heavy = sorted(loaded & {"litellm", "fastapi", "httptools", "opentelemetry", "openai", "starlette"})
    found = ", ".join(heavy) or "none of litellm, fastapi, httptools, opentelemetry"
    return Figure("heavy packages imported", len(heavy), "", found, 0)


PAGE_TEXT = """\
# Benchmarks

What Podwright costs, measured by `make bench`. Each ratio is the median of pairs taken in turns in one run, so that
noise of the machine falls on both sides.

## The library

{library}

## The service

`POST /run` of our service on the direct lane, against a FastAPI app that asks the same provider
through aiohttp, and one that asks through LiteLLM. The provider answers at once, or where it says so after 200 ms;
64 connections, one process, one core; the provider and the load have the other.

{service}

The first three are the application alone. "Keys, limits, metrics and logs" is the whole of `podwright serve` at its
defaults, and so are the memory of its streams and its start. The goodput is that of runs which are offered at a steady
pace, whatever becomes of them; what cannot be served there costs a request's two system calls all the same.

## The images

A container of either flavour on the direct lane, against one of a plain FastAPI app that asks the same provider through
aiohttp, which the image `full` has: the same base and Python, in turns. Memory is what the container's control group is
charged with, without file cache.

{imaged}

Measured with {python} on two shared cores.
"""


def main() -> int:
    library = [
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
    print(table(library), flush=True)
    served = [*asyncio.run(serving.measured()), *asyncio.run(overload.figures())]
    print(table(served), flush=True)
    imaged = images.figures()
    print(table(imaged))
    python = f"CPython {sys.version.split()[0]}"
    tables = {"library": table(library), "service": table(served), "imaged": table(imaged)}
    PAGE.write_text(PAGE_TEXT.format(**tables, python=python))
    short = [figure.title for figure in [*library, *served, *imaged] if not figure.ok]
    if short:
        print(f"over the limit: {', '.join(short)}", file=sys.stderr)
    return 1 if short else 0


if __name__ == "__main__":
    sys.exit(main())
