"""The names in templates that nothing can fill."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from tests.library.shapes import BLUEPRINTS, EVERY_STEP, Json
from tests.library.strategies import valid

from podwright import Agent, BlueprintValidationError, load
from podwright.blueprints import kind_of
from podwright.workflows.template_names import check_names


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


def agent(instructions: str, **keys: Any) -> Json:
    config = {"model": "offline/echo"}
    return {
        "type": "Agent",
        "name": "a",
        "instructions": instructions,
        "config": config,
        **keys,
    }


TEXT = {"type": "string"}
TICKET: Json = {
    "type": "object",
    "properties": {
        "category": TEXT,
        "items": {
            "type": "array",
            "items": {"type": "object", "properties": {"sku": TEXT}},
        },
        "order": {"$ref": "#/$defs/order"},
        "open": {"type": "object", "additionalProperties": True},
        "any": {},
    },
    "$defs": {"order": {"type": "object", "properties": {"number": TEXT}}},
}


@pytest.mark.parametrize(
    ("blueprint", "pointers"),
    [
        (agent("{input} {tone} {x}", inputs={"tone": TEXT}), ["/instructions"]),
        (agent("{input} {tone} {x}"), []),
        (
            {
                "type": "Conductor",
                "name": "c",
                "instructions": "{tone} {x}",
                "skills": [agent("{tone} {y} {input}")],
                "config": {"model": "offline/echo"},
                "inputs": {"tone": TEXT},
            },
            ["/instructions", "/skills/0/instructions"],
        ),
        (
            {
                "type": "Pipeline",
                "name": "p",
                "steps": [agent("{tone}"), agent("{y} {z}")],
                "inputs": {"tone": TEXT},
            },
            ["/steps/1/instructions"] * 2,
        ),
        (
            flow(step("a", input="{tone} {x}"), ask("{x} {a_output} {input}"))
            | {"inputs": {"tone": TEXT}},
            ["/steps/0/input", "/steps/1/message"],
        ),
    ],
)
def test_every_other_name_is_a_problem_where_inputs_are_declared(
    blueprint: Json, pointers: list[str]
) -> None:
    """Declared inputs are all that a caller may give; without them any name may be one."""
    found = check_names(blueprint)
    assert [problem.pointer for problem in found.problems] == pointers


def test_names_in_the_instructions_of_agents_of_a_workflow() -> None:
    """Instructions are filled from the whole context, also where a step has an input of its own."""
    agents = {
        "writer": agent("{tone} {input}"),
        "b": agent("{tone} {wrtier_output} {writer_output}"),
        "c": agent("{iteration}"),
        "d": agent("{subject} {tone}"),
    }
    steps = flow(
        step("writer", input="{input}"),
        step("b", input="x"),
        loop(step("c", input="x")),
        step("c", input="x"),
        step("d", input={"subject": "{tone}"}),
    )
    found = check_names(steps, agents)
    (problem,) = found.problems
    assert problem.pointer == "/steps/1/agent"
    assert (
        problem.detail
        == "Nothing fills '{wrtier_output}' in the instructions of 'b'."
    )
    found = check_names(steps | {"inputs": {"tone": TEXT}}, agents)
    assert [problem.pointer for problem in found.problems] == [
        "/steps/1/agent",
        "/steps/3/agent",
    ]


def test_named_inputs_of_a_step_are_those_of_the_agent() -> None:
    """An agent that declares its inputs is given no other."""
    agents = {"a": agent("{subject}", inputs={"subject": TEXT})}
    steps = flow(
        step("a", input={"subjct": "{input}", "input": "x", "subject": "x"})
    )
    problems = check_names(steps, agents).problems
    assert [problem.pointer for problem in problems] == [
        "/steps/0/input/subjct"
    ]
    assert "subject" in problems[0].suggestion


@pytest.mark.parametrize(
    ("template", "hint"),
    [
        ("{ticket.category} {ticket.items.0.sku} {ticket.order.number}", None),
        ("{ticket.open.x} {ticket.any.x.y} {input.x} {f_output.x}", None),
        ("{ticket.categry}", "category"),
        ("{ticket.category.x}", "response_schema"),
        ("{ticket.items.0.skuu}", "sku"),
        ("{ticket.order.nmber}", "number"),
        ("{text_output.x}", "response_schema"),
        ("{item.sku} {item.skuu}", "sku"),
        ("{ticket.zzz} {item.x}", None),
        ("{customer.x}", "response_schema"),
    ],
)
def test_fields_that_a_schema_lacks(template: str, hint: str | None) -> None:
    """The fields of inputs, structured answers and items are known from their schemas."""
    steps = flow(
        step("t", output="ticket", response_schema=TICKET),
        step("text"),
        {"type": "function_step", "name": "f", "function": "f"},
        {
            "type": "map_step",
            "name": "each",
            "over": "ticket.items",
            "as": "item",
            "steps": [
                {
                    "type": "function_step",
                    "name": "last",
                    "function": "last",
                    "arguments": {"deep": [{"x": template}]},
                }
            ],
        },
    ) | {"inputs": {"customer": TEXT}}
    problems = check_names(steps, {"text": agent("Write.")}).problems
    if hint is None:
        assert problems == []
        return
    assert [problem.pointer for problem in problems] == [
        "/steps/3/steps/0/arguments/deep/0/x"
    ]
    assert hint in problems[0].suggestion


def test_only_a_catch_knows_the_error() -> None:
    """The error is known in `catch`, where nothing of the tried steps is left; what `catch` wrote is known after it."""
    steps = flow(
        {
            "type": "try_step",
            "name": "try",
            "steps": [step("a"), ask("{error.code}")],
            "catch": [step("b", input="{error.code} {error.x} {a_output}")],
        },
        ask("{b_output} {error.message}"),
    ) | {"inputs": {"tone": TEXT}}
    found = check_names(steps)
    assert [problem.pointer for problem in found.problems] == [
        "/steps/0/steps/1/message",
        "/steps/0/catch/0/input",
        "/steps/0/catch/0/input",
        "/steps/1/message",
    ]


def test_construction_finds_them() -> None:
    """Names that nothing fills are problems of every kind of component, with all others."""
    for blueprint, pointer in (
        (agent("{x}", inputs={"tone": TEXT}), "/instructions"),
        (flow(step("a", input="{inptu}")), "/steps/0/input"),
    ):
        with pytest.raises(BlueprintValidationError) as caught:
            load(blueprint, agents={"a": Agent("a", "", "offline/echo")})
        assert [problem.pointer for problem in caught.value.problems] == [
            pointer
        ]
    with pytest.raises(BlueprintValidationError):
        Agent("a", "{x}", "offline/echo", inputs={"tone": TEXT})


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


def compares(condition: str, **args: Any) -> Json:
    """A loop until a condition holds, whose step is a person's decision."""
    check = {
        "type": "approval_step",
        "name": "check",
        "message": "?",
        "options": ["approve", "reject", "again"],
    }
    return {**loop(check), "until": {"name": condition, "args": args}}


