"""The OpenAI-compatible routes: runs of the served component, for the clients that people already have."""

from __future__ import annotations

import contextlib
import time
from collections.abc import AsyncGenerator, AsyncIterator, Iterable, Iterator
from dataclasses import dataclass
from typing import Annotated, Any, Literal, Protocol

from fastapi import APIRouter, Depends, Request, Response
from fastapi.sse import KEEPALIVE_COMMENT, EventSourceResponse, format_sse_event
from pydantic import BaseModel

from podwright.headers import RUN_ID, USAGE, format_usage
from podwright.json_data import to_json_bytes
from podwright.result import ExecutionResult
from podwright.run import Task
from podwright.usage import Usage
from podwright_service.documentation import OPENAI_RESPONSES
from podwright_service.execution import execute_request
from podwright_service.openai_api.answer import Answer
from podwright_service.openai_api.chat import Chunks, completion
from podwright_service.openai_api.requests import ChatRequest, ResponsesRequest
from podwright_service.openai_api.responses import ResponseEvents, ResponseObject
from podwright_service.problems import ProblemDetails, RequestError
from podwright_service.routes.idempotent import IdempotentRoute
from podwright_service.routes.runs import begun_stream, late_problem
from podwright_service.runtime import get_runtime
from podwright_service.streams import RunStream

models_router = APIRouter(prefix="/v1", tags=["openai"])
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


@models_router.get("/models")
async def models(request: Request) -> ModelList:
    """List the served component as the only model."""
    name = get_runtime(request).component.name
    return ModelList(data=[ModelEntry(id=name, created=_STARTED, owned_by="podwright")])


@dataclass(slots=True)
class _Opened:
    """A request with the run that it has begun, if it asks for a stream."""

    body: Any
    task: Task
    answer: Answer
    stream: RunStream | None = None


@contextlib.asynccontextmanager
async def _open(request: Request, body: ChatRequest | ResponsesRequest) -> AsyncGenerator[_Opened]:
    runtime = get_runtime(request)
    task = body.task(runtime.component, runtime.settings.openai_settings)
    streams = runtime.component.kind in ("agent", "conductor") and task.response_model is None
    opened = _Opened(body, task, Answer(streams))
    if not body.stream:
        yield opened
        return
    async with begun_stream(request, task) as stream:
        opened.stream = stream
        opened.answer.run_id = stream.run_id
        yield opened


async def open_chat(request: Request, body: ChatRequest) -> AsyncIterator[_Opened]:
    """A request of Chat Completions; an error before the first event of its run is answered with its own status."""
    async with _open(request, body) as opened:
        yield opened


async def open_responses(request: Request, body: ResponsesRequest) -> AsyncIterator[_Opened]:
    """A request of Responses; an error before the first event of its run is answered with its own status."""
    async with _open(request, body) as opened:
        yield opened


@router.post("/chat/completions", response_class=Response, responses=OPENAI_RESPONSES)
async def chat_completions(request: Request, opened: Annotated[_Opened, Depends(open_chat)]) -> Response:
    """Run the served component, as OpenAI's Chat Completions."""
    body, answer = opened.body, opened.answer
    if opened.stream is None:
        result, text = await _run(request, opened)
        return _response(answer, result, completion(answer, body.model, text, result.usage))
    options = body.stream_options
    chunks = Chunks(answer, body.model, with_usage=bool(options and options.include_usage))
    return EventSourceResponse(_chat_events(request, opened, opened.stream, chunks), headers=opened.stream.headers)


@router.post("/responses", response_class=Response, responses=OPENAI_RESPONSES)
async def responses(request: Request, opened: Annotated[_Opened, Depends(open_responses)]) -> Response:
    """Run the served component, as OpenAI's Responses; nothing is stored."""
    answer, state = opened.answer, ResponseObject(opened.answer, opened.body)
    if opened.stream is None:
        result, text = await _run(request, opened)
        return _response(answer, result, state.finished(text, result.usage))
    events = ResponseEvents(state)
    return EventSourceResponse(_response_events(request, opened, opened.stream, events), headers=opened.stream.headers)


@models_router.get("/responses", include_in_schema=False)
async def responses_get() -> None:
    """Say what GET requests, and those for a WebSocket connection, would need.

    Raises:
        RequestError: 405, always.
    """
    detail = "Responses are not stored, and WebSocket connections are not supported."
    suggestion = 'Send POST requests, with "stream": true for a stream.'
    raise RequestError(405, "method_not_allowed", detail, suggestion, {"allow": "POST"})


async def _run(request: Request, opened: _Opened) -> tuple[ExecutionResult, str]:
    runtime = get_runtime(request)
    work = execute_request(request, runtime.component, opened.task, subscriber=opened.answer)
    result = await runtime.active_runs.run_until_disconnect(request, work)
    return result, runtime.component.text(result.value)


def _response(answer: Answer, result: ExecutionResult, content: dict[str, Any]) -> Response:
    headers = {RUN_ID: answer.run_id, USAGE: format_usage(result.usage)}
    return Response(to_json_bytes(content), headers=headers, media_type="application/json")


class _Protocol(Protocol):
    """The events of a protocol."""

    def first(self) -> Iterable[dict[str, Any]]: ...

    def piece(self, text: str) -> dict[str, Any]: ...

    def last(self, usage: Usage) -> Iterator[dict[str, Any]]: ...

    def failed(self, problem: ProblemDetails) -> dict[str, Any]: ...


async def _answer_events(
    request: Request, opened: _Opened, stream: RunStream, protocol: _Protocol
) -> AsyncIterator[dict[str, Any] | None]:
    """What is sent of a run; None is a sign of life."""
    for event in protocol.first():
        yield event
    async for run_event, _ in stream.unread():
        if run_event is None:
            yield None
        elif piece := opened.answer(run_event):
            yield protocol.piece(piece)
    try:
        result = await stream.result()
        rest = opened.answer.rest(get_runtime(request).component.text(result.value))
    except Exception as error:  # noqa: BLE001 - the response has begun, so any error becomes the last event
        yield protocol.failed(late_problem(request, stream.run_id, error))
        return
    if rest:
        yield protocol.piece(rest)
    for event in protocol.last(result.usage):
        yield event


async def _chat_events(request: Request, opened: _Opened, stream: RunStream, chunks: Chunks) -> AsyncIterator[bytes]:
    async for chunk in _answer_events(request, opened, stream, chunks):
        yield KEEPALIVE_COMMENT if chunk is None else format_sse_event(data_str=_json(chunk))
    yield format_sse_event(data_str="[DONE]")


async def _response_events(
    request: Request, opened: _Opened, stream: RunStream, events: ResponseEvents
) -> AsyncIterator[bytes]:
    async for event in _answer_events(request, opened, stream, events):
        yield KEEPALIVE_COMMENT if event is None else format_sse_event(event=event["type"], data_str=_json(event))


def _json(data: dict[str, Any]) -> str:
    return to_json_bytes(data).decode()
