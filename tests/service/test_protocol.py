"""Clients who are slow, or send what is no HTTP: on real sockets, byte by byte."""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import socket
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any, cast

import httpx
import pytest
import uvicorn

from podwright import Agent, FunctionModel, ScriptedModel
from podwright.testing import ModelRequest
from podwright_service import protocol
from podwright_service.protocol import protocol_for
from podwright_service.settings import Settings

Serve = Callable[..., httpx.Client]

BODY = b'{"input": "x"}'
HEAD = b"POST /run HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n"
WHOLE = HEAD + b"content-length: %d\r\n\r\n%s" % (len(BODY), BODY)
CHUNKED = HEAD + b"transfer-encoding: chunked\r\n\r\n"
FAST = {"header_timeout": 0.5, "body_timeout": 1.0}
PATIENT = 20


def echo() -> Agent:
    return Agent("a", "Do.", "offline/echo")


def connected(client: httpx.Client) -> socket.socket:
    return socket.create_connection(("127.0.0.1", client.base_url.port or 0), timeout=PATIENT)


def rest(connection: socket.socket) -> bytes:
    """All that comes until the connection is closed."""
    got = b""
    with contextlib.suppress(ConnectionResetError):
        while piece := connection.recv(65536):
            got += piece
    return got


def describe_error(client: httpx.Client, *pieces: bytes) -> bytes:
    """What the service says to these bytes until it closes the connection."""
    with connected(client) as connection:
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            for piece in pieces:
                connection.sendall(piece)
        return rest(connection)


def dribbled(client: httpx.Client, start: bytes, piece: bytes) -> tuple[bytes, float]:
    """The answer to a start and then a small piece now and then, and the seconds until the connection was closed."""
    with connected(client) as connection:
        connection.sendall(start)
        begin, over = time.monotonic(), threading.Event()

        def send() -> None:
            with contextlib.suppress(OSError):
                while not over.wait(0.05) and time.monotonic() < begin + PATIENT:
                    connection.sendall(piece)

        sending = threading.Thread(target=send)
        sending.start()
        answer = rest(connection)
        over.set()
        sending.join()
        return answer, time.monotonic() - begin


def check(answer: bytes, status: int, code: str) -> dict[str, Any]:
    head, _, body = answer.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 %d " % status), answer
    assert answer.count(b"HTTP/1.1 ") == 1
    assert b"content-type: application/problem+json" in head
    assert b"connection: close" in head
    problem = json.loads(body)
    assert (problem["status"], problem["code"]) == (status, code)
    assert {"type", "title", "detail", "instance", "suggestion"} <= set(problem)
    return problem


@pytest.fixture(scope="module")
def quick(served: Callable[..., contextlib.AbstractContextManager[httpx.Client]]) -> Iterator[httpx.Client]:
    """A service that waits half a second for a head and one for a body."""
    with served(echo(), **FAST) as client:
        yield client


@pytest.fixture(scope="module")
def client(served: Callable[..., contextlib.AbstractContextManager[httpx.Client]]) -> Iterator[httpx.Client]:
    """A service with the time-outs that it has by default."""
    with served(echo()) as client:
        yield client


SLOW: dict[str, tuple[bytes, bytes, float, int]] = {
    "a first line": (b"POST /r", b"u", 0.5, 408),
    "headers": (HEAD, b"a: b\r\n", 0.5, 408),
    "one header": (HEAD + b"a: ", b"b", 0.5, 408),
    "line breaks before a request": (b"\r\n", b"\r\n", 0.5, 0),
    "a body": (HEAD + b"content-length: 1000\r\n\r\n{", b" ", 1.0, 408),
    "chunks": (CHUNKED, b"1\r\n \r\n", 1.0, 408),
    "one chunk": (CHUNKED + b"fff\r\n{", b" ", 1.0, 408),
    "the size of a chunk": (CHUNKED, b"0", 1.0, 408),
    "trailers": (CHUNKED + b"1\r\n{\r\n0\r\n", b"a: b\r\n", 1.0, 408),
}


@pytest.mark.parametrize(("start", "piece", "seconds", "status"), SLOW.values(), ids=SLOW)
def test_a_client_that_dribbles_is_cut_off(
    quick: httpx.Client, start: bytes, piece: bytes, seconds: float, status: int
) -> None:
    """A request that comes bit by bit has its time in all, not for each bit; then it is a 408 and the end."""
    answer, took = dribbled(quick, start, piece)
    if status:
        check(answer, status, "request_too_slow")
    else:
        assert answer == b""
    assert took > seconds * 0.9
    assert quick.post("/run", json={"input": "x"}).status_code == 200


