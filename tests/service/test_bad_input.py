"""Requests that no client should send: one shape of answer, never a fault of the service."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import ANY

import httpx
import pytest

import podwright_service
from podwright import Agent
from podwright_service import protocol

Example = Callable[[str], httpx.Client]

JSON = {"content-type": "application/json"}


def check(response: httpx.Response, status: int, code: str) -> dict[str, Any]:
    assert response.status_code == status, response.text
    assert response.headers["content-type"] == "application/problem+json"
    problem = response.json()
    assert (problem["status"], problem["code"]) == (status, code)
    assert problem["type"].endswith(f"#{code}")
    assert {"title", "detail", "instance", "suggestion"} <= set(problem)
    assert "Traceback" not in response.text
    return problem


NOT_JSON = {
    "nothing": b"",
    "half an object": b'{"input": ',
    "single quotes": b"{'input': 'x'}",
    "NaN": b'{"inputs": {"a": NaN}}',
    "Infinity": b'{"inputs": {"a": Infinity}}',
    "-Infinity": b'{"inputs": {"a": -Infinity}}',
    "-1e400": b'{"inputs": {"a": -1e400}}',
    "1e400": b'{"inputs": {"a": [1, 1e400]}}',
    "a number of 5000 digits": b'{"inputs": {"a": ' + b"9" * 5000 + b"}}",
    "duplicate keys": b'{"input": "a", "input": "b"}',
    "duplicate keys within": b'{"inputs": {"a": {"b": 1, "b": 2}}}',
    "half a surrogate pair": b'{"input": "\\ud800"}',
    "half a surrogate pair in a key": b'{"inputs": {"\\udfff": 1}}',
    "NUL": b'{"input": "a\\u0000b"}',
    "a raw NUL": b'{"input": "a\x00b"}',
    "not UTF-8": b'{"input": "\xff"}',
    "UTF-16": '{"input": "x"}'.encode("utf-16"),
    "a byte order mark": b"\xef\xbb\xbf{}",
    "33 levels": b'{"inputs": {"a": ' + b"[" * 31 + b"]" * 31 + b"}}",
    "33 levels of objects": b'{"inputs": ' + b'{"a":' * 32 + b"1" + b"}" * 33,
    "100000 levels": b"[" * 100_000,
    "100000 levels of objects": b'{"a":' * 100_000,
    "two values": b'{"input": "x"} {"input": "y"}',
    "a comma too many": b'{"input": "x",}',
    "a comment": b'{"input": "x"} // why',
    "a control character": b'{"input": "a\nb"}'.replace(b"\\n", b"\n"),
}


@pytest.mark.parametrize("route", ["/run", "/run-blueprint", "/validate-blueprint"])
@pytest.mark.parametrize("body", NOT_JSON.values(), ids=NOT_JSON)
def test_what_is_no_json_is_refused(example: Example, route: str, body: bytes) -> None:
    """Anything but sound JSON is a 400, whichever route it is sent to."""
    problem = check(example("writer").post(route, content=body, headers=JSON), 400, "json_invalid")
    assert problem["errors"][0]["detail"]


def test_the_place_in_the_json_is_named(example: Example) -> None:
    """What JSON allows and no component can use is told of with its pointer."""
    response = example("writer").post("/run", content=NOT_JSON["1e400"], headers=JSON)
    assert [error["pointer"] for error in response.json()["errors"]] == ["/inputs/a/1"]


def test_32_levels_are_allowed(example: Example) -> None:
    """JSON as deep as the limit runs."""
    deep = b'{"inputs": {"a": ' + b"[" * 30 + b"]" * 30 + b"}}"
    assert example("writer").post("/run", content=deep, headers=JSON).status_code == 200


SHAPES: dict[str, tuple[Any, str]] = {
    "a list": ([], ""),
    "a text": ("the moon", ""),
    "null": (None, ""),
    "neither form": ({}, ""),
    "both forms": ({"input": "a", "inputs": {"b": 1}}, ""),
    "a number": ({"input": 1}, "/input"),
    "null input": ({"input": None}, "/input"),
    "a list of inputs": ({"inputs": ["a"]}, "/inputs"),
    "no inputs": ({"inputs": {}}, "/inputs"),
    "an unknown key": ({"input": "a", "stream": True}, "/stream"),
    "steps for an agent": ({"inputs": {"a": 1}, "start_step": 0}, "/start_step"),
}


@pytest.mark.parametrize(("body", "pointer"), SHAPES.values(), ids=SHAPES)
def test_a_wrong_shape_is_refused(example: Example, body: Any, pointer: str) -> None:
    """JSON of another shape is a 422 that names the place."""
    response = example("writer").post("/run", content=json.dumps(body), headers=JSON)
    problem = check(response, 422, "request_invalid")
    assert pointer in [error["pointer"] for error in problem["errors"]]


NAMED = 'Named inputs are sent as {"inputs": {…}}. '
TOLD: dict[str, tuple[str, Any, str, str]] = {
    "a number": ("writer", {"input": 7}, "'input' is a number, not a text.", ""),
    "null": ("writer", {"input": None}, "'input' is null, not a text.", ""),
    "a misspelt key": ("writer", {"inptu": "x"}, "neither is there.", "Did you mean 'input'?"),
    "an array": ("writer", ["x"], "the body is an array, not an object.", 'Send {"input": "…"}.'),
    "no inputs": ("writer", {"inputs": {}}, "'inputs' is empty.", "Put something into it."),
    "a key too many": ("writer", {"input": "x", "strem": 1}, "unknown key 'strem'.", NAMED + "Known names: input."),
    "a step": ("writer", {"input": "x", "start_step": 1}, "'start_step' is for workflows, and not for this agent.", ""),
    "a path with a text": (
        "newsroom",
        {"input": "x", "resume_path": [0]},
        "'resume_path' goes with 'inputs', not with 'input'.",
        "Send the problem's 'context' as 'inputs', and its 'resume_path'.",
    ),
    "no index": (
        "newsroom",
        {"inputs": {"a": 1}, "resume_path": ["0"]},
        "'resume_path/0' is a text, not a whole number.",
        "",
    ),
    "before the first": ("newsroom", {"inputs": {"a": 1}, "start_step": -1}, "'start_step' is less than 0.", ""),
    "a long path": (
        "newsroom",
        {"inputs": {"a": 1}, "resume_path": [0] * 65},
        "'resume_path' has more than 64 entries.",
        "",
    ),
}


@pytest.mark.parametrize(("name", "body", "detail", "suggestion"), TOLD.values(), ids=TOLD)
def test_a_problem_says_what_was_sent_and_what_to_send(
    example: Example, name: str, body: Any, detail: str, suggestion: str
) -> None:
    """The words are for who wrote the request: what is there, what should be, and what was probably meant."""
    problem = check(example(name).post("/run", json=body), 422, "request_invalid")
    (error,) = problem["errors"]
    assert (error["detail"][-len(detail) :], error["suggestion"]) == (detail, suggestion)


def test_a_misspelt_kind_is_recognised(example: Example) -> None:
    """A kind that is none is told with the one that was probably meant."""
    body = {"type": "agnet", "blueprint": {}, "input": "a"}
    (error,) = check(example("writer").post("/run-blueprint", json=body), 422, "request_invalid")["errors"]
    assert error["detail"] == "'type' is 'agnet', not 'agent', 'workflow', 'conductor' or 'pipeline'."
    assert error["suggestion"] == "Did you mean 'agent'?"


@pytest.mark.parametrize("route", ["/run", "/run/stream", "/run-blueprint"])
def test_a_misspelt_query_parameter_is_refused(example: Example, route: str) -> None:
    """A parameter that nobody reads is an error with the name that was probably meant."""
    problem = check(example("writer").post(f"{route}?tarce=true", json={"input": "a"}), 422, "request_invalid")
    assert (problem["detail"], problem["suggestion"]) == (
        "Unknown query parameter 'tarce'.",
        "Did you mean 'trace'?",
    )


POSTED: dict[str, tuple[dict[str, Any], str]] = {
    "no blueprint": ({"type": "agent", "input": "a"}, "/blueprint"),
    "no type": ({"blueprint": {}, "input": "a"}, "/type"),
    "a wrong type": ({"type": "robot", "blueprint": {}, "input": "a"}, "/type"),
    "a list for a blueprint": ({"type": "agent", "blueprint": [], "input": "a"}, "/blueprint"),
    "a list of agents": ({"type": "agent", "blueprint": {}, "agents": [], "input": "a"}, "/agents"),
    "an agent that is a text": ({"type": "agent", "blueprint": {}, "agents": {"a": "b"}, "input": "a"}, "/agents/a"),
    "no input": ({"type": "agent", "blueprint": {}}, ""),
    "a resume path": ({"type": "agent", "blueprint": {}, "input": "a", "resume_path": [0]}, "/resume_path"),
}


@pytest.mark.parametrize(("body", "pointer"), POSTED.values(), ids=POSTED)
def test_a_wrong_posted_shape_is_refused(example: Example, body: Any, pointer: str) -> None:
    """The same holds for `/run-blueprint`."""
    problem = check(example("writer").post("/run-blueprint", json=body), 422, "request_invalid")
    assert pointer in [error["pointer"] for error in problem["errors"]]


@pytest.mark.parametrize("body", [{"start_step": 9}, {"start_step": -1}, {"resume_path": [9, 9]}, {"resume_path": "0"}])
def test_a_wrong_start_is_refused(example: Example, body: dict[str, Any]) -> None:
    """A workflow's start step and resume path must lead to a step."""
    response = example("newsroom").post("/run", json={"inputs": {"input": "a"}, **body})
    assert response.status_code == 422
    assert response.json()["code"] in ("request_invalid", "resume_path_invalid")


