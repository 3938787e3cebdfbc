"""The command `chat`: a conversation with a component, line by line."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import sys
from collections.abc import Generator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Protocol, cast

from podwright.blueprints.inputs import DeclaredInputs
from podwright.client import AsyncClient, Info, ProblemError, RunOptions
from podwright.components import Component
from podwright.data.json_data import as_object
from podwright.data.names import INPUT
from podwright.data.text import did_you_mean, os_error_reason, truncate
from podwright.errors import (
    ApprovalRequired,
    ConfigurationError,
    InputError,
    InputsError,
    PodwrightError,
)
from podwright.functions.run_context import RunAttributes, run_attributes
from podwright.kinds import Kind
from podwright.messages.approvals import Decision, Question
from podwright.messages.messages import ContentPart
from podwright.messages.usage import NO_USAGE, RunLimits, Usage
from podwright.models import use_model
from podwright.run.component import Input, TaskBody
from podwright.run.result import ExecutionResult
from podwright.run.run import execute
from podwright_service.cli.console import (
    AT_TERMINAL,
    print_error,
    print_note,
    read_key,
)
from podwright_service.cli.inputs import read_file, read_image, with_media
from podwright_service.cli.questions import ask, can_ask
from podwright_service.cli.running.run import task_after, write_trace
from podwright_service.cli.running.turn_printer import TurnPrinter
from podwright_service.mcp_servers import close_servers, servers_of_options
from podwright_service.model_checks import check_agents
from podwright_service.remotes import name_and_key, remotes_of
from podwright_service.settings import Settings, adopt_secrets, read_settings
from podwright_service.source import load_component

if TYPE_CHECKING:
    from podwright.mcp.server import MCPServer

_COMMANDS = {
    "/image FILE": "add an image to the next turn, from a file or an https URL",
    "/file FILE": "add a document or audio to the next turn, from a file, or a document at an https URL",
    "/reset": "forget the conversation, and what was added to the next turn",
    "/save FILE": "write the last turn with the whole conversation, for `podwright replay`",
    "/help": "list the commands; a line that begins with a space is never one",
    "/quit": "end, as Ctrl-D does; Ctrl-C cancels a turn",
}
_INFO_TIMEOUT = 5.0
"""Seconds to wait for `/info`."""


def start_chat(
    path: str,
    model: str | None,
    api_key: str | None,
    attributes: RunAttributes,
    mcp: Sequence[str] = (),
) -> None:
    """Talk until the end of standard input.

    Args:
        path: A blueprint file, a component folder, `module:attribute`, or the URL of a service.
        model: Models in place of those in the blueprint, as in the setting `model`.
        api_key: The API key of the service, or `@FILE`.
        attributes: For whom the runs are, and what their functions are to know.
        mcp: Further MCP servers of a component here; see `servers_of_options`.

    Raises:
        PodwrightError: There is no such component, it needs named inputs, or the input cannot be read.
    """
    settings = read_settings(model=model)
    adopt_secrets()
    is_url = path.startswith(("http://", "https://"))
    if (model if is_url else api_key) is not None:
        option, target = (
            ("--model", "component here")
            if is_url
            else ("--api-key", "URL of a service")
        )
        raise InputError(
            f"{option} is for a {target}, not for '{truncate(path, 100)}'.",
            suggestion="Leave it out.",
        )
    partner: _Partner
    servers: Mapping[str, MCPServer] = {}
    if is_url:
        if mcp:
            raise InputError(
                f"--mcp is for a component here, not for '{truncate(path, 100)}'.",
                suggestion="Leave it out.",
            )
        partner = _Service(path, api_key, settings, attributes=attributes)
    else:
        servers = servers_of_options(mcp, settings)
        component = load_component(path, remotes_of(settings), servers)
        check_agents(component, settings)
        partner = _Component(component, settings.run_limits)
    if sys.stdin.isatty():
        # cancels a turn: see asyncio.Runner
        signal.signal(signal.SIGINT, signal.default_int_handler)
        print_note(
            f"Chat with '{partner.name}' ({partner.kind}). /help lists the commands, Ctrl-D ends."
        )
    said = run_attributes(**attributes.to_dict())
    with use_model(settings.models), said, asyncio.Runner() as runner:
        chat = _Chat(partner, runner)
        try:
            while chat.next_line():
                pass
        finally:
            runner.run(close_servers(servers.values()))


class _Partner(Protocol):
    """Whom the user talks to."""

    name: str
    kind: Kind

    async def take_turn(
        self,
        said: Input,
        messages: Sequence[Mapping[str, Any]],
        printer: TurnPrinter,
    ) -> ExecutionResult:
        """Answer a text, or a text with images and files, after earlier turns."""
        ...


class _Component:
    """A component of this process."""

    def __init__(self, component: Component, limits: RunLimits) -> None:
        self.name = component.name
        self.kind: Kind = component.kind
        _check_inputs(component.inputs)
        self._component = component
        self._limits = limits

    async def take_turn(
        self,
        said: Input,
        messages: Sequence[Mapping[str, Any]],
        printer: TurnPrinter,
    ) -> ExecutionResult:
        body = TaskBody(said, messages)
        task = self._component.task_from(body)
        while True:
            try:
                return await execute(
                    self._component,
                    task,
                    subscribers=(printer,),
                    limits=self._limits,
                    stream=True,
                    trace=True,
                )
            except ApprovalRequired as pause:
                decision: Decision | None = None
                if pause.context is not None and can_ask():
                    printer.end_line()
                    decision = ask(pause, self._component)
                if decision is None:
                    raise
                after = task_after(self._component, pause, decision)
                task = replace(after, messages=task.messages)


class _Service:
    """The component of a service."""

    def __init__(
        self,
        url: str,
        api_key: str | None,
        settings: Settings,
        *,
        attributes: RunAttributes,
    ) -> None:
        self.name, key = name_and_key(url, settings)
        if api_key is not None:
            key = read_key(api_key)
        self._client = AsyncClient(url, api_key=key, retries=AT_TERMINAL)
        self._limits = settings.run_limits
        self._attributes = attributes
        self.kind: Kind = "agent"
        info = _info_at(url, key)
        if info is None:
            return
        self.kind = info.kind
        _check_inputs(DeclaredInputs(self.name, info.inputs))

    async def take_turn(
        self,
        said: Input,
        messages: Sequence[Mapping[str, Any]],
        printer: TurnPrinter,
    ) -> ExecutionResult:
        conversation = self._client.conversation(messages)
        given: Any = said
        options = RunOptions(limits=self._limits, **self._attributes.to_dict())
        pause: ProblemError | None = None
        while True:
            try:
                async with aclosing(
                    conversation.stream(given, **options)
                ) as events:
                    async for event in events:
                        printer(event)
                # a stream that ends without an error has a result
                return cast("ExecutionResult", conversation.last)
            except ProblemError as problem:
                printer.end_line()
                if pause is not None and problem.code == InputsError.code:
                    # a tool does not take what was decided, and the question stays open
                    print_error(problem)
                    problem = pause
                decision = _ask_about(problem)
                if decision is None:
                    raise
                pause = problem
                given = problem.context
                options["decision"] = decision.to_dict()
                if problem.resume_path:
                    options["resume_path"] = problem.resume_path


def _ask_about(problem: ProblemError) -> Decision | None:
    """What the person at the terminal decides about a run that waits; None if it does not, or nobody is there."""
    question = as_object(problem.problem.get("question"))
    if not question or problem.context is None or not can_ask():
        return None
    asked = Question.from_dict(question)
    return ask(ApprovalRequired(asked.message, question=asked))


def _check_inputs(declared: DeclaredInputs) -> None:
    """Check that a component needs no inputs but the text of a turn.

    Raises:
        InputsError: It does.
    """
    if not declared.required:
        return
    try:
        declared.complete({INPUT: ""})
    except InputsError as error:
        raise InputsError(
            f"A chat gives no named inputs. {error.message}",
            problems=error.problems,
            suggestion="Use `podwright run` with --input, or give each input a default in the blueprint.",
        ) from None


def _info_at(url: str, key: str | None) -> Info | None:
    """What a service says of itself; None if it does not tell, for example with this key."""
    client = AsyncClient(
        url, api_key=key, timeout=_INFO_TIMEOUT, retries=AT_TERMINAL
    )
    try:
        # not the synchronous client, whose thread would live as long as the chat
        return asyncio.run(client.info())
    except ProblemError:
        return None


class _Chat:
    """The conversation so far, and what it has used, failed and cancelled turns included."""

    def __init__(self, partner: _Partner, runner: asyncio.Runner) -> None:
        self._partner = partner
        self._runner = runner
        self._usage = NO_USAGE
        self._last: ExecutionResult | None = None
        self._media: list[ContentPart] = []
        """Images, documents and audio of the next turn."""

    def next_line(self) -> bool:
        """Read a line and do what it says; false at the end."""
        try:
            line = _read_line()
            if line is None or line.rstrip() == "/quit":
                return False
            if line.startswith("/"):
                name, _, argument = line.strip().partition(" ")
                self._command(name, argument)
            elif line.strip():
                self._turn(line.strip())
        except KeyboardInterrupt:
            print_note("\nEnter /quit, or press Ctrl-D, to leave.")
        return True

    def _command(self, name: str, argument: str) -> None:
        match name:
            case "/help":
                print_note(
                    "\n".join(
                        f"{command:<12}{meaning}"
                        for command, meaning in _COMMANDS.items()
                    )
                )
            case "/quit":
                print_note("Enter /quit alone.")
            case "/reset":
                self._usage = NO_USAGE
                self._last = None
                self._media = []
                print_note("The conversation is forgotten.")
            case "/image":
                self._add_image(argument.strip())
            case "/file":
                self._add_file(argument.strip())
            case "/save":
                self._save(argument.strip())
            case _:
                known = [command.split()[0] for command in _COMMANDS]
                print_note(
                    f"Unknown command '{truncate(name, 60)}'. {did_you_mean(name, known)}"
                )

    def _add_image(self, source: str) -> None:
        if not source:
            print_note("Name a file or an https URL: /image photo.png.")
            return
        try:
            self._media.append(read_image(source, "/image"))
            print_note("The image is part of the next turn.")
        except PodwrightError as error:
            print_error(error)

    def _add_file(self, source: str) -> None:
        if not source:
            print_note("Name a file or an https URL: /file report.pdf.")
            return
        try:
            self._media.append(read_file(source, "/file"))
            print_note("The file is part of the next turn.")
        except PodwrightError as error:
            print_error(error)

    def _save(self, file: str) -> None:
        if not file or self._last is None:
            print_note(
                "There is no turn to save yet."
                if file
                else "Name a file: /save trace.json."
            )
            return
        try:
            write_trace(self._last, file)
            print_note(f"Saved {file}.")
        except PodwrightError as error:
            print_error(error)

    def _turn(self, text: str) -> None:
        printer = TurnPrinter()
        messages = self._last.messages if self._last else []
        try:
            self._last = self._runner.run(
                self._partner.take_turn(
                    with_media(text, self._media), messages, printer
                )
            )
            self._media = []
            printer.finish(_answer_of(self._last))
        except KeyboardInterrupt:
            printer.end_line()
            print_note("Cancelled. The conversation is as before this turn.")
        except PodwrightError as error:
            printer.end_line()
            print_error(error)
        self._usage += printer.usage
        print_note(
            f"turn: {_used(printer.usage)}; conversation: {_used(self._usage)}"
        )


def _answer_of(result: ExecutionResult) -> str:
    """The answer of a turn: the last message of the conversation."""
    return str(result.messages[-1]["content"])


def _used(usage: Usage) -> str:
    cost = "cost unknown" if usage.cost is None else f"{usage.cost:.6g} USD"
    tokens = f"{usage.input_tokens} input ({usage.cached_input_tokens} cached), {usage.output_tokens} output tokens"
    return f"{tokens}, {cost}"


def _read_line() -> str | None:
    """The next line; None at the end of the input."""
    edited = sys.stdin.isatty() and sys.stdout.isatty()
    try:
        if not edited:
            return input()
        with contextlib.suppress(ImportError):
            import readline  # noqa: F401 # pyright: ignore[reportUnusedImport] - input() uses it for editing
        with _exit_by_exception():
            return input("> ")
    except EOFError:
        if edited:
            print_note("")
        return None
    except (OSError, ValueError) as error:
        reason = f"Cannot read standard input: {os_error_reason(error)}."
        raise ConfigurationError(
            reason, suggestion="Write lines of UTF-8 text."
        ) from error


@contextlib.contextmanager
def _exit_by_exception() -> Generator[None]:
    """While the context is open, SIGTERM raises an exception, so that readline restores the terminal."""
    before = signal.signal(
        signal.SIGTERM, lambda number, _: sys.exit(128 + number)
    )
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