def test_a_client_that_says_nothing_is_cut_off(quick: httpx.Client) -> None:
    """A connection on which nothing comes is closed without a word."""
    assert describe_error(quick) == b""


def test_the_body_of_a_refused_request_has_its_time_too(serve: Serve) -> None:
    """A client that goes on to dribble a body after its answer is cut off as well."""
    client = serve(echo(), **FAST)
    answer, _ = dribbled(client, b"POST /nowhere HTTP/1.1\r\nhost: x\r\ncontent-length: 100000\r\n\r\n", b" ")
    assert answer.startswith(b"HTTP/1.1 404 ")
    assert answer.count(b"HTTP/1.1 ") == 1


def test_a_long_run_is_not_cut_off(serve: Serve) -> None:
    """The times are those of the client: a run, and a line break that comes during it, end nothing."""

    async def answer(request: ModelRequest) -> str:
        await asyncio.sleep(2)
        return "done"

    client = serve(Agent("a", "Do.", FunctionModel(answer)), **FAST)
    with connected(client) as connection:
        connection.sendall(WHOLE)
        time.sleep(0.1)
        connection.sendall(b"\r\n")
        got = b""
        while b'{"output":"done"}' not in got:
            piece = connection.recv(65536)
            assert piece, got
            got += piece


def test_a_kept_connection_may_rest_between_requests(quick: httpx.Client) -> None:
    """A connection that rests longer than a head may take still serves the next request."""
    with connected(quick) as connection:
        for _ in range(2):
            connection.sendall(WHOLE)
            got = b""
            while b"Echo: x" not in got:
                piece = connection.recv(65536)
                assert piece, got
                got += piece
            time.sleep(1.2)


@pytest.mark.parametrize(
    "start", [b"POST /run HTTP/1.1\r\na: ", HEAD + b"a: ", b"POST /"], ids=["at once", "after others", "in the path"]
)
def test_a_huge_head_is_refused(client: httpx.Client, start: bytes) -> None:
    """A head of more than 64 KiB is a 431, whether it ends or not."""
    end = b" HTTP/1.1\r\n\r\n" if b"\r" not in start else b"\r\n\r\n"
    check(describe_error(client, start, b"x" * 70_000 + end), 431, "headers_too_large")
    check(describe_error(client, start, b"x" * 5_000_000), 431, "headers_too_large")


def test_a_head_at_the_limit_is_taken(client: httpx.Client) -> None:
    """A head of 60 KiB is no fault."""
    answer = describe_error(client, WHOLE.replace(b"host: x", b"host: x\r\nconnection: close\r\na: " + b"x" * 61_000))
    assert answer.endswith(b'{"output":"Echo: x"}')


@pytest.mark.parametrize("end", [b"\r\n", b""], ids=["ended", "open"])
def test_many_headers_are_refused(client: httpx.Client, end: bytes) -> None:
    """More than 256 headers are a 431, and 200 are none."""
    check(describe_error(client, HEAD + b"a: b\r\n" * 300 + end), 431, "headers_too_large")
    few = b"connection: close\r\n" + b"a: b\r\n" * 200
    assert describe_error(client, HEAD + few + WHOLE.removeprefix(HEAD)).endswith(b'{"output":"Echo: x"}')


