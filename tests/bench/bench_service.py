"""What the service costs: `POST /run` against the same written with FastAPI and aiohttp, and with LiteLLM."""

from __future__ import annotations

import asyncio
import statistics
import time
from collections import defaultdict

import httpx
from figures import Figure, median_ratio, ratio
from load import KEY, post
from reference import COMMIT, reference_checkout
from servers import (
    BODY,
    CPUS,
    App,
    Loads,
    compare,
    free_port,
    process,
    provider,
    serve,
    wait_for_response,
)

CONNECTIONS = 64
SPANS_PER_RUN = 3
"""The server span, and those of the run and of its model call."""
STREAMS = 1000
CHAT_BODY = b'{"model": "guide", "messages": [{"role": "user", "content": "Why does the moon not fall?"}]}'
ENDPOINT = "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"
SAMPLED = {
    "OTEL_TRACES_SAMPLER": "parentbased_traceidratio",
    "OTEL_TRACES_SAMPLER_ARG": "0.1",
}
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


async def one_call(
    rounds: int, requests: int = 1000
) -> tuple[list[Figure], str]:
    """An instant provider, and each application alone with the plain one: the figures, and the table of layers."""
    collector = f"http://127.0.0.1:{(port := free_port())}"
    # milliseconds; the next measurement finds nothing left to export
    often = {"OTEL_BSP_SCHEDULE_DELAY": "500"}
    apps = {
        "defaults": App("defaults"),
        "sampled": App(
            "sampled",
            {ENDPOINT: f"{collector}/sampled", **SAMPLED, **often},
            settle=1,
        ),
        "spans": App(
            "spans", {ENDPOINT: f"{collector}/spans", **often}, settle=1
        ),
        "key": App("key", {"PODWRIGHT_API_KEYS": KEY}),
        **{
            name: App(name)
            for name in ("agent", "no-telemetry", "metrics", "tools")
        },
    }
    pairs: dict[str, dict[str, Loads]] = {}
    with process("collector.py", port, cpus=CPUS[-1:]):
        for name, app in apps.items():
            pairs[name] = await compare(
                {"plain": App("plain"), name: app},
                "/run",
                requests,
                CONNECTIONS,
                rounds,
            )
        both = {
            "litellm": App("litellm", share=1 / 8),
            "defaults": App("defaults"),
        }
        lite, service = (
            await compare(both, "/run", requests, CONNECTIONS, rounds)
        ).values()
        received = int(httpx.get(f"{collector}/spans").text)
    expected = SPANS_PER_RUN * pairs["spans"]["spans"].requests

    def share(title: str, name: str, limit: float | None = None) -> Figure:
        return ratio(
            title,
            pairs[name][name].rates,
            pairs[name]["plain"].rates,
            "/s",
            limit,
            "≥",
        )

    figures = [
        share("one call, service at its defaults", "defaults", 0.5),
        share("with 10 % of the spans exported", "sampled", 0.38),
        share("with all spans exported", "spans", 0.33),
        Figure(
            "spans that arrive",
            received / expected * 100,
            "%",
            f"{received} of {expected}",
            99,
            "≥",
        ),
        ratio(
            "one call, against FastAPI + LiteLLM",
            service.rates,
            lite.rates,
            "/s",
            4,
            "≥",
        ),
        share("an agent that calls a tool: two calls, against one", "tools"),
    ]
    return figures, layer_table(pairs)


def layer_table(pairs: dict[str, dict[str, Loads]]) -> str:
    """The CPU time and the throughput of each layer, as a Markdown table."""
    lines = ["| application | CPU per request | throughput |", "|---|--:|--:|"]
    for name, title in LAYERS.items():
        loads = pairs.get(name, pairs["defaults"])
        throughput = median_ratio(loads[name].rates, loads["plain"].rates)
        lines.append(
            f"| {title} | {statistics.median(loads[name].cpu) * 1e6:.0f} µs | {throughput:.2f} × |"
        )
    return "\n".join(lines)


async def drift(rounds: int) -> list[Figure]:
    """The service against that of the reference commit."""
    apps = {
        "reference": App("defaults", checkout=reference_checkout()),
        "now": App("defaults"),
    }
    results = await compare(apps, "/run", 1000, CONNECTIONS, rounds)
    return [
        ratio(
            f"one call, against commit {COMMIT[:8]}",
            results["now"].rates,
            results["reference"].rates,
            "/s",
            0.95,
            "≥",
        )
    ]


async def openai_routes(rounds: int) -> list[Figure]:
    """Chat Completions against `/run` of the same service."""
    chat = App("defaults", path="/v1/chat/completions", body=CHAT_BODY)
    run, chat_loads = (
        await compare(
            {"run": App("defaults"), "chat": chat},
            "/run",
            1000,
            CONNECTIONS,
            rounds,
        )
    ).values()
    return [
        ratio(
            "`/v1/chat/completions`, against `/run`",
            chat_loads.rates,
            run.rates,
            "/s",
            0.9,
            "≥",
        )
    ]


async def slow_provider(rounds: int) -> list[Figure]:
    """500 connections, and a provider that takes 200 ms."""
    apps = {
        "plain": App("plain"),
        "service": App("service", {"PODWRIGHT_MAX_RUNS": "600"}),
    }
    results = await compare(apps, "/run", 4000, 500, rounds, delay_ms=200)
    plain, service = results["plain"], results["service"]
    return [
        ratio(
            "500 connections, a provider that takes 200 ms",
            service.rates,
            plain.rates,
            "/s",
            0.75,
            "≥",
        ),
        ratio("p99 of these requests", service.p99_ms, plain.p99_ms, "ms", 1.3),
    ]


async def streaming(rounds: int) -> list[Figure]:
    """`/run/stream`, which sends every event of the run, against the tokens only."""
    results = await compare(
        {"plain": App("plain"), "service": App("service")},
        "/run/stream",
        800,
        CONNECTIONS,
        rounds,
    )
    return [
        ratio(
            "streams of all events, against tokens",
            results["service"].rates,
            results["plain"].rates,
            "/s",
        )
    ]


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
    with (
        provider(delay_ms=600_000) as provider_port,
        serve(app, provider_port) as server,
    ):
        await wait_for_response(
            server.port, "/validate-blueprint", b'{"blueprint": {}}'
        )
        await open_some(server.port, 50)
        before = server.resident
        await open_some(server.port, STREAMS)
        grown = (server.resident - before) * 1024 / STREAMS
        for writer in writers:
            writer.close()
        await asyncio.gather(
            *(writer.wait_closed() for writer in writers),
            return_exceptions=True,
        )
    detail = f"mean of {STREAMS}, each with a connection to the provider"
    return [Figure("memory of an open stream", grown, "KiB", detail, 80)]


async def start_up(rounds: int) -> list[Figure]:
    """The time from the start of a process to its first response, and its memory then."""
    times, memory = (
        defaultdict[str, list[float]](list),
        defaultdict[str, list[float]](list),
    )
    with provider() as provider_port:
        for round_ in range(rounds + 1):
            for name in ("service", "plain"):
                start = time.perf_counter()
                with serve(App(name), provider_port) as server:
                    await wait_for_response(server.port)
                    # the first one compiles byte code and reads from the disk
                    if round_:
                        times[name].append((time.perf_counter() - start) * 1e3)
                        memory[name].append(server.resident)
    return [
        ratio(
            "start to first response", times["service"], times["plain"], "ms", 2
        ),
        ratio(
            "resident memory then",
            memory["service"],
            memory["plain"],
            "MiB",
            1.4,
        ),
    ]
