"""Requests that may be sent twice and are served once: the header `Idempotency-Key`.

As in the Internet-Draft draft-ietf-httpapi-idempotency-key-header: 409 while the first request is under way, 422 for
another request under its key, and else the first one's answer.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Protocol

from starlette.requests import Request
from starlette.responses import Response

from podwright_service.problems import RequestError
from podwright_service.settings import Settings

_HEADER = b"idempotency-key"
REPLAYED = "Idempotency-Replayed"
LONGEST_KEY = 255
_LARGEST = 16
"""One answer takes at most this part of the bytes for all."""
_HINT = "Send a new key, such as a UUID, for each new request, and the same one when you send a request again."

Headers = tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Answer:
    """What was answered."""

    status: int
    headers: Headers
    body: bytes | None
    """None where it was too large to keep."""


@dataclass(frozen=True, slots=True)
class Entry:
    """What is known of a key."""

    fingerprint: str
    """Of the request that came with it first."""
    answer: Answer | None = None
    """None while that one is under way."""


class Store(Protocol):
    """Where keys and answers are kept. One that several processes share makes a key hold in all of them."""

    async def claim(self, key: str, fingerprint: str) -> Entry | None:
        """Take a key in one step: None to who may go on, and otherwise what is known of it."""
        ...

    async def keep(self, key: str, entry: Entry) -> None:
        """Keep the answer of who has taken the key."""
        ...

    async def release(self, key: str) -> None:
        """Give the key back: nothing was done with it."""
        ...


class Memory:
    """The keys of this process. When there are too many, the oldest answers go first.

    A key whose request is under way stays; there are no more of them than requests that are let in.
    """

    def __init__(self, settings: Settings, clock: Callable[[], float] = time.monotonic) -> None:
        self._ttl, self._entries = settings.idempotency_ttl, settings.idempotency_entries
        self._bytes, self._clock = settings.idempotency_bytes, clock
        self._claimed: dict[str, Entry] = {}
        self._kept: OrderedDict[str, tuple[float, int, Entry]] = OrderedDict()
        self.size = 0
        """Bytes of the answers that are kept."""

    async def claim(self, key: str, fingerprint: str) -> Entry | None:
        """As in `Store`."""
        self._expire()
        if known := self._claimed.get(key):
            return known
        if key in self._kept:
            return self._kept[key][2]
        self._claimed[key] = Entry(fingerprint)
        return None

    async def keep(self, key: str, entry: Entry) -> None:
        """As in `Store`."""
        self._claimed.pop(key, None)
        answer = entry.answer
        size = len(key) + len(answer.body or b"") + sum(len(n) + len(v) for n, v in answer.headers) if answer else 0
        self._kept[key] = (self._clock() + self._ttl, size, entry)
        self.size += size
        self._expire()
        while len(self._kept) > self._entries or self.size > self._bytes:
            self._drop()

    async def release(self, key: str) -> None:
        """As in `Store`."""
        self._claimed.pop(key, None)

    def _expire(self) -> None:
        now = self._clock()
        while self._kept and next(iter(self._kept.values()))[0] <= now:
            self._drop()

    def _drop(self) -> None:
        self.size -= self._kept.popitem(last=False)[1][1]


class Recording:
    """A streamed answer on its way into a store; what is too large is let go."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._body: bytearray | None = bytearray()

    def add(self, data: bytes) -> None:
        """Keep more of it."""
        if self._body is not None:
            self._body += data
            if len(self._body) > self._most:
                self._body = None

    @property
    def body(self) -> bytes | None:
        """All of it."""
        return None if self._body is None else bytes(self._body)


