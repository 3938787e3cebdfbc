"""Declared inputs over HTTP: what is missing or wrong, in the document, and from clients of OpenAI's protocols."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import httpx
import openai
import pytest
from jsonschema import Draft202012Validator
from tests.service.openai_support import sdk, user
from tests.service.support import Serve, Served, check_problem, pointers

from podwright import (
    Agent,
    AgentStep,
    Conductor,
    EchoModel,
    FunctionAgent,
    Pipeline,
    Workflow,
)
from podwright.client import Client, ProblemError
from podwright.components import Component
from podwright_service.testing import Metrics

INPUTS: dict[str, Any] = {
    "customer": {"type": "string", "description": "Who asks."},
    "count": {"type": "integer", "minimum": 1},
    "urgent": {"type": "boolean", "default": False},
    "tags": {"$defs": {"tag": {"type": "string"}}, "type": "array", "items": {"$ref": "#/$defs/tag"}, "default": []},
}  # fmt: skip
GIVEN = {"customer": "Ada", "count": 3}


def agent() -> Agent:
    """An agent whose model repeats its instructions."""
    return Agent(
        "clerk",
        "{customer} {count} {urgent} {tags}",
        EchoModel(),
        inputs=INPUTS,
    )


def flow() -> Workflow:
    echo = Agent("echo", "Repeat.", EchoModel())
    step = AgentStep(echo, input="{customer} {count} {urgent} {tags}")
    return Workflow("flow", [step], inputs=INPUTS)


KINDS: dict[str, Component] = {
    "agent": agent(),
    "workflow": flow(),
    "pipeline": Pipeline(
        "line", [Agent("echo", "Repeat.", EchoModel())], inputs=INPUTS
    ),
}
WRONG: dict[str, tuple[dict[str, Any], list[str]]] = {
    # body, pointers
    "a text": ({"input": "x"}, ["/inputs/customer", "/inputs/count"]),
    "one is missing": (
        {"inputs": {"customer": "Ada"}},
        ["/inputs/count"],
    ),
    "wrong values": (
        {"inputs": {"customer": 1, "count": 0, "tags": ["a", 1]}},
        ["/inputs/customer", "/inputs/count", "/inputs/tags/1"],
    ),
    "a text is no number": (
        {"inputs": {"customer": "Ada", "count": "3"}},
        ["/inputs/count"],
    ),
    "an unknown name": ({"inputs": {**GIVEN, "cuont": 1}}, ["/inputs/cuont"]),
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("route", ["/run", "/run/stream", "/runs"])
def test_wrong_inputs_are_refused_before_the_run(
    serve: Serve, sqlite_database: str, route: str, kind: str
) -> None:
    """Each place has a pointer into the body; no run has begun, and none is stored."""
    client = serve(KINDS[kind], runs_database=sqlite_database)
    for body, places in WRONG.values():
        response = client.post(route, json=body)
        problem = check_problem(response, 422, "inputs_invalid")
        assert pointers(problem) == places
        assert "podwright-run-id" not in response.headers
    assert client.get("/runs").json()["runs"] == []
    assert Metrics(client.get("/metrics").text).get("podwright_runs_total") == 0


def test_inline_blueprints_declare_inputs(serve: Serve) -> None:
    """Their inputs are checked like those of the served component."""
    blueprint = agent().to_blueprint()
    blueprint["config"]["model"] = "offline/echo"
    body = {"type": "agent", "blueprint": blueprint, "input": "x"}
    client = serve(Agent("a", "", EchoModel()), model="offline/echo")
    problem = check_problem(
        client.post("/run-blueprint", json=body), 422, "inputs_invalid"
    )
    assert pointers(problem) == ["/inputs/customer", "/inputs/count"]
    del body["input"]
    assert client.post(
        "/run-blueprint", json={**body, "inputs": GIVEN}
    ).is_success


def test_the_client_names_the_inputs(serve: Serve) -> None:
    """A client in Python gets each place."""
    client = Client(str(serve(agent()).base_url))
    with pytest.raises(ProblemError) as refused:
        client.run("hello")
    assert refused.value.code == "inputs_invalid"
    assert [line.partition(":")[0] for line in refused.value.details()] == [
        "/inputs/customer",
        "/inputs/count",
    ]


@pytest.mark.parametrize("kind", KINDS)
def test_the_document_describes_the_inputs(serve: Serve, kind: str) -> None:
    """The body of a run has them as properties; its examples succeed, and what the service refuses does not fit."""
    client = serve(KINDS[kind])
    assert client.get("/info").json()["inputs"] == INPUTS
    document = client.get("/openapi.json").json()
    operation = document["paths"]["/run"]["post"]
    content = operation["requestBody"]["content"]["application/json"]
    validator = Draft202012Validator(
        {**content["schema"], "components": document["components"]}
    )
    body = document["components"]["schemas"]["RunRequest"]
    inputs = body["properties"]["inputs"]
    assert inputs["required"] == ["customer", "count"]
    assert inputs["properties"]["customer"] == INPUTS["customer"]
    assert inputs["properties"]["urgent"]["default"] is False
    (example,) = content["examples"].values()
    validator.validate(example["value"])
    assert client.post("/run", json=example["value"]).is_success
    for name, (wrong, _) in WRONG.items():
        if kind != "workflow" or name != "an unknown name":
            assert not validator.is_valid(wrong)


def test_optional_inputs_may_be_left_out(serve: Serve) -> None:
    """A component whose inputs all have defaults takes a text."""
    inputs = {"tone": {"type": "string", "default": "dry"}}
    client = serve(Agent("poet", "Be {tone}.", EchoModel(), inputs=inputs))
    assert client.post("/run", json={"input": "x"}).is_success
    document = client.get("/openapi.json").json()
    operation = document["paths"]["/run"]["post"]
    content = operation["requestBody"]["content"]["application/json"]
    assert [
        list(example["value"]) for example in content["examples"].values()
    ] == [["input"], ["inputs"]]


DEFAULTS: dict[str, Any] = {"tone": {"type": "string", "default": "dry"}}


def optional(kind: str) -> Any:
    """A component of a kind whose inputs all have defaults."""
    poet = Agent("poet", "Be {tone}.", EchoModel(), inputs=DEFAULTS)
    match kind:
        case "agent":
            return poet
        case "workflow":
            return Workflow("flow", [AgentStep(poet)], inputs=DEFAULTS)
        case "pipeline":
            return Pipeline("line", [poet], inputs=DEFAULTS)
        case "conductor":
            return Conductor(
                "lead", "Lead.", EchoModel(), skills=[poet], inputs=DEFAULTS
            )
        case _:
            return FunctionAgent("code", lambda task: task, inputs=DEFAULTS)


@pytest.mark.parametrize("body", [{}, {"inputs": {}}], ids=["no key", "empty"])
@pytest.mark.parametrize(
    "kind", ["agent", "workflow", "pipeline", "conductor", "function"]
)
def test_a_run_without_any_input(
    serve: Serve, kind: str, body: dict[str, Any]
) -> None:
    """A component whose inputs all have defaults runs with them, which the OpenAPI document allows."""
    component = optional(kind)
    client = serve(component)
    expected = component.run({})
    response = client.post("/run", json=body)
    assert response.is_success, response.text
    answer = response.json()
    if kind != "workflow":
        answer = answer["output"]
    assert answer == expected
    document = client.get("/openapi.json").json()
    place = {"$ref": "#/components/schemas/RunRequest"}
    Draft202012Validator({**document, **place}).validate(body)


@pytest.mark.parametrize(
    ("body", "pointer"), [({}, ""), ({"inputs": {}}, "/inputs")]
)
def test_a_component_that_needs_an_input(
    serve: Serve, body: dict[str, Any], pointer: str
) -> None:
    """Without a default of each input, or without declared inputs, a body needs one."""
    for component in (agent(), flow(), Agent("echo", "", EchoModel())):
        response = serve(component).post("/run", json=body)
        problem = check_problem(response, 422, "request_invalid")
        assert pointers(problem) == [pointer]


def test_the_client_gives_no_input(serve: Serve) -> None:
    """It may hand over an empty object."""
    client = Client(str(serve(optional("agent")).base_url))
    assert client.run({}).value == optional("agent").run({})


@pytest.fixture(scope="module")
def service(served: Served) -> Iterator[httpx.Client]:
    with served(flow()) as client:
        yield client


def output_of(answer: dict[str, Any]) -> str:
    return answer["choices"][0]["message"]["content"]


METADATA: dict[str, tuple[dict[str, Any], str]] = {
    # metadata, what the step is given
    "texts": (
        {"customer": "3", "count": "3", "urgent": "true", "tags": '["a"]'},
        '3 3 true ["a"]',
    ),
    "JSON": (
        {"customer": "Ada", "count": 3, "urgent": True, "tags": ["a"]},
        'Ada 3 true ["a"]',
    ),
    "others": (
        {"customer": "Ada", "count": "3", "trace": "t", "cuont": 1},
        "Ada 3 false []",
    ),
}


@pytest.mark.parametrize(("metadata", "given"), METADATA.values(), ids=METADATA)
def test_metadata_are_inputs(
    service: httpx.Client, metadata: dict[str, Any], given: str
) -> None:
    """Texts, all that OpenAI's clients send, become the data that an input takes; other entries are ignored."""
    body = {"model": "flow", "messages": [user("x")], "metadata": metadata}
    answer = service.post("/v1/chat/completions", json=body).json()
    assert output_of(answer) == f"Echo: {given}"


