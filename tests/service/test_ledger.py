"""The ledger: the usage in responses, the metrics and the spans agree to the token."""

from __future__ import annotations

import asyncio
import json
import os
import random
import re
import signal
import threading
import zlib
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from aiohttp import (
    ClientConnectionError,
    ClientPayloadError,
    ClientSession,
    ClientTimeout,
    web,
)
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import (
    InMemorySpanExporter,
)
from tests.helpers import plain_http, until
from tests.service.support import Address, Command, Process, discard_output

import podwright
from podwright import (
    Agent,
    AgentStep,
    Conductor,
    FunctionModel,
    ParallelStep,
    Pipeline,
    Usage,
    Workflow,
)
from podwright.errors import ModelError, PodwrightError, RunCancelledError
from podwright.models.prices import pricing
from podwright.run.run import Task, execute
from podwright.testing import ModelRequest, ModelResponse, ToolCall
from podwright_service.observability.metrics.subscriber import Metrics, Part
from podwright_service.observability.run_spans import RunSpans
from podwright_service.testing import Metrics as Scrape
from podwright_service.testing import SpanCollector
from podwright_service.testing.server import BackgroundServer

CONCURRENT_RUNS = 24
MODEL = "openai/gpt-4o-mini"
WAYS = ("input", "output")
OTHER_ATTRIBUTES = {
    "cached_input": "cache_read.input",
    "cache_write": "cache_creation.input",
}
"""The names of other token types in spans."""


# --- In one process -----------------------------------------------------------------------------------------------


class UnreliableModel(FunctionModel):
    """Fails every eleventh call, hangs in every thirteenth, and calls tools in every third."""

    def __init__(self) -> None:
        super().__init__(self._respond)
        self.calls = 0
        self.hanging = asyncio.Event()

    def cost(self, usage: Usage) -> float | None:
        return None

    async def _respond(self, request: ModelRequest) -> Any:
        self.calls = number = self.calls + 1
        if number % 11 == 0:
            raise ModelError("The provider is down.")
        if number % 13 == 0:
            self.hanging.set()
            await asyncio.Event().wait()
        if (
            request.tools
            and request.messages[-1].role == "user"
            and number % 3 == 0
        ):
            name = request.tools[0]["function"]["name"]
            arguments = {"place": "x"} if name == "look" else {"task": "look"}
            return ModelResponse(
                tool_calls=(ToolCall.of(name, **arguments),),
                usage=Usage(number, 1, cost=0.001),
            )
        cost = None if number % 7 == 0 else 0.002
        return ModelResponse(
            "done",
            usage=Usage(
                number,
                2,
                number // 3,
                cost=cost,
                cache_write_tokens=number // 2,
            ),
        )


def look(place: str) -> str:
    """Look somewhere."""
    return f"nothing in {place}"


async def usage_of_run(
    component: Any, model: UnreliableModel, **options: Any
) -> tuple[str, Usage]:
    """Status and usage of a run, which is cancelled when the model hangs."""
    model.hanging.clear()
    run = asyncio.create_task(execute(component, Task("go"), **options))
    hanging = asyncio.create_task(model.hanging.wait())
    await asyncio.wait([run, hanging], return_when=asyncio.FIRST_COMPLETED)
    hanging.cancel()
    run.cancel()
    try:
        return "ok", (await run).usage
    except PodwrightError as error:
        return "failed", error.usage or Usage()
    except asyncio.CancelledError as error:
        if not isinstance(error.__cause__, RunCancelledError):
            raise
        return "cancelled", error.__cause__.usage or Usage()


