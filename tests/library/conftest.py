"""What the library's tests share: a listener, the invariants of every trace, and one component of each kind."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterable
from dataclasses import dataclass, field
from typing import Any, NoReturn

import pytest
from hypothesis import settings
from tests.library.upstream import Upstream, upstream

from podwright import Agent, Conductor, Event, EventManager, FunctionModel, Pipeline, Usage, Workflow
from podwright.events import RUN_ENDS, ModelCallFinished, RunStarted
from podwright.testing import ModelRequest, ModelResponse, ToolCall, events_of

settings.register_profile("podwright", deadline=None, derandomize=True)
settings.load_profile("podwright")


@pytest.fixture
async def provider() -> AsyncGenerator[Upstream]:
    """A model vendor on a socket of this machine."""
    async with upstream() as serving:
        yield serving


@dataclass
class Heard:
    """All events that a manager heard."""

    manager: EventManager = field(default_factory=EventManager)
    events: list[Event] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.manager.subscribe(self.events.append)

    def types(self) -> list[str]:
        return [event.type for event in self.events]

    def of(self, *types: str) -> list[Any]:
        return events_of(self.events, *types)


@pytest.fixture
def heard() -> Heard:
    return Heard()


def spent(events: Iterable[Event]) -> Usage:
    """The sum of all answered model calls."""
    total = Usage()
    for event in events:
        if isinstance(event, ModelCallFinished):
            total += event.response.usage
    return total


def assert_sound(events: list[Event]) -> None:
    """Assert what holds of the trace of one whole run, however it ended."""
    assert [event.seq for event in events] == list(range(len(events)))
    assert isinstance(events[0], RunStarted)
    assert isinstance(events[-1], RUN_ENDS)
    assert events[-1].run_id == events[0].run_id
    assert events[0].parent_id is None
    open_runs: list[str] = []
    ended: set[str] = set()
    for event in events:
        if isinstance(event, RunStarted):
            assert event.run_id not in ended
            assert event.parent_id is None or event.parent_id in open_runs
            open_runs.append(event.run_id)
        assert event.run_id in open_runs, f"{event.type} outside its run"
        if isinstance(event, RUN_ENDS):
            open_runs.remove(event.run_id)
            ended.add(event.run_id)
    assert not open_runs
    begun = [(event.run_id, event.call) for event in events_of(events, "model_call_started")]  # pyright: ignore[reportAttributeAccessIssue]
    ends = [(event.run_id, event.call) for event in events_of(events, "model_call_finished", "model_call_failed")]  # pyright: ignore[reportAttributeAccessIssue]
    assert sorted(begun) == sorted(ends)
    outermost = events[-1].usage
    counted = spent(events)
    assert (outermost.input_tokens, outermost.output_tokens) == (counted.input_tokens, counted.output_tokens)
    assert outermost.cost == counted.cost
    assert outermost.model_calls == len(events_of(events, "model_call_finished"))
    assert outermost.tool_calls == len(events_of(events, "tool_call_started"))


@pytest.fixture(name="assert_sound")
def _assert_sound() -> Callable[[list[Event]], None]:
    return assert_sound


async def outlast() -> NoReturn:
    """Never end, while the event loop's clock is an hour ahead: every time limit under way is over."""
    loop = asyncio.get_running_loop()
    clock = loop.time
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(loop, "time", lambda: clock() + 3600)
        await asyncio.Event().wait()
    raise AssertionError


@pytest.fixture(name="outlast")
def _outlast() -> Callable[[], Coroutine[Any, Any, NoReturn]]:
    return outlast


def look(word: str) -> str:
    """Look a word up."""
    return f"{word}: found"


COST = 0.000125
USED = Usage(input_tokens=600, output_tokens=400, cost=COST)
"""What each model call of the double takes."""


class Double(FunctionModel):
    """Answers for one component of any kind, in two model calls or more; can be told to misbehave at the second."""

    def __init__(self) -> None:
        super().__init__(self.answer, name="offline/double")
        self.second: Callable[[], Any] | None = None
        self.begun: list[str] = []
        self.cancelled: list[str] = []

    def price(self, usage: Usage) -> float | None:
        return usage.input_tokens * 1e-7 + usage.output_tokens * 2e-7

    async def block(self) -> None:
        """Never answer."""
        await asyncio.Event().wait()

    async def answer(self, request: ModelRequest) -> ModelResponse:
        self.begun.append(request.component)
        try:
            await asyncio.sleep(0)
            if len(self.begun) == 2 and self.second is not None:
                await self.second()
        except asyncio.CancelledError:
            self.cancelled.append(request.component)
            raise
        answered = sum(message.role == "tool" for message in request.messages)
        plan = {"solo": ("look",), "desk": ("first", "second")}.get(request.component, ())
        if answered < len(plan):
            arguments = {"word": "moon"} if plan[answered] == "look" else {"task": f"task {answered}"}
            call = ToolCall.of(plan[answered], id=f"call_{answered}", **arguments)
            return ModelResponse(tool_calls=(call,), usage=USED, finish_reason="tool_calls")
        return ModelResponse(f"{request.component} answers", usage=USED)


@dataclass
class Staged:
    """A component of one kind, its model, and what was heard."""

    component: Any
    model: Double
    heard: Heard
    value: Any
    """What a run of it gives."""
    at_second: str
    """Name of the component that makes the second model call."""
    calls: int
    """How many model calls it makes."""


@pytest.fixture
def stage(heard: Heard) -> Callable[..., Staged]:
    """Make a component of a kind."""

    def make(kind: str, **options: Any) -> Staged:
        model = Double()
        options = {"event_manager": heard.manager, **options}
        first, second = Agent("first", "Begin.", model), Agent("second", "End.", model)
        match kind:
            case "agent":
                solo = Agent("solo", "Help.", model, tools=[look], **options)
                return Staged(solo, model, heard, "solo answers", "solo", 2)
            case "workflow":
                flow = Workflow("flow", [first, second], **options)
                value = {"input": "hello", "first_output": "first answers", "second_output": "second answers"}
                return Staged(flow, model, heard, value, "second", 2)
            case "conductor":
                desk = Conductor("desk", "Lead.", model, [first, second], **options)
                return Staged(desk, model, heard, "desk answers", "first", 5)
            case _:
                line = Pipeline("line", [first, second], **options)
                return Staged(line, model, heard, "second answers", "second", 2)

    return make
