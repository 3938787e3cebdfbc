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


def _operations(
    document: dict[str, Any],
) -> Iterator[tuple[str, dict[str, Any]]]:
    for path, methods in document["paths"].items():
        for operation in methods.values():
            yield path, operation


def _set_media_types(document: dict[str, Any]) -> None:
    """Set the media type of problems; FastAPI documents models with that of the successful response."""
    problem = {
        "schema": {"$ref": f"#/components/schemas/{ProblemDetails.__name__}"}
    }
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
            scopes = scopes_of(method.upper(), path)
            if scopes:
                operation["security"] = [{"key": [scope]} for scope in scopes]


def _add_blueprints(document: dict[str, Any]) -> None:
    """Add the published schemas of blueprints."""
    schemas = document["components"]["schemas"]
    for kind, schema in blueprints.json_schema().items():
        text = json.dumps(schema)
        component = json.loads(
            text.replace('"#/$defs/', '"#/components/schemas/')
        )
        del component["$schema"]
        schemas |= component.pop("$defs", {})
        schemas.setdefault(f"{kind.capitalize()}Blueprint", component)
    references: list[dict[str, str]] = []
    for kind in get_args(Kind):
        name = f"{kind.capitalize()}Blueprint"
        references.append({"$ref": f"#/components/schemas/{name}"})
    blueprint = schemas["InlineRunRequest"]["properties"]["blueprint"]
    blueprint["anyOf"] = references


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
            content = operation["requestBody"]["content"]["application/json"]
            _, _, name = content["schema"]["$ref"].rpartition("/")
            schema = document["components"]["schemas"][name]
            schema["properties"]["model"]["const"] = component.name


def _add_examples(
    document: dict[str, Any], component: Component, policy: InlinePolicy
) -> None:
    """Add bodies that succeed when they are sent as they are."""
    inputs = _example_inputs(component)
    inline = _inline_examples(policy)
    runs = {
        name: example | {"input": "the moon"}
        for name, example in inline.items()
    }
    question = {"role": "user", "content": "the moon"}
    named = inputs["named inputs"]["inputs"]
    openai: dict[str, Any] = {"model": component.name}
    if "a text" not in inputs:
        openai["metadata"] = named
    by_path = {
        "/run": inputs,
        "/run/stream": inputs,
        "/runs": inputs,
        "/runs/{run_id}/approve": {"a comment": {"comment": "Looks good."}},
        "/runs/{run_id}/reject": {"a comment": {"comment": "Too long."}},
        "/run-blueprint": runs,
        "/validate-blueprint": inline,
        "/v1/chat/completions": {
            "a message": {**openai, "messages": [question]}
        },
        "/v1/responses": {"a text": {**openai, "input": "the moon"}},
    }
    for path, operation in _operations(document):
        if path in by_path and "requestBody" in operation:
            content = operation["requestBody"]["content"]["application/json"]
            content["examples"] = {
                name: {"value": example}
                for name, example in by_path[path].items()
            }


def _example_inputs(component: Component) -> dict[str, dict[str, Any]]:
    """Inputs with a value for each name that the component's templates use and its steps do not write."""
    blueprint = component.to_blueprint()
    steps = [step for _, step in blueprints.walk_steps(blueprint.get("steps"))]
    used = list(names(json.dumps(blueprint)))
    written = {"input"}
    for step in steps:
        if "over" in step:
            used.append(step["over"])
        if "as" in step:
            written.add(step["as"])
    if isinstance(component, Workflow):
        written.update(component.output_names)
        written.add(ITERATION)
    inputs = {name: "the moon" for name in used if name not in written}
    if inputs:
        return {"named inputs": {"inputs": inputs}}
    named = {"inputs": {"query": "the moon", "language": "English"}}
    return {"a text": {"input": "the moon"}, "named inputs": named}


def _inline_examples(policy: InlinePolicy) -> dict[str, dict[str, Any]]:
    """A blueprint of each kind, with a model that is allowed here; without one, a workflow of an agent."""
    if not policy.models and not policy.agents:
        return {}
    if not policy.models:
        agent = next(iter(policy.agents))
        step = {"type": "agent_step", "agent": agent, "name": agent}
        page = {"name": "page", "steps": [step]}
        return {"workflow": {"type": "workflow", "blueprint": page}}
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
            "blueprint": {
                "type": "Pipeline",
                "name": "line",
                "steps": [member],
            },
        },
    }
