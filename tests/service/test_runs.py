"""The ends of a run, and the responses to them."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Callable
from typing import Any

import httpx
import pytest
from tests.helpers import plain_http, until
from tests.service.support import FaultyAgent, Serve, check_problem, connect

from podwright import (
    Agent,
    AgentStep,
    ApprovalStep,
    Component,
    ConditionStep,
    FunctionModel,
    ParallelStep,
    Remote,
    RunLimits,
    ScriptedModel,
    Workflow,
)
from podwright.errors import (
    ModelError,
    ModelRateLimitError,
    ModelRequestError,
    UnknownModelError,
)
from podwright.models import Connection, resolve
from podwright.models.retries import Retries
from podwright.testing import ModelRequest, ModelResponse, ToolCall, Usage

SECRET = "sk-canary-1234567890"


def agent(*responses: Any, name: str = "helper", **options: Any) -> Agent:
    return Agent(name, "Help.", ScriptedModel(*responses), **options)


def broken() -> str:
    """Fail."""
    raise ValueError(f"the key is {SECRET}")


def never(context: dict[str, Any]) -> bool:
    """Fail."""
    raise KeyError(SECRET)


async def slow(request: ModelRequest) -> str:
    await asyncio.sleep(30)
    return "late"


def check(response: httpx.Response, status: int, code: str) -> dict[str, Any]:
    """Check that a run failed with a problem, which has the run's id and usage, and no secret."""
    problem = check_problem(response, status, code)
    assert problem["run_id"] == response.headers["podwright-run-id"]
    tokens = f"input_tokens={problem['usage']['input_tokens']}, output_tokens={problem['usage']['output_tokens']}"
    assert response.headers["podwright-usage"].startswith(tokens)
    assert SECRET not in response.text
    return problem


CALL = ToolCall.of("broken")
FAILURES: dict[
    str, tuple[Callable[[], Component], dict[str, Any], int, str]
] = {
    "a model error": (
        lambda: agent(ModelError("The provider is down.")),
        {},
        502,
        "model_failed",
    ),
    "a provider's exception": (
        lambda: agent(OSError(f"body: {SECRET}")),
        {},
        502,
        "model_failed",
    ),
    "a tool's exception": (
        lambda: agent(CALL, tools=[broken], max_tool_retries=0),
        {},
        502,
        "tool_failed",
    ),
    "wrong arguments": (
        lambda: agent(
            ToolCall.of("broken", a=1), tools=[broken], max_tool_retries=0
        ),
        {},
        502,
        "tool_arguments_invalid",
    ),
    "too many loops": (
        lambda: agent(ToolCall.of("nothing"), tools=[broken], max_loops=1),
        {},
        422,
        "loop_limit_reached",
    ),
    "a condition's exception": (
        lambda: Workflow(
            "flow", [ConditionStep(never, [AgentStep(agent("a"))])]
        ),
        {},
        502,
        "condition_failed",
    ),
    "a condition that cannot compare": (
        lambda: Workflow(
            "flow",
            [
                ConditionStep(
                    {"name": "greater_than", "args": {"value": "x", "than": 1}},
                    [AgentStep(agent("a"))],
                )
            ],
        ),
        {},
        422,
        "condition_failed",
    ),
    "a missing name": (
        lambda: Workflow("flow", [AgentStep(agent("a"), input="{topic}")]),
        {},
        422,
        "context_invalid",
    ),
    "model calls": (
        lambda: agent(CALL, tools=[broken]),
        {"run_model_calls": 0},
        422,
        "limit_exceeded",
    ),
    "tokens": (lambda: agent("a"), {"run_tokens": 5}, 422, "limit_exceeded"),
    "wall time": (
        lambda: Agent("helper", "Help.", FunctionModel(slow)),
        {"run_wall_time": 0.05},
        504,
        "limit_exceeded",
    ),
    "the component's own limit": (
        lambda: agent("a", limits=RunLimits(model_calls=0)),
        {},
        422,
        "limit_exceeded",
    ),
    "an unknown model": (
        lambda: agent(UnknownModelError("Unknown.")),
        {},
        500,
        "model_unknown",
    ),
}