@pytest.mark.parametrize("value", ["maybe", "2", "[]"])
def test_a_wrong_query_parameter_is_refused(example: Example, value: str) -> None:
    """A trace is asked for with true or false."""
    problem = check(example("writer").post(f"/run?trace={value}", json={"input": "a"}), 422, "request_invalid")
    assert problem["detail"] == f"The query parameter 'trace' is {value!r}, not true or false."


@pytest.mark.parametrize("media", ["text/plain", "application/x-www-form-urlencoded", "application/xml", ""])
def test_another_media_type_is_refused(example: Example, media: str) -> None:
    """A body must be said to be JSON."""
    headers = {"content-type": media}
    check(example("writer").post("/run", content=b'{"input": "a"}', headers=headers), 415, "media_type_unsupported")


def test_a_charset_is_allowed(example: Example) -> None:
    """A media type with a parameter is still JSON."""
    headers = {"content-type": "Application/JSON; charset=utf-8"}
    assert example("writer").post("/run", content=b'{"input": "a"}', headers=headers).status_code == 200


def test_a_large_body_is_refused(example: Example) -> None:
    """A body over the limit is a 413, announced or not, and the next request is served."""
    body = json.dumps({"input": "x" * (1024 * 1024)}).encode()
    check(example("writer").post("/run", content=body, headers=JSON), 413, "body_too_large")
    pieces = (body[at : at + 65536] for at in range(0, len(body), 65536))
    check(example("writer").post("/run", content=pieces, headers=JSON), 413, "body_too_large")
    assert example("writer").post("/run", json={"input": "a"}).status_code == 200


