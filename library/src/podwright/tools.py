"""Callables as tools: the schema that a model sees, the check of what it sends, and the call itself."""

from __future__ import annotations

import asyncio
import inspect
import json
import threading
import weakref
from collections.abc import Callable, Iterable, Mapping
from contextvars import copy_context
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol, cast, get_type_hints

from pydantic import BaseModel, ConfigDict, PydanticUserError, ValidationError, create_model
from pydantic.fields import FieldInfo
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaWarningKind

from podwright.blueprints import Blueprint
from podwright.errors import Problem, ToolArgumentsError, ToolDefinitionError
from podwright.json_data import as_array, as_object, copy_json
from podwright.messages import ToolSchema
from podwright.text import describe_error, did_you_mean, truncate

if TYPE_CHECKING:
    from podwright.run import Run


class Tool(Protocol):
    """What a model may call: a schema to show, and the call."""

    @property
    def name(self) -> str:
        """The name that the model uses."""
        ...

    @property
    def schema(self) -> ToolSchema:
        """What the model is shown."""
        ...

    async def call(self, run: Run, arguments: dict[str, Any]) -> Any:
        """Do it; `ToolArgumentsError` says that the arguments do not fit."""
        ...


class FunctionTool:
    """A Python callable as a tool; one that blocks runs in a thread of its own."""

    __slots__ = ("__weakref__", "arguments", "function", "name", "schema")

    def __init__(self, function: Callable[..., Any], schema: ToolSchema, arguments: type[BaseModel]) -> None:
        self.function = function
        self.schema: ToolSchema = schema
        self.name: str = schema["function"]["name"]
        self.arguments = arguments

    def entry(self) -> Blueprint:
        """The tool's entry in a blueprint (spec §2.1)."""
        return {"name": self.name, "schema": self.schema}

    async def call(self, run: Run, arguments: dict[str, Any]) -> Any:
        """Check the arguments and call the function.

        Raises:
            ToolArgumentsError: The arguments do not fit the function's parameters.
        """
        try:
            checked = self.arguments.model_validate(arguments)
        except ValidationError as error:
            reasons = "; ".join(
                f"{'.'.join(str(part) for part in one['loc'])}: {one['msg'].lower()}"
                for one in error.errors(include_url=False, include_input=False)
            )
            raise ToolArgumentsError(f"Tool '{self.name}' was called with wrong arguments: {reasons}.") from error
        given = {_bare_name(field): getattr(checked, field) for field in checked.model_fields_set}
        return await called(self.function, **given)


