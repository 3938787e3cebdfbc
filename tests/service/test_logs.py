"""The log lines of a service."""

from __future__ import annotations

import json
import logging
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.helpers import NO_AUTHORITIES, plain_http
from tests.service.background_support import FLOW, begin, wait
from tests.service.support import Address, Command, Serve, check_end

from podwright import Agent, AgentStep, Workflow, tool
from podwright_service.observability.short_lines import short_line

SECRET = "canary-7d1f"
TRACEPARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
ODD_HEADERS = {
    "baggage": f"{SECRET} {SECRET},"
    + ",".join(f"{SECRET}{number}=1" for number in range(500)),
    "traceparent": TRACEPARENT,
    "tracestate": f"{SECRET}=,{SECRET},a=b,a=b",
}
"""Invalid headers, whose values OpenTelemetry's propagators would log."""


@pytest.fixture
def lines_of(
    command: Command, address: Address, newsroom: Path
) -> Callable[..., list[str]]:
    """Serves one run with a secret input, and returns the lines of the log."""

    def serve(**variables: str) -> list[str]:
        process = command(
            "serve", str(newsroom / "writer"), "--host", "127.0.0.1", "--port", "0",
            PODWRIGHT_MODEL="offline/echo", **variables,
        )  # fmt: skip
        with httpx.Client(
            verify=NO_AUTHORITIES, base_url=address(process), timeout=60
        ) as client:
            assert (
                client.post(
                    "/run", json={"input": SECRET}, headers=ODD_HEADERS
                ).status_code
                == 200
            )
            client.get("/health")
        process.send_signal(signal.SIGTERM)
        return check_end(process).splitlines()

    return serve


def test_a_run_is_one_line_of_fields(
    lines_of: Callable[..., list[str]],
) -> None:
    """By default every line is JSON; the line of a run has status and usage, and neither input nor output."""
    lines: list[dict[str, Any]] = [json.loads(line) for line in lines_of()]
    (run,) = [line for line in lines if line["event"] == "run"]
    assert (run["status"], run["component"], run["kind"], run["level"]) == (
        "ok",
        "writer",
        "agent",
        "info",
    )
    assert run["input_tokens"] > 0
    assert run["output_tokens"] > 0
    assert run["duration_ms"] > 0
    assert "cost_usd" in run
    assert len(run["run_id"]) == 32
    assert run["trace_id"] == TRACEPARENT.split("-")[1], "that of the caller"
    assert SECRET not in json.dumps(lines)
    assert not [line for line in lines if line["event"] == "request"]


def test_lines_inside_a_span_name_it(
    lines_of: Callable[..., list[str]],
) -> None:
    """With tracing, the lines of runs and requests have the ids of the trace and the span."""
    variables = {
        "OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:9",
        "PODWRIGHT_LOG_LEVEL": "debug",
    }
    lines = [json.loads(line) for line in lines_of(**variables)]
    (run,) = [line for line in lines if line["event"] == "run"]
    (request,) = [line for line in lines if line.get("path") == "/run"]
    assert run["trace_id"] == request["trace_id"] == TRACEPARENT.split("-")[1]
    assert (
        len({run["span_id"], request["span_id"], TRACEPARENT.split("-")[2]})
        == 3
    )
    assert SECRET not in json.dumps(lines)


def test_requests_and_content_are_logged_on_request(
    lines_of: Callable[..., list[str]],
) -> None:
    """`log_level=debug` adds a line for each request, `log_content` the input and the output of a run."""
    lines = [
        json.loads(line)
        for line in lines_of(
            PODWRIGHT_LOG_LEVEL="debug", PODWRIGHT_LOG_CONTENT="true"
        )
    ]
    requests = [
        (line["method"], line["path"], line["status"])
        for line in lines
        if line["event"] == "request"
    ]
    assert requests == [("POST", "/run", 200), ("GET", "/health", 200)]
    assert [
        line["input"] for line in lines if line["event"] == "run started"
    ] == [SECRET]
    assert [
        SECRET in line["value"] for line in lines if line["event"] == "run"
    ] == [True]


@pytest.mark.usefixtures("plain_logging")
def test_an_image_is_not_logged(
    serve: Serve, caplog: pytest.LogCaptureFixture
) -> None:
    """Of an image in a data URL, only the beginning is logged."""
    caplog.set_level(logging.INFO, "podwright.run")
    image = {
        "type": "image_url",
        "image_url": {"url": "data:image/png;base64," + "A" * 1000},
    }
    client = serve(Agent("helper", "", "offline/echo"), log_content=True)
    assert client.post("/run", json={"input": [image]}).status_code == 200
    assert "data:image/png;base64,AAA" in caplog.text
    assert "A" * 100 not in caplog.text


