"""One process and several: they drain, stop and recover alike."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families
from tests.service.support import check_problem, until

from podwright_service.testing import ModelStub

Start = Callable[..., subprocess.Popen[str]]
Address = Callable[[subprocess.Popen[str]], str]

COMPONENT = """
import asyncio, os, pathlib
from podwright import Agent, FunctionModel, ScriptedModel, Workflow

async def answer(request):
    text = request.messages[-1].content
    if text != 'pid':
        print('called', flush=True)
        while not pathlib.Path(text).exists():
            await asyncio.sleep(0.01)
    return str(os.getpid())

agent = Agent('agent', 'Do.', FunctionModel(answer))
flow = Workflow('flow', [Agent('first', 'Do.', ScriptedModel('one')), agent])
"""


@pytest.fixture(params=["1", "2"], ids=["one process", "two processes"])
def workers(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture
def start(command: Start, tmp_path: Path) -> Start:
    """Starts the service of the agent, which waits for a file that its input names."""
    (tmp_path / "made.py").write_text(COMPONENT)

    def started(component: str = "agent", **variables: str) -> subprocess.Popen[str]:
        arguments = ("serve", f"made:{component}", "--port", "0", "--host", "127.0.0.1")
        return command(*arguments, cwd=tmp_path, **variables)

    return started


def run(url: str, text: str = "pid") -> httpx.Response:
    return httpx.post(f"{url}/run", json={"input": text}, timeout=60)


def wait_for_call(process: subprocess.Popen[str]) -> None:
    assert process.stdout is not None
    assert any("called" in line for line in process.stdout)


def children(process: subprocess.Popen[str]) -> list[int]:
    """The worker processes."""
    return [int(pid) for pid in Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()]


def draining(url: str) -> bool:
    """Whether each of several new connections leads to a process that drains."""
    return all(httpx.get(f"{url}/ready", timeout=30).status_code == 503 for _ in range(20))


def check_end(process: subprocess.Popen[str], code: int = 0) -> str:
    output, _ = process.communicate(timeout=60)
    assert process.returncode == code, output
    assert "Traceback" not in output
    return output


def metric(url: str, name: str, **labels: str) -> float:
    """The sum of the samples with a name and some labels."""
    return sum(
        sample.value
        for family in text_string_to_metric_families(httpx.get(f"{url}/metrics", timeout=30).text)
        for sample in family.samples
        if sample.name == f"podwright_{name}" and labels.items() <= sample.labels.items()
    )


def test_a_signal_drains(start: Start, address: Address, tmp_path: Path, workers: str) -> None:
    """Readiness fails at once; for the delay requests are served and connections closed; active runs finish."""
    process = start(PODWRIGHT_DRAIN_DELAY="3", PODWRIGHT_WORKERS=workers)
    url = address(process)
    with ThreadPoolExecutor() as pool, httpx.Client(base_url=url, timeout=60) as kept:
        active = pool.submit(run, url, "open")
        wait_for_call(process)
        assert kept.get("/ready").status_code == 200
        process.send_signal(signal.SIGTERM)
        until(lambda: draining(url), 2.5)
        response = run(url)
        assert (response.status_code, response.headers["connection"]) == (200, "close")
        assert kept.get("/health").headers["connection"] == "close"
        until(lambda: refused(url))
        (tmp_path / "open").touch()
        assert active.result().status_code == 200
        assert active.result().headers["connection"] == "close"
    check_end(process)


def refused(url: str) -> bool:
    try:
        httpx.get(f"{url}/health", timeout=30)
    except httpx.TransportError:
        return True
    return False


def test_a_run_that_takes_too_long_is_cancelled(start: Start, address: Address, workers: str) -> None:
    """After the shutdown time-out a run is answered 503 with where its workflow resumes, and the exit code is 0."""
    process = start("flow", PODWRIGHT_SHUTDOWN_TIMEOUT="1", PODWRIGHT_WORKERS=workers)
    url = address(process)
    with ThreadPoolExecutor() as pool:
        active = pool.submit(httpx.post, f"{url}/run", json={"input": "x"}, timeout=60)
        wait_for_call(process)
        process.send_signal(signal.SIGTERM)
        problem = check_problem(active.result(), 503, "run_cancelled")
    assert problem["run_id"] == active.result().headers["podwright-run-id"]
    assert (problem["context"]["first_output"], problem["resume_path"]) == ("one", [1])
    check_end(process)


def test_a_second_signal_ends_the_delay(start: Start, address: Address) -> None:
    """Whoever stops the service by hand need not wait for the drain delay."""
    process = start(PODWRIGHT_DRAIN_DELAY="600")
    url = address(process)
    process.send_signal(signal.SIGINT)
    until(lambda: draining(url))
    process.send_signal(signal.SIGINT)
    check_end(process)


def test_a_component_that_cannot_be_served_stops_the_start(start: Start, workers: str) -> None:
    """One message and exit code 1, however many processes were configured."""
    process = start(PODWRIGHT_MODEL="offline/ecco", PODWRIGHT_WORKERS=workers)
    assert check_end(process, 1).count("Suggestion:") == 1


def test_a_port_in_use_stops_the_start(command: Start, newsroom: Path, workers: str) -> None:
    """A port that is taken ends the start with exit code 1 and a line that says so."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        arguments = ("--host", "127.0.0.1", "--port", str(taken.getsockname()[1]))
        process = command("serve", str(newsroom / "writer"), *arguments, PODWRIGHT_WORKERS=workers)
        assert "in use" in check_end(process, 1)


