"""`POST /mcp`: the served component as a tool of MCP clients, in both eras of the protocol."""

from __future__ import annotations

import asyncio
import functools
import gc
import json
import subprocess
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any, cast

import httpx
import httpx2
import pytest
from jsonschema import Draft202012Validator
from mcp import Client, MCPError
from mcp.client.streamable_http import streamable_http_client
from pydantic import BaseModel
from tests.service.support import (
    FaultyAgent,
    Gate,
    Serve,
    Served,
    check_problem,
)

from podwright import Agent, AgentStep, RunContext, Workflow
from podwright.errors import Refusal
from podwright.testing import (
    FunctionModel,
    ModelResponse,
    ScriptedModel,
    ToolCall,
)
from podwright_service import create_app, lifespan
from podwright_service.http.json_body import MAX_VALUES
from podwright_service.mcp_api.progress import Progress
from podwright_service.settings import Settings

ERAS = ("2026-07-28", "legacy")
RUN = "run-0123456789abcdef"
READ = "read-0123456789abcdef"
LIST = {"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {}}
ACCEPT = {"accept": "application/json, text/event-stream"}


class City(BaseModel):
    name: str
    people: int


def echo(name: str = "helper", **options: Any) -> Agent:
    return Agent(name, "Help.", "offline/echo", **options)


@asynccontextmanager
async def connected(
    served: httpx.Client, era: str, key: str = ""
) -> AsyncGenerator[Client]:
    """The official client of a service, in one era."""
    headers = {"authorization": f"Bearer {key}"} if key else {}
    url = f"{str(served.base_url).rstrip('/')}/mcp"
    async with (
        httpx2.AsyncClient(headers=headers, timeout=60) as http,
        Client(streamable_http_client(url, http_client=http), mode=era) as one,
    ):
        yield one


def call_once(served: httpx.Client, era: str) -> httpx.Response:
    """The response to a call of the tool `helper`, as it is on the wire."""
    params: dict[str, Any] = {"name": "helper", "arguments": {"input": "x"}}
    headers = {**ACCEPT, "mcp-protocol-version": "2025-11-25"}
    if era != "legacy":
        params["_meta"] = {
            "io.modelcontextprotocol/protocolVersion": era,
            "io.modelcontextprotocol/clientCapabilities": {},
        }
        headers = {
            **ACCEPT,
            "mcp-protocol-version": era,
            "mcp-method": "tools/call",
            "mcp-name": "helper",
        }
    body = {
        "jsonrpc": "2.0",
        "id": "a",
        "method": "tools/call",
        "params": params,
    }
    return served.post("/mcp", json=body, headers=headers)


def text_of(result: Any) -> str:
    (content,) = result.content
    return content.text


@pytest.mark.parametrize("era", ERAS)
async def test_a_call_is_a_run(serve: Serve, era: str) -> None:
    """The tool has the component's name and description; a call is answered, and counted, as a request to `/run` is."""
    served = serve(echo("Café desk", description="Answers."), mcp=True)
    async with connected(served, era) as client:
        (tool,) = (await client.list_tools()).tools
        assert (tool.name, tool.title, tool.description) == (
            "Cafe_desk",
            "Café desk",
            "Answers.",
        )
        assert tool.input_schema["required"] == ["input"]
        assert tool.output_schema is None
        result = await client.call_tool(tool.name, {"input": "the moon"})
        assert not result.is_error
        assert "the moon" in text_of(result)
    lines = served.get("/metrics").text.splitlines()
    runs = {line for line in lines if line.startswith("podwright_runs_total{")}
    assert [line for line in runs if line.endswith(" 1.0")], runs
    assert any('"/mcp"' in line for line in lines)


@pytest.mark.parametrize("era", ERAS)
async def test_declared_inputs_and_a_response_schema(
    serve: Serve, era: str
) -> None:
    """Declared inputs are the tool's parameters, and the response schema that of its structured result."""
    agent = Agent(
        "city",
        "Describe {place}.",
        ScriptedModel('{"name": "Ulm", "people": 3}'),
        inputs={
            "place": {"type": "string"},
            "year": {"type": "integer", "default": 2026},
        },
        response_model=City,
    )
    async with connected(serve(agent, mcp=True), era) as client:
        (tool,) = (await client.list_tools()).tools
        assert set(tool.input_schema["properties"]) == {"place", "year"}
        assert tool.input_schema["required"] == ["place"]
        assert tool.output_schema is not None
        result = await client.call_tool("city", {"place": "Ulm"})
        assert result.structured_content == {"name": "Ulm", "people": 3}
        assert json.loads(text_of(result)) == result.structured_content
        wrong = await client.call_tool("city", {"year": "never"})
        problem = json.loads(text_of(wrong))
        assert (wrong.is_error, problem["code"]) == (True, "inputs_invalid")
        assert "/inputs" not in problem["detail"]
        assert {each["pointer"] for each in problem["errors"]} == {
            "/place",
            "/year",
        }
        nothing = json.loads(text_of(await client.call_tool("city", {})))
        assert [each["pointer"] for each in nothing["errors"]] == ["/place"]


@pytest.mark.parametrize("era", ERAS)
async def test_a_refusal_in_words(serve: Serve, era: str) -> None:
    """A model that refuses to fill the response schema fails the call with its words, and there is no other data."""
    refusal = ModelResponse(
        "I will not say.", finish_reason="refusal", refusal="I will not say."
    )
    agent = Agent(
        "city", "Describe.", ScriptedModel(refusal), response_model=City
    )
    async with connected(serve(agent, mcp=True), era) as client:
        await client.list_tools()
        result = await client.call_tool("city", {"input": "Ulm"})
    problem = json.loads(text_of(result))
    assert (result.is_error, problem["code"]) == (True, "model_refused")
    assert problem["refusal"] == "I will not say."
    assert result.structured_content is None


@pytest.mark.parametrize("era", ERAS)
async def test_a_refusal_of_a_function(serve: Serve, era: str) -> None:
    """It fails the call with its code and words, which are the function's own."""

    def refuse() -> None:
        raise Refusal("off_topic", "Only cities.")

    agent = Agent("city", "Describe.", ScriptedModel(), before=refuse)
    async with connected(serve(agent, mcp=True), era) as client:
        await client.list_tools()
        result = await client.call_tool("city", {"input": "Ulm"})
    problem = json.loads(text_of(result))
    assert (result.is_error, problem["code"]) == (True, "off_topic")
    assert problem["refusal"] == "Only cities."


@pytest.mark.parametrize("era", ERAS)
async def test_progress_and_the_result_of_a_workflow(
    serve: Serve, era: str
) -> None:
    """Each step, tool call and report is told to a caller who asks for progress, in order and before the result."""

    def look(word: str, context: RunContext) -> str:
        """Look up."""
        context.report("page 1 of 1")
        return word

    model = ScriptedModel(ToolCall.of("look", word="x"), "found", "written")
    first = Agent("first", "Look.", model, tools=[look])
    second = Agent("second", "Write.", model)
    flow = Workflow("flow", [AgentStep(first), AgentStep(second)])
    told: list[tuple[float, str | None]] = []

    async def note(
        progress: float, total: float | None, message: str | None
    ) -> None:
        told.append((progress, message))

    async with connected(serve(flow, mcp=True), era) as client:
        result = await client.call_tool(
            "flow", {"input": "x"}, progress_callback=note
        )
        assert told == [
            (1, "step first"),
            (2, "tool look"),
            (3, "page 1 of 1"),
            (4, "step second"),
        ]
        content = json.loads(text_of(result))
        assert content["second_output"] == "written"


@pytest.mark.parametrize("era", ERAS)
@pytest.mark.parametrize(
    ("arguments", "pointer"),
    [
        ({}, "/input"),
        ({"input": 3}, "/input"),
        ({"input": [{"type": "text", "text": "x"}]}, "/input"),
        ({"input": "x", "start_step": 1}, "/start_step"),
        ({"input": "x", "inputs": {"_state": "s"}}, "/inputs"),
    ],
)
async def test_wrong_arguments(
    serve: Serve, era: str, arguments: dict[str, Any], pointer: str
) -> None:
    """Wrong arguments are a result that the model can read, with a pointer to each."""
    async with connected(serve(echo(), mcp=True), era) as client:
        result = await client.call_tool("helper", arguments)
        assert result.is_error
        problem = json.loads(text_of(result))
        assert pointer in [each["pointer"] for each in problem["errors"]]


@pytest.mark.parametrize("era", ERAS)
async def test_the_schema_of_declared_inputs(serve: Serve, era: str) -> None:
    """References of a declared schema lead to their place in the tool's; one that is not declared is refused."""
    place = {"$ref": "#/$defs/name", "$defs": {"name": {"type": "string"}}}
    agent = echo(inputs={"place": place})
    async with connected(serve(agent, mcp=True), era) as client:
        (tool,) = (await client.list_tools()).tools
        validator = Draft202012Validator(tool.input_schema)
        assert validator.is_valid({"place": "Ulm"})
        assert not validator.is_valid({"place": 3})
        for arguments in ({"place": "Ulm", "input": "x"}, {"plce": "Ulm"}):
            assert not validator.is_valid(arguments)
            result = await client.call_tool("helper", arguments)
            assert result.is_error, arguments
            problem = json.loads(text_of(result))
            (error,) = problem["errors"]
            assert error["pointer"].removeprefix("/") in arguments
            assert "/inputs" not in problem["detail"]


@pytest.mark.parametrize("era", ERAS)
async def test_a_bug_is_not_shown(
    serve: Serve, era: str, caplog: pytest.LogCaptureFixture
) -> None:
    """An exception that no caller expects is logged, and its text is not sent."""
    served = serve(FaultyAgent("helper", "Help.", "offline/echo"), mcp=True)
    async with connected(served, era) as client:
        with pytest.raises(MCPError) as error:
            await client.call_tool("helper", {"input": "x"})
    assert "secret" not in str(error.value.error)
    assert error.value.error.code == -32603


def test_an_application_that_starts_again() -> None:
    """The lifespan may be entered as often as without MCP."""
    app = create_app(Settings(mcp=True), echo())

    async def live() -> None:
        async with lifespan(app):
            pass

    for _ in range(2):
        asyncio.run(live())


@pytest.mark.parametrize("era", ERAS)
async def test_failures(serve: Serve, era: str) -> None:
    """A failed run is a result with code, advice and run id; a bug says no more than that; another tool is unknown."""

    def fail(_: Any) -> str:
        raise ValueError("a secret of the code")

    served = serve(Agent("helper", "Help.", FunctionModel(fail)), mcp=True)
    async with connected(served, era) as client:
        result = await client.call_tool("helper", {"input": "x"})
        problem = json.loads(text_of(result))
        assert (result.is_error, problem["code"]) == (True, "model_failed")
        assert {"run_id", "suggestion", "title"} <= problem.keys()
        with pytest.raises(MCPError, match="'helper'"):
            await client.call_tool("another", {})


def test_keys_and_methods(serve: Serve) -> None:
    """Calls need a key with the scope `run`; other methods are refused, and without the setting there is no route."""
    served = serve(echo(), mcp=True, api_keys=f"run:{RUN}, read:{READ}")

    def post(key: str = "", **headers: str) -> httpx.Response:
        if key:
            headers["authorization"] = f"Bearer {key}"
        return served.post("/mcp", json=LIST, headers={**ACCEPT, **headers})

    challenge = check_problem(post(), 401, "key_required").keys()
    assert "detail" in challenge
    assert post().headers["www-authenticate"].startswith("Bearer")
    check_problem(post(READ), 403, "scope_missing")
    assert post(RUN).status_code == 200
    for method in ("GET", "DELETE"):
        response = served.request(
            method, "/mcp", headers={"authorization": f"Bearer {RUN}"}
        )
        check_problem(response, 405, "method_not_allowed")
        assert response.headers["allow"] == "POST"
    check_problem(serve(echo()).post("/mcp", json=LIST), 404, "not_found")


def test_names_and_origins(serve: Serve) -> None:
    """Without keys, a name that points here is refused; a page of another origin always is, unless it is allowed."""
    served = serve(echo(), mcp=True)

    def post(**headers: str) -> httpx.Response:
        return served.post("/mcp", json=LIST, headers={**ACCEPT, **headers})

    assert post().status_code == 200
    check_problem(post(host="evil.example"), 400, "host_invalid")
    check_problem(post(origin="https://evil.example"), 403, "origin_refused")
    origin = "https://desk.example"
    allowed = serve(echo(), mcp=True, cors_origins=[origin])
    response = allowed.post(
        "/mcp", json=LIST, headers={**ACCEPT, "origin": origin}
    )
    assert response.status_code == 200


def test_bodies(serve: Serve) -> None:
    """What is no request of the protocol is answered as such; a large body is refused before it is read."""
    served = serve(echo(), mcp=True, max_body_bytes=4000)
    for body in (b"", b"{", b"[]", b"3", b"\xff", b'{"jsonrpc": "2.0"}'):
        response = served.post(
            "/mcp",
            content=body,
            headers={**ACCEPT, "content-type": "application/json"},
        )
        assert 400 <= response.status_code < 500, body
    for text in ("NaN", '"\\ud800"', "[" * 1500 + "]" * 1500):
        response = served.post(
            "/mcp",
            content=f'{{"jsonrpc":"2.0","id":1,"method":"x","params":{text}}}',
            headers={**ACCEPT, "content-type": "application/json"},
        )
        assert (response.status_code, response.json()["error"]["code"]) == (
            400,
            -32700,
        )
    large = {**LIST, "params": {"x": "y" * 5000}}
    check_problem(
        served.post("/mcp", json=large, headers=ACCEPT), 413, "body_too_large"
    )


def test_the_values_of_a_body(serve: Serve) -> None:
    """A body of more values than another route would read is refused before the package reads it."""
    served = serve(echo(), mcp=True)
    values = {**LIST, "params": {"x": [1] * (MAX_VALUES + 1)}}
    check_problem(
        served.post("/mcp", json=values, headers=ACCEPT), 413, "body_too_large"
    )


@pytest.mark.parametrize("era", ERAS)
async def test_a_caller_who_leaves_cancels_the_run(
    served: Served, era: str, caplog: pytest.LogCaptureFixture
) -> None:
    """The model call ends when the connection of its caller does, and the log has no error that nobody waits for."""
    gate = Gate()

    async def call(client: httpx.Client) -> None:
        async with connected(client, era) as caller:
            await caller.call_tool("helper", {"input": "x"})

    with served(gate.agent(), mcp=True) as client:
        task = asyncio.create_task(call(client))
        assert await asyncio.to_thread(gate.called.wait, 60)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert await asyncio.to_thread(gate.cancelled.wait, 60)
    # the event loop tells of errors when their tasks are deleted
    gc.collect()
    assert [each for each in caplog.records if each.name == "asyncio"] == []


@pytest.mark.parametrize("era", ERAS)
async def test_a_service_at_capacity(serve: Serve, era: str) -> None:
    """A call for which no slot becomes free is refused with an error that says so, and is no failed run."""
    gate = Gate()
    served = serve(gate.agent(), mcp=True, max_runs=1, max_wait=0.1)
    async with connected(served, era) as client:
        first = asyncio.create_task(
            client.call_tool("helper", {"input": "first"})
        )
        assert await asyncio.to_thread(gate.called.wait, 60)
        with pytest.raises(MCPError, match="capacity") as refused:
            await client.call_tool("helper", {"input": "second"})
        assert refused.value.error.data["code"] == "overloaded"
        response = await asyncio.to_thread(call_once, served, era)
        assert response.status_code == 503
        assert int(response.headers["retry-after"]) >= 1
        answer = response.json()
        assert (answer["id"], answer["error"]["code"]) == ("a", -32000)
        gate.opened.set()
        assert text_of(await first) == "done"
    assert gate.inputs == ["first"]


def test_nothing_is_imported_without_the_setting() -> None:
    """A service that does not serve MCP does not import the package."""
    code = (
        "import sys; from podwright import Agent; from podwright_service import create_app;"
        "from podwright_service.settings import Settings;"
        "create_app(Settings(), Agent('a', 'b', 'offline/echo'));"
        "print([name for name in sys.modules if name.split('.')[0] in ('mcp', 'mcp_types', 'sse_starlette')])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"


class SlowSession:
    """The connection to a caller who reads nothing for a while."""

    def __init__(self) -> None:
        self.is_read = asyncio.Event()
        self.told: list[float] = []

    async def report_progress(self, progress: float, message: str) -> None:
        await self.is_read.wait()
        self.told.append(progress)


async def test_progress_of_a_slow_reader() -> None:
    """What is unread is bounded: the oldest messages are left out, and the run does not wait."""
    session = SlowSession()
    progress = Progress(cast("Any", session))
    async with progress.sending():
        for _ in range(1000):
            progress.handle_stored({"type": "tool_call_started", "tool": "t"})
        await asyncio.sleep(0)
        for _ in range(1000):
            progress.handle_stored({"type": "tool_call_started", "tool": "t"})
        session.is_read.set()
    assert len(session.told) <= 101
    assert session.told == sorted(session.told)
    assert session.told[-1] == 2000


@pytest.mark.parametrize("era", ERAS)
async def test_a_posted_cancellation(serve: Serve, era: str) -> None:
    """It is accepted and cancels nothing: without sessions, the id of a request may be that of another caller's."""
    gate = Gate()
    served = serve(gate.agent(), mcp=True)
    call = asyncio.create_task(asyncio.to_thread(call_once, served, era))
    assert await asyncio.to_thread(gate.called.wait, 60)
    version = "2025-11-25" if era == "legacy" else era
    notification = {
        "jsonrpc": "2.0",
        "method": "notifications/cancelled",
        "params": {"requestId": "a"},
    }
    response = await asyncio.to_thread(
        functools.partial(
            served.post,
            "/mcp",
            json=notification,
            headers={**ACCEPT, "mcp-protocol-version": version},
        )
    )
    assert response.status_code == 202
    gate.opened.set()
    response = await call
    assert response.status_code == 200
    assert "done" in response.text
    assert not gate.cancelled.is_set()