@pytest.mark.usefixtures("plain_logging")
@pytest.mark.parametrize("named", [False, True], ids=["input", "inputs"])
def test_files_and_audio_are_not_logged(
    serve: Serve, caplog: pytest.LogCaptureFixture, named: bool
) -> None:
    """Nor as a named input; the name of a file is logged."""
    caplog.set_level(logging.INFO, "podwright.run")
    data = "A" * 1000
    file = {
        "file_data": f"data:application/pdf;base64,{data}",
        "filename": "may.pdf",
    }
    parts = [
        {"type": "file", "file": file},
        {"type": "input_audio", "input_audio": {"data": data, "format": "wav"}},
    ]
    body = {"inputs": {"report": parts}} if named else {"input": parts}
    client = serve(Agent("helper", "", "offline/echo"), log_content=True)
    assert client.post("/run", json=body).status_code == 200
    assert "may.pdf" in caplog.text
    assert "A" * 100 not in caplog.text


@pytest.mark.usefixtures("plain_logging")
def test_a_file_in_a_context_is_not_logged(
    serve: Serve, caplog: pytest.LogCaptureFixture
) -> None:
    """The output of a workflow is its context, with its inputs."""
    caplog.set_level(logging.INFO, "podwright.run")
    url = f"data:application/pdf;base64,{'A' * 1000}"
    file = {"type": "file", "file": {"file_data": url, "filename": "may.pdf"}}
    step = AgentStep(Agent("reader", "", "offline/echo"), output="text")
    client = serve(Workflow("flow", [step]), log_content=True)
    answer = client.post("/run", json={"inputs": {"report": file}})
    assert url in answer.text
    assert "[file: may.pdf]" in caplog.text
    assert "A" * 100 not in caplog.text


@pytest.mark.usefixtures("plain_logging")
def test_what_a_caller_does_is_a_record(
    serve: Serve, sqlite_database: str, caplog: pytest.LogCaptureFixture
) -> None:
    """In a program without structlog, the line has its fields as those of runs have them."""
    caplog.set_level(logging.INFO, "podwright.run")
    key = "0123456789abcdef"
    client = serve(FLOW, runs_database=sqlite_database, api_keys=f"@ann:{key}")
    client.headers["authorization"] = f"Bearer {key}"
    url = begin(client)
    run = wait(client, url, "waiting_for_approval")
    assert client.post(f"{url}/cancel").status_code == 202
    (record,) = (
        record
        for record in caplog.records
        if record.getMessage().startswith("run cancelled")
    )
    fields = {"run_id": run["id"], "component": "flow", "caller": "ann"}
    assert vars(record)["podwright"] == fields
    assert "caller='ann'" in record.getMessage()


def test_the_collectors_key_is_not_logged(
    command: Command, newsroom: Path
) -> None:
    """A malformed variable with headers, which the SDK would log, ends the start without its value."""
    malformed = f"authorization: Bearer {SECRET}"
    variables = {
        "OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:9",
        "OTEL_EXPORTER_OTLP_HEADERS": malformed,
    }
    process = command(
        "serve", str(newsroom / "writer"), "--port", "0",
        PODWRIGHT_MODEL="offline/echo", **variables,
    )  # fmt: skip
    output = check_end(process, code=1)
    assert "OTEL_EXPORTER_OTLP_HEADERS" in output
    assert SECRET not in output


BROKEN_TOOL = f"""
from podwright import Agent, tool
from podwright_service import Service
@tool(on_error="fail")
def look() -> str:
    raise LookupError("{SECRET}")
Service(Agent("looker", "Look.", "offline/echo", tools=[look])).run("127.0.0.1", 0)
"""


