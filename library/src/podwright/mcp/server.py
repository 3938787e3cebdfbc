"""MCP servers, whose tools components call."""

from __future__ import annotations

import asyncio
import hashlib
import logging
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeVar

from podwright.data.json_data import JsonObject
from podwright.errors import ConfigurationError, MCPServerError
from podwright.mcp.definitions import ToolDefinition
from podwright.mcp.results import (
    Exchange,
    LiveListing,
    MCPResult,
    Outgoing,
    Reason,
    StaleDefinitionError,
    ToolListing,
)
from podwright.mcp.targets import HTTPTarget, ProgramTarget, Target
from podwright.models.http.urls import is_header_value

if TYPE_CHECKING:
    from podwright.mcp.wire.connection import Connection

__all__ = [
    "Exchange",
    "MCPResult",
    "MCPServer",
    "ToolListing",
    "subscribe",
]

T = TypeVar("T")
Drift = Literal["error", "warn"]
_Question = tuple[asyncio.AbstractEventLoop, float, str]
"""Who asks for a list of tools: the event loop, the seconds that it may take, and the key of the caller's headers."""

DEFAULT_TTL = 300.0
"""Seconds for which a listing is cached if the server does not say."""
MAX_TTL = 3600.0
"""Seconds for which a listing is cached at most."""
_MAX_LISTINGS = 64
"""Listings that are cached, of callers with different headers."""
_MAX_DIFFERENCES = 8
"""Differences of a definition that a message names at most."""
_log = logging.getLogger("podwright")
_subscribers: list[Callable[[Exchange], object]] = []


def subscribe(handler: Callable[[Exchange], object]) -> Callable[[], None]:
    """Call a function after each operation on a server.

    Args:
        handler: The function; it must not raise.

    Returns:
        A function that ends the subscription.
    """
    _subscribers.append(handler)

    def unsubscribe() -> None:
        if handler in _subscribers:
            _subscribers.remove(handler)

    return unsubscribe


@dataclass(frozen=True, slots=True)
class _CachedListing:
    listing: ToolListing
    expires: float
    """When it must be requested again, by the monotonic clock."""


