"""Models by name: "<provider>/<model_name>" to something that answers."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Generator
from contextvars import ContextVar

from podwright.errors import UnknownModelError, did_you_mean
from podwright.models.base import Connection, Model, TokenCallback
from podwright.models.offline import EchoModel, FunctionModel, ReplayModel, ScriptedModel


Provider = Callable[[str, Connection], Model]
"""Makes the model for a model name (the part behind the slash) and a connection."""

DEFAULT = Connection()
"""Whatever the environment says."""

__all__ = [
    "DEFAULT",
    "Connection",
    "EchoModel",
    "FunctionModel",
    "Model",
    "Provider",
    "ReplayModel",
    "ScriptedModel",
    "TokenCallback",
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


_providers: dict[str, Provider] = {"offline": _offline}
_resolved: dict[tuple[str, Connection], Model] = {}
_instead: ContextVar[Model | None] = ContextVar("podwright_model", default=None)


def register_provider(name: str, provider: Provider) -> None:
    """Make a provider known, or replace one.

    Args:
        name: The part of a model's name before the first slash.
        provider: Is called once for each model name and connection, on first use.
    """
    _providers[name] = provider
    for known in [known for known in list(_resolved) if known[0].partition("/")[0] == name]:
        del _resolved[known]


def resolve(name: str, given: Model | None = None, connection: Connection = DEFAULT) -> Model:
    """The model that answers: the one of `use_model`, else the one given, else that of the name.

    Raises:
        UnknownModelError: No provider of that name is known.
    """
    return _instead.get() or given or _named(name, connection)


def _named(name: str, connection: Connection) -> Model:
    model = _resolved.get((name, connection))
    if model is None:
        provider, _, model_name = name.partition("/")
        if provider not in _providers:
            raise UnknownModelError(
                f"Unknown model provider '{provider}' in '{name}'.",
                suggestion=did_you_mean(provider, _providers) + " Or make yours known with register_provider().",
            )
        model = _resolved[name, connection] = _providers[provider](model_name, connection)
    return model


@contextlib.contextmanager
def use_model(model: Model | str) -> Generator[Model]:
    """Within this context, this model answers every model call, whatever the components name."""
    chosen = _named(model, DEFAULT) if isinstance(model, str) else model
    token = _instead.set(chosen)
    try:
        yield chosen
    finally:
        _instead.reset(token)
