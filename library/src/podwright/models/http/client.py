"""HTTP requests to model providers and remote components, with aiohttp.

Each event loop has one shared session. This is the only module that handles aiohttp's exceptions: callers get a
`TransportError`.
"""

from __future__ import annotations

import asyncio
import contextlib
import io
import math
import os
import ssl
from asyncio import AbstractEventLoop
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from typing import Generic, Literal, TypeVar
from weakref import WeakKeyDictionary

import aiohttp

from podwright.data.text import causes, os_error_reason
from podwright.models.http.proxies import (
    BY_ENVIRONMENT,
    ByEnvironment,
    environment_proxy,
    trusts_environment,
    via,
    without_credentials,
)
from podwright.models.retries import Timeouts

Fault = Literal[
    "dns",
    "connect",
    "connect_timeout",
    "tls",
    "timeout",
    "disconnected",
    "truncated",
    "not_http",
    "too_large",
]
"""What failed: `disconnected` before the response, `truncated` within it; `timeout` is that of first byte or idle."""

NO_CONNECTION: tuple[Fault, ...] = ("dns", "connect", "connect_timeout")
"""The faults of a request that reached nobody."""
NOT_SENT: tuple[Fault, ...] = (*NO_CONNECTION, "tls")
"""The faults before a request was sent."""
PROPAGATORS: list[Callable[[], Mapping[str, str]]] = []
"""Functions that return further headers of each request to a model, such as those that continue a trace."""
MAX_RESPONSE = 16 * 2**20
"""Bytes of the longest response of a model, decompressed."""
_KEEP_ALIVE = 30.0
"""Seconds that an unused connection is kept."""
_DRAIN = 0.1
"""Seconds to wait for the end of a response whose last event has arrived."""
_MAX_HEADER = 64 * 1024
"""Bytes of one response header."""

ClientT = TypeVar("ClientT")


class TransportError(Exception):
    """No complete HTTP response arrived. The message has no text of the server.

    Args:
        fault: What failed.
        message: A description without a full stop.
        suggestion: What to do about it, if it can be said.
    """

    def __init__(
        self,
        fault: Fault,
        message: str,
        suggestion: str | None = None,
    ) -> None:
        super().__init__(message)
        self.fault: Fault = fault
        self.suggestion = suggestion

    @property
    def has_connected(self) -> bool:
        """Whether there was a connection; without one, the request reached nobody."""
        return self.fault not in NO_CONNECTION


class Response:
    """A response whose headers have arrived; valid within the `send` that made it."""

    def __init__(
        self,
        response: aiohttp.ClientResponse,
        deadline: asyncio.Timeout,
        idle: float,
        *,
        max_bytes: int,
        proxy: str | None,
    ) -> None:
        self._content = response.content
        self._proxy = proxy
        self.via = via(proxy)
        """The way that it came, for messages: ` through the proxy http://proxy:3128`, or nothing."""
        self._deadline = deadline
        self._idle = idle
        self._max_bytes = max_bytes
        self.size = 0
        """Bytes of the body that have arrived, decompressed."""
        self.status = response.status
        self.headers: Mapping[str, str] = response.headers
        """The headers; names are matched without regard to case."""
        content_type = response.headers.get("Content-Type", "")
        self.media_type = content_type.partition(";")[0].strip().lower()
        """The media type without parameters, such as `text/event-stream`."""

    async def read_chunk(self) -> bytes:
        """The next piece of the decompressed body, as it arrives; empty at the end.

        Raises:
            TransportError: The body is incomplete, or longer than `max_bytes`.
        """
        try:
            chunk = await self._content.readany()
        except aiohttp.ClientError:  # its message may quote the response
            raise _fault(
                "truncated",
                "the response is truncated or cannot be decompressed",
                self._proxy,
            ) from None
        self.size += len(chunk)
        if self.size > self._max_bytes:
            raise _fault(
                "too_large",
                f"the response is longer than {self._max_bytes} bytes",
                self._proxy,
            )
        if not self._content.at_eof():
            self._restart_idle_time()
        return chunk

    def _restart_idle_time(self) -> None:
        if self._idle < math.inf:
            now = asyncio.get_running_loop().time()
            self._deadline.reschedule(now + self._idle)
        else:
            self._deadline.reschedule(None)

    async def read(self) -> bytes:
        """The whole decompressed body."""
        chunks: list[bytes] = []
        while chunk := await self.read_chunk():
            chunks.append(chunk)
        return b"".join(chunks)

    async def drain(self) -> None:
        """Read the rest of the body, so that the connection can be used again; give up after a moment."""
        with contextlib.suppress(TimeoutError, TransportError):
            async with asyncio.timeout(_DRAIN):
                await self.read()