def test_other_routes_and_methods_are_problems(example: Example) -> None:
    """An unknown route is a 404, a wrong method a 405 that says which are right."""
    client = example("writer")
    assert check(client.get("/heatlh"), 404, "not_found")["suggestion"] == "Did you mean '/health'?"
    check(client.post("/run/", json={"input": "a"}), 404, "not_found")
    check(client.get("/redoc"), 404, "not_found")
    response = client.get("/run")
    assert check(response, 405, "method_not_allowed")["suggestion"] == "Use POST here."
    assert response.headers["allow"] == "POST"


def test_many_errors_are_cut(example: Example) -> None:
    """A request with thousands of faults is answered with the first hundred."""
    body = {"type": "agent", "blueprint": {f"key{n}": n for n in range(3000)}, "input": "a"}
    problem = check(example("writer").post("/run-blueprint", json=body), 422, "blueprint_invalid")
    assert len(problem["errors"]) == 101
    assert problem["errors"][-1]["detail"].endswith("more.")


@pytest.mark.parametrize(
    "body",
    [
        b'{"' + b"K" * 60_000 + b'": [' + b",".join([b"1e999"] * 160_000) + b"]}",
        b'{"' + b"K" * 60_000 + b'": [' + b",".join([b"1e999"] * 40_000) + b"]}",
        b'{"inputs": {"a": [' + b",".join([b"[]"] * 300_000) + b"]}}",
        b'{"input": "x", "resume_path": [' + b",".join([b'""'] * 300_000) + b"]}",
        b'{"inputs": {"a": 1}, "resume_path": [' + b",".join([b'""'] * 49_000) + b"]}",
        b'{"input": "x"' + b"".join(b',"input%d": 1' % n for n in range(49_000)) + b"}",
        b'{"blueprint": {}, "agents": {' + b",".join(b'"%0100d": 1' % n for n in range(9_000)) + b"}}",
    ],
    ids=[
        "many faults",
        "faults under a long key",
        "many values",
        "a longer path",
        "a long path",
        "unknown keys",
        "no agents",
    ],
)
def test_a_body_of_many_values_is_refused_shortly(example: Example, body: bytes) -> None:
    """A body of a megabyte of small or faulty values is refused with an answer of a few kilobytes."""
    for route in ("/run", "/run-blueprint", "/validate-blueprint"):
        started = time.process_time()  # what others do on this machine does not count
        answer = example("newsroom").post(route, content=body, headers=JSON)
        assert time.process_time() - started < 2
        assert answer.status_code in (400, 413, 422)
        assert len(answer.content) < 50_000


