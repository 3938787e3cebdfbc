"""A server that is reached by HTTP: one short-lived client for each attempt."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Callable, Coroutine
from functools import partial
from typing import Any, TypeVar

from mcp.client import CacheConfig, Client
from mcp.client.streamable_http import streamable_http_client
from mcp_types import (
    HEADER_MISMATCH,
    INVALID_PARAMS,
    METHOD_NOT_FOUND,
    UNSUPPORTED_PROTOCOL_VERSION,
    DiscoverResult,
    Implementation,
)
from mcp_types.version import LATEST_MODERN_VERSION

from podwright._version import __version__
from podwright.data.json_data import JsonObject
from podwright.errors import MCPServerError
from podwright.mcp.definitions import ToolDefinition
from podwright.mcp.results import (
    LiveListing,
    MCPResult,
    Outgoing,
    StaleDefinitionError,
)
from podwright.mcp.wire.attempt import MAX_ANSWER, MAX_LIST, Attempt
from podwright.mcp.wire.attempt_task import run_attempt
from podwright.mcp.wire.connection import Connection
from podwright.mcp.wire.http import new_client
from podwright.mcp.wire.operations import ToolCache, call_tool, list_tools
from podwright.mcp.wire.streams import Watch, watched

T = TypeVar("T")

CLIENT_INFO = Implementation(name="podwright", version=__version__)
_RECONNECT_WAIT = 0.25
"""Seconds before the second attempt."""
_NOT_THIS_ERA = (400, 404, 405)
"""Statuses of servers that do not know the protocol of a request."""
_OTHER_PROTOCOL = (METHOD_NOT_FOUND, UNSUPPORTED_PROTOCOL_VERSION)
"""Codes of errors of such servers."""
_READ = (HEADER_MISMATCH, INVALID_PARAMS)
"""Codes of errors of servers that have read the request."""
Work = Callable[[Client, Attempt], Coroutine[Any, Any, T]]


class HTTPConnection(Connection):
    """A server that is reached by HTTP.

    Args:
        name: Its name, for messages.
        url: Where it is.
        proxy: The proxy to it; None for that of the environment, if it is trusted.
    """

    def __init__(self, name: str, url: str, proxy: str | None) -> None:
        self.name = name
        self._url = url
        self._proxy = proxy
        self._era: DiscoverResult | str | None = None
        """The answer to `server/discover`, or `legacy` for a server that has none; None if it is not known."""

    async def list_tools(self, outgoing: Outgoing) -> LiveListing:
        """Return the tools of the server."""
        return await self._with_retry(
            outgoing, MAX_LIST, list_tools, ToolCache(), repeats=True
        )

    async def call_tool(
        self,
        definition: ToolDefinition,
        arguments: JsonObject,
        outgoing: Outgoing,
    ) -> MCPResult:
        """Call a tool."""
        return await self._with_retry(
            outgoing,
            MAX_ANSWER,
            partial(call_tool, name=definition.name, arguments=arguments),
            ToolCache(definition),
            repeats=outgoing.idempotent,
        )

    async def close(self) -> None:
        """Do nothing: connections belong to the event loop."""

    async def _with_retry(
        self,
        outgoing: Outgoing,
        max_bytes: int,
        work: Work[T],
        cache: ToolCache,
        *,
        repeats: bool,
    ) -> T:
        """Perform an operation, and retry it once where that is safe and may help.

        Args:
            outgoing: Its time, headers and trace context.
            max_bytes: Bytes of the answers.
            work: The operation, which takes a connected client.
            cache: The cache of the client.
            repeats: Whether it may be performed twice.
        """
        loop = asyncio.get_running_loop()
        end = loop.time() + outgoing.seconds
        era = self._era
        attempt = Attempt(self.name, outgoing, max_bytes)
        try:
            return await self._attempt(attempt, work, cache)
        except MCPServerError as error:
            if not self._may_retry(attempt, error, era, repeats=repeats):
                raise
            is_answer = error.reason == "protocol" and attempt.may_be_performed
            if is_answer and not (repeats or attempt.has_lost_session):
                work = _in_another_era(work, era, error)
        if attempt.status is None:
            await asyncio.sleep(_RECONNECT_WAIT)
        left = outgoing.with_seconds(end - loop.time())
        again = Attempt(self.name, left, max_bytes)
        return await self._attempt(again, work, cache)

    def _may_retry(
        self,
        attempt: Attempt,
        error: MCPServerError,
        era: DiscoverResult | str | None,
        *,
        repeats: bool,
    ) -> bool:
        """Return whether another attempt is safe, and may succeed.

        Args:
            attempt: The attempt that failed.
            error: Its error.
            era: What was known of the server before it.
            repeats: Whether the operation may be performed twice.
        """
        if attempt.has_lost_session:
            return True
        if error.reason == "unreachable":
            return repeats or not attempt.may_be_performed
        # the server may have been replaced by one of another era, which has refused to read the request
        if error.reason != "protocol" or era is None:
            return False
        if attempt.error_code in _READ:
            return False
        return (
            attempt.status in _NOT_THIS_ERA
            or attempt.error_code in _OTHER_PROTOCOL
        )

    async def _attempt(
        self, attempt: Attempt, work: Work[T], cache: ToolCache
    ) -> T:
        async def perform() -> T:
            async with self._client(attempt, cache) as client:
                return await work(client, attempt)

        try:
            return await run_attempt(attempt, perform)
        except MCPServerError as error:
            if attempt.error_code == HEADER_MISMATCH:
                raise StaleDefinitionError from error
            if attempt.error_code not in _READ:
                # what answers next may be another server
                self._era = None
            raise

    @contextlib.asynccontextmanager
    async def _client(
        self, attempt: Attempt, cache: ToolCache
    ) -> AsyncGenerator[Client]:
        watch = Watch()
        watch.attempts.add(attempt)
        http_client = await new_client(self._url, self._proxy, attempt)
        transport = streamable_http_client(
            self._url, http_client=http_client, max_sse_event_size=MAX_ANSWER
        )
        mode = "auto"
        discovered: DiscoverResult | None = None
        if isinstance(self._era, DiscoverResult):
            mode = LATEST_MODERN_VERSION
            discovered = self._era
        elif self._era is not None:
            mode = self._era
        client = Client(
            watched(transport, watch),
            mode=mode,
            prior_discover=discovered,
            client_info=CLIENT_INFO,
            cache=CacheConfig(
                store=cache, partition="podwright", target_id="server"
            ),
        )
        async with client:
            self._era = client.session.discover_result or "legacy"
            attempt.protocol_version = client.protocol_version
            self.protocol_version = client.protocol_version
            yield client


def _in_another_era(
    work: Work[T], era: DiscoverResult | str | None, error: MCPServerError
) -> Work[T]:
    """Return what does the work if the server is of another era than before.

    Args:
        work: The work.
        era: What was known of the server before.
        error: What is raised if it is of the same one, because then it has read the call, and may have performed it.
    """

    async def check_and_work(client: Client, attempt: Attempt) -> T:
        is_legacy = client.session.discover_result is None
        if is_legacy == isinstance(era, str):
            raise error
        return await work(client, attempt)

    return check_and_work
