"""The LiteLLM client: every provider that LiteLLM knows, through its public functions."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import aclosing, suppress
from typing import Any

import orjson

from podwright import errors
from podwright.json_data import as_object
from podwright.messages import ModelRequest, ModelResponse
from podwright.models import litellm_loader, pricing
from podwright.models.base import Connection, Model, TokenCallback
from podwright.models.chat_completions import (
    InvalidResponseError,
    ResponseBuilder,
    from_answer_tool,
    request_body,
    with_answer_tool,
)
from podwright.models.http import certificate_fault
from podwright.models.provider_error import provider_error
from podwright.models.providers import ANY, ENDPOINTS
from podwright.models.refusals import RefusedError, refusal, transport_error
from podwright.text import causes
from podwright.usage import Usage

_ERRORS: dict[str, tuple[type[errors.ModelError], str]] = {
    "ContextWindowExceededError": (errors.ContextWindowError, "the request is too long for the model."),
    "ContentPolicyViolationError": (errors.ContentFilterError, "the content filter stopped the request."),
    "ImageFetchError": (errors.ModelRequestError, "it takes no URLs of images; pass the image as a data URL."),
    "Timeout": (errors.ModelTimeoutError, "no answer in time."),
    "APIConnectionError": (errors.ModelConnectionError, "no connection, or it was lost."),
    "APIResponseValidationError": (errors.ModelResponseError, "the response is not a chat completion."),
}
"""What LiteLLM's public exceptions mean."""


