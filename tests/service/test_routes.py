"""Each route, for each kind of component."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from fastapi import APIRouter, HTTPException, Request
from starlette.testclient import TestClient
from tests.service.support import Example, Serve

from podwright import (
    Agent,
    ExecutionResult,
    ScriptedModel,
    Workflow,
    blueprints,
    load,
)
from podwright.errors import ConfigurationError
from podwright.testing import assert_events
from podwright_service import Settings, create_app, run_component

KINDS = {
    "researcher": "agent",
    "writer": "agent",
    "reviewer": "agent",
    "newsroom": "workflow",
    "desk": "conductor",
    "press": "pipeline",
}
OUTPUTS = ["input", "researcher_output", "reviewer_output", "writer_output"]

each_example = pytest.mark.parametrize("name", KINDS)


def check(name: str, body: Any) -> None:
    """Check the body of a response of `/run`."""
    assert sorted(body) == (
        OUTPUTS if KINDS[name] == "workflow" else ["output"]
    )
    assert all(isinstance(value, str) and value for value in body.values())


def check_headers(headers: httpx.Headers) -> None:
    assert len(headers["podwright-run-id"]) == 32
    tokens, output, cost = headers["podwright-usage"].split(", ")
    assert int(tokens.removeprefix("input_tokens=")) > 0
    assert int(output.removeprefix("output_tokens=")) > 0
    assert cost == 'cost="0"'


def test_probes(example: Example) -> None:
    """A running service is healthy and ready, also for HEAD requests."""
    client = example("writer")
    assert client.get("/health").json() == {"status": "ok"}
    assert client.get("/ready").json() == {"status": "ready"}
    heads = [client.head(path) for path in ("/health", "/ready")]
    assert [(head.status_code, head.content) for head in heads] == [
        (200, b"")
    ] * 2


def test_models_of_single_agents(serve: Serve) -> None:
    """A setting for one agent holds for its runs, in `/info` and for inline blueprints; the others keep theirs."""
    models = [
        ScriptedModel(lambda request: f"own: {request.component}", name=name)
        for name in ("me/a", "me/b")
    ]
    writer = Agent("writer", "Write.", models[0])
    critic = Agent("critic", "Judge.", models[1])
    client = serve(
        Workflow("flow", [writer, critic]), model="writer=offline/echo"
    )
    context = client.post("/run", json={"input": "x"}).json()
    assert context["writer_output"] == "Echo: x"
    assert context["critic_output"] == "own: critic"
    info = client.get("/info").json()
    assert info["models"] == {
        "named": ["me/a", "me/b"],
        "effective": ["offline/echo", "me/b"],
        "reported": [],
    }
    assert info["accepts"]["models"] == ["me/a", "me/b", "offline/echo"]
    metrics = client.get("/metrics").text
    assert 'component="writer",kind="agent",model="offline/echo"' in metrics
    assert 'component="writer",kind="agent",model="me/a"' not in metrics
    with pytest.raises(ConfigurationError, match="'nobody'"):
        serve(writer, model="nobody=offline/echo")


@each_example
def test_info_describes_the_component(
    example: Example, newsroom: Path, name: str
) -> None:
    """`/info` has name, kind, title, versions, the blueprint with its digest, models, tools and limits."""
    component = load(newsroom / name)
    info = example(name).get("/info").json()
    assert (info["name"], info["kind"], info["title"]) == (
        name,
        KINDS[name],
        f"The {name}",
    )
    assert info["description"] == component.description
    assert info["blueprint"] == component.to_blueprint()
    assert info["digest"] == blueprints.digest(component.to_blueprint())
    assert info["models"] == {
        "named": ["openai/gpt-4o-mini"],
        "effective": ["offline/echo"],
        "reported": [],
    }
    assert info["clients"] == {
        "offline/echo": {"client": "own", "reason": "it needs no provider"}
    }
    assert info["accepts"]["models"] == ["openai/gpt-4o-mini", "offline/echo"]
    assert info["tools"] == (
        [] if name in ("writer", "reviewer") else ["search_archive"]
    )
    assert set(info["versions"]) == {
        "podwright",
        "blueprint",
        "python",
        "genai-prices",
        "litellm",
    }
    assert info["limits"]["run_wall_time"] == 600
    assert info["limits"]["run_cost"] is None


@each_example
@pytest.mark.parametrize(
    "body",
    [
        {"input": "the moon"},
        {"inputs": {"query": "the moon", "language": "German"}},
    ],
    ids=["text", "names"],
)
def test_a_run(example: Example, name: str, body: dict[str, Any]) -> None:
    """The response is the output, or a workflow's context with the named inputs, and has the run's id and usage."""
    response = example(name).post("/run", json=body)
    assert response.status_code == 200, response.text
    result = response.json()
    if KINDS[name] == "workflow":
        for key, value in body.get("inputs", {}).items():
            assert result.pop(key) == value
    check(name, result)
    check_headers(response.headers)


@each_example
def test_a_trace_is_returned_on_request(example: Example, name: str) -> None:
    """With `?trace=true` the response is an execution result, which the library reads."""
    response = example(name).post("/run?trace=true", json={"input": "the moon"})
    result = ExecutionResult.from_dict(response.json())
    assert_events(result, "run_started", "model_call_finished", "run_finished")
    check(
        name,
        result.value if KINDS[name] == "workflow" else {"output": result.value},
    )
    assert result.events[0].run_id == response.headers["podwright-run-id"]
    assert (
        f"input_tokens={result.usage.input_tokens},"
        in response.headers["podwright-usage"]
    )


@each_example
def test_a_service_runs_its_own_blueprint(example: Example, name: str) -> None:
    """The blueprint in `/info`, run as an inline blueprint of the same service, has the response of `/run`."""
    client = example(name)
    body = {
        "type": KINDS[name],
        "blueprint": client.get("/info").json()["blueprint"],
        "input": "the moon",
    }
    response = client.post("/run-blueprint", json=body)
    assert response.status_code == 200, response.text
    assert (
        response.json()
        == client.post("/run", json={"input": "the moon"}).json()
    )
    check_headers(response.headers)


def test_a_posted_team_may_use_a_posted_workflow(example: Example) -> None:
    """Agents in a request may be of any kind, and those of workflows may be agents in the same request."""
    agent = {
        "name": "poet",
        "instructions": "Write.",
        "config": {"model": "offline/echo"},
    }
    page = {
        "name": "page",
        "steps": [{"type": "agent_step", "agent": "poet", "name": "write"}],
    }
    line = {
        "type": "Pipeline",
        "name": "line",
        "steps": [{"type": "Agent", "name": "page"}],
    }
    body = {
        "type": "pipeline",
        "blueprint": line,
        "agents": {"page": page, "poet": agent},
        "input": "the moon",
    }
    response = example("writer").post("/run-blueprint", json=body)
    answer = response.json()
    context = {"input": "the moon", "poet_output": "Echo: the moon"}
    assert json.loads(answer["output"]) == answer["data"] == context


async def twice(times: int, body: dict[str, str]) -> dict[str, str]:
    return {name: value * times for name, value in body.items()}


def test_routes_can_be_added_to_the_application() -> None:
    """A FastAPI route that is added works, and so do the service's own."""
    app = create_app(Settings(), Agent("guide", "You guide.", "offline/echo"))
    app.post("/twice/{times}")(twice)
    with TestClient(app) as client:
        assert client.post("/twice/2", json={"a": "b"}).json() == {"a": "bb"}
        assert client.post("/run", json={"input": "Hello?"}).status_code == 200


