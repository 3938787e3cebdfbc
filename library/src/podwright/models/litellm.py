"""The wide lane: every provider that LiteLLM speaks to. The only file that imports LiteLLM, on first need.

LiteLLM takes seconds and more than 100 MB to import, so the import waits for the first call and happens in a
thread. It is kept to translating: one try a call, our time-outs, no look-up of prices, no log of what was said.
"""

from __future__ import annotations

import asyncio
import importlib
import importlib.util
import json
import logging
import os
import ssl
import threading
import warnings
import zlib
from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import aclosing, asynccontextmanager
from contextvars import ContextVar
from dataclasses import replace
from functools import lru_cache, wraps
from typing import Any

import orjson

from podwright.deadlines import Deadline
from podwright.errors import (
    ContentFilterError,
    ContextWindowError,
    ModelAuthenticationError,
    ModelConnectionError,
    ModelError,
    ModelRequestError,
    ModelResponseError,
    ModelTimeoutError,
    PodwrightError,
    UnknownModelError,
)
from podwright.messages import ModelRequest, ModelResponse, ToolSchema
from podwright.models import pricing
from podwright.models.base import ANSWER_TOOL, Connection, Model, TokenCallback
from podwright.models.chat_completions import Answer, MalformedError, RefusedError, request_body
from podwright.models.providers import ANY, ENDPOINTS
from podwright.models.retries import LONGEST_ANSWER, insecure, refusal, too_long
from podwright.usage import Usage

_SET_BEFORE_IMPORT = {
    "LITELLM_LOCAL_MODEL_COST_MAP": "True",  # it would fetch a price list from the network
    "LITELLM_MODE": "PRODUCTION",  # it would read a .env file
}
_BROKEN = "malformed_function_call"
"""The one reason to stop that LiteLLM hands on and that no answer can have which is whole."""
_BREAKS = (
    "error", "ERROR", "insufficient_system_resource", "network_error", "MALFORMED_FUNCTION_CALL", "MALFORMED_RESPONSE",
    _BROKEN,
)  # fmt: skip
_NO_ANSWER = (
    "invalid response from llm endpoint", "invalid response object", "error in response object format",
    "litellm: provider returned",
)  # fmt: skip
"""What LiteLLM says of an answer that is not what it should be."""
_heard: ContextVar[list[int]] = ContextVar("heard")
"""The HTTP status of each answer to the call that is made."""
_lock = threading.Lock()


