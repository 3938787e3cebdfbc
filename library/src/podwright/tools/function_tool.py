"""Python functions as tools."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import Any

from pydantic import TypeAdapter, ValidationError

from podwright.blueprints.schema import ToolOptions
from podwright.data.json_data import JsonMapping, JsonObject, as_object
from podwright.data.text import did_you_mean
from podwright.errors import ToolDefinitionError
from podwright.functions.run_context import (
    call_with_context,
    context_parameters,
)
from podwright.messages.messages import ToolSchema
from podwright.schemas.validation_errors import Location, to_problems
from podwright.tools.arguments import validate_arguments
from podwright.tools.decorator import approval_rule_of, options_of
from podwright.tools.function_schema import (
    function_schema,
    result_schema,
    without_partial,
)
from podwright.tools.tool import Tool

_VARIADIC = (
    inspect.Parameter.VAR_POSITIONAL,
    inspect.Parameter.VAR_KEYWORD,
)


class FunctionTool(Tool):
    """A Python function as a tool; a blocking function runs in a thread.

    Args:
        function: The function, which is called with the arguments by name.
        schema: See `Tool`.
        arguments: Validates the arguments of a call.
        options: See `Tool`.
        approval_rule: Tells from the arguments of a call whether a person has to approve it; None if each call is
            approved.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        schema: ToolSchema,
        arguments: TypeAdapter[dict[str, Any]],
        *,
        options: ToolOptions | None = None,
        approval_rule: Callable[..., Any] | None = None,
    ) -> None:
        super().__init__(schema, options)
        self._function = function
        self._arguments = arguments
        self._approval_rule = approval_rule

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the function by its name, because a validator cannot be pickled."""
        return _restore, (self._function, self.schema, self.options)

    @property
    def definition(self) -> object:
        """The function."""
        return self._function

    @property
    def result_schema(self) -> JsonMapping | None:
        """The JSON Schema of what the function returns by its annotation; None if it has none."""
        return result_schema(self._function)

    @property
    def may_report_usage(self) -> bool:
        """Whether the function is given the context of the run, by which it may report model calls."""
        return bool(context_parameters(self._function))

    def validate(self, arguments: JsonObject) -> JsonObject:
        """Return the values of the parameters; arguments whose meaning is certain are repaired.

        Raises:
            ToolArgumentsError: The arguments do not fit the parameters.
        """
        try:
            return validate_arguments(self._arguments, arguments, self.name)
        except ValidationError as error:
            details = error.errors(include_url=False)
            problems = to_problems(details, arguments, self._allowed_keys)
            raise self.arguments_error(problems) from error

    def _allowed_keys(self, location: Location) -> Iterable[str]:
        if location:
            return ()
        parameters = self.schema["function"]["parameters"]
        return as_object(parameters.get("properties"))

    def with_defaults(self, values: JsonObject) -> JsonObject:
        """Return all arguments of the function, without contexts."""
        call = inspect.signature(self._function).bind_partial(**values)
        call.apply_defaults()
        for parameter in context_parameters(self._function):
            call.arguments.pop(parameter.name, None)
        return call.arguments

    async def apply_approval_rule(self, values: JsonObject) -> bool:
        """Return what the rule of the function says of a call; true if it has none.

        Raises:
            Exception: The rule raised it.
        """
        if self._approval_rule is None:
            return True
        names = inspect.signature(self._approval_rule).parameters
        named = {
            name: value
            for name, value in self.with_defaults(values).items()
            if name in names
        }
        return bool(await call_with_context(self._approval_rule, kwargs=named))

    async def perform(self, values: JsonObject, seconds: float | None) -> Any:
        """Call the function.

        Raises:
            Exception: What the function raises.
        """
        return await call_with_context(
            self._function, kwargs=values, seconds=seconds
        )


def _restore(
    function: Callable[..., Any], schema: ToolSchema, options: ToolOptions
) -> Tool:
    return to_tool(function).with_schema(schema).with_options(options)


def to_tool(function: Callable[..., Any]) -> Tool:
    """Return the tool of a function; a tool as it is.

    The name is the function's, the description its docstring, the parameters its type hints; what the docstring says of
    parameters describes them.

    Raises:
        ToolDefinitionError: The function cannot be a tool.
    """
    if isinstance(function, Tool):
        return function
    try:
        return _cached_tool(function)
    except TypeError:  # not hashable
        return _make_tool(function)


def _make_tool(function: Callable[..., Any]) -> FunctionTool:
    schema, arguments, names = function_schema(function)
    inner = without_partial(function)
    rule = approval_rule_of(inner)
    if rule is not None:
        _check_rule(schema["function"]["name"], rule, names)
    return FunctionTool(
        function,
        schema,
        arguments,
        options=options_of(inner),
        approval_rule=rule,
    )


_cached_tool = lru_cache(maxsize=1024)(_make_tool)


def _check_rule(
    name: str, rule: Callable[..., Any], arguments: Iterable[str]
) -> None:
    """Check that an approval rule needs nothing but arguments of its tool, and contexts.

    Raises:
        ToolDefinitionError: It needs something else.
    """
    contexts = [parameter.name for parameter in context_parameters(rule)]
    known = {*arguments, *contexts}
    for parameter in inspect.signature(rule).parameters.values():
        is_needed = parameter.default is parameter.empty
        if parameter.kind in _VARIADIC or not is_needed:
            continue
        if parameter.name not in known:
            hint = did_you_mean(parameter.name, arguments)
            raise ToolDefinitionError(
                f"The approval rule of tool '{name}' needs '{parameter.name}', which the function does not have.",
                suggestion=hint
                or "Name its parameters as the function does; one annotated RunContext is given the run's context.",
            )
