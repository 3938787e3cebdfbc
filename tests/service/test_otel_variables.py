"""OpenTelemetry's variables: a value that the SDK cannot use stops the start, and the error names the variable."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from typing import Any

import opentelemetry.environment_variables
import opentelemetry.sdk.environment_variables
import pytest
from tests.helpers import plain_http
from tests.service.support import Address, Command, Serve

from podwright import Agent
from podwright.errors import ConfigurationError
from podwright_service import otel_variables
from podwright_service.otel_variables import check_otel_variables

SERVE = "from podwright_service.cli import main; main()"
NUMBERS = ("x", "-1", "nan", "inf", "1e3x", "99999999999999999999")
WORDS = ("x", "1", "none,", "trace_based always_on")
_BOOLEAN = (("true", "False"), ("yes", "1", "x"))
_COUNT = (("0", "7"), (*NUMBERS, "1.5"))
_POSITIVE = (("1000",), (*NUMBERS, "0", "1.5"))
_SECONDS = (("10", "0.5"), (*NUMBERS, "0"))
_FILE = ((os.path.realpath(__file__),), ("/nowhere/ca.pem", "x"))
_CREDENTIALS = ((), ("x", "gcp"))
_ENDPOINT = (
    ("http://127.0.0.1:4318", "https://collector/v1/traces", "http://[::1]:1"),
    ("localhost:4318", "collector", "grpc://c:4317", "http://", "http://c:x"),
)
_HEADERS = (
    ("a=b", "authorization=Basic%20abc, x-b=c=d", "a=b,"),
    ("a", "=b", "a=b,c", "a b=c", "a=%0Ab"),
)
_OTLP = {
    "CERTIFICATE": _FILE,
    "CLIENT_CERTIFICATE": _FILE,
    "CLIENT_KEY": _FILE,
    "COMPRESSION": (("gzip", "none", "deflate", "GZIP"), ("zip", "br", "x")),
    "ENDPOINT": _ENDPOINT,
    "HEADERS": _HEADERS,
    "INSECURE": _BOOLEAN,
    "TIMEOUT": _SECONDS,
}
Values = tuple[tuple[str, ...], tuple[str, ...]]
"""Values that are supported, and others."""
VALUES: dict[str, Values] = {
    **{
        f"OTEL_EXPORTER_OTLP_{signal_name}{name}": values
        for signal_name in ("", "TRACES_", "METRICS_", "LOGS_")
        for name, values in _OTLP.items()
    },
    **{
        f"OTEL_PYTHON_EXPORTER_OTLP_HTTP{name}_CREDENTIAL_PROVIDER": _CREDENTIALS
        for name in ("", "_TRACES", "_METRICS", "_LOGS")
    },
    **{
        f"OTEL_{processor}_{name}": values
        for processor in ("BSP", "BLRP")
        for name, values in (
            ("SCHEDULE_DELAY", _POSITIVE),
            ("MAX_QUEUE_SIZE", (("512", "9000"), (*_POSITIVE[1], "511"))),
            ("MAX_EXPORT_BATCH_SIZE", (("1", "2048"), (*_POSITIVE[1], "2049"))),
            ("EXPORT_TIMEOUT", _COUNT),
        )
    },
    **{
        f"OTEL_{name}_LIMIT": _COUNT
        for name in (
            "ATTRIBUTE_COUNT",
            "ATTRIBUTE_VALUE_LENGTH",
            "EVENT_ATTRIBUTE_COUNT",
            "LINK_ATTRIBUTE_COUNT",
            "LOGRECORD_ATTRIBUTE_COUNT",
            "LOGRECORD_ATTRIBUTE_VALUE_LENGTH",
            "SPAN_ATTRIBUTE_COUNT",
            "SPAN_ATTRIBUTE_VALUE_LENGTH",
            "SPAN_EVENT_COUNT",
            "SPAN_LINK_COUNT",
        )
    },
    "OTEL_EXPERIMENTAL_RESOURCE_DETECTORS": (
        ("process", "os,host", "*"),
        ("x", "os,,host", "containr"),
    ),
    "OTEL_EXPORTER_OTLP_METRICS_DEFAULT_HISTOGRAM_AGGREGATION": (
        ("explicit_bucket_histogram", "BASE2_EXPONENTIAL_BUCKET_HISTOGRAM"),
        WORDS,
    ),
    "OTEL_EXPORTER_OTLP_METRICS_TEMPORALITY_PREFERENCE": (
        ("cumulative", "DELTA", "lowmemory"),
        WORDS,
    ),
    "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT": (
        ("SPAN_ONLY", "span_and_event", "NO_CONTENT", "EVENT_ONLY", "false"),
        ("true", "SPANS", "1"),
    ),
    "OTEL_METRICS_EXEMPLAR_FILTER": (
        ("always_on", "always_off", "trace_based"),
        WORDS,
    ),
    "OTEL_METRICS_EXPORTER": (
        ("otlp", "console", "none", "prometheus", "otlp, console", "otlp,"),
        ("oltp", "otlp console", "zipkin"),
    ),
    "OTEL_METRIC_EXPORT_INTERVAL": _SECONDS,
    "OTEL_METRIC_EXPORT_TIMEOUT": _SECONDS,
    "OTEL_PROPAGATORS": (
        ("tracecontext", "tracecontext,baggage", "none", "None, x", " "),
        ("x", "tracecontext,", "tracecontext,baggag", "jaeger", "B3", ","),
    ),
    "OTEL_PYTHON_CONTEXT": (("contextvars_context",), ("x", "gevent")),
    "OTEL_PYTHON_LOGGER_PROVIDER": (("sdk_logger_provider",), ("x",)),
    "OTEL_PYTHON_METER_PROVIDER": (("sdk_meter_provider",), ("x",)),
    "OTEL_PYTHON_SDK_INTERNAL_METRICS_ENABLED": _BOOLEAN,
    "OTEL_PYTHON_TRACER_PROVIDER": (("sdk_tracer_provider",), ("x",)),
    "OTEL_RESOURCE_ATTRIBUTES": (
        ("a=b", "a=b,c=d%20e", "a=,", "a=b=c"),
        ("a", "a=b,c", "=b"),
    ),
    "OTEL_SDK_DISABLED": _BOOLEAN,
    "OTEL_TRACES_EXPORTER": (
        ("otlp", "console", "none", "otlp,console"),
        ("zipkin", "prometheus", "otlp;console"),
    ),
    "OTEL_TRACES_SAMPLER": (
        ("always_on", "ALWAYS_OFF", "parentbased_always_off", "traceidratio"),
        ("always", "xray", "jaeger_remote", "0.5"),
    ),
}
CASES = [
    (name, value, is_supported)
    for name, (supported, others) in VALUES.items()
    for values, is_supported in ((supported, True), (others, False))
    for value in values
]
_NOT_READ = {
    # parts that the service does not have: logs, Zipkin, gRPC, and the SDK's own set-up of programs
    "OTEL_LOGS_EXPORTER",
    "OTEL_EXPORTER_OTLP_LOGS_PROTOCOL",
    "OTEL_EXPORTER_PROMETHEUS_HOST",
    "OTEL_EXPORTER_PROMETHEUS_PORT",
    "OTEL_EXPORTER_ZIPKIN_ENDPOINT",
    "OTEL_EXPORTER_ZIPKIN_TIMEOUT",
    "OTEL_CONFIG_FILE",
    "OTEL_LOG_LEVEL",
    "OTEL_PYTHON_ID_GENERATOR",
    "OTEL_PYTHON_LOGGING_AUTO_INSTRUMENTATION_ENABLED",
    "OTEL_PYTHON_LOGGER_CONFIGURATOR",
    "OTEL_PYTHON_METER_CONFIGURATOR",
    "OTEL_PYTHON_TRACER_CONFIGURATOR",
    # any text is a name
    "OTEL_SERVICE_NAME",
}
_IN_PAIRS = {
    "OTEL_EXPORTER_OTLP_PROTOCOL",
    "OTEL_EXPORTER_OTLP_METRICS_PROTOCOL",
    "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL",
    "OTEL_TRACES_SAMPLER_ARG",
}
"""Their values are checked if another variable has them used."""


def names_of_sdk() -> Iterator[str]:
    for module in (
        opentelemetry.environment_variables,
        opentelemetry.sdk.environment_variables,
    ):
        for value in vars(module).values():
            if isinstance(value, str) and value.startswith("OTEL_"):
                yield value


def test_every_variable_is_known() -> None:
    """The table has all variables that the SDK reads: a new one of a release of the SDK is found here."""
    of_sdk = {name for name in names_of_sdk() if "GRPC" not in name}
    checked = {*otel_variables.OF_API, *otel_variables.OF_SDK}
    exporters = {"OTEL_METRICS_EXPORTER", "OTEL_TRACES_EXPORTER"}
    assert of_sdk - checked - exporters == _NOT_READ | _IN_PAIRS
    assert set(VALUES) == checked | exporters


@pytest.mark.parametrize(("name", "value", "is_supported"), CASES)
def test_a_value(
    monkeypatch: pytest.MonkeyPatch, name: str, value: str, is_supported: bool
) -> None:
    """A supported one passes; of another, the error names the variable."""
    monkeypatch.setenv(name, value)
    if is_supported:
        check_otel_variables()
        return
    with pytest.raises(ConfigurationError) as raised:
        check_otel_variables()
    assert name in raised.value.message


@pytest.mark.parametrize(
    ("variables", "name"),
    [
        (
            {"OTEL_TRACES_SAMPLER": sampler, "OTEL_TRACES_SAMPLER_ARG": ratio},
            "OTEL_TRACES_SAMPLER_ARG",
        )
        for sampler in ("traceidratio", "parentbased_traceidratio")
        for ratio in ("2", "-0.1", "x", "nan")
    ]
    + [
        (
            {f"OTEL_{of}_EXPORTER": "otlp", variable: "grpc"},
            variable,
        )
        for of in ("TRACES", "METRICS")
        for variable in (
            "OTEL_EXPORTER_OTLP_PROTOCOL",
            f"OTEL_EXPORTER_OTLP_{of}_PROTOCOL",
        )
    ]
    + [
        (
            {
                f"OTEL_{of}_MAX_QUEUE_SIZE": "10",
                f"OTEL_{of}_MAX_EXPORT_BATCH_SIZE": "20",
            },
            f"OTEL_{of}_MAX_EXPORT_BATCH_SIZE",
        )
        for of in ("BSP", "BLRP")
    ],
)
def test_values_that_do_not_go_together(
    monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], name: str
) -> None:
    for key, value in variables.items():
        monkeypatch.setenv(key, value)
    with pytest.raises(ConfigurationError, match=name):
        check_otel_variables()


def test_all_mistakes_are_named_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Without what may be a key in them."""
    monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "soon")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", "Bearer sesame")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "ftp://me:sesame@c/?k=v")
    with pytest.raises(ConfigurationError) as raised:
        check_otel_variables()
    for name in ("BSP_SCHEDULE_DELAY", "OTLP_HEADERS", "OTLP_ENDPOINT"):
        assert name in raised.value.message
    assert "sesame" not in raised.value.message
    monkeypatch.setenv("OTEL_SDK_DISABLED", "true")
    check_otel_variables()


