"""Where spans go: what the standard `OTEL_` variables say, and never at the cost of a run."""

from __future__ import annotations

import asyncio
import logging
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from http.client import HTTPResponse
from io import BufferedReader, RawIOBase
from typing import Any, cast
from urllib.parse import urlsplit

import requests
from google.protobuf.message import DecodeError
from opentelemetry import trace
from opentelemetry.exporter.otlp.proto.http import trace_exporter
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceResponse
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, ConsoleSpanExporter, SpanExporter, SpanExportResult
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.util.re import parse_env_headers
from requests.adapters import HTTPAdapter
from requests.exceptions import InvalidHeader, InvalidURL, RequestException
from requests.utils import check_header_validity
from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.util import Timeout

from podwright.errors import ConfigurationError
from podwright.text import did_you_mean
from podwright_service.observability.otlp import Encoded, encode
from podwright_service.observability.spans import Recorder, Span

FLUSH_TIMEOUT = 3.0
"""Seconds that the end of the service waits for the last spans."""

_log = logging.getLogger("podwright.tracing")
_PROTOCOL = "http/protobuf"
_EXPORTERS = ("otlp", "console", "none")
_COMPRESSIONS = ("none", "deflate", "gzip")
_USUAL = {
    "max_queue_size": ("OTEL_BSP_MAX_QUEUE_SIZE", 2048, 1),
    "schedule_delay_millis": ("OTEL_BSP_SCHEDULE_DELAY", 5000, 1),
    "max_export_batch_size": ("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", 512, 1),
    "export_timeout_millis": ("OTEL_BSP_EXPORT_TIMEOUT", 30_000, 0),
}
"""What a batch is, by the variable that sets it, what it is without, and the least that it may be."""
_MOST = 2**31 - 1
_CREDENTIALS = (
    "OTEL_PYTHON_EXPORTER_OTLP_HTTP_TRACES_CREDENTIAL_PROVIDER",
    "OTEL_PYTHON_EXPORTER_OTLP_HTTP_CREDENTIAL_PROVIDER",
)
_LONGEST_ANSWER = 64 * 1024
"""Bytes; a collector says next to nothing."""


class _Loss:
    """Whether spans are being lost: said once, and once that they no longer are."""

    def __init__(self) -> None:
        self.told = False
        self._lock = threading.Lock()

    def begins(self, why: str, *values: object) -> None:
        with self._lock:
            if self.told:
                return
            self.told = True
        _log.warning(why, *values)

    def ends(self) -> None:
        if self.told:
            self.told = False
            _log.info("Spans are delivered to the collector again.")


class _Calm(SpanExporter):
    """Tells of failures in place of the exporter, which does for each; what fails is dropped."""

    def __init__(self, exporter: SpanExporter, loss: _Loss) -> None:
        self._exporter, self._loss = exporter, loss
        self.waiting = deque[Any](maxlen=1)
        """The spans that are not yet sent."""

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        try:
            result = self._exporter.export(spans)
        except Exception:  # noqa: BLE001 - an answer that the exporter cannot read costs no more than another failure
            result = SpanExportResult.FAILURE
        if result is not SpanExportResult.SUCCESS:
            self._loss.begins("Spans cannot be delivered to the collector and are dropped until they can.")
        elif 2 * len(self.waiting) <= cast("int", self.waiting.maxlen):  # a queue still as good as full loses the next
            self._loss.ends()
        return result

    def shutdown(self) -> None:
        self._exporter.shutdown()

    def force_flush(self, timeout_millis: int = 30_000) -> bool:
        return self._exporter.force_flush(timeout_millis)


class _Timed(RawIOBase):
    """What comes from a socket within its time-out as a whole: by itself, that holds for each piece."""

    def __init__(self, sock: Any, raw: RawIOBase) -> None:
        self._sock, self._raw, self._end = sock, raw, time.monotonic() + sock.gettimeout()

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int | None:
        left = self._end - time.monotonic()
        if left <= 0:
            raise TimeoutError("timed out")
        self._sock.settimeout(left)
        return self._raw.readinto(buffer)

    def close(self) -> None:
        self._raw.close()
        super().close()