@pytest.mark.parametrize(
    ("make", "settings", "status", "code"), FAILURES.values(), ids=FAILURES
)
def test_a_failed_run_is_a_problem(
    serve: Serve,
    make: Callable[[], Component],
    settings: dict[str, Any],
    status: int,
    code: str,
) -> None:
    """Each failure has its status and code, and no text of an unknown exception."""
    check(
        serve(make(), **settings).post("/run", json={"input": "x"}),
        status,
        code,
    )


def test_an_unexpected_error(serve: Serve) -> None:
    """An unexpected exception is a 500 without its text, and is counted as one."""
    client = serve(FaultyAgent("helper", "Help.", "offline/echo"))
    response = client.post("/run", json={"input": "x"})
    check_problem(response, 500, "internal_error")
    assert "secret" not in response.text
    # uvicorn closes the connection of a bug
    assert 'status="500"' in plain_http.get(f"{client.base_url}/metrics").text


def test_a_failed_run_reports_its_usage(serve: Serve) -> None:
    """The usage of a failed run is in the problem and in the header."""
    usage = Usage(input_tokens=10, output_tokens=5, cost=0.0000084)
    first = ModelResponse("a", usage=usage)
    flow = Workflow(
        "flow",
        [agent(first, name="one"), agent(ModelError("down"), name="two")],
    )
    response = serve(flow).post("/run", json={"input": "x"})
    problem = check(response, 502, "model_failed")
    assert problem["component"] == "two"
    assert (problem["usage"]["input_tokens"], problem["usage"]["cost"]) == (
        10,
        0.0000084,
    )
    assert (
        response.headers["podwright-usage"]
        == 'input_tokens=10, output_tokens=5, cost="0.0000084"'
    )


@pytest.mark.parametrize(
    ("asked", "answered"),
    [(7.2, "8"), (None, "1"), (0.0, "1"), (9e4, "3600"), (7.0, None)],
)
def test_a_rate_limit_of_the_provider(
    serve: Serve, asked: float | None, answered: str | None
) -> None:
    """After the retries, a 429 is a 503 with its `Retry-After`, at most an hour; an account without credit is a 502."""
    error = ModelRateLimitError("Too many requests.")
    error.retry_after = asked
    error.transient = answered is not None
    model = ScriptedModel(error)
    model.retries = Retries(tries=1)
    response = serve(Agent("helper", "Help.", model)).post(
        "/run", json={"input": "x"}
    )
    check(response, 503 if answered else 502, "model_rate_limited")
    assert response.headers.get("retry-after") == answered


@pytest.mark.parametrize("path", ["/run", "/run/stream"])
@pytest.mark.parametrize(
    ("settings", "places"),
    [
        ({"provider_errors": "hide"}, ""),
        ({}, "log"),
        ({"provider_errors": "show"}, "log problem"),
    ],
)
def test_the_providers_error_is_shown_as_the_operator_says(
    serve: Serve,
    caplog: pytest.LogCaptureFixture,
    path: str,
    settings: dict[str, Any],
    places: str,
) -> None:
    """The provider's own words are in the log by default, and in the problem if the operator allows it."""
    error = ModelRequestError("It refused.")
    error.provider_error = (
        "code: unsupported_parameter; Unsupported parameter: 'seed'."
    )
    response = serve(agent(error), **settings).post(path, json={"input": "x"})
    problem = json.loads(response.text.rpartition("data: ")[2])
    assert problem.get("provider_error") == (
        error.provider_error if "problem" in places else None
    )
    assert (response.text.count("seed"), caplog.text.count("seed")) == (
        "problem" in places,
        "log" in places,
    )


def test_a_lone_surrogate_from_a_model_is_valid_json(serve: Serve) -> None:
    """A lone surrogate in a model's response is escaped."""
    response = serve(agent("a\ud83d")).post("/run", json={"input": "x"})
    assert response.content == b'{"output":"a\\ud83d"}'


def test_an_approved_workflow_resumes(serve: Serve) -> None:
    """A paused workflow is a 409; with the problem's context and resume path it resumes after the approval."""
    one = agent("first", name="one")
    two = agent("second", name="two")
    client = serve(
        Workflow("flow", [one, ApprovalStep("Print {one_output}?"), two])
    )
    problem = check(
        client.post("/run", json={"input": "x"}), 409, "approval_required"
    )
    assert problem["detail"] == "Print first?"
    assert problem["context"]["one_output"] == "first"
    body = {"inputs": problem["context"], "resume_path": problem["resume_path"]}
    response = client.post("/run", json=body)
    assert response.json() == {
        "input": "x",
        "one_output": "first",
        "two_output": "second",
    }


