"""Host names that requests may be for, and web pages of other origins."""

from __future__ import annotations

import socket
from typing import Any

import pytest
from tests.service.support import FaultyAgent, Serve, check_problem

from podwright import Agent

KEY = "a-key-of-some-length"
ORIGIN = "https://app.example.com"
ECHO = Agent("a", "Do.", "offline/echo")
LISTED: dict[str, Any] = {"allowed_hosts": "api.example.com, *.example.net"}
WITH_KEY: dict[str, Any] = {"api_keys": KEY}
NAMES = "localhost:8 127.0.0.1 [::1]:1 [fd00::7]:8000 10.0.0.7:8000 a.localhost replicas writer.agents.svc:8000 "
NAMES += "writer.agents.svc.cluster.local host.docker.internal"
"""What is always allowed: loopback names, addresses, names without a dot, and those of a cluster."""
EVIL = "evil.example localhost.evil.example 127.0.0.1.evil.example writer.agents.svc.evil.example x.internal.example"
CASES: dict[str, tuple[dict[str, Any], str, str, str]] = {
    "in a container": ({}, "/info", NAMES, EVIL),
    "on loopback": ({"host": "127.0.0.1"}, "/info", NAMES, EVIL),
    "with a key": (WITH_KEY, "/docs", f"{NAMES} {EVIL}", ""),
    "with a key, listed": (
        {**WITH_KEY, **LISTED},
        "/docs",
        f"{NAMES} api.example.com",
        EVIL,
    ),
    "listed": (
        LISTED,
        "/info",
        f"{NAMES} API.example.com:8 a.example.net",
        f"{EVIL} example.net api.example.co",
    ),
    "all": ({"allowed_hosts": "*"}, "/info", f"{NAMES} {EVIL}", ""),
    "a probe": (LISTED, "/ready", f"{NAMES} {EVIL}", ""),
    "a scrape": (LISTED, "/metrics", NAMES, EVIL),
}


@pytest.mark.parametrize(
    ("settings", "path", "allowed", "refused"), CASES.values(), ids=CASES
)
def test_hosts(
    serve: Serve,
    settings: dict[str, Any],
    path: str,
    allowed: str,
    refused: str,
) -> None:
    """Requests for allowed hosts are served, those for others are a 400."""
    client = serve(ECHO, **settings)
    for host in allowed.split():
        assert client.get(path, headers={"host": host}).status_code == 200, host
    for host in refused.split():
        assert (
            host
            in check_problem(
                client.get(path, headers={"host": host}), 400, "host_invalid"
            )["detail"]
        )


def test_exactly_one_host(serve: Serve) -> None:
    """A request without `Host`, or with two, is a 400; only HTTP/1.0 does not need it."""
    url = serve(ECHO).base_url
    for lines, status in (
        ("1.1", "400"),
        ("1.1\r\nhost: a\r\nhost: a", "400"),
        ("1.0", "200"),
    ):
        with socket.create_connection(
            (url.host, url.port or 80), timeout=60
        ) as connection:
            connection.sendall(
                f"GET /health HTTP/{lines}\r\nconnection: close\r\n\r\n".encode()
            )
            assert connection.makefile().readline().split()[1] == status


def test_pages_of_an_allowed_origin(serve: Serve) -> None:
    """A preflight request needs no key, and a page may read the headers of responses, and problems."""
    client = serve(
        FaultyAgent("a", "Do.", "offline/echo"),
        api_keys=KEY,
        cors_origins=ORIGIN,
    )
    names = "authorization, content-type, idempotency-key, podwright-budget, podwright-hops, traceparent"
    asked = {
        "access-control-request-method": "POST",
        "access-control-request-headers": names,
    }
    preflight = client.options("/run", headers={"origin": ORIGIN, **asked})
    assert (
        preflight.status_code,
        preflight.headers["access-control-allow-headers"],
    ) == (
        200,
        names,
    )
    for headers, status, code in (
        ({}, 401, "key_required"),
        ({"authorization": f"Bearer {KEY}"}, 500, "internal_error"),
    ):
        response = client.post(
            "/run", json={"input": "x"}, headers={"origin": ORIGIN, **headers}
        )
        check_problem(response, status, code)
        assert response.headers["access-control-allow-origin"] == ORIGIN
        assert (
            "podwright-run-id, podwright-usage"
            in response.headers["access-control-expose-headers"].lower()
        )


def test_pages_of_other_origins(serve: Serve) -> None:
    """By default, pages of other origins may read nothing."""
    assert (
        "access-control-allow-origin"
        not in serve(ECHO).get("/info", headers={"origin": ORIGIN}).headers
    )


def test_a_page_cannot_cancel_a_run(serve: Serve, sqlite_database: str) -> None:
    """Routes that take no body refuse what a page of another origin may send without asking: no browser would."""
    client = serve(ECHO, runs_database=sqlite_database, cors_origins=ORIGIN)
    url = f"/runs/{'0' * 32}"
    own = f"http://{client.base_url.netloc.decode()}"
    for headers, status in (
        (
            {"origin": "https://evil.example", "sec-fetch-site": "cross-site"},
            403,
        ),
        ({"origin": "null"}, 403),
        ({"origin": "http://127.0.0.1:1", "sec-fetch-site": "same-site"}, 403),
        ({"sec-fetch-site": "cross-site"}, 403),
        ({"origin": ORIGIN, "sec-fetch-site": "cross-site"}, 404),
        ({"origin": own, "sec-fetch-site": "same-origin"}, 404),
        ({"sec-fetch-site": "none"}, 404),
        ({}, 404),
    ):
        for action in ("cancel", "resume"):
            response = client.post(f"{url}/{action}", headers=headers)
            check_problem(
                response,
                status,
                {403: "origin_refused", 404: "run_not_found"}[status],
            )
    assert (
        client.post(
            f"{url}/approve",
            content="{}",
            headers={"content-type": "text/plain"},
        ).status_code
        == 415
    )
