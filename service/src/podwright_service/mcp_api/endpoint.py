"""The MCP server of a service. The package `mcp` reads and writes messages; calls are runs as those of `POST /run`."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncGenerator, Coroutine
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar, cast

import mcp_types as types
from fastapi import Request
from mcp import MCPError
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel import Server
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from sse_starlette.sse import AppStatus
from starlette.responses import JSONResponse, Response
from starlette.types import Message, Receive, Scope, Send

from podwright import __version__
from podwright.components import Component
from podwright.data.json_data import JsonMapping, JsonObject
from podwright.errors import PodwrightError
from podwright.run.result import ExecutionResult
from podwright_service.execution import execute_request, requested_run
from podwright_service.http.access.hosts import check_origin
from podwright_service.http.errors.problems import RequestError
from podwright_service.http.idempotency import answer_once
from podwright_service.http.json_body import JSONRequest
from podwright_service.http.schemas import RunRequest
from podwright_service.mcp_api.component_tool import (
    body_of,
    result_of,
    tool_name,
    tool_of,
)
from podwright_service.mcp_api.http_status import RefusableResponse, refused
from podwright_service.mcp_api.keys import (
    from_response,
    key_of_call,
    to_response,
)
from podwright_service.mcp_api.problems import (
    error_result,
    hide_bugs,
    is_for_now,
    problem_of,
)
from podwright_service.mcp_api.progress import Progress
from podwright_service.origin import origin_of
from podwright_service.runtime import get_runtime
from podwright_service.settings import Settings

if TYPE_CHECKING:
    from podwright_service.mcp_api.tasks import Tasks

T = TypeVar("T")

_LIST_TTL = 60_000
"""Milliseconds for which clients may keep the definition; a new one comes with a new release."""

_PARSE_ERROR: JsonObject = {
    "jsonrpc": "2.0",
    "id": None,
    "error": {"code": types.PARSE_ERROR, "message": "Parse error"},
}


class MCPEndpoint:
    """The ASGI application of the route `/mcp`: one tool, which is the component.

    It keeps nothing between requests, so any replica answers any of them. It supports 2026-07-28, and the revisions
    with a handshake.

    Args:
        component: The served component.
        settings: The settings; `max_body_bytes` limits a request.
    """

    def __init__(self, component: Component, settings: Settings) -> None:
        self._component = component
        server: Server[Any] = Server(
            tool_name(component),
            version=__version__,
            title=settings.title or component.name,
            on_list_tools=self._list_tools,
        )
        # the results of the argument on_call_tool cannot be tasks
        server.add_request_handler(
            "tools/call", types.CallToolRequestParams, self._call_tool
        )
        self._tasks: Tasks | None = None
        if settings.runs_database is not None:
            # only with a database, because its package is imported too
            from podwright_service.mcp_api.tasks import Tasks

            self._tasks = Tasks(component, settings)
            self._tasks.add_to(server)
        # the service has spans of its own for requests and runs
        server.middleware.clear()
        self._server = server
        self._max_body_bytes = settings.max_body_bytes
        self._manager: StreamableHTTPSessionManager | None = None

    @contextlib.asynccontextmanager
    async def serving(self) -> AsyncGenerator[None]:
        """Answer requests within this context, which surrounds the life of the service."""
        # otherwise streams are cut at the first signal, and not when their runs have ended
        AppStatus.disable_automatic_graceful_drain()
        # a manager runs once, and an application may be started again
        self._manager = StreamableHTTPSessionManager(
            self._server,
            stateless=True,
            max_request_body_size=self._max_body_bytes,
        )
        async with self._manager.run():
            yield

    async def __call__(
        self, scope: Scope, receive: Receive, send: Send
    ) -> None:
        """Serve a request.

        Raises:
            RequestError: 403: a page of another origin makes it; 400 or 413: its JSON has a number that is too long, or
                too many values.
        """
        request = JSONRequest(Request(scope, receive))
        await check_origin(request)
        if self._manager is None:
            raise RequestError(
                503, "not_started", "MCP is not served yet.", "Try again later."
            )
        try:
            # the package reads all JSON, however many values it has
            message = await request.json()
        except json.JSONDecodeError:
            await JSONResponse(_PARSE_ERROR, 400)(scope, receive, send)
            return
        request_id = None
        if isinstance(message, dict):
            request_id = cast("JsonObject", message).get("id")
        bodies: list[Message] = [
            {"type": "http.request", "body": await request.body()}
        ]

        async def receive_again() -> Message:
            return bodies.pop() if bodies else await receive()

        response = RefusableResponse(scope, receive, send, request_id)
        await self._manager.handle_request(scope, receive_again, response.send)

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
    ) -> types.CallToolResult | JsonObject:
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
        with hide_bugs(request):
            return await self._answer(request, context, params.arguments or {})

    async def _answer(
        self,
        request: Request,
        context: ServerRequestContext[Any, Request],
        arguments: JsonMapping,
    ) -> types.CallToolResult | JsonObject:
        progress = Progress(context.session)
        try:
            key = key_of_call(request, context.meta, arguments)
            body = body_of(self._component, arguments)
            async with progress.sending():
                if self._tasks and self._tasks.takes(context, request):
                    return await self._tasks.call(request, body, key, progress)
                run = _Call(request, self._component, body, progress)
                if key is None:
                    return await run.perform()
                return from_response(
                    await answer_once(request, key, run.respond)
                )
        except (PodwrightError, RequestError) as error:
            data = problem_of(request, error, self._component)
            if is_for_now(data):
                raise refused(request, data, error) from None
            return error_result(data)


@dataclass(frozen=True, slots=True)
class _Call:
    """A call whose run ends with its request, and is no background run."""

    request: Request
    component: Component
    body: RunRequest
    progress: Progress

    async def perform(self) -> types.CallToolResult:
        """Run the component."""
        result, run_id = await self._run()
        content = self.component.content_of(result, as_data=True)
        return result_of(self.component, content, run_id)

    async def respond(self) -> Response:
        """Run the component, and return a response to store; that of a failed run may be stored too."""
        try:
            result, run_id = await self._run()
        except PodwrightError as error:
            data = problem_of(self.request, error, self.component)
            if is_for_now(data):
                raise
            return to_response(
                error_result(data), data["status"], data.get("run_id")
            )
        content = self.component.content_of(result, as_data=True)
        return to_response(
            result_of(self.component, content, run_id), 200, run_id
        )

    async def _run(self) -> tuple[ExecutionResult, str]:
        """Return the result of the run, and its id."""
        request = self.request
        run = await requested_run(request, self.component, self.body)
        work = execute_request(
            request,
            self.component,
            run,
            origin=origin_of(
                request,
                get_runtime(request).settings,
                self.body,
                component=self.component,
            ),
            subscribers=(self.progress.handle,),
        )
        return await _perform(request, work), run.run_id


async def _perform(request: Request, work: Coroutine[Any, Any, T]) -> T:
    """Await the work of a request; it is cancelled when its caller leaves, and at the end of a shutdown.

    Raises:
        RequestError: 503: the service stopped before a run began.
    """
    # a cancel scope of the package cancels it when the caller leaves, the active runs at a shutdown
    task = asyncio.create_task(work)
    active_runs = get_runtime(request).active_runs
    active_runs.add(task)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        if not task.cancelled():
            # nobody waits for the error of the run that it ends with
            task.add_done_callback(_take_error)
            active_runs.cancel(task)
            raise
        raise RequestError(
            503, "run_cancelled", "The service is stopping.", "Try again later."
        ) from None


def _take_error(task: asyncio.Task[Any]) -> None:
    """Take the error of a task, which the event loop would log."""
    if not task.cancelled():
        task.exception()
