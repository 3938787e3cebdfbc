"""Traces: saved and read, printed again, and replayed without a model."""

import asyncio
import contextlib
import copy
import dataclasses
import io
import json
import math
import pickle
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel
from tests.library import strategies
from tests.library.shapes import KINDS, events
from tests.library.strategies import any_json, damaged
from tests.library.upstream import Upstream, completion, reply

from podwright import (
    Agent,
    Conductor,
    ExecutionResult,
    Pipeline,
    Workflow,
    tool,
)
from podwright.components import (
    AgentStep,
    ApprovalStep,
    LoopStep,
    MapStep,
    ParallelStep,
)
from podwright.errors import (
    ApprovalRequired,
    ConfigurationError,
    ModelError,
    PodwrightError,
    ReplayMismatchError,
    RunCancelledError,
    TraceError,
)
from podwright.events import Event, RunEvent, adapter
from podwright.messages.messages import (
    Message,
    ModelRequest,
    ModelResponse,
    OutputSchema,
)
from podwright.messages.shared_state import StateChange
from podwright.models import Connection, resolve
from podwright.models.replay import differences
from podwright.models.retries import Retries
from podwright.run.printer import Printer
from podwright.testing import (
    EchoModel,
    FunctionModel,
    RecordingModel,
    ReplayModel,
    ScriptedModel,
    ToolCall,
    Usage,
    use_model,
)


def through_json(result: ExecutionResult) -> ExecutionResult:
    return ExecutionResult.from_dict(json.loads(json.dumps(result.to_dict())))


@pytest.mark.parametrize("kind", KINDS)
def test_a_result_survives_json(kind: str, make_example: Any) -> None:
    """A traced result of any kind is the same after a round trip through JSON (spec §2.5)."""
    result = make_example(kind).component.run("hello", trace=True)
    copy = through_json(result)
    assert copy == result
    assert copy.to_dict() == result.to_dict()
    assert copy.to_dict().keys() - {"messages"} == {
        "format",
        "value",
        "events",
        "duration_ms",
        "usage",
    }
    assert [message["role"] for message in copy.messages][-1] == "assistant"
    assert result.duration_ms > 0


def fails(request: ModelRequest) -> str:
    raise LookupError("no such word")


@pytest.mark.parametrize("kind", KINDS)
def test_an_error_has_the_events_of_its_run(
    kind: str, make_example: Any
) -> None:
    """A traced run of any kind that fails raises an error with all its events; pickled, it still has them."""
    example = make_example(kind)
    with (
        use_model(FunctionModel(fails)),
        pytest.raises(PodwrightError) as caught,
    ):
        example.component.run("hello", trace=True)
    error = caught.value
    assert error.events == example.recorder.events
    assert error.events[-1].type == "run_failed"
    assert "events" not in error.to_dict()
    copied = pickle.loads(pickle.dumps(error))  # noqa: S301 - our own bytes
    assert copied.events == error.events


async def test_a_paused_and_a_cancelled_run_have_their_events() -> None:
    """A pause and the cause of a cancellation have the events, the last one included."""
    with pytest.raises(ApprovalRequired) as paused:
        await Workflow("flow", [ApprovalStep("Go on?")]).arun("x", trace=True)
    assert paused.value.events[-1].type == "run_paused"
    begun = asyncio.Event()

    async def wait(request: ModelRequest) -> str:
        begun.set()
        await asyncio.Event().wait()
        return "never"

    run = asyncio.create_task(
        Agent("slow", "", FunctionModel(wait)).arun("x", trace=True)
    )
    await begun.wait()
    run.cancel()
    with pytest.raises(asyncio.CancelledError) as cancelled:
        await run
    cause = cancelled.value.__cause__
    assert isinstance(cause, RunCancelledError)
    assert cause.events[-1].type == "run_cancelled"


def test_an_error_has_no_events_of_a_run_that_was_not_traced() -> None:
    """Only the outermost run counts, as for its usage: not a traced one in a tool."""
    inner = Agent("inner", "", FunctionModel(fails))
    events_inside: list[Event] = []

    def ask(question: str) -> str:
        """Ask."""
        with pytest.raises(PodwrightError) as caught:
            inner.run(question, trace=True)
        events_inside.extend(caught.value.events)
        raise caught.value

    model = ScriptedModel(ToolCall.of("ask", question="?"))
    asker = Agent("asker", "", model, tools=[tool(on_error="fail")(ask)])
    with pytest.raises(PodwrightError) as failed:
        asker.run("x")
    assert {event.component for event in events_inside} == {"inner"}
    assert failed.value.events == []


