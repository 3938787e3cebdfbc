"""Routes that read a JSON body: the media type is checked, and the JSON is parsed strictly."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

import orjson
from fastapi.routing import APIRoute
from starlette.requests import Request
from starlette.responses import Response

from podwright.text import short_repr
from podwright_service.problems import RequestError

Handler = Callable[[Request], Coroutine[Any, Any, Response]]


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
        return orjson.loads(await self.body())


class JSONRoute(APIRoute):
    """A route with a JSON body, as FastAPI's documentation describes custom requests and routes."""

    def get_route_handler(self) -> Handler:
        """The handler of FastAPI, with strict JSON."""
        handler = super().get_route_handler()

        async def handle(request: Request) -> Response:
            _check_media_type(request)
            if not await request.body():
                raise RequestError(400, "json_invalid", "The body is empty.", "Send a JSON object.")
            return await handler(JSONRequest(request))

        return handle


def _check_media_type(request: Request) -> None:
    """Check that the headers announce plain JSON in UTF-8.

    Raises:
        RequestError: 415: they do not.
    """
    content_type = ", ".join(request.headers.getlist("content-type"))
    media_type, _, parameters = content_type.lower().partition(";")
    encoding = request.headers.get("content-encoding", "identity")
    utf8 = "charset" not in parameters or "utf-8" in parameters or "utf8" in parameters
    if media_type.strip() != "application/json" or not utf8 or encoding != "identity":
        raise RequestError(
            415,
            "media_type_unsupported",
            f"Unsupported media type {short_repr(content_type)} with the encoding {short_repr(encoding)}.",
            "Send plain UTF-8 with the header 'Content-Type: application/json'.",
        )
