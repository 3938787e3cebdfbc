"""Errors as HTTP responses: one shape for all of them, problem details (RFC 9457)."""

from __future__ import annotations

import logging
import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict
from http import HTTPStatus
from typing import Any

from fastapi.exceptions import RequestValidationError
from fastapi.routing import iter_route_contexts
from pydantic import BaseModel, ConfigDict
from starlette.exceptions import HTTPException
from starlette.requests import Request

from podwright import errors
from podwright.data.json_data import to_json_bytes, to_json_data
from podwright.data.text import did_you_mean, short_repr
from podwright.errors import PodwrightError, Problem, help_page
from podwright.schemas.validation_errors import to_problems
from podwright_service.http.paths import PATHS, path_in, route_of
from podwright_service.http.schemas import REQUEST_BODIES

_LONGEST_WAIT = 3600
"""Seconds of the longest `Retry-After` that is passed on."""
MEDIA_TYPE = "application/problem+json"

_log = logging.getLogger("podwright.service")

STATUS: Mapping[type[Exception], int] = {
    errors.InputError: 422,
    errors.BlueprintValidationError: 422,
    # not 429, which asks clients to send the same request again
    errors.LimitExceededError: 422,
    errors.ApprovalRequired: 409,
    # decided by a person: neither a failure nor something to be tried again, as clients of OpenAI try a 409
    errors.ApprovalRejectedError: 403,
    # nothing failed, and the same request would be refused again
    errors.ModelRefusedError: 422,
    errors.Refusal: 422,
    # the caller's file, and nothing was sent
    errors.ContentUnsupportedError: 422,
    errors.RemoteInterruptedError: 409,
    errors.RunCancelledError: 503,
    # the component, or a service that it depends on, failed
    errors.RunError: 502,
    errors.PodwrightError: 500,  # the operator configured the component wrongly
}
"""The status of each error class; other classes have the status of their nearest base class."""

SMALLER_BODY = (
    "Send a smaller body, or let the service's operator raise "
    "PODWRIGHT_MAX_BODY_BYTES."
)
"""The way out for a request whose body is too large."""


def too_large_detail(most_bytes: int) -> str:
    """What is wrong with a body that is too large; it names the setting, because some clients show nothing else."""
    return f"The body is larger than {most_bytes} bytes (PODWRIGHT_MAX_BODY_BYTES)."


class ErrorEntry(BaseModel):
    """One thing that is wrong in a request."""

    model_config = ConfigDict(use_attribute_docstrings=True)

    pointer: str
    """JSON pointer (RFC 6901) into the body of the request."""
    detail: str
    suggestion: str


class ProblemDetails(BaseModel):
    """An error (RFC 9457)."""

    model_config = ConfigDict(use_attribute_docstrings=True)

    type: str
    """Link to help."""
    title: str
    status: int
    detail: str
    """What failed, with the value that was wrong."""
    instance: str
    code: str
    """Stable identifier for programs."""
    suggestion: str
    """What to do about it."""
    run_id: str | None = None
    component: str | None = None
    """The innermost component that failed."""
    usage: dict[str, Any] | None = None
    """What the run used before it failed."""
    limit: str | None = None
    """The limit that was reached."""
    retry_after: int | None = None
    """Seconds after which the same request may succeed, as in the header `Retry-After`."""
    provider_error: str | None = None
    """What the model provider reported, if the operator shows it."""
    refusal: str | None = None
    """The words by which the model, or a function of the component, refused."""
    question: dict[str, Any] | None = None
    """What the run waits for: its message, the options, what may be changed, and the tool that is to be called."""
    errors: list[ErrorEntry] | None = None
    """Each thing that is wrong in the request."""
    context: dict[str, Any] | None = None
    """The context of a stopped workflow; send it back as `inputs` to resume."""
    resume_path: list[int] | None = None
    """The step at which to resume; send it back too."""

    def to_bytes(self) -> bytes:
        """The document as JSON, without the fields that are not set."""
        return to_json_bytes(self.model_dump(exclude_unset=True))


class RequestError(HTTPException):
    """A request that is refused before a run begins.

    Args:
        status_code: Status of the response.
        code: Stable identifier for programs.
        detail: What is wrong, with the value.
        suggestion: What to do about it.
        headers: Further headers of the response.
        problems: Everything that is wrong in the body.
    """

    def __init__(
        self,
        status_code: int,
        code: str,
        detail: str,
        suggestion: str = "See /docs for the API of this service.",
        headers: Mapping[str, str] | None = None,
        problems: Sequence[Problem] = (),
    ) -> None:
        super().__init__(status_code, detail, headers)
        self.code = code
        self.suggestion = suggestion
        self.problems = problems


