"""A stub made from a trace: components run again without a model, and what changed is told."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from podwright import Agent, AgentStep, EventManager, ParallelStep, Workflow
from podwright.errors import ModelError, ModelRateLimitError, TraceError
from podwright.events import Event
from podwright.messages import ModelRequest, ModelResponse, ToolCall
from podwright.models import Connection, FunctionModel, Model, ScriptedModel, use_model
from podwright.models.openai_compatible import ChatModel
from podwright.models.retries import Retries
from podwright.result import ExecutionResult
from podwright.usage import Usage
from podwright_service.testing import ModelStub, assert_usage


class Forgetful(FunctionModel):
    """Gives no JSON by itself."""

    json_output = False


class Sum(BaseModel):
    """A sum."""

    total: int


def look(place: str) -> str:
    """Look somewhere."""
    return f"nothing in {place}"


def vendor(request: ModelRequest) -> Any:
    if request.tools and request.messages[-1].role == "user":
        return ToolCall.of("look", place=request.messages[-1].content)
    used = Usage(input_tokens=100 * len(request.messages), output_tokens=len(request.messages[0].content))
    return ModelResponse(f"{request.messages[0].content[:9]} of {request.messages[-1].content}", usage=used)


def component(instructions: str = "Research well.") -> Workflow:
    agents = [
        Agent("researcher", instructions, "openai/gpt-4o-mini", tools=[look]),
        Agent("writer", "Write well.", "openai/gpt-4o-mini"),
        Agent("critic", "Criticise.", "openai/gpt-4o"),
    ]
    steps = [[AgentStep(agent=agent, name=agent.name)] for agent in agents]
    return Workflow("paper", [ParallelStep(steps), AgentStep(agent=agents[1], name="again", input="{critic_output}")])


def record(flow: Any, model: Model, given: Any = "the moon", **options: Any) -> ExecutionResult:
    with use_model(model):
        return flow.run(given, trace=True, **options)


@pytest.fixture
def trace() -> ExecutionResult:
    return record(component(), FunctionModel(vendor, name="openai/gpt-4o-mini"))


def connected(stub: ModelStub) -> ChatModel:
    model = ChatModel("openai/gpt-4o-mini", Connection("k", f"{stub.url}/v1"))
    model.retries = Retries(first_wait=0.0)
    return model


def replayed(stub: ModelStub, flow: Any, given: Any = "the moon", **options: Any) -> ExecutionResult:
    with stub:
        return record(flow, connected(stub), given, **options)


def saved(trace: ExecutionResult, folder: Path) -> Path:
    file = folder / "trace.json"
    file.write_text(json.dumps(trace.to_dict()))
    return file


def test_branches_get_their_own_answers(trace: ExecutionResult, tmp_path: Path) -> None:
    """A saved trace of concurrent branches with tools gives the same value and the same tokens again, many times."""
    file = saved(trace, tmp_path)
    for _ in range(5):
        stub = ModelStub.from_trace(file)
        again = replayed(stub, component())
        stub.verify()
        assert again.value == trace.value
        used = trace.usage
        assert_usage(again, input_tokens=used.input_tokens, output_tokens=used.output_tokens, model_calls=5)


@pytest.mark.parametrize("form", ["file", "text", "result", "events"])
def test_forms_of_a_trace(trace: ExecutionResult, tmp_path: Path, form: str) -> None:
    """A path, its text, a result and its events are the same trace."""
    file = saved(trace, tmp_path)
    given: Any = {"file": file, "text": str(file), "result": trace, "events": iter(trace.events)}[form]
    assert len(ModelStub.from_trace(given).left) == 5


def test_a_change_is_told(trace: ExecutionResult) -> None:
    """An agent that asks otherwise fails, and `verify` tells what was said before and now, and what was not asked."""
    stub = ModelStub.from_trace(trace)
    with pytest.raises(ModelError):
        replayed(stub, component("Research badly."))
    with pytest.raises(AssertionError) as caught:
        stub.verify()
    told = str(caught.value)
    assert "of 'researcher', it differs: message 0 (system) was 'Research well.', now 'Research badly.'" in told
    assert "The trace has a model call of 'researcher' that was not made." in told


def test_an_input_that_is_not_in_the_trace(trace: ExecutionResult) -> None:
    """Another input is another request."""
    stub = ModelStub.from_trace(trace)
    with pytest.raises(ModelError):
        replayed(stub, component(), "the sun")
    assert any("message 1 (user) was 'the moon', now 'the sun'" in complaint for complaint in stub.complaints)


def test_a_request_made_too_often(trace: ExecutionResult) -> None:
    """What a run asked once is answered once."""
    stub = ModelStub.from_trace(trace)
    with stub:
        record(component(), connected(stub))
        with pytest.raises(ModelError):
            record(component(), connected(stub))
    assert any("more often than in the trace" in complaint for complaint in stub.complaints)


def test_a_failed_call_fails_again() -> None:
    """A recorded failure is that failure again, at each of its tries."""
    heard: list[Event] = []
    manager = EventManager()
    manager.subscribe(heard.append)
    agent = Agent("poet", "Rhyme.", "openai/gpt-4o-mini", event_manager=manager)
    down = ScriptedModel(*[ModelRateLimitError("slow down") for _ in range(3)])
    down.retries = Retries(first_wait=0.0)
    with pytest.raises(ModelRateLimitError):
        record(agent, down)
    stub = ModelStub.from_trace(heard)
    with pytest.raises(ModelRateLimitError):
        replayed(stub, agent)
    stub.verify()
    assert len(stub.asked) == 3


def test_data_through_a_tool() -> None:
    """Structured answers that a model gave through a tool are given again to a client that asks for JSON."""
    agent = Agent("adder", "Add.", "openai/gpt-4o-mini")
    model = Forgetful(lambda _: ToolCall.of("final_answer", total=5), name="groq/llama")
    first = record(agent, model, "2 + 3", response_model=Sum)
    stub = ModelStub.from_trace(first)
    assert replayed(stub, agent, "2 + 3", response_model=Sum).value == Sum(total=5)
    stub.verify()


def test_calls_of_remote_components(trace: ExecutionResult) -> None:
    """Calls that another container made are not missed, and are answered if they come."""
    events = [
        replace(event, remote="researcher") if event.component == "researcher" else event for event in trace.events
    ]
    stub = ModelStub.from_trace(events)
    assert {request.component for request in stub.left} == {"writer", "critic"}
    assert replayed(stub, component()).value == trace.value
    stub.verify()


@pytest.mark.parametrize("text", [None, "no JSON", '{"format": "other"}'])
def test_what_is_no_trace(text: str | None, tmp_path: Path) -> None:
    """A file that is missing, or no trace, is told as such."""
    file = tmp_path / "trace.json"
    if text is not None:
        file.write_text(text)
    with pytest.raises(TraceError):
        ModelStub.from_trace(file)
