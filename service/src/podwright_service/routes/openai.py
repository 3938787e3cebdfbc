"""The OpenAI-compatible routes: runs of the served component, for the clients that people already have."""

from __future__ import annotations

import contextlib
import time
from collections.abc import AsyncIterator, Iterable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any, Literal, Protocol

from fastapi import APIRouter, Request, Response
from fastapi.sse import KEEPALIVE_COMMENT, format_sse_event
from pydantic import BaseModel

from podwright.data.json_data import to_json_bytes
from podwright.errors import ModelRefusedError
from podwright.messages.usage import NO_USAGE, Usage
from podwright_service.conversations.requested import keeps_conversations
from podwright_service.conversations.values import AskedTurn, Place
from podwright_service.execution import (
    RequestedRun,
    compute_for,
    execute_request,
    new_run_id,
    repeated_run,
)
from podwright_service.http.access.auth import owner_of
from podwright_service.http.errors.problems import ProblemDetails, RequestError
from podwright_service.http.idempotency import IdempotentRoute
from podwright_service.http.query import CheckedRoute
from podwright_service.http.streams import RunStream, StreamedRun
from podwright_service.openai_api.answer import Answer, Piece
from podwright_service.openai_api.chat import Chunks, completion
from podwright_service.openai_api.chat_request import ChatRequest
from podwright_service.openai_api.requests import check_model
from podwright_service.openai_api.responses import (
    ResponseEvents,
    ResponseObject,
)
from podwright_service.openai_api.responses_request import (
    ResponsesRequest,
    previous_not_found,
)
from podwright_service.origin import Sender, origin_of
from podwright_service.routes.openai_responses import NO_MODEL, OPENAI_RESPONSES
from podwright_service.routes.responses import run_headers
from podwright_service.routes.runs import begun_stream, report_late_failure
from podwright_service.runtime import get_runtime

models_router = APIRouter(
    prefix="/v1", tags=["openai"], route_class=CheckedRoute
)
router = APIRouter(prefix="/v1", tags=["openai"], route_class=IdempotentRoute)

_STARTED = int(time.time())


class ModelEntry(BaseModel):
    """A model, as OpenAI's clients list it."""

    id: str
    object: Literal["model"] = "model"
    created: int
    owned_by: str


class ModelList(BaseModel):
    """The models of this service: the component."""

    object: Literal["list"] = "list"
    data: list[ModelEntry]


@models_router.head("/models", include_in_schema=False)
@models_router.get("/models/", include_in_schema=False)
@models_router.get("/models")
async def models(request: Request) -> ModelList:
    """List the served component as the only model."""
    return ModelList(data=[_entry(get_runtime(request).component.name)])


@models_router.head("/models/{model:path}", include_in_schema=False)
@models_router.get("/models/{model:path}", responses=NO_MODEL)
async def model(request: Request, model: str) -> ModelEntry:
    """Describe the served component, if the model has its name.

    Raises:
        RequestError: 404: it has another one.
    """
    component = get_runtime(request).component
    check_model(model.rstrip("/"), component)
    return _entry(component.name)


def _entry(name: str) -> ModelEntry:
    return ModelEntry(id=name, created=_STARTED, owned_by="podwright")


@router.post("/chat/completions/", include_in_schema=False)
@router.post(
    "/chat/completions", response_class=Response, responses=OPENAI_RESPONSES
)
async def chat_completions(request: Request, body: ChatRequest) -> Response:
    """Run the served component, as OpenAI's Chat Completions."""
    run, answer = await _prepare(request, body)
    if body.stream:
        with_usage = bool(
            body.stream_options and body.stream_options.include_usage
        )
        chunks = Chunks(answer, body.model, with_usage=with_usage)
        return await _stream(request, body, run, answer=answer, protocol=chunks)
    text, usage = await _run(request, body, run, answer)
    return _response(answer, usage, completion(answer, body.model, text, usage))


@router.post("/responses/", include_in_schema=False)
@router.post("/responses", response_class=Response, responses=OPENAI_RESPONSES)
async def responses(request: Request, body: ResponsesRequest) -> Response:
    """Run the served component, as OpenAI's Responses; responses are stored if the service keeps conversations."""
    run, answer = await _prepare(request, body)
    is_stored = keeps_conversations(get_runtime(request))
    state = ResponseObject(
        answer, body, is_stored=is_stored and body.store is not False
    )
    if body.stream:
        events = ResponseEvents(state)
        return await _stream(request, body, run, answer=answer, protocol=events)
    text, usage = await _run(request, body, run, answer)
    return _response(answer, usage, state.whole(text, usage))


@models_router.get("/responses", include_in_schema=False)
async def responses_get() -> None:
    """Say what GET requests, and those for a WebSocket connection, would need.

    Raises:
        RequestError: 405, always.
    """
    detail = (
        "Responses are not stored, and WebSocket connections are not supported."
    )
    suggestion = 'Send POST requests, with "stream": true for a stream.'
    raise RequestError(
        405, "method_not_allowed", detail, suggestion, {"allow": "POST"}
    )


