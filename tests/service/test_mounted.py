"""Applications of `create_app` that are mounted in another one: their lifespan, paths, keys, and the process around."""

from __future__ import annotations

import logging
import signal
from collections.abc import Iterator

import pytest
from fastapi import FastAPI
from pydantic import SecretStr
from starlette.applications import Starlette
from starlette.routing import Mount
from starlette.testclient import TestClient
from tests.helpers import until
from tests.service.mounting import mount

import podwright_service
from podwright import Agent
from podwright_service import Settings, create_app

RUN_KEY = "run:" + "r" * 20
READ_KEY = "read:" + "d" * 20


def component(name: str = "guide") -> Agent:
    return Agent(name, "You guide.", "offline/echo")


def bearer(entry: str) -> dict[str, str]:
    return {"authorization": f"Bearer {entry.rpartition(':')[2]}"}


@pytest.fixture
def mounted() -> Iterator[TestClient]:
    """A client of an application in which two components are mounted, the second one with keys."""
    keys = Settings(api_keys=(SecretStr(RUN_KEY), SecretStr(READ_KEY)))
    parent = mount(
        open=create_app(Settings(), component("first")),
        closed=create_app(keys, component("second")),
    )
    with TestClient(parent) as client:
        yield client


def test_two_components_in_one_process(mounted: TestClient) -> None:
    """Each mounted component runs, and counts its own runs and requests by the paths that it documents."""
    first = mounted.post("/open/run", json={"input": "Hello?"})
    second = mounted.post(
        "/closed/run", json={"input": "Hello?"}, headers=bearer(RUN_KEY)
    )
    assert first.json() == second.json() == {"output": "Echo: Hello?"}
    metrics = mounted.get("/open/metrics").text
    assert 'component="first"' in metrics
    assert 'component="second"' not in metrics
    requests = [
        line
        for line in metrics.splitlines()
        if line.startswith("podwright_http_requests_total")
    ]
    assert len(requests) == 1
    assert 'route="/run",status="200"} 1.0' in requests[0]


@pytest.mark.parametrize(
    ("path", "entry", "status"),
    [
        ("/closed/health", "", 200),
        ("/closed/docs", "", 200),
        ("/closed/docs/static/swagger-ui.css", "", 200),
        ("/closed/info", "", 401),
        ("/closed/info", RUN_KEY, 403),
        ("/closed/info", READ_KEY, 200),
        ("/closed/nowhere", READ_KEY, 404),
    ],
)
def test_keys_hold_below_the_mount(
    mounted: TestClient, path: str, entry: str, status: int
) -> None:
    """Each route needs the scope that it has without the mount, and only the open ones need no key."""
    headers = bearer(entry) if entry else {}
    assert mounted.get(path, headers=headers).status_code == status


@pytest.mark.parametrize("path", ["/closed/run", "/closed/v1/responses"])
def test_a_key_to_read_does_not_run(mounted: TestClient, path: str) -> None:
    """A key without the scope `run` is refused, on the routes of each protocol in its shape."""
    response = mounted.post(path, json={}, headers=bearer(READ_KEY))
    assert response.status_code == 403
    document = response.json()
    assert "scope_missing" in (
        document.get("code"),
        document.get("error", {}).get("code"),
    )


def test_documents_name_the_mount(mounted: TestClient) -> None:
    """The OpenAPI document has the path of the mount as its server, and problems have the whole path."""
    document = mounted.get("/open/openapi.json").json()
    assert document["servers"] == [{"url": "/open"}]
    assert "/run" in document["paths"]
    problem = mounted.get("/open/run").json()
    assert problem["instance"] == "/open/run"
    assert problem["suggestion"] == "Use POST here."
    wrong = mounted.post("/open/run", json={"inptu": "Hello?"}).json()
    assert [entry["pointer"] for entry in wrong["errors"]] == ["/inptu"]
    assert "'input'" in wrong["errors"][0]["suggestion"]


@pytest.mark.parametrize("path", ["/agent", "/agent/", "/agents/run"])
def test_a_path_beside_the_mount(path: str) -> None:
    """What is not below the path of the mount is not found, whatever it begins with."""
    with TestClient(mount(agent=create_app(Settings(), component()))) as client:
        assert client.get(path).status_code == 404


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("POST", "/agent/run"),
        ("GET", "/agent/ready"),
        ("GET", "/agent/health"),
        ("GET", "/agent/docs"),
    ],
)
@pytest.mark.parametrize("framework", ["fastapi", "starlette"])
def test_a_lifespan_that_was_not_entered(
    framework: str, method: str, path: str
) -> None:
    """Without its lifespan, each route of a mounted application answers 503, with what to do."""
    app = create_app(Settings(), component())
    parent: Starlette = Starlette(routes=[Mount("/agent", app)])
    if framework == "fastapi":
        parent = FastAPI()
        parent.mount("/agent", app)
    with TestClient(parent) as client:
        response = client.request(method, path)
    assert response.status_code == 503
    assert response.headers["content-type"] == "application/problem+json"
    problem = response.json()
    assert problem["code"] == "not_started"
    assert "podwright_service.lifespan(app)" in problem["suggestion"]


def test_background_runs(sqlite_database: str) -> None:
    """The lifespan of a mounted application performs its background runs; before it, they are refused."""
    settings = Settings(runs_database=SecretStr(sqlite_database))
    app = create_app(settings, component())
    outside = FastAPI()
    outside.mount("/agent", app)
    body = {"input": "Hello?"}
    with TestClient(outside) as client:
        refused = client.post("/agent/runs", json=body)
        assert refused.json()["code"] == "not_started"
    with TestClient(mount(agent=app)) as client:
        accepted = client.post("/agent/runs", json=body)
        assert accepted.status_code == 202
        path = f"/agent/runs/{accepted.json()['id']}"
        until(lambda: client.get(path).json()["status"] == "succeeded")


async def test_signals_are_left_to_the_program() -> None:
    """`lifespan` does not handle signals; the lifespan that a server runs does, and both begin and end the service."""
    app = create_app(Settings(), component())
    lifecycle = app.state.runtime.lifecycle
    before = signal.getsignal(signal.SIGTERM)
    async with app.router.lifespan_context(app):
        assert signal.getsignal(signal.SIGTERM) is not before
    async with podwright_service.lifespan(app):
        assert signal.getsignal(signal.SIGTERM) is before
        assert lifecycle.state == "ready"
    assert lifecycle.state == "draining"
    async with app.router.lifespan_context(app):
        assert signal.getsignal(signal.SIGTERM) is not before


@pytest.mark.usefixtures("plain_logging")
def test_runs_are_logged_as_the_program_says(
    caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    """In a program without structlog, the line of a run is a record of the standard logger, and nothing is printed."""
    caplog.set_level(logging.INFO, "podwright")
    root = logging.getLogger()
    handlers = [*root.handlers]
    app = create_app(Settings(), component())
    with TestClient(mount(agent=app)) as client:
        client.post("/agent/run", json={"input": "Hello?"})
    (record,) = [
        record for record in caplog.records if record.name == "podwright.run"
    ]
    assert "component='guide'" in record.getMessage()
    assert vars(record)["podwright"]["status"] == "ok"
    assert root.handlers == handlers
    assert capsys.readouterr().out == ""
