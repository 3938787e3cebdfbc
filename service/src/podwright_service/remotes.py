"""The remote components that the operator configured for this one."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any
from urllib.parse import urlsplit

from pydantic import SecretStr, TypeAdapter, ValidationError

from podwright.blueprints.files import read_data
from podwright.components import Component
from podwright.data.redaction import without_url_secrets
from podwright.data.text import did_you_mean
from podwright.errors import ConfigurationError
from podwright.remote.remote import Remote, read_api_key
from podwright.schemas.validation_errors import to_problems
from podwright_service.settings import Settings
from podwright_service.variables import masked


def remotes_of(settings: Settings) -> dict[str, Component]:
    """The configured remote components by name; none of them is called here.

    Raises:
        ConfigurationError: A file cannot be read, a name, a URL or a proxy is invalid, or a key or a proxy has no
            component.
    """
    urls = _urls(settings)
    keys = _revealed(settings.agent_keys)
    _check_names(keys, urls, "PODWRIGHT_AGENT_KEYS has a key")
    files = settings.agent_key_files
    _check_names(files, urls, "PODWRIGHT_AGENT_KEY_FILES has a key")
    proxies = _revealed(settings.agent_proxies)
    _check_names(proxies, urls, "PODWRIGHT_AGENT_PROXIES has a proxy")
    remotes: dict[str, Component] = {}
    for name, url in urls.items():
        remotes[name] = Remote(
            name,
            url,
            proxy=proxies.get(name),
            api_key_file=files.get(name),
            api_key=keys.get(name),
        )
    return remotes


def _revealed(secrets: Mapping[str, SecretStr]) -> dict[str, str]:
    return {name: secret.get_secret_value() for name, secret in secrets.items()}


def _check_names(
    names: Iterable[str], urls: Mapping[str, str], mistake: str
) -> None:
    for name in names:
        if name not in urls:
            hint = did_you_mean(name, urls)
            raise ConfigurationError(
                f"{mistake} for '{name}', which PODWRIGHT_AGENTS does not name.",
                suggestion=hint or "Add its URL, or remove the entry.",
            )


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
    key = settings.agent_keys.get(name)
    if not key:
        return name, None
    return name, key.get_secret_value()


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
            map(
                str,
                to_problems(error.errors(include_url=False), masked(data)),
            )
        )
    raise ConfigurationError(
        f"PODWRIGHT_AGENTS_FILE: {without_url_secrets(reason)}",
        suggestion='Write an object of URLs by name: {"writer": "http://writer:8000"}.',
    )