class Verdict(BaseModel):
    good: bool
    reasons: list[str]


def test_a_typed_value_is_saved_as_data() -> None:
    """A typed value is saved as JSON data; the request keeps its schema, and an event cannot be changed."""
    agent = Agent(
        "judge", "Judge.", ScriptedModel('{"good": true, "reasons": ["short"]}')
    )
    result = agent.run("?", response_model=Verdict, trace=True)
    copy = through_json(result)
    assert copy.value == {"good": True, "reasons": ["short"]}
    assert copy.events == result.events
    assert (
        events(copy, "model_call_started")[0].request.output.name == "Verdict"
    )
    with pytest.raises(dataclasses.FrozenInstanceError):
        events(copy)[0].seq = 5


TEXT = st.text(max_size=12)
SECONDS = st.floats(0, 1e10)
OBJECT = st.dictionaries(TEXT, any_json, max_size=3)
COUNT = st.integers(0, 10**9)
COST = st.none() | st.floats(0, 1e6)
CALLS_USAGE = st.builds(
    Usage,
    COUNT,
    COUNT,
    COUNT,
    COUNT,
    COUNT,
    COUNT,
    COST,
    COUNT,
    cache_write_tokens=COUNT,
)
USAGE = st.builds(
    dataclasses.replace,
    CALLS_USAGE,
    by_model=st.dictionaries(TEXT, CALLS_USAGE, max_size=2),
)
TOOL_CALLS = st.lists(
    st.builds(ToolCall, TEXT, TEXT, TEXT, OBJECT), max_size=2
).map(tuple)
IMAGE = st.fixed_dictionaries(
    {"url": TEXT.map("https://{}".format)}, optional={"detail": st.just("low")}
)
PART = st.fixed_dictionaries(
    {"type": st.just("text"), "text": TEXT}
) | st.fixed_dictionaries({"type": st.just("image_url"), "image_url": IMAGE})
CONTENT = TEXT | st.lists(PART, max_size=3).map(tuple)
ROLE = st.sampled_from(["system", "user", "assistant", "tool"])
MESSAGE = st.builds(
    Message, ROLE, CONTENT, TOOL_CALLS, st.none() | TEXT, OBJECT, TEXT
)
REQUEST = st.builds(
    ModelRequest,
    model=TEXT,
    messages=st.lists(MESSAGE, max_size=3).map(tuple),
    tools=strategies.tool_lists.map(
        lambda tools: tuple(tool["schema"] for tool in tools)
    ),
    settings=st.fixed_dictionaries({}, optional=strategies.settings),
    output=st.none() | st.builds(OutputSchema, TEXT, OBJECT),
    tool_choice=st.none() | TEXT,
    component=TEXT,
    path=st.lists(COUNT, max_size=3).map(tuple),
    history=COUNT,
)
FIELDS: dict[str, Any] = {
    **dict.fromkeys(("at", "began", "duration_ms", "wait_ms"), SECONDS),
    "state": st.none()
    | st.builds(StateChange, OBJECT, st.lists(TEXT, max_size=3).map(tuple)),
    "first_token_ms": st.none() | SECONDS,
    **dict.fromkeys(
        ("input", "value", "arguments", "data", "output"), any_json
    ),
    "error": OBJECT,
    "context": st.none() | OBJECT,
    "question": OBJECT,
    **dict.fromkeys(("usage", "failed_usage"), USAGE),
    "request": REQUEST,
    "response": st.builds(
        ModelResponse,
        TEXT,
        TOOL_CALLS,
        USAGE,
        TEXT,
        TEXT,
        TEXT,
        TEXT,
        OBJECT,
        TEXT,
    ),
}
"""Strategies of the fields whose type does not say enough; the others are made from their types."""
EVENT_TYPES: tuple[type[RunEvent], ...] = get_args(get_args(Event)[0])


