"""What providers and the gateways before them write when they refuse a request: one reader for all shapes.

The shapes in use: `{"error": {…}}`, `{"error": "…"}`, the same in a list (Google), the object itself without `error`
(vLLM, gateways), `{"detail": …}` (FastAPI, as a text or a list of problems), a text, a page of a proxy, each of them
perhaps as a server-sent event.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, cast

import orjson

from podwright.data.json_data import (
    JsonMapping,
    JsonObject,
    as_array,
    as_object,
    to_text,
)
from podwright.models.http.sse import EventParser
from podwright.models.retries import retry_after, seconds_of

_MAX_TEXT = 4_000
"""Characters of a page or a text that are read."""
_INNER = (
    "error",
    "errors",
    "base_resp",
    "response",
    "detail",
    "fault",
    "header",
)
"""Keys under which an object has the error itself."""
_MESSAGES = (
    "message",
    "Message",
    "detail",
    "error_description",
    "description",
    "msg",
    "status_msg",
    "title",
    "reason",
    "faultstring",
    "err_msg",
    "error_msg",
)
_CODES = (
    "code",
    "error_code",
    "errorCode",
    "status_code",
    "statusCode",
    "http_code",
    "err_code",
)
_TYPES = ("type", "error_type")
_PARAMETERS = ("param", "parameter")
_GRPC = ("status",)
_DELAYS = ("retryDelay", "retry_after", "retry_after_seconds", "retryAfter")
_MAX_PROBLEMS = 20
_TAG = re.compile(
    r"<(script|style)\b.*?</\1>|<[^>]*>", re.IGNORECASE | re.DOTALL
)
_STATUS_OF_CODE = {
    "invalid_api_key": 401,
    "authentication_error": 401,
    "unauthenticated": 401,
    "permission_denied": 403,
    "insufficient_quota": 429,
    "rate_limit_exceeded": 429,
    "rate_limit_error": 429,
    "resource_exhausted": 429,
    "context_length_exceeded": 400,
    "invalid_request_error": 400,
    "content_filter": 400,
    "invalid_argument": 400,
    "badrequesterror": 400,
    "failed_precondition": 400,
    "tool_use_failed": 400,
    "not_found": 404,
    "notfounderror": 404,
    "model_not_found": 404,
    "deadline_exceeded": 504,
    "gatewaytimeout": 504,
    "unavailable": 503,
    "overloaded_error": 503,
    "overloaded": 429,
    "exceed_context_size_error": 400,
}
"""Statuses of codes, types and gRPC statuses, in lower case."""


@dataclass(frozen=True, slots=True)
class ErrorBody:
    """The error of a provider, as far as it can be read."""

    code: str = ""
    type: str = ""
    param: str = ""
    message: str = ""
    reasons: tuple[str, ...] = ()
    """Further codes; for searching only."""
    status: int | None = None
    """The HTTP status that it names or stands for; None if it names none."""
    retry_after: float | None = None
    """Seconds to wait before the next request, if it names them."""
    failed_generation: str = ""
    """What the model wrote, if that is what the provider refuses."""

    @property
    def search_text(self) -> str:
        """Everything that tells errors apart, in lower case and with spaces for underscores.

        It is for searching only, because it may quote the request.
        """
        parts = [self.code, self.type, self.message, *self.reasons]
        text = " ".join(filter(None, parts))
        return text.lower().replace("_", " ")


def is_object(data: object) -> bool:
    """Whether data is an object, or a list with one, as errors are."""
    if isinstance(data, dict):
        return True
    for item in as_array(data):
        if isinstance(item, dict):
            return True
    return False


def read_error(data: object) -> ErrorBody:
    """The error in a response.

    Args:
        data: The body as bytes, a text, or the JSON data in it.
    """
    if isinstance(data, bytes):
        data = _parse(data)
    if isinstance(data, list):
        return _read_first(cast("list[object]", data))
    if isinstance(data, dict):
        return _read_object(as_object(cast("Any", data)))
    if data is None:
        return ErrorBody()
    return ErrorBody(message=_plain(str(data)))


def _read_first(items: list[object]) -> ErrorBody:
    """The error in the first object of a list; in its first item if it has none."""
    if not items:
        return ErrorBody()
    objects = [item for item in items if as_object(item)]
    if objects:
        return read_error(objects[0])
    return read_error(items[0])


def _read_object(fields: JsonObject) -> ErrorBody:
    for key in _INNER:
        inner = fields.get(key)
        if _has_error_in(fields, key):
            return _with_code_of(fields, read_error(inner))
        if key == "error" and inner and isinstance(inner, str):
            # `{"error": "…", "code": …}` of some gateways
            fields = {"message": inner, **fields}
    return _read_fields(fields)


def _has_error_in(fields: JsonMapping, key: str) -> bool:
    inner = fields.get(key)
    if not inner:
        return False
    if not isinstance(inner, dict | list):
        return False
    if key == "error":
        return True
    if key == "detail" and isinstance(inner, list):  # a list of problems
        return False
    return not isinstance(fields.get("message"), str)


def _with_code_of(fields: JsonMapping, error: ErrorBody) -> ErrorBody:
    """The error with the code of the object around it, if it has none of its own."""
    code = error.code or _first(fields, _CODES)
    status = error.status
    if not status:
        status = _status((code, _first(fields, _GRPC)))
    return replace(error, code=code, status=status)


def _read_fields(fields: JsonMapping) -> ErrorBody:
    code = _first(fields, _CODES)
    kind = _first(fields, _TYPES)
    grpc = _first(fields, _GRPC)
    metadata = as_object(fields.get("metadata"))
    inner_code = _first(as_object(fields.get("innererror")), _CODES)
    details = [as_object(detail) for detail in as_array(fields.get("details"))]
    reasons = [grpc, *_reasons(details), inner_code]
    delay = _delay([*details, metadata, fields])
    if delay is None:
        # a gateway repeats the headers of the provider behind it
        delay = _delay_of_headers(as_object(metadata.get("headers")))
    return ErrorBody(
        code=code or grpc,
        type=kind,
        param=_first(fields, _PARAMETERS),
        message=_with_upstream(_message(fields), metadata.get("raw")),
        reasons=tuple(filter(None, reasons)),
        status=_status((code, grpc, kind)),
        retry_after=delay,
        failed_generation=to_text(fields.get("failed_generation") or ""),
    )


def _reasons(details: Iterable[JsonMapping]) -> Iterator[str]:
    for detail in details:
        reason = detail.get("reason")
        if reason:
            yield str(reason)


def _first(fields: JsonMapping, names: Iterable[str]) -> str:
    for name in names:
        value = fields.get(name)
        if value and isinstance(value, str | int):
            return str(value)
    return ""


def _with_upstream(message: str, raw: object) -> str:
    """A gateway's message with that of the provider behind it, which it repeats as data or as text."""
    if not raw:
        return message
    if isinstance(raw, str):
        raw = raw.encode(errors="replace")
    upstream = read_error(raw)
    return ": ".join(filter(None, (message, upstream.message)))


