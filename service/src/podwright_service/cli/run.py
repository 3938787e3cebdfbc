"""The commands `serve`, `run` and `replay`."""

from __future__ import annotations

import asyncio
import json
import os
import shlex
import signal
import sys
import time
from collections.abc import Sequence
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
    TraceError,
)
from podwright.events import Event, Subscriber
from podwright.models import use_model
from podwright.printer import Printer
from podwright.result import ExecutionResult
from podwright.run import Task, execute
from podwright.text import truncate
from podwright.usage import RunLimits, Usage
from podwright_service.cli.console import (
    check_writable,
    print_error,
    print_json,
    print_text,
    read_text,
    write_text,
)
from podwright_service.remotes import remotes_of
from podwright_service.serving.shared_metrics import share_metrics
from podwright_service.settings import adopt_secrets, read_settings
from podwright_service.source import load_component

_EXIT_CODES: dict[type, int] = {ApprovalRequired: 3, RunCancelledError: 130}
_INPUTS_EXAMPLE = """Write --inputs '{"input": "the moon"}', or @FILE."""


def serve_component(**options: Any) -> None:
    """Serve until a signal.

    Args:
        **options: Settings by name, which override the environment; None is not set.

    Raises:
        PodwrightError: The settings are invalid, or the component cannot be loaded or served.
    """
    settings = read_settings(**options)
    if settings.component is None:
        raise ConfigurationError(
            "There is no component to serve.",
            suggestion="Give PATH, or set PODWRIGHT_COMPONENT.",
        )
    adopt_secrets()
    share_metrics(settings)
    component = load_component(settings.component, remotes_of(settings))
    # slow to import; errors so far are reported first
    from podwright_service.serving.server import serve

    serve(component, settings)


def run_component(
    path: str,
    text: str | None = None,
    inputs: str | None = None,
    *,
    model: str | None = None,
    trace_file: str | None = None,
    context_file: str | None = None,
    resume_path: str | None = None,
    quiet: bool = False,
) -> int:
    """Run a component once.

    Args:
        path: A blueprint file, a component folder, or `module:attribute`.
        text: The input; `-`, or None without `inputs`, is standard input.
        inputs: Named inputs as a JSON object, or `@FILE`.
        model: A model in place of every model in the blueprint.
        trace_file: Where to write the trace.
        context_file: Where to write the context of a workflow that stops.
        resume_path: Where a workflow continues, such as "2,0".
        quiet: Whether not to print the steps.

    Returns:
        The exit code.

    Raises:
        PodwrightError: The run cannot start.
    """
    settings = read_settings(model=model)
    adopt_secrets()
    component = load_component(path, remotes_of(settings))
    task = _task(component, read_input(text, inputs), resume_path)
    for file in (trace_file, context_file):
        if file:
            check_writable(file)
    events: list[Event] = []
    subscribers: list[Subscriber] = [events.append]
    if not quiet:
        subscribers.append(Printer(file=sys.stderr))
    try:
        with use_model(settings.model):
            result = asyncio.run(
                _execute(
                    component,
                    task,
                    subscribers,
                    limits=settings.run_limits,
                    quiet=quiet,
                )
            )
    except PodwrightError as error:
        print_error(error)
        _write_context(error, path, context_file)
        duration_ms = 0.0
        if events:
            duration_ms = (time.time() - events[0].at) * 1000
        usage = error.usage or Usage()
        write_trace(
            ExecutionResult(None, events, duration_ms, usage), trace_file
        )
        return _EXIT_CODES.get(type(error), 1)
    if isinstance(result.value, str):
        print_text(result.value)
    else:
        print_json(result.value)
    write_trace(result, trace_file)
    return 0


async def _execute(
    component: Component,
    task: Task,
    subscribers: Sequence[Subscriber],
    *,
    limits: RunLimits,
    quiet: bool,
) -> ExecutionResult:
    """Run a task; the first signal cancels it, the second one ends the process."""
    stream = not quiet and sys.stderr.isatty()
    run = asyncio.create_task(
        execute(
            component,
            task,
            subscribers=subscribers,
            limits=limits,
            stream=stream,
            trace=True,
        )
    )

    def cancel(number: int) -> None:
        if run.cancelling():
            os._exit(128 + number)
        run.cancel()

    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, cancel, number)
    try:
        return await run
    except asyncio.CancelledError as error:
        reason = error.__cause__
        if isinstance(reason, PodwrightError):
            raise reason from None
        raise RunCancelledError("The run was cancelled.") from None


