"""Every error: raised by real use, with message, suggestion, help and code, in the tree and in the reference."""

import asyncio
import datetime
import io
import json
import math
import pickle
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pytest
from pydantic import BaseModel
from rich.console import Console
from tests.library.upstream import Part, pass_time, reply, upstream

from podwright import (
    Agent,
    ExecutionResult,
    MCPServer,
    Remote,
    RunLimits,
    Workflow,
    errors,
    load,
)
from podwright.components import (
    ApprovalStep,
    ConditionStep,
    FunctionStep,
    LoopStep,
)
from podwright.errors import DOCS_URL, PodwrightError, RunError, help_page
from podwright.models import Connection, resolve
from podwright.models.retries import Retries
from podwright.testing import (
    FunctionModel,
    ModelRequest,
    ModelResponse,
    ReplayModel,
    ScriptedModel,
    ToolCall,
)

REFERENCE = Path(__file__).parents[2] / "docs" / "errors.md"
CODES = """
    podwright_error configuration_invalid blueprint_invalid tool_definition_invalid model_unknown input_invalid
    context_invalid inputs_invalid messages_invalid resume_path_invalid trace_invalid blocking_call run_failed
    model_failed model_authentication model_rate_limited model_timeout model_unreachable model_unavailable
    model_request_refused context_window_exceeded content_unsupported content_filtered model_refused
    finish_reason_unknown model_response_invalid model_tool_call_invalid replay_mismatch remote_failed
    remote_unreachable remote_unavailable remote_timeout remote_rejected remote_response_invalid remote_paused
    remote_interrupted remote_hops_exceeded tool_failed tool_arguments_invalid mcp_server_failed condition_failed
    output_invalid model_retry refused loop_limit_reached loop_exhausted limit_exceeded approval_required
    approval_rejected run_cancelled
""".split()
"""Programs compare codes, so they never change; in the order of the tree."""


SPEECH: Any = {
    "type": "input_audio",
    "input_audio": {"data": "SUQz", "format": "mp3"},
}


class Answer(BaseModel):
    number: int


def look(word: str) -> str:
    """Look a word up."""
    if word == "nothing":
        raise LookupError("no such word")
    return f"{word}: found"


def refuse() -> None:
    raise errors.Refusal("refused", "Not today.")


def ask_again() -> None:
    raise errors.ModelRetry("Again.")


def scripted(*answers: Any, **options: Any) -> Agent:
    return Agent(
        "guide", "Help.", ScriptedModel(*answers), tools=[look], **options
    )


def blocking() -> object:
    async def ask() -> str:
        """Ask synchronously, on the loop's own thread."""
        return scripted("inner").run("hello")

    return Agent(
        "guide", "", ScriptedModel(ToolCall.of("ask")), tools=[ask]
    ).run("hello")


def raising(error: BaseException) -> Callable[[], object]:
    def answer(_: ModelRequest) -> str:
        raise error

    return lambda: Agent("guide", "", FunctionModel(answer)).run("hello")


async def cancels(_: ModelRequest) -> str:
    """A model that cancels the run which asks it."""
    cast("asyncio.Task[object]", asyncio.current_task()).cancel()
    await asyncio.Event().wait()
    return ""


def provider(*answer: Part, **options: Any) -> Callable[[], object]:
    """A run whose provider sends these bytes."""

    async def run() -> object:
        async with upstream() as serving:
            serving.answers(answer)
            model = resolve(
                "openai/gpt-4o-mini", connection=Connection("key", serving.url)
            )
            model.retries = Retries(tries=1)
            return await Agent("guide", "", model, **options).arun("hello")

    return lambda: asyncio.run(run())


def refused(status: int, code: str = "") -> Callable[[], object]:
    return provider(reply({"error": {"code": code}}, status))


def remote(*answer: Part, timeout: float | None = None) -> Callable[[], object]:
    """A run of a remote component whose service sends these bytes."""

    async def run() -> object:
        async with upstream() as serving:
            serving.answers(answer)
            return await Remote(
                "far", f"http://127.0.0.1:{serving.port}", timeout=timeout
            ).arun("hello")

    return lambda: asyncio.run(run())


def remote_problem(code: str) -> Callable[[], object]:
    problem = {"status": 502, "code": code, "detail": "It stopped."}
    return remote(
        reply(
            f"event: problem\ndata: {json.dumps(problem)}\n\n".encode(),
            200,
            "text/event-stream",
        )
    )