def propagated() -> dict[str, str]:
    """The headers of all `PROPAGATORS`."""
    headers: dict[str, str] = {}
    for propagate in PROPAGATORS:
        headers |= propagate()
    return headers


class _Body(io.BytesIO):
    """A request body that tells when it is read, which is once there is a connection."""

    def __init__(
        self, body: bytes, on_read: Callable[[], object] | None
    ) -> None:
        super().__init__(body)
        self._on_read = on_read

    def read(self, size: int | None = -1, /) -> bytes:
        """The next bytes."""
        if self._on_read is not None:
            self._on_read()
        return super().read(size)


@contextlib.asynccontextmanager
async def send(
    url: str,
    body: bytes,
    headers: Mapping[str, str],
    timeouts: Timeouts,
    *,
    method: str = "POST",
    first_byte: float,
    max_bytes: int,
    on_sent: Callable[[], object] | None = None,
    proxy: str | ByEnvironment | None = BY_ENVIRONMENT,
) -> AsyncGenerator[Response]:
    """Send a request. Redirects are not followed.

    Args:
        url: An http or https URL.
        body: The request body; empty for none.
        headers: The request headers.
        timeouts: Seconds to connect, and between two pieces of the response.
        method: The HTTP method.
        first_byte: Seconds from now to the first byte of the response body.
        max_bytes: The longest response body, decompressed.
        on_sent: Called when the body is about to be sent.
        proxy: URL of the proxy to use, None for none; by default what the environment says if it is trusted.

    Raises:
        TransportError: No response arrived in time; raised at the end of the context if the body is late.
    """
    sessions = _direct_sessions
    named_proxy: str | None = None
    shown_proxy: str | None = None
    if isinstance(proxy, ByEnvironment):
        sessions = _sessions
        shown_proxy = _environment_proxy(url)
    elif proxy is not None:
        named_proxy = proxy
        shown_proxy = without_credentials(proxy)
    if first_byte < math.inf:
        deadline = asyncio.timeout(first_byte)
    else:
        deadline = asyncio.timeout(None)
    connect = aiohttp.ClientTimeout(total=None, connect=timeouts.connect)
    response: Response | None = None
    try:
        async with deadline:
            session = await sessions.get()
            async with session.request(
                method,
                url,
                data=_Body(body, on_sent) if body else None,
                headers=headers,
                allow_redirects=False,
                timeout=connect,
                proxy=named_proxy,
            ) as raw:
                response = Response(
                    raw,
                    deadline,
                    timeouts.idle,
                    max_bytes=max_bytes,
                    proxy=shown_proxy,
                )
                yield response
    except aiohttp.ClientError as error:
        lost = certificate_error(error, shown_proxy)
        if lost is None:
            lost = _client_error(error, shown_proxy)
        # its message may quote the response
        if isinstance(error, aiohttp.ClientResponseError):
            raise lost from None
        raise lost from error
    except TimeoutError as error:
        if not deadline.expired():
            raise
        message = f"no response within {first_byte:g} s"
        if response is not None and response.size > 0:
            message = f"no data for {timeouts.idle:g} s"
        raise _fault("timeout", message, shown_proxy) from error


