"""Where runs come from: outermost component, caller, user and session, in metrics, spans and records."""

from __future__ import annotations

import json
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace.export.in_memory_span_exporter import (
    InMemorySpanExporter,
)
from tests.helpers import until
from tests.service.support import Serve

from podwright import Agent, FunctionModel, Remote, Usage, Workflow
from podwright.errors import ModelError
from podwright.testing import ModelRequest, ModelResponse
from podwright_service.observability import configure_logging, exporters
from podwright_service.settings import Settings
from podwright_service.testing import Metrics

KEY = "0123456789abcdef"
HEADERS = {"authorization": f"Bearer {KEY}"}


def priced(request: ModelRequest) -> ModelResponse:
    return ModelResponse("done", usage=Usage(10, 5, cost=0.5))


def writer() -> Agent:
    return Agent("writer", "Write.", FunctionModel(priced))


def scrape(client: Any) -> Metrics:
    return Metrics(client.get("/metrics", headers=HEADERS).text)


def named(exporter: InMemorySpanExporter, name: str) -> dict[str, Any]:
    """The attributes of the only span of this name, which may just be about to end."""

    def find() -> list[dict[str, Any]]:
        return [
            dict(span.attributes or {})
            for span in exporter.get_finished_spans()
            if span.name == name
        ]

    (found,) = until(find)
    return found


def test_a_workflow_over_containers_has_one_root(serve: Serve) -> None:
    """The cost of a remote component is counted there, for the workflow that called it; and the workflow knows it."""
    remote = serve(writer())
    assert remote.post("/run", json={"input": "x"}).status_code == 200
    flow = serve(Workflow("flow", [Remote("writer", str(remote.base_url))]))
    assert flow.post("/run", json={"input": "x"}).status_code == 200
    metrics = scrape(remote)
    assert (
        metrics.get("podwright_cost_usd_total", root="flow", component="writer")
        == 0.5
    )
    assert (
        metrics.get(
            "podwright_cost_usd_total", root="writer", component="writer"
        )
        == 0.5
    )
    assert (
        metrics.get("podwright_tokens_total", root="flow", type="input") == 10
    )
    assert (
        scrape(flow).get("podwright_run_cost_usd_sum", component="flow") == 0.5
    )


@pytest.mark.parametrize("name", ["outer", "News room: Köln"])
def test_a_root_is_handed_on(serve: Serve, name: str) -> None:
    """A component in the middle passes on the name of the outermost one, and not its own."""
    last = serve(writer())
    middle = serve(Workflow("middle", [Remote("writer", str(last.base_url))]))
    outer = serve(
        Workflow(
            name, [Remote("middle", str(middle.base_url), kind="workflow")]
        )
    )
    assert outer.post("/run", json={"input": "x"}).status_code == 200
    assert scrape(last).get("podwright_cost_usd_total", root=name) == 0.5


def test_inline_blueprints_share_a_root(serve: Serve) -> None:
    """Their names are anything, so they are not handed on."""
    remote = serve(writer())
    host = serve(Workflow("host", [Remote("writer", str(remote.base_url))]))
    blueprint = {
        "name": "anything",
        "steps": [{"type": "agent_step", "agent": "writer", "name": "s"}],
    }
    body = {"type": "workflow", "blueprint": blueprint, "input": "x"}
    response = host.post("/run-blueprint", json=body)
    assert response.status_code == 200, response.text
    assert (
        scrape(remote).get("podwright_cost_usd_total", root="(inline)") == 0.5
    )


@pytest.mark.parametrize("root", ["x" * 200, "a%09b", "%00"])
def test_a_root_that_is_no_name_is_ignored(serve: Serve, root: str) -> None:
    """Then the served component is the root."""
    client = serve(writer())
    assert (
        client.post(
            "/run", json={"input": "x"}, headers={"podwright-root": root}
        ).status_code
        == 200
    )
    assert scrape(client).get("podwright_cost_usd_total", root="writer") == 0.5


def test_roots_are_bounded(serve: Serve) -> None:
    """Callers cannot make any number of series."""
    client = serve(writer())
    for number in range(60):
        assert (
            client.post(
                "/run",
                json={"input": "x"},
                headers={"podwright-root": f"r{number}"},
            ).status_code
            == 200
        )
    metrics = scrape(client)
    assert metrics.get("podwright_cost_usd_total", root="r49") == 0.5
    assert metrics.get("podwright_cost_usd_total", root="(other)") == 5.0
    assert metrics.get("podwright_cost_usd_total") == 30.0


