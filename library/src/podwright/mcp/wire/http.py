"""HTTP to MCP servers: a transport for the client of the package `mcp` that limits what it lets through."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator
from typing import cast

import httpx2

from podwright._version import __version__
from podwright.errors import MCPServerError
from podwright.mcp.wire.attempt import Attempt
from podwright.models.http.client import OnePerLoop, certificate_error
from podwright.models.http.proxies import (
    environment_proxy_with_credentials,
    via,
    without_credentials,
)

_CONNECT = 10.0
"""Seconds to connect."""
_KEEP_ALIVE = 2.0
"""Seconds that an unused connection is kept: less than servers keep it, so that no call is sent on one that closes."""
_END_SESSION = 2.0
"""Seconds to end the session of a server that has them."""
_REFUSALS = {
    401: "Check its API key.",
    403: "Check that its API key may use it.",
    407: "Check the user and the password of the proxy.",
    429: "Call it less often, or raise its limit.",
}
"""Statuses of refusals, and what helps."""
_UNAVAILABLE = (502, 503, 504)
"""Statuses of a server that is away, or of a proxy before it."""
_NOT_SENT = (httpx2.ConnectError, httpx2.ConnectTimeout, httpx2.ProxyError)
"""The errors of requests that did not reach the server."""


class _Pools:
    """The connections of one event loop, to all servers."""

    def __init__(self, certificates: ssl.SSLContext) -> None:
        self._certificates = certificates
        self._by_proxy: dict[str | None, httpx2.AsyncHTTPTransport] = {}

    def get(self, proxy: str | None) -> httpx2.AsyncHTTPTransport:
        """Return the transport through a proxy, or without one."""
        if proxy not in self._by_proxy:
            through = None
            if proxy is not None:
                certificates = None
                if proxy.startswith("https:"):
                    certificates = self._certificates
                through = httpx2.Proxy(proxy, ssl_context=certificates)
            self._by_proxy[proxy] = httpx2.AsyncHTTPTransport(
                verify=self._certificates,
                trust_env=False,
                proxy=through,
                limits=httpx2.Limits(
                    max_connections=None, keepalive_expiry=_KEEP_ALIVE
                ),
            )
        return self._by_proxy[proxy]

    async def close(self) -> None:
        """Close all connections."""
        for transport in self._by_proxy.values():
            await transport.aclose()


_pools = OnePerLoop(_Pools, _Pools.close)


class _CountedBody(httpx2.AsyncByteStream):
    """The body of a response, which is counted while it is read."""

    def __init__(
        self,
        inner: httpx2.AsyncByteStream,
        transport: LimitingTransport,
        *,
        has_events: bool,
    ) -> None:
        self._inner = inner
        self._transport = transport
        self._has_events = has_events

    async def __aiter__(self) -> AsyncIterator[bytes]:
        try:
            async for chunk in self._inner:
                self._transport.attempt.count(len(chunk))
                yield chunk
        except httpx2.TransportError as error:
            raise self._transport.fail_connection(error) from error
        # the client does not read on behind an answer
        self._transport.attempt.has_ended_stream = self._has_events

    async def aclose(self) -> None:
        await self._inner.aclose()


class LimitingTransport(httpx2.AsyncBaseTransport):
    """The requests of one attempt, through connections that are shared.

    Redirects, refusals and compressed bodies end the attempt. The stream that a client opens to be sent messages is not
    opened.

    Args:
        inner: The connections.
        attempt: The attempt that the requests belong to.
        shown_proxy: The proxy, without credentials, for messages.
    """

    def __init__(
        self,
        inner: httpx2.AsyncBaseTransport,
        attempt: Attempt,
        shown_proxy: str | None,
    ) -> None:
        self._inner = inner
        self._shown_proxy = shown_proxy
        self.attempt = attempt

    async def handle_async_request(
        self, request: httpx2.Request
    ) -> httpx2.Response:
        """Send a request.

        Raises:
            MCPServerError: The attempt cannot succeed.
        """
        if request.method == "DELETE":
            return await self._end_session(request)
        if self.attempt.fault is not None:
            raise self.attempt.fault
        is_resumption = "last-event-id" in request.headers
        if request.method == "GET" and not is_resumption:
            return httpx2.Response(405)
        try:
            response = await self._inner.handle_async_request(request)
        except httpx2.TransportError as error:
            raise self.fail_connection(error) from error
        self.attempt.may_be_performed |= self.attempt.is_calling
        try:
            self._check(request, response)
        except MCPServerError:
            await response.aclose()
            raise
        body = cast("httpx2.AsyncByteStream", response.stream)
        media_type = response.headers.get("content-type", "")
        has_events = media_type.lower().startswith("text/event-stream")
        response.stream = _CountedBody(body, self, has_events=has_events)
        return response

    async def _end_session(self, request: httpx2.Request) -> httpx2.Response:
        """End a session, as far as the server takes part in that."""
        with contextlib.suppress(httpx2.TransportError, TimeoutError):
            async with asyncio.timeout(_END_SESSION):
                response = await self._inner.handle_async_request(request)
                await response.aclose()
        return httpx2.Response(204)

    def _check(
        self, request: httpx2.Request, response: httpx2.Response
    ) -> None:
        attempt = self.attempt
        status = response.status_code
        attempt.status = status
        way = via(self._shown_proxy)
        if 300 <= status < 400:
            raise attempt.fail(
                attempt.error(
                    f"wants the request to be sent elsewhere (HTTP {status}){way}, which is refused.",
                    "redirect",
                    "Give the URL at which it answers.",
                )
            )
        if status in _REFUSALS:
            raise attempt.fail(
                attempt.error(
                    f"refused the request (HTTP {status}){way}.",
                    "refused",
                    _REFUSALS[status],
                )
            )
        if status in _UNAVAILABLE:
            raise attempt.fail(attempt.unreachable_error(f"HTTP {status}{way}"))
        attempt.has_ended_stream = False
        encoding = response.headers.get("content-encoding", "identity")
        if encoding.lower() != "identity":
            raise attempt.fail(
                attempt.error(
                    "sent a compressed answer, which was not asked for.",
                    "protocol",
                )
            )
        has_session = "mcp-session-id" in request.headers
        attempt.has_lost_session = status == 404 and has_session

    def fail_connection(self, error: httpx2.TransportError) -> MCPServerError:
        """End the attempt because of an error of a connection; return the error."""
        attempt = self.attempt
        if not isinstance(error, _NOT_SENT):
            attempt.may_be_performed |= attempt.is_calling
        way = via(self._shown_proxy)
        certificate = certificate_error(error, self._shown_proxy)
        if certificate is not None:
            detail = str(certificate)
            return attempt.fail(
                attempt.unreachable_error(detail, certificate.suggestion)
            )
        detail = f"{_describe(error)}{way}"
        return attempt.fail(attempt.unreachable_error(detail))


def _describe(error: httpx2.TransportError) -> str:
    match error:
        case httpx2.ConnectTimeout():
            return "no connection in time"
        case httpx2.ProxyError():
            return "the proxy refused the connection"
        case httpx2.ConnectError():
            return "no connection"
        case httpx2.ProtocolError():
            return "the connection was lost, or the answer is not HTTP"
        case _:
            return "the connection was lost"


async def new_client(
    url: str, proxy: str | None, attempt: Attempt
) -> httpx2.AsyncClient:
    """Make the HTTP client of one attempt. It need not be closed, because it has no connections of its own.

    Args:
        url: The server.
        proxy: The proxy of the server; None for that of the environment, if it is trusted.
        attempt: The attempt.

    Raises:
        TransportError: The certificates to trust cannot be read.
        ValueError: The proxy of the environment is not a URL.
    """
    if proxy is None:
        proxy = environment_proxy_with_credentials(url)
    shown_proxy = None
    if proxy is not None:
        shown_proxy = without_credentials(proxy)
    pools = await _pools.get()
    transport = LimitingTransport(pools.get(proxy), attempt, shown_proxy)
    headers = {
        "user-agent": f"podwright/{__version__}",
        **attempt.outgoing.headers,
        **attempt.outgoing.forwarded,
        "accept-encoding": "identity",
    }
    return httpx2.AsyncClient(
        transport=transport,
        headers=headers,
        timeout=httpx2.Timeout(None, connect=_CONNECT),
        trust_env=False,
        follow_redirects=False,
    )
