"""Hostile and broken MCP servers: each fault is bounded, has a name, and cancels nothing of its caller."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from tests.library.proxies import Proxy, set_proxy
from tests.library.upstream import Upstream, server_context, upstream
from tests.mcp_stub import Handler, MCPStub, event

from podwright import MCPServer
from podwright.chats.tool_answers import failure_text
from podwright.errors import MCPServerError

MIB = 2**20
Fault = Callable[[MCPStub], Handler]


def _result(body: Any, **result: Any) -> Any:
    result = {"resultType": "complete", "content": [], **result}
    return {"jsonrpc": "2.0", "id": body["id"], "result": result}


def _page(body: Any, tools: Any, **fields: Any) -> web.Response:
    page = {"tools": tools, "ttlMs": 0, "cacheScope": "private", **fields}
    return web.json_response(_result(body, **page))


def _tools(number: int, **definition: Any) -> list[Any]:
    schema = {"type": "object"}
    return [
        {"name": f"tool_{index}", "inputSchema": schema, **definition}
        for index in range(number)
    ]


def _status(status: int, **options: Any) -> Fault:
    """Each request is answered with a status."""

    def fault(_stub: MCPStub) -> Handler:
        async def answer(_request: Any, _body: Any) -> Any:
            return web.Response(status=status, **options)

        return answer

    return fault


def _out_of_ink(body: Any) -> Any:
    error = {"code": -32000, "message": "Out of ink."}
    return {"jsonrpc": "2.0", "id": body["id"], "error": error}


def _json(make: Callable[[Any], Any], status: int = 200) -> Fault:
    """Each request is answered with JSON that is made of its body."""

    def fault(_stub: MCPStub) -> Handler:
        async def answer(_request: Any, body: Any) -> Any:
            return web.json_response(make(body), status=status)

        return answer

    return fault


def _text(text: str, media_type: str = "application/json") -> Fault:
    return _status(200, text=text, content_type=media_type)


def _rpc_error(code: int, message: str, status: int = 200) -> Fault:
    def make(body: Any) -> Any:
        error = {"code": code, "message": message}
        return {"jsonrpc": "2.0", "id": body["id"], "error": error}

    return _json(make, status)


def _list(make: Callable[[Any], web.Response]) -> Fault:
    def fault(_stub: MCPStub) -> Handler:
        async def answer(_request: Any, body: Any) -> Any:
            return make(body)

        return answer

    return fault


def _stream(*parts: Any, ends: bool = True) -> Fault:
    """A stream of events: bytes, or functions of the request's body that return a message; it may stay open."""

    def fault(_stub: MCPStub) -> Handler:
        async def answer(request: Any, body: Any) -> Any:
            response = web.StreamResponse()
            response.content_type = "text/event-stream"
            await response.prepare(request)
            for part in parts:
                data: Any = part
                if not isinstance(part, bytes):
                    data = event(part(body))
                await response.write(data)
            if not ends:
                await asyncio.sleep(60)
            return response

        return answer

    return fault


def _abort(_stub: MCPStub) -> Handler:
    async def answer(request: web.Request, _body: Any) -> Any:
        assert request.transport is not None
        request.transport.abort()
        return web.Response()

    return answer


def _abort_within(_stub: MCPStub) -> Handler:
    async def answer(request: web.Request, _body: Any) -> Any:
        response = web.StreamResponse()
        response.content_type = "application/json"
        response.content_length = 1000
        await response.prepare(request)
        await response.write(b'{"jsonrpc"')
        assert request.transport is not None
        request.transport.abort()
        return response

    return answer


def _hang(_stub: MCPStub) -> Handler:
    async def answer(_request: Any, _body: Any) -> Any:
        await asyncio.sleep(60)

    return answer


def _drip(_stub: MCPStub) -> Handler:
    async def answer(request: web.Request, _body: Any) -> Any:
        response = web.StreamResponse()
        response.content_type = "application/json"
        await response.prepare(request)
        while True:
            await response.write(b" ")
            await asyncio.sleep(0.05)

    return answer


def _endless(media_type: str, piece: bytes) -> Fault:
    def fault(_stub: MCPStub) -> Handler:
        async def answer(request: web.Request, _body: Any) -> Any:
            response = web.StreamResponse()
            response.content_type = media_type
            await response.prepare(request)
            while True:
                await response.write(piece)

        return answer

    return fault


