"""The LiteLLM client: every provider that LiteLLM knows, through its public functions."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing, asynccontextmanager, suppress
from dataclasses import replace
from functools import partial
from typing import Any

import orjson

from podwright import errors
from podwright.data.finish_reasons import UNKNOWN
from podwright.data.json_data import JsonObject, as_object
from podwright.data.json_forms import to_utf8_data
from podwright.data.text import causes
from podwright.messages.messages import ModelRequest, ModelResponse
from podwright.models import litellm_loader
from podwright.models.api_keys import ApiKey
from podwright.models.base import Connection, TokenCallback, note_attempt
from podwright.models.http.client import (
    NOT_SENT,
    certificate_error,
    connection_error,
    propagated,
)
from podwright.models.http.error_body import ErrorBody, is_object, read_error
from podwright.models.http.provider_error import provider_error
from podwright.models.http.proxies import via
from podwright.models.http.refusals import (
    RefusedError,
    refusal,
    transport_error,
)
from podwright.models.litellm.http import Wire, clients, watched
from podwright.models.offline.offline import estimate_input_audio
from podwright.models.prices import pricing
from podwright.models.protocols.answer import InvalidResponseError
from podwright.models.protocols.answer_tool import (
    from_answer_tool,
    with_answer_tool,
)
from podwright.models.protocols.chat_completions import (
    CompletionAnswer,
    request_body,
)
from podwright.models.provider_model import Bill, ProviderModel
from podwright.models.providers import (
    ANY,
    ENDPOINTS,
    MediaForms,
    first_value,
    how_vendor_is_named,
    is_vendors,
)
from podwright.schemas.json_schema import has_open_objects

_Meaning = tuple[type[errors.ModelError], str]
"""The class of our error, and its message."""
_ERRORS: dict[str, _Meaning] = {
    "ContextWindowExceededError": (
        errors.ContextWindowError,
        "the request is too long for the model.",
    ),
    "ContentPolicyViolationError": (
        errors.ContentFilterError,
        "the content filter stopped the request.",
    ),
    "ImageFetchError": (
        errors.ModelRequestError,
        "it takes no URLs of images; pass the image as a data URL.",
    ),
    "Timeout": (errors.ModelTimeoutError, "no answer in time."),
    "APIConnectionError": (
        errors.ModelConnectionError,
        "no connection, or it was lost.",
    ),
    "APIResponseValidationError": (
        errors.ModelResponseError,
        "the response cannot be read as an answer of a model.",
    ),
}
"""What LiteLLM's public exceptions mean."""
_UNREADABLE = (
    "Invalid response object",
    "Empty or invalid response",
    "'choices' that is not a list",
    "no 'choices'",
)
"""What LiteLLM says of responses that are not completions."""
_ALSO_FOR_ANSWERS = ("Timeout", "APIConnectionError")
"""Those of them that LiteLLM raises for errors of the provider, too."""
_PACKAGES = {
    "google": "google-auth",
    "azure": "azure-identity",
    "databricks": "databricks-sdk",
}
"""Packages whose modules have other names."""
_CREDENTIAL_ERRORS = (
    "NoCredentialsError",
    "PartialCredentialsError",
    "DefaultCredentialsError",
    "RefreshError",
)
"""Errors of the packages of AWS and Google."""
_NO_KEY = re.compile(
    r"missing .{0,40}(key|token)|(key|token).{0,40}(not set|missing|required)",
    re.IGNORECASE,
)
_OPENING = re.compile(r"[{\[]")
"""How an object or an array in JSON begins."""
_PROVIDER_DOCS = "https://docs.litellm.ai/docs/providers"
_HOW_TO_AUTHENTICATE = f"Install what the provider needs, and set its credentials: {_PROVIDER_DOCS}"
_FAULTS_OF_LITELLM = (KeyError, IndexError, TypeError, AttributeError)
"""What LiteLLM fails with on a response that it does not expect, and reports as a lost connection."""
_OWN_PROTOCOLS = ("anthropic", "cohere", "cohere_chat", "gemini")
"""Providers of the table that LiteLLM calls in their own protocols; what it adds for Ollama needs no other handling."""
_SAY_WHY = (
    "anthropic",
    "bedrock",
    "gemini",
    "ollama",
    "ollama_chat",
    "vertex_ai",
)
"""Providers whose streams have a stop reason, so that one without it was cut off."""
_RENAMED = ("stop", "content_filter")
"""Finish reasons that LiteLLM also puts in the place of others, such as those that it does not know, and `refusal`."""
_TAKE_OFFICE_FILES = ("bedrock", "bedrock_converse")
"""Providers with documents of other types than PDF, for which LiteLLM has their names."""
_BY_SDK = ("openai", "azure", "text-completion-openai", "azure_text")
"""Providers that LiteLLM calls through the package `openai`, besides those that it lists as compatible."""
_COUNTS_OF_ANSWER = ("completion_tokens", "total_tokens")
_OWN_FIELDS = ("thinking_blocks", "provider_specific_fields")
"""Further fields of a message that LiteLLM makes itself."""


