"""The metrics of a service."""

from __future__ import annotations

import json
import math
import os
import re
import shutil
import subprocess
import sys
import time
from functools import partial
from pathlib import Path
from typing import Any, Literal

import httpx
import pytest
from tests.helpers import ROOT, until
from tests.service.exported_metrics import exported
from tests.service.support import Gate, Serve, connect

import podwright
from podwright import Agent, LoopStep, ScriptedModel, Workflow, events
from podwright.components import FunctionStep, WorkflowStep
from podwright.errors import ConfigurationError, ModelError
from podwright.messages.usage import RunLimits
from podwright.settings import forget_settings
from podwright.testing import (
    Model,
    ModelRequest,
    ModelResponse,
    RecordingModel,
    ToolCall,
    Usage,
)
from podwright_service.observability.metrics import files as metric_files
from podwright_service.observability.metrics.subscriber import UNKNOWN, Part
from podwright_service.observability.metrics.subscriber import (
    Metrics as Exported,
)
from podwright_service.origin import INLINE
from podwright_service.testing import Metrics

DOCS = ROOT / "docs" / "telemetry.md"
LOOKER = {"component": "looker", "kind": "agent"}


def scrape(client: httpx.Client) -> Metrics:
    response = client.get("/metrics")
    assert response.status_code == 200
    assert response.headers["content-type"].startswith("text/plain")
    return Metrics(response.text)


def look(place: str) -> str:
    """Look somewhere."""
    return f"nothing in {place}"


def looker(*script: Any) -> Agent:
    return Agent("looker", "Look.", ScriptedModel(*script), tools=[look])


def test_a_run_its_calls_and_its_request_are_counted(serve: Serve) -> None:
    """A run's counters equal the usage in the header of its response."""
    client = serve(looker(ToolCall.of("look", place="cellar"), "done"))
    response = client.post("/run", json={"input": "where?"})
    input_tokens, output_tokens = (
        int(part.split("=")[1])
        for part in response.headers["podwright-usage"].split(", ")[:2]
    )
    metrics = scrape(client)
    assert metrics.get("podwright_runs_total", **LOOKER, status="ok") == 1
    assert metrics.get("podwright_runs_in_progress", **LOOKER) == 0
    assert (
        metrics.get("podwright_tokens_total", **LOOKER, type="input")
        == input_tokens
    )
    assert (
        metrics.get("podwright_tokens_total", **LOOKER, type="output")
        == output_tokens
    )
    assert (
        metrics.get("podwright_model_calls_total", **LOOKER, status="ok") == 2
    )
    assert (
        metrics.get(
            "podwright_tool_calls_total", **LOOKER, tool="look", status="ok"
        )
        == 1
    )
    assert (
        metrics.get(
            "podwright_http_requests_total",
            method="POST",
            route="/run",
            status="200",
        )
        == 1
    )
    assert metrics.get("podwright_run_duration_seconds_count", **LOOKER) == 1
    assert (
        metrics.get(
            "podwright_component_info", **LOOKER, version=podwright.__version__
        )
        == 1
    )


def test_the_documented_metrics_are_the_exported_ones() -> None:
    """Names and labels in `docs/telemetry.md`, on which dashboards and alerts rely, are those of a scrape."""
    rows = [
        line.split("|")
        for line in DOCS.read_text().splitlines()
        if line.startswith("| `podwright_")
    ]
    documented = {
        row[1].strip(" `"): set(re.findall(r"\w+", row[2])) for row in rows
    }
    series = {
        re.sub("_(bucket|count|sum)$", "", name): labels
        for name, labels in exported().items()
    }
    assert {
        name: set(labels) - {"component", "kind", "le"}
        for name, labels in series.items()
    } == documented
    assert all({"component", "kind"} <= labels for labels in series.values())


