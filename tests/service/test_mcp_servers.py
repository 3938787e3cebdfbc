"""The MCP servers of the operator: settings, inline blueprints, and the headers of callers."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, get_args

import httpx
import pytest
from opentelemetry.sdk.trace.export.in_memory_span_exporter import (
    InMemorySpanExporter,
)
from tests.helpers import plain_http, until
from tests.library import mcp_program
from tests.library.mcp_server import ServerDouble, definition
from tests.mcp_stub import MCPStub
from tests.service.support import (
    Command,
    Serve,
    Served,
    Shell,
    check_problem,
    discard_output,
    pointers,
)
from typing_extensions import override

from podwright import Agent, FunctionModel, MCPServer, load, register_provider
from podwright.errors import ConfigurationError, InputError
from podwright.mcp.lock import LOCK_FILE, MCPLock
from podwright.mcp.results import Reason
from podwright.mcp.server import ToolListing
from podwright.models import Connection, Model
from podwright.testing import ModelRequest, ToolCall
from podwright_service.mcp_servers import servers_of, servers_of_options
from podwright_service.observability.metrics import table
from podwright_service.settings import Settings, read_settings
from podwright_service.testing import Metrics

READ = definition("read_file")
WRITE = definition("write_file")
SECRET = "tenant-header-that-nobody-keeps"
VARIABLES = {
    "PODWRIGHT_ALLOWED_MCP",
    "PODWRIGHT_MCP_DRIFT",
    "PODWRIGHT_MCP_KEYS",
    "PODWRIGHT_MCP_KEY_FILES",
    "PODWRIGHT_MCP_SERVERS",
    "PODWRIGHT_MCP_SERVERS_FILE",
}


def blueprint(*tools: Any, server: str = "files", **more: Any) -> Any:
    """The blueprint of an agent with tools of a server."""
    return {
        "type": "Agent",
        "version": "1",
        "name": "reader",
        "instructions": "Read.",
        "config": {"model": "offline/echo"},
        "mcp": [{"server": server, "tools": list(tools)}],
        **more,
    }


def settings_of(**values: Any) -> Settings:
    """Settings of data as variables have it."""
    return Settings(**values)


def folder_of(path: Path, *tools: Any) -> Path:
    """A folder with an agent that has tools of the server `files`, and their lock."""
    path.mkdir(exist_ok=True)
    (path / "blueprint.json").write_text(json.dumps(blueprint(*tools)))
    MCPLock({"files": {"read_file": READ, "write_file": WRITE}}).write_file(
        path / LOCK_FILE
    )
    return path


# --- Settings ---------------------------------------------------------------------------------------------------------


def test_servers_of_a_variable_and_of_a_file(tmp_path: Path) -> None:
    """A server is a URL or an object; the variable precedes the file; nothing is called."""
    file = tmp_path / "servers.json"
    file.write_text(
        json.dumps(
            {
                "files": "http://files.example/mcp",
                "crm": {
                    "url": "https://crm.example/mcp",
                    "timeout": 2,
                    "headers_from_request": ["X-Tenant"],
                },
            }
        )
    )
    key = tmp_path / "crm.key"
    key.write_text("key-of-crm\n")
    settings = settings_of(
        mcp_servers='{"files": "https://other.example/mcp"}',
        mcp_servers_file=str(file),
        mcp_key_files={"crm": str(key)},
        mcp_keys={"files": "key-of-files"},
    )
    servers = servers_of(settings)
    assert {name: server.name for name, server in servers.items()} == {
        "files": "files",
        "crm": "crm",
    }
    assert servers["crm"].timeout == 2
    assert servers["crm"].headers_from_request == ("x-tenant",)
    assert servers["files"].is_up is None
    assert "key-of" not in repr(servers)
    assert "key-of" not in repr(settings)


@pytest.mark.parametrize(
    ("value", "pointer"),
    [
        ("[]", ""),
        ("{", ""),
        ('{"files": 7}', "/files"),
        ('{"files": {}}', "/files/url"),
        ('{"files": {"url": "ftp://a"}}', "/files/url"),
        ('{"files": "http://user:pass-word@a/mcp"}', "/files/url"),
        ('{"files": {"url": "http://a", "timeout": 0}}', "/files/timeout"),
        ('{"files": {"url": "http://a", "headers": {}}}', "/files/headers"),
        ('{"a/b": "http://a"}', "/a~1b"),
        (
            '{"files": {"url": "http://a", "headers_from_request": ["a b"]}}',
            "/files/headers_from_request/0",
        ),
    ],
)
def test_an_invalid_entry_is_a_problem_at_its_place(
    value: str, pointer: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each mistake has the variable and a pointer, and no password is quoted."""
    monkeypatch.setenv("PODWRIGHT_MCP_SERVERS", value)
    with pytest.raises(ConfigurationError) as caught:
        read_settings()
    assert f"PODWRIGHT_MCP_SERVERS{pointer}" in caught.value.message
    assert "pass-word" not in str(caught.value)


