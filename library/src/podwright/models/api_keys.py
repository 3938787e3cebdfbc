"""API keys of model providers: where a request has its key from, and what an error says of it."""

from __future__ import annotations

import os
from dataclasses import dataclass, field

from podwright.errors import ModelAuthenticationError
from podwright.models.base import KEY_ARGUMENT, Connection
from podwright.models.providers import first_variable

_FORBIDDEN = 403


@dataclass(frozen=True, slots=True)
class ApiKey:
    """The key of a request. No text of it ever has the key itself."""

    value: str = field(default="", repr=False)
    """The key; empty if none is sent, or if a client takes it from somewhere else."""
    source: str = ""
    """The variable or the argument that gives the key, or that gives an empty one."""
    variables: tuple[str, ...] = ()
    """The variables that a missing key may be set in."""
    help: str = ""
    """Where it is written how to authenticate, for providers whose credentials are not known here."""

    @classmethod
    def of(cls, connection: Connection, variables: tuple[str, ...]) -> ApiKey:
        """The key of a connection, or of the first of these variables that is set."""
        key = connection.api_key
        if key is not None:
            return cls(key.strip(), connection.key_source)
        source = first_variable(variables)
        key = os.environ.get(source, "")
        return cls(key.strip(), source, variables)

    @property
    def to_set(self) -> str:
        """What a person sets to give a key: `OPENAI_API_KEY, or api_key`."""
        variables = " or ".join(self.variables)
        if self.source not in ("", KEY_ARGUMENT):
            variables = self.source
        return ", or ".join(filter(None, (variables, KEY_ARGUMENT)))


def key_error(
    prefix: str, status: int, key: ApiKey
) -> ModelAuthenticationError:
    """The error for a request that the provider has refused because of its key.

    Args:
        prefix: The model, and what it answered.
        status: The HTTP status.
        key: The key of the request.
    """
    if key.help:
        return ModelAuthenticationError(
            f"{prefix}: the provider refused its credentials.",
            suggestion=f"Check them, and that they may use this model: {key.help}",
        )
    if not key.value:
        return ModelAuthenticationError(
            f"{prefix}: no API key was sent{_why_missing(key)}.",
            suggestion=f"Set {key.to_set}.",
        )
    message = f"{prefix}: the provider refused the API key in {key.source}"
    if status == _FORBIDDEN:
        message += ", or the key may not use this model"
    return ModelAuthenticationError(
        f"{message}.",
        suggestion=f"Check that {key.source} has a valid key of this provider, and that it may use this model.",
    )


def _why_missing(key: ApiKey) -> str:
    if key.source == KEY_ARGUMENT:
        return f", because {KEY_ARGUMENT} is empty"
    if key.source:
        return f", because {key.source} is not set"
    if not key.variables:
        return ""
    if len(key.variables) == 1:
        return f", because {key.variables[0]} is not set"
    names = " and ".join(key.variables)
    return f", because {names} are not set"
