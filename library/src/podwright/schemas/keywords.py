"""The keywords of JSON Schema (draft 2020-12), at a bounded cost: schema times data.

jsonschema checks them, and each check has a budget of operations. An operation is the check of a keyword, or that of a
subschema: about five microseconds of a slow processor. A keyword that does more is counted by its value and by the
data. Some keywords are our own: `const`, `enum` and `uniqueItems`, because those of jsonschema compare each value with
each, and `anyOf` and `oneOf`, because those of jsonschema keep all errors of all alternatives.
"""

from __future__ import annotations

import math
import time
from collections.abc import (
    Callable,
    Hashable,
    Iterable,
    Iterator,
    Sequence,
)
from contextvars import ContextVar
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache, partial
from importlib import import_module
from itertools import islice
from typing import Any

from podwright.schemas.brief_values import BriefArray, BriefObject, key_of
from podwright.schemas.json_schema import SchemaTooComplexError
from podwright.threads import check_cancelled

MAX_OPERATIONS = 50_000
"""Operations of a check: enough for an array of 20 000 numbers, or of 2 000 objects with five texts each."""
MAX_SECONDS = 1.0
"""Seconds of the processor that a check may take, should its operations be slower than usual. It does not
interrupt a regular expression."""
_LOOK_EVERY = 100
"""Operations after which the time is looked at, and whether anybody still waits for the check."""
_MAX_REASONS = 1_000
"""Errors of alternatives that are kept to find the most telling one."""
_PAIRS_IN_OPERATION = 500
"""Comparisons in a list that take as long as an operation."""
_KEYS_IN_OPERATION = 8
"""Values whose keys are made as long as an operation; see `podwright.schemas.brief_values.key_of`."""
_CHARS_IN_OPERATION = 100
"""Characters of a text that take as long as an operation."""
_EXACT_FLOATS = 2**53
"""From this number on, floats do not hold each integer."""

Keyword = Callable[[Any, Any, Any, Any], Iterable[Any] | None]
"""A keyword as jsonschema has it, with the validator, the keyword's value, the data and the schema: yields errors."""


class CheckBudget:
    """What checks may still cost. It is made and used in one thread."""

    def __init__(self) -> None:
        self._operations = 0
        self._next_look = 0
        self._end = time.thread_time() + MAX_SECONDS

    @property
    def is_spent(self) -> bool:
        """Whether a check has taken more than the budget has."""
        return (
            self._operations > MAX_OPERATIONS or time.thread_time() > self._end
        )

    def spend(self, operations: int = 1) -> None:
        """Count operations before they are done.

        Raises:
            SchemaTooComplexError: They are too many, or have taken too long.
            asyncio.CancelledError: Nobody waits for the check; see `podwright.threads.compute`.
        """
        self._operations += operations
        if self._operations >= self._next_look:
            self._look()

    def _look(self) -> None:
        check_cancelled()
        if self.is_spent:
            raise SchemaTooComplexError(
                "the check takes too long; use fewer values, or a simpler schema"
            )
        self._next_look = min(
            self._operations + _LOOK_EVERY, MAX_OPERATIONS + 1
        )


@dataclass(slots=True)
class Check:
    """The check that is done at present."""

    budget: CheckBudget
    visits: int
    """The subschemas of its schema; see `podwright.schemas.json_schema.measure`."""
    reasons_left: int = _MAX_REASONS
    """Errors of alternatives that may still be kept; 0 while nobody asks for them."""


current_check: ContextVar[Check] = ContextVar("podwright_schema_check")
"""Set during each check. The validators of jsonschema are shared by threads."""


@lru_cache(maxsize=1)
def validator_type() -> Any:
    """The class of jsonschema whose validators count their operations in `current_check`."""
    # imported late, because few programs need it; without type hints
    jsonschema: Any = import_module("jsonschema")
    draft = jsonschema.Draft202012Validator
    keywords: dict[str, Keyword] = {
        **draft.VALIDATORS,
        "anyOf": _any_of,
        "const": _const,
        "enum": _enum,
        "oneOf": _one_of,
        "uniqueItems": _unique_items,
        "multipleOf": partial(_multiple_of, draft.VALIDATORS["multipleOf"]),
    }
    counted = {
        name: _count_operations(keyword, _COSTS.get(name, _no_more))
        for name, keyword in keywords.items()
    }
    return jsonschema.validators.extend(draft, counted)


def _count_operations(
    keyword: Keyword, cost: Callable[[Any, Any], int]
) -> Keyword:
    """The same keyword, which counts its operations."""

    def counted(
        validator: Any, value: Any, instance: Any, schema: Any
    ) -> Iterable[Any] | None:
        current_check.get().budget.spend(1 + cost(value, instance))
        return keyword(validator, value, instance, schema)

    return counted


# --- What a keyword costs besides one operation, by its value and by the data -----------------------------------------


def _no_more(value: Any, instance: Any) -> int:
    return 0


def _one_more(value: Any, instance: Any) -> int:
    return 1


def _each_item(value: Any, instance: Any) -> int:
    return len(instance) if isinstance(instance, BriefArray) else 0


def _each_property(value: Any, instance: Any) -> int:
    return len(instance) if isinstance(instance, BriefObject) else 0


def _each_part(value: Any, instance: Any) -> int:
    return len(value)


