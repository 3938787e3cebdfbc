"""Pooled connections: what calls a model or a remote component takes its HTTP session from here.

Proxies that the environment names are not used, and cookies are not kept.
"""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import os
from asyncio import AbstractEventLoop
from collections.abc import AsyncGenerator

import aiohttp

_LINGER = 0.1
"""Seconds to wait for the end of a stream whose last event has come, so that its connection can be used again."""

# One session for each event loop: its connections belong to that loop.
_sessions: dict[AbstractEventLoop, aiohttp.ClientSession] = {}
_keepers: dict[AbstractEventLoop, AsyncGenerator[aiohttp.ClientSession]] = {}
_inherited: list[object] = []


async def _keep() -> AsyncGenerator[aiohttp.ClientSession]:
    """Holds a session until its loop shuts down: a loop ends the asynchronous generators that it has begun."""
    loop = asyncio.get_running_loop()
    # what limits runs limits connections too; a second limit here would only make calls wait in secret
    connector = aiohttp.TCPConnector(limit=0, keepalive_timeout=30)
    async with aiohttp.ClientSession(connector=connector, cookie_jar=aiohttp.DummyCookieJar()) as opened:
        try:
            yield opened
        finally:
            _sessions.pop(loop, None)
            _keepers.pop(loop, None)


async def session() -> aiohttp.ClientSession:
    """The session of the running loop."""
    return _sessions.get(asyncio.get_running_loop()) or await _open()


async def linger(content: aiohttp.StreamReader) -> None:
    """Wait for the end of a stream whose last event has come, but not for long."""
    if not content.at_eof():
        with contextlib.suppress(TimeoutError, aiohttp.ClientError):
            async with asyncio.timeout(_LINGER):
                while await content.readany():
                    pass


async def _open() -> aiohttp.ClientSession:
    for closed in [one for one in _sessions if one.is_closed()]:  # by somebody who did not end its generators
        del _keepers[closed]
        await _sessions.pop(closed).close()
    loop = asyncio.get_running_loop()
    keeper = _keepers[loop] = _keep()
    opened = _sessions[loop] = await anext(keeper)
    return opened


def _close_all() -> None:
    """At exit: close what is still open, such as the session of the loop of `run()`."""
    for loop, keeper in list(_keepers.items()):
        with contextlib.suppress(Exception):
            if loop.is_running():
                asyncio.run_coroutine_threadsafe(keeper.aclose(), loop).result(1)
            elif loop.is_closed():
                asyncio.run(_sessions[loop].close())
            else:
                loop.run_until_complete(keeper.aclose())


def _leave() -> None:
    """In a forked process: the sockets are the parent's, and to collect them would be to act on them."""
    _inherited.append((_sessions.copy(), _keepers.copy()))
    _sessions.clear()
    _keepers.clear()


atexit.register(_close_all)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_leave)
