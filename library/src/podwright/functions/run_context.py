"""What a caller says of a run, and what a function is told of the run that calls it."""

from __future__ import annotations

import ast
import contextlib
import inspect
import logging
import math
import sys
import threading
from collections.abc import (
    Callable,
    Generator,
    Mapping,
    MutableMapping,
    Sequence,
)
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from functools import lru_cache, partial
from types import MappingProxyType, SimpleNamespace, UnionType
from typing import (
    Annotated,
    Any,
    Final,
    NamedTuple,
    Union,
    cast,
    get_args,
    get_origin,
    get_type_hints,
)

from podwright.data.json_data import to_exact_json_data, to_json_bytes
from podwright.data.json_forms import to_utf8_text
from podwright.data.text import short_repr, truncate
from podwright.errors import ConfigurationError
from podwright.functions.callables import call_function
from podwright.location import current
from podwright.messages.usage import Usage

MAX_IDENTITY = 200
"""Characters of the longest user or session: a longer one is refused, because one that is cut may be another's."""
MAX_METADATA = 16
"""Most entries of a run's metadata, as in OpenAI's interface; so are the lengths of their names and values."""
MAX_METADATA_NAME = 64
MAX_METADATA_VALUE = 512

MAX_REPORT = 1_000
"""Characters of the text of a report; a longer one is cut."""
MAX_REPORT_DATA = 10_000
"""Bytes of its data as JSON."""

NO_ARGUMENTS: Final[Mapping[str, Any]] = MappingProxyType({})

FUNCTION_LOGGER: Final = "podwright.functions"
"""Name of the logger of functions that runs call."""
_logger = logging.getLogger(FUNCTION_LOGGER)
_POSITIONAL = (
    inspect.Parameter.POSITIONAL_ONLY,
    inspect.Parameter.POSITIONAL_OR_KEYWORD,
)
_VARIADIC = (
    inspect.Parameter.VAR_POSITIONAL,
    inspect.Parameter.VAR_KEYWORD,
)
_WRAPPERS = ("Annotated", "Optional", "Union")
"""Type hints with another one in their brackets of which they are a kind."""


@dataclass(frozen=True, slots=True)
class RunAttributes:
    """What a caller says of a run; see `run_attributes`."""

    user: str = ""
    """For whom it is."""
    session: str = ""
    """The session or conversation that it is a part of."""
    metadata: Mapping[str, str] = field(default_factory=dict[str, str])
    """What else its functions are to know."""

    def check(self) -> None:
        """Check the sizes.

        Raises:
            ConfigurationError: A text is too long, or the metadata are too many, or not texts by name.
        """
        problem = metadata_problem(self.metadata)
        for name, value in (("user", self.user), ("session", self.session)):
            if len(value) > MAX_IDENTITY:
                problem = f"the {name} {short_repr(value, 40)} has more than {MAX_IDENTITY} characters"
        if problem:
            raise ConfigurationError(
                f"Invalid attributes of a run: {problem}.",
                suggestion=f"Give at most {MAX_METADATA} short texts in metadata; a function can look up the rest.",
            )

    def to_dict(self) -> dict[str, Any]:
        """What is known, as the keys of a request and the arguments of `run_attributes`."""
        data = {
            "user": self.user,
            "session": self.session,
            "metadata": dict(self.metadata),
        }
        return {name: value for name, value in data.items() if value}


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
    user: str | None = None,
    session: str | None = None,
    metadata: Mapping[str, str] | None = None,
) -> Generator[RunAttributes]:
    """Say of the runs that begin within this context for whom they are, and what their functions are to know.

        with podwright.run_attributes(user="ann", metadata={"tenant": "acme"}):
            agent.run("Where is my order?")

    Functions read it from their `RunContext`, remote components are told, and a service shows it on spans and in the
    log. What is not given stays as a context around this one says; entries of the metadata are added to its entries.

    Args:
        user: For whom the runs are; at most 200 characters.
        session: The session or conversation that they are a part of; at most 200 characters.
        metadata: At most 16 texts by name; names have 64 characters at most, texts 512.

    Raises:
        ConfigurationError: A text is longer, or the metadata are more, or not texts by name.
    """
    outer = _attributes.get()
    merged = {**outer.metadata, **(metadata or {})}
    if user is None:
        user = outer.user
    if session is None:
        session = outer.session
    attributes = RunAttributes(user, session, merged)
    attributes.check()
    with use_attributes(attributes):
        yield attributes


