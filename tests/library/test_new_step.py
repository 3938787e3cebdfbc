"""A kind of step that is added at run time is one module: everything that asks about steps knows it."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from tests.library.note_step import NoteStep, note, note_steps
from tests.library.shapes import agent_step

import podwright
from podwright import Agent, Workflow, blueprints
from podwright.blueprints.diff import blueprint_changes
from podwright.blueprints.flowchart import mermaid
from podwright.blueprints.named_parts import agent_names
from podwright.errors import BlueprintValidationError, ModelError
from podwright.steps import Step
from podwright.testing import FunctionModel, ModelRequest, events_of
from podwright.workflows.template_names import check_names


@pytest.fixture(autouse=True)
def _note_steps() -> Iterator[None]:
    with note_steps():
        yield


def flow(*steps: dict[str, Any], **further: Any) -> dict[str, Any]:
    return {"type": "Workflow", "name": "w", "steps": list(steps), **further}


def in_branches(*steps: dict[str, Any]) -> dict[str, Any]:
    branches = [[step] for step in steps]
    return {"type": "parallel_step", "name": "both", "branches": branches}


def pointers(blueprint: dict[str, Any]) -> list[str]:
    return [problem.pointer for problem in blueprints.problems(blueprint)]


def test_schema() -> None:
    """The published schema has the kind wherever steps may stand, as long as the kind is there."""
    nested = flow(in_branches(note("{input}", note("again"))))
    schema = blueprints.json_schema()["workflow"]
    jsonschema.validate(nested, schema)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(flow(note(5)), schema)
    lines = flow(note(["One.", "Two."]))
    jsonschema.validate(lines, blueprints.file_schema()["workflow"])
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(lines, schema)


def test_validation() -> None:
    """Problems inside have their pointers; a key that is misspelt is compared with the keys of the kind."""
    assert pointers(flow(note("x", note("y", remark="z")))) == []
    wrong = flow(note("x", {**note("y"), "remerk": "z"}, note(5)))
    misspelt, number = blueprints.problems(wrong)
    assert misspelt.pointer == "/steps/0/details/0/remerk"
    assert "remark" in misspelt.suggestion
    assert number.pointer == "/steps/0/details/1/text"


def test_names_that_branches_write() -> None:
    """Two branches cannot write one note, nor what the steps in a note write."""
    other = note("y", agent_step("write", output="draft"), name="other")
    same = in_branches(note("x"), note("y"))
    inside = in_branches(agent_step("first", output="draft"), other)
    assert pointers(flow(same)) == ["/steps/0/branches/1/0"]
    assert pointers(flow(inside)) == ["/steps/0/branches/1/0/details/0"]


def test_texts(tmp_path: Path) -> None:
    """Its long text may be lines, or a file, also inside another step."""
    (tmp_path / "memo.md").write_text("From a file.\n")
    file = tmp_path / "blueprint.json"
    source = flow(note(["One.", "Two."], note({"file": "memo.md"}, name="b")))
    file.write_text(json.dumps(source))
    read = blueprints.read_file(file)
    assert read == flow(note("One.\nTwo.", note("From a file.", name="b")))


@pytest.mark.parametrize(
    ("steps", "pointer"),
    [
        ([note("{nothing}")], "/steps/0/text"),
        ([note("x", agent_step("a", input="{nothing}"))], "/steps/0/details/0/input"),
        ([agent_step("a", input="{memo}"), note("x")], "/steps/0/input"),
        ([note("x"), agent_step("a", input="{memo.title}")], "/steps/1/input"),
        ([note("x", agent_step("a", input="{memo}")), agent_step("b", input="{memo} {writer_output}")], None),
    ],
    ids=["its own text", "a step inside", "too early", "a field of a text", "filled"],
)  # fmt: skip
def test_names_in_templates(
    steps: list[dict[str, Any]], pointer: str | None
) -> None:
    """Its templates are checked, and what it writes is known inside and afterwards."""
    declared = {"input": {"type": "string"}}
    findings = check_names(flow(*steps, inputs=declared))
    found = [problem.pointer for problem in findings.problems]
    assert found == ([pointer] if pointer else [])


def test_names_that_hide_others() -> None:
    """A note inside a loop hides the number of the iteration if it has its name."""
    loop = {
        "type": "loop_step",
        "name": "loop",
        "steps": [note("x", note("y", name="iteration"))],
        "until": {"name": "is_empty", "args": {"value": ""}},
        "max_iterations": 2,
    }
    (warning,) = check_names(flow(loop)).warnings
    assert warning.pointer == "/steps/0/steps/0/details/0"


@pytest.mark.parametrize(
    ("old", "new", "changes"),
    [
        (note("x"), note("y"), [("/steps/memo/text", True)]),
        (note("x"), note("x", remark="z"), [("/steps/memo/remark", False)]),
        (note("x"), {**note("x"), "details": []}, []),
        (note("x", agent_step("a")), note("x"), [("/steps/memo/details/a", True)]),
        (note("x", agent_step("description")), note("x"), [("/steps/memo/details/description", True)]),
        (note("x", agent_step("a")), note("x", agent_step("a", agent="other")),
         [("/steps/memo/details/a/agent", True)]),
        (in_branches(note("x", note("y", name="b"))), in_branches(note("x", note("z", name="b"))),
         [("/steps/both/branches/0/memo/details/b/text", True)]),
    ],
    ids=["text", "remark", "absent", "removed inside", "named like a key", "an agent inside", "nested"],
)  # fmt: skip
def test_changes(
    old: dict[str, Any],
    new: dict[str, Any],
    changes: list[tuple[str, bool]],
) -> None:
    """The kind says which changes break callers; the steps in it are compared by name."""
    found = blueprint_changes(flow(old), flow(new))
    assert [(change.pointer, change.breaking) for change in found] == changes


def test_flowchart() -> None:
    """It is drawn with the steps in it."""
    chart = mermaid(flow(note("x", agent_step("a")), agent_step("b")))
    assert 'n2(["memo<br/>note"])' in chart
    assert chart.endswith(
        "n1 --> n2\n    n2 --> n3\n    n3 --> n4\n    n4 --> n5\n"
    )


def test_agents_inside() -> None:
    """The agents of the steps in it must be there."""
    blueprint = flow(note("x", agent_step("a", agent="clerk")))
    assert agent_names(blueprint) == ["clerk"]
    with pytest.raises(BlueprintValidationError) as caught:
        podwright.load(blueprint)
    (problem,) = caught.value.problems
    assert problem.pointer == "/steps/0/details/0/agent"


def test_in_python() -> None:
    """A step in Python has a blueprint, from which it comes back; it can be copied."""
    clerk = Agent("clerk", "Help.", "offline/echo")
    step = NoteStep("{input}", details=[clerk], remark="z")
    workflow = Workflow("w", [step])
    (written,) = workflow.to_blueprint()["steps"]
    assert written == note(
        "{input}", agent_step("clerk", agent="clerk"), name="note", remark="z"
    )
    again = Workflow.from_blueprint(
        workflow.to_blueprint(), agents={"clerk": clerk}
    )
    assert again.steps == workflow.steps
    assert copy.deepcopy(again.steps) == workflow.steps
    assert again.output_names == ["note", "clerk_output"]


def test_estimate() -> None:
    """What it writes is counted where it is read, and what the steps in it need; in a loop it may grow."""
    clerk = Agent("clerk", "Help.", "offline/echo", max_tokens=10)
    ask = agent_step("a", agent="clerk", input="{memo}")
    once = Workflow.from_blueprint(
        flow(note("seen {input}", ask)), agents={"clerk": clerk}
    )
    found = podwright.estimate(once, "the moon")
    used = once.run("the moon", trace=True).usage
    assert found.at_least.input_tokens == used.input_tokens
    assert found.at_most.input_tokens == used.input_tokens
    loop = {
        "type": "loop_step",
        "name": "loop",
        "steps": [note("{memo}{memo}", ask)],
        "until": {"name": "is_empty", "args": {"value": "x"}},
        "max_iterations": 6,
    }
    grows = Workflow.from_blueprint(
        flow(note("1234"), loop), agents={"clerk": clerk}
    )
    found = podwright.estimate(grows, "the moon")
    used = grows.run("the moon", trace=True).usage
    assert found.at_least.model_calls == found.at_most.model_calls == 6
    assert found.at_least.input_tokens is not None
    assert found.at_most.input_tokens is not None
    assert found.at_least.input_tokens <= used.input_tokens
    assert used.input_tokens <= found.at_most.input_tokens


def test_estimate_of_a_kind_that_does_not_answer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A kind that says nothing of its need is unknown, and what is after it is at least counted."""
    monkeypatch.setattr(NoteStep, "need", Step.need)
    clerk = Agent("clerk", "Help.", "offline/echo")
    workflow = Workflow.from_blueprint(
        flow(note("x"), agent_step("a", agent="clerk", input="{memo}")),
        agents={"clerk": clerk},
    )
    found = podwright.estimate(workflow, "the moon")
    assert found.at_most.model_calls is None
    assert found.at_most.cost is None
    assert found.at_least.model_calls == 1
    assert found.unknown == ["what the step 'memo' does"]


