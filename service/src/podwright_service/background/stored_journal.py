"""The journal of one attempt: its events are numbered, cleaned of what need not be kept, and stored in batches."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from podwright import events
from podwright.events import Event, adapter
from podwright.journal import Journal
from podwright.json_data import to_json_data
from podwright.usage import NO_USAGE
from podwright_service.background.store import DatabaseAwayError, Entry, RunStore, StoredRun

_log = logging.getLogger("podwright.background")

LINGER = 0.05
"""Seconds that events wait for more of them, unless a call waits until they are stored."""
RETRY = 1.0
"""Seconds between two attempts to reach the database."""

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
        super().__init__(approved=[tuple(each["path"]) for each in run["decisions"] if each["approved"]])
        self.run_id: str = run["id"]
        self.attempt: int = run["attempt"]
        self.is_lost = False
        """Whether another process has taken the run over: nothing more is stored."""
        self.is_cancelled = False
        """Whether a caller has cancelled the run."""
        self.is_leaving = False
        """Whether the run moves to another process: no new call begins."""
        self.calls = 0
        """Calls in progress, whose results would be lost if the attempt ended now."""
        self.on_idle: Callable[[], object] = lambda: None
        """Called once when the run is leaving and no call is in progress."""
        self._writer, self._keep_content = writer, keep_content
        self._pending: list[tuple[int, dict[str, Any]]] = []
        self._values: dict[str, Any] = {}
        self._used = NO_USAGE
        self._is_closed = False
        self._next = run["seq"]
        self._version = self._stored_version = 0
        self._result_version = 0
        """The version with the last event that another call must not begin without."""
        self._written = asyncio.Event()

    def __call__(self, event: Event) -> None:
        """Take an event of the run; this is a subscriber."""
        if self.is_lost or self._is_closed:
            return
        self._count(event)
        if not isinstance(event, events.Token | events.ModelCallStarted):
            self._pending.append((self._next, self._data(event)))
            self._next += 1
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
            self._count(event)

    def _count(self, event: Event) -> None:
        if isinstance(event, events.ModelCallFinished):
            self._used += event.response.usage.as_call(event.model)
            self._values["usage"] = self._used.to_dict()

    def check_idle(self) -> None:
        """If the run is leaving and no call is in progress, close the journal and call `on_idle`."""
        if self.is_leaving and not self.calls and not self._is_closed:
            self.close()
            self.on_idle()

    def close(self) -> None:
        """Take no more events: those of an attempt that is stopped here are not those of the run."""
        self._is_closed = True

    def set(self, **values: Any) -> None:
        """Change columns of the run, with the events so far."""
        self._values |= values
        self._change()

    def lose(self) -> None:
        """Store nothing more."""
        self.is_lost = True
        self._pending.clear()
        self._written.set()

    async def before_call(self, *, in_tool: bool) -> None:
        """Store all results so far; if the run is leaving, wait for its end."""
        await self._stored(self._result_version)
        if not in_tool:
            self.check_idle()
        if (self.is_leaving and not in_tool) or self.is_lost:
            await asyncio.Event().wait()

    async def before_effect(self) -> None:
        """Store the start of a tool call."""
        await self.stored()
        if self.is_lost:
            await asyncio.Event().wait()

    async def stored(self) -> None:
        """Wait until all that has been emitted or set is stored, or the run is lost."""
        await self._stored(self._version)

    async def _stored(self, version: int) -> None:
        while self._stored_version < version and not self.is_lost:
            self._writer.hurry()
            await self._written.wait()

    def unstored(self) -> tuple[int, Entry]:
        """What is to be stored now, and the version of the journal that this makes."""
        return self._version, Entry(self.run_id, self.attempt, tuple(self._pending), dict(self._values))

    def written(self, version: int, entry: Entry) -> None:
        """Forget what has been stored, and wake those who wait for it."""
        del self._pending[: len(entry.events)]
        self._values = {name: value for name, value in self._values.items() if entry.values.get(name) is not value}
        self._stored_version = version
        self._written.set()
        self._written = asyncio.Event()

    def _change(self) -> None:
        self._version += 1
        self._writer.add(self)

    def _data(self, event: Event) -> dict[str, Any]:
        data = event.to_dict() | {"seq": self._next}
        dropped = _CONTEXTS if self._keep_content else (*_CONTEXTS, *_CONTENT.get(type(event), ()))
        for name in dropped:
            data.pop(name, None)
        if isinstance(event, events.RunFailed):
            data["error"] = {key: value for key, value in data["error"].items() if key not in _CONTEXTS}
        return to_json_data(data)


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

    def add(self, journal: StoredJournal) -> None:
        """Store what a journal has to add."""
        self._changed[journal] = None
        self._wake.set()

    def hurry(self) -> None:
        """Store now: a run waits for it."""
        self._hurry.set()

    async def run(self) -> None:
        """Store for ever; while the database is away, try again and again."""
        while True:
            await self._wake.wait()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(LINGER):
                    await self._hurry.wait()
            self._wake.clear()
            self._hurry.clear()
            changed, self._changed = self._changed, {}
            unstored = {journal: journal.unstored() for journal in changed if not journal.is_lost}
            entries = [entry for _, entry in unstored.values()]
            (refused,) = await asyncio.gather(self._store.write(entries), return_exceptions=True)
            if isinstance(refused, DatabaseAwayError):
                self._changed = changed | self._changed
                self._wake.set()
                self._hurry.set()
                await asyncio.sleep(RETRY)
            elif isinstance(refused, BaseException):  # the runs of other journals must go on
                ids = [journal.run_id for journal in unstored]
                _log.error("The events of the background runs %s cannot be stored.", ids, exc_info=refused)
                for journal in unstored:
                    journal.lose()
            else:
                for journal, (version, entry) in unstored.items():
                    journal.written(version, entry)
                    if entry.run_id in refused:
                        journal.lose()
