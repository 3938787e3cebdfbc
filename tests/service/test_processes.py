"""The processes of a service: one, or several workers."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import socket
import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.helpers import NO_AUTHORITIES, plain_http, until
from tests.service.support import (
    Address,
    Command,
    Process,
    check_end,
    wait_for_line,
)

from podwright_service.testing import Metrics, ModelStub

COMPONENT = """
import asyncio, os, pathlib
from podwright import Agent, ApprovalStep, FunctionModel, FunctionStep, ScriptedModel, Workflow

async def respond(request):
    text = request.messages[-1].text
    if text != 'pid':
        print('called', flush=True)
        while not pathlib.Path(text).exists():
            await asyncio.sleep(0.01)
    return str(os.getpid())

agent = Agent('agent', 'Do.', FunctionModel(respond))
flow = Workflow('flow', [Agent('first', 'Do.', ScriptedModel('one')), agent])

def note(input):
    with open('noted', 'a') as file:
        print(os.getpid(), file=file)
    return str(os.getpid())

asking = Workflow('asking', [ApprovalStep('{input}?', 'ask'), FunctionStep(note, {'input': '{input}'})])
"""


@pytest.fixture(params=["1", "2"], ids=["one process", "two processes"])
def workers(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture
def start(command: Command, tmp_path: Path) -> Command:
    """Starts a component of the module; a run of the agent waits for the file that its input names."""
    (tmp_path / "made.py").write_text(COMPONENT)

    def start(
        component: str = "agent", *options: str, **variables: str
    ) -> Process:
        arguments = (
            "serve",
            f"made:{component}",
            "--host",
            "127.0.0.1",
            *(options or ("--port", "0")),
        )
        return command(*arguments, cwd=tmp_path, **variables)

    return start


def run(url: str, text: str = "pid") -> httpx.Response:
    return plain_http.post(f"{url}/run", json={"input": text})


def children(process: Process) -> list[int]:
    """The worker processes."""
    return [
        int(pid)
        for pid in Path(f"/proc/{process.pid}/task/{process.pid}/children")
        .read_text()
        .split()
    ]


def begun(process: Process, address: Address, workers: str) -> str:
    """The URL of a service of which all processes have begun: while gunicorn forks one, that misses a signal."""
    url = address(process)
    if workers != "1":
        for _ in range(int(workers)):
            wait_for_line(process, "Application startup complete")
    return url


def draining(url: str) -> bool:
    """Whether all of several new connections reach a process that drains."""
    return all(
        plain_http.get(f"{url}/ready").status_code == 503 for _ in range(20)
    )


def metric(url: str, name: str, **labels: str) -> float:
    return Metrics(plain_http.get(f"{url}/metrics").text).get(
        f"podwright_{name}", **labels
    )


def test_a_signal_drains(
    start: Command, address: Address, tmp_path: Path, workers: str
) -> None:
    """Readiness fails at once; requests are served until a second signal ends the delay; active runs finish."""
    process = start(PODWRIGHT_DRAIN_DELAY="600", PODWRIGHT_WORKERS=workers)
    url = begun(process, address, workers)
    with (
        ThreadPoolExecutor() as pool,
        httpx.Client(verify=NO_AUTHORITIES, base_url=url, timeout=60) as kept,
    ):
        active = pool.submit(run, url, "open")
        wait_for_line(process, "called")
        assert kept.get("/ready").status_code == 200
        process.send_signal(signal.SIGTERM)
        until(lambda: draining(url))
        response = run(url)
        assert (response.status_code, response.headers["connection"]) == (
            200,
            "close",
        )
        assert kept.get("/health").headers["connection"] == "close"
        for pid in children(process) or [process.pid]:
            os.kill(pid, signal.SIGTERM)
        until(lambda: refused(url))
        (tmp_path / "open").touch()
        assert active.result().status_code == 200
        assert active.result().headers["connection"] == "close"
    check_end(process)


def refused(url: str) -> bool:
    try:
        plain_http.get(f"{url}/health")
    except httpx.TransportError:
        return True
    return False


@pytest.mark.parametrize("path", ["/run", "/run/stream"])
def test_a_run_beyond_the_shutdown_timeout(
    start: Command, address: Address, workers: str, path: str
) -> None:
    """A run that exceeds the shutdown time-out is cancelled, with a problem that says where its workflow resumes."""
    process = start(
        "flow", PODWRIGHT_SHUTDOWN_TIMEOUT="1", PODWRIGHT_WORKERS=workers
    )
    url = begun(process, address, workers)
    with ThreadPoolExecutor() as pool:
        active = pool.submit(
            plain_http.post, f"{url}{path}", json={"input": "x"}
        )
        wait_for_line(process, "called")
        process.send_signal(signal.SIGTERM)
        response = active.result()
    problem = json.loads(response.text.rpartition("data: ")[2])
    assert (problem["status"], problem["code"]) == (503, "run_cancelled")
    assert problem["run_id"] == response.headers["podwright-run-id"]
    assert (problem["context"]["first_output"], problem["resume_path"]) == (
        "one",
        [1],
    )
    check_end(process)


def test_an_invalid_component(start: Command, workers: str) -> None:
    """An invalid component is one error, with exit code 1."""
    process = start(PODWRIGHT_MODEL="offline/ecco", PODWRIGHT_WORKERS=workers)
    assert check_end(process, 1).count("Suggestion:") == 1


def test_a_port_in_use(start: Command, workers: str) -> None:
    """A port in use is an error that names it, with exit code 1."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        process = start("agent", "--port", port, PODWRIGHT_WORKERS=workers)
        output = check_end(process, 1)
    assert "in use" in output
    assert port in output