def test_it_runs_and_resumes() -> None:
    """A workflow that stops inside goes on there, and does not write the note again."""
    answers: list[ModelError | str] = [ModelError("Down."), "done"]

    def answer(request: ModelRequest) -> str:
        next_answer = answers.pop(0)
        if isinstance(next_answer, ModelError):
            raise next_answer
        return f"{next_answer}: {request.messages[-1].text}"

    clerk = Agent("clerk", "Help.", FunctionModel(answer))
    ask = agent_step("a", agent="clerk", input="{b}")
    inner = note("inner {memo}", ask, name="b")
    workflow = Workflow.from_blueprint(
        flow(note("seen {input}", inner)), agents={"clerk": clerk}
    )
    with pytest.raises(ModelError) as caught:
        workflow.run("x")
    assert caught.value.resume_path == [0, 0, 0, 0, 0]
    assert caught.value.context is not None
    context = {**caught.value.context, "memo": "changed"}
    result = workflow.run(
        context, resume_path=caught.value.resume_path, trace=True
    )
    assert result.value == {
        "input": "x",
        "memo": "changed",
        "b": "inner seen x",
        "clerk_output": "done: inner seen x",
    }
    finished = [event.path for event in events_of(result, "step_finished")]
    assert finished == [(0, 0, 0, 0, 0), (0, 0, 0), (0,)]