def test_inputs_of_members_are_metadata_too(serve: Serve) -> None:
    """A team without inputs of its own passes them on to its members."""
    client = serve(Pipeline("line", [agent()]))
    body = {
        "model": "line",
        "messages": [user("x")],
        "metadata": {"customer": "Ada", "count": "3"},
    }
    assert client.post("/v1/chat/completions", json=body).is_success


@pytest.mark.parametrize("component", [agent(), flow()])
def test_a_chat_without_the_inputs(serve: Serve, component: Component) -> None:
    """It is OpenAI's error for a bad request, whose message names them."""
    with sdk(serve(component)) as client:
        with pytest.raises(openai.BadRequestError) as refused:
            client.chat.completions.create(
                model=component.name, messages=[user("x")]
            )
        assert refused.value.code == "inputs_invalid"
        assert refused.value.param == "metadata.customer"
        for name in ("customer", "count"):
            assert f"'{name}'" in refused.value.message
        with pytest.raises(openai.BadRequestError) as refused:
            client.responses.create(
                model=component.name,
                input="x",
                metadata={"customer": "Ada", "count": "many"},
            )
        assert refused.value.param == "metadata.count"


def test_images_beside_inputs_with_defaults(serve: Serve) -> None:
    """They do not hinder a message with images."""
    inputs = {"tone": {"type": "string", "default": "dry"}}
    client = serve(Agent("poet", "Be {tone}.", EchoModel(), inputs=inputs))
    parts = [
        {"type": "text", "text": "What is it?"},
        {
            "type": "image_url",
            "image_url": {"url": "https://example.com/moon.png"},
        },
    ]
    run = client.post("/run?trace=true", json={"input": parts}).json()
    request = next(
        event["request"]
        for event in run["events"]
        if event["type"] == "model_call_started"
    )
    instructions, question = request["messages"]
    assert instructions["content"] == "Be dry."
    assert [part["type"] for part in question["content"]] == [
        "text",
        "image_url",
    ]
    assert json.dumps(parts[1]["image_url"]) in json.dumps(question)
