"""Where spans go: what the `OTEL_` variables may say, and collectors that do not do as they should."""

from __future__ import annotations

import gzip
import socket
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTracePartialSuccess,
    ExportTraceServiceResponse,
)
from opentelemetry.sdk.trace.export import SpanExportResult

from podwright.errors import ConfigurationError
from podwright_service.observability import export
from podwright_service.testing.serving import LocalServer, Request, reply

Command = Callable[..., subprocess.Popen[str]]

SECRET = "sk-secret"
OK, FAILURE = SpanExportResult.SUCCESS, SpanExportResult.FAILURE


class Raw(LocalServer):
    """Answers with some bytes; those after the first are a tenth of a second apart."""

    def __init__(self, at_once: bytes, slowly: bytes = b"") -> None:
        super().__init__()
        self.at_once, self.slowly, self.peers = at_once, slowly, []

    def respond(self, request: Request, connection: socket.socket) -> bool:
        self.peers.append(connection.getpeername())
        connection.sendall(self.at_once)
        for one in self.slowly:
            self.over.wait(0.1)
            connection.sendall(bytes([one]))
        return True


def sent(*answers: Raw) -> list[SpanExportResult]:
    """What the exporter makes of some answers."""
    results = []
    for one in answers:
        with one, pytest.MonkeyPatch.context() as patch:
            patch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", one.url)
            exporter = OTLPSpanExporter(session=export._session())
            results += [exporter.export([]), exporter.export([])]
            exporter.shutdown()
    return results


@pytest.fixture(autouse=True)
def asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:4318")


def refused(**variables: str) -> ConfigurationError:
    with pytest.MonkeyPatch.context() as patch:
        for name, value in variables.items():
            patch.setenv(name, value)
        with pytest.raises(ConfigurationError) as caught:
            export.Delivery({}, "podwright", "1")
    return caught.value


def unserved(command: Command, tmp_path: Path, **variables: str) -> str:
    """What the command says that does not start."""
    (tmp_path / "made.py").write_text("from podwright import Agent\nagent = Agent('a', 'Go.', model='offline/echo')\n")
    process = command("serve", "made:agent", "--port", "0", cwd=tmp_path, PYTHONPATH=str(tmp_path), **variables)
    said, _ = process.communicate(timeout=60)
    assert process.returncode == 1
    assert said.startswith("ConfigurationError [configuration_invalid]: "), said
    return said


@pytest.mark.parametrize("name", ["OTEL_EXPORTER_OTLP_HEADERS", "OTEL_EXPORTER_OTLP_TRACES_HEADERS"])
@pytest.mark.parametrize(
    "value",
    [
        f"authorization: Bearer {SECRET}",
        SECRET,
        f"a b={SECRET}",
        f"authorization={SECRET}\nx=1",
        f"authorization={SECRET}é",
        f"authorization={SECRET}%E2%82%AC",
        f"authorization={SECRET}%0d%0ax:1",
        f"=%20{SECRET}",
    ],
)
def test_headers_that_are_none_stop_the_start(name: str, value: str) -> None:
    """The error names the variable and the place in it; the value may be a key, and is nowhere."""
    error = refused(**{name: f"x-first=1, ,{value}"})
    assert str(error).startswith(f"{name}: entry 3 is no header.")
    assert SECRET not in f"{error!r}{error}{error.suggestion}"
    assert error.__suppress_context__


def test_keys_of_a_collector_are_not_told(command: Command, tmp_path: Path) -> None:
    """A colon in place of `=` stops the start, and what was written after it is in no line."""
    wrong = f"authorization: Bearer {SECRET}"
    said = unserved(
        command, tmp_path, OTEL_EXPORTER_OTLP_ENDPOINT="http://127.0.0.1:1", OTEL_EXPORTER_OTLP_HEADERS=wrong
    )
    assert "OTEL_EXPORTER_OTLP_HEADERS: entry 1 is no header." in said
    assert SECRET not in said


@pytest.mark.parametrize("at_once", ["", "HTTP/1.1 200 OK\r\ncontent-length: 60\r\n\r\n"], ids=["head", "body"])
def test_a_collector_that_drips_is_left_in_time(monkeypatch: pytest.MonkeyPatch, at_once: str) -> None:
    """The time-out holds for an answer as a whole, which would be a good one in its end."""
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "1")
    whole = f"HTTP/1.1 200 OK\r\nx: {'y' * 60}\r\ncontent-length: 0\r\n\r\n"
    assert sent(Raw(at_once.encode(), b"y" * 60 if at_once else whole.encode())) == [FAILURE, FAILURE]


def test_a_collector_that_says_too_much_is_not_read() -> None:
    """What is longer than 64 KiB, packed or not, fails; what is not is taken, over one connection."""
    long, short = (bytes(64 * 1024 + more) for more in (1, 0))
    packed = reply(gzip.compress(long), headers={"content-encoding": "gzip"})
    assert sent(Raw(reply(long)), Raw(packed)) == [FAILURE] * 4
    taken = Raw(reply(short))
    assert sent(taken) == [OK, OK]
    assert len(set(taken.peers)) == 1


@pytest.mark.parametrize("status", [301, 304, 307])
def test_a_redirect_is_no_delivery(status: int) -> None:
    """It is not followed, so the spans went nowhere."""
    elsewhere = Raw(reply(b"", status, headers={"location": "/v1/traces"}))
    assert sent(elsewhere) == [FAILURE, FAILURE]
    assert len(elsewhere.peers) == 2


