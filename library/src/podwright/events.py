"""The facts of a run, one event each: what the trace records, the stream sends, and the telemetry counts.

Events are plain frozen data, told apart by `type`; each goes through JSON and back unchanged. A run stamps
the common fields when it emits an event, so whoever makes one gives only what is new in it.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal, get_args

from pydantic import Field, TypeAdapter

from podwright.errors import ConfigurationError
from podwright.json_data import to_json_data
from podwright.messages import ModelRequest, ModelResponse
from podwright.text import did_you_mean
from podwright.usage import Usage

Kind = Literal["agent", "workflow", "conductor", "pipeline"]
"""The kinds of components, as events, routes and metrics name them."""

Outcome = Literal["ok", "failed", "cancelled", "paused"]


@dataclass(frozen=True, slots=True, kw_only=True)
class RunEvent:
    """What every event says."""

    seq: int = 0
    """Position in the trace, from 0, without gaps over nested runs."""
    at: float = 0.0
    """When, in seconds since 1970 (UTC)."""
    run_id: str = ""
    """The run that tells; nested runs have their own."""
    parent_id: str | None = None
    """The run that this one is nested in."""
    component: str = ""
    """Name of the component that runs."""
    kind: Kind = "agent"
    """Kind of that component."""
    path: tuple[int, ...] = ()
    """Where in the outermost workflow this happened: step indices, outermost first."""
    remote: str | None = None
    """Name of the remote component that told of this; None is this process, which alone counts what it tells."""

    def to_dict(self) -> dict[str, Any]:
        """The event as a JSON-compatible dictionary."""
        return to_json_data(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunStarted(RunEvent):
    """A component began to work on an input."""

    type: Literal["run_started"] = "run_started"
    input: Any = None
    """The input as JSON-compatible data."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFinished(RunEvent):
    """A run came to its end with a value."""

    type: Literal["run_finished"] = "run_finished"
    value: Any = None
    """The value as JSON-compatible data."""
    usage: Usage = field(default_factory=Usage)
    """What the run used, nested runs included."""
    duration_ms: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFailed(RunEvent):
    """A run ended with an error."""

    type: Literal["run_failed"] = "run_failed"
    error: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """`PodwrightError.to_dict()`; for a workflow with its context and resume path."""
    usage: Usage = field(default_factory=Usage)
    duration_ms: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class RunCancelled(RunEvent):
    """The caller cancelled the run, or a failed sibling did."""

    type: Literal["run_cancelled"] = "run_cancelled"
    context: Mapping[str, Any] | None = None
    """A workflow's context so far."""
    resume_path: tuple[int, ...] | None = None
    """Where a workflow goes on."""
    usage: Usage = field(default_factory=Usage)
    duration_ms: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class RunPaused(RunEvent):
    """A workflow waits for a person."""

    type: Literal["run_paused"] = "run_paused"
    message: str = ""
    """What the person is asked."""
    context: Mapping[str, Any] | None = None
    resume_path: tuple[int, ...] | None = None
    usage: Usage = field(default_factory=Usage)
    duration_ms: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelCallStarted(RunEvent):
    """A model is asked."""

    type: Literal["model_call_started"] = "model_call_started"
    call: int = 0
    """Number of the call within its run, from 0."""
    request: ModelRequest = field(default_factory=lambda: ModelRequest("", ()))


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelCallFinished(RunEvent):
    """A model has answered."""

    type: Literal["model_call_finished"] = "model_call_finished"
    call: int = 0
    model: str = ""
    """The model that was asked, "<provider>/<model_name>"."""
    response: ModelResponse = field(default_factory=ModelResponse)
    duration_ms: float = 0.0
    first_token_ms: float | None = None
    """Time to the first token, where the answer was streamed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelCallFailed(RunEvent):
    """A model call ended with an error, or was cancelled."""

    type: Literal["model_call_failed"] = "model_call_failed"
    call: int = 0
    model: str = ""
    """The model that was asked, "<provider>/<model_name>"."""
    error: Mapping[str, Any] = field(default_factory=dict[str, Any])
    duration_ms: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelCallRetried(RunEvent):
    """A try of a model call failed, and the same call is tried again."""

    type: Literal["model_call_retried"] = "model_call_retried"
    call: int = 0
    tries: int = 1
    """How many tries have failed."""
    error: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """Why the last one failed."""
    wait_ms: float = 0.0
    """The wait before the next one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Token(RunEvent):
    """A piece of a model's answer, as it arrives."""

    type: Literal["token"] = "token"
    call: int = 0
    text: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolCallStarted(RunEvent):
    """A tool is called."""

    type: Literal["tool_call_started"] = "tool_call_started"
    tool: str = ""
    call_id: str = ""
    """The model's name for the call."""
    arguments: Any = None
    """The arguments as JSON; the model's own text if that is no JSON."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolCallFinished(RunEvent):
    """A tool has answered."""

    type: Literal["tool_call_finished"] = "tool_call_finished"
    tool: str = ""
    call_id: str = ""
    output: str = ""
    """What the model is given."""
    duration_ms: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolCallFailed(RunEvent):
    """A tool call was refused, raised an error or was cancelled."""

    type: Literal["tool_call_failed"] = "tool_call_failed"
    tool: str = ""
    call_id: str = ""
    error: Mapping[str, Any] = field(default_factory=dict[str, Any])
    duration_ms: float = 0.0


@dataclass(frozen=True, slots=True)
class PlanStep:
    """One step of a conductor's plan."""

    skill: str
    """Name of the skill agent."""
    task: str
    """What it is to do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanMade(RunEvent):
    """A conductor made its plan, or a new one in its place."""

    type: Literal["plan_made"] = "plan_made"
    revision: int = 0
    """0 for the first plan."""
    steps: tuple[PlanStep, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class StepStarted(RunEvent):
    """A step of a workflow, a pipeline or a plan began."""

    type: Literal["step_started"] = "step_started"
    step: str = ""
    """Name of the step."""
    step_type: str = ""
    """`agent_step`, `parallel_step`, …; `plan_step` in a conductor."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepFinished(RunEvent):
    """A step came to its end, in whatever way."""

    type: Literal["step_finished"] = "step_finished"
    step: str = ""
    step_type: str = ""
    outcome: Outcome = "ok"
    duration_ms: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ConditionChecked(RunEvent):
    """A workflow asked a condition."""

    type: Literal["condition_checked"] = "condition_checked"
    step: str = ""
    condition: str = ""
    result: bool = False


