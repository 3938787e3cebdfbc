"""Problem documents of a service (RFC 9457), whose members may have any type."""

from __future__ import annotations

import math

import orjson

from podwright.data.json_data import JsonMapping, JsonObject, as_object


def parse_problem(data: bytes) -> JsonObject:
    """Return the problem document in the body of a response; empty if it is none."""
    try:
        return as_object(orjson.loads(data))
    except orjson.JSONDecodeError:
        return {}


def text_of(problem: JsonMapping, key: str) -> str:
    """Return a text of a problem document; empty if it has none."""
    value = problem.get(key)
    if isinstance(value, str):
        return value
    return ""


def wait_of(problem: JsonMapping) -> float | None:
    """Return the seconds after which the same request may succeed; None if the document names none."""
    seconds = problem.get("retry_after")
    if isinstance(seconds, bool) or not isinstance(seconds, int | float):
        return None
    if 0 <= seconds < math.inf:
        return float(seconds)
    return None