def _compressed(_stub: MCPStub) -> Handler:
    async def answer(_request: Any, body: Any) -> Any:
        # a bomb: 64 KiB that become 60 MB
        text = json.dumps(_result(body, content=[], x="x" * 60_000_000))
        response = web.Response(text=text, content_type="application/json")
        response.enable_compression(web.ContentCoding.gzip)
        return response

    return answer


def _ask(_stub: MCPStub) -> Handler:
    def make(body: Any) -> Any:
        requests = {
            "name": {
                "method": "elicitation/create",
                "params": {
                    "mode": "form",
                    "message": "Who?",
                    "requestedSchema": {"type": "object", "properties": {}},
                },
            }
        }
        result = _result(body, requestState="s", inputRequests=requests)
        result["result"]["resultType"] = "input_required"
        del result["result"]["content"]
        return result

    return _json(make)(_stub)


def _again(body: Any) -> Any:
    return {
        "jsonrpc": "2.0",
        "id": body["id"],
        "result": {"resultType": "input_required", "requestState": "s"},
    }


def _deep(body: Any) -> str:
    return json.dumps(_result(body, content=[])).replace(
        '"content": []', f'"content": [], "x": {"[" * 50_000}{"]" * 50_000}'
    )


def _deeply(_stub: MCPStub) -> Handler:
    async def answer(_request: Any, body: Any) -> Any:
        return web.Response(text=_deep(body), content_type="application/json")

    return answer


def _big_event(body: Any) -> Any:
    return _result(body, content=[{"type": "text", "text": "x" * 12 * MIB}])


def _too_deep(body: Any) -> web.Response:
    schema: Any = {"type": "object"}
    for _ in range(40):
        schema = {"type": "object", "properties": {"a": schema}}
    return _page(body, [{"name": "echo", "inputSchema": schema}])


CALLS: dict[str, tuple[Fault, str]] = {
    "401": (_status(401), "refused"),
    "403": (_status(403), "refused"),
    "429": (_status(429, headers={"Retry-After": "3600"}), "refused"),
    "a page": (_text("<html>", "text/html"), "protocol"),
    "404 without a body": (_status(404), "protocol"),
    "400 without a body": (_status(400), "protocol"),
    "500 in HTML": (_status(500, text="<h1>Oops</h1>"), "unreachable"),
    "502 of a proxy": (_status(502, text="<h1>Bad</h1>"), "unreachable"),
    "503": (_status(503), "unreachable"),
    "202 for a request": (_status(202), "protocol"),
    "204": (_status(204), "protocol"),
    "301": (_status(301, headers={"Location": "/mcp/"}), "redirect"),
    "303": (_status(303, headers={"Location": "/"}), "redirect"),
    "307 to itself": (_status(307, headers={"Location": "/mcp"}), "redirect"),
    "308 to another host": (
        _status(308, headers={"Location": "http://127.0.0.1:9/steal"}),
        "redirect",
    ),
    "no JSON": (_text("{"), "protocol"),
    "an empty body": (_text(""), "protocol"),
    "JSON that is no message": (_text("[1, 2]"), "protocol"),
    "a null": (_text("null"), "protocol"),
    "half a character": (
        _text('{"jsonrpc": "2.0", "id": 1, "result": {"a": "\\ud800"}}'),
        "protocol",
    ),
    "a result that is none": (
        _json(lambda body: _result(body, content="a")),
        "protocol",
    ),
    "content of an unknown type": (
        _json(lambda body: _result(body, content=[{"type": "smell"}])),
        "protocol",
    ),
    "an unknown kind of result": (
        _json(lambda body: _result(body, resultType="task")),
        "protocol",
    ),
    "an error": (_rpc_error(-32603, "It broke."), "protocol"),
    "an error with status 400": (_rpc_error(-32602, "No.", 400), "protocol"),
    "an error with the code of a lost connection": (
        _rpc_error(-32000, "Out of ink."),
        "protocol",
    ),
    "an event with the code of a lost connection": (
        _stream(_out_of_ink),
        "protocol",
    ),
    "such an event after others": (
        _stream(b": hello\n\n", _out_of_ink, b": bye\n\n"),
        "protocol",
    ),
    "very deep JSON": (_deeply, "protocol"),
    "60 MB of JSON": (_endless("application/json", b"x" * MIB), "too_large"),
    "60 MB of events": (
        _endless("text/event-stream", b": " + b"x" * MIB + b"\n\n"),
        "too_large",
    ),
    "one large event": (_stream(_big_event), "too_large"),
    "a compressed bomb": (_compressed, "protocol"),
    "no answer": (_hang, "timeout"),
    "one byte at a time": (_drip, "timeout"),
    "a stream that says nothing": (_stream(ends=False), "timeout"),
    "a stream that ends": (_stream(b": hello\n\n"), "unreachable"),
    "a stream that ends and wants to be resumed in an hour": (
        _stream(b"id: 1\nretry: 3600000\ndata:\n\n"),
        "timeout",
    ),
    "a stream without JSON": (_stream(b"data: {\n\n"), "protocol"),
    "a stream with the answer to another request": (
        _stream(
            lambda _: {"jsonrpc": "2.0", "id": 999, "result": {}}, ends=False
        ),
        "protocol",
    ),
    "a lost connection": (_abort, "unreachable"),
    "a connection lost in the answer": (_abort_within, "unreachable"),
    "a question to a person": (_ask, "input_refused"),
    "the same again, for ever": (_json(_again), "input_refused"),
}
"""Faults of calls, with the reasons of their errors."""