MALFORMED = {
    "noise": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"\0" * 64,
    "no request": b"hello\r\n\r\n",
    "HTTP/2": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    "an unknown version": b"GET / HTTP/7.3\r\n\r\n",
    "an unknown method": b"FROB /run HTTP/1.1\r\nhost: x\r\n\r\n",
    "a space in the path": b"GET /a b HTTP/1.1\r\nhost: x\r\n\r\n",
    "no Latin path": b"GET /\xff\xfe HTTP/1.1\r\nhost: x\r\n\r\n",
    "a tunnel": b"CONNECT example.org:443 HTTP/1.1\r\nhost: x\r\n\r\n",
    "a NUL in a header": b"GET /info HTTP/1.1\r\nhost: x\r\na: b\0c\r\n\r\n",
    "a space before a colon": HEAD + b"content-length : 14\r\n\r\n" + BODY,
    "a folded header": HEAD + b"a: b\r\n c\r\ncontent-length: 14\r\n\r\n" + BODY,
    "both lengths": HEAD + b"content-length: 14\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n",
    "both lengths, turned": HEAD + b"transfer-encoding: chunked\r\ncontent-length: 14\r\n\r\n0\r\n\r\n",
    "two lengths": HEAD + b"content-length: 14\r\ncontent-length: 3\r\n\r\n" + BODY,
    "a list of lengths": HEAD + b"content-length: 14, 14\r\n\r\n" + BODY,
    "a signed length": HEAD + b"content-length: +14\r\n\r\n" + BODY,
    "a negative length": HEAD + b"content-length: -1\r\n\r\n" + BODY,
    "a hexadecimal length": HEAD + b"content-length: 0xe\r\n\r\n" + BODY,
    "a huge length": HEAD + b"content-length: 99999999999999999999999\r\n\r\n" + BODY,
    "an unknown coding": HEAD + b"transfer-encoding: xchunked\r\n\r\n0\r\n\r\n",
    "chunked not last": HEAD + b"transfer-encoding: chunked, identity\r\n\r\n0\r\n\r\n",
    "chunked twice": HEAD + b"transfer-encoding: chunked\r\ntransfer-encoding: identity\r\n\r\n0\r\n\r\n",
    "no chunk size": CHUNKED + b"zz\r\n",
    "a negative chunk": CHUNKED + b"-1\r\n",
    "a huge chunk": CHUNKED + b"fffffffffffffffff\r\n",
    "a chunk that lies": CHUNKED + b"3\r\nabcdef\r\n0\r\n\r\n",
}


@pytest.mark.parametrize("sent", MALFORMED.values(), ids=MALFORMED)
def test_what_is_no_http_is_refused(client: httpx.Client, sent: bytes) -> None:
    """Bytes that are no request, or one that two readers could take for two things, are one 400 and the end."""
    check(describe_error(client, sent), 400, "request_malformed")


def test_a_lie_in_the_length_is_the_next_request(client: httpx.Client) -> None:
    """A body longer than announced is cut there; what follows is no request, and ends the connection."""
    answer = describe_error(client, HEAD + b"content-length: 14\r\n\r\n" + BODY + b"smuggled")
    assert re.findall(rb"HTTP/1.1 (\d+)", answer) in ([], [b"200", b"400"])


def test_a_length_that_is_not_reached_waits_and_ends(quick: httpx.Client) -> None:
    """A body shorter than announced is a 408."""
    check(describe_error(quick, HEAD + b"content-length: 20\r\n\r\n" + BODY), 408, "request_too_slow")


def test_pipelined_requests_are_answered_in_turn(client: httpx.Client) -> None:
    """Requests that are sent without waiting for answers get them in order."""
    bodies = [b'{"input": "%03d"}' % number for number in range(20)]
    sent = [HEAD + b"content-length: %d\r\n\r\n" % len(body) + body for body in bodies]
    last = b"GET /health HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n"
    answer = describe_error(client, b"".join(sent) + last)
    assert answer.count(b"HTTP/1.1 200 ") == 21
    found = [answer.index(b"Echo: %03d" % number) for number in range(20)]
    assert found == sorted(found)


def test_what_follows_an_answer_without_a_body_comes_after_it(serve: Serve) -> None:
    """Of two requests in one packet, the first is answered first, also where the second is refused at the door."""
    client = serve(echo(), api_keys="0123456789abcdef")
    head = b"HEAD /health HTTP/1.1\r\nhost: x\r\n\r\n"
    last = b"POST /run HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-length: 0\r\n\r\n"
    answer = describe_error(client, head + last)
    assert re.findall(rb"HTTP/1.1 (\d+) ", answer) == [b"200", b"401"]


class Written:
    """A transport that keeps what is written."""

    def __init__(self) -> None:
        self.pieces: list[bytes] = []
        self.closed = False

    def write(self, data: bytes) -> None:
        assert not self.closed
        self.pieces.append(data)

    def close(self) -> None:
        self.closed = True

    def is_closing(self) -> bool:
        return self.closed


async def test_an_answer_leaves_in_one_piece_and_a_stream_as_it_comes() -> None:
    """The head waits for what follows at once, for nothing else, and for nothing more."""
    whole, stream, cut = Written(), Written(), Written()
    for transport in (whole, stream, cut):
        joined = protocol._Joined(cast("asyncio.Transport", transport), transport.close)
        joined.write(b"head ")
        assert not transport.pieces
        if transport is whole:
            joined.write(b"body")
        elif transport is stream:
            await asyncio.sleep(0)
            for piece in (b"one", b"two"):
                joined.write(piece)
        else:
            joined.close()
        assert joined.is_closing() is transport.closed
        await asyncio.sleep(0)
    assert whole.pieces == [b"head body"]
    assert stream.pieces == [b"head ", b"one", b"two"]
    assert b"".join(cut.pieces) == b"head "
    assert cut.closed


