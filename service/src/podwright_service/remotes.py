"""The components in other containers that an operator declares for this one."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, cast

from podwright.blueprints import from_json, read_bytes
from podwright.components import Component
from podwright.components.remote import Remote
from podwright.errors import BlueprintValidationError, ConfigurationError
from podwright.text import did_you_mean, os_error_reason
from podwright_service.settings import Settings


def remotes_of(settings: Settings) -> dict[str, Component]:
    """The declared components by name, those of the file too; none of them is called here.

    Raises:
        ConfigurationError: The file cannot be read, a name or a URL is none, or a key is for nobody.
    """
    urls = {**_in_file(settings.agents_file), **settings.agents}
    keys = {name: key.get_secret_value() for name, key in settings.agent_keys.items()}
    for name in keys:
        if name not in urls:
            raise ConfigurationError(
                f"PODWRIGHT_AGENT_KEYS has a key for '{name}', which PODWRIGHT_AGENTS does not declare.",
                suggestion=did_you_mean(name, urls) or "Declare it, or take its key away.",
            )
    return {name: Remote(name, url, api_key=keys.get(name)) for name, url in urls.items()}


def remotes_in(*components: Component) -> list[str]:
    """Names of the remote components among some, and of those that they work with."""
    inside = (part for one in components for part in everything_in(one))
    return list(dict.fromkeys(part.name for part in inside if isinstance(part, Remote)))


def everything_in(component: Component) -> Iterator[Component]:
    """A component and all inside it."""
    yield component
    for member in component.members().values():
        yield from everything_in(member)


def _in_file(path: str | None) -> dict[str, str]:
    if path is None:
        return {}
    try:
        found: Any = from_json(read_bytes(path))
    except (OSError, ValueError, BlueprintValidationError) as error:
        reason = (
            error.problems[0].detail if isinstance(error, BlueprintValidationError) else f"{os_error_reason(error)}."
        )
        raise ConfigurationError(
            f"PODWRIGHT_AGENTS_FILE, '{path}', cannot be read: {reason}", suggestion="Correct or unset it."
        ) from error
    if not isinstance(found, dict) or not all(isinstance(url, str) for url in cast("dict[str, Any]", found).values()):
        raise ConfigurationError(
            f"PODWRIGHT_AGENTS_FILE, '{path}', is no JSON object of URLs by name.",
            suggestion='Write {"writer": "http://writer:8000"}.',
        )
    return cast("dict[str, str]", found)