LISTS: dict[str, tuple[Fault, str]] = {
    "1 000 tools": (
        _list(lambda body: _page(body, _tools(1000))),
        "too_large",
    ),
    "pages without an end": (
        _list(lambda body: _page(body, [], nextCursor="again")),
        "too_large",
    ),
    "2 MB": (
        _list(lambda body: _page(body, _tools(8, description="x" * 300_000))),
        "too_large",
    ),
    "a schema of 1 MB": (
        _list(
            lambda body: _page(
                body,
                [
                    {
                        "name": "echo",
                        "inputSchema": {
                            "type": "object",
                            "description": "x" * 1_000_000,
                        },
                    }
                ],
            )
        ),
        "unknown_tool",
    ),
    "a schema that is too deep": (_list(_too_deep), "unknown_tool"),
    "tools that are no list": (
        _list(lambda body: _page(body, {"a": 1})),
        "protocol",
    ),
    "a tool without a name": (
        _list(lambda body: _page(body, [{"inputSchema": {}}])),
        "unknown_tool",
    ),
    "no tools": (_list(lambda body: _page(body, [])), "unknown_tool"),
}
"""Faults of lists."""


SERVERS: dict[str, tuple[Fault, str]] = {
    "405": (_status(405), "protocol"),
    "nothing of MCP": (_text("{}"), "protocol"),
    "another version": (_rpc_error(-32022, "No.", 400), "protocol"),
    **{
        name: CALLS[name]
        for name in (
            "401",
            "404 without a body",
            "502 of a proxy",
            "307 to itself",
            "a page",
            "no answer",
            "a lost connection",
            "60 MB of JSON",
        )
    },
}
"""Faults of all requests."""


@pytest.fixture(params=["modern", "legacy"])
def stub(request: pytest.FixtureRequest) -> Iterator[MCPStub]:
    """A server of each era."""
    with MCPStub(era=request.param, has_sessions=True) as stub:
        yield stub


async def _failure(server: MCPServer, seconds: float) -> MCPServerError:
    """The error of a call, which does not last longer than it may."""
    began = time.monotonic()
    with pytest.raises(MCPServerError) as error:
        await server.call("echo", {}, locked=None, seconds=seconds)
    assert time.monotonic() - began < seconds + 20
    task = asyncio.current_task()
    assert task is not None
    assert task.cancelling() == 0
    return error.value


NEWER = (
    "a question to a person",
    "the same again, for ever",
    "an unknown kind of result",
)
"""Faults of calls that the older protocol does not have."""


@pytest.mark.parametrize("name", CALLS)
async def test_a_call_fails_by_name(stub: MCPStub, name: str) -> None:
    """A fault of a call is an error with its reason, and the next call succeeds."""
    fault, reason = CALLS[name]
    if name in NEWER:
        stub.era = "modern"
    server = MCPServer(stub.url)
    server.name = "files"
    await server.call("echo", {}, locked=None)
    stub.handlers["tools/call"] = fault(stub)
    seconds = 20.0
    if reason == "timeout":
        seconds = 1.0
    error = await _failure(server, seconds)
    assert error.reason == reason
    assert error.message.startswith("The MCP server 'files' ")
    assert len(error.message) < 600
    del stub.handlers["tools/call"]
    await server.call("echo", {}, locked=None)
    assert server.is_up