def test_a_route_on_the_application_refuses_unknown_queries() -> None:
    """As the service's own do; a router that is included has the route class that it names."""
    app = create_app(Settings(), Agent("guide", "You guide.", "offline/echo"))
    app.post("/twice/{times}")(twice)
    router = APIRouter()
    router.post("/tolerant/{times}")(twice)
    app.include_router(router)
    with TestClient(app) as client:
        refused = client.post("/twice/2?tims=3", json={"a": "b"})
        assert refused.status_code == 422
        assert refused.json()["code"] == "request_invalid"
        tolerant = client.post("/tolerant/2?tims=3", json={"a": "b"})
        assert tolerant.json() == {"a": "bb"}


async def own(request: Request, body: dict[str, Any]) -> dict[str, Any]:
    result = await run_component(request, trace=True, **body)
    return {"value": result.value, "events": len(result.events)}


async def closed() -> None:
    raise HTTPException(409, "The ticket is closed.")


@pytest.fixture
def own_routes() -> Iterator[TestClient]:
    """A client of a service with a route that runs the component with the body of its request."""
    app = create_app(
        Settings(run_model_calls=1), Agent("guide", "Help.", "offline/echo")
    )
    app.post("/own")(own)
    app.post("/closed")(closed)
    with TestClient(app) as client:
        yield client


def test_a_route_of_ones_own_runs_the_component(
    own_routes: TestClient,
) -> None:
    """A run of an added route is counted, and limited by the headers of its request, as one of `/run` is."""
    answer = own_routes.post("/own", json={"input": "Hello?"}).json()
    assert answer == {"value": "Echo: Hello?", "events": 4}
    metrics = own_routes.get("/metrics").text
    assert re.search(r'podwright_runs_total{.*status="ok"} 1.0', metrics)
    refused = own_routes.post(
        "/own",
        json={"input": "Hello?"},
        headers={"podwright-budget": "model_calls=0"},
    )
    assert refused.json()["code"] == "limit_exceeded"


def test_an_error_of_a_route_of_ones_own(own_routes: TestClient) -> None:
    """What an added route raises is a problem document."""
    response = own_routes.post("/closed")
    assert response.status_code == 409
    assert response.headers["content-type"] == "application/problem+json"
    assert response.json()["detail"].startswith("The ticket is closed.")


@pytest.mark.parametrize(
    ("body", "pointer"),
    [
        ({"inptu": "Hello?"}, "/inptu"),
        ({"input": 5}, "/input"),
        ({"input": "Hello?", "start_step": 1}, "/start_step"),
    ],
)
def test_a_route_of_ones_own_gives_wrong_values(
    own_routes: TestClient, body: dict[str, Any], pointer: str
) -> None:
    """Values that the body of `/run` could not have are a 422 with their places."""
    response = own_routes.post("/own", json=body)
    assert response.status_code == 422
    problem = response.json()
    assert problem["code"] == "request_invalid"
    assert pointer in [entry["pointer"] for entry in problem["errors"]]
