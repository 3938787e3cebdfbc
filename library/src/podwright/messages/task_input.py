"""The input of a task as a value: a text, named inputs, or parts: texts, images, files and audio."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast

from podwright.data.json_data import JsonMapping, to_text
from podwright.data.json_forms import described, refused, to_json_form
from podwright.data.media import media_in, parts_with_media
from podwright.data.names import INPUT, find_name
from podwright.errors import ContextError
from podwright.messages.conversation import parse_content
from podwright.messages.messages import ContentPart, Message
from podwright.messages.templates import names, sections, visible


@dataclass(frozen=True, slots=True)
class TaskInput:
    """The parsed input of a task."""

    content: str | tuple[ContentPart, ...] | None
    """The text, or the parts; None for named inputs."""
    named: JsonMapping
    """The values that templates read, by name; a text, and the text beside other parts, is named `input`."""

    @classmethod
    def parse(cls, data: object) -> TaskInput:
        """Parse an input as a caller gives it.

        Args:
            data: A text, named inputs, or a list of parts.

        Raises:
            ContextError: It is none of these, or not JSON.
            MessagesError: A part of the list is not one of a message.
        """
        if isinstance(data, list):
            content = parse_content(cast("object", data))
            return cls(content, {INPUT: Message("user", content).text})
        named = to_context(data)
        if isinstance(data, str):
            return cls(to_text(data), named)
        return cls(None, named)

    def message(self, instructions: str = "") -> Message:
        """Return the user's message; named inputs without those that the instructions use, and with all media.

        Args:
            instructions: A template that the named inputs fill.
        """
        if self.content is not None:
            return Message("user", self.content)
        named = self.named
        found = [find_name(name, named) for name in names(instructions)]
        used = [
            name
            for name in found
            if name is not None and not media_in(named[name])
        ]
        shown = visible(named, leave_out=used)
        text = sections(shown)
        if not text:
            # a chat needs a user message
            shown = visible(named)
            text = sections(shown)
        media = [part for value in shown.values() for part in media_in(value)]
        if not media:
            return Message("user", text)
        parts: list[Any] = [{"type": "text", "text": text}, *media]
        if len(shown) == 1:
            parts = parts_with_media(next(iter(shown.values())))
        return Message("user", parse_content(parts))


def by_name(data: Any) -> JsonMapping:
    """Return an input as named inputs, unchecked; anything but named inputs is the input `input`."""
    if isinstance(data, Mapping):
        return cast("JsonMapping", data)
    return {INPUT: data}


def to_context(data: object) -> JsonMapping:
    """Return a text or named inputs as named inputs.

    Raises:
        ContextError: The input is neither text nor named inputs.
    """
    if not isinstance(data, str | Mapping):
        raise ContextError(
            f"The input must be a string or an object of named inputs, not {type(data).__name__}.",
            suggestion="Pass a string, or named inputs such as {'input': …}.",
        )
    context = by_name(cast("object", data))
    if not context:
        raise ContextError(
            "The object of named inputs is empty.",
            suggestion="Name at least one input.",
        )
    for name, value in context.items():
        _check_input(name, value)
    return context


def _describe_input(value: object) -> str:
    """Describe a part of an input without a JSON form; data that is binary is a mistake.

    Raises:
        NoJsonFormError: It is binary.
    """
    if isinstance(value, bytes | bytearray):
        return refused(value)
    return described(value)


def _check_input(name: object, value: object) -> None:
    if not isinstance(name, str):
        raise ContextError(
            f"The name of an input must be a string, not {name!r}."
        )
    try:
        if type(value) is not str:
            value = to_text(to_json_form(value, _describe_input))
        value.encode()
    except (ValueError, RecursionError, TypeError) as error:
        raise ContextError(
            f"The input '{name}' is not JSON: {error}.",
            suggestion="Pass JSON data, with texts that can be encoded as UTF-8.",
        ) from error
