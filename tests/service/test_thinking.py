"""A background run of a thinking model goes on after a kill with the thoughts that the model had before."""

from __future__ import annotations

import json
import os
import signal
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.helpers import NO_AUTHORITIES, until
from tests.library.thinking import STYLES, ThinkingProvider
from tests.ports import free_port
from tests.service.background_support import wait
from tests.service.support import Address, Command, discard_output

TOOLS = """
from podwright_service.background import store, worker

store.LEASE_SECONDS = 2.0
worker.RENEWAL_INTERVAL = worker.RETRY_INTERVAL = 0.2

def look(word: str) -> str:
    "Look a word up."
    return word + ": found"
"""


class Server(ThreadingHTTPServer):
    """Serves a `ThinkingProvider`, and never answers its second request, whose caller is killed meanwhile."""

    def __init__(self, provider: ThinkingProvider) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.provider = provider
        self.is_over = threading.Event()
        self.requests: list[Any] = []


class _Handler(BaseHTTPRequestHandler):
    server: Server
    protocol_version = "HTTP/1.1"

    def log_message(self, *_: object) -> None:
        """Print nothing."""

    def do_POST(self) -> None:
        """Answer a request."""
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        self.server.requests.append(body)
        if len(self.server.requests) == 2:
            self.server.is_over.wait()
            return
        status, answer = self.server.provider.answer(body)
        data = json.dumps(answer).encode()
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)


@pytest.fixture(params=["OpenRouter", "Gemini"])
def thinking(request: pytest.FixtureRequest) -> Iterator[Server]:
    with Server(ThinkingProvider(STYLES[request.param])) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield server
        server.is_over.set()
        server.shutdown()
        thread.join()


def test_a_killed_run_gives_recorded_thoughts_back(
    thinking: Server,
    command: Command,
    address: Address,
    sqlite_database: str,
    tmp_path: Path,
) -> None:
    """The process is killed while the model is asked for the second time; the next process repeats only that call."""
    blueprint = {
        "type": "Agent", "name": "guide", "instructions": "Help.", "config": {"model": "hosted_vllm/m"},
        "tools": [{"name": "look", "schema": {"type": "function", "function": {
            "name": "look", "description": "Look a word up.",
            "parameters": {
                "type": "object", "properties": {"word": {"type": "string"}}, "required": ["word"],
                "additionalProperties": False,
            },
        }}, "idempotent": True}],
    }  # fmt: skip
    (tmp_path / "blueprint.json").write_text(json.dumps(blueprint))
    (tmp_path / "tools.py").write_text(TOOLS)
    variables = {
        "PODWRIGHT_RUNS_DATABASE": sqlite_database,
        "HOSTED_VLLM_API_BASE": f"http://127.0.0.1:{thinking.server_port}/v1",
    }
    port = str(free_port())

    def start() -> tuple[Any, httpx.Client]:
        process = command(
            "serve",
            str(tmp_path),
            "--host",
            "127.0.0.1",
            "--port",
            port,
            **variables,
        )
        url = address(process)
        discard_output(process)
        return process, httpx.Client(
            base_url=url, verify=NO_AUTHORITIES, timeout=60
        )

    process, client = start()
    with client:
        run = client.post("/runs", json={"input": "?"}).headers["location"]
        until(lambda: len(thinking.requests) == 2)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    _, client = start()
    with client:
        ended = wait(client, run)
    assert ended["status"] == "succeeded", ended
    assert ended["attempt"] == 2
    assert ended["result"] == {"output": "Answer 3."}
    assert len(thinking.provider.books) == 4
    assert len(thinking.requests) == 5