class LiteLLMModel(ProviderModel):
    """A model that is called through LiteLLM.

    A setting that the provider does not support is an error. If LiteLLM knows no JSON Schema mode of the model,
    structured output is requested as a tool call, and returned as text.

    Args:
        name: "<provider>/<model_name>" with LiteLLM's names.
        connection: API key and base URL; what is missing is read from the environment by LiteLLM.
    """

    def __init__(self, name: str, connection: Connection) -> None:
        self.name = name
        self._provider = name.partition("/")[0]
        self._endpoint = ENDPOINTS.get(self._provider, ANY)
        self._speaks_chat_completions = (
            self._provider in ENDPOINTS and self._provider not in _OWN_PROTOCOLS
        )
        self._connection = connection
        # LiteLLM does not pass headers on
        has_cost_header = bool(self._endpoint.cost_header)
        self.reports_cost = self._endpoint.reports_cost and not has_cost_header
        self._has_json_schema: bool | None = None
        self._takes_client = False
        """Whether our client is passed to LiteLLM; where it does not use it, as for Cohere, the wire has no status."""

    async def attempt(
        self,
        request: ModelRequest,
        on_token: TokenCallback | None,
        on_reasoning: TokenCallback | None,
    ) -> ModelResponse:
        """See `ProviderModel.attempt`."""
        answer_tool = ""
        has_json_schema = await self._prepare()
        if not has_json_schema or self._needs_answer_tool(request):
            request, answer_tool = with_answer_tool(request)
        builder = CompletionAnswer(self.name)
        error_body = ErrorBody()
        wire = Wire()
        bill = Bill(self, builder, request, endpoint=self._endpoint)
        bill.begin()
        try:
            with watched(wire):
                if on_token is None:
                    await self._fetch(request, builder, wire)
                else:
                    await self._stream(
                        request,
                        builder,
                        wire,
                        on_token=on_token,
                        on_reasoning=on_reasoning,
                    )
            response = bill.of(builder.build(request))
            return from_answer_tool(response, answer_tool)
        except RefusedError as error:
            bill.may_be_billed = False
            error_body = error.error
            model_error = refusal(
                self.name, error_body, error.status, key=self._key()
            )
        except InvalidResponseError as error:
            model_error = errors.ModelResponseError(f"'{self.name}': {error}.")
        except asyncio.CancelledError as error:
            note_attempt(error, bill.of_failure())
            raise
        except errors.ModelResponseError as error:
            model_error = error
        except errors.PodwrightError:
            raise
        except TimeoutError:
            model_error = errors.ModelTimeoutError(
                f"'{self.name}': no data in time."
            )
        except Exception as error:  # noqa: BLE001 - LiteLLM lets errors of other libraries through
            model_error, error_body = self._error_and_body(error, wire, request)
            is_refused = wire.has_refusal or _says_something(error_body)
            bill.may_be_billed = not is_refused and _was_sent(
                error, model_error
            )
        # outside the handlers: LiteLLM's error quotes the provider and must not become the context of the new one
        model_error.provider_error = provider_error(
            error_body, request, self._connection.api_key or ""
        )
        model_error.attempt_usage = bill.of_failure()
        raise model_error

    def _error_and_body(
        self,
        error: Exception,
        wire: Wire,
        request: ModelRequest,
    ) -> tuple[errors.ModelError, ErrorBody]:
        """Our error for one of LiteLLM's, or of a library behind it, and the provider's."""
        if wire.fault is not None:
            return transport_error(self.name, wire.fault), ErrorBody()
        if wire.status is not None and wire.status >= 300:
            error_body = read_error(wire.error)
            model_error = refusal(
                self.name,
                error_body,
                wire.status,
                headers=wire.headers,
                key=self._key(),
                via=via(wire.proxy),
            )
            return model_error, error_body
        # of a stream that broke off
        cause = getattr(error, "original_exception", None) or error
        error_body = _error_body(cause)
        model_error = self._translated_error(
            cause, error_body, request, proxy=wire.proxy
        )
        return model_error, error_body

    def check(self) -> None:
        """See `Model.check`; a key is required only where LiteLLM knows its variable, and no base URL is given."""
        self._load()
        if self._connection.base_url is not None:
            return
        missing = self._missing_keys()
        if missing:
            hint = f"Set {' or '.join(missing)}, or api_key."
            raise errors.ModelAuthenticationError(
                f"Missing API key for '{self.name}'.", suggestion=hint
            )

    def _missing_keys(self) -> list[str]:
        """The variables of keys that LiteLLM misses."""
        litellm = litellm_loader.loaded()
        report = litellm.validate_environment(
            self.name, self._connection.api_key
        )
        # not settings that may have a default, and not keys that an identity of AWS or Azure may replace
        return [
            name
            for name in report["missing_keys"]
            if "API_KEY" in name and "AZURE" not in name
        ]

    def _key(self) -> ApiKey:
        """The key that LiteLLM sends, as far as its variable is known."""
        endpoint = self._endpoint
        variables = endpoint.keys
        if not variables:
            # most providers of LiteLLM have such a variable
            name = self._provider.upper().replace("-", "_")
            variables = (f"{name}_API_KEY",)
        key = ApiKey.of(self._connection, (*variables, *endpoint.identities))
        if key.source or endpoint.keys:
            return replace(key, variables=endpoint.keys)
        missing = self._missing_keys()
        if missing:
            return replace(key, variables=tuple(missing))
        return ApiKey(help=_PROVIDER_DOCS)

    def max_output_tokens(self) -> int | None:
        """See `Model.max_output_tokens`; LiteLLM sends it to some providers if a request has no `max_tokens`."""
        litellm = litellm_loader.loaded()
        if litellm is None:
            return None
        _, _, model_name = self.name.partition("/")
        facts = litellm.model_cost.get(self.name) or litellm.model_cost.get(
            model_name
        )
        return as_object(facts).get("max_output_tokens")

    def load_prices(self) -> None:
        """See `Model.load_prices`."""
        self.is_at_vendor = self._calls_vendor()
        pricing.load(self.name, at_vendor=self.is_at_vendor)

    def _calls_vendor(self) -> bool:
        """Whether the base URL is that of the provider itself, as LiteLLM's own is."""
        if self._endpoint.self_hosted:
            return False
        url = self._connection.base_url or first_value(self._endpoint.urls)
        return not url or is_vendors(self._provider, url)

    async def prepare(self) -> None:
        """Load LiteLLM and the prices."""
        with suppress(errors.PodwrightError):
            await self._prepare()

    async def _prepare(self) -> bool:
        """Load LiteLLM and the prices; return whether the model has a JSON Schema mode."""
        if self._has_json_schema is None:
            self._has_json_schema = await asyncio.to_thread(self._load)
        else:
            await pricing.prepare(self.name, at_vendor=self.is_at_vendor)
        return self._has_json_schema

    def _load(self) -> bool:
        litellm = litellm_loader.load()
        self.load_prices()
        try:
            litellm.get_llm_provider(
                self.name, api_base=self._connection.base_url
            )
        except litellm.BadRequestError:
            message = f"LiteLLM knows no provider of '{self.name}'."
            raise errors.UnknownModelError(
                message, suggestion=how_vendor_is_named(self._provider)
            ) from None
        if self._provider.startswith("ollama"):
            # else LiteLLM asks the server for the model after each call, and the event loop waits for the answer
            facts = {
                "litellm_provider": self._provider,
                "mode": "chat",
                "supports_function_calling": True,
            }
            litellm.register_model({self.name: facts})
        compatible = map(str, litellm.openai_compatible_providers)
        self._takes_client = self._provider not in (*_BY_SDK, *compatible)
        # loads its tokenizer here, and not on the event loop when a stream has no count
        litellm.token_counter(model=self.name, text="a")
        return bool(litellm.supports_response_schema(self.name))

    def _needs_answer_tool(self, request: ModelRequest) -> bool:
        """Whether LiteLLM's own way to structured output would not do.

        For some models it forces the tool of the answer, and then no other tool is ever called; for others it closes
        objects whose keys are not known before.
        """
        if self._speaks_chat_completions or request.output is None:
            return False
        return bool(request.tools) or has_open_objects(request.output.schema)

    async def _fetch(
        self,
        request: ModelRequest,
        builder: CompletionAnswer,
        wire: Wire,
    ) -> None:
        seconds = request.settings.get("timeout", self.timeouts.first_byte)
        arguments = await self._arguments(request, seconds, stream=False)
        async with asyncio.timeout(seconds):
            response = await litellm_loader.loaded().acompletion(**arguments)
        data = response.model_dump(warnings=False)
        if wire.has_readable_response and not wire.has_counts:
            del data["usage"]  # an estimate
        for choice in data["choices"]:
            choice["finish_reason"] = self._finish_reason(choice, wire)
            if self._speaks_chat_completions:
                _unpack(choice["message"])
        builder.add(data)

    async def _stream(
        self,
        request: ModelRequest,
        builder: CompletionAnswer,
        wire: Wire,
        *,
        on_token: TokenCallback,
        on_reasoning: TokenCallback | None,
    ) -> None:
        litellm = litellm_loader.loaded()
        seconds = self.timeouts.first_byte
        arguments = await self._arguments(request, seconds, stream=True)
        async with asyncio.timeout(seconds):
            stream = await litellm.acompletion(**arguments)
        with_fields: list[Any] = []
        begins_with_count = self._takes_client or "claude" in self.name
        async with _counting(
            stream, builder, begins_with_count=begins_with_count
        ):
            while (
                chunk := await self._next_chunk(stream, seconds, wire)
            ) is not None:
                seconds = self.timeouts.idle
                data = chunk.model_dump(warnings=False)
                data.pop("usage", None)
                for choice in data.get("choices") or ():
                    if self._speaks_chat_completions:
                        _unpack(choice["delta"])
                    elif _take_own_fields(choice["delta"]):
                        with_fields.append(chunk)
                piece = builder.add(data)
                if piece.reasoning and on_reasoning is not None:
                    on_reasoning(piece.reasoning)
                if piece.text:
                    on_token(piece.text)
        self._end_stream(stream, builder, wire)
        if with_fields:
            builder.add_fields(_joined_own_fields(with_fields))

    async def _next_chunk(self, stream: Any, seconds: float, wire: Wire) -> Any:
        """The next chunk; None at the end. Whatever arrives gives it the idle time once more."""
        async with asyncio.timeout(seconds) as deadline:
            wire.on_data = partial(_extend, deadline, self.timeouts.idle)
            return await anext(stream, None)

    def _end_stream(
        self, stream: Any, builder: CompletionAnswer, wire: Wire
    ) -> None:
        """Add the provider's own finish reason: LiteLLM has one also for a stream that broke off.

        Raises:
            InvalidResponseError: The stream ended without one.
        """
        reason = _said_reason(stream)
        says_why = wire.stop_reason or self._provider in _SAY_WHY
        if wire.has_readable_response and says_why:
            reason = wire.stop_reason
        elif not reason and self._takes_client:
            reason = UNKNOWN
        if not reason:
            raise InvalidResponseError("the stream ended before the answer did")
        if reason == "stop" and self._hides_reason(wire):
            reason = UNKNOWN
        if builder.finish_reason in _RENAMED:
            builder.add({"choices": [{"delta": {}, "finish_reason": reason}]})

    def _hides_reason(self, wire: Wire) -> bool:
        """Whether "stop" may stand for any reason that LiteLLM does not know."""
        return self._takes_client and not wire.has_readable_response

    def _finish_reason(self, choice: JsonObject, wire: Wire) -> str:
        """The finish reason of the provider, where LiteLLM has made it "stop" because it does not know it."""
        reason = choice["finish_reason"]
        if reason not in _RENAMED:
            return reason
        if wire.stop_reason:
            return wire.stop_reason
        fields = as_object(choice.get("provider_specific_fields"))
        native = fields.get("native_finish_reason")
        if native:
            return native
        if reason == "stop" and self._hides_reason(wire):
            return UNKNOWN
        return reason

    async def _arguments(
        self,
        request: ModelRequest,
        seconds: float,
        *,
        stream: bool,
    ) -> JsonObject:
        self._check_parameters(request)
        body = request_body(
            request,
            self.name,
            replace(ANY, media=self._media_forms(request)),
            provider=self._provider,
            stream=stream,
        )
        api_key = self._connection.api_key
        if api_key == "":
            # LiteLLM takes an empty key for none, and would send that of the environment
            api_key = "none"
        arguments = {
            **_encodable(body),
            "api_key": api_key,
            "base_url": self._connection.base_url,
            "timeout": seconds,
            # `with_retries` repeats, and attempts must not multiply
            "num_retries": 0,
            "max_retries": 0,
        }
        if self._takes_client:
            arguments["client"] = await clients.get()
        else:
            arguments["extra_headers"] = propagated()
        return arguments

    def _check_parameters(self, request: ModelRequest) -> None:
        """Refuse parameters that LiteLLM does not pass on, because they are options of its own.

        Raises:
            ModelRequestError: There is one.
        """
        own = litellm_loader.loaded().all_litellm_params
        for name in request.settings.get("parameters", {}):
            if name in own:
                raise errors.ModelRequestError(
                    f"The parameter '{name}' for '{self.name}' is an option of LiteLLM itself.",
                    suggestion="Remove it from config.parameters.",
                )

    def _media_forms(self, request: ModelRequest) -> MediaForms:
        """What the provider takes; LiteLLM drops audio that it cannot translate, and fetches files at URLs."""
        if self._speaks_chat_completions:
            return self._endpoint.media_at(is_at_vendor=self.is_at_vendor)
        takes_audio = True
        if estimate_input_audio(request):
            litellm = litellm_loader.loaded()
            takes_audio = litellm.supports_audio_input(self.name)
        return MediaForms(
            only_pdf=self._provider not in _TAKE_OFFICE_FILES,
            document_urls=False,
            audio=takes_audio,
        )

    def _translated_error(
        self,
        error: Any,
        error_body: ErrorBody,
        request: ModelRequest,
        *,
        proxy: str | None,
    ) -> errors.ModelError:
        """Our error for one of LiteLLM's exceptions, by its public class and `status_code`."""
        fault = certificate_error(error, proxy)
        if fault is not None:
            return transport_error(self.name, fault)
        missing = _missing_credentials(error)
        if missing:
            suggestion = _HOW_TO_AUTHENTICATE
            key = self._key()
            if key.variables:
                suggestion = f"Set {key.to_set}."
            return errors.ModelAuthenticationError(
                f"'{self.name}': {missing}", suggestion=suggestion
            )
        if isinstance(error, litellm_loader.loaded().UnsupportedParamsError):
            return self._unsupported_setting_error(error, request)
        is_answer = _is_answer(error, error_body)
        cause = error.__cause__ or error.__context__
        if not is_answer and isinstance(cause, _FAULTS_OF_LITELLM):
            fault_name = type(cause).__name__
            return errors.ModelResponseError(
                f"'{self.name}': LiteLLM cannot read the response ({fault_name})."
            )
        if not _says_something(error_body) and _is_unreadable(error):
            return errors.ModelResponseError(
                f"'{self.name}': {InvalidResponseError()}."
            )
        meaning = _meaning(error, is_answer=is_answer)
        if meaning is not None:
            kind, reason = meaning
            return kind(f"'{self.name}': {reason}")
        if not is_answer:
            fault = connection_error(error, proxy)
            if fault is not None:
                return transport_error(self.name, fault)
        if not hasattr(error, "status_code"):
            return errors.ModelResponseError(
                f"'{self.name}': LiteLLM failed with {type(error).__name__}."
            )
        status = _status(error, error_body)
        return refusal(
            self.name,
            error_body,
            status,
            headers=_headers(error),
            key=self._key(),
            via=via(proxy),
        )

    def _unsupported_setting_error(
        self, error: Exception, request: ModelRequest
    ) -> errors.ModelRequestError:
        text = str(error)
        quoted = [f"'{name}'" for name in request.settings]
        names = ", ".join(name for name in quoted if name in text)
        return errors.ModelRequestError(
            f"'{self.name}' does not support {names or 'a setting'}.",
            suggestion="Remove it from the config.",
        )


