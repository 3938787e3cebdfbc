"""API keys: their scopes, and their file."""

from __future__ import annotations

import logging
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest
from starlette.datastructures import Headers
from tests.helpers import NO_AUTHORITIES, until
from tests.service.support import (
    INLINE,
    Address,
    Command,
    Serve,
    check_end,
    check_problem,
    connect,
)

from podwright import Agent
from podwright.errors import ConfigurationError
from podwright_service.http.access.auth import ApiKeys
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
    "/estimate": ("POST", {"input": "x"}, "run"),
    "/estimate-blueprint": ("POST", {**INLINE, "input": "x"}, "blueprint"),
    "/v1/models": ("GET", None, "run"),
    "/v1/models/{model}": ("GET", None, "run"),
    "/v1/chat/completions": (
        "POST",
        {"model": "a", "messages": [{"role": "user", "content": "x"}]},
        "run",
    ),
    "/v1/responses": ("POST", {"model": "a", "input": "x"}, "run"),
    "/info": ("GET", None, "read"),
    "/metrics": ("GET", None, "read"),
    "/openapi.json": ("GET", None, "read"),
}


def echo() -> Agent:
    return Agent("a", "Do.", "offline/echo")


def bearer(key: str) -> dict[str, str]:
    return {"authorization": f"Bearer {key}"}


def check_denied(
    response: httpx.Response, status: int, code: str, challenge: str
) -> None:
    if response.url.path.startswith("/v1/"):
        assert (response.status_code, response.json()["error"]["code"]) == (
            status,
            code,
        )
    else:
        check_problem(response, status, code)
    header = response.headers["www-authenticate"]
    assert header.startswith('Bearer realm="podwright"')
    assert challenge in header
    assert not any(
        key in response.text + str(response.headers) for key in (ALL, RUN, READ)
    )


@pytest.mark.parametrize("end", ["", "%0A"], ids=["", "line break"])
@pytest.mark.parametrize(("path", "route"), ROUTES.items(), ids=ROUTES)
def test_each_route_needs_a_key_for_its_scope(
    serve: Serve, path: str, route: tuple[str, Any, str], end: str
) -> None:
    """Without a valid key it is a 401, with one of another scope a 403; routes match a final line break too."""
    method, body, scope = route
    client = serve(echo(), api_keys=KEYS)

    def request(headers: dict[str, str]) -> httpx.Response:
        target = path.format(model="a") + end
        return client.request(method, target, json=body, headers=headers)

    check_denied(request({}), 401, "key_required", "")
    check_denied(
        request(bearer(ALL[:-1])), 401, "key_required", 'error="invalid_token"'
    )
    check_denied(
        request(bearer(ALL + "a")), 401, "key_required", 'error="invalid_token"'
    )
    assert request(bearer(ALL)).status_code == 200
    for key, scopes in ((RUN, {"run"}), (READ, {"read", "blueprint"})):
        if scope in scopes:
            assert request(bearer(key)).status_code == 200
        else:
            check_denied(
                request(bearer(key)), 403, "scope_missing", f'scope="{scope}"'
            )


SENT: dict[str, tuple[list[tuple[str, Any]], int]] = {
    "any letter case": ([("authorization", f"bEARER  {ALL}")], 200),
    "no scheme": ([("authorization", ALL)], 401),
    "another scheme": ([("authorization", f"Basic {ALL}")], 401),
    "nothing": ([("authorization", "Bearer")], 401),
    "two": (
        [
            ("authorization", f"Bearer {ALL}"),
            ("authorization", f"Bearer {ALL}"),
        ],
        401,
    ),
    "another header": ([("x-api-key", ALL)], 401),
    "no ASCII": ([("authorization", b"Bearer \xff\xfe")], 401),
}


