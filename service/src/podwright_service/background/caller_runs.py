"""The background runs that a caller may see and change: every statement is limited to a component and a caller.

Whoever decides about a run, cancels, resumes or moves it does so under a condition that still holds when the change is
made; see `podwright_service.background.storage.database`.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from sqlalchemy import (
    Executable,
    RowMapping,
    TextClause,
    select,
    tuple_,
    update,
)
from sqlalchemy.sql.elements import ColumnElement

from podwright.connection.schemas import (
    MOVABLE,
    RESUMABLE,
    RUN_CONTENTS,
    RunActionName,
    RunContent,
    RunStatus,
)
from podwright_service.background.delivery.outbox import Outbox
from podwright_service.background.storage.database import Database, Transaction
from podwright_service.background.storage.tables import (
    OPEN,
    UNSUCCESSFUL,
    is_open,
    is_unsuccessful,
    run_events,
    runs,
)
from podwright_service.http.errors.problems import stored_problem

StoredRun = RowMapping
"""A row of the runs, by column."""
_NAME = "name:"
"""Begins what identifies a caller whose API key has a name."""


class RunChange(NamedTuple):
    """What a caller has done with a run."""

    run: StoredRun
    """The run as it is now."""
    is_repeated: bool = False
    """Whether it had been done before, so that nothing has changed."""


@dataclass(frozen=True, slots=True)
class Access:
    """Which runs a caller may see and change."""

    component: str
    """Those of this component."""
    owner: str | None = None
    """Those of the caller that this identifies; None for those of all callers."""
    sees_waiting: bool = False
    """Whether also those of other callers that wait for an approval."""

    @property
    def condition(self) -> ColumnElement[bool]:
        """What holds for these runs."""
        is_own = runs.c.component == self.component
        if self.owner is None:
            return is_own
        is_seen = runs.c.owner == self.owner
        if self.owner.startswith(_NAME):
            # as older releases, and their pods during an upgrade, have stored it
            name = runs.c.origin["caller"].as_string()
            by_name = name == self.owner.removeprefix(_NAME)
            is_seen |= runs.c.owner.is_(None) & by_name
        if self.sees_waiting:
            is_seen |= runs.c.status == "waiting_for_approval"
        return is_own & is_seen

    def owns(self, run: StoredRun) -> bool:
        """Whether a run is the caller's own, or the caller has the runs of all."""
        if self.owner in (None, run["owner"]):
            return True
        origin: Mapping[str, Any] = run["origin"] or {}
        name = f"{_NAME}{origin.get('caller', '')}"
        return run["owner"] is None and self.owner == name


