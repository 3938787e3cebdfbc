"""The remote components that the operator configured for this one."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any
from urllib.parse import urlsplit

from pydantic import TypeAdapter, ValidationError

from podwright.blueprints.files import read_data
from podwright.components import Component
from podwright.components.remote import Remote, read_api_key
from podwright.errors import ConfigurationError
from podwright.text import did_you_mean
from podwright.validation_errors import to_problems
from podwright_service.settings import Settings


def remotes_of(settings: Settings) -> dict[str, Component]:
    """The configured remote components by name; none of them is called here.

    Raises:
        ConfigurationError: A file cannot be read, a name or a URL is invalid, or a key has no component.
    """
    urls = _urls(settings)
    _check_names("PODWRIGHT_AGENT_KEYS", settings.agent_keys, urls)
    _check_names("PODWRIGHT_AGENT_KEY_FILES", settings.agent_key_files, urls)
    remotes: dict[str, Component] = {}
    for name, url in urls.items():
        file = settings.agent_key_files.get(name)
        key = _key_in_settings(name, settings)
        remotes[name] = Remote(name, url, api_key_file=file, api_key=key)
    return remotes


def _check_names(
    variable: str, names: Iterable[str], urls: Mapping[str, str]
) -> None:
    for name in names:
        if name not in urls:
            hint = did_you_mean(name, urls)
            raise ConfigurationError(
                f"{variable} has a key for '{name}', which PODWRIGHT_AGENTS does not name.",
                suggestion=hint or "Add its URL, or remove the key.",
            )


def _key_in_settings(name: str, settings: Settings) -> str | None:
    key = settings.agent_keys.get(name)
    if key is None:
        return None
    return key.get_secret_value()


def name_and_key(url: str, settings: Settings) -> tuple[str, str | None]:
    """The configured name of the remote component at a URL, by default its host, and the API key of that name.

    Raises:
        ConfigurationError: A file cannot be read, or the URL is invalid.
    """
    try:
        host = urlsplit(url).hostname
    except ValueError:
        host = None
    if not host:
        raise ConfigurationError(
            "Invalid URL of a service.",
            suggestion="Write it as http://host:port.",
        )
    name = host[:100]  # longer ones are not names
    for configured, known in _urls(settings).items():
        if known.rstrip("/") == url.rstrip("/"):
            name = configured
            break
    file = settings.agent_key_files.get(name)
    if file:
        return name, read_api_key(name, file)
    return name, _key_in_settings(name, settings)


def _urls(settings: Settings) -> dict[str, str]:
    return {**_urls_in(settings.agents_file), **settings.agents}


def _urls_in(path: str | None) -> dict[str, str]:
    if path is None:
        return {}
    data: Any = None
    try:
        data = read_data(path)
        return TypeAdapter(dict[str, str]).validate_python(data)
    except ConfigurationError as error:
        reason = "; ".join([error.message, *error.details()])
    except ValidationError as error:
        reason = "; ".join(
            map(str, to_problems(error.errors(include_url=False), data))
        )
    raise ConfigurationError(
        f"PODWRIGHT_AGENTS_FILE: {reason}",
        suggestion='Write an object of URLs by name: {"writer": "http://writer:8000"}.',
    )
