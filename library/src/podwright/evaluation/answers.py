"""Recorded answers that are paid from one budget, as fast as the providers allow."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from podwright.errors import LimitExceededError, ModelRateLimitError

_MOST_CALLS = 64
"""Calls of a provider at once, if it allows so many."""


class Pace:
    """How many calls a provider is sent at once: half as many after it has refused one, and slowly more again."""

    def __init__(self, most: int = _MOST_CALLS) -> None:
        self._most = most
        self._allowed: float = most
        self._running = 0
        self._changed = asyncio.Condition()

    @property
    def allowed(self) -> int:
        """How many calls may run at once."""
        return max(1, int(self._allowed))

    @asynccontextmanager
    async def call(self) -> AsyncGenerator[None]:
        """Wait until a call may be sent, and learn from its end."""
        async with self._changed:
            await self._changed.wait_for(lambda: self._running < self.allowed)
            self._running += 1
        try:
            yield
        except ModelRateLimitError:
            self._allowed = max(1.0, self._running / 2)
            raise
        else:
            self._allowed = min(self._most, self._allowed + 1 / self.allowed)
        finally:
            self._running -= 1
            async with self._changed:
                self._changed.notify_all()
