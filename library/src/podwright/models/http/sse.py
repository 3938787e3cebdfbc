"""Server-sent events: bytes in, events out (HTML Living Standard, section 9.2.6)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

_BOM = b"\xef\xbb\xbf"


class ServerSentEvent(NamedTuple):
    """One event of a stream."""

    name: str
    """Value of the `event` field; empty if there is none."""
    data: bytes
    """The `data` lines, joined by line breaks."""


class EventParser:
    """Parses a stream of server-sent events, in whatever pieces its bytes arrive. Lines end with LF, CRLF or CR."""

    def __init__(self) -> None:
        self._line = bytearray()
        self._data: list[bytes] = []
        self._name = ""

    @property
    def pending(self) -> int:
        """Bytes of the event that is not complete yet."""
        lines = sum(map(len, self._data))
        return lines + len(self._line)

    def feed(self, chunk: bytes) -> Iterator[ServerSentEvent]:
        """Yield the events that these bytes complete."""
        self._line += chunk
        has_end = b"\n" in chunk or b"\r" in self._line
        if not has_end:
            return
        text = bytes(self._line)
        held = b""
        # a CR at the end may be the first half of a CRLF
        if text.endswith(b"\r"):
            held = b"\r"
            text = text.removesuffix(held)
        text = text.replace(b"\r\n", b"\n")
        text = text.replace(b"\r", b"\n")
        lines = text.split(b"\n")
        rest = lines.pop()
        self._line = bytearray(rest + held)
        for line in lines:
            yield from self._parse(line)

    def close(self) -> Iterator[ServerSentEvent]:
        """Yield the last event if the stream ended without its blank line, which some servers omit."""
        line = bytes(self._line).removesuffix(b"\r")
        yield from self._parse(line)
        yield from self._parse(b"")

    def _parse(self, line: bytes) -> Iterator[ServerSentEvent]:
        if not line:
            if self._data:
                data = b"\n".join(self._data)
                yield ServerSentEvent(self._name, data)
            self._data = []
            self._name = ""
            return
        # as some gateways write an error into a stream
        if line.startswith(b"{"):
            yield from self._parse(b"")
            yield ServerSentEvent("", line)
            return
        field, _, value = line.partition(b":")
        field = field.removeprefix(_BOM)
        value = value.removeprefix(b" ")
        if field == b"data":
            self._data.append(value)
        elif field == b"event":
            self._name = value.decode(errors="replace")