@pytest.mark.parametrize(
    "event_type", EVENT_TYPES, ids=lambda event_type: event_type.__name__
)
@given(data=st.data())
def test_every_event_survives_json(
    event_type: type[RunEvent], data: st.DataObject
) -> None:
    """An event of any type with any content is the same after a round trip through JSON, and can be printed."""
    names = [
        field.name
        for field in dataclasses.fields(event_type)
        if field.name != "type"
    ]
    event = data.draw(
        st.builds(event_type, **{name: FIELDS.get(name, ...) for name in names})
    )
    copy = adapter().validate_python(json.loads(json.dumps(event.to_dict())))
    assert copy == event
    assert type(copy) is event_type
    Printer(timing=True, file=io.StringIO())(copy)


def look(word: str) -> str:
    """Look a word up."""
    return f"{word}: found"


def component(kind: str, model: Any) -> Any:
    """A component of a kind with tools, plans, branches and loops."""
    writer = Agent(
        "writer", "Write about it.", model, tools=[look], temperature=0.5
    )
    other = Agent("other", "Judge.", model)
    match kind:
        case "agent":
            return writer
        case "pipeline":
            return Pipeline("line", [writer, other, writer])
        case "conductor":
            return Conductor(
                "desk", "Lead.", model, [writer, other], planning=True
            )
        case _:
            loop = LoopStep(
                [AgentStep(other, output="last")],
                {"name": "is_empty", "args": {"value": "{input}"}},
                2,
            )
            each = MapStep(
                "input",
                "line",
                [AgentStep(writer, input="{line}", output="lines")],
                max_concurrency=2,
            )
            return Workflow(
                "flow",
                [
                    ParallelStep([[writer], [other], [loop], [each]]),
                    Pipeline("line", [other]),
                ],
            )


SAVED = json.loads(
    json.dumps(
        component("conductor", EchoModel()).run("moon", trace=True).to_dict()
    )
)


@pytest.mark.parametrize("delay", [-1, math.nan, math.inf, 1e300, "1", [2]])
def test_an_invalid_delay_is_refused(delay: Any) -> None:
    """A replay with a delay that is not a number of seconds emits nothing."""
    with pytest.raises(ConfigurationError):
        ExecutionResult.from_dict(SAVED).replay(
            delay, lambda event: pytest.fail(event.type)
        )


@given(damaged(SAVED))
def test_a_damaged_trace_is_refused_or_usable(data: Any) -> None:
    """A damaged trace is a TraceError, or can be printed, saved and replayed."""
    with contextlib.suppress(TraceError):
        trace = ExecutionResult.from_dict(data)
        trace.replay(subscriber=Printer(timing=True, file=io.StringIO()))
        assert through_json(trace).events == trace.events
        with use_model(ReplayModel(trace)), contextlib.suppress(ModelError):
            component("conductor", EchoModel()).run("moon")


DAMAGES: dict[str, Callable[[Any], object]] = {
    "/format": lambda trace: trace.update(format="podwright.trace/2"),
    "/value": lambda trace: trace.update(value=b"x"),
    "/events/0": lambda trace: trace["events"][0].update(type="run_begun"),
    "/events/1/seq": lambda trace: trace["events"][1].update(seq="first"),
    "/usage/input_tokens": lambda trace: trace.update(
        usage={"input_tokens": "many"}
    ),
}


@pytest.mark.parametrize("pointer", DAMAGES)
def test_an_invalid_trace_is_refused_with_the_place(pointer: str) -> None:
    """A TraceError has the JSON pointer of what is wrong."""
    trace = copy.deepcopy(SAVED)
    DAMAGES[pointer](trace)
    with pytest.raises(TraceError) as caught:
        ExecutionResult.from_dict(trace)
    assert pointer in caught.value.message


def test_a_trace_without_the_start_of_a_call_cannot_be_replayed() -> None:
    """A trace that lacks the start of a model call is a TraceError."""
    trace = ExecutionResult.from_dict(SAVED)
    trace.events = [
        event for event in trace.events if event.type != "model_call_started"
    ]
    with pytest.raises(TraceError):
        ReplayModel(trace)


