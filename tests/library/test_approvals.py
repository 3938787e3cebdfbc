"""Approval steps: what may be decided, what a decision changes, and how a workflow goes on."""

from __future__ import annotations

import json
from typing import Any

import pytest
from tests.library.shapes import Json

from podwright import (
    Agent,
    AgentStep,
    ApprovalRequired,
    ApprovalStep,
    BlueprintValidationError,
    ConditionStep,
    FunctionStep,
    LoopStep,
    MapStep,
    ParallelStep,
    ScriptedModel,
    TryStep,
    Workflow,
    WorkflowStep,
)
from podwright.errors import (
    DECISION,
    ApprovalRejectedError,
    ContextError,
    InputsError,
    PodwrightError,
)
from podwright.events import EventManager
from podwright.journal.journal import Journal
from podwright.messages.approvals import ApprovalId, Decision, Question
from podwright.run.run import execute

TEXT: Json = {"type": "string", "minLength": 1}


def show(text: str) -> str:
    """Return the text."""
    return text


def shown(text: str, output: str = "shown") -> FunctionStep:
    return FunctionStep(show, {"text": text}, output=output)


def paused(flow: Workflow, context: Any, path: Any = None) -> ApprovalRequired:
    with pytest.raises(ApprovalRequired) as caught:
        flow.run(context, resume_path=path)
    # whoever asks the person may be another process
    caught.value.context = json.loads(json.dumps(caught.value.context))
    return caught.value


def decided(
    flow: Workflow, pause: ApprovalRequired, *decision: Any
) -> dict[str, Any]:
    return flow.run(pause.decide(*decision), resume_path=pause.resume_path)


def test_a_plain_approval_is_as_before() -> None:
    """Its decision is known to templates, and is not in the context unless it has a comment."""
    flow = Workflow(
        "flow",
        [
            ApprovalStep("Go?", "go"),
            shown("{go.decision}/{go.comment}"),
        ],
    )
    pause = paused(flow, "hi")
    assert pause.question == Question("Go?")
    assert pause.to_dict()["question"]["options"] == ["approve", "reject"]
    result = flow.run(pause.context, resume_path=pause.resume_path)
    assert result == {"input": "hi", "shown": "approve/"}
    assert decided(flow, pause, "approve", "Fine.") == {
        "go": '{"decision": "approve", "comment": "Fine."}',
        "input": "hi",
        "shown": "approve/Fine.",
    }
    with pytest.raises(ApprovalRejectedError) as caught:
        decided(flow, pause, "reject")
    assert caught.value.resume_path == [0]


def test_options_are_data_for_conditions() -> None:
    """A person chooses one of the options, and the workflow goes on accordingly."""
    is_later = {
        "name": "equals",
        "args": {"value": "{when.decision}", "to": "later"},
    }
    flow = Workflow(
        "flow",
        [
            shown("draft", "draft"),
            ApprovalStep("When?", "when", options=["now", "later"]),
            ConditionStep(
                is_later, [shown("waits")], [shown("{draft} is sent")]
            ),
        ],
    )
    pause = paused(flow, "hi")
    assert pause.question is not None
    assert pause.question.options == ("now", "later")
    assert decided(flow, pause, "later")["shown"] == "waits"
    assert decided(flow, pause, "now")["shown"] == "draft is sent"
    for wrong in ("approve", "Later"):
        with pytest.raises(InputsError) as caught:
            decided(flow, pause, wrong)
        assert [problem.pointer for problem in caught.value.problems] == [
            "/decision"
        ]
        # the question can be answered again
        assert caught.value.resume_path == [1]
        assert caught.value.context is not None
        assert DECISION not in caught.value.context


def test_a_decision_is_not_the_answer_of_the_workflow() -> None:
    """The last output stays the last."""
    inner = Workflow(
        "inner",
        [
            shown("draft", "draft"),
            ApprovalStep("Good?", "good", options=["yes", "no"]),
        ],
    )
    outer = Workflow("outer", [AgentStep(inner, output="letter")])
    pause = paused(outer, "hi")
    assert decided(outer, pause, "yes")["letter"] == "draft"


