"""Models by name: from "<provider>/<model_name>" to a `Model`."""

from __future__ import annotations

import contextlib
import difflib
import os
import re
from collections.abc import Callable, Generator
from contextvars import ContextVar

from podwright.errors import ConfigurationError, UnknownModelError
from podwright.models.base import Connection, Model
from podwright.models.offline import EchoModel
from podwright.models.providers import ANY, ENDPOINTS
from podwright.models.urls import join_url
from podwright.text import did_you_mean

Provider = Callable[[str, Connection], Model]
"""Makes the model for a model name (the part after the first slash) and a connection."""

DEFAULT = Connection()
"""API key and base URL of the environment."""

MODEL_CLIENTS = ("auto", "openai", "litellm")
"""Values of `PODWRIGHT_MODEL_CLIENT`: by provider, always the OpenAI-compatible client, or always LiteLLM."""


def _offline(model_name: str, connection: Connection) -> Model:
    if model_name == "echo":
        return EchoModel()
    raise UnknownModelError(
        f"Unknown offline model 'offline/{model_name}'.",
        suggestion="Use 'offline/echo', or give the component a model object.",
    )


_PROVIDER_NAME = re.compile(r"[\w.-]+", re.ASCII)
_providers: dict[str, Provider] = {"offline": _offline}
_resolved: dict[tuple[str, Connection], Model] = {}
_override: ContextVar[Model | None] = ContextVar("podwright_model", default=None)


def register_provider(name: str, provider: Provider) -> None:
    """Add a provider, or replace one.

    Args:
        name: The part of a model's name before the first slash.
        provider: Called with the model's name (the part after the slash) and the `Connection` of the component, once
            for each pair at first use; returns a `Model`.

    Raises:
        ConfigurationError: The name has other characters than letters, digits, `.`, `_` and `-`, or none.
    """
    if not _PROVIDER_NAME.fullmatch(name):
        raise ConfigurationError(f"Invalid provider name {name!r}.", suggestion="Use letters, digits, '.' and '-'.")
    _providers[name] = provider
    for key in [key for key in list(_resolved) if key[0].partition("/")[0] == name]:
        del _resolved[key]


def resolve(name: str, model: Model | None = None, connection: Connection = DEFAULT) -> Model:
    """The model that answers: that of `use_model`, else `model`, else the one with this name.

    Raises:
        UnknownModelError: Unknown provider.
        ConfigurationError: `PODWRIGHT_MODEL_CLIENT` or `PODWRIGHT_MODEL_BASE_URL` is invalid.
    """
    return _override.get() or model or _by_name(name, connection)


@contextlib.contextmanager
def use_model(model: Model | str | None) -> Generator[Model | None]:
    """Within this context, this model answers every model call, whatever the components name; None changes nothing."""
    chosen = _by_name(model, DEFAULT) if isinstance(model, str) else model or _override.get()
    token = _override.set(chosen)
    try:
        yield chosen
    finally:
        _override.reset(token)


def _by_name(name: str, connection: Connection) -> Model:
    model = _resolved.get((name, connection))
    if model is None:
        provider, _, model_name = name.partition("/")
        if not (_PROVIDER_NAME.fullmatch(provider) and model_name):
            raise _unknown(name)
        factory = _providers.get(provider)
        model = factory(model_name, connection) if factory else _by_client(name, connection)
        if not isinstance(model, Model):  # pyright: ignore[reportUnnecessaryIsInstance] - a caller's function made it
            raise ConfigurationError(f"The provider '{provider}' returned {model!r} for '{name}', not a Model.")
        if model.name == Model.name:  # it has none of its own
            model.name = name
        _resolved[name, connection] = model
    return model


def _by_client(name: str, connection: Connection) -> Model:
    client = os.environ.get("PODWRIGHT_MODEL_CLIENT") or "auto"
    if client not in MODEL_CLIENTS:
        message = f"PODWRIGHT_MODEL_CLIENT is '{client}'."
        raise ConfigurationError(message, suggestion=f"Set it to one of: {', '.join(MODEL_CLIENTS)}.")
    provider = name.partition("/")[0]
    endpoint = ENDPOINTS.get(provider)
    if connection.base_url is None and (url := os.environ.get("PODWRIGHT_MODEL_BASE_URL")):
        connection, endpoint = _shared_endpoint(url, connection), ANY
    # LiteLLM takes seconds to reject a misspelt name
    if endpoint is None and difflib.get_close_matches(provider, [*_providers, *ENDPOINTS], n=1, cutoff=0.9):
        raise _unknown(name)
    if client == "openai" and endpoint is None:
        if connection.base_url is None:
            raise _unknown(name)
        endpoint = ANY
    # each client is imported only where it is used
    if client == "litellm" or endpoint is None:
        from podwright.models.litellm import LiteLLMModel

        try:
            return LiteLLMModel(name, connection)
        except UnknownModelError as error:  # not installed; the name may be misspelt as well
            raise error if endpoint else _unknown(name, error.suggestion) from None
    from podwright.models.openai_compatible import ChatModel

    return ChatModel(name, connection, endpoint)


def _shared_endpoint(url: str, connection: Connection) -> Connection:
    """The connection to the endpoint of `PODWRIGHT_MODEL_BASE_URL`; a provider's own key is never sent there."""
    try:
        join_url(url, "/")
    except ValueError:
        raise ConfigurationError(
            "PODWRIGHT_MODEL_BASE_URL is not a valid base URL.", suggestion="Write it as https://host/path."
        ) from None
    key = connection.api_key
    return Connection(os.environ.get("PODWRIGHT_MODEL_API_KEY", "") if key is None else key, url)


def _unknown(name: str, *hints: str) -> UnknownModelError:
    provider, slash, _ = name.partition("/")
    if not slash:
        hint = f"Write it as '<provider>/{name}', as in 'openai/gpt-4o-mini'."
        return UnknownModelError(f"The model name '{name}' has no provider.", suggestion=hint)
    known = did_you_mean(provider, [*_providers, *ENDPOINTS])
    hint = " ".join([known, "Or add your own with register_provider().", *hints])
    return UnknownModelError(f"Unknown model provider '{provider}' in '{name}'.", suggestion=hint)
