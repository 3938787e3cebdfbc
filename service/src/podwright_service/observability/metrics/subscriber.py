"""The subscriber that counts runs, model calls, tool calls, tokens and cost; and what else the service counts.

Only outermost runs are counted as runs, so their number is that of the responses. Model calls and tool calls are
counted once each, in the component that makes them. Every label is bounded: names that the service does not know share
one value.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from contextlib import suppress
from functools import partial
from itertools import product
from typing import TYPE_CHECKING, Any, NamedTuple, get_args

from podwright import events
from podwright.data.finish_reasons import FINISH_REASONS
from podwright.errors import CODES, ConfigurationError
from podwright.kinds import TRAITS, Kind
from podwright.messages.messages import ModelResponse
from podwright.messages.usage import RunLimits, Usage
from podwright.models.prices import price_file, pricing
from podwright_service.http.paths import route_of
from podwright_service.observability.metrics import table
from podwright_service.observability.metrics.conventions import (
    ConventionMetrics,
)
from podwright_service.observability.metrics.otlp import OTLPMetrics
from podwright_service.observability.metrics.series import SeriesStore
from podwright_service.observability.semconv import SpanOutcome, run_status
from podwright_service.origin import INLINE, current_origin

if TYPE_CHECKING:
    from podwright.mcp.server import Exchange
    from podwright_service.http.access.admission import Admission

UNKNOWN = "(unknown)"
"""The label value of models, tools, routes and limits that the service does not know."""

OTHER = "(other)"
"""The label value of those beyond a maximum."""

_METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS")
_MAX_ROOTS = 50
"""Outermost components of other containers that have a label value of their own."""
_MAX_ANSWERED = 100
"""Names of models that answered that have a label value of their own."""


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
        servers: Names of the MCP servers.
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
        servers: Collection[str] = (),
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
        self._models = frozenset(models)
        self._tools = frozenset(tools)
        self._routes = frozenset(routes)
        self._servers = frozenset(servers)
        self._store = SeriesStore(export)
        self.registry = self._store.registry
        """Prometheus' registry."""
        self._record = self._store.record
        self._conventions = ConventionMetrics(self._store)
        self._begin_series()
        self._record(table.COMPONENT_INFO, 1, *self._served, version, digest)
        limits = limits or RunLimits()
        for name, limit in limits.to_dict().items():
            value = math.inf if limit is None else limit
            self._record(table.RUNS_LIMIT, value, *self._served, name)

    def start(self) -> None:
        """Begin in a process; if several share their metrics, with the first value of all of them at once.

        Later there might be no room for them.
        """
        self._note_price_file()

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
            self._begin("runs", (INLINE, kind), caller=self._callers)
        for kind in (kind for kind, traits in TRAITS.items() if traits.chats):
            self._begin_calls((INLINE, kind), models, tools)
            self._begin_cost((INLINE, kind), models, INLINE)
        self._begin_calls((INLINE, "workflow"), models=(), tools=tools)

    def _begin_series(self) -> None:
        self._begin("service", self._served)
        self._begin("runs", self._served, caller=self._callers)
        self._note_price_file()
        for part in self._parts:
            self._begin_calls((part.name, part.kind), part.models, part.tools)
        self._begin_costs(self._served[0])
        self._begin("servers", self._served, server=self._servers)

    def _begin_calls(
        self, labels: Labels, models: Collection[str], tools: Collection[str]
    ) -> None:
        for model in models:
            provider, _, _ = model.partition("/")
            self._begin("calls", labels, model=[model], provider=[provider])
        self._begin("calls", labels, tool=tools)

    def _begin_costs(self, root: str) -> None:
        for part in self._parts:
            self._begin_cost((part.name, part.kind), part.models, root)

    def _begin_cost(
        self, labels: Labels, models: Collection[str], root: str
    ) -> None:
        callers = self._callers
        self._begin("costs", labels, model=models, root=[root], caller=callers)

    def _begin(
        self, begin: table.Begin, labels: Labels, **values: Collection[str]
    ) -> None:
        """Begin the series of the rows that begin together.

        Args:
            begin: When they do.
            labels: Those of their component.
            **values: The values of further labels. Rows with others are left out.
        """
        for metric in table.TABLE:
            if metric.begin != begin:
                continue
            if metric.kind == "histogram" and labels[0] == INLINE:
                continue
            known = {**values, **metric.values}
            names = metric.labels[len(labels) :]
            if known.keys() >= set(names):
                for further in product(*(known[name] for name in names)):
                    self._store.begin(metric, *labels, *further)

    def subscriber(self, *, inline: bool = False) -> events.Subscriber:
        """A subscriber that counts the runs of the served component, or those of inline blueprints."""
        return partial(self._count, inline)

    def track(self, admission: Admission) -> None:
        """Keep the metrics of waiting and rejected runs up to date with an admission queue."""
        counted: dict[str, int] = {}

        def update() -> None:
            self._record(table.RUNS_WAITING, admission.waiting, *self._served)
            for reason, number in admission.rejected.items():
                more = number - counted.get(reason, 0)
                self._record(table.RUNS_REJECTED, more, *self._served, reason)
                counted[reason] = number

        admission.on_change = update
        update()

    def observe_request(
        self, method: str, path: str, status: int, seconds: float
    ) -> None:
        """Count one HTTP request, and its duration in seconds."""
        route = _bounded(route_of(path), self._routes)
        known_method = _bounded(method, _METHODS)
        self._record(
            table.HTTP_REQUESTS,
            1,
            *self._served,
            known_method,
            route,
            str(status),
        )
        self._record(table.HTTP_REQUEST_DURATION, seconds, *self._served, route)

    def observe_exchange(self, exchange: Exchange, *, is_up: bool) -> None:
        """Count an exchange with an MCP server.

        Args:
            exchange: The exchange.
            is_up: Whether the server answers.
        """
        server = _bounded(exchange.server_name, self._servers)
        method = _bounded(exchange.method, table.MCP_METHODS)
        labels = (*self._served, server)
        seconds = exchange.seconds
        reason = ""
        if exchange.error_reason is not None:
            reason = _bounded(exchange.error_reason, table.MCP_REASONS)
            self._record(table.MCP_EXCHANGE_FAILURES, 1, *labels, reason)
        self._record(table.MCP_EXCHANGE_DURATION, seconds, *labels, method)
        self._record(table.MCP_SERVER_UP, float(is_up), *labels)
        if self._store.has_conventions:
            self._conventions.observe_exchange(exchange, method, reason)

    def render(self, accept: str) -> tuple[bytes, str]:
        """All metrics, and their media type.

        Args:
            accept: The `Accept` header: the text format, or OpenMetrics, which has exemplars.
        """
        with suppress(ConfigurationError):
            pricing.refresh_operators_file()
        self._note_price_file()
        return self._store.render(accept)

    def count_spans(self, outcome: SpanOutcome, number: int) -> None:
        """Count spans that have ended, were exported, or could not be."""
        self._record(table.SPANS, number, *self._served, outcome)

    def count_attempt(self, outcome: str) -> None:
        """Count an attempt of a background run that ended, with how."""
        self._record(table.BACKGROUND_ATTEMPTS, 1, *self._served, outcome)

    def count_turn(self, outcome: str) -> None:
        """Count a turn of a kept conversation that ended or paused, with how."""
        self._record(table.CONVERSATION_TURNS, 1, *self._served, outcome)

    def count_rejection(self, caller: str) -> None:
        """Count a background run that a person has ended while it waited.

        Args:
            caller: The name of the key that started it.
        """
        name = _bounded(caller, self._callers, "")
        self._record(table.RUNS, 1, *self._served, "rejected", name)

    def count_delivery(self, outcome: table.DeliveryOutcome) -> None:
        """Count a request to the webhook that ended, with how."""
        self._record(table.DELIVERIES, 1, *self._served, outcome)

    def set_background_runs(
        self, counts: Mapping[str, tuple[int, float, int]] | None
    ) -> None:
        """Show how many background runs the database has, by status.

        Args:
            counts: Their number, the age of the oldest in seconds, and how many of them have a blueprint that no
                service has; None if the database cannot be reached.
        """
        is_up = float(counts is not None)
        self._record(table.BACKGROUND_DATABASE, is_up, *self._served)
        for status, (count, age, unserved) in (counts or {}).items():
            labels = (*self._served, status)
            self._record(table.BACKGROUND_RUNS, count, *labels)
            self._record(table.BACKGROUND_RUNS_UNSERVED, unserved, *labels)
            if status == "queued":
                self._record(table.BACKGROUND_QUEUE_AGE, age, *self._served)

    def _note_price_file(self) -> None:
        value = float(price_file.is_valid())
        self._record(table.PRICE_FILE_VALID, value, *self._served)

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

    def _count(self, inline: bool, event: events.Event) -> None:
        if event.remote is not None:
            return  # the remote service counts its own events
        labels = self._labels(event, inline)
        match event:
            case events.RunStarted(parent_id=None):
                self.begin_root(current_origin.get().root)
                self._record(table.RUNS_IN_PROGRESS, 1, *labels)
            case events.RunEnded():
                self._count_run(event, labels)
            case events.ModelCallFinished() | events.ModelCallFailed():
                self._count_model_call(event, labels)
            case events.ModelCallRetried():
                model = _bounded(event.model, self._models)
                code = _code(event.error)
                self._record(table.MODEL_CALL_RETRIES, 1, *labels, model, code)
            case events.ModelCallFellBack():
                self._count_call_status(event.model, "fell_back", labels)
            case events.ToolCallFinished() | events.ToolCallFailed():
                self._count_tool_call(event, labels)
            case events.LoopExhausted():
                self._record(table.LOOPS_EXHAUSTED, 1, *labels)
            case events.ModelCallStarted() if self._store.has_conventions:
                self._conventions.begin_model_call(event)
            case events.Token() if self._store.has_conventions:
                self._conventions.note_chunk(event)
            case _:
                pass

    def _count_run(self, event: events.RunEnded, labels: Labels) -> None:
        if self._store.has_conventions:
            self._conventions.count_run(event, labels[0])
        if event.parent_id is not None:
            return
        self._note_price_file()
        caller = self._caller()
        usage = event.usage
        self._record(table.RUNS_IN_PROGRESS, -1, *labels)
        self._record(table.RUNS, 1, *labels, run_status(event), caller)
        self._record(table.RUN_DURATION, event.duration_ms / 1000, *labels)
        self._record(table.RUN_TOKENS, usage.total_tokens, *labels, caller)
        self._record(table.RUN_COST, usage.known_cost, *labels, caller)
        if usage.cost is None:
            self._record(table.UNPRICED_RUNS, 1, *labels)
        is_failure = run_status(event) == "failed"
        if not isinstance(event, events.RunFailed) or not is_failure:
            return
        self._record(table.RUN_FAILURES, 1, *labels, _code(event.error))
        limit = event.error.get("limit")
        if limit:
            known_limit = _bounded(limit, table.LIMITS)
            self._record(table.BUDGET_STOPS, 1, *labels, known_limit)

    def _count_tool_call(
        self,
        event: events.ToolCallFinished | events.ToolCallFailed,
        labels: Labels,
    ) -> None:
        tool = _bounded(event.tool, self._tools)
        seconds = event.duration_ms / 1000
        self._record(table.TOOL_CALLS, 1, *labels, tool, _status(event))
        self._record(table.TOOL_CALL_DURATION, seconds, *labels, tool)
        if self._store.has_conventions:
            self._conventions.count_tool_call(event, tool)

    def _count_model_call(
        self,
        event: events.ModelCallFinished | events.ModelCallFailed,
        labels: Labels,
    ) -> None:
        model = _bounded(event.model, self._models)
        self._count_call_status(event.model, _status(event), labels)
        # a function may report a call without it
        if event.duration_ms > 0:
            seconds = event.duration_ms / 1000
            self._record(table.MODEL_CALL_DURATION, seconds, *labels, model)
        if self._store.has_conventions:
            self._conventions.count_model_call(event, model)
        if isinstance(event, events.ModelCallFailed):
            self._count_failed_usage(event.usage, labels)
            code = _code(event.error)
            self._record(table.MODEL_CALL_FAILURES, 1, *labels, model, code)
            return
        self._count_failed_usage(event.failed_usage, labels)
        response = event.response
        reason = _bounded(response.finish_reason, FINISH_REASONS)
        self._record(table.FINISH_REASON, 1, *labels, model, reason)
        self._count_usage(response.usage, labels, model)
        self._count_answered(labels, model, response)
        self._observe_pace(event, labels, model)

    def _count_call_status(
        self, name: str, status: str, labels: Labels
    ) -> None:
        model = _bounded(name, self._models)
        provider, _, _ = model.partition("/")
        self._record(table.MODEL_CALLS, 1, *labels, model, provider, status)

    def _observe_pace(
        self, event: events.ModelCallFinished, labels: Labels, model: str
    ) -> None:
        """Observe how soon and how fast a streamed answer came."""
        if event.first_token_ms is None:
            return
        seconds = event.first_token_ms / 1000
        self._record(table.FIRST_TOKEN, seconds, *labels, model)
        further_tokens = event.response.usage.output_tokens - 1
        if further_tokens > 0:
            seconds = (event.duration_ms - event.first_token_ms) / 1000
            pace = max(0.0, seconds) / further_tokens
            self._record(table.TIME_PER_OUTPUT_TOKEN, pace, *labels, model)

    def _count_failed_usage(self, failed: Usage, labels: Labels) -> None:
        """Count what attempts used that failed, by their models."""
        for name, usage in failed.by_model.items():
            self._count_usage(usage, labels, _bounded(name, self._models))

    def _count_usage(self, usage: Usage, labels: Labels, model: str) -> None:
        if self._store.has_conventions:
            self._conventions.count_usage(usage, model)
        root = self._root()
        caller = self._caller()
        for token_type, field in table.TOKEN_TYPES.items():
            tokens = getattr(usage, field)
            if tokens:
                further = (model, token_type, root, caller)
                self._record(table.TOKENS, tokens, *labels, *further)
        cost = usage.known_cost
        self._record(table.COST, cost, *labels, model, root, caller)
        if usage.cost is None:
            uncounted = usage.uncounted_model_calls
            incomplete = usage.incomplete_model_calls
            unpriced = (
                max(1, usage.unpriced_model_calls) - uncounted - incomplete
            )
            calls_by_reason = zip(
                table.UNPRICED_REASONS,
                (unpriced, uncounted, incomplete),
                strict=True,
            )
            for reason, calls in calls_by_reason:
                if calls > 0:
                    further = (model, reason)
                    self._record(
                        table.UNPRICED_MODEL_CALLS, calls, *labels, *further
                    )

    def _count_answered(
        self, labels: Labels, model: str, response: ModelResponse
    ) -> None:
        """Count the cost of a model that a router chose, or that has a more exact name."""
        _, _, name = model.partition("/")
        cost = response.usage.known_cost
        if not cost or response.model in ("", name):
            return
        pair = (model, response.model)
        if pair not in self._answered and len(self._answered) >= _MAX_ANSWERED:
            pair = (model, OTHER)
        self._answered.add(pair)
        caller = self._caller()
        self._record(table.ANSWERED_COST, cost, *labels, *pair, caller)


def _code(error: Mapping[str, Any]) -> str:
    return _bounded(str(error.get("code")), CODES)


def _bounded(value: str, known: Collection[str], other: str = UNKNOWN) -> str:
    if value in known:
        return value
    return other


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
        return "rejected"
    if events.is_refusal(event.error):
        return "refused"
    if events.is_pause(event.error):
        return "paused"
    return "failed"
