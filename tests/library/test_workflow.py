"""Workflows: what their steps read, what they write, and the ways that they take."""

import asyncio
import json
from collections.abc import Mapping
from typing import Any

import pytest

from podwright import (
    Agent,
    AgentStep,
    ApprovalRequired,
    ApprovalStep,
    ConditionStep,
    FunctionModel,
    LimitExceededError,
    LoopStep,
    MapStep,
    ParallelStep,
    Pipeline,
    ScriptedModel,
    Workflow,
    WorkflowStep,
)
from podwright.errors import ConditionError, ConfigurationError, ContextError, ModelError
from podwright.testing import ModelRequest, assert_events, events_of


def picked(trace: Any, *types: str) -> list[Any]:
    """The events of these types; a type checker cannot know which they are."""
    return events_of(trace, *types)


NEVER = {"name": "is_empty", "args": {"value": "x"}}
ALWAYS = {"name": "is_empty", "args": {"value": ""}}


class Notes(FunctionModel):
    """Answers with the agent's name and a number, and keeps what each agent was asked."""

    def __init__(self) -> None:
        super().__init__(self.answer)
        self.asked: list[tuple[str, str]] = []

    def answer(self, request: ModelRequest) -> str:
        self.asked.append((request.component, request.messages[-1].content))
        return f"{request.component}{len(self.of(request.component))}"

    def of(self, name: str) -> list[str]:
        return [content for component, content in self.asked if component == name]

    def agent(self, name: str, instructions: str = "") -> Agent:
        return Agent(name, instructions, self)


@pytest.fixture
def notes() -> Notes:
    return Notes()


# --- the context ---------------------------------------------------------------------------------------


def test_the_first_step_is_given_the_input_and_later_ones_the_whole_context(notes: Notes) -> None:
    """The first agent is given just the input; a later one the input and all outputs so far, labelled."""
    flow = Workflow("flow", [notes.agent("one"), notes.agent("two"), notes.agent("three")])
    assert flow.run("the moon") == {
        "input": "the moon", "one_output": "one1", "two_output": "two1", "three_output": "three1",
    }  # fmt: skip
    assert notes.asked == [
        ("one", "the moon"),
        ("two", "## input\nthe moon\n\n## one_output\none1"),
        ("three", "## input\nthe moon\n\n## one_output\none1\n\n## two_output\ntwo1"),
    ]


def test_a_template_is_filled_in_one_pass(notes: Notes) -> None:
    """A step's input is a template: names are replaced once, and nothing else has a meaning."""
    step = AgentStep(notes.agent("two"), input="{input} | {one_output} | { x } {0} {input.x} {{input}} {}")
    flow = Workflow("flow", [notes.agent("one"), step])
    flow.run("{one_output} and {secret}")
    assert notes.of("two") == [
        "{one_output} and {secret} | one1 | { x } {0} {input.x} {{one_output} and {secret}} {}",
    ]


def test_a_template_that_asks_for_what_is_not_there(notes: Notes) -> None:
    """A template with an unknown name is a ContextError with the nearest name, before the model is called."""
    step = AgentStep(notes.agent("two"), "second", input="{one_ouput}")
    flow = Workflow("flow", [notes.agent("one"), step])
    with pytest.raises(ContextError, match=r"Step 'second' asks for '\{one_ouput\}'") as caught:
        flow.run("x")
    assert caught.value.suggestion == "Did you mean 'one_output'?"
    assert caught.value.resume_path == [1]
    assert notes.of("two") == []


def test_named_inputs(notes: Notes) -> None:
    """Named inputs fill instructions and templates; agents are shown those that nothing names, as sections."""
    system: list[str] = []

    def answer(request: ModelRequest) -> str:
        system.append(request.messages[0].content)
        return notes.answer(request)

    speaker = Agent("speaks", "Speak {language}.", FunctionModel(answer))
    flow = Workflow("flow", [speaker, AgentStep(notes.agent("templated"), input="{query} in {language}")])
    context = flow.run({"query": "moon?", "language": "French", "style": "dry"})
    assert system == ["Speak French."]
    assert notes.asked == [("speaks", "## query\nmoon?\n\n## style\ndry"), ("templated", "moon? in French")]
    assert context == {
        "input": "## query\nmoon?\n\n## language\nFrench\n\n## style\ndry",
        "query": "moon?", "language": "French", "style": "dry",
        "speaks_output": "speaks1", "templated_output": "templated1",
    }  # fmt: skip


