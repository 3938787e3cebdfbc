"""What callers ask of background runs, whatever the route: to store one, to cancel it, to decide about it."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any, NamedTuple

from starlette.requests import Request

from podwright.components import Component
from podwright.data.json_data import JsonObject, as_object
from podwright.folders.walks import check_decision_on
from podwright.messages.approvals import Decision, Question
from podwright.messages.headers import BUDGET, HOPS
from podwright_service.background.caller_runs import (
    Access,
    CallerRuns,
    RunChange,
    StoredRun,
)
from podwright_service.background.worker import BackgroundWorker
from podwright_service.conversations.requested import (
    RequestedTurn,
    requested_turn,
)
from podwright_service.execution import (
    compute_for,
    new_run_id,
    requested_run,
    resumed_body,
)
from podwright_service.http.access.auth import has_scope, owner_of
from podwright_service.http.access.limits import granted_limits
from podwright_service.http.errors.problems import RequestError
from podwright_service.http.idempotency import RequestKey, check_fingerprint
from podwright_service.http.paths import ALL_RUNS
from podwright_service.http.schemas import DecisionRequest, RunRequest
from podwright_service.observability.logging import log_action
from podwright_service.observability.tracing import current_traceparent
from podwright_service.origin import caller_of, origin_of
from podwright_service.runtime import get_runtime


def own_access(request: Request, worker: BackgroundWorker) -> Access:
    """Return which runs a caller may change: its own, or with a scope for that, those of all callers."""
    owner: str | None = owner_of(request)
    if has_scope(request, ALL_RUNS):
        owner = None
    return Access(worker.component.name, owner)


class AcceptedRun(NamedTuple):
    """The run that a request has asked for."""

    run: StoredRun
    is_new: bool
    """Whether this request has stored it, and not an earlier one with its key."""


async def store_run(
    request: Request,
    worker: BackgroundWorker,
    body: RunRequest,
    key: RequestKey | None = None,
) -> AcceptedRun:
    """Store a run of the served component, which begins as soon as a process is free.

    Args:
        request: Its headers may lower the limits of the run.
        worker: The worker of background runs.
        body: What the run is to do.
        key: The key of the request; an earlier request with it has stored the run.

    Raises:
        RequestError: The request is refused: 409 or 422, or 503 without the database.
        InputError, InputsError: The input does not fit.
    """
    runtime = get_runtime(request)
    # refuses invalid input before the run is stored
    requested = await requested_run(request, runtime.component, body)
    if requested.task.saved is not None:
        raise _chat_error()
    if requested.state is not None:
        body = resumed_body(body, requested.state)
    # refuses invalid limits before the run is stored
    granted_limits(request.headers, runtime.settings)
    origin = origin_of(
        request, runtime.settings, body, component=runtime.component
    )
    run_id = new_run_id()
    turn = requested_turn(
        request,
        runtime.component,
        origin,
        requested.task,
        run_id=run_id,
        asked=requested.turn,
        state=requested.state,
    )
    limits: dict[str, str] = {}
    for name in (BUDGET, HOPS):
        if name in request.headers:
            limits[name] = ", ".join(request.headers.getlist(name))
    run = await worker.add_or_find(
        {
            "id": run_id,
            "component": runtime.component.name,
            "digest": worker.digest,
            "request": {
                # metadata has a column: the list shows it, and services of the release before refuse it in a body
                "body": body.model_dump(
                    mode="json", exclude_unset=True, exclude={"metadata"}
                ),
                "headers": limits,
                "traceparent": current_traceparent(),
                **_turn_entry(turn),
            },
            "idempotency_key": key and key.digest,
            "fingerprint": key and key.fingerprint,
            "origin": origin.to_dict(),
            "owner": owner_of(request),
            "metadata": dict(origin.attributes.metadata),
        },
        requested.state,
        turn and turn.new,
    )
    # an older run with this key must be one of the same request
    if key is not None:
        check_fingerprint(run["fingerprint"], key.fingerprint)
    return AcceptedRun(run, run["id"] == run_id)


def _turn_entry(turn: RequestedTurn | None) -> JsonObject:
    """What is stored of the turn that a run is: after which other one alone, and whether the run has gone on."""
    if turn is None:
        return {}
    is_resumed = turn.saved is not None
    return {"turn": {"after": turn.new.after, "goes_on": is_resumed}}


def _chat_error() -> RequestError:
    return RequestError(
        422,
        "request_invalid",
        "A run that waits inside a chat goes on with POST /run, not as a background run.",
        "Send the same body to POST /run.",
    )


def found(run: StoredRun | None) -> StoredRun:
    """Return a run, if there is one.

    Raises:
        RequestError: 404: there is none.
    """
    if run is None:
        detail = "There is no such run: it never existed, was deleted some time after its end, or is another caller's."
        raise RequestError(
            404,
            "run_not_found",
            detail,
            "Use the 'id' of the response to POST /runs, at the same service and with the same API key.",
        )
    return run


async def cancel(
    request: Request, worker: BackgroundWorker, runs: CallerRuns, run_id: str
) -> StoredRun:
    """Cancel a run wherever it is performed, its model call included.

    Args:
        request: The request of the caller.
        worker: The worker of background runs.
        runs: Those that the caller may change.
        run_id: The run.

    Raises:
        RequestError: 404: there is no such run. 409: it has ended.
    """
    caller = caller_of(request)
    change = await runs.cancel(run_id, caller)
    if change is None:
        rule = "A run can be cancelled until it has succeeded, failed or been cancelled"
        raise await conflict_error(runs, run_id, rule)
    action = "run cancelled"
    if change.run["status"] == "running":
        # it may still succeed before its process sees the request
        action = "run cancel requested"
    log_change(action, change, caller)
    worker.cancel(run_id)
    return change.run


async def decide(
    request: Request,
    worker: BackgroundWorker,
    runs: CallerRuns,
    run_id: str,
    body: DecisionRequest,
    name: str,
) -> StoredRun:
    """Decide about what a run waits for; it goes on, or ends as cancelled. The same decision may be made again.

    Args:
        request: The request of the person who decides.
        worker: The worker of background runs.
        runs: Those that the person may decide about.
        run_id: The run.
        body: The decision; its `attempt` says which question it is about.
        name: The decision's name: one of the question's options.

    Raises:
        RequestError: 404: there is no such run. 409: it does not wait, or for another decision.
        InputsError: The decision does not fit the question, with pointers into the body.
    """
    run = found(await runs.get(run_id))
    key = request.headers.get("authorization", "")
    caller = caller_of(request)
    decision = Decision(name, body.comment, body.values)
    stored = {
        **decision.to_dict(),
        "values": dict(decision.values),
        "approved": not decision.is_rejection,
        "caller": hashlib.sha256(key.encode()).hexdigest(),
    }
    attempt = body.attempt
    if attempt is None:
        attempt = _asked_attempt(run)
    goes_on = True
    if run["status"] == "waiting_for_approval" and attempt == run["attempt"]:
        performed = worker.component_of(run["digest"])
        goes_on = await compute_for(
            request, _check_decision, run["approval"], decision, performed
        )
    change = await runs.decide(
        run_id, attempt, stored, goes_on=goes_on, caller=caller
    )
    word = "approved"
    if decision.is_rejection:
        word = "rejected"
    if change is None:
        rule = f"A run can be {word} while it waits for approval, in the attempt given"
        raise await conflict_error(runs, run_id, rule)
    log_change(f"run {word}", change, caller)
    if not goes_on and not change.is_repeated:
        origin = as_object(change.run["origin"])
        metrics = get_runtime(request).observability.metrics
        metrics.count_rejection(str(origin.get("caller", "")))
    worker.wake()
    return change.run


def log_change(action: str, change: RunChange, caller: str) -> None:
    """Write a line for what a caller has done, unless it had been done before."""
    if not change.is_repeated:
        log_action(action, change.run["id"], change.run["component"], caller)


def _check_decision(
    approval: Mapping[str, Any],
    decision: Decision,
    component: Component | None,
) -> bool:
    """Check that a decision fits the question; returns whether the run goes on.

    Args:
        approval: The question, as it is stored.
        decision: The decision.
        component: What performs the run, whose tool checks the arguments that are changed; None if it is not known
            here. Then the tool checks them when the run goes on, and the person is asked again if they do not fit.

    Raises:
        InputsError: It does not, with pointers into the body.
    """
    question = Question.from_dict(approval)
    # what waits may always be rejected
    if decision.is_rejection and question.ends_on_reject:
        return False
    if component is None:
        question.check(decision)
    else:
        check_decision_on(component, question, decision)
    return True


def _asked_attempt(run: StoredRun) -> int:
    """The attempt that a decision without a number is about: the one that waits, else the last that was decided."""
    if run["status"] == "waiting_for_approval" or not run["decisions"]:
        return run["attempt"]
    return run["decisions"][-1].get("attempt", run["attempt"])


async def conflict_error(
    runs: CallerRuns, run_id: str, rule: str
) -> RequestError:
    """Return the 409 of a run that has another status.

    Raises:
        RequestError: 404: there is no such run.
    """
    run = found(await runs.get(run_id))
    detail = (
        f"{rule}; this one is '{run['status']}', in attempt {run['attempt']}."
    )
    return RequestError(
        409, "run_state_conflict", detail, "Look at the run again."
    )
