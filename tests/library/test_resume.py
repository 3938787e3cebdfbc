"""Stopped anywhere, a workflow resumes to the same end and repeats no finished agent call."""

import asyncio
import contextlib
import copy
import json
import zlib
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, cast

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from tests.library.strategies import damaged

from podwright import Agent, Workflow
from podwright.components import (
    AgentStep,
    ApprovalStep,
    ConditionStep,
    FunctionStep,
    LoopStep,
    MapStep,
    ParallelStep,
    TryStep,
    WorkflowStep,
)
from podwright.errors import (
    ApprovalRequired,
    ConditionError,
    ContextError,
    ModelError,
    PodwrightError,
    ResumePathError,
    RunCancelledError,
)
from podwright.testing import FunctionModel, ModelRequest

NEVER = {"name": "is_empty", "args": {"value": "x"}}


class StoppingModel(FunctionModel):
    """Answers each agent in its own way; fails or is cancelled at the given calls, counted over all runs."""

    def __init__(self, stops: Mapping[int, str] | None = None) -> None:
        super().__init__(self.answer, name="offline/stopping")
        self.stops = dict(stops or {})
        self.calls = 0
        self.finished: Counter[tuple[str, tuple[int, ...], str]] = Counter()
        self.task: asyncio.Task[Any] | None = None

    async def call(self, what: str) -> None:
        """A call of something else than a model."""
        await self._stop_or_go_on()
        self.finished[what, (), ""] += 1

    async def answer(self, request: ModelRequest) -> str:
        prompt = request.messages[-1].text
        await self._stop_or_go_on()
        self.finished[request.component, request.path, prompt] += 1
        if request.component == "draft":
            return (
                prompt.partition("## draft_output\n")[2].partition("\n")[0]
                + "d"
            )
        return f"{request.component}-{zlib.crc32(prompt.encode()):08x}"

    async def _stop_or_go_on(self) -> None:
        number = self.calls
        self.calls += 1
        # so that parallel calls are in progress together
        await asyncio.sleep(0)
        match self.stops.get(number):
            case "fail":
                raise OSError("stopped")
            case "cancel":
                assert self.task is not None
                self.task.cancel()
                await asyncio.Event().wait()
            case _:
                pass

    @property
    def names(self) -> list[str]:
        return [component for component, _, _ in self.finished]