def test_an_application_of_a_program(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_SPAN_LINK_COUNT_LIMIT", "many")
    with pytest.raises(ConfigurationError, match="OTEL_SPAN_LINK_COUNT_LIMIT"):
        serve(Agent("a", "Do.", "offline/echo"))


TRACE = "463ac35c9f6413ad48485a3953bb6124"
SPAN = "a2fb4a1d1a96d312"
CALLER = {
    "traceparent": f"00-{TRACE}-{SPAN}-01",
    "b3": f"{TRACE}-{SPAN}-1",
    "x-b3-traceid": TRACE,
    "x-b3-spanid": SPAN,
    "x-b3-sampled": "1",
}


def run_of(
    command: Command, address: Address, *headers: str, **variables: Any
) -> str:
    """The log of a service that answers one run, whose caller sends these headers."""
    process = command(
        "serve", "made:agent", "--host", "127.0.0.1", "--port", "0",
        code="import sys, types, podwright\n"
        "made = sys.modules['made'] = types.ModuleType('made')\n"
        "made.agent = podwright.Agent('echo', 'Repeat.', 'offline/echo')\n" + SERVE,
        PODWRIGHT_LOG_FORMAT="json", **variables,
    )  # fmt: skip
    response = plain_http.post(
        f"{address(process)}/run",
        json={"input": "x"},
        headers={name: CALLER[name] for name in headers},
    )
    assert response.status_code == 200, response.text
    process.send_signal(signal.SIGTERM)
    output, _ = process.communicate(timeout=60)
    assert process.returncode == 0, output
    return output


@pytest.mark.parametrize("exporter", ["console", "none"])
@pytest.mark.parametrize(
    ("propagators", "header"),
    [
        ("tracecontext,baggage", "traceparent"),
        ("b3", "b3"),
        ("b3multi", "x-b3-traceid x-b3-spanid x-b3-sampled"),
        ("tracecontext,baggage,b3", "b3"),
        ("", "traceparent"),
    ],
)
def test_the_trace_of_a_caller_goes_on(
    command: Command,
    address: Address,
    propagators: str,
    header: str,
    exporter: str,
) -> None:
    """In the headers that the variable names, with and without spans of its own."""
    if "b3" in propagators:
        pytest.importorskip("opentelemetry.propagators.b3")
    output = run_of(
        command,
        address,
        *header.split(),
        OTEL_PROPAGATORS=propagators,
        OTEL_TRACES_EXPORTER=exporter,
    )
    assert TRACE in output


@pytest.mark.parametrize("exporter", ["console", "none"])
def test_no_propagators(
    command: Command, address: Address, exporter: str
) -> None:
    """A service that reads no trace context answers, and begins traces of its own."""
    output = run_of(
        command,
        address,
        "traceparent",
        OTEL_PROPAGATORS="none",
        OTEL_TRACES_EXPORTER=exporter,
    )
    assert TRACE not in output


@pytest.mark.parametrize("arguments", ["serve made:agent", "settings --check"])
@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("OTEL_PROPAGATORS", "b4"),
        ("OTEL_PROPAGATORS", "tracecontext,"),
        ("OTEL_PYTHON_TRACER_PROVIDER", "x"),
        ("OTEL_PYTHON_TRACER_PROVIDER", "sdk_tracer_provider"),
        ("OTEL_SPAN_ATTRIBUTE_COUNT_LIMIT", "x"),
        ("OTEL_BSP_MAX_QUEUE_SIZE", "99999999999999999999"),
        ("OTEL_METRICS_EXEMPLAR_FILTER", "x"),
        ("OTEL_PYTHON_EXPORTER_OTLP_HTTP_CREDENTIAL_PROVIDER", "x"),
    ],
)
def test_the_command_names_the_variable(
    command: Command, arguments: str, name: str, value: str
) -> None:
    """In an error without a traceback, before anything is loaded."""
    process = command(*arguments.split(), code=SERVE, **{name: value})
    output, _ = process.communicate(timeout=60)
    assert process.returncode == 1
    assert "Traceback" not in output
    assert "configuration_invalid" in output
    assert name in output
