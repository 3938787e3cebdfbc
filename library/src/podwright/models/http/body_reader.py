"""The JSON documents in the body of a response with status 200: one whole, or the events of a stream.

What the body is shows in its first byte: servers and gateways send streams without their content type, whole answers
where a stream was asked for, and both at once.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import orjson

from podwright.data.json_data import as_object
from podwright.models.http.error_body import read_error
from podwright.models.http.refusals import RefusedError
from podwright.models.http.sse import EventParser, ServerSentEvent

_HEAD = 300
"""Bytes of an unreadable body that are kept."""
_DONE = b"[DONE]"
_BOM = b"\xef\xbb\xbf"
_KEEP_ALIVE = ("ping", "heartbeat", "keepalive", "keep-alive")
"""Names, or types, of events that only keep a connection open."""


def _load(data: bytes) -> Any:
    """JSON data. Providers write halves of characters, and numbers that are none, which orjson does not read."""
    try:
        return orjson.loads(data)
    except orjson.JSONDecodeError:
        return json.loads(data.decode(errors="replace"))


class BodyReader:
    """Reads a body in whatever pieces its bytes arrive."""

    def __init__(self) -> None:
        self.head = b""
        """The first bytes of the body."""
        self.is_done = False
        """Whether the stream has said that it is over."""
        self._waiting = bytearray()
        """Bytes of which the kind is not known yet, or those of a whole document."""
        self._parser: EventParser | None = None

    @property
    def is_stream(self) -> bool:
        """Whether the body is a stream of events."""
        return self._parser is not None

    def feed(self, chunk: bytes) -> Iterator[Any]:
        """The documents that these bytes complete.

        Raises:
            RefusedError: An event says that it is an error.
            json.JSONDecodeError: An event is not JSON.
        """
        if len(self.head) < _HEAD:
            self.head = (self.head + chunk)[:_HEAD]
        if self._parser is None:
            if not self._waiting:
                # gateways send blank lines while they wait
                chunk = chunk.removeprefix(_BOM).lstrip()
            self._waiting += chunk
            if not self._waiting:
                return iter(())
            if self._waiting.startswith((b"{", b"[")):
                return iter(())
            self._parser = EventParser()
            chunk = bytes(self._waiting)
        return self._documents(self._parser.feed(chunk))

    def close(self) -> Iterator[Any]:
        """Yield what is left at the end of the body; does nothing until it is iterated.

        Raises:
            RefusedError, json.JSONDecodeError: See `feed`.
        """
        if self._parser is not None:
            yield from self._documents(self._parser.close())
            return
        body = bytes(self._waiting).strip()
        while body.endswith(_DONE):  # as some gateways append to a whole answer
            body = body.removesuffix(_DONE).rstrip()
            body = body.removesuffix(b"data:").rstrip()
        try:
            documents = [_load(body)]
        except json.JSONDecodeError:
            # chunks without the framing of events
            lines = body.splitlines()
            if len(lines) < 2:
                raise
            documents = [_load(line) for line in lines if line.strip()]
        yield from documents

    def _documents(self, events: Iterator[ServerSentEvent]) -> Iterator[Any]:
        for event in events:
            data = event.data.strip()
            if data == _DONE:
                self.is_done = True
                return
            if not data or event.name in _KEEP_ALIVE:
                continue
            if event.name == "error":
                raise RefusedError(read_error(data))
            document = _load(data)
            kind = as_object(document).get("type")
            if kind not in _KEEP_ALIVE:
                yield document
