"""Routes of background runs: they are stored, performed by any pod of the service, and outlive it."""

from __future__ import annotations

import asyncio
import contextlib
import re
import time
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Annotated, Any, cast

from fastapi import APIRouter, Depends, Header, Query, Request, Response
from fastapi.responses import StreamingResponse
from fastapi.sse import KEEPALIVE_COMMENT, EventSourceResponse, format_sse_event

from podwright.connection.schemas import (
    ENDED,
    MOVABLE,
    RUN_CONTENTS,
    BackgroundRun,
    ListedRun,
    MovedRun,
    RunContent,
    RunStatus,
)
from podwright.data.json_data import (
    JsonObject,
    as_object,
    to_json_bytes,
    to_json_data,
)
from podwright.data.text import most_similar, short_repr
from podwright.errors import Problem
from podwright.messages.approvals import REJECT
from podwright.messages.headers import IDEMPOTENCY_KEY, REPLAYED
from podwright.messages.templates import visible
from podwright_service.background.caller_runs import (
    Access,
    CallerRuns,
    StoredRun,
)
from podwright_service.background.moving import move_run
from podwright_service.background.requests import (
    cancel,
    conflict_error,
    decide,
    found,
    log_change,
    own_access,
    store_run,
)
from podwright_service.background.storage.database import (
    DatabaseUnavailableError,
)
from podwright_service.background.storage.tables import OPEN
from podwright_service.background.worker import BackgroundWorker
from podwright_service.execution import (
    context_as_texts,
)
from podwright_service.http.access.auth import (
    has_scope,
    scope_missing,
)
from podwright_service.http.access.hosts import check_origin
from podwright_service.http.errors.problems import RequestError
from podwright_service.http.idempotency import (
    RequestKey,
    fingerprint_of,
    key_of,
)
from podwright_service.http.json_body import JSONRoute
from podwright_service.http.public_events import (
    EventFilter,
    filter_of,
    public_data,
)
from podwright_service.http.query import CheckedRoute, invalid_query
from podwright_service.http.schemas import (
    BackgroundRunPage,
    DecisionRequest,
    RunRequest,
    RunToApprove,
)
from podwright_service.http.streams import HEARTBEAT, STREAM_HEADERS
from podwright_service.observability.logging import log_action
from podwright_service.origin import caller_of
from podwright_service.routes.responses import (
    AS_DATA,
    BACKGROUND_PARAMETERS,
    BODY_PROBLEMS,
    CHANGE_PROBLEMS,
    DATABASE_PROBLEMS,
    EVENT_STREAM,
    READ_PROBLEMS,
)
from podwright_service.runtime import get_runtime

EVENT_POLL_INTERVAL = 0.5
"""Seconds between two queries for new events of a run."""
MAX_EVENTS = 500
"""Most events that are read at once."""
MAX_INPUT_BYTES = 1024 * 1024
"""Most bytes of an input and its earlier turns as JSON; what is larger is left out whole, because a part of an input is
another input, and a part of an image is none."""

_FIELDS = (
    "Further fields of each run, separated by commas: "
    f"{', '.join(f'`{name}`' for name in RUN_CONTENTS)}."
)
_CURSOR = re.compile(r"([0-9]{1,12}(?:\.[0-9]{1,9})?)-([0-9a-f]{32})")
"""Time of creation and id of a run."""

router = APIRouter(
    tags=["background runs"], prefix="/runs", route_class=CheckedRoute
)
with_body = APIRouter(
    tags=["background runs"], prefix="/runs", route_class=JSONRoute
)
ROUTERS = (router, with_body)


# async, because FastAPI calls other dependencies in threads
async def get_worker(request: Request) -> BackgroundWorker:
    """The worker of background runs."""
    # these routes exist only with one
    return cast("BackgroundWorker", get_runtime(request).background)


Worker = Annotated[BackgroundWorker, Depends(get_worker)]


async def get_caller(request: Request) -> str:
    """The name of the caller's API key; empty without one."""
    return caller_of(request)


CallerName = Annotated[str, Depends(get_caller)]


async def get_viewer(request: Request, worker: Worker) -> Viewer:
    """Who asks, and what they may see."""
    own = own_access(request, worker)
    return Viewer(
        own=own,
        seen=replace(own, sees_waiting=has_scope(request, "approve")),
        runs=has_scope(request, "run"),
        show=filter_of(request),
        worker=worker,
    )


