"""Runs with a stream of events."""

from __future__ import annotations

import asyncio
import re
import signal
import socket
import threading
import tracemalloc
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.helpers import NO_AUTHORITIES, until
from tests.service.support import (
    Address,
    Command,
    Example,
    FaultyAgent,
    Gate,
    Serve,
    connect,
    sse_events,
)

from podwright import Agent, FunctionModel, ScriptedModel
from podwright.errors import ModelError
from podwright.events import RunFinished, adapter
from podwright.models import Model, TokenCallback
from podwright.testing import ModelRequest, ModelResponse
from podwright_service.http import streams

BODY = b'{"input": "x"}'


def read_stream(
    client: httpx.Client, body: Any
) -> tuple[httpx.Response, list[tuple[str, str, Any]]]:
    with client.stream("POST", "/run/stream", json=body) as response:
        return response, list(sse_events(response.iter_lines()))


@pytest.mark.parametrize("name", ["researcher", "newsroom", "desk", "press"])
def test_a_stream_has_every_event_and_then_the_response(
    example: Example, name: str
) -> None:
    """Each kind's events come in order, readable by the library, and end with the response of `/run`."""
    client = example(name)
    response, (*sent, last) = read_stream(client, {"input": "the moon"})
    assert response.headers["content-type"].startswith("text/event-stream")
    assert response.headers["x-accel-buffering"] == "no"
    assert all(
        (int(number), kind) == (data["seq"], data["type"])
        for number, kind, data in sent
    )
    events = [adapter().validate_python(data) for _, _, data in sent]
    assert events[0].run_id == response.headers["podwright-run-id"]
    assert isinstance(events[-1], RunFinished)
    assert events[-1].usage.input_tokens > 0
    assert "token" in [kind for _, kind, _ in sent]
    assert last == (
        "",
        "result",
        client.post("/run", json={"input": "the moon"}).json(),
    )


def test_a_failed_run_ends_with_its_problem(serve: Serve) -> None:
    """A run that fails ends the stream with the problem of `/run`."""
    _, events = read_stream(
        serve(
            Agent(
                "helper",
                "Help.",
                ScriptedModel(ModelError("down", help_url="https://x/#down")),
            )
        ),
        {"input": "x"},
    )
    _, kind, problem = events[-1]
    assert (kind, problem["code"], problem["status"]) == (
        "problem",
        "model_failed",
        502,
    )
    assert (problem["instance"], problem["type"]) == (
        "/run/stream",
        "https://x/#down",
    )
    assert events[-2][1] == "run_failed"


def refuse(_: ModelRequest) -> str:
    raise RuntimeError("the key is secret")


FOREIGN: dict[str, tuple[Agent, str]] = {
    "of a model": (
        Agent("helper", "Help.", FunctionModel(refuse)),
        "model_failed",
    ),
    "of a bug": (
        FaultyAgent("helper", "Help.", "offline/echo"),
        "internal_error",
    ),
}


@pytest.mark.parametrize(("agent", "code"), FOREIGN.values(), ids=FOREIGN)
def test_a_foreign_exception_ends_the_stream(
    serve: Serve, agent: Agent, code: str
) -> None:
    """The text of a foreign exception may be a key or a prompt: the stream ends with a problem without it."""
    _, events = read_stream(serve(agent), {"input": "x"})
    _, kind, problem = events[-1]
    assert (kind, problem["code"]) == ("problem", code)
    assert "secret" not in str(events)


