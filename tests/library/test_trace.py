"""Traces: saved and read, watched again, and run again without a model."""

import contextlib
import copy
import dataclasses
import io
import json
import math
import time
from collections.abc import Callable
from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel
from tests.library.strategies import changed, places

from podwright import (
    Agent,
    AgentStep,
    Conductor,
    Event,
    ExecutionResult,
    FunctionModel,
    LoopStep,
    MapStep,
    ParallelStep,
    Pipeline,
    PodwrightError,
    ReplayModel,
    ScriptedModel,
    Usage,
    Workflow,
)
from podwright.errors import ModelError, ReplayMismatchError, TraceError
from podwright.events import PlanStep, RunEvent, adapter
from podwright.messages import Message, ModelRequest, ModelResponse, OutputSchema
from podwright.printer import Printer
from podwright.testing import EchoModel, ToolCall, events_of, use_model


def picked(trace: Any, *types: str) -> list[Any]:
    """The events of these types; a type checker cannot know which they are."""
    return events_of(trace, *types)


KINDS = ["agent", "workflow", "conductor", "pipeline"]


def through_json(result: ExecutionResult) -> ExecutionResult:
    return ExecutionResult.from_dict(json.loads(json.dumps(result.to_dict())))


# --- saved and read ------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_a_result_goes_through_json(kind: str, stage: Callable[..., Any]) -> None:
    """A traced result of any kind is the same after a round trip through JSON."""
    result = stage(kind).component.run("hello", trace=True)
    again = through_json(result)
    assert again.events == result.events
    assert (again.value, again.duration_ms, again.usage) == (result.value, result.duration_ms, result.usage)
    assert again.to_dict() == result.to_dict()


class Verdict(BaseModel):
    good: bool
    reasons: list[str]


def test_a_structured_value_is_saved_as_data() -> None:
    """A structured value is saved as plain data, and the model request keeps its schema."""
    agent = Agent("judge", "Judge.", ScriptedModel('{"good": true, "reasons": ["short"]}'))
    result = agent.run("?", response_model=Verdict, trace=True)
    assert result.value == Verdict(good=True, reasons=["short"])
    again = through_json(result)
    assert again.value == {"good": True, "reasons": ["short"]}
    assert again.events == result.events
    assert picked(again, "model_call_started")[0].request.output.name == "Verdict"


def test_the_parts_of_a_result(stage: Callable[..., Any]) -> None:
    """A result has a value, a countable list of events, its time and its usage with a numeric cost."""
    result = stage("agent").component.run("hello", trace=True)
    assert result.value == "solo answers"
    assert len(result.events) == 8
    assert result.duration_ms > 0
    assert result.usage.cost == pytest.approx(0.00025)
    assert result.to_dict().keys() == {"format", "value", "events", "duration_ms", "usage"}