async def _prepare(
    request: Request, body: ChatRequest | ResponsesRequest
) -> tuple[RequestedRun, Answer]:
    runtime = get_runtime(request)
    settings = runtime.settings
    component = runtime.component
    make = partial(body.task, component, settings.openai_settings)
    if component.inputs or body.metadata:
        # the check of named inputs may take a while
        task = await compute_for(request, make)
    else:
        task = make()
    run = await repeated_run(request, component)
    if run is None:
        run = RequestedRun(task, new_run_id())
        if isinstance(body, ResponsesRequest):
            run = await _in_conversation(request, body, run)
    answer = Answer(
        component,
        task,
        run_id=run.run_id,
        tool=body.forced_tool(),
        show_reasoning=settings.show_reasoning,
    )
    return run, answer


async def _in_conversation(
    request: Request, body: ResponsesRequest, run: RequestedRun
) -> RequestedRun:
    """Return the run of a request of Responses as a turn of a conversation, or with the one that it goes on from.

    Raises:
        RequestError: 400: the response that it goes on from does not exist.
        RequestValidationError: There are none here.
    """
    runtime = get_runtime(request)
    component = runtime.component
    if not keeps_conversations(runtime) or runtime.background is None:
        body.check_not_stored()
        return run
    conversations = runtime.background.store.conversations
    previous: Place | None = None
    run_id = body.previous_run()
    if run_id is not None:
        turn = await conversations.find_run(
            component.name, owner_of(request), run_id
        )
        if turn is None:
            raise previous_not_found(body.previous_response_id)
        previous = turn.place
    if body.store is not False:
        session = f"resp_{run.run_id}"
        asked = AskedTurn(session, previous, messages="/input")
        return replace(run, turn=asked)
    task = run.task
    if previous is not None:
        earlier = await conversations.earlier(previous)
        task = task.in_conversation(earlier.messages, earlier.state)
    return replace(run, task=task, turn=AskedTurn(is_kept=False))


async def _run(
    request: Request, sender: Sender, run: RequestedRun, answer: Answer
) -> tuple[str | None, Usage]:
    """The text of the answer, None if the model refused instead, and what the run used."""
    runtime = get_runtime(request)
    origin = origin_of(request, runtime.settings, sender, runtime.component)
    work = execute_request(
        request,
        runtime.component,
        run,
        origin=origin,
        subscribers=(answer.read,),
    )
    try:
        result = await runtime.active_runs.run_until_disconnect(request, work)
    except ModelRefusedError as error:
        # an answer in this protocol, and no error
        answer.end(error)
        return None, error.usage or NO_USAGE
    answer.end(result)
    return answer.text(result), result.usage


def _response(
    answer: Answer, usage: Usage, content: dict[str, Any]
) -> Response:
    headers = run_headers(answer.run_id, usage, answer.finish_reason)
    return Response(
        to_json_bytes(content), headers=headers, media_type="application/json"
    )


class _Protocol(Protocol):
    """The events of a protocol."""

    end: bytes
    """What follows the last event."""

    def first(self) -> Iterable[dict[str, Any]]: ...

    def piece(self, piece: Piece) -> Iterable[dict[str, Any]]: ...

    def last(self, usage: Usage) -> Iterator[dict[str, Any]]: ...

    def failed(self, problem: ProblemDetails) -> dict[str, Any]: ...


async def _stream(
    request: Request,
    sender: Sender,
    run: RequestedRun,
    *,
    answer: Answer,
    protocol: _Protocol,
) -> Response:
    """Start a run, wait for its first event, and send its events; an earlier error is answered with its own status."""
    async with contextlib.AsyncExitStack() as cleanup:
        beginning = begun_stream(request, run, sender)
        stream = await cleanup.enter_async_context(beginning)
        events = _events(request, stream, answer, protocol)
        return StreamedRun(events, stream, cleanup.pop_all())


async def _events(
    request: Request, stream: RunStream, answer: Answer, protocol: _Protocol
) -> AsyncIterator[bytes]:
    for event in protocol.first():
        yield _formatted(event)
    async for run_event, _ in stream.unread():
        if run_event is None:
            yield KEEPALIVE_COMMENT
            continue
        piece = answer.read(run_event)
        if piece is not None:
            for event in protocol.piece(piece):
                yield _formatted(event)
    try:
        usage, rest = await _end(stream, answer)
    except Exception as error:  # noqa: BLE001 - the response has begun, so any error becomes the last event
        problem = report_late_failure(request, stream.run_id, error)
        yield _formatted(protocol.failed(problem))
    else:
        for piece in rest:
            for event in protocol.piece(piece):
                yield _formatted(event)
        for event in protocol.last(usage):
            yield _formatted(event)
    yield protocol.end


async def _end(stream: RunStream, answer: Answer) -> tuple[Usage, list[Piece]]:
    """What a run used, and what is left to send of its answer."""
    try:
        result = await stream.result()
    except ModelRefusedError as error:
        return error.usage or NO_USAGE, answer.end(error)
    return result.usage, answer.end(result)


def _formatted(event: dict[str, Any]) -> bytes:
    """A server-sent event, named by its type if it has one."""
    data = to_json_bytes(event).decode()
    return format_sse_event(event=event.get("type"), data_str=data)
