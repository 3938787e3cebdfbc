"""Idempotent requests: a request with an `Idempotency-Key` runs once, and its response is replayed.

Follows the Internet-Draft draft-ietf-httpapi-idempotency-key-header: 409 while the first request is in progress, 422
for a different request with its key, otherwise the first response. Responses of runs are stored unless they are server
errors: a repeated request may succeed where the first one failed. A run that was cut off because its client left is not
repeated if it had called a tool that is not idempotent: what the tool did is unknown. A run that has gone on from the
state of a stopped one cannot do that again, so that every response to it is stored, with the state to go on from.
"""

from __future__ import annotations

import hashlib
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Message, Receive, Scope, Send

from podwright.data.text import short_repr
from podwright.errors import PodwrightError
from podwright.events import Event, ToolCallStarted
from podwright.messages.headers import (
    IDEMPOTENCY_KEY,
    REPLAYED,
    RUN_ID,
    UNFINISHED_CALLS,
)
from podwright_service.http.errors.error_responses import problem_response
from podwright_service.http.errors.problems import RequestError
from podwright_service.http.json_body import JSONRoute
from podwright_service.http.query import Handler
from podwright_service.http.streams import StreamedRun
from podwright_service.settings import Settings

if TYPE_CHECKING:
    from podwright.mcp.server import MCPServer

MAX_KEY_LENGTH = 255
_MAX_SHARE = 1 / 16
"""The largest part of the store that one response may take."""
_SUGGESTION = "Send a new key, such as a UUID, for each new request, and the same key only to repeat a request."


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
    """The tools that the run had called when its client left: the response is missing, and what they did is unknown."""

    @property
    def size(self) -> int:
        """Bytes of headers and body."""
        size = len(self.body or b"")
        for name, value in self.headers:
            size += len(name) + len(value)
        return size


class RequestKey(NamedTuple):
    """The key of a request, and what tells the request from others."""

    digest: str
    """SHA-256 of the caller and its key."""
    fingerprint: str
    """SHA-256 of the request."""


@dataclass(slots=True)
class IdempotentRequest:
    """A request that has claimed its key."""

    key: str
    fingerprint: str
    """Digest of the request."""
    called_tools: set[str] = field(default_factory=set[str])
    """The tools of its run whose calls must not be repeated."""
    stopped: PodwrightError | None = None
    """What ended a run that had gone on from the state of a stopped one, which it cannot do again."""

    def note_tool(self, event: Event) -> None:
        """Note the tool of a call that is not idempotent; this is a subscriber of the run."""
        if isinstance(event, ToolCallStarted) and not event.idempotent:
            self.called_tools.add(event.tool)