def test_an_invalid_file_is_one_error(tmp_path: Path) -> None:
    """All mistakes of a file are told, with the variable that names it."""
    file = tmp_path / "servers.json"
    file.write_text('{"a": {"url": "x"}, "b": {"timeout": 1}}')
    with pytest.raises(ConfigurationError) as caught:
        servers_of(settings_of(mcp_servers_file=str(file)))
    for part in ("PODWRIGHT_MCP_SERVERS_FILE", "/a/url", "/b: "):
        assert part in caught.value.message
    with pytest.raises(ConfigurationError, match="PODWRIGHT_MCP_SERVERS_FILE"):
        servers_of(settings_of(mcp_servers_file=str(tmp_path / "none.json")))


@pytest.mark.parametrize("setting", ["mcp_keys", "mcp_key_files"])
def test_a_key_belongs_to_a_server(setting: str) -> None:
    """A key for a name that is not a server's is refused, with the name that may be meant."""
    options: dict[str, Any] = {setting: {"file": "key"}}
    settings = settings_of(mcp_servers={"files": "https://a/mcp"}, **options)
    with pytest.raises(ConfigurationError) as caught:
        servers_of(settings)
    assert f"PODWRIGHT_{setting.upper()}" in caught.value.message
    assert "files" in caught.value.suggestion


def test_all_mistakes_of_servers_are_in_one_error(tmp_path: Path) -> None:
    """Headers of callers do not go over plain HTTP, callers' keys of the service nowhere, and a file has a key."""
    caller = {"headers_from_request": ["authorization"]}
    settings = settings_of(
        mcp_servers={
            "plain": {"url": "http://plain.example/mcp", **caller},
            "both": {"url": "https://both.example/mcp", **caller},
            "empty": {"url": "https://empty.example/mcp"},
        },
        mcp_keys={"both": "key-of-both"},
        mcp_key_files={"empty": str(tmp_path / "none")},
        api_keys="a-key-of-sixteen-characters",
    )
    with pytest.raises(ConfigurationError) as caught:
        servers_of(settings)
    mistakes = caught.value.message.split("\n  - ")[1:]
    servers = [line.split("'")[1] for line in mistakes]
    assert servers == ["plain", "plain", "both", "both", "empty"]
    assert "key-of-both" not in str(caught.value)


def test_printed_settings_have_no_secret(shell: Shell, tmp_path: Path) -> None:
    """`podwright settings --check` shows the servers, and no key and no query of a URL."""
    component = folder_of(tmp_path / "reader", "read_file")
    done = shell(
        "settings",
        "--json",
        "--check",
        PODWRIGHT_COMPONENT=str(component),
        PODWRIGHT_MCP_SERVERS='{"files": "http://127.0.0.1:1/mcp?token=tok-en"}',
        PODWRIGHT_MCP_KEYS='{"files": "key-of-files"}',
    )
    assert done.returncode == 0, done.stderr
    values = {row["variable"]: row["value"] for row in json.loads(done.stdout)}
    assert values["PODWRIGHT_MCP_SERVERS"]["files"]["url"].startswith(
        "http://127.0.0.1:1/mcp"
    )
    assert values.keys() >= VARIABLES
    assert "key-of-files" not in done.stdout + done.stderr
    assert "tok-en" not in done.stdout + done.stderr


