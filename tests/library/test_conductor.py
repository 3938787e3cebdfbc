"""Conductors: a model that gives tasks to skill agents, with a plan that it may revise."""

import asyncio
import json
import re
from dataclasses import replace
from typing import Any

import pytest
from tests.library.shapes import events

from podwright import Agent, Conductor, RunLimits, Workflow
from podwright.components import ApprovalStep
from podwright.errors import (
    ApprovalRequired,
    BlueprintValidationError,
    ConfigurationError,
    LimitExceededError,
    LoopLimitError,
    OutputError,
    ToolArgumentsError,
)
from podwright.location import current
from podwright.testing import (
    EchoModel,
    FunctionModel,
    ModelRequest,
    ScriptedModel,
    ToolCall,
    assert_events,
)


def plan(*steps: tuple[str, str]) -> str:
    return json.dumps(
        {"steps": [{"skill": skill, "task": task} for skill, task in steps]}
    )


def task(skill: str, text: str, call: str = "call_1") -> ToolCall:
    return ToolCall.of(skill, id=call, task=text)


SEARCH = task("search", "find it")
PLAN = plan(("search", "find it"))


def desk(
    *answers: Any, skills: Any = ("search", "write"), **options: Any
) -> tuple[Conductor, ScriptedModel]:
    """A conductor with a scripted model, and skills that answer with their names."""
    model = ScriptedModel(*answers)
    members = [
        Agent(name, f"You {name}.", ScriptedModel(*[f"{name} done"] * 5))
        for name in skills
    ]
    return Conductor("desk", "Lead.", model, members, **options), model


def test_skills_are_tools_with_one_task() -> None:
    """Each skill is a tool with one text argument; a call of it is a nested run with its own step."""
    conductor, model = desk(SEARCH, task("write", "say it"), "done")
    result = conductor.run("the moon", trace=True)
    assert result.value == "done"
    offered = [tool["function"] for tool in model.requests[0].tools]
    assert [(tool["name"], tool.get("description")) for tool in offered] == [
        ("search", "You search."), ("write", "You write."),
    ]  # fmt: skip
    assert offered[0]["parameters"]["required"] == ["task"]
    assert [message.content for message in model.requests[0].messages] == [
        "Lead.",
        "the moon",
    ]
    assert model.requests[1].messages[-1].text == "search done"
    parts = [
        "tool_call_started tool=search",
        "step_started step_type=skill_step path=[0]",
        "run_started",
    ]
    parts += [
        "step_finished step=search outcome=ok",
        "tool_call_finished tool=search",
    ]
    assert_events(
        result,
        *parts,
        "step_started step=write path=[1]",
        "run_finished component=desk value=done",
    )
    started = {
        event.component: event for event in events(result, "run_started")
    }
    assert (started["search"].input, started["search"].parent_id) == (
        "find it",
        started["desk"].run_id,
    )
    assert not events(result, "plan_made")


def test_with_planning_a_plan_comes_first() -> None:
    """The plan is a step and an event of its own; skill calls that it lists are plan steps, others skill steps."""
    calls = [SEARCH, task("search", "again", "b"), task("write", "say it", "c")]
    conductor, model = desk(
        plan(("search", "find it"), ("write", "say it")),
        calls,
        "done",
        planning=True,
    )
    result = conductor.run("the moon", trace=True)
    assert_events(
        result,
        "step_started step=plan",
        "plan_made revision=0",
        "step_finished step=plan outcome=ok",
    )
    (made,) = events(result, "plan_made")
    assert [(step.skill, step.task) for step in made.steps] == [
        ("search", "find it"),
        ("write", "say it"),
    ]
    assert [(event.step, event.step_type, event.path) for event in events(result, "step_started")] == [
        ("plan", "plan", ()), ("search", "plan_step", (0,)), ("search", "skill_step", (1,)),
        ("write", "plan_step", (2,)),
    ]  # fmt: skip
    first, second = model.requests[:2]
    assert first.output is not None
    assert list(first.tools) == []
    assert (
        "- search: You search.\n- write: You write." in first.messages[-1].text
    )
    assert [tool["function"]["name"] for tool in second.tools] == [
        "search",
        "write",
        "revise_plan",
    ]
    assert "1. search: find it\n2. write: say it" in second.messages[-2].text


