"""Pooled connections: what calls a model or a remote component sends its requests here."""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import ipaddress
import math
import os
import random
import socket
import ssl
from asyncio import AbstractEventLoop
from collections.abc import AsyncGenerator, Sequence
from typing import Any, cast

from aiohappyeyeballs import start_connection  # pyright: ignore[reportUnknownVariableType] - its types leave a part open

from podwright.deadlines import Deadline
from podwright.models.http1 import Connection, HttpError, NotConnectedError, Reply
from podwright.models.target import Target

_LINGER = 0.1
"""Seconds to wait for the end of a stream whose last event has come, so that its connection can be used again."""
_KEEP = 30.0
"""Seconds that a connection is kept which nobody uses."""
_ATTEMPT = 0.25
"""Seconds after which a host's next address is tried beside the one before (RFC 8305)."""


class Pool:
    """The connections of one loop. What limits runs limits them too: a second limit would make calls wait in secret."""

    def __init__(self) -> None:
        self._idle: dict[tuple[bool, str, int], list[Connection]] = {}
        self._looked_up: dict[tuple[str, int], asyncio.Future[list[Any]]] = {}
        self._trust: asyncio.Future[ssl.SSLContext] | None = None
        self._sweeping = False

    async def post(self, target: Target, head: bytes, body: bytes, connect: float) -> Reply:
        """Send a request, and wait for the head of its answer, which the caller closes.

        Args:
            target: Where to.
            head: What `Target.head` gave.
            body: The body.
            connect: Seconds to take a connection, name look-up and TLS included.

        Raises:
            HttpError: There is no answer.
        """
        connection = self._taken(target) or await self._connected(target, connect)
        reply = connection.send(b"%b%d\r\n\r\n%b" % (head, len(body), body))
        try:
            await reply.begun()
        except BaseException:
            reply.close()
            raise
        return reply

    def close(self) -> None:
        """End the connections that nobody uses."""
        for connections in self._idle.values():
            for one in connections:
                one.end()
        self._idle.clear()

    def _taken(self, target: Target) -> Connection | None:
        """The connection that was used last, which is the least likely to be closed at the other end."""
        connections = self._idle.get((target.secure, target.host, target.port))
        while connections:
            last = connections.pop()
            if last.alive and last.quiet():
                return last
            last.end()
        return None

    async def _connected(self, target: Target, within: float) -> Connection:
        loop, key, deadline = asyncio.get_running_loop(), (target.secure, target.host, target.port), Deadline(within)

        def released(connection: Connection) -> None:
            connection.since = loop.time()
            self._idle.setdefault(key, []).append(connection)
            if not self._sweeping:
                self._sweeping = True
                loop.call_later(_KEEP, self._sweep)

        try:
            with deadline:
                trust = await self._trusted() if target.secure else None
                opened = await _opened(await self._addresses(target.host, target.port))
                _, made = await loop.create_connection(
                    lambda: Connection(released),
                    sock=opened,
                    ssl=trust,
                    server_hostname=target.host.rstrip(".") if trust else None,
                    ssl_handshake_timeout=within if trust and 0 < within < math.inf else None,
                )
        except (socket.gaierror, UnicodeError) as error:
            raise NotConnectedError("name") from error
        except ssl.SSLError as error:
            self._trust = None  # the file of certificates may have been absent, or since been put right
            raise NotConnectedError("tls") from error
        except OSError as error:  # of which TimeoutError is one
            raise NotConnectedError("time" if deadline.expired else "connection") from error
        return made

    async def _addresses(self, host: str, port: int) -> Sequence[Any]:
        """Where a host is, each time another one of its addresses first.

        The loop looks names up in a few threads: those who ask at the same time ask once.
        """
        with contextlib.suppress(ValueError):
            family = socket.AF_INET6 if ipaddress.ip_address(host).version == 6 else socket.AF_INET
            return [
                (family, socket.SOCK_STREAM, 0, "", (host, port) if family == socket.AF_INET else (host, port, 0, 0))
            ]
        key = host, port
        if (found := self._looked_up.get(key)) is None:
            asked = asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
            found = self._looked_up[key] = asyncio.ensure_future(asked)
            found.add_done_callback(lambda _: self._looked_up.pop(key))
        all_ = await asyncio.shield(found)
        alike = [one for one in all_ if one[0] == all_[0][0]]  # a kind that comes later may not be reachable from here
        random.shuffle(alike)
        return [*alike, *(one for one in all_ if one[0] != all_[0][0])]

    async def _trusted(self) -> ssl.SSLContext:
        """Whom to trust: kept while it serves, and read in a thread, for it is a file of some hundred certificates."""
        if self._trust is None or (self._trust.done() and self._trust.exception()):
            self._trust = asyncio.ensure_future(asyncio.to_thread(_trust))
        return await asyncio.shield(self._trust)

    def _sweep(self) -> None:
        """End what nobody has used for a while."""
        loop = asyncio.get_running_loop()
        for key, connections in list(self._idle.items()):
            while connections and loop.time() - connections[0].since >= _KEEP:
                connections.pop(0).end()
            if not connections:
                del self._idle[key]
        self._sweeping = bool(self._idle)
        if self._sweeping:
            loop.call_later(_KEEP / 2, self._sweep)


