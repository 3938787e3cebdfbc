"""OpenTelemetry's standard variables: a value that the SDK would drop, or fail with later, stops the start.

Nothing here imports the SDK: `opentelemetry.propagate` fails at its import if `OTEL_PROPAGATORS` is wrong.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib.metadata import entry_points
from typing import Literal
from urllib.parse import unquote, urlsplit

from podwright.data.redaction import shown_url
from podwright.data.text import did_you_mean, short_repr
from podwright_service import variables

Check = Callable[[str], str | None]
"""Returns what is wrong with a value, or None."""
Signal = Literal["TRACES", "METRICS"]

_MOST = 2**31 - 1
"""The largest number: beyond it, waits and queues of the SDK fail with an overflow."""
_EXPORTERS: Mapping[Signal, Sequence[str]] = {
    "TRACES": ("otlp", "console", "none"),
    "METRICS": ("otlp", "console", "none", "prometheus"),
}
_ENDPOINTS = (
    "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT",
    "OTEL_EXPORTER_OTLP_ENDPOINT",
)
_RATIOS = ("traceidratio", "parentbased_traceidratio")
_SAMPLERS = (
    "always_on",
    "always_off",
    "parentbased_always_on",
    "parentbased_always_off",
    *_RATIOS,
)
_PROPAGATORS_OF_EXTRA = ("b3", "b3multi")
"""Propagators of the extra `b3`."""
_HEADER_NAME = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")
_HEADER_VALUE = re.compile(r"[\t\x20-\x7e\x80-\xff]*")


def _number(
    low: float, *, whole: bool = False, above: bool = False, most: float = _MOST
) -> Check:
    """A check of a number: from `low`, or `above` it, to `most`."""
    kind = "an integer" if whole else "a number"
    relation = "above" if above else "from"
    until = ", at most" if above else " to"
    expected = f"{kind} {relation} {low:g}{until} {most:.16g}"

    def check(value: str) -> str | None:
        try:
            number = int(value) if whole else float(value)
        except ValueError:
            number = math.nan
        if not low <= number <= most or (above and number == low):
            return f"Expected {expected}, got {short_repr(value)}."
        return None

    return check


def _one_of(*names: str) -> Check:
    def check(value: str) -> str | None:
        if value.strip().lower() in names:
            return None
        return f"Unknown value {short_repr(value)}. {did_you_mean(value.lower(), names)}"

    return check


def _entry_points(group: str, *more: str, several: bool = False) -> Check:
    """A check of names of parts of installed packages.

    Args:
        group: Their group of entry points.
        *more: Further names.
        several: Whether there may be several, separated by commas.
    """

    def check(value: str) -> str | None:
        known = [*more, *sorted(entry_points(group=group).names)]
        names = value.split(",") if several else [value]
        for name in map(str.strip, names):
            if name not in known:
                hint = did_you_mean(name, known)
                return f"No installed package has {short_repr(name)}. {hint}".rstrip()
        return None

    return check


def _check_propagators(value: str) -> str | None:
    names = [name.strip() for name in value.split(",")]
    if "none" in map(str.lower, names):
        return None
    installed = set(entry_points(group="opentelemetry_propagator").names)
    for name in names:
        if name in installed:
            continue
        if name in _PROPAGATORS_OF_EXTRA:
            return (
                f"The propagator '{name}' is not installed. Install podwright-service[b3], or use an image of the "
                "flavour 'full'."
            )
        known = sorted({*installed, *_PROPAGATORS_OF_EXTRA, "none"})
        return f"Unknown propagator {short_repr(name)}. {did_you_mean(name, known)}"
    return None


def _check_endpoint(value: str) -> str | None:
    try:
        url = urlsplit(value)
        # both raise errors
        is_valid = url.scheme in ("http", "https") and bool(url.hostname)
        is_valid = is_valid and url.port != 0
    except ValueError:
        is_valid = False
    if is_valid:
        return None
    shown = short_repr(shown_url(value))
    return f"Expected a URL such as http://collector:4318, got {shown}."


def _check_file(value: str) -> str | None:
    if os.access(value, os.R_OK):
        return None
    return f"Expected a readable file, got {short_repr(value)}."


def _check_headers(value: str) -> str | None:
    for number, header in enumerate(value.split(",")):
        name, equals, text = header.partition("=")
        if not header.strip():
            continue
        is_valid = _HEADER_NAME.fullmatch(unquote(name).strip())
        if (
            not equals
            or not is_valid
            or not _HEADER_VALUE.fullmatch(unquote(text))
        ):
            # the value may be a key
            return f"Expected NAME=VALUE, separated by commas; entry {number} is not."
    return None


def _check_attributes(value: str) -> str | None:
    for number, item in enumerate(value.split(",")):
        name, equals, _ = item.partition("=")
        if item.strip() and not (equals and name.strip()):
            # the value of an entry may be a secret
            return f"Expected NAME=VALUE, separated by commas; entry {number} has no name or no value."
    return None


_boolean = _one_of("true", "false")
_count = _number(0, whole=True)
_positive = _number(0, whole=True, above=True)
_seconds = _number(0, above=True)
_credentials = _entry_points("opentelemetry_otlp_credential_provider")
_LIMITS = (
    "OTEL_ATTRIBUTE_COUNT_LIMIT",
    "OTEL_ATTRIBUTE_VALUE_LENGTH_LIMIT",
    "OTEL_EVENT_ATTRIBUTE_COUNT_LIMIT",
    "OTEL_LINK_ATTRIBUTE_COUNT_LIMIT",
    "OTEL_LOGRECORD_ATTRIBUTE_COUNT_LIMIT",
    "OTEL_LOGRECORD_ATTRIBUTE_VALUE_LENGTH_LIMIT",
    "OTEL_SPAN_ATTRIBUTE_COUNT_LIMIT",
    "OTEL_SPAN_ATTRIBUTE_VALUE_LENGTH_LIMIT",
    "OTEL_SPAN_EVENT_COUNT_LIMIT",
    "OTEL_SPAN_LINK_COUNT_LIMIT",
)
"""Limits; an empty one is none for the SDK, so that it is not the same as one that is unset."""
_OF_OTLP: Mapping[str, Check] = {
    "CERTIFICATE": _check_file,
    "CLIENT_CERTIFICATE": _check_file,
    "CLIENT_KEY": _check_file,
    "COMPRESSION": _one_of("none", "gzip", "deflate"),
    "ENDPOINT": _check_endpoint,
    "HEADERS": _check_headers,
    "INSECURE": _boolean,
    "TIMEOUT": _seconds,
}
"""What follows `OTEL_EXPORTER_OTLP_`, and the same with the name of a signal."""


def _otlp_checks() -> Iterator[tuple[str, Check]]:
    for signal in ("", "TRACES_", "METRICS_", "LOGS_"):
        for name, check in _OF_OTLP.items():
            yield f"OTEL_EXPORTER_OTLP_{signal}{name}", check
    for signal in ("", "_TRACES", "_METRICS", "_LOGS"):
        yield (
            f"OTEL_PYTHON_EXPORTER_OTLP_HTTP{signal}_CREDENTIAL_PROVIDER",
            _credentials,
        )


def _batch_checks() -> Iterator[tuple[str, Check]]:
    for processor in ("BSP", "BLRP"):
        yield f"OTEL_{processor}_SCHEDULE_DELAY", _positive
        yield f"OTEL_{processor}_MAX_QUEUE_SIZE", _positive
        yield f"OTEL_{processor}_MAX_EXPORT_BATCH_SIZE", _positive
        yield f"OTEL_{processor}_EXPORT_TIMEOUT", _count


OF_API: Mapping[str, Check] = {
    "OTEL_PROPAGATORS": _check_propagators,
    "OTEL_PYTHON_CONTEXT": _entry_points("opentelemetry_context"),
    **{
        f"OTEL_PYTHON_{kind}_PROVIDER": _entry_points(
            f"opentelemetry_{kind.lower()}_provider"
        )
        for kind in ("LOGGER", "METER", "TRACER")
    },
    "OTEL_SDK_DISABLED": _boolean,
}
"""Variables that are read with and without the SDK."""
OF_SDK: Mapping[str, Check] = {
    **dict(_otlp_checks()),
    **dict(_batch_checks()),
    **dict.fromkeys(_LIMITS, _count),
    "OTEL_EXPERIMENTAL_RESOURCE_DETECTORS": _entry_points(
        "opentelemetry_resource_detector", "*", several=True
    ),
    "OTEL_EXPORTER_OTLP_METRICS_DEFAULT_HISTOGRAM_AGGREGATION": _one_of(
        "explicit_bucket_histogram", "base2_exponential_bucket_histogram"
    ),
    "OTEL_EXPORTER_OTLP_METRICS_TEMPORALITY_PREFERENCE": _one_of(
        "cumulative", "delta", "lowmemory"
    ),
    "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT": _one_of(
        "no_content", "span_only", "event_only", "span_and_event", "false"
    ),
    "OTEL_METRICS_EXEMPLAR_FILTER": _one_of(
        "always_on", "always_off", "trace_based"
    ),
    "OTEL_METRIC_EXPORT_INTERVAL": _seconds,
    "OTEL_METRIC_EXPORT_TIMEOUT": _seconds,
    "OTEL_PYTHON_SDK_INTERNAL_METRICS_ENABLED": _boolean,
    "OTEL_RESOURCE_ATTRIBUTES": _check_attributes,
    "OTEL_TRACES_SAMPLER": _one_of(*_SAMPLERS),
}
"""Variables that the SDK reads: not if it is disabled."""


def prepare_otel_variables() -> None:
    """Prepare a process of the command `podwright` for the import of OpenTelemetry.

    Empty variables are unset, as the specification has it: the SDK fails with some of them.

    Raises:
        ConfigurationError: A variable that is read at the import is wrong.
    """
    for name in (*OF_API, *OF_SDK, "OTEL_TRACES_SAMPLER_ARG"):
        if name not in _LIMITS and not os.environ.get(name, "-").strip():
            del os.environ[name]
    mistakes = [
        f"{name}: The service makes its own provider."
        for name in OF_API
        if name.endswith("_PROVIDER") and name in os.environ
    ]
    if mistakes:
        raise variables.failure(mistakes)
    check_import()


def check_import() -> None:
    """Check the variables that OpenTelemetry reads when it is imported.

    Raises:
        ConfigurationError: A value is not supported; the message names all of them.
    """
    mistakes = list(_mistakes_of(OF_API))
    if mistakes:
        raise variables.failure(mistakes)


def check_otel_variables() -> None:
    """Check the variables of OpenTelemetry.

    Raises:
        ConfigurationError: A value is not supported; the message names all of them.
    """
    mistakes = list(otel_mistakes())
    if mistakes:
        raise variables.failure(mistakes)


def otel_mistakes() -> Iterator[str]:
    """A sentence for each variable of OpenTelemetry whose value is not supported."""
    yield from _mistakes_of(OF_API)
    if is_disabled():
        return
    yield from _mistakes_of(OF_SDK)
    for signal in _EXPORTERS:
        yield from _exporter_mistakes(signal)
    yield from _mistakes_of_pairs()


def _mistakes_of(checks: Mapping[str, Check]) -> Iterator[str]:
    for name, check in checks.items():
        value = os.environ.get(name, "")
        mistake = check(value) if value.strip() else None
        if mistake:
            yield f"{name}: {mistake}"


def is_disabled() -> bool:
    """Whether the SDK is turned off."""
    return os.environ.get("OTEL_SDK_DISABLED", "").strip().lower() == "true"


def has_no_propagators() -> bool:
    """Whether no trace context is read or sent."""
    names = os.environ.get("OTEL_PROPAGATORS", "").lower().split(",")
    return "none" in map(str.strip, names)


def exporter_names(signal: Signal) -> list[str]:
    """The exporters of a signal that the environment asks for; `prometheus` is the service's own route."""
    if is_disabled():
        return []
    names = _named_exporters(signal)
    return [name for name in names if name not in ("none", "prometheus")]