def test_one_named_input_is_the_input() -> None:
    """A single named input is the input, too, and is shown once."""
    model = ScriptedModel("yes")
    assert Workflow("flow", [Agent("a", "", model)]).run({"query": "moon?"}) == {
        "input": "moon?", "query": "moon?", "a_output": "yes",
    }  # fmt: skip
    assert model.requests[0].messages[-1].content == "moon?"


def test_keywords_are_inputs_and_updates(notes: Notes) -> None:
    """Keywords are the inputs where no context is given, and updates where one is."""
    flow = Workflow("flow", [AgentStep(notes.agent("a"), input="{input}-{tone}")])
    flow.run(tone="dry")
    flow.run("moon", tone="dry")
    flow.run({"input": "sun", "tone": "wet"}, tone="dry")
    assert notes.of("a") == ["dry-dry", "moon-dry", "sun-dry"]
    assert Workflow("flow", [notes.agent("b")]).run() == {"input": "", "b_output": "b1"}


def test_values_are_strings_in_the_end(notes: Notes) -> None:
    """All values of the returned context are strings, structured ones as JSON; hidden names stay inside."""
    flow = Workflow("flow", [notes.agent("a")])
    context = flow.run({"input": "x", "data": {"ä": [1, None]}, "number": 3, "_secret": "s"})
    assert context == {"input": "x", "data": '{"ä": [1, null]}', "number": "3", "a_output": "a1"}
    assert "_secret" not in notes.asked[0][1]


def test_the_callers_context_is_not_changed(notes: Notes) -> None:
    """The context that was handed in stays as it was."""
    given = {"input": "x", "items": ["a", "b"]}
    Workflow("flow", [MapStep("items", "item", [notes.agent("a")])]).run(given)
    assert given == {"input": "x", "items": ["a", "b"]}


def test_an_output_key(notes: Notes) -> None:
    """`output` names the key that the answer is written to; writing again replaces."""
    flow = Workflow(
        "flow", [AgentStep(notes.agent("a"), "first", output="draft"), AgentStep(notes.agent("b"), output="draft")]
    )
    assert flow.run("x") == {"input": "x", "draft": "b1"}
    assert notes.of("b") == ["## input\nx\n\n## draft\na1"]


# --- conditions and loops ------------------------------------------------------------------------------


def test_a_condition_chooses(notes: Notes) -> None:
    """A condition step goes its `then` or its `else`; without `else` it does nothing."""

    def urgent(context: Mapping[str, Any]) -> bool:
        return "urgent" in context["input"]

    flow = Workflow(
        "flow",
        [
            ConditionStep(urgent, [notes.agent("fast")], [notes.agent("slow")], name="triage"),
            ConditionStep(urgent, [notes.agent("page")]),
        ],
    )
    assert list(flow.run("urgent!")) == ["input", "fast_output", "page_output"]
    result = flow.run("calm", trace=True)
    assert list(result.value) == ["input", "slow_output"]
    assert_events(
        result,
        "step_started step=triage step_type=condition_step",
        "condition_checked step=triage condition=urgent result=false",
        "step_started step=slow step_type=agent_step",
        "step_finished step=triage outcome=ok",
        "condition_checked step=condition condition=urgent result=false",
    )
    slow = next(event for event in picked(result, "run_started") if event.component == "slow")
    assert slow.path == (0, 1, 0)


