"""The verbose printer, a subscriber of runs."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, TextIO

from podwright import events
from podwright.data.json_data import to_text
from podwright.data.media import (
    shown_inputs,
    shown_output,
    to_shown_text,
)
from podwright.data.text import printable, truncate
from podwright.events import Event

if TYPE_CHECKING:
    from rich.console import Console

_MAX_LINE_LENGTH = 300


class Printer:
    """Prints the steps of a run, one line each: started, thinking, final answer (spec §1.6).

    Args:
        timing: Whether each line begins with the seconds since the first event.
        file: Where to print; standard output by default.
    """

    def __init__(
        self, timing: bool = False, file: TextIO | None = None
    ) -> None:
        self._timing = timing
        self._file = file
        self._console: Console | None = None
        self._start: float | None = None
        self._in_tokens = False

    def __eq__(self, other: object) -> bool:
        # a run adds equal subscribers once, so a verbose component inside a verbose one is printed once
        if not isinstance(other, Printer):
            return False
        return self._timing == other._timing and self._file == other._file

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
        if self._timing:
            line = f"{event.at - self._start:8.3f}s {line}"
        self._write(line, style)

    def _write(self, text: str, style: str, end: str = "\n") -> None:
        file = self._file or sys.stdout
        if file is None or not file.isatty():
            print(text, end=end, file=file, flush=True)
            return
        if self._console is None:
            self._console = _open_console(file)
        self._console.print(text, style=style or None, end=end)


def _open_console(file: TextIO) -> Console:
    # a fifth of the library's import time, and only terminals need it
    from rich.console import Console

    return Console(
        file=file, highlight=False, soft_wrap=True, markup=False, emoji=False
    )


def event_line(event: Event) -> tuple[str, str]:
    """The style and the line of an event; the line is empty for events that the printer does not give one."""
    style, text = _describe(event)
    if not text:
        return style, ""
    indent = "  " * len(event.path)
    component = printable(event.component)
    line = printable(text).replace("\n", " ")
    return style, f"{indent}[{component}] {truncate(line, _MAX_LINE_LENGTH)}"


def _describe(event: Event) -> tuple[str, str]:
    """The style and the text of an event's line; the text is empty for events without one."""
    match event:
        case (
            events.RunStarted()
            | events.RunFinished()
            | events.RunFailed()
            | events.RunCancelled()
            | events.RunPaused()
        ):
            return _describe_run(event)
        case (
            events.ModelCallStarted()
            | events.ModelCallFailed()
            | events.ModelCallRetried()
            | events.ModelCallFellBack()
        ):
            return _describe_model_call(event)
        case (
            events.ToolCallStarted()
            | events.ToolCallFinished()
            | events.ToolCallFailed()
        ):
            return _describe_tool_call(event)
        case (
            events.StepStarted()
            | events.StepFinished()
            | events.ConditionChecked()
            | events.LoopExhausted()
            | events.ErrorCaught()
        ):
            return _describe_step(event)
        case events.Progress():
            return "dim", event.text
        case events.PlanMade():
            return "magenta", _plan_text(event)
        case events.HandoffEvent():
            return "magenta", f"hands over to {event.to_agent}"
        case events.HistoryCut():
            return "yellow", f"the oldest {event.turns} turns are left out"
        case events.Token() | events.Reasoning() | events.ModelCallFinished():
            return "", ""


def _describe_run(
    event: events.RunStarted
    | events.RunFinished
    | events.RunFailed
    | events.RunCancelled
    | events.RunPaused,
) -> tuple[str, str]:
    match event:
        case events.RunStarted(input=None):
            return "bold", "started"
        case events.RunStarted():
            return (
                "bold",
                f"started: {to_shown_text(shown_inputs(event.input))}",
            )
        case events.RunFinished():
            used = _used_text(event)
            output = to_text(shown_output(event.value, event.data))
            return "bold green", f"final answer ({used}): {output}"
        case events.RunFailed(is_rejection=True):
            return "bold yellow", f"rejected: {_message(event)}"
        case events.RunFailed(is_refusal=True):
            return "bold yellow", f"refused: {_message(event)}"
        case events.RunFailed():
            return "bold red", f"failed: {_message(event)}"
        case events.RunCancelled():
            return "bold red", "cancelled"
        case events.RunPaused():
            return "bold yellow", f"waiting for approval: {event.message}"