def test_a_person_may_change_values() -> None:
    """Only what the step names, to values that fit; the question has the present ones."""
    flow = Workflow(
        "flow",
        [
            shown("Dear all", "draft"),
            ApprovalStep(
                "Send?",
                "send",
                edit={"draft": TEXT, "copies": {"type": "integer"}},
            ),
            shown("{draft} x{copies}"),
        ],
    )
    pause = paused(flow, {"copies": 2})
    assert pause.question is not None
    assert pause.question.edit == {
        "draft": {"schema": TEXT, "value": "Dear all"},
        "copies": {"schema": {"type": "integer"}, "value": 2},
    }
    values = {"draft": "Dear Ann", "copies": 3}
    result = decided(flow, pause, "approve", "", values)
    assert result["draft"] == "Dear Ann"
    assert result["shown"] == "Dear Ann x3"
    for wrong, pointers in (
        ({"draft": ""}, ["/values/draft"]),
        ({"copies": "3", "x": 1}, ["/values/copies", "/values/x"]),
    ):
        with pytest.raises(InputsError) as caught:
            decided(flow, pause, "approve", "", wrong)
        assert [
            problem.pointer for problem in caught.value.problems
        ] == pointers
    with pytest.raises(ContextError):
        flow.run({"input": "no copies"})


def test_a_draft_is_written_until_a_person_approves() -> None:
    """A loop with `on_reject`: the comment goes to the writer, and the loop ends with the approval."""
    model = ScriptedModel("one", "two", "three")
    writer = Agent("writer", "Write.", model)
    approved = {
        "name": "equals",
        "args": {"value": "{check.decision}", "to": "approve"},
    }
    flow = Workflow(
        "flow",
        [
            AgentStep(writer, output="draft"),
            LoopStep(
                [
                    ApprovalStep(
                        "Good, {draft}?",
                        "check",
                        on_reject=[
                            AgentStep(
                                writer,
                                input="Not {draft}: {check.comment}",
                                output="draft",
                            )
                        ],
                    ),
                ],
                until=approved,
                max_iterations=5,
            ),
        ],
    )
    pause = paused(flow, "hi")
    pause = again(flow, pause, "reject", "too long")
    pause = again(flow, pause, "reject", "too short")
    result = decided(flow, pause, "approve")
    assert pause.message == "Good, three?"
    assert result["draft"] == "three"
    assert model.requests[-1].messages[-1].text == "Not two: too short"


def again(
    flow: Workflow, pause: ApprovalRequired, *decision: str
) -> ApprovalRequired:
    """The next pause after a decision."""
    name, comment = decision
    return paused(flow, pause.decide(name, comment), pause.resume_path)


def test_a_failure_after_a_rejection_resumes_there() -> None:
    """The decision is kept; the person is not asked again."""
    broken = [True]

    def work() -> str:
        """Work."""
        if broken.pop():
            raise OSError
        return "done"

    flow = Workflow(
        "flow",
        [
            ApprovalStep(
                "Go?",
                "go",
                on_reject=[shown("{go.comment}"), FunctionStep(work)],
            )
        ],
    )
    broken.insert(0, False)
    pause = paused(flow, "hi")
    with pytest.raises(PodwrightError) as caught:
        decided(flow, pause, "reject", "no")
    stop = caught.value
    assert stop.resume_path == [0, 0, 1]
    result = flow.run(
        json.loads(json.dumps(stop.context)), resume_path=stop.resume_path
    )
    assert result["shown"] == "no"
    assert result["work_output"] == "done"


def test_a_rejection_without_steps_goes_on() -> None:
    """An empty `on_reject` is kept in the blueprint: after a rejection the workflow goes on without further steps."""
    step = ApprovalStep("Go?", "go", on_reject=[])
    flow = Workflow("flow", [step, shown("{go.decision}")])
    blueprint = flow.to_blueprint()
    assert blueprint["steps"][0]["on_reject"] == []
    again = Workflow.from_blueprint(blueprint, functions={"show": show})
    assert again.to_blueprint() == blueprint
    pause = paused(again, "hi")
    assert pause.question is not None
    assert pause.question.ends_on_reject is False
    assert decided(again, pause, "reject")["shown"] == "reject"


