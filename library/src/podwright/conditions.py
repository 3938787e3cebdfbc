"""Conditions: the caller's callables and the built-in ones, both referred to by name.

Never an expression language: a built-in condition takes JSON arguments and knows nothing else. Texts in
arguments are templates, filled from the context in one pass.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, cast

from podwright.errors import ConditionError, Problem
from podwright.json_data import as_array, as_object, copy_json, json_pointer, to_text
from podwright.templates import fill_all
from podwright.text import describe_error, did_you_mean, truncate
from podwright.tools import called

Condition = Callable[..., Any]
"""A caller's condition: given the context (and `args` as keywords), it answers true or false. It may be async."""

Conditions = Mapping[str, Condition]


def _folded(value: Any) -> str:
    return to_text(value).casefold()


def _number(value: Any) -> float:
    text = to_text(value).strip()
    try:
        return float(text)
    except ValueError:
        shown = truncate(text, 60)
        raise ConditionError(
            f"A condition compares numbers, but was given {shown!r}.",
            suggestion="Make the step before it answer with a bare number, or use 'equals'.",
        ) from None


def _same(one: Any, other: Any) -> bool:
    return to_text(one).strip() == to_text(other).strip()


_TESTS: dict[str, tuple[tuple[str, ...], Callable[[dict[str, Any]], bool]]] = {
    "equals": (("value", "to"), lambda a: _same(a["value"], a["to"])),
    "not_equals": (("value", "to"), lambda a: not _same(a["value"], a["to"])),
    "contains": (("value", "text"), lambda a: _folded(a["text"]) in _folded(a["value"])),
    "starts_with": (("value", "text"), lambda a: _folded(a["value"]).lstrip().startswith(_folded(a["text"]))),
    "one_of": (("value", "options"), lambda a: any(_same(a["value"], option) for option in a["options"])),
    "greater_than": (("value", "than"), lambda a: _number(a["value"]) > _number(a["than"])),
    "less_than": (("value", "than"), lambda a: _number(a["value"]) < _number(a["than"])),
    "is_empty": (("value",), lambda a: not to_text(a["value"]).strip()),
}  # fmt: skip
"""The built-in tests: their arguments and what they do. Texts are compared without regard to outer white space."""

_COMBINED = {"all": "conditions", "any": "conditions", "not": "condition"}

BUILT_IN = (*_TESTS, *_COMBINED)
"""Names of the built-in conditions."""


async def holds(ref: Mapping[str, Any], context: Mapping[str, Any], conditions: Conditions) -> bool:
    """Whether a condition holds in a context.

    Raises:
        ConditionError: It raised an error, or could not compare.
        ContextError: A template in its arguments names what the context does not have.
    """
    name, args = str(ref["name"]), cast("dict[str, Any]", ref.get("args", {}))
    if name in conditions:
        return await _ask(name, conditions[name], args, context)
    match name:
        case "all" | "any":
            wanted = name == "any"
            for inner in args["conditions"]:
                if await holds(inner, context, conditions) is wanted:
                    return wanted
            return not wanted
        case "not":
            return not await holds(args["condition"], context, conditions)
        case _:
            # options one by one: all of them at once, each with a long text filled in, may not fit into memory
            filled = {
                key: (_filled(one, context, name) for one in value)
                if key == "options"
                else _filled(value, context, name)
                for key, value in args.items()
            }
            return _TESTS[name][1](filled)


async def _ask(name: str, condition: Condition, args: dict[str, Any], context: Mapping[str, Any]) -> bool:
    given = copy_json(dict(context))  # what a condition does to its context stays there
    try:
        return bool(await called(condition, given, **args))
    except Exception as error:
        raise ConditionError(f"Condition '{name}' raised {describe_error(error)}") from error


def _filled(value: Any, context: Mapping[str, Any], name: str) -> Any:
    if isinstance(value, str):
        return fill_all(value, context, f"Condition '{name}'")
    if isinstance(value, list):
        return [_filled(item, context, name) for item in cast("list[Any]", value)]
    return value


def problems(ref: object, at: str, conditions: Conditions) -> Iterator[Problem]:
    """What is wrong with a reference to a condition: an unknown name, or a built-in's arguments."""
    known = as_object(ref)
    name, args = known.get("name"), known.get("args", {})
    if not isinstance(name, str) or not isinstance(args, dict) or name in conditions:
        return  # what is no name or no object, the shape has said
    given = cast("dict[str, Any]", args)
    if name in _TESTS:
        yield from _arguments(name, given, _TESTS[name][0], at)
        if name == "one_of" and not isinstance(given.get("options", []), list):
            yield Problem(f"{at}/args/options", "expected an array.")
    elif name in _COMBINED:
        key = _COMBINED[name]
        yield from _arguments(name, given, (key,), at)
        inner = given.get(key)
        if key == "condition" and key in given:
            yield from _inner_problems(inner, f"{at}/args/condition", conditions)
        elif key in given:
            listed = as_array(inner)
            if not listed:
                yield Problem(f"{at}/args/conditions", "expected an array of at least one condition.")
            for number, one in enumerate(listed):
                yield from _inner_problems(one, f"{at}/args/conditions/{number}", conditions)
    else:
        hint = did_you_mean(name, [*conditions, *BUILT_IN])
        yield Problem(f"{at}/name", f"no condition called '{name}' was given, nor is one built in.", hint)


def _inner_problems(ref: object, at: str, conditions: Conditions) -> Iterator[Problem]:
    """As `problems`, for a condition among the arguments of another, where no shape is checked."""
    known = as_object(ref)
    if not isinstance(known.get("name"), str):
        yield Problem(at, "a condition is an object with a 'name'.")
        return
    if not isinstance(known.get("args", {}), dict):
        yield Problem(f"{at}/args", "expected an object.")
    for key in known:
        if key not in ("name", "args"):
            hint = did_you_mean(key, ("name", "args"))
            yield Problem(at + json_pointer(key), f"unknown key '{key}'.", hint)
    yield from problems(ref, at, conditions)


def _arguments(name: str, given: Mapping[str, Any], wanted: tuple[str, ...], at: str) -> Iterator[Problem]:
    for key in wanted:
        if key not in given:
            yield Problem(f"{at}/args", f"the condition '{name}' needs the argument '{key}'.")
    for key in given:
        if key not in wanted:
            yield Problem(
                f"{at}/args" + json_pointer(key),
                f"the condition '{name}' has no argument '{key}'.",
                did_you_mean(key, wanted),
            )