def _environment_proxy(url: str) -> str | None:
    try:
        return environment_proxy(url)
    except ValueError as error:
        raise TransportError("connect", str(error)) from None


def _fault(
    fault: Fault,
    message: str,
    proxy: str | None,
    suggestion: str | None = None,
) -> TransportError:
    """A fault of a request that went through a proxy, or directly if it is None."""
    if proxy is not None:
        message = f"{message},{via(proxy)}"
    return TransportError(fault, message, suggestion)


_FAULTS: dict[type[aiohttp.ClientError], tuple[Fault, str]] = {
    aiohttp.ConnectionTimeoutError: (
        "connect_timeout",
        "no connection in time",
    ),
    aiohttp.ClientConnectorDNSError: (
        "dns",
        "the host name cannot be resolved",
    ),
    aiohttp.ClientSSLError: ("tls", "no secure connection: TLS error"),
    aiohttp.ClientConnectorError: ("connect", "the connection failed"),
    aiohttp.InvalidURL: ("connect", "the connection failed"),
    aiohttp.ClientResponseError: ("not_http", "the response is not valid HTTP"),
}
"""What aiohttp's errors mean; the first class that fits counts, and the others are about lost connections."""
_LOST = "the connection was lost before a response"
_PROXY_FAULTS: dict[type[aiohttp.ClientError], tuple[Fault, str]] = {
    aiohttp.ClientConnectorDNSError: (
        "dns",
        "its host name cannot be resolved",
    ),
    aiohttp.ClientProxyConnectionError: (
        "connect",
        "it cannot be reached",
    ),
    aiohttp.ClientHttpProxyError: ("connect", "it refused the connection"),
}
"""What aiohttp's errors say of the proxy itself."""

_TRUST = "Set SSL_CERT_FILE to a PEM file with the certificate of its authority, or with itself if self-signed."
_EXPIRED = (
    "Renew the server's certificate, and check the clock of this machine."
)
_WRONG_HOST = "Write the URL (base_url, PODWRIGHT_MODEL_BASE_URL, PODWRIGHT_AGENTS) with a host of the certificate."
_CERTIFICATE_SUGGESTIONS = {
    9: _EXPIRED,
    10: _EXPIRED,
    62: _WRONG_HOST,
    64: _WRONG_HOST,
}
"""By OpenSSL's code of the verification error, `X509_V_ERR_…`; the others are about trust."""


def certificate_error(
    error: BaseException, proxy: str | None = None
) -> TransportError | None:
    """The fault if an exception, or one of its causes, is about an invalid certificate; else None.

    Args:
        error: The exception.
        proxy: The proxy of the request, without credentials.
    """
    cause = _with_verify_code(error)
    if not isinstance(cause, ssl.SSLCertVerificationError):
        return None
    reason = cause.verify_message.rstrip(".")
    suggestion = _CERTIFICATE_SUGGESTIONS.get(cause.verify_code, _TRUST)
    message = f"invalid certificate of the server: {reason}"
    return _fault("tls", message, proxy, suggestion=suggestion)


def _with_verify_code(error: BaseException) -> BaseException | None:
    """An exception, or the first of its causes, that has OpenSSL's code of a verification error."""
    for cause in causes(error):
        if hasattr(cause, "verify_code"):
            return cause
    return None


def connection_error(
    error: BaseException, proxy: str | None = None
) -> TransportError | None:
    """The fault if an exception of another client, or one of its causes, is about a connection; else None.

    Args:
        error: The exception.
        proxy: The proxy of the request, without credentials.
    """
    for cause in causes(error):
        if isinstance(cause, aiohttp.ClientConnectionError):
            return _client_error(cause, proxy)
        if isinstance(cause, ConnectionResetError | BrokenPipeError):
            return _fault("disconnected", _LOST, proxy)
        if isinstance(cause, ConnectionError):
            return _fault("connect", "the connection failed", proxy)
    return None


