"""The commands that run something: `serve`, `run` and `replay`."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import sys
import time
from collections.abc import Generator
from dataclasses import dataclass
from typing import Any, cast

from podwright.blueprints import from_json
from podwright.components import Component, Workflow
from podwright.errors import (
    ApprovalRequired,
    BlueprintValidationError,
    ConfigurationError,
    InputError,
    PodwrightError,
    RunCancelledError,
)
from podwright.events import Event
from podwright.models import use_model
from podwright.printer import Printer
from podwright.result import ExecutionResult
from podwright.run import Task, execute
from podwright.usage import Usage
from podwright_service.cli.console import complain, read_text, say, say_json, try_to_write, write_text
from podwright_service.multiprocess import share_metrics
from podwright_service.remotes import remotes_of
from podwright_service.settings import Settings, adopt_secrets, read_settings
from podwright_service.source import load_component

_WAITS, _INTERRUPTED = 3, 130


def serve_component(**given: Any) -> None:
    """Serve until a signal.

    Raises:
        PodwrightError: The settings are wrong, or the component cannot be loaded or served.
    """
    settings = read_settings(**given)
    if settings.component is None:
        raise ConfigurationError("There is nothing to serve.", suggestion="Give a PATH, or set PODWRIGHT_COMPONENT.")
    adopt_secrets()
    share_metrics(settings)
    component = load_component(settings.component, remotes_of(settings))
    from podwright_service import server  # the web framework takes a while to import, and what is wrong is told first

    server.serve(component, settings)


def serve_as_set() -> int:
    """Serve what the environment says until a signal, and give the exit code."""
    try:
        serve_component()
    except PodwrightError as error:
        complain(error)
        return 1
    return 0


@dataclass(frozen=True)
class Order:
    """What `podwright run` was given."""

    path: str
    text: str | None
    inputs: str | None
    model: str | None
    trace: str | None
    context: str | None
    resume_path: str | None
    quiet: bool


def run_component(order: Order) -> int:
    """Run a component once, and give the exit code.

    Raises:
        PodwrightError: It cannot be run.
    """
    settings = read_settings(model=order.model)
    adopt_secrets()
    component = load_component(order.path, remotes_of(settings))
    task = _task(component, order)
    for file in (order.trace, order.context):
        if file is not None:
            try_to_write(file)  # better told now than after the run
    events: list[Event] = []
    try:
        with use_model(settings.model) if settings.model else contextlib.nullcontext():
            result = asyncio.run(_interruptible(component, task, settings, events, order.quiet))
    except PodwrightError as error:
        try:
            _keep(order.trace, ExecutionResult(None, events, _spent(events), error.usage or Usage()))
        finally:
            complain(error)
            _tell_how_to_go_on(error, order)
        return _code(error)
    try:
        _keep(order.trace, result)
    finally:  # an answer that has been paid for is not lost with its trace
        if isinstance(result.value, str):
            say(result.value)
        else:
            say_json(result.value)
    return 0


def _code(error: PodwrightError) -> int:
    if isinstance(error, ApprovalRequired):
        return _WAITS
    return _INTERRUPTED if isinstance(error, RunCancelledError) else 1


async def _interruptible(
    component: Component, task: Task, settings: Settings, events: list[Event], quiet: bool
) -> ExecutionResult:
    """Run it; a signal cancels the run, and the next one ends the process."""
    heard = (events.append,) if quiet else (events.append, Printer(file=sys.stderr))
    running = asyncio.create_task(
        execute(
            component,
            task,
            subscribers=heard,
            limits=settings.run_limits,
            stream=not quiet and sys.stderr.isatty(),
            trace=True,
        )
    )
    with _cancelled_by_signals(running):
        try:
            return await running
        except asyncio.CancelledError as stop:
            raise (
                stop.__cause__
                if isinstance(stop.__cause__, PodwrightError)
                else RunCancelledError("The run was cancelled before it began.")
            ) from None


@contextlib.contextmanager
def _cancelled_by_signals(running: asyncio.Task[Any]) -> Generator[None]:
    # by the loop: a signal that another thread takes would not wake one that sleeps
    loop = asyncio.get_running_loop()
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}

    def stop(number: int) -> None:
        if running.cancelling():
            os._exit(128 + number)
        running.cancel()

    for number in before:
        loop.add_signal_handler(number, stop, number)
    try:
        yield
    finally:
        for number, handler in before.items():
            loop.remove_signal_handler(number)
            signal.signal(number, handler)


def _task(component: Component, order: Order) -> Task:
    given: Any = _inputs(order.inputs)
    if given is None:
        if order.text in (None, "-") and sys.stdin.isatty():
            say("Reading the input from standard input; end it with Ctrl-D.", sys.stderr)
        given = order.text if order.text not in (None, "-") else read_text("-").rstrip("\n")
    elif order.text is not None:
        if "input" in given:
            raise InputError("The input is given twice.", suggestion="Give INPUT, or 'input' in --inputs.")
        given = {**given, "input": read_text("-").rstrip("\n") if order.text == "-" else order.text}
    if not isinstance(component, Workflow):
        if order.resume_path is not None:
            raise InputError(
                f"'{component.name}' is no workflow: it cannot go on.", suggestion="Leave --resume-path out."
            )
        return Task(given)
    return component.task(given, 0, _indices(order.resume_path))


def _inputs(text: str | None) -> dict[str, Any] | None:
    if text is None:
        return None
    whole = read_text(text[1:]) if text.startswith("@") else text
    try:
        found = from_json(whole)
    except BlueprintValidationError as error:
        raise InputError(
            f"The inputs are {error.problems[0].detail}",
            suggestion="""Write --inputs '{"input": "the moon"}', or @FILE.""",
        ) from error
    if not isinstance(found, dict):
        raise InputError("The inputs are no JSON object.", suggestion="""Write --inputs '{"input": "the moon"}'.""")
    return cast("dict[str, Any]", found)


def _indices(text: str | None) -> list[int] | None:
    if text is None:
        return None
    try:
        return [int(part) for part in text.strip("[] ").split(",")]
    except ValueError:
        raise InputError(
            f"A resume path is numbers with commas between, not '{text[:60]}'.", suggestion="Write --resume-path 2,0."
        ) from None


def _tell_how_to_go_on(error: PodwrightError, order: Order) -> None:
    if error.context is None or error.resume_path is None:
        return
    if order.context is None:
        say("With --context FILE, what it has done so far would be kept, and it could go on.", sys.stderr)
        return
    write_text(order.context, json.dumps(error.to_dict()["context"], ensure_ascii=False, indent=2) + "\n")
    path = ",".join(str(index) for index in error.resume_path)
    import shlex  # here only: a run seldom stops

    words = ["podwright", "run", order.path, "--inputs", f"@{order.context}", "--resume-path", path]
    say(f"To go on: {shlex.join(words)}", sys.stderr)


def _spent(events: list[Event]) -> float:
    return (time.time() - events[0].at) * 1000 if events else 0.0


def _keep(file: str | None, result: ExecutionResult) -> None:
    if file is not None:
        write_text(file, json.dumps(result.to_dict(), ensure_ascii=False) + "\n")


def replay_trace(file: str, delay: float | None) -> None:
    """Print a trace again.

    Raises:
        PodwrightError: The file cannot be read, or is no trace.
    """
    from podwright.errors import TraceError  # here only, as json above is needed by all

    text = read_text(file)
    try:
        data = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise TraceError(
            f"'{file}' is not JSON: {error}.", suggestion="Use a file that `podwright run --trace FILE` wrote."
        ) from error
    ExecutionResult.from_dict(data).replay(delay, Printer(timing=True))
