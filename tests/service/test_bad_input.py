"""Invalid requests: each is a problem, and none is a server error."""

from __future__ import annotations

import contextlib
import gzip
import json
import re
import socket
from pathlib import Path
from typing import Any

import pytest
from tests.service.support import Example, check_problem, connect, pointers

import podwright_service

JSON = {"content-type": "application/json"}

INVALID_JSON = {
    "nothing": b"",
    "half an object": b'{"input": ',
    "NaN": b'{"inputs": {"a": NaN}}',
    "1e400": b'{"inputs": {"a": [1, 1e400]}}',
    "a number of 5000 digits": b'{"inputs": {"a": ' + b"9" * 5000 + b"}}",
    "a lone surrogate": b'{"input": "\\ud800"}',
    "not UTF-8": b'{"input": "\xff"}',
    "UTF-16": '{"input": "x"}'.encode("utf-16"),
    "100000 levels": b"[" * 100_000,
    "two values": b'{"input": "x"} {"input": "y"}',
}


@pytest.mark.parametrize(
    "route",
    [
        "/run",
        "/run/stream",
        "/run-blueprint",
        "/validate-blueprint",
        "/estimate",
        "/estimate-blueprint",
    ],
)
@pytest.mark.parametrize("body", INVALID_JSON.values(), ids=INVALID_JSON)
def test_invalid_json_is_rejected(
    example: Example, route: str, body: bytes
) -> None:
    """A body that is not valid JSON is a 400, on every route."""
    check_problem(
        example("writer").post(route, content=body, headers=JSON),
        400,
        "json_invalid",
    )


@pytest.mark.parametrize("name", ["writer", "newsroom"])
@pytest.mark.parametrize("levels", [100, 1000])
def test_deep_json_is_not_a_server_error(
    example: Example, name: str, levels: int
) -> None:
    """Deeply nested JSON is either run or rejected."""
    body = b'{"inputs": {"input": ' + b"[" * levels + b"]" * levels + b"}}"
    assert example(name).post(
        "/run", content=body, headers=JSON
    ).status_code in (
        200,
        422,
    )


RUN_SHAPES: dict[str, tuple[Any, str]] = {
    "an array": ([], ""),
    "a string": ("the moon", ""),
    "null": (None, ""),
    "neither form": ({}, ""),
    "both forms": ({"input": "a", "inputs": {"b": 1}}, ""),
    "a number": ({"input": 1}, "/input"),
    "null input": ({"input": None}, "/input"),
    "an array of inputs": ({"inputs": ["a"]}, "/inputs"),
    "no inputs": ({"inputs": {}}, "/inputs"),
    "an unknown key": ({"input": "a", "stream": True}, "/stream"),
    "a key with a slash": ({"input": "a", "a/b~c": True}, "/a~1b~0c"),
    "steps for an agent": (
        {"inputs": {"a": 1}, "start_step": 0},
        "/start_step",
    ),
    "a negative step": ({"inputs": {"a": 1}, "start_step": -1}, "/start_step"),
    "a path of strings": (
        {"inputs": {"a": 1}, "resume_path": ["0"]},
        "/resume_path/0",
    ),
    "a long path": (
        {"inputs": {"a": 1}, "resume_path": [0] * 65},
        "/resume_path",
    ),
}


INLINE_SHAPES: dict[str, tuple[dict[str, Any], str]] = {
    "no blueprint": ({"type": "agent", "input": "a"}, ""),
    "no type": ({"blueprint": {}, "input": "a"}, ""),
    "a wrong type": ({"type": "robot", "blueprint": {}, "input": "a"}, "/type"),
    "an array for a blueprint": (
        {"type": "agent", "blueprint": [], "input": "a"},
        "/blueprint",
    ),
    "an array of agents": (
        {"type": "agent", "blueprint": {}, "agents": [], "input": "a"},
        "/agents",
    ),
    "a string for an agent": (
        {"type": "agent", "blueprint": {}, "agents": {"a": "b"}, "input": "a"},
        "/agents/a",
    ),
    "no input": ({"type": "agent", "blueprint": {}}, ""),
}
SHAPES = {
    "/run": RUN_SHAPES,
    "/run/stream": RUN_SHAPES,
    "/run-blueprint": INLINE_SHAPES,
}


