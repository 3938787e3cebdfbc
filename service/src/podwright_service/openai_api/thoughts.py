"""Thoughts that a client of Responses keeps for the next request, because nothing is stored here."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from itertools import islice
from typing import Any

from podwright.data.json_data import as_object, to_json_bytes, values_in
from podwright.messages.conversation import PROVIDER
from podwright.schemas.json_schema import MAX_VALUES

_MARK = "podwright.1."
_OWN_KEYS = ("role", "tool_calls", "tool_call_id")
"""What the client has of a message by itself. Its content, too, unless that has other parts than texts."""


def seal(fields: Mapping[str, Any], provider: str) -> str | None:
    """The further fields of an assistant's message as the `encrypted_content` of a reasoning item; None without any.

    It is encoded, not encrypted: it is sent only where thoughts are shown.
    """
    further = {
        key: value for key, value in fields.items() if key not in _OWN_KEYS
    }
    if not further:
        return None
    if provider:
        further[PROVIDER] = provider
    encoded = base64.urlsafe_b64encode(to_json_bytes(further))
    return _MARK + encoded.decode()


def unseal(text: object) -> dict[str, Any]:
    """The further fields in an `encrypted_content`; none if it is not from `seal`, but of another service."""
    if not isinstance(text, str) or not text.startswith(_MARK):
        return {}
    encoded = text.removeprefix(_MARK)
    try:
        # unlike orjson, it reads the lone surrogates that a model may write
        data = json.loads(base64.urlsafe_b64decode(encoded))
    except (ValueError, RecursionError):
        return {}
    if _is_too_large(data):
        return {}
    further = as_object(data)
    return {
        key: value for key, value in further.items() if key not in _OWN_KEYS
    }


def _is_too_large(data: object) -> bool:
    beyond = islice(values_in(data), MAX_VALUES, None)
    return any(True for _ in beyond)
