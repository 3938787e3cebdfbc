"""The series of the table's metrics: in Prometheus' registry, and over OTLP if that is asked for.

prometheus_client decides at its import whether it keeps values in memory or, with `PROMETHEUS_MULTIPROC_DIR`, in files
that several processes share. Set the variable before this module is imported.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

from opentelemetry.trace import get_current_span
from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    ProcessCollector,
)
from prometheus_client.exposition import choose_encoder
from prometheus_client.metrics_core import Metric as Family
from prometheus_client.multiprocess import MultiProcessCollector
from prometheus_client.registry import Collector

from podwright_service.observability.metrics import files
from podwright_service.observability.metrics.otlp import OTLPMetrics
from podwright_service.observability.metrics.table import TABLE, Metric

_log = logging.getLogger("podwright.service")
Record = Callable[[float], None]
"""Records a value of a series: adds it to a counter, sets a gauge to it, or observes it in a histogram."""


class SeriesStore:
    """The series of one service.

    Args:
        export: Where the values go besides Prometheus; None if nowhere.
    """

    def __init__(self, export: OTLPMetrics | None) -> None:
        self._export = export
        self._folder = os.environ.get(files.VARIABLE)
        self._are_series_lost = False
        self.registry = CollectorRegistry()
        if not self._folder:
            ProcessCollector(registry=self.registry)
        self._collectors = {
            metric: _collector(metric, self.registry)
            for metric in TABLE
            if not metric.is_convention
        }
        # a look-up by labels takes longer than counting
        self._series = cache(self._make_series)

    @property
    def has_conventions(self) -> bool:
        """Whether somebody sees the metrics of the GenAI conventions."""
        return self._export is not None

    def record(self, metric: Metric, value: float, *labels: str) -> None:
        """Record a value.

        Args:
            metric: A row of the table.
            value: Added to a counter, set as a gauge, or observed in a histogram.
            *labels: The values of its labels.
        """
        self._series(metric, *labels)(value)

    def begin(self, metric: Metric, *labels: str) -> None:
        """Show a series with 0, or as a histogram without values."""
        record = self._series(metric, *labels)
        if metric.kind != "histogram":
            record(0)

    def render(self, accept: str) -> tuple[bytes, str]:
        """Encode all series.

        Args:
            accept: The `Accept` header: the text format, or OpenMetrics, which has exemplars.

        Returns:
            The series of all processes, and their media type.
        """
        try:
            encode, media_type = choose_encoder(accept)
        except (TypeError, ValueError):  # an invalid version in the header
            encode, media_type = choose_encoder("")
        collector: Collector = self.registry
        if self._folder:
            collector = _AllProcesses(self._folder)
            if not files.has_room(self._folder):
                self._log_lost_series(self._folder)
        if not media_type.startswith("application/openmetrics-text"):
            collector = _WithoutCreated(collector)
        return encode(collector), media_type

    def _make_series(self, metric: Metric, *labels: str) -> Record:
        """Make a series; without room for it in Prometheus, its values are lost there while this process runs."""
        record = _lose
        if metric in self._collectors and self._has_room():
            record = _recorder(metric, self._collectors[metric], labels)
        if self._export is None:
            return record
        export = self._export.series(metric, labels)

        def record_and_export(value: float) -> None:
            record(value)
            export(value)

        return record_and_export

    def _has_room(self) -> bool:
        folder = os.environ.get(files.VARIABLE)
        if not self._folder or not folder or files.has_room(folder):
            return True
        self._log_lost_series(folder)
        return False

    def _log_lost_series(self, folder: str) -> None:
        """Log once that a folder takes no new series."""
        if self._are_series_lost:
            return
        self._are_series_lost = True
        _log.error(
            "The folder of metrics, %s, is full or cannot be used: new series are lost.",
            folder,
        )


def _collector(
    metric: Metric, registry: CollectorRegistry
) -> Counter | Gauge | Histogram:
    """Define a metric in Prometheus' registry."""
    match metric.kind:
        case "counter":
            return Counter(
                metric.name, metric.help, metric.labels, registry=registry
            )
        case "gauge" | "up_down_counter":
            return Gauge(
                metric.name,
                metric.help,
                metric.labels,
                registry=registry,
                multiprocess_mode=metric.multiprocess_mode,
            )
        case "histogram":
            return Histogram(
                metric.name,
                metric.help,
                metric.labels,
                registry=registry,
                buckets=metric.buckets,
            )


def _recorder(
    metric: Metric,
    collector: Counter | Gauge | Histogram,
    labels: tuple[str, ...],
) -> Record:
    """Make a function that records the values of one series in Prometheus' registry."""
    series = collector.labels(*labels)
    if isinstance(series, Histogram):
        if not metric.has_exemplars:
            return series.observe
        return lambda value: series.observe(value, _exemplar())
    if isinstance(series, Gauge) and metric.kind == "gauge":
        return series.set
    return series.inc


def _lose(value: float) -> None:
    """Record nothing."""


def _exemplar() -> dict[str, str] | None:
    """Return the id of the current trace, if it is sampled."""
    context = get_current_span().get_span_context()
    if context.trace_flags.sampled:
        return {"trace_id": f"{context.trace_id:032x}"}
    return None


class _AllProcesses(Collector):
    """The metrics of all processes that have shared a folder; none once it is gone."""

    def __init__(self, folder: str) -> None:
        self._folder = folder

    def collect(self) -> Iterator[Family]:
        folder = Path(self._folder)
        if not folder.is_dir():
            return
        collector: Any = MultiProcessCollector  # has no types
        with files.reading(folder) as paths:
            yield from collector.merge(paths)


class _WithoutCreated(Collector):
    """Metrics without the times at which their series began, which the text format has as further series."""

    def __init__(self, collector: Collector) -> None:
        self._collector = collector

    def collect(self) -> Iterator[Family]:
        for family in self._collector.collect():
            if family.name.endswith("_created"):
                continue
            family.samples = [
                sample
                for sample in family.samples
                if not sample.name.endswith("_created")
            ]
            yield family
