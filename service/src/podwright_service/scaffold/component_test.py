"""Tests of the component; no model is called."""

from pathlib import Path

import podwright
from podwright.testing import ScriptedModel, ToolCall, assert_events

FOLDER = Path(__file__).parent


def test_the_tool_is_called() -> None:
    """What the model asks of the tool is done, and the model's last words are the answer."""
    model = ScriptedModel(ToolCall.of("add_numbers", numbers=[2, 3]), "It is 5.")
    result = podwright.load(FOLDER, model=model).run("What is 2 + 3?", trace=True)
    assert result.value == "It is 5."
    assert_events(result, "tool_call_finished tool=add_numbers output=5.0", "run_finished")