def test_the_model_may_revise_its_plan() -> None:
    """Each revision is an event with its number, and the model sees the new plan."""
    revision = ToolCall("call_2", "revise_plan", plan(("write", "say it")))
    conductor, model = desk(
        PLAN, SEARCH, revision, task("write", "say it"), "done", planning=True
    )
    result = conductor.run("the moon", trace=True)
    assert result.value == "done"
    assert [event.revision for event in events(result, "plan_made")] == [0, 1]
    assert_events(
        result,
        "plan_made revision=1",
        "step_started step=write step_type=plan_step",
    )
    assert "1. write: say it" in model.requests[3].messages[-1].text


def test_an_invalid_plan_goes_back_to_the_model() -> None:
    """A plan with an unknown skill, and an empty one, are corrected; without a valid one it is an OutputError."""
    conductor, model = desk(
        plan(("sing", "la")), plan(), PLAN, "done", planning=True
    )
    assert conductor.run("?") == "done"
    assert "'search'" in model.requests[1].messages[-1].text
    with pytest.raises(OutputError):
        desk(plan(), plan(), planning=True, max_loops=2)[0].run("?")


def test_an_invalid_revision_goes_back_to_the_model() -> None:
    """An invalid revision is corrected as often as `max_tool_retries` says; the next one is a ToolArgumentsError."""
    wrong = ToolCall("call_1", "revise_plan", plan(("sing", "la")))
    conductor, model = desk(PLAN, wrong, "done", planning=True)
    assert len(events(conductor.run("?", trace=True), "plan_made")) == 1
    assert "/steps/0/skill" in model.requests[2].messages[-1].text
    with pytest.raises(ToolArgumentsError):
        desk(PLAN, wrong, wrong, planning=True, max_tool_retries=1)[0].run("?")


@pytest.mark.parametrize(
    "arguments", [{}, {"task": 5}, {"task": "x", "more": 1}]
)
def test_a_wrong_skill_call_goes_back_to_the_model(
    arguments: dict[str, Any],
) -> None:
    """A skill takes exactly one text."""
    conductor, model = desk(ToolCall.of("search", **arguments), "sorry")
    assert conductor.run("?") == "sorry"
    assert model.requests[1].messages[-1].text.startswith("Error: ")


def test_limits_include_the_calls_of_skills() -> None:
    """The conductor's limits count its skills; `max_loops` counts its own model calls after the plan."""
    conductor, model = desk(SEARCH, "never", limits=RunLimits(model_calls=2))
    with pytest.raises(LimitExceededError):
        conductor.run("?")
    assert len(model.requests) == 1
    assert (
        desk(PLAN, SEARCH, "done", planning=True, max_loops=2)[0].run("?")
        == "done"
    )
    with pytest.raises(LoopLimitError):
        desk(SEARCH, SEARCH, max_loops=2)[0].run("?")


def test_any_kind_can_be_a_skill() -> None:
    """Workflows and conductors can be skills; a workflow answers with the output that it wrote last."""
    agents = [
        Agent(name, "", ScriptedModel(name)) for name in ("first", "last")
    ]
    flow = Workflow("flow", agents, description="Does two things.")
    inner = Conductor(
        "inner", "Lead.", EchoModel(), [Agent("deep", "", EchoModel())]
    )
    model = ScriptedModel(
        [task("flow", "x", "a"), task("inner", "y", "b")], "done"
    )
    result = Conductor("desk", "Lead.", model, [flow, inner]).run(
        "?", trace=True
    )
    assert model.requests[1].messages[-2].text == "last"
    assert (
        model.requests[0].tools[0]["function"].get("description")
        == "Does two things."
    )
    assert next(
        event.path
        for event in events(result, "run_started")
        if event.component == "deep"
    ) == (1, 0)