def _describe_model_call(
    event: events.ModelCallStarted
    | events.ModelCallFailed
    | events.ModelCallRetried
    | events.ModelCallFellBack,
) -> tuple[str, str]:
    match event:
        case events.ModelCallStarted():
            return "cyan", f"thinking ({event.request.model})"
        case events.ModelCallFailed():
            return "red", f"model call failed: {_message(event)}"
        case events.ModelCallRetried():
            wait = f"{event.wait_ms / 1000:.1f} s"
            text = f"model call failed, retrying in {wait}: {_message(event)}"
            return "yellow", text
        case events.ModelCallFellBack():
            text = f"{event.model} failed, asking the next model: {_message(event)}"
            return "yellow", text


def _describe_tool_call(
    event: events.ToolCallStarted
    | events.ToolCallFinished
    | events.ToolCallFailed,
) -> tuple[str, str]:
    match event:
        case events.ToolCallStarted(arguments=None):  # as in a journal
            return "blue", f"calling {event.tool}()"
        case events.ToolCallStarted():
            return "blue", f"calling {event.tool}({to_text(event.arguments)})"
        case events.ToolCallFinished():
            return (
                "blue",
                f"{event.tool} returned: {to_shown_text(event.output)}",
            )
        case events.ToolCallFailed(is_rejection=True):
            return "yellow", f"{event.tool} rejected: {_message(event)}"
        case events.ToolCallFailed(is_refusal=True):
            return "yellow", f"{event.tool} refused: {_message(event)}"
        case events.ToolCallFailed(is_pause=True):
            return "yellow", f"{event.tool} waits: {_message(event)}"
        case events.ToolCallFailed():
            return "red", f"{event.tool} failed: {_message(event)}"


def _describe_step(
    event: events.StepStarted
    | events.StepFinished
    | events.ConditionChecked
    | events.LoopExhausted
    | events.ErrorCaught,
) -> tuple[str, str]:
    match event:
        case events.StepStarted():
            return "dim", f"step {event.step} ({event.step_type})"
        case events.StepFinished(outcome="ok" | "exhausted" | "caught"):
            return "", ""
        case events.StepFinished():
            return "dim red", f"step {event.step} {event.outcome}"
        case events.ConditionChecked():
            return (
                "dim",
                f"condition {event.condition}: {to_text(event.result)}",
            )
        case events.LoopExhausted():
            text = f"loop {event.step} ended by max_iterations, after {event.iterations} iterations"
            return "yellow", text
        case events.ErrorCaught():
            text = f"step {event.step} caught an error: {_message(event)}"
            return "yellow", text


def _used_text(event: events.RunFinished) -> str:
    cost = "cost unknown"
    if event.usage.cost is not None:
        cost = f"{event.usage.cost:.6g} USD"
    seconds = event.duration_ms / 1000
    return f"{seconds:.2f} s, {event.usage.total_tokens} tokens, {cost}"


def _plan_text(event: events.PlanMade) -> str:
    name = "plan"
    if event.revision:
        name = "revised plan"
    steps = [
        f"{number}. {step.skill}: {step.task}"
        for number, step in enumerate(event.steps, 1)
    ]
    return f"{name}: {'; '.join(steps)}"


def _message(
    event: events.RunFailed
    | events.ModelCallFailed
    | events.ModelCallRetried
    | events.ModelCallFellBack
    | events.ToolCallFailed
    | events.ErrorCaught,
) -> str:
    return str(event.error.get("message", ""))
