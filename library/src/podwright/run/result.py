"""The result of a run: value, events, duration and usage; replayed, saved and read again."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from pydantic import BaseModel, ConfigDict, JsonValue, ValidationError

from podwright.data.json_data import to_json_data
from podwright.data.text import short_repr
from podwright.errors import ConfigurationError, TraceError
from podwright.events import (
    TRACE_FORMAT,
    Event,
    Subscriber,
    TraceFormat,
    check_subscriber,
)
from podwright.messages.usage import Usage
from podwright.run.printer import Printer
from podwright.schemas.validation_errors import to_problems

_MAX_PAUSE = 1e9
"""Seconds; the system refuses pauses of some centuries."""


@dataclass(slots=True)
class ExecutionResult:
    """The outcome of a run (spec §2.5)."""

    value: Any
    """What the run returned; JSON data if the result was read from a file."""
    events: list[Event] = field(repr=False)
    """What happened, in order; empty unless the run was traced."""
    duration_ms: float
    """Milliseconds from start to end."""
    usage: Usage
    """Tokens, calls and cost, nested runs included."""
    messages: list[dict[str, Any]] = field(
        default_factory=list[dict[str, Any]], repr=False
    )
    """The conversation after the run, to be passed on as `messages`."""
    data: Any = None
    """The result as JSON data if it is more than texts: a structured answer, or the context of a workflow with data."""
    finish_reason: str = "stop"
    """How the answer of a model that is the value ended: `stop`; `length`, if the caller's `max_tokens` cut it off;
    `refusal`, if the value is the words by which the model refused; or `unknown`, if it may not be whole."""
    state: dict[str, Any] = field(default_factory=dict[str, Any], repr=False)
    """What the functions of the run have left in `RunContext.state`; no part of a trace."""

    def replay(
        self, delay: float | None = 0.0, subscriber: Subscriber | None = None
    ) -> None:
        """Emit the recorded events again, step by step.

        Args:
            delay: Seconds to pause between events; None pauses as long as the run did.
            subscriber: Is called with each event; by default the events are printed with their times.

        Raises:
            ConfigurationError: The delay is not a number of seconds from 0 on, or the subscriber is async.
        """
        _check_delay(delay)
        emit = subscriber or Printer(timing=True)
        check_subscriber(emit, "subscriber")
        previous: Event | None = None
        for event in self.events:
            if previous is not None:
                _pause_between(previous, event, delay)
            emit(event)
            previous = event

    def to_dict(self) -> dict[str, Any]:
        """The result as JSON-compatible data, the trace included."""
        data = {
            "format": TRACE_FORMAT,
            "value": to_json_data(self.value),
            "events": [event.to_dict() for event in self.events],
            "duration_ms": self.duration_ms,
            "usage": self.usage.to_dict(),
        }
        if self.messages:
            data["messages"] = self.messages
        if self.data is not None:
            data["data"] = self.data
        if self.finish_reason != "stop":
            data["finish_reason"] = self.finish_reason
        return data

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> ExecutionResult:
        """Read what `to_dict` wrote, on this machine or another.

        Raises:
            TraceError: The data is not a trace, or has a newer format.
        """
        try:
            saved = _SavedResult.model_validate(data)
        except ValidationError as error:
            problem = to_problems(error.errors(include_url=False), data)[0]
            raise TraceError(
                f"Invalid trace at '{problem.pointer}': {problem.detail}"
            ) from error
        return cls(
            value=saved.value,
            events=saved.events,
            duration_ms=saved.duration_ms,
            usage=saved.usage,
            messages=saved.messages,
            data=saved.data,
            finish_reason=saved.finish_reason,
        )


def _check_delay(delay: object) -> None:
    if delay is None:
        return
    if isinstance(delay, int | float) and 0 <= delay <= _MAX_PAUSE:
        return
    raise ConfigurationError(
        f"Invalid delay {short_repr(delay)}.",
        suggestion="Pass a number of seconds from 0 on.",
    )


def _pause_between(earlier: Event, later: Event, delay: float | None) -> None:
    pause = delay
    if pause is None:
        pause = later.at - earlier.at
    if pause > 0:
        time.sleep(min(pause, _MAX_PAUSE))


class _SavedResult(BaseModel):
    model_config = ConfigDict(extra="ignore", defer_build=True)

    format: TraceFormat
    value: JsonValue
    events: list[Event]
    duration_ms: float
    usage: Usage
    messages: list[dict[str, Any]] = []
    data: JsonValue = None
    finish_reason: str = "stop"