def _says_something(error_body: ErrorBody) -> bool:
    """Whether a provider's error was found."""
    return bool(error_body.code or error_body.message)


def _headers(error: Any) -> Mapping[str, str]:
    """The headers of the response, which LiteLLM attaches to an exception."""
    return getattr(error, "litellm_response_headers", None) or {}


def _is_answer(error: Any, error_body: ErrorBody) -> bool:
    """Whether the provider has answered with an error."""
    if _headers(error) or _says_something(error_body):
        return True
    if not isinstance(error, litellm_loader.loaded().Timeout):
        return False
    # LiteLLM gives its own time-outs the status 408
    return error.status_code != 408


def _meaning(error: Exception, *, is_answer: bool) -> _Meaning | None:
    """What the class of one of LiteLLM's exceptions means; None if it is the status that counts."""
    litellm = litellm_loader.loaded()
    for name, meaning in _ERRORS.items():
        if is_answer and name in _ALSO_FOR_ANSWERS:
            continue
        if isinstance(error, getattr(litellm, name)):
            return meaning
    return None


def _status(error: Any, error_body: ErrorBody) -> int:
    """The status of a refusal: that of the exception, unless LiteLLM has made it."""
    is_lost = isinstance(error, litellm_loader.loaded().APIConnectionError)
    is_made = is_lost or "Error in response object" in str(error)
    status = error.status_code
    if is_made or not isinstance(status, int) or status < 300:
        return error_body.status or 500
    return status


