"""Spans of the runs in a program that is not a service of Podwright."""

from __future__ import annotations

from collections.abc import Callable

from opentelemetry import trace

import podwright
from podwright_service.observability import tracing
from podwright_service.observability.run_spans import RunSpans


def record_spans(
    tracer_provider: trace.TracerProvider | None = None,
) -> Callable[[], None]:
    """Make OpenTelemetry spans of all runs in this process, as a service does.

        podwright_service.record_spans()

    It may be called before or after OpenTelemetry is configured. The runs of a service in this process have their spans
    once, by whoever makes them.

    Args:
        tracer_provider: Where the spans go; by default to the global one.

    Returns:
        A function that ends this.
    """
    tracer = trace.get_tracer(
        "podwright", podwright.__version__, tracer_provider
    )
    spans = RunSpans(tracer, capture_content=tracing.capture_content())
    unsubscribe = podwright.subscribe(spans)
    tracing.continue_traces(spans)

    def stop() -> None:
        unsubscribe()
        tracing.end_traces(spans)

    return stop
