"""The responses to requests with an `Idempotency-Key`, stored so that a repeated request does not run again."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from podwright_service.settings import Settings


@dataclass(frozen=True, slots=True)
class StoredResponse:
    """The response to the first request with a key."""

    fingerprint: str
    """Digest of that request."""
    status: int | None = None
    """None while the request is in progress."""
    headers: tuple[tuple[str, str], ...] = ()
    body: bytes | None = None
    """None if it was too large to store."""
    interrupted_tools: tuple[str, ...] = ()
    """The tools that the run had called when its client left: there is no response, and nobody knows what they did."""

    @property
    def size(self) -> int:
        """Bytes of headers and body."""
        return len(self.body or b"") + sum(
            len(name) + len(value) for name, value in self.headers
        )


class IdempotencyStore:
    """Stores responses in this process. The oldest are dropped first; a key in progress is never dropped."""

    def __init__(
        self, settings: Settings, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._ttl = settings.idempotency_ttl
        self._max_entries = settings.idempotency_entries
        self._max_bytes = settings.idempotency_bytes
        self._clock = clock
        self._in_progress: dict[str, StoredResponse] = {}
        self._responses: OrderedDict[str, tuple[float, StoredResponse]] = OrderedDict()
        self._bytes = 0

    def claim(self, key: str, fingerprint: str) -> StoredResponse | None:
        """Claim a key: None if the request may run, else what is stored for the key."""
        self._drop_expired()
        if key in self._responses:
            return self._responses[key][1]
        if key in self._in_progress:
            return self._in_progress[key]
        self._in_progress[key] = StoredResponse(fingerprint)
        return None

    def keep(self, key: str, response: StoredResponse) -> None:
        """Store the response of the request that claimed the key."""
        self._in_progress.pop(key, None)
        self._responses[key] = (self._clock() + self._ttl, response)
        self._bytes += response.size
        self._drop_expired()
        while len(self._responses) > self._max_entries or self._bytes > self._max_bytes:
            self._drop_oldest()

    def interrupt(self, key: str, fingerprint: str, tools: Iterable[str]) -> None:
        """Give up a claim whose run was cut off: the request may run again if it had called none of these tools."""
        if tools := tuple(sorted(tools)):
            self.keep(key, StoredResponse(fingerprint, interrupted_tools=tools))
        else:
            self.release(key)

    def release(self, key: str) -> None:
        """Forget a key: the request may run again."""
        self._in_progress.pop(key, None)
        if stored := self._responses.pop(key, None):
            self._bytes -= stored[1].size

    def _drop_expired(self) -> None:
        while (
            self._responses and next(iter(self._responses.values()))[0] <= self._clock()
        ):
            self._drop_oldest()

    def _drop_oldest(self) -> None:
        _, (_, response) = self._responses.popitem(last=False)
        self._bytes -= response.size
