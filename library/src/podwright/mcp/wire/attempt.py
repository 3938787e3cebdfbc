"""The state of one attempt to use a server, which the client of the package `mcp` does not keep."""

from __future__ import annotations

import asyncio
from contextvars import ContextVar

from podwright.data.json_data import JsonObject
from podwright.data.text import truncate
from podwright.errors import MCPServerError
from podwright.mcp.definitions import clean
from podwright.mcp.results import (
    Outgoing,
    Reason,
)

MAX_ANSWER = 8 * 2**20
"""Bytes of the answers to one call."""
MAX_LIST = 2**20
"""Bytes of all pages of a list."""
MAX_TOOLS = 128
"""Tools of a list."""
_MAX_QUOTE = 300
"""Characters of a server's text in an error."""


class Attempt:
    """One attempt: to list tools, or to call one.

    Args:
        server: The server's name, for messages.
        outgoing: What goes with the attempt.
        max_bytes: Bytes of the answers.
    """

    def __init__(self, server: str, outgoing: Outgoing, max_bytes: int) -> None:
        self.server = server
        self.outgoing = outgoing
        self.status: int | None = None
        """The HTTP status of the last response."""
        self.is_calling = False
        """Whether the client has begun to send the call of the tool."""
        self.may_be_performed = False
        """Whether the call of the tool may have reached the server."""
        self.has_lost_session = False
        """Whether the server has answered that it does not know the session."""
        self.was_asked = False
        """Whether the server has asked for input."""
        self.has_ended_stream = False
        """Whether the last response was a stream of events that has ended; the package makes an error of JSON-RPC."""
        self.is_answered = False
        """Whether an error of JSON-RPC has arrived, and not only the end of a stream."""
        self.error_code: int | None = None
        """The code of the error of JSON-RPC that ended it."""
        self.protocol_version = ""
        """The version that client and server have agreed on; empty before."""
        self.pages: list[JsonObject] = []
        """The tools of the pages that have arrived, as the server wrote them."""
        self.invalid_tools: dict[str, str] = {}
        """Why a tool was kept from the client, which would have refused the page with it, by name."""
        self.fault: MCPServerError | None = None
        """Why the attempt cannot succeed."""
        self.failed = asyncio.Event()
        """Set with `fault`."""
        self._max_bytes = max_bytes
        self._size = 0

    def error(
        self,
        predicate: str,
        reason: Reason,
        suggestion: str | None = None,
    ) -> MCPServerError:
        """Return an error whose message begins with the server."""
        return MCPServerError(
            f"The MCP server '{self.server}' {predicate}",
            reason,
            suggestion=suggestion,
        )

    def unreachable_error(
        self, detail: str, suggestion: str | None = None
    ) -> MCPServerError:
        """Return the error of a server that does not answer."""
        return self.error(
            f"is not reachable ({detail}).",
            "unreachable",
            suggestion,
        )

    def fail(self, error: MCPServerError) -> MCPServerError:
        """End the attempt with an error, unless it has one already; return it."""
        if self.fault is None:
            self.fault = error
            self.failed.set()
        return self.fault

    def count(self, size: int) -> None:
        """Count bytes of an answer.

        Raises:
            MCPServerError: There are too many.
        """
        self._size += size
        if self._size > self._max_bytes:
            raise self.fail(
                self.error(
                    f"sent more than {self._max_bytes} bytes.", "too_large"
                )
            )

    def quote(self, text: str) -> str:
        """Return a server's text for a message: short, cleaned, without secrets."""
        text = " ".join(clean(self.without_secrets(text)).split())
        return truncate(text, _MAX_QUOTE)

    def without_secrets(self, text: str) -> str:
        """Return a server's own words without what only the server was to know."""
        for secret in self.outgoing.secrets():
            text = text.replace(secret, "…")
        return text


current_attempt: ContextVar[Attempt | None] = ContextVar(
    "podwright_mcp_attempt", default=None
)
"""The attempt that the running task makes."""
