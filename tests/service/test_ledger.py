"""The ledger: what the answers say was used, what the counters count and what the spans tell agree to the token."""

from __future__ import annotations

import asyncio
import json
import os
import random
import re
import signal
import subprocess
import threading
import zlib
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pytest
from aiohttp import ClientConnectionError, ClientSession, ClientTimeout, web
from prometheus_client.parser import text_string_to_metric_families
from tests.service.collector import Collector, collector

from podwright import Usage
from podwright.models import pricing

Command = Callable[..., subprocess.Popen[str]]
Address = Callable[[subprocess.Popen[str]], str]

RUNS = 2000 if os.environ.get("PROOF") else 300
AT_ONCE = 24
MODEL = "openai/gpt-4o-mini"


@dataclass
class Provider:
    """A model vendor who keeps books: what it answered, for each run by the tag in its input."""

    calls: dict[str, list[tuple[int, int]]] = field(default_factory=lambda: defaultdict(list))
    tries: Counter[str] = field(default_factory=Counter[str])
    open: asyncio.Event = field(default_factory=asyncio.Event)
    parked: int = 0
    """Calls that are held."""
    url: str = ""
    loop: asyncio.AbstractEventLoop = field(init=False)
    end: asyncio.Event = field(default_factory=asyncio.Event)

    def call(self, function: Callable[[], object]) -> None:
        self.loop.call_soon_threadsafe(function)

    async def answer(self, request: web.Request) -> web.StreamResponse:
        asked = await request.json()
        said = json.dumps(asked["messages"])
        tag = re.findall(r"run-\d+-\w+", said)[0]
        self.tries[tag] += 1
        if tag.endswith("retry") and self.tries[tag] == 1:
            return web.json_response({"error": {"message": "Slow down."}}, status=429, headers={"Retry-After": "0"})
        if tag.endswith("fail") and len(self.calls[tag]) == 1:
            return web.json_response({"error": {"message": "No."}}, status=400)
        self.parked += 1
        try:
            if tag.endswith("leave"):
                await asyncio.sleep(60)  # until the caller has left
            await self.open.wait()
        finally:
            self.parked -= 1
        roll = random.Random(zlib.crc32(f"{tag}{len(self.calls[tag])}".encode()))
        spent = roll.randrange(10, 200), roll.randrange(1, 50)
        self.calls[tag].append(spent)
        message: dict[str, Any] = {"role": "assistant", "content": f"Said for {tag}."}
        if asked.get("tools") and not any(one["role"] == "tool" for one in asked["messages"]):
            tool = asked["tools"][0]["function"]
            arguments = dict.fromkeys(tool["parameters"]["properties"], f"Do {tag}.")
            function = {"name": tool["name"], "arguments": json.dumps(arguments)}
            call = {"id": "c1", "type": "function", "function": function}
            message = {"role": "assistant", "content": None, "tool_calls": [call]}
        finish = "tool_calls" if message.get("tool_calls") else "stop"
        usage = {"prompt_tokens": spent[0], "completion_tokens": spent[1], "total_tokens": sum(spent)}
        choice = {"index": 0, "message": message, "finish_reason": finish}
        return web.json_response({"id": "1", "model": "gpt-4o-mini", "choices": [choice], "usage": usage})


@pytest.fixture
def provider() -> Iterator[Provider]:
    serving, started = Provider(), threading.Event()

    async def serve() -> None:
        serving.loop, end = asyncio.get_running_loop(), asyncio.Event()
        serving.end = end
        serving.open.set()
        app = web.Application()
        app.router.add_post("/v1/chat/completions", serving.answer)
        runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=1)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        serving.url = f"http://127.0.0.1:{runner.addresses[0][1]}/v1"
        started.set()
        await end.wait()
        await runner.cleanup()

    thread = threading.Thread(target=lambda: asyncio.run(serve()))
    thread.start()
    assert started.wait(20)
    yield serving
    serving.call(serving.end.set)
    thread.join(20)


CONFIG = {"model": MODEL, "max_loops": 4}


