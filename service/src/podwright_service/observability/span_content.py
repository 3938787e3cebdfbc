"""Contents of spans within the length that the operator allows: texts are cut, and JSON stays JSON."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from typing import Any, cast

from podwright.data.json_data import as_array
from podwright.data.json_forms import to_utf8_text

_VARIABLES = (
    "OTEL_SPAN_ATTRIBUTE_VALUE_LENGTH_LIMIT",
    "OTEL_ATTRIBUTE_VALUE_LENGTH_LIMIT",
)
"""OpenTelemetry's variables of the longest value, in characters, which the SDK would cut anywhere."""
_SHORTEST = 16
"""Characters to which a text is cut before others are left out."""


def _limit() -> int | None:
    for name in _VARIABLES:
        value = os.environ.get(name, "").strip()
        if value.isdecimal():
            return int(value)
    return None


def cut(text: str) -> str:
    """A text in UTF-8, as the exporters need it, cut if it is too long."""
    return to_utf8_text(text[: _limit()])


def to_json(data: Any) -> str:
    """Data as JSON text; if it is too long, with its longest texts cut, and then without its first items."""
    text = _to_text(data)
    limit = _limit()
    if limit is None or len(text) <= limit:
        return text
    length = limit
    while length > _SHORTEST:
        length //= 2
        text = _to_text(_with_short_texts(data, length))
        if len(text) <= limit:
            return text
    if not isinstance(data, list):
        return "{}"
    last: list[str] = []
    left = limit - len("[]")
    for item in reversed(as_array(cast("list[Any]", data))):
        text = _to_text(_with_short_texts(item, _SHORTEST))
        left -= len(text) + len(", ")
        if left < 0:
            break
        last.append(text)
    return f"[{', '.join(reversed(last))}]"


def _to_text(data: Any) -> str:
    return to_utf8_text(json.dumps(data, ensure_ascii=False))


def _with_short_texts(data: Any, length: int) -> Any:
    """The data with no text in it that is longer than this."""
    if isinstance(data, str):
        if len(data) <= length:
            return data
        return f"{data[: length - 1]}…"
    if isinstance(data, Mapping):
        items = cast("Mapping[str, Any]", data).items()
        return {key: _with_short_texts(value, length) for key, value in items}
    if isinstance(data, list):
        return [
            _with_short_texts(item, length) for item in cast("list[Any]", data)
        ]
    return data
