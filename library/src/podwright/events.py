"""The events of a run: what traces record, streams send and telemetry counts.

Events are frozen data, discriminated by `type`; each survives a round trip through JSON. A run gives the common
fields: `run.emit(StepStarted(**run.stamp(), step="draft", step_type="agent_step"))`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal, get_args

from pydantic import Field, TypeAdapter

from podwright.data.json_data import to_json_data
from podwright.data.text import did_you_mean, short_repr
from podwright.errors import (
    ApprovalRejectedError,
    ApprovalRequired,
    ConfigurationError,
    ModelRefusedError,
)
from podwright.kinds import Kind
from podwright.messages.messages import ModelRequest, ModelResponse
from podwright.messages.shared_state import StateChange
from podwright.messages.usage import Usage
from podwright.threads import is_async

TraceFormat = Literal["podwright.trace/1"]
"""The format of saved events; it changes only if the meaning of the data changes."""
TRACE_FORMAT: TraceFormat = "podwright.trace/1"

Outcome = Literal[
    "ok",
    "exhausted",
    "caught",
    "failed",
    "rejected",
    "refused",
    "cancelled",
    "paused",
]
"""How a step ended. The workflow goes on after `exhausted`, a loop that ended by `max_iterations`, and after `caught`,
a try step whose steps failed. `rejected`: a person has rejected it, or a step inside it."""


def is_rejection(error: Mapping[str, Any]) -> bool:
    """Whether the `error` of an event is that a person has rejected something."""
    return error.get("code") == ApprovalRejectedError.code


def is_refusal(error: Mapping[str, Any]) -> bool:
    """Whether the `error` of an event is that a function has refused something; see `Refusal`."""
    return "refusal" in error and error.get("code") != ModelRefusedError.code


def is_pause(error: Mapping[str, Any]) -> bool:
    """Whether the `error` of an event is that a person is asked."""
    return error.get("code") == ApprovalRequired.code


@dataclass(frozen=True, slots=True, kw_only=True)
class RunEvent:
    """The fields that all events have."""

    seq: int = 0
    """Position in the trace, from 0, counted over all nested runs."""
    at: float = 0.0
    """Unix time in seconds."""
    run_id: str = ""
    """The run that emitted the event; nested runs have ids of their own."""
    parent_id: str | None = None
    """The run that it is nested in; None for the outermost."""
    component: str = ""
    """Name of the component that runs."""
    kind: Kind = "agent"
    """Kind of that component."""
    path: tuple[int, ...] = ()
    """Position in the outermost run: step indices with the branch, iteration or item inside each, outermost first."""
    remote: str | None = None
    """Name of the remote component whose service emitted the event; None for this process."""

    def to_dict(self) -> dict[str, Any]:
        """The event as JSON-compatible data."""
        return to_json_data(self)


def _without_empty(data: dict[str, Any], *names: str) -> dict[str, Any]:
    """The data of an event without those of these fields that say nothing."""
    for name in names:
        if not data[name]:
            del data[name]
    return data


_OF_OUTERMOST = ("began", "user", "session", "metadata")
"""The fields of the start of a run that are left out if they say nothing, as of a nested run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunEnded(RunEvent):
    """The fields of the events that end a run."""

    usage: Usage = field(default_factory=Usage)
    """What the run used, nested runs included."""
    duration_ms: float = 0.0
    """Milliseconds from its start."""
    tool_call: int | None = None
    """The tool call of the run around it that this run is part of, by its number; None if it is not part of one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunStarted(RunEvent):
    """A run began."""

    type: Literal["run_started"] = "run_started"
    input: Any = None
    """The input as JSON-compatible data."""
    began: float = 0.0
    """Of the outermost run: when its first attempt began, as Unix time in seconds."""
    user: str = ""
    """Of the outermost run: for whom it is, as its caller says."""
    session: str = ""
    """Of the outermost run: the session that it is a part of, as its caller says."""
    metadata: Mapping[str, str] = field(default_factory=dict[str, str])
    """Of the outermost run: what else its caller says."""

    def to_dict(self) -> dict[str, Any]:
        """The event as JSON-compatible data."""
        return _without_empty(RunEvent.to_dict(self), *_OF_OUTERMOST)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFinished(RunEnded):
    """A run ended with a value."""

    type: Literal["run_finished"] = "run_finished"
    value: Any = None
    """The value as JSON-compatible data."""
    data: Any = None
    """The result as data if it is more than texts: a structured answer, or a workflow's context with data."""
    finish_reason: str = "stop"
    """How the answer of a model that is the value ended; see `ExecutionResult.finish_reason`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFailed(RunEnded):
    """A run ended with an error."""

    type: Literal["run_failed"] = "run_failed"
    error: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """`PodwrightError.to_dict()`; for a workflow with its context and resume path."""

    @property
    def is_rejection(self) -> bool:
        """Whether a person has decided so, and nothing failed."""
        return is_rejection(self.error)

    @property
    def is_refusal(self) -> bool:
        """Whether a function has decided so, and nothing failed."""
        return is_refusal(self.error)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunCancelled(RunEnded):
    """The run was cancelled, by its caller or because a parallel branch failed."""

    type: Literal["run_cancelled"] = "run_cancelled"
    context: Mapping[str, Any] | None = None
    """The context of a workflow so far."""
    resume_path: tuple[int, ...] | None = None
    """Where a workflow resumes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunPaused(RunEnded):
    """A workflow waits for approval."""

    type: Literal["run_paused"] = "run_paused"
    message: str = ""
    """The question to the person who approves."""
    question: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """The same with the `options`, what may be changed (`edit`), and the `tool` that is to be called."""
    context: Mapping[str, Any] | None = None
    resume_path: tuple[int, ...] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelCallStarted(RunEvent):
    """A model call began."""

    type: Literal["model_call_started"] = "model_call_started"
    call: int = 0
    """Number of the call within its run, or within its tool call, from 0."""
    request: ModelRequest = field(default_factory=lambda: ModelRequest("", ()))
    tool_call: int | None = None
    """Number of the tool call whose function made it by itself, and has reported it; None if the run made it."""

    @property
    def is_reported(self) -> bool:
        """Whether a function made the call by itself, so that the request is not known."""
        return not self.request.messages


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelCallFinished(RunEvent):
    """A model call succeeded."""

    type: Literal["model_call_finished"] = "model_call_finished"
    call: int = 0
    model: str = ""
    """The model that answered, `<provider>/<model_name>`: the requested one, or one of its fallbacks."""
    response: ModelResponse = field(default_factory=ModelResponse)
    duration_ms: float = 0.0
    first_token_ms: float | None = None
    """Milliseconds to the first token, if the response was streamed."""
    failed_usage: Usage = field(default_factory=Usage)
    """What the attempts before used that failed after an answer had begun, by model; not part of the response's."""
    tool_call: int | None = None
    """As in `ModelCallStarted`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelCallFailed(RunEvent):
    """A model call failed or was cancelled."""

    type: Literal["model_call_failed"] = "model_call_failed"
    call: int = 0
    model: str = ""
    """The model that was asked last, `<provider>/<model_name>`."""
    error: Mapping[str, Any] = field(default_factory=dict[str, Any])
    duration_ms: float = 0.0
    usage: Usage = field(default_factory=Usage)
    """What its attempts used that failed after an answer had begun, by model."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelCallRetried(RunEvent):
    """An attempt of a model call failed, and the call is retried."""

    type: Literal["model_call_retried"] = "model_call_retried"
    call: int = 0
    tries: int = 1
    """Failed attempts so far."""
    error: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """The error of the last attempt."""
    wait_ms: float = 0.0
    """Milliseconds until the next attempt."""
    model: str = ""
    """The model that is asked again, `<provider>/<model_name>`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelCallFellBack(RunEvent):
    """A model could not answer, and the next one of `fallback` is asked."""

    type: Literal["model_call_fell_back"] = "model_call_fell_back"
    call: int = 0
    model: str = ""
    """The model that could not answer, `<provider>/<model_name>`."""
    error: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """The error of its last attempt."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Token(RunEvent):
    """A piece of a streamed model response."""

    type: Literal["token"] = "token"
    call: int = 0
    text: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reasoning(RunEvent):
    """A piece of a model's streamed thoughts, which are not part of its answer."""

    type: Literal["reasoning"] = "reasoning"
    call: int = 0
    text: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolCallEvent(RunEvent):
    """The fields of the events of a tool call."""

    call: int = 0
    """Number of the call within its run, from 0."""
    tool: str = ""
    call_id: str = ""
    """The id that the model gave to the call."""
    server: str = ""
    """The MCP server that the tool is of; empty for others, whose events as JSON do not have it."""

    def to_dict(self) -> dict[str, Any]:
        """The event as JSON-compatible data."""
        return _without_empty(RunEvent.to_dict(self), "server")


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolCallStarted(ToolCallEvent):
    """A tool call began."""

    type: Literal["tool_call_started"] = "tool_call_started"
    arguments: Any = None
    """The arguments as JSON data; the model's text if that is not valid JSON."""
    idempotent: bool = False
    """Whether the call may be repeated if its end is unknown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolCallEnded(ToolCallEvent):
    """The fields of the events that end a tool call."""

    duration_ms: float = 0.0
    state: StateChange | None = None
    """What it has changed in the state of the run; the event as JSON has none if nothing."""

    def to_dict(self) -> dict[str, Any]:
        """The event as JSON-compatible data."""
        return _without_empty(ToolCallEvent.to_dict(self), "state")


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolCallFinished(ToolCallEnded):
    """A tool call succeeded."""

    type: Literal["tool_call_finished"] = "tool_call_finished"
    output: Any = ""
    """The result as the model gets it: a text, or texts, images and files; of a function step as JSON data."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolCallFailed(ToolCallEnded):
    """A tool call was rejected, raised an error or was cancelled."""

    type: Literal["tool_call_failed"] = "tool_call_failed"
    error: Mapping[str, Any] = field(default_factory=dict[str, Any])
    report: str | None = None
    """What the model was told instead of a result; empty if it was told nothing, and the failure ended the run. None in
    events of older releases, which do not say it."""

    @property
    def is_rejection(self) -> bool:
        """Whether a person has rejected the call, and nothing failed."""
        return is_rejection(self.error)

    @property
    def is_refusal(self) -> bool:
        """Whether the function has refused the call, and nothing failed."""
        return is_refusal(self.error)

    @property
    def is_pause(self) -> bool:
        """Whether the run inside the call waits for a person, and nothing failed."""
        return is_pause(self.error)


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress(RunEvent):
    """A function tells how far it has come; see `RunContext.report`."""

    type: Literal["progress"] = "progress"
    text: str = ""
    data: Any = None
    """The same for programs, as JSON data."""
    tool_call: int | None = None
    """Number of the tool call whose function tells it; None if it is a condition."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HistoryCut(RunEvent):
    """The oldest turns of a conversation were left out of the requests to the model, because it is too long."""

    type: Literal["history_cut"] = "history_cut"
    messages: int = 0
    """How many messages are left out from now on, counted from the first."""
    turns: int = 0
    """How many turns they are."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HandoffEvent(RunEvent):
    """The model of an agent handed the conversation over to another agent."""

    type: Literal["handoff"] = "handoff"
    from_agent: str = ""
    """Name of the agent that spoke."""
    to_agent: str = ""
    """Name of the agent that goes on."""