class LiteLLMModel(Model):
    """A model that is reached through LiteLLM.

    A setting that the provider does not have is an error, never left out in silence. Where LiteLLM knows of no
    JSON-schema mode, structured output is asked for through a tool, and given back as if there were one.

    Args:
        name: As a blueprint names it, "<provider>/<model_name>", in LiteLLM's names.
        connection: The key and the endpoint; what it leaves out, LiteLLM takes from the environment.

    Raises:
        UnknownModelError: LiteLLM is not installed.
    """

    def __init__(self, name: str, connection: Connection) -> None:
        self.name = name
        self._connection = connection
        self._has_schemas: bool | None = None
        if not _installed():
            raise UnknownModelError(
                f"The model '{name}' is reached through LiteLLM, which is not installed.",
                suggestion="Install it: pip install 'podwright[litellm]'.",
            )

    def price(self, usage: Usage) -> float | None:
        """What `usage` would cost, in USD; None if nobody knows."""
        cost = pricing.lookup(self.name, usage)
        return cost.amount if cost else None

    async def complete(self, request: ModelRequest, on_token: TokenCallback | None = None) -> ModelResponse:
        """Ask through LiteLLM, once.

        Raises:
            ModelError: See the table in `docs/models.md`.
            UnknownModelError: LiteLLM does not know the provider.
        """
        if self._has_schemas is None:
            self._has_schemas = await asyncio.to_thread(self._prepare)
        fault: ModelError
        _heard.set([])
        try:
            if on_token is None:
                answer = await self._whole(request)
            else:
                answer = await self._streamed(request, on_token)
            return self._response(answer, request)
        except PodwrightError:
            raise
        except RefusedError as error:
            fault = refusal(self.name, error.status, error.said)
        except MalformedError:
            fault = ModelResponseError(f"'{self.name}': the answer is no chat completion.")
        except Exception as error:  # noqa: BLE001 - LiteLLM lets errors of many libraries through
            fault = self._fault(error, request)
        # outside of the handler: an error of LiteLLM quotes the provider, and must not be seen as the context of ours
        raise fault

    def _prepare(self) -> bool:
        """Do what takes long before the first call; tells whether LiteLLM knows of a JSON-schema mode."""
        pricing.warm(self.name)
        try:
            litellm = _litellm()
        except ssl.SSLError:  # it reads whom to trust when it is imported
            raise insecure(self.name) from None
        try:
            litellm.get_llm_provider(self.name, api_base=self._connection.base_url)
        except litellm.exceptions.BadRequestError:
            raise UnknownModelError(f"LiteLLM knows no provider of '{self.name}'.") from None
        return bool(litellm.supports_response_schema(self.name))

    async def _whole(self, request: ModelRequest) -> Answer:
        patience = request.settings.get("timeout", self.timeouts.first_byte)
        async with self._within(patience, "no answer"):
            reply = await _litellm().acompletion(**self._arguments(request, patience, stream=False))
        answer = Answer()
        answer.add(reply.model_dump(warnings=False))
        return answer

    async def _streamed(self, request: ModelRequest, on_token: TokenCallback) -> Answer:
        patience = self.timeouts.first_byte
        async with self._within(patience, "no answer"):
            stream = await _litellm().acompletion(**self._arguments(request, patience, stream=True))
        answer = Answer()
        async with aclosing(stream):
            while True:
                async with self._within(patience, "nothing more"):
                    chunk = await anext(stream, None)
                if chunk is None:
                    break
                patience = self.timeouts.idle
                data = chunk.model_dump(warnings=False)
                if data.get("usage") and not any(getattr(one, "usage", None) for one in stream.chunks):
                    del data["usage"]  # LiteLLM's own estimate
                text = answer.add(data)
                if text:
                    on_token(text)
        # LiteLLM ends every stream with a reason, its own if the provider gave none
        if not (stream.received_finish_reason or stream.intermittent_finish_reason):
            raise ModelResponseError(f"'{self.name}': the answer ended in its middle.")
        return answer

    @asynccontextmanager
    async def _within(self, seconds: float, late: str) -> AsyncGenerator[None]:
        deadline = Deadline(seconds)
        try:
            with deadline:
                yield
        except TimeoutError:
            if not deadline.expired:
                raise
            raise ModelTimeoutError(f"'{self.name}': {late} within {seconds:g} s.") from None

    def _arguments(self, request: ModelRequest, patience: float, *, stream: bool) -> dict[str, Any]:
        if request.output and not self._has_schemas:
            function: Any = {"name": ANSWER_TOOL, "description": "Give the final answer."}
            function["parameters"] = request.output.schema
            tools: list[ToolSchema] = [*request.tools, {"type": "function", "function": function}]
            request = replace(request, tools=tools, output=None)
        return {
            **orjson.loads(request_body(request, self.name, ANY, stream)),
            # an empty one says that there is none; LiteLLM would send that of the environment instead
            "api_key": "none" if self._connection.api_key == "" else self._connection.api_key,
            "base_url": self._connection.base_url,
            "timeout": importlib.import_module("httpx").Timeout(patience, connect=self.timeouts.connect),
            # it would import what it needs to call tools itself, which is not installed
            "_skip_mcp_handler": True,
            # its own repetitions would multiply with ours
            "num_retries": 0,
            "max_retries": 0,
        }

    def _response(self, answer: Answer, request: ModelRequest) -> ModelResponse:
        if answer.reason == _BROKEN:
            raise RefusedError(500, "")
        response = answer.response(request, ENDPOINTS.get(self.name.partition("/")[0], ANY))
        given = next((call for call in response.tool_calls if call.name == ANSWER_TOOL), None)
        if given and request.output:
            return replace(response, text=given.arguments, tool_calls=(), finish_reason="stop")
        return response

    def _fault(self, error: Exception, request: ModelRequest) -> ModelError:
        """The same in our words."""
        httpx: Any = importlib.import_module("httpx")  # LiteLLM brings them
        aiohttp: Any = importlib.import_module("aiohttp")

        known, who = _litellm().exceptions, f"'{self.name}'"
        chain = list(_chain(error))
        said = " ".join(str(one) for one in chain)

        def caused_by(*kinds: type[Exception]) -> bool:
            return any(isinstance(one, kinds) for one in chain)

        if caused_by(_TooLongError):
            return too_long(self.name)
        if caused_by(known.UnsupportedParamsError):
            wrong = ", ".join(f"'{key}'" for key in request.settings if f"'{key}'" in said) or "a setting"
            return ModelRequestError(f"{who} does not take {wrong}.", suggestion="Remove it from the config.")
        if caused_by(known.ContextWindowExceededError):
            return ContextWindowError(f"{who}: the request is too long for the model.")
        if caused_by(known.ContentPolicyViolationError):
            return ContentFilterError(f"{who}: its content filter stopped the request.")
        if caused_by(aiohttp.ClientSSLError):
            return insecure(self.name)
        if caused_by(httpx.TimeoutException):
            return ModelTimeoutError(f"{who}: no answer in time.")
        if caused_by(
            MalformedError,
            json.JSONDecodeError,
            aiohttp.ClientPayloadError,
            known.APIResponseValidationError,
        ) or _makes_no_sense(chain, said):
            return ModelResponseError(f"{who}: the answer is truncated, or no chat completion.")
        if caused_by(httpx.TransportError):
            return ModelConnectionError(f"{who}: no connection, or it was lost.")
        if self._connection.api_key is None and caused_by(known.AuthenticationError):
            asked_for = _litellm().validate_environment(self.name)["missing_keys"]
            # without one it says no in the provider's name; those who have other ways to say who they are it does ask
            if missing := [one for one in asked_for if one.endswith("_API_KEY")]:
                hint = f"Set {' and '.join(missing)}, or api_key."
                return ModelAuthenticationError(f"There is no key for {who}.", suggestion=hint)
        status = next((one.status_code for one in chain if isinstance(getattr(one, "status_code", None), int)), 500)
        given = "litellm_response_headers"
        found: Any = next((getattr(one, given) for one in chain if hasattr(one, given)), None)
        headers = {str(key).lower(): str(found[key]) for key in found or ()}
        return refusal(self.name, status, said, headers)


