"""One run for one request: in a run slot, on the operator's model, and within the limits of operator and caller."""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from fastapi.exceptions import RequestValidationError
from pydantic import ValidationError
from starlette.requests import Request

from podwright.components import Component
from podwright.data.json_data import JsonObject, json_pointer, to_text
from podwright.errors import (
    DECISION,
    ApprovalRejectedError,
    ApprovalRequired,
    InputsError,
    LimitExceededError,
    PodwrightError,
    Problem,
    RunCancelledError,
)
from podwright.events import Subscriber
from podwright.folders.walks import check_decision_on
from podwright.functions.run_context import run_attributes
from podwright.messages.approvals import Decision, Question
from podwright.models import use_model
from podwright.run.component import TaskBody, nothing_to_decide
from podwright.run.result import ExecutionResult
from podwright.run.run import Task, execute
from podwright.threads import compute
from podwright_service.conversations.requested import (
    repeated_turn,
    requested_turn,
    taken_turn,
)
from podwright_service.conversations.turns import Turn
from podwright_service.conversations.values import (
    TURN_OF_SESSION,
    AskedTurn,
)
from podwright_service.http.access.auth import owner_of
from podwright_service.http.access.limits import granted_limits
from podwright_service.http.errors.problems import RequestError
from podwright_service.http.idempotency import (
    IdempotentRequest,
    idempotent_request,
)
from podwright_service.http.schemas import RunDecision, RunRequest
from podwright_service.mcp_servers import use_caller_headers
from podwright_service.origin import INLINE, Origin, current_origin, origin_of
from podwright_service.runtime import Runtime, get_runtime
from podwright_service.saved_states import (
    STATE,
    SavedState,
    StateStore,
    new_state,
)
from podwright_service.settings import Settings

T = TypeVar("T")


def new_run_id() -> str:
    """An id of 32 hexadecimal digits that begins with the time, as in UUIDs of version 7.

    So new rows are beside each other in the indexes, which otherwise slow down as they grow.
    """
    milliseconds = time.time_ns() // 1_000_000
    return f"{milliseconds:012x}{os.urandom(10).hex()}"


@dataclass(frozen=True, slots=True)
class RequestedRun:
    """The run that a request asks for."""

    task: Task
    run_id: str
    """A new one, or that of the paused run that goes on."""
    state: SavedState | None = None
    """The state from which it goes on, which is used when it begins; None for a new run."""
    turn: AskedTurn = TURN_OF_SESSION
    """The turn of a conversation that it is, if it has a session."""
    result: ExecutionResult | None = None
    """The result that the run has had already, of a turn that is repeated; None if it is to run."""


async def requested_run(
    request: Request, component: Component, body: RunRequest
) -> RequestedRun:
    """Return the run that the body of a request asks for.

    Raises:
        RequestError: 422: the body has keys that components of this kind do not take, or does not go on from a state of
            this service.
        InputsError: The inputs do not fit those that the component declares, or the decision does not fit the question;
            with pointers into the body.
        InputError: The input or the start is wrong.
    """
    runtime = get_runtime(request)
    may_begin_anywhere = runtime.settings.trust_contexts
    repeated = await repeated_run(request, component)
    if repeated is not None:
        return repeated
    state: SavedState | None = None
    if STATE in body.inputs:
        state = await state_of(request, component, body)
        body = resumed_body(body, state)
    elif not may_begin_anywhere:
        _check_names(body)
    task = await task_of(component, body, request)
    if state is None and not may_begin_anywhere:
        _check_beginning(body)
    run_id = new_run_id()
    if task.saved is not None:
        run_id = task.saved.run_id
    return RequestedRun(task, run_id, state)


async def repeated_run(
    request: Request, component: Component
) -> RequestedRun | None:
    """Return the run of an earlier request with the same key that was a turn of a kept conversation; None if none was.

    Args:
        request: The request.
        component: What runs.

    Raises:
        RequestError: 422: the earlier request was another one.
    """
    turn = await repeated_turn(request, component)
    if turn is None or turn.result is None:
        return None
    result = ExecutionResult.from_dict(turn.result)
    return RequestedRun(Task(""), turn.run_id, result=result)


async def state_of(
    request: Request, component: Component, body: RunRequest
) -> SavedState:
    """Return the state from which the run of a request goes on.

    Raises:
        RequestError: 422: it is not a state of this service.
        InputsError: The caller has changed the context, or the decision does not fit the question.
        InputError: There is a decision, and no question.
    """
    runtime = get_runtime(request)
    token = body.inputs[STATE]
    state = await runtime.states.open(
        token, component, owner_of(request), state_store(runtime)
    )
    _check_unchanged(body, state)
    if state.question is None and body.decision is not None:
        raise nothing_to_decide()
    if state.question is not None:
        decision = RunDecision()
        if body.decision is not None:
            decision = body.decision
        try:
            await compute_for(
                request,
                check_decision_on,
                component,
                Question.from_dict(state.question),
                Decision(decision.decision, decision.comment, decision.values),
            )
        except InputsError as error:
            raise below(error, "/decision") from None
    return state


