"""Routes that read a JSON body: the media type is checked, and the JSON is parsed strictly."""

from __future__ import annotations

import json
import re
from itertools import islice
from typing import Any

import orjson
from starlette.requests import Request
from starlette.responses import Response

from podwright.data.json_data import values_in
from podwright.data.text import short_repr
from podwright.threads import compute
from podwright_service.http.errors.problems import RequestError
from podwright_service.http.query import CheckedRoute, Handler

_SMALL = 32 * 1024
"""Bytes of a body that is parsed on the event loop; larger ones have their turn in a few threads."""
MAX_VALUES = 50_000
"""JSON values of a body: each costs many times its bytes."""
_LARGE_NUMBER = re.compile(rb"\d{19}")


class JSONRequest(Request):
    """A request whose JSON is parsed by orjson, which rejects NaN, infinities and lone surrogates."""

    def __init__(self, request: Request) -> None:
        super().__init__(request.scope, request.receive)
        self._request = request

    async def body(self) -> bytes:
        """The body, read once."""
        return await self._request.body()

    async def json(self) -> Any:
        """The JSON data of the body."""
        body = await self.body()
        if len(body) <= _SMALL:
            return _parse(body)
        return await compute(_parse_large, body)


class JSONRoute(CheckedRoute):
    """A route with a JSON body, as FastAPI's documentation describes custom requests and routes."""

    def get_route_handler(self) -> Handler:
        """The handler of FastAPI, with strict JSON."""
        handler = super().get_route_handler()

        async def handle(request: Request) -> Response:
            _check_media_type(request)
            if not await request.body():
                raise RequestError(
                    400,
                    "json_invalid",
                    "The body is empty.",
                    "Send a JSON object.",
                )
            return await handler(JSONRequest(request))

        return handle


def _parse(body: bytes) -> Any:
    """The JSON data of a body, with integers of any size.

    Raises:
        orjson.JSONDecodeError: It is no JSON.
        RequestError: 400: a number is too long, or it is nested too deeply.
    """
    data: Any = orjson.loads(body)
    if not _LARGE_NUMBER.search(body):
        return data
    # orjson reads integers of more than 64 bits as floats, which are other numbers
    try:
        return json.loads(body)
    except (ValueError, RecursionError) as error:
        detail = f"The JSON of the body cannot be read: {error}."
        suggestion = "Send long numbers as texts."
        raise RequestError(400, "json_invalid", detail, suggestion) from None


def _parse_large(body: bytes) -> Any:
    """The JSON data of a large body.

    Raises:
        RequestError: 413: it has more than `MAX_VALUES` values.
    """
    data = _parse(body)
    beyond = islice(values_in(data), MAX_VALUES, None)
    if any(True for _ in beyond):
        detail = f"The body has more than {MAX_VALUES} JSON values."
        raise RequestError(
            413,
            "body_too_large",
            detail,
            "Send a long list as a text: no setting raises this limit.",
        )
    return data


def _check_media_type(request: Request) -> None:
    """Check that the headers announce plain JSON in UTF-8.

    Raises:
        RequestError: 415: they do not.
    """
    content_type = ", ".join(request.headers.getlist("content-type"))
    media_type, _, parameters = content_type.lower().partition(";")
    encoding = request.headers.get("content-encoding", "identity")
    is_json = (
        media_type.strip() == "application/json" and encoding == "identity"
    )
    is_utf8 = "utf-8" in parameters or "utf8" in parameters
    if not is_json or ("charset" in parameters and not is_utf8):
        raise RequestError(
            415,
            "media_type_unsupported",
            f"Unsupported media type {short_repr(content_type)} with the encoding {short_repr(encoding)}.",
            suggestion="Send plain UTF-8 with the header 'Content-Type: application/json'.",
        )