def test_a_server_without_a_url_stops_the_start(
    shell: Shell, tmp_path: Path
) -> None:
    """A folder can be validated without settings, and is not served before its server has a URL."""
    component = folder_of(tmp_path / "reader", "read_file")
    assert shell("validate", str(component)).returncode == 0
    done = shell("serve", str(component), "--port", "0")
    assert done.returncode == 1
    assert "/mcp/0/server" in done.stderr
    assert "PODWRIGHT_MCP_SERVERS" in done.stderr


def test_options_name_servers() -> None:
    """`--mcp` has a URL, or a program with its arguments; it precedes the settings, of which it has the key."""
    settings = settings_of(
        mcp_servers={"files": "https://a/mcp", "crm": "https://b/mcp"},
        mcp_keys={"files": "key"},
    )
    servers = servers_of_options(
        ["files=http://127.0.0.1:1/mcp?a=b", "shell=python -c 'a = 1'"],
        settings,
    )
    assert list(servers) == ["files", "crm", "shell"]
    assert [server.name for server in servers.values()] == list(servers)
    for wrong in (["files"], ["=x"], ["a="], ["a='"], ["a=x", "a=y"]):
        with pytest.raises(InputError):
            servers_of_options(wrong, settings)


@pytest.mark.parametrize("command", ["''", "podwright-no-such-program x"])
def test_a_program_that_is_not_there(command: str) -> None:
    with pytest.raises(InputError) as caught:
        servers_of_options([f"a={command}"], settings_of())
    assert "program" in caught.value.message


def test_a_url_without_its_scheme() -> None:
    """It is read as a program, and the suggestion says so without repeating it."""
    with pytest.raises(InputError) as caught:
        servers_of_options(["a=me:secret@127.0.0.1:1/mcp"], settings_of())
    assert "http://" in (caught.value.suggestion or "")
    assert "secret" not in str(caught.value)


# --- The service ------------------------------------------------------------------------------------------------------


class Files(ServerDouble):
    """A server that keeps the headers that it is sent, and of which another tenant has another tool."""

    def __init__(self, *headers: str) -> None:
        super().__init__(READ, WRITE, headers_from_request=headers)
        self.listed_for: list[Mapping[str, str]] = []
        self.texts: dict[str, str] = {}
        """Descriptions of `read_file`, by tenant."""

    @override
    async def list_tools(
        self,
        headers: Mapping[str, str] | None = None,
        traceparent: str | None = None,
        *,
        cached: bool = False,
    ) -> ToolListing:
        self.listed_for.append(dict(headers or {}))
        tenant = (headers or {}).get("x-tenant", "nobody")
        text = self.texts.get(tenant, f"Reads for {tenant}.")
        tool = definition("read_file", description=text)
        return ToolListing({"read_file": tool, "write_file": WRITE}, {})

    @property
    def sent(self) -> list[Mapping[str, str]]:
        """The headers of the calls."""
        return [options["headers"] for options in self.options]


def caller(tool: str = "read_file") -> FunctionModel:
    """A model that calls a tool once, and answers with the tool's description, and what it was told."""

    def answer(request: ModelRequest) -> Any:
        results = [
            each.text for each in request.messages if each.role == "tool"
        ]
        if not results:
            return [ToolCall.of(tool, path="a.txt")]
        shown = [each["function"].get("description") for each in request.tools]
        return json.dumps({"shown": shown, "told": results})

    return FunctionModel(answer, name="offline/caller")


def reader(server: ServerDouble, *tools: Any, **more: Any) -> Agent:
    """An agent with tools of the server `files`."""
    return Agent.from_blueprint(
        blueprint(*(tools or ["read_file"]), **more),
        mcp={"files": server},
        model=caller(),
    )


