"""The store of background runs: one set of SQL statements for SQLite and PostgreSQL, in short transactions.

A process holds its runs by a lease that it renews. Each attempt of a run has a number, and what an attempt writes is
refused once there is a later one: a process that was thought dead cannot harm a run that another one has taken over.
"""

from __future__ import annotations

import math
import time
from collections.abc import (
    Collection,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from sqlalchemy import (
    Executable,
    bindparam,
    case,
    delete,
    exists,
    false,
    func,
    select,
    update,
)
from sqlalchemy.engine import URL
from sqlalchemy.sql.elements import ColumnElement

from podwright.connection.schemas import ENDED
from podwright_service.background.caller_runs import (
    Access,
    CallerRuns,
    StoredRun,
    cancelled_columns,
    events_in,
    queued_columns,
)
from podwright_service.background.delivery.outbox import Outbox, WebhookMode
from podwright_service.background.kept.conversations import KeptConversations
from podwright_service.background.kept.queue import TurnQueue
from podwright_service.background.storage.clock import TOLERANCE, DatabaseClock
from podwright_service.background.storage.database import Database, Transaction
from podwright_service.background.storage.kept_blueprints import KeptBlueprints
from podwright_service.background.storage.kept_states import KeptStates
from podwright_service.background.storage.tables import (
    OPEN,
    is_open,
    run_events,
    runs,
    workers,
)
from podwright_service.conversations.values import (
    DEFAULT_LIMITS,
    ConversationLimits,
    EndedTurn,
    NewTurn,
    Place,
    SavedTurn,
)
from podwright_service.saved_states import SavedState

LEASE_SECONDS = 15.0
"""Seconds after which a run whose process is silent is taken over."""
RECENT_SECONDS = 10.0
"""If a lease was renewed within these seconds, the database was not away for long."""


class RunCount(NamedTuple):
    """The open runs of a component that have a status."""

    number: int = 0
    age: float = 0.0
    """Seconds since the longest waiting one was queued."""
    unserved: int = 0
    """Those of them with a blueprint that no process has."""


@dataclass(frozen=True, slots=True)
class AttemptUpdate:
    """What an attempt of a run adds to the store."""

    run_id: str
    attempt: int
    events: Sequence[tuple[int, dict[str, Any]]] = ()
    """Numbers and data of its new events."""
    values: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """Columns of the run that change, such as its status at the end of the attempt."""
    turn: EndedTurn | None = None
    """What the run adds to its conversation, with that status."""

    def event_rows(self) -> Iterator[dict[str, Any]]:
        """The new events by column."""
        for seq, data in self.events:
            yield {"run_id": self.run_id, "seq": seq, "event": data}


class RunStore:
    """The runs in a database.

    Args:
        url: The URL of the database, as `database_url` returns it.
        webhook: What the webhook is told of the runs that this process adds and claims; None if there is no webhook.
        limits: How long a conversation may get.
    """

    def __init__(
        self,
        url: URL,
        webhook: WebhookMode | None = None,
        limits: ConversationLimits = DEFAULT_LIMITS,
    ) -> None:
        self._database = Database(url)
        self._clock = DatabaseClock()
        self.outbox = Outbox(self._database)
        """The notifications of the runs."""
        self.states = KeptStates(self._database)
        """The states of stopped runs of requests."""
        self.blueprints = KeptBlueprints(self._database)
        """The blueprints of the runs."""
        self.turns = TurnQueue(self._database, self._has_ended, limits)
        """The turns of conversations."""
        self.conversations = KeptConversations(
            self._database, self.outbox, self.turns
        )
        """The conversations."""
        self._webhook = webhook

    async def close(self) -> None:
        """Close all connections."""
        await self._database.close()

    async def add(
        self,
        run: Mapping[str, Any],
        worker: str | None = None,
        state: SavedState | None = None,
        turn: NewTurn | None = None,
    ) -> StoredRun:
        """Add a run, or return the one that has its idempotency key.

        Args:
            run: The columns of the run, with an idempotency key also its `fingerprint`.
            worker: The process that performs it at once; None has it wait for one.
            state: The state from which it goes on, which is used with it.
            turn: The turn that it is, which takes its place with it; behind another one, the run waits for a process.

        Raises:
            RequestError: 409: the state was used before, or the turn cannot be taken.
        """
        now = self._database.now()
        row = {**run, "webhook": self._webhook}
        times = {"created_at": now, "queued_at": now}
        if worker is not None:
            row |= {"status": "running", "attempt": 1, "worker": worker}
            times["started_at"] = now
        statement = self._database.insert(runs).values(times)
        statement = statement.on_conflict_do_nothing(
            index_elements=["component", "idempotency_key"]
        )
        known = select(runs).where(
            runs.c.component == run["component"],
            runs.c.idempotency_key == run.get("idempotency_key"),
        )
        async with self._database.transaction() as connection:
            added = await connection.first(statement.returning(runs), row)
            if added is not None:
                if state is not None:
                    await self.states.use_in(connection, state)
                if turn is not None:
                    return await self._add_turn(connection, added, turn, state)
                return added
            result = await connection.execute(known)
            return result.mappings().one()

    async def _add_turn(
        self,
        connection: Transaction,
        run: StoredRun,
        turn: NewTurn,
        state: SavedState | None,
    ) -> StoredRun:
        """Add the turn of a new run, and return the run, which is queued if it is behind another one."""
        saved: SavedTurn | None = None
        if state is not None and state.turn is not None:
            saved = SavedTurn(**state.turn)
        if saved is not None and saved.number is not None:
            place = Place(saved.conversation, saved.number)
            await self.turns.go_on_in(connection, place, turn.run_id)
        else:
            await self.turns.join_in(connection, turn)
        behind = (
            update(runs)
            .where(runs.c.id == run["id"], self.turns.is_behind())
            .values(status="queued", attempt=0, worker=None, started_at=None)
        )
        return await connection.first(behind.returning(runs)) or run

    def runs_of(self, access: Access) -> CallerRuns:
        """The runs that a caller may see and change."""
        return CallerRuns(self._database, self.outbox, access)

    async def events(self, run_id: str) -> Sequence[tuple[int, dict[str, Any]]]:
        """All events of a run, with their numbers."""
        async with self._database.reading() as connection:
            return await events_in(connection, run_id, after=-1, most=None)

    # --- Processes that perform runs ----------------------------------------------------------------------------------

    async def claim(
        self, worker: str, component: str, digest: str, most: int
    ) -> Sequence[StoredRun]:
        """Claim queued runs of a blueprint, oldest first.

        Args:
            worker: The process that claims them.
            component: What it serves.
            digest: Digest of the blueprint: of one, because then the index has the runs in order.
            most: How many at most.
        """
        is_queued = (
            (runs.c.status == "queued")
            & (runs.c.digest == digest)
            & ~self.turns.is_behind()
        )
        return await self._claim(
            worker, component, most, which=is_queued, takeovers=0
        )

    async def claim_orphans(
        self,
        worker: str,
        component: str,
        digests: Collection[str],
        most: int,
        unconfirmed: Collection[str],
    ) -> Sequence[StoredRun]:
        """Claim runs whose process is silent, oldest first.

        Args:
            worker: The process that claims them.
            component: What it serves.
            digests: Digests of the blueprints that it can perform.
            most: How many at most.
            unconfirmed: Runs that it holds without performing them, which it claims again.
        """
        is_orphan = (runs.c.worker == worker) & runs.c.id.in_(unconfirmed)
        if self._leases_are_renewed():
            is_orphan |= self._is_silent(runs.c.worker) & (
                runs.c.worker != worker
            )
        is_orphan &= runs.c.status == "running"
        is_orphan &= runs.c.digest.in_(digests)
        takeovers = runs.c.takeovers + 1
        return await self._claim(
            worker, component, most, which=is_orphan, takeovers=takeovers
        )

    def _leases_are_renewed(self) -> bool:
        """Whether each live process has renewed its lease: a while after an outage, or after the clock was set."""
        return self._database.seconds_reached() > LEASE_SECONDS

    def _has_ended(self, worker: ColumnElement[Any]) -> ColumnElement[bool]:
        """Whether a process is known to have ended; see `_is_silent`."""
        if not self._leases_are_renewed():
            return false()
        return self._is_silent(worker)

    def _is_silent(self, worker: ColumnElement[Any]) -> ColumnElement[bool]:
        """Whether a process has let its lease run out, by a clock that was not set since its renewals.

        A lease that is longer than any is over too: it was renewed when the clock was ahead.
        """
        now = self._database.now()
        longest = now + LEASE_SECONDS + TOLERANCE
        lease = workers.c.lease_until
        has_lease = exists().where(
            workers.c.id == worker, lease.between(now, longest)
        )
        return ~has_lease & now.between(*self._clock.bounds())

    async def requeue_unserved(self, component: str) -> None:
        """Queue the runs of silent processes that no other process takes over, because none has their blueprint.

        So they can be moved. Those that a caller has cancelled end instead.

        Args:
            component: Only its runs.
        """
        if not self._leases_are_renewed():
            return
        async with self._database.transaction() as connection:
            served = await self.blueprints.served_in(connection, component)
            lost = select(runs.c.id, runs.c.cancel_requested).where(
                is_open,
                runs.c.component == component,
                runs.c.status == "running",
                runs.c.digest.not_in(served),
                self._is_silent(runs.c.worker),
            )
            # another process may do so at the same time
            locked = lost.with_for_update(skip_locked=True, of=runs)
            for run_id, is_cancelled in await connection.execute(locked):
                values = queued_columns(self._database)
                if is_cancelled:
                    values = cancelled_columns(self._database, run_id)
                statement = update(runs).where(runs.c.id == run_id)
                await connection.execute(statement.values(values))
                await self.outbox.add(connection, run_id)

    async def _claim(
        self,
        worker: str,
        component: str,
        most: int,
        *,
        which: ColumnElement[bool],
        takeovers: Any,
    ) -> Sequence[StoredRun]:
        candidates = (
            select(runs.c.id)
            .where(
                is_open,
                runs.c.component == component,
                which,
            )
            .order_by(runs.c.created_at)
            .limit(most)
        )
        chosen = candidates.with_for_update(skip_locked=True, of=runs).cte(
            "chosen"
        )
        statement = (
            update(runs)
            .where(runs.c.id.in_(select(chosen.c.id)))
            .values(
                status="running",
                attempt=runs.c.attempt + 1,
                takeovers=takeovers,
                worker=worker,
                webhook=self._webhook,
                started_at=func.coalesce(
                    runs.c.started_at, self._database.now()
                ),
            )
            .returning(runs)
        )
        async with self._database.transaction() as connection:
            return await connection.all(statement)

    async def join(self, worker: str, component: str) -> None:
        """Begin to perform runs as a process that is new; runs of dead processes may be taken over at once.

        Only if some process has renewed its lease recently: else the database may just be back after an outage.
        """
        now = self._database.now()
        lease = workers.c.lease_until
        # not one that was renewed when the clock was ahead
        is_lease = lease <= now + LEASE_SECONDS + TOLERANCE
        query = select(func.max(lease) - now).where(is_lease)
        async with self._database.reading() as connection:
            left = await connection.scalar(query)
        if left is not None and left > LEASE_SECONDS - RECENT_SECONDS:
            self._database.reached_since = -math.inf
        await self.renew(worker, component)

    async def renew(
        self, worker: str, component: str
    ) -> dict[str, tuple[int, bool]]:
        """Renew the lease of a process on its runs: attempt, and whether it is to be cancelled, by run."""
        asked_at = time.monotonic()
        until = self._database.now() + LEASE_SECONDS
        lease = self._database.insert(workers).values(
            id=worker, lease_until=until
        )
        lease = lease.on_conflict_do_update(
            index_elements=["id"], set_={"lease_until": until}
        ).returning(workers.c.lease_until)
        held = select(runs.c.id, runs.c.attempt, runs.c.cancel_requested).where(
            is_open,
            runs.c.component == component,
            runs.c.status == "running",
            runs.c.worker == worker,
        )
        async with self._database.transaction() as connection:
            renewed_until = await connection.scalar(lease)
            rows = await connection.execute(held)
            attempts = {
                row.id: (row.attempt, row.cancel_requested) for row in rows
            }
        if self._clock.note(renewed_until - LEASE_SECONDS, asked_at):
            self._database.reached_since = time.monotonic()
        return attempts

    async def release_lease(self, worker: str) -> None:
        """End the lease of a process."""
        async with self._database.transaction() as connection:
            await connection.execute(
                delete(workers).where(workers.c.id == worker)
            )

    async def write(self, updates: Iterable[AttemptUpdate]) -> set[str]:
        """Write what attempts have to add, in one transaction; writing the same again changes nothing.

        Returns:
            The runs that these attempts no longer hold, of which nothing was written.
        """
        superseded: set[str] = set()
        rows: list[dict[str, Any]] = []
        async with self._database.transaction() as connection:
            # an order in which no transactions deadlock
            for each in sorted(updates, key=lambda each: each.run_id):
                if not await self._end_turn(connection, each):
                    superseded.add(each.run_id)
                    continue
                statement, parameters = self._update_of_held(each)
                held = await connection.first(statement, parameters)
                if held is None:
                    superseded.add(each.run_id)
                    continue
                if held["webhook"] is not None and "status" in each.values:
                    await self.outbox.add(connection, each.run_id)
                rows += each.event_rows()
            if rows:
                insert = self._database.insert(
                    run_events
                ).on_conflict_do_nothing()
                await connection.execute(insert, rows)
        return superseded

    async def _end_turn(
        self, connection: Transaction, attempt: AttemptUpdate
    ) -> bool:
        """Add the turn of a run to its conversation; false if it has lost its place, or the run is held no longer."""
        if attempt.turn is None:
            return True
        held = select(runs.c.id).where(
            runs.c.id == attempt.run_id,
            runs.c.attempt == attempt.attempt,
            runs.c.status == "running",
        )
        if await connection.first(held.with_for_update()) is None:
            return False
        return await self.turns.end_in(connection, attempt.turn)

    def _update_of_held(
        self, attempt: AttemptUpdate
    ) -> tuple[Executable, Mapping[str, Any]]:
        """The statement that changes the run of an attempt, and its parameters."""
        parameters: dict[str, Any] = {
            "held_id": attempt.run_id,
            "held_attempt": attempt.attempt,
            **attempt.values,
        }
        if attempt.events:
            last_seq, _ = attempt.events[-1]
            parameters["seq"] = last_seq + 1
        now = self._database.now()
        status: Any = parameters.get("status")
        if status == "waiting_for_approval":
            del parameters["status"]
            # if it was cancelled meanwhile, it ends at its turn
            status_or_queued = case(
                (runs.c.cancel_requested, "queued"), else_=status
            )
            statement = _UPDATE_HELD.values(
                status=status_or_queued, queued_at=now
            )
        elif status in _TIME_OF_STATUS:
            statement = _UPDATE_HELD.values({_TIME_OF_STATUS[status]: now})
        else:
            statement = _UPDATE_HELD
        return statement, parameters

    async def counts(self, component: str) -> dict[str, RunCount]:
        """The open runs of a component by status."""
        now = self._database.now()
        age = now - func.min(runs.c.queued_at)
        # the index has the digests, and there are few, so each is looked up once
        by_digest = (
            select(
                runs.c.status,
                runs.c.digest,
                func.count().label("count"),
                age.label("age"),
            )
            .where(is_open, runs.c.component == component)
            .group_by(runs.c.status, runs.c.digest)
        )
        counts: dict[str, RunCount] = {}
        for status in OPEN:
            counts[status] = RunCount()
        async with self._database.reading() as connection:
            served = await self.blueprints.served_in(connection, component)
            for status, digest, number, seconds in await connection.execute(
                by_digest
            ):
                known = counts[status]
                unserved = known.unserved
                if digest not in served:
                    unserved += number
                counts[status] = RunCount(
                    known.number + number,
                    max(known.age, float(seconds)),
                    unserved,
                )
        return counts

    async def correct_times(self, component: str, seconds: float) -> None:
        """Set the times of runs to now that were created or ended in the future, when the clock was ahead.

        Args:
            component: Only those of its runs.
            seconds: For how long a run is kept after its end.
        """
        now = self._database.now()
        latest = now + TOLERANCE
        columns = runs.c
        # an index has these, and those that were created before the runs that are kept
        created_ahead = columns.created_at > latest
        ended_ahead = (
            (columns.created_at < now - seconds)
            & columns.status.in_(ENDED)
            & (columns.ended_at > latest)
        )
        times = (
            columns.created_at,
            columns.queued_at,
            columns.started_at,
            columns.ended_at,
        )
        corrected = {
            column: case((column > now, now), else_=column) for column in times
        }
        async with self._database.transaction() as connection:
            for is_ahead in (created_ahead, ended_ahead):
                found = select(columns.id).where(
                    columns.component == component, is_ahead
                )
                # another process may do so at the same time
                chosen = found.with_for_update(skip_locked=True).cte("chosen")
                statement = update(runs).where(
                    columns.id.in_(select(chosen.c.id))
                )
                await connection.execute(statement.values(corrected))
            await self.outbox.correct_times(connection, component)

    async def delete_ended(self, component: str, seconds: float) -> int:
        """Delete old leases, and the runs of a component that ended at least some seconds ago; returns how many."""
        now = self._database.now()
        before = now - seconds
        old = (
            select(runs.c.id)
            .where(
                runs.c.component == component,
                runs.c.status.in_(ENDED),
                runs.c.ended_at < before,
                # what ended then was created before: an index has that
                runs.c.created_at < before,
            )
            .order_by(runs.c.created_at)
            .limit(1000)
        )
        # another process may delete at the same time
        old = old.with_for_update(skip_locked=True)
        lease = workers.c.lease_until
        old_leases = (lease < now - LEASE_SECONDS) | (
            lease > now + 2 * LEASE_SECONDS
        )
        async with self._database.transaction() as connection:
            await connection.execute(delete(workers).where(old_leases))
            await self.outbox.remove_old(connection, component)
            await self.blueprints.remove_old(connection, component, before)
            result = await connection.execute(old)
            ids = result.scalars().all()
            if ids:
                events = run_events.c.run_id.in_(ids)
                await connection.execute(delete(run_events).where(events))
                await connection.execute(delete(runs).where(runs.c.id.in_(ids)))
                await self.outbox.forget_content(connection, ids)
        return len(ids)


_TIME_OF_STATUS: Mapping[str, str] = {
    **dict.fromkeys(ENDED, "ended_at"),
    "queued": "queued_at",
}
_UPDATE_HELD = (
    update(runs)
    .where(
        runs.c.id == bindparam("held_id"),
        runs.c.attempt == bindparam("held_attempt"),
        runs.c.status == "running",
    )
    .returning(runs.c.webhook)
)
"""Changes the run `held_id` unless another attempt than `held_attempt` has begun."""