def _named_exporters(signal: Signal) -> list[str]:
    default = ""
    if signal == "TRACES" and any(
        os.environ.get(name, "").strip() for name in _ENDPOINTS
    ):
        default = "otlp"
    value = os.environ.get(f"OTEL_{signal}_EXPORTER", "").strip() or default
    return [name.strip() for name in value.split(",") if name.strip()]


def _exporter_mistakes(signal: Signal) -> Iterator[str]:
    names = _named_exporters(signal)
    known = _EXPORTERS[signal]
    for name in names:
        if name not in known:
            yield (
                f"OTEL_{signal}_EXPORTER: Unknown exporter {short_repr(name)}. {did_you_mean(name, known)}"
            )
    if "otlp" not in names:
        return
    for variable in (
        f"OTEL_EXPORTER_OTLP_{signal}_PROTOCOL",
        "OTEL_EXPORTER_OTLP_PROTOCOL",
    ):
        protocol = os.environ.get(variable, "").strip()
        if protocol and protocol != "http/protobuf":
            yield (
                f"{variable}: Unsupported protocol {short_repr(protocol)}. Use http/protobuf, and the collector's "
                "HTTP port, usually 4318."
            )
        if protocol:
            return


def _mistakes_of_pairs() -> Iterator[str]:
    """Mistakes of values that are valid by themselves."""
    sampler = os.environ.get("OTEL_TRACES_SAMPLER", "").strip().lower()
    ratio = os.environ.get("OTEL_TRACES_SAMPLER_ARG", "").strip()
    if sampler in _RATIOS and ratio:
        mistake = _number(0, most=1)(ratio)
        if mistake:
            yield f"OTEL_TRACES_SAMPLER_ARG: {mistake}"
    for processor in ("BSP", "BLRP"):
        names = (
            f"OTEL_{processor}_MAX_EXPORT_BATCH_SIZE",
            f"OTEL_{processor}_MAX_QUEUE_SIZE",
        )
        try:
            batch, queue = (
                int(os.environ.get(name, "").strip() or default)
                for name, default in zip(names, ("512", "2048"), strict=True)
            )
        except ValueError:  # which has been said
            continue
        if 0 < queue < batch:
            yield f"{names[0]}: Expected at most {names[1]}, which is {queue}, got {batch}."
