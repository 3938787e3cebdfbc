"""What templates read of their run: `{run.date}` and the like, the same in each attempt and in all that is nested."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.library.shapes import Json, problems_of, says

from podwright import (
    Agent,
    AgentStep,
    ApprovalRequired,
    ApprovalStep,
    ConditionStep,
    Conductor,
    FunctionModel,
    FunctionStep,
    Pipeline,
    RunContext,
    Workflow,
    run_attributes,
    tool,
)
from podwright.errors import ContextError, InputError
from podwright.events import Event, RunStarted, adapter
from podwright.functions import run_start
from podwright.journal.journal import Journal
from podwright.journal.kept import KEPT
from podwright.run.result import ExecutionResult
from podwright.run.run import execute
from podwright.testing import (
    ModelRequest,
    RecordingModel,
    ReplayModel,
    ToolCall,
)
from podwright.workflows.template_names import check_names

FIRST = 1_790_000_000.5
"""2026-09-21, 14:13:20 in UTC, and a half."""
LATER = FIRST + 86_400
ALL = "{run.date} {run.time} {run.user}/{run.session}/{run.metadata.tenant}"
SAID: dict[str, Any] = {
    "user": "ann",
    "session": "s1",
    "metadata": {"tenant": "acme"},
}
FILLED = "2026-09-21 14:13:20Z ann/s1/acme"
Clock = Callable[[float], None]


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """Sets the time at which runs begin."""

    def set_time(now: float) -> None:
        monkeypatch.setattr(run_start, "time", lambda: now)

    set_time(FIRST)
    return set_time


async def repeat(request: ModelRequest) -> str:
    """Answer with the instructions."""
    return request.messages[0].text


ECHO = FunctionModel(repeat)


def keep(text: str) -> str:
    return text


def flow_of(*steps: Any, **options: Any) -> Workflow:
    return Workflow("flow", list(steps), **options)


KEEP_ALL = FunctionStep(keep, {"text": ALL}, output="kept")


def started(events: list[Event]) -> RunStarted:
    (event,) = [
        event
        for event in events
        if isinstance(event, RunStarted) and event.parent_id is None
    ]
    return event


@pytest.mark.usefixtures("clock")
def test_instructions_and_steps_read_them() -> None:
    """Of an agent, of the members of a team, of functions, conditions and questions: all within one run."""
    echo = Agent("echo", ALL, ECHO)
    with run_attributes(**SAID):
        assert echo.run("x") == FILLED
        assert Pipeline("line", steps=[echo]).run("x") == FILLED
        assert flow_of(echo).run("x")["echo_output"] == FILLED
        assert flow_of(KEEP_ALL).run("x")["kept"] == FILLED
        step = AgentStep(Agent("say", "{input}", ECHO), input=ALL)
        assert flow_of(step).run("x")["say_output"] == FILLED
        is_first = {"name": "equals", "args": {"value": ALL, "to": FILLED}}
        checked = flow_of(ConditionStep(is_first, [KEEP_ALL]))
        assert checked.run("x")["kept"] == FILLED
        with pytest.raises(ApprovalRequired, match=FILLED):
            flow_of(ApprovalStep(ALL, "ask")).run("x")


@pytest.mark.usefixtures("clock")
def test_a_conductor_and_its_skills_read_them() -> None:
    """The instructions of a skill are its purpose, too."""

    async def lead(request: ModelRequest) -> Any:
        if request.messages[-1].role == "tool":
            return request.messages[0].text + request.messages[-1].text
        return [ToolCall.of("echo", task="x")]

    boss = Conductor(
        "boss", ALL, FunctionModel(lead), [Agent("echo", ALL, ECHO)]
    )
    with run_attributes(**SAID):
        assert boss.run("x").count(FILLED) == 2


@pytest.mark.usefixtures("clock")
def test_a_nested_run_reads_what_is_said_of_it() -> None:
    """A tool may say more of the runs in it; when all began is one time."""
    told: list[str] = []

    async def ask(clock: str) -> str:
        with run_attributes(user="bob"):
            told.append(await Agent("inner", ALL, ECHO).arun("x"))
        return "asked"

    async def call(request: ModelRequest) -> Any:
        if request.messages[-1].role == "tool":
            return "done"
        return [ToolCall.of("ask", clock="x")]

    with run_attributes(**SAID):
        Agent("outer", "Ask.", FunctionModel(call), tools=[ask]).run("x")
    assert told == [FILLED.replace("ann", "bob")]


def test_what_nobody_says() -> None:
    """User and session are empty texts; metadata that is not there is an error before the model call."""
    agent = Agent("a", "<{run.user}{run.session}>", ECHO)
    assert agent.run("x") == "<>"
    agent = Agent("a", "For {run.metadata.tenant}.", says("never"))
    with pytest.raises(ContextError, match="has no field 'tenant'"):
        agent.run("x")


def test_metadata_of_any_name() -> None:
    """Is in brackets; all of it is JSON, and a step may pass it on as data."""
    step = FunctionStep(
        keep_data,
        {"data": "{run.metadata}", "text": '{run.metadata["a b"]}'},
        output="kept",
    )
    with run_attributes(metadata={"a b": "c"}):
        result = flow_of(step).run("x", trace=True)
    assert result.data["kept"] == [{"a b": "c"}, "c"]


def keep_data(data: dict[str, str], text: str) -> list[Any]:
    return [data, text]


def test_a_value_of_that_name_does_not_stand_for_the_run() -> None:
    """Its own fields are in brackets; a blueprint that has such a value says which of the two it means."""
    given = {"input": "x", "run": {"user": "root", "id": "7"}}
    agent = Agent("a", '{run.user} {["run"].user} {run.id}', ECHO)
    with run_attributes(user="ann"):
        assert agent.run(given) == "ann root 7"
    inputs = {"run": {"type": "object"}}
    (problem,) = problems_of(
        lambda: Agent("a", "{run.date}", ECHO, inputs=inputs)
    )
    assert "of the run itself" in problem.detail
    assert '{["run"].date}' in problem.suggestion
    declared = Agent("a", '{["run"].date}', ECHO, inputs=inputs)
    assert declared.run({"run": {"date": "mine"}}) == "mine"
    make = FunctionStep(make_run, output="run")
    early = FunctionStep(keep, {"text": "{run.date}"}, output="kept")
    for steps in ((make, early), (early, make)):
        (problem,) = problems_of(functools.partial(flow_of, *steps))
        assert "of the run itself" in problem.detail
    own = FunctionStep(keep, {"text": '{["run"].date}'}, output="kept")
    assert flow_of(make, own).run("x")["kept"] == "mine"


def make_run() -> Json:
    return {"date": "mine"}


def test_only_fields_are_of_the_run() -> None:
    """`{run}` alone, or another field, needs an input of that name."""
    for text in ("{run}", "{run.id}"):
        with pytest.raises(ContextError, match="not in the context"):
            Agent("a", text, says("never")).run("x")
    assert Agent("a", "${run.date} {{run.date}}", ECHO).run("x") == (
        "${run.date} {run.date}"
    )


INPUTS: Json = {"q": {"type": "string"}}


@pytest.mark.parametrize(
    ("template", "inputs", "problem"),
    [
        (ALL, INPUTS, ""),
        ("{run.date}", {}, ""),
        ("{run.id}", {}, ""),
        ("{run.dat}", INPUTS, "Did you mean 'date'"),
        ("{run}", INPUTS, "no declared input"),
        ("{run.date.year}", INPUTS, "is a string"),
        ("{run.date}", {"run": {"type": "string"}}, "of the run itself"),
        ('{["run"].date}', {"run": {"type": "object"}}, ""),
    ],
)
def test_what_a_blueprint_shows(
    template: str, inputs: Json, problem: str
) -> None:
    """With declared inputs, another field is a problem of the blueprint; so is one that an input of that name lacks."""
    blueprint: Json = {
        "name": "a",
        "instructions": template,
        "inputs": inputs,
        "config": {"model": "offline/echo"},
    }
    found = check_names(blueprint).problems
    assert bool(found) == bool(problem)
    assert problem in " ".join(map(str, found))


def test_the_start_is_recorded(clock: Clock) -> None:
    """The event of the outermost run has it; what nobody says is left out, and so is all of it for nested runs."""
    flow = flow_of(Agent("echo", "x", ECHO))
    with run_attributes(**SAID):
        trace = flow.run("x", trace=True)
    outer, inner = [
        event.to_dict() for event in trace.events if event.type == "run_started"
    ]
    assert {name: outer[name] for name in ("began", *SAID)} == {
        "began": FIRST,
        **SAID,
    }
    assert not {"began", *SAID} & inner.keys()
    clock(LATER)
    (event,) = [
        event.to_dict()
        for event in Agent("echo", "x", ECHO).run("x", trace=True).events
        if event.type == "run_started"
    ]
    assert event["began"] == LATER
    assert not SAID.keys() & event.keys()


async def test_each_attempt_reads_the_same(clock: Clock) -> None:
    """After a stop at any event, a new attempt at another time, by another caller, fills in what the first one did."""
    flow = flow_of(
        Agent("echo", ALL, ECHO), KEEP_ALL, Agent("again", ALL, ECHO)
    )
    new: list[Event] = []
    with run_attributes(**SAID):
        await execute(
            flow, flow.task("x"), subscribers=(new.append,), run_id="0" * 32
        )
    clock(LATER)
    for number in range(1, len(new)):
        recorded = [
            adapter().validate_python(event.to_dict()) for event in new[:number]
        ]
        with run_attributes(user="bob"):
            result = await execute(
                flow,
                flow.task("x"),
                run_id="0" * 32,
                journal=Journal(recorded, attempt=2),
            )
        assert set(result.value.values()) == {"x", FILLED}


async def test_events_of_older_releases_have_a_start(clock: Clock) -> None:
    """The time of the first one; who calls is who says so in the new attempt."""
    event = RunStarted(at=FIRST, run_id="0" * 32, component="echo")
    clock(LATER)
    echo = Agent("echo", ALL, ECHO)
    with run_attributes(**SAID):
        result = await execute(
            echo,
            echo.task("x"),
            run_id="0" * 32,
            journal=Journal([event], attempt=2),
        )
    assert result.value == FILLED


def tell(context: RunContext) -> str:
    return context.user


@pytest.mark.parametrize("approver", ["", "bob"])
def test_a_workflow_that_goes_on_reads_the_same(
    clock: Clock, approver: str
) -> None:
    """Its context keeps it as JSON, whoever lets it go on; its functions are told of the same caller."""
    flow = flow_of(
        ApprovalStep("Go on?", "ask"),
        KEEP_ALL,
        FunctionStep(tell, output="user"),
    )
    with run_attributes(**SAID), pytest.raises(ApprovalRequired) as pause:
        flow.run("x")
    clock(LATER)
    context = json.loads(json.dumps(pause.value.context))
    with run_attributes(user=approver):
        result = flow.run(context, resume_path=pause.value.resume_path)
    assert (result["kept"], result["user"]) == (FILLED, "ann")


@tool(approval=True)
def pay(amount: int) -> str:
    """Pay."""
    return f"paid {amount}"


async def clerk_model(request: ModelRequest) -> Any:
    if request.messages[-1].role == "tool":
        return request.messages[0].text
    return [ToolCall.of("pay", amount=5)]


def test_a_chat_that_goes_on_reads_the_same(clock: Clock) -> None:
    """A run that waits inside a tool call is replayed with its start; after a checkpoint, that is the first one."""
    clerk = Agent("clerk", ALL, FunctionModel(clerk_model), tools=[pay])
    with run_attributes(**SAID), pytest.raises(ApprovalRequired) as pause:
        clerk.run("x")
    clock(LATER)
    assert clerk.run(pause.value.context or {}) == FILLED
    clock(FIRST)
    flow = flow_of(ApprovalStep("Go on?", "ask"), AgentStep(clerk))
    with run_attributes(**SAID), pytest.raises(ApprovalRequired) as pause:
        flow.run("x")
    clock(LATER)
    first = pause.value
    with pytest.raises(ApprovalRequired) as pause:
        flow.run(first.context, resume_path=first.resume_path)
    clock(LATER + 1)
    context = json.loads(json.dumps(pause.value.context))
    result = flow.run(context, resume_path=pause.value.resume_path)
    assert result["clerk_output"] == FILLED


@pytest.mark.parametrize(
    "wrong",
    [None, {}, {"start": {"began": "x"}, "state": {}}, {"start": {"began": 0}},
     {"start": {"began": 1e99}, "state": {}}, {"start": {"began": 0, "metadata": {"a": 1}}, "state": {}}],
)  # fmt: skip
def test_what_is_kept_may_not_be_anything(wrong: Any) -> None:
    """A context that was changed there is refused."""
    with pytest.raises(InputError, match=KEPT):
        flow_of(KEEP_ALL).run({"input": "x", KEPT: wrong})


def test_a_replay_reads_what_the_recorded_run_read(
    clock: Clock, tmp_path: Path
) -> None:
    """Traces, and recordings of a model: each run of a replay begins when the next recorded one did."""
    file = tmp_path / "recording.json"
    recorder = RecordingModel(ECHO, file)
    traces: list[ExecutionResult] = []
    for moment in (FIRST, LATER):
        clock(moment)
        with run_attributes(**SAID):
            flow = flow_of(KEEP_ALL, Agent("echo", ALL, recorder))
            traces.append(flow.run("x", trace=True))
    clock(LATER + 1e6)
    for replay in (ReplayModel(*traces), ReplayModel(file)):
        flow = flow_of(KEEP_ALL, Agent("echo", ALL, replay))
        for trace in traces:
            again = flow.run("x", trace=True)
            assert again.value == trace.value
            assert started(again.events).began == started(trace.events).began
        assert not replay.left


def test_a_replay_is_for_whom_its_caller_says(clock: Clock) -> None:
    """If that is said; the time is the recorded one."""
    echo = Agent("echo", "{run.date}", ECHO)
    with run_attributes(**SAID):
        trace = echo.run("x", trace=True)
    clock(LATER)
    flow = Agent("echo", "{run.date}", ReplayModel(trace))
    with run_attributes(user="bob"):
        again = flow.run("x", trace=True)
    assert again.value == "2026-09-21"
    assert started(again.events).user == "bob"


def test_a_misspelt_value_of_the_run() -> None:
    """The error of a run names the value that is meant, also of a component that declares no inputs."""
    agent = Agent("a", "You help {run.usr}.", ECHO)
    with pytest.raises(ContextError) as caught:
        agent.run("hello")
    assert "'run.user'" in caught.value.suggestion
