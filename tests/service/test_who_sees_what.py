"""Who sees what of a component: without the scope `read`, nothing of what it consists of leaves the service.

Words that stand for instructions, schemas of tools, what nested components say to each other, and the texts of errors
are looked for in every response of every route, for a key with each scope.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from tests.service.background_support import begin, wait
from tests.service.support import Serve

from podwright import (
    Agent,
    AgentStep,
    ApprovalStep,
    ConditionStep,
    Conductor,
    FunctionModel,
    RunContext,
    Workflow,
    tool,
)
from podwright.components import TryStep
from podwright.testing import ModelRequest, ModelResponse, ToolCall

INTERNAL = (
    "outer-instructions",
    "inner-instructions",
    "outer-schema",
    "inner-schema",
    "inner-argument",
    "inner-result",
    "inner-error",
    "inner-thought",
    "outer-state",
    "inner-state",
)
"""What only callers with the scope `read` see."""
OWN = ("my question", "my answer", "my progress")
"""What the caller has said and is told."""
KEYS = {
    "run": "run:" + "a" * 20,
    "approve": "approve:" + "b" * 20,
    "blueprint": "blueprint:" + "c" * 20,
    "all but read": "run+approve+blueprint+runs:all:" + "d" * 20,
    "read": "run+approve+blueprint+read:" + "e" * 20,
}
UNREAD = [name for name in KEYS if name != "read"]


@tool
def look(word: str, context: RunContext) -> str:
    """Look (inner-schema)."""
    context.state["seen"] = "inner-state"
    context.report("my progress")
    if "broken" in word:
        raise ValueError("inner-error")
    return "inner-result"


def answer(request: ModelRequest) -> Any:
    """Call a tool that works and one that fails, and answer."""
    if request.messages[-1].role == "tool":
        return ModelResponse("my answer", reasoning="inner-thought")
    return [
        ToolCall.of("look", "1", word="inner-argument"),
        ToolCall.of("look", "2", word="broken"),
    ]


def inner(name: str = "inner") -> Agent:
    model = FunctionModel(answer)
    return Agent(name, "Help (inner-instructions).", model, tools=[look])


def delegate(request: ModelRequest) -> Any:
    if request.messages[-1].role == "tool":
        return "my answer"
    return [ToolCall.of("inner", "1", task="Answer it.")]


@tool
def note(word: str, context: RunContext) -> str:
    """Note (outer-schema)."""
    context.state["seen"] = "outer-state"
    context.report("my progress")
    return "noted"


def outer_answer(request: ModelRequest) -> Any:
    if request.messages[-1].role == "tool":
        return ModelResponse("my answer", reasoning="outer-thought")
    return [ToolCall.of("note", "1", word="my question")]


def check(context: dict[str, Any], run: RunContext) -> bool:
    run.state["checked"] = "inner-state"
    return True


def components() -> dict[str, Any]:
    agent = Agent(
        "outer",
        "Help (outer-instructions).",
        FunctionModel(outer_answer),
        tools=[note],
    )
    steps = [
        ConditionStep("check", [TryStep([AgentStep(inner())], retries=1)]),
        ApprovalStep("Go on?"),
        inner("x"),
    ]
    return {
        "agent": agent,
        "workflow": Workflow("flow", steps, conditions={"check": check}),
        "conductor": Conductor(
            "chief",
            "Lead (outer-instructions).",
            FunctionModel(delegate),
            skills=[inner()],
        ),
    }


COMPONENTS = list(components())


@pytest.fixture(params=COMPONENTS)
def client(
    request: pytest.FixtureRequest, serve: Serve, sqlite_database: str
) -> httpx.Client:
    component = components()[request.param]
    keys = tuple(KEYS.values())
    return serve(component, runs_database=sqlite_database, api_keys=keys)


def authorization(name: str) -> dict[str, str]:
    _, _, key = KEYS[name].rpartition(":")
    return {"authorization": f"Bearer {key}"}


def begun(client: httpx.Client, name: str) -> tuple[str, str]:
    """Two runs of a caller: one that has ended, and one that may wait for an approval."""
    client.headers.update(authorization(name))
    urls = (begin(client, "my question"), begin(client, "my question"))
    for url in urls:
        wait(client, url, "succeeded", "waiting_for_approval")
    client.post(f"{urls[0]}/cancel")
    del client.headers["authorization"]
    return urls


def requests_of(ended: str, waiting: str) -> Iterator[tuple[str, str, Any]]:
    """A request for each route."""
    question = {"input": "my question"}
    chat = {"messages": [{"role": "user", "content": "my question"}]}
    for query in ("", "?trace=true", "?data=true"):
        yield "POST", f"/run{query}", question
        yield "POST", f"/run/stream{query}", question
    inline = {
        "type": "workflow",
        "blueprint": {
            "name": "inline",
            "steps": [{"type": "agent_step", "name": "s", "agent": "inner"}],
        },
    }
    yield "POST", "/run-blueprint?trace=true", {**inline, **question}
    yield "POST", "/validate-blueprint", inline
    yield "POST", "/estimate", question
    yield "POST", "/estimate-blueprint", {**inline, **question}
    for stream in (False, True):
        yield (
            "POST",
            "/v1/chat/completions",
            {**chat, "model": "m", "stream": stream},
        )
        body = {**question, "model": "m", "stream": stream, "store": False}
        yield "POST", "/v1/responses", body
    for path in (
        "/v1/models",
        "/runs",
        "/runs?status=failed",
        ended,
        f"{ended}/events",
        waiting,
        "/health",
        "/ready",
        "/docs",
        "/info",
        "/metrics",
        "/openapi.json",
        "/nowhere",
    ):
        yield "GET", path, None
    yield "POST", f"{waiting}/move", None
    yield "POST", f"{waiting}/resume", None
    yield "POST", f"{waiting}/approve", {"comment": "fine"}
    yield "POST", f"{waiting}/reject", {"comment": "no"}
    yield "POST", f"{waiting}/cancel", None


def text_of(client: httpx.Client, name: str, *request: Any) -> str:
    method, path, body = request
    response = client.request(
        method, path, json=body, headers=authorization(name)
    )
    headers = " ".join(
        f"{key}: {value}" for key, value in response.headers.items()
    )
    return f"{headers}\n{response.text}"


def test_nothing_internal_leaves_without_the_scope_read(
    client: httpx.Client,
) -> None:
    """No word of instructions, schemas, inner conversations, thoughts and errors is in any response."""
    tried = 0
    shown: set[str] = set()
    for name in UNREAD:
        for request in requests_of(*begun(client, "all but read")):
            text = text_of(client, name, *request)
            found = [word for word in INTERNAL if word in text]
            assert not found, (name, request, found, text)
            shown |= {word for word in OWN if word in text}
            tried += 1
    assert tried > 100
    assert shown == {*OWN}


@pytest.mark.parametrize(("name", "is_shown"), [("run", False), ("read", True)])
def test_events_have_thoughts_for_the_scope_read_only(
    serve: Serve, sqlite_database: str, name: str, is_shown: bool
) -> None:
    """Those of the outermost chat, too; its `messages` have what its model is sent back."""
    client = serve(
        components()["agent"],
        runs_database=sqlite_database,
        api_keys=tuple(KEYS.values()),
    )
    client.headers.update(authorization(name))
    question = {"input": "my question"}
    traced = client.post("/run?trace=true", json=question).json()
    url = begin(client, "my question")
    wait(client, url, "succeeded")
    for text in (
        json.dumps(traced["events"]),
        client.post("/run/stream", json=question).text,
        client.get(f"{url}/events").text,
    ):
        assert ("outer-thought" in text) is is_shown


def test_the_scope_read_shows_all(client: httpx.Client) -> None:
    """What is looked for above can be found, so that the test above can fail."""
    asked = requests_of(*begun(client, "read"))
    whole = " ".join(text_of(client, "read", *request) for request in asked)
    expected = {"outer-instructions", "outer-schema", "outer-state"}
    if "inner-instructions" in whole:
        expected = {word for word in INTERNAL if word.startswith("inner")}
    assert expected <= {word for word in INTERNAL if word in whole}


def test_an_error_inside_is_not_told(
    serve: Serve, sqlite_database: str
) -> None:
    """The problem of a failed run, and the events before it, have no text of an exception."""

    @tool(on_error="fail")
    def fail() -> str:
        """Fail (inner-schema)."""
        raise ValueError("inner-error")

    agent = Agent(
        "inner",
        "Help (inner-instructions).",
        FunctionModel(lambda request: [ToolCall.of("fail")]),
        tools=[fail],
    )
    client = serve(
        Workflow("flow", [agent]),
        runs_database=sqlite_database,
        api_keys=tuple(KEYS.values()),
    )
    client.headers.update(authorization("run"))
    url = begin(client)
    wait(client, url, "failed")
    paths = ("/run", "/run/stream", url, f"{url}/events")
    for path, method in itertools.product(paths, ("GET", "POST")):
        response = client.request(method, path, json={"input": "x"})
        for word in INTERNAL:
            assert word not in response.text, (path, response.text)
    assert "tool_failed" in client.get(url).text