def test_callers_of_a_list_are_labels(serve: Serve) -> None:
    """Those that the operator lists have series from the start, others share an empty value."""
    keys = f"@shop:{KEY}, run@other:fedcba9876543210"
    client = serve(writer(), api_keys=keys, metric_callers="shop")
    assert (
        'podwright_cost_usd_total{caller="shop",'
        in client.get("/metrics", headers=HEADERS).text
    )
    other = {"authorization": "Bearer fedcba9876543210"}
    for headers in (HEADERS, HEADERS, other):
        assert (
            client.post(
                "/run", json={"input": "x"}, headers=headers
            ).status_code
            == 200
        )
    metrics = scrape(client)
    assert metrics.get("podwright_cost_usd_total", caller="shop") == 1.0
    assert metrics.get("podwright_cost_usd_total", caller="") == 0.5
    assert metrics.get("podwright_runs_total", caller="shop", status="ok") == 2


def test_a_misspelt_caller_is_told(
    serve: Serve, caplog: pytest.LogCaptureFixture
) -> None:
    """A name of the list that no key has."""
    serve(writer(), api_keys=f"@shop:{KEY}", metric_callers="shop,shpo")
    assert [
        record.message
        for record in caplog.records
        if "METRIC_CALLERS" in record.message
    ] == [
        "PODWRIGHT_METRIC_CALLERS names 'shpo', and no API key has this name."
    ]


BODIES = [
    ("/run", {"input": "x", "user": "u1", "session": "s1", "metadata": {"tenant": "t1"}}),
    ("/v1/chat/completions", {"model": "writer", "messages": [{"role": "user", "content": "x"}], "user": "u1",
                              "metadata": {"session_id": "s1", "tenant": "t1"}}),
    ("/v1/responses", {"model": "writer", "input": "x", "safety_identifier": "u1", "store": False,
                       "metadata": {"session_id": "s1", "tenant": "t1"}}),
]  # fmt: skip


@pytest.mark.parametrize(
    ("path", "body"), BODIES, ids=[path for path, _ in BODIES]
)
def test_for_whom_a_run_is(
    serve: Serve, spans: InMemorySpanExporter, path: str, body: Any
) -> None:
    """Caller, user, session and, as JSON, the metadata are on the spans of the request and of its run."""
    client = serve(writer(), api_keys=f"@shop:{KEY}")
    assert client.post(path, json=body, headers=HEADERS).status_code == 200
    for name in ("invoke_agent writer", f"POST {path}"):
        attributes = named(spans, name)
        assert (attributes["user.id"], attributes["session.id"]) == ("u1", "s1")
        assert attributes["podwright.caller"] == "shop"
        assert json.loads(attributes["metadata"]) == {"tenant": "t1"}


def test_trusted_baggage(serve: Serve, spans: InMemorySpanExporter) -> None:
    """Members that the operator lists are taken, what the body says counts more, and others are ignored."""
    client = serve(writer(), baggage="user.id,session.id,tenant")
    headers = {"baggage": "user.id=u1,session.id=s1,tenant=t%201,secret=x"}
    assert (
        client.post(
            "/run", json={"input": "x", "session": "s2"}, headers=headers
        ).status_code
        == 200
    )
    attributes = named(spans, "invoke_agent writer")
    assert (
        attributes["user.id"],
        attributes["session.id"],
        attributes["tenant"],
    ) == (
        "u1",
        "s2",
        "t 1",
    )
    assert "secret" not in attributes


def test_baggage_is_not_trusted_by_itself(
    serve: Serve, spans: InMemorySpanExporter
) -> None:
    """Without a list, no member counts."""
    assert (
        serve(writer())
        .post("/run", json={"input": "x"}, headers={"baggage": "user.id=u1"})
        .status_code
        == 200
    )
    assert "user.id" not in named(spans, "invoke_agent writer")


def test_user_and_session_go_on_to_remotes(
    serve: Serve, spans: InMemorySpanExporter
) -> None:
    """In the body of the request, so that the spans there have them too; no header need be trusted."""
    remote = serve(writer())
    flow = serve(Workflow("flow", [Remote("writer", str(remote.base_url))]))
    assert (
        flow.post(
            "/run",
            json={
                "input": "x",
                "user": "ü1",
                "session": "s1",
                "metadata": {"tenant": "t1"},
            },
        ).status_code
        == 200
    )

    def of_remote() -> list[dict[str, Any]]:
        found = [
            span
            for span in spans.get_finished_spans()
            if span.name == "invoke_agent writer"
        ]
        return [
            dict(span.attributes or {})
            for span in found
            if span.kind is trace.SpanKind.INTERNAL
        ]

    (attributes,) = until(of_remote)
    assert (
        attributes["user.id"],
        attributes["session.id"],
        attributes["podwright.root"],
    ) == (
        "ü1",
        "s1",
        "flow",
    )
    assert json.loads(attributes["metadata"]) == {"tenant": "t1"}


