"""The store of background runs: one set of SQL statements for SQLite and PostgreSQL, in short transactions.

A process holds its runs by a lease that it renews. Each attempt of a run has a number, and what an attempt writes is
refused once there is a later one: a process that was thought dead cannot harm a run that another one has taken over.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import math
import time
from collections.abc import AsyncGenerator, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from alembic import command
from alembic.config import Config
from psycopg.errors import UndefinedColumn, UndefinedTable
from sqlalchemy import (
    RowMapping,
    bindparam,
    case,
    create_engine,
    delete,
    event,
    exists,
    func,
    literal_column,
    select,
    update,
)
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError, DataError, SQLAlchemyError
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, create_async_engine
from sqlalchemy.sql.elements import ColumnElement

from podwright.errors import ConfigurationError
from podwright.json_data import to_json_bytes
from podwright_service.background.tables import ENDED, RESUMABLE, Status, metadata, run_events, runs, workers
from podwright_service.problems import RequestError, run_problem

LEASE = 15.0
"""Seconds after which a run whose process is silent is taken over."""
TIMEOUT = 10.0
"""Seconds that a transaction may take."""
MAX_EVENTS = 500
"""Most events that are read at once."""

StoredRun = RowMapping
"""A row of the runs, by column."""


@dataclass(frozen=True, slots=True)
class Entry:
    """What an attempt of a run adds to the store."""

    run_id: str
    attempt: int
    events: Sequence[tuple[int, dict[str, Any]]] = ()
    """Numbers and data of its new events."""
    values: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """Columns of the run that change, such as its status at the end of the attempt."""


class DatabaseAwayError(RequestError):
    """The database cannot be used at present: 503.

    Args:
        detail: What is wrong.
        suggestion: What to do about it.
    """

    def __init__(self, detail: str, suggestion: str) -> None:
        super().__init__(503, "runs_unavailable", detail, suggestion, {"retry-after": "5"})


class RunStore:
    """The runs in a database.

    Args:
        url: The URL of the database, as `database_url` returns it.
    """

    def __init__(self, url: URL) -> None:
        self._engine = _engine(url)
        is_sqlite = self._engine.dialect.name == "sqlite"
        self._insert = sqlite.insert if is_sqlite else postgresql.insert
        # the clock of the database, because those of several machines differ; SQLite is on this machine
        self._now: Any = None if is_sqlite else literal_column("extract(epoch from clock_timestamp())")

        self._reached_since: float | None = -math.inf
        """When the database was reached again; None while it is away."""

    async def close(self) -> None:
        """Close all connections."""
        await self._engine.dispose()

    @contextlib.asynccontextmanager
    async def _transaction(self) -> AsyncGenerator[AsyncConnection]:
        """A transaction.

        Raises:
            DatabaseAwayError: The database cannot be reached, or has no tables.
            RequestError: 422: it cannot compare its values with one of the request.
        """
        try:
            async with asyncio.timeout(TIMEOUT), self._engine.begin() as connection:
                yield connection
            if self._reached_since is None:
                self._reached_since = time.monotonic()
        except (DataError, OverflowError) as error:  # such as a text with a NUL
            detail = "The request has a value that the database of background runs cannot look for."
            raise RequestError(422, "request_invalid", detail) from error
        except (SQLAlchemyError, OSError, TimeoutError) as error:
            if isinstance(getattr(error, "orig", None), UndefinedTable | UndefinedColumn):
                detail = "The database of background runs does not have the tables of this release."
                raise DatabaseAwayError(detail, "Run `podwright runs migrate`.") from error
            self._reached_since = None
            detail = "The database of background runs cannot be reached."
            raise DatabaseAwayError(detail, "Try again after the seconds in the header 'Retry-After'.") from error

    def _time(self) -> Any:
        return time.time() if self._now is None else self._now

    # --- Callers ------------------------------------------------------------------------------------------------------

    async def add(self, run: Mapping[str, Any], worker: str | None = None) -> StoredRun:
        """Add a run, or return the one that has its idempotency key.

        Args:
            run: `id`, `component`, `digest`, `request`, `idempotency_key` and `fingerprint`.
            worker: The process that performs it at once; None has it wait for one.
        """
        now = self._time()
        row, times = {**_NEW_RUN, **run}, {"created_at": now}
        if worker is not None:
            row |= {"status": "running", "attempt": 1, "worker": worker}
            times["started_at"] = now
        statement = self._insert(runs).values(times).on_conflict_do_nothing(index_elements=["idempotency_key"])
        async with self._transaction() as connection:
            added = (await connection.execute(statement.returning(runs), row)).mappings().first()
            if added is not None:
                return added
            known = select(runs).where(runs.c.idempotency_key == run["idempotency_key"])
            return (await connection.execute(known)).mappings().one()

    async def get(self, run_id: str) -> StoredRun | None:
        """A run by its id."""
        async with self._transaction() as connection:
            return (await connection.execute(select(runs).where(runs.c.id == run_id))).mappings().first()

    async def page(
        self, statuses: Sequence[Status], component: str | None, before: tuple[float, str] | None, size: int
    ) -> Sequence[StoredRun]:
        """Runs, newest first.

        Args:
            statuses: Only runs with one of these; all if there are none.
            component: Only runs of this component.
            before: Time of creation and id of the last run of the page before.
            size: How many.
        """
        query = select(runs).order_by(runs.c.created_at.desc(), runs.c.id.desc()).limit(size)
        if statuses:
            query = query.where(runs.c.status.in_(statuses))
        if component is not None:
            query = query.where(runs.c.component == component)
        if before is not None:
            at, run_id = before
            older = (runs.c.created_at < at) | ((runs.c.created_at == at) & (runs.c.id < run_id))
            query = query.where(older)
        async with self._transaction() as connection:
            return (await connection.execute(query)).mappings().all()

    async def events(self, run_id: str, after: int) -> Sequence[tuple[int, dict[str, Any]]]:
        """The next events of a run, at most `MAX_EVENTS`, with their numbers.

        Args:
            run_id: The run.
            after: Number of the last event that is known; -1 begins with the first.
        """
        columns = run_events.c
        query = select(columns.seq, columns.event).where(columns.run_id == run_id, columns.seq > after)
        async with self._transaction() as connection:
            rows = await connection.execute(query.order_by(columns.seq).limit(MAX_EVENTS))
            return [(row.seq, row.event) for row in rows]

    async def cancel(self, run_id: str) -> StoredRun | None:
        """Cancel a run: at once if no process performs it, else have that process do so."""
        waiting = runs.c.status.in_(("queued", "waiting_for_approval"))
        now = {"status": "cancelled", "ended_at": self._time(), "problem": cancelled(run_id)}
        return await self._change(run_id, (waiting, now), (runs.c.status == "running", {"cancel_requested": True}))

    async def decide(self, run_id: str, attempt: int, decision: Mapping[str, Any]) -> StoredRun | None:
        """Approve or reject what a run waits for.

        Args:
            run_id: The run.
            attempt: The attempt that ended in the wait.
            decision: `approved` and `comment`.
        """
        async with self._transaction() as connection:
            waits = (runs.c.id == run_id) & (runs.c.status == "waiting_for_approval") & (runs.c.attempt == attempt)
            query = select(runs.c.decisions, runs.c.approval).where(waits).with_for_update()
            row = (await connection.execute(query)).first()
            if row is None:
                return None
            entry = {**row.approval, **decision, "at": time.time()}
            values: dict[str, Any] = {"status": "queued", "decisions": [*row.decisions, entry]}
            if not decision["approved"]:
                problem = _rejected(run_id, decision["comment"])
                values |= {"status": "cancelled", "ended_at": self._time(), "problem": problem}
            changed = update(runs).where(waits).values(values).returning(runs)
            return (await connection.execute(changed)).mappings().first()

    async def resume(self, run_id: str) -> StoredRun | None:
        """Have a run that failed or was interrupted go on."""
        values = {
            "status": "queued",
            "ended_at": None,
            "problem": None,
            "repeat_calls": True,
            "cancel_requested": False,
        }
        return await self._change(run_id, (runs.c.status.in_(RESUMABLE), values))

    async def _change(self, run_id: str, *changes: tuple[ColumnElement[bool], Mapping[str, Any]]) -> StoredRun | None:
        """Apply the first change whose condition holds; None if none does."""
        async with self._transaction() as connection:
            for condition, values in changes:
                statement = update(runs).where(runs.c.id == run_id, condition).values(values).returning(runs)
                if (changed := (await connection.execute(statement)).mappings().first()) is not None:
                    return changed
        return None

    # --- Processes that perform runs ----------------------------------------------------------------------------------

    async def claim(self, worker: str, digest: str, most: int, performed: Collection[str]) -> Sequence[StoredRun]:
        """Take over runs that nobody performs, oldest first: new ones, and those of processes that are silent.

        Args:
            worker: The process that takes them.
            digest: Digest of the blueprint that it serves.
            most: How many at most.
            performed: The runs that it performs. Others that it holds are those of a claim whose response was lost.
        """
        now = self._time()
        is_held = exists().where(workers.c.id == runs.c.worker, workers.c.lease_until >= now)
        is_running = runs.c.status == "running"
        free = (runs.c.status == "queued") | (is_running & (runs.c.worker == worker) & runs.c.id.not_in(performed))
        if self._reached_since is not None and time.monotonic() - self._reached_since > LEASE:
            # not before, because after an outage of the database the others have to renew their leases first
            free |= is_running & ~is_held
        candidates = select(runs.c.id).where(free, runs.c.digest == digest).order_by(runs.c.created_at).limit(most)
        chosen = candidates.with_for_update(skip_locked=True, of=runs).cte("chosen")
        statement = (
            update(runs)
            .where(runs.c.id.in_(select(chosen.c.id)))
            .values(
                status="running",
                attempt=runs.c.attempt + 1,
                takeovers=case((is_running, runs.c.takeovers + 1), else_=0),
                worker=worker,
                started_at=func.coalesce(runs.c.started_at, now),
            )
            .returning(runs)
        )
        async with self._transaction() as connection:
            return (await connection.execute(statement)).mappings().all()

    async def renew(self, worker: str) -> dict[str, tuple[int, bool]]:
        """Renew the lease of a process on its runs: attempt, and whether it is to be cancelled, by run."""
        until = self._time() + LEASE
        lease = self._insert(workers).values(id=worker, lease_until=until)
        lease = lease.on_conflict_do_update(index_elements=["id"], set_={"lease_until": until})
        query = select(runs.c.id, runs.c.attempt, runs.c.cancel_requested)
        async with self._transaction() as connection:
            await connection.execute(lease)
            rows = await connection.execute(query.where(runs.c.worker == worker, runs.c.status == "running"))
            return {row.id: (row.attempt, row.cancel_requested) for row in rows}

    async def leave(self, worker: str) -> None:
        """End the lease of a process."""
        async with self._transaction() as connection:
            await connection.execute(delete(workers).where(workers.c.id == worker))

    async def write(self, entries: Iterable[Entry]) -> set[str]:
        """Write what attempts have to add, in one transaction; writing the same again changes nothing.

        Returns:
            The runs that another attempt has taken over, of which nothing was written.
        """
        refused, rows = set[str](), list[dict[str, Any]]()
        async with self._transaction() as connection:
            for entry in sorted(entries, key=lambda entry: entry.run_id):  # in one order, so that none wait in a circle
                values = {"held_id": entry.run_id, "held_attempt": entry.attempt, **entry.values}
                if entry.events:
                    values["seq"] = entry.events[-1][0] + 1
                has_ended = values.get("status") in ENDED
                statement = _UPDATE_HELD.values(ended_at=self._time()) if has_ended else _UPDATE_HELD
                if (await connection.execute(statement, values)).first() is None:
                    refused.add(entry.run_id)
                else:
                    rows += [
                        {"run_id": entry.run_id, "seq": seq, "attempt": entry.attempt, "event": data}
                        for seq, data in entry.events
                    ]
            if rows:
                await connection.execute(self._insert(run_events).on_conflict_do_nothing(), rows)
        return refused

    async def recorded(self, run_id: str) -> Sequence[dict[str, Any]]:
        """All events of a run so far."""
        query = select(run_events.c.event).where(run_events.c.run_id == run_id).order_by(run_events.c.seq)
        async with self._transaction() as connection:
            return (await connection.execute(query)).scalars().all()

    async def counts(self, component: str) -> dict[str, tuple[int, float]]:
        """How many runs of a component have not ended well, and the age of the oldest in seconds, by status."""
        open_statuses = ("queued", "running", "waiting_for_approval", "interrupted")
        query = (
            select(runs.c.status, func.count(), self._time() - func.min(runs.c.created_at))
            .where(runs.c.component == component, runs.c.status.in_(open_statuses))
            .group_by(runs.c.status)
        )
        async with self._transaction() as connection:
            found = {status: (count, float(age)) for status, count, age in await connection.execute(query)}
        return {status: found.get(status, (0, 0.0)) for status in open_statuses}

    async def delete_ended(self, seconds: float) -> int:
        """Delete the runs that ended at least some seconds ago, with their events, and return how many."""
        now = self._time()
        old = select(runs.c.id).where(runs.c.status.in_(ENDED), runs.c.ended_at < now - seconds).limit(1000)
        old = old.with_for_update(skip_locked=True)  # another process may delete at the same time
        async with self._transaction() as connection:
            await connection.execute(delete(workers).where(workers.c.lease_until < now - LEASE))
            ids = (await connection.execute(old)).scalars().all()
            if ids:
                await connection.execute(delete(run_events).where(run_events.c.run_id.in_(ids)))
                await connection.execute(delete(runs).where(runs.c.id.in_(ids)))
        return len(ids)


_NEW_RUN: Mapping[str, Any] = {
    "status": "queued",
    "attempt": 0,
    "takeovers": 0,
    "seconds": 0.0,
    "cancel_requested": False,
    "repeat_calls": False,
    "decisions": [],
    "seq": 0,
    "usage": {},
}
_UPDATE_HELD = (
    update(runs)
    .where(runs.c.id == bindparam("held_id"), runs.c.attempt == bindparam("held_attempt"), runs.c.status == "running")
    .returning(runs.c.id)
)
"""Changes the run `held_id` unless another attempt than `held_attempt` has begun."""


def cancelled(run_id: str) -> dict[str, Any]:
    """The problem of a run that a caller cancelled."""
    return run_problem(run_id, 503, "run_cancelled", "The run was cancelled by a caller.", "Start another run.")


def _rejected(run_id: str, comment: str) -> dict[str, Any]:
    detail = f"The run was rejected: {comment}" if comment else "The run was rejected."
    return run_problem(run_id, 409, "approval_rejected", detail, "Start another run.")


def database_url(text: str) -> URL:
    """The URL of a database, with the driver that is used for it.

    Raises:
        ConfigurationError: It is neither a SQLite nor a PostgreSQL URL. The message does not repeat it.
    """
    drivers = {"sqlite": "sqlite+aiosqlite", "postgresql": "postgresql+psycopg", "postgres": "postgresql+psycopg"}
    try:
        url = make_url(text)
        if (driver := drivers.get(url.drivername)) is None or not url.database:
            raise ArgumentError
    except (ArgumentError, ValueError):
        raise ConfigurationError(
            "PODWRIGHT_RUNS_DATABASE: Expected the URL of a database.",
            suggestion="Write sqlite:////data/runs.db or postgresql://user:password@host/name.",
        ) from None
    return url.set(drivername=driver)


def migrate(url: URL) -> None:
    """Create the tables, or bring those of an earlier release up to date.

    Raises:
        ConfigurationError: The database cannot be reached or changed.
    """
    config = Config()
    config.set_main_option("script_location", str(Path(__file__).with_name("migrations")))
    try:
        engine = create_engine(url.set(drivername=url.drivername.replace("+aiosqlite", "")))
        try:
            with engine.begin() as connection:
                if engine.dialect.name == "postgresql":  # several pods may start at once
                    connection.exec_driver_sql("SELECT pg_advisory_xact_lock(7240117)")
                config.attributes.update(connection=connection, metadata=metadata)
                command.upgrade(config, "head")
        finally:
            engine.dispose()
    except (SQLAlchemyError, OSError) as error:
        reason = str(getattr(error, "orig", None) or error).strip().partition("\n")[0]
        raise ConfigurationError(
            f"The database of background runs cannot be used: {reason}.",
            suggestion="Check PODWRIGHT_RUNS_DATABASE, and that this user may create tables or files there.",
        ) from None


def _engine(url: URL) -> AsyncEngine:
    """An engine with the settings that a store needs."""
    options: dict[str, Any] = {
        "json_serializer": _to_json,
        "json_deserializer": json.loads,  # unlike orjson, it reads the lone surrogates that a model may write
    }
    if url.drivername.startswith("sqlite"):
        engine = create_async_engine(url, connect_args={"timeout": TIMEOUT, "isolation_level": "IMMEDIATE"}, **options)
        event.listen(engine.sync_engine, "connect", _set_up_sqlite)
        return engine
    connect_args = {"connect_timeout": 5}
    return create_async_engine(
        url, pool_size=8, max_overflow=0, pool_timeout=TIMEOUT, connect_args=connect_args, **options
    )


def _to_json(data: Any) -> str:
    return to_json_bytes(data).decode()


def _set_up_sqlite(connection: Any, _: object) -> None:
    cursor = connection.cursor()
    for pragma in ("journal_mode=WAL", "synchronous=FULL"):
        cursor.execute(f"PRAGMA {pragma}")
    cursor.close()
