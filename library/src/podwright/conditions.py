"""Conditions of workflows: the caller's functions and the built-in ones, referred to by name.

A condition is not an expression: a built-in one takes JSON arguments. Strings in arguments are templates, filled from
the context in one pass.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping
from decimal import Decimal, InvalidOperation
from typing import Any, cast

from typing_extensions import TypeIs

from podwright.data.json_data import (
    JsonMapping,
    as_array,
    as_object,
    copy_json,
    json_pointer,
    to_text,
    values_in,
    walk_json,
)
from podwright.data.names import find_name
from podwright.data.text import did_you_mean, truncate
from podwright.errors import ConditionError, PodwrightError, Problem, error_from
from podwright.functions.run_context import call_with_context
from podwright.messages.templates import fill_data, names
from podwright.threads import compute

Condition = Callable[..., Any]
"""A caller's condition: called with the context (and `args` as keywords), returns true or false. It may be async."""

Conditions = Mapping[str, Condition]

_Values = Mapping[str, Any]
"""A context, or the arguments of a condition."""

_LARGE = 20_000
"""Characters that are compared on the event loop; more are compared in a thread."""


def _number(value: Any) -> Decimal:
    """The number of a value, exactly: that of its JSON text, or that in a text.

    Raises:
        ConditionError: It is no finite number.
    """
    if _is_number(value):
        number = _decimal(value)
    else:
        number = _decimal(to_text(value))
    if number is None:
        shown = to_text(value).strip()
        if isinstance(value, float):
            # without the quotes of its JSON text
            shown = str(value)
        raise ConditionError(
            f"A condition compares numbers, but got {truncate(shown, 60)!r}.",
            suggestion="Let the step before it answer with a bare number, or use 'equals'.",
        )
    return number


def _decimal(value: float | str) -> Decimal | None:
    """A finite number, exactly; None if it is no such number, or has an exponent of more than 17 digits."""
    if isinstance(value, float):
        # 0.1 is a tenth, as in JSON and in texts, and not the nearest binary fraction
        value = repr(value)
    try:
        number = Decimal(value)
    except InvalidOperation:
        return None
    if not number.is_finite():
        return None
    return number


def _is_number(value: object) -> TypeIs[int | float]:
    return isinstance(value, int | float) and not isinstance(value, bool)


def is_equal(value: Any, other: Any) -> bool:
    """Whether two values are equal, and so all values in them: alone, or in lists and objects, by the same rule."""
    pending = [(value, other)]
    while pending:
        left, right = pending.pop()
        if isinstance(left, dict) and isinstance(right, dict):
            # as texts they would differ in the order of their keys
            members = cast("dict[str, Any]", left)
            others = cast("dict[str, Any]", right)
            if members.keys() != others.keys():
                return False
            pending += [(members[key], others[key]) for key in members]
        elif isinstance(left, list) and isinstance(right, list):
            items = cast("list[Any]", left)
            other_items = cast("list[Any]", right)
            if len(items) != len(other_items):
                return False
            pending += zip(items, other_items, strict=True)
        elif not _is_same(left, right):
            return False
    return True


def _is_same(value: Any, other: Any) -> bool:
    """Whether two values, of which one is neither a list nor an object, are equal."""
    if _is_number(value) and _is_number(other):
        left = _decimal(value)
        right = _decimal(other)
        # 1 is 1.0, and numbers that are not finite are compared by their texts
        if left is not None and right is not None:
            return left == right
    text = to_text(value).strip()
    return text == to_text(other).strip()


def _folded(value: Any) -> str:
    return to_text(value).casefold()


def _not_equal(value: Any, other: Any) -> bool:
    return not is_equal(value, other)


def _contains(value: Any, text: Any) -> bool:
    if isinstance(value, list):
        items = cast("list[Any]", value)
        return any(
            is_equal(item, text) or _folded(item) == _folded(text)
            for item in items
        )
    return _folded(text) in _folded(value)


def _starts_with(value: Any, text: Any) -> bool:
    start = _folded(text)
    return _folded(value).lstrip().startswith(start)


def _one_of(value: Any, options: Any) -> bool:
    return any(is_equal(value, option) for option in options)


def _greater(value: Any, other: Any) -> bool:
    return _number(value) > _number(other)


def _less(value: Any, other: Any) -> bool:
    return _number(value) < _number(other)


