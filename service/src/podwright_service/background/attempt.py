"""One attempt of a background run: the served component is performed, and how it ended is stored."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Iterable, Mapping
from typing import Any

from starlette.datastructures import Headers

from podwright.components import Component
from podwright.errors import ApprovalRequired, PodwrightError
from podwright.events import Event, Subscriber
from podwright.models import use_model
from podwright.run import execute
from podwright.usage import Usage
from podwright_service.background.store import StoredRun, cancelled_problem
from podwright_service.background.stored_journal import StoredJournal
from podwright_service.execution import result_content, task_of
from podwright_service.limits import granted_limits
from podwright_service.observability import Observability
from podwright_service.observability.tracing import current_traceparent, link_to, resumed_run, trace_of
from podwright_service.problems import problem_of, run_problem
from podwright_service.schemas import RunRequest, RunStatus
from podwright_service.settings import Settings

MAX_TAKEOVERS = 10
"""Processes that may end during a run, one after the other, before it waits for a person."""

_log = logging.getLogger("podwright.background")


class Attempt:
    """One attempt of a run.

    Args:
        run: The row of the run.
        journal: Stores what the attempt does.
        component: What is performed.
        settings: Model, unfinished tool calls and the errors that are shown.
        observability: Counts and traces the run as those of requests.
    """

    def __init__(
        self,
        run: StoredRun,
        journal: StoredJournal,
        component: Component,
        settings: Settings,
        observability: Observability,
    ) -> None:
        self._run, self._journal = run, journal
        self._component, self._settings, self._observability = component, settings, observability

    async def perform(self, recorded: Iterable[Mapping[str, Any]]) -> str:
        """Perform the attempt and store how it ended.

        Args:
            recorded: The stored events of the attempts before.

        Returns:
            The new status of the run; `moved` if another process is to go on, `lost` if another one has taken it over.
        """
        started = time.monotonic()
        try:
            self._journal.load(recorded)
            outcome = self._end_at_once() or await self._execute()
        except Exception as error:  # noqa: BLE001 - whatever it is, the next attempt would end like this one
            outcome = self._failed(error)
        self._journal.close()  # from here on, neither a shutdown nor a caller may cancel what is being stored
        self._journal.set(seconds=self._run["seconds"] + time.monotonic() - started)
        await self._journal.wait_until_stored()
        return "lost" if self._journal.is_lost else outcome

    def _end_at_once(self) -> str | None:
        """End a run that must not go on, and return its outcome; None if it may go on."""
        if self._run["cancel_requested"]:
            return self._cancelled()
        if self._run["takeovers"] >= MAX_TAKEOVERS:
            detail = f"{MAX_TAKEOVERS} processes ended during the run, one after the other; it may be what ends them."
            suggestion = "Look in the logs of the pods, for example for too little memory; then resume the run."
            return self._interrupt(detail, suggestion)
        unknown = self._journal.unfinished_tool_calls()
        if not unknown or self._run["repeat_calls"] or self._settings.unfinished_tool_calls == "repeat":
            return None
        names = ", ".join(sorted({f"'{call.tool}' of '{call.component}'" for call in unknown}))
        detail = f"The process ended during a call of the tool {names}; nobody knows what the call did."
        suggestion = "Find out what the call did; then resume the run, which repeats the call, or cancel it."
        return self._interrupt(detail, suggestion)

    def _interrupt(self, detail: str, suggestion: str) -> str:
        problem = run_problem(self._run["id"], 409, "run_interrupted", detail, suggestion)
        return self._end("interrupted", problem=problem)

    async def _execute(self) -> str:
        """Run the component, note the end of the attempt in the journal, and return its outcome."""
        component, request = self._component, self._run["request"]
        limits, hops = granted_limits(Headers(request["headers"]), self._settings)
        task = asyncio.current_task()
        self._journal.on_idle = lambda: task.cancel() if task else None
        self._journal.set(repeat_calls=False)
        self._journal.check_idle()
        subscribers: tuple[Subscriber, ...] = (*self._observability.subscribers, self._journal, self._note_span)
        link = resumed_run.set(link_to(self._run["traceparent"]) if self._run["attempt"] > 1 else None)
        try:
            with trace_of(request.get("traceparent")), use_model(self._settings.model):
                result = await execute(
                    component,
                    task_of(component, RunRequest.model_validate(request["body"])),
                    subscribers=subscribers,
                    limits=limits,
                    hops=hops,
                    run_id=self._run["id"],
                    journal=self._journal,
                )
        except asyncio.CancelledError as error:
            return self._stopped(error)
        except ApprovalRequired as pause:
            run_id, path = pause.step
            approval = {"message": pause.message, "run_id": run_id, "path": list(path)}
            return self._end("waiting_for_approval", approval=approval, usage=pause.usage)
        finally:
            resumed_run.reset(link)
        return self._end("succeeded", result=result_content(component, result), usage=result.usage)

    def _failed(self, error: BaseException) -> str:
        if not isinstance(error, PodwrightError):
            _log.error("The background run %s failed unexpectedly.", self._run["id"], exc_info=error)
        problem = problem_of(self._run["id"], error, self._settings.provider_errors)
        return self._end("failed", problem=problem, usage=_usage_of(error))

    def _stopped(self, error: asyncio.CancelledError) -> str:
        if self._journal.is_cancelled:
            return self._cancelled(_usage_of(error.__cause__))
        if self._journal.is_lost or self._journal.is_draining:
            self._journal.set(status="queued")
            return "moved"
        return self._failed(error)  # what is performed has cancelled itself

    def _cancelled(self, usage: Usage | None = None) -> str:
        return self._end("cancelled", problem=cancelled_problem(self._run["id"]), usage=usage)

    def _end(self, status: RunStatus, *, usage: Usage | None = None, **values: Any) -> str:
        """Set how the attempt ended, with its usage: an attempt that fails early has not replayed all calls."""
        usages = [self._journal.used] if usage is None else [usage, self._journal.used]
        most = max(usages, key=lambda each: (each.model_calls, each.tool_calls))
        self._journal.set(status=status, usage=most.to_dict(), **values)
        return status

    def _note_span(self, event: Event) -> None:
        """Store the span of the attempt, which the next one links to; this is a subscriber."""
        is_start = event.run_id == self._run["id"] and event.type == "run_started"
        if is_start and (span := current_traceparent()):
            self._journal.set(traceparent=span)


def _usage_of(error: BaseException | None) -> Usage | None:
    return error.usage if isinstance(error, PodwrightError) else None