class MCPServer:
    """An MCP server, whose tools components call.

    It is not connected before the first call. Both eras of the protocol are supported: 2026-07-28, and the revisions
    with a handshake, 2025-11-25 and older.

    Args:
        url: Its address, such as "https://files.example/mcp"; never part of a blueprint.
        api_key: The key that it is sent as `Authorization: Bearer …`.
        api_key_file: A file with the key, which is read again for each call.
        headers: Further headers that it is sent.
        headers_from_request: Names of headers of the caller's request that it is sent, too. They need https, or a
            loopback address.
        timeout: Seconds that a call or a listing may take.
        proxy: URL of the proxy for its requests; by default that of the environment, if it is trusted.

    Raises:
        ConfigurationError: Invalid URL, key, header, time-out or proxy; a key and a file; a file that cannot be read.
    """

    def __init__(
        self,
        url: str,
        *,
        api_key: str | None = None,
        api_key_file: str | None = None,
        headers: Mapping[str, str] | None = None,
        headers_from_request: Sequence[str] = (),
        timeout: float = 30.0,
        proxy: str | None = None,
    ) -> None:
        self._begin(
            HTTPTarget(
                url=url,
                proxy=proxy,
                headers=headers or {},
                headers_from_request=headers_from_request,
                api_key=api_key,
                api_key_file=api_key_file,
            ),
            timeout,
        )

    @staticmethod
    def stdio(
        command: str,
        *arguments: str,
        env: Mapping[str, str] | None = None,
        cwd: str | None = None,
        timeout: float = 30.0,
    ) -> MCPServer:
        """Return a server that is a program of this machine. It runs once for each event loop, and ends with it.

        Args:
            command: The program.
            *arguments: Its arguments.
            env: Variables for it, beside `PATH`, `HOME` and the like; others of this process are not passed on.
            cwd: Where it runs; by default here.
            timeout: Seconds that a call or a listing may take.

        Raises:
            ConfigurationError: No program, or an invalid time-out.
        """
        return _Program(ProgramTarget(command, arguments, env, cwd), timeout)

    def _begin(self, target: Target, timeout: float) -> None:
        self._target = target
        self.name = ""
        """The name by which a component uses it; empty before."""
        self.headers_from_request = target.headers_from_request
        """Names of headers of callers that the server is sent, in lower case."""
        if not timeout > 0:
            raise ConfigurationError(
                f"The timeout of the MCP server '{self.shown_name}' must be more than 0 seconds."
            )
        self.timeout = timeout
        """Seconds that a call or a listing may take."""
        self.is_up: bool | None = None
        """Whether it answered the last request; None before the first one."""
        self._connection: Connection | None = None
        self._listings: OrderedDict[str, _CachedListing] = OrderedDict()
        """By a digest of the caller's headers, because a list may depend on who asks."""
        self._pending: dict[_Question, asyncio.Task[ToolListing]] = {}
        self._warned: set[str] = set()
        """Digests of definitions that the log has warned of."""

    def __repr__(self) -> str:
        """Return the server without keys, headers and arguments."""
        return f"MCPServer({self.shown_name!r})"

    @property
    def shown_name(self) -> str:
        """The name for messages: the one by which a component uses it, else its host or program."""
        return self.name or self._target.shown_name

    async def list_tools(
        self,
        headers: Mapping[str, str] | None = None,
        traceparent: str | None = None,
        *,
        cached: bool = False,
    ) -> ToolListing:
        """Return the tools that the server has now: at most 128, on at most 10 pages.

        Args:
            headers: The headers of the caller's request, of which the server is sent those that it may have.
            traceparent: The W3C trace context of the requests.
            cached: Whether an earlier list is enough, for as long as the server has said that it holds.

        Raises:
            MCPServerError: The server is not reachable, or its list is invalid or too large.
            ConfigurationError: The package `mcp` is not installed.
        """
        outgoing = self._outgoing(self.timeout, headers or {}, traceparent)
        known = self._known(outgoing)
        if cached and known is not None:
            return known
        return await self._list(outgoing)

    async def call(
        self,
        name: str,
        arguments: JsonObject,
        *,
        locked: ToolDefinition | None,
        drift: Drift = "error",
        seconds: float | None = None,
        headers: Mapping[str, str] | None = None,
        traceparent: str | None = None,
        idempotent: bool = False,
    ) -> MCPResult:
        """Call a tool.

        Args:
            name: The tool, as the server names it.
            arguments: Its arguments.
            locked: The definition that the model was shown; None if it was not locked.
            drift: What happens if the server's definition is another one: the call is refused, or the log warns of it.
            seconds: Seconds that the call may take; by default the server's time-out.
            headers: The headers of the caller's request, of which the server is sent those that it may have.
            traceparent: The W3C trace context of the call.
            idempotent: Whether the tool may be called again if the connection is lost.

        Raises:
            MCPServerError: The call failed; a tool that says itself that it failed is a result.
            ConfigurationError: The package `mcp` is not installed.
        """
        if seconds is None:
            seconds = self.timeout
        outgoing = self._outgoing(
            seconds, headers or {}, traceparent, idempotent=idempotent
        )
        end = time.monotonic() + seconds
        definition = await self._definition(name, locked, drift, outgoing)
        try:
            return await self._call(definition, arguments, outgoing, end)
        except StaleDefinitionError:
            self._listings.pop(_cache_key(outgoing), None)
        definition = await self._definition(
            name, locked, drift, outgoing.with_seconds(end - time.monotonic())
        )
        try:
            return await self._call(definition, arguments, outgoing, end)
        except StaleDefinitionError as error:
            raise self._error(
                "refused the headers of the call, although they are those of its own definition of the tool.",
                "protocol",
            ) from error

    async def close(self) -> None:
        """End its process, if it is one of this event loop; connections of HTTP are closed with the loop."""
        if self._connection is not None:
            await self._connection.close()

    async def _call(
        self,
        definition: ToolDefinition,
        arguments: JsonObject,
        outgoing: Outgoing,
        end: float,
    ) -> MCPResult:
        connection = await self._connect()
        left = outgoing.with_seconds(max(0.0, end - time.monotonic()))
        return await self._observe(
            "tools/call", connection.call_tool(definition, arguments, left)
        )

    async def _definition(
        self,
        name: str,
        locked: ToolDefinition | None,
        drift: Drift,
        outgoing: Outgoing,
    ) -> ToolDefinition:
        """Return the definition that the server has now.

        Raises:
            MCPServerError: It has none, or another than the locked one.
        """
        known = self._known(outgoing)
        if known is not None:
            definition = known.tools.get(name)
            is_accepted = drift == "warn" or not _differs(definition, locked)
            if definition is not None and is_accepted:
                self._check_drift(definition, locked, drift)
                return definition
        # the cached listing may be out of date
        listing = await self._list(outgoing)
        definition = listing.tools.get(name)
        if definition is None:
            raise self._unknown_tool(name, listing)
        self._check_drift(definition, locked, drift)
        return definition

    def _unknown_tool(self, name: str, listing: ToolListing) -> MCPServerError:
        if name in listing.refused:
            return self._error(
                f"has no valid definition of the tool '{name}': {listing.refused[name]}",
                "unknown_tool",
            )
        return self._error(
            f"does not have the tool '{name}'.",
            "unknown_tool",
            "Compare its tools with the lock by `podwright sync --check --mcp`.",
        )

    def _check_drift(
        self, live: ToolDefinition, locked: ToolDefinition | None, drift: Drift
    ) -> None:
        """Refuse a definition that is not as it was locked, or warn of it once."""
        if locked is None or not _differs(live, locked):
            return
        differences = locked.differences(live)
        shown = ", ".join(differences[:_MAX_DIFFERENCES])
        if len(differences) > _MAX_DIFFERENCES:
            shown += ", …"
        error = self._error(
            f"has changed the tool '{locked.name}' since it was locked, at {shown}.",
            "drift",
            "Look at the difference with `podwright sync --check --mcp`, and accept it with `podwright sync --mcp`.",
        )
        if drift == "error":
            raise error
        difference = f"{locked.digest} {live.digest}"
        if difference not in self._warned:
            self._warned.add(difference)
            _log.warning("%s It is called all the same.", error.message)

    def _known(self, outgoing: Outgoing) -> ToolListing | None:
        """The list that still holds for a caller, if there is one."""
        known = self._listings.get(_cache_key(outgoing))
        if known is None or known.expires <= time.monotonic():
            return None
        return known.listing

    async def _list(self, outgoing: Outgoing) -> ToolListing:
        """Ask for the tools; those who ask at the same time, and would wait as long, share the answer."""
        question = (
            asyncio.get_running_loop(),
            outgoing.seconds,
            _cache_key(outgoing),
        )
        task = self._pending.get(question)
        if task is None:
            task = asyncio.create_task(self._ask(outgoing))
            self._pending[question] = task

            def forget(task: asyncio.Task[ToolListing]) -> None:
                del self._pending[question]
                if not task.cancelled():
                    # all who asked may have left
                    task.exception()

            task.add_done_callback(forget)
        return await asyncio.shield(task)

    async def _ask(self, outgoing: Outgoing) -> ToolListing:
        connection = await self._connect()
        live = await self._observe(
            "tools/list", connection.list_tools(outgoing)
        )
        self._cache_listing(_cache_key(outgoing), live)
        return live.listing

    def _cache_listing(self, key: str, live: LiveListing) -> None:
        ttl = DEFAULT_TTL
        if live.ttl is not None:
            ttl = min(live.ttl, MAX_TTL)
        self._listings[key] = _CachedListing(
            live.listing, time.monotonic() + ttl
        )
        self._listings.move_to_end(key)
        while len(self._listings) > _MAX_LISTINGS:
            self._listings.popitem(last=False)

    async def _observe(self, method: str, operation: Awaitable[T]) -> T:
        """Await an operation, and notify the subscribers unless it is cancelled."""
        began = time.monotonic()
        try:
            result = await operation
        except MCPServerError as error:
            self.is_up = error.reason not in ("unreachable", "timeout")
            self._notify(method, began, error.reason)
            raise
        self.is_up = True
        self._notify(method, began, None)
        return result

    def _notify(self, method: str, began: float, reason: str | None) -> None:
        version = ""
        if self._connection is not None:
            version = self._connection.protocol_version
        seconds = time.monotonic() - began
        exchange = Exchange(self.shown_name, method, version, seconds, reason)
        for handler in tuple(_subscribers):
            handler(exchange)

    async def _connect(self) -> Connection:
        if self._connection is None:
            connection = await asyncio.to_thread(
                self._target.connect, self.shown_name
            )
            # another task may have connected meanwhile
            if self._connection is None:
                self._connection = connection
        self._connection.name = self.shown_name
        return self._connection

    def _outgoing(
        self,
        seconds: float,
        caller_headers: Mapping[str, str],
        traceparent: str | None = None,
        *,
        idempotent: bool = False,
    ) -> Outgoing:
        headers = self._target.own_headers(self.shown_name)
        forwarded = {
            name.lower(): value
            for name, value in caller_headers.items()
            if name.lower() in self.headers_from_request
        }
        for name, value in forwarded.items():
            if not is_header_value(value):
                raise self._error(
                    f"was not called: the caller's header '{name}' has invalid characters.",
                    "refused",
                )
        return Outgoing(
            seconds=seconds,
            headers=headers,
            forwarded=forwarded,
            url_secrets=self._target.url_secrets,
            traceparent=traceparent,
            idempotent=idempotent,
        )

    def _error(
        self, predicate: str, reason: Reason, suggestion: str | None = None
    ) -> MCPServerError:
        return MCPServerError(
            f"The MCP server '{self.shown_name}' {predicate}",
            reason,
            suggestion=suggestion,
        )


class _Program(MCPServer):
    """A server that is a program of this machine."""

    def __init__(self, target: Target, timeout: float) -> None:
        self._begin(target, timeout)


def _differs(
    live: ToolDefinition | None, locked: ToolDefinition | None
) -> bool:
    if live is None or locked is None:
        return False
    return live.digest != locked.digest


def _cache_key(outgoing: Outgoing) -> str:
    """The key of the listing for a caller: a digest, because headers may be secret."""
    source = repr(sorted(outgoing.forwarded.items()))
    return hashlib.sha256(source.encode()).hexdigest()
