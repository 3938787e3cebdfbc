"""What `/openapi.json` says beyond the routes: schemas of blueprints, API keys, examples for the served component."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, get_args

from fastapi import FastAPI

from podwright import blueprints
from podwright.components import Component, Workflow
from podwright.components.step_runner import ITERATION
from podwright.events import Kind
from podwright.templates import names
from podwright_service.http.paths import OPENAI_PREFIX, scopes_of
from podwright_service.http.problems import MEDIA_TYPE, ProblemDetails
from podwright_service.inline.policy import InlinePolicy


def extend_openapi(
    app: FastAPI, component: Component, policy: InlinePolicy, api_keys: bool
) -> None:
    """Extend the document that FastAPI makes of the routes, as its documentation describes.

    Args:
        app: The application.
        component: The served component, for examples of its input.
        policy: What inline blueprints may name, for the examples of these.
        api_keys: Whether the service requires API keys.
    """
    build = app.openapi

    def openapi() -> dict[str, Any]:
        if app.openapi_schema is None:
            document = build()
            _add_blueprints(document)
            _add_examples(document, component, policy)
            _add_model(document, component)
            _set_media_types(document)
            if api_keys:
                _add_security(document)
        return app.openapi_schema or {}

    app.openapi = openapi


def _operations(document: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    for path, methods in document["paths"].items():
        for operation in methods.values():
            yield path, operation


def _set_media_types(document: dict[str, Any]) -> None:
    """Set the media type of problems; FastAPI documents models with that of the successful response."""
    problem = {"schema": {"$ref": f"#/components/schemas/{ProblemDetails.__name__}"}}
    for _, operation in _operations(document):
        for response in operation["responses"].values():
            if problem in response.get("content", {}).values():
                response["content"] = {MEDIA_TYPE: problem}


def _add_security(document: dict[str, Any]) -> None:
    document["components"]["securitySchemes"] = {
        "key": {"type": "http", "scheme": "bearer"}
    }
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            if scopes := scopes_of(method.upper(), path):
                operation["security"] = [{"key": [scope]} for scope in scopes]


def _add_blueprints(document: dict[str, Any]) -> None:
    """Add the published schemas of blueprints."""
    schemas = document["components"]["schemas"]
    for kind, schema in blueprints.json_schema().items():
        component = json.loads(
            json.dumps(schema).replace('"#/$defs/', '"#/components/schemas/')
        )
        del component["$schema"]
        schemas |= component.pop("$defs", {})
        schemas.setdefault(f"{kind.capitalize()}Blueprint", component)
    any_kind = {
        "anyOf": [
            {"$ref": f"#/components/schemas/{kind.capitalize()}Blueprint"}
            for kind in get_args(Kind)
        ]
    }
    schemas["InlineRunRequest"]["properties"]["blueprint"] |= any_kind


def _add_model(document: dict[str, Any], component: Component) -> None:
    """Add the only name of a model, and leave out a status that FastAPI assumes, to the OpenAI-compatible routes."""
    for path, operation in _operations(document):
        if not path.startswith(OPENAI_PREFIX):
            continue
        operation["responses"].pop("422", None)
        for parameter in operation.get("parameters", ()):
            if parameter["name"] == "model":
                parameter["schema"]["const"] = component.name
                parameter["example"] = component.name
        if "requestBody" in operation:
            schema = operation["requestBody"]["content"]["application/json"]["schema"][
                "$ref"
            ].rpartition("/")[2]
            document["components"]["schemas"][schema]["properties"]["model"][
                "const"
            ] = component.name


def _add_examples(
    document: dict[str, Any], component: Component, policy: InlinePolicy
) -> None:
    """Add bodies that succeed when they are sent as they are."""
    inputs = _example_inputs(component)
    inline = _inline_examples(policy)
    runs = {name: example | {"input": "the moon"} for name, example in inline.items()}
    question = {"role": "user", "content": "the moon"}
    named = inputs["named inputs"]["inputs"]
    openai = {
        "model": component.name,
        **({} if "a text" in inputs else {"metadata": named}),
    }
    by_path = {
        "/run": inputs,
        "/run/stream": inputs,
        "/runs": inputs,
        "/runs/{run_id}/approve": {"a comment": {"comment": "Looks good."}},
        "/runs/{run_id}/reject": {"a comment": {"comment": "Too long."}},
        "/run-blueprint": runs,
        "/validate-blueprint": inline,
        "/v1/chat/completions": {"a message": {**openai, "messages": [question]}},
        "/v1/responses": {"a text": {**openai, "input": "the moon"}},
    }
    for path, operation in _operations(document):
        if path in by_path and "requestBody" in operation:
            content = operation["requestBody"]["content"]["application/json"]
            content["examples"] = {
                name: {"value": example} for name, example in by_path[path].items()
            }


def _example_inputs(component: Component) -> dict[str, dict[str, Any]]:
    """Inputs with a value for each name that the component's templates use and its steps do not write."""
    blueprint = component.to_blueprint()
    steps = [step for _, step in blueprints.walk_steps(blueprint.get("steps"))]
    used = [
        *names(json.dumps(blueprint)),
        *(step["over"] for step in steps if "over" in step),
    ]
    written = {"input", *(step["as"] for step in steps if "as" in step)}
    if isinstance(component, Workflow):
        written.update(component.output_names)
        written.add(ITERATION)
    if inputs := {name: "the moon" for name in used if name not in written}:
        return {"named inputs": {"inputs": inputs}}
    named = {"inputs": {"query": "the moon", "language": "English"}}
    return {"a text": {"input": "the moon"}, "named inputs": named}


def _inline_examples(policy: InlinePolicy) -> dict[str, dict[str, Any]]:
    """A blueprint of each kind, with a model that is allowed here; without one, a workflow of an agent."""
    if not policy.models:
        steps = [
            {"type": "agent_step", "agent": name, "name": name}
            for name in list(policy.agents)[:1]
        ]
        return (
            {
                "workflow": {
                    "type": "workflow",
                    "blueprint": {"name": "page", "steps": steps},
                }
            }
            if steps
            else {}
        )
    model = policy.models[0]
    config = {"model": model, "max_loops": 1}
    poet = {
        "name": "poet",
        "instructions": "Write one line about the input.",
        "config": config,
    }
    member = {"type": "Agent", **poet}
    step = {"type": "agent_step", "agent": "poet", "name": "write"}
    lead = {
        "type": "Conductor",
        "name": "lead",
        "instructions": "Have a line written.",
        "skills": [member],
    }
    return {
        "agent": {"type": "agent", "blueprint": {**poet, "tools": []}},
        "workflow": {
            "type": "workflow",
            "blueprint": {"name": "page", "steps": [step]},
            "agents": {"poet": poet},
        },
        "conductor": {
            "type": "conductor",
            "blueprint": {**lead, "config": {"model": model, "planning": True}},
        },
        "pipeline": {
            "type": "pipeline",
            "blueprint": {"type": "Pipeline", "name": "line", "steps": [member]},
        },
    }
