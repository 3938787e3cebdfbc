"""How many requests are let in, and what the others are told."""

from __future__ import annotations

import asyncio
import json
import random
import re
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from pathlib import Path

import httpx
import pytest

from podwright import Agent, FunctionModel
from podwright.testing import ModelRequest
from podwright_service.admission import Admission
from podwright_service.problems import RequestError
from podwright_service.settings import Settings

Serve = Callable[..., httpx.Client]

OVERLOAD = Path(__file__).parents[1] / "bench" / "overload.py"


class Gate:
    """A model that answers when it is told to."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.open = False

    async def __call__(self, request: ModelRequest) -> str:
        self.asked.append(request.messages[-1].content or "")
        while not self.open:  # noqa: ASYNC110 - it is opened from another thread
            await asyncio.sleep(0.01)
        return "done"

    def agent(self) -> Agent:
        return Agent("a", "Do.", FunctionModel(self))


def until(true: Callable[[], object]) -> None:
    deadline = time.monotonic() + 20
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def insist(client: httpx.Client, text: str) -> httpx.Response:
    """Asks again while a request that looks whether there is room takes the room."""
    while (answer := client.post("/run", json={"input": text})).status_code == 503:
        time.sleep(0.01)
    return answer


def check(response: httpx.Response) -> None:
    assert response.status_code == 503, response.text
    assert response.json()["code"] == "overloaded"
    assert 1 <= int(response.headers["retry-after"]) <= 60
    assert "podwright-run-id" not in response.headers


def test_one_more_than_may_wait_is_told_to_come_again(serve: Serve) -> None:
    """Runs that fit run, as many as may wait wait, one more is refused; readiness and liveness stay."""
    gate = Gate()
    client = serve(gate.agent(), max_runs=2, max_waiting=3)
    with ThreadPoolExecutor(5) as pool:
        runs: list[Future[httpx.Response]] = []
        for number in range(5):
            runs.append(pool.submit(insist, client, str(number)))
            until(lambda: len(gate.asked) == min(len(runs), 2))
        until(lambda: client.post("/run", json={}).status_code == 503)  # while there is room, it is a 422 at once
        for path in ("/run", "/run-blueprint", "/validate-blueprint"):
            check(client.post(path, json={"input": "more"}))
        assert client.get("/ready").status_code == 200
        assert client.get("/health").status_code == 200
        assert client.get("/info").status_code == 200
        gate.open = True
        assert [run.result().status_code for run in runs] == [200] * 5
    assert client.post("/run", json={"input": "x"}).status_code == 200
    assert "more" not in gate.asked


def test_it_is_refused_before_its_body(serve: Serve) -> None:
    """A request for which there is no room is answered while its body is still on its way."""
    gate = Gate()
    client = serve(gate.agent(), max_runs=1, max_waiting=0)
    with ThreadPoolExecutor(1) as pool:
        run = pool.submit(client.post, "/run", json={"input": "x"})
        until(lambda: gate.asked)
        with socket.create_connection(("127.0.0.1", client.base_url.port or 0), timeout=20) as connection:
            connection.sendall(b"POST /run HTTP/1.1\r\nhost: x\r\ncontent-length: 1000000\r\n\r\n")
            assert connection.recv(65536).startswith(b"HTTP/1.1 503 ")
        gate.open = True
        assert run.result().status_code == 200


def test_refusals_at_the_door_are_whole_answers(serve: Serve) -> None:
    """Each of many requests in one piece is answered in turn, bodies are passed over, and all are counted."""
    gate = Gate()
    client = serve(gate.agent(), max_runs=1, max_waiting=0, api_keys="0123456789abcdef")
    headers = {"authorization": "Bearer 0123456789abcdef"}
    key = b"authorization: Bearer 0123456789abcdef\r\n"
    one = b"POST /run HTTP/1.1\r\nhost: x\r\n%scontent-length: 12\r\n\r\nGET / HTTP/1"
    with ThreadPoolExecutor(1) as pool:
        run = pool.submit(client.post, "/run", json={"input": "x"}, headers=headers)
        until(lambda: gate.asked)
        with socket.create_connection(("127.0.0.1", client.base_url.port or 0), timeout=20) as connection:
            connection.sendall((one % key + one % b"") * 500 + b"GET /health HTTP/1.1\r\nhost: x\r\n\r\n")
            seen = b""
            while b"HTTP/1.1 200 " not in seen:
                piece = connection.recv(65536)
                assert piece, seen
                seen += piece
        gate.open = True
        assert run.result().status_code == 200
    answers = seen.split(b"HTTP/1.1 ")[1:]
    assert [int(answer[:3]) for answer in answers] == [503, 401] * 500 + [200]
    for answer in answers[:2]:
        head, _, body = answer.partition(b"\r\n\r\n")
        assert b"\r\ndate: " in head
        assert json.loads(body)["instance"] == "/run"
    page = client.get("/metrics", headers=headers).text
    for status in (503, 401):
        assert re.search(rf'podwright_http_requests_total{{.*route="/run",status="{status}"}} 500.0', page), page
    assert re.search(r'podwright_runs_rejected_total{.*reason="full"} 500.0', page)


def test_a_caller_without_a_key_takes_no_place(serve: Serve) -> None:
    """Requests that may not run do not count, whatever they still send."""
    client = serve(Gate().agent(), max_runs=1, max_waiting=0, api_keys="0123456789abcdef")
    assert [client.post("/run", json={}).status_code for _ in range(3)] == [401] * 3


def test_who_waits_too_long_is_told_to_come_again(serve: Serve) -> None:
    """A request that found no place in time is refused, and its own place in the line is free."""
    gate = Gate()
    client = serve(gate.agent(), max_runs=1, max_waiting=1, max_wait=0.2)
    with ThreadPoolExecutor(1) as pool:
        run = pool.submit(client.post, "/run", json={"input": "x"})
        until(lambda: gate.asked)
        for _ in range(2):
            check(client.post("/run", json={"input": "late"}))
        gate.open = True
        assert run.result().status_code == 200
    assert gate.asked == ["x"]


def test_who_leaves_the_line_makes_room(serve: Serve) -> None:
    """A caller who hangs up while waiting is forgotten: the next one is let in, and the run never begins."""
    gate = Gate()
    client = serve(gate.agent(), max_runs=1, max_waiting=1)
    body = b'{"input": "gone"}'
    head = b"POST /run HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n" % len(body)
    with ThreadPoolExecutor(2) as pool:
        run = pool.submit(client.post, "/run", json={"input": "first"})
        until(lambda: gate.asked)
        with socket.create_connection(("127.0.0.1", client.base_url.port or 0)) as leaving:
            leaving.sendall(head + body)
            until(lambda: client.post("/run", json={}).status_code == 503)
        until(lambda: client.post("/run", json={}).status_code == 422)
        second = pool.submit(insist, client, "second")
        until(lambda: client.post("/run", json={}).status_code == 503)
        gate.open = True
        assert [run.result().status_code, second.result().status_code] == [200, 200]
    assert gate.asked == ["first", "second"]


async def test_first_come_first_served() -> None:
    """Places are handed on in the order in which they were asked for."""
    admission = Admission(Settings(max_runs=1, max_waiting=10))
    order: list[int] = []

    async def work(number: int) -> None:
        order.append(number)
        await asyncio.sleep(0)

    await asyncio.gather(*(admission.admitted(partial(work, number)) for number in range(10)))
    assert order == list(range(10))
    assert (admission.running, admission.waiting) == (0, 0)


async def test_no_place_is_lost() -> None:
    """However callers are cancelled, fail or time out, at most so many run at once and all places come back."""
    admission = Admission(Settings(max_runs=3, max_waiting=10_000, max_wait=0.02))
    chance = random.Random(7)
    most, ends = 0, {"done": 0, "failed": 0, "late": 0, "cancelled": 0}

    async def served() -> None:
        nonlocal most
        most = max(most, admission.running)
        await asyncio.sleep(chance.choice((0, 0, 0.001, 0.004)))
        if chance.random() < 0.2:
            raise KeyError

    async def work() -> None:
        try:
            await admission.admitted(served)
            ends["done"] += 1
        except KeyError:
            ends["failed"] += 1
        except RequestError:
            ends["late"] += 1
        except asyncio.CancelledError:
            ends["cancelled"] += 1

    tasks: list[asyncio.Task[None]] = []
    for number in range(3000):
        tasks.append(asyncio.create_task(work()))
        if number % 3 == 0:
            await asyncio.sleep(chance.choice((0, 0.001)))
            chance.choice(tasks[-20:]).cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    assert (admission.running, admission.waiting) == (0, 0)
    assert most == 3
    assert all(ends.values()), ends
    assert admission.rejected == {"full": 0, "waited": ends["late"]}


def test_overload_costs_the_others_nothing() -> None:
    """At five times the load that fits, as much as ever is served, and the rest are told at once to come again."""
    found: list[dict[str, float]] = []
    for _ in range(5):  # the machine may have other things to do
        done = subprocess.run([sys.executable, str(OVERLOAD), "3"], capture_output=True, text=True, timeout=100)
        assert done.returncode == 0, done.stderr
        found.append(json.loads(done.stdout))
        assert found[-1]["other"] == 0, found
        assert found[-1]["refused"] > 0
        assert found[-1]["retry_after"] == found[-1]["refused"]
        if found[-1]["goodput"] >= 0.9 and found[-1]["refused_p99_ms"] <= 50 + 3 * found[-1]["lag_p99_ms"]:
            return
    pytest.fail(f"not once of five times: {found}")
