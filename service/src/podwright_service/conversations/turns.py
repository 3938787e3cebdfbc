"""The turns of a process: each waits until those before it have ended, and adds what its run has said."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncGenerator, Callable
from dataclasses import dataclass, replace
from http import HTTPStatus
from typing import Literal

from podwright.data.json_data import JsonObject
from podwright.run.result import ExecutionResult
from podwright.run.run import Task
from podwright_service.conversations.problems import (
    conversation_busy,
    no_conversation,
)
from podwright_service.conversations.values import (
    NOTHING,
    Earlier,
    EndedTurn,
    NewTurn,
    Place,
    SavedTurn,
    TurnStore,
)
from podwright_service.http.errors.problems import RequestError

POLL_INTERVAL = 0.5
"""Seconds after which a turn looks whether those before it have ended in another process."""

TurnOutcome = Literal["kept", "paused", "moved", "dropped"]
"""A turn has ended; waits for a person; goes on in another process; or has left its conversation as it was."""


@dataclass(slots=True)
class Turn:
    """A turn that has begun."""

    place: Place
    earlier: Earlier = NOTHING
    """What those before it have left, once it has begun, or goes on."""
    user: str = ""
    keeps_result: bool = False
    """Whether a repeated request may ask for its result."""
    outcome: TurnOutcome = "dropped"
    is_named: bool = True
    """See `NewTurn.is_named`."""
    may_go_on: bool = False
    """Whether its run has stopped in a state from which it can go on."""

    @property
    def is_paused(self) -> bool:
        """Whether it waits for a person."""
        return self.outcome == "paused"

    def task(self, task: Task, *, goes_on: bool = False) -> Task:
        """Return the task of its run, with the conversation.

        Args:
            task: The task without it.
            goes_on: Whether the run goes on, whose task has the conversation as it was.
        """
        if goes_on:
            task = replace(task, messages=())
        return task.in_conversation(self.earlier.messages, self.earlier.state)

    def ended(self, result: ExecutionResult) -> EndedTurn:
        """Return what its run has added.

        Raises:
            RequestError: 422: the component gives no conversation.
        """
        messages = result.messages[len(self.earlier.messages) :]
        if not messages:
            raise no_conversation()
        stored: JsonObject | None = None
        if self.keeps_result:
            stored = {**result.to_dict(), "events": [], "messages": []}
        return EndedTurn(self.place, messages, result.state, stored)

    def saved(self) -> SavedTurn:
        """Return what the saved state of its run has."""
        number = self.place.number if self.is_paused else None
        return SavedTurn(
            self.place.conversation, number, self.earlier.last, self.user
        )


class Turns:
    """The turns of the requests of a process.

    Args:
        store: Where conversations are.
        worker: The id of the process, by whose lease others know that it lives.
        count: Counts the turns that have ended, by outcome.
    """

    def __init__(
        self,
        store: TurnStore,
        worker: str,
        count: Callable[[TurnOutcome], object],
    ) -> None:
        self._store = store
        self._worker = worker
        self._count = count
        self._ends: dict[str, asyncio.Event] = {}
        """By conversation, what is set when a turn of it ends here."""

    @contextlib.asynccontextmanager
    async def turn(
        self,
        new: NewTurn,
        seconds: float | None,
        saved: SavedTurn | None = None,
    ) -> AsyncGenerator[Turn]:
        """Take a turn within this context; one that is neither ended nor paused leaves its conversation as it was.

        Args:
            new: The turn.
            seconds: For how long it may wait for earlier ones; None for any time.
            saved: The turn of the stopped run that goes on.

        Raises:
            RequestError: 409: it cannot be taken, or is a repeated one; 503: it has waited too long.
        """
        if saved is not None and saved.number is not None:
            # its place is its own
            place = Place(saved.conversation, saved.number)
            turn = self._turn(new, place, outcome="paused")
        else:
            place = await self._join(new, is_new=saved is None)
            turn = self._turn(new, place)
        try:
            if not turn.is_paused:
                turn.earlier = await self._wait(place, new.after, seconds)
            yield turn
        finally:
            if turn.outcome == "dropped":
                await self._store.leave(
                    new.run_id, place, may_go_on=turn.may_go_on
                )
            self._count(turn.outcome)
            self.notify(place.conversation)

    async def _join(self, new: NewTurn, *, is_new: bool) -> Place:
        try:
            return await self._store.join(replace(new, worker=self._worker))
        except (asyncio.CancelledError, RequestError) as error:
            is_known = (
                isinstance(error, RequestError)
                and error.status_code != HTTPStatus.SERVICE_UNAVAILABLE
            )
            # the database may have stored it all the same; a run that goes on may have another place
            if is_new and not is_known:
                await self._store.leave(new.run_id, None, may_go_on=False)
            raise

    def _turn(
        self, new: NewTurn, place: Place, outcome: TurnOutcome = "dropped"
    ) -> Turn:
        return Turn(
            place,
            user=new.user,
            keeps_result=new.key is not None,
            outcome=outcome,
            is_named=new.is_named,
        )

    async def go_on(self, turn: Turn, run_id: str) -> None:
        """Let a turn go on that has waited for a person.

        Raises:
            RequestError: 409: as `end`.
        """
        # before: the database may do so although this fails
        turn.outcome = "dropped"
        await self._store.go_on(turn.place, run_id, self._worker)
        turn.earlier = await self._wait(turn.place, None, seconds=0.0)

    async def end(self, turn: Turn, result: ExecutionResult) -> None:
        """Add a turn to its conversation.

        Raises:
            RequestError: 409: the conversation was deleted, or another turn has taken its place. 422: the component
                gives no conversation.
        """
        if not (result.messages or turn.is_named):
            return
        await self._store.end(turn.ended(result))
        turn.outcome = "kept"

    async def pause(self, turn: Turn, until: float) -> None:
        """Hold the place of a turn that waits for a person, until a time; without the database, it loses its place.

        Raises:
            RequestError: 409: as `end`.
        """
        try:
            await self._store.pause(turn.place, until)
        except RequestError as error:
            # a run that waits is not lost because of its database
            if error.status_code != HTTPStatus.SERVICE_UNAVAILABLE:
                raise
        else:
            turn.outcome = "paused"

    def notify(self, conversation: str) -> None:
        """Have the turns of a conversation look whether they may begin."""
        if conversation in self._ends:
            self._ends.pop(conversation).set()

    async def _wait(
        self, place: Place, after: int | None, seconds: float | None
    ) -> Earlier:
        began = time.monotonic()
        while True:
            # before the look: a turn may end meanwhile
            ended = self._ends.setdefault(place.conversation, asyncio.Event())
            earlier = await self._store.begin(
                place, after, waits_for_persons=False
            )
            if earlier is not None:
                return earlier
            left = POLL_INTERVAL
            if seconds is not None:
                left = began + seconds - time.monotonic()
            if left <= 0:
                raise conversation_busy(seconds or 0.0)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(min(left, POLL_INTERVAL)):
                    await ended.wait()
