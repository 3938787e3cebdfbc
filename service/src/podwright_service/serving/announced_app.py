"""An application that says when it has started."""

from __future__ import annotations

from collections.abc import Callable

from starlette.types import ASGIApp, Message, Receive, Scope, Send


class AnnouncedApp:
    """Calls a function once the application has started, with the ASGI message that tells the server so.

    Args:
        app: The application.
        when_ready: The function.
    """

    def __init__(self, app: ASGIApp, when_ready: Callable[[], object]) -> None:
        self._app = app
        self._when_ready = when_ready

    async def __call__(
        self, scope: Scope, receive: Receive, send: Send
    ) -> None:
        """Handle one connection, or the lifespan."""
        if scope["type"] != "lifespan":
            await self._app(scope, receive, send)
            return

        async def announce(message: Message) -> None:
            await send(message)
            if message["type"] == "lifespan.startup.complete":
                self._when_ready()

        await self._app(scope, receive, announce)
