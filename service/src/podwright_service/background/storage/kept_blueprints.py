"""The blueprints of runs in the database: which of them some process has, and what they were once none has them."""

from __future__ import annotations

from collections.abc import Mapping, Set
from typing import Any

from sqlalchemy import delete, exists, select, update
from sqlalchemy.sql.elements import ColumnElement

from podwright_service.background.storage.clock import TOLERANCE
from podwright_service.background.storage.database import Database, Transaction
from podwright_service.background.storage.tables import (
    is_open,
    kept_blueprints,
    runs,
)

SERVED_SECONDS = 30.0
"""Seconds for which a blueprint counts as served after a process has said that it performs runs with it."""


class KeptBlueprints:
    """The blueprints of the runs in a database.

    Args:
        database: The database.
    """

    def __init__(self, database: Database) -> None:
        self._database = database

    async def keep(
        self, component: str, blueprints: Mapping[str, Mapping[str, Any]]
    ) -> None:
        """Keep the blueprints with which a process performs runs, and say that it does.

        Args:
            component: What it serves.
            blueprints: The blueprints by digest.
        """
        for digest, blueprint in blueprints.items():
            await self._keep(component, digest, blueprint)

    async def _keep(
        self, component: str, digest: str, blueprint: Mapping[str, Any]
    ) -> None:
        columns = kept_blueprints.c
        served_until = self._database.now() + SERVED_SECONDS
        # the blueprint itself, which may be large, is written once
        renew = (
            update(kept_blueprints)
            .where(columns.digest == digest)
            .values(served_until=served_until)
            .returning(columns.digest)
        )
        add = self._database.insert(kept_blueprints).values(
            served_until=served_until
        )
        row = {
            "digest": digest,
            "component": component,
            "blueprint": blueprint,
        }
        async with self._database.transaction() as transaction:
            if await transaction.first(renew) is None:
                await transaction.execute(add.on_conflict_do_nothing(), row)

    async def get(self, digest: str) -> Mapping[str, Any] | None:
        """The blueprint of a digest; None if no process has kept it."""
        query = select(kept_blueprints.c.blueprint).where(
            kept_blueprints.c.digest == digest
        )
        async with self._database.reading() as transaction:
            return await transaction.scalar(query)

    async def served(self, component: str) -> Set[str]:
        """Digests of the blueprints with which some process performs the runs of a component."""
        async with self._database.reading() as transaction:
            return await self.served_in(transaction, component)

    async def served_in(
        self, transaction: Transaction, component: str
    ) -> Set[str]:
        """As `served`, in a transaction."""
        columns = kept_blueprints.c
        now = self._database.now()
        # one that is served for longer than any was kept when the clock was ahead
        longest = now + SERVED_SECONDS + TOLERANCE
        query = select(columns.digest).where(
            columns.component == component,
            columns.served_until > now,
            columns.served_until <= longest,
        )
        result = await transaction.execute(query)
        return set(result.scalars())

    async def remove_old(
        self,
        transaction: Transaction,
        component: str,
        before: float | ColumnElement[float],
    ) -> None:
        """Delete the blueprints that no process has had for long, except those of runs that have not ended.

        Args:
            transaction: A transaction.
            component: What they are of.
            before: Unix time in seconds since when no process has had them. Runs that ended then are deleted.
        """
        columns = kept_blueprints.c
        is_needed = exists().where(
            is_open,
            runs.c.component == component,
            runs.c.digest == columns.digest,
        )
        await transaction.execute(
            delete(kept_blueprints).where(
                columns.component == component,
                columns.served_until < before,
                ~is_needed,
            )
        )
