"""Pipelines: each agent's output is the next one's input."""

from typing import Any, cast

import pytest
from pydantic import BaseModel

from podwright import Agent, Conductor, FunctionModel, Pipeline, ScriptedModel, Workflow
from podwright.errors import BlueprintValidationError, ConfigurationError, ModelError
from podwright.testing import EchoModel, assert_events, events_of


def picked(trace: Any, *types: str) -> list[Any]:
    """The events of these types; a type checker cannot know which they are."""
    return events_of(trace, *types)


class Rating(BaseModel):
    stars: int


def shout(_: Any) -> FunctionModel:
    return FunctionModel(lambda request: request.messages[-1].content + "!")


def test_outputs_are_passed_on(heard: Any) -> None:
    """Each agent is given the output of the one before it; the last one's is the pipeline's."""
    models = [ScriptedModel("draft"), ScriptedModel("better"), ScriptedModel("best")]
    agents = [Agent(f"agent{number}", "Work.", model) for number, model in enumerate(models)]
    line = Pipeline("line", agents, event_manager=heard.manager)
    result = line.run("the moon", trace=True)
    assert result.value == "best"
    assert [model.requests[0].messages[-1].content for model in models] == ["the moon", "draft", "better"]
    assert_events(
        result,
        "run_started component=line",
        "step_started step=agent0 step_type=agent_step path=[0]",
        "run_started component=agent0",
        "step_finished step=agent0 outcome=ok",
        "step_started step=agent1",
        "step_started step=agent2",
        "run_finished component=line value=best",
    )
    assert result.usage.model_calls == 3
    assert line.last_usage == result.usage


def test_only_the_last_step_has_the_response_model() -> None:
    """`response_model` is asked of the last agent only."""
    first, last = ScriptedModel("text"), ScriptedModel('{"stars": 5}')
    line = Pipeline("line", [Agent("first", "Work.", first), Agent("last", "Rate.", last)])
    assert line.run("the moon", response_model=Rating) == Rating(stars=5)
    assert first.requests[0].output is None
    assert last.requests[0].output is not None


def test_named_inputs_reach_the_first_step() -> None:
    """Named inputs fill the first agent's instructions; later agents are given text."""
    models = [ScriptedModel("bonjour"), ScriptedModel("fin")]
    line = Pipeline(
        "line", [Agent("first", "Speak {language}.", models[0]), Agent("last", "Speak {language}.", models[1])]
    )
    line.run({"language": "French", "query": "hello"})
    assert models[0].requests[0].messages[0].content == "Speak French."
    assert [message.content for message in models[1].requests[0].messages] == ["Speak {language}.", "bonjour"]


def test_one_agent_may_stand_twice() -> None:
    """The same agent may be several steps."""
    agent = Agent("shouts", "Work.", shout(None))
    assert Pipeline("line", [agent, agent, agent]).run("moon") == "moon!!!"


def test_other_kinds_in_a_pipeline() -> None:
    """Conductors, workflows and pipelines may be steps; a workflow hands on what it wrote last."""
    agent = Agent("a", "Work.", shout(None))
    flow = Workflow("flow", [agent, Agent("b", "Work.", ScriptedModel("by the flow"))])
    desk = Conductor("desk", "Lead.", ScriptedModel("by the desk"), [agent])
    last = ScriptedModel("end")
    line = Pipeline("line", [flow, Pipeline("inner", [agent]), Agent("last", "Work.", last), desk])
    result = line.run("moon", trace=True)
    assert result.value == "by the desk"
    assert last.requests[0].messages[-1].content == "by the flow!"
    started = picked(result, "run_started")
    assert [(event.kind, event.path) for event in started] == [
        ("pipeline", ()), ("workflow", (0,)), ("agent", (0, 0)), ("agent", (0, 1)),
        ("pipeline", (1,)), ("agent", (1, 0)), ("agent", (2,)), ("conductor", (3,)),
    ]  # fmt: skip


def test_a_failing_step_ends_the_pipeline(heard: Any) -> None:
    """A failure ends the pipeline; later agents are not asked."""
    never = ScriptedModel("never")
    steps = [Agent("fails", "Work.", ScriptedModel(ValueError("no"))), Agent("never", "Work.", never)]
    with pytest.raises(ModelError) as caught:
        Pipeline("line", steps, event_manager=heard.manager).run("moon")
    assert caught.value.component == "fails"
    assert never.requests == []
    assert_events(heard.events, "step_finished step=fails outcome=failed", "run_failed component=line")


def test_wrong_steps() -> None:
    """A pipeline without steps, and one with something else among them, are refused."""
    with pytest.raises(BlueprintValidationError):
        Pipeline("line", [])
    with pytest.raises(ConfigurationError, match="no agent"):
        Pipeline("line", cast("Any", ["no agent"]))


def test_its_model_is_that_of_agents_without_one() -> None:
    """Agents in a pipeline's blueprint that name no model have the pipeline's."""
    blueprint = {
        "name": "line",
        "type": "Pipeline",
        "steps": [
            {"type": "Agent", "name": "first", "instructions": "Work."},
            {"type": "Agent", "name": "second", "instructions": "Work.", "config": {"model": "offline/other"}},
        ],
        "config": {"model": "offline/echo"},
    }
    assert Pipeline.from_blueprint(blueprint).models() == ["offline/echo", "offline/other"]
    line = Pipeline.from_blueprint(blueprint, model=EchoModel())
    assert line.run("moon") == "Echo: Echo: moon"
