"""Background runs while their processes are killed, restarted and cut off from the database."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import itertools
import json
import os
import random
import signal
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pytest
from aiohttp import web
from tests.helpers import NO_AUTHORITIES, plain_http, until
from tests.ports import free_port
from tests.postgresql import serve_postgresql
from tests.service.support import (
    Address,
    Command,
    Process,
    check_problem,
    discard_output,
)

from podwright_service.background.storage.database import database_url, migrate
from podwright_service.testing.server import BackgroundServer

LATENCY = 0.04
"""Seconds that the model takes to answer."""
IN_PROGRESS = 32
"""Most calls that a process makes at once: 16 runs with two branches."""

CALLS = 1 + 2 + 2 + 3 + 1
"""Model calls of a run."""

COMPONENT = """
import os
from podwright import Agent, LoopStep, ParallelStep, Workflow, tool
from podwright_service.background import store, worker

if "LEASE_SECONDS" in os.environ:
    store.LEASE_SECONDS = float(os.environ["LEASE_SECONDS"])
    worker.RENEWAL_INTERVAL = worker.RETRY_INTERVAL = store.LEASE_SECONDS / 10

def book(call):
    with open(os.environ["BOOK"], "a") as file:
        file.write(call + "\\n")

def pay(text: str) -> str:
    "Pay."
    book("pay " + text)
    return "paid " + text

@tool(idempotent=True)
def look(text: str) -> str:
    "Look."
    book("look " + text)
    return "saw " + text

def agent(name, *tools):
    return Agent(name, name, "openai/m", tools=tools, api_key="k", base_url=os.environ["PROVIDER"])

def enough(context):
    return context["again_output"].count("again") >= 3

flow = Workflow("flow", conditions={"enough": enough}, steps=[
    ParallelStep([[agent("left"), agent("below", look)], [agent("right", pay)]], "both"),
    LoopStep([agent("again")], until="enough", max_iterations=5),
    agent("last"),
])
"""


@dataclass
class Call:
    """A call in the provider's books."""

    id: str
    key: str
    """What was asked: the same in each attempt."""
    begun: float
    ended: float = 0.0
    """When the response was sent; 0 if the caller left before."""


class Provider(BackgroundServer):
    """A model provider that keeps books. Its answers follow from what it is asked."""

    def __init__(self) -> None:
        super().__init__()
        self.books: list[Call] = []
        self.answers = threading.Event()
        """While it is not set, calls wait."""
        self.answers.set()

    def application(self) -> web.Application:
        application = web.Application()
        application.router.add_post("/chat/completions", self.respond)
        return application

    async def respond(self, request: web.Request) -> web.Response:
        body = await request.json()
        messages = body["messages"]
        call = Call(os.urandom(8).hex(), json.dumps(messages), time.time())
        self.books.append(call)
        while not self.answers.is_set():  # noqa: ASYNC110 - it is set from another thread
            await asyncio.sleep(0.01)
        await asyncio.sleep(LATENCY * random.uniform(0.5, 1.5))
        response = web.json_response(
            completion(call.id, messages, body.get("tools"))
        )
        call.ended = time.time()
        return response


def completion(
    id: str, messages: list[dict[str, Any]], tools: list[Any] | None
) -> dict[str, Any]:
    """A call of the tool if there is one that was not called yet; else a text that names all that was asked."""
    digest = hashlib.sha256(json.dumps(messages).encode()).hexdigest()[:16]
    message: dict[str, Any] = {
        "role": "assistant",
        "content": f"{messages[0]['content']} {digest}",
    }
    if messages[0]["content"] == "again":
        message["content"] = (
            f"{messages[-1]['content'].rpartition('again_output')[2].count('again') * 'again '}again"
        )
    if tools and messages[-1]["role"] != "tool":
        function = {
            "name": tools[0]["function"]["name"],
            "arguments": json.dumps({"text": digest}),
        }
        message = {
            "role": "assistant",
            "tool_calls": [
                {"id": "c1", "type": "function", "function": function}
            ],
        }
    usage = {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15}
    choice = {
        "index": 0,
        "message": message,
        "finish_reason": "tool_calls" if "tool_calls" in message else "stop",
    }
    return {"id": id, "model": "m", "choices": [choice], "usage": usage}


@pytest.fixture
def provider() -> Iterator[Provider]:
    with Provider() as provider:
        yield provider


