"""What `/openapi.json` says beyond the routes: errors, headers, API keys, and examples for the served component."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, get_args

from fastapi import FastAPI

from podwright import blueprints
from podwright.components import Component, Workflow
from podwright.components.step_runner import ITERATION
from podwright.events import Kind
from podwright.headers import BUDGET, HOPS, RUN_ID, USAGE
from podwright.templates import names
from podwright_service.inline_blueprints import InlinePolicy
from podwright_service.paths import OPENAI_PREFIX, scopes_of
from podwright_service.problems import MEDIA_TYPE, ProblemDetails

Responses = dict[int | str, dict[str, Any]]

_DENIED = {
    401: "The API key is missing or unknown.",
    403: "The API key lacks the scope of this route.",
}
_REFUSED = {
    400: "The body is not valid JSON, or a header is malformed.",
    408: "The body did not arrive in time.",
    413: "The body is too large.",
    415: "The headers do not announce plain JSON in UTF-8.",
    422: "The request or the blueprint is invalid, or the run reached a limit; `errors` lists the places.",
    500: "The service or the component is at fault.",
    503: "The service is at capacity; try again after the seconds in `Retry-After`. Or it stopped.",
}
_IN_PROGRESS = {
    409: "A request with this Idempotency-Key is in progress, or its response was too large to store."
}
_FAILED = {
    409: f"The workflow waits for approval: send `context` as `inputs`, with `resume_path`. {_IN_PROGRESS[409]}",
    502: "A model, a tool or the component failed.",
    503: f"{_REFUSED[503]} Or the model provider limits requests, likewise with `Retry-After`.",
    504: "The run took too long.",
}


def _header(description: str, example: str = "", **schema: Any) -> dict[str, Any]:
    header = {"description": description, "schema": {"type": "string", **schema}}
    return {**header, "example": example} if example else header


RUN_HEADERS = {
    RUN_ID: _header("Id of the run."),
    USAGE: _header(
        "What the run used, as a dictionary of structured fields (RFC 9651). The cost is in USD, a string, and missing "
        "if a price is unknown.",
        'input_tokens=24, output_tokens=8, cost="0.0000084"',
    ),
    "Idempotency-Replayed": _header(
        "Present on the stored response to an earlier request.", const="true"
    ),
}
"""Response headers of a run."""
EXPOSED_HEADERS = (
    *RUN_HEADERS,
    "Allow",
    "Retry-After",
    "traceresponse",
    "WWW-Authenticate",
)
"""Response headers that web pages of other origins may read."""
_SERVER_SENT_EVENT = {
    "type": "object",
    "properties": {name: {"type": "string"} for name in ("event", "id", "data")},
    "required": ["event", "data"],
}
_REQUEST_HEADERS = {
    "Idempotency-Key": _header(
        "A text such as a UUID. A request that is sent again with the same key gets the response to the first one.",
        minLength=1,
        maxLength=255,
        pattern='^([ !#-~]+|"[ !#-~]+")$',
    ),
    BUDGET: _header(
        "Seconds, tokens, model calls and USD that this run may use, each optional, as a dictionary of structured "
        'fields (RFC 9651): `wall_time=12.5, tokens=1000, model_calls=10, cost="0.5"`. They can only lower the limits '
        "of the service.",
    ),
    HOPS: _header(
        "How many more containers the run may pass through.", pattern="^[0-9]{1,15}$"
    ),
    "Podwright-Resumes": _header(
        "`traceresponse` of the stopped workflow's response: links the two runs in traces."
    ),
    "traceparent": _header(
        "The trace that the run becomes a part of (W3C Trace Context), such as "
        "`00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01`.",
    ),
}
# without examples, which Swagger UI would send
RUN_PARAMETERS = {
    "parameters": [
        {"name": name, "in": "header", **text}
        for name, text in _REQUEST_HEADERS.items()
    ]
}
"""Request headers of a run, for `openapi_extra`."""


def _problems(descriptions: dict[int, str]) -> Responses:
    return {
        status: {"model": ProblemDetails, "description": text}
        for status, text in sorted(descriptions.items())
    }


BODY_PROBLEMS = _problems(_REFUSED)
"""The error responses of a route with a JSON body, for `responses`."""
RUN_PROBLEMS = _problems(_REFUSED | _FAILED)
"""Those of a route that answers after a run."""
STREAM_RESPONSES: Responses = {
    200: {
        "description": "An event for each event of the run, with its `type` as name and its `seq` as id; then `result` "
        "with the response of `/run`, or `problem` with the problem.",
        "content": {"text/event-stream": {"itemSchema": _SERVER_SENT_EVENT}},
        "headers": {RUN_ID: RUN_HEADERS[RUN_ID]},
    },
    **_problems(_REFUSED | _IN_PROGRESS),
}
"""The responses of a route that answers when a run begins."""
DATABASE_PROBLEMS = _problems(
    {
        422: "The request is invalid; `errors` lists the places.",
        500: _REFUSED[500],
        503: "The database cannot be reached; try again after the seconds in `Retry-After`.",
    }
)
"""The error responses of the routes of all background runs."""
READ_PROBLEMS = DATABASE_PROBLEMS | _problems({404: "There is no such run."})
"""Those of a route that reads a background run."""
CHANGE_PROBLEMS = READ_PROBLEMS | _problems(
    {409: "The run is in another state, or waits in another attempt."}
)
"""Those of a route that changes a background run."""
BACKGROUND_PARAMETERS = {
    "parameters": [
        entry
        for entry in RUN_PARAMETERS["parameters"]
        if entry["name"] != "Podwright-Resumes"
    ]
}
"""Request headers of a background run."""
EVENT_STREAM: Responses = {
    200: {key: STREAM_RESPONSES[200][key] for key in ("description", "content")}
}
"""The response with the events of a background run."""
_NULLABLE_TEXT = {"type": ["string", "null"]}
_OPENAI_ERROR = {
    "type": "object",
    "properties": {
        "error": {
            "type": "object",
            "properties": {
                "message": {"type": "string"},
                "type": {"type": "string"},
                "code": _NULLABLE_TEXT,
                "param": _NULLABLE_TEXT,
                "suggestion": {"type": "string"},
                "help_url": {"type": "string"},
                "run_id": {"type": "string"},
                "usage": {"type": "object"},
                "limit": {"type": "string"},
                "errors": {"type": "array", "items": {"type": "object"}},
            },
            "required": ["message", "type", "code", "param"],
        }
    },
    "required": ["error"],
}


def _openai_errors(descriptions: dict[int, str]) -> Responses:
    return {
        status: {
            "description": text,
            "content": {"application/json": {"schema": _OPENAI_ERROR}},
        }
        for status, text in sorted(descriptions.items())
        if status != 422  # it is a 400 there
    }


OPENAI_RESPONSES: Responses = {
    200: {
        "description": "The answer, or with `stream` its events.",
        "content": {
            "application/json": {"schema": {"type": "object"}},
            "text/event-stream": {"itemSchema": _SERVER_SENT_EVENT},
        },
        "headers": RUN_HEADERS,
    },
    **_openai_errors(
        {
            **_REFUSED,
            **_FAILED,
            400: f"{_REFUSED[400]} {_REFUSED[422]}",
            404: "There is no model of this name here.",
        }
    ),
}
"""The responses of a route that answers in one of OpenAI's protocols."""
NO_MODEL = _openai_errors({404: "There is no model of this name here."})
"""The error response of the route of a model."""
_WRONG_HOST = {
    400: "The header `Host` is missing or repeated, or its name is not allowed."
}


def common_responses(*, has_keys: bool, openai: bool = False) -> Responses:
    """The error responses of all routes: for an invalid header `Host`, and if there are API keys, for a wrong one."""
    return (_openai_errors if openai else _problems)(
        _WRONG_HOST | (_DENIED if has_keys else {})
    )


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
