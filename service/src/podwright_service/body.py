"""Reading a request's JSON: strictly, so that what comes after need not be afraid of it."""

from __future__ import annotations

import math
from email.message import Message
from typing import Any, cast

from starlette.requests import Request

from podwright import blueprints
from podwright.errors import BlueprintValidationError, Problem
from podwright.json_data import json_pointer
from podwright.text import truncate
from podwright_service.problems import MOST_ERRORS, RequestError
from podwright_service.settings import Settings

_Place = tuple["_Place", str | int] | None

_LONGEST_KEY = 200
"""Characters in a key: each place below one is told with it."""

_OF_BODY = (b"content-type", b"content-encoding")
_PLAIN = [(b"content-type", b"application/json")]
_LONGEST_TYPE = 200
"""Characters of a media type that are looked at: the parser's time grows with their square."""


async def read_json(request: Request, settings: Settings) -> Any:
    """The JSON data in a request's body.

    Raises:
        RequestError: 415, 413 or 400: not said to be JSON, too large, or not JSON that is taken here.
        starlette.requests.ClientDisconnect: The client left.
    """
    _check_headers(request)
    text = await _read(request, settings.max_body_bytes)
    try:
        data = blueprints.from_json(text.decode())
    except BlueprintValidationError as error:
        raise _refused(list(error.problems)) from error
    except UnicodeDecodeError as error:
        raise _refused([Problem("", f"not UTF-8: byte {error.start} does not fit.", "Send UTF-8.")]) from error
    if found := _unsound(data, settings):
        raise _refused(found)
    return data


def _check_headers(request: Request) -> None:
    if [header for header in request.headers.raw if header[0] in _OF_BODY] == _PLAIN:
        return
    types, encodings = request.headers.getlist("content-type"), request.headers.getlist("content-encoding")
    told = ", ".join(types)[:_LONGEST_TYPE]
    kind = Message()
    kind["content-type"] = told
    media = told.partition(";")[0].strip().lower()
    charset = str(kind.get_param("charset", "utf-8")).lower()
    encoding = ", ".join(encodings or ["identity"]).strip().lower()
    for said, wanted, header in (
        (media, ("application/json",), "content-type"),
        (charset, ("utf-8", "utf8", "us-ascii"), "content-type"),
        (encoding, ("identity",), "content-encoding"),
    ):
        if said not in wanted:
            raise RequestError(
                415,
                "media_type_unsupported",
                f"The header '{header}' says {said or 'nothing'!r}, not {wanted[0]!r}.",
                "Send plain UTF-8 with the header 'content-type: application/json'.",
            )


async def _read(request: Request, max_bytes: int) -> bytes:
    announced = request.headers.get("content-length", "0")
    body = bytearray()
    if int(announced) <= max_bytes:
        async for piece in request.stream():
            body += piece
            if len(body) > max_bytes:
                break
        else:
            return bytes(body)
    raise RequestError(
        413, "body_too_large", f"The body is larger than {max_bytes} bytes.", "Send less.", {"connection": "close"}
    )


def _refused(found: list[Problem]) -> RequestError:
    hint = "Correct the places that are named."
    return RequestError(
        400,
        "json_invalid",
        f"The body is no valid JSON: {found[0].detail.removeprefix('not JSON: ')}",
        hint,
        problems=found,
    )


def _unsound(data: Any, settings: Settings) -> list[Problem]:
    """What JSON's grammar allows and no component can use.

    Raises:
        RequestError: 413: there are too many values, which would hold up the other runs.
    """
    found: list[Problem] = []
    # a place is a chain of keys, written out only where something is wrong: a body may hold a million values
    stack: list[tuple[_Place, object, int]] = [(None, data, 1)]
    values = 1
    while stack and len(found) < MOST_ERRORS:
        place, item, depth = stack.pop()
        if isinstance(item, dict | list):
            if depth > settings.max_json_depth:
                return [
                    Problem(_pointer(place), f"nested deeper than {settings.max_json_depth} levels.", "Flatten it.")
                ]
            inside = cast("dict[str, object]", item) if isinstance(item, dict) else None
            pairs = list(inside.items() if inside is not None else enumerate(cast("list[object]", item)))
            values += len(pairs)
            if values > (most := settings.max_json_values):
                raise RequestError(413, "body_too_large", f"The body has more than {most} JSON values.", "Send less.")
            stack += [((place, key), one, depth + 1) for key, one in pairs]
            faults = [fault for key in inside or () if (fault := _fault(key, _LONGEST_KEY))]
        else:
            faults = [fault] if (fault := _fault(item)) else []
        found += [Problem(_pointer(place), fault, "Leave it out, or send something else.") for fault in faults]
    return found


def _pointer(place: _Place) -> str:
    parts: list[str | int] = []
    while place is not None:
        place, key = place
        parts.append(key)
    # the sender knows its keys; one of a megabyte is not sent back for each fault below it
    short = [part if isinstance(part, int) else truncate(part, 100) for part in reversed(parts)]
    return json_pointer(*short)


def _fault(value: object, longest: int | None = None) -> str | None:
    if longest and isinstance(value, str) and len(value) > longest:
        return f"a key has more than {longest} characters."
    if isinstance(value, float):
        return None if math.isfinite(value) else "the number is too large."
    if not isinstance(value, str) or (value.isascii() and "\0" not in value):
        return None
    if "\0" in value:
        return "a text holds the character NUL."
    try:
        value.encode()
    except UnicodeEncodeError:
        return "a text holds half of a surrogate pair, which is no Unicode text."
    return None