@pytest.mark.parametrize(
    ("route", "body", "pointer"),
    [
        pytest.param(route, *shape, id=f"{route}: {name}")
        for route, shapes in SHAPES.items()
        for name, shape in shapes.items()
    ],
)
def test_a_wrong_shape_is_rejected(
    example: Example, route: str, body: Any, pointer: str
) -> None:
    """A body of the wrong shape is a 422 with the JSON pointer."""
    response = example("writer").post(
        route, content=json.dumps(body), headers=JSON
    )
    assert pointer in pointers(check_problem(response, 422, "request_invalid"))


def test_misspelt_names_get_a_suggestion(example: Example) -> None:
    """The problem of a misspelt key, kind or route suggests the correct name."""
    client = example("writer")
    assert (
        "'input'"
        in client.post("/run", json={"inptu": "x"}).json()["suggestion"]
    )
    body = {"type": "agnet", "blueprint": {}, "input": "a"}
    assert "'agent'" in client.post("/run-blueprint", json=body).text
    assert (
        "'/health'"
        in check_problem(client.get("/heatlh"), 404, "not_found")["suggestion"]
    )


@pytest.mark.parametrize("body", [{"start_step": 9}, {"resume_path": [9, 9]}])
def test_an_unknown_step_is_rejected(
    example: Example, body: dict[str, Any]
) -> None:
    """A workflow's start step and resume path must be those of a step."""
    response = example("newsroom").post(
        "/run", json={"inputs": {"input": "a"}, **body}
    )
    check_problem(response, 422, "resume_path_invalid")


def test_an_invalid_query_parameter_is_rejected(example: Example) -> None:
    """`trace` is true or false."""
    check_problem(
        example("writer").post("/run?trace=maybe", json={"input": "a"}),
        422,
        "request_invalid",
    )


MEDIA_TYPES = {
    "UTF-8": ([("content-type", "Application/JSON; charset=utf-8")], 200),
    "text": ([("content-type", "text/plain")], 415),
    "form": ([("content-type", "application/x-www-form-urlencoded")], 415),
    "empty": ([("content-type", "")], 415),
    "UTF-16": ([("content-type", "application/json; charset=utf-16")], 415),
    "two types": (
        [("content-type", "application/json"), ("content-type", "text/plain")],
        415,
    ),
    "compressed": (
        [("content-type", "application/json"), ("content-encoding", "gzip")],
        415,
    ),
}


@pytest.mark.parametrize(
    ("headers", "status"), MEDIA_TYPES.values(), ids=MEDIA_TYPES
)
def test_the_headers_must_declare_json(
    example: Example, headers: list[tuple[str, str]], status: int
) -> None:
    """A body that is not declared as uncompressed JSON in UTF-8 is a 415."""
    response = example("writer").post(
        "/run", content=b'{"input": "a"}', headers=headers
    )
    assert response.status_code == status
    assert response.json().get("code") == (
        None if status == 200 else "media_type_unsupported"
    )


def test_a_large_body_is_rejected(example: Example) -> None:
    """A body over the limit is a 413, with or without a Content-Length, and the next request is served."""
    client = example("writer")
    body = json.dumps({"input": "x" * (1024 * 1024)}).encode()
    check_problem(
        client.post("/run", content=body, headers=JSON), 413, "body_too_large"
    )
    pieces = (body[at : at + 65536] for at in range(0, len(body), 65536))
    check_problem(
        client.post("/run", content=pieces, headers=JSON), 413, "body_too_large"
    )
    check_problem(
        client.request("PUT", "/run", content=body, headers=JSON),
        413,
        "body_too_large",
    )
    assert client.post("/run", json={"input": "a"}).status_code == 200


def test_a_body_of_many_values_is_rejected(example: Example) -> None:
    """A body with more JSON values than are worth their time is a 413, however few bytes it has; a long text is not."""
    client = example("writer")
    many = b'{"inputs": {"a": [' + b",".join([b"[]"] * 60_000) + b"]}}"
    check_problem(
        client.post("/run", content=many, headers=JSON), 413, "body_too_large"
    )
    text = b'{"input": "' + b"a, [b], {c}: " * 50_000 + b'"}'
    assert client.post("/run", content=text, headers=JSON).status_code == 200


def test_a_compressed_body_is_rejected(example: Example) -> None:
    """A body with a transfer coding besides chunked is a 400, and the next request is served."""
    client = example("writer")
    body = gzip.compress(b'{"input": "x"}')
    chunked = b"%x\r\n%b\r\n0\r\n\r\n" % (len(body), body)
    with connect(
        client, "/run", chunked, "transfer-encoding: gzip, chunked"
    ) as connection:
        answer = connection.recv(4096)
    assert answer.startswith(b"HTTP/1.1 400")
    assert b"header_invalid" in answer
    assert client.post("/run", json={"input": "a"}).status_code == 200