@pytest.mark.parametrize(
    ("condition", "args", "place"),
    [
        ("equals", {"value": "{check.decision}", "to": "aprove"}, "/to"),
        ("not_equals", {"value": "{check.decision}", "to": 7}, "/to"),
        (
            "one_of",
            {"value": "{check.decision}", "options": ["again", "agian"]},
            "/options/1",
        ),
        ("equals", {"value": "{check.decision}", "to": "approve"}, None),
        ("equals", {"value": "{check.decision}", "to": "{input}"}, None),
        ("equals", {"value": "I {check.decision}", "to": "I aprove"}, None),
        ("equals", {"value": "{check.comment}", "to": "aprove"}, None),
        ("contains", {"value": "{check.decision}", "text": "app"}, None),
    ],
)
def test_what_a_value_never_is(
    condition: str, args: Json, place: str | None
) -> None:
    """A comparison with none of the values that a schema lists is a warning: a loop would wait for it in vain."""
    found = check_names(flow(compares(condition, **args)))
    expected = [f"/steps/0/until/args{place}"] if place else []
    assert [warning.pointer for warning in found.warnings] == expected
    negated = {
        "name": "not",
        "args": {"condition": {"name": condition, "args": args}},
    }
    step = {**compares(condition, **args), "until": negated}
    assert len(check_names(flow(step)).warnings) == len(expected)


def test_a_value_of_several_steps_may_be_any_of_theirs() -> None:
    """The iteration before may have written what a comparison in a loop expects."""
    first, second = (
        step(
            name,
            output="x",
            response_schema={
                "type": "object",
                "properties": {"state": {"enum": [name]}},
            },
        )
        for name in ("a", "b")
    )
    args = {"value": "{x.state}", "to": "b"}
    branch = {
        "type": "condition_step",
        "name": "c",
        "condition": {"name": "equals", "args": args},
        "then": [second],
    }
    found = check_names(flow(first, loop(branch)))
    assert (found.problems, found.warnings) == ([], [])
    [warning] = check_names(flow(first, {**branch, "then": []})).warnings
    assert warning.pointer == "/steps/1/condition/args/to"


@given(
    valid["workflow"] | valid["conductor"] | valid["pipeline"] | valid["agent"]
)
def test_any_valid_blueprint_is_checked(blueprint: Json) -> None:
    """The check of a valid blueprint does not fail, and points into it."""
    found = check_names(blueprint, {"a": agent("{x}")})
    assert all(
        each.pointer.startswith(("/steps/", "/skills/", "/instructions"))
        for each in (*found.problems, *found.warnings)
    )
    is_open = "inputs" not in blueprint
    assert kind_of(blueprint) != "agent" or not is_open or not found.problems