@pytest.mark.parametrize(("headers", "status"), SENT.values(), ids=SENT)
def test_a_key_is_one_bearer_token(
    serve: Serve, headers: list[tuple[str, Any]], status: int
) -> None:
    """A key is accepted as one bearer token in one header only."""
    response = serve(echo(), api_keys=KEYS).get(
        "/info", headers=httpx.Headers(headers)
    )
    assert response.status_code == status
    if status == 401:
        check_denied(response, 401, "key_required", "")


def test_probes_and_the_api_page_need_no_key(serve: Serve) -> None:
    """The probes and the API page with its files need no key; every other path does, even an unknown one."""
    client = serve(echo(), api_keys=KEYS)
    for path in ("/health", "/ready", "/docs", "/docs/static/swagger-ui.css"):
        assert client.get(path).status_code == 200
    assert client.head("/health").status_code == 200
    for path in (
        "/nowhere",
        "/health/",
        "//health",
        "/run/",
        "/redoc",
        "/%64ocs2",
    ):
        assert client.get(path).status_code == 401, path
    assert client.get("/nowhere", headers=bearer(RUN)).status_code == 404


def test_a_request_is_rejected_before_its_body_arrives(serve: Serve) -> None:
    """A request without a key is rejected before its body has arrived."""
    with connect(
        serve(echo(), api_keys=KEYS), "/run", b"", "content-length: 1000000"
    ) as connection:
        assert connection.recv(65536).startswith(b"HTTP/1.1 401 ")


def test_a_host_header_does_not_change_the_path(serve: Serve) -> None:
    """A `Host` header that looks like the path of a probe does not bypass authentication."""
    client = serve(echo(), api_keys=KEYS)
    for host in ("x/health?", "x/docs#", "[", ""):
        assert client.get("/info", headers={"host": host}).status_code == 401
        assert (
            client.get(
                "/info", headers={"host": host, **bearer(ALL)}
            ).status_code
            == 200
        )


def replace(path: Path, text: str) -> None:
    """Replace a file in one step, as Kubernetes does it."""
    new = path.with_suffix(".new")
    new.write_text(text)
    new.replace(path)


