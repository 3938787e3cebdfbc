"""Runs whose events are read as they happen."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest

from podwright import Agent, FunctionModel, ScriptedModel
from podwright.errors import ModelError
from podwright.events import RunFinished, adapter
from podwright.testing import ModelRequest

Serve = Callable[..., httpx.Client]
Example = Callable[[str], httpx.Client]
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