def _is_empty(value: Any) -> bool:
    if value is None or value in ([], {}):
        return True
    return not to_text(value).strip()


_COMPARISONS: dict[str, tuple[Callable[..., bool], tuple[str, ...]]] = {
    "equals": (is_equal, ("value", "to")),
    "not_equals": (_not_equal, ("value", "to")),
    "contains": (_contains, ("value", "text")),
    "starts_with": (_starts_with, ("value", "text")),
    "one_of": (_one_of, ("value", "options")),
    "greater_than": (_greater, ("value", "than")),
    "less_than": (_less, ("value", "than")),
    "is_empty": (_is_empty, ("value",)),
}
"""The built-in comparisons: what they do, and their arguments in order. `contains` and `starts_with` ignore case."""

_COMBINATIONS = {"all": "conditions", "any": "conditions", "not": "condition"}
"""The built-in combinations, and the argument that holds their conditions."""

_KEYS = ("name", "args")
"""The keys of a reference to a condition."""

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
    if name == "not":
        negated = args["condition"]
        result = await holds(
            negated,
            context,
            conditions,
            spend=spend,
            values=values,
        )
        return not result
    if name in ("all", "any"):
        decisive = name == "any"
        for inner in args["conditions"]:
            result = await holds(
                inner,
                context,
                conditions,
                spend=spend,
                values=values,
            )
            if result is decisive:
                return result
        return not decisive
    readable = context
    if values is not None:
        readable = values
    if any(_is_large(value, readable) for value in args.values()):
        result, length = await compute(_compare, name, args, readable)
    else:
        result, length = _compare(name, args, readable)
    spend(length)
    return result


def decide(
    reference: Mapping[str, Any],
    values: Mapping[str, Any],
    conditions: Conditions,
) -> bool | None:
    """Return whether a condition holds, as far as that follows from some values; None if it depends on others.

    The caller's functions are not called. Takes as long as the texts that are compared are large.

    Args:
        reference: The condition as `{"name": …, "args": {…}}`.
        values: The values that are known.
        conditions: The caller's conditions by name.
    """
    name = str(reference["name"])
    args = cast("dict[str, Any]", reference.get("args", {}))
    if name in conditions:
        return None
    if name == "not":
        result = decide(args["condition"], values, conditions)
        return None if result is None else not result
    if name in ("all", "any"):
        decisive = name == "any"
        results = [
            decide(inner, values, conditions) for inner in args["conditions"]
        ]
        if decisive in results:
            return decisive
        return None if None in results else not decisive
    for text in values_in(args):
        if isinstance(text, str) and any(
            find_name(each, values) is None for each in names(text)
        ):
            return None
    try:
        return _compare(name, args, values)[0]
    except PodwrightError:
        # the run will fail here
        return None


def _compare(name: str, args: _Values, context: _Values) -> tuple[bool, int]:
    """The result of a built-in comparison, and how many characters it compared."""
    comparison, names_of_arguments = _COMPARISONS[name]
    filled = fill_data(dict(args), context, f"Condition '{name}'")
    length = sum(len(to_text(value)) for value in filled.values())
    operands = [filled[key] for key in names_of_arguments]
    return comparison(*operands), length


def _is_large(value: object, context: _Values) -> bool:
    """Whether a template is filled with a long text, or with a value that has to become one."""
    if isinstance(value, list | dict):
        return any(
            _is_large(text, context)
            for text in values_in(cast("Any", value))
            if isinstance(text, str)
        )
    if not isinstance(value, str):
        return False
    length = 0
    for name in names(value):
        filled = context.get(find_name(name, context) or name)
        if isinstance(filled, list | dict):
            return True
        length += len(str(filled))
    return length > _LARGE


def calls_function(
    reference: Mapping[str, Any], conditions: Conditions
) -> bool:
    """Whether the check of a condition calls one of the caller's functions."""
    if not conditions:
        return False
    for _, value, _ in walk_json(reference):
        name = as_object(value).get("name")
        if name in conditions:
            return True
    return False


async def _call(
    name: str, condition: Condition, args: dict[str, Any], context: _Values
) -> bool:
    try:
        # so that a condition cannot change the context
        copy = copy_json(dict(context))
        return bool(await call_with_context(condition, [copy], args))
    except PodwrightError:
        # of a nested run, whose code and limit the caller needs
        raise
    except Exception as error:
        raise error_from(
            ConditionError, f"Condition '{name}'", error
        ) from error


