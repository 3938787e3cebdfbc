"""Requests to a Podwright service: sent, repeated where that is safe, and their faults as typed errors."""

from __future__ import annotations

import contextlib
import math
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Callable, Mapping
from dataclasses import dataclass
from typing import ClassVar, TypeVar, cast

import orjson
from pydantic import ValidationError

from podwright._version import __version__
from podwright.data.json_data import JsonObject
from podwright.errors import (
    ConfigurationError,
    RemoteConnectionError,
    RemoteError,
    RemoteResponseError,
    RemoteTimeoutError,
    help_page,
)
from podwright.events import Event, adapter
from podwright.messages.headers import REPLAYED
from podwright.models.http.client import (
    NOT_SENT,
    Fault,
    Response,
    TransportError,
    send,
)
from podwright.models.http.proxies import BY_ENVIRONMENT, ByEnvironment
from podwright.models.http.sse import EventParser, ServerSentEvent
from podwright.models.http.urls import join_url
from podwright.models.retries import (
    Retries,
    Timeouts,
    retry_after,
    with_retries,
)

E = TypeVar("E", bound=RemoteError)

MAX_RESPONSE = 256 * 2**20
"""Bytes of the longest response."""
_USER_AGENT = {"User-Agent": f"podwright/{__version__}"}
_ERRORS: Mapping[Fault, type[RemoteError]] = {
    "connect_timeout": RemoteTimeoutError,
    "timeout": RemoteTimeoutError,
    "not_http": RemoteResponseError,
    "too_large": RemoteResponseError,
}
"""The others are `RemoteConnectionError`."""


@dataclass(frozen=True, slots=True)
class Request:
    """A request to a service, with as many attempts as it needs."""

    method: str
    path: str
    """The path below the address of the service, with its query."""
    body: bytes
    """JSON; empty for none."""
    headers: Callable[[], Mapping[str, str]]
    """Returns the headers of an attempt."""
    may_repeat: bool
    """Whether it may be sent again although the service may have read it."""


@dataclass(frozen=True, slots=True)
class StreamEnd:
    """The last event of a stream."""

    failed: bool
    """Whether the run failed."""
    document: JsonObject
    """The response of `/run`; of a run that failed its problem document (RFC 9457)."""


