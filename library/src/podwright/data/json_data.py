"""JSON data in Python: conversion, JSON pointers, and access to data of unknown shape."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any, cast

import orjson

from podwright.data.json_forms import (
    described,
    refused,
    to_json_form,
    to_utf8_data,
    to_utf8_text,
)
from podwright.data.text import short_repr

JsonObject = dict[str, Any]
"""A JSON object."""
JsonMapping = Mapping[str, Any]
"""A JSON object that is only read."""

_JSON_TYPES: dict[type, str] = {
    dict: "object", list: "array", str: "string", bool: "boolean", int: "integer", float: "number", type(None): "null"
}  # fmt: skip


def to_json_data(value: Any) -> Any:
    """The value as JSON-compatible data; see `to_json_form`.

    A sentence stands for what has no JSON form, such as an object of an unknown class, and text for NaN and infinities,
    which JSON lacks.
    """
    if value is None or type(value) in (str, bool, int):
        return value
    return to_json_form(value, described)


def to_exact_json_data(value: Any) -> Any:
    """The value as JSON data in UTF-8.

    Raises:
        NoJsonFormError: A part of it has no JSON form.
        ValueError, RecursionError: It refers to itself, or is nested too deeply.
    """
    return to_utf8_data(to_json_form(value, refused))


def to_text(value: Any) -> str:
    """The value as a model or a caller reads it: a string unchanged, anything else as JSON text."""
    if isinstance(value, str):
        return to_json_data(value)
    try:
        # JSON data, which needs no conversion
        return json.dumps(value, ensure_ascii=False, allow_nan=False)
    except (TypeError, ValueError):
        return json.dumps(to_json_data(value), ensure_ascii=False)


def to_json_bytes(data: Any) -> bytes:
    """JSON-compatible data as compact UTF-8 JSON."""
    try:
        # a copy, because orjson's result keeps a buffer of 8 KiB
        return bytes(memoryview(orjson.dumps(data)))
    except TypeError:
        # lone surrogates and integers beyond 64 bits, which orjson rejects
        return json.dumps(data, separators=(",", ":")).encode()


def to_request_bytes(body: Any) -> bytes:
    """The body of a request as compact JSON that every server can read: with U+FFFD for halves of surrogate pairs."""
    try:
        return orjson.dumps(body)
    except TypeError:
        text = json.dumps(body, ensure_ascii=False, separators=(",", ":"))
        return to_utf8_text(text).encode()


def json_pointer(*parts: str | int) -> str:
    """The JSON pointer (RFC 6901) with these parts."""
    pointer = ""
    for part in parts:
        token = str(part).replace("~", "~0").replace("/", "~1")
        pointer += f"/{token}"
    return pointer


def copy_json(value: Any) -> Any:
    """A deep copy of JSON data."""
    if isinstance(value, dict):
        members = cast("JsonObject", value)
        return {key: copy_json(item) for key, item in members.items()}
    if isinstance(value, list):
        items = cast("list[Any]", value)
        return [copy_json(item) for item in items]
    return value


def as_object(value: object) -> JsonObject:
    """The value if it is a JSON object, else an empty one."""
    if isinstance(value, dict):
        return cast("JsonObject", value)
    return {}


def as_array(value: object) -> list[Any]:
    """The value if it is a JSON array, else an empty one."""
    if isinstance(value, list):
        return cast("list[Any]", value)
    return []


def is_set(value: object) -> bool:
    """Whether a field has a value: not null, and no empty list or object."""
    return value is not None and value not in ([], {})


def walk_json(value: object) -> Iterator[tuple[str, object, int]]:
    """Every value in nested dictionaries and lists: its JSON pointer, the value, and its depth (0 is the whole).

    The children of a value are visited after it was yielded, so a caller can stop at any depth.
    """
    yield "", value, 0
    stack = [("", _entries(value))]
    while stack:
        above, entries = stack[-1]
        entry = next(entries, None)
        if entry is None:
            stack.pop()
            continue
        key, child = entry
        pointer = above + json_pointer(key)
        yield pointer, child, len(stack)
        stack.append((pointer, _entries(child)))


def values_in(value: object) -> Iterator[object]:
    """Every value in nested dictionaries and lists, in no order; without pointers, which take longer than the walk."""
    waiting = [value]
    while waiting:
        value = waiting.pop()
        yield value
        if isinstance(value, dict):
            waiting += cast("dict[str, object]", value).values()
        elif isinstance(value, list):
            waiting += cast("list[object]", value)


def _entries(value: object) -> Iterator[tuple[str | int, object]]:
    if isinstance(value, dict):
        return iter(cast("dict[str, object]", value).items())
    return enumerate(as_array(value))


def nested_deeper(value: object, depth: int = 100) -> bool:
    """Whether data is nested deeper than `depth` levels."""
    return any(level > depth for _, _, level in walk_json(value))


def describe_value(value: object) -> str:
    """The JSON type of a value, with the value itself if it is a scalar: "the integer 5", "null", "array"."""
    name = _JSON_TYPES.get(type(value), type(value).__name__)
    if value is None or isinstance(value, dict | list):
        return name
    return f"the {name} {short_repr(value)}"
