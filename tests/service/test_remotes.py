"""Components in containers of their own: how they are declared, what they are granted, and how their runs end."""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import json
import socket
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar
from urllib.parse import urlsplit

import httpx
import pytest
from starlette.datastructures import Headers
from tests.helpers import plain_http, until
from tests.service.support import Address, Command, Serve, Shell

from podwright import (
    Agent,
    ApprovalStep,
    FunctionModel,
    Remote,
    RunLimits,
    Workflow,
    blueprints,
    errors,
    load,
)
from podwright.testing import ModelRequest, ModelResponse
from podwright_service.http.access.limits import granted_limits
from podwright_service.http.errors.problems import RequestError
from podwright_service.remotes import remotes_of
from podwright_service.settings import Settings

KEY = "a-key-of-sixteen-characters"
LINE: dict[str, Any] = {
    "version": blueprints.VERSION,
    "type": "Pipeline",
    "name": "line",
    "steps": [
        {"type": "Agent", "name": "writer"},
        {"type": "Agent", "name": "editor"},
    ],
}


def url(client: httpx.Client) -> str:
    return str(client.base_url).rstrip("/")


def test_declared_agents_are_called_with_their_keys(
    serve: Serve, tmp_path: Path
) -> None:
    """Agents that settings and a file declare take part in runs with their keys; their URLs are not shown."""
    writer = url(serve(Agent("writer", "Write.", "offline/echo"), api_keys=KEY))
    editor = url(serve(Agent("editor", "Edit.", "offline/echo"), api_keys=KEY))
    (tmp_path / "agents.json").write_text(
        json.dumps({"writer": writer, "editor": "http://127.0.0.1:9"})
    )
    declared: dict[str, Any] = {
        "agents_file": str(tmp_path / "agents.json"),
        "agents": {"editor": editor},  # which precedes the file
        "agent_keys": {"writer": KEY},
        "agent_key_files": {"editor": str(tmp_path / "editor.key")},
    }
    (tmp_path / "editor.key").write_text(f"{KEY}\n")
    line = load(LINE, agents=remotes_of(Settings(**declared)))
    client = serve(line, **declared)
    info = client.get("/info").json()
    assert sorted(info["agents"]) == ["editor", "writer"]
    assert "127.0.0.1" not in json.dumps(info)
    assert client.post("/run", json={"input": "x"}).json() == {
        "output": "Echo: Echo: x"
    }
    inline = {"type": "pipeline", "blueprint": LINE, "input": "x"}
    assert client.post("/run-blueprint", json=inline).json() == {
        "output": "Echo: Echo: x"
    }


