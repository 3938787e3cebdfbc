"""One attempt of a background run: the served component is performed, and how it ended is stored."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from starlette.datastructures import Headers

from podwright.components import Component
from podwright.connection.schemas import RunStatus
from podwright.data.json_data import to_json_data
from podwright.errors import (
    ApprovalRequired,
    PodwrightError,
    RemoteInterruptedError,
)
from podwright.events import Event, Subscriber
from podwright.journal.journal import Journal
from podwright.messages.approvals import ApprovalId, Question
from podwright.messages.usage import Usage
from podwright.run.run import execute
from podwright_service.background.caller_runs import (
    StoredRun,
    cancelled_problem,
)
from podwright_service.background.stored_journal import DatabaseStore
from podwright_service.background.writer import Writer
from podwright_service.conversations.turns import Turn
from podwright_service.conversations.values import EndedTurn
from podwright_service.execution import task_of, use_origin
from podwright_service.http.access.limits import granted_limits
from podwright_service.http.errors.problems import (
    RequestError,
    stored_problem,
    stored_problem_of,
)
from podwright_service.http.schemas import RunRequest
from podwright_service.mcp_servers import use_caller_headers
from podwright_service.observability import Observability
from podwright_service.observability.tracing import (
    current_traceparent,
    link_to,
    note_blueprint,
    resumed_run,
    trace_of,
)
from podwright_service.origin import Origin
from podwright_service.settings import Settings

MAX_TAKEOVERS = 10
"""Processes that may end during a run, one after the other, before it waits for a person."""

_AFTER_UNKNOWN_CALL = "Find out what the call did; then resume the run, which repeats the call, or cancel it."

End = tuple[str, dict[str, Any]]
"""How an attempt ended: a status or `moved`, and the columns of the run that change."""

_log = logging.getLogger("podwright.background")


class Attempt:
    """One attempt of a run.

    Args:
        run: The row of the run.
        writer: Stores what the attempt does.
        component: What is performed.
        settings: Model, unfinished tool calls and the errors that are shown.
        observability: Counts and traces the run as those of requests.
        read_events: Returns the stored events of the attempts before, with their numbers.
        begin_turn: Begins the turn of a run, given its id and the number of the turn after which alone it is taken.
    """

    def __init__(
        self,
        run: StoredRun,
        writer: Writer,
        component: Component,
        settings: Settings,
        observability: Observability,
        read_events: Callable[
            [str], Awaitable[Sequence[tuple[int, dict[str, Any]]]]
        ],
        begin_turn: Callable[[str, int | None], Awaitable[Turn]],
    ) -> None:
        self._run = run
        may_repeat = (
            run["repeat_calls"] or settings.unfinished_tool_calls == "repeat"
        )
        self._store = DatabaseStore(
            run,
            writer,
            keep_content=settings.log_content,
            may_repeat=may_repeat,
        )
        self._journal = Journal(store=self._store)
        """Empty until the stored events are read."""
        self._component = component
        self._settings = settings
        self._observability = observability
        self._read_events = read_events
        self._begin_turn = begin_turn
        self.turn: Turn | None = None
        """The turn of a conversation that the run is; None if it is none, or has not begun."""
        self._ended_turn: EndedTurn | None = None
        self._was_cut_off = False

    def drain(self) -> None:
        """Let another process go on with the run, as soon as no call would be cut off."""
        self._store.gate.drain()

    def cut_off(self) -> None:
        """Let another process go on with the run, now."""
        self._was_cut_off = True
        self._store.gate.stop("moved")

    def cancel(self) -> None:
        """Cancel the run, unless it has ended."""
        self._store.gate.stop("cancelled")

    def apply_lease(
        self, held_attempt: int | None, *, cancel_requested: bool
    ) -> None:
        """Take note of what the database says of the run.

        Args:
            held_attempt: The number of the attempt that this process holds; None if it holds none.
            cancel_requested: Whether a caller has cancelled the run.
        """
        # its end is on the way to the database, which refuses it if the run is lost
        if self._store.has_ended:
            return
        if held_attempt != self._run["attempt"]:
            self._store.lose()
        elif cancel_requested:
            self.cancel()

    async def perform(self) -> str:
        """Perform the attempt and store how it ended; only the run in it can be cancelled, not the attempt.

        Returns:
            The new status of the run; `moved` if another process is to go on, `lost` if another one has taken it over.
        """
        started = time.monotonic()
        task = asyncio.create_task(self._perform())
        self._store.gate.guard(task)
        await asyncio.wait([task])
        outcome, columns = self._end_of(task)
        seconds = self._run["seconds"] + time.monotonic() - started
        self._store.close(self._ended_turn, seconds=seconds, **columns)
        await self._store.wait_until_stored()
        if self._store.is_lost:
            return "lost"
        return outcome

    async def _perform(self) -> End:
        recorded: Sequence[tuple[int, dict[str, Any]]] = ()
        if self._run["attempt"] > 1:
            recorded = await self._read_events(self._run["id"])
        self._journal = self._store.journal(event for _, event in recorded)
        end = self._end_without_going_on()
        if end is not None:
            return end
        return await self._execute()

    def _end_without_going_on(self) -> End | None:
        """How a run ends that must not go on; None if it may go on."""
        if self._run["cancel_requested"]:
            return self._cancelled()
        if self._run["takeovers"] >= MAX_TAKEOVERS:
            detail = f"{MAX_TAKEOVERS} processes ended during the run, one after the other; it may be what ends them."
            suggestion = "Look in the logs of the pods, for example for too little memory; then resume the run."
            return self._interrupted(detail, suggestion)
        unknown = self._journal.unfinished_tool_calls()
        if not unknown or self._store.may_repeat:
            return None
        tools = {f"'{call.tool}' of '{call.component}'" for call in unknown}
        names = ", ".join(sorted(tools))
        detail = f"The process ended during a call of the tool {names}; nobody knows what the call did."
        return self._interrupted(detail, _AFTER_UNKNOWN_CALL)

    async def _execute(self) -> End:
        """Run the component; how the attempt ended."""
        component = self._component
        request = self._run["request"]
        limits, hops = granted_limits(
            Headers(request["headers"]), self._settings
        )
        # the permission to repeat calls is for one attempt; `_moved` may give it to the next one
        self._store.set_columns(repeat_calls=False)
        subscribers: tuple[Subscriber, ...] = (
            *self._observability.subscribers,
            self._note_span,
        )
        stored: dict[str, Any] = self._run["origin"] or {}
        origin = Origin.from_dict(stored, self._run["metadata"] or {})
        link = None
        if self._run["attempt"] > 1:
            link = link_to(self._run["traceparent"])
        token = resumed_run.set(link)
        try:
            with (
                trace_of(request.get("traceparent")),
                use_origin(self._settings, origin),
                use_caller_headers(None, ()),
            ):
                body = RunRequest.model_validate(request["body"])
                task = await task_of(component, body)
                if request.get("turn") is not None:
                    self.turn = await self._begin_turn(
                        self._run["id"], request["turn"]["after"]
                    )
                    task = self.turn.task(
                        task, goes_on=request["turn"]["goes_on"]
                    )
                result = await execute(
                    component,
                    task,
                    subscribers=subscribers,
                    limits=limits,
                    hops=hops,
                    run_id=self._run["id"],
                    journal=self._journal,
                )
        except ApprovalRequired as pause:
            approval = _approval(self._run["id"], pause)
            return self._ended(
                "waiting_for_approval", approval=approval, usage=pause.usage
            )
        finally:
            resumed_run.reset(token)
        turn: EndedTurn | None = None
        if self.turn is not None:
            turn = self.turn.ended(result)
        end = self._ended(
            "succeeded",
            result=component.content_of(result, as_data=True),
            messages=result.messages,
            usage=result.usage,
        )
        # not before: a run that fails adds no turn
        self._ended_turn = turn
        return end

    def _end_of(self, task: asyncio.Task[End]) -> End:
        """How the attempt ended, whose task is done."""
        try:
            return task.result()
        except asyncio.CancelledError as error:
            match self._store.gate.reason:
                case "cancelled":
                    return self._cancelled(_usage_of(error.__cause__))
                case "moved" | "lost":
                    return self._moved()
                case None:  # what is performed has cancelled itself
                    return self._failed(error)
        except RemoteInterruptedError as error:
            return self._interrupted(
                error.message, _AFTER_UNKNOWN_CALL, usage=error.usage
            )
        except Exception as error:  # noqa: BLE001 - whatever it is, the next attempt would end like this one
            return self._failed(error)

    def _failed(self, error: BaseException) -> End:
        if not isinstance(error, PodwrightError | RequestError):
            _log.error(
                "The background run %s failed unexpectedly.",
                self._run["id"],
                exc_info=error,
            )
        problem = stored_problem_of(
            self._run["id"], error, self._settings.provider_errors
        )
        return self._ended("failed", problem=problem, usage=_usage_of(error))

    def _interrupted(
        self, detail: str, suggestion: str, usage: Usage | None = None
    ) -> End:
        problem = stored_problem(
            self._run["id"],
            409,
            "run_interrupted",
            detail=detail,
            suggestion=suggestion,
        )
        return self._ended("interrupted", problem=problem, usage=usage)

    def _cancelled(self, usage: Usage | None = None) -> End:
        return self._ended(
            "cancelled", problem=cancelled_problem(self._run["id"]), usage=usage
        )

    def _ended(
        self, status: RunStatus, *, usage: Usage | None = None, **columns: Any
    ) -> End:
        """The end with a status, and with the usage of all attempts unless the row has it already."""
        total = self._store.total_usage(usage)
        if total is not None:
            columns["usage"] = total.to_dict()
        return status, {"status": status, **columns}

    def _moved(self) -> End:
        """The end of an attempt after which another one goes on.

        The permission to repeat unfinished calls is kept if this one ended before it repeated them.
        """
        columns: dict[str, Any] = {"status": "queued"}
        may_repeat = self._run["repeat_calls"] and not self._was_cut_off
        if may_repeat and self._journal.unfinished_tool_calls():
            columns["repeat_calls"] = True
        return "moved", columns

    def _note_span(self, event: Event) -> None:
        """Name the blueprint on the span of the attempt, and store the span, which the next one links to."""
        is_start = (
            event.run_id == self._run["id"] and event.type == "run_started"
        )
        if not is_start:
            return
        note_blueprint(self._run["digest"])
        span = current_traceparent()
        if span:
            self._store.set_columns(traceparent=span)


def _approval(run_id: str, pause: ApprovalRequired) -> dict[str, Any]:
    """What a run waits for, as it is stored.

    Args:
        run_id: The run, which asks if a component of the caller paused in its own way.
        pause: The pause.
    """
    question = pause.question or Question(pause.message)
    asked = pause.asked or ApprovalId(run_id, ())
    return {
        **to_json_data(question.to_dict()),
        **asked.to_dict(),
    }


def _usage_of(error: BaseException | None) -> Usage | None:
    if isinstance(error, PodwrightError):
        return error.usage
    return None
