"""The OpenAI-compatible client: Chat Completions over HTTP, for providers that offer the protocol themselves."""

from __future__ import annotations

import asyncio
import contextlib
import os
from typing import Any

import orjson

from podwright import errors
from podwright._version import __version__
from podwright.json_data import as_object, to_json_bytes
from podwright.messages import ModelRequest, ModelResponse
from podwright.models import pricing
from podwright.models.base import Connection, Model, TokenCallback
from podwright.models.chat_completions import (
    InvalidResponseError,
    ResponseBuilder,
    from_answer_tool,
    request_body,
    with_answer_tool,
)
from podwright.models.http import Response, TransportError, post
from podwright.models.provider_error import provider_error
from podwright.models.providers import ANY, Endpoint
from podwright.models.refusals import RefusedError, refusal, transport_error
from podwright.models.sse import EventParser
from podwright.models.urls import host_and_port, is_header_value, join_url
from podwright.usage import Usage

MAX_RESPONSE = 16 * 2**20
"""Bytes of the longest response, decompressed."""


class ChatModel(Model):
    """A model behind a Chat Completions endpoint.

    Args:
        name: "<provider>/<model_name>".
        connection: API key and base URL; what is missing is read from the provider's variables at the first call.
        endpoint: What is known of the provider.
    """

    def __init__(self, name: str, connection: Connection, endpoint: Endpoint = ANY) -> None:
        self.name = name
        self._connection = connection
        self._endpoint = endpoint
        model, prefix = name.partition("/")[2], endpoint.model_prefix
        self._model = model if model.startswith(prefix.partition("/")[0]) else prefix + model
        self._destination: tuple[str, dict[str, str]] | None = None

    async def complete(self, request: ModelRequest, on_token: TokenCallback | None = None) -> ModelResponse:
        """Send one request to the endpoint.

        Raises:
            ModelError: See the table in `docs/models.md`.
            ConfigurationError: The base URL is missing or invalid.
        """
        url, headers = await self._prepare()
        if not self._endpoint.json_schema:
            request = with_answer_tool(request)
        body = to_json_bytes(request_body(request, self._model, self._endpoint, on_token is not None))
        first_byte = self.timeouts.first_byte
        if on_token is None:  # the first byte comes when the whole answer is ready
            first_byte = request.settings.get("timeout", first_byte)
        try:
            async with post(
                url, body, headers, self.timeouts, first_byte=first_byte, max_bytes=MAX_RESPONSE
            ) as response:
                return await self._read(response, request, on_token)
        except TransportError as error:
            raise transport_error(self.name, error) from error
        except RefusedError as error:
            model_error = refusal(self.name, error.status, error.error, error.headers)
            # the key follows "Bearer "
            model_error.provider_error = provider_error(error.error, request, headers.get("Authorization", "")[7:])
            raise model_error from None
        except (InvalidResponseError, orjson.JSONDecodeError) as error:
            reason = error if isinstance(error, InvalidResponseError) else InvalidResponseError()
            raise errors.ModelResponseError(f"'{self.name}': {reason}.") from None

    def cost(self, usage: Usage) -> float | None:
        """The cost of `usage` in USD; None if the price is unknown."""
        return pricing.cost(self.name, usage)

    def address(self) -> tuple[str, int] | None:
        """Host and port of the endpoint; None if no base URL is set."""
        try:
            return host_and_port((self._destination or self._find_destination())[0])
        except errors.PodwrightError:  # raised again by the first call
            return None

    def check(self) -> None:
        """See `Model.check`; a key is required only at the provider's own URL."""
        self._find_destination()

    def load_prices(self) -> None:
        """See `Model.load_prices`; the price of a vendor holds only at its own URL."""
        url = self._endpoint.url
        pricing.warm(self.name, at_vendor=url != "" and self._base_url().startswith(url))

    async def prepare(self) -> None:
        """See `Model.prepare`."""
        with contextlib.suppress(errors.PodwrightError):
            await self._prepare()

    async def _prepare(self) -> tuple[str, dict[str, str]]:
        """URL and headers of requests, once the prices are loaded."""
        if self._destination is None:
            destination = self._find_destination()
            await asyncio.to_thread(self.load_prices)
            self._destination = destination
        return self._destination

    def _find_destination(self) -> tuple[str, dict[str, str]]:
        """URL and headers of requests; read at the first call, because it may fail."""
        endpoint, base_url = self._endpoint, self._base_url()
        if not base_url:
            variables = " or ".join(endpoint.urls) or "PODWRIGHT_MODEL_BASE_URL"
            raise errors.ConfigurationError(
                f"'{self.name}' has no base URL.", suggestion=f"Set {variables}, or base_url."
            )
        base_url = base_url.rstrip("/")
        if not base_url.endswith(endpoint.suffix):
            base_url += endpoint.suffix
        try:
            url = join_url(base_url, "/chat/completions")
        except ValueError:
            raise errors.ConfigurationError(
                f"Invalid base URL of '{self.name}'.",
                suggestion="Write base_url, PODWRIGHT_MODEL_BASE_URL or the provider's variable as https://host/path.",
            ) from None
        headers = {"Content-Type": "application/json", "User-Agent": f"podwright/{__version__}"}
        if key := self._key(base_url):
            headers["Authorization"] = f"Bearer {key}"
        return url, headers

    def _base_url(self) -> str:
        return self._connection.base_url or _first_set(self._endpoint.urls) or self._endpoint.url

    def _key(self, base_url: str) -> str:
        key = self._connection.api_key
        key = (_first_set(self._endpoint.keys) if key is None else key).strip()
        if not key and base_url == self._endpoint.url and base_url.startswith("https:"):
            hint = f"Set {' or '.join(self._endpoint.keys)}, or api_key."
            raise errors.ModelAuthenticationError(f"Missing API key for '{self.name}'.", suggestion=hint)
        if not is_header_value(key):
            raise errors.ModelAuthenticationError(f"The API key for '{self.name}' has invalid characters.")
        return key

    async def _read(self, response: Response, request: ModelRequest, on_token: TokenCallback | None) -> ModelResponse:
        if response.status != 200:
            raise RefusedError(await _error_object(response), response.status, response.headers)
        builder = ResponseBuilder()
        if on_token is not None and response.media_type == "text/event-stream":
            await self._read_stream(response, builder, on_token)
        else:
            text = builder.add(orjson.loads(await response.read()))
            if text and on_token is not None:  # the server does not stream
                on_token(text)
        return from_answer_tool(builder.build(request, self._endpoint))

    async def _read_stream(self, response: Response, builder: ResponseBuilder, on_token: TokenCallback) -> None:
        parser = EventParser()
        ended = False
        while not ended:
            chunk = await response.read_chunk()
            ended = not chunk
            for event in parser.feed(chunk) if chunk else parser.close():
                if event.data == b"[DONE]":
                    await response.drain()
                    return
                if text := builder.add(orjson.loads(event.data)):
                    on_token(text)
        if not builder.finish_reason:
            raise errors.ModelResponseError(f"'{self.name}': the stream ended before the answer did.")


async def _error_object(response: Response) -> Any:
    """The error object of a refusal, as far as it can be read: the status is enough without it."""
    try:
        body = await response.read()
    except TransportError:
        return None
    try:
        data: Any = orjson.loads(body)
    except orjson.JSONDecodeError:  # a page of a proxy
        return {"type": body[:2000].decode(errors="replace")}
    return as_object(data).get("error", data)


def _first_set(variables: tuple[str, ...]) -> str:
    return next((value for name in variables if (value := os.environ.get(name))), "")
