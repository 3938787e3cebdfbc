"""Requests that are sent again with the same key."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Callable
from typing import Any

import httpx
import pytest

from podwright import Agent, ApprovalStep, FunctionModel, ScriptedModel, Workflow
from podwright.errors import ModelError
from podwright.testing import ModelRequest
from podwright_service.idempotency import Answer, Entry, Memory
from podwright_service.settings import Settings

Serve = Callable[..., httpx.Client]

POSTED = {"type": "agent", "blueprint": {"name": "poet", "instructions": "Write.", "config": {"model": "offline/echo"}}}
BODIES: dict[str, dict[str, Any]] = {
    "/run": {"input": "x"},
    "/run/stream": {"input": "x"},
    "/run-blueprint": {**POSTED, "input": "x"},
}


def keyed(client: httpx.Client, key: str = "k-1", path: str = "/run", body: Any = None, **more: str) -> httpx.Response:
    return client.post(path, json=body or BODIES[path.partition("?")[0]], headers={"Idempotency-Key": key, **more})


def code_of(response: httpx.Response) -> tuple[int, str]:
    assert response.headers["content-type"] == "application/problem+json", response.text
    return response.status_code, response.json()["code"]


def counting() -> tuple[Agent, list[int]]:
    """An agent that counts its runs, and answers with the number."""
    runs: list[int] = []

    def count(request: ModelRequest) -> str:
        runs.append(len(runs))
        return f"run {len(runs)}"

    return Agent("helper", "Help.", FunctionModel(count)), runs


@pytest.mark.parametrize("path", BODIES)
def test_an_answer_is_replayed(serve: Serve, path: str) -> None:
    """Sent again, a request gets the same bytes, status and headers, and says so; another key runs anew."""
    component, _ = counting()
    client = serve(component, allowed_models=["offline/echo"])
    first, second, other = keyed(client, path=path), keyed(client, path=path), keyed(client, "k-2", path)
    assert (first.status_code, second.status_code, other.status_code) == (200, 200, 200)
    assert second.content == first.content
    assert "idempotency-replayed" not in first.headers
    assert second.headers["idempotency-replayed"] == "true"
    changing = {"date", "idempotency-replayed", "content-length", "transfer-encoding"}
    assert {k: v for k, v in first.headers.items() if k not in changing} == {
        k: v for k, v in second.headers.items() if k not in changing
    }
    assert other.headers["podwright-run-id"] != first.headers["podwright-run-id"]


def test_it_runs_once(serve: Serve) -> None:
    """However often it is sent, the component runs once; the quotes of the structured field may be left out."""
    component, runs = counting()
    client = serve(component)
    answers = {keyed(client, key).text for key in ("k", '"k"', "k", '"k"')}
    assert (answers, len(runs)) == ({'{"output":"run 1"}'}, 1)


def test_a_failed_run_is_replayed_too(serve: Serve) -> None:
    """A run that failed has cost money: its problem is the answer, not a second try."""
    client = serve(Agent("helper", "Help.", ScriptedModel(ModelError("down"), "up")))
    assert code_of(keyed(client)) == (502, "model_failed")
    again = keyed(client)
    assert code_of(again) == (502, "model_failed")
    assert again.headers["podwright-usage"]
    assert keyed(client, "k-2").json() == {"output": "up"}


def test_a_pause_is_replayed(serve: Serve) -> None:
    """So is the question of a workflow that waits for a person."""
    first = Agent("one", "Help.", ScriptedModel("once"))
    client = serve(Workflow("flow", [first, ApprovalStep("Go on?"), Agent("two", "Help.", "offline/echo")]))
    assert keyed(client).json() == keyed(client).json()


def test_another_request_under_a_key_is_refused(serve: Serve) -> None:
    """Another body, query or route under the same key is 422, and nothing runs."""
    component, runs = counting()
    client = serve(component)
    keyed(client)
    for path, body in (("/run", {"input": "y"}), ("/run?trace=true", None), ("/run/stream", None)):
        assert code_of(keyed(client, path=path, body=body)) == (422, "idempotency_key_reused")
    assert len(runs) == 1


@pytest.mark.parametrize("path", ["/run", "/run/stream"])
def test_one_under_way_is_a_conflict(serve: Serve, path: str) -> None:
    """While the first is served, the same request is 409 with Retry-After; afterwards it is replayed."""
    begun, go_on = threading.Event(), threading.Event()

    async def wait(request: ModelRequest) -> str:
        begun.set()
        await asyncio.to_thread(go_on.wait, 20)
        return "done"

    client = serve(Agent("helper", "Help.", FunctionModel(wait)))
    answers: list[httpx.Response] = []
    thread = threading.Thread(target=lambda: answers.append(keyed(client, path=path)))
    thread.start()
    assert begun.wait(20)
    conflict = keyed(client, path=path)
    assert code_of(conflict) == (409, "idempotency_in_progress")
    assert conflict.headers["retry-after"] == "1"
    go_on.set()
    thread.join()
    assert keyed(client, path=path).content == answers[0].content


@pytest.mark.parametrize("path", ["/run", "/run/stream"])
def test_a_caller_who_left_may_try_again(serve: Serve, path: str) -> None:
    """A run that was cut off because its caller left has no answer: its key is free."""
    begun, cancelled, runs = threading.Event(), threading.Event(), []

    async def wait(request: ModelRequest) -> str:
        runs.append(1)
        if len(runs) == 1:
            begun.set()
            try:
                await asyncio.sleep(30)
            finally:
                cancelled.set()
        return "done"

    client = serve(Agent("helper", "Help.", FunctionModel(wait)))
    with socket.create_connection((client.base_url.host, client.base_url.port or 80)) as connection:
        head = f"POST {path} HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\nidempotency-key: k-1\r\n"
        connection.sendall(f'{head}content-length: 14\r\n\r\n{{"input": "x"}}'.encode())
        assert begun.wait(20)
    assert cancelled.wait(20)
    while (answer := keyed(client, path=path)).status_code == 409:
        pass
    assert "done" in answer.text


def test_a_refused_request_takes_no_key(serve: Serve) -> None:
    """A body that does not fit is refused, and its key serves the corrected one."""
    component, _ = counting()
    client = serve(component)
    assert code_of(keyed(client, body={"inptu": "x"})) == (422, "request_invalid")
    assert keyed(client).json() == {"output": "run 1"}


@pytest.mark.parametrize("key", ["", '""', "x" * 256, "tab\there", 'half"quoted', b"gr\xfc\xdfe"])
def test_a_malformed_key_is_refused(serve: Serve, key: Any) -> None:
    """A key that is empty, too long, or not printable ASCII is 400."""
    component, runs = counting()
    assert code_of(keyed(serve(component), key)) == (400, "idempotency_key_invalid")
    assert not runs


def test_two_keys_are_refused(serve: Serve) -> None:
    """A request has one key."""
    component, _ = counting()
    headers = [("Idempotency-Key", "a"), ("Idempotency-Key", "b")]
    assert code_of(serve(component).post("/run", json={"input": "x"}, headers=headers))[0] == 400


def test_callers_do_not_share_keys(serve: Serve) -> None:
    """The same key of callers with different API keys names different requests."""
    component, _ = counting()
    client = serve(component)
    one, two = (keyed(client, Authorization=f"Bearer {name}").text for name in ("one", "two"))
    assert (one, two) == ('{"output":"run 1"}', '{"output":"run 2"}')


@pytest.mark.parametrize("path", ["/run", "/run/stream"])
def test_an_answer_too_large_to_keep_is_not_run_twice(serve: Serve, path: str) -> None:
    """The key of an answer too large to keep is a conflict that names the first run, also for a stream."""
    model = ScriptedModel("x" * 2000, "again")
    client = serve(Agent("helper", "Help.", model), idempotency_bytes=16_000)
    first, again = keyed(client, path=path), keyed(client, path=path)
    assert first.status_code == 200
    assert code_of(again) == (409, "idempotency_answer_too_large")
    assert first.headers["podwright-run-id"] in again.json()["detail"]
    assert len(model.requests) == 1


async def test_the_memory_is_bounded() -> None:
    """Answers go when they are too many, too large together, or too old; the oldest first."""
    now = [0.0]
    settings = Settings(idempotency_entries=3, idempotency_bytes=1000, idempotency_ttl=60)
    memory = Memory(settings, lambda: now[0])

    async def keep(key: str, size: int) -> None:
        assert await memory.claim(key, "f") is None
        await memory.keep(key, Entry("f", Answer(200, (), b"x" * size)))

    async def known(keys: str) -> str:
        found = ""
        for key in keys:
            if await memory.claim(key, "f") is None:
                await memory.release(key)
            else:
                found += key
        return found

    for key in "abcd":
        await keep(key, 10)
    assert await known("abcd") == "bcd"
    await keep("e", 985)
    assert await known("bcde") == "de"
    now[0] = 61
    assert await known("de") == ""
    assert memory.size == 0
