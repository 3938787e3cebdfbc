"""API keys: their scopes, and their file."""

from __future__ import annotations

import json
import logging
import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.service.support import INLINE, Serve, check_problem, connect, until

from podwright import Agent
from podwright.errors import ConfigurationError
from podwright_service.auth import ApiKeys
from podwright_service.settings import read_settings

ALL = "all-0123456789abcdef"
RUN = "run-0123456789abcdef"
READ = "read-0123456789abcdef=="
KEYS = f"{ALL}, run:{RUN}, read+blueprint:{READ}"
ROUTES: dict[str, tuple[str, Any, str]] = {
    "/run": ("POST", {"input": "x"}, "run"),
    "/run/stream": ("POST", {"input": "x"}, "run"),
    "/run-blueprint": ("POST", {**INLINE, "input": "x"}, "blueprint"),
    "/validate-blueprint": ("POST", INLINE, "blueprint"),
    "/info": ("GET", None, "read"),
    "/metrics": ("GET", None, "read"),
    "/openapi.json": ("GET", None, "read"),
}


def echo() -> Agent:
    return Agent("a", "Do.", "offline/echo")


def bearer(key: str) -> dict[str, str]:
    return {"authorization": f"Bearer {key}"}


def check_denied(response: httpx.Response, status: int, code: str, challenge: str) -> None:
    check_problem(response, status, code)
    header = response.headers["www-authenticate"]
    assert header.startswith('Bearer realm="podwright"')
    assert challenge in header
    assert not any(key in response.text + str(response.headers) for key in (ALL, RUN, READ))


@pytest.mark.parametrize(("path", "asked"), ROUTES.items(), ids=ROUTES)
def test_each_route_needs_a_key_for_its_scope(serve: Serve, path: str, asked: tuple[str, Any, str]) -> None:
    """Without a key or with a wrong one it is a 401, with a key for something else a 403."""
    method, body, scope = asked
    client = serve(echo(), api_keys=KEYS)

    def ask(headers: dict[str, str]) -> httpx.Response:
        return client.request(method, path, json=body, headers=headers)

    check_denied(ask({}), 401, "key_required", "")
    check_denied(ask(bearer(ALL[:-1])), 401, "key_required", 'error="invalid_token"')
    check_denied(ask(bearer(ALL + "a")), 401, "key_required", 'error="invalid_token"')
    assert ask(bearer(ALL)).status_code == 200
    for key, scopes in ((RUN, {"run"}), (READ, {"read", "blueprint"})):
        if scope in scopes:
            assert ask(bearer(key)).status_code == 200
        else:
            check_denied(ask(bearer(key)), 403, "scope_missing", f'scope="{scope}"')


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
    check_denied(answer, 401, "key_required", "")


def test_the_scheme_has_no_case(serve: Serve) -> None:
    """`bearer` is as good as `Bearer`."""
    assert serve(echo(), api_keys=KEYS).get("/info", headers={"authorization": f"bEARER  {ALL}"}).status_code == 200


def test_probes_and_the_page_are_open(serve: Serve) -> None:
    """The probes and the API page with its files need no key; every other path does, even if it does not exist."""
    client = serve(echo(), api_keys=KEYS)
    for path in ("/health", "/ready", "/docs", "/docs/static/swagger-ui.css"):
        assert client.get(path).status_code == 200
    assert client.head("/health").status_code == 200
    for path in ("/nowhere", "/health/", "//health", "/run/", "/redoc", "/%64ocs2"):
        assert client.get(path).status_code == 401, path
    assert client.get("/nowhere", headers=bearer(RUN)).status_code == 404


def test_a_refusal_comes_before_the_body(serve: Serve) -> None:
    """A request without a key is refused while its body is still on its way."""
    with connect(serve(echo(), api_keys=KEYS), "/run", b"", "content-length: 1000000") as connection:
        assert connection.recv(65536).startswith(b"HTTP/1.1 401 ")


def test_a_host_header_opens_nothing(serve: Serve) -> None:
    """The path that is asked for counts, whatever the other headers make of it."""
    client = serve(echo(), api_keys=KEYS)
    for host in ("x/health?", "x/docs#", "[", ""):
        assert client.get("/info", headers={"host": host}).status_code == 401
        assert client.get("/info", headers={"host": host, **bearer(ALL)}).status_code == 200


