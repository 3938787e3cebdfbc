"""Two replicas behind nginx, restarted one after the other under load."""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import signal
import subprocess
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import aiohttp
import httpx
import pytest
from tests.helpers import plain_http, skip, until
from tests.ports import free_port
from tests.service.support import Address, Command, Process, discard_output


@dataclass(frozen=True)
class Form:
    """How often replicas are restarted, and how many requests are sent meanwhile."""

    restarts: int
    per_restart: int
    """Fewest requests during one restart."""
    clients: int
    pause: float
    """Seconds between two requests of a client."""


def short(restarts: int) -> Form:
    return Form(restarts, per_restart=200, clients=4, pause=0.05)


LONG = Form(restarts=20, per_restart=1000, clients=8, pause=0.02)
PROPAGATION = 1.0
"""Seconds until the load balancer knows that a replica is not ready; about one for a Service in Kubernetes."""
DELAY = 5.0
"""Seconds of `drain_delay`: longer than that, also on a busy machine."""

MADE = """
import asyncio
from podwright import Agent, FunctionModel

async def respond(request):
    await asyncio.sleep(0.02)
    return 'done'

agent = Agent('agent', 'Do.', FunctionModel(respond))
"""

# A request is sent to one replica and is not retried with another one, as with kube-proxy.
NGINX = """
daemon off;
worker_processes 1;
pid {folder}/nginx.pid;
error_log {folder}/error.log;
events {{ worker_connections 1024; }}
http {{
    access_log off;
    client_body_temp_path {folder}/body; proxy_temp_path {folder}/proxy; fastcgi_temp_path {folder}/fastcgi;
    uwsgi_temp_path {folder}/uwsgi; scgi_temp_path {folder}/scgi;
    upstream replicas {{ {servers} keepalive 16; }}
    server {{
        listen 127.0.0.1:{port};
        location / {{
            proxy_pass http://replicas;
            proxy_http_version 1.1;
            proxy_set_header Connection "";
            proxy_next_upstream off;
        }}
    }}
}}
"""


class Replica:
    """A service in a process with its own port."""

    def __init__(self, process: Process, url: str) -> None:
        self._process, self.url = process, url

    def stop(self) -> None:
        self._process.send_signal(signal.SIGTERM)
        assert self._process.wait(60) == 0


class Balancer:
    """nginx, and a thread that polls readiness and reconfigures nginx a second later, as Kubernetes does."""

    def __init__(self, folder: Path, replicas: list[Replica]) -> None:
        self.port = free_port()
        self._folder, self.replicas = folder, replicas
        self.known = {replica.url for replica in replicas}
        self._write()
        self._nginx = subprocess.Popen(
            ["nginx", "-p", str(folder), "-c", str(folder / "nginx.conf")]
        )
        self._done = threading.Event()
        self._watching = threading.Thread(target=self._watch)
        self._watching.start()

    def close(self) -> None:
        self._done.set()
        self._watching.join()
        self._nginx.terminate()
        self._nginx.wait(timeout=20)

    def _watch(self) -> None:
        while not self._done.wait(0.1):
            ready = {
                replica.url
                for replica in list(self.replicas)
                if _ready(replica.url)
            }
            if ready and ready != self.known:
                self._done.wait(PROPAGATION)
                self._write(ready)
                self._nginx.send_signal(signal.SIGHUP)
                self.known = ready

    def _write(self, ready: set[str] | None = None) -> None:
        servers = " ".join(
            f"server {url.removeprefix('http://')} max_fails=0;"
            for url in ready or self.known
        )
        text = NGINX.format(
            folder=self._folder, servers=servers, port=self.port
        )
        (self._folder / "nginx.conf").write_text(text)


def _ready(url: str) -> bool:
    try:
        return plain_http.get(f"{url}/ready", timeout=5).status_code == 200
    except httpx.HTTPError:
        return False


