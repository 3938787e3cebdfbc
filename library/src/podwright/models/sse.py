"""Server-sent events: bytes in, events out (HTML Living Standard, section 9.2.6)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple


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
        return len(self._line) + sum(map(len, self._data))

    def feed(self, chunk: bytes) -> Iterator[ServerSentEvent]:
        """Yield the events that these bytes complete."""
        self._line += chunk
        if b"\n" not in chunk and b"\r" not in self._line:
            return
        # a CR at the end may be the first half of a CRLF
        held = b"\r" if self._line.endswith(b"\r") else b""
        whole = bytes(self._line).removesuffix(held)
        *lines, rest = whole.replace(b"\r\n", b"\n").replace(b"\r", b"\n").split(b"\n")
        self._line = bytearray(rest + held)
        for line in lines:
            yield from self._parse(line)

    def close(self) -> Iterator[ServerSentEvent]:
        """Yield the last event if the stream ended without its blank line, which some servers omit."""
        yield from self._parse(bytes(self._line).removesuffix(b"\r"))
        yield from self._parse(b"")

    def _parse(self, line: bytes) -> Iterator[ServerSentEvent]:
        if not line:
            if self._data:
                yield ServerSentEvent(self._name, b"\n".join(self._data))
            self._data = []
            self._name = ""
            return
        if line.startswith(b"{"):  # as some gateways write an error into a stream
            yield from self._parse(b"")
            yield ServerSentEvent("", line)
            return
        field, _, value = line.partition(b":")
        match field.removeprefix(b"\xef\xbb\xbf"):
            case b"data":
                self._data.append(value.removeprefix(b" "))
            case b"event":
                self._name = value.removeprefix(b" ").decode(errors="replace")
            case _:
                pass
