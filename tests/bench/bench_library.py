"""What the library costs: creating agents, running them, and importing it."""

from __future__ import annotations

import asyncio
import gc
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

import servers
from figures import Figure, ratio
from load import load
from pydantic import BaseModel

from podwright import Agent, FunctionModel


class FiveFields(BaseModel):
    """The pydantic model that agents are compared with."""

    a: int
    b: str
    c: float
    d: list[str]
    e: bool


def get_weather(city: str, days: int = 1) -> str:
    """Get the weather."""
    return f"{city}: sun for {days} days"


def create_agent() -> Agent:
    return Agent(
        "guide", "You are a guide.", "openai/gpt-4o-mini", [get_weather], 5
    )


def create_model() -> FiveFields:
    return FiveFields(a=1, b="x", c=1.5, d=["y"], e=True)


def call_microseconds(
    function: Callable[[], object], times: int = 20_000
) -> float:
    gc.collect()
    start = time.perf_counter()
    for _ in range(times):
        function()
    return (time.perf_counter() - start) / times * 1e6


def import_milliseconds(code: str) -> float:
    start = time.perf_counter()
    subprocess.run(
        [sys.executable, "-c", code], check=True, env=servers.environment()
    )
    return (time.perf_counter() - start) * 1e3


async def respond(request: object) -> str:
    return "yes"


async def run_time(rounds: int, runs: int = 2_000) -> Figure:
    """A run with an instant model, against a request to the plain application."""
    agent = Agent("guide", "You are a guide.", FunctionModel(respond))
    run_times, request_times = list[float](), list[float]()
    with (
        servers.provider() as provider_port,
        servers.serve(servers.App("plain"), provider_port) as server,
    ):
        await servers.wait_for_response(server.port)
        await load(server.port, "/run", servers.BODY, runs, 32)
        for _ in range(rounds):
            start = time.perf_counter()
            for _ in range(runs):
                await agent.arun("hello", trace=True)
            run_times.append((time.perf_counter() - start) / runs * 1e6)
            request_times.append(
                1e6
                / (await load(server.port, "/run", servers.BODY, runs, 32)).rate
            )
    return ratio(
        "a traced run, against a request to the plain app",
        run_times,
        request_times,
        "µs",
        0.3,
    )


def in_turns(
    measure: Callable[[Any], float], first: object, second: object, rounds: int
) -> tuple[Sequence[float], Sequence[float]]:
    """Measurements of both, without those of the first round, which warms up."""
    pairs = [(measure(first), measure(second)) for _ in range(rounds + 1)][1:]
    return [value for value, _ in pairs], [reference for _, reference in pairs]


def figures(rounds: int) -> list[Figure]:
    new = in_turns(call_microseconds, create_agent, create_model, rounds)
    package = in_turns(
        import_milliseconds, "import podwright", "import pydantic", rounds
    )
    agent = in_turns(
        import_milliseconds,
        "from podwright import Agent",
        "from pydantic import TypeAdapter",
        rounds,
    )
    return [
        ratio(
            "creating an agent with a tool, against a pydantic model of five fields",
            *new,
            "µs",
        ),
        ratio(
            "`import podwright`, against `import pydantic`", *package, "ms", 1.5
        ),
        ratio(
            "`from podwright import Agent`, against `from pydantic import TypeAdapter`",
            *agent,
            "ms",
        ),
        asyncio.run(run_time(rounds)),
    ]
