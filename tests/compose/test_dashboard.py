"""The dashboard and the rules over a fleet with a provider's model, under mixed load."""

from __future__ import annotations

import json
import math
import re
import threading
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import httpx
import pytest
from tests.compose.composed import COMPONENTS, STAFF, Fleet
from tests.compose.conftest import MakeFleet
from tests.helpers import ROOT, until

KEY = "0123456789abcdef-of-the-fleet"
HEADERS = {"Authorization": f"Bearer {KEY}"}
DASHBOARD = json.loads((ROOT / "deploy" / "observability" / "dashboard.json").read_text())
TARGETS = {
    f"{panel['id']}{target['refId']} {panel['title']}": target
    for panel in DASHBOARD["panels"]
    for target in panel.get("targets", [])
}
ALL = {"namespace": ".*", "job": ".*", "component": ".*"}
"""Grafana's values of variables with all values selected."""
BASE_URL = {"OPENAI_BASE_URL": "http://provider:8000/v1"}


@pytest.fixture(scope="module")
def newsroom(make_fleet: MakeFleet, slim: str, observers: dict[str, Any]) -> Fleet:
    """The fleet with a provider, an API key, a newsroom of limited capacity, and a desk whose model has no price."""
    provider = {
        "image": slim,
        "entrypoint": ["python", "/provider.py"],
        "volumes": [f"{ROOT}/tests/compose/provider.py:/provider.py:ro"],
    }
    services: dict[str, Any] = {
        "provider": provider,
        "prometheus": observers["prometheus"],
        **{name: {"environment": BASE_URL} for name in STAFF},
        "newsroom": {"environment": {"PODWRIGHT_MAX_RUNS": "2", "PODWRIGHT_MAX_WAITING": "1"}},
        "desk": {"environment": {**BASE_URL, "PODWRIGHT_MODEL": "openai/unheard-of"}},
    }
    fleet = make_fleet(services, OPENAI_API_KEY="k", PODWRIGHT_MODEL="", FLEET_KEY=KEY)
    fleet.up("provider", *COMPONENTS, "prometheus")
    return fleet


def run(client: httpx.Client, text: str, budget: str = "tokens=100000", path: str = "/run") -> int:
    """The status of a run."""
    return client.post(path, json={"input": text}, headers={"Podwright-Budget": budget}).status_code


@pytest.fixture(scope="module")
def statuses(newsroom: Fleet) -> Iterator[set[tuple[str, int]]]:
    """The statuses of requests that are sent again and again, by their purpose."""
    statuses: set[tuple[str, int]] = set()
    done = threading.Event()

    def send_each() -> None:
        with newsroom.client("newsroom", headers=HEADERS) as workflow, newsroom.client("desk", headers=HEADERS) as desk:
            while not done.wait(0.2):
                statuses.add(("run", run(workflow, "the moon")))
                statuses.add(("refused", run(workflow, "a refused thing")))
                statuses.add(("limited", run(workflow, "the moon", "tokens=60")))
                statuses.add(("streamed", run(desk, "the moon", path="/run/stream")))
                statuses.add(("unknown", workflow.get("/nowhere").status_code))
                statuses.add(("keyless", httpx.get(f"{newsroom.url('desk', 8000)}/info", timeout=60).status_code))
                with suppress(httpx.TimeoutException):
                    desk.post("/run", json={"input": "a slow thing"}, timeout=0.5)

    def overload() -> None:
        with newsroom.client("newsroom", headers=HEADERS) as workflow:
            while not done.wait(0.5):
                statuses.add(("overload", run(workflow, "a slow thing", "wall_time=0.8")))

    callers = [threading.Thread(target=target) for target in (send_each, *[overload] * 4)]
    for caller in callers:
        caller.start()
    try:
        yield statuses
    finally:
        done.set()
        for caller in callers:
            caller.join()


def fill(expression: str, variables: dict[str, str]) -> str:
    """The expression as Grafana sends it for the last quarter of an hour, scraped every five seconds."""
    for name, value in {**variables, "__range": "15m", "__rate_interval": "20s"}.items():
        expression = expression.replace(f"${name}", value)
    assert "$" not in expression, expression
    return expression


def test_the_load_is_mixed(statuses: set[tuple[str, int]]) -> None:
    """Runs succeed, fail at the provider, hit a limit, are rejected, and lack a key."""
    expected = {
        ("run", 200), ("refused", 502), ("limited", 422), ("streamed", 200), ("unknown", 404), ("keyless", 401),
        ("overload", 504), ("overload", 503),
    }  # fmt: skip
    until(lambda: expected <= statuses, report=lambda: statuses)


@pytest.mark.parametrize("target", TARGETS.values(), ids=TARGETS)
def test_each_query_has_data(newsroom: Fleet, statuses: set[tuple[str, int]], target: dict[str, str]) -> None:
    """Each panel's query returns numbers, with the labels of its legend."""
    query = fill(target["expr"], ALL)

    def labels() -> list[dict[str, str]]:
        samples = newsroom.prometheus("query", query=query)["result"]
        return [sample["metric"] for sample in samples if math.isfinite(float(sample["value"][1]))]

    for metric in until(labels, report=lambda: (query, statuses)):
        assert set(re.findall(r"\{\{(\w+)\}\}", target["legendFormat"])) <= set(metric), metric


def test_alerts(newsroom: Fleet, statuses: set[tuple[str, int]]) -> None:
    """The alerts with a reason become pending or firing, and the one without does not."""
    expected = {
        ("PodwrightUnpricedModelCalls", "desk"),
        ("PodwrightBudgetStops", "newsroom"),
        ("PodwrightRejecting", "newsroom"),
        ("PodwrightFailingFast", "newsroom"),
    }

    def alerts() -> set[tuple[str, str]]:
        active = [alert["labels"] for alert in newsroom.prometheus("alerts")["alerts"]]
        return {(labels["alertname"], labels["component"]) for labels in active}

    assert statuses
    until(lambda: expected <= alerts(), 120, alerts)
    assert "PodwrightCostPerHour" not in {name for name, _ in alerts()}
