"""What `/openapi.json` says beyond the routes: schemas of blueprints, API keys, examples for the served component."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Iterator
from typing import Any, cast, get_args

from fastapi import APIRouter, FastAPI, Request
from fastapi.responses import JSONResponse

from podwright import blueprints
from podwright.blueprints.inputs import DeclaredInputs
from podwright.components import Component
from podwright.data.json_data import (
    JsonObject,
    json_pointer,
    to_text,
)
from podwright.data.names import INPUT, find_name
from podwright.folders.walks import values_read
from podwright.kinds import Kind
from podwright.schemas.example import example
from podwright.schemas.json_schema import with_moved_references
from podwright_service.http.errors.problems import MEDIA_TYPE, ProblemDetails
from podwright_service.http.paths import OPENAI_PREFIX, scopes_of
from podwright_service.http.query import CheckedRoute
from podwright_service.inline.policy import InlinePolicy

router = APIRouter(route_class=CheckedRoute)


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
    # a request must not find a document that another one still extends
    building = threading.Lock()

    def openapi() -> dict[str, Any]:
        with building:
            if app.openapi_schema is None:
                document = build()
                _add_blueprints(document)
                _add_inputs(document, component)
                _add_examples(document, component, policy)
                _add_answer(document, component)
                _add_model(document, component)
                _set_media_types(document)
                if api_keys:
                    _add_security(document)
            return app.openapi_schema or {}

    app.openapi = openapi


@router.head("/openapi.json", include_in_schema=False)
@router.get("/openapi.json", include_in_schema=False)
async def openapi_document(request: Request) -> JSONResponse:
    """The document, with the path at which the application is mounted as its server."""
    # the first request makes it, which takes half a second
    document = await asyncio.to_thread(request.app.openapi)
    mounted_at: str = request.scope.get("root_path", "").rstrip("/")
    if mounted_at:
        document = {**document, "servers": [{"url": mounted_at}]}
    return JSONResponse(document)


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
    for body in ("InlineRunRequest", "InlineEstimateRequest"):
        schemas[body]["properties"]["blueprint"]["anyOf"] = references


def _add_inputs(document: dict[str, Any], component: Component) -> None:
    """Add the declared inputs of the served component to the bodies of its runs and of their estimates."""
    declared = component.inputs
    if not declared:
        return
    body = _with_declared(document, "RunRequest", component)
    if declared.may_be_left_out:
        body["oneOf"] = [*body["oneOf"], {"not": {"anyOf": body["oneOf"]}}]
    if declared.required:
        del body["oneOf"]
        body["required"] = ["inputs"]
    _with_declared(document, "EstimateRequest", component)


def _with_declared(
    document: dict[str, Any], name: str, component: Component
) -> dict[str, Any]:
    """Add the declared inputs to the schema of a body, and return it."""
    declared = component.inputs
    body = document["components"]["schemas"][name]
    inputs = body["properties"]["inputs"]
    place = f"#/components/schemas/{name}/properties/inputs/properties"
    properties = {INPUT: body["properties"]["input"]}
    for key, schema in declared.schemas.items():
        properties[key] = with_moved_references(
            schema, place + json_pointer(key)
        )
    inputs["properties"] = properties
    # a run that resumes at a step is given its whole context
    if "resume_path" not in component.body_keys:
        inputs["additionalProperties"] = False
    if declared.may_be_left_out:
        del inputs["minProperties"]
    if declared.required:
        inputs["required"] = declared.required
        # a text alone lacks them
        body["properties"] = {
            key: schema
            for key, schema in body["properties"].items()
            if key != INPUT
        }
    return body


def _add_answer(document: dict[str, Any], component: Component) -> None:
    """Add an example of a structured answer."""
    schema = component.response_schema
    if schema is None:
        return
    data = example(schema, "the moon")
    answer = {"output": to_text(data), "data": data}
    run = document["paths"]["/run"]["post"]
    content = run["responses"]["200"]["content"]["application/json"]
    content["examples"] = {"a structured answer": {"value": answer}}


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
        # the values of OpenAI's metadata are texts
        openai["metadata"] = {
            name: to_text(value)
            for name, value in named.items()
            if name != INPUT
        }
    by_path = {
        "/run": inputs,
        "/run/stream": inputs,
        "/estimate": inputs,
        "/runs": inputs,
        "/runs/{run_id}/approve": {"a comment": {"comment": "Looks good."}},
        "/runs/{run_id}/reject": {"a comment": {"comment": "Too long."}},
        "/run-blueprint": runs,
        "/estimate-blueprint": runs,
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
    """The declared inputs; else a value for each name that the templates use and no step writes."""
    if component.inputs:
        return _examples_of_declared(component.inputs)
    written = {INPUT, *component.written_names}
    inputs: JsonObject = {}
    for expression in values_read(component.to_blueprint()):
        # brackets after an unknown name may be code
        is_written = find_name(expression.name, written) is not None
        if not is_written and not expression.is_indexed:
            _set_field(inputs, [expression.name, *expression.fields])
    if inputs:
        return {"named inputs": {"inputs": inputs}}
    named = {"inputs": {"query": "the moon", "language": "English"}}
    return {"a text": {"input": "the moon"}, "named inputs": named}


def _examples_of_declared(declared: DeclaredInputs) -> dict[str, JsonObject]:
    values: JsonObject = {INPUT: "the moon"}
    for name, schema in declared.schemas.items():
        values[name] = example(schema, "the moon")
    values |= declared.defaults
    examples: dict[str, JsonObject] = {}
    if not declared.required:
        examples["a text"] = {"input": "the moon"}
    examples["named inputs"] = {"inputs": values}
    return examples


def _set_field(inputs: JsonObject, path: list[str]) -> None:
    """Set a field to an example, in objects that are made as needed."""
    name, *rest = path
    if not rest:
        inputs.setdefault(name, "the moon")
        return
    inner = inputs.get(name)
    if not isinstance(inner, dict):
        inner = JsonObject()
        inputs[name] = inner
    _set_field(cast("JsonObject", inner), rest)


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
