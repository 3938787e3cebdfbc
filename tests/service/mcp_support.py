"""Servers of tools, each in a process of its own, for the tests of MCP."""

from __future__ import annotations

import os
import re
import shlex
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.helpers import environment
from tests.service.support import NodeProgram

from podwright import FunctionModel
from podwright.testing import ModelRequest, ToolCall

_ADDRESS = re.compile(r"(?:listening|running) on (https?://127\.0\.0\.1:(\d+))")
PYTHON_SERVER = Path(__file__).with_name("mcp_python_server.py")


@dataclass
class ToolServer:
    """A server of tools that listens on 127.0.0.1, and prints its address."""

    command: Sequence[str]
    variables: Mapping[str, str] = field(default_factory=dict[str, str])
    url: str = ""
    _port: str = "0"
    _process: subprocess.Popen[str] | None = None
    _reader: threading.Thread | None = None

    def start(self) -> ToolServer:
        """Start it, at the port that it had before, and wait until it listens."""
        process = self._process = subprocess.Popen(
            self.command,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env=environment(**{"LOOPBACK_PORT": self._port, **self.variables}),
            start_new_session=True,
        )
        assert process.stdout is not None
        output = ""
        for line in process.stdout:
            output += line
            if match := _ADDRESS.search(line):
                self.url = f"{match[1]}/mcp"
                self._port = match[2]
                # a process that writes to a full pipe stops
                self._reader = threading.Thread(target=process.stdout.read)
                self._reader.start()
                return self
        raise AssertionError(f"The process ended: {output}")

    def kill(self) -> None:
        """Kill it and its children, as a node does that is lost."""
        if self._process is not None:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
            if self._reader is not None:
                self._reader.join()
            if self._process.stdout is not None:
                self._process.stdout.close()
            self._process = None


def python_server(**variables: str) -> ToolServer:
    """The server of `mcp_python_server.py`, which speaks all revisions."""
    return ToolServer([sys.executable, str(PYTHON_SERVER)], variables)


def everything(node_program: NodeProgram) -> ToolServer:
    """The reference server, which speaks 2025-11-25 and keeps sessions in its memory."""
    command = node_program.server("mcp-server-everything")
    return ToolServer([*command, "streamableHttp"])


def bridge(
    node_program: NodeProgram, command: Sequence[str], **variables: str
) -> ToolServer:
    """A server that speaks on its standard streams, behind a bridge that listens."""
    options = ["--outputTransport", "streamableHttp", "--stateful"]
    return ToolServer(
        [
            *node_program.server("supergateway"),
            *("--stdio", shlex.join(command)),
            *options,
        ],
        variables,
    )


def with_tools(*tools: str) -> dict[str, Any]:
    """The blueprint of an agent with tools of the server `it`."""
    return {
        "type": "Agent",
        "name": "helper",
        "instructions": "Help.",
        "config": {"model": "offline/echo"},
        "mcp": [{"server": "it", "tools": list(tools)}],
    }


@dataclass
class Caller:
    """A model that calls tools one after the other, and then says what the last one returned."""

    calls: Sequence[ToolCall]
    requests: list[ModelRequest] = field(default_factory=list[ModelRequest])

    def __call__(self, request: ModelRequest) -> Any:
        self.requests.append(request)
        done = sum(message.role == "tool" for message in request.messages)
        if done < len(self.calls):
            return self.calls[done]
        return f"It said: {self.answers[-1]}"

    @property
    def answers(self) -> list[str]:
        """What the tools have returned, as the model was shown it."""
        return [
            message.text
            for message in self.requests[-1].messages
            if message.role == "tool"
        ]

    def model(self) -> FunctionModel:
        return FunctionModel(self)