async def _opened(addresses: Sequence[Any]) -> socket.socket:
    """A connection to the first address that answers."""
    task = cast("asyncio.Task[object]", asyncio.current_task())
    before = task.cancelling()
    opened = await start_connection(addresses, happy_eyeballs_delay=_ATTEMPT)
    if task.cancelling() > before:  # there is a moment in which `start_connection` does not hear it
        opened.close()
        raise asyncio.CancelledError
    return opened


def _trust() -> ssl.SSLContext:
    context = ssl.create_default_context()
    context.set_alpn_protocols(["http/1.1"])
    return context


# One pool for each event loop: its connections belong to that loop.
_pools: dict[AbstractEventLoop, Pool] = {}
_keepers: dict[AbstractEventLoop, AsyncGenerator[Pool]] = {}
_inherited: list[object] = []


async def _keep() -> AsyncGenerator[Pool]:
    """Holds a pool until its loop shuts down: a loop ends the asynchronous generators that it has begun."""
    loop, opened = asyncio.get_running_loop(), Pool()
    try:
        yield opened
    finally:
        _pools.pop(loop, None)
        _keepers.pop(loop, None)
        opened.close()
        await asyncio.sleep(0)  # in which the sockets are closed


async def of_loop() -> Pool:
    """The pool of the running loop."""
    return _pools.get(asyncio.get_running_loop()) or await _open()


async def linger(reply: Reply) -> None:
    """Wait for the end of a stream whose last event has come, but not for long."""
    if not reply.at_end:
        with contextlib.suppress(TimeoutError, HttpError):
            async with asyncio.timeout(_LINGER):
                while await reply.more():
                    pass


async def _open() -> Pool:
    for closed in [one for one in list(_pools) if one.is_closed()]:  # by somebody who did not end its generators
        _keepers.pop(closed, None)  # of several threads, another one may have seen it too
        _pools.pop(closed, None)
    loop = asyncio.get_running_loop()
    keeper = _keepers[loop] = _keep()
    opened = _pools[loop] = await anext(keeper)
    return opened


def _close_all() -> None:
    """At exit: close what is still open, such as the pool of the loop of `run()`."""
    for loop, keeper in list(_keepers.items()):
        with contextlib.suppress(Exception):
            if loop.is_running():
                asyncio.run_coroutine_threadsafe(keeper.aclose(), loop).result(1)
            elif not loop.is_closed():
                loop.run_until_complete(keeper.aclose())


def _leave() -> None:
    """In a forked process: the sockets are the parent's, and to collect them would be to act on them."""
    _inherited.append((_pools.copy(), _keepers.copy()))
    _pools.clear()
    _keepers.clear()


atexit.register(_close_all)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_leave)
