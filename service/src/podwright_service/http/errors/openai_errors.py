"""Problems in OpenAI's shape."""

from __future__ import annotations

from typing import Any

from podwright.errors import ModelRefusedError
from podwright_service.http.errors.problems import ProblemDetails

_FACTS = (
    "run_id",
    "component",
    "usage",
    "limit",
    "retry_after",
    "provider_error",
    "refusal",
    "question",
)
_TYPES = {
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    429: "rate_limit_error",
}


def error_body(problem: ProblemDetails) -> dict[str, Any]:
    """A problem as OpenAI's clients read it: `error` with message, type, code and param, and further facts."""
    message = problem.detail
    if problem.question is not None:
        # clients show the message only
        options = ", ".join(problem.question["options"])
        message = (
            f"{message} What may be decided: {options}. Start it with /run or /runs to decide it: chat completions"
            " cannot."
        )
    error: dict[str, Any] = {
        "message": message,
        "type": _type_of(problem.status),
        "code": problem.code,
        "param": None,
        "suggestion": problem.suggestion,
        "help_url": problem.type,
    }
    for name in _FACTS:
        value = getattr(problem, name)
        if value is not None:
            error[name] = value
    if problem.errors:
        error["errors"] = [entry.model_dump() for entry in problem.errors]
        error["param"] = _parameter(problem.errors[0].pointer) or None
    return {"error": error}


def _type_of(status: int) -> str:
    if status >= 500:
        return "server_error"
    return _TYPES.get(status, "invalid_request_error")


def status_of(problem: ProblemDetails) -> int:
    """The status that OpenAI's clients expect: 400 for a request that cannot be served as it is.

    A refusal by a function of the component has the same status on every route.
    """
    is_of_a_function = (
        problem.refusal is not None and problem.code != ModelRefusedError.code
    )
    if problem.status == 422 and not is_of_a_function:
        return 400
    return problem.status


def _parameter(pointer: str) -> str:
    """`/messages/0/content` as `messages[0].content`."""
    name = ""
    for part in pointer.split("/"):
        if not part:
            continue
        if part.isdecimal():
            name += f"[{part}]"
        elif name:
            name += f".{part}"
        else:
            name = part
    return name
