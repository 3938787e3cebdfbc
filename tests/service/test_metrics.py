"""Metrics as Prometheus' own parsers read them."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import subprocess
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as read_openmetrics
from tests.service.exported_metrics import exported

import podwright
from podwright import Agent, FunctionModel, ScriptedModel
from podwright.testing import ToolCall
from podwright_service.observability import RequestTelemetryMiddleware
from podwright_service.observability.metrics import INLINE, UNKNOWN, Metrics
from podwright_service.testing import Metrics as Scrape

Serve = Callable[..., httpx.Client]

DOCS = Path(__file__).parents[2] / "docs" / "telemetry.md"
LOOKER = {"component": "looker", "kind": "agent"}


def scrape(client: httpx.Client) -> Scrape:
    response = client.get("/metrics")
    assert response.status_code == 200
    assert response.headers["content-type"].startswith("text/plain")
    return Scrape(response.text)


def look(place: str) -> str:
    """Look somewhere."""
    return f"nothing in {place}"


def looker(*script: Any) -> Agent:
    return Agent("looker", "Look.", ScriptedModel(*script), tools=[look])


def test_a_run_its_calls_and_its_request_are_counted(serve: Serve) -> None:
    """The counters equal the usage in the response's header."""
    client = serve(looker(ToolCall.of("look", place="cellar"), "done"))
    response = client.post("/run", json={"input": "where?"})
    input_tokens, output_tokens = (
        int(part.split("=")[1]) for part in response.headers["podwright-usage"].split(", ")[:2]
    )
    metrics = scrape(client)
    assert metrics.get("podwright_runs_total", **LOOKER, status="ok") == 1
    assert metrics.get("podwright_runs_in_progress", **LOOKER) == 0
    assert metrics.get("podwright_tokens_total", **LOOKER, type="input") == input_tokens
    assert metrics.get("podwright_tokens_total", **LOOKER, type="output") == output_tokens
    assert metrics.get("podwright_model_calls_total", **LOOKER, status="ok") == 2
    assert metrics.get("podwright_tool_calls_total", **LOOKER, tool="look", status="ok") == 1
    assert metrics.get("podwright_http_requests_total", method="POST", route="/run", status="200") == 1
    assert metrics.get("podwright_run_duration_seconds_count", **LOOKER) == 1
    assert metrics.get("podwright_component_info", **LOOKER, version=podwright.__version__) == 1


def test_the_documented_metrics_are_the_exported_ones() -> None:
    """Names and labels in `docs/telemetry.md`, on which dashboards and alerts rely, are those of a scrape."""
    rows = [line.split("|") for line in DOCS.read_text().splitlines() if line.startswith("| `podwright_")]
    documented = {row[1].strip(" `"): set(re.findall(r"\w+", row[2])) for row in rows}
    series = {re.sub("_(bucket|count|sum)$", "", name): labels for name, labels in exported().items()}
    assert {name: set(labels) - {"component", "kind", "le"} for name, labels in series.items()} == documented
    assert all({"component", "kind"} <= labels for labels in series.values())


def test_names_from_outside_are_not_labels(serve: Serve) -> None:
    """Unknown paths and methods, tools that a model invents and inline blueprints share one label value each."""
    client = serve(looker(ToolCall.of("invented"), "done"))
    assert client.post("/run", json={"input": "where?"}).status_code == 200
    client.get("/canary")
    client.request("PROPFIND", "/run")
    blueprint = {"name": "canary", "instructions": "x", "config": {"model": "offline/echo", "max_loops": 1}}
    inline = serve(Agent("open", "Help.", model="offline/echo"))
    body = {"type": "agent", "input": "x", "blueprint": {**blueprint, "tools": []}}
    assert inline.post("/run-blueprint", json=body).status_code == 200
    metrics = scrape(client)
    assert metrics.get("podwright_tool_calls_total", tool=UNKNOWN, status="failed") == 1
    assert metrics.get("podwright_http_requests_total", route=UNKNOWN) == 1
    assert metrics.get("podwright_http_requests_total", method=UNKNOWN) == 1
    assert scrape(inline).get("podwright_runs_total", component=INLINE, kind="agent") == 1
    assert scrape(inline).get("podwright_tokens_total", component=INLINE) > 0
    for text in (client.get("/metrics").text, inline.get("/metrics").text):
        assert not [name for name in ("canary", "invented", "PROPFIND") if name in text]


def test_a_budget_stop_names_the_limit(serve: Serve) -> None:
    """A run that a limit stops is failed, and `budget_stops_total` has the limit."""
    client = serve(looker(ToolCall.of("look", place="x")), run_tokens=1)
    assert client.post("/run", json={"input": "where?"}).status_code == 422
    metrics = scrape(client)
    assert metrics.get("podwright_budget_stops_total", limit="tokens") == 1
    assert metrics.get("podwright_runs_total", status="failed") == 1


def test_openmetrics_is_served_on_request(serve: Serve) -> None:
    """A client that accepts OpenMetrics gets a document that the format's own parser reads."""
    client = serve(Agent("open", "Help.", model="offline/echo"))
    client.post("/run", json={"input": "x"})
    response = client.get("/metrics", headers={"accept": "application/openmetrics-text;version=1.0.0"})
    assert response.headers["content-type"].startswith("application/openmetrics-text")
    families = {family.name for family in read_openmetrics(response.text)}
    assert "podwright_runs" in families
    assert not [name for name in families if name.endswith("_created")]