def test_a_dead_worker_is_replaced(start: Command, address: Address) -> None:
    """A worker that is killed is replaced; its counters remain, and its gauges are dropped."""
    process = start(PODWRIGHT_WORKERS="2", PODWRIGHT_MAX_RUNS="1")
    url = address(process)
    until(lambda: len(children(process)) == 2)
    assert run(url).status_code == 200
    with ThreadPoolExecutor(8) as pool:
        active = [pool.submit(run, url, "never") for _ in range(8)]
        until(
            lambda: (
                metric(url, "runs_in_progress") + metric(url, "runs_waiting")
                == 8
            )
        )
        dead = children(process)
        for pid in dead:
            os.kill(pid, signal.SIGKILL)
        assert all(
            isinstance(request.exception(), httpx.HTTPError)
            for request in active
        )
    until(
        lambda: (
            not set(dead) & set(children(process))
            and len(children(process)) == 2
        )
    )
    until(
        lambda: (
            metric(url, "runs_in_progress") + metric(url, "runs_waiting") == 0
        )
    )
    assert metric(url, "runs_total", status="ok") == 1
    assert int(run(url).json()["output"]) in children(process)
    process.send_signal(signal.SIGTERM)
    check_end(process)


def test_workers_end_after_the_first_process(
    start: Command, address: Address, tmp_path: Path
) -> None:
    """If it is killed, they listen no longer, whatever the drain delay is, finish their runs, and end."""
    process = start(PODWRIGHT_WORKERS="2", PODWRIGHT_DRAIN_DELAY="600")
    url = begun(process, address, "2")
    with ThreadPoolExecutor() as pool:
        active = pool.submit(run, url, "open")
        wait_for_line(process, "called")
        os.kill(process.pid, signal.SIGKILL)
        until(lambda: refused(url))
        port = httpx.URL(url).port
        assert port is not None
        socket.create_server(("127.0.0.1", port)).close()
        (tmp_path / "open").touch()
        assert active.result().status_code == 200
    # when all of them have closed their output
    check_end(process, -signal.SIGKILL)


def test_a_run_goes_on_once_in_all_processes(
    start: Command, address: Address, tmp_path: Path, workers: str
) -> None:
    """Whichever process stopped it, each can have a run go on, and only one request does."""
    process = start("asking", PODWRIGHT_WORKERS=workers)
    url = begun(process, address, workers)
    noted: list[str] = []
    while len(noted) < 10 or len(set(noted)) < int(workers):
        assert len(noted) < 200, noted
        stopped = run(url, "x").json()
        body = {
            "inputs": stopped["context"],
            "resume_path": stopped["resume_path"],
        }

        def go_on(_: int, body: dict[str, Any] = body) -> httpx.Response:
            return plain_http.post(f"{url}/run", json=body)

        with ThreadPoolExecutor(4) as threads:
            responses = list(threads.map(go_on, range(6)))
        codes = Counter(each.json().get("code") for each in responses)
        assert codes == {None: 1, "state_used": 5}
        before = len(noted)
        noted = (tmp_path / "noted").read_text().split()
        assert len(noted) == before + 1