def test_who_leaves_after_two_requests_has_left_both(serve: Serve) -> None:
    """A run is cancelled when its caller leaves, also where the next request was sent behind it."""
    ends: list[str] = []

    async def answer(request: ModelRequest) -> str:
        ends.append("begun")
        try:
            await asyncio.sleep(PATIENT)
        except asyncio.CancelledError:
            ends.append("cancelled")
            raise
        return "late"

    client = serve(Agent("a", "Do.", FunctionModel(answer)))
    with connected(client) as connection:
        connection.sendall(WHOLE * 2)
        deadline = time.monotonic() + PATIENT
        while not ends and time.monotonic() < deadline:
            time.sleep(0.01)
    while len(ends) < 2 and time.monotonic() < deadline:
        time.sleep(0.01)
    assert ends == ["begun", "cancelled"]


async def test_an_application_may_end_a_connection() -> None:
    """With the extension, a connection ends at once, whatever its client has not read, and the application knows."""
    over = asyncio.Event()

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await receive()
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"x" * 20_000_000, "more_body": True})
        scope["extensions"]["podwright.abort"]["connection"]()
        assert (await receive())["type"] == "http.disconnect"
        over.set()

    server = uvicorn.Server(uvicorn.Config(app, http=protocol_for(Settings()), lifespan="off", log_level="error"))
    with socket.create_server(("127.0.0.1", 0)) as listening:
        serving = asyncio.create_task(server.serve(sockets=[listening]))
        while not server.started:  # noqa: ASYNC110 - it has no event
            await asyncio.sleep(0.01)
        with socket.create_connection(listening.getsockname(), timeout=PATIENT) as connection:
            connection.sendall(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n")
            async with asyncio.timeout(PATIENT):
                await over.wait()
            assert len(await asyncio.to_thread(rest, connection)) < 20_000_000
        server.should_exit = True
        await serving


def test_an_endless_body_is_cut_off(serve: Serve) -> None:
    """Chunks, extensions and trailers without end are not read for as long as they come."""
    client = serve(echo(), max_body_bytes=1000)
    assert describe_error(client, CHUNKED + b"1;" + b"x" * 2_000_000).startswith(b"HTTP/1.1 413 ")
    assert describe_error(client, CHUNKED + b"1\r\n{\r\n0\r\n", *[b"a: b\r\n" * 300] * 2).startswith(b"HTTP/1.1 413 ")
    assert describe_error(client, CHUNKED, *[b"400\r\n" + b" " * 1024 + b"\r\n"] * 2000).startswith(b"HTTP/1.1 413 ")


def test_who_sends_all_before_it_reads_is_told_why_not(client: httpx.Client, monkeypatch: pytest.MonkeyPatch) -> None:
    """A body that is too large is refused before it has come, and whoever sends the rest of it still hears that."""
    monkeypatch.setattr(protocol, "_TO_READ", PATIENT)
    size = 20_000_000
    for _ in range(5):
        with connected(client) as connection:
            connection.sendall(HEAD + b"content-length: %d\r\n\r\n" % size)
            connection.sendall(bytes(size))
            check(rest(connection), 413, "body_too_large")


def test_who_goes_on_sending_after_a_refusal_is_cut_off(client: httpx.Client) -> None:
    """Nobody reads for ever what is not taken."""

    def send(connection: socket.socket) -> None:
        while time.monotonic() < begin + PATIENT:
            connection.sendall(b" ")
            time.sleep(0.05)

    with connected(client) as connection:
        connection.sendall(HEAD + b"content-length: 20000000\r\n\r\n")
        begin = time.monotonic()
        with pytest.raises(OSError, match=r"Broken pipe|reset"):
            send(connection)


def test_trailers_are_no_headers(client: httpx.Client) -> None:
    """A trailer changes nothing of what the headers said."""
    body = b"%x\r\n%s\r\n0\r\ncontent-encoding: gzip\r\ncontent-type: text/plain\r\n\r\n" % (len(BODY), BODY)
    sent = CHUNKED.replace(b"host: x", b"host: x\r\nconnection: close") + body
    assert describe_error(client, sent).endswith(b'{"output":"Echo: x"}')


UPGRADE = b"connection: upgrade\r\nupgrade: h2c\r\n"


def test_an_upgrade_is_not_made(client: httpx.Client) -> None:
    """A request that would rather speak something else is answered in HTTP/1.1, and is the connection's last."""
    again = b"GET /info HTTP/1.1\r\nhost: x\r\n\r\n"
    answer = describe_error(client, b"GET /health HTTP/1.1\r\nhost: x\r\n" + UPGRADE + b"\r\n", again)
    assert answer.startswith(b"HTTP/1.1 200 ")
    assert answer.count(b"HTTP/1.1 ") == 1


@pytest.mark.parametrize("length", [b"content-length: 38\r\n\r\n", b"transfer-encoding: chunked\r\n\r\n26\r\n"])
def test_nothing_is_smuggled_behind_an_upgrade(client: httpx.Client, length: bytes) -> None:
    """The body of a request with an upgrade is never taken for a request."""
    with connected(client) as connection:
        connection.sendall(HEAD + UPGRADE + length)
        time.sleep(0.1)
        with contextlib.suppress(OSError):
            connection.sendall(b"GET /info HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n")
        check(rest(connection), 400, "request_malformed")


def test_a_client_that_does_not_read_is_cut_off(serve: Serve) -> None:
    """An answer that nobody takes is given up, and the connection with it."""
    client = serve(Agent("a", "Do.", ScriptedModel("x" * 20_000_000)), **FAST)
    with connected(client) as connection:
        connection.sendall(WHOLE)
        connection.recv(1, socket.MSG_PEEK)
        time.sleep(5)
        assert len(rest(connection)) < 20_000_000


def test_a_client_that_reads_slowly_gets_it_all(serve: Serve) -> None:
    """An answer that is taken bit by bit is sent to its end."""
    client = serve(Agent("a", "Do.", ScriptedModel("x" * 8_000_000)), header_timeout=0.5, body_timeout=PATIENT)
    with connected(client) as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65536)
        connection.sendall(WHOLE.replace(b"host: x", b"host: x\r\nconnection: close"))
        got, begin = 0, time.monotonic()
        while piece := connection.recv(65536):
            got += len(piece)
            time.sleep(0.025)
    assert got > 8_000_000
    assert time.monotonic() - begin > 2


