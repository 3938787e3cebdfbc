"""What a function refuses is the same on each route: its code, its words, and no failure of the service."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest
from tests.service.background_support import begin, wait
from tests.service.openai_support import events_of, sdk, user
from tests.service.support import (
    INLINE,
    Serve,
    Shell,
    check_problem,
    pointers,
    sse_events,
    write,
)

from podwright import (
    Agent,
    FunctionModel,
    FunctionStep,
    Pipeline,
    Remote,
    ScriptedModel,
    Workflow,
    load,
    tool,
)
from podwright.client import AsyncClient, Client, ProblemError
from podwright.errors import ModelRetry, Refusal
from podwright.testing import ToolCall
from podwright_service.testing import Metrics

WORDS = "I only answer questions about orders."
ROUTES = ("/run", "/run/stream", "/v1/chat/completions", "chunks", "/v1/responses", "events",
          "/run-blueprint")  # fmt: skip
PLACES = ("before", "after", "tool")


def refuse(input: str = "", output: str = "") -> None:
    """Refuse all."""
    raise Refusal("off_topic", WORDS)


def shout(output: str) -> dict[str, str]:
    """Another answer."""
    return {"output": output.upper()}


def guide(place: str) -> Agent:
    """An agent that refuses before its model is called, after it has answered, or in a tool."""
    options: dict[str, Any] = {place: refuse}
    if place == "tool":
        options = {"tools": [refuse], "tool_choice": "refuse"}
    return Agent("guide", "Help.", FunctionModel(_answer), **options)


def _answer(request: Any) -> Any:
    if request.tools:
        return [ToolCall.of("refuse")]
    return "Roses are red."


def request(service: httpx.Client, route: str) -> httpx.Response:
    chat = {"model": "guide", "messages": [user("A poem.")]}
    responses = {"model": "guide", "input": "A poem."}
    inline = {
        **INLINE,
        "blueprint": {**INLINE["blueprint"], "before": "refuse"},
        "input": "A poem.",
    }
    bodies: dict[str, Any] = {
        "/v1/chat/completions": chat,
        "chunks": {**chat, "stream": True},
        "/v1/responses": responses,
        "events": {**responses, "stream": True},
        "/run-blueprint": inline,
    }
    paths = {"chunks": "/v1/chat/completions", "events": "/v1/responses"}
    body = bodies.get(route, {"input": "A poem."})
    return service.post(paths.get(route, route), json=body)


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("route", ROUTES)
def test_a_refusal_on_each_route(
    route: str, place: str, serve: Serve, caplog: pytest.LogCaptureFixture
) -> None:
    """A 422 with code and words: nothing failed, and clients do not try again; the log has no words."""
    caplog.set_level(logging.DEBUG)
    service = serve(guide(place), allowed_models=["offline/echo"])
    response = request(service, route)
    if route in ("/run", "/run-blueprint"):
        assert response.status_code == 422
        problem = response.json()
        assert problem["type"].endswith("#refused")
        assert (problem["detail"], problem["refusal"]) == (WORDS, WORDS)
        assert problem["usage"]["model_calls"] == int(
            place != "before" and route == "/run"
        )
    elif route == "/run/stream":
        lines = iter([*response.text.splitlines(), ""])
        (problem,) = [data for _, name, data in sse_events(lines) if name == "problem"]  # fmt: skip
        assert (problem["status"], problem["refusal"]) == (422, WORDS)
    elif route in ("/v1/chat/completions", "/v1/responses"):
        assert response.status_code == 422
        problem = response.json()["error"]
        assert problem["message"].startswith(WORDS)
    else:
        last = events_of(response)[-1]
        problem = last.get("error") or last["response"]["error"]
        assert problem["message"].startswith(WORDS)
        assert "Roses" not in response.text
    assert problem["code"] == "off_topic"
    assert WORDS not in caplog.text
    assert not [line for line in caplog.records if line.levelno >= logging.WARNING]  # fmt: skip
    counted = Metrics(service.get("/metrics").text)
    assert counted.get("podwright_runs_total", status="refused") == 1
    assert counted.get("podwright_runs_total", status="failed") == 0
    assert counted.get("podwright_run_failures_total") == 0
    assert counted.get("podwright_tool_calls_total", tool="refuse", status="refused") == 1  # fmt: skip


def test_clients_of_openai_do_not_try_again(serve: Serve) -> None:
    """It is an error of the request for OpenAI's own client, which has retries."""
    calls: list[str] = []

    def count() -> None:
        calls.append("")
        refuse()

    agent = Agent("guide", "Help.", ScriptedModel(), before=count)
    with sdk(serve(agent)) as client:
        with pytest.raises(openai.UnprocessableEntityError) as caught:
            client.with_options(max_retries=2).chat.completions.create(
                model="guide", messages=[user("A poem.")]
            )
        assert caught.value.code == "off_topic"
    assert len(calls) == 1


