"""An HTTP server on a real socket that sends any bytes, and can close, reset or hang."""

import asyncio
import contextlib
import datetime
import gzip
import json
import ssl
import struct
import sys
from collections.abc import AsyncGenerator, Callable, Sequence
from dataclasses import dataclass, field
from ipaddress import ip_address
from pathlib import Path
from socket import SO_LINGER, SOL_SOCKET
from typing import Any, Literal

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
)
from cryptography.x509.oid import NameOID

Part = (
    bytes
    | asyncio.Event
    | asyncio.Barrier
    | Callable[[], object]
    | Literal["close", "reset", "hang"]
)
"""Bytes to send, something to wait for, a function to call, or a way to end the connection.

A function may return a list of bytes to send.
"""
Script = Sequence[Part]
HOUR = 3600.0


def pass_time(seconds: float = HOUR) -> None:
    """Move the clock of the running loop, which is that of one test, so that shorter limits expire without waiting."""
    loop = asyncio.get_running_loop()
    clock = loop.time
    loop.time = lambda: clock() + seconds


@dataclass
class Upstream:
    """The requests that arrived, and the responses: each script once, in order, the last one from then on."""

    scheme: str = "http"
    port: int = 0
    scripts: list[Script] = field(default_factory=list)
    requests: list[Any] = field(default_factory=list)
    """The JSON bodies."""
    headers: list[dict[str, str]] = field(default_factory=list)
    """Names in lower case; `:line` is the request line."""
    connections: int = 0
    asked: asyncio.Event = field(default_factory=asyncio.Event)
    """Set by each request."""
    _open: dict[asyncio.Task[None], asyncio.StreamWriter] = field(
        default_factory=dict
    )

    @property
    def url(self) -> str:
        return f"{self.scheme}://127.0.0.1:{self.port}/v1"

    def answers(self, *scripts: Script) -> None:
        self.scripts[:] = scripts
        self.requests.clear()
        self.headers.clear()
        self.asked.clear()

    async def quiet(self) -> None:
        """Wait until the last connection has ended."""
        async with asyncio.timeout(30):
            while self._open:
                await asyncio.wait(self._open)

    def connect(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        """Serve a new connection until it ends."""
        self.connections += 1
        task = asyncio.create_task(self.serve(reader, writer))
        self._open[task] = writer
        task.add_done_callback(lambda task: self._open.pop(task).close())

    async def disconnect(self) -> None:
        """End every connection, also those that a task has not begun to serve."""
        for task, writer in self._open.items():
            task.cancel()
            writer.transport.abort()
        await asyncio.gather(*self._open, return_exceptions=True)

    async def serve(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        """Answer the requests of a connection."""
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            while await self._answer(reader, writer):
                pass

    async def _answer(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> bool:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        line, *lines = head.strip().split("\r\n")
        headers = {
            name.lower(): value
            for name, value in (field.split(": ", 1) for field in lines)
        }
        body = await reader.readexactly(int(headers.get("content-length", 0)))
        self.headers.append({":line": line, **headers})
        self.requests.append(json.loads(body) if body else None)
        self.asked.set()
        for part in (
            self.scripts.pop(0) if len(self.scripts) > 1 else self.scripts[0]
        ):
            match part:
                case bytes():
                    writer.write(part)
                    await writer.drain()
                case "reset":
                    writer.get_extra_info("socket").setsockopt(
                        SOL_SOCKET, SO_LINGER, struct.pack("ii", 1, 0)
                    )
                    writer.transport.abort()
                    return False
                case "close":
                    return False
                case "hang":
                    await reader.read()  # until the client leaves
                    return False
                case asyncio.Event() | asyncio.Barrier():
                    await part.wait()
                case _:
                    if isinstance(made := part(), list):
                        writer.write(b"".join(made))
        return True


@contextlib.asynccontextmanager
async def upstream(
    tls: ssl.SSLContext | None = None,
    serving: Upstream | None = None,
    port: int = 0,
) -> AsyncGenerator[Upstream]:
    """Serve until the context ends."""
    serving = serving or Upstream("https" if tls else "http")
    server = await asyncio.start_server(
        serving.connect, "127.0.0.1", port, ssl=tls
    )
    serving.port = server.sockets[0].getsockname()[1]
    try:
        yield serving
    finally:
        await close_clients_of_litellm()
        server.close()
        await serving.disconnect()


async def close_clients_of_litellm() -> None:
    """LiteLLM keeps its clients for an hour, and one for good, also when the event loop of a test has ended."""
    if litellm := sys.modules.get("litellm"):
        await litellm.close_litellm_async_clients()
        litellm.in_memory_llm_clients_cache.flush_cache()
        vars(litellm).pop("module_level_aclient", None)


LOCALHOST = x509.IPAddress(ip_address("127.0.0.1"))


def server_context(
    folder: Path, host: x509.GeneralName = LOCALHOST, *, expired: bool = False
) -> ssl.SSLContext:
    """TLS with a new self-signed certificate, `server.pem`, and its key, `key.pem`."""
    key = ec.generate_private_key(ec.SECP256R1())
    (folder / "key.pem").write_bytes(
        key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    )
    certificate = _self_signed(key, host, expired=expired)
    (folder / "server.pem").write_bytes(certificate.public_bytes(Encoding.PEM))
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(folder / "server.pem", folder / "key.pem")
    return context


def _self_signed(
    key: ec.EllipticCurvePrivateKey, host: x509.GeneralName, *, expired: bool
) -> x509.Certificate:
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "test")])
    day = datetime.timedelta(days=1)
    end = datetime.datetime.now(datetime.UTC) + (-day if expired else day)
    public_key = key.public_key()
    return (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(public_key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(end - 2 * day)
        .not_valid_after(end)
        .add_extension(x509.SubjectAlternativeName([host]), critical=False)
        .add_extension(
            x509.SubjectKeyIdentifier.from_public_key(public_key),
            critical=False,
        )
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(public_key),
            critical=False,
        )
        .sign(key, SHA256())
    )


