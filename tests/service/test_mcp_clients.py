"""`POST /mcp`, called by the official clients for Node and Python, by the inspector, and behind a load balancer."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx2
import pytest
from mcp import Client
from mcp.client.streamable_http import streamable_http_client
from mcp_types import TextContent
from tests.helpers import environment, skip, until
from tests.ports import free_port
from tests.service.background_support import FLOW
from tests.service.support import (
    Address,
    Command,
    Gate,
    NodeProgram,
    Serve,
    discard_output,
)

from podwright import Agent, FunctionModel
from podwright.testing import ModelRequest

KEY = "k" * 40
PROGRAM = Path(__file__).parent / "node" / "mcp.mjs"
TASKS = PROGRAM.with_name("mcp_tasks.mjs")
REFUSED = PROGRAM.with_name("mcp_refused.mjs")
AGENT = """
from podwright import Agent, FunctionModel

agent = Agent("helper", "Help.", FunctionModel(lambda request: "You said: " + request.messages[-1].text))
"""
NGINX = """
daemon off;
worker_processes 1;
pid {folder}/nginx.pid;
error_log {folder}/error.log;
events {{ worker_connections 256; }}
http {{
    log_format upstream $upstream_addr;
    access_log {folder}/access.log upstream;
    client_body_temp_path {folder}/body;
    proxy_temp_path {folder}/proxy;
    fastcgi_temp_path {folder}/fastcgi;
    uwsgi_temp_path {folder}/uwsgi;
    scgi_temp_path {folder}/scgi;
    upstream service {{ {servers} }}
    server {{
        listen 127.0.0.1:{port};
        location / {{
            proxy_pass http://service;
            proxy_http_version 1.1;
            proxy_set_header Host $http_host;
            proxy_buffering off;
            proxy_next_upstream off;
        }}
    }}
}}
"""
"""Each request goes to the other process than the one before."""


def answer(request: ModelRequest) -> str:
    return f"You said: {request.messages[-1].text}"


@pytest.fixture
def url(serve: Serve) -> str:
    """A service with a key."""
    agent = Agent("helper", "Help.", FunctionModel(answer))
    client = serve(agent, mcp=True, api_keys=[f"run:{KEY}"])
    return str(client.base_url).rstrip("/")


def run_program(
    node_program: NodeProgram, folder: Path, program: Path, *arguments: str
) -> dict[str, Any]:
    """What a program for Node prints; it is copied to a folder with the packages."""
    (folder / "node_modules").symlink_to(node_program.folder)
    node = node_program("conformance")[0]
    done = subprocess.run(
        [node, str(shutil.copy(program, folder)), *arguments],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_the_client_for_node(
    node_program: NodeProgram, url: str, tmp_path: Path
) -> None:
    """All its ways to negotiate: the tool, its answer, arguments that are wrong, and no key."""
    got = run_program(node_program, tmp_path, PROGRAM, url, KEY)
    assert "401" in got.pop("refused")
    versions = {name: ways["version"] for name, ways in got.items()}
    assert versions == {
        "legacy": "2025-11-25",
        "auto": "2026-07-28",
        "pinned": "2026-07-28",
    }
    for found in got.values():
        assert [tool["name"] for tool in found["tools"]] == ["helper"]
        assert found["called"]["content"][0]["text"] == "You said: Hello"
        assert not found["called"].get("isError")
        assert found["wrong"]["isError"]


def test_a_refusal_for_node(
    node_program: NodeProgram, serve: Serve, tmp_path: Path
) -> None:
    """At capacity the client sees the status, and the problem in the message; its connection goes on."""
    gate = Gate()
    served = serve(gate.agent(), mcp=True, max_runs=1, max_wait=0.1)
    url = f"{str(served.base_url).rstrip('/')}/mcp"
    with ThreadPoolExecutor() as pool:
        active = pool.submit(served.post, "/run", json={"input": "x"})
        assert gate.called.wait(60)
        got = run_program(node_program, tmp_path, REFUSED, url)
        gate.opened.set()
        assert active.result().status_code == 200
    for refused in got.values():
        assert (refused["status"], refused["tools"]) == (503, 1)
        assert '"code":"overloaded"' in refused["message"]
    assert got.keys() == {"legacy", "auto"}


def test_the_client_of_tasks(
    node_program: NodeProgram,
    serve: Serve,
    sqlite_database: str,
    tmp_path: Path,
) -> None:
    """It follows a call that is a task, answers what the task asks, and has the result of the call."""
    served = serve(FLOW, runs_database=sqlite_database, mcp=True)
    url = f"{str(served.base_url).rstrip('/')}/mcp"
    got = run_program(node_program, tmp_path, TASKS, url)
    assert got["kind"] == "task"
    assert got["asked"] == ["Publish Echo: Hello?"]
    assert "input_required" in got["statuses"]
    assert got["outcome"]["status"] == "completed"
    (content,) = got["outcome"]["result"]["content"]
    assert "Echo: Hello" in json.loads(content["text"])["helper_output"]


@pytest.mark.parametrize("method", ["tools/list", "tools/call"])
def test_the_inspector(
    node_program: NodeProgram, url: str, tmp_path: Path, method: str
) -> None:
    options = ["--transport", "http", "--method", method]
    if method == "tools/call":
        options += ["--tool-name", "helper", "--tool-arg", "input=Hello"]
    done = subprocess.run(
        [
            *node_program("mcp-inspector"),
            *("--cli", f"{url}/mcp", *options),
            *("--header", f"Authorization: Bearer {KEY}"),
        ],
        capture_output=True,
        text=True,
        timeout=60,
        env=environment(HOME=str(tmp_path)),
    )
    assert done.returncode == 0, done.stderr
    got = json.loads(done.stdout)
    if method == "tools/list":
        assert [tool["name"] for tool in got["tools"]] == ["helper"]
    else:
        assert got["content"][0]["text"] == "You said: Hello"


async def call(url: str, mode: Any, times: int = 1) -> list[str]:
    """What the tool answers to the official client for Python, each time on a new connection."""
    texts: list[str] = []
    headers = {"authorization": f"Bearer {KEY}"}
    for number in range(times):
        async with (
            httpx2.AsyncClient(headers=headers, timeout=60) as http,
            Client(
                streamable_http_client(f"{url}/mcp", http_client=http),
                mode=mode,
            ) as client,
        ):
            (tool,) = (await client.list_tools()).tools
            done = await client.call_tool(tool.name, {"input": f"{number}"})
            texts += [
                part.text
                for part in done.content
                if isinstance(part, TextContent)
            ]
    return texts


@pytest.mark.servers
@pytest.mark.parametrize("mode", ["legacy", "auto", "2026-07-28"])
async def test_the_client_for_python(url: str, mode: str) -> None:
    assert await call(url, mode) == ["You said: 0"]


@pytest.fixture
def balanced(
    command: Command, address: Address, tmp_path: Path
) -> Iterator[str]:
    """Two processes behind nginx, to which requests go alternately."""
    nginx = shutil.which("nginx") or skip(
        "nginx is missing; `make tools` installs it"
    )
    (tmp_path / "made.py").write_text(AGENT)
    servers = ""
    for _ in range(2):
        process = command(
            *("serve", "made:agent", "--host", "127.0.0.1", "--port", "0"),
            cwd=tmp_path,
            PODWRIGHT_MCP="true",
            PODWRIGHT_API_KEYS=f"run:{KEY}",
        )
        servers += f"server {address(process).removeprefix('http://')}; "
        discard_output(process)
    port = free_port()
    config = tmp_path / "nginx.conf"
    config.write_text(NGINX.format(folder=tmp_path, servers=servers, port=port))
    with subprocess.Popen([nginx, "-p", tmp_path, "-c", config]) as balancer:
        url = f"http://127.0.0.1:{port}"

        def is_up() -> bool:
            try:
                return httpx2.get(f"{url}/health").is_success
            except httpx2.TransportError:
                return False

        try:
            until(is_up)
            yield url
        finally:
            balancer.terminate()


@pytest.mark.parametrize("mode", ["legacy", "2026-07-28"])
async def test_two_processes(balanced: str, tmp_path: Path, mode: str) -> None:
    """No request needs the process of the one before: there are no sessions."""
    log = tmp_path / "access.log"
    before = len(log.read_text().splitlines())
    texts = await call(balanced, mode, times=6)
    assert texts == [f"You said: {number}" for number in range(6)]
    reached = Counter(log.read_text().splitlines()[before:])
    assert len(reached) == 2
    assert min(reached.values()) >= 6