async def test_a_remote_component(serve: Serve) -> None:
    """A refusal stays one through containers, and for our client; none of them repeats it."""
    calls: list[str] = []

    def count() -> None:
        calls.append("")
        refuse()

    service = serve(Agent("guide", "Help.", ScriptedModel(), before=count))
    remote = Remote("guide", str(service.base_url))
    front = serve(Workflow("front", [remote]))
    outer = Remote("front", str(front.base_url))
    for component in (remote, outer):
        with pytest.raises(Refusal) as caught:
            await component.arun("A poem.")
        assert (caught.value.code, caught.value.message) == ("off_topic", WORDS)
    with pytest.raises(ProblemError) as problem:
        await AsyncClient(str(front.base_url)).run("A poem.")
    assert problem.value.remote_code == "off_topic"
    assert problem.value.problem["refusal"] == WORDS
    assert problem.value.status == 422
    assert len(calls) == 3


def test_a_background_run(serve: Serve, sqlite_database: str) -> None:
    """It ends once, with the problem of the other routes."""
    client = serve(guide("before"), runs_database=sqlite_database)
    run = wait(client, begin(client))
    assert run["status"] == "failed"
    problem = run["problem"]
    assert (problem["code"], problem["status"]) == ("off_topic", 422)
    assert problem["refusal"] == WORDS


FOLDER = """
from podwright.errors import Refusal

def refuse(input: str) -> None:
    raise Refusal("off_topic", "I only answer questions about orders.")
"""


def test_a_command(shell: Shell, tmp_path: Path) -> None:
    """`podwright run` shows the code and the words, and validate knows the function."""
    blueprint = {
        "name": "guide",
        "instructions": "Help.",
        "config": {"model": "offline/echo"},
        "before": ["refuse"],
    }
    folder = tmp_path / "guide"
    write(folder / "blueprint.json", blueprint)
    missing = shell("validate", "guide")
    assert missing.returncode == 1
    assert "/before/0" in missing.stdout + missing.stderr
    write(folder / "functions.py", FOLDER)
    assert shell("validate", "guide").returncode == 0
    run = shell("run", "guide", "A poem.")
    assert run.returncode == 1
    assert "off_topic" in run.stderr
    assert WORDS in run.stderr
    assert "Traceback" not in run.stderr


@pytest.mark.parametrize("place", ["agent", "pipeline"])
def test_an_answer_that_may_be_changed_is_sent_whole(
    place: str, serve: Serve
) -> None:
    """OpenAI's streams have no text that a function has changed; our own have the tokens, and then the result."""
    model = FunctionModel(lambda _: "roses are red")
    component: Any = Agent("guide", "Help.", model, after=shout)
    if place == "pipeline":
        inner = Agent("inner", "Help.", model)
        component = Pipeline("guide", [inner], after=shout)
    service = serve(component)
    for route in ("chunks", "events"):
        text = request(service, route).text
        assert "roses" not in text
        assert "ROSES ARE RED" in text
    stream = request(service, "/run/stream").text
    assert "event: token" in stream
    assert "ROSES ARE RED" in stream