def test_an_approval_in_a_skill_pauses_the_conductor(recorder: Any) -> None:
    """A workflow that waits for approval pauses the conductor whose skill it is."""
    flow = Workflow("flow", [ApprovalStep("really?")])
    conductor = Conductor(
        "desk",
        "Lead.",
        ScriptedModel(task("flow", "x")),
        [flow],
        event_manager=recorder.manager,
    )
    with pytest.raises(ApprovalRequired, match=r"really\?"):
        conductor.run("?")
    assert recorder.types()[-1] == "run_paused"


SKILL_NAMES = {
    # the name of a skill, and that of its tool
    "news desk": "news_desk_2",
    "news-desk": "news-desk",
    "news_desk": "news_desk",
    "revise_plan": "revise_plan_2",
    "Reise-Führer": "Reise-Fuhrer",
    "F hrer": "F_hrer",
    "Führer": "Fuhrer",
    "Straße": "Strasse",
    "客服": "skill_9",
    "客户": "skill_10",
    "客服 A": "A",
    "客户 A": "A_2",
    "skill_13": "skill_13",
    "a.b": "a_b",
    "y" * 64: "y" * 64,
    "y" * 65: "y" * 60,
    "y" * 66: "y" * 60 + "_2",
    "🚀": "skill_18",
}


def test_skills_have_valid_and_unique_tool_names() -> None:
    """A name that providers refuse is changed, so that it is valid and unique; its description has the real one."""
    conductor, model = desk(
        ToolCall.of("skill_10", task="x"), "done", skills=SKILL_NAMES
    )
    conductor.run("?")
    offered = [tool["function"] for tool in model.requests[0].tools]
    assert [tool["name"] for tool in offered] == list(SKILL_NAMES.values())
    assert list(conductor.tool_names) == [*SKILL_NAMES.values(), "revise_plan"]
    for name, tool in zip(SKILL_NAMES, offered, strict=True):
        assert re.fullmatch(r"[a-zA-Z0-9_-]{1,64}", tool["name"])
        assert tool.get("description") == (
            f"You {name}." if tool["name"] == name else f"{name}: You {name}."
        )
    assert model.requests[1].messages[-1].text == "客户 done"


def test_a_plan_names_skills_as_their_tools_are_called() -> None:
    """The model plans with the names of the tools, and is told the real ones."""
    conductor, model = desk(
        plan(("skill_1", "x")), "done", skills=["客服"], planning=True
    )
    result = conductor.run("?", trace=True)
    assert [
        step.skill
        for event in events(result, "plan_made")
        for step in event.steps
    ] == ["skill_1"]
    assert "- skill_1: 客服: You 客服." in model.requests[0].messages[-1].text


@pytest.mark.parametrize(
    "arguments",
    [
        '{"steps": "[{\\"skill\\": \\"write\\", \\"task\\": \\"x\\"}]"}',
        '{"steps": {"skill": "write", "task": "x"}}',
    ],
)
def test_a_revision_whose_meaning_is_certain_is_taken(arguments: str) -> None:
    """Steps as JSON text, and one step instead of a list."""
    conductor, _ = desk(
        PLAN,
        ToolCall("c", "revise_plan", arguments),
        "done",
        planning=True,
        max_tool_retries=0,
    )
    made = events(conductor.run("?", trace=True), "plan_made")
    assert [[step.skill for step in event.steps] for event in made] == [
        ["search"],
        ["write"],
    ]


async def test_concurrent_runs_have_separate_plans() -> None:
    """Runs of one conductor at the same time do not share plans."""
    skills = [Agent(name, "", EchoModel()) for name in "ab"]
    conductor = Conductor("desk", "Lead.", EchoModel(), skills, planning=True)
    results = await asyncio.gather(
        *(conductor.arun(str(number), trace=True) for number in range(20))
    )
    for number, result in enumerate(results):
        made = events(result, "plan_made")[0]
        assert [(step.skill, step.task) for step in made.steps] == [
            ("a", str(number)),
            ("b", str(number)),
        ]


def count(text: str) -> int:
    """Count the words of a text."""
    return len(text.split())


