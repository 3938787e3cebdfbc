"""What Prometheus reads: counts of runs, model calls, tool calls, tokens, money and requests.

Runs are counted by the outermost ones, so that they are as many as the answers; model and tool calls each once, where
they happen. Every label is bounded: names that come from outside are counted under one name.

The client library decides at its import whether values lie in memory or, for several processes, in the files of
`PROMETHEUS_MULTIPROC_DIR`. So this module is imported when that is settled.
"""

from __future__ import annotations

import os
import time
from bisect import bisect_left
from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, Any, TypeVar

from opentelemetry.trace import get_current_span
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector, disable_created_metrics
from prometheus_client.exposition import choose_encoder
from prometheus_client.multiprocess import MultiProcessCollector

from podwright.events import (
    RUN_ENDS,
    Event,
    ModelCallFailed,
    ModelCallFinished,
    RunFailed,
    RunStarted,
    ToolCallFailed,
    ToolCallFinished,
)
from podwright_service.observability.tracing import STATUS, RunEnd

if TYPE_CHECKING:
    from podwright_service.admission import Admission

UNKNOWN = "(unknown)"
"""The label of all models, tools and routes that the service does not know beforehand."""

POSTED = "(inline)"
"""The `component` of all that came in requests."""

_WHO = ("component", "kind")
_LIMITS = ("wall_time", "model_calls", "tokens", "cost", "steps")
_METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS")
_RUN_SECONDS = [0.1 * 2**n for n in range(13)]
_CALL_SECONDS = [0.01 * 2**n for n in range(14)]

_RENEW = 1.0
"""Seconds that an exemplar stands: a reader sees the last one, and giving one takes longer than counting."""

Child = TypeVar("Child", Counter, Gauge, "_Timed")


class _Children(dict[tuple[str, ...], Child]):
    """The children of a metric by their labels: looking one up in the metric takes longer than counting."""

    def __init__(self, made: Callable[..., Child]) -> None:
        super().__init__()
        self._made = made

    def __missing__(self, labels: tuple[str, ...]) -> Child:
        made = self[labels] = self._made(*labels)
        return made


class _Timed:
    """A child of a histogram, which names a trace for each of its buckets now and then."""

    def __init__(self, child: Histogram, buckets: list[float]) -> None:
        self._observe, self._buckets = child.observe, buckets
        self._due = [0.0] * (len(buckets) + 1)

    def observe(self, seconds: float) -> None:
        """Count how long something took that ends now."""
        now, bucket = time.monotonic(), bisect_left(self._buckets, seconds)
        if now < self._due[bucket] or not (context := get_current_span().get_span_context()).trace_flags.sampled:
            self._observe(seconds)
        else:
            self._due[bucket] = now + _RENEW
            self._observe(seconds, {"trace_id": f"{context.trace_id:032x}"})