@contextlib.contextmanager
def use_attributes(attributes: RunAttributes) -> Generator[None]:
    """Within this context, exactly this is said of the runs that begin."""
    token = _attributes.set(attributes)
    try:
        yield
    finally:
        _attributes.reset(token)


def metadata_problem(metadata: Mapping[Any, Any]) -> str:
    """What is wrong with the metadata of a run; empty if nothing is."""
    if len(metadata) > MAX_METADATA:
        return f"the metadata has {len(metadata)} entries, and {MAX_METADATA} at most are allowed"
    for name, value in metadata.items():
        problem = _entry_problem(name, value)
        if problem:
            return problem
    return ""


def _entry_problem(name: object, value: object) -> str:
    shown = short_repr(name, 40)
    if not isinstance(name, str):
        return f"the name {shown} in the metadata is not a text"
    if len(name) > MAX_METADATA_NAME:
        return f"the name {shown} in the metadata has more than {MAX_METADATA_NAME} characters"
    if not isinstance(value, str):
        return f"the value of {shown} in the metadata is not a text"
    if len(value) > MAX_METADATA_VALUE:
        return f"the value of {shown} in the metadata has more than {MAX_METADATA_VALUE} characters"
    return ""


def _never() -> bool:
    return False


def _ignore(model: str, usage: Usage, seconds: float) -> None:
    """Report nothing: there is no run."""


def _tell_nobody(text: str, data: Any) -> None:
    """Report nothing: there is no run."""


class RunLogger(logging.LoggerAdapter[logging.Logger]):
    """A logger whose lines have further fields, beside those of each call."""

    def process(
        self, msg: Any, kwargs: MutableMapping[str, Any]
    ) -> tuple[Any, MutableMapping[str, Any]]:
        """Add the fields; of itself the standard library would drop those of the call."""
        fields: dict[str, object] = dict(self.extra or {})
        fields |= kwargs.get("extra") or {}
        return msg, {**kwargs, "extra": fields}


