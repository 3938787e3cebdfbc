"""Calls that become background runs, and the methods by which their clients follow them.

A call whose client takes tasks is a background run from the start, stored before it is answered: with its result if it
ends soon, else with a task, whose id is that of the run. Any process of the service answers for it.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
import time
from collections.abc import AsyncGenerator, Mapping
from typing import Any, cast

import mcp_types as types
from fastapi import Request
from mcp import MCPError
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel import Server
from mcp.shared.inbound import MCP_NAME_HEADER, decode_header_value
from pydantic import Field, ValidationError
from starlette.exceptions import HTTPException

from podwright.components import Component
from podwright.data.json_data import JsonObject
from podwright.errors import PodwrightError
from podwright_service.background.caller_runs import CallerRuns, StoredRun
from podwright_service.background.requests import (
    AcceptedRun,
    cancel,
    decide,
    own_access,
    store_run,
)
from podwright_service.background.storage.database import (
    DatabaseUnavailableError,
)
from podwright_service.background.worker import BackgroundWorker
from podwright_service.http.access.auth import has_scope, scope_missing
from podwright_service.http.errors.problems import RequestError
from podwright_service.http.idempotency import RequestKey
from podwright_service.http.schemas import DecisionRequest, RunRequest
from podwright_service.mcp_api.component_tool import may_ask
from podwright_service.mcp_api.http_status import refused
from podwright_service.mcp_api.problems import hide_bugs, problem_of
from podwright_service.mcp_api.progress import Progress
from podwright_service.mcp_api.task_data import (
    attempt_in,
    question_key,
    result_of_run,
    to_detailed_task,
    to_task,
    where_to_decide,
)
from podwright_service.mcp_servers import forwarded_headers
from podwright_service.runtime import get_runtime
from podwright_service.settings import Settings

Context = ServerRequestContext[Any, Request]

EXTENSION = "io.modelcontextprotocol/tasks"
_RUN_ID = re.compile(r"[0-9a-f]{32}")
_FIRST_PAUSE = 0.02
_LONGEST_PAUSE = 0.5
"""Seconds between two looks at a run that is waited for."""
_MAX_EVENTS = 500
"""Most events that are read at once."""


class TaskParams(types.RequestParams):
    """The parameters of `tasks/get` and `tasks/cancel`."""

    task_id: str


class UpdateParams(TaskParams):
    """The parameters of `tasks/update`."""

    input_responses: dict[str, Any] = Field(default_factory=dict[str, Any])


class Tasks:
    """Tasks of a service with a database of background runs.

    Args:
        component: The served component.
        settings: `mcp_task_after` says when a call is answered with a task.
    """

    def __init__(self, component: Component, settings: Settings) -> None:
        self._component = component
        self._retention = settings.runs_retention
        self._seconds = settings.mcp_task_after
        if may_ask(component):
            self._seconds = 0.0
        self._cancelling: set[asyncio.Task[None]] = set()
        """Kept, because the event loop holds tasks weakly."""

    def add_to(self, server: Server[Any]) -> None:
        """Have a server declare the extension and answer its methods."""
        server.extensions[EXTENSION] = {}
        server.add_request_handler("tasks/get", TaskParams, self._get)
        server.add_request_handler("tasks/cancel", TaskParams, self._cancel)
        server.add_request_handler("tasks/update", UpdateParams, self._update)

    def takes(self, context: Context, request: Request) -> bool:
        """Return whether a call becomes a background run: its client takes tasks, and has no headers for MCP servers.

        Those are not stored, so a background run would not have them.
        """
        servers = get_runtime(request).mcp.values()
        if forwarded_headers(request.headers, servers):
            return False
        return _is_declared(context)

    async def call(
        self,
        request: Request,
        body: RunRequest,
        key: RequestKey | None,
        progress: Progress,
    ) -> types.CallToolResult | JsonObject:
        """Store a background run, and return its result if it ends soon, else a task.

        Raises:
            RequestError, InputError: The request is refused; see `store_run`.
        """
        worker = _worker_of(request)
        runs = _runs_of(request, worker)
        # not cut off, because the run may be stored already
        storing = asyncio.create_task(store_run(request, worker, body, key))
        try:
            accepted = await asyncio.shield(storing)
            run = await self._wait(request, runs, accepted.run, progress)
        except asyncio.CancelledError:
            # its caller knows of no task, and has no key by which to find it; a shutdown is no wish to end it
            is_stopping = get_runtime(request).lifecycle.state == "draining"
            if key is None and not is_stopping:
                self._cancel_later(request, worker, runs, storing)
            raise
        if run["status"] in ("succeeded", "failed", "cancelled"):
            return result_of_run(run, self._performer(worker, run))
        return {"resultType": "task", **to_task(run, self._retention)}

    async def _wait(
        self,
        request: Request,
        runs: CallerRuns,
        run: StoredRun,
        progress: Progress,
    ) -> StoredRun:
        """Wait for a run, until it ends or stops, or it is time to answer with a task; returns it as it is then."""
        lifecycle = get_runtime(request).lifecycle
        end = time.monotonic() + self._seconds
        pause = _FIRST_PAUSE
        seen = -1
        is_active = run["status"] in ("queued", "running")
        while is_active and lifecycle.state != "draining":
            left = end - time.monotonic()
            if left <= 0:
                break
            await asyncio.sleep(min(pause, left))
            pause = min(2 * pause, _LONGEST_PAUSE)
            # the run is stored, and goes on: only the answer is then a task
            with contextlib.suppress(DatabaseUnavailableError):
                # before the events, which are complete if it has ended
                status = await runs.status(run["id"])
                for seq, event in await runs.events(
                    run["id"], seen, _MAX_EVENTS
                ):
                    progress.handle_stored(event)
                    seen = seq
                is_active = status in ("queued", "running")
        with contextlib.suppress(DatabaseUnavailableError):
            return await runs.get(run["id"]) or run
        return run

    def _cancel_later(
        self,
        request: Request,
        worker: BackgroundWorker,
        runs: CallerRuns,
        storing: asyncio.Task[AcceptedRun],
    ) -> None:
        """Cancel a run outside of its request, which is over, once it is stored."""

        async def work() -> None:
            # it was refused, has ended meanwhile, or the database is away and the run goes on
            with contextlib.suppress(RequestError, PodwrightError):
                accepted = await storing
                await cancel(request, worker, runs, accepted.run["id"])

        task = asyncio.create_task(work())
        self._cancelling.add(task)
        task.add_done_callback(self._cancelling.discard)

    async def _get(self, context: Context, params: TaskParams) -> JsonObject:
        request = _request_of(context, params)
        async with _answered(request):
            worker = _worker_of(request)
            run = await _found(_runs_of(request, worker), params.task_id)
            return to_detailed_task(
                run,
                self._performer(worker, run),
                self._retention,
                may_decide=has_scope(request, "approve"),
            )

    async def _cancel(self, context: Context, params: TaskParams) -> JsonObject:
        request = _request_of(context, params)
        async with _answered(request):
            worker = _worker_of(request)
            runs = _runs_of(request, worker)
            run = await _found(runs, params.task_id)
            try:
                await cancel(request, worker, runs, run["id"])
            except RequestError as error:
                # it has ended: there is nothing left to cancel
                if error.code != "run_state_conflict":
                    raise
        return {}

    async def _update(
        self, context: Context, params: UpdateParams
    ) -> JsonObject:
        request = _request_of(context, params)
        async with _answered(request):
            worker = _worker_of(request)
            runs = _runs_of(request, worker)
            run = await _found(runs, params.task_id)
            if not has_scope(request, "approve"):
                error = scope_missing("approve")
                error.detail = f"{error.detail} {where_to_decide(run['id'])}"
                raise error
            for key, response in params.input_responses.items():
                body = _decision_in(run, key, response)
                if body is not None:
                    await decide(
                        request, worker, runs, run["id"], body, body.decision
                    )
        return {}

    def _performer(self, worker: BackgroundWorker, run: StoredRun) -> Component:
        """The component whose result a run has: an earlier one, if the service has its blueprint."""
        return worker.component_of(run["digest"]) or self._component


def _decision_in(
    run: StoredRun, key: str, response: object
) -> DecisionRequest | None:
    """Return the decision of a person about a question of a run; None if they have not decided, or were not asked.

    Raises:
        RequestError: 409: it is about another question than the one that waits.
        MCPError: It is no decision.
    """
    attempt = attempt_in(key)
    if attempt is None:
        # the protocol has servers ignore what they have not asked
        return None
    waits = run["status"] == "waiting_for_approval"
    if waits and attempt == run["attempt"] and key != question_key(run):
        raise RequestError(
            409,
            "run_state_conflict",
            "The decision is about another question than the one that the run asks.",
            "Look at the task again.",
        )
    if not isinstance(response, Mapping):
        raise _invalid(f"Expected an object as the response to '{key}'.")
    given = cast("Mapping[str, Any]", response)
    if given.get("action") in ("decline", "cancel"):
        return None
    content = given.get("content")
    if given.get("action") != "accept" or not isinstance(content, Mapping):
        raise _invalid(
            f"Expected an `action`, and with 'accept' a `content`, as the response to '{key}'."
        )
    fields = cast("Mapping[str, Any]", content)
    if "decision" not in fields:
        raise _invalid(f"The response to '{key}' has no decision.")
    try:
        return DecisionRequest.model_validate({**fields, "attempt": attempt})
    except ValidationError as error:
        reasons = "; ".join(
            f"{'.'.join(map(str, each['loc']))}: {each['msg']}"
            for each in error.errors(include_url=False, include_input=False)
        )
        raise _invalid(
            f"The response to '{key}' is invalid: {reasons}"
        ) from None


def _invalid(message: str) -> MCPError:
    return MCPError(code=types.INVALID_PARAMS, message=message)


def _is_declared(context: Context) -> bool:
    capabilities = context.session.client_capabilities
    if capabilities is None or capabilities.extensions is None:
        return False
    return EXTENSION in capabilities.extensions


def _request_of(context: Context, params: TaskParams) -> Request:
    """Return the request of a method of the extension.

    Raises:
        MCPError: Its client has not declared the extension, or its headers name another task.
    """
    if context.request is None or not _is_declared(context):
        raise MCPError(
            code=types.MISSING_REQUIRED_CLIENT_CAPABILITY,
            message=f"The method '{context.method}' needs the extension '{EXTENSION}' among the client's capabilities.",
            data={"requiredCapabilities": {"extensions": {EXTENSION: {}}}},
        )
    # the package checks it for its own methods
    named = decode_header_value(context.request.headers.get(MCP_NAME_HEADER))
    if named != params.task_id:
        raise MCPError(
            code=types.HEADER_MISMATCH,
            message=f"The header '{MCP_NAME_HEADER}' is not the task of the body.",
        )
    return context.request


@contextlib.asynccontextmanager
async def _answered(request: Request) -> AsyncGenerator[None]:
    """Turn the errors of this context into errors of JSON-RPC, with the problem as their data."""
    with hide_bugs(request):
        try:
            yield
        except (PodwrightError, HTTPException) as error:
            data = problem_of(request, error)
            raise refused(request, data, error) from None


async def _found(runs: CallerRuns, task_id: str) -> StoredRun:
    """Return the run of a task.

    Raises:
        MCPError: There is none that the caller may see.
    """
    run = None
    if _RUN_ID.fullmatch(task_id):
        run = await runs.get(task_id)
    if run is None:
        raise _invalid(
            "Unknown task: it never existed, was deleted some time after its end, or is another caller's."
        )
    return run


def _runs_of(request: Request, worker: BackgroundWorker) -> CallerRuns:
    return worker.store.runs_of(own_access(request, worker))


def _worker_of(request: Request) -> BackgroundWorker:
    # these methods exist only with one
    return cast("BackgroundWorker", get_runtime(request).background)