@dataclass(frozen=True, slots=True)
class PlanStep:
    """One step of a conductor's plan."""

    skill: str
    """Name of the skill."""
    task: str
    """Its task."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanMade(RunEvent):
    """A conductor made or replaced its plan."""

    type: Literal["plan_made"] = "plan_made"
    revision: int = 0
    """0 for the first plan."""
    steps: tuple[PlanStep, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class StepStarted(RunEvent):
    """A step of a workflow, pipeline or plan began."""

    type: Literal["step_started"] = "step_started"
    step: str = ""
    """Name of the step."""
    step_type: str = ""
    """`agent_step`, `parallel_step`, …; in a conductor `plan`, `plan_step` and `skill_step`; of an agent that
    another one answers for, `handoff_step`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepFinished(RunEvent):
    """A step ended, with any outcome."""

    type: Literal["step_finished"] = "step_finished"
    step: str = ""
    step_type: str = ""
    outcome: Outcome = "ok"
    duration_ms: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ConditionChecked(RunEvent):
    """A workflow evaluated a condition."""

    type: Literal["condition_checked"] = "condition_checked"
    step: str = ""
    condition: str = ""
    result: bool = False
    state: StateChange | None = None
    """What its function has changed in the state of the run; the event as JSON has none if nothing."""

    def to_dict(self) -> dict[str, Any]:
        """The event as JSON-compatible data."""
        return _without_empty(RunEvent.to_dict(self), "state")


