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


def test_the_tool_is_called() -> None:
    """The agent calls the tool, and returns the model's last text."""
    model = ScriptedModel(
        ToolCall.of("add_numbers", numbers=[2, 3]), "It is 5."
    )
    result = podwright.load(FOLDER, model=model).run(
        "What is 2 + 3?", trace=True
    )
    assert result.value == "It is 5."
    assert_events(
        result, "tool_call_finished tool=add_numbers output=5.0", "run_finished"
    )


def test_it_is_served(
    serve_component: Callable[..., Served], model_stub: ModelStub
) -> None:
    """The service does the same in a process and in the component's image, and counts the usage."""
    model_stub.respond_with(
        ToolCall.of("add_numbers", numbers=[2, 3]), "It is 5."
    )
    service = serve_component(FOLDER, model=model_stub)
    result = service.run("What is 2 + 3?", trace=True)
    assert result.value == "It is 5."
    assert_usage(result, model_calls=2, tool_calls=1)
    assert_counted(result, service.metrics())
    model_stub.verify()