def _message(fields: JsonMapping) -> str:
    for name in _MESSAGES:
        match fields.get(name):
            case str(text) if text:
                return text
            case [_, *_] as problems:  # of pydantic, as FastAPI has them
                return "; ".join(map(_problem, problems[:_MAX_PROBLEMS]))
            case dict():
                inner = as_object(fields[name])
                text = _message(inner)
                if text:
                    return text
                return to_text(inner)[:_MAX_TEXT]
            case _:
                pass
    return ""


def _problem(problem: object) -> str:
    fields = as_object(problem)
    text = _message(fields)
    if not text:
        text = str(problem)[:_MAX_TEXT]
    location = as_array(fields.get("loc"))
    place = ".".join(map(str, location))
    if not place:
        return text
    return f"{place}: {text}"


def _status(names: Iterable[str]) -> int | None:
    for name in names:
        if name.isdecimal():
            status = int(name)
            if 400 <= status < 600:
                return status
        status = _STATUS_OF_CODE.get(name.lower())
        if status is not None:
            return status
    return None


def _delay(places: Iterable[JsonMapping]) -> float | None:
    """Seconds to wait, in the first of these objects that has them."""
    for place in places:
        for name in _DELAYS:
            if not place.get(name):
                continue
            seconds = seconds_of(str(place[name]))
            if seconds is not None and math.isfinite(seconds):
                return seconds
    return None


def _delay_of_headers(headers: JsonMapping) -> float | None:
    texts = {name.lower(): str(value) for name, value in headers.items()}
    return retry_after(texts)


def _parse(body: bytes) -> Any:
    """The JSON data in a body, which may be that of a server-sent event; else its text."""
    text = body.strip()
    with suppress(orjson.JSONDecodeError):
        return orjson.loads(text)
    parser = EventParser()
    events = [*parser.feed(text), *parser.close()]
    for event in events:
        with suppress(orjson.JSONDecodeError):
            return orjson.loads(event.data)
    # a character has four bytes at most
    head = text[: 4 * _MAX_TEXT]
    return head.decode(errors="replace")


def _plain(text: str) -> str:
    """A text, or what a reader sees of a page."""
    if "<" in text:
        text = _TAG.sub(" ", text)
    return " ".join(text.split())[:_MAX_TEXT]
