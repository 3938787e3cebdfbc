"""Prometheus metrics of runs, model calls, tool calls, tokens, cost and requests.

Only outermost runs are counted as runs, so their number is that of the responses. Model calls and tool calls are
counted once each, in the component that makes them. Every label is bounded: names that the service does not know share
one value.

prometheus_client decides at its import whether it keeps values in memory or, with `PROMETHEUS_MULTIPROC_DIR`, in files
that several processes share. Set the variable before this module is imported.
"""

from __future__ import annotations

import logging
import math
import os
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, get_args

from opentelemetry.trace import get_current_span
from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    ProcessCollector,
)
from prometheus_client.exposition import choose_encoder
from prometheus_client.metrics_core import Metric
from prometheus_client.multiprocess import MultiProcessCollector
from prometheus_client.registry import Collector

from podwright import events
from podwright.errors import CODES, ConfigurationError, ModelError, codes_of
from podwright.events import Kind
from podwright.finish_reasons import FINISH_REASONS
from podwright.messages import ModelResponse
from podwright.models import price_file, pricing
from podwright.usage import RunLimits, Usage
from podwright_service.http.paths import route_of
from podwright_service.observability import metric_files
from podwright_service.observability.otlp_metrics import (
    InstrumentKind,
    OTLPMetrics,
    Record,
)
from podwright_service.observability.semconv import (
    RUN_STATUSES,
    SpanOutcome,
    run_status,
)
from podwright_service.origin import INLINE, current_origin

if TYPE_CHECKING:
    from podwright_service.http.admission import Admission

_log = logging.getLogger("podwright.service")

UNKNOWN = "(unknown)"
"""The label value of models, tools, routes and limits that the service does not know."""

OTHER = "(other)"
"""The label value of those beyond a maximum."""

_COMMON_LABELS = ("component", "kind")
_LIMITS = ("wall_time", "model_calls", "tokens", "cost", "steps", "text")
_METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS")
_RUN_SECONDS = [0.16 * 2**n for n in range(13)]
_CALL_SECONDS = [0.01 * 2**n for n in range(17)]
_TOKEN_SECONDS = [0.001 * 2**n for n in range(12)]
_RUN_TOKENS = [100.0 * 4**n for n in range(9)]
_RUN_COSTS = [0.0001 * 4**n for n in range(10)]
_TOKENS_HELP = (
    "Tokens; cached_input and cache_write are part of input, reasoning of output. "
    "Input + output is the bill."
)

_TOKEN_TYPES = {
    "input": "input_tokens",
    "output": "output_tokens",
    "cached_input": "cached_input_tokens",
    "cache_write": "cache_write_tokens",
    "reasoning": "reasoning_tokens",
}
"""Values of the label `type`, and the fields of usage that they count."""
_REASONS = ("price", "count", "incomplete")
"""Why a call has no known cost: no price is known, the provider gave no count, or a part of it has no price."""
_MAX_ROOTS = 50
"""Outermost components of other containers that have a label value of their own."""
_MAX_ANSWERED = 100
"""Names of models that answered that have a label value of their own."""
_CALL_STATUSES = ("ok", "failed", "cancelled")
_FELL_BACK = "fell_back"
_REJECTED = "rejected"
_PAUSED = "paused"
_CALLING_KINDS: tuple[Kind, ...] = ("agent", "conductor")
"""The kinds of components that call models and tools; the function steps of a workflow call tools only."""
DeliveryOutcome = Literal["delivered", "failed", "given_up"]
"""How a request to the webhook ended: a failed one is repeated."""


class Part(NamedTuple):
    """A component, and what it may call."""

    name: str
    kind: str
    models: tuple[str, ...] = ()
    tools: tuple[str, ...] = ()


Labels = tuple[str, str]
"""Name and kind of a component: the labels that every metric has."""