@pytest.fixture
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The seconds for which a replay pauses, in place of the pauses."""
    seconds: list[float] = []
    monkeypatch.setattr(time, "sleep", seconds.append)
    return seconds


def spread(result: ExecutionResult, seconds: float) -> ExecutionResult:
    """The result with its events this far apart."""
    spaced = [
        dataclasses.replace(event, at=seconds * number)
        for number, event in enumerate(result.events)
    ]
    return dataclasses.replace(result, events=spaced)


@pytest.mark.parametrize(
    ("delay", "pause"),
    [(0.0, None), (0.5, 0.5), (None, 0.25)],
    ids=["none", "given", "the run's"],
)
def test_replay_emits_the_recorded_events(
    make_example: Any,
    pauses: list[float],
    delay: float | None,
    pause: float | None,
) -> None:
    """Replay gives a subscriber the recorded events in order, with a delay between them, or with that of the run."""
    result = through_json(
        spread(make_example("agent").component.run("hello", trace=True), 0.25)
    )
    seen: list[Event] = []
    result.replay(delay, subscriber=seen.append)
    assert seen == result.events
    assert pauses == ([] if pause is None else [pause] * (len(seen) - 1))


def test_replay_prints_the_steps_with_their_times(
    make_example: Any, pauses: list[float], capsys: Any
) -> None:
    """By default replay prints the steps, each with the seconds since the start."""
    result = spread(
        make_example("agent").component.run("hello", trace=True), 0.25
    )
    through_json(result).replay(0.1)
    *lines, answer = capsys.readouterr().out.splitlines()
    assert lines == [
        "   0.000s [solo] started: hello",
        "   0.250s [solo] thinking (offline/example)",
        '   0.750s [solo] calling look({"word": "moon"})',
        "   1.000s [solo] look returned: moon: found",
        "   1.250s [solo] thinking (offline/example)",
    ]
    assert answer.startswith("   1.750s [solo] final answer (")
    assert answer.endswith("): solo answers")


@pytest.mark.parametrize("kind", KINDS)
def test_a_component_replays_against_its_trace(kind: str) -> None:
    """Run against its trace, a component makes the same calls and returns the same value, streamed or not."""
    recorded = component(kind, EchoModel()).run("moon\nsun\nstars", trace=True)
    model = ReplayModel(through_json(recorded))
    assert len(model.left) == recorded.usage.model_calls
    replayed = component(kind, model).run("moon\nsun\nstars", trace=True)
    assert replayed.value == recorded.value
    assert model.left == []
    assert [event.type for event in replayed.events] == [
        event.type for event in recorded.events
    ]
    assert replayed.usage.total_tokens == recorded.usage.total_tokens

    def refuse(_: ModelRequest) -> str:
        raise AssertionError

    own = component(kind, FunctionModel(refuse, name="offline/echo"))
    with use_model(ReplayModel(recorded)):
        assert (
            events(own.stream("moon\nsun\nstars"))[-1].value == recorded.value
        )


def writer(**changes: Any) -> Agent:
    options: dict[str, Any] = {
        "instructions": "Write.",
        "tools": [look],
        "temperature": 0.5,
        **changes,
    }
    return Agent("writer", **options)


CHANGES: dict[str, tuple[dict[str, Any], str, str]] = {
    "instructions": ({"instructions": "Write briefly."}, "moon", "briefly"),
    "input": ({}, "sun", "sun"),
    "tools": ({"tools": []}, "moon", "tools"),
    "setting": ({"temperature": 0.7}, "moon", "temperature"),
    "new setting": ({"seed": 1}, "moon", "seed"),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_changed_component_fails_the_replay(change: str) -> None:
    """A request that differs from the recorded one is a ReplayMismatchError that says where."""
    recorded = writer(model=EchoModel()).run("moon", trace=True)
    changes, prompt, word = CHANGES[change]
    with pytest.raises(
        ReplayMismatchError, match=f"'writer'.*{word}"
    ) as caught:
        writer(model=ReplayModel(recorded), **changes).run(prompt)
    assert caught.value.component == "writer"


@pytest.mark.parametrize("name", ["a", "b"])
def test_a_call_that_was_not_recorded_fails_the_replay(name: str) -> None:
    """A model call that the trace does not have is a ReplayMismatchError that names the component."""
    model = ReplayModel(
        Agent("a", "Help.", EchoModel()).run("moon", trace=True)
    )
    Agent("a", "Help.", model).run("moon")
    with pytest.raises(ReplayMismatchError, match=f"'{name}'"):
        Agent(name, "Help.", model).run("moon")


# --- recordings


@pytest.mark.parametrize("kind", KINDS)
def test_a_recording_is_replayed_from_its_file(
    kind: str, tmp_path: Path
) -> None:
    """What a recording model wrote while it answered is replayed without it, for every kind of component."""
    file = tmp_path / "recording.json"
    recorded = component(kind, RecordingModel(EchoModel(), file)).run(
        "moon\nsun\nstars"
    )
    model = ReplayModel(file)
    assert component(kind, model).run("moon\nsun\nstars") == recorded
    assert model.left == []
    saved = ExecutionResult.from_dict(json.loads(file.read_text()))
    assert saved.usage.total_tokens > 0


SETTINGS = st.fixed_dictionaries(
    {},
    optional={
        "temperature": st.integers(0, 2) | st.floats(0, 2),
        "top_p": st.integers(0, 1) | st.floats(0, 1),
        "max_tokens": st.integers(1, 10**6),
        "seed": st.integers(0, 2**63),
        "stop": st.text(min_size=1) | st.lists(st.text(min_size=1), min_size=1),
        "timeout": st.integers(1, 10**6) | st.floats(1, 10**6),
        "presence_penalty": st.integers(-2, 2) | st.floats(-2, 2),
        "frequency_penalty": st.integers(-2, 2) | st.floats(-2, 2),
        "parallel_tool_calls": st.booleans(),
        "reasoning_effort": st.sampled_from(["none", "low", "high"]),
    },
)


@given(settings=SETTINGS)
def test_any_settings_are_replayed(
    settings: dict[str, Any], tmp_path_factory: pytest.TempPathFactory
) -> None:
    """A run is replayed from memory, a trace and a recording, whether a number was written as 1 or as 1.0."""
    folder = tmp_path_factory.mktemp("recordings")
    recording, trace = folder / "recording.json", folder / "trace.json"
    model = RecordingModel(EchoModel(), recording)
    recorded = Agent("guide", "Help.", model, **settings).run(
        "Hello", trace=True
    )
    trace.write_text(json.dumps(recorded.to_dict()))
    for source in (recorded, trace, recording):
        replay = ReplayModel(source)
        guide = Agent("guide", "Help.", replay, **settings)
        assert guide.run("Hello") == recorded.value
        assert replay.left == []


def test_numbers_and_truth_values_differ() -> None:
    """A recorded 1 is not a true, nor is it the text "1"."""

    def request(value: Any) -> ModelRequest:
        schema = OutputSchema("answer", {"const": value})
        return ModelRequest("offline/echo", (), output=schema)

    assert not differences(request(1), request(1.0))
    assert not differences(request({"a": [0]}), request({"a": [-0.0]}))
    assert differences(request(1), request(True))
    assert differences(request(1), request("1"))
    assert differences(request(2**53), request(2**53 + 1))


def test_a_recording_of_several_runs_and_models(tmp_path: Path) -> None:
    """Runs with a conversation and structured answers are replayed in any order, also from several files."""
    files = [tmp_path / "a.json", tmp_path / "b.json"]

    def answers(*models: Any) -> list[Any]:
        guide = Agent("guide", "Help.", models[0])
        counter = Agent("counter", "Count.", models[-1])
        first = guide.run("Hello", trace=True)
        return [
            counter.run("moons", response_model=int),
            first.value,
            guide.run("And you?", messages=first.messages),
        ]

    recorded = answers(
        RecordingModel(ScriptedModel("Hi.", "Fine."), files[0]),
        RecordingModel(ScriptedModel(5), str(files[1])),
    )
    assert recorded == [5, "Hi.", "Fine."]
    both = ReplayModel(*files)
    assert answers(both) == recorded
    reversed_files = ReplayModel(*reversed(files))
    assert answers(reversed_files) == recorded
    assert reversed_files.left == []


async def test_concurrent_runs_are_matched_by_their_requests(
    tmp_path: Path,
) -> None:
    """Runs of one agent that overlap get their own answers, whichever was recorded first."""
    file = tmp_path / "recording.json"
    for text in ("sun", "moon", "stars"):
        await Agent("guide", "", RecordingModel(EchoModel(), file)).arun(text)
    recording = RecordingModel(EchoModel(), file)
    guide = Agent("guide", "", recording)
    texts = ["sun", "moon", "stars"]
    await asyncio.gather(*map(guide.arun, texts))
    replayed = Agent("guide", "", ReplayModel(file))
    answers = await asyncio.gather(*map(replayed.arun, reversed(texts)))
    assert answers == ["Echo: stars", "Echo: moon", "Echo: sun"]


def test_a_recording_model_is_its_model(tmp_path: Path) -> None:
    """It has the name, time-outs and prices of the model it asks; streams, thoughts and failures pass through it."""
    file = tmp_path / "recording.json"
    inner = ScriptedModel(
        ModelError("busy"), ModelResponse("a b", reasoning="hm"), name="me/it"
    )
    inner.retries = Retries(tries=1)
    model = RecordingModel(inner, file)
    assert (model.name, model.timeouts) == (inner.name, inner.timeouts)
    assert (model.retries, model.cost(Usage())) == (inner.retries, 0.0)
    with pytest.raises(ModelError, match="busy"):
        Agent("guide", "", model).run("x")
    assert not file.exists()
    events = list(Agent("guide", "", model).stream("x"))
    types = [event.type for event in events]
    assert types.count("token") == 2
    assert types.count("reasoning") == 1
    replayed = list(Agent("guide", "", ReplayModel(file)).stream("x"))
    assert [event.type for event in replayed] == types
    assert RecordingModel("offline/echo", file).name == "offline/echo"


@pytest.mark.parametrize("name", ["missing/recording.json", "."])
def test_a_recording_that_cannot_be_written(name: str, tmp_path: Path) -> None:
    """The file is checked before a call is paid."""
    with pytest.raises(ConfigurationError, match="Cannot write"):
        RecordingModel(EchoModel(), tmp_path / name)


async def test_a_recording_has_no_key(
    provider: Upstream, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither the key of a component nor that of the environment gets into a recording."""
    file = tmp_path / "recording.json"
    monkeypatch.setenv("OPENAI_BASE_URL", provider.url)
    monkeypatch.setenv("OPENAI_API_KEY", "sk-canary-environment")
    provider.answers([reply(completion())])
    connection = Connection("sk-canary-argument", provider.url)
    for model in (
        resolve("openai/for-a-recording"),
        resolve("openai/for-a-recording", None, connection),
    ):
        await Agent("guide", "", RecordingModel(model, file)).arun("Hello?")
        assert "Bearer sk-canary" in provider.headers[-1]["authorization"]
        assert "canary" not in file.read_text()
        assert (
            await Agent("guide", "", ReplayModel(file)).arun("Hello?") == "Hi."
        )


