"""What a caller says of a run, and what a function is told of the run that calls it."""

from __future__ import annotations

import contextlib
import inspect
import logging
import threading
from collections.abc import Callable, Generator, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import lru_cache, partial
from typing import Any, cast, get_args, get_type_hints

from podwright.callables import call_function
from podwright.errors import ConfigurationError
from podwright.usage import Usage

MAX_METADATA = 16
"""Most entries of a run's metadata, as in OpenAI's interface; so are the lengths of their names and values."""
MAX_METADATA_NAME = 64
MAX_METADATA_VALUE = 512

_logger = logging.getLogger("podwright.functions")


@dataclass(frozen=True, slots=True)
class RunAttributes:
    """What a caller says of a run; see `run_attributes`."""

    user: str = ""
    """For whom it is."""
    session: str = ""
    """The session or conversation that it is a part of."""
    metadata: Mapping[str, str] = field(default_factory=dict[str, str])
    """What else its functions are to know."""


NO_ATTRIBUTES = RunAttributes()
_attributes: ContextVar[RunAttributes] = ContextVar(
    "podwright_run_attributes", default=NO_ATTRIBUTES
)


def current_attributes() -> RunAttributes:
    """What the caller says of the runs that begin here."""
    return _attributes.get()


@contextlib.contextmanager
def run_attributes(
    *,
    user: str = "",
    session: str = "",
    metadata: Mapping[str, str] | None = None,
) -> Generator[RunAttributes]:
    """Say of the runs that begin within this context for whom they are, and what their functions are to know.

        with podwright.run_attributes(user="ann", metadata={"tenant": "acme"}):
            agent.run("Where is my order?")

    Functions read it from their `RunContext`, remote components are told, and a service shows it on spans and in the
    log.

    Args:
        user: For whom the runs are.
        session: The session or conversation that they are a part of.
        metadata: At most 16 texts by name; names have 64 characters at most, texts 512.

    Raises:
        ConfigurationError: The metadata is larger, or not texts by name.
    """
    problem = metadata_problem(metadata or {})
    if problem:
        raise ConfigurationError(f"Invalid metadata: {problem}.")
    attributes = RunAttributes(user, session, dict(metadata or {}))
    token = _attributes.set(attributes)
    try:
        yield attributes
    finally:
        _attributes.reset(token)


def metadata_problem(metadata: Mapping[str, Any]) -> str:
    """What is wrong with the metadata of a run; empty if nothing is."""
    if len(metadata) > MAX_METADATA:
        return f"it has {len(metadata)} entries, and {MAX_METADATA} at most are allowed"
    for name, value in metadata.items():
        if len(name) > MAX_METADATA_NAME:
            return f"the name '{name[:20]}…' is longer than {MAX_METADATA_NAME} characters"
        if not isinstance(value, str):
            return f"the value of '{name}' is not a text"
        if len(value) > MAX_METADATA_VALUE:
            return f"the value of '{name}' is longer than {MAX_METADATA_VALUE} characters"
    return ""


def _never() -> bool:
    return False


