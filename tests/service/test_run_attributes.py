"""What a caller says of a run, from the request to the functions of the run: user, session and metadata."""

from __future__ import annotations

import json
import shlex
import threading
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from fastapi import Request
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import (
    InMemorySpanExporter,
)
from starlette.testclient import TestClient
from tests.service.background_support import change_run, wait
from tests.service.support import Serve, Shell, check_problem, pointers

from podwright import (
    Agent,
    EchoModel,
    FunctionStep,
    Remote,
    RunContext,
    ScriptedModel,
    Workflow,
    run_attributes,
)
from podwright.client import Client
from podwright.functions.run_context import (
    MAX_IDENTITY,
    MAX_METADATA,
    MAX_METADATA_NAME,
    MAX_METADATA_VALUE,
)
from podwright.testing import ToolCall
from podwright_service import create_app, run_component
from podwright_service.observability import configure_logging, exporters
from podwright_service.settings import Settings
from podwright_service.testing import Metrics

SAID: dict[str, Any] = {
    "user": "ann",
    "session": "s1",
    "metadata": {"tenant": "acme", "order": "5"},
}
MESSAGES = [{"role": "user", "content": "x"}]


def tell(context: RunContext) -> dict[str, Any]:
    """Tell what a function is told of its run."""
    context.log.info("asked", extra={"shelf": 7})
    return {
        "user": context.user,
        "session": context.session,
        "metadata": dict(context.metadata),
    }


FLOW = Workflow("flow", [FunctionStep(tell, output="told")])
INLINE: dict[str, Any] = {
    "type": "workflow",
    "blueprint": {
        "name": "any",
        "steps": [
            {
                "type": "function_step",
                "name": "tell",
                "function": "tell",
                "output": "told",
            }
        ],
    },
}
OPENAI: dict[str, Any] = {
    "user": "ann",
    "metadata": {"session_id": "s1", "tenant": "acme", "order": "5"},
}
BODIES: list[tuple[str, dict[str, Any]]] = [
    ("/run", {"input": "x", **SAID}),
    ("/run/stream", {"input": "x", **SAID}),
    ("/run-blueprint", {"input": "x", **SAID, **INLINE}),
    ("/v1/chat/completions", {"model": "flow", "messages": MESSAGES, **OPENAI}),
    ("/v1/responses", {"model": "flow", "input": "x", **OPENAI}),
]


def told(response: httpx.Response) -> Any:
    """What the function of a run was told, by the response of any route."""
    assert response.status_code == 200, response.text
    if response.headers["content-type"].startswith("text/event-stream"):
        _, _, result = response.text.partition("event: result\ndata: ")
        data = json.loads(result)
    else:
        data = response.json()
    match data:
        case {"told": value}:
            return json.loads(value)
        case {"choices": [{"message": {"content": content}}]}:
            return json.loads(content)
        case {"output": [{"content": [{"text": content}]}]}:
            return json.loads(content)
        case _:
            raise AssertionError(data)


@pytest.mark.parametrize(
    ("path", "body"), BODIES, ids=[path for path, _ in BODIES]
)
def test_functions_are_told(
    serve: Serve, path: str, body: dict[str, Any]
) -> None:
    """Each route that runs the component takes user, session and metadata, and its functions have them."""
    assert told(serve(FLOW).post(path, json=body)) == SAID


def test_nothing_need_be_said(serve: Serve) -> None:
    """Then all is empty; null is the same as nothing."""
    nothing = {"user": "", "session": "", "metadata": {}}
    client = serve(FLOW)
    assert told(client.post("/run", json={"input": "x"})) == nothing
    body = {"input": "x", "user": None, "session": None, "metadata": None}
    assert told(client.post("/run", json=body)) == nothing


