"""The exporters of OpenTelemetry's SDK, set up by its standard environment variables."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING

from opentelemetry import trace

from podwright.errors import ConfigurationError
from podwright_service.observability.output import log_stream
from podwright_service.observability.semconv import CountSpans
from podwright_service.otel_variables import exporter_names

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import ReadableSpan, TracerProvider

FLUSH_TIMEOUT = 3.0
"""Seconds that the shutdown of the service waits for the export of the last spans."""

_log = logging.getLogger("podwright.tracing")
_published: list[trace.TracerProvider] = []
"""The global tracer provider, if it is that of a service."""


def create_tracer_provider(
    attributes: Mapping[str, str], count: CountSpans
) -> TracerProvider | None:
    """The SDK's tracer provider with the exporters that the environment asks for; None if it asks for none.

    Args:
        attributes: Resource attributes; `OTEL_SERVICE_NAME` and `OTEL_RESOURCE_ATTRIBUTES` take precedence.
        count: Counts spans; those of the first exporter, if there are several.

    Raises:
        ConfigurationError: An `OTEL_*` variable has a value that is not supported.
    """
    names = exporter_names("TRACES")
    if not names:
        return None
    # Importing the SDK takes time and memory, which a service without spans does not need.
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import (
        OTLPSpanExporter,
    )
    from opentelemetry.sdk.resources import OTELResourceDetector, Resource
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import (
        BatchSpanProcessor,
        ConsoleSpanExporter,
    )

    from podwright_service.observability.span_processors import (
        counting,
        counting_processor,
        filtering,
    )

    exporters = {
        "otlp": OTLPSpanExporter,
        # the stream by default is that of its import
        "console": partial(
            ConsoleSpanExporter, out=log_stream(), formatter=_span_line
        ),
    }
    try:
        resource = Resource.create(attributes).merge(
            OTELResourceDetector().detect()
        )
        provider = TracerProvider(resource=resource, shutdown_on_exit=False)
        for name in names:
            exporter = exporters[name]()
            if name == names[0]:
                provider.add_span_processor(
                    filtering(counting_processor(count))
                )
                exporter = counting(exporter, count)
            provider.add_span_processor(filtering(BatchSpanProcessor(exporter)))
    except ValueError as error:
        raise ConfigurationError(
            f"Invalid OpenTelemetry configuration: {error}",
            suggestion="Check the variables that begin with OTEL_.",
        ) from error
    return provider


def _span_line(span: ReadableSpan) -> str:
    """A span as one line among the lines of the log."""
    return f"{span.to_json(indent=None)}\n"


def provider_of_program() -> trace.TracerProvider | None:
    """The global tracer provider, if the program around the service has set one."""
    provider = trace.get_tracer_provider()
    if isinstance(provider, trace.ProxyTracerProvider):
        return None
    if provider in _published:
        return None
    return provider


def publish(provider: TracerProvider) -> None:
    """Make a provider the global one, unless there is one, so that spans that tools make are exported too."""
    if isinstance(trace.get_tracer_provider(), trace.ProxyTracerProvider):
        _published.append(provider)
        trace.set_tracer_provider(provider)


def shut_down(**shutdowns: Callable[[], object]) -> None:
    """Export what remains and stop the exporters, within `FLUSH_TIMEOUT` together.

    Args:
        **shutdowns: What is exported, and a function that does it.
    """
    until = time.monotonic() + FLUSH_TIMEOUT
    # daemon threads, because the SDK waits up to 30 s for a collector that does not respond
    threads: dict[str, threading.Thread] = {}
    for name, shutdown in shutdowns.items():
        thread = threading.Thread(
            target=shutdown, name=f"podwright-{name}-shutdown", daemon=True
        )
        threads[name] = thread
        thread.start()
    for name, thread in threads.items():
        thread.join(max(0.0, until - time.monotonic()))
        if thread.is_alive():
            _log.warning(
                "The last %s were not exported within %g seconds and are lost.",
                name,
                FLUSH_TIMEOUT,
            )
