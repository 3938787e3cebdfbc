"""The turns of conversations in the database: their queue, and what they add; see `podwright_service.conversations`.

Whoever locks several rows does so in this order, so that no transactions deadlock: runs, their conversation, its turns.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Mapping
from typing import Any

from sqlalchemy import (
    RowMapping,
    and_,
    case,
    delete,
    exists,
    func,
    or_,
    select,
    update,
)
from sqlalchemy.sql.elements import ColumnElement

from podwright.data.json_data import JsonObject, to_json_bytes
from podwright_service.background.storage.database import (
    Database,
    DatabaseUnavailableError,
    Transaction,
)
from podwright_service.background.storage.tables import (
    conversations,
    is_open,
    runs,
    turns,
)
from podwright_service.conversations.problems import (
    conversation_changed,
    conversation_crowded,
    conversation_full,
    conversation_waiting,
    turn_in_progress,
)
from podwright_service.conversations.values import (
    OPENING,
    ConversationLimits,
    Earlier,
    EndedTurn,
    NewTurn,
    Place,
)
from podwright_service.http.idempotency import check_fingerprint

MAX_WAITING = 100
"""Turns of a conversation that may wait at once: each of them asks the database for those before it."""

IsSilent = Callable[[ColumnElement[Any]], ColumnElement[bool]]
"""Says of a column of processes whether they are known to have ended."""


class TurnQueue:
    """The turns in a database.

    Args:
        database: The database.
        is_silent: See `IsSilent`.
        limits: How long a conversation may get.
    """

    def __init__(
        self,
        database: Database,
        is_silent: IsSilent,
        limits: ConversationLimits,
    ) -> None:
        self._database = database
        self._is_silent = is_silent
        self._limits = limits
        self._left: dict[tuple[str, Place | None], bool] = {}
        """Runs that give up their places, until the database has done so, and whether they may go on."""

    async def join(self, turn: NewTurn) -> Place:
        """See `TurnStore`."""
        async with self._database.transaction() as transaction:
            return await self.join_in(transaction, turn)

    async def join_in(self, transaction: Transaction, turn: NewTurn) -> Place:
        """As `join`, in a transaction."""
        conversation = await self._locked(transaction, turn)
        place = Place(conversation["id"], conversation["places"])
        self._check_length(conversation)
        await self._check_queue(transaction, place, turn)
        await transaction.execute(
            update(conversations)
            .where(conversations.c.id == place.conversation)
            .values(places=place.number + 1)
        )
        row = {
            "conversation": place.conversation,
            "number": place.number,
            "run_id": turn.run_id,
            "user": turn.user,
            "worker": turn.worker or None,
            "idempotency_key": turn.key,
            "fingerprint": turn.fingerprint,
        }
        insert = self._database.insert(turns).values(
            created_at=self._database.now()
        )
        await transaction.execute(insert, row)
        return place

    async def _locked(
        self, transaction: Transaction, turn: NewTurn
    ) -> RowMapping:
        """Return the conversation of a turn, which begins if it is new, locked.

        Raises:
            RequestError: 409: it was deleted.
        """
        locked = select(conversations).with_for_update()
        if turn.conversation is not None:
            known = locked.where(conversations.c.id == turn.conversation)
            conversation = await transaction.first(known)
            if conversation is None:
                raise conversation_changed()
            return conversation
        while True:
            await self._add_conversation(transaction, turn)
            named = locked.where(_named(turn))
            conversation = await transaction.first(named)
            # another process may delete it in between
            if conversation is not None:
                return conversation

    async def _add_conversation(
        self, transaction: Transaction, turn: NewTurn
    ) -> None:
        """Add the conversation of a turn, unless there is one."""
        now = self._database.now()
        insert = self._database.insert(conversations)
        statement = insert.values(
            created_at=now, updated_at=now
        ).on_conflict_do_nothing(
            index_elements=["component", "owner", "session"]
        )
        row: JsonObject = {
            "id": os.urandom(16).hex(),
            "component": turn.component,
            "owner": turn.owner,
            "session": turn.session,
            "state": {},
            "places": 0,
            "turns": 0,
            "messages": 0,
            "size": 0,
        }
        await transaction.execute(statement, row)

    async def _check_queue(
        self, transaction: Transaction, place: Place, turn: NewTurn
    ) -> None:
        """Check that a turn is no repeated one, that no person holds up those before it, and that they are not many.

        Raises:
            RequestError: 409, 422 or 503.
        """
        # first: a repeated request is told that its run waits for a person
        await self._check_persons(transaction, place)
        if turn.key is not None:
            is_known = and_(
                turns.c.conversation == place.conversation,
                turns.c.idempotency_key == turn.key,
                or_(
                    self.is_known_by_key(),
                    and_(turns.c.ended_at.is_(None), self.holds_place()),
                ),
            )
            known = await transaction.first(select(turns).where(is_known))
            if known is not None:
                check_fingerprint(known["fingerprint"], turn.fingerprint or "")
                raise turn_in_progress()
        is_waiting = and_(
            turns.c.conversation == place.conversation,
            turns.c.ended_at.is_(None),
            self.holds_place(),
        )
        count = select(func.count()).where(is_waiting)
        if await transaction.scalar(count) > MAX_WAITING:
            raise conversation_crowded(MAX_WAITING)

    async def begin(
        self, place: Place, after: int | None, *, waits_for_persons: bool
    ) -> Earlier | None:
        """See `TurnStore`."""
        own = select(turns.c.number).where(_is_at(place))
        queued = select(turns.c.number, self.holds_place()).where(
            _before(place), turns.c.ended_at.is_(None)
        )
        async with self._database.reading() as transaction:
            if await transaction.scalar(own) is None:
                raise conversation_changed()
            rows = await transaction.execute(queued)
            holders = [bool(row[1]) for row in rows]
            if any(holders):
                if not waits_for_persons:
                    await self._check_persons(transaction, place)
                return None
            if not holders:
                return await self.earlier_in(transaction, place, after)
        await self._remove_dead(place)
        return None

    async def _check_persons(
        self, transaction: Transaction, place: Place
    ) -> None:
        """Check that no turn before another one waits for a person.

        Raises:
            RequestError: 409: one does.
        """
        is_asking = exists().where(
            runs.c.id == turns.c.run_id,
            runs.c.status.in_(("waiting_for_approval", "interrupted")),
        )
        is_paused = turns.c.waits_until > self._database.now()
        query = select(turns.c.run_id).where(
            _before(place),
            turns.c.ended_at.is_(None),
            or_(is_paused, and_(turns.c.worker.is_(None), is_asking)),
        )
        run_id = await transaction.scalar(query)
        if run_id is not None:
            raise conversation_waiting(run_id)

    async def _remove_dead(self, place: Place) -> None:
        """Remove turns before another one that nobody goes on with."""
        statement = delete(turns).where(
            _before(place), turns.c.ended_at.is_(None), ~self.holds_place()
        )
        async with self._database.transaction() as transaction:
            await transaction.execute(statement)

    async def earlier_in(
        self, transaction: Transaction, place: Place, after: int | None
    ) -> Earlier:
        """Return what the turns before another one have left.

        Raises:
            RequestError: 409: it may not follow the last one, or the conversation is too long.
        """
        conversation = await transaction.first(
            select(conversations).where(
                conversations.c.id == place.conversation
            )
        )
        if conversation is None:
            raise conversation_changed()
        self._check_length(conversation)
        last, messages = await messages_in(transaction, place)
        if after is not None and last != after:
            raise conversation_changed()
        return Earlier(messages, conversation["state"], last)

    def _check_length(self, conversation: RowMapping) -> None:
        """Check that a conversation may get longer.

        Raises:
            RequestError: 409: it may not.
        """
        if conversation["messages"] >= self._limits.messages:
            raise conversation_full(
                f"{conversation['messages']} messages, of at most {self._limits.messages} "
                "(PODWRIGHT_CONVERSATION_MESSAGES)"
            )
        if conversation["size"] >= self._limits.size:
            raise conversation_full(
                f"{conversation['size']} bytes, of at most {self._limits.size} (PODWRIGHT_CONVERSATION_BYTES)"
            )

    def holds_place(self, table: Any = turns) -> ColumnElement[bool]:
        """Whether a turn that has not ended may still do so."""
        # by another name, because the runs may be those of a statement around this
        open_runs = runs.alias("open_runs")
        is_open_run = exists().where(open_runs.c.id == table.c.run_id, is_open)
        return case(
            (table.c.worker.is_not(None), ~self._is_silent(table.c.worker)),
            (
                table.c.waits_until.is_not(None),
                table.c.waits_until > self._database.now(),
            ),
            else_=is_open_run,
        )

    def is_known_by_key(self) -> ColumnElement[bool]:
        """Whether a turn has ended so recently that its request is known by its idempotency key."""
        return (
            turns.c.ended_at > self._database.now() - self._limits.key_seconds
        )

    def is_behind(self) -> ColumnElement[bool]:
        """Whether a run is a turn behind another one."""
        own = turns.alias("own")
        earlier = turns.alias("earlier")
        return exists().where(
            own.c.run_id == runs.c.id,
            own.c.ended_at.is_(None),
            earlier.c.conversation == own.c.conversation,
            earlier.c.number < own.c.number,
            earlier.c.ended_at.is_(None),
            self.holds_place(earlier),
        )

    # --- The end of a turn --------------------------------------------------------------------------------------------

    async def end(self, turn: EndedTurn) -> None:
        """See `TurnStore`."""
        async with self._database.transaction() as transaction:
            if not await self.end_in(transaction, turn):
                raise conversation_changed()

    async def end_in(self, transaction: Transaction, turn: EndedTurn) -> bool:
        """As `end`, in a transaction; returns whether it had its place, without which nothing is changed."""
        is_held = select(turns.c.number).where(_is_at(turn.place))
        locked = select(conversations.c.id).where(
            conversations.c.id == turn.place.conversation
        )
        if await transaction.first(locked.with_for_update()) is None:
            return False
        if await transaction.first(is_held.with_for_update()) is None:
            return False
        now = self._database.now()
        await transaction.execute(
            update(turns)
            .where(_is_at(turn.place))
            .values(
                worker=None,
                waits_until=None,
                ended_at=now,
                messages=list(turn.messages),
                result=turn.result,
            )
        )
        size = len(to_json_bytes(turn.messages))
        if turn.result is not None:
            size += len(to_json_bytes(turn.result))
        await transaction.execute(
            update(conversations)
            .where(conversations.c.id == turn.place.conversation)
            .values(
                state=dict(turn.state),
                turns=conversations.c.turns + 1,
                messages=conversations.c.messages + len(turn.messages),
                size=conversations.c.size + size,
                updated_at=now,
            )
        )
        return True

    async def leave(
        self, run_id: str, place: Place | None, *, may_go_on: bool
    ) -> None:
        """See `TurnStore`; if the caller is cancelled or the database cannot be reached, `leave_late` does so."""
        self._left[run_id, place] = may_go_on
        is_left = and_(turns.c.run_id == run_id, turns.c.ended_at.is_(None))
        with contextlib.suppress(DatabaseUnavailableError):
            async with self._database.transaction() as transaction:
                if place is not None:
                    is_left &= _is_at(place)
                if place is not None and not may_go_on:
                    await _remove_if_empty(transaction, place, is_left)
                await transaction.execute(delete(turns).where(is_left))
            self._left.pop((run_id, place), None)

    async def leave_late(self) -> None:
        """Give up the places that could not be given up in time."""
        for (run_id, place), may_go_on in [*self._left.items()]:
            await self.leave(run_id, place, may_go_on=may_go_on)

    async def pause(self, place: Place, until: float) -> None:
        """See `TurnStore`."""
        await self._change(place, {"worker": None, "waits_until": until})

    async def go_on(self, place: Place, run_id: str, worker: str) -> None:
        """See `TurnStore`."""
        async with self._database.transaction() as transaction:
            await self.go_on_in(transaction, place, run_id, worker)

    async def go_on_in(
        self,
        transaction: Transaction,
        place: Place,
        run_id: str,
        worker: str = "",
    ) -> None:
        """As `go_on`, in a transaction, also as a background run, which no process holds."""
        values = {
            "worker": worker or None,
            "waits_until": None,
            "run_id": run_id,
        }
        await self._change_in(transaction, place, values)

    async def _change(self, place: Place, values: Mapping[str, Any]) -> None:
        async with self._database.transaction() as transaction:
            await self._change_in(transaction, place, values)

    async def _change_in(
        self,
        transaction: Transaction,
        place: Place,
        values: Mapping[str, Any],
    ) -> None:
        """Change a turn that has not ended.

        Raises:
            RequestError: 409: it has lost its place.
        """
        statement = update(turns).where(_is_at(place)).values(values)
        changed = await transaction.first(statement.returning(turns.c.number))
        if changed is None:
            raise conversation_changed()

    async def place_of_run(self, run_id: str) -> Place | None:
        """The place of the turn of a background run that has not ended; None if it has lost it."""
        query = select(turns.c.conversation, turns.c.number).where(
            turns.c.run_id == run_id, turns.c.ended_at.is_(None)
        )
        async with self._database.reading() as transaction:
            row = await transaction.first(query)
        if row is None:
            return None
        return Place(row["conversation"], row["number"])


async def messages_in(
    transaction: Transaction, place: Place
) -> tuple[int, list[JsonObject]]:
    """Return the number of the last turn before another one, and the messages up to it."""
    query = (
        select(turns.c.number, turns.c.messages)
        .where(_before(place), turns.c.ended_at.is_not(None))
        .order_by(turns.c.number)
    )
    last = OPENING
    messages: list[JsonObject] = []
    for number, added in await transaction.execute(query):
        last = number
        messages += added
    return last, messages


async def _remove_if_empty(
    transaction: Transaction, place: Place, is_left: ColumnElement[bool]
) -> None:
    """Remove a conversation that has no turn but one that gives up its place, and has been asked for no other."""
    is_other = and_(
        turns.c.conversation == place.conversation,
        turns.c.number != place.number,
    )
    statement = delete(conversations).where(
        conversations.c.id == place.conversation,
        conversations.c.turns == 0,
        conversations.c.places == place.number + 1,
        exists().where(is_left),
        ~exists().where(is_other),
    )
    await transaction.execute(statement)


def _named(turn: NewTurn) -> ColumnElement[bool]:
    return and_(
        conversations.c.component == turn.component,
        conversations.c.owner == turn.owner,
        conversations.c.session == turn.session,
    )


def _is_at(place: Place) -> ColumnElement[bool]:
    """Whether a turn has not ended, and has a place."""
    return and_(
        turns.c.conversation == place.conversation,
        turns.c.number == place.number,
        turns.c.ended_at.is_(None),
    )


def _before(place: Place) -> ColumnElement[bool]:
    return and_(
        turns.c.conversation == place.conversation,
        turns.c.number < place.number,
    )