def allowed_methods(request: Request, headers: Mapping[str, str]) -> str:
    """The methods of a path; Starlette's header names those of one route only."""
    path = route_of(path_in(request.scope))
    methods: set[str] = set()
    for route in iter_route_contexts(request.app.routes):
        if route.path_format == path and route.include_in_schema:
            methods |= route.methods or set()
    if not methods:
        return headers.get("Allow", "")
    return ", ".join(sorted(methods))


def problem_details(request: Request, error: Exception) -> ProblemDetails:
    """The problem details of an error; those of a server error are logged."""
    path = request.url.path
    match error:
        case RequestValidationError():
            return problem_details(request, _invalid_request(request, error))
        case RequestError():
            return _of_request_error(path, error)
        case HTTPException():
            return _of_http_error(request, error)
        case PodwrightError():
            return _log_and_describe(request, error)
        # Starlette raises it again after the response, and the server logs it
        case _:
            return _unexpected(path)


def _of_request_error(path: str, error: RequestError) -> ProblemDetails:
    problem = _problem(
        path,
        error.status_code,
        error.code,
        detail=error.detail,
        suggestion=error.suggestion,
    )
    if error.problems:
        problem.errors = error_entries(error.problems)
    return problem


def _of_http_error(request: Request, error: HTTPException) -> ProblemDetails:
    path = request.url.path
    if error.status_code >= 500:
        _log.error(
            "%s %s: %s",
            request.method,
            path,
            error.detail,
            exc_info=error,
        )
    if error.status_code == 413:
        settings = request.app.state.runtime.settings
        return _problem(
            path,
            413,
            code="body_too_large",
            detail=too_large_detail(settings.max_body_bytes),
            suggestion=SMALLER_BODY,
        )
    phrase = HTTPStatus(error.status_code).phrase
    return _problem(
        path,
        error.status_code,
        code=phrase.lower().replace(" ", "_"),
        detail=f"{error.detail}: {request.method} {short_repr(path, 200)}.",
        suggestion=_route_suggestion(request, error),
    )


def _log_and_describe(
    request: Request, error: PodwrightError
) -> ProblemDetails:
    path = request.url.path
    shown: str = request.app.state.runtime.settings.provider_errors
    reason: str | None = getattr(error, "provider_error", None)
    problem = _of_podwright_error(path, error)
    if shown == "show" and reason is not None:
        problem.provider_error = reason
    if problem.status >= 500:
        detail = problem.detail
        if reason and shown != "hide":
            detail = f"{detail} {reason}"
        _log.warning(
            "%s %s: %s: %s", request.method, path, problem.code, detail
        )
    return problem


def stored_problem(
    run_id: str, status: int, code: str, detail: str, suggestion: str
) -> dict[str, Any]:
    """A problem document that is stored with a background run."""
    problem = _problem(
        f"/runs/{run_id}",
        status,
        code,
        detail=detail,
        suggestion=suggestion,
    )
    return problem.model_dump(exclude_unset=True)


def stored_problem_of(
    run_id: str, error: BaseException, shown: str
) -> dict[str, Any]:
    """The problem document of what ended a background run; it has no context, because the service keeps that itself.

    Args:
        run_id: The run.
        error: Any exception; the text of an unexpected one is not shown.
        shown: The setting `provider_errors`.
    """
    path = f"/runs/{run_id}"
    if isinstance(error, RequestError):
        # of the conversation that the run is a turn of
        return _of_request_error(path, error).model_dump(exclude_unset=True)
    if not isinstance(error, PodwrightError):
        return _unexpected(path).model_dump(exclude_unset=True)
    problem = _of_podwright_error(path, error)
    reason: str | None = getattr(error, "provider_error", None)
    if shown == "show" and reason is not None:
        problem.provider_error = reason
    return problem.model_dump(
        exclude_unset=True, exclude={"context", "resume_path"}
    )


def error_entries(problems: Sequence[Problem]) -> list[ErrorEntry]:
    """Problems as the entries of `errors`."""
    return [ErrorEntry(**asdict(problem)) for problem in problems]


def _problem(
    path: str,
    status: int,
    code: str,
    *,
    detail: str,
    suggestion: str,
    help_url: str = "",
    **more: Any,
) -> ProblemDetails:
    return ProblemDetails(
        type=help_url or help_page(code),
        title=code.replace("_", " ").capitalize(),
        status=status,
        detail=detail,
        instance=path,
        code=code,
        suggestion=suggestion,
        **more,
    )


def _unexpected(path: str) -> ProblemDetails:
    return _problem(
        path,
        500,
        "internal_error",
        detail="The service failed unexpectedly.",
        suggestion="Ask the operator to look in the logs.",
    )


_PLACES = {"query": "Query parameter", "header": "Header"}