def test_names_from_outside_are_not_labels(serve: Serve) -> None:
    """Unknown paths and methods, tools that a model invents and inline blueprints share one label value each."""
    client = serve(looker(ToolCall.of("invented"), "done"))
    assert client.post("/run", json={"input": "where?"}).status_code == 200
    client.get("/canary")
    client.request("PROPFIND", "/run")
    blueprint = {
        "name": "canary",
        "instructions": "x",
        "config": {"model": "offline/echo", "max_loops": 1},
    }
    inline = serve(Agent("open", "Help.", model="offline/echo"))
    body = {
        "type": "agent",
        "input": "x",
        "blueprint": {**blueprint, "tools": []},
    }
    assert inline.post("/run-blueprint", json=body).status_code == 200
    metrics = scrape(client)
    assert (
        metrics.get("podwright_tool_calls_total", tool=UNKNOWN, status="failed")
        == 1
    )
    assert metrics.get("podwright_http_requests_total", route=UNKNOWN) == 1
    assert metrics.get("podwright_http_requests_total", method=UNKNOWN) == 1
    assert (
        scrape(inline).get(
            "podwright_runs_total", component=INLINE, kind="agent"
        )
        == 1
    )
    assert scrape(inline).get("podwright_tokens_total", component=INLINE) > 0
    for text in (client.get("/metrics").text, inline.get("/metrics").text):
        assert not [
            name for name in ("canary", "invented", "PROPFIND") if name in text
        ]


def test_a_budget_stop_names_the_limit(serve: Serve) -> None:
    """A run that a limit stops is failed, and `budget_stops_total` has the limit."""
    client = serve(looker(ToolCall.of("look", place="x")), run_tokens=1)
    assert client.post("/run", json={"input": "where?"}).status_code == 422
    metrics = scrape(client)
    assert metrics.get("podwright_budget_stops_total", limit="tokens") == 1
    assert metrics.get("podwright_runs_total", status="failed") == 1


def test_a_model_that_another_one_stands_in_for_is_counted() -> None:
    """The call is that of the model that answered; the one that could not is counted with a status of its own."""
    metrics = Exported(
        "guide",
        "agent",
        components=[Part("guide", "agent")],
        models={"openai/a", "groq/b"},
    )
    count = metrics.subscriber()
    count(
        events.ModelCallFellBack(
            component="guide",
            model="openai/a",
            error={"code": "model_unavailable"},
        )
    )
    response = ModelResponse("Hi.", usage=Usage(20, 4, cost=0.5))
    failed = Usage(7, 1, cost=None).as_failed_call("openai/a") + Usage(
        7, 1, cost=None
    ).as_failed_call("openai/a")
    count(
        events.ModelCallFinished(
            component="guide",
            model="groq/b",
            response=response,
            failed_usage=failed,
        )
    )
    shown = Metrics(metrics.render("")[0].decode())
    assert (
        shown.get(
            "podwright_model_calls_total", model="openai/a", status="fell_back"
        )
        == 1
    )
    assert (
        shown.get("podwright_model_calls_total", model="groq/b", status="ok")
        == 1
    )
    assert shown.get("podwright_model_calls_total") == 2
    assert (
        shown.get("podwright_tokens_total", model="openai/a", type="input")
        == 14
    )
    assert (
        shown.get("podwright_tokens_total", model="groq/b", type="input") == 20
    )
    assert (
        shown.get("podwright_unpriced_model_calls_total", model="openai/a") == 2
    )
    assert shown.get("podwright_cost_usd_total", model="groq/b") == 0.5


def test_functions_of_steps_are_counted(serve: Serve) -> None:
    """They are tool calls of the workflow, by the name that its steps use, in a nested workflow too."""

    def see(place: str) -> list[str]:
        """Look somewhere."""
        if place == "cellar":
            raise ValueError
        return [place]

    call = FunctionStep("view", {"place": "{input}"})
    inner = Workflow("inner", [call], functions={"view": see})
    flow = Workflow(
        "flow", [call, WorkflowStep(inner)], functions={"view": see}
    )
    client = serve(flow)
    for place, status in (("moon", 200), ("cellar", 502)):
        response = client.post("/run", json={"input": place})
        assert response.status_code == status
    metrics = scrape(client)
    labels = {"component": "flow", "kind": "workflow", "tool": "view"}
    for status, number in (("ok", 2), ("failed", 1)):
        name = "podwright_tool_calls_total"
        assert metrics.get(name, **labels, status=status) == number
    seconds = "podwright_tool_call_duration_seconds_count"
    assert metrics.get(seconds, **labels) == 3