class _Answer(HTTPResponse):
    def __init__(self, sock: Any, *args: Any, **kwargs: Any) -> None:
        super().__init__(sock, *args, **kwargs)
        self.fp: Any = BufferedReader(_Timed(sock, self.fp.detach()))


class _Plain(HTTPConnection):
    response_class = _Answer


class _Secure(HTTPSConnection):
    response_class = _Answer


class _Adapter(HTTPAdapter):
    """Sends within a time, reads no more than a collector says, and fails what the exporter takes for a delivery."""

    _rejecting = False

    def get_connection_with_tls_context(self, *args: Any, **kwargs: Any) -> Any:
        pool: Any = super().get_connection_with_tls_context(*args, **kwargs)
        # through a SOCKS proxy connections are of another class, and stay what they are
        pool.ConnectionCls = {HTTPConnection: _Plain, HTTPSConnection: _Secure}.get(
            pool.ConnectionCls, pool.ConnectionCls
        )
        return pool

    def send(self, request: Any, stream: bool = False, timeout: Any = None, *args: Any, **kwargs: Any) -> Any:
        whole: Any = Timeout(total=timeout)
        answer: Any = super().send(request, True, whole, *args, **kwargs)
        said = bytearray()
        for piece in answer.iter_content(_LONGEST_ANSWER):
            said += piece
            if len(said) > _LONGEST_ANSWER:
                answer.close()
                raise RequestException("the answer is too long for a collector's")
        answer._content = bytes(said)  # noqa: SLF001 - where `content` looks first
        if 300 <= answer.status_code < 400:
            raise RequestException("the collector is elsewhere")
        if said and answer.ok and not self._rejecting and (rejected := _rejected(answer.content)):
            self._rejecting = True
            _log.warning("The collector took spans but rejected some, %d at first; its own log says why.", rejected)
        return answer


def _rejected(said: bytes) -> int:
    try:
        return ExportTraceServiceResponse.FromString(said).partial_success.rejected_spans
    except DecodeError:  # it came in another format, or from something else
        return 0


def _session() -> requests.Session | None:
    """What the exporter sends with, unless the environment names something that makes it."""
    if any(os.environ.get(name) for name in _CREDENTIALS):
        return None
    session, adapter = requests.Session(), _Adapter()
    session.headers["Accept-Encoding"] = "identity"
    session.mount("http://", adapter)
    session.mount("https://", adapter)
    return session