class LiteLLMModel(Model):
    """A model that is called through LiteLLM.

    A setting that the provider does not support is an error. If LiteLLM knows no JSON Schema mode of the model,
    structured output is requested as a tool call, and returned as text.

    Args:
        name: "<provider>/<model_name>" with LiteLLM's names.
        connection: API key and base URL; what is missing is read from the environment by LiteLLM.

    Raises:
        UnknownModelError: LiteLLM is not installed.
    """

    def __init__(self, name: str, connection: Connection) -> None:
        self.name = name
        self._connection = connection
        self._has_json_schema: bool | None = None
        if not litellm_loader.installed():
            raise errors.UnknownModelError(
                f"The model '{name}' needs LiteLLM, which is not installed.",
                suggestion="Install it: pip install 'podwright[litellm]'.",
            )

    def cost(self, usage: Usage) -> float | None:
        """The cost of `usage` in USD; None if the price is unknown."""
        return pricing.cost(self.name, usage)

    async def complete(self, request: ModelRequest, on_token: TokenCallback | None = None) -> ModelResponse:
        """Send one request through LiteLLM.

        Raises:
            ModelError: See the table in `docs/models.md`.
            UnknownModelError: LiteLLM does not know the provider.
        """
        if not await self._prepare():
            request = with_answer_tool(request)
        builder, error_object = ResponseBuilder(), None
        try:
            if on_token is None:
                await self._fetch(request, builder)
            else:
                await self._stream(request, builder, on_token)
            return from_answer_tool(builder.build(request, ENDPOINTS.get(self.name.partition("/")[0], ANY)))
        except RefusedError as error:
            error_object, model_error = error.error, refusal(self.name, error.status, error.error)
        except InvalidResponseError as error:
            model_error = errors.ModelResponseError(f"'{self.name}': {error}.")
        except errors.PodwrightError:
            raise
        except TimeoutError:
            model_error = errors.ModelTimeoutError(f"'{self.name}': no data in time.")
        except Exception as error:  # noqa: BLE001 - LiteLLM lets errors of other libraries through
            cause = getattr(error, "original_exception", None) or error  # of a stream that broke off
            error_object, model_error = _error_object(cause), self._translate(cause, request)
        # outside the handlers: LiteLLM's error quotes the provider and must not become the context of ours
        model_error.provider_error = provider_error(error_object, request, self._connection.api_key or "")
        raise model_error

    def check(self) -> None:
        """See `Model.check`; a key is required only where LiteLLM knows its variable, and no base URL is given."""
        self._load()
        report = litellm_loader.loaded().validate_environment(self.name, self._connection.api_key)
        # not settings that may have a default, and not keys that an identity of AWS or Azure may replace
        missing = [name for name in report["missing_keys"] if "API_KEY" in name and "AZURE" not in name]
        if missing and self._connection.base_url is None:
            hint = f"Set {' or '.join(missing)}, or api_key."
            raise errors.ModelAuthenticationError(f"Missing API key for '{self.name}'.", suggestion=hint)

    def load_prices(self) -> None:
        """See `Model.load_prices`."""
        pricing.warm(self.name)

    async def prepare(self) -> None:
        """Load LiteLLM and the prices."""
        with suppress(errors.PodwrightError):
            await self._prepare()

    async def _prepare(self) -> bool:
        """Load LiteLLM and the prices; return whether the model has a JSON Schema mode."""
        if self._has_json_schema is None:
            self._has_json_schema = await asyncio.to_thread(self._load)
        return self._has_json_schema

    def _load(self) -> bool:
        litellm = litellm_loader.load()
        pricing.warm(self.name)
        try:
            litellm.get_llm_provider(self.name, api_base=self._connection.base_url)
        except litellm.BadRequestError:
            raise errors.UnknownModelError(f"LiteLLM knows no provider of '{self.name}'.") from None
        return bool(litellm.supports_response_schema(self.name))

    async def _fetch(self, request: ModelRequest, builder: ResponseBuilder) -> None:
        seconds = request.settings.get("timeout", self.timeouts.first_byte)
        async with asyncio.timeout(seconds):
            response = await litellm_loader.loaded().acompletion(**self._arguments(request, seconds, stream=False))
        builder.add(response.model_dump(warnings=False))

    async def _stream(self, request: ModelRequest, builder: ResponseBuilder, on_token: TokenCallback) -> None:
        seconds = self.timeouts.first_byte
        async with asyncio.timeout(seconds):
            stream = await litellm_loader.loaded().acompletion(**self._arguments(request, seconds, stream=True))
        async with aclosing(stream):
            while True:
                async with asyncio.timeout(seconds):
                    chunk = await anext(stream, None)
                if chunk is None:
                    break
                seconds = self.timeouts.idle
                if text := builder.add(chunk.model_dump(warnings=False)):
                    on_token(text)
        # LiteLLM adds a finish reason to a stream that broke off without one
        if not (stream.received_finish_reason or stream.intermittent_finish_reason):
            raise InvalidResponseError

    def _arguments(self, request: ModelRequest, seconds: float, *, stream: bool) -> dict[str, Any]:
        return {
            **request_body(request, self.name, ANY, stream),
            # LiteLLM takes an empty key for none, and would send that of the environment
            "api_key": "none" if self._connection.api_key == "" else self._connection.api_key,
            "base_url": self._connection.base_url,
            "timeout": seconds,
            "num_retries": 0,  # `with_retries` repeats, and attempts must not multiply
            "max_retries": 0,
        }

    def _translate(self, error: Any, request: ModelRequest) -> errors.ModelError:
        """Our error for one of LiteLLM's exceptions, by its public class and `status_code`."""
        litellm = litellm_loader.loaded()
        if fault := certificate_fault(error):
            return transport_error(self.name, fault)
        if "Invalid response object" in str(error):  # which LiteLLM reports as one of several errors
            return errors.ModelResponseError(f"'{self.name}': {InvalidResponseError()}.")
        for name, (kind, reason) in _ERRORS.items():
            if isinstance(error, getattr(litellm, name)):
                return kind(f"'{self.name}': {reason}")
        match error:
            case litellm.UnsupportedParamsError():
                names = ", ".join(f"'{name}'" for name in request.settings if f"'{name}'" in str(error))
                message = f"'{self.name}' does not support {names or 'a setting'}."
                return errors.ModelRequestError(message, suggestion="Remove it from the config.")
            case _ if hasattr(error, "status_code"):
                headers: Mapping[str, str] = getattr(error, "litellm_response_headers", None) or {}
                return refusal(self.name, error.status_code, str(error), headers)
            case _:
                return errors.ModelResponseError(f"'{self.name}': LiteLLM failed with {type(error).__name__}.")


def _error_object(error: BaseException) -> Any:
    """The provider's error object, from LiteLLM's exception: `body` of it or of a cause, or the JSON in its message."""
    body = next((body for cause in causes(error) if (body := as_object(getattr(cause, "body", None)))), None)
    text = str(error).replace("\\'", "'")  # some messages have the `repr` of bytes
    with suppress(ValueError):
        body = body or orjson.loads(text[text.index("{") : text.rindex("}") + 1])
    return as_object(body).get("error", body)