def run_logger(**fields: str) -> RunLogger:
    """The logger of a function, with the fields of its run."""
    return RunLogger(_logger, fields)


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
    """When the call has to end, in UTC: by the tightest time limit of the run, or by the `timeout` of the tool; None
    without either."""
    inputs: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """The named inputs of a `FunctionAgent`'s run, or all values that functions in `before` and `after` may take; empty
    for other functions."""
    messages: Sequence[Mapping[str, Any]] = ()
    """The earlier turns of the conversation, for a `FunctionAgent` and functions in `before`; for those in `after`, all
    messages before the answer. Empty for other functions."""
    state: dict[str, Any] = field(default_factory=dict[str, Any])
    """JSON data that all functions of the outermost run share, nested runs included: what a function puts in or takes
    out is recorded at the end of the call, and is there when the run goes on after a stop."""
    call_key: str | None = None
    """The key of this call, the same in each attempt; see `podwright.call_key`."""
    log: logging.LoggerAdapter[logging.Logger] = field(
        default_factory=run_logger
    )
    """A logger whose lines have the id and the component of the run, as `run_id` and `component`."""
    _is_cancelled: Callable[[], bool] = field(default=_never, repr=False)
    _report_usage: Callable[[str, Usage, float], None] = field(
        default=_ignore, repr=False
    )
    _report: Callable[[str, Any], None] = field(
        default=_tell_nobody, repr=False
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

    def report(self, text: str, data: Any = None) -> None:
        """Tell those who follow the run how far the function has come: as an event `progress` of the run.

        Args:
            text: What to show; it is cut after 1 000 characters.
            data: The same for programs: JSON data of at most 10 000 bytes.

        Raises:
            ConfigurationError: The text is none, or the data is no JSON data, or more.
        """
        shown = truncate(to_utf8_text(_checked_text(text)), MAX_REPORT)
        self._report(shown, _report_data(shown, data))

    def report_usage(
        self,
        model: str,
        *,
        input_tokens: int | None = 0,
        output_tokens: int | None = 0,
        cached_input_tokens: int | None = 0,
        cache_write_tokens: int | None = 0,
        reasoning_tokens: int | None = 0,
        cost: float | None = None,
        seconds: float = 0.0,
    ) -> None:
        """Count a model call that the function made by itself: in the usage of the run, its limits, metrics and spans.

        None for a number of tokens is none of them. A call without tokens and without a cost is one that the provider
        has not counted: its cost is unknown.

        Args:
            model: The model as `<provider>/<model_name>`, by which the price is looked up.
            input_tokens: Tokens sent to the model, cached ones included.
            output_tokens: Tokens that it produced, reasoning included.
            cached_input_tokens: Part of the input: read from the provider's cache.
            cache_write_tokens: Part of the input: written to the provider's cache.
            reasoning_tokens: Part of the output: spent on reasoning.
            cost: What the call cost in USD, if that is known; by default the price list says.
            seconds: How long it took; metrics have no duration of a call of 0 seconds.

        Raises:
            ConfigurationError: An argument is not what it says: a number is negative or infinite, or a text.
            LimitExceededError: The run has used more than it may, or its cost is limited and the price is unknown. The
                run fails with it even if the function goes on.
        """
        _check_report(model, cost, seconds)
        source = ""
        if cost is not None:
            source = "provider"
        usage = Usage(
            input_tokens=_count_of("input_tokens", input_tokens),
            output_tokens=_count_of("output_tokens", output_tokens),
            cached_input_tokens=_count_of(
                "cached_input_tokens", cached_input_tokens
            ),
            cache_write_tokens=_count_of(
                "cache_write_tokens", cache_write_tokens
            ),
            reasoning_tokens=_count_of("reasoning_tokens", reasoning_tokens),
            cost=cost,
            cost_source=source,
        )
        self._report_usage(model, usage, seconds)


def _checked_text(text: object) -> str:
    """The text of a report.

    Raises:
        ConfigurationError: It is none.
    """
    if isinstance(text, str):
        return text
    raise ConfigurationError(
        f"report takes a text, not {short_repr(text)}.",
        suggestion="Give data as its second argument.",
    )


def _report_data(text: str, data: object) -> Any:
    """The data of a report as JSON data.

    Raises:
        ConfigurationError: It has no JSON form, or a long one.
    """
    subject = f"The data of the report '{truncate(text, 60)}'"
    try:
        exact = to_exact_json_data(data)
    except (TypeError, ValueError, RecursionError) as error:
        raise ConfigurationError(
            f"{subject} is not JSON data: {error}."
        ) from error
    size = len(to_json_bytes(exact))
    if size > MAX_REPORT_DATA:
        raise ConfigurationError(
            f"{subject} has {size} bytes, and {MAX_REPORT_DATA} at most are allowed."
        )
    return exact


def _check_report(model: object, cost: object, seconds: object) -> None:
    """Check the arguments of a report, which frameworks may hand through from a provider.

    Raises:
        ConfigurationError: One is not valid.
    """
    is_name = isinstance(model, str) and model.isprintable()
    if not is_name or not model:
        raise _report_error("model", "a name", model)
    for name, amount in (("cost", cost), ("seconds", seconds)):
        if amount is None and name == "cost":
            continue
        is_number = isinstance(amount, int | float)
        if not is_number or not math.isfinite(amount) or amount < 0:
            raise _report_error(name, "a number of at least 0", amount)


def _count_of(name: str, value: object) -> int:
    """A number of tokens; None is none.

    Raises:
        ConfigurationError: It is not a number of tokens.
    """
    if value is None:
        return 0
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise _report_error(name, "an integer of at least 0", value)
    return value


def _report_error(
    name: str, expected: str, value: object
) -> ConfigurationError:
    return ConfigurationError(
        f"report_usage takes {expected} as '{name}', not {short_repr(value)}.",
        suggestion="Convert what the framework gives before you report it.",
    )


async def call_with_context(
    function: Callable[..., Any],
    args: Sequence[Any] = (),
    kwargs: Mapping[str, Any] = NO_ARGUMENTS,
    *,
    seconds: float | None = None,
) -> Any:
    """Call a caller's function as `call_function` does, with the context in the parameters that are annotated so.

    Args:
        function: The function.
        args: Its positional arguments, the context left out.
        kwargs: Its other arguments.
        seconds: How long the call may take before the caller cancels it; None if it does not.
    """
    parameters = context_parameters(function)
    if not parameters:
        return await call_function(function, *args, **kwargs)
    is_over = threading.Event()
    context = await _make_context(is_over.is_set, seconds)
    positional, named = with_context(parameters, context, args, kwargs)
    try:
        return await call_function(function, *positional, **named)
    finally:
        # a function in a thread may go on
        is_over.set()


async def _make_context(
    is_over: Callable[[], bool], seconds: float | None
) -> RunContext:
    run = current()
    if run is None:
        context = RunContext(_is_cancelled=is_over)
    else:
        context = await run.make_context(is_over)
    if seconds is None:
        return context
    deadlines = [moment_after(seconds), context.deadline]
    known = [deadline for deadline in deadlines if deadline is not None]
    return replace(context, deadline=min(known, default=None))


def moment_after(seconds: float) -> datetime | None:
    """When a time is over that begins now, in UTC; None if that is after the year 9999, or never."""
    try:
        return datetime.now(UTC) + timedelta(seconds=seconds)
    except OverflowError:
        return None


class ContextParameter(NamedTuple):
    """A parameter that is filled with the context."""

    name: str
    position: int
    """How many positional parameters are before it; no call has as many if it is passed by name only."""


def context_parameters(
    function: Callable[..., Any], untyped_name: str = ""
) -> tuple[ContextParameter, ...]:
    """The parameters of a function that are annotated `RunContext`, in their order.

    Args:
        function: The function.
        untyped_name: The name of a parameter that is filled as well if it has no annotation, or `Any`.
    """
    if inspect.ismethod(function):
        # the cache would keep the object of the method
        with_self = context_parameters(function.__func__, untyped_name)
        return tuple(
            parameter._replace(position=parameter.position - 1)
            for parameter in with_self
        )
    try:
        return _cached_parameters(function, untyped_name)
    except TypeError:  # not hashable
        return _find_parameters(function, untyped_name)


def with_context(
    parameters: Sequence[ContextParameter],
    context: object,
    args: Sequence[Any] = (),
    kwargs: Mapping[str, Any] = NO_ARGUMENTS,
) -> tuple[list[Any], dict[str, Any]]:
    """The positional and the named arguments of a call, with the context in its parameters."""
    positional = list(args)
    named = dict(kwargs)
    for parameter in parameters:
        named.pop(parameter.name, None)
        if parameter.position <= len(positional):
            positional.insert(parameter.position, context)
        else:
            named[parameter.name] = context
    return positional, named


def is_context(hint: Any) -> bool:
    """Whether a parameter with this type hint is filled with the context."""
    if get_origin(hint) in (Annotated, Union, UnionType):
        return any(map(is_context, get_args(hint)))
    return hint is RunContext


def _find_parameters(
    function: Callable[..., Any], untyped_name: str
) -> tuple[ContextParameter, ...]:
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):  # some functions written in C
        return ()
    namespace = _namespace(function)
    found: list[ContextParameter] = []
    position = 0
    for parameter in parameters:
        if parameter.kind not in _POSITIONAL:
            position = sys.maxsize
        hint = _evaluated(parameter.annotation, namespace)
        is_filled = _names_context(hint)
        if parameter.name == untyped_name and _is_untyped(hint):
            is_filled = True
        if parameter.kind not in _VARIADIC and is_filled:
            found.append(ContextParameter(parameter.name, position))
        position += 1
    return tuple(found)


