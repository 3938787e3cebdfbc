"""Data in components: declared inputs, structured answers, and steps that work on data."""

from __future__ import annotations

import math
from typing import Any, Literal

import pytest
from pydantic import BaseModel
from tests.library.shapes import Json

from podwright import (
    Agent,
    AgentStep,
    ApprovalRequired,
    ApprovalStep,
    BlueprintValidationError,
    ConditionStep,
    Conductor,
    FunctionStep,
    MapStep,
    ParallelStep,
    Pipeline,
    ScriptedModel,
    Workflow,
    WorkflowStep,
    load,
)
from podwright.errors import (
    ContextError,
    InputError,
    InputsError,
    LimitExceededError,
    OutputError,
    ToolError,
)
from podwright.testing import ToolCall

TEXT: Json = {"type": "string"}
INPUTS: Json = {
    "customer": {"type": "string", "description": "Who writes."},
    "tone": {"type": "string", "default": "warm"},
    "urgency": {"type": "integer", "minimum": 1, "default": 3},
}


class Ticket(BaseModel):
    """What a customer wants."""

    category: Literal["refund", "question"]
    items: list[str] = []


REFUND = '{"category": "refund", "items": ["cup", "plate"]}'


def prompts(model: ScriptedModel, number: int = -1) -> list[str]:
    return [message.text for message in model.requests[number].messages]


# --- Declared inputs --------------------------------------------------------------------------------------------------


def agent_of(model: ScriptedModel, **options: Any) -> Agent:
    return Agent(
        "writer", "To {customer}, {tone}, {urgency}.", model, **options
    )


def test_defaults_fill_inputs_that_are_missing() -> None:
    """A default makes an input optional; the values fill the instructions."""
    model = ScriptedModel("ok", "ok")
    agent = agent_of(model, inputs=INPUTS)
    agent.run({"customer": "Ann", "input": "hi"})
    assert prompts(model) == ["To Ann, warm, 3.", "hi"]
    agent.run({"customer": "Ann", "urgency": 5, "input": "hi"})
    assert prompts(model) == ["To Ann, warm, 5.", "hi"]


@pytest.mark.parametrize(
    ("given", "pointers"),
    [
        ("hi", ["/customer"]),
        ({"custmer": "Ann"}, ["/customer", "/custmer"]),
        ({"customer": 3, "urgency": 0}, ["/customer", "/urgency"]),
        ({"customer": None, "x": 1, "y": 2}, ["/customer", "/x", "/y"]),
    ],
)
def test_wrong_inputs_are_one_error_before_any_model_call(
    given: Any, pointers: list[str]
) -> None:
    """Everything that is wrong is reported at once, for every kind."""
    model = ScriptedModel()
    agent = agent_of(model)
    for component in (
        agent_of(model, inputs=INPUTS),
        Pipeline("line", [agent], inputs=INPUTS),
        Conductor("boss", "{tone}", model, [agent], inputs=INPUTS),
        Workflow("flow", [agent], inputs=INPUTS),
    ):
        with pytest.raises(InputsError) as caught:
            component.run(given)
        found = [problem.pointer for problem in caught.value.problems]
        assert sorted(found) == sorted(pointers)


def test_the_inputs_of_a_workflow_are_those_of_its_start() -> None:
    """Outputs may be given for a later start, and a stopped workflow goes on with what it has."""
    model = ScriptedModel("done")
    flow = Workflow(
        "flow",
        [
            ApprovalStep("Go, {customer}?"),
            AgentStep(agent_of(model), input="{tone}"),
        ],
        inputs=INPUTS,
    )
    with pytest.raises(ApprovalRequired, match="Go, Ann") as caught:
        flow.run({"customer": "Ann"})
    pause = caught.value
    flow.run(pause.context, resume_path=pause.resume_path)
    assert prompts(model) == ["To Ann, warm, 3.", "warm"]
    started = {"customer": "Ann", "writer_output": "x"}
    with pytest.raises(ApprovalRequired):
        flow.run(started)


def test_an_agent_of_a_workflow_gets_the_inputs_that_it_declares() -> None:
    """Without an input of the step they come from the context, and nothing else is shown to the model."""
    model = ScriptedModel(*"abc")
    writer = Agent("writer", "To {customer}.", model, inputs=INPUTS)
    steps = [
        AgentStep(writer),
        AgentStep(writer, input="Now."),
        AgentStep(writer, input={"customer": "Bob", "input": "{customer}"}),
    ]
    Workflow("flow", steps).run(
        {"customer": "Ann", "secret": "x", "tone": "dry", "input": "hi"}
    )
    assert prompts(model, 0)[0] == "To Ann."
    assert "secret" not in prompts(model, 0)[1]
    assert "## tone\ndry" in prompts(model, 0)[1]
    assert prompts(model, 1)[0] == "To Ann."
    assert prompts(model, 2)[0] == "To Bob."
    with pytest.raises(BlueprintValidationError):
        Workflow("flow", [AgentStep(writer, input={"custmer": "x"})])