def replace(path: Path, text: str) -> None:
    """Replace a file in one step, as Kubernetes does it."""
    new = path.with_suffix(".new")
    new.write_text(text)
    new.replace(path)


def test_keys_are_rotated_without_a_restart(serve: Serve, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A changed file counts within seconds; an invalid or missing one is logged and changes nothing."""
    path, first, second = tmp_path / "keys", "first-0123456789abcdef", "second-0123456789abcdef"
    path.write_text(f"# ours\n\n  {first}  \nrun:{RUN}\n")
    client = serve(echo(), api_keys=ALL, api_keys_file=str(path))

    def status(key: str) -> int:
        return client.get("/info", headers=bearer(key)).status_code

    assert [status(key) for key in (first, ALL, RUN, second)] == [200, 200, 403, 401]
    replace(path, f"{first}\n{second}\n")
    until(lambda: status(second) == 200)
    assert status(first) == 200
    replace(path, f"{second}\n")
    until(lambda: status(first) == 401)
    for mistake in ("", "# nothing\n", "short\n", "rum:" + ALL, None):
        caplog.clear()
        if mistake is None:
            path.unlink()
        else:
            replace(path, mistake)
        until(
            lambda: status(second) == 200 and [record for record in caplog.records if record.levelno == logging.ERROR]
        )
    replace(path, f"{first}\n")
    until(lambda: status(first) == 200)
    assert status(second) == 401


def fifo(path: Path) -> str:
    os.mkfifo(path)
    return str(path)


def written(path: Path, data: bytes) -> str:
    path.write_bytes(data)
    return str(path)


SECRET = "s3cret-part-of-a-key"
INVALID: dict[str, tuple[Callable[[Path], dict[str, str]], str]] = {
    "a misspelt scope": (lambda at: {"api_keys": f"{ALL},rum:{SECRET}"}, "Entry 2 of PODWRIGHT_API_KEYS"),
    "no scope": (lambda at: {"api_keys": f":{SECRET}"}, "Entry 1 of PODWRIGHT_API_KEYS"),
    "a key with a colon": (lambda at: {"api_keys": f"{SECRET}:{SECRET}"}, "Entry 1 of PODWRIGHT_API_KEYS"),
    "a short key": (lambda at: {"api_keys": "s3cret-part"}, "shorter than 16"),
    "a space": (lambda at: {"api_keys": f"{SECRET} {SECRET}"}, "Entry 1 of PODWRIGHT_API_KEYS"),
    "no ASCII": (lambda at: {"api_keys": SECRET + "é"}, "Entry 1 of PODWRIGHT_API_KEYS"),
    "only commas": (lambda at: {"api_keys": " , ,"}, "at least one key"),
    "a missing file": (lambda at: {"api_keys_file": str(at / "nowhere")}, "nowhere"),
    "a pipe": (lambda at: {"api_keys_file": fifo(at / "pipe")}, "pipe"),
    "an empty file": (lambda at: {"api_keys_file": written(at / "keys", b"# none\n")}, "has no keys"),
    "no UTF-8": (lambda at: {"api_keys_file": written(at / "keys", b"\xff" * 20)}, "not UTF-8"),
    "a line": (lambda at: {"api_keys_file": written(at / "keys", f"{ALL}\n\nx y\n".encode())}, "Line 3 of"),
}


@pytest.mark.parametrize(("settings", "text"), INVALID.values(), ids=INVALID)
def test_an_invalid_key_stops_the_start(tmp_path: Path, settings: Callable[[Path], dict[str, str]], text: str) -> None:
    """The error names the place and never the key."""
    with pytest.raises(ConfigurationError) as caught:
        ApiKeys(read_settings(**settings(tmp_path)))
    assert text in str(caught.value)
    assert "s3cret" not in str(caught.value)


def test_the_openapi_document_has_the_scopes(serve: Serve) -> None:
    """With keys, the document has the scheme, each route's scope and both refusals; without, none of them."""
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


def test_keys_are_never_shown(
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
    assert "No API keys" not in output
    for key in (ALL, RUN, READ, wrong):
        assert key not in shown + output


@pytest.mark.parametrize(
    ("host", "workers", "warned"),
    [("0.0.0.0", "1", 1), ("0.0.0.0", "2", 1), ("127.0.0.1", "1", 0), ("localhost", "1", 0)],  # noqa: S104
)
def test_a_service_that_is_open_to_all_logs_a_warning(
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
    assert (begin + output).count('"level":"warning"') == warned