def mismatch() -> object:
    recorded = scripted("answer").run("hello", trace=True)
    return load(
        scripted().to_blueprint(), tools=[look], model=ReplayModel(recorded)
    ).run("good bye")


NOT_A_NUMBER = {"name": "greater_than", "args": {"value": "{input}", "than": 1}}
CALL = ToolCall.of("look", word="moon")
NEVER = {"name": "is_empty", "args": {"value": "x"}}
EXHAUSTED = LoopStep(
    [scripted("x")], until=NEVER, max_iterations=1, on_exhausted="fail"
)


def unknown_end() -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PODWRIGHT_MODEL_UNKNOWN_FINISH_REASON", "fail")
        scripted(ModelResponse("Hi.", finish_reason="over")).run("hello")


def rejected() -> None:
    flow = Workflow("flow", [ApprovalStep("Go on?")])
    with pytest.raises(errors.ApprovalRequired) as caught:
        flow.run("hello")
    flow.run(
        caught.value.decide("reject"), resume_path=caught.value.resume_path
    )


PROVOKED: dict[type[PodwrightError], Callable[[], object]] = {
    PodwrightError: raising(
        PodwrightError("An error of the user's own model.")
    ),
    errors.ConfigurationError: lambda: RunLimits(tokens=-1),
    errors.BlueprintValidationError: lambda: load(
        {"name": "guide", "instruction": ""}
    ),
    errors.ToolDefinitionError: lambda: Agent(
        "guide", "", "offline/echo", tools=[lambda word: word]
    ),
    errors.UnknownModelError: lambda: Agent("guide", "", "offlin/echo").run(
        "hello"
    ),
    errors.InputError: lambda: scripted().run("hello", response_model=object()),
    errors.ContextError: lambda: scripted().run({}),
    errors.InputsError: lambda: scripted(
        inputs={"word": {"type": "string"}}
    ).run("hello"),
    errors.MessagesError: lambda: scripted().run(
        "hello", messages=[{"role": "tool", "content": "?"}]
    ),
    errors.ResumePathError: lambda: Workflow(
        "flow", [ApprovalStep("Go on?")]
    ).run("hello", start_step=7),
    errors.TraceError: lambda: ExecutionResult.from_dict(
        {"format": "something else"}
    ),
    errors.BlockingCallError: blocking,
    RunError: raising(RunError("An error of the user's own model.")),
    errors.ModelError: lambda: scripted().run("hello"),
    errors.ModelAuthenticationError: refused(401),
    errors.ModelRateLimitError: refused(429),
    errors.ModelTimeoutError: provider(pass_time, "hang", timeout=60.0),
    errors.ModelConnectionError: provider("reset"),
    errors.ModelUnavailableError: refused(503),
    errors.ModelRequestError: refused(404),
    errors.ContextWindowError: refused(400, "context_length_exceeded"),
    errors.ContentUnsupportedError: lambda: Agent(
        "guide", "", resolve("deepseek/deepseek-chat", None, Connection("key"))
    ).run([SPEECH]),
    errors.ContentFilterError: refused(400, "content_filter"),
    errors.ModelRefusedError: lambda: scripted(
        ModelResponse(refusal="No.")
    ).run("hello", response_model=Answer),
    errors.UnknownFinishReasonError: unknown_end,
    errors.ModelResponseError: provider(reply(b"not JSON")),
    errors.ModelToolCallError: refused(400, "tool_use_failed"),
    errors.ReplayMismatchError: mismatch,
    errors.RemoteError: remote_problem("remote_failed"),
    errors.RemoteConnectionError: remote(reply(b"", 200, "text/event-stream")),
    errors.RemoteUnavailableError: remote(reply(b"", 503)),
    errors.RemoteTimeoutError: remote(pass_time, "hang", timeout=60.0),
    errors.RemoteRejectedError: remote(reply(b"", 401)),
    errors.RemoteResponseError: remote(reply(b"", 307)),
    errors.RemotePausedError: remote_problem("approval_required"),
    errors.RemoteInterruptedError: remote_problem("remote_interrupted"),
    errors.RemoteHopsError: remote_problem("remote_hops_exceeded"),
    errors.ToolError: lambda: scripted(
        ToolCall.of("look", word="nothing"), max_tool_retries=0
    ).run("hello"),
    errors.ToolArgumentsError: lambda: scripted(
        ToolCall.of("look"), max_tool_retries=0
    ).run("hello"),
    errors.MCPServerError: lambda: asyncio.run(
        MCPServer("http://127.0.0.1:9/mcp").list_tools()
    ),
    errors.ConditionError: lambda: Workflow(
        "flow", [ConditionStep(NOT_A_NUMBER, then=[scripted()])]
    ).run("hello"),
    errors.OutputError: lambda: scripted("not JSON", max_loops=1).run(
        "hello", response_model=Answer
    ),
    errors.ModelRetry: lambda: Workflow("flow", [FunctionStep(ask_again)]).run(
        "hello"
    ),
    errors.Refusal: lambda: scripted("yes", after=refuse).run("hello"),
    errors.LoopLimitError: lambda: scripted(CALL, max_loops=1).run("hello"),
    errors.LoopExhaustedError: lambda: Workflow("flow", [EXHAUSTED]).run(
        "hello"
    ),
    errors.LimitExceededError: lambda: scripted(
        "x", limits=RunLimits(model_calls=0)
    ).run("hello"),
    errors.ApprovalRequired: lambda: Workflow(
        "flow", [ApprovalStep("Go on?")]
    ).run("hello"),
    errors.ApprovalRejectedError: rejected,
    errors.RunCancelledError: lambda: Agent(
        "guide", "", FunctionModel(cancels)
    ).run("hello"),
}
"""What a user does to get each error."""


