"""Admission: how many requests are served at once, and what the others get."""

from __future__ import annotations

import asyncio
import json
import random
import subprocess
import sys
from collections import Counter
from concurrent.futures import Future, ThreadPoolExecutor

import httpx
from tests.helpers import ROOT, until
from tests.service.support import Gate, Serve, check_problem, connect

from podwright_service.http.access.admission import Admission
from podwright_service.settings import Settings

OVERLOAD = ROOT / "tests" / "bench" / "overload.py"
BODY = b'{"input": "x"}'


def check_overloaded(response: httpx.Response) -> None:
    check_problem(response, 503, "overloaded")
    assert 1 <= int(response.headers["retry-after"]) <= 60
    assert "podwright-run-id" not in response.headers


def full(client: httpx.Client) -> bool:
    """Whether the service is at capacity; the request is invalid, so it takes no run slot."""
    return client.post("/run", json={}).status_code == 503


def post_when_there_is_room(client: httpx.Client, text: str) -> httpx.Response:
    def post() -> httpx.Response | None:
        response = client.post("/run", json={"input": text})
        return None if response.status_code == 503 else response

    return until(post)  # pyright: ignore[reportReturnType] - it polls until there is a response


def test_a_service_at_capacity_rejects(serve: Serve) -> None:
    """Runs up to `max_runs` start, up to `max_waiting` requests wait, others are rejected; probes succeed."""
    gate = Gate()
    client = serve(gate.agent(), max_runs=2, max_waiting=3)
    with ThreadPoolExecutor(5) as pool:
        runs: list[Future[httpx.Response]] = []
        for number in range(5):
            runs.append(
                pool.submit(post_when_there_is_room, client, str(number))
            )
            until(lambda: len(gate.inputs) == min(len(runs), 2))
        until(lambda: full(client))
        for path in (
            "/run",
            "/run/stream",
            "/run-blueprint",
            "/validate-blueprint",
            "/estimate",
        ):
            check_overloaded(client.post(path, json={"input": "more"}))
        for path in ("/ready", "/health", "/info"):
            assert client.get(path).status_code == 200
        gate.opened.set()
        assert [run.result().status_code for run in runs] == [200] * 5
    assert client.post("/run", json={"input": "x"}).status_code == 200
    assert "more" not in gate.inputs


def test_a_rejection_does_not_wait_for_the_body(serve: Serve) -> None:
    """At capacity, a request is rejected before its body has arrived."""
    gate = Gate()
    client = serve(gate.agent(), max_runs=1, max_waiting=0)
    with connect(client, "/run", BODY):
        until(gate.called.is_set)
        with connect(
            client, "/run", b"", "content-length: 1000000"
        ) as rejected:
            assert rejected.recv(65536).startswith(b"HTTP/1.1 503 ")


def test_authentication_comes_before_admission(serve: Serve) -> None:
    """A request without an API key is a 401 even at capacity."""
    gate = Gate()
    client = serve(
        gate.agent(), max_runs=1, max_waiting=0, api_keys="0123456789abcdef"
    )
    with connect(
        client, "/run", BODY, "authorization: Bearer 0123456789abcdef"
    ):
        until(gate.called.is_set)
        assert client.post("/run", json={}).status_code == 401


def test_a_request_that_waits_too_long_is_rejected(serve: Serve) -> None:
    """A request without a run slot after `max_wait` is a 503, and the next one may wait."""
    gate = Gate()
    client = serve(gate.agent(), max_runs=1, max_waiting=1, max_wait=0.2)
    with connect(client, "/run", BODY):
        until(gate.called.is_set)
        for _ in range(2):
            check_overloaded(client.post("/run", json={"input": "late"}))
    assert gate.inputs == ["x"]


def test_a_waiting_client_that_disconnects_makes_room(serve: Serve) -> None:
    """After a waiting client disconnects, the next one is admitted, and the first one's run never starts."""
    gate = Gate()
    client = serve(gate.agent(), max_runs=1, max_waiting=1)
    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(client.post, "/run", json={"input": "first"})
        until(gate.called.is_set)
        with connect(client, "/run", b'{"input": "gone"}'):
            until(lambda: full(client))
        until(lambda: not full(client))
        second = pool.submit(post_when_there_is_room, client, "second")
        until(lambda: full(client))
        gate.opened.set()
        assert [first.result().status_code, second.result().status_code] == [
            200,
            200,
        ]
    assert gate.inputs == ["first", "second"]


def test_a_slow_body_is_rejected(serve: Serve) -> None:
    """A body that is incomplete after `body_timeout` is a 408, and the connection is closed."""
    client = serve(Gate().agent(), body_timeout=0.2)
    with connect(client, "/run", b"{", "content-length: 14") as connection:
        response = b"".join(iter(lambda: connection.recv(65536), b""))
    assert response.startswith(b"HTTP/1.1 408 ")
    assert b'"request_too_slow"' in response


async def test_run_slots_are_given_in_order() -> None:
    """Requests get run slots in the order of their arrival."""
    admission = Admission(Settings(max_runs=1, max_waiting=10))
    order: list[int] = []

    async def run(number: int) -> None:
        async with admission.run_slot():
            order.append(number)
            await asyncio.sleep(0)

    await asyncio.gather(*(run(number) for number in range(10)))
    assert order == list(range(10))
    assert admission.waiting == 0


async def test_no_run_slot_is_lost() -> None:
    """However requests are cancelled or fail, at most `max_runs` run at once, and all slots come back."""
    admission = Admission(Settings(max_runs=3, max_waiting=10_000))
    chance = random.Random(7)
    running = 0
    most = 0
    ends = Counter[str]()

    async def work() -> None:
        nonlocal running, most
        try:
            async with admission.run_slot():
                running += 1
                most = max(most, running)
                try:
                    for _ in range(chance.randrange(4)):
                        await asyncio.sleep(0)
                    if chance.random() < 0.2:
                        raise KeyError
                finally:
                    running -= 1
            ends["done"] += 1
        except KeyError:
            ends["failed"] += 1
        except asyncio.CancelledError:
            ends["cancelled"] += 1

    tasks: list[asyncio.Task[None]] = []
    for number in range(3000):
        tasks.append(asyncio.create_task(work()))
        if number % 3 == 0:
            await asyncio.sleep(0)
            chance.choice(tasks[-20:]).cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    assert most == 3
    assert set(ends) == {"done", "failed", "cancelled"}
    assert admission.waiting == 0
    async with admission.run_slot(), admission.run_slot(), admission.run_slot():
        pass


def test_overload_is_refused() -> None:
    """At five times the capacity, each request is a run, or is rejected with `Retry-After`; the benchmark has times."""
    done = subprocess.run(
        [sys.executable, str(OVERLOAD), "3"], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    results = json.loads(done.stdout)
    assert results["other"] == 0
    assert results["retry_after"] == results["refused"] > 0
    assert results["goodput"] > 0
