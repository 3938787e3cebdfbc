"""Arguments of tool calls: their validation, and the repair of those whose meaning is certain.

Models write a list as JSON text, a number of an enumeration in quotes, or one element where a list is expected, and
repeat it when it is refused. Such a value has one meaning only, so it is taken. The rules:

- pydantic decides. What it takes is never changed, and a repair that it does not take is dropped.
- Only values that pydantic names as wrong are changed. Where free text is allowed, text stays as it is.
- What may mean two things, or would lose something that the model asked for, is refused.
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, cast

from pydantic import TypeAdapter, ValidationError
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaWarningKind

from podwright.data.json_data import (
    JsonMapping,
    JsonObject,
    as_array,
    as_object,
    nested_deeper,
)
from podwright.data.model_json import UnreadableJsonError, strip, whole_document
from podwright.schemas.options import (
    Options,
    is_anything,
    members_of,
    options_of,
    schemas_of_item,
    schemas_of_key,
    types_of,
    types_of_all,
)
from podwright.schemas.validation_errors import resolve

MAX_ROUNDS = 16
"""Most repairs of one call. Each opens one level of JSON text inside JSON text."""

_MEMBER_NAMES = "x-member-names"
"""Keyword with the names of an enumeration's members, in the order of its `enum`."""
_WRAPPERS = frozenset(
    {
        "arguments",
        "args",
        "kwargs",
        "parameters",
        "params",
        "input",
        "tool_input",
        "properties",
    }
)
"""Keys under which models put all arguments once more, besides the name of the tool."""
_REMARKS = frozenset({
    "reason", "reasons", "reasoning", "rationale", "explanation", "justification", "thought", "thoughts", "thinking",
})  # fmt: skip
"""Keys under which models explain a call. Another unknown key may restrict what a tool is to do, as `dry_run` does."""
_WORDS: JsonObject = {"true": True, "false": False, "null": None, "none": None}
"""Words of JSON and Python, in lower case."""
_TEXT_OF_OTHER_TYPES = frozenset(
    {"date", "date-time", "time", "duration", "uuid"}
)
"""Formats of texts that are not free text."""
_SEVERAL = re.compile(r"[,;\n]")
"""What may separate the elements of a list in a text."""
_MAX_LITERAL = 10_000
"""Characters of a text that is read as a Python literal."""
_NOTHING = object()


def validate_arguments(
    adapter: TypeAdapter[JsonObject],
    arguments: JsonObject,
    tool: str,
) -> JsonObject:
    """The values of a tool's parameters, after repairs if the arguments do not fit as they are.

    Args:
        adapter: The type of the arguments.
        arguments: JSON data; not changed.
        tool: The name of the tool.

    Raises:
        ValidationError: The arguments do not fit, and no repair is certain. It is about the arguments as they came.
    """
    try:
        return adapter.validate_python(arguments)
    except ValidationError as error:
        first_error = error
    repair = _Repair(_schema_with_names(adapter), tool)
    data = arguments
    error = first_error
    for _ in range(MAX_ROUNDS):
        try:
            # strict types take a date, for example, from JSON text only
            return adapter.validate_json(json.dumps(data))
        except ValidationError:
            repaired = repair.apply(data, error)
        if repaired is data or nested_deeper(repaired):
            break
        data = repaired
        try:
            return adapter.validate_python(data)
        except ValidationError as next_error:
            error = next_error
    raise first_error


class _SchemaWithNames(GenerateJsonSchema):
    """A JSON JsonMapping that says what repairs need to know, and no model sees."""

    def enum_schema(self, schema: Any) -> JsonObject:
        names = [member.name for member in schema["members"]]
        return {**super().enum_schema(schema), _MEMBER_NAMES: names}

    def decimal_schema(self, schema: Any) -> JsonObject:
        """A number: its text is not free text."""
        return {"type": "number"}

    def emit_warning(self, kind: JsonSchemaWarningKind, detail: str) -> None:
        """Ignore defaults without a JSON form."""


@lru_cache(maxsize=256)
def _schema_with_names(adapter: TypeAdapter[Any]) -> JsonObject:
    return adapter.json_schema(schema_generator=_SchemaWithNames)


@dataclass(slots=True)
class _Place:
    """A place in the arguments that validation has named."""

    is_wrong: bool = False
    """Whether the value here is wrong, not only values inside it."""
    inside: dict[str | int, _Place] = field(
        default_factory=dict[str | int, "_Place"]
    )


def _wrong_places(error: ValidationError, data: object) -> _Place:
    root = _Place()
    problems = error.errors(
        include_url=False, include_context=False, include_input=False
    )
    for problem in problems:
        place = root
        parts, _ = resolve(data, problem["loc"])
        for part in parts:
            place = place.inside.setdefault(part, _Place())
        place.is_wrong = True
    return root