def provoke(error_class: type[PodwrightError]) -> Any:
    with pytest.raises(PodwrightError) as caught:
        PROVOKED[error_class]()
    assert type(caught.value) is error_class, caught.value
    return caught.value


def tree(
    error_class: type[PodwrightError] = PodwrightError,
) -> list[type[PodwrightError]]:
    """The class and those below it that the library defines, in their order, without those of its client."""
    own = [
        sub
        for sub in error_class.__subclasses__()
        if sub.__module__.partition(".")[0] == "podwright"
        and not sub.__module__.startswith("podwright.client.")
    ]
    return [error_class, *(below for sub in own for below in tree(sub))]


def test_every_error_is_in_the_table_and_has_its_own_code() -> None:
    """The table has every error of the library; each has the code that it has always had."""
    assert list(PROVOKED) == tree()
    assert [error_class.code for error_class in tree()] == CODES
    assert {error_class.__module__ for error_class in tree()} == {
        "podwright.errors"
    }


def test_the_tree_in_the_docstring_is_the_real_one() -> None:
    """The hierarchy in the docstring of the module has all classes, their bases and their codes."""
    drawn: list[tuple[str, str, str]] = []
    above: list[str] = []
    for line in (errors.__doc__ or "").splitlines():
        if match := re.match(r"    ([│├└─ ]*)(\w+)(?: +(\w+) +\S.*)?$", line):
            depth = len(match[1]) // 4
            above = [*above[:depth], match[2]]
            drawn.append(
                (
                    match[2],
                    above[depth - 1] if depth else "Exception",
                    match[3] or "podwright_error",
                )
            )
    assert drawn == [
        (sub.__name__, sub.__bases__[0].__name__, sub.code) for sub in tree()
    ]


@pytest.mark.parametrize(
    "error_class", PROVOKED, ids=lambda error_class: error_class.__name__
)
def test_an_error_says_what_to_do(error_class: type[PodwrightError]) -> None:
    """Each error has message, suggestion and help, as text, as JSON data and in colour, and survives pickling."""
    error = provoke(error_class)
    assert (
        error.message.rstrip().endswith((".", "?", "!", ":"))
        or error.__cause__ is not None
    )
    assert error.help_url == help_page(error_class.code)
    assert str(error).startswith(error.message)
    assert str(error).endswith(
        f"Suggestion: {error.suggestion}\n  Help: {error.help_url}"
    )
    facts = error.to_dict()
    assert json.loads(json.dumps(facts, allow_nan=False)) == facts
    expected = {
        "code": error_class.code,
        "message": error.public_message or error.message,
        "suggestion": error.suggestion,
    }
    assert {**facts, **expected, "help_url": error.help_url} == facts
    assert (facts.get("run_id"), facts.get("component")) == (
        error.run_id,
        error.component,
    )
    plain = io.StringIO()
    coloured = io.StringIO()
    error.rich_print(Console(file=plain, width=300))
    error.rich_print(
        Console(
            file=coloured,
            width=300,
            force_terminal=True,
            color_system="standard",
        )
    )
    for part in (
        error_class.__name__,
        error.code,
        error.message.splitlines()[0],
        error.suggestion,
        error.help_url,
    ):
        assert part in plain.getvalue()
    assert ("\x1b[" in plain.getvalue(), "\x1b[" in coloured.getvalue()) == (
        False,
        True,
    )
    copy = pickle.loads(pickle.dumps(error))  # noqa: S301 - our own bytes
    assert (type(copy), str(copy), copy.to_dict(), copy.usage) == (
        error_class,
        str(error),
        facts,
        error.usage,
    )


