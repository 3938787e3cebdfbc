"""The journal of one attempt: its events are numbered, cleaned of what need not be kept, and stored in batches."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from podwright import events
from podwright.events import Event, adapter
from podwright.journal import Journal
from podwright.json_data import to_json_data
from podwright.usage import NO_USAGE, Usage
from podwright_service.background.database import DatabaseUnavailableError
from podwright_service.background.store import AttemptUpdate, RunStore, StoredRun

BATCH_DELAY = 0.05
"""Seconds that events wait for more of them, unless a call waits until they are stored."""

_CONTEXTS = ("context",)
"""Fields that are never stored: a new attempt does without the contexts of stopped workflows."""
_CONTENT: Mapping[type[Any], tuple[str, ...]] = {
    events.RunStarted: ("input",),
    events.ToolCallStarted: ("arguments",),
    events.PlanMade: ("steps",),
}
"""Fields that only serve display; stored if content may be logged."""


class StoredJournal(Journal):
    """The journal of an attempt, and a subscriber of it.

    Args:
        run: The row of the run.
        writer: Stores its events.
        keep_content: Whether events keep inputs and arguments that only serve display.
    """

    def __init__(self, run: StoredRun, writer: Writer, keep_content: bool) -> None:
        super().__init__(
            approved=[(each["run_id"], tuple(each["path"])) for each in run["decisions"] if each["approved"]],
            seconds=run["seconds"],
        )
        self.run_id: str = run["id"]
        self.attempt: int = run["attempt"]
        self.is_lost = False
        """Whether another process has taken the run over: nothing more is stored."""
        self.is_cancelled = False
        """Whether a caller has cancelled the run."""
        self.is_draining = False
        """Whether the run moves to another process: no new call begins."""
        self.calls = 0
        """Calls in progress, whose results would be lost if the attempt ended now."""
        self.on_idle: Callable[[], object] | None = None
        """Called once when the run is to move to another process and no call is in progress; None until it can be."""
        self._writer, self._keep_content = writer, keep_content
        self._pending: list[tuple[int, dict[str, Any]]] = []
        self._values: dict[str, Any] = {}
        self.used = NO_USAGE
        """What the calls of all attempts used that are recorded; a repeated tool call is one."""
        self._tools_called = set[tuple[str, int]]()
        self.is_closed = False
        """Whether it takes no more events: the attempt ends."""
        self._next_seq = run["seq"]
        self._version = self._stored_version = 0
        self._result_version = 0
        """The version with the last event that another call must not begin without."""
        self._stored_event = asyncio.Event()

    def __call__(self, event: Event) -> None:
        """Take an event of the run; this is a subscriber."""
        if self.is_lost or self.is_closed:
            return
        self._count_usage(event)
        if not isinstance(event, events.Token | events.ModelCallStarted):
            self._pending.append((self._next_seq, self._data(event)))
            self._next_seq += 1
            self._change()
            if not isinstance(event, events.RunStarted | events.StepStarted):
                self._result_version = self._version
        self.calls += _calls_begun(event)
        self.check_idle()

    def load(self, recorded: Iterable[Mapping[str, Any]]) -> None:
        """Take the stored events of the earlier attempts."""
        for data in recorded:
            event = adapter().validate_python(data)
            self.add(event)
            self._count_usage(event)

    def _count_usage(self, event: Event) -> None:
        if isinstance(event, events.ModelCallFinished):
            self.used += event.response.usage.as_call(event.model)
        elif isinstance(event, events.ToolCallStarted) and (event.run_id, event.call) not in self._tools_called:
            self._tools_called.add((event.run_id, event.call))
            self.used += Usage(tool_calls=1)
        else:
            return
        self._values["usage"] = self.used.to_dict()

    def check_idle(self) -> None:
        """If the run is to move to another process and no call is in progress, close the journal and call `on_idle`."""
        if self.is_draining and not self.calls and not self.is_closed and self.on_idle is not None:
            self.close()
            self.on_idle()

    def close(self) -> None:
        """Take no more events: that the task is cancelled here is not the cancellation of the run."""
        self.is_closed = True

    def set(self, **values: Any) -> None:
        """Change columns of the run, with the events so far."""
        self._values |= values
        self._change()

    def lose(self) -> None:
        """Store nothing more."""
        self.is_lost = True
        self._pending.clear()
        self._stored_event.set()

    async def before_call(self, *, in_tool: bool) -> None:
        """Store all results so far; if the run is to move to another process, wait for its end."""
        await self._wait_for_version(self._result_version)
        if not in_tool:
            self.check_idle()
        if (self.is_draining and not in_tool) or self.is_lost:
            await _wait_for_cancellation()

    async def before_effect(self) -> None:
        """Store the start of a tool call."""
        await self.wait_until_stored()
        if self.is_lost:
            await _wait_for_cancellation()

    async def wait_until_stored(self) -> None:
        """Wait until all that has been emitted or set is stored, or the run is lost."""
        await self._wait_for_version(self._version)

    async def _wait_for_version(self, version: int) -> None:
        while self._stored_version < version and not self.is_lost:
            self._writer.flush_now()
            await self._stored_event.wait()

    def pending_update(self) -> tuple[int, AttemptUpdate]:
        """What is to be stored now, and the version of the journal that this makes."""
        return self._version, AttemptUpdate(self.run_id, self.attempt, tuple(self._pending), dict(self._values))

    def mark_stored(self, version: int, update: AttemptUpdate) -> None:
        """Forget what has been stored, and wake those who wait for it."""
        del self._pending[: len(update.events)]
        # what was set again meanwhile is kept
        self._values = {
            name: value
            for name, value in self._values.items()
            if name not in update.values or update.values[name] is not value
        }
        self._stored_version = version
        self._stored_event.set()
        self._stored_event = asyncio.Event()

    def _change(self) -> None:
        self._version += 1
        self._writer.schedule(self)

    def _data(self, event: Event) -> dict[str, Any]:
        data = event.to_dict() | {"seq": self._next_seq}
        dropped = _CONTEXTS if self._keep_content else (*_CONTEXTS, *_CONTENT.get(type(event), ()))
        for name in dropped:
            data.pop(name, None)
        if isinstance(event, events.RunFailed):
            data["error"] = {key: value for key, value in data["error"].items() if key not in _CONTEXTS}
        return to_json_data(data)


async def _wait_for_cancellation() -> None:
    """Wait until the task of the attempt is cancelled, by `on_idle` or by the worker."""
    await asyncio.Event().wait()


def _calls_begun(event: Event) -> int:
    """1 if an event begins something that must not be cut off, -1 if it ends it, else 0."""
    match event:
        case events.ModelCallStarted():
            return 1
        case events.ModelCallFinished() | events.ModelCallFailed():
            return -1
        case events.ToolCallStarted():  # a conductor's skills are runs, which may stop between their own calls
            return int(event.kind != "conductor")
        case events.ToolCallFinished() | events.ToolCallFailed():
            return -int(event.kind != "conductor")
        case events.RunStarted():
            return int(event.remote is not None)
        case events.RunEnded():
            return -int(event.remote is not None)
        case _:
            return 0


class Writer:
    """Stores the events of all runs of this process: what is emitted while a transaction runs goes into the next."""

    def __init__(self, store: RunStore) -> None:
        self._store = store
        self._changed: dict[StoredJournal, None] = {}
        self._wake = asyncio.Event()
        self._hurry = asyncio.Event()

    def schedule(self, journal: StoredJournal) -> None:
        """Store what a journal has to add."""
        self._changed[journal] = None
        self._wake.set()

    def flush_now(self) -> None:
        """Store now: a run waits for it."""
        self._hurry.set()

    async def write(self) -> None:
        """Wait for something to store, and store it.

        Raises:
            DatabaseUnavailableError: It cannot be stored now; the next call does so.
            Exception: It can never be stored; then its journals are lost.
        """
        await self._wake.wait()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(BATCH_DELAY):
                await self._hurry.wait()
        self._wake.clear()
        self._hurry.clear()
        changed, self._changed = self._changed, {}
        pending = {journal: journal.pending_update() for journal in changed if not journal.is_lost}
        try:
            superseded = await self._store.write([update for _, update in pending.values()])
        except DatabaseUnavailableError:
            self._changed = changed | self._changed
            self._wake.set()
            self._hurry.set()
            raise
        except Exception:
            for journal in pending:
                journal.lose()
            raise
        for journal, (version, update) in pending.items():
            journal.mark_stored(version, update)
            if update.run_id in superseded:
                journal.lose()