def test_workers_are_replaced_after_their_requests(
    start: Command, address: Address, tmp_path: Path
) -> None:
    """With `worker_max_requests`, workers are replaced; their runs finish, and their counters are kept."""
    process = start(PODWRIGHT_WORKERS="2", PODWRIGHT_WORKER_MAX_REQUESTS="10")
    url = address(process)
    pids = list[str]()

    def are_replaced() -> bool:
        """Whether one more request makes it four processes that responded."""
        with contextlib.suppress(
            httpx.TransportError
        ):  # a worker that stops may reset a new connection
            pids.append(run(url).json()["output"])
        return len(set(pids)) == 4

    with ThreadPoolExecutor() as pool:
        active = pool.submit(run, url, "open")
        wait_for_line(process, "called")
        until(are_replaced)
        assert len(pids) <= 100
        (tmp_path / "open").touch()
        assert active.result().status_code == 200
    until(lambda: metric(url, "runs_total", status="ok") >= len(pids) + 1)
    process.send_signal(signal.SIGTERM)
    check_end(process)


def test_the_folder_of_metrics_is_emptied(
    start: Command, address: Address, tmp_path: Path
) -> None:
    """Metrics that an earlier service left in the folder are removed; an invalid folder is an error."""
    folder = tmp_path / "metrics"
    folder.mkdir()
    (folder / "counter_1.db").write_bytes(b"left over")
    process = start(PODWRIGHT_WORKERS="2", PROMETHEUS_MULTIPROC_DIR=str(folder))
    url = address(process)
    assert run(url).status_code == 200
    until(lambda: metric(url, "runs_total") == 1)
    (tmp_path / "file").touch()
    assert "file" in check_end(
        start(
            PODWRIGHT_WORKERS="2",
            PROMETHEUS_MULTIPROC_DIR=str(tmp_path / "file"),
        ),
        1,
    )


def in_use(process: Process) -> set[Path]:
    """The folders that a process has for metrics."""
    links = Path(f"/proc/{process.pid}/fd").iterdir()
    files = [link.readlink() for link in links]
    return {file.parent for file in files if file.name == "in-use"}


def replace_workers(process: Process) -> None:
    """Kill all workers, and wait until others serve."""
    for pid in children(process):
        os.kill(pid, signal.SIGKILL)
        wait_for_line(process, "Application startup complete")


def test_replaced_workers_leave_no_files_behind(
    start: Command, address: Address, tmp_path: Path
) -> None:
    """A worker goes on with the files of one that has ended: neither they nor the counters change when it does.

    Source: https://github.com/prometheus/client_python/issues/568
    """
    folder = tmp_path / "metrics"
    process = start(PODWRIGHT_WORKERS="2", PROMETHEUS_MULTIPROC_DIR=str(folder))
    url = begun(process, address, "2")
    answered = threading.Event()
    counts: list[float] = []

    def read() -> None:
        while not answered.is_set():
            # a connection to a worker that is killed
            with contextlib.suppress(httpx.TransportError):
                counts.append(metric(url, "runs_total", status="ok"))

    def size() -> tuple[int, int]:
        files = list(folder.glob("*.db"))
        return len(files), sum(file.stat().st_size for file in files)

    sizes: list[tuple[int, int]] = []
    with ThreadPoolExecutor() as pool:
        reading = pool.submit(read)
        for _ in range(25):
            pids = set[str]()
            while len(pids) < 2:
                pids.add(run(url).json()["output"])
            sizes.append(size())
            replace_workers(process)
        answered.set()
        reading.result()
    assert counts == sorted(counts)
    assert len(set(sizes)) == 1
    process.send_signal(signal.SIGTERM)
    check_end(process)