def _invalid_request(
    request: Request, error: RequestValidationError
) -> RequestError:
    """The validation errors of FastAPI with pointers into the body."""
    details = error.errors()
    in_body: list[Any] = []
    for entry in details:
        place, *location = entry["loc"]
        if place == "body":
            in_body.append({**entry, "loc": tuple(location)})
    body_type = REQUEST_BODIES.get(route_of(path_in(request.scope)))

    def known_names(location: Sequence[int | str]) -> Collection[str]:
        if body_type is None or location:
            return ()
        return body_type.model_fields

    problems = to_problems(in_body, error.body, known_names)
    if in_body and in_body[0]["type"] == "json_invalid":
        suggestion = "Correct the JSON in the body of the request."
        return RequestError(
            400,
            "json_invalid",
            problems[0].detail,
            suggestion=suggestion,
            problems=problems,
        )
    for entry in details:
        place = _PLACES.get(entry["loc"][0])
        if place is not None:
            name = entry["loc"][1]
            given = short_repr(entry["input"])
            detail = f"{place} '{name}' is {given}: {entry['msg']}."
            problems.append(Problem("", detail))
    first = Problem("", "The request is invalid.")
    if problems:
        first = problems[0]
    suggestion = first.suggestion or "Correct the places listed in 'errors'."
    return RequestError(
        422,
        "request_invalid",
        f"Invalid request: {first.detail}",
        suggestion=suggestion,
        problems=problems,
    )


def _route_suggestion(request: Request, error: HTTPException) -> str:
    if error.status_code == 405:
        return f"Use {allowed_methods(request, error.headers or {})} here."
    path = path_in(request.scope)
    if (
        path.startswith("/runs")
        and request.app.state.runtime.background is None
    ):
        return "Set PODWRIGHT_RUNS_DATABASE to have background runs."
    if route_of(path).startswith("/conversations"):
        return "Set PODWRIGHT_RUNS_DATABASE and PODWRIGHT_CONVERSATIONS=true to keep conversations."
    return did_you_mean(route_of(path), PATHS)


def _of_podwright_error(path: str, error: PodwrightError) -> ProblemDetails:
    facts: dict[str, Any] = {}
    wait = seconds_to_wait(error)
    if wait is not None:
        facts["retry_after"] = wait
    for name in ("run_id", "component", "context", "resume_path", "limit"):
        value = getattr(error, name, None)
        if value is not None:
            facts[name] = to_json_data(value)
    if error.usage is not None:
        facts["usage"] = error.usage.to_dict()
    if isinstance(error, errors.ModelRefusedError) and error.refusal:
        facts["refusal"] = error.refusal
    if isinstance(error, errors.Refusal):
        facts["refusal"] = error.message
    if isinstance(error, errors.ApprovalRequired) and error.question:
        facts["question"] = to_json_data(error.question.to_dict())
    if isinstance(error, errors.BlueprintValidationError):
        facts["errors"] = error_entries(error.problems)
    if isinstance(error, errors.InputError) and error.problems:
        facts["errors"] = error_entries(error.problems)
    return _problem(
        path,
        _status(error),
        error.code,
        detail=error.public_message or error.message,
        suggestion=error.suggestion,
        help_url=error.help_url,
        **facts,
    )


def seconds_to_wait(error: PodwrightError) -> int | None:
    """Seconds after which a run may succeed that a busy model or remote component has failed; None if that is no cause.

    They are those that the model's provider or the remote has named, within bounds.
    """
    match error:
        # without credit, waiting does not help
        case errors.ModelRateLimitError(transient=True):
            seconds = error.retry_after or 0.0
        case errors.ModelUnavailableError(retry_after=float() | int()):
            seconds = error.retry_after or 0.0
        case errors.RemoteError(status=429 | 503, retry_after=float() | int()):
            seconds = error.retry_after or 0.0
        case _:
            return None
    if math.isnan(seconds):
        return None
    return math.ceil(min(max(seconds, 1), _LONGEST_WAIT))


def _status(error: PodwrightError) -> int:
    if (
        isinstance(error, errors.LimitExceededError)
        and error.limit == "wall_time"
    ):
        return 504
    if isinstance(error, errors.BlueprintValidationError) and error.run_id:
        # not the caller's blueprint, but one that the component builds during its run
        return 500
    may_be_the_input = (
        errors.ConditionError
        | errors.LoopLimitError
        | errors.LoopExhaustedError
    )
    if isinstance(error, may_be_the_input) and error.__cause__ is None:
        # nothing failed: the condition cannot compare its values, or the number of loops was reached
        return 422
    if seconds_to_wait(error) is not None:
        return 503
    nearest = next(base for base in type(error).__mro__ if base in STATUS)
    return STATUS[nearest]
