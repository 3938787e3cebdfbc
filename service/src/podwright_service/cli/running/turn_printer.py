"""The printer of a turn of `podwright chat`."""

from __future__ import annotations

import contextlib
import json
import sys
from typing import Any

from podwright import events
from podwright.chats.transfers import Speaker
from podwright.data.json_data import to_text
from podwright.data.text import printable
from podwright.events import Event
from podwright.messages.usage import NO_USAGE
from podwright.run.printer import event_line
from podwright_service.cli.console import print_note

_NOTES = (
    events.ToolCallStarted, events.ToolCallFinished, events.ToolCallFailed, events.ModelCallRetried,
    events.ModelCallFellBack, events.HistoryCut, events.HandoffEvent, events.PlanMade, events.StepStarted,
    events.ErrorCaught, events.Progress,
)  # fmt: skip
"""The events that a turn prints as a line."""


class TurnPrinter:
    """Prints a turn: the answer as it arrives, and a dim line for each call of a tool and the like."""

    def __init__(self) -> None:
        self.usage = NO_USAGE
        """What the turn has used, once it has ended."""
        self._speaker = Speaker("")
        self._is_plan = False
        self._streamed = ""
        self._in_line = False

    def __call__(self, event: Event) -> None:
        """Print an event."""
        if isinstance(event, events.RunStarted) and event.parent_id is None:
            self._speaker = Speaker(event.run_id)
        self._speaker.follow(event)
        answering = event.run_id == self._speaker.run_id
        match event:
            case events.RunEnded(parent_id=None):
                self.usage = event.usage
            case (
                events.StepStarted(step_type="plan")
                | events.StepFinished(step_type="plan")
            ) if answering:
                self._is_plan = isinstance(event, events.StepStarted)
            case events.ModelCallStarted() if answering:
                self._streamed = ""
            case events.Token() if answering and not self._is_plan:
                self._streamed += event.text
                self._write(event.text)
            case _ if isinstance(event, _NOTES):
                self.end_line()
                style, line = event_line(event)
                print_note(line, "dim red" if style == "red" else "dim")
            case _:
                pass

    def finish(self, value: Any) -> None:
        """Print the answer, unless it was streamed."""
        if (text := to_text(value)) not in (
            self._streamed,
            self._streamed_data(),
        ):
            self.end_line()
            self._write(text)
        self.end_line()

    def _streamed_data(self) -> str | None:
        """The streamed text as `to_text` writes it if it is JSON, as a structured answer is."""
        with contextlib.suppress(ValueError, RecursionError):
            return to_text(json.loads(self._streamed))
        return None

    def end_line(self) -> None:
        """End the line of the answer, if one has begun."""
        if self._in_line:
            self._write("\n")
        self._in_line = False

    def _write(self, text: str) -> None:
        self._in_line = self._in_line or bool(text)
        sys.stdout.write(printable(text) if sys.stdout.isatty() else text)
        sys.stdout.flush()
