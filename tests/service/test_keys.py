"""Who may call: keys, their scopes, and their file."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

from podwright import Agent
from podwright.errors import ConfigurationError
from podwright_service.auth import Keys
from podwright_service.settings import Settings, read_settings

Serve = Callable[..., httpx.Client]

ALL = "all-0123456789abcdef"
RUN = "run-0123456789abcdef"
READ = "read-0123456789abcdef=="
KEYS = f"{ALL}, run:{RUN}, read+blueprint:{READ}"
POSTED = {"type": "agent", "blueprint": {"name": "a", "instructions": "Do.", "config": {"model": "offline/echo"}}}
ROUTES: dict[str, tuple[str, Any, str]] = {
    "/run": ("POST", {"input": "x"}, "run"),
    "/run/stream": ("POST", {"input": "x"}, "run"),
    "/run-blueprint": ("POST", {**POSTED, "input": "x"}, "blueprint"),
    "/validate-blueprint": ("POST", POSTED, "blueprint"),
    "/info": ("GET", None, "read"),
    "/metrics": ("GET", None, "read"),
    "/openapi.json": ("GET", None, "read"),
}


def echo() -> Agent:
    return Agent("a", "Do.", "offline/echo")


def bearer(key: str) -> dict[str, str]:
    return {"authorization": f"Bearer {key}"}


def check(response: httpx.Response, status: int, code: str, why: str) -> None:
    assert response.status_code == status, response.text
    assert response.headers["content-type"] == "application/problem+json"
    assert response.json()["code"] == code
    challenge = response.headers["www-authenticate"]
    assert challenge.startswith('Bearer realm="podwright"')
    assert why in challenge
    for key in (ALL, RUN, READ):
        assert key not in response.text + str(response.headers)


@pytest.mark.parametrize(("path", "asked"), ROUTES.items(), ids=ROUTES)
def test_each_route_needs_a_key_for_its_scope(serve: Serve, path: str, asked: tuple[str, Any, str]) -> None:
    """Without a key or with a wrong one it is a 401, with a key for something else a 403."""
    method, body, scope = asked
    client = serve(echo(), api_keys=KEYS)

    def ask(headers: dict[str, str]) -> httpx.Response:
        return client.request(method, path, json=body, headers=headers)

    check(ask({}), 401, "key_required", "")
    check(ask(bearer(ALL[:-1])), 401, "key_required", 'error="invalid_token"')
    check(ask(bearer(ALL + "a")), 401, "key_required", 'error="invalid_token"')
    assert ask(bearer(ALL)).status_code == 200
    for key, scopes in ((RUN, {"run"}), (READ, {"read", "blueprint"})):
        if scope in scopes:
            assert ask(bearer(key)).status_code == 200
        else:
            check(ask(bearer(key)), 403, "scope_missing", f'scope="{scope}"')


@pytest.mark.parametrize(
    "headers",
    [
        [("authorization", ALL)],
        [("authorization", f"Basic {ALL}")],
        [("authorization", "Bearer")],
        [("authorization", f"Bearer {ALL}"), ("authorization", f"Bearer {ALL}")],
        [("x-api-key", ALL)],
        [("authorization", b"Bearer \xff\xfe")],
    ],
    ids=["no scheme", "another scheme", "nothing", "two", "another header", "no ASCII"],
)
def test_other_ways_to_send_a_key_are_refused(serve: Serve, headers: list[tuple[str, Any]]) -> None:
    """A key is sent in one header, in one way."""
    answer = serve(echo(), api_keys=KEYS).get("/info", headers=httpx.Headers(headers))
    check(answer, 401, "key_required", "")
    assert ("has no API key" in answer.json()["detail"]) == (headers[0][0] != "authorization")


def test_the_scheme_has_no_case(serve: Serve) -> None:
    """`bearer` is as good as `Bearer`."""
    assert serve(echo(), api_keys=KEYS).get("/info", headers={"authorization": f"bEARER  {ALL}"}).status_code == 200


def test_probes_and_the_page_are_open(serve: Serve) -> None:
    """What a kubelet and a browser ask for first needs no key; what does not exist does."""
    client = serve(echo(), api_keys=KEYS)
    for path in ("/health", "/ready", "/docs"):
        assert client.get(path).status_code == 200
    assert client.head("/health").status_code == 200
    for path in ("/nowhere", "/docs/", "/health/", "//health", "/run/", "/redoc", "/%64ocs2"):
        assert client.get(path).status_code == 401, path
    assert client.get("/nowhere", headers=bearer(RUN)).status_code == 404


def test_the_answer_comes_before_the_body(serve: Serve) -> None:
    """A request without a key is refused while its body is still on its way."""
    client = serve(echo(), api_keys=KEYS)
    with socket.create_connection(("127.0.0.1", client.base_url.port or 0), timeout=20) as connection:
        connection.sendall(b"POST /run HTTP/1.1\r\nhost: x\r\ncontent-length: 1000000\r\n\r\n")
        assert connection.recv(65536).startswith(b"HTTP/1.1 401 ")


def test_a_host_header_opens_nothing(serve: Serve) -> None:
    """The path that is asked for counts, whatever the other headers make of it."""
    client = serve(echo(), api_keys=KEYS)
    for host in ("x/health?", "x/docs#", "[", ""):
        assert client.get("/info", headers={"host": host}).status_code == 401
        assert client.get("/info", headers={"host": host, **bearer(ALL)}).status_code == 200


def rewritten(path: Path, text: str) -> None:
    """A file that is replaced at once, as Kubernetes does it."""
    new = path.with_suffix(".new")
    new.write_text(text)
    new.replace(path)


def answers(client: httpx.Client, key: str, status: int) -> None:
    deadline = time.monotonic() + 20
    while (got := client.get("/info", headers=bearer(key)).status_code) != status:
        assert time.monotonic() < deadline, got
        time.sleep(0.05)


def test_keys_are_rotated_without_a_restart(serve: Serve, tmp_path: Path) -> None:
    """A changed file counts within seconds; a faulty, empty or missing one changes nothing."""
    path, first, second = tmp_path / "keys", "first-0123456789abcdef", "second-0123456789abcdef"
    path.write_text(f"# ours\n\n  {first}  \nrun:{RUN}\n")
    client = serve(echo(), api_keys=ALL, api_keys_file=str(path))
    for key, status in ((first, 200), (ALL, 200), (RUN, 403), (second, 401)):
        answers(client, key, status)
    rewritten(path, f"{first}\n{second}\n")
    answers(client, second, 200)
    assert client.get("/info", headers=bearer(first)).status_code == 200
    rewritten(path, f"{second}\n")
    answers(client, first, 401)
    for spoilt in ("", "# nothing\n", "short\n", "rum:" + ALL):
        rewritten(path, spoilt)
        time.sleep(1.1)
        assert client.get("/info", headers=bearer(second)).status_code == 200
    path.unlink()
    time.sleep(1.1)
    assert client.get("/info", headers=bearer(second)).status_code == 200
    rewritten(path, f"{first}\n")
    answers(client, first, 200)
    answers(client, second, 401)


def fifo(path: Path) -> str:
    os.mkfifo(path)
    return str(path)


def written(path: Path, data: bytes) -> str:
    path.write_bytes(data)
    return str(path)


SECRET = "s3cret-part-of-a-key"
WRONG: dict[str, tuple[Callable[[Path], dict[str, str]], str, str]] = {
    "a misspelt scope": (lambda at: {"api_keys": f"{ALL},rum:{SECRET}"}, "Entry 2 of PODWRIGHT_API_KEYS", "'run'"),
    "no scope": (lambda at: {"api_keys": f":{SECRET}"}, "is no scope", "run, blueprint, read"),
    "a key with a colon": (lambda at: {"api_keys": f"{SECRET}:{SECRET}"}, "is no scope", "run, blueprint, read"),
    "a short key": (lambda at: {"api_keys": "s3cret-part"}, "shorter than 16", "openssl"),
    "a space": (lambda at: {"api_keys": f"{SECRET} {SECRET}"}, "cannot carry", "openssl"),
    "no ASCII": (lambda at: {"api_keys": SECRET + "é"}, "cannot carry", "openssl"),
    "only commas": (lambda at: {"api_keys": " , ,"}, "has no key", "PODWRIGHT_API_KEYS"),
    "a missing file": (lambda at: {"api_keys_file": str(at / "nowhere")}, "nowhere", ""),
    "a pipe": (lambda at: {"api_keys_file": fifo(at / "pipe")}, "no regular file", ""),
    "an empty file": (lambda at: {"api_keys_file": written(at / "keys", b"# none\n")}, "has no keys", "openssl"),
    "no UTF-8": (lambda at: {"api_keys_file": written(at / "keys", b"\xff" * 20)}, "not UTF-8", ""),
    "a line": (lambda at: {"api_keys_file": written(at / "keys", f"{ALL}\n\nx y\n".encode())}, "Line 3 of", "openssl"),
}


@pytest.mark.parametrize(("settings", "text", "hint"), WRONG.values(), ids=WRONG)
def test_what_is_no_key_stops_the_start(
    tmp_path: Path, settings: Callable[[Path], dict[str, str]], text: str, hint: str
) -> None:
    """The error names the place and never the key."""
    with pytest.raises(ConfigurationError) as caught:
        Keys(read_settings(**settings(tmp_path)))
    assert text in str(caught.value)
    assert hint in str(caught.value)
    assert "s3cret" not in str(caught.value)


def test_a_caller_has_a_name_that_tells_nothing() -> None:
    """The same key is the same caller, by a short digest; another key is another one."""
    keys = Keys(Settings(api_keys=KEYS))  # pyright: ignore[reportArgumentType] - as the environment gives them
    names = {key: (keys.scopes(key.encode()) or ("", None))[0] for key in (ALL, RUN, READ)}
    assert len(set(names.values())) == 3
    assert all(len(name) == 12 and name not in key for key, name in names.items())
    assert all(key not in repr(vars(keys)) for key in names)


def test_the_document_tells_of_keys(serve: Serve) -> None:
    """With keys, the document has the scheme, each route's scope and both refusals; without, it has none of them."""
    client = serve(echo(), api_keys=KEYS)
    document = client.get("/openapi.json", headers=bearer(ALL)).json()
    assert document["components"]["securitySchemes"] == {"key": {"type": "http", "scheme": "bearer"}}
    for path, operations in document["paths"].items():
        for operation in operations.values():
            if path in ROUTES:
                assert operation["security"] == [{"key": [ROUTES[path][2]]}]
                assert {"401", "403"} <= set(operation["responses"])
            else:
                assert "security" not in operation
                assert not {"401", "403"} & set(operation["responses"])
    assert "securitySchemes" not in serve(echo()).get("/openapi.json").json()["components"]
    assert "401" not in json.dumps(
        list(serve(echo()).get("/openapi.json").json()["paths"]["/run"]["post"]["responses"])
    )


