"""HTTP servers in threads of a test's process, which this machine and the containers on it can reach."""

from __future__ import annotations

import functools
import socket
import socketserver
import struct
import sys
import threading
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler
from typing import Any, Self

from podwright.errors import ConfigurationError


@dataclass(frozen=True, slots=True)
class Request:
    """One request, whole."""

    method: str
    path: str
    headers: Mapping[str, str]
    """By name in lower case."""
    body: bytes


class LocalServer(ABC):
    """Serves from `start` to `stop`, or within a `with` block."""

    def __init__(self) -> None:
        self.over = threading.Event()
        """Set when the server stops: who waits in an answer waits for this."""
        self._inner: _Server | None = None
        self._outer: _Server | None = None

    @property
    def url(self) -> str:
        """Where it answers on this machine, such as "http://127.0.0.1:40123"."""
        return _started(self._inner).url

    @property
    def url_for_containers(self) -> str:
        """Where it answers containers of this machine's engine; it listens there from the first look on.

        Raises:
            ConfigurationError: It is not started.
        """
        inner, (address, name) = _started(self._inner), _way_to_host()
        if self._outer is None:
            self._outer = inner if address == inner.address else _Server(self, address)
        return f"http://{name}:{self._outer.port}"

    def start(self, address: str = "127.0.0.1", port: int = 0) -> Self:
        """Listen, on a free port by default."""
        self.over.clear()
        self._inner = _Server(self, address, port)
        return self

    def stop(self) -> None:
        """Close every connection, and wait until nothing is answered any more."""
        self.over.set()
        for server in {self._inner, self._outer} - {None}:
            server.stop()  # pyright: ignore[reportOptionalMemberAccess] - None was taken out
        self._inner = self._outer = None

    def __enter__(self) -> Self:
        return self if self._inner else self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    @abstractmethod
    def respond(self, request: Request, connection: socket.socket) -> bool:
        """Write a whole HTTP answer; False ends the connection."""


class _Server(socketserver.ThreadingTCPServer):
    allow_reuse_address = True
    request_queue_size = 512

    def __init__(self, owner: LocalServer, address: str, port: int = 0) -> None:
        super().__init__((address, port), _Handler)
        self.owner, self.address, self.port = owner, address, self.socket.getsockname()[1]
        self.url = f"http://{address}:{self.port}"
        self._connections: set[Any] = set()
        self._thread = threading.Thread(target=self.serve_forever, kwargs={"poll_interval": 0.02})
        self._thread.start()

    def process_request(self, request: Any, client_address: Any) -> None:
        self._connections.add(request)
        super().process_request(request, client_address)

    def close_request(self, request: Any) -> None:
        self._connections.discard(request)
        super().close_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        if not isinstance(sys.exception(), OSError):  # a client that leaves is no error
            super().handle_error(request, client_address)

    def stop(self) -> None:
        self.shutdown()
        for connection in list(self._connections):
            try:
                connection.shutdown(socket.SHUT_RDWR)
            except OSError:  # it has ended in this moment
                continue
        self.server_close()
        self._thread.join()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server: _Server  # pyright: ignore[reportIncompatibleVariableOverride] - it is made by this one only

    def do_POST(self) -> None:
        headers = {name.lower(): value for name, value in self.headers.items()}
        body = self.rfile.read(int(headers.get("content-length") or 0))
        request = Request(self.command, self.path.partition("?")[0], headers, body)
        if not self.server.owner.respond(request, self.connection):
            self.close_connection = True

    do_GET = do_PUT = do_POST  # noqa: N815 - the names that http.server calls

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""


def reply(
    body: bytes, status: int = 200, content_type: str = "application/json", headers: Mapping[str, object] | None = None
) -> bytes:
    """The bytes of a whole HTTP answer."""
    lines = [f"HTTP/1.1 {status} -", f"content-type: {content_type}", f"content-length: {len(body)}"]
    lines += [f"{name}: {value}" for name, value in (headers or {}).items()]
    return "\r\n".join([*lines, "", ""]).encode() + body


def reset(connection: socket.socket) -> None:
    """End a connection as a crash does: the other side reads an error, not an end."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    connection.close()


def _started(server: _Server | None) -> _Server:
    if server is None:
        raise ConfigurationError("The server is not started.", suggestion="Use it in a `with` block, or call start().")
    return server


def shares_network() -> bool:
    """Whether the engine publishes ports on this very machine."""
    return _way_to_host()[0] != "127.0.0.1"


@functools.cache
def _way_to_host() -> tuple[str, str]:
    """Where this machine has to listen for containers to reach it, and the name that they reach it by."""
    import docker  # only with the extra `testing`

    client = docker.from_env()
    try:
        bridge: Any = client.networks.get("bridge").attrs
    finally:
        client.close()
    gateway = next((str(one["Gateway"]) for one in bridge["IPAM"]["Config"] or () if "Gateway" in one), "")
    try:
        socket.create_server((gateway or "unknown", 0)).close()
    except OSError:  # the engine is in a virtual machine, which forwards this name to us
        return "127.0.0.1", "host.docker.internal"
    return gateway, gateway