class Metrics:
    """The metrics of one service, in a registry of their own.

    Args:
        component: Name of the served component.
        kind: Its kind.
        version: Version of Podwright.
        digest: Digest of the served blueprint.
        components: The served component and all components inside it.
        models: Names of all models that runs may call.
        tools: Names of all tools that runs may call.
        routes: Paths of all routes.
        callers: Names of API keys that have a label value of their own.
        limits: The limits of each run.
        export: Where the metrics go besides; None if nowhere.
    """

    def __init__(
        self,
        component: str,
        kind: str,
        *,
        version: str = "",
        digest: str = "",
        components: Collection[Part] = (),
        models: Collection[str] = (),
        tools: Collection[str] = (),
        routes: Collection[str] = (),
        callers: Collection[str] = (),
        limits: RunLimits | None = None,
        export: OTLPMetrics | None = None,
    ) -> None:
        self._served = component, kind
        self._parts = tuple(components)
        self._components = frozenset(part.name for part in components)
        self._callers = frozenset(["", *callers])
        """Values of the label `caller`; others share the empty one."""
        self._known_roots = {component, INLINE}
        self._answered: set[tuple[str, str]] = set()
        self._export = export
        self._models = frozenset(models)
        self._tools = frozenset(tools)
        self._routes = frozenset(routes)
        self._folder = os.environ.get(metric_files.VARIABLE)
        self._are_series_lost = False
        self.registry = CollectorRegistry()
        if not self._folder:
            ProcessCollector(registry=self.registry)
        self._define_metrics()
        self._begin_series()
        self._component_info(*self._served, version, digest).set(1)
        limits = limits or RunLimits()
        for name, limit in limits.to_dict().items():
            series = self._runs_limit(*self._served, name)
            if limit is None:
                series.set(math.inf)
            else:
                series.set(limit)

    def _begin_series(self) -> None:
        """Export 0 before the first event: Prometheus cannot see an increase to the first value of a series."""
        self._begin_runs(self._served)
        self._run_duration(*self._served)
        for caller in self._callers:
            self._run_tokens(*self._served, caller)
            self._run_cost(*self._served, caller)
        self._runs_in_progress(*self._served).set(0)
        self._runs_waiting(*self._served).set(0)
        self._loops_exhausted(*self._served).inc(0)
        self._note_price_file()
        for outcome in get_args(SpanOutcome):
            self._spans(*self._served, outcome).inc(0)
        for outcome in get_args(DeliveryOutcome):
            self._deliveries(*self._served, outcome).inc(0)
        for part in self._parts:
            labels = (part.name, part.kind)
            self._begin_calls(labels, part.models, part.tools)
            for model in part.models:
                self._model_call_duration(*labels, model)
                self._first_token(*labels, model)
                self._time_per_output_token(*labels, model)
            for tool in part.tools:
                self._tool_call_duration(*labels, tool)
        self._begin_costs(self._served[0])

    def start(self) -> None:
        """Begin in a process; if several share their metrics, with the first value of all of them at once.

        Later there might be no room for them.
        """
        self._note_price_file()

    def count_spans(self, outcome: SpanOutcome, number: int) -> None:
        """Count spans that have ended, were exported, or could not be."""
        self._spans(*self._served, outcome).inc(number)

    def _note_price_file(self) -> None:
        self._price_file_valid(*self._served).set(price_file.is_valid())

    def _begin_costs(self, root: str) -> None:
        for part in self._parts:
            for model in part.models:
                self._begin_cost((part.name, part.kind), model, root)

    def _begin_cost(self, labels: Labels, model: str, root: str) -> None:
        for caller in self._callers:
            self._cost(*labels, model, root, caller).inc(0)
            for token_type in _TOKEN_TYPES:
                self._tokens(*labels, model, token_type, root, caller).inc(0)

    def begin_root(self, root: str) -> None:
        """Export 0 for what a component of another container may use here; called before its run.

        Args:
            root: Its name.
        """
        if not root or root in self._known_roots:
            return
        # the service's own component and inline blueprints are two further ones
        if len(self._known_roots) < _MAX_ROOTS + 2:
            self._known_roots.add(root)
            self._begin_costs(root)

    def begin_inline(
        self, models: Collection[str], tools: Collection[str]
    ) -> None:
        """Export 0 for what inline blueprints may use.

        Args:
            models: Names of the models that they may call.
            tools: Names of their tools.
        """
        for kind in get_args(Kind):
            self._begin_runs((INLINE, kind))
            self._runs_in_progress(INLINE, kind).set(0)
        for kind in _CALLING_KINDS:
            self._begin_calls((INLINE, kind), models, tools)
            for model in models:
                self._begin_cost((INLINE, kind), model, INLINE)
        self._begin_calls((INLINE, "workflow"), models=(), tools=tools)

    def _begin_runs(self, labels: Labels) -> None:
        for status in RUN_STATUSES:
            for caller in self._callers:
                self._runs(*labels, status, caller).inc(0)
        self._unpriced_runs(*labels).inc(0)
        for limit in _LIMITS:
            self._budget_stops(*labels, limit).inc(0)
        for code in CODES:
            self._run_failures(*labels, code).inc(0)

    def _begin_calls(
        self, labels: Labels, models: Collection[str], tools: Collection[str]
    ) -> None:
        for model in models:
            provider, _, _ = model.partition("/")
            for reason in _REASONS:
                self._unpriced(*labels, model, reason).inc(0)
            for reason in FINISH_REASONS:
                self._finish_reasons(*labels, model, reason).inc(0)
            for status in (*_CALL_STATUSES, _FELL_BACK):
                self._model_calls(*labels, model, provider, status).inc(0)
            for code in _MODEL_CODES:
                self._model_call_retries(*labels, model, code).inc(0)
                self._model_call_failures(*labels, model, code).inc(0)
        for tool in tools:
            for status in (*_CALL_STATUSES, _REJECTED, _PAUSED):
                self._tool_calls(*labels, tool, status).inc(0)

    def subscriber(self, *, inline: bool = False) -> events.Subscriber:
        """A subscriber that counts the runs of the served component, or those of inline blueprints."""

        def handle(event: events.Event) -> None:
            if event.remote is None:  # the remote service counts its own events
                self._count(event, self._labels(event, inline))

        return handle

    def track(self, admission: Admission) -> None:
        """Keep the metrics of waiting and rejected runs up to date with an admission queue."""
        counted: dict[str, int] = {}

        def update() -> None:
            self._runs_waiting(*self._served).set(admission.waiting)
            for reason, number in admission.rejected.items():
                more = number - counted.get(reason, 0)
                self._runs_rejected(*self._served, reason).inc(more)
                counted[reason] = number

        admission.on_change = update
        update()

    def observe_request(
        self, method: str, path: str, status: int, seconds: float
    ) -> None:
        """Count one HTTP request, and its duration in seconds."""
        route = _bounded(route_of(path), self._routes)
        known_method = _bounded(method, _METHODS)
        self._http_requests(
            *self._served, known_method, route, str(status)
        ).inc()
        self._http_request_duration(*self._served, route).observe(
            seconds, _exemplar()
        )

    def render(self, accept: str) -> tuple[bytes, str]:
        """All metrics, and their media type.

        Args:
            accept: The `Accept` header: the text format, or OpenMetrics, which has exemplars.
        """
        with suppress(ConfigurationError):
            pricing.refresh_operators_file()
        self._note_price_file()
        try:
            encode, media_type = choose_encoder(accept)
        except (TypeError, ValueError):  # an invalid version in the header
            encode, media_type = choose_encoder("")
        collector: Collector = self.registry
        if self._folder:
            collector = _AllProcesses(self._folder)
            if not metric_files.has_room(self._folder):
                self._log_lost_series(self._folder)
        if not media_type.startswith("application/openmetrics-text"):
            collector = _WithoutCreated(collector)
        return encode(collector), media_type

    def _define_metrics(self) -> None:
        self._define_run_metrics()
        self._define_cost_metrics()
        self._define_call_metrics()
        self._define_request_metrics()
        self._define_background_metrics()
        self._define_service_metrics()

    def _define_run_metrics(self) -> None:
        counter = self._counter
        gauge = self._gauge
        histogram = self._histogram
        self._runs = counter(
            "runs_total",
            "Finished outermost runs by status and caller.",
            "status",
            "caller",
        )
        self._run_duration = histogram(
            "run_duration_seconds", "Duration of outermost runs.", _RUN_SECONDS
        )
        self._runs_in_progress = gauge(
            "runs_in_progress",
            "Active outermost runs.",
            kind="up_down_counter",
        )
        self._runs_waiting = gauge(
            "runs_waiting", "Requests that wait for another run to finish."
        )
        self._runs_rejected = counter(
            "runs_rejected_total",
            "Requests rejected for lack of capacity.",
            "reason",
        )
        self._budget_stops = counter(
            "budget_stops_total", "Runs stopped by a limit.", "limit"
        )
        self._runs_limit = gauge(
            "runs_limit",
            "Limits of each run: USD, tokens, model calls, seconds.",
            "limit",
            mode="livemax",
        )
        self._run_failures = counter(
            "run_failures_total", "Failed outermost runs.", "code"
        )
        self._run_tokens = histogram(
            "run_tokens",
            "Tokens of outermost runs, nested runs included.",
            _RUN_TOKENS,
            "caller",
        )
        self._run_cost = histogram(
            "run_cost_usd",
            "Known cost in USD of outermost runs, nested and remote runs included.",
            _RUN_COSTS,
            "caller",
        )
        self._unpriced_runs = counter(
            "unpriced_runs_total",
            "Outermost runs of which the cost is not wholly known.",
        )
        self._loops_exhausted = counter(
            "loops_exhausted_total",
            "Loops of workflows that ended by max_iterations; their condition did not hold.",
        )

    def _define_cost_metrics(self) -> None:
        counter = self._counter
        self._tokens = counter(
            "tokens_total", _TOKENS_HELP, "model", "type", "root", "caller"
        )
        self._cost = counter(
            "cost_usd_total",
            "Known cost of model calls in USD.",
            "model",
            "root",
            "caller",
        )
        self._answered_cost = counter(
            "answered_cost_usd_total",
            "Known cost in USD by the model that answered, where its name differs from the one that was asked.",
            "model",
            "response_model",
            "caller",
        )
        self._unpriced = counter(
            "unpriced_model_calls_total",
            "Model calls of which the cost is not, or not wholly, known.",
            "model",
            "reason",
        )

    def _define_call_metrics(self) -> None:
        counter = self._counter
        histogram = self._histogram
        self._finish_reasons = counter(
            "model_call_finish_reasons_total",
            "Answers of models, by why they ended.",
            "model",
            "reason",
        )
        self._model_calls = counter(
            "model_calls_total",
            "Finished model calls.",
            "model",
            "provider",
            "status",
        )
        self._model_call_duration = histogram(
            "model_call_duration_seconds",
            "Duration of model calls, retries included.",
            _CALL_SECONDS,
            "model",
        )
        self._first_token = histogram(
            "time_to_first_token_seconds",
            "Time to the first token of streamed calls.",
            _CALL_SECONDS,
            "model",
        )
        self._model_call_retries = counter(
            "model_call_retries_total",
            "Attempts of model calls that failed and were repeated.",
            "model",
            "code",
        )
        self._model_call_failures = counter(
            "model_call_failures_total", "Failed model calls.", "model", "code"
        )
        self._time_per_output_token = histogram(
            "time_per_output_token_seconds",
            "Time per output token after the first one.",
            _TOKEN_SECONDS,
            "model",
        )
        self._tool_calls = counter(
            "tool_calls_total", "Finished tool calls.", "tool", "status"
        )
        self._tool_call_duration = histogram(
            "tool_call_duration_seconds",
            "Duration of tool calls.",
            _CALL_SECONDS,
            "tool",
        )

    def _define_request_metrics(self) -> None:
        counter = self._counter
        histogram = self._histogram
        self._http_requests = counter(
            "http_requests_total",
            "HTTP requests; 499 is a client that disconnected.",
            "method",
            "route",
            "status",
        )
        self._http_request_duration = histogram(
            "http_request_duration_seconds",
            "Duration of requests with their responses.",
            _CALL_SECONDS,
            "route",
        )

    def _define_background_metrics(self) -> None:
        counter = self._counter
        gauge = self._gauge
        self._background_runs = gauge(
            "background_runs",
            "Background runs in the database by status; the same in all pods.",
            "status",
            mode="livemax",
        )
        self._background_runs_unserved = gauge(
            "background_runs_unserved",
            "Those of them with a blueprint that no running service of the component has, by status.",
            "status",
            mode="livemax",
        )
        self._background_queue_age = gauge(
            "background_queue_age_seconds",
            "Age of the oldest queued background run.",
            mode="livemax",
        )
        self._background_database = gauge(
            "background_database_up",
            "Whether the database of background runs can be reached: 1 or 0.",
            mode="livemin",
        )
        self._background_attempts = counter(
            "background_attempts_total",
            "Attempts of background runs that ended, by outcome.",
            "outcome",
        )
        self._deliveries = counter(
            "webhook_deliveries_total",
            "Requests that notified the webhook of background runs, by outcome.",
            "outcome",
        )

    def _define_service_metrics(self) -> None:
        counter = self._counter
        gauge = self._gauge
        self._spans = counter(
            "spans_total",
            "Spans that ended, and those of them that were exported or could not be.",
            "outcome",
        )
        self._price_file_valid = gauge(
            "price_file_valid",
            "Whether the operator's price file is valid, or there is none: 1 or 0.",
            mode="livemin",
        )
        self._component_info = gauge(
            "component_info",
            "The served component; always 1.",
            "version",
            "blueprint_digest",
            mode="livemax",
        )

    def count_attempt(self, outcome: str) -> None:
        """Count an attempt of a background run that ended, with how."""
        self._background_attempts(*self._served, outcome).inc()

    def count_rejection(self, caller: str) -> None:
        """Count a background run that a person has ended while it waited.

        Args:
            caller: The name of the key that started it.
        """
        name = _bounded(caller, self._callers, "")
        self._runs(*self._served, _REJECTED, name).inc()

    def count_delivery(self, outcome: DeliveryOutcome) -> None:
        """Count a request to the webhook that ended, with how."""
        self._deliveries(*self._served, outcome).inc()

    def set_background_runs(
        self, counts: Mapping[str, tuple[int, float, int]] | None
    ) -> None:
        """Show how many background runs the database has, by status.

        Args:
            counts: Their number, the age of the oldest in seconds, and how many of them have a blueprint that no
                service has; None if the database cannot be reached.
        """
        self._background_database(*self._served).set(counts is not None)
        for status, (count, age, unserved) in (counts or {}).items():
            self._background_runs(*self._served, status).set(count)
            self._background_runs_unserved(*self._served, status).set(unserved)
            if status == "queued":
                self._background_queue_age(*self._served).set(age)

    def _counter(
        self, name: str, documentation: str, *labels: str
    ) -> Callable[..., Counter]:
        """A function from label values to their counter; cached, because a look-up takes longer than counting."""
        names = (*_COMMON_LABELS, *labels)
        counter = Counter(
            f"podwright_{name}", documentation, names, registry=self.registry
        )
        series = self._exported(
            counter,
            name.removesuffix("_total"),
            "counter",
            documentation=documentation,
            names=names,
        )
        return cache(series)

    def _gauge(
        self,
        name: str,
        documentation: str,
        *labels: str,
        mode: Literal["livesum", "livemax", "livemin"] = "livesum",
        kind: InstrumentKind = "gauge",
    ) -> Callable[..., Gauge]:
        names = (*_COMMON_LABELS, *labels)
        gauge = Gauge(
            f"podwright_{name}",
            documentation,
            names,
            registry=self.registry,
            multiprocess_mode=mode,
        )
        series = self._exported(
            gauge, name, kind, documentation=documentation, names=names
        )
        return cache(series)

    def _histogram(
        self, name: str, documentation: str, buckets: list[float], *labels: str
    ) -> Callable[..., Histogram]:
        names = (*_COMMON_LABELS, *labels)
        histogram = Histogram(
            f"podwright_{name}",
            documentation,
            names,
            registry=self.registry,
            buckets=buckets,
        )
        series = self._exported(
            histogram,
            name,
            "histogram",
            documentation=documentation,
            names=names,
            buckets=buckets,
        )
        return cache(series)

    def _exported(
        self,
        metric: Counter | Gauge | Histogram,
        name: str,
        kind: InstrumentKind,
        *,
        documentation: str,
        names: tuple[str, ...],
        buckets: Sequence[float] = (),
    ) -> Callable[..., Any]:
        """A function from label values to their series, which is exported as well if that is asked for."""
        series_of = partial(self._series, metric)
        export = self._export
        if export is None:
            return series_of
        instrument = f"podwright.{name.replace('_', '.')}"
        export.define(instrument, kind, documentation, buckets)

        def exported(*values: str) -> ExportedSeries:
            attributes = dict(zip(names, values, strict=True))
            record = export.series(instrument, attributes)
            return ExportedSeries(series_of(*values), record)

        return exported

    def _series(
        self, metric: Counter | Gauge | Histogram, *values: str
    ) -> Counter | Gauge | Histogram | _LostSeries:
        """The series with these label values; without room for it, one that is lost as long as this process runs."""
        folder = os.environ.get(metric_files.VARIABLE)
        if not self._folder or not folder or metric_files.has_room(folder):
            return metric.labels(*values)
        self._log_lost_series(folder)
        return _LostSeries()

    def _log_lost_series(self, folder: str) -> None:
        """Log once that a folder takes no new series."""
        if self._are_series_lost:
            return
        self._are_series_lost = True
        _log.error(
            "The folder of metrics, %s, is full or cannot be used: new series are lost.",
            folder,
        )

    def _labels(self, event: events.Event, inline: bool) -> Labels:
        if inline:
            return INLINE, event.kind
        if event.component in self._components:
            return event.component, event.kind
        return self._served

    def _root(self) -> str:
        root = current_origin.get().root or self._served[0]
        return _bounded(root, self._known_roots, OTHER)

    def _caller(self) -> str:
        caller = current_origin.get().caller
        return _bounded(caller, self._callers, "")

    def _count(self, event: events.Event, labels: Labels) -> None:
        if self._export is not None:
            model = getattr(event, "model", "")
            if model:
                model = _bounded(model, self._models)
            self._export.count(event, model)
        match event:
            case events.RunStarted(parent_id=None):
                self.begin_root(current_origin.get().root)
                self._runs_in_progress(*labels).inc()
            case events.RunEnded(parent_id=None):
                self._count_run(event, labels)
            case events.ModelCallFinished() | events.ModelCallFailed():
                self._count_model_call(event, labels)
            case events.ModelCallRetried():
                model = _bounded(event.model, self._models)
                self._model_call_retries(
                    *labels, model, _code(event.error)
                ).inc()
            case events.ModelCallFellBack():
                model = _bounded(event.model, self._models)
                provider, _, _ = model.partition("/")
                self._model_calls(*labels, model, provider, _FELL_BACK).inc()
            case events.ToolCallFinished() | events.ToolCallFailed():
                tool = _bounded(event.tool, self._tools)
                self._tool_calls(*labels, tool, _status(event)).inc()
                seconds = event.duration_ms / 1000
                self._tool_call_duration(*labels, tool).observe(
                    seconds, _exemplar()
                )
            case events.LoopExhausted():
                self._loops_exhausted(*labels).inc()
            case _:
                pass

    def _count_run(self, event: events.RunEnded, labels: Labels) -> None:
        self._note_price_file()
        self._runs_in_progress(*labels).dec()
        caller = self._caller()
        self._runs(*labels, run_status(event), caller).inc()
        self._run_duration(*labels).observe(
            event.duration_ms / 1000, _exemplar()
        )
        self._run_tokens(*labels, caller).observe(event.usage.total_tokens)
        self._run_cost(*labels, caller).observe(event.usage.known_cost)
        if event.usage.cost is None:
            self._unpriced_runs(*labels).inc()
        if not isinstance(event, events.RunFailed) or event.is_rejection:
            return
        self._run_failures(*labels, _code(event.error)).inc()
        limit = event.error.get("limit")
        if limit:
            self._budget_stops(*labels, _bounded(limit, _LIMITS)).inc()

    def _count_model_call(
        self,
        event: events.ModelCallFinished | events.ModelCallFailed,
        labels: Labels,
    ) -> None:
        model = _bounded(event.model, self._models)
        provider, _, name = model.partition("/")
        self._model_calls(*labels, model, provider, _status(event)).inc()
        seconds = event.duration_ms / 1000
        # a function may report a call without it
        if seconds > 0:
            self._model_call_duration(*labels, model).observe(
                seconds, _exemplar()
            )
        if isinstance(event, events.ModelCallFailed):
            self._count_failed_usage(event.usage, labels)
            self._model_call_failures(*labels, model, _code(event.error)).inc()
            return
        self._count_failed_usage(event.failed_usage, labels)
        response = event.response
        finish_reason = _bounded(response.finish_reason, FINISH_REASONS)
        self._finish_reasons(*labels, model, finish_reason).inc()
        self._count_usage(response.usage, labels, model)
        if response.usage.known_cost and response.model not in ("", name):
            self._count_answered(labels, model, response)
        self._observe_pace(event, labels, model)

    def _observe_pace(
        self, event: events.ModelCallFinished, labels: Labels, model: str
    ) -> None:
        """Observe how soon and how fast a streamed answer came."""
        if event.first_token_ms is None:
            return
        seconds = event.first_token_ms / 1000
        self._first_token(*labels, model).observe(seconds, _exemplar())
        further_tokens = event.response.usage.output_tokens - 1
        if further_tokens > 0:
            seconds = (event.duration_ms - event.first_token_ms) / 1000
            pace = max(0.0, seconds) / further_tokens
            self._time_per_output_token(*labels, model).observe(pace)

    def _count_failed_usage(self, failed: Usage, labels: Labels) -> None:
        """Count what attempts used that failed, by their models."""
        for name, usage in failed.by_model.items():
            self._count_usage(usage, labels, _bounded(name, self._models))

    def _count_usage(self, usage: Usage, labels: Labels, model: str) -> None:
        root = self._root()
        caller = self._caller()
        for token_type, field in _TOKEN_TYPES.items():
            tokens = getattr(usage, field)
            if tokens:
                self._tokens(*labels, model, token_type, root, caller).inc(
                    tokens
                )
        self._cost(*labels, model, root, caller).inc(usage.known_cost)
        if usage.cost is None:
            uncounted = usage.uncounted_model_calls
            incomplete = usage.incomplete_model_calls
            unpriced = (
                max(1, usage.unpriced_model_calls) - uncounted - incomplete
            )
            calls_by_reason = zip(
                _REASONS, (unpriced, uncounted, incomplete), strict=True
            )
            for reason, calls in calls_by_reason:
                if calls > 0:
                    self._unpriced(*labels, model, reason).inc(calls)

    def _count_answered(
        self, labels: Labels, model: str, response: ModelResponse
    ) -> None:
        """Count the cost of a model that a router chose, or that has a more exact name."""
        pair = (model, response.model)
        if pair not in self._answered and len(self._answered) >= _MAX_ANSWERED:
            pair = (model, OTHER)
        self._answered.add(pair)
        self._answered_cost(*labels, *pair, self._caller()).inc(
            response.usage.known_cost
        )