def test_rejected_spans_are_told_once(caplog: pytest.LogCaptureFixture) -> None:
    """A collector may take a request and not all of its spans; an answer in another format says nothing of that."""
    rejected = ExportTracePartialSuccess(rejected_spans=5, error_message=SECRET)
    message = ExportTraceServiceResponse(partial_success=rejected)
    answers = [Raw(reply(body)) for body in (message.SerializeToString(), b"{}", b"<html>", b"")]
    assert sent(*answers) == [OK] * 8
    assert [record.getMessage() for record in caplog.records] == [
        "The collector took spans but rejected some, 5 at first; its own log says why."
    ]


def test_an_answer_that_the_exporter_cannot_read_is_a_failure(caplog: pytest.LogCaptureFixture) -> None:
    """A date that there is not, in Retry-After, is told as any other failure, and so is what comes after it."""
    date = {"retry-after": "Wed, 99 Oct 99999999999999 07:28:00 GMT"}
    with Raw(reply(b"", 503, headers=date)) as one, pytest.MonkeyPatch.context() as patch:
        patch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", one.url)
        calm = export._Calm(OTLPSpanExporter(session=export._session()), export._Loss())
        assert [calm.export([]), calm.export([])] == [FAILURE, FAILURE]
    assert [record.getMessage() for record in caplog.records] == [
        "Spans cannot be delivered to the collector and are dropped until they can."
    ]


@pytest.mark.parametrize("name", ["OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"])
@pytest.mark.parametrize(
    "value",
    [
        "localhost:4318",
        "::::",
        "http://",
        "http://[::1",
        f"http://me:{SECRET}@localhost:99999",
        "http://localhost:4318 ",
        "http://local host",
        "file:///etc/passwd",
        "grpc://localhost:4317",
    ],
)
def test_an_endpoint_that_is_none_stops_the_start(name: str, value: str) -> None:
    """The error names the variable, and not the value: an address may hold a key."""
    error = refused(**{name: value})
    assert str(error).startswith(f"{name} is no address that spans can be sent to.")
    assert SECRET not in f"{error!r}{error}{error.suggestion}"
    assert error.__suppress_context__


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *(("OTEL_EXPORTER_OTLP_TIMEOUT", value) for value in ("ten", "10s", "-1", "0", "nan", "inf", "1e99")),
        ("OTEL_EXPORTER_OTLP_TRACES_TIMEOUT", "ten"),
        ("OTEL_EXPORTER_OTLP_COMPRESSION", "zstd"),
        ("OTEL_EXPORTER_OTLP_TRACES_COMPRESSION", "zstd"),
        *(("OTEL_BSP_MAX_QUEUE_SIZE", value) for value in ("many", "0", "-1", "9" * 20)),
        *(("OTEL_BSP_SCHEDULE_DELAY", value) for value in ("x", "0", "-5", "9" * 20)),
        *(("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", value) for value in ("x", "0", "-1")),
        ("OTEL_BSP_EXPORT_TIMEOUT", "x"),
    ],
)
def test_a_number_or_name_that_is_none_stops_the_start(name: str, value: str) -> None:
    """The error names the variable with what it holds."""
    assert str(refused(**{name: value})).startswith(f"{name} is '{value}'.")


@pytest.mark.parametrize("variables", [{"OTEL_BSP_MAX_QUEUE_SIZE": "256"}, {"OTEL_BSP_MAX_EXPORT_BATCH_SIZE": "4096"}])
def test_a_batch_larger_than_the_queue_stops_the_start(variables: dict[str, str]) -> None:
    """Both variables are named, of which one may not be set at all."""
    said = str(refused(**variables))
    assert "OTEL_BSP_MAX_EXPORT_BATCH_SIZE" in said
    assert "OTEL_BSP_MAX_QUEUE_SIZE" in said


def test_what_is_set_to_nothing_is_as_usual(monkeypatch: pytest.MonkeyPatch) -> None:
    """An empty variable counts as none, as OpenTelemetry has it."""
    for name, *_ in export._USUAL.values():
        monkeypatch.setenv(name, "")
    assert export._sizes() == {name: usual for name, (_, usual, _) in export._USUAL.items()}


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("OTEL_SPAN_LINK_COUNT_LIMIT", "x"),
        ("OTEL_ATTRIBUTE_VALUE_LENGTH_LIMIT", "-1"),
        ("OTEL_PYTHON_EXPORTER_OTLP_HTTP_TRACES_CREDENTIAL_PROVIDER", "nobody"),
    ],
)
def test_what_the_sdk_refuses_stops_the_start(name: str, value: str) -> None:
    """Its own words tell which variable it is, or what it holds."""
    said = str(refused(**{name: value}))
    assert name in said or value in said


@pytest.mark.parametrize("name", ["OTEL_PROPAGATORS", "OTEL_SPAN_ATTRIBUTE_COUNT_LIMIT"])
def test_what_the_sdk_refuses_at_its_import_stops_the_start(command: Command, tmp_path: Path, name: str) -> None:
    """There is an error in words, and no traceback."""
    said = unserved(command, tmp_path, OTEL_EXPORTER_OTLP_ENDPOINT="http://127.0.0.1:1", **{name: "nonsense"})
    assert name in said
    assert "Suggestion: " in said
    assert "Traceback" not in said
