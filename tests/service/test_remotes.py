"""Components in containers of their own: one trace, one usage, limits that hold, and an end for all of them at once."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest
from starlette.datastructures import Headers
from tests.helpers import NO_AUTHORITIES
from tests.service.support import Address, Command, Serve

import podwright
from podwright import (
    Agent,
    AgentStep,
    ApprovalStep,
    Conductor,
    FunctionModel,
    ParallelStep,
    Pipeline,
    Remote,
    RunLimits,
    ScriptedModel,
    Workflow,
    errors,
)
from podwright.models.offline import estimate_input
from podwright.testing import ModelRequest, ModelResponse, ToolCall, Usage
from podwright_service.limits import granted_limits
from podwright_service.problems import RequestError
from podwright_service.settings import Settings

KEY = "a-key-of-sixteen-characters"
BLUEPRINTS = {
    "writer": {
        "type": "Agent",
        "name": "writer",
        "instructions": "Write.",
        "config": {"model": "offline/echo", "max_loops": 2},
        "tools": [],
    },
    "flow": {
        "type": "Workflow",
        "name": "flow",
        "steps": [
            {
                "type": "parallel_step",
                "name": "both",
                "branches": [
                    [{"type": "agent_step", "agent": "writer", "name": "write"}],
                    [{"type": "agent_step", "agent": "editor", "name": "edit"}],
                ],
            }
        ],
    },
    "line": {
        "type": "Pipeline",
        "name": "line",
        "steps": [{"type": "Agent", "name": "writer"}, {"type": "Agent", "name": "editor"}],
    },
    "lead": {
        "type": "Conductor",
        "name": "lead",
        "instructions": "Lead.",
        "skills": [{"type": "Agent", "name": "writer"}, {"type": "Agent", "name": "editor"}],
        "config": {"model": "offline/echo", "max_loops": 4},
    },
}


@pytest.fixture
def blueprint(tmp_path: Path) -> Callable[[str], str]:
    def write(name: str) -> str:
        file = tmp_path / f"{name}.json"
        file.write_text(json.dumps({"version": podwright.blueprints.VERSION, **BLUEPRINTS[name]}))
        return str(file)

    return write


def url(client: httpx.Client) -> str:
    return str(client.base_url).rstrip("/")


@pytest.mark.parametrize("kind", ["flow", "line", "lead"])
def test_three_processes(
    command: Command, address: Address, blueprint: Callable[[str], str], tmp_path: Path, kind: str
) -> None:
    """A workflow, a pipeline and a conductor work with two agents in processes of their own: one trace, one usage."""
    far = [command("serve", blueprint("writer"), "--port", "0", PODWRIGHT_API_KEYS=KEY) for _ in range(2)]
    urls = dict(zip(("writer", "editor"), (address(one) for one in far), strict=True))
    declared = tmp_path / "agents.json"
    declared.write_text(json.dumps({"writer": urls["writer"], "editor": "http://127.0.0.1:9"}))
    near = command(
        "serve",
        blueprint(kind),
        "--port",
        "0",
        PODWRIGHT_AGENTS=json.dumps({"editor": urls["editor"]}),
        PODWRIGHT_AGENTS_FILE=str(declared),
        PODWRIGHT_AGENT_KEYS=json.dumps(dict.fromkeys(urls, KEY)),
    )
    with httpx.Client(verify=NO_AUTHORITIES, base_url=address(near), timeout=30) as client:
        info = client.get("/info").json()
        assert sorted(info["agents"]) == ["editor", "writer"]
        assert "127.0.0.1" not in json.dumps(info)
        trace = client.post("/run?trace=true", json={"input": "the moon"}).json()
        calls = [event for event in trace["events"] if event["type"] == "model_call_finished"]
        used = sum(event["response"]["usage"]["input_tokens"] for event in calls)
        assert trace["usage"]["input_tokens"] == used > 0
        assert [event["seq"] for event in trace["events"]] == list(range(len(trace["events"])))
        ids = {event["run_id"] for event in trace["events"] if event["type"] == "run_started"}
        assert {event["parent_id"] for event in trace["events"]} - {None} <= ids
        if kind != "lead":
            assert {event["remote"] for event in calls} == {"writer", "editor"}
            posted = {"type": "pipeline", "blueprint": BLUEPRINTS["line"], "input": "x"}
            assert client.post("/run-blueprint", json=posted).json() == {"output": "Echo: Echo: x"}


def test_a_conductor_s_remote_skills(serve: Serve) -> None:
    """A conductor calls two remote skills at once; what they used is in its usage, to the token."""
    answer = ModelResponse("done", usage=Usage(input_tokens=7, output_tokens=3, cost=0.001))
    far = [serve(Agent("far", "Help.", ScriptedModel(answer))) for _ in range(2)]
    skills = [Remote(f"skill{number}", url(one)) for number, one in enumerate(far)]
    turn = ModelResponse(
        tool_calls=tuple(ToolCall.of(one.name, id=one.name, task="go") for one in skills),
        usage=Usage(input_tokens=50, output_tokens=5, cost=0.01),
        finish_reason="tool_calls",
    )
    lead = Conductor("lead", "Lead.", ScriptedModel(turn, answer), skills)
    client = serve(lead)
    usage = client.post("/run?trace=true", json={"input": "x"}).json()["usage"]
    assert (usage["input_tokens"], usage["output_tokens"], usage["model_calls"]) == (71, 14, 4)
    assert usage["cost"] == pytest.approx(0.013)


class Meter(FunctionModel):
    """Uses all that it is allowed, after a moment in which others run."""

    def __init__(self) -> None:
        super().__init__(self.answer, name="offline/meter")

    async def answer(self, request: ModelRequest) -> ModelResponse:
        await asyncio.sleep(0.005)
        usage = Usage(estimate_input(request), min(60, request.settings.get("max_tokens", 60)), cost=0.0)
        return ModelResponse("x" * 8, usage=usage)


def test_limits_hold_in_a_hundred_runs_at_once(serve: Serve) -> None:
    """Of 100 runs at once, each with parallel remotes, none uses more than its tokens and model calls."""
    meter = Meter()
    far = [serve(Agent("far", "Help.", meter, max_tokens=60), run_tokens=None, max_runs=1000) for _ in range(2)]
    remotes = [Remote(f"r{number}", url(far[number % 2])) for number in range(4)]
    local = Agent("local", "Help.", meter, max_tokens=60)
    branches = [[AgentStep(one), AgentStep(one, output=f"again_{one.name}")] for one in remotes]
    flow = Workflow("flow", [ParallelStep([*branches, [AgentStep(local)]]), AgentStep(remotes[0], output="last")])

    async def run(number: int) -> tuple[int, int, RunLimits]:
        limits = RunLimits(tokens=(300, 700, 5000)[number % 3], model_calls=(20, 4)[number % 2])
        own = Workflow.from_blueprint(flow.to_blueprint(), flow.members(), limits=limits)
        with contextlib.suppress(errors.LimitExceededError):
            await own.arun("go")
        usage = own.last_usage
        return usage.total_tokens, usage.model_calls, limits

    async def all_runs() -> list[tuple[int, int, RunLimits]]:
        return await asyncio.gather(*(run(number) for number in range(100)))

    outcomes = asyncio.run(all_runs())
    for tokens, calls, limits in outcomes:
        assert tokens <= (limits.tokens or 0)
        assert calls <= (limits.model_calls or 0)
    whole = [calls for _, calls, limits in outcomes if (limits.tokens, limits.model_calls) == (5000, 20)]
    assert set(whole) == {10}, "a run with enough of everything comes to its end"


class Blocked(FunctionModel):
    """Never answers, and tells when it is asked and left."""

    def __init__(self) -> None:
        super().__init__(self.answer, name="offline/blocked")
        self.asked, self.left = threading.Event(), threading.Event()

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
    head = b"POST /run HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(body)
    with socket.create_connection((first.base_url.host, first.base_url.port or 0)) as client:
        client.sendall(head + body)
        assert model.asked.wait(20)
        assert not model.left.is_set()
    assert model.left.wait(20)


def test_the_upstream_connection_of_a_remote_is_closed(serve: Serve) -> None:
    """A caller who leaves closes the connection to the vendor that another container holds."""
    with socket.create_server(("127.0.0.1", 0)) as vendor:
        base = f"http://127.0.0.1:{vendor.getsockname()[1]}/v1"
        far = serve(Agent("far", "Help.", "openai/gpt-4o", api_key="k", base_url=base))
        near = serve(Workflow("near", [Remote("far", url(far))]))
        vendor.settimeout(20)
        with near.stream("POST", "/run/stream", json={"input": "x"}) as leaving:
            pieces = leaving.iter_bytes()  # kept, for to drop it is to leave
            next(pieces)
            upstream, _ = vendor.accept()
            upstream.settimeout(20)
            assert upstream.recv(65536)
        with upstream, contextlib.suppress(ConnectionResetError):
            while upstream.recv(65536):
                pass


def test_containers_that_call_each_other_end(serve: Serve) -> None:
    """Two services that call each other come to the end of their hops, with a problem that says so."""
    with socket.create_server(("127.0.0.1", 0)) as reserved:
        port = reserved.getsockname()[1]
    relay = Forward(port)
    with relay:
        one = serve(Workflow("one", [Remote("two", f"http://127.0.0.1:{port}")]))
        two = serve(Workflow("two", [Remote("one", url(one))]))
        relay.target = two.base_url.port or 0
        response = one.post("/run", json={"input": "x"})
        assert response.status_code == 502
        assert response.json()["code"] == "remote_hops_exceeded"
        assert one.post("/run", json={"input": "x"}, headers={"Podwright-Hops": "0"}).json()["code"] == (
            "remote_hops_exceeded"
        )


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
                    threading.Thread(target=self._pump, args=(source, sink), daemon=True).start()

    @staticmethod
    def _pump(source: socket.socket, sink: socket.socket) -> None:
        with contextlib.suppress(OSError), source:
            while data := source.recv(65536):
                sink.sendall(data)
            sink.shutdown(socket.SHUT_WR)


def test_a_remote_workflow_that_pauses(serve: Serve) -> None:
    """A pause in another container is an error that says how to go on there, and that is how one goes on."""
    answer = FunctionModel(lambda _: "news")
    inner = Workflow("inner", [Agent("one", "Do.", answer), ApprovalStep("Publish?")])
    far = serve(inner)
    problem = serve(Workflow("outer", [Remote("inner", url(far))])).post("/run", json={"input": "x"}).json()
    assert (problem["code"], problem["status"]) == ("remote_paused", 502)
    with pytest.raises(errors.RemotePausedError) as caught:
        Remote("inner", url(far)).run("x")
    body = {"inputs": caught.value.paused_context, "resume_path": caught.value.paused_path}
    assert far.post("/run", json=body).json() == {"input": "x", "one_output": "news"}


def test_what_a_caller_grants() -> None:
    """The headers lower the limits of the settings, and never raise them."""
    settings = Settings(run_tokens=1000, run_model_calls=10, run_wall_time=60, max_hops=3)
    header = 'wall_time=12.5, tokens=5000;a=1 ,\tmodel_calls=3, cost="0.5", later=(x'
    with pytest.raises(RequestError):
        granted_limits(Headers({"podwright-budget": header}), settings)
    sent = {"podwright-budget": header.replace("(x", '"x, y=2"'), "podwright-hops": "7"}
    assert granted_limits(Headers(sent), settings) == (RunLimits(12.5, 3, 1000, 0.5), 3)
    assert granted_limits(Headers(), settings) == (settings.run_limits, 3)
    assert granted_limits(Headers({"podwright-hops": "1"}), settings)[1] == 1


MALFORMED = [
    "tokens", "tokens=-1", "tokens=1.5", 'tokens="5"', "tokens=5 model_calls=1", "tokens=5,", "cost=0.5", 'cost="x"',
    'cost="-1"', 'cost="1e9"', "wall_time=?1", "wall_time=1e5", "TOKENS=5", "=", "tokens=9999999999999999", "tokens=५",
]  # fmt: skip


@pytest.mark.parametrize("header", MALFORMED)
@pytest.mark.parametrize("path", ["/run", "/run/stream"])
def test_a_malformed_budget_is_refused(example: Callable[[str], httpx.Client], header: str, path: str) -> None:
    """A budget that cannot be read is no budget: the request is refused before a run begins."""
    response = example("writer").post(path, json={"input": "x"}, headers={b"Podwright-Budget": header.encode()})
    assert (response.status_code, response.json()["code"]) == (400, "header_invalid")
    assert "podwright-run-id" not in response.headers


def test_a_second_line_of_a_budget_counts(example: Callable[[str], httpx.Client]) -> None:
    """Lines of one header are read together; two numbers of hops are none."""
    twice = [("Podwright-Budget", "tokens=5000"), ("Podwright-Budget", "model_calls=0")]
    response = example("writer").post("/run", json={"input": "x"}, headers=twice)
    assert (response.status_code, response.json()["limit"]) == (422, "model_calls")
    twice = [("Podwright-Hops", "1"), ("Podwright-Hops", "9")]
    response = example("writer").post("/run", json={"input": "x"}, headers=twice)
    assert (response.status_code, response.json()["code"]) == (400, "header_invalid")


def test_a_granted_budget_ends_a_run(example: Callable[[str], httpx.Client]) -> None:
    """A run stops at what its caller grants, whatever the service itself would allow."""
    response = example("writer").post("/run", json={"input": "x"}, headers={"Podwright-Budget": "model_calls=0"})
    assert (response.status_code, response.json()["limit"]) == (422, "model_calls")


WRONG: dict[str, tuple[dict[str, str], str]] = {
    "a URL": (
        {"PODWRIGHT_AGENTS": '{"writer": "writer:8000"}'},
        "Invalid URL of the remote component 'writer'",
    ),
    "a name": ({"PODWRIGHT_AGENTS": '{"a/b": "http://writer"}'}, "Invalid name of a remote component 'a/b'"),
    "a key for nobody": (
        {"PODWRIGHT_AGENTS": '{"writer": "http://w"}', "PODWRIGHT_AGENT_KEYS": '{"writr": "k"}'},
        "Did you mean 'writer'?",
    ),
    "no file": ({"PODWRIGHT_AGENTS_FILE": "/nowhere/agents.json"}, "PODWRIGHT_AGENTS_FILE"),
    "an agent that nobody declares": ({"PODWRIGHT_AGENTS": '{"writer": "http://w"}'}, "editor"),
}


@pytest.mark.parametrize(("variables", "said"), WRONG.values(), ids=WRONG)
def test_wrong_declarations_stop_the_start(
    command: Command, blueprint: Callable[[str], str], variables: dict[str, str], said: str
) -> None:
    """A wrong name, URL, key or file stops the start with one readable error, and shows no key."""
    process = command("serve", blueprint("line"), "--port", "0", **variables)
    output, _ = process.communicate(timeout=60)
    assert process.returncode == 1
    assert said in " ".join(output.replace("│", "").split())
    assert "Traceback" not in output


WAYS = ["run", "arun", "stream", "astream"]


@pytest.fixture
def far(serve: Serve) -> tuple[Remote, list[Any]]:
    """A remote agent whose answers can be replaced, and its script."""
    script: list[Any] = [ModelResponse("well", usage=Usage(5, 5))]
    return Remote("far", url(serve(Agent("far", "Help.", FunctionModel(lambda _: _raised(script[0])))))), script


def _raised(answer: Any) -> Any:
    if isinstance(answer, Exception):
        raise answer
    return answer


def _drive(way: str, component: Remote) -> tuple[Any, list[Any]]:
    match way:
        case "run":
            result = component.run("x", trace=True)
            return result.value, result.events
        case "arun":
            result = asyncio.run(component.arun("x", trace=True))
            return result.value, result.events
        case "stream":
            events: list[Any] = list(component.stream("x"))
        case _:

            async def gathered() -> list[Any]:
                return [event async for event in component.astream("x")]

            events = asyncio.run(gathered())
    return events[-1].value, events


@pytest.mark.parametrize("way", WAYS)
def test_every_way_to_run(far: tuple[Remote, list[Any]], way: str) -> None:
    """A remote runs in the four ways of any component: to its value, its failure and its limit."""
    remote, script = far
    value, events = _drive(way, remote)
    assert value == "well"
    assert events[-1].usage == remote.last_usage
    assert remote.last_usage.total_tokens == 10
    assert ("token" in [event.type for event in events]) is (way in ("stream", "astream"))
    script[0] = errors.ModelError("down")
    with pytest.raises(errors.RemoteError, match="down") as caught:
        _drive(way, remote)
    assert (caught.value.code, caught.value.component) == ("model_failed", "far")
    script[0] = ModelResponse("well", usage=Usage(5, 5))
    limited = Remote("far", remote._url.removesuffix("/run/stream"), limits=RunLimits(model_calls=0))
    with pytest.raises(errors.LimitExceededError) as stopped:
        _drive(way, limited)
    assert stopped.value.limit == "model_calls"
    assert time.time() - events[0].at < 60
    assert Pipeline("line", [remote]).run("x") == "well"
