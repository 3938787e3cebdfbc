"""The commands `serve`, `run` and `replay`."""

from __future__ import annotations

import asyncio
import json
import os
import shlex
import signal
import sys
from collections.abc import Callable, Collection, Coroutine, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from podwright.components import Component
from podwright.data.text import truncate
from podwright.errors import (
    ApprovalRejectedError,
    ApprovalRequired,
    ConfigurationError,
    InputError,
    InputsError,
    PodwrightError,
    RunCancelledError,
)
from podwright.events import Subscriber
from podwright.functions.run_context import (
    NO_ATTRIBUTES,
    RunAttributes,
    run_attributes,
)
from podwright.messages.approvals import APPROVE, Decision, Question
from podwright.messages.messages import ContentPart
from podwright.messages.usage import RunLimits, Usage
from podwright.models import use_model
from podwright.models.output_files import check_writable
from podwright.run.component import TaskBody
from podwright.run.printer import Printer
from podwright.run.result import ExecutionResult
from podwright.run.run import Task, execute
from podwright_service.cli.console import (
    print_error,
    print_json,
    print_text,
    write_text,
)
from podwright_service.cli.inputs import (
    options_of,
    read_input,
    with_all_inputs,
    with_media,
)
from podwright_service.cli.questions import (
    NO_DECISION,
    DecisionOptions,
    ask,
    can_ask,
)
from podwright_service.cli.traces import read_trace
from podwright_service.mcp_servers import close_servers, servers_of_options
from podwright_service.model_checks import check_agents
from podwright_service.otel_variables import check_otel_variables
from podwright_service.remotes import remotes_of
from podwright_service.serving.shared_metrics import share_metrics
from podwright_service.settings import Settings, adopt_secrets, read_settings
from podwright_service.source import load_component

if TYPE_CHECKING:
    from podwright.mcp.server import MCPServer

_EXIT_CODES: dict[type, int] = {ApprovalRequired: 3, RunCancelledError: 130}


def serve_component(**options: Any) -> None:
    """Serve until a signal.

    Args:
        **options: Settings by name, which override the environment; None is not set.

    Raises:
        PodwrightError: The settings are invalid, or the component cannot be loaded or served.
    """
    settings = read_settings(**options)
    # a mistake that costs no import is reported first
    served_source(settings)
    check_otel_variables()
    from podwright_service.observability.output import separate_log

    with separate_log():
        component = load_served(settings)
        from podwright_service.serving.server import serve

        serve(component, settings)


def load_served(settings: Settings, mcp: Sequence[str] = ()) -> Component:
    """Load the component that the settings name, with their secrets, remotes, MCP servers and log.

    Args:
        settings: The settings.
        mcp: Further MCP servers; see `servers_of_options`.

    Raises:
        PodwrightError: They name none, or it cannot be loaded.
    """
    source = served_source(settings)
    check_otel_variables()
    adopt_secrets()
    share_metrics(settings)
    # slow to import; errors so far are reported first
    from podwright_service.observability import configure_logging

    # before the component is loaded, which may log warnings
    configure_logging(settings)
    servers = servers_of_options(mcp, settings)
    return load_component(source, remotes_of(settings), servers)


def served_source(settings: Settings) -> str:
    """The path or the module of the component that is served.

    Raises:
        ConfigurationError: The settings name none.
    """
    if settings.component is None:
        raise ConfigurationError(
            "There is no component to serve.",
            suggestion="Give PATH, or set PODWRIGHT_COMPONENT.",
        )
    return settings.component


