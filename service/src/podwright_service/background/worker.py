"""The worker of background runs in each process: it takes runs over, performs them, and gives them back at shutdown."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import time
from collections.abc import AsyncGenerator, Callable, Coroutine, Mapping, Sequence
from typing import Any

from sqlalchemy.engine import URL

from podwright import blueprints
from podwright.components import Component
from podwright.errors import ApprovalRequired, PodwrightError
from podwright.events import Subscriber
from podwright.json_data import to_json_data
from podwright.models import use_model
from podwright.run import execute
from podwright.usage import RunLimits
from podwright_service.background.store import DatabaseAwayError, RunStore, StoredRun, cancelled
from podwright_service.background.stored_journal import RETRY, StoredJournal, Writer
from podwright_service.execution import result_content, task_of
from podwright_service.observability import Observability
from podwright_service.observability.tracing import current_traceparent, link_to, resumed_run, trace_of
from podwright_service.problems import problem_of, run_problem
from podwright_service.schemas import RunRequest
from podwright_service.settings import Settings
from podwright_service.shutdown import RESPONSE_SECONDS

POLL = 1.0
"""Seconds between two looks for runs that this process could take over."""
RENEWAL = 2.0
"""Seconds between two renewals of the leases, at which requests to cancel are seen too."""
MAX_TAKEOVERS = 10
"""Processes that may end during a run, one after the other, before it waits for a person."""
_CLEANUP = 300.0
"""Seconds between two deletions of old runs."""
COUNT = 10.0
"""Seconds between two counts for the metrics."""

_log = logging.getLogger("podwright.background")


class BackgroundRuns:
    """The background runs of one process.

    Args:
        url: The database.
        component: What runs perform.
        settings: Limits, content, retention.
        observability: Counts and traces runs as those of requests.
    """

    def __init__(self, url: URL, component: Component, settings: Settings, observability: Observability) -> None:
        self.url = url
        self.digest: str = blueprints.digest(component.to_blueprint())
        """Digest of the served blueprint: only runs that began with it are performed here."""
        self.store: RunStore
        """Made in each process, because connections do not survive a fork."""
        self._component, self._settings, self._observability = component, settings, observability
        self._id = os.urandom(16).hex()
        self._active: dict[str, tuple[asyncio.Task[None], StoredJournal]] = {}
        self._adding: set[str] = set()
        """Runs that begin here as soon as they are stored."""
        self._wake = asyncio.Event()
        self._leaving_since: float | None = None

    @contextlib.asynccontextmanager
    async def working(self) -> AsyncGenerator[None]:
        """Perform runs within this context; at its end they are finished, or given back."""
        self._id, self.store = os.urandom(16).hex(), RunStore(self.url)
        self._writer = Writer(self.store)
        with contextlib.suppress(DatabaseAwayError):  # the database is away, which `_take_over` logs
            await self.store.renew(self._id)
        tasks = [
            asyncio.create_task(work)
            for work in (self._writer.run(), self._take_over(), self._repeat(RENEWAL, self._renew),
                         self._repeat(COUNT, self._count), self._repeat(_CLEANUP, self._clean_up))
        ]  # fmt: skip
        try:
            yield
        finally:
            self.leave()
            await self._finish()
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            with contextlib.suppress(DatabaseAwayError):
                await self.store.leave(self._id)
            await self.store.close()

    async def add(self, run: Mapping[str, Any]) -> StoredRun:
        """Store a new run, or find the one that has its idempotency key; begin it if this process has room.

        Args:
            run: What `RunStore.add` takes.
        """
        if self._room() <= 0:
            return await self.store.add(run)
        run_id: str = run["id"]
        self._adding.add(run_id)
        try:
            stored = await self.store.add(run, self._id)
            if stored["id"] == run_id:
                self._start(stored)
            return stored
        finally:
            self._adding.discard(run_id)

    def wake(self) -> None:
        """Look for runs now: one has been added, or may go on."""
        self._wake.set()

    def cancel(self, run_id: str) -> None:
        """Cancel a run at once, if it is performed here; its row says so already."""
        if run_id in self._active:
            task, journal = self._active[run_id]
            journal.is_cancelled = True
            task.cancel()

    def leave(self) -> None:
        """Take no more runs over, and stop those in progress as soon as no call of theirs would be cut off."""
        if self._leaving_since is None:
            self._leaving_since = time.monotonic()
            for _, journal in list(self._active.values()):
                journal.is_leaving = True
                journal.check_idle()

    async def _finish(self) -> None:
        """Wait until no run is in progress; after the shutdown time-out, cut off their calls."""
        since = self._leaving_since or 0.0
        deadline = since + self._settings.drain_delay + self._settings.shutdown_timeout
        active = dict(self._active.values())
        if active:
            _, late = await asyncio.wait(active, timeout=max(0.0, deadline - time.monotonic()))
            for task in late:
                active[task].close()
                task.cancel()
            if late:
                await asyncio.wait(late, timeout=RESPONSE_SECONDS)

    # --- Taking over --------------------------------------------------------------------------------------------------

    def _room(self) -> int:
        """How many more runs this process may perform."""
        if self._leaving_since is not None:
            return 0
        return self._settings.background_runs - len(self._active) - len(self._adding)

    async def _take_over(self) -> None:
        is_away = False
        while True:
            self._wake.clear()
            room = self._room()
            claimed: list[StoredRun] = []
            try:
                if room > 0:
                    performed = [*self._active, *self._adding]
                    claimed = list(await self.store.claim(self._id, self.digest, room, performed))
                is_away = False
            except DatabaseAwayError as error:
                if not is_away:
                    _log.error("%s %s", error.detail, error.suggestion, exc_info=error.__cause__)
                is_away = True
            for run in claimed:
                self._start(run)
            if len(claimed) < room or room <= 0:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(POLL):
                        await self._wake.wait()

    def _start(self, run: StoredRun) -> None:
        journal = StoredJournal(run, self._writer, keep_content=self._settings.log_content)
        journal.is_leaving = self._leaving_since is not None
        task = asyncio.create_task(self._perform(run, journal))
        self._active[run["id"]] = task, journal
        task.add_done_callback(lambda _: self._ended(run["id"], task))

    def _ended(self, run_id: str, task: asyncio.Task[None]) -> None:
        was_full = self._room() <= 0
        if run_id in self._active and self._active[run_id][0] is task:
            del self._active[run_id]
        if not task.cancelled() and (error := task.exception()) is not None:
            _log.error("An attempt of the background run %s failed unexpectedly.", run_id, exc_info=error)
        if was_full:  # else no run waits
            self.wake()

    # --- Performing ---------------------------------------------------------------------------------------------------

    async def _perform(self, run: StoredRun, journal: StoredJournal) -> None:
        """Perform one attempt of a run, and store how it ended."""
        recorded: Sequence[dict[str, Any]] = ()
        if run["attempt"] > 1:
            recorded = await self._until_reached(lambda: self.store.recorded(run["id"]))
        started = time.monotonic()
        try:
            journal.load(recorded)
            outcome = self._refusal(run, journal) or await self._attempt(run, journal)
        except Exception as error:  # noqa: BLE001 - whatever it is, the next attempt would end like this one
            outcome = self._failed(run, journal, error)
        if journal.is_lost:
            outcome = "lost"
        else:
            journal.set(seconds=run["seconds"] + time.monotonic() - started)
            await journal.stored()
        self._observability.metrics.count_attempt(outcome)

    def _refusal(self, run: StoredRun, journal: StoredJournal) -> str:
        """End a run that must not go on, and say how; empty if it may."""
        if run["cancel_requested"]:
            journal.set(status="cancelled", problem=cancelled(run["id"]))
            return "cancelled"
        if run["takeovers"] >= MAX_TAKEOVERS:
            detail = f"{MAX_TAKEOVERS} processes ended during the run, one after the other; it may be what ends them."
            suggestion = "Look in the logs of the pods, for example for too little memory; then resume the run."
            return self._interrupt(journal, detail, suggestion)
        unknown = journal.unfinished_tool_calls()
        if not unknown or run["repeat_calls"] or self._settings.unfinished_tool_calls == "repeat":
            return ""
        names = ", ".join(sorted({f"'{call.tool}' of '{call.component}'" for call in unknown}))
        detail = f"The process ended during a call of the tool {names}; nobody knows what the call did."
        suggestion = "Find out what the call did; then resume the run, which repeats the call, or leave it."
        return self._interrupt(journal, detail, suggestion)

    def _interrupt(self, journal: StoredJournal, detail: str, suggestion: str) -> str:
        problem = run_problem(journal.run_id, 409, "run_interrupted", detail, suggestion)
        journal.set(status="interrupted", problem=problem)
        return "interrupted"

    async def _attempt(self, run: StoredRun, journal: StoredJournal) -> str:
        """Run the component, note the end of the attempt in the journal, and return its outcome."""
        component, request = self._component, run["request"]
        limits, model = RunLimits(**request["limits"]), self._settings.model
        if limits.wall_time is not None:
            limits = RunLimits(
                max(0.0, limits.wall_time - run["seconds"]), limits.model_calls, limits.tokens, limits.cost
            )
        task = asyncio.current_task()
        journal.on_idle = lambda: task.cancel() if task else None
        journal.set(repeat_calls=False)
        journal.check_idle()
        subscribers: tuple[Subscriber, ...] = (*self._observability.subscribers, journal, _note_span(journal))
        link = resumed_run.set(link_to(run["traceparent"]) if run["attempt"] > 1 else None)
        try:
            with trace_of(request.get("traceparent")), use_model(model) if model else contextlib.nullcontext():
                result = await execute(
                    component,
                    task_of(component, RunRequest.model_validate(request["body"])),
                    subscribers=subscribers,
                    limits=limits,
                    hops=request["hops"],
                    run_id=run["id"],
                    journal=journal,
                )
        except asyncio.CancelledError as error:
            return self._stopped(journal, error)
        except ApprovalRequired as pause:
            approval = {"message": pause.message, "path": to_json_data(pause.resume_path)}
            journal.set(status="waiting_for_approval", approval=approval, **_usage(pause))
            return "waiting_for_approval"
        finally:
            resumed_run.reset(link)
        content = result_content(component, result)
        journal.set(status="succeeded", result=content, usage=result.usage.to_dict())
        return "succeeded"

    def _failed(self, run: StoredRun, journal: StoredJournal, error: Exception) -> str:
        if not isinstance(error, PodwrightError):
            _log.error("The background run %s failed unexpectedly.", run["id"], exc_info=error)
        problem = problem_of(run["id"], error, self._settings.provider_errors)
        journal.set(status="failed", problem=problem, **_usage(error))
        return "failed"

    def _stopped(self, journal: StoredJournal, error: asyncio.CancelledError) -> str:
        if journal.is_cancelled:
            journal.set(status="cancelled", problem=cancelled(journal.run_id), **_usage(error.__cause__))
            return "cancelled"
        journal.set(status="queued")
        return "moved"

    # --- Housekeeping -------------------------------------------------------------------------------------------------

    async def _renew(self) -> None:
        performed = dict(self._active)
        held = await self.store.renew(self._id)
        for run_id, (task, journal) in performed.items():
            attempt, cancel_requested = held.get(run_id, (0, False))
            if task.done():
                continue
            if attempt != journal.attempt:
                journal.lose()
                task.cancel()
            elif cancel_requested:
                self.cancel(run_id)

    async def _count(self) -> None:
        metrics = self._observability.metrics
        try:
            metrics.set_background_runs(await self.store.counts(self._component.name))
        except DatabaseAwayError:
            metrics.set_background_runs(None)

    async def _clean_up(self) -> None:
        while await self.store.delete_ended(self._settings.runs_retention):
            pass

    async def _repeat(self, seconds: float, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        while True:
            with contextlib.suppress(DatabaseAwayError):  # the database is away, which `_take_over` logs
                await work()
            await asyncio.sleep(seconds)

    async def _until_reached(self, read: Callable[[], Coroutine[Any, Any, Any]]) -> Any:
        """What a read of the database returns, once the database can be reached."""
        while True:
            try:
                return await read()
            except DatabaseAwayError:
                await asyncio.sleep(RETRY)


def _usage(error: BaseException | None) -> dict[str, Any]:
    """The usage of a run up to its error, as a column."""
    usage = error.usage if isinstance(error, PodwrightError) else None
    return {"usage": usage.to_dict()} if usage else {}


def _note_span(journal: StoredJournal) -> Subscriber:
    """A subscriber that stores the span of the attempt, which the next one links to."""

    def note(event: Any) -> None:
        if event.run_id == journal.run_id and event.type == "run_started" and (span := current_traceparent()):
            journal.set(traceparent=span)

    return note
