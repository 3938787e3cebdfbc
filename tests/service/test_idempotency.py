"""Requests that are repeated with the same idempotency key."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest
from tests.helpers import until
from tests.service.support import INLINE, Gate, Serve, check_problem, connect

from podwright import (
    Agent,
    ApprovalStep,
    FunctionModel,
    ScriptedModel,
    Workflow,
    tool,
)
from podwright.errors import ModelError, ModelRateLimitError
from podwright.models.retries import Retries
from podwright.testing import ModelRequest, ToolCall
from podwright_service.http.idempotency import IdempotencyStore, StoredResponse
from podwright_service.settings import Settings

BODIES: dict[str, dict[str, Any]] = {
    "/run": {"input": "x"},
    "/run/stream": {"input": "x"},
    "/run-blueprint": {**INLINE, "input": "x"},
}


def post(
    client: httpx.Client,
    key: str = "k-1",
    path: str = "/run",
    body: Any = None,
    **more: str,
) -> httpx.Response:
    return client.post(
        path,
        json=body or BODIES[path.partition("?")[0]],
        headers={"Idempotency-Key": key, **more},
    )


def counting() -> tuple[Agent, list[int]]:
    """An agent that counts its runs, and responds with the number."""
    runs: list[int] = []

    def count(request: ModelRequest) -> str:
        runs.append(len(runs))
        return f"run {len(runs)}"

    return Agent("helper", "Help.", FunctionModel(count)), runs


@pytest.mark.parametrize("path", BODIES)
def test_a_response_is_replayed(serve: Serve, path: str) -> None:
    """A repeated request, whose key may have quotes, gets the same response with a header; another key runs again."""
    component, _ = counting()
    client = serve(component, allowed_models=["offline/echo"])
    first = post(client, "k-1", path)
    second = post(client, '"k-1"', path)
    other = post(client, "k-2", path)
    assert {response.status_code for response in (first, second, other)} == {
        200
    }
    assert second.content == first.content
    assert "idempotency-replayed" not in first.headers
    assert second.headers["idempotency-replayed"] == "true"
    changing = {
        "date",
        "idempotency-replayed",
        "content-length",
        "transfer-encoding",
    }
    assert {k: v for k, v in first.headers.items() if k not in changing} == {
        k: v for k, v in second.headers.items() if k not in changing
    }
    assert (
        other.headers["podwright-run-id"] != first.headers["podwright-run-id"]
    )


@pytest.mark.parametrize("path", ["/run", "/run/stream"])
def test_a_pause_is_replayed(serve: Serve, path: str) -> None:
    """A workflow that waits for approval is not run twice."""
    first = Agent("one", "Help.", ScriptedModel("once"))
    client = serve(
        Workflow(
            "flow",
            [
                first,
                ApprovalStep("Go on?"),
                Agent("two", "Help.", "offline/echo"),
            ],
        )
    )
    assert post(client, path=path).content == post(client, path=path).content


@pytest.mark.parametrize("path", ["/run", "/run/stream"])
def test_a_server_error_is_not_replayed(serve: Serve, path: str) -> None:
    """After a server error, the same request runs again and may recover."""
    model = ScriptedModel(
        ModelError("down"), ModelRateLimitError("Slow down."), "up"
    )
    model.retries = Retries(tries=1)
    client = serve(Agent("helper", "Help.", model))
    for answer in ("model_failed", "model_rate_limited", "up"):
        assert answer in post(client, path=path).text


def test_another_request_with_the_key_is_rejected(serve: Serve) -> None:
    """Another body, query or route with the same key is 422, and nothing runs."""
    component, runs = counting()
    client = serve(component)
    post(client)
    for path, body in (
        ("/run", {"input": "y"}),
        ("/run?trace=true", None),
        ("/run/stream", None),
    ):
        check_problem(
            post(client, path=path, body=body), 422, "idempotency_key_reused"
        )
    assert len(runs) == 1


@pytest.mark.parametrize("path", ["/run", "/run/stream"])
def test_a_request_in_progress_is_a_conflict(serve: Serve, path: str) -> None:
    """While the first request is served, the same request is 409 with Retry-After; afterwards it is replayed."""
    gate = Gate()
    client = serve(gate.agent())
    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(post, client, path=path)
        until(gate.called.is_set)
        conflict = post(client, path=path)
        gate.opened.set()
        check_problem(conflict, 409, "idempotency_in_progress")
        assert conflict.headers["retry-after"] == "1"
    assert post(client, path=path).content == first.result().content


@pytest.mark.parametrize("path", ["/run", "/run/stream"])
def test_a_key_is_free_after_a_disconnect(serve: Serve, path: str) -> None:
    """After a disconnect, which cancels the run, the request with its key runs again."""
    gate = Gate()
    client = serve(gate.agent())
    with connect(client, path, b'{"input": "x"}', "idempotency-key: k-1"):
        until(gate.called.is_set)
    until(gate.cancelled.is_set)
    gate.opened.set()
    until(lambda: "done" in post(client, path=path).text)


def paying(*, idempotent: bool) -> tuple[Agent, Gate, list[str]]:
    """An agent that pays, and then waits for the gate of its second model call; and the book of the payments."""
    gate = Gate()
    book = list[str]()

    @tool(idempotent=idempotent)
    def pay(amount: str) -> str:
        """Pay."""
        book.append(amount)
        return "paid"

    async def answer(request: ModelRequest) -> Any:
        return (
            await gate(request)
            if request.messages[-1].role == "tool"
            else ToolCall.of("pay", "c1", amount="5")
        )

    return (
        Agent("payer", "Pay.", FunctionModel(answer), tools=[pay]),
        gate,
        book,
    )


@pytest.mark.parametrize(
    "path", ["/run", "/run/stream", "/v1/chat/completions"]
)
def test_a_run_that_had_called_a_tool_is_not_repeated(
    serve: Serve, path: str
) -> None:
    """If the client left during the run, nobody knows what the tool did: the same request says so until told twice."""
    agent, gate, book = paying(idempotent=False)
    client = serve(agent)
    body = {
        "model": "payer",
        "messages": [{"role": "user", "content": "x"}],
        "stream": True,
    }
    body = body if path.startswith("/v1") else {"input": "x"}
    with connect(
        client,
        path,
        json.dumps(body, separators=(",", ":")).encode(),
        "idempotency-key: k-1",
    ):
        until(gate.called.is_set)
    until(gate.cancelled.is_set)
    gate.opened.set()
    until(
        lambda: (
            "idempotency_in_progress"
            not in post(client, path=path, body=body).text
        )
    )
    refused = post(client, path=path, body=body)
    assert refused.status_code == 409
    assert "run_interrupted" in refused.text
    assert "'pay'" in refused.text
    assert book == ["5"]
    told = {"Podwright-Unfinished-Calls": "repeat"}
    assert "done" in post(client, path=path, body=body, **told).text
    assert book == ["5", "5"]
    assert "done" in post(client, path=path, body=body).text


def test_a_run_that_had_called_an_idempotent_tool_is_repeated(
    serve: Serve,
) -> None:
    """Its calls may be repeated."""
    agent, gate, book = paying(idempotent=True)
    client = serve(agent)
    with connect(client, "/run", b'{"input": "x"}', "idempotency-key: k-1"):
        until(gate.called.is_set)
    until(gate.cancelled.is_set)
    gate.opened.set()
    until(lambda: "done" in post(client).text)
    assert book == ["5", "5"]


def test_a_request_that_only_asks_for_the_stored_response(serve: Serve) -> None:
    """With `Podwright-Unfinished-Calls: interrupt`, nothing runs that has no response yet."""
    component, runs = counting()
    client = serve(component)
    asked = {"Podwright-Unfinished-Calls": "interrupt"}
    check_problem(
        post(client, **{"Podwright-Unfinished-Calls": "maybe"}),
        400,
        "header_invalid",
    )
    check_problem(post(client, **asked), 409, "run_interrupted")
    assert runs == []
    assert post(client).text == post(client, **asked).text


def test_a_stream_whose_client_left_at_its_end_is_stored(serve: Serve) -> None:
    """A run that had ended when its client left has a response, although nobody has read all of it."""
    model = ScriptedModel("x" * 4_000_000, "again")
    client = serve(
        Agent("helper", "Help.", model),
        idempotency_bytes=2**30,
        stream_buffer_bytes=2**30,
    )
    with connect(
        client,
        "/run/stream",
        b'{"input":"x"}',
        "idempotency-key: k-1",
        receive_buffer=4096,
    ) as connection:
        assert b"200 OK" in connection.recv(100)
        until(
            lambda: (
                "podwright_runs_total" in client.get("/metrics").text
                and len(model.requests) == 1
            )
        )
        until(lambda: 'status="ok"} 1.0' in client.get("/metrics").text)
    until(
        lambda: (
            "idempotency_in_progress"
            not in post(client, path="/run/stream").text
        )
    )
    stored = post(client, path="/run/stream")
    assert stored.headers["idempotency-replayed"] == "true"
    assert "event: result" in stored.text
    assert len(model.requests) == 1


def test_a_rejected_request_leaves_its_key_free(serve: Serve) -> None:
    """After a rejected body, the corrected one runs with the same key."""
    component, _ = counting()
    client = serve(component)
    check_problem(post(client, body={"inptu": "x"}), 422, "request_invalid")
    assert post(client).json() == {"output": "run 1"}


@pytest.mark.parametrize(
    "keys",
    [
        [""],
        ['""'],
        ["x" * 256],
        ["tab\there"],
        ['half"quoted'],
        [b"gr\xfc\xdfe"],
        ["a", "b"],
    ],
)
def test_an_invalid_key_is_rejected(serve: Serve, keys: list[Any]) -> None:
    """A key that is empty, too long, repeated, or not printable ASCII is 400."""
    component, runs = counting()
    headers = httpx.Headers([("Idempotency-Key", key) for key in keys])
    check_problem(
        serve(component).post("/run", json={"input": "x"}, headers=headers),
        400,
        "idempotency_key_invalid",
    )
    assert not runs


def test_callers_do_not_share_keys(serve: Serve) -> None:
    """The same key of callers with different API keys names different requests, also if these have one name."""
    component, _ = counting()
    keys = ("a" * 16, "b" * 16)
    client = serve(component, api_keys=[f"@ann:{key}" for key in keys])
    first, second = (
        post(client, Authorization=f"Bearer {key}").text for key in keys
    )
    assert (first, second) == ('{"output":"run 1"}', '{"output":"run 2"}')


@pytest.mark.parametrize("path", ["/run", "/run/stream"])
def test_a_response_too_large_to_store_is_not_run_twice(
    serve: Serve, path: str
) -> None:
    """The key of a response that is too large to store is a conflict that names the first run."""
    model = ScriptedModel("x" * 2000, "again")
    client = serve(Agent("helper", "Help.", model), idempotency_bytes=16_000)
    first = post(client, path=path)
    again = post(client, path=path)
    assert first.status_code == 200
    assert (
        first.headers["podwright-run-id"]
        in check_problem(again, 409, "idempotency_answer_too_large")["detail"]
    )
    assert len(model.requests) == 1


def test_the_memory_store_is_bounded() -> None:
    """Responses are dropped when they are too many, too large together, or too old; the oldest first."""
    now = [0.0]
    settings = Settings(
        idempotency_entries=3, idempotency_bytes=1000, idempotency_ttl=60
    )
    store = IdempotencyStore(settings, lambda: now[0])

    def keep(key: str, size: int) -> None:
        assert store.claim(key, "f") is None
        store.keep(key, StoredResponse("f", 200, (), b"x" * size))

    def stored(keys: str) -> str:
        kept = ""
        for key in keys:
            if store.claim(key, "f") is None:
                store.release(key)
            else:
                kept += key
        return kept

    for key in "abcd":
        keep(key, 10)
    assert stored("abcd") == "bcd"
    keep("e", 985)
    assert stored("bcde") == "de"
    now[0] = 61
    assert stored("de") == ""
