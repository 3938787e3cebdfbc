"""One process and several: they drain, end and recover alike. Each test starts the command itself."""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import http.client
import os
import signal
import socket
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest
import uvicorn
from prometheus_client import CollectorRegistry
from prometheus_client.multiprocess import MultiProcessCollector
from prometheus_client.parser import text_string_to_metric_families
from tests.library.upstream import completion, reply, upstream

from podwright import Agent
from podwright_service.app import create_app
from podwright_service.draining import DrainingServer
from podwright_service.settings import Settings

Command = Callable[..., subprocess.Popen[str]]
Address = Callable[[subprocess.Popen[str]], str]

MADE = """
import asyncio, os, subprocess, time
from podwright import Agent, FunctionModel

counter = None

def text(request):
    return request.messages[-1].content

async def answer(request):
    said = text(request)
    if 'wait' in said:
        print('asked', flush=True)
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            print('cancelled', flush=True)
            raise
    if 'moment' in said:
        print('asked', flush=True)
        await asyncio.sleep(1)
    if 'gate' in said:
        print('asked', flush=True)
        while not os.path.exists('open'):
            await asyncio.sleep(0.01)
    if 'long' in said:
        await asyncio.sleep(8)
    if 'hang' in said:
        print('asked', flush=True)
        time.sleep(60)
    if 'orphan' in said:
        subprocess.run(['sh', '-c', 'sleep 0.1 & sleep 0.1 & sleep 0.1 &'], check=True)
    if 'count' in said:
        global counter
        if counter is None:
            from prometheus_client import CollectorRegistry, Counter
            counter = Counter('seen', 'Requests.', registry=CollectorRegistry())
        counter.inc()
    return str(os.getpid())

agent = Agent('agent', 'Do.', FunctionModel(answer))
"""


@pytest.fixture(params=["one", "several"])
def mode(request: pytest.FixtureRequest) -> dict[str, str]:
    """The variables of one process, and of several."""
    return {"WEB_CONCURRENCY": "2"} if request.param == "several" else {}


@pytest.fixture
def start(command: Command, tmp_path: Path) -> Command:
    """Starts the component above on a free port."""
    (tmp_path / "made.py").write_text(MADE)

    def started(**options: Any) -> subprocess.Popen[str]:
        arguments = () if "code" in options else ("serve", "made:agent", "--port", "0", "--host", "127.0.0.1")
        return command(*arguments, cwd=tmp_path, **options)

    return started


def run(url: str, text: str, **options: Any) -> httpx.Response:
    return httpx.post(f"{url}/run", json={"input": text}, timeout=30, **options)


def until(check: Callable[[], Any], seconds: float = 30) -> Any:
    end = time.monotonic() + seconds
    while not (found := check()):
        assert time.monotonic() < end, "it did not happen in time"
        time.sleep(0.02)
    return found


def line(process: subprocess.Popen[str], wanted: str) -> str:
    """Reads what a process says up to a line with some text."""
    assert process.stdout is not None
    for said in process.stdout:
        if wanted in said:
            return said
    raise AssertionError(f"it never said {wanted!r}")


