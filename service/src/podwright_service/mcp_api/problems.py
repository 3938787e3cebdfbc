"""Problems of the service as results that the calling model can read, and as errors of JSON-RPC."""

from __future__ import annotations

import contextlib
import json
import logging
from collections.abc import Generator

import mcp_types as types
from fastapi import Request
from mcp import MCPError

from podwright.components import Component
from podwright.data.json_data import JsonMapping, JsonObject, to_text
from podwright_service.http.errors.problems import problem_details

REFUSED = -32000
"""JSON-RPC code of a request that the service refuses, with the problem as its data."""
_FOR_NOW = (
    "overloaded",
    "run_cancelled",
    "not_started",
    "runs_unavailable",
    "idempotency_in_progress",
)
"""Codes of problems that are temporary."""
_SHOWN = (
    "type",
    "title",
    "detail",
    "code",
    "suggestion",
    "run_id",
    "refusal",
    "errors",
    "retry_after",
)
"""The fields of a problem that a model is shown: not the state of a stopped run, which is long."""

_log = logging.getLogger("podwright.service")


def problem_of(
    request: Request, error: Exception, component: Component | None = None
) -> JsonObject:
    """Return an error as the data of a problem. Telemetry counts the request with its status.

    Args:
        request: The request.
        error: The error of the service, or of the library.
        component: The component of a call, into whose arguments pointers lead, and not into the body of `/run`.
    """
    problem = problem_details(request, error)
    request.state.final_status = problem.status
    request.state.final_code = problem.code
    data: JsonObject = problem.model_dump(exclude_unset=True)
    if component is not None and component.inputs:
        for entry in data.get("errors", ()):
            entry["pointer"] = entry["pointer"].removeprefix("/inputs")
    return data


def is_for_now(problem: JsonMapping) -> bool:
    """Return whether a problem is temporary, so that the same request may succeed later."""
    return problem.get("code") in _FOR_NOW


def is_bug(problem: JsonMapping) -> bool:
    """Return whether a problem is an exception that no caller expects."""
    return problem.get("code") == "internal_error"


def refusal(problem: JsonMapping) -> MCPError:
    """Return a problem as an error of JSON-RPC, for a request that the service refuses."""
    return _to_error(REFUSED, problem)


def failure(problem: JsonMapping) -> MCPError:
    """Return a problem as an error of JSON-RPC, for a run that ended with an exception that no caller expects."""
    return _to_error(types.INTERNAL_ERROR, problem)


def _to_error(code: int, problem: JsonMapping) -> MCPError:
    return MCPError(
        code=code,
        message=str(problem.get("detail", "")),
        data=json.loads(_text_of(problem)),
    )


def error_result(problem: JsonMapping) -> types.CallToolResult:
    """Return a problem as the result of a call."""
    return types.CallToolResult(
        content=[types.TextContent(type="text", text=_text_of(problem))],
        is_error=True,
    )


@contextlib.contextmanager
def hide_bugs(request: Request) -> Generator[None]:
    """Log an exception that no caller expects, and raise an error without its text, which the package would send.

    Args:
        request: The request, which is counted as failed.

    Raises:
        MCPError: -32603: such an exception was raised within this context.
    """
    try:
        yield
    except MCPError:
        raise
    except Exception as error:
        _log.exception("A request over MCP failed unexpectedly.")
        request.state.final_status = 500
        raise MCPError(
            code=types.INTERNAL_ERROR, message="Internal error."
        ) from error


def _text_of(problem: JsonMapping) -> str:
    return to_text(
        {name: value for name, value in problem.items() if name in _SHOWN}
    )
