"""Models by name: "<provider>/<model_name>" to something that answers."""

from __future__ import annotations

import contextlib
import difflib
import os
import re
from collections.abc import Callable, Generator
from contextvars import ContextVar

from podwright.errors import ConfigurationError, UnknownModelError
from podwright.messages import Message, ModelRequest, ModelResponse, ToolCall
from podwright.models.base import Connection, Model, TokenCallback
from podwright.models.offline import EchoModel, FunctionModel, ReplayModel, ScriptedModel
from podwright.models.providers import ANY, ENDPOINTS
from podwright.models.target import Target
from podwright.text import did_you_mean

Provider = Callable[[str, Connection], Model]
"""Makes the model for a model name (the part behind the slash) and a connection."""

DEFAULT = Connection()
"""Whatever the environment says."""

LANES = ("auto", "direct", "wide")
"""What `PODWRIGHT_MODEL_LANE` may be: by provider, always Chat Completions, or always LiteLLM."""

__all__ = [
    "DEFAULT",
    "Connection",
    "EchoModel",
    "FunctionModel",
    "Message",
    "Model",
    "ModelRequest",
    "ModelResponse",
    "Provider",
    "ReplayModel",
    "ScriptedModel",
    "TokenCallback",
    "ToolCall",
    "register_provider",
    "resolve",
    "use_model",
]


def _offline(model_name: str, connection: Connection) -> Model:
    if model_name == "echo":
        return EchoModel()
    raise UnknownModelError(
        f"Unknown offline model 'offline/{model_name}'.",
        suggestion="Use 'offline/echo', or hand a model object to the component.",
    )


_PROVIDER = re.compile(r"[\w.-]+", re.ASCII)
_providers: dict[str, Provider] = {"offline": _offline}
_resolved: dict[tuple[str, Connection], Model] = {}
_instead: ContextVar[Model | None] = ContextVar("podwright_model", default=None)


def register_provider(name: str, provider: Provider) -> None:
    """Make a provider known, or replace one.

    Args:
        name: The part of a model's name before the first slash.
        provider: Is called with the model's name (what stands behind the slash) and the `Connection` of the
            component, once for each on first use, and returns a `Model`.

    Raises:
        ConfigurationError: No model could be named by that name.
    """
    if not name or "/" in name:
        raise ConfigurationError(
            f"A provider cannot be called {name!r}.", suggestion="Use a name without slashes, such as 'mine'."
        )
    _providers[name] = provider
    for known in [known for known in list(_resolved) if known[0].partition("/")[0] == name]:
        del _resolved[known]


def resolve(name: str, given: Model | None = None, connection: Connection = DEFAULT) -> Model:
    """The model that answers: the one of `use_model`, else the one given, else that of the name.

    Raises:
        UnknownModelError: No provider of that name is known.
        ConfigurationError: `PODWRIGHT_MODEL_LANE` names no lane, or `PODWRIGHT_MODEL_BASE_URL` is no base URL.
    """
    return _instead.get() or given or _named(name, connection)


def _named(name: str, connection: Connection) -> Model:
    model = _resolved.get((name, connection))
    if model is None:
        provider, _, model_name = name.partition("/")
        if not (_PROVIDER.fullmatch(provider) and model_name):  # a URL, say
            raise _unknown(name)
        made = _providers.get(provider)
        model = made(model_name, connection) if made else _vendor(name, connection)
        if not isinstance(model, Model):  # pyright: ignore[reportUnnecessaryIsInstance] - it comes from a caller
            raise ConfigurationError(f"The provider '{provider}' made {model!r} for '{name}', which is no Model.")
        if model.name == Model.name:
            model.name = name
        _resolved[name, connection] = model
    return model


def _vendor(name: str, connection: Connection) -> Model:
    """A model in the network, in the lane that the environment and its provider say."""
    lane = os.environ.get("PODWRIGHT_MODEL_LANE") or "auto"
    if lane not in LANES:
        message = f"PODWRIGHT_MODEL_LANE is '{lane}'."
        raise ConfigurationError(message, suggestion=f"Set it to one of: {', '.join(LANES)}.")
    provider = name.partition("/")[0]
    endpoint = ENDPOINTS.get(provider)
    url = os.environ.get("PODWRIGHT_MODEL_BASE_URL")
    if url and connection.base_url is None:
        try:
            Target.below(url, "/")
        except ValueError:
            message = "PODWRIGHT_MODEL_BASE_URL is no URL that a path can follow."
            raise ConfigurationError(message, suggestion="Write it as https://host/path.") from None
        # without a key of its own that endpoint gets none: a provider's key is for that provider, but where it is
        # given an empty one, LiteLLM would take it
        nothing = "none" if lane == "wide" else ""
        key = connection.api_key or os.environ.get("PODWRIGHT_MODEL_API_KEY") or nothing
        connection, endpoint = Connection(key, url), ANY
    if endpoint is None and difflib.get_close_matches(provider, [*_providers, *ENDPOINTS], n=1, cutoff=0.9):
        raise _unknown(name)  # misspelt, rather than one that only LiteLLM knows, which takes seconds to say no
    if lane == "direct" and endpoint is None:
        if connection.base_url is None:
            raise _unknown(name)
        endpoint = ANY
    # each lane brings its own client, which only those pay for who take it
    if lane == "wide" or endpoint is None:
        from podwright.models.litellm import LiteLLMModel

        try:
            return LiteLLMModel(name, connection)
        except UnknownModelError as error:  # it is not installed, but then it may be a misspelt name just as well
            raise error if endpoint else _unknown(name, error.suggestion) from None
    from podwright.models.openai_compatible import ChatModel

    return ChatModel(name, connection, endpoint)


def _unknown(name: str, *hints: str) -> UnknownModelError:
    provider, slash, _ = name.partition("/")
    if not slash:
        hint = f"Write it as '<provider>/{name}', as in 'openai/gpt-4o-mini'."
        return UnknownModelError(f"The model '{name}' has no provider.", suggestion=hint)
    known = did_you_mean(provider, [*_providers, *ENDPOINTS])
    hint = " ".join([known, "Or make yours known with register_provider().", *hints])
    return UnknownModelError(f"Unknown model provider '{provider}' in '{name}'.", suggestion=hint)


@contextlib.contextmanager
def use_model(model: Model | str) -> Generator[Model]:
    """Within this context, this model answers every model call, whatever the components name."""
    chosen = _named(model, DEFAULT) if isinstance(model, str) else model
    token = _instead.set(chosen)
    try:
        yield chosen
    finally:
        _instead.reset(token)
