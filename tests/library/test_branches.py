"""Branches of a parallel step that write one name: refused, or collected as a list; nothing is lost in silence."""

from __future__ import annotations

import json
from functools import partial
from typing import Any

import pytest
from tests.library.shapes import Json, problems_of

from podwright import (
    Agent,
    AgentStep,
    ApprovalRequired,
    ApprovalStep,
    ConditionStep,
    Conductor,
    FunctionStep,
    LoopStep,
    MapStep,
    ParallelStep,
    ScriptedModel,
    TryStep,
    Workflow,
    blueprints,
)
from podwright.blueprints import problems
from podwright.blueprints.diff import blueprint_changes
from podwright.blueprints.flowchart import mermaid
from podwright.errors import ContextError, ToolError
from podwright.testing import ToolCall


def say(text: str) -> str:
    """Say a text."""
    return text


def details(text: str) -> dict[str, str]:
    """Return a text as data."""
    return {"text": text}


def function(text: str, output: str | None = "found") -> Json:
    keys: Json = {"arguments": {"text": text}}
    if output:
        keys["output"] = output
    return {"type": "function_step", "name": text, "function": "say", **keys}


def agent(name: str, **keys: Any) -> Json:
    return {"type": "agent_step", "name": name, "agent": "echo", **keys}


def when(
    value: str, then: list[Json], otherwise: list[Json] | None = None
) -> Json:
    args = {"value": "{input}", "to": value}
    step: Json = {
        "type": "condition_step",
        "name": f"when {value}",
        "condition": {"name": "equals", "args": args},
        "then": then,
    }
    if otherwise is not None:
        step["else"] = otherwise
    return step


def around(step_type: str, *steps: Json, **keys: Any) -> Json:
    return {"type": step_type, "name": step_type, "steps": list(steps), **keys}


def ask(name: str, **keys: Any) -> Json:
    return {"type": "approval_step", "name": name, "message": "?", **keys}


def parallel(*branches: list[Json], **keys: Any) -> Json:
    return {
        "type": "parallel_step",
        "name": "both",
        "branches": list(branches),
        **keys,
    }


def flow(*steps: Json) -> Json:
    return {"type": "Workflow", "name": "flow", "steps": list(steps)}


UNTIL = {"name": "is_empty", "args": {"value": ""}}
X = function("x")
WRITERS: dict[str, tuple[Json, str]] = {
    "function": (X, ""),
    "function without output": (function("x", output=None), ""),
    "agent": (agent("a", output="found"), ""),
    "agent without output": (agent("a"), ""),
    "both sides of a condition": (when("x", [X], [X]), "/then/0"),
    "one side of a condition": (when("x", [X]), "/then/0"),
    "loop": (around("loop_step", X, until=UNTIL, max_iterations=2), "/steps/0"),
    "map": (around("map_step", X, over="input", **{"as": "item"}), "/steps/0"),
    "try": (around("try_step", X, retries=1), "/steps/0"),
    "catch": (
        around("try_step", function("y", "other"), catch=[X]),
        "/catch/0",
    ),
    "nested workflow": (
        {"type": "workflow_step", "name": "w", "workflow": flow(X)},
        "/workflow/steps/0",
    ),
    "nested parallel": (parallel([X], [function("z", "z")]), "/branches/0/0"),
    "collected": (parallel([X], [X], collect=True), "/branches/0/0"),
    "after a rejection": (ask("ask", on_reject=[X]), "/on_reject/0"),
    "options": (ask("found", options=["yes", "no"]), ""),
    "edit": (ask("ask", edit={"found": {}}), "/edit/found"),
}
"""Steps that write a name, and where they do so, from their own JSON pointer."""


@pytest.mark.parametrize("second", WRITERS)
def test_two_branches_that_write_one_name_are_a_problem(second: str) -> None:
    """Whatever writes it, the problem is at the later writer and names both."""
    step, place = WRITERS[second]
    for first, (other, _) in WRITERS.items():
        uncertain = ("one side of a condition", "catch", "after a rejection")
        if first in uncertain and second in uncertain:
            continue
        names = [_name_of(writer) for writer in (first, second)]
        if names[0] != names[1]:
            continue
        blueprint = flow(
            function("0", "0"), parallel([other], [function("1", "1"), step])
        )
        found = problems(blueprint)
        pointer = f"/steps/1/branches/1/1{place}"
        [problem] = [item for item in found if item.pointer == pointer]
        assert "branch 0" in problem.detail
        assert "branch 1" in problem.detail
        assert problem.suggestion
        assert problems_of(partial(load, blueprint)) == found
        unchecked = problems_of(partial(load, blueprint, validate=False))
        assert unchecked == found


