"""The errors of Podwright.

All derive from `PodwrightError`; each class has a stable `code`, which traces and the service use too.

    PodwrightError
    ├── ConfigurationError            configuration_invalid    a component is configured wrongly
    │   ├── BlueprintValidationError  blueprint_invalid        a blueprint is invalid; with all problems
    │   ├── ToolDefinitionError       tool_definition_invalid  a function cannot be a tool
    │   └── UnknownModelError         model_unknown            no provider serves the model
    ├── InputError                    input_invalid            the input of a run is wrong
    │   ├── ContextError              context_invalid          a context lacks a name, or has a wrong value
    │   ├── InputsError               inputs_invalid           the named inputs do not fit the declared ones
    │   ├── MessagesError             messages_invalid         the earlier turns are wrong; with all problems
    │   └── ResumePathError           resume_path_invalid      a start step or resume path does not exist
    ├── TraceError                    trace_invalid            a saved trace cannot be read
    ├── BlockingCallError             blocking_call            run() would wait for its own thread
    └── RunError                      run_failed               a run failed
        ├── ModelError                model_failed             a model call failed
        │   ├── ModelAuthenticationError  model_authentication  the key is missing, wrong or without rights
        │   ├── ModelRateLimitError   model_rate_limited       too many requests, or no credit left
        │   ├── ModelTimeoutError     model_timeout            a time-out: connecting, first byte, next chunk or total
        │   ├── ModelConnectionError  model_unreachable        no connection, or it was lost
        │   ├── ModelUnavailableError model_unavailable        the provider answered 5xx
        │   ├── ModelRequestError     model_request_refused    the provider refused the request
        │   │   ├── ContextWindowError    context_window_exceeded  the request is too long for the model
        │   │   └── ContentUnsupportedError  content_unsupported   the model takes no such files or audio
        │   ├── ContentFilterError    content_filtered         the provider's filter stopped the request or answer
        │   │   └── ModelRefusedError     model_refused            the model refused to answer; with its words
        │   ├── UnknownFinishReasonError  finish_reason_unknown  it is not known whether the answer is whole
        │   ├── ModelResponseError    model_response_invalid     the answer is malformed, truncated or too large
        │   │   └── ModelToolCallError    model_tool_call_invalid  the provider cannot read its model's tool call
        │   └── ReplayMismatchError   replay_mismatch          a replayed run made another request
        ├── RemoteError               remote_failed            the run of a remote component failed
        │   ├── RemoteConnectionError remote_unreachable       no connection, or it was lost
        │   ├── RemoteUnavailableError  remote_unavailable     the remote is overloaded, starting or stopping
        │   ├── RemoteTimeoutError    remote_timeout           the remote was silent, or took too long
        │   ├── RemoteRejectedError   remote_rejected          the remote refused the request
        │   ├── RemoteResponseError   remote_response_invalid  the response is not from a Podwright service
        │   ├── RemotePausedError     remote_paused            a remote workflow waits for approval
        │   ├── RemoteInterruptedError  remote_interrupted     what an earlier, lost request did is unknown
        │   └── RemoteHopsError       remote_hops_exceeded     the run passed through too many containers
        ├── ToolError                 tool_failed              a tool raised
        │   ├── ToolArgumentsError    tool_arguments_invalid   a model called a tool wrongly too often
        │   └── MCPServerError        mcp_server_failed        an MCP server did not do what it was asked for
        ├── ConditionError            condition_failed         a condition raised, or cannot compare
        ├── OutputError               output_invalid           no answer fits the response model, or was accepted
        ├── ModelRetry                model_retry              a function asks the model for another answer
        ├── Refusal                   refused                  a function refuses; with a code and words of its own
        ├── LoopLimitError            loop_limit_reached       no answer after max_loops model calls
        ├── LoopExhaustedError        loop_exhausted           a loop step ended by max_iterations
        ├── LimitExceededError        limit_exceeded           a limit of RunLimits was reached
        ├── ApprovalRequired          approval_required        a run waits for a person
        ├── ApprovalRejectedError     approval_rejected        a person rejected what a run waited for
        └── RunCancelledError         run_cancelled            the caller cancelled the run
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from podwright.data.json_data import to_json_data
from podwright.data.redaction import without_url_secrets
from podwright.data.text import (
    describe_error,
    did_you_mean,
    printable,
    short_repr,
)
from podwright.environment import variables

if TYPE_CHECKING:
    from rich.console import Console

    from podwright.events import Event
    from podwright.messages.approvals import ApprovalId, Question
    from podwright.messages.usage import Usage

DECISION = "_decision"
"""Name in the context of a stopped run under which a person's decision is given."""
_RUN_LIMITS = ("wall_time", "model_calls", "tokens", "cost")
"""The limits of `RunLimits`, which a service has in variables."""
DOCS_URL = "https://podwright.readthedocs.io"
"""Address of the documentation, unless `PODWRIGHT_DOCS_URL` names that of another copy."""