def test_a_failing_tool_leaves_a_traceback_in_the_log_only(
    command: Command, address: Address
) -> None:
    """The line has the tool, the run and the trace, at the level of the run's line; callers get none of it."""
    process = command(
        code=BROKEN_TOOL, OTEL_EXPORTER_OTLP_ENDPOINT="http://127.0.0.1:9"
    )
    with httpx.Client(
        verify=NO_AUTHORITIES, base_url=address(process), timeout=60
    ) as client:
        paths = ("/run", "/run?trace=true", "/run/stream")
        plain, traced, streamed = (
            client.post(path, json={"input": "x"}) for path in paths
        )
    assert (
        plain.status_code,
        plain.json()["code"],
        "tool_call_failed" in streamed.text,
    ) == (
        502,
        "tool_failed",
        True,
    )
    assert not [
        text
        for text in (plain.text, traced.text, streamed.text)
        if SECRET in text or "Traceback" in text
    ]
    process.send_signal(signal.SIGTERM)
    lines = [
        json.loads(line)
        for line in process.communicate(timeout=60)[0].splitlines()
    ]
    failures = [line for line in lines if line["event"] == "tool failed"]
    runs = [line for line in lines if line["event"] == "run"]
    for failure, run in zip(failures, runs, strict=True):
        assert failure["tool"] == "look"
        assert f"LookupError: {SECRET}" in failure["exception"]
        assert {
            name: failure[name]
            for name in ("run_id", "trace_id", "level", "component")
        }.items() <= run.items()


LIBRARIES = """
import logging, warnings
import structlog
from podwright_service.observability import configure_logging
from podwright_service.observability.short_lines import short_line
from podwright_service.settings import Settings
configure_logging(Settings(log_format={format!r}))
logging.getLogger("podwright").warning("a\\x1b[2Jb\\nc\\udc80")
structlog.get_logger().info("of a tool", text="a\\x1b[2Jb")
logging.getLogger("library").debug("left out")
logging.getLogger("uvicorn.error").info("started", extra={{"color_message": "\\x1b[36mstarted"}})
logging.getLogger("gunicorn.error").info("booting")
warnings.warn("careful")
try:
    raise ZeroDivisionError("c\\x1b[2Jd")
except ZeroDivisionError:
    logging.getLogger("asyncio").exception("broken")
"""


def output_of_libraries(log_format: str) -> str:
    script = LIBRARIES.format(format=log_format)
    process = subprocess.run(
        [sys.executable, "-c", script],
        capture_output=True,
        timeout=60,
        check=True,
    )
    assert process.stderr == b""
    return process.stdout.decode()


def test_all_loggers_share_one_format() -> None:
    """The standard library's loggers, structlog, the servers and warnings are written as JSON, one line each."""
    lines = [
        json.loads(line) for line in output_of_libraries("json").splitlines()
    ]
    assert [line["level"] for line in lines] == [
        "warning",
        "info",
        "info",
        "info",
        "warning",
        "error",
    ]
    assert [line["event"] for line in lines[1:4]] == [
        "of a tool",
        "started",
        "booting",
    ]
    assert "careful" in lines[4]["event"]
    assert "ZeroDivisionError" in lines[5]["exception"]
    assert "color_message" not in lines[2]


def test_control_characters_cannot_control_a_terminal() -> None:
    """In console mode, escape sequences, line breaks and lone surrogates are replaced."""
    text = output_of_libraries("console")
    assert "\x1b" not in text
    assert "left out" not in text
    (line,) = [line for line in text.splitlines() if "[2Jb\\nc" in line]
    assert "warning" in line
    assert "ZeroDivisionError" in text


def test_short_lines_are_for_people() -> None:
    """Short lines have the time, what happened and the level of warnings; tracebacks, but no other fields."""
    text = output_of_libraries("short")
    assert "\x1b" not in text
    lines = [line.partition(" ")[2] for line in text.splitlines()]
    assert lines[0] == "warning: a\ufffd[2Jb\\nc\ufffd"
    assert lines[1] == "of a tool"
    assert "started" not in lines
    assert "booting" in lines
    assert "error: broken" in lines
    assert "ZeroDivisionError" in text


@pytest.mark.parametrize(
    ("fields", "line"),
    [
        ({}, "writer: ok, 1.2 s"),
        ({"input_tokens": 300}, "writer: ok, 1.2 s, 310 tokens"),
        (
            {"input_tokens": 300, "cost_usd": 0.00213},
            "writer: ok, 1.2 s, 310 tokens, 0.0021 USD",
        ),
        (
            {"status": "error", "code": "tool_failed", "error": "No disk."},
            "writer: error (tool_failed), No disk., 1.2 s",
        ),
        ({"value": "Done."}, "writer: ok, 1.2 s: Done."),
    ],
)
def test_a_short_line_of_a_run(fields: dict[str, Any], line: str) -> None:
    """The line of a run has its component, outcome and duration, and its tokens and cost if there are any."""
    tokens = 0
    if "input_tokens" in fields:
        tokens = 10
    event = {
        "logger": "podwright.run",
        "event": "run",
        "level": "info",
        "component": "writer",
        "status": "ok",
        "duration_ms": 1234.5,
        "input_tokens": 0,
        "output_tokens": tokens,
        "cost_usd": None,
        **fields,
    }
    _, _, text = short_line(None, "info", event).partition(" ")
    assert text == line


