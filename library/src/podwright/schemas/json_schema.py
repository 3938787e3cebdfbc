"""JSON Schemas: a root that providers take, and bounds for those of callers before a library reads them.

A schema of two kilobytes can name parts that refer to each other so that its check takes a lifetime. So the subschemas
that a check visits are counted first, with each reference followed, in a time that grows with the schema's size only.
What a check of data costs is bounded while it is done; see `podwright.schemas.keywords`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Set
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter
from typing import Any, cast
from urllib.parse import unquote

from podwright.data.json_data import (
    JsonMapping,
    JsonObject,
    as_array,
    as_object,
    walk_json,
)
from podwright.data.text import short_repr, truncate

MAX_VALUES = 5_000
"""JSON values of a schema."""
MAX_DEPTH = 100
"""Levels of its nesting."""
MAX_VISITS = 20_000
"""Subschemas that the check of an answer visits if each property and item occurs once."""
_MAX_TYPES = 100
"""Entries of a list under `type`: jsonschema compares each with each before it says that they are no types."""

_IDENTIFIERS = ("$id", "$anchor", "$dynamicAnchor", "$dynamicRef")
"""Keywords that name other places than a JSON pointer in the schema does."""
_SAME_VALUE = ("not", "if", "then", "else")
_SAME_VALUE_LISTS = ("anyOf", "allOf", "oneOf")
_SAME_VALUE_MAPS = ("dependentSchemas",)
"""Keywords whose subschemas apply to the value itself."""
_INNER_VALUE = (
    "items", "contains", "additionalProperties", "propertyNames", "unevaluatedItems", "unevaluatedProperties",
)  # fmt: skip
_INNER_VALUE_LISTS = ("prefixItems",)
_INNER_VALUE_MAPS = ("properties", "patternProperties")
"""Keywords whose subschemas apply to values inside it."""
SUBSCHEMAS = (*_SAME_VALUE, *_INNER_VALUE)
"""Keywords whose value is a subschema."""
SUBSCHEMA_LISTS = (*_SAME_VALUE_LISTS, *_INNER_VALUE_LISTS)
SUBSCHEMA_MAPS = (*_SAME_VALUE_MAPS, *_INNER_VALUE_MAPS)
_NOT_AT_ROOT = ("anyOf", "oneOf", "allOf", "not", "enum", "const")
"""Keywords that OpenAI refuses in the root of a schema, also beside `type: object`."""
DEFINITIONS = ("$defs", "definitions")
"""Keywords whose subschemas apply only where they are referred to."""
_ANNOTATIONS = frozenset(
    {
        "$defs",
        "definitions",
        "title",
        "description",
        "default",
        "examples",
        "deprecated",
    }
)
"""Keywords that restrict nothing."""


class SchemaTooComplexError(ValueError):
    """A JSON Schema is too large, or refers to itself too often, or the check of data against it takes too long."""


@dataclass(slots=True)
class Part:
    """A subschema, and the subschemas that it applies, by their identity."""

    schema: JsonObject
    same_value: list[int]
    inner_values: list[int]

    def applied(self) -> Iterator[int]:
        """The subschemas that it applies."""
        yield from self.same_value
        yield from self.inner_values


def measure(schema: JsonMapping) -> int:
    """The subschemas that the check of an answer visits, if each property and item occurs once.

    Raises:
        SchemaTooComplexError: There are too many, or they have no end.
        ValueError: A part refers to something that is not a subschema, or has a name of its own.
    """
    _check_size(schema)
    parts = parts_of(schema)
    _check_cycles(parts)
    visits = _count_visits(parts, id(schema))
    if visits > MAX_VISITS:
        raise SchemaTooComplexError(
            f"a check of it visits more than {MAX_VISITS} parts; its $refs fan out too often"
        )
    return visits


def _check_size(schema: JsonMapping) -> None:
    for number, (pointer, value, depth) in enumerate(walk_json(schema), 1):
        if number > MAX_VALUES or depth > MAX_DEPTH:
            raise SchemaTooComplexError(
                f"it has more than {MAX_VALUES} values, or more than {MAX_DEPTH} levels of nesting"
            )
        part = as_object(value)
        if len(as_array(part.get("type"))) > _MAX_TYPES:
            raise ValueError(
                f"{pointer}/type has more than {_MAX_TYPES} entries"
            )
        for key in _IDENTIFIERS:
            if isinstance(part.get(key), str):
                raise ValueError(
                    f"it has '{key}' at '{truncate(pointer, 100)}'"
                )
        reference = part.get("$ref")
        if isinstance(reference, str) and subschema(schema, reference) is None:
            raise ValueError(
                f"{pointer}/$ref names no part of it: {short_repr(reference)}"
            )


def parts_of(schema: JsonMapping) -> dict[int, Part]:
    """The subschemas that a schema applies, itself included, by their identity."""
    parts = dict[int, Part]()
    waiting = [as_object(schema)]
    while waiting:
        part = waiting.pop()
        if id(part) in parts:
            continue
        same = list(_applied_to_same(part, schema))
        inner = list(_applied_to_inner(part))
        parts[id(part)] = Part(part, _identities(same), _identities(inner))
        waiting += same
        waiting += inner
    return parts


def _identities(parts: Iterable[object]) -> list[int]:
    return [id(part) for part in parts]


def _check_cycles(parts: Mapping[int, Part]) -> None:
    graph = {key: part.same_value for key, part in parts.items()}
    try:
        TopologicalSorter(graph).prepare()
    except CycleError:
        raise SchemaTooComplexError("a part of it refers to itself") from None


def _applied_to_same(
    part: JsonMapping, root: JsonMapping
) -> Iterator[JsonObject]:
    """The subschemas that a subschema applies to the value itself, the one that it refers to included."""
    reference = part.get("$ref")
    if isinstance(reference, str):
        target = subschema(root, reference)
        if isinstance(target, dict):
            yield target
    times = 1
    if "unevaluatedProperties" in part or "unevaluatedItems" in part:
        # to find what is not evaluated, jsonschema checks the subschemas again, and looks into each
        times = 3
    for _ in range(times):
        yield from _subschemas(
            part, _SAME_VALUE, _SAME_VALUE_LISTS, _SAME_VALUE_MAPS
        )


def _applied_to_inner(part: JsonMapping) -> Iterator[JsonObject]:
    """The subschemas that a subschema applies to values inside the value."""
    return _subschemas(
        part, _INNER_VALUE, _INNER_VALUE_LISTS, _INNER_VALUE_MAPS
    )


def _subschemas(
    part: JsonMapping,
    single: tuple[str, ...],
    lists: tuple[str, ...],
    maps: tuple[str, ...],
) -> Iterator[JsonObject]:
    found = [part.get(key) for key in single]
    for key in lists:
        found += as_array(part.get(key))
    for key in maps:
        found += as_object(part.get(key)).values()
    for value in found:
        applied = as_object(value)
        if applied:
            yield applied


def object_root(schema: JsonMapping) -> JsonObject | None:
    """The schema of an object with a root as providers require it: `type: object`, without `$ref` and unions.

    A `$ref` in the root, which pydantic writes for a type that refers to itself, is replaced by what it names.

    Returns:
        None if the schema is not that of an object, or if its root cannot be written in this way.
    """
    root = dict(schema)
    for _ in range(MAX_DEPTH):
        reference = root.pop("$ref", None)
        if reference is None:
            break
        target = as_object(subschema(schema, str(reference)))
        if not target or (root.keys() & target.keys()) - _ANNOTATIONS:
            return None
        root = target | root
    if root.get("type") != "object" or "$ref" in root:
        return None
    if any(key in root for key in _NOT_AT_ROOT):
        return None
    return root


def subschema(root: JsonMapping, reference: str) -> JsonObject | bool | None:
    """The part of a schema that a `$ref` names by a JSON pointer; None if that is not a subschema."""
    if reference not in ("#", "") and not reference.startswith("#/"):
        return None
    value: Any = root
    for token in unquote(reference).split("/")[1:]:
        key = token.replace("~1", "/").replace("~0", "~")
        value = _member(value, key)
    if isinstance(value, dict | bool):
        return cast("JsonObject | bool", value)
    return None


def _member(value: object, key: str) -> object:
    """A member of an object or an array; None if there is none."""
    items = as_array(value)
    if not items:
        return as_object(value).get(key)
    # no position in a schema of this size
    if not key.isdecimal() or len(key) > 5:
        return None
    position = int(key)
    if position >= len(items):
        return None
    return items[position]


def _count_visits(parts: Mapping[int, Part], root: int) -> int:
    """The visits of a check, without those of a part inside itself; at most one more than allowed."""
    counts = dict[int, int]()
    path = {root: 1}
    """The parts from the root to the present one, each with its visits so far."""
    stack = [(root, parts[root].applied())]
    while stack:
        key, applied = stack[-1]
        target = next(applied, None)
        if target is None:
            stack.pop()
            counts[key] = min(path.pop(key), MAX_VISITS + 1)
            if stack:
                outer, _ = stack[-1]
                path[outer] += counts[key]
        elif target in path:
            path[key] += 1
        elif target in counts:
            path[key] += counts[target]
        else:
            path[target] = 1
            stack.append((target, parts[target].applied()))
    return counts[root]


def without_dialects(schema: JsonMapping) -> JsonObject:
    """A copy of a schema whose subschemas do not name a dialect of their own: all are read as draft 2020-12."""
    dialects: set[int] = set()
    for part in parts_of(schema).values():
        if "$schema" in part.schema:
            dialects.add(id(part.schema))
    return cast("JsonObject", _copy_without_dialects(schema, dialects))


def _copy_without_dialects(value: object, dialects: Set[int]) -> object:
    if isinstance(value, list):
        items = cast("list[object]", value)
        return [_copy_without_dialects(item, dialects) for item in items]
    if not isinstance(value, dict):
        return value
    copied: JsonObject = {}
    part = cast("JsonObject", value)
    for key, item in part.items():
        if key != "$schema" or id(part) not in dialects:
            copied[key] = _copy_without_dialects(item, dialects)
    return copied


def parts_under_unknown_keywords(schema: JsonMapping) -> Iterator[JsonObject]:
    """The parts that are named by a `$ref`, and that no keyword of JSON Schema makes a subschema.

    A check of the schema itself does not look at them.
    """
    known = set(_identities(_subschemas_below(schema)))
    for part in parts_of(schema).values():
        if id(part.schema) not in known:
            yield part.schema
            known.update(_identities(_subschemas_below(part.schema)))


def _subschemas_below(schema: JsonMapping) -> Iterator[JsonObject]:
    """A subschema and those inside it, whether it applies them or only defines them."""
    waiting = [as_object(schema)]
    while waiting:
        part = waiting.pop()
        yield part
        waiting += _subschemas(
            part,
            SUBSCHEMAS,
            SUBSCHEMA_LISTS,
            (*SUBSCHEMA_MAPS, *DEFINITIONS),
        )


def has_open_objects(schema: JsonMapping) -> bool:
    """Whether a JSON Schema has an object whose keys it does not name."""
    for _, value, _ in walk_json(schema):
        part = as_object(value)
        if part.get("type") != "object":
            continue
        if part.get("additionalProperties") or not part.get("properties"):
            return True
    return False


def with_moved_references(value: Any, place: str) -> Any:
    """Return a schema, whose references lead into itself, as a part of a document.

    Args:
        value: The schema, or a part of it.
        place: Where the schema is in the document, such as "#/properties/order".
    """
    if isinstance(value, list):
        items = cast("list[Any]", value)
        return [with_moved_references(item, place) for item in items]
    if not isinstance(value, Mapping):
        return value
    moved: JsonObject = {}
    for key, item in cast("JsonMapping", value).items():
        moved[key] = with_moved_references(item, place)
    reference = moved.get("$ref")
    if isinstance(reference, str):
        moved["$ref"] = place + reference.removeprefix("#")
    return moved
