"""For tests of components: models that need no network, and assertions on events.

Example:
    from podwright import Agent
    from podwright.testing import ScriptedModel, ToolCall, assert_events

    def test_the_agent_looks_up_the_weather():
        model = ScriptedModel(ToolCall.of("get_weather", city="Paris"), "Sunny.")
        result = Agent("guide", "Help.", model, tools=[get_weather]).run("Paris?", trace=True)
        assert result.value == "Sunny."
        assert_events(result, "tool_call_finished tool=get_weather", "run_finished")
"""

from __future__ import annotations

import contextlib
from collections.abc import Generator, Iterable

from podwright.data.json_data import to_text
from podwright.errors import ModelError
from podwright.events import Event
from podwright.messages.messages import Message as Message
from podwright.messages.messages import ModelRequest as ModelRequest
from podwright.messages.messages import ModelResponse as ModelResponse
from podwright.messages.messages import ToolCall as ToolCall
from podwright.messages.usage import Usage as Usage
from podwright.models import EchoModel as EchoModel
from podwright.models import FunctionModel as FunctionModel
from podwright.models import Model as Model
from podwright.models import RecordedAnswers as RecordedAnswers
from podwright.models import RecordingModel as RecordingModel
from podwright.models import ReplayModel as ReplayModel
from podwright.models import ScriptedModel as ScriptedModel
from podwright.models import use_model as use_model
from podwright.run.result import ExecutionResult
from podwright.tools.fake import FakeTool as FakeTool


def events_of(
    trace: ExecutionResult | Iterable[Event], *types: str
) -> list[Event]:
    """The events of these types, in order; of all types if none is named."""
    if isinstance(trace, ExecutionResult):
        trace = trace.events
    return [event for event in trace if not types or event.type in types]


def assert_events(
    trace: ExecutionResult | Iterable[Event], *expected: str
) -> None:
    """Assert that events happened in this order, with any others between them.

    Args:
        trace: A traced result, or events.
        *expected: Event types, each optionally followed by fields: `"step_started step=write"`.

    Raises:
        AssertionError: An event did not happen in this order; with all events that did.
    """
    events = events_of(trace)
    remaining = iter(events)
    for wanted in expected:
        # each search goes on after the event that the one before has found
        if not any(_fits(event, wanted) for event in remaining):
            happened = [
                f"  {event.type} ({event.component})" for event in events
            ]
            raise AssertionError(
                f"'{wanted}' did not happen in this order. The events are:\n"
                + "\n".join(happened)
            )


def _fits(event: Event, wanted: str) -> bool:
    event_type, *conditions = wanted.split(" ")
    if event.type != event_type:
        return False
    for condition in conditions:
        key, _, value = condition.partition("=")
        if to_text(getattr(event, key, None)) != value:
            return False
    return True


@contextlib.contextmanager
def forbid_models() -> Generator[None]:
    """Within this context every model call fails; for test suites that must never reach a real model."""

    def refuse(request: ModelRequest) -> ModelResponse:
        raise ModelError(
            f"The test called the model of '{request.component}', which is forbidden here."
        )

    with use_model(FunctionModel(refuse, name="offline/forbidden")):
        yield
