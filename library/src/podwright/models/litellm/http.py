"""The HTTP client of LiteLLM's own providers, which keeps what LiteLLM does not pass on.

LiteLLM takes a client for each call. This one follows no redirects, because the key would go along, trusts the same
certificates and proxies as the other clients, and lets its caller see what arrives: the status, the provider's own stop
reason, which LiteLLM may replace, and each sign of life, which LiteLLM may swallow.
"""

from __future__ import annotations

import contextlib
import importlib
import re
import ssl
from collections.abc import AsyncIterator, Callable, Generator, Mapping
from contextvars import ContextVar
from typing import Any

import httpx

from podwright.models.http.client import (
    MAX_RESPONSE,
    OnePerLoop,
    TransportError,
    propagated,
)
from podwright.models.http.proxies import (
    environment_proxy_of_litellm,
    trusts_environment,
)

_STOP_REASON = re.compile(
    rb'"(stop_?reason|finish_?reason|done_reason)"\s*:\s*"([^"\\]+)"',
    re.IGNORECASE,
)
_COUNT = re.compile(
    rb'"(?:prompt_eval_count|prompt_?token\w*|input_?tokens)"\s*:\s*\d',
    re.IGNORECASE,
)
_ENCODED = re.compile(rb'"bytes"\s*:\s*"')
"""How AWS encodes the events of a provider within its own."""
_OVERLAP = 200
"""Bytes of a piece that are looked at again with the next one."""
_NO_LIMITS = httpx.Limits(max_connections=None, max_keepalive_connections=None)
_MAX_ERROR = 100_000
"""Bytes of an error that are kept."""


class Wire:
    """What arrives from a provider during one attempt."""

    def __init__(self) -> None:
        self.status: int | None = None
        """The HTTP status; None before there is a response, and for providers that LiteLLM calls in another way."""
        self.headers: Mapping[str, str] = {}
        self.proxy: str | None = None
        """The proxy of the request, without credentials; None if it is not known to have one."""
        self.is_readable = True
        """Whether the response says in plain words what is looked for."""
        self.stop_reason = ""
        """Why the model stopped, in the provider's words; empty if it is not known."""
        self.has_counts = False
        """Whether the provider has counted tokens."""
        self.error = b""
        """The body of a refusal."""
        self.on_data: Callable[[], object] = _do_nothing
        """Called for each piece of the response."""
        self.fault: TransportError | None = None
        """Why the rest of the response was not read."""
        self._has_finish_reason = False
        self._size = 0
        self._recent = b""

    @property
    def has_refusal(self) -> bool:
        """Whether the response is a refusal, or a redirect."""
        return self.status is not None and self.status >= 300

    @property
    def has_readable_response(self) -> bool:
        """Whether there is a response, and it says in plain words what is looked for."""
        return self.status is not None and self.is_readable

    def begin(self, response: httpx.Response) -> None:
        """Note the status and the headers."""
        self.status = response.status_code
        self.headers = response.headers
        encoding = response.headers.get("Content-Encoding", "identity")
        self.is_readable = encoding == "identity"

    def add(self, data: bytes) -> None:
        """Note what a piece of the body says.

        Raises:
            TransportError: The response is too long.
        """
        self.on_data()
        self._size += len(data)
        if self._size > MAX_RESPONSE:
            self.fault = TransportError(
                "too_large", f"the response is longer than {MAX_RESPONSE} bytes"
            )
            raise self.fault
        if self.has_refusal:
            self.error = (self.error + data)[:_MAX_ERROR]
        else:
            self._look_for_facts(data)

    def _look_for_facts(self, data: bytes) -> None:
        text = self._recent + data
        if _ENCODED.search(text):
            self.is_readable = False
        for key, reason in _STOP_REASON.findall(text):
            is_finish_reason = key.lower().startswith(b"finish")
            # beside it, vLLM has the text that stopped the model as `stop_reason`
            if is_finish_reason or not self._has_finish_reason:
                self.stop_reason = reason.decode(errors="replace")
            self._has_finish_reason |= is_finish_reason
        if _COUNT.search(text):
            self.has_counts = True
        self._recent = text[-_OVERLAP:]


def _do_nothing() -> None:
    """The default of `Wire.on_data`."""


_wire: ContextVar[Wire | None] = ContextVar(
    "podwright_litellm_wire", default=None
)


@contextlib.contextmanager
def watched(wire: Wire) -> Generator[None]:
    """Within this context, what arrives for LiteLLM is shown to this wire."""
    token = _wire.set(wire)
    try:
        yield
    finally:
        _wire.reset(token)


class _WatchedStream(httpx.AsyncByteStream):
    def __init__(self, stream: Any, wire: Wire) -> None:
        self._stream = stream
        self._wire = wire

    async def __aiter__(self) -> AsyncIterator[bytes]:
        async for data in self._stream:
            self._wire.add(data)
            yield data

    async def aclose(self) -> None:
        await self._stream.aclose()


async def _watch(response: httpx.Response) -> None:
    wire = _wire.get()
    if wire is not None:
        wire.begin(response)
        response.stream = _WatchedStream(response.stream, wire)


async def _complete(request: httpx.Request) -> None:
    """Ask for plain bytes, which the wire can read, and continue the trace."""
    wire = _wire.get()
    if wire is not None:
        wire.proxy = environment_proxy_of_litellm(str(request.url))
    request.headers["Accept-Encoding"] = "identity"
    request.headers.update(propagated())


def _new_client(certificates: ssl.SSLContext) -> Any:
    handlers: Any = importlib.import_module(
        "litellm.llms.custom_httpx.http_handler"
    )
    # without a transport, LiteLLM takes one of its own, which uses the proxies of the environment
    transport = None
    if not trusts_environment():
        transport = httpx.AsyncHTTPTransport(
            verify=certificates, limits=_NO_LIMITS
        )
    return handlers.AsyncHTTPHandler(
        ssl_verify=certificates,
        transport=transport,
        event_hooks={"request": [_complete], "response": [_watch]},
        follow_redirects=False,
    )


async def _close(client: Any) -> None:
    await client.client.aclose()


clients: OnePerLoop[Any] = OnePerLoop(_new_client, _close)
"""Its `get` returns the client of the running event loop, as LiteLLM's argument `client` takes it."""
