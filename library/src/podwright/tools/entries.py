"""The tools of a blueprint: its entries matched with the tools that a caller supplies, and compared with their code."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, cast

from podwright.blueprints.members import parts_of
from podwright.blueprints.named_parts import HOOKS, hook_names
from podwright.blueprints.schema import ToolOptions
from podwright.data.json_data import (
    JsonMapping,
    JsonObject,
    as_array,
    as_object,
    copy_json,
)
from podwright.data.text import did_you_mean
from podwright.data.tool_names import TOOL_NAME
from podwright.errors import Problem, ToolDefinitionError
from podwright.messages.messages import ToolSchema
from podwright.schemas.json_schema import object_root
from podwright.tools.changes import schema_differences, text_differences
from podwright.tools.function_tool import to_tool
from podwright.tools.tool import Tool

_HOW_TO_UPDATE = "Run `podwright sync`, or change the tool back."


def tool_functions(
    functions: Iterable[Callable[..., Any]],
) -> tuple[Callable[..., Any], ...]:
    """Return the functions that a caller supplies for tools.

    Raises:
        ToolDefinitionError: They are no list, but for example a mapping by name.
    """
    if isinstance(functions, Mapping) or not isinstance(functions, Iterable):  # pyright: ignore[reportUnnecessaryIsInstance] - it comes from a caller
        raise ToolDefinitionError(
            f"Tools must be a list of functions, not {functions!r}."
        )
    return tuple(functions)


def tools_by_name(functions: Iterable[Callable[..., Any]]) -> dict[str, Tool]:
    """The tools of functions, by name.

    Raises:
        ToolDefinitionError: A function cannot be a tool, or two that differ, if only in their options, have one name.
    """
    tools: dict[str, Tool] = {}
    for function in tool_functions(functions):
        tool = to_tool(function)
        known = tools.get(tool.name, tool)
        is_same = known.is_same_as(tool) and known.options == tool.options
        if not is_same:
            raise ToolDefinitionError(
                f"Two tools are called '{tool.name}'.",
                suggestion="Give each its own name.",
            )
        tools[tool.name] = tool
    return tools


HookFunctions = Callable[..., Any] | Sequence[Callable[..., Any]]
"""Functions that a component calls in their order, or one of them."""


class NamedHooks(NamedTuple):
    """The functions before and after the work of a component."""

    names: JsonObject
    """Their names, as the keys of its blueprint."""
    functions: dict[str, Tool]


def to_hooks(
    before: HookFunctions, after: HookFunctions, tools: Iterable[Tool] = ()
) -> NamedHooks:
    """Name the functions before and after the work of a component, as a caller gives them.

    Args:
        before: Those before the work.
        after: Those after the work.
        tools: The tools of the component.

    Raises:
        ToolDefinitionError: One cannot be called with JSON data, or two that differ, or one and a tool, have one name.
    """
    names: JsonObject = {}
    functions: list[Callable[..., Any]] = []
    for key, given in zip(HOOKS, (before, after), strict=True):
        if callable(given):
            names[key] = to_tool(given).name
            functions.append(given)
        elif given:
            names[key] = [to_tool(function).name for function in given]
            functions += given
    tools_by_name([*tools, *functions])
    return NamedHooks(names, tools_by_name(functions))


def functions_by_name(
    functions: Mapping[str, Callable[..., Any]],
) -> Mapping[str, Tool]:
    """Return the functions that a caller gives as tools, by the names that blueprints use.

    Raises:
        ToolDefinitionError: One cannot be called with JSON data.
    """
    return {
        name: to_tool(function).renamed(name)
        for name, function in functions.items()
    }


def attach_hooks(
    part: JsonMapping,
    functions: Mapping[str, Tool],
    tools: Mapping[str, Tool],
    at: str = "",
) -> tuple[dict[str, Tool], list[Problem]]:
    """Match the functions before and after the work of a component with those that a caller supplies.

    Args:
        part: The blueprint of the component; malformed names are skipped.
        functions: The functions, by name.
        tools: The tools of the component, by name.
        at: The JSON pointer of the part.

    Returns:
        The functions by name, and the problems: those that are missing, need a person's approval, or have the name of a
        tool that is another function.
    """
    attached: dict[str, Tool] = {}
    problems: list[Problem] = []
    for pointer, name in hook_names(part):
        function = functions.get(name)
        if function is None:
            problem = missing_function(name, functions, at + pointer)
            problems.append(problem)
            continue
        attached[name] = function
        if function.may_need_approval:
            problem = Problem(
                at + pointer,
                detail=f"The calls of the function '{name}' need approval, for which nobody is asked here.",
                suggestion="Let the model call it as a tool.",
            )
            problems.append(problem)
        if not tools.get(name, function).is_same_as(function):
            problem = Problem(
                at + pointer,
                detail=f"A tool of the component is called '{name}', too.",
                suggestion="Rename one of them.",
            )
            problems.append(problem)
    return attached, problems


def missing_function(
    name: str, functions: Iterable[str], pointer: str
) -> Problem:
    """Return the problem of a function that a blueprint names and nobody supplies.

    Args:
        name: Its name.
        functions: The names of those that are supplied.
        pointer: Where it is named.
    """
    hint = did_you_mean(
        name,
        functions,
        otherwise=f"Define it in functions.py, or pass it in functions={{'{name}': …}}.",
    )
    return Problem(pointer, f"Missing function '{name}'.", hint)


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
        hint = "Its root must have 'type': 'object' and 'properties', and no 'anyOf', 'oneOf' or 'allOf'."
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
        tool = tool.with_schema(copy_json(shown))
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
            own = tool.own_schema["function"]
            stored = as_object(as_object(entry.get("schema")).get("function"))
            pointer = f"{at}/{number}/schema/function"
            for difference in text_differences(stored, own):
                detail = f"Tool '{tool.name}': {difference.detail}."
                place = pointer + difference.pointer
                problems.append(Problem(place, detail, _HOW_TO_UPDATE))
    return problems


def tool_lists(blueprint: JsonMapping) -> Iterator[tuple[str, list[Any]]]:
    """The lists of tools in a blueprint and its members, with their JSON pointers."""
    for pointer, member in parts_of(blueprint).items():
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
    return tool.with_options(options)


def _missing_function_problem(
    name: str, tools: Iterable[str], at: str
) -> Problem:
    hint = did_you_mean(
        name, tools, otherwise="Define it in tools.py, or pass it in tools=[…]."
    )
    return Problem(at, f"Missing function for the tool '{name}'.", hint)


def object_parameters(parameters: Mapping[str, Any]) -> dict[str, Any] | None:
    """The stored parameters of a tool as providers take them: a root without `$ref`, and with `type: object`.

    Returns:
        None if they are not the schema of an object.
    """
    if "type" in parameters or "$ref" in parameters:
        return object_root(parameters)
    return object_root({"type": "object", "properties": {}, **parameters})
