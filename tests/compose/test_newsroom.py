"""The newsroom in containers, as `docker compose up` makes it, with what watches it: one run, one trace, one usage."""

from __future__ import annotations

import base64
import gzip
import time
from collections import Counter
from typing import Any

import httpx
import pytest
from tests.compose.composed import COMPONENTS, STAFF, Composed, eventually
from tests.compose.conftest import Fleet

from podwright_service.testing import Span, SpanCollector

CLIENT, SERVER = 3, 2
"""Kinds of spans, as OTLP numbers them."""


@pytest.fixture(scope="module")
def newsroom(fleet: Fleet, observers: dict[str, str]) -> Composed:
    made = fleet(observers, COMPOSE_PROFILES="observability")
    made.up(*COMPONENTS, *observers)
    return made


@pytest.fixture(scope="module")
def answer(newsroom: Composed) -> httpx.Response:
    """What the workflow answered, traced."""
    with newsroom.client("newsroom") as client:
        given = client.post("/run?trace=true", json={"input": "the moon"})
    assert given.status_code == 200, given.text
    return given


@pytest.fixture(scope="module")
def trace(newsroom: Composed, answer: httpx.Response) -> list[Span]:
    """The spans of that run that Jaeger has, once both ends of every remote run have told theirs."""
    wanted = answer.headers["traceresponse"].split("-")[1]

    def whole() -> list[Span]:
        spans = [span for span in kept(newsroom) if span.trace == wanted]
        remote = {span.id for span in spans if span.kind == CLIENT and span.name.startswith("invoke_agent")}
        told = any(not span.parent for span in spans) and remote <= {s.parent for s in spans if s.kind == SERVER}
        return spans if told and {span.parent for span in spans} - {""} <= {span.id for span in spans} else []

    return eventually(whole, told=lambda: [span.name for span in kept(newsroom)])


def kept(newsroom: Composed) -> list[Span]:
    taken = SpanCollector()
    for one in httpx.get(newsroom.url("jaeger", 16686), timeout=30).json():
        body = base64.b64decode(one["body"])
        taken.take(gzip.decompress(body) if one["encoding"] == "gzip" else body)
    return taken.spans


def test_healthy_in_order(newsroom: Composed) -> None:
    """The workflow and the conductor start when their agents are healthy, and all five are in the end."""
    told = newsroom.events("start", "health_status")
    for caller in ("newsroom", "desk"):
        before = told[: told.index((caller, "start"))]
        assert {(agent, "health_status: healthy") for agent in STAFF} <= set(before)
    for name in COMPONENTS:
        assert newsroom.container(name)["State"]["Health"]["Status"] == "healthy"


