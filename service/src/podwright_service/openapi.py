"""What `/openapi.json` says beyond the routes: bodies, examples for this very component, and every error."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cached_property
from typing import Any

from fastapi import FastAPI
from pydantic.json_schema import models_json_schema
from starlette.responses import Response

from podwright import blueprints
from podwright.components import Component, Workflow
from podwright.components.workflow import outputs_of
from podwright_service import schema
from podwright_service.auth import secure
from podwright_service.idempotency import LONGEST_KEY
from podwright_service.inline_blueprints import Allowed
from podwright_service.problems import MEDIA_TYPE, document
from podwright_service.settings import Settings
from podwright_service.sse import EventStream

_REFUSED = {
    400: "json_invalid",
    408: "request_too_slow",
    413: "body_too_large",
    415: "media_type_unsupported",
    422: "request_invalid",
    503: "overloaded",
}
_DENIED = {401: "key_required", 403: "scope_missing"}
_UNDER_WAY = "idempotency_in_progress"
_FAILED = {
    409: "approval_required",
    500: "internal_error",
    502: "model_failed",
    504: "limit_exceeded",
}
_MEANING = {
    400: "The body is no JSON, or JSON that is not taken here; or the Idempotency-Key or another header is malformed.",
    401: "There is no API key in the request, or one that is not known.",
    403: "The API key is not for this.",
    408: "The body did not come in time.",
    409: "The workflow waits for a person; send `context` back as `inputs`, with `resume_path`, to approve. Or the "
    "request that came first with the Idempotency-Key is under way, or its answer was too large to keep.",
    413: "The body is too large, or has too many values.",
    415: "The body is not said to be JSON, or is compressed or encoded otherwise than in UTF-8.",
    422: "The body does not fit, the blueprint is invalid, or the run came to a limit; `errors` lists the places. Or "
    "the Idempotency-Key came before with another request.",
    500: "The service or the component is at fault.",
    502: "A model, a tool or the component failed.",
    503: "The service has as much to do as it can, see `Retry-After`; or it stops, and `context` and `resume_path` say "
    "where a workflow goes on.",
    504: "The run took too long.",
}
_TRACE: dict[str, Any] = {
    "name": "trace",
    "in": "query",
    "description": "Whether to answer with the execution result, events included.",
    "schema": {"type": "boolean", "default": False},
}
_KEY: dict[str, Any] = {
    "name": "Idempotency-Key",
    "in": "header",
    "description": "A text of your own, such as a UUID. A request that is sent again with the same key does not run "
    "again: it is answered as the first one was, with `Idempotency-Replayed: true`.",
    "schema": {"type": "string", "minLength": 1, "maxLength": LONGEST_KEY, "pattern": '^([ !#-~]+|"[ !#-~]+")$'},
}
_CALLER: list[dict[str, Any]] = [
    {
        "name": "Podwright-Budget",
        "in": "header",
        "description": "What the caller's run has left, and this one may use at most: seconds, tokens, model calls and "
        "USD, each of which may be absent. A dictionary of structured fields (RFC 9651).",
        "schema": {"type": "string"},
        "example": 'wall_time=12.5, tokens=1000, model_calls=10, cost="0.5"',
    },
    {
        "name": "Podwright-Hops",
        "in": "header",
        "description": "How many more containers may follow this one.",
        "schema": {"type": "string", "pattern": "^[0-9]{1,15}$"},
        "example": "2",
    },
    {
        "name": "Podwright-Resumes",
        "in": "header",
        "description": "The `traceresponse` of the answer that told where a stopped workflow goes on: the new run's "
        "span is linked to that one's. What cannot be read is passed over.",
        "schema": {"type": "string"},
    },
    {
        "name": "traceparent",
        "in": "header",
        "description": "The trace that the run becomes a part of (W3C Trace Context). What cannot be read is passed "
        "over.",
        "schema": {"type": "string"},
        "example": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
    },
]
# before OpenAPI 3.2, the schema of a stream is that of each event
_EVENT: dict[str, Any] = {
    "type": "object",
    "required": ["event", "data"],
    "properties": {
        "id": {"type": "string", "description": "Its `seq`; `result` and `problem` have none."},
        "event": {"type": "string", "description": "Its `type`; or `result` or `problem`, which is the last."},
        "data": {"type": "string", "contentMediaType": "application/json"},
    },
}
_EVENTS = {
    "the first": {"id": "0", "event": "run_started", "data": '{"type": "run_started", "seq": 0, "input": "the moon"}'},
    "a token": {"id": "2", "event": "token", "data": '{"type": "token", "seq": 2, "call": 0, "text": "The"}'},
    "the last": {"event": "result", "data": '{"output": "The moon"}'},
}
_RUN_HEADERS: dict[str, Any] = {
    "Podwright-Run-Id": {"description": "Identifier of the run.", "schema": {"type": "string"}},
    "Podwright-Usage": {
        "description": "What the run used: a dictionary of structured fields (RFC 9651). The cost, in USD, is a "
        "string, and left out if a price is unknown.",
        "schema": {"type": "string"},
        "example": 'input_tokens=24, output_tokens=8, cost="0.0000084"',
    },
    "Idempotency-Replayed": {
        "description": "Whether this is the kept answer to an earlier request with the same `Idempotency-Key`.",
        "schema": {"const": "true"},
    },
}
_HEADERS: dict[int, dict[str, Any]] = {
    401: {"WWW-Authenticate": {"description": "How to send a key (RFC 6750).", "schema": {"type": "string"}}},
    503: {"Retry-After": {"description": "Seconds after which to try again.", "schema": {"type": "integer"}}},
}


class Documentation:
    """Keywords for each route, made for the served component: its examples work as they stand."""

    def __init__(self, component: Component, allowed: Allowed, settings: Settings, keys: bool = False) -> None:
        self._component, self._keys = component, keys
        self._model = next(iter(allowed.models), settings.model or "offline/echo")

    def attach(self, app: FastAPI) -> None:
        """Have the app's document carry the schemas."""
        plain = app.openapi

        def openapi() -> dict[str, Any]:
            if app.openapi_schema is None:
                whole = plain()
                whole.setdefault("components", {})["schemas"] = _schemas()
                if self._keys:
                    secure(whole, {str(status): _problem(status, code, False) for status, code in _DENIED.items()})
            return app.openapi_schema or {}

        app.openapi = openapi

    @cached_property
    def health(self) -> dict[str, Any]:
        """For `/health`."""
        return {"summary": "Liveness", "responses": {200: _answer("The process lives.", "Status", {"status": "ok"})}}

    @cached_property
    def ready(self) -> dict[str, Any]:
        """For `/ready`."""
        ready = _answer("A run would be accepted.", "Status", {"status": "ready"})
        not_ready = _answer("The service starts, or ends.", "Status", {"status": "draining"})
        return {"summary": "Readiness", "responses": {200: ready, 503: not_ready}}

    @cached_property
    def info(self) -> dict[str, Any]:
        """For `/info`."""
        return {"summary": "What this service is", "responses": {200: _answer("The facts.", "Info")}}

    @cached_property
    def metrics(self) -> dict[str, Any]:
        """For `/metrics`."""
        forms = {kind: {"schema": {"type": "string"}} for kind in ("text/plain", "application/openmetrics-text")}
        answer = {"description": "All metrics, as the `Accept` header asks.", "content": forms}
        return {"summary": "Metrics for Prometheus", "response_class": Response, "responses": {200: answer}}

    @cached_property
    def run(self) -> dict[str, Any]:
        """For `/run`."""
        complex_form = "WorkflowRun" if isinstance(self._component, Workflow) else "ComplexRun"
        examples = {
            "simple": {"input": "the moon"},
            "complex": {"inputs": {"query": "the moon", "language": "English"}},
        }
        return {
            "summary": f"Run {self._component.name}",
            "responses": {200: self._ran([self._component.kind]), **_problems({**_REFUSED, **_FAILED}, run=True)},
            "openapi_extra": _body({"oneOf": [_ref("SimpleRun"), _ref(complex_form)]}, examples),
        }

    @cached_property
    def run_stream(self) -> dict[str, Any]:
        """For `/run/stream`."""
        stream: dict[str, Any] = {
            "description": "The run began. One event for each event of the run, its `type` as the event's name and "
            "its `seq` as id; then `result` with what `/run` would answer, or `problem` with the problem.",
            "headers": {name: one for name, one in _RUN_HEADERS.items() if name != "Podwright-Usage"},
            "content": {EventStream.media_type: {"schema": _EVENT, "examples": _named(_EVENTS)}},
        }
        return {
            **self.run,
            "response_class": EventStream,
            "status_code": 200,
            "summary": f"Run {self._component.name}, with its events as they happen",
            "responses": {
                200: stream,
                **_problems({**_REFUSED, 409: _UNDER_WAY, 500: _FAILED[500], 503: "run_cancelled"}),
            },
        }

    @cached_property
    def run_blueprint(self) -> dict[str, Any]:
        """For `/run-blueprint`."""
        kinds = list(self._examples)
        examples = {kind: {**one, "input": "the moon"} for kind, one in self._examples.items()}
        return {
            "summary": "Run a blueprint",
            "responses": {200: self._ran(kinds), **_problems({**_REFUSED, **_FAILED}, run=True)},
            "openapi_extra": _body(_ref("PostedRun"), examples),
        }

    @cached_property
    def validate_blueprint(self) -> dict[str, Any]:
        """For `/validate-blueprint`."""
        entry = {"pointer": "/blueprint/instruction", "detail": "unknown key 'instruction'.", "suggestion": "…"}
        found = _answer("What was found.", "Validation", {"valid": False, "errors": [entry]})
        return {
            "summary": "Check a blueprint",
            "responses": {
                200: found,
                **_problems({**_REFUSED, 500: _FAILED[500]}),
            },
            "openapi_extra": _body(_ref("PostedCheck"), self._examples, once=False),
        }

    def _ran(self, kinds: list[str]) -> dict[str, Any]:
        outputs = ["poet_output"]
        if isinstance(self._component, Workflow) and kinds == ["workflow"]:
            outputs = outputs_of(self._component.steps)
        shown: dict[str, Any] = {
            kind: {"input": "the moon", **dict.fromkeys(outputs, "…")} if kind == "workflow" else {"output": "…"}
            for kind in kinds
        }
        value = shown[kinds[0]]
        shown["with ?trace=true"] = {
            "format": "podwright.trace/1",
            "value": value.get("output", value),
            "events": [{"type": "run_started", "seq": 0, "component": self._component.name, "input": "the moon"}],
            "duration_ms": 1.5,
            "usage": {"input_tokens": 24, "output_tokens": 8, "model_calls": 1, "cost": 0.0000084},
        }
        refs = [_ref("Context")] if "workflow" in kinds else []
        refs += [_ref("Output")] if kinds != ["workflow"] else []
        content = {"schema": {"anyOf": [*refs, _ref("Trace")]}, "examples": _named(shown)}
        return {
            "description": "The run came to its end.",
            "headers": _RUN_HEADERS,
            "content": {"application/json": content},
        }

    @cached_property
    def _examples(self) -> dict[str, dict[str, Any]]:
        """A request for each kind, on a model that is allowed here."""
        config, instructions = {"model": self._model}, "Write one line on what you are given."
        poet: dict[str, Any] = {"name": "poet", "instructions": instructions, "config": {**config, "max_loops": 1}}
        member = {"type": "Agent", **poet}
        step = {"type": "agent_step", "agent": "poet", "name": "write"}
        lead = {"type": "Conductor", "name": "lead", "instructions": "Have it written.", "skills": [member]}
        return {
            "agent": {"type": "agent", "blueprint": {**poet, "tools": []}},
            "workflow": {"type": "workflow", "blueprint": {"name": "page", "steps": [step]}, "agents": {"poet": poet}},
            "conductor": {"type": "conductor", "blueprint": {**lead, "config": {**config, "planning": True}}},
            "pipeline": {
                "type": "pipeline",
                "blueprint": {"type": "Pipeline", "name": "line", "steps": [member], "config": config},
            },
        }