def test_a_condition_sees_a_copy_and_may_be_async(notes: Notes) -> None:
    """A condition may be async; what it does to its context stays there; its error is typed."""

    async def meddling(context: dict[str, Any]) -> bool:
        await asyncio.sleep(0)
        context["input"] = "changed"
        return True

    flow = Workflow("flow", [ConditionStep(meddling, [notes.agent("a")])])
    assert flow.run("x") == {"input": "x", "a_output": "a1"}

    def broken(context: dict[str, Any]) -> bool:
        raise KeyError("nothing")

    with pytest.raises(ConditionError) as caught:
        Workflow("flow", [ConditionStep(broken, [])]).run("x")
    assert isinstance(caught.value.__cause__, KeyError)


def test_a_loop_ends_by_its_condition_or_its_limit(notes: Notes) -> None:
    """A loop runs until its condition holds after a round, and at most `max_iterations` rounds."""
    until = {"name": "equals", "args": {"value": "{a_output}", "to": "a3"}}
    flow = Workflow("flow", [LoopStep([notes.agent("a")], until)])
    result = flow.run("x", trace=True)
    assert result.value["a_output"] == "a3"
    assert [event.result for event in picked(result, "condition_checked")] == [False, False, True]
    assert [event.path for event in picked(result, "run_started")] == [(), (0, 0, 0), (0, 1, 0), (0, 2, 0)]
    endless = Workflow("flow", [LoopStep([notes.agent("b")], NEVER, max_iterations=4), notes.agent("c")])
    assert list(endless.run("x")) == ["input", "b_output", "c_output"]
    assert len(notes.of("b")) == 4
    assert len(notes.of("c")) == 1
    Workflow("flow", [LoopStep([notes.agent("d")], ALWAYS)]).run("x")
    assert len(notes.of("d")) == 1


# --- parallel and map ----------------------------------------------------------------------------------


async def test_branches_run_together_each_on_its_own_copy() -> None:
    """Branches are concurrent, do not see each other's outputs, and are merged in their order."""
    gate = asyncio.Barrier(2)
    asked: dict[str, str] = {}

    async def answer(request: ModelRequest) -> str:
        asked[request.component] = request.messages[-1].content
        if request.component in ("left", "right"):
            async with asyncio.timeout(10), gate:
                pass
        if request.component == "left":
            for _ in range(20):
                await asyncio.sleep(0)  # so that the left branch is done last
        return request.component

    def step(name: str, output: str | None = None) -> AgentStep:
        return AgentStep(Agent(name, "", FunctionModel(answer)), output=output)

    flow = Workflow(
        "flow",
        [
            ParallelStep([[step("left"), step("l2", "shared")], [step("right"), step("r2", "shared")]]),
            step("last"),
        ],
    )
    context = await flow.arun("x")
    assert list(context.items()) == [
        ("input", "x"), ("left_output", "left"), ("right_output", "right"), ("shared", "r2"), ("last_output", "last"),
    ]  # fmt: skip
    assert asked["l2"] == "## input\nx\n\n## left_output\nleft"
    assert asked["r2"] == "## input\nx\n\n## right_output\nright"
    assert "left_output" in asked["last"]
    assert "right_output" in asked["last"]


async def test_a_failing_branch_cancels_the_others(heard: Any, assert_sound: Any) -> None:
    """The first branch to fail cancels the others, and its error is the workflow's."""
    began = asyncio.Event()

    async def block(_: ModelRequest) -> str:
        began.set()
        await asyncio.Event().wait()
        raise AssertionError

    async def fail(_: ModelRequest) -> str:
        await began.wait()
        raise ValueError("no")

    flow = Workflow(
        "flow",
        [ParallelStep([[Agent("waits", "", FunctionModel(block))], [Agent("fails", "", FunctionModel(fail))]])],
        event_manager=heard.manager,
    )
    with pytest.raises(ModelError, match="no") as caught:
        await flow.arun("x")
    assert caught.value.component == "fails"
    assert caught.value.resume_path == [0, 1, 0]
    assert_sound(heard.events)
    assert [event.component for event in heard.of("run_cancelled")] == ["waits"]
    outcomes = {event.step: event.outcome for event in heard.of("step_finished")}
    assert outcomes == {"fails": "failed", "waits": "cancelled", "parallel": "failed"}