@dataclass(frozen=True, slots=True, kw_only=True)
class LoopExhausted(RunEvent):
    """A loop ended by `max_iterations`: its condition does not hold."""

    type: Literal["loop_exhausted"] = "loop_exhausted"
    step: str = ""
    iterations: int = 0
    """How many it did."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ErrorCaught(RunEvent):
    """An attempt of a try step failed, and the workflow goes on: with the next attempt, or with `catch`."""

    type: Literal["error_caught"] = "error_caught"
    step: str = ""
    attempt: int = 0
    """Number of the attempt, from 0; the last number of the path."""
    error: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """`code`, `message` and `component` of the error, as the steps in `catch` are told."""
    wait_ms: float = 0.0
    """Milliseconds until the next attempt; 0 if there is none."""


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
    | ModelCallFellBack
    | Token
    | Reasoning
    | ToolCallStarted
    | ToolCallFinished
    | ToolCallFailed
    | Progress
    | HistoryCut
    | HandoffEvent
    | PlanMade
    | StepStarted
    | StepFinished
    | ConditionChecked
    | LoopExhausted
    | ErrorCaught,
    Field(discriminator="type"),
]
"""Any event, discriminated by `type`."""

_EVENT_CLASSES = get_args(get_args(Event)[0])
_TYPES = {
    event.__dataclass_fields__["type"].default for event in _EVENT_CLASSES
}

ModelCallKey = tuple[str, tuple[int, ...], int | None, int]
"""What tells a model call from the others of a trace."""


def model_call_key(
    event: ModelCallStarted | ModelCallFinished | ModelCallFailed,
) -> ModelCallKey:
    """The model call of an event: the same for its start and its end."""
    tool_call: int | None = None
    if not isinstance(event, ModelCallFailed):
        tool_call = event.tool_call
    return event.run_id, event.path, tool_call, event.call


Subscriber = Callable[[Event], object]
"""A fast synchronous callable; it is called with each event, in order, on the thread of the run.

