"""Conditions of workflows: the caller's functions and the built-in ones, referred to by name.

There is no expression language: a built-in condition takes JSON arguments. Strings in arguments are templates, filled
from the context in one pass.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any, cast

from podwright.callables import call_function, compute
from podwright.errors import ConditionError, PodwrightError, Problem, error_from
from podwright.json_data import (
    as_array,
    as_object,
    copy_json,
    json_pointer,
    to_text,
    walk_json,
)
from podwright.templates import fill_all, names
from podwright.text import did_you_mean, truncate

Condition = Callable[..., Any]
"""A caller's condition: called with the context (and `args` as keywords), returns true or false. It may be async."""

Conditions = Mapping[str, Condition]

_LARGE = 20_000
"""Characters that are compared on the event loop; more are compared in a thread."""


def _number(value: Any) -> float:
    text = to_text(value).strip()
    try:
        return float(text)
    except ValueError:
        raise ConditionError(
            f"A condition compares numbers, but got {truncate(text, 60)!r}.",
            suggestion="Let the step before it answer with a bare number, or use 'equals'.",
        ) from None


def _equal(value: Any, other: Any) -> bool:
    return to_text(value).strip() == to_text(other).strip()


def _folded(value: Any) -> str:
    return to_text(value).casefold()


_COMPARISONS: dict[str, tuple[tuple[str, ...], Callable[[dict[str, Any]], bool]]] = {
    "equals": (("value", "to"), lambda args: _equal(args["value"], args["to"])),
    "not_equals": (("value", "to"), lambda args: not _equal(args["value"], args["to"])),
    "contains": (
        ("value", "text"),
        lambda args: _folded(args["text"]) in _folded(args["value"]),
    ),
    "starts_with": (
        ("value", "text"),
        lambda args: _folded(args["value"]).lstrip().startswith(_folded(args["text"])),
    ),
    "one_of": (
        ("value", "options"),
        lambda args: any(_equal(args["value"], option) for option in args["options"]),
    ),
    "greater_than": (
        ("value", "than"),
        lambda args: _number(args["value"]) > _number(args["than"]),
    ),
    "less_than": (
        ("value", "than"),
        lambda args: _number(args["value"]) < _number(args["than"]),
    ),
    "is_empty": (("value",), lambda args: not to_text(args["value"]).strip()),
}
"""The built-in comparisons: their arguments and what they do. `contains` and `starts_with` ignore case."""

_COMBINATIONS = {"all": "conditions", "any": "conditions", "not": "condition"}
"""The built-in combinations, and the argument that holds their conditions."""

BUILT_IN = (*_COMPARISONS, *_COMBINATIONS)
"""Names of the built-in conditions."""


async def holds(
    reference: Mapping[str, Any],
    context: Mapping[str, Any],
    conditions: Conditions,
    spend: Callable[[int], object] = lambda characters: None,
    *,
    values: Mapping[str, Any] | None = None,
) -> bool:
    """Whether a condition holds in a context.

    Args:
        reference: The condition as `{"name": …, "args": {…}}`.
        context: The context of the workflow.
        conditions: The caller's conditions by name.
        spend: Called with the characters of the texts that are compared; may raise.
        values: What templates in the arguments read; by default the context.

    Raises:
        ConditionError: It raised an error, or could not compare.
        ContextError: A template in its arguments names something that is not in the context.
    """
    # many large comparisons must not block other tasks and time limits
    await asyncio.sleep(0)
    name = str(reference["name"])
    args = cast("dict[str, Any]", reference.get("args", {}))
    if name in conditions:
        return await _call(name, conditions[name], args, context)
    match name:
        case "all" | "any":
            wanted = name == "any"
            for inner in args["conditions"]:
                if (
                    await holds(inner, context, conditions, spend, values=values)
                    is wanted
                ):
                    return wanted
            return not wanted
        case "not":
            return not await holds(
                args["condition"], context, conditions, spend, values=values
            )
        case _:
            readable = context if values is None else values
            is_large = any(_is_large(value, readable) for value in args.values())
            compared = partial(_compare, name, args, readable)
            result, length = await compute(compared) if is_large else compared()
            spend(length)
            return result


def _compare(
    name: str, args: Mapping[str, Any], context: Mapping[str, Any]
) -> tuple[bool, int]:
    """The result of a built-in comparison, and how many characters it compared."""
    filled = {key: _fill(value, context, name) for key, value in args.items()}
    return _COMPARISONS[name][1](filled), sum(
        len(value) for value in filled.values() if isinstance(value, str)
    )


