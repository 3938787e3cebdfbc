"""Models behind an HTTP endpoint, whatever its protocol: the destination, the request, the reading, the errors."""

from __future__ import annotations

import asyncio
import contextlib
from abc import abstractmethod
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple, Protocol

from podwright import errors
from podwright._version import __version__
from podwright.data.json_data import JsonObject, to_request_bytes
from podwright.messages.messages import ModelRequest, ModelResponse
from podwright.models.api_keys import ApiKey
from podwright.models.base import Connection, TokenCallback, note_attempt
from podwright.models.http.body_reader import BodyReader
from podwright.models.http.client import (
    MAX_RESPONSE,
    Response,
    TransportError,
    propagated,
    send,
)
from podwright.models.http.error_body import ErrorBody, read_error
from podwright.models.http.provider_error import provider_error
from podwright.models.http.refusals import (
    RefusedError,
    refusal,
    transport_error,
)
from podwright.models.http.urls import host_and_port, is_header_value, join_url
from podwright.models.prices import pricing
from podwright.models.protocols.answer import InvalidResponseError, Piece
from podwright.models.protocols.answer_tool import (
    from_answer_tool,
    with_answer_tool,
)
from podwright.models.provider_model import Answer, Bill, ProviderModel
from podwright.models.providers import Endpoint, first_value, is_vendors
from podwright.models.token_counts import read_amount


class DocumentAnswer(Answer, Protocol):
    """An answer of one protocol that is put together from the documents of a response."""

    finish_reason: str
    """Why the model stopped, in the provider's words; empty before the end."""
    is_streamed: bool
    """Whether the answer comes in pieces."""
    has_choice: bool
    """Whether a part of an answer has arrived."""
    is_over: bool
    """Whether the response has said that nothing more comes."""

    def add(self, data: Any) -> Piece:
        """Add a document, and return what it adds to the answer.

        Raises:
            InvalidResponseError: The data is not of this protocol.
            RefusedError: The data is an error.
        """
        ...

    def build(self, request: ModelRequest) -> ModelResponse:
        """The response.

        Raises:
            InvalidResponseError: The answer has neither text nor tool calls.
        """
        ...


class Destination(NamedTuple):
    """Where requests go."""

    url: str
    headers: dict[str, str]
    key: ApiKey
    """The API key, which is cut out of what is shown of errors."""