def test_exhausted_loops_are_counted(serve: Serve) -> None:
    """A loop that ends by its maximum is counted, whether the run goes on or fails."""
    never = {"name": "is_empty", "args": {"value": "x"}}
    agent = Agent("again", "Repeat.", "offline/echo")
    ends: list[tuple[Literal["continue", "fail"], int]] = [
        ("continue", 200),
        ("fail", 422),
    ]
    for on_exhausted, status in ends:
        loop = LoopStep(
            [agent], until=never, max_iterations=2, on_exhausted=on_exhausted
        )
        client = serve(Workflow("flow", [loop]))
        assert client.post("/run", json={"input": "x"}).status_code == status
        assert (
            scrape(client).get(
                "podwright_loops_exhausted_total",
                component="flow",
                kind="workflow",
            )
            == 1
        )


def test_admission_is_counted(serve: Serve) -> None:
    """The metrics have the active run, the waiting request, and the requests that were rejected."""
    gate = Gate()
    client = serve(gate.agent(), max_runs=1, max_waiting=1, max_wait=60)
    assert 'reason="waited"' in client.get("/metrics").text
    with (
        connect(client, "/run", b'{"input": "x"}'),
        connect(client, "/run", b'{"input": "y"}'),
    ):
        until(lambda: scrape(client).get("podwright_runs_waiting") == 1)
        assert client.post("/run", json={"input": "z"}).status_code == 503
        metrics = scrape(client)
        gate.opened.set()
        until(
            lambda: scrape(client).get("podwright_runs_total", status="ok") == 2
        )
    assert metrics.get("podwright_runs_in_progress", component="helper") == 1
    assert metrics.get("podwright_runs_rejected_total", reason="full") == 1
    assert (
        metrics.get("podwright_http_requests_total", route="/run", status="503")
        == 1
    )
    assert scrape(client).get("podwright_runs_waiting") == 0


def test_an_invalid_accept_header(serve: Serve) -> None:
    """An invalid version in the header is not an error."""
    client = serve(looker("done"))
    headers = {"accept": "application/openmetrics-text; version=abc"}
    assert (
        Metrics(client.get("/metrics", headers=headers).text).get(
            "podwright_component_info"
        )
        == 1
    )


def test_series_begin_with_0(serve: Serve) -> None:
    """What the component and inline blueprints may call is there before the first call, whose increase is then seen."""

    def look() -> str:
        """Look."""
        return ""

    guide = Agent(
        "guide",
        "Help.",
        "offline/echo",
        tools=[look],
        fallback=["openai/gpt-4o"],
    )
    client = serve(
        Workflow(
            "flow",
            [
                guide,
                Agent("other", "Help.", "anthropic/claude-haiku-4-5"),
                FunctionStep("see"),
            ],
            functions={"see": look},
        )
    )
    text = client.get("/metrics").text
    metrics = Metrics(text)
    for component, kind, model in (
        ("guide", "agent", "offline/echo"),
        ("guide", "agent", "openai/gpt-4o"),
        ("other", "agent", "anthropic/claude-haiku-4-5"),
        (INLINE, "agent", "anthropic/claude-haiku-4-5"),
        (INLINE, "conductor", "offline/echo"),
    ):
        labels = {"component": component, "kind": kind, "model": model}
        series = ",".join(f'{name}="{value}"' for name, value in labels.items())
        root = INLINE if component == INLINE else "flow"
        own = f'caller="",component="{component}",kind="{kind}",model="{model}",root="{root}"'
        assert f"podwright_cost_usd_total{{{own}}} 0.0\n" in text
        for reason in ("price", "count", "incomplete"):
            assert (
                f'podwright_unpriced_model_calls_total{{{series},reason="{reason}"}} 0.0\n'
                in text
            )
        for token_type in (
            "input",
            "output",
            "cached_input",
            "cache_write",
            "reasoning",
        ):
            assert (
                f'podwright_tokens_total{{{own},type="{token_type}"}} 0.0\n'
                in text
            )
        for status in ("ok", "failed", "cancelled", "fell_back"):
            provider = model.partition("/")[0]
            assert (
                f'podwright_model_calls_total{{{series},provider="{provider}",status="{status}"}} 0.0\n'
                in text
            )
    for component, kind, tool in (
        ("guide", "agent", "look"),
        ("flow", "workflow", "see"),
        (INLINE, "agent", "see"),
        (INLINE, "workflow", "look"),
    ):
        assert (
            f'podwright_tool_calls_total{{component="{component}",kind="{kind}",status="ok",tool="{tool}"}} 0.0\n'
            in text
        )
    assert 'component="other",kind="agent",model="openai/gpt-4o"' not in text
    assert metrics.get("podwright_budget_stops_total", component="flow") == 0


