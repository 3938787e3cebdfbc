"""MCP servers that are programs of this machine."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import sys
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import pytest
from tests.helpers import until

from podwright import MCPServer
from podwright.errors import ConfigurationError, MCPServerError

PROGRAM = str(Path(__file__).with_name("mcp_program.py"))


@pytest.fixture
async def server() -> AsyncGenerator[MCPServer]:
    """A program, which ends with the test."""
    server = MCPServer.stdio(sys.executable, PROGRAM)
    yield server
    await server.close()


async def _text(server: MCPServer, tool: str, **arguments: Any) -> str:
    result = await server.call(tool, arguments, locked=None)
    return result.content[0]["text"]


async def _reason(server: MCPServer, tool: str, **arguments: Any) -> str:
    with pytest.raises(MCPServerError) as error:
        await server.call(tool, arguments, locked=None, seconds=20)
    return error.value.reason


def _is_running(process: int) -> bool:
    with contextlib.suppress(ProcessLookupError):
        os.kill(process, 0)
        return True
    return False


async def test_one_process_serves_all_calls(server: MCPServer) -> None:
    """Calls, also at once, go to one process, which ends when the server is closed."""
    texts = await asyncio.gather(
        *(_text(server, "echo", n=n) for n in range(5))
    )
    assert [json.loads(text)["n"] for text in texts] == list(range(5))
    processes = {await _text(server, "process") for _ in range(3)}
    [process] = map(int, processes)
    assert _is_running(process)
    await server.close()
    assert not _is_running(process)
    # another one is begun when it is needed
    assert int(await _text(server, "process")) != process


async def test_it_ends_with_its_loop() -> None:
    """Each event loop has a process, which ends with the loop."""
    server = MCPServer.stdio(sys.executable, PROGRAM)

    def call() -> int:
        return int(asyncio.run(_text(server, "process")))

    first = await asyncio.to_thread(call)
    second = await asyncio.to_thread(call)
    assert first != second
    until(lambda: not _is_running(first) and not _is_running(second))


async def test_its_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A program has the variables that it is given, and none of this process that may be secret."""
    monkeypatch.setenv("OPENAI_API_KEY", "sk-secret")
    server = MCPServer.stdio(
        sys.executable, PROGRAM, env={"TOKEN": "a"}, cwd=str(tmp_path)
    )
    variables = json.loads(await _text(server, "environment"))
    assert variables["TOKEN"] == "a"
    assert "OPENAI_API_KEY" not in variables
    assert await _text(server, "place") == str(tmp_path.resolve())
    await server.close()


async def test_a_process_that_dies(server: MCPServer) -> None:
    """A call in which the process dies is an error, and the next one begins another process."""
    first = await _text(server, "process")
    assert await _reason(server, "die") == "unreachable"
    assert server.is_up is False
    assert await _text(server, "process") != first
    assert server.is_up is True


async def test_a_process_that_died_between_two_calls(
    server: MCPServer,
) -> None:
    """A process that has ended is replaced, and a call that may be made twice is made."""
    process = int(await _text(server, "process"))
    os.kill(process, 9)
    result = await server.call("process", {}, locked=None, idempotent=True)
    assert int(result.content[0]["text"]) != process


async def test_a_large_result(server: MCPServer) -> None:
    """A result that is too large is an error, and the next call succeeds."""
    assert await _reason(server, "large", bytes=9 * 2**20) == "too_large"
    assert len(await _text(server, "large", bytes=2**20)) == 2**20


async def test_a_slow_call(server: MCPServer) -> None:
    """A call that takes too long is an error."""
    await _text(server, "echo")
    with pytest.raises(MCPServerError) as error:
        await server.call("wait", {}, locked=None, seconds=0.5)
    assert error.value.reason == "timeout"


@pytest.mark.parametrize(
    ("command", "reason"),
    [
        (("/nowhere/program",), "unreachable"),
        ((sys.executable, "-c", "print('hello')"), "unreachable"),
        ((sys.executable, PROGRAM, "silent"), "timeout"),
    ],
    ids=["no program", "a program that ends", "a program that says nothing"],
)
async def test_programs_that_are_no_servers(
    command: tuple[str, ...], reason: str
) -> None:
    """What does not answer is an error, also at the second call, and leaves no process."""
    server = MCPServer.stdio(*command, timeout=3)
    for _ in range(2):
        with pytest.raises(MCPServerError) as error:
            await server.list_tools()
        assert error.value.reason == reason
    await server.close()


def test_no_program() -> None:
    """A command is needed."""
    with pytest.raises(ConfigurationError):
        MCPServer.stdio("")
