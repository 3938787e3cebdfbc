"""Requests to one service: addresses, keys, repetition, and errors."""

from __future__ import annotations

import contextlib
import math
import uuid
from collections.abc import AsyncGenerator, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypedDict, cast

import orjson

from podwright._version import __version__
from podwright.errors import (
    ConfigurationError,
    InputError,
    RemoteConnectionError,
    RemoteError,
    RemoteResponseError,
    RemoteTimeoutError,
)
from podwright.headers import BUDGET, format_budget
from podwright.json_data import as_object, to_request_bytes
from podwright.models.http import (
    NOT_SENT,
    Fault,
    Response,
    TransportError,
    send,
)
from podwright.models.retries import (
    Retries,
    Timeouts,
    retry_after,
    with_retries,
)
from podwright.models.sse import EventParser, ServerSentEvent
from podwright.models.urls import is_header_value, join_url
from podwright.text import short_repr
from podwright.usage import RunLimits
from podwright_service.client.errors import ProblemError

Input = str | Mapping[str, Any] | Sequence[Mapping[str, Any]]
"""The input of a run: a text, named inputs, or for agents and conductors texts and images."""

_TIMEOUTS = Timeouts(connect=10.0, idle=60.0)
"""Seconds; a stream has a heartbeat every 15 seconds."""
_LONGEST_WAIT = 60.0
"""Seconds: a service that asks for more before the next request is not asked again."""
_MAX_BYTES = 256 * 2**20
"""Bytes of the longest response."""
IDEMPOTENCY_KEY = "idempotency-key"
REPLAYED = "idempotency-replayed"
"""Request header: the request with this key runs once."""


_ERRORS: Mapping[Fault, type[RemoteError]] = {
    "connect_timeout": RemoteTimeoutError,
    "timeout": RemoteTimeoutError,
    "not_http": RemoteResponseError,
    "too_large": RemoteResponseError,
}
"""The others are `RemoteConnectionError`."""


class RunOptions(TypedDict, total=False):
    """The options of a run."""

    messages: Sequence[Mapping[str, Any]]
    """Earlier turns, as `ExecutionResult.messages` has them."""
    start_step: int
    """Workflows: index of the step to start from."""
    resume_path: Sequence[int] | None
    """Workflows: where to resume, with the context of the stopped run as input."""
    decision: Mapping[str, Any]
    """What a person has decided about the question of the stopped run: `{"decision": …, "comment": …, "values": {…}}`,
    each optional; by default it is approved."""
    user: str
    """For whom the run is."""
    session: str
    """The session that the run is a part of."""
    metadata: Mapping[str, str]
    """What else the functions of the run are to know."""
    limits: RunLimits
    """What the run may use; the service's own limits hold too."""
    idempotency_key: str
    """By default a new one: a request that is lost is sent again with it, and runs once."""
    headers: Mapping[str, str]
    """Further request headers, such as `traceparent`."""


