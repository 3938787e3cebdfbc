"""The conversations in the database: what was kept, and its deletion."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from sqlalchemy import (
    Executable,
    RowMapping,
    Text,
    and_,
    case,
    cast,
    delete,
    exists,
    false,
    func,
    or_,
    select,
    tuple_,
)
from sqlalchemy.sql.elements import ColumnElement

from podwright.data.json_data import JsonObject
from podwright_service.background.caller_runs import Access
from podwright_service.background.delivery.outbox import Outbox
from podwright_service.background.kept.queue import TurnQueue, messages_in
from podwright_service.background.storage.database import Database, Transaction
from podwright_service.background.storage.tables import (
    conversations,
    run_events,
    runs,
    states,
    turns,
)
from podwright_service.conversations.values import (
    Deleted,
    Earlier,
    KeptConversation,
    Place,
    StoredTurn,
)

_BATCH = 100
"""Conversations that are deleted in one transaction: each may have megabytes."""


class KeptConversations:
    """The conversations in a database.

    Args:
        database: The database.
        outbox: Its notifications.
        queue: Its turns.
    """

    def __init__(
        self, database: Database, outbox: Outbox, queue: TurnQueue
    ) -> None:
        self._database = database
        self._outbox = outbox
        self._queue = queue

    async def find_repeated(
        self, component: str, owner: str, key: str
    ) -> StoredTurn | None:
        """The turn of an earlier request with a key that has ended not long ago; None if there is none."""
        is_it = and_(
            _is_in(component, owner),
            turns.c.idempotency_key == key,
            self._queue.is_known_by_key(),
        )
        return await self._find(is_it)

    async def find_run(
        self, component: str, owner: str, run_id: str
    ) -> StoredTurn | None:
        """The turn that has ended of a run; None if there is none."""
        return await self._find(
            _is_in(component, owner) & (turns.c.run_id == run_id)
        )

    async def _find(self, is_it: ColumnElement[bool]) -> StoredTurn | None:
        query = (
            select(turns)
            .join(conversations, turns.c.conversation == conversations.c.id)
            .where(is_it, turns.c.ended_at.is_not(None))
        )
        async with self._database.reading() as transaction:
            row = await transaction.first(query)
        if row is None:
            return None
        place = Place(row["conversation"], row["number"])
        return StoredTurn(
            place, row["run_id"], row["fingerprint"], row["result"]
        )

    async def earlier(self, place: Place) -> Earlier:
        """What a conversation has up to a turn.

        Raises:
            RequestError: 409: it was deleted.
        """
        after = Place(place.conversation, place.number + 1)
        async with self._database.reading() as transaction:
            return await self._queue.earlier_in(
                transaction, after, place.number
            )

    async def get(
        self, component: str, owner: str, session: str
    ) -> KeptConversation | None:
        """A conversation of a caller; None if there is none with a turn."""
        is_it = _is_in(component, owner) & (conversations.c.session == session)
        query = select(conversations).where(is_it, conversations.c.turns > 0)
        async with self._database.reading() as transaction:
            row = await transaction.first(query)
            if row is None:
                return None
            end = Place(row["id"], row["places"])
            _, messages = await messages_in(transaction, end)
        return _conversation(row, messages)

    async def page(
        self,
        component: str,
        owner: str,
        before: tuple[float, str] | None,
        size: int,
    ) -> Sequence[KeptConversation]:
        """Conversations of a caller without their messages, the one with the newest turn first.

        Args:
            component: The component.
            owner: The caller.
            before: Time of the last turn and id of the last conversation of the page before.
            size: How many.
        """
        columns = conversations.c
        query = (
            select(conversations)
            .where(_is_in(component, owner), columns.turns > 0)
            .order_by(columns.updated_at.desc(), columns.id.desc())
            .limit(size)
        )
        if before is not None:
            place = tuple_(columns.updated_at, columns.id)
            query = query.where(place < tuple_(*before))
        async with self._database.reading() as transaction:
            rows = await transaction.all(query)
        return [_conversation(row, ()) for row in rows]

    # --- Deletion -----------------------------------------------------------------------------------------------------

    async def delete_session(
        self, component: str, owner: str, session: str
    ) -> Deleted:
        """Delete a conversation of a caller, with all that is stored of its runs."""
        async with self._database.transaction() as transaction:
            return await self._delete(
                transaction,
                _is_in(component, owner) & (conversations.c.session == session),
                and_(
                    Access(component, owner).condition,
                    _has_origin("session", session),
                ),
                false(),
            )

    async def delete_user(self, component: str, user: str) -> Deleted:
        """Delete all conversations in which a user had a turn, with all that is stored of the user's runs."""
        is_users = exists().where(
            turns.c.conversation == conversations.c.id, turns.c.user == user
        )
        async with self._database.transaction() as transaction:
            return await self._delete(
                transaction,
                (conversations.c.component == component) & is_users,
                and_(
                    runs.c.component == component,
                    _has_origin("user", user),
                ),
                and_(
                    states.c.component == component,
                    states.c.turn["user"].as_string() == user,
                ),
            )

    async def _delete(
        self,
        transaction: Transaction,
        which: ColumnElement[bool],
        which_runs: ColumnElement[bool],
        which_states: ColumnElement[bool],
    ) -> Deleted:
        """Delete conversations; runs that are performed are lost to their processes, which stop them.

        Args:
            transaction: A transaction.
            which: The conversations.
            which_runs: Background runs that are deleted besides those of these conversations.
            which_states: As these, states of stopped runs.
        """
        ids = select(conversations.c.id).where(which)
        of_turns = select(turns.c.run_id).where(turns.c.conversation.in_(ids))
        run_ids = await _locked(
            transaction, runs.c.id, or_(which_runs, runs.c.id.in_(of_turns))
        )
        await self._delete_runs(transaction, run_ids)
        locked = await _locked(transaction, conversations.c.id, which)
        kept_in = states.c.turn["conversation"].as_string()
        statements: list[Executable] = [
            delete(states).where(or_(kept_in.in_(locked), which_states)),
            delete(turns).where(turns.c.conversation.in_(locked)),
            delete(conversations).where(conversations.c.id.in_(locked)),
        ]
        for statement in statements:
            await transaction.execute(statement)
        return Deleted(len(locked), len(run_ids))

    async def _delete_runs(
        self, transaction: Transaction, run_ids: Collection[str]
    ) -> None:
        if not run_ids:
            return
        of_runs = run_events.c.run_id.in_(run_ids)
        await transaction.execute(delete(run_events).where(of_runs))
        await transaction.execute(delete(runs).where(runs.c.id.in_(run_ids)))
        await self._outbox.forget_content(transaction, run_ids)

    async def delete_old(self, component: str, seconds: float) -> bool:
        """Delete conversations whose last turn is older; returns whether there may be more.

        One with a turn that has not ended is kept.

        Args:
            component: Only those of this component.
            seconds: For how long they are kept.
        """
        is_in_turn = exists().where(
            turns.c.conversation == conversations.c.id,
            turns.c.ended_at.is_(None),
            self._queue.holds_place(),
        )
        old = (
            select(conversations.c.id)
            .where(
                conversations.c.component == component,
                conversations.c.updated_at < self._database.now() - seconds,
                ~is_in_turn,
            )
            .limit(_BATCH)
            .with_for_update(skip_locked=True)
        )
        async with self._database.transaction() as transaction:
            result = await transaction.execute(old)
            ids = result.scalars().all()
            if ids:
                of_these = turns.c.conversation.in_(ids)
                await transaction.execute(delete(turns).where(of_these))
                await transaction.execute(
                    delete(conversations).where(conversations.c.id.in_(ids))
                )
        return len(ids) == _BATCH

    async def count(self, component: str) -> int:
        """How many conversations of a component have a turn."""
        query = select(func.count()).where(
            conversations.c.component == component, conversations.c.turns > 0
        )
        async with self._database.reading() as transaction:
            return await transaction.scalar(query)


async def _locked(
    transaction: Transaction, column: Any, which: ColumnElement[bool]
) -> Sequence[str]:
    """Return the ids of rows, locked in their order."""
    query = select(column).where(which).order_by(column).with_for_update()
    result = await transaction.execute(query)
    return result.scalars().all()


def _has_origin(name: str, value: str) -> ColumnElement[bool]:
    """Whether a run has a user or a session."""
    # PostgreSQL refuses to read any text out of a JSON document that has a NUL
    has_nul = cast(runs.c.origin, Text).contains(r"\u0000", autoescape=True)
    return case(
        (has_nul, false()), else_=runs.c.origin[name].as_string() == value
    )


def _is_in(component: str, owner: str) -> ColumnElement[bool]:
    return and_(
        conversations.c.component == component, conversations.c.owner == owner
    )


def _conversation(
    row: RowMapping, messages: Sequence[JsonObject]
) -> KeptConversation:
    return KeptConversation(
        id=row["id"],
        session=row["session"],
        created_at=row["created_at"],
        updated_at=row["updated_at"],
        turns=row["turns"],
        size=row["size"],
        messages=messages,
    )
