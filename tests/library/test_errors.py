"""Every error: raised by real use, with message, suggestion, link and code, and in the tree and the reference."""

import asyncio
import datetime
import io
import json
import math
import pickle
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel
from rich.console import Console
from tests.library.upstream import Part, reply, upstream

from podwright import (
    Agent,
    ApprovalStep,
    ConditionStep,
    ExecutionResult,
    FunctionModel,
    Remote,
    ReplayModel,
    RunLimits,
    ScriptedModel,
    Workflow,
    errors,
    load,
)
from podwright.errors import HELP_URL, BlueprintValidationError, LimitExceededError, PodwrightError, RunError
from podwright.models import Connection
from podwright.models.openai_compatible import ChatModel
from podwright.models.providers import ENDPOINTS
from podwright.models.retries import Retries, Timeouts
from podwright.testing import ModelRequest, ToolCall
from podwright.text import did_you_mean

REFERENCE = Path(__file__).parents[2] / "docs" / "errors.md"
CODES = {
    "PodwrightError": "podwright_error",
    "ConfigurationError": "configuration_invalid",
    "BlueprintValidationError": "blueprint_invalid",
    "ToolDefinitionError": "tool_definition_invalid",
    "UnknownModelError": "model_unknown",
    "InputError": "input_invalid",
    "ContextError": "context_invalid",
    "ResumePathError": "resume_path_invalid",
    "TraceError": "trace_invalid",
    "BlockingCallError": "blocking_call",
    "RunError": "run_failed",
    "ModelError": "model_failed",
    "ModelAuthenticationError": "model_authentication",
    "ModelRateLimitError": "model_rate_limited",
    "ModelTimeoutError": "model_timeout",
    "ModelConnectionError": "model_unreachable",
    "ModelUnavailableError": "model_unavailable",
    "ModelRequestError": "model_request_refused",
    "ContextWindowError": "context_window_exceeded",
    "ContentFilterError": "content_filtered",
    "ModelResponseError": "model_answer_invalid",
    "ReplayMismatchError": "replay_mismatch",
    "RemoteError": "remote_failed",
    "RemoteConnectionError": "remote_unreachable",
    "RemoteUnavailableError": "remote_unavailable",
    "RemoteTimeoutError": "remote_timeout",
    "RemoteRejectedError": "remote_rejected",
    "RemoteResponseError": "remote_answer_invalid",
    "RemotePausedError": "remote_paused",
    "RemoteHopsError": "remote_hops_exceeded",
    "ToolError": "tool_failed",
    "ToolArgumentsError": "tool_arguments_invalid",
    "ConditionError": "condition_failed",
    "OutputError": "output_invalid",
    "LoopLimitError": "loop_limit_reached",
    "LimitExceededError": "limit_exceeded",
    "ApprovalRequired": "approval_required",
    "RunCancelledError": "run_cancelled",
}
"""Programs compare codes, so they never change."""


class Answer(BaseModel):
    number: int


def look(word: str) -> str:
    """Look a word up."""
    if word == "nothing":
        raise LookupError("no such word")
    return f"{word}: found"


def scripted(*answers: Any, **options: Any) -> Agent:
    return Agent("guide", "Help.", ScriptedModel(*answers), tools=[look], **options)


def blocking() -> object:
    inner = scripted("inner")

    async def ask() -> str:
        """Ask synchronously, on the loop's own thread."""
        return inner.run("hello")

    return Agent("guide", "", ScriptedModel(ToolCall.of("ask")), tools=[ask]).run("hello")


def raising(error: BaseException) -> Callable[[], object]:
    def answer(request: ModelRequest) -> str:
        raise error

    return lambda: Agent("guide", "", FunctionModel(answer)).run("hello")


def cancelled() -> None:
    async def run() -> None:
        begun = asyncio.Event()

        async def wait(request: ModelRequest) -> str:
            begun.set()
            await asyncio.Event().wait()
            return ""

        task = asyncio.ensure_future(Agent("guide", "", FunctionModel(wait)).arun("hello"))
        await asyncio.wait_for(begun.wait(), 20)
        task.cancel()
        with pytest.raises(asyncio.CancelledError) as stop:
            await task
        assert stop.value.__cause__ is not None
        raise stop.value.__cause__

    asyncio.run(run())


def provided(*answer: Part, first_byte: float = 60.0) -> Callable[[], object]:
    """A run on a provider that answers each request with these bytes."""

    async def run() -> object:
        async with upstream() as serving:
            serving.answers(answer)
            model = ChatModel("openai/gpt-4o-mini", Connection("key", serving.url), ENDPOINTS["openai"])
            model.timeouts, model.retries = Timeouts(first_byte=first_byte), Retries(tries=1)
            return await Agent("guide", "", model).arun("hello")

    return lambda: asyncio.run(run())


