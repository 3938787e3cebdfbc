"""Public agents whose tools are MCP servers, as component folders.

They are the examples "streamablehttp_example" and "filesystem_example" of OpenAI's Agents SDK. Each is made by the
commands of a user: `new`, `sync --mcp`, `validate`, `run`.
"""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.helpers import write_files
from tests.service.mcp_support import ToolServer, bridge
from tests.service.support import NodeProgram, Shell

from podwright.testing import ModelRequest, ToolCall
from podwright_service.testing import ModelStub

SERVER = '''
import os
import random
import uvicorn
from mcp.server.mcpserver import MCPServer

mcp = MCPServer("Echo Server")

@mcp.tool()
def add(a: int, b: int) -> int:
    """Add two numbers"""
    return a + b

@mcp.tool()
def get_secret_word() -> str:
    return random.choice(["apple", "banana", "cherry"])

@mcp.tool()
def get_current_weather(city: str) -> str:
    return f"Weather data unavailable right now; assume clear skies in {city}."

uvicorn.run(mcp.streamable_http_app(), host="127.0.0.1", port=int(os.environ["LOOPBACK_PORT"]))
'''
"""The server of "streamablehttp_example", which asks no weather service."""
BOOKS = """1. To Kill a Mockingbird by Harper Lee
2. Pride and Prejudice by Jane Austen
"""


@pytest.fixture
def stub() -> Iterator[ModelStub]:
    with ModelStub() as model:
        yield model


Ask = Callable[..., str]


@pytest.fixture
def ask(shell: Shell, stub: ModelStub) -> Ask:
    """Runs a folder with a question and a server, where the model calls a tool, and returns what the tool returned."""

    def run(folder: str, server: str, question: str, call: ToolCall) -> str:
        said: list[str] = []

        def answer(request: ModelRequest) -> str:
            said.append(request.messages[-1].text)
            return f"The tool says: {said[-1]}"

        stub.respond_with(call, answer)
        done = shell(
            *("run", folder, question, "--mcp", server),
            OPENAI_API_KEY="key",
            **stub.variables(stub.url),
        )
        assert done.returncode == 0, done.stderr
        stub.verify()
        assert f"The tool says: {said[0]}" in done.stdout
        assert question in stub.requests[0].messages[-1].text
        return said[0]

    return run


def completed(shell: Shell, *arguments: str, **variables: str) -> str:
    """What a command prints that succeeds."""
    done = shell(*arguments, **variables)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def make(shell: Shell, folder: Path, instructions: str) -> None:
    """Make a folder for an agent, with other instructions and without the tools of the template."""
    completed(shell, "new", folder.name, "--model", "openai/gpt-4o-mini")
    for file in (folder / "tools.py", folder / f"test_{folder.name}.py"):
        file.unlink()
    blueprint = json.loads((folder / "blueprint.json").read_text())
    blueprint |= {"instructions": instructions, "tools": []}
    blueprint.pop("description")
    write_files(folder, {"blueprint.json": blueprint})


def locked(folder: Path, server: str) -> dict[str, Any]:
    """The definitions in the lock of a folder."""
    lock = json.loads((folder / "mcp.lock.json").read_text())
    return {
        name: tool["definition"]
        for name, tool in lock["servers"][server]["tools"].items()
    }


@pytest.mark.servers
def test_openai_streamablehttp_example(
    shell: Shell, ask: Ask, tmp_path: Path
) -> None:
    """Three tools of a server, all of which the agent may use; its three questions."""
    write_files(tmp_path, {"server.py": SERVER})
    server = ToolServer([sys.executable, str(tmp_path / "server.py")]).start()
    try:
        folder = tmp_path / "assistant"
        make(shell, folder, "Use the tools to answer the questions.")
        named = f"tools={server.url}"
        completed(*(shell, "sync", "assistant", "--mcp", named, "--add", "all"))
        tools = ["add", "get_secret_word", "get_current_weather"]
        blueprint = json.loads((folder / "blueprint.json").read_text())
        assert blueprint["mcp"] == [{"server": "tools", "tools": tools}]
        definitions = locked(folder, "tools")
        assert set(definitions) == set(tools)
        assert definitions["add"]["inputSchema"]["required"] == ["a", "b"]
        completed(shell, "sync", "assistant", "--mcp", named, "--check")

        server.kill()
        completed(shell, "validate", "assistant", OPENAI_API_KEY="key")
        server.start()
        sums = ToolCall.of("add", a=7, b=22)
        said = ask("assistant", named, "Add these numbers: 7 and 22.", sums)
        assert said == "29"
        tokyo = ToolCall.of("get_current_weather", city="Tokyo")
        said = ask("assistant", named, "What's the weather in Tokyo?", tokyo)
        assert said.endswith("assume clear skies in Tokyo.")
        word = ToolCall.of("get_secret_word")
        said = ask("assistant", named, "What's the secret word?", word)
        assert said in {"apple", "banana", "cherry"}
    finally:
        server.kill()


def test_openai_filesystem_example(
    shell: Shell, ask: Ask, node_program: NodeProgram, tmp_path: Path
) -> None:
    """Files, by a program that is started for each run; its definitions come through a bridge."""
    samples = write_files(tmp_path / "files", {"favorite_books.txt": BOOKS})
    program = [*node_program("mcp-server-filesystem"), str(samples)]
    folder = tmp_path / "assistant"
    make(
        shell,
        folder,
        "Use the tools to read the filesystem and answer questions based on those files.",
    )
    server = bridge(node_program, program).start()
    try:
        add = ["--add", "list_directory", "--add", "read_text_file"]
        named = f"files={server.url}"
        completed(shell, "sync", "assistant", "--mcp", named, *add)
    finally:
        server.kill()
    assert set(locked(folder, "files")) == {"list_directory", "read_text_file"}
    completed(shell, "validate", "assistant", OPENAI_API_KEY="key")
    started = f"files={shlex.join(program)}"
    files = ToolCall.of("list_directory", path=str(samples))
    said = ask("assistant", started, "Read the files and list them.", files)
    assert "favorite_books.txt" in said
    book = ToolCall.of(
        "read_text_file", path=str(samples / "favorite_books.txt")
    )
    said = ask("assistant", started, "What is my #1 favorite book?", book)
    assert said == BOOKS
