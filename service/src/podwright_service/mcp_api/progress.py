"""The progress of a run as notifications of MCP."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator

from mcp.server.session import ServerSession

from podwright.data.json_data import JsonMapping
from podwright.events import Event, StepStarted, ToolCallStarted
from podwright.events import Progress as Reported

_MAX_UNREAD = 100
"""Unread messages of a caller; the oldest of more are left out, which the numbers of the others show."""


class Progress:
    """Sends the caller of a tool a notification for each step, tool call and report of its run.

    Args:
        session: The connection to the caller. If the caller did not ask for progress, nothing is sent.
    """

    def __init__(self, session: ServerSession) -> None:
        self._session = session
        self._number = 0
        self._unread: asyncio.Queue[tuple[int, str] | None] = asyncio.Queue(
            _MAX_UNREAD
        )

    def handle(self, event: Event) -> None:
        """Handle an event of the run, as a subscriber."""
        if isinstance(event, StepStarted | ToolCallStarted | Reported):
            self.handle_stored(event.to_dict())

    def handle_stored(self, event: JsonMapping) -> None:
        """Handle an event of a background run, as it is stored."""
        match event.get("type"):
            case "step_started":
                self._tell(f"step {event.get('step')}")
            case "tool_call_started":
                self._tell(f"tool {event.get('tool')}")
            case "progress":
                self._tell(str(event.get("text")))
            case _:
                pass

    @contextlib.asynccontextmanager
    async def sending(self) -> AsyncGenerator[None]:
        """Send the notifications of the run within this context, all of them before the context ends."""
        sender = asyncio.create_task(self._send())
        try:
            yield
            self._put(None)
            await sender
        finally:
            sender.cancel()

    def _tell(self, message: str) -> None:
        self._number += 1
        self._put((self._number, message))

    def _put(self, item: tuple[int, str] | None) -> None:
        # the run does not wait for a caller who reads slowly
        if self._unread.full():
            self._unread.get_nowait()
        self._unread.put_nowait(item)

    async def _send(self) -> None:
        while (item := await self._unread.get()) is not None:
            number, message = item
            await self._session.report_progress(number, message=message)
