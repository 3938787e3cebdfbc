"""Tests of the component, without a model."""

from collections.abc import Callable
from pathlib import Path

import podwright
from podwright.testing import ScriptedModel, ToolCall, assert_events
from podwright_service.testing import (
    ModelStub,
    Served,
    assert_counted,
    assert_usage,
)

FOLDER = Path(__file__).parent
ANSWERS = (
    ToolCall.of("reader", task="The moon is round."),
    "It is round.",
    "Round.",
)
"""What the conductor's model, the agent's and the conductor's again answer."""


def test_an_agent_is_asked() -> None:
    """The conductor asks an agent, and answers with what it has learned."""
    model = ScriptedModel(*ANSWERS)
    result = podwright.load(FOLDER, model=model).run(
        "Which shape has the moon?", trace=True
    )
    assert result.value == "Round."
    assert model.requests[2].messages[-1].text == "It is round."
    assert_events(
        result, "run_finished component=reader", "run_finished value=Round."
    )


def test_it_is_served(
    serve_component: Callable[..., Served], model_stub: ModelStub
) -> None:
    """The service does the same in a process and in the component's image, and counts the usage."""
    model_stub.respond_with(*ANSWERS)
    service = serve_component(FOLDER, model=model_stub)
    result = service.run("Which shape has the moon?", trace=True)
    assert result.value == "Round."
    assert_usage(result, model_calls=3)
    assert_counted(result, service.metrics())
    model_stub.verify()
