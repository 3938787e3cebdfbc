"""Kept conversations while the processes that take their turns are killed: none is lost, none mixed, none twice."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.helpers import NO_AUTHORITIES, until
from tests.ports import free_port
from tests.service.support import Address, Command, Process, discard_output

COMPONENT = """
import asyncio
from podwright import Agent, FunctionModel, RunContext, tool
from podwright.testing import ToolCall
from podwright_service.background import store, worker

store.LEASE_SECONDS = 3.0
worker.RENEWAL_INTERVAL = worker.RETRY_INTERVAL = 0.3

@tool(idempotent=True)
def count(context: RunContext) -> int:
    "Count the turns."
    context.state["turns"] = context.state.get("turns", 0) + 1
    return context.state["turns"]

async def answer(request):
    await asyncio.sleep(0.02)
    last = request.messages[-1]
    if last.role != "tool":
        return [ToolCall.of("count")]
    said = [each.text for each in request.messages if each.role == "user"]
    return f"{last.text}: {' '.join(said)}"

component = Agent("repeater", "Repeat.", FunctionModel(answer), tools=[count])
"""


@dataclass(frozen=True)
class Form:
    """How many turns of how many sessions, and how often a process is killed."""

    turns: int
    sessions: int
    kills: int
    services: int


class Services:
    """Processes with one component on one database."""

    def __init__(self, start: Callable[[int], Process], count: int) -> None:
        self._start = start
        self.ports = [free_port() for _ in range(count)]
        self._processes = [start(port) for port in self.ports]
        self.client = httpx.Client(verify=NO_AUTHORITIES, timeout=120)

    def request(self, method: str, path: str, **options: Any) -> httpx.Response:
        """A response of any of them, as a client has it that tries again as the problems say."""

        def answer() -> httpx.Response | None:
            url = f"http://127.0.0.1:{random.choice(self.ports)}{path}"
            try:
                response = self.client.request(method, url, **options)
            except httpx.TransportError:
                return None
            if response.status_code == 503:
                return None
            if response.status_code == 409:
                code = response.json()["code"]
                assert code in (
                    "conversation_changed",
                    "idempotency_in_progress",
                ), response.text
                return None
            return response

        response = until(answer, 240)
        assert response is not None
        return response.raise_for_status()

    def take_turn(self, session: str, text: str, kind: str) -> str:
        """The answer to a turn: of a request, of a stream, or of a background run."""
        body = {"input": text, "session": session}
        headers = {"idempotency-key": f"{session} {text}"}
        path = {"run": "/run", "stream": "/run/stream", "background": "/runs"}
        while True:
            response = self.request(
                "POST", path[kind], json=body, headers=headers
            )
            if kind == "run":
                return response.json()["output"]
            if kind == "stream":
                name, _, data = response.text.rstrip().rpartition("data: ")
                if name.endswith("event: result\n"):
                    return httpx.Response(200, text=data).json()["output"]
                continue
            return self._result(response.headers["location"])

    def _result(self, path: str) -> str:
        def ended() -> dict[str, Any] | None:
            run = self.request("GET", path).json()
            return run if run["ended_at"] else None

        run = until(ended, 240)
        assert run is not None
        assert run["status"] == "succeeded", run
        return run["result"]["output"]

    def kill_one(self) -> None:
        """Kill one of them, and start it again."""
        number = random.randrange(len(self.ports))
        process = self._processes[number]
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        self._processes[number] = self._start(self.ports[number])


Serving = Callable[[str, int], Services]


@pytest.fixture
def services(
    command: Command, address: Address, tmp_path: Path
) -> Iterator[Serving]:
    (tmp_path / "talk.py").write_text(COMPONENT)
    made: list[Services] = []

    def serve(database: str, count: int) -> Services:
        def start(port: int) -> Process:
            process = command(
                "serve",
                "talk:component",
                "--host",
                "127.0.0.1",
                "--port",
                str(port),
                cwd=tmp_path,
                PYTHONPATH=str(tmp_path),
                PODWRIGHT_RUNS_DATABASE=database,
                PODWRIGHT_CONVERSATIONS="true",
                PODWRIGHT_MAX_WAITING="2000",
            )
            address(process)
            discard_output(process)
            return process

        made.append(Services(start, count))
        return made[-1]

    yield serve
    for each in made:
        each.client.close()


@pytest.mark.parametrize(
    "form",
    [
        pytest.param(Form(60, sessions=6, kills=3, services=2), id="short"),
        pytest.param(
            Form(1000, sessions=50, kills=12, services=3),
            id="long",
            marks=pytest.mark.proof,
        ),
    ],
)
def test_no_turn_is_lost_when_processes_are_killed(
    services: Serving, database: str, form: Form
) -> None:
    """Each turn is in its conversation once, and has all those before it; so has the state."""
    fleet = services(database, form.services)
    kinds = ("run", "stream", "background")
    jobs = [
        (f"s{number % form.sessions}", f"t{number}", random.choice(kinds))
        for number in range(form.turns)
    ]
    answers: list[str] = []
    lock = threading.Lock()

    def take(job: tuple[str, str, str]) -> tuple[str, str]:
        answer = fleet.take_turn(*job)
        with lock:
            answers.append(answer)
        return job[0], answer

    with ThreadPoolExecutor(min(form.turns, 100)) as pool:
        taken = [pool.submit(take, job) for job in jobs]
        for kill in range(1, form.kills + 1):
            goal = kill * form.turns // (form.kills + 1)
            until(lambda goal=goal: len(answers) >= goal, 240)
            fleet.kill_one()
        results = [each.result() for each in taken]
    check(fleet, jobs, results)


def check(
    fleet: Services,
    jobs: list[tuple[str, str, str]],
    results: list[tuple[str, str]],
) -> None:
    """Compare what was kept with what was asked for and answered."""
    for session in {job[0] for job in jobs}:
        shown = fleet.request("GET", f"/conversations/{session}").json()
        said = [
            message["content"]
            for message in shown["messages"]
            if message["role"] == "user"
        ]
        asked = [job[1] for job in jobs if job[0] == session]
        assert Counter(said) == Counter(asked)
        assert shown["turns"] == len(asked)
        answered = {answer for name, answer in results if name == session}
        assert answered == {
            f"{number}: {' '.join(said[:number])}"
            for number in range(1, len(said) + 1)
        }
