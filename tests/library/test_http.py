"""HTTP to models and remotes: connections, TLS, proxies, event loops, and server-sent events."""

import asyncio
import math
import os
import subprocess
import sys
import textwrap
import traceback
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from tests.library.proxies import Proxy, set_proxy
from tests.library.upstream import (
    HOUR,
    STREAM,
    Script,
    Upstream,
    chunk,
    pass_time,
    reply,
    server_context,
    streamed,
    upstream,
)

from podwright import Agent, Remote, errors
from podwright.models.http import client as http
from podwright.models.http.client import Fault, TransportError
from podwright.models.http.proxies import (
    environment_proxy,
    environment_proxy_of_litellm,
)
from podwright.models.http.sse import EventParser
from podwright.models.http.urls import join_url
from podwright.models.retries import Timeouts

OK = [reply({"ok": True})]
LIMITS = Timeouts()


async def send(
    url: str,
    timeouts: Timeouts = LIMITS,
    *,
    first_byte: float = 30.0,
    max_bytes: int = 2**20,
) -> bytes:
    async with http.send(
        url, b"{}", {}, timeouts, first_byte=first_byte, max_bytes=max_bytes
    ) as response:
        return await response.read()


async def fault_of(url: str, **options: Any) -> Fault:
    with pytest.raises(TransportError) as caught:
        await send(url, **options)
    return caught.value.fault


async def test_connections_are_reused(provider: Upstream) -> None:
    """Calls one after the other share a connection; calls at the same time have one each, without a limit."""
    provider.answers(OK)
    for _ in range(3):
        await send(provider.url)
    assert provider.connections == 1
    provider.answers([asyncio.Barrier(200), *OK])
    async with asyncio.timeout(60):
        for _ in range(2):
            assert (
                await asyncio.gather(*(send(provider.url) for _ in range(200)))
                == [b'{"ok": true}'] * 200
            )
    assert provider.connections == 200


async def test_after_its_last_event_a_stream_is_drained(
    provider: Upstream,
) -> None:
    """The end of a stream is read, so that its connection is used again."""
    provider.answers(streamed(b"data: x\n\n", b": the end\n\n"), OK)
    async with http.send(
        provider.url, b"{}", {}, LIMITS, first_byte=30.0, max_bytes=100
    ) as response:
        await response.read_chunk()
        await response.drain()
    await send(provider.url)
    assert provider.connections == 1


async def test_a_stream_that_stays_open_does_not_delay_the_caller(
    provider: Upstream,
) -> None:
    """The wait for the end of a stream is short; then its connection is closed, and nothing else is read from it."""
    provider.answers([STREAM, chunk(b"data: x\n\n"), "hang"], OK)
    async with http.send(
        provider.url, b"{}", {}, LIMITS, first_byte=30.0, max_bytes=100
    ) as response:
        await response.read_chunk()
        asyncio.get_running_loop().call_soon(pass_time, 1.0)
        await response.drain()
    assert await send(provider.url) == b'{"ok": true}'
    assert provider.connections == 2


async def test_no_redirect_is_followed_and_no_cookie_kept(
    provider: Upstream,
) -> None:
    """A redirect is returned as it is, and a cookie of one response is not sent with the next request."""
    provider.answers(
        [reply(b"", 307, Location="/elsewhere", Set_Cookie="tenant=a; Path=/")]
    )
    for _ in range(2):
        await send(provider.url)
    assert [headers[":line"] for headers in provider.headers] == [
        "POST /v1 HTTP/1.1"
    ] * 2
    assert not any("cookie" in headers for headers in provider.headers)


async def test_a_long_header_is_accepted(provider: Upstream) -> None:
    """Headers of up to 64 KiB are read, as content filters and gateways send."""
    provider.answers([reply({}, X_Filter="x" * 60_000)])
    async with http.send(
        provider.url, b"{}", {}, LIMITS, first_byte=30.0, max_bytes=100
    ) as response:
        assert len(response.headers["x-filter"]) == 60_000


BOMB = b" " * 2**20