def refused(status: int, code: str = "") -> Callable[[], object]:
    return provided(reply({"error": {"code": code}}, status))


def elsewhere(*answer: Part, timeout: float | None = None) -> Callable[[], object]:
    """A run of a remote component that answers with these bytes."""

    async def run() -> object:
        async with upstream() as serving:
            serving.answers(answer)
            return await Remote("far", f"http://127.0.0.1:{serving.port}", timeout=timeout).arun("hello")

    return lambda: asyncio.run(run())


def ended(code: str) -> Callable[[], object]:
    problem = {"status": 502, "code": code, "detail": "It stopped."}
    return elsewhere(reply(f"event: problem\ndata: {json.dumps(problem)}\n\n".encode(), 200, "text/event-stream"))


def mismatch() -> object:
    recorded = scripted("answer").run("hello", trace=True)
    return load(scripted().to_blueprint(), tools=[look], model=ReplayModel(recorded)).run("good bye")


NOT_A_NUMBER = {"name": "greater_than", "args": {"value": "{input}", "than": 1}}
CALL = ToolCall.of("look", word="moon")

PROVOKED: dict[type[PodwrightError], Callable[[], object]] = {
    PodwrightError: raising(PodwrightError("An error of the user's own model.")),
    errors.ConfigurationError: lambda: RunLimits(tokens=-1),
    errors.BlueprintValidationError: lambda: load({"name": "guide", "instruction": ""}),
    errors.ToolDefinitionError: lambda: Agent("guide", "", "offline/echo", tools=[lambda word: word]),
    errors.UnknownModelError: lambda: Agent("guide", "", "offlin/echo").run("hello"),
    errors.InputError: lambda: scripted().run("hello", response_model=object()),
    errors.ContextError: lambda: scripted().run({}),
    errors.ResumePathError: lambda: Workflow("flow", [ApprovalStep("Go on?")]).run("hello", start_step=7),
    errors.TraceError: lambda: ExecutionResult.from_dict({"format": "something else"}),
    errors.BlockingCallError: blocking,
    RunError: raising(RunError("An error of the user's own model.")),
    errors.ModelError: lambda: scripted().run("hello"),
    errors.ModelAuthenticationError: refused(401),
    errors.ModelRateLimitError: refused(429),
    errors.ModelTimeoutError: provided("hang", first_byte=0.05),
    errors.ModelConnectionError: provided("reset"),
    errors.ModelUnavailableError: refused(503),
    errors.ModelRequestError: refused(404),
    errors.ContextWindowError: refused(400, "context_length_exceeded"),
    errors.ContentFilterError: refused(400, "content_filter"),
    errors.ModelResponseError: provided(reply(b"no JSON")),
    errors.ReplayMismatchError: mismatch,
    errors.RemoteError: ended("remote_failed"),
    errors.RemoteConnectionError: elsewhere(reply(b"", 200, "text/event-stream")),
    errors.RemoteUnavailableError: elsewhere(reply(b"", 503)),
    errors.RemoteTimeoutError: elsewhere("hang", timeout=0.2),
    errors.RemoteRejectedError: elsewhere(reply(b"", 401)),
    errors.RemoteResponseError: elsewhere(reply(b"", 307)),
    errors.RemotePausedError: ended("approval_required"),
    errors.RemoteHopsError: ended("remote_hops_exceeded"),
    errors.ToolError: lambda: scripted(ToolCall.of("look", word="nothing")).run("hello"),
    errors.ToolArgumentsError: lambda: scripted(ToolCall.of("look"), ToolCall.of("look")).run("hello"),
    errors.ConditionError: lambda: Workflow("flow", [ConditionStep(NOT_A_NUMBER, then=[scripted()])]).run("hello"),
    errors.OutputError: lambda: scripted("no JSON", max_loops=1).run("hello", response_model=Answer),
    errors.LoopLimitError: lambda: scripted(CALL, max_loops=1).run("hello"),
    errors.LimitExceededError: lambda: scripted("x", limits=RunLimits(model_calls=0)).run("hello"),
    errors.ApprovalRequired: lambda: Workflow("flow", [ApprovalStep("Go on?")]).run("hello"),
    errors.RunCancelledError: cancelled,
}
"""What a user does to meet each error."""

each = pytest.mark.parametrize("kind", PROVOKED, ids=lambda kind: kind.__name__)


def met(kind: type[PodwrightError]) -> PodwrightError:
    """The error as a user meets it."""
    with pytest.raises(PodwrightError) as caught:
        PROVOKED[kind]()
    assert type(caught.value) is kind, caught.value
    return caught.value