def test_a_dead_worker_is_replaced(start: Start, address: Address) -> None:
    """Its counters remain, its gauges are dropped, and the others serve."""
    process = start(PODWRIGHT_WORKERS="2", PODWRIGHT_MAX_RUNS="1")
    url = address(process)
    until(lambda: len(children(process)) == 2)
    assert run(url).status_code == 200
    with ThreadPoolExecutor(8) as pool:
        active = [pool.submit(run, url, "never") for _ in range(8)]
        until(lambda: metric(url, "runs_in_progress") + metric(url, "runs_waiting") == 8)
        dead = children(process)
        for pid in dead:
            os.kill(pid, signal.SIGKILL)
        assert all(isinstance(request.exception(), httpx.HTTPError) for request in active)
    until(lambda: not set(dead) & set(children(process)) and len(children(process)) == 2)
    until(lambda: metric(url, "runs_in_progress") + metric(url, "runs_waiting") == 0)
    assert metric(url, "runs_total", status="ok") == 1
    assert int(run(url).json()["output"]) in children(process)
    process.send_signal(signal.SIGTERM)
    check_end(process)


def test_workers_are_replaced_after_their_requests(start: Start, address: Address) -> None:
    """With `worker_max_requests` new workers take over, and the counters include those of the old ones."""
    process = start(PODWRIGHT_WORKERS="2", PODWRIGHT_WORKER_MAX_REQUESTS="10")
    url, pids, count = address(process), set[str](), 0
    while len(pids) < 5:
        response = None
        with contextlib.suppress(httpx.TransportError):  # a worker that stops may reset a new connection
            response = httpx.post(f"{url}/run", json={"input": "pid"}, headers={"connection": "close"}, timeout=60)
        if response is not None:
            pids.add(response.json()["output"])
            count += 1
    until(lambda: metric(url, "runs_total", status="ok") >= count)
    process.send_signal(signal.SIGTERM)
    check_end(process)


def test_metrics_start_at_zero(start: Start, address: Address, tmp_path: Path) -> None:
    """A folder for metrics that another service has used is emptied first; one that cannot be used stops the start."""
    variables = {"PODWRIGHT_WORKERS": "2", "PROMETHEUS_MULTIPROC_DIR": str(tmp_path / "metrics")}
    for _ in range(2):
        process = start(**variables)
        url = address(process)
        run(url)
        until(lambda: metric(url, "runs_total") == 1)  # noqa: B023 - called within the loop
        process.send_signal(signal.SIGTERM)
        check_end(process)
    (tmp_path / "file").touch()
    assert "file" in check_end(start(**{**variables, "PROMETHEUS_MULTIPROC_DIR": str(tmp_path / "file")}), 1)


def test_the_litellm_client_works_in_workers(start: Start, address: Address, tmp_path: Path) -> None:
    """A component that LiteLLM serves, loaded before the workers are forked, runs in each of them."""
    with ModelStub("a word", *["a word"] * 7) as stub:
        agent = f"Agent('agent', 'Do.', 'hosted_vllm/qwen', api_key='k', base_url='{stub.url}/v1')"
        (tmp_path / "made.py").write_text(f"from podwright import Agent\nagent = {agent}\n")
        process = start(PODWRIGHT_WORKERS="2")
        url = address(process)
        for _ in range(8):
            assert run(url, "x").json() == {"output": "a word"}


def test_a_service_runs_in_any_thread(command: Start, address: Address) -> None:
    """`Service.run` serves from another thread than the main one."""
    code = (
        "import threading\nfrom podwright import Agent\nfrom podwright_service import Service\n"
        "service = Service(Agent('a', 'Do.', 'offline/echo'))\n"
        "thread = threading.Thread(target=service.run, args=('127.0.0.1', 0), daemon=True)\n"
        "thread.start()\nthread.join()\n"
    )
    assert run(address(command(code=code)), "x").json() == {"output": "Echo: x"}


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_service_run_returns(command: Start, address: Address, number: signal.Signals) -> None:
    """`Service(component, title).run(host, port)` blocks until a signal, then returns."""
    code = (
        "from podwright import Agent\nfrom podwright_service import Service\n"
        "Service(Agent('a', 'Do.', 'offline/echo'), title='T').run(host='127.0.0.1', port=0)\n"
        "print('returned')\n"
    )
    process = command(code=code)
    url = address(process)
    assert httpx.get(f"{url}/info", timeout=30).json()["title"] == "T"
    process.send_signal(number)
    assert "returned\n" in check_end(process)
