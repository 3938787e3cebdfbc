"""A server of MCP for tests: of both eras, with a log of what it is asked, and with the faults that a test gives it."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import json
import socket
import ssl
import threading
import uuid
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, Self

from aiohttp import web

Json = dict[str, Any]
Era = Literal["both", "modern", "legacy"]
Handler = Callable[[web.Request, Json], Awaitable[web.StreamResponse]]
"""Answers a request, given its JSON, in place of the server."""

MODERN = "2026-07-28"
LEGACY = "2025-11-25"
HEADER_MISMATCH = -32020
_PREFIX = "io.modelcontextprotocol/"
_SESSION = "Mcp-Session-Id"


@dataclass(frozen=True)
class StubCall:
    """A call of a tool that the server performed."""

    tool: str
    arguments: Json
    headers: Mapping[str, str]
    """The HTTP headers, by names in lower case."""
    meta: Json
    """`_meta`, with the trace context."""


@dataclass
class MCPStub:
    """A server of MCP on a port of this machine, in a thread of its own; a context manager.

    A tool answers with its arguments as JSON text, unless `answers` has something else for it: a text, a list of
    content, an object with fields of the result, an exception, or a function of the arguments (perhaps asynchronous)
    that returns one of these.
    """

    tools: Iterable[str | Json] = ("echo",)
    """Definitions as in `tools/list`, or names."""
    answers: dict[str, Any] = field(default_factory=dict)
    """What tools answer, by name."""
    era: Era = "both"
    """Which protocol it speaks: 2026-07-28, 2025-11-25, or both."""
    has_sessions: bool = False
    """Whether the older protocol has sessions."""
    sends_events: bool = False
    """Whether it answers with a stream of events."""
    page_size: int = 1000
    """Tools of a page."""
    ttl: float = 300.0
    """Seconds for which a list holds, by the newer protocol."""
    handlers: dict[str, Handler] = field(default_factory=dict)
    """Faults: what answers instead, by method (of JSON-RPC or HTTP); `*` is for all of JSON-RPC."""
    calls: list[StubCall] = field(default_factory=list)
    """The calls that it performed, in order."""
    requests: list[tuple[str, Mapping[str, str]]] = field(default_factory=list)
    """The methods of all requests with their headers, in order; `DELETE` and `GET` too."""
    parents: list[str] = field(default_factory=list)
    """The `traceparent` of each request that has one in its `_meta`, in order."""
    tls: ssl.SSLContext | None = None
    """For https."""
    cancelled: threading.Event = field(default_factory=threading.Event)
    """Set when a caller has left during a call, or said that it is cancelled."""

    def __post_init__(self) -> None:
        self.definitions: dict[str, Json] = {}
        for tool in self.tools:
            self._define(tool)
        self.sessions: set[str] = set()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(
            target=self._loop.run_forever, daemon=True
        )
        self._runner: web.AppRunner | None = None
        self._connections: dict[asyncio.Transport, socket.socket] = {}
        self._reservation = socket.socket()
        # so that the port stays this one's while the server is down
        self._reservation.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)

    def _define(self, tool: str | Json) -> None:
        if isinstance(tool, str):
            tool = {"name": tool}
        schema = {"type": "object", "properties": {}}
        definition = {"description": f"Does {tool['name']}.", **tool}
        self.definitions[tool["name"]] = {"inputSchema": schema, **definition}

    @property
    def url(self) -> str:
        """The address."""
        scheme = "https" if self.tls else "http"
        return f"{scheme}://127.0.0.1:{self.port}/mcp"

    @property
    def port(self) -> int:
        """The port, which stays the same when the server is down."""
        return self._reservation.getsockname()[1]

    @property
    def methods(self) -> list[str]:
        """The methods of all requests, in order."""
        return [method for method, _ in self.requests]

    def change(self, tool: str, **definition: Any) -> None:
        """Change keys of a definition; None removes one. A tool that is new is added."""
        if tool not in self.definitions:
            self._define(tool)
        changed = {**self.definitions[tool], **definition}
        self.definitions[tool] = {
            key: value for key, value in changed.items() if value is not None
        }

    def drop(self, tool: str) -> None:
        """Drop a tool."""
        del self.definitions[tool]

    def __enter__(self) -> Self:
        self._reservation.bind(("127.0.0.1", 0))
        self._thread.start()
        self.up()
        return self

    def __exit__(self, *_: object) -> None:
        self.down()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()
        self._reservation.close()

    def up(self) -> None:
        """Listen, at the same port as before."""
        if self._runner is None:
            self._run(self._start())

    def down(self) -> None:
        """Close the port and all connections, as a process that is killed; sessions are lost."""
        if self._runner is not None:
            self._run(self._stop(self._runner))
            self._runner = None
        self.sessions.clear()

    async def _stop(self, runner: web.AppRunner) -> None:
        await runner.cleanup()
        for transport, connection in self._connections.items():
            # Python 3.11.2 cannot abort a transport of TLS that was closed twice
            if not transport.is_closing():
                transport.abort()
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
        # transports close their sockets in the turns that follow
        for _ in range(3000):
            if all(each.fileno() < 0 for each in self._connections.values()):
                break
            await asyncio.sleep(0.01)
        self._connections.clear()

    def _run(self, work: Any) -> None:
        asyncio.run_coroutine_threadsafe(work, self._loop).result(timeout=30)

    async def _start(self) -> None:
        app = web.Application(client_max_size=16 * 2**20)
        app.router.add_route("*", "/{path:.*}", self._answer)
        listening = socket.socket()
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(("127.0.0.1", self.port))
        self._runner = web.AppRunner(
            app,
            access_log=None,
            handler_cancellation=True,
            shutdown_timeout=0,
        )
        await self._runner.setup()
        await web.SockSite(
            self._runner, listening, ssl_context=self.tls
        ).start()

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        if request.transport is not None:
            self._connections.setdefault(
                request.transport, request.get_extra_info("socket")
            )
        headers = {name.lower(): text for name, text in request.headers.items()}
        if request.method != "POST":
            self.requests.append((request.method, headers))
            handler = self.handlers.get(request.method)
            if handler is not None:
                return await handler(request, {})
            return self._other_method(request)
        body: Json = await request.json()
        # an answer to a request of the server has none
        method = body.get("method", "")
        self.requests.append((method, headers))
        meta: Json = body.get("params", {}).get("_meta", {})
        if "traceparent" in meta:
            self.parents.append(meta["traceparent"])
        handler = self.handlers.get(method) or self.handlers.get("*")
        if handler is not None:
            return await handler(request, body)
        if method.startswith("notifications/"):
            if method == "notifications/cancelled":
                self.cancelled.set()
            return web.Response(status=202)
        if "id" not in body:
            return web.Response(status=202)
        refusal = self._refuse(request, body)
        if refusal is not None:
            return refusal
        try:
            result = await self._result(body, headers)
        except asyncio.CancelledError:
            self.cancelled.set()
            raise
        except KeyError as error:
            return self.error(body, -32602, f"Unknown tool: {error}", 200)
        return await self.send(request, body, result)

    def _other_method(self, request: web.Request) -> web.Response:
        session = request.headers.get(_SESSION)
        if request.method == "DELETE" and session in self.sessions:
            self.sessions.discard(session)
            return web.Response(status=204)
        return web.Response(status=405)

    def _refuse(self, request: web.Request, body: Json) -> web.Response | None:
        """The refusal of a request that is not of this server's era, or of an unknown session; None if it is valid."""
        method = body["method"]
        version = request.headers.get("MCP-Protocol-Version")
        if method == "initialize":
            if self.era == "modern":
                return self.error(body, -32601, "Method not found", 404)
            return None
        if version == MODERN:
            if self.era == "legacy":
                return self.error(body, -32601, "Method not found", 200)
            return self._header_mismatch(request, body)
        if self.era == "modern":
            return self.error(body, -32022, "Unsupported version", 400)
        if self.has_sessions:
            session = request.headers.get(_SESSION)
            if session not in self.sessions:
                return self.error(body, -32001, "Session not found", 404)
        return None

    def _header_mismatch(
        self, request: web.Request, body: Json
    ) -> web.Response | None:
        """The refusal of a modern request whose headers do not say what its body says."""
        params = body.get("params") or {}
        expected = {"Mcp-Method": body["method"]}
        if body["method"] == "tools/call":
            expected["Mcp-Name"] = params["name"]
            schema = self.definitions.get(params["name"], {}).get("inputSchema")
            properties = (schema or {}).get("properties", {})
            for key, value in params.get("arguments", {}).items():
                header = properties.get(key, {}).get("x-mcp-header")
                if header is not None:
                    expected[f"Mcp-Param-{header}"] = value
        for name, value in expected.items():
            if request.headers.get(name) != value:
                return self.error(body, HEADER_MISMATCH, f"No {name}", 400)
        return None

    async def _result(self, body: Json, headers: Mapping[str, str]) -> Json:
        params = body.get("params") or {}
        match body["method"]:
            case "server/discover":
                result: Json = {
                    "supportedVersions": [MODERN],
                    "capabilities": {"tools": {}},
                    "ttlMs": 60_000,
                    "cacheScope": "private",
                }
            case "initialize":
                return {
                    "protocolVersion": LEGACY,
                    "capabilities": {"tools": {}},
                    "serverInfo": {"name": "stub", "version": "1"},
                }
            case "tools/list":
                result = self._page(params.get("cursor"))
            case "tools/call":
                result = await self._call(params, headers)
            case _:
                result = {}
        if headers.get("mcp-protocol-version") == MODERN:
            info = {f"{_PREFIX}serverInfo": {"name": "stub", "version": "1"}}
            return {"resultType": "complete", "_meta": info, **result}
        return result

    def _page(self, cursor: str | None) -> Json:
        start = int(cursor or 0)
        end = start + self.page_size
        definitions = list(self.definitions.values())
        page: Json = {
            "tools": definitions[start:end],
            "ttlMs": int(self.ttl * 1000),
            "cacheScope": "private",
        }
        if end < len(definitions):
            page["nextCursor"] = str(end)
        return page

    async def _call(self, params: Json, headers: Mapping[str, str]) -> Json:
        name = params["name"]
        if name not in self.definitions:
            raise KeyError(name)
        arguments = params.get("arguments") or {}
        call = StubCall(name, arguments, headers, params.get("_meta") or {})
        self.calls.append(call)
        answer: Any = self.answers.get(name, json.dumps(arguments))
        if callable(answer):
            answer = answer(arguments)
        if inspect.isawaitable(answer):
            answer = await answer
        if isinstance(answer, Exception):
            text = str(answer)
            return {"content": [_text(text)], "isError": True}
        if isinstance(answer, str):
            return {"content": [_text(answer)]}
        if isinstance(answer, list):
            return {"content": answer}
        return {"content": [], **answer}

    def error(
        self, body: Json, code: int, message: str, status: int
    ) -> web.Response:
        """An error of JSON-RPC as the answer to a request."""
        error = {"code": code, "message": message}
        return web.json_response(
            {"jsonrpc": "2.0", "id": body.get("id"), "error": error},
            status=status,
        )

    async def send(
        self, request: web.Request, body: Json, result: Json
    ) -> web.StreamResponse:
        """Answer a request with a result."""
        headers: dict[str, str] = {}
        if body["method"] == "initialize" and self.has_sessions:
            session = uuid.uuid4().hex
            self.sessions.add(session)
            headers[_SESSION] = session
        message = {"jsonrpc": "2.0", "id": body["id"], "result": result}
        if not self.sends_events:
            return web.json_response(message, headers=headers)
        response = web.StreamResponse(headers=headers)
        response.content_type = "text/event-stream"
        await response.prepare(request)
        with contextlib.suppress(ConnectionError):
            await response.write(event(message))
        return response


def event(message: Json) -> bytes:
    """A message as an event of a stream."""
    return f"event: message\ndata: {json.dumps(message)}\n\n".encode()


def _text(text: str) -> Json:
    return {"type": "text", "text": text}