def _is_large(value: object, context: Mapping[str, Any]) -> bool:
    """Whether a template is filled with a long text, or with a value that has to become one."""
    if isinstance(value, list):
        return any(_is_large(item, context) for item in cast("list[object]", value))
    values = (
        [context.get(name) for name in names(value)] if isinstance(value, str) else []
    )
    return (
        any(isinstance(each, list | dict) for each in values)
        or sum(len(str(each)) for each in values) > _LARGE
    )


def calls_function(reference: Mapping[str, Any], conditions: Conditions) -> bool:
    """Whether the check of a condition calls one of the caller's functions."""
    if not conditions:
        return False
    return any(
        as_object(value).get("name") in conditions
        for _, value, _ in walk_json(reference)
    )


async def _call(
    name: str, condition: Condition, args: dict[str, Any], context: Mapping[str, Any]
) -> bool:
    try:
        # a copy, so that a condition cannot change the context
        return bool(await call_function(condition, copy_json(dict(context)), **args))
    except PodwrightError:  # of a nested run, whose code and limit the caller needs
        raise
    except Exception as error:
        raise error_from(ConditionError, f"Condition '{name}'", error) from error


def _fill(value: Any, context: Mapping[str, Any], name: str) -> Any:
    if isinstance(value, list):
        return [_fill(item, context, name) for item in cast("list[Any]", value)]
    return (
        fill_all(value, context, f"Condition '{name}'")
        if isinstance(value, str)
        else value
    )


def templates(reference: object, at: str) -> Iterator[tuple[str, str]]:
    """The templates in the arguments of a built-in condition, with their JSON pointers; those of others are data.

    Args:
        reference: The condition as a blueprint has it.
        at: Its JSON pointer.
    """
    known = as_object(reference)
    args = as_object(known.get("args"))
    if known.get("name") in _COMPARISONS:
        for pointer, value, _ in walk_json(args):
            if isinstance(value, str):
                yield f"{at}/args{pointer}", value
    elif known.get("name") in _COMBINATIONS:
        for number, inner in enumerate(as_array(args.get("conditions"))):
            yield from templates(inner, f"{at}/args/conditions/{number}")
        yield from templates(args.get("condition"), f"{at}/args/condition")


def problems(reference: object, at: str, conditions: Conditions) -> list[Problem]:
    """What is wrong with a reference to a condition: an unknown name, or wrong arguments of a built-in condition.

    Args:
        reference: What the blueprint contains.
        at: Its JSON pointer.
        conditions: The caller's conditions by name.
    """
    known = as_object(reference)
    name = known.get("name")
    args = known.get("args", {})
    if not isinstance(name, str) or not isinstance(args, dict):
        return [
            Problem(
                at, "Expected a condition: an object with a 'name', and perhaps 'args'."
            )
        ]
    arguments = cast("dict[str, Any]", args)
    if name in conditions:
        return []
    if name not in BUILT_IN:
        hint = did_you_mean(name, [*conditions, *BUILT_IN])
        return [
            Problem(
                f"{at}/name",
                f"Missing condition '{name}': it was not given, and is not built in.",
                hint,
            )
        ]
    wanted = _COMPARISONS[name][0] if name in _COMPARISONS else (_COMBINATIONS[name],)
    found = [
        Problem(f"{at}/args", f"Condition '{name}' needs the argument '{key}'.")
        for key in wanted
        if key not in arguments
    ]
    found += [
        Problem(
            f"{at}/args" + json_pointer(key),
            f"Condition '{name}' has no argument '{key}'.",
            did_you_mean(key, wanted),
        )
        for key in arguments
        if key not in wanted
    ]
    for key in ("options", "conditions"):
        if key in wanted and key in arguments and not as_array(arguments[key]):
            found.append(
                Problem(f"{at}/args/{key}", "Expected an array of at least one item.")
            )
    for number, inner in enumerate(as_array(arguments.get("conditions"))):
        found += _inner_problems(inner, f"{at}/args/conditions/{number}", conditions)
    if name == "not" and "condition" in arguments:
        found += _inner_problems(
            arguments["condition"], f"{at}/args/condition", conditions
        )
    return found


def _inner_problems(
    reference: object, at: str, conditions: Conditions
) -> list[Problem]:
    """As `problems`, for a condition in the arguments of another, where no schema reports unknown keys."""
    keys = ("name", "args")
    unknown = [
        Problem(
            at + json_pointer(key), f"Unknown key '{key}'.", did_you_mean(key, keys)
        )
        for key in as_object(reference)
        if key not in keys
    ]
    return [*unknown, *problems(reference, at, conditions)]
