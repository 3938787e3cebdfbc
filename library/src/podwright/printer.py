"""The verbose printer, a subscriber of runs."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, TextIO

from podwright import events
from podwright.events import Event
from podwright.json_data import to_text
from podwright.text import printable, truncate

if TYPE_CHECKING:
    from rich.console import Console

_MAX_LINE_LENGTH = 300


class Printer:
    """Prints the steps of a run, one line each: started, thinking, final answer (spec §1.6).

    Args:
        timing: Whether each line begins with the seconds since the first event.
        file: Where to print; standard output by default.
    """

    def __init__(self, timing: bool = False, file: TextIO | None = None) -> None:
        self._timing = timing
        self._file = file
        self._console: Console | None = None
        self._start: float | None = None
        self._in_tokens = False

    def __eq__(self, other: object) -> bool:
        # a run adds equal subscribers once, so a verbose component inside a verbose one is printed once
        return isinstance(other, Printer) and (self._timing, self._file) == (
            other._timing,
            other._file,
        )

    def __hash__(self) -> int:
        return hash((self._timing, self._file))

    def __call__(self, event: Event) -> None:
        """Print one event."""
        if self._start is None:
            self._start = event.at
        if isinstance(event, events.Token):
            self._write(printable(event.text), "dim", end="")
            self._in_tokens = True
            return
        style, line = event_line(event)
        if not line:
            return
        if self._in_tokens:
            self._write("", "")
            self._in_tokens = False
        time = f"{event.at - self._start:8.3f}s " if self._timing else ""
        self._write(f"{time}{line}", style)

    def _write(self, text: str, style: str, end: str = "\n") -> None:
        file = self._file or sys.stdout
        if file is None or not file.isatty():
            print(text, end=end, file=file, flush=True)
            return
        if self._console is None:
            # a fifth of the library's import time, and only terminals need it
            from rich.console import Console

            self._console = Console(
                file=file, highlight=False, soft_wrap=True, markup=False, emoji=False
            )
        self._console.print(text, style=style or None, end=end)


def event_line(event: Event) -> tuple[str, str]:
    """The style and the line of an event; the line is empty for events that the printer does not give one."""
    style, text = _describe(event)
    line = truncate(" ".join(printable(text).split("\n")), _MAX_LINE_LENGTH)
    return (
        style,
        f"{'  ' * len(event.path)}[{printable(event.component)}] {line}"
        if text
        else "",
    )


def _describe(event: Event) -> tuple[str, str]:  # noqa: C901, PLR0912 - one case for each type of event
    """The style and the text of an event's line; the text is empty for events without one."""
    match event:
        case events.RunStarted():
            return (
                "bold",
                "started"
                if event.input is None
                else f"started: {to_text(event.input)}",
            )
        case events.RunFinished():
            usage = event.usage
            cost = "cost unknown" if usage.cost is None else f"{usage.cost:.6g} USD"
            used = (
                f"{event.duration_ms / 1000:.2f} s, {usage.total_tokens} tokens, {cost}"
            )
            return "bold green", f"final answer ({used}): {to_text(event.value)}"
        case events.RunFailed():
            return "bold red", f"failed: {event.error.get('message', '')}"
        case events.RunCancelled():
            return "bold red", "cancelled"
        case events.RunPaused():
            return "bold yellow", f"waiting for approval: {event.message}"
        case events.ModelCallStarted():
            return "cyan", f"thinking ({event.request.model})"
        case events.ModelCallFailed():
            return "red", f"model call failed: {event.error.get('message', '')}"
        case events.ModelCallRetried():
            wait = f"{event.wait_ms / 1000:.1f} s"
            return (
                "yellow",
                f"model call failed, retrying in {wait}: {event.error.get('message', '')}",
            )
        case events.ModelCallFellBack():
            return (
                "yellow",
                f"{event.model} failed, asking the next model: {event.error.get('message', '')}",
            )
        case events.ToolCallStarted():
            # a journal has none
            arguments = "" if event.arguments is None else to_text(event.arguments)
            return "blue", f"calling {event.tool}({arguments})"
        case events.ToolCallFinished():
            return "blue", f"{event.tool} returned: {event.output}"
        case events.ToolCallFailed():
            return "red", f"{event.tool} failed: {event.error.get('message', '')}"
        case events.HistoryCut():
            return "yellow", f"the oldest {event.turns} turns are left out"
        case events.PlanMade():
            steps = "; ".join(
                f"{number}. {step.skill}: {step.task}"
                for number, step in enumerate(event.steps, 1)
            )
            return "magenta", f"{'revised plan' if event.revision else 'plan'}: {steps}"
        case events.StepStarted():
            return "dim", f"step {event.step} ({event.step_type})"
        case events.StepFinished():
            return "dim red", "" if event.outcome in (
                "ok",
                "exhausted",
            ) else f"step {event.step} {event.outcome}"
        case events.ConditionChecked():
            return (
                "dim",
                f"condition {event.condition}: {'true' if event.result else 'false'}",
            )
        case events.LoopExhausted():
            return (
                "yellow",
                f"loop {event.step} ended by max_iterations, after {event.iterations} iterations",
            )
        case events.Token() | events.Reasoning() | events.ModelCallFinished():
            return "", ""