class _TooLongError(Exception):
    """There is more of an answer than is taken."""


def _makes_no_sense(chain: list[Any], said: str) -> bool:
    """Whether LiteLLM stumbled over an answer that was none of HTTP's refusals."""
    if not 200 <= next(reversed(_heard.get([])), 0) < 300:
        return False
    stumbled = isinstance(chain[-1], ValueError | TypeError | AttributeError | LookupError | RecursionError)
    return stumbled or any(mark in said.lower() for mark in _NO_ANSWER)


def _chain(error: BaseException | None) -> Iterator[Any]:
    """An error, and those that it was made from: what LiteLLM raises last says little."""
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        yield error
        error = getattr(error, "original_exception", None) or error.__cause__ or error.__context__


def _installed() -> bool:
    try:
        return importlib.util.find_spec("litellm") is not None
    except (ImportError, ValueError):
        return False


def _litellm() -> Any:
    with _lock:
        return _imported()


@lru_cache(maxsize=1)
def _imported() -> Any:
    for name, value in _SET_BEFORE_IMPORT.items():
        os.environ.setdefault(name, value)
    with warnings.catch_warnings():  # it hides some of everybody's
        warnings.simplefilter("ignore")
        litellm: Any = importlib.import_module("litellm")  # untyped for the most part
        litellm.suppress_debug_info = True
        if "LITELLM_LOG" not in os.environ:  # what it logs are requests, answers and stack traces
            for name in ("LiteLLM", "LiteLLM Router", "LiteLLM Proxy"):
                logging.getLogger(name).setLevel(logging.CRITICAL + 1)
        # at the first call it imports and builds as much again, with warnings
        importlib.import_module("openai.resources")
        hello: Any = {"model": "openai/rehearsal", "messages": [{"role": "user", "content": ""}], "mock_response": "."}
        litellm.completion(**hello)
        for _ in litellm.completion(**hello, stream=True):
            pass
    # what LiteLLM dumps itself: this warning quotes the answer, and a service writes warnings to its log
    warnings.filterwarnings("ignore", "Pydantic serializer warnings", UserWarning)
    _rein_in()
    return litellm


