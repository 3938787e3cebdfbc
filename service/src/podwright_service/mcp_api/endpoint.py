"""The MCP server of a service: its wire is that of the package `mcp`, its runs are those of `/run`."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
from collections.abc import AsyncGenerator, Coroutine
from typing import Any, TypeVar

import mcp_types as types
from fastapi import Request
from mcp import MCPError
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel import Server
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from sse_starlette.sse import AppStatus
from starlette.types import Receive, Scope, Send

from podwright import __version__
from podwright.components import Component
from podwright.data.json_data import JsonMapping, to_text
from podwright.errors import PodwrightError
from podwright_service.execution import execute_request, requested_run
from podwright_service.http.access.hosts import check_origin
from podwright_service.http.errors.problems import (
    ProblemDetails,
    RequestError,
    problem_details,
)
from podwright_service.mcp_api.component_tool import (
    body_of,
    result_of,
    tool_name,
    tool_of,
)
from podwright_service.mcp_api.progress import Progress
from podwright_service.origin import origin_of
from podwright_service.runtime import get_runtime
from podwright_service.settings import Settings

T = TypeVar("T")

_LIST_TTL = 60_000
"""Milliseconds for which clients may keep the definition; a new one comes with a new release."""
_REFUSED = -32000
"""JSON-RPC code of a call that the service refuses before a run begins."""
_FOR_NOW = ("overloaded", "run_cancelled", "not_started")
"""Codes of problems of the service, which are over in a moment."""
_SHOWN = (
    "type",
    "title",
    "detail",
    "code",
    "suggestion",
    "run_id",
    "errors",
    "retry_after",
)
"""The fields of a problem that a model is shown: not the state of a stopped run, which is long."""

_log = logging.getLogger("podwright.service")


class MCPEndpoint:
    """The ASGI application of the route `/mcp`: one tool, which is the component.

    It keeps nothing between requests, so any replica answers any of them. It speaks 2026-07-28, and the revisions with
    a handshake.

    Args:
        component: The served component.
        settings: Their `max_body_bytes` bounds a request.
    """

    def __init__(self, component: Component, settings: Settings) -> None:
        self._component = component
        server: Server[Any] = Server(
            tool_name(component),
            version=__version__,
            title=settings.title or component.name,
            on_list_tools=self._list_tools,
            on_call_tool=self._call_tool,
        )
        # the service has spans of its own for requests and runs
        server.middleware.clear()
        self._manager = StreamableHTTPSessionManager(
            server,
            stateless=True,
            max_request_body_size=settings.max_body_bytes,
        )

    @contextlib.asynccontextmanager
    async def serving(self) -> AsyncGenerator[None]:
        """Answer requests within this context, which surrounds the life of the service."""
        # otherwise streams are cut at the first signal, and not when their runs have ended
        AppStatus.disable_automatic_graceful_drain()
        async with self._manager.run():
            yield

    async def __call__(
        self, scope: Scope, receive: Receive, send: Send
    ) -> None:
        """Serve a request.

        Raises:
            RequestError: 403: a page of another origin makes it.
        """
        await check_origin(Request(scope))
        await self._manager.handle_request(scope, receive, send)

    async def _list_tools(
        self,
        _context: ServerRequestContext[Any, Request],
        _params: types.PaginatedRequestParams | None,
    ) -> types.ListToolsResult:
        return types.ListToolsResult(
            tools=[tool_of(self._component)],
            ttl_ms=_LIST_TTL,
            cache_scope="private",
        )

    async def _call_tool(
        self,
        context: ServerRequestContext[Any, Request],
        params: types.CallToolRequestParams,
    ) -> types.CallToolResult:
        name = tool_name(self._component)
        if params.name != name:
            raise MCPError(
                code=types.INVALID_PARAMS,
                message=f"Unknown tool. This server has one: '{name}'.",
            )
        request = context.request
        if request is None:
            raise MCPError(
                code=types.INTERNAL_ERROR, message="The request is missing."
            )
        progress = Progress(context.session)
        try:
            async with progress.sending():
                return await _run(
                    request, self._component, params.arguments or {}, progress
                )
        except (PodwrightError, RequestError) as error:
            return _error_result(problem_details(request, error))
        except Exception:
            _log.exception("A call of the tool '%s' failed unexpectedly.", name)
            raise


async def _run(
    request: Request,
    component: Component,
    arguments: JsonMapping,
    progress: Progress,
) -> types.CallToolResult:
    runtime = get_runtime(request)
    body = body_of(component, arguments)
    run = await requested_run(request, component, body)
    work = execute_request(
        request,
        component,
        run,
        origin=origin_of(request, runtime.settings, body, component=component),
        subscribers=(progress.handle,),
    )
    result = await _perform(request, work)
    return result_of(component, result, run.run_id)


async def _perform(request: Request, work: Coroutine[Any, Any, T]) -> T:
    """Await the work of a request; it is cancelled when its caller leaves, and at the end of a shutdown.

    Raises:
        RequestError: 503: the service stopped before a run began.
    """
    # the caller's end comes by a cancel scope of the package, that of a shutdown by the active runs
    task = asyncio.create_task(work)
    get_runtime(request).active_runs.add(task)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        if not task.cancelled():
            task.cancel()
            raise
        raise RequestError(
            503, "run_cancelled", "The service is stopping.", "Try again later."
        ) from None


def _error_result(problem: ProblemDetails) -> types.CallToolResult:
    """Return a problem as a result that the calling model can read.

    Raises:
        MCPError: The service refused the call for now, so it may be repeated.
    """
    text = to_text(
        {
            name: value
            for name, value in problem.model_dump(exclude_unset=True).items()
            if name in _SHOWN
        }
    )
    if problem.code in _FOR_NOW:
        raise MCPError(
            code=_REFUSED, message=problem.detail, data=json.loads(text)
        )
    return types.CallToolResult(
        content=[types.TextContent(type="text", text=text)], is_error=True
    )