HEAD = b"POST /run HTTP/1.1\r\nhost: localhost\r\n"
CHUNKED = (
    HEAD
    + b"content-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n"
)
ENDLESS = {
    "headers": (HEAD, b"x: y\r\n" * 10_000),
    "one header": (HEAD + b"x: ", b"y" * 60_000),
    "the name of one": (HEAD, b"y" * 60_000),
    "the target": (b"GET /", b"y" * 60_000),
    "lines before the request": (b"", b"\r\n" * 30_000),
    "trailers": (CHUNKED + b"0\r\n", b"x: y\r\n" * 10_000),
    "one trailer": (CHUNKED + b"0\r\nx: ", b"y" * 60_000),
    "the extension of a chunk": (CHUNKED + b"1;", b"y" * 60_000),
}


@pytest.mark.parametrize("name", ENDLESS)
def test_endless_headers_are_rejected(example: Example, name: str) -> None:
    """Without a key, a request of ever more headers is refused after 64 KiB of them, and its connection closed."""
    url = example("writer").base_url
    begin, more = ENDLESS[name]
    with socket.create_connection(
        (url.host, url.port or 80), timeout=60
    ) as connection:
        connection.sendall(begin)
        sent = 0
        with contextlib.suppress(OSError):
            while sent < 64 * 2**20:
                connection.sendall(more)
                sent += len(more)
        assert sent < 64 * 2**20
        answer = b""
        # what was sent after the refusal resets the connection
        with contextlib.suppress(OSError):
            answer = connection.recv(4096)
    assert answer[:12] in (b"", b"HTTP/1.1 431", b"HTTP/1.1 400")
    assert (
        example("writer").post("/run", json={"input": "a"}).status_code == 200
    )


def test_large_headers_are_rejected(example: Example) -> None:
    """A request with complete headers over the limit is a 431 with a problem; 60 KB of them are taken."""
    client = example("writer")
    assert (
        client.post(
            "/run", json={"input": "a"}, headers={"x-large": "y" * 60_000}
        ).status_code
        == 200
    )
    refused = client.post(
        "/run", json={"input": "a"}, headers={"x-large": "y" * 70_000}
    )
    assert (refused.status_code, refused.json()["code"]) == (
        431,
        "headers_too_large",
    )
    assert client.post("/run", json={"input": "a"}).status_code == 200


def test_another_method_is_rejected(example: Example) -> None:
    """Another method is a 405 with the methods of the route."""
    response = example("writer").get("/run")
    check_problem(response, 405, "method_not_allowed")
    assert response.headers["allow"] == "POST"


@pytest.mark.parametrize(
    "body",
    [
        b'{"input": "x"'
        + b"".join(b',"input%d": 1' % n for n in range(49_000))
        + b"}",
        b'{"blueprint": {'
        + b",".join(b'"key%d": 1' % n for n in range(9_000))
        + b'}, "type": "agent", "input": "x"}',
        b'{"blueprint": {"name": "a", "instructions": "", "config": {"model": "offline/echo"'
        + b"".join(b',"key%d": 1' % n for n in range(9_000))
        + b'}}, "type": "agent", "input": "x"}',
    ],
    ids=[
        "unknown keys",
        "unknown keys of a blueprint",
        "unknown keys of its config",
    ],
)
def test_a_body_with_many_mistakes_has_a_short_answer(
    example: Example, body: bytes
) -> None:
    """The problem of a megabyte of small or invalid values is a few kilobytes long."""
    for route in ("/run", "/run-blueprint", "/validate-blueprint"):
        response = example("writer").post(route, content=body, headers=JSON)
        assert (response.status_code, len(response.content) < 16_000) == (
            422,
            True,
        )


def test_every_code_of_the_service_is_documented() -> None:
    """docs/errors.md has a section for each error code of the service."""
    folder = Path(podwright_service.__file__).parent
    code = "\n".join(path.read_text() for path in folder.rglob("*.py"))
    codes = {
        *re.findall(r'RequestError\(\s*\d+,\s*"(\w+)"', code),
        "internal_error",
        "not_found",
        "method_not_allowed",
    }
    documented = set(
        re.findall(
            r"^## (\w+)$",
            (folder.parents[2] / "docs" / "errors.md").read_text(),
            re.MULTILINE,
        )
    )
    assert codes <= documented
    assert {"json_invalid", "body_too_large", "key_required"} <= codes