def test_conversations_have_the_changed_answer(serve: Serve) -> None:
    """The messages for the next turn have what the user was told."""
    model = FunctionModel(lambda _: "roses")
    service = serve(Agent("guide", "Help.", model, after=shout))
    body = {"input": "A poem.", "messages": [user("Hi."), {"role": "assistant", "content": "Hello."}]}  # fmt: skip
    stream = service.post("/run/stream", json=body)
    lines = iter([*stream.text.splitlines(), ""])
    (finished,) = [data for _, name, data in sse_events(lines) if name == "run_finished"]  # fmt: skip
    assert finished["value"] == "ROSES"
    client = Client(str(service.base_url))
    result = client.run("A poem.", messages=body["messages"], trace=True)
    assert result.messages[-1]["content"] == "ROSES"


def test_inputs_of_openai_requests(serve: Serve) -> None:
    """An entry of the metadata is an input if a function before the work takes it."""
    seen: list[str] = []

    def know(customer: str) -> None:
        seen.append(customer)

    agent = Agent("guide", "Help.", FunctionModel(lambda _: "x"), before=know)
    chat = {
        "model": "guide",
        "messages": [user("Hi.")],
        "metadata": {"customer": "Ann", "trace": "1"},
    }
    response = serve(agent).post("/v1/chat/completions", json=chat)
    assert response.status_code == 200, response.text
    assert seen == ["Ann"]


def test_inline_blueprints(serve: Serve) -> None:
    """They may name functions of the served component, as function steps may, and no others, at any depth."""

    @tool(approval=True)
    def pay() -> None:
        raise AssertionError

    model = FunctionModel(lambda _: "x")
    served = Workflow(
        "flow",
        [
            Agent("guide", "Help.", model, tools=[pay], after=shout),
            FunctionStep(_fetch),
        ],
    )
    service = serve(served, allowed_models=["offline/echo"])
    member: dict[str, Any] = {
        "type": "Agent",
        "name": "b",
        "instructions": "Do.",
        "before": "_fetch",
        "after": ["shout", "no"],
    }
    blueprint = {
        "type": "Pipeline",
        "name": "a",
        "config": {"model": "offline/echo"},
        "steps": [member],
        "before": ["pay", "open"],
    }
    body = {"type": "pipeline", "blueprint": blueprint, "input": "x"}
    problem = check_problem(service.post("/run-blueprint", json=body), 422, "blueprint_invalid")  # fmt: skip
    assert sorted(pointers(problem)) == [
        "/blueprint/before/0",
        "/blueprint/before/1",
        "/blueprint/steps/0/after/1",
    ]
    del blueprint["before"]
    member["after"] = "shout"
    run = service.post("/run-blueprint", json=body)
    assert run.json()["output"] == "ECHO: X"
    listed = serve(served, allowed_tools=["pay"])
    problem = check_problem(listed.post("/run-blueprint", json=body), 422, "blueprint_invalid")  # fmt: skip
    assert {"/blueprint/steps/0/before", "/blueprint/steps/0/after"} <= set(pointers(problem))  # fmt: skip


def _fetch() -> dict[str, str]:
    return {"customer": "Ann"}


def test_info_and_metrics_know_the_functions(serve: Serve) -> None:
    """Their names are among the tools, and their calls are counted by them."""
    agent = load(
        {
            "name": "guide",
            "instructions": "Help {customer}.",
            "config": {"model": "offline/echo"},
            "before": "fetch",
            "after": ["shout", "again"],
        },
        functions={"fetch": _fetch, "shout": shout, "again": _again},
    )
    service = serve(agent)
    info = service.get("/info").json()
    assert info["tools"] == ["fetch", "shout", "again"]
    assert info["blueprint"]["after"] == ["shout", "again"]
    assert service.post("/run", json={"input": "x"}).status_code == 502
    counted = Metrics(service.get("/metrics").text)
    for name, status, number in (
        ("fetch", "ok", 1),
        ("shout", "ok", 3),
        ("again", "failed", 3),
    ):
        assert counted.get("podwright_tool_calls_total", tool=name, status=status) == number  # fmt: skip
    assert counted.get("podwright_run_failures_total", code="output_invalid") == 1  # fmt: skip


def _again() -> None:
    raise ModelRetry("Again.")
