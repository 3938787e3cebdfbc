"""The events of a run as server-sent events, buffered for one reader."""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Coroutine
from dataclasses import replace
from typing import Any

from fastapi.sse import KEEPALIVE_COMMENT, EventSourceResponse, format_sse_event
from starlette.types import Receive, Scope, Send

from podwright.data.json_data import to_json_bytes
from podwright.events import Event, Token
from podwright.messages.headers import RUN_ID
from podwright.run.result import ExecutionResult
from podwright_service.http.errors.problems import RequestError
from podwright_service.http.public_events import EventFilter, without_context

HEARTBEAT = 15.0
"""Seconds of silence after which a comment is sent, so that proxies keep the connection."""
STREAM_HEADERS = {"Cache-Control": "no-cache", "X-Accel-Buffering": "no"}
"""Headers that keep proxies from holding events back."""
_MERGE_AFTER = 100
"""Unread events after which consecutive tokens of a model call are merged."""
_MAX_MERGED_TEXT = 4096
"""Characters that a merged token has before a new one is begun."""


class RunStream:
    """A run in a task of its own, and the events that its reader has not read yet. The run never waits for the reader.

    Args:
        run_id: Id of the run.
        max_bytes: Size of the unread events beyond which the run is cancelled.
        show: Returns an event as the reader sees it.
    """

    def __init__(
        self,
        run_id: str,
        max_bytes: int,
        show: EventFilter = without_context,
    ) -> None:
        self.run_id = run_id
        self._show = show
        self._has_begun = False
        """Whether there was an event."""
        self._max_bytes = max_bytes
        self._unread: deque[tuple[Event, str]] = deque()
        self._unread_bytes = 0
        self._too_slow = False
        self._is_awaited = True
        """Whether the reader has read everything so far, and has had no turn since."""
        self._changed = asyncio.Event()
        self._task: asyncio.Task[ExecutionResult]

    def publish(self, event: Event) -> None:
        """Append an event; this is a subscriber of the run."""
        self._has_begun = True
        shown = self._show(event)
        if self._too_slow or shown is None:
            return
        event = shown
        if len(self._unread) > _MERGE_AFTER:
            event = self._merge_with_last(event)
        data = to_json_bytes(event.to_dict()).decode()
        self._unread.append((event, data))
        self._unread_bytes += len(data)
        if self._unread_bytes > self._max_bytes and not self._is_awaited:
            self._too_slow = True
            self._unread.clear()
            self._task.cancel()
        self._changed.set()

    def _merge_with_last(self, event: Event) -> Event:
        """Take the last unread event back if it can be one with this event, and return that one."""
        last, data = self._unread[-1]
        merged = _merged(last, event)
        if merged is None:
            return event
        self._unread.pop()
        self._unread_bytes -= len(data)
        return merged

    @contextlib.asynccontextmanager
    async def running(
        self, work: Coroutine[Any, Any, ExecutionResult]
    ) -> AsyncGenerator[asyncio.Task[Any]]:
        """Do the work in a task within this context; at its end, the task is cancelled and awaited."""
        self._task = asyncio.create_task(work)
        self._task.add_done_callback(self._announce_end)
        try:
            yield self._task
        finally:
            self._task.cancel()
            await asyncio.wait({self._task})

    def _announce_end(self, task: asyncio.Task[ExecutionResult]) -> None:
        if not task.cancelled():
            # retrieved, because the task of a client that has left is not awaited
            task.exception()
        self._changed.set()

    async def begun(self) -> None:
        """Wait for the first event.

        Raises:
            Exception: What ended the work before its first event.
        """
        await self._changed.wait()
        if not self._has_begun:
            await self._task

    @property
    def has_ended(self) -> bool:
        """Whether the run has ended."""
        return self._task.done()

    @property
    def headers(self) -> dict[str, str]:
        """The headers of a response that sends the run's events."""
        return {RUN_ID: self.run_id, **STREAM_HEADERS}

    async def events(self) -> AsyncIterator[bytes]:
        """The events up to the end of the run, as server-sent events, with a comment in every 15 seconds of silence."""
        async for event, data in self.unread():
            if event is None:
                yield KEEPALIVE_COMMENT
            else:
                yield format_sse_event(
                    event=event.type, id=str(event.seq), data_str=data
                )

    async def unread(self) -> AsyncIterator[tuple[Event | None, str]]:
        """The events up to the end of the run, each with its JSON; None after every 15 seconds of silence."""
        while True:
            self._is_awaited = False
            while self._unread:
                event, data = self._unread.popleft()
                self._unread_bytes -= len(data)
                yield event, data
            if self._task.done():
                return
            self._changed.clear()
            self._is_awaited = True
            try:
                async with asyncio.timeout(HEARTBEAT):
                    await self._changed.wait()
            except TimeoutError:
                yield None, ""

    async def result(self) -> ExecutionResult:
        """The result of the run, after its events.

        Raises:
            RequestError: 503: the reader was too slow.
            PodwrightError: The run failed.
        """
        if self._too_slow:
            detail = "The run was cancelled because its events were not read fast enough."
            raise RequestError(
                503,
                "stream_too_slow",
                detail,
                suggestion="Read faster, or use /run, which responds once.",
            )
        return await self._task


class StreamedRun(EventSourceResponse):
    """The events of a run, which is cancelled if its response ends first.

    Args:
        content: The events.
        stream: The run.
        run: Ends the run when it is closed.
    """

    def __init__(
        self,
        content: AsyncIterator[bytes],
        stream: RunStream,
        run: contextlib.AsyncExitStack,
    ) -> None:
        super().__init__(self._read(content), headers=stream.headers)
        self._stream = stream
        self._run = run
        self._has_ended = False
        """Whether the run had ended when the response did."""
        self._is_read = False
        """Whether all events were read."""

    async def __call__(
        self, scope: Scope, receive: Receive, send: Send
    ) -> None:
        """Send the events."""
        async with self._run:
            await super().__call__(scope, receive, send)
            self._has_ended = self._stream.has_ended

    async def send_rest(self, send: Send) -> None:
        """Send what is left after the client has left, if the run had ended by itself then."""
        if not self._has_ended:
            return
        async for chunk in self.body_iterator:
            await send(
                {"type": "http.response.body", "body": chunk, "more_body": True}
            )
        if self._is_read:
            await send(
                {"type": "http.response.body", "body": b"", "more_body": False}
            )

    async def _read(
        self, content: AsyncIterator[bytes]
    ) -> AsyncIterator[bytes]:
        async for chunk in content:
            yield chunk
        self._is_read = True


def _merged(last: Event, event: Event) -> Token | None:
    """Two consecutive tokens of one model call as one event, if they may be merged."""
    if not isinstance(last, Token) or not isinstance(event, Token):
        return None
    if (last.run_id, last.call) != (event.run_id, event.call):
        return None
    if len(last.text) > _MAX_MERGED_TEXT:
        return None
    return replace(event, text=last.text + event.text)
