"""The names in templates that nothing can fill."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from tests.library.shapes import BLUEPRINTS, EVERY_STEP, Json
from tests.library.strategies import valid

from podwright.blueprints import kind_of
from podwright.components.template_names import check_names


def step(agent: str, **keys: Any) -> Json:
    return {"type": "agent_step", "agent": agent, "name": agent, **keys}


def flow(*steps: Json) -> Json:
    return {"type": "Workflow", "name": "flow", "steps": list(steps)}


def loop(*steps: Json, value: str = "x") -> Json:
    until = {
        "name": "not",
        "args": {"condition": {"name": "is_empty", "args": {"value": value}}},
    }
    return {
        "type": "loop_step",
        "name": "loop",
        "steps": list(steps),
        "until": until,
        "max_iterations": 2,
    }


def fork(value: str, then: list[Json], name: str = "equals") -> Json:
    args = {"value": value, "to": ["x", value]}
    return {
        "type": "condition_step",
        "name": "fork",
        "condition": {"name": name, "args": args},
        "then": then,
    }


def each(over: str, *steps: Json) -> Json:
    return {
        "type": "map_step",
        "name": "each",
        "over": over,
        "as": "item",
        "steps": list(steps),
    }


def ask(message: str) -> Json:
    return {"type": "approval_step", "name": "ask", "message": message}


WRITER = step("writer")
PROBLEMS: list[tuple[Json, list[tuple[str, str]]]] = [
    # a misspelt name: its place, and what is suggested
    (flow(WRITER, step("b", input="{wrtier_output} and {writer_ouput}")), [("/steps/1/input", "writer_output")] * 2),
    (flow(step("b", input="{inptu}")), [("/steps/0/input", "input")]),
    (flow(step("fact-check"), step("b", input="{fact_check_output}")), [("/steps/1/input", "fact-check_output")]),
    (flow(WRITER, ask("Send {Writer_Output}?")), [("/steps/1/message", "writer_output")]),
    (flow(WRITER, loop(step("b"), value="{writter_output}")), [
        ("/steps/1/until/args/condition/args/value", "writer_output"),
    ]),
    (flow(WRITER, fork("{writre_output}", [])), [
        ("/steps/1/condition/args/value", "writer_output"), ("/steps/1/condition/args/to/1", "writer_output"),
    ]),
    (flow(WRITER, each("wrtier_output", step("b", input="{itme}"))), [
        ("/steps/1/over", "writer_output"), ("/steps/1/steps/0/input", "item"),
    ]),
    # a name that only a later step writes
    (flow(step("b", input="{writer_output}"), WRITER), [("/steps/0/input", "Move")]),
    (flow(step("b", input="{draft}"), step("writer", output="draft")), [("/steps/0/input", "Move")]),
    (flow({"type": "parallel_step", "name": "p", "branches": [[WRITER], [step("b", input="{writer_output}")]]}), [
        ("/steps/0/branches/1/0/input", "Move"),
    ]),
    (flow({"type": "workflow_step", "name": "w", "workflow": flow(ask("{writer_output}"))}, WRITER), [
        ("/steps/0/workflow/steps/0/message", "Move"),
    ]),
]  # fmt: skip
FINE = [
    flow(step("b", input="{input} {topic} {{nmae}} {{writer_ouput}}"), WRITER),
    flow(
        loop(
            WRITER,
            step("b", input="{writer_output} {critic_output}"),
            step("critic"),
            value="{iteration}",
        )
    ),
    flow(loop(fork("{input}", [step("b", input="{iteration}")]))),
    flow(fork("{input}", [WRITER]), step("b", input="{writer_output}")),
    flow(fork("{wrtier_output}", [WRITER], name="ours")),
    flow(
        each("items", step("b", input="{item}")),
        step("c", input="{b_output} {item}"),
    ),
    flow(
        {"type": "workflow_step", "name": "w", "workflow": flow(WRITER)},
        step("b", input="{writer_output}"),
    ),
    # names that differ so from others may be inputs
    flow(
        step("b", output="questions"),
        step("c", input="{question} {questions2} {inputs}"),
    ),
    flow(
        step("en"),
        step("b", input="{es_output} {reviewer} {county}"),
        step("c", output="review"),
    ),
    EVERY_STEP,
    *BLUEPRINTS.values(),
]


@pytest.mark.parametrize(("blueprint", "places"), PROBLEMS)
def test_a_name_that_nothing_can_fill_is_a_problem(
    blueprint: Json, places: list[tuple[str, str]]
) -> None:
    """A misspelt name, and one that comes too early, are found in every kind of template, with what to do."""
    found = check_names(blueprint)
    assert [problem.pointer for problem in found.problems] == [
        pointer for pointer, _ in places
    ]
    assert all(
        hint in problem.suggestion
        for problem, (_, hint) in zip(found.problems, places, strict=True)
    )
    assert found.warnings == []


@pytest.mark.parametrize("blueprint", FINE, ids=range(len(FINE)))
def test_a_name_that_may_be_an_input_is_not_a_problem(blueprint: Json) -> None:
    """Names that earlier steps, loops, maps or a caller may fill are not reported, nor are literal braces."""
    found = check_names(blueprint)
    assert (found.problems, found.warnings) == ([], [])


def test_names_that_stay_in_instructions_are_warnings() -> None:
    """Instructions of agents that get one text only, and misspelt names in others, are warnings."""
    text = {"instructions": "Write {tone} about {input}, {{not}} {this}."}
    first = {"type": "Agent", "name": "a", **text}
    second = {"type": "Agent", "name": "b", **text}
    conductor = {
        "type": "Conductor",
        "name": "c",
        **text,
        "skills": [first],
        "config": {"model": "offline/echo"},
    }
    assert [warning.pointer for warning in check_names(conductor).warnings] == [
        "/skills/0/instructions"
    ] * 2
    pipeline = {"type": "Pipeline", "name": "p", "steps": [first, second]}
    assert [warning.pointer for warning in check_names(pipeline).warnings] == [
        "/steps/1/instructions"
    ] * 2
    assert (
        check_names(
            {"name": "a", **text, "config": {"model": "offline/echo"}}
        ).warnings
        == []
    )

    instructions = {
        "writer": "{tone} {input}",
        "b": "{tone} {wrtier_output}",
        "c": "{iteration}",
    }
    steps = flow(
        step("writer", input="{input}"),
        step("b"),
        loop(step("c", input="x")),
        step("c", input="x"),
    )
    found = check_names(steps, instructions)
    assert found.problems == []
    assert [(warning.pointer, warning.detail.split("'")[1]) for warning in found.warnings] == [
        ("/steps/0/agent", "{tone}"), ("/steps/1/agent", "{wrtier_output}"), ("/steps/3/agent", "{iteration}"),
    ]  # fmt: skip


def test_a_name_that_hides_the_iteration_is_a_warning() -> None:
    """An output or an item called `iteration` inside a loop hides the number; elsewhere it hides nothing."""
    named = {**each("items", step("b")), "as": "iteration"}
    found = check_names(
        flow(
            loop(step("a", output="iteration"), named),
            step("c", output="iteration"),
        )
    )
    assert [warning.pointer for warning in found.warnings] == [
        "/steps/0/steps/0",
        "/steps/0/steps/1",
    ]


@given(
    valid["workflow"] | valid["conductor"] | valid["pipeline"] | valid["agent"]
)
def test_any_valid_blueprint_is_checked(blueprint: Json) -> None:
    """The check of a valid blueprint does not fail, and points into it."""
    found = check_names(blueprint, {"a": "{x}"})
    assert all(
        each.pointer.startswith(("/steps/", "/skills/"))
        for each in (*found.problems, *found.warnings)
    )
    assert kind_of(blueprint) != "agent" or not found.problems
