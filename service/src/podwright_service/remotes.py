"""The remote components that the operator configured for this one."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from podwright.blueprints import from_json, read_bytes
from podwright.components import Component
from podwright.components.remote import Remote
from podwright.errors import BlueprintValidationError, ConfigurationError
from podwright.json_data import as_object
from podwright.text import did_you_mean, os_error_reason
from podwright_service.settings import Settings


def remotes_of(settings: Settings) -> dict[str, Component]:
    """The configured remote components by name; none of them is called here.

    Raises:
        ConfigurationError: The file cannot be read, a name or a URL is invalid, or a key has no component.
    """
    urls = {**_urls_in(settings.agents_file), **settings.agents}
    keys = {name: key.get_secret_value() for name, key in settings.agent_keys.items()}
    for name in keys:
        if name not in urls:
            raise ConfigurationError(
                f"PODWRIGHT_AGENT_KEYS has a key for '{name}', which PODWRIGHT_AGENTS does not name.",
                suggestion=did_you_mean(name, urls) or "Add its URL, or remove the key.",
            )
    return {name: Remote(name, url, api_key=keys.get(name)) for name, url in urls.items()}


def remotes_in(*components: Component) -> list[str]:
    """The names of the remote components among some components and their parts."""
    parts = (part for component in components for part in everything_in(component))
    return list(dict.fromkeys(part.name for part in parts if isinstance(part, Remote)))


def everything_in(component: Component) -> Iterator[Component]:
    """The component and all its parts."""
    yield component
    for member in component.members().values():
        yield from everything_in(member)


def _urls_in(path: str | None) -> dict[str, str]:
    if path is None:
        return {}
    try:
        data: Any = from_json(read_bytes(path))
    except BlueprintValidationError as error:
        reason = error.problems[0].detail
    except (OSError, ValueError) as error:
        reason = f"{os_error_reason(error)}."
    else:
        urls = as_object(data)
        if isinstance(data, dict) and all(isinstance(url, str) for url in urls.values()):
            return urls
        reason = 'Expected a JSON object of URLs by name, such as {"writer": "http://writer:8000"}.'
    raise ConfigurationError(
        f"PODWRIGHT_AGENTS_FILE: '{path}' cannot be read: {reason}",
        suggestion="Correct the file, or unset the variable.",
    )
