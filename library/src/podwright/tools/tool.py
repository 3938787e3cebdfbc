"""Functions as tools: the schema that a model sees, the validation of its arguments, and the call."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache, partial
from typing import (
    Annotated,
    Any,
    Literal,
    NotRequired,
    TypeVar,
    cast,
    get_type_hints,
    overload,
)

from pydantic import (
    PydanticUserError,
    TypeAdapter,
    ValidationError,
    ValidatorFunctionWrapHandler,
    WrapValidator,
    with_config,
)
from pydantic.fields import FieldInfo
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaWarningKind
from typing_extensions import TypedDict, Unpack

from podwright.blueprints.schema import TOOL_NAME, ToolOptions
from podwright.blueprints.validation import Blueprint
from podwright.data.json_data import (
    JsonMapping,
    JsonObject,
    as_array,
    as_object,
    copy_json,
    describe_value,
    json_pointer,
    to_json_data,
)
from podwright.data.text import did_you_mean, short_repr
from podwright.errors import (
    Problem,
    ToolArgumentsError,
    ToolDefinitionError,
    ToolError,
    error_from,
)
from podwright.functions.run_context import (
    call_with_context,
    context_parameters,
    is_context,
)
from podwright.messages.messages import ToolSchema
from podwright.schemas.json_schema import object_root
from podwright.schemas.validation_errors import Location, to_problems
from podwright.settings import current_settings
from podwright.tools.arguments import validate_arguments
from podwright.tools.changes import schema_differences, text_differences
from podwright.tools.docstrings import parse_docstring

Function = TypeVar("Function", bound=Callable[..., Any])

_OPTIONS = "__podwright_tool__"
"""The attribute of a function that `@tool(…)` sets."""
_APPROVAL_RULE = "__podwright_approval__"
"""The attribute of a function that `@tool(approval=…)` sets to a function of the arguments."""
_HOW_TO_UPDATE = "Run `podwright sync`, or change the function back."
_JSON_TYPES = (bool, int, float, str, list, dict)
"""Types of JSON data."""
_VARIADIC = (
    inspect.Parameter.VAR_POSITIONAL,
    inspect.Parameter.VAR_KEYWORD,
)
_DEFAULTS: ToolOptions = {
    "idempotent": False,
    "on_error": "report",
    "approval": False,
}
"""What applies to a tool that says nothing else; the other options have their defaults from the environment."""


@dataclass(frozen=True, slots=True)
class Tool:
    """A Python function as a tool; a blocking function runs in a thread."""

    function: Callable[..., Any]
    schema: ToolSchema
    arguments: TypeAdapter[dict[str, Any]]
    """Validates the arguments of a call."""
    options: ToolOptions = field(default_factory=ToolOptions)
    """What its function and its entry in a blueprint say of its calls."""
    approval_rule: Callable[..., Any] | None = None
    """Tells from the arguments of a call whether a person has to approve it; None if each call is approved."""
    is_performed_again: bool = False
    """Whether a new attempt performs its calls again: what they do is recorded by itself, as a nested run or a plan."""

    @property
    def name(self) -> str:
        """The name that the model uses."""
        return self.schema["function"]["name"]

    @property
    def idempotent(self) -> bool:
        """Whether a call may be repeated if its end is unknown, such as after the end of a process."""
        return self.options.get("idempotent", False)

    @property
    def may_need_approval(self) -> bool:
        """Whether a person has to approve its calls, or some of them."""
        return self.options.get("approval", False)

    async def needs_approval(self, arguments: dict[str, Any]) -> bool:
        """Whether a person has to approve a call.

        Raises:
            ToolArgumentsError: The arguments do not fit the parameters.
            ToolError: The rule of the function raised an error.
        """
        if not self.may_need_approval:
            return False
        values = self._validate(arguments)
        if self.approval_rule is None:
            return True
        names = inspect.signature(self.approval_rule).parameters
        named = {
            name: value
            for name, value in self._with_defaults(values).items()
            if name in names
        }
        try:
            return bool(
                await call_with_context(self.approval_rule, kwargs=named)
            )
        except Exception as error:
            subject = f"The approval rule of tool '{self.name}'"
            raise error_from(ToolError, subject, error) from error

    def _with_defaults(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """All arguments of the function, without contexts."""
        call = inspect.signature(self.function).bind_partial(**values)
        call.apply_defaults()
        for parameter in context_parameters(self.function):
            call.arguments.pop(parameter.name, None)
        return call.arguments

    def final_arguments(self, arguments: JsonObject) -> JsonObject:
        """The arguments with which the function is called, as JSON data: validated, and with its defaults.

        Raises:
            ToolArgumentsError: The arguments do not fit the parameters.
        """
        values = self._with_defaults(self._validate(arguments))
        return {name: _to_shown_data(value) for name, value in values.items()}

    def problems_of_changes(
        self, arguments: JsonObject, changes: JsonMapping
    ) -> Iterator[Problem]:
        """Say which changes of arguments the function would not be called with, with pointers such as `/amount`.

        Args:
            arguments: The arguments of the call, as the model wrote them.
            changes: Other values, by name.
        """
        changed = {**arguments, **changes}
        try:
            values = validate_arguments(self.arguments, changed, self.name)
        except ValidationError as error:
            yield from self._problems_of(error, changed)
            return
        for name, value in changes.items():
            final = values[name]
            # another type, such as a date, is what the text stands for
            is_changed = type(final) in _JSON_TYPES and final != value
            if is_changed:
                yield Problem(
                    json_pointer(name),
                    f"The tool '{self.name}' changes '{name}': it would be {describe_value(final)}.",
                    "Send the value that the tool is to be called with.",
                )

    @property
    def reports_errors(self) -> bool:
        """Whether the model is told when it raises an error; if not, the run fails."""
        if self.is_performed_again:
            return False
        return self.options.get("on_error") != "fail"

    @property
    def timeout(self) -> float | None:
        """Seconds that a call may take; None without a limit.

        Raises:
            ConfigurationError: A variable of the library is invalid.
        """
        if self.is_performed_again:
            return None
        if "timeout" in self.options:
            return self.options["timeout"]
        return current_settings().tool_timeout

    @property
    def max_result_tokens(self) -> int | None:
        """Estimated tokens after which a result is cut; None without a limit.

        Raises:
            ConfigurationError: A variable of the library is invalid.
        """
        if self.is_performed_again:
            return None
        if "max_result_tokens" in self.options:
            return self.options["max_result_tokens"]
        return current_settings().max_result_tokens

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the function by its name, because a validator cannot be pickled."""
        return _restore, (self.function, self.schema, self.options)

    def renamed(self, name: str) -> Tool:
        """The same tool under another name."""
        if name == self.name:
            return self
        schema = copy_json(self.schema)
        schema["function"]["name"] = name
        return replace(self, schema=schema)

    def entry(self) -> Blueprint:
        """The tool's entry in a blueprint (spec §2.1)."""
        return {"name": self.name, "schema": self.schema, **self.options}

    async def call(self, arguments: dict[str, Any]) -> Any:
        """Validate the arguments and call the function; those whose meaning is certain are repaired first.

        After a time-out an async function is cancelled; a blocking one keeps its thread until it returns.

        Raises:
            ToolArgumentsError: The arguments do not fit the parameters.
            ToolError: The call took longer than `timeout`.
            Exception: What the function raises.
        """
        values = self._validate(arguments)
        seconds = self.timeout
        limit = asyncio.timeout(seconds)
        try:
            async with limit:
                return await call_with_context(
                    self.function, kwargs=values, seconds=seconds
                )
        except TimeoutError as error:
            if not limit.expired():
                raise
            raise ToolError(
                f"Tool '{self.name}' did not answer within {seconds:g} s; what it did is unknown.",
                suggestion="Make the tool faster, or raise its timeout.",
            ) from error

    def _validate(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """The values of the parameters."""
        try:
            return validate_arguments(self.arguments, arguments, self.name)
        except ValidationError as error:
            problems = self._problems_of(error, arguments)
            reasons = "; ".join(map(str, problems))
            raise ToolArgumentsError(
                f"Invalid arguments for tool '{self.name}': {reasons}"
            ) from error

    def _problems_of(
        self, error: ValidationError, arguments: JsonObject
    ) -> list[Problem]:
        details = error.errors(include_url=False)
        return to_problems(details, arguments, self._allowed_keys)

    def _allowed_keys(self, location: Location) -> Iterable[str]:
        if location:
            return ()
        parameters = self.schema["function"]["parameters"]
        return as_object(parameters.get("properties"))


def _restore(
    function: Callable[..., Any], schema: ToolSchema, options: ToolOptions
) -> Tool:
    return replace(to_tool(function), schema=schema, options=options)


def _to_shown_data(value: object) -> Any:
    """A value as JSON data for a person; a description, if it has no JSON form."""
    try:
        return to_json_data(value)
    except (ValueError, RecursionError):
        return short_repr(value)


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
        ToolDefinitionError: An option is unknown or has a wrong value.
    """
    mark_of_approval: Any = approval
    if callable(approval):
        mark_of_approval = True
    given = _checked_options({**options, "approval": mark_of_approval})

    def mark(function: Function) -> Function:
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


def to_tool(function: Callable[..., Any]) -> Tool:
    """The tool of a function.

    The name is the function's, the description its docstring, the parameters its type hints; what the docstring says of
    parameters describes them.

    Raises:
        ToolDefinitionError: The function cannot be a tool.
    """
    try:
        return _cached_tool(function)
    except TypeError:  # not hashable
        return _make_tool(function)


class _SchemaWithoutTitles(GenerateJsonSchema):
    """Titles only repeat names, and models are billed per token."""

    def field_title_should_be_set(self, schema: Any) -> bool:
        return False

    def emit_warning(self, kind: JsonSchemaWarningKind, detail: str) -> None:
        """Ignore defaults without a JSON form: they are left out of the schema."""


def _make_tool(function: Callable[..., Any]) -> Tool:
    if not callable(function):
        raise ToolDefinitionError(
            f"A tool must be a function, not {function!r}."
        )
    inner = function
    while isinstance(inner, partial):
        inner = cast("Callable[..., Any]", inner.func)
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
        parameters = arguments.json_schema(
            schema_generator=_SchemaWithoutTitles
        )
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
    options: ToolOptions = getattr(inner, _OPTIONS, ToolOptions())
    rule = getattr(inner, _APPROVAL_RULE, None)
    if rule is not None:
        _check_rule(name, rule, fields)
    return Tool(
        function, schema, arguments, options=options, approval_rule=rule
    )


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


_cached_tool = lru_cache(maxsize=1024)(_make_tool)


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
    target = inner
    if not inspect.isroutine(inner):
        target = type(inner).__call__
    hints = get_type_hints(
        getattr(target, "__func__", target), include_extras=True
    )
    parameters = inspect.signature(function).parameters.values()
    return [
        (parameter, hints.get(parameter.name, Any)) for parameter in parameters
    ]


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


def tools_by_name(functions: Iterable[Callable[..., Any]]) -> dict[str, Tool]:
    """The tools of functions, by name.

    Raises:
        ToolDefinitionError: A function cannot be a tool, or two have the same name.
    """
    if not isinstance(functions, Iterable):  # pyright: ignore[reportUnnecessaryIsInstance] - it comes from a caller
        raise ToolDefinitionError(
            f"Tools must be a list of functions, not {functions!r}."
        )
    tools: dict[str, Tool] = {}
    for function in functions:
        tool = function
        if not isinstance(tool, Tool):
            tool = to_tool(function)
        if tools.get(tool.name, tool).function is not tool.function:
            raise ToolDefinitionError(
                f"Two tools are called '{tool.name}'.",
                suggestion="Give each its own name.",
            )
        tools[tool.name] = tool
    return tools


def attach(
    entries: object, tools: Mapping[str, Tool], at: str
) -> tuple[dict[str, Tool], list[Problem]]:
    """Match the tool entries of a blueprint with functions by name (spec §2.1); malformed entries are skipped.

    Args:
        entries: The `tools` of the blueprint.
        tools: The functions that the caller supplies, as tools.
        at: The JSON pointer of the entries.

    Returns:
        The tools by name, each with the schema and the options of its entry, and the problems: functions that are
        missing, or whose parameters no longer fit the stored schema.
    """
    attached: dict[str, Tool] = {}
    found: list[Problem] = []
    for number, entry in enumerate(as_array(entries)):
        match entry:
            case {
                "name": str(name),
                "schema": {
                    "function": {"name": str(), "parameters": dict()}
                } as stored,
            } if TOOL_NAME.fullmatch(name):
                schema = cast("ToolSchema", stored)
                tool, problems = _attach_entry(
                    name, schema, tools, at=f"{at}/{number}"
                )
                found += problems
                if tool is not None:
                    attached[name] = _with_options(tool, as_object(entry))
            case _:
                pass
    return attached, found


def _attach_entry(
    name: str, schema: ToolSchema, tools: Mapping[str, Tool], at: str
) -> tuple[Tool | None, list[Problem]]:
    """The tool of one entry, with the entry's schema, and its problems; see `attach`."""
    parameters_at = f"{at}/schema/function/parameters"
    parameters = object_parameters(schema["function"]["parameters"])
    if parameters is None:
        detail = (
            f"The parameters of tool '{name}' are not the schema of an object."
        )
        hint = "Its root must have 'type': 'object' and 'properties'."
        return None, [Problem(parameters_at, detail, hint)]
    tool = tools.get(name)
    if tool is None:
        return None, [_missing_function_problem(name, tools, at)]
    actual = tool.schema["function"]["parameters"]
    problems: list[Problem] = []
    for difference in schema_differences(parameters, actual):
        pointer = parameters_at + difference.pointer
        detail = f"Tool '{name}': {difference.detail}."
        problems.append(Problem(pointer, detail, _HOW_TO_UPDATE))
    shown: ToolSchema = {
        "type": "function",
        "function": {**schema["function"], "parameters": parameters},
    }
    if shown != tool.schema:
        tool = replace(tool, schema=copy_json(shown))
    return tool, problems


def outdated_texts(
    blueprint: JsonMapping, tools: Mapping[str, Tool]
) -> list[Problem]:
    """Where the tools of a blueprint are not described as by their functions, which takes effect with the next export.

    Args:
        blueprint: A valid blueprint of any kind.
        tools: The functions of its tools and of those of its members, by name.
    """
    problems: list[Problem] = []
    for at, entries in tool_lists(blueprint):
        for number, entry in enumerate(entries):
            tool = tools.get(entry["name"])
            if tool is None:
                continue
            name = tool.name
            tool = to_tool(tool.function)
            stored = as_object(as_object(entry.get("schema")).get("function"))
            pointer = f"{at}/{number}/schema/function"
            for difference in text_differences(stored, tool.schema["function"]):
                detail = f"Tool '{name}': {difference.detail}."
                place = pointer + difference.pointer
                problems.append(Problem(place, detail, _HOW_TO_UPDATE))
    return problems


def tool_lists(blueprint: JsonMapping) -> Iterator[tuple[str, list[Any]]]:
    """The lists of tools in a blueprint and its members, with their JSON pointers."""
    members = {"": blueprint}
    for key in ("skills", "steps"):
        for number, member in enumerate(as_array(blueprint.get(key))):
            members[json_pointer(key, number)] = as_object(member)
    for pointer, member in members.items():
        entries = member.get("tools")
        if isinstance(entries, list):
            yield f"{pointer}/tools", cast("list[Any]", entries)


def _with_options(tool: Tool, entry: Mapping[str, Any]) -> Tool:
    """The tool with the options of an entry, and with those of its function that the entry leaves open."""
    own = {
        name: entry[name]
        for name in ToolOptions.__annotations__
        if name in entry
    }
    if not own:
        return tool
    options = cast("ToolOptions", {**tool.options, **own})
    return replace(tool, options=options)


def _missing_function_problem(
    name: str, tools: Iterable[str], at: str
) -> Problem:
    hint = did_you_mean(name, tools)
    if not hint.startswith("Did you"):
        hint = "Define it in tools.py, or pass it in tools=[…]."
    return Problem(at, f"Missing function for the tool '{name}'.", hint)


def object_parameters(parameters: Mapping[str, Any]) -> dict[str, Any] | None:
    """The stored parameters of a tool as providers take them: a root without `$ref`, and with `type: object`.

    Returns:
        None if they are not the schema of an object.
    """
    if "type" in parameters or "$ref" in parameters:
        return object_root(parameters)
    return object_root({"type": "object", "properties": {}, **parameters})
