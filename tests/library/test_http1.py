"""The client of models and remotes, on real sockets: what is an answer, what is none, and who gets which connection."""

from __future__ import annotations

import asyncio
import gc
import gzip
import os
import socket
import ssl
import struct
import subprocess
import sys
import threading
import zlib
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import ExitStack, asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from podwright.models import pool
from podwright.models.http1 import BrokenError, HttpError, LostError, NotConnectedError, Reply
from podwright.models.pool import Pool
from podwright.models.target import Target

Talk = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]
OK = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello"
ZIPPED = b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: %d\r\n\r\n%s"
LARGE = 32 * 2**20
LOOP = "PODWRIGHT_TEST_LOOP"


@asynccontextmanager
async def server(talk: Talk, tls: ssl.SSLContext | None = None) -> AsyncGenerator[Target]:
    """Serve each connection until the context ends."""
    tasks: set[asyncio.Task[None]] = set()

    async def served(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        tasks.add(task)
        try:
            await talk(reader, writer)
        except (OSError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass
        finally:
            writer.close()

    listening = await asyncio.start_server(served, "127.0.0.1", 0, ssl=tls)
    try:
        yield Target(tls is not None, "127.0.0.1", listening.sockets[0].getsockname()[1], "/v1")
    finally:
        listening.close()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def request(reader: asyncio.StreamReader) -> bytes:
    """One request, without its head."""
    head = await reader.readuntil(b"\r\n\r\n")
    return await reader.readexactly(int(head.rpartition(b"Content-Length: ")[2]))


def answers(*pieces: bytes, then: bool = True) -> Talk:
    """Answers each request with these pieces, one after the other, and closes then or not."""

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            await request(reader)
            for piece in pieces:
                writer.write(piece)
                await writer.drain()
                await asyncio.sleep(0.005)
            if then:
                return

    return talk


async def posted(connections: Pool, target: Target, body: bytes = b"{}") -> Reply:
    return await connections.post(target, target.head({"X-Test": "1"}), body, 5.0)


async def whole(reply: Reply) -> bytes:
    data = b""
    try:
        while piece := await reply.more():
            data += piece
    finally:
        reply.close()
    return data


async def asked(target: Target) -> bytes:
    connections = Pool()
    try:
        return await whole(await posted(connections, target))
    finally:
        connections.close()


CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
BOTH = gzip.compress(b"hel") + gzip.compress(b"lo")
HELLO: dict[str, tuple[bytes, ...]] = {
    "whole": (OK,),
    "byte by byte": tuple(bytes((one,)) for one in OK),
    "in chunks": (CHUNKED, b"2\r\nhe\r\n", b"3;x=y\r\nllo\r\n0\r\nTrailer: x\r\n\r\n"),
    "until the end of the connection": (b"HTTP/1.1 200 OK\r\n\r\nhel", b"lo"),
    "of HTTP/1.0": (b"HTTP/1.0 200 OK\r\n\r\nhello",),
    "after another head": (b"HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\nHTTP/1.1 100 Continue\r\n\r\n", OK),
    "zipped": (ZIPPED % (len(gzip.compress(b"hello")), gzip.compress(b"hello")),),
    "zipped in two parts": (ZIPPED % (len(BOTH), BOTH),),
    "zipped in pieces": (ZIPPED[:-2] % len(BOTH), BOTH[:9], BOTH[9:]),
    "deflated": (ZIPPED.replace(b"gzip", b"deflate") % (len(zlib.compress(b"hello")), zlib.compress(b"hello")),),
    "with more after it": (OK + b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nevil",),
    "with rubbish after it": (OK + b"rubbish",),
}


@pytest.mark.parametrize("form", HELLO)
async def test_an_answer_in_every_form(form: str) -> None:
    """However an answer is sent, its body is the same."""
    async with server(answers(*HELLO[form])) as target:
        assert await asked(target) == b"hello"


@pytest.mark.parametrize("head", [b"HTTP/1.1 204 No Content\r\n\r\n", b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"])
async def test_an_answer_without_a_body(head: bytes) -> None:
    """An answer may have none, and does not keep its reader waiting."""
    async with server(answers(head, then=False)) as target:
        assert await asyncio.wait_for(asked(target), 20) == b""


LINES = [b"X: " + b"x" * 30_000 + b"\r\n"] * 8
TORN = gzip.compress(os.urandom(1000))[:-20]
BROKEN: dict[str, tuple[type[HttpError], tuple[bytes, ...]]] = {
    "nothing": (LostError, ()),
    "half a head": (LostError, (b"HTTP/1.1 200 OK\r\nContent-Le",)),
    "no HTTP": (BrokenError, (b"SSH-2.0-OpenSSH\r\n\r\n",)),
    "a body that is too short": (BrokenError, (OK[:-2],)),
    "a chunk that is none": (BrokenError, (CHUNKED, b"zz\r\nhello\r\n0\r\n\r\n")),
    "no last chunk": (BrokenError, (CHUNKED, b"5\r\nhello\r\n")),
    "two lengths": (BrokenError, (CHUNKED.replace(b"\r\n\r\n", b"\r\nContent-Length: 5\r\n\r\n"), b"hello")),
    "another protocol": (BrokenError, (b"HTTP/1.1 101 Switching\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n",)),
    "compressed in no way that was asked for": (BrokenError, (ZIPPED.replace(b"gzip", b"br") % (5, b"hello"),)),
    "no gzip": (BrokenError, (ZIPPED % (5, b"hello"),)),
    "gzip that is torn": (BrokenError, (ZIPPED % (len(TORN), TORN),)),
    "gzip that ends with the connection": (BrokenError, (b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\n\r\n", TORN)),
    "rubbish after gzip": (BrokenError, (ZIPPED % (len(BOTH) + 4, BOTH + b"evil"),)),
    "a head without end": (BrokenError, (b"HTTP/1.1 200 OK\r\n", *LINES)),
    "trailers without end": (BrokenError, (CHUNKED + b"5\r\nhello\r\n0\r\n", *LINES, b"\r\n")),
    "an interim answer with a body": (BrokenError, (b"HTTP/1.1 150 X\r\nContent-Length: 5\r\n\r\nEVIL!", OK)),
    "heads without end": (BrokenError, (b"HTTP/1.1 100 Continue\r\n\r\n" * 4000,) * 2),
}  # fmt: skip


@pytest.mark.parametrize("fault", BROKEN)
async def test_what_is_no_whole_answer_is_none(fault: str) -> None:
    """Whatever is missing or wrong is an error, and never a short answer."""
    kind, pieces = BROKEN[fault]
    async with server(answers(*pieces)) as target:
        with pytest.raises(kind) as caught:
            await asked(target)
    assert type(caught.value) is kind


async def test_who_closes_at_once_is_noticed_at_once() -> None:
    """A connection that ends before anything was sent is lost, and nobody waits for it."""

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.transport.abort()

    async with server(talk) as target:
        for _ in range(20):
            with pytest.raises((LostError, NotConnectedError)):
                await asyncio.wait_for(asked(target), 20)


async def test_a_head() -> None:
    """The status, the headers by their names in lower case, of repeated ones the first, and the media type."""
    head = b"HTTP/1.1 503 No\r\nContent-Type: Text/HTML; charset=x\r\nA: 1\r\na: 2\r\nRetry-After: 3\r\n\r\n"
    connections = Pool()
    async with server(answers(head)) as target:
        reply = await posted(connections, target)
        assert (reply.status, reply.content_type) == (503, "text/html")
        assert (reply.headers["a"], reply.headers["retry-after"]) == ("1", "3")
        reply.close()


class Counted:
    """Serves one answer on and on, and counts connections and requests."""

    def __init__(self, *pieces: bytes) -> None:
        self.connections = self.requests = 0
        self._pieces = pieces

    async def talk(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        while await request(reader):
            self.requests += 1
            for piece in self._pieces:
                writer.write(piece)
                await writer.drain()
                await asyncio.sleep(0.002)


async def test_a_connection_carries_one_request_after_the_other() -> None:
    """Requests one after the other share a connection, and those at once have one each."""
    counted, connections = Counted(OK), Pool()
    async with server(counted.talk) as target:
        for _ in range(5):
            assert await whole(await posted(connections, target)) == b"hello"
        assert counted.connections == 1
        replies = await asyncio.gather(*(posted(connections, target) for _ in range(4)))
        assert [await whole(one) for one in replies] == [b"hello"] * 4
        assert (counted.connections, counted.requests) == (4, 9)
        connections.close()


LEFT: dict[str, tuple[bytes, ...]] = {
    "a connection that closes": (OK.replace(b"Content", b"Connection: close\r\nContent"),),
    "more than was asked for": (OK + OK,),
    "rubbish": (OK, b"rubbish"),
    "half": (OK.replace(b"5", b"9"),),
}


@pytest.mark.parametrize("why", LEFT)
async def test_a_connection_that_is_not_clean_is_not_used_again(why: str) -> None:
    """What one answer leaves behind never becomes the answer to another request."""
    counted, connections = Counted(*LEFT[why]), Pool()
    async with server(counted.talk) as target:
        for _ in range(3):
            reply = await posted(connections, target)
            assert (await reply.more())[:5] == b"hello"
            reply.close()
            await asyncio.sleep(0.05)
        assert counted.connections == 3
        connections.close()


async def test_an_answer_that_came_too_late_is_nobodys() -> None:
    """A caller who leaves takes the connection along, and the next one has another."""
    turns = iter((0.2, 0.0))

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        body = await request(reader)
        await asyncio.sleep(next(turns))
        writer.write(OK.replace(b"hello", body))
        await reader.read()

    connections = Pool()
    async with server(talk) as target:
        first = asyncio.create_task(posted(connections, target, b"first"))
        await asyncio.sleep(0.05)
        first.cancel()
        with pytest.raises(asyncio.CancelledError):
            await first
        assert await whole(await posted(connections, target, b"other")) == b"other"
        connections.close()


async def test_an_answer_that_the_loop_has_not_seen_is_not_the_next_ones() -> None:
    """What comes without a request while the loop is busy is not taken for the answer to the next one."""
    go, sent = threading.Event(), threading.Event()

    def serve(listening: socket.socket) -> None:
        for extra in (OK.replace(b"hello", b"evil!"), b""):
            connection, _ = listening.accept()
            with connection:
                connection.recv(65536)
                connection.sendall(OK)
                if extra:
                    go.wait(20)
                    connection.sendall(extra)
                    sent.set()
                with suppress(ConnectionError):  # it is closed with what nobody has read
                    connection.recv(65536)

    connections = Pool()
    with socket.create_server(("127.0.0.1", 0)) as listening:
        serving = threading.Thread(target=serve, args=(listening,), daemon=True)
        serving.start()
        target = Target(False, "127.0.0.1", listening.getsockname()[1], "/")
        assert await whole(await posted(connections, target)) == b"hello"
        go.set()
        assert sent.wait(20)  # and the loop stands still meanwhile
        assert await asyncio.wait_for(whole(await posted(connections, target)), 20) == b"hello"
        connections.close()
        await asyncio.to_thread(serving.join, 20)


async def test_an_answer_that_nobody_read_leaves_a_connection_that_can_be_read() -> None:
    """Where reading was stopped for an answer that then is not read, the next one is heard all the same."""
    large = b"HTTP/1.1 200 OK\r\nContent-Length: 400000\r\n\r\n" + bytes(400_000)
    counted, connections = Counted(large), Pool()
    async with server(counted.talk) as target:
        for _ in range(5):
            reply = await asyncio.wait_for(posted(connections, target), 20)
            await asyncio.sleep(0.05)
            reply.close()
        assert len(await whole(await asyncio.wait_for(posted(connections, target), 20))) == 400_000
        connections.close()


async def test_a_body_that_ends_with_a_reset_is_not_whole() -> None:
    """Where the end of the connection is the end of the body, it must be an end in order."""

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await request(reader)
        writer.write(b"HTTP/1.1 200 OK\r\n\r\nhello")
        await asyncio.sleep(0.05)
        writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        writer.transport.abort()

    async with server(talk) as target:
        with pytest.raises(BrokenError):
            await asked(target)


async def test_a_connection_that_the_other_end_closed_is_not_used() -> None:
    """What was closed while nobody used it is not given to the next caller."""
    connections = Pool()
    async with server(answers(OK)) as target:  # it closes after each
        for _ in range(3):
            assert await whole(await posted(connections, target)) == b"hello"
            await asyncio.sleep(0.05)


async def test_what_nobody_uses_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A connection is kept for a while only, and a pool that is closed keeps none."""
    ended = asyncio.Event()

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await request(reader)
        writer.write(OK)
        assert await reader.read() == b""
        ended.set()

    for keep, close in ((0.05, False), (60.0, True)):
        monkeypatch.setattr(pool, "_KEEP", keep)
        ended.clear()
        connections = Pool()
        async with server(talk) as target:
            assert await whole(await posted(connections, target)) == b"hello"
            if close:
                connections.close()
            await asyncio.wait_for(ended.wait(), 20)


async def test_an_answer_may_come_before_all_is_sent() -> None:
    """Who is refused half way reads why; what of the request is still to be sent never precedes another one."""
    connections, bodies, opened = Pool(), [], 0

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal opened
        opened += 1
        head = await reader.readuntil(b"\r\n\r\n")
        size = int(head.rpartition(b"Content-Length: ")[2])
        if size < LARGE:
            bodies.append(await reader.readexactly(size))
        writer.write(OK)  # and no more is read, so the rest of a large request stays where it is
        await writer.drain()
        await asyncio.sleep(60)

    async with server(talk) as target:
        reply = await asyncio.wait_for(posted(connections, target, bytes(LARGE)), 20)
        assert (reply.status, await whole(reply)) == (200, b"hello")
        assert await whole(await asyncio.wait_for(posted(connections, target, b"next"), 20)) == b"hello"
        connections.close()
    assert (bodies, opened) == ([b"next"], 2)


async def test_who_reads_slowly_holds_little() -> None:
    """The other end waits while nobody reads, and what is compressed is opened piece by piece."""
    sent = 0

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal sent
        await request(reader)
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % LARGE)
        for _ in range(LARGE // 2**16):
            writer.write(bytes(2**16))
            await writer.drain()
            sent += 2**16

    connections = Pool()
    async with server(talk) as target:
        reply = await posted(connections, target)
        await asyncio.sleep(0.3)
        assert sent < LARGE / 2
        assert len(await whole(reply)) == LARGE
    bomb = gzip.compress(bytes(LARGE))
    async with server(answers(ZIPPED % (len(bomb), bomb))) as target:
        reply = await posted(connections, target)
        sizes: list[int] = []
        turns = 0

        async def others() -> None:
            nonlocal turns
            while True:
                turns += 1
                await asyncio.sleep(0)

        beside = asyncio.create_task(others())
        while piece := await reply.more():
            sizes.append(len(piece))
        beside.cancel()
        reply.close()
        assert turns > len(sizes) / 2  # all that it opens to comes at once, and must not keep the loop to itself
    assert sum(sizes) == LARGE
    assert max(sizes) <= 2**18
    connections.close()


async def test_calls_leave_nothing_behind() -> None:
    """What a call makes goes with it; nothing is left for the collector to find."""
    counted, connections = Counted(OK), Pool()
    async with server(counted.talk) as target:
        for _ in range(3):
            await whole(await posted(connections, target))
        gc.collect()
        gc.disable()
        try:
            for _ in range(50):
                await whole(await posted(connections, target))
            left = [one for one in gc.get_objects() if isinstance(one, Reply)]
        finally:
            gc.enable()
        assert len(left) == 0
        connections.close()


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A certificate for 127.0.0.1 that is its own authority, and its key."""
    folder = tmp_path_factory.mktemp("tls")
    made, key = folder / "made.pem", folder / "key.pem"
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=nobody",
         "-addext", "subjectAltName=IP:127.0.0.1,DNS:model.example", "-keyout", str(key), "-out", str(made)],
        check=True, capture_output=True,
    )  # fmt: skip
    return made, key


async def test_a_secure_connection(certificate: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    """Only who has a certificate that is trusted, for its very name, is told anything."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(*certificate)
    heard: list[bytes] = []

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heard.append(await request(reader))
        writer.write(OK)
        await writer.drain()

    async with server(talk, context) as target:
        with pytest.raises(NotConnectedError) as caught:
            await asked(target)
        assert caught.value.reason == "tls"
        monkeypatch.setenv("SSL_CERT_FILE", str(certificate[0]))
        assert await asked(target) == b"hello"
        connections, here = Pool(), asyncio.get_running_loop().create_future()
        here.set_result([(socket.AF_INET, socket.SOCK_STREAM, 0, "", (target.host, target.port))])
        # with a dot a name is looked up nowhere else, and is the same
        names = ("model.example", "model.example.", "other.example")
        connections._looked_up |= {(name, target.port): here for name in names}
        for name in names[:2]:
            assert await whole(await posted(connections, Target(True, name, target.port, "/"))) == b"hello"
        with pytest.raises(NotConnectedError) as caught:
            await posted(connections, Target(True, names[2], target.port, "/"))
        assert caught.value.reason == "tls"
        connections.close()
    assert len(heard) == 3

    async def plainly(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(10)
        writer.write(b"HTTP/1.1 400 No\r\n\r\n")
        await writer.drain()

    async with server(plainly) as plain:
        with pytest.raises(NotConnectedError) as caught:
            await asked(Target(True, plain.host, plain.port, "/"))
    assert caught.value.reason == "tls"


@pytest.mark.parametrize("before", [None, "no certificate"])
async def test_certificates_that_are_put_right_are_read_again(
    before: str | None, certificate: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file that was absent or broken at the first call does not fail all others until a restart."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(*certificate)
    trusted = tmp_path / "trusted.pem"
    monkeypatch.setenv("SSL_CERT_FILE", str(trusted))
    if before:
        trusted.write_text(before)

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await request(reader)
        writer.write(OK)
        await writer.drain()

    async with server(talk, context) as target:
        connections = Pool()
        with pytest.raises(NotConnectedError) as caught:
            await posted(connections, target)
        assert caught.value.reason == "tls"
        trusted.write_bytes(certificate[0].read_bytes())
        assert await whole(await posted(connections, target)) == b"hello"
        connections.close()


async def test_a_handshake_that_is_given_up_leaves_no_connection() -> None:
    """A server that takes a connection and says nothing costs a caller's patience, and no socket."""
    ends: list[asyncio.Event] = []

    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        ends.append(asyncio.Event())
        ended = ends[-1]
        with suppress(ConnectionError):
            while await reader.read(2**16):
                pass
        ended.set()

    connections = Pool()
    async with server(silent) as plain, asyncio.timeout(30):
        secure = Target(True, plain.host, plain.port, "/")
        with pytest.raises(NotConnectedError) as caught:
            await connections.post(secure, secure.head({}), b"{}", 0.3)
        assert caught.value.reason == "time"
        callers = [asyncio.create_task(posted(connections, secure)) for _ in range(30)]
        for number, one in enumerate(callers):
            await asyncio.sleep(0.003 * (number % 5))
            one.cancel()
        outcomes = await asyncio.gather(*callers, return_exceptions=True)
        assert {type(one) for one in outcomes} == {asyncio.CancelledError}
        await asyncio.sleep(0.2)  # in which the last of them are taken
        assert len(ends) > 1
        for ended in ends:
            await ended.wait()


async def test_on_another_loop(tmp_path: Path) -> None:
    """On the loop that the service has, all is the same."""
    script = tmp_path / "there.py"
    here = type(asyncio.get_running_loop()).__module__
    assert here.startswith(os.environ.get(LOOP, "asyncio"))
    if LOOP in os.environ:
        return
    script.write_text(
        "import pytest, sys, uvloop\n"
        "uvloop.install()\n"
        f"sys.exit(pytest.main(['-q', '-p', 'no:cacheprovider', '-p', 'no:xdist', {__file__!r}]))\n"
    )
    run = subprocess.run(
        [sys.executable, str(script)],
        capture_output=True, text=True, timeout=100, check=False, env={**os.environ, LOOP: "uvloop"},
    )  # fmt: skip
    assert run.returncode == 0, run.stdout[-3000:]


URLS = {
    "http://model": (False, "model", 80, "/"),
    "https://model": (True, "model", 443, "/"),
    "https://Model:8443/v1?api-version=2": (True, "model", 8443, "/v1?api-version=2"),
    "http://[::1]:8000/a%2Fb/ü": (False, "::1", 8000, "/a%2Fb/%C3%BC"),
    "http://model?x=1": (False, "model", 80, "/?x=1"),
    "http://bücher.example/": (False, "xn--bcher-kva.example", 80, "/"),
}


@pytest.mark.parametrize("url", URLS)
def test_urls(url: str) -> None:
    """What is left of a URL."""
    found = Target.of(url)
    assert (found.secure, found.host, found.port, found.path) == URLS[url]


@pytest.mark.parametrize(
    "url",
    ["", "model/v1", "//model", "ftp://model", "http://", "http://:80", "http://me@model", "http://me:key@model",
     "http://model:port", "http://model:99999", "http://[::1", "http://mo del", "http://model/\r\nX: y", "http://model/#x",
     "http://mo\tdel", "http://" + "x" * 70 + "é.example", "http://a<b", "http://[::1]x/", "http://[v1.x]/",
     "http://model:0/", "http://h%2fx/", "http://[fe80::1%25eth0]/", "http://a\\b/"],
)  # fmt: skip
def test_urls_that_are_none(url: str) -> None:
    """What names no service is refused."""
    with pytest.raises(ValueError, match=r"."):
        Target.of(url)


async def test_a_cancellation_in_the_moment_of_connecting_is_heard() -> None:
    """Also where it comes while the addresses that lost the race are left."""
    if LOOP in os.environ:
        return  # of that loop, nothing can be replaced
    loop = asyncio.get_running_loop()
    sock_connect = loop.sock_connect

    async def connect(sock: socket.socket, address: Any) -> None:
        try:
            await sock_connect(sock, address)
        except asyncio.CancelledError:
            task.cancel()
            raise

    with socket.socket() as full, socket.create_server(("127.0.0.1", 0)) as open_, ExitStack() as stack:
        full.bind(("127.0.0.1", 0))
        full.listen(0)
        for _ in range(4):
            filler = stack.enter_context(socket.socket())
            filler.setblocking(False)
            filler.connect_ex(full.getsockname())
        places = [(socket.AF_INET, socket.SOCK_STREAM, 6, "", one.getsockname()) for one in (full, open_)]
        loop.sock_connect = connect
        try:
            task = asyncio.create_task(pool._opened(places))
            with pytest.raises(asyncio.CancelledError):
                await task
        finally:
            loop.sock_connect = sock_connect


async def test_who_asks_for_a_host_at_the_same_time_asks_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A look-up serves all who wait for it, whoever of them leaves; a number needs none, and a failure is not kept."""
    asked_for: list[str] = []
    loop = asyncio.get_running_loop()
    known = {"model.example": [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", 1))]}

    async def look_up(host: str, port: int, **_: object) -> object:
        asked_for.append(host)
        await asyncio.sleep(0.05)
        if host not in known:
            raise socket.gaierror(socket.EAI_NONAME, "unknown")
        return known[host]

    connections = Pool()
    with monkeypatch.context() as patched:
        patched.setattr(type(loop), "getaddrinfo", lambda _, *given, **more: look_up(*given, **more))
        waiting = [asyncio.create_task(connections._addresses("model.example", 80)) for _ in range(50)]
        await asyncio.sleep(0.01)
        waiting[0].cancel()
        found = await asyncio.gather(*waiting, return_exceptions=True)
        assert isinstance(found[0], asyncio.CancelledError)
        assert found[1:] == [known["model.example"]] * 49
        for host, family in (("127.0.0.1", socket.AF_INET), ("::1", socket.AF_INET6)):
            assert [one[0] for one in await connections._addresses(host, 80)] == [family]
        for _ in range(2):
            with pytest.raises(socket.gaierror):
                await connections._addresses("nobody.example", 80)
        await connections._addresses("model.example", 80)
    assert asked_for == ["model.example", "nobody.example", "nobody.example", "model.example"]


def test_heads() -> None:
    """The host stands as it must, and a header cannot end early."""
    assert b"\r\nHost: model\r\n" in Target.of("http://model./v1").head({"Tracestate": "a=b\tc"})
    assert b"\r\nHost: model\r\n" in Target.of("https://model/v1").head({})
    assert b"\r\nHost: [::1]:8000\r\n" in Target.of("http://[::1]:8000").head({})
    assert Target.of("http://model/v1").head({"A": "b"}).startswith(b"POST /v1 HTTP/1.1\r\n")
    for name, value in (("A", "x\r\nY: z"), ("A", "x\ny"), ("A", "x\0"), ("A:", "b"), ("", "b"), ("Host", "b")):
        with pytest.raises(ValueError, match="header"):
            Target.of("http://model").head({name: value})