@pytest.mark.parametrize("place", ["nested", "agent", "parallel", "map", "try"])
def test_decisions_reach_questions_at_any_depth(place: str) -> None:
    """Nested workflows, workflows as agents, branches, items and attempts are asked and answered."""
    steps = [
        ApprovalStep("Go?", "go", edit={"input": TEXT}),
        shown("{go.comment} {input}"),
    ]
    inner = Workflow("inner", steps)
    step: Any = {
        "nested": WorkflowStep(inner),
        "agent": AgentStep(inner, output="shown"),
        "parallel": ParallelStep([steps]),
        "map": MapStep("items", "item", steps),
        "try": TryStep(steps, retries=1),
    }[place]
    flow = Workflow("flow", [step])
    pause = paused(flow, {"input": "hi", "items": ["x"]})
    result = decided(flow, pause, "approve", "Well", {"input": "ho"})
    expected = '["Well ho"]' if place == "map" else "Well ho"
    assert result["shown"] == expected


async def test_a_journal_has_the_decisions() -> None:
    """In a new attempt of a run, decisions come from its journal, by the run and the position of the question."""
    steps = [
        ApprovalStep("One?", "one", on_reject=[shown("{one.comment}", "why")]),
        WorkflowStep(
            Workflow("inner", [ApprovalStep("Two?", "two", edit={"why": TEXT})])
        ),
    ]
    flow = Workflow("flow", steps)
    run_id = "0" * 32
    recorded: list[Any] = []
    decisions: dict[ApprovalId, Decision] = {}
    asked: list[ApprovalId] = []
    for decision in (
        Decision("reject", "no"),
        Decision(values={"why": "changed"}),
    ):
        with pytest.raises(ApprovalRequired) as caught:
            await execute(
                flow,
                flow.task("hi"),
                run_id=run_id,
                subscribers=(recorded.append,),
                journal=Journal(recorded, decisions),
            )
        assert caught.value.asked is not None
        asked.append(caught.value.asked)
        decisions[caught.value.asked] = decision
    assert asked[0] == ApprovalId(run_id, (0,))
    assert asked[1].path == (1, 0)
    result = await execute(
        flow,
        flow.task("hi"),
        run_id=run_id,
        journal=Journal(recorded, decisions),
    )
    assert result.value["why"] == "changed"


def test_the_event_has_the_question() -> None:
    """Whoever follows the run sees what may be decided."""
    manager = EventManager()
    recorded: list[Any] = []
    manager.subscribe(recorded.append, "run_paused")
    flow = Workflow(
        "flow",
        [ApprovalStep("Go?", "go", options=["a", "b"])],
        event_manager=manager,
    )
    paused(flow, "hi")
    assert recorded[0].question == {
        "message": "Go?",
        "options": ["a", "b"],
        "ends_on_reject": True,
        "digest": Question("Sure?", ("a", "b")).digest,
    }


@pytest.mark.parametrize(
    ("keys", "pointer"),
    [
        ({"options": []}, "/steps/0/options"),
        ({"options": ["a", "a"]}, "/steps/0/options"),
        ({"options": ["a"], "on_reject": [1]}, "/steps/0/on_reject/0"),
        ({"edit": {}}, "/steps/0/edit"),
        ({"edit": {"a": {"type": "text"}}}, "/steps/0/edit/a"),
        ({"edit": {"a b": {}}}, "/steps/0/edit/a b"),
        ({"option": ["a"]}, "/steps/0/option"),
    ],
)
def test_wrong_keys_of_an_approval(keys: Json, pointer: str) -> None:
    """They are problems of the blueprint, with pointers."""
    step = {"type": "approval_step", "name": "a", "message": "?", **keys}
    with pytest.raises(BlueprintValidationError) as caught:
        Workflow.from_blueprint({"name": "flow", "steps": [step]})
    assert pointer in [problem.pointer for problem in caught.value.problems]


def test_on_reject_needs_the_option() -> None:
    """Steps that no decision leads to are a mistake."""
    with pytest.raises(BlueprintValidationError):
        Workflow(
            "flow",
            [ApprovalStep("?", options=["yes"], on_reject=[shown("x")])],
        )


def test_a_decision_that_is_none_is_refused() -> None:
    """What is given as a decision has the shape of one."""
    flow = Workflow("flow", [ApprovalStep("Go?")])
    pause = paused(flow, "hi")
    for wrong in ("approve", {"decision": 1}, {"descision": "approve"}):
        context = {**(pause.context or {}), DECISION: wrong}
        with pytest.raises(InputsError):
            flow.run(context, resume_path=pause.resume_path)