@dataclass(frozen=True, slots=True)
class Viewer:
    """A caller, and what they may see of background runs."""

    own: Access
    """Runs that they may change: their own, or those of all callers."""
    seen: Access
    """Also runs that wait for an approval, if they may approve."""
    runs: bool
    """Whether they may do more than approve."""
    show: EventFilter
    """Returns an event as they see it."""
    worker: BackgroundWorker

    @property
    def own_runs(self) -> CallerRuns:
        """The runs that they may change."""
        return self.worker.store.runs_of(self.own)

    @property
    def seen_runs(self) -> CallerRuns:
        """The runs that they may see."""
        return self.worker.store.runs_of(self.seen)

    @property
    def runs_to_approve(self) -> CallerRuns:
        """The runs that they may decide about if they may approve: those of all callers."""
        return self.worker.store.runs_of(Access(self.own.component))

    def shown(
        self,
        run: StoredRun,
        *,
        as_data: bool = False,
        with_input: bool = False,
    ) -> dict[str, Any]:
        """A run as they see it: the question alone, if they may do no more than decide about it.

        Args:
            run: The run.
            as_data: Whether the result of a workflow has data where its outputs are data.
            with_input: Whether what it was asked is shown.
        """
        data = _response_data(run, self.worker, as_data=as_data)
        if with_input:
            data |= _input_fields(run)
        return self._visible(run, data)

    def listed(
        self, run: StoredRun, contents: Collection[RunContent], *, as_data: bool
    ) -> dict[str, Any]:
        """A run of a page as they see it.

        Args:
            run: The run, with these columns.
            contents: The fields that may be large and were asked for.
            as_data: Whether the result of a workflow has data where its outputs are data.
        """
        data = _facts(run, self.worker)
        data["code"] = run["code"]
        for name in contents:
            data[name] = _content(run, name, as_data=as_data)
        return self._visible(run, data)

    def _visible(self, run: StoredRun, data: dict[str, Any]) -> dict[str, Any]:
        if self.runs and self.own.owns(run):
            return data
        names = RunToApprove.model_fields
        return {name: data[name] for name in names if name in data}


SeenBy = Annotated[Viewer, Depends(get_viewer)]


async def get_own_run(viewer: SeenBy, run_id: str) -> StoredRun:
    """The run of the request's path, which the caller may change.

    Raises:
        RequestError: 404: there is none.
    """
    return found(await viewer.own_runs.get(run_id))


OwnRun = Annotated[StoredRun, Depends(get_own_run)]
AsData = Annotated[bool, Query(alias="data", description=AS_DATA)]
WithInput = Annotated[
    bool,
    Query(
        alias="inputs",
        description="Whether the run has what it was asked: `input` and `input_messages`.",
    ),
]


@with_body.post(
    "", status_code=202, response_model=BackgroundRun, responses=BODY_PROBLEMS | DATABASE_PROBLEMS,
    openapi_extra=BACKGROUND_PARAMETERS,
)  # fmt: skip
async def start_run(
    request: Request, worker: Worker, body: RunRequest
) -> Response:
    """Store a run of the served component, which begins as soon as a process is free."""
    key = None
    if IDEMPOTENCY_KEY in request.headers:
        key = RequestKey(key_of(request), await fingerprint_of(request))
    accepted = await store_run(request, worker, body, key)
    run = accepted.run
    headers = {"Location": f"/runs/{run['id']}"}
    if not accepted.is_new:
        headers[REPLAYED] = "true"
    return _response(_response_data(run, worker), 202, headers)


@router.get(
    "/{run_id}",
    response_model=BackgroundRun | RunToApprove,
    responses=READ_PROBLEMS,
)
async def get_run(
    viewer: SeenBy,
    run_id: str,
    as_data: AsData = False,
    with_input: WithInput = False,
) -> Response:
    """A run: its status, and its result or its problem once it has ended.

    Of a run that the caller may only approve, what is needed to decide, while it waits.
    """
    seen_runs = viewer.seen_runs
    if not viewer.runs:
        seen_runs = viewer.runs_to_approve
    run = found(await seen_runs.get(run_id))
    if not viewer.runs and run["status"] != "waiting_for_approval":
        raise scope_missing("run")
    return _response(viewer.shown(run, as_data=as_data, with_input=with_input))


