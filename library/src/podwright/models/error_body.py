"""What providers and the gateways before them write when they refuse a request: one reader for all shapes.

The shapes in use: `{"error": {…}}`, `{"error": "…"}`, the same in a list (Google), the object itself without `error`
(vLLM, gateways), `{"detail": …}` (FastAPI, as a text or a list of problems), a text, a page of a proxy, each of them
perhaps as a server-sent event.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, cast

import orjson

from podwright.json_data import as_array, as_object, to_text
from podwright.models.retries import retry_after, seconds_of
from podwright.models.sse import EventParser

_MAX_TEXT = 4_000
"""Characters of a page or a text that are read."""
_INNER = ("error", "errors", "base_resp", "response", "detail", "fault", "header")
"""Keys under which an object has the error itself."""
_MESSAGES = (
    "message", "Message", "detail", "error_description", "description", "msg", "status_msg", "title", "reason",
    "faultstring", "err_msg", "error_msg",
)  # fmt: skip
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
_TAG = re.compile(r"<(script|style)\b.*?</\1>|<[^>]*>", re.IGNORECASE | re.DOTALL)
_STATUS_OF_CODE = {
    "invalid_api_key": 401, "authentication_error": 401, "unauthenticated": 401, "permission_denied": 403,
    "insufficient_quota": 429, "rate_limit_exceeded": 429, "rate_limit_error": 429, "resource_exhausted": 429,
    "context_length_exceeded": 400, "invalid_request_error": 400, "content_filter": 400, "invalid_argument": 400,
    "badrequesterror": 400, "failed_precondition": 400, "tool_use_failed": 400, "not_found": 404, "notfounderror": 404,
    "model_not_found": 404, "deadline_exceeded": 504, "gatewaytimeout": 504, "unavailable": 503,
    "overloaded_error": 503, "overloaded": 429, "exceed_context_size_error": 400,
}  # fmt: skip
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
        text = " ".join(
            filter(None, (self.code, self.type, self.message, *self.reasons))
        )
        return text.lower().replace("_", " ")


def is_object(data: object) -> bool:
    """Whether data is an object, or a list with one, as errors are."""
    return isinstance(data, dict) or any(
        isinstance(item, dict) for item in as_array(data)
    )


def read_error(data: object) -> ErrorBody:
    """The error in a response.

    Args:
        data: The body as bytes, a text, or the JSON data in it.
    """
    if isinstance(data, bytes):
        data = _parse(data)
    if isinstance(data, list):
        items = cast("list[object]", data)
        objects = [item for item in items if as_object(item)]
        return read_error((objects or items or [""])[0])
    if not isinstance(data, dict):
        return ErrorBody(message="" if data is None else _plain(str(data)))
    fields = as_object(cast("Any", data))
    for key in _INNER:
        inner = fields.get(key)
        is_list_of_problems = key == "detail" and isinstance(inner, list)
        has_message = key != "error" and isinstance(fields.get("message"), str)
        if (
            inner
            and isinstance(inner, dict | list)
            and not (is_list_of_problems or has_message)
        ):
            return _with_code_of(fields, read_error(cast("object", inner)))
        if inner and isinstance(inner, str) and key == "error":
            # `{"error": "…", "code": …}` of some gateways
            fields = {"message": inner, **fields}
    return _read_fields(fields)


def _with_code_of(fields: Mapping[str, Any], error: ErrorBody) -> ErrorBody:
    """The error with the code of the object around it, if it has none of its own."""
    code = error.code or _first(fields, _CODES)
    return replace(
        error,
        code=code,
        status=error.status or _status((code, _first(fields, ("status",)))),
    )


def _read_fields(fields: Mapping[str, Any]) -> ErrorBody:
    code = _first(fields, _CODES)
    kind = _first(fields, _TYPES)
    grpc = _first(fields, ("status",))
    metadata = as_object(fields.get("metadata"))
    inner_code = _first(as_object(fields.get("innererror")), _CODES)
    details = list(map(as_object, as_array(fields.get("details"))))
    named = [str(detail["reason"]) for detail in details if detail.get("reason")]
    return ErrorBody(
        code=code or grpc,
        type=kind,
        param=_first(fields, _PARAMETERS),
        message=_with_upstream(_message(fields), metadata.get("raw")),
        reasons=tuple(filter(None, [grpc, *named, inner_code])),
        status=_status((code, grpc, kind)),
        retry_after=_retry_after(
            [*details, metadata, fields], as_object(metadata.get("headers"))
        ),
        failed_generation=to_text(fields.get("failed_generation") or ""),
    )


def _first(fields: Mapping[str, Any], names: Iterable[str]) -> str:
    values = (fields.get(name) for name in names)
    return next(
        (str(value) for value in values if value and isinstance(value, str | int)), ""
    )


def _with_upstream(message: str, raw: object) -> str:
    """A gateway's message with that of the provider behind it, which it repeats as data or as text."""
    if not raw:
        return message
    upstream = read_error(raw.encode(errors="replace") if isinstance(raw, str) else raw)
    return ": ".join(filter(None, (message, upstream.message)))


def _message(fields: Mapping[str, Any]) -> str:
    for name in _MESSAGES:
        match fields.get(name):
            case str(text) if text:
                return text
            case [_, *_] as problems:  # of pydantic, as FastAPI has them
                return "; ".join(
                    _problem(as_object(problem) or problem) for problem in problems[:20]
                )
            case dict():
                inner = as_object(fields[name])
                return _message(inner) or to_text(inner)[:_MAX_TEXT]
            case _:
                pass
    return ""


def _problem(problem: object) -> str:
    fields = as_object(problem)
    place = ".".join(map(str, as_array(fields.get("loc"))))
    text = _message(fields) or str(problem)[:_MAX_TEXT]
    return f"{place}: {text}" if place else text


def _status(names: Iterable[str]) -> int | None:
    for name in names:
        if name.isdecimal() and 400 <= int(name) < 600:
            return int(name)
        if status := _STATUS_OF_CODE.get(name.lower()):
            return status
    return None


def _retry_after(
    places: Iterable[Mapping[str, Any]], headers: Mapping[str, Any]
) -> float | None:
    for place in places:
        for name in ("retryDelay", "retry_after", "retry_after_seconds", "retryAfter"):
            seconds = seconds_of(str(place[name])) if place.get(name) else None
            if seconds is not None and math.isfinite(seconds):
                return seconds
    # a gateway repeats the headers of the provider behind it
    return retry_after({name.lower(): str(value) for name, value in headers.items()})


def _parse(body: bytes) -> Any:
    """The JSON data in a body, which may be that of a server-sent event; else its text."""
    text = body.strip()
    with suppress(orjson.JSONDecodeError):
        return orjson.loads(text)
    parser = EventParser()
    for event in (*parser.feed(text), *parser.close()):
        with suppress(orjson.JSONDecodeError):
            return orjson.loads(event.data)
    return text[: _MAX_TEXT * 4].decode(errors="replace")


def _plain(text: str) -> str:
    """A text, or what a reader sees of a page."""
    if "<" in text:
        text = _TAG.sub(" ", text)
    return " ".join(text.split())[:_MAX_TEXT]
