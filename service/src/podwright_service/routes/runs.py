"""Routes that run something: the served component, or an inline blueprint."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import AsyncGenerator, AsyncIterator
from typing import Annotated

from fastapi import APIRouter, Query, Request, Response
from fastapi.responses import StreamingResponse
from fastapi.sse import format_sse_event

from podwright.components import Component
from podwright.data.json_data import to_json_bytes
from podwright.messages.headers import REPLAYED
from podwright.run.result import ExecutionResult
from podwright_service.execution import (
    RequestedRun,
    execute_request,
    perform_run,
    requested_run,
)
from podwright_service.http.errors.problems import (
    ProblemDetails,
    problem_details,
)
from podwright_service.http.idempotency import IdempotentRoute
from podwright_service.http.public_events import (
    EventFilter,
    filter_of,
    public_result,
    without_context,
)
from podwright_service.http.schemas import (
    InlineRunRequest,
    RunOutput,
    RunRequest,
    Trace,
    WorkflowContext,
    WorkflowData,
)
from podwright_service.http.streams import RunStream, StreamedRun
from podwright_service.origin import Sender, origin_of
from podwright_service.routes.blueprints import build_inline
from podwright_service.routes.responses import (
    AS_DATA,
    RUN_HEADERS,
    RUN_PARAMETERS,
    RUN_PROBLEMS,
    STREAM_RESPONSES,
    run_headers,
)
from podwright_service.runtime import get_runtime

router = APIRouter(tags=["runs"], route_class=IdempotentRoute)
_log = logging.getLogger("podwright.service")

IsTraced = Annotated[
    bool,
    Query(
        alias="trace",
        description="Whether to answer with the result and its events.",
    ),
]
AsData = Annotated[bool, Query(alias="data", description=AS_DATA)]
RunContent = WorkflowContext | WorkflowData | RunOutput | Trace
_RESPONSES = {200: {"headers": RUN_HEADERS}, **RUN_PROBLEMS}


@router.post(
    "/run",
    response_model=RunContent,
    responses=_RESPONSES,
    openapi_extra=RUN_PARAMETERS,
)
async def run(
    request: Request,
    body: RunRequest,
    trace: IsTraced = False,
    as_data: AsData = False,
) -> Response:
    """Run the served component."""
    component = get_runtime(request).component
    return await _run(request, component, body, trace=trace, as_data=as_data)


@router.post(
    "/run-blueprint",
    response_model=RunContent,
    responses=_RESPONSES,
    openapi_extra=RUN_PARAMETERS,
)
async def run_blueprint(
    request: Request,
    body: InlineRunRequest,
    trace: IsTraced = False,
    as_data: AsData = False,
) -> Response:
    """Run a blueprint from the request. It may name the models, tools, agents and conditions that `/info` lists."""
    component = await build_inline(request, body)
    return await _run(request, component, body, trace=trace, as_data=as_data)


@contextlib.asynccontextmanager
async def begun_stream(
    request: Request,
    run: RequestedRun,
    sender: Sender,
    *,
    trace: bool = False,
    show: EventFilter = without_context,
) -> AsyncGenerator[RunStream]:
    """Start a run and wait for its first event; an error before that is answered with its own status."""
    runtime = get_runtime(request)
    stream = RunStream(run.run_id, runtime.settings.stream_buffer_bytes, show)
    work = execute_request(
        request,
        runtime.component,
        run,
        subscribers=(stream.publish,),
        origin=origin_of(
            request, runtime.settings, sender, component=runtime.component
        ),
        stream=True,
        trace=trace,
    )
    async with stream.running(work) as running:
        runtime.active_runs.add(running)
        await runtime.active_runs.run_until_disconnect(request, stream.begun())
        yield stream


@router.post(
    "/run/stream",
    response_class=StreamingResponse,
    responses=STREAM_RESPONSES,
    openapi_extra=RUN_PARAMETERS,
)
async def run_stream(
    request: Request,
    body: RunRequest,
    trace: IsTraced = False,
    as_data: AsData = False,
) -> Response:
    """Run the served component and send its events as they happen, and at the end the response of `/run`."""
    run = await requested_run(request, get_runtime(request).component, body)
    async with contextlib.AsyncExitStack() as cleanup:
        beginning = begun_stream(
            request, run, body, trace=trace, show=filter_of(request)
        )
        stream = await cleanup.enter_async_context(beginning)
        events = _events(request, stream, as_data)
        return StreamedRun(events, stream, cleanup.pop_all())


async def _events(
    request: Request, stream: RunStream, as_data: bool
) -> AsyncIterator[bytes]:
    async for event in stream.events():
        yield event
    try:
        result = await stream.result()
        content = _content(
            request, get_runtime(request).component, result, as_data
        )
    except Exception as error:  # noqa: BLE001 - the response has begun, so any error becomes the last event
        problem = report_late_failure(request, stream.run_id, error)
        yield format_sse_event(
            event="problem", data_str=problem.to_bytes().decode()
        )
    else:
        yield format_sse_event(event="result", data_str=content.decode())


def report_late_failure(
    request: Request, run_id: str, error: Exception
) -> ProblemDetails:
    """The problem of a run that fails after its response has begun; it is logged, and its status kept for telemetry."""
    problem = problem_details(request, error)
    if problem.code == "internal_error":
        _log.error("The run %s failed unexpectedly.", run_id, exc_info=error)
    request.state.final_status = problem.status
    request.state.final_code = problem.code
    return problem


async def _run(
    request: Request,
    component: Component,
    body: RunRequest,
    *,
    trace: bool,
    as_data: bool,
) -> Response:
    run = await requested_run(request, component, body)
    result = await perform_run(request, component, run, body=body, trace=trace)
    headers = run_headers(run.run_id, result.usage, result.finish_reason)
    if run.result is not None:
        headers[REPLAYED] = "true"
    return Response(
        _content(request, component, result, as_data),
        headers=headers,
        media_type="application/json",
    )


def _content(
    request: Request,
    component: Component,
    result: ExecutionResult,
    as_data: bool,
) -> bytes:
    """The body of the response: a trace if the result has events, else the context of a workflow or the output."""
    if result.events:
        shown = public_result(result, filter_of(request))
        return to_json_bytes(shown.to_dict())
    content = component.content_of(result, as_data=as_data)
    return to_json_bytes(content)
