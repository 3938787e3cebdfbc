"""Runs whose events are read as they happen."""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import signal
import socket
import subprocess
import threading
import time
import tracemalloc
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from podwright import Agent, FunctionModel, ScriptedModel
from podwright.errors import ModelError
from podwright.events import RunFinished, adapter
from podwright.models import Model, TokenCallback
from podwright.testing import ModelRequest, ModelResponse

Serve = Callable[..., httpx.Client]
Example = Callable[[str], httpx.Client]
Command = Callable[..., subprocess.Popen[str]]
Address = Callable[[subprocess.Popen[str]], str]
Sent = tuple[str, str, Any]
"""Id, name and data of an event."""


def parsed(lines: Iterator[str]) -> Iterator[Sent]:
    """The events of a stream; comments have the name ":"."""
    fields: dict[str, str] = {}
    for line in lines:
        if line.startswith(":"):
            yield "", ":", line
        elif line:
            name, _, value = line.partition(": ")
            fields[name] = value
        elif fields:
            yield fields.get("id", ""), fields["event"], json.loads(fields["data"])
            fields = {}


def streamed(client: httpx.Client, body: Any, path: str = "/run/stream") -> tuple[httpx.Response, list[Sent]]:
    with client.stream("POST", path, json=body) as response:
        if response.headers["content-type"] != "text/event-stream":
            response.read()
            return response, []
        return response, list(parsed(response.iter_lines()))


@pytest.mark.parametrize("name", ["researcher", "newsroom", "desk", "press"])
def test_a_stream_tells_every_event_and_then_the_answer(example: Example, name: str) -> None:
    """Each kind's events come in order, readable by the library, with usage at the end and the answer of `/run`."""
    client = example(name)
    response, events = streamed(client, {"input": "the moon"})
    assert response.headers["x-accel-buffering"] == "no"
    assert response.headers["cache-control"] == "no-store"
    *told, last = events
    assert [int(number) for number, _, _ in told] == list(range(len(told)))
    assert all(kind == data["type"] for _, kind, data in told)
    read = [adapter().validate_python(data) for _, _, data in told]
    assert read[0].run_id == response.headers["podwright-run-id"]
    assert isinstance(read[-1], RunFinished)
    assert read[-1].usage.input_tokens > 0
    assert "token" in [kind for _, kind, _ in told]
    assert last == ("", "result", client.post("/run", json={"input": "the moon"}).json())


DEADLY = """
import os, signal
from podwright import Agent, FunctionModel

agent = Agent('agent', 'Do.', FunctionModel(lambda _: os.kill(os.getpid(), signal.SIGKILL)))
"""


@pytest.mark.parametrize("workers", ["1", "2"])
def test_the_answer_begins_before_a_model_is_asked(
    command: Command, address: Address, tmp_path: Path, workers: str
) -> None:
    """Of a process that dies with its first model call, the caller has the answer's head."""
    (tmp_path / "deadly.py").write_text(DEADLY)
    process = command("serve", "deadly:agent", "--port", "0", cwd=tmp_path, WEB_CONCURRENCY=workers)
    with httpx.stream("POST", f"{address(process)}/run/stream", json={"input": "x"}, timeout=30) as response:
        assert response.status_code == 200
        assert response.headers["podwright-run-id"]
        with pytest.raises(httpx.RemoteProtocolError):
            response.read()


def test_a_failed_run_ends_with_its_problem(serve: Serve) -> None:
    """A run that fails after it began ends the stream with the problem that `/run` answers."""
    client = serve(Agent("helper", "Help.", ScriptedModel(ModelError("down"))))
    _, events = streamed(client, {"input": "x"})
    _, kind, problem = events[-1]
    assert (kind, problem["code"], problem["status"]) == ("problem", "model_failed", 502)
    assert problem["instance"] == "/run/stream"
    assert events[-2][1] == "run_failed"


@pytest.mark.parametrize("body", [{}, {"inptu": "x"}])
def test_what_is_refused_is_no_stream(example: Example, body: Any) -> None:
    """A request that no run begins for is answered as on `/run`."""
    response, events = streamed(example("writer"), body)
    assert (response.status_code, events) == (422, [])
    assert response.json()["code"] == "request_invalid"


def test_events_come_when_they_happen(serve: Serve) -> None:
    """The first event arrives while the model still works, and heartbeats follow in the silence."""
    go_on = threading.Event()

    async def wait(request: ModelRequest) -> str:
        await asyncio.to_thread(go_on.wait, 20)
        return "late"

    client = serve(Agent("helper", "Help.", FunctionModel(wait)), stream_heartbeat=0.05)
    with client.stream("POST", "/run/stream", json={"input": "x"}) as response:
        events = parsed(response.iter_lines())
        assert next(events)[1] == "run_started"
        assert next(events)[1] == "model_call_started"
        assert [next(events)[2] for _ in range(3)] == [": ping"] * 3
        go_on.set()
        assert list(events)[-1] == ("", "result", {"output": "late"})


def connected(client: httpx.Client, body: bytes) -> socket.socket:
    """A raw connection on which a stream was asked for, with a small window, so that little is under way."""
    connection = socket.socket()
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    connection.connect((client.base_url.host, client.base_url.port or 80))
    head = f"POST /run/stream HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: {len(body)}\r\n"
    connection.sendall(head.encode() + b"\r\n" + body)
    return connection


class Talker(Model):
    """Says the same again and again, as fast as it can."""

    name = "offline/talker"

    def __init__(self, piece: str, times: int = 10_000_000) -> None:
        self.piece, self.times, self.stopped = piece, times, threading.Event()

    async def complete(self, request: ModelRequest, on_token: TokenCallback | None = None) -> ModelResponse:
        assert on_token
        try:
            for _ in range(self.times):
                on_token(self.piece)
                await asyncio.sleep(0)
            return ModelResponse("done")
        finally:
            self.stopped.set()


