"""The states of stopped runs of requests, in the database; see `podwright_service.saved_states`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sqlalchemy import delete, select, update

from podwright_service.background.storage.database import Database, Transaction
from podwright_service.background.storage.tables import states
from podwright_service.saved_states import SavedState, used_state_error

_BATCH = 1000
"""States that are deleted in one transaction: each may have megabytes."""


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
            await transaction.execute(
                self._database.insert(states), dict(state)
            )

    async def get(self, state_id: str) -> Mapping[str, Any] | None:
        """Return a state by column, used or not; None if there is none."""
        shown = [each for each in states.c if each is not states.c.used_at]
        query = select(*shown).where(states.c.id == state_id)
        async with self._database.reading() as transaction:
            row = await transaction.first(query)
        if row is None:
            return None
        return {str(name): value for name, value in row.items()}

    async def use(self, state: SavedState) -> None:
        """Mark a state as used.

        Raises:
            RequestError: 409: it was used before.
        """
        async with self._database.transaction() as transaction:
            await self.use_in(transaction, state)

    async def use_in(self, transaction: Transaction, state: SavedState) -> None:
        """As `use`, in a transaction."""
        if not state.is_kept:
            await self._add_sealed(transaction, state)
        statement = (
            update(states)
            .where(states.c.id == state.id, states.c.used_at.is_(None))
            .values(used_at=self._database.now())
            .returning(states.c.id)
        )
        if await transaction.first(statement) is None:
            raise used_state_error()

    async def _add_sealed(
        self, transaction: Transaction, state: SavedState
    ) -> None:
        """Note a sealed state, so that it is used once by all processes."""
        row: dict[str, Any] = {
            "id": state.id,
            "component": state.component,
            "digest": state.digest,
            "owner": state.owner,
            "expires_at": state.expires_at,
            "context": {},
        }
        statement = self._database.insert(states).on_conflict_do_nothing(
            index_elements=["id"]
        )
        await transaction.execute(statement, row)

    async def remove_expired(self) -> bool:
        """Delete some of the states that have expired, of any component; returns whether there may be more."""
        expired = (
            select(states.c.id)
            .where(states.c.expires_at < self._database.now())
            .limit(_BATCH)
            .with_for_update(skip_locked=True)
        )
        async with self._database.transaction() as transaction:
            result = await transaction.execute(expired)
            ids = result.scalars().all()
            if ids:
                statement = delete(states).where(states.c.id.in_(ids))
                await transaction.execute(statement)
        return len(ids) == _BATCH