def all_kinds(kind: type[PodwrightError] = PodwrightError) -> list[type[PodwrightError]]:
    """The class and all below it that the library defines, in their order."""
    own = [one for one in kind.__subclasses__() if one.__module__.partition(".")[0] == "podwright"]
    return [kind, *(inner for one in own for inner in all_kinds(one))]


def test_every_error_is_met() -> None:
    """The table above has a way to each error that the library defines, all of them in one module."""
    assert list(PROVOKED) == all_kinds()
    assert {kind.__module__ for kind in all_kinds()} == {"podwright.errors"}


def test_codes_are_frozen() -> None:
    """Each class has its own code, and it is the one it has always had."""
    assert {kind.__name__: kind.code for kind in all_kinds()} == CODES
    assert len(set(CODES.values())) == len(CODES)


def test_the_tree_in_the_docstring_is_the_tree() -> None:
    """The hierarchy drawn at the top of the module is the real one, with the real codes."""
    drawn: list[tuple[str, str, str]] = []
    above: list[str] = []
    for line in (errors.__doc__ or "").splitlines():
        found = re.match(r"    ([│├└─ ]*)(\w+)(?: +(\w+) +\S.*)?$", line)
        if found:
            depth = len(found[1]) // 4
            above = [*above[:depth], found[2]]
            drawn.append((found[2], above[depth - 1] if depth else "Exception", found[3] or "podwright_error"))
    real = [(kind.__name__, kind.__base__.__name__, kind.code) for kind in all_kinds()]  # pyright: ignore[reportOptionalMemberAccess]
    assert drawn == real


@each
def test_an_error_tells_what_to_do(kind: type[PodwrightError]) -> None:
    """An error has a message, a suggestion and a link that ends in its code, and its text has all three."""
    error = met(kind)
    assert error.message
    assert error.suggestion
    assert error.help_url == f"{HELP_URL}#{CODES[kind.__name__]}"
    text = str(error)
    assert text.startswith(error.message)
    assert f"Suggestion: {error.suggestion}" in text
    assert text.endswith(f"Help: {error.help_url}")
    assert error.message.rstrip().endswith((".", "?", "!", ":")) or error.__cause__ is not None


@each
def test_an_error_is_json(kind: type[PodwrightError]) -> None:
    """`to_dict` gives JSON data: code, message, suggestion and link, and what is known of the run."""
    error = met(kind)
    facts = error.to_dict()
    assert json.loads(json.dumps(facts, allow_nan=False)) == facts
    expected = {
        "code": CODES[kind.__name__],
        "message": error.message,
        "suggestion": error.suggestion,
        "help_url": error.help_url,
    }
    assert {key: facts[key] for key in expected} == expected
    assert facts.get("run_id") == error.run_id
    assert facts.get("component") == error.component


@each
def test_an_error_is_printed_in_colour(kind: type[PodwrightError]) -> None:
    """`rich_print` prints a coloured panel with the class, the code, the message, the suggestion and the link."""
    error = met(kind)
    plain, coloured = io.StringIO(), io.StringIO()
    error.rich_print(Console(file=plain, width=300))
    error.rich_print(Console(file=coloured, width=300, force_terminal=True, color_system="standard"))
    printed = plain.getvalue()
    for part in (kind.__name__, error.code, error.message.splitlines()[0], error.suggestion, error.help_url):
        assert part in printed
    assert "\x1b[" in coloured.getvalue()
    assert "\x1b[" not in printed


@each
def test_an_error_travels(kind: type[PodwrightError]) -> None:
    """An error comes through pickle with all that it carries, as it must from a worker process."""
    error = met(kind)
    again = pickle.loads(pickle.dumps(error))  # noqa: S301 - our own bytes
    assert type(again) is kind
    assert str(again) == str(error)
    assert again.to_dict() == error.to_dict()
    assert again.usage == error.usage


def test_an_error_of_a_run_knows_its_run() -> None:
    """An error that ended a run carries the run's id, the component and the usage so far; others carry none."""
    error = met(errors.ToolError)
    assert re.fullmatch("[0-9a-f]{32}", error.run_id or "")
    assert error.component == "guide"
    assert error.usage is not None
    assert (error.usage.model_calls, error.usage.tool_calls) == (1, 1)
    assert isinstance(error.__cause__, LookupError)
    before = met(errors.ConfigurationError)
    assert (before.run_id, before.component, before.usage, before.context, before.resume_path) == (None,) * 5
    assert set(before.to_dict()) == {"code", "message", "suggestion", "help_url"}


