"""The thoughts of a model, as far as its provider shows them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from podwright.json_data import as_array, as_object

_TEXTS = ("reasoning_content", "reasoning")
"""Fields of a message that are thoughts as a text: most providers; OpenRouter, vLLM, Groq."""
_LISTS = ("reasoning_details", "thinking_blocks", "content")
"""Fields that are lists of thoughts: OpenRouter; LiteLLM for Anthropic; Mistral, among the parts of the content."""
_PARTS = ("text", "thinking", "summary")
"""What holds the text of a thought in such a list."""


def reasoning_text(fields: Mapping[str, Any]) -> str:
    """The text of the thoughts in the further fields of a message, or of a piece of one; for people to read."""
    for name in _TEXTS:
        text = fields.get(name)
        if text and isinstance(text, str):
            return text
    for name in _LISTS:
        parts = [
            part
            for part in map(as_object, as_array(fields.get(name)))
            if part.get("type") != "text"
        ]
        if text := "".join(map(_text_of, parts)):
            return text
    return ""


def _text_of(part: Mapping[str, Any]) -> str:
    for name in _PARTS:
        value = part.get(name)
        if value and isinstance(value, str):
            return value
        if texts := "".join(
            str(as_object(inner).get("text") or "") for inner in as_array(value)
        ):
            return texts
    return ""
