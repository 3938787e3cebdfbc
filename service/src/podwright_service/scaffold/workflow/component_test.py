"""Tests of the component, without a model."""

from collections.abc import Callable
from pathlib import Path

import podwright
from podwright.testing import ScriptedModel, assert_events
from podwright_service.testing import ModelStub, Served, assert_counted

FOLDER = Path(__file__).parent
TEXT = "The moon is round, and it is far away."


def test_the_steps() -> None:
    """The agent sums the text up, and the function counts the words of both."""
    model = ScriptedModel("A far moon.")
    result = podwright.load(FOLDER, model=model).run(TEXT, trace=True)
    assert result.data["summary"] == "A far moon."
    assert result.data["words"] == {"before": 9, "after": 3}
    assert_events(
        result,
        "step_finished step=summarize",
        "step_finished step=compare",
        "run_finished",
    )
    assert TEXT in model.requests[0].messages[-1].text


def test_it_is_served(
    serve_component: Callable[..., Served], model_stub: ModelStub
) -> None:
    """The service does the same in a process and in the component's image, and counts the usage."""
    model_stub.respond_with("A far moon.")
    service = serve_component(FOLDER, model=model_stub)
    result = service.run(TEXT, trace=True)
    assert result.data["words"] == {"before": 9, "after": 3}
    assert_counted(result, service.metrics())
    model_stub.verify()