@pytest.mark.parametrize(
    "items", [["a", "b", "c"], '["a", "b", "c"]', "a\n\n  b  \nc\n"], ids=["list", "json", "lines"]
)
def test_a_map_goes_over_items(items: Any, notes: Notes) -> None:
    """A map step runs its steps for each item; each output becomes a JSON array, in the items' order."""
    steps = [AgentStep(notes.agent("first"), input="{item}"), AgentStep(notes.agent("second"), input="{first_output}")]
    flow = Workflow("flow", [MapStep("items", "item", steps, max_concurrency=1), notes.agent("last")])
    context = flow.run({"input": "x", "items": items})
    assert notes.of("first") == ["a", "b", "c"]
    assert json.loads(context["first_output"]) == ["first1", "first2", "first3"]
    assert json.loads(context["second_output"]) == ["second1", "second2", "second3"]
    assert "item" not in context
    assert '## second_output\n["second1", "second2", "second3"]' in notes.of("last")[0]


def test_a_map_over_objects_and_over_nothing(notes: Notes) -> None:
    """Items may be any JSON, shown as JSON text; over no items each output is an empty array."""
    flow = Workflow("flow", [MapStep("items", "item", [AgentStep(notes.agent("a"), input="{item}")])])
    flow.run({"input": "x", "items": [{"n": 1}, 2]})
    assert notes.of("a") == ['{"n": 1}', "2"]
    assert flow.run({"input": "x", "items": []})["a_output"] == "[]"
    assert flow.run({"input": "x", "items": " \n "})["a_output"] == "[]"
    flow.run({"input": "x", "items": "[" * 100_000})
    assert notes.of("a")[-1] == "[" * 100_000, "what is no JSON is text, a line an item"


def test_a_map_of_which_some_items_write_nothing(notes: Notes) -> None:
    """An item whose steps wrote no such output has null in its place."""
    wanted = {"name": "equals", "args": {"value": "{item}", "to": "b"}}
    flow = Workflow(
        "flow",
        [MapStep("items", "item", [ConditionStep(wanted, [notes.agent("a")], [])])],
    )
    assert flow.run({"input": "x", "items": ["a", "b", "c"]})["a_output"] == '[null, "a1", null]'


@pytest.mark.parametrize("items", [5, {"a": 1}, '{"a": 1}', "5", True], ids=repr)
def test_a_map_over_what_is_no_list(items: Any, notes: Notes) -> None:
    """A map over anything that is no list is a ContextError."""
    flow = Workflow("flow", [MapStep("items", "item", [notes.agent("a")])])
    with pytest.raises(ContextError, match="no list"):
        flow.run({"input": "x", "items": items})
    with pytest.raises(ContextError, match="does not have") as caught:
        flow.run({"input": "x", "itmes": "a"})
    assert caught.value.suggestion == "Did you mean 'itmes'?"


async def test_max_concurrency() -> None:
    """A map works on as many items at once as it may, and no more."""
    now, most = 0, 0

    async def answer(request: ModelRequest) -> str:
        nonlocal now, most
        now += 1
        most = max(most, now)
        for _ in range(3):
            await asyncio.sleep(0)
        now -= 1
        return request.component

    agent = Agent("a", "", FunctionModel(answer))
    flow = Workflow("flow", [MapStep("items", "item", [agent], max_concurrency=3)])
    await flow.arun({"input": "x", "items": list(range(10))})
    assert most == 3


# --- workflows in workflows ----------------------------------------------------------------------------


