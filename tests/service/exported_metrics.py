"""The series that a service exports, read from a registry in which everything was counted once."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from prometheus_client.parser import text_string_to_metric_families

from podwright import RunLimits, Usage
from podwright.events import (
    Event,
    LoopExhausted,
    ModelCallFailed,
    ModelCallFinished,
    ModelCallRetried,
    ModelCallStarted,
    RunFailed,
    RunStarted,
    Token,
    ToolCallFinished,
)
from podwright.mcp.results import Exchange
from podwright.messages.messages import Message, ModelRequest, ModelResponse
from podwright_service.observability.metrics.otlp import OTLPMetrics
from podwright_service.observability.metrics.subscriber import Metrics, Part


def counted(export: OTLPMetrics | None = None) -> Metrics:
    """Metrics in which every counter has been incremented and every histogram has an observation."""
    metrics = Metrics(
        "looker",
        "agent",
        version="1",
        digest="d",
        components=[Part("looker", "agent")],
        routes={"/run"},
        servers={"files"},
        limits=RunLimits(60, 10, 1000, 0.5),
        export=export,
    )
    admission: Any = SimpleNamespace(
        waiting=0, rejected={"full": 1}, on_change=None
    )
    metrics.track(admission)
    metrics.count_spans("ended", 2)
    metrics.observe_request("POST", "/run", 200, 0.1)
    failed = Exchange("files", "tools/call", "2026-07-28", 0.1, "unreachable")
    metrics.observe_exchange(failed, is_up=False)
    metrics.count_attempt("succeeded")
    metrics.count_turn("kept")
    metrics.count_delivery("delivered")
    metrics.set_background_runs({"queued": (1, 1.0, 1)})
    priced = Usage(10, 5, 4, 2, cost=0.01, cache_write_tokens=3)
    answer = ModelResponse("x", usage=priced, model="b-2026-01-01")
    unpriced = Usage(10, 5, cost=None)
    own: dict[str, Any] = {"component": "looker", "kind": "agent"}
    events: list[Event] = [
        RunStarted(**own),
        ModelCallStarted(
            request=ModelRequest("a/b", (Message("user", "Hi"),)), **own
        ),
        Token(text="x", at=1.0, **own),
        Token(text="y", at=1.25, **own),
        ModelCallFinished(
            model="a/b",
            response=answer,
            duration_ms=2.0,
            first_token_ms=1.0,
            **own,
        ),
        ModelCallFinished(
            model="a/b", response=ModelResponse("x", usage=unpriced), **own
        ),
        ModelCallRetried(
            model="a/b", error={"code": "model_unavailable"}, **own
        ),
        ModelCallFailed(
            model="a/b", error={"code": "model_unavailable"}, **own
        ),
        ToolCallFinished(tool="look", duration_ms=3.0, **own),
        LoopExhausted(**own),
        RunFailed(error={"code": "limit_exceeded", "limit": "tokens"}, **own),
    ]
    for event in events:
        metrics.subscriber()(event)
    return metrics


def exported() -> dict[str, frozenset[str]]:
    """Each series, such as `podwright_runs_total` or `podwright_run_duration_seconds_bucket`, with its labels."""
    text = counted().render("")[0].decode()
    return {
        sample.name: frozenset(sample.labels)
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if sample.name.startswith("podwright_")
    }