class IdempotencyStore:
    """Stores responses in this process. The oldest are dropped first; a key in progress is never dropped."""

    def __init__(
        self, settings: Settings, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._ttl = settings.idempotency_ttl
        self._max_entries = settings.idempotency_entries
        self._max_bytes = settings.idempotency_bytes
        self.max_response_bytes = int(self._max_bytes * _MAX_SHARE)
        """Bytes of the largest body that is stored."""
        self._clock = clock
        self._in_progress: dict[str, StoredResponse] = {}
        self._responses: OrderedDict[str, tuple[float, StoredResponse]] = (
            OrderedDict()
        )
        self._bytes = 0

    def claim(self, key: str, fingerprint: str) -> StoredResponse | None:
        """Claim a key: None if the request may run, else what is stored for the key."""
        self._drop_expired()
        if key in self._responses:
            _, response = self._responses[key]
            return response
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
        while (
            len(self._responses) > self._max_entries
            or self._bytes > self._max_bytes
        ):
            self._drop_oldest()

    def interrupt(self, request: IdempotentRequest) -> None:
        """Give up a claim whose run was cut off: the request may run again if its `called_tools` are empty."""
        names = tuple(sorted(request.called_tools))
        if names:
            response = StoredResponse(
                request.fingerprint, interrupted_tools=names
            )
            self.keep(request.key, response)
        else:
            self.release(request.key)

    def release(self, key: str) -> None:
        """Forget a key: the request may run again."""
        self._in_progress.pop(key, None)
        if key in self._responses:
            _, response = self._responses.pop(key)
            self._bytes -= response.size

    def _drop_expired(self) -> None:
        while self._responses:
            expires_at, _ = next(iter(self._responses.values()))
            if expires_at > self._clock():
                break
            self._drop_oldest()

    def _drop_oldest(self) -> None:
        _, (_, response) = self._responses.popitem(last=False)
        self._bytes -= response.size


def idempotent_request(request: Request) -> IdempotentRequest | None:
    """What an `IdempotentRoute` knows of the request; None if it has no `Idempotency-Key`."""
    return getattr(request.state, "idempotent", None)


class IdempotentRoute(JSONRoute):
    """A JSON route that honours the header `Idempotency-Key`."""

    def get_route_handler(self) -> Handler:
        """The handler of the route, run once for each key."""
        handler = super().get_route_handler()

        async def handle(request: Request) -> Response:
            if IDEMPOTENCY_KEY not in request.headers:
                return await handler(request)
            store: IdempotencyStore = request.app.state.runtime.idempotency
            key = _with_forwarded_headers(request, key_of(request))
            fingerprint = await fingerprint_of(request)
            stored = _claim(store, key, fingerprint, request)
            if stored is not None:
                return _replay(stored, fingerprint)
            claimed = IdempotentRequest(key, fingerprint)
            request.state.idempotent = claimed
            try:
                response = await handler(request)
            except PodwrightError as error:
                response = problem_response(request, error)
            except BaseException:
                _give_up(store, claimed, request)
                raise
            return _RecordedResponse(response, store, claimed)

        return handle


class _RecordedResponse(Response):
    """Sends a response, and stores it or releases its key."""

    def __init__(
        self,
        response: Response,
        store: IdempotencyStore,
        request: IdempotentRequest,
    ) -> None:
        super().__init__()
        self._response = response
        self._store = store
        self._request = request
        self._status = 500
        self._sent_headers: dict[str, str] = {}
        self._recorded = bytearray()
        self._too_large = False
        self._complete = False

    async def __call__(
        self, scope: Scope, receive: Receive, send: Send
    ) -> None:
        async def record_and_send(message: Message) -> None:
            self._record(message)
            # settled first, so that a client that repeats the request at once finds the response
            if self._complete:
                self._settle(scope)
            await send(message)

        try:
            await self._response(scope, receive, record_and_send)
            if not self._complete and isinstance(self._response, StreamedRun):
                await self._response.send_rest(record_and_send)
        finally:
            if not self._complete:
                _give_up(self._store, self._request, Request(scope))

    def _settle(self, scope: Scope) -> None:
        # a stream answers 200 when its run begins, and leaves the status of its end in the request's state
        final_status = getattr(
            Request(scope).state, "final_status", self._status
        )
        body = None
        if not self._too_large:
            body = bytes(self._recorded)
        response = StoredResponse(
            self._request.fingerprint,
            self._status,
            headers=tuple(self._sent_headers.items()),
            body=body,
        )
        _settle(self._store, self._request, response, final_status)

    def _record(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self._status = message["status"]
            for name, value in message["headers"]:
                header = name.decode("latin-1")
                self._sent_headers[header] = value.decode("latin-1")
            self._sent_headers.pop("content-length", None)
        elif message["type"] == "http.response.body":
            self._complete = not message.get("more_body", False)
            if not self._too_large:
                self._recorded += message.get("body", b"")
                self._too_large = (
                    len(self._recorded) > self._store.max_response_bytes
                )


async def answer_once(
    request: Request, key: RequestKey, answer: Callable[[], Awaitable[Response]]
) -> Response:
    """Return the response to a request with a key, which is made once for each key, for a route that is no JSON route.

    Args:
        request: The request.
        key: Its key.
        answer: Makes the response; the one of a run has its id as a header.

    Raises:
        RequestError: 409: the first request is in progress, or its response is missing. 422: it was another request.
        PodwrightError: The run failed, and may be tried again.
    """
    store: IdempotencyStore = request.app.state.runtime.idempotency
    digest = _with_forwarded_headers(request, key.digest)
    stored = _claim(store, digest, key.fingerprint, request)
    if stored is not None:
        return _replay(stored, key.fingerprint)
    claimed = IdempotentRequest(digest, key.fingerprint)
    request.state.idempotent = claimed
    try:
        response = await answer()
    except BaseException:
        _give_up(store, claimed, request)
        raise
    body: bytes | None = bytes(response.body)
    if len(response.body) > store.max_response_bytes:
        body = None
    kept = StoredResponse(
        key.fingerprint,
        response.status_code,
        headers=tuple(response.headers.items()),
        body=body,
    )
    _settle(store, claimed, kept, response.status_code)
    return response


def _settle(
    store: IdempotencyStore,
    claimed: IdempotentRequest,
    response: StoredResponse,
    final_status: int,
) -> None:
    """Store the response to a request, or release its key: after a refusal, and where another run may succeed."""
    is_refused = RUN_ID.lower() not in dict(response.headers)
    may_succeed = final_status >= 500 and claimed.stopped is None
    if is_refused or may_succeed:
        store.release(claimed.key)
    else:
        store.keep(claimed.key, response)


def _give_up(
    store: IdempotencyStore, claimed: IdempotentRequest, request: Request
) -> None:
    """Settle a claim whose client left: what has stopped its run is kept if the run cannot begin again."""
    if claimed.stopped is None:
        store.interrupt(claimed)
        return
    problem = problem_response(request, claimed.stopped)
    response = StoredResponse(
        claimed.fingerprint,
        problem.status_code,
        headers=tuple(problem.headers.items()),
        body=bytes(problem.body),
    )
    store.keep(claimed.key, response)


def key_of(request: Request) -> str:
    """The key of a request, different for each caller.

    Raises:
        RequestError: 400: the header is invalid.
    """
    values = request.headers.getlist(IDEMPOTENCY_KEY)
    key = values[0]
    # a string of structured fields (RFC 9651)
    if len(key) > 1 and key[0] == key[-1] == '"':
        key = key[1:-1]
    if len(values) > 1:
        key = ""
    return digest_of_key(request, key, f"header '{IDEMPOTENCY_KEY}'")


def digest_of_key(request: Request, key: str, place: str) -> str:
    """The digest of a key, different for each caller.

    Args:
        request: The request of the caller.
        key: The key.
        place: Where it was sent, for errors.

    Raises:
        RequestError: 400: it is invalid.
    """
    if not _is_valid(key):
        detail = f"Expected one {place} with 1 to {MAX_KEY_LENGTH} printable ASCII characters."
        raise RequestError(400, "idempotency_key_invalid", detail, _SUGGESTION)
    caller = request.headers.get("authorization", "")
    return hashlib.sha256(f"{caller}\0{key}".encode()).hexdigest()


def _with_forwarded_headers(request: Request, key: str) -> str:
    """A key that differs by the headers that MCP servers are sent: by them, the same request has another answer."""
    servers: Mapping[str, MCPServer] = request.app.state.runtime.mcp
    names = {
        name
        for server in servers.values()
        for name in server.headers_from_request
    }
    if not names:
        return key
    sent = [(name, request.headers.getlist(name)) for name in sorted(names)]
    return hashlib.sha256(f"{key}\0{sent}".encode()).hexdigest()


def _is_valid(key: str) -> bool:
    if not 0 < len(key) <= MAX_KEY_LENGTH:
        return False
    return key.isascii() and key.isprintable() and '"' not in key


async def fingerprint_of(request: Request) -> str:
    """A digest of a request, which tells a repeated one from another one."""
    target = f"{request.method} {request.url.path}?{request.url.query}\n"
    return hashlib.sha256(target.encode() + await request.body()).hexdigest()


def check_fingerprint(first: str, repeated: str) -> None:
    """Check that a request with a known key is the same as the first one.

    Raises:
        RequestError: 422: it is another one.
    """
    if first != repeated:
        detail = (
            f"The {IDEMPOTENCY_KEY} was used for a different request before."
        )
        raise RequestError(422, "idempotency_key_reused", detail, _SUGGESTION)


def _claim(
    store: IdempotencyStore, key: str, fingerprint: str, request: Request
) -> StoredResponse | None:
    """Claim a key, as `IdempotencyStore.claim`, with what the client says of a request that may have been cut off."""
    wish = request.headers.get(UNFINISHED_CALLS)
    if wish not in (None, "repeat", "interrupt"):
        detail = f"Invalid header '{UNFINISHED_CALLS}': expected repeat or interrupt, got {short_repr(wish)}."
        raise RequestError(
            400,
            "header_invalid",
            detail,
            "Correct the header, or leave it out.",
        )
    stored = store.claim(key, fingerprint)
    if wish == "repeat" and stored and stored.interrupted_tools:
        check_fingerprint(stored.fingerprint, fingerprint)
        store.release(key)
        return store.claim(key, fingerprint)
    if wish == "interrupt" and stored is None:
        store.release(key)
        detail = "There is no response to an earlier request with this key, whose run had called tools."
        raise _interrupted_error(detail)
    return stored


def _interrupted_error(detail: str) -> RequestError:
    suggestion = "Find out what the tools did; then send a new key to run the request again."
    return RequestError(409, "run_interrupted", detail, suggestion)


def _replay(stored: StoredResponse, fingerprint: str) -> Response:
    check_fingerprint(stored.fingerprint, fingerprint)
    if stored.interrupted_tools:
        names = ", ".join(f"'{tool}'" for tool in stored.interrupted_tools)
        detail = f"The run of the first request with this {IDEMPOTENCY_KEY} was cut off after it had called {names}."
        raise _interrupted_error(detail)
    if stored.status is None:
        detail = f"The first request with this {IDEMPOTENCY_KEY} is still in progress."
        raise RequestError(
            409,
            "idempotency_in_progress",
            detail,
            suggestion="Send the same request again after the seconds in the header 'Retry-After'.",
            headers={"retry-after": "1"},
        )
    headers = dict(stored.headers)
    if stored.body is None:
        run_id = headers[RUN_ID.lower()]
        detail = (
            f"Run {run_id} answered the first request with status {stored.status}; "
            "its response was too large to store."
        )
        raise RequestError(
            409,
            "idempotency_answer_too_large",
            detail,
            suggestion="Send a new key to run the request again.",
        )
    return Response(stored.body, stored.status, {**headers, REPLAYED: "true"})
