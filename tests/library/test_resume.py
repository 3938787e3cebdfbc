"""Stopped anywhere, a workflow resumes to the same end, and repeats no finished agent call."""

import asyncio
import contextlib
import copy
import json
import zlib
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from tests.library.strategies import changed, places

from podwright import (
    Agent,
    AgentStep,
    ApprovalRequired,
    ApprovalStep,
    ConditionStep,
    EventManager,
    FunctionModel,
    LoopStep,
    MapStep,
    ParallelStep,
    PodwrightError,
    RunCancelledError,
    Workflow,
    WorkflowStep,
)
from podwright.errors import ConditionError, ContextError, ModelError, ResumePathError
from podwright.testing import ModelRequest


class Stopper(FunctionModel):
    """Answers every agent, each in its own way; fails or blocks at chosen calls, counted over all runs."""

    def __init__(self, stops: Mapping[int, str] | None = None) -> None:
        super().__init__(self.answer, name="offline/stopper")
        self.stops = dict(stops or {})
        self.calls = 0
        self.finished: Counter[tuple[str, tuple[int, ...], str]] = Counter()
        self.task: asyncio.Task[Any] | None = None

    async def answer(self, request: ModelRequest) -> str:
        number, self.calls = self.calls, self.calls + 1
        asked = request.messages[-1].content
        await asyncio.sleep(0)  # so that parallel calls are under way together
        match self.stops.get(number):
            case "fail":
                raise OSError("stopped")
            case "cancel":
                assert self.task is not None
                self.task.cancel()
                await asyncio.Event().wait()
            case _:
                pass
        self.finished[request.component, request.path, asked] += 1
        if request.component == "draft":
            before = asked.partition("## draft_output\n")[2].partition("\n")[0]
            return before + "d"
        return f"{request.component}-{zlib.crc32(asked.encode()):08x}"

    @property
    def names(self) -> list[str]:
        return [component for component, _, _ in self.finished]


ITEMS = '["x", "y", "z"]'


def everything(model: FunctionModel, **options: Any) -> Workflow:
    """A workflow with every kind of step, nested in one another, and approvals in most places."""

    def agent(name: str, **keys: str) -> AgentStep:
        return AgentStep(Agent(name, "Work.", model), **keys)

    nested = Workflow("nested", [agent("n1"), ParallelStep([[agent("n2")], [agent("n3"), agent("n4")]])])
    team = Workflow(
        "team",
        [
            agent("t1"),
            ApprovalStep("team?"),
            ParallelStep([[agent("t2")], [ApprovalStep("team member?"), agent("t3", input="{t1_output}")]]),
            agent("t4"),
        ],
    )
    left = [agent("left"), ApprovalStep("left?"), agent("left2", input="{left_output} of {start_output}")]
    right = [
        agent("right"),
        ApprovalStep("right?"),
        LoopStep(
            [agent("again", output="right_output")],
            until={"name": "is_empty", "args": {"value": "{input}"}},
            max_iterations=2,
        ),
    ]
    third = [MapStep("items", "one", [agent("each", input="{one}: {start_output}")], max_concurrency=2)]
    return Workflow(
        "everything",
        [
            agent("start"),
            ParallelStep([left, right, third]),
            LoopStep(
                [agent("draft"), ApprovalStep("good, {draft_output}?"), agent("polish", input="{draft_output}")],
                until={"name": "equals", "args": {"value": "{draft_output}", "to": "ddd"}},
            ),
            MapStep("items", "item", [agent("research", input="{item}"), ApprovalStep("{item}?"), agent("note")]),
            ConditionStep(
                {"name": "contains", "args": {"value": "{draft_output}", "text": "d"}},
                [agent("yes"), WorkflowStep(nested), agent("after")],
                [agent("no")],
            ),
            AgentStep(team, "team"),
            agent("end"),
        ],
        **options,
    )


@dataclass
class Story:
    """How a workflow came to its end, over all its stops."""

    context: dict[str, Any] = field(default_factory=dict)
    errors: list[PodwrightError] = field(default_factory=list)

    @property
    def approvals(self) -> list[str]:
        return [error.message for error in self.errors if isinstance(error, ApprovalRequired)]


