"""Tools of servers that people run: the reference servers in Node, and one by the official package for Python."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.helpers import until, write_files
from tests.service.background_support import begin, wait
from tests.service.mcp_support import (
    Caller,
    ToolServer,
    bridge,
    everything,
    python_server,
    with_tools,
)
from tests.service.support import (
    Address,
    Command,
    NodeProgram,
    Process,
    Serve,
    Shell,
    discard_output,
    sse_events,
)

import podwright
from podwright.errors import ToolError
from podwright.mcp.server import MCPServer
from podwright.testing import ToolCall, assert_events

Started = Callable[[ToolServer], ToolServer]


@pytest.fixture
def started() -> Iterator[Started]:
    """Starts a server of tools for one test."""
    servers: list[ToolServer] = []

    def start(server: ToolServer) -> ToolServer:
        servers.append(server)
        return server.start()

    yield start
    for server in servers:
        server.kill()


def agent(caller: Caller, server: MCPServer) -> Any:
    """An agent with the tools that a model calls, as the server defines them."""
    names = {call.name: None for call in caller.calls}
    return podwright.load(
        with_tools(*names), mcp={"it": server}, model=caller.model()
    )


def file_calls(folder: Path) -> list[ToolCall]:
    path = str(folder / "note.txt")
    return [
        ToolCall.of("write_file", path=path, content="Buy milk."),
        ToolCall.of("read_text_file", path=path),
    ]


ALICE = {"name": "Alice", "entityType": "person", "observations": ["is here"]}
MEMORY_CALLS = [
    ToolCall.of("create_entities", entities=[ALICE]),
    ToolCall.of("read_graph"),
]
LONG_CALL = ToolCall.of("trigger-long-running-operation", duration=1, steps=3)


@pytest.fixture(
    params=[
        "everything",
        "filesystem, stdio",
        "filesystem, bridge",
        "memory, stdio",
        "memory, bridge",
        "python",
    ]
)
def case(
    request: pytest.FixtureRequest,
    node_program: NodeProgram,
    started: Started,
    tmp_path: Path,
) -> tuple[MCPServer, Caller, str]:
    """A server, a model that calls tools of it, and what the last one returns."""
    name, _, way = request.param.partition(", ")
    if name == "everything":
        calls = [ToolCall.of("get-sum", a=2, b=40), LONG_CALL]
        url = started(everything(node_program)).url
        return MCPServer(url), Caller(calls), "Duration: 1 seconds, Steps: 3"
    if name == "python":
        length = {"value": 10, "unit": "ft"}
        calls = [
            ToolCall.of("add", a=2, b=40),
            ToolCall.of("convert", length=length, to="m"),
        ]
        return MCPServer(started(python_server()).url), Caller(calls), "3.048"
    variables: dict[str, str] = {}
    command = node_program(f"mcp-server-{name}")
    if name == "filesystem":
        command.append(str(tmp_path))
        caller, said = Caller(file_calls(tmp_path)), "Buy milk."
    else:
        variables["MEMORY_FILE_PATH"] = str(tmp_path / "memory.jsonl")
        caller, said = Caller(MEMORY_CALLS), "is here"
    if way == "stdio":
        return MCPServer.stdio(*command, env=variables), caller, said
    url = started(bridge(node_program, command, **variables)).url
    return MCPServer(url), caller, said


Case = tuple[MCPServer, Caller, str]


def test_a_run(case: Case) -> None:
    """The model calls two tools, and is told what they return."""
    server, caller, said = case
    result = agent(caller, server).run("Go.", trace=True)
    assert said in result.value
    assert len(caller.answers) == 2
    assert_events(
        result,
        f"tool_call_finished tool={caller.calls[0].name} server=it",
        f"tool_call_finished tool={caller.calls[1].name} server=it",
        "run_finished",
    )
    shown = caller.requests[0].tools
    assert [tool["function"]["name"] for tool in shown] == [
        call.name for call in caller.calls
    ]


def test_a_stream_of_a_service(case: Case, serve: Serve) -> None:
    """Two runs of a service after each other, each streamed."""
    server, caller, said = case
    client = serve(agent(caller, server))
    for _ in range(2):
        with client.stream(
            "POST", "/run/stream", json={"input": "Go."}
        ) as response:
            events = list(sse_events(response.iter_lines()))
        names = [name for _, name, _ in events]
        assert names.count("tool_call_finished") == 2
        assert said in json.dumps(events[-1][2])


def test_what_the_model_is_shown(
    node_program: NodeProgram, started: Started
) -> None:
    """Nested schemas and enums of both languages reach the model whole, images as images, and errors as errors."""
    python = started(python_server())
    caller = Caller(
        [
            ToolCall.of("convert", length={"value": -1, "unit": "m"}, to="m"),
            ToolCall.of("refuse", reason="It is Sunday."),
            ToolCall.of("picture"),
        ]
    )
    result = agent(caller, MCPServer(python.url)).run("Go.", trace=True)
    (shown, *_) = caller.requests[0].tools
    parameters = shown["function"]["parameters"]
    definitions = parameters["$defs"]
    assert definitions["Unit"]["enum"] == ["m", "ft"]
    assert definitions["Length"]["required"] == ["value", "unit"]
    assert_events(
        result,
        "tool_call_failed tool=convert",
        "tool_call_failed tool=refuse",
        "tool_call_finished tool=picture",
    )
    assert "It is Sunday." in caller.answers[1]
    assert "image/png" in str(caller.requests[-1].messages)

    reference = started(everything(node_program))
    caller = Caller([ToolCall.of("get-tiny-image")])
    agent(caller, MCPServer(reference.url)).run("Go.")
    assert "image/png" in str(caller.requests[-1].messages)


def test_a_server_that_is_away(
    node_program: NodeProgram, started: Started
) -> None:
    """It is dead at first, comes, is killed, and is back without its sessions; each run goes on."""
    reference = started(everything(node_program))
    caller = Caller([ToolCall.of("echo", message="Hello")])
    server = MCPServer(reference.url, timeout=20)
    helper = agent(caller, server)
    reference.kill()
    with pytest.raises(ToolError, match="not reachable"):
        helper.run("Go.")  # without a lock, its tools are not known yet
    reference.start()
    assert "Echo: Hello" in str(helper.run("Go."))
    reference.kill()
    result = helper.run("Go.", trace=True)
    assert_events(result, "tool_call_failed tool=echo", "run_finished")
    assert "not reachable" in caller.answers[0]
    reference.start()
    assert "Echo: Hello" in str(helper.run("Go."))


SERVED = """
import asyncio, json, os
from pathlib import Path
import podwright
from podwright import FunctionModel
from podwright.testing import ToolCall
from podwright.mcp.server import MCPServer
from podwright_service.background import store, worker

