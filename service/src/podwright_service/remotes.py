"""The remote components that the operator configured for this one."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, TypeVar
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

T = TypeVar("T")
_URLS = TypeAdapter(dict[str, str])


def remotes_of(settings: Settings) -> dict[str, Component]:
    """The configured remote components by name; none of them is called here.

    Raises:
        ConfigurationError: A file cannot be read, a name, a URL or a proxy is invalid, or a key or a proxy has no
            component.
    """
    urls = _urls(settings)
    keys = reveal(settings.agent_keys)
    files = settings.agent_key_files
    proxies = reveal(settings.agent_proxies)
    for names, entry in (
        (keys, "PODWRIGHT_AGENT_KEYS has a key"),
        (files, "PODWRIGHT_AGENT_KEY_FILES has a key"),
        (proxies, "PODWRIGHT_AGENT_PROXIES has a proxy"),
    ):
        check_names(names, urls, entry, "PODWRIGHT_AGENTS")
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


def reveal(secrets: Mapping[str, SecretStr]) -> dict[str, str]:
    """Return the secrets of a setting as texts, by name."""
    return {name: secret.get_secret_value() for name, secret in secrets.items()}


def check_names(
    names: Iterable[str], known: Mapping[str, object], entry: str, setting: str
) -> None:
    """Check that what belongs to a server has one.

    Args:
        names: The names of entries of a setting, such as keys.
        known: The servers by name.
        entry: The start of the sentence about an entry without a server, such as "PODWRIGHT_AGENT_KEYS has a key".
        setting: The variable that names the servers.

    Raises:
        ConfigurationError: A name is not that of a server.
    """
    for name in names:
        if name not in known:
            hint = did_you_mean(name, known)
            raise ConfigurationError(
                f"{entry} for '{name}', which {setting} does not name.",
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
    in_file: dict[str, str] = {}
    if settings.agents_file is not None:
        in_file = read_by_name(
            settings.agents_file,
            _URLS,
            "PODWRIGHT_AGENTS_FILE",
            'an object of URLs by name: {"writer": "http://writer:8000"}',
        )
    return {**in_file, **settings.agents}


def read_by_name(
    path: str, adapter: TypeAdapter[T], setting: str, expected: str
) -> T:
    """Read the file of a setting that has an object by name.

    Args:
        path: The file.
        adapter: Checks its content.
        setting: The variable that names the file.
        expected: The content that the file must have, for the error.

    Raises:
        ConfigurationError: It cannot be read, or has another content.
    """
    data: Any = None
    try:
        data = read_data(path)
        return adapter.validate_python(data)
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
        f"{setting}: {without_url_secrets(reason)}",
        suggestion=f"Write {expected}.",
    )