JSON: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
COUNT = st.integers(0, 10**9)
SECONDS = st.floats(0, 1e10)
TEXT = st.text(max_size=12)
OBJECT = st.dictionaries(TEXT, JSON, max_size=3)
INDICES = st.lists(st.integers(0, 99), max_size=4).map(tuple)
PLAIN_USAGE = st.builds(Usage, COUNT, COUNT, COUNT, COUNT, COUNT, COUNT, st.none() | st.floats(0, 1e6), COUNT)
USAGE = st.builds(
    lambda usage, by_model: dataclasses.replace(usage, by_model=by_model),
    PLAIN_USAGE,
    st.dictionaries(TEXT, PLAIN_USAGE, max_size=2),
)
CALLS = st.lists(st.builds(ToolCall, TEXT, TEXT, TEXT), max_size=2).map(tuple)
MESSAGE = st.builds(Message, st.sampled_from(["system", "user", "assistant", "tool"]), TEXT, CALLS, st.none() | TEXT)
TOOL = st.builds(
    lambda name, parameters: {"type": "function", "function": {"name": name, "parameters": parameters}},
    st.text(min_size=1, max_size=8),
    OBJECT,
)
SETTINGS = st.fixed_dictionaries(
    {},
    optional={
        "temperature": st.floats(0, 2),
        "max_tokens": st.integers(1, 10**6),
        "seed": st.integers(),
        "stop": TEXT | st.lists(TEXT, max_size=2),
        "parallel_tool_calls": st.booleans(),
        "reasoning_effort": st.sampled_from(["none", "low", "high"]),
    },
)
REQUEST = st.builds(
    ModelRequest,
    model=TEXT,
    messages=st.lists(MESSAGE, max_size=3).map(tuple),
    tools=st.lists(TOOL, max_size=2).map(tuple),
    settings=SETTINGS,
    output=st.none() | st.builds(OutputSchema, TEXT, OBJECT),
    tool_choice=st.none() | TEXT,
    component=TEXT,
    path=INDICES,
)
RESPONSE = st.builds(ModelResponse, TEXT, CALLS, USAGE, TEXT, TEXT, TEXT)
FIELDS: dict[str, st.SearchStrategy[Any]] = {
    "seq": COUNT,
    "at": SECONDS,
    "run_id": TEXT,
    "parent_id": st.none() | TEXT,
    "component": TEXT,
    "kind": st.sampled_from(KINDS),
    "path": INDICES,
    "remote": st.none() | TEXT,
    "input": JSON,
    "value": JSON,
    "usage": USAGE,
    "duration_ms": SECONDS,
    "error": OBJECT,
    "context": st.none() | OBJECT,
    "resume_path": INDICES,
    "message": TEXT,
    "call": COUNT,
    "model": TEXT,
    "tries": COUNT,
    "wait_ms": SECONDS,
    "request": REQUEST,
    "response": RESPONSE,
    "first_token_ms": st.none() | SECONDS,
    "text": TEXT,
    "tool": TEXT,
    "call_id": TEXT,
    "arguments": JSON,
    "output": TEXT,
    "revision": COUNT,
    "steps": st.lists(st.builds(PlanStep, TEXT, TEXT), max_size=3).map(tuple),
    "step": TEXT,
    "step_type": TEXT,
    "outcome": st.sampled_from(["ok", "failed", "cancelled", "paused"]),
    "condition": TEXT,
    "result": st.booleans(),
}
EVENT_TYPES: tuple[type[RunEvent], ...] = get_args(get_args(Event)[0])


@pytest.mark.parametrize("event_type", EVENT_TYPES, ids=lambda one: one.__name__)
@given(data=st.data())
def test_every_event_goes_through_json(event_type: type[RunEvent], data: st.DataObject) -> None:
    """An event of any type, with anything in it, is the same after a round trip through JSON."""
    fields = [one.name for one in dataclasses.fields(event_type) if one.name != "type"]
    event = event_type(**{name: data.draw(FIELDS[name], label=name) for name in fields})
    read = adapter().validate_python(json.loads(json.dumps(event.to_dict())))
    assert read == event
    assert type(read) is event_type
    Printer(timing=True, file=io.StringIO())(read)


def test_events_are_frozen() -> None:
    """Nobody can change an event."""
    result = Agent("a", "Help.", ScriptedModel("yes")).run("?", trace=True)
    with pytest.raises(dataclasses.FrozenInstanceError):
        result.events[0].seq = 5


# --- damaged traces ------------------------------------------------------------------------------------


def saved_trace() -> dict[str, Any]:
    def search(word: str) -> str:
        """Search."""
        return f"{word}: found"

    writer = Agent("writer", "Write.", EchoModel(), tools=[search])
    desk = Conductor("desk", "Lead.", EchoModel(), [writer], planning=True)
    flow = Workflow("flow", [ParallelStep([[desk], [Agent("other", "Write.", EchoModel())]])])
    return json.loads(json.dumps(flow.run("hello", trace=True).to_dict()))


SAVED = saved_trace()
PLACES = list(places(SAVED))


def use(trace: ExecutionResult) -> None:
    """Do all that can be done with a trace."""
    trace.replay(subscriber=Printer(timing=True, file=io.StringIO()))
    assert through_json(trace).events == trace.events
    model = ReplayModel(trace)
    with use_model(model), contextlib.suppress(ModelError):
        Agent("writer", "Write.", EchoModel()).run("hello")


@given(data=st.data())
def test_any_damage_to_a_trace(data: st.DataObject) -> None:
    """However a trace is damaged, it is read and can be used, or one TraceError says what is wrong."""
    at = data.draw(st.sampled_from(PLACES))
    new = data.draw(st.just(...) | JSON)
    damaged = changed(SAVED, at, new)
    refused = False
    try:
        use(ExecutionResult.from_dict(damaged))
    except TraceError:
        refused = True
    assert damaged != SAVED or not refused


