"""Spans in programs that contain services, or none: whose tracer provider is used, and that each span is made once."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
from tests.helpers import environment

PROGRAM = """
import json
from fastapi import FastAPI
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from starlette.testclient import TestClient
from tests.service.mounting import mount
import podwright_service
from podwright import Agent, ScriptedModel
from podwright.testing import ToolCall
from podwright_service import Settings, create_app

exporter = InMemorySpanExporter()
provider = TracerProvider()
provider.add_span_processor(SimpleSpanProcessor(exporter))


def look():
    "Look."
    with trace.get_tracer("tool").start_as_current_span("tool"):
        return "seen"


def component(name):
    model = ScriptedModel(ToolCall.of("look"), "yes")
    return Agent(name, "Help.", model, tools=[look])


{body}
print("SPANS", json.dumps([span.name for span in exporter.get_finished_spans()]))
"""
REQUESTS = """
with TestClient(mount(a=a, b=b)) as client:
    for path in ("/a/run", "/b/run"):
        assert client.post(path, json={"input": "?"}).status_code == 200
"""
RUN = ["invoke_agent", "chat", "execute_tool"]


def finished(body: str, **variables: str) -> tuple[list[str], str]:
    """The names of the spans in the program's own provider, and what the program has printed."""
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", PROGRAM.replace("{body}", body)],
        env=environment(PYTHONPATH=".", **variables),
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    printed, _, spans = done.stdout.rpartition("SPANS ")
    return json.loads(spans), printed + done.stderr


def of_runs(spans: list[str]) -> list[str]:
    names = [name.partition(" ")[0] for name in spans]
    return sorted(name for name in names if name in RUN)


BOTH = """
trace.set_tracer_provider(provider)
a = create_app(Settings(), component("first"))
b = create_app(Settings(), component("second"))
"""


@pytest.mark.parametrize("recorded", ["", "podwright_service.record_spans()\n"])
def test_services_use_the_provider_of_the_program(recorded: str) -> None:
    """Spans of mounted components go to the global provider, each once, and the program can still use it."""
    after = "assert provider.force_flush()\nprovider.get_tracer('x').start_span('after').end()\n"
    spans, _ = finished(recorded + BOTH + REQUESTS + after)
    assert of_runs(spans) == sorted(2 * ["chat", *RUN])
    assert spans.count("tool") == 2
    assert {"POST /a/run", "POST /b/run", "after"} <= set(spans)


def test_a_service_takes_no_provider_from_the_program() -> None:
    """A program may set its provider after `create_app`, which has made another one, without a warning."""
    body = """
a = create_app(Settings(), component("first"))
b = create_app(Settings(), component("second"))
trace.set_tracer_provider(provider)
"""
    spans, printed = finished(body + REQUESTS, OTEL_TRACES_EXPORTER="console")
    assert spans.count("tool") == 2
    assert of_runs(spans) == []
    assert "Overriding" not in printed
    assert printed.count('"name": "invoke_agent') == 2


def test_a_program_without_a_provider_gets_that_of_a_service() -> None:
    """If the variables ask for spans, those of tools are exported by the first service."""
    body = """
a = create_app(Settings(), component("first"))
b = create_app(Settings(), component("second"))
assert isinstance(trace.get_tracer_provider(), trace.ProxyTracerProvider)
"""
    spans, printed = finished(body + REQUESTS, OTEL_TRACES_EXPORTER="console")
    assert spans == []
    assert printed.count('"name": "tool"') == 2
    assert "Overriding" not in printed


@pytest.mark.parametrize("order", ["before", "after"])
def test_the_library_alone(order: str) -> None:
    """Spans of all runs go to the provider that the program sets, before or after, until recording ends."""
    record = "stop = podwright_service.record_spans()\n"
    configure = "trace.set_tracer_provider(provider)\n"
    setup = {"before": configure + record, "after": record + configure}
    runs = """
component("one").run("?")
stop()
component("two").run("?")
"""
    spans, _ = finished(setup[order] + runs)
    assert of_runs(spans) == sorted(["chat", *RUN])
    assert "invoke_agent one" in spans
    assert spans.count("tool") == 2


def test_headers_of_models_and_remotes_end_with_recording() -> None:
    """After the last recording ends, and no sooner, requests have no `traceparent`; a service goes on with its own."""
    body = """
import asyncio
from podwright.models.http import client as http
from podwright.remote.remote import PROPAGATORS

sent = []

def look():
    "Look."
    sent.append((sorted(http.propagated()), len(PROPAGATORS)))
    return "seen"

first = podwright_service.record_spans(provider)
second = podwright_service.record_spans(provider)
for stop in (first, first, second):
    component("one").run("?")
    stop()
component("one").run("?")
third = podwright_service.record_spans(provider)
create_app(Settings(), component("two"))
third()
component("one").run("?")
with provider.get_tracer("x").start_as_current_span("around"):
    component("one").run("?")
print(json.dumps(sent))
"""
    _, printed = finished(body)
    sent = json.loads(printed)
    told = [["traceparent"], 1]
    assert sent == [told, told, told, [[], 0], [[], 1], told]


def test_a_provider_for_runs_alone() -> None:
    """`record_spans` may have another provider than the global one."""
    body = """
podwright_service.record_spans(provider)
component("one").run("?")
"""
    spans, _ = finished(body)
    assert of_runs(spans) == sorted(["chat", *RUN])
    assert "tool" not in spans