@pytest.mark.parametrize(
    ("taken", "stuck_after"),
    [([20_000] * 90, None), ([0, 0, 40_000] * 30, None), ([10_000] * 90, 3), ([20_000] * 9 + [0] * 9, 12)],
    ids=["slowly", "with pauses", "too slowly", "no more"],
)
def test_how_slowly_an_answer_may_be_taken(taken: list[int], stuck_after: int | None) -> None:
    """In the time of a body, a client takes a kilobyte for each second of it; looked at every ten seconds."""

    class Unsent(Written):
        left = 10_000_000

        def get_write_buffer_size(self) -> int:
            return self.left

    connection, transport = protocol.Protocol.__new__(protocol.Protocol), Unsent()
    connection.cycle, connection.transport = cast("Any", None), cast("Any", transport)
    seen: list[bool] = []
    for number, size in enumerate([0, *taken]):
        transport.left -= size
        seen.append(connection._stuck(number * 10.0))
    assert (seen.index(True) if any(seen) else None) == stuck_after


def test_idle_connections_harm_nobody(serve: Serve) -> None:
    """With 1 000 connections that say nothing or half a head, others are served, and all of those are closed."""
    client = serve(echo(), header_timeout=3.0)
    with contextlib.ExitStack() as stack:
        idle = [stack.enter_context(connected(client)) for _ in range(1000)]
        for connection in idle[::2]:
            connection.sendall(HEAD)
        for _ in range(20):
            assert client.post("/run", json={"input": "x"}).json() == {"output": "Echo: x"}
        assert {rest(connection)[:12] for connection in idle} == {b"", b"HTTP/1.1 408"}
    assert client.get("/health").status_code == 200


def test_the_command_serves_with_it(command: Any, address: Any, newsroom: Any) -> None:
    """`podwright serve` has the time-outs of its environment, and says nothing of a traceback."""
    process = command(
        "serve", str(newsroom / "writer"), "--port", "0", "--host", "127.0.0.1",
        PODWRIGHT_MODEL="offline/echo", PODWRIGHT_HEADER_TIMEOUT="0.3",
    )  # fmt: skip
    with httpx.Client(base_url=address(process)) as client:
        check(describe_error(client, HEAD), 408, "request_too_slow")
        check(describe_error(client, MALFORMED["noise"]), 400, "request_malformed")
    process.terminate()
    output, _ = process.communicate(timeout=PATIENT)
    assert "Traceback" not in output