Event = Annotated[
    RunStarted
    | RunFinished
    | RunFailed
    | RunCancelled
    | RunPaused
    | ModelCallStarted
    | ModelCallFinished
    | ModelCallFailed
    | ModelCallRetried
    | Token
    | ToolCallStarted
    | ToolCallFinished
    | ToolCallFailed
    | PlanMade
    | StepStarted
    | StepFinished
    | ConditionChecked,
    Field(discriminator="type"),
]
"""Any event; `type` tells which."""

RUN_ENDS = (RunFinished, RunFailed, RunCancelled, RunPaused)
"""The events one of which is every run's last."""

_TYPES = {one.__dataclass_fields__["type"].default for one in get_args(get_args(Event)[0])}

Subscriber = Callable[[Event], object]
"""A quick plain callable; it is called in the order of the events, on the run's own thread."""


@functools.cache
def adapter() -> TypeAdapter[Event]:
    """The reader of events from plain data; built on first use, for it takes some milliseconds."""
    return TypeAdapter(Event)


class EventManager:
    """Subscribers that several components share.

    Give one manager to any number of components; it hears the runs of all of them, and each event once.
    """

    def __init__(self) -> None:
        self._subscribers: tuple[Subscriber, ...] = ()

    @property
    def subscribers(self) -> tuple[Subscriber, ...]:
        """Who listens now; a run keeps those it found when it started."""
        return self._subscribers

    def subscribe(self, subscriber: Subscriber, *types: str) -> Callable[[], None]:
        """Call `subscriber` with every event, or only with those of the named types.

        Args:
            subscriber: A quick plain callable. One that raises is logged once and left out for that run.
            types: Event types such as "token"; none means all.

        Returns:
            A function that ends the subscription.

        Raises:
            ConfigurationError: There is no such type.
        """
        wanted = frozenset(types)
        if unknown := wanted - _TYPES:
            name = min(unknown)
            raise ConfigurationError(
                f"There are no events of type '{name}'.", suggestion=did_you_mean(name, sorted(_TYPES))
            )

        def some(event: Event) -> None:
            if event.type in wanted:
                subscriber(event)

        chosen = some if types else subscriber
        self._subscribers = (*self._subscribers, chosen)

        def unsubscribe() -> None:
            self._subscribers = tuple(one for one in self._subscribers if one is not chosen)

        return unsubscribe