def _ref(name: str) -> dict[str, str]:
    return {"$ref": f"#/components/schemas/{name}"}


def _named(examples: Mapping[str, Any]) -> dict[str, Any]:
    return {name: {"value": value} for name, value in examples.items()}


def _body(shape: Mapping[str, Any], examples: Mapping[str, Any], once: bool = True) -> dict[str, Any]:
    content = {"application/json": {"schema": shape, "examples": _named(examples)}}
    parameters = {"parameters": [_TRACE, _KEY, *_CALLER]} if once else {}
    return {"requestBody": {"required": True, "content": content}, **parameters}


def _answer(description: str, shape: str, example: Any = None) -> dict[str, Any]:
    content: dict[str, Any] = {"schema": _ref(shape)}
    if example is not None:
        content["example"] = example
    return {"description": description, "content": {"application/json": content}}


def _problems(codes: Mapping[int, str], run: bool = False) -> dict[int, dict[str, Any]]:
    return {status: _problem(status, code, run) for status, code in sorted(codes.items())}


def _problem(status: int, code: str, run: bool) -> dict[str, Any]:
    example = document("/run", status, {"detail": _MEANING[status], "code": code, "suggestion": "…"})
    answer: dict[str, Any] = {
        "description": _MEANING[status],
        "content": {MEDIA_TYPE: {"schema": _ref("ProblemDetails"), "example": example}},
    }
    if run and status not in (400, 408, 413, 415):
        answer["headers"] = _RUN_HEADERS
    if own := _HEADERS.get(status):
        answer["headers"] = answer.get("headers", {}) | own
    return answer


