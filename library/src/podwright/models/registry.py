"""Models by name: from "<provider>/<model_name>" to a `Model`."""

from __future__ import annotations

import contextlib
import difflib
import re
from collections.abc import Callable, Generator, Mapping
from contextvars import ContextVar
from dataclasses import replace
from types import MappingProxyType
from typing import Literal, NamedTuple, get_args

from podwright.data.text import did_you_mean
from podwright.errors import (
    ConfigurationError,
    PodwrightError,
    UnknownModelError,
    error_from,
)
from podwright.models import litellm_loader
from podwright.models.base import Connection, Model
from podwright.models.call_settings import apply_call_settings
from podwright.models.http.urls import join_url
from podwright.models.offline.offline import EchoModel
from podwright.models.providers import (
    ANY,
    ENDPOINTS,
    PROTOCOL_NAMES,
    Endpoint,
    Protocol,
    first_value,
    first_variable,
    how_vendor_is_named,
)
from podwright.settings import (
    LibrarySettings,
    ModelClient,
    current_settings,
    forget_settings,
)

Provider = Callable[[str, Connection], Model]
"""Makes the model for a model name (the part after the first slash) and a connection."""

DEFAULT = Connection()
"""API key and base URL of the environment."""

MODEL_CLIENTS: tuple[ModelClient, ...] = get_args(ModelClient)
"""Values of `PODWRIGHT_MODEL_CLIENT`: by provider, always the OpenAI-compatible client, or always LiteLLM."""

Client = Literal["openai", "anthropic", "litellm", "own"]
"""Who calls a model: the OpenAI-compatible client, that of Anthropic's protocol, LiteLLM, or a registered provider."""

_CLIENTS: dict[Protocol, Client] = {
    "chat_completions": "openai",
    "messages": "anthropic",
}


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
_NO_MODELS: Mapping[str, Model] = MappingProxyType({})
_override: ContextVar[Mapping[str, Model]] = ContextVar(
    "podwright_models", default=_NO_MODELS
)
"""Models in place of those that components name, by the name of the component; `EVERY` stands for all others."""

EVERY = "*"
"""The name that stands for all components that are not named themselves."""
ModelChoice = Model | str | Mapping[str, Model | str]
"""A model or its name, or several by the names of the components that they answer for."""


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
        raise ConfigurationError(
            f"Invalid provider name {name!r}.",
            suggestion="Use letters, digits, '.', '_' and '-'.",
        )
    _providers[name] = provider
    for key in list(_resolved):
        model_name, _ = key
        if model_name.partition("/")[0] == name:
            del _resolved[key]


def registered_provider(name: str) -> Provider | None:
    """The provider that was registered with a name; None for those that Podwright knows itself."""
    provider = _providers.get(name)
    if provider is _offline:
        return None
    return provider


def resolve(
    name: str,
    model: Model | None = None,
    connection: Connection = DEFAULT,
    *,
    component: str = "",
) -> Model:
    """The model that answers: that of `use_model`, else `model`, else the one with this name.

    Args:
        name: "<provider>/<model_name>".
        model: A model object that a component was given.
        connection: API key and base URL of the component.
        component: The name of the component, which may have a model of its own in `use_model`.

    Raises:
        UnknownModelError: Unknown provider.
        ConfigurationError: A variable of the library is invalid.
    """
    return model_object(model, component) or _by_name(name, connection)


def model_object(model: Model | None, component: str) -> Model | None:
    """The model object that answers: that of `use_model`, else `model`; None if the model is only named.

    Args:
        model: A model object that a component was given.
        component: The name of the component.
    """
    models = _override.get()
    return models.get(component) or models.get(EVERY) or model


def models_by_component(choice: ModelChoice) -> dict[str, Model]:
    """The models of a choice, by the name of the component that they answer for; `EVERY` stands for all others.

    Raises:
        UnknownModelError: Unknown provider.
    """
    if not isinstance(choice, Mapping):
        choice = {EVERY: choice}
    models: dict[str, Model] = {}
    for component, model in choice.items():
        if isinstance(model, str):
            models[component] = _by_name(model, DEFAULT)
        else:
            models[component] = model
    return models


