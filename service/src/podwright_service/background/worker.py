"""The worker of background runs in each process: it claims runs, performs them, and gives them back at shutdown."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
import math
import os
import time
from collections.abc import (
    AsyncGenerator,
    Callable,
    Collection,
    Coroutine,
    Mapping,
    Sequence,
    Set,
)
from typing import Any, NamedTuple

from sqlalchemy.engine import URL

from podwright.components import Component
from podwright.folders.walks import comparable_blueprint, component_digest
from podwright_service.background.attempt import Attempt
from podwright_service.background.caller_runs import StoredRun
from podwright_service.background.delivery.outbox import WebhookMode
from podwright_service.background.delivery.webhook import Webhook
from podwright_service.background.previous import Previous
from podwright_service.background.storage.database import (
    DatabaseUnavailableError,
    explain_database_error,
)
from podwright_service.background.store import RunStore
from podwright_service.background.writer import Writer
from podwright_service.conversations.problems import conversation_changed
from podwright_service.conversations.turns import Turn, TurnOutcome, Turns
from podwright_service.conversations.values import ConversationLimits, NewTurn
from podwright_service.http.access.shutdown import RESPONSE_SECONDS
from podwright_service.observability import Observability
from podwright_service.saved_states import SavedState
from podwright_service.settings import Settings

POLL_INTERVAL = 1.0
"""Seconds between two queries for runs that this process could claim."""
RENEWAL_INTERVAL = 2.0
"""Seconds between two renewals of the leases, at which requests to cancel are seen too."""
CLEANUP_INTERVAL = 300.0
"""Seconds between two deletions of old runs."""
METRICS_INTERVAL = 10.0
"""Seconds between two counts for the metrics."""
RETRY_INTERVAL = 1.0
"""Seconds between two attempts to reach the database."""
LOG_INTERVAL = 60.0
"""Seconds between two log lines about a database that cannot be reached."""

_TURN_OUTCOMES: Mapping[str, TurnOutcome] = {
    "succeeded": "kept",
    "waiting_for_approval": "paused",
    "moved": "moved",
    "lost": "moved",
}
"""How a turn has ended, by the outcome of the attempt of its run; `dropped` by default."""

_log = logging.getLogger("podwright.background")


class _Active(NamedTuple):
    """An attempt that is performed here."""

    task: asyncio.Task[None]
    attempt: Attempt


class BackgroundWorker:
    """The background runs of one process.

    Args:
        url: The database.
        component: What runs perform.
        settings: Limits, content, retention.
        observability: Counts and traces runs as those of requests.
        previous: Earlier blueprints: runs that began with one are performed with it.
    """

    def __init__(
        self,
        url: URL,
        component: Component,
        settings: Settings,
        observability: Observability,
        previous: Previous,
    ) -> None:
        self._url = url
        self.digest: str = component_digest(component)
        """Digest of the served blueprint, with which new runs begin."""
        self.component = component
        """The served component."""
        self.previous = previous
        """The earlier blueprints that the service was given."""
        self._components: Mapping[str, Component] = {
            **previous.components,
            self.digest: component,
        }
        """What runs perform, by the digest of their blueprint."""
        self._served_digests: Set[str] | None = None
        """Digests of the blueprints with which some process performs runs; None until the database has told."""
        self.store: RunStore
        """Made in each process, because connections do not survive a fork."""
        self._settings = settings
        self._observability = observability
        self._writer: Writer
        self._id: str
        """Made in each process too, as the writer is."""
        self.turns: Turns
        """The turns of requests; made in each process too."""
        self._webhook: Webhook | None = None
        """None if nobody is notified."""
        self._active: dict[str, _Active] = {}
        self._starting: set[str] = set()
        """Runs that begin here as soon as they are stored."""
        self._choosing = asyncio.Lock()
        """Held while runs are chosen that this process performs, so that they are not more than it may."""
        self._unconfirmed_claims: Set[str] = frozenset()
        """Runs that this process holds and does not perform: no response of the statement that claimed them arrived."""
        self._wake = asyncio.Event()
        self._orphans_claimed_at = -math.inf
        self._renewed_at = -math.inf
        self._draining_since: float | None = None
        self._closing = asyncio.Event()
        """Set when no more work is to begin."""
        self._logged_at = -math.inf

    @property
    def digests(self) -> Set[str]:
        """Digests of the blueprints with which runs are performed here."""
        return self._components.keys()

    def component_of(self, digest: str) -> Component | None:
        """What runs with a blueprint are performed with here; None if they are not."""
        return self._components.get(digest)

    def is_unserved(self, digest: str) -> bool:
        """Whether no process performs runs of a blueprint, as of the last count for the metrics."""
        if digest in self.digests or self._served_digests is None:
            return False
        return digest not in self._served_digests

    async def blueprint(self, digest: str) -> Mapping[str, Any] | None:
        """What a digest is of, as far as it is known: a blueprint, with the locked definitions of its MCP tools."""
        if digest in self._components:
            return comparable_blueprint(self._components[digest])
        if digest in self.previous.misfits:
            return self.previous.misfits[digest].blueprint
        return await self.store.blueprints.get(digest)

    @contextlib.asynccontextmanager
    async def working(self) -> AsyncGenerator[None]:
        """Perform runs within this context; at its end they are finished, or given back."""
        self._id = os.urandom(16).hex()
        self.store = RunStore(
            self._url,
            _webhook_mode(self._settings),
            ConversationLimits.of(self._settings),
        )
        self._writer = Writer(self.store)
        self.turns = Turns(
            self.store.turns, self._id, self._observability.metrics.count_turn
        )
        # `_claim_runs` meets the same error, which `_repeat` logs
        with contextlib.suppress(DatabaseUnavailableError):
            started = time.monotonic()
            await self.store.join(self._id, self.component.name)
            self._renewed_at = started
            # before it claims runs, so that no other process calls these unserved
            await self._keep_blueprints()
        loops = [
            self._repeat(0.0, self._writer.write),
            self._repeat(0.0, self._claim_runs),
            self._repeat(RENEWAL_INTERVAL, self._renew),
            self._repeat(METRICS_INTERVAL, self._count),
            self._repeat(CLEANUP_INTERVAL, self._clean_up),
        ]
        if self._settings.webhook is not None:
            self._webhook = Webhook(
                self._settings.webhook,
                self._settings,
                self.component.name,
                outbox=self.store.outbox,
                observability=self._observability,
            )
            loops.append(self._repeat(0.0, self._webhook.send_due))
        tasks = [asyncio.create_task(loop) for loop in loops]
        try:
            yield
        finally:
            self.drain()
            await self._finish()
            self._closing.set()
            self.wake()
            self._writer.wake()
            await _end(tasks, RESPONSE_SECONDS)
            if self._webhook is not None and self._webhook.sending:
                await _end(self._webhook.sending, RESPONSE_SECONDS)
            with contextlib.suppress(DatabaseUnavailableError):
                await self.store.release_lease(self._id)
            await self.store.close()

    async def add_or_find(
        self,
        run: Mapping[str, Any],
        state: SavedState | None = None,
        turn: NewTurn | None = None,
    ) -> StoredRun:
        """Store a new run, or find the one that has its idempotency key; begin it if this process has room.

        Args:
            run: What `RunStore.add` takes.
            state: The state from which it goes on.
            turn: The turn that it is.

        Raises:
            RequestError: 409: the state was used before, or the turn cannot be taken.
        """
        run_id: str = run["id"]
        async with self._choosing:
            has_room = self._room() > 0
            if has_room:
                self._starting.add(run_id)
        if not has_room:
            return await self.store.add(run, state=state, turn=turn)
        try:
            stored = await self.store.add(run, self._id, state, turn)
            # one that is a turn behind another is queued
            if stored["id"] == run_id and stored["status"] == "running":
                self._start(stored)
            return stored
        finally:
            self._starting.discard(run_id)

    def wake(self) -> None:
        """Look for runs and notifications now: one has been added, or may go on."""
        self._wake.set()
        if self._webhook is not None:
            self._webhook.wake()

    def cancel(self, run_id: str) -> None:
        """Cancel a run at once, if it is performed here; its row says so already."""
        self.wake()
        if run_id in self._active:
            self._active[run_id].attempt.cancel()

    def drain(self) -> None:
        """Claim no more runs, and stop those in progress as soon as this would cut off none of their calls."""
        if self._draining_since is None:
            self._draining_since = time.monotonic()
            for active in self._active.values():
                active.attempt.drain()

    async def _finish(self) -> None:
        """Wait until the end of each attempt is stored; after the shutdown time-out, cut off their calls."""
        since = self._draining_since or 0.0
        deadline = (
            since + self._settings.drain_delay + self._settings.shutdown_timeout
        )
        await self._wait_for_claims()
        attempts = {each.task: each.attempt for each in self._active.values()}
        if not attempts:
            return
        timeout = max(0.0, deadline - time.monotonic())
        _, late = await asyncio.wait(attempts, timeout=timeout)
        for task in late:
            attempts[task].cut_off()
        if late:
            _, late = await asyncio.wait(late, timeout=RESPONSE_SECONDS)
        # the database cannot be reached: another process repeats what is not stored
        for task in late:
            task.cancel()

    async def _wait_for_claims(self) -> None:
        """Wait a while until the runs have begun that are being claimed; the lock is held until then."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(RESPONSE_SECONDS), self._choosing:
                return

    # --- Claiming -----------------------------------------------------------------------------------------------------

    def _room(self) -> int:
        """How many more runs this process may perform; none if its lease may end soon: others would take them."""
        if self._draining_since is not None:
            return 0
        if time.monotonic() - self._renewed_at > 3 * RENEWAL_INTERVAL:
            return 0
        begun = len(self._active) + len(self._starting)
        return self._settings.background_runs - begun

    async def _claim_runs(self) -> None:
        """Claim runs; if none are left or there is no room, wait for `wake` or `POLL_INTERVAL`."""
        self._wake.clear()
        claimed = 0
        async with self._choosing:
            room = self._room()
            has_room = room > 0
            if has_room:
                claimed = await self._claim_at_most(room)
        if has_room and claimed == room:
            return  # more may be left
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(POLL_INTERVAL):
                await self._wake.wait()

    async def _claim_at_most(self, room: int) -> int:
        """Begin runs of silent processes, now and then, and queued runs; returns how many."""
        orphans = 0
        if time.monotonic() - self._orphans_claimed_at > POLL_INTERVAL:
            orphans = await self._claim_orphans(room)
        if orphans == room:
            return room
        claimed = orphans
        # new runs never fill the queue of an earlier blueprint, so these come first
        for digest in self.digests:
            runs = await self.store.claim(
                self._id, self.component.name, digest, room - claimed
            )
            for run in runs:
                self._start(run)
            claimed += len(runs)
            if claimed == room:
                break
        return claimed

    async def _claim_orphans(self, room: int) -> int:
        """Begin runs of silent processes; returns how many."""
        component = self.component.name
        unconfirmed = (
            self._unconfirmed_claims - self._active.keys() - self._starting
        )
        runs = await self.store.claim_orphans(
            self._id, component, self.digests, room, unconfirmed
        )
        self._orphans_claimed_at = time.monotonic()
        for run in runs:
            self._start(run)
        return len(runs)

    def _start(self, run: StoredRun) -> None:
        attempt = Attempt(
            run,
            self._writer,
            self._components[run["digest"]],
            settings=self._settings,
            observability=self._observability,
            read_events=self._read_events,
            begin_turn=self._begin_turn,
        )
        if self._draining_since is not None:
            attempt.drain()
        task = asyncio.create_task(self._perform(attempt))
        self._active[run["id"]] = _Active(task, attempt)
        task.add_done_callback(functools.partial(self._forget, run["id"]))

    def _forget(self, run_id: str, task: asyncio.Task[None]) -> None:
        """Make room for other runs after an attempt."""
        was_full = self._room() <= 0
        active = self._active.get(run_id)
        if active is not None and active.task is task:
            del self._active[run_id]
        if not task.cancelled() and task.exception() is not None:
            _log.error(
                "An attempt of the background run %s failed unexpectedly.",
                run_id,
                exc_info=task.exception(),
            )
        if was_full:  # else no run waits
            self.wake()

    async def _perform(self, attempt: Attempt) -> None:
        outcome = await attempt.perform()
        self._observability.metrics.count_attempt(outcome)
        if self._webhook is not None:
            self._webhook.wake()
        if attempt.turn is not None:
            self._observability.metrics.count_turn(
                _TURN_OUTCOMES.get(outcome, "dropped")
            )
            self.turns.notify(attempt.turn.place.conversation)
            self.wake()

    async def _read_events(
        self, run_id: str
    ) -> Sequence[tuple[int, dict[str, Any]]]:
        """The stored events of a run, once the database can be reached."""
        while True:
            try:
                return await self.store.events(run_id)
            except DatabaseUnavailableError:
                await asyncio.sleep(RETRY_INTERVAL)

    async def _begin_turn(self, run_id: str, after: int | None) -> Turn:
        """Begin the turn of a run, once the turns before it have ended.

        Raises:
            RequestError: 409: it can no longer be taken.
        """
        while True:
            with contextlib.suppress(DatabaseUnavailableError):
                place = await self.store.turns.place_of_run(run_id)
                if place is None:
                    raise conversation_changed()
                earlier = await self.store.turns.begin(
                    place, after, waits_for_persons=True
                )
                if earlier is not None:
                    return Turn(place, earlier)
            await asyncio.sleep(RETRY_INTERVAL)

    # --- Housekeeping -------------------------------------------------------------------------------------------------

    async def _renew(self) -> None:
        performed = dict(self._active)
        started = time.monotonic()
        held = await self.store.renew(self._id, self.component.name)
        self._renewed_at = started
        await self.store.turns.leave_late()
        self._unconfirmed_claims = (
            held.keys() - self._active.keys() - self._starting
        )
        for run_id, active in performed.items():
            number, cancel_requested = held.get(run_id, (None, False))
            active.attempt.apply_lease(
                number, cancel_requested=cancel_requested
            )

    async def _count(self) -> None:
        metrics = self._observability.metrics
        try:
            # first: the counts have those that nobody serves
            await self._exchange_blueprints()
            counts = await self.store.counts(self.component.name)
        except DatabaseUnavailableError:
            metrics.set_background_runs(None)
        else:
            metrics.set_background_runs(counts)

    async def _exchange_blueprints(self) -> None:
        """Say with which blueprints this process performs runs, and note with which all processes do."""
        await self._keep_blueprints()
        name = self.component.name
        self._served_digests = await self.store.blueprints.served(name)
        await self.store.requeue_unserved(name)

    async def _keep_blueprints(self) -> None:
        blueprints_by_digest = {
            digest: comparable_blueprint(component)
            for digest, component in self._components.items()
        }
        await self.store.blueprints.keep(
            self.component.name, blueprints_by_digest
        )

    async def _clean_up(self) -> None:
        component = self.component.name
        retention = self._settings.runs_retention
        await self.store.correct_times(component, retention)
        while await self.store.delete_ended(component, retention):
            pass
        while await self.store.states.remove_expired():
            pass
        kept = self._settings.conversations_retention
        while await self.store.conversations.delete_old(component, kept):
            pass

    async def _repeat(
        self, seconds: float, work: Callable[[], Coroutine[Any, Any, None]]
    ) -> None:
        """Do some work again and again; no error ends it."""
        while not self._closing.is_set():
            wait = seconds
            try:
                await work()
            except DatabaseUnavailableError as error:
                self._log_unavailable(error)
                wait = RETRY_INTERVAL
            except Exception:  # noqa: BLE001 - whatever it is, the runs of other callers must go on
                _log.exception(
                    "The work on background runs failed unexpectedly and goes on."
                )
                wait = RETRY_INTERVAL
            if wait:
                await self._pause(wait)

    async def _pause(self, seconds: float) -> None:
        """Wait some seconds, unless the worker closes."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._closing.wait()

    def _log_unavailable(self, error: DatabaseUnavailableError) -> None:
        """Log the cause once in a while."""
        if time.monotonic() - self._logged_at <= LOG_INTERVAL:
            return
        self._logged_at = time.monotonic()
        # without the traceback, which has ten thousand characters of the driver
        explained = explain_database_error(error.__cause__ or error)
        _log.error("%s %s", explained.message, explained.suggestion)


def _webhook_mode(settings: Settings) -> WebhookMode | None:
    """What the webhook is told of runs; None if there is none."""
    if settings.webhook is None:
        return None
    if settings.webhook_content:
        return "content"
    return "status"


async def _end(tasks: Collection[asyncio.Task[Any]], seconds: float) -> None:
    """Wait some seconds for tasks to end, and cancel those that do not: a transaction is better not cut off."""
    _, late = await asyncio.wait(tasks, timeout=seconds)
    for task in late:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