def test_a_reload_shares_no_files(
    start: Command, address: Address, tmp_path: Path
) -> None:
    """The workers before and after a reload, which run at the same time, have files of their own."""
    folder = tmp_path / "metrics"
    process = start(PODWRIGHT_WORKERS="2", PROMETHEUS_MULTIPROC_DIR=str(folder))
    url = begun(process, address, "2")
    numbers: list[int] = []
    for runs in range(1, 6):
        assert run(url).status_code == 200
        until(lambda runs=runs: metric(url, "runs_total", status="ok") == runs)
        before = set(children(process))
        process.send_signal(signal.SIGHUP)
        until(
            lambda before=before: (
                not before & set(children(process))
                and len(children(process)) == 2
            )
        )
        numbers.append(len(list(folder.glob("counter_*.db"))))
    assert metric(url, "runs_total", status="ok") == 5
    # the first process, and at most two generations
    assert max(numbers) <= 1 + 2 + 2


def test_folders_of_killed_services_are_removed(
    start: Command, address: Address
) -> None:
    """In memory, they would outlast the container; those of services that run stay."""
    killed = start(PODWRIGHT_WORKERS="2")
    running = start(PODWRIGHT_WORKERS="2")
    for process in (killed, running):
        address(process)
    abandoned = in_use(killed)
    # two for metrics, one for the states that were used
    assert len(abandoned) == 3
    os.killpg(killed.pid, signal.SIGKILL)
    killed.wait()
    process = start(PODWRIGHT_WORKERS="2")
    url = address(process)
    assert run(url).status_code == 200
    assert not any(folder.exists() for folder in abandoned)
    kept = in_use(running) | in_use(process)
    assert all(folder.exists() for folder in kept)
    process.send_signal(signal.SIGTERM)
    check_end(process)
    assert not any(folder.exists() for folder in kept - in_use(running))


def test_a_folder_of_metrics_that_is_gone(
    start: Command, address: Address, tmp_path: Path
) -> None:
    """Workers serve all the same, those that began with it and those that begin; the log says that metrics are lost."""
    folder = tmp_path / "metrics"
    process = start(PODWRIGHT_WORKERS="2", PROMETHEUS_MULTIPROC_DIR=str(folder))
    url = begun(process, address, "2")
    shutil.rmtree(folder)
    for _ in range(10):
        # a series that no worker has yet
        assert plain_http.get(f"{url}/new").status_code == 404
        assert plain_http.get(f"{url}/metrics").status_code == 200
    for pid in children(process):
        os.kill(pid, signal.SIGKILL)
        wait_for_line(process, "are lost")
        wait_for_line(process, "Application startup complete")
    assert {run(url).status_code for _ in range(10)} == {200}
    assert plain_http.get(f"{url}/metrics").status_code == 200
    process.send_signal(signal.SIGTERM)
    check_end(process)


def test_the_litellm_client_works_in_workers(
    start: Command, address: Address, tmp_path: Path
) -> None:
    """A component with the LiteLLM client, which is loaded before the workers are forked, runs in each of them."""
    with ModelStub("a word", *["a word"] * 7) as stub:
        agent = f"Agent('agent', 'Do.', 'hosted_vllm/qwen', api_key='k', base_url='{stub.url}/v1')"
        (tmp_path / "made.py").write_text(
            f"from podwright import Agent\nagent = {agent}\n"
        )
        process = start(PODWRIGHT_WORKERS="2")
        url = address(process)
        for _ in range(8):
            assert run(url, "x").json() == {"output": "a word"}


def test_a_service_runs_in_any_thread(
    command: Command, address: Address
) -> None:
    """`Service.run` works outside of the main thread."""
    code = (
        "import threading\nfrom podwright import Agent\nfrom podwright_service import Service\n"
        "service = Service(Agent('a', 'Do.', 'offline/echo'))\n"
        "thread = threading.Thread(target=service.run, args=('127.0.0.1', 0), daemon=True)\n"
        "thread.start()\nthread.join()\n"
    )
    assert run(address(command(code=code)), "x").json() == {"output": "Echo: x"}
