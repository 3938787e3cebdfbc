"""The table of metrics. A new metric is a row here, and its value in `subscriber.py`.

The rows of `podwright_*` are in Prometheus and in OTLP, the rows of the GenAI conventions in OTLP only.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

from podwright.data.finish_reasons import FINISH_REASONS
from podwright.errors import CODES, ModelError, codes_of
from podwright_service.observability import semconv

MetricKind = Literal["counter", "gauge", "up_down_counter", "histogram"]
Begin = Literal["service", "runs", "calls", "costs", "servers"]
"""When the series of a metric begin, with 0: Prometheus cannot see an increase to the first value of a series.

With the service; for each kind of component whose runs are counted; for each model or tool that a component may call;
for each of its models by outermost component and caller; and for each MCP server. Inline blueprints have theirs too,
but for histograms.
"""
DeliveryOutcome = Literal["delivered", "failed", "given_up"]
"""How a request to the webhook ended: a failed one is repeated."""

TOKEN_TYPES: Mapping[str, str] = {
    "input": "input_tokens",
    "output": "output_tokens",
    "cached_input": "cached_input_tokens",
    "cache_write": "cache_write_tokens",
    "reasoning": "reasoning_tokens",
}
"""Values of the label `type`, and the fields of usage that they count."""
UNPRICED_REASONS = ("price", "count", "incomplete")
"""Why a call has no known cost: no price is known, the provider gave no count, or a part of it has no price."""
MCP_METHODS = ("tools/call", "tools/list")
"""Requests to MCP servers that have a label value of their own."""
MCP_REASONS = (
    "input_refused",
    "protocol",
    "redirect",
    "refused",
    "timeout",
    "too_large",
    "unreachable",
)
"""Why an exchange with an MCP server failed: those of `podwright.mcp.results.Reason` that are not about one tool."""
LIMITS = ("wall_time", "model_calls", "tokens", "cost", "steps", "text")
_CALL_STATUSES = ("ok", "failed", "cancelled")
_MODEL_CODES = tuple(codes_of(ModelError))

_RUN_SECONDS = [0.16 * 2**n for n in range(13)]
_CALL_SECONDS = [0.01 * 2**n for n in range(17)]
_TOKEN_SECONDS = [0.001 * 2**n for n in range(12)]
_RUN_TOKENS = [100.0 * 4**n for n in range(9)]
_RUN_COSTS = [0.0001 * 4**n for n in range(10)]


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Metric:
    """A row of the table.

    Args:
        name: Its name in Prometheus, or that of the GenAI conventions.
        kind: What its values are; an `up_down_counter` is a gauge in Prometheus.
        help: What it measures.
        labels: Names of its labels.
        buckets: The upper bounds of a histogram.
        unit: Its unit in OTLP, if the name does not have it.
        multiprocess_mode: Which value of several processes a gauge shows.
        has_exemplars: Whether OpenMetrics has the trace of a value.
        begin: When its series begin; by default with their first value.
        values: The values of its labels at the beginning, of those that do not depend on the component.
    """

    name: str
    kind: MetricKind
    help: str
    labels: tuple[str, ...]
    buckets: Sequence[float] = ()
    unit: str = ""
    multiprocess_mode: Literal[
        "livesum", "livemax", "livemin", "livemostrecent"
    ] = "livesum"
    has_exemplars: bool = False
    begin: Begin | None = None
    values: Mapping[str, Sequence[str]] = field(
        default_factory=dict[str, "Sequence[str]"]
    )

    @property
    def is_convention(self) -> bool:
        """Whether it is one of the GenAI conventions, which those of MCP are a part of."""
        return self.name.startswith(("gen_ai.", "mcp."))

    @property
    def instrument(self) -> str:
        """Its name in OTLP."""
        if self.is_convention:
            return self.name
        name = self.name
        if self.kind == "counter":
            name = name.removesuffix("_total")
        return name.replace("_", ".")


def _row(
    name: str, kind: MetricKind, text: str, *labels: str, **options: Any
) -> Metric:
    """Make a row with the labels that all metrics of a component have."""
    return Metric(
        name=f"podwright_{name}",
        kind=kind,
        help=text,
        labels=("component", "kind", *labels),
        **options,
    )


# --- Runs

RUNS = _row(
    "runs_total",
    "counter",
    "Finished outermost runs by status and caller.",
    "status",
    "caller",
    begin="runs",
    values={"status": semconv.RUN_STATUSES},
)
RUN_DURATION = _row(
    "run_duration_seconds",
    "histogram",
    "Duration of outermost runs.",
    buckets=_RUN_SECONDS,
    has_exemplars=True,
    begin="runs",
)
RUNS_IN_PROGRESS = _row(
    "runs_in_progress",
    "up_down_counter",
    "Active outermost runs.",
    begin="runs",
)
RUNS_WAITING = _row(
    "runs_waiting",
    "gauge",
    "Requests that wait for another run to finish.",
    begin="service",
)
RUNS_REJECTED = _row(
    "runs_rejected_total",
    "counter",
    "Requests rejected for lack of capacity.",
    "reason",
)
BUDGET_STOPS = _row(
    "budget_stops_total",
    "counter",
    "Runs stopped by a limit.",
    "limit",
    begin="runs",
    values={"limit": LIMITS},
)
RUNS_LIMIT = _row(
    "runs_limit",
    "gauge",
    "Limits of each run: USD, tokens, model calls, seconds.",
    "limit",
    multiprocess_mode="livemax",
)
RUN_FAILURES = _row(
    "run_failures_total",
    "counter",
    "Failed outermost runs.",
    "code",
    begin="runs",
    values={"code": tuple(CODES)},
)
RUN_TOKENS = _row(
    "run_tokens",
    "histogram",
    "Tokens of outermost runs, nested runs included.",
    "caller",
    buckets=_RUN_TOKENS,
    begin="runs",
)
RUN_COST = _row(
    "run_cost_usd",
    "histogram",
    "Known cost in USD of outermost runs, nested and remote runs included.",
    "caller",
    buckets=_RUN_COSTS,
    begin="runs",
)
UNPRICED_RUNS = _row(
    "unpriced_runs_total",
    "counter",
    "Outermost runs of which the cost is not wholly known.",
    begin="runs",
)
LOOPS_EXHAUSTED = _row(
    "loops_exhausted_total",
    "counter",
    "Loops of workflows that ended by max_iterations; their condition did not hold.",
    begin="service",
)

# --- Tokens and cost

TOKENS = _row(
    "tokens_total",
    "counter",
    "Tokens; cached_input and cache_write are part of input, reasoning of output. "
    "Input + output is the bill.",
    "model",
    "type",
    "root",
    "caller",
    begin="costs",
    values={"type": tuple(TOKEN_TYPES)},
)
COST = _row(
    "cost_usd_total",
    "counter",
    "Known cost of model calls in USD.",
    "model",
    "root",
    "caller",
    begin="costs",
)
ANSWERED_COST = _row(
    "answered_cost_usd_total",
    "counter",
    "Known cost in USD by the model that answered, where its name differs from the one that was asked.",
    "model",
    "response_model",
    "caller",
)
UNPRICED_MODEL_CALLS = _row(
    "unpriced_model_calls_total",
    "counter",
    "Model calls of which the cost is not, or not wholly, known.",
    "model",
    "reason",
    begin="calls",
    values={"reason": UNPRICED_REASONS},
)

# --- Model calls and tool calls

FINISH_REASON = _row(
    "model_call_finish_reasons_total",
    "counter",
    "Answers of models, by why they ended.",
    "model",
    "reason",
    begin="calls",
    values={"reason": FINISH_REASONS},
)
MODEL_CALLS = _row(
    "model_calls_total",
    "counter",
    "Finished model calls.",
    "model",
    "provider",
    "status",
    begin="calls",
    values={"status": (*_CALL_STATUSES, "fell_back")},
)
MODEL_CALL_DURATION = _row(
    "model_call_duration_seconds",
    "histogram",
    "Duration of model calls, retries included.",
    "model",
    buckets=_CALL_SECONDS,
    has_exemplars=True,
    begin="calls",
)
FIRST_TOKEN = _row(
    "time_to_first_token_seconds",
    "histogram",
    "Time to the first token of streamed calls.",
    "model",
    buckets=_CALL_SECONDS,
    has_exemplars=True,
    begin="calls",
)
MODEL_CALL_RETRIES = _row(
    "model_call_retries_total",
    "counter",
    "Attempts of model calls that failed and were repeated.",
    "model",
    "code",
    begin="calls",
    values={"code": _MODEL_CODES},
)
MODEL_CALL_FAILURES = _row(
    "model_call_failures_total",
    "counter",
    "Failed model calls.",
    "model",
    "code",
    begin="calls",
    values={"code": _MODEL_CODES},
)
TIME_PER_OUTPUT_TOKEN = _row(
    "time_per_output_token_seconds",
    "histogram",
    "Time per output token after the first one.",
    "model",
    buckets=_TOKEN_SECONDS,
    begin="calls",
)
TOOL_CALLS = _row(
    "tool_calls_total",
    "counter",
    "Finished tool calls.",
    "tool",
    "status",
    begin="calls",
    values={"status": (*_CALL_STATUSES, "rejected", "refused", "paused")},
)
TOOL_CALL_DURATION = _row(
    "tool_call_duration_seconds",
    "histogram",
    "Duration of tool calls.",
    "tool",
    buckets=_CALL_SECONDS,
    has_exemplars=True,
    begin="calls",
)

# --- MCP servers

MCP_SERVER_UP = _row(
    "mcp_server_up",
    "gauge",
    "Whether an MCP server answered when it was called last: 1 or 0.",
    "server",
    multiprocess_mode="livemostrecent",
)
MCP_EXCHANGE_DURATION = _row(
    "mcp_exchange_duration_seconds",
    "histogram",
    "Duration of exchanges with MCP servers, by method.",
    "server",
    "method",
    buckets=_CALL_SECONDS,
    has_exemplars=True,
    begin="servers",
    values={"method": MCP_METHODS},
)
MCP_EXCHANGE_FAILURES = _row(
    "mcp_exchange_failures_total",
    "counter",
    "Failed exchanges with MCP servers.",
    "server",
    "reason",
    begin="servers",
    values={"reason": MCP_REASONS},
)

# --- Requests

HTTP_REQUESTS = _row(
    "http_requests_total",
    "counter",
    "HTTP requests; 499 is a client that disconnected.",
    "method",
    "route",
    "status",
)
HTTP_REQUEST_DURATION = _row(
    "http_request_duration_seconds",
    "histogram",
    "Duration of requests with their responses.",
    "route",
    buckets=_CALL_SECONDS,
    has_exemplars=True,
)

# --- Background runs

BACKGROUND_RUNS = _row(
    "background_runs",
    "gauge",
    "Background runs in the database by status; the same in all pods.",
    "status",
    multiprocess_mode="livemax",
)
BACKGROUND_RUNS_UNSERVED = _row(
    "background_runs_unserved",
    "gauge",
    "Those of them with a blueprint that no running service of the component has, by status.",
    "status",
    multiprocess_mode="livemax",
)
BACKGROUND_QUEUE_AGE = _row(
    "background_queue_age_seconds",
    "gauge",
    "Age of the oldest queued background run.",
    multiprocess_mode="livemax",
)
BACKGROUND_DATABASE = _row(
    "background_database_up",
    "gauge",
    "Whether the database of background runs can be reached: 1 or 0.",
    multiprocess_mode="livemin",
)
BACKGROUND_ATTEMPTS = _row(
    "background_attempts_total",
    "counter",
    "Attempts of background runs that ended, by outcome.",
    "outcome",
)
CONVERSATION_TURNS = _row(
    "conversation_turns_total",
    "counter",
    "Turns of kept conversations that ended or paused, by outcome.",
    "outcome",
)
DELIVERIES = _row(
    "webhook_deliveries_total",
    "counter",
    "Requests that notified the webhook of background runs, by outcome.",
    "outcome",
    begin="service",
    values={"outcome": get_args(DeliveryOutcome)},
)

# --- The service

SPANS = _row(
    "spans_total",
    "counter",
    "Spans that ended, and those of them that were exported or could not be.",
    "outcome",
    begin="service",
    values={"outcome": get_args(semconv.SpanOutcome)},
)
PRICE_FILE_VALID = _row(
    "price_file_valid",
    "gauge",
    "Whether the operator's price file is valid, or there is none: 1 or 0.",
    multiprocess_mode="livemin",
)
COMPONENT_INFO = _row(
    "component_info",
    "gauge",
    "The served component; always 1.",
    "version",
    "blueprint_digest",
    multiprocess_mode="livemax",
)

# --- The GenAI conventions


def _convention(
    name: str, kind: MetricKind, text: str, *labels: str, **options: Any
) -> Metric:
    return Metric(
        name=name,
        kind=kind,
        help=text,
        labels=(semconv.OPERATION, *labels),
        **options,
    )


_MODEL = (semconv.PROVIDER, semconv.REQUEST_MODEL)
_SECONDS = [0.01 * 2**n for n in range(14)]
_TOKENS = [4.0**n for n in range(14)]
_CALLS = [2.0**n for n in range(8)]

INFERENCE_DURATION = _convention(
    semconv.INFERENCE_DURATION,
    "histogram",
    "Duration of model calls.",
    *_MODEL,
    semconv.ERROR,
    buckets=_SECONDS,
    unit="s",
)
INFERENCE_FIRST_CHUNK = _convention(
    semconv.INFERENCE_FIRST_CHUNK,
    "histogram",
    "Time to the first chunk of streamed model calls.",
    *_MODEL,
    buckets=_SECONDS,
    unit="s",
)
INFERENCE_CHUNK = _convention(
    semconv.INFERENCE_CHUNK,
    "histogram",
    "Time per chunk of streamed model calls, after the first one.",
    *_MODEL,
    buckets=_SECONDS,
    unit="s",
)
INFERENCE_USAGE: Mapping[str, Metric] = {
    token_type: _convention(
        name,
        "counter",
        text,
        *_MODEL,
        semconv.MODALITY,
        unit="{token}",
    )
    for token_type, name, text in (
        (
            "input",
            semconv.INFERENCE_INPUT_TOKENS,
            "Input tokens of model calls, cached ones included.",
        ),
        (
            "output",
            semconv.INFERENCE_OUTPUT_TOKENS,
            "Output tokens of model calls, reasoning included.",
        ),
        (
            "cached_input",
            semconv.INFERENCE_CACHE_READ_TOKENS,
            "Input tokens that were read from a provider's cache.",
        ),
        (
            "cache_write",
            semconv.INFERENCE_CACHE_WRITE_TOKENS,
            "Input tokens that were written to a provider's cache.",
        ),
        (
            "reasoning",
            semconv.INFERENCE_REASONING_TOKENS,
            "Output tokens that were used for reasoning.",
        ),
    )
}
"""The counters of tokens, by the value of the label `type` of `podwright_tokens_total`."""
INFERENCE_CALL_INPUT = _convention(
    semconv.INFERENCE_CALL_INPUT_TOKENS,
    "histogram",
    "Input tokens of a model call.",
    *_MODEL,
    semconv.ERROR,
    buckets=_TOKENS,
    unit="{token}",
)
INFERENCE_CALL_OUTPUT = _convention(
    semconv.INFERENCE_CALL_OUTPUT_TOKENS,
    "histogram",
    "Output tokens of a model call.",
    *_MODEL,
    semconv.ERROR,
    buckets=_TOKENS,
    unit="{token}",
)
TOOL_DURATION = _convention(
    semconv.EXECUTE_TOOL_DURATION,
    "histogram",
    "Duration of tool calls.",
    semconv.TOOL_NAME,
    semconv.ERROR,
    buckets=_SECONDS,
    unit="s",
)
AGENT_DURATION = _convention(
    semconv.INVOKE_AGENT_DURATION,
    "histogram",
    "Duration of runs of agents and workflows.",
    semconv.AGENT_NAME,
    semconv.ERROR,
    buckets=_SECONDS,
    unit="s",
)
AGENT_INFERENCE_CALLS = _convention(
    semconv.INVOKE_AGENT_INFERENCE_CALLS,
    "histogram",
    "Model calls of agents' runs.",
    semconv.AGENT_NAME,
    semconv.ERROR,
    buckets=_CALLS,
    unit="{call}",
)
AGENT_TOOL_CALLS = _convention(
    semconv.INVOKE_AGENT_TOOL_CALLS,
    "histogram",
    "Tool calls of agents' runs.",
    semconv.AGENT_NAME,
    semconv.ERROR,
    buckets=_CALLS,
    unit="{call}",
)

MCP_OPERATION_DURATION = Metric(
    name=semconv.MCP_DURATION,
    kind="histogram",
    help="Duration of requests to MCP servers.",
    labels=(semconv.MCP_METHOD, semconv.MCP_PROTOCOL, semconv.ERROR),
    buckets=_SECONDS,
    unit="s",
)

TABLE: Sequence[Metric] = (
    *(row for row in list(globals().values()) if isinstance(row, Metric)),
    *INFERENCE_USAGE.values(),
)
"""All rows."""