def state_store(runtime: Runtime) -> StateStore | None:
    """Return the database in which states are kept; None if the service has none, and seals them."""
    if runtime.background is None:
        return None
    return runtime.background.store.states


def _check_names(body: RunRequest) -> None:
    """Check that the inputs have no names that only the contexts of stopped runs have.

    Raises:
        InputsError: They have.
    """
    problems = [
        Problem(
            f"/inputs{json_pointer(name)}",
            f"'{name}' is a name of the service's own.",
            f"Send the context of the problem, with its '{STATE}'.",
        )
        for name in body.inputs
        if name.startswith("_")
    ]
    if problems:
        raise InputsError(
            f"The inputs are invalid: {problems[0]}", problems=problems
        )


def _check_beginning(body: RunRequest) -> None:
    """Check that a run begins where every run does.

    Raises:
        RequestError: 422: it begins at another step, or has a decision.
    """
    asked: list[str] = []
    if body.start_step:
        asked.append("start_step")
    if body.resume_path is not None:
        asked.append("resume_path")
    if body.decision is not None:
        asked.append("decision")
    if not asked:
        return
    detail = f"'{asked[0]}' is of a run that goes on, and the inputs have no '{STATE}' of one."
    raise RequestError(
        422,
        "state_required",
        detail,
        "Send the `context` of the problem as `inputs`, unchanged. PODWRIGHT_TRUST_CONTEXTS=true lets callers begin at "
        "any step.",
        problems=[Problem(f"/{name}", detail) for name in asked],
    )


def _check_unchanged(body: RunRequest, state: SavedState) -> None:
    """Check that a caller who goes on from a state changes nothing of it.

    Raises:
        InputsError: A value of the context is another one, or its start.
    """
    known = state.public_context
    problems = [
        Problem(
            f"/inputs{json_pointer(name)}",
            f"'{name}' is not what the context of the problem has.",
        )
        for name, value in body.inputs.items()
        if name != STATE and (name not in known or known[name] != value)
    ]
    if body.start_step:
        problems.append(
            Problem("/start_step", "A run goes on where it stopped.")
        )
    if body.resume_path and body.resume_path != state.resume_path:
        problems.append(
            Problem(
                "/resume_path",
                f"The run does not go on at {body.resume_path}.",
                f"Its problem has {state.resume_path or 'no resume_path'}.",
            )
        )
    if problems:
        raise InputsError(
            f"The run cannot go on: {problems[0]}",
            problems=problems,
            suggestion="Send the `context` and the `resume_path` of the problem unchanged.",
        )


def resumed_body(body: RunRequest, state: SavedState) -> RunRequest:
    """Return a body with what its state has, in place of what the caller sent."""
    # its earlier turns are a part of the state
    update: dict[str, Any] = {"inputs": state.context, "messages": []}
    if state.resume_path is not None:
        update["resume_path"] = state.resume_path
    return body.model_copy(update=update)


async def save_state(
    request: Request,
    component: Component,
    error: PodwrightError,
    turn: Turn | None = None,
) -> None:
    """Replace the context of an error that stopped a run by what its caller may carry, and with which it can go on.

    What a person has rejected does not go on. The turn of a run that waits for a person holds its place.
    """
    if isinstance(error, ApprovalRejectedError):
        error.context = None
        error.resume_path = None
    if error.context is None:
        return
    question: JsonObject | None = None
    # a decision that does not fit leaves the question open
    if isinstance(error, ApprovalRequired | InputsError) and error.question:
        question = error.question.to_dict()
    runtime = get_runtime(request)
    ttl = runtime.settings.state_ttl
    saved: JsonObject | None = None
    if turn is not None and runtime.background is not None:
        if question is not None:
            await runtime.background.turns.pause(turn, time.time() + ttl)
        saved = turn.saved()._asdict()
        turn.may_go_on = True
    state = new_state(
        component,
        owner_of(request),
        error.context,
        error.resume_path,
        question,
        ttl=ttl,
        turn=saved,
    )
    error.context = await runtime.states.save(state, state_store(runtime))


@contextlib.contextmanager
def use_origin(settings: Settings, origin: Origin) -> Generator[None]:
    """Have the runs that begin within this context use the operator's model, and know where they come from."""
    token = current_origin.set(origin)
    attributes = run_attributes(**origin.attributes.to_dict())
    try:
        with use_model(settings.models), attributes:
            yield
    finally:
        current_origin.reset(token)


