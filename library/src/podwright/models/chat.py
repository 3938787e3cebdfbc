"""The direct lane: Chat Completions over pooled connections, for providers that speak it themselves.

Proxies that the environment names are not used: the base URL says where to go, and nothing else does.
"""

from __future__ import annotations

import asyncio
import io
import os
from typing import Any

import aiohttp
import orjson
from yarl import URL

from podwright._version import __version__
from podwright.deadlines import Deadline
from podwright.errors import (
    ConfigurationError,
    ModelAuthenticationError,
    ModelConnectionError,
    ModelError,
    ModelResponseError,
    ModelTimeoutError,
    PodwrightError,
)
from podwright.messages import ModelRequest, ModelResponse
from podwright.models import pool
from podwright.models.base import Connection, Model, TokenCallback
from podwright.models.faults import refusal
from podwright.models.providers import ANY, Endpoint
from podwright.models.wire import Answer, Events, MalformedError, RefusedError, request_body, said_in
from podwright.usage import Usage

LONGEST_ANSWER = 16 * 2**20
"""Bytes that an answer may have, decompressed."""

_LONGEST_REFUSAL = 64 * 2**10
_LARGE = 2**20


class ChatModel(Model):
    """A model behind a Chat Completions endpoint.

    Args:
        name: "<provider>/<model_name>".
        connection: Key and base URL; what is missing comes from the provider's variables when it is first asked.
        endpoint: What is known of the provider.
    """

    def __init__(self, name: str, connection: Connection, endpoint: Endpoint = ANY) -> None:
        self.name = name
        self._connection = connection
        self._endpoint = endpoint
        self.json_output = endpoint.json_schema
        model, prefix = name.partition("/")[2], endpoint.model_prefix
        self._model = model if model.startswith(prefix.partition("/")[0]) else prefix + model
        self._target: tuple[URL, dict[str, str], aiohttp.ClientTimeout] | None = None

    async def complete(self, request: ModelRequest, on_token: TokenCallback | None = None) -> ModelResponse:
        """Ask the endpoint, once.

        Raises:
            ModelError: See the table in `docs/models.md`.
            ConfigurationError: There is no base URL, or it is none.
        """
        url, headers, connect = self._target or await self._begin()
        body = request_body(request, self._model, self._endpoint, on_token is not None)
        data = body if len(body) < _LARGE else io.BytesIO(body)
        patience = self.timeouts.first_byte
        if on_token is None:
            patience = request.settings.get("timeout", patience)
        deadline = Deadline(patience)
        reading = _Reading(self.name, deadline, self.timeouts.idle)
        session = await pool.session()
        try:
            with deadline:
                reply = await session.post(url, data=data, headers=headers, timeout=connect, allow_redirects=False)
                try:
                    return await self._read(reply, request, on_token, reading)
                finally:
                    reply.close()  # a connection whose answer was read to its end is back in the pool by now
        except aiohttp.ConnectionTimeoutError as error:
            raise ModelTimeoutError(f"'{self.name}': no connection within {self.timeouts.connect:g} s.") from error
        except TimeoutError as error:
            if not deadline.expired:
                raise ModelConnectionError(f"'{self.name}': the connection was lost.") from error
            late = f"nothing more within {self.timeouts.idle:g} s" if reading.size else f"no byte within {patience:g} s"
            raise ModelTimeoutError(f"'{self.name}': {late}.") from error
        except (aiohttp.ClientError, OSError) as error:
            fault = _lost(self.name, error)
            # the cause of an answer that is no HTTP has the request's headers
            raise fault from None if isinstance(error, aiohttp.ClientResponseError) else error
        except RefusedError as error:
            raise refusal(self.name, error.status, error.said) from None
        except (MalformedError, orjson.JSONDecodeError):
            raise ModelResponseError(f"'{self.name}': the answer is no chat completion.") from None

    def price(self, usage: Usage) -> float | None:
        """What `usage` would cost, in USD; None if nobody knows."""
        from podwright import prices  # tables that only a run with a paid model needs

        cost = prices.lookup(self.name, usage)
        return cost.amount if cost else None

    def address(self) -> tuple[str, int] | None:
        """Where its endpoint answers; None if no base URL says so."""
        try:
            url = (self._target or self._aim())[0]
        except PodwrightError:  # which is told when it is asked
            return None
        return url.host or "", url.port or 0

    async def _begin(self) -> tuple[URL, dict[str, str], aiohttp.ClientTimeout]:
        self._target = self._aim()
        from podwright import prices  # as in `price`

        await asyncio.to_thread(prices.warm, self.name)
        return self._target

    def _aim(self) -> tuple[URL, dict[str, str], aiohttp.ClientTimeout]:
        """Where to send requests, with which headers: found out at the first call, for it may fail."""
        endpoint, given = self._endpoint, self._connection
        base = given.base_url or _first(endpoint.urls) or endpoint.url
        if not base:
            variables = " or ".join(endpoint.urls) or "PODWRIGHT_MODEL_BASE_URL"
            raise ConfigurationError(f"'{self.name}' has no base URL.", suggestion=f"Set {variables}, or base_url.")
        base = base.rstrip("/")
        if not base.endswith(endpoint.suffix):
            base += endpoint.suffix
        try:
            url = URL(f"{base}/chat/completions")
        except ValueError:
            url = URL()
        if url.scheme not in ("http", "https") or not url.host or url.user or url.password:
            raise ConfigurationError(
                f"The base URL of '{self.name}' is none.", suggestion="Write it as https://host/path, without a key."
            )
        key = (_first(endpoint.keys) if given.api_key is None else given.api_key).strip()
        if not key and base == endpoint.url and url.scheme == "https":
            raise ModelAuthenticationError(
                f"There is no key for '{self.name}'.", suggestion=f"Set {' or '.join(endpoint.keys)}, or api_key."
            )
        if not (key.isascii() and key.isprintable()):
            raise ModelAuthenticationError(f"The key for '{self.name}' has characters that no key has.")
        headers = {"Content-Type": "application/json", "User-Agent": f"podwright/{__version__}"}
        if key:
            headers["Authorization"] = f"Bearer {key}"
        return url, headers, aiohttp.ClientTimeout(total=None, connect=self.timeouts.connect)

    async def _read(
        self, reply: aiohttp.ClientResponse, request: ModelRequest, on_token: TokenCallback | None, reading: _Reading
    ) -> ModelResponse:
        if reply.status != 200:
            said = await _said(reply, reading)
            raise refusal(self.name, reply.status, said, {key.lower(): value for key, value in reply.headers.items()})
        answer = Answer()
        if on_token is not None and reply.content_type == "text/event-stream":
            await self._stream(reply, answer, on_token, reading)
        else:
            text = answer.add(orjson.loads(await reading.whole(reply.content)))
            if text and on_token is not None:  # it was asked to stream, and does not
                on_token(text)
        return answer.response(request, self._endpoint)

    async def _stream(
        self, reply: aiohttp.ClientResponse, answer: Answer, on_token: TokenCallback, reading: _Reading
    ) -> None:
        events = Events()
        while True:
            chunk = await reading.more(reply.content)
            for data in events.feed(chunk):
                if data == b"[DONE]":
                    await pool.linger(reply.content)
                    return
                text = answer.add(orjson.loads(data))
                if text:
                    on_token(text)
            if not chunk:
                break
        if not answer.reason:
            raise ModelResponseError(f"'{self.name}': the answer ended in its middle.")


