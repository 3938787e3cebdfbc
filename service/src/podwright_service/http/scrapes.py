"""The scrapes of the metrics: a process that stops waits for the last one, or the figures of its last runs are lost."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable

_LEAST_PATIENCE = 5.0
"""Seconds after the last scrape in which another one is waited for, however short the interval is."""
_GAPS = 4
"""Gaps between scrapes that are remembered."""
_MISSED = 2
"""Intervals without a scrape after which nobody scrapes any more."""


class Scrapes:
    """When the metrics were scraped, and whether something was counted since.

    Args:
        clock: Returns seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._last: float | None = None
        self._gaps: deque[float] = deque(maxlen=_GAPS)
        self._has_news = False
        self._scraped = asyncio.Event()

    def note_news(self, _: object = None) -> None:
        """Record that something was counted; a subscriber of runs."""
        self._has_news = True

    def note_scrape(self) -> None:
        """Record a scrape that begins now."""
        now = self._clock()
        if self._last is not None:
            self._gaps.append(now - self._last)
        self._last = now
        self._has_news = False
        self._scraped.set()

    @property
    def patience(self) -> float:
        """Seconds in which another scrape is to be waited for; 0 if nothing is new, or nobody scrapes."""
        if not self._has_news:
            return 0.0
        return self.seconds_to_next

    @property
    def seconds_to_next(self) -> float:
        """Seconds in which there is another scrape if somebody still scrapes; 0 if nobody does.

        One scrape may be that of a person, so the interval is known after two. A person, or a second Prometheus, makes
        gaps shorter, so the longest of the last ones counts.
        """
        if self._last is None or not self._gaps:
            return 0.0
        longest = max(max(self._gaps) * _MISSED, _LEAST_PATIENCE)
        return max(0.0, self._last + longest - self._clock())

    async def wait_for_last(self) -> None:
        """Wait until what was counted has been scraped, or nobody scrapes any more."""
        while self.patience > 0:
            self._scraped.clear()
            try:
                async with asyncio.timeout(self.patience):
                    await self._scraped.wait()
            except TimeoutError:
                return