def _was_sent(error: Exception, model_error: errors.ModelError) -> bool:
    """Whether a request may have been sent that was not answered."""
    if isinstance(model_error, errors.ModelConnectionError):
        fault = connection_error(error)
        return fault is None or fault.fault not in NOT_SENT
    return isinstance(
        model_error, errors.ModelTimeoutError | errors.ModelResponseError
    )


def _missing_credentials(error: BaseException) -> str:
    """What a provider's own package lacks to authenticate, found before a request; empty if it is something else."""
    for cause in causes(error):
        if isinstance(cause, ModuleNotFoundError) and cause.name:
            module = cause.name.partition(".")[0]
            package = _PACKAGES.get(module, module)
            return f"the Python package '{package}' is not installed."
        if type(cause).__name__ in _CREDENTIAL_ERRORS:
            return "no credentials were found."
        if isinstance(cause, ValueError) and _NO_KEY.search(str(cause)):
            return "no API key was found."
    return ""


def _is_unreadable(error: Any) -> bool:
    """Whether LiteLLM could not read a response with status 200, which it reports as one of several errors."""
    text = str(error)
    if any(words in text for words in _UNREADABLE):
        return True
    is_no_json = any(
        isinstance(cause, json.JSONDecodeError) for cause in causes(error)
    )
    if not is_no_json:
        return False
    return not _headers(error) or error.status_code == 200