def test_a_nested_workflow_shares_the_context(notes: Notes) -> None:
    """A workflow step runs on the same context; it is a run of its own in the trace."""
    inner = Workflow("inner", [notes.agent("b")])
    flow = Workflow("flow", [notes.agent("a"), WorkflowStep(inner), notes.agent("c")])
    result = flow.run("x", trace=True)
    assert list(result.value) == ["input", "a_output", "b_output", "c_output"]
    assert notes.of("b") == ["## input\nx\n\n## a_output\na1"]
    started = picked(result, "run_started")
    assert [(event.component, event.path) for event in started] == [
        ("flow", ()), ("a", (0,)), ("inner", (1,)), ("b", (1, 0)), ("c", (2,)),
    ]  # fmt: skip
    assert started[3].parent_id == started[2].run_id


def test_a_workflow_as_an_agent_has_its_own_context(notes: Notes) -> None:
    """A workflow in an agent step has a context of its own, and answers with what it wrote last."""
    inner = Workflow("inner", [notes.agent("b"), notes.agent("c")])
    flow = Workflow("flow", [notes.agent("a"), AgentStep(inner, input="{a_output}"), notes.agent("d")])
    assert flow.run("x") == {"input": "x", "a_output": "a1", "inner_output": "c1", "d_output": "d1"}
    assert notes.of("b") == ["a1"]
    assert notes.of("c") == ["## input\na1\n\n## b_output\nb1"]


def test_other_kinds_as_agents(notes: Notes) -> None:
    """A pipeline is an agent of a workflow like any other; the same agent may stand in several steps."""
    agent = notes.agent("a")
    line = Pipeline("line", [agent, agent])
    assert Workflow("flow", [line, agent]).run("x") == {"input": "x", "line_output": "a2", "a_output": "a3"}


# --- putting one together ------------------------------------------------------------------------------


def test_every_step_is_in_the_trace(notes: Notes) -> None:
    """Each step of each type begins and ends in the trace, with its name, type and path."""
    flow = Workflow(
        "flow",
        [
            AgentStep(notes.agent("a"), "an agent"),
            ConditionStep(ALWAYS, [AgentStep(notes.agent("b"))], name="a choice"),
            ParallelStep([[AgentStep(notes.agent("c"))]], name="at once"),
            LoopStep([AgentStep(notes.agent("d"))], ALWAYS, name="again"),
            MapStep("input", "line", [AgentStep(notes.agent("e"))], name="each"),
            WorkflowStep(Workflow("inner", [notes.agent("f")]), name="nested"),
        ],
    )
    result = flow.run("x", trace=True)
    started = {(event.step, event.step_type, event.path) for event in picked(result, "step_started")}
    finished = {(event.step, event.step_type, event.path) for event in picked(result, "step_finished")}
    assert started == finished
    assert started == {
        ("an agent", "agent_step", (0,)),
        ("a choice", "condition_step", (1,)), ("b", "agent_step", (1, 0, 0)),
        ("at once", "parallel_step", (2,)), ("c", "agent_step", (2, 0, 0)),
        ("again", "loop_step", (3,)), ("d", "agent_step", (3, 0, 0)),
        ("each", "map_step", (4,)), ("e", "agent_step", (4, 0, 0)),
        ("nested", "workflow_step", (5,)), ("f", "agent_step", (5, 0)),
    }  # fmt: skip


def test_agents_by_name(notes: Notes) -> None:
    """Steps may name agents and conditions that are given apart."""
    flow = Workflow(
        "flow",
        [AgentStep("writer"), ConditionStep("done", [AgentStep("editor", "edit")])],
        agents={"writer": notes.agent("someone"), "editor": notes.agent("other")},
        conditions={"done": lambda context: True},
    )
    assert flow.run("x") == {"input": "x", "writer_output": "someone1", "editor_output": "other1"}


def test_two_agents_of_one_name(notes: Notes) -> None:
    """Two different agents of one name, and two conditions of one, are refused."""
    with pytest.raises(ConfigurationError, match="Two different agents"):
        Workflow("flow", [notes.agent("a"), notes.agent("a")])

    def one(context: Any) -> bool:
        return True

    def other(context: Any) -> bool:
        return False

    other.__name__ = "one"
    with pytest.raises(ConfigurationError, match="Two different conditions"):
        Workflow("flow", [ConditionStep(one, []), ConditionStep(other, [])])