def cause_of(stop: asyncio.CancelledError) -> RunCancelledError:
    assert isinstance(stop.__cause__, RunCancelledError)
    return stop.__cause__


async def tell(flow: Workflow, model: Stopper, context: Any, path: list[int] | None = None) -> Story:
    """Run a workflow to its end: after each stop go on from the error, saved as JSON and read again."""
    story = Story()
    for _ in range(100):
        model.task = asyncio.create_task(flow.arun(context, resume_path=path))
        try:
            story.context = await model.task
            return story
        except PodwrightError as error:
            story.errors.append(error)
        except asyncio.CancelledError as error:
            story.errors.append(cause_of(error))
        context, path = json.loads(json.dumps([story.errors[-1].context, story.errors[-1].resume_path]))
    raise AssertionError("it does not come to its end")


INPUT = {"input": "the moon", "items": ITEMS}


def never_stopped() -> tuple[Story, Stopper]:
    model = Stopper()
    return asyncio.run(tell(everything(model), model, INPUT)), model


WHOLE, CALLED = never_stopped()


def assert_same(story: Story, model: Stopper) -> None:
    assert list(story.context.items()) == list(WHOLE.context.items())
    assert model.finished == CALLED.finished
    assert set(model.finished.values()) == {1}


def test_the_story_without_stops() -> None:
    """Every approval pauses once, each agent is called where it should be, and all is in the context."""
    assert WHOLE.approvals == [
        "left?", "right?", "good, d?", "good, dd?", "good, ddd?", "x?", "y?", "z?", "team?", "team member?",
    ]  # fmt: skip
    assert [error.resume_path for error in WHOLE.errors] == [
        [1, 0, 1], [1, 1, 1], [2, 0, 1], [2, 1, 1], [2, 2, 1], [3, 0, 1], [3, 1, 1], [3, 2, 1], [5, 1], [5, 2, 1, 0],
    ]  # fmt: skip
    assert Counter(CALLED.names) == Counter(
        "start left left2 right again again each each each draft draft draft polish polish polish "
        "research research research note note note yes n1 n2 n3 n4 after t1 t2 t3 t4 end".split()
    )
    assert list(WHOLE.context) == [
        "input", "items", "start_output", "left_output", "left2_output", "right_output", "each_output",
        "draft_output", "polish_output", "research_output", "note_output", "yes_output", "n1_output", "n2_output",
        "n3_output", "n4_output", "after_output", "team_output", "end_output",
    ]  # fmt: skip
    assert WHOLE.context["draft_output"] == "ddd"
    assert all(isinstance(value, str) for value in WHOLE.context.values())


@pytest.mark.parametrize("how", ["fail", "cancel"])
@pytest.mark.parametrize("number", range(CALLED.calls))
def test_a_stop_at_every_agent_call(number: int, how: str) -> None:
    """Stopped at any agent call, by a failure or a cancellation, it resumes to the same context."""
    model = Stopper({number: how})
    story = asyncio.run(tell(everything(model), model, INPUT))
    assert_same(story, model)
    stops = [error for error in story.errors if not isinstance(error, ApprovalRequired)]
    assert [type(error) for error in stops] == [ModelError if how == "fail" else RunCancelledError]
    assert stops[0].resume_path
    assert stops[0].context is not None


@pytest.mark.parametrize("how", ["fail", "cancel"])
def test_every_call_stops_once(how: str) -> None:
    """Stopped at every second model call, over and over, it still comes to the same end."""
    model = Stopper(dict.fromkeys(range(0, 120, 2), how))
    story = asyncio.run(tell(everything(model), model, INPUT))
    assert_same(story, model)
    assert len(story.errors) > 30


@given(st.dictionaries(st.integers(0, CALLED.calls + 10), st.sampled_from(["fail", "cancel"]), max_size=8))
def test_several_stops(stops: dict[int, str]) -> None:
    """Any mix of failures and cancellations leads to the same end."""
    model = Stopper(stops)
    assert_same(asyncio.run(tell(everything(model), model, INPUT)), model)


