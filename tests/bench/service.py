"""What the service costs: `POST /run` against the same written with FastAPI and aiohttp, and with LiteLLM."""

from __future__ import annotations

import asyncio
import statistics
import time
import urllib.request
from dataclasses import dataclass

from figures import Figure, median_ratio
from load import KEY, post
from servers import BODY, CPUS, App, Loads, compare, free_port, process, provider, serve, wait_for_response

CONNECTIONS = 64
SPANS_PER_RUN = 3
"""The server span, and those of the run and of its model call."""
STREAMS = 1000
SAMPLED = {"OTEL_TRACES_SAMPLER": "parentbased_traceidratio", "OTEL_TRACES_SAMPLER_ARG": "0.1"}
LAYERS = {
    "plain": "plain FastAPI + aiohttp",
    "agent": "FastAPI + an agent of the library (run, limits, retries, cost)",
    "no-telemetry": "the service: admission, body limits, request metrics, checked input",
    "metrics": "+ metrics of runs",
    "defaults": "+ log line of each run: **the service at its defaults**",
    "key": "+ API key",
    "sampled": "+ spans, 10 % sampled (without API key)",
    "spans": "+ all spans exported (without API key)",
}


@dataclass(frozen=True)
class Layer:
    """A row of the table of layers."""

    title: str
    cpu: float
    """CPU microseconds per request."""
    share: float
    """Throughput as a share of the plain application's."""


async def one_call(rounds: int, requests: int = 1500) -> tuple[list[Figure], list[Layer]]:
    """All applications with an instant provider, in turns."""
    port = free_port()
    with process("collector.py", port, cpu=CPUS[-1]):
        exported = {"OTEL_EXPORTER_OTLP_ENDPOINT": f"http://127.0.0.1:{port}", "OTEL_BSP_SCHEDULE_DELAY": "500"}
        apps = {
            **{name: App(name) for name in ("plain", "agent", "no-telemetry", "metrics", "tools")},
            "litellm": App("litellm", share=1 / 8),
            "defaults": App("defaults"),
            "key": App("key", {"PODWRIGHT_API_KEYS": KEY}),
            "sampled": App("sampled", {**exported, **SAMPLED}, settle=1),
            "spans": App("spans", exported, settle=1),
        }
        results = await compare(apps, "/run", requests, CONNECTIONS, rounds)
        with urllib.request.urlopen(f"http://127.0.0.1:{port}") as response:  # noqa: S310 - a constant scheme
            received = int(response.read())
    sent = rounds * requests
    print(f"spans received: {received}, of {sent * SPANS_PER_RUN} + warm-up and 10 %")
    plain = results["plain"]

    def figure(title: str, name: str, limit: float, reference: Loads = plain) -> Figure:
        ratio = median_ratio(results[name].rates, reference.rates)
        detail = f"{results[name].rate:.0f}/s against {reference.rate:.0f}/s"
        return Figure(title, ratio, "×", detail, limit, "≥")

    figures = [
        figure("one call, service at its defaults", "defaults", 0.5),
        figure("with 10 % of the spans exported", "sampled", 0.38),
        figure("with all spans exported", "spans", 0.33),
        figure("one call, against FastAPI + LiteLLM", "defaults", 4, results["litellm"]),
        figure("an agent with a tool: two calls, against one of the plain app", "tools", 0.25),
    ]
    layers = [
        Layer(
            title,
            statistics.median(results[name].cpu) * 1e6,
            median_ratio(results[name].rates, plain.rates),
        )
        for name, title in LAYERS.items()
    ]
    return figures, layers


def layer_table(layers: list[Layer]) -> str:
    """The layers as a Markdown table."""
    lines = ["| application | CPU per request | throughput |", "|---|--:|--:|"]
    return "\n".join([*lines, *(f"| {row.title} | {row.cpu:.0f} µs | {row.share:.2f} × |" for row in layers)])


async def slow_provider(rounds: int) -> list[Figure]:
    """500 connections, and a provider that takes 200 ms."""
    apps = {"plain": App("plain"), "service": App("service", {"PODWRIGHT_MAX_RUNS": "600"})}
    results = await compare(apps, "/run", 4000, 500, rounds, delay_ms=200)
    plain, service = results["plain"], results["service"]
    tails, plain_tails = service.percentiles(0.99), plain.percentiles(0.99)
    p99 = f"{statistics.median(tails) * 1000:.0f} ms against {statistics.median(plain_tails) * 1000:.0f} ms"
    return [
        Figure(
            "500 connections, a provider that takes 200 ms",
            median_ratio(service.rates, plain.rates),
            "×",
            f"{service.rate:.0f}/s against {plain.rate:.0f}/s",
            0.75,
            "≥",
        ),
        Figure("p99 of these requests", median_ratio(tails, plain_tails), "×", p99, 1.3),
    ]


async def streaming(rounds: int) -> list[Figure]:
    """`/run/stream`: every event of the run, against the tokens only."""
    results = await compare({"plain": App("plain"), "service": App("service")}, "/run/stream", 800, CONNECTIONS, rounds)
    plain, service = results["plain"], results["service"]
    detail = f"all events, {service.rate:.0f}/s, against tokens only, {plain.rate:.0f}/s"
    return [Figure("streaming", median_ratio(service.rates, plain.rates), "×", detail)]


async def open_streams() -> list[Figure]:
    """The memory of streams that wait for their model."""
    writers: list[asyncio.StreamWriter] = []

    async def open_some(port: int, number: int) -> None:
        for _ in range(number):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writers.append(writer)
            writer.write(post("/run/stream", BODY))
            await reader.readuntil(b"event: model_call_started")

    app = App("service", {"PODWRIGHT_MAX_RUNS": "2000"})
    with provider(600_000) as provider_port, serve(app, provider_port) as server:
        await wait_for_response(server.port, "/validate-blueprint")
        await open_some(server.port, 50)
        before = server.resident
        await open_some(server.port, STREAMS)
        grown = (server.resident - before) * 1024 / STREAMS
        for writer in writers:
            writer.close()
        await asyncio.gather(*(writer.wait_closed() for writer in writers), return_exceptions=True)
    detail = f"mean of {STREAMS}, each with a connection to the provider"
    return [Figure("memory of an open stream", grown, "KiB", detail, 80)]


async def start_up(rounds: int) -> list[Figure]:
    """The time from the start of a process to its first response, and its memory then."""
    names = ("service", "plain")
    seconds: dict[str, list[float]] = {name: [] for name in names}
    memory: dict[str, list[float]] = {name: [] for name in names}
    with provider() as provider_port:
        for round_ in range(rounds + 1):
            for name in names:
                start = time.perf_counter()
                with serve(App(name), provider_port) as server:
                    await wait_for_response(server.port)
                    if round_:  # the first one compiles byte code and reads from the disk
                        seconds[name].append(time.perf_counter() - start)
                        memory[name].append(server.resident)
    times, sizes = ([statistics.median(values[name]) for name in names] for values in (seconds, memory))
    return [
        Figure(
            "start to first response",
            median_ratio(seconds["service"], seconds["plain"]),
            "×",
            f"{times[0] * 1000:.0f} ms against {times[1] * 1000:.0f} ms",
            2,
        ),
        Figure(
            "resident memory",
            median_ratio(memory["service"], memory["plain"]),
            "×",
            f"{sizes[0]:.0f} MiB against {sizes[1]:.0f} MiB",
            1.4,
        ),
    ]