def test_a_conductor_has_tools_of_its_own(recorder: Any) -> None:
    """They are called as those of an agent, beside its skills, and are a part of its blueprint."""
    writer = Agent("writer", "Write.", ScriptedModel("Rain comes."))
    model = ScriptedModel(
        [ToolCall.of("writer", task="rain")],
        [ToolCall.of("count", "2", text="Rain comes.")],
        "Two words.",
    )
    desk = Conductor(
        "desk",
        "Lead.",
        model,
        [writer],
        tools=[count],
        event_manager=recorder.manager,
    )
    assert desk.run("rain") == "Two words."
    assert model.requests[2].messages[-1].content == "2"
    tools = [call.tool for call in recorder.of("tool_call_finished")]
    assert tools == ["writer", "count"]
    again = Conductor.from_blueprint(desk.to_blueprint(), [count])
    assert again.to_blueprint() == desk.to_blueprint()
    assert list(again.own_tools()) == ["count"]
    with pytest.raises(BlueprintValidationError, match="'count'"):
        Conductor.from_blueprint(desk.to_blueprint())


@pytest.mark.parametrize("name", ["count", "Count it", "revise_plan"])
def test_a_tool_is_not_called_like_a_skill(name: str) -> None:
    def renamed(text: str) -> int:
        """Count the words of a text."""
        return len(text.split())

    renamed.__name__ = name.replace(" ", "_")
    skill = Agent(name, "", ScriptedModel("2"))
    with pytest.raises(BlueprintValidationError) as caught:
        Conductor("desk", "", ScriptedModel(""), [skill], tools=[renamed])
    (problem,) = caught.value.problems
    assert problem.pointer == "/tools/0/name"


SIZES = {"type": "array", "items": {"$ref": "#/$defs/size"}}
SIZES["$defs"] = {"size": {"type": "integer", "minimum": 1}}
ORDER = {
    "sku": {"type": "string", "description": "The article."},
    "sizes": SIZES,
    "count": {"type": "integer", "default": 1},
    "user": {"type": "string"},
}


def shop(*answers: Any) -> tuple[Conductor, ScriptedModel, ScriptedModel]:
    clerk = ScriptedModel("sold", "sold")
    agent = Agent(
        "clerk", "Sell {count} {sku} of {sizes} to {user}.", clerk, inputs=ORDER
    )
    model = ScriptedModel(*answers)
    return Conductor("shop", "Lead.", model, [agent]), model, clerk


def test_a_skill_asks_for_the_inputs_that_it_declares() -> None:
    """What the run has already is not asked for; what fits no schema goes back to the model before the skill runs."""
    good = {"task": "sell", "sku": "fig", "sizes": [3], "count": "2"}
    wrong = {**good, "sizes": [0], "colour": "red"}
    conductor, model, clerk = shop(
        [ToolCall.of("clerk", **wrong)],
        [ToolCall.of("clerk", **good)],
        "done",
    )
    inputs = {"input": "sell a fig", "user": "Ada"}
    assert conductor.run(inputs) == "done"
    parameters = model.requests[0].tools[0]["function"]["parameters"]
    assert list(parameters["properties"]) == ["task", "sku", "sizes", "count"]
    assert parameters["required"] == ["task", "sku", "sizes"]
    moved = parameters["properties"]["sizes"]["items"]["$ref"]
    assert moved == "#/properties/sizes/$defs/size"
    told = model.requests[1].messages[-1].text
    assert "colour" in told
    (asked,) = clerk.requests
    assert asked.messages[0].text == "Sell 2 fig of [3] to Ada."
    assert asked.messages[1].text.endswith("sell")


@pytest.mark.parametrize("name", ["name", "skill", "self", "inputs", "path"])
def test_an_input_of_a_skill_may_have_any_name(name: str) -> None:
    """Also that of something else in its call."""
    clerk = ScriptedModel("sold")
    skill = Agent(
        "clerk", f"For {{{name}}}.", clerk, inputs={name: {"type": "string"}}
    )
    call = ToolCall.of("clerk", task="sell")
    arguments = json.dumps({"task": "sell", name: "Ada"})
    model = ScriptedModel([replace(call, arguments=arguments)], "done")
    assert Conductor("shop", "Lead.", model, [skill]).run("go") == "done"
    assert clerk.requests[0].messages[0].text == "For Ada."


