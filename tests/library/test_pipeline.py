"""Pipelines: the output of each agent is the input of the next."""

from typing import Any

import pytest
from pydantic import BaseModel
from tests.library.shapes import events

from podwright import (
    Agent,
    Conductor,
    FunctionModel,
    Pipeline,
    ScriptedModel,
    Workflow,
)
from podwright.errors import ModelError
from podwright.testing import EchoModel, assert_events


class Rating(BaseModel):
    stars: int


shouts = Agent(
    "shouts",
    "Work.",
    FunctionModel(lambda request: request.messages[-1].text + "!"),
)


def test_each_output_is_the_next_input() -> None:
    """Each agent gets the output of the one before; the last output is the pipeline's."""
    models = [
        ScriptedModel("draft"),
        ScriptedModel("better"),
        ScriptedModel("best"),
    ]
    line = Pipeline(
        "line",
        [
            Agent(f"agent{number}", "Work.", model)
            for number, model in enumerate(models)
        ],
    )
    result = line.run("the moon", trace=True)
    assert result.value == "best"
    assert [model.requests[0].messages[-1].text for model in models] == [
        "the moon",
        "draft",
        "better",
    ]
    first = [
        "step_started step=agent0 step_type=agent_step path=[0]",
        "run_started",
        "step_finished outcome=ok",
    ]
    assert_events(
        result,
        *first,
        "step_started step=agent1",
        "step_started step=agent2",
        "run_finished value=best",
    )
    assert result.usage.model_calls == 3


def test_only_the_last_agent_gets_the_response_model() -> None:
    """`response_model` is the type of the last answer."""
    first = ScriptedModel("text")
    last = ScriptedModel('{"stars": 5}')
    line = Pipeline(
        "line", [Agent("first", "Work.", first), Agent("last", "Rate.", last)]
    )
    assert line.run("the moon", response_model=Rating) == Rating(stars=5)
    assert (
        first.requests[0].output is None,
        last.requests[0].output is None,
    ) == (
        True,
        False,
    )


def test_named_inputs_fill_the_instructions_of_all_agents() -> None:
    """Named inputs are the input of the first agent, and fill the instructions of all; later agents get text."""
    models = [ScriptedModel("bonjour"), ScriptedModel("fin")]
    line = Pipeline(
        "line",
        [
            Agent(f"agent{number}", "Speak {language}.", models[number])
            for number in (0, 1)
        ],
    )
    line.run({"language": "French", "query": "hello"})
    assert models[0].requests[0].messages[0].text == "Speak French."
    assert [message.content for message in models[1].requests[0].messages] == [
        "Speak French.",
        "bonjour",
    ]


def test_any_kind_can_be_a_step_any_number_of_times() -> None:
    """All kinds can be steps; a workflow passes on the output that it wrote last."""
    flow = Workflow(
        "flow", [shouts, Agent("b", "Work.", ScriptedModel("by the flow"))]
    )
    conductor = Conductor(
        "desk", "Lead.", ScriptedModel("by the desk"), [shouts]
    )
    last = ScriptedModel("end")
    inner = Pipeline("inner", [shouts, shouts])
    result = Pipeline(
        "line", [flow, inner, Agent("last", "Work.", last), conductor]
    ).run("moon", trace=True)
    assert result.value == "by the desk"
    assert last.requests[0].messages[-1].text == "by the flow!!"
    assert [(event.kind, event.path) for event in events(result, "run_started")] == [
        ("pipeline", ()), ("workflow", (0,)), ("agent", (0, 0)), ("agent", (0, 1)),
        ("pipeline", (1,)), ("agent", (1, 0)), ("agent", (1, 1)), ("agent", (2,)), ("conductor", (3,)),
    ]  # fmt: skip


def test_a_failing_agent_ends_the_pipeline(recorder: Any) -> None:
    """After a failure no later agent runs."""
    never = ScriptedModel("never")
    steps = [
        Agent("fails", "Work.", ScriptedModel(ValueError("no"))),
        Agent("never", "Work.", never),
    ]
    with pytest.raises(ModelError) as caught:
        Pipeline("line", steps, event_manager=recorder.manager).run("moon")
    assert caught.value.component == "fails"
    assert never.requests == []
    assert_events(
        recorder.events,
        "step_finished step=fails outcome=failed",
        "run_failed component=line",
    )


def test_agents_without_a_model_use_that_of_the_pipeline() -> None:
    """The model of a pipeline's blueprint is the default of its agents; a model object replaces all."""
    first = {"type": "Agent", "name": "first", "instructions": "Work."}
    second = {**first, "name": "second", "config": {"model": "offline/other"}}
    blueprint = {
        "name": "line",
        "type": "Pipeline",
        "steps": [first, second],
        "config": {"model": "offline/echo"},
    }
    assert Pipeline.from_blueprint(blueprint).models() == [
        "offline/echo",
        "offline/other",
    ]
    assert (
        Pipeline.from_blueprint(blueprint, model=EchoModel()).run("moon")
        == "Echo: Echo: moon"
    )