class HTTPModel(ProviderModel):
    """A model behind an HTTP endpoint; subclasses know the protocol.

    Args:
        name: "<provider>/<model_name>".
        connection: API key and base URL; what is missing is read from the provider's variables at the first call.
        endpoint: What is known of the provider.
    """

    path = ""
    """The path below the base URL."""
    headers: Mapping[str, str] = MappingProxyType({})
    """Further headers of the protocol."""

    def __init__(
        self, name: str, connection: Connection, endpoint: Endpoint
    ) -> None:
        self.name = name
        self._connection = connection
        self._endpoint = endpoint
        self._provider, _, model = name.partition("/")
        prefix = endpoint.model_prefix
        # `accounts/us/models/` is not put before `accounts/my/models/m`
        if not model.startswith(prefix.partition("/")[0]):
            model = prefix + model
        self._model = model
        self._destination: Destination | None = None
        self.reports_cost = endpoint.reports_cost

    @abstractmethod
    def body(self, request: ModelRequest, *, stream: bool) -> JsonObject:
        """The body of a request.

        Raises:
            ModelRequestError: The protocol has no such setting.
        """

    def raise_for_refusal(
        self, error: ErrorBody, failure: errors.ModelError
    ) -> None:
        """Raise the exception that a protocol has of its own for a refusal; without one, `failure` is raised."""
        return

    @abstractmethod
    def new_answer(self) -> DocumentAnswer:
        """An answer of which nothing has arrived."""

    async def attempt(
        self,
        request: ModelRequest,
        on_token: TokenCallback | None,
        on_reasoning: TokenCallback | None,
    ) -> ModelResponse:
        """See `ProviderModel.attempt`."""
        destination = self._destination
        if destination is None:
            destination = await self._prepare()
        answer_tool = ""
        if not self._endpoint.json_schema:
            request, answer_tool = with_answer_tool(request)
        body = self.body(request, stream=on_token is not None)
        first_byte = self.timeouts.first_byte
        # the first byte comes when the whole answer is ready
        if on_token is None:
            first_byte = request.settings.get("timeout", first_byte)
        reading = _Reading(self.new_answer(), on_token, on_reasoning)
        bill = Bill(self, reading.answer, request, endpoint=self._endpoint)
        cause: Exception | None = None
        try:
            await self._exchange(
                destination, body, reading, bill=bill, first_byte=first_byte
            )
            response = bill.of(reading.answer.build(request))
            return from_answer_tool(response, answer_tool)
        except TransportError as error:
            failure = transport_error(self.name, error)
            cause = error
        except errors.ModelResponseError as error:
            failure = error
        except RefusedError as error:
            bill.may_be_billed = False
            failure = refusal(
                self.name,
                error.error,
                error.status,
                headers=error.headers,
                key=destination.key,
                via=reading.via,
            )
            failure.provider_error = provider_error(
                error.error, request, destination.key.value
            )
            self.raise_for_refusal(error.error, failure)
        except asyncio.CancelledError as error:
            note_attempt(error, bill.of_failure())
            raise
        except (InvalidResponseError, ValueError, RecursionError) as error:
            failure = self._unreadable_error(error, reading)
            failure.provider_error = provider_error(
                reading.error_in_head(), request, destination.key.value
            )
        failure.attempt_usage = bill.of_failure()
        raise failure from cause

    async def _exchange(
        self,
        destination: Destination,
        body: JsonObject,
        reading: _Reading,
        *,
        bill: Bill,
        first_byte: float,
    ) -> None:
        """Send one request, and read the response; see `_Reading.read`."""
        try:
            async with send(
                destination.url,
                to_request_bytes(body),
                {**destination.headers, **propagated()},
                timeouts=self.timeouts,
                first_byte=first_byte,
                max_bytes=MAX_RESPONSE,
                on_sent=bill.begin,
            ) as response:
                cost = response.headers.get(self._endpoint.cost_header)
                bill.cost_header = read_amount(cost)
                await reading.read(response)
        except TransportError:
            # after the finish reason, only the counts are missing
            if not reading.answer.finish_reason:
                raise

    def _unreadable_error(
        self, error: Exception, reading: _Reading
    ) -> errors.ModelResponseError:
        if not isinstance(error, InvalidResponseError):
            error = InvalidResponseError()
        return errors.ModelResponseError(
            f"'{self.name}': {error}{reading.what_came()}."
        )

    def address(self) -> tuple[str, int] | None:
        """Host and port of the endpoint; None if no base URL is set."""
        try:
            destination = self._destination or self.destination()
        except errors.PodwrightError:  # raised again by the first call
            return None
        return host_and_port(destination.url)

    def check(self) -> None:
        """See `Model.check`; a key is required only at the provider's own URL."""
        self.destination()

    def load_prices(self) -> None:
        """See `Model.load_prices`; the price of a vendor holds only at its own URL."""
        self.is_at_vendor = is_vendors(self._provider, self._base_url())
        pricing.load(self.name, at_vendor=self.is_at_vendor)

    async def prepare(self) -> None:
        """See `Model.prepare`."""
        with contextlib.suppress(errors.PodwrightError):
            await self._prepare()

    async def _prepare(self) -> Destination:
        """Where requests go, once the prices are loaded."""
        if self._destination is None:
            destination = self.destination()
            await asyncio.to_thread(self.load_prices)
            self._destination = destination
        else:
            await pricing.prepare(self.name, at_vendor=self.is_at_vendor)
        return self._destination

    def destination(self) -> Destination:
        """Where requests go; read at the first call, because it may fail."""
        endpoint = self._endpoint
        base_url = self._base_url()
        if not base_url:
            variables = " or ".join(endpoint.urls) or "PODWRIGHT_MODEL_BASE_URL"
            raise errors.ConfigurationError(
                f"'{self.name}' has no base URL.",
                suggestion=f"Set {variables}, or base_url.",
            )
        try:
            url = join_url(base_url, self.path)
        except ValueError:
            raise errors.ConfigurationError(
                f"Invalid base URL of '{self.name}'.",
                suggestion="Write base_url, PODWRIGHT_MODEL_BASE_URL or the provider's variable as https://host/path.",
            ) from None
        headers = {
            "Content-Type": "application/json",
            "User-Agent": f"podwright/{__version__}",
            **self.headers,
        }
        key = self._key(base_url)
        if key.value and endpoint.key_header == "Authorization":
            headers["Authorization"] = f"Bearer {key.value}"
        elif key.value:
            headers[endpoint.key_header] = key.value
        return Destination(url, headers, key)

    def _base_url(self) -> str:
        """The base URL with its suffix; empty if none is set."""
        endpoint = self._endpoint
        url = (
            self._connection.base_url
            or first_value(endpoint.urls)
            or endpoint.url
        )
        url = url.rstrip("/").removesuffix(self.path)
        if not url:
            return ""
        return _with_suffix(url, endpoint.suffix)

    def _needs_key_at(self, base_url: str) -> bool:
        """Whether requests go to the URL of the provider itself, where a key is needed."""
        return base_url.startswith("https:") and base_url == self._endpoint.url

    def _key(self, base_url: str) -> ApiKey:
        endpoint = self._endpoint
        key = ApiKey.of(self._connection, endpoint.keys)
        needs_key = self._needs_key_at(base_url)
        if self._connection.api_key is None:
            needs_key = needs_key or endpoint.needs_key
        if not key.value and needs_key:
            raise errors.ModelAuthenticationError(
                f"Missing API key for '{self.name}'.",
                suggestion=f"Set {key.to_set}.",
            )
        if not is_header_value(key.value):
            raise errors.ModelAuthenticationError(
                f"The API key for '{self.name}' has invalid characters.",
                suggestion=f"Check the key in {key.source}.",
            )
        return key