def test_when_series_began(serve: Serve) -> None:
    """OpenMetrics says it, the text format does not have further series for it."""
    client = serve(Agent("guide", "Help.", "offline/echo"))
    plain = client.get("/metrics").text
    open_metrics = client.get(
        "/metrics",
        headers={"accept": "application/openmetrics-text;version=1.0.0"},
    ).text
    assert "_created" not in plain
    own = 'caller="",component="guide",kind="agent",model="offline/echo",root="guide"'
    assert f"podwright_cost_usd_created{{{own}}}" in open_metrics


def test_failures_are_counted_by_their_code() -> None:
    """Retries, failed calls and failed runs have the code of the error; one that is not known is bounded."""
    metrics = Exported(
        "guide",
        "agent",
        components=[Part("guide", "agent")],
        models={"openai/a"},
    )
    count = metrics.subscriber()
    failed = {"code": "model_unavailable"}
    count(events.RunStarted(component="guide"))
    count(
        events.ModelCallRetried(
            component="guide", model="openai/a", error=failed
        )
    )
    count(
        events.ModelCallFailed(
            component="guide", model="openai/a", error=failed
        )
    )
    count(
        events.RunFailed(
            component="guide",
            error={"code": "made up"},
            usage=Usage(30, 4, cost=0.5),
        )
    )
    shown = Metrics(metrics.render("")[0].decode())
    assert (
        shown.get(
            "podwright_model_call_retries_total",
            model="openai/a",
            code="model_unavailable",
        )
        == 1
    )
    assert (
        shown.get(
            "podwright_model_call_failures_total",
            model="openai/a",
            code="model_unavailable",
        )
        == 1
    )
    assert shown.get("podwright_run_failures_total", code=UNKNOWN) == 1
    assert (
        shown.get("podwright_run_tokens_sum"),
        shown.get("podwright_run_cost_usd_sum"),
    ) == (
        34,
        0.5,
    )


def test_the_time_per_output_token() -> None:
    """It is that of the tokens after the first one, of streamed calls only."""
    metrics = Exported(
        "guide",
        "agent",
        components=[Part("guide", "agent")],
        models={"openai/a"},
    )
    count = metrics.subscriber()
    response = ModelResponse("Hi.", usage=Usage(20, 5, cost=0.5))
    for first in (None, 200.0):
        finished = events.ModelCallFinished(
            component="guide",
            model="openai/a",
            response=response,
            duration_ms=1000.0,
            first_token_ms=first,
        )
        count(finished)
    shown = Metrics(metrics.render("")[0].decode())
    assert shown.get("podwright_time_per_output_token_seconds_count") == 1
    assert shown.get(
        "podwright_time_per_output_token_seconds_sum"
    ) == pytest.approx(0.2)


def test_a_stream_that_fails_is_a_failure(serve: Serve) -> None:
    """It answers 200 when its run begins, and has the status of the failure in the metrics of requests."""
    client = serve(
        Agent("helper", "Help.", ScriptedModel(ModelError("down"), "done"))
    )
    for path in ("/run/stream", "/run/stream"):
        assert client.post(path, json={"input": "x"}).status_code == 200
    until(
        lambda: (
            scrape(client).get(
                "podwright_http_requests_total", route="/run/stream"
            )
            == 2
        )
    )
    metrics = scrape(client)
    assert (
        metrics.get(
            "podwright_http_requests_total", route="/run/stream", status="502"
        )
        == 1
    )
    assert (
        metrics.get(
            "podwright_http_requests_total", route="/run/stream", status="200"
        )
        == 1
    )


def test_the_limits_of_runs(serve: Serve) -> None:
    """They are there to be compared with what runs use; no limit is infinite."""
    metrics = scrape(
        serve(
            Agent("a", "Do.", "offline/echo"),
            run_tokens=1000,
            run_cost=0.5,
            run_wall_time=None,
        )
    )
    assert metrics.get("podwright_runs_limit", limit="tokens") == 1000
    assert metrics.get("podwright_runs_limit", limit="cost") == 0.5
    assert metrics.get("podwright_runs_limit", limit="wall_time") == math.inf