def test_the_number_of_values_can_be_set(serve: Callable[..., httpx.Client]) -> None:
    """A body with more values than the operator allows is a 413."""
    client = serve(Agent("a", "Do.", "offline/echo"), max_json_values=10)
    check(client.post("/run", json={"inputs": {"a": list(range(10))}}), 413, "body_too_large")
    assert client.post("/run", json={"inputs": {"a": list(range(7))}}).status_code == 200


def test_a_long_key_is_refused(example: Example) -> None:
    """A key of more than 200 characters is a 400, and is not sent back whole."""
    problem = check(example("writer").post("/run", json={"inputs": {"K" * 201: 1}}), 400, "json_invalid")
    assert problem["errors"] == [
        {"pointer": "/inputs", "detail": "a key has more than 200 characters.", "suggestion": ANY}
    ]


@pytest.mark.parametrize(
    ("headers", "name"),
    [
        ({"content-encoding": "gzip"}, "content-encoding"),
        ({"content-type": "application/json; charset=utf-16"}, "content-type"),
        ({"content-type": 'application/json; charset="latin-1"'}, "content-type"),
    ],
    ids=["compressed", "UTF-16", "Latin 1"],
)
def test_another_encoding_is_refused(example: Example, headers: dict[str, str], name: str) -> None:
    """A body that is said to be compressed, or no UTF-8, is a 415 that names the header."""
    response = example("writer").post("/run", content=b'{"input": "a"}', headers={**JSON, **headers})
    assert f"'{name}'" in check(response, 415, "media_type_unsupported")["detail"]


def test_a_media_type_of_many_parts_is_read_shortly(example: Example) -> None:
    """A header of 60 000 separators takes no longer than any other."""
    started = time.monotonic()
    headers = {"content-type": 'application/json;"' + ";" * 60_000}
    assert example("writer").post("/run", content=b'{"input": "a"}', headers=headers).status_code in (200, 415)
    assert time.monotonic() - started < 2


@pytest.mark.parametrize("name", ["content-type", "content-encoding"])
def test_two_lines_of_a_header_are_read_together(example: Example, name: str) -> None:
    """A body that is said to be of two types is a 415, whichever comes first."""
    headers = [("content-type", "application/json"), ("content-encoding", "identity"), (name, "gzip")]
    response = example("writer").post("/run", content=b'{"input": "a"}', headers=headers)
    check(response, 415, "media_type_unsupported")


def test_every_code_of_the_service_is_in_the_reference() -> None:
    """The page that the links lead to has an entry for each code that the service itself answers with."""
    folder = Path(podwright_service.__file__).parent
    code = "\n".join(path.read_text() for path in folder.glob("*.py"))
    raised = set(re.findall(r'RequestError\(\s*\d+,\s*"(\w+)"', code)) | {
        facts[0] for facts in protocol.REFUSALS.values()
    }
    raised |= {"key_required", "scope_missing", "internal_error", "not_found", "method_not_allowed"}
    known = set(re.findall(r"^## (\w+)$", (folder.parents[2] / "docs" / "errors.md").read_text(), re.MULTILINE))
    assert raised <= known