def test_keys_are_shown_nowhere(
    command: Callable[..., subprocess.Popen[str]], address: Callable[[subprocess.Popen[str]], str], newsroom: Path
) -> None:
    """No answer and no line of the log has a key, right or wrong."""
    process = command(
        "serve", str(newsroom / "writer"), "--port", "0", PODWRIGHT_MODEL="offline/echo", PODWRIGHT_API_KEYS=KEYS
    )
    wrong, shown = "wrong-0123456789abcdef", ""
    with httpx.Client(base_url=address(process)) as client:
        for key in (ALL, RUN, READ, wrong):
            for path, (method, body, _) in ROUTES.items():
                shown += client.request(method, path, json=body, headers=bearer(key)).text
    process.terminate()
    output, _ = process.communicate(timeout=20)
    assert "There are no API keys" not in output
    for key in (ALL, RUN, READ, wrong):
        assert key not in shown + output


@pytest.mark.parametrize(
    ("host", "workers", "warned"),
    [("0.0.0.0", "1", 1), ("0.0.0.0", "2", 1), ("127.0.0.1", "1", 0), ("localhost", "1", 0)],  # noqa: S104
)
def test_a_service_that_is_open_to_all_says_so(
    command: Callable[..., subprocess.Popen[str]],
    address: Callable[[subprocess.Popen[str]], str],
    newsroom: Path,
    host: str,
    workers: str,
    warned: int,
) -> None:
    """Without keys there is one warning, and no other, where others than this machine can call."""
    process = command(
        "serve", str(newsroom / "writer"), "--port", "0", "--host", host,
        PODWRIGHT_MODEL="offline/echo", PODWRIGHT_WORKERS=workers,
    )  # fmt: skip
    assert process.stdout is not None
    begin = ""
    while "Started server process" not in begin:
        line = process.stdout.readline()
        assert line, begin
        begin += line
    process.terminate()
    output, _ = process.communicate(timeout=20)
    assert (begin + output).count("There are no API keys") == warned
    assert (begin + output).count('"level":"warning"') == warned