def _name_of(writer: str) -> str:
    defaults = {
        "function without output": "say_output",
        "agent without output": "echo_output",
    }
    return defaults.get(writer, "found")


def load(blueprint: Json, **options: Any) -> Workflow:
    echo = Agent("echo", "", "offline/echo")
    return Workflow.from_blueprint(
        blueprint,
        {"echo": echo},
        functions={"say": say, "details": details},
        **options,
    )


@pytest.mark.parametrize(
    "steps",
    [
        [when("x", [X], [X])],
        [around("try_step", X, catch=[X])],
        [X, function("y")],
        [parallel([X, X], [function("y", "other")])],
        [parallel([when("x", [X])], [when("y", [function("y")])])],
        [parallel([ask("sure")], [ask("sure")])],
        [parallel([X]), parallel([X])],
        [parallel([around("map_step", X, X, over="input", **{"as": "i"})])],
    ],
)
def test_writers_of_which_one_is_executed_may_share_a_name(
    steps: list[Json],
) -> None:
    """Alternatives, and steps one after the other, lose nothing that is not meant to be replaced."""
    assert problems(flow(*steps)) == []


def test_each_pair_is_told_at_its_later_step() -> None:
    """Three branches are two problems, and inner parallel steps have their own."""
    inner = parallel([function("a", "a")], [function("b", "a")])
    found = problems(flow(parallel([X, inner], [X], [function("y")])))
    assert sorted(problem.pointer for problem in found) == [
        "/steps/0/branches/0/1/branches/1/0",
        "/steps/0/branches/1/0",
        "/steps/0/branches/2/0",
    ]


def test_alternatives_that_were_both_executed_are_an_error_of_the_run() -> None:
    """Whether conditions exclude each other, only the run shows; then one value would be lost."""
    blueprint = flow(parallel([when("x", [X])], [when("x", [function("y")])]))
    assert load(blueprint).run("z") == {"input": "z"}
    with pytest.raises(ContextError, match="found") as caught:
        load(blueprint).run("x")
    # what was paid is kept: with the way out, the run goes on without another call
    blueprint["steps"][0]["collect"] = True
    result = load(blueprint).run(
        caught.value.context, resume_path=caught.value.resume_path
    )
    assert json.loads(result["found"]) == ["x", "y"]


def test_another_branch_is_not_read() -> None:
    """A branch cannot read what another one of the same step writes, so its template is a problem."""
    found = problems_of(
        lambda: load(
            flow(parallel([X], [{**function("{found}", "other"), "name": "y"}]))
        )
    )
    assert [problem.pointer for problem in found] == [
        "/steps/0/branches/1/0/arguments/text"
    ]


# --- Collected outputs ------------------------------------------------------------------------------------------------


def test_collected_outputs_are_a_list_in_the_order_of_the_branches() -> None:
    """The three agents of a vote keep their answers, and later steps read them one by one."""
    translator = Agent("spanish", "Translate.", "offline/echo")
    votes = [[AgentStep(translator, input=f"{n} {{input}}")] for n in range(3)]
    picker = Agent("picker", "Pick.", "offline/echo")
    pick = AgentStep(picker, input="{spanish_output.2} of {spanish_output}")
    flow = Workflow("vote", [ParallelStep(votes, collect=True), pick])
    result = flow.run("hi", trace=True)
    answers = ["Echo: 0 hi", "Echo: 1 hi", "Echo: 2 hi"]
    assert result.data["spanish_output"] == answers
    assert json.loads(result.value["spanish_output"]) == answers
    assert result.value["picker_output"] == (
        f"Echo: Echo: 2 hi of {json.dumps(answers)}"
    )


def test_only_shared_names_are_collected() -> None:
    """A name of one branch stays a value; a branch that has not written a shared name has null in the list."""
    blueprint = flow(
        parallel(
            [function("a", "notes"), X],
            [when("y", [function("y")])],
            [function("z")],
            collect=True,
        )
    )
    result = load(blueprint).run("x", trace=True)
    assert result.data["notes"] == "a"
    assert result.data["found"] == ["x", None, "z"]
    assert list(result.data) == ["input", "notes", "found"]
    nobody = flow(parallel([when("1", [X])], [when("2", [X])], collect=True))
    assert load(nobody).run("x") == {"input": "x"}


def test_one_branch_is_a_list_of_one() -> None:
    result = load(flow(parallel([X], collect=True))).run("x", trace=True)
    assert result.data["found"] == ["x"]