@pytest.mark.parametrize(
    ("schema", "told"), [({"type": "string"}, "7"), ({"type": "integer"}, 7)]
)
def test_an_input_of_a_skill_may_be_its_task(schema: Any, told: Any) -> None:
    """The model says once what the task is; a task that the caller has named stays."""
    clerk = ScriptedModel("sold", "sold")
    skill = Agent("clerk", "Do {task}.", clerk, inputs={"task": schema})
    call = ToolCall.of("clerk", task=told)
    model = ScriptedModel([call], "done")
    conductor = Conductor("shop", "Lead.", model, [skill])
    assert conductor.run("go") == "done"
    parameters = model.requests[0].tools[0]["function"]["parameters"]
    assert parameters["required"] == ["task"]
    assert clerk.requests[0].messages[0].text == "Do 7."
    model = ScriptedModel([ToolCall.of("clerk", task="8")], "done")
    conductor = Conductor("shop", "Lead.", model, [skill])
    assert conductor.run({"input": "go", "task": told}) == "done"
    system, user = clerk.requests[1].messages
    assert system.text == "Do 7."
    assert "8" in user.text


def test_an_input_of_the_run_is_not_the_models() -> None:
    """A value that the caller gave cannot be replaced by the model."""
    call = ToolCall.of("clerk", task="x", sku="y", sizes=[1], user="Eve")
    conductor, model, clerk = shop([call], "done")
    assert conductor.run({"input": "go", "user": "Ada"}) == "done"
    assert not clerk.requests
    assert "user" in model.requests[1].messages[-1].text


async def test_what_a_tool_of_a_conductor_runs_is_a_part_of_the_call() -> None:
    """A skill is a member, whose calls can be held up; what a tool runs must go on with the tool."""
    seen: dict[str, bool] = {}

    def note(name: str) -> FunctionModel:
        def answer(request: ModelRequest) -> str:
            run = current()
            assert run is not None
            seen[name] = run.in_tool
            return "done"

        return FunctionModel(answer)

    async def helper() -> str:
        """Run an agent."""
        return await Agent("inner", "", note("inner")).arun("go")

    skill = Agent("skill", "", note("skill"))
    model = ScriptedModel(
        [ToolCall.of("skill", task="x"), ToolCall.of("helper", "2")], "done"
    )
    conductor = Conductor("desk", "", model, [skill], tools=[helper])
    assert await conductor.arun("go") == "done"
    assert seen == {"skill": False, "inner": True}


HISTORY = [
    {"role": "user", "content": "I am Ada."},
    {"role": "assistant", "content": "Hello Ada."},
]


def test_a_skill_may_be_given_the_conversation() -> None:
    """It gets what was said before, and what is said now, before its task; another skill gets its task alone."""
    talks, works = ScriptedModel("Ada it is."), ScriptedModel("done")
    skills = [Agent("talker", "Talk.", talks), Agent("worker", "Work.", works)]
    model = ScriptedModel(
        [task("talker", "name her"), task("worker", "work", "2")], "Ada."
    )
    conductor = Conductor("desk", "", model, skills, conversation=["talker"])
    result = conductor.run("Who am I?", messages=HISTORY, trace=True)
    assert result.value == "Ada."
    said = [message.text for message in talks.requests[0].messages]
    assert said == ["Talk.", "I am Ada.", "Hello Ada.", "Who am I?", "name her"]
    # what others have added to an answer of unknown origin is not for the provider of the skill
    assert talks.requests[0].messages[2].provider == "offline"
    alone = [message.text for message in works.requests[0].messages]
    assert alone == ["Work.", "work"]
    blueprint = conductor.to_blueprint()
    assert blueprint["skills"][0]["conversation"] is True
    assert Conductor.from_blueprint(blueprint).to_blueprint() == blueprint
    named = {**blueprint, "skills": []}
    named["skills"] = [
        {"type": "Agent", "name": skill.name, "conversation": True}
        for skill in skills
    ]
    agents = {skill.name: skill for skill in skills}
    again = Conductor.from_blueprint(named, agents=agents)
    assert again.to_blueprint() == named
    with pytest.raises(ConfigurationError, match="'talkr'"):
        Conductor("desk", "", model, skills, conversation=["talkr"])
