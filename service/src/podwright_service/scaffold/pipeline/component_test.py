"""Tests of the component, without a model."""

from collections.abc import Callable
from pathlib import Path

import podwright
from podwright.testing import ScriptedModel, assert_events
from podwright_service.testing import (
    ModelStub,
    Served,
    assert_counted,
    assert_usage,
)

FOLDER = Path(__file__).parent
ANSWERS = ("The moon is round. It is far. It shines.", "A round moon.")
"""What the writer and the editor answer."""


def test_each_agent_works_on_the_output_before() -> None:
    """The editor is given what the writer wrote, and its answer is that of the pipeline."""
    model = ScriptedModel(*ANSWERS)
    result = podwright.load(FOLDER, model=model).run("The moon", trace=True)
    assert result.value == ANSWERS[1]
    assert model.requests[1].messages[-1].text == ANSWERS[0]
    assert_events(
        result, "run_finished component=writer", "run_finished component=editor"
    )


def test_it_is_served(
    serve_component: Callable[..., Served], model_stub: ModelStub
) -> None:
    """The service does the same in a process and in the component's image, and counts the usage."""
    model_stub.respond_with(*ANSWERS)
    service = serve_component(FOLDER, model=model_stub)
    result = service.run("The moon", trace=True)
    assert result.value == ANSWERS[1]
    assert_usage(result, model_calls=2)
    assert_counted(result, service.metrics())
    model_stub.verify()