class Once:
    """Serves each key once.

    Args:
        settings: How long answers are kept, and how many.
        store: Where.
    """

    def __init__(self, settings: Settings, store: Store | None = None) -> None:
        self._store = store or Memory(settings)
        self._most = settings.idempotency_bytes // _LARGEST

    async def answer(self, request: Request, data: Any, make: Callable[[Turn | None], Awaitable[Response]]) -> Response:
        """The answer to a request: one that was kept, or a new one.

        Args:
            request: What was asked.
            data: The JSON data of its body.
            make: Makes a new answer. Whoever streams it takes the turn, and ends it at the end of the stream.

        Raises:
            RequestError: 400: no key can be like this. 409: the first request with it is under way, or its answer
                was too large to keep. 422: it came with another request.
        """
        if (given := key_of(request)) is None:
            return await make(None)
        caller = request.headers.get("authorization", "")
        key = hashlib.sha256(f"{caller}\0{given}".encode()).hexdigest()
        fingerprint = _fingerprint(request, data)
        if (known := await self._store.claim(key, fingerprint)) is not None:
            return _replay(known, fingerprint)
        turn = Turn(self._store, key, fingerprint, self._most)
        try:
            response = await make(turn)
            if not turn.taken and came_to_its_end(response):
                await turn.keep(response, bytes(response.body))
        finally:
            if not turn.taken:
                await turn.release()
        return response


class Turn:
    """The right to serve a key: it ends with an answer to keep, or with the key given back."""

    def __init__(self, store: Store, key: str, fingerprint: str, most: int) -> None:
        self._store, self._key, self._fingerprint, self._most = store, key, fingerprint, most
        self._open = True
        self.taken = False
        """Whether a stream ends it."""

    def record(self) -> Recording:
        """Take the turn for a stream."""
        self.taken = True
        return Recording(self._most)

    async def keep(self, response: Response, body: bytes | None) -> None:
        """Keep an answer.

        Args:
            response: Its status and headers.
            body: What was sent; None if that was too large.
        """
        kept = body if body is not None and len(body) <= self._most else None
        headers = tuple((name, value) for name, value in response.headers.items() if name != "content-length")
        self._open = False
        await self._store.keep(self._key, Entry(self._fingerprint, Answer(response.status_code, headers, kept)))

    async def release(self) -> None:
        """Give the key back, unless an answer was kept."""
        if self._open:
            self._open = False
            await self._store.release(self._key)


def came_to_its_end(answer: Response) -> bool:
    """Whether it is the answer of a run, whatever its outcome, that neither its caller nor the service cut off."""
    return "podwright-run-id" in answer.headers and answer.status_code not in (499, 503)


def key_of(request: Request) -> str | None:
    """The key of a request: a string of structured fields (RFC 9651), or the same without its quotes.

    Raises:
        RequestError: 400: it is none.
    """
    given = [value.decode("latin-1") for name, value in request.headers.raw if name == _HEADER]
    if not given:
        return None
    key = given[0]
    if len(key) > 1 and key[0] == key[-1] == '"':
        key = key[1:-1]
    if len(given) == 1 and 0 < len(key) <= LONGEST_KEY and key.isascii() and key.isprintable() and '"' not in key:
        return key
    what = "is there more than once" if len(given) > 1 else f"is not 1 to {LONGEST_KEY} printable ASCII characters"
    raise RequestError(400, "idempotency_key_invalid", f"The header 'Idempotency-Key' {what}.", _HINT)


def _fingerprint(request: Request, data: Any) -> str:
    parts = [request.method, request.url.path, request.url.query, data]
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


def _replay(known: Entry, fingerprint: str) -> Response:
    if known.fingerprint != fingerprint:
        detail = "The Idempotency-Key came before, with another request."
        raise RequestError(422, "idempotency_key_reused", detail, _HINT)
    if (answer := known.answer) is None:
        detail = "The first request with this Idempotency-Key is still under way."
        raise RequestError(
            409, "idempotency_in_progress", detail, "Send the same request again in a while.", {"retry-after": "1"}
        )
    if answer.body is None:
        run = dict(answer.headers)["podwright-run-id"]
        detail = f"The request was served by run {run} with status {answer.status}; its answer was too large to keep."
        raise RequestError(409, "idempotency_answer_too_large", detail, "Send a new key to have it run again.")
    response = Response(answer.body, answer.status)
    for name, value in answer.headers:
        response.headers.append(name, value)
    response.headers[REPLAYED] = "true"
    return response