def agent(name: str) -> dict[str, Any]:
    return {"type": "Agent", "name": name, "instructions": f"You are {name}.", "config": CONFIG, "tools": []}


def step(name: str) -> dict[str, Any]:
    return {"type": "agent_step", "agent": name, "name": name, "input": "{input}"}


POSTED: dict[str, dict[str, Any]] = {
    "agent": {"type": "agent", "blueprint": agent("poet")},
    "pipeline": {
        "type": "pipeline",
        "blueprint": {
            "type": "Pipeline", "name": "line", "steps": [agent("poet"), agent("critic")], "config": {"model": MODEL},
        },
    },
    "conductor": {
        "type": "conductor",
        "blueprint": {
            "type": "Conductor", "name": "lead", "instructions": "Lead.", "skills": [agent("poet")], "config": CONFIG,
        },
    },
    "workflow": {
        "type": "workflow",
        "blueprint": {"name": "page", "steps": [step("poet"), step("critic")]},
        "agents": {"poet": agent("poet"), "critic": agent("critic")},
    },
}  # fmt: skip


def requests(count: int) -> list[tuple[str, str, dict[str, Any]]]:
    """Tag, path and body of each run: all kinds, some that fail in the middle, are tried again or are left."""
    roll = random.Random(7)
    made: list[tuple[str, str, dict[str, Any]]] = []
    for number in range(count):
        kind = roll.choice(["served", "served", *POSTED])
        how = roll.choices(["ok", "retry", "leave", "fail"], [80, 6, 6, 8])[0]
        if how == "fail" and kind in ("agent", "conductor"):
            kind = "workflow"
        tag = f"run-{number}-{how}"
        body = {"input": tag} if kind == "served" else {**POSTED[kind], "input": tag}
        made.append((tag, "/run" if kind == "served" else "/run-blueprint", body))
    return made


@dataclass
class Books:
    """What callers were told."""

    tokens: list[int] = field(default_factory=lambda: [0, 0])
    cost: float = 0.0
    statuses: Counter[int] = field(default_factory=Counter[int])
    unanswered: list[str] = field(default_factory=list[str])

    def read(self, header: str) -> None:
        found = dict(part.split("=") for part in header.split(", "))
        self.tokens[0] += int(found["input_tokens"])
        self.tokens[1] += int(found["output_tokens"])
        self.cost += float(found["cost"].strip('"'))


async def ask(session: ClientSession, url: str, books: Books, tag: str, path: str, body: dict[str, Any]) -> None:
    wait = 0.3 if tag.endswith("leave") else 60
    try:
        async with session.post(f"{url}{path}", json=body, timeout=ClientTimeout(total=wait)) as response:
            await response.read()
            books.statuses[response.status] += 1
            books.read(response.headers["Podwright-Usage"])
    except (ClientConnectionError, TimeoutError):
        books.unanswered.append(tag)