class _Repair:
    """Repairs the arguments of one tool, one level of nested text at a time.

    Args:
        schema: The JSON JsonMapping of the arguments, with `_MEMBER_NAMES`.
        tool: The name of the tool.
    """

    def __init__(self, schema: JsonMapping, tool: str) -> None:
        self._schema = schema
        self._tool = tool

    def apply(
        self, arguments: JsonObject, error: ValidationError
    ) -> JsonObject:
        """The arguments with the values that an error names repaired; the same object if no repair is certain."""
        place = _wrong_places(error, arguments)
        options = options_of(self._schema, [self._schema])
        unwrapped = self._unwrap(arguments, options)
        if unwrapped is not arguments:
            return unwrapped
        return self._repair_object(arguments, options, place)

    def _unwrap(self, arguments: JsonObject, options: Options) -> JsonObject:
        """The arguments inside `{"arguments": {…}}`, or inside a whole call `{"name": …, "arguments": {…}}`."""
        known: set[str] = set()
        for option in options:
            known.update(as_object(option.get("properties")))
        possible = {*_WRAPPERS, self._tool} - known
        wrappers = [key for key in arguments if key in possible]
        if len(wrappers) != 1:
            return arguments
        others = dict(arguments)
        inner = others.pop(wrappers[0])
        names_the_tool = "name" not in known and others == {"name": self._tool}
        if others and not names_the_tool:
            return arguments
        if isinstance(inner, str):
            inner = _read(inner)
        if isinstance(inner, dict):
            return cast("JsonObject", inner)
        return arguments

    def _repair_value(
        self,
        value: Any,
        schemas: Options,
        place: _Place,
        *,
        in_list: bool,
    ) -> Any:
        options = options_of(self._schema, schemas)
        if place.is_wrong:
            converted = self._convert(value, options, in_list=in_list)
            if converted is not value:
                return converted
        if isinstance(value, dict):
            return self._repair_object(
                cast("JsonObject", value), options, place
            )
        if isinstance(value, list):
            return self._repair_list(cast("list[Any]", value), options, place)
        return value

    def _repair_object(
        self,
        value: JsonObject,
        options: Options,
        place: _Place,
    ) -> JsonObject:
        options = _matching_constants(value, options)
        changed = dict(value)
        is_changed = False
        for key, inner in place.inside.items():
            if not isinstance(key, str) or key not in value:
                continue
            item = value[key]
            repaired = item
            schemas = schemas_of_key(options, key)
            if schemas:
                repaired = self._repair_value(
                    item, schemas, inner, in_list=False
                )
            if repaired is not item:
                changed[key] = repaired
                is_changed = True
            elif inner.is_wrong and self._means_nothing(
                key, item, options=options, schemas=schemas
            ):
                del changed[key]
                is_changed = True
        if not is_changed:
            return value
        return changed

    def _means_nothing(
        self,
        key: str,
        item: Any,
        options: Options,
        schemas: Options,
    ) -> bool:
        """Whether a key can be left out: it is unset, or only explains the call."""
        if not schemas:
            return item is None or _is_remark(key, item)
        if _is_required(key, options):
            return False
        if item is None:
            return True
        if any(
            _is_free_text(option)
            for option in options_of(self._schema, schemas)
        ):
            return False
        return _read(item) is None

    def _repair_list(
        self,
        value: list[Any],
        options: Options,
        place: _Place,
    ) -> list[Any]:
        changed = list(value)
        is_changed = False
        for index, inner in place.inside.items():
            if not isinstance(index, int) or index >= len(value):
                continue
            item = value[index]
            schemas = schemas_of_item(options, index)
            repaired = self._repair_value(item, schemas, inner, in_list=True)
            if repaired is not item:
                changed[index] = repaired
                is_changed = True
        if not is_changed:
            return value
        return changed

    def _convert(self, value: Any, options: Options, *, in_list: bool) -> Any:
        """A wrong value as one of the type that a schema asks for; the same object if its meaning is not certain.

        Args:
            value: The value.
            options: The schemas of which it may fit any.
            in_list: Whether it is an item of a list. It is then not put into a list of its own: `[1, 2]` for a list of
                lists may be one list of two, or two of one.
        """
        if any(is_anything(option) for option in options):
            return value
        is_text = isinstance(value, str)
        if is_text and any(_is_free_text(option) for option in options):
            return value
        member = _meant_member(value, options)
        if member is not _NOTHING:
            return member
        data = value
        if is_text:
            data = _read(value)
        types = types_of_all(
            option for option in options if not members_of(option)
        )
        if _fits_type(data, types):
            if _is_whole_float(data) and "number" not in types:
                return int(data)
            return data
        if in_list or data is None or "array" not in types:
            return value
        items = options_of(self._schema, schemas_of_item(options, 0))
        return self._as_only_item(value, data, items)

    def _as_only_item(self, value: Any, data: Any, items: Options) -> Any:
        """A list with one value; the value itself if it may be several, or cannot be an item.

        Args:
            value: The value.
            data: What it reads as, if it is JSON text.
            items: The schemas of which an item may fit any.
        """
        converted = self._convert(value, items, in_list=True)
        if converted is not value:
            return [converted]
        takes_anything = any(is_anything(item) for item in items)
        if isinstance(value, str) and isinstance(data, dict) and takes_anything:
            return [data]
        if isinstance(value, str) and not _is_one_element(value):
            return value
        if takes_anything or _fits_type(value, types_of_all(items)):
            return [value]
        return value