@pytest.mark.parametrize(
    ("script", "fault"),
    [
        (["reset"], "disconnected"),
        ([reply(BOMB, zipped=True)], "too_large"),
        ([STREAM, *[chunk(BOMB[:60_000])] * 3, "hang"], "too_large"),
    ],
)
async def test_faults_of_a_response(
    provider: Upstream, script: Script, fault: Fault
) -> None:
    """A connection that is reset, and a body that is too large, decompressed or without an end, are errors."""
    provider.answers(script)
    assert await fault_of(provider.url, max_bytes=100_000) == fault


async def test_faults_of_a_connection() -> None:
    """An unknown host and a closed port are told apart."""
    assert await fault_of("http://no-such-host.invalid/") == "dns"
    async with upstream() as closed:
        pass
    assert await fault_of(closed.url) == "connect"


class Silent(Upstream):
    """A server that accepts a connection, and lets an hour pass in place of the TLS handshake."""

    async def serve(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        await reader.read(1)
        pass_time()
        await reader.read()


async def test_a_silent_handshake() -> None:
    """The time to connect includes the TLS handshake."""
    async with upstream(serving=Silent("https")) as silent:
        assert (
            await fault_of(
                silent.url,
                timeouts=Timeouts(connect=HOUR / 2),
                first_byte=math.inf,
            )
            == "connect_timeout"
        )
        await silent.quiet()


async def test_a_silence_within_a_response(provider: Upstream) -> None:
    """The time between two pieces of a response is limited by itself."""
    provider.answers([STREAM, chunk(b"half"), "hang"])
    timeouts = Timeouts(idle=HOUR / 2)

    async def read_two_pieces() -> None:
        async with http.send(
            provider.url,
            b"{}",
            {},
            timeouts,
            first_byte=math.inf,
            max_bytes=100,
        ) as response:
            await response.read_chunk()
            asyncio.get_running_loop().call_soon(pass_time)
            await response.read_chunk()

    with pytest.raises(TransportError) as caught:
        await read_two_pieces()
    assert caught.value.fault == "timeout"
    await provider.quiet()


async def test_a_timeout_of_the_caller_is_its_own(provider: Upstream) -> None:
    """A TimeoutError that the code around a response raises is not taken for one of the request."""
    provider.answers(OK)
    with pytest.raises(TimeoutError, match="mine"):
        async with http.send(
            provider.url, b"", {}, LIMITS, first_byte=30.0, max_bytes=100
        ):
            raise TimeoutError("mine")


# --- TLS


CERTIFICATES: dict[str, tuple[dict[str, Any], str, str]] = {
    "self-signed": ({}, "", "SSL_CERT_FILE"),
    "has expired": ({"expired": True}, "server.pem", "clock"),
    "not valid for '127.0.0.1'": (
        {"host": x509.IPAddress(ip_address("10.0.0.1"))},
        "server.pem",
        "base_url",
    ),
    "not valid for 'localhost'": (
        {"host": x509.DNSName("example.com")},
        "server.pem",
        "base_url",
    ),
    "missing.pem' (SSL_CERT_FILE): No such file": (
        {},
        "missing.pem",
        "SSL_CERT_FILE",
    ),
    "key.pem' (SSL_CERT_FILE)": ({}, "key.pem", "SSL_CERT_FILE"),
}


@pytest.mark.parametrize("reason", CERTIFICATES)
async def test_faults_of_certificates(
    reason: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is wrong with a certificate or a file of authorities is named, with the setting that mends it."""
    options, trusted, setting = CERTIFICATES[reason]
    monkeypatch.setenv(
        "SSL_CERT_FILE", str(tmp_path / trusted) if trusted else ""
    )
    async with upstream(server_context(tmp_path, **options)) as server:
        url = (
            server.url.replace("127.0.0.1", "localhost")
            if "localhost" in reason
            else server.url
        )
        with pytest.raises(errors.ModelConnectionError) as caught:
            await Agent("a", "", "openai/m", api_key="key", base_url=url).arun(
                "Hello?"
            )
        with pytest.raises(errors.RemoteConnectionError) as remote:
            await Remote("far", url).arun("Hello?")
    assert reason in caught.value.message
    assert setting in caught.value.suggestion
    assert not caught.value.transient
    assert remote.value.suggestion == caught.value.suggestion


# --- proxies


@pytest.mark.parametrize("trusted", ["true", "false", ""])
async def test_proxies_of_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, trusted: str
) -> None:
    """With PODWRIGHT_TRUST_ENV requests go through HTTPS_PROXY, except to hosts of NO_PROXY; else they do not."""
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "server.pem"))
    monkeypatch.setenv("PODWRIGHT_TRUST_ENV", trusted)
    tls = server_context(tmp_path)
    async with upstream(tls) as server, upstream(serving=Proxy()) as between:
        server.answers(OK)
        set_proxy(monkeypatch, f"http://127.0.0.1:{between.port}")
        assert await send(server.url) == b'{"ok": true}'
        expected = (
            [f"CONNECT 127.0.0.1:{server.port} HTTP/1.1"]
            if trusted == "true"
            else []
        )
        assert [headers[":line"] for headers in between.headers] == expected
    async with upstream(tls) as server:
        server.answers(OK)
        monkeypatch.setenv("NO_PROXY", "127.0.0.1")
        assert await send(server.url) == b'{"ok": true}'


async def test_a_proxy_that_refuses(
    provider: Upstream, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A proxy that refuses to connect is a failed connection, not a response of the server."""
    provider.answers([reply(b"", 407)])
    monkeypatch.setenv("PODWRIGHT_TRUST_ENV", "true")
    proxy = f"http://127.0.0.1:{provider.port}"
    set_proxy(monkeypatch, proxy)
    with pytest.raises(TransportError) as caught:
        await send("https://server.invalid/")
    assert caught.value.fault == "connect"
    assert f"through the proxy {proxy}" in str(caught.value)
    assert "407" in str(caught.value)


@pytest.mark.parametrize(
    ("scripts", "fault"),
    [([["close"]], "disconnected"), ([[b"hello"]], "not_http")],
)
async def test_errors_name_the_proxy(
    provider: Upstream,
    monkeypatch: pytest.MonkeyPatch,
    scripts: list[Script],
    fault: str,
) -> None:
    """The error of a request that went through a proxy has the address of the proxy, and not its password."""
    provider.answers(*scripts)
    monkeypatch.setenv("PODWRIGHT_TRUST_ENV", "true")
    address = f"127.0.0.1:{provider.port}"
    for name in ("HTTP_PROXY", "http_proxy"):
        monkeypatch.setenv(name, f"http://ann:secret@{address}")
    with pytest.raises(TransportError) as caught:
        await send("http://server.invalid/")
    assert caught.value.fault == fault
    assert f"through the proxy http://{address}" in str(caught.value)
    assert "secret" not in str(caught.value)


async def test_a_proxy_that_cannot_be_reached(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What cannot be reached is the proxy, and the error says so."""
    monkeypatch.setenv("PODWRIGHT_TRUST_ENV", "true")
    for proxy, fault in (
        ("http://127.0.0.1:9", "connect"),
        ("http://proxy.invalid:3128", "dns"),
    ):
        set_proxy(monkeypatch, proxy)
        with pytest.raises(TransportError) as caught:
            await send("https://server.example/")
        assert caught.value.fault == fault
        assert f"through the proxy {proxy}: it" in str(caught.value)


async def test_a_proxy_that_is_not_a_url(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The error names the variable, and neither it nor a cause has a part of the password."""
    monkeypatch.setenv("PODWRIGHT_TRUST_ENV", "true")
    set_proxy(monkeypatch, "http://ann:secret#x@127.0.0.1:9")
    for url in ("https://server.example/", "http://server.example/"):
        with pytest.raises(TransportError) as caught:
            await send(url)
        text = "".join(traceback.format_exception(caught.value))
        assert "HTTPS_PROXY" in text
        assert "'secret" not in text


async def test_a_refusal_through_a_proxy(
    provider: Upstream, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The status of a response that came through a proxy may be that of the proxy, so the error names it."""
    provider.answers([reply(b"Forbidden", 403)])
    monkeypatch.setenv("PODWRIGHT_TRUST_ENV", "true")
    proxy = f"http://127.0.0.1:{provider.port}"
    for name in ("HTTP_PROXY", "http_proxy"):
        monkeypatch.setenv(name, proxy)
    with pytest.raises(errors.ModelError) as caught:
        await Agent(
            "a", "Help.", "openai/x", base_url="http://models.invalid"
        ).arun("Hello?")
    expected = f"answered 403 through the proxy {proxy}"
    assert expected in caught.value.message


@pytest.mark.parametrize(
    ("variable", "value", "named", "by_litellm"),
    [
        ("https_proxy", "http://u:s@p:1", "http://p:1", "http://p:1"),
        ("https_proxy", "https://p:1", None, "https://p:1"),
        ("https_proxy", "p:1", None, "http://p:1"),
        ("all_proxy", "http://p:1", None, "http://p:1"),
        ("http_proxy", "http://p:1", None, None),
    ],
)
def test_the_proxy_that_a_client_uses(
    monkeypatch: pytest.MonkeyPatch,
    variable: str,
    value: str,
    named: str | None,
    by_litellm: str | None,
) -> None:
    """LiteLLM chooses the proxy of a request in another way than aiohttp; errors name what the client has chosen."""
    for name in ("http_proxy", "https_proxy", "all_proxy", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)
    monkeypatch.setenv("PODWRIGHT_TRUST_ENV", "true")
    monkeypatch.setenv(variable, value)
    url = "https://models.example/v1"
    assert environment_proxy(url) == named
    assert environment_proxy_of_litellm(url) == by_litellm
    monkeypatch.setenv("no_proxy", "models.example")
    assert environment_proxy_of_litellm(url) is None


async def test_remotes_use_no_proxy_of_the_environment(
    provider: Upstream, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A proxy of the environment gets no call of a remote component, and so not its key, although it is trusted."""
    provider.answers([reply(b"", 500)])
    monkeypatch.setenv("PODWRIGHT_TRUST_ENV", "true")
    async with upstream(serving=Proxy()) as between:
        for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY"):
            monkeypatch.setenv(name, between.url)
        remote = Remote("far", provider.url, api_key="a-key")
        with pytest.raises(errors.RemoteUnavailableError) as caught:
            await remote.arun("Hello?")
        assert not between.headers
        assert "proxy" not in caught.value.message
    assert provider.headers[0]["authorization"] == "Bearer a-key"


async def test_a_remote_with_a_proxy_of_its_own(
    provider: Upstream, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A proxy that is named gets the calls of its remote, with its password, whatever the environment says."""
    provider.answers([reply(b"", 500)])
    monkeypatch.setenv("no_proxy", "*")
    address = f"127.0.0.1:{provider.port}"
    remote = Remote(
        "far", "http://far.invalid:8000", proxy=f"http://ann:secret@{address}"
    )
    with pytest.raises(errors.RemoteUnavailableError) as caught:
        await remote.arun("Hello?")
    expected = f"answered 500 through the proxy http://{address}"
    assert expected in caught.value.message
    assert "secret" not in caught.value.message
    (sent, *_) = provider.headers
    assert sent[":line"] == "POST http://far.invalid:8000/run/stream HTTP/1.1"
    assert sent["proxy-authorization"] == "Basic YW5uOnNlY3JldA=="


@pytest.mark.parametrize(
    "proxy",
    ["proxy:3128", "socks5://proxy", "http://", "http://p:x", "http://p/a",
     "http://p:1#a"],
)  # fmt: skip
def test_an_invalid_proxy(proxy: str) -> None:
    """An invalid proxy of a remote is refused, and not repeated, because it may have a password."""
    with pytest.raises(errors.ConfigurationError) as caught:
        Remote("far", "http://far.invalid", proxy=proxy)
    assert "proxy of the remote component 'far'" in caught.value.message
    assert proxy not in caught.value.message


# --- event loops and processes

SERVED = """
    import asyncio, gc, os, sys, threading
    from podwright import Agent
    from tests.library.upstream import completion, reply, upstream
    started = threading.Event()
    served = []
    async def serve():
        async with upstream() as serving:
            serving.answers([reply(completion())])
            served.append(serving)
            started.set()
            await asyncio.Event().wait()
    threading.Thread(target=lambda: asyncio.run(serve()), daemon=True).start()
    started.wait()
    agent = Agent(name="a", instructions="", model="openai/gpt-4o", api_key="k", base_url=served[0].url)
"""


def in_a_process(code: str) -> str:
    """What a process prints that may not warn."""
    process = subprocess.run(
        [sys.executable, "-W", "error", "-c", textwrap.dedent(SERVED + code)],
        capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert (process.returncode, process.stderr) == (0, "")
    return process.stdout.strip()


def test_concurrent_first_requests_share_a_session() -> None:
    """The first requests of a loop may begin at once: none of them closes the connections of the others."""
    code = """
    async def first_requests():
        answers = await asyncio.gather(*(agent.arun("Hello?") for _ in range(8)))
        gc.collect()
        return [*answers, await agent.arun("Hello?")]
    print(set(asyncio.run(first_requests())), len(served[0].requests))
    """
    assert in_a_process(code) == "{'Hi.'} 9"


def test_certificates_are_loaded_in_a_thread() -> None:
    """That reads a large file, once for a loop; the loop goes on meanwhile."""
    code = """
    import aiohttp, ssl, threading  # aiohttp has a context of its own
    load = ssl.create_default_context
    threads = []
    def watched(*arguments, **options):
        threads.append(threading.current_thread())
        return load(*arguments, **options)
    ssl.create_default_context = watched
    async def first_requests():
        await asyncio.gather(*(agent.arun("Hello?") for _ in range(8)))
    asyncio.run(first_requests())
    print([thread is threading.main_thread() for thread in threads])
    """
    assert in_a_process(code) == "[False]"


def test_sessions_end_with_their_loops() -> None:
    """Each loop has its own connections, which are closed with it, as those of the background loop are at the exit."""
    code = """
    for _ in range(3):
        assert asyncio.run(agent.arun("Hello?")) == "Hi."
    assert agent.run("Hello?") == "Hi." == agent.run("Hello?")
    gc.collect()
    print(served[0].connections)
    """
    assert in_a_process(code) == "4"


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
def test_a_forked_process_has_connections_of_its_own() -> None:
    """After a fork, parent and child go on without disturbing each other's connections."""
    code = """
    assert agent.run("Hello?") == "Hi."
    child = os.fork()
    if not child:
        os._exit(0 if agent.run("Hello?") == "Hi." else 1)
    assert agent.run("Hello?") == "Hi."
    assert os.waitpid(child, 0)[1] == 0
    assert agent.run("Hello?") == "Hi."
    print(served[0].connections)
    """
    assert in_a_process(code) == "2"


# --- server-sent events and URLs


def test_events_are_parsed_wherever_they_are_cut() -> None:
    """Comments, names, several data lines, CRLF, a byte order mark and a missing end are read as the standard says."""
    text = b"\xef\xbb\xbf: hi\r\nevent: x\r\nid: 3\ndata:a\ndata: b\r\ndata:  c\r\n\r\n\n"
    text += b": keep-alive\n\ndata\n\ndata: d"
    for size in range(1, len(text) + 1):
        parser = EventParser()
        pieces = [
            text[start : start + size] for start in range(0, len(text), size)
        ]
        events = [event for piece in pieces for event in parser.feed(piece)]
        assert [*events, *parser.close()] == [
            ("x", b"a\nb\n c"),
            ("", b""),
            ("", b"d"),
        ]


def test_a_pending_event_has_a_size() -> None:
    """The bytes of an event without an end can be limited."""
    parser = EventParser()
    for _ in range(3):
        assert not list(parser.feed(b"data: 123\ndata: 45"))
    assert parser.pending > 20


@pytest.mark.parametrize(
    "url",
    ["http://h", "https://h:8080/a/b", "http://[::1]:80", "http://1.2.3.4/v1/"],
)
def test_a_path_follows_a_base_url(url: str) -> None:
    """The path is appended with one slash."""
    assert join_url(url, "/x") == url.rstrip("/") + "/x"


@pytest.mark.parametrize(
    "url",
    ["", "host/v1", "ftp://host/v1", "https://", "https://me:sk-secret@host/v1", "http://[/", "https://h/v1?key=sk-secret",
     "http://h#a", "http://h:x", "http://h:0", "http://h\\a", "http://a b", "http://h\r\nx: y"],
)  # fmt: skip
def test_an_invalid_base_url_is_refused_and_not_shown(url: str) -> None:
    """Only an http or https URL without user, query and fragment can be a base URL."""
    with pytest.raises(ValueError) as caught:  # noqa: PT011 - the message is asserted
        join_url(url, "/x")
    assert "sk-secret" not in str(caught.value)