class Metrics:
    """Counts what happens in one service.

    Args:
        component: Name of the served component.
        kind: Its kind.
        components: Names of all components inside it.
        models: Names of all models that may be asked.
        tools: Names of all tools that may be called.
        routes: The paths that there are.
    """

    def __init__(
        self,
        component: str,
        kind: str,
        components: Collection[str],
        models: Collection[str],
        tools: Collection[str],
        routes: Collection[str],
    ) -> None:
        self.registry = CollectorRegistry()
        disable_created_metrics()  # a series for each other one, which nobody asks for
        self._admission: Admission | None = None
        self._refused: dict[str, int] = {}
        self._served = component, kind
        self._components, self._models = frozenset(components), frozenset(models)
        self._tools, self._routes = frozenset(tools), frozenset(routes)
        self._shared = bool(os.environ.get("PROMETHEUS_MULTIPROC_DIR"))
        if not self._shared:
            ProcessCollector(registry=self.registry)
        self._of_runs()
        self._of_calls()
        self._of_requests()
        self._counted: dict[type[Any], Callable[[Any, tuple[str, str]], None]] = {
            RunStarted: self._run_started,
            ModelCallFinished: self._call_finished,
            ModelCallFailed: self._call_failed,
            ToolCallFinished: self._tool_ended,
            ToolCallFailed: self._tool_ended,
            **dict.fromkeys(RUN_ENDS, self._run_ended),
        }

    def _counter(self, name: str, told: str, *labels: str) -> _Children[Counter]:
        return _Children(Counter(f"podwright_{name}", told, (*_WHO, *labels), registry=self.registry).labels)

    def _gauge(self, name: str, told: str) -> _Children[Gauge]:
        made = Gauge(f"podwright_{name}", told, _WHO, registry=self.registry, multiprocess_mode="livesum")
        return _Children(made.labels)

    def _histogram(self, name: str, told: str, buckets: list[float], *labels: str) -> _Children[_Timed]:
        made = Histogram(f"podwright_{name}", told, (*_WHO, *labels), registry=self.registry, buckets=buckets)
        return _Children(lambda *labels: _Timed(made.labels(*labels), buckets))

    def _of_runs(self) -> None:
        self._runs = self._counter("runs", "Runs that ended, by how; nested ones are part of theirs.", "status")
        self._run_seconds = self._histogram("run_duration_seconds", "How long runs took.", _RUN_SECONDS)
        self._in_progress = self._gauge("runs_in_progress", "Runs under way.")
        self._waiting = self._gauge("runs_waiting", "Requests that wait for a run to end.")
        self._rejected = self._counter("runs_rejected", "Requests refused for want of a place.", "reason")
        self._stops = self._counter("budget_stops", "Runs that a limit ended.", "limit")
        self._waiting[self._served].set(0)
        for kind in (self._served, (POSTED, "agent")):
            self._in_progress[kind].set(0)

    def _of_calls(self) -> None:
        self._tokens = self._counter(
            "tokens",
            "Tokens. cached_input is a part of input and reasoning a part of output: the bill is input + output.",
            "model",
            "type",
        )
        self._cost = self._counter("cost_usd", "What model calls of known price cost, in USD.", "model")
        self._unpriced = self._counter("unpriced_model_calls", "Model calls of unknown price.", "model")
        self._calls = self._counter("model_calls", "Model calls that ended.", "model", "provider", "status")
        told = "How long model calls took, with their repetitions."
        self._call_seconds = self._histogram("model_call_duration_seconds", told, _CALL_SECONDS, "model")
        told = "Time to the first token of streamed answers."
        self._first_token = self._histogram("time_to_first_token_seconds", told, _CALL_SECONDS, "model")
        self._tool_calls = self._counter("tool_calls", "Tool calls that ended.", "tool", "status")
        told = "How long tool calls took."
        self._tool_seconds = self._histogram("tool_call_duration_seconds", told, _CALL_SECONDS, "tool")

    def _of_requests(self) -> None:
        told = "Requests answered; status 499 is a client that left before."
        self._requests = self._counter("http_requests", told, "method", "route", "status")
        told = "How long requests took, to the end of the answer."
        self._request_seconds = self._histogram("http_request_duration_seconds", told, _CALL_SECONDS, "route")
        self._info = Gauge(
            "podwright_component_info",
            "What is served; always 1.",
            (*_WHO, "version", "blueprint_digest"),
            registry=self.registry,
            multiprocess_mode="livemax",
        )

    def serves(self, version: str, digest: str) -> None:
        """Tell which component this is."""
        self._info.labels(*self._served, version, digest).set(1)

    def track(self, admission: Admission) -> None:
        """Count who waits, and who is refused."""
        self._admission = admission
        admission.on_change = self._see_waiting  # of several processes, another one may write the page
        self._see_waiting()  # a count that is not there before it counts has no rate

    def subscriber(self, posted: bool) -> Callable[[Event], None]:
        """What counts the events of runs: of the served component, or of posted blueprints."""

        def hear(event: Event) -> None:
            if event.remote is None and (count := self._counted.get(type(event))):
                if posted:
                    who = POSTED, event.kind
                elif event.component in self._components:
                    who = event.component, event.kind
                else:
                    who = self._served
                count(event, who)

        return hear

    def observe_request(self, method: str, path: str, status: int, seconds: float) -> None:
        """Count a request that was answered."""
        route = self.route(path)
        self._requests[*self._served, method if method in _METHODS else UNKNOWN, route, str(status)].inc()
        self._request_seconds[*self._served, route].observe(seconds)

    def route(self, path: str) -> str:
        """A path, or what all paths that there are not are called."""
        return path if path in self._routes else UNKNOWN

    def render(self, accept: str) -> tuple[bytes, str]:
        """All metrics, and the media type that they are written in.

        Args:
            accept: What the reader takes: the text format, or OpenMetrics, which has exemplars.
        """
        registry = self.registry
        if self._shared:
            registry = CollectorRegistry()
            MultiProcessCollector(registry)
        try:
            encode, media_type = choose_encoder(accept)
        except (TypeError, ValueError):  # a version that is none
            encode, media_type = choose_encoder("")
        return encode(registry), media_type

    def _see_waiting(self) -> None:
        if self._admission is not None:
            self._waiting[self._served].set(self._admission.waiting)
            for reason, number in self._admission.rejected.items():
                self._rejected[*self._served, reason].inc(number - self._refused.get(reason, 0))
                self._refused[reason] = number

    def _run_started(self, event: RunStarted, who: tuple[str, str]) -> None:
        if event.parent_id is None:
            self._in_progress[who].inc()

    def _run_ended(self, event: RunEnd, who: tuple[str, str]) -> None:
        if event.parent_id is not None:
            return
        self._in_progress[who].dec()
        self._runs[*who, STATUS[type(event)]].inc()
        self._run_seconds[who].observe(event.duration_ms / 1000)
        if isinstance(event, RunFailed) and "limit" in event.error:
            limit = event.error["limit"]
            self._stops[*who, limit if limit in _LIMITS else UNKNOWN].inc()

    def _call_finished(self, event: ModelCallFinished, who: tuple[str, str]) -> None:
        model, usage = self._called(event, who, "ok"), event.response.usage
        for type_, tokens in (
            ("input", usage.input_tokens),
            ("output", usage.output_tokens),
            ("cached_input", usage.cached_input_tokens),
            ("reasoning", usage.reasoning_tokens),
        ):
            if tokens:
                self._tokens[*who, model, type_].inc(tokens)
        if usage.cost is None:
            self._unpriced[*who, model].inc()
        else:
            self._cost[*who, model].inc(usage.cost)
        if event.first_token_ms is not None:
            self._first_token[*who, model].observe(event.first_token_ms / 1000)

    def _call_failed(self, event: ModelCallFailed, who: tuple[str, str]) -> None:
        self._called(event, who, _outcome(event))

    def _called(self, event: ModelCallFinished | ModelCallFailed, who: tuple[str, str], status: str) -> str:
        model = event.model if event.model in self._models else UNKNOWN
        self._calls[*who, model, model.partition("/")[0], status].inc()
        self._call_seconds[*who, model].observe(event.duration_ms / 1000)
        return model

    def _tool_ended(self, event: ToolCallFinished | ToolCallFailed, who: tuple[str, str]) -> None:
        tool = event.tool if event.tool in self._tools else UNKNOWN
        self._tool_calls[*who, tool, _outcome(event) if isinstance(event, ToolCallFailed) else "ok"].inc()
        self._tool_seconds[*who, tool].observe(event.duration_ms / 1000)


def _outcome(event: ModelCallFailed | ToolCallFailed) -> str:
    return "cancelled" if event.error.get("code") == "run_cancelled" else "failed"
