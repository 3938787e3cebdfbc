"""A provider's endpoint on a real socket, which answers with any bytes, in any pieces, at any pace."""

import asyncio
import contextlib
import gzip
import json
import struct
from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from socket import SO_LINGER, SOL_SOCKET
from typing import Any, Literal, NamedTuple


class Pass(NamedTuple):
    """So many seconds pass in a moment: for whoever waits on this event loop, but not for its machine."""

    seconds: float

    async def now(self) -> None:
        for _ in range(50):  # what was written arrives first
            await asyncio.sleep(0)
        loop = asyncio.get_running_loop()
        clock = loop.time
        loop.time = lambda: clock() + self.seconds
        await asyncio.sleep(0)  # and who has waited for too long learns it before anything else happens


Part = bytes | float | Pass | asyncio.Barrier | Literal["close", "reset", "hang"]
"""Bytes to send, seconds or other requests to wait for, or a way to end the connection."""
Script = Sequence[Part]


@dataclass
class Upstream:
    """What was asked, and what is answered: each script once, in order, the last one from then on."""

    scripts: list[Script] = field(default_factory=list)
    requests: list[dict[str, Any]] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)
    open: int = 0
    connections: int = 0
    port: int = 0
    _tasks: set[asyncio.Task[Any]] = field(default_factory=set)

    async def quiet(self) -> None:
        """Wait until the last connection has ended."""
        if self._tasks:
            await asyncio.wait(self._tasks)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/v1"

    def answers(self, *scripts: Script) -> None:
        self.scripts[:] = scripts
        self.requests.clear()
        self.headers.clear()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task
        self._tasks.add(task)
        self.open += 1
        self.connections += 1
        try:
            while await self._answer(reader, writer):
                pass
        except (OSError, asyncio.IncompleteReadError):
            pass
        finally:
            self.open -= 1
            self._tasks.discard(task)
            writer.close()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        headers = dict(line.lower().split(": ", 1) for line in head.split("\r\n")[1:] if line)
        body = await reader.readexactly(int(headers["content-length"]))
        self.headers.append({":line": head.split("\r\n")[0], **headers})
        self.requests.append(json.loads(body))
        script = self.scripts.pop(0) if len(self.scripts) > 1 else self.scripts[0]
        for part in script:
            match part:
                case bytes():
                    writer.write(part)
                    await writer.drain()
                case "reset":
                    await asyncio.sleep(0.005)  # what was written has arrived by then
                    writer.get_extra_info("socket").setsockopt(SOL_SOCKET, SO_LINGER, struct.pack("ii", 1, 0))
                    writer.transport.abort()
                    return False
                case "close":
                    return False
                case "hang":
                    await reader.read()  # until the client leaves
                    return False
                case Pass():
                    await part.now()
                case asyncio.Barrier():
                    await part.wait()
                case _:
                    await asyncio.sleep(part)
        return True


@contextlib.asynccontextmanager
async def upstream() -> AsyncGenerator[Upstream]:
    """Serve until the context ends."""
    serving = Upstream()
    server = await asyncio.start_server(serving._serve, "127.0.0.1", 0)
    serving.port = server.sockets[0].getsockname()[1]
    try:
        yield serving
    finally:
        server.close()
        for task in list(serving._tasks):
            task.cancel()
        await asyncio.gather(*serving._tasks, return_exceptions=True)


def reply(
    body: object, status: int = 200, content_type: str = "application/json", *, zipped: bool = False, **headers: str
) -> bytes:
    """A whole HTTP answer."""
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    if zipped:
        data = gzip.compress(data)
        headers["Content-Encoding"] = "gzip"
    lines = [f"HTTP/1.1 {status} X", f"Content-Type: {content_type}", f"Content-Length: {len(data)}"]
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    return "\r\n".join([*lines, "", ""]).encode() + data


def completion(text: str | None = "Hi.", usage: object = True, **changes: Any) -> dict[str, Any]:
    """A chat completion; changes are of its message."""
    message = {"role": "assistant", "content": text, **changes}
    whole: dict[str, Any] = {"id": "c1", "model": "m-1", "choices": [{"index": 0, "message": message}]}
    whole["choices"][0]["finish_reason"] = "tool_calls" if changes.get("tool_calls") else "stop"
    if usage:
        whole["usage"] = USAGE if usage is True else usage
    return whole


USAGE = {"prompt_tokens": 20, "completion_tokens": 4, "total_tokens": 24}


def delta(reason: str | None = None, **part: Any) -> dict[str, Any]:
    """One piece of a streamed completion."""
    return {"id": "c1", "model": "m-1", "choices": [{"index": 0, "delta": part, "finish_reason": reason}]}


def sse(*events: object, done: bool = True, end: str = "\n") -> bytes:
    """Events of a stream as bytes."""
    texts = [event if isinstance(event, str) else json.dumps(event, ensure_ascii=False) for event in events]
    return "".join(f"data: {text}{end}{end}" for text in [*texts, *(["[DONE]"] if done else [])]).encode()


STREAM = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream; charset=utf-8\r\nTransfer-Encoding: chunked\r\n\r\n"


def chunk(data: bytes) -> bytes:
    """A piece of a body in chunks; an empty one ends it."""
    return f"{len(data):x}\r\n".encode() + data + b"\r\n"


def streamed(data: bytes, *splits: int) -> list[Part]:
    """A stream as one script, cut at these offsets, each piece for itself on the wire."""
    cuts = [0, *splits, len(data)]
    pieces = [data[start:stop] for start, stop in pairwise(cuts)]
    parts: list[Part] = [STREAM]
    for piece in pieces:
        parts += [chunk(piece), 0.0] if piece else []
    return [*parts, chunk(b"")]


STORY = sse(
    delta(role="assistant", content=""),
    *(delta(content=text) for text in ("Grüße", ", ", "世界", " 🌍", "!\n")),
    delta("stop"),
    {"id": "c1", "choices": [], "usage": USAGE},
)
STORY_TEXT = "Grüße, 世界 🌍!\n"


def call(**piece: Any) -> dict[str, Any]:
    """A piece of a tool call: `index`, `id`, `name`, `arguments`."""
    function = {key: piece.pop(key) for key in ("name", "arguments") if key in piece}
    return {**piece, "function": function}