def test_keys_are_rotated_without_a_restart(
    serve: Serve, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A changed file takes effect within seconds; an invalid or missing one is logged and changes nothing."""
    path = tmp_path / "keys"
    first = "first-0123456789abcdef"
    second = "second-0123456789abcdef"
    path.write_text(f"# comment\n\n  {first}  \nrun:{RUN}\n")
    client = serve(echo(), api_keys=ALL, api_keys_file=str(path))

    def status(key: str) -> int:
        return client.get("/info", headers=bearer(key)).status_code

    assert [status(key) for key in (first, ALL, RUN, second)] == [
        200,
        200,
        403,
        401,
    ]
    replace(path, f"{first}\n{second}\n")
    until(lambda: status(second) == 200)
    assert status(first) == 200
    replace(path, f"{second}\n")
    until(lambda: status(first) == 401)
    for mistake in ("# nothing\n", "rum:" + ALL, None):
        caplog.clear()
        if mistake is None:
            path.unlink()
        else:
            replace(path, mistake)
        until(
            lambda: (
                status(second) == 200
                and [
                    record
                    for record in caplog.records
                    if record.levelno == logging.ERROR
                ]
            )
        )
    replace(path, f"{first}\n")
    until(lambda: status(first) == 200)
    assert status(second) == 401


def fifo(path: Path) -> str:
    os.mkfifo(path)
    return str(path)


def write(path: Path, data: bytes) -> str:
    path.write_bytes(data)
    return str(path)


ALL_SCOPES = {
    "run",
    "approve",
    "blueprint",
    "read",
    "runs:all",
    "runs:relay",
    "erase",
}
ENTRIES: dict[str, tuple[str, set[str]]] = {
    "": ("", ALL_SCOPES),
    "run:": ("", {"run"}),
    "run + read:": ("", {"run", "read"}),
    "@alice:": ("alice", ALL_SCOPES),
    "run@alice:": ("alice", {"run"}),
    "run+read@a.b_c-1:": ("a.b_c-1", {"run", "read"}),
    f"run@{'n' * 64}:": ("n" * 64, {"run"}),
    "alice@": ("alice", ALL_SCOPES),
    "alice@run+read:": ("alice", {"run", "read"}),
}
"""Name and scopes of a key, by what is before it."""


@pytest.mark.parametrize(
    ("prefix", "caller"), ENTRIES.items(), ids=[repr(key) for key in ENTRIES]
)
@pytest.mark.parametrize("in_file", [False, True], ids=["setting", "file"])
def test_an_entry_has_scopes_and_a_name(
    tmp_path: Path, prefix: str, caller: tuple[str, set[str]], in_file: bool
) -> None:
    """Both may be left out; the name may come first, as in the first entries with names."""
    settings = {"api_keys": f"run:{RUN},{prefix}{READ}"}
    if in_file:
        path = write(tmp_path / "keys", f"{prefix}{READ}\n".encode())
        settings = {"api_keys_file": path}
    keys = ApiKeys(read_settings(**settings))
    known, _ = keys.authenticate(Headers({"authorization": f"Bearer {READ}"}))
    assert (known.name, set(known.scopes)) == caller


SECRET = "s3cret-part-of-a-key"
INVALID: dict[str, tuple[Callable[[Path], dict[str, str]], str]] = {
    "a misspelt scope": (
        lambda at: {"api_keys": f"{ALL},rum:{SECRET}"},
        "Entry 2 of PODWRIGHT_API_KEYS",
    ),
    "no scope": (
        lambda at: {"api_keys": f":{SECRET}"},
        "Entry 1 of PODWRIGHT_API_KEYS",
    ),
    "a key with a colon": (
        lambda at: {"api_keys": f"{SECRET}:{SECRET}"},
        "Entry 1 of PODWRIGHT_API_KEYS",
    ),
    **{
        f"{prefix!r} before a key": (
            lambda _, prefix=prefix: {"api_keys": f"{ALL},{prefix}{SECRET}"},
            text,
        )
        for prefix, text in {
            "run@s3cret b:": "Entry 2 of PODWRIGHT_API_KEYS has an invalid name",
            "s3cret b@run:": "invalid name",
            "s3cret b@": "invalid name",
            "run@:": "invalid name",
            f"run@{'n' * 65}:": "invalid name",
            "run@alice@example.com:": "unknown scope",
            "@:": "invalid name",
            "@": "invalid name",
            "alice@:": "unknown scope",
            "alice@rum:": "unknown scope",
            "rum@alice:": "unknown scope",
            "run+rum@alice:": "unknown scope",
            "run@read:": "a scope on both sides of its '@'",
            "run@run:": "a scope on both sides",
            "run+read@read:": "a scope on both sides",
            "run@run+read:": "a scope on both sides",
            "@read:": "the name of a scope",
            "read@": "the name of a scope",
            f"run@alice:{SECRET},": "the key of another entry",
            f"@alice:{SECRET},run@": "the name of a scope",
        }.items()
    },
    "a name in a line": (
        lambda at: {
            "api_keys_file": write(at / "keys", f"run@a b:{SECRET}".encode())
        },
        "Line 1 of",
    ),
    "a key of two callers": (
        lambda at: {
            "api_keys": f"run@alice:{SECRET}",
            "api_keys_file": write(at / "keys", f"@bob:{SECRET}".encode()),
        },
        "the key of another entry",
    ),
    "a short key": (lambda at: {"api_keys": "s3cret-part"}, "shorter than 16"),
    "a space": (
        lambda at: {"api_keys": f"{SECRET} {SECRET}"},
        "Entry 1 of PODWRIGHT_API_KEYS",
    ),
    "no ASCII": (
        lambda at: {"api_keys": SECRET + "é"},
        "Entry 1 of PODWRIGHT_API_KEYS",
    ),
    "only commas": (lambda at: {"api_keys": " , ,"}, "at least one key"),
    "a missing file": (
        lambda at: {"api_keys_file": str(at / "nowhere")},
        "nowhere",
    ),
    "a pipe": (lambda at: {"api_keys_file": fifo(at / "pipe")}, "pipe"),
    "an empty file": (
        lambda at: {"api_keys_file": write(at / "keys", b"# none\n")},
        "has no keys",
    ),
    "no UTF-8": (
        lambda at: {"api_keys_file": write(at / "keys", b"\xff" * 20)},
        "not UTF-8",
    ),
    "a line": (
        lambda at: {
            "api_keys_file": write(at / "keys", f"{ALL}\n\nx y\n".encode())
        },
        "Line 3 of",
    ),
}


@pytest.mark.parametrize(("settings", "text"), INVALID.values(), ids=INVALID)
def test_an_invalid_key_stops_the_start(
    tmp_path: Path, settings: Callable[[Path], dict[str, str]], text: str
) -> None:
    """The error names the entry, and never has the key."""
    with pytest.raises(ConfigurationError) as caught:
        ApiKeys(read_settings(**settings(tmp_path)))
    assert text in str(caught.value)
    assert "s3cret" not in str(caught.value)


def test_the_openapi_document_has_the_scopes(serve: Serve) -> None:
    """With keys, the document has the scheme, and each route's scope and errors; without keys, none of them."""
    client = serve(echo(), api_keys=KEYS)
    document = client.get("/openapi.json", headers=bearer(ALL)).json()
    assert document["components"]["securitySchemes"] == {
        "key": {"type": "http", "scheme": "bearer"}
    }
    for path, operations in document["paths"].items():
        for operation in operations.values():
            if path in ROUTES:
                assert operation["security"] == [{"key": [ROUTES[path][2]]}]
                assert {"401", "403"} <= set(operation["responses"])
            else:
                assert "security" not in operation
                assert not {"401", "403"} & set(operation["responses"])
    assert (
        "securitySchemes"
        not in serve(echo()).get("/openapi.json").json()["components"]
    )
    assert (
        "401"
        not in serve(echo())
        .get("/openapi.json")
        .json()["paths"]["/run"]["post"]["responses"]
    )


def test_keys_are_never_shown(
    command: Command, address: Address, newsroom: Path
) -> None:
    """No response and no log line has a key, valid or not."""
    process = command(
        "serve",
        str(newsroom / "writer"),
        "--port",
        "0",
        PODWRIGHT_MODEL="offline/echo",
        PODWRIGHT_API_KEYS=KEYS,
    )
    invalid = "invalid-0123456789abcdef"
    responses = ""
    with httpx.Client(
        verify=NO_AUTHORITIES, base_url=address(process)
    ) as client:
        for key in (ALL, RUN, READ, invalid):
            for path, (method, body, _) in ROUTES.items():
                responses += client.request(
                    method, path, json=body, headers=bearer(key)
                ).text
    process.send_signal(signal.SIGTERM)
    output = check_end(process)
    assert "No API keys" not in output
    for key in (ALL, RUN, READ, invalid):
        assert key not in responses + output


@pytest.mark.parametrize(
    ("host", "workers", "warnings"),
    [("0.0.0.0", "1", 1), ("0.0.0.0", "2", 1), ("localhost", "1", 0)],  # noqa: S104
)
def test_a_service_without_keys_logs_a_warning(
    command: Command, newsroom: Path, host: str, workers: str, warnings: int
) -> None:
    """Without keys there is one warning if the service listens on more than the loopback address."""
    process = command(
        "serve", str(newsroom / "writer"), "--port", "0", "--host", host,
        PODWRIGHT_MODEL="offline/echo", PODWRIGHT_WORKERS=workers,
    )  # fmt: skip
    assert process.stdout is not None
    start = ""
    # gunicorn signals each worker only once
    while start.count("Application startup complete") < int(workers):
        line = process.stdout.readline()
        assert line, start
        start += line
    process.send_signal(signal.SIGTERM)
    output = check_end(process)
    assert (start + output).count('"level":"warning"') == warnings