store.LEASE_SECONDS = 1.0
worker.RENEWAL_INTERVAL = worker.RETRY_INTERVAL = 0.1
call = json.loads(os.environ["CALL"])
folder = Path(__file__).parent

async def respond(request):
    last = request.messages[-1]
    if last.role != "tool":
        return ToolCall.of(call["tool"], **call["arguments"])
    (folder / "asked").touch()
    while not (folder / "open").exists():
        await asyncio.sleep(0.02)
    return "It said: " + last.text

agent = podwright.load(
    folder / "helper", mcp={"it": MCPServer(os.environ["SERVER"])}, model=FunctionModel(respond)
)
"""


@pytest.mark.parametrize("kind", ["everything", "python"])
def test_a_background_run_with_a_kill(
    node_program: NodeProgram,
    started: Started,
    shell: Shell,
    command: Command,
    address: Address,
    tmp_path: Path,
    sqlite_database: str,
    kind: str,
) -> None:
    """The process is killed after the call of a tool: another one ends the run, and the tool is not called again."""
    book = tmp_path / "book"
    tools = python_server(BOOK=str(book))
    call: dict[str, Any] = {"tool": "pay", "arguments": {"text": "Alice"}}
    said = "It said: paid Alice"
    if kind == "everything":
        tools = everything(node_program)
        call = {"tool": "echo", "arguments": {"message": "Hello"}}
        said = "It said: Echo: Hello"
    url = started(tools).url
    write_files(
        tmp_path,
        {
            "made.py": SERVED,
            "helper/blueprint.json": with_tools(call["tool"]),
        },
    )
    synced = shell("sync", "helper", "--mcp", f"it={url}")
    assert synced.returncode == 0, synced.stderr

    def served() -> tuple[Process, str]:
        process = command(
            *("serve", "made:agent", "--host", "127.0.0.1", "--port", "0"),
            cwd=tmp_path,
            PODWRIGHT_RUNS_DATABASE=sqlite_database,
            CALL=json.dumps(call),
            SERVER=url,
        )
        at = address(process)
        discard_output(process)
        return process, at

    process, at = served()
    with httpx.Client(base_url=at, timeout=60) as client:
        run = begin(client, "Go.")
    until((tmp_path / "asked").exists)
    process.send_signal(signal.SIGKILL)
    process.wait()
    if kind == "everything":  # which loses its sessions
        tools.kill()
        tools.start()
    (tmp_path / "open").touch()
    _, at = served()
    with httpx.Client(base_url=at, timeout=60) as client:
        ended = wait(client, run)
    assert ended["status"] == "succeeded", ended
    assert said in json.dumps(ended)
    if kind == "python":
        assert book.read_text() == "Alice\n"