async def called(function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
    """Call a caller's function, one that blocks in a thread of its own.

    Raises:
        Exception: What it raises; what is no `Exception`, such as that of a sys.exit(), is the cause of a
            `RuntimeError`, for it must end the call only.
        asyncio.CancelledError: The task that calls it is being cancelled.
    """
    if not is_async(function):
        return await in_thread(function, *args, **kwargs)
    task = cast("asyncio.Task[Any]", asyncio.current_task())
    try:
        return await function(*args, **kwargs)
    except Exception:
        raise
    except BaseException as error:
        closed = isinstance(error, GeneratorExit) and asyncio.current_task() is not task
        if closed or (isinstance(error, asyncio.CancelledError) and task.cancelling()):
            raise
        raise RuntimeError(f"the function raised {describe_error(error)}") from error


def is_async(function: Callable[..., Any]) -> bool:
    """Whether calling it gives something to await; an object with an async `__call__` counts too."""
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(
        getattr(function, "__call__", None)  # noqa: B004 - not whether it is callable, but what its call is
    )


async def in_thread(function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
    """Call a blocking function in a thread of its own, with this task's context variables.

    A pool of threads would let a few blocked calls stall all others, and would be joined at exit; a thread
    that outlives a cancelled call ends by itself.
    """
    loop = asyncio.get_running_loop()
    future: asyncio.Future[Any] = loop.create_future()
    context = copy_context()

    def settle(value: Any, error: BaseException | None) -> None:
        if future.cancelled():
            return
        if error is None:
            future.set_result(value)
        elif isinstance(error, Exception) and not isinstance(error, StopIteration):
            future.set_exception(error)
        else:  # a future cannot hold a StopIteration, and a tool's sys.exit() must not end the process
            stopped = RuntimeError(f"the function raised {describe_error(error)}")
            stopped.__cause__ = error
            future.set_exception(stopped)

    def work() -> None:
        try:
            outcome: tuple[Any, BaseException | None] = (context.run(function, *args, **kwargs), None)
        except BaseException as error:  # noqa: BLE001 - whatever it is, the awaiting task gets it
            outcome = (None, error)
        if not loop.is_closed():
            loop.call_soon_threadsafe(settle, *outcome)

    threading.Thread(target=work, daemon=True, name="podwright-tool").start()
    return await future


_Parts = tuple[ToolSchema, type[BaseModel]]
_made: weakref.WeakKeyDictionary[Callable[..., Any], _Parts] = weakref.WeakKeyDictionary()
"""What was made from each callable. It must not hold the callable, which would then live for ever."""


def tool_of(function: Callable[..., Any]) -> FunctionTool:
    """The tool made from a callable; its schema is made once, then remembered as long as the callable lives.

    The name is the function's, the description its docstring, the parameters its type hints; Google-style
    `Args:` describe them.

    Raises:
        ToolDefinitionError: The callable cannot be a tool.
    """
    try:
        known = _made.get(function)
    except TypeError:  # not hashable, or no weak references: made anew each time
        return FunctionTool(function, *_make(function))
    if known is None:
        known = _make(function)
        if not inspect.ismethod(function):  # a bound method is a new object at each look
            _made[function] = known
    return FunctionTool(function, *known)


class _Schema(GenerateJsonSchema):
    def field_title_should_be_set(self, schema: Any) -> bool:
        """Titles only repeat the names, and a model pays for each token."""
        return False

    def emit_warning(self, kind: JsonSchemaWarningKind, detail: str) -> None:
        """A default that is no JSON is left out of the schema, and that is all."""


_FIELD = "field_"
"""Begins the name of each field of an arguments model, so that a parameter may be called as a model's own method."""


def _bare_name(field: str) -> str:
    return field.removeprefix(_FIELD)


def _make(function: Callable[..., Any]) -> _Parts:
    if not callable(function):
        raise ToolDefinitionError(f"A tool is a callable, not {function!r}.")
    inner = function
    while isinstance(inner, partial):
        inner = cast("Callable[..., Any]", inner.func)
    name = getattr(function, "__name__", None) or getattr(inner, "__name__", None) or type(inner).__name__
    if not name.isidentifier():
        raise ToolDefinitionError(f"A tool needs a name; {function!r} has none.", suggestion="Use a `def` function.")
    target = inner if inspect.isroutine(inner) else type(inner).__call__
    try:
        signature = inspect.signature(function)
        hints = get_type_hints(getattr(target, "__func__", target), include_extras=True)
    except (TypeError, ValueError, NameError) as error:
        raise ToolDefinitionError(f"The parameters of tool '{name}' cannot be read: {error}.") from error
    description, described = _docstring(inner)
    fields: dict[str, Any] = {}
    for parameter in signature.parameters.values():
        if parameter.kind not in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY):
            raise ToolDefinitionError(f"Parameter '{parameter}' of tool '{name}' cannot be given by name.")
        if parameter.name.startswith("_"):
            raise ToolDefinitionError(f"Parameter '{parameter.name}' of tool '{name}' begins with an underscore.")
        default = ... if parameter.default is parameter.empty else parameter.default
        hint = hints.get(parameter.name, Any)
        info = (
            FieldInfo.from_annotated_attribute(hint, default) if default is not ... else FieldInfo.from_annotation(hint)
        )
        info.description = info.description or described.get(parameter.name)
        info.alias = info.validation_alias = info.serialization_alias = parameter.name
        fields[_FIELD + parameter.name] = (hint, info)
    try:
        arguments = create_model(name, __config__=ConfigDict(extra="forbid", protected_namespaces=()), **fields)
        parameters = arguments.model_json_schema(schema_generator=_Schema)
    except (PydanticUserError, TypeError, NameError) as error:
        reason = str(error).partition("\n")[0]
        raise ToolDefinitionError(f"The parameters of tool '{name}' have no JSON Schema: {reason}") from error
    parameters.pop("title", None)
    parameters.setdefault("properties", {})
    schema: ToolSchema = {"type": "function", "function": {"name": name, "parameters": parameters}}
    if description:
        schema["function"]["description"] = description
    return schema, arguments


def _docstring(function: Callable[..., Any]) -> tuple[str, dict[str, str]]:
    text = inspect.getdoc(function)
    if not text:
        return "", {}
    import docstring_parser  # a fifth of this library's import time, and needed once a tool

    parsed = docstring_parser.parse(text, style=docstring_parser.DocstringStyle.GOOGLE)
    return (parsed.description or "").strip(), {one.arg_name: one.description or "" for one in parsed.params}


def tools_by_name(functions: Iterable[Callable[..., Any]]) -> dict[str, FunctionTool]:
    """The tools made from these callables, by name.

    Raises:
        ToolDefinitionError: One cannot be a tool, or two have one name.
    """
    if not isinstance(functions, Iterable):  # pyright: ignore[reportUnnecessaryIsInstance] - it comes from a caller
        raise ToolDefinitionError(f"Tools are a list of callables, not {functions!r}.", suggestion="Use tools=[…].")
    found: dict[str, FunctionTool] = {}
    for function in functions:
        tool = function if isinstance(function, FunctionTool) else tool_of(function)
        if found.get(tool.name, tool).function is not tool.function:
            raise ToolDefinitionError(f"Two tools are called '{tool.name}'.", suggestion="Give each its own name.")
        found[tool.name] = tool
    return found


def attach(
    entries: object, supplied: Mapping[str, FunctionTool], at: str
) -> tuple[dict[str, FunctionTool], list[Problem]]:
    """Match a blueprint's tool entries with callables by name (spec §2.1); what is no entry is passed over.

    Returns:
        The tools by name, each with the schema of its entry, and what does not match: a missing callable,
        or one whose signature no longer fits the stored schema.
    """
    tools: dict[str, FunctionTool] = {}
    found: list[Problem] = []
    for number, entry in enumerate(as_array(entries)):
        match entry:
            case {"name": str(name), "schema": {"function": {"name": str(), "parameters": dict()}} as found_schema}:
                schema = cast("ToolSchema", found_schema)
            case _:
                continue
        tool = supplied.get(name)
        if tool is None:
            hint = did_you_mean(name, supplied)
            if not hint.startswith("Did you"):  # there may be others that nobody asked for, so a list says too little
                hint = f"{hint} Give it in tools=[{name}].".lstrip()
            found.append(Problem(f"{at}/{number}", f"no callable was given for the tool '{name}'.", hint))
            continue
        for difference in drift(schema["function"]["parameters"], tool.schema["function"]["parameters"]):
            hint = "Export the blueprint anew, or change the function back."
            found.append(Problem(f"{at}/{number}/schema/function/parameters", f"tool '{name}': {difference}.", hint))
        same = schema == tool.schema
        tools[name] = tool if same else FunctionTool(tool.function, copy_json(schema), tool.arguments)
    return tools, found


def drift(stored: Mapping[str, Any], actual: Mapping[str, Any]) -> list[str]:
    """In which ways a callable no longer takes every call that the stored schema allows; texts may differ."""
    found: list[str] = []
    had, has = _properties(stored), _properties(actual)
    for name in had:
        if name not in has:
            found.append(f"the blueprint has the parameter '{name}', the function has not")
        elif had[name] != has[name]:
            found.append(f"the parameter '{name}' was {_compact(had[name])}, and is {_compact(has[name])}")
    required_before = as_array(stored.get("required"))
    for name in actual.get("required", ()):
        if name not in had:
            found.append(f"the function requires '{name}', which the blueprint does not have")
        elif name not in required_before:
            found.append(f"the function requires '{name}', which is optional in the blueprint")
    return found


def _properties(schema: Mapping[str, Any]) -> dict[str, Any]:
    definitions = as_object(schema.get("$defs"))
    properties = as_object(schema.get("properties"))
    left = [_MOST_PARTS]
    return {name: _bare(one, definitions, (), left) for name, one in properties.items()}


_MOST_PARTS = 10_000
"""How much of a schema is written out: definitions that each name the next one twice double it at each step."""
_DEEPEST = 100
"""How deep; a chain of definitions may have thousands of links."""


def _bare(
    schema: Any,
    definitions: Mapping[str, Any],
    inside: tuple[str, ...],
    left: list[int],
    texts: bool = True,
    depth: int = 0,
) -> Any:
    """A schema without what only informs, and with its references written out."""
    left[0] -= 1
    if left[0] < 0 or depth > _DEEPEST:
        return "…"
    if isinstance(schema, list):
        return [_bare(item, definitions, inside, left, depth=depth + 1) for item in cast("list[Any]", schema)]
    if not isinstance(schema, dict):
        return schema
    known = cast("dict[str, Any]", schema)
    reference = str(known.get("$ref", "")).removeprefix("#/$defs/")
    if reference in definitions and reference not in inside:
        return _bare(definitions[reference], definitions, (*inside, reference), left, depth=depth + 1)
    skip = ("description", "title", "examples", "default") if texts else ()
    return {
        key: _bare(item, definitions, inside, left, texts=key != "properties", depth=depth + 1)
        for key, item in known.items()
        if key not in skip
    }


def _compact(schema: Any) -> str:
    text = json.dumps(schema, separators=(",", ":"))
    return truncate(text, 80)
