"""The published document, and the page that draws it."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest
from jsonschema import Draft202012Validator

Example = Callable[[str], httpx.Client]

ROUTES = {
    "/health", "/ready", "/info", "/run", "/run/stream", "/run-blueprint", "/validate-blueprint", "/metrics",
}  # fmt: skip

each_kind = pytest.mark.parametrize("name", ["researcher", "newsroom", "desk", "press"])


def operations(document: dict[str, Any]) -> Iterator[tuple[str, str, dict[str, Any]]]:
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            yield path, method, operation


def validator(document: dict[str, Any], schema: dict[str, Any]) -> Draft202012Validator:
    return Draft202012Validator({**schema, "components": document["components"]})


def examples(content: dict[str, Any]) -> list[Any]:
    found = [one["value"] for one in content.get("examples", {}).values()]
    return [*found, content["example"]] if "example" in content else found


def references(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        if isinstance(value.get("$ref"), str):
            yield value["$ref"]
        for one in value.values():
            yield from references(one)
    elif isinstance(value, list):
        for one in value:
            yield from references(one)


@each_kind
def test_the_document_is_sound(example: Example, name: str) -> None:
    """Every route is in it, every schema is one, and every reference leads somewhere."""
    document = example(name).get("/openapi.json").json()
    assert document["openapi"].startswith("3.1")
    assert set(document["paths"]) == ROUTES
    for schema in document["components"]["schemas"].values():
        Draft202012Validator.check_schema(schema)
    for reference in references(document):
        assert reference.removeprefix("#/components/schemas/") in document["components"]["schemas"], reference
    assert len({operation["operationId"] for _, _, operation in operations(document)}) == len(ROUTES)


@each_kind
def test_the_examples_fit_their_schemas(example: Example, name: str) -> None:
    """Each example of a request, an answer and a problem is valid by the schema beside it."""
    document = example(name).get("/openapi.json").json()
    count = 0
    for _, _, operation in operations(document):
        for part in [operation.get("requestBody", {}), *operation["responses"].values()]:
            for content in part.get("content", {}).values():
                for one in examples(content):
                    validator(document, content["schema"]).validate(one)
                    count += 1
    assert count > 30


@each_kind
def test_the_example_requests_work(example: Example, name: str) -> None:
    """Each example request, sent as it stands, succeeds with an answer that fits the documented schema."""
    client = example(name)
    document = client.get("/openapi.json").json()
    for path, method, operation in operations(document):
        bodies = examples(operation.get("requestBody", {}).get("content", {}).get("application/json", {})) or [None]
        for body in bodies:
            response = client.request(method.upper(), path, json=body)
            assert response.status_code == 200, response.text
            (media, content), *_ = operation["responses"]["200"]["content"].items()
            if media != "application/json":  # read by Prometheus's own parser, and as a stream, in other tests
                assert response.headers["content-type"].partition(";")[0] == media.partition(";")[0]
                continue
            validator(document, content["schema"]).validate(response.json())
            if path == "/validate-blueprint":
                assert response.json()["valid"] is True


@each_kind
def test_problems_are_documented(example: Example, name: str) -> None:
    """The statuses that a run can end with are documented with the problem's shape, which real ones have."""
    client = example(name)
    document = client.get("/openapi.json").json()
    for path in ("/run", "/run-blueprint"):
        responses = document["paths"][path]["post"]["responses"]
        assert set(responses) == {"200", "400", "408", "409", "413", "415", "422", "500", "502", "503", "504"}
        problem = client.post(path, json={})
        content = responses["422"]["content"]["application/problem+json"]
        validator(document, content["schema"]).validate(problem.json())


def test_the_page_needs_nothing_from_elsewhere(example: Example) -> None:
    """`/docs` is one page that loads only the document beside it, and lets only its own script run."""
    response = example("newsroom").get("/docs")
    assert response.status_code == 200
    assert response.headers["content-type"].startswith("text/html")
    assert not re.findall(r"https?://|src=|@import|url\(", response.text)
    assert 'fetch("openapi.json"' in response.text
    (script,) = re.findall(r"<script>(.*?)</script>", response.text, re.DOTALL)
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    policy = response.headers["content-security-policy"]
    assert f"script-src 'sha256-{digest}'" in policy
    assert "default-src 'none'" in policy
    assert "innerHTML" not in script
    assert not re.search("localStorage|sessionStorage|cookie", script)


def test_the_document_is_made_once(example: Example) -> None:
    """Asked twice, the document is the same."""
    client = example("desk")
    assert json.dumps(client.get("/openapi.json").json()) == json.dumps(client.get("/openapi.json").json())
