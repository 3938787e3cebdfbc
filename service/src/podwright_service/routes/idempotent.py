"""Idempotent requests: a request with an `Idempotency-Key` runs once, and its response is replayed.

Follows the Internet-Draft draft-ietf-httpapi-idempotency-key-header: 409 while the first request is in progress, 422
for a different request with its key, otherwise the first response. Responses of runs are stored unless they are server
errors: a repeated request may succeed where the first one failed. A run that was cut off because its client left is not
repeated if it had called a tool that is not idempotent: nobody knows what the tool did.
"""

from __future__ import annotations

import hashlib

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Message, Receive, Scope, Send

from podwright.errors import PodwrightError
from podwright.headers import RUN_ID, UNFINISHED_CALLS
from podwright.text import short_repr
from podwright_service.idempotency import IdempotencyStore, StoredResponse
from podwright_service.problems import RequestError, problem_response
from podwright_service.routes.json_body import Handler, JSONRoute
from podwright_service.runtime import get_runtime
from podwright_service.streams import StreamedRun

HEADER = "Idempotency-Key"
REPLAYED = "Idempotency-Replayed"
MAX_KEY_LENGTH = 255
_MAX_SHARE = 1 / 16
"""The largest part of the store that one response may take."""
_SUGGESTION = "Send a new key, such as a UUID, for each new request, and the same key only to repeat a request."


class IdempotentRoute(JSONRoute):
    """A JSON route that honours the header `Idempotency-Key`."""

    def get_route_handler(self) -> Handler:
        """The handler of the route, run once for each key."""
        handler = super().get_route_handler()

        async def handle(request: Request) -> Response:
            if HEADER not in request.headers:
                return await handler(request)
            runtime = get_runtime(request)
            store = runtime.idempotency
            max_bytes = int(runtime.settings.idempotency_bytes * _MAX_SHARE)
            key = key_of(request)
            fingerprint = await fingerprint_of(request)
            if (stored := _claim(store, key, fingerprint, request)) is not None:
                return _replay(stored, fingerprint)
            request.state.idempotency_key = key
            request.state.called_tools = set[str]()
            try:
                response = await handler(request)
            except PodwrightError as error:
                response = problem_response(request, error)
            except BaseException:
                store.interrupt(key, fingerprint, request.state.called_tools)
                raise
            return _RecordedResponse(response, store, key, fingerprint, max_bytes)

        return handle


class _RecordedResponse(Response):
    """Sends a response, and stores it or releases its key."""

    def __init__(
        self,
        response: Response,
        store: IdempotencyStore,
        key: str,
        fingerprint: str,
        max_bytes: int,
    ) -> None:
        super().__init__()
        self._response = response
        self._store = store
        self._key = key
        self._fingerprint = fingerprint
        self._max_bytes = max_bytes
        self._status = 500
        self._sent_headers = dict[str, str]()
        self._recorded = bytearray()
        self._too_large = self._complete = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
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
                self._store.interrupt(
                    self._key, self._fingerprint, Request(scope).state.called_tools
                )

    def _settle(self, scope: Scope) -> None:
        # a stream answers 200 when its run begins, and leaves the status of its end in the request's state
        final_status = getattr(Request(scope).state, "final_status", self._status)
        if final_status < 500 and RUN_ID.lower() in self._sent_headers:
            body = None if self._too_large else bytes(self._recorded)
            headers = tuple(self._sent_headers.items())
            self._store.keep(
                self._key,
                StoredResponse(self._fingerprint, self._status, headers, body),
            )
        else:
            self._store.release(self._key)

    def _record(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self._status = message["status"]
            headers = {
                name.decode("latin-1"): value.decode("latin-1")
                for name, value in message["headers"]
            }
            self._sent_headers = {
                name: value
                for name, value in headers.items()
                if name != "content-length"
            }
        elif message["type"] == "http.response.body":
            self._complete = not message.get("more_body", False)
            if not self._too_large:
                self._recorded += message.get("body", b"")
                self._too_large = len(self._recorded) > self._max_bytes


def key_of(request: Request) -> str:
    """The key of a request, different for each caller.

    Raises:
        RequestError: 400: the header is invalid.
    """
    values = request.headers.getlist(HEADER)
    key = values[0]
    # a string of structured fields (RFC 9651)
    if len(key) > 1 and key[0] == key[-1] == '"':
        key = key[1:-1]
    if len(values) > 1 or not (
        0 < len(key) <= MAX_KEY_LENGTH
        and key.isascii()
        and key.isprintable()
        and '"' not in key
    ):
        detail = f"Expected one header '{HEADER}' with 1 to {MAX_KEY_LENGTH} printable ASCII characters."
        raise RequestError(400, "idempotency_key_invalid", detail, _SUGGESTION)
    caller = request.headers.get("authorization", "")
    return hashlib.sha256(f"{caller}\0{key}".encode()).hexdigest()


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
        detail = f"The {HEADER} was used for a different request before."
        raise RequestError(422, "idempotency_key_reused", detail, _SUGGESTION)


def _claim(
    store: IdempotencyStore, key: str, fingerprint: str, request: Request
) -> StoredResponse | None:
    """Claim a key, as `IdempotencyStore.claim`, with what the client says of a request that may have been cut off."""
    wish = request.headers.get(UNFINISHED_CALLS)
    if wish not in (None, "repeat", "interrupt"):
        detail = f"Invalid header '{UNFINISHED_CALLS}': expected repeat or interrupt, got {short_repr(wish)}."
        raise RequestError(
            400, "header_invalid", detail, "Correct the header, or leave it out."
        )
    stored = store.claim(key, fingerprint)
    if wish == "repeat" and stored and stored.interrupted_tools:
        check_fingerprint(stored.fingerprint, fingerprint)
        store.release(key)
        return store.claim(key, fingerprint)
    if wish == "interrupt" and stored is None:
        store.release(key)
        raise _interrupted(
            "There is no response to an earlier request with this key, whose run had called tools."
        )
    return stored


def _interrupted(detail: str) -> RequestError:
    suggestion = (
        "Find out what the tools did; then send a new key to run the request again."
    )
    return RequestError(409, "run_interrupted", detail, suggestion)


def _replay(stored: StoredResponse, fingerprint: str) -> Response:
    check_fingerprint(stored.fingerprint, fingerprint)
    if stored.interrupted_tools:
        names = ", ".join(f"'{tool}'" for tool in stored.interrupted_tools)
        raise _interrupted(
            f"The run of the first request with this {HEADER} was cut off after it had called {names}."
        )
    if stored.status is None:
        detail = f"The first request with this {HEADER} is still in progress."
        suggestion = (
            "Send the same request again after the seconds in the header 'Retry-After'."
        )
        raise RequestError(
            409, "idempotency_in_progress", detail, suggestion, {"retry-after": "1"}
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
            "Send a new key to run the request again.",
        )
    return Response(stored.body, stored.status, {**headers, REPLAYED: "true"})