async def test_usage_metrics_and_spans_agree() -> None:
    """Over runs of all kinds that succeed, fail, are limited or are cancelled, no token differs."""
    model = UnreliableModel()
    looker, other = (
        Agent("looker", "Look.", model, tools=[look]),
        Agent("other", "Help.", model),
    )
    branches = [[AgentStep(looker, "left")], [AgentStep(other, "right")]]
    components = [
        looker,
        Pipeline("line", steps=[looker, other]),
        Conductor("boss", "Lead.", model=model, skills=[looker, other]),
        Workflow(
            "forked",
            steps=[ParallelStep(branches, "both"), AgentStep(other, "last")],
        ),
    ]
    exporter = InMemorySpanExporter()
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    names = {"looker", "other", "line", "boss", "forked"}
    metrics = Metrics(
        "looker",
        "agent",
        components=[Part(name, "agent") for name in names],
        models={"offline/function"},
        tools={"look"},
    )
    statuses, total = Counter[str](), Usage()
    for component in components:
        for number in range(60):
            # Half of the runs are counted as those of inline blueprints.
            subscribers = (
                metrics.subscriber(inline=number % 2 == 1),
                RunSpans(provider.get_tracer("test")),
            )
            limits = (
                podwright.RunLimits(model_calls=1) if number % 10 == 9 else None
            )
            status, usage = await usage_of_run(
                component, model, subscribers=subscribers, limits=limits
            )
            statuses[status], total = statuses[status] + 1, total + usage

    assert (
        min(statuses[status] for status in ("ok", "failed", "cancelled")) > 10
    )
    scrape = Scrape(metrics.render("")[0].decode())
    chats = [
        dict(span.attributes or {})
        for span in exporter.get_finished_spans()
        if span.name == "chat function"
    ]
    counts = (
        total.input_tokens,
        total.output_tokens,
        total.cached_input_tokens,
        total.cache_write_tokens,
    )
    for way, tokens in zip((*WAYS, *OTHER_ATTRIBUTES), counts, strict=True):
        recorded: list[Any] = [
            chat.get(f"gen_ai.usage.{OTHER_ATTRIBUTES.get(way, way)}_tokens", 0)
            for chat in chats
        ]
        assert (
            sum(recorded)
            == scrape.get("podwright_tokens_total", type=way)
            == tokens
            > 0
        )
    assert (
        scrape.get("podwright_model_calls_total", status="ok")
        == total.model_calls
    )
    assert scrape.get("podwright_model_calls_total") == len(chats)
    assert (
        scrape.get("podwright_unpriced_model_calls_total")
        == total.unpriced_model_calls
        > 0
    )
    assert {
        status: scrape.get("podwright_runs_total", status=status)
        for status in statuses
    } == statuses
    assert scrape.get("podwright_runs_in_progress") == 0
    costs: list[Any] = [chat.get("gen_ai.usage.cost", 0) for chat in chats]
    assert sum(costs) == pytest.approx(
        scrape.get("podwright_cost_usd_total"), abs=1e-9
    )


# --- In several processes -----------------------------------------------------------------------------------------


class Provider(BackgroundServer):
    """A model provider that records the tokens of its responses, by the run's tag in the messages.

    The tag decides what happens to the run: "retry", "leave", "fail" or "ok".
    """

    def __init__(self) -> None:
        super().__init__()
        self.calls: dict[str, list[tuple[int, int]]] = defaultdict(list)
        self.attempts: Counter[str] = Counter()
        self.answers = threading.Event()
        """While it is not set, calls wait."""
        self.answers.set()
        self.waiting: Counter[str] = Counter()
        """The calls that wait, by tag, but for those whose client leaves: another run may have its place already."""
        self.dropped: Counter[str] = Counter()
        """The same calls, if their connection was closed while they waited."""

    def application(self) -> web.Application:
        application = web.Application()
        application.router.add_post("/chat/completions", self.respond)
        return application

    @property
    def tokens(self) -> list[int]:
        """Input and output tokens of all responses."""
        return self.tokens_of(self.calls)

    def tokens_of(self, tags: Any) -> list[int]:
        """Input and output tokens of the responses to some runs."""
        return [
            sum(call[way] for tag in list(tags) for call in self.calls[tag])
            for way in (0, 1)
        ]

    async def respond(self, request: web.Request) -> web.StreamResponse:
        body = await request.json()
        tag = re.findall(r"run-\d+-\w+", json.dumps(body["messages"]))[0]
        self.attempts[tag] += 1
        if tag.endswith("retry") and self.attempts[tag] == 1:
            return web.json_response(
                {"error": {"message": "Slow down."}},
                status=429,
                headers={"Retry-After": "0"},
            )
        if tag.endswith("fail") and len(self.calls[tag]) == 1:
            return web.json_response({"error": {"message": "No."}}, status=400)
        await self._wait(tag)
        dice = random.Random(
            zlib.crc32(f"{tag}{len(self.calls[tag])}".encode())
        )
        tokens = dice.randrange(10, 200), dice.randrange(1, 50)
        self.calls[tag].append(tokens)
        return web.json_response(completion(body, tag, tokens))

    async def _wait(self, tag: str) -> None:
        stays = not tag.endswith("leave")
        self.waiting[tag] += stays
        try:
            while not (stays and self.answers.is_set()):  # noqa: ASYNC110 - it is set from another thread
                await asyncio.sleep(0.01)
        except asyncio.CancelledError:
            self.dropped[tag] += stays
            raise
        finally:
            self.waiting[tag] -= stays