def test_the_price_file_is_watched(
    serve: Serve, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file that becomes invalid is seen in a metric, until it is mended."""
    file = tmp_path / "prices.json"
    file.write_text('{"openai/gpt-4o": {"input": 1, "output": 2}}')
    monkeypatch.setenv("PODWRIGHT_PRICES", str(file))
    client = serve(Agent("a", "Do.", "openai/gpt-4o", api_key="k"))
    assert scrape(client).get("podwright_price_file_valid") == 1
    now = time.time()
    for minutes, text, valid in ((1, "{", 0), (2, "{}", 1)):
        file.write_text(text)
        later = now + 60 * minutes
        monkeypatch.setattr(time, "time", partial(float, later))
        assert scrape(client).get("podwright_price_file_valid") == valid


def test_a_cost_limit_needs_prices(
    serve: Serve, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A component whose calls would all be refused does not start, unless the operator wants it to."""
    unpriced = Agent(
        "a", "Do.", "hosted_vllm/ours", base_url="http://127.0.0.1:9/v1"
    )
    with pytest.raises(ConfigurationError, match="hosted_vllm/ours"):
        serve(unpriced, run_cost=1.0)
    limited = Agent(
        "a",
        "Do.",
        "hosted_vllm/ours",
        base_url="http://127.0.0.1:9/v1",
        limits=RunLimits(cost=1.0),
    )
    with pytest.raises(ConfigurationError, match="PODWRIGHT_PRICES"):
        serve(Workflow("flow", [limited]))
    serve(unpriced)
    serve(unpriced, run_cost=1.0, allow_unpriced_models=True)
    (tmp_path / "prices.json").write_text(
        '{"hosted_vllm/*": {"input": 0, "output": 0}}'
    )
    monkeypatch.setenv("PODWRIGHT_PRICES", str(tmp_path / "prices.json"))
    forget_settings()
    serve(unpriced, run_cost=1.0)


class Billed(Model):
    """Says what its calls cost; it has no prices."""

    name = "mine/billed"

    async def complete(
        self, request: ModelRequest, on_token: Any = None
    ) -> ModelResponse:
        return ModelResponse("Hi.")


@pytest.mark.parametrize("is_recorded", [False, True])
def test_a_model_that_reports_its_cost_needs_no_price(
    serve: Serve,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    is_recorded: bool,
) -> None:
    """A model without prices of its own is neither warned of nor refused, also if its answers are recorded."""
    model: Model = Billed()
    if is_recorded:
        model = RecordingModel(model, tmp_path / "recording.json")
    serve(Agent("a", "Do.", model), run_cost=1.0)
    assert "price" not in caplog.text


def test_prices_of_other_models_are_warned_of(
    serve: Serve,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A service says at its start which entries of the price file fit none of its models."""
    prices = {
        "openai/gtp-4o": {"input": 1, "output": 2},
        "openai/gpt-4o-mini": {"input": 1, "output": 2},
    }
    (tmp_path / "prices.json").write_text(json.dumps(prices))
    monkeypatch.setenv("PODWRIGHT_PRICES", str(tmp_path / "prices.json"))
    serve(
        Agent("a", "Do.", "openai/gpt-4o", api_key="k"),
        allowed_models="openai/gpt-4o-mini",
    )
    assert "'openai/gtp-4o'" in caplog.text
    assert "'openai/gpt-4o-mini'" not in caplog.text


def test_finish_reasons_and_answering_models() -> None:
    """Why answers ended, and the cost of the models that answered under another name; both are bounded."""
    metrics = Exported(
        "guide",
        "agent",
        components=[Part("guide", "agent")],
        models={"openai/a"},
    )
    count = metrics.subscriber()
    for number in range(120):
        response = ModelResponse(
            "x",
            usage=Usage(cost=0.5),
            model=f"a-{number}",
            finish_reason="length",
        )
        count(
            events.ModelCallFinished(
                component="guide", model="openai/a", response=response
            )
        )
    same = ModelResponse(
        "x", usage=Usage(cost=0.5), model="a", finish_reason="made up"
    )
    count(
        events.ModelCallFinished(
            component="guide", model="openai/a", response=same
        )
    )
    shown = Metrics(metrics.render("")[0].decode())
    assert (
        shown.get("podwright_model_call_finish_reasons_total", reason="length")
        == 120
    )
    assert (
        shown.get("podwright_model_call_finish_reasons_total", reason=UNKNOWN)
        == 1
    )
    assert (
        shown.get("podwright_answered_cost_usd_total", response_model="a-99")
        == 0.5
    )
    assert (
        shown.get("podwright_answered_cost_usd_total", response_model="(other)")
        == 10
    )
    assert (
        shown.get("podwright_answered_cost_usd_total", response_model="a") == 0
    )


def test_why_a_cost_is_not_known() -> None:
    """The price, the count, or a part of the price: each has its own series."""
    metrics = Exported(
        "guide",
        "agent",
        components=[Part("guide", "agent")],
        models={"openai/a"},
    )
    count = metrics.subscriber()
    parts = [
        Usage(cost=None),
        Usage(cost=None, unpriced_model_calls=1, uncounted_model_calls=1),
        Usage(
            cost=None,
            known_cost=0.25,
            unpriced_model_calls=1,
            incomplete_model_calls=1,
        ),
    ]
    for usage in parts:
        count(
            events.ModelCallFinished(
                component="guide",
                model="openai/a",
                response=ModelResponse("x", usage=usage),
            )
        )
    failed = sum(
        (usage.as_failed_call("openai/a") for usage in parts[1:]),
        start=parts[1].as_failed_call("openai/a"),
    )
    count(
        events.ModelCallFailed(
            component="guide", model="openai/a", usage=failed
        )
    )
    shown = Metrics(metrics.render("")[0].decode())
    for reason, calls in (("price", 1), ("count", 3), ("incomplete", 2)):
        assert (
            shown.get("podwright_unpriced_model_calls_total", reason=reason)
            == calls
        )
    assert shown.get("podwright_cost_usd_total") == 0.5


@pytest.mark.parametrize("is_gone", [True, False])
def test_a_folder_without_room(
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    tmp_path: Path,
    *,
    is_gone: bool,
) -> None:
    """Where new series have no room, they are lost, which is logged once; those that exist go on."""
    folder = tmp_path / "metrics"
    folder.mkdir()
    monkeypatch.setenv(metric_files.VARIABLE, str(folder))
    metrics = Exported("looker", "agent", routes=("/run", "/info"))
    for _ in range(2):
        metrics.observe_request("GET", "/run", 200, 0.1)
    if is_gone:
        shutil.rmtree(folder)
    else:
        monkeypatch.setattr(metric_files, "ROOM", 1 << 62)
    for path in ("/run", "/info", "/info"):
        metrics.observe_request("GET", path, 200, 0.1)
    metrics.render("")
    name = "podwright_http_requests_total"
    labels = {**LOOKER, "method": "GET", "status": "200"}

    def counted(route: str) -> float | None:
        return metrics.registry.get_sample_value(
            name, {**labels, "route": route}
        )

    assert (counted("/run"), counted("/info")) == (3, None)
    (record,) = caplog.records
    assert str(folder) in record.getMessage()


def test_a_file_that_has_just_been_made(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A process makes its files before it gives them a size; one that is killed between the two leaves an empty one.

    Source: https://github.com/prometheus/client_python/issues/1199
    """
    monkeypatch.setenv(metric_files.VARIABLE, str(tmp_path))
    count = "from prometheus_client import Counter; Counter('seen', '-').inc()"
    subprocess.run((sys.executable, "-c", count), check=True)
    for kind in ("counter", "gauge_livesum", "histogram"):
        (tmp_path / f"{kind}_1.db").touch()
    body, _ = Exported("looker", "agent", routes=("/run",)).render("")
    assert "\nseen_total 1.0\n" in body.decode()


def test_files_of_a_process_that_has_ended(tmp_path: Path) -> None:
    """A new process goes on with its counters, and not with its gauges: nothing is in progress in it any more."""
    ended = 2**22 + 1  # more than the system gives
    for kind in ("counter", "gauge_livesum", "gauge_livemax", "histogram"):
        (tmp_path / f"{kind}_{ended}.db").touch()
    metric_files.begin_process(tmp_path, tmp_path)
    names = sorted(file.name for file in tmp_path.iterdir())
    pid = os.getpid()
    assert names == [f"counter_{pid}.db", f"histogram_{pid}.db"]
