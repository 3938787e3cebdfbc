"""A stub made from a trace: components run again without a model, and changes are reported."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from podwright import Agent, AgentStep, EventManager, ParallelStep, Workflow
from podwright.errors import ModelError, ModelRateLimitError, TraceError
from podwright.events import Event
from podwright.messages.messages import ModelRequest, ModelResponse, ToolCall
from podwright.messages.usage import Usage
from podwright.models import (
    Connection,
    FunctionModel,
    Model,
    RecordingModel,
    ScriptedModel,
    use_model,
)
from podwright.models.protocols.openai_compatible import ChatModel
from podwright.models.retries import Retries
from podwright.run.result import ExecutionResult
from podwright_service.testing import ModelStub, assert_usage


def look(place: str) -> str:
    """Look somewhere."""
    return f"nothing in {place}"


def respond(request: ModelRequest) -> Any:
    if request.tools and request.messages[-1].role == "user":
        return ToolCall.of("look", place=request.messages[-1].text)
    usage = Usage(
        input_tokens=100 * len(request.messages),
        output_tokens=len(request.messages[0].text),
    )
    return ModelResponse(
        f"{request.messages[0].text[:9]} of {request.messages[-1].text}",
        usage=usage,
    )


def paper(instructions: str = "Research well.") -> Workflow:
    agents = [
        Agent("researcher", instructions, "openai/gpt-4o-mini", tools=[look]),
        Agent("writer", "Write well.", "openai/gpt-4o-mini"),
        Agent("critic", "Criticise.", "openai/gpt-4o"),
    ]
    steps = [[AgentStep(agent=agent, name=agent.name)] for agent in agents]
    return Workflow(
        "paper",
        [
            ParallelStep(steps),
            AgentStep(agent=agents[1], name="again", input="{critic_output}"),
        ],
    )


def record(
    component: Any, model: Model, run_input: Any = "the moon", **options: Any
) -> ExecutionResult:
    with use_model(model):
        return component.run(run_input, trace=True, **options)


@pytest.fixture
def trace() -> ExecutionResult:
    return record(paper(), FunctionModel(respond, name="openai/gpt-4o-mini"))


def client_of(stub: ModelStub) -> ChatModel:
    model = ChatModel("openai/gpt-4o-mini", Connection("k", f"{stub.url}/v1"))
    model.retries = Retries(first_wait=0.0)
    return model


def replay(
    stub: ModelStub, component: Any, run_input: Any = "the moon", **options: Any
) -> ExecutionResult:
    with stub:
        return record(component, client_of(stub), run_input, **options)


def test_concurrent_branches_get_their_own_responses(
    trace: ExecutionResult, tmp_path: Path
) -> None:
    """A saved trace of concurrent branches with tools gives the same value and the same tokens, every time."""
    file = tmp_path / "trace.json"
    file.write_text(json.dumps(trace.to_dict()))
    for source in (file, iter(trace.events)):
        stub = ModelStub.from_trace(source)
        assert len(stub.missing) == 5
        again = replay(stub, paper())
        stub.verify()
        assert again.value == trace.value
        usage = trace.usage
        assert_usage(
            again,
            input_tokens=usage.input_tokens,
            output_tokens=usage.output_tokens,
            model_calls=5,
        )


def test_a_recording_is_repeated(tmp_path: Path) -> None:
    """The file of a `RecordingModel` is a trace for a stub, too."""
    file = tmp_path / "recording.json"
    answering = FunctionModel(respond, name="openai/gpt-4o-mini")
    recorded = record(paper(), RecordingModel(answering, file))
    stub = ModelStub.from_trace(file)
    assert len(stub.missing) == 5
    assert replay(stub, paper()).value == recorded.value
    stub.verify()


@pytest.mark.parametrize("number", [0, 1, 1.0, 0.2])
@pytest.mark.parametrize(
    "provider", ["openai", "mistral", "gemini", "deepseek", "ollama_chat"]
)
def test_settings_are_repeated(
    provider: str, number: float, tmp_path: Path
) -> None:
    """A trace is repeated from its file for every provider, whether a number was written as 1 or as 1.0."""
    name = f"{provider}/some-model"
    agent = Agent(
        "researcher",
        "Research well.",
        name,
        tools=[look],
        temperature=number,
        top_p=number,
        presence_penalty=number,
        timeout=number or 30,
        seed=7,
        max_tokens=9,
    )
    recorded = record(agent, FunctionModel(respond, name=name))
    file = tmp_path / "trace.json"
    file.write_text(json.dumps(recorded.to_dict()))
    with ModelStub.from_trace(file) as stub:
        connection = Connection("k", f"{stub.url}/v1")
        assert record(agent, ChatModel(name, connection)).value == (
            recorded.value
        )
    stub.verify()


def test_a_conversation_with_images_is_repeated(tmp_path: Path) -> None:
    """Requests are matched with their earlier turns and images; another image is reported."""
    agent = Agent(
        "researcher",
        "Research well.",
        "openai/gpt-4o-mini",
        tools=[look],
        max_history=1,
    )

    def picture(data: str) -> Any:
        url = f"data:image/png;base64,{data}"
        return [
            {"type": "text", "text": "this"},
            {"type": "image_url", "image_url": {"url": url}},
        ]

    def answer(request: ModelRequest) -> str:
        return f"{len(request.messages)} messages"

    model = FunctionModel(answer, name="openai/gpt-4o-mini")
    history = record(
        agent,
        model,
        picture("AAAA"),
        messages=[{"role": "user", "content": "Hi."}],
    ).messages
    recorded = record(agent, model, picture("BBBB"), messages=history)
    file = tmp_path / "trace.json"
    file.write_text(json.dumps(recorded.to_dict()))
    stub = ModelStub.from_trace(file)
    again = replay(stub, agent, picture("BBBB"), messages=history)
    stub.verify()
    assert (again.value, again.messages) == ("4 messages", recorded.messages)
    assert stub.requests[0].messages[1].content == tuple(picture("AAAA"))
    stub = ModelStub.from_trace(file)
    with pytest.raises(ModelError):
        replay(stub, agent, picture("CCCC"), messages=history)
    with pytest.raises(AssertionError, match="CCCC"):
        stub.verify()


def test_a_changed_instruction_is_reported(trace: ExecutionResult) -> None:
    """`verify` reports the difference from the most similar request, and the recorded calls that were not made."""
    stub = ModelStub.from_trace(trace)
    with pytest.raises(ModelError):
        replay(stub, paper("Research badly."))
    with pytest.raises(AssertionError) as raised:
        stub.verify()
    assert "Research well." in str(raised.value)
    assert "Research badly." in str(raised.value)
    assert "researcher" in {request.component for request in stub.missing}


def test_a_repeated_request_is_reported(trace: ExecutionResult) -> None:
    """A request that the run made once gets one response."""
    stub = ModelStub.from_trace(trace)
    with stub:
        record(paper(), client_of(stub))
        with pytest.raises(ModelError):
            record(paper(), client_of(stub))
    assert stub.unanswered
    assert not stub.missing


def test_a_failed_call_fails_again() -> None:
    """A recorded failure is repeated at every attempt."""
    events: list[Event] = []
    manager = EventManager()
    manager.subscribe(events.append)
    agent = Agent("poet", "Rhyme.", "openai/gpt-4o-mini", event_manager=manager)
    failing = ScriptedModel(
        *[ModelRateLimitError("slow down") for _ in range(3)]
    )
    failing.retries = Retries(first_wait=0.0)
    with pytest.raises(ModelRateLimitError):
        record(agent, failing)
    stub = ModelStub.from_trace(events)
    with pytest.raises(ModelRateLimitError):
        replay(stub, agent)
    stub.verify()
    assert len(stub.received) == 3


def test_calls_of_remote_components_are_optional(
    trace: ExecutionResult,
) -> None:
    """Calls of another container are not missing, and get their response if they are made."""
    events = [
        replace(event, remote="researcher")
        if event.component == "researcher"
        else event
        for event in trace.events
    ]
    stub = ModelStub.from_trace(events)
    assert {request.component for request in stub.missing} == {
        "writer",
        "critic",
    }
    assert replay(stub, paper()).value == trace.value
    stub.verify()


@pytest.mark.parametrize("text", [None, "no JSON", '{"format": "other"}'])
def test_invalid_traces(text: str | None, tmp_path: Path) -> None:
    """A file that is missing, or not a trace, is an error."""
    file = tmp_path / "trace.json"
    if text is not None:
        file.write_text(text)
    with pytest.raises(TraceError):
        ModelStub.from_trace(file)
