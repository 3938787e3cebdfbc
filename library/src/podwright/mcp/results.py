"""The options and results of operations on MCP servers, and the reasons of their errors."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from podwright.data.json_data import JsonObject
from podwright.data.text import did_you_mean
from podwright.mcp.definitions import ToolDefinition

_SEPARATORS = re.compile(r"[\s,;]+")
"""What is between the parts of a header's value, such as the cookies of a caller."""
_MIN_SECRET = 4
"""Characters of the shortest text that is cut out of messages."""
Reason = Literal[
    "unreachable",
    "timeout",
    "refused",
    "redirect",
    "too_large",
    "protocol",
    "input_refused",
    "drift",
    "unknown_tool",
]
"""Why a call failed.

- `unreachable`: no connection, or it was lost, or the answer was 502, 503 or 504.
- `timeout`: no answer in time.
- `refused`: the answer was 401, 403, 407 or 429.
- `redirect`: the server wants the request to go elsewhere.
- `too_large`: an answer or a list exceeds a limit.
- `protocol`: an error of JSON-RPC, or no valid answer.
- `input_refused`: the server asked for input of a person or a model.
- `drift`: the tool is not as it was locked.
- `unknown_tool`: the server does not have the tool, or its definition is refused.
"""


@dataclass(frozen=True, slots=True)
class MCPResult:
    """The result of a tool call."""

    content: list[JsonObject]
    """Parts, as messages have them: `{"type": "text", …}`, `{"type": "image_url", …}`, `{"type": "file", …}`."""
    structured: Any | None = None
    """The data (`structuredContent`), if the tool returns some."""
    is_error: bool = False
    """Whether the tool failed; the content says why."""


@dataclass(frozen=True, slots=True)
class ToolListing:
    """The tools of a server."""

    tools: dict[str, ToolDefinition] = field(
        default_factory=dict[str, ToolDefinition]
    )
    """The definitions by name."""
    refused: dict[str, str] = field(default_factory=dict[str, str])
    """Why a definition was left out, by name."""

    def missing_tool(self, server: str, tool: str) -> tuple[str, str]:
        """Return why a tool is not in the list, as a sentence, and a suggestion.

        Args:
            server: The server's name.
            tool: The tool, as a blueprint or a command names it.
        """
        if tool in self.refused:
            return (
                f"The definition of the tool '{tool}' by the MCP server '{server}' is refused: {self.refused[tool]}",
                "Correct the server, or name another tool.",
            )
        return (
            f"The MCP server '{server}' has no tool '{tool}'.",
            did_you_mean(tool, self.tools) or "It has no tools.",
        )


@dataclass(frozen=True, slots=True)
class LiveListing:
    """A listing as a server has just sent it."""

    listing: ToolListing
    ttl: float | None
    """Seconds for which it may be cached; None if the server does not say."""


@dataclass(frozen=True, slots=True)
class Outgoing:
    """The time, the headers and the trace context of an operation on a server."""

    seconds: float
    """Seconds that it may take."""
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    """The server's own HTTP headers, with the API key; none for a process."""
    forwarded: Mapping[str, str] = field(default_factory=dict[str, str])
    """The headers of the caller."""
    url_secrets: Sequence[str] = ()
    """What the query of the server's URL has, such as a key."""
    traceparent: str | None = None
    """The W3C trace context, for `_meta`."""
    idempotent: bool = False
    """Whether a tool may be called again although the first call may have been performed."""

    def secrets(self) -> list[str]:
        """Return the texts that no error may have, the longest first."""
        secrets = {*self.url_secrets}
        for value in (*self.headers.values(), *self.forwarded.values()):
            first, *others = _SEPARATORS.split(value)
            # the scheme before a key, as in `Bearer`, is none
            parts = others if first.isalpha() and others else [first, *others]
            secrets.update(parts)
            # of cookies, the values too
            secrets.update(part.partition("=")[2] for part in parts)
        return sorted(
            (text for text in secrets if len(text) >= _MIN_SECRET),
            key=len,
            reverse=True,
        )

    def with_seconds(self, seconds: float) -> Outgoing:
        """Return the same with another time, in seconds."""
        return replace(self, seconds=seconds)

    def __repr__(self) -> str:
        """Return a text without headers and secrets."""
        return f"Outgoing(seconds={self.seconds:g})"


class StaleDefinitionError(Exception):
    """The server did not perform a call, because its definition of the tool is not the one that the call is by."""


@dataclass(frozen=True, slots=True)
class Exchange:
    """An operation on a server that has ended, for metrics and traces."""

    server_name: str
    method: str
    """`tools/list` or `tools/call`."""
    protocol_version: str
    """The protocol version, such as `2026-07-28`; empty if none was agreed on."""
    seconds: float
    error_reason: str | None
    """Why it failed; None if it did not."""
