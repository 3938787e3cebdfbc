"""Who pays for a run that passes through several containers, and who may say so."""

from __future__ import annotations

import json
from typing import Any

import httpx
import pytest
from opentelemetry.sdk.trace.export.in_memory_span_exporter import (
    InMemorySpanExporter,
)
from tests.helpers import until
from tests.service.support import Serve

from podwright import Agent, FunctionModel, Remote, Usage, Workflow
from podwright.testing import ModelRequest, ModelResponse
from podwright_service.observability import configure_logging
from podwright_service.settings import Settings
from podwright_service.testing import Metrics

KEYS = {name: name[0] * 20 for name in ("shop", "blog", "admin", "unlisted")}
RELAYS = {"edge": "e" * 20, "middle": "m" * 20}
NAMELESS = "n" * 20
CALLERS = "shop,blog"
COSTS = {"one": 0.03, "two": 0.07, "three": 0.0011}
"""USD of a call in each container, which binary fractions cannot express."""


def spender(name: str) -> Agent:
    def answer(request: ModelRequest) -> ModelResponse:
        return ModelResponse("done", usage=Usage(10, 5, cost=COSTS[name]))

    return Agent(name, "Spend.", FunctionModel(answer))


def remote(name: str, client: httpx.Client, key: str | None) -> Remote:
    return Remote(name, str(client.base_url), api_key=key)


def entry(name: str, key: str, scopes: str = "run+read") -> str:
    return f"{scopes}@{name}:{key}"


def outer_keys() -> str:
    named = [entry(name, key) for name, key in KEYS.items()]
    return ",".join([*named, f"run+read:{NAMELESS}"])


def relay_key(name: str) -> str:
    return entry(name, RELAYS[name], "run+read+runs:relay")


@pytest.fixture
def fleet(serve: Serve) -> list[tuple[httpx.Client, str]]:
    """Three containers, the outermost first, each with a key that may read its metrics."""
    last = serve(
        spender("three"),
        api_keys=relay_key("middle"),
        metric_callers=CALLERS,
    )
    inner = Workflow(
        "inner",
        [spender("two"), remote("three", last, RELAYS["middle"])],
    )
    middle = serve(inner, api_keys=relay_key("edge"), metric_callers=CALLERS)
    outer = Workflow(
        "outer", [spender("one"), remote("inner", middle, RELAYS["edge"])]
    )
    first = serve(outer, api_keys=outer_keys(), metric_callers=CALLERS)
    return [
        (first, KEYS["admin"]),
        (middle, RELAYS["edge"]),
        (last, RELAYS["middle"]),
    ]


def scrape(client: httpx.Client, key: str) -> Metrics:
    response = client.get("/metrics", headers=authorization(key))
    assert response.status_code == 200
    return Metrics(response.text)


def authorization(key: str) -> dict[str, str]:
    return {"authorization": f"Bearer {key}"}


def run(client: httpx.Client, key: str, path: str = "/run") -> dict[str, Any]:
    response = client.post(
        path, json={"input": "x"}, headers=authorization(key)
    )
    assert response.status_code == 200, response.text
    return response.json()


def test_the_sum_over_callers_is_the_books(
    fleet: list[tuple[httpx.Client, str]],
) -> None:
    """Over three containers, each caller has cost what its results say, whatever key the components call with."""
    requests = {
        KEYS["shop"]: ("shop", 3),
        KEYS["blog"]: ("blog", 2),
        KEYS["unlisted"]: ("", 1),
        NAMELESS: ("", 1),
    }
    costs: dict[str, float] = dict.fromkeys(("shop", "blog", ""), 0.0)
    tokens: dict[str, int] = dict.fromkeys(("shop", "blog", ""), 0)
    for key, (caller, number) in requests.items():
        for _ in range(number):
            usage = run(fleet[0][0], key, "/run?trace=true")["usage"]
            costs[caller] += usage["cost"]
            tokens[caller] += usage["input_tokens"] + usage["output_tokens"]
    scrapes = [scrape(client, key) for client, key in fleet]
    for caller, cost in costs.items():
        counted = sum(
            metrics.get("podwright_cost_usd_total", caller=caller)
            for metrics in scrapes
        )
        # to the last digit that a sum of floats in another order has
        assert f"{counted:.12f}" == f"{cost:.12f}"
        assert tokens[caller] == sum(
            metrics.get("podwright_tokens_total", type=kind, caller=caller)
            for metrics in scrapes
            for kind in ("input", "output")
        )
        of_runs = scrapes[0].get("podwright_run_cost_usd_sum", caller=caller)
        assert f"{of_runs:.12f}" == f"{cost:.12f}"
        assert tokens[caller] == scrapes[0].get(
            "podwright_run_tokens_sum", caller=caller
        )
    for metrics in scrapes:
        labels = {
            sample.labels["caller"]
            for sample in metrics.samples
            if "caller" in sample.labels
        }
        assert labels == {"shop", "blog", ""}


