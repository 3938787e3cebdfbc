"""The states of stopped runs of requests, in the database; see `podwright_service.saved_states`."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from sqlalchemy import delete, insert, select, update

from podwright_service.background.database import Database, Transaction
from podwright_service.background.tables import states


class KeptStates:
    """The states in a database.

    Args:
        database: The database.
    """

    def __init__(self, database: Database) -> None:
        self._database = database

    async def add(self, state: Mapping[str, Any]) -> None:
        """Keep a state, by column."""
        async with self._database.transaction() as transaction:
            await transaction.execute(insert(states), dict(state))

    async def get(self, state_id: str) -> Mapping[str, Any] | None:
        """Return a state by column, used or not; None if there is none."""
        shown = [each for each in states.c if each is not states.c.used_at]
        query = select(*shown).where(states.c.id == state_id)
        async with self._database.reading() as transaction:
            row = await transaction.first(query)
        if row is None:
            return None
        return {str(name): value for name, value in row.items()}

    async def claim(self, state_id: str) -> bool:
        """Mark a state as used; false if it was used before."""
        async with self._database.transaction() as transaction:
            return await self.claim_in(transaction, state_id)

    async def claim_in(self, transaction: Transaction, state_id: str) -> bool:
        """As `claim`, in a transaction."""
        statement = (
            update(states)
            .where(states.c.id == state_id, states.c.used_at.is_(None))
            .values(used_at=time.time())
            .returning(states.c.id)
        )
        return await transaction.first(statement) is not None

    async def remove_old(self, component: str, seconds: float) -> None:
        """Delete the states of a component that are too old to be used.

        Args:
            component: The name of the component.
            seconds: How old a state may be.
        """
        statement = delete(states).where(
            states.c.component == component,
            states.c.saved_at < time.time() - seconds,
        )
        async with self._database.transaction() as transaction:
            await transaction.execute(statement)
