"""Images among the values of a run: content as Chat Completions has it, `{"type": "image_url", "image_url": {…}}`."""

from __future__ import annotations

from typing import Any

from podwright.data.json_data import JsonObject, as_array, as_object, to_text

_PART_TYPES = ("text", "image_url")
_SHOWN = "[image]"
"""What stands for an image in a text."""


def parts_with_images(value: object) -> list[Any]:
    """The parts of a value that is an image, or a list of texts and images with at least one; empty for any other."""
    parts = as_array(value) or [value]
    if not all(as_object(part).get("type") in _PART_TYPES for part in parts):
        return []
    if not any(_is_image(part) for part in parts):
        return []
    return parts


def images_in(value: object) -> list[JsonObject]:
    """The images of a value, in order; none if it is not image content."""
    return [part for part in parts_with_images(value) if _is_image(part)]


def to_shown_text(value: Any) -> str:
    """A value as text, in which a word stands for each image."""
    parts = parts_with_images(value)
    if not parts:
        return to_text(value)
    return "\n".join(map(_text_of_part, parts))


def _text_of_part(part: Any) -> str:
    if _is_image(part):
        return _SHOWN
    return str(part.get("text", ""))


def _is_image(part: object) -> bool:
    data = as_object(part)
    image = data.get("image_url")
    return data.get("type") == "image_url" and isinstance(image, dict)
