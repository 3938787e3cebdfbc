"""No text with an unfilled name ever reaches a model or a person, whatever the workflow."""

from __future__ import annotations

import re
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from podwright import (
    Agent,
    ApprovalRequired,
    Conductor,
    FunctionModel,
    Pipeline,
    Workflow,
    load,
)
from podwright.errors import PodwrightError
from podwright.testing import ModelRequest, ToolCall

NAMES = (
    "input", "tone", "customer", "item", "error", "iteration", "ask", "writer_output",
    "data", "data.category", "data.items.0", "tone.x", "error.code", "ask.comment", "look_output.state",
)  # fmt: skip
UNFILLED = re.compile(r"(?<!\{)\{[A-Za-z_][A-Za-z0-9_.-]*\}(?!\})")
# the first ones are often known
PIECES = (
    ["{input}", "{input} and"] * 8
    + [f"{{{name}}}" for name in NAMES]
    + [
        " text ",
        "{{literal}}",
        '{"a": 1}',
    ]
)
templates = st.lists(st.sampled_from(PIECES), max_size=4).map(" ".join)
values = st.recursive(
    templates | st.booleans() | st.integers(0, 9),
    lambda inner: (
        st.lists(inner, max_size=2)
        | st.dictionaries(st.sampled_from(["a", "b"]), inner, max_size=2)
    ),
    max_leaves=4,
)
SCHEMA = {
    "type": "object",
    "properties": {
        "category": {"type": "string"},
        "items": {"type": "array"},
    },
}


def _steps(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """The steps that contain others."""
    sequence = st.lists(inner, min_size=1, max_size=2)
    condition = st.builds(
        lambda text: {"name": "is_empty", "args": {"value": text}}, templates
    )
    return st.one_of(
        st.fixed_dictionaries(
            {
                "type": st.just("condition_step"),
                "name": st.just("fork"),
                "condition": condition,
                "then": sequence,
                "else": sequence,
            }
        ),
        st.fixed_dictionaries(
            {
                "type": st.just("loop_step"),
                "name": st.just("loop"),
                "steps": sequence,
                "until": condition,
                "max_iterations": st.integers(1, 2),
            }
        ),
        st.fixed_dictionaries(
            {
                "type": st.just("map_step"),
                "name": st.just("each"),
                "over": st.sampled_from(["list", "data.items", "tone"]),
                "as": st.just("item"),
                "steps": sequence,
            }
        ),
        st.fixed_dictionaries(
            {
                "type": st.just("try_step"),
                "name": st.just("try"),
                "steps": sequence,
                "catch": sequence,
            }
        ),
        st.fixed_dictionaries(
            {
                "type": st.just("parallel_step"),
                "name": st.just("both"),
                "branches": st.lists(sequence, min_size=1, max_size=2),
            }
        ),
    )


_leaves = st.one_of(
    st.fixed_dictionaries(
        {
            "type": st.just("agent_step"),
            "agent": st.sampled_from(["writer", "data", "team", "line"]),
            "name": st.just("agent"),
        },
        optional={
            "input": templates
            | st.dictionaries(
                st.sampled_from(["input", "tone"]), templates, min_size=1
            ),
            "output": st.sampled_from(["data", "tone"]),
        },
    ),
    st.fixed_dictionaries(
        {
            "type": st.just("function_step"),
            "name": st.just("look"),
            "function": st.sampled_from(["look", "fail"]),
            "arguments": st.fixed_dictionaries({"what": values}),
        }
    ),
    st.fixed_dictionaries(
        {
            "type": st.just("approval_step"),
            "name": st.just("ask"),
            "message": templates,
        },
        optional={"options": st.just(["approve", "wait"])},
    ),
)
workflows = st.fixed_dictionaries(
    {
        "type": st.just("Workflow"),
        "name": st.just("flow"),
        "steps": st.lists(
            st.recursive(_leaves, _steps, max_leaves=4), min_size=1, max_size=4
        ),
    },
    optional={
        "inputs": st.fixed_dictionaries(
            {
                "tone": st.just({"type": "string", "default": "warm"}),
                "list": st.just({}),
            }
        )
    },
)
inputs = st.fixed_dictionaries(
    {"input": st.just("hello")},
    optional={"tone": st.just("dry")},
).map(lambda named: {"list": ["x", "y"], **named})


@given(workflows, st.lists(templates, min_size=4, max_size=4), inputs)
def test_no_unfilled_name_reaches_a_model_or_a_person(
    blueprint: Any, instructions: list[str], named: Any
) -> None:
    """A workflow is refused, fails before the text is sent, or fills every name in it."""
    sent = texts_of(blueprint, instructions, named)
    for text in sent:
        assert set(UNFILLED.findall(text)) <= {"{literal}"}, text


def test_texts_are_seen() -> None:
    """The test above would also hold if no text were ever sent: here some are."""
    steps = [
        {"type": "agent_step", "agent": "data", "name": "a"},
        {
            "type": "approval_step",
            "name": "ask",
            "message": "{data_output.category} {{literal}}?",
        },
        {"type": "agent_step", "agent": "team", "name": "b"},
    ]
    blueprint = {"type": "Workflow", "name": "flow", "steps": steps}
    named = {"input": "hello", "tone": "dry"}
    sent = texts_of(blueprint, ["{tone}", "", "{input}", ""], named)
    assert {"refund {literal}?", "dry", "hello"} <= set(sent)


def texts_of(blueprint: Any, instructions: list[str], named: Any) -> list[str]:
    """What models, functions and people are given while a workflow runs, as far as it does."""
    sent: list[str] = []

    async def respond(request: ModelRequest) -> Any:
        sent.extend(message.text for message in request.messages)
        sent.extend(
            str(tool["function"].get("description")) for tool in request.tools
        )
        if request.output is not None:
            return '{"category": "refund", "items": ["cup"]}'
        if request.tools and request.messages[-1].role == "user":
            return ToolCall.of("skill", task="work")
        return "answer"

    def look(what: Any) -> dict[str, Any]:
        """Look."""
        sent.append(str(what))
        return {"state": "sent"}

    def fail(what: Any) -> None:
        """Fail."""
        raise OSError

    model = FunctionModel(respond)
    one, two, three, four = instructions
    agents = {
        "writer": Agent("writer", one, model),
        "data": Agent("data", two, model, response_model=SCHEMA),
        "team": Conductor(
            "team", three, model, [Agent("skill", one, model)], max_loops=3
        ),
        "line": Pipeline(
            "line", [Agent("p", four, model), Agent("q", two, model)]
        ),
    }
    try:
        flow = load(
            blueprint, agents=agents, functions={"look": look, "fail": fail}
        )
        assert isinstance(flow, Workflow)
        given: Any = named
        path = None
        for _ in range(20):
            try:
                flow.run(given, resume_path=path)
                break
            except ApprovalRequired as pause:
                sent.append(pause.message)
                given = pause.context
                path = pause.resume_path
    except PodwrightError:
        pass
    return sent
