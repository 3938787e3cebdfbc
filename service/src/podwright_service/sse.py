"""A run's events as they happen, as server-sent events (WHATWG HTML, "Server-sent events").

The run and its reader are two tasks with a bounded buffer between them: the run never waits for its reader.
"""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Callable, Coroutine
from typing import Any

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from podwright.events import Event, Token
from podwright_service.idempotency import Turn, came_to_its_end
from podwright_service.problems import RequestError, as_bytes
from podwright_service.runs import Watch
from podwright_service.settings import Settings

MEDIA_TYPE = "text/event-stream"
_LAST = 1.0
"""Seconds for each piece at least, and when the service stops: the server is about to cut off what is left."""
_OK, _LEFT, _STOPPED = 200, 499, 503
_PING = b": ping\n\n"
_PIECE = 64 * 1024
"""Bytes handed to the server at once: what it holds for a reader who has stopped reading stays of this order."""
_TEXTS = 1000
"""Most texts that are kept apart: an object for each character would take many times its size."""

Work = Callable[[Watch], Coroutine[Any, Any, Response]]
TooSlow = Callable[[RequestError], Response]


class EventStream(Response):
    """The events of a run, and then what `/run` would have answered.

    What is refused before a run begins is answered as it would be without a stream.

    Args:
        work: Does the run, of which the watch is told, to the answer.
        settings: How often to say that the stream lives, and how much to keep for a slow reader.
        tell: Makes the answer that tells of an error.
        turn: Is to be ended with what was sent.
    """

    media_type = MEDIA_TYPE

    def __init__(self, work: Work, settings: Settings, tell: TooSlow, turn: Turn | None = None) -> None:
        super().__init__(headers={"content-type": MEDIA_TYPE, "cache-control": "no-store", "x-accel-buffering": "no"})
        del self.headers["content-length"]
        self._work, self._settings, self._tell = work, settings, tell
        self._turn, self._recording = turn, turn.record() if turn else None
        self._news = asyncio.Event()
        self._ready = bytearray()
        self._token: Token | None = None
        self._texts: list[str] = []
        self._waiting = 0
        self._blocked = self._begun = self._over = self._too_slow = self._stopped = False
        self._running: asyncio.Task[Response] | None = None
        self._patience: asyncio.Timeout | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Run, and send what happens."""
        self._running = running = asyncio.create_task(self._perform())
        try:
            await self._news.wait()
            if not self._begun:
                await (await running)(scope, receive, send)
                return
            async with asyncio.timeout(None) as self._patience:
                self._wait_for_reader()
                await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
                await self._send_all(send)
        except TimeoutError:  # nobody reads: no answer can be completed
            await _drop(scope, receive)
        finally:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)
            if self._turn:
                await self._turn.release()

    async def _send_all(self, send: Send) -> None:
        while not (self._over and not self._waiting):
            if self._waiting:
                await self._write(send, self._piece())
                continue
            self._news.clear()
            try:
                async with asyncio.timeout(self._settings.stream_heartbeat or None):
                    await self._news.wait()
            except TimeoutError:
                await self._write(send, _PING)
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _write(self, send: Send, data: bytes) -> None:
        self._blocked = True
        await send({"type": "http.response.body", "body": data, "more_body": True})
        self._blocked = False
        self._wait_for_reader()

    def _wait_for_reader(self) -> None:
        """From the end of the run on, each piece has its time: a reader who is gone must not hold the connection."""
        if self._over and self._patience:
            left = _LAST if self._stopped else max(_LAST, self._settings.stream_heartbeat)
            self._patience.reschedule(asyncio.get_running_loop().time() + left)

    def _hear(self, event: Event) -> None:
        if not self._begun:
            self._begun = True
            self.headers["podwright-run-id"] = event.run_id
        if self._too_slow:
            return
        if self._blocked and self._waiting > self._settings.stream_buffer_bytes and self._running:
            self._too_slow, self._token, self._waiting = True, None, 0
            self._ready.clear()
            self._running.cancel()
            return
        if self._blocked and isinstance(event, Token):
            self._merge(event)
        else:
            self._put(event)
        self._news.set()

    def _merge(self, event: Token) -> None:
        """Add a token to those that wait, as one with them if it is of the same call."""
        last = self._token
        if last is None or (last.run_id, last.call) != (event.run_id, event.call):
            self._close_token()
            self._texts.clear()
        self._token = event
        self._texts.append(event.text)
        if len(self._texts) > _TEXTS:
            self._texts[:] = ["".join(self._texts)]
        self._waiting += len(event.text)

    def _close_token(self) -> None:
        if self._token is not None:
            whole = dataclasses.replace(self._token, text="".join(self._texts))
            self._token = None
            self._put(whole)

    def _put(self, event: Event) -> None:
        self._close_token()
        self._add(str(event.seq), event.type, as_bytes(event.to_dict()))

    def _add(self, number: str, name: str, data: bytes) -> None:
        head = f"id: {number}\n" if number else ""
        whole = f"{head}event: {name}\ndata: ".encode() + data + b"\n\n"
        self._ready += whole
        if self._recording:
            self._recording.add(whole)
        self._waiting = len(self._ready)

    def _piece(self) -> bytes:
        self._close_token()
        data = bytes(self._ready[:_PIECE])
        del self._ready[:_PIECE]
        self._waiting = len(self._ready)
        return data

    async def _perform(self) -> Response:
        try:
            answer = await self._work(Watch(self._hear))
            self._stopped = answer.status_code == _STOPPED and not self._too_slow
            if self._begun and answer.status_code != _LEFT:
                shown = self._tell(_TOO_SLOW) if self._too_slow else answer
                self._close_token()
                self._add("", "result" if shown.status_code == _OK else "problem", bytes(shown.body))
            if self._turn and self._recording and came_to_its_end(answer):
                await self._turn.keep(self, self._recording.body)
            return answer
        finally:
            self._over = True
            self._news.set()
            self._wait_for_reader()


async def _drop(scope: Scope, receive: Receive) -> None:
    """End the connection with what it still holds, where the server offers to; ASGI itself has no such message."""
    extensions: dict[str, dict[str, Any]] = scope.get("extensions") or {}
    if offered := extensions.get("podwright.abort"):
        offered["connection"]()
        while (await receive())["type"] != "http.disconnect":
            pass


_TOO_SLOW = RequestError(
    503,
    "stream_too_slow",
    "The run was cancelled: the stream's reader did not keep up with its events.",
    "Read faster, or use /run, which answers once.",
)