def test_a_nested_workflow_has_its_defaults() -> None:
    """A nested workflow works on the context, completed by the defaults that it declares."""
    model = ScriptedModel("ok")
    inner = Workflow(
        "inner", [AgentStep(agent_of(model), input="go")], inputs=INPUTS
    )
    outer = Workflow("outer", [WorkflowStep(inner)])
    result = outer.run({"customer": "Ann", "other": "x", "input": "hi"})
    assert prompts(model)[0] == "To Ann, warm, 3."
    assert list(result)[-1] == "writer_output"
    with pytest.raises(InputsError):
        outer.run({"other": "x"})


@pytest.mark.parametrize(
    ("inputs", "pointer"),
    [
        ({"a b": TEXT}, "/inputs/a b"),
        ({"_a": TEXT}, "/inputs/_a"),
        ({"a": "string"}, "/inputs/a"),
        ({"a": {"type": "text"}}, "/inputs/a"),
        ({"a": {"type": "string", "default": 3}}, "/inputs/a"),
        ({"a": {"$ref": "#/x"}}, "/inputs/a"),
        (["a"], "/inputs"),
    ],
)
def test_declarations_are_checked(inputs: Any, pointer: str) -> None:
    """The names, the schemas and the defaults of inputs are checked with the blueprint."""
    with pytest.raises(BlueprintValidationError) as caught:
        Agent("a", "", "offline/echo", inputs=inputs)
    assert [problem.pointer for problem in caught.value.problems] == [pointer]


# --- Structured answers -----------------------------------------------------------------------------------------------


def test_a_response_model_of_the_constructor() -> None:
    """Its answers have the type; the blueprint has its schema, with which answers are data."""
    model = ScriptedModel(*[REFUND] * 3, "text")
    agent = Agent("intake", "Classify.", model, response_model=Ticket)
    answer = agent.run("hi", trace=True)
    assert answer.value == Ticket(category="refund", items=["cup", "plate"])
    assert answer.data == {"category": "refund", "items": ["cup", "plate"]}
    blueprint = agent.to_blueprint()
    schema = blueprint["config"]["response_schema"]
    assert schema == Ticket.model_json_schema()
    again = Agent.from_blueprint(blueprint, model=model)
    assert again.to_blueprint() == blueprint
    assert again.run("hi") == answer.data
    typed = Agent.from_blueprint(blueprint, model=model, response_model=Ticket)
    assert typed.run("hi") == answer.value
    assert agent.run("hi", response_model=str) == "text"


def test_a_structured_answer_is_data_in_the_context() -> None:
    """Templates read its fields, conditions compare them, maps go over its lists; the result is text and data."""
    model = ScriptedModel(REFUND, "cup gone", "plate gone", "letter")
    intake = Agent("intake", "Classify.", model, response_model=Ticket)
    clerk = Agent("clerk", "Work on {ticket.category}.", model)
    is_refund = {
        "name": "all",
        "args": {
            "conditions": [
                {
                    "name": "contains",
                    "args": {"value": "{ticket.items}", "text": "Cup"},
                },
                {
                    "name": "equals",
                    "args": {
                        "value": "{ticket}",
                        "to": {"items": ["cup", "plate"], "category": "refund"},
                    },
                },
            ]
        },
    }
    flow = Workflow(
        "desk",
        [
            AgentStep(intake, output="ticket"),
            MapStep(
                "ticket.items",
                "item",
                [AgentStep(clerk, input="{item}", output="gone")],
                max_concurrency=1,
            ),
            ConditionStep(
                is_refund,
                [AgentStep(clerk, input="{ticket}: {ticket.items.1}")],
            ),
        ],
    )
    result = flow.run("hi", trace=True)
    assert prompts(model, 1) == ["Work on refund.", "cup"]
    assert prompts(model) == ["Work on refund.", f"{REFUND}: plate"]
    assert result.value == {
        "input": "hi",
        "ticket": REFUND,
        "gone": '["cup gone", "plate gone"]',
        "clerk_output": "letter",
    }
    assert result.data["ticket"]["items"] == ["cup", "plate"]