def test_data_is_collected_as_data() -> None:
    """The values stay data, in lists within lists too, and in a map."""
    one = {**X, "function": "details"}
    inner = parallel([one], [one], collect=True)
    outer = parallel([inner], [inner], collect=True)
    value = {"text": "x"}
    assert load(flow(outer)).run("x", trace=True).data["found"] == [
        [value, value],
        [value, value],
    ]
    each = around("map_step", inner, over="input", **{"as": "item"})
    result = load(flow(each)).run("1\n2", trace=True)
    assert result.data["found"] == [[value, value], [value, value]]


@pytest.mark.parametrize(
    ("step", "pointer"),
    [
        (
            parallel([X], [function("y", "other")], collect=True),
            "/steps/0/collect",
        ),
        (
            parallel(
                [X, ask("a", edit={"input": {}})],
                [X, ask("b", edit={"input": {}})],
                collect=True,
            ),
            "/steps/0/branches/1/1/edit/input",
        ),
        (parallel([X], [X], collect="yes"), "/steps/0/collect"),
    ],
)
def test_what_cannot_be_collected_is_a_problem(
    step: Json, pointer: str
) -> None:
    """Nothing in common, and changes that two people would make to one value."""
    assert [problem.pointer for problem in problems(flow(step))] == [pointer]


def test_a_field_of_a_list_is_a_problem() -> None:
    """The items of a collected name have numbers, not names."""
    blueprint = flow(
        parallel([X], [X], collect=True),
        {**function("{found.text}", "last"), "name": "y"},
    )
    found = problems_of(lambda: load(blueprint))
    assert [problem.pointer for problem in found] == ["/steps/1/arguments/text"]


def test_decisions_of_branches_are_collected() -> None:
    """Two people who decide at once are both heard, after a stop and from saved progress."""
    steps = [
        ParallelStep(
            [[ApprovalStep("1?", "ok", options=["yes", "no"])]] * 2,
            collect=True,
        ),
        FunctionStep(say, {"text": "{ok.0.decision} {ok.1.decision}"}),
    ]
    flow = Workflow("flow", steps)
    with pytest.raises(ApprovalRequired) as first:
        flow.run("x")
    saved = json.loads(json.dumps(first.value.decide("yes")))
    with pytest.raises(ApprovalRequired) as second:
        flow.run(saved, resume_path=first.value.resume_path)
    last = second.value.decide("no")
    result = flow.run(last, resume_path=second.value.resume_path)
    assert result["say_output"] == "yes no"


def test_a_stopped_branch_goes_on() -> None:
    """What the other branches wrote before a failure is in the list after the resumption."""
    fails = [True, False]

    def once(text: str) -> str:
        if fails.pop(0):
            raise RuntimeError
        return text

    branches = [
        [FunctionStep(say, {"text": "1"}, output="found")],
        [FunctionStep(once, {"text": "2"}, output="found")],
    ]
    flow = Workflow("flow", [ParallelStep(branches, collect=True)])
    with pytest.raises(ToolError, match="once") as stopped:
        flow.run("x")
    context = json.loads(json.dumps(stopped.value.context))
    result = flow.run(context, resume_path=stopped.value.resume_path)
    assert json.loads(result["found"]) == ["1", "2"]


def test_collect_is_part_of_the_blueprint() -> None:
    """It survives the export, is breaking in a comparison, and is in the flowchart; false is the same as absent."""
    step = ParallelStep([[AgentStep("echo")]] * 2, collect=True)
    echo = Agent("echo", "", "offline/echo")
    exported = Workflow("flow", [step], {"echo": echo}).to_blueprint()
    assert exported["steps"][0]["collect"] is True
    assert load(exported).to_blueprint() == exported
    plain = flow(parallel([X]))
    collecting = flow(parallel([X], collect=True))
    without = flow(parallel([X], collect=False))
    [change] = blueprint_changes(plain, collecting)
    assert change.breaking
    assert blueprint_changes(plain, without) == []
    assert mermaid(plain) != mermaid(collecting)
    kept = blueprints.check(without)
    assert load(kept).run("x")["found"] == "x"


# --- Maps, loops and conductors ---------------------------------------------------------------------------------------


