"""Images, files and audio among the values of a run: content as Chat Completions has it, `{"type": "file", …}`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from podwright.data.json_data import (
    JsonMapping,
    JsonObject,
    as_array,
    as_object,
    to_text,
)

_KINDS = {"image_url": "image", "file": "file", "input_audio": "audio"}
"""What the types of parts are called that are no texts."""
_DATA_KEYS = {"file": "file_data", "input_audio": "data"}
"""The keys without which an object of that type is any data, and no part."""


def parts_with_media(value: object) -> list[Any]:
    """Return the parts of a value that is an image, a file or audio, or a list of such parts and texts.

    Of any other value, and of a list of nothing but texts, there are none.
    """
    parts = as_array(value) or [value]
    if not all(_is_part(part) for part in parts):
        return []
    if not any(_is_media(part) for part in parts):
        return []
    return parts


def media_in(value: object) -> list[JsonObject]:
    """Return the images, files and audio of a value, in order; none if it is anything else."""
    return [part for part in parts_with_media(value) if _is_media(part)]


def to_shown_text(value: Any) -> str:
    """Return a value as text, in which a word stands for each image, file and audio."""
    parts = parts_with_media(value)
    if not parts:
        return to_text(value)
    return "\n".join(map(_text_of_part, parts))


def shown_inputs(value: Any) -> Any:
    """Return named inputs with words for images, files and audio; any other value as it is."""
    if not isinstance(value, Mapping):
        return value
    named = cast("JsonMapping", value)
    return {
        name: to_shown_text(item) if media_in(item) else item
        for name, item in named.items()
    }


def shown_output(value: Any, data: Any) -> Any:
    """Return the output of a run with words for the images, files and audio of a context.

    Args:
        value: The output; of a workflow a context of texts, in which such values are JSON.
        data: The output as data, if it is more than texts.
    """
    if not isinstance(value, Mapping):
        return value
    texts = cast("JsonMapping", value)
    return {
        name: to_shown_text(item)
        if media_in(item := as_object(data).get(name))
        else text
        for name, text in texts.items()
    }


def shown_part(part: JsonObject) -> str:
    """Return what stands for an image, a file or audio in a text: `[image]`, `[file: report.pdf]`."""
    kind = part["type"]
    name = part[kind].get("filename")
    if isinstance(name, str):
        return f"[{_KINDS[kind]}: {name}]"
    return f"[{_KINDS[kind]}]"


def _text_of_part(part: Any) -> str:
    if _is_media(part):
        return shown_part(part)
    return str(part.get("text", ""))


def _is_part(part: object) -> bool:
    kind = as_object(part).get("type")
    return kind in ("text", "image_url") or _is_media(part)


def _is_media(part: object) -> bool:
    data = as_object(part)
    kind = data.get("type")
    if not isinstance(kind, str) or kind not in _KINDS:
        return False
    content = data.get(kind)
    if not isinstance(content, dict):
        return False
    return kind not in _DATA_KEYS or _DATA_KEYS[kind] in content
