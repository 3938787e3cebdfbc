"""The progress of a run as notifications of MCP."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator

from mcp.server.session import ServerSession

from podwright.data.json_data import JsonMapping
from podwright.events import Event, StepStarted, ToolCallStarted


class Progress:
    """Tells the caller of a tool what its run does: each step and each call of a tool counts one.

    Args:
        session: The connection to the caller; one that asked for no progress is told nothing.
    """

    def __init__(self, session: ServerSession) -> None:
        self._session = session
        self._messages: asyncio.Queue[str | None] = asyncio.Queue()

    def handle(self, event: Event) -> None:
        """Take an event of the run; this is a subscriber of it."""
        match event:
            case StepStarted():
                self._messages.put_nowait(f"step {event.step}")
            case ToolCallStarted():
                self._messages.put_nowait(f"tool {event.tool}")
            case _:
                pass

    def handle_stored(self, event: JsonMapping) -> None:
        """Take an event of a background run, as it is stored."""
        match event.get("type"):
            case "step_started":
                self._messages.put_nowait(f"step {event.get('step')}")
            case "tool_call_started":
                self._messages.put_nowait(f"tool {event.get('tool')}")
            case _:
                pass

    @contextlib.asynccontextmanager
    async def sending(self) -> AsyncGenerator[None]:
        """Send what the run does within this context, before it ends."""
        sender = asyncio.create_task(self._send())
        try:
            yield
            self._messages.put_nowait(None)
            await sender
        finally:
            sender.cancel()

    async def _send(self) -> None:
        number = 0
        while (message := await self._messages.get()) is not None:
            number += 1
            await self._session.report_progress(number, message=message)
