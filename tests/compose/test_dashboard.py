"""Dashboard and rules over a fleet with a vendor's model, under mixed load: Prometheus has data for each query."""

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
from tests.compose.composed import COMPONENTS, ROOT, STAFF, Composed, eventually
from tests.compose.conftest import Fleet

KEY = "0123456789abcdef-of-the-fleet"
HEADERS = {"Authorization": f"Bearer {KEY}"}
DASHBOARD = json.loads((ROOT / "deploy" / "observability" / "dashboard.json").read_text())
TARGETS = {
    f"{panel['id']}{target['refId']} {panel['title']}": target
    for panel in DASHBOARD["panels"]
    for target in panel.get("targets", [])
}
ALL = {"namespace": ".*", "job": ".*", "component": ".*"}
"""What Grafana puts for a variable of which all values are chosen."""
VENDOR = "environment: {OPENAI_BASE_URL: 'http://vendor:8000/v1'}"
EXTRA = f"""
services:
  vendor:
    image: ${{IMAGE}}
    entrypoint: [python, /vendor.py]
    volumes: ["./tests/compose/vendor.py:/vendor.py:ro"]
  researcher: {{{VENDOR}}}
  writer: {{{VENDOR}}}
  reviewer: {{{VENDOR}}}
  newsroom:
    environment: {{PODWRIGHT_MAX_RUNS: 2, PODWRIGHT_MAX_WAITING: 1}}
  desk:
    environment: {{OPENAI_BASE_URL: 'http://vendor:8000/v1', PODWRIGHT_MODEL: openai/unheard-of}}
"""
"""The vendor's place, little room in the newsroom, and for the desk a model whose price nobody knows."""


@pytest.fixture(scope="module")
def newsroom(fleet: Fleet, observers: dict[str, str]) -> Composed:
    """The fleet as one runs it with a real model, with a key, and with Prometheus alone of what watches it."""
    real = {"OPENAI_API_KEY": "k", "PODWRIGHT_MODEL": "", "FLEET_KEY": KEY}
    made = fleet({"prometheus": observers["prometheus"]}, extra=EXTRA, **real)
    made.up("vendor", *COMPONENTS, "prometheus")
    return made


def ask(client: httpx.Client, text: str, budget: str = "tokens=100000", path: str = "/run") -> httpx.Response:
    return client.post(path, json={"input": text}, headers={"Podwright-Budget": budget})


@pytest.fixture(scope="module")
def answered(newsroom: Composed) -> Iterator[set[tuple[str, int]]]:
    """How callers were answered, who ask for all that there is, again and again."""
    answers: set[tuple[str, int]] = set()
    done = threading.Event()

    def both() -> None:
        with newsroom.client("newsroom", headers=HEADERS) as flow, newsroom.client("desk", headers=HEADERS) as desk:
            while not done.wait(0.2):
                answers.add(("run", ask(flow, "the moon").status_code))
                answers.add(("refused", ask(flow, "a refused thing").status_code))
                answers.add(("limited", ask(flow, "the moon", "tokens=60").status_code))
                answers.add(("streamed", ask(desk, "the moon", path="/run/stream").status_code))
                answers.add(("unknown", flow.get("/nowhere").status_code))
                answers.add(("keyless", httpx.get(f"{newsroom.url('desk', 8000)}/info", timeout=60).status_code))
                with suppress(httpx.TimeoutException):
                    desk.post("/run", json={"input": "a slow thing"}, timeout=0.5)

    def crowd() -> None:
        with newsroom.client("newsroom", headers=HEADERS) as flow:
            while not done.wait(0.5):
                answers.add(("crowd", ask(flow, "a slow thing", "wall_time=0.8").status_code))

    callers = [threading.Thread(target=target) for target in (both, *[crowd] * 4)]
    for caller in callers:
        caller.start()
    try:
        yield answers
    finally:
        done.set()
        for caller in callers:
            caller.join()


def get(newsroom: Composed, path: str, **parameters: str) -> Any:
    told = httpx.get(f"{newsroom.url('prometheus', 9090)}/api/v1/{path}", params=parameters, timeout=30).json()
    assert told["status"] == "success", (parameters, told)
    return told["data"]


