"""The response for each error: a problem document, or OpenAI's shape on the routes of its protocols."""

from __future__ import annotations

from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from podwright.data.json_data import to_json_bytes
from podwright.errors import PodwrightError
from podwright.messages.headers import RUN_ID, USAGE, format_usage
from podwright_service.http.errors.openai_errors import error_body, status_of
from podwright_service.http.errors.problems import (
    MEDIA_TYPE,
    allowed_methods,
    problem_details,
)
from podwright_service.http.paths import OPENAI_PREFIX, path_in


def add_exception_handlers(app: FastAPI) -> None:
    """Answer every error of the application with problem details."""

    async def handle(request: Request, error: Exception) -> Response:
        return problem_response(request, error)

    async def ignore(request: Request, error: Exception) -> Response:
        # as in nginx's log; the client has left and does not read it
        return Response(status_code=499)

    for error_type in (
        RequestValidationError,
        HTTPException,
        PodwrightError,
        Exception,
    ):
        app.add_exception_handler(error_type, handle)
    app.add_exception_handler(ClientDisconnect, ignore)


def problem_response(request: Request, error: Exception) -> Response:
    """The response for an error.

    Args:
        request: The request that caused it.
        error: Any exception; the text of an unexpected one is not shown.
    """
    problem = problem_details(request, error)
    headers: dict[str, str] = {}
    if isinstance(error, HTTPException):
        headers.update(error.headers or {})
    if problem.status == 405:
        headers = {"Allow": allowed_methods(request, headers)}
    if isinstance(error, PodwrightError) and error.run_id:
        headers[RUN_ID] = error.run_id
        if error.usage is not None:
            headers[USAGE] = format_usage(error.usage)
    if problem.retry_after is not None:
        headers["Retry-After"] = str(problem.retry_after)
    if path_in(request.scope).startswith(OPENAI_PREFIX):
        if RUN_ID in headers and "Retry-After" not in headers:
            # OpenAI's clients would repeat, and pay for, a run that failed
            headers["x-should-retry"] = "false"
        return Response(
            to_json_bytes(error_body(problem)),
            status_of(problem),
            headers,
            "application/json",
        )
    return Response(problem.to_bytes(), problem.status, headers, MEDIA_TYPE)