async def run_component(
    request: Request, *, trace: bool = False, **body: Any
) -> ExecutionResult:
    """Run the served component for a route that was added to the application, as `/run` does.

        @app.post("/tickets")
        async def ticket(request: Request, text: str) -> str:
            result = await podwright_service.run_component(request, input=text)
            return result.value

    It waits for a run slot, has the limits of `/run`, is counted and traced, and ends when the client leaves.

    Args:
        request: The request to that route.
        trace: Whether the result has the events.
        **body: What the body of `/run` may have: `input` or `inputs`, `messages`, `user`, …

    Raises:
        RequestValidationError: The body would be invalid; the service answers 422.
        RequestError: The service is at capacity, or stops.
        PodwrightError: The run failed.
    """
    component = get_runtime(request).component
    try:
        parsed = RunRequest(**body)
    except ValidationError as error:
        details = [
            {**entry, "loc": ("body", *entry["loc"])}
            for entry in error.errors(include_url=False)
        ]
        raise RequestValidationError(details, body=body) from None
    run = await requested_run(request, component, parsed)
    return await perform_run(request, component, run, body=parsed, trace=trace)


async def perform_run(
    request: Request,
    component: Component,
    run: RequestedRun,
    *,
    body: RunRequest,
    trace: bool,
) -> ExecutionResult:
    """Run a component for a request until its client leaves; see `execute_request`."""
    runtime = get_runtime(request)
    work = execute_request(
        request,
        component,
        run,
        origin=origin_of(request, runtime.settings, body, component=component),
        trace=trace,
    )
    return await runtime.active_runs.run_until_disconnect(request, work)


async def execute_request(
    request: Request,
    component: Component,
    run: RequestedRun,
    *,
    origin: Origin,
    subscribers: Sequence[Subscriber] = (),
    stream: bool = False,
    trace: bool = False,
) -> ExecutionResult:
    """Run a component for a request.

    Args:
        request: Its headers may lower the limits of the run.
        component: The served component, or one of an inline blueprint.
        run: What it is to do.
        origin: Where the run comes from.
        subscribers: Receive the events of the run, before the metrics and spans do.
        stream: Whether models are asked for tokens.
        trace: Whether the result includes the events.

    Raises:
        RequestError: The request is refused before the run begins.
        PodwrightError: The run failed, or was cancelled at shutdown.
    """
    if run.result is not None:
        return run.result
    runtime = get_runtime(request)
    limits, _ = granted_limits(request.headers, runtime.settings)
    requested = requested_turn(
        request,
        component,
        origin,
        run.task,
        run_id=run.run_id,
        asked=run.turn,
        state=run.state,
    )
    observability = runtime.observability
    shared = observability.subscribers
    if component is not runtime.component:
        shared = observability.inline_subscribers
        origin = replace(origin, root=origin.root or INLINE)
    async with taken_turn(request, requested, limits.wall_time) as turn:
        result = await _execute(
            request,
            component,
            run,
            turn,
            origin=origin,
            subscribers=(*subscribers, *shared),
            stream=stream,
            trace=trace,
        )
        if turn is not None and runtime.background is not None:
            await runtime.background.turns.end(turn, result)
        return result


async def _execute(
    request: Request,
    component: Component,
    run: RequestedRun,
    turn: Turn | None,
    *,
    origin: Origin,
    subscribers: Sequence[Subscriber],
    stream: bool,
    trace: bool,
) -> ExecutionResult:
    """Run a component for a request, within its turn if it has one; see `execute_request`."""
    runtime = get_runtime(request)
    limits, hops = granted_limits(request.headers, runtime.settings)
    idempotency_key = None
    idempotent = idempotent_request(request)
    if idempotent is not None:
        idempotency_key = idempotent.key
        subscribers = (*subscribers, idempotent.note_tool)
    async with runtime.admission.run_slot():
        # not before: a request that is refused may be sent again
        await _use_state(runtime, run, turn)
        task = run.task
        if turn is not None:
            task = turn.task(task, goes_on=run.state is not None)
        try:
            with (
                use_origin(runtime.settings, origin),
                use_caller_headers(request.headers, runtime.mcp.values()),
            ):
                return await execute(
                    component,
                    task,
                    subscribers=subscribers,
                    limits=limits,
                    stream=stream,
                    trace=trace,
                    hops=hops,
                    run_id=run.run_id,
                    idempotency_key=idempotency_key,
                )
        except PodwrightError as error:
            if isinstance(error, InputsError) and error.question is not None:
                error.problems = below(error, "/decision").problems
            await save_state(request, component, error, turn)
            _note_stop(idempotent, run, error)
            raise
        except asyncio.CancelledError as cancelled:
            # the cause knows where a workflow resumes
            cause = cancelled.__cause__
            if not isinstance(cause, RunCancelledError):
                raise
            await save_state(request, component, cause, turn)
            _note_stop(idempotent, run, cause)
            raise cause from None


