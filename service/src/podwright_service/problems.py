"""From errors to HTTP: one shape for all of them, RFC 9457's problem details."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import Any

import orjson
from fastapi import FastAPI
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route

from podwright import errors
from podwright.errors import HELP_URL, PodwrightError, Problem
from podwright.json_data import to_json_data
from podwright.text import did_you_mean
from podwright.usage import Usage

MEDIA_TYPE = "application/problem+json"
MOST_ERRORS = 100
"""How many `errors` a problem lists; a hostile blueprint may have a million."""

_log = logging.getLogger("podwright.service")

STATUS: Mapping[type[Exception], int] = {
    errors.InputError: 422,
    errors.BlueprintValidationError: 422,
    errors.LimitExceededError: 422,  # never 429, which clients take as an invitation to try the same again
    errors.ApprovalRequired: 409,
    errors.RunCancelledError: 503,
    # what runs here, or what it depends on, failed; the request was in order
    errors.RunError: 502,
    # the operator put the component together wrongly
    errors.PodwrightError: 500,
}
"""The status of each class of errors; a class that is not here has that of its nearest base class."""


class RequestError(Exception):
    """A request that is refused before anything runs."""

    def __init__(
        self,
        status: int,
        code: str,
        detail: str,
        suggestion: str = "See /docs for what is expected.",
        headers: Mapping[str, str] | None = None,
        problems: Sequence[Problem] = (),
    ) -> None:
        super().__init__(detail)
        self.status, self.code, self.detail, self.suggestion = status, code, detail, suggestion
        self.headers, self.problems = headers, problems


def as_json(data: Any, status: int = 200, headers: Mapping[str, str] | None = None, media_type: str = "") -> Response:
    """An answer of JSON-compatible data."""
    return Response(as_bytes(data), status, headers, media_type or "application/json")


def as_bytes(data: Any) -> bytes:
    """JSON-compatible data, with finite numbers, as one line of JSON."""
    try:
        return orjson.dumps(data, option=orjson.OPT_PASSTHROUGH_DATACLASS | orjson.OPT_PASSTHROUGH_DATETIME)
    except TypeError:  # half of a surrogate pair, which becomes JSON's \\udXXX; a great number, or deep nesting
        text = json.dumps(data, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
        return text.encode("utf-8", "backslashreplace")


def as_entries(problems: Sequence[Problem]) -> list[dict[str, str]]:
    """Problems as the entries of `errors`, the first hundred of them."""
    shown = [{"pointer": p.pointer, "detail": p.detail, "suggestion": p.suggestion} for p in problems[:MOST_ERRORS]]
    left = len(problems) - len(shown)
    return [*shown, {"pointer": "", "detail": f"… and {left} more.", "suggestion": ""}] if left else shown


def answer(request: Request, error: Exception, headers: Mapping[str, str] | None = None) -> Response:
    """The answer that tells of an error.

    Args:
        request: What was asked.
        error: Any exception; one that is not known to be safe to show is logged, and told of in general words.
        headers: Headers to add.
    """
    match error:
        case ClientDisconnect():
            return Response(status_code=499)  # nobody reads it; the number is for the access log, as in nginx
        case RequestError():
            facts: dict[str, Any] = {"detail": error.detail, "code": error.code, "suggestion": error.suggestion}
            facts |= {"errors": as_entries(error.problems)} if error.problems else {}
            return _problem(request, error.status, facts, {**(error.headers or {}), **(headers or {})})
        case PodwrightError():
            status = _status(error)
            if status >= 500:
                _log.warning("%s %s: %s: %s", request.method, request.url.path, error.code, _safe_detail(error))
            return _problem(request, status, _facts(error), headers)
        case HTTPException():
            code = HTTPStatus(error.status_code).phrase.lower().replace(" ", "_")
            detail = f"{request.method} {request.url.path}: {str(error.detail).lower()}."
            facts = {"detail": detail, "code": code, "suggestion": _route_meant(request, error)}
            return _problem(request, error.status_code, facts, {**(error.headers or {}), **(headers or {})})
        case _:
            _log.error("%s %s failed", request.method, request.url.path, exc_info=error)
            facts = {"detail": "The service failed in a way that it does not know.", "code": "internal_error"}
            return _problem(request, 500, {**facts, "suggestion": "Ask the operator to look in the logs."}, headers)


def _route_meant(request: Request, error: HTTPException) -> str:
    if allowed := (error.headers or {}).get("Allow"):
        return f"Use {allowed} here."
    paths = [route.path for route in request.app.routes if isinstance(route, Route)]
    return did_you_mean(request.url.path, [path for path in paths if "{" not in path]) or "See /docs for the routes."


def _status(error: PodwrightError) -> int:
    if isinstance(error, errors.LimitExceededError) and error.limit == "wall_time":
        return 504
    if isinstance(error, errors.BlueprintValidationError) and error.run_id:
        return 500  # not the caller's blueprint: one that the component itself builds from while it runs
    if isinstance(error, errors.ConditionError | errors.LoopLimitError) and error.__cause__ is None:
        return 422  # nothing failed: the condition cannot compare its values, or max_loops are too few
    return next(STATUS[kind] for kind in type(error).__mro__ if kind in STATUS)


def _facts(error: PodwrightError) -> dict[str, Any]:
    facts: dict[str, Any] = {"detail": _safe_detail(error), "code": error.code, "suggestion": error.suggestion}
    for name in ("run_id", "component", "context", "resume_path"):
        value = getattr(error, name)
        if value is not None:
            facts[name] = to_json_data(value)
    if isinstance(error.usage, Usage):
        facts["usage"] = error.usage.to_dict()
    if isinstance(error, errors.LimitExceededError):
        facts["limit"] = error.limit
    if isinstance(error, errors.BlueprintValidationError):
        facts["errors"] = as_entries(error.problems)
    return facts


def _safe_detail(error: PodwrightError) -> str:
    """The message without the words of an exception that is not ours, which may hold anything: a key, a body."""
    cause = error.__cause__
    if isinstance(error, errors.RunError) and cause is not None and not isinstance(cause, PodwrightError):
        return error.message.replace(f": {cause}", ".") if str(cause) else error.message
    return error.message


def _problem(request: Request, status: int, facts: Mapping[str, Any], headers: Mapping[str, str] | None) -> Response:
    return as_json(document(request.scope["path"], status, facts), status, headers, MEDIA_TYPE)


def document(path: str, status: int, facts: Mapping[str, Any]) -> dict[str, Any]:
    """A problem document: what all have, and the facts of this one."""
    code = str(facts["code"])
    return {
        "type": f"{HELP_URL}#{code}",
        "title": code.replace("_", " ").capitalize(),
        "status": status,
        "instance": path,
        **facts,
    }


def install(app: FastAPI) -> None:
    """Have the app answer all that it does not answer itself with problems: unknown routes, wrong methods, faults."""

    async def tell(request: Request, error: Exception) -> Response:
        return answer(request, error)

    for kind in (RequestError, PodwrightError, HTTPException, ClientDisconnect, Exception):
        app.add_exception_handler(kind, tell)