# without a representation, which would show the password of a proxy
@dataclass(kw_only=True, eq=False, repr=False)
class ServiceConnection(ABC):
    """A connection to one service."""

    busy_statuses: ClassVar = (503,)
    """Statuses of refusals after which a request may be repeated, once the service says when."""
    max_event: ClassVar = math.inf
    """Bytes of the longest event of a stream."""

    url: str
    """Address of the service, as `service_url` returns it."""
    remote: str = ""
    """Name of the remote component that the service is; empty if it is none."""
    timeouts: Timeouts
    """Seconds to connect, to the first byte, and between two bytes."""
    retries: Retries
    """How often a request is repeated."""
    proxy: str | ByEnvironment | None = BY_ENVIRONMENT
    """URL of the proxy, None for none; by default that of the environment if it is trusted."""

    @property
    def who(self) -> str:
        """The service as the subject of a message."""
        if self.remote:
            return f"The remote '{self.remote}'"
        return f"The service at {self.url}"

    @abstractmethod
    def time_left(self) -> float:
        """Return the seconds within which the next attempt must begin."""

    @abstractmethod
    async def refusal(self, response: Response) -> RemoteError:
        """Make the error of a response with a status from 300."""

    def error(
        self,
        kind: type[E],
        text: str,
        suggestion: str | None = None,
        code: str | None = None,
    ) -> E:
        """Make an error of the service.

        Args:
            kind: The class of the error.
            text: What the service did, the predicate of the message.
            suggestion: What to do about it; by default that of the class.
            code: A code that is finer than that of the class.
        """
        help_url = None
        if code is not None:
            # it may be one of the service
            help_url = help_page(code)
        error = kind(
            f"{self.who} {text}",
            suggestion=suggestion,
            help_url=help_url,
            code=code,
        )
        error.remote = self.remote
        return error

    def invalid(self, what: str) -> RemoteResponseError:
        """Make the error for a response that no Podwright service sends.

        Args:
            what: What it was, such as "an invalid event".
        """
        return self.error(
            RemoteResponseError,
            f"is not a Podwright service: it sent {what}.",
        )

    def json_object(self, data: bytes) -> JsonObject:
        """Parse a JSON object of the service.

        Raises:
            RemoteResponseError: It is none.
        """
        value: object = None
        with contextlib.suppress(orjson.JSONDecodeError):
            value = orjson.loads(data)
        if not isinstance(value, dict):
            raise self.invalid("no JSON object")
        return cast("JsonObject", value)

    @contextlib.asynccontextmanager
    async def open(self, request: Request) -> AsyncGenerator[Response]:
        """Send a request, again if that is safe and may help, and yield the response with a status below 300.

        Raises:
            RemoteError: The service refused the request or cannot be reached, or the connection was lost.
        """
        async with contextlib.AsyncExitStack() as stack:

            async def attempt() -> Response:
                return await stack.enter_async_context(self._send(request))

            yield await with_retries(
                attempt, math.inf, self.retries, left=self.time_left
            )

    @contextlib.asynccontextmanager
    async def _send(self, request: Request) -> AsyncGenerator[Response]:
        sending = send(
            self.url + request.path,
            request.body,
            {**_USER_AGENT, **request.headers()},
            self.timeouts,
            method=request.method,
            first_byte=self.timeouts.first_byte,
            max_bytes=MAX_RESPONSE,
            proxy=self.proxy,
        )
        try:
            async with sending as response:
                if response.status >= 300:
                    raise await self._refused(response, request.may_repeat)
                yield response
        except TransportError as error:
            raise self._lost(error, request.may_repeat) from error

    def _lost(self, error: TransportError, may_repeat: bool) -> RemoteError:
        """Make the error for a request without a complete response."""
        happened = "did not answer"
        if error.fault in NOT_SENT:
            happened = "cannot be reached"
        elif error.fault not in ("disconnected", "timeout"):
            happened = "did not answer to the end"
        lost = self.error(
            _ERRORS.get(error.fault, RemoteConnectionError),
            f"{happened}: {error}.",
            error.suggestion,
        )
        lost.has_connected = error.has_connected
        if not error.has_connected:
            lost.transient = True
        elif error.fault == "disconnected":
            # perhaps after the service has read it
            lost.transient = may_repeat
        return lost

    async def _refused(
        self, response: Response, may_repeat: bool
    ) -> RemoteError:
        error = await self.refusal(response)
        wait = retry_after(response.headers)
        if wait is not None:
            error.retry_after = wait
        # an earlier attempt, whose connection was lost, may still run there
        in_progress = error.remote_code == "idempotency_in_progress"
        is_early = in_progress or response.status in self.busy_statuses
        is_replayed = REPLAYED in response.headers
        error.transient = (
            may_repeat
            and is_early
            and not is_replayed
            and error.retry_after is not None
        )
        return error

    async def stream(
        self, request: Request
    ) -> AsyncGenerator[Event | StreamEnd]:
        """Send a request, and yield the events of its response as they arrive, and then its end.

        Events of types that only a newer service has are left out.

        Raises:
            RemoteError: As `open`, also between two events; or the stream has no end, as after a proxy ended it.
        """
        async with self.open(request) as response:
            if response.media_type != "text/event-stream":
                error = self.invalid("no stream of events")
                error.status = response.status
                raise error
            parser = EventParser()
            while chunk := await response.read_chunk():
                for event in parser.feed(chunk):
                    item = self._parse(event)
                    if isinstance(item, StreamEnd):
                        await response.drain()
                        yield item
                        return
                    if item is not None:
                        yield item
                if parser.pending > self.max_event:
                    raise self.error(
                        RemoteResponseError,
                        f"sent an event of more than {self.max_event} bytes.",
                    )
        raise self.error(
            RemoteConnectionError,
            "closed the stream before the end of the run.",
        )

    def _parse(self, event: ServerSentEvent) -> Event | StreamEnd | None:
        """Parse an event of a stream; None for one of a type that only a newer service has."""
        if event.name in ("result", "problem"):
            document = self.json_object(event.data)
            return StreamEnd(event.name == "problem", document)
        try:
            return adapter().validate_json(event.data)
        except ValidationError as error:
            details = error.errors(include_url=False)
            if details[0]["type"] == "union_tag_invalid":
                return None
            raise self.invalid("an invalid event") from None


def service_url(url: object, whose: str) -> str:
    """Return the address of a service, without a slash at its end.

    Args:
        url: The address, such as "http://writer:8000".
        whose: The service, for the message.

    Raises:
        ConfigurationError: It is not one.
    """
    try:
        return join_url(str(url), "")
    except ValueError:
        # the address is not repeated, because it may hold a secret
        raise ConfigurationError(
            f"Invalid URL of {whose}.",
            suggestion="Write it as http://host:port, without user, query or fragment.",
        ) from None