def scrape(client: httpx.Client) -> Metrics:
    """The metrics of a service."""
    return Metrics(client.get("/metrics").text)


def answer_of(response: Any) -> Any:
    assert response.status_code == 200, response.text
    return json.loads(response.json()["output"])


def test_two_callers_are_shown_what_is_theirs(serve: Serve) -> None:
    """A server is sent those headers of a caller that it lists, in listings and in calls, and no other ones."""
    files = Files("x-tenant")
    client = serve(reader(files))
    for tenant in ("alice", "bob"):
        headers = {"X-Tenant": tenant, "x-other": "other"}
        response = client.post("/run", json={"input": "x"}, headers=headers)
        assert answer_of(response)["shown"] == [f"Reads for {tenant}."]
    assert answer_of(client.post("/run", json={"input": "x"}))["shown"] == [
        "Reads for nobody."
    ]
    expected = [{"x-tenant": "alice"}, {"x-tenant": "bob"}, {}]
    assert files.listed_for == expected
    assert files.sent == expected


def test_no_header_of_a_caller_is_stored(
    serve: Serve, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Neither database, events nor log have one; so a background run has none, and its tool fails by name."""
    files = Files("x-tenant")
    folder = folder_of(tmp_path / "reader", "read_file")
    agent = load(folder, mcp={"files": files}, model=caller())
    database = tmp_path / "runs.db"
    caplog.set_level("DEBUG")
    client = serve(
        agent,
        runs_database=f"sqlite:///{database}",
        log_level="debug",
        log_content=True,
    )
    headers = {"X-Tenant": SECRET}
    body = {"input": "x"}
    with client.stream(
        "POST", "/run/stream", json=body, headers=headers
    ) as stream:
        events = stream.read().decode()
    assert "content of a.txt" in events
    traced = client.post("/run?trace=true", json=body, headers=headers).text
    assert [each["x-tenant"] for each in files.sent] == [SECRET, SECRET]
    run = client.post("/runs", json=body, headers=headers)
    assert run.status_code == 202

    def ended() -> Any:
        stored = client.get(run.headers["location"]).json()
        return stored if stored["status"] == "succeeded" else None

    until(ended)
    [told] = json.loads(ended()["result"]["output"])["told"]
    assert "'files'" in told
    assert "x-tenant" in told
    assert len(files.calls) == 2
    stored = b"".join(
        path.read_bytes() for path in tmp_path.glob("runs.db*")
    ).decode(errors="replace")
    assert "read_file" in stored
    for text in (stored, events, traced, told, caplog.text):
        assert SECRET not in text


def test_a_stored_response_is_of_the_same_headers(serve: Serve) -> None:
    """A repeated request of another tenant is not answered with what the first one was."""
    files = Files("x-tenant")
    client = serve(reader(files))
    shown: list[str] = []
    for tenant in ("alice", "bob", "alice"):
        headers = {"x-tenant": tenant, "idempotency-key": "order-17"}
        response = client.post("/run", json={"input": "x"}, headers=headers)
        shown += answer_of(response)["shown"]
    assert shown == [f"Reads for {each}." for each in ("alice", "bob", "alice")]
    assert files.sent == [{"x-tenant": "alice"}, {"x-tenant": "bob"}]


def test_a_run_that_goes_on_has_the_headers_of_its_request(
    serve: Serve,
) -> None:
    """What a caller carries of a paused run has no header; the request that approves a call brings its own."""
    files = Files("x-tenant")
    client = serve(reader(files, {"name": "read_file", "approval": True}))
    paused = client.post(
        "/run", json={"input": "x"}, headers={"x-tenant": SECRET}
    )
    assert paused.json()["code"] == "approval_required"
    assert SECRET not in paused.text
    body = {
        "inputs": paused.json()["context"],
        "decision": {"decision": "approve"},
    }
    answer_of(client.post("/run", json=body, headers={"x-tenant": "bob"}))
    assert files.sent == [{"x-tenant": "bob"}]


def test_the_start_needs_no_connection(serve: Serve, tmp_path: Path) -> None:
    """A service is ready without its server, of which `/info` says that nobody has asked it yet."""
    servers: dict[str, Any] = {
        "mcp_servers": {"files": "http://127.0.0.1:1/mcp"}
    }
    folder = folder_of(tmp_path / "reader", "read_file")
    component = load(folder, mcp=servers_of(Settings(**servers)))
    client = serve(component, **servers)
    assert client.get("/ready").status_code == 200
    info = client.get("/info").json()
    assert info["mcp"] == {"files": None}
    assert info["accepts"]["mcp"] == ["files/read_file"]
    assert "127.0.0.1:1" not in json.dumps(info)


# --- Inline blueprints ------------------------------------------------------------------------------------------------


def inline(*tools: Any, **more: Any) -> dict[str, Any]:
    """The body of a request with an inline blueprint."""
    return {
        "type": "agent",
        "blueprint": blueprint(*tools, **more),
        "input": "x",
    }


def test_inline_blueprints_name_tools_of_the_component(serve: Serve) -> None:
    """By default the tools of the component are allowed, and all others are named as problems at once."""
    client = serve(reader(Files()))
    body = inline("read_file", "write_file", "read_fil")
    body["blueprint"]["mcp"].append({"server": "fils", "tools": ["a"]})
    problem = check_problem(
        client.post("/run-blueprint", json=body), 422, "blueprint_invalid"
    )
    assert pointers(problem) == [
        "/blueprint/mcp/0/tools/1",
        "/blueprint/mcp/0/tools/2",
        "/blueprint/mcp/1/server",
    ]
    step = {
        "type": "function_step",
        "name": "s",
        "mcp": {"server": "files", "tool": "write_file"},
    }
    workflow = {
        "version": "1",
        "type": "Workflow",
        "name": "w",
        "steps": [step],
    }
    body = {"type": "workflow", "blueprint": workflow, "input": "x"}
    problem = check_problem(
        client.post("/run-blueprint", json=body), 422, "blueprint_invalid"
    )
    assert pointers(problem) == ["/blueprint/steps/0/mcp"]


@pytest.fixture(scope="module", autouse=True)
def callers() -> None:
    """Models `mcp-caller/NAME`, each of which calls the tool of its name."""

    def make(name: str, connection: Connection) -> Model:
        return caller(name)

    register_provider("mcp-caller", make)


def test_inline_tools_have_the_lock_of_the_component(
    serve: Serve, tmp_path: Path
) -> None:
    """A locked definition is shown as it is locked; another one is that of the server, in each run anew."""
    files = Files()
    folder = folder_of(tmp_path / "reader", "write_file")
    client = serve(
        load(folder, mcp={"files": files}),
        allowed_mcp=["files"],
        allowed_models=["mcp-caller/read_file", "mcp-caller/write_file"],
    )
    assert client.get("/info").json()["accepts"]["mcp"] == ["files"]
    body = inline(
        "read_file",
        "write_file",
        config={"model": "mcp-caller/write_file"},
    )
    shown = answer_of(client.post("/run-blueprint", json=body))["shown"]
    assert shown == ["Reads for nobody.", "Does write_file."]
    locks = [options["locked"] for options in files.options]
    assert [lock.digest for lock in locks] == [WRITE.digest]
    files.texts["nobody"] = "Reads otherwise."
    shown = answer_of(client.post("/run-blueprint", json=body))["shown"]
    assert shown == ["Reads otherwise.", "Does write_file."]


def test_inline_tools_are_as_strict_as_those_of_the_component(
    serve: Serve,
) -> None:
    """Options of the component hold unless an entry is stricter; looser ones are problems at their places."""
    files = Files()
    component = reader(
        files,
        {"name": "read_file", "approval": True, "timeout": 5},
        "write_file",
    )
    client = serve(component, allowed_models=["mcp-caller/read_file"])
    config = {"model": "mcp-caller/read_file"}
    loose = {
        "name": "read_file",
        "approval": False,
        "timeout": 6,
        "idempotent": True,
    }
    problem = check_problem(
        client.post("/run-blueprint", json=inline(loose, config=config)),
        422,
        "blueprint_invalid",
    )
    assert sorted(pointers(problem)) == [
        f"/blueprint/mcp/0/tools/0/{name}"
        for name in ("approval", "idempotent", "timeout")
    ]
    body = inline("read_file", config=config)
    response = client.post("/run-blueprint", json=body)
    assert response.json()["code"] == "approval_required"
    assert files.calls == []
    step = {
        "type": "function_step",
        "name": "s",
        "mcp": {"server": "files", "tool": "read_file"},
        "arguments": {"path": "a.txt"},
    }
    workflow = {
        "version": "1",
        "type": "Workflow",
        "name": "w",
        "steps": [step],
    }
    body = {"type": "workflow", "blueprint": workflow, "input": "x"}
    problem = check_problem(
        client.post("/run-blueprint", json=body), 422, "blueprint_invalid"
    )
    assert pointers(problem) == ["/blueprint/steps/0/mcp"]


def test_allowed_tools_have_servers(serve: Serve) -> None:
    """A list of the operator replaces the component's tools, and names servers that the service has."""
    with pytest.raises(ConfigurationError) as caught:
        serve(reader(Files()), allowed_mcp=["fils/read_file"])
    assert "PODWRIGHT_ALLOWED_MCP" in caught.value.message
    assert "files" in caught.value.suggestion
    client = serve(reader(Files()), allowed_mcp=["files/write_file"])
    problem = check_problem(
        client.post("/run-blueprint", json=inline("write_file", "read_file")),
        422,
        "blueprint_invalid",
    )
    assert pointers(problem) == ["/blueprint/mcp/0/tools/1"]
    assert "write_file" in problem["errors"][0]["suggestion"]


def test_metrics_have_all_reasons_of_exchanges() -> None:
    """The table has the reasons of exchanges; those about one tool, which is not called, are no exchanges."""
    assert {*table.MCP_REASONS, "drift", "unknown_tool"} == set(
        get_args(Reason)
    )


# --- Over the wire ----------------------------------------------------------------------------------------------------


def test_what_is_seen_of_a_server(
    serve: Serve, tmp_path: Path, spans: InMemorySpanExporter
) -> None:
    """`/info`, metrics and spans say whether it answers; it is called again without a restart, in the same trace."""
    with MCPStub(tools=[READ.to_data()]) as stub:
        servers: dict[str, Any] = {
            "mcp_servers": {"files": stub.url},
            "mcp_keys": {"files": "key-of-files"},
        }
        folder = folder_of(tmp_path / "reader", "read_file")
        component = load(
            folder, mcp=servers_of(Settings(**servers)), model=caller()
        )
        client = serve(component, **servers)
        metrics = scrape(client)
        assert "podwright_mcp_server_up{" not in client.get("/metrics").text
        labels = {"server": "files", "component": "reader", "kind": "agent"}
        failures = "podwright_mcp_exchange_failures_total"
        assert metrics.get(failures, **labels, reason="unreachable") == 0
        stub.down()
        told = answer_of(client.post("/run", json={"input": "x"}))["told"]
        assert "'files'" in told[0]
        assert client.get("/ready").status_code == 200
        assert client.get("/info").json()["mcp"] == {"files": False}
        metrics = scrape(client)
        assert metrics.get("podwright_mcp_server_up", **labels) == 0
        assert metrics.get(failures, **labels, reason="unreachable") >= 1
        stub.up()
        spans.clear()
        told = answer_of(client.post("/run", json={"input": "x"}))["told"]
        assert "a.txt" in told[0]
        assert client.get("/info").json()["mcp"] == {"files": True}
        metrics = scrape(client)
        assert metrics.get("podwright_mcp_server_up", **labels) == 1
        durations = "podwright_mcp_exchange_duration_seconds_count"
        assert metrics.get(durations, **labels, method="tools/call") == 1
    [call] = stub.calls
    assert call.headers["authorization"] == "Bearer key-of-files"
    [span] = [
        each
        for each in spans.get_finished_spans()
        if each.name == "execute_tool read_file"
    ]
    attributes = dict(span.attributes or {})
    assert attributes["mcp.method.name"] == "tools/call"
    assert attributes["mcp.protocol.version"] == "2026-07-28"
    assert attributes["podwright.mcp.server"] == "files"
    assert "mcp.session.id" not in attributes
    context = span.get_span_context()
    assert context is not None
    assert (
        f"{context.trace_id:032x}-{context.span_id:016x}"
        in call.meta["traceparent"]
    )


def test_a_key_is_replaced_by_its_file(serve: Serve, tmp_path: Path) -> None:
    """A file with a key is read again without a restart."""
    key = tmp_path / "files.key"
    key.write_text("first-key\n")
    with MCPStub(tools=[READ.to_data()]) as stub:
        servers: dict[str, Any] = {
            "mcp_servers": {"files": stub.url},
            "mcp_key_files": {"files": str(key)},
        }
        agent = Agent.from_blueprint(
            blueprint("read_file"),
            mcp=servers_of(Settings(**servers)),
            model=caller(),
        )
        client = serve(agent, **servers)
        for text in ("first-key", "second-key"):
            key.write_text(f"{text}\n")
            answer_of(client.post("/run", json={"input": "x"}))
    assert [call.headers["authorization"] for call in stub.calls] == [
        "Bearer first-key",
        "Bearer second-key",
    ]


def test_callers_headers_reach_their_server(serve: Serve) -> None:
    """A caller's own `authorization` goes on if it is listed; a server that does not list it is sent none."""
    with MCPStub(tools=[READ.to_data()]) as stub:
        servers: dict[str, Any] = {
            "mcp_servers": {
                "mine": {
                    "url": stub.url,
                    "headers_from_request": ["Authorization"],
                },
                "files": stub.url,
            }
        }
        clients = [
            serve(
                Agent.from_blueprint(
                    blueprint("read_file", server=name),
                    mcp=servers_of(Settings(**servers)),
                    model=caller(),
                ),
                **servers,
            )
            for name in ("mine", "files")
        ]
        for client in clients:
            answer_of(
                client.post(
                    "/run",
                    json={"input": "x"},
                    headers={"Authorization": f"Bearer {SECRET}"},
                )
            )
    mine, files = stub.calls
    assert mine.headers["authorization"] == f"Bearer {SECRET}"
    assert "authorization" not in files.headers


SERVER = """
from mcp.server.mcpserver import MCPServer

server = MCPServer("shelf")


@server.tool()
def read_file(path: str) -> str:
    return f"content of {path}"


server.run("stdio")
"""
MODEL = """
import json

from podwright import FunctionModel, register_provider
from podwright.testing import ToolCall


def answer(request):
    results = [each.text for each in request.messages if each.role == "tool"]
    return results[0] if results else [ToolCall.of("read_file", path="a.txt")]


register_provider("own", lambda name, connection: FunctionModel(answer, name="own/reader"))
"""


@pytest.fixture
def stub() -> Iterator[MCPStub]:
    """A server whose tool answers "by HTTP"."""
    with MCPStub(
        tools=[READ.to_data()], answers={"read_file": "by HTTP"}
    ) as stub:
        yield stub


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The folder of an agent whose model calls the tool, and answers with its result."""
    folder = folder_of(tmp_path / "reader", "read_file")
    own = blueprint("read_file", config={"model": "own/reader"})
    (folder / "blueprint.json").write_text(json.dumps(own))
    (folder / "providers.py").write_text(MODEL)
    return folder


@pytest.fixture
def program(tmp_path: Path) -> str:
    """The command of a server that is a program."""
    file = tmp_path / "server.py"
    file.write_text(SERVER)
    return shlex.join([sys.executable, str(file)])


def test_commands_take_servers_with_a_url(
    shell: Shell, folder: Path, stub: MCPStub
) -> None:
    """`run` and `chat` call the server of `--mcp`; a component without its server does not begin."""
    option = ["--mcp", f"files={stub.url}"]
    done = shell("run", str(folder), "x", *option)
    assert (done.returncode, done.stdout) == (0, "by HTTP\n"), done.stderr
    done = shell("chat", str(folder), *option, stdin="one\n")
    assert (done.returncode, done.stdout) == (0, "by HTTP\n"), done.stderr
    assert len(stub.calls) == 2
    for wrong in ([], ["--mcp", "file=http://127.0.0.1:1/mcp"]):
        done = shell("run", str(folder), "x", *wrong)
        assert done.returncode == 1
        assert "/mcp/0/server" in done.stderr
    done = shell("chat", "http://127.0.0.1:1", *option, stdin="one\n")
    assert done.returncode != 0
    assert "--mcp" in done.stderr


def test_commands_take_servers_that_are_programs(
    shell: Shell, folder: Path, program: str
) -> None:
    """The program is started for `run` and `chat`, and ends with them, or they would not."""
    option = ["--mcp", f"files={program}"]
    # its definition has more than the lock
    variables = {"PODWRIGHT_MCP_DRIFT": "warn"}
    done = shell("run", str(folder), "x", *option, **variables)
    assert (done.returncode, done.stdout) == (0, "content of a.txt\n"), done
    done = shell("chat", str(folder), *option, stdin="a\nb\n", **variables)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "content of a.txt\n" * 2
    done = shell("run", str(folder), "x", *option)
    assert "content of" not in done.stdout


def test_dev_takes_servers(
    command: Command, folder: Path, program: str
) -> None:
    """Each version that `dev` serves has the servers of `--mcp`, a program too."""
    process = command(
        *("dev", str(folder), "--port", "0", "--mcp", f"files={program}"),
        PODWRIGHT_MCP_DRIFT="warn",
    )
    assert process.stdout is not None
    url = next(
        found[0]
        for line in process.stdout
        if (found := re.findall(r"Serving on (http://[^,]+),", line))
    )
    discard_output(process)
    assert plain_http.get(f"{url}/info").json()["mcp"] == {"files": None}
    for _ in range(2):
        response = plain_http.post(f"{url}/run", json={"input": "x"})
        assert response.json() == {"output": "content of a.txt"}
    assert plain_http.get(f"{url}/info").json()["mcp"] == {"files": True}


@pytest.mark.parametrize("during", ["process", "wait"])
def test_a_program_ends_with_the_service(served: Served, during: str) -> None:
    """The program of a server is gone when the service has stopped, also in the middle of a call."""

    def answer(request: ModelRequest) -> Any:
        last = request.messages[-1]
        return last.text if last.role == "tool" else [ToolCall.of(last.text)]

    agent = Agent.from_blueprint(
        blueprint("process", "wait"),
        mcp={"files": MCPServer.stdio(sys.executable, mcp_program.__file__)},
        model=FunctionModel(answer, name="offline/caller"),
    )
    with (
        ThreadPoolExecutor() as callers,
        served(agent, shutdown_timeout=1) as client,
    ):
        response = client.post("/run", json={"input": "process"})
        program = int(response.json()["output"])
        os.kill(program, 0)
        call = callers.submit(client.post, "/run", json={"input": during})
        if during == "wait":
            until(
                lambda: (
                    scrape(client).get(
                        "podwright_runs_in_progress",
                        component="reader",
                        kind="agent",
                    )
                    == 1
                )
            )
        else:
            assert call.result().json() == {"output": str(program)}
    with pytest.raises(ProcessLookupError):
        os.kill(program, 0)


WITHOUT = """
import sys

from podwright import Agent
from podwright_service.app import create_app
from podwright_service.settings import Settings

create_app(Settings(), Agent("a", "Do.", "offline/echo"))
print([name for name in sys.modules if name in ("mcp", "mcp_types", "httpx2", "podwright.mcp.server")])
"""


def test_without_servers_nothing_of_mcp_is_imported() -> None:
    """A service whose component and settings name no server imports neither the package nor what calls servers."""
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == "[]\n"