class ServiceRequests:
    """Sends requests to one service.

    Args:
        url: Its address, such as "http://localhost:8000".
        api_key: An API key that it accepts.
        timeout: Seconds from a request to its response; for a run, that is the time of the run.
        retries: How often a request is repeated that was lost or came at a bad time.

    Raises:
        ConfigurationError: The address or the key is invalid.
    """

    def __init__(
        self, url: str, api_key: str | None, timeout: float, retries: Retries
    ) -> None:
        _check_url(url)
        self.url = url.rstrip("/")
        self._timeouts = replace(_TIMEOUTS, first_byte=timeout)
        self._retries = retries
        self._headers = {"User-Agent": f"podwright/{__version__}"}
        self._key = (api_key or "").strip()
        if not is_header_value(self._key):
            raise ConfigurationError("The API key has invalid characters.")
        if self._key:
            self._headers["Authorization"] = f"Bearer {self._key}"
        if not timeout > 0:
            raise ConfigurationError(
                f"Invalid timeout {short_repr(timeout)}.",
                suggestion="Pass a number of seconds above 0, or leave it out.",
            )

    async def json(
        self,
        method: str,
        path: str,
        body: Any = None,
        headers: Mapping[str, str] | None = None,
    ) -> tuple[dict[str, Any], Mapping[str, str]]:
        """The JSON object of a response, and the headers.

        Raises:
            ProblemError: The service refused the request, or the run failed.
            RemoteError: The service could not be reached, or what answered is not one.
        """
        async with self._open(method, path, body, headers) as response:
            data = await response.read()
        return self.json_object(data), response.headers

    async def iterate_events(
        self,
        method: str,
        path: str,
        body: Any = None,
        headers: Mapping[str, str] | None = None,
    ) -> AsyncGenerator[ServerSentEvent]:
        """The server-sent events of a response, as they arrive.

        Raises:
            ProblemError, RemoteError: As `json`, also between two events.
        """
        parser = EventParser()
        async with self._open(method, path, body, headers) as response:
            if response.media_type != "text/event-stream":
                raise self.invalid("no stream of events")
            while chunk := await response.read_chunk():
                for event in parser.feed(chunk):
                    yield event

    @contextlib.asynccontextmanager
    async def _open(
        self,
        method: str,
        path: str,
        body: Any,
        headers: Mapping[str, str] | None,
    ) -> AsyncGenerator[Response]:
        """A response with a status of success; the request is sent again if that is safe and may help."""
        own_headers = {**self._headers, **(headers or {})}
        may_repeat = method == "GET" or IDEMPOTENCY_KEY in own_headers
        data = b""
        if body is not None:
            own_headers["Content-Type"] = "application/json"
            data = _to_json(body)
        for name, value in own_headers.items():
            if not is_header_value(value):
                raise InputError(f"The header '{name}' has invalid characters.")
        if not path.startswith("/"):
            raise InputError(
                f"The path {short_repr(path)} does not begin with '/'."
            )
        url = join_url(self.url, path)
        async with contextlib.AsyncExitStack() as stack:

            async def attempt() -> Response:
                sending = self._send(method, url, data, own_headers, may_repeat)
                return await stack.enter_async_context(sending)

            yield await with_retries(
                attempt, math.inf, self._retries, left=lambda: _LONGEST_WAIT
            )

    @contextlib.asynccontextmanager
    async def _send(
        self,
        method: str,
        url: str,
        data: bytes,
        headers: Mapping[str, str],
        may_repeat: bool,
    ) -> AsyncGenerator[Response]:
        sending = send(
            url,
            data,
            headers,
            self._timeouts,
            method=method,
            first_byte=self._timeouts.first_byte,
            max_bytes=_MAX_BYTES,
        )
        try:
            async with sending as response:
                if response.status >= 300:
                    raise await self._refusal(response, may_repeat)
                yield response
        except TransportError as error:
            raise self._lost(error, may_repeat) from error

    def _lost(self, error: TransportError, may_repeat: bool) -> RemoteError:
        """The error for a request without a complete response."""
        happened = "did not answer"
        if error.fault in NOT_SENT:
            happened = "cannot be reached"
        elif error.fault not in ("disconnected", "timeout"):
            happened = "did not answer to the end"
        lost = _ERRORS.get(error.fault, RemoteConnectionError)(
            f"The service at {self.url} {happened}: {error}.",
            suggestion=error.suggestion,
        )
        lost.has_connected = error.has_connected
        if not error.has_connected:
            lost.transient = True
        elif error.fault == "disconnected":
            # perhaps after the service has read it
            lost.transient = may_repeat
        return lost

    async def _refusal(
        self, response: Response, may_repeat: bool
    ) -> ProblemError:
        data = await response.read()
        if self._key:
            data = data.replace(self._key.encode(), b"***")
        problem: dict[str, Any] = {}
        with contextlib.suppress(orjson.JSONDecodeError):
            problem = as_object(orjson.loads(data))
        error = ProblemError(problem, response.status, response.via)
        wait = retry_after(response.headers)
        if wait is not None:
            error.retry_after = wait
        # at capacity, or an earlier request with the same key is in progress
        is_early = (
            response.status == 503 or error.code == "idempotency_in_progress"
        )
        is_replayed = REPLAYED in response.headers
        error.transient = (
            may_repeat
            and is_early
            and not is_replayed
            and error.retry_after is not None
        )
        return error

    def invalid(self, what: str = "") -> RemoteResponseError:
        """The error for a response that no Podwright service sends.

        Args:
            what: What it was, such as "an invalid event".
        """
        sent = f": it sent {what}" if what else ""
        return RemoteResponseError(
            f"What answers at {self.url} is not a Podwright service{sent}."
        )

    def json_object(self, data: bytes) -> dict[str, Any]:
        """The JSON object in a text of the service.

        Raises:
            RemoteResponseError: It is none.
        """
        try:
            value = orjson.loads(data)
        except orjson.JSONDecodeError:
            value = None
        if not isinstance(value, dict):
            raise self.invalid("no JSON object")
        return cast("dict[str, Any]", value)


def run_request(
    run_input: Input, options: RunOptions
) -> tuple[dict[str, Any], dict[str, str]]:
    """The body and the headers of the request for a run."""
    body: dict[str, Any] = dict(options)
    limits = options.get("limits")
    for name in ("limits", "idempotency_key", "headers"):
        body.pop(name, None)
    key = "inputs" if isinstance(run_input, Mapping) else "input"
    body[key] = run_input
    headers = {
        name.lower(): value
        for name, value in options.get("headers", {}).items()
    }
    headers.setdefault(
        IDEMPOTENCY_KEY, options.get("idempotency_key") or uuid.uuid4().hex
    )
    if limits is not None:
        headers[BUDGET] = format_budget(limits)
    return body, headers


def _check_url(url: str) -> None:
    """Check the address of a service.

    Raises:
        ConfigurationError: It is not one.
    """
    try:
        join_url(url, "/run")
    except ValueError:
        # the address is not repeated, because it may hold a secret
        raise ConfigurationError(
            "Invalid address of the service.",
            suggestion="Write it as http://host:port, without user, query or fragment.",
        ) from None


def _to_json(body: Any) -> bytes:
    try:
        return to_request_bytes(body)
    except (TypeError, ValueError) as error:
        raise InputError(
            f"The input is not JSON data: {error}.",
            suggestion="Pass texts, numbers, lists and dictionaries of such.",
        ) from error
