"""The clock of the database, which may be set ahead or back by hours while processes hold leases by it."""

from __future__ import annotations

import logging
import math
import time

TOLERANCE = 5.0
"""Seconds by which the clock may differ from what is expected: it is adjusted in small steps all the time."""

_log = logging.getLogger("podwright.background")


class DatabaseClock:
    """Compares the clock of the database with that of this process, which is never set."""

    def __init__(self) -> None:
        self._slowest = -math.inf
        self._fastest = math.inf
        """Bounds of the difference between the two, when the clock of the database was read last."""

    def note(self, now: float, asked_at: float) -> bool:
        """Note what the clock says, and return whether it was set since the last time.

        Args:
            now: Unix time in seconds, by the clock of the database.
            asked_at: When the database was asked, by `time.monotonic()`. It answered between then and now.
        """
        slowest = now - time.monotonic()
        fastest = now - asked_at
        ahead = slowest - self._fastest
        behind = self._slowest - fastest
        self._slowest = slowest
        self._fastest = fastest
        if max(ahead, behind) <= TOLERANCE:
            return False
        seconds = ahead if ahead > 0 else -behind
        _log.warning(
            "The clock of the database of background runs was set by %+.0f seconds. "
            "Runs of processes that have ended are taken over when all others have renewed their leases.",
            seconds,
        )
        return True

    def bounds(self) -> tuple[float, float]:
        """Between which times the clock is now, unless it was set since the last time; infinite before the first."""
        elapsed = time.monotonic()
        return (
            elapsed + self._slowest - TOLERANCE,
            elapsed + self._fastest + TOLERANCE,
        )