def _rein_in() -> None:
    """Let LiteLLM's clients go where the URL says and nowhere else, take so much, keep nothing, and repeat nothing.

    No redirect is followed, for some providers' key goes along; no proxy of the environment gets it, either.
    """
    litellm: Any = importlib.import_module("litellm")
    sdk: Any = importlib.import_module("litellm.llms.openai.common_utils").BaseOpenAILLM
    handlers: Any = importlib.import_module("litellm.llms.custom_httpx.http_handler")
    httpx: Any = importlib.import_module("httpx")
    bound = _bound(httpx)

    def reined(make: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(make)
        def made(*args: Any, **options: Any) -> Any:
            client = make(*args, **options)
            client.follow_redirects = False
            client.cookies = handlers.blocked_cookie_jar()  # all callers share the client
            client._mounts.clear()  # noqa: SLF001 - the proxies; they are asked for when it is made, or never
            if isinstance(client, httpx.AsyncClient):
                client.headers["Accept-Encoding"] = "identity"
                client.event_hooks["response"].append(bound)
            return client

        return made

    async def lost(*_: Any, **__: Any) -> Any:
        raise httpx.ConnectError("lost")

    litellm.disable_aiohttp_trust_env = True
    # where a provider says that its answer broke off, LiteLLM would say that it came to its end
    importlib.import_module("litellm.litellm_core_utils.core_helpers")._FINISH_REASON_MAP.update(  # noqa: SLF001
        dict.fromkeys(_BREAKS, _BROKEN)
    )
    for handler in (handlers.AsyncHTTPHandler, handlers.HTTPHandler):
        handler.create_client = reined(handler.create_client)
    handlers.AsyncHTTPHandler.single_connection_post_request = lost  # after a lost connection: the same once more
    # the SDK's have no public name
    sdk._get_async_http_client = staticmethod(reined(sdk._get_async_http_client))  # noqa: SLF001
    sdk._get_sync_http_client = staticmethod(reined(sdk._get_sync_http_client))  # noqa: SLF001


def _bound(httpx: Any) -> Callable[[Any], Any]:
    """A hook for the answers of a client, which bounds them: a little that is compressed may be very much."""

    class Bounded(httpx.AsyncByteStream):
        def __init__(self, stream: Any, zipped: bool) -> None:
            self._stream = stream
            self._unzip: Any = zlib.decompressobj(wbits=32 + zlib.MAX_WBITS) if zipped else None

        async def __aiter__(self) -> AsyncGenerator[bytes]:
            size = 0
            async for data in self._stream:
                piece = self._unzipped(data, LONGEST_ANSWER - size + 1) if self._unzip else data
                size += len(piece)
                if size > LONGEST_ANSWER:
                    raise _TooLongError
                yield piece

        def _unzipped(self, data: bytes, most: int) -> bytes:
            try:
                return self._unzip.decompress(data, most)
            except zlib.error as error:
                raise MalformedError from error

        async def aclose(self) -> None:
            await self._stream.aclose()

    async def bound(response: Any) -> None:
        _heard.get([]).append(response.status_code)
        coding = response.headers.pop("content-encoding", "identity").strip().lower()
        if coding not in ("", "identity", "gzip", "x-gzip", "deflate"):
            raise MalformedError
        response.stream = Bounded(response.stream, zipped=coding not in ("", "identity"))

    return bound