def test_an_error_of_a_run_has_the_facts_of_the_run() -> None:
    """An error that ended a run has its id, component, usage and cause; one before a run has none."""
    error = provoke(errors.ToolError)
    assert re.fullmatch("[0-9a-f]{32}", error.run_id)
    assert (
        error.component,
        error.usage.model_calls,
        error.usage.tool_calls,
    ) == (
        "guide",
        1,
        1,
    )
    assert isinstance(error.__cause__, LookupError)
    before = provoke(errors.ConfigurationError)
    assert (
        before.run_id,
        before.component,
        before.usage,
        before.context,
        before.resume_path,
    ) == (None,) * 5
    assert set(before.to_dict()) == {
        "code",
        "message",
        "suggestion",
        "help_url",
    }


def test_an_error_of_a_workflow_has_its_context_as_json() -> None:
    """The context of a stopped workflow is JSON data in `to_dict`, whatever the inputs were."""
    context = {"input": "x", "on": datetime.date(2020, 1, 2), "odds": math.inf}
    with pytest.raises(errors.ApprovalRequired) as caught:
        Workflow("flow", [ApprovalStep("Go on?")]).run(context)
    facts = json.loads(json.dumps(caught.value.to_dict(), allow_nan=False))
    assert facts["resume_path"] == [0]
    assert (facts["context"]["on"], facts["context"]["odds"]) == (
        "2020-01-02",
        "Infinity",
    )


def test_a_validation_error_lists_its_problems() -> None:
    """Each problem is in the text, in the JSON data and in the coloured panel."""
    error = provoke(errors.BlueprintValidationError)
    assert [problem.pointer for problem in error.problems] == [
        "",
        "",
        "/instruction",
    ]
    shown = io.StringIO()
    error.rich_print(Console(file=shown, width=300))
    for problem, facts in zip(
        error.problems, error.to_dict()["problems"], strict=True
    ):
        assert str(problem) in str(error)
        assert str(problem) in shown.getvalue()
        assert facts == {
            "pointer": problem.pointer,
            "detail": problem.detail,
            "suggestion": problem.suggestion,
        }


def test_the_documentation_may_be_elsewhere(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """`PODWRIGHT_DOCS_URL` names the copy of the documentation that errors link to."""
    monkeypatch.setenv("PODWRIGHT_DOCS_URL", "https://docs.example/podwright/")
    assert (
        RunError("It failed.").help_url
        == "https://docs.example/podwright/errors.html#run_failed"
    )


def test_an_error_may_have_its_own_code_and_help() -> None:
    """A single error may have another suggestion, help and code than its class."""
    error = RunError(
        "It failed.", suggestion="Try again.", code="quota_used_up"
    )
    assert (error.help_url, error.to_dict()["code"]) == (
        f"{DOCS_URL}/errors.html#codes-of-your-own",
        "quota_used_up",
    )
    with pytest.raises(ValueError, match="'Quota used up'"):
        RunError("It failed.", code="Quota used up")
    assert RunError.code == "run_failed"
    assert (
        RunError("It failed.", help_url="https://example.com/help").help_url
        == "https://example.com/help"
    )
    assert pickle.loads(pickle.dumps(error)).code == "quota_used_up"  # noqa: S301 - our own bytes


def test_rich_print_writes_text_to_standard_error(capsys: Any) -> None:
    """Without a console an error is printed to standard error, and its text is not markup."""
    PodwrightError(
        "Unknown tool '[bold]serch[/]'.", suggestion="[red]no[/red]"
    ).rich_print()
    out, err = capsys.readouterr()
    assert out == ""
    assert "Unknown tool '[bold]serch[/]'." in err
    assert "[red]no[/red]" in err


def test_every_code_is_in_the_reference() -> None:
    """The page that the links lead to has an entry for each code, in the order of the tree, with its class."""
    text = REFERENCE.read_text()
    library = text.partition("\n# The service\n")[0]
    entries = re.findall(r"^## (\w+)\n+`(\w+)`", library, re.MULTILINE)
    assert entries == [
        (error_class.code, error_class.__name__) for error_class in tree()
    ]