def _encodable(body: JsonObject) -> JsonObject:
    """The body without lone surrogates, which LiteLLM cannot encode."""
    try:
        orjson.dumps(body)
    except TypeError:
        return to_utf8_data(body)
    return body


def _extend(deadline: asyncio.Timeout, seconds: float) -> None:
    """Let a deadline begin again, because something has arrived."""
    if not deadline.expired():
        deadline.reschedule(asyncio.get_running_loop().time() + seconds)


def _said_reason(stream: Any) -> str:
    """The finish reason that LiteLLM has read in a stream; empty if there was none."""
    return (
        stream.received_finish_reason or stream.intermittent_finish_reason or ""
    )


@asynccontextmanager
async def _counting(
    stream: Any,
    builder: CompletionAnswer,
    *,
    begins_with_count: bool,
) -> AsyncGenerator[None]:
    """Close a stream at its end, and add the counts of its chunks; those that LiteLLM makes itself may be estimates.

    Args:
        stream: LiteLLM's stream.
        builder: What the counts are added to.
        begins_with_count: Whether the provider begins with a count of the answer, which says nothing of its end.
    """
    try:
        async with aclosing(stream):
            yield
    finally:
        is_only_begun = begins_with_count and not _said_reason(stream)
        for chunk in stream.chunks:
            usage = getattr(chunk, "usage", None)
            if not usage:
                continue
            counts = usage.model_dump(warnings=False)
            if is_only_begun:
                for name in _COUNTS_OF_ANSWER:
                    counts.pop(name, None)
            builder.add({"usage": counts})