def filled(expression: str, variables: dict[str, str]) -> str:
    """The expression as Grafana sends it for the last quarter of an hour, scraped every five seconds."""
    for name, value in {**variables, "__range": "15m", "__rate_interval": "20s"}.items():
        expression = expression.replace(f"${name}", value)
    assert "$" not in expression, expression
    return expression


def test_the_load_is_mixed(answered: set[tuple[str, int]]) -> None:
    """Callers are answered, refused by the vendor, stopped by a limit, sent away, and not let in."""
    wanted = {
        ("run", 200), ("refused", 502), ("limited", 422), ("streamed", 200), ("unknown", 404), ("keyless", 401),
        ("crowd", 504), ("crowd", 503),
    }  # fmt: skip
    eventually(lambda: wanted <= answered, told=lambda: answered)


@pytest.mark.parametrize("target", TARGETS.values(), ids=TARGETS)
def test_each_query_has_data(newsroom: Composed, answered: set[tuple[str, int]], target: dict[str, str]) -> None:
    """Each panel's query gives numbers, with the labels that its legend shows."""
    query = filled(target["expr"], ALL)

    def numbers() -> list[dict[str, str]]:
        told = get(newsroom, "query", query=query)["result"]
        return [one["metric"] for one in told if math.isfinite(float(one["value"][1]))]

    found = eventually(numbers, told=lambda: (query, answered, get(newsroom, "query", query=query)))
    for labels in found:
        assert set(re.findall(r"\{\{(\w+)\}\}", target["legendFormat"])) <= set(labels), labels


def test_the_variables_have_values(newsroom: Composed, answered: set[tuple[str, int]]) -> None:
    """The dashboard's variables offer the fleet, its services and its components, each narrowed by those before it."""
    offered: dict[str, list[str]] = {}
    chosen = dict(ALL)
    for variable in DASHBOARD["templating"]["list"]:
        if variable["type"] == "query":
            asked = re.fullmatch(r"label_values\((.*), (\w+)\)", variable["definition"])
            assert asked, variable
            selector, label = filled(asked[1], chosen), asked[2]
            offered[variable["name"]] = get(newsroom, f"label/{label}/values", **{"match[]": selector})
            chosen["namespace"] = "newsroom"
            chosen["job"] = "writer" if "job" in offered else ".*"
    assert answered
    assert offered == {"namespace": ["newsroom"], "job": COMPONENTS, "component": ["(inline)", "writer"]}


def test_cost_is_that_of_the_priced_models(newsroom: Composed, answered: set[tuple[str, int]]) -> None:
    """The cost of each agent is its calls' at the vendor's price; the desk's calls are counted as unpriced."""

    def each(metric: str) -> dict[str, float]:
        per_call = f'sum by (component) ({metric}) / sum by (component) (podwright_model_calls_total{{status="ok"}})'
        told = get(newsroom, "query", query=per_call)["result"]
        return {one["metric"]["component"]: float(one["value"][1]) for one in told}

    assert answered
    assert eventually(lambda: each("podwright_unpriced_model_calls_total")) == {"desk": 1}
    # 32 fresh, 8 cached and 10 output tokens of gpt-4o-mini
    price = (32 * 0.15 + 8 * 0.075 + 10 * 0.6) / 1e6
    assert each("podwright_cost_usd_total") == pytest.approx(dict.fromkeys(STAFF, price))


def test_alerts_go_off(newsroom: Composed, answered: set[tuple[str, int]]) -> None:
    """Of the alerts, those go off or wait to for which there is reason, and none for which there is not."""
    wanted = {
        ("PodwrightUnpricedModelCalls", "desk"),
        ("PodwrightBudgetStops", "newsroom"),
        ("PodwrightRejecting", "newsroom"),
        ("PodwrightFailingFast", "newsroom"),
    }

    def told() -> set[tuple[str, str]]:
        alerts = get(newsroom, "alerts")["alerts"]
        assert {one["state"] for one in alerts if one["labels"]["alertname"] == "PodwrightBudgetStops"} <= {"firing"}
        return {(one["labels"]["alertname"], one["labels"]["component"]) for one in alerts}

    assert answered
    eventually(lambda: wanted <= told(), 120, told)
    assert "PodwrightCostPerHour" not in {name for name, _ in told()}