def test_another_process_goes_on() -> None:
    """A workflow rebuilt from its blueprint goes on from the error of another instance."""
    model = Stopper({20: "fail"})
    stopped = everything(model)
    with pytest.raises(ApprovalRequired) as caught:
        stopped.run(INPUT)
    other = Workflow.from_blueprint(json.loads(json.dumps(stopped.to_blueprint())), stopped.members())
    context, path = json.loads(json.dumps([caught.value.context, caught.value.resume_path]))
    assert_same(asyncio.run(tell(other, model, context, path)), model)


def test_the_stop_is_in_the_events() -> None:
    """The events that end a stopped run carry what is needed to go on, and read from JSON go on the same."""
    events: list[Any] = []
    manager = EventManager()
    manager.subscribe(events.append, "run_failed", "run_paused", "run_cancelled")
    model = Stopper({25: "fail", 30: "cancel"})
    flow = everything(model, event_manager=manager)
    story = asyncio.run(tell(flow, model, INPUT))
    ends = [json.loads(json.dumps(event.to_dict())) for event in events if event.component == "everything"]
    assert len(ends) == len(story.errors)
    for end, error in zip(ends, story.errors, strict=True):
        facts = end["error"] if end["type"] == "run_failed" else end
        assert (facts["context"], facts["resume_path"]) == (error.context, error.resume_path)


def test_a_stopped_error_is_not_changed_by_resuming() -> None:
    """Resuming does not change the error: one may go on from it again."""
    model = Stopper({25: "fail"})
    flow = everything(model)
    story = asyncio.run(tell(flow, model, INPUT))
    assert story.errors
    for error in story.errors:
        before = copy.deepcopy(error.context)
        with_path = asyncio.run(tell(flow, Stopper(), error.context, error.resume_path))
        assert with_path.context == WHOLE.context
        assert error.context == before


# --- approvals -----------------------------------------------------------------------------------------


def test_an_approval_needs_its_path() -> None:
    """Without its path an approval is not given: the workflow pauses there again."""
    model = Stopper()
    flow = Workflow("flow", [Agent("a", "Work.", model), ApprovalStep("{a_output}?"), Agent("b", "Work.", model)])
    with pytest.raises(ApprovalRequired) as first:
        flow.run("x")
    assert first.value.context is not None
    with pytest.raises(ApprovalRequired) as second:
        flow.run(first.value.context, start_step=1)
    assert (first.value.resume_path, second.value.resume_path) == ([1], [1])
    assert first.value.message == f"{first.value.context['a_output']}?"
    assert set(flow.run(second.value.context, resume_path=[1])) == {"input", "a_output", "b_output"}
    assert model.names == ["a", "b"]


def test_a_pause_lets_the_other_branches_go_on() -> None:
    """A branch that waits for a person does not hold up the others; a failure does, and comes first."""
    model = Stopper()

    def flow(stopped: Stopper) -> Workflow:
        long = [Agent(name, "Work.", stopped) for name in ("one", "two", "three")]
        return Workflow("flow", [ParallelStep([[ApprovalStep("go on?")], long])])

    with pytest.raises(ApprovalRequired) as caught:
        flow(model).run("x")
    assert model.names == ["one", "two", "three"]
    assert flow(model).run(caught.value.context, resume_path=caught.value.resume_path)["three_output"]
    assert model.names == ["one", "two", "three"]

    failing = Stopper({1: "fail"})
    with pytest.raises(ModelError) as failed:
        flow(failing).run("x")
    assert failed.value.resume_path == [0, 1, 1]


def test_an_approval_in_a_loop_is_asked_each_round() -> None:
    """An approval holds for its own round of a loop only."""
    model = Stopper()
    flow = Workflow(
        "flow",
        [
            LoopStep(
                [ApprovalStep("again?"), Agent("a", "Work.", model)],
                until={"name": "is_empty", "args": {"value": "x"}},
                max_iterations=3,
            )
        ],
    )
    story = asyncio.run(tell(flow, model, "x"))
    assert [error.resume_path for error in story.errors] == [[0, 0, 0], [0, 1, 0], [0, 2, 0]]
    assert len(model.names) == 3


