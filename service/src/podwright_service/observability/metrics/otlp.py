"""Metrics over OTLP, for those who do not scrape: the table's rows, those of the GenAI conventions included.

Asked for by `OTEL_METRICS_EXPORTER=otlp`; the exporter has OpenTelemetry's standard variables. Each process exports its
own series, which `service.instance.id` tells apart.
"""

from __future__ import annotations

import math
import uuid
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from podwright.errors import ConfigurationError
from podwright_service.observability.metrics.table import TABLE, Metric
from podwright_service.observability.output import log_stream

if TYPE_CHECKING:
    from opentelemetry.metrics import Meter
    from opentelemetry.sdk.metrics import MeterProvider
    from opentelemetry.sdk.metrics.export import MetricsData

_Recorder = Callable[[float, Mapping[str, Any]], None]
_MOST_KEPT = 100_000
"""Values that are kept for an application that never starts."""


class OTLPMetrics:
    """The instruments of one service. Values that come before `start` are kept until then.

    Args:
        exporters: Names of the exporters.
        resource: Attributes of the service.
    """

    def __init__(
        self, exporters: Sequence[str], resource: Mapping[str, str]
    ) -> None:
        self._exporters = exporters
        self._resource = resource
        self._recorders: dict[Metric, _Recorder] = {}
        self._kept: deque[tuple[Metric, float, Mapping[str, str]]] = deque(
            maxlen=_MOST_KEPT
        )
        self._provider: MeterProvider | None = None

    def series(
        self, metric: Metric, labels: Sequence[str]
    ) -> Callable[[float], None]:
        """Make a function that records the values of one series.

        Args:
            metric: A row of the table.
            labels: The values of its labels. The conventions leave out attributes that have no value.
        """
        attributes = dict(zip(metric.labels, labels, strict=True))
        if metric.is_convention:
            attributes = {
                name: value for name, value in attributes.items() if value
            }

        def record(value: float) -> None:
            self._record(metric, value, attributes)

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
        self._recorders = {
            metric: _instrument(meter, metric) for metric in TABLE
        }
        self._provider = provider
        while self._kept:
            self._record(*self._kept.popleft())

    def shutdown(self) -> None:
        """Export the last values and stop. Blocks for up to half a minute."""
        if self._provider is not None:
            self._provider.shutdown()

    def _record(
        self, metric: Metric, value: float, attributes: Mapping[str, str]
    ) -> None:
        # OTLP has no infinite values, such as the limit of what is not limited: the SDK would warn of each
        if not math.isfinite(value):
            return
        if self._provider is None:
            self._kept.append((metric, value, attributes))
        else:
            self._recorders[metric](value, attributes)


def _instrument(meter: Meter, metric: Metric) -> _Recorder:
    """Create the instrument of a row, and return what records its values."""
    definition = (metric.instrument, metric.unit, metric.help)
    match metric.kind:
        case "counter":
            return meter.create_counter(*definition).add
        case "up_down_counter":
            return meter.create_up_down_counter(*definition).add
        case "gauge":
            return meter.create_gauge(*definition).set
        case "histogram":
            return meter.create_histogram(
                *definition,
                explicit_bucket_boundaries_advisory=list(metric.buckets),
            ).record


def _metrics_line(data: MetricsData) -> str:
    """Metrics as one line among the lines of the log."""
    return f"{data.to_json(indent=None)}\n"