async def _use_state(
    runtime: Runtime, run: RequestedRun, turn: Turn | None
) -> None:
    """Use the state from which a run goes on, and let its turn go on.

    Raises:
        RequestError: 409: it was used before, or the turn has lost its place.
    """
    if run.state is None:
        return
    await runtime.states.use(run.state, state_store(runtime))
    if turn is not None and turn.is_paused and runtime.background is not None:
        await runtime.background.turns.go_on(turn, run.run_id)


def _note_stop(
    idempotent: IdempotentRequest | None,
    run: RequestedRun,
    error: PodwrightError,
) -> None:
    """Have a repeated request find where a run has stopped: it cannot go on from the same state again."""
    if idempotent is not None and run.state is not None:
        idempotent.stopped = error


def context_as_texts(content: dict[str, Any]) -> dict[str, Any]:
    """What `Component.content_of` has returned as data, with the texts that it returns by default."""
    # the context of a workflow always has an `input` too
    if content.keys() <= {"output", "data"}:
        return content
    return {name: to_text(value) for name, value in content.items()}


async def compute_for(
    request: Request, function: Callable[..., T], /, *args: Any
) -> T:
    """Compute something for a request before its run begins; see `podwright.threads.compute`.

    It ends if the client leaves, and it may not take longer than the run.

    Raises:
        RequestError: 503: the service computes too much for others, or stops.
        LimitExceededError: The time of the run is over.
        starlette.requests.ClientDisconnect: The client left.
    """
    runtime = get_runtime(request)
    limits, _ = granted_limits(request.headers, runtime.settings)

    async def work() -> T:
        async with runtime.admission.computing_slot(request.headers):
            return await compute(function, *args)

    timeout = asyncio.timeout(limits.wall_time)
    try:
        async with timeout:
            return await runtime.active_runs.run_until_disconnect(
                request, work()
            )
    except TimeoutError as error:
        if not timeout.expired():
            raise
        message = (
            f"The request was checked for longer than {limits.wall_time:g} s."
        )
        raise LimitExceededError(message, limit="wall_time") from error


async def task_of(
    component: Component, body: RunRequest, request: Request | None = None
) -> Task:
    """The task in the body of a request; declared inputs are checked in a thread, because that may take a while.

    Args:
        component: What is to run.
        body: The body.
        request: The request, if it waits for the task.

    Raises:
        RequestError: 422: it has keys that components of this kind do not take; or see `compute_for`.
        InputsError: The inputs do not fit those that the component declares; with pointers into the body.
        InputError: The input or the start is wrong.
    """
    try:
        if component.inputs and request is not None:
            return await compute_for(request, _task_of, component, body)
        if component.inputs:
            return await compute(_task_of, component, body)
        return _task_of(component, body)
    except InputsError as error:
        raise below(error, "/inputs") from None


def below(error: InputsError, pointer: str) -> InputsError:
    """The same error for what is at a pointer of a body."""
    problems = [
        replace(problem, pointer=pointer + problem.pointer)
        for problem in error.problems
    ]
    return InputsError(
        error.message, problems=problems, suggestion=error.suggestion
    )


def _task_of(component: Component, body: RunRequest) -> Task:
    value: Any = body.inputs
    if "input" in body.model_fields_set:
        value = body.input
    elif not value:
        _check_needs_no_input(component, body)
    if body.decision is not None and body.inputs:
        value = {**value, DECISION: body.decision.model_dump()}
    _check_keys(body, component)
    return component.task_from(
        TaskBody(
            value,
            messages=body.messages,
            start_step=body.start_step,
            resume_path=body.resume_path,
        )
    )


def _check_needs_no_input(component: Component, body: RunRequest) -> None:
    """Raise a `RequestError` about a body without any input, unless all inputs of the component have defaults."""
    if component.inputs.may_be_left_out:
        return
    pointer = ""
    detail = "Expected exactly one of 'input' and 'inputs'."
    if "inputs" in body.model_fields_set:
        pointer = "/inputs"
        detail = "Expected at least one input, got an empty object."
    raise RequestError(
        422,
        "request_invalid",
        detail,
        problems=[Problem(pointer, detail)],
    )


def _check_keys(body: RunRequest, component: Component) -> None:
    """Check that the body has only keys that runs of the component take.

    Raises:
        RequestError: 422: it has a key that only workflows have.
    """
    sent = [
        key
        for key in ("start_step", "resume_path")
        if key in body.model_fields_set
        and getattr(body, key) not in (None, [])
        and key not in component.body_keys
    ]
    if not sent:
        return
    detail = f"Only workflows have '{sent[0]}'; '{component.name}' is of the kind '{component.kind}'."
    problems = [Problem(f"/{key}", detail) for key in sent]
    raise RequestError(
        422,
        "request_invalid",
        detail,
        suggestion="Leave it out.",
        problems=problems,
    )