@dataclass
class Fleet:
    """Services with the same component on one database, and what was done to them."""

    start: Callable[[int], Process]
    ports: list[int]
    provider: Provider
    book: Path
    client: httpx.Client
    processes: list[Process] = field(default_factory=list[Process])
    kills: int = 0
    """Processes that were killed, or suspended for longer than their lease."""
    stops: int = 0
    """Processes that were stopped gracefully."""

    def begin(self, number: int) -> str:
        """Start a run at any of the services, as a client does that tries again, and return its id."""
        headers = {"idempotency-key": f"run-{number}"}
        return self.request(
            "POST", "/runs", json={"input": f"run-{number}."}, headers=headers
        ).json()["id"]

    def request(self, method: str, path: str, **options: Any) -> httpx.Response:
        """A response of any of the services, once one answers."""

        def answer() -> httpx.Response | None:
            url = f"http://127.0.0.1:{random.choice(self.ports)}{path}"
            try:
                response = self.client.request(method, url, **options)
            except httpx.TransportError:
                return None
            return None if response.status_code == 503 else response

        response = until(answer)
        assert response is not None
        return response.raise_for_status()

    def runs(self, *statuses: str) -> dict[str, dict[str, Any]]:
        """All runs with one of the statuses, by id."""
        found: dict[str, dict[str, Any]] = {}
        query: dict[str, Any] = {
            "limit": "200",
            "status": statuses,
            "fields": "result,problem,approval",
        }
        while True:
            page = self.request("GET", "/runs", params=query).json()
            found |= {run["id"]: run for run in page["runs"]}
            if page["next"] is None:
                return found
            query["cursor"] = page["next"]

    def workers(self) -> list[int]:
        """The processes that perform runs."""
        return [
            worker
            for process in self.processes
            for worker in self.workers_of(process)
        ]

    def workers_of(self, process: Process) -> list[int]:
        """The worker processes of a service."""
        return [
            int(child)
            for child in Path(
                f"/proc/{process.pid}/task/{process.pid}/children"
            )
            .read_text()
            .split()
        ]

    def kill_worker(self) -> None:
        """Kill one worker process at random; its service starts another."""
        self._signal(random.choice(until(self.workers)), signal.SIGKILL)
        self.kills += 1

    def stop_worker(self) -> None:
        """Stop one worker process at random gracefully, as a rollout does; its service starts another."""
        self._signal(random.choice(until(self.workers)), signal.SIGTERM)
        self.stops += 1

    def kill_service(self) -> None:
        """Kill a whole service at random, and start it again."""
        number = random.randrange(len(self.processes))
        self.kills += len(self.workers_of(self.processes[number]))
        os.killpg(self.processes[number].pid, signal.SIGKILL)
        self.processes[number] = self.start(self.ports[number])

    def suspend_worker(self, seconds: float) -> threading.Thread:
        """Suspend a worker process at random for some seconds; it goes on as if it had slept.

        Returns:
            A thread that ends once the process goes on.
        """
        worker = random.choice(until(self.workers))
        self._signal(worker, signal.SIGSTOP)
        self.kills += 1
        timer = threading.Timer(seconds, self._signal, [worker, signal.SIGCONT])
        timer.start()
        return timer

    @staticmethod
    def _signal(worker: int, number: signal.Signals) -> None:
        with contextlib.suppress(ProcessLookupError):  # it has ended meanwhile
            os.kill(worker, number)

    def restart(self, number: int) -> None:
        """End a service by SIGTERM while its calls wait for an answer, and start it again."""
        self.processes[number].send_signal(signal.SIGTERM)
        self.provider.answers.set()
        assert self.processes[number].wait(60) == 0
        self.processes[number] = self.start(self.ports[number])

    def wait_for_calls(self, count: int, begin: threading.Thread) -> bool:
        """Wait until so many model calls have been made; false if all runs end before."""

        def have_ended() -> bool:
            return not begin.is_alive() and not self.runs("queued", "running")

        until(lambda: len(self.provider.books) >= count or have_ended())
        return len(self.provider.books) >= count

    def finish(self, count: int) -> dict[str, dict[str, Any]]:
        """Wait until all runs have ended, resuming those that were interrupted, and return them by id."""

        def have_ended() -> bool:
            left = self.runs("queued", "running", "interrupted")
            for run_id, run in left.items():
                if run["status"] == "interrupted":
                    assert "'pay' of 'right'" in run["problem"]["detail"]
                    self.request("POST", f"/runs/{run_id}/resume")
            return not left

        until(have_ended, 120 + count / 5)
        return self.runs()

    def check(self, ids: list[str], ends: int = 0, beside: int = 0) -> int:
        """Every run has succeeded with the true result; the provider's books are the journals.

        Args:
            ids: The runs, in the order of their numbers.
            ends: How many processes were killed: a call that was in progress then may be made again.
            beside: Tool calls of other runs.

        Returns:
            How many runs another process has taken over.
        """
        ended = self.finish(len(ids))
        assert set(ended) == set(ids)
        assert Counter(run["status"] for run in ended.values()) == {
            "succeeded": len(ids)
        }
        journaled: dict[str, str] = {}
        for number, run_id in enumerate(ids):
            journaled |= dict.fromkeys(
                self._check_run(number, ended[run_id]), run_id
            )
        repeated = self._check_calls(journaled, ended)
        assert repeated <= IN_PROGRESS * ends
        counts = Counter(self.book.read_text().splitlines())
        assert len(counts) == 2 * len(ids) + beside
        moved = sum(run["attempt"] > 1 for run in ended.values())
        print(
            f"{len(ids)} runs, {ends} kills, {self.stops} stops, {repeated} model calls cut off,",
            end=" ",
        )
        print(
            f"{moved} runs moved, {counts.total() - len(counts)} tool calls repeated"
        )
        return moved

    def _check_run(self, number: int, run: dict[str, Any]) -> list[str]:
        """A run has its result, and its events add up to its usage; returns the ids of its model calls."""
        assert run["result"]["input"] == f"run-{number}."
        assert run["result"]["again_output"] == "again again again"
        events = self.events(run["id"])
        answers = [
            event["response"]["id"]
            for event in events
            if event["type"] == "model_call_finished"
        ]
        assert len(answers) == run["usage"]["model_calls"] == CALLS
        assert run["usage"]["tool_calls"] == 2
        assert run["usage"]["input_tokens"] == 10 * len(answers)
        return answers

    def _check_calls(
        self, journaled: dict[str, str], ended: dict[str, dict[str, Any]]
    ) -> int:
        """Of each call, the last one is recorded, and one is lost for each lost attempt at most; returns how many."""
        by_key: dict[str, list[Call]] = defaultdict(list)
        for call in self.provider.books:
            by_key[call.key].append(call)
        assert len(journaled) == len(by_key) == CALLS * len(ended)
        repeated = 0
        for calls in by_key.values():
            *lost, last = sorted(calls, key=lambda call: call.begun)
            assert last.id in journaled
            assert not journaled.keys() & {call.id for call in lost}
            assert len(lost) < ended[journaled[last.id]]["attempt"]
            repeated += len(lost)
        return repeated

    def events(self, run_id: str) -> list[dict[str, Any]]:
        """The events of an ended run, each of which has its number."""
        lines = self.request("GET", f"/runs/{run_id}/events").text.splitlines()
        data = [
            json.loads(line.partition(": ")[2])
            for line in lines
            if line.startswith("data: ")
        ][:-1]
        assert [event["seq"] for event in data] == list(range(len(data)))
        return data


