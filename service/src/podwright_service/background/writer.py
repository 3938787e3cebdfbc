"""The writer of background runs: what the journals of a process have to store, in one transaction after another."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Protocol

from podwright_service.background.storage.database import (
    DatabaseUnavailableError,
)
from podwright_service.background.store import AttemptUpdate, RunStore

BATCH_DELAY = 0.05
"""Seconds that events wait for more of them, unless a call waits until they are stored."""


class UpdateSource(Protocol):
    """A journal, as far as the writer uses it."""

    @property
    def is_lost(self) -> bool:
        """Whether another process has taken the run over: nothing more is stored."""
        ...

    def pending_update(self) -> tuple[int, AttemptUpdate]:
        """Return the update to store now, and the version that the journal has with it."""
        ...

    def mark_stored(self, version: int, update: AttemptUpdate) -> None:
        """Forget what has been stored, and wake those who wait for it."""
        ...

    def lose(self) -> None:
        """Store nothing more, and stop the attempt."""
        ...


class Writer:
    """Stores the events of all runs of this process: what is emitted while a transaction runs goes into the next."""

    def __init__(self, store: RunStore) -> None:
        self._store = store
        self._changed: dict[UpdateSource, None] = {}
        self._wake = asyncio.Event()
        self._hurry = asyncio.Event()

    def schedule(self, journal: UpdateSource) -> None:
        """Store what a journal has to add."""
        self._changed[journal] = None
        self._wake.set()

    def flush_now(self) -> None:
        """Store now: a run waits for it."""
        self._hurry.set()

    def wake(self) -> None:
        """End a `write` that waits for something to store."""
        self._wake.set()
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
        changed = self._changed
        self._changed = {}
        pending: dict[UpdateSource, tuple[int, AttemptUpdate]] = {}
        for journal in changed:
            if not journal.is_lost:
                pending[journal] = journal.pending_update()
        if not pending:
            return
        updates = [update for _, update in pending.values()]
        try:
            superseded = await self._store.write(updates)
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
