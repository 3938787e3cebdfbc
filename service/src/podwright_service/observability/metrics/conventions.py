"""The observations of events for the metrics of the GenAI conventions (v0.1.0)."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

from podwright import events
from podwright.errors import CODES
from podwright.messages.usage import Usage
from podwright_service.observability import semconv
from podwright_service.observability.metrics import table
from podwright_service.observability.metrics.series import SeriesStore

if TYPE_CHECKING:
    from podwright.mcp.server import Exchange

_NO_ERROR = ""
_OTHER_ERROR = "_OTHER"
"""The conventions' name of an error that has no name of its own."""
_UNKNOWN_MODALITY = "unknown"
"""Stands for tokens of which the provider does not say whether they are text, images or audio."""


class ConventionMetrics:
    """Records the metrics of the GenAI conventions.

    Args:
        store: Where the values go.
    """

    def __init__(self, store: SeriesStore) -> None:
        self._record = store.record
        self._chunks: dict[str, dict[int, list[float]]] = {}
        """When the chunks of the calls in progress came, by run and call."""

    def begin_model_call(self, event: events.ModelCallStarted) -> None:
        """Expect the chunks of a call; a function that reports one has sent its own."""
        if not event.is_reported:
            self._chunks.setdefault(event.run_id, {})[event.call] = []

    def note_chunk(self, event: events.Token) -> None:
        """Keep the time of a chunk until the model that sends it is known; pieces of a function are no chunks."""
        times = self._chunks.get(event.run_id, {}).get(event.call)
        if times is not None:
            times.append(event.at)

    def count_run(self, event: events.RunEnded, component: str) -> None:
        """Record the end of a run, which may be nested.

        Args:
            event: The event.
            component: Its component as metrics show it.
        """
        self._chunks.pop(event.run_id, None)
        operation = semconv.operation_of(event.kind)
        labels = (operation, component, _error_type(event))
        self._record(table.AGENT_DURATION, event.duration_ms / 1000, *labels)
        if operation == semconv.INVOKE_AGENT:
            usage = event.usage
            self._record(
                table.AGENT_INFERENCE_CALLS, usage.model_calls, *labels
            )
            self._record(table.AGENT_TOOL_CALLS, usage.tool_calls, *labels)

    def count_tool_call(
        self, event: events.ToolCallFinished | events.ToolCallFailed, tool: str
    ) -> None:
        """Record the end of a tool call.

        Args:
            event: The event.
            tool: Its tool as metrics show it.
        """
        self._record(
            table.TOOL_DURATION,
            event.duration_ms / 1000,
            semconv.EXECUTE_TOOL,
            tool,
            _error_type(event),
        )

    def observe_exchange(
        self, exchange: Exchange, method: str, reason: str
    ) -> None:
        """Record an exchange with an MCP server.

        Args:
            exchange: The exchange.
            method: Its method as metrics show it.
            reason: Why it failed, as metrics show it; empty if it did not.
        """
        self._record(
            table.MCP_OPERATION_DURATION,
            exchange.seconds,
            method,
            exchange.protocol_version,
            reason,
        )

    def count_model_call(
        self,
        event: events.ModelCallFinished | events.ModelCallFailed,
        model: str,
    ) -> None:
        """Record the end of a model call.

        Args:
            event: The event.
            model: Its model as metrics show it.
        """
        labels = _model_labels(model)
        error_type = _error_type(event)
        if event.duration_ms > 0:  # a function may report a call without it
            seconds = event.duration_ms / 1000
            self._record(table.INFERENCE_DURATION, seconds, *labels, error_type)
        if isinstance(event, events.ModelCallFailed):
            usage = event.usage
        else:
            usage = event.response.usage + event.failed_usage
            if event.first_token_ms is not None:
                seconds = event.first_token_ms / 1000
                self._record(table.INFERENCE_FIRST_CHUNK, seconds, *labels)
        self._record(
            table.INFERENCE_CALL_INPUT, usage.input_tokens, *labels, error_type
        )
        self._record(
            table.INFERENCE_CALL_OUTPUT,
            usage.output_tokens,
            *labels,
            error_type,
        )
        times = self._chunks.get(event.run_id, {}).pop(event.call, ())
        for earlier, later in pairwise(times):
            # the clock of the system may be set back
            seconds = max(0.0, later - earlier)
            self._record(table.INFERENCE_CHUNK, seconds, *labels)

    def count_usage(self, usage: Usage, model: str) -> None:
        """Count the tokens of a call or an attempt.

        Args:
            usage: What it used.
            model: Its model as metrics show it.
        """
        labels = _model_labels(model)
        for token_type, metric in table.INFERENCE_USAGE.items():
            tokens = getattr(usage, table.TOKEN_TYPES[token_type])
            self._record(metric, tokens, *labels, _UNKNOWN_MODALITY)


def _model_labels(model: str) -> tuple[str, str, str]:
    """Return operation, provider and model of a call."""
    provider, _, name = model.partition("/")
    provider = semconv.PROVIDERS.get(provider, provider)
    return semconv.CHAT, provider, name or model


def _error_type(event: events.RunEvent) -> str:
    if not isinstance(
        event, events.ModelCallFailed | events.ToolCallFailed | events.RunFailed
    ):
        return _NO_ERROR
    is_decided = events.is_rejection(event.error) or events.is_refusal(
        event.error
    )
    if is_decided or events.is_pause(event.error):
        return _NO_ERROR
    code = str(event.error.get("code"))
    if code in CODES:
        return code
    return _OTHER_ERROR