def test_silence_is_filled_with_comments(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Events arrive before the model responds; while it is silent, comments keep the connection open in proxies."""
    monkeypatch.setattr(streams, "HEARTBEAT", 0.05)
    gate = Gate()
    with serve(gate.agent()).stream(
        "POST", "/run/stream", json={"input": "x"}
    ) as response:
        events = sse_events(response.iter_lines())
        assert [next(events)[1] for _ in range(4)] == [
            "run_started",
            "model_call_started",
            ":",
            ":",
        ]
        gate.opened.set()
        assert list(events)[-1] == ("", "result", {"output": "done"})


class Talker(Model):
    """Sends the same token again and again."""

    name = "offline/talker"

    def __init__(self, token: str, times: int = 10_000_000) -> None:
        self.token = token
        self.times = times
        self.stopped = threading.Event()

    async def complete(
        self, request: ModelRequest, on_token: TokenCallback | None = None
    ) -> ModelResponse:
        assert on_token
        try:
            for _ in range(self.times):
                on_token(self.token)
                await asyncio.sleep(0)
            return ModelResponse("done")
        finally:
            self.stopped.set()


def read_rest(connection: socket.socket) -> list[tuple[str, str, Any]]:
    """The events that are left on a raw connection, up to the proper end of the response."""
    data = b""
    while not data.endswith(b"\r\n0\r\n\r\n"):
        piece = connection.recv(65536)
        assert piece, data[-200:]
        data += piece
    text = re.sub(
        rb"(?:^|\r\n)[0-9a-f]+\r\n", b"", data.partition(b"\r\n\r\n")[2]
    ).decode()
    return list(sse_events(iter([*text.rpartition("\n\n")[0].split("\n"), ""])))


def test_a_client_that_stops_reading_cancels_the_run(serve: Serve) -> None:
    """Beyond the bound the run is cancelled, and the stream ends with a problem; memory stays bounded."""
    talker = Talker("x" * 1000)
    client = serve(
        Agent("helper", "Help.", talker), stream_buffer_bytes=100_000
    )
    tracemalloc.start()
    try:
        with connect(
            client, "/run/stream", BODY, receive_buffer=4096
        ) as connection:
            until(talker.stopped.is_set)
            assert client.get("/health").status_code == 200
            _, peak = tracemalloc.get_traced_memory()
            events = read_rest(connection)
    finally:
        tracemalloc.stop()
    assert peak < 8_000_000
    assert (events[-1][1], events[-1][2]["code"]) == (
        "problem",
        "stream_too_slow",
    )


def test_tokens_are_merged_for_a_slow_client(serve: Serve) -> None:
    """A slow client within the bound gets every character, in fewer events, and the response."""
    talker = Talker("xyz", 20_000)
    client = serve(Agent("helper", "Help.", talker))
    with connect(
        client, "/run/stream", BODY, receive_buffer=4096
    ) as connection:
        until(talker.stopped.is_set)
        events = read_rest(connection)
    texts = [data["text"] for _, kind, data in events if kind == "token"]
    assert "".join(texts) == "xyz" * 20_000
    assert len(texts) < 19_000
    assert events[-1] == ("", "result", {"output": "done"})


TALKER = """
import asyncio
from podwright import Agent
from podwright.models import Model

class Talker(Model):
    name = 'offline/talker'

    async def complete(self, request, on_token=None):
        while True:
            on_token('x' * 1000)
            await asyncio.sleep(0)

helper = Agent('helper', 'Help.', Talker())
"""


def test_the_shutdown_does_not_wait_for_a_slow_client(
    command: Command, address: Address, tmp_path: Path
) -> None:
    """The service stops with exit code 0, although the client of a stream reads nothing."""
    (tmp_path / "made.py").write_text(TALKER)
    settings = {
        "PODWRIGHT_SHUTDOWN_TIMEOUT": "1",
        "PODWRIGHT_STREAM_BUFFER_BYTES": "1000000000",
    }
    process = command(
        "serve", "made:helper", "--port", "0", cwd=tmp_path, **settings
    )
    client = httpx.Client(verify=NO_AUTHORITIES, base_url=address(process))
    with (
        client,
        connect(client, "/run/stream", BODY, receive_buffer=4096) as connection,
    ):
        assert connection.recv(1)
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=60)
    assert process.returncode == 0
