"""Background runs while their processes are killed, restarted and cut off from the database.

`PROOF=1` runs the long form.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
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
from tests.service.support import Address, Command, Process, check_problem, discard_output

from podwright_service.background.database import database_url, migrate

PROOF = bool(os.environ.get("PROOF"))
RUNS = 5000 if PROOF else 500
LATENCY = 0.04
"""Seconds that the model takes to answer."""
IN_PROGRESS = 32
"""Most calls that a process makes at once: 16 runs with two branches."""

COMPONENT = """
import os, time
from podwright import Agent, LoopStep, ParallelStep, Workflow, tool

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


@dataclass
class Provider:
    """A model provider that keeps books. Its answers follow from what it is asked."""

    url: str = ""
    books: list[Call] = field(default_factory=list[Call])

    async def respond(self, request: web.Request) -> web.Response:
        body = await request.json()
        messages = body["messages"]
        call = Call(os.urandom(8).hex(), json.dumps(messages), time.time())
        self.books.append(call)
        await asyncio.sleep(LATENCY * random.uniform(0.5, 1.5))
        response = web.json_response(completion(call.id, messages, body.get("tools")))
        call.ended = time.time()
        return response


def completion(id: str, messages: list[dict[str, Any]], tools: list[Any] | None) -> dict[str, Any]:
    """A call of the tool if there is one that was not called yet; else a text that names all that was asked."""
    digest = hashlib.sha256(json.dumps(messages).encode()).hexdigest()[:16]
    message: dict[str, Any] = {"role": "assistant", "content": f"{messages[0]['content']} {digest}"}
    if messages[0]["content"] == "again":
        message["content"] = f"{messages[-1]['content'].rpartition('again_output')[2].count('again') * 'again '}again"
    if tools and messages[-1]["role"] != "tool":
        function = {"name": tools[0]["function"]["name"], "arguments": json.dumps({"text": digest})}
        message = {"role": "assistant", "tool_calls": [{"id": "c1", "type": "function", "function": function}]}
    usage = {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15}
    choice = {"index": 0, "message": message, "finish_reason": "tool_calls" if "tool_calls" in message else "stop"}
    return {"id": id, "model": "m", "choices": [choice], "usage": usage}