def _task(
    component: Component, run_input: Any, resume_path: str | None
) -> Task:
    if isinstance(component, Workflow):
        return component.task(run_input, 0, _step_indices(resume_path))
    if resume_path is not None:
        raise InputError(
            f"'{component.name}' is not a workflow, so it cannot resume.",
            suggestion="Leave --resume-path out.",
        )
    return Task(run_input)


def read_input(text: str | None, inputs: str | None) -> str | dict[str, Any]:
    """The input of a run: a text, standard input, or named inputs.

    Raises:
        InputError: It is given twice, or is wrong.
    """
    if inputs is None:
        if text is None:
            text = "-"
        return _input_text(text)
    values = _named_inputs(inputs)
    if text is None:
        return values
    if "input" in values:
        raise InputError(
            "The input is given twice.",
            suggestion="Give INPUT, or 'input' in --inputs.",
        )
    return {**values, "input": _input_text(text)}


def _input_text(text: str) -> str:
    """A text of the command line; for `-`, that of standard input."""
    if text != "-":
        return text
    if sys.stdin.isatty():
        print_text(
            "Reading the input from standard input; end it with Ctrl-D.",
            sys.stderr,
        )
    return read_text("-").rstrip("\n")


def _named_inputs(text: str) -> dict[str, Any]:
    try:
        if text.startswith("@"):
            text = read_text(text[1:])
        values = from_json(text)
    except BlueprintValidationError as error:
        raise InputError(
            f"Invalid --inputs: {error.problems[0].detail}",
            suggestion=_INPUTS_EXAMPLE,
        ) from error
    if not isinstance(values, dict):
        raise InputError(
            "Invalid --inputs: not a JSON object.", suggestion=_INPUTS_EXAMPLE
        )
    return cast("dict[str, Any]", values)


def _step_indices(resume_path: str | None) -> list[int] | None:
    if resume_path is None:
        return None
    try:
        return [int(index) for index in resume_path.strip("[] ").split(",")]
    except ValueError:
        raise InputError(
            f"Invalid resume path '{truncate(resume_path, 60)}'.",
            suggestion="Write --resume-path 2,0.",
        ) from None


def _write_context(error: PodwrightError, path: str, file: str | None) -> None:
    """Save the context of a workflow that stopped, and print the command that resumes it."""
    if error.context is None or error.resume_path is None:
        return
    if file is None:
        print_text(
            "Use --context FILE to save the context, so that the workflow can resume.",
            sys.stderr,
        )
        return
    context = error.to_dict()["context"]
    write_text(file, json.dumps(context, ensure_ascii=False, indent=2) + "\n")
    indices = ",".join(map(str, error.resume_path))
    command = [
        "podwright",
        "run",
        path,
        "--inputs",
        f"@{file}",
        "--resume-path",
        indices,
    ]
    print_text(f"To resume: {shlex.join(command)}", sys.stderr)


def write_trace(result: ExecutionResult, file: str | None) -> None:
    """Write what `podwright replay` reads; without a file, do nothing.

    Raises:
        ConfigurationError: The file cannot be written.
    """
    if file is not None:
        text = json.dumps(result.to_dict(), ensure_ascii=False)
        write_text(file, text + "\n")


def replay_trace(file: str, delay: float | None) -> None:
    """Print a recorded run.

    Args:
        file: The trace, or `-` for standard input.
        delay: Seconds between events; None is as in the run.

    Raises:
        PodwrightError: The file cannot be read, or is not a trace.
    """
    try:
        data = json.loads(read_text(file))
    except (ValueError, RecursionError) as error:
        raise TraceError(
            f"'{truncate(file, 200)}' is not JSON: {error}.",
            suggestion="Use a file that `podwright run --trace FILE` wrote.",
        ) from error
    ExecutionResult.from_dict(data).replay(delay, Printer(timing=True))