@pytest.mark.parametrize(
    ("settings", "variable"),
    [
        ({"run_model_calls": 0}, "PODWRIGHT_RUN_MODEL_CALLS"),
        ({"run_tokens": 5}, "PODWRIGHT_RUN_TOKENS"),
        ({"max_body_bytes": 9}, "PODWRIGHT_MAX_BODY_BYTES"),
    ],
)
def test_a_limit_of_the_service_names_its_variable(
    serve: Serve, settings: dict[str, Any], variable: str
) -> None:
    """The suggestion of a problem says which setting to raise."""
    client = serve(agent("a"), **settings)
    for headers in ({}, {"transfer-encoding": "chunked"}):
        content = iter([b'{"input": "x"}']) if headers else b'{"input": "x"}'
        response = client.post(
            "/run",
            content=content,
            headers={"content-type": "application/json"},
        )
        assert variable in response.json()["suggestion"], response.text


@pytest.mark.parametrize("chunked", [False, True], ids=["whole", "chunked"])
@pytest.mark.parametrize(
    "path",
    [
        "/run",
        "/run/stream",
        "/validate-blueprint",
        "/v1/chat/completions",
        "/v1/responses",
        "/mcp",
    ],
)
def test_a_body_that_is_too_large_names_the_setting(
    serve: Serve, path: str, chunked: bool
) -> None:
    """On all routes, in what clients show of the error, and in its suggestion."""
    client = serve(agent("a"), mcp=True, max_body_bytes=300)
    body = json.dumps({"model": "a", "input": "x" * 999}).encode()
    response = client.post(
        path,
        content=iter([body[:9], body[9:]]) if chunked else body,
        headers={"content-type": "application/json"},
    )
    assert response.status_code == 413
    problem = response.json()
    problem = problem.get("error", problem)
    said = problem.get("message") or problem["detail"]
    assert "PODWRIGHT_MAX_BODY_BYTES" in said
    assert "PODWRIGHT_MAX_BODY_BYTES" in problem["suggestion"]


LONG_INPUTS: dict[str, dict[str, Any]] = {
    "one text": {"topic": "moon " * 1000},
    "texts": {"topic": "moon " * 1000, "style": "short"},
    "data": {"rows": [{"n": n} for n in range(1000)], "topic": "sums"},
}


@pytest.mark.parametrize("inputs", LONG_INPUTS.values(), ids=LONG_INPUTS)
@pytest.mark.parametrize("query", ["", "?data=true"])
def test_long_named_inputs_are_answered_once(
    serve: Serve, inputs: dict[str, Any], query: str
) -> None:
    """The result has `input`, but not all named inputs in it again; a run that is given the result has all of them."""
    seen: list[str] = []

    def answer(request: ModelRequest) -> str:
        seen.append(request.messages[-1].text)
        return "Done."

    step = AgentStep(
        Agent("one", "Help.", FunctionModel(answer)), input="{input}"
    )
    client = serve(Workflow("flow", [step]), trust_contexts=True)
    response = client.post(f"/run{query}", json={"inputs": inputs})
    result = response.json()
    assert len(result["input"]) <= 1000
    assert {*result} == {*inputs, "input", "one_output"}
    again = client.post(f"/run{query}", json={"inputs": result})
    assert again.json() == result
    assert seen[0] == seen[1]
    assert len(seen[0]) > 1000
    own = {"inputs": {**inputs, "input": "my own " * 1000}}
    kept = client.post("/run", json=own).json()
    assert kept["input"] == own["inputs"]["input"]


def test_a_start_step(serve: Serve) -> None:
    """A workflow starts at the step that the request names, if the operator trusts the contexts of callers."""
    flow = Workflow("flow", [agent(name="one"), agent("second", name="two")])
    body = {"inputs": {"input": "x", "one_output": "given"}, "start_step": 1}
    check_problem(serve(flow).post("/run", json=body), 422, "state_required")
    response = serve(flow, trust_contexts=True).post("/run", json=body)
    assert response.json() == {
        "input": "x",
        "one_output": "given",
        "two_output": "second",
    }