def test_a_paused_run_is_no_failure(heard: Any) -> None:
    """A run that waits for a person ends with `run_paused`, with the message, and the step is paused."""
    flow = Workflow("flow", [ApprovalStep("really?", name="ask")], event_manager=heard.manager)
    with pytest.raises(ApprovalRequired) as caught:
        flow.run("x")
    assert heard.types() == ["run_started", "step_started", "step_finished", "run_paused"]
    assert heard.events[2].outcome == "paused"
    paused = heard.events[3]
    assert (paused.message, paused.resume_path) == ("really?", (0,))
    assert paused.context == caught.value.context


def test_a_condition_that_raises_is_asked_again() -> None:
    """A condition that failed is asked again on resumption; one that was answered is not."""
    asked: list[str] = []

    def moody(context: Mapping[str, Any]) -> bool:
        asked.append("moody")
        if len(asked) == 1:
            raise ValueError("not now")
        return True

    def done(context: Mapping[str, Any]) -> bool:
        asked.append("done")
        if asked.count("done") == 1:
            raise ValueError("not now")
        return True

    model = Stopper({0: "fail"})
    flow = Workflow(
        "flow",
        [ConditionStep(moody, [LoopStep([Agent("a", "Work.", model)], done)])],
    )
    story = asyncio.run(tell(flow, model, "x"))
    assert [type(error) for error in story.errors] == [ConditionError, ModelError, ConditionError]
    assert [error.resume_path for error in story.errors] == [[0], [0, 0, 0, 0, 0], [0, 0, 0, 0, 1]]
    assert asked == ["moody", "moody", "done", "done"]
    assert model.names == ["a"]


def test_a_stop_after_the_last_step_of_a_branch() -> None:
    """A branch that is finished stays finished when its sibling is stopped, whichever stands first."""
    for order in (("quick", "slow"), ("slow", "quick")):
        model = Stopper({2: "fail"})
        agents = {"quick": [Agent("quick", "", model)], "slow": [Agent("slow", "", model), Agent("slower", "", model)]}
        flow = Workflow("flow", [ParallelStep([agents[name] for name in order])])
        story = asyncio.run(tell(flow, model, "x"))
        assert sorted(model.names) == ["quick", "slow", "slower"]
        assert story.errors[0].resume_path == [0, order.index("slow"), 1]


# --- start steps and paths by hand ---------------------------------------------------------------------


def context_with(*names: str) -> dict[str, Any]:
    return {**INPUT, **{f"{name}_output": WHOLE.context[f"{name}_output"] for name in names}}


def test_start_step() -> None:
    """`start_step` begins at that step, with what the context holds."""
    model = Stopper()
    result = everything(model).run("the moon", start_step=6)
    assert model.names == ["end"]
    assert list(result) == ["input", "end_output"]
    resumed = everything(model).run(WHOLE.context, start_step=6)
    assert resumed.keys() == WHOLE.context.keys()


BY_HAND = {
    (6,): ["end"],
    (4, 0, 2): ["after", "t1"],
    (4, 0, 1, 0): ["n1", "n2", "n3", "n4", "after", "t1"],
    (4, 0, 1, 1, 1, 1): ["n2", "n4", "after", "t1"],
    (4, 0, 1, 2): ["after", "t1"],
    (4, 1, 0): ["no", "t1"],
    (2, 2, 2): ["polish", "research", "research", "research"],
    (2, 1, 0): ["draft"],
    (5, 3): ["t4", "end"],
    (5, 1): ["t2"],
    (5, 2, 1, 0): ["t2", "t3", "t4", "end"],
    (3, 1, 1): ["research", "note", "research"],
}


@pytest.mark.parametrize("path", BY_HAND)
def test_a_path_by_hand(path: tuple[int, ...]) -> None:
    """A path without saved progress starts there; steps beside it in parallel start anew."""
    model = Stopper()
    flow = everything(model)
    context = context_with("start", "draft", "research")
    if path[0] == 5:
        context["t1_output"] = "by hand"
    with contextlib.suppress(ApprovalRequired):
        flow.run(context, resume_path=path)
    assert sorted(model.names) == sorted(BY_HAND[path])


