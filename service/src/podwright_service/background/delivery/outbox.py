"""The notifications of runs that the webhook has not accepted yet, in the database.

A notification is added in the transaction that changes the status of its run, so that a process that is killed loses
none and invents none. A process claims one by making it due again after its request has surely ended.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Sequence
from typing import Literal

from sqlalchemy import (
    RowMapping,
    case,
    delete,
    insert,
    literal,
    null,
    select,
    update,
)

from podwright.connection.schemas import RESTING
from podwright_service.background.storage.clock import TOLERANCE
from podwright_service.background.storage.database import Database, Transaction
from podwright_service.background.storage.tables import deliveries, runs

CLAIM_SECONDS = 60.0
"""Seconds after which a notification is sent again whose process was killed."""
LONGEST_WAIT = 16 * 3600.0
"""Seconds: no notification waits longer for its next request."""
KEPT_SECONDS = 7 * 86400.0
"""Seconds after which a notification is deleted that no process has sent."""
WebhookMode = Literal["status", "content"]
"""Whether the webhook is told the status of a run alone, or its question, result or problem too."""
Delivery = RowMapping
"""A row of the deliveries, by column."""


class Outbox:
    """The notifications in a database."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def add(self, transaction: Transaction, run_id: str) -> None:
        """Add the notification of a run whose status has changed in this transaction, if it has one for it."""
        content = case(
            (runs.c.webhook != "content", null()),
            (runs.c.status == "waiting_for_approval", runs.c.approval),
            (runs.c.status == "succeeded", runs.c.result),
            else_=runs.c.problem,
        )
        now = self._database.now()
        columns = {
            "id": literal(f"msg_{os.urandom(16).hex()}"),
            "component": runs.c.component,
            "run_id": runs.c.id,
            "status": runs.c.status,
            "attempt": runs.c.attempt,
            "traceparent": runs.c.traceparent,
            "content": content,
            "caller": runs.c.origin["caller"].as_string(),
            "created_at": now,
            "due_at": now,
            "requests": literal(0),
        }
        notification = select(*columns.values()).where(
            runs.c.id == run_id,
            runs.c.webhook.is_not(None),
            runs.c.status.in_(RESTING),
        )
        await transaction.execute(
            insert(deliveries).from_select(list(columns), notification)
        )

    async def claim(self, component: str, most: int) -> Sequence[Delivery]:
        """Claim notifications that are due, the oldest first.

        Args:
            component: Only those of its runs.
            most: How many at most.
        """
        now = self._database.now()
        due = (
            select(deliveries.c.id)
            .where(deliveries.c.component == component)
            .where(deliveries.c.due_at <= now)
            .order_by(deliveries.c.due_at)
            .limit(most)
            .with_for_update(skip_locked=True)
            .cte("due")
        )
        statement = (
            update(deliveries)
            .where(deliveries.c.id.in_(select(due.c.id)))
            .values(
                due_at=now + CLAIM_SECONDS,
                requests=deliveries.c.requests + 1,
            )
            .returning(deliveries)
        )
        async with self._database.transaction() as transaction:
            return await transaction.all(statement)

    async def remove(self, delivery: Delivery) -> None:
        """Delete a notification that was accepted or given up."""
        statement = delete(deliveries).where(deliveries.c.id == delivery["id"])
        async with self._database.transaction() as transaction:
            await transaction.execute(statement)

    async def postpone(self, delivery: Delivery, seconds: float) -> None:
        """Have a notification sent again after some seconds, unless another process has claimed it meanwhile."""
        statement = (
            update(deliveries)
            .where(deliveries.c.id == delivery["id"])
            .where(deliveries.c.requests == delivery["requests"])
            .values(due_at=self._database.now() + seconds)
        )
        async with self._database.transaction() as transaction:
            await transaction.execute(statement)

    async def correct_times(
        self, transaction: Transaction, component: str
    ) -> None:
        """Have notifications sent now that wait because they were stored when the clock was ahead.

        Args:
            transaction: A transaction.
            component: Only those of its runs.
        """
        now = self._database.now()
        columns = deliveries.c
        latest = now + TOLERANCE
        found = (
            select(columns.id)
            .where(columns.component == component)
            .where(columns.due_at > latest)  # an index has these
            .where(
                (columns.created_at > latest)
                | (columns.due_at > latest + LONGEST_WAIT)
            )
        )
        chosen = found.with_for_update(skip_locked=True).cte("chosen")
        created_at = columns.created_at
        created_at = case((created_at > now, now), else_=created_at)
        await transaction.execute(
            update(deliveries)
            .where(columns.id.in_(select(chosen.c.id)))
            .values(due_at=now, created_at=created_at)
        )

    async def forget_content(
        self, transaction: Transaction, run_ids: Collection[str]
    ) -> None:
        """Delete what notifications have of runs that are deleted; their status is sent all the same."""
        of_runs = deliveries.c.run_id.in_(run_ids)
        await transaction.execute(
            update(deliveries).where(of_runs).values(content=null())
        )

    async def remove_old(
        self, transaction: Transaction, component: str
    ) -> None:
        """Delete notifications that nobody sends: no process runs for long, or none has a webhook any longer."""
        begin = self._database.now() - KEPT_SECONDS
        await transaction.execute(
            delete(deliveries)
            .where(deliveries.c.component == component)
            .where(deliveries.c.created_at < begin)
        )