@pytest.mark.parametrize(
    "text",
    [None, "", "{", "[]", '{"format": "podwright.trace/2", "events": []}'],
    ids=["missing", "empty", "cut", "array", "newer"],
)
def test_a_file_that_is_no_trace_is_refused(
    text: str | None, tmp_path: Path
) -> None:
    """A file that is missing, not JSON or not a trace is a TraceError that names it."""
    file = tmp_path / "trace.json"
    if text is not None:
        file.write_text(text)
    with pytest.raises(TraceError, match=file.name) as caught:
        ReplayModel(file)
    is_missing = "nothing has been recorded" in str(caught.value)
    assert is_missing == (text is None)


def test_a_recorded_failure_fails_again(recorder: Any) -> None:
    """A model call that failed when it was recorded fails again, at the same place."""

    def flow(model: Any, **options: Any) -> Workflow:
        return Workflow(
            "flow",
            [Agent("first", "Help.", model), Agent("second", "Help.", model)],
            **options,
        )

    with pytest.raises(PodwrightError) as recorded:
        flow(
            ScriptedModel("one", ValueError("no luck")),
            event_manager=recorder.manager,
        ).run("?")
    model = ReplayModel(ExecutionResult(None, recorder.events, 0, Usage()))
    with pytest.raises(ModelError, match="ValueError") as replayed:
        flow(model).run("?")
    assert model.left == []
    for name in ("component", "resume_path", "context"):
        assert getattr(replayed.value, name) == getattr(recorded.value, name)