class Delivery:
    """What delivers spans, by the environment: for whoever makes some, and for the service's own.

    The first one of a process also serves `opentelemetry.trace.get_tracer`, so that tools' own spans are delivered.

    Args:
        attributes: What the resource says, where the environment does not.
        name: The scope of the service's own spans.
        version: The version of that scope.

    Raises:
        ConfigurationError: An `OTEL_` variable asks for what there is not.
    """

    def __init__(self, attributes: Mapping[str, str], name: str, version: str) -> None:
        # what it says of every failed try is said once, above
        logging.getLogger("opentelemetry.exporter").setLevel(logging.CRITICAL)
        logging.getLogger("opentelemetry.sdk._shared_internal").setLevel(logging.ERROR)
        # it writes out headers, and they hold keys
        logging.getLogger("opentelemetry.util.re").setLevel(logging.CRITICAL)
        # the exporter takes no other encoder; without this name in that module, it could not be given one
        trace_exporter.encode_spans = encode  # pyright: ignore[reportPrivateImportUsage]
        if "otlp" in (wanted := exporters()):
            _check_collector()
        self._sizes, self._loss = _sizes(), _Loss()
        try:
            self._provider = TracerProvider(resource=Resource.create(_named(attributes)), shutdown_on_exit=False)
            deliver = [self._to_collector() if exporter == "otlp" else self._to_console() for exporter in wanted]
            self.recorder = Recorder(self._provider, InstrumentationScope(name, version), deliver)
            """Starts the service's own spans."""
            if isinstance(trace.get_tracer_provider(), trace.ProxyTracerProvider):
                trace.set_tracer_provider(self._provider)
        except (ImportError, OverflowError, RuntimeError, StopIteration, ValueError) as error:
            raise ConfigurationError(
                f"OpenTelemetry refuses its variables: {str(error) or type(error).__name__}.",
                suggestion="Correct the one that this is about, or leave it out: each begins with OTEL_.",
            ) from error

    def _to_console(self) -> Callable[[Span], None]:
        self._provider.add_span_processor(batches := BatchSpanProcessor(ConsoleSpanExporter(), **self._sizes))
        return lambda span: batches.on_end(span.readable())

    def _to_collector(self) -> Callable[[Span], None]:
        loss, calm = self._loss, _Calm(trace_exporter.OTLPSpanExporter(session=_session()), self._loss)
        self._provider.add_span_processor(batches := BatchSpanProcessor(calm, **self._sizes))
        # there is no other way to see that it is full: the SDK only logs it, for each span
        inner: Any = batches._batch_processor  # noqa: SLF001 # pyright: ignore[reportPrivateUsage]
        calm.waiting = waiting = inner._queue  # noqa: SLF001
        most = waiting.maxlen

        def deliver(span: Span) -> None:
            if len(waiting) == most and not loss.told:
                loss.begins("Spans end faster than the collector takes them; beyond %d that wait they are lost.", most)
            batches.on_end(cast("ReadableSpan", Encoded(span)))

        return deliver

    async def finish(self, within: float = FLUSH_TIMEOUT) -> None:
        """Deliver the last spans, and stop; a collector that does not answer is not waited for."""
        over = threading.Event()

        def end() -> None:
            self._provider.shutdown()
            over.set()

        threading.Thread(target=end, daemon=True, name="podwright-spans-end").start()
        if not await asyncio.to_thread(over.wait, within):
            self._loss.begins("The collector did not take the last spans within %g seconds; they are lost.", within)


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


def _check_collector() -> None:
    """Refuse what the exporter would leave out or fail with later. The values may hold keys: few are shown.

    Raises:
        ConfigurationError: There is something of the kind.
    """
    variable, value = _asked("ENDPOINT")
    try:
        if value and urlsplit(value).scheme not in ("http", "https"):
            raise InvalidURL
        requests.Request("POST", value or "http://localhost").prepare()
    except ValueError:
        raise ConfigurationError(
            f"{variable} is no address that spans can be sent to.",
            suggestion="Write it whole, such as http://collector:4318.",
        ) from None
    variable, value = _asked("TIMEOUT")
    try:
        sound = 0 < float(value or 1) < threading.TIMEOUT_MAX
    except ValueError:
        sound = False
    if not sound:
        raise ConfigurationError(f"{variable} is '{value}'.", suggestion="Write seconds, more than 0, such as 10.")
    variable, value = _asked("COMPRESSION")
    if value and value.strip().lower() not in _COMPRESSIONS:
        raise ConfigurationError(f"{variable} is '{value}'.", suggestion=f"Use one of: {', '.join(_COMPRESSIONS)}.")
    _check_headers()


def _check_headers() -> None:
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


def _sizes() -> dict[str, Any]:
    """How many spans wait, and how long. The SDK writes a traceback for what it does not take.

    Raises:
        ConfigurationError: A variable holds what cannot be.
    """
    sizes = {name: _number(*usual) for name, usual in _USUAL.items()}
    if (batch := sizes["max_export_batch_size"]) > (queue := sizes["max_queue_size"]):
        raise ConfigurationError(
            f"OTEL_BSP_MAX_EXPORT_BATCH_SIZE is {batch}, but OTEL_BSP_MAX_QUEUE_SIZE {queue}.",
            suggestion="Set both: no more spans can be sent at once than may wait.",
        )
    return sizes


def _number(variable: str, usual: int, least: int) -> int:
    text = os.environ.get(variable, "").strip()
    try:
        number = int(text or usual)
    except ValueError:
        number = -1
    if not least <= number <= _MOST:
        raise ConfigurationError(f"{variable} is '{text}'.", suggestion=f"Write a number from {least} to {_MOST}.")
    return number


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
