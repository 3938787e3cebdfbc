"""The definitions of MCP tools: read within limits, cleaned, compared."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, NoReturn, cast

from podwright.blueprints.files import digest
from podwright.data.json_data import (
    JsonMapping,
    JsonObject,
    as_array,
    as_object,
    json_pointer,
    to_exact_json_data,
    to_json_bytes,
    walk_json,
)
from podwright.data.text import short_repr, truncate
from podwright.errors import ToolDefinitionError

MAX_NAME = 128
"""Characters of a tool's name."""
MAX_TITLE = 256
"""Characters of a title; what is longer is cut."""
MAX_DESCRIPTION = 4096
"""Characters of a description; what is longer is cut."""
MAX_SCHEMA = 64 * 1024
"""Bytes of a schema, and of the annotations, as JSON."""
MAX_DEPTH = 32
"""Levels of the nesting of a schema."""
_REFERENCES = ("$ref", "$dynamicRef")
_SHOWN_TEXTS = ("title", "description")
"""Keywords of a schema whose texts a model reads."""
_KEPT = "\n\t\u200c\u200d"
"""Characters without a glyph that texts need: the last two join and separate letters in Persian and Hindi."""
_REMOVED = ("Cc", "Cf", "Cs")
"""Unicode's categories of control, format (bidi, tags, zero width) and half characters."""
_SUGGESTION = "Correct the tool in its server, or do not use this tool."


@dataclass(frozen=True, slots=True)
class ToolDefinition:
    """The definition of one tool of an MCP server, without characters that a reader does not see."""

    name: str
    title: str | None = None
    description: str = ""
    input_schema: JsonObject = field(default_factory=JsonObject)
    """The JSON Schema of the arguments, the root of which is an object."""
    output_schema: JsonObject | None = None
    """The JSON Schema of the data of results; None if the tool promises none."""
    annotations: JsonObject = field(default_factory=JsonObject)
    """The server's hints, such as `readOnlyHint`; they are not trusted."""

    @classmethod
    def read(cls, data: JsonMapping) -> ToolDefinition:
        """Read a definition as servers send it, or as a lock has it.

        Args:
            data: JSON data with the keys `name`, `title`, `description`, `inputSchema`, `outputSchema` and
                `annotations`; others are ignored.

        Raises:
            ToolDefinitionError: A value is missing or of a wrong type, exceeds a limit, or refers to another document.
        """
        name = _read_name(data.get("name"))
        title = _read_text(name, data, "title")
        input_schema = _read_object(name, data, "inputSchema")
        if input_schema.get("type") != "object":
            _refuse(name, "inputSchema", "is not the schema of an object")
        output_schema = None
        if data.get("outputSchema") is not None:
            output_schema = _read_object(name, data, "outputSchema")
        annotations = JsonObject()
        if data.get("annotations") is not None:
            annotations = _read_object(name, data, "annotations")
        return cls(
            name,
            truncate(title, MAX_TITLE) or None,
            truncate(_read_text(name, data, "description"), MAX_DESCRIPTION),
            input_schema,
            output_schema,
            annotations,
        )

    def to_data(self) -> JsonObject:
        """Return the definition as JSON data, as `read` takes it; without keys that have no value."""
        data: JsonObject = {
            "name": self.name,
            "title": self.title,
            "description": self.description or None,
            "inputSchema": self.input_schema,
            "outputSchema": self.output_schema,
            "annotations": self.annotations or None,
        }
        return {key: value for key, value in data.items() if value is not None}

    @property
    def digest(self) -> str:
        """`sha256:` and 64 hexadecimal digits over the canonical JSON."""
        return digest(self.to_data())

    def differences(self, live: ToolDefinition) -> list[str]:
        """Return the differences to the definition that a server has now.

        Args:
            live: The server's definition.

        Returns:
            JSON pointers into this definition, such as `/description`. No text of the other one is in them: of an
            addition, the pointer is that of the object or array around it, and the words "(added)" follow.
        """
        return list(_differences(self.to_data(), live.to_data(), ""))


def clean(text: str) -> str:
    """Return a text without control, bidi and tag characters, and without halves of characters."""
    return "".join(
        char
        for char in text
        if char in _KEPT or unicodedata.category(char) not in _REMOVED
    )


def _read_name(name: object) -> str:
    if not isinstance(name, str) or not name:
        raise ToolDefinitionError(
            "A tool of an MCP server has no name.", suggestion=_SUGGESTION
        )
    if len(name) > MAX_NAME:
        raise ToolDefinitionError(
            f"The name of the MCP tool {short_repr(name)} has {len(name)} characters; the limit is {MAX_NAME}.",
            suggestion=_SUGGESTION,
        )
    if not name.isprintable() or clean(name) != name:
        raise ToolDefinitionError(
            f"The name of the MCP tool {name!a} has characters that cannot be seen.",
            suggestion=_SUGGESTION,
        )
    return name


def _read_text(name: str, data: JsonMapping, key: str) -> str:
    value = data.get(key)
    if value is None:
        return ""
    if not isinstance(value, str):
        _refuse(name, key, "is not a text")
    return clean(value)


def _read_object(name: str, data: JsonMapping, key: str) -> JsonObject:
    value = as_object(data.get(key))
    if not isinstance(data.get(key), dict):
        _refuse(name, key, "is not an object")
    for pointer, part, depth in walk_json(value):
        if depth > MAX_DEPTH:
            _refuse(name, key, f"is nested deeper than {MAX_DEPTH} levels")
        for keyword in _REFERENCES:
            reference = as_object(part).get(keyword)
            if isinstance(reference, str) and not reference.startswith("#"):
                place = json_pointer(key) + pointer + json_pointer(keyword)
                raise ToolDefinitionError(
                    f"The MCP tool '{name}' refers to another document at '{truncate(place, 200)}': "
                    f"{short_repr(reference)}. Only references into the schema itself ('#/…') are followed."
                )
    size = len(to_json_bytes(value))
    if size > MAX_SCHEMA:
        _refuse(name, key, f"has {size} bytes; the limit is {MAX_SCHEMA}")
    try:
        return to_exact_json_data(_without_unseen(value))
    except (TypeError, ValueError):
        _refuse(name, key, "has a value that JSON does not have")


def _without_unseen(value: Any) -> Any:
    """Return a copy of a schema, with the texts that a model reads cleaned."""
    if isinstance(value, list):
        return list(map(_without_unseen, as_array(cast("object", value))))
    if not isinstance(value, dict):
        return value
    copied = JsonObject()
    for key, item in cast("JsonObject", value).items():
        if key in _SHOWN_TEXTS and isinstance(item, str):
            copied[key] = clean(item)
        else:
            copied[key] = _without_unseen(item)
    return copied


def _refuse(name: str, key: str, fault: str) -> NoReturn:
    raise ToolDefinitionError(
        f"'{key}' of the MCP tool '{name}' {fault}.", suggestion=_SUGGESTION
    )


def _differences(locked: Any, live: Any, pointer: str) -> Iterator[str]:
    if isinstance(locked, dict) and isinstance(live, dict):
        old = cast("JsonObject", locked)
        new = cast("JsonObject", live)
        for key, value in old.items():
            place = pointer + json_pointer(key)
            if key in new:
                yield from _differences(value, new[key], place)
            else:
                yield place
        if new.keys() - old.keys():
            yield f"{pointer or '/'} (added)"
    elif to_json_bytes(locked) != to_json_bytes(live):
        yield pointer
