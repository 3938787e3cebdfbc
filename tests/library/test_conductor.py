"""Conductors: a model that works through skill agents, by a plan that it may revise."""

import asyncio
import json
from typing import Any, cast

import pytest

from podwright import (
    Agent,
    ApprovalRequired,
    ApprovalStep,
    Conductor,
    EchoModel,
    FunctionModel,
    LimitExceededError,
    RunLimits,
    ScriptedModel,
    Usage,
    Workflow,
)
from podwright.errors import (
    BlueprintValidationError,
    ConfigurationError,
    LoopLimitError,
    ModelError,
    OutputError,
    ToolArgumentsError,
)
from podwright.testing import ModelResponse, ToolCall, assert_events, events_of


def picked(trace: Any, *types: str) -> list[Any]:
    """The events of these types; a type checker cannot know which they are."""
    return events_of(trace, *types)


def plan(*steps: tuple[str, str]) -> str:
    return json.dumps({"steps": [{"skill": skill, "task": task} for skill, task in steps]})


def skills(**answers: str) -> list[Agent]:
    return [Agent(name, f"You {name}.", ScriptedModel(*[answer] * 5)) for name, answer in answers.items()]


def task(skill: str, text: str, call: str = "call_1") -> ToolCall:
    return ToolCall.of(skill, id=call, task=text)


def test_skills_are_tools() -> None:
    """Each skill is offered as a tool with one text argument, and called as a nested run."""
    model = ScriptedModel(task("search", "find it"), task("write", "say it"), "done")
    desk = Conductor("desk", "Lead.", model, skills(search="found", write="written"))
    result = desk.run("the moon", trace=True)
    assert result.value == "done"
    offered = [tool["function"] for tool in model.requests[0].tools]
    assert [(one["name"], one.get("description")) for one in offered] == [
        ("search", "You search."), ("write", "You write."),
    ]  # fmt: skip
    assert offered[0]["parameters"]["required"] == ["task"]
    assert [message.content for message in model.requests[0].messages] == ["Lead.", "the moon"]
    assert model.requests[1].messages[-1].content == "found"
    assert_events(
        result,
        "run_started component=desk kind=conductor",
        "tool_call_started tool=search",
        "step_started step=search step_type=skill_step path=[0]",
        "run_started component=search",
        "run_finished component=search value=found",
        "step_finished step=search outcome=ok",
        "tool_call_finished tool=search output=found",
        "step_started step=write step_type=skill_step path=[1]",
        "run_finished component=desk value=done",
    )
    started = {event.component: event for event in picked(result, "run_started")}
    assert started["search"].input == "find it"
    assert started["search"].parent_id == started["desk"].run_id
    assert not picked(result, "plan_made")


def test_usage_of_skills_rolls_up(heard: Any) -> None:
    """What the skills used counts to the conductor, by model too."""
    used = Usage(input_tokens=10, output_tokens=5, cost=0.5)
    skill = Agent("search", "Search.", ScriptedModel(ModelResponse("found", usage=used), name="offline/skill"))
    model = ScriptedModel(
        ModelResponse(tool_calls=(task("search", "x"),), usage=used), ModelResponse("done", usage=used)
    )
    desk = Conductor("desk", "Lead.", model, [skill], event_manager=heard.manager)
    desk.run("?")
    assert desk.last_usage == Usage(
        30, 15, model_calls=3, tool_calls=1, cost=1.5,
        by_model={
            "offline/scripted": Usage(20, 10, model_calls=2, cost=1.0),
            "offline/skill": Usage(10, 5, model_calls=1, cost=0.5),
        },
    )  # fmt: skip
    assert skill.last_usage.total_tokens == 15
    assert heard.events[-1].usage == desk.last_usage


def test_a_plan_comes_first() -> None:
    """With planning the model makes a plan: an event and a step of its own, before any skill is called."""
    model = ScriptedModel(
        plan(("search", "find it"), ("write", "say it")), task("search", "find it"), task("write", "say it"), "done"
    )
    desk = Conductor("desk", "Lead.", model, skills(search="found", write="written"), planning=True)
    result = desk.run("the moon", trace=True)
    assert result.value == "done"
    assert_events(
        result,
        "step_started step=plan step_type=plan",
        "model_call_finished",
        "plan_made revision=0",
        "step_finished step=plan outcome=ok",
        "step_started step=search step_type=plan_step path=[0]",
        "step_finished step=search step_type=plan_step outcome=ok",
        "step_started step=write step_type=plan_step path=[1]",
        "run_finished component=desk",
    )
    (made,) = picked(result, "plan_made")
    assert [(step.skill, step.task) for step in made.steps] == [("search", "find it"), ("write", "say it")]
    first, second = model.requests[:2]
    assert first.output is not None
    assert list(first.tools) == []
    assert "- search: You search.\n- write: You write." in first.messages[-1].content
    assert [tool["function"]["name"] for tool in second.tools] == ["search", "write", "revise_plan"]
    assert "1. search: find it\n2. write: say it" in second.messages[-2].content