def test_a_path_that_differs_from_the_saved_one_wins() -> None:
    """Saved progress counts only for the path that it was saved with."""
    model = Stopper({1: "fail"})
    flow = Workflow("flow", [Agent(name, "Work.", model) for name in "abc"])
    with pytest.raises(ModelError) as caught:
        flow.run("x")
    assert caught.value.resume_path == [1]
    flow.run(caught.value.context, resume_path=[2])
    flow.run(caught.value.context, start_step=1, resume_path=[1])
    assert model.names == ["a", "c", "b", "c"]


WRONG_STARTS = [-1, 7, 99, True, "0", 1.0, None, [0]]


@pytest.mark.parametrize("start_step", WRONG_STARTS, ids=repr)
def test_a_wrong_start_step(start_step: Any) -> None:
    """A start step that is none is one ResumePathError, before any model call."""
    model = Stopper()
    with pytest.raises(ResumePathError) as caught:
        everything(model).run(INPUT, start_step=start_step)
    assert model.calls == 0
    assert caught.value.suggestion


WRONG_PATHS: list[Any] = [
    [], "0", b"\x00", 0, {}, {"0": 0}, [0.0], [True], [None], ["0"], [[0]], [-1], [0, -1], [7], [99], [0, 0],
    [1, 3, 0], [1, 0, 4], [1, 0, 1, 0], [2, 10, 0], [2, 0, 4], [3, 0, 4], [4, 2, 0], [4, 0, 4], [4, 0, 1, 3],
    [4, 0, 1, 1, 2, 0], [4, 1, 2], [5, 5], [5, 2, 2], [5, 0, 0], [6, 0], [7, 0], [10**30], [3, 99, 0], [3, 10**30],
]  # fmt: skip


@pytest.mark.parametrize("path", WRONG_PATHS, ids=repr)
def test_a_wrong_path(path: Any) -> None:
    """A resume path that leads to no step is one ResumePathError, before any model call."""
    model = Stopper()
    with pytest.raises(ResumePathError):
        everything(model).run(context_with("start", "draft"), resume_path=path)
    assert model.calls == 0


def test_a_start_step_and_a_path_that_disagree() -> None:
    """A start step other than the path's is a ResumePathError."""
    with pytest.raises(ResumePathError, match="different"):
        everything(Stopper()).run(INPUT, start_step=2, resume_path=[1, 0, 0])


HUGE = 10**5000
"""Python does not write it out."""


UNWRITABLE: dict[str, dict[str, Any]] = {
    "start": {"start_step": HUGE},
    "negative start": {"start_step": -HUGE},
    "start in a list": {"start_step": [HUGE]},
    "no path": {"resume_path": HUGE},
    "path": {"resume_path": [HUGE]},
    "negative path": {"resume_path": [3, -HUGE]},
    "start beside a path": {"resume_path": [1], "start_step": HUGE},
}


@pytest.mark.parametrize("place", UNWRITABLE)
def test_an_index_that_python_does_not_write_out(place: str) -> None:
    """An index of thousands of digits is one ResumePathError too."""
    with pytest.raises(ResumePathError):
        everything(Stopper()).run(**{"context": INPUT, **UNWRITABLE[place]})