async def load(url: str, provider: Provider, victim: Callable[[], int]) -> tuple[Books, int]:
    """Send all runs, and kill one worker in the middle, while calls of every worker are under way."""
    books, limit = Books(), asyncio.Semaphore(AT_ONCE)
    todo = requests(RUNS)

    async def one(request: tuple[str, str, dict[str, Any]]) -> None:
        async with limit:
            await ask(session, url, books, *request)

    async with ClientSession() as session:
        half = [asyncio.create_task(one(request)) for request in todo[: RUNS // 2]]
        await asyncio.gather(*half)
        # what is in the air at the moment of the kill would be nobody's: so all calls are held at the vendor's
        provider.call(provider.open.clear)
        rest = [asyncio.create_task(one(request)) for request in todo[RUNS // 2 :]]
        before = -1
        while provider.parked != before or provider.parked < AT_ONCE // 2:
            before = provider.parked
            await asyncio.sleep(1)
        killed = victim()
        os.kill(killed, signal.SIGKILL)
        await asyncio.sleep(0.5)
        provider.call(provider.open.set)
        await asyncio.gather(*rest)
    return books, killed


def counted(urls: list[str]) -> tuple[dict[str, int], float]:
    tokens: dict[str, int] = defaultdict(int)
    cost = 0.0
    for url in urls:
        for family in text_string_to_metric_families(httpx.get(f"{url}/metrics", timeout=30).text):
            for sample in family.samples:
                if sample.name == "podwright_tokens_total":
                    tokens[sample.labels["type"]] += int(sample.value)
                elif sample.name == "podwright_cost_usd_total":
                    cost += sample.value
    return tokens, cost


def priced(tokens: list[int]) -> float:
    found = pricing.lookup(MODEL, Usage(input_tokens=tokens[0], output_tokens=tokens[1]))
    assert found
    return found.amount


def told(receiver: Collector) -> tuple[int, int]:
    calls = [one for one in receiver.spans if one.attributes.get("gen_ai.operation.name") == "chat"]
    return (
        sum(one.attributes.get("gen_ai.usage.input_tokens", 0) for one in calls),
        sum(one.attributes.get("gen_ai.usage.output_tokens", 0) for one in calls),
    )


def children(pid: int) -> list[int]:
    listed = Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="ascii")
    return [int(one) for one in listed.split()]


def busiest(pid: int) -> int:
    """The worker with the most connections: one of the others may have no run under way."""
    return max(children(pid), key=lambda one: len(list(Path(f"/proc/{one}/fd").iterdir())))


async def test_answers_counters_and_spans_agree(
    command: Command, address: Address, tmp_path: Path, provider: Provider
) -> None:
    """Failures, retries, callers who leave, a remote agent, four workers, one of them killed: no token differs."""
    for name, blueprint in {
        "writer": agent("writer"),
        "flow": {"type": "Workflow", "name": "flow", "steps": [step("helper"), step("writer")]},
    }.items():
        (tmp_path / name).mkdir()
        (tmp_path / name / "blueprint.json").write_text(json.dumps(blueprint))
    (tmp_path / "flow" / "agents").mkdir()
    (tmp_path / "flow" / "agents" / "helper.json").write_text(json.dumps(agent("helper")))
    with collector() as receiver:
        shared = {
            "PODWRIGHT_MODEL_BASE_URL": provider.url,
            "OTEL_EXPORTER_OTLP_ENDPOINT": receiver.url,
            "OTEL_BSP_SCHEDULE_DELAY": "200",
        }
        leaf = command("serve", str(tmp_path / "writer"), "--port", "0", **shared)
        writer = address(leaf)
        shared |= {"WEB_CONCURRENCY": "4", "PODWRIGHT_AGENTS": json.dumps({"writer": writer})}
        process = command("serve", str(tmp_path / "flow"), "--port", "0", **shared)
        flow = address(process)
        for one in (leaf, process):
            assert one.stdout is not None
            threading.Thread(target=one.stdout.read, daemon=True).start()
        books, _ = await load(flow, provider, lambda: busiest(process.pid))

        assert set(books.statuses) <= {200, 502}, books.statuses
        assert books.statuses[502] > RUNS // 50
        lost = [tag for tag in books.unanswered if not tag.endswith("leave")]
        assert 0 < len(lost) <= AT_ONCE, "the killed worker had runs under way"

        answered = [sum(call[n] for calls in provider.calls.values() for call in calls) for n in (0, 1)]
        unanswered = [sum(call[n] for tag in books.unanswered for call in provider.calls[tag]) for n in (0, 1)]
        assert [books.tokens[n] + unanswered[n] for n in (0, 1)] == answered
        tokens, cost = counted([flow, writer])
        assert [tokens["input"], tokens["output"]] == answered
        assert cost == pytest.approx(priced(answered), abs=1e-9)
        assert books.cost == pytest.approx(cost - priced(unanswered), abs=1e-9)
        print(
            f"{RUNS} runs: {books.statuses}, {len(books.unanswered)} unanswered, {len(lost)} of these lost; {answered}"
        )
        for _ in range(100):
            if list(told(receiver)) == answered:
                break
            await asyncio.sleep(0.2)
        assert list(told(receiver)) == answered
