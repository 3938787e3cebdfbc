"""Query parameters: one that a route does not have is a problem, where nothing depends on its being ignored."""

from __future__ import annotations

import json
from collections.abc import Iterator

import httpx
import pytest
from tests.service.background_support import begin, wait
from tests.service.support import Serve, check_problem

from podwright import Agent, FunctionAgent

ECHO = Agent("echo", "Repeat.", "offline/echo")
BODY = {"input": "x"}
CHAT = {"model": "echo", "messages": [{"role": "user", "content": "x"}]}
BODIES = {
    "/v1/chat/completions": CHAT,
    "/v1/responses": {"model": "echo", "input": "x"},
}
TOLERANT = ("/health", "/ready", "/metrics")


@pytest.fixture
def client(serve: Serve, sqlite_database: str) -> httpx.Client:
    return serve(ECHO, runs_database=sqlite_database)


def operations(client: httpx.Client) -> Iterator[tuple[str, str]]:
    for path, methods in client.get("/openapi.json").json()["paths"].items():
        for method in methods:
            yield method.upper(), path


def test_every_route_refuses_an_unknown_one(client: httpx.Client) -> None:
    """Also one beside known ones, and with any body; on OpenAI's routes in their form."""
    refused = 0
    for method, path in operations(client):
        if path in TOLERANT:
            continue
        url = path.replace("{run_id}", "0" * 32).replace("{model}", "echo")
        body = BODIES.get(path, BODY) if method == "POST" else None
        response = client.request(
            method, url, params={"staus": "failed", "": "1"}, json=body
        )
        if path.startswith("/v1"):
            assert response.status_code == 400, (path, response.text)
            error = response.json()["error"]
            assert error["code"] == "request_invalid"
            assert "staus" in json.dumps(error["errors"])
        else:
            problem = check_problem(response, 422, "request_invalid")
            assert "'staus'" in problem["detail"]
            assert len(problem["errors"]) == 2
        refused += 1
    assert refused > 15


@pytest.mark.parametrize(
    "path", [*TOLERANT, "/docs", "/docs/static/swagger-ui.css"]
)
def test_probes_scrapes_and_pages_ignore_them(
    client: httpx.Client, path: str
) -> None:
    """A load balancer, a scraper or a link may add one."""
    assert client.get(path, params={"name[]": "x"}).status_code == 200


def test_azures_clients_add_a_version(client: httpx.Client) -> None:
    """To each request of OpenAI's protocols."""
    version = {"api-version": "preview"}
    for path, body in BODIES.items():
        assert client.post(path, params=version, json=body).status_code == 200
    assert client.get("/v1/models", params=version).status_code == 200
    assert client.get("/info", params=version).status_code == 422


def test_a_suggestion(client: httpx.Client) -> None:
    """The problem names the parameter that was meant, or the ones that there are."""
    near = client.get("/runs", params={"statuses": "failed"}).json()
    assert "'status'" in near["suggestion"]
    far = client.get("/runs", params={"since": "2026-11-01"}).json()
    assert "cursor" in far["suggestion"]


def test_a_list_has_no_contents(serve: Serve, sqlite_database: str) -> None:
    """Results and problems are in the run, and in the list if they are asked for."""
    client = serve(
        FunctionAgent("large", lambda text: text * 300_000),
        runs_database=sqlite_database,
    )
    url = begin(client, "x")
    whole = wait(client, url)
    assert len(whole["result"]["output"]) == 300_000
    response = client.get("/runs")
    assert len(response.content) < 2_000
    (listed,) = response.json()["runs"]
    contents = {
        "result",
        "messages",
        "problem",
        "approval",
        "decisions",
        "actions",
    }
    assert listed == {
        **{name: whole[name] for name in whole.keys() - contents},
        "code": None,
    }
    for fields in ("result", " result ,id", ",".join(contents)):
        (listed,) = client.get("/runs", params={"fields": fields}).json()[
            "runs"
        ]
        assert listed["result"] == whole["result"]
    assert listed == {**whole, "code": None}


def test_a_failed_run_in_a_list(serve: Serve, sqlite_database: str) -> None:
    """Its code is there; its problem is asked for."""

    def fail(text: str) -> str:
        raise LookupError(text)

    client = serve(FunctionAgent("a", fail), runs_database=sqlite_database)
    problem = wait(client, begin(client))["problem"]
    (listed,) = client.get("/runs").json()["runs"]
    assert (listed["status"], listed["code"]) == ("failed", problem["code"])
    assert "problem" not in listed
    (listed,) = client.get("/runs?fields=problem").json()["runs"]
    assert listed["problem"] == problem


@pytest.mark.parametrize("fields", ["results", "result,nothing", "request"])
def test_an_unknown_field(client: httpx.Client, fields: str) -> None:
    problem = check_problem(
        client.get("/runs", params={"fields": fields}), 422, "request_invalid"
    )
    assert "'fields'" in problem["detail"]
    assert "approval" in problem["suggestion"]


@pytest.mark.parametrize("query", ["trace=true&trace=false", "data=1&data=1"])
def test_a_repeated_one_is_refused(client: httpx.Client, query: str) -> None:
    """One of two values would have no effect."""
    problem = check_problem(
        client.post(f"/run?{query}", json=BODY), 422, "request_invalid"
    )
    assert "repeated" in problem["detail"]