DAMAGED: list[Any] = [
    5, "x", [], [1], True, {"step": "0"}, {"step": -1}, {"step": 99}, {"step": True}, {"step": 0.0}, {"steps": 0},
    {"step": 0, "more": 1}, {"step": 0, "in": 5}, {"step": 0, "in": {"at": 0}}, {"step": 7, "in": {"at": 0}},
    {"step": 0, "in": {"context": {"input": "x"}, "in": {}}},
    {"step": 1, "in": {"at": 0}}, {"step": 1, "in": {"at": 0, "parts": []}}, {"step": 1, "in": {"at": 3, "parts": {}}},
    {"step": 1, "in": {"at": 0, "parts": {"9": {}}}}, {"step": 1, "in": {"at": 0, "parts": {"x": {}}}},
    {"step": 1, "in": {"at": 0, "parts": {"9" * 5000: {}}}}, {"step": 1, "in": {"at": 0, "parts": {"0": 5}}},
    {"step": 1, "in": {"at": 0, "parts": {"0": {"set": 5}}}}, {"step": 1, "in": {"at": 0, "parts": {"0": {"in": 5}}}},
    {"step": 1, "in": {"at": "0", "parts": {}}}, {"step": 1, "in": {"parts": {}}},
    {"step": 2, "in": {"at": 1.0}}, {"step": 2, "in": {"at": 10}}, {"step": 2, "in": {"at": 0, "parts": 5}},
    {"step": 2, "in": {"in": {}}}, {"step": 2, "in": {"at": 0, "in": {"step": 4}}},
    {"step": 3, "in": {"at": -1, "parts": {}}}, {"step": 3, "in": {"at": 0, "parts": {"-1": {}}}},
    {"step": 3, "in": {"at": 0, "parts": {"0": {"in": {"step": 9}}}}},
    {"step": 4, "in": {"at": 2}}, {"step": 4, "in": {"at": 0.0}}, {"step": 4, "in": {"at": True}},
    {"step": 4, "in": {"at": 1, "in": {"step": 3}}}, {"step": 4, "in": {"at": 0, "in": {"step": 1, "in": {"in": 5}}}},
    {"step": 5, "in": {"context": 5}}, {"step": 5, "in": {"context": {}}}, {"step": 5, "in": {"in": {}}},
    {"step": 5, "in": {"context": {"input": "x"}, "in": 5}},
    {"step": 5, "in": {"context": {"input": "x"}, "in": {"step": "x"}}},
]  # fmt: skip


@pytest.mark.parametrize("saved", DAMAGED, ids=lambda saved: json.dumps(saved)[:60])
def test_damaged_progress(saved: Any) -> None:
    """Saved progress that does not fit the workflow is one ResumePathError, before any model call."""
    model = Stopper()
    with pytest.raises(ResumePathError, match="_resume"):
        everything(model).run({**INPUT, "_resume": saved}, resume_path=[6])
    assert model.calls == 0


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4),
    max_leaves=12,
)


@given(JSON)
@example([0, 0])
def test_any_path(path: Any) -> None:
    """Whatever JSON a resume path is, it is refused with one ResumePathError, or the workflow goes on there."""
    model = Stopper()
    flow = Workflow("flow", [Agent("a", "", model), LoopStep([Agent("b", "", model)], "done", 2)], conditions=DONE)
    valid = path is None or path in ([0], [1], [1, 0], [1, 0, 0], [1, 0, 1], [1, 1], [1, 1, 0], [1, 1, 1])
    plain = not isinstance(path, list) or all(type(index) is int for index in path)
    if valid and plain:
        flow.run("x", resume_path=path)
    else:
        with pytest.raises(ResumePathError):
            flow.run("x", resume_path=path)
        assert model.calls == 0


DONE = {"done": lambda context: True}


@given(data=st.data())
def test_any_damage(data: st.DataObject) -> None:
    """However saved progress is changed, the workflow goes on, or one typed error says why not."""
    error = data.draw(st.sampled_from(WHOLE.errors))
    assert error.context is not None
    saved = error.context["_resume"]
    at = data.draw(st.sampled_from(list(places(saved))))
    damaged = changed(saved, at, data.draw(st.just(...) | JSON))
    refused = False
    try:
        everything(Stopper()).run({**error.context, "_resume": damaged}, resume_path=error.resume_path)
    except (ResumePathError, ApprovalRequired, ContextError) as stop:
        refused = not isinstance(stop, ApprovalRequired)
    assert damaged != saved or not refused


@given(JSON)
def test_any_progress(saved: Any) -> None:
    """Whatever JSON stands in the place of saved progress, one ResumePathError says so, if it does not fit."""
    model = Stopper()
    try:
        everything(model).run({**context_with("start"), "_resume": saved}, resume_path=[6])
    except ResumePathError:
        assert model.calls == 0
    else:
        assert model.names == ["end"]