@pytest.fixture
def provider() -> Iterator[Provider]:
    provider, started, stopped = Provider(), threading.Event(), asyncio.Event()
    loop = asyncio.new_event_loop()

    async def serve() -> None:
        app = web.Application()
        app.router.add_post("/v1/chat/completions", provider.respond)
        runner = web.AppRunner(app, handler_cancellation=True)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", port := free_port())
        await site.start()
        provider.url = f"http://127.0.0.1:{port}/v1"
        started.set()
        await stopped.wait()
        await runner.cleanup()

    thread = threading.Thread(target=lambda: loop.run_until_complete(serve()))
    thread.start()
    started.wait(30)
    yield provider
    loop.call_soon_threadsafe(stopped.set)
    thread.join()
    loop.close()


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
    """Processes that were killed."""
    stops: int = 0
    """Processes that were stopped gracefully."""

    def begin(self, number: int) -> str:
        """Start a run at any of the services, as a client does that tries again, and return its id."""
        headers = {"idempotency-key": f"run-{number}"}
        return self.request("POST", "/runs", json={"input": f"run-{number}."}, headers=headers).json()["id"]

    def request(self, method: str, path: str, **options: Any) -> httpx.Response:
        """A response of any of the services, once one answers."""
        while True:
            with contextlib.suppress(httpx.TransportError):
                url = f"http://127.0.0.1:{random.choice(self.ports)}{path}"
                response = self.client.request(method, url, **options)
                if response.status_code != 503:
                    return response.raise_for_status()
            time.sleep(0.1)

    def runs(self, *statuses: str) -> dict[str, dict[str, Any]]:
        """All runs with one of the statuses, by id."""
        found, query = dict[str, dict[str, Any]](), {"limit": "200", "status": statuses}
        while True:
            page = self.request("GET", "/runs", params=query).json()
            found |= {run["id"]: run for run in page["runs"]}
            if page["next"] is None:
                return found
            query["cursor"] = page["next"]

    def workers(self) -> list[int]:
        """The processes that perform runs."""
        return [worker for process in self.processes for worker in self.workers_of(process)]

    def workers_of(self, process: Process) -> list[int]:
        """The worker processes of a service."""
        return [int(child) for child in Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()]

    def kill_worker(self) -> None:
        """Kill one worker process at random; its service starts another."""
        if workers := self.workers():
            with contextlib.suppress(ProcessLookupError):
                os.kill(random.choice(workers), signal.SIGKILL)
                self.kills += 1

    def stop_worker(self) -> None:
        """Stop one worker process at random gracefully, as a rollout does; its service starts another."""
        if workers := self.workers():
            with contextlib.suppress(ProcessLookupError):
                os.kill(random.choice(workers), signal.SIGTERM)
                self.stops += 1

    def suspend_worker(self, seconds: float) -> None:
        """Suspend a worker process at random for some seconds, longer than its lease; it goes on as if it had slept."""
        worker = random.choice(until(self.workers))
        os.kill(worker, signal.SIGSTOP)
        self.kills += 1
        threading.Timer(seconds, self._go_on, [worker]).start()

    @staticmethod
    def _go_on(worker: int) -> None:
        with contextlib.suppress(ProcessLookupError):  # it was killed meanwhile
            os.kill(worker, signal.SIGCONT)

    def kill_service(self, number: int) -> None:
        """Kill a whole service, and start it again."""
        self.kills += len(self.workers_of(self.processes[number]))
        os.killpg(self.processes[number].pid, signal.SIGKILL)
        self.processes[number] = self.start(self.ports[number])

    def restart(self, number: int) -> None:
        """End a service by SIGTERM, and start it again."""
        self.processes[number].send_signal(signal.SIGTERM)
        assert self.processes[number].wait(60) == 0
        self.processes[number] = self.start(self.ports[number])

    def finish(self) -> dict[str, dict[str, Any]]:
        """Wait until all runs have ended, resuming those that were interrupted, and return them by id."""
        deadline = time.monotonic() + 120 + RUNS / 5
        while left := self.runs("queued", "running", "interrupted"):
            assert time.monotonic() < deadline, Counter(run["status"] for run in left.values())
            for run_id, run in left.items():
                if run["status"] == "interrupted":
                    assert "'pay' of 'right'" in run["problem"]["detail"]
                    self.request("POST", f"/runs/{run_id}/resume")
            time.sleep(0.5)
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
        ended = self.finish()
        assert set(ended) == set(ids)
        assert Counter(run["status"] for run in ended.values()) == {"succeeded": len(ids)}
        journaled = dict[str, str]()
        for number, run_id in enumerate(ids):
            run = ended[run_id]
            assert run["result"]["input"] == f"run-{number}."
            assert run["result"]["again_output"] == "again again again"
            events = self.events(run_id)
            answers = [event["response"]["id"] for event in events if event["type"] == "model_call_finished"]
            assert len(answers) == run["usage"]["model_calls"] == 1 + 2 + 2 + 3 + 1
            assert run["usage"]["tool_calls"] == 2
            assert run["usage"]["input_tokens"] == 10 * len(answers)
            journaled |= dict.fromkeys(answers, run_id)
        by_key = defaultdict[str, list[Call]](list)
        for call in self.provider.books:
            by_key[call.key].append(call)
        repeated = 0
        assert len(journaled) == len(by_key) == 9 * len(ids)
        for calls in by_key.values():
            *lost, last = sorted(calls, key=lambda call: call.begun)
            assert last.id in journaled
            for call in lost:
                assert call.id not in journaled
            assert len(lost) < ended[journaled[last.id]]["attempt"]
            repeated += len(lost)
        assert repeated <= IN_PROGRESS * ends
        counts = Counter(self.book.read_text().splitlines())
        assert len(counts) == 2 * len(ids) + beside
        moved, again = sum(run["attempt"] > 1 for run in ended.values()), counts.total() - len(counts)
        print(f"{len(ids)} runs, {ends} kills, {self.stops} stops, {repeated} model calls cut off,", end=" ")
        print(f"{moved} runs moved, {again} tool calls repeated")
        return moved

    def events(self, run_id: str) -> list[dict[str, Any]]:
        """The events of an ended run, each of which has its number."""
        lines = self.request("GET", f"/runs/{run_id}/events").text.splitlines()
        data = [json.loads(line.partition(": ")[2]) for line in lines if line.startswith("data: ")][:-1]
        assert [event["seq"] for event in data] == list(range(len(data)))
        return data


