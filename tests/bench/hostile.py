"""Documents of callers that cost more than their size: whether the event loop stays free while fifty of a kind arrive.

Each kind is sent fifty times at once, while `/health` is asked every 20 ms, whether it has answered or not, and small
runs are sent, one after the other.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import math
import sys
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
from figures import Figure
from servers import App, Server, serve, wait_for_response

DOCUMENTS = 50
"""Sent at once, of each kind."""
HEALTH_LIMIT_MS = 250
MEMORY_LIMIT_MIB = 384
"""Resident memory, a half more than the chart requests."""

HOSTILE = App(
    "hostile",
    {
        "PODWRIGHT_RUN_WALL_TIME": "20",
        "PODWRIGHT_ALLOWED_MODELS": "offline/echo",
    },
)


def with_schema(schema: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    """A request whose answer must fit a JSON Schema."""
    form = {
        "type": "json_schema",
        "json_schema": {"name": "x", "schema": schema},
    }
    body = {
        "model": "guide",
        "messages": [{"role": "user", "content": "x"}],
        "response_format": form,
    }
    return "/v1/chat/completions", body


def fan_out(make: Callable[[dict[str, str]], Any]) -> dict[str, Any]:
    """A schema of which each part refers to the one before twice, forty times."""
    parts: dict[str, Any] = {"d0": {"type": "string"}}
    for number in range(1, 40):
        parts[f"d{number}"] = make({"$ref": f"#/$defs/d{number - 1}"})
    return {"$defs": parts, "$ref": "#/$defs/d39"}


def obj(**properties: Any) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
    }


def with_input(
    schema: dict[str, Any], value: Any
) -> tuple[str, dict[str, Any]]:
    """An inline agent whose input must fit a JSON Schema, and that input."""
    blueprint = {
        "name": "a",
        "instructions": "",
        "config": {"model": "offline/echo"},
        "inputs": {"q": schema},
    }
    return "/run-blueprint", {
        "type": "agent",
        "blueprint": blueprint,
        "inputs": {"input": "x", "q": value},
    }


def workflow(
    steps: list[Any], inputs: dict[str, Any]
) -> tuple[str, dict[str, Any]]:
    """An inline workflow with an agent of the offline model."""
    agent = {
        "name": "a",
        "instructions": "",
        "config": {"model": "offline/echo"},
    }
    blueprint = {"name": "flow", "steps": steps}
    return "/run-blueprint", {
        "type": "workflow",
        "blueprint": blueprint,
        "agents": {"a": agent},
        "inputs": inputs,
    }


_, SMALL = with_input({"type": "string"}, "a text")
"""A run of others, whose blueprint and input are checked too."""
AGENT_STEP = {"type": "agent_step", "agent": "a", "name": "a"}


def map_of(steps: list[Any]) -> dict[str, Any]:
    return {
        "type": "map_step",
        "name": "m",
        "over": "items",
        "as": "item",
        "max_concurrency": 8,
        "steps": steps,
    }


def is_equal(value: str, other: str = "x") -> dict[str, Any]:
    return {"name": "equals", "args": {"value": value, "to": other}}


def condition(reference: dict[str, Any]) -> dict[str, Any]:
    return {
        "type": "condition_step",
        "name": "c",
        "condition": reference,
        "then": [AGENT_STEP],
    }


def nested(levels: int) -> Any:
    """An object in an object, so many levels deep."""
    value: Any = "x"
    for _ in range(levels):
        value = {"a": value}
    return value


CONSTANTS = [{"const": -number} for number in range(1, 200)]
LINES = "\n".join(["x"] * 1000)
LONG = "y" * 900_000
NEVER = {
    "name": "contains",
    "args": {"value": "{long}{long}{long}{long}", "text": "z"},
}
KINDS: dict[str, Callable[[], tuple[str, dict[str, Any]]]] = {
    "a schema whose $refs fan out in place": lambda: with_schema(
        fan_out(lambda ref: {"anyOf": [ref, ref]})
    ),
    "one whose properties do": lambda: with_schema(
        fan_out(lambda ref: obj(a=ref, b=ref))
    ),
    "one whose optional properties do": lambda: with_schema(
        fan_out(
            lambda ref: {"anyOf": [obj(a=ref), obj(a=ref), {"type": "null"}]}
        )
    ),
    "one that refers to itself twice": lambda: with_schema(
        {
            "anyOf": [
                obj(a={"$ref": "#"}),
                obj(a={"$ref": "#"}),
                {"type": "string"},
            ]
        }
    ),
    "one of 4 500 values": lambda: with_schema(
        obj(**{f"p{n}": {"type": "string"} for n in range(1490)})
    ),
    "one of 1 490 references": lambda: with_schema(
        {
            "$defs": {"a": {"type": "string"}},
            **obj(**{f"p{n}": {"$ref": "#/$defs/a"} for n in range(1490)}),
        }
    ),
    "one that wants a text of 1 GB": lambda: with_schema(
        obj(a={"type": "string", "minLength": 10**9})
    ),
    "one that wants 10 million items": lambda: with_schema(
        obj(a={"type": "array", "items": {"type": "string"}, "minItems": 10**7})
    ),
    "one with 4 000 alternatives": lambda: with_schema(
        obj(a={"anyOf": [{"const": n} for n in range(2400)]})
    ),
    "10 000 items that are to be unique": lambda: with_input(
        {"uniqueItems": True}, [[number] for number in range(9_999)] + ["x"]
    ),
    "40 000 items with 200 alternatives": lambda: with_input(
        {"items": {"anyOf": [*CONSTANTS, {}]}}, [1] * 40_000
    ),
    "40 000 items that none of 200 alternatives fits": lambda: with_input(
        {"anyOf": [{"items": {"anyOf": CONSTANTS}}]}, [1] * 40_000
    ),
    "40 000 items of 1 000 constants": lambda: with_input(
        {"items": {"enum": [f"{number}" for number in range(1_000)]}},
        ["999"] * 40_000,
    ),
    "200 arrays that are to contain something": lambda: with_input(
        {"items": {"contains": {"anyOf": CONSTANTS}}}, [[1] * 200] * 200
    ),
    "an object of 25 levels whose type is twice in itself": lambda: with_input(
        {"anyOf": [obj(a={"$ref": "#"}), obj(a={"$ref": "#"}), obj(b={})]},
        nested(25),
    ),
    "40 000 numbers that are larger than floats divide": lambda: with_input(
        {"items": {"multipleOf": 2.0**-900}}, [1e308] * 40_000
    ),
    "a text of 900 KB with 1 500 alternatives": lambda: with_input(
        {"anyOf": [{"type": "null"}] * 1_500}, LONG
    ),
    "a map over conditions on texts of 3.6 MB": lambda: workflow(
        [map_of([condition(NEVER)])], {"items": LINES, "long": LONG}
    ),
    "a map over a hundred conditions": lambda: workflow(
        [
            map_of(
                [
                    condition(
                        {
                            "name": "all",
                            "args": {"conditions": [is_equal("x")] * 1000},
                        }
                    )
                ]
            )
        ],
        {"items": LINES},
    ),
    "a map of approvals with texts of 3.6 MB": lambda: workflow(
        [
            map_of(
                [
                    {
                        "type": "approval_step",
                        "message": "{long}{long}{long}{long}",
                        "name": "p",
                    }
                ]
            )
        ],
        {"items": LINES, "long": LONG},
    ),
    "a map of agents with an input of 3.6 MB": lambda: workflow(
        [map_of([{**AGENT_STEP, "input": "{long}{long}{long}{long}"}])],
        {"items": LINES, "long": LONG},
    ),
    "loops in a map": lambda: workflow(
        [
            map_of(
                [
                    {
                        "type": "loop_step",
                        "name": "l",
                        "steps": [condition(is_equal("y"))],
                        "until": is_equal("y"),
                        "max_iterations": 10,
                    }
                ]
            )
        ],
        {"items": LINES},
    ),
    "a blueprint with 9 000 problems": lambda: (
        "/validate-blueprint",
        {
            "type": "agent",
            "blueprint": {"name": "a", **{f"key{n}": n for n in range(9000)}},
        },
    ),
    "a blueprint with long unknown names": lambda: (
        "/validate-blueprint",
        {
            "type": "workflow",
            "blueprint": {
                "name": "a",
                "steps": [
                    {
                        "type": "agent_step",
                        "agent": f"{n}" + "agent" * 200,
                        "name": f"n{n}",
                    }
                    for n in range(60)
                ],
            },
            "agents": {f"{n}" + "agent" * 12: {"name": "x"} for n in range(60)},
        },
    ),
    "250 000 empty lists": lambda: (
        "/run",
        {"inputs": {"input": [[]] * 250_000}},
    ),
    "a conversation of 1 000 messages": lambda: (
        "/run",
        {
            "input": "x",
            "messages": [
                {"role": role, "content": "y" * 400}
                for role in ("user", "assistant")
            ]
            * 500,
        },
    ),
    "an answer with 20 000 tool calls": lambda: ("/run", {"input": "tools"}),
}
"""Documents of at most 1 MiB, by what they are."""


@dataclass
class Measured:
    """What was measured while the documents of a kind were served."""

    health: list[float] = field(default_factory=list[float])
    """Milliseconds of each `/health`."""
    statuses: Counter[str] = field(default_factory=Counter[str])
    """Of the documents."""
    others: Counter[str] = field(default_factory=Counter[str])
    """Statuses of small runs."""
    slowest_other: float = 0.0
    """Seconds."""
    memory: float = 0.0
    """The highest, in MiB."""

    @property
    def details(self) -> str:
        documents = counted(self.statuses)
        others = counted(self.others)
        return (
            f"{documents}; at most {max(self.health):.0f} ms, {self.memory:.0f} MiB; "
            f"others {others}, at most {self.slowest_other:.1f} s"
        )


def counted(statuses: Counter[str]) -> str:
    return ", ".join(
        f"{count} × {status}" for status, count in sorted(statuses.items())
    )


async def measure(server: Server, path: str, body: dict[str, Any]) -> Measured:
    """Send the documents, and meanwhile ask for `/health` and small runs."""
    base = f"http://127.0.0.1:{server.port}"
    measured = Measured()
    data = json.dumps(body, separators=(",", ":")).encode()
    assert len(data) <= 2**20, len(data)

    async def send(
        session: aiohttp.ClientSession,
        path: str,
        data: bytes,
        statuses: Counter[str],
    ) -> None:
        try:
            async with session.post(
                base + path,
                data=data,
                headers={"content-type": "application/json"},
            ) as response:
                await response.read()
                statuses[str(response.status)] += 1
        except (aiohttp.ClientError, TimeoutError) as error:
            statuses[type(error).__name__] += 1

    async def run_others(session: aiohttp.ClientSession) -> None:
        small = json.dumps(SMALL).encode()
        while not all(task.done() for task in sending):
            started = time.perf_counter()
            await send(session, "/run-blueprint", small, measured.others)
            seconds = time.perf_counter() - started
            measured.slowest_other = max(measured.slowest_other, seconds)

    async def ask_health(session: aiohttp.ClientSession) -> None:
        started = time.perf_counter()
        with contextlib.suppress(TimeoutError, aiohttp.ClientError):
            async with session.get(base + "/health") as response:
                await response.read()
        measured.health.append((time.perf_counter() - started) * 1e3)

    timeout = aiohttp.ClientTimeout(total=60)
    async with aiohttp.ClientSession(
        timeout=timeout, connector=aiohttp.TCPConnector(limit=0)
    ) as session:
        sending = [
            asyncio.create_task(send(session, path, data, measured.statuses))
            for _ in range(DOCUMENTS)
        ]
        others = asyncio.create_task(run_others(session))
        asking = list[asyncio.Task[None]]()
        while len(asking) < 100 or not all(task.done() for task in sending):
            asking.append(asyncio.create_task(ask_health(session)))
            measured.memory = max(measured.memory, server.resident)
            await asyncio.sleep(0.02)
        await asyncio.gather(*sending, *asking, others)
    return measured


async def figures() -> list[Figure]:
    """The latencies of `/health`, of 99 of 100 requests, and the memory, by kind."""
    rows = list[Figure]()
    for title, make in KINDS.items():
        with serve(HOSTILE) as server:
            await wait_for_response(server.port)
            measured = await measure(server, *make())
        health = sorted(measured.health)
        p99 = health[math.ceil(len(health) * 0.99) - 1]
        rows.append(
            Figure(
                title,
                p99,
                "ms",
                measured.details,
                HEALTH_LIMIT_MS,
            )
        )
        print(rows[-1].row, flush=True)
    return rows


if __name__ == "__main__":
    if len(sys.argv) > 1:
        KINDS = {
            title: make for title, make in KINDS.items() if sys.argv[1] in title
        }
    sys.path.append(str(Path(__file__).parents[2]))
    asyncio.run(figures())