def test_background_runs_keep_it(
    serve: Serve, sqlite_database: str, spans: InMemorySpanExporter
) -> None:
    """The record of a run has caller, user and session, and so has its span."""
    client = serve(
        writer(), runs_database=sqlite_database, api_keys=f"@shop:{KEY}"
    )
    body = {"input": "x", "user": "u1", "session": "s1"}
    run = client.post("/runs", json=body, headers=HEADERS).json()
    assert (run["caller"], run["user"], run["session"]) == ("shop", "u1", "s1")
    until(
        lambda: (
            client.get(f"/runs/{run['id']}", headers=HEADERS).json()["status"]
            == "succeeded"
        )
    )
    (listed,) = client.get("/runs", headers=HEADERS).json()["runs"]
    assert (listed["caller"], listed["user"], listed["session"]) == (
        "shop",
        "u1",
        "s1",
    )
    assert named(spans, "invoke_agent writer")["user.id"] == "u1"


def test_a_line_of_the_log(
    serve: Serve, capfd: pytest.CaptureFixture[str]
) -> None:
    """The line of a run says from whom and for whom it is, and what is known of an unknown cost."""

    def unpriced(request: ModelRequest) -> ModelResponse:
        usage = Usage(
            10,
            5,
            cost=None,
            known_cost=0.25,
            unpriced_model_calls=1,
            incomplete_model_calls=1,
        )
        return ModelResponse("done", usage=usage)

    class Unpriced(FunctionModel):
        def cost(self, usage: Usage) -> float | None:
            return None

    configure_logging(Settings(log_format="json"))
    client = serve(
        Agent("writer", "Write.", Unpriced(unpriced)), api_keys=f"@shop:{KEY}"
    )
    assert (
        client.post(
            "/run", json={"input": "x", "user": "u1"}, headers=HEADERS
        ).status_code
        == 200
    )
    lines = [
        json.loads(line)
        for line in capfd.readouterr().out.splitlines()
        if '"event":"run"' in line
    ]
    (line,) = lines
    assert (line["caller"], line["user"]) == ("shop", "u1")
    assert (line["cost_usd"], line["known_cost_usd"]) == (None, 0.25)
    assert "session" not in line


def test_the_line_of_a_request(
    serve: Serve, capfd: pytest.CaptureFixture[str]
) -> None:
    """It has the name of the key, also if the key lacks the scope; without a known key it has none."""
    configure_logging(Settings(log_format="json", log_level="debug"))
    client = serve(writer(), api_keys=f"run@shop:{KEY}", log_level="debug")
    unknown = {"authorization": f"Bearer {'x' * 16}"}
    for headers, status in ((HEADERS, 403), (unknown, 401)):
        assert client.get("/info", headers=headers).status_code == status
    callers: list[tuple[int, str | None]] = []

    def are_logged() -> bool:
        """Whether both have their lines, which are written after the responses."""
        for text in capfd.readouterr().out.splitlines():
            if '"event":"request"' in text:
                line = json.loads(text)
                if line["path"] == "/info":
                    callers.append((line["status"], line.get("caller")))
        return len(callers) == 2

    until(are_logged)
    assert callers == [(403, "shop"), (401, None)]


TRACE = "0af7651916cd43dd8448eb211c80319c"


def test_a_trace_goes_on_through_a_service_without_spans(
    serve: Serve, spans: InMemorySpanExporter, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The caller's trace is that of the remote component, although the service between them exports nothing."""
    remote = serve(writer())
    monkeypatch.setattr(exporters, "create_tracer_provider", lambda *_: None)
    flow = serve(Workflow("flow", [Remote("writer", str(remote.base_url))]))
    response = flow.post(
        "/run",
        json={"input": "x"},
        headers={"traceparent": f"00-{TRACE}-b7ad6b7169203331-01"},
    )
    assert response.status_code == 200
    assert "traceresponse" not in response.headers, (
        "it would name a span that nobody has"
    )

    def traces() -> list[str]:
        found = [
            span.context
            for span in spans.get_finished_spans()
            if span.name == "invoke_agent writer"
        ]
        return [f"{context.trace_id:032x}" for context in found if context]

    assert until(traces) == [TRACE]


def test_the_span_of_a_stream_that_fails(
    serve: Serve, spans: InMemorySpanExporter
) -> None:
    """It began with 200, and is an error all the same."""

    def fail(_: ModelRequest) -> ModelResponse:
        raise ModelError("down")

    assert (
        serve(Agent("a", "Do.", FunctionModel(fail)))
        .post("/run/stream", json={"input": "x"})
        .status_code
        == 200
    )
    assert named(spans, "POST /run/stream")["error.type"] == "model_failed"
