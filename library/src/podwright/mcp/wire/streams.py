"""Watches the messages between the client and its transport."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator
from contextvars import Context
from types import TracebackType
from typing import Any, Self

from mcp.client import Transport
from mcp.shared.message import SessionMessage
from mcp_types import JSONRPCError, JSONRPCRequest, JSONRPCResponse
from mcp_types.methods import parse_server_result
from pydantic import ValidationError

from podwright.data.json_data import (
    JsonObject,
    as_array,
    as_object,
    json_pointer,
    to_json_bytes,
)
from podwright.errors import MCPServerError
from podwright.mcp.wire.attempt import MAX_TOOLS, Attempt, current_attempt

_CALL = "tools/call"
_LIST = "tools/list"
_PING = "ping"
_NEEDED = ("name", "inputSchema")
"""What the client needs of a tool."""


class Watch:
    """Tells attempts what their messages say.

    Args:
        counts_messages: Whether the sizes of messages are counted here, because nothing below counts bytes.
    """

    def __init__(self, *, counts_messages: bool = False) -> None:
        self._counts_messages = counts_messages
        self.attempts: set[Attempt] = set()
        """Those that are being made."""
        self._requests: dict[str | int, tuple[str, Attempt]] = {}
        """The methods and attempts of requests without a response."""

    def note_sent(self, message: SessionMessage) -> None:
        """Note a message to the server, and give it the trace context of the attempt."""
        request = message.message
        attempt = current_attempt.get()
        if attempt is None or not isinstance(request, JSONRPCRequest):
            return
        self._requests[request.id] = (request.method, attempt)
        if request.method == _CALL:
            attempt.is_calling = True
        traceparent = attempt.outgoing.traceparent
        if traceparent is not None and request.params is not None:
            # the package has put its own here
            meta = as_object(request.params.get("_meta"))
            request.params["_meta"] = {**meta, "traceparent": traceparent}

    def note_received(self, message: SessionMessage | Exception) -> None:
        """Note a message of the server; one that is too large ends its attempt."""
        if isinstance(message, Exception):
            return
        content = message.message
        if isinstance(content, JSONRPCRequest):
            if content.method != _PING:
                for attempt in self.attempts:
                    attempt.was_asked = True
            return
        if not isinstance(content, JSONRPCResponse | JSONRPCError):
            return
        method, attempt = self._requests.pop(content.id or "", ("", None))
        if attempt is None:
            return
        if isinstance(content, JSONRPCError):
            attempt.is_answered |= not attempt.has_ended_stream
            return
        if self._counts_messages:
            with contextlib.suppress(MCPServerError):
                attempt.count(len(to_json_bytes(content.result)))
        if method == _LIST:
            _note_page(content.result, attempt)

    def forget(self, attempt: Attempt) -> None:
        """Forget an attempt that is over."""
        self.attempts.discard(attempt)
        self._requests = {
            id_: entry
            for id_, entry in self._requests.items()
            if entry[1] is not attempt
        }


def _note_page(page: JsonObject, attempt: Attempt) -> None:
    """Note the tools of a page, and leave out those for which the client would refuse it.

    Of the others, it is left what it needs. Definitions are read from what the server wrote.
    """
    tools = list(map(as_object, as_array(page.get("tools"))))
    attempt.pages += tools
    if not tools or len(attempt.pages) > MAX_TOOLS:
        return
    version = attempt.protocol_version
    valid: list[JsonObject] = []
    for tool in tools:
        needed = {key: tool[key] for key in _NEEDED if key in tool}
        try:
            parse_server_result(_LIST, version, {**page, "tools": [needed]})
        except ValidationError as error:
            (_, _, *location) = error.errors()[0]["loc"]
            attempt.invalid_tools[str(tool.get("name"))] = (
                f"MCP {version} does not allow what it has at '{json_pointer(*location)}'."
            )
        else:
            valid.append(needed)
    page["tools"] = valid


class _Stream:
    """A stream of a transport, which is watched."""

    def __init__(self, inner: Any, watch: Watch) -> None:
        self._inner = inner
        self._watch = watch

    async def aclose(self) -> None:
        await self._inner.aclose()

    async def __aenter__(self) -> Self:
        await self._inner.__aenter__()
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc_val: BaseException | None,
        exc_tb: TracebackType | None,
    ) -> bool | None:
        return await self._inner.__aexit__(exc_type, exc_val, exc_tb)


class _ReadStream(_Stream):
    @property
    def last_context(self) -> Context | None:
        """The context in which the last message was put in, if the stream keeps it."""
        return getattr(self._inner, "last_context", None)

    async def receive(self) -> SessionMessage | Exception:
        return self._noted(await self._inner.receive())

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> SessionMessage | Exception:
        return self._noted(await self._inner.__anext__())

    def _noted(
        self, message: SessionMessage | Exception
    ) -> SessionMessage | Exception:
        self._watch.note_received(message)
        return message


class _WriteStream(_Stream):
    async def send(self, item: SessionMessage, /) -> None:
        self._watch.note_sent(item)
        await self._inner.send(item)


@contextlib.asynccontextmanager
async def watched(
    transport: Transport, watch: Watch
) -> AsyncGenerator[tuple[_ReadStream, _WriteStream]]:
    """Open a transport, and yield its streams, watched."""
    async with transport as (read_stream, write_stream):
        yield _ReadStream(read_stream, watch), _WriteStream(write_stream, watch)