class ExportedSeries:
    """A series of a metric that is also recorded for OTLP.

    Args:
        series: The series in Prometheus' registry.
        record: Records a value.
    """

    def __init__(self, series: Any, record: Record) -> None:
        self._series = series
        self._record = record

    def inc(self, amount: float = 1) -> None:
        """Count up."""
        self._series.inc(amount)
        self._record(amount)

    def dec(self, amount: float = 1) -> None:
        """Count down."""
        self._series.dec(amount)
        self._record(-amount)

    def set(self, value: float) -> None:
        """Set a gauge."""
        self._series.set(value)
        self._record(float(value))

    def observe(
        self, value: float, exemplar: dict[str, str] | None = None
    ) -> None:
        """Observe a value of a histogram."""
        self._series.observe(value, exemplar)
        self._record(value)


class _LostSeries:
    """A series that keeps nothing, because there is no room for its values."""

    def inc(self, amount: float = 1) -> None:
        """Do nothing, as all methods."""

    def dec(self, amount: float = 1) -> None:
        """Do nothing."""

    def set(self, value: float) -> None:
        """Do nothing."""

    def observe(
        self, value: float, exemplar: dict[str, str] | None = None
    ) -> None:
        """Do nothing."""


class _AllProcesses(Collector):
    """The metrics of all processes that have shared a folder; none once it is gone."""

    def __init__(self, folder: str) -> None:
        self._folder = folder

    def collect(self) -> Iterator[Metric]:
        folder = Path(self._folder)
        if not folder.is_dir():
            return
        collector: Any = MultiProcessCollector  # has no types
        with metric_files.reading(folder) as files:
            yield from collector.merge(files)


