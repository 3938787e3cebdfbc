"""The OpenAPI document, and the page that shows it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from jsonschema import Draft202012Validator
from tests.service.support import Example, Serve

from podwright import Agent, AgentStep, EchoModel, MapStep, Workflow

ROUTES = {
    "/health", "/ready", "/info", "/run", "/run/stream", "/run-blueprint", "/validate-blueprint", "/metrics",
    "/estimate", "/estimate-blueprint",
    "/v1/models", "/v1/models/{model}", "/v1/chat/completions", "/v1/responses",
}  # fmt: skip

ECHO = Agent("echo", "Repeat.", EchoModel())
each_kind = pytest.mark.parametrize(
    "name", ["researcher", "newsroom", "desk", "press"]
)


def operations(
    document: dict[str, Any],
) -> Iterator[tuple[str, str, dict[str, Any]]]:
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            yield path, method, operation


def filled(path: str, operation: dict[str, Any]) -> str:
    """A path with the values of its parameters."""
    parameters = [
        each for each in operation.get("parameters", ()) if each["in"] == "path"
    ]
    return path.format_map(
        {
            parameter["name"]: parameter["schema"]["const"]
            for parameter in parameters
        }
    )


def validate(
    document: dict[str, Any], schema: dict[str, Any], value: Any
) -> None:
    Draft202012Validator(
        {**schema, "components": document["components"]}
    ).validate(value)


@each_kind
def test_the_document_is_valid(example: Example, name: str) -> None:
    """The document has every route, and every schema is valid."""
    document = example(name).get("/openapi.json").json()
    assert document["openapi"].startswith("3.1")
    assert set(document["paths"]) == ROUTES
    for schema in document["components"]["schemas"].values():
        Draft202012Validator.check_schema(schema)
    assert len(
        {operation["operationId"] for _, _, operation in operations(document)}
    ) == len(ROUTES)


@each_kind
def test_the_example_requests_work(example: Example, name: str) -> None:
    """Each example is valid for its schema, and its response is a success that is valid for the documented schema."""
    client = example(name)
    sent = 0
    document = client.get("/openapi.json").json()
    for path, method, operation in operations(document):
        content = (
            operation.get("requestBody", {})
            .get("content", {})
            .get("application/json", {})
        )
        for body in [
            named["value"] for named in content.get("examples", {}).values()
        ] or [None]:
            if body is not None:
                validate(document, content["schema"], body)
            response = client.request(
                method.upper(), filled(path, operation), json=body
            )
            assert response.status_code == 200, response.text
            media_types = operation["responses"]["200"]["content"]
            media_type = response.headers["content-type"].partition(";")[0]
            assert media_type in media_types
            if media_type == "application/json":
                validate(
                    document, media_types[media_type]["schema"], response.json()
                )
            sent += 1
    assert sent == 26


LOCAL = Workflow(
    "outline",
    [
        AgentStep(ECHO, output="topic"),
        MapStep("points", "point", [AgentStep(ECHO, input="{topic}, {a}")]),
    ],
)
REMOTE = Workflow("fleet", [AgentStep(ECHO)])


@pytest.mark.parametrize(
    ("component", "settings"), [(LOCAL, {}), (REMOTE, {"allowed_models": []})]
)
def test_the_examples_fit_the_component(
    serve: Serve, component: Workflow, settings: dict[str, Any]
) -> None:
    """The examples have the names that the component needs, and no model that is not allowed; headers have none."""
    client = serve(component, **settings)
    for path, _, operation in operations(client.get("/openapi.json").json()):
        # the page would send them
        headers = [
            parameter
            for parameter in operation.get("parameters", [])
            if parameter["in"] == "header"
        ]
        assert not any("example" in parameter for parameter in headers)
        content = (
            operation.get("requestBody", {})
            .get("content", {})
            .get("application/json", {})
        )
        for shown in content.get("examples", {}).values():
            response = client.post(path, json=shown["value"])
            assert response.status_code == 200, (path, response.text)
            assert not any(
                mark in response.text
                for mark in ("event: problem", '"valid":false')
            )