@router.get("", response_model=BackgroundRunPage, responses=DATABASE_PROBLEMS)
async def list_runs(
    viewer: SeenBy,
    status: Annotated[
        list[RunStatus] | None,
        Query(description="Only runs with one of these."),
    ] = None,
    caller: Annotated[
        str | None,
        Query(description="Only runs that a key with this name started."),
    ] = None,
    limit: Annotated[int, Query(ge=1, le=200, description="How many.")] = 50,
    cursor: Annotated[
        str | None, Query(description="`next` of the page before.")
    ] = None,
    fields: Annotated[str, Query(description=_FIELDS)] = "",
    as_data: AsData = False,
) -> Response:
    """The runs that the caller may see, newest first; with the scope `approve` alone, those that wait.

    Results, conversations, problems, questions and what persons have done are there only if `fields` names them.
    """
    contents = _parse_fields(fields)
    if not viewer.runs:
        if set(status or ()) - {"waiting_for_approval"}:
            raise scope_missing("run")
        status = ["waiting_for_approval"]
    before = _parse_cursor(cursor)
    # one more, which shows whether there is another page
    page = await viewer.seen_runs.page(
        status or [], before, limit + 1, caller=caller, contents=contents
    )
    next_cursor = None
    if len(page) > limit:
        last = page[limit - 1]
        next_cursor = f"{last['created_at']!r}-{last['id']}"
    shown = [
        viewer.listed(run, contents, as_data=as_data) for run in page[:limit]
    ]
    return _response({"runs": shown, "next": next_cursor})


@router.get(
    "/{run_id}/events",
    response_class=StreamingResponse,
    dependencies=[Depends(get_own_run)],
    responses=EVENT_STREAM | READ_PROBLEMS,
)
async def follow_run(
    request: Request,
    viewer: SeenBy,
    run_id: str,
    last_event_id: Annotated[
        int,
        Header(
            ge=-1,
            lt=2**31,
            description="Number of the last event that is known.",
        ),
    ] = -1,
    as_data: AsData = False,
) -> EventSourceResponse:
    """The events of a run from its first, or from the one after `Last-Event-ID`, live until its end.

    The stream also ends when this process stops: then a client connects again.
    """
    # not FastAPI's mode for generators, which fails with an exception when the reader leaves
    return EventSourceResponse(
        _events(request, viewer, run_id, last_event_id, as_data=as_data),
        headers=STREAM_HEADERS,
    )


async def _events(
    request: Request,
    viewer: Viewer,
    run_id: str,
    last_event_id: int,
    *,
    as_data: bool,
) -> AsyncIterator[bytes]:
    lifecycle = get_runtime(request).lifecycle
    own_runs = viewer.own_runs
    sent_at = time.monotonic()
    while lifecycle.state != "draining":
        # the stream goes on when it is back
        with contextlib.suppress(DatabaseUnavailableError):
            # before the events, which are complete if it has ended
            status = await own_runs.status(run_id)
            while events := await own_runs.events(
                run_id, last_event_id, MAX_EVENTS
            ):
                for seq, data in events:
                    shown = public_data(data, viewer.show)
                    if shown is not None:
                        yield _event(shown["type"], shown, str(seq))
                        sent_at = time.monotonic()
                last_event_id = events[-1][0]
            if status is None:  # deleted in the meantime
                return
            run = None
            if status in ENDED:
                run = await own_runs.get(run_id)
            # it was not resumed in the meantime
            if run and run["status"] in ENDED:
                yield _end_event(run, as_data)
                return
        if time.monotonic() - sent_at >= HEARTBEAT:
            yield KEEPALIVE_COMMENT
            sent_at = time.monotonic()
        await asyncio.sleep(EVENT_POLL_INTERVAL)


def _end_event(run: StoredRun, as_data: bool) -> bytes:
    """The last event of a stream: the result of a run, or its problem."""
    if run["status"] == "succeeded":
        return _event("result", _result(run, as_data))
    return _event("problem", run["problem"])


@router.post(
    "/{run_id}/cancel",
    status_code=202,
    response_model=BackgroundRun,
    responses=CHANGE_PROBLEMS,
    dependencies=[Depends(check_origin)],
)
async def cancel_run(
    request: Request, worker: Worker, viewer: SeenBy, run_id: str
) -> Response:
    """Cancel a run wherever it is performed, its model call included."""
    run = await cancel(request, worker, viewer.own_runs, run_id)
    return _response(_response_data(run, worker), 202)