def test_a_disconnect_within_the_body(
    serve: Serve, caplog: pytest.LogCaptureFixture
) -> None:
    """A client that disconnects before its body is complete is counted as 499, and no error is logged."""
    client = serve(agent("a"))
    connect(client, "/run", b"{", "content-length: 99").close()
    until(lambda: 'status="499"' in client.get("/metrics").text)
    assert client.post("/run", json={"input": "x"}).json() == {"output": "a"}
    # a test before may have left the level at INFO
    assert all(each.levelno < logging.WARNING for each in caplog.records)


def user(content: Any) -> dict[str, Any]:
    return {"role": "user", "content": content}


@pytest.mark.parametrize("route", ["/run", "/run/stream"])
def test_a_conversation(serve: Serve, route: str) -> None:
    """With `?trace=true` the response has the messages after the run; a later request sends them back."""
    model = ScriptedModel(
        *[ToolCall.of("look", id="c", word="moon"), "It shines."] * 2
    )
    client = serve(Agent("guide", "Help.", model, tools=[look]))

    def ask(text: str, messages: list[Any]) -> list[Any]:
        response = client.post(
            route,
            params={"trace": "true"},
            json={"input": text, "messages": messages},
        )
        *_, last = [line for line in response.text.splitlines() if line.strip()]
        return json.loads(last.removeprefix("data: "))["messages"]

    first = ask("the moon", [])
    assert [message["role"] for message in first] == [
        "user",
        "assistant",
        "tool",
        "assistant",
    ]
    second = ask("And then?", first)
    assert second[:5] == [*first, user("And then?")]
    assert [message.text for message in model.requests[2].messages] == [
        "Help.", "the moon", "", "moon: found", "It shines.", "And then?"
    ]  # fmt: skip


def look(word: str) -> str:
    """Look a word up."""
    return f"{word}: found"


def test_wrong_messages(serve: Serve) -> None:
    """All that is wrong in a conversation is a 422 with pointers; kinds that hold none refuse it."""
    wrong: list[Any] = [
        user(5),
        {
            "role": "assistant",
            "tool_calls": [
                {"id": "c", "type": "function", "function": {"name": "f"}}
            ],
        },
        {"role": "tool", "tool_call_id": "d", "content": "x"},
    ]
    response = serve(agent("never")).post(
        "/run", json={"input": "x", "messages": wrong}
    )
    problem = check_problem(response, 422, "request_invalid")
    assert sorted(entry["pointer"] for entry in problem["errors"]) == [
        "/messages/0/content", "/messages/1/tool_calls", "/messages/1/tool_calls/0/function",
        "/messages/2/tool_call_id",
    ]  # fmt: skip
    flow = serve(Workflow("flow", [AgentStep(agent("never"))]))
    check_problem(
        flow.post("/run", json={"input": "x", "messages": wrong}),
        422,
        "request_invalid",
    )


def test_events_that_come_at_once_can_be_streamed(serve: Serve) -> None:
    """That the events of one moment are larger than the buffer is no fault of the reader: images, parallel branches."""

    at_once = asyncio.Barrier(4)

    async def answer(request: ModelRequest) -> str:
        await at_once.wait()
        return "Yes."

    helper = Agent("helper", "Help with {input}.", FunctionModel(answer))
    branches = [
        [AgentStep(helper, f"b{number}", output=f"o{number}")]
        for number in range(4)
    ]
    flow = serve(
        Workflow("flow", [ParallelStep(branches, "all")]), run_tokens=10_000_000
    )
    assert (
        '"o3":"Yes."'
        in flow.post("/run/stream", json={"input": "x" * 200_000}).text[-1000:]
    )
    image = {
        "type": "image_url",
        "image_url": {"url": "data:image/png;base64," + "A" * 800_000},
    }
    events = (
        serve(agent("Yes.")).post("/run/stream", json={"input": [image]}).text
    )
    assert events.rstrip().endswith('data: {"output":"Yes."}')


def test_a_file_that_the_model_does_not_take(serve: Serve) -> None:
    """The caller is told so with a 422, also by a service in between; nothing has failed."""
    model = resolve("deepseek/deepseek-chat", None, Connection("key"))
    reader = serve(Agent("reader", "", model))
    part: Any = {
        "type": "file",
        "file": {"file_data": "data:application/pdf;base64,JVBERi0="},
    }
    front = serve(Remote("front", str(reader.base_url)))
    for client in (reader, front):
        problem = check_problem(
            client.post("/run", json={"input": [part]}),
            422,
            "content_unsupported",
        )
        assert "no files" in problem["detail"]