def _unpack(message: JsonObject) -> None:
    """Put the further fields of a message, or of a piece of one, back where the provider had them."""
    fields = as_object(message.pop("provider_specific_fields", None))
    for name, value in fields.items():
        message.setdefault(name, value)
    reasoning = message.get("reasoning")
    if reasoning and reasoning == message.get("reasoning_content"):
        del message["reasoning_content"]  # LiteLLM's copy


def _take_own_fields(delta: JsonObject) -> bool:
    """Take LiteLLM's own further fields out of a delta, which only LiteLLM can put together; return if there were."""
    taken = [delta.pop(name, None) for name in _OWN_FIELDS]
    return any(taken)


def _joined_own_fields(chunks: list[Any]) -> JsonObject:
    """The further fields of the message that LiteLLM puts together from the chunks that have parts of them."""
    litellm = litellm_loader.loaded()
    whole = litellm.stream_chunk_builder(chunks).model_dump(warnings=False)
    message = whole["choices"][0]["message"]
    return {name: message[name] for name in _OWN_FIELDS if message.get(name)}


def _error_body(error: BaseException) -> ErrorBody:
    """The provider's error, from LiteLLM's exception: `body` of it or of a cause, or the JSON in its message."""
    # some messages have the `repr` of bytes
    text = str(error).replace("\\'", "'")
    body = _attached_body(error)
    if body is None:
        body = _json_in(text)
    code = getattr(error, "status_code", None)
    if body is None and isinstance(code, str):  # the provider's
        body = {"code": code}
    found = ErrorBody()
    if body:
        found = read_error(body)
    # LiteLLM's own words in the message tell what it has recognised
    return replace(found, reasons=(*found.reasons, text))


def _attached_body(error: BaseException) -> Any:
    """The body that an exception or one of its causes has; None if it is not an object."""
    for cause in causes(error):
        body = getattr(cause, "body", None)
        if is_object(body):
            return body
    return None


def _json_in(text: str) -> Any:
    """The first object or array in a text; None if there is none."""
    opening = _OPENING.search(text)
    if opening is None:
        return None
    try:
        data, _ = json.JSONDecoder().raw_decode(text[opening.start() :])
    except ValueError:
        return None
    return data