def run_once(
    path: str,
    text: str | None = None,
    inputs: str | None = None,
    *,
    pairs: Sequence[str] = (),
    media: Sequence[ContentPart] = (),
    model: str | None = None,
    mcp: Sequence[str] = (),
    trace_file: str | None = None,
    context_file: str | None = None,
    resume_path: str | None = None,
    decision: DecisionOptions = NO_DECISION,
    attributes: RunAttributes = NO_ATTRIBUTES,
    quiet: bool = False,
) -> int:
    """Run a component once.

    Args:
        path: A blueprint file, a component folder, or `module:attribute`.
        text: The input; `-`, or None without named inputs, is standard input.
        inputs: Named inputs as a JSON object, or `@FILE`.
        pairs: Further named inputs as `NAME=VALUE`.
        media: Images, documents and audio that follow the text.
        model: Models in place of those in the blueprint, as in the setting `model`.
        mcp: Further MCP servers; see `servers_of_options`.
        trace_file: Where to write the trace.
        context_file: Where to write the context of a workflow that stops.
        resume_path: Where a workflow continues, such as "2,0".
        decision: The decision about what the run waits for whose context the inputs are.
        attributes: For whom the run is, and what its functions are to know.
        quiet: Whether not to print the steps.

    Returns:
        The exit code.

    Raises:
        PodwrightError: The run cannot start.
    """
    settings = read_settings(model=model)
    adopt_secrets()
    servers = servers_of_options(mcp, settings)
    component = load_component(path, remotes_of(settings), servers)
    check_agents(component, settings)
    run_input = read_input(text, inputs, component.inputs, pairs)
    try:
        whole_input = with_media(run_input, media, component.inputs)
        task = _task(component, decision.added_to(whole_input), resume_path)
    except InputsError as error:
        raise with_all_inputs(error, component) from None
    for file in (trace_file, context_file):
        if file:
            check_writable(file)
    subscribers: list[Subscriber] = []
    if not quiet:
        subscribers.append(Printer(file=sys.stderr))
    run = partial(
        _execute,
        component,
        subscribers=subscribers,
        limits=settings.run_limits,
        servers=servers.values(),
        quiet=quiet,
    )
    try:
        said = run_attributes(**attributes.to_dict())
        with use_model(settings.models), said:
            try:
                result = _run_and_ask(component, task, run)
            except InputsError as error:
                if error.question is None or not decision.values:
                    raise
                # now its schemas tell which texts are data
                decided = decision.added_to(whole_input, error.question)
                task = _task(component, decided, resume_path)
                result = _run_and_ask(component, task, run)
    except PodwrightError as error:
        print_error(error)
        _write_context(error, path, context_file, options_of(attributes))
        write_trace(_failed_result(error), trace_file)
        return _EXIT_CODES.get(type(error), 1)
    _print_result(result)
    write_trace(result, trace_file)
    return 0


def _failed_result(error: PodwrightError) -> ExecutionResult:
    """Return the trace of a run that failed: its events, its duration and its usage."""
    duration_ms = 0.0
    if error.events:
        duration_ms = (error.events[-1].at - error.events[0].at) * 1000
    return ExecutionResult(
        None, error.events, duration_ms, error.usage or Usage()
    )


def _run_and_ask(
    component: Component,
    task: Task,
    run: Callable[[Task], Coroutine[Any, Any, ExecutionResult]],
) -> ExecutionResult:
    """Run a task, and ask the person at the terminal what it waits for."""
    while True:
        try:
            return asyncio.run(run(task))
        except ApprovalRequired as pause:
            if pause.context is None or not can_ask():
                raise
            decision = ask(pause, component)
            if decision is None:
                raise
            task = task_after(component, pause, decision)


def task_after(
    component: Component, pause: ApprovalRequired, decision: Decision
) -> Task:
    """The task of the run that goes on after a decision."""
    context = pause.decide(decision.decision, decision.comment, decision.values)
    return component.task_from(TaskBody(context, resume_path=pause.resume_path))


def _print_result(result: ExecutionResult) -> None:
    """Print a text as it is, a structured answer or a context as JSON."""
    if isinstance(result.value, str):
        print_text(result.value)
    elif result.data is not None:
        print_json(result.data)
    else:
        print_json(result.value)


async def _execute(
    component: Component,
    task: Task,
    *,
    subscribers: Sequence[Subscriber],
    limits: RunLimits,
    servers: Collection[MCPServer],
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
    finally:
        await close_servers(servers)


def _task(
    component: Component, run_input: Any, resume_path: str | None
) -> Task:
    if resume_path is not None and "resume_path" not in component.body_keys:
        raise InputError(
            f"'{component.name}' is not a workflow, so it cannot resume.",
            suggestion="Leave --resume-path out.",
        )
    path = _step_indices(resume_path)
    return component.task_from(TaskBody(run_input, resume_path=path))


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


def _write_context(
    error: PodwrightError, path: str, file: str | None, options: Sequence[str]
) -> None:
    """Save the context of a workflow that stopped, and print the command that resumes it, with the same options."""
    # what a person has rejected does not go on
    if error.context is None or isinstance(error, ApprovalRejectedError):
        return
    if file is None:
        print_text(
            "Use --context FILE to save the context, so that the workflow can resume.",
            sys.stderr,
        )
        return
    context = error.to_dict()["context"]
    write_text(file, json.dumps(context, ensure_ascii=False, indent=2) + "\n")
    command = ["podwright", "run", path, "--inputs", f"@{file}"]
    if error.resume_path is not None:
        indices = ",".join(map(str, error.resume_path))
        command += ["--resume-path", indices]
    if isinstance(error, ApprovalRequired | InputsError) and error.question:
        command += ["--decision", _shown_decision(error.question)]
    command += options
    print_text(f"To resume: {shlex.join(command)}", sys.stderr)


def _shown_decision(question: Question) -> str:
    """The decision in a command that resumes a run; a place for it if the person has to choose one."""
    if APPROVE in question.options:
        return APPROVE
    print_text(f"Decide one of: {', '.join(question.options)}", sys.stderr)
    return "DECISION"


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
    read_trace(file).replay(delay, Printer(timing=True))
