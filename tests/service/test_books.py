"""The books of a provider: what it counted is in the answer, in the metrics and in the spans, whatever its shape."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import (
    InMemorySpanExporter,
)
from tests.library.model_clients import NO_LIMITS, SOON
from tests.library.provider_shapes import COUNTS, Counts
from tests.library.upstream import (
    Script,
    Upstream,
    completion,
    delta,
    reply,
    sse,
    streamed,
    upstream,
)

from podwright import Agent, Usage
from podwright.errors import PodwrightError
from podwright.models import Model, registry
from podwright.run.run import Task, execute
from podwright_service.observability.metrics.subscriber import Metrics, Part
from podwright_service.observability.run_spans import RunSpans
from podwright_service.testing import Metrics as Scrape

MODEL = "hosted_vllm/m"
INPUT_PRICE = 2.0
OUTPUT_PRICE = 8.0
"""USD for a million tokens."""


@pytest.fixture
async def provider(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> AsyncGenerator[Upstream]:
    prices = tmp_path / "prices.json"
    prices.write_text(
        json.dumps({MODEL: {"input": INPUT_PRICE, "output": OUTPUT_PRICE}})
    )
    monkeypatch.setenv("PODWRIGHT_PRICES", str(prices))
    monkeypatch.setattr(Model, "timeouts", NO_LIMITS)
    monkeypatch.setattr(Model, "retries", SOON)
    # each test has another address
    monkeypatch.setattr(registry, "_resolved", {})
    async with upstream() as serving:
        monkeypatch.setenv("HOSTED_VLLM_API_BASE", serving.url)
        yield serving


async def ledgers(*, streaming: bool) -> tuple[Usage, Scrape, dict[str, Any]]:
    """The usage of a run, the metrics, and the attributes of the span of its model call."""
    exporter = InMemorySpanExporter()
    tracing = TracerProvider(shutdown_on_exit=False)
    tracing.add_span_processor(SimpleSpanProcessor(exporter))
    metrics = Metrics(
        "guide", "agent", components=[Part("guide", "agent")], models={MODEL}
    )
    subscribers = (metrics.subscriber(), RunSpans(tracing.get_tracer("test")))
    try:
        result = await execute(
            Agent("guide", "Help.", MODEL),
            Task("?"),
            subscribers=subscribers,
            stream=streaming,
        )
        usage = result.usage
    except PodwrightError as error:
        usage = error.usage or Usage()
    (span,) = [
        span for span in exporter.get_finished_spans() if span.name == "chat m"
    ]
    return (
        usage,
        Scrape(metrics.render("")[0].decode()),
        dict(span.attributes or {}),
    )


def check(usage: Usage, scrape: Scrape, span: dict[str, Any]) -> None:
    """All three ledgers say the same, and the cost is known only if all counts are."""
    assert (
        scrape.get("podwright_tokens_total", type="input") == usage.input_tokens
    )
    assert (
        scrape.get("podwright_tokens_total", type="output")
        == usage.output_tokens
    )
    assert (
        scrape.get("podwright_tokens_total", type="reasoning")
        == usage.reasoning_tokens
    )
    assert (
        scrape.get("podwright_tokens_total", type="cached_input")
        == usage.cached_input_tokens
    )
    assert span["gen_ai.usage.input_tokens"] == usage.input_tokens
    assert span["gen_ai.usage.output_tokens"] == usage.output_tokens
    assert (
        scrape.get("podwright_unpriced_model_calls_total")
        == usage.unpriced_model_calls
    )
    assert span.get("gen_ai.usage.cost") == usage.cost
    if usage.cost is not None:
        priced = (
            usage.input_tokens * INPUT_PRICE
            + usage.output_tokens * OUTPUT_PRICE
        )
        assert usage.cost == pytest.approx(priced / 1e6)
        assert scrape.get("podwright_cost_usd_total") == pytest.approx(
            usage.cost
        )


def stream_of(shape: Counts) -> Script:
    *first, last = shape.chunks
    chunks = [{**delta(content=""), **part} for part in first]
    return streamed(
        sse(
            delta(content="Hi."),
            *chunks,
            delta("stop"),
            {"choices": [], **last},
        )
    )


@pytest.mark.parametrize("streaming", [False, True], ids=["plain", "streaming"])
@pytest.mark.parametrize(
    "shape", COUNTS, ids=lambda shape: f"{shape.provider}: {shape.what}"
)
async def test_the_ledgers_are_the_books(
    shape: Counts, streaming: bool, provider: Upstream
) -> None:
    """For each shape of counts: answer, metrics and span have what the provider counted."""
    if shape.streams and not streaming:
        return
    whole = [reply({**completion("Hi.", None), **shape.chunks[-1]})]
    provider.answers(stream_of(shape) if streaming else whole)
    usage, scrape, span = await ledgers(streaming=streaming)
    assert usage.input_tokens == (shape.input or usage.input_tokens) > 0
    assert usage.output_tokens == (shape.output or usage.output_tokens) > 0
    assert (usage.cost is not None) == shape.priced
    check(usage, scrape, span)


USED = {"prompt_tokens": 20, "completion_tokens": 4, "total_tokens": 24}
CUT = streamed(
    sse(delta(role="assistant", content=None), {"choices": [], "usage": USED})
)
ANSWER = streamed(
    sse(delta(content="Hi."), delta("stop"), {"choices": [], "usage": USED})
)
FAILED = streamed(
    sse(
        {"choices": [], "usage": USED},
        {"error": {"message": "Down.", "code": 503}},
    )
)


@pytest.mark.parametrize(
    ("scripts", "answers"),
    [
        ([CUT, ANSWER], 2),
        ([FAILED, CUT, ANSWER], 3),
        ([CUT, CUT, CUT], 3),
        ([FAILED, FAILED, FAILED], 3),
    ],
    ids=["retried", "retried twice", "cut off each time", "failed each time"],
)
async def test_attempts_that_failed_are_in_the_ledgers(
    scripts: list[Script], answers: int, provider: Upstream
) -> None:
    """What the provider counted for an answer that was cut off, or failed, is in all three ledgers as well."""
    provider.answers(*scripts)
    usage, scrape, span = await ledgers(streaming=True)
    assert (usage.input_tokens, usage.output_tokens) == (
        20 * answers,
        4 * answers,
    )
    assert usage.cost is not None
    check(usage, scrape, span)