MakeFleet = Callable[..., Fleet]


@pytest.fixture
def fleet(
    command: Command, address: Address, provider: Provider, tmp_path: Path
) -> Iterator[MakeFleet]:
    """`fleet(database, services, workers)` starts services; `lease` is the length of a lease in seconds."""
    (tmp_path / "component.py").write_text(COMPONENT)
    book = tmp_path / "book"
    client = httpx.Client(verify=NO_AUTHORITIES, timeout=30, trust_env=False)

    def make(
        database: str, services: int, workers: int, lease: float | None = None
    ) -> Fleet:
        variables = {
            "PODWRIGHT_RUNS_DATABASE": database,
            "PODWRIGHT_WORKERS": str(workers),
            "PODWRIGHT_SHUTDOWN_TIMEOUT": "10",
            "PROVIDER": provider.url,
            "BOOK": str(book),
        }
        if lease is not None:
            variables["LEASE_SECONDS"] = str(lease)

        def start(port: int) -> Process:
            arguments = (
                "serve",
                "component:flow",
                "--host",
                "127.0.0.1",
                "--port",
                str(port),
            )
            process = command(*arguments, cwd=tmp_path, **variables)
            address(process)
            discard_output(process)
            return process

        fleet = Fleet(
            start,
            [free_port() for _ in range(services)],
            provider,
            book,
            client,
        )
        fleet.processes = [start(port) for port in fleet.ports]
        return fleet

    yield make
    client.close()


@dataclass(frozen=True)
class Kills:
    """How many runs there are, where, and how often a process ends."""

    database: str
    services: int
    """Each with two worker processes."""
    runs: int
    between: int
    """Model calls between two ends."""
    lease: float
    """Seconds."""