@given(JSON)
def test_anything_as_a_trace(data: Any) -> None:
    """Whatever JSON is given for a trace, a TraceError says that it is none."""
    with pytest.raises(TraceError):
        ExecutionResult.from_dict(data)


ENDLESS: list[Any] = []
ENDLESS.append(ENDLESS)

STRANGE: dict[str, Callable[[dict[str, Any]], object]] = {
    "half a surrogate pair in a name": lambda event: event.update(component="\ud800"),
    "half a surrogate pair in a text": lambda event: event.update(input="\udfff"),
    "a time in the far future": lambda event: event.update(at=1e300),
    "a time that is no number": lambda event: event.update(at="nan"),
    "more tokens than Python writes out": lambda event: event.update(
        type="run_finished", usage={"input_tokens": 10**4299 * 9, "output_tokens": 10**4299 * 9}
    ),
}


@pytest.mark.parametrize("strangeness", STRANGE)
def test_what_is_read_can_be_printed(strangeness: str) -> None:
    """Whatever a trace says that can be read, its replay can be printed, as many lines as ever."""
    strange = copy.deepcopy(SAVED)
    STRANGE[strangeness](strange["events"][0])
    assert len(printed(strange)) == len(printed(SAVED))


def printed(trace: dict[str, Any]) -> list[bytes]:
    """The lines of a trace's replay."""
    file = io.StringIO()
    ExecutionResult.from_dict(trace).replay(subscriber=Printer(timing=True, file=file))
    return file.getvalue().encode().splitlines()


