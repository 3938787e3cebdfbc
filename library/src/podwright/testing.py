"""For tests of components: models that need no network, and assertions on what happened.

from podwright import Agent
from podwright.testing import ScriptedModel, ToolCall, assert_events, forbid_models

def test_the_agent_looks_up_the_weather():
model = ScriptedModel(ToolCall.of("get_weather", city="Paris"), "Sunny.")
result = Agent("guide", "Help.", model, tools=[get_weather]).run("Paris?", trace=True)
assert result.value == "Sunny."
assert_events(result, "tool_call_finished tool=get_weather", "run_finished")
"""

from __future__ import annotations

import contextlib
from collections.abc import Generator, Iterable

from podwright.errors import ModelError
from podwright.events import Event
from podwright.json_data import to_text
from podwright.messages import Message, ModelRequest, ModelResponse, ToolCall
from podwright.models import EchoModel, FunctionModel, Model, ReplayModel, ScriptedModel, use_model
from podwright.result import ExecutionResult
from podwright.usage import Usage

__all__ = [
    "EchoModel",
    "FunctionModel",
    "Message",
    "Model",
    "ModelRequest",
    "ModelResponse",
    "ReplayModel",
    "ScriptedModel",
    "ToolCall",
    "Usage",
    "assert_events",
    "events_of",
    "forbid_models",
    "use_model",
]


def events_of(trace: ExecutionResult | Iterable[Event], *types: str) -> list[Event]:
    """The events of these types, in order; of all types if none is named."""
    events = trace.events if isinstance(trace, ExecutionResult) else trace
    return [event for event in events if not types or event.type in types]


def assert_events(trace: ExecutionResult | Iterable[Event], *expected: str) -> None:
    """Assert that these events happened in this order, with any others between them.

    Args:
        trace: A traced result, or events.
        *expected: Each an event type, which may be followed by fields: `"step_started step=write"`.

    Raises:
        AssertionError: One did not happen, or not in its turn; with all that did.
    """
    events = events_of(trace)
    position = 0
    for wanted in expected:
        kind, *conditions = wanted.split(" ")
        fields = [condition.partition("=")[::2] for condition in conditions]
        position = next(
            (
                number + 1
                for number, event in enumerate(events[position:], position)
                if event.type == kind and all(to_text(getattr(event, key, None)) == value for key, value in fields)
            ),
            -1,
        )
        if position < 0:
            happened = "\n".join(f"  {event.type} ({event.component})" for event in events)
            raise AssertionError(f"'{wanted}' did not happen in its turn. What happened:\n{happened}")


@contextlib.contextmanager
def forbid_models() -> Generator[None]:
    """Within this context, every model call fails; for test suites that must never reach a real model."""

    def refuse(request: ModelRequest) -> ModelResponse:
        raise ModelError(f"The test called the model of '{request.component}', which is forbidden here.")

    with use_model(FunctionModel(refuse, name="offline/forbidden")):
        yield
