"""What the values of one component say, with those of `defaults`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from podwright import blueprints
from podwright.data.json_data import as_array, as_object
from podwright.errors import ConfigurationError
from podwright.mcp.lock import LOCK_FILE, MCPLock

_REFERENCE = ("repository", "tag", "digest")
"""The values that make an image another one."""
_REPOSITORY = "podwright"
"""The last part of the repository of the service's own image."""
_BLUEPRINT = re.compile(r"blueprint\.(json|ya?ml)")
_MAPS = ("files", "volumes", "mcpServers")
"""Maps with keys of the user's, which null empties."""
_WITHOUT_DEFAULT = ("inline",)
"""Keys that null removes, because the chart has no default for them."""
_FOLDER = "/component"
"""Where the chart mounts the folder of a component, and where an image has it."""


def components_of(values: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """The values of the components by name, without those that are null, which the chart leaves out."""
    return {
        name: as_object(component)
        for name, component in as_object(values.get("components")).items()
        if component is not None
    }


def inline_blueprint(
    name: str, component: Mapping[str, Any]
) -> dict[str, Any] | None:
    """The blueprint in the values of a component; None if it is not there.

    Raises:
        ConfigurationError: It is not an object.
    """
    inline = as_object(component.get("blueprint")).get("inline")
    if inline is None:
        return None
    return _parsed(inline, name, f"components.{name}.blueprint.inline")


def mcp_lock_of(
    component: Mapping[str, Any], defaults: Mapping[str, Any]
) -> MCPLock | None:
    """The locked definitions of MCP tools in the values of a component; None if an image or a ConfigMap may have them.

    Raises:
        ConfigurationError: The lock is invalid.
    """
    text = _merged("files", component, defaults).get(LOCK_FILE)
    if isinstance(text, str):
        return MCPLock.read(text)
    source = _merged("blueprint", component, defaults)
    if source.get("overlay") or _list("filesFrom", component, defaults):
        return None
    return MCPLock()


def earlier_blueprints(
    name: str, component: Mapping[str, Any]
) -> dict[str, dict[str, Any]]:
    """The blueprints in `previous` of a component by their digests, in their order.

    Raises:
        ConfigurationError: One of them is not an object.
    """
    earlier: dict[str, dict[str, Any]] = {}
    for blueprint in as_array(component.get("previous")):
        parsed = _parsed(blueprint, name, f"components.{name}.previous")
        earlier[blueprints.digest(parsed)] = parsed
    return earlier


def _parsed(value: object, name: str, path: str) -> dict[str, Any]:
    if isinstance(value, str):
        value = blueprints.from_yaml(value)
    blueprint = as_object(value)
    if not blueprint:
        raise ConfigurationError(
            f"A blueprint of the component '{name}' is not an object.",
            suggestion=f"Correct {path}.",
        )
    return blueprint


def stores_runs(
    component: Mapping[str, Any], defaults: Mapping[str, Any]
) -> bool:
    """Whether a component has background runs."""
    store = _merged("runs", component, defaults).get("store")
    return store not in (None, "none")


def has_own_image(
    component: Mapping[str, Any], defaults: Mapping[str, Any]
) -> bool:
    """Whether a component names an image, or `defaults` one of another repository than the chart's."""
    return _is_another(_repository({}, defaults)) or _names_image(component)


def is_in_own_image(
    component: Mapping[str, Any], defaults: Mapping[str, Any]
) -> bool:
    """Whether a component's folder is in an image that only this component names, and not in the values.

    It is not in an image of `defaults`, which may be a base for all components, nor in the service's own image with
    another tag.
    """
    if not _names_image(component) or has_folder(component, defaults):
        return False
    return _is_another(_repository(component, defaults))


def _names_image(component: Mapping[str, Any]) -> bool:
    image = as_object(component.get("image"))
    return any(image.get(key) for key in _REFERENCE)


def _repository(
    component: Mapping[str, Any], defaults: Mapping[str, Any]
) -> str:
    """The repository of a component's image; the chart's own if none is named."""
    named = _merged("image", component, defaults).get("repository")
    return str(named or _REPOSITORY)


def _is_another(repository: str) -> bool:
    """Whether a repository has another name than the service's, which may be in any registry."""
    return repository.rpartition("/")[2] != _REPOSITORY


def place_of(component: Mapping[str, Any], defaults: Mapping[str, Any]) -> str:
    """Where a component has its blueprint, if that is not in its values."""
    image = image_of(component, defaults)
    if image:
        return f"the image {image}"
    return "a ConfigMap or a volume"


def image_of(
    component: Mapping[str, Any], defaults: Mapping[str, Any]
) -> str | None:
    """The reference of the image that has the folder of a component; None if no image has it."""
    if has_folder(component, defaults) or not has_own_image(
        component, defaults
    ):
        return None
    image = _merged("image", component, defaults)
    reference = _repository(component, defaults)
    if image.get("tag"):
        reference += f":{image['tag']}"
    if image.get("digest"):
        reference += f"@{image['digest']}"
    return reference


def is_served(
    component: Mapping[str, Any], defaults: Mapping[str, Any]
) -> bool:
    """Whether a component has a blueprint: in its values, in its image, or on a volume."""
    if has_own_image(component, defaults) or has_folder(component, defaults):
        return True
    mounts = [
        *_merged("volumes", component, defaults).values(),
        *_list("extraVolumeMounts", component, defaults),
    ]
    return any(as_object(mount).get("mountPath") == _FOLDER for mount in mounts)


def has_folder(
    component: Mapping[str, Any], defaults: Mapping[str, Any]
) -> bool:
    """Whether the values have a component's blueprint, or name ConfigMaps that may have it."""
    source = _merged("blueprint", component, defaults)
    if any(source.get(key) for key in ("inline", "configMap", "overlay")):
        return True
    files = _merged("files", component, defaults)
    if files and _list("filesFrom", component, defaults):
        return True
    return any(_BLUEPRINT.fullmatch(name) for name in files)


def mcp_servers_of(
    component: Mapping[str, Any], defaults: Mapping[str, Any]
) -> set[str] | None:
    """The names of the MCP servers of a component; None if a setting has them, which may be a file."""
    settings = _merged("settings", component, defaults)
    if settings.get("mcp_servers") or settings.get("mcp_servers_file"):
        return None
    return set(_merged("mcpServers", component, defaults))


def _merged(
    key: str, component: Mapping[str, Any], defaults: Mapping[str, Any]
) -> dict[str, Any]:
    """The values at a key, without null, which empties the maps with keys of the user's."""
    if key in _MAPS and key in component and component[key] is None:
        return {}
    merged = dict(as_object(defaults.get(key)))
    for name, value in as_object(component.get(key)).items():
        if value is not None:
            merged[name] = value
        elif key in _MAPS or name in _WITHOUT_DEFAULT:
            merged.pop(name, None)
    return merged


def _list(
    key: str, component: Mapping[str, Any], defaults: Mapping[str, Any]
) -> list[Any]:
    return as_array(component.get(key, defaults.get(key)))