class CallerRuns:
    """The runs in a database that a caller may see and change.

    Args:
        database: The database.
        outbox: Its notifications.
        access: Which runs these are.
    """

    def __init__(
        self, database: Database, outbox: Outbox, access: Access
    ) -> None:
        self._database = database
        self._outbox = outbox
        self._access = access

    def _is(self, run_id: str) -> ColumnElement[bool]:
        return (runs.c.id == run_id) & self._access.condition

    async def get(self, run_id: str) -> StoredRun | None:
        """A run by its id; None if there is none that the caller may see."""
        query = select(runs).where(self._is(run_id))
        async with self._database.reading() as connection:
            return await connection.first(query)

    async def page(
        self,
        statuses: Sequence[RunStatus],
        before: tuple[float, str] | None,
        size: int,
        *,
        caller: str | None = None,
        contents: Collection[RunContent] = (),
    ) -> Sequence[StoredRun]:
        """Runs, newest first; each has the `code` of its problem, and not what it was asked to do.

        Args:
            statuses: Only runs with one of these; all if there are none.
            before: Time of creation and id of the last run of the page before.
            size: How many.
            caller: Only runs that a key with this name started.
            contents: Which of the columns that may be large are read; the others are not in the rows.
        """
        # each may be megabytes
        large = {"request", *RUN_CONTENTS} - {*contents}
        shown = [column for column in runs.c if column.name not in large]
        code = runs.c.problem["code"].as_string().label("code")
        query = (
            select(*shown, code)
            .where(self._access.condition)
            .order_by(runs.c.created_at.desc(), runs.c.id.desc())
            .limit(size)
        )
        if statuses:
            query = query.where(runs.c.status.in_(statuses))
            query = query.where(*_conditions_of_indexes(statuses))
        if caller is not None:
            query = query.where(runs.c.origin["caller"].as_string() == caller)
        if before is not None:
            place = tuple_(runs.c.created_at, runs.c.id)
            query = query.where(place < tuple_(*before))
        async with self._database.reading() as connection:
            return await connection.all(query)

    async def status(self, run_id: str) -> RunStatus | None:
        """The status of a run; None if there is none that the caller may see."""
        query = select(runs.c.status).where(self._is(run_id))
        async with self._database.reading() as connection:
            return await connection.scalar(query)

    async def events(
        self, run_id: str, after: int = -1, most: int | None = None
    ) -> Sequence[tuple[int, dict[str, Any]]]:
        """Events of a run, with their numbers.

        Args:
            run_id: The run.
            after: Number of the last event that is known; -1 begins with the first.
            most: How many at most; None is all.
        """
        async with self._database.reading() as connection:
            if await connection.first(
                select(runs.c.id).where(self._is(run_id))
            ):
                return await events_in(connection, run_id, after, most)
        return ()

    async def cancel(self, run_id: str, caller: str = "") -> RunChange | None:
        """Cancel a run: at once if no process performs it, else have that process do so; None if it has ended.

        Args:
            run_id: The run.
            caller: The name of the key that cancels it.
        """
        waiting = runs.c.status.in_(
            ("queued", "waiting_for_approval", "interrupted")
        )
        is_running = runs.c.status == "running"
        return await self._change(
            run_id,
            _action("cancel", caller),
            (waiting, cancelled_columns(self._database, run_id)),
            (
                is_running & ~runs.c.cancel_requested,
                {"cancel_requested": True},
            ),
            # its process has not seen the first request yet
            (is_running, {}),
        )

    async def decide(
        self,
        run_id: str,
        attempt: int,
        decision: Mapping[str, Any],
        *,
        goes_on: bool,
        caller: str = "",
    ) -> RunChange | None:
        """Decide about what a run waits for.

        Args:
            run_id: The run.
            attempt: The attempt that ended in the wait.
            decision: `approved`, `decision`, `comment`, `values`, and as `caller` the digest of the key that decides.
            goes_on: Whether the run goes on; if not, it ends as cancelled.
            caller: The name of that key.

        Returns:
            What has changed; None if the run does not wait in that attempt, and the key has not decided so before.
        """
        decision = {**decision, "attempt": attempt}
        async with self._database.transaction() as connection:
            is_run = self._is(run_id)
            run = await connection.first(
                select(runs).where(is_run).with_for_update()
            )
            if run is None:
                return None
            if (
                run["status"] != "waiting_for_approval"
                or run["attempt"] != attempt
            ):
                if _has_decision(run, decision):
                    return RunChange(run, is_repeated=True)
                return None
            # the name is not a part of what a repeated decision has to repeat
            named = {**decision, "caller_name": caller or None}
            values = self._decided(run, named, goes_on=goes_on)
            statement = update(runs).where(is_run).values(values)
            result = await connection.execute(statement.returning(runs))
            await self._outbox.add(connection, run_id)
            return RunChange(result.mappings().one())

    def _decided(
        self, run: StoredRun, decision: Mapping[str, Any], *, goes_on: bool
    ) -> Mapping[str, Any]:
        """The columns that a decision changes."""
        if goes_on:
            values = queued_columns(self._database)
        else:
            problem = _rejected_problem(run["id"], decision["comment"])
            values: dict[str, Any] = {
                "status": "cancelled",
                "ended_at": self._database.now(),
                "problem": problem,
            }
        decided = {**run["approval"], **decision, "at": time.time()}
        values["decisions"] = [*run["decisions"], decided]
        return values

    async def resume(self, run_id: str, caller: str = "") -> RunChange | None:
        """Have a run that failed or was interrupted go on; None if it did not, or was not.

        Args:
            run_id: The run.
            caller: The name of the key that resumes it.
        """
        values = {
            "ended_at": None,
            "problem": None,
            "cancel_requested": False,
            **queued_columns(self._database),
        }
        # only the problem of an interrupted run has told the caller of calls whose end is unknown
        values["repeat_calls"] = runs.c.status == "interrupted"
        return await self._change(
            run_id,
            _action("resume", caller),
            (runs.c.status.in_(RESUMABLE), values),
        )

    async def move(
        self, run: StoredRun, digest: str, caller: str = ""
    ) -> RunChange | None:
        """Have a run go on with another blueprint.

        Args:
            run: The run, as it was compared.
            digest: Digest of the blueprint.
            caller: The name of the key that moves it.

        Returns:
            What has changed; None if the run has changed meanwhile.
        """
        action = {
            **_action("move", caller),
            "old": run["digest"],
            "new": digest,
        }
        is_as_compared = (
            (runs.c.digest == run["digest"])
            # what it has done since is in a later attempt
            & (runs.c.attempt == run["attempt"])
            & runs.c.status.in_(MOVABLE)
        )
        return await self._change(
            run["id"], action, (is_as_compared, {"digest": digest})
        )

    async def _change(
        self,
        run_id: str,
        action: Mapping[str, Any],
        *changes: tuple[ColumnElement[bool], Mapping[str, Any]],
    ) -> RunChange | None:
        """Apply the first change whose condition holds, and note who did it; None if none does.

        One without values has been made before. A change of the status is notified.
        """
        is_run = self._is(run_id)
        known = select(runs.c.actions).where(is_run)
        async with self._database.transaction() as connection:
            # locked, because between two statements the run could go from one condition to another
            run = await connection.first(known.with_for_update())
            if run is None:
                return None
            actions = [*(run["actions"] or ()), action]
            for condition, values in changes:
                statement: Executable = select(runs).where(is_run, condition)
                if values:
                    statement = (
                        update(runs)
                        .where(is_run, condition)
                        .values({**values, "actions": actions})
                        .returning(runs)
                    )
                changed = await connection.first(statement)
                if changed is None:
                    continue
                if "status" in values:
                    await self._outbox.add(connection, run_id)
                return RunChange(changed, is_repeated=not values)
        return None


