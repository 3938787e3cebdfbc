"""The journal of one attempt in the database: its events are numbered, cleaned, and stored in batches."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Iterable, Iterator, Mapping
from typing import Any

from podwright import events
from podwright.data.json_data import to_json_data
from podwright.errors import RunCancelledError
from podwright.events import Event, adapter
from podwright.journal.journal import Journal, JournalStore
from podwright.messages.approvals import (
    APPROVE,
    ApprovalId,
    Decision,
    digest_of_asked,
)
from podwright.messages.usage import NO_USAGE, Usage
from podwright_service.background.caller_runs import StoredRun
from podwright_service.background.gate import Gate
from podwright_service.background.store import AttemptUpdate
from podwright_service.background.writer import Writer
from podwright_service.conversations.values import EndedTurn

_CONTEXTS = ("context",)
"""Fields that are never stored: a new attempt does not need the contexts of stopped workflows."""
_CONTENT: Mapping[type[Any], tuple[str, ...]] = {
    events.RunStarted: ("input", "user", "session", "metadata"),
    events.ToolCallStarted: ("arguments",),
    events.PlanMade: ("steps",),
}
"""Fields that only serve display; stored if content may be logged."""


class DatabaseStore(JournalStore):
    """Keeps the events of one attempt in the database, with the columns of its run.

    Args:
        run: The row of the run.
        writer: Stores its events.
        keep_content: Whether events keep inputs and arguments that only serve display.
        may_repeat: Whether tool calls may be repeated whose end is unknown.
    """

    asks_again = True

    def __init__(
        self,
        run: StoredRun,
        writer: Writer,
        *,
        keep_content: bool,
        may_repeat: bool = False,
    ) -> None:
        self._run = run
        self.run_id: str = run["id"]
        self.gate = Gate()
        """Lets calls begin, and stops the attempt."""
        self.may_repeat = may_repeat
        self.has_ended = False
        """Whether the end of the attempt is being stored, or is stored."""
        self._used = NO_USAGE
        """What the recorded calls of all attempts used; a repeated tool call counts once."""
        self._knows_earlier_usage = run["attempt"] == 1
        self._writer = writer
        self._keep_content = keep_content
        self._pending: list[tuple[int, dict[str, Any]]] = []
        self._values: dict[str, Any] = {}
        self._tools_called: set[tuple[str, tuple[int, ...], int]] = set()
        self._last_event: Event | None = None
        """The end of the run, which is stored together with its status."""
        self._next_seq = run["seq"]
        self._version = 0
        self._stored_version = 0
        self._result_version = 0
        """The version that must be stored before the next call begins."""
        self._stored_event = asyncio.Event()
        self._turn: EndedTurn | None = None
        """What the run adds to its conversation, which is stored together with its status."""

    @property
    def is_lost(self) -> bool:
        """Whether another process has taken the run over: nothing more is stored."""
        return self.gate.reason == "lost"

    def journal(self, recorded: Iterable[Mapping[str, Any]]) -> Journal:
        """Return the journal of the attempt.

        Args:
            recorded: The stored events of the earlier attempts.
        """
        earlier = [adapter().validate_python(data) for data in recorded]
        for event in earlier:
            self._count_usage(event)
        self._knows_earlier_usage = True
        return Journal(
            earlier,
            dict(_decisions(self._run)),
            seconds=self._run["seconds"],
            attempt=self._run["attempt"],
            store=self,
        )

    def add(self, event: Event) -> None:
        """Keep an event of the run; this is a subscriber."""
        if self.is_lost or self.has_ended or self._is_caused_by_move(event):
            return
        self._count_usage(event)
        if isinstance(
            event, events.Token | events.Reasoning | events.ModelCallStarted
        ):
            return
        if isinstance(event, events.RunEnded) and event.run_id == self.run_id:
            self._last_event = event
            return
        self._append(event)
        if not isinstance(
            event, events.RunStarted | events.StepStarted | events.Progress
        ):
            self._result_version = self._version

    def _is_caused_by_move(self, event: Event) -> bool:
        """Whether an event only tells that the run goes on in another process."""
        is_moving = self.gate.has_cancelled and self.gate.reason == "moved"
        return is_moving and _is_cancellation(event)

    def _count_usage(self, event: Event) -> None:
        match event:
            case events.ModelCallFinished():
                answered = event.response.usage.as_call(event.model)
                self._used += event.failed_usage + answered
            case events.ModelCallFailed():
                self._used += event.usage
            case events.ToolCallStarted():
                call = event.run_id, event.path, event.call
                if call in self._tools_called:
                    return
                self._tools_called.add(call)
                self._used += Usage(tool_calls=1)
            case _:
                return
        self._values["usage"] = self._used.to_dict()

    def total_usage(self, reported: Usage | None) -> Usage | None:
        """What all attempts used; None if only the row knows, because the stored events were not read.

        Args:
            reported: The usage that the run itself ended with. If it failed early, it has not replayed all calls.
        """
        if not self._knows_earlier_usage:
            return None
        if reported is None:
            return self._used
        return max(reported, self._used, key=_extent)

    def set_columns(self, **values: Any) -> None:
        """Change columns of the run, with the events so far."""
        self._values |= values
        self._change()

    def close(self, turn: EndedTurn | None, **values: Any) -> None:
        """Take no more events, and store the last one together with the turn and these columns of the run."""
        if self._last_event is not None:
            self._append(self._last_event)
        self.has_ended = True
        self._turn = turn
        self.set_columns(**values)

    def lose(self) -> None:
        """Store nothing more, and stop the attempt."""
        self.gate.stop("lost")
        self._pending.clear()
        self._stored_event.set()

    @contextlib.asynccontextmanager
    async def call(self, *, in_tool: bool) -> AsyncGenerator[None]:
        """Store all results so far, and begin the call if the gate lets it."""
        await self._wait_for_version(self._result_version)
        async with self.gate.call(in_tool=in_tool):
            yield

    async def before_effect(self) -> None:
        """Store the start of a tool call."""
        await self.wait_until_stored()
        if self.is_lost:
            raise asyncio.CancelledError

    async def wait_until_stored(self) -> None:
        """Wait until all that has been emitted or set is stored, or the run is lost."""
        await self._wait_for_version(self._version)

    async def _wait_for_version(self, version: int) -> None:
        while self._stored_version < version and not self.is_lost:
            self._writer.flush_now()
            await self._stored_event.wait()

    def pending_update(self) -> tuple[int, AttemptUpdate]:
        """What is to be stored now, and the version of the journal that this makes."""
        update = AttemptUpdate(
            self.run_id,
            self._run["attempt"],
            events=tuple(self._pending),
            values=dict(self._values),
            turn=self._turn,
        )
        return self._version, update

    def mark_stored(self, version: int, update: AttemptUpdate) -> None:
        """Forget what has been stored, and wake those who wait for it."""
        del self._pending[: len(update.events)]
        if update.turn is not None:
            self._turn = None
        for name, value in update.values.items():
            # what was set again meanwhile is kept
            if self._values[name] is value:
                del self._values[name]
        self._stored_version = version
        # the next ones wait for another version; `lose` makes no new event, because nobody waits for a lost run
        self._stored_event.set()
        self._stored_event = asyncio.Event()

    def _append(self, event: Event) -> None:
        self._pending.append((self._next_seq, self._data(event)))
        self._next_seq += 1
        self._change()

    def _change(self) -> None:
        self._version += 1
        self._writer.schedule(self)

    def _data(self, event: Event) -> dict[str, Any]:
        data = event.to_dict() | {"seq": self._next_seq}
        for name in _CONTEXTS:
            data.pop(name, None)
        if not self._keep_content:
            for name in _CONTENT.get(type(event), ()):
                data.pop(name, None)
        if isinstance(event, events.RunFailed):
            data["error"] = dict(data["error"])
            for name in _CONTEXTS:
                data["error"].pop(name, None)
        return to_json_data(data)


def _decisions(run: StoredRun) -> Iterator[tuple[ApprovalId, Decision]]:
    """What people have decided, by the question."""
    for stored in run["decisions"]:
        asked = ApprovalId.from_dict(stored)
        # rows of older releases have no other decision, and one that rejects ended the run
        decision = Decision(
            decision=stored.get("decision", APPROVE),
            comment=stored.get("comment", ""),
            values=stored.get("values", {}),
            about=digest_of_asked(stored),
        )
        yield asked, decision


def _extent(usage: Usage) -> tuple[float, ...]:
    """What two usages are compared by."""
    return (
        usage.model_calls,
        usage.tool_calls,
        usage.total_tokens,
        usage.known_cost,
    )


def _is_cancellation(event: Event) -> bool:
    """Whether an event tells that something was cancelled."""
    match event:
        case events.RunCancelled() | events.StepFinished(outcome="cancelled"):
            return True
        case events.ModelCallFailed() | events.ToolCallFailed():
            return event.error.get("code") == RunCancelledError.code
        case _:
            return False