def _namespace(function: Callable[..., Any]) -> dict[str, Any]:
    """The names that the type hints of a function may use."""
    target = function
    while isinstance(target, partial):
        target = cast("Callable[..., Any]", target.func)
    if not inspect.isroutine(target):
        target = type(target).__call__
    return getattr(inspect.unwrap(target), "__globals__", {})


def _evaluated(hint: Any, namespace: dict[str, Any]) -> Any:
    """A type hint without text, or as it is if what it names is not known, such as an import for type checkers only."""
    holder = SimpleNamespace(__annotations__={"hint": hint})
    try:
        hints = get_type_hints(holder, namespace, include_extras=True)
    except (NameError, TypeError, AttributeError, SyntaxError):
        return hint
    return hints["hint"]


def _is_untyped(hint: Any) -> bool:
    return hint is inspect.Parameter.empty or hint is Any


def _names_context(hint: Any) -> bool:
    """As `is_context`, also for a type hint that cannot be evaluated."""
    if not isinstance(hint, str):
        return is_context(hint)
    try:
        expression = ast.parse(hint.strip(), mode="eval").body
    except SyntaxError:
        return False
    return _is_context_in_text(expression)


def _is_context_in_text(hint: ast.expr) -> bool:
    """As `is_context`, for the text of a type hint."""
    match hint:
        case ast.Name(name) | ast.Attribute(attr=name):
            return name == RunContext.__name__
        case ast.Constant(str(text)):
            return _names_context(text)
        case ast.BinOp(left, ast.BitOr(), right):
            return _is_context_in_text(left) or _is_context_in_text(right)
        case ast.Subscript(
            ast.Name(name) | ast.Attribute(attr=name), arguments
        ) if name in _WRAPPERS:
            return _is_context_in_text(arguments)
        case ast.Tuple(arguments):
            return any(map(_is_context_in_text, arguments))
        case _:
            return False


_cached_parameters = lru_cache(maxsize=1024)(_find_parameters)
