"""The parts of a JSON Schema that apply to one value of the data, and what they say about its type."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from operator import is_
from typing import Any, cast

from podwright.data.json_data import (
    JsonMapping,
    JsonObject,
    as_array,
    as_object,
)
from podwright.data.model_json import exact_number
from podwright.schemas.json_schema import subschema

Options = Sequence[JsonMapping]
"""The schemas of which a value may fit any."""


def options_of(
    root: JsonMapping, schemas: Iterable[JsonMapping]
) -> list[JsonMapping]:
    """The schemas of which a value may fit any, without references and unions.

    Args:
        root: The whole schema, in which references are resolved.
        schemas: Parts of it.
    """
    waiting = list(schemas)
    seen: set[int] = set()
    options: list[JsonMapping] = []
    while waiting:
        schema = waiting.pop()
        if id(schema) in seen:
            continue
        seen.add(id(schema))
        parts: list[Any] = []
        for key in ("anyOf", "oneOf", "allOf"):
            parts += as_array(schema.get(key))
        if "$ref" in schema:
            parts.append(subschema(root, str(schema["$ref"])))
        if parts:
            waiting += [as_object(part) for part in parts if part is not False]
        else:
            options.append(schema)
    return options


def schemas_of_key(
    options: Iterable[JsonMapping], key: str
) -> list[JsonMapping]:
    """The schemas of a property; empty if it is unknown."""
    own: list[Any] = []
    others: list[Any] = []
    for option in options:
        if "object" not in types_of(option) and "properties" not in option:
            continue
        properties = as_object(option.get("properties"))
        if key in properties:
            own.append(properties[key])
        others.append(option.get("additionalProperties", True))
    return [
        as_object(schema) for schema in own or others if schema is not False
    ]


def schemas_of_item(
    options: Iterable[JsonMapping], index: int
) -> list[JsonMapping]:
    """The schemas of an item of a list."""
    schemas: list[JsonMapping] = []
    for option in options:
        if "array" not in types_of(option):
            continue
        prefix = as_array(option.get("prefixItems"))
        item = option.get("items")
        if index < len(prefix):
            item = prefix[index]
        schemas.append(as_object(item))
    return schemas


def types_of(schema: JsonMapping) -> set[str]:
    """The JSON types that a schema without references and unions names."""
    kind = schema.get("type")
    if isinstance(kind, str):
        return {kind}
    return set(as_array(kind))


def types_of_all(schemas: Iterable[JsonMapping]) -> set[str]:
    """The JSON types that any of these schemas names."""
    types: set[str] = set()
    for schema in schemas:
        types |= types_of(schema)
    return types


def members_of(schema: JsonMapping) -> list[Any]:
    """The values of an enumeration or a constant; empty if the schema is neither."""
    if "const" in schema:
        return [schema["const"]]
    return as_array(schema.get("enum"))


def is_anything(schema: JsonMapping) -> bool:
    """Whether a schema names neither types nor values."""
    return not types_of(schema) and not members_of(schema)


def requires_keys(schema: JsonMapping, root: JsonMapping) -> bool:
    """Whether each object that a schema takes has to have keys that the schema names."""
    for option in options_of(root, [schema]):
        if is_anything(option):
            return False
        if "object" in types_of(option) and not option.get("required"):
            return False
    return True


def numbers_from_texts(
    data: Any, schema: JsonMapping, root: JsonMapping
) -> Any:
    """Data in which texts are the numbers that they are in JSON, where a schema takes numbers and no texts.

    Args:
        data: JSON data; not changed.
        schema: The schema of the data.
        root: The whole schema, in which references are resolved.

    Returns:
        A copy, or the same object if no text is such a number.
    """
    return _with_numbers(data, options_of(root, [schema]), root)


def _with_numbers(data: Any, options: Options, root: JsonMapping) -> Any:
    if isinstance(data, str):
        return _number_in(data, options)
    if isinstance(data, dict):
        return _object_with_numbers(cast("JsonObject", data), options, root)
    if isinstance(data, list):
        return _list_with_numbers(cast("list[Any]", data), options, root)
    return data


def _object_with_numbers(
    fields: JsonObject, options: Options, root: JsonMapping
) -> JsonObject:
    changed: JsonObject = {}
    for key, item in fields.items():
        inner = options_of(root, schemas_of_key(options, key))
        changed[key] = _with_numbers(item, inner, root)
    if all(map(is_, changed.values(), fields.values())):
        return fields
    return changed


def _list_with_numbers(
    items: list[Any], options: Options, root: JsonMapping
) -> list[Any]:
    changed: list[Any] = []
    for index, item in enumerate(items):
        inner = options_of(root, schemas_of_item(options, index))
        changed.append(_with_numbers(item, inner, root))
    if all(map(is_, changed, items)):
        return items
    return changed


def _number_in(text: str, options: Options) -> Any:
    """The number that a text is, if one of the schemas takes a number and none of them a text."""
    types = types_of_all(options)
    for option in options:
        members = members_of(option)
        if is_anything(option) or any(
            isinstance(member, str) for member in members
        ):
            return text
    if "string" in types or types.isdisjoint({"integer", "number"}):
        return text
    number = exact_number(text, is_integer="number" not in types)
    if number is None:
        return text
    return number