def test_a_step_may_have_a_schema_of_its_own() -> None:
    """`response_schema` of a step replaces that of the agent; a workflow as agent takes none."""
    schema = {
        "type": "object",
        "properties": {"n": {"type": "integer"}},
        "required": ["n"],
    }
    model = ScriptedModel('{"n": 1}', "x")
    agent = Agent("a", "", model, response_model=Ticket, max_loops=1)
    flow = Workflow("flow", [AgentStep(agent, response_schema=schema)])
    assert flow.run("hi", trace=True).data["a_output"] == {"n": 1}
    with pytest.raises(OutputError):
        flow.run("hi")
    outer = Workflow("outer", [AgentStep(flow, response_schema=schema)])
    with pytest.raises(InputError):
        outer.run("hi")


def test_the_last_data_is_the_output_of_a_team() -> None:
    """Pipelines, conductors and workflows as agents hand on data; the next model is given its JSON."""
    model = ScriptedModel("x", REFUND, REFUND, "letter")
    intake = Agent("intake", "Classify.", model, response_model=Ticket)
    first = Agent("first", "Read.", model)
    line = Pipeline("line", [first, intake])
    inner = Workflow("inner", [AgentStep(intake, output="ticket")])
    last = Agent("last", "Write.", model)
    flow = Workflow(
        "flow",
        [
            AgentStep(line, output="one"),
            AgentStep(inner, output="two"),
            AgentStep(last, input="{one.category} {two.items.0} {two}"),
        ],
    )
    result = flow.run("hi", trace=True)
    assert result.data["one"] == result.data["two"]
    assert prompts(model)[-1] == f"refund cup {REFUND}"
    model = ScriptedModel(ToolCall.of("intake", task="x"), REFUND, REFUND)
    intake = Agent("intake", "Classify.", model, response_model=Ticket)
    boss = Conductor("boss", "Lead.", model, [intake], response_model=Ticket)
    assert boss.run("hi", trace=True).data == {
        "category": "refund",
        "items": ["cup", "plate"],
    }
    assert prompts(model)[-1] == REFUND


def test_map_outputs_are_a_list_if_they_are_data() -> None:
    """Texts of all items are JSON as text, as they were; data are a list."""
    model = ScriptedModel(*[REFUND] * 2)
    intake = Agent("intake", "Classify.", model, response_model=Ticket)
    flow = Workflow(
        "flow",
        [
            MapStep("input", "item", [AgentStep(intake, output="ticket")]),
            ApprovalStep("{ticket.1.items.0}?"),
        ],
    )
    with pytest.raises(ApprovalRequired, match=r"cup\?"):
        flow.run("a\nb")


# --- Function steps ---------------------------------------------------------------------------------------------------


def look_up(number: int, deep: bool = False) -> dict[str, Any]:
    """Look an order up."""
    return {"number": number, "state": "sent", "deep": deep}


async def total(prices: list[float]) -> float:
    """Add prices."""
    return sum(prices)


def test_a_function_works_on_data_without_a_model() -> None:
    """Its arguments are filled from the context, a single name as the value itself; its result is data."""
    flow = Workflow(
        "flow",
        [
            FunctionStep(
                look_up, {"number": "{number}", "deep": True}, output="order"
            ),
            FunctionStep(total, {"prices": ["{order.number}", 1.5]}),
            ApprovalStep("{order.state} {total_output}?"),
        ],
    )
    with pytest.raises(ApprovalRequired, match=r"sent 8\.5\?") as caught:
        flow.run({"number": 7})
    context = caught.value.context
    assert context is not None
    assert context["order"] == {"number": 7, "state": "sent", "deep": True}
    blueprint = flow.to_blueprint()
    again = Workflow.from_blueprint(
        blueprint, functions={"look_up": look_up, "total": total}
    )
    assert again.to_blueprint() == blueprint
    with pytest.raises(ApprovalRequired, match=r"sent 8\.5"):
        again.run({"number": 7})


def test_the_arguments_of_a_function_are_checked_with_the_blueprint() -> None:
    """A missing function, an argument that it does not have and one that it needs are problems with pointers."""
    blueprint: Json = {
        "name": "flow",
        "steps": [
            {
                "type": "function_step",
                "name": "one",
                "function": "look_up",
                "arguments": {"nmber": 3},
            },
            {"type": "function_step", "name": "two", "function": "lok_up"},
        ],
    }
    with pytest.raises(BlueprintValidationError) as caught:
        load(blueprint, functions={"look_up": look_up})
    assert [problem.pointer for problem in caught.value.problems] == [
        "/steps/0/arguments/nmber",
        "/steps/0/arguments",
        "/steps/1/function",
    ]


