"""Counts and filters spans on their way to the collector. Imported only with spans: the SDK takes time and memory."""

from __future__ import annotations

from collections.abc import Sequence

from opentelemetry.sdk.trace import ReadableSpan, SpanProcessor
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult
from opentelemetry.trace import SpanKind

from podwright_service.observability.semconv import CountSpans

_MCP = "mcp-python-sdk"
"""The instrumentation scope of the package `mcp`."""


class _FilteringProcessor(SpanProcessor):
    def __init__(self, inner: SpanProcessor) -> None:
        self._inner = inner

    def on_end(self, span: ReadableSpan) -> None:
        # of each of its requests, with the server's words in the status; the span of the tool call covers them
        scope = span.instrumentation_scope
        is_request = span.kind is SpanKind.CLIENT
        if scope is None or scope.name != _MCP or not is_request:
            self._inner.on_end(span)

    def shutdown(self) -> None:
        self._inner.shutdown()

    def force_flush(self, timeout_millis: int = 30_000) -> bool:
        return self._inner.force_flush(timeout_millis)


class _CountingProcessor(SpanProcessor):
    def __init__(self, count: CountSpans) -> None:
        self._count = count

    def on_end(self, span: ReadableSpan) -> None:
        if span.context is not None and span.context.trace_flags.sampled:
            self._count("ended", 1)


class _CountingExporter(SpanExporter):
    def __init__(self, exporter: SpanExporter, count: CountSpans) -> None:
        self._exporter = exporter
        self._count = count

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        result = self._exporter.export(spans)
        if result is SpanExportResult.SUCCESS:
            self._count("exported", len(spans))
        else:
            self._count("failed", len(spans))
        return result

    def shutdown(self) -> None:
        self._exporter.shutdown()

    def force_flush(self, timeout_millis: int = 30_000) -> bool:
        return self._exporter.force_flush(timeout_millis)


def filtering(processor: SpanProcessor) -> SpanProcessor:
    """This processor, without the spans that the package `mcp` makes of its requests.

    Args:
        processor: It must do nothing when spans start.
    """
    return _FilteringProcessor(processor)


def counting_processor(count: CountSpans) -> SpanProcessor:
    """A processor that counts the spans that end and are to be exported."""
    return _CountingProcessor(count)


def counting(exporter: SpanExporter, count: CountSpans) -> SpanExporter:
    """This exporter, which also counts the spans that it exports, or fails to."""
    return _CountingExporter(exporter, count)