def test_each_item_of_a_map_keeps_what_it_wrote() -> None:
    """Every name that the body writes becomes a list, the name of the item and names from before included."""
    body = [
        FunctionStep(say, {"text": "{item}!"}, output="item"),
        TryStep(
            [FunctionStep(say, {"text": "{item}?"}, output="before")], (), 1
        ),
        ConditionStep(
            {"name": "equals", "args": {"value": "{item}", "to": "a!"}},
            [FunctionStep(say, {"text": "{item}"}, output="some")],
        ),
    ]
    steps = [
        FunctionStep(say, {"text": "0"}, output="before"),
        MapStep("input", "item", body),
    ]
    result = Workflow("flow", steps).run("a\nb")
    assert json.loads(result["item"]) == ["a!", "b!"]
    assert json.loads(result["before"]) == ["a!?", "b!?"]
    assert json.loads(result["some"]) == ["a!", None]


def edited(flow: Workflow, values: list[str]) -> dict[str, Any]:
    """The result of a workflow in which people change `draft`, one after the other; each state is saved as JSON."""
    arguments: Json = {"context": {"input": "a\nb"}}
    for value in values:
        with pytest.raises(ApprovalRequired) as pause:
            flow.run(**arguments)
        given = pause.value.decide(values={"draft": value})
        arguments = {
            "context": json.loads(json.dumps(given)),
            "resume_path": pause.value.resume_path,
        }
    return flow.run(**arguments)


def test_what_people_change_in_a_part_is_what_it_wrote() -> None:
    """An output that a person has changed is the changed one after the parallel or map step; a later output wins."""
    draft = FunctionStep(say, {"text": "draft"}, output="draft")
    ask = ApprovalStep("{draft}?", edit={"draft": {"type": "string"}})
    again = FunctionStep(say, {"text": "{draft}!"}, output="draft")
    each = MapStep("input", "item", [draft, ask])
    result = edited(Workflow("flow", [each]), ["1", "2"])
    assert json.loads(result["draft"]) == ["1", "2"]
    both = ParallelStep([[draft, ask], [FunctionStep(say, {"text": "x"})]])
    assert edited(Workflow("flow", [both]), ["1"])["draft"] == "1"
    each = MapStep("input", "item", [draft, ask, again, ask])
    result = edited(Workflow("flow", [each]), ["1", "2", "3", "4"])
    assert json.loads(result["draft"]) == ["2", "4"]
    both = ParallelStep([[draft, ask, again]])
    assert edited(Workflow("flow", [both]), ["1"])["draft"] == "1!"


def test_a_loop_collects_in_each_iteration() -> None:
    """The list is that of the last iteration, and the condition reads its items."""
    loop = LoopStep(
        [
            ParallelStep(
                [
                    [
                        FunctionStep(
                            say, {"text": "No. {iteration}"}, output="found"
                        )
                    ]
                ]
                * 2,
                collect=True,
            )
        ],
        {"name": "equals", "args": {"value": "{found.0}", "to": "No. 2"}},
        max_iterations=3,
    )
    result = Workflow("flow", [loop]).run("x")
    assert json.loads(result["found"]) == ["No. 2", "No. 2"]


def test_calls_of_one_skill_in_one_turn_keep_both_answers() -> None:
    """A conductor that calls a skill twice at once, and two skills of similar names, is given each answer."""
    calls = [
        ToolCall.of("writer", task="one"),
        ToolCall.of("writer", task="two"),
        ToolCall.of("Writer", task="three"),
    ]

    def last(request: Any) -> str:
        return " | ".join(m.text for m in request.messages if m.role == "tool")

    desk = Conductor(
        "desk",
        "Lead.",
        ScriptedModel(calls, last),
        [Agent(name, "", "offline/echo") for name in ("writer", "Writer")],
    )
    assert desk.run("x") == "Echo: one | Echo: two | Echo: three"


def test_two_people_who_change_one_value_are_not_told_that_both_were_heard() -> (
    None
):
    """Branches that change one value under conditions fail the run, with `collect` too; their own outputs they may."""
    draft = FunctionStep(say, {"text": "draft"}, output="draft")
    ask = ApprovalStep("{draft}?", edit={"draft": {"type": "string"}})
    always: Json = {"name": "equals", "args": {"value": "1", "to": "1"}}
    own = FunctionStep(say, {"text": "x"}, output="found")
    branch = [own, ConditionStep(always, [ask])]
    lost = Workflow("flow", [draft, ParallelStep([branch] * 2, collect=True)])
    with pytest.raises(ContextError, match="draft"):
        edited(lost, ["1", "2"])
    kept = [[draft, ConditionStep(always, [ask])]] * 2
    result = edited(
        Workflow("flow", [ParallelStep(kept, collect=True)]), ["1", "2"]
    )
    assert json.loads(result["draft"]) == ["1", "2"]