class Proxy(BaseHTTPRequestHandler):
    """Forwards requests to the hosts of their URLs, and keeps their URLs."""

    seen: ClassVar[list[str]] = []

    def do_POST(self) -> None:
        self.seen.append(self.path)
        target = urlsplit(self.path)
        connection = http.client.HTTPConnection(
            target.hostname or "", target.port
        )
        with contextlib.closing(connection):
            body = self.rfile.read(int(self.headers["content-length"]))
            headers = dict(self.headers.items())
            connection.request("POST", target.path, body, headers)
            response = connection.getresponse()
            answer = response.read()
            self.send_response(response.status)
            self.send_header("content-type", response.headers["content-type"])
            self.send_header("content-length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)


@pytest.fixture
def proxy() -> Iterator[str]:
    """The URL of a proxy."""
    Proxy.seen.clear()
    with ThreadingHTTPServer(("127.0.0.1", 0), Proxy) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def test_the_proxies_of_agents(
    serve: Serve,
    command: Command,
    address: Address,
    tmp_path: Path,
    *,
    proxy: str,
) -> None:
    """A trusted proxy of the environment gets the calls of no agent, and one that is named those of its agent only."""
    writer = url(serve(Agent("writer", "Write.", "offline/echo"), api_keys=KEY))
    editor = url(serve(Agent("editor", "Edit.", "offline/echo"), api_keys=KEY))
    (tmp_path / "line.json").write_text(json.dumps(LINE))
    process = command(
        "serve",
        str(tmp_path / "line.json"),
        "--port",
        "0",
        HTTP_PROXY=proxy,
        http_proxy=proxy,
        NO_PROXY="",
        no_proxy="",
        PODWRIGHT_TRUST_ENV="true",
        PODWRIGHT_AGENTS=json.dumps({"writer": writer, "editor": editor}),
        PODWRIGHT_AGENT_KEYS=json.dumps({"writer": KEY, "editor": KEY}),
        PODWRIGHT_AGENT_PROXIES=json.dumps({"editor": proxy}),
    )
    response = plain_http.post(f"{address(process)}/run", json={"input": "x"})
    assert response.json() == {"output": "Echo: Echo: x"}
    assert Proxy.seen == [f"{editor}/run/stream"]


class Blocked(FunctionModel):
    """Never answers, and tells when it is asked and left."""

    def __init__(self) -> None:
        super().__init__(self.answer, name="offline/blocked")
        self.asked = threading.Event()
        self.left = threading.Event()

    async def answer(self, request: ModelRequest) -> ModelResponse:
        self.asked.set()
        try:
            await asyncio.Event().wait()
        finally:
            self.left.set()
        raise AssertionError


def test_a_caller_who_leaves_ends_all_three_levels(serve: Serve) -> None:
    """The client of the first service leaves, and the model call of the third one is cancelled."""
    model = Blocked()
    third = serve(Agent("third", "Help.", model))
    second = serve(Workflow("second", [Remote("third", url(third))]))
    first = serve(Workflow("first", [Remote("second", url(second))]))
    body = b'{"input": "x"}'
    head = (
        b"POST /run HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
        % len(body)
    )
    with socket.create_connection(
        (first.base_url.host, first.base_url.port or 0)
    ) as client:
        client.sendall(head + body)
        until(model.asked.is_set)
        assert not model.left.is_set()
    until(model.left.is_set)


def test_containers_that_call_each_other_end(serve: Serve) -> None:
    """Two services that call each other come to the end of their hops, with a problem that says so."""
    with socket.create_server(("127.0.0.1", 0)) as reserved:
        port = reserved.getsockname()[1]
    relay = Forward(port)
    with relay:
        one = serve(
            Workflow("one", [Remote("two", f"http://127.0.0.1:{port}")])
        )
        two = serve(Workflow("two", [Remote("one", url(one))]))
        relay.target = two.base_url.port or 0
        response = one.post("/run", json={"input": "x"})
        assert response.status_code == 502
        assert response.json()["code"] == "remote_hops_exceeded"
        assert one.post(
            "/run", json={"input": "x"}, headers={"Podwright-Hops": "0"}
        ).json()["code"] == ("remote_hops_exceeded")


class Forward:
    """A port that is known before what serves behind it."""

    def __init__(self, port: int) -> None:
        self.target = 0
        self._server = socket.create_server(("127.0.0.1", port))

    def __enter__(self) -> None:
        threading.Thread(target=self._accept, daemon=True).start()

    def __exit__(self, *_: object) -> None:
        self._server.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                inside, _ = self._server.accept()
                outside = socket.create_connection(("127.0.0.1", self.target))
                for source, sink in ((inside, outside), (outside, inside)):
                    threading.Thread(
                        target=self._pump, args=(source, sink), daemon=True
                    ).start()

    @staticmethod
    def _pump(source: socket.socket, sink: socket.socket) -> None:
        with contextlib.suppress(OSError), source:
            while data := source.recv(65536):
                sink.sendall(data)
            sink.shutdown(socket.SHUT_WR)


def test_a_remote_workflow_that_pauses(serve: Serve) -> None:
    """A pause in another container is an error that says how to go on there, and that is how one goes on."""
    answer = FunctionModel(lambda _: "news")
    inner = Workflow(
        "inner", [Agent("one", "Do.", answer), ApprovalStep("Publish?")]
    )
    far = serve(inner)
    problem = (
        serve(Workflow("outer", [Remote("inner", url(far))]))
        .post("/run", json={"input": "x"})
        .json()
    )
    assert (problem["code"], problem["status"]) == ("remote_paused", 502)
    with pytest.raises(errors.RemotePausedError) as caught:
        Remote("inner", url(far)).run("x")
    body = {
        "inputs": caught.value.paused_context,
        "resume_path": caught.value.paused_path,
    }
    assert far.post("/run", json=body).json() == {
        "input": "x",
        "one_output": "news",
    }


def test_what_a_caller_grants() -> None:
    """The headers lower the limits of the settings, and never raise them."""
    settings = Settings(
        run_tokens=1000, run_model_calls=10, run_wall_time=60, max_hops=3
    )
    header = (
        'wall_time=12.5, tokens=5000;a=1 ,\tmodel_calls=3, cost="0.5", later=(x'
    )
    with pytest.raises(RequestError):
        granted_limits(Headers({"podwright-budget": header}), settings)
    sent = {
        "podwright-budget": header.replace("(x", '"x, y=2"'),
        "podwright-hops": "7",
    }
    assert granted_limits(Headers(sent), settings) == (
        RunLimits(12.5, 3, 1000, 0.5),
        3,
    )
    assert granted_limits(Headers(), settings) == (settings.run_limits, 3)
    assert granted_limits(Headers({"podwright-hops": "1"}), settings)[1] == 1


@pytest.mark.parametrize("header", ["tokens=1.5", "tokens=५"])
@pytest.mark.parametrize("path", ["/run", "/run/stream"])
def test_a_malformed_budget_is_refused(
    example: Callable[[str], httpx.Client], header: str, path: str
) -> None:
    """A budget that cannot be read is no budget: the request is refused before a run begins."""
    response = example("writer").post(
        path,
        json={"input": "x"},
        headers={b"Podwright-Budget": header.encode()},
    )
    assert (response.status_code, response.json()["code"]) == (
        400,
        "header_invalid",
    )
    assert "podwright-run-id" not in response.headers


def test_a_second_line_of_a_budget_counts(
    example: Callable[[str], httpx.Client],
) -> None:
    """Lines of one header are read together; two numbers of hops are none."""
    twice = [
        ("Podwright-Budget", "tokens=5000"),
        ("Podwright-Budget", "model_calls=0"),
    ]
    response = example("writer").post(
        "/run", json={"input": "x"}, headers=twice
    )
    assert (response.status_code, response.json()["limit"]) == (
        422,
        "model_calls",
    )
    twice = [("Podwright-Hops", "1"), ("Podwright-Hops", "9")]
    response = example("writer").post(
        "/run", json={"input": "x"}, headers=twice
    )
    assert (response.status_code, response.json()["code"]) == (
        400,
        "header_invalid",
    )


WRONG: dict[str, tuple[dict[str, str], str]] = {
    "a URL": ({"PODWRIGHT_AGENTS": '{"writer": "writer:8000"}'}, "'writer'"),
    "a name": ({"PODWRIGHT_AGENTS": '{"a/b": "http://writer"}'}, "'a/b'"),
    "a key for nobody": (
        {
            "PODWRIGHT_AGENTS": '{"writer": "http://w"}',
            "PODWRIGHT_AGENT_KEYS": '{"writr": "k"}',
        },
        "'writr'",
    ),
    "a file with a key for nobody": (
        {
            "PODWRIGHT_AGENTS": '{"writer": "http://w"}',
            "PODWRIGHT_AGENT_KEY_FILES": '{"writr": "/dev/null"}',
        },
        "'writr'",
    ),
    "no file of a key": (
        {
            "PODWRIGHT_AGENTS": '{"writer": "http://w"}',
            "PODWRIGHT_AGENT_KEY_FILES": '{"writer": "/nowhere/key"}',
        },
        "'/nowhere/key'",
    ),
    "two keys": (
        {
            "PODWRIGHT_AGENTS": '{"writer": "http://w"}',
            "PODWRIGHT_AGENT_KEYS": '{"writer": "k"}',
            "PODWRIGHT_AGENT_KEY_FILES": '{"writer": "/nowhere/key"}',
        },
        "'writer'",
    ),
    "a proxy for nobody": (
        {
            "PODWRIGHT_AGENTS": '{"writer": "http://w"}',
            "PODWRIGHT_AGENT_PROXIES": '{"writr": "http://proxy:3128"}',
        },
        "'writr'",
    ),
    "a proxy": (
        {
            "PODWRIGHT_AGENTS": '{"writer": "http://w"}',
            "PODWRIGHT_AGENT_PROXIES": '{"writer": "proxy:3128"}',
        },
        "Invalid proxy of the remote component 'writer'",
    ),
    "no file": (
        {"PODWRIGHT_AGENTS_FILE": "/nowhere/agents.json"},
        "PODWRIGHT_AGENTS_FILE",
    ),
    "an agent that nobody declares": (
        {"PODWRIGHT_AGENTS": '{"writer": "http://w"}'},
        "'editor'",
    ),
}


@pytest.mark.parametrize(("variables", "text"), WRONG.values(), ids=WRONG)
def test_wrong_declarations_stop_the_start(
    shell: Shell, tmp_path: Path, variables: dict[str, str], text: str
) -> None:
    """A wrong name, URL, key or file stops the start with an error that names it."""
    (tmp_path / "line.json").write_text(json.dumps(LINE))
    done = shell("serve", "line.json", "--port", "0", **variables)
    assert done.returncode == 1
    assert text in " ".join(done.stderr.replace("│", "").split())
    assert "Traceback" not in done.stderr