class _Reading:
    """Reads the bytes of one answer, within its time-outs and its size."""

    __slots__ = ("_deadline", "_idle", "_name", "size")

    def __init__(self, name: str, deadline: Deadline, idle: float) -> None:
        self._name = name
        self._deadline = deadline
        self._idle = idle
        self.size = 0

    async def more(self, content: aiohttp.StreamReader) -> bytes:
        """What has come since; empty at the end."""
        chunk = await content.readany()
        self.size += len(chunk)
        if self.size > LONGEST_ANSWER:
            fault = ModelResponseError(f"'{self._name}': the answer is longer than {LONGEST_ANSWER} bytes.")
            fault.transient = False
            raise fault
        if not content.at_eof():
            self._deadline.renew(self._idle)
        return chunk

    async def whole(self, content: aiohttp.StreamReader, enough: int = LONGEST_ANSWER) -> bytes:
        """All that comes, or the beginning that is enough."""
        chunks = [await self.more(content)]
        while not content.at_eof() and self.size < enough:
            chunks.append(await self.more(content))
        return b"".join(chunks) if len(chunks) > 1 else chunks[0]


async def _said(reply: aiohttp.ClientResponse, reading: _Reading) -> str:
    """What a refusal says, as far as it can be read: the status says enough without."""
    try:
        body = await reading.whole(reply.content, _LONGEST_REFUSAL)
    except aiohttp.ClientError:
        return ""
    try:
        data: Any = orjson.loads(body)
    except orjson.JSONDecodeError:
        return body[:2000].decode(errors="replace")
    return said_in(data.get("error", data) if isinstance(data, dict) else data)  # pyright: ignore[reportUnknownMemberType, reportUnknownArgumentType] - it is JSON


def _lost(name: str, error: Exception) -> ModelError:
    match error:
        case aiohttp.ClientConnectorCertificateError() | aiohttp.ClientConnectorSSLError():
            fault = ModelConnectionError(f"'{name}': no secure connection: the certificate or TLS is at fault.")
            fault.transient = False
            return fault
        case aiohttp.ClientConnectorDNSError():
            return ModelConnectionError(f"'{name}': the host's name cannot be looked up.")
        case aiohttp.ClientConnectorError():
            return ModelConnectionError(f"'{name}': no connection.")
        case aiohttp.ClientPayloadError() | aiohttp.ClientResponseError():
            return ModelResponseError(f"'{name}': the answer broke off, or is no HTTP.")
        case _:
            return ModelConnectionError(f"'{name}': the connection was lost.")


def _first(variables: tuple[str, ...]) -> str:
    return next((value for one in variables if (value := os.environ.get(one))), "")
