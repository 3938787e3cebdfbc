"""Fixtures for the tests of the library: a model provider, recorded events, and an example component of each kind."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Coroutine
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn

import pytest
from hypothesis import HealthCheck, settings
from tests.library.model_clients import CLIENTS, Client
from tests.library.shapes import events
from tests.library.upstream import Upstream, upstream

from podwright import (
    Agent,
    Conductor,
    Event,
    EventManager,
    FunctionModel,
    Pipeline,
    Usage,
    Workflow,
)
from podwright.events import RunEnded, RunStarted
from podwright.models.prices.price_file import VARIABLE
from podwright.testing import ModelRequest, ModelResponse, ToolCall

# a busy machine is slow, which is no fault of a test
CHECKS = [HealthCheck.too_slow, HealthCheck.data_too_large]
settings.register_profile(
    "podwright", deadline=None, derandomize=True, suppress_health_check=CHECKS
)
settings.load_profile("podwright")


@pytest.fixture
async def provider() -> AsyncGenerator[Upstream]:
    """A model provider on a local socket."""
    async with upstream() as serving:
        yield serving


@pytest.fixture
def list_prices(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """List prices hold at every base URL, as the price file says."""
    (tmp_path / "list_prices.json").write_text('{"*": {"as": "*"}}')
    monkeypatch.setenv(VARIABLE, str(tmp_path / "list_prices.json"))


@pytest.fixture(params=CLIENTS)
def client(request: pytest.FixtureRequest) -> Client:
    """Each of the model clients."""
    return request.param


@dataclass
class Recorder:
    """An event manager that keeps the events it delivers."""

    manager: EventManager = field(default_factory=EventManager)
    events: list[Any] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.manager.subscribe(self.events.append)

    def types(self) -> list[str]:
        return [event.type for event in self.events]

    def of(self, *types: str) -> list[Any]:
        return events(self.events, *types)


@pytest.fixture
def recorder() -> Recorder:
    return Recorder()


def _assert_sound(trace: list[Any]) -> None:
    assert [event.seq for event in trace] == list(range(len(trace)))
    assert isinstance(trace[0], RunStarted)
    assert isinstance(trace[-1], RunEnded)
    assert trace[-1].run_id == trace[0].run_id
    assert trace[0].parent_id is None
    open_runs: list[str] = []
    for event in trace:
        if isinstance(event, RunStarted):
            assert event.parent_id is None or event.parent_id in open_runs
            open_runs.append(event.run_id)
        assert event.run_id in open_runs, f"{event.type} outside its run"
        if isinstance(event, RunEnded):
            open_runs.remove(event.run_id)
    assert not open_runs
    started = sorted(
        (event.run_id, event.call)
        for event in events(trace, "model_call_started")
    )
    ended = events(trace, "model_call_finished", "model_call_failed")
    assert started == sorted((event.run_id, event.call) for event in ended)
    calls = events(trace, "model_call_finished")
    counted = sum(
        (event.response.usage + event.failed_usage for event in calls),
        start=Usage(),
    )
    counted = sum(
        (event.usage for event in events(trace, "model_call_failed")),
        start=counted,
    )
    used = trace[-1].usage
    assert (used.input_tokens, used.output_tokens) == (
        counted.input_tokens,
        counted.output_tokens,
    )
    assert used.cost == counted.cost
    assert used.model_calls == len(calls)
    assert used.tool_calls == len(events(trace, "tool_call_started"))


@pytest.fixture
def assert_sound() -> Callable[[list[Event]], None]:
    """Asserts what holds of the trace of every outermost run, whatever its outcome."""
    return _assert_sound


@pytest.fixture
def outlast() -> Callable[[], Coroutine[Any, Any, NoReturn]]:
    """A coroutine function that never returns; while it waits, the loop's clock is an hour ahead, so limits expire."""

    async def wait() -> NoReturn:
        loop = asyncio.get_running_loop()
        clock = loop.time
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(loop, "time", lambda: clock() + 3600)
            await asyncio.Event().wait()
        raise AssertionError

    return wait


def look(word: str) -> str:
    """Look a word up."""
    return f"{word}: found"


USED = Usage(input_tokens=600, output_tokens=400, cost=0.000125)
"""What each model call of an example uses."""


class ExampleModel(FunctionModel):
    """The model of all agents of an example; can be told to fail or to wait in its second call."""

    def __init__(self) -> None:
        super().__init__(self.answer, name="offline/example")
        self.in_second_call: Callable[[], Any] | None = None
        self.begun: list[str] = []
        self.cancelled: list[str] = []

    def cost(self, usage: Usage) -> float | None:
        return usage.input_tokens * 1e-7 + usage.output_tokens * 2e-7

    async def block(self) -> None:
        await asyncio.Event().wait()

    async def answer(self, request: ModelRequest) -> ModelResponse:
        self.begun.append(request.component)
        try:
            if len(self.begun) == 2 and self.in_second_call is not None:
                await self.in_second_call()
        except asyncio.CancelledError:
            self.cancelled.append(request.component)
            raise
        answered = sum(message.role == "tool" for message in request.messages)
        tools = {"solo": ("look",), "desk": ("first", "second")}.get(
            request.component, ()
        )
        if answered < len(tools):
            arguments = (
                {"word": "moon"}
                if request.component == "solo"
                else {"task": f"task {answered}"}
            )
            call = ToolCall.of(
                tools[answered], id=f"call_{answered}", **arguments
            )
            return ModelResponse(
                tool_calls=(call,), usage=USED, finish_reason="tool_calls"
            )
        return ModelResponse(f"{request.component} answers", usage=USED)


@dataclass
class Example:
    """A component of one kind with its model and its events."""

    component: Any
    model: ExampleModel
    recorder: Recorder
    value: Any
    """What a run returns."""
    second: str
    """Name of the component that makes the second model call."""
    calls: int
    """Model calls of a run."""


@pytest.fixture
def make_example(recorder: Recorder) -> Callable[..., Example]:
    """Makes the example of a kind."""

    def make(kind: str, **options: Any) -> Example:
        model = ExampleModel()
        options = {"event_manager": recorder.manager, **options}
        agents = [
            Agent("first", "Begin.", model),
            Agent("second", "End.", model),
        ]
        if kind == "agent":
            solo = Agent("solo", "Help.", model, tools=[look], **options)
            return Example(solo, model, recorder, "solo answers", "solo", 2)
        if kind == "workflow":
            value = {
                "input": "hello",
                "first_output": "first answers",
                "second_output": "second answers",
            }
            return Example(
                Workflow("flow", agents, **options),
                model,
                recorder,
                value,
                "second",
                2,
            )
        if kind == "conductor":
            desk = Conductor("desk", "Lead.", model, agents, **options)
            return Example(desk, model, recorder, "desk answers", "first", 5)
        return Example(
            Pipeline("line", agents, **options),
            model,
            recorder,
            "second answers",
            "second",
            2,
        )

    return make