def test_runs_do_not_see_each_others(serve: Serve) -> None:
    """Of runs that are in progress at once, each has its own."""
    both_begun = threading.Barrier(2)

    def meet(context: RunContext) -> str:
        both_begun.wait(30)
        return context.metadata["name"]

    client = serve(Workflow("flow", [FunctionStep(meet, output="name")]))
    names: dict[str, str] = {}

    def run(name: str) -> None:
        body = {"input": "x", "metadata": {"name": name}}
        names[name] = client.post("/run", json=body).json()["name"]

    threads = [threading.Thread(target=run, args=(name,)) for name in "ab"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert names == {"a": "a", "b": "b"}


LONG_NAME = "n" * (MAX_METADATA_NAME + 1)
TOO_LONG = "x" * (MAX_IDENTITY + 1)


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        (
            {"metadata": {str(n): "" for n in range(MAX_METADATA + 1)}},
            ["/metadata"],
        ),
        (
            {
                "user": TOO_LONG,
                "session": TOO_LONG,
                "metadata": {
                    "a": 1,
                    LONG_NAME: "",
                    "b": "x" * (MAX_METADATA_VALUE + 1),
                },
            },
            [
                *("/user", "/session", "/metadata/a", "/metadata/b"),
                f"/metadata/{LONG_NAME}",
            ],
        ),
        ({"metadata": "acme"}, ["/metadata"]),
    ],
    ids=["too many", "wrong entries", "a text"],
)
@pytest.mark.parametrize("path", ["/run", "/run/stream", "/runs"])
def test_what_is_said_is_bounded(
    serve: Serve,
    sqlite_database: str,
    path: str,
    said: dict[str, Any],
    expected: list[str],
) -> None:
    """All that is wrong is refused at once, with pointers, before a run begins."""
    client = serve(FLOW, runs_database=sqlite_database)
    response = client.post(path, json={"input": "x", **said})
    problem = check_problem(response, 422, "request_invalid")
    assert sorted(pointers(problem)) == sorted(expected)


def test_no_name_is_cut(serve: Serve) -> None:
    """A user or session that is too long, where it is not refused, is nobody: cut, it could be the name of another."""
    client = serve(FLOW, baggage="user.id,session.id")
    body: dict[str, Any] = {
        "model": "flow",
        "messages": MESSAGES,
        "user": TOO_LONG,
        "metadata": {"session_id": TOO_LONG},
    }
    nothing = {"user": "", "session": "", "metadata": {}}
    response = client.post("/v1/chat/completions", json=body)
    assert told(response) == nothing
    headers = {"baggage": f"user.id={TOO_LONG},session.id={TOO_LONG}"}
    response = client.post("/run", json={"input": "x"}, headers=headers)
    assert told(response) == nothing


def test_the_largest_metadata_is_taken(serve: Serve) -> None:
    """The bounds are those of OpenAI's interface."""
    metadata = {
        f"{number:0>{MAX_METADATA_NAME}}": "ü" * MAX_METADATA_VALUE
        for number in range(MAX_METADATA)
    }
    response = serve(FLOW).post(
        "/run", json={"input": "x", "metadata": metadata}
    )
    assert told(response)["metadata"] == metadata


def test_metadata_of_openais_routes(serve: Serve) -> None:
    """Named inputs are no metadata, which telemetry shows; what does not fit is left out: clients send anything."""
    flow = Workflow(
        "flow",
        [FunctionStep(tell, output="told")],
        inputs={"question": {"type": "string"}},
    )
    metadata = {
        "question": "a secret?",
        "session_id": "s1",
        "tenant": "acme",
        "number": 7,
        "nothing": None,
        "long": "x" * (MAX_METADATA_VALUE + 1),
        LONG_NAME: "x",
    }
    body = {"model": "flow", "messages": MESSAGES, "metadata": metadata}
    response = serve(flow).post("/v1/chat/completions", json=body)
    assert told(response)["metadata"] == {"tenant": "acme"}
    many = {f"n{number}": "x" for number in range(MAX_METADATA + 5)}
    body["metadata"] = {"question": "x", **many}
    response = serve(flow).post("/v1/chat/completions", json=body)
    assert len(told(response)["metadata"]) == MAX_METADATA


def test_metrics_have_no_metadata(serve: Serve) -> None:
    """Nor user or session: a caller could make any number of series."""
    client = serve(FLOW)
    body = {"input": "x", "user": "u-1", "metadata": {"m-1": "v-1"}}
    assert client.post("/run", json=body).status_code == 200
    text = client.get("/metrics").text
    assert Metrics(text).get("podwright_runs_total", component="flow") == 1
    for value in ("u-1", "m-1", "v-1"):
        assert value not in text


def test_lines_of_the_log(
    serve: Serve, capfd: pytest.CaptureFixture[str]
) -> None:
    """The line of a run has the metadata; those of functions the run's id and component, and their own fields."""
    configure_logging(Settings(log_format="json"))
    client = serve(FLOW)
    response = client.post("/run", json={"input": "x", **SAID})
    run_id = response.headers["podwright-run-id"]
    lines: dict[str, Any] = {}
    for line in capfd.readouterr().out.splitlines():
        fields = json.loads(line)
        lines[fields["event"]] = fields
    assert lines["run"]["metadata"] == SAID["metadata"]
    asked = lines["asked"]
    assert (asked["run_id"], asked["component"]) == (run_id, "flow")
    assert (asked["logger"], asked["shelf"]) == ("podwright.functions", 7)