def test_an_error_of_a_workflow_carries_the_way_on() -> None:
    """An error that stopped a workflow has its context and its resume path, as JSON data too."""
    error = met(errors.ApprovalRequired)
    assert error.resume_path == [0]
    assert error.to_dict()["resume_path"] == [0]
    assert error.to_dict()["context"]["input"] == "hello"


def test_a_context_of_objects_is_told_as_data() -> None:
    """Inputs that are no JSON, such as a date, are JSON data in what the error tells."""
    with pytest.raises(errors.ApprovalRequired) as caught:
        Workflow("flow", [ApprovalStep("Go on?")]).run(
            {"input": "x", "on": datetime.date(2020, 1, 2), "odds": math.inf}
        )
    context = json.loads(json.dumps(caught.value.to_dict(), allow_nan=False))["context"]
    assert (context["on"], context["odds"]) == ("2020-01-02", "Infinity")


def test_a_validation_error_lists_its_problems() -> None:
    """A validation error has each problem as an object, in its text, in its JSON and in its panel."""
    error = met(errors.BlueprintValidationError)
    assert isinstance(error, BlueprintValidationError)
    assert [one.pointer for one in error.problems] == ["", "", "/instruction"]
    shown = io.StringIO()
    error.rich_print(Console(file=shown, width=300))
    for problem, facts in zip(error.problems, error.to_dict()["problems"], strict=True):
        assert str(problem) in str(error)
        assert str(problem) in shown.getvalue()
        assert facts == {"pointer": problem.pointer, "detail": problem.detail, "suggestion": problem.suggestion}
    assert "(the whole blueprint): the key 'config' is missing." in str(error)


def test_a_limit_is_named() -> None:
    """An error of a limit names the field of `RunLimits`."""
    error = met(errors.LimitExceededError)
    assert isinstance(error, LimitExceededError)
    assert error.limit == error.to_dict()["limit"] == "model_calls"


def test_a_guess_takes_no_time() -> None:
    """Names that are far too long, or far too many, are not compared."""
    names = [f"{number}{'ab' * 100_000}" for number in range(3)]
    assert did_you_mean("ab" * 240_000, [*names, "look"]) == "Known names: look."
    assert did_you_mean("loook", [*names, "look"]) == "Did you mean 'look'?"
    assert did_you_mean("n9999", (f"n{number}" for number in range(10_000))).startswith("Did you mean 'n")


def test_an_error_can_be_finer_than_its_class() -> None:
    """A single error may have its own suggestion, link and code; its class keeps its own."""
    error = RunError("It failed.", suggestion="Try again.", code="quota_used_up")
    assert error.help_url == f"{HELP_URL}#quota_used_up"
    assert error.to_dict()["code"] == "quota_used_up"
    assert RunError.code == "run_failed"
    assert RunError("It failed.", help_url="https://example.com/help").help_url == "https://example.com/help"
    assert pickle.loads(pickle.dumps(error)).code == "quota_used_up"  # noqa: S301 - our own bytes


def test_printing_goes_to_standard_error(capsys: pytest.CaptureFixture[str]) -> None:
    """Without a console, an error is printed to standard error, so that it does not mix with output."""
    PodwrightError("It failed.").rich_print()
    out, err = capsys.readouterr()
    assert out == ""
    assert "It failed." in err


def test_markup_in_a_message_is_text() -> None:
    """What a message quotes is not taken for markup of the printer."""
    shown = io.StringIO()
    PodwrightError("Unknown tool '[bold]serch[/]'.", suggestion="[red]no[/red]").rich_print(
        Console(file=shown, width=99)
    )
    assert "Unknown tool '[bold]serch[/]'." in shown.getvalue()
    assert "[red]no[/red]" in shown.getvalue()


def test_every_code_is_in_the_reference() -> None:
    """The page that the links lead to has an entry for each code, with its class, and none for any other."""
    reference = REFERENCE.read_text().partition("\n# Of the service alone\n")[0]
    entries = dict(re.findall(r"^## (\w+)\n+`(\w+)`", reference, re.MULTILINE))
    headings = re.findall(r"^## (.*)$", reference, re.MULTILINE)
    assert entries == {code: name for name, code in CODES.items()}
    assert headings == [kind.code for kind in all_kinds()]


def test_every_entry_says_when_and_what_to_do() -> None:
    """Each entry of the reference has a line on when the error comes, and one on what to do."""
    _, *entries = re.split(r"^## ", REFERENCE.read_text(), flags=re.MULTILINE)
    assert len(entries) >= len(CODES)
    for entry in entries:
        assert re.search(r"^\*\*When:\*\* \S.*$", entry, re.MULTILINE), entry
        assert re.search(r"^\*\*What to do:\*\* \S.*$", entry, re.MULTILINE), entry