def completion(
    body: dict[str, Any], tag: str, tokens: tuple[int, int]
) -> dict[str, Any]:
    """A chat completion: the first call of each tool that is offered, then text."""
    message: dict[str, Any] = {
        "role": "assistant",
        "content": f"Response to {tag}.",
    }
    finish_reason = "stop"
    if body.get("tools") and not any(
        message["role"] == "tool" for message in body["messages"]
    ):
        tool = body["tools"][0]["function"]
        arguments = json.dumps(
            dict.fromkeys(tool["parameters"]["properties"], f"Do {tag}.")
        )
        call = {
            "id": "c1",
            "type": "function",
            "function": {"name": tool["name"], "arguments": arguments},
        }
        message = {"role": "assistant", "content": None, "tool_calls": [call]}
        finish_reason = "tool_calls"
    usage = {
        "prompt_tokens": tokens[0],
        "completion_tokens": tokens[1],
        "total_tokens": sum(tokens),
    }
    choice = {"index": 0, "message": message, "finish_reason": finish_reason}
    return {
        "id": "1",
        "model": "gpt-4o-mini",
        "choices": [choice],
        "usage": usage,
    }


@pytest.fixture
def provider() -> Iterator[Provider]:
    with Provider() as provider:
        yield provider


CONFIG = {"model": MODEL, "max_loops": 4}


def agent(name: str) -> dict[str, Any]:
    return {
        "type": "Agent",
        "name": name,
        "instructions": f"You are {name}.",
        "config": CONFIG,
        "tools": [],
    }


def step(name: str) -> dict[str, Any]:
    return {
        "type": "agent_step",
        "agent": name,
        "name": name,
        "input": "{input}",
    }