def everything(model: FunctionModel, **options: Any) -> Workflow:
    """A workflow with every type of step, nested in one another, and approvals in most places."""

    def agent(name: str, **keys: Any) -> AgentStep:
        return AgentStep(Agent(name, "Work.", model), **keys)

    nested = Workflow(
        "nested",
        [
            agent("n1"),
            ParallelStep([[agent("n2")], [agent("n3"), agent("n4")]]),
        ],
    )
    members = ParallelStep(
        [
            [agent("t2")],
            [ApprovalStep("team member?"), agent("t3", input="{t1_output}")],
        ]
    )
    team = Workflow(
        "team", [agent("t1"), ApprovalStep("team?"), members, agent("t4")]
    )
    left = [
        agent("left"),
        ApprovalStep("left?"),
        agent("left2", input="{left_output} of {start_output}"),
    ]
    again = LoopStep(
        [agent("again", output="right_output")], until=NEVER, max_iterations=2
    )
    right = [agent("right"), ApprovalStep("right?"), again]
    third = [
        MapStep(
            "items",
            "one",
            [agent("each", input="{one}: {start_output}")],
            max_concurrency=2,
        )
    ]
    drafts = [
        agent("draft"),
        ApprovalStep("good, {draft_output}?"),
        agent("polish", input="{draft_output}"),
    ]
    return Workflow(
        "everything",
        [
            agent("start"),
            ParallelStep([left, right, third]),
            LoopStep(
                drafts,
                until={
                    "name": "equals",
                    "args": {"value": "{draft_output}", "to": "ddd"},
                },
            ),
            MapStep(
                "items",
                "item",
                [
                    agent("research", input="{item}"),
                    ApprovalStep("{item}?"),
                    agent("note"),
                ],
            ),
            ConditionStep(
                {
                    "name": "contains",
                    "args": {"value": "{draft_output}", "text": "d"},
                },
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


async def run_to_the_end(
    flow: Workflow,
    model: StoppingModel,
    context: Any,
    path: list[int] | None = None,
) -> Story:
    """Run a workflow, and after each stop resume it from the error, saved as JSON and read again."""
    story = Story()
    for _ in range(100):
        model.task = asyncio.create_task(flow.arun(context, resume_path=path))
        try:
            story.context = await model.task
            return story
        except PodwrightError as error:
            story.errors.append(error)
        except asyncio.CancelledError as cancellation:
            story.errors.append(
                cast("RunCancelledError", cancellation.__cause__)
            )
        context, path = json.loads(
            json.dumps([story.errors[-1].context, story.errors[-1].resume_path])
        )
    raise AssertionError("the workflow does not end")


def story_of(
    flow: Workflow,
    model: StoppingModel,
    context: Any,
    path: list[int] | None = None,
) -> Story:
    return asyncio.run(run_to_the_end(flow, model, context, path))


INPUT = {"input": "the moon", "items": '["x", "y", "z"]'}
UNSTOPPED = StoppingModel()
EXPECTED = story_of(everything(UNSTOPPED), UNSTOPPED, INPUT)


def assert_same(story: Story, model: StoppingModel) -> None:
    assert list(story.context.items()) == list(EXPECTED.context.items())
    assert model.finished == UNSTOPPED.finished
    assert set(model.finished.values()) == {1}


def test_every_approval_pauses_and_every_agent_runs() -> None:
    """Without other stops each approval pauses once with its path, and each output is in the context."""
    assert [(error.message, error.resume_path) for error in EXPECTED.errors] == [
        ("left?", [1, 0, 1]), ("right?", [1, 1, 1]),
        ("good, d?", [2, 0, 1]), ("good, dd?", [2, 1, 1]), ("good, ddd?", [2, 2, 1]),
        ("x?", [3, 0, 1]), ("y?", [3, 1, 1]), ("z?", [3, 2, 1]), ("team?", [5, 1]), ("team member?", [5, 2, 1, 0]),
    ]  # fmt: skip
    assert Counter(UNSTOPPED.names) == Counter(
        "start left left2 right again again each each each draft draft draft polish polish polish "
        "research research research note note note yes n1 n2 n3 n4 after t1 t2 t3 t4 end".split()
    )
    outputs = "start left left2 right each draft polish research note yes n1 n2 n3 n4 after team end".split()
    assert list(EXPECTED.context) == [
        "input",
        "items",
        *(f"{name}_output" for name in outputs),
    ]


@pytest.mark.parametrize("how", ["fail", "cancel"])
@pytest.mark.parametrize("number", range(UNSTOPPED.calls))
def test_a_stop_at_any_agent_call_can_be_resumed(number: int, how: str) -> None:
    """After a failure or a cancellation in any agent call, the workflow resumes to the same context."""
    model = StoppingModel({number: how})
    story = story_of(everything(model), model, INPUT)
    assert_same(story, model)
    stops = [
        error
        for error in story.errors
        if not isinstance(error, ApprovalRequired)
    ]
    assert [type(error) for error in stops] == [
        ModelError if how == "fail" else RunCancelledError
    ]
    assert stops[0].resume_path


@given(
    st.dictionaries(
        st.integers(0, UNSTOPPED.calls + 10),
        st.sampled_from(["fail", "cancel"]),
        max_size=8,
    )
)
@example(dict.fromkeys(range(0, 120, 2), "fail"))
@example(dict.fromkeys(range(0, 120, 2), "cancel"))
def test_any_number_of_stops_can_be_resumed(stops: dict[int, str]) -> None:
    """Any mix of failures and cancellations leads to the same end."""
    model = StoppingModel(stops)
    assert_same(story_of(everything(model), model, INPUT), model)


def on_data(model: StoppingModel) -> Workflow:
    """A workflow of steps on data: functions, structured answers, attempts, and decisions with steps after them."""

    async def note(text: str) -> dict[str, Any]:
        """Note a text, as a call that can be stopped."""
        await model.call(f"note {text}")
        return {"text": text, "items": ["x", "y"]}

    def agent(name: str, **keys: Any) -> AgentStep:
        return AgentStep(Agent(name, "Work.", model), **keys)

    decide = ApprovalStep(
        "no to {first.text}?",
        "decide",
        edit={"input": {"type": "string"}},
        on_reject=[
            FunctionStep(
                note, {"text": "{decide.comment} {input}"}, output="why"
            ),
            agent("again", input="{decide.comment} {iteration}"),
        ],
    )
    return Workflow(
        "on_data",
        [
            FunctionStep(note, {"text": "{input}"}, output="first"),
            MapStep(
                "first.items",
                "item",
                [
                    FunctionStep(note, {"text": "{item}"}, output="each"),
                    agent("one", input="{each.text}"),
                ],
                max_concurrency=2,
            ),
            LoopStep([decide], until=NEVER, max_iterations=2),
            TryStep(
                [
                    ParallelStep(
                        [
                            [
                                FunctionStep(
                                    note, {"text": "left"}, output="left"
                                )
                            ],
                            [ApprovalStep("tried?"), agent("right")],
                        ]
                    )
                ],
                catch=[ApprovalStep("never?")],
            ),
            agent("end", input={"first": "{first}", "input": "{one_output}"}),
        ],
    )


async def decide_to_the_end(flow: Workflow, model: StoppingModel) -> Story:
    """Run a workflow, resume it after each stop, and reject what asks for it."""
    story = Story()
    context: Any = "the moon"
    path: list[int] | None = None
    for _ in range(100):
        model.task = asyncio.create_task(flow.arun(context, resume_path=path))
        try:
            story.context = await model.task
            return story
        except ApprovalRequired as pause:
            story.errors.append(pause)
            context = pause.decide()
            if pause.message.startswith("no"):
                context = pause.decide("reject", "no", {"input": "changed"})
        except PodwrightError as error:
            story.errors.append(error)
            context = error.context
        except asyncio.CancelledError as cancellation:
            error = cast("RunCancelledError", cancellation.__cause__)
            story.errors.append(error)
            context = error.context
        path = story.errors[-1].resume_path
        context = json.loads(json.dumps(context))
    raise AssertionError("the workflow does not end")


UNSTOPPED_ON_DATA = StoppingModel()
EXPECTED_ON_DATA = asyncio.run(
    decide_to_the_end(on_data(UNSTOPPED_ON_DATA), UNSTOPPED_ON_DATA)
)


@pytest.mark.parametrize("number", range(UNSTOPPED_ON_DATA.calls))
def test_a_stop_at_any_call_on_data_can_be_resumed(number: int) -> None:
    """After a cancellation in any call of a model or a function, nothing is done twice, and no decision is lost."""
    model = StoppingModel({number: "cancel"})
    story = asyncio.run(decide_to_the_end(on_data(model), model))
    assert story.context == EXPECTED_ON_DATA.context
    assert model.finished == UNSTOPPED_ON_DATA.finished
    pauses = [
        error.message
        for error in story.errors
        if isinstance(error, ApprovalRequired)
    ]
    assert pauses == ["no to the moon?", "no to the moon?", "tried?"]


def test_a_workflow_rebuilt_from_its_blueprint_can_resume() -> None:
    """Another instance of the workflow resumes from the error of the first."""
    model = StoppingModel({20: "fail"})
    stopped = everything(model)
    with pytest.raises(ApprovalRequired) as caught:
        stopped.run(INPUT)
    other = Workflow.from_blueprint(
        json.loads(json.dumps(stopped.to_blueprint())), stopped.members()
    )
    context, path = json.loads(
        json.dumps([caught.value.context, caught.value.resume_path])
    )
    assert_same(story_of(other, model, context, path), model)


def test_events_have_the_context_and_the_path_of_a_stop(recorder: Any) -> None:
    """The event that ends a stopped run has the same context and resume path as the error, as JSON."""
    model = StoppingModel({25: "fail", 30: "cancel"})
    story = story_of(
        everything(model, event_manager=recorder.manager), model, INPUT
    )
    ends = [
        event.to_dict()
        for event in recorder.of("run_failed", "run_paused", "run_cancelled")
    ]
    own = [
        event.get("error", event)
        for event in ends
        if event["component"] == "everything"
    ]
    assert [(facts["context"], facts["resume_path"]) for facts in own] == [
        (error.context, error.resume_path) for error in story.errors
    ]


def test_an_error_can_be_resumed_from_twice() -> None:
    """Resuming does not change the context of the error."""
    model = StoppingModel({25: "fail"})
    flow = everything(model)
    for error in story_of(flow, model, INPUT).errors:
        before = copy.deepcopy(error.context)
        assert (
            story_of(
                flow, StoppingModel(), error.context, error.resume_path
            ).context
            == EXPECTED.context
        )
        assert error.context == before


def test_an_approval_is_given_by_its_path_only() -> None:
    """Without the resume path the workflow pauses at the approval again."""
    model = StoppingModel()
    flow = Workflow(
        "flow",
        [
            Agent("a", "Work.", model),
            ApprovalStep("{a_output}?"),
            Agent("b", "Work.", model),
        ],
    )
    with pytest.raises(ApprovalRequired) as first:
        flow.run("x")
    assert first.value.context is not None
    assert first.value.message == f"{first.value.context['a_output']}?"
    with pytest.raises(ApprovalRequired) as second:
        flow.run(first.value.context, start_step=1)
    assert (first.value.resume_path, second.value.resume_path) == ([1], [1])
    assert set(flow.run(second.value.context, resume_path=[1])) == {
        "input",
        "a_output",
        "b_output",
    }
    assert model.names == ["a", "b"]


def test_a_pause_does_not_stop_the_other_branches() -> None:
    """Branches beside one that waits for approval run to their end; a failure of one comes first."""

    def flow(model: StoppingModel) -> Workflow:
        long = [Agent(name, "Work.", model) for name in ("one", "two", "three")]
        return Workflow(
            "flow", [ParallelStep([[ApprovalStep("go on?")], long])]
        )

    model = StoppingModel()
    with pytest.raises(ApprovalRequired) as caught:
        flow(model).run("x")
    assert model.names == ["one", "two", "three"]
    assert flow(model).run(
        caught.value.context, resume_path=caught.value.resume_path
    )["three_output"]
    assert model.names == ["one", "two", "three"]
    with pytest.raises(ModelError) as failed:
        flow(StoppingModel({1: "fail"})).run("x")
    assert failed.value.resume_path == [0, 1, 1]


def test_a_condition_that_failed_is_evaluated_again() -> None:
    """On resumption a failed condition is evaluated again; one with a result is not."""
    evaluated: list[str] = []

    def condition(context: Mapping[str, Any], name: str) -> bool:
        evaluated.append(name)
        if evaluated.count(name) == 1:
            raise ValueError("not now")
        return True

    model = StoppingModel({0: "fail"})
    chosen, done = (
        {"name": "mine", "args": {"name": name}} for name in ("chosen", "done")
    )
    loop = LoopStep([Agent("a", "Work.", model)], done)
    flow = Workflow(
        "flow", [ConditionStep(chosen, [loop])], conditions={"mine": condition}
    )
    story = story_of(flow, model, "x")
    paths = [(type(error), error.resume_path) for error in story.errors]
    assert paths == [
        (ConditionError, [0]),
        (ModelError, [0, 0, 0, 0, 0]),
        (ConditionError, [0, 0, 0, 0, 1]),
    ]
    assert evaluated == ["chosen", "chosen", "done", "done"]
    assert model.names == ["a"]


def context_with(*names: str) -> dict[str, Any]:
    return {
        **INPUT,
        **{
            f"{name}_output": EXPECTED.context[f"{name}_output"]
            for name in names
        },
    }


def test_start_step_skips_the_steps_before_it() -> None:
    """`start_step` starts at that step with the given context."""
    model = StoppingModel()
    assert list(everything(model).run("the moon", start_step=6)) == [
        "input",
        "end_output",
    ]
    assert model.names == ["end"]
    assert (
        everything(model).run(EXPECTED.context, start_step=6).keys()
        == EXPECTED.context.keys()
    )


def test_a_path_to_a_step_of_the_workflow_can_be_written_by_hand() -> None:
    """A path without saved progress starts at that step; one into a step needs the progress of a stopped run."""
    model = StoppingModel()
    everything(model).run(
        context_with("start", "draft", "research"), resume_path=[6]
    )
    assert model.names == ["end"]
    with pytest.raises(ResumePathError):
        everything(model).run(
            context_with("start", "draft", "research"), resume_path=[5, 3]
        )


def test_saved_progress_is_used_for_its_own_path_only() -> None:
    """A path other than the saved one wins over the saved progress."""
    model = StoppingModel({1: "fail"})
    flow = Workflow("flow", [Agent(name, "Work.", model) for name in "abc"])
    with pytest.raises(ModelError) as caught:
        flow.run("x")
    assert caught.value.resume_path == [1]
    flow.run(caught.value.context, resume_path=[2])
    flow.run(caught.value.context, start_step=1, resume_path=[1])
    assert model.names == ["a", "c", "b", "c"]


WRONG_PATHS: list[Any] = [
    [], "0", 0, {"0": 0}, [0.0], [True], [None], ["0"], [[0]], [-1], [7], [0, 0], [1, 3, 0], [1, 0, 4], [1, 0, 1, 0],
    [2, 10, 0], [2, 0, 4], [3, 0, 4], [4, 2, 0], [4, 0, 4], [4, 0, 1, 3], [4, 0, 1, 1, 2, 0], [4, 1, 2], [5, 5],
    [5, 2, 2], [5, 0, 0], [10**30], [3, 10**30],
]  # fmt: skip
WRONG_STARTS: list[dict[str, Any]] = [
    *({"resume_path": path} for path in WRONG_PATHS),
    *(
        {"start_step": start}
        for start in (-1, 7, True, "0", 1.0, None, [0], 10**5000)
    ),
    {"start_step": 2, "resume_path": [1, 0, 0]},
]


@pytest.mark.parametrize("start", WRONG_STARTS)
def test_a_start_that_does_not_exist_is_refused(start: dict[str, Any]) -> None:
    """A start step or path that leads to no step is a ResumePathError, before any model call."""
    model = StoppingModel()
    with pytest.raises(ResumePathError):
        everything(model).run(context_with("start", "draft"), **start)
    assert model.calls == 0


MALFORMED: list[Any] = [
    5, [1], {"step": "0"}, {"step": -1}, {"step": True}, {"steps": 0}, {"step": 0, "in": 5},
    {"step": 1, "in": {"at": 0, "parts": []}}, {"step": 1, "in": {"at": 0, "parts": {"0": 5}}},
    {"step": 1, "in": {"at": 0, "parts": {"0": {"set": 5}}}}, {"step": 1, "in": {"at": 0, "parts": {"0": {"in": 5}}}},
    {"step": 2, "in": {"at": 1.0}}, {"step": 5, "in": {"context": 5}},
]  # fmt: skip


@pytest.mark.parametrize("saved", MALFORMED)
def test_malformed_progress_is_refused(saved: Any) -> None:
    """Saved progress of another form is a ResumePathError, before any model call."""
    model = StoppingModel()
    with pytest.raises(ResumePathError, match="_resume"):
        everything(model).run({**INPUT, "_resume": saved}, resume_path=[6])
    assert model.calls == 0


@given(data=st.data())
def test_damaged_progress_resumes_or_is_refused(data: st.DataObject) -> None:
    """However saved progress is damaged, the workflow goes on or raises an InputError."""
    error = data.draw(st.sampled_from(EXPECTED.errors))
    assert error.context is not None
    saved = data.draw(damaged(error.context["_resume"]))
    with contextlib.suppress(ResumePathError, ContextError, ApprovalRequired):
        everything(StoppingModel()).run(
            {**error.context, "_resume": saved}, resume_path=error.resume_path
        )