def _ignore(model: str, usage: Usage, seconds: float) -> None:
    """Report nothing: there is no run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunContext:
    """The run that a function is called in.

    A parameter with this annotation is filled by the run, and is no part of the schema that a model sees. Tools,
    functions of steps, conditions and rules of approval may have one:

        def search(query: str, context: RunContext) -> str:
            context.log.info("searching for %s", context.user)
            ...

    In a test of the function alone, make one: `search("tea", RunContext(user="ann"))`.
    """

    run_id: str = ""
    """32 hexadecimal digits: the id of the run, as events, spans and log lines have it."""
    component: str = ""
    """Name of the component that runs."""
    attempt: int = 1
    """Number of the attempt of a background run; 1 for every other run."""
    user: str = ""
    """For whom the run is, as the caller says; empty if it does not."""
    session: str = ""
    """The session or conversation that the run is a part of, as the caller says; empty if it does not."""
    metadata: Mapping[str, str] = field(default_factory=dict[str, str])
    """What else the caller says."""
    deadline: datetime | None = None
    """When the tightest time limit of the run is over, in UTC; None without one."""
    inputs: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """The named inputs of a `FunctionAgent`'s run; empty for other functions."""
    messages: Sequence[Mapping[str, Any]] = ()
    """The earlier turns of the conversation that a `FunctionAgent` is given; empty for other functions."""
    call_key: str | None = None
    """The key of this call, the same in each attempt; see `podwright.call_key`."""
    log: logging.LoggerAdapter[logging.Logger] = field(
        default_factory=lambda: logging.LoggerAdapter(_logger, {})
    )
    """A logger whose lines have the id and the component of the run."""
    _is_cancelled: Callable[[], bool] = field(default=_never, repr=False)
    _report_usage: Callable[[str, Usage, float], None] = field(
        default=_ignore, repr=False
    )

    @property
    def time_left(self) -> float | None:
        """Seconds until the deadline, 0 after it; None without one."""
        if self.deadline is None:
            return None
        left = self.deadline - datetime.now(UTC)
        return max(0.0, left.total_seconds())

    @property
    def is_cancelled(self) -> bool:
        """Whether nobody waits for the function any more: the run was cancelled, or the call took too long.

        Async functions are cancelled by asyncio, and need not ask. A blocking function that takes long should, because
        a thread cannot be stopped.
        """
        return self._is_cancelled()

    def report_usage(
        self,
        model: str,
        *,
        input_tokens: int = 0,
        output_tokens: int = 0,
        cached_input_tokens: int = 0,
        reasoning_tokens: int = 0,
        cost: float | None = None,
        seconds: float = 0.0,
    ) -> None:
        """Count a model call that the function made by itself: in the usage of the run, its limits, metrics and spans.

        Args:
            model: The model as `<provider>/<model_name>`, by which the price is looked up.
            input_tokens: Tokens sent to the model, cached ones included.
            output_tokens: Tokens that it produced, reasoning included.
            cached_input_tokens: Part of the input: read from the provider's cache.
            reasoning_tokens: Part of the output: spent on reasoning.
            cost: What the call cost in USD, if that is known; by default the price list says.
            seconds: How long it took.

        Raises:
            LimitExceededError: The run has used more than it may.
        """
        source = ""
        if cost is not None:
            source = "provider"
        usage = Usage(
            input_tokens=input_tokens,
            output_tokens=output_tokens,
            cached_input_tokens=cached_input_tokens,
            reasoning_tokens=reasoning_tokens,
            cost=cost,
            cost_source=source,
        )
        self._report_usage(model, usage, seconds)


ContextSource = Callable[[Callable[[], bool]], RunContext]
"""Makes a context; it is given what tells whether the call is over for which the context is made."""

context_source: ContextVar[ContextSource | None] = ContextVar(
    "podwright_context_source", default=None
)
"""Makes the contexts of the run that the calling code is part of; None outside of runs."""


async def call_with_context(
    function: Callable[..., Any], /, *args: Any, **kwargs: Any
) -> Any:
    """Call a caller's function as `call_function` does, with the context in the parameter that is annotated so."""
    parameter = context_parameter(function)
    if parameter is None:
        return await call_function(function, *args, **kwargs)
    is_over = threading.Event()
    kwargs[parameter] = _make_context(is_over.is_set)
    try:
        return await call_function(function, *args, **kwargs)
    finally:
        # a function in a thread may go on
        is_over.set()


def _make_context(is_over: Callable[[], bool]) -> RunContext:
    make = context_source.get()
    if make is None:
        return RunContext(_is_cancelled=is_over)
    return make(is_over)


def context_parameter(function: Callable[..., Any]) -> str | None:
    """The name of the parameter that is annotated `RunContext`; None if there is none."""
    try:
        return _cached_parameter(function)
    except TypeError:  # not hashable
        return _find_parameter(function)


def is_context(hint: Any) -> bool:
    """Whether a parameter with this type hint is filled with the context."""
    return hint is RunContext or RunContext in get_args(hint)


def _find_parameter(function: Callable[..., Any]) -> str | None:
    target = function
    while isinstance(target, partial):
        target = cast("Callable[..., Any]", target.func)
    if not inspect.isroutine(target):
        target = type(target).__call__
    try:
        hints = get_type_hints(target)
    except (NameError, TypeError, AttributeError):
        # a tool with such hints is refused elsewhere
        return None
    for name, hint in hints.items():
        if name != "return" and is_context(hint):
            return name
    return None


_cached_parameter = lru_cache(maxsize=1024)(_find_parameter)