@pytest.mark.parametrize(
    "form",
    [
        pytest.param(
            Kills("postgresql", services=2, runs=40, between=60, lease=3),
            id="postgresql",
        ),
        pytest.param(
            Kills("sqlite", services=1, runs=20, between=40, lease=3),
            id="sqlite",
        ),
        pytest.param(
            Kills("pooled", services=2, runs=40, between=60, lease=3),
            id="pooled",
        ),
        pytest.param(
            Kills("postgresql", services=2, runs=5000, between=400, lease=15),
            id="postgresql-long",
            marks=pytest.mark.proof,
        ),
        pytest.param(
            Kills("sqlite", services=1, runs=5000, between=400, lease=15),
            id="sqlite-long",
            marks=pytest.mark.proof,
        ),
    ],
)
def test_nothing_is_lost_when_processes_are_killed(
    fleet: MakeFleet, request: pytest.FixtureRequest, form: Kills
) -> None:
    """Processes are killed and stopped: every run ends well, and no call that had finished is made again."""
    database = request.getfixturevalue(f"{form.database}_database")
    found = fleet(database, form.services, workers=2, lease=form.lease)
    ends = [found.kill_worker, found.stop_worker]
    if form.services > 1:
        ends.append(found.kill_service)
    ids: list[str] = []
    begin = threading.Thread(
        target=lambda: ids.extend(
            found.begin(number) for number in range(form.runs)
        )
    )
    begin.start()
    suspended = found.suspend_worker(form.lease * 1.7)
    calls = form.between
    for end in itertools.cycle(ends):
        if not found.wait_for_calls(calls, begin):
            break
        end()
        calls += form.between
    suspended.join()
    assert found.kills >= 3
    found.check(ids, found.kills)


@dataclass(frozen=True)
class Outage:
    """How long the database is away, in seconds, and how many runs there are before it."""

    seconds: float
    runs: int
    lease: float
    """Seconds: less than the outage."""


@pytest.mark.parametrize(
    "form",
    [
        pytest.param(Outage(seconds=3, runs=20, lease=2), id="short"),
        pytest.param(
            Outage(seconds=20, runs=120, lease=15),
            id="long",
            marks=pytest.mark.proof,
        ),
    ],
)
def test_nothing_is_lost_when_the_database_is_away(
    fleet: MakeFleet, form: Outage
) -> None:
    """Its restart, and more time without it than a lease lasts, lose no run and repeat no call; `/run` goes on."""
    with serve_postgresql() as server:
        database = server.database()
        migrate(database_url(database))
        found = fleet(database, services=2, workers=1, lease=form.lease)
        ids = [found.begin(number) for number in range(form.runs // 2)]
        server.stop("immediate")
        server.start()
        ids += [
            found.begin(number) for number in range(form.runs // 2, form.runs)
        ]
        server.stop()
        away = time.monotonic()
        url = f"http://127.0.0.1:{found.ports[0]}"
        refused = plain_http.post(f"{url}/runs", json={"input": "x"})
        check_problem(refused, 503, "runs_unavailable")
        assert int(refused.headers["retry-after"]) > 0
        assert (
            plain_http.post(f"{url}/run", json={"input": "beside"}).status_code
            == 200
        )
        assert plain_http.get(f"{url}/ready").status_code == 200
        time.sleep(max(0.0, away + form.seconds - time.monotonic()))
        server.start()
        found.finish(form.runs)
        found.provider.books = [
            call for call in found.provider.books if "beside" not in call.key
        ]
        found.check(ids, beside=2)


def test_a_rolling_restart_moves_runs(
    fleet: MakeFleet, postgresql_database: str
) -> None:
    """Both services are restarted while their runs call models: every run ends well, and no call is made twice."""
    found = fleet(postgresql_database, services=2, workers=1)
    ids: list[str] = []
    for number in (0, 1):
        found.provider.answers.clear()
        before = len(found.provider.books)
        ids += [found.begin(len(ids) + each) for each in range(16)]
        until(lambda before=before: len(found.provider.books) > before + 16)
        found.restart(number)
    assert found.check(ids) > 0


def test_services_behind_a_pooler(
    fleet: MakeFleet, pooled_database: str
) -> None:
    """Services share the connections of a pooler: each request is answered at once, and no run is taken over."""
    found = fleet(pooled_database, services=2, workers=1)
    ids: list[str] = []
    for number in range(40):
        port = found.ports[number % 2]
        response = plain_http.post(
            f"http://127.0.0.1:{port}/runs", json={"input": f"run-{number}."}
        )
        assert response.status_code == 202, response.text
        ids.append(response.json()["id"])
    assert found.check(ids) == 0