@pytest.mark.parametrize("name", LISTS)
async def test_a_list_fails_by_name(name: str) -> None:
    """A fault of a list is an error with its reason, and the next call succeeds."""
    fault, reason = LISTS[name]
    with MCPStub(era="modern") as stub:
        server = MCPServer(stub.url)
        stub.handlers["tools/list"] = fault(stub)
        error = await _failure(server, 20)
        assert error.reason == reason
        assert stub.calls == []
        del stub.handlers["tools/list"]
        await server.call("echo", {}, locked=None)


@pytest.mark.parametrize("name", SERVERS)
async def test_a_server_that_is_none(stub: MCPStub, name: str) -> None:
    """What answers each request wrongly is an error from the first request on."""
    fault, reason = SERVERS[name]
    stub.handlers["*"] = fault(stub)
    server = MCPServer(stub.url)
    seconds = 20.0
    if reason == "timeout":
        seconds = 1.0
    error = await _failure(server, seconds)
    assert error.reason == reason
    stub.handlers.clear()
    await server.call("echo", {}, locked=None)


async def test_a_server_is_away_and_back(stub: MCPStub) -> None:
    """A server that is dead at the start, dies, and comes back is called whenever it is there."""
    stub.down()
    server = MCPServer(stub.url)
    for _ in range(2):
        error = await _failure(server, 10)
        assert error.reason == "unreachable"
        assert server.is_up is False
        stub.up()
        await server.call("echo", {}, locked=None)
        assert server.is_up is True
        stub.down()


async def test_what_may_be_performed_is_not_repeated(stub: MCPStub) -> None:
    """A call whose connection is lost is made again only if its tool is idempotent."""
    server = MCPServer(stub.url)
    await server.call("echo", {}, locked=None)
    stub.handlers["tools/call"] = _abort(stub)
    before = stub.methods.count("tools/call")
    error = await _failure(server, 10)
    assert error.reason == "unreachable"
    assert stub.methods.count("tools/call") == before + 1

    async def abort_once(request: web.Request, body: Any) -> Any:
        del stub.handlers["tools/call"]
        return await _abort(stub)(request, body)

    stub.handlers["tools/call"] = abort_once
    result = await server.call("echo", {}, locked=None, idempotent=True)
    assert not result.is_error
    assert stub.methods.count("tools/call") == before + 3


async def test_a_lost_handshake_is_repeated(stub: MCPStub) -> None:
    """What is lost before the call is sent is repeated for every tool."""

    async def abort_once(request: web.Request, body: Any) -> Any:
        del stub.handlers["*"]
        return await _abort(stub)(request, body)

    stub.handlers["*"] = abort_once
    await MCPServer(stub.url).call("echo", {}, locked=None)
    assert len(stub.calls) == 1


async def test_a_question_of_an_older_server() -> None:
    """A server that asks in the stream of a call is refused, and what the call then fails with is named so."""
    with MCPStub(era="legacy") as stub:
        answered = asyncio.Event()

        async def ask(request: web.Request, body: Any) -> Any:
            response = web.StreamResponse()
            response.content_type = "text/event-stream"
            await response.prepare(request)
            question = {
                "jsonrpc": "2.0",
                "id": 7,
                "method": "roots/list",
                "params": {},
            }
            await response.write(event(question))
            await answered.wait()
            await response.write(event(_result(body, isError=True)))
            return response

        async def note(_request: Any, _body: Any) -> Any:
            answered.set()
            return web.Response(status=202)

        stub.handlers["tools/call"] = ask
        stub.handlers[""] = note
        error = await _failure(MCPServer(stub.url), 20)
        assert error.reason == "input_refused"


async def test_a_session_that_cannot_be_ended() -> None:
    """A server that hangs when its session ends delays a call by a moment, and fails nothing."""
    with MCPStub(era="legacy", has_sessions=True) as stub:
        server = MCPServer(stub.url)
        stub.handlers["DELETE"] = _hang(stub)
        began = time.monotonic()
        await server.call("echo", {}, locked=None, seconds=30)
        assert time.monotonic() - began < 20