def test_each_failure_of_a_function_fails_the_run() -> None:
    """Wrong arguments, an error and a result that is not JSON are tool errors that can be resumed."""

    def fail() -> None:
        """Fail."""
        raise OSError("secret")

    def strange() -> object:
        """Return something else."""
        return object()

    for step, code in (
        (FunctionStep(look_up, {"number": "x"}), "tool_arguments_invalid"),
        (FunctionStep(fail), "tool_failed"),
        (FunctionStep(strange), "tool_failed"),
    ):
        with pytest.raises(ToolError) as caught:
            Workflow("flow", [step]).run("hi")
        assert caught.value.code == code
        assert caught.value.resume_path == [0]
        assert "model" not in caught.value.suggestion


def test_functions_in_a_folder(tmp_path: Any) -> None:
    """The functions of a folder are those of its functions.py, then of its tools.py."""
    steps = [
        {"type": "function_step", "name": name, "function": name}
        for name in ("one", "two")
    ]
    (tmp_path / "blueprint.yaml").write_text(f"name: flow\nsteps: {steps}\n")
    (tmp_path / "functions.py").write_text("def one():\n    return [1]\n")
    (tmp_path / "tools.py").write_text(
        "def one():\n    return 0\ndef two():\n    return 2\n"
    )
    result = load(tmp_path).run("hi", trace=True)
    assert result.data == {"input": "hi", "one_output": [1], "two_output": 2}


def test_parallel_functions_do_not_see_each_other() -> None:
    """Functions of branches run at once, each with its own nested runs."""
    model = ScriptedModel("a", "b")

    def ask(question: str) -> str:
        """Ask an agent."""
        return Agent("a", "Answer.", model).run(question)

    flow = Workflow(
        "flow",
        [
            ParallelStep(
                [
                    [FunctionStep(ask, {"question": "x"}, output=name)]
                    for name in ("left", "right")
                ]
            )
        ],
    )
    result = flow.run("hi", trace=True)
    assert {result.value["left"], result.value["right"]} == {"a", "b"}
    assert result.usage.tool_calls == 2
    assert result.usage.model_calls == 2


# --- Limits -----------------------------------------------------------------------------------------------------------


def test_limits_of_a_blueprint_and_of_a_step() -> None:
    """They hold besides those of the operator, and survive the round trip."""
    model = ScriptedModel(*"abcd")
    blueprint: Json = {
        "type": "Agent",
        "name": "a",
        "instructions": "Work.",
        "config": {"model": "offline/x"},
        "limits": {"model_calls": 1, "seconds": 60, "cost": 1.5, "tokens": 99},
    }
    agent = Agent.from_blueprint(blueprint, model=model)
    assert agent.to_blueprint() == blueprint
    twice = Workflow("flow", [agent, agent], agents={"a": agent})
    assert twice.run("hi")["a_output"] == "b"
    blueprint = {**twice.to_blueprint(), "limits": {"model_calls": 1}}
    limited = Workflow.from_blueprint(blueprint, {"a": agent})
    with pytest.raises(LimitExceededError):
        limited.run("hi")
    own = Workflow("flow", [AgentStep(agent, limits={"tokens": 1})])
    with pytest.raises(LimitExceededError):
        own.run("hi")
    with pytest.raises(BlueprintValidationError):
        Workflow("flow", [AgentStep(agent, limits={"token": 1})])


def test_an_unfilled_name_is_an_error_before_any_model_call() -> None:
    """An agent alone says which input its instructions need."""
    model = ScriptedModel()
    for component in (
        Agent("a", "Speak {language}.", model),
        Pipeline(
            "line",
            [Agent("b", "", model), Agent("a", "Speak {language}.", model)],
        ),
        Conductor(
            "boss", "Lead.", model, [Agent("a", "Speak {language}.", model)]
        ),
    ):
        with pytest.raises(ContextError, match="language"):
            component.run("hi")
    assert model.requests == []


def test_results_of_functions_that_are_no_json() -> None:
    """Numbers that JSON does not have, and those that Python does not write, are tool errors too."""

    def odd(kind: str) -> Any:
        """Return something odd."""
        return {"nan": math.nan, "huge": 10**5000}[kind]

    for kind in ("nan", "huge"):
        with pytest.raises(ToolError):
            Workflow("flow", [FunctionStep(odd, {"kind": kind})]).run("hi")


def test_a_default_of_input() -> None:
    """`input` may be declared as well."""
    model = ScriptedModel("ok", "ok")
    agent = Agent("a", "Work.", model)
    inputs: Json = {"input": {"type": "string", "default": "the moon"}}
    flow = Workflow("flow", [agent], inputs=inputs)
    assert flow.run()["input"] == "the moon"
    assert flow.run("the sun")["input"] == "the sun"
