"""The thoughts of a model, as far as its provider shows them."""

from __future__ import annotations

from collections.abc import Iterator

from podwright.data.json_data import JsonMapping, as_array, as_object

_TEXTS = ("reasoning_content", "reasoning")
"""Fields of a message that are thoughts as a text: most providers; OpenRouter, vLLM, Groq."""
_LISTS = ("reasoning_details", "thinking_blocks", "content")
"""Fields that are lists of thoughts: OpenRouter; LiteLLM for Anthropic; Mistral, among the parts of the content."""
_PARTS = ("text", "thinking", "summary")
"""What holds the text of a thought in such a list."""


def reasoning_text(fields: JsonMapping) -> str:
    """The text of the thoughts in the further fields of a message, or of a piece of one; for people to read."""
    for name in _TEXTS:
        text = fields.get(name)
        if text and isinstance(text, str):
            return text
    for name in _LISTS:
        text = "".join(_thoughts_in(fields.get(name)))
        if text:
            return text
    return ""


def _thoughts_in(parts: object) -> Iterator[str]:
    for part in as_array(parts):
        fields = as_object(part)
        if fields.get("type") != "text":
            yield _text_of(fields)


def _text_of(part: JsonMapping) -> str:
    for name in _PARTS:
        value = part.get(name)
        if value and isinstance(value, str):
            return value
        text = "".join(_texts_in(value))
        if text:
            return text
    return ""


def _texts_in(parts: object) -> Iterator[str]:
    for part in as_array(parts):
        text = as_object(part).get("text")
        if text:
            yield str(text)