@router.post(
    "/{run_id}/resume",
    status_code=202,
    response_model=BackgroundRun,
    responses=CHANGE_PROBLEMS,
    dependencies=[Depends(check_origin)],
)
async def resume_run(
    worker: Worker, viewer: SeenBy, run_id: str, caller: CallerName
) -> Response:
    """Have a run that failed or was interrupted go on where it stood. Calls whose end is unknown are repeated."""
    change = await viewer.own_runs.resume(run_id, caller)
    if change is None:
        rule = "A run can be resumed when it failed or was interrupted"
        raise await conflict_error(viewer.own_runs, run_id, rule)
    log_change("run resumed", change, caller)
    worker.wake()
    return _response(_response_data(change.run, worker), 202)


@router.post(
    "/{run_id}/move",
    response_model=MovedRun,
    responses=CHANGE_PROBLEMS,
    dependencies=[Depends(check_origin)],
)
async def move_to_blueprint(
    worker: Worker,
    viewer: SeenBy,
    run: OwnRun,
    caller: CallerName,
    check: Annotated[
        bool, Query(description="Whether to find out only what differs.")
    ] = False,
) -> Response:
    """Have a run that no process performs go on with the blueprint of this service.

    It is refused if what the run has done already is different in that.
    """
    move = None
    if run["status"] in MOVABLE:
        move = await move_run(
            worker, viewer.own_runs, run, caller=caller, only_check=check
        )
    if move is None:
        rule = "A run can be moved while it waits, or when it failed or was interrupted"
        raise await conflict_error(viewer.own_runs, run["id"], rule)
    if move.is_done:
        log_action("run moved", run["id"], run["component"], caller)
    data = _response_data(move.run, worker)
    data["changes"] = to_json_data(move.changes)
    return _response(data)


@with_body.post(
    "/{run_id}/approve",
    status_code=202,
    response_model=BackgroundRun | RunToApprove,
    responses=BODY_PROBLEMS | CHANGE_PROBLEMS,
)
async def approve_run(
    request: Request, viewer: SeenBy, run_id: str, body: DecisionRequest
) -> Response:
    """Approve what a run waits for, or decide otherwise; it goes on. The same decision may be sent again."""
    return await _decide(request, viewer, run_id, body, body.decision)


@with_body.post(
    "/{run_id}/reject",
    status_code=202,
    response_model=BackgroundRun | RunToApprove,
    responses=BODY_PROBLEMS | CHANGE_PROBLEMS,
)
async def reject_run(
    request: Request, viewer: SeenBy, run_id: str, body: DecisionRequest
) -> Response:
    """Reject what a run waits for; it ends as cancelled unless it has steps for that, or its model is told.

    The same decision may be sent again.
    """
    return await _decide(request, viewer, run_id, body, REJECT)


async def _decide(
    request: Request,
    viewer: Viewer,
    run_id: str,
    body: DecisionRequest,
    name: str,
) -> Response:
    run = await decide(
        request, viewer.worker, viewer.runs_to_approve, run_id, body, name
    )
    return _response(viewer.shown(run), 202)


def _parse_cursor(cursor: str | None) -> tuple[float, str] | None:
    if cursor is None:
        return None
    match = _CURSOR.fullmatch(cursor)
    if match is None:
        detail = "Invalid query parameter 'cursor'."
        raise RequestError(
            422,
            "request_invalid",
            detail,
            suggestion="Use 'next' of the page before, or leave it out.",
        )
    return float(match[1]), match[2]


def _parse_fields(text: str) -> Sequence[RunContent]:
    """The fields that may be large and are asked for; the other fields of a listed run are always there.

    Raises:
        RequestError: 422: a listed run has no such field.
    """
    names = {name.strip() for name in text.split(",")} - {""}
    problems: list[Problem] = []
    for name in sorted(names - {*ListedRun.model_fields}):
        hint = f"The fields are: {', '.join(ListedRun.model_fields)}."
        similar = most_similar(name, ListedRun.model_fields)
        if similar is not None:
            hint = f"Did you mean '{similar}'? {hint}"
        detail = f"Query parameter 'fields' has the unknown field {short_repr(name)}."
        problems.append(Problem("", detail, hint))
    if problems:
        raise invalid_query(problems)
    return [name for name in RUN_CONTENTS if name in names]


def _event(name: str, data: Any, number: str | None = None) -> bytes:
    return format_sse_event(
        event=name, id=number, data_str=to_json_bytes(data).decode()
    )


def _response(
    data: dict[str, Any],
    status: int = 200,
    headers: Mapping[str, str] | None = None,
) -> Response:
    # not FastAPI's own response, which cannot write the lone surrogates that a model may have written
    return Response(to_json_bytes(data), status, headers, "application/json")