def read_all(connection: socket.socket) -> tuple[list[Sent], bool]:
    """The events that are left on a raw connection, and whether the answer came to its proper end."""
    connection.settimeout(20)
    data = b""
    with contextlib.suppress(ConnectionError):
        while not data.endswith(b"\r\n0\r\n\r\n") and (piece := connection.recv(65536)):
            data += piece
    _, _, body = data.partition(b"\r\n\r\n")
    text = re.sub(rb"(?:^|\r\n)[0-9a-f]+\r\n", b"", body).decode()
    return list(parsed(iter([*text.rpartition("\n\n")[0].split("\n"), ""]))), data.endswith(b"\r\n0\r\n\r\n")


def test_a_reader_who_stops_reading_cancels_the_run(serve: Serve) -> None:
    """Beyond the bound the run is cancelled, and who comes back is told so; others are served meanwhile."""
    talker = Talker("x" * 1000)
    client = serve(Agent("helper", "Help.", talker), stream_buffer_bytes=100_000)
    tracemalloc.start()
    try:
        with connected(client, b'{"input": "x"}') as connection:
            assert talker.stopped.wait(20)
            assert client.get("/health").status_code == 200
            _, peak = tracemalloc.get_traced_memory()
            assert peak < 8_000_000
            events, complete = read_all(connection)
    finally:
        tracemalloc.stop()
    assert complete
    assert (events[-1][1], events[-1][2]["code"]) == ("problem", "stream_too_slow")
    assert client.get("/health").status_code == 200


def test_a_reader_who_never_comes_back_is_dropped(serve: Serve) -> None:
    """The rest of a stream waits for its reader a while only; then the connection ends."""
    talker = Talker("x" * 1000)
    client = serve(Agent("helper", "Help.", talker), stream_buffer_bytes=100_000, stream_heartbeat=0.1)
    with connected(client, b'{"input": "x"}') as connection:
        assert talker.stopped.wait(20)
        deadline = time.monotonic() + 20
        while 'route="/run/stream"' not in client.get("/metrics").text:  # it is counted once it has ended
            assert time.monotonic() < deadline
            time.sleep(0.05)
        assert not read_all(connection)[1]


def test_tokens_are_merged_for_a_reader_who_lags(serve: Serve) -> None:
    """A slow reader within the bound gets every character, in fewer events, and the answer."""
    talker = Talker("xyz", 20_000)
    client = serve(Agent("helper", "Help.", talker))
    with connected(client, b'{"input": "x"}') as connection:
        assert talker.stopped.wait(20)
        events, complete = read_all(connection)
    texts = [data["text"] for _, kind, data in events if kind == "token"]
    assert "".join(texts) == "xyz" * 20_000
    assert len(texts) < 19_000
    assert complete
    assert events[-1] == ("", "result", {"output": "done"})


def test_a_stream_that_the_service_ends_says_where_to_go_on(command: Command, address: Address, tmp_path: Path) -> None:
    """At the end of the shutdown time-out a stream ends with the problem that has context and resume path."""
    (tmp_path / "made.py").write_text(
        "import asyncio\n"
        "from podwright import Agent, FunctionModel, ScriptedModel, Workflow\n"
        "async def answer(request):\n    await asyncio.sleep(60)\n"
        "first, slow = Agent('first', 'Do.', ScriptedModel('one')), Agent('slow', 'Wait.', FunctionModel(answer))\n"
        "flow = Workflow('flow', [first, slow])\n"
    )
    process = command("serve", "made:flow", "--port", "0", cwd=tmp_path, PODWRIGHT_SHUTDOWN_TIMEOUT="1")
    with httpx.stream("POST", f"{address(process)}/run/stream", json={"input": "x"}, timeout=20) as response:
        events = parsed(response.iter_lines())
        while next(events)[2].get("step") != "slow":
            pass
        process.send_signal(signal.SIGTERM)
        *_, (_, kind, problem) = events
    assert (kind, problem["code"], problem["status"]) == ("problem", "run_cancelled", 503)
    assert (problem["context"]["first_output"], problem["resume_path"]) == ("one", [1])
    assert process.wait(20) == 0


def test_a_reader_who_does_not_read_does_not_hold_up_the_end(
    command: Command, address: Address, tmp_path: Path
) -> None:
    """A service that is told to stop ends in good order, although a stream's reader takes nothing."""
    (tmp_path / "made.py").write_text(
        "import asyncio\n"
        "from podwright import Agent\n"
        "from podwright.models import Model\n"
        "class Talker(Model):\n"
        "    name = 'offline/talker'\n"
        "    async def complete(self, request, on_token=None):\n"
        "        while True:\n"
        "            on_token('x' * 1000)\n"
        "            await asyncio.sleep(0.001)\n"
        "helper = Agent('helper', 'Help.', Talker())\n"
    )
    settings = {"PODWRIGHT_SHUTDOWN_TIMEOUT": "1", "PODWRIGHT_STREAM_BUFFER_BYTES": "1000000000"}
    process = command("serve", "made:helper", "--port", "0", cwd=tmp_path, **settings)
    with httpx.Client(base_url=address(process)) as client, connected(client, b'{"input": "x"}') as connection:
        assert connection.recv(1)
        time.sleep(1)
        process.send_signal(signal.SIGTERM)
        output, _ = process.communicate(timeout=20)
    assert process.returncode == 0
    assert "Traceback" not in output