@pytest.fixture
def relayed(serve: Serve, request: pytest.FixtureRequest) -> httpx.Client:
    options: dict[str, Any] = {"metric_callers": CALLERS}
    if request.param:
        options["api_keys"] = request.param
    return serve(spender("one"), **options)


@pytest.mark.parametrize(
    ("relayed", "said", "payer"),
    [
        (entry("blog", KEYS["blog"]), "shop", "blog"),
        (entry("blog", KEYS["blog"]), "", "blog"),
        (entry("blog", KEYS["blog"], "run+runs:all+read"), "shop", "blog"),
        (entry("blog", KEYS["blog"], "run+runs:relay+read"), "shop", "shop"),
        (entry("blog", KEYS["blog"], "run+runs:relay+read"), "", ""),
        (entry("blog", KEYS["blog"], "run+runs:relay+read"), "else", ""),
        (entry("blog", KEYS["blog"], "run+runs:relay+read"), "a b", "blog"),
        (entry("blog", KEYS["blog"], "run+runs:relay+read"), "x" * 65, "blog"),
        (entry("blog", KEYS["blog"], "run+runs:relay+read"), "ä", "blog"),
        (f"@blog:{KEYS['blog']}", "shop", "shop"),
        ("", "shop", "shop"),
    ],
    indirect=["relayed"],
)
def test_who_may_name_another_caller(
    relayed: httpx.Client, said: str, payer: str
) -> None:
    """A key without the scope `runs:relay` pays itself, and what is no name of a key is ignored."""
    headers = {
        **authorization(KEYS["blog"]),
        "podwright-caller": said.encode(),
    }
    response = relayed.post("/run", json={"input": "x"}, headers=headers)
    assert response.status_code == 200
    metrics = scrape(relayed, KEYS["blog"])
    assert metrics.get("podwright_cost_usd_total", caller=payer) == COSTS["one"]
    assert metrics.get("podwright_cost_usd_total") == COSTS["one"]


def test_spans_and_lines_have_the_outermost_caller(
    spans: InMemorySpanExporter,
    fleet: list[tuple[httpx.Client, str]],
    capfd: pytest.CaptureFixture[str],
) -> None:
    """In each container, with the component that calls for it."""
    configure_logging(Settings(log_format="json"))
    run(fleet[0][0], KEYS["shop"])
    expected = {
        ("outer", "shop", None),
        ("inner", "shop", "edge"),
        ("three", "shop", "middle"),
    }
    names = {
        "POST /run": "outer",
        "invoke_workflow inner": "inner",
        "invoke_agent three": "three",
    }

    def origins() -> set[tuple[Any, Any, Any]]:
        found = [
            (names[span.name], dict(span.attributes or {}))
            for span in spans.get_finished_spans()
            if span.name in names and span.kind.name != "CLIENT"
        ]
        return {
            (name, each.get("podwright.caller"), each.get("podwright.via"))
            for name, each in found
        }

    until(lambda: len(origins()) >= len(expected))
    assert origins() == expected
    lines = [
        json.loads(line)
        for line in capfd.readouterr().out.splitlines()
        if '"event":"run"' in line
    ]
    assert {
        (line["component"], line["caller"], line.get("via")) for line in lines
    } == expected


def test_a_program_is_the_caller_of_its_remotes(serve: Serve) -> None:
    """Outside of a request, the key that is sent is the caller's own."""
    client = serve(
        spender("one"),
        api_keys=entry("shop", KEYS["shop"], "run+read+runs:relay"),
        metric_callers=CALLERS,
    )
    flow = Workflow("flow", [remote("one", client, KEYS["shop"])])
    flow.run("x")
    metrics = scrape(client, KEYS["shop"])
    assert (
        metrics.get("podwright_cost_usd_total", caller="shop") == COSTS["one"]
    )


def test_a_background_run_is_for_its_caller(
    serve: Serve, sqlite_database: str
) -> None:
    """Also where it is performed apart from the request that began it."""
    last = serve(
        spender("two"), api_keys=relay_key("edge"), metric_callers=CALLERS
    )
    flow = Workflow("flow", [remote("two", last, RELAYS["edge"])])
    first = serve(flow, api_keys=outer_keys(), runs_database=sqlite_database)
    response = first.post(
        "/runs", json={"input": "x"}, headers=authorization(KEYS["shop"])
    )
    path = f"/runs/{response.json()['id']}"

    def has_succeeded() -> bool:
        stored = first.get(path, headers=authorization(KEYS["shop"])).json()
        return stored["status"] == "succeeded"

    until(has_succeeded)
    metrics = scrape(last, RELAYS["edge"])
    assert (
        metrics.get("podwright_cost_usd_total", caller="shop") == COSTS["two"]
    )