While it is called with the failure of a run, a step or a call of this process, `sys.exception()` is the error with its
traceback, which the event itself does not have.
"""


def check_subscriber(function: Callable[[Any], object], name: str) -> None:
    """Refuse a subscriber that would have to be awaited, because a run does not wait for its subscribers.

    Args:
        function: The subscriber.
        name: What the caller gave it as.

    Raises:
        ConfigurationError: It is async.
    """
    if is_async(function):
        raise ConfigurationError(
            f"'{name}' must be a plain function, not the async {short_repr(function)}.",
            suggestion="Use `async for event in component.astream(...)` instead.",
        )


@functools.cache
def adapter() -> TypeAdapter[Event]:
    """The pydantic adapter that reads events from JSON data."""
    return TypeAdapter(Event)


class EventManager:
    """Subscribers that several components share.

    Pass one manager to any number of components; each event of their runs is delivered once.
    """

    def __init__(self) -> None:
        self._subscribers: tuple[Subscriber, ...] = ()

    @property
    def subscribers(self) -> tuple[Subscriber, ...]:
        """The current subscribers; a run keeps those it found at its start."""
        return self._subscribers

    def subscribe(
        self, subscriber: Subscriber, *types: str
    ) -> Callable[[], None]:
        """Call `subscriber` with every event, or only with events of the given types.

        Args:
            subscriber: A fast synchronous callable. If it raises, the error is logged and it gets no more events of
                that run.
            types: Event types such as "token"; none means all.

        Returns:
            A function that ends the subscription.

        Raises:
            ConfigurationError: An event type does not exist, or the subscriber is async.
        """
        check_subscriber(subscriber, "subscriber")
        added = subscriber
        if types:
            added = _filtered(subscriber, frozenset(types))
        self._subscribers = (*self._subscribers, added)

        def unsubscribe() -> None:
            self._subscribers = tuple(
                existing
                for existing in self._subscribers
                if existing is not added
            )

        return unsubscribe


_all_runs = EventManager()


def subscribe(subscriber: Subscriber, *types: str) -> Callable[[], None]:
    """Call `subscriber` with the events of all runs in this process that begin from now on.

    Arguments, result and errors are those of `EventManager.subscribe`.
    """
    return _all_runs.subscribe(subscriber, *types)


def subscribers_of_all_runs() -> tuple[Subscriber, ...]:
    """The current subscribers of all runs in this process."""
    return _all_runs.subscribers


def _filtered(subscriber: Subscriber, types: frozenset[str]) -> Subscriber:
    """A subscriber that passes on the events of these types.

    Raises:
        ConfigurationError: An event type does not exist.
    """
    unknown = sorted(types - _TYPES)
    if unknown:
        hint = did_you_mean(unknown[0], sorted(_TYPES))
        raise ConfigurationError(
            f"Unknown event type '{unknown[0]}'.", suggestion=hint
        )

    def pass_on(event: Event) -> None:
        if event.type in types:
            subscriber(event)

    return pass_on
