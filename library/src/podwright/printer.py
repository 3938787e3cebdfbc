"""Subscribers that come with the library: the verbose printer and the token callback."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, TextIO

from podwright.events import (
    ConditionChecked,
    Event,
    ModelCallFailed,
    ModelCallFinished,
    ModelCallRetried,
    ModelCallStarted,
    PlanMade,
    RunCancelled,
    RunFailed,
    RunFinished,
    RunPaused,
    RunStarted,
    StepFinished,
    StepStarted,
    Token,
    ToolCallFailed,
    ToolCallFinished,
    ToolCallStarted,
)
from podwright.text import printable, truncate

if TYPE_CHECKING:
    from rich.console import Console

_WIDTH = 300


def tokens_to(callback: Callable[[str], object]) -> Callable[[Event], None]:
    """A subscriber that hands each streamed piece of text to a callback."""

    def subscriber(event: Event) -> None:
        if isinstance(event, Token):
            callback(event.text)

    return subscriber


class Printer:
    """Prints the steps of a run, a line each: started, thinking, final answer (spec §1.6).

    Args:
        timing: Whether each line begins with the seconds since the first event.
        file: Where to; standard output by default.
    """

    def __init__(self, timing: bool = False, file: TextIO | None = None) -> None:
        self._timing = timing
        self._file = file
        self._console: Console | None = None
        self._start: float | None = None
        self._in_tokens = False

    def __eq__(self, other: object) -> bool:
        # a run counts equal subscribers once, so a verbose component in a verbose one is printed once
        return isinstance(other, Printer) and (self._timing, self._file) == (other._timing, other._file)

    __hash__ = None  # pyright: ignore[reportAssignmentType] - as it is said of a class that compares by value

    def __call__(self, event: Event) -> None:
        """Print one event."""
        if self._start is None:
            self._start = event.at
        if isinstance(event, Token):
            self._write(printable(event.text), "dim", end="")
            self._in_tokens = True
            return
        try:
            said = _line(event)
        except (ValueError, OverflowError, RecursionError):  # a number of thousands of digits, or nested too deep
            said = "dim", event.type
        if said is None:
            return
        if self._in_tokens:
            self._write("", "")
            self._in_tokens = False
        style, text = said
        clock = f"{event.at - self._start:8.3f}s " if self._timing else ""
        self._write(f"{clock}{'  ' * len(event.path)}[{printable(event.component)}] {_cut(printable(text))}", style)

    def _write(self, text: str, style: str, end: str = "\n") -> None:
        if self._console is None:
            from rich.console import (
                Console,  # a fifth of this library's import time, and silent runs need none
            )

            self._console = Console(
                file=self._file or sys.stdout, highlight=False, soft_wrap=True, markup=False, emoji=False
            )
        self._console.print(text, style=style or None, end=end)


def _line(event: Event) -> tuple[str, str] | None:  # noqa: C901, PLR0912 - one case for each event
    """The style and the text of an event's line; None for events that need none."""
    match event:
        case RunStarted():
            return "bold", f"started: {_text(event.input)}"
        case RunFinished():
            usage = event.usage
            cost = "cost unknown" if usage.cost is None else f"{usage.cost:.6g} USD"
            spent = f"{event.duration_ms / 1000:.2f} s, {usage.total_tokens} tokens, {cost}"
            return "bold green", f"final answer ({spent}): {_text(event.value)}"
        case RunFailed():
            return "bold red", f"failed: {event.error.get('message', '')}"
        case RunCancelled():
            return "bold red", "cancelled"
        case RunPaused():
            return "bold yellow", f"waits for approval: {event.message}"
        case ModelCallStarted():
            return "cyan", f"thinking ({event.request.model})"
        case ModelCallFinished():
            return None
        case ModelCallFailed():
            return "red", f"model call failed: {event.error.get('message', '')}"
        case ModelCallRetried():
            why = event.error.get("message", "")
            return "yellow", f"model call failed, trying again in {event.wait_ms / 1000:.1f} s: {why}"
        case ToolCallStarted():
            return "blue", f"calls {event.tool}({_text(event.arguments)})"
        case ToolCallFinished():
            return "blue", f"{event.tool} answered: {event.output}"
        case ToolCallFailed():
            return "red", f"{event.tool} failed: {event.error.get('message', '')}"
        case PlanMade():
            steps = "; ".join(f"{number}. {step.skill}: {step.task}" for number, step in enumerate(event.steps, 1))
            return "magenta", f"{'revised plan' if event.revision else 'plan'}: {steps}"
        case StepStarted():
            return "dim", f"step {event.step} ({event.step_type})"
        case StepFinished():
            return None if event.outcome == "ok" else ("dim red", f"step {event.step} {event.outcome}")
        case ConditionChecked():
            return "dim", f"condition {event.condition}: {'yes' if event.result else 'no'}"
        case Token():
            return None


def _text(value: Any) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{key}={json.dumps(item, ensure_ascii=False)}" for key, item in value.items())  # pyright: ignore[reportUnknownVariableType]
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _cut(text: str) -> str:
    line = " ".join(text.split()) if "\n" in text else text
    return truncate(line, _WIDTH)
