"""Problems in OpenAI's shape."""

from __future__ import annotations

from typing import Any

from podwright_service.http.problems import ProblemDetails

_FACTS = ("run_id", "component", "usage", "limit", "provider_error")
_TYPES = {
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    429: "rate_limit_error",
}


def error_body(problem: ProblemDetails) -> dict[str, Any]:
    """A problem as OpenAI's clients read it: `error` with message, type, code and param, and further facts."""
    kind = _TYPES.get(
        problem.status,
        "server_error" if problem.status >= 500 else "invalid_request_error",
    )
    more = {
        name: value for name in _FACTS if (value := getattr(problem, name)) is not None
    }
    if problem.errors:
        more["errors"] = [entry.model_dump() for entry in problem.errors]
    pointer = problem.errors[0].pointer if problem.errors else ""
    return {
        "error": {
            "message": problem.detail,
            "type": kind,
            "code": problem.code,
            "param": _parameter(pointer) or None,
            "suggestion": problem.suggestion,
            "help_url": problem.type,
            **more,
        }
    }


def status_of(problem: ProblemDetails) -> int:
    """The status that OpenAI's clients expect: 400 for a request that cannot be served as it is."""
    return 400 if problem.status == 422 else problem.status


def _parameter(pointer: str) -> str:
    """`/messages/0/content` as `messages[0].content`."""
    name = ""
    for part in filter(None, pointer.split("/")):
        name += f"[{part}]" if part.isdecimal() else f".{part}" if name else part
    return name