def test_what_is_no_step() -> None:
    """What is no step is refused, and so are steps that are no list, and conditions that are no condition."""
    five: Any = 5
    wrong: Any
    for wrong in (
        [5],
        "steps",
        5,
        [AgentStep(five)],
        [ConditionStep(five, [])],
        [ConditionStep(lambda context: True, [])],
    ):
        with pytest.raises(ConfigurationError):
            Workflow("flow", wrong)


def test_a_missing_agent_fails_when_it_is_reached(notes: Notes) -> None:
    """Rebuilt without validation, a workflow fails at the step whose agent is missing, and can go on from there."""
    whole = Workflow("flow", [notes.agent("a"), notes.agent("b")])
    partial = Workflow.from_blueprint(whole.to_blueprint(), {"a": whole.members()["a"]}, validate=False)
    with pytest.raises(ConfigurationError, match="needs the agent 'b'") as caught:
        partial.run("x")
    assert caught.value.resume_path == [1]
    assert caught.value.context is not None
    whole.run(caught.value.context, resume_path=[1])
    assert [name for name, _ in notes.asked] == ["a", "b"]


def test_an_event_manager_given_on_reconstruction(notes: Notes, heard: Any, assert_sound: Any) -> None:
    """The event manager given to `from_blueprint` hears all steps, nested ones too."""
    inner = Workflow("inner", [notes.agent("b")])
    flow = Workflow("flow", [notes.agent("a"), WorkflowStep(inner)])
    rebuilt = Workflow.from_blueprint(flow.to_blueprint(), flow.members(), event_manager=heard.manager)
    rebuilt.run("x")
    assert_sound(heard.events)
    assert [event.component for event in heard.of("run_started")] == ["flow", "a", "inner", "b"]


def test_an_approvals_message_is_a_template() -> None:
    """An approval's message is filled from the context."""
    flow = Workflow("flow", [ApprovalStep("Publish {input}, {unknown}?")])
    with pytest.raises(ApprovalRequired, match=r"Publish the moon, \{unknown\}\?"):
        flow.run("the moon")


@pytest.mark.parametrize("name", ["response_model", "stream", "input_data"])
def test_what_other_kinds_take_is_no_input(name: str, notes: Notes) -> None:
    """An argument of the other kinds' `run` is refused, and does not become an input for the model."""
    with pytest.raises(ContextError, match=f"takes no '{name}'"):
        Workflow("w", [notes.agent("a")]).run("x", **{name: True})  # pyright: ignore[reportArgumentType] - a wrong call


@pytest.mark.parametrize("limit", [1, 3, 8])
async def test_a_map_works_on_a_few_items_at_once(limit: int, notes: Notes) -> None:
    """A map has as many tasks as items may be under way, whatever the number of items."""
    most = 0

    async def count(request: ModelRequest) -> str:
        nonlocal most
        most = max(most, len(asyncio.all_tasks()))
        await asyncio.sleep(0)
        return "ok"

    before = len(asyncio.all_tasks())
    step = MapStep("items", "item", [Agent("each", "", FunctionModel(count))], max_concurrency=limit)
    await Workflow("w", [step]).arun({"items": list(range(100))})
    assert most - before <= limit


def test_a_run_has_a_most_steps(notes: Notes, monkeypatch: pytest.MonkeyPatch) -> None:
    """Steps inside steps are counted together; past the most of any run it is stopped, and can go on."""
    monkeypatch.setattr("podwright.run.MOST_STEPS", 20)
    inner = Workflow("inner", [LoopStep([notes.agent("a")], NEVER, 5)])
    flow = Workflow("w", [MapStep("items", "item", [inner], max_concurrency=2)])
    with pytest.raises(LimitExceededError, match="20 steps") as caught:
        flow.run({"items": ["x", "y", "z", "u"]})
    assert caught.value.limit == "steps"
    assert caught.value.context
    assert flow.run(caught.value.context, resume_path=caught.value.resume_path)
    assert len(notes.asked) == 20