def test_a_plan_may_be_revised() -> None:
    """The model may put another plan in the place of the first; each revision is an event with its number."""
    revision = ToolCall("call_2", "revise_plan", plan(("write", "say it twice")))
    model = ScriptedModel(
        plan(("search", "find it")), task("search", "find it"), revision, task("write", "say it twice"), "done"
    )
    desk = Conductor("desk", "Lead.", model, skills(search="found", write="written"), planning=True)
    result = desk.run("the moon", trace=True)
    assert result.value == "done"
    assert [event.revision for event in picked(result, "plan_made")] == [0, 1]
    assert_events(
        result,
        "step_started step=search step_type=plan_step",
        "plan_made revision=1",
        "tool_call_finished tool=revise_plan",
        "step_started step=write step_type=plan_step",
    )
    assert model.requests[3].messages[-1].content == "The plan is now:\n1. write: say it twice"


def test_what_the_plan_does_not_have_is_a_skill_step() -> None:
    """A skill call that the plan does not have, or no more of, is a `skill_step`."""
    calls = [task("search", "1", "a"), task("search", "2", "b"), task("write", "3", "c")]
    model = ScriptedModel(plan(("search", "find it")), calls, "done")
    desk = Conductor("desk", "Lead.", model, skills(search="found", write="written"), planning=True)
    steps = picked(desk.run("?", trace=True), "step_started")
    assert [(event.step, event.step_type, event.path) for event in steps] == [
        ("plan", "plan", ()), ("search", "plan_step", (0,)), ("search", "skill_step", (1,)),
        ("write", "skill_step", (2,)),
    ]  # fmt: skip


def test_a_plan_that_does_not_fit() -> None:
    """A plan with an unknown skill, and an empty one, go back to the model; one that never fits is an OutputError."""
    model = ScriptedModel(plan(("sing", "la")), plan(), plan(("search", "find it")), "done")
    desk = Conductor("desk", "Lead.", model, skills(search="found"), planning=True)
    assert desk.run("?") == "done"
    assert "does not fit" in model.requests[1].messages[-1].content
    with pytest.raises(OutputError):
        Conductor("desk", "Lead.", ScriptedModel(*[plan()] * 2), skills(search="x"), planning=True, max_loops=2).run(
            "?"
        )


def test_a_revision_that_does_not_fit() -> None:
    """A revised plan that does not fit goes back once, and then fails."""
    wrong = ToolCall("call_1", "revise_plan", plan(("sing", "la")))
    model = ScriptedModel(plan(("search", "x")), wrong, "done")
    desk = Conductor("desk", "Lead.", model, skills(search="found"), planning=True)
    result = desk.run("?", trace=True)
    assert len(picked(result, "plan_made")) == 1
    assert "revised plan does not fit" in model.requests[2].messages[-1].content
    desk = Conductor(
        "desk", "Lead.", ScriptedModel(plan(("search", "x")), wrong, wrong), skills(search="x"), planning=True
    )
    with pytest.raises(ToolArgumentsError):
        desk.run("?")


@pytest.mark.parametrize("arguments", [{}, {"task": 5}, {"task": "x", "more": 1}, {"tasks": "x"}])
def test_a_skill_that_is_called_wrongly(arguments: dict[str, Any]) -> None:
    """A skill takes one text; anything else goes back to the model."""
    model = ScriptedModel(ToolCall.of("search", **arguments), "sorry")
    desk = Conductor("desk", "Lead.", model, skills(search="found"))
    assert desk.run("?") == "sorry"
    assert model.requests[1].messages[-1].content.startswith("Error: Skill 'search' takes one text, 'task'")


async def test_skills_of_one_turn_run_together() -> None:
    """Several skills called in one turn run concurrently."""
    gate = asyncio.Barrier(2)

    async def meet(_: Any) -> str:
        async with asyncio.timeout(10), gate:
            return "met"

    members = [Agent(name, "Meet.", FunctionModel(meet)) for name in ("one", "two")]
    model = ScriptedModel([task("one", "x", "a"), task("two", "y", "b")], "both met")
    assert await Conductor("desk", "Lead.", model, members).arun("?") == "both met"