@contextlib.contextmanager
def use_model(model: ModelChoice | None) -> Generator[Model | None]:
    """Within this context, this model answers every model call, whatever the components name; None changes nothing.

    Args:
        model: A model or its name; or several by the names of agents, `{"writer": "openai/gpt-5"}`. Agents that are not
            named keep their models, unless the name `*` stands for them.

    Yields:
        The model for all agents that are not named; None if they keep theirs.
    """
    chosen = _override.get()
    if isinstance(model, Mapping):
        chosen = {**chosen, **models_by_component(model)}
    elif model is not None:
        chosen = models_by_component(model)
    token = _override.set(chosen)
    try:
        yield chosen.get(EVERY)
    finally:
        _override.reset(token)


def _by_name(name: str, connection: Connection) -> Model:
    model = _resolved.get((name, connection))
    if model is None:
        model = _make_model(name, connection)
        _resolved[name, connection] = model
    return model


def _make_model(name: str, connection: Connection) -> Model:
    _check_name(name)
    provider, _, model_name = name.partition("/")
    factory = _providers.get(provider)
    if factory is None:
        model = _by_client(name, connection)
        apply_call_settings(model, current_settings())
        return model
    try:
        model = factory(model_name, connection)
    except PodwrightError:
        raise
    except Exception as error:
        subject = f"The function of the provider '{provider}' for '{name}'"
        raise error_from(ConfigurationError, subject, error) from error
    if not isinstance(model, Model):  # pyright: ignore[reportUnnecessaryIsInstance] - a caller's function made it
        raise ConfigurationError(
            f"The provider '{provider}' returned {model!r} for '{name}', not a Model."
        )
    if model.name == Model.name:  # it has none of its own
        model.name = name
    if factory is not _offline:
        forget_settings()
        apply_call_settings(model, current_settings())
    return model


def _check_name(name: str) -> None:
    provider, _, model_name = name.partition("/")
    if not model_name or not _PROVIDER_NAME.fullmatch(provider):
        raise _unknown_provider_error(name)


class ClientChoice(NamedTuple):
    """The client that calls a model, and why."""

    client: Client
    reason: str
    endpoint: Endpoint = ANY
    """What is known of the provider."""
    connection: Connection = DEFAULT


def choose_client(name: str, connection: Connection = DEFAULT) -> ClientChoice:
    """The client that calls a model, as the environment chooses it now.

    Args:
        name: "<provider>/<model_name>".
        connection: API key and base URL of the component.

    Raises:
        UnknownModelError: Unknown provider.
        ConfigurationError: A variable of the library is invalid.
    """
    _check_name(name)
    forget_settings()
    settings = current_settings()
    wanted = settings.model_client
    provider = name.partition("/")[0]
    if provider in _providers:
        return _own_choice(provider)
    endpoint = ENDPOINTS.get(provider)
    if connection.base_url is None and settings.model_base_url:
        connection = _shared_endpoint(settings, connection)
        endpoint = ANY
        reason = "PODWRIGHT_MODEL_BASE_URL is set"
    elif endpoint is not None:
        reason = f"{provider} speaks {PROTOCOL_NAMES[endpoint.protocol]}"
    else:
        _check_spelling(name)
        reason = "no other client knows its provider"
    if wanted == "litellm":
        reason = "PODWRIGHT_MODEL_CLIENT is litellm"
        return ClientChoice(
            "litellm", reason, endpoint or ANY, connection=connection
        )
    if wanted == "openai" and (
        endpoint is None or endpoint.protocol != "chat_completions"
    ):
        if connection.base_url is None:
            raise _no_chat_completions_error(name, endpoint)
        reason = "PODWRIGHT_MODEL_CLIENT is openai"
        return ClientChoice("openai", reason, connection=connection)
    if endpoint is None:
        return ClientChoice("litellm", reason, connection=connection)
    if wanted == "auto":
        variable = _identity(endpoint, connection)
        if variable:
            reason = f"{variable} is set, and no API key"
            return ClientChoice(
                "litellm", reason, endpoint, connection=connection
            )
    client = _CLIENTS[endpoint.protocol]
    return ClientChoice(client, reason, endpoint, connection=connection)


