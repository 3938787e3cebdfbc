"""Metrics over OTLP, for those who do not scrape: the service's own ones, and those of the GenAI conventions.

Asked for by `OTEL_METRICS_EXPORTER=otlp`; the exporter has OpenTelemetry's standard variables. Each process exports its
own series, which `service.instance.id` tells apart.
"""

from __future__ import annotations

import uuid
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

from podwright import events
from podwright.errors import ConfigurationError
from podwright.usage import Usage
from podwright_service.observability import semconv
from podwright_service.observability.output import log_stream

if TYPE_CHECKING:
    from opentelemetry.sdk.metrics import MeterProvider
    from opentelemetry.sdk.metrics.export import MetricsData

InstrumentKind = Literal["counter", "gauge", "histogram", "up_down_counter"]
Record = Callable[[float], None]
"""Records a value of a series."""

_MOST_KEPT = 100_000
"""Values that are kept for an application that never starts."""


class OTLPMetrics:
    """The instruments of one service. What is recorded before `start` is kept until then.

    Args:
        exporters: Names of the exporters.
        resource: Attributes of the service.
    """

    def __init__(
        self, exporters: Sequence[str], resource: Mapping[str, str]
    ) -> None:
        self._exporters = exporters
        self._resource = resource
        self._definitions: dict[
            str, tuple[InstrumentKind, str, Sequence[float], str]
        ] = {}
        self._recorders: dict[
            str, Callable[[float, Mapping[str, Any]], None]
        ] = {}
        self._kept: deque[tuple[str, float, Mapping[str, Any]]] = deque(
            maxlen=_MOST_KEPT
        )
        self._provider: MeterProvider | None = None
        for name, (text, unit, buckets) in semconv.METRICS.items():
            self.define(name, "histogram", text, buckets, unit)

    def define(
        self,
        name: str,
        kind: InstrumentKind,
        documentation: str,
        buckets: Sequence[float] = (),
        unit: str = "",
    ) -> None:
        """Define an instrument.

        Args:
            name: Its name, with dots.
            kind: Its kind.
            documentation: What it measures.
            buckets: The upper bounds of a histogram.
            unit: Its unit, if the name does not have it.
        """
        self._definitions[name] = (kind, documentation, buckets, unit)

    def series(self, name: str, labels: Mapping[str, str]) -> Record:
        """A function that records values of one series."""

        def record(value: float) -> None:
            self._record(name, value, labels)

        return record

    def start(self) -> None:
        """Begin to export; called in each process, because threads do not survive a fork."""
        # importing the SDK takes time and memory, which a service without it does not need
        from opentelemetry.exporter.otlp.proto.http.metric_exporter import (
            OTLPMetricExporter,
        )
        from opentelemetry.sdk.metrics import MeterProvider
        from opentelemetry.sdk.metrics.export import (
            ConsoleMetricExporter,
            PeriodicExportingMetricReader,
        )
        from opentelemetry.sdk.resources import OTELResourceDetector, Resource

        exporters = {
            "otlp": OTLPMetricExporter,
            # the stream by default is that of its import
            "console": partial(
                ConsoleMetricExporter,
                out=log_stream(),
                formatter=_metrics_line,
            ),
        }
        attributes = {
            **self._resource,
            "service.instance.id": str(uuid.uuid4()),
        }
        try:
            resource = Resource.create(attributes).merge(
                OTELResourceDetector().detect()
            )
            readers = [
                PeriodicExportingMetricReader(exporters[name]())
                for name in self._exporters
            ]
            provider = MeterProvider(readers, resource, shutdown_on_exit=False)
        except ValueError as error:
            raise ConfigurationError(
                f"Invalid OpenTelemetry configuration: {error}",
                suggestion="Check the variables that begin with OTEL_.",
            ) from error
        meter = provider.get_meter("podwright")
        for name, (
            kind,
            documentation,
            buckets,
            unit,
        ) in self._definitions.items():
            match kind:
                case "counter":
                    self._recorders[name] = meter.create_counter(
                        name, unit, documentation
                    ).add
                case "up_down_counter":
                    self._recorders[name] = meter.create_up_down_counter(
                        name, unit, documentation
                    ).add
                case "gauge":
                    self._recorders[name] = meter.create_gauge(
                        name, unit, documentation
                    ).set
                case "histogram":
                    histogram = meter.create_histogram(
                        name,
                        unit,
                        documentation,
                        explicit_bucket_boundaries_advisory=list(buckets),
                    )
                    self._recorders[name] = histogram.record
        self._provider = provider
        while self._kept:
            self._record(*self._kept.popleft())

    def shutdown(self) -> None:
        """Export the last values and stop. Blocks for up to half a minute."""
        if self._provider is not None:
            self._provider.shutdown()

    def _record(
        self, name: str, value: float, labels: Mapping[str, Any]
    ) -> None:
        if self._provider is None:
            self._kept.append((name, value, labels))
        else:
            self._recorders[name](value, labels)

    def count(self, event: events.Event, model: str) -> None:
        """Record what the conventions measure of an event.

        Args:
            event: The event.
            model: The name of its model as metrics show it; empty if it has none.
        """
        match event:
            case events.ModelCallFinished() | events.ModelCallFailed():
                self._count_model_call(event, model)
            case events.ToolCallFinished() | events.ToolCallFailed():
                labels = {
                    semconv.OPERATION: semconv.EXECUTE_TOOL,
                    **_error(event),
                }
                self._record(
                    "gen_ai.execute_tool.duration",
                    event.duration_ms / 1000,
                    labels,
                )
            case events.RunEnded() if event.kind in ("agent", "conductor"):
                labels = {
                    semconv.OPERATION: semconv.INVOKE_AGENT,
                    **_error(event),
                }
                self._record(
                    "gen_ai.invoke_agent.duration",
                    event.duration_ms / 1000,
                    labels,
                )
                self._record(
                    "gen_ai.invoke_agent.inference_calls",
                    event.usage.model_calls,
                    labels,
                )
                self._record(
                    "gen_ai.invoke_agent.tool_calls",
                    event.usage.tool_calls,
                    labels,
                )
            case _:
                pass

    def _count_model_call(
        self,
        event: events.ModelCallFinished | events.ModelCallFailed,
        model: str,
    ) -> None:
        provider, _, name = model.partition("/")
        labels = {
            semconv.OPERATION: semconv.CHAT,
            semconv.PROVIDER: semconv.PROVIDERS.get(provider, provider),
            semconv.REQUEST_MODEL: name or model,
        }
        seconds = event.duration_ms / 1000
        # a function may report a call without it
        if seconds > 0:
            self._record(
                "gen_ai.client.operation.duration",
                seconds,
                labels | _error(event),
            )
        if isinstance(event, events.ModelCallFinished):
            usage = event.response.usage + event.failed_usage
        else:
            usage = event.usage
        for token_type, tokens in _tokens(usage).items():
            if tokens:
                self._record(
                    "gen_ai.client.token.usage",
                    tokens,
                    {**labels, "gen_ai.token.type": token_type},
                )


def _metrics_line(data: MetricsData) -> str:
    """Metrics as one line among the lines of the log."""
    return f"{data.to_json(indent=None)}\n"


def _tokens(usage: Usage) -> dict[str, int]:
    return {"input": usage.input_tokens, "output": usage.output_tokens}


def _error(event: events.Event) -> dict[str, str]:
    if not isinstance(
        event, events.ModelCallFailed | events.ToolCallFailed | events.RunFailed
    ):
        return {}
    if events.is_rejection(event.error) or events.is_pause(event.error):
        return {}
    return {semconv.ERROR: str(event.error.get("code", "internal_error"))}