def test_a_short_line_of_a_function() -> None:
    """The line of a function has the fields that it gives, and no ids."""
    event = {
        "logger": "podwright.functions",
        "event": "asked",
        "level": "warning",
        "timestamp": "2026-01-01T00:00:00Z",
        "run_id": "01a2",
        "component": "flow",
        "shelf": 7,
    }
    _, _, text = short_line(None, "warning", event).partition(" ")
    assert text == "flow: warning: asked shelf=7"


def test_every_worker_logs_its_runs(
    command: Command, address: Address, newsroom: Path
) -> None:
    """With several processes, each run is one line."""
    process = command(
        "serve", str(newsroom / "writer"), "--host", "127.0.0.1", "--port", "0",
        PODWRIGHT_MODEL="offline/echo", WEB_CONCURRENCY="3",
    )  # fmt: skip
    url = address(process)
    run_ids = [
        plain_http.post(f"{url}/run", json={"input": SECRET}).headers[
            "Podwright-Run-Id"
        ]
        for _ in range(30)
    ]
    process.send_signal(signal.SIGTERM)
    output = check_end(process)
    runs = [
        line["run_id"]
        for line in map(json.loads, output.splitlines())
        if line["event"] == "run"
    ]
    assert sorted(runs) == sorted(run_ids)


REQUESTS = f"""
import logging
import httpx
import urllib3
from podwright import Agent, tool
from podwright_service import Service

PARAMETERS = {{"q": "{SECRET}", "key": "{SECRET}"}}

@tool(on_error="fail")
def look() -> str:
    logging.getLogger("my_tool").info("looking at https://example.com/shelves?page=2")
    pool = urllib3.PoolManager(retries=urllib3.Retry(1, backoff_factor=0))
    try:
        pool.request("GET", "http://127.0.0.1:9/found", fields=PARAMETERS)
    except urllib3.exceptions.MaxRetryError:
        pass
    answer = httpx.MockTransport(lambda request: httpx.Response(404))
    client = httpx.Client(transport=answer, base_url="https://ann:{SECRET}@example.com")
    return client.get("/search", params=PARAMETERS).raise_for_status().text

Service(Agent("looker", "Look.", "offline/echo", tools=[look])).run("127.0.0.1", 0)
"""


@pytest.mark.parametrize("level", ["info", "debug"])
def test_secrets_in_urls_of_tools_are_not_logged(
    command: Command, address: Address, level: str
) -> None:
    """Lines, tracebacks and spans have the URLs of requests without query and password; a tool's own line is whole."""
    process = command(
        code=REQUESTS,
        OTEL_TRACES_EXPORTER="console",
        PODWRIGHT_LOG_LEVEL=level,
    )
    with httpx.Client(
        verify=NO_AUTHORITIES, base_url=address(process), timeout=60
    ) as client:
        assert client.post("/run", json={"input": "x"}).status_code == 502
    process.send_signal(signal.SIGTERM)
    output, _ = process.communicate(timeout=60)
    assert "https://example.com/shelves?page=2" in output
    assert "HTTPStatusError" in output
    assert "/found?…" in output, "the warning of urllib3"
    assert '"exception.stacktrace"' in output
    requests = "HTTP Request: GET https://" in output
    assert requests == (level == "debug")
    assert "example.com/search?…" in output
    assert SECRET not in output


LEVELS = """
import logging
from podwright_service.observability import configure_logging
from podwright_service.settings import Settings
configure_logging(Settings(log_level={level!r}, log_format="json"))
for name in ("httpx", "httpcore.http11", "urllib3.connectionpool", "requests", "botocore.endpoint", "boto3.resources",
             "s3transfer.tasks", "openai._base_client", "anthropic._base_client", "LiteLLM", "LiteLLM Router",
             "aiohttp.client", "aiohttp.access", "sqlalchemy.engine.Engine", "asyncio", "google.auth.transport",
             "azure.core.pipeline.policies.http_logging_policy", "hpack.hpack", "websockets.client",
             "mcp.client.streamable_http", "langchain_core", "twilio.http_client"):
    logging.getLogger(name).info("of a library")
    logging.getLogger(name).warning("GET /search?key=SECRET of a library")
logging.getLogger("my_tool").info("GET /search?page=2")
logging.getLogger().info("GET /search?page=3")
"""