def _result(run: StoredRun, as_data: bool) -> Any:
    """The response of `/run` of a run that succeeded; else None."""
    stored = run["result"]
    if stored is None or as_data:
        return stored
    return context_as_texts(stored)


def _response_data(
    run: StoredRun, worker: BackgroundWorker, *, as_data: bool = False
) -> dict[str, Any]:
    """A run as callers see it."""
    shown = _facts(run, worker)
    for name in RUN_CONTENTS:
        shown[name] = _content(run, name, as_data=as_data)
    return shown


def _facts(run: StoredRun, worker: BackgroundWorker) -> dict[str, Any]:
    """What callers see of a run besides its contents."""
    shown: dict[str, Any] = {
        "id": run["id"],
        "component": run["component"],
        "status": run["status"],
        "digest": run["digest"],
        "attempt": run["attempt"],
        "usage": run["usage"],
        "created_at": _date(run["created_at"]),
        "started_at": _date(run["started_at"]),
        "ended_at": _date(run["ended_at"]),
    }
    origin: dict[str, Any] = run["origin"] or {}
    shown |= {name: origin.get(name) for name in ("caller", "user", "session")}
    shown["metadata"] = run["metadata"] or {}
    shown["notice"] = _notice(run, worker)
    return shown


def _content(run: StoredRun, name: RunContent, *, as_data: bool) -> Any:
    """A field of a run that may be large, as callers see it."""
    match name:
        case "result":
            return _result(run, as_data)
        case "messages" | "problem":
            return run[name]
        case "approval":
            if run["status"] != "waiting_for_approval":
                return None
            return run["approval"]
        case "decisions":
            return [_shown_decision(decision) for decision in run["decisions"]]
        case "actions":
            actions: list[dict[str, Any]] = run["actions"] or []
            return [{**action, "at": _date(action["at"])} for action in actions]


def _input_fields(run: StoredRun) -> dict[str, Any]:
    """What a run was asked, so that it can be made again; null of one that has not begun at its beginning."""
    fields: dict[str, Any] = {
        "input": None,
        "input_messages": None,
        "input_cut": False,
    }
    body: JsonObject = run["request"]["body"]
    inputs = as_object(body.get("inputs"))
    # the context of a stopped run also has what its caller does not see
    begins_later = body.get("start_step") or body.get("resume_path")
    if begins_later or visible(inputs) != inputs:
        return fields
    room = MAX_INPUT_BYTES
    contents = {
        "input": body.get("input", inputs),
        "input_messages": body.get("messages") or None,
    }
    for name, value in contents.items():
        room -= len(to_json_bytes(value))
        if room < 0:
            fields["input_cut"] = True
            break
        fields[name] = value
    return fields


def _shown_decision(decision: Mapping[str, Any]) -> dict[str, Any]:
    shown = {**decision, "at": _date(decision["at"])}
    # what is stored as `caller` is the digest of the key: under that name, services of the release before hide it
    shown["caller"] = shown.pop("caller_name", None)
    return shown


def _notice(run: StoredRun, worker: BackgroundWorker) -> str | None:
    if run["status"] in OPEN:
        notice = _blueprint_notice(run, worker)
        if notice:
            return notice
    if run["cancel_requested"] and run["status"] in ("succeeded", "failed"):
        return "A caller cancelled it too late: it had ended."
    return None


def _blueprint_notice(run: StoredRun, worker: BackgroundWorker) -> str | None:
    """What hinders a run that has another blueprint than those of this service, and what helps."""
    digest: str = run["digest"]
    if digest in worker.digests:
        return None
    move = f"`podwright runs move {run['id']}`"
    advice = f"Give the service that blueprint in the folder PODWRIGHT_PREVIOUS, or move the run: {move}."
    if not worker.is_unserved(digest):
        if run["status"] != "queued":
            return None
        return (
            f"It waits for a service with the blueprint {digest}; this one has another. "
            f"If no such service runs: {advice}"
        )
    notice = f"It has the blueprint {digest}, which no running service has, so no process goes on with it."
    misfit = worker.previous.misfits.get(digest)
    if misfit is None:
        return f"{notice} {advice}"
    notice = f"{notice} This service was given that blueprint, which cannot be performed: {misfit.reason}"
    if misfit.is_of_code:
        return f"{notice} Correct the code, or move the run: {move}."
    return f"{notice} Correct that, or move the run: {move}."


def _date(seconds: float | None) -> str | None:
    if seconds is None:
        return None
    return datetime.fromtimestamp(seconds, UTC).isoformat()