class _Reading:
    """The reading of one response."""

    def __init__(
        self,
        answer: DocumentAnswer,
        on_token: TokenCallback | None,
        on_reasoning: TokenCallback | None,
    ) -> None:
        self.answer = answer
        self._on_token = on_token
        self._on_reasoning = on_reasoning
        self._reader = BodyReader()
        self._type = ""
        self.via = ""
        """See `Response.via`."""

    async def read(self, response: Response) -> None:
        """Read the response to its end.

        Raises:
            TransportError: The response broke off.
            RefusedError: It is an error.
            InvalidResponseError, json.JSONDecodeError: It cannot be read, or the answer was cut off.
        """
        self.via = response.via
        if response.status != 200:
            error = read_error(await _body_of(response))
            raise RefusedError(error, response.status, response.headers)
        self._type = response.media_type
        documents = 0
        while not (self._reader.is_done or self.answer.is_over):
            chunk = await response.read_chunk()
            if chunk:
                arrived = self._reader.feed(chunk)
            else:
                arrived = self._reader.close()
            for data in arrived:
                self._hand_out(self.answer.add(data))
                documents += 1
            if not chunk:
                break
        if self._reader.is_done or self.answer.is_over:
            await response.drain()
        if not documents:
            raise InvalidResponseError
        is_stream = self.answer.is_streamed or self._reader.is_stream
        if is_stream and not self.answer.finish_reason:
            raise InvalidResponseError("the stream ended before the answer did")

    def _hand_out(self, piece: Piece) -> None:
        if piece.reasoning and self._on_reasoning is not None:
            self._on_reasoning(piece.reasoning)
        if piece.text and self._on_token is not None:
            self._on_token(piece.text)

    def what_came(self) -> str:
        """The type of a response that is not an answer, to be appended to a reason."""
        if self.answer.has_choice:
            return ""
        media_type = self._type or "no content type"
        return f" (status 200, {media_type})"

    def error_in_head(self) -> ErrorBody:
        """The first characters of a response that is not an answer."""
        if self.answer.has_choice:
            return ErrorBody()
        return read_error(self._reader.head)


async def _body_of(response: Response) -> bytes:
    """The body of a refusal, as far as it can be read: the status is enough without it."""
    try:
        return await response.read()
    except TransportError:
        return b""


def _with_suffix(url: str, suffix: str) -> str:
    """The URL with its suffix, of which it may have the first parts."""
    parts = suffix.split("/")
    for count in range(len(parts), 1, -1):
        begun = "/".join(parts[:count])
        if url.endswith(begun):
            return url.removesuffix(begun) + suffix
    return url + suffix