@pytest.mark.parametrize(
    "accept", ["application/openmetrics-text; version=abc", "text/plain; version=1..0", ",;" * 9000]
)
def test_an_invalid_accept_header_gets_the_text_format(accept: str) -> None:
    """An unreadable version or list in the header is not an error."""
    content, media_type = Metrics("a", "agent").render(accept)
    assert media_type.startswith("text/plain")
    assert Scrape(content.decode()).get("podwright_component_info") == 1


async def responds(scope: Any, receive: Any, send: Any) -> None:
    await send({"type": "http.response.start", "status": 204, "headers": []})


async def raises(scope: Any, receive: Any, send: Any) -> None:
    raise ZeroDivisionError


async def is_cancelled(scope: Any, receive: Any, send: Any) -> None:
    raise asyncio.CancelledError


@pytest.mark.parametrize(("app", "status"), [(responds, "204"), (raises, "500"), (is_cancelled, "499")])
async def test_every_end_of_a_request_has_a_status(app: Any, status: str) -> None:
    """A request that fails is a 500, and one whose client disconnected before the response a 499."""
    metrics = Metrics("a", "agent", routes={"/run"})
    observability: Any = SimpleNamespace(metrics=metrics)
    sent: list[Any] = []

    async def send(message: Any) -> None:
        sent.append(message)

    scope = {"type": "http", "method": "POST", "path": "/run", "headers": []}
    with contextlib.suppress(ZeroDivisionError, asyncio.CancelledError):
        await RequestTelemetryMiddleware(app, observability)(scope, _never_called, send)
    scrape = Scrape(metrics.render("")[0].decode())
    assert scrape.get("podwright_http_requests_total", method="POST", route="/run", status=status) == 1
    assert scrape.get("podwright_http_request_duration_seconds_count", route="/run") == 1
    assert not [message for message in sent if message["headers"]]


async def _never_called() -> Any:
    raise AssertionError


FORKED_WORKERS = """
import asyncio, os, sys
from podwright import Agent
from podwright.run import Task, execute
from podwright_service.observability import RequestTelemetryMiddleware
from podwright_service.observability.metrics import Metrics
agent = Agent("a", "x", model="offline/echo")
metrics = Metrics("a", "agent", components={"a"}, models={"offline/echo"})
def run():
    asyncio.run(execute(agent, Task("x"), subscribers=(metrics.subscriber(),)))
for _ in range(2):
    if (child := os.fork()) == 0:
        run()
        os._exit(0)
    os.waitpid(child, 0)
run()
sys.stdout.buffer.write(metrics.render("")[0])
"""


def test_the_metrics_of_several_processes_add_up(tmp_path: Path) -> None:
    """With `PROMETHEUS_MULTIPROC_DIR`, a scrape of one process has the sums of all."""
    process = subprocess.run(
        [sys.executable, "-c", FORKED_WORKERS],
        env={**os.environ, "PROMETHEUS_MULTIPROC_DIR": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert process.returncode == 0, process.stderr
    metrics = Scrape(process.stdout)
    assert metrics.get("podwright_runs_total", status="ok") == 3
    assert metrics.get("podwright_model_call_duration_seconds_count") == 3
    assert metrics.get("podwright_component_info") == 1
    assert metrics.get("podwright_runs_in_progress") == 0


def test_waiting_and_rejected_runs_follow_the_admission_queue() -> None:
    """The series exist before the first event, and each change of the queue updates them."""
    admission: Any = SimpleNamespace(waiting=0, rejected={"full": 0, "waited": 0}, on_change=None)
    metrics = Metrics("a", "agent")
    metrics.track(admission)

    def read(name: str, **labels: str) -> float:
        return Scrape(metrics.render("")[0].decode()).get(name, **labels)

    assert 'reason="waited"' in metrics.render("")[0].decode()
    assert (read("podwright_runs_waiting"), read("podwright_runs_rejected_total")) == (0, 0)
    admission.waiting, admission.rejected["full"] = 3, 2
    admission.on_change()
    assert (read("podwright_runs_waiting"), read("podwright_runs_rejected_total", reason="full")) == (3, 2)
    admission.waiting, admission.rejected["full"] = 0, 5
    admission.on_change()
    assert (read("podwright_runs_waiting"), read("podwright_runs_rejected_total", reason="full")) == (0, 5)


def test_a_rejected_request_is_counted(serve: Serve) -> None:
    """At capacity, the run that is active and the request that is rejected are in the metrics."""
    entered, release = threading.Event(), threading.Event()

    async def answer(_: object) -> str:
        entered.set()
        assert await asyncio.to_thread(release.wait, 20)
        return "done"

    client = serve(Agent("a", "Help.", FunctionModel(answer)), max_runs=1, max_waiting=0, max_wait=0.0)
    with ThreadPoolExecutor(1) as pool:
        active = pool.submit(client.post, "/run", json={"input": "x"})
        assert entered.wait(20)
        assert client.post("/run", json={"input": "y"}).status_code == 503
        metrics = scrape(client)
        release.set()
        assert active.result().status_code == 200
    assert metrics.get("podwright_runs_in_progress", component="a") == 1
    assert metrics.get("podwright_runs_rejected_total", reason="full") == 1
    assert metrics.get("podwright_http_requests_total", route="/run", status="503") == 1