def _matching_constants(value: JsonMapping, options: Options) -> Options:
    """The options whose constants, such as the tag of a union's member, the object has; all if none is left."""
    matching = [option for option in options if _has_constants(value, option)]
    return matching or options


def _has_constants(value: JsonMapping, option: JsonMapping) -> bool:
    for key, schema in as_object(option.get("properties")).items():
        if key not in value:
            continue
        members = members_of(as_object(schema))
        if members and value[key] not in members:
            return False
    return True


def _is_required(key: str, options: Iterable[JsonMapping]) -> bool:
    for option in options:
        if key in as_array(option.get("required")):
            return True
    return False


def _is_remark(key: str, item: object) -> bool:
    """Whether an item of this key only explains the call."""
    word = key.strip("_").lower()
    return isinstance(item, str) and word in _REMARKS


def _is_free_text(schema: JsonMapping) -> bool:
    if is_anything(schema):
        return True
    if "string" not in types_of(schema) or members_of(schema):
        return False
    return schema.get("format") not in _TEXT_OF_OTHER_TYPES


def _fits_type(data: Any, types: set[str]) -> bool:
    match data:
        case None:
            return "null" in types
        case bool():
            return "boolean" in types
        case int():
            return not types.isdisjoint({"integer", "number"})
        case float() if not data.is_integer():
            return "number" in types
        case float():
            return not types.isdisjoint({"integer", "number"})
        case str():
            return "string" in types
        case list():
            return "array" in types
        case dict():
            return "object" in types
        case _:
            return False


def _meant_member(value: Any, options: Iterable[JsonMapping]) -> Any:
    """The member of an enumeration that a value means by its text, its number or its name; `_NOTHING` if not one."""
    equal: list[Any] = []
    named: list[Any] = []
    for option in options:
        members = members_of(option)
        equal += [
            member for member in members if _is_same_scalar(member, value)
        ]
        if isinstance(value, str):
            named += _members_named(value, option)
    return _only_one(equal or named)


def _members_named(text: str, schema: JsonMapping) -> Iterator[Any]:
    """The members of an enumeration that have this name."""
    wanted = text.strip().lower()
    names = schema.get(_MEMBER_NAMES, ())
    for name, member in zip(names, members_of(schema), strict=False):
        if name.lower() == wanted:
            yield member


def _only_one(members: Sequence[Any]) -> Any:
    """The member that all of these are; `_NOTHING` if they differ, or there are none."""
    if not members:
        return _NOTHING
    first = members[0]
    for member in members:
        if type(member) is not type(first) or member != first:
            return _NOTHING
    return first


def _is_same_scalar(member: Any, value: Any) -> bool:
    """Whether a value of another JSON type means a member: `"60"` or `60.0` for 60, `1` for `"1"`."""
    if type(member) is type(value):
        return False
    if isinstance(member, str):
        is_scalar = isinstance(value, bool | int | float)
        return is_scalar and member == json.dumps(value)
    data = value
    if isinstance(value, str):
        data = _read(value)
    if member != data:
        return False
    if _is_number(member) and _is_number(data):
        return True
    return type(member) is type(data)


def _is_one_element(text: str) -> bool:
    """Whether a text cannot be several elements of a list."""
    stripped = text.strip()
    if not stripped or stripped.startswith(("[", "{")):
        return False
    return _SEVERAL.search(text) is None


def _is_number(value: object) -> bool:
    if isinstance(value, bool):
        return False
    return isinstance(value, int | float)


def _is_whole_float(value: object) -> bool:
    return isinstance(value, float) and value.is_integer()


def _read(text: object) -> Any:
    """The JSON data in a text, or that of a Python literal; `_NOTHING` if it has none."""
    if not isinstance(text, str):
        return _NOTHING
    stripped = strip(text)
    if stripped.lower() in _WORDS:
        return _WORDS[stripped.lower()]
    try:
        data = whole_document(stripped).data
    except UnreadableJsonError:
        return _read_literal(stripped)
    if isinstance(data, str):
        return _read(data)
    return data


def _read_literal(text: str) -> Any:
    """The data in a list or an object that is written as in Python: `"['a', None]"`."""
    if not text.startswith(("[", "{")):
        return _NOTHING
    if len(text) > _MAX_LITERAL:
        return _NOTHING
    try:
        data = ast.literal_eval(text)
        copy = json.loads(json.dumps(data, allow_nan=False))
        is_json = copy == data
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        return _NOTHING
    if not is_json:
        return _NOTHING
    return data
