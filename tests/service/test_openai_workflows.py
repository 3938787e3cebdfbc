"""Workflows on the OpenAI-compatible routes: the tokens of the agent that gives the answer, as they come."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any

import httpx
import openai
import pytest
from tests.service.openai_support import events_of, post, sdk, user
from tests.service.support import Serve

from podwright import (
    Agent,
    AgentStep,
    ApprovalStep,
    ConditionStep,
    FunctionAgent,
    FunctionModel,
    FunctionStep,
    LoopStep,
    MapStep,
    ParallelStep,
    Pipeline,
    TryStep,
    Usage,
    Workflow,
    WorkflowStep,
)
from podwright.errors import ModelUnavailableError
from podwright.models.retries import Retries
from podwright.testing import ModelRequest, ModelResponse, ToolCall

USED = Usage(10, 4)


def search(query: str) -> str:
    """Search."""
    return f"found {query}"


def respond(request: ModelRequest) -> ModelResponse:
    """Search first, and then answer in several words."""
    if request.messages[-1].role == "tool":
        return ModelResponse("It is a very round moon.", usage=USED)
    call = ToolCall.of("search", query="moon")
    return ModelResponse("Let me look.", (call,), usage=USED)


def draft(request: ModelRequest) -> ModelResponse:
    return ModelResponse("This is a draft of words.", usage=USED)


WRITER = Agent("writer", "Write.", FunctionModel(draft))
GUIDE = Agent("guide", "Help.", FunctionModel(respond), tools=[search])
ANSWER = "It is a very round moon."
STREAMED = f"Let me look.\n\n{ANSWER}"


def is_there(context: Any) -> bool:
    return True


def is_missing(context: Any) -> bool:
    return False


def words() -> list[str]:
    """List words."""
    return ["a", "b"]


def note(word: str) -> str:
    """Note."""
    return f"noted {word}"


def broken(word: str) -> str:
    """Fail."""
    raise ValueError(word)


NOTE = FunctionStep(note, {"word": "x"})
BROKEN = FunctionStep(broken, {"word": "x"})
LAST = AgentStep(GUIDE, "last")


def flow(*steps: Any) -> Workflow:
    return Workflow("flow", steps)


def deltas(service: httpx.Client, protocol: str) -> list[str]:
    """The pieces of the text in a stream, whose end says the same."""
    body = {"model": "flow", "stream": True}
    events = events_of(post(service, protocol, body))
    if protocol == "chat":
        choices = [event["choices"][0] for event in events]
        assert choices[-1]["finish_reason"] == "stop"
        pieces = [choice["delta"].get("content") for choice in choices]
        return [piece for piece in pieces if piece]
    kind = "response.output_text.delta"
    pieces = [event["delta"] for event in events if event["type"] == kind]
    assert events[-1]["type"] == "response.completed"
    (item,) = events[-1]["response"]["output"]
    assert item["content"][0]["text"] == "".join(pieces)
    return pieces


STREAMING: dict[str, Callable[[], Sequence[Any]]] = {
    "an agent": lambda: [WRITER, LAST],
    "a branch": lambda: [WRITER, ConditionStep(is_there, [NOTE, LAST])],
    "the other branch": lambda: [
        ConditionStep(is_there, [WRITER, LAST], [NOTE])
    ],
    "a nested workflow": lambda: [WorkflowStep(flow(WRITER, LAST))],
    "a workflow as an agent": lambda: [
        AgentStep(Workflow("inner", [WRITER, LAST]))
    ],
    "a pipeline": lambda: [AgentStep(Pipeline("line", [WRITER, GUIDE]))],
    "a catch": lambda: [TryStep([WRITER, BROKEN], catch=[NOTE, LAST])],
}


@pytest.mark.parametrize("protocol", ["chat", "responses"])
@pytest.mark.parametrize("name", STREAMING)
def test_tokens_of_the_answer(serve: Serve, name: str, protocol: str) -> None:
    """The tokens of the agent that gives the answer are sent, and of no other one."""
    service = serve(flow(*STREAMING[name]()))
    pieces = deltas(service, protocol)
    assert "".join(pieces) == STREAMED
    assert len(pieces) > 4


WHOLE: dict[str, tuple[str, Callable[[], Sequence[Any]]]] = {
    "a function": ("noted x", lambda: [LAST, NOTE]),
    "a branch that is not taken": (
        ANSWER,
        lambda: [LAST, ConditionStep(is_missing, [WRITER])],
    ),
    "steps that may be tried again": (
        ANSWER,
        lambda: [TryStep([LAST], retries=1)],
    ),
    "steps whose failure is caught": (
        ANSWER,
        lambda: [TryStep([LAST], catch=[NOTE])],
    ),
    "a loop": (ANSWER, lambda: [LoopStep([LAST], until=is_there)]),
    "branches": (ANSWER, lambda: [ParallelStep([[WRITER], [LAST]])]),
    "a map": (
        f'["{ANSWER}", "{ANSWER}"]',
        lambda: [
            FunctionStep(words, output="words"),
            MapStep("words", "word", [LAST]),
        ],
    ),
}


@pytest.mark.parametrize("protocol", ["chat", "responses"])
@pytest.mark.parametrize("name", WHOLE)
def test_an_answer_that_is_sent_whole(
    serve: Serve, name: str, protocol: str
) -> None:
    """What a later step may replace, or what is no text of an agent, is one piece."""
    text, make = WHOLE[name]
    service = serve(flow(*make()))
    assert deltas(service, protocol) == [text]


def test_data_is_sent_whole(serve: Serve) -> None:
    """Tokens of data are no answer, because they may be corrected: of the step's schema and of the agent's own."""
    schema = {"type": "object", "properties": {"a": {"type": "integer"}}}
    model = FunctionModel(lambda _: '{ "a": 1 }')
    agents = [
        AgentStep(Agent("a", "Help.", model), response_schema=schema),
        Agent("a", "Help.", model, response_model=schema),
    ]
    for step in agents:
        service = serve(flow(step))
        for protocol in ("chat", "responses"):
            assert deltas(service, protocol) == ['{"a": 1}']


def test_the_second_attempt_streams(serve: Serve) -> None:
    """After the last attempt nothing is tried: its tokens are sent, and no word of the one before."""
    calls: list[str] = []

    def fail_once(word: str) -> str:
        """Fail once."""
        calls.append(word)
        if len(calls) == 1:
            raise ValueError(word)
        return word

    once = FunctionStep(fail_once, {"word": "x"})
    workflow = flow(TryStep([WRITER, once, LAST], retries=1))
    workflow.retries = Retries(first_wait=0)
    pieces = deltas(serve(workflow), "chat")
    assert "".join(pieces) == STREAMED
    assert len(pieces) > 4


def test_a_function_agent_streams(serve: Serve) -> None:
    """What its generator yields is the answer."""

    async def yielding(task: str) -> Any:
        for word in ("It ", "is ", "round."):
            yield word

    service = serve(flow(WRITER, FunctionAgent("own", yielding)))
    assert deltas(service, "responses") == ["It ", "is ", "round."]


def test_runs_of_functions_are_no_answer(serve: Serve) -> None:
    """A component that a condition or a tool runs is not the one that answers, although it runs in between."""

    async def ask(context: Any) -> bool:
        await flow(ConditionStep(is_there, [WRITER])).arun("moon")
        return True

    async def search(query: str) -> str:
        """Search."""
        return await WRITER.arun(query)

    agent = Agent("guide", "Help.", FunctionModel(respond), tools=[search])
    workflow = flow(ConditionStep(ask, [AgentStep(agent, "last")]))
    assert "".join(deltas(serve(workflow), "chat")) == STREAMED


@pytest.mark.parametrize("protocol", ["chat", "responses"])
def test_tokens_are_sent_before_the_end(serve: Serve, protocol: str) -> None:
    """The first of them arrives while the model still writes the others."""
    begun = threading.Event()
    may_end = threading.Event()

    def yielding(task: str) -> Any:
        yield "First"
        begun.set()
        may_end.wait(30)
        yield " and last."

    service = serve(flow(FunctionAgent("own", yielding)))
    path, body = {
        "chat": ("/v1/chat/completions", {"messages": [user("x")]}),
        "responses": ("/v1/responses", {"input": "x"}),
    }[protocol]
    asked = {**body, "model": "flow", "stream": True}
    with service.stream("POST", path, json=asked) as response:
        lines = response.iter_lines()
        assert any("First" in line for line in lines)
        assert begun.is_set()
        may_end.set()
        assert any(" and last." in line for line in lines)


def test_usage_and_end_are_those_of_the_run(serve: Serve) -> None:
    """The usage is that of all steps; a refusal of the last agent ends as that of an agent does."""

    def refuse(request: ModelRequest) -> ModelResponse:
        return ModelResponse(
            "I cannot say.",
            refusal="I cannot say.",
            finish_reason="refusal",
            usage=USED,
        )

    no = Agent("no", "Help.", FunctionModel(refuse))
    with sdk(serve(flow(WRITER, LAST))) as client:
        with client.chat.completions.stream(
            model="flow",
            messages=[user("x")],
            stream_options={"include_usage": True},
        ) as stream:
            usage = stream.get_final_completion().usage
        assert usage is not None
        assert (usage.prompt_tokens, usage.completion_tokens) == (30, 12)
    service = serve(flow(WRITER, no))
    by_workflow = service.post(
        "/v1/chat/completions",
        json={"model": "flow", "messages": [user("x")]},
    )
    by_agent = serve(no).post(
        "/v1/chat/completions", json={"model": "no", "messages": [user("x")]}
    )
    assert by_workflow.json()["choices"] == by_agent.json()["choices"]
    assert by_workflow.json()["choices"][0]["message"]["refusal"]
    header = "podwright-finish-reason"
    assert by_workflow.headers[header] == by_agent.headers[header] == "refusal"


def test_a_failure_after_the_first_tokens(serve: Serve) -> None:
    """What has been sent stays, and the stream ends with the error, as that of an agent does."""

    async def failing(task: str) -> Any:
        yield "It is"
        raise ModelUnavailableError("The provider is down.")

    service = serve(flow(WRITER, FunctionAgent("own", failing)))
    events = events_of(post(service, "chat", {"model": "flow", "stream": True}))
    assert events[1]["choices"][0]["delta"]["content"] == "It is"
    assert events[-1]["error"]["code"] == "model_unavailable"
    with sdk(service) as client, pytest.raises(openai.APIError):
        for _ in client.chat.completions.create(
            model="flow", messages=[user("x")], stream=True
        ):
            pass


def test_an_approval_before_the_answer(serve: Serve) -> None:
    """A workflow that waits ends its stream with that error, and no token of what follows is sent."""
    service = serve(flow(WRITER, ApprovalStep("Go?"), LAST))
    events = events_of(post(service, "chat", {"model": "flow", "stream": True}))
    assert events[-1]["error"]["code"] == "approval_required"
    assert not any(
        event["choices"][0]["delta"].get("content") for event in events[:-1]
    )
