"""A server that is a process of this machine: one for each event loop, with one client that lives as long."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Mapping, Sequence
from functools import partial
from typing import TypeVar
from weakref import WeakKeyDictionary

from mcp.client import CacheConfig, Client
from mcp.client.stdio import StdioServerParameters, stdio_client

from podwright.data.json_data import JsonObject
from podwright.errors import MCPServerError
from podwright.mcp.definitions import ToolDefinition
from podwright.mcp.results import (
    LiveListing,
    MCPResult,
    Outgoing,
)
from podwright.mcp.wire.attempt import MAX_ANSWER, MAX_LIST, Attempt
from podwright.mcp.wire.attempt_task import run_attempt
from podwright.mcp.wire.connection import Connection
from podwright.mcp.wire.http_connection import CLIENT_INFO, Work
from podwright.mcp.wire.operations import ToolCache, call_tool, list_tools
from podwright.mcp.wire.streams import Watch, watched

T = TypeVar("T")

_CLOSE = 10.0
"""Seconds within which a process has ended: the package asks it to, and kills it."""


class _Process:
    """A running process, and the client that is connected to it. A task of its own keeps them."""

    def __init__(self, parameters: StdioServerParameters) -> None:
        self._parameters = parameters
        self._is_ending = asyncio.Event()
        self._client: asyncio.Future[Client] = (
            asyncio.get_running_loop().create_future()
        )
        self.watch = Watch(counts_messages=True)
        self.cache = ToolCache()
        self._keeper = asyncio.create_task(self._keep())
        self._keeper.add_done_callback(_take_error)

    @property
    def is_running(self) -> bool:
        """Whether the process has not been ended."""
        return not (self._is_ending.is_set() or self._keeper.done())

    @property
    def is_connected(self) -> bool:
        """Whether the process has answered."""
        return self._client.done()

    async def client(self) -> Client:
        """Return the client, once it is connected."""
        await asyncio.wait(
            {self._client, self._keeper},
            return_when=asyncio.FIRST_COMPLETED,
        )
        if self._client.done():
            return self._client.result()
        error = None
        if not self._keeper.cancelled():
            error = self._keeper.exception()
        raise error or ConnectionError("the process has ended")

    async def _keep(self) -> None:
        transport = stdio_client(self._parameters, sys.__stderr__ or sys.stderr)
        client = Client(
            watched(transport, self.watch),
            client_info=CLIENT_INFO,
            cache=CacheConfig(
                store=self.cache, partition="podwright", target_id="process"
            ),
        )
        async with client:
            self._client.set_result(client)
            await self._is_ending.wait()

    async def end(self) -> None:
        """End the process."""
        self._is_ending.set()
        if not self._client.done():
            self._keeper.cancel()
        await asyncio.wait({self._keeper}, timeout=_CLOSE)


class StdioConnection(Connection):
    """A server that is a process of this machine.

    Args:
        name: Its name, for messages.
        command: The program.
        arguments: Its arguments.
        env: Variables beside those that every process has.
        cwd: Where it runs; None for here.
    """

    def __init__(
        self,
        name: str,
        command: str,
        arguments: Sequence[str],
        env: Mapping[str, str] | None,
        cwd: str | None,
    ) -> None:
        self.name = name
        self._parameters = StdioServerParameters(
            command=command,
            args=list(arguments),
            env=None if env is None else dict(env),
            cwd=cwd,
        )
        self._processes: WeakKeyDictionary[
            asyncio.AbstractEventLoop, _Process
        ] = WeakKeyDictionary()

    async def list_tools(self, outgoing: Outgoing) -> LiveListing:
        """Return the tools of the server."""
        return await self._with_retry(outgoing, MAX_LIST, list_tools)

    async def call_tool(
        self,
        definition: ToolDefinition,
        arguments: JsonObject,
        outgoing: Outgoing,
    ) -> MCPResult:
        """Call a tool."""
        call = partial(call_tool, name=definition.name, arguments=arguments)
        return await self._with_retry(outgoing, MAX_ANSWER, call, definition)

    async def close(self) -> None:
        """End the process of the running event loop."""
        process = self._processes.pop(asyncio.get_running_loop(), None)
        if process is not None:
            await process.end()

    async def _with_retry(
        self,
        outgoing: Outgoing,
        max_bytes: int,
        work: Work[T],
        *definitions: ToolDefinition,
    ) -> T:
        """Perform an operation, and retry it in a new process if a running one has ended before it read the call."""
        loop = asyncio.get_running_loop()
        end = loop.time() + outgoing.seconds
        attempt = Attempt(self.name, outgoing, max_bytes)
        process = self._process()
        was_connected = process.is_connected
        try:
            return await self._attempt(process, attempt, work, *definitions)
        except MCPServerError as error:
            is_safe = outgoing.idempotent or not attempt.is_calling
            has_ended = error.reason == "unreachable" and was_connected
            if not (is_safe and has_ended):
                raise
        left = outgoing.with_seconds(end - loop.time())
        again = Attempt(self.name, left, max_bytes)
        return await self._attempt(self._process(), again, work, *definitions)

    async def _attempt(
        self,
        process: _Process,
        attempt: Attempt,
        work: Work[T],
        *definitions: ToolDefinition,
    ) -> T:
        for definition in definitions:
            process.cache.add(definition)

        async def perform() -> T:
            client = await process.client()
            attempt.protocol_version = client.protocol_version
            self.protocol_version = client.protocol_version
            return await work(client, attempt)

        process.watch.attempts.add(attempt)
        try:
            return await run_attempt(attempt, perform)
        except MCPServerError as error:
            if error.reason == "unreachable" or not process.is_connected:
                await process.end()
            raise
        finally:
            process.watch.forget(attempt)

    def _process(self) -> _Process:
        """Return the process of the running event loop, which is begun if there is none."""
        loop = asyncio.get_running_loop()
        process = self._processes.get(loop)
        if process is None or not process.is_running:
            process = _Process(self._parameters)
            self._processes[loop] = process
        return process


def _take_error(task: asyncio.Task[None]) -> None:
    """Take the error of a task, which its attempts have; else the loop logs it."""
    if not task.cancelled():
        task.exception()