def test_hardened(newsroom: Composed) -> None:
    """A component runs as nobody, may write nowhere, has no rights, and cannot get any."""
    inside = newsroom.inside(
        "writer", "python", "-c", "import os; print(os.getuid(), open('/proc/self/status').read())"
    )
    uid, status = inside.split(" ", 1)
    told = dict(line.split(":\t", 1) for line in status.splitlines() if ":\t" in line)
    assert uid == "65532"
    assert {told[name] for name in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb")} == {"0" * 16}
    assert told["NoNewPrivs"] == "1"
    script = "import pathlib; pathlib.Path('/opt/podwright/new').write_text('')"
    assert "Read-only file system" in newsroom.inside(
        "writer", "python", "-c", f"try:\n    {script}\nexcept OSError as error:\n    print(error)"
    )


def test_a_run_goes_through_all_containers(answer: httpx.Response) -> None:
    """The workflow's answer has what each agent wrote, offline, in a container of its own."""
    told: dict[str, Any] = answer.json()
    assert {"researcher_output", "writer_output", "reviewer_output"} <= set(told["value"])
    assert all(text.startswith("Echo: ") for name, text in told["value"].items() if name.endswith("_output"))


def test_the_conductor_works_with_the_same_staff(newsroom: Composed) -> None:
    """The other caller has the same three containers do its work."""
    with newsroom.client("desk") as client:
        given = client.post("/run?trace=true", json={"input": "the moon"})
    remote = {event["component"] for event in given.json()["events"] if event.get("remote")}
    assert remote == set(STAFF)


def test_one_trace(trace: list[Span]) -> None:
    """The run's spans are one tree: each agent's work hangs below the call for it, in the workflow's service."""
    spans = {span.id: span for span in trace}

    def line(span: Span) -> list[tuple[str, str]]:
        above = line(spans[span.parent]) if span.parent else []
        named = span.resource["service.name"], span.name
        return above if span.name.startswith(("step ", "execute_tool ")) else [*above, named]

    chats = [span for span in trace if span.name == "chat echo"]
    assert {span.resource["service.name"] for span in chats} == set(STAFF)
    for chat in chats:
        who = chat.resource["service.name"]
        assert line(chat) == [
            ("newsroom", "POST /run"),
            ("newsroom", "invoke_workflow newsroom"),
            ("newsroom", f"invoke_agent {who}"),
            (who, "POST /run/stream"),
            (who, f"invoke_agent {who}"),
            (who, "chat echo"),
        ]


def test_one_usage(answer: httpx.Response, trace: list[Span]) -> None:
    """The tokens and calls of the answer are those of the model calls' spans in all containers."""
    chats = [span for span in trace if span.name == "chat echo"]
    usage = answer.json()["usage"]
    assert usage["model_calls"] == len(chats) > len(STAFF)
    for way in ("input", "output"):
        assert usage[f"{way}_tokens"] == sum(span.attributes[f"gen_ai.usage.{way}_tokens"] for span in chats) > 0


def query(newsroom: Composed, path: str, **parameters: str) -> Any:
    told = httpx.get(f"{newsroom.url('prometheus', 9090)}/api/v1/{path}", params=parameters, timeout=30).json()
    assert told["status"] == "success", told
    return told["data"]


def test_prometheus_reads_every_component(newsroom: Composed) -> None:
    """A real Prometheus, with the configuration as it is, scrapes all five by the names of their services."""

    def up() -> dict[str, str]:
        targets = query(newsroom, "targets", state="active")["activeTargets"]
        found = {one["labels"]["job"]: one["health"] for one in targets}
        return found if set(found.values()) == {"up"} and len(found) == len(COMPONENTS) else {}

    assert set(eventually(up, told=lambda: query(newsroom, "targets"))) == set(COMPONENTS)


def test_prometheus_has_the_counters(newsroom: Composed, trace: list[Span]) -> None:
    """Prometheus' counters are the tokens of the model calls that Jaeger has, by container and kind."""

    def traced() -> Counter[tuple[str, str]]:
        told = Counter[tuple[str, str]]()
        for span in kept(newsroom):
            if span.name == "chat echo":
                for way in ("input", "output"):
                    told[span.resource["service.name"], way] += span.attributes[f"gen_ai.usage.{way}_tokens"]
        return told

    def counted() -> dict[tuple[str, str], int]:
        told = query(newsroom, "query", query='sum by (job, type) (podwright_tokens_total{namespace="newsroom"})')
        return {(one["metric"]["job"], one["metric"]["type"]): int(one["value"][1]) for one in told["result"]}

    assert trace
    eventually(lambda: traced() == counted(), told=lambda: (traced(), counted()))


def test_from_a_bucket_to_its_trace(newsroom: Composed, answer: httpx.Response) -> None:
    """Prometheus keeps the id of the run's trace with the time that the run took."""
    wanted = answer.headers["traceresponse"].split("-")[1]

    def found() -> bool:
        now = time.time()
        told = query(
            newsroom, "query_exemplars", query='podwright_run_duration_seconds_bucket{job="newsroom"}',
            start=str(now - 1800), end=str(now + 60),
        )  # fmt: skip
        return wanted in {one["labels"]["trace_id"] for series in told for one in series["exemplars"]}

    eventually(found)


def test_prometheus_runs_the_rules(newsroom: Composed) -> None:
    """All rules of the file are loaded, and evaluated without an error."""

    def evaluated() -> list[dict[str, Any]]:
        rules = [rule for group in query(newsroom, "rules")["groups"] for rule in group["rules"]]
        return rules if rules and all(rule["health"] == "ok" for rule in rules) else []

    rules = eventually(evaluated, told=lambda: query(newsroom, "rules"))
    assert {rule["type"] for rule in rules} == {"recording", "alerting"}
    assert {rule["name"] for rule in rules if rule["type"] == "alerting"} >= {
        "PodwrightFailingFast", "PodwrightCostPerHour", "PodwrightUnpricedModelCalls", "PodwrightBudgetStops",
        "PodwrightWaiting",
    }  # fmt: skip
    assert {rule["state"] for rule in rules if rule["type"] == "alerting"} == {"inactive"}


def test_a_second_writer(newsroom: Composed) -> None:
    """A service of two containers is scraped as two, with nothing changed in Prometheus' configuration."""
    newsroom("up", "--detach", "--no-build", "--wait", "--scale", "writer=2", "writer")

    def writers() -> set[str]:
        targets = query(newsroom, "targets", state="active")["activeTargets"]
        found = {one["labels"]["instance"] for one in targets if one["labels"]["job"] == "writer"}
        return found if len(found) == 2 else set()

    eventually(writers)


def test_without_the_collector(newsroom: Composed) -> None:
    """A run is answered although nobody takes its spans; when the Collector is back, spans arrive again."""
    with newsroom.client("newsroom") as client:
        newsroom("kill", "collector")
        assert client.post("/run", json={"input": "the moon"}).status_code == 200
        newsroom.up("collector")
        after = client.post("/run", json={"input": "the moon"})
    wanted = after.headers["traceresponse"].split("-")[1]
    eventually(lambda: wanted in {span.trace for span in kept(newsroom)})