def _common_names(value: Any, instance: Any) -> int:
    # it looks for each name, and at those that it finds
    return min(len(value), _each_property(value, instance)) + len(value) // 20


def _first_items(value: Any, instance: Any) -> int:
    return min(len(value), _each_item(value, instance))


def _each_pattern(value: Any, instance: Any) -> int:
    return len(value) * _each_property(value, instance)


def _each_dependency(value: Any, instance: Any) -> int:
    return sum(1 + len(names) for names in value.values())


def _characters(value: Any, instance: Any) -> int:
    return (
        len(instance) // _CHARS_IN_OPERATION if isinstance(instance, str) else 0
    )


def _segments(value: Any, instance: Any) -> int:
    return 1 + value.count("/") // 2


def _long_division(value: Any, instance: Any) -> int:
    is_number = isinstance(instance, int | float)
    return 4 if is_number and not abs(instance) < _EXACT_FLOATS else 0


def _evaluated(value: Any, instance: Any) -> int:
    # each item or property is looked for in a list, in which each subschema may have put all of them
    if not isinstance(instance, BriefArray | BriefObject):
        return 0
    number = len(instance)
    visits = current_check.get().visits
    return (
        number + visits // 10 + number * number * visits // _PAIRS_IN_OPERATION
    )


_COSTS: dict[str, Callable[[Any, Any], int]] = {
    "$ref": _segments,
    "additionalProperties": _each_property,
    "allOf": _each_part,
    "contains": _each_item,
    "dependentRequired": _each_dependency,
    "dependentSchemas": _each_part,
    "format": _characters,
    "if": _one_more,
    "items": _each_item,
    "multipleOf": _long_division,
    "not": _one_more,
    "pattern": _characters,
    "patternProperties": _each_pattern,
    "prefixItems": _first_items,
    "properties": _common_names,
    "propertyNames": _each_property,
    "required": _each_part,
    "unevaluatedItems": _evaluated,
    "unevaluatedProperties": _evaluated,
}


# --- Keywords of our own ----------------------------------------------------------------------------------------------


def _any_of(
    validator: Any, alternatives: Any, instance: Any, schema: Any
) -> Iterator[Any]:
    for alternative in alternatives:
        if _fits(validator, alternative, instance):
            return
    yield _error_of_all(validator, alternatives, instance)


def _one_of(
    validator: Any, alternatives: Any, instance: Any, schema: Any
) -> Iterator[Any]:
    fitting = 0
    for alternative in alternatives:
        if _fits(validator, alternative, instance):
            fitting += 1
        if fitting == 2:
            yield _error("fits several alternatives")
            return
    if not fitting:
        yield _error_of_all(validator, alternatives, instance)


def _fits(validator: Any, alternative: Any, instance: Any) -> bool:
    """Whether data fits an alternative; nobody asks why not."""
    check = current_check.get()
    check.budget.spend()
    part = validator.evolve(schema=alternative)
    reasons_left = check.reasons_left
    check.reasons_left = 0
    try:
        return next(part.iter_errors(instance), None) is None
    finally:
        check.reasons_left = reasons_left


def _error_of_all(validator: Any, alternatives: Any, instance: Any) -> Any:
    """The error of data that fits no alternative, with the errors of each as far as they are asked for."""
    check = current_check.get()
    reasons: list[Any] = []
    for alternative in alternatives:
        if check.reasons_left == 0:
            break
        part = validator.evolve(schema=alternative)
        for error in islice(part.iter_errors(instance), check.reasons_left):
            check.reasons_left = max(0, check.reasons_left - 1)
            reasons.append(error)
    return _error("fits no alternative", reasons)


def _const(
    validator: Any, const: Any, instance: Any, schema: Any
) -> Iterator[Any]:
    if _key(const) != _key(instance):
        yield _error("is another value")


def _enum(
    validator: Any, values: BriefArray, instance: Any, schema: Any
) -> Iterator[Any]:
    if _key(instance) not in values.member_keys:
        yield _error("is none of the values")


def _unique_items(
    validator: Any, unique: bool, instance: Any, schema: Any
) -> Iterator[Any]:
    if not unique or not isinstance(instance, BriefArray):
        return
    current_check.get().budget.spend(len(instance) // _KEYS_IN_OPERATION)
    if len({_key(item) for item in instance}) < len(instance):
        yield _error("has items that are equal")


def _multiple_of(
    keyword: Keyword, validator: Any, divisor: Any, instance: Any, schema: Any
) -> Iterable[Any]:
    try:
        return list(keyword(validator, divisor, instance, schema) or ())
    except (OverflowError, ValueError):
        # floats cannot hold the numbers
        if _is_multiple(instance, divisor):
            return []
        return [_error("is not a multiple")]


def _is_multiple(number: Any, divisor: Any) -> bool:
    # Python reads 1e999 as infinity
    for value in (number, divisor):
        if isinstance(value, float) and not math.isfinite(value):
            return False
    return Fraction(number) % Fraction(divisor) == 0


def _key(value: Any) -> Hashable:
    budget = current_check.get().budget

    def spend(values: int) -> None:
        budget.spend(1 + values // _KEYS_IN_OPERATION)

    return key_of(value, spend)


def _error(reason: str, reasons: Sequence[Any] = ()) -> Any:
    return import_module("jsonschema").ValidationError(reason, context=reasons)
