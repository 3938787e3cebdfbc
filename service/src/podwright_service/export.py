"""Where spans go: what the standard `OTEL_` variables say, and never at the cost of a run."""

from __future__ import annotations

import asyncio
import logging
import os
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import cast

from opentelemetry import trace
from opentelemetry.exporter.otlp.proto.http import trace_exporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, ConsoleSpanExporter, SpanExporter, SpanExportResult
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.util.re import parse_env_headers
from requests.exceptions import InvalidHeader
from requests.utils import check_header_validity

from podwright.errors import ConfigurationError, did_you_mean
from podwright_service.otlp import Encoded, encode
from podwright_service.spans import Recorder, Span

FLUSH_TIMEOUT = 3.0
"""Seconds that the end of the service waits for the last spans."""

_log = logging.getLogger("podwright.tracing")
_PROTOCOL = "http/protobuf"
_EXPORTERS = ("otlp", "console", "none")


class _Calm(SpanExporter):
    """Says once that spans cannot be delivered, and once that they can again; they are dropped in between."""

    def __init__(self, exporter: SpanExporter) -> None:
        self._exporter = exporter
        self._failing = False

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        result = self._exporter.export(spans)
        failing = result is not SpanExportResult.SUCCESS
        if failing and not self._failing:
            _log.warning("Spans cannot be delivered to the collector and are dropped until they can.")
        elif self._failing and not failing:
            _log.info("Spans are delivered to the collector again.")
        self._failing = failing
        return result

    def shutdown(self) -> None:
        self._exporter.shutdown()

    def force_flush(self, timeout_millis: int = 30_000) -> bool:
        return self._exporter.force_flush(timeout_millis)


def provider(attributes: Mapping[str, str], name: str, version: str) -> tuple[TracerProvider, Recorder]:
    """What delivers spans, by the environment: for whoever makes some, and for the service's own.

    The first one of a process also serves `opentelemetry.trace.get_tracer`, so that tools' own spans are delivered.

    Args:
        attributes: What the resource says, where the environment does not.
        name: The scope of the service's own spans.
        version: The version of that scope.

    Raises:
        ConfigurationError: An `OTEL_` variable asks for what there is not.
    """
    # what it says of every failed try is said once, above
    logging.getLogger("opentelemetry.exporter").setLevel(logging.CRITICAL)
    logging.getLogger("opentelemetry.sdk._shared_internal").setLevel(logging.ERROR)
    # the exporter takes no other encoder; without this name in that module, it could not be given one
    trace_exporter.encode_spans = encode  # pyright: ignore[reportPrivateImportUsage]
    logging.getLogger("opentelemetry.util.re").setLevel(logging.CRITICAL)  # it writes out headers, and they hold keys
    if "otlp" in (wanted := exporters()):
        _check_headers()
    made = TracerProvider(resource=Resource.create(_named(attributes)), shutdown_on_exit=False)
    deliver: list[Callable[[Span], None]] = []
    for exporter in wanted:
        if exporter == "otlp":
            made.add_span_processor(batches := BatchSpanProcessor(_Calm(trace_exporter.OTLPSpanExporter())))
            deliver.append(lambda span, to=batches: to.on_end(cast("ReadableSpan", Encoded(span))))
        elif exporter == "console":
            made.add_span_processor(batches := BatchSpanProcessor(ConsoleSpanExporter()))
            deliver.append(lambda span, to=batches: to.on_end(span.readable()))
    if isinstance(trace.get_tracer_provider(), trace.ProxyTracerProvider):
        trace.set_tracer_provider(made)
    return made, Recorder(made, InstrumentationScope(name, version), deliver)


def _named(attributes: Mapping[str, str]) -> dict[str, str]:
    """The attributes that OTEL_RESOURCE_ATTRIBUTES does not set: those given in code would win over it."""
    set_there = {one.partition("=")[0].strip() for one in os.environ.get("OTEL_RESOURCE_ATTRIBUTES", "").split(",")}
    if os.environ.get("OTEL_SERVICE_NAME"):
        set_there.add("service.name")
    return {name: value for name, value in attributes.items() if name not in set_there}


def _asked(what: str) -> tuple[str, str]:
    """The variable that says it, for spans or for all that is exported, and its value."""
    for_all = f"OTEL_EXPORTER_OTLP_{what}"
    name = f"OTEL_EXPORTER_OTLP_TRACES_{what}"
    return (name, value) if (value := os.environ.get(name)) else (for_all, os.environ.get(for_all, ""))


def _check_headers() -> None:
    """Refuse headers that the exporter would leave out or could not send. They hold keys: none is shown.

    Raises:
        ConfigurationError: There is such a one.
    """
    variable, value = _asked("HEADERS")
    for number, entry in enumerate(value.split(","), 1):
        try:
            sent = parse_env_headers(entry, liberal=True).items()
            for header in sent:
                "".join(header).encode("latin-1")
                check_header_validity(header)
        except (InvalidHeader, UnicodeError):
            sent = ()
        if entry.strip() and not sent:
            raise ConfigurationError(
                f"{variable}: entry {number} is no header.",
                suggestion="Write name=value,name=value, and in a value %2C for a comma.",
            ) from None


def exporters() -> list[str]:
    """The exporters that the environment asks for.

    Raises:
        ConfigurationError: `OTEL_TRACES_EXPORTER` names something that there is not, or the protocol is another.
    """
    names = [name.strip() for name in os.environ.get("OTEL_TRACES_EXPORTER", "otlp").split(",") if name.strip()]
    for name in names:
        if name not in _EXPORTERS:
            raise ConfigurationError(
                f"OTEL_TRACES_EXPORTER names '{name}'.",
                suggestion=did_you_mean(name, _EXPORTERS) or f"Use some of: {', '.join(_EXPORTERS)}.",
            )
    protocol = os.environ.get("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL") or os.environ.get("OTEL_EXPORTER_OTLP_PROTOCOL")
    if "otlp" in names and (protocol or _PROTOCOL).strip() != _PROTOCOL:
        raise ConfigurationError(
            f"OTEL_EXPORTER_OTLP_PROTOCOL is '{protocol}'; spans are sent over {_PROTOCOL} only.",
            suggestion="Leave it out, and let the endpoint be the collector's HTTP port, usually 4318.",
        )
    return [name for name in names if name != "none"]


async def finish(made: TracerProvider, within: float = FLUSH_TIMEOUT) -> None:
    """Deliver the last spans, and stop; a collector that does not answer is not waited for."""
    over = threading.Event()

    def end() -> None:
        made.shutdown()
        over.set()

    threading.Thread(target=end, daemon=True, name="podwright-spans-end").start()
    await asyncio.to_thread(over.wait, within)