def _schemas() -> dict[str, Any]:
    """The schemas of the wire and of blueprints, by name."""
    from podwright_service import answers  # here only: no start waits for what few ask for

    shapes = (
        schema.SimpleRun, schema.ComplexRun, schema.WorkflowRun, schema.PostedRun, schema.PostedCheck, answers.Output,
        answers.Context, answers.Trace, answers.ProblemDetails, answers.Validation, answers.Status, answers.Info,
    )  # fmt: skip
    template = "#/components/schemas/{model}"
    _, wire = models_json_schema([(shape, "validation") for shape in shapes], ref_template=template)
    found: dict[str, Any] = dict(wire["$defs"])
    for kind, whole in blueprints.json_schema().items():
        moved = json.loads(json.dumps(whole).replace('"#/$defs/', '"#/components/schemas/'))
        moved.pop("$schema")
        found |= moved.pop("$defs", {})
        found.setdefault(f"{kind.capitalize()}Blueprint", moved)
    any_kind = {"anyOf": [_ref(f"{kind.capitalize()}Blueprint") for kind in blueprints.json_schema()]}
    # whatever is wrong with a blueprint that is only checked is the answer, and no fault of the request
    properties = found["PostedRun"]["properties"]
    properties["blueprint"] = {**any_kind, "description": properties["blueprint"]["description"]}
    return dict(sorted(found.items()))