def remote_member(url: str) -> Iterator[Any]:
    yield Workflow("outer", [Remote("flow", url, kind="workflow")])
    model = ScriptedModel(ToolCall.of("ask"), "done")

    def ask() -> str:
        return Remote("flow", url, kind="workflow").run("x")["told"]

    yield Agent("outer", "Ask.", model, tools=[ask])


@pytest.mark.parametrize("number", [0, 1], ids=["member", "in a tool"])
def test_a_remote_component_is_told(serve: Serve, number: int) -> None:
    """What a caller says reaches the functions of all containers, also where no header is trusted."""
    found: list[RunContext] = []

    def keep(context: RunContext) -> str:
        found.append(context)
        return "kept"

    inner = Workflow("flow", [FunctionStep(keep, output="told")])
    outer = list(remote_member(str(serve(inner).base_url)))[number]
    response = serve(outer).post("/run", json={"input": "x", **SAID})
    assert response.status_code == 200, response.text
    (context,) = found
    assert context.component == "flow"
    assert {
        "user": context.user,
        "session": context.session,
        "metadata": context.metadata,
    } == SAID


def test_a_background_run_keeps_it(serve: Serve, sqlite_database: str) -> None:
    """A run and the list of runs show it, and the next attempt, by another service, is told the same."""
    attempts: list[RunContext] = []

    def fail_once(context: RunContext) -> str:
        attempts.append(context)
        if len(attempts) == 1:
            raise RuntimeError
        return "done"

    flow = Workflow("flow", [FunctionStep(fail_once, output="told")])
    client = serve(flow, runs_database=sqlite_database)
    response = client.post("/runs", json={"input": "x", **SAID})
    assert response.status_code == 202, response.text
    url = response.headers["location"]
    assert wait(client, url)["status"] == "failed"
    other = serve(flow, runs_database=sqlite_database)
    assert other.post(f"{url}/resume").status_code == 202
    run = wait(other, url)
    assert run["status"] == "succeeded"
    (listed,) = other.get("/runs").json()["runs"]
    for shown in (response.json(), run, listed):
        assert {name: shown[name] for name in SAID} == SAID
    first, second = attempts
    assert (first.attempt, second.attempt) == (1, 2)
    assert first.call_key == second.call_key
    for context in attempts:
        assert context.run_id == run["id"]
        assert (context.user, context.session) == ("ann", "s1")
        assert context.metadata == SAID["metadata"]


def test_a_run_that_an_older_release_stored(
    serve: Serve, sqlite_database: str
) -> None:
    """It has no metadata, and goes on."""
    attempts: list[dict[str, Any]] = []

    def fail_once(context: RunContext) -> str:
        attempts.append(tell(context))
        if len(attempts) == 1:
            raise RuntimeError
        return "done"

    flow = Workflow("flow", [FunctionStep(fail_once, output="told")])
    client = serve(flow, runs_database=sqlite_database)
    url = client.post("/runs", json={"input": "x"}).headers["location"]
    assert wait(client, url)["metadata"] == {}
    change_run(sqlite_database, url, metadata=None, origin=None)
    assert client.post(f"{url}/resume").status_code == 202
    run = wait(client, url)
    assert (run["status"], run["metadata"]) == ("succeeded", {})
    assert attempts[1] == {"user": "", "session": "", "metadata": {}}


def test_a_route_of_ones_own_says_it() -> None:
    """`run_attributes` around `run_component` is told; what the request says itself counts more."""

    async def ask(request: Request, body: dict[str, Any]) -> Any:
        with run_attributes(
            user="ann", session="s1", metadata={"tenant": "acme"}
        ):
            result = await run_component(request, input="x", **body)
        return json.loads(result.value["told"])

    app = create_app(Settings(baggage=["user.id"]), FLOW)
    app.post("/ask")(ask)
    headers = {"baggage": "user.id=eve"}
    with TestClient(app) as client:
        response = client.post(
            "/ask", json={"metadata": {"order": "5"}}, headers=headers
        )
        assert response.json() == SAID
        response = client.post(
            "/ask", json={"user": "bob", "metadata": {"tenant": "x"}}
        )
    assert response.json() == {
        "user": "bob",
        "session": "s1",
        "metadata": {"tenant": "x"},
    }