def reply(
    body: object,
    status: int = 200,
    content_type: str = "application/json",
    *,
    zipped: bool = False,
    **headers: str,
) -> bytes:
    """A whole HTTP response."""
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    if zipped:
        data = gzip.compress(data)
        headers["Content-Encoding"] = "gzip"
    lines = [
        f"HTTP/1.1 {status} X",
        f"Content-Type: {content_type}",
        f"Content-Length: {len(data)}",
    ]
    lines += [
        f"{name.replace('_', '-')}: {value}" for name, value in headers.items()
    ]
    return "\r\n".join([*lines, "", ""]).encode() + data


STREAM = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream; charset=utf-8\r\nTransfer-Encoding: chunked\r\n\r\n"


def chunk(data: bytes) -> bytes:
    """A piece of a chunked body; an empty one ends it."""
    return f"{len(data):x}\r\n".encode() + data + b"\r\n"


def streamed(*pieces: bytes) -> list[Part]:
    """A whole stream, each piece for itself on the wire."""
    return [STREAM, *(chunk(piece) for piece in pieces if piece), chunk(b"")]


USAGE = {"prompt_tokens": 20, "completion_tokens": 4, "total_tokens": 24}


def completion(
    text: Any = "Hi.", usage: object = USAGE, **changes: Any
) -> dict[str, Any]:
    """A chat completion; changes are of its message."""
    message = {"role": "assistant", "content": text, **changes}
    reason = "tool_calls" if changes.get("tool_calls") else "stop"
    choice = {"index": 0, "message": message, "finish_reason": reason}
    return {
        "id": "c1",
        "model": "m-1",
        "choices": [choice],
        **({"usage": usage} if usage else {}),
    }


def delta(reason: str | None = None, **part: Any) -> dict[str, Any]:
    """One chunk of a streamed completion."""
    return {
        "id": "c1",
        "model": "m-1",
        "choices": [{"index": 0, "delta": part, "finish_reason": reason}],
    }


def call(**piece: Any) -> dict[str, Any]:
    """A piece of a tool call: `index`, `id`, `name`, `arguments`."""
    function = {
        key: piece.pop(key) for key in ("name", "arguments") if key in piece
    }
    return {**piece, "function": function}


def sse(*events: object, done: bool = True, end: str = "\n") -> bytes:
    """The bytes of a stream of chunks."""
    texts = [
        event
        if isinstance(event, str)
        else json.dumps(event, ensure_ascii=False)
        for event in events
    ]
    return "".join(
        f"data: {text}{end}{end}"
        for text in [*texts, *(["[DONE]"] if done else [])]
    ).encode()


STORY_TOKENS = ["Grüße", ", ", "世界", " 🌍", "!\n"]
STORY = sse(
    delta(role="assistant", content=""),
    *(delta(content=text) for text in STORY_TOKENS),
    delta("stop"),
    {"id": "c1", "choices": [], "usage": USAGE},
)