_OWN_CODE = re.compile(r"[a-z][a-z0-9_]{0,63}")
"""The form of the codes of errors that functions raise."""
_RESERVED = ("model_", "remote_")
"""The beginnings of codes that a try step takes for those of Podwright."""
_MISSPELLED = 0.85
"""How similar to a code of Podwright's a misspelled one is, from 0 to 1."""

E = TypeVar("E", bound="PodwrightError")


def help_page(code: str) -> str:
    """The address of the documentation of an error code."""
    docs_url = variables().get("PODWRIGHT_DOCS_URL", DOCS_URL)
    # a page is below it, and what may be secret in it is not shown
    if any(mark in docs_url for mark in "?#@"):
        docs_url = DOCS_URL
    return f"{docs_url.rstrip('/')}/errors.html#{code}"


class PodwrightError(Exception):
    """The base class of all errors (spec §7, there named `PlatformError`).

    Args:
        message: What failed, with the wrong value.
        suggestion: What to do about it.
        help_url: A page about this error; by default the entry for its code.
        code: A stable identifier, such as `blueprint_invalid`; by default that of the class. Functions may give errors
            codes of their own, of at most 64 lowercase letters, digits and underscores: try steps can name them.

    Example:
        `raise RunError("Number 42 is out of stock.", code="out_of_stock")`
    """

    code: ClassVar[str] = "podwright_error"
    """The stable identifier."""
    default_suggestion: ClassVar[str] = "Read the help page of this error."

    ends_run: bool = False
    """Whether it also ends the runs around the one that it is raised in; if not, a tool that raises it reports it to
    the model. True of pauses, cancellations, limits, unknown effects, and faults that no model can correct."""
    public_message: str | None = None
    """The message for callers, if `message` has the text of a foreign exception, which may hold a key or a prompt."""
    run_id: str | None = None
    """Id of the outermost run that this error ended."""
    component: str | None = None
    """Name of the innermost component that raised it."""
    usage: Usage | None = None
    """What the run had used when it failed."""
    context: dict[str, Any] | None = None
    """A workflow's context so far; pass it to `run` to resume."""
    resume_path: list[int] | None = None
    """Step indices, outermost first, at which a workflow resumes."""

    def __init__(
        self,
        message: str,
        *,
        suggestion: str | None = None,
        help_url: str | None = None,
        code: str | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.suggestion = suggestion or self.default_suggestion
        self.events: list[Event] = []
        """What happened in the run, in order; empty unless the run was traced. No part of `to_dict`."""
        if code is not None:
            if not _OWN_CODE.fullmatch(code):
                raise ValueError(
                    f"Invalid error code {short_repr(code)}: expected lowercase letters, digits and underscores, "
                    "such as 'out_of_stock'"
                )
            self.code = code  # pyright: ignore[reportAttributeAccessIssue] - an instance may have a finer code
        page = self.code
        if page not in CODES:
            page = "codes-of-your-own"
        self.help_url = help_url or help_page(page)

    def __str__(self) -> str:
        lines = [self.message, *(f"  - {line}" for line in self.details())]
        return "\n".join(
            [
                *lines,
                f"  Suggestion: {self.suggestion}",
                f"  Help: {self.help_url}",
            ]
        )

    def to_dict(self) -> dict[str, Any]:
        """The error for callers as JSON-compatible data, as in events and traces."""
        names = (
            "code",
            "message",
            "suggestion",
            "help_url",
            "run_id",
            "component",
            "context",
            "resume_path",
        )
        values = {name: getattr(self, name) for name in names} | {
            "message": self.public_message or self.message
        }
        return {
            name: to_json_data(value)
            for name, value in values.items()
            if value is not None
        }

    def rich_print(self, console: Console | None = None) -> None:
        """Print the error in colour (spec §7).

        Args:
            console: Where to print; standard error by default.
        """
        # a fifth of the library's import time
        from rich.console import Console as RichConsole
        from rich.panel import Panel
        from rich.text import Text

        lines = [*self.details(), *self.content_details()]
        body = Text.assemble(
            (_shown(self.message), "bold"),
            *(f"\n  - {_shown(line)}" for line in lines),
            ("\n\nSuggestion: ", "green"),
            _shown(self.suggestion),
            ("\nHelp: ", "cyan"),
            (self.help_url, "underline"),
        )
        title = Text(f"{type(self).__name__} [{self.code}]", style="bold red")
        (console or RichConsole(stderr=True)).print(
            Panel(body, title=title, border_style="red")
        )

    def details(self) -> Sequence[str]:
        """Further lines of the text; none for most errors."""
        return ()

    def content_details(self) -> Sequence[str]:
        """Further lines that only `rich_print` shows: content, which is not logged."""
        return ()


def _shown(text: str) -> str:
    """A text of an error for a terminal."""
    return without_url_secrets(printable(text))


def error_from(kind: type[E], subject: str, cause: BaseException) -> E:
    """An error about an exception of a caller's code. Only `message` has its text; `public_message` names its type."""
    error = kind(f"{subject} raised {describe_error(cause)}")
    error.public_message = f"{subject} raised {type(cause).__name__}."
    return error


class ConfigurationError(PodwrightError):
    """A component, tool or setting is configured wrongly."""

    code = "configuration_invalid"
    ends_run = True
    default_suggestion = "Correct the argument that the message names."


@dataclass(frozen=True, slots=True)
class Problem:
    """One problem of a blueprint or a request."""

    pointer: str
    """JSON pointer (RFC 6901); the empty string is the whole document."""
    detail: str
    """What is wrong, and what was expected."""
    suggestion: str = ""
    """What to write instead, if it can be guessed."""

    def __str__(self) -> str:
        return " ".join(
            filter(
                None,
                (
                    self.pointer and f"{self.pointer}:",
                    self.detail,
                    self.suggestion,
                ),
            )
        )


class BlueprintValidationError(ConfigurationError):
    """A blueprint is invalid; `problems` lists everything that is wrong (spec §7.2)."""

    code = "blueprint_invalid"
    default_suggestion = "Correct the listed problems; `podwright schema` prints the JSON Schema of blueprints."

    def __init__(
        self,
        message: str,
        *,
        problems: Sequence[Problem] = (),
        suggestion: str | None = None,
    ) -> None:
        super().__init__(message, suggestion=suggestion)
        self.problems = tuple(problems)

    def to_dict(self) -> dict[str, Any]:
        """As the base class, with `problems`: a list of pointer, detail and suggestion."""
        return {
            **super().to_dict(),
            "problems": [asdict(problem) for problem in self.problems],
        }

    def details(self) -> Sequence[str]:
        """One line a problem."""
        return [str(problem) for problem in self.problems]


class ToolDefinitionError(ConfigurationError):
    """A function cannot be offered to a model as a tool."""

    code = "tool_definition_invalid"
    default_suggestion = (
        "Use a named function whose parameters have JSON-compatible type hints."
    )


class UnknownModelError(ConfigurationError):
    """No provider in this installation serves the model."""

    code = "model_unknown"
    default_suggestion = (
        "Name a model as '<provider>/<model_name>', for example 'offline/echo'."
    )


class InputError(PodwrightError):
    """The input of a run is wrong; no model was called."""

    code = "input_invalid"
    default_suggestion = "Pass a string, or an object of named inputs."

    def __init__(
        self,
        message: str,
        *,
        problems: Sequence[Problem] = (),
        suggestion: str | None = None,
    ) -> None:
        super().__init__(message, suggestion=suggestion)
        self.problems = tuple(problems)
        """Everything that is wrong, where it is more than the message says."""

    def details(self) -> Sequence[str]:
        """One line a problem."""
        return [str(problem) for problem in self.problems]


class ContextError(InputError):
    """A context lacks a name that a step needs, or has a value of the wrong type."""

    code = "context_invalid"
    default_suggestion = (
        "Add the name to the inputs, or correct the template that uses it."
    )


class InputsError(InputError):
    """The named inputs of a run, or a person's decision, do not fit what is declared; `problems` lists everything."""

    code = "inputs_invalid"
    default_suggestion = (
        "Correct the listed inputs; the blueprint's `inputs` describe them."
    )

    question: Question | None = None
    """The question of a person's decision that does not fit; it stays open. Then the pointers lead into the decision,
    such as `/values/amount`."""


class MessagesError(InputError):
    """The messages of earlier turns, or the parts of an input, are wrong; `problems` lists everything."""

    code = "messages_invalid"
    default_suggestion = "Pass the `messages` of an earlier result, or messages as Chat Completions has them."


class ResumePathError(InputError):
    """A start step or a resume path does not lead to a step of the workflow."""

    code = "resume_path_invalid"
    ends_run = True
    default_suggestion = "Use the `context` and `resume_path` of the error that stopped the workflow, unchanged."


class TraceError(PodwrightError):
    """A saved trace cannot be read."""

    code = "trace_invalid"
    default_suggestion = "Use an unchanged result of `ExecutionResult.to_dict()`, of this or an older release."


class BlockingCallError(PodwrightError):
    """`run()` was called on the thread of its own event loop, where it would wait for itself."""

    code = "blocking_call"
    ends_run = True
    default_suggestion = "Use `await component.arun(...)` here."


class RunError(PodwrightError):
    """A run failed."""

    code = "run_failed"
    default_suggestion = (
        "See the cause of this error, and the trace of the run."
    )


class ModelError(RunError):
    """A model call failed."""

    code = "model_failed"
    default_suggestion = (
        "Check the model's name and the provider's status, then try again."
    )

    transient: bool = False
    """Whether the same request may succeed if it is repeated."""
    has_connected: bool = True
    """Whether there was a connection; without one, the request reached nobody."""
    retry_after: float | None = None
    """Seconds to wait before the next request, if the provider names them."""
    provider_error: str | None = None
    """Code, parameter and message of the provider's own error, without keys and text of the request; not for callers:
    `to_dict` leaves it out."""
    attempt_usage: Usage | None = None
    """What the failed attempt used, if the provider may bill it: as the provider counted it, or estimated."""

    def details(self) -> Sequence[str]:
        """The provider's own error, if it is known."""
        return (
            [f"Provider: {self.provider_error}"] if self.provider_error else []
        )


class ModelAuthenticationError(ModelError):
    """The provider rejected the API key, or there is none."""

    code = "model_authentication"
    default_suggestion = "Set the provider's key variable, and check that the key may use this model."


class ModelRateLimitError(ModelError):
    """Too many requests or tokens for now, or the account has no credit."""

    code = "model_rate_limited"
    default_suggestion = (
        "Wait, run fewer components at once, or raise the account's limits."
    )
    transient = True


class ModelTimeoutError(ModelError):
    """The provider was too slow; the message names the time-out."""

    code = "model_timeout"
    default_suggestion = (
        "Try again later, ask for a shorter answer, or raise the time-out."
    )
    transient = True

    is_limit_of_call: bool = False
    """Whether the time for the whole call has passed, or the part of it for one of several models; such a limit may be
    too short for any model. False for the time-outs of a connection."""


class ModelConnectionError(ModelError):
    """The provider could not be reached, or the connection was lost."""

    code = "model_unreachable"
    default_suggestion = "Check the endpoint's address and the network."
    transient = True


class ModelUnavailableError(ModelError):
    """The provider cannot serve requests now (5xx)."""

    code = "model_unavailable"
    default_suggestion = "Try again later; see the provider's status page."
    transient = True


class ModelRequestError(ModelError):
    """The provider rejected the request; repeating it does not help."""

    code = "model_request_refused"
    default_suggestion = "Check the model's name and settings: not every model supports every setting."


class ContextWindowError(ModelRequestError):
    """The request is longer than the model's context window."""

    code = "context_window_exceeded"
    default_suggestion = "Shorten the input or the tools' outputs, or use a model with a larger window."


class ContentUnsupportedError(ModelRequestError):
    """The model takes no files, no audio, or not these; nothing was sent to it."""

    code = "content_unsupported"
    default_suggestion = "Send the content as text, or use a model that takes it: docs/models.md lists them."


class ContentFilterError(ModelError):
    """The provider's content filter stopped the request or the answer."""

    code = "content_filtered"
    default_suggestion = "Rephrase the input."


class ModelRefusedError(ContentFilterError):
    """The model refused to answer.

    Args:
        message: Which model refused. It has none of the words, because messages of errors are logged.
        refusal: The words by which it refused, or what it had written until then; may be empty.
    """

    code = "model_refused"
    default_suggestion = (
        "Rephrase the input; `refusal` has the words of the model."
    )

    def __init__(self, message: str, *, refusal: str = "") -> None:
        super().__init__(message)
        self.refusal = refusal

    def to_dict(self) -> dict[str, Any]:
        """As the base class, with `refusal` if the model gave words."""
        data = super().to_dict()
        if self.refusal:
            data["refusal"] = self.refusal
        return data

    def content_details(self) -> Sequence[str]:
        """The words of the model."""
        return [f"Refusal: {self.refusal}"] if self.refusal else []


class UnknownFinishReasonError(ModelError):
    """It is not known whether an answer is whole, and `PODWRIGHT_MODEL_UNKNOWN_FINISH_REASON` is `fail`."""

    code = "finish_reason_unknown"
    default_suggestion = (
        "Read the answer in the trace; to accept such answers, set "
        "PODWRIGHT_MODEL_UNKNOWN_FINISH_REASON to `warn`."
    )


class ModelResponseError(ModelError):
    """The provider's response is malformed, truncated or too large."""

    code = "model_response_invalid"
    default_suggestion = "Try again; if it persists, the endpoint is not compatible with the API."
    transient = True


class ModelToolCallError(ModelResponseError):
    """The provider refused a tool call that its own model wrote; the model reads so with the next attempt."""

    code = "model_tool_call_invalid"
    default_suggestion = "Simplify the tools and their parameters, or use a model that is better at calling tools."

    failed_generation: str = ""
    """What the model wrote, if the provider says it; not for callers, like `provider_error`."""


class ReplayMismatchError(ModelError):
    """A replayed component made another request than the recorded one."""

    code = "replay_mismatch"
    ends_run = True
    default_suggestion = "If the change is intended, record a new trace."


class RemoteError(RunError):
    """The run of a remote component failed; an instance has the code that the remote reported."""

    code = "remote_failed"
    default_suggestion = "See the logs of the remote, and the trace of the run."

    transient: bool = False
    """Whether the request may be repeated: it started no run, or was lost before any response."""
    has_connected: bool = True
    """Whether there was a connection; without one, the request reached nobody."""
    retry_after: float | None = None
    """Seconds to wait before the next request, if the remote names them."""
    remote: str = ""
    """Name of the remote component."""
    status: int | None = None
    """The HTTP status of its response, or of the problem that has ended its stream with `retry_after`."""
    remote_code: str | None = None
    """The code of the remote's own error."""

    def to_dict(self) -> dict[str, Any]:
        """As the base class, with `remote`, and `status` and `remote_code` where they are known."""
        facts = {
            "remote": self.remote,
            "status": self.status,
            "remote_code": self.remote_code,
        }
        return {
            **super().to_dict(),
            **{
                name: value
                for name, value in facts.items()
                if value is not None
            },
        }


class RemoteConnectionError(RemoteError):
    """The remote could not be reached, or the connection was lost."""

    code = "remote_unreachable"
    default_suggestion = "Check that the remote runs, its URL, and the network."


class RemoteUnavailableError(RemoteError):
    """The remote accepts no run now: it is overloaded, starting or stopping."""

    code = "remote_unavailable"
    default_suggestion = "Try again later, or run more replicas of the remote."


class RemoteTimeoutError(RemoteError):
    """The remote was silent for too long, or its run exceeded its time limit."""

    code = "remote_timeout"
    default_suggestion = "Look at the remote's health, or raise the time-out."


class RemoteRejectedError(RemoteError):
    """The remote rejected the request: the key, the address or the input is wrong."""

    code = "remote_rejected"
    default_suggestion = "Check the remote's URL, its key and the input."


class RemoteResponseError(RemoteError):
    """The response is malformed, too large, a redirect, or not from a Podwright service."""

    code = "remote_response_invalid"
    default_suggestion = (
        "Check that the URL is that of a Podwright service, without a path."
    )


class RemotePausedError(RemoteError):
    """A remote workflow waits for approval, which the calling run cannot wait for."""

    code = "remote_paused"
    ends_run = True
    default_suggestion = (
        "Move the approval step into the workflow that calls the remote; or run the remote by itself, and resume it "
        "with the paused_context and paused_path of this error."
    )

    paused_context: dict[str, Any] | None = None
    """The remote workflow's context: the `inputs` for its own `/run` to resume."""
    paused_path: list[int] | None = None
    """The `resume_path` for that request."""


class RemoteInterruptedError(RemoteError):
    """An earlier request of the run was lost while the remote called a tool: to repeat it may repeat the call."""

    code = "remote_interrupted"
    ends_run = True
    default_suggestion = "Find out what the call did, then run it again."


class RemoteHopsError(RemoteError):
    """The run has passed through the maximum number of containers; perhaps two call each other."""

    code = "remote_hops_exceeded"
    ends_run = True
    default_suggestion = (
        "Remove the circular reference, or raise PODWRIGHT_MAX_HOPS."
    )


class ToolError(RunError):
    """A tool raised an error, which is the cause of this one."""

    code = "tool_failed"
    default_suggestion = "Correct the tool; its error is the cause of this one."


class ToolArgumentsError(ToolError):
    """A model called a tool wrongly, and was corrected as often as `max_tool_retries` allows."""

    code = "tool_arguments_invalid"
    default_suggestion = "Describe the parameters of the tool better, or use a more capable model."
    problems: Sequence[Problem] = ()
    """Everything that is wrong in the arguments, if they were validated, with pointers such as `/amount`."""


class MCPServerError(ToolError):
    """An MCP server did not do what it was asked for.

    Args:
        message: What happened, for the model.
        reason: Why, as a code; see `podwright.mcp.results.Reason`.
        suggestion: What to do about it.
    """

    code = "mcp_server_failed"
    default_suggestion = "Check the MCP server and its URL."

    def __init__(
        self, message: str, reason: str = "", *, suggestion: str | None = None
    ) -> None:
        super().__init__(message, suggestion=suggestion)
        self.reason = reason

    @property
    def is_lasting(self) -> bool:
        """Whether another call in the same answer would fail alike."""
        return self.reason in (
            "unreachable",
            "timeout",
            "refused",
            "unknown_tool",
        )


class ConditionError(RunError):
    """A condition raised an error, or could not compare what it was given."""

    code = "condition_failed"
    default_suggestion = (
        "Correct the condition; its error, if any, is the cause of this one."
    )


class OutputError(RunError):
    """No answer of the model fits the response model, after `max_corrections` corrections or `max_loops` calls."""

    code = "output_invalid"
    default_suggestion = "Simplify the response model, raise max_corrections, or use a more capable model."


class ModelRetry(RunError):
    """A function in `after` asks the model for another answer; one that is a tool tells the model so of its call.

        raise ModelRetry("Name the order by its number.")

    Args:
        message: What the model is told, in a sentence.

    Raises:
        ValueError: The message is empty.
    """

    code = "model_retry"
    default_suggestion = (
        "Raise it in a function in `after` of an agent or a conductor."
    )

    def __init__(self, message: str) -> None:
        if not message.strip():
            raise ValueError("A ModelRetry needs a sentence for the model")
        super().__init__(message)


class Refusal(RunError):
    """A function refuses what it is asked for, and so does the run: nothing has failed, and nothing is tried again.

        raise Refusal("off_topic", "I only answer questions about orders.")

    Args:
        code: A code of its own, which callers read and try steps may name: at most 64 lowercase letters, digits and
            underscores.
        words: What the user is told.

    Raises:
        ValueError: The code has another form, or is one of Podwright, or there are no words.
    """

    code = "refused"
    default_suggestion = "Change the request: it would be refused again."

    def __init__(self, code: str, words: str) -> None:
        is_reserved = code in CODES or code.startswith(_RESERVED)
        if is_reserved and code != type(self).code:
            raise ValueError(f"The code {short_repr(code)} is of Podwright")
        if not words.strip():
            raise ValueError(f"The refusal '{code}' needs words for the user")
        page = help_page(type(self).code)
        super().__init__(words, code=code, help_url=page)

    def __reduce__(self) -> tuple[Any, ...]:
        """How to pickle it, for example for a pool of processes."""
        return type(self), (self.code, self.message), self.__dict__

    def to_dict(self) -> dict[str, Any]:
        """As the base class, with `refusal`: the words, by which a refusal is known."""
        return {**super().to_dict(), "refusal": self.message}


class LoopLimitError(RunError):
    """The model called tools after `max_loops` model calls, or agents handed over more than `max_handoffs` times."""

    code = "loop_limit_reached"
    default_suggestion = (
        "Raise max_loops, or let the instructions say when to stop."
    )


class LoopExhaustedError(RunError):
    """The condition of a loop step with `on_exhausted: "fail"` did not hold after `max_iterations` iterations."""

    code = "loop_exhausted"
    default_suggestion = "Raise max_iterations, or resume with a context in which the condition holds."


class LimitExceededError(RunError):
    """A limit of `RunLimits`, or the maximum of steps, was reached; `limit` names it."""

    code = "limit_exceeded"
    ends_run = True
    default_suggestion = "Raise the limit, or make the task smaller."

    def __init__(
        self,
        message: str,
        *,
        limit: str = "",
        suggestion: str | None = None,
        source: object | None = None,
    ) -> None:
        if suggestion is None and limit in _RUN_LIMITS:
            suggestion = (
                f"Raise the limit '{limit}' where it is set (the service's is "
                f"PODWRIGHT_RUN_{limit.upper()}), or make the task smaller."
            )
        super().__init__(message, suggestion=suggestion)
        self.limit = limit
        self.source = source
        """The budget or the run whose limit it is; None if that is not known, or it is a maximum of the whole run."""

    def to_dict(self) -> dict[str, Any]:
        """As the base class, with `limit`: the field of `RunLimits`, or `steps`."""
        return {**super().to_dict(), "limit": self.limit}


class ApprovalRequired(RunError):
    """A run waits for a person; to approve, run it again with `context` and `resume_path`.

    For another decision, run it with `decide(…)` in place of the context.

    Args:
        question: What the person is asked.
        asked: What tells the question from the others of the run.
    """

    code = "approval_required"
    ends_run = True
    default_suggestion = "To approve, run it again with this error's context, and its resume_path if it has one."

    def __init__(
        self,
        message: str,
        *,
        question: Question | None = None,
        asked: ApprovalId | None = None,
        suggestion: str | None = None,
    ) -> None:
        if suggestion is None and question is not None:
            how = self.default_suggestion
            if "approve" not in question.options:
                how = "Run it again with a decision."
            options = ", ".join(question.options)
            suggestion = f"{how} What may be decided: {options}."
        super().__init__(message, suggestion=suggestion)
        self.question = question
        self.asked = asked
        self.needs_replay = False
        """Whether the run paused inside something without steps, so that only its replay can go on."""

    def decide(
        self,
        decision: str = "approve",
        comment: str = "",
        values: Mapping[str, Any] | None = None,
    ) -> dict[str, Any]:
        """The context with what a person has decided, for the run that goes on.

        Args:
            decision: One of `question.options`.
            comment: Why; `{name.comment}` in later templates, with the name of the approval step.
            values: New values of what `question.edit` names.

        Example:
            `flow.run(pause.decide("reject", "Too long."), resume_path=pause.resume_path)`
        """
        decided: dict[str, Any] = {"decision": decision, "comment": comment}
        if values:
            decided["values"] = dict(values)
        return {**(self.context or {}), DECISION: decided}

    def to_dict(self) -> dict[str, Any]:
        """As the base class, with the `question`: its message, options and what may be edited."""
        data = super().to_dict()
        if self.question is not None:
            data["question"] = to_json_data(self.question.to_dict())
        return data


class ApprovalRejectedError(RunError):
    """A person rejected what a run waited for, and the run has no steps for this case."""

    code = "approval_rejected"
    ends_run = True
    default_suggestion = (
        "Run it again, or give the approval step 'on_reject' steps."
    )


class RunCancelledError(RunError):
    """The caller cancelled the run; it is the `__cause__` of the `asyncio.CancelledError`."""

    code = "run_cancelled"
    ends_run = True
    default_suggestion = "Run it again; a workflow resumes from this error's context and resume_path."


def codes_of(error_class: type[PodwrightError]) -> Iterator[str]:
    """The codes of a class of errors and its subclasses."""
    yield error_class.code
    for subclass in error_class.__subclasses__():
        yield from codes_of(subclass)


CODES = frozenset(codes_of(PodwrightError))
"""The codes of the errors of Podwright."""


def _codes_never_caught(error_class: type[PodwrightError]) -> Iterator[str]:
    # which limits end the run around a step depends on whose they are
    if error_class.ends_run and error_class is not LimitExceededError:
        yield error_class.code
    for subclass in error_class.__subclasses__():
        yield from _codes_never_caught(subclass)


_NEVER_CAUGHT = frozenset(_codes_never_caught(PodwrightError))


def check_caught_code(code: str) -> str:
    """A code that a try step names: one of Podwright's that can be caught, or one that functions raise.

    Raises:
        ValueError: No step can catch it, it has the wrong form, or it is that of Podwright misspelled or cut short.
    """
    if code in _NEVER_CAUGHT:
        raise ValueError(f"No step can catch '{code}'")
    if code in CODES:
        return code
    if not _OWN_CODE.fullmatch(code):
        raise ValueError(
            f"Invalid error code {short_repr(code)}: expected lowercase letters, digits and underscores, "
            "such as 'out_of_stock'"
        )
    catchable = sorted(CODES - _NEVER_CAUGHT)
    meant = [known for known in catchable if f"_{code}_" in f"_{known}_"]
    meant = meant or difflib.get_close_matches(
        code, catchable, n=1, cutoff=_MISSPELLED
    )
    if code.startswith(_RESERVED) and not meant:
        meant = catchable
    if meant:
        raise ValueError(
            f"Unknown error code '{code}'. {did_you_mean(code, meant)}"
        )
    return code