def _client_error(
    error: aiohttp.ClientError, proxy: str | None
) -> TransportError:
    if proxy is not None:
        for kind, (fault, reason) in _PROXY_FAULTS.items():
            if isinstance(error, kind):
                message = f"no connection{via(proxy)}: {reason}"
                if isinstance(error, aiohttp.ClientHttpProxyError):
                    message = f"{message} with status {error.status}"
                return TransportError(fault, message)
    for kind, (fault, message) in _FAULTS.items():
        if isinstance(error, kind):
            return _fault(fault, message, proxy)
    return _fault("disconnected", _LOST, proxy)


class OnePerLoop(Generic[ClientT]):
    """One client for each event loop, closed when the loop shuts down.

    Args:
        make: Makes a client on the running loop; it is given the certificates to trust.
        close: Closes it.
    """

    def __init__(
        self,
        make: Callable[[ssl.SSLContext], ClientT],
        close: Callable[[ClientT], Awaitable[None]],
    ) -> None:
        self._make = make
        self._close = close
        self._clients: dict[
            AbstractEventLoop, tuple[ClientT, AsyncGenerator[ClientT]]
        ] = {}
        """With the generators that close them."""
        self._making: WeakKeyDictionary[AbstractEventLoop, asyncio.Lock] = (
            WeakKeyDictionary()
        )
        """Held while a client is made, so that no other task makes a second one."""

    async def get(self) -> ClientT:
        """The client of the running event loop.

        Raises:
            TransportError: The certificates cannot be read.
        """
        loop = asyncio.get_running_loop()
        if loop not in self._clients:
            async with self._making.setdefault(loop, asyncio.Lock()):
                await self._make_once(loop)
        client, _ = self._clients[loop]
        return client

    async def _make_once(self, loop: AbstractEventLoop) -> None:
        if loop in self._clients:
            return
        certificates = await asyncio.to_thread(trusted_certificates)
        keeper = self._keep(loop, certificates)
        self._clients[loop] = await anext(keeper), keeper

    async def _keep(
        self, loop: AbstractEventLoop, certificates: ssl.SSLContext
    ) -> AsyncGenerator[ClientT]:
        """Make a client, and close it at the end: a loop closes the asynchronous generators begun on it."""
        client = self._make(certificates)
        try:
            yield client
        finally:
            self._clients.pop(loop, None)
            await self._close(client)


def _new_session(
    certificates: ssl.SSLContext, *, trust_env: bool
) -> aiohttp.ClientSession:
    return aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(
            limit=0, keepalive_timeout=_KEEP_ALIVE, ssl=certificates
        ),
        cookie_jar=aiohttp.DummyCookieJar(),
        trust_env=trust_env,
        max_line_size=_MAX_HEADER,
        max_field_size=_MAX_HEADER,
    )


def _new_environment_session(
    certificates: ssl.SSLContext,
) -> aiohttp.ClientSession:
    return _new_session(certificates, trust_env=trusts_environment())


def _new_direct_session(certificates: ssl.SSLContext) -> aiohttp.ClientSession:
    return _new_session(certificates, trust_env=False)


_sessions = OnePerLoop(_new_environment_session, aiohttp.ClientSession.close)
_direct_sessions = OnePerLoop(_new_direct_session, aiohttp.ClientSession.close)
"""Their requests go through a proxy only if it is named."""


def trusted_certificates() -> ssl.SSLContext:
    """The certificates to trust: those of the file that SSL_CERT_FILE names, else the machine's. Takes a while.

    Raises:
        TransportError: They cannot be read.
    """
    file = os.environ.get("SSL_CERT_FILE")
    try:
        return ssl.create_default_context(cafile=file or None)
    except OSError as error:
        message = f"cannot read the certificates in '{file}' (SSL_CERT_FILE): {os_error_reason(error)}"
        raise TransportError(
            "tls",
            message,
            "Set SSL_CERT_FILE to a readable PEM file, or unset it.",
        ) from error