@pytest.mark.parametrize("level", ["info", "debug", "error"])
def test_levels_of_libraries(level: str) -> None:
    """Libraries that log requests do so only at `debug`; their warnings are without queries, other lines whole."""
    done = subprocess.run(
        [sys.executable, "-c", LEVELS.format(level=level)],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    events = [line["event"] for line in lines]
    assert ("of a library" in events) == (level == "debug")
    assert ("GET /search?… of a library" in events) == (level != "error")
    own = {"GET /search?page=2", "GET /search?page=3"}
    assert own.issubset(events) == (level != "error")
    assert "SECRET" not in done.stdout + done.stderr


UNLISTED = """
import logging, sysconfig, warnings
from podwright_service.observability import configure_logging
from podwright_service.settings import Settings
configure_logging(Settings(log_format="json"))
file = sysconfig.get_path("purelib") + "/some_sdk/client.py"
call = compile("logging.getLogger('some_sdk').info('GET %s', '/p?key=SECRET')", file, "exec")
exec(call)
warnings.warn("https://example.com/p?key=SECRET is deprecated")
"""


def test_lines_of_any_installed_package() -> None:
    """Lines of a library that no list has are without queries too, by the file that they come from."""
    done = subprocess.run(
        [sys.executable, "-c", UNLISTED],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert "GET /p?…" in done.stdout
    assert "is deprecated" in done.stdout
    assert "SECRET" not in done.stdout + done.stderr


@pytest.mark.usefixtures("plain_logging")
def test_a_traceback_in_a_program_has_no_query(
    serve: Serve, caplog: pytest.LogCaptureFixture
) -> None:
    """In a program without structlog, its handlers write the traceback of a tool without what is secret in URLs."""

    @tool(on_error="fail")
    def look() -> str:
        """Look."""
        raise LookupError("https://example.com/search?key=SECRET")

    client = serve(Agent("looker", "Look.", "offline/echo", tools=[look]))
    assert client.post("/run", json={"input": "x"}).status_code == 502
    assert "LookupError: https://example.com/search?…" in caplog.text
    assert "SECRET" not in caplog.text


FAILING = """
import contextlib, json, os
import uvicorn
from fastapi import HTTPException
from fastapi.responses import StreamingResponse
from opentelemetry.context import attach
from podwright import Agent
from podwright_service import create_app, read_settings
from podwright_service.observability import configure_logging

settings = read_settings()
configure_logging(settings)
app = create_app(settings, Agent("echo", "Repeat.", "offline/echo"))

class Failing:
    def __init__(self, app):
        self.app = app

    async def __call__(self, scope, receive, send):
        if scope["type"] == "http" and scope["path"] == "/outermost":
            raise LookupError("outermost")
        if scope["type"] == "http" and scope["path"] == "/without-context":
            attach(None)
            raise LookupError("without-context")
        await self.app(scope, receive, send)

app.add_middleware(Failing)

@app.get("/route")
async def route():
    raise LookupError("route")

@app.get("/refusal")
async def refusal():
    raise HTTPException(500, "refusal")

@app.get("/stream")
async def stream():
    async def pieces():
        yield b"one"
        raise LookupError("stream")
    return StreamingResponse(pieces())

uvicorn.run(app, host="127.0.0.1", port=0, log_config=None)
"""


@pytest.mark.parametrize("exporter", ["console", "none"])
def test_every_failure_has_a_line(
    command: Command, address: Address, exporter: str
) -> None:
    """With a traceback: also of the outermost middleware, after a response has begun, and without a context."""
    process = command(
        code=FAILING,
        PODWRIGHT_LOG_FORMAT="json",
        OTEL_TRACES_EXPORTER=exporter,
    )
    url = address(process)
    places = ("outermost", "without-context", "route", "refusal")
    for place in places:
        assert plain_http.get(f"{url}/{place}").status_code == 500
    with pytest.raises(httpx.RemoteProtocolError):
        plain_http.get(f"{url}/stream")
    process.send_signal(signal.SIGTERM)
    output, _ = process.communicate(timeout=60)
    lines = [json.loads(line) for line in output.splitlines()]
    failures = [line for line in lines if line.get("level") == "error"]
    assert len(failures) == 5
    for place, line in zip((*places, "stream"), failures, strict=True):
        assert place in line["exception"]
    # what the server does not know of the request
    assert "GET /route" in failures[2]["exception"]