async def test_many_calls_at_once(stub: MCPStub) -> None:
    """Calls at once do not mix, and one that fails ends no other."""
    server = MCPServer(stub.url)
    calls = [server.call("echo", {"n": n}, locked=None) for n in range(20)]
    calls.append(server.call("other", {}, locked=None))
    results = await asyncio.gather(*calls, return_exceptions=True)
    texts = [
        one if isinstance(one, BaseException) else one.content[0]["text"]
        for one in results
    ]
    assert texts[:-1] == [f'{{"n": {n}}}' for n in range(20)]
    assert isinstance(texts[-1], MCPServerError)


async def test_a_host_that_is_none() -> None:
    """A name that cannot be resolved is a server that is not reachable."""
    server = MCPServer("https://nowhere.invalid/mcp")
    error = await _failure(server, 20)
    assert error.reason == "unreachable"


@pytest.mark.parametrize(
    ("reason", "lasts"), [("unreachable", True), ("drift", False)]
)
def test_only_the_model_is_told_not_to_call_again(
    reason: str, lasts: bool
) -> None:
    """The error itself is for people, who read it in logs and in the output of commands too."""
    error = MCPServerError("The server is away.", reason)
    told = failure_text("search", error)
    assert told.startswith("Error: The server is away.")
    assert told.endswith("Do not call it again in this answer.") is lasts
    assert "again" not in str(error)


async def test_what_is_no_http(provider: Upstream) -> None:
    """Bytes that are not HTTP are a connection that is lost."""
    provider.scripts = [[b"SSH-2.0-OpenSSH_9.6\r\n", "close"]]
    server = MCPServer(f"http://127.0.0.1:{provider.port}/mcp")
    error = await _failure(server, 20)
    assert error.reason == "unreachable"


async def test_a_certificate_of_a_company(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A certificate of an unknown authority is refused, and the error says how to trust it; then it is trusted."""
    with MCPStub(tls=server_context(tmp_path)) as stub:
        monkeypatch.setenv("SSL_CERT_FILE", "")
        server = MCPServer(stub.url)

        def failure() -> MCPServerError:
            return asyncio.run(_failure(server, 20))

        # the connections of a loop are made once
        error = await asyncio.to_thread(failure)
        assert error.reason == "unreachable"
        assert "certificate" in error.message
        assert "SSL_CERT_FILE" in error.suggestion
        monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "server.pem"))
        await server.call("echo", {}, locked=None)


@pytest.mark.parametrize("trusted", ["true", "false"])
async def test_the_proxy_of_the_environment(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, trusted: str
) -> None:
    """The proxy of the environment is used if it is trusted and the host is not excepted, as for models."""
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "server.pem"))
    monkeypatch.setenv("PODWRIGHT_TRUST_ENV", trusted)
    tls = server_context(tmp_path)
    with MCPStub(tls=tls) as stub:
        async with upstream(serving=Proxy()) as between:
            set_proxy(monkeypatch, f"http://127.0.0.1:{between.port}")
            server = MCPServer(stub.url)
            await server.call("echo", {}, locked=None)
            used = {headers[":line"] for headers in between.headers}
            expected: set[str] = set()
            if trusted == "true":
                expected = {f"CONNECT 127.0.0.1:{stub.port} HTTP/1.1"}
            assert used == expected
            monkeypatch.setenv("NO_PROXY", "127.0.0.1")
            number = len(between.headers)
            await server.call("echo", {}, locked=None)
            assert len(between.headers) == number


async def test_a_proxy_of_its_own(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A server's own proxy is used whatever the environment says; its password is in no error."""
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "server.pem"))
    with MCPStub(tls=server_context(tmp_path)) as stub:
        async with upstream(serving=Proxy()) as between:
            proxy = f"http://ann:s3cr3t@127.0.0.1:{between.port}"
            server = MCPServer(stub.url, proxy=proxy)
            await server.call("echo", {}, locked=None)
            assert between.headers
        error = await _failure(server, 20)
        assert error.reason == "unreachable"
        assert f"proxy http://127.0.0.1:{between.port}" in error.message
        assert "s3cr3t" not in f"{error} {error!r}"