def _own_choice(provider: str) -> ClientChoice:
    """The choice for a registered provider."""
    if _providers[provider] is _offline:
        return ClientChoice("own", "it needs no provider")
    return ClientChoice("own", f"the provider '{provider}' is registered")


def _check_spelling(name: str) -> None:
    """Check that the provider does not resemble a known one: LiteLLM takes seconds to reject a misspelled name."""
    provider = name.partition("/")[0]
    known = [*_providers, *ENDPOINTS]
    if difflib.get_close_matches(provider, known, n=1, cutoff=0.9):
        raise _unknown_provider_error(name)


def _identity(endpoint: Endpoint, connection: Connection) -> str:
    """The variable of an identity that stands for a key which is not set; empty if there is none."""
    if connection.api_key is not None:
        return ""
    if first_value(endpoint.keys):
        return ""
    return first_variable(endpoint.identities)


def _by_client(name: str, connection: Connection) -> Model:
    choice = choose_client(name, connection)
    # each client is imported only where it is used
    match choice.client:
        case "litellm":
            if not litellm_loader.installed():
                raise _no_litellm_error(name, choice.reason)
            from podwright.models.litellm.model import LiteLLMModel

            return LiteLLMModel(name, choice.connection)
        case "anthropic":
            from podwright.models.protocols.anthropic import MessagesModel

            return MessagesModel(name, choice.connection, choice.endpoint)
        case _:
            from podwright.models.protocols.openai_compatible import ChatModel

            return ChatModel(name, choice.connection, choice.endpoint)


def _shared_endpoint(
    settings: LibrarySettings, connection: Connection
) -> Connection:
    """The connection to the endpoint of `PODWRIGHT_MODEL_BASE_URL`; a provider's own key is never sent there."""
    url = settings.model_base_url
    try:
        join_url(url, "/")
    except ValueError:
        raise ConfigurationError(
            "PODWRIGHT_MODEL_BASE_URL is not a valid base URL.",
            suggestion="Write it as https://host/path.",
        ) from None
    if connection.api_key is not None:
        return replace(connection, base_url=url)
    return Connection(
        api_key=settings.model_api_key,
        base_url=url,
        key_source="PODWRIGHT_MODEL_API_KEY",
    )


def _no_chat_completions_error(
    name: str, endpoint: Endpoint | None
) -> UnknownModelError | ConfigurationError:
    if endpoint is None:
        return _unknown_provider_error(name)
    return ConfigurationError(
        f"'{name}' has no Chat Completions endpoint, and PODWRIGHT_MODEL_CLIENT is 'openai'.",
        suggestion="Set PODWRIGHT_MODEL_CLIENT=auto, or the base URL of an endpoint with Chat Completions.",
    )


def _no_litellm_error(name: str, reason: str) -> UnknownModelError:
    hint = "Install it: pip install 'podwright[litellm]'."
    # it may be misspelled as well
    if name.partition("/")[0] not in ENDPOINTS:
        return _unknown_provider_error(name, f"Or it needs LiteLLM. {hint}")
    message = f"The model '{name}' needs LiteLLM, which is not installed: {reason.rstrip('.')}."
    return UnknownModelError(message, suggestion=hint)


def _unknown_provider_error(name: str, *hints: str) -> UnknownModelError:
    provider, slash, _ = name.partition("/")
    if not slash:
        hint = f"Write it as '<provider>/{name}', as in 'openai/gpt-4o-mini'."
        return UnknownModelError(
            f"The model name '{name}' has no provider.", suggestion=hint
        )
    known = how_vendor_is_named(provider) or did_you_mean(
        provider, [*_providers, *ENDPOINTS]
    )
    hint = " ".join(
        [known, "Or add your own with register_provider().", *hints]
    )
    return UnknownModelError(
        f"Unknown model provider '{provider}' in '{name}'.", suggestion=hint
    )