DAMAGES: dict[str, Callable[[dict[str, Any]], object]] = {
    "another format": lambda trace: trace.update(format="podwright.trace/2"),
    "no format": lambda trace: trace.pop("format"),
    "no events": lambda trace: trace.pop("events"),
    "no value": lambda trace: trace.pop("value"),
    "events that are none": lambda trace: trace.update(events={}),
    "an event that is none": lambda trace: trace["events"].append(5),
    "an event of unknown type": lambda trace: trace["events"][0].update(type="run_begun"),
    "an event of no type": lambda trace: trace["events"][0].pop("type"),
    "a wrong number": lambda trace: trace["events"][0].update(seq="first"),
    "a wrong duration": lambda trace: trace.update(duration_ms="long"),
    "a huge duration": lambda trace: trace.update(duration_ms=10**400),
    "bytes": lambda trace: trace.update(value=b"x"),
    "an object": lambda trace: trace["events"][0].update(input=object()),
    "a number that is none": lambda trace: trace["events"][0].update(input={"a": math.nan}),
    "a huge number": lambda trace: trace.update(value=10**5000),
    "a value that holds itself": lambda trace: trace.update(value=ENDLESS),
    "a wrong usage": lambda trace: trace.update(usage={"input_tokens": "many"}),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_damage(damage: str) -> None:
    """Each way in which a trace can be wrong is one TraceError with a suggestion."""
    trace = copy.deepcopy(SAVED)
    DAMAGES[damage](trace)
    with pytest.raises(TraceError) as caught:
        ExecutionResult.from_dict(trace)
    assert caught.value.suggestion


def test_a_trace_without_the_start_of_a_call() -> None:
    """A trace that lacks the start of a model call cannot be replayed, and says so."""
    trace = ExecutionResult.from_dict(SAVED)
    trace.events = [event for event in trace.events if event.type != "model_call_started"]
    with pytest.raises(TraceError, match="before it started"):
        ReplayModel(trace)


# --- watched again -------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_replay_to_a_subscriber(kind: str, stage: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """Replay gives a subscriber the recorded events, in order, without a pause by default."""
    result = through_json(stage(kind).component.run("hello", trace=True))
    pauses: list[float] = []
    monkeypatch.setattr(time, "sleep", pauses.append)
    seen: list[Event] = []
    result.replay(subscriber=seen.append)
    assert seen == result.events
    assert pauses == []
    result.replay(delay=0.5, subscriber=seen.append)
    assert pauses == [0.5] * (len(result.events) - 1)
    assert len(seen) == 2 * len(result.events)


def test_replay_with_the_recorded_timing(stage: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """With a delay of None, replay pauses as long as the run did."""
    result = stage("agent").component.run("hello", trace=True)
    result.events = [dataclasses.replace(event, at=1000.0 + number / 4) for number, event in enumerate(result.events)]
    result.duration_ms = 60_000
    pauses: list[float] = []
    monkeypatch.setattr(time, "sleep", pauses.append)
    result.replay(delay=None, subscriber=lambda _: None)
    assert pauses == [0.25] * (len(result.events) - 1)


@pytest.mark.parametrize(("duration", "longest"), [(2_000, 2.0), (1e300, 3600.0), (-1.0, 0.0), (math.nan, 3600.0)])
def test_a_replay_ends(
    duration: float, longest: float, stage: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a delay of None, replay pauses no longer in all than the run took, nor than an hour."""
    result = stage("agent").component.run("hello", trace=True)
    result.events = [dataclasses.replace(event, at=number * 1e18) for number, event in enumerate(result.events)]
    result.duration_ms = duration
    pauses: list[float] = []
    monkeypatch.setattr(time, "sleep", pauses.append)
    result.replay(delay=None, subscriber=lambda _: None)
    assert sum(pauses) == longest


def test_replay_prints_with_timing(
    stage: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Replay prints the steps by default, each with its time since the start."""
    result = stage("agent").component.run("hello", trace=True)
    result.events = [dataclasses.replace(event, at=1000.0 + number / 4) for number, event in enumerate(result.events)]
    monkeypatch.setattr(time, "sleep", lambda _: None)
    through_json(result).replay(0.1)
    lines = capsys.readouterr().out.splitlines()
    assert lines[:4] == [
        "   0.000s [solo] started: hello",
        "   0.250s [solo] thinking (offline/double)",
        '   0.750s [solo] calls look(word="moon")',
        "   1.000s [solo] look answered: moon: found",
    ]
    assert lines[4] == "   1.250s [solo] thinking (offline/double)"
    assert lines[5].startswith("   1.750s [solo] final answer (")
    assert lines[5].endswith("): solo answers")


# --- run again -----------------------------------------------------------------------------------------


def look(word: str) -> str:
    """Look a word up."""
    return f"{word}: found"


def component(kind: str, model: Any) -> Any:
    """A component of a kind that does much: tools, plans, branches, loops."""
    writer = Agent("writer", "Write about it.", model, tools=[look], temperature=0.5)
    other = Agent("other", "Judge.", model)
    match kind:
        case "agent":
            return writer
        case "pipeline":
            return Pipeline("line", [writer, other, writer])
        case "conductor":
            return Conductor("desk", "Lead.", model, [writer, other], planning=True)
        case _:
            loop = LoopStep([other], {"name": "is_empty", "args": {"value": "{input}"}}, 2)
            spread = MapStep("input", "line", [AgentStep(writer, input="{line}")], max_concurrency=2)
            return Workflow("flow", [ParallelStep([[writer], [other], [loop], [spread]]), Pipeline("line", [other])])


@pytest.mark.parametrize("kind", KINDS)
def test_a_faithful_replay(kind: str) -> None:
    """Run again against its trace, a component gives the same value and asks for every recorded call."""
    recorded = component(kind, EchoModel()).run("moon\nsun\nstars", trace=True)
    model = ReplayModel(through_json(recorded))
    assert len(model.left) == recorded.usage.model_calls
    again = component(kind, model).run("moon\nsun\nstars", trace=True)
    assert again.value == recorded.value
    assert model.left == []
    assert [event.type for event in again.events] == [event.type for event in recorded.events]
    assert again.usage.total_tokens == recorded.usage.total_tokens


@pytest.mark.parametrize("kind", KINDS)
def test_a_replay_in_place_of_all_models(kind: str) -> None:
    """`use_model` puts the trace in the place of the components' own models, also in a streamed run."""
    recorded = component(kind, EchoModel()).run("moon", trace=True)

    def refuse(_: ModelRequest) -> str:
        raise AssertionError

    own = component(kind, FunctionModel(refuse, name="offline/echo"))
    with use_model(ReplayModel(recorded)):
        assert list(own.stream("moon"))[-1].value == recorded.value


def test_a_replay_without_json_output() -> None:
    """A trace of a model that answers through a tool replays the same way."""

    class ToolOnly(ScriptedModel):
        json_output = False

    answer = ToolCall.of("final_answer", good=True, reasons=[])
    recorded = Agent("judge", "Judge.", ToolOnly(answer)).run("?", response_model=Verdict, trace=True)
    model = ReplayModel(recorded)
    assert Agent("judge", "Judge.", model).run("?", response_model=Verdict) == recorded.value
    assert model.left == []


def record(**changes: Any) -> Agent:
    options = {"instructions": "Write about it, at length.", "tools": [look], "temperature": 0.5, **changes}
    return Agent("writer", **options)


def look_twice(word: str, often: int = 2) -> str:
    """Look a word up."""
    return word * often


look_twice.__name__ = "look"

CHANGES: dict[str, tuple[dict[str, Any], str, str]] = {
    "instruction": ({"instructions": "Write about it, briefly."}, "moon", "message 0 (system)"),
    "input": ({}, "sun", "message 1 (user)"),
    "tool": ({"tools": [look_twice]}, "moon", "tools was"),
    "no tools": ({"tools": []}, "moon", "tools was"),
    "setting": ({"temperature": 0.7}, "moon", "settings was"),
    "new setting": ({"seed": 1}, "moon", "settings was"),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_change_fails_the_replay(change: str) -> None:
    """A changed component fails by naming the first request that differs, and how."""
    recorded = record(model=EchoModel()).run("moon", trace=True)
    changes, given, said = CHANGES[change]
    with pytest.raises(ReplayMismatchError) as caught:
        record(model=ReplayModel(recorded), **changes).run(given)
    assert "Model call 0 of the trace, by 'writer', differs" in caught.value.message
    assert said in caught.value.message
    assert caught.value.component == "writer"


def test_the_first_difference_is_named_where_it_is() -> None:
    """A difference in a later call is named by its number, its component and its place."""
    recorded = component("pipeline", EchoModel()).run("moon", trace=True)
    model = ReplayModel(recorded)
    changed = Pipeline("line", [*component("pipeline", model).steps[:1], Agent("other", "Judge anew.", model)])
    with pytest.raises(ReplayMismatchError, match=r"Model call 2 of the trace, by 'other' at \[1\], differs") as caught:
        changed.run("moon")
    assert "'Judge.', now 'Judge anew.'" in caught.value.message
    assert len(model.left) == 2


def test_a_call_that_was_not_recorded() -> None:
    """A model call more than the trace has fails by the component's name."""
    recorded = Agent("a", "Help.", EchoModel()).run("moon", trace=True)
    model = ReplayModel(recorded)
    agent = Agent("a", "Help.", model)
    agent.run("moon")
    with pytest.raises(ReplayMismatchError, match="'a' made a model call that is not in the trace"):
        agent.run("moon")
    with pytest.raises(ReplayMismatchError, match="'b'"):
        Agent("b", "Help.", model).run("moon")


def test_a_recorded_failure_fails_again(heard: Any) -> None:
    """A model call that failed when it was recorded fails again, with the recorded reason."""

    def build(model: Any, **options: Any) -> Workflow:
        return Workflow("flow", [Agent("first", "Help.", model), Agent("second", "Help.", model)], **options)

    with pytest.raises(PodwrightError) as first:
        build(ScriptedModel("one", ValueError("no luck")), event_manager=heard.manager).run("?")
    model = ReplayModel(ExecutionResult(None, heard.events, 0, Usage()))
    with pytest.raises(ModelError, match="no luck") as again:
        build(model).run("?")
    assert model.left == []
    assert again.value.component == first.value.component == "second"
    assert again.value.resume_path == first.value.resume_path
    assert again.value.context == first.value.context


def test_many_runs_at_once_replay(heard: Any) -> None:
    """Branches that ran in parallel replay each against its own recorded calls, however they interleave."""
    flow = component("workflow", EchoModel())
    recorded = flow.run("a\nb\nc\nd", trace=True)
    requests = picked(recorded, "model_call_started")
    assert len({(event.component, event.path) for event in requests}) < len(requests)
    for _ in range(3):
        model = ReplayModel(recorded)
        assert component("workflow", model).run("a\nb\nc\nd") == recorded.value
        assert model.left == []