def templates(reference: object, at: str) -> Iterator[tuple[str, str]]:
    """The templates in the arguments of a built-in condition, with their JSON pointers; those of others are data.

    Args:
        reference: The condition as a blueprint has it.
        at: Its JSON pointer.
    """
    for _, args, pointer in _comparisons(reference, at):
        for place, value, _ in walk_json(args):
            if isinstance(value, str):
                yield pointer + place, value


def expected_values(
    reference: object, at: str
) -> Iterator[tuple[Any, Any, str]]:
    """Yield what built-in conditions compare for equality: the value, what it may be equal to, and where that is.

    Args:
        reference: The condition as a blueprint has it.
        at: Its JSON pointer.
    """
    for name, args, pointer in _comparisons(reference, at):
        value = args.get("value")
        if name in ("equals", "not_equals"):
            yield value, args.get("to"), f"{pointer}/to"
        elif name == "one_of":
            for number, option in enumerate(as_array(args.get("options"))):
                yield value, option, f"{pointer}/options/{number}"


def _comparisons(
    reference: object, at: str
) -> Iterator[tuple[str, JsonMapping, str]]:
    """Yield the built-in comparisons in a condition: the name, the arguments and their JSON pointer."""
    known = as_object(reference)
    name = known.get("name")
    args = as_object(known.get("args"))
    pointer = f"{at}/args"
    if name in _COMPARISONS:
        yield str(name), args, pointer
    elif name in _COMBINATIONS:
        inner_conditions = as_array(args.get("conditions"))
        for number, inner in enumerate(inner_conditions):
            yield from _comparisons(inner, f"{pointer}/conditions/{number}")
        yield from _comparisons(args.get("condition"), f"{pointer}/condition")


def problems(
    reference: object, at: str, conditions: Conditions
) -> list[Problem]:
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
        detail = (
            "Expected a condition: an object with a 'name', and perhaps 'args'."
        )
        return [Problem(at, detail)]
    if name in conditions:
        return []
    if name not in BUILT_IN:
        problem = Problem(
            f"{at}/name",
            detail=f"Missing condition '{name}': it was not given, and is not built in.",
            suggestion=did_you_mean(name, [*conditions, *BUILT_IN]),
        )
        return [problem]
    arguments = cast("dict[str, Any]", args)
    pointer = f"{at}/args"
    found = list(_argument_problems(name, arguments, pointer))
    inner_conditions = as_array(arguments.get("conditions"))
    for number, inner in enumerate(inner_conditions):
        inner_pointer = f"{pointer}/conditions/{number}"
        found += _inner_problems(inner, inner_pointer, conditions)
    if name == "not" and "condition" in arguments:
        negated = arguments["condition"]
        found += _inner_problems(negated, f"{pointer}/condition", conditions)
    return found


def _inner_problems(
    reference: object, pointer: str, conditions: Conditions
) -> Iterator[Problem]:
    """As `problems`, for a condition in the arguments of another, where no schema reports unknown keys."""
    for key in as_object(reference):
        if key not in _KEYS:
            yield Problem(
                pointer + json_pointer(key),
                detail=f"Unknown key '{key}'.",
                suggestion=did_you_mean(key, _KEYS),
            )
    yield from problems(reference, pointer, conditions)


def _argument_problems(
    name: str, args: _Values, pointer: str
) -> Iterator[Problem]:
    """What is wrong with the arguments of a built-in condition, apart from the conditions in them."""
    wanted = _names_of_arguments(name)
    for key in wanted:
        if key not in args:
            yield Problem(
                pointer, f"Condition '{name}' needs the argument '{key}'."
            )
    for key in args:
        if key not in wanted:
            yield Problem(
                pointer + json_pointer(key),
                detail=f"Condition '{name}' has no argument '{key}'.",
                suggestion=did_you_mean(key, wanted),
            )
    for key in ("options", "conditions"):
        if key not in wanted or key not in args:
            continue
        if not as_array(args[key]):
            detail = "Expected an array of at least one item."
            yield Problem(f"{pointer}/{key}", detail)


def _names_of_arguments(name: str) -> tuple[str, ...]:
    if name in _COMPARISONS:
        return _COMPARISONS[name][1]
    return (_COMBINATIONS[name],)
