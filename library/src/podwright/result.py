"""What a run gives back when tracing is on: value, events, time and usage; replayed, saved and read again."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, cast

from pydantic import ValidationError

from podwright.errors import TraceError
from podwright.events import Event, Subscriber, adapter
from podwright.json_data import to_json_data
from podwright.printer import Printer
from podwright.usage import Usage

FORMAT = "podwright.trace/1"
"""The format that `to_dict` writes; it changes only with the meaning of the data."""

_LONGEST_REPLAY = 3600.0
"""Seconds that a replay pauses at most in all: a damaged trace may tell of centuries."""


@dataclass(slots=True)
class ExecutionResult:
    """A run's outcome (spec §2.5)."""

    value: Any
    """What the run returned; plain data where the result was read from a file."""
    events: list[Event] = field(repr=False)
    """What happened, in order; empty unless the run was traced."""
    duration_ms: float
    """Milliseconds from start to end."""
    usage: Usage
    """Tokens, calls and cost, nested runs included."""

    def replay(self, delay: float | None = 0.0, subscriber: Subscriber | None = None) -> None:
        """Emit the recorded events again, step by step.

        Args:
            delay: Seconds to pause between events; None pauses as the run did, for no longer in all
                than it took, nor than an hour.
            subscriber: Who is given the events; by default they are printed with their timing.
        """
        emit = subscriber or Printer(timing=True)
        before: float | None = None
        left = min(_LONGEST_REPLAY, self.duration_ms / 1000)
        for event in self.events:
            if before is not None:
                pause = min(left, event.at - before) if delay is None else delay
                if pause > 0:
                    left -= pause
                    time.sleep(pause)
            before = event.at
            emit(event)

    def to_dict(self) -> dict[str, Any]:
        """The result as a JSON-compatible dictionary, the trace included."""
        return {
            "format": FORMAT,
            "value": to_json_data(self.value),
            "events": [event.to_dict() for event in self.events],
            "duration_ms": self.duration_ms,
            "usage": self.usage.to_dict(),
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> ExecutionResult:
        """Read what `to_dict` wrote, on this machine or another.

        Raises:
            TraceError: The data is no trace, or one of a newer format.
        """
        if not isinstance(data, Mapping):  # pyright: ignore[reportUnnecessaryIsInstance] - it comes from a file
            raise TraceError(f"A trace is an object, not {type(data).__name__}.")
        if data.get("format") != FORMAT:
            raise TraceError(
                f"This is no trace that this release reads: its format is {data.get('format')!r}, not '{FORMAT}'.",
                suggestion="Use a file written from ExecutionResult.to_dict(), or upgrade podwright.",
            )
        missing = [key for key in ("value", "events", "duration_ms", "usage") if key not in data]
        if missing:
            raise TraceError(f"The trace is incomplete: it has no {', '.join(repr(key) for key in missing)}.")
        if not isinstance(data["events"], list):
            raise TraceError(f"The trace is damaged: its events are no array but {type(data['events']).__name__}.")
        try:
            json.dumps(dict(data), allow_nan=False)  # what is no JSON would fail later, and elsewhere
            events = [adapter().validate_python(event) for event in cast("list[Any]", data["events"])]
            usage = usage_from(data["usage"])
            return cls(data["value"], events, float(data["duration_ms"]), usage)
        except ValidationError as error:
            first = error.errors(include_url=False, include_input=False)[0]
            where = "/".join(str(part) for part in first["loc"])
            raise TraceError(f"The trace is damaged at {error.title} {where}: {first['msg']}.") from error
        except (TypeError, ValueError, OverflowError, RecursionError) as error:
            raise TraceError(f"The trace is damaged: {error}.") from error


def usage_from(data: Any) -> Usage:
    """The usage that `Usage.to_dict` wrote.

    Raises:
        pydantic.ValidationError: It is none.
    """
    from pydantic import TypeAdapter  # built here only: reading a trace is rare, and importing is not

    return TypeAdapter(Usage).validate_python(data)