def test_the_span_of_a_nested_run(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It says of the nested run what the function says that started it, as its functions are told."""
    exporter = InMemorySpanExporter()
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    monkeypatch.setattr(
        exporters, "create_tracer_provider", lambda *_: provider
    )
    inner = Agent("inner", "Echo.", EchoModel())

    def ask() -> str:
        with run_attributes(user="eve", metadata={"shelf": "7"}):
            return inner.run("x")

    app = create_app(Settings(), Workflow("flow", [FunctionStep(ask)]))
    with TestClient(app) as client:
        response = client.post("/run", json={"input": "x", **SAID})
    assert response.status_code == 200, response.text
    said = {
        span.name: (
            attributes.get("user.id"),
            attributes.get("session.id"),
            json.loads(str(attributes.get("metadata", "null"))),
        )
        for span in exporter.get_finished_spans()
        if (attributes := span.attributes) is not None
    }
    outer = ("ann", "s1", SAID["metadata"])
    nested = ("eve", "s1", {**SAID["metadata"], "shelf": "7"})
    assert said["invoke_workflow flow"] == said["POST /run"] == outer
    assert said["invoke_agent inner"] == said["chat echo"] == nested


def test_the_client(serve: Serve, sqlite_database: str) -> None:
    """Runs, streams, conversations and background runs take it as arguments."""
    agent = Agent("echo", "Echo.", EchoModel())
    found: list[dict[str, Any]] = []

    def keep(context: RunContext) -> str:
        found.append(tell(context))
        return "kept"

    flow = Workflow("flow", [FunctionStep(keep), agent])
    served = serve(flow, runs_database=sqlite_database)
    client = Client(str(served.base_url))
    client.run("x", **SAID)
    list(client.stream("x", **SAID))
    client.conversation().send("x", **SAID)
    run = client.runs.wait(client.runs.start("x", **SAID).id)
    assert (run.user, run.metadata) == ("ann", SAID["metadata"])
    assert found == [SAID] * 4


MODULE = """
from podwright import ApprovalStep, FunctionStep, RunContext, Workflow

def tell(context: RunContext) -> dict:
    return {"user": context.user, "session": context.session, "metadata": context.metadata}

flow = Workflow("flow", [FunctionStep(tell, output="told")])
gated = Workflow("gated", [ApprovalStep("Go on?"), FunctionStep(tell, output="told")])
"""
OPTIONS = [
    *("--user", "ann", "--session", "s1"),
    *("--metadata", "tenant=acme", "--metadata", "order=5"),
]


def test_the_command_run(shell: Shell, tmp_path: Any) -> None:
    """Its options say it; a pair without a name is refused."""
    (tmp_path / "made.py").write_text(MODULE)
    done = shell("run", "made:flow", "x", "--quiet", *OPTIONS)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["told"] == SAID
    for pair in ("acme", "=acme"):
        done = shell("run", "made:flow", "x", "--metadata", pair)
        assert done.returncode == 1
        assert "--metadata NAME=VALUE" in done.stderr
    twice = ["--metadata", "a=1", "--metadata", "a=2"]
    done = shell("run", "made:flow", "x", *twice)
    assert done.returncode == 1
    assert "--metadata has 'a' twice" in done.stderr
    done = shell("run", "made:flow", "x", "--metadata", f"a={'x' * 513}")
    assert done.returncode == 1
    assert "512 characters" in done.stderr


def test_the_command_that_resumes(shell: Shell, tmp_path: Any) -> None:
    """It says the same of the run."""
    (tmp_path / "made.py").write_text(MODULE)
    done = shell("run", "made:gated", "x", "--context", "state.json", *OPTIONS)
    assert done.returncode == 3, done.stderr
    _, _, command = done.stderr.partition("To resume: podwright ")
    done = shell(*shlex.split(command), "--quiet")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["told"] == SAID


@pytest.mark.parametrize("where", ["here", "service"])
def test_the_command_chat(
    shell: Shell, serve: Serve, tmp_path: Any, where: str
) -> None:
    """Each turn has it, of a component here and of one that is served."""
    (tmp_path / "made.py").write_text(MODULE)
    path = "made:flow"
    if where == "service":
        path = str(serve(FLOW).base_url)
    done = shell("chat", path, *OPTIONS, stdin="x\nx\n")
    assert done.returncode == 0, done.stderr
    answers = [json.loads(line) for line in done.stdout.splitlines() if line]
    assert answers == [SAID, SAID]


def test_the_command_runs_start(
    shell: Shell, serve: Serve, sqlite_database: str
) -> None:
    """A background run has it."""
    client = serve(FLOW, runs_database=sqlite_database)
    url = str(client.base_url)
    done = shell("runs", "start", "x", "--url", url, *OPTIONS)
    assert done.returncode == 0, done.stderr
    run = wait(client, f"/runs/{done.stdout.strip()}")
    assert {name: run[name] for name in SAID} == SAID