def children(pid: int) -> list[int]:
    try:
        return [int(one) for one in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except OSError:
        return []


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def answered(url: str, path: str = "/ready", *statuses: int) -> bool:
    """Whether there is an answer, with one of some statuses."""
    with contextlib.suppress(httpx.TransportError):
        return httpx.get(f"{url}{path}", timeout=30).status_code in statuses
    return False


def each_worker(process: subprocess.Popen[str], url: str, mode: dict[str, str], *, closing: bool = False) -> None:
    """Wait until each process that serves has answered; `closing`, that it closes the connection."""
    count = 2 if mode else 1
    waited = set(until(lambda: pids if len(pids := children(process.pid) or [process.pid]) == count else None))

    def heard() -> bool:
        answer = run(url, "x")
        assert answer.status_code == 200
        if (answer.headers.get("connection") == "close") is closing:
            waited.discard(int(answer.json()["output"]))
        return not waited

    until(heard)


def ended(process: subprocess.Popen[str], code: int = 0) -> str:
    output, _ = process.communicate(timeout=30)
    assert process.returncode == code, output
    assert "Traceback" not in output
    return output


def stopped(process: subprocess.Popen[str]) -> None:
    """Ends a process whose delay nobody waits for."""
    process.send_signal(signal.SIGQUIT)
    process.wait(timeout=30)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_signal_drains(start: Command, address: Address, mode: dict[str, str], number: signal.Signals) -> None:
    """Unready at once, still serving with `connection: close` for the delay, then deaf, and exit code 0."""
    process = start(PODWRIGHT_DRAIN_DELAY="4", **mode)
    url = address(process)
    with httpx.Client(base_url=url, timeout=20) as kept:
        each_worker(process, url, mode)
        assert kept.get("/ready").status_code == 200
        process.send_signal(number)
        until(lambda: httpx.get(f"{url}/ready", timeout=30).status_code == 503, 3)
        assert httpx.get(f"{url}/health", timeout=30).status_code == 200
        each_worker(process, url, mode, closing=True)  # the master may not have told all of them when one is unready
        assert kept.get("/health").headers["connection"] == "close"
    ended(process)
    with pytest.raises(httpx.ConnectError):
        httpx.get(f"{url}/health")


def test_a_run_under_way_is_told_to_close_its_connection(
    start: Command, address: Address, mode: dict[str, str], tmp_path: Path
) -> None:
    """A request that came before the signal is answered in full, and its connection is not kept."""
    process = start(PODWRIGHT_DRAIN_DELAY="30", **mode)
    url = address(process)
    each_worker(process, url, mode)
    with concurrent.futures.ThreadPoolExecutor() as pool:
        asking = pool.submit(run, url, "gate")
        line(process, "asked")
        process.send_signal(signal.SIGTERM)
        each_worker(process, url, mode, closing=True)
        (tmp_path / "open").touch()
        answer = asking.result()
    assert (answer.status_code, answer.headers["connection"]) == (200, "close")
    stopped(process)


def test_a_stream_under_way_keeps_its_connection(
    start: Command, address: Address, mode: dict[str, str], tmp_path: Path
) -> None:
    """Its head has told of no close, so none comes: a next request on it is answered, and told to be the last."""
    process = start(PODWRIGHT_DRAIN_DELAY="30", **mode)
    url = address(process)
    each_worker(process, url, mode)
    connection = http.client.HTTPConnection(url.removeprefix("http://"), timeout=30)
    headers, body = {"content-type": "application/json"}, '{"input": "gate"}'
    connection.request("POST", "/run/stream", body, headers)
    answer = connection.getresponse()
    assert (answer.status, answer.getheader("connection")) == (200, None)
    line(process, "asked")
    process.send_signal(signal.SIGTERM)
    each_worker(process, url, mode, closing=True)
    (tmp_path / "open").touch()
    assert b"event: result" in answer.read()
    time.sleep(0.2)
    connection.request("POST", "/run", '{"input": "x"}', headers)
    answer = connection.getresponse()
    assert (answer.status, answer.getheader("connection")) == (200, "close")
    connection.close()
    stopped(process)


def test_a_refusal_while_draining_is_heard(start: Command, address: Address, mode: dict[str, str]) -> None:
    """Also by those who send all that they have before they read."""
    process = start(PODWRIGHT_DRAIN_DELAY="30", **mode)
    url = address(process)
    port = int(url.rpartition(":")[2])
    each_worker(process, url, mode)
    process.send_signal(signal.SIGTERM)
    each_worker(process, url, mode, closing=True)
    assert httpx.get(f"{url}/ready", timeout=30).status_code == 503
    head = b"POST /nowhere HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: 4000000\r\n\r\n"
    for _ in range(5):
        with socket.create_connection(("127.0.0.1", port), timeout=30) as connection:
            connection.sendall(head)
            connection.sendall(bytes(4_000_000))
            assert connection.recv(100).startswith(b"HTTP/1.1 404 ")
    stopped(process)


def test_a_run_that_takes_too_long_is_stopped(start: Command, address: Address, mode: dict[str, str]) -> None:
    """At the end of the shutdown time-out a run is answered with 503, and the exit code is 0."""
    process = start(PODWRIGHT_SHUTDOWN_TIMEOUT="1", PODWRIGHT_DRAIN_DELAY="0.5", **mode)
    url = address(process)
    with concurrent.futures.ThreadPoolExecutor() as pool:
        asking = pool.submit(run, url, "wait")
        line(process, "asked")
        process.send_signal(signal.SIGTERM)
        answer = asking.result()
    assert (answer.status_code, answer.json()["code"]) == (503, "run_cancelled")
    ended(process)


@pytest.mark.parametrize("text", ["wait", "hang"])
def test_a_second_signal_ends_at_once(start: Command, address: Address, mode: dict[str, str], text: str) -> None:
    """Whatever is under way, even a loop that hangs; the exit code tells the signal, and no process is left."""
    process = start(PODWRIGHT_DRAIN_DELAY="60", **mode)
    url = address(process)
    with concurrent.futures.ThreadPoolExecutor() as pool:
        asking = pool.submit(run, url, text)
        line(process, "asked")
        workers = children(process.pid)
        process.send_signal(signal.SIGINT)
        time.sleep(1)  # as fast as a person repeats it; within half a second it counts as the same one
        assert process.poll() is None
        until(lambda: insisted(process))
        # between the end of its own handling and its last moment, one more has its usual effect
        assert process.returncode in (128 + signal.SIGINT, -signal.SIGINT)
        with pytest.raises(httpx.HTTPError):
            asking.result()
    until(lambda: not any(alive(pid) for pid in workers))


def test_sigquit_ends_at_once(start: Command, address: Address, mode: dict[str, str]) -> None:
    """It waits for nothing, and no exit code makes an orderly end of it."""
    process = start(PODWRIGHT_DRAIN_DELAY="60", **mode)
    url = address(process)
    with concurrent.futures.ThreadPoolExecutor() as pool:
        asking = pool.submit(run, url, "wait")
        line(process, "asked")
        workers = children(process.pid)
        process.send_signal(signal.SIGQUIT)
        assert process.wait(timeout=30) in (-signal.SIGQUIT, 128 + signal.SIGQUIT)
        with pytest.raises(httpx.HTTPError):
            asking.result()
    until(lambda: not any(alive(pid) for pid in workers))


@pytest.mark.parametrize("moment", ["before", "after_in_parent"])
def test_a_signal_in_the_moment_of_a_fork_is_heard(command: Command, tmp_path: Path, moment: str) -> None:
    """What a handler raises in a hook of the fork is only printed, whichever thread was handed the signal."""
    # the pause is for a thread that is handed the signal: the main one blocks it
    hook = f"""
import signal, time

def interrupt():
    os.kill(os.getpid(), signal.SIGQUIT)
    time.sleep(0.1)

os.register_at_fork({moment}=interrupt)
"""
    (tmp_path / "made.py").write_text(MADE + hook)
    process = command("serve", "made:agent", "--port", "0", cwd=tmp_path, PODWRIGHT_WORKERS="2")
    output = ended(process, 128 + signal.SIGQUIT)
    assert "Exception ignored" not in output
    assert output.count("Booting worker") <= 1  # and it is not heard only when another worker is forked


def insisted(process: subprocess.Popen[str]) -> bool:
    """Tells it once more: a busy machine may have handed it the first signal only now."""
    process.send_signal(signal.SIGINT)
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(timeout=1)
    return process.returncode is not None


def test_a_signal_that_is_repeated_at_once_is_one(
    start: Command, address: Address, mode: dict[str, str], tmp_path: Path
) -> None:
    """A terminal, `timeout` and the like tell a process twice; it still drains."""
    process = start(PODWRIGHT_DRAIN_DELAY="1", **mode)
    url = address(process)
    each_worker(process, url, mode)
    with concurrent.futures.ThreadPoolExecutor() as pool:
        asking = pool.submit(run, url, "gate")
        line(process, "asked")
        for pid in (process.pid, process.pid, *children(process.pid)):
            os.kill(pid, signal.SIGTERM)
        until(lambda: not answered(url, "/ready", 200))  # it has heard of it: it is unready or already deaf
        (tmp_path / "open").touch()
        assert asking.result().status_code == 200
    ended(process)


def test_a_caller_who_leaves_cancels_the_run(start: Command, address: Address, mode: dict[str, str]) -> None:
    """Closing the connection of a plain request cancels its run within a moment."""
    process = start(**mode)
    host, port = address(process).removeprefix("http://").split(":")
    body = b'{"input": "wait"}'
    with socket.create_connection((host, int(port))) as caller:
        caller.sendall(
            b"POST /run HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n"
            b"content-length: %d\r\n\r\n%s" % (len(body), body)
        )
        line(process, "asked")
    left = time.monotonic()
    line(process, "cancelled")
    assert time.monotonic() - left < 20  # it would have taken a minute


def test_a_worker_that_dies_is_replaced(start: Command, address: Address) -> None:
    """After SIGKILL the others go on, and soon there are as many as before."""
    process = start(PODWRIGHT_WORKERS="2")
    url = address(process)
    first = until(lambda: pids if len(pids := children(process.pid)) == 2 else None)
    assert int(run(url, "x").json()["output"]) in first
    os.kill(first[0], signal.SIGKILL)
    now = until(lambda: pids if len(pids := children(process.pid)) == 2 and first[0] not in pids else None)
    seen = until(lambda: len({run(url, "x").json()["output"] for _ in range(20)} & {str(pid) for pid in now}) == 2)
    assert seen
    process.send_signal(signal.SIGTERM)
    ended(process)


def test_workers_do_not_outlive_their_master(start: Command, address: Address) -> None:
    """When the master is killed, its workers finish and leave."""
    process = start(PODWRIGHT_WORKERS="2")
    url = address(process)
    assert run(url, "x").status_code == 200
    workers = children(process.pid)
    process.kill()
    until(lambda: not any(alive(pid) for pid in workers))


def test_a_worker_that_left_passes_over_the_signal() -> None:
    """Between the end of its loop and that of its process, a worker that is replaced may still be told to stop."""
    app = create_app(Settings(), Agent("a", "Do.", "offline/echo"))
    config = uvicorn.Config(app, lifespan="on", log_config=None, ws="none")
    server = DrainingServer(config, Settings(), most_requests=1)
    with socket.create_server(("127.0.0.1", 0)) as listening:
        url = f"http://127.0.0.1:{listening.getsockname()[1]}"
        with concurrent.futures.ThreadPoolExecutor() as pool:
            serving = pool.submit(server.run, [listening])
            until(lambda: server.started)
            assert httpx.get(f"{url}/health", headers={"connection": "close"}).status_code == 200
            serving.result(timeout=60)
    assert app.state.health.state == "draining"
    server.drain()  # raises nothing


def test_a_worker_whose_loop_hangs_is_killed(command: Command, address: Address, tmp_path: Path) -> None:
    """Without heartbeats a worker is replaced, and says where it hung."""
    (tmp_path / "made.py").write_text(MADE)
    code = (
        "from podwright_service import Service, processes\nfrom made import agent\n"
        "processes._HANGS = 3\nService(agent).run('127.0.0.1', 0)\n"
    )
    process = command(code=code, cwd=tmp_path, PODWRIGHT_WORKERS="2", PYTHONPATH=str(tmp_path))
    url = address(process)
    until(lambda: len(children(process.pid)) == 2)
    before = set(children(process.pid))
    with concurrent.futures.ThreadPoolExecutor() as pool, contextlib.suppress(httpx.HTTPError):
        pool.submit(run, url, "hang").result()
    line(process, "in answer")  # of faulthandler's lines, the one that names the function
    until(lambda: len(children(process.pid)) == 2 and set(children(process.pid)) != before)
    until(lambda: answered(url, "/health", 200))  # three seconds are soon over for a healthy worker too


def test_workers_are_replaced_without_a_failed_request(start: Command, address: Address) -> None:
    """With `worker_max_requests`, kept connections are told to close, long runs finish, and others serve meanwhile."""
    process = start(PODWRIGHT_WORKERS="2", PODWRIGHT_WORKER_MAX_REQUESTS="40", PODWRIGHT_SHUTDOWN_TIMEOUT="1")
    url = address(process)
    seen: set[str] = set()

    def call(client: httpx.Client) -> None:
        for _ in range(60):
            answer = client.post("/run", json={"input": "x"})
            assert answer.status_code == 200
            seen.add(answer.json()["output"])

    with contextlib.ExitStack() as stack, concurrent.futures.ThreadPoolExecutor(6) as pool:
        long = [pool.submit(run, url, "long") for _ in range(2)]
        clients = [stack.enter_context(httpx.Client(base_url=url, timeout=30)) for _ in range(4)]
        until(lambda: list(pool.map(call, clients)) and len(seen) >= 5, 60)
        assert [one.result().status_code for one in long] == [200, 200]
    until(lambda: len(children(process.pid)) == 2)
    process.send_signal(signal.SIGTERM)
    ended(process)


def test_a_component_that_cannot_be_loaded_stops_the_start(
    start: Command, tmp_path: Path, mode: dict[str, str]
) -> None:
    """One message and exit code 1, however many processes were asked for."""
    process = start(PODWRIGHT_MODEL="offline/ecco", **mode)
    assert ended(process, 1).count("Suggestion:") == 1


@pytest.mark.parametrize(
    ("host", "text"), [("127.0.0.1", "address already in use"), ("nowhere.invalid", "no such host is known")]
)
def test_an_address_that_cannot_be_had_is_told(
    command: Command, newsroom: Path, mode: dict[str, str], host: str, text: str
) -> None:
    """A taken port and an unknown host end the start at once with one message and exit code 1."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        process = command("serve", str(newsroom / "writer"), "--host", host, "--port", port, **mode)
        output = ended(process, 1)
    assert f"Cannot listen on {host}:{port}: " in output
    assert text in output
    assert output.count("Suggestion:") == 1


def test_a_service_runs_in_any_thread(command: Command, address: Address) -> None:
    """`Service.run` serves from another thread than the main one; several processes need the main one."""
    code = (
        "import sys, threading\nfrom podwright import Agent\nfrom podwright_service import Service\n"
        "from podwright.errors import PodwrightError\n"
        "def serve():\n"
        "    try:\n        Service(Agent('a', 'Do.', 'offline/echo')).run('127.0.0.1', 0)\n"
        "    except PodwrightError as error:\n        print(error, flush=True)\n"
        "thread = threading.Thread(target=serve, daemon=True)\nthread.start()\nthread.join()\n"
    )
    assert run(address(command(code=code)), "x").json() == {"output": "Echo: x"}
    assert "main thread" in ended(command(code=code, PODWRIGHT_WORKERS="2"))


REORDERED = """
import queue, signal
from podwright_service import Service, processes
from made import agent

class Reordered(processes._Master):
    late = ()

    def signal(self, sig, frame):
        if sig == signal.SIGTTIN:
            self.late = (*self.late, sig)
        else:
            super().signal(sig, frame)

    def signal_chld(self, sig, frame):
        super().signal_chld(sig, frame)
        for one in self.late:
            super().signal(one, frame)
        self.late = ()

processes._Master = Reordered
Service(agent).run('127.0.0.1', 0)
"""


def test_a_worker_that_leaves_is_replaced_once(command: Command, address: Address, tmp_path: Path) -> None:
    """Also where the master hears of its end first: a busy machine hands signals over late, lowest number first."""
    (tmp_path / "made.py").write_text(MADE)
    variables = {"PODWRIGHT_WORKERS": "2", "PODWRIGHT_WORKER_MAX_REQUESTS": "5", "PYTHONPATH": str(tmp_path)}
    process = command(code=REORDERED, cwd=tmp_path, **variables)
    url, seen = address(process), set[str]()
    while len(seen) < 6:
        answer = run(url, "x", headers={"connection": "close"})
        seen.add(answer.json()["output"])
    until(lambda: len(children(process.pid)) == 2)
    time.sleep(2)  # in which a third would be started
    assert until(lambda: len(children(process.pid)) == 2)
    process.send_signal(signal.SIGTERM)
    ended(process)


TOLD_EARLY = """
import contextlib, os, signal
from podwright_service import Service, draining
from made import agent

before = draining.uvicorn.Server.startup

async def startup(self, sockets=None):
    with contextlib.suppress(FileExistsError):
        open("told", "x").close()  # once: a later signal would be a second one
        os.kill(os.getppid() if os.environ["PODWRIGHT_WORKERS"] == "2" else os.getpid(), signal.SIGTERM)
    while self._health.state != "draining":
        await draining.asyncio.sleep(0.01)
    await before(self, sockets)

draining.uvicorn.Server.startup = startup
Service(agent).run('127.0.0.1', 0)
"""


@pytest.mark.parametrize("workers", ["1", "2"])
def test_a_signal_in_the_middle_of_the_start_drains(
    command: Command, address: Address, tmp_path: Path, workers: str
) -> None:
    """Who connects by then is answered, for as long as the drain takes."""
    (tmp_path / "made.py").write_text(MADE)
    variables = {"PODWRIGHT_WORKERS": workers, "PODWRIGHT_DRAIN_DELAY": "60", "PYTHONPATH": str(tmp_path)}
    process = command(code=TOLD_EARLY, cwd=tmp_path, **variables)
    url = address(process)
    for _ in range(10):
        answer = run(url, "x", headers={"connection": "close"})
        assert (answer.status_code, answer.headers["connection"]) == (200, "close")
    assert httpx.get(f"{url}/ready", timeout=30).status_code == 503
    time.sleep(0.6)  # within half a second a signal is the same one again
    process.send_signal(signal.SIGTERM)
    ended(process, 128 + signal.SIGTERM)


def test_connections_that_cannot_be_taken_are_told(start: Command, address: Address, mode: dict[str, str]) -> None:
    """Without files left the log says so, once for each process; once there are some, callers are answered again."""
    process = start(under=("prlimit", "--nofile=40"), **mode)
    url = address(process)
    with contextlib.ExitStack() as stack:
        for _ in range(90):
            stack.enter_context(socket.create_connection(("127.0.0.1", int(url.rpartition(":")[2])), timeout=30))
        assert "Too many open files" in line(process, "Connections are dropped")
    until(lambda: answered(url, "/ready", 200))
    process.send_signal(signal.SIGTERM)
    ended(process)


@pytest.mark.parametrize("fault", ["a file", "a folder in it", "no room"])
def test_a_folder_for_metrics_that_is_of_no_use_is_told(start: Command, tmp_path: Path, fault: str) -> None:
    """One message and exit code 1, before a process is killed for writing where there is no room."""
    folder = tmp_path / "metrics"
    under: tuple[str, ...] = ()
    if fault == "a file":
        folder.touch()
    elif fault == "a folder in it":
        (folder / "x.db").mkdir(parents=True)
    else:
        under = ("prlimit", "--fsize=100000")
    process = start(under=under, PODWRIGHT_WORKERS="2", PROMETHEUS_MULTIPROC_DIR=str(folder))
    output = ended(process, 1)
    assert f"cannot be kept in '{folder}'" in output
    assert output.count("Suggestion:") == 1


def counted(folder: Path) -> float:
    registry = CollectorRegistry()
    MultiProcessCollector(registry, path=str(folder))
    return registry.get_sample_value("seen_total") or 0


def test_counters_outlive_the_workers(start: Command, address: Address, tmp_path: Path) -> None:
    """They are exact when workers are killed and replaced, in few files; a start in the same folder is at nothing."""
    folder = tmp_path / "metrics"
    variables = {"PODWRIGHT_WORKERS": "2", "PROMETHEUS_MULTIPROC_DIR": str(folder)}
    process = start(PODWRIGHT_WORKER_MAX_REQUESTS="20", **variables)
    url, seen = address(process), set[str]()

    def call(_: int) -> None:
        answer = client.post(f"{url}/run", json={"input": "count"}, headers={"connection": "close"})
        assert answer.status_code == 200
        seen.add(answer.json()["output"])

    client = httpx.Client(timeout=30)
    with client, concurrent.futures.ThreadPoolExecutor(4) as pool:
        list(pool.map(call, range(100)))
        calls = 100
        until(lambda: on_page(url, "http_requests_total", route="/run") == calls)  # it is counted after its answer
        os.kill(children(process.pid)[0], signal.SIGKILL)  # nothing is under way
        until(lambda: len(children(process.pid)) == 2)
        while len(seen) < 20 and calls < 4000:  # where much else is done, a replacement is long in coming
            list(pool.map(call, range(50)))
            calls += 50
            until(lambda: len(children(process.pid)) == 2)  # those that are replaced leave in their own time
    assert counted(folder) == calls
    until(lambda: on_page(url, "http_requests_total", route="/run") >= calls)
    assert on_page(url, "runs_total", status="ok") == on_page(url, "http_requests_total", route="/run") == calls
    assert on_page(url, "runs_in_progress") == on_page(url, "runs_waiting") == 0
    assert len(seen) > 19
    files = len(list(folder.glob("counter_*.db")))
    assert files < len(seen) / 1.5, f"{files} files of {len(seen)} workers"
    process.send_signal(signal.SIGTERM)
    ended(process)

    process = start(**variables)
    url = address(process)
    assert counted(folder) == on_page(url, "runs_total") == 0
    run(url, "count")
    assert counted(folder) == on_page(url, "runs_total") == 1


def on_page(url: str, name: str, **labels: str) -> float:
    """The sum of what the service's own page has for a name and some labels."""
    return sum(
        one.value
        for family in text_string_to_metric_families(httpx.get(f"{url}/metrics", timeout=30).text)
        for one in family.samples
        if one.name == f"podwright_{name}" and labels.items() <= one.labels.items()
    )


def test_the_page_forgets_what_a_killed_worker_had_under_way(start: Command, address: Address) -> None:
    """Every worker's page tells who runs and who waits in all of them; those of killed ones are gone from it."""
    process = start(PODWRIGHT_WORKERS="2", PODWRIGHT_MAX_RUNS="1")
    url = address(process)
    assert run(url, "x").status_code == 200
    with concurrent.futures.ThreadPoolExecutor(12) as pool:
        asking = [pool.submit(run, url, "wait") for _ in range(12)]
        counts = ("runs_in_progress", "runs_waiting")
        for _ in range(10):  # on connections of their own, so that both workers write one
            until(lambda: sum(on_page(url, name) for name in counts) == 12)
        assert 1 <= on_page(url, "runs_in_progress") <= 2
        for worker in children(process.pid):
            os.kill(worker, signal.SIGKILL)
        assert all(isinstance(one.exception(), httpx.HTTPError) for one in asking)
    until(lambda: [on_page(url, name) for name in counts] == [0, 0])
    assert on_page(url, "runs_total") == 1
    process.send_signal(signal.SIGTERM)
    ended(process)


def test_too_much_for_several_processes_is_refused(start: Command, address: Address) -> None:
    """Each answer is a run's or a 503 with Retry-After, and the page counts both over all workers."""
    process = start(PODWRIGHT_WORKERS="2", PODWRIGHT_MAX_RUNS="2", PODWRIGHT_MAX_WAITING="2")
    url = address(process)
    with concurrent.futures.ThreadPoolExecutor(40) as pool:
        answers = list(pool.map(lambda _: run(url, "moment"), range(80)))
    refused = [one for one in answers if one.status_code == 503]
    assert {one.status_code for one in answers} == {200, 503}
    assert all(int(one.headers["retry-after"]) >= 1 and one.json()["code"] == "overloaded" for one in refused)
    assert on_page(url, "runs_rejected_total") == len(refused)
    assert on_page(url, "runs_total", status="ok") == len(answers) - len(refused)
    until(lambda: on_page(url, "http_requests_total", route="/run") >= len(answers))
    assert on_page(url, "http_requests_total", route="/run") == len(answers)
    process.send_signal(signal.SIGTERM)
    ended(process)


def test_a_folder_for_metrics_is_made_and_removed(start: Command, address: Address, tmp_path: Path) -> None:
    """Without PROMETHEUS_MULTIPROC_DIR there is a fresh one; what a killed service left, the next one removes."""
    # in a place of its own: any service on this machine removes what was left in the usual one
    code = (
        "from podwright_service import Service, slots\nfrom made import agent\n"
        f"slots.MEMORY = {str(tmp_path)!r}\nService(agent).run('127.0.0.1', 0)\n"
    )

    def counting() -> tuple[subprocess.Popen[str], Path]:
        process = start(code=code, PODWRIGHT_WORKERS="2")
        run(address(process), "count")
        maps = "".join(Path(f"/proc/{pid}/maps").read_text() for pid in children(process.pid))
        # a worker that has counted nothing yet still holds the file of the first process
        [folder] = {Path(part).parent for part in maps.split() if part.endswith(".db") and "counter" in part}
        return process, folder

    killed, left = counting()
    workers = children(killed.pid)
    killed.kill()
    until(lambda: not any(alive(pid) for pid in workers))
    assert left.exists()
    process, folder = counting()
    assert folder.exists()
    assert not left.exists()
    process.send_signal(signal.SIGTERM)
    ended(process)
    assert not folder.exists()


@pytest.fixture
def as_init(start: Command) -> Command:
    """Starts the component as the first process of a process namespace, as in a container."""
    under = ("unshare", "--pid", "--fork", "--kill-child", "--mount-proc")
    if os.geteuid() != 0:
        under = (*under, "--map-root-user")
    if subprocess.run([*under, "true"], capture_output=True).returncode != 0:
        (pytest.fail if os.environ.get("CI") else pytest.skip)("this machine allows no process namespaces")
    return lambda **options: start(under=under, **options)


def test_the_first_process_drains(as_init: Command, address: Address, mode: dict[str, str]) -> None:
    """As PID 1, which has no default for a signal, it drains all the same, and ends with exit code 0."""
    process = as_init(PODWRIGHT_DRAIN_DELAY="60", **mode)
    url = address(process)
    until(lambda: answered(url, "/ready", 200))
    [init] = children(process.pid)
    os.kill(init, signal.SIGTERM)
    until(lambda: answered(url, "/ready", 503))
    assert run(url, "x").status_code == 200
    time.sleep(1)  # within half a second a second signal counts as the same one

    def told_again() -> bool:
        with contextlib.suppress(ProcessLookupError):
            os.kill(init, signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(timeout=1)
        return process.returncode is not None

    until(told_again)
    assert process.returncode == 128 + signal.SIGTERM


def test_the_first_process_buries_what_tools_leave_behind(
    as_init: Command, address: Address, mode: dict[str, str]
) -> None:
    """Processes whose parents are gone do not stay as zombies; those that the service waits for keep their codes."""
    process = as_init(PODWRIGHT_DRAIN_DELAY="0", **mode)
    url = address(process)
    [init] = children(process.pid)

    def below(pid: int) -> list[int]:
        return [one for child in children(pid) for one in (child, *below(child))]

    own = 3 if mode else 1
    until(lambda: len(below(init)) == own)  # the workers come one after the other
    assert run(url, "orphan").status_code == 200  # it checks an exit code
    until(lambda: len(below(init)) == own)  # zombies are among them
    os.kill(init, signal.SIGTERM)
    ended(process)


def test_the_first_process_can_be_stopped_while_it_loads(as_init: Command, tmp_path: Path) -> None:
    """SIGTERM ends it while the component is still loaded; nobody has to wait for SIGKILL."""
    (tmp_path / "made.py").write_text("import time\nprint('loading', flush=True)\ntime.sleep(60)\n")
    process = as_init()
    line(process, "loading")
    [init] = children(process.pid)
    os.kill(init, signal.SIGTERM)
    assert process.wait(timeout=60) == 128 + signal.SIGTERM


def test_a_script_as_the_first_process(
    command: Command, address: Address, as_init: Command, tmp_path: Path, mode: dict[str, str]
) -> None:
    """`Service.run` in a script that is PID 1 drains on a signal and returns, in the first process only."""
    (tmp_path / "made.py").write_text(
        MADE + "from podwright_service import Service\nService(agent).run('127.0.0.1', 0)\nprint('returned')\n"
    )
    process = as_init(code="import made", **mode)
    url = address(process)
    until(lambda: httpx.get(f"{url}/ready", timeout=30).status_code == 200)
    [init] = children(process.pid)
    os.kill(init, signal.SIGTERM)
    assert ended(process).count("returned") == 1


async def test_litellm_survives_the_fork(start: Command, address: Address, tmp_path: Path) -> None:
    """A component on the wide lane, loaded before the workers are forked, runs in each of them."""
    async with upstream() as provider:
        provider.answers([reply(completion("a word"))])
        (tmp_path / "made.py").write_text(
            "from podwright import Agent\nfrom podwright.models import Connection\n"
            "from podwright.models.litellm import LiteLLMModel\nimport litellm\n"
            f"model = LiteLLMModel('hosted_vllm/qwen', Connection('k', {provider.url!r}))\n"
            "agent = Agent('agent', 'Do.', model)\n"
        )
        process = start(PODWRIGHT_WORKERS="2", LITELLM_LOCAL_MODEL_COST_MAP="True")
        url = await asyncio.to_thread(address, process)
        async with httpx.AsyncClient(timeout=60) as client:
            for _ in range(8):  # each on a connection of its own, which any worker may take
                got = await client.post(f"{url}/run", json={"input": "x"}, headers={"connection": "close"})
                assert (got.status_code, got.json()) == (200, {"output": "a word"})