class Load:
    """Clients that send one request after the other, each on its own connection, and count the failures."""

    def __init__(self, port: int, form: Form) -> None:
        self.sent = 0
        self.failed: list[str] = []
        self._form = form
        self._due = 0
        self._url = f"http://127.0.0.1:{port}/run"
        self._done = threading.Event()
        self._thread = threading.Thread(
            target=lambda: asyncio.run(self._send())
        )
        self._thread.start()

    def wait_for_restart(self) -> None:
        """Wait until the requests of one more restart have been sent."""
        self._due += self._form.per_restart
        until(lambda: self.sent >= self._due)

    def stop(self) -> None:
        self._done.set()
        self._thread.join()

    async def _send(self) -> None:
        async with aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(force_close=True)
        ) as session:
            await asyncio.gather(
                *(self._call(session) for _ in range(self._form.clients))
            )

    async def _call(self, session: aiohttp.ClientSession) -> None:
        while not self._done.is_set():
            self.sent += 1
            await asyncio.sleep(self._form.pause)
            try:
                async with session.post(
                    self._url, json={"input": "x"}
                ) as response:
                    text = await response.text()
                    if response.status != 200:
                        self.failed.append(f"{response.status} {text[:200]}")
            except aiohttp.ClientError as error:
                self.failed.append(repr(error))


@pytest.fixture(autouse=True)
def nginx() -> None:
    if not shutil.which("nginx"):
        skip("nginx is missing; `make tools` installs it")


Restarted = Callable[..., Load]


@pytest.fixture
def restarted(
    command: Command, address: Address, tmp_path: Path
) -> Iterator[Restarted]:
    """`restarted(form, …)` restarts the replicas one after the other under load, and returns the load."""
    (tmp_path / "made.py").write_text(MADE)

    def start(**variables: str) -> Replica:
        process = command(
            "serve",
            "made:agent",
            "--host",
            "127.0.0.1",
            "--port",
            "0",
            cwd=tmp_path,
            **variables,
        )
        url = address(process)
        discard_output(process)
        return Replica(process, url)

    with contextlib.ExitStack() as stack:

        def restart(form: Form, **variables: str) -> Load:
            replicas = [start(**variables) for _ in range(2)]
            until(lambda: all(_ready(replica.url) for replica in replicas))
            balancer = Balancer(tmp_path, replicas)
            stack.callback(balancer.close)
            until(lambda: _ready(f"http://127.0.0.1:{balancer.port}"))
            load = Load(balancer.port, form)
            stack.callback(load.stop)
            for number in range(form.restarts):
                replicas[number % 2].stop()
                replicas[number % 2] = start(**variables)
                until(
                    lambda: (
                        {replica.url for replica in replicas} == balancer.known
                    )
                )
                load.wait_for_restart()
            load.stop()
            return load

        yield restart


@pytest.mark.parametrize(
    ("workers", "form"),
    [
        pytest.param(1, short(restarts=2), id="1-short"),
        pytest.param(2, short(restarts=1), id="2-short"),
        pytest.param(1, LONG, id="1-long", marks=pytest.mark.proof),
        pytest.param(2, LONG, id="2-long", marks=pytest.mark.proof),
    ],
)
def test_a_rolling_restart_loses_no_request(
    restarted: Restarted, workers: int, form: Form
) -> None:
    """With a drain delay that is longer than the load balancer's reaction, no request fails."""
    load = restarted(
        form, PODWRIGHT_DRAIN_DELAY=str(DELAY), PODWRIGHT_WORKERS=str(workers)
    )
    print(
        f"\nprocesses: {workers}, restarts: {form.restarts}, requests: {load.sent}, failed: {len(load.failed)}"
    )
    assert load.failed == []
    assert load.sent >= form.per_restart * form.restarts


@pytest.mark.parametrize(
    "form",
    [
        pytest.param(short(restarts=1), id="short"),
        pytest.param(LONG, id="long", marks=pytest.mark.proof),
    ],
)
def test_without_the_delay_requests_are_lost(
    restarted: Restarted, form: Form
) -> None:
    """Without a drain delay, requests fail until the load balancer reacts, so the test above can fail."""
    load = restarted(form, PODWRIGHT_DRAIN_DELAY="0")
    print(
        f"\nwithout the delay, restarts: {form.restarts}, requests: {load.sent}, failed: {len(load.failed)}"
    )
    assert load.failed