class _WithoutCreated(Collector):
    """Metrics without the times at which their series began, which the text format has as further series."""

    def __init__(self, collector: Collector) -> None:
        self._collector = collector

    def collect(self) -> Iterator[Metric]:
        for metric in self._collector.collect():
            if metric.name.endswith("_created"):
                continue
            metric.samples = [
                sample
                for sample in metric.samples
                if not sample.name.endswith("_created")
            ]
            yield metric


_MODEL_CODES = frozenset(codes_of(ModelError))
"""Those of models."""


def _code(error: Mapping[str, Any]) -> str:
    return _bounded(str(error.get("code")), CODES)


def _bounded(value: str, known: Collection[str], other: str = UNKNOWN) -> str:
    if value in known:
        return value
    return other


def _exemplar() -> dict[str, str] | None:
    """The id of the current trace, if it is sampled."""
    context = get_current_span().get_span_context()
    if context.trace_flags.sampled:
        return {"trace_id": f"{context.trace_id:032x}"}
    return None


def _status(
    event: events.ModelCallFinished
    | events.ModelCallFailed
    | events.ToolCallFinished
    | events.ToolCallFailed,
) -> str:
    if isinstance(event, events.ModelCallFinished | events.ToolCallFinished):
        return "ok"
    if event.error.get("code") == "run_cancelled":
        return "cancelled"
    if events.is_rejection(event.error):
        return _REJECTED
    if events.is_pause(event.error):
        return _PAUSED
    return "failed"
