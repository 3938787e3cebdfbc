"""The decorator `@tool`: says more about a function that is a tool than its signature does."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Literal, TypeVar, cast, overload

from pydantic import TypeAdapter, ValidationError
from typing_extensions import TypedDict, Unpack

from podwright.blueprints.schema import ToolOptions
from podwright.errors import ToolDefinitionError
from podwright.schemas.validation_errors import Location, to_problems
from podwright.tools.tool import Tool

Function = TypeVar("Function", bound=Callable[..., Any])

_OPTIONS = "__podwright_tool__"
"""The attribute of a function that `@tool(…)` sets."""
_APPROVAL_RULE = "__podwright_approval__"
"""The attribute of a function that `@tool(approval=…)` sets to a function of the arguments."""
_DEFAULTS: ToolOptions = {
    "idempotent": False,
    "on_error": "report",
    "approval": False,
}
"""What applies to a tool that says nothing else; the other options have their defaults from the environment."""


class _OtherOptions(TypedDict, total=False):
    """The options of `@tool` besides `approval`; see `ToolOptions`."""

    idempotent: bool
    on_error: Literal["report", "fail"]
    timeout: float
    max_result_tokens: int


_OPTION_TYPES: TypeAdapter[ToolOptions] = TypeAdapter(ToolOptions)


@overload
def tool(function: Function) -> Function: ...
@overload
def tool(
    *,
    approval: bool | Callable[..., Any] = ...,
    **options: Unpack[_OtherOptions],
) -> Callable[[Function], Function]: ...
def tool(
    function: Function | None = None,
    *,
    approval: bool | Callable[..., Any] = False,
    **options: Unpack[_OtherOptions],
) -> Function | Callable[[Function], Function]:
    """Say more about a function that is a tool than its signature does: `@tool(timeout=30)`.

    The tool's entry in a blueprint has the same keys, which take precedence.

    Args:
        function: The function, which is returned.
        approval: Whether a person has to approve each call, or a function of the arguments that tells:
            `approval=lambda amount: amount > 100`. The run pauses before the call; see `ApprovalRequired`.
        **options: `idempotent`: whether a call may be repeated if its end is unknown: a background run whose process
            was killed during the call repeats it, and otherwise waits for a person. `on_error`: "report" tells the
            model when the function raises an error, the default; "fail" fails the run. `timeout`: seconds that a call
            may take. `max_result_tokens`: estimated tokens after which a result is cut.

    Raises:
        ToolDefinitionError: An option is unknown or has a wrong value, or this is not a function.
    """
    mark_of_approval: Any = approval
    if callable(approval):
        mark_of_approval = True
    given = _checked_options({**options, "approval": mark_of_approval})

    def mark(function: Function) -> Function:
        if isinstance(function, Tool):
            raise ToolDefinitionError(
                f"@tool is for functions, and '{function.name}' is a tool already.",
                suggestion="Use its method `with_options`.",
            )
        function.__dict__[_OPTIONS] = given
        if callable(approval):
            function.__dict__[_APPROVAL_RULE] = approval
        return function

    if function is None:
        return mark
    return mark(function)


def _checked_options(options: ToolOptions) -> ToolOptions:
    """The options that are not the defaults."""
    try:
        _OPTION_TYPES.validate_python(options)
    except ValidationError as error:
        problems = to_problems(
            error.errors(include_url=False), options, _known_options
        )
        reasons = "; ".join(str(problem) for problem in problems)
        raise ToolDefinitionError(
            f"Invalid option of @tool: {reasons}",
            suggestion="Correct the option.",
        ) from None
    changed = {
        name: value
        for name, value in options.items()
        if value != _DEFAULTS.get(name)
    }
    return cast("ToolOptions", changed)


def _known_options(_: Location) -> Iterable[str]:
    return ToolOptions.__annotations__


def options_of(function: Callable[..., Any]) -> ToolOptions:
    """Return the options that the decorator gave to a function."""
    return getattr(function, _OPTIONS, ToolOptions())


def approval_rule_of(function: Callable[..., Any]) -> Callable[..., Any] | None:
    """Return the approval rule that the decorator gave to a function; None if each call is approved, or none."""
    return getattr(function, _APPROVAL_RULE, None)