def test_the_newest_decision_counts() -> None:
    """A later decision of the same name takes the place of an earlier one, with or without a comment."""
    until_bare = {
        "name": "equals",
        "args": {"value": "{ok.comment}", "to": ""},
    }
    flow = Workflow(
        "flow",
        [
            LoopStep(
                [ApprovalStep("ok?", "ok"), shown("<{ok.comment}>")],
                until=until_bare,
                max_iterations=3,
            )
        ],
    )
    pause = again(flow, paused(flow, "hi"), "approve", "fix it")
    result = decided(flow, pause, "approve")
    assert result["shown"] == "<>"
    assert json.loads(result["ok"])["comment"] == ""


def test_decisions_of_branches_are_all_known() -> None:
    """Each branch has its own; after them templates know both."""
    branches = [
        [shown(name, name), ApprovalStep(f"{name}?", f"q{name}")]
        for name in ("a", "b")
    ]
    flow = Workflow(
        "flow",
        [ParallelStep(branches), shown("{qa.decision}/{qb.decision}")],
    )
    pause = again(flow, paused(flow, "hi"), "approve", "")
    assert decided(flow, pause)["shown"] == "approve/approve"


@pytest.mark.parametrize("around", ["try", "parallel"])
def test_decisions_and_edits_in_parts_are_no_answers(around: str) -> None:
    """The last output stays the answer, whatever a person decides or changes inside."""
    approval = ApprovalStep(
        "ok?", "ok", options=["yes", "no"], edit={"input": TEXT}
    )
    step: Any = {
        "try": TryStep([approval], retries=1),
        "parallel": ParallelStep([[approval]]),
    }[around]
    inner = Workflow(
        "inner", [shown("draft", "draft"), step, shown("{input}", "seen")]
    )
    outer = Workflow("outer", [AgentStep(inner, output="letter")])
    pause = paused(outer, "hi")
    result = outer.run(
        pause.decide("yes", values={"input": "changed"}),
        resume_path=pause.resume_path,
    )
    assert result["letter"] == "changed"
    inner = Workflow("inner", [shown("draft", "draft"), step])
    outer = Workflow("outer", [AgentStep(inner, output="letter")])
    pause = paused(outer, "hi")
    assert decided(outer, pause, "yes")["letter"] == "draft"


def test_a_plain_decision_is_not_known_after_a_map() -> None:
    """There are several; with options they become a list."""
    for options in ([], ["y", "n"]):
        approval = ApprovalStep("{it}?", "ok", options=options)
        steps = [
            MapStep("items", "it", [approval]),
            shown("{ok.0.decision}"),
        ]
        inputs = {"items": {}}
        if options:
            Workflow("flow", steps, inputs=inputs)
        else:
            with pytest.raises(BlueprintValidationError):
                Workflow("flow", steps, inputs=inputs)


def test_the_name_of_a_plain_approval_is_a_label() -> None:
    """A value of that name stays, though the person has written a comment."""
    flow = Workflow(
        "flow",
        [
            shown("The draft", "draft"),
            ApprovalStep("Send {draft}?", "draft"),
            shown("Sent: {draft}"),
        ],
    )
    result = decided(flow, paused(flow, "hi"), "approve", "Good.")
    assert result["shown"] == "Sent: The draft"
    assert result["draft"] == "The draft"


@pytest.mark.parametrize("retries", [0, 1])
def test_a_wrong_decision_is_caught_by_no_step(retries: int) -> None:
    """It is the person's, who decides again."""
    ask = ApprovalStep("A?", "a", options=["yes", "no"])
    steps = [TryStep([ask], catch=[shown("caught")], retries=retries)]
    flow = Workflow("flow", steps)
    pause = paused(flow, "hi")
    with pytest.raises(InputsError):
        decided(flow, pause, "maybe")
    assert "shown" not in decided(flow, pause, "yes")


def test_what_no_person_can_change() -> None:
    """The number of an iteration and what failed are no values of the context."""
    for name in ("iteration", "error"):
        ask = ApprovalStep("A?", "a", edit={name: {}})
        until = {"name": "equals", "args": {"value": "{a.decision}", "to": "x"}}
        loop = LoopStep([ask], until)
        steps = [TryStep([shown("x")], catch=[loop])]
        with pytest.raises(BlueprintValidationError) as caught:
            Workflow("flow", steps, inputs={"tone": TEXT})
        assert "only" in caught.value.problems[0].detail
