"""The store of background runs: one set of SQL statements for SQLite and PostgreSQL, in short transactions.

A process holds its runs by a lease that it renews. Each attempt of a run has a number, and what an attempt writes is
refused once there is a later one: a process that was thought dead cannot harm a run that another one has taken over.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import (
    RowMapping,
    bindparam,
    case,
    delete,
    exists,
    func,
    select,
    tuple_,
    update,
)
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.engine import URL
from sqlalchemy.sql.elements import ColumnElement

from podwright_service.background.database import Database
from podwright_service.background.tables import (
    ENDED,
    OPEN,
    RESUMABLE,
    UNSUCCESSFUL,
    is_open,
    is_unsuccessful,
    run_events,
    runs,
    workers,
)
from podwright_service.http.problems import run_problem
from podwright_service.http.schemas import RunStatus

LEASE_SECONDS = 15.0
"""Seconds after which a run whose process is silent is taken over."""
RECENT_SECONDS = 10.0
"""Seconds since the last renewal of a lease within which the database was not away for long."""
StoredRun = RowMapping
"""A row of the runs, by column."""


def new_run_id() -> str:
    """An id of 32 hexadecimal digits that begins with the time, as in UUIDs of version 7.

    So new rows are beside each other in the indexes, which otherwise slow down as they grow.
    """
    return f"{time.time_ns() // 1_000_000:012x}{os.urandom(10).hex()}"


@dataclass(frozen=True, slots=True)
class AttemptUpdate:
    """What an attempt of a run adds to the store."""

    run_id: str
    attempt: int
    events: Sequence[tuple[int, dict[str, Any]]] = ()
    """Numbers and data of its new events."""
    values: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """Columns of the run that change, such as its status at the end of the attempt."""


class RunStore:
    """The runs in a database.

    Args:
        url: The URL of the database, as `database_url` returns it.
    """

    def __init__(self, url: URL) -> None:
        self._database = Database(url)
        self._insert = sqlite.insert if self._database.is_sqlite else postgresql.insert

    async def close(self) -> None:
        """Close all connections."""
        await self._database.close()

    # --- Callers ------------------------------------------------------------------------------------------------------

    async def add(self, run: Mapping[str, Any], worker: str | None = None) -> StoredRun:
        """Add a run, or return the one that has its idempotency key.

        Args:
            run: `id`, `component`, `digest`, `request`, and with an idempotency key also that and its `fingerprint`.
            worker: The process that performs it at once; None has it wait for one.
        """
        now = self._database.now()
        row = dict(run)
        times = {"created_at": now, "queued_at": now}
        if worker is not None:
            row |= {"status": "running", "attempt": 1, "worker": worker}
            times["started_at"] = now
        statement = self._insert(runs).values(times)
        statement = statement.on_conflict_do_nothing(
            index_elements=["component", "idempotency_key"]
        )
        async with self._database.transaction() as connection:
            added = (
                (await connection.execute(statement.returning(runs), row))
                .mappings()
                .first()
            )
            if added is not None:
                return added
            same_key = (runs.c.component == run["component"]) & (
                runs.c.idempotency_key == run.get("idempotency_key")
            )
            known = select(runs).where(same_key)
            return (await connection.execute(known)).mappings().one()

    async def get(self, run_id: str) -> StoredRun | None:
        """A run by its id."""
        async with self._database.transaction() as connection:
            return (
                (await connection.execute(select(runs).where(runs.c.id == run_id)))
                .mappings()
                .first()
            )

    async def page(
        self,
        statuses: Sequence[RunStatus],
        component: str | None,
        before: tuple[float, str] | None,
        size: int,
    ) -> Sequence[StoredRun]:
        """Runs, newest first.

        Args:
            statuses: Only runs with one of these; all if there are none.
            component: Only runs of this component.
            before: Time of creation and id of the last run of the page before.
            size: How many.
        """
        # which may be megabytes
        shown = [column for column in runs.c if column is not runs.c.request]
        query = (
            select(*shown)
            .order_by(runs.c.created_at.desc(), runs.c.id.desc())
            .limit(size)
        )
        if statuses:
            query = query.where(runs.c.status.in_(statuses))
            for condition, its_statuses in (
                (is_open, OPEN),
                (is_unsuccessful, UNSUCCESSFUL),
            ):
                if set(statuses) <= set(its_statuses):
                    query = query.where(condition)
        if component is not None:
            query = query.where(runs.c.component == component)
        if before is not None:
            query = query.where(tuple_(runs.c.created_at, runs.c.id) < tuple_(*before))
        async with self._database.transaction() as connection:
            return (await connection.execute(query)).mappings().all()

    async def status(self, run_id: str) -> RunStatus | None:
        """The status of a run."""
        async with self._database.transaction() as connection:
            return (
                await connection.execute(
                    select(runs.c.status).where(runs.c.id == run_id)
                )
            ).scalar()

    async def events(
        self, run_id: str, after: int = -1, most: int | None = None
    ) -> Sequence[tuple[int, dict[str, Any]]]:
        """Events of a run, with their numbers.

        Args:
            run_id: The run.
            after: Number of the last event that is known; -1 begins with the first.
            most: How many at most; None is all.
        """
        columns = run_events.c
        query = select(columns.seq, columns.event).where(
            columns.run_id == run_id, columns.seq > after
        )
        async with self._database.transaction() as connection:
            rows = await connection.execute(query.order_by(columns.seq).limit(most))
            return [(row.seq, row.event) for row in rows]

    async def cancel(self, run_id: str) -> StoredRun | None:
        """Cancel a run: at once if no process performs it, else have that process do so."""
        waiting = runs.c.status.in_(("queued", "waiting_for_approval", "interrupted"))
        cancel_now = {
            "status": "cancelled",
            "ended_at": self._database.now(),
            "problem": cancelled_problem(run_id),
        }
        return await self._change(
            run_id,
            (waiting, cancel_now),
            (runs.c.status == "running", {"cancel_requested": True}),
        )

    async def decide(
        self, run_id: str, attempt: int, decision: Mapping[str, Any]
    ) -> StoredRun | None:
        """Approve or reject what a run waits for.

        Args:
            run_id: The run.
            attempt: The attempt that ended in the wait.
            decision: `approved`, `comment`, and the `caller` who decides.

        Returns:
            The run as it is now; None if it does not wait in that attempt, and the caller has not decided so before.
        """
        decision = {**decision, "attempt": attempt}
        async with self._database.transaction() as connection:
            is_run = runs.c.id == run_id
            run = (
                (await connection.execute(select(runs).where(is_run).with_for_update()))
                .mappings()
                .first()
            )
            if run is None:
                return None
            if run["status"] != "waiting_for_approval" or run["attempt"] != attempt:
                repeated = any(
                    decision.items() <= known.items() for known in run["decisions"]
                )
                return run if repeated else None
            if decision["approved"]:
                values = self._queued()
            else:
                problem = _rejected_problem(run_id, decision["comment"])
                values = {
                    "status": "cancelled",
                    "ended_at": self._database.now(),
                    "problem": problem,
                }
            values["decisions"] = [
                *run["decisions"],
                {**run["approval"], **decision, "at": time.time()},
            ]
            changed = update(runs).where(is_run).values(values).returning(runs)
            return (await connection.execute(changed)).mappings().first()

    async def resume(self, run_id: str) -> StoredRun | None:
        """Have a run that failed or was interrupted go on."""
        values = {
            "ended_at": None,
            "problem": None,
            "cancel_requested": False,
            **self._queued(),
        }
        # who resumes a run that failed has not been told of tool calls whose end is unknown
        values["repeat_calls"] = runs.c.status == "interrupted"
        return await self._change(run_id, (runs.c.status.in_(RESUMABLE), values))

    def _queued(self) -> dict[str, Any]:
        return {"status": "queued", "queued_at": self._database.now()}

    async def _change(
        self, run_id: str, *changes: tuple[ColumnElement[bool], Mapping[str, Any]]
    ) -> StoredRun | None:
        """Apply the first change whose condition holds; None if none does."""
        async with self._database.transaction() as connection:
            # locked, because between two statements the run could go from one condition to another
            await connection.execute(
                select(runs.c.id).where(runs.c.id == run_id).with_for_update()
            )
            for condition, values in changes:
                statement = (
                    update(runs)
                    .where(runs.c.id == run_id, condition)
                    .values(values)
                    .returning(runs)
                )
                if (
                    changed := (await connection.execute(statement)).mappings().first()
                ) is not None:
                    return changed
        return None

    # --- Processes that perform runs ----------------------------------------------------------------------------------

    async def claim(
        self, worker: str, component: str, digest: str, most: int
    ) -> Sequence[StoredRun]:
        """Take over runs that wait for a process, oldest first.

        Args:
            worker: The process that takes them.
            component: What it serves.
            digest: Digest of its blueprint.
            most: How many at most.
        """
        return await self._take(
            worker, component, digest, most, runs.c.status == "queued", takeovers=0
        )

    async def claim_orphans(
        self,
        worker: str,
        component: str,
        digest: str,
        most: int,
        unknown: Collection[str],
    ) -> Sequence[StoredRun]:
        """Take over runs of processes that are silent, oldest first.

        Args:
            worker: The process that takes them.
            component: What it serves.
            digest: Digest of its blueprint.
            most: How many at most.
            unknown: Runs that it holds without performing them, which are taken again.
        """
        now = self._database.now()
        is_held = exists().where(
            workers.c.id == runs.c.worker, workers.c.lease_until >= now
        )
        is_orphan = (runs.c.worker == worker) & runs.c.id.in_(unknown)
        if self._database.seconds_reached() > LEASE_SECONDS:
            # not before, because after an outage of the database the others have to renew their leases first
            is_orphan |= ~is_held & (runs.c.worker != worker)
        is_orphan &= runs.c.status == "running"
        return await self._take(
            worker, component, digest, most, is_orphan, takeovers=runs.c.takeovers + 1
        )

    async def _take(
        self,
        worker: str,
        component: str,
        digest: str,
        most: int,
        which: ColumnElement[bool],
        takeovers: Any,
    ) -> Sequence[StoredRun]:
        candidates = (
            select(runs.c.id)
            .where(
                is_open, runs.c.component == component, runs.c.digest == digest, which
            )
            .order_by(runs.c.created_at)
            .limit(most)
        )
        chosen = candidates.with_for_update(skip_locked=True, of=runs).cte("chosen")
        statement = (
            update(runs)
            .where(runs.c.id.in_(select(chosen.c.id)))
            .values(
                status="running",
                attempt=runs.c.attempt + 1,
                takeovers=takeovers,
                worker=worker,
                started_at=func.coalesce(runs.c.started_at, self._database.now()),
            )
            .returning(runs)
        )
        async with self._database.transaction() as connection:
            return (await connection.execute(statement)).mappings().all()

    async def join(self, worker: str, component: str) -> None:
        """Begin to perform runs as a process that is new; runs of dead processes may be taken over at once.

        Only if some process has renewed its lease recently: else the database may just be back after an outage.
        """
        async with self._database.transaction() as connection:
            left = await connection.scalar(
                select(func.max(workers.c.lease_until) - self._database.now())
            )
        if left is not None and left > LEASE_SECONDS - RECENT_SECONDS:
            self._database.reached_since = -math.inf
        await self.renew(worker, component)

    async def renew(self, worker: str, component: str) -> dict[str, tuple[int, bool]]:
        """Renew the lease of a process on its runs: attempt, and whether it is to be cancelled, by run."""
        until = self._database.now() + LEASE_SECONDS
        lease = self._insert(workers).values(id=worker, lease_until=until)
        lease = lease.on_conflict_do_update(
            index_elements=["id"], set_={"lease_until": until}
        )
        query = select(runs.c.id, runs.c.attempt, runs.c.cancel_requested)
        async with self._database.transaction() as connection:
            await connection.execute(lease)
            is_held = (
                (runs.c.component == component)
                & (runs.c.status == "running")
                & (runs.c.worker == worker)
            )
            rows = await connection.execute(query.where(is_open, is_held))
            return {row.id: (row.attempt, row.cancel_requested) for row in rows}

    async def release_lease(self, worker: str) -> None:
        """End the lease of a process."""
        async with self._database.transaction() as connection:
            await connection.execute(delete(workers).where(workers.c.id == worker))

    async def write(self, updates: Iterable[AttemptUpdate]) -> set[str]:
        """Write what attempts have to add, in one transaction; writing the same again changes nothing.

        Returns:
            The runs that these attempts no longer hold, of which nothing was written.
        """
        superseded = set[str]()
        rows = list[dict[str, Any]]()
        async with self._database.transaction() as connection:
            # an order in which no transactions deadlock
            for each in sorted(updates, key=lambda each: each.run_id):
                values = {
                    "held_id": each.run_id,
                    "held_attempt": each.attempt,
                    **each.values,
                }
                if each.events:
                    values["seq"] = each.events[-1][0] + 1
                statement = _UPDATE_HELD
                # if it was cancelled meanwhile, it ends at its turn
                if values.get("status") == "waiting_for_approval":
                    status = case(
                        (runs.c.cancel_requested, "queued"), else_=values.pop("status")
                    )
                    statement = statement.values(
                        status=status, queued_at=self._database.now()
                    )
                if time_column := _TIME_OF_STATUS.get(str(values.get("status"))):
                    statement = statement.values({time_column: self._database.now()})
                if (await connection.execute(statement, values)).first() is None:
                    superseded.add(each.run_id)
                else:
                    rows += [
                        {"run_id": each.run_id, "seq": seq, "event": data}
                        for seq, data in each.events
                    ]
            if rows:
                await connection.execute(
                    self._insert(run_events).on_conflict_do_nothing(), rows
                )
        return superseded

    async def counts(self, component: str) -> dict[str, tuple[int, float]]:
        """Open runs of a component by status: how many, and the seconds since the longest waiting one was queued."""
        query = (
            select(
                runs.c.status,
                func.count(),
                self._database.now() - func.min(runs.c.queued_at),
            )
            .where(is_open, runs.c.component == component)
            .group_by(runs.c.status)
        )
        async with self._database.transaction() as connection:
            by_status = {
                status: (count, float(age))
                for status, count, age in await connection.execute(query)
            }
        return {status: by_status.get(status, (0, 0.0)) for status in OPEN}

    async def delete_ended(self, component: str, seconds: float) -> int:
        """Delete old leases, and the runs of a component that ended at least some seconds ago; returns how many."""
        now = self._database.now()
        before = now - seconds
        is_old = (
            (runs.c.component == component)
            & runs.c.status.in_(ENDED)
            & (runs.c.ended_at < before)
        )
        # what ended then was created before: an index has that
        old = (
            select(runs.c.id)
            .where(is_old, runs.c.created_at < before)
            .order_by(runs.c.created_at)
            .limit(1000)
        )
        # another process may delete at the same time
        old = old.with_for_update(skip_locked=True)
        async with self._database.transaction() as connection:
            await connection.execute(
                delete(workers).where(workers.c.lease_until < now - LEASE_SECONDS)
            )
            ids = (await connection.execute(old)).scalars().all()
            if ids:
                await connection.execute(
                    delete(run_events).where(run_events.c.run_id.in_(ids))
                )
                await connection.execute(delete(runs).where(runs.c.id.in_(ids)))
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
    .returning(runs.c.id)
)
"""Changes the run `held_id` unless another attempt than `held_attempt` has begun."""


def cancelled_problem(run_id: str) -> dict[str, Any]:
    """The problem of a run that a caller cancelled."""
    return run_problem(
        run_id,
        503,
        "run_cancelled",
        "The run was cancelled by a caller.",
        "Start another run.",
    )


def _rejected_problem(run_id: str, comment: str) -> dict[str, Any]:
    detail = f"The run was rejected: {comment}" if comment else "The run was rejected."
    return run_problem(run_id, 409, "approval_rejected", detail, "Start another run.")