@pytest.fixture
def fleet(
    command: Command, address: Address, provider: Provider, tmp_path: Path
) -> Iterator[Callable[[str, int, int], Fleet]]:
    """`fleet(database, services, workers)` starts services."""
    (tmp_path / "component.py").write_text(COMPONENT)
    book, client = tmp_path / "book", httpx.Client(verify=NO_AUTHORITIES, timeout=30, trust_env=False)

    def make(database: str, services: int, workers: int) -> Fleet:
        def start(port: int) -> Process:
            variables = {"PODWRIGHT_RUNS_DATABASE": database, "PROVIDER": provider.url, "BOOK": str(book)}
            variables |= {"PODWRIGHT_WORKERS": str(workers), "PODWRIGHT_SHUTDOWN_TIMEOUT": "10"}
            arguments = ("serve", "component:flow", "--host", "127.0.0.1", "--port", str(port))
            process = command(*arguments, cwd=tmp_path, **variables)
            address(process)
            discard_output(process)
            return process

        fleet = Fleet(start, [free_port() for _ in range(services)], provider, book, client)
        fleet.processes = [start(port) for port in fleet.ports]
        return fleet

    yield make
    client.close()


@pytest.mark.parametrize(
    ("database", "services", "workers", "count"), [("postgresql", 2, 2, RUNS), ("sqlite", 1, 2, RUNS if PROOF else 100)]
)
def test_nothing_is_lost_when_processes_are_killed(
    fleet: Callable[..., Fleet],
    request: pytest.FixtureRequest,
    database: str,
    services: int,
    workers: int,
    count: int,
) -> None:
    """Processes are killed and stopped: every run ends well, and no call that had finished is made again."""
    found = fleet(request.getfixturevalue(f"{database}_database"), services, workers)
    ids = list[str]()
    begin = threading.Thread(target=lambda: ids.extend(found.begin(number) for number in range(count)))
    begin.start()
    found.suspend_worker(25)
    while begin.is_alive() or found.runs("queued", "running"):
        time.sleep(random.uniform(0.5, 1.5))
        if services > 1 and random.random() < 0.1:
            found.kill_service(random.randrange(services))
        elif random.random() < 0.5:
            found.stop_worker()
        else:
            found.kill_worker()
    found.check(ids, found.kills)


def test_nothing_is_lost_when_the_database_is_away(fleet: Callable[..., Fleet]) -> None:
    """Its restart and 20 seconds without it delay runs; none is lost, no call is made again, `/run` goes on."""
    with serve_postgresql() as server:
        database = server.database()
        migrate(database_url(database))
        found = fleet(database, 2, 1)
        ids = [found.begin(number) for number in range(60)]
        server.stop("immediate")
        server.start()
        ids += [found.begin(number) for number in range(60, 120)]
        server.stop()
        away = time.monotonic()
        url = f"http://127.0.0.1:{found.ports[0]}"
        refused = plain_http.post(f"{url}/runs", json={"input": "x"}, timeout=30)
        check_problem(refused, 503, "runs_unavailable")
        assert int(refused.headers["retry-after"]) > 0
        assert plain_http.post(f"{url}/run", json={"input": "beside"}, timeout=30).status_code == 200
        assert plain_http.get(f"{url}/ready", timeout=30).status_code == 200
        time.sleep(max(0.0, away + 20 - time.monotonic()))
        server.start()
        found.finish()
        found.provider.books = [call for call in found.provider.books if "beside" not in call.key]
        found.check(ids, beside=2)


def test_a_rolling_restart_moves_runs(fleet: Callable[..., Fleet], postgresql_database: str) -> None:
    """Both services are restarted under load: every run ends well, and no call is made twice."""
    found = fleet(postgresql_database, 2, 1)
    ids = list[str]()
    begin = threading.Thread(target=lambda: ids.extend(found.begin(number) for number in range(150)))
    begin.start()
    for number in (0, 1):
        time.sleep(1)
        found.restart(number)
    begin.join()
    assert found.check(ids) > 0
