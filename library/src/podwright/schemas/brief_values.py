"""JSON data for jsonschema: short in its messages, and compared in a time that grows with their size only.

jsonschema writes a message for each error, with the whole value in it, also where nobody reads the message: a schema
with a thousand alternatives would write a text of a megabyte a thousand times. And it finds out whether the items of an
array are unique by comparing each with each.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from functools import cached_property
from typing import Any, cast

_MAX_TEXT = 100
"""Characters of a text in a message."""
_MAX_BITS = 64
"""Bits of an integer in a message: the decimal digits of a long one take a time that grows with their square."""

Spend = Callable[[int], object]
"""Is called with the number of items or properties of an array or object before they are looked at."""


class BriefText(str):
    """A text of which a message shows the beginning."""

    __slots__ = ()

    def __repr__(self) -> str:
        # not of the whole text
        return repr(self[:_MAX_TEXT])


class BriefInteger(int):
    """A long integer of which a message shows the size."""

    __slots__ = ()

    def __repr__(self) -> str:
        return f"(an integer of {self.bit_length()} bits)"

    __str__ = __repr__


class BriefArray(list[Any]):
    """An array of which a message shows the length."""

    key: Hashable = None
    """What `key_of` has found out."""

    def __repr__(self) -> str:
        return f"(an array of {len(self)} items)"

    @cached_property
    def member_keys(self) -> frozenset[Hashable]:
        """The items of an `enum` as keys; see `key_of`."""
        return frozenset(key_of(item, _count_nothing) for item in self)


class BriefObject(dict[Any, Any]):
    """An object of which a message shows the number of its properties."""

    key: Hashable = None
    """What `key_of` has found out."""

    def __repr__(self) -> str:
        return f"(an object of {len(self)} properties)"


def brief(value: Any) -> Any:
    """A copy of JSON data for jsonschema."""
    if isinstance(value, str):
        if len(value) > _MAX_TEXT:
            return BriefText(value)
        return value
    if isinstance(value, dict):
        members = cast("dict[Any, Any]", value)
        copied = BriefObject()
        for name, item in members.items():
            copied[brief(name)] = brief(item)
        return copied
    if isinstance(value, list):
        return BriefArray(map(brief, cast("list[Any]", value)))
    # a boolean has one bit
    if isinstance(value, int) and value.bit_length() > _MAX_BITS:
        return BriefInteger(value)
    return value


def key_of(value: Any, spend: Spend) -> Hashable:
    """A key that two values share if they are equal in JSON Schema: 1 and 1.0 are, 1 and true are not.

    Args:
        value: What `brief` has returned.
        spend: Counts the values that are looked at; those of an array or object are only once.
    """
    if isinstance(value, BriefArray):
        if value.key is None:
            spend(len(value))
            items = [key_of(item, spend) for item in value]
            value.key = ("array", tuple(items))
        return value.key
    if isinstance(value, BriefObject):
        if value.key is None:
            spend(len(value))
            members: list[tuple[Any, Hashable]] = []
            for name, item in value.items():
                members.append((name, key_of(item, spend)))
            value.key = ("object", frozenset(members))
        return value.key
    return _key_of_scalar(value)


def _key_of_scalar(value: Any) -> Hashable:
    if isinstance(value, bool):
        return ("boolean", value)
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if isinstance(value, int) and value.bit_length() > _MAX_BITS:
        # many long integers can share a hash
        return ("integer", hex(value))
    try:
        hash(value)
    except TypeError:
        # an object of Python that JSON lacks
        return ("other", id(value))
    return cast("Hashable", value)


def _count_nothing(values: int) -> None:
    """Count nothing, because the values of a schema are few."""