INLINE: dict[str, dict[str, Any]] = {
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
"""The bodies of requests with inline blueprints, by kind."""


def chat(tag: str) -> dict[str, Any]:
    return {"model": "flow", "messages": [{"role": "user", "content": tag}]}


STREAMED = {"stream": True, "stream_options": {"include_usage": True}}
SERVED: list[tuple[str, Callable[[str], dict[str, Any]]]] = [
    ("/run", lambda tag: {"input": tag}),
    ("/v1/chat/completions", chat),
    ("/v1/chat/completions", lambda tag: {**chat(tag), **STREAMED}),
    ("/v1/responses", lambda tag: {"model": "flow", "input": tag}),
    (
        "/v1/responses",
        lambda tag: {"model": "flow", "input": tag, "stream": True},
    ),
]
"""Routes that run the served component, and the bodies of their requests."""


@dataclass(frozen=True)
class PlannedRun:
    """One request of the load."""

    tag: str
    path: str
    body: dict[str, Any]

    @property
    def leaves(self) -> bool:
        """Whether the client disconnects before the response."""
        return self.tag.endswith("leave")


def planned_runs(count: int) -> list[PlannedRun]:
    """Runs of the served workflow and of inline blueprints; some fail, are retried, or lose their client."""
    dice = random.Random(7)
    runs: list[PlannedRun] = []
    for number in range(count):
        kind = dice.choice(["served", "served", *INLINE])
        fate = dice.choices(["ok", "retry", "leave", "fail"], [80, 6, 6, 8])[0]
        if fate == "fail" and kind in ("agent", "conductor"):
            # it makes a second model call, which is the one that fails
            kind = "workflow"
        tag = f"run-{number}-{fate}"
        if kind == "served":
            path, body = dice.choice(SERVED)
            runs.append(PlannedRun(tag, path, body(tag)))
        else:
            runs.append(
                PlannedRun(
                    tag, "/run-blueprint", {**INLINE[kind], "input": tag}
                )
            )
    return runs


@dataclass
class Responses:
    """What the clients received."""

    tokens: list[int] = field(default_factory=lambda: [0, 0])
    cost: float = 0.0
    statuses: Counter[int] = field(default_factory=Counter[int])
    unanswered: list[PlannedRun] = field(default_factory=list[PlannedRun])

    @property
    def lost(self) -> list[PlannedRun]:
        """Runs whose connection broke although the client waited."""
        return [run for run in self.unanswered if not run.leaves]

    async def request(
        self, session: ClientSession, url: str, run: PlannedRun
    ) -> None:
        """Send one run and add its usage."""
        timeout = ClientTimeout(total=0.3 if run.leaves else 60)
        try:
            async with session.post(
                f"{url}{run.path}", json=run.body, timeout=timeout
            ) as response:
                content = await response.read()
                self.statuses[response.status] += 1
                header = response.headers.get("Podwright-Usage")
        except (ClientConnectionError, ClientPayloadError, TimeoutError):
            self.unanswered.append(run)
            return
        used = [usage_in_header(header)] if header is not None else []
        used += (
            [usage_in_content(content)] if run.path.startswith("/v1/") else []
        )
        assert used[0] == used[-1]
        self.tokens = [self.tokens[0] + used[0][0], self.tokens[1] + used[0][1]]
        self.cost += used[0][2]


def usage_in_header(header: str) -> tuple[int, int, float]:
    """Input tokens, output tokens and USD in the header of a response."""
    usage = dict(part.split("=") for part in header.split(", "))
    return (
        int(usage["input_tokens"]),
        int(usage["output_tokens"]),
        float(usage["cost"].strip('"')),
    )


def usage_in_content(content: bytes) -> tuple[int, int, float]:
    """The same in the content of an OpenAI-compatible response, or in its last event."""
    *_, last = [
        line.removeprefix(b"data: ")
        for line in content.splitlines()
        if line.startswith((b"{", b"data: {"))
    ]
    data = json.loads(last)
    usage = (data.get("error") or data.get("response") or data)["usage"]
    names = (
        ("prompt", "completion")
        if "prompt_tokens" in usage
        else ("input", "output")
    )
    return (
        usage[f"{names[0]}_tokens"],
        usage[f"{names[1]}_tokens"],
        usage["cost"],
    )


@dataclass
class Ledger:
    """A workflow in four workers, a remote agent, their provider and their collector."""

    flow: Process
    urls: list[str]
    """Of the workflow and of the agent."""
    provider: Provider
    spans: SpanCollector

    def traced_tokens(self) -> list[int]:
        """Input and output tokens of all model call spans that have arrived."""
        chats = [
            span.attributes
            for span in list(self.spans.spans)
            if span.name.startswith("chat ")
        ]
        return [
            sum(chat.get(f"gen_ai.usage.{way}_tokens", 0) for chat in chats)
            for way in WAYS
        ]

    def counted(self) -> tuple[list[int], float]:
        """Input and output tokens and USD in the metrics of both services."""
        scrapes = [
            Scrape(plain_http.get(f"{url}/metrics").text) for url in self.urls
        ]
        tokens = [
            int(
                sum(
                    scrape.get("podwright_tokens_total", type=way)
                    for scrape in scrapes
                )
            )
            for way in WAYS
        ]
        return tokens, sum(
            scrape.get("podwright_cost_usd_total") for scrape in scrapes
        )

    def uncounted_calls(self) -> float:
        """Model calls of which the provider gave no count."""
        scrapes = [
            Scrape(plain_http.get(f"{url}/metrics").text) for url in self.urls
        ]
        name = "podwright_unpriced_model_calls_total"
        return sum(scrape.get(name, reason="count") for scrape in scrapes)

    async def run(self, count: int) -> Responses:
        """Send so many runs; kill a worker in the middle, while it waits for the provider."""
        responses = Responses()
        limit = asyncio.Semaphore(CONCURRENT_RUNS)
        runs = planned_runs(count)
        middle = count // 2

        async with ClientSession() as session:

            async def send(run: PlannedRun) -> None:
                async with limit:
                    await responses.request(session, self.urls[0], run)

            await asyncio.gather(*(send(run) for run in runs[:middle]))
            # Tokens in flight, or spans not exported yet, would be lost with the worker.
            await eventually(
                lambda: self.traced_tokens()[1] == self.provider.tokens[1]
            )
            self.provider.answers.clear()
            rest = [asyncio.create_task(send(run)) for run in runs[middle:]]
            await eventually(
                lambda: self.provider.waiting.total() == CONCURRENT_RUNS
            )
            await self._kill_worker(responses)
            self.provider.answers.set()
            await asyncio.gather(*rest)
        return responses

    async def _kill_worker(self, responses: Responses) -> None:
        worker = busiest_child(self.flow.pid)
        os.kill(worker, signal.SIGKILL)
        await eventually(lambda: not Path(f"/proc/{worker}").exists())
        await eventually(
            lambda: (
                {run.tag for run in responses.lost}
                == set(+self.provider.dropped)
                != set()
            )
        )


async def eventually(condition: Callable[[], object]) -> None:
    """Poll a condition until it holds, in a thread."""
    await asyncio.to_thread(until, condition)


def busiest_child(pid: int) -> int:
    """The child process with the most open files: it has active runs."""
    children = (
        Path(f"/proc/{pid}/task/{pid}/children")
        .read_text(encoding="ascii")
        .split()
    )
    return max(
        map(int, children),
        key=lambda child: len(list(Path(f"/proc/{child}/fd").iterdir())),
    )


@pytest.fixture
def ledger(
    command: Command, address: Address, tmp_path: Path, provider: Provider
) -> Iterator[Ledger]:
    for name, blueprint in {
        "writer": agent("writer"),
        "flow": {
            "type": "Workflow",
            "name": "flow",
            "steps": [step("helper"), step("writer")],
        },
    }.items():
        (tmp_path / name).mkdir()
        (tmp_path / name / "blueprint.json").write_text(json.dumps(blueprint))
    (tmp_path / "flow" / "agents").mkdir()
    (tmp_path / "flow" / "agents" / "helper.json").write_text(
        json.dumps(agent("helper"))
    )
    with SpanCollector() as spans:
        prices = tmp_path / "prices.json"
        prices.write_text('{"openai/*": {"as": "openai/*"}}')
        variables = {
            "PODWRIGHT_MODEL_BASE_URL": provider.url,
            "PODWRIGHT_PRICES": str(prices),
        }
        variables |= spans.variables(spans.url)
        processes: list[Process] = []
        urls: list[str] = []
        for name, workers in (("writer", "1"), ("flow", "4")):
            process = command(
                "serve",
                str(tmp_path / name),
                "--port",
                "0",
                WEB_CONCURRENCY=workers,
                **variables,
            )
            urls.insert(0, address(process))
            discard_output(process)
            variables["PODWRIGHT_AGENTS"] = json.dumps({"writer": urls[0]})
            processes.append(process)
        yield Ledger(processes[-1], urls, provider, spans)


def price(tokens: list[int]) -> float:
    cost = pricing.lookup(
        MODEL, Usage(input_tokens=tokens[0], output_tokens=tokens[1])
    )
    assert cost
    return cost.amount


@pytest.mark.parametrize(
    "count",
    [
        pytest.param(300, id="short"),
        pytest.param(2000, id="long", marks=pytest.mark.proof),
    ],
)
async def test_responses_metrics_and_spans_agree_over_several_processes(
    ledger: Ledger, count: int
) -> None:
    """With failures, retries, lost clients, a remote agent, and one of four workers killed, no token differs."""
    responses = await ledger.run(count)
    tokens = ledger.provider.tokens
    unanswered = ledger.provider.tokens_of(
        run.tag for run in responses.unanswered
    )
    assert set(responses.statuses) == {200, 502}
    assert responses.statuses[502] > count // 50
    assert 0 < len(responses.lost) <= CONCURRENT_RUNS
    assert [
        received + lost
        for received, lost in zip(responses.tokens, unanswered, strict=True)
    ] == tokens
    counted, cost = ledger.counted()
    uncounted = ledger.uncounted_calls()
    assert counted[1] == tokens[1]
    estimated = counted[0] - tokens[0]
    assert 0 < estimated < 100 * uncounted, (
        "the input of those whose client left, which nobody has counted"
    )
    assert cost == pytest.approx(price(tokens), abs=1e-9)
    assert responses.cost == pytest.approx(cost - price(unanswered), abs=1e-9)
    await eventually(lambda: ledger.traced_tokens() == counted)