def queued_columns(database: Database) -> dict[str, Any]:
    """The columns of a run that begins to wait for a process."""
    return {"status": "queued", "queued_at": database.now()}


def cancelled_columns(database: Database, run_id: str) -> dict[str, Any]:
    """The columns of a run that a caller has cancelled."""
    return {
        "status": "cancelled",
        "ended_at": database.now(),
        "problem": cancelled_problem(run_id),
    }


async def events_in(
    transaction: Transaction, run_id: str, after: int, most: int | None
) -> Sequence[tuple[int, dict[str, Any]]]:
    """Events of a run, with their numbers.

    Args:
        transaction: A transaction.
        run_id: The run.
        after: Number of the last event that is known; -1 begins with the first.
        most: How many at most; None is all.
    """
    columns = run_events.c
    query = select(columns.seq, columns.event).where(
        columns.run_id == run_id, columns.seq > after
    )
    rows = await transaction.execute(query.order_by(columns.seq).limit(most))
    return [(row.seq, row.event) for row in rows]


def _conditions_of_indexes(
    statuses: Sequence[RunStatus],
) -> Iterator[TextClause]:
    """What holds for all runs with these statuses, as the indexes that can find them have it."""
    if set(statuses) <= set(OPEN):
        yield is_open
    if set(statuses) <= set(UNSUCCESSFUL):
        yield is_unsuccessful


def _action(name: RunActionName, caller: str) -> Mapping[str, Any]:
    """What is stored of an action of a caller."""
    return {"action": name, "caller": caller or None, "at": time.time()}


def _has_decision(run: StoredRun, decision: Mapping[str, Any]) -> bool:
    """Whether it has been decided so before."""
    return any(decision.items() <= known.items() for known in run["decisions"])


def cancelled_problem(run_id: str) -> dict[str, Any]:
    """The problem of a run that a caller cancelled."""
    return stored_problem(
        run_id,
        503,
        "run_cancelled",
        detail="The run was cancelled by a caller.",
        suggestion="Start another run.",
    )


def _rejected_problem(run_id: str, comment: str) -> dict[str, Any]:
    detail = "The run was rejected."
    if comment:
        detail = f"The run was rejected: {comment}"
    return stored_problem(
        run_id,
        403,
        "approval_rejected",
        detail=detail,
        suggestion="Start another run.",
    )
