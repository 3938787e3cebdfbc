"""The direct lane: Chat Completions over pooled connections, for providers that speak it themselves."""

from __future__ import annotations

import asyncio
import os
from typing import Any

import orjson

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
from podwright.models.chat_completions import Answer, Events, MalformedError, RefusedError, request_body, said_in
from podwright.models.http1 import BrokenError, HttpError, NotConnectedError, Reply
from podwright.models.providers import ANY, Endpoint
from podwright.models.retries import LONGEST_ANSWER, insecure, refusal, too_long
from podwright.models.target import Target
from podwright.usage import Usage

_LONGEST_REFUSAL = 64 * 2**10


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
        self._target: tuple[Target, bytes] | None = None

    async def complete(self, request: ModelRequest, on_token: TokenCallback | None = None) -> ModelResponse:
        """Ask the endpoint, once.

        Raises:
            ModelError: See the table in `docs/models.md`.
            ConfigurationError: There is no base URL, or it is none.
        """
        target, head = self._target or await self._begin()
        body = request_body(request, self._model, self._endpoint, on_token is not None)
        patience = self.timeouts.first_byte
        if on_token is None:
            patience = request.settings.get("timeout", patience)
        deadline = Deadline(patience)
        reading = _Reading(self.name, deadline, self.timeouts.idle)
        connections = await pool.of_loop()
        try:
            with deadline:
                reply = await connections.post(target, head, body, self.timeouts.connect)
                try:
                    return await self._read(reply, request, on_token, reading)
                finally:
                    reply.close()
        except TimeoutError as error:
            late = f"nothing more within {self.timeouts.idle:g} s" if reading.size else f"no byte within {patience:g} s"
            raise ModelTimeoutError(f"'{self.name}': {late}.") from error
        except HttpError as error:
            raise self._lost(error) from error
        except RefusedError as error:
            raise refusal(self.name, error.status, error.said) from None
        except (MalformedError, orjson.JSONDecodeError):
            raise ModelResponseError(f"'{self.name}': the answer is no chat completion.") from None

    def price(self, usage: Usage) -> float | None:
        """What `usage` would cost, in USD; None if nobody knows."""
        from podwright.models import pricing  # tables that only a run with a paid model needs

        cost = pricing.lookup(self.name, usage)
        return cost.amount if cost else None

    def address(self) -> tuple[str, int] | None:
        """Where its endpoint answers; None if no base URL says so."""
        try:
            target = (self._target or self._aim())[0]
        except PodwrightError:  # which is told when it is asked
            return None
        return target.host, target.port

    async def _begin(self) -> tuple[Target, bytes]:
        self._target = self._aim()
        from podwright.models import pricing  # as in `price`

        await asyncio.to_thread(pricing.warm, self.name)
        return self._target

    def _aim(self) -> tuple[Target, bytes]:
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
            target = Target.below(base, "/chat/completions")
        except ValueError:
            raise ConfigurationError(
                f"The base URL of '{self.name}' is no URL that a path can follow.",
                suggestion="Write base_url, PODWRIGHT_MODEL_BASE_URL or the provider's variable as https://host/path.",
            ) from None
        key = (_first(endpoint.keys) if given.api_key is None else given.api_key).strip()
        if not key and base == endpoint.url and target.secure:
            raise ModelAuthenticationError(
                f"There is no key for '{self.name}'.", suggestion=f"Set {' or '.join(endpoint.keys)}, or api_key."
            )
        if not (key.isascii() and key.isprintable()):
            raise ModelAuthenticationError(f"The key for '{self.name}' has characters that no key has.")
        headers = {"Content-Type": "application/json", "User-Agent": f"podwright/{__version__}"}
        if key:
            headers["Authorization"] = f"Bearer {key}"
        return target, target.head(headers)

    def _lost(self, error: HttpError) -> ModelError:
        who = f"'{self.name}'"
        match error:
            case NotConnectedError(reason="time"):
                return ModelTimeoutError(f"{who}: no connection within {self.timeouts.connect:g} s.")
            case NotConnectedError(reason="tls"):
                return insecure(self.name)
            case NotConnectedError(reason="name"):
                return ModelConnectionError(f"{who}: the host's name cannot be looked up.")
            case NotConnectedError():
                return ModelConnectionError(f"{who}: no connection.")
            case BrokenError():
                return ModelResponseError(f"{who}: the answer broke off, or is no HTTP.")
            case _:
                return ModelConnectionError(f"{who}: the connection was lost.")

    async def _read(
        self, reply: Reply, request: ModelRequest, on_token: TokenCallback | None, reading: _Reading
    ) -> ModelResponse:
        if reply.status != 200:
            said = await _said(reply, reading)
            raise refusal(self.name, reply.status, said, reply.headers)
        answer = Answer()
        if on_token is not None and reply.content_type == "text/event-stream":
            await self._stream(reply, answer, on_token, reading)
        else:
            text = answer.add(orjson.loads(await reading.whole(reply)))
            if text and on_token is not None:  # it was asked to stream, and does not
                on_token(text)
        return answer.response(request, self._endpoint)

    async def _stream(self, reply: Reply, answer: Answer, on_token: TokenCallback, reading: _Reading) -> None:
        events = Events()
        while True:
            chunk = await reading.more(reply)
            for data in events.feed(chunk):
                if data == b"[DONE]":
                    await pool.linger(reply)
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

    async def more(self, reply: Reply) -> bytes:
        """What has come since; empty at the end."""
        chunk = await reply.more()
        self.size += len(chunk)
        if self.size > LONGEST_ANSWER:
            raise too_long(self._name)
        if not reply.at_end:
            self._deadline.renew(self._idle)
        return chunk

    async def whole(self, reply: Reply, enough: int = LONGEST_ANSWER) -> bytes:
        """All that comes, or the beginning that is enough."""
        chunks = [await self.more(reply)]
        while not reply.at_end and self.size <= enough:
            chunks.append(await self.more(reply))
        return b"".join(chunks) if len(chunks) > 1 else chunks[0]


async def _said(reply: Reply, reading: _Reading) -> str:
    """What a refusal says, as far as it can be read: the status says enough without."""
    try:
        body = await reading.whole(reply, _LONGEST_REFUSAL)
    except HttpError:
        return ""
    try:
        data: Any = orjson.loads(body)
    except orjson.JSONDecodeError:
        return body[:2000].decode(errors="replace")
    return said_in(data.get("error", data) if isinstance(data, dict) else data)  # pyright: ignore[reportUnknownMemberType, reportUnknownArgumentType] - it is JSON


def _first(variables: tuple[str, ...]) -> str:
    return next((value for one in variables if (value := os.environ.get(one))), "")