def test_a_failing_skill_fails_the_conductor(heard: Any, assert_sound: Any) -> None:
    """A skill's failure is the conductor's: the error names the skill, the run is the conductor's."""
    broken = Agent("search", "Search.", ScriptedModel(ValueError("no")))
    desk = Conductor(
        "desk", "Lead.", ScriptedModel(task("search", "x"), "never"), [broken], event_manager=heard.manager
    )
    with pytest.raises(ModelError) as caught:
        desk.run("?")
    assert caught.value.component == "search"
    assert caught.value.run_id == heard.events[0].run_id
    assert_sound(heard.events)
    assert_events(
        heard.events, "run_failed component=search", "tool_call_failed tool=search", "run_failed component=desk"
    )


def test_limits_hold_over_skills() -> None:
    """A conductor's limits count the calls of its skills."""
    model = ScriptedModel(task("search", "x"), "never")
    desk = Conductor("desk", "Lead.", model, skills(search="found"), limits=RunLimits(model_calls=2))
    with pytest.raises(LimitExceededError):
        desk.run("?")
    assert len(model.requests) == 1


def test_max_loops_are_its_own_calls() -> None:
    """`max_loops` counts the conductor's own model calls, neither its plan nor its skills'."""
    model = ScriptedModel(plan(("search", "x")), task("search", "x"), "done")
    assert Conductor("desk", "Lead.", model, skills(search="f"), planning=True, max_loops=2).run("?") == "done"
    with pytest.raises(LoopLimitError):
        Conductor("desk", "Lead.", ScriptedModel(*[task("search", "x")] * 2), skills(search="f"), max_loops=2).run("?")


def test_other_kinds_as_skills() -> None:
    """Workflows and conductors may be skills; a workflow answers with what it wrote last."""
    flow = Workflow("flow", skills(first="one", last="two"), description="Does two things.")
    inner = Conductor("inner", "Lead.", ScriptedModel(task("deep", "x"), "inner answer"), skills(deep="deep answer"))
    model = ScriptedModel([task("flow", "x", "a"), task("inner", "y", "b")], "done")
    result = Conductor("desk", "Lead.", model, [flow, inner]).run("?", trace=True)
    assert [message.content for message in model.requests[1].messages[-2:]] == ["two", "inner answer"]
    assert model.requests[0].tools[0]["function"].get("description") == "Does two things."
    deep = next(event for event in picked(result, "run_started") if event.component == "deep")
    assert deep.path == (1, 0)


def test_a_skill_that_waits_for_a_person(heard: Any) -> None:
    """A workflow that pauses as a skill pauses the conductor."""
    flow = Workflow("flow", [ApprovalStep("really?")])
    desk = Conductor("desk", "Lead.", ScriptedModel(task("flow", "x")), [flow], event_manager=heard.manager)
    with pytest.raises(ApprovalRequired, match=r"really\?"):
        desk.run("?")
    assert heard.types()[-1] == "run_paused"


def test_names_that_are_no_tool_names() -> None:
    """Skills whose names a provider would refuse get names that it takes, each its own."""
    model = ScriptedModel(ToolCall.of("news_desk_2", task="x"), "done")
    members = skills(**{"news desk": "first", "news-desk": "dash", "news_desk": "second", "revise_plan": "third"})
    desk = Conductor("desk", "Lead.", model, members)
    assert desk.run("?") == "done"
    assert [tool["function"]["name"] for tool in model.requests[0].tools] == [
        "news_desk", "news-desk", "news_desk_2", "revise_plan_2",
    ]  # fmt: skip
    assert model.requests[1].messages[-1].content == "second"


def test_runs_at_once_keep_their_plans_apart() -> None:
    """Runs at once of one conductor do not mix their plans."""
    desk = Conductor("desk", "Lead.", EchoModel(), [Agent("a", "A.", EchoModel()), Agent("b", "B.", EchoModel())])
    planned = Conductor.from_blueprint(desk.to_blueprint(), planning=True)

    async def many() -> list[Any]:
        return await asyncio.gather(*(planned.arun(str(number), trace=True) for number in range(50)))

    for number, result in enumerate(asyncio.run(many())):
        (made,) = [event for event in picked(result, "plan_made") if event.revision == 0]
        assert [(step.skill, step.task) for step in made.steps] == [("a", str(number)), ("b", str(number))]


def test_wrong_skills() -> None:
    """A conductor without skills, and one with something else among them, are refused."""
    with pytest.raises(BlueprintValidationError):
        Conductor("desk", "Lead.", EchoModel(), [])
    with pytest.raises(ConfigurationError, match="no agent"):
        Conductor("desk", "Lead.", EchoModel(), cast("Any", ["no agent"]))
