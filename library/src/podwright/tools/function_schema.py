"""The schema of a function: its name, its docstring and its type hints, and the type that validates its arguments."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from functools import partial
from typing import Annotated, Any, NamedTuple, NotRequired, cast, get_type_hints

from pydantic import (
    PydanticUserError,
    TypeAdapter,
    ValidatorFunctionWrapHandler,
    WrapValidator,
    with_config,
)
from pydantic.fields import FieldInfo
from typing_extensions import TypedDict

from podwright.data.json_data import JsonMapping
from podwright.data.text import short_repr
from podwright.data.tool_names import TOOL_NAME
from podwright.errors import ToolDefinitionError
from podwright.functions.run_context import is_context
from podwright.messages.messages import ToolSchema
from podwright.schemas.response_schema import SchemaWithoutTitles
from podwright.tools.docstrings import parse_docstring


class FunctionSchema(NamedTuple):
    """The schema of a function as a tool."""

    schema: ToolSchema
    arguments: TypeAdapter[dict[str, Any]]
    """Validates the arguments of a call."""
    names: Iterable[str]
    """The names of the arguments."""


def function_schema(function: Callable[..., Any]) -> FunctionSchema:
    """Return the schema of a function.

    Raises:
        ToolDefinitionError: The function cannot be a tool.
    """
    if not callable(function):
        raise ToolDefinitionError(
            f"A tool must be a function, not {function!r}."
        )
    inner = without_partial(function)
    name = _tool_name(function, inner)
    _check_has_object(name, function)
    try:
        docstring = parse_docstring(
            inspect.getdoc(inner) or "", inspect.signature(inner).parameters
        )
        fields: dict[str, Any] = {}
        for parameter, hint in _parameters(function, inner):
            if is_context(hint):
                continue
            text = docstring.parameters.get(parameter.name)
            fields[parameter.name] = _field(
                name, parameter, hint, description=text
            )
        typed_dict: Any = TypedDict  # type checkers expect literal fields
        shape = with_config(extra="forbid")(typed_dict(name, fields))
        arguments: TypeAdapter[Any] = TypeAdapter(shape)
        parameters = arguments.json_schema(schema_generator=SchemaWithoutTitles)
    except (PydanticUserError, TypeError, NameError, ValueError) as error:
        reason = str(error).partition("\n")[0]
        suggestion: str | None = None
        if isinstance(error, NameError):
            suggestion = "Import what its type hints name at run time, not only for type checkers."
        raise ToolDefinitionError(
            f"The parameters of tool '{name}' have no JSON Schema: {reason}",
            suggestion=suggestion,
        ) from error
    parameters.pop("title", None)
    schema: ToolSchema = {
        "type": "function",
        "function": {"name": name, "parameters": parameters},
    }
    if docstring.description:
        schema["function"]["description"] = docstring.description
    return FunctionSchema(schema, arguments, fields)


def result_schema(function: Callable[..., Any]) -> JsonMapping | None:
    """Return the JSON Schema of what a function returns by its annotation, as JSON data; None if that has none."""
    hints = _hints(without_partial(function))
    if "return" not in hints:
        return None
    try:
        return TypeAdapter(hints["return"]).json_schema(
            mode="serialization", schema_generator=SchemaWithoutTitles
        )
    # a type without a schema, such as a data frame, is no mistake
    except (PydanticUserError, TypeError, ValueError):
        return None


def without_partial(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return the function inside a partial; one that is not a partial as it is."""
    while isinstance(function, partial):
        function = cast("Callable[..., Any]", function.func)
    return function


def _check_has_object(name: str, function: Callable[..., Any]) -> None:
    """Check that a method has its object: of a class alone, it would have a parameter `self` for the model to fill.

    Raises:
        ToolDefinitionError: It has none.
    """
    if not inspect.isfunction(function):
        return
    owner = function.__qualname__.rpartition(".")[0]
    first = next(iter(inspect.signature(function).parameters), "")
    if owner and not owner.endswith("<locals>") and first == "self":
        owner = owner.rpartition(".")[2]
        raise ToolDefinitionError(
            f"The tool '{name}' is a method of '{owner}' without an object.",
            suggestion=f"Give the method of an object, such as {owner}().{function.__name__}.",
        )


def _tool_name(function: Callable[..., Any], inner: Callable[..., Any]) -> str:
    """The name of a function, or of the one inside a partial."""
    name = (
        getattr(function, "__name__", None)
        or getattr(inner, "__name__", None)
        or type(inner).__name__
    )
    if not name.isidentifier():
        raise ToolDefinitionError(
            f"A tool needs a name; {function!r} has none.",
            suggestion="Use a `def` function.",
        )
    if not TOOL_NAME.fullmatch(name):
        raise ToolDefinitionError(
            f"The name of tool {short_repr(name, 120)} is one that providers refuse.",
            suggestion="Rename the function: letters a to z and A to Z, digits and '_', at most 64 characters.",
        )
    return name


def _parameters(
    function: Callable[..., Any], inner: Callable[..., Any]
) -> list[tuple[inspect.Parameter, Any]]:
    hints = _hints(inner)
    parameters = inspect.signature(function).parameters.values()
    return [
        (parameter, hints.get(parameter.name, Any)) for parameter in parameters
    ]


def _hints(function: Callable[..., Any]) -> dict[str, Any]:
    """The type hints of a function, or of an object that is called like one."""
    target = function
    if not inspect.isroutine(function):
        target = type(function).__call__
    return get_type_hints(
        getattr(target, "__func__", target), include_extras=True
    )


def _field(
    tool: str, parameter: inspect.Parameter, hint: Any, description: str | None
) -> Any:
    if parameter.kind not in (
        parameter.POSITIONAL_OR_KEYWORD,
        parameter.KEYWORD_ONLY,
    ):
        raise ToolDefinitionError(
            f"Parameter '{parameter}' of tool '{tool}' cannot be passed by name."
        )
    if parameter.name.startswith("_"):
        raise ToolDefinitionError(
            f"Parameter '{parameter.name}' of tool '{tool}' begins with an underscore."
        )
    if parameter.default is parameter.empty:
        info = FieldInfo.from_annotation(hint)
    else:
        info = FieldInfo.from_annotated_attribute(hint, parameter.default)
    info.description = info.description or description
    # the function takes its own names only
    info.alias = None
    info.validation_alias = None
    info.serialization_alias = None
    if not hasattr(info.annotation, "__module__"):  # Annotated needs it
        raise ToolDefinitionError(
            f"The type hint of parameter '{parameter.name}' of tool '{tool}' is not a type: {info.annotation!r}."
        )
    field = Annotated[info.annotation, info]
    if parameter.default is None:  # as in `word: str = None`
        field = Annotated[field, WrapValidator(_check_unless_none)]
    if info.is_required():
        return field
    return NotRequired[field]


def _check_unless_none(value: Any, check: ValidatorFunctionWrapHandler) -> Any:
    if value is None:
        return None
    return check(value)
